// The package's worker with the fake engine in it; the tests' build puts it where the package looks.
import { parentPort } from 'node:worker_threads';
import { Host, serve } from '../src/host.js';
import { fakeEngine, newSeen } from './fake-engine.js';

serve({
  post: message => parentPort!.postMessage(message),
  listen: on => void parentPort!.on('message', on),
}, new Host(fakeEngine(newSeen())));

// What the package says in a service worker: answers each message with it.
import { Tern } from '/tern/index.js';

addEventListener('message', ({ ports }) => {
  const answer = (said) => ports[0].postMessage(said);
  Tern.load('/models/stories.gguf').then(
    () => answer({ code: 'loaded' }),
    ({ code, message }) => answer({ code, message }),
  );
});

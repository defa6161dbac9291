// A web server for tests: files with the headers that a page needs, byte ranges, a log of what was
// asked and how many bytes were sent, and faults on demand.
//
//     const server = await serve({ roots: { '/': 'build/web', '/models/': 'models' } });
//     server.fault('/models/stories.gguf', { cutAfter: 1e6, times: 1 });
//
// Reads of a path look for the longest prefix in roots; a root is a folder, or a function that
// returns the bytes of a path (undefined: not found).
import { createHash } from 'node:crypto';
import { open, stat } from 'node:fs/promises';
import http from 'node:http';
import path from 'node:path';

const types = {
  '.css': 'text/css',
  '.html': 'text/html; charset=utf-8',
  '.ico': 'image/x-icon',
  '.js': 'text/javascript',
  '.json': 'application/json',
  '.mjs': 'text/javascript',
  '.svg': 'image/svg+xml',
  '.wasm': 'application/wasm',
  '.webmanifest': 'application/manifest+json',
};
const PIECE = 64 << 10;

// Options: roots; port (0: any); isolated (default true: the headers of cross-origin isolation);
// csp (a policy, to which a report address is added: server.violations has what was reported);
// cors (true: every origin may read); headers (more of them).
export async function serve(options = {}) {
  const server = new TestServer(options);
  await server.open(options.port ?? 0);
  return server;
}

class TestServer {
  requests = []; // {method, path, range, status, sent, ended}: sent grows while bytes flow
  violations = []; // of the content security policy
  #options;
  #faults = new Map(); // path -> [{fault, left}], the first one counts
  #http;
  #sockets = new Set();

  constructor(options) {
    this.#options = { roots: {}, isolated: true, ...options };
  }

  async open(port) {
    this.#http = http.createServer((request, response) =>
      this.#answer(request, response).catch((e) => {
        if (!response.headersSent) response.writeHead(500);
        response.end(String(e.stack));
      }),
    );
    this.#http.on('connection', (socket) => {
      this.#sockets.add(socket);
      socket.on('close', () => this.#sockets.delete(socket));
    });
    await new Promise((done, fail) => {
      this.#http.once('error', fail).listen(port, '127.0.0.1', done);
    });
    this.port = this.#http.address().port;
    this.url = `http://127.0.0.1:${this.port}`;
  }

  // Also ends what is under way, as a network that is gone would.
  async close() {
    if (!this.#http) return;
    const closing = new Promise((done) => this.#http.close(done));
    for (const socket of this.#sockets) socket.destroy();
    await closing;
    this.#http = undefined;
  }

  // From now on answers for `path` have a fault:
  //   cutAfter: n        the connection ends after n bytes of the body
  //   stallAfter: n      no byte after the nth, connection open
  //   bytesPerSecond: n  slowly
  //   etag: text         this entity tag ('' for none)
  //   flip: n            byte n of the file arrives with its lowest bit changed
  //   noRanges: true     ranges are ignored, the whole file comes with status 200
  //   noLength: true     no Content-Length
  //   status: n          this status, without the file
  //   headers: {...}     more headers
  // times: for so many requests, then the next one of the list. A later call replaces all of the
  // path's, one without faults ends them.
  fault(path, ...faults) {
    this.#faults.set(
      path,
      faults.map((fault) => ({ fault, left: fault.times ?? Infinity })),
    );
  }

  // Bytes of bodies sent for a path, over all requests.
  sent(path) {
    return this.requests.filter((r) => r.path === path).reduce((n, r) => n + r.sent, 0);
  }

  #takeFault(path) {
    const list = this.#faults.get(path) ?? [];
    if (!list.length) return {};
    const { fault } = list[0];
    if (--list[0].left <= 0) list.shift();
    return fault;
  }

  #headers(fault) {
    const { isolated, csp, cors, headers } = this.#options;
    const all = { 'Cache-Control': 'no-store', ...headers, ...fault.headers };
    if (isolated) {
      all['Cross-Origin-Opener-Policy'] = 'same-origin';
      all['Cross-Origin-Embedder-Policy'] = 'require-corp';
      all['Cross-Origin-Resource-Policy'] = cors ? 'cross-origin' : 'same-origin';
    }
    if (csp) all['Content-Security-Policy'] = `${csp}; report-uri /csp-report`;
    if (cors) {
      all['Access-Control-Allow-Origin'] = '*';
      all['Access-Control-Allow-Headers'] = 'Range, If-Range';
      all['Access-Control-Expose-Headers'] =
        'Content-Range, Accept-Ranges, ETag, X-Linked-ETag, X-Linked-Size, X-Repo-Commit';
    }
    return all;
  }

  async #answer(request, response) {
    const pathname = decodeURIComponent(new URL(request.url, 'http://x').pathname);
    const log = {
      method: request.method,
      path: pathname,
      range: request.headers.range,
      status: 0,
      sent: 0,
      ended: false,
    };
    if (pathname === '/csp-report') return this.#takeReport(request, response);
    this.requests.push(log);
    const fault = this.#takeFault(pathname);
    const headers = this.#headers(fault);
    const finish = (status, text = '') => {
      response.writeHead((log.status = status), headers);
      response.end(text);
      log.ended = true;
    };
    if (request.method === 'OPTIONS') return finish(204);
    if (fault.status) return finish(fault.status, 'a fault that a test asked for');
    const file = await openFile(this.#options.roots, pathname);
    if (!file) return finish(404, `no ${pathname}`);
    try {
      await this.#sendFile(request, response, { file, fault, headers, log, finish });
    } finally {
      await file.close();
      log.ended = true;
    }
  }

  async #sendFile(request, response, { file, fault, headers, log, finish }) {
    const etag = fault.etag ?? file.etag;
    if (etag) headers.ETag = etag;
    const kind = file.name.endsWith('/') ? '.html' : path.extname(file.name);
    headers['Content-Type'] = types[kind] ?? 'application/octet-stream';
    headers['Accept-Ranges'] = fault.noRanges ? 'none' : 'bytes';
    const wanted = fault.noRanges ? undefined : parseRange(request.headers, file.size, etag);
    if (wanted === null) {
      headers['Content-Range'] = `bytes */${file.size}`;
      return finish(416);
    }
    const { from, to } = wanted ?? { from: 0, to: file.size };
    if (wanted) headers['Content-Range'] = `bytes ${from}-${to - 1}/${file.size}`;
    if (!fault.noLength) headers['Content-Length'] = to - from;
    response.writeHead((log.status = wanted ? 206 : 200), headers);
    if (request.method === 'HEAD') return response.end();
    await sendBytes(response, file, { from, to, fault, log });
  }

  async #takeReport(request, response) {
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    this.violations.push(JSON.parse(Buffer.concat(pieces).toString())['csp-report']);
    response.writeHead(204).end();
  }
}

// A file to read ranges of, or undefined.
async function openFile(roots, pathname) {
  const prefix = Object.keys(roots)
    .filter((p) => pathname.startsWith(p))
    .sort((a, b) => b.length - a.length)[0];
  if (prefix === undefined) return undefined;
  const where = roots[prefix];
  if (typeof where === 'function') return openBytes(pathname, await where(pathname));
  const rest = path.normalize('/' + pathname.slice(prefix.length));
  const name = path.join(where, rest.endsWith('/') ? rest + 'index.html' : rest);
  const info = await stat(name).catch(() => undefined);
  if (!info?.isFile()) return undefined;
  const handle = await open(name);
  return {
    name,
    size: info.size,
    etag: `"${info.size.toString(16)}-${Math.round(info.mtimeMs).toString(16)}"`,
    read: async (at, n) => {
      const { buffer, bytesRead } = await handle.read(Buffer.alloc(n), 0, n, at);
      return buffer.subarray(0, bytesRead);
    },
    close: () => handle.close(),
  };
}

function openBytes(name, bytes) {
  if (bytes === undefined) return undefined;
  const all = Buffer.from(bytes);
  return {
    name,
    size: all.length,
    etag: `"${createHash('sha1').update(all).digest('hex')}"`,
    read: async (at, n) => Buffer.from(all.subarray(at, at + n)),
    close: async () => {},
  };
}

// One range of bytes; undefined: the whole file; null: cannot be satisfied.
function parseRange(headers, size, etag) {
  const match = /^bytes=(\d*)-(\d*)$/.exec(headers.range ?? '');
  if (!match || (match[1] === '' && match[2] === '')) return undefined;
  if (headers['if-range'] !== undefined && headers['if-range'] !== etag) return undefined;
  const from = match[1] === '' ? Math.max(0, size - Number(match[2])) : Number(match[1]);
  const last = match[1] === '' || match[2] === '' ? size - 1 : Math.min(Number(match[2]), size - 1);
  return from >= size || last < from ? null : { from, to: last + 1 };
}

async function sendBytes(response, file, { from, to, fault, log }) {
  const socket = response.socket;
  const began = performance.now();
  const cut = Math.min(
    to,
    from + (fault.cutAfter ?? Infinity),
    from + (fault.stallAfter ?? Infinity),
  );
  let at = from;
  while (at < cut && !socket.destroyed) {
    const bytes = await file.read(at, Math.min(PIECE, cut - at));
    if (!bytes.length) break;
    if (fault.flip >= at && fault.flip < at + bytes.length) bytes[fault.flip - at] ^= 1;
    await new Promise((done) => {
      socket.once('close', done);
      response.write(bytes, () => {
        socket.off('close', done);
        done();
      });
    });
    if (socket.destroyed) break;
    at += bytes.length;
    log.sent += bytes.length;
    if (fault.bytesPerSecond) {
      const due = (log.sent / fault.bytesPerSecond) * 1000 - (performance.now() - began);
      if (due > 0) await new Promise((done) => setTimeout(done, due));
    }
  }
  if (at === to) return response.end();
  if (fault.stallAfter !== undefined && !socket.destroyed)
    await new Promise((done) => socket.once('close', done));
  socket.destroy();
}

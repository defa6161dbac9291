#!/usr/bin/env node
// Serves a folder of pages (build/web/pages) with the headers that they want: cross-origin isolation (threads
// need it), a strict content security policy, right types, byte ranges for models. No dependencies.
//
// usage: node web/serve.mjs [FOLDER] [--port 8080] [--host 127.0.0.1] [--no-isolation] [--cors]
//   --no-isolation  without COOP and COEP: SharedArrayBuffer is missing, as on most hosts
//   --cors          other sites may load the files: the summary widget embedded elsewhere
import { createReadStream } from 'node:fs';
import { realpath, stat } from 'node:fs/promises';
import { createServer as createHttpServer } from 'node:http';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { cspHeader } from './csp.mjs';

const TYPES = {
  '.css': 'text/css; charset=utf-8',
  '.gguf': 'application/octet-stream',
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.json': 'application/json; charset=utf-8',
  '.map': 'application/json; charset=utf-8',
  '.md': 'text/markdown; charset=utf-8',
  '.mjs': 'text/javascript; charset=utf-8',
  '.png': 'image/png',
  '.svg': 'image/svg+xml',
  '.ts': 'text/plain; charset=utf-8',
  '.txt': 'text/plain; charset=utf-8',
  '.wasm': 'application/wasm',
  '.webmanifest': 'application/manifest+json; charset=utf-8',
};

function commonHeaders({ isolation, cors }) {
  return {
    'Cache-Control': 'no-cache', // kept, but asked for again: an ETag answers
    'Content-Security-Policy': cspHeader,
    'Cross-Origin-Resource-Policy': cors ? 'cross-origin' : 'same-origin',
    'Permissions-Policy': 'camera=(), geolocation=(), microphone=(self)',
    'Referrer-Policy': 'no-referrer',
    'X-Content-Type-Options': 'nosniff',
    ...(isolation && {
      'Cross-Origin-Opener-Policy': 'same-origin',
      'Cross-Origin-Embedder-Policy': 'require-corp',
    }),
    ...(cors && {
      'Access-Control-Allow-Origin': '*',
      'Access-Control-Expose-Headers': 'Accept-Ranges, Content-Length, Content-Range, ETag',
    }),
  };
}

// The file that a request's path names, or null: never one outside of `root`, not by "..", not by an
// encoded one, not by a link that leads out.
async function resolveFile(root, url) {
  let name;
  try {
    name = decodeURIComponent(url.split(/[?#]/, 1)[0]);
  } catch {
    return null; // a broken %-sequence
  }
  if (!name.startsWith('/') || /[\0\\]/.test(name) || name.split('/').includes('..')) return null;
  try {
    const file = await realpath(path.join(root, name));
    const inside = file === root || file.startsWith(root + path.sep);
    return inside ? { file, name, info: await stat(file) } : null;
  } catch {
    return null; // nothing there
  }
}

// "bytes=a-b", "bytes=a-" or "bytes=-n" of a file of `size` bytes: its first and last byte, null where
// the whole file is the answer (no range, several, or one that is not understood), false where the range
// lies outside of the file.
export function parseRange(header, size) {
  const match = /^bytes=(\d*)-(\d*)$/.exec(header ?? '');
  if (!match || (match[1] === '' && match[2] === '')) return null;
  const [from, to] = [match[1], match[2]].map((digits) => (digits === '' ? null : Number(digits)));
  if (from === null)
    return to === 0 || size === 0 ? false : { first: Math.max(0, size - to), last: size - 1 };
  if (to !== null && to < from) return null;
  return from >= size ? false : { first: from, last: Math.min(to ?? size - 1, size - 1) };
}

function answer(response, status, headers, text = '') {
  response.writeHead(status, { 'Content-Type': 'text/plain; charset=utf-8', ...headers });
  response.end(text);
}

function sendFile(request, response, headers, file, info) {
  const etag = `"${info.size.toString(16)}-${Math.round(info.mtimeMs).toString(16)}"`;
  const all = {
    ...headers,
    'Accept-Ranges': 'bytes',
    'Content-Type': TYPES[path.extname(file).toLowerCase()] ?? 'application/octet-stream',
    ETag: etag,
    'Last-Modified': info.mtime.toUTCString(),
  };
  const known = (request.headers['if-none-match'] ?? '').split(/\s*,\s*/);
  if (known.includes(etag)) return answer(response, 304, all);
  // If-Range: a part is wanted only of the file that the client has the other parts of.
  const wanted = request.headers['if-range'];
  const range = wanted && wanted !== etag ? null : parseRange(request.headers.range, info.size);
  if (range === false) {
    return answer(response, 416, { ...headers, 'Content-Range': `bytes */${info.size}` });
  }
  const { first, last } = range ?? { first: 0, last: info.size - 1 };
  all['Content-Length'] = String(last - first + 1);
  if (range) all['Content-Range'] = `bytes ${first}-${last}/${info.size}`;
  response.writeHead(range ? 206 : 200, all);
  if (request.method === 'HEAD' || last < first) return response.end();
  const stream = createReadStream(file, { start: first, end: last });
  stream.on('error', () => response.destroy());
  response.on('close', () => stream.destroy());
  stream.pipe(response);
}

/** An HTTP server of the folder `root`; call listen() on it. */
export async function createServer({ root, isolation = true, cors = false }) {
  const base = await realpath(root);
  const headers = commonHeaders({ isolation, cors });
  return createHttpServer(async (request, response) => {
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      return answer(response, 405, { ...headers, Allow: 'GET, HEAD' }, 'only GET and HEAD\n');
    }
    let found = await resolveFile(base, request.url);
    if (found?.info.isDirectory()) {
      if (!found.name.endsWith('/')) {
        // One slash at the front: "//host" would be another site.
        const to = encodeURI(found.name.replace(/^\/+/, '/')) + '/';
        return answer(response, 301, { ...headers, Location: to });
      }
      found = await resolveFile(base, encodeURI(found.name) + 'index.html');
    }
    if (!found?.info.isFile()) return answer(response, 404, headers, 'not found\n');
    sendFile(request, response, headers, found.file, found.info);
  });
}

function parseArguments(words) {
  const options = { root: null, port: 8080, host: '127.0.0.1', isolation: true, cors: false };
  for (let i = 0; i < words.length; i++) {
    if (words[i] === '--no-isolation') options.isolation = false;
    else if (words[i] === '--cors') options.cors = true;
    else if (words[i] === '--port') options.port = Number(words[++i]);
    else if (words[i] === '--host') options.host = words[++i];
    else if (!words[i].startsWith('-') && !options.root) options.root = words[i];
    else throw new Error(`serve: what is "${words[i]}"? See the head of web/serve.mjs`);
  }
  if (!Number.isInteger(options.port) || options.port < 0 || options.port > 65535 || !options.host) {
    throw new Error('serve: --port wants a number from 0 to 65535, --host a name');
  }
  options.root ??= fileURLToPath(new URL('../build/web/pages', import.meta.url));
  return options;
}

async function main() {
  const options = parseArguments(process.argv.slice(2));
  const server = await createServer(options).catch((error) => {
    throw new Error(
      `serve: ${options.root}: ${error.code === 'ENOENT' ? 'not there; `make web` builds them' : error.message}`,
    );
  });
  server.on('error', (error) => {
    console.error(
      `serve: ${error.code === 'EADDRINUSE' ? `port ${options.port} is in use: --port N takes another` : error.message}`,
    );
    process.exit(1);
  });
  server.listen(options.port, options.host, () => {
    const { port } = server.address();
    const host = options.host.includes(':') ? `[${options.host}]` : options.host;
    console.log(`http://${host === '127.0.0.1' ? 'localhost' : host}:${port}/`);
  });
}

if (process.argv[1] && import.meta.url === pathToFileURL(await realpath(process.argv[1])).href) {
  main().catch((error) => {
    console.error(error.message);
    process.exit(1);
  });
}

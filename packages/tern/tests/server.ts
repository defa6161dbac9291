// A server whose faults a test chooses: dropped connections, no ranges, changed files, wrong bytes.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface Faults {
  etag?: string | null;
  ranges?: boolean;
  gzip?: boolean; // pretends: a wrong length, as of a compressed body
  dropAfter?: number[]; // bytes after which the first, second, ... answer is cut
  status?: number[]; // of the first, second, ... answer; 0: as it should be
  retryAfter?: string;
  flip?: (at: number) => boolean; // bytes to spoil
  headers?: Record<string, string>;
  stallAfter?: number[];
}

export class FileServer {
  readonly requests: { method: string; url: string; range: string | undefined; ifRange: string | undefined;
    authorization: string | undefined }[] = [];
  sent = 0; // bytes of bodies
  faults: Faults = {};
  base = '';
  #server: Server;

  private constructor(readonly files: Map<string, Uint8Array>) {
    this.#server = createServer((request, response) => this.#answer(request, response));
  }

  static async start(files: Record<string, Uint8Array | string>): Promise<FileServer> {
    const bytes = Object.entries(files).map(([name, body]) =>
      [name, typeof body === 'string' ? new TextEncoder().encode(body) : body] as const);
    const server = new FileServer(new Map(bytes));
    await new Promise<void>(resolve => server.#server.listen(0, '127.0.0.1', resolve));
    server.base = `http://127.0.0.1:${(server.#server.address() as AddressInfo).port}`;
    return server;
  }
  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise(resolve => this.#server.close(resolve));
  }
  reset(faults: Faults = {}): void {
    this.requests.length = 0;
    this.sent = 0;
    this.faults = faults;
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const { faults } = this;
    const url = request.url!;
    const { range } = request.headers;
    const ifRange = request.headers['if-range'] as string | undefined;
    this.requests.push({ method: request.method!, url, range, ifRange, authorization: request.headers.authorization });
    const status = faults.status?.shift();
    if (status) {
      if (faults.retryAfter) response.setHeader('retry-after', faults.retryAfter);
      response.writeHead(status).end();
      return;
    }
    let body = this.files.get(decodeURIComponent(url.replace(/\?.*/, '')));
    if (!body) return void response.writeHead(404).end();
    const etag = faults.etag === undefined ? '"one"' : faults.etag;
    const whole = body.length;
    const wanted = /^bytes=(\d+)-(\d*)$/.exec(range ?? '');
    const headers: Record<string, string> = { ...(etag ? { etag } : {}), ...faults.headers };
    let code = 200;
    let start = 0;
    if (wanted && faults.ranges !== false && (!ifRange || ifRange === etag)) {
      start = Number(wanted[1]);
      const end = wanted[2] ? Math.min(Number(wanted[2]) + 1, whole) : whole;
      if (start >= whole) return void response.writeHead(416, { 'content-range': `bytes */${whole}` }).end();
      body = body.subarray(start, end);
      headers['content-range'] = `bytes ${start}-${end - 1}/${whole}`;
      code = 206;
    }
    headers['content-length'] = String(body.length);
    this.#send(request, response, code, headers, body, start);
  }

  #send(request: IncomingMessage, response: ServerResponse, code: number, headers: Record<string, string>,
    body: Uint8Array, start: number): void {
    const { faults } = this;
    if (request.method === 'HEAD') return void response.writeHead(code, headers).end();
    if (faults.flip) body = body.map((byte, i) => faults.flip!(start + i) ? byte ^ 1 : byte);
    const drop = faults.dropAfter?.shift() ?? Infinity;
    const stall = faults.stallAfter?.shift() ?? Infinity;
    const part = body.subarray(0, Math.min(drop, stall));
    this.sent += part.length;
    response.writeHead(code, headers);
    response.write(part, () => {
      if (drop < body.length) setTimeout(() => response.destroy(), 20);
      else if (stall >= body.length) response.end();
    });
  }
}

// Bytes that look random, the same each time.
export function noise(n: number, seed = 1): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(n);
  for (let i = 0, x = seed; i < n; i++) {
    x = (Math.imul(x, 1664525) + 1013904223) | 0;
    bytes[i] = x >>> 24;
  }
  return bytes;
}

// What begins as a GGUF file does.
export function model(n: number, seed = 1): Uint8Array<ArrayBuffer> {
  const bytes = noise(n, seed);
  bytes.set(new TextEncoder().encode('GGUF'));
  return bytes;
}
// What begins as a safetensors file does: the length of a header, and the header.
export const tensors = (text: string): string => `\x02\0\0\0\0\0\0\0{}${text}`;

// Downloads one file into a stored file, in pieces that each have a checksum. Pieces that are missing,
// because they never arrived or are damaged, are requested by range; so resuming a download
// and repairing one are the same thing.
import { formatBytes } from '../bytes.js';
import { TernError, aborted, throwIfAborted, toTernError } from '../errors.js';
import { sleep } from '../platform.js';
import { Unreached, ask } from './network.js';
import { Sha256, sha256 } from './sha256.js';
import type { StoredFile } from './storage.js';

export const PIECE = 4 << 20; // bytes

export interface Remote {
  name: string; // in the model: "model.gguf"
  url: string;
  size?: number; // as the hub says
  sha256?: string; // of the whole
}

// What is known about a stored file; kept next to it.
export interface FileState {
  url: string;
  etag: string | null; // as the server sent it, or else the time of last modification
  size: number; // -1: unknown yet
  pieces: (string | null)[]; // checksum of each piece that is there; null: missing
  sha256: string | null; // of the whole, as the hub says
  checked: boolean; // the whole was compared with it
}

export const emptyState = (url: string): FileState =>
  ({ url, etag: null, size: -1, pieces: [], sha256: null, checked: false });

const nPieces = (size: number): number => Math.max(1, Math.ceil(size / PIECE));
const pieceBytes = (state: FileState, i: number): number =>
  state.size < 0 ? PIECE : Math.min(PIECE, state.size - i * PIECE);

const hasAll = (state: FileState): boolean =>
  state.size >= 0 && state.pieces.length === nPieces(state.size) && !state.pieces.includes(null);
export const isComplete = (state: FileState): boolean => hasAll(state) && (state.sha256 === null || state.checked);
export function storedBytes(state: FileState): number {
  return state.pieces.reduce((n, piece, i) => n + (piece ? pieceBytes(state, i) : 0), 0);
}

export interface Wire {
  fetch: typeof fetch;
  headers: Record<string, string>;
  signal?: AbortSignal | undefined;
  // A request with If-Range to another origin needs a CORS preflight, and few servers allow it; there the
  // answer's ETag is compared instead.
  ifRange(url: string): boolean;
  onBytes(n: number): void; // received over the network
  onNote(sentence: string): void;
  onRetry?(reason: string): void; // it is not given up
  onSize(missing: number): Promise<void>; // this many bytes are about to arrive; may refuse
  save(state: FileState): Promise<void>;
  backoffMs?: number; // before the second try; doubles (500)
  stallMs?: number; // without a byte: the connection counts as lost (60,000)
}

const TRIES = 6; // without a new byte
const FIRST_TRIES = 3; // of a server that has not answered yet: people wait for its reason

class Retry extends Error {
  constructor(message: string, readonly waitMs = -1, options?: ErrorOptions, readonly lasting = false) {
    super(message, options);
  }
}

export class Download {
  #file!: StoredFile; // while it runs
  #buffer: Uint8Array<ArrayBuffer> | undefined;
  #index = -1; // the piece that the buffer is for
  #filled = 0;
  #expected = new Map<number, string>(); // of damaged pieces
  #hasher = new Sha256();
  #saved = 0; // when
  #restarts = 0;
  #most = 0; // bytes that were there at once, at most
  #announced = -1; // the size that was
  #hint = -1; // the length of an answer that may be compressed
  #answered = false; // the server, to this load

  constructor(readonly state: FileState, private remote: Remote, private wire: Wire) {}

  get loaded(): number {
    return storedBytes(this.state) + this.#filled;
  }
  get missing(): number { // of what is stored; negative: unknown
    return this.total - storedBytes(this.state);
  }
  get total(): number { // -1: unknown
    return Math.max(this.state.size, this.#hint, this.remote.size ?? -1);
  }

  // Compares stored pieces with their checksums; those that differ count as missing. Returns the number of
  // damaged pieces.
  async verify(read: (at: number, into: Uint8Array<ArrayBuffer>) => number | Promise<number>,
    onBytes: (n: number) => void): Promise<number> {
    const { state } = this;
    let damaged = 0;
    for (let i = 0; i < state.pieces.length; i += 4) {
      throwIfAborted(this.wire.signal);
      const batch = await Promise.all(state.pieces.slice(i, i + 4).map(async (hash, k) => {
        if (!hash) return undefined;
        const bytes = new Uint8Array(pieceBytes(state, i + k));
        const n = await read((i + k) * PIECE, bytes);
        return { bytes, good: n === bytes.length && await sha256(bytes) === hash };
      }));
      batch.forEach((piece, k) => {
        if (!piece) return;
        onBytes(piece.bytes.length);
        if (piece.good) return this.#digest(i + k, piece.bytes);
        this.#expected.set(i + k, state.pieces[i + k]!);
        state.pieces[i + k] = null;
        damaged++;
      });
    }
    return damaged;
  }

  // Only while pieces come in order; run() catches up on the rest.
  #digest(index: number, bytes: Uint8Array): void {
    if (this.state.sha256 && this.#hasher.length === index * PIECE) this.#hasher.update(bytes);
  }

  // Downloads what is missing. The caller closes the file.
  async run(file: StoredFile): Promise<void> {
    this.#file = file;
    this.state.sha256 ??= this.remote.sha256 ?? null;
    for (let failures = 0; ;) {
      throwIfAborted(this.wire.signal);
      try {
        while (!hasAll(this.state)) await this.#attempt();
        if (await this.#wholeIsRight()) break;
        continue;
      } catch (error) {
        await this.#save(true);
        if (this.wire.signal?.aborted) throw aborted(this.wire.signal);
        if (!(error instanceof Retry)) throw error;
        if (this.loaded > this.#most) failures = 0;
        this.#most = Math.max(this.#most, this.loaded);
        if (error.lasting || ++failures >= (this.#answered ? TRIES : FIRST_TRIES)) throw this.#givenUp(error, failures);
        this.wire.onRetry?.(error.message);
        const wait = error.waitMs >= 0 ? error.waitMs
          : Math.min(30_000, (this.wire.backoffMs ?? 500) * 2 ** (failures - 1)) * (0.75 + Math.random() / 2);
        await sleep(wait, this.wire.signal);
      }
    }
    if (file.size() > this.state.size) await file.truncate(this.state.size);
    await this.#save(true);
  }

  #givenUp(error: Retry, failures: number): TernError {
    const { size } = this.state;
    const tries = error.lasting ? '' : `, after ${failures} tries`;
    const kept = this.loaded > 0
      ? `; ${formatBytes(this.loaded)}${size > 0 ? ` of ${formatBytes(size)}` : ''} are kept, load again to go on` : '';
    return new TernError('network', `${this.remote.name}: ${error.message}${tries}${kept}`,
      { cause: error.cause });
  }

  #gap(): { start: number; end: number } { // end -1: whatever comes
    const { pieces, size } = this.state;
    let first = pieces.indexOf(null);
    if (first < 0) first = pieces.length;
    let last = first;
    while (last < pieces.length && !pieces[last]) last++;
    const open = last >= pieces.length;
    const start = first * PIECE + (first === this.#index ? this.#filled : 0);
    return { start, end: open ? size : Math.min(size, last * PIECE) };
  }

  async #attempt(): Promise<void> {
    const gap = this.#gap();
    if (gap.end >= 0 && gap.start >= gap.end) return this.#finishPiece(gap.start);
    const stop = new AbortController();
    const cancel = () => stop.abort();
    this.wire.signal?.addEventListener('abort', cancel);
    const stalled = { timer: setTimeout(cancel, this.wire.stallMs ?? 60_000) };
    const alive = () => {
      clearTimeout(stalled.timer);
      stalled.timer = setTimeout(cancel, this.wire.stallMs ?? 60_000);
    };
    try {
      const response = await this.#request(gap, stop.signal);
      const start = await this.#accept(response, gap.start);
      await this.#announce();
      await this.#receive(response, start, gap.end, alive);
    } finally {
      clearTimeout(stalled.timer);
      this.wire.signal?.removeEventListener('abort', cancel);
      stop.abort(); // the rest of an answer that is not wanted
    }
  }

  async #announce(): Promise<void> {
    const size = this.total;
    if (size === this.#announced) return;
    this.#announced = size;
    await this.wire.onSize(size - this.loaded);
    this.#file.reserve?.(size);
  }

  async #request(gap: { start: number; end: number }, signal: AbortSignal): Promise<Response> {
    const { url } = this.remote;
    const toEnd = gap.end < 0 || gap.end === this.state.size;
    // Even from byte 0: an answer to a range request is never compressed, and shows that ranges work.
    const headers: Record<string, string> = {
      ...this.wire.headers, Range: `bytes=${gap.start}-${toEnd ? '' : gap.end - 1}`,
    };
    const { etag } = this.state;
    if (gap.start > 0 && etag && !etag.startsWith('W/') && this.wire.ifRange(url)) headers['If-Range'] = etag;
    let response: Response;
    try {
      response = await ask(url, { fetch: this.wire.fetch, headers, signal, onRetry: this.wire.onRetry });
      this.#answered = true;
    } catch (cause) {
      if (!(cause instanceof Unreached)) throw new Retry('the connection was given up', -1, { cause }); // it stalled
      throw new Retry(cause.message, -1, { cause }, cause.lasting);
    }
    if (response.status === 416 && gap.start > 0) throw await this.#restart('is shorter now on the server');
    if (response.ok) return response;
    throw this.#refused(response);
  }

  #refused(response: Response): Error {
    const { status } = response;
    const words = `the server answers ${status}${response.statusText ? ` ${response.statusText}` : ''}`;
    if (status === 408 || status === 425 || status === 429 || status >= 500) {
      const after = response.headers.get('retry-after');
      const seconds = after ? Number(after) || (Date.parse(after) - Date.now()) / 1000 : NaN;
      return new Retry(words, seconds >= 0 ? Math.min(seconds, 60) * 1000 : -1);
    }
    const hint = status === 401 || status === 403 ? '; a private or gated repository needs hub.token' : '';
    return new TernError('network', `${this.remote.name}: ${words}${hint} (${this.remote.url})`);
  }

  // Takes the answer's information about the file; returns the offset at which its body begins.
  async #accept(response: Response, start: number): Promise<number> {
    const { state } = this;
    const etag = response.headers.get('etag') ?? response.headers.get('last-modified');
    const linked = response.headers.get('x-linked-etag')?.replace(/^(W\/)?"|"$/g, '');
    if (linked && /^[0-9a-f]{64}$/.test(linked) && !this.remote.sha256) state.sha256 = linked;
    const length = Number(response.headers.get('content-length') ?? NaN);
    const same = !state.etag || !etag || plainTag(etag) === plainTag(state.etag);
    if (response.status !== 206) {
      // Not at the cost of what is stored: a network that wants a login answers everything with its page.
      if (start > 0 && response.headers.get('content-type')?.startsWith('text/html')) throw this.#notTheFile('a web page (HTML)');
      if (start > 0)
        await this.#restart(same ? 'is sent as a whole: the server knows no ranges' : 'has changed on the server');
      // The length may be that of a compressed body, and the header that says so may be hidden (CORS).
      this.#hint = response.headers.has('content-encoding') || Number.isNaN(length) ? -1 : length;
      state.size = -1;
      state.etag = etag;
      return 0;
    }
    const range = /^bytes (\d+)-\d+\/(\d+|\*)/.exec(response.headers.get('content-range') ?? '');
    if (range && Number(range[1]) !== start) throw new Retry('the server sends another range than asked for');
    const total = range && range[2] !== '*' ? Number(range[2])
      : this.#gap().end < 0 || this.#gap().end === state.size ? start + length : NaN;
    if (!same || (state.size >= 0 && !Number.isNaN(total) && total !== state.size))
      throw await this.#restart('has changed on the server');
    if (state.size < 0 && !Number.isNaN(total)) state.size = total;
    state.etag ??= etag;
    return start;
  }

  async #restart(why: string): Promise<Retry> {
    if (this.loaded > 0) this.wire.onNote(`${this.remote.name} ${why}; it is downloaded from the beginning`);
    if (++this.#restarts > TRIES)
      throw new TernError('network', `${this.remote.name}: ${why}, again and again (${this.remote.url})`);
    Object.assign(this.state, emptyState(this.remote.url), { sha256: this.remote.sha256 ?? null });
    this.#hint = -1;
    this.#expected.clear();
    this.#hasher = new Sha256();
    this.#index = -1;
    this.#filled = 0;
    await this.#file.truncate(0);
    return new Retry(why, 0);
  }

  async #receive(response: Response, from: number, end: number, alive: () => void): Promise<void> {
    const reader = response.body!.getReader();
    let at = from;
    for (;;) {
      let chunk: Uint8Array | undefined;
      try {
        chunk = (await reader.read()).value;
      } catch (cause) {
        throw new Retry(`the connection was lost (${(cause as Error).message})`, -1, { cause });
      }
      if (!chunk) break;
      alive();
      this.wire.onBytes(chunk.length);
      await this.#take(chunk, at, response.status === 206 && end >= 0 ? end : Infinity);
      at += chunk.length;
      if (response.status === 206 && this.state.size >= 0 && at >= this.state.size) break;
    }
    const wanted = this.state.size < 0 ? this.#hint : response.status === 206 && end >= 0 ? end : this.state.size;
    if (at < wanted) throw new Retry('the connection was lost');
    if (this.state.size >= 0) return;
    this.state.size = at;
    if (this.#filled > 0 || at === 0) await this.#finishPiece(at);
  }

  async #take(chunk: Uint8Array, at: number, end: number): Promise<void> {
    for (let n = 0; n < chunk.length && at + n < end;) {
      const index = Math.floor((at + n) / PIECE);
      if (index !== this.#index) {
        this.#index = index;
        this.#filled = 0;
      }
      this.#buffer ??= new Uint8Array(PIECE);
      const room = Math.min(pieceBytes(this.state, index) - this.#filled, chunk.length - n);
      this.#buffer.set(chunk.subarray(n, n + room), this.#filled);
      this.#filled += room;
      n += room;
      if (this.#filled === pieceBytes(this.state, index)) await this.#finishPiece(at + n);
      if (room === 0) return;
    }
  }

  async #finishPiece(end: number): Promise<void> {
    const index = Math.max(0, this.#index);
    const bytes = (this.#buffer ?? new Uint8Array(0)).subarray(0, this.#filled);
    const hash = await sha256(bytes);
    if (index === 0) this.#checkStart(bytes);
    const expected = this.#expected.get(index);
    if (expected && expected !== hash) throw await this.#restart('has changed on the server');
    this.#digest(index, bytes);
    await this.#file.write(end - bytes.length, bytes);
    this.state.pieces[index] = hash;
    this.#expected.delete(index);
    this.#index = -1;
    this.#filled = 0;
    await this.#save(false);
  }

  // Servers also answer with status 200 what is not the file: a page that says so, a form to log in.
  #checkStart(bytes: Uint8Array): void {
    if (!beginsAs(this.remote.name, bytes)) throw this.#notTheFile(whatBegins(bytes));
  }

  #notTheFile(what: string): TernError {
    const { name, url } = this.remote;
    const wanted = /\.(gguf|safetensors|json)$/i.exec(name)?.[1] ?? 'text';
    return new TernError('format', `${name}: ${new URL(url).host || 'the address'} answers with ${what} instead of a ${wanted} file (${url})`);
  }

  // A page that is killed loses what arrived since: half a second's worth.
  async #save(end: boolean): Promise<void> {
    if (!end && Date.now() - this.#saved < 500) return;
    if (!await this.#file.flush(end)) return;
    await this.wire.save(this.state);
    this.#saved = Date.now();
  }

  // Compares the whole file with the hub's checksum, once.
  async #wholeIsRight(): Promise<boolean> {
    const { remote, state } = this;
    const wanted = state.sha256;
    if (!wanted || state.checked) return true;
    const bytes = new Uint8Array(PIECE);
    while (this.#hasher.length < state.size) {
      throwIfAborted(this.wire.signal);
      const n = await this.#file.read(this.#hasher.length, bytes);
      if (n === 0) throw new TernError('io', `${remote.name}: the stored file is shorter than the data written`);
      this.#hasher.update(bytes.subarray(0, n));
    }
    const found = this.#hasher.hex();
    state.checked = found === wanted;
    if (state.checked) return true;
    const again = this.#restarts === 0;
    await this.#restart('is not what its SHA-256 says');
    if (!again)
      throw new TernError('network',
        `${remote.name}: the SHA-256 of what the server sends is ${found}, not ${wanted} (${remote.url})`);
    return false;
  }
}

const startText = (bytes: Uint8Array): string => new TextDecoder().decode(bytes.subarray(0, 256)).trimStart();

// Whether these may be the first bytes of a file of this name.
function beginsAs(name: string, bytes: Uint8Array): boolean {
  const text = startText(bytes);
  if (/\.gguf$/i.test(name)) return text.startsWith('GGUF');
  if (/\.safetensors$/i.test(name)) // the length of its header, eight bytes, and the header
    return bytes.length > 8 && bytes[8] === 0x7b && bytes[6] === 0 && bytes[7] === 0;
  return /\.json$/i.test(name) ? /^[{[]/.test(text) : !/^<(!doctype|html)/i.test(text);
}

function whatBegins(bytes: Uint8Array): string {
  const text = startText(bytes);
  if (/^<(!doctype|html|head|body)/i.test(text)) return 'a web page (HTML)';
  if (text.startsWith('version https://git-lfs')) return 'a Git LFS pointer';
  if (/^<\?xml|^<[a-z]/i.test(text)) return 'XML';
  if (/^[{[]/.test(text)) return 'JSON';
  return bytes.length === 0 ? 'nothing' : 'other bytes';
}

const plainTag = (etag: string): string => etag.replace(/^W\//, '');

// Whether the server's file now differs from the stored one. Unknown counts as no.
export async function hasChanged(state: FileState, remote: Remote, wire: Wire): Promise<boolean> {
  if (remote.sha256 && state.sha256) return remote.sha256 !== state.sha256;
  try {
    const { headers, signal } = wire;
    const answer = await wire.fetch(remote.url, { method: 'HEAD', headers, cache: 'no-store', ...(signal ? { signal } : {}) });
    if (!answer.ok) return false;
    const etag = answer.headers.get('etag') ?? answer.headers.get('last-modified');
    if (etag && state.etag) return plainTag(etag) !== plainTag(state.etag);
    const size = Number(answer.headers.get('content-length') ?? NaN);
    return !Number.isNaN(size) && !answer.headers.has('content-encoding') && size !== state.size;
  } catch (error) {
    if (wire.signal?.aborted) throw toTernError(error);
    return false; // offline: the stored file is used
  }
}

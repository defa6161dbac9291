// What differs between a page, a worker and Node. Nothing here is touched at import.

interface NodeProcess {
  getBuiltinModule?(name: string): unknown;
  versions?: { node?: string };
  platform: string;
  pid: number;
  env: Record<string, string | undefined>;
  cwd(): string;
  kill(pid: number, signal: number): boolean;
}

const nodeProcess = (): NodeProcess | undefined => (globalThis as { process?: NodeProcess }).process;

// Electron's renderer has a process too; what counts is where files come from.
export const inNode = (): boolean =>
  !!nodeProcess()?.versions?.node && !!nodeProcess()?.getBuiltinModule && !('document' in globalThis);

// In Firefox a worker that starts a worker sometimes hangs in `new Worker` forever: it and its child wait for
// one condition, and the page's thread, which has registered the child, wakes only one of the two. A page's
// thread registers its workers itself and cannot hang: so threads are started there, or only on request.
export function isFirefox(): boolean {
  return /\bFirefox\//.test(globalThis.navigator?.userAgent ?? '');
}

// The worker's file next to the package's others, in a form that bundlers do not look for: they find it where
// client.ts starts it.
export const workerFile = (): string => import.meta.url.replace(/[^/]*$/, 'worker.js');

export const node = (): NodeProcess => nodeProcess()!;

// Bundlers never see these modules: they are not imported anywhere literally.
export function builtin<T>(name: string): T {
  return nodeProcess()!.getBuiltinModule!(name) as T;
}

export interface NodeFs {
  openSync(path: string, flags: string): number;
  closeSync(fd: number): void;
  readSync(fd: number, into: Uint8Array, offset: number, length: number, at: number): number;
  writeSync(fd: number, bytes: Uint8Array, offset: number, length: number, at: number): number;
  writeFileSync(path: string, text: string, options?: { flag?: string }): void;
  readFileSync(path: string, encoding: 'utf8'): string;
  fstatSync(fd: number): { size: number };
  ftruncateSync(fd: number, size: number): void;
  fsyncSync(fd: number): void;
  mkdirSync(path: string, options: { recursive: boolean }): void;
  readdirSync(path: string): string[];
  renameSync(from: string, to: string): void;
  rmSync(path: string, options: { force: boolean }): void;
  statSync(path: string): { size: number; isDirectory(): boolean };
}
export interface NodePath {
  join(...parts: string[]): string;
  basename(path: string): string;
  dirname(path: string): string;
  resolve(path: string): string;
}

export const fs = (): NodeFs => builtin<NodeFs>('node:fs');
export const path = (): NodePath => builtin<NodePath>('node:path');

// Repeats a request that was not answered in time, and takes the first answer to any of them: for requests that
// may be repeated. Firefox sometimes never answers a file system request made while another page's
// handles are being closed.
export function retryStalled<T>(ask: () => Promise<T>, ms = 2000, times = 5): Promise<T> {
  return new Promise((resolve, reject) => {
    let asked = 0;
    const again = (): void => {
      if (++asked > times) return reject(new Error('the storage of the browser does not answer'));
      const timer = setTimeout(again, ms);
      ask().finally(() => clearTimeout(timer)).then(resolve, reject);
    };
    again();
  });
}

export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise(resolve => {
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener('abort', done);
    if (signal?.aborted) done();
  });
}

// Checks whether this browser computes correctly: the kernel tests and the checks of `tern diagnose`, in
// a separate module, which is loaded for this and dropped afterwards.
import { TernError } from './error.js';
import { suspendable } from './jspi.js';
import { codeOf, NO_CALLBACKS, Module } from './module.js';
import { toModule } from './names.js';
import { nextTask } from './task.js';
import type { Build, CheckItem, CheckOptions, CheckReport, EngineOptions, LadderItem } from './types.js';
import { STATE_FOLDER } from './wasi.js';

const FOLDER = 'm0';

export async function check(build: Build, engine: EngineOptions, options: CheckOptions): Promise<CheckReport> {
  const { device = 'cpu', kernels = true, ladder = true, files = [], onItem, signal } = options;
  const found: LadderItem[] = [];
  const callbacks = {
    ...NO_CALLBACKS,
    report(text: string): void {
      const item = ladderItem(text);
      if (!item) return;
      found.push(item);
      onItem?.(item);
    },
  };
  const m = await Module.loadChecks(build, signal ? { ...engine, signal } : engine, callbacks);
  try {
    const tested = kernels ? await runKernels(m, onItem, signal) : [];
    const nFailed = ladder ? await climb(m, device, files, options) : 0;
    return {
      build: m.build as CheckReport['build'], device: String(found.find((i) => i.fact === 'device')?.value ?? device),
      nFailed: nFailed + tested.filter((t) => !t.ok).length, kernels: tested, ladder: found,
    };
  } catch (error) {
    if (!(error instanceof WebAssembly.RuntimeError)) throw error;
    throw new TernError('trap', `a check ended the WebAssembly module: ${error.message}`, { cause: error });
  } finally {
    m.files.remove(FOLDER);
    m.close();
  }
}

async function runKernels(m: Module, onItem: CheckOptions['onItem'], signal: AbortSignal | undefined): Promise<CheckItem[]> {
  const all: CheckItem[] = [];
  for (;;) {
    if (signal?.aborted) throw new TernError('aborted', 'the checks were aborted', { cause: signal.reason });
    const state = m.exports.web_kernels_next();
    if (state < 0) throw new TernError(codeOf(-state), m.error());
    if (state === 0) return all;
    const item = m.result<CheckItem>();
    all.push(item);
    onItem?.({ check: item.name, ok: item.ok, detail: item.detail, seconds: item.seconds });
    await nextTask();
  }
}

async function climb(m: Module, device: 'cpu' | 'webgpu', files: NonNullable<CheckOptions['files']>, options: CheckOptions):
  Promise<number> {
  const why = device === 'webgpu' ? await m.gpu.prepare() : null;
  if (why !== null) throw new TernError('device', why);
  m.files.add(FOLDER, files);
  const args = {
    device, n_threads: 1, quick: options.quick ?? false,
    model: options.model === undefined ? undefined : `${FOLDER}/${options.model}`,
    state: m.files.state ? STATE_FOLDER : undefined,
  };
  const n = await m.withJson(toModule(args), (at, bytes) => suspendable(m.exports.web_check)(at, bytes));
  if (n < 0) throw new TernError(codeOf(-n), m.error());
  return n;
}

// Parses an array that arrives element by element: "[{...}", ",\n{...}", "]\n".
function ladderItem(text: string): LadderItem | undefined {
  const from = text.indexOf('{'), to = text.lastIndexOf('}');
  return from < 0 ? undefined : (JSON.parse(text.slice(from, to + 1)) as LadderItem);
}

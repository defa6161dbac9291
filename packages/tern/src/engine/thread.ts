// A thread of the module: instantiates it on the engine's memory and computes what it is given. It shares its
// script with the worker (worker.ts), so that a bundler that finds one has both; the first message says which
// of the two it is.
export interface ThreadStart { module: WebAssembly.Module; memory: WebAssembly.Memory; number: number; stackTop: number }

export const isThreadStart = (message: unknown): message is ThreadStart =>
  typeof message === 'object' && message !== null && 'stackTop' in message;

export function runThread({ module, memory, number, stackTop }: ThreadStart): void {
  // Threads only run kernels: the module's other imports are not for them.
  const imports: WebAssembly.Imports = {};
  for (const { module: from, name, kind } of WebAssembly.Module.imports(module)) {
    const group = (imports[from] ??= {});
    if (kind === 'memory') group[name] = memory;
    else group[name] = () => { throw new Error(`${from}.${name} is not for threads`); };
  }
  const { exports } = new WebAssembly.Instance(module, imports);
  (exports['__stack_pointer'] as WebAssembly.Global).value = stackTop;
  (exports['thread_main'] as (number: number) => void)(number); // never returns
}

// A thread of the module: instantiates it on the engine's memory and computes what it is given. Its script
// is the worker's (worker.ts), so that a bundler that finds the one has the other; what it is to be is told
// by what it is sent first.
export interface ThreadStart { module: WebAssembly.Module; memory: WebAssembly.Memory; number: number; stackTop: number }

export const isThreadStart = (message: unknown): message is ThreadStart =>
  typeof message === 'object' && message !== null && 'stackTop' in message;

export function runThread({ module, memory, number, stackTop }: ThreadStart): void {
  // Threads run kernels alone: whatever else the module imports is not for them.
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

// A thread of the module: instantiates it on the engine's memory and computes what it is given. A
// plain file, started by pool.ts; the same in browsers and in Node.
interface Start { module: WebAssembly.Module; memory: WebAssembly.Memory; number: number; stackTop: number }

function main({ module, memory, number, stackTop }: Start): void {
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

const scope = globalThis as unknown as { onmessage?: unknown; process?: { versions?: { node?: string } } };
if (scope.process?.versions?.node && typeof (globalThis as { WorkerGlobalScope?: unknown }).WorkerGlobalScope === 'undefined') {
  const name = 'node:worker_threads';
  const { workerData } = (await import(name)) as { workerData: Start };
  main(workerData);
} else {
  scope.onmessage = ({ data }: MessageEvent<Start>) => main(data);
}

export {};

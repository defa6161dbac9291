// The steps of a diagnosis, from what the browser has to how fast a model runs. Each gives its own result;
// a failure of one does not stop the next.
import { Tern, type LadderItem } from 'tern-engine';
import { CARRIED } from '../chat/models.ts';
import { formatBytes, formatRate } from '../shared/format.ts';
import type { Row, StepResult } from './report.ts';

export interface Step {
  id: string;
  title: string;
  about: string;
  run(signal: AbortSignal, tell: (line: string) => void): Promise<StepResult>;
}

const yesNo = (value: unknown) => (value ? 'yes' : 'no');
const bytes = (...values: number[]) => new Uint8Array(values);
const MAGIC = [0, 97, 115, 109, 1, 0, 0, 0];
// The least module that needs each feature.
const PROBES = {
  simd: bytes(...MAGIC, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11),
  relaxed: bytes(
    ...MAGIC,
    1,
    5,
    1,
    96,
    0,
    1,
    123,
    3,
    2,
    1,
    0,
    10,
    15,
    1,
    13,
    0,
    65,
    1,
    253,
    15,
    65,
    2,
    253,
    15,
    253,
    128,
    2,
    11,
  ),
  atomics: bytes(
    ...MAGIC,
    1,
    4,
    1,
    96,
    0,
    0,
    3,
    2,
    1,
    0,
    5,
    4,
    1,
    3,
    1,
    1,
    10,
    11,
    1,
    9,
    0,
    65,
    0,
    254,
    16,
    2,
    0,
    26,
    11,
  ),
  memory64: bytes(...MAGIC, 5, 3, 1, 4, 1),
};
const has = (probe: keyof typeof PROBES) => WebAssembly.validate(PROBES[probe]);

async function browser(): Promise<StepResult> {
  const nav = navigator as Navigator & {
    userAgentData?: { platform: string; brands: { brand: string; version: string }[] };
    deviceMemory?: number;
  };
  const brands = nav.userAgentData?.brands
    .filter(({ brand }) => !/Not.?A/i.test(brand))
    .map(({ brand, version }) => `${brand} ${version}`)
    .join(', ');
  const rows: Row[] = [
    { name: 'browser', value: brands || nav.userAgent },
    { name: 'system', value: nav.userAgentData?.platform || nav.platform || 'unknown' },
    { name: 'processor cores', value: String(nav.hardwareConcurrency ?? '?') },
    {
      name: 'memory of the device',
      value: nav.deviceMemory
        ? `${nav.deviceMemory >= 8 ? 'at least ' : ''}${nav.deviceMemory} GB`
        : 'not told',
    },
    { name: 'secure context', value: yesNo(isSecureContext), ok: isSecureContext },
    { name: 'cross-origin isolated', value: yesNo(crossOriginIsolated) },
    { name: 'service worker', value: yesNo('serviceWorker' in nav) },
  ];
  if (!isSecureContext)
    return {
      status: 'fail',
      summary: 'the page did not come over https, so the browser switches most of the needed features off',
      rows,
    };
  return {
    status: crossOriginIsolated ? 'ok' : 'warn',
    summary: crossOriginIsolated
      ? `${nav.hardwareConcurrency} cores, isolated: several threads can be used`
      : 'not isolated: one thread is used (the server decides, by COOP and COEP)',
    rows,
  };
}

async function webAssembly(): Promise<StepResult> {
  if (typeof WebAssembly !== 'object')
    return { status: 'fail', summary: 'there is no WebAssembly', rows: [] };
  const simd = has('simd'),
    relaxed = has('relaxed');
  const threads = has('atomics') && typeof SharedArrayBuffer === 'function';
  const rows: Row[] = [
    { name: 'SIMD', value: yesNo(simd), ok: simd },
    { name: 'relaxed SIMD', value: yesNo(relaxed) },
    { name: 'threads', value: yesNo(threads) },
    { name: '64-bit memory', value: yesNo(has('memory64')) },
    { name: 'suspending calls (JSPI)', value: yesNo('Suspending' in WebAssembly) },
  ];
  if (!simd)
    return { status: 'fail', summary: 'no SIMD: models cannot run here; a newer browser has it', rows };
  return {
    status: 'ok',
    summary: relaxed ? 'with the fast instructions' : 'without relaxed SIMD: exact, at about half the speed',
    rows,
  };
}

// The most that one memory can be grown to. The pages are only promised, not touched.
async function memory(): Promise<StepResult> {
  let reached = 0;
  const PAGES = 65536 / 16; // of 256 MB
  try {
    const space = new WebAssembly.Memory({ initial: 1, maximum: 65535 });
    for (let i = 0; i < 16; i++) {
      space.grow(i === 15 ? PAGES - 2 : PAGES);
      reached = space.buffer.byteLength;
    }
  } catch {
    /* this is the most */
  }
  const { performance: perf } = globalThis as { performance: { memory?: { jsHeapSizeLimit: number } } };
  const rows: Row[] = [{ name: 'one WebAssembly memory', value: formatBytes(reached) }];
  if (perf.memory)
    rows.push({ name: 'JavaScript heap, at most', value: formatBytes(perf.memory.jsHeapSizeLimit) });
  return {
    status: reached > 1e9 ? 'ok' : reached > 2e8 ? 'warn' : 'fail',
    summary: `models up to about ${formatBytes(reached * 0.85)} on the processor`,
    rows,
  };
}

function measureStorage(size: number): Promise<{ write: number; read: number; right: boolean }> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(new URL('./storage_worker.js', import.meta.url), { type: 'module' });
    const done = () => {
      clearTimeout(timer);
      worker.terminate();
    };
    const timer = setTimeout(() => {
      done();
      reject(new Error('no answer within 60 s'));
    }, 60000);
    worker.onmessage = ({ data }) => {
      done();
      if ('error' in data) reject(new Error(data.error));
      else resolve(data);
    };
    worker.onerror = (event) => {
      done();
      reject(new Error(event.message || 'the worker could not be started'));
    };
    worker.postMessage(size);
  });
}

async function storage(): Promise<StepResult> {
  const rows: Row[] = [];
  const estimate = await navigator.storage?.estimate?.().catch(() => null);
  if (estimate)
    rows.push({
      name: 'used of the granted room',
      value: `${formatBytes(estimate.usage ?? 0)} of ${formatBytes(estimate.quota ?? 0)}`,
    });
  const persisted = await navigator.storage?.persisted?.().catch(() => false);
  rows.push({ name: 'kept when the disk is full', value: yesNo(persisted) });
  const indexed = await new Promise<boolean>((resolve) => {
    try {
      const request = indexedDB.open('tern-diagnose', 1);
      request.onsuccess = () => {
        request.result.close();
        indexedDB.deleteDatabase('tern-diagnose');
        resolve(true);
      };
      request.onerror = () => resolve(false);
    } catch {
      resolve(false);
    }
  });
  rows.push({ name: 'IndexedDB, for conversations', value: yesNo(indexed) });
  if (!navigator.storage?.getDirectory)
    return {
      status: 'warn',
      summary: 'no private file system: models are downloaded anew for each visit',
      rows,
    };
  try {
    const { write, read, right } = await measureStorage(32 << 20);
    rows.push(
      { name: 'private files, writing', value: `${formatBytes(write)}/s` },
      { name: 'private files, reading', value: `${formatBytes(read)}/s` },
      { name: 'read back as written', value: yesNo(right), ok: right },
    );
    return {
      status: right ? 'ok' : 'fail',
      summary: right
        ? `models are kept; reading ${formatBytes(read)}/s`
        : 'the written data did not come back',
      rows,
    };
  } catch (error) {
    return { status: 'warn', summary: `models cannot be kept: ${(error as Error).message}`, rows };
  }
}

async function adapter(): Promise<StepResult> {
  if (!navigator.gpu)
    return { status: 'skip', summary: 'this browser has no WebGPU; models run on the processor', rows: [] };
  const found = await navigator.gpu.requestAdapter({ powerPreference: 'high-performance' });
  if (!found)
    return { status: 'skip', summary: 'WebGPU finds no adapter; models run on the processor', rows: [] };
  const { vendor, architecture, device, description, subgroupMinSize, subgroupMaxSize } =
    found.info as GPUAdapterInfo & { subgroupMinSize?: number; subgroupMaxSize?: number };
  const { limits } = found;
  const name = [description || device, vendor, architecture].filter(Boolean).join(', ') || 'not named';
  const rows: Row[] = [
    { name: 'adapter', value: name },
    { name: 'features', value: [...found.features].sort().join(', ') || 'none' },
    { name: 'largest binding', value: formatBytes(limits.maxStorageBufferBindingSize) },
    { name: 'largest buffer', value: formatBytes(limits.maxBufferSize) },
    { name: 'memory of a workgroup', value: formatBytes(limits.maxComputeWorkgroupStorageSize) },
    { name: 'threads of a workgroup', value: String(limits.maxComputeInvocationsPerWorkgroup) },
    { name: 'storage buffers a stage', value: String(limits.maxStorageBuffersPerShaderStage) },
  ];
  if (subgroupMinSize)
    rows.push({
      name: 'subgroup',
      value:
        subgroupMinSize === subgroupMaxSize
          ? String(subgroupMinSize)
          : `${subgroupMinSize} to ${subgroupMaxSize}`,
    });
  const software =
    /swiftshader|llvmpipe|lavapipe|basic render/i.test(name) ||
    (found.info as { isFallbackAdapter?: boolean }).isFallbackAdapter === true;
  return {
    status: software ? 'warn' : 'ok',
    summary: software ? `${name}: made by software, slower than the processor` : name,
    rows,
  };
}

function checkRows(report: Awaited<ReturnType<typeof Tern.diagnose>>): Row[] {
  return [
    ...report.notes.map((note) => ({ name: 'note', value: note })),
    ...report.ladder.map(({ fact, value, check, ok, detail }) =>
      fact === undefined
        ? { name: check ?? '', value: detail || 'ok', ok: ok === true }
        : { name: fact, value: value ?? '' },
    ),
    ...report.kernels.map(({ name, ok, detail }) => ({ name: inWords(name), value: detail || 'ok', ok })),
  ];
}

async function kernels(
  device: 'wasm' | 'webgpu',
  signal: AbortSignal,
  tell: (line: string) => void,
): Promise<StepResult> {
  if (device === 'webgpu' && !(await navigator.gpu?.requestAdapter()))
    return { status: 'skip', summary: 'there is no adapter', rows: [] };
  let done = 0;
  const onItem = ({ check }: LadderItem) => {
    if (check !== undefined) tell(`${++done} done, ${inWords(check)}`);
  };
  const report = await Tern.diagnose({ device, signal, quick: true, onItem });
  const rows = checkRows(report);
  const checks = rows.filter((row) => 'ok' in row).length;
  if (checks === 0) return { status: 'warn', summary: `nothing was checked on ${report.device}`, rows };
  return {
    status: report.nFailed > 0 ? 'fail' : 'ok',
    summary: `${checks} checks on ${report.device}, ${report.nFailed || 'none'} failed`,
    rows,
  };
}

// Names of tests are made of words.
const inWords = (name: string) => name.replace(/_/g, ' ');

// A text of some length to be read, then 96 tokens to be written, the likeliest each time.
const PROMPT =
  'Once upon a time, in a small village by the sea, there lived a curious girl who loved to watch the birds. '.repeat(
    8,
  );

async function speed(device: 'wasm' | 'webgpu', signal: AbortSignal): Promise<StepResult> {
  if (device === 'webgpu' && !(await navigator.gpu?.requestAdapter()))
    return { status: 'skip', summary: 'there is no adapter', rows: [] };
  const from = performance.now();
  const tern = await Tern.load(CARRIED.source, { device, signal });
  try {
    const loaded = performance.now();
    let first = 0;
    const options = { maxTokens: 96, temperature: 0, ignoreEnd: true, signal };
    await tern.generate('Once', { ...options, maxTokens: 8 }); // what is compiled at the first use
    const started = performance.now();
    const { timings, usage } = await tern.generate(PROMPT, {
      ...options,
      onText: () => {
        first ||= performance.now();
      },
    });
    const rows: Row[] = [
      { name: 'runs on', value: tern.info.device },
      { name: 'opened within', value: `${((loaded - from) / 1000).toFixed(2)} s` },
      {
        name: 'reading',
        value: `${formatRate(timings.prompt_per_second)} tokens/s (${usage.prompt_tokens} tokens)`,
      },
      {
        name: 'writing',
        value: `${formatRate(timings.predicted_per_second)} tokens/s (${usage.completion_tokens} tokens)`,
      },
      { name: 'first text after', value: `${((first - started) / 1000).toFixed(2)} s` },
    ];
    const moved = device === 'webgpu' && !/webgpu/i.test(tern.info.device);
    return {
      status: moved ? 'warn' : 'ok',
      summary: moved
        ? `went on with ${tern.info.device}: ${tern.info.deviceReason ?? ''}`
        : `reads ${formatRate(timings.prompt_per_second)}, writes ${formatRate(timings.predicted_per_second)} tokens/s`,
      rows,
    };
  } finally {
    await tern.close();
  }
}

export const STEPS: readonly Step[] = [
  {
    id: 'browser',
    title: 'Browser',
    about: 'what it is, and whether the page may use threads',
    run: browser,
  },
  { id: 'wasm', title: 'WebAssembly', about: 'which instructions there are', run: webAssembly },
  { id: 'memory', title: 'Memory', about: 'how large a model may be', run: memory },
  { id: 'storage', title: 'Storage', about: 'whether models and conversations can be kept', run: storage },
  {
    id: 'wasm-kernels',
    title: 'Kernels on the processor',
    about: 'each against the plain one',
    run: (signal, tell) => kernels('wasm', signal, tell),
  },
  { id: 'gpu', title: 'WebGPU', about: 'the adapter and its limits', run: adapter },
  {
    id: 'gpu-kernels',
    title: 'Kernels on WebGPU',
    about: 'each against the plain one',
    run: (signal, tell) => kernels('webgpu', signal, tell),
  },
  {
    id: 'wasm-speed',
    title: 'Speed on the processor',
    about: 'with the model that comes with these pages, 11.2 MB',
    run: (signal) => speed('wasm', signal),
  },
  { id: 'gpu-speed', title: 'Speed on WebGPU', about: 'the same', run: (signal) => speed('webgpu', signal) },
];

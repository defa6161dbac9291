// WebGPU for the module: the other end of apps/web/gpu_js.h. Objects are kept in a table, and the module
// has their indices; later events (mappings, errors, a lost device) are queued until the module polls
// for them. The module has the names of the kernels' sources; the sources are loaded when there is a
// GPU.
import { TernError } from './error.js';
import { suspending } from './jspi.js';
import { nextTask } from './task.js';
import type { WebGpuOptions } from './types.js';

const NONE = 0, MAP = 1, ERROR = 2, LOST = 3, ADAPTER = 4; // events
const LOOK_MS = 100; // between polls while there are no events

export type Shaders = Readonly<Record<string, string>>;
interface Event { kind: number; number: number; good: boolean; text: string }
interface Pair { adapter: GPUAdapter; device: GPUDevice; given: boolean }

// Limits for which WebGPU's defaults are not enough for the kernels, in the order of gpu_js.h.
const LIMITS = [
  'maxStorageBuffersPerShaderStage', 'maxStorageBufferBindingSize', 'maxUniformBufferBindingSize', 'maxBufferSize',
  'maxComputeWorkgroupStorageSize', 'maxComputeInvocationsPerWorkgroup', 'maxComputeWorkgroupsPerDimension',
  'minStorageBufferOffsetAlignment',
] as const;
const MORE_LIMITS = ['maxComputeWorkgroupSizeX', 'maxComputeWorkgroupSizeY', 'maxComputeWorkgroupSizeZ'] as const;
const FEATURES: GPUFeatureName[] = ['timestamp-query', 'shader-f16', 'subgroups'];
const BINDINGS: Record<number, GPUBufferBindingType> = { 2: 'uniform', 3: 'storage', 4: 'read-only-storage' };

export class Gpu {
  readonly #memory: () => WebAssembly.Memory;
  readonly #gpu: GPU | undefined;
  readonly #objects: unknown[] = [null];
  readonly #free: number[] = [];
  readonly #events: Event[] = [];
  #waiting: (() => void)[] = [];
  #ready: Pair | undefined;
  #asking: Promise<string | null> | undefined;
  #options: WebGpuOptions = {};
  #shaders: Shaders | undefined;
  #nMaps = 0;
  #closed = false;
  #encoder = new TextEncoder();
  #decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  // Firefox polls the queue every 100 ms, unless something is submitted.
  readonly #nudges = /firefox/i.test(globalThis.navigator?.userAgent ?? '');

  constructor(memory: () => WebAssembly.Memory, gpu: GPU | undefined, private loadShaders: () => Promise<Shaders>) {
    this.#memory = memory;
    this.#gpu = gpu ?? (globalThis.navigator as Navigator | undefined)?.gpu;
  }

  // ---- For the engine ------------------------------------------------------------------------

  // Requests an adapter and its device, so that the module finds them when it opens a model. Returns null,
  // or why there is none.
  async prepare(options: WebGpuOptions = {}): Promise<string | null> {
    this.#options = options;
    return this.#ready ? null : this.#ask();
  }

  // The name of an adapter that computes on the CPU, which is slower than the module itself.
  get software(): string | null { return this.#ready ? softwareName(this.#ready.adapter) : null; }
  // Releases what was prepared but is not wanted.
  drop(): void {
    this.#ready?.device.destroy();
    this.#ready = undefined;
  }

  // Resolves when there is an event for the module.
  async changed(): Promise<void> {
    if (this.#events.length > 0 || this.#closed) return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    await new Promise<void>((resolve) => {
      this.#waiting.push(resolve);
      timer = setTimeout(resolve, LOOK_MS); // the module has clocks of its own
    });
    clearTimeout(timer);
  }

  // To wait for before the module is called again after "not yet": resolves on an event; if none is expected,
  // it only yields.
  settled(): Promise<void> {
    return this.#nMaps > 0 || this.#asking ? this.changed() : nextTask();
  }

  close(): void {
    this.#closed = true;
    for (const o of this.#objects) if (isPair(o)) o.device.destroy();
    this.#ready?.device.destroy();
    this.#wake();
  }

  // ---- Adapter and device --------------------------------------------------------------------

  #ask(): Promise<string | null> {
    this.#asking ??= this.#open().catch((error: unknown) => sentence(error)).then((why) => {
      this.#asking = undefined;
      return why;
    });
    return this.#asking;
  }

  async #open(): Promise<string | null> {
    if (!this.#gpu) return 'this browser has no WebGPU';
    const { power = 'high-performance', f16 = true } = this.#options;
    const adapter = await this.#gpu.requestAdapter({ powerPreference: power });
    if (!adapter) return 'WebGPU found no GPU here';
    this.#shaders ??= await this.loadShaders();
    const requiredFeatures = FEATURES.filter((f) => adapter.features.has(f) && (f16 || f !== 'shader-f16'));
    const requiredLimits: Record<string, number> = {};
    for (const name of [...LIMITS, ...MORE_LIMITS]) requiredLimits[name] = adapter.limits[name];
    const device = await adapter.requestDevice({ requiredFeatures, requiredLimits });
    const pair = { adapter, device, given: false };
    void device.lost.then(() => {
      if (this.#ready === pair) this.#ready = undefined; // not handed out yet
    });
    if (this.#closed) device.destroy();
    this.#ready = pair;
    return null;
  }

  #happen(kind: number, number: number, good = true, text = ''): void {
    this.#events.push({ kind, number, good, text });
    this.#wake();
  }
  #wake(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }

  #follow(pair: Pair, handle: number): void {
    pair.device.onuncapturederror = (e) => this.#happen(ERROR, handle, false, e.error.message);
    void pair.device.lost.then((info) => {
      this.#happen(LOST, handle, false, info.message || info.reason || 'no reason given');
    });
  }

  // ---- Objects and memory --------------------------------------------------------------------

  // A line "#name" stands for the source of that name.
  #code(at: number, n: number): string {
    return this.#text(at, n).replace(/^#(\w+)\n/gm, (_, name: string) => this.#shaders?.[name] ?? '');
  }
  #put(object: unknown): number {
    const handle = this.#free.pop() ?? this.#objects.length;
    this.#objects[handle] = object;
    return handle;
  }
  #get<T>(handle: number): T { return this.#objects[handle] as T; }
  #device(handle: number): GPUDevice { return this.#get<Pair>(handle).device; }
  #text(at: number, n: number): string {
    return this.#decoder.decode(new Uint8Array(this.#memory().buffer).slice(at >>> 0, (at >>> 0) + n));
  }
  // Zero-terminated, cut at a whole character.
  #say(text: string, to: number, n: number): void {
    if (n === 0) return;
    const bytes = new Uint8Array(n); // encoders refuse shared memory
    const { written } = this.#encoder.encodeInto(text, bytes.subarray(0, n - 1));
    bytes[written] = 0;
    new Uint8Array(this.#memory().buffer).set(bytes.subarray(0, written + 1), to >>> 0);
  }
  #u32(at: number, n: number): Uint32Array { return new Uint32Array(this.#memory().buffer, at >>> 0, n); }
  #f64(at: number, n: number): Float64Array { return new Float64Array(this.#memory().buffer, at >>> 0, n); }

  #info(handle: number, text: number, n: number, numbers: number): void {
    const { info } = this.#get<Pair>(handle).adapter;
    const more = info as unknown as { subgroupMinSize?: number; subgroupMaxSize?: number };
    const name = info.device || info.description || `${info.vendor} ${info.architecture}`.trim() || 'GPU';
    this.#say([info.vendor, info.architecture, name, info.description].map((s) => s.slice(0, 100) + '\0').join(''), text, n);
    this.#u32(numbers, 3).set([softwareName(this.#get<Pair>(handle).adapter) === null ? 0 : 1, more.subgroupMinSize ?? 0, more.subgroupMaxSize ?? 0]);
  }

  #map(device: number, buffer: number, at: number, bytes: number, id: number): void {
    const done = (good: boolean): void => {
      this.#nMaps--;
      this.#happen(MAP, id, good);
    };
    this.#nMaps++;
    this.#get<GPUBuffer>(buffer).mapAsync(1, at, bytes).then(() => done(true), () => done(false));
    if (this.#nudges) this.#device(device).queue.submit([]);
  }

  #mapped(buffer: number, at: number, n: number, to: number): number {
    let range: ArrayBuffer;
    try {
      range = this.#get<GPUBuffer>(buffer).getMappedRange(at, n);
    } catch { // the device has been lost since: an event reports it
      return 0;
    }
    new Uint8Array(this.#memory().buffer).set(new Uint8Array(range), to >>> 0);
    return 1;
  }

  #take(numbers: number, text: number, n: number): number {
    const e = this.#events.shift();
    if (!e) return NONE;
    this.#u32(numbers, 2).set([e.number, e.good ? 1 : 0]);
    this.#say(e.text.replace(/\s+/g, ' '), text, n);
    return e.kind;
  }

  #request(text: number, n: number): number {
    if (this.#ready) return 1;
    if (!this.#gpu) {
      this.#say('this browser has no WebGPU', text, n);
      return -1;
    }
    void this.#ask().then((why) => this.#happen(ADAPTER, 0, why === null, why ?? ''));
    return 0;
  }

  #adapter(): number {
    const pair = this.#ready;
    this.#ready = undefined;
    return pair ? this.#put(pair) : 0;
  }
  // A second handle of the pair: the module releases both.
  #openDevice(adapter: number): number {
    const pair = this.#get<Pair>(adapter);
    if (pair.given) return 0;
    pair.given = true;
    const handle = this.#put(pair);
    this.#follow(pair, handle);
    return handle;
  }

  #has(adapter: number, what: number): number {
    if (what === 3) return this.#gpu?.wgslLanguageFeatures?.has('packed_4x8_integer_dot_product') ? 1 : 0;
    return this.#get<Pair>(adapter).device.features.has(FEATURES[what]!) ? 1 : 0;
  }

  #group(device: number, layout: number, at: number, n: number): number {
    const numbers = this.#f64(at, 4 * n), entries: GPUBindGroupEntry[] = [];
    for (let i = 0; i < 4 * n; i += 4) {
      const resource: GPUBufferBinding = { buffer: this.#get<GPUBuffer>(numbers[i + 1]!), offset: numbers[i + 2]! };
      if (numbers[i + 3]! >= 0) resource.size = numbers[i + 3]!;
      entries.push({ binding: numbers[i]!, resource });
    }
    return this.#put(this.#device(device).createBindGroup({ layout: this.#get(layout), entries }));
  }

  #layout(device: number, at: number, n: number): number {
    const numbers = this.#u32(at, 2 * n), entries: GPUBindGroupLayoutEntry[] = [];
    for (let i = 0; i < 2 * n; i += 2)
      entries.push({ binding: numbers[i]!, visibility: 4, buffer: { type: BINDINGS[numbers[i + 1]!]! } });
    return this.#put(this.#device(device).createBindGroupLayout({ entries }));
  }

  #pipeline(device: number, layout: number, module: number, entry: string, list: string): number {
    const constants: Record<string, number> = {};
    for (const pair of list.split(',')) {
      const [name, value] = pair.split('=');
      if (name) constants[name] = Number(value);
    }
    return this.#put(this.#device(device).createComputePipeline({
      label: entry, layout: this.#get(layout), compute: { module: this.#get(module), entryPoint: entry, constants },
    }));
  }

  #pass(encoder: number, set: number, begin: number, end: number): number {
    const desc: GPUComputePassDescriptor = {};
    if (set) desc.timestampWrites = { querySet: this.#get(set), beginningOfPassWriteIndex: begin, endOfPassWriteIndex: end };
    return this.#put(this.#get<GPUCommandEncoder>(encoder).beginComputePass(desc));
  }

  readonly imports: WebAssembly.ModuleImports = {
    request: (text: number, n: number) => this.#request(text, n),
    take_adapter: () => this.#adapter(),
    info: (a: number, text: number, n: number, numbers: number) => this.#info(a, text, n, numbers),
    limits: (a: number, to: number) => {
      const { limits } = this.#get<Pair>(a).device;
      this.#f64(to, LIMITS.length).set(LIMITS.map((name) => limits[name]));
    },
    has: (a: number, what: number) => this.#has(a, what),
    device: (a: number) => this.#openDevice(a),
    lose: (d: number) => this.#device(d).destroy(),
    release: (handle: number) => {
      if (handle <= 0) return;
      this.#objects[handle] = null;
      this.#free.push(handle);
    },

    buffer: (d: number, size: number, usage: number, label: number, n: number) =>
      this.#put(this.#device(d).createBuffer({ size, usage, label: this.#text(label, n) })),
    destroy: (b: number) => this.#get<GPUBuffer>(b).destroy(),
    write: (d: number, b: number, at: number, from: number, n: number) =>
      this.#device(d).queue.writeBuffer(this.#get(b), at, this.#memory().buffer, from >>> 0, n >>> 0),
    map: (d: number, b: number, at: number, n: number, id: number) => this.#map(d, b, at, n, id),
    mapped: (b: number, at: number, n: number, to: number) => this.#mapped(b, at, n, to),
    unmap: (b: number) => this.#get<GPUBuffer>(b).unmap(),

    module: (d: number, at: number, n: number) => this.#put(this.#device(d).createShaderModule({ code: this.#code(at, n) })),
    layout: (d: number, at: number, n: number) => this.#layout(d, at, n),
    pipeline_layout: (d: number, layout: number) =>
      this.#put(this.#device(d).createPipelineLayout({ bindGroupLayouts: [this.#get(layout)] })),
    pipeline: (d: number, layout: number, module: number, entry: number, n: number, list: number, nList: number) =>
      this.#pipeline(d, layout, module, this.#text(entry, n), this.#text(list, nList)),
    group: (d: number, layout: number, at: number, n: number) => this.#group(d, layout, at, n),
    query_set: (d: number, count: number) => this.#put(this.#device(d).createQuerySet({ type: 'timestamp', count })),

    encoder: (d: number) => this.#put(this.#device(d).createCommandEncoder()),
    pass: (e: number, set: number, begin: number, end: number) => this.#pass(e, set, begin, end),
    set_pipeline: (p: number, pipeline: number) => this.#get<GPUComputePassEncoder>(p).setPipeline(this.#get(pipeline)),
    set_group: (p: number, i: number, group: number) => this.#get<GPUComputePassEncoder>(p).setBindGroup(i, this.#get(group)),
    dispatch: (p: number, x: number, y: number, z: number) =>
      this.#get<GPUComputePassEncoder>(p).dispatchWorkgroups(x >>> 0, y >>> 0, z >>> 0),
    end_pass: (p: number) => this.#get<GPUComputePassEncoder>(p).end(),
    resolve: (e: number, set: number, first: number, count: number, to: number, at: number) =>
      this.#get<GPUCommandEncoder>(e).resolveQuerySet(this.#get(set), first, count, this.#get(to), at),
    clear: (e: number, b: number, at: number, n: number) =>
      this.#get<GPUCommandEncoder>(e).clearBuffer(this.#get(b), at, n < 0 ? undefined : n),
    copy: (e: number, from: number, at: number, to: number, toAt: number, n: number) =>
      this.#get<GPUCommandEncoder>(e).copyBufferToBuffer(this.#get(from), at, this.#get(to), toAt, n),
    finish: (e: number) => this.#put(this.#get<GPUCommandEncoder>(e).finish()),
    submit: (d: number, list: number, n: number) =>
      this.#device(d).queue.submit(Array.from(this.#u32(list, n), (c) => this.#get<GPUCommandBuffer>(c))),

    take: (numbers: number, text: number, n: number) => this.#take(numbers, text, n),
    wait: suspending(async () => {
      await this.changed();
      return this.#closed ? 0 : 1;
    }, () => 0),
  };
}

function isPair(o: unknown): o is Pair { return typeof o === 'object' && o !== null && 'adapter' in o && 'device' in o; }

function softwareName({ info }: GPUAdapter): string | null {
  const name = [info.vendor, info.architecture, info.device, info.description].filter(Boolean).join(' ');
  const told = (info as unknown as { isFallbackAdapter?: boolean }).isFallbackAdapter === true;
  return told || /swiftshader|llvmpipe|lavapipe|softpipe|basic render|software/i.test(name) ? name || 'software' : null;
}

function sentence(error: unknown): string {
  return error instanceof TernError ? error.message : `WebGPU gave no device: ${error instanceof Error ? error.message : String(error)}`;
}

// The files of a model on Hugging Face, or on a server with the same layout.
import type { HubOptions } from './api.js';
import { TernError } from './errors.js';
import { ask, askJson, type Asking } from './store/network.js';
import type { Plan } from './store/store.js';

export const HUB = 'https://huggingface.co';

export interface HubSource { repo: string; inside: string; revision: string } // inside: a file, a folder or ""

// "hf:owner/repo[/inside][@revision]", or the address of a repository's or file's page, or of a GGUF file: all are the
// same model, which is stored once.
export function parseHub(source: string, baseUrl = HUB): HubSource | undefined {
  const hf = /^hf:([^/@\s]+\/[^/@\s]+)(?:\/([^@]*?))?\/?(?:@([^\s]+))?$/.exec(source);
  if (hf) return { repo: hf[1]!, inside: hf[2] ?? '', revision: hf[3] || 'main' };
  if (source.startsWith('hf:'))
    throw new TernError('argument', `"${source}" is not of the form hf:owner/repo[/file.gguf][@revision]`);
  const address = source.replace(/^https:\/\/(www\.huggingface\.co|hf\.co)\//, `${HUB}/`).replace(/[?#].*$/, '');
  if (!address.startsWith(`${baseUrl}/`)) return undefined;
  const page = /^\/([\w.-]+\/[\w.-]+)(?:\/(?:blob|tree|resolve)\/([^/]+)(?:\/(.*))?)?\/?$/.exec(address.slice(baseUrl.length));
  if (!page || (address.includes('/resolve/') && !/\.gguf$/i.test(address))) return undefined;
  return { repo: page[1]!, inside: decodeURI(page[3] ?? '').replace(/\/$/, ''), revision: decodeURIComponent(page[2] ?? 'main') };
}

export const hubId = ({ repo, inside, revision }: HubSource): string =>
  `hf:${repo}${inside && `/${inside}`}${revision === 'main' ? '' : `@${revision}`}`;

interface Listing {
  sha?: string;
  siblings?: { rfilename: string; size?: number; lfs?: { sha256?: string; oid?: string; size?: number } }[];
}

// asking.headers: with the token, if there is one.
export async function resolveHub(source: HubSource, hub: HubOptions, asking: Asking): Promise<Plan> {
  const base = (hub.baseUrl ?? HUB).replace(/\/$/, '');
  const { repo, inside, revision } = source;
  const url = `${base}/api/models/${repo}/revision/${encodeURIComponent(revision)}?blobs=true`;
  const listing = await listFiles(url, hubId(source), asking);
  const files = (listing.siblings ?? []).map(file => {
    const size = file.lfs?.size ?? file.size;
    const sha256 = file.lfs?.sha256 ?? file.lfs?.oid;
    return {
      name: file.rfilename,
      // The commit, so that all files are of one version, also when the download is resumed.
      url: `${base}/${repo}/resolve/${listing.sha ?? encodeURIComponent(revision)}/${encodeURI(file.rfilename)}`,
      ...(size === undefined ? {} : { size }),
      ...(sha256 ? { sha256 } : {}),
    };
  });
  return choose(files, inside, `hf:${repo}`);
}

async function listFiles(url: string, what: string, asking: Asking): Promise<Listing> {
  const response = await ask(url, asking);
  if (response.ok) return askJson<Listing>(url, response);
  const { status } = response;
  // The hub answers 401 for what does not exist, too.
  throw new TernError(status < 500 && status !== 429 ? 'argument' : 'network', status === 401 || status === 403 || status === 404
    ? `${what}: ${new URL(url).host} has no such repository or revision, or not for everybody (${status}; hub.token)`
    : `${what}: ${new URL(url).host} answers ${status}`);
}

// The first part of a split set, and how its parts are named.
export const splitSet = /^(.*)-00001-of-(\d{5})\.gguf$/;

export function splitParts(name: string): string[] {
  const split = splitSet.exec(name);
  if (!split) return [name];
  return Array.from({ length: Number(split[2]) },
    (_, i) => `${split[1]}-${String(i + 1).padStart(5, '0')}-of-${split[2]}.gguf`);
}

// Weight types in order of preference: ternary ones, then those with the best quality for their size.
const types = ['i2_s', 'tq1_0', 'tq2_0', 'q4_k_m', 'q4_k_s', 'q5_k_m', 'q6_k', 'q8_0', 'q4_0', 'bf16', 'f16', 'f32'];

// The files of a Hugging Face folder that the engine reads.
export const folderFiles = ['config.json', 'generation_config.json', 'tokenizer.json', 'tokenizer_config.json',
  'chat_template.jinja', 'preprocessor_config.json', 'processor_config.json',
  'model.safetensors', 'model.safetensors.index.json'];
// Those of an adapter, as PEFT writes them.
export const adapterFiles = ['adapter_config.json', 'adapter_model.safetensors'];
const isShard = (name: string): boolean => /^model-\d{5}-of-\d{5}\.safetensors$/.test(name);

export function choose<F extends { name: string }>(files: readonly F[], inside: string, what: string):
  { path: string; files: F[] } {
  const byName = new Map(files.map(file => [file.name, file]));
  const set = (first: string) => ({
    path: first,
    files: splitParts(first).map(name => {
      const file = byName.get(name);
      if (!file) throw new TernError('argument', `${what} has no file ${name}`);
      return file;
    }),
  });
  if (/\.gguf$/i.test(inside)) return set(inside);
  const folder = inside && `${inside}/`;
  const here = files.filter(file => file.name.startsWith(folder) && !file.name.slice(folder.length).includes('/'));
  const ggufs = here.map(file => file.name).filter(isModel);
  const gguf = ggufs.length <= 1 ? ggufs[0] : preferred(ggufs);
  if (gguf) return set(gguf);
  if (ggufs.length > 1)
    throw new TernError('argument', `${what} has ${ggufs.length} GGUF files, name one: ${ggufs.join(', ')}`);
  const those = (wanted: (bare: string) => boolean) => here.filter(({ name }) => wanted(name.slice(folder.length)));
  const model = those(bare => folderFiles.includes(bare) || isShard(bare)), adapter = those(bare => adapterFiles.includes(bare));
  const isWhole = ({ name }: F) => name.endsWith('.safetensors');
  if (!model.some(isWhole) && adapter.some(isWhole)) return { path: inside, files: adapter };
  if (!model.some(isWhole))
    throw new TernError('argument', `${what}${inside && `/${inside}`} has neither a GGUF file nor model.safetensors`);
  return { path: inside, files: model };
}

// Excludes projectors, importance matrices and later parts of sets.
const isModel = (name: string): boolean => /\.gguf$/i.test(name) && !/mmproj|imatrix/i.test(name)
  && (!/-\d{5}-of-\d{5}\.gguf$/.test(name) || splitSet.test(name));

function preferred(names: string[]): string | undefined {
  for (const type of types) {
    const of = names.filter(name => new RegExp(`(^|[-._/])${type}([-.]|$)`, 'i').test(name));
    if (of.length === 1) return of[0];
  }
  return undefined;
}

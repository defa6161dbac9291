// Which models the picker offers, and what a person may type for others.

export interface Preset {
  name: string;
  source: string; // as Tern.load takes it
  size: number; // bytes of the download, about
  note: string;
  licence: string;
  device?: 'wasm'; // where it is fastest, if that is not left to be found out
}

/** The model that lies beside the pages: 11.2 MB, so that there is one to begin with. */
export const CARRIED: Preset = {
  name: 'Stories',
  source: new URL('../models/stories.gguf', import.meta.url).href,
  size: 11247616,
  licence: 'MIT',
  device: 'wasm', // a token takes less time than a graphics adapter needs to begin
  note: 'Tells short stories, answers simple questions, also about a passage. Knows little else about the world.',
};

export const PRESETS: readonly Preset[] = [
  CARRIED,
  {
    name: 'BitNet b1.58 2B-4T',
    source: 'hf:microsoft/bitnet-b1.58-2B-4T-gguf/ggml-model-i2_s.gguf',
    size: 1187801280,
    licence: 'MIT',
    note: 'Two billion ternary weights: the most able one here for its memory.',
  },
  {
    name: 'Falcon-E 1B Instruct',
    source: 'hf:tiiuae/Falcon-E-1B-Instruct-GGUF/ggml-model-i2_s.gguf',
    size: 666000000,
    licence: 'Falcon LLM',
    note: 'Ternary, half the size of BitNet 2B.',
  },
  {
    name: 'Qwen3 0.6B',
    source: 'hf:Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf',
    size: 639000000,
    licence: 'Apache 2.0',
    note: 'Thinks before it answers if you let it. Many languages.',
  },
  {
    name: 'LFM2 350M',
    source: 'hf:LiquidAI/LFM2-350M-GGUF/LFM2-350M-Q4_K_M.gguf',
    size: 229000000,
    licence: 'LFM 1.0',
    note: 'Small and quick: good on phones.',
  },
  {
    name: 'Gemma 3 270M',
    source: 'hf:unsloth/gemma-3-270m-it-GGUF/gemma-3-270m-it-Q8_0.gguf',
    size: 292000000,
    licence: 'Gemma',
    note: 'The smallest that still follows instructions.',
  },
];

/**
 * What Tern.load takes for what was typed or pasted: an address of a .gguf file, a page of Hugging Face, or
 * "owner/name". Throws an Error that says what is wanted.
 */
export function sourceFromText(typed: string): string {
  const text = typed.trim();
  if (/^hf:[\w.-]+\/[\w.-]+/.test(text)) return text;
  if (/^[\w.-]+\/[\w.-]+(\/[\w./-]+\.gguf)?$/.test(text)) return `hf:${text}`;
  const bare = /^(www\.)?huggingface\.co\//.test(text) ? `https://${text}` : text;
  let url: URL;
  try {
    url = new URL(bare);
  } catch {
    throw new Error(
      'Give the address of a .gguf file, or the name of a repository on Hugging Face: owner/name.',
    );
  }
  const local = ['localhost', '127.0.0.1', '[::1]'].includes(url.hostname);
  if (url.protocol !== 'https:' && !(url.protocol === 'http:' && local))
    throw new Error('The address must begin with https://');
  if (!/^(www\.)?(huggingface\.co|hf\.co)$/.test(url.hostname)) return url.href;
  const [owner, name, what, revision, ...file] = url.pathname
    .split('/')
    .filter(Boolean)
    .map(decodeURIComponent);
  if (!owner || !name) throw new Error('This is not the page of a model on Hugging Face.');
  if (!what) return `hf:${owner}/${name}`;
  if (!['blob', 'resolve', 'tree'].includes(what) || !revision)
    throw new Error('This is not the page of a model or one of its files.');
  const path = file.length ? '/' + file.join('/') : '';
  return `hf:${owner}/${name}${path}${revision === 'main' ? '' : '@' + revision}`;
}

/** Where a model is opened if the user leaves it open. */
export const deviceOf = (source: string) =>
  PRESETS.find((preset) => preset.source === source)?.device ?? 'auto';

/** A short name for a source: that of the preset, the file's, the repository's. */
export function nameOfSource(source: string): string {
  const preset = PRESETS.find((one) => one.source === source);
  if (preset) return preset.name;
  const path = source
    .replace(/^hf:/, '')
    .replace(/[?#].*$/, '')
    .replace(/@[^/@]*$/, '');
  const parts = path.split('/').filter(Boolean);
  const last = decodeURIComponentSafe(parts.at(-1) ?? source);
  // Many files are called ggml-model-*.gguf: the repository says more.
  if (/^(ggml-)?model[-.\w]*\.(gguf|safetensors)$/i.test(last) && parts.length > 1)
    return decodeURIComponentSafe(parts.at(-2)!);
  return last.replace(/\.gguf$/i, '');
}

function decodeURIComponentSafe(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

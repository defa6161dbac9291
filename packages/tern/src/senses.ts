// Finds from its files whether a model needs the module for vision, audio and speech.
import type { Source } from './engine/types.js';

const FAMILIES = /^(vit|moonshine|whisper|nanocodec|qwen3vl)/; // as named in GGUF and config.json
const KANI_TOKENS = 80538; // of the first version, whose files say nothing more
const GGUF_FRONT = 1 << 16; // bytes in which to look for the architecture's name

export function wantsSenses(sources: readonly Source[], path: string): boolean {
  const file = sources.find(({ name }) => name === path);
  if (file) {
    const front = textOf(file, GGUF_FRONT, 'latin1');
    return FAMILIES.test(architectureOf(front)) || front.includes('lfm2.speech.text_tokens');
  }
  const config = sources.find(({ name }) => name === (path ? `${path}/config.json` : 'config.json'));
  try {
    const { model_type, vision_config, pretrained_cfg, text_vocab_size, vocab_size } =
      JSON.parse(config ? textOf(config, config.size) : '{}') as Record<string, unknown>;
    const speaks = model_type === 'lfm2' && (!!text_vocab_size || vocab_size === KANI_TOKENS);
    return !!vision_config || !!pretrained_cfg || speaks || FAMILIES.test(String(model_type));
  } catch {
    return false; // the engine says what is wrong with it
  }
}

function textOf(source: Source, n: number, coding?: string): string {
  const bytes = new Uint8Array(Math.min(n, source.size));
  return new TextDecoder(coding).decode(bytes.subarray(0, source.read(0, bytes)));
}

// After the key come its type (4 bytes), a length (8) and that many bytes.
function architectureOf(text: string): string {
  const key = 'general.architecture', at = text.indexOf(key) + key.length;
  return at < key.length ? '' : text.slice(at + 12, at + 12 + text.charCodeAt(at + 4));
}

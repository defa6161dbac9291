// Which models need the module that sees and hears: what their files say they are.
import type { Source } from './engine/types.js';

const FAMILIES = /^(vit|moonshine|whisper)/; // as GGUF and config.json call them
const GGUF_FRONT = 1 << 16; // bytes that the architecture's name is looked for in

export function wantsSenses(sources: readonly Source[], path: string): boolean {
  const file = sources.find(({ name }) => name === path);
  if (file) return FAMILIES.test(architectureOf(file));
  const config = sources.find(({ name }) => name === (path ? `${path}/config.json` : 'config.json'));
  try {
    const { model_type, vision_config, pretrained_cfg } =
      JSON.parse(config ? textOf(config, config.size) : '{}') as Record<string, unknown>;
    return !!vision_config || !!pretrained_cfg || FAMILIES.test(String(model_type));
  } catch {
    return false; // the engine says what is wrong with it
  }
}

function textOf(source: Source, n: number, coding?: string): string {
  const bytes = new Uint8Array(Math.min(n, source.size));
  return new TextDecoder(coding).decode(bytes.subarray(0, source.read(0, bytes)));
}

// After the key its type (4 bytes), a length (8) and so many bytes.
function architectureOf(file: Source): string {
  const key = 'general.architecture';
  const text = textOf(file, GGUF_FRONT, 'latin1'), at = text.indexOf(key) + key.length;
  return at < key.length ? '' : text.slice(at + 12, at + 12 + text.charCodeAt(at + 4));
}

// What the user has set: kept in localStorage, since it is small and wanted before the first load.
import type { GenerateOptions, LoadOptions } from 'tern-engine';

export interface Settings {
  system: string;
  // Of sampling; null: the model's own default.
  temperature: number | null;
  topP: number | null;
  topK: number | null;
  minP: number | null;
  repeatPenalty: number | null;
  seed: number | null; // null: another one each time
  maxTokens: number | null; // null: until the model ends or the context is full
  pieceTokens: number; // of one continuation of a text
  // Of loading; a change asks for the model to be opened again.
  device: 'auto' | 'webgpu' | 'wasm';
  threads: number | null;
  context: number | null;
  thinking: 'auto' | 'on' | 'off';
  lastModel: string | null; // what is loaded when the page opens
}

export const DEFAULTS: Settings = {
  system: '',
  temperature: null,
  topP: null,
  topK: null,
  minP: null,
  repeatPenalty: null,
  seed: null,
  maxTokens: null,
  pieceTokens: 160,
  device: 'auto',
  threads: null,
  context: null,
  thinking: 'auto',
  lastModel: null,
};

/** The number fields: what they are called and where their values may lie. */
export const RANGES = {
  temperature: {
    label: 'Temperature',
    min: 0,
    max: 5,
    step: 0.05,
    hint: '0 always takes the likeliest word',
  },
  topP: {
    label: 'Top-p',
    min: 0,
    max: 1,
    step: 0.01,
    hint: 'of the likeliest words, this share of the chance',
  },
  topK: { label: 'Top-k', min: 0, max: 1000, step: 1, hint: 'how many of the likeliest words; 0: all' },
  minP: {
    label: 'Min-p',
    min: 0,
    max: 1,
    step: 0.01,
    hint: 'at least this share of the likeliest one’s chance',
  },
  repeatPenalty: { label: 'Repeat penalty', min: 0.5, max: 3, step: 0.01, hint: '1: none' },
  seed: {
    label: 'Seed',
    min: 1,
    max: Number.MAX_SAFE_INTEGER,
    step: 1,
    hint: 'the same seed gives the same text',
  },
  maxTokens: {
    label: 'Longest answer, tokens',
    min: 1,
    max: 131072,
    step: 1,
    hint: 'left empty: until the model ends',
  },
  pieceTokens: { label: 'Tokens a continuation', min: 8, max: 4096, step: 1, hint: 'in “Continue a text”' },
  threads: {
    label: 'Threads',
    min: 1,
    max: 64,
    step: 1,
    hint: 'more than one only where the site is isolated',
  },
  context: {
    label: 'Context, tokens',
    min: 64,
    max: 131072,
    step: 1,
    hint: 'left empty: what the model was trained for, at most 8192',
  },
} as const;
export type NumberSetting = keyof typeof RANGES;

const KEY = 'tern-chat-settings';

/** Settings from stored text, whatever it is: what is not understood gets its default. */
export function readSettings(text: string | null): Settings {
  let from: Record<string, unknown> = {};
  try {
    const value: unknown = JSON.parse(text ?? '{}');
    if (typeof value === 'object' && value !== null) from = value as Record<string, unknown>;
  } catch {
    /* the defaults */
  }
  const settings: Record<string, unknown> = { ...DEFAULTS };
  for (const name of Object.keys(RANGES) as NumberSetting[]) {
    const { min, max, step } = RANGES[name];
    const value = from[name];
    if (typeof value === 'number' && value >= min && value <= max && (step !== 1 || Number.isInteger(value)))
      settings[name] = value;
  }
  for (const name of ['system', 'lastModel']) if (typeof from[name] === 'string') settings[name] = from[name];
  if (['auto', 'webgpu', 'wasm'].includes(from.device as string)) settings.device = from.device;
  if (['auto', 'on', 'off'].includes(from.thinking as string)) settings.thinking = from.thinking;
  return settings as unknown as Settings;
}

export function loadSettings(): Settings {
  try {
    return readSettings(localStorage.getItem(KEY));
  } catch {
    return { ...DEFAULTS }; // storage is switched off
  }
}

export function saveSettings(settings: Settings): void {
  try {
    localStorage.setItem(KEY, JSON.stringify(settings));
  } catch {
    /* storage is switched off: they hold until the page is closed */
  }
}

const given = <T extends object>(options: T) =>
  Object.fromEntries(Object.entries(options).filter(([, value]) => value !== null)) as {
    [K in keyof T]: Exclude<T[K], null>;
  };

export function samplingOptions(settings: Settings): GenerateOptions {
  const { temperature, topP, topK, minP, repeatPenalty, seed, maxTokens } = settings;
  return given({ temperature, topP, topK, minP, repeatPenalty, seed, maxTokens });
}

export function loadOptions(settings: Settings): LoadOptions {
  const { device, threads, context, thinking } = settings;
  return given({ device, threads, context, thinking });
}

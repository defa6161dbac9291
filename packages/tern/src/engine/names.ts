// Names: tern.h's and the module's are snake_case, TypeScript's camelCase.
import { TernError } from './error.js';

export const snake = (name: string): string => name.replace(/[A-Z]/g, (c) => '_' + c.toLowerCase());
const camel = (name: string): string => name.replace(/_([a-z0-9])/g, (_, c: string) => c.toUpperCase());

// The members that have a value, under the module's names. JSON would make null, which is no value, of NaN.
export function toModule(options: object): Record<string, unknown> {
  const out: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(options)) {
    if (typeof value === 'number' && !Number.isFinite(value)) throw new TernError('argument', `${name} must be a finite number, not ${value}`);
    if (value !== undefined) out[snake(name)] = value;
  }
  return out;
}

// Objects within objects, too; not within arrays.
export function fromModule(value: unknown): unknown {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, v]) => [camel(name), fromModule(v)]));
}

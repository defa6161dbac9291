// Structured answers: JSON Schema or schema objects that describe themselves as one, expressions, choices, grammars.
import type { FormOptions, GenerateOutput, JsonSchema, StandardSchema } from '../api.js';
import { TernError } from '../errors.js';
import type { GrammarSpec } from '../protocol.js';

// ---- Schemas ------------------------------------------------------------------------------------

interface Describes { // what a schema object may have: Standard JSON Schema's, or Zod's own
  '~standard'?: { jsonSchema?: { input?(options: { target: string }): unknown } };
  toJSONSchema?(options: { io: 'input' }): unknown;
}

const isStandard = (schema: unknown): schema is StandardSchema =>
  (typeof schema === 'object' || typeof schema === 'function') && schema !== null && '~standard' in schema;

// The JSON Schema of the answer before the schema object transforms it.
export function jsonSchemaOf(schema: JsonSchema | StandardSchema): JsonSchema {
  if (!isStandard(schema)) {
    if (typeof schema === 'boolean' || (typeof schema === 'object' && schema !== null && !Array.isArray(schema))) return schema;
    throw new TernError('argument', 'schema must be a JSON Schema, or an object that describes itself as one (Zod 4)');
  }
  const describes = schema as Describes;
  const described = describes['~standard']?.jsonSchema?.input?.({ target: 'draft-2020-12' })
    ?? describes.toJSONSchema?.({ io: 'input' });
  if (described === undefined)
    throw new TernError('argument', 'schema does not describe itself as JSON Schema: give one, such as z.toJSONSchema(schema)');
  const copy = JSON.parse(JSON.stringify(described)) as JsonSchema;
  // Such objects drop properties that they do not name, so the model need not write any. Where schemas are
  // combined, none of them knows all the names.
  if (!JSON.stringify(copy).includes('"allOf":')) close(copy);
  return copy;
}

const VALUES = ['const', 'enum', 'default', 'examples']; // not schemas
function close(schema: unknown): void {
  if (typeof schema !== 'object' || schema === null) return;
  const object = schema as Record<string, unknown>;
  if (!Array.isArray(schema) && typeof object['properties'] === 'object' && object['type'] === 'object')
    object['additionalProperties'] ??= false;
  for (const [name, value] of Object.entries(object)) {
    if (name === 'properties' || name === '$defs') Object.values(value as object).forEach(close);
    else if (!VALUES.includes(name)) close(value);
  }
}

export const specOfSchema = (schema: JsonSchema | StandardSchema, compact?: boolean): GrammarSpec =>
  ({ kind: 'schema', text: JSON.stringify(jsonSchemaOf(schema)), ...(compact ? { compact } : {}) });

// The constraint that options request; undefined: none.
export function specOf({ schema, regex, choice, grammar, compact }: FormOptions): GrammarSpec | undefined {
  const given = Object.entries({ schema, regex, choice, grammar }).filter(([, value]) => value !== undefined);
  if (given.length > 1)
    throw new TernError('argument', `${given.map(([name]) => name).join(' and ')} exclude each other`);
  if (compact && schema === undefined) throw new TernError('argument', 'compact needs a schema');
  if (schema !== undefined) return specOfSchema(schema, compact);
  if (regex !== undefined) return specOfRegex(regex);
  if (choice !== undefined) return { kind: 'choices', choices: [...choice] };
  if (grammar === undefined) return undefined;
  return typeof grammar === 'string' ? { kind: 'gbnf', text: grammar } : { kind: 'lark', text: grammar.lark };
}

function specOfRegex(regex: string | RegExp): GrammarSpec {
  if (typeof regex === 'string') return { kind: 'regex', text: regex };
  if (/[^uvgyd]/.test(regex.flags)) throw new TernError('unsupported', `flags of ${String(regex)} are not supported`);
  return { kind: 'regex', text: regex.source };
}

// ---- Answers ------------------------------------------------------------------------------------

// The value of a finished answer. A cut answer is an error, and so is one that the schema object's
// own validation refuses.
export async function valueOf(schema: JsonSchema | StandardSchema, output: GenerateOutput): Promise<unknown> {
  const { reason, text } = output;
  // If cut right after the last bracket it is complete anyway; a number might have continued.
  if (reason !== 'end' && !/[}\]"]\s*$/.test(text)) throw cut(output);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    if (reason !== 'end') throw cut(output);
    throw new TernError('format', `the answer is no JSON: ${(cause as Error).message}`, { cause: output });
  }
  if (!isStandard(schema)) return value;
  const checked = await schema['~standard'].validate(value);
  if (!checked.issues) return checked.value;
  const said = checked.issues.map(({ path, message }) =>
    `${(path ?? []).map(part => String(typeof part === 'object' ? part.key : part)).join('.') || 'it'}: ${message}`);
  throw new TernError('format', `the answer has the form that was asked for, but ${said.join('; ')}`, { cause: output });
}

function cut(output: GenerateOutput): TernError {
  const n = output.usage.completion_tokens;
  const why = { end: '', length: 'maxTokens were reached', context: 'the context was full', string: 'a stop text came' }[output.reason];
  return new TernError('length', `the answer was cut after ${n} tokens, before its JSON was complete: ${why}`, { cause: output });
}

// ---- The beginning of JSON ----------------------------------------------------------------------

const SPACE = /\s*/y, STRING = /"(?:[^"\\]|\\u[\da-fA-F]{4}|\\[^u])*/sy, WORD = /[^\s,\]}]*/y;

// The value of incomplete JSON: strings as far as they go, numbers and words once they are complete.
// undefined: nothing yet.
export function partialValue(text: string): unknown {
  return new Beginning(text).value();
}

class Beginning {
  #at = 0;
  #over = false; // the text ends in what is being read

  constructor(private text: string) {}

  #take(what: RegExp): string {
    what.lastIndex = this.#at;
    const found = what.exec(this.text)?.[0] ?? '';
    this.#at += found.length;
    return found;
  }
  #next(): string | undefined {
    this.#take(SPACE);
    return this.text[this.#at];
  }

  value(): unknown {
    switch (this.#next()) {
      case '{': return this.#object();
      case '[': return this.#array();
      case '"': return this.#string();
    }
    const word = this.#take(WORD);
    this.#over = this.#at >= this.text.length;
    return this.#over ? undefined : JSON.parse(word);
  }

  #string(): string {
    const found = this.#take(STRING);
    this.#over = this.text[this.#at] !== '"';
    const string = JSON.parse(`${found}"`) as string;
    if (this.#over) return string.replace(/[\ud800-\udbff]$/, ''); // half of a character
    this.#at++;
    return string;
  }

  // Reads elements up to `end`, or to where the text ends.
  #each(end: string, element: () => void): void {
    for (this.#at++; !this.#over;) {
      const next = this.#next();
      if (next === undefined) this.#over = true;
      else if (next === ',' || next === end) this.#at++;
      else element();
      if (next === end) return;
    }
  }

  #array(): unknown[] {
    const elements: unknown[] = [];
    this.#each(']', () => {
      const element = this.value();
      if (element !== undefined) elements.push(element);
    });
    return elements;
  }

  #object(): Record<string, unknown> {
    const members: [string, unknown][] = [];
    this.#each('}', () => {
      const name = this.#string();
      this.#over ||= this.#next() !== ':';
      this.#at++;
      const value = this.#over ? undefined : this.value();
      if (value !== undefined) members.push([name, value]);
    });
    return Object.fromEntries(members);
  }
}

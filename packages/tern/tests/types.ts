// Compiled, never run: what the types promise. A line after "@ts-expect-error" must not compile.
import type { ChatCompletion, ChatCompletionChunk, ChatCompletionStream, GenerateOutput, Tern } from '../src/index.js';
import { TernError } from '../src/index.js';
import { z } from 'zod';

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends (<T>() => T extends B ? 1 : 2) ? true : false;
const is = <_T extends true>(): void => undefined;

export async function promises(tern: Tern): Promise<void> {
  const messages = [{ role: 'user', content: 'a' }] as const;
  const whole = await tern.chat.completions.create({ messages });
  is<Equal<typeof whole, ChatCompletion>>();
  const stream = await tern.chat.completions.create({ messages, stream: true });
  is<Equal<typeof stream, ChatCompletionStream>>();
  for await (const chunk of stream) is<Equal<typeof chunk, ChatCompletionChunk>>();
  const either = await tern.chat.completions.create({ messages, stream: Math.random() < 0.5 });
  is<Equal<typeof either, ChatCompletion | ChatCompletionStream>>();
  const output = await tern.generate('a', { maxTokens: 1 });
  is<Equal<typeof output, GenerateOutput>>();
  for await (const piece of tern.stream('a')) is<Equal<typeof piece, string>>();
  // @ts-expect-error: a stream has no choices
  stream.choices;
  // @ts-expect-error: messages are needed
  await tern.chat.completions.create({});
  // @ts-expect-error: names are those of the OpenAI client
  await tern.chat.completions.create({ messages, maxTokens: 5 });
  await tern.chat.completions.create({ messages, tool_choice: { type: 'function', function: { name: 'f' } } });
  // @ts-expect-error: there is no such choice
  await tern.chat.completions.create({ messages, tool_choice: 'any' });
  const person = z.object({ name: z.string(), born: z.string().transform(text => new Date(text)) });
  const { object } = await tern.generateObject('a', { schema: person });
  is<Equal<typeof object, { name: string; born: Date }>>();
  for await (const part of tern.streamObject(messages, { schema: z.array(person) }))
    is<Equal<(typeof part)[number]['name'], string | undefined>>();
  const { object: any } = await tern.generateObject('a', { schema: { type: 'object' } });
  any.thing satisfies unknown;
  // @ts-expect-error: it is JSON of a schema that is generated
  await tern.generateObject('a', { schema: person, regex: 'a' });
  // @ts-expect-error: a role is one of five
  await tern.chat.completions.create({ messages: [{ role: 'robot', content: '' }] });
  // @ts-expect-error: generate has this package's names
  await tern.generate('a', { max_tokens: 1 });
  // @ts-expect-error: there is no such code
  if (new TernError('argument', '').code === 'nonsense') return;
  // @ts-expect-error: the constructor is private: Tern.load
  void new (tern.constructor as typeof Tern)();
}

// Constraints on a chat completion's answer: response_format and similar options, tools and tool_choice.
import { TernError } from '../errors.js';
import type { ChatCompletionRequest, Tool } from './openai.js';
import type { GrammarSpec } from '../protocol.js';
import { specOf, specOfSchema } from './structured.js';

const refuse = (message: string, code: 'argument' | 'unsupported' = 'argument'): never => {
  throw new TernError(code, message);
};

// The tools that may be called; with tool_choice "none", none.
export const toolsOf = ({ tools, tool_choice }: ChatCompletionRequest): readonly Tool[] =>
  tool_choice === 'none' ? [] : tools ?? [];

// undefined: no constraint.
export function formOf(request: ChatCompletionRequest): GrammarSpec | undefined {
  const tools = toolsOf(request);
  const { must, tool } = forcedBy(request, tools);
  const form = formatOf(request);
  if (tools.length === 0) return form;
  const text = JSON.stringify(tools);
  const oneCall = request.parallel_tool_calls === false || tool !== undefined;
  // The model calls or answers in the form; if it must call, the form applies to the answer after the results.
  if (form && !must) return { ...form, oneCall, tools: text };
  return {
    kind: 'calls', text, oneCall, optional: !must, ...(tool === undefined ? {} : { tool }),
    // A schema that is not known is as good as none, unless the request wants more than that.
    lenient: !must && !tools.some(({ function: f }) => f.strict),
  };
}

function forcedBy({ tool_choice: choice }: ChatCompletionRequest, tools: readonly Tool[]): { must: boolean; tool?: string } {
  if (choice === undefined || choice === null || choice === 'auto' || choice === 'none') return { must: false };
  const name = typeof choice === 'object' ? choice.function?.name : undefined;
  if (choice !== 'required' && (typeof choice !== 'object' || choice.type !== 'function' || typeof name !== 'string'))
    refuse('tool_choice must be "auto", "none", "required" or { type: "function", function: { name } }', 'unsupported');
  if (tools.length === 0) refuse('tool_choice needs tools');
  if (name !== undefined && !tools.some(({ function: f }) => f.name === name)) refuse(`tool_choice: no tool is called "${name}"`);
  return name === undefined ? { must: true } : { must: true, tool: name };
}

function formatOf(request: ChatCompletionRequest): GrammarSpec | undefined {
  const { response_format: format, json_schema, grammar, regex, choice } = request;
  const more = Object.fromEntries(Object.entries({ schema: json_schema, grammar, regex, choice })
    .filter(([, value]) => value !== undefined && value !== null));
  const named = specOf(more);
  if (!format || format.type === 'text') return named;
  if (named) refuse('response_format is not the only form that is asked for');
  if (format.type === 'json_object') return specOfSchema({ type: 'object' });
  if (format.type !== 'json_schema')
    refuse(`response_format ${String((format as { type: unknown }).type)} is not supported`, 'unsupported');
  if (format.json_schema?.schema === undefined) refuse('response_format.json_schema.schema is missing');
  return specOfSchema(format.json_schema.schema);
}

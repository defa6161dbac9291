// The official clients of OpenAI, Anthropic and Ollama, the AI SDK and LangChain against tern serve, with the
// carried model:
//
//     node tests/serve/serve_clients.mjs TERN FOLDER
//
// FOLDER has node_modules with the clients, and parrot.gguf, a model that calls tools (`make test-clients` puts
// them there).
import { createRequire } from "node:module";
import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import assert from "node:assert/strict";
import { startServer } from "./start_server.mjs";

const [tern, folder] = process.argv.slice(2);
const require = createRequire(resolve(folder, "package.json"));
const { default: OpenAI, NotFoundError, AuthenticationError, BadRequestError } = require("openai");
const Anthropic = require("@anthropic-ai/sdk").default;
const { Ollama } = require("ollama");
const { generateText, generateObject, streamText, embedMany, tool, jsonSchema, stepCountIs } = require("ai");
const { createOpenAICompatible } = require("@ai-sdk/openai-compatible");
const { z } = require("zod");
const { zodResponseFormat, zodTextFormat } = require("openai/helpers/zod");
const { ChatOpenAI, OpenAIEmbeddings } = require("@langchain/openai");

const KEY = "secret";
const start = (file, ...options) =>
    startServer(tern, ["serve", file, "-t", "1", "--port", "0", "--api-key", KEY, ...options]);
const stories = "models/stories.gguf", parrot = resolve(folder, "parrot.gguf");
const url = await start(stories), embeds = await start(stories, "--pooling", "mean"), calls = await start(parrot);
const sees = await start("tests/oracles/qwen35_sees");

const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: KEY });
const anthropic = new Anthropic({ baseURL: url, apiKey: KEY });
const ollama = new Ollama({ host: url, headers: { Authorization: `Bearer ${KEY}` } });
const model = "stories";
const messages = [{ role: "user", content: "Write a story about a fox." }];
const chat = { model, messages, max_tokens: 24, temperature: 0.8, seed: 11 };
const metric = async (name) => {
    const text = await (await fetch(`${url}/metrics`, { headers: { "x-api-key": KEY } })).text();
    return Number(text.split("\n").find((l) => l.startsWith(name + " ") || l.startsWith(name + "{model")).split(" ").pop());
};
let told; // what the model says to chat, by OpenAI's client

// What the parrot asks for before it says "It is dry in Ghent."
const town = { type: "object", properties: { town: { type: "string" } }, required: ["town"] };
const functions = [{ type: "function", function: { name: "weather", description: "Looks outside", parameters: town } },
    { type: "function", function: { name: "clock", parameters: { type: "object", properties: {} } } }];
const question = [{ role: "user", content: "Rain in Ghent?" }];
const asked = [["weather", { town: "Ghent" }], ["clock", {}]];

const weather = z.object({ town: z.enum(["Ghent", "Lier"]), days: z.int().min(1).max(9),
    parts: z.array(z.object({ rain: z.boolean(), wind: z.enum(["calm", "breeze"]).nullable() })).min(1).max(2) });

const tests = {
    async "openai: models"() {
        const list = [];
        for await (const m of openai.models.list()) list.push(m.id);
        assert.deepEqual(list, [model]);
        assert.equal((await openai.models.retrieve(model)).object, "model");
    },
    async "openai: chat"() {
        const { data, response } = await openai.chat.completions.create(chat).withResponse();
        told = data.choices[0].message.content;
        assert.equal(data.choices[0].finish_reason, "length");
        assert.equal(data.usage.completion_tokens, 24);
        assert.equal(data._request_id, response.headers.get("x-request-id"));
    },
    async "openai: chat, streamed"() {
        let text = "", usage;
        const stream = await openai.chat.completions.create({ ...chat, stream: true, stream_options: { include_usage: true } });
        for await (const chunk of stream) {
            text += chunk.choices[0]?.delta.content ?? "";
            usage = chunk.usage ?? usage;
        }
        assert.equal(text, told);
        assert.equal(usage.completion_tokens, 24);
    },
    async "openai: chat by .stream(), with likelihoods"() {
        const stream = openai.chat.completions.stream({ ...chat, logprobs: true, top_logprobs: 2 });
        const done = await stream.finalChatCompletion();
        assert.equal(done.choices[0].message.content, told);
        assert.equal(done.choices[0].logprobs.content.map((t) => t.token).join(""), told);
        assert.equal(done.choices[0].logprobs.content[0].top_logprobs.length, 2);
    },
    async "openai: parts of text, choices, a developer"() {
        const done = await openai.chat.completions.create({
            ...chat, n: 2,
            messages: [{ role: "developer", content: "Be brief." }, { role: "user", content: [{ type: "text", text: "Tell me a story about a fox." }] }],
        });
        assert.equal(done.choices.length, 2);
        assert.notEqual(done.choices[0].message.content, done.choices[1].message.content);
    },
    async "openai: completions"() {
        const ask = { model, prompt: ["Once upon", "The little"], max_tokens: 8, temperature: 0, logprobs: 1, echo: false };
        const done = await openai.completions.create(ask);
        assert.equal(done.choices.length, 2);
        const texts = ["", ""];
        for await (const chunk of await openai.completions.create({ ...ask, stream: true }))
            texts[chunk.choices[0].index] += chunk.choices[0].text;
        assert.deepEqual(texts, done.choices.map((c) => c.text));
    },
    async "openai: a client that leaves"() {
        const before = await metric('tern_answers_total{reason="cancelled"}');
        // Enough to say that none of it is over when this process comes to close the connection.
        const long = { ...chat, n: 8, max_tokens: 1900, ignore_eos: true, stream: true };
        const stream = await openai.chat.completions.create(long);
        for await (const _ of stream) break; // the client closes the connection
        const cancelled = () => metric('tern_answers_total{reason="cancelled"}');
        // The first piece comes before the answers are begun, so "none is running" may be said too early.
        for (let i = 0; i < 30000 && (await cancelled()) < before + 8; i++) await new Promise((r) => setTimeout(r, 10));
        assert.equal(await cancelled(), before + 8);
        assert.equal(await metric("tern_requests_running"), 0);
    },
    async "openai: errors have their classes"() {
        await assert.rejects(openai.chat.completions.create({ ...chat, model: "other" }),
            (e) => e instanceof NotFoundError && e.code === "model_not_found" && e.param === "model");
        await assert.rejects(openai.chat.completions.create({ ...chat, temperature: 9 }),
            (e) => e instanceof BadRequestError && e.param === "temperature");
        await assert.rejects(new OpenAI({ baseURL: `${url}/v1`, apiKey: "wrong" }).models.list(),
            (e) => e instanceof AuthenticationError && e.code === "invalid_api_key");
    },
    async "openai: responses"() {
        const ask = { model, input: messages[0].content, max_output_tokens: 24, temperature: 0 };
        const done = await openai.responses.create(ask);
        assert.equal(done.status, "incomplete");
        assert.equal(done.usage.output_tokens, 24);
        const stream = openai.responses.stream({ ...ask, top_logprobs: 1 });
        let text = "";
        stream.on("response.output_text.delta", (e) => (text += e.delta));
        const final = await stream.finalResponse();
        assert.equal(text, done.output_text);
        assert.equal(final.output_text, text);
        await assert.rejects(openai.responses.create({ ...ask, previous_response_id: "resp_1" }),
            (e) => e instanceof BadRequestError && e.param === "previous_response_id");
        await assert.rejects(openai.responses.create({ ...ask, tools: [{ type: "function", name: "f", parameters: {}, strict: true }] }),
            (e) => e instanceof BadRequestError && e.param === "tools");
    },
    async "openai and ollama: vectors"() {
        const client = new OpenAI({ baseURL: `${embeds}/v1`, apiKey: KEY });
        const floats = await client.embeddings.create({ model, input: ["a fox", "a bear"], encoding_format: "float" });
        const usual = await client.embeddings.create({ model, input: ["a fox", "a bear"] }); // base64, by itself
        assert.equal(usual.data.length, 2);
        assert.ok(usual.data[1].embedding.length > 8);
        usual.data.forEach((d, i) => d.embedding.forEach((v, k) => assert.equal(v, Math.fround(floats.data[i].embedding[k]))));
        const short = await client.embeddings.create({ model, input: "a fox", dimensions: 4 });
        assert.equal(short.data[0].embedding.length, 4);
        await assert.rejects(openai.embeddings.create({ model, input: "a" }), (e) => e instanceof BadRequestError && e.param === "model");
        const other = new Ollama({ host: embeds, headers: { Authorization: `Bearer ${KEY}` } });
        const vectors = (await other.embed({ model, input: ["a fox", "a bear"] })).embeddings;
        assert.deepEqual(vectors.map((v) => v.map(Math.fround)), floats.data.map((d) => d.embedding.map(Math.fround)));
        assert.equal((await other.embeddings({ model, prompt: "a fox" })).embedding.length, vectors[0].length);
    },
    async "AI SDK: text, a stream, vectors, errors"() {
        const provider = createOpenAICompatible({ name: "tern", baseURL: `${url}/v1`, apiKey: KEY, includeUsage: true });
        const ask = { model: provider(model), messages, maxOutputTokens: 24, temperature: 0.8, seed: 11, maxRetries: 0 };
        const done = await generateText(ask);
        assert.equal(done.text, told);
        assert.equal(done.finishReason, "length");
        assert.equal(done.usage.outputTokens, 24);
        const stream = streamText(ask);
        let text = "";
        for await (const piece of stream.textStream) text += piece;
        assert.equal(text, told);
        assert.equal((await stream.usage).outputTokens, 24);
        const vectors = createOpenAICompatible({ name: "tern", baseURL: `${embeds}/v1`, apiKey: KEY });
        assert.equal((await embedMany({ model: vectors.textEmbeddingModel(model), values: ["a", "b"] })).embeddings.length, 2);
        await assert.rejects(generateText({ ...ask, model: provider("other") }), /model 'other' not found/);
    },
    async "LangChain: invoke, stream, batch, vectors"() {
        const configuration = { baseURL: `${url}/v1` };
        const llm = new ChatOpenAI({ model, apiKey: KEY, configuration, maxTokens: 24, temperature: 0, maxRetries: 0 });
        const done = await llm.invoke(messages[0].content);
        let text = "";
        for await (const piece of await llm.stream(messages[0].content)) text += piece.content;
        assert.equal(text, done.content);
        assert.ok(done.usage_metadata.output_tokens > 0);
        const both = await llm.batch([messages[0].content, messages[0].content]);
        assert.deepEqual(both.map((m) => m.content), [text, text]);
        const vectors = new OpenAIEmbeddings({ model, apiKey: KEY, configuration: { baseURL: `${embeds}/v1` } });
        const [one, two] = await vectors.embedDocuments(["a fox", "a bear"]);
        assert.ok(one.length > 8 && one.length === two.length && one[0] !== two[0]);
        const responses = new ChatOpenAI({ model, apiKey: KEY, configuration, maxTokens: 24, temperature: 0, useResponsesApi: true });
        assert.equal((await responses.invoke(messages[0].content)).text, text);
    },
    // Seen to fail with a server that says what the model would: "Once upon a time".
    async "openai: answers of a form, parsed"() {
        const response_format = zodResponseFormat(weather, "weather");
        assert.equal(response_format.json_schema.strict, true);
        const done = await openai.chat.completions.parse({ ...chat, max_tokens: 300, response_format });
        const told = done.choices[0].message.parsed;
        assert.deepEqual(weather.parse(told), told);
        const stream = openai.chat.completions.stream({ ...chat, max_tokens: 300, response_format });
        assert.deepEqual((await stream.finalChatCompletion()).choices[0].message.parsed, told);
        const text = { format: zodTextFormat(weather, "weather") };
        const answer = await openai.responses.parse({ model, input: "A fox?", max_output_tokens: 300, text, temperature: 0 });
        assert.deepEqual(weather.parse(answer.output_parsed), answer.output_parsed);
        const bad = { type: "json_schema", json_schema: { name: "a", schema: { type: "objekt" } } };
        await assert.rejects(openai.chat.completions.create({ ...chat, response_format: bad }),
            (e) => e instanceof BadRequestError && e.param === "response_format.json_schema.schema" && /#\/type/.test(e.message));
    },
    async "anthropic, ollama, AI SDK, LangChain: answers of a form"() {
        const schema = z.toJSONSchema(weather);
        const said = await anthropic.messages.create({ model, messages, max_tokens: 300, output_config: { format: { type: "json_schema", schema } } });
        weather.parse(JSON.parse(said.content[0].text));
        const chatted = await ollama.chat({ model, messages, format: schema, options: { num_predict: 300 } });
        weather.parse(JSON.parse(chatted.message.content));
        const provider = createOpenAICompatible({ name: "tern", baseURL: `${url}/v1`, apiKey: KEY, supportsStructuredOutputs: true });
        const { object } = await generateObject({ model: provider(model), messages, schema: weather, maxOutputTokens: 300, maxRetries: 0 });
        weather.parse(object);
        const llm = new ChatOpenAI({ model, apiKey: KEY, configuration: { baseURL: `${url}/v1` }, maxTokens: 300, maxRetries: 0 });
        weather.parse(await llm.withStructuredOutput(weather, { method: "jsonSchema" }).invoke("A fox?"));
    },
    async "openai: tools, called and answered"() {
        const client = new OpenAI({ baseURL: `${calls}/v1`, apiKey: KEY });
        for (const stream of [false, true]) {
            const seen = [];
            const run = (name) => async (args) => (seen.push([name, args]), "dry");
            const tools = functions.map((f) => ({ type: "function",
                function: { ...f.function, parse: JSON.parse, function: run(f.function.name) } }));
            const runner = client.chat.completions.runTools({ model: "parrot", messages: question, tools, stream });
            assert.equal(await runner.finalContent(), "It is dry in Ghent.");
            assert.deepEqual(seen, asked);
        }
        const done = await client.chat.completions.stream({ model: "parrot", messages: question, tools: functions }).finalMessage();
        assert.deepEqual(done.tool_calls.map((c) => [c.function.name, JSON.parse(c.function.arguments)]), asked);
        assert.equal(done.content, "I look.");
    },
    // Seen to fail with a server that leaves the choice to the model, which would look outside first.
    async "openai, anthropic, AI SDK, LangChain: a tool that must be called"() {
        const client = new OpenAI({ baseURL: `${calls}/v1`, apiKey: KEY });
        const wish = { type: "function", function: { name: "clock" } }, one = [["clock", {}]];
        const done = await client.chat.completions.create({ model: "parrot", messages: question, tools: functions, tool_choice: wish });
        assert.deepEqual(done.choices[0].message.tool_calls.map((c) => [c.function.name, JSON.parse(c.function.arguments)]), one);
        const claude = new Anthropic({ baseURL: calls, apiKey: KEY });
        const tools = functions.map((f) => ({ name: f.function.name, input_schema: f.function.parameters }));
        const said = await claude.messages.create({ model: "parrot", max_tokens: 300, messages: question, tools, tool_choice: { type: "tool", name: "clock" } });
        assert.deepEqual(said.content.filter((b) => b.type === "tool_use").map((b) => [b.name, b.input]), one);
        const provider = createOpenAICompatible({ name: "tern", baseURL: `${calls}/v1`, apiKey: KEY });
        const clock = tool({ description: "The time", inputSchema: jsonSchema({ type: "object", properties: {} }) });
        const step = await generateText({ model: provider("parrot"), messages: question, tools: { clock }, toolChoice: "required", maxOutputTokens: 300 });
        assert.ok(step.toolCalls.length && step.toolCalls.every((c) => c.toolName === "clock"));
        const llm = new ChatOpenAI({ model: "parrot", apiKey: KEY, configuration: { baseURL: `${calls}/v1` }, maxRetries: 0 });
        const last = await llm.bindTools(functions, { tool_choice: "clock" }).invoke(question[0].content);
        assert.deepEqual(last.tool_calls.map((c) => [c.name, c.args]), one);
    },
    async "openai: tools in responses"() {
        const client = new OpenAI({ baseURL: `${calls}/v1`, apiKey: KEY });
        const tools = functions.map((f) => ({ type: "function", strict: false, ...f.function }));
        const stream = client.responses.stream({ model: "parrot", input: question, tools });
        const first = await stream.finalResponse();
        const items = first.output.filter((i) => i.type === "function_call");
        assert.deepEqual(items.map((i) => [i.name, JSON.parse(i.arguments)]), asked);
        assert.equal(first.output_text, "I look.");
        const results = items.map((i) => ({ type: "function_call_output", call_id: i.call_id, output: "dry" }));
        const after = await client.responses.create({ model: "parrot", input: [...question, ...first.output, ...results], tools });
        assert.equal(after.output_text, "It is dry in Ghent.");
    },
    async "anthropic: tools"() {
        const client = new Anthropic({ baseURL: calls, apiKey: KEY });
        const tools = functions.map((f) => ({ name: f.function.name, input_schema: f.function.parameters }));
        const ask = { model: "parrot", max_tokens: 200, messages: question, tools };
        for (const said of [await client.messages.create(ask), await client.messages.stream(ask).finalMessage()]) {
            const uses = said.content.filter((b) => b.type === "tool_use");
            assert.deepEqual(uses.map((b) => [b.name, b.input]), asked);
            assert.deepEqual([said.content[0].thinking, said.content[1].text, said.stop_reason], ["Rain?", "I look.", "tool_use"]);
            const results = uses.map((b) => ({ type: "tool_result", tool_use_id: b.id, content: "dry" }));
            const after = await client.messages.create({ ...ask,
                messages: [...question, { role: "assistant", content: said.content }, { role: "user", content: results }] });
            assert.equal(after.content[0].text, "It is dry in Ghent.");
        }
    },
    async "images: all clients say the same"() {
        const image = await readFile("tests/oracles/qwen35_sees/image.png");
        const data = image.toString("base64"), at = `data:image/png;base64,${data}`, text = "What is it?";
        const few = { temperature: 0, max_tokens: 6 }, model = "qwen35_sees";
        const openai = new OpenAI({ baseURL: `${sees}/v1`, apiKey: KEY });
        const content = [{ type: "image_url", image_url: { url: at } }, { type: "text", text }];
        const chat = await openai.chat.completions.create({ ...few, model, messages: [{ role: "user", content }] });
        const told = chat.choices[0].message.content, n = chat.usage.prompt_tokens;
        const response = await openai.responses.create({ model, temperature: 0, max_output_tokens: 6,
            input: [{ role: "user", content: [{ type: "input_image", image_url: at, detail: "auto" }, { type: "input_text", text }] }] });
        assert.deepEqual([response.output_text, response.usage.input_tokens], [told, n]);
        const anthropic = new Anthropic({ baseURL: sees, apiKey: KEY });
        const block = { type: "image", source: { type: "base64", media_type: "image/png", data } };
        const message = await anthropic.messages.create({ ...few, model, messages: [{ role: "user", content: [block, { type: "text", text }] }] });
        const { input_tokens: read, cache_read_input_tokens: kept } = message.usage;
        assert.deepEqual([message.content[0].text, read + kept], [told, n]);
        const ollama = new Ollama({ host: sees, headers: { Authorization: `Bearer ${KEY}` } });
        const said = await ollama.chat({ model, options: { temperature: 0, num_predict: 6 },
            messages: [{ role: "user", content: text, images: [new Uint8Array(image)] }] });
        assert.deepEqual([said.message.content, said.prompt_eval_count], [told, n]);
        const provider = createOpenAICompatible({ name: "tern", baseURL: `${sees}/v1`, apiKey: KEY });
        const { text: written } = await generateText({ model: provider(model), temperature: 0, maxOutputTokens: 6,
            messages: [{ role: "user", content: [{ type: "image", image: image }, { type: "text", text }] }] });
        assert.equal(written, told);
        const blind = await openai.chat.completions.create({ ...few, model, messages: [{ role: "user", content: text }] });
        assert.ok(blind.usage.prompt_tokens < n);
    },
    async "ollama: tools and thinking"() {
        const client = new Ollama({ host: calls, headers: { Authorization: `Bearer ${KEY}` } });
        const done = await client.chat({ model: "parrot", messages: question, tools: functions });
        assert.deepEqual(done.message.tool_calls.map((c) => [c.function.name, c.function.arguments]), asked);
        assert.equal(done.message.thinking, "Rain?");
        let text = "", thinking = "", found = [];
        for await (const part of await client.chat({ model: "parrot", messages: question, tools: functions, stream: true })) {
            text += part.message.content;
            thinking += part.message.thinking ?? "";
            found.push(...(part.message.tool_calls ?? []));
        }
        assert.deepEqual([text, thinking, found.length], ["I look.", "Rain?", 2]);
        const results = done.message.tool_calls.map((c) => ({ role: "tool", tool_name: c.function.name, content: "dry" }));
        const after = await client.chat({ model: "parrot", messages: [...question, done.message, ...results], tools: functions });
        assert.equal(after.message.content, "It is dry in Ghent.");
    },
    async "AI SDK: tools in steps"() {
        const provider = createOpenAICompatible({ name: "tern", baseURL: `${calls}/v1`, apiKey: KEY, includeUsage: true });
        const seen = [];
        const tools = Object.fromEntries(functions.map(({ function: f }) => [f.name, tool({ description: f.description ?? f.name,
            inputSchema: jsonSchema(f.parameters), execute: async (input) => (seen.push([f.name, input]), "dry") })]));
        const ask = { model: provider("parrot"), messages: question, tools, stopWhen: stepCountIs(3) };
        const done = await generateText(ask);
        assert.equal(done.text, "It is dry in Ghent.");
        assert.equal(done.steps[0].finishReason, "tool-calls");
        assert.equal(done.steps[0].reasoningText, "Rain?");
        const stream = streamText(ask);
        assert.equal(await stream.text, "It is dry in Ghent.");
        assert.deepEqual(seen, [...asked, ...asked]);
    },
    async "LangChain: tools"() {
        const llm = new ChatOpenAI({ model: "parrot", apiKey: KEY, configuration: { baseURL: `${calls}/v1` }, maxRetries: 0 });
        const done = await llm.bindTools(functions).invoke(question[0].content);
        assert.deepEqual(done.tool_calls.map((c) => [c.name, c.args]), asked);
        let all;
        for await (const piece of await llm.bindTools(functions).stream(question[0].content)) all = all ? all.concat(piece) : piece;
        assert.deepEqual(all.tool_calls.map((c) => [c.name, c.args]), asked);
    },
    async "anthropic: messages"() {
        const done = await anthropic.messages.create({ model, messages, max_tokens: 12, temperature: 0 });
        assert.equal(done.stop_reason, "max_tokens");
        assert.equal(done.usage.output_tokens, 12);
        const stream = anthropic.messages.stream({ model, messages, max_tokens: 12, temperature: 0 });
        let text = "";
        stream.on("text", (t) => (text += t));
        const final = await stream.finalMessage();
        assert.equal(text, done.content[0].text);
        assert.deepEqual(final.content, done.content);
        assert.equal(final.stop_reason, "max_tokens");
    },
    async "anthropic: system, stop sequences, counting, models"() {
        const done = await anthropic.messages.create({
            model, system: [{ type: "text", text: "Be brief." }], messages, max_tokens: 60, temperature: 0, stop_sequences: ["fox"],
        });
        assert.equal(done.stop_sequence, "fox");
        assert.ok((await anthropic.messages.countTokens({ model, messages })).input_tokens > 5);
        const list = [];
        for await (const m of anthropic.models.list()) list.push(m.id);
        assert.deepEqual(list, [model]);
    },
    async "anthropic: errors have their classes"() {
        await assert.rejects(anthropic.messages.create({ model: "other", messages, max_tokens: 5 }),
            (e) => e instanceof Anthropic.NotFoundError && e.error.error.type === "not_found_error");
    },
    async "ollama: chat and generate"() {
        const options = { num_predict: 24, temperature: 0.8, seed: 11 };
        const done = await ollama.chat({ model, messages, options });
        assert.equal(done.message.content, told);
        assert.equal(done.eval_count, 24);
        let text = "", last;
        for await (const part of await ollama.chat({ model: `${model}:latest`, messages, options, stream: true })) {
            text += part.message.content;
            last = part;
        }
        assert.equal(text, told);
        assert.equal(last.done_reason, "length");
        const generated = await ollama.generate({ model, prompt: messages[0].content, options });
        assert.equal(generated.response, told);
    },
    async "ollama: models, errors, leaving"() {
        assert.equal((await ollama.list()).models[0].name, `${model}:latest`);
        assert.equal((await ollama.ps()).models.length, 1);
        assert.deepEqual((await ollama.show({ model })).capabilities, ["completion"]);
        assert.match((await ollama.version()).version, /^\d+\.\d+\.\d+$/);
        await assert.rejects(ollama.chat({ model: "other", messages }), /model 'other' not found/);
        const stream = await ollama.chat({ model, messages, stream: true, options: { num_predict: 900 } });
        stream.abort();
        for (let i = 0; i < 200 && (await metric("tern_requests_running")) > 0; i++);
        assert.equal(await metric("tern_requests_running"), 0);
    },
};

let failed = 0;
for (const [name, run] of Object.entries(tests)) {
    try {
        await run();
    } catch (error) {
        failed++;
        console.log(`FAILED   ${name}\n${error.stack}`);
    }
}
console.log(`clients: ${Object.keys(tests).length - failed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);

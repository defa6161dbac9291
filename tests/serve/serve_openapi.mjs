// What tern serve answers where it speaks as OpenAI does, against OpenAI's own description of it:
//
//     node tests/serve/serve_openapi.mjs TERN FOLDER openapi.json
//
// FOLDER has node_modules with ajv, and parrot.gguf, a model that thinks and calls tools; the description is that of github.com/openai/openai-openapi.
// Seen to fail: with "refusal" left out of a message, with an event without its output_index, with a call's
// "type" left out, with reasoning without its summary.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { startServer } from "./start_server.mjs";

const [tern, folder, path] = process.argv.slice(2);
const require = createRequire(resolve(folder, "package.json"));
const Ajv = require("ajv/dist/2020").default;
const ajv = new Ajv({ strict: false, validateFormats: false, allErrors: true });
// "nullable" is OpenAPI 3.0's word, which the description still has in places.
function modern(value) {
    if (!value || typeof value !== "object") return value;
    if (Array.isArray(value)) return value.map(modern);
    const { nullable, ...rest } = Object.fromEntries(Object.entries(value).map(([k, v]) => [k, modern(v)]));
    return nullable === true ? { anyOf: [rest, { type: "null" }] } : nullable === false ? rest : "nullable" in value ? { ...rest, nullable } : rest;
}
ajv.addSchema({ ...modern(JSON.parse(readFileSync(path, "utf8"))), $id: "openai" });
const schemas = new Map();
let failed = 0, checked = 0;

function check(name, value, what) {
    if (!schemas.has(name)) schemas.set(name, ajv.compile({ $ref: `openai#/components/schemas/${name}` }));
    const validate = schemas.get(name);
    checked++;
    if (validate(value)) return;
    failed++;
    console.log(`FAILED   ${what} is no ${name}: ${JSON.stringify(value).slice(0, 400)}`);
    for (const e of validate.errors.slice(0, 8)) console.log(`  ${e.instancePath || "/"} ${e.message}`);
}

const start = (model, ...options) => startServer(tern, ["serve", model, "-t", "1", "--port", "0", ...options]);

const stories = "models/stories.gguf", parrot = resolve(folder, "parrot.gguf");
const url = await start(stories), embeds = await start(stories, "--pooling", "mean"), calls = await start(parrot);
const post = async (path, body, at = url) =>
    await (await fetch(at + path, { method: "POST", body: JSON.stringify(body) })).json();
async function events(path, body, at = url) {
    const text = await (await fetch(at + path, { method: "POST", body: JSON.stringify({ ...body, stream: true }) })).text();
    return text.split("\n\n").map((e) => e.split("data: ")[1]).filter((d) => d && d !== "[DONE]").map((d) => JSON.parse(d));
}

const messages = [{ role: "system", content: "Be brief." }, { role: "user", content: "Write a story about a fox." }];
const some = { model: "stories", max_tokens: 6, seed: 3 };
for (const more of [{}, { n: 2 }, { logprobs: true, top_logprobs: 2 }, { stop: ["a"], stream_options: { include_usage: true } }]) {
    const ask = { ...some, messages, ...more };
    check("CreateChatCompletionResponse", await post("/v1/chat/completions", ask), "a chat's answer");
    for (const e of await events("/v1/chat/completions", ask)) check("CreateChatCompletionStreamResponse", e, "a chat's chunk");
}
for (const more of [{}, { n: 2, prompt: ["a", "b"] }, { logprobs: 2 }]) {
    const ask = { ...some, prompt: "Once upon", ...more };
    check("CreateCompletionResponse", await post("/v1/completions", ask), `a completion with ${JSON.stringify(more)}`);
    if (!more.best_of)
        for (const e of await events("/v1/completions", ask)) check("CreateCompletionResponse", { ...e, choices: [] }, "a chunk of text");
}
for (const more of [{}, { top_logprobs: 2 }, { instructions: "Be brief.", metadata: { a: "b" }, temperature: 0.5, top_p: 0.9 }]) {
    const ask = { model: "stories", input: "Write a story.", max_output_tokens: 16, ...more };
    check("Response", await post("/v1/responses", ask), "a response");
    for (const e of await events("/v1/responses", ask)) check("ResponseStreamEvent", e, `an event ${e.type}`);
}
// The parrot thinks, says something and calls two tools; of the results it says something more.
const town = { type: "object", properties: { town: { type: "string" } }, required: ["town"] };
const functions = [{ name: "weather", description: "Looks outside", parameters: town }, { name: "clock", parameters: { type: "object", properties: {} } }];
const question = [{ role: "user", content: "Rain in Ghent?" }];
{
    const ask = { model: "parrot", messages: question, tools: functions.map((f) => ({ type: "function", function: f })) };
    const said = await post("/v1/chat/completions", ask, calls), { message } = said.choices[0];
    check("CreateChatCompletionResponse", said, "a chat's calls");
    const chunks = await events("/v1/chat/completions", ask, calls);
    for (const e of chunks) check("CreateChatCompletionStreamResponse", e, "a chunk of calls");
    const results = message.tool_calls.map((c) => ({ role: "tool", tool_call_id: c.id, content: "dry" }));
    check("CreateChatCompletionRequest", { ...ask, messages: [...question, message, ...results] }, "what comes back with a chat's calls");
    check("CreateChatCompletionResponse", await post("/v1/chat/completions", { ...ask, messages: [...question, message, ...results] }, calls), "a chat after calls");
    check("ChatCompletionMessageToolCalls", message.tool_calls, "the calls");
    if (message.tool_calls.length !== 2 || !chunks.some((e) => e.choices[0]?.delta.tool_calls)) failed++, console.log("FAILED   the parrot calls nothing");
}
{
    const ask = { model: "parrot", input: question, tools: functions.map((f) => ({ type: "function", strict: false, ...f })) };
    const said = await post("/v1/responses", ask, calls);
    check("Response", said, "a response with calls");
    for (const e of await events("/v1/responses", ask, calls)) check("ResponseStreamEvent", e, `an event ${e.type} of calls`);
    for (const item of said.output) check("OutputItem", item, `an item ${item.type}`);
    const results = said.output.filter((i) => i.type === "function_call").map((i) => ({ type: "function_call_output", call_id: i.call_id, output: "dry" }));
    check("Response", await post("/v1/responses", { ...ask, input: [...question, ...said.output, ...results] }, calls), "a response after calls");
    const kinds = said.output.map((i) => i.type).join();
    if (kinds !== "reasoning,message,function_call,function_call") failed++, console.log("FAILED   the parrot's items are", kinds);
}
check("TokenCountsResource", await post("/v1/responses/input_tokens", { input: "a fox" }), "a count");
check("CreateEmbeddingResponse", await post("/v1/embeddings", { model: "stories", input: ["a", "b"], dimensions: 4 }, embeds), "vectors");
check("ListModelsResponse", await (await fetch(url + "/v1/models")).json(), "the list of models");
check("Model", await (await fetch(url + "/v1/models/stories")).json(), "a model");
for (const [path, body] of [["/v1/chat/completions", {}], ["/v1/completions", { prompt: 5 }], ["/v1/responses", { input: "a", tools: [{}] }],
                            ["/v1/embeddings", { input: "a" }], ["/v1/chat/completions", { messages, model: "other" }], ["/v1/nothing", {}]])
    check("ErrorResponse", await post(path, body), `an error of ${path}`);
console.log(`OpenAPI: ${checked} answers, ${failed} are not as described`);
process.exit(failed ? 1 : 0);

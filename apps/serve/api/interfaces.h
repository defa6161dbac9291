// The handlers of the routes. A handler reads the request and answers it, or begins to generate and
// answers as text comes; it never waits.
#ifndef TERN_SERVE_INTERFACES_H
#define TERN_SERVE_INTERFACES_H

#include "apps/serve/request/generation_request.h"

// OpenAI
void openai_chat(request *req);
void openai_completions(request *req);
void mistral_fim(request *req); // openai_chat.c
void openai_responses(request *req);
void openai_count_tokens(request *req); // of a request to /v1/responses
void openai_models(request *req);
void openai_model(request *req); // /v1/models/NAME
void openai_embeddings(request *req);
void openai_transcriptions(request *req);
void openai_translations(request *req);
void openai_speech(request *req);
// Reads "messages" as OpenAI has them; *prefill: the last one is the assistant's.
void openai_read_messages(const fields *f, messages *m, bool *prefill);
// "continue_final_message", "add_generation_prompt".
void openai_read_ending(request *req, const fields *f, bool *prefill);
// Appends a message; a second system message at the beginning is joined to the first.
bool openai_add_message(messages *m, tern_str role, message_content *c, const char *param,
                        api_error *e);
// Refuses unsupported fields that would change the answer: sounds.
void openai_refuse_unsupported(const fields *f);
// Reads "tool_choice" from its type and the name of a function; the tools must have been read.
void read_tool_choice(generation *a, const fields *f, tern_str how, tern_str name);
// "tools", "tool_choice", "parallel_tool_calls", into the generation; functions wrapped or not.
void openai_read_tools(request *req, const fields *f);
void openai_read_tool_choice(generation *a, const fields *f);
// "tool_choice" of type "allowed_tools". False: it is another.
bool read_allowed_tools(generation *a, const fields *f);
// "reasoning_effort", "reasoning.effort", "chat_template_kwargs": the template's switches.
void openai_read_thinking(request *req, const fields *f);
// The next token whose likelihood should be sent, number c->sent.n - 1, and its bytes; false: none
// yet. Skips tokens of reasoning, and those that have no part in the text, such as a stop string's.
bool next_to_send(const request *req, choice *c, tern_strbuf *piece);
bool has_to_send(const request *req, const choice *c); // whether there is one
// The likelihoods of all tokens that may be sent, as in chat completions: objects of an array.
void put_token_logprobs(tern_json_writer *w, const request *req, choice *c);
const char *openai_finish_reason(const choice *c); // "stop", "length", "tool_calls"
void openai_put_stream_error(request *req, const api_error *e, tern_strbuf *out);
bool openai_was_cut(const choice *c); // "length"

// The conversation of a request to /v1/responses, its tools and its settings. False: it is refused.
bool openai_read_response(request *req, const fields *f);
// Its tools, offered as functions (openai_responses_tools.c).
void responses_read_tools(request *req, const fields *f);
// How a model calls a namespace's tool.
void put_tool_name(tern_str space, tern_str name, tern_strbuf *out);
// The members of a custom tool that it has as a function: description, parameters. A grammar is in
// the description for the model, which reads it as it is; in the schema for what constrains calls.
void put_custom_tool(tern_json_writer *w, const fields *f, bool for_model);
// Whether tools for the model (a->tools) differ from those that constrain calls (a->allowed).
bool custom_has_grammar(const fields *f);
const called_tool *responses_called_tool(const request *req, answer_block *b);
void responses_put_input(const answer_block *b, tern_strbuf *out); // of a custom tool's call

// Anthropic
bool anthropic_read(request *req, const fields *f); // the same for /v1/messages
void anthropic_messages(request *req);
void anthropic_count_tokens(request *req);

// Ollama
void ollama_generate(request *req);
void ollama_chat(request *req);
void ollama_embed(request *req);
void ollama_embeddings(request *req); // the older route
void ollama_tags(request *req);
void ollama_ps(request *req);
void ollama_show(request *req);
void ollama_version(request *req);
void ollama_pull(request *req); // ollama_manage.c
void ollama_create(request *req);
void ollama_copy(request *req);
void ollama_delete(request *req);
void ollama_push(request *req);
void ollama_look_at_blob(request *req);
void ollama_begin_blob(request *req, api_error *e); // once its head is there
void ollama_take_blob(request *req);

// llama-server
void llama_completion(request *req);
void llama_infill(request *req);
void llama_embedding(request *req);
void llama_rerank(request *req);
void score_pairs(request *req); // vLLM's
void llama_health(request *req);
void server_version(request *req); // vLLM's
void llama_props(request *req);
void llama_slots(request *req);
void llama_load(request *req);
void llama_unload(request *req);
void llama_slot_action(request *req); // slot_files.c
void llama_adapters(request *req);    // lora_adapters.c
void llama_set_adapters(request *req);
void llama_tokenize(request *req);
void llama_detokenize(request *req);
void llama_apply_template(request *req);
void llama_metrics(request *req);

#endif

// The generation of a request, in any interface: prompts, sampling, limits, number of choices; and
// the answer as it is generated. An interface's file reads its fields into the generation and has a
// writer that formats the answer.
#ifndef TERN_SERVE_GENERATION_H
#define TERN_SERVE_GENERATION_H

#include "apps/serve/engine/blocks.h"
#include "apps/serve/request/request.h"
#include "apps/serve/request/fields.h"
#include "apps/serve/request/request_images.h"
#include "apps/serve/engine/shared_grammar.h"

// How many of the answer's tokens have been sent, in order: openai.c.
typedef struct sent_tokens {
    size_t n, n_bytes;      // tokens, and bytes of their pieces
    size_t n_chars, offset; // characters that began in these; the last token's place among them
    bool has_prompt;        // the prompt's have been, too
} sent_tokens;

typedef struct choice { // one answer
    request *request;
    int index;
    double mean; // logprob of its tokens; this and its rank among the answers to its prompt are
    int rank;    // for "best_of"
    job *job;    // NULL: it is over
    blocks blocks;
    tern_strbuf text; // of its text blocks
    int32_t *ids;     // [n_ids] its tokens
    size_t n_ids, ids_capacity;
    tern_token_logprob *logprobs; // [n_ids, n_each], or NULL
    size_t logprobs_capacity, n_each;
    size_t n_reasoning;        // tokens of it
    size_t n_raw;              // bytes of the raw answer, before it was split into blocks
    size_t line;               // where its last whole line ends in `text`
    double first;              // seconds: when its first piece came
    bool is_begun;             // of its last line more than the indentation is there
    bool is_cut;               // it has ended early: what is generated beyond is dropped
    size_t n_aside;            // tokens before its text: reasoning with its marks
    sent_tokens sent;          // a writer's
    tern_generate_stats stats; // when it is over
} choice;

// What was generated since the last call of the writer's `text`.
typedef struct text_delta {
    const char *text; // of text blocks; choice->blocks.parts has all
    size_t n_text;
    size_t first, n_tokens; // of choice->ids and logprobs
} text_delta;

typedef struct generation_writer {
    const char *type; // of a stream
    // A whole answer: all choices are over.
    void (*whole)(request *req, tern_strbuf *out);
    // A stream: begin; for each choice its deltas (also with n_text 0, if the tokens have no text
    // yet) and `over`; end. `begin` and `end` may be NULL.
    void (*begin)(request *req, tern_strbuf *out);
    void (*text)(request *req, choice *c, const text_delta *d, tern_strbuf *out);
    void (*over)(request *req, choice *c, tern_strbuf *out);
    void (*end)(request *req, tern_strbuf *out);
    void (*error)(request *req, const api_error *e, tern_strbuf *out);
} generation_writer;

typedef struct generation_prompt {
    int32_t *ids;
    size_t n_ids;
    tern_token_logprob *scores; // [n_ids, 1 + params.n_top_logprobs], or NULL (prompt_scores.h)
} generation_prompt;

struct generation {
    const generation_writer *writer;
    // As read.
    tern_sampling sampling;
    tern_generate_params params;
    float lora_scales[TERN_LORAS_MAX]; // [n_loras] of the model's adapters
    size_t n_loras;
    char **stops;                 // [params.n_stops]
    char **bad_words, **breakers; // [params.n_bad_words], [params.n_dry_sequence_breakers]
    int32_t *stop_ids, *allowed_ids;
    bool is_bare;  // no BOS token or the like in front of texts
    size_t n_last; // only the last n_last tokens of a prompt are read; 0: all
    tern_logit_bias *biases;
    generation_prompt before; // tokens that prompts continue
    generation_prompt *prompts;
    size_t n_prompts;
    int n;             // choices for each prompt
    int n_best;        // how many of these are sent, the most likely ones; 0: all
    bool hides_scores; // the likelihoods are for that choice alone
    bool only_reads;   // computes the prompt, and generates nothing
    // Once the answer has more than one line: a line that is indented less ends it and is left out,
    // as does the end of a line after this long. 0: no limit.
    int32_t n_indent;
    double seconds;
    tern_strbuf response_fields; // the names of those of the answer that are sent, each terminated
    bool stream;
    char *model;                              // as the client named it
    bool with_usage, is_chat, with_ids, echo; // each of one interface
    size_t n_events;                          // of a stream whose events are numbered
    tern_strbuf echoed;                       // the prompts' texts, each terminated
    // For conversations.
    tern_strbuf tools;    // a JSON list of functions; "": none
    tern_strbuf allowed;  // the same of those that may be called; "": all
    char left_out[40];    // the type of the first tool that is not offered
    size_t n_left_out;    // how many are not
    tern_strbuf switches; // for the template: members of an object, a comma before each
    tern_strbuf rendered; // the end of the rendered prompt
    bool is_closed;       // the prompt does not end with the words that make the model answer
    bool takes_apart;     // the answer is split into text, reasoning and calls
    bool one_call;        // at most one call
    bool must_call;       // "tool_choice": at least one call
    bool sees;            // there are images
    bool is_strict;       // a tool demands it: calls follow their schema or are refused
    tern_strbuf tool;     // the tool that must be called; "": any
    format_wanted format; // what the answer may be (answer_forms.h)
    struct shared_grammar *grammar; // the same, held; NULL: anything
    // The answer.
    choice *choices; // [n_choices], prompt by prompt
    job **jobs;      // [n_choices] until they are submitted; else NULL
    size_t n_choices, n_over;
    double began;
    int64_t created; // seconds since 1970
    bool has_failed;
};

// ---- Reading -----------------------------------------------------------------------------------

// A generation with the defaults, owned by the request. NULL: no memory, and e says so.
generation *generation_new(request *req, const generation_writer *writer, api_error *e);
// The same, with the body read into it. NULL: refused, and answered.
generation *generation_start(request *req, const generation_writer *writer, fields *f,
                             api_error *e);
// Answers with a prompt's number of tokens, written after `before` in an object. read fills in the
// prompt; false: it is refused.
void generation_count(request *req, const generation_writer *writer,
                      bool (*read)(request *req, const fields *f), const char *before);
void generation_free(generation *a);
// Counts a tool of this type as not offered; the log says so.
void generation_leave_out(generation *a, tern_str type);
// "model", as the client calls it; if absent, the model's own name. (routes.c has found the model.)
void generation_read_model(request *req, const fields *f);
// Temperature, top_p, penalties, seed, and so on, by OpenAI's, llama.cpp's and vLLM's names; calls
// generation_refuse.
void generation_read_sampling(request *req, const fields *f, double temperature_max);
// The scales of the model's adapters where the request has no list of them: those of the name that
// it gives, or the server's. Returns how many there are, at most TERN_LORAS_MAX.
size_t generation_adapters(const request *req, float *scales);
// llama-server's list of adapters and their scales; those that it does not name get 0.
void generation_read_adapters(const request *req, const fields *f, const tern_json *list,
                              float *scales);
// Refuses unsupported fields that would change the answer.
void generation_refuse(const request *req, const fields *f);
// Checks the limits against each other, once all are read.
void generation_check_limits(request *req, api_error *e);
void generation_read_seed(request *req, const fields *f, const char *name);
void generation_read_stops(request *req, const fields *f, const char *name, size_t n_max);
void generation_read_biases(request *req, const fields *f, const char *name);
void generation_read_max_tokens(request *req, const fields *f, const char *name);

// Prompts: text, which is tokenized as in `tern run`; ids; a conversation, rendered by the model's
// template. param: the field that they come from. Takes ownership of the ids, also if they are
// refused.
void generation_add_prompt(request *req, int32_t *ids, size_t n, const char *param, api_error *e);
// Reads what the prompts that are added afterwards continue: tokens of an earlier answer.
void generation_read_before(request *req, const fields *f, const char *name);
// The same for ids that a client sends: only tokens of the vocabulary, so that it cannot name
// images of others.
void generation_add_given(request *req, int32_t *ids, size_t n, const char *param, api_error *e);
void generation_add_text(request *req, tern_str text, const char *param, api_error *e);
// Whether a text of n_bytes may have fewer tokens than the context.
bool generation_may_fit(const served *s, size_t n_bytes, const char *param, api_error *e);
void generation_add_ids(request *req, const fields *f, const tern_json *array, const char *param);

typedef struct chat_message {
    char *role, *content; // terminated copies
    tern_strbuf parts;    // of a message with images: items of a list as templates take it
    tern_strbuf more;     // further members, as templates take them, a comma before each
    size_t n_images;      // of `images` of all messages
} chat_message;
typedef struct messages {
    chat_message *list;
    size_t n, capacity;
    images images;         // of all messages, in their order
    size_t n_images;       // that messages have
    tern_strbuf reasoning; // before the assistant's next message
    size_t n_referred;     // bytes of items that were not sent, but referred to
} messages;
// Appends a message. False: no memory, a zero byte in it, or too many, and e says so.
bool messages_add(messages *m, tern_str role, tern_str content, const char *param, api_error *e);
// Further members of the last message: "tool_calls" as OpenAI has them, "reasoning_content" ...
tern_json_writer messages_more(messages *m);
// The value of "content": texts, and the places of images among them.
typedef struct message_content {
    tern_strbuf text;  // all of it
    tern_strbuf parts; // "": no images
    size_t n_placed;   // bytes of the text that are in parts
    bool after_sound;  // what was said ends with its line
} message_content;
// Appends a string, or an array of parts, each in any interface's format. p gets the images; NULL:
// images are refused.
bool content_read(message_content *c, images *p, const fields *f, const tern_json *value,
                  const char *param);
bool content_add_part(message_content *c, images *p, const fields *f, const tern_json *part,
                      const char *param);
void content_place_image(message_content *c); // puts one at the end
// Ollama's "images": files in base64, each placed before the message's text.
void content_read_images(const fields *f, messages *m, message_content *c, const char *param);
void content_free(message_content *c);
// messages_add for content that may have images.
bool messages_add_content(messages *m, tern_str role, message_content *c, const char *param,
                          api_error *e);
void messages_free(messages *m);
void messages_drop(messages *m, size_t first, size_t n); // with their images
// The first n messages, rendered by the template with the generation's tools and switches.
void chat_text(const request *req, const messages *m, size_t n, bool generate, tern_strbuf *out,
               api_error *e);
// prefill: the last message is the assistant's, and the answer continues it.
void generation_add_chat(request *req, messages *m, bool prefill, api_error *e);
// The same; if they do not fit into the context, with room for an answer, the oldest are dropped,
// but for the system message and the last turn. Not with images.
void generation_add_chat_cut(request *req, messages *m, bool prefill, api_error *e);

// Hashes the prefix of the first prompt; the answer sends it as x-tern-prefix (prefix_hash.c).
void prefix_hash_take_chat(request *req, const messages *m);
void prefix_hash_take_text(request *req, tern_str text);

// ---- Answering ---------------------------------------------------------------------------------

// Submits the jobs and begins the answer; or answers with the error, if there is one.
void generation_begin(request *req, api_error *e);
// Turns the events of an open model's scheduler into pieces of answers.
void generation_take_events(server *s, served *m);
// Sums over all choices.
typedef struct generation_usage {
    size_t n_prompt, n_cached, n_generated;
    double prompt_seconds, generate_seconds;
} generation_usage;
generation_usage generation_usage_of(const generation *a);
// Appends a token's bytes, which may be a part of a character.
void put_piece(const served *s, int32_t id, tern_strbuf *out);
bool is_text(const tern_strbuf *piece); // whether it is complete UTF-8 characters

#endif

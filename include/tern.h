// tern: small language models on the device they run on. This page is all that a program needs that
// runs a model: open it, generate text, hold conversations. tern_train.h is for training,
// tern_tools.h for what is done to models and found out about them; both include this one.
//
// Two objects. A *model* is an opened file: mapped weights, tokenizer, chat template, graph; it
// never changes after opening and may be shared by any number of threads. A *session* is one
// timeline over a model: its keys and values, its position, its sampler; one thread at a time.
//
//     tern_error err = {0};
//     tern_model *model;
//     tern_session *session;
//     if (tern_model_open(&model, "model.gguf", NULL, &err) == TERN_OK &&
//         tern_session_open(&session, model, NULL, &err) == TERN_OK)
//         tern_generate(session, "Once upon a time", NULL, on_text, user, NULL, &err);
//     if (err.status != TERN_OK) puts(err.message);
//
// Rules that hold for every function:
// - In a desc or params struct, zero means "the default"; pass NULL for all defaults. (Sampling is
//   the exception: there 0 is a value.) Every struct can be begun with = {0}, in C and in C++.
// - What must be given and is NULL is refused with TERN_ERR_ARGUMENT; functions without a status
//   then do nothing, or return 0 or NULL.
// - What can fail returns tern_status and fills *err (which may be NULL) with one line of text.
// - The library never prints, never exits and keeps no global state but memory counters.
// - Text is UTF-8. Token ids are int32. Sizes are bytes and times are seconds unless named
// otherwise.
// - A function is thread-safe for different objects; for the same session it is not.
#ifndef TERN_H
#define TERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define TERN_API
#else
#define TERN_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define TERN_VERSION_MAJOR 0
#define TERN_VERSION_MINOR 1
#define TERN_VERSION_PATCH 0
TERN_API const char *tern_version(void); // "0.1.0"

// ---- Errors ------------------------------------------------------------------------------------

#define TERN_STATUS_MAP(ROW)                                                                       \
    ROW(TERN_OK, "ok")                                                                             \
    ROW(TERN_ERR_MEMORY, "out of memory")                                                          \
    ROW(TERN_ERR_IO, "input or output failed")                                                     \
    ROW(TERN_ERR_FORMAT, "a file is not what it claims to be")                                     \
    ROW(TERN_ERR_UNSUPPORTED, "not supported")                                                     \
    ROW(TERN_ERR_ARGUMENT, "wrong argument")                                                       \
    ROW(TERN_ERR_CONTEXT_FULL, "the context is full")                                              \
    ROW(TERN_ERR_CANCELLED, "cancelled by the caller")                                             \
    ROW(TERN_ERR_DEVICE, "the device failed")

typedef enum tern_status {
#define ROW(name, text) name,
    TERN_STATUS_MAP(ROW)
#undef ROW
} tern_status;

typedef struct tern_error {
    char message[512]; // one printable line, no newline
    tern_status status;
} tern_error;

TERN_API const char *tern_status_name(tern_status status);

// Called during long operations. fraction is 0..1, phase a short word such as "load".
// Return false to stop: the call then fails with TERN_ERR_CANCELLED.
typedef bool (*tern_progress_fn)(void *user, const char *phase, double fraction);

// Receives a piece of a report or of generated text (not terminated). Return false to stop.
typedef bool (*tern_text_fn)(void *user, const char *text, size_t n_bytes);

// How a report is written; only graphs can be DOT.
typedef enum tern_format { TERN_FORMAT_TEXT = 0, TERN_FORMAT_JSON, TERN_FORMAT_DOT } tern_format;

// ---- Writing files -----------------------------------------------------------------------------

// Every file that the library writes goes into a private folder next to its destination, is synced,
// and is renamed when complete. Until then the old file stays unchanged, whatever fails. The target
// of a symbolic link is replaced, not the link; a device, a pipe or /dev/stdout is written to
// directly.
TERN_API tern_status tern_file_write(const char *path, const void *bytes, size_t n,
                                     tern_error *err);

// The same in pieces.
typedef struct tern_output tern_output;
TERN_API tern_status tern_output_open(tern_output **out, const char *path, tern_error *err);
TERN_API tern_status tern_output_write(tern_output *output, const void *bytes, size_t n,
                                       tern_error *err);
TERN_API tern_status tern_output_finish(tern_output *output, tern_error *err);
// NULL is allowed. Unless finish succeeded, nothing has changed.
TERN_API void tern_output_close(tern_output *output);

// ---- Models ------------------------------------------------------------------------------------

typedef struct tern_model tern_model;

typedef enum tern_ternary_layout {
    TERN_TERNARY_AUTO = 0, // measured at load, the faster of the two
    TERN_TERNARY_2BIT,     // four weights a byte; I2_S files are used as mapped
    TERN_TERNARY_1_6BIT,   // five weights a byte; 20% fewer bytes per token
} tern_ternary_layout;

typedef enum tern_head_mode {
    TERN_HEAD_AUTO = 0, // exact when it saves bytes
    TERN_HEAD_FILE,     // as the file has it
    TERN_HEAD_EXACT,    // low-bit screening with a proven bound, then full-precision rows:
                        // the same argmax and top-k, to the bit, at a fraction of the bytes
    TERN_HEAD_Q8_0,     // converted at load; changes the logits
    TERN_HEAD_Q6_K,
    TERN_HEAD_Q4_0,
} tern_head_mode;

// A LoRA adapter: low-rank matrices B A that are added to some of a model's: a GGUF file as written
// by llama.cpp's convert_lora_to_gguf, or a folder with adapter_config.json and
// adapter_model.safetensors (PEFT).
typedef struct tern_lora {
    const char *path;
    float scale; // 0: 1; multiplied with the adapter's own
    bool off;    // checked but not applied, whatever the scale: a strength of 0
} tern_lora;

// How a GPU is found and used, through WebGPU. The library reads no environment variables, and no
// files that it was not told about: a program decides, as `tern` does from its user's environment
// (docs/webgpu.md). Strings that are needed after the call are copied.
typedef struct tern_webgpu_desc {
    const char *library; // the WebGPU library (Dawn); NULL: next to the program, else the system's
    // For a program that has Dawn linked in, or wraps it: the function of that name
    // ("wgpuCreateInstance"), NULL: none. Must outlive everything opened with it.
    void *(*symbol)(void *user, const char *name);
    void *symbol_user;
    // A folder, created if need be, for a small file by adapter and library: how many dispatches a
    // submission may have there. The first start finds that out by trying; if the driver kills the
    // process in a start, the next one goes on with less. NULL: each start tries anew.
    const char *state_folder;
    int32_t group;  // this many dispatches, without trying; negative: any number; 0: see above
    bool checks;    // keep WebGPU's own checks of every call and every index
    bool no_matrix; // leave the matrix units alone
} tern_webgpu_desc;

// For chat templates with a switch, whose variable is enable_thinking: Qwen3's and others'.
typedef enum tern_thinking {
    TERN_THINKING_AUTO = 0, // as the template has it
    TERN_THINKING_ON,
    TERN_THINKING_OFF,
} tern_thinking;

// How one vector is made of a text's rows.
typedef enum tern_pooling {
    TERN_POOLING_NONE = 0, // a language model; to tern_model_open: as the model's files say
    TERN_POOLING_MEAN,
    TERN_POOLING_LAST,
    TERN_POOLING_FIRST, // of the token "[CLS]", which begins a text
} tern_pooling;

typedef struct tern_model_desc {
    const char *device; // "cpu" (default), "webgpu", "auto"
    const tern_webgpu_desc *webgpu; // NULL: the defaults
    int n_threads;      // 0: one for each core
    int n_batch;        // prompt tokens computed at once, 0: 512; of a model that reads a text as a
                        // whole (an encoder) its context, at most 8192
    tern_ternary_layout ternary;
    // Activations stay float where weights are codes with a scale for each group (Q4_K, Q2_0 ...);
    // else they are rounded to int8 with a scale for each 64. Slower. BitNet's own rounding stays.
    bool precise;
    tern_head_mode head;
    const char *chat_template; // Jinja text that replaces the file's
    tern_thinking thinking;    // whether models that can think before they answer do so
    tern_pooling pooling;      // makes an embedding model of a decoder whose files do not say so
    bool vocab_only; // only tokenizer and template: no weights needed, no sessions possible
    const char *cpu_features; // "scalar", "avx2", "avx512", "neon"...: at most these; NULL: all
    // Adapters applied at run time, in float even if the weights are ternary.
    const tern_lora *loras;
    size_t n_loras;
    tern_progress_fn on_progress;
    void *user;
    // A GGUF's part that sees (llama.cpp's mmproj). NULL: beside the model, mmproj-NAME.gguf for
    // NAME.gguf or the only mmproj*.gguf, if it fits the model; "": none.
    const char *mmproj;
} tern_model_desc;

// path: a .gguf file (the first of a split set too), or a Hugging Face folder; with vocab_only also
// a tokenizer.json.
TERN_API tern_status tern_model_open(tern_model **out, const char *path,
                                     const tern_model_desc *desc, tern_error *err);
TERN_API void tern_model_close(tern_model *model); // NULL is allowed; close its sessions first

// The same for event loops, without waiting for the device: begin, then poll until *done, when
// *model is open, or a failure; either way the opening is then to be closed. Begin reads the front
// of the file, the tokenizer and the template, and copies what is needed later of desc. A poll
// handles some 16 MB of weights, or one larger unit of work that cannot be cut (on the CPU a
// weight); on_progress is called from begin and from polls. One thread at a time.
typedef struct tern_opening tern_opening;
TERN_API tern_status tern_model_open_begin(tern_opening **out, const char *path,
                                           const tern_model_desc *desc, tern_error *err);
TERN_API tern_status tern_model_open_poll(tern_opening *opening, bool *done, tern_model **model,
                                          tern_error *err);
// NULL is allowed. Cancels what is not done; a model that is open stays.
TERN_API void tern_opening_close(tern_opening *opening);

// Bytes of a GPU's memory that a model and its sessions take; zeros on the CPU. Excludes programs,
// and what the library has in flight while weights are sent (at most 64 MB).
typedef struct tern_device_memory {
    uint64_t weights, cache;
    uint64_t work;      // activations, logits, angles
    uint64_t results;   // copies of results for the host to read
    uint64_t now, most; // the total; its peak since the model was opened
} tern_device_memory;

typedef struct tern_model_info {
    const char *path, *architecture, *name; // live as long as the model
    const char *device;                     // where it runs, e.g. "cpu avx512vnni, 2 threads"
    const char *ternary_layout;             // "2-bit", "1.6-bit", "4-bit groups",
                                            // "mixed groups" ... or "none"
    const char *head;                       // e.g. "exact f16"; "none": an encoder's
    int32_t n_vocab, n_layers, n_embd, n_context_train;
    int32_t n_threads, n_batch;
    uint64_t n_params;               // weights, counted once if tied
    uint64_t file_bytes;             // bytes of tensor data in the file
    uint64_t bytes_per_token;        // weights that one greedy decode step reads
    uint64_t bytes_per_token_logits; // the same when all logits are wanted
    uint64_t kv_bytes_per_token;     // for each position of a sequence, in an F16 cache
    // Besides that, at most, for each sequence: keys and values of layers that see a window only,
    // and states that do not grow with the text.
    uint64_t sequence_bytes;
    // What all sessions together hold of these now, shared ones counted once: on the device, and
    // moved to the host's memory.
    uint64_t held_bytes, swapped_bytes;
    tern_device_memory device_memory;
    double load_seconds;
    int32_t bos_id, eos_id; // -1: none
    bool adds_bos;
    const char *template_guess; // a sentence if the file has no chat template; else NULL
    // Sampling defaults of the file; a negative value means that the file has none.
    float temperature, top_p, min_p, repeat_penalty;
    int32_t top_k;
} tern_model_info;
TERN_API void tern_model_get_info(const tern_model *model, tern_model_info *info);

// ---- Text and tokens ---------------------------------------------------------------------------

typedef enum tern_tokenize_flags {
    TERN_TOKENIZE_PLAIN = 0,   // the text is only text
    TERN_TOKENIZE_SPECIAL = 1, // names of special tokens in the text become those tokens
    TERN_TOKENIZE_BOS = 2,     // begin as the model's tokenizer does (BOS, if it adds one)
} tern_tokenize_flags;

// Writes up to capacity ids and sets *n_ids to the number in the whole text; call again with more
// room if *n_ids > capacity. Thread-safe.
TERN_API tern_status tern_tokenize(const tern_model *model, const char *text, size_t n_bytes,
                                   unsigned flags, int32_t *ids, size_t capacity, size_t *n_ids,
                                   tern_error *err);
// The text of ids, passed to `on_text` in one or more pieces. with_special: also the names of
// control tokens. Thread-safe.
TERN_API tern_status tern_detokenize(const tern_model *model, const int32_t *ids, size_t n_ids,
                                     bool with_special, tern_text_fn on_text, void *user,
                                     tern_error *err);
// What a token adds to a text that goes on, passed to on_text: a space in front of a word stays, a
// control token has its name, and of a character that is cut there are only the bytes that begin
// it. Thread-safe.
TERN_API tern_status tern_token_piece(const tern_model *model, int32_t id, tern_text_fn on_text,
                                      void *user, tern_error *err);
// The vocabulary entry itself, as stored; lives as long as the model. NULL: no such id.
TERN_API const char *tern_token_text(const tern_model *model, int32_t id, size_t *n_bytes);
TERN_API bool tern_token_is_end(const tern_model *model, int32_t id); // ends a turn or a text

typedef struct tern_message {
    const char *role, *content; // "system", "user", "assistant", "tool"
} tern_message;

// Renders messages with the model's chat template; the text is passed to on_text.
// add_generation_prompt: end with the words that make the model answer.
TERN_API tern_status tern_chat_format(const tern_model *model, const tern_message *messages,
                                      size_t n_messages, bool add_generation_prompt,
                                      tern_text_fn on_text, void *user, tern_error *err);

// The same for a request in JSON, as it comes with tools: an object with "messages" (of "role",
// "content", and what the template knows of besides: "tool_calls" in OpenAI's shape,
// "reasoning_content", "tool_call_id" ...), and where wanted "tools" (OpenAI's list of functions),
// "add_generation_prompt" (true if it is not there) and the template's own switches. Arguments of
// calls may be objects or, as OpenAI has them, texts of objects. Fails if there are tools and the
// template takes none. Where it takes no calls they are written into the message's text as the
// model would.
TERN_API tern_status tern_chat_format_json(const tern_model *model, const char *request,
                                           size_t n_bytes, tern_text_fn on_text, void *user,
                                           tern_error *err);

// ---- Answers, taken apart -----------------------------------------------------------------------

// What an answer consists of: text for people, reasoning (<think> and its like), calls of tools.
// Models write them by the ways of their families, between marks; a tern_answer reads them while
// they come. A call is passed on in parts: TERN_PART_CALL with the function's name, any number of
// TERN_PART_ARGUMENTS that together are one JSON object, TERN_PART_CALL_END. A call that was cut
// (by max_tokens) has no end. What is not written as the family writes calls is text.
typedef enum tern_part_kind {
    TERN_PART_TEXT,
    TERN_PART_REASONING,
    TERN_PART_CALL,
    TERN_PART_ARGUMENTS,
    TERN_PART_CALL_END,
} tern_part_kind;

typedef struct tern_part {
    const char *text;
    size_t n_bytes;
    tern_part_kind kind;
    uint32_t call; // of calls: which one, from 0
} tern_part;
typedef void (*tern_part_fn)(void *user, const tern_part *part);

typedef struct tern_answer tern_answer;
// prompt: the rendered text that the answer follows (it may have begun the reasoning), or NULL.
// tools: JSON, the same as in the request; NULL: calls are not looked for. The model must outlive
// it. One thread at a time.
TERN_API tern_status tern_answer_open(tern_answer **out, const tern_model *model,
                                      const char *prompt, const char *tools, tern_error *err);
TERN_API void tern_answer_close(tern_answer *answer); // NULL is allowed
// Whether the family's marks are control tokens, so that the answer must be generated with
// tern_generate_params.with_special.
TERN_API bool tern_answer_with_special(const tern_answer *answer);
// The next piece of the answer, cut anywhere. on_part is called during the call.
TERN_API tern_status tern_answer_put(tern_answer *answer, const char *text, size_t n_bytes,
                                     tern_part_fn on_part, void *user, tern_error *err);
// The answer has ended: what was held back is passed on.
TERN_API tern_status tern_answer_end(tern_answer *answer, tern_part_fn on_part, void *user,
                                     tern_error *err);

// ---- Grammars ----------------------------------------------------------------------------------

// What an answer may be. A grammar is compiled for a model's vocabulary; an answer that it
// binds can only be, or begin, a text that the grammar accepts: no other tokens are chosen.
// docs/grammar.md says what schemas and notations are known. What is not known is refused when the
// grammar is opened, by name, with its place (in a schema: a JSON pointer).
//
//     tern_grammar *grammar;
//     tern_model *model = NULL;
//     tern_session *session = NULL;
//     tern_grammar_desc desc = {0};
//     tern_generate_params params = {0};
//     tern_error err = {0};
//     desc.text = "{\"type\": \"array\", \"items\": {\"enum\": [\"yes\", \"no\"]}}";
//     if (tern_grammar_open(&grammar, model, &desc, &err) == TERN_OK) {
//         params.grammar = grammar;
//         tern_generate(session, "Well?", &params, on_text, user, NULL, &err);
//         tern_grammar_close(grammar);
//     }
typedef struct tern_grammar tern_grammar;

typedef enum tern_grammar_kind {
    TERN_GRAMMAR_JSON_SCHEMA = 0, // JSON that satisfies a JSON Schema: drafts 4 to 2020-12
    TERN_GRAMMAR_JSON,            // any JSON
    TERN_GRAMMAR_REGEX,           // a regular expression (ECMA-262's) that matches the whole text
    TERN_GRAMMAR_GBNF,            // rules as llama.cpp has them; the first is `root`
    TERN_GRAMMAR_LARK,            // rules as Lark has them; the first is `start`
    TERN_GRAMMAR_CHOICES,         // one of some texts
    TERN_GRAMMAR_CALLS,           // calls of tools as the model writes them; of a list of tools
} tern_grammar_kind;

typedef struct tern_grammar_desc {
    const char *text; // the schema, the expression, the rules; not of JSON and of choices
    size_t n_bytes;   // 0: text is terminated
    tern_grammar_kind kind;
    const char *const *choices; // [n_choices]
    size_t n_choices;
    bool compact;       // JSON without any blanks between its parts
    // Of calls: of this tool alone, NULL: of any; at most one; and whether there may be text and no
    // call at all, so that only what stands in the marks of a call is bound.
    const char *tool;
    bool one_call, is_optional;
    // Of calls that are not optional: the answer is calls, or what this one says (its kind, text,
    // choices and blanks), and not both. NULL: calls.
    const struct tern_grammar_desc *otherwise;
    const char *prompt; // of conversations: the end of the rendered text that the answer follows.
                        // The model's reasoning may come before, in its family's marks. NULL: it
                        // may not
    size_t n_bytes_max; // of memory that it may take, 0: 256 MiB
} tern_grammar_desc;

// The model must outlive it. Any number of sessions and threads may use it; they take turns.
TERN_API tern_status tern_grammar_open(tern_grammar **out, tern_model *model,
                                       const tern_grammar_desc *desc, tern_error *err);
TERN_API void tern_grammar_close(tern_grammar *grammar); // NULL is allowed
// How much of a text some text that is accepted begins with (of calls that are optional: the text
// after the opening mark; tokens that do not show in texts are a byte of 255 and their names), and
// whether the whole of it is accepted. Either may be NULL.
TERN_API tern_status tern_grammar_check(tern_grammar *grammar, const char *text, size_t n_bytes,
                                        size_t *n_possible, bool *is_accepted, tern_error *err);
// The tokens that may follow a text: bit id % 64 of bits[id / 64], for all n_words * 64 >= the
// model's n_vocab ids; end tokens where the text may end. n_allowed (may be NULL): how many.
TERN_API tern_status tern_grammar_mask(tern_grammar *grammar, const char *text, size_t n_bytes,
                                       uint64_t *bits, size_t n_words, size_t *n_allowed,
                                       tern_error *err);

// ---- Chains ------------------------------------------------------------------------------------

// A table of chains: short runs of tokens that often follow one another, found in a corpus by
// `tern mine` and kept in "chain-buckets.bin" (docs/formats.md). Speculation drafts from it. It
// never changes after opening and may be shared by any number of threads. tern_tools.h mines them.
typedef struct tern_chains tern_chains;

typedef struct tern_chain {
    const int32_t *tokens; // live as long as the table
    int32_t n_tokens;      // 0: an empty bucket
    float confidence;      // mean probability of the tokens after the first, 0..1 as mined
    // [n_tokens] the probability of each token after those before it, in 255ths; the first is 0.
    // NULL: not known.
    const uint8_t *chances;
} tern_chain;

TERN_API tern_status tern_chains_open(tern_chains **out, const char *path, tern_error *err);
// From entries, which are copied: up to 256 of at most 8 tokens make a table of version 1, without
// chances, else one of version 2 (65535 entries, 16 tokens), where the confidence stands in for
// unknown chances.
TERN_API tern_status tern_chains_create(tern_chains **out, const tern_chain *entries,
                                        size_t n_entries, tern_error *err);
TERN_API tern_status tern_chains_save(const tern_chains *chains, const char *path,
                                      tern_error *err);
TERN_API void tern_chains_close(tern_chains *chains); // NULL is allowed
TERN_API int tern_chains_version(const tern_chains *chains);
TERN_API const tern_chain *tern_chains_entries(const tern_chains *chains, size_t *n_entries);

// ---- Sessions ----------------------------------------------------------------------------------

typedef struct tern_session tern_session;

typedef enum tern_kv_type {
    TERN_KV_AUTO = 0, // F32 while the whole cache stays below 64 MiB, else F16
    TERN_KV_F32,
    TERN_KV_F16,
    TERN_KV_Q8_0,
} tern_kv_type;

// Speculation: several tokens from one run of the model. A *drafter* guesses how the text goes on;
// the guess is computed together with the last token, which hardly takes longer than the last token
// alone as long as reading the weights dominates; and the part that agrees with the model is kept.
// The text stays the same to the bit, greedy or sampled, with the same seed or another: guesses
// decide only what is computed in advance. The length of drafts follows the measured gain. A GPU
// drafts and judges by itself, several runs ahead, if the text is greedy and a table of chains is
// the only drafter.
#define TERN_DRAFT_MAX 16 // tokens of a draft at most

// Proposes up to n_max tokens that may follow ids; returns how many it wrote to draft.
typedef int32_t (*tern_draft_fn)(void *user, const int32_t *ids, size_t n_ids, int32_t *draft,
                                 int32_t n_max);

typedef struct tern_speculation { // the drafters; none: no speculation
    const tern_chains *chains;    // a mined table; must outlive the session
    bool lookup;                  // what followed the last tokens where they occurred before
    bool online;             // buckets that are filled while generating and stay with the session
    tern_model *draft_model; // a smaller model with the same vocabulary; must outlive it
    tern_draft_fn draft;     // the caller's own
    void *draft_user;
    int32_t max_length; // tokens of a draft, 0: 8, at most TERN_DRAFT_MAX
    // Greedy: keep a drafted token only if its probability is at least this, too. 0: being the
    // model's choice is enough, and every token of p > 0.5 is that. (Costs a full row of logits for
    // each token, and never changes the text.)
    float threshold;
    // The cost of a further token in a run, as a share of a run of one; 0: measured. With a fixed
    // cost drafts are the same every time and everywhere, and their gain is predictable.
    float token_cost;
    bool always; // draft even if it has not paid so far (for tests and measurements)
} tern_speculation;

typedef struct tern_session_desc {
    int n_context; // 0: what the model was trained for, at most 8192
    tern_kv_type kv_type;
    bool shift_context; // when full, drop the oldest half after the first n_keep instead of failing
    int n_keep;         // tokens at the beginning that a shift keeps, 0: 4
    bool profile;       // time each kernel: see tern_session_profile
    tern_speculation speculation;
} tern_session_desc;

TERN_API tern_status tern_session_open(tern_session **out, tern_model *model,
                                       const tern_session_desc *desc, tern_error *err);
TERN_API void tern_session_close(tern_session *session);
TERN_API void tern_session_reset(tern_session *session);
TERN_API int32_t tern_session_n_context(const tern_session *session);
TERN_API tern_kv_type tern_session_kv_type(const tern_session *session); // what AUTO chose
TERN_API size_t tern_session_n_tokens(const tern_session *session); // tokens in the timeline
// These, until the session is used.
TERN_API const int32_t *tern_session_tokens(const tern_session *session);
// Where the time went since the session was opened with desc.profile, the longest first: by kernel
// on a GPU (timed by its own clock), by op on the CPU. *rows live until the next call. A profiled
// session is slower, since nothing overlaps.
typedef struct tern_profile_row {
    char name[40];
    uint64_t n_calls;
    double seconds;
    uint64_t bytes; // moved at least: weights, activations, keys and values
} tern_profile_row;
TERN_API tern_status tern_session_profile(tern_session *session, const tern_profile_row **rows,
                                          size_t *n_rows, tern_error *err);
// A device can be lost (reset, unplugged, crashed). A session survives it: it goes on with a new
// device of the kind or with the CPU, and this says so in one line. NULL: not since the last call.
TERN_API const char *tern_session_notice(tern_session *session);

// Makes the timeline equal to ids[0..n_ids): keeps the common beginning, drops the rest of the old
// timeline, computes the new tokens in batches. *n_reused (may be NULL) gets the length of the part
// that was not computed again.
TERN_API tern_status tern_session_sync(tern_session *session, const int32_t *ids, size_t n_ids,
                                       size_t *n_reused, tern_error *err);

// Appends ids to the timeline; logits (may be NULL) gets [n_ids, n_vocab] floats, the scores for
// the token after each of them.
TERN_API tern_status tern_session_logits(tern_session *session, const int32_t *ids, size_t n_ids,
                                         float *logits, tern_error *err);

// Appends ids to the timeline and says how likely the model held what follows: logprobs[i] is ln
// p(targets[i] | the timeline up to and including ids[i]), and best[i] (best may be NULL) the
// likeliest token there. If targets[i] < 0 nothing is computed: 0 and -1. Only a few rows of scores
// are in memory at a time.
TERN_API tern_status tern_session_logprobs(tern_session *session, const int32_t *ids, size_t n_ids,
                                           const int32_t *targets, double *logprobs, int32_t *best,
                                           tern_error *err);

typedef struct tern_sampling {
    // For these five a negative value means the file's default or, if it has none, the usual one
    // (0.8, 40, 0.95, 0.05, 1).
    float temperature;    // 0: greedy
    int32_t top_k;        // 0: off
    float top_p;          // 0 or 1: off
    float min_p;          // 0: off
    float repeat_penalty; // 0 or 1: off
    // For these 0 is the default; negative penalties favour earlier tokens.
    float frequency_penalty; // 0: off
    float presence_penalty;  // 0: off
    int32_t penalty_window;  // last tokens that the penalties look at, 0: 64
    uint64_t seed;           // 0: a new one each time
} tern_sampling;
// The first five negative, the rest 0: what NULL in tern_generate_params means. A struct of zeros,
// by contrast, is greedy.
TERN_API tern_sampling tern_sampling_default(void);

typedef enum tern_stop_reason {
    TERN_STOP_END = 0, // the model ended its text
    TERN_STOP_LENGTH,  // max_tokens
    TERN_STOP_STRING,  // one of the stop strings
    TERN_STOP_CONTEXT, // the context is full
    TERN_STOP_CALLER,  // the callback returned false
} tern_stop_reason;

// Added to a token's score before all else: -INFINITY keeps it out.
typedef struct tern_logit_bias {
    int32_t id;
    float bias;
} tern_logit_bias;

typedef struct tern_generate_params {
    const tern_sampling *sampling; // NULL: tern_sampling_default()
    int32_t max_tokens;            // 0: until the model ends or the context is full
    const char *const *stops;      // texts that end the answer and are not part of it
    size_t n_stops;
    bool ignore_end; // go on after end tokens (for measurements)
    bool logprobs;   // keep how likely each token was: see tern_session_token_logprobs
    int32_t n_top_logprobs; // with logprobs: how many of the likeliest to add; 0 to 20
    const tern_logit_bias *biases; // each token at most once
    size_t n_biases;
    bool with_special; // the text has the names of control tokens, too: for tern_answer_put
    // After so many tokens of the prompt the session can be forked without computing them again, as
    // it can at the prompt's end; 0: only there. Where tern_session_cuts_freely says so, it can be
    // anywhere.
    int32_t fork_at;
    // What the answer may be; NULL: anything. It must stay open until the answer is over. Text that
    // the grammar leaves no choice about is appended without asking the model, unless logprobs are
    // kept. The answer ends with TERN_STOP_END where nothing can follow, also with ignore_end.
    tern_grammar *grammar;
} tern_generate_params;
#define TERN_TOP_LOGPROBS_MAX 20

typedef enum tern_drafter {
    TERN_DRAFTER_CHAINS = 0,
    TERN_DRAFTER_LOOKUP,
    TERN_DRAFTER_ONLINE,
    TERN_DRAFTER_MODEL,
    TERN_DRAFTER_CALLER,
    TERN_DRAFTER_COUNT
} tern_drafter;

typedef struct tern_draft_stats { // zeros without speculation, except n_steps
    size_t n_steps;               // runs of the model that the answer took
    size_t n_drafts;              // steps with a draft
    size_t n_drafted, n_accepted; // tokens
    size_t drafted_by[TERN_DRAFTER_COUNT], accepted_by[TERN_DRAFTER_COUNT];
    size_t accepted_length[TERN_DRAFT_MAX + 1]; // drafts by number of accepted tokens
    size_t drafted_length[TERN_DRAFT_MAX + 1];  // drafts by number of tokens
    size_t accepted_of[TERN_DRAFT_MAX + 1];     // accepted tokens by length of the draft
    size_t n_runs[TERN_DRAFT_MAX + 2];          // runs by number of tokens
    double run_seconds[TERN_DRAFT_MAX + 2];     // their total time
    double draft_seconds;                       // of the drafters
    double speedup; // against runs of one token, as timed in this session; 0: unknown
} tern_draft_stats;

typedef struct tern_generate_stats {
    size_t n_prompt, n_reused, n_generated; // tokens
    tern_stop_reason reason;
    size_t stop; // TERN_STOP_STRING: which of params.stops
    double prompt_seconds, generate_seconds;
    uint64_t seed; // that was used
    tern_draft_stats draft;
} tern_generate_stats;

// Continues the given ids; on_text receives whole characters as they come. Thread rule: another
// thread may not use the session, but on_text may return false at any time.
TERN_API tern_status tern_generate_ids(tern_session *session, const int32_t *ids, size_t n_ids,
                                       const tern_generate_params *params, tern_text_fn on_text,
                                       void *user, tern_generate_stats *stats, tern_error *err);
// The same from text: special tokens are recognised and the tokenizer's BOS is added.
TERN_API tern_status tern_generate(tern_session *session, const char *prompt,
                                   const tern_generate_params *params, tern_text_fn on_text,
                                   void *user, tern_generate_stats *stats, tern_error *err);
// The ids that the last generation appended (not the prompt's).
TERN_API const int32_t *tern_session_generated(const tern_session *session, size_t *n_ids);

typedef struct tern_token_logprob {
    int32_t id;
    float logprob; // ln p by the model itself: no temperature, no penalties, nothing cut off
} tern_token_logprob;
// Of the last generation with params.logprobs [n_tokens, n_each]: each token of the answer,
// followed by the likeliest ones in its place, in order; n_each is 1 + n_top_logprobs. NULL: not
// requested. May be called in on_text, too; valid until the session is used again.
TERN_API const tern_token_logprob *tern_session_token_logprobs(const tern_session *session,
                                                               size_t *n_tokens, size_t *n_each);

// ---- Many sessions at once ----------------------------------------------------------------------

// A *group* generates for any number of sessions of one model, stepped together: in a step each of
// them gets its next token (with a draft: tokens), and reading the weights once serves all. Prompts
// are computed in pieces among the steps of others, in turn, so that a long one stalls nobody. Each
// session says what it would say alone, to the bit. One thread at a time may use a group and the
// sessions that run in it; another group may share the model.
//
//     tern_group *group;
//     tern_session *session = NULL; // open one for each text
//     const int32_t ids[] = {1, 2, 3};
//     size_t n_running = 1;
//     tern_error err = {0};
//     if (tern_group_open(&group, NULL, NULL, &err) == TERN_OK &&
//         tern_group_add(group, session, ids, 3, NULL, on_text, NULL, user, &err) == TERN_OK)
//         while (n_running > 0 && tern_group_step(group, &n_running, &err) == TERN_OK) {}
typedef struct tern_group tern_group;

typedef struct tern_group_desc {
    int32_t n_piece;   // prompt tokens of a step at most while others wait for their next token;
                       // 0: as many as make it seven tenths longer, or 20 ms long, as measured;
                       // at first eight. A step now and then has none, for what it tells. Then
                       // prompts may also wait for each other, a tenth of a second at most:
                       // tern_group_info.prompt_seconds
    int32_t n_reserve; // tokens of an answer for which memory is taken when it is added, 0: 256.
                       // Until then a step allocates nothing; a longer answer takes it as it grows
} tern_group_desc;

// What a session generated is over. err->status is TERN_OK, or *err says why it failed; the others
// go on. The session is free then: it may be added again, here too, or closed.
typedef void (*tern_end_fn)(void *user, tern_session *session, const tern_generate_stats *stats,
                            const tern_error *err);

TERN_API tern_status tern_group_open(tern_group **out, tern_model *model,
                                     const tern_group_desc *desc, tern_error *err);
// NULL is allowed. Cancels what still runs; the sessions stay open.
TERN_API void tern_group_close(tern_group *group);
// As tern_generate_ids, from the next step on. What the arguments point to is copied. May be called
// at any time, in callbacks too. Until it is over, the session can only be looked at
// (tern_session_generated and the like), forked, swapped out, cancelled, or closed, but not in its
// own on_text. A session with desc.profile is refused.
TERN_API tern_status tern_group_add(tern_group *group, tern_session *session, const int32_t *ids,
                                    size_t n_ids, const tern_generate_params *params,
                                    tern_text_fn on_text, tern_end_fn on_end, void *user,
                                    tern_error *err);
// One step. Callbacks are called from here. *n_running (may be NULL) gets the number of sessions
// that are not over. When it fails nothing is lost: it may be called again, say with less memory in
// use.
TERN_API tern_status tern_group_step(tern_group *group, size_t *n_running, tern_error *err);
// The same for event loops, without waiting for the device: begin, then poll until *done. The CPU
// computes in begin and in poll. Moving to another device after a loss takes many polls; each binds
// some 16 MB of weights, or compiles a graph.
TERN_API tern_status tern_group_begin(tern_group *group, tern_error *err);
TERN_API tern_status tern_group_poll(tern_group *group, bool *done, size_t *n_running,
                                     tern_error *err);
// What the last steps took, where answers were among them. 0: not known yet.
typedef struct tern_group_info {
    size_t n_running;
    int32_t n_piece;       // as in tern_group_desc, or as it was found
    double step_seconds;   // of a step without prompts
    double row_seconds;    // that each token of a prompt adds
    double prompt_seconds; // that prompts add besides, however few their tokens are. Where that is
                           // more than a quarter of a step, prompts wait until there is one for
                           // every eight answers
} tern_group_info;
// As of the last step.
TERN_API void tern_group_get_info(const tern_group *group, tern_group_info *info);
// Ends what a group generates for the session, with TERN_STOP_CALLER: at once, or when the step is
// done that computes it. Does nothing for other sessions.
TERN_API void tern_session_cancel(tern_session *session);

// A new session, with the same desc, that begins with the first n_tokens of the timeline of another
// one. What they have in common (a system prompt, say) is computed and kept once. Models with fixed
// states (convolutions, delta nets) share them best at the end of the timeline; elsewhere some of
// it is computed again.
TERN_API tern_status tern_session_fork(tern_session **out, tern_session *from, size_t n_tokens,
                                       tern_error *err);
// Whether any front of its timeline can be forked without computing some of it again: not so with
// fixed states, and with layers that see a window only.
TERN_API bool tern_session_cuts_freely(const tern_session *session);
// Moves the session's keys and values to the host's memory, but for those that are shared. They
// come back by themselves when the session is used.
TERN_API tern_status tern_session_swap_out(tern_session *session, tern_error *err);
// Bytes of its keys, values and other states on the device, shared ones divided by their holders.
TERN_API uint64_t tern_session_bytes(const tern_session *session);

// ---- Saved sessions -----------------------------------------------------------------------------

// Writes a session's timeline to a file: its tokens, keys and values, other states, and the points
// that it can go back to. The session must not be generating; it stays as it is.
TERN_API tern_status tern_session_save(tern_session *session, const char *path, tern_error *err);
// The timeline becomes the one in the file, which need not be computed: what follows has the same
// bits as if it had been. A file of another model (weights, adapters, arithmetic, type of keys and
// values, version of the library), and one that is damaged, is refused; the session is then as
// before. The first save or load of a model reads all its weights.
TERN_API tern_status tern_session_load(tern_session *session, const char *path, tern_error *err);
// The tokens of the timeline in a file that the session could load: up to capacity of them. *n_ids
// gets their number. The states are not read.
TERN_API tern_status tern_session_peek(tern_session *session, const char *path, int32_t *ids,
                                       size_t capacity, size_t *n_ids, tern_error *err);
// A number for what a file must be of for the session to load it: for names of files and folders.
TERN_API tern_status tern_session_digest(tern_session *session, uint64_t *digest, tern_error *err);

// ---- Conversations ------------------------------------------------------------------------------

// The tokens of a conversation by the model's chat template, ending with the words that make the
// model answer. n_context > 0: the room for prompt and answer together, of which n_answer tokens
// are for the answer (0, and at most: a quarter). What does not fit is left out in whole turns, the
// oldest first; system messages at the beginning and everything from the last user message on stay,
// and TERN_ERR_CONTEXT_FULL means that these alone are too long. Writes up to capacity ids and sets
// *n_ids to their total number; *n_dropped (may be NULL) to the number of messages left out.
// Thread-safe.
TERN_API tern_status tern_chat_tokens(const tern_model *model, const tern_message *messages,
                                      size_t n_messages, int32_t n_context, int32_t n_answer,
                                      int32_t *ids, size_t capacity, size_t *n_ids,
                                      size_t *n_dropped, tern_error *err);

typedef struct tern_chat_stats {
    size_t n_dropped; // oldest messages that no longer fit when the answer ended
    size_t n_cut;     // tokens of a long answer's own beginning that no longer fit, either
    tern_generate_stats generate;
} tern_chat_stats;

// Answers the last message. The context never fills up: messages are left out by the rule above,
// also during the answer; when only the newest turn is left and the answer outgrows the context,
// the older half of the answer is left out, and it goes on. Pass all messages each time: the
// session does not compute again what it still has. max_tokens 0: until the model ends, at most ten
// times the context.
TERN_API tern_status tern_chat_answer(tern_session *session, const tern_message *messages,
                                      size_t n_messages, const tern_generate_params *params,
                                      tern_text_fn on_text, void *user, tern_chat_stats *stats,
                                      tern_error *err);

// A conversation that owns its messages.
typedef struct tern_chat tern_chat;

TERN_API tern_status tern_chat_open(tern_chat **out, tern_error *err);
TERN_API void tern_chat_close(tern_chat *chat); // NULL is allowed
// Appends copies.
TERN_API tern_status tern_chat_add(tern_chat *chat, const char *role, const char *content,
                                   tern_error *err);
// The system message at the beginning; NULL or "": none.
TERN_API tern_status tern_chat_set_system(tern_chat *chat, const char *content, tern_error *err);
TERN_API void tern_chat_cut(tern_chat *chat, size_t n_messages); // keeps the first ones
// Valid until the chat is changed.
TERN_API const tern_message *tern_chat_messages(const tern_chat *chat, size_t *n_messages);
// A transcript: Markdown if the path ends in .md, else a JSON array of {"role", "content"}.
// Either reads back to the same bytes (text that is not valid UTF-8: from Markdown only).
TERN_API tern_status tern_chat_save(const tern_chat *chat, const char *path, tern_error *err);
// Replaces all messages; on failure they stay unchanged. Also accepts an object with "messages".
TERN_API tern_status tern_chat_load(tern_chat *chat, const char *path, tern_error *err);

// ---- Embeddings (docs/embeddings.md) ------------------------------------------------------------
//
// A model whose files say how it pools makes one vector of each text. Texts that mean the same have
// a similarity near 1.
//
//     tern_embed_text texts[] = {{0}, {0}};
//     tern_embedding_info info = {0};
//     tern_model *model = NULL;
//     tern_error err = {0};
//     float vectors[2 * 1024];
//     texts[0].text = "how do magnets work", texts[0].n_bytes = 19;
//     texts[1].text = "why iron sticks to steel", texts[1].n_bytes = 24;
//     tern_embedding_get_info(model, &info);
//     if (info.n_dims <= 1024 && tern_embed(model, texts, 2, NULL, vectors, &err) == TERN_OK)
//         (void)tern_similarity(vectors, vectors + info.n_dims, (size_t)info.n_dims);

typedef struct tern_embedding_prompt {
    const char *name, *text; // "query", "Represent this sentence: "
} tern_embedding_prompt;

typedef struct tern_embedding_info {
    int32_t n_dims;       // numbers of a vector; 0: the model does not embed
    int32_t max_length;   // tokens of a text that it takes, with those that the tokenizer adds
    tern_pooling pooling;
    bool any_length;      // vectors do not have the length 1, as the model's files want it
    int32_t n_labels;     // of a classifier of pairs, which has scores and no vectors; else 0
    const tern_embedding_prompt *prompts; // of the model's files; live as long as the model
    size_t n_prompts;
    const char *default_prompt; // the name of the one that is used if none is asked for, or NULL
} tern_embedding_info;
TERN_API void tern_embedding_get_info(const tern_model *model, tern_embedding_info *info);

typedef struct tern_embed_text {
    const char *text; // only text: names of special tokens in it are not those tokens
    size_t n_bytes;
    const int32_t *ids; // not NULL: its tokens, all of them; the text and the prompt are not used
    size_t n_ids;
} tern_embed_text;

typedef struct tern_embed_params {
    const char *prompt;      // the name of one of the model's, NULL: its default, "": none
    const char *prefix;      // not NULL: a text in place of the model's prompts
    int32_t max_length;      // tokens of a text, the rest is cut off; 0: the model's
    int32_t n_dims;          // the first numbers of each vector, of length 1 again; 0: all
    int32_t n_step;          // tokens computed at once, of short texts together; 0: 2048
    tern_kv_type kv_type;    // keys and values; AUTO: by the greatest length
    int64_t *n_tokens;       // [n_texts] gets the number of each text's tokens, or NULL
    bool *was_cut;           // [n_texts] gets whether it was longer than it may be, or NULL
    tern_progress_fn on_progress;
    void *user;
} tern_embed_params;
// out: [n_texts, n_dims]. Texts of any lengths are computed together, without padding; a vector has
// the same bits alone. Any number of threads may call it on one model. Memory: states of the tokens
// that are computed at once.
TERN_API tern_status tern_embed(tern_model *model, const tern_embed_text *texts, size_t n_texts,
                                const tern_embed_params *params, float *out, tern_error *err);
// The same without waiting for a GPU, a step of some thousand tokens at a time: poll until *done or
// a failure, then close, which may also come before. The texts, the params' arrays and strings and
// `vectors` stay where they are until then. One thread at a time may use it.
typedef struct tern_embedding tern_embedding;
TERN_API tern_status tern_embed_begin(tern_embedding **out, tern_model *model,
                                      const tern_embed_text *texts, size_t n_texts,
                                      const tern_embed_params *params, float *vectors,
                                      tern_error *err);
TERN_API tern_status tern_embed_poll(tern_embedding *embedding, bool *done, tern_error *err);
TERN_API void tern_embed_close(tern_embedding *embedding); // NULL is allowed
// How well documents answer a query, by a model that reads both at once: scores[i] of document i.
// An encoder with a classifier (BERT's, XLM-R's) gives its first label's score as it comes, a
// decoder the probability of "yes" in Qwen3-Reranker's template. Documents are cut to fit. Of the
// params prefix is the decoder's instruction (NULL: about a web search); prompt and n_dims are not
// used.
TERN_API tern_status tern_rerank(tern_model *model, const char *query, size_t n_query,
                                 const tern_embed_text *documents, size_t n_documents,
                                 const tern_embed_params *params, float *scores, tern_error *err);
// The cosine of the angle between two vectors, -1 to 1; 0 if one of them is 0.
TERN_API double tern_similarity(const float *a, const float *b, size_t n);

// ---- Memory ------------------------------------------------------------------------------------

typedef struct tern_memory {
    size_t heap_now, heap_max; // what the library allocated itself, without mapped files
    size_t process_max;        // peak resident size of the process, 0 if unknown
    uint64_t n_allocs;         // allocations since the program began
} tern_memory;
TERN_API tern_memory tern_memory_get(void);

#ifdef __cplusplus
}
#endif
#endif

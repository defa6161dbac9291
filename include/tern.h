// tern: small language models on the device they run on. This header is all that a program needs to
// run a model: open it, generate text, hold conversations. tern_embed.h is for vectors of texts and
// rerankers, tern_image.h and tern_audio.h for images and sounds, tern_agent.h for models that call
// tools, tern_memory.h for stores of texts, tern_train.h for training, and tern_tools.h for
// converting, inspecting and evaluating models, chains to draft from, and safe writing of files;
// each of them includes this one.
//
// Two objects. A *model* is an opened file: mapped weights, tokenizer, chat template, graph; it
// never changes after opening and may be shared by any number of threads. A *session* is one
// timeline over a model: its keys and values and its position; one thread at a time.
//
//     tern_error err = {0};
//     tern_model *model;
//     tern_session *session;
//     tern_generate_params params = {0};
//     params.on_text = on_text;
//     if (tern_model_open(&model, "model.gguf", NULL, &err) == TERN_OK &&
//         tern_session_open(&session, model, NULL, &err) == TERN_OK)
//         tern_generate(session, "Once upon a time", &params, NULL, &err);
//     if (err.status != TERN_OK) puts(err.message);
//
// Rules that hold for every function:
// - In a desc or params struct, zero means "the default"; pass NULL for all defaults. (Sampling is
//   the exception: there 0 is a value.) Every struct can be set to zeros: = {0} in C, = {} in C++.
// - A required argument that is NULL is refused with TERN_ERR_ARGUMENT, and so is a value outside
//   its enum; functions without a status then do nothing, or return 0 or NULL.
// - Functions that can fail return tern_status and fill *err (may be NULL) with one line of text;
//   when they succeed, err->status is TERN_OK and the message empty.
// - An argument may point to memory that the same object returned: its tokens, say.
// - Handles may be closed in any order. A closed model stays in memory until everything that was
//   opened with it (sessions, groups, grammars, answers, image tokens, transcribers, speeches,
//   stores ...) is closed, too. The same holds for a session that an agent uses or that is closed
//   in its own callback, a grammar that still constrains an answer, and a table of chains that a
//   session drafts from.
// - The library never prints, never exits and keeps no global state except memory counters, and
//   for each thread the request that it watches (see Cancelling).
// - Text is UTF-8, token ids are int32, sizes bytes and times seconds unless named otherwise.
// - Functions are thread-safe for different objects, but not for the same session.
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
#define TERN_ABI_VERSION 0               // counts changes for which programs must be compiled again
TERN_API int tern_abi_version(void);

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

// Called during long operations. fraction is 0..1, phase a short word such as "load". Return false
// to stop: the operation then fails with TERN_ERR_CANCELLED.
typedef bool (*tern_progress_fn)(void *user, const char *phase, double fraction);

// Receives a piece of a report or of generated text (not terminated). Return false to stop:
// generation then ends with TERN_OK and TERN_STOP_CALLER, everything else with TERN_ERR_CANCELLED.
typedef bool (*tern_text_fn)(void *user, const char *text, size_t n_bytes);

// A file's bytes in memory.
typedef struct tern_bytes {
    const void *bytes;
    size_t n_bytes; // 0: there is no such file
} tern_bytes;

// What the library says beside results and errors: one line for people, without a newline. From any
// thread that uses the model; it must not call the library with objects of that model.
typedef enum tern_log_level {
    TERN_LOG_DEBUG = 0, // what each answer took, sessions that are opened
    TERN_LOG_INFO,      // which model was opened, where it runs
    TERN_LOG_WARN,      // what is not as one would expect: a guessed template, a lost device
} tern_log_level;
typedef void (*tern_log_fn)(void *user, tern_log_level level, const char *line);

// The format of a report; DOT is for graphs only.
typedef enum tern_format { TERN_FORMAT_TEXT = 0, TERN_FORMAT_JSON, TERN_FORMAT_DOT } tern_format;

// ---- Cancelling --------------------------------------------------------------------------------

// Every long operation can be stopped from outside, in one way: a thread watches a request, and any
// thread, or a signal handler, makes it. Loading, reading prompts, generating, embedding, seeing,
// hearing, speaking, converting, evaluating, training: on the CPU a call returns after the current
// matrix product, on a GPU without waiting for submitted work. It fails with TERN_ERR_CANCELLED;
// only generation ends with TERN_OK and TERN_STOP_CALLER.
//
// Objects are as valid as after any other failure: a session has the tokens that were computed, a
// group may be stepped again, no file was changed, a training run has written a checkpoint.
//
// examples/cancel.c stops at Ctrl-C.
typedef struct tern_cancel {
    int32_t is_requested; // only for the functions below
} tern_cancel;
TERN_API void tern_cancel_request(tern_cancel *cancel);
TERN_API bool tern_cancel_is_requested(const tern_cancel *cancel);
TERN_API void tern_cancel_reset(tern_cancel *cancel); // takes the request back
// From now on the calls of this thread stop when `cancel` is requested (also if it is already), up
// to the next call of this function. NULL: nothing is watched. Returns what was watched before.
TERN_API tern_cancel *tern_cancel_watch(tern_cancel *cancel);

// ---- Models ------------------------------------------------------------------------------------

typedef struct tern_model tern_model;

typedef enum tern_ternary_layout {
    TERN_TERNARY_AUTO = 0, // the faster of the two, measured at load; 2-bit below 64 MiB
    TERN_TERNARY_2BIT,     // four weights per byte; I2_S files are used as mapped
    TERN_TERNARY_1_6BIT,   // five weights per byte; 20% fewer bytes per token
} tern_ternary_layout;

typedef enum tern_head_mode {
    TERN_HEAD_AUTO = 0, // exact when it saves bytes
    TERN_HEAD_FILE,     // as the file has it
    TERN_HEAD_EXACT,    // low-bit screening with a proven bound, then full-precision rows: the same
                        // argmax and top-k, bit for bit, reading a fraction of the bytes
    TERN_HEAD_Q8_0,     // converted at load; changes the logits
    TERN_HEAD_Q6_K,
    TERN_HEAD_Q4_0,
} tern_head_mode;

// A LoRA adapter: low-rank matrices B A added to some of a model's matrices. A GGUF as llama.cpp's
// convert_lora_to_gguf writes it, or PEFT's folder of adapter_config.json and the weights.
typedef struct tern_lora {
    const char *path;
    float scale; // 0: 1; multiplied by the adapter's own scale
    bool off;    // checked but not applied, whatever the scale: an effective scale of 0
    // Not empty: a GGUF in memory; path is then its name in messages. Not used after opening.
    tern_bytes bytes;
} tern_lora;
#define TERN_LORAS_MAX 64 // with loras_by_session

// How a GPU is found and used, through WebGPU. The library reads no environment variables, and no
// files except those it is given: the program decides, as `tern` does from its user's environment
// (docs/webgpu.md). Strings that are needed after the call are copied.
typedef struct tern_webgpu_desc {
    const char *library; // the WebGPU library (Dawn); NULL: next to the program, else the system's
    // For programs that link Dawn in, or wrap it: returns the function of that name
    // ("wgpuCreateInstance"), or NULL if there is none. Must outlive everything opened with it.
    void *(*symbol)(void *user, const char *name);
    void *symbol_user;
    // A folder, created if needed, for one small file per adapter and library, which keeps how many
    // dispatches a submission may have there. The first start finds that out by trying; if the
    // driver kills the process during a start, the next one tries fewer. NULL: each start tries.
    const char *state_folder;
    int32_t group;  // dispatches per submission, without trying; negative: no limit; 0: see above
    bool checks;    // keep WebGPU's own validation of every call and every index
    bool no_matrix; // do not use the matrix units
} tern_webgpu_desc;

// For chat templates with an enable_thinking variable: Qwen3's and others.
typedef enum tern_thinking {
    TERN_THINKING_AUTO = 0, // as the template has it
    TERN_THINKING_ON,
    TERN_THINKING_OFF,
} tern_thinking;

// How a text's rows become one vector.
typedef enum tern_pooling {
    TERN_POOLING_NONE = 0, // a language model; in tern_model_desc: as the model's files say
    TERN_POOLING_MEAN,
    TERN_POOLING_LAST,
    TERN_POOLING_FIRST, // the row of "[CLS]", the token that begins a text
} tern_pooling;

// How a GPU with matrix units multiplies weights quantized in groups in prompts, where more than
// 128 tokens of a text come at once.
typedef enum tern_matmul_precision {
    TERN_MATMUL_EXACT = 0, // integers and float32: the CPU's bits
    TERN_MATMUL_HALF,      // half precision, summed in float32: faster, some 2^-12 off
} tern_matmul_precision;

typedef struct tern_model_desc {
    const char *device;             // "cpu" (default), "webgpu", "auto"
    const tern_webgpu_desc *webgpu; // NULL: the defaults
    int n_threads;                  // 0: one per core
    int n_batch; // prompt tokens per batch, 0: 512, on a GPU with matrix units 2048; for an
                 // encoder, which reads a text as a whole: its context, at most 8192
    tern_ternary_layout ternary;
    // Keep activations in float where weights are quantized in groups (Q4_K, Q2_0 ...); otherwise
    // they are rounded to int8 with one scale per 64 values. Slower. BitNet's own rounding stays.
    bool precise;
    tern_matmul_precision matmul_precision; // of a GPU's prompts with such weights
    tern_head_mode head;
    const char *chat_template; // a Jinja template that replaces the file's
    tern_thinking thinking;    // whether models that can think before answering do so
    tern_pooling pooling;      // makes an embedding model of a decoder whose files name no pooling
    bool vocab_only; // load only tokenizer and template: needs no weights, allows no sessions
    const char *cpu_features; // at most "scalar", "avx2", "avx512", "amx", "neon"...; NULL: all
    // Adapters applied at run time, in float even if the weights are ternary.
    const tern_lora *loras;
    size_t n_loras;
    bool loras_by_session; // see tern_session_desc.lora_scales; not of models that make vectors
    tern_progress_fn on_progress;
    void *user; // of all callbacks here
    // The vision part of a GGUF (llama.cpp's mmproj). NULL: the file beside the model,
    // mmproj-NAME.gguf for NAME.gguf or the only mmproj*.gguf, if it fits the model; "": none.
    const char *mmproj;
    // Not empty: a GGUF in memory, instead of the file; path is then its name in messages. Bytes
    // that begin at a multiple of 64, as a mapping does, are used where they are, others are
    // copied. They must stay as they are until on_release is called, once: when nothing uses the
    // model any more, or before a failure to open it returns.
    tern_bytes bytes, mmproj_bytes;
    void (*on_release)(void *user);
    tern_log_fn on_log; // as long as the model lives; NULL: nothing is said
} tern_model_desc;

// path: a .gguf file (or the first of a split set), or a Hugging Face folder; with vocab_only also
// a tokenizer.json.
TERN_API tern_status tern_model_open(tern_model **out, const char *path,
                                     const tern_model_desc *desc, tern_error *err);
// NULL is allowed. Objects opened with the model stay usable; closing the last of them frees it.
TERN_API void tern_model_close(tern_model *model);

// The same for event loops, without waiting for the device: begin, then poll until *done, when
// *model is open, or until a failure; in either case, close the opening afterwards. (Further polls
// give the same again.) Begin reads the file's header, the tokenizer and the template, and copies
// what is needed later from desc. A poll handles about 16 MB of weights, or one larger unit of work
// that cannot be split (on the CPU, one weight); on_progress is called from begin and from polls.
// One thread at a time.
typedef struct tern_opening tern_opening;
TERN_API tern_status tern_model_open_begin(tern_opening **out, const char *path,
                                           const tern_model_desc *desc, tern_error *err);
TERN_API tern_status tern_model_open_poll(tern_opening *opening, bool *done, tern_model **model,
                                          tern_error *err);
// NULL is allowed. Cancels an opening that is not done; a model that is open stays open.
TERN_API void tern_opening_close(tern_opening *opening);

// Bytes of GPU memory that a model and its sessions use; zeros on the CPU. Excludes programs, and
// data in flight while weights are uploaded (at most 64 MB).
typedef struct tern_device_memory {
    uint64_t weights, cache;
    uint64_t work;      // activations, logits, angles
    uint64_t results;   // copies of results that the host reads
    uint64_t now, most; // the total; its peak since the model was opened
} tern_device_memory;

typedef struct tern_model_info {
    const char *path, *architecture, *name; // live as long as the model
    const char *device;                     // where it runs, e.g. "cpu avx512, 2 threads"
    const char *ternary_layout;             // "2-bit", "1.6-bit", "4-bit groups",
                                            // "mixed groups" ... or "none"
    const char *head;                       // e.g. "exact F16"; "none": an encoder's
    int32_t n_vocab, n_layers, n_embd, n_context_train;
    int32_t n_threads, n_batch;
    uint64_t n_params;               // weights, counted once if tied
    uint64_t file_bytes;             // bytes of tensor data in the file
    uint64_t bytes_per_token;        // of weights that one greedy decode step reads
    uint64_t bytes_per_token_logits; // the same when all logits are computed
    uint64_t kv_bytes_per_token;     // per position of a sequence, in an F16 cache
    // In addition, at most, per sequence: keys and values of layers with a sliding window, and
    // states of fixed size.
    uint64_t sequence_bytes;
    // Bytes of both that all sessions together hold now, shared ones counted once: on the device,
    // and swapped out to the host's memory.
    uint64_t held_bytes, swapped_bytes;
    tern_device_memory device_memory;
    double load_seconds;
    int32_t bos_id, eos_id; // -1: none
    bool adds_bos;
    const char *template_guess; // a sentence if the file has no chat template; else NULL
    // The file's sampling defaults; negative: the file has none.
    float temperature, top_p, min_p, repeat_penalty;
    int32_t top_k;
} tern_model_info;
TERN_API void tern_model_get_info(const tern_model *model, tern_model_info *info);

// What the model's file says about itself: the keys of a GGUF ("general.name",
// "llama.rope.freq_base", "tokenizer.ggml.tokens"), or of a folder's config.json, where nested ones
// are joined by points
// ("rope_scaling.factor"). Strings live as long as the model.
typedef enum tern_metadata_kind {
    TERN_METADATA_STRING = 0,
    TERN_METADATA_INT,
    TERN_METADATA_FLOAT,
    TERN_METADATA_BOOL,
    TERN_METADATA_ARRAY,
} tern_metadata_kind;
typedef struct tern_metadata {
    const char *key; // terminated
    tern_metadata_kind kind;
    const char *text; // STRING: not terminated, n bytes; else NULL
    size_t n;         // bytes of a string, elements of an array; else 1
    int64_t integer;  // INT; BOOL: 0 or 1
    double number;    // INT (rounded), FLOAT and BOOL
} tern_metadata;
TERN_API size_t tern_model_n_metadata(const tern_model *model);
// The i-th one, in the file's order. False, and *out is zeros: there is no such one.
TERN_API bool tern_model_metadata_at(const tern_model *model, size_t i, tern_metadata *out);
// The value of a key.
TERN_API bool tern_model_metadata(const tern_model *model, const char *key, tern_metadata *out);
// Element i of an array, under the array's key. False also where it is an array or an object.
TERN_API bool tern_model_metadata_element(const tern_model *model, const char *key, size_t i,
                                          tern_metadata *out);

// What a model does with images and sound (tern_image.h, tern_audio.h); zero, false and -1 where it
// has nothing of the kind.
typedef struct tern_media_info {
    // Images that tern_classify and tern_embed_images take.
    int32_t image_width, image_height; // of what the model reads
    int32_t patch;                     // edge of the squares that become rows
    int32_t n_labels;                  // 0: the model gives vectors, no labels
    int32_t n_dims;                    // of a vector
    // A vision-language model, for tern_image_tokens_open: the token that stands for an image in a
    // text, and those before and after it; -1: none.
    bool has_vision;
    int32_t image_token, begin_token, end_token;
    // Speech recognition, tern_transcribe.
    bool is_asr;
    int32_t audio_rate; // samples per second that the model reads
    // Text to speech, tern_speech_open.
    bool is_tts;
    int32_t n_speaker; // size of the vector that describes a voice; 0: it takes none
    // A codec, tern_codec_open.
    bool is_codec;
    int32_t codec_rate;        // samples per second
    int32_t codec_frame;       // samples of a frame
    int32_t n_codes, n_values; // codes of a frame, which are below n_values
} tern_media_info;
TERN_API void tern_model_get_media_info(const tern_model *model, tern_media_info *info);

// ---- Text and tokens ---------------------------------------------------------------------------

typedef enum tern_tokenize_flags {
    TERN_TOKENIZE_PLAIN = 0,   // the text is only text
    TERN_TOKENIZE_SPECIAL = 1, // names of special tokens in the text become those tokens
    TERN_TOKENIZE_BOS = 2,     // begin as the model's tokenizer does (with BOS, if it adds one)
} tern_tokenize_flags;

// Token ids in memory of the caller. A function that gives ids writes those that fit and sets n to
// the number of all; if n > capacity, call it again with more room. One that takes ids reads n.
typedef struct tern_ids {
    int32_t *ids; // [capacity]
    size_t capacity, n;
} tern_ids;

// The tokens of a text. flags: of tern_tokenize_flags; others are refused. Thread-safe.
TERN_API tern_status tern_tokenize(const tern_model *model, const char *text, size_t n_bytes,
                                   unsigned flags, tern_ids *out, tern_error *err);
// The text of ids, passed to `on_text` in one or more pieces. with_special: include the names of
// control tokens. Thread-safe.
TERN_API tern_status tern_detokenize(const tern_model *model, const tern_ids *ids,
                                     bool with_special, tern_text_fn on_text, void *user,
                                     tern_error *err);
// The bytes that a token adds in the middle of a text, passed to on_text: a leading space is kept,
// a control token gives its name, and a token that holds part of a character gives just those
// bytes, which need not be UTF-8. Thread-safe.
TERN_API tern_status tern_token_piece(const tern_model *model, int32_t id, tern_text_fn on_text,
                                      void *user, tern_error *err);
// The vocabulary entry itself, as stored; lives as long as the model. NULL: no such id.
TERN_API const char *tern_token_text(const tern_model *model, int32_t id, size_t *n_bytes);
TERN_API bool tern_token_is_end(const tern_model *model, int32_t id); // ends a turn or a text

typedef struct tern_image_tokens tern_image_tokens; // an encoded image: tern_image.h

typedef struct tern_message {
    const char *role, *content; // "system", "user", "assistant", "tool"
    // [n_images] that the message shows, in this order and before its text; n_images 0: none.
    tern_image_tokens *const *images;
    size_t n_images;
} tern_message;

// Renders messages with the model's chat template, ending with the text that starts the model's
// answer; the text is passed to on_text. An image becomes the template's placeholder.
TERN_API tern_status tern_chat_format(const tern_model *model, const tern_message *messages,
                                      size_t n_messages, tern_text_fn on_text, void *user,
                                      tern_error *err);

// The same for a request in JSON, which may have tools: an object with "messages" (of "role",
// "content", and whatever else the template uses: "tool_calls" in OpenAI's shape,
// "reasoning_content", "tool_call_id" ...), and optionally "tools" (OpenAI's list of functions),
// "add_generation_prompt" (default true) and the template's own switches. Arguments of calls may be
// objects or, as OpenAI has them, strings of objects. Fails if there are tools and the template
// does not support them. If it does not support calls, they are written into the message's text as
// the model would.
TERN_API tern_status tern_chat_format_json(const tern_model *model, const char *request,
                                           size_t n_bytes, tern_text_fn on_text, void *user,
                                           tern_error *err);

// ---- Answers, taken apart -----------------------------------------------------------------------

// An answer consists of text for people, reasoning (<think> and the like) and tool calls. Models
// write them in their family's format, between marks; a tern_answer parses them as they arrive. A
// call is passed on in parts: TERN_PART_CALL with the function's name, any number of
// TERN_PART_ARGUMENTS that together are one JSON object, TERN_PART_CALL_END. A call that was cut
// off has closed arguments, and no end. Whatever is not in the family's call format is text.
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
    uint32_t call; // index of the call, from 0
} tern_part;
typedef void (*tern_part_fn)(void *user, const tern_part *part);

typedef struct tern_answer tern_answer;
// prompt: the rendered text before the answer (it may have opened the reasoning), or NULL. tools:
// JSON, as in the request; NULL: do not look for calls. One thread at a time.
TERN_API tern_status tern_answer_open(tern_answer **out, const tern_model *model,
                                      const char *prompt, const char *tools, tern_error *err);
TERN_API void tern_answer_close(tern_answer *answer); // NULL is allowed
// Whether the family's marks are control tokens, so that the answer must be generated with
// tern_generate_params.with_special.
TERN_API bool tern_answer_with_special(const tern_answer *answer);
// The next piece of the answer, split anywhere. on_part is called during this call.
TERN_API tern_status tern_answer_put(tern_answer *answer, const char *text, size_t n_bytes,
                                     tern_part_fn on_part, void *user, tern_error *err);
// The answer has ended: text that was held back is passed on.
TERN_API tern_status tern_answer_end(tern_answer *answer, tern_part_fn on_part, void *user,
                                     tern_error *err);

// ---- Grammars ----------------------------------------------------------------------------------

// Constrained answers. A grammar is compiled for a model's vocabulary; an answer constrained by it
// can only be a text that the grammar accepts, or the beginning of one: no other tokens are
// sampled. docs/grammar.md says which schemas and notations are supported. Whatever is not
// supported is refused when the grammar is opened, by name, with its place (in a schema: a JSON
// pointer).
//
//     tern_grammar *grammar;
//     tern_model *model = NULL;
//     tern_session *session = NULL;
//     tern_grammar_desc desc = {0};
//     tern_generate_params params = {0};
//     tern_error err = {0};
//     desc.text = "{\"type\": \"array\", \"items\": {\"enum\": [\"yes\", \"no\"]}}";
//     params.on_text = on_text;
//     if (tern_grammar_open(&grammar, model, &desc, &err) == TERN_OK) {
//         params.grammar = grammar;
//         tern_generate(session, "Well?", &params, NULL, &err);
//         tern_grammar_close(grammar);
//     }
typedef struct tern_grammar tern_grammar;

typedef enum tern_grammar_kind {
    TERN_GRAMMAR_JSON_SCHEMA = 0, // JSON that satisfies a JSON Schema: drafts 4 to 2020-12
    TERN_GRAMMAR_JSON,            // any JSON
    TERN_GRAMMAR_REGEX,           // a regular expression (ECMA-262's) that matches the whole text
    TERN_GRAMMAR_GBNF,            // rules in llama.cpp's notation; the first is `root`
    TERN_GRAMMAR_LARK,            // rules in Lark's notation; the first is `start`
    TERN_GRAMMAR_CHOICES,         // one of some texts
    TERN_GRAMMAR_CALLS,           // tool calls in the model's format; text: a list of tools
} tern_grammar_kind;

typedef struct tern_grammar_desc {
    const char *text; // the schema, expression, rules or tools; unused by JSON and CHOICES
    size_t n_bytes;   // 0: text is terminated
    tern_grammar_kind kind;
    const char *const *choices; // [n_choices]
    size_t n_choices;
    bool compact; // JSON without whitespace between its parts
    // For calls: only of this tool, NULL: of any; at most one call; and whether the answer may be
    // text without a call, so that only the text inside a call's marks is constrained.
    const char *tool;
    bool one_call, is_optional;
    // For calls that are not optional: the answer is either calls or a text that this describes
    // (its kind, text, choices and compact are used), not both. NULL: calls.
    const struct tern_grammar_desc *otherwise;
    const char *prompt; // for conversations: the end of the rendered text before the answer; the
                        // model's reasoning is then allowed first, in its family's marks
    size_t n_bytes_max; // memory limit, 0: 256 MiB
} tern_grammar_desc;

// Any number of sessions and threads may use a grammar; they take turns.
TERN_API tern_status tern_grammar_open(tern_grammar **out, tern_model *model,
                                       const tern_grammar_desc *desc, tern_error *err);
TERN_API void tern_grammar_close(tern_grammar *grammar); // NULL is allowed
// *n_possible: how many bytes of the text are a prefix of some accepted text (for optional calls:
// of the text after the opening mark; tokens that are not text are a byte of 255 and their names).
// *is_accepted: whether the whole text is accepted. Either may be NULL.
TERN_API tern_status tern_grammar_check(tern_grammar *grammar, const char *text, size_t n_bytes,
                                        size_t *n_possible, bool *is_accepted, tern_error *err);
// The tokens that may follow a text: bit id % 64 of bits[id / 64], where n_words * 64 >= the
// model's n_vocab; end tokens are allowed where the text may end.
TERN_API tern_status tern_grammar_mask(tern_grammar *grammar, const char *text, size_t n_bytes,
                                       uint64_t *bits, size_t n_words, tern_error *err);

// ---- Sessions ----------------------------------------------------------------------------------

typedef struct tern_session tern_session;
typedef struct tern_chains tern_chains; // runs of tokens to draft from: tern_tools.h

typedef enum tern_kv_type {
    TERN_KV_AUTO = 0, // F32 while the whole cache stays below 64 MiB, else F16
    TERN_KV_F32,
    TERN_KV_F16,
    TERN_KV_Q8_0,
    TERN_KV_Q4_0, // of heads rotated by Walsh-Hadamard; not on a GPU or in a browser
} tern_kv_type;

// Speculation: a *drafter* guesses how the text goes on; the draft is computed with the last token,
// in one run, and the part that agrees with the model is kept. The text stays the same to the bit,
// greedy or sampled; the length of drafts adapts to the measured gain (docs/speculation.md).
#define TERN_DRAFT_MAX 16 // maximum tokens in a draft

// Proposes up to n_max tokens that may follow ids; returns how many it wrote to draft.
typedef int32_t (*tern_draft_fn)(void *user, const int32_t *ids, size_t n_ids, int32_t *draft,
                                 int32_t n_max);

typedef struct tern_speculation { // the drafters; none: no speculation
    const tern_chains *chains;    // a mined table
    bool lookup;                  // the tokens after earlier occurrences of the last tokens
    bool online;                  // buckets filled while generating, kept by the session
    tern_model *draft_model;      // a smaller model with the same vocabulary
    tern_draft_fn draft;          // the caller's own drafter
    void *draft_user;
    int32_t max_length; // of a draft in tokens, 0: 8, at most TERN_DRAFT_MAX
    // Greedy: also require a drafted token's probability to be at least this. 0: being the model's
    // choice is enough, which every token with p > 0.5 is. (Costs a full row of logits per token,
    // and never changes the text.)
    float threshold;
    // The cost of one more token in a run, relative to a run of one token; 0: measured. With a
    // fixed cost, drafts are reproducible everywhere and their gain is predictable.
    float token_cost;
    bool always; // draft even if it has not paid off so far (for tests and measurements)
} tern_speculation;

typedef struct tern_session_desc {
    int n_context; // 0: the model's training context, at most 8192
    tern_kv_type kv_type;
    bool shift_context; // when full, drop the oldest half after the first n_keep instead of failing
    int n_keep;         // tokens at the beginning that a shift keeps, 0: 4
    bool profile;       // time each kernel: see tern_session_profile
    tern_speculation speculation;
    // With loras_by_session: [n_lora_scales], one for each adapter, 0: it is not applied; copied.
    // None: those of the model's tern_lora.
    const float *lora_scales;
    size_t n_lora_scales;
} tern_session_desc;

TERN_API tern_status tern_session_open(tern_session **out, tern_model *model,
                                       const tern_session_desc *desc, tern_error *err);
// NULL is allowed. In one of the session's own callbacks (on_text, a drafter), this cancels the
// running call, as tern_session_cancel does, and the session is closed when that call returns.
TERN_API void tern_session_close(tern_session *session);
TERN_API void tern_session_reset(tern_session *session); // does nothing while it generates
// Drops what comes after the first n_tokens of the timeline, which must have that many, as if it
// had never been: models with fixed-size states may compute some of what stays again.
TERN_API tern_status tern_session_truncate(tern_session *session, size_t n_tokens, tern_error *err);
// Stops what the session is doing (generating, reading a prompt, scoring, saving ...), as described
// under Cancelling: may be called from any thread and from a signal handler, at any time before the
// session is closed. A generation in a group ends with the group's next call, or when the step that
// computes it is done. Does nothing if the session is idle; for a request that lasts, use a
// tern_cancel.
TERN_API void tern_session_cancel(tern_session *session);
TERN_API int32_t tern_session_n_context(const tern_session *session);
TERN_API tern_kv_type tern_session_kv_type(const tern_session *session); // what AUTO chose
// With loras_by_session: the scales of the adapters, [n], which never change; else NULL and 0.
TERN_API const float *tern_session_lora_scales(const tern_session *session, size_t *n);
TERN_API size_t tern_session_n_tokens(const tern_session *session); // tokens in the timeline
// The tokens themselves; valid until the session is used again.
TERN_API const int32_t *tern_session_tokens(const tern_session *session);
// Where the time went since the session was opened with desc.profile, longest first: by kernel on a
// GPU (timed by its own clock), by op on the CPU. *rows is valid until the next call. Profiling
// makes a session slower, since nothing overlaps.
typedef struct tern_profile_row {
    char name[40];
    uint64_t n_calls;
    double seconds;
    uint64_t bytes; // moved, a lower bound: weights, activations, keys and values
} tern_profile_row;
TERN_API tern_status tern_session_profile(tern_session *session, const tern_profile_row **rows,
                                          size_t *n_rows, tern_error *err);
// A device can be lost (reset, unplugged, crashed). A session survives that: it continues on a new
// device of the same kind or on the CPU, and this returns one line about it. NULL: no loss since
// the last call.
TERN_API const char *tern_session_notice(tern_session *session);

// Makes the timeline equal to ids[0..n_ids): keeps the common prefix, drops the rest of the old
// timeline, computes the new tokens in batches. *n_reused (may be NULL) gets the length of the
// reused prefix.
TERN_API tern_status tern_session_sync(tern_session *session, const int32_t *ids, size_t n_ids,
                                       size_t *n_reused, tern_error *err);

// Appends ids to the timeline; logits (NULL: none) gets [n_ids, n_vocab] floats: the logits of the
// token after each id.
TERN_API tern_status tern_session_logits(tern_session *session, const int32_t *ids, size_t n_ids,
                                         float *logits, tern_error *err);
// The logits of the token after the timeline's last one, computed again: [n_vocab] floats.
TERN_API tern_status tern_session_last_logits(tern_session *session, float *logits,
                                              tern_error *err);

typedef struct tern_target_score {
    double logprob; // ln p of the target
    int32_t best;   // the most likely token in its place
} tern_target_score;
// Appends ids to the timeline and scores the tokens after them: scores[i] is of targets[i] after
// the timeline up to and including ids[i]. If targets[i] < 0 nothing is computed: the score is 0,
// the best token -1. Only a few rows of logits are in memory at a time.
TERN_API tern_status tern_session_logprobs(tern_session *session, const int32_t *ids, size_t n_ids,
                                           const int32_t *targets, tern_target_score *scores,
                                           tern_error *err);

// How a token is chosen. The samplers act in this order unless `samplers` says otherwise: biases,
// exclusions, penalties, DRY, top_n_sigma, top_k, typical_p, top_p, min_p, XTC, temperature; then a
// token is drawn from the rest. docs/cli.md explains each of them. NaN and values out of range are
// refused, by name.
typedef struct tern_sampling {
    // For these five, a negative value means the file's default or, if it has none, the usual one
    // (0.8, 40, 0.95, 0.05, 1).
    float temperature;    // 0: the likeliest token that the others left
    int32_t top_k;        // 0: off
    float top_p;          // 1: off; 0: the likeliest token alone, if has_defaults is set, else off
    float min_p;          // 0: off
    float repeat_penalty; // 0 or 1: off
    // For these, 0 is the default; negative penalties favour tokens seen before.
    float frequency_penalty; // 0: off
    float presence_penalty;  // 0: off
    int32_t penalty_window;  // last tokens that the penalties look at, 0: 64; INT32_MAX: all
    uint64_t seed;           // 0: a new seed each time
    // Further samplers are off at 0; their settings, if negative, are the default in brackets.
    float top_n_sigma;       // logits at most this many standard deviations below the greatest
    float typical_p;         // keep the most typical tokens that together exceed this; 1: off, too
    float xtc_probability;   // of dropping all likely tokens but the least likely of them
    float xtc_threshold;     // likely: of at least this probability (0.1)
    float dynatemp_range;    // the temperature varies by this much up and down with the entropy
    float dynatemp_exponent; // (1)
    float dry_multiplier;    // penalty of a token that would continue a repetition,
    float dry_base;          // times this (1.75) for each token of it
    int32_t dry_allowed_length; // beyond this many (2); shorter ones are free
    int32_t dry_penalty_last_n; // tokens searched for repetitions, the last ones (-1: all)
    int32_t mirostat;           // 1 or 2: replaces all samplers but biases and temperature
    float mirostat_tau;         // target surprise, in bits (5)
    float mirostat_eta;         // learning rate (0.1)
    // Letters of the samplers that act, in their order: e penalties, d DRY, s top_n_sigma, k top_k,
    // y typical_p, p top_p, m min_p, x XTC, t temperature. "": "edskypmxt", "-": none.
    char samplers[16];
    // Set by tern_sampling_default(): a top_p of 0 then means 0. In a zeroed struct it means off.
    bool has_defaults;
} tern_sampling;
#define TERN_SAMPLERS "edskypmxt"
// Fields whose negative values mean a default are -1, the rest 0; NULL in tern_generate_params
// means this. A zeroed struct, by contrast, is greedy. Begin with this one to change single fields.
TERN_API tern_sampling tern_sampling_default(void);

typedef enum tern_stop_reason {
    TERN_STOP_END = 0, // the model ended its text
    TERN_STOP_LENGTH,  // max_tokens
    TERN_STOP_STRING,  // one of the stop strings
    TERN_STOP_CONTEXT, // the context is full
    TERN_STOP_CALLER,  // the callback returned false, or it was cancelled
} tern_stop_reason;

typedef enum tern_drafter {
    TERN_DRAFTER_CHAINS = 0,
    TERN_DRAFTER_LOOKUP,
    TERN_DRAFTER_ONLINE,
    TERN_DRAFTER_MODEL,
    TERN_DRAFTER_CALLER,
    TERN_DRAFTER_COUNT
} tern_drafter;

typedef struct tern_draft_limits {    // for one answer; zero: as the session has it
    bool none;                        // no drafts
    bool without[TERN_DRAFTER_COUNT]; // drafters that are left out
    int32_t most, least;              // tokens of a draft; a shorter one is not computed
    float chance;                     // a draft ends before a guess whose like was right less often
} tern_draft_limits;

typedef struct tern_draft_stats { // zeros without speculation, except n_steps
    size_t n_steps;               // runs of the model for the answer
    size_t n_drafts;              // steps with a draft
    size_t n_drafted, n_accepted; // tokens
    size_t drafted_by[TERN_DRAFTER_COUNT], accepted_by[TERN_DRAFTER_COUNT];
    size_t accepted_length[TERN_DRAFT_MAX + 1]; // drafts by number of accepted tokens
    size_t drafted_length[TERN_DRAFT_MAX + 1];  // drafts by number of tokens
    size_t accepted_of[TERN_DRAFT_MAX + 1];     // accepted tokens by length of the draft
    size_t n_runs[TERN_DRAFT_MAX + 2];          // runs by number of tokens
    double run_seconds[TERN_DRAFT_MAX + 2];     // total time of these
    double draft_seconds;                       // time of the drafters
    double speedup; // compared with runs of one token, as timed in this session; 0: unknown
} tern_draft_stats;

typedef struct tern_generate_stats {
    size_t n_prompt, n_reused, n_generated; // tokens
    tern_stop_reason reason;
    size_t stop; // TERN_STOP_STRING: which of params.stops
    double prompt_seconds, generate_seconds;
    uint64_t seed; // the one that was used
    tern_draft_stats draft;
} tern_generate_stats;

// A session's generation in a group has ended. err->status is TERN_OK, or *err says why it failed;
// the other sessions go on. The session is free then: it may be added again, even from here, or
// closed.
typedef void (*tern_end_fn)(void *user, tern_session *session, const tern_generate_stats *stats,
                            const tern_error *err);

// Added to a token's logit before all else: -INFINITY excludes it.
typedef struct tern_logit_bias {
    int32_t id;
    float bias;
} tern_logit_bias;

// The scores of the next token, for a sampler or a logits processor of the caller's own.
typedef struct tern_logits {
    float *logits;      // [n_vocab] may be changed: -INFINITY excludes a token
    const int32_t *ids; // [n_ids] the timeline: the prompt and the answer so far
    size_t n_ids, n_generated;
    int32_t n_vocab;
} tern_logits;
#define TERN_LOGITS_SAMPLE (-1)
#define TERN_LOGITS_STOP   (-2)
// Called before each token is chosen, with the model's scores; tokens that a grammar excludes are
// at -INFINITY. Returns the token to take, or TERN_LOGITS_SAMPLE: `sampling` and the other params
// choose by the scores as they are now; or TERN_LOGITS_STOP: it ends with TERN_STOP_CALLER.
typedef int32_t (*tern_logits_fn)(void *user, const tern_logits *at);

typedef struct tern_generate_params {
    const tern_sampling *sampling; // NULL: tern_sampling_default()
    int32_t max_tokens;            // 0: until the model ends its text or the context is full;
                                   // below 0 is refused
    const char *const *stops;      // strings that end the answer and are not part of it
    size_t n_stops;
    bool ignore_end;        // go on after end tokens (for measurements)
    bool logprobs;          // keep each token's log-probability: see tern_session_token_logprobs
    int32_t n_top_logprobs; // with logprobs: how many of the most likely tokens to add; 0 to 20
    const tern_logit_bias *biases; // each token at most once; duplicates are refused
    size_t n_biases;
    bool with_special; // include the names of control tokens in the text: for tern_answer_put
    // After this many tokens of the prompt the session can be forked without computing them again,
    // as it can at the prompt's end; 0: only there. If tern_session_cuts_freely returns true, it
    // can be forked anywhere.
    int32_t fork_at;
    // Constrains the answer; NULL: anything. Text that the grammar determines completely is
    // appended without asking the model, unless logprobs are kept. The answer ends with
    // TERN_STOP_END where nothing can follow, even with ignore_end.
    tern_grammar *grammar;
    int32_t min_tokens;            // no end token and no stop token before this many
    const int32_t *stop_token_ids; // tokens that end the answer, as end tokens do
    size_t n_stop_token_ids;
    const int32_t *allowed_token_ids; // only these are chosen; none given: all
    size_t n_allowed_token_ids;
    // Texts that must not occur: the token that would complete one is not chosen. Each is tokenized
    // with and without a space before it; at most TERN_BAD_WORDS_MAX.
    const char *const *bad_words;
    size_t n_bad_words;
    // Texts at which repetitions end for DRY; NULL: "\n", ":", "\"", "*". At most
    // TERN_BREAKERS_MAX; only the first TERN_BREAKER_BYTES bytes of each count.
    const char *const *dry_sequence_breakers;
    size_t n_dry_sequence_breakers;
    tern_text_fn on_text; // receives whole characters as they are generated; NULL: none
    tern_end_fn on_end;   // for tern_group_add; elsewhere it is not called. NULL: none
    void *user;           // of all callbacks here
    // The ids, or the text, follow the session's timeline instead of replacing it; there may be
    // none. A text then begins without BOS, unless the timeline is empty.
    bool append;
    tern_progress_fn on_progress; // while the prompt is read; its phase is "prompt". NULL: none
    tern_logits_fn on_logits;     // NULL: none. Drafts of a device are off with it
    tern_draft_limits drafts;
} tern_generate_params;
#define TERN_TOP_LOGPROBS_MAX 20
#define TERN_BAD_WORDS_MAX    1024
#define TERN_BREAKERS_MAX     64
#define TERN_BREAKER_BYTES    40

// Continues the given ids; stats may be NULL. No other thread may use the session meanwhile, but
// on_text may return false at any time, and tern_session_cancel ends it, also while the prompt is
// read: with TERN_OK and TERN_STOP_CALLER.
TERN_API tern_status tern_generate_ids(tern_session *session, const int32_t *ids, size_t n_ids,
                                       const tern_generate_params *params,
                                       tern_generate_stats *stats, tern_error *err);
// The same from text: special tokens are recognised and the tokenizer's BOS is added.
TERN_API tern_status tern_generate(tern_session *session, const char *prompt,
                                   const tern_generate_params *params, tern_generate_stats *stats,
                                   tern_error *err);
// The ids that the last generation appended (not the prompt's).
TERN_API const int32_t *tern_session_generated(const tern_session *session, size_t *n_ids);

typedef struct tern_token_logprob {
    int32_t id;
    float logprob; // ln p by the model itself: no temperature, penalties or truncation
} tern_token_logprob;
// The log-probabilities of the last generation with params.logprobs, [n_tokens, n_each]: each token
// of the answer, followed by the most likely tokens at its position, in order; n_each is 1 +
// n_top_logprobs. NULL: not requested. May also be called in on_text; valid until the session is
// used again.
TERN_API const tern_token_logprob *tern_session_token_logprobs(const tern_session *session,
                                                               size_t *n_tokens, size_t *n_each);
// The same from a row of logits [n_vocab], as tern_session_logits gives it: out [n_each] gets `id`,
// then the n_each - 1 most likely tokens, in order; of equal ones the lower id comes first. What a
// small vocabulary leaves over gets `id`. Natural logarithms, from a sum in double; NaN if the row
// has a NaN. TERN_ERR_ARGUMENT: id is not a token. Any thread; allocates nothing.
TERN_API tern_status tern_rank_logprobs(const float *logits, int32_t n_vocab, int32_t id,
                                        tern_token_logprob *out, size_t n_each, tern_error *err);

// ---- Many sessions at once ----------------------------------------------------------------------

// A *group* generates for any number of sessions of one model, stepped together: in each step, each
// of them gets its next token (with a draft: tokens), and the weights are read once for all.
// Prompts are computed in pieces within these steps, in turn, so that a long one does not stall the
// others. Each session generates exactly what it would alone, to the bit. One thread at a time may
// use a group and the sessions that run in it; another group may share the model. examples/many.c
// shows it.
typedef struct tern_group tern_group;

typedef struct tern_group_desc {
    int32_t n_piece;   // at most this many prompt tokens per step while others wait for their next
                       // token; 0: measured: as many as make the step 70% longer, or 20 ms long; at
                       // first eight. An occasional step then has none, for comparison, and prompts
                       // may wait for each other, a tenth of a second at most: see
                       // tern_group_info.prompt_seconds
    int32_t n_reserve; // answer tokens whose memory is reserved when a session is added, 0: 256.
                       // Within these a step allocates nothing; longer answers do
} tern_group_desc;

TERN_API tern_status tern_group_open(tern_group **out, tern_model *model,
                                     const tern_group_desc *desc, tern_error *err);
// NULL is allowed. Cancels generations that are still running; the sessions stay open. In one of
// the group's callbacks, the group is closed when the running call returns.
TERN_API void tern_group_close(tern_group *group);
// Like tern_generate_ids, starting with the next step. Everything that the arguments point to is
// copied. May be called at any time, also in callbacks. Until its generation is over, the session
// can only be inspected (tern_session_generated and the like), forked, swapped out, cancelled, or
// closed (then on_end is not called). A session with desc.profile is refused.
TERN_API tern_status tern_group_add(tern_group *group, tern_session *session, const int32_t *ids,
                                    size_t n_ids, const tern_generate_params *params,
                                    tern_error *err);
// One step. Callbacks are called from here. *n_running (may be NULL) gets the number of sessions
// still generating. A session whose grammar takes long is left out until its next token is known;
// if all are, the step returns after some milliseconds with nothing computed. If it fails, nothing
// is lost: it may be called again, say with less memory in use.
TERN_API tern_status tern_group_step(tern_group *group, size_t *n_running, tern_error *err);
// The same for event loops, without waiting for the device: begin, then poll until *done. The CPU
// computes in begin and in poll. Moving to another device after a loss takes many polls; each binds
// about 16 MB of weights, or compiles a graph.
TERN_API tern_status tern_group_begin(tern_group *group, tern_error *err);
TERN_API tern_status tern_group_poll(tern_group *group, bool *done, size_t *n_running,
                                     tern_error *err);
// How long recent steps with answers took. 0: not known yet.
typedef struct tern_group_info {
    size_t n_running;
    int32_t n_piece;       // as in tern_group_desc, or as measured
    double step_seconds;   // of a step without prompts
    double row_seconds;    // that each prompt token adds
    double prompt_seconds; // that prompts add regardless of their length. If that is more than a
                           // quarter of a step, prompts wait until there is one for every eight
                           // answers
} tern_group_info;
// As of the last step.
TERN_API void tern_group_get_info(const tern_group *group, tern_group_info *info);

// A new session, with the same desc, whose timeline is the first n_tokens of another session's.
// Their common prefix (a system prompt, say) is computed and stored once. Fixed-size states
// (convolutions, delta nets) exist only at the timeline's end and at its last snapshots: elsewhere
// the fork computes the tokens since then, possibly all of them, again.
TERN_API tern_status tern_session_fork(tern_session **out, tern_session *from, size_t n_tokens,
                                       tern_error *err);
// Whether any prefix of its timeline can be forked without computing some of it again: false for
// models with fixed-size states or layers with a sliding window.
TERN_API bool tern_session_cuts_freely(const tern_session *session);
// Moves the session's keys and values to the host's memory, except those that are shared. They come
// back by themselves when the session is used.
TERN_API tern_status tern_session_swap_out(tern_session *session, tern_error *err);
// Bytes of its keys, values and other states on the device, a share of shared ones.
TERN_API uint64_t tern_session_bytes(const tern_session *session);

// ---- Saved sessions -----------------------------------------------------------------------------

// Writes a session's timeline to a file: its tokens, keys and values, other states, and the
// snapshots that it can go back to. The session must not be generating; it is not changed.
TERN_API tern_status tern_session_save(tern_session *session, const char *path, tern_error *err);
// Replaces the timeline by the one in the file, without computing it: the continuation has the same
// bits as if it had been computed. A file of another model (weights, adapters, arithmetic, type of
// keys and values, version of the library), or a damaged one, is refused; the session is then
// unchanged. A model's first save or load reads all its weights.
TERN_API tern_status tern_session_load(tern_session *session, const char *path, tern_error *err);
// The tokens of the timeline in a file that the session could load. The states are not read.
TERN_API tern_status tern_session_peek(tern_session *session, const char *path, tern_ids *out,
                                       tern_error *err);
// The same in memory: save passes the file's bytes to on_bytes, in pieces.
TERN_API tern_status tern_session_save_bytes(tern_session *session, tern_text_fn on_bytes,
                                             void *user, tern_error *err);
TERN_API tern_status tern_session_load_bytes(tern_session *session, const void *bytes,
                                             size_t n_bytes, tern_error *err);
// A number that identifies which saved files the session can load: for names of files and folders.
TERN_API tern_status tern_session_digest(tern_session *session, uint64_t *digest, tern_error *err);

// ---- Conversations ------------------------------------------------------------------------------

typedef struct tern_chat_limits {
    int32_t n_context; // tokens of prompt and answer together; 0: no limit
    int32_t n_answer;  // of these, for the answer; 0, and at most: a quarter
    size_t *n_dropped; // gets the number of messages that were left out, or NULL
} tern_chat_limits;
// The tokens of a conversation by the model's chat template, ending with the text that starts the
// model's answer. limits NULL: none. If a conversation exceeds them, whole turns are left out, the
// oldest first, with their images; system messages at the beginning and everything from the last
// user message on stay, and TERN_ERR_CONTEXT_FULL means that these alone are too long.
// TERN_ERR_ARGUMENT: also if the template does not show each image once. Thread-safe.
TERN_API tern_status tern_chat_tokens(const tern_model *model, const tern_message *messages,
                                      size_t n_messages, const tern_chat_limits *limits,
                                      tern_ids *out, tern_error *err);
// The same for a request in JSON, as tern_chat_format_json takes it, with tools, calls and results.
typedef struct tern_chat_request {
    const char *json;
    size_t n_bytes;
    // [n_images] those of its parts of the types "image", "image_url" and "input_image", in order.
    tern_image_tokens *const *images;
    size_t n_images;
} tern_chat_request;
TERN_API tern_status tern_chat_tokens_json(const tern_model *model,
                                           const tern_chat_request *request,
                                           const tern_chat_limits *limits, tern_ids *out,
                                           tern_error *err);

typedef struct tern_chat_stats {
    size_t n_dropped; // oldest messages that no longer fitted when the answer ended
    size_t n_cut;     // tokens at the start of a long answer that no longer fitted, either
    tern_generate_stats generate;
} tern_chat_stats;

// Answers the last message. The context never fills up: messages are left out by the rule above,
// also during the answer; when only the newest turn is left and the answer outgrows the context,
// the older half of the answer is left out, and generation continues. Pass all messages each time:
// the session does not recompute the tokens that it still has. max_tokens 0: until the model ends,
// at most ten times the context.
TERN_API tern_status tern_chat_answer(tern_session *session, const tern_message *messages,
                                      size_t n_messages, const tern_generate_params *params,
                                      tern_chat_stats *stats, tern_error *err);

// A conversation that owns its messages.
typedef struct tern_chat tern_chat;

TERN_API tern_status tern_chat_open(tern_chat **out, tern_error *err);
TERN_API void tern_chat_close(tern_chat *chat); // NULL is allowed
// Appends copies.
TERN_API tern_status tern_chat_add(tern_chat *chat, const char *role, const char *content,
                                   tern_error *err);
// Adds an image to the last message, which must not be a system message. The conversation keeps the
// encoding in the model as long as the message is there; `image` stays the caller's to close.
// Transcripts in files have the texts alone.
TERN_API tern_status tern_chat_add_image(tern_chat *chat, tern_image_tokens *image,
                                         tern_error *err);
// The system message at the beginning; NULL or "": none.
TERN_API tern_status tern_chat_set_system(tern_chat *chat, const char *content, tern_error *err);
TERN_API void tern_chat_cut(tern_chat *chat, size_t n_messages); // keeps the first n_messages
// Valid until the chat is changed.
TERN_API const tern_message *tern_chat_messages(const tern_chat *chat, size_t *n_messages);
// A transcript: Markdown if the path ends in .md, else a JSON array of {"role", "content"}. Both
// read back as the same bytes (text that is not valid UTF-8: from Markdown only).
TERN_API tern_status tern_chat_save(const tern_chat *chat, const char *path, tern_error *err);
// Replaces all messages; on failure they are unchanged. Also accepts an object with "messages".
TERN_API tern_status tern_chat_load(tern_chat *chat, const char *path, tern_error *err);

// ---- Memory ------------------------------------------------------------------------------------

typedef struct tern_heap {
    size_t heap_now, heap_max; // allocated by the library itself, without mapped files
    size_t process_max;        // peak resident size of the process, 0 if unknown
    uint64_t n_allocs;         // allocations since the program began
} tern_heap;
TERN_API tern_heap tern_heap_get(void);

#ifdef __cplusplus
}
#endif
#endif

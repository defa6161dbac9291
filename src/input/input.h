// Text to tokens and back, and chat templates.
#ifndef TERN_INPUT_INPUT_H
#define TERN_INPUT_INPUT_H

#include "base/status.h"
#include "base/strbuf.h"
#include "formats/formats.h"
#include "grammar/grammar.h"
#include "tern_tools.h"

// ---- Tokenizer: immutable after opening, any number of threads ----------------------------------

typedef struct tern_tokenizer tern_tokenizer;

#define TERN_ADDED_TOKEN_MAX 512 // bytes of a token that is matched in raw text

// From GGUF metadata (tokenizer.ggml.*) or a folder's tokenizer.json + tokenizer_config.json. The
// structure decides the kind, not the name: a "BPE" with byte_fallback or a " " -> U+2581
// normalizer is SentencePiece BPE.
tern_status tern_tokenizer_open(tern_tokenizer **out, const tern_file *file, tern_error *err);
void tern_tokenizer_free(tern_tokenizer *t);

int32_t tern_tokenizer_n_vocab(const tern_tokenizer *t);
// The same without entries at its end that only fill it up, "[PAD151669]".
int32_t tern_tokenizer_n_named(const tern_tokenizer *t);
int32_t tern_tokenizer_bos(const tern_tokenizer *t); // -1: none
int32_t tern_tokenizer_eos(const tern_tokenizer *t);
// From now on encoded texts end with eos, as embedding models that use the last token need it. No
// effect if texts end with a token already.
void tern_tokenizer_append_eos(tern_tokenizer *t);
// Cuts the ids of a text, encoded with TERN_TOKENIZE_BOS, to n_max, and keeps the tokens that end
// every text. Fails if there is no room for these.
tern_status tern_tokenizer_cut(const tern_tokenizer *t, int32_t *ids, size_t *n, size_t n_max,
                               tern_error *err);
bool tern_tokenizer_adds_bos(const tern_tokenizer *t);
bool tern_tokenizer_is_end(const tern_tokenizer *t, int32_t id); // eos, eot, eom, <|im_end|>, ...
// Its tokens for filling in (tok_infill.c).
void tern_tokenizer_infill(const tern_tokenizer *t, tern_infill_info *out);
// All end tokens, for lists; returns their number.
size_t tern_tokenizer_ends(const tern_tokenizer *t, const int32_t **ids);
bool tern_tokenizer_is_control(const tern_tokenizer *t, int32_t id);
bool tern_tokenizer_is_user(const tern_tokenizer *t, int32_t id); // matched before all splitting
// The entry as stored; {NULL, 0} if there is no such id. -1 if no entry has this text.
tern_str tern_tokenizer_text(const tern_tokenizer *t, int32_t id);
int32_t tern_tokenizer_find(const tern_tokenizer *t, tern_str text);

// In the library a tern_ids is a growing list: zeros at first, its ids are freed with tern_free.
// Appends. flags: tern_tokenize_flags of tern.h.
tern_status tern_tokenizer_encode(const tern_tokenizer *t, const char *text, size_t n_bytes,
                                  unsigned flags, tern_ids *out, tern_error *err);

// Appends the ids of a pair of texts, of at most n_max: the second one is cut to fit. Fails if the
// first one alone does not fit, or if the tokenizer has no form for pairs.
tern_status tern_tokenizer_encode_pair(const tern_tokenizer *t, tern_str first, tern_str second,
                                       size_t n_max, tern_ids *out, tern_error *err);

// Decoding as a stream: a state per text. Appends the bytes that id stands for; an incomplete
// character stays in the state.
typedef struct tern_decoder {
    char pending[8];
    uint8_t n_pending;
    bool started;      // SentencePiece drops one space in front of the first word; set it to
                       // decode from the middle of a text
    bool with_special; // also print the names of control tokens
    bool raw;          // bytes as they are, even if they are not valid UTF-8
} tern_decoder;
void tern_tokenizer_decode(const tern_tokenizer *t, tern_decoder *d, int32_t id, tern_strbuf *out);
void tern_tokenizer_decode_end(tern_decoder *d, tern_strbuf *out); // a cut character: U+FFFD

// The GGUF metadata of a tokenizer.json (used by conversion); arrays live as long as t.
typedef struct tern_tokenizer_export {
    const char *model, *pre; // "gpt2", "llama", "bert", "t5"; "llama-bpe", "qwen2", "default", ...
    const tern_str *tokens;  // [n_vocab] in GGUF spelling
    const float *scores;     // [n_vocab] or NULL
    const int32_t *types;    // [n_vocab] 1 normal, 2 unknown, 3 control, 4 user, 5 unused, 6 byte
    const tern_str *merges;  // [n_merges] "left right", or NULL
    size_t n_vocab, n_merges;
    int32_t bos, eos, eot, eom, unk, pad; // -1: none
    bool add_bos, add_eos, add_space_prefix;
    bool squeezes;     // "t5": several spaces become one
    tern_str charsmap; // sentencepiece's
} tern_tokenizer_export;
tern_status tern_tokenizer_export_gguf(const tern_tokenizer *t, tern_tokenizer_export *out,
                                       tern_error *err);
// The same as keys of a file. begin: the token that begins texts, and ends them if the tokenizer
// has no other; -1: the tokenizer's own.
tern_status tern_tokenizer_put_gguf(const tern_tokenizer *t, int32_t begin, tern_gguf_writer *w,
                                    tern_error *err);

// A hash of all entries' texts in order, to compare the vocabularies of two files.
uint64_t tern_tokenizer_hash(const tern_tokenizer *t);

// ---- Learning a vocabulary ----------------------------------------------------------------------

typedef struct tern_bpe_desc {
    int32_t n_vocab;             // number of tokens, at least 256 and the special ones
    const char *pre;             // GGUF's name of how text is split; NULL: "llama-bpe"
    const char *const *specials; // the first one begins and ends documents
    size_t n_specials;
    uint64_t min_count; // rarer pairs are not merged, 0: 2
    size_t n_bytes_max; // of memory for counting words, 0: 512 MiB
    bool no_bos;        // encoding puts nothing before a text
    tern_progress_fn on_progress;
    void *user;
} tern_bpe_desc;

typedef struct tern_bpe_trainer tern_bpe_trainer;
// The texts in desc must outlive the trainer.
tern_status tern_bpe_trainer_open(tern_bpe_trainer **out, const tern_bpe_desc *desc,
                                  tern_error *err);
// Counts the words of one text: a word never spans two texts.
tern_status tern_bpe_trainer_add(tern_bpe_trainer *t, const char *text, size_t n, tern_error *err);
// Learns from the added texts and appends a tokenizer.json. Call once.
tern_status tern_bpe_trainer_finish(tern_bpe_trainer *t, tern_strbuf *json, tern_error *err);
void tern_bpe_trainer_free(tern_bpe_trainer *t);

typedef struct tern_bpe_stats {
    uint64_t n_bytes; // of text
    uint64_t n_words; // words in it, and different ones:
    uint64_t n_different;
    uint64_t n_forgotten; // not counted for lack of memory
    uint64_t n_too_long;  // not counted, as they are longer than 1 KiB
    size_t n_tokens, n_merges;
} tern_bpe_stats;
tern_bpe_stats tern_bpe_trainer_stats(const tern_bpe_trainer *t);
// The same as the text of tokenizer.json and tokenizer_config.json, for byte-level vocabularies
// whose splitter has a name in GGUF and for those with scores; others are refused. chat_template
// {NULL, 0}: none.
tern_status tern_tokenizer_write_json(const tern_tokenizer *t, tern_str chat_template,
                                      tern_strbuf *json, tern_strbuf *config, tern_error *err);

// Whether `part` is in the text, whatever the case of either. An empty part always is.
tern_status tern_text_mentions(tern_str text, tern_str part, bool *out, tern_error *err);

// ---- Chat templates: the Jinja that models ship -------------------------------------------------

typedef struct tern_template tern_template;
// Parses a template; messages name line and reason.
tern_status tern_template_open(tern_template **out, tern_str source, tern_error *err);
// A template for other texts: error messages begin with `what`, which must outlive it, and writing
// an undefined variable is an error.
tern_status tern_template_open_text(tern_template **out, tern_str source, const char *what,
                                    tern_error *err);
// The same, with white space around tags as it is written: for the templates of evaluations.
tern_status tern_template_open_task(tern_template **out, tern_str source, const char *what,
                                    tern_error *err);
void tern_template_free(tern_template *t);
// Renders with `messages` and all members of `variables` (a JSON object, may be NULL: bos_token,
// eos_token, add_generation_prompt, tools, enable_thinking, strftime_now's date_string ...). Steps,
// depth and output size are capped. raise_exception() becomes TERN_ERR_ARGUMENT with the template's
// message.
tern_status tern_template_render(const tern_template *t, const char *variables_json,
                                 size_t variables_bytes, tern_strbuf *out, tern_error *err);
// The template for a model: `override` if not NULL, else the file's own, unless it is known to be
// wrong (BitNet's early converter); else a guess from the vocabulary and the model's name in the
// file. Never NULL on success.
tern_status tern_template_for_model(tern_template **out, const tern_file *file,
                                    const tern_tokenizer *tokenizer, const char *override,
                                    tern_error *err);
// A description of the guess; NULL: none, the template is the file's or the caller's. The text is
// not copied and must outlive the template.
const char *tern_template_guess(const tern_template *t);
void tern_template_set_guess(tern_template *t, const char *guess);
void tern_template_set_thinking(tern_template *t, tern_thinking thinking); // AUTO at first
tern_thinking tern_template_thinking(const tern_template *t);
// Renders a request: a JSON object as tern_chat_format_json takes it.
tern_status tern_template_chat_json(const tern_template *t, const tern_tokenizer *tokenizer,
                                    const char *request, size_t n_bytes, tern_strbuf *out,
                                    tern_error *err);
// Renders messages for the model; bos/eos names come from the tokenizer.
tern_status tern_template_chat(const tern_template *t, const tern_tokenizer *tokenizer,
                               const tern_message *messages, size_t n_messages,
                               bool add_generation_prompt, tern_strbuf *out, tern_error *err);

// ---- Answers: how a model's family writes reasoning and calls of tools --------------------------

typedef struct tern_answer_style {
    tern_calls body;
    const char *open, *close;             // around calls; close NULL: they end by themselves
    const char *quote;                    // around strings, if these have marks
    bool is_bare;                         // an answer that is a call may come without marks
    bool is_list;                         // of JSON and named ones: calls stand in brackets
    const char *think_open, *think_close; // around reasoning; NULL: the family writes none
    bool takes_tools, renders_calls;      // the template handles them
} tern_answer_style;

// Found from the template's source and the vocabulary (may be NULL).
tern_answer_style tern_answer_style_of(tern_str source, const tern_tokenizer *tokenizer);
const tern_answer_style *tern_template_answer_style(const tern_template *t);
void tern_template_set_answer_style(tern_template *t, tern_answer_style style);
// Whether the prompt ends with the mark, blanks aside; either may be NULL.
bool tern_answer_follows(const char *prompt, const char *mark);
// prompt: the text before the answer, which may have begun the reasoning; NULL: none. tools: a JSON
// array, NULL: calls are not looked for. A reader is used by one thread at a time.
tern_status tern_answer_create(tern_answer **out, const tern_answer_style *style,
                               const tern_tokenizer *tokenizer, const char *prompt,
                               const char *tools, tern_error *err);
// Calls let_go(owner) when the reader is closed: owner holds the strings of `style`.
void tern_answer_own(tern_answer *a, const void *owner, void (*let_go)(const void *owner));

#endif

// Internal interface of the tokenizer, shared by its files.
//
// A text takes this way (tok_encode.c):
//
//     bytes ─ repair ─→ UTF-8 ─ added tokens ─→ plain text ─ normalizer ─→ ─ added tokens ─→
//           ─ splitter ─→ words ─ symbols ─→ BPE ─→ ids
//
// WordPiece (BERT) and Unigram (T5, XLM-R) have no merges: tok_pieces.c. The rest is about BPE.
// There are two kinds of vocabulary. *Byte-level* ones spell each of the 256 bytes as a printable
// character (GPT-2's alphabet, tok_vocab.c) and begin a word as its bytes. *Character-level* ones,
// SentencePiece's, write a space as U+2581 and begin a word as its characters; characters that are
// not in the vocabulary become bytes <0xNN> or the unknown token. Merging is driven either by a
// list of merges, or (GGUF files of SentencePiece models) by scores: any two neighbours whose
// joined text is a token can merge, the highest score first.
#ifndef TERN_INPUT_TOKENIZER_TOK_H
#define TERN_INPUT_TOKENIZER_TOK_H

#include <stdatomic.h>
#include "input/input.h"
#include "input/tokenizer/bpe.h"
#include "input/tokenizer/split/split.h"
#include "input/unicode.h"

#define TERN_SPACE_MARK "\xE2\x96\x81" // U+2581, SentencePiece's space
#define TERN_VOCAB_MAX  (1 << 22)      // most ids, and most bytes of one token, that are accepted
#define TERN_TEXT_MAX   (1 << 30)      // bytes of one text

// Prefix, suffix, middle, pad, repository, separator: marks of the parts of a prompt for filling
// in.
#define TERN_INFILL_TOKENS 6

// ---- Vocabulary ---------------------------------------------------------------------------------

typedef enum tern_token_type { // GGUF's numbers
    TERN_TOKEN_NONE = 0,       // no such id
    TERN_TOKEN_NORMAL,
    TERN_TOKEN_UNKNOWN,
    TERN_TOKEN_CONTROL,
    TERN_TOKEN_USER, // added by hand, matched in the text before anything else
    TERN_TOKEN_UNUSED,
    TERN_TOKEN_BYTE,
} tern_token_type;

typedef struct tern_vocab_slot {
    uint32_t hash, id_1; // id + 1; 0: free
} tern_vocab_slot;

typedef struct tern_vocab {
    char *text;        // all entries, one after the other
    uint32_t *offsets; // [n + 1] of each in text
    uint8_t *types;    // [n] tern_token_type
    int32_t n;
    tern_vocab_slot *slots; // text -> id; if two ids share a text, the greater id
    size_t n_slots;         // a power of two, at least twice n
} tern_vocab;

// Copies texts and types, [n].
tern_status tern_vocab_init(tern_vocab *v, const tern_str *texts, const uint8_t *types, int32_t n,
                            tern_error *err);
void tern_vocab_deinit(tern_vocab *v);
int32_t tern_vocab_find(const tern_vocab *v, const char *text, size_t n); // -1: none
// The same for plain text, which never becomes a control, unknown or byte token.
int32_t tern_vocab_find_plain(const tern_vocab *v, const char *text, size_t n);
// The two halves of tern_vocab_find. The vocabulary must have been initialised.
uint32_t tern_vocab_hash(const char *text, size_t n);
int32_t tern_vocab_find_hashed(const tern_vocab *v, uint32_t hash, const char *text, size_t n);
static inline tern_str tern_vocab_text(const tern_vocab *v, int32_t id) {
    return (tern_str){v->text + v->offsets[id], v->offsets[id + 1] - v->offsets[id]};
}

// GPT-2's alphabet: printable bytes are themselves (as Latin-1), the others are the characters from
// U+0100 on, in order.
uint32_t tern_alphabet_char(uint8_t byte);
int tern_alphabet_byte(uint32_t code); // -1: not in it
void tern_alphabet_spell(tern_strbuf *out, const char *bytes, size_t n);

// "<0x0A>" -> 10; -1: not of this form.
int tern_byte_token_value(tern_str text);

// ---- Normalizer ---------------------------------------------------------------------------------

typedef enum tern_norm_kind {
    TERN_NORM_FORM,
    TERN_NORM_REPLACE, // replaces matches of `pattern` by `content`
    TERN_NORM_PREPEND, // `content` in front of a text that is not empty
    TERN_NORM_LOWER,
    TERN_NORM_STRIP,
    TERN_NORM_CLEAN,    // BERT's: no controls, any white space is a space
    TERN_NORM_PAD_HAN,  // a space on each side of a Chinese character
    TERN_NORM_NO_MARKS, // removes combining marks; `left`: only nonspacing ones
    TERN_NORM_SQUEEZE,  // strips spaces at both ends, and merges several to one
    TERN_NORM_CHARSMAP, // sentencepiece's table, `content` (tok_charsmap.c)
} tern_norm_kind;

typedef struct tern_norm_step {
    tern_norm_kind kind;
    tern_normal_form form;
    tern_pattern pattern;
    char *content;
    size_t n_content;
    bool left, right; // STRIP: at which ends
} tern_norm_step;

#define TERN_NORM_STEPS_MAX 16
typedef struct tern_normalizer {
    tern_norm_step steps[TERN_NORM_STEPS_MAX];
    int n_steps;
} tern_normalizer;

tern_status tern_normalizer_add(tern_normalizer *z, tern_norm_kind kind, tern_str content,
                                tern_norm_step **step, tern_error *err);
// BERT's normalizer as steps.
tern_status tern_normalizer_add_bert(tern_normalizer *z, bool clean, bool pad_han, bool no_accents,
                                     bool lower, tern_error *err);
// sentencepiece's precompiled_charsmap: a table of replacements for stretches of text. It is
// checked; 64: from JSON in base64. An empty table adds no step.
tern_status tern_normalizer_add_charsmap(tern_normalizer *z, tern_str bytes, tern_error *err);
tern_status tern_normalizer_add_charsmap64(tern_normalizer *z, tern_str text, tern_error *err);
// Appends the text after replacements: at each place the longest stretch in the table counts.
void tern_charsmap_run(const tern_norm_step *s, const char *text, size_t n, tern_strbuf *out);
void tern_normalizer_close(tern_normalizer *z);
// Replaces *text, *n by its normal form, which is in one of the two buffers or in place.
tern_status tern_normalizer_run(const tern_normalizer *z, tern_matcher *m, tern_strbuf buffers[2],
                                const char **text, size_t *n, tern_error *err);

// ---- Added tokens -------------------------------------------------------------------------------

typedef struct tern_added_token {
    tern_str text; // what to find
    int32_t id;
    bool special, single_word, lstrip, rstrip;
} tern_added_token;

typedef struct tern_added { // sorted by text
    tern_added_token *tokens;
    size_t n, capacity;
    uint32_t first_bytes[8]; // a bit for each first byte
} tern_added;

// Copies token->text.
tern_status tern_added_push(tern_added *a, const tern_added_token *token, tern_error *err);
void tern_added_sort(tern_added *a); // once, after the last push
void tern_added_free(tern_added *a);
// Finds the first added token from `from` on, the longest one there; start = len: none. Special
// tokens count only if `special`. The span includes white space that the token strips.
const tern_added_token *tern_added_find(const tern_added *a, bool special, tern_str text,
                                        size_t from, tern_match_span *out);

// ---- WordPiece and Unigram (tok_pieces.c) -------------------------------------------------------

typedef enum tern_token_model {
    TERN_TOKENS_BPE,
    TERN_TOKENS_WORDPIECE, // the longest token at the start of a word, and so on
    TERN_TOKENS_UNIGRAM,   // the tokens with the greatest sum of scores
} tern_token_model;

#define TERN_AFFIX_MAX 16 // bytes
typedef struct tern_wordpiece {
    char first[TERN_AFFIX_MAX], rest[TERN_AFFIX_MAX]; // before a word's first token and the others:
                                                      // "" and "##"; in GGUF U+2581 and ""
    size_t n_first, n_rest;
    size_t max_chars; // of a word; a longer word is the unknown token
    bool cleans_up;   // decoding: no space before . ? ! and ,
} tern_wordpiece;

#define TERN_UNIGRAM_MAX 1024 // bytes of a token
typedef struct tern_unigram {
    double *scores;  // [n_vocab]
    int32_t *sorted; // [n_sorted] ids of tokens that text may become, sorted by bytes
    int32_t n_sorted;
    int32_t starts[257]; // those that begin with byte b: starts[b] .. starts[b + 1]
    double unknown;      // the score of a character that is not a token
} tern_unigram;

typedef struct tern_lattice { // a place in a text, and the best way to it
    double score;
    uint32_t from; // where the last token begins
    int32_t id;    // of the last token; -1: unknown
} tern_lattice;

// Scratch for encoding a text; zero-initialise, free with tern_piece_scratch_free.
typedef struct tern_piece_scratch {
    tern_strbuf text;
    tern_lattice *places;
    size_t capacity;
} tern_piece_scratch;
void tern_piece_scratch_free(tern_piece_scratch *s);

// ---- Tokenizer ----------------------------------------------------------------------------------

#define TERN_ENDS_MAX  32
#define TERN_FRAME_MAX 8

typedef struct tern_export_store tern_export_store;

struct tern_tokenizer {
    tern_vocab vocab;
    tern_merges merges;
    uint32_t *orders; // [n_vocab] the order of a merge into this token; NULL: no scores
    tern_token_model model;
    tern_wordpiece wordpiece;
    tern_unigram unigram;
    bool byte_level, byte_fallback, fuse_unk, ignore_merges;
    int32_t byte_ids[256]; // the token of a byte, -1: none
    int32_t bos, eos, unk, pad;
    int32_t infill[TERN_INFILL_TOKENS]; // as the file names them (tok_infill.c); -1: it does not
    tern_normalizer normalizer;
    tern_splitter splitter;
    tern_added added[2]; // looked for before and after normalization
    // Character-level: bit c % 512 is set if some token has the character c right before a U+2581.
    // If the bit is not set, no merge can join the two, so words may be cut there.
    uint32_t glued[16];
    bool space_marks; // decoding: U+2581 is a space
    bool strip_space; // decoding: one space at the start of the text is dropped
    int32_t prefix[TERN_FRAME_MAX], suffix[TERN_FRAME_MAX]; // added by TERN_TOKENIZE_BOS
    int n_prefix, n_suffix;
    int32_t between[TERN_FRAME_MAX]; // ids between the two texts of a pair
    int n_between;
    int32_t ends[TERN_ENDS_MAX];
    size_t n_ends;
    const char *pre;                       // GGUF's name of the pattern, NULL: none
    int32_t n_model_vocab;                 // rows of the embedding by config.json, 0: not known
    _Atomic(tern_export_store *) exported; // made on first use
};

tern_status tern_tokenizer_load_json(tern_tokenizer *t, const tern_file *file, tern_error *err);
tern_status tern_tokenizer_load_gguf(tern_tokenizer *t, const tern_file *file, tern_error *err);
// sentencepiece's .model, a protocol buffer (tok_spm.c).
tern_status tern_tokenizer_load_spm(tern_tokenizer *t, const tern_file *file, tern_error *err);
// Properties of sentencepiece models, the same in all containers.
typedef struct tern_spm_desc {
    bool unigram, space_prefix, squeeze;
    tern_str charsmap;
} tern_spm_desc;
tern_status tern_tokenizer_add_spm_steps(tern_tokenizer *t, const tern_spm_desc *d,
                                         tern_error *err);
// Sets the scores of all tokens, [n_vocab]: of a Unigram, or as the orders of merges.
tern_status tern_tokenizer_set_scores(tern_tokenizer *t, const tern_spm_desc *d,
                                      const float *scores, tern_error *err);
float tern_score_of_order(uint32_t order); // the score that has this order
// Sets the prefixes of a WordPiece vocabulary; they must be short.
tern_status tern_wordpiece_init(tern_wordpiece *w, tern_str first, tern_str rest, int64_t max_chars,
                                tern_error *err);
// Indexes the vocabulary of t, whose scores are set.
tern_status tern_unigram_init(tern_tokenizer *t, tern_error *err);
void tern_unigram_free(tern_unigram *u);
// Append the ids of a word, and of a stretch of text.
tern_status tern_wordpiece_encode(const tern_tokenizer *t, const char *word, size_t n,
                                  tern_piece_scratch *scratch, tern_ids *out, tern_error *err);
tern_status tern_unigram_encode(const tern_tokenizer *t, const char *text, size_t n,
                                tern_piece_scratch *scratch, tern_ids *out, tern_error *err);
// "normalizer" and "pre_tokenizer" (tok_json_split.c) of a tokenizer.json; value
// may be NULL.
tern_status tern_tokenizer_json_normalizer(tern_tokenizer *t, const tern_json_doc *doc,
                                           const tern_json *value, tern_error *err);
tern_status tern_tokenizer_json_splitter(tern_tokenizer *t, const tern_json_doc *doc,
                                         const tern_json *value, tern_error *err);
// Control, unknown and user tokens of the vocabulary are found in raw text (tok_gguf.c).
tern_status tern_tokenizer_add_specials(tern_tokenizer *t, tern_error *err);
// Sets byte_ids and glued from the vocabulary.
void tern_tokenizer_index_bytes(tern_tokenizer *t);
void tern_tokenizer_add_end(tern_tokenizer *t, int64_t id); // ignores ids that do not exist
void tern_tokenizer_add_known_ends(tern_tokenizer *t);
bool tern_tokenizer_is_known_end(const tern_tokenizer *t, int32_t id);
void tern_export_store_free(tern_export_store *s);

// Merges given as texts: add them all, then flush, then free `text` (tok_merges.c).
#define TERN_MERGE_BATCH 64
typedef struct tern_merge_text {
    size_t at, n_left, n_right; // bytes of `text`: left, then right
    uint32_t order, hash[3];    // of left, right, both
    int32_t id[3];
} tern_merge_text;
typedef struct tern_merge_batch {
    tern_tokenizer *t; // its table of merges has room for all
    bool strict;       // texts that are not tokens are an error; else they are skipped
    int n;
    tern_merge_text list[TERN_MERGE_BATCH];
    tern_strbuf text;
} tern_merge_batch;
tern_status tern_merge_batch_add(tern_merge_batch *b, tern_str left, tern_str right, uint32_t order,
                                 tern_error *err);
tern_status tern_merge_batch_flush(tern_merge_batch *b, tern_error *err);

// tokenizer.json: its "post_processor" (tok_write.c); all of it, for a vocabulary with scores
// (tok_write_scores.c).
void tern_json_put_frame(const tern_tokenizer *t, tern_strbuf *out);
void tern_pieces_write_json(const tern_tokenizer *t, tern_strbuf *out); // tok_write_pieces.c
tern_status tern_scores_write_json(const tern_tokenizer *t, tern_strbuf *out, tern_error *err);

// GGUF's tokenizer.ggml.pre (tok_pre.c).
typedef struct tern_pre {
    const char *name;
    bool ignore_merges, adds_bos;
    const char *expressions[6]; // one isolating split each
} tern_pre;
const tern_pre *tern_pre_find(tern_str name); // NULL: not known
bool tern_pre_is_raw(const tern_pre *pre);    // of characters, with U+2581 for a space
// The name for a list of isolating expressions, NULL: none.
const char *tern_pre_name(const tern_splitter *s, bool ignore_merges);
tern_status tern_pre_add_steps(const tern_pre *pre, tern_splitter *s, tern_error *err);

// ---- A byte-level vocabulary as input/learn makes it --------------------------------------------

typedef struct tern_learned {
    tern_strbuf text; // of all tokens, as bytes
    size_t *offsets;  // [n_tokens + 1]
    uint32_t *merges; // [n_merges][2] left and right
    size_t n_tokens, n_merges, offsets_capacity, merges_capacity, n_specials;
} tern_learned;

static inline tern_str tern_learned_text(const tern_learned *l, size_t id) {
    return (tern_str){l->text.ptr + l->offsets[id], l->offsets[id + 1] - l->offsets[id]};
}
// Appends it as a tokenizer.json that splits text by `pre` (tok_write.c).
void tern_learned_write_json(const tern_learned *l, const tern_pre *pre, bool add_bos,
                             tern_strbuf *out);

#endif

// Whisper files of whisper.cpp's converters ("ggml-tiny.bin"): sizes, mel filters, the vocabulary,
// then tensors one after the other, each after its name. They are opened like an equivalent GGUF:
// keys and names here are those of models/media/whisper.c.
//
//     u32 magic, i32 sizes[11], i32 n_mels, i32 n_bins, f32 filters[n_mels][n_bins],
//     i32 n_words, n_words times: i32 length, bytes
//     until the end: i32 n_dims, i32 length of the name, i32 type, i32 ne[n_dims], name, data
//
// Words are bytes; in GGUF they are characters that stand for bytes. The filters depend only on the
// number of bins, and media/mel.c computes them. Data may be unaligned: it is copied when held.
#include "formats/file_private.h"

#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/utf8.h"

#define MAGIC      0x67676d6cu
#define N_BINS     201 // of the spectrum of a frame
#define MELS_MAX   512
#define VOCAB_MAX  (1 << 20)
#define WORD_MAX   4096
#define NAME_BYTES 128
#define METAS_MAX  20
#define N_ENGLISH  51864 // tokens of the models for English alone; others have more
#define QUANTIZED  2     // version of block formats, as in GGUF
#define TYPES_F16  1     // the type of a file without blocks is at most this

enum {
    VOCAB,
    SOURCE,
    STATE,
    HEADS,
    LAYERS,
    CONTEXT,
    TEXT_STATE,
    TEXT_HEADS,
    TEXT_LAYERS,
    MELS,
    TYPE,
    N_SIZES
};

typedef struct reader {
    const tern_blob *all;
    tern_file *file;
    tern_error *err;
    uint64_t at;
    int32_t size[N_SIZES];
    int32_t n_words, end; // number of words in the file; the end token
    int64_t n_ff;         // of the decoder's first layer
    int64_t space;        // the token " ", -1: there is none
    tern_str *tokens;     // [VOCAB]
} reader;

// ---- Bytes -------------------------------------------------------------------------------------

static uint64_t left(const reader *r) { return r->all->n - r->at; }

static tern_status take(reader *r, void *to, uint64_t n, const char *what) {
    if (n > left(r))
        return tern_fail(
            r->err, TERN_ERR_FORMAT, "%s: %llu bytes at byte %llu of %llu (is the file cut off?)",
            what, (unsigned long long)n, (unsigned long long)r->at, (unsigned long long)r->all->n);
    TERN_TRY(tern_blob_read(r->all, r->at, n, to, r->err));
    r->at += n;
    return TERN_OK;
}

static tern_status take_int(reader *r, int32_t least, int32_t most, int32_t *out,
                            const char *what) {
    TERN_TRY(take(r, out, sizeof *out, what));
    if (*out >= least && *out <= most) return TERN_OK;
    return tern_fail(r->err, TERN_ERR_FORMAT, "%s in front of byte %llu is %d: expected %d to %d",
                     what, (unsigned long long)r->at, (int)*out, (int)least, (int)most);
}

bool tern_whisper_bin_is(const tern_blob *all) {
    uint32_t magic = 0;
    return all->n >= sizeof magic &&
           tern_blob_read(all, 0, sizeof magic, &magic, NULL) == TERN_OK && magic == MAGIC;
}

// ---- The header --------------------------------------------------------------------------------

static tern_status read_sizes(reader *r) {
    static const struct {
        const char *name;
        int32_t least, most;
    } sizes[N_SIZES] = {
        {"the number of tokens", 16, VOCAB_MAX}, {"the number of rows of a window", 1, 65536},
        {"the encoder's width", 1, 65536},       {"the encoder's heads", 1, 4096},
        {"the encoder's layers", 1, 1000},       {"the length of a text", 1, 65536},
        {"the decoder's width", 1, 65536},       {"the decoder's heads", 1, 4096},
        {"the decoder's layers", 1, 1000},       {"the number of mel bins", 1, MELS_MAX},
        {"the type of the file", 0, 1 << 20}};
    for (int i = 0; i < N_SIZES; i++)
        TERN_TRY(take_int(r, sizes[i].least, sizes[i].most, &r->size[i], sizes[i].name));
    if (r->size[STATE] != r->size[TEXT_STATE] || r->size[HEADS] != r->size[TEXT_HEADS])
        return tern_fail(r->err, TERN_ERR_UNSUPPORTED,
                         "an encoder of %d columns and %d heads and a decoder of %d and %d: they "
                         "have to be the same",
                         (int)r->size[STATE], (int)r->size[HEADS], (int)r->size[TEXT_STATE],
                         (int)r->size[TEXT_HEADS]);
    return TERN_OK;
}

static tern_status skip_filters(reader *r) {
    int32_t n_mels, n_bins;
    TERN_TRY(take_int(r, r->size[MELS], r->size[MELS], &n_mels, "the filters' number"));
    TERN_TRY(take_int(r, N_BINS, N_BINS, &n_bins, "the filters' length"));
    uint64_t n = (uint64_t)n_mels * (uint64_t)n_bins * sizeof(float);
    if (n > left(r))
        return tern_fail(r->err, TERN_ERR_FORMAT,
                         "the filters: %llu bytes of %llu (is the file cut off?)",
                         (unsigned long long)n, (unsigned long long)left(r));
    r->at += n;
    return TERN_OK;
}

// ---- The vocabulary ----------------------------------------------------------------------------

// GPT-2's vocabularies write these bytes as themselves; the others become characters from 256 on,
// in order.
static uint32_t character_of(uint8_t byte) {
    uint32_t n = 0;
    for (uint32_t b = 0; b <= byte; b++) {
        bool is_own = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        if (b == byte) return is_own ? b : 256 + n;
        n += !is_own;
    }
    return 0;
}

static tern_status set_token(reader *r, int32_t id, tern_str text) {
    const char *copy = tern_arena_text(&r->file->priv->pool, text);
    if (!copy) return tern_fail_memory(r->err, text.len + 1);
    r->tokens[id] = (tern_str){copy, text.len};
    return TERN_OK;
}

static tern_status read_word(reader *r, int32_t id) {
    int32_t n;
    uint8_t bytes[WORD_MAX];
    char text[2 * WORD_MAX];
    size_t n_text = 0;
    TERN_TRY(take_int(r, 0, WORD_MAX, &n, "the length of a word"));
    TERN_TRY(take(r, bytes, (uint64_t)n, "a word"));
    for (int32_t i = 0; i < n; i++)
        n_text += (size_t)tern_utf8_encode(character_of(bytes[i]), text + n_text);
    if (n == 1 && bytes[0] == ' ') r->space = id;
    return set_token(r, id, (tern_str){text, n_text});
}

// Special tokens, as far as they must be distinguished: named as in transformers, if the names are
// the same in all models.
static tern_status name_specials(reader *r) {
    static const char *const tasks[] = {"<|translate|>",   "<|transcribe|>", "<|startoflm|>",
                                        "<|startofprev|>", "<|nospeech|>",   "<|notimestamps|>"};
    int32_t n_vocab = r->size[VOCAB], first_time = n_vocab - r->size[SOURCE] - 1;
    for (int32_t id = r->n_words < r->end ? r->n_words : r->end; id < n_vocab; id++) {
        char name[64];
        int32_t task = id - (first_time - 6);
        if (id < r->end)
            snprintf(name, sizeof name, "<|extra %d|>", (int)id);
        else if (id == r->end)
            snprintf(name, sizeof name, "<|endoftext|>");
        else if (id == r->end + 1)
            snprintf(name, sizeof name, "<|startoftranscript|>");
        else if (id >= first_time)
            snprintf(name, sizeof name, "<|%.2f|>", (double)(id - first_time) * 0.02);
        else if (task >= 0)
            snprintf(name, sizeof name, "%s", tasks[task]);
        else
            snprintf(name, sizeof name, "<|language %d|>", (int)(id - r->end - 2));
        TERN_TRY(set_token(r, id, (tern_str){name, strlen(name)}));
    }
    return TERN_OK;
}

static tern_status read_words(reader *r) {
    size_t n_vocab = (size_t)r->size[VOCAB];
    TERN_TRY(take_int(r, 1, r->size[VOCAB], &r->n_words, "the number of words"));
    r->end = r->size[VOCAB] > N_ENGLISH ? 50257 : r->size[VOCAB] == N_ENGLISH ? 50256 : r->n_words;
    if (r->end + 8 > r->size[VOCAB] - r->size[SOURCE] - 1)
        return tern_fail(r->err, TERN_ERR_FORMAT,
                         "%d words and times of %d rows do not fit %d tokens", (int)r->end,
                         (int)r->size[SOURCE], (int)r->size[VOCAB]);
    r->tokens = tern_arena_take(&r->file->priv->pool, n_vocab * sizeof *r->tokens);
    if (!r->tokens) return tern_fail_memory(r->err, n_vocab * sizeof *r->tokens);
    for (int32_t i = 0; i < r->n_words; i++) TERN_TRY(read_word(r, i));
    return name_specials(r);
}

// ---- Metadata ----------------------------------------------------------------------------------

static tern_status put(reader *r, tern_meta meta, const void *data, size_t n_data) {
    void *copy = tern_arena_take(&r->file->priv->pool, n_data + 1);
    if (!copy) return tern_fail_memory(r->err, n_data);
    if (n_data) memcpy(copy, data, n_data);
    meta.data = copy;
    r->file->metas[r->file->n_metas++] = meta;
    return TERN_OK;
}

static tern_status put_int(reader *r, const char *key, int64_t value) {
    uint32_t u = (uint32_t)value;
    return put(r, (tern_meta){.key = key, .type = TERN_META_U32, .n = 1}, &u, sizeof u);
}

static tern_status put_str(reader *r, const char *key, const char *text) {
    return put(r, (tern_meta){.key = key, .type = TERN_META_STRING, .n = strlen(text)}, text,
               strlen(text));
}

static tern_status put_ids(reader *r, const char *key, const int32_t *ids, size_t n) {
    return put(
        r, (tern_meta){.key = key, .type = TERN_META_ARRAY, .element_type = TERN_META_I32, .n = n},
        ids, n * sizeof *ids);
}

static tern_status put_strings(reader *r, const char *key, const tern_str *list, size_t n) {
    return put(r,
               (tern_meta){.key = key,
                           .type = TERN_META_ARRAY,
                           .element_type = TERN_META_STRING,
                           .n = n,
                           .strings = list},
               NULL, 0);
}

// As in OpenAI's program, a text may begin neither with a space nor with the end token.
static tern_status put_tokens(reader *r) {
    int32_t first[2], n_first = 0;
    if (r->space >= 0 && r->space < r->end) first[n_first++] = (int32_t)r->space;
    first[n_first++] = r->end;
    TERN_TRY(put_ids(r, "whisper.suppress_tokens", NULL, 0));
    TERN_TRY(put_ids(r, "whisper.begin_suppress_tokens", first, (size_t)n_first));
    TERN_TRY(put_str(r, "tokenizer.ggml.model", "gpt2"));
    TERN_TRY(put_str(r, "tokenizer.ggml.pre", "gpt-2"));
    TERN_TRY(put_strings(r, "tokenizer.ggml.tokens", r->tokens, (size_t)r->size[VOCAB]));
    TERN_TRY(put_strings(r, "tokenizer.ggml.merges", r->tokens, 0)); // it only decodes
    return put_int(r, "tokenizer.ggml.eos_token_id", r->end);
}

static tern_status put_metas(reader *r) {
    const struct {
        const char *key;
        int64_t value;
    } numbers[] = {{"whisper.block_count", r->size[TEXT_LAYERS]},
                   {"whisper.embedding_length", r->size[STATE]},
                   {"whisper.feed_forward_length", r->n_ff},
                   {"whisper.attention.head_count", r->size[HEADS]},
                   {"whisper.context_length", r->size[CONTEXT]},
                   {"whisper.vocab_size", r->size[VOCAB]},
                   {"whisper.encoder.block_count", r->size[LAYERS]},
                   {"whisper.encoder.context_length", r->size[SOURCE]},
                   {"whisper.mel_bins", r->size[MELS]},
                   {"whisper.decoder_start_token_id", r->end + 1},
                   {"whisper.decoder_end_token_id", r->end},
                   {"whisper.multilingual", r->size[VOCAB] > N_ENGLISH}};
    tern_file *f = r->file;
    f->metas = tern_alloc_array(TERN_MEM_FILE, METAS_MAX, sizeof *f->metas);
    if (!f->metas) return tern_fail_memory(r->err, METAS_MAX * sizeof *f->metas);
    TERN_TRY(put_str(r, "general.architecture", "whisper"));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        TERN_TRY(put_int(r, numbers[i].key, numbers[i].value));
    TERN_TRY(put_tokens(r));
    return tern_name_index_build(&f->priv->meta_index, f->metas, f->n_metas, sizeof *f->metas,
                                 "metadata key", r->err);
}

// ---- Tensors -----------------------------------------------------------------------------------

// "NAME" or "NAME.weight", "NAME.bias"; names within layers come after "encoder.blocks.N.".
static const char *const names[][2] = {
    {"attn_ln", "attn_norm"},
    {"attn.query", "attn_q"},
    {"attn.key", "attn_k"},
    {"attn.value", "attn_v"},
    {"attn.out", "attn_output"},
    {"cross_attn_ln", "cross_attn_norm"},
    {"cross_attn.query", "cross_attn_q"},
    {"cross_attn.key", "cross_attn_k"},
    {"cross_attn.value", "cross_attn_v"},
    {"cross_attn.out", "cross_attn_output"},
    {"mlp_ln", "ffn_norm"},
    {"mlp.0", "ffn_up"},
    {"mlp.2", "ffn_down"},
    {"conv1", "conv1"},
    {"conv2", "conv2"},
    {"ln_post", "output_norm"},
    {"ln", "output_norm"},
    {"positional_embedding", "position_embd.weight"},
    {"token_embedding", "token_embd"},
};

// The name in models/media/whisper.c; false: not one of Whisper's.
static bool rename_tensor(const char *name, char *out, size_t size) {
    bool encoder = strncmp(name, "encoder.", 8) == 0;
    if (!encoder && strncmp(name, "decoder.", 8) != 0) return false;
    const char *rest = name + 8, *side = encoder ? "enc." : "";
    char layer[24] = "";
    if (strncmp(rest, "blocks.", 7) == 0) {
        size_t n = strspn(rest + 7, "0123456789");
        if (n < 1 || n > 4 || rest[7 + n] != '.') return false;
        snprintf(layer, sizeof layer, "blk.%.*s.", (int)n, rest + 7);
        rest += 7 + n + 1;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t n = strlen(names[i][0]);
        if (strncmp(rest, names[i][0], n) != 0) continue;
        const char *end = rest + n;
        if (*end && strcmp(end, ".weight") != 0 && strcmp(end, ".bias") != 0) continue;
        int written = snprintf(out, size, "%s%s%s%s", side, layer, names[i][1], end);
        return written > 0 && (size_t)written < size;
    }
    return false;
}

typedef struct copied {
    tern_blob_maker maker; // the first member
    tern_blob from;
} copied;

static tern_status make_copy(const tern_blob_maker *m, uint64_t first, uint64_t n, void *to,
                             tern_error *err) {
    return tern_blob_read(&((const copied *)m)->from, first, n, to, err);
}

static void drop_copied(const tern_blob_maker *m) { tern_blob_drop(&((const copied *)m)->from); }

static tern_status place_tensor(reader *r, tern_tensor *t, const char *name) {
    if (left(r) < t->bytes)
        return tern_fail(
            r->err, TERN_ERR_FORMAT,
            "tensor '%s' leaves the file: %llu bytes at %llu of %llu (is the file cut off?)", name,
            (unsigned long long)t->bytes, (unsigned long long)r->at, (unsigned long long)r->all->n);
    copied *c = tern_arena_take(&r->file->priv->pool, sizeof *c);
    if (!c) return tern_fail_memory(r->err, sizeof *c);
    *c = (copied){{make_copy, drop_copied}, tern_blob_part(r->all, r->at, t->bytes)};
    t->data = tern_blob_made(&c->maker, t->bytes);
    r->at += t->bytes;
    return TERN_OK;
}

// Merges a convolution's taps and columns into one dimension, and makes its bias a vector.
static void flatten(tern_tensor *t) {
    bool is_column = t->n_dims == 2 && t->ne[0] == 1;
    if (t->n_dims == 3) t->ne[0] *= t->ne[1];
    if (t->n_dims == 3) t->ne[1] = t->ne[2];
    if (is_column) t->ne[0] = t->ne[1];
    if (is_column) t->ne[1] = 1;
    if (is_column || t->n_dims == 3) t->n_dims--;
    t->ne[2] = 1;
}

// Sets the type and the number of bytes.
static tern_status settle_type(reader *r, tern_tensor *t, const char *name) {
    uint64_t n = t->ne[0] * t->ne[1] * t->ne[2]; // of three ints up to 2^20: no overflow
    bool in_blocks = t->type_id > TYPES_F16;
    if (in_blocks && r->size[TYPE] / 1000 != QUANTIZED)
        return tern_fail(r->err, TERN_ERR_UNSUPPORTED,
                         "tensor '%s': the file's blocks are of version %d: %d is read", name,
                         (int)(r->size[TYPE] / 1000), QUANTIZED);
    if (t->type != TERN_DTYPE_UNKNOWN && tern_dtype_is_readable(t->type) &&
        tern_dtype_bytes(t->type, n, t->ne[0], &t->bytes))
        return TERN_OK;
    return tern_fail(r->err, TERN_ERR_UNSUPPORTED,
                     "tensor '%s': rows of %llu elements of type %u cannot be read", name,
                     (unsigned long long)t->ne[0], (unsigned)t->type_id);
}

static tern_status read_tensor(reader *r) {
    int32_t n_dims, n_name, type, ne;
    char name[NAME_BYTES + 1] = "", gguf[NAME_BYTES + 32];
    TERN_TRY(take_int(r, 1, 3, &n_dims, "the number of a tensor's dimensions"));
    TERN_TRY(take_int(r, 1, NAME_BYTES, &n_name, "the length of a tensor's name"));
    TERN_TRY(take_int(r, 0, 1000, &type, "the type of a tensor"));
    tern_tensor *t = tern_file_add_tensor(r->file, r->err);
    if (!t) return TERN_ERR_MEMORY;
    t->name = "";
    t->n_dims = n_dims;
    t->type_id = (uint32_t)type;
    if (!tern_dtype_from_ggml_id((uint32_t)type, &t->type)) t->type = TERN_DTYPE_UNKNOWN;
    for (int32_t i = 0; i < n_dims; i++) {
        TERN_TRY(take_int(r, 1, VOCAB_MAX, &ne, "a dimension of a tensor"));
        t->ne[i] = (uint64_t)ne;
    }
    TERN_TRY(take(r, name, (uint64_t)n_name, "a tensor's name"));
    if (strlen(name) != (size_t)n_name || !rename_tensor(name, gguf, sizeof gguf))
        return tern_fail(r->err, TERN_ERR_FORMAT,
                         "tensor '%s' in front of byte %llu is not one of Whisper's", name,
                         (unsigned long long)r->at);
    if (strcmp(gguf, "token_embd.weight") == 0 && t->ne[1] != (uint64_t)r->size[VOCAB])
        return tern_fail(r->err, TERN_ERR_FORMAT,
                         "tensor '%s' has %llu rows, not one for each of %d tokens", name,
                         (unsigned long long)t->ne[1], (int)r->size[VOCAB]);
    t->name = tern_arena_text(&r->file->priv->pool, (tern_str){gguf, strlen(gguf)});
    if (!t->name) return tern_fail_memory(r->err, strlen(gguf) + 1);
    TERN_TRY(settle_type(r, t, name));
    TERN_TRY(place_tensor(r, t, name));
    if (strcmp(gguf, "blk.0.ffn_up.weight") == 0) r->n_ff = (int64_t)t->ne[1];
    flatten(t);
    return TERN_OK;
}

// ---- The whole ---------------------------------------------------------------------------------

tern_status tern_whisper_bin_parse(tern_file *file, const tern_blob *all, tern_error *err) {
    reader r = {.all = all, .file = file, .err = err, .at = sizeof(uint32_t), .space = -1};
    file->kind = TERN_FILE_GGUF;
    TERN_TRY(read_sizes(&r));
    TERN_TRY(skip_filters(&r));
    TERN_TRY(read_words(&r));
    while (left(&r) > 0) TERN_TRY(read_tensor(&r));
    return put_metas(&r);
}

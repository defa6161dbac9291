#include "input/tokenizer/tok.h"

#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"

tern_status tern_tokenizer_open(tern_tokenizer **out, const tern_file *file, tern_error *err) {
    *out = NULL;
    tern_tokenizer *t = tern_alloc(TERN_MEM_TOKENIZER, sizeof *t);
    if (!t) return tern_fail_memory(err, sizeof *t);
    t->bos = t->eos = t->unk = t->pad = -1;
    memset(t->byte_ids, -1, sizeof t->byte_ids);
    memset(t->infill, -1, sizeof t->infill);
    tern_status status;
    if (file->kind == TERN_FILE_GGUF)
        status = tern_tokenizer_load_gguf(t, file, err);
    else if (file->tokenizer_json.len)
        status = tern_tokenizer_load_json(t, file, err);
    else if (file->tokenizer_model.len)
        status = tern_tokenizer_load_spm(t, file, err);
    else
        status = tern_fail(err, TERN_ERR_FORMAT, "the folder has no tokenizer.json");
    if (status == TERN_OK)
        *out = t;
    else
        tern_tokenizer_free(t);
    return status;
}

void tern_tokenizer_free(tern_tokenizer *t) {
    if (!t) return;
    tern_vocab_deinit(&t->vocab);
    tern_merges_deinit(&t->merges);
    tern_free(t->orders);
    tern_unigram_free(&t->unigram);
    tern_normalizer_close(&t->normalizer);
    tern_splitter_close(&t->splitter);
    tern_added_free(&t->added[0]);
    tern_added_free(&t->added[1]);
    tern_export_store_free(atomic_load(&t->exported));
    tern_free(t);
}

int32_t tern_tokenizer_n_vocab(const tern_tokenizer *t) { return t->vocab.n; }

static bool only_fills(const tern_tokenizer *t, int32_t id) {
    char pad[24];
    int n = snprintf(pad, sizeof pad, "[PAD%d]", (int)id);
    tern_token_type type = t->vocab.types[id];
    // Older converters made them tokens of users.
    return type == TERN_TOKEN_NONE ||
           ((type == TERN_TOKEN_UNUSED || type == TERN_TOKEN_USER) &&
            tern_str_eq(tern_vocab_text(&t->vocab, id), (tern_str){pad, (size_t)n}));
}

int32_t tern_tokenizer_n_named(const tern_tokenizer *t) {
    int32_t n = t->vocab.n;
    while (n > 0 && only_fills(t, n - 1)) n--;
    return n;
}

int32_t tern_tokenizer_bos(const tern_tokenizer *t) { return t->bos; }
int32_t tern_tokenizer_eos(const tern_tokenizer *t) { return t->eos; }
void tern_tokenizer_append_eos(tern_tokenizer *t) {
    if (t->n_suffix == 0 && t->eos >= 0) t->suffix[t->n_suffix++] = t->eos;
}

tern_status tern_tokenizer_cut(const tern_tokenizer *t, int32_t *ids, size_t *n, size_t n_max,
                               tern_error *err) {
    size_t n_suffix = (size_t)t->n_suffix;
    if (*n <= n_max) return TERN_OK;
    if (n_max < (size_t)t->n_prefix + n_suffix)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "texts of %zu tokens: the tokenizer adds %zu to each", n_max,
                         (size_t)t->n_prefix + n_suffix);
    memmove(ids + n_max - n_suffix, ids + *n - n_suffix, n_suffix * sizeof *ids);
    *n = n_max;
    return TERN_OK;
}

// Appends ids around or between texts.
static tern_status put(tern_ids *out, const int32_t *ids, int n, tern_error *err) {
    if (tern_array_reserve(TERN_MEM_MISC, &out->ids, &out->capacity, out->n, (size_t)n) != 0)
        return tern_fail_memory(err, (size_t)n * sizeof *ids);
    if (n) memcpy(out->ids + out->n, ids, (size_t)n * sizeof *ids);
    out->n += (size_t)n;
    return TERN_OK;
}

tern_status tern_tokenizer_encode_pair(const tern_tokenizer *t, tern_str first, tern_str second,
                                       size_t n_max, tern_ids *out, tern_error *err) {
    size_t begin = out->n, n_suffix = (size_t)t->n_suffix;
    if (t->n_between == 0)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "the tokenizer does not say what stands between the texts of a pair");
    TERN_TRY(put(out, t->prefix, t->n_prefix, err));
    TERN_TRY(tern_tokenizer_encode(t, first.ptr, first.len, TERN_TOKENIZE_PLAIN, out, err));
    TERN_TRY(put(out, t->between, t->n_between, err));
    if (out->n - begin + n_suffix >= n_max)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "the first text of a pair has %zu tokens: a pair may have %zu",
                         out->n - begin, n_max);
    TERN_TRY(tern_tokenizer_encode(t, second.ptr, second.len, TERN_TOKENIZE_PLAIN, out, err));
    if (out->n - begin + n_suffix > n_max) out->n = begin + n_max - n_suffix;
    return put(out, t->suffix, t->n_suffix, err);
}

bool tern_tokenizer_adds_bos(const tern_tokenizer *t) {
    return t->n_prefix > 0 && t->prefix[0] == t->bos;
}

bool tern_tokenizer_is_end(const tern_tokenizer *t, int32_t id) {
    for (size_t i = 0; i < t->n_ends; i++)
        if (t->ends[i] == id) return true;
    return false;
}

size_t tern_tokenizer_ends(const tern_tokenizer *t, const int32_t **ids) {
    *ids = t->ends;
    return t->n_ends;
}

bool tern_tokenizer_is_control(const tern_tokenizer *t, int32_t id) {
    if (id < 0 || id >= t->vocab.n) return false;
    return t->vocab.types[id] == TERN_TOKEN_CONTROL || t->vocab.types[id] == TERN_TOKEN_UNKNOWN;
}

bool tern_tokenizer_is_user(const tern_tokenizer *t, int32_t id) {
    return id >= 0 && id < t->vocab.n && t->vocab.types[id] == TERN_TOKEN_USER;
}

tern_str tern_tokenizer_text(const tern_tokenizer *t, int32_t id) {
    if (id < 0 || id >= t->vocab.n || t->vocab.types[id] == TERN_TOKEN_NONE)
        return (tern_str){NULL, 0};
    return tern_vocab_text(&t->vocab, id);
}

int32_t tern_tokenizer_find(const tern_tokenizer *t, tern_str text) {
    return tern_vocab_find(&t->vocab, text.ptr, text.len);
}

uint64_t tern_tokenizer_hash(const tern_tokenizer *t) {
    uint64_t hash = (uint64_t)t->vocab.n;
    for (int32_t i = 0; i < t->vocab.n; i++) {
        tern_str text = tern_vocab_text(&t->vocab, i);
        hash = tern_hash64(hash, text.ptr, text.len);
    }
    return hash;
}

void tern_tokenizer_add_end(tern_tokenizer *t, int64_t id) {
    if (id < 0 || id >= t->vocab.n || t->n_ends == TERN_ENDS_MAX) return;
    if (!tern_tokenizer_is_end(t, (int32_t)id)) t->ends[t->n_ends++] = (int32_t)id;
}

// Names of control tokens that end a turn or a text.
static const char *const known_ends[] = {
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end_of_turn|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|eot|>",
    "<|eom|>",
    "<EOT>",
    "_<EOT>",
    "<turn|>",
    "<end_of_utterance>",
    "<|END_OF_TURN_TOKEN|>",
    "</s>",
    "<eos>",
    ("<\xEF\xBD\x9C"
     "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"), // DeepSeek's
};

static int32_t find_known_end(const tern_tokenizer *t, size_t i) {
    int32_t id = tern_vocab_find(&t->vocab, known_ends[i], strlen(known_ends[i]));
    return id >= 0 && t->vocab.types[id] == TERN_TOKEN_CONTROL ? id : -1;
}

void tern_tokenizer_add_known_ends(tern_tokenizer *t) {
    for (size_t i = 0; i < sizeof known_ends / sizeof *known_ends; i++)
        tern_tokenizer_add_end(t, find_known_end(t, i)); // none: -1
}

bool tern_tokenizer_is_known_end(const tern_tokenizer *t, int32_t id) {
    for (size_t i = 0; i < sizeof known_ends / sizeof *known_ends; i++)
        if (id >= 0 && find_known_end(t, i) == id) return true;
    return false;
}

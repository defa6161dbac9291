// tokenizer.ggml.* of a GGUF file. Missing keys get llama.cpp's defaults.
#include <string.h>
#include "base/alloc.h"
#include "base/dtype/half.h"
#include "input/tokenizer/tok.h"

#define KEY(name) "tokenizer.ggml." name

static const tern_meta *strings(const tern_file *file, const char *key) {
    const tern_meta *m = tern_file_meta(file, key);
    return m && m->type == TERN_META_ARRAY && m->strings ? m : NULL;
}

// An id that exists, or `otherwise`.
static int32_t special_id(const tern_tokenizer *t, const tern_file *file, const char *key,
                          int32_t otherwise) {
    int64_t id = otherwise;
    if (!tern_file_meta_int(file, key, &id) || id < 0 || id >= t->vocab.n) id = otherwise;
    return id < t->vocab.n ? (int32_t)id : -1;
}

static void read_infill(tern_tokenizer *t, const tern_file *file) {
    static const char *const keys[TERN_INFILL_TOKENS][2] = {
        {KEY("fim_pre_token_id"), KEY("prefix_token_id")}, // in older files
        {KEY("fim_suf_token_id"), KEY("suffix_token_id")},
        {KEY("fim_mid_token_id"), KEY("middle_token_id")},
        {KEY("fim_pad_token_id"), NULL},
        {KEY("fim_rep_token_id"), NULL},
        {KEY("fim_sep_token_id"), NULL}};
    for (int i = 0; i < TERN_INFILL_TOKENS; i++)
        for (int k = 0; k < 2 && keys[i][k] && t->infill[i] < 0; k++)
            t->infill[i] = special_id(t, file, keys[i][k], -1);
}

// Files without types: names of the form <|...|> are control tokens.
static tern_token_type guess_type(tern_str text) {
    bool named = text.len > 4 && memcmp(text.ptr, "<|", 2) == 0 &&
                 memcmp(text.ptr + text.len - 2, "|>", 2) == 0;
    return named                              ? TERN_TOKEN_CONTROL
           : tern_byte_token_value(text) >= 0 ? TERN_TOKEN_BYTE
                                              : TERN_TOKEN_NORMAL;
}

static tern_status read_vocab(tern_tokenizer *t, const tern_file *file, tern_error *err) {
    const tern_meta *tokens = strings(file, KEY("tokens"));
    const tern_meta *types = tern_file_meta(file, KEY("token_type"));
    if (!tokens)
        return tern_fail(err, TERN_ERR_FORMAT, "%s is missing or no array of strings",
                         KEY("tokens"));
    if (tokens->n > TERN_VOCAB_MAX)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s has %llu entries; at most %d are believed",
                         KEY("tokens"), (unsigned long long)tokens->n, TERN_VOCAB_MAX);
    if (types && types->n != tokens->n)
        return tern_fail(err, TERN_ERR_FORMAT, "%s has %llu entries, %s has %llu",
                         KEY("token_type"), (unsigned long long)types->n, KEY("tokens"),
                         (unsigned long long)tokens->n);
    uint8_t *kinds = tern_alloc(TERN_MEM_MISC, tokens->n + 1);
    if (!kinds) return tern_fail_memory(err, tokens->n);
    for (uint64_t i = 0; i < tokens->n; i++) {
        double type = 0;
        if (!types || !tern_meta_element(types, i, &type)) type = guess_type(tokens->strings[i]);
        kinds[i] = type >= 1 && type <= TERN_TOKEN_BYTE ? (uint8_t)type : TERN_TOKEN_NORMAL;
        if (tokens->strings[i].len == 0) kinds[i] = TERN_TOKEN_NONE;
    }
    tern_status status =
        tern_vocab_init(&t->vocab, tokens->strings, kinds, (int32_t)tokens->n, err);
    tern_free(kinds);
    return status;
}

static tern_status read_merges(tern_tokenizer *t, const tern_file *file, tern_error *err) {
    const tern_meta *merges = strings(file, KEY("merges"));
    if (!merges)
        return tern_fail(err, TERN_ERR_FORMAT, "%s is missing or no array of strings",
                         KEY("merges"));
    if (merges->n > UINT32_MAX / 32)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s has too many entries", KEY("merges"));
    TERN_TRY(tern_merges_init(&t->merges, merges->n, err));
    // A merge of texts that are not tokens is never used, and left out.
    tern_merge_batch batch = {.t = t};
    tern_status status = TERN_OK;
    for (uint64_t i = 0; i < merges->n && status == TERN_OK; i++) {
        tern_str left = merges->strings[i], right;
        const char *space = left.len > 1 ? memchr(left.ptr + 1, ' ', left.len - 1) : NULL;
        if (!space) continue;
        right = (tern_str){space + 1, left.len - (size_t)(space + 1 - left.ptr)};
        left.len = (size_t)(space - left.ptr);
        status = tern_merge_batch_add(&batch, left, right, (uint32_t)i, err);
    }
    if (status == TERN_OK) status = tern_merge_batch_flush(&batch, err);
    tern_strbuf_free(&batch.text);
    return status;
}

static tern_status read_scores(tern_tokenizer *t, const tern_file *file, const tern_spm_desc *d,
                               tern_error *err) {
    const tern_meta *meta = tern_file_meta(file, KEY("scores"));
    if (!meta || meta->n != (uint64_t)t->vocab.n)
        return tern_fail(err, TERN_ERR_FORMAT, "%s is missing or has not one entry for each token",
                         KEY("scores"));
    float *scores = tern_alloc_array(TERN_MEM_MISC, (size_t)t->vocab.n + 1, sizeof *scores);
    if (!scores) return tern_fail_memory(err, (size_t)t->vocab.n * sizeof *scores);
    tern_status status = TERN_OK;
    for (int32_t i = 0; i < t->vocab.n && status == TERN_OK; i++) {
        double score;
        if (tern_meta_element(meta, (uint64_t)i, &score))
            scores[i] = (float)score;
        else
            status =
                tern_fail(err, TERN_ERR_FORMAT, "%s is not an array of numbers", KEY("scores"));
    }
    if (status == TERN_OK) status = tern_tokenizer_set_scores(t, d, scores, err);
    tern_free(scores);
    return status;
}

// Gemma 4: merges of characters, as in its tokenizer.json; a space is U+2581.
static tern_status open_raw(tern_tokenizer *t, const tern_pre *pre, const tern_file *file,
                            bool *adds_bos, tern_error *err) {
    tern_norm_step *step = NULL;
    t->byte_fallback = t->fuse_unk = t->space_marks = true;
    t->ignore_merges = pre->ignore_merges;
    *adds_bos = pre->adds_bos;
    TERN_TRY(tern_normalizer_add(&t->normalizer, TERN_NORM_REPLACE, TERN_STR(TERN_SPACE_MARK),
                                 &step, err));
    TERN_TRY(tern_pattern_open_literal(&step->pattern, TERN_STR(" "), err));
    TERN_TRY(tern_pre_add_steps(pre, &t->splitter, err));
    return read_merges(t, file, err);
}

static tern_status open_by_merges(tern_tokenizer *t, const tern_file *file, bool gemma4,
                                  bool *adds_bos, tern_error *err) {
    tern_str name = TERN_STR("default");
    if (gemma4)
        name = TERN_STR("gemma4");
    else if (!tern_file_meta_str(file, KEY("pre"), &name) &&
             (t->vocab.n == 128256 || tern_vocab_find(&t->vocab, "<|begin_of_text|>", 17) >= 0))
        name = TERN_STR("llama-bpe"); // early converters left it out
    const tern_pre *pre = tern_pre_find(name);
    if (!pre)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s \"%.*s\" is not known", KEY("pre"),
                         (int)(name.len < 80 ? name.len : 80), name.ptr);
    if (tern_pre_is_raw(pre)) return open_raw(t, pre, file, adds_bos, err);
    t->byte_level = true;
    t->pre = pre->name;
    t->ignore_merges = pre->ignore_merges;
    *adds_bos = pre->adds_bos;
    TERN_TRY(tern_pre_add_steps(pre, &t->splitter, err));
    return read_merges(t, file, err);
}

// "llama" is BPE by scores, "t5" Unigram.
static tern_status open_sentencepiece(tern_tokenizer *t, const tern_file *file, bool unigram,
                                      tern_error *err) {
    tern_spm_desc d = {.unigram = unigram, .space_prefix = true};
    const tern_meta *map = tern_file_meta(file, KEY("precompiled_charsmap"));
    tern_file_meta_bool(file, KEY("add_space_prefix"), &d.space_prefix);
    if (unigram) tern_file_meta_bool(file, KEY("remove_extra_whitespaces"), &d.squeeze);
    bool bytes =
        map && map->type == TERN_META_ARRAY && tern_meta_type_bytes(map->element_type) == 1;
    if (unigram && bytes) d.charsmap = (tern_str){map->data, map->n};
    t->byte_fallback = true;
    TERN_TRY(tern_tokenizer_add_spm_steps(t, &d, err));
    return read_scores(t, file, &d, err);
}

static bool has_capitals(const tern_vocab *v) {
    for (int32_t i = 0; i < v->n; i++) {
        tern_str text = tern_vocab_text(v, i);
        if (v->types[i] != TERN_TOKEN_NORMAL || !text.len || *text.ptr == '[') continue;
        for (size_t k = 0; k < text.len; k++)
            if (text.ptr[k] >= 'A' && text.ptr[k] <= 'Z') return true;
    }
    return false;
}

// BERT's: the first token of a word begins with U+2581, the others have no mark. No key says
// whether text becomes lower case: it does if the vocabulary has no capitals.
static tern_status open_wordpiece(tern_tokenizer *t, tern_error *err) {
    bool lower = !has_capitals(&t->vocab);
    t->model = TERN_TOKENS_WORDPIECE;
    t->wordpiece.cleans_up = true;
    tern_str mark = TERN_STR(TERN_SPACE_MARK), none = {0};
    TERN_TRY(tern_wordpiece_init(&t->wordpiece, mark, none, 100, err));
    TERN_TRY(tern_normalizer_add_bert(&t->normalizer, true, true, lower, lower, err));
    tern_split_step *spaces = tern_splitter_add(&t->splitter);
    tern_split_step *signs = tern_splitter_add(&t->splitter);
    if (!spaces || !signs) return tern_fail(err, TERN_ERR_UNSUPPORTED, "too many pre-tokenizers");
    spaces->pattern.kind = TERN_PATTERN_SPACE;
    spaces->behavior = TERN_SPLIT_REMOVED;
    signs->pattern.kind = TERN_PATTERN_PUNCT;
    return TERN_OK;
}

tern_status tern_tokenizer_add_specials(tern_tokenizer *t, tern_error *err) {
    for (int32_t id = 0; id < t->vocab.n; id++) {
        tern_token_type type = t->vocab.types[id];
        if (type != TERN_TOKEN_CONTROL && type != TERN_TOKEN_UNKNOWN && type != TERN_TOKEN_USER)
            continue;
        tern_added_token token = {
            .text = tern_vocab_text(&t->vocab, id), .id = id, .special = type != TERN_TOKEN_USER};
        TERN_TRY(tern_added_push(&t->added[0], &token, err));
    }
    tern_added_sort(&t->added[0]);
    return TERN_OK;
}

// The kinds of tokenizer.ggml.model, with llama.cpp's defaults.
typedef struct kind {
    const char *name;
    int32_t bos, eos, unk, pad;
    bool adds_bos, adds_eos;
} kind;
static const kind kinds[] = {{"llama", 1, 2, 0, -1, true, false},
                             {"t5", -1, 1, 2, 0, false, true},
                             {"bert", 101, 102, 100, 0, true, true},
                             {"gpt2", -1, -1, -1, -1, true, false},
                             {"gemma4", -1, -1, -1, -1, true, false}};
#define N_KINDS (sizeof kinds / sizeof *kinds)
enum { LLAMA, T5, BERT, GPT2, GEMMA4 };

static tern_status find_kind(const tern_file *file, size_t *found, tern_error *err) {
    tern_str model = {0};
    if (!tern_file_meta_str(file, KEY("model"), &model))
        return tern_fail(err, TERN_ERR_FORMAT, "%s is missing: the file has no tokenizer",
                         KEY("model"));
    for (*found = 0; *found < N_KINDS; ++*found)
        if (tern_str_is(model, kinds[*found].name)) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "%s \"%.*s\" is not supported; \"gpt2\", \"gemma4\", \"llama\", \"t5\" and "
                     "\"bert\" are",
                     KEY("model"), (int)(model.len < 80 ? model.len : 80), model.ptr);
}

tern_status tern_tokenizer_load_gguf(tern_tokenizer *t, const tern_file *file, tern_error *err) {
    size_t which;
    TERN_TRY(find_kind(file, &which, err));
    const kind *k = &kinds[which];
    bool adds_bos = k->adds_bos, adds_eos = k->adds_eos;
    TERN_TRY(read_vocab(t, file, err));
    if (which == BERT)
        TERN_TRY(open_wordpiece(t, err));
    else if (which == LLAMA || which == T5)
        TERN_TRY(open_sentencepiece(t, file, which == T5, err));
    else
        TERN_TRY(open_by_merges(t, file, which == GEMMA4, &adds_bos, err));
    tern_tokenizer_index_bytes(t);
    TERN_TRY(tern_tokenizer_add_specials(t, err));
    t->bos = special_id(t, file, KEY("bos_token_id"), k->bos);
    t->eos = special_id(t, file, KEY("eos_token_id"), k->eos);
    t->unk = special_id(t, file, KEY("unknown_token_id"), k->unk);
    t->pad = special_id(t, file, KEY("padding_token_id"), k->pad);
    read_infill(t, file);
    if (which == BERT) { // ids around a text have other names
        t->bos = special_id(t, file, KEY("cls_token_id"), t->bos);
        t->eos = special_id(t, file, KEY("seperator_token_id"), t->eos);
    } else {
        tern_file_meta_bool(file, KEY("add_bos_token"), &adds_bos);
        tern_file_meta_bool(file, KEY("add_eos_token"), &adds_eos);
    }
    if (adds_bos && t->bos >= 0) t->prefix[t->n_prefix++] = t->bos;
    if (adds_eos && t->eos >= 0) t->suffix[t->n_suffix++] = t->eos;
    // Between the texts of a pair: the ids that end the first one and, except for BERT, a
    // separator.
    int32_t separator = special_id(t, file, KEY("seperator_token_id"), -1);
    for (int i = 0; i < t->n_suffix; i++) t->between[t->n_between++] = t->suffix[i];
    if (which != BERT && separator >= 0 && t->n_suffix) t->between[t->n_between++] = separator;
    tern_tokenizer_add_end(t, t->eos);
    tern_tokenizer_add_end(t, special_id(t, file, KEY("eot_token_id"), -1));
    tern_tokenizer_add_end(t, special_id(t, file, KEY("eom_token_id"), -1));
    tern_tokenizer_add_known_ends(t);
    return TERN_OK;
}

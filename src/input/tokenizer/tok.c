#include "input/tokenizer/tok.h"

#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"

tern_status tern_tokenizer_open(tern_tokenizer **out, const tern_file *file, tern_error *err) {
    *out = NULL;
    tern_tokenizer *t = tern_alloc(TERN_MEM_TOKENIZER, sizeof *t);
    if (!t) return tern_fail_memory(err, sizeof *t);
    t->bos = t->eos = t->unk = t->pad = -1;
    memset(t->byte_ids, -1, sizeof t->byte_ids);
    tern_status status;
    if (file->kind == TERN_FILE_GGUF) status = tern_tokenizer_load_gguf(t, file, err);
    else if (file->tokenizer_json.len) status = tern_tokenizer_load_json(t, file, err);
    else status = tern_fail(err, TERN_ERR_FORMAT, "the folder has no tokenizer.json");
    if (status == TERN_OK) *out = t;
    else tern_tokenizer_free(t);
    return status;
}

void tern_tokenizer_free(tern_tokenizer *t) {
    if (!t) return;
    tern_vocab_deinit(&t->vocab);
    tern_merges_deinit(&t->merges);
    tern_free(t->orders);
    tern_normalizer_close(&t->normalizer);
    tern_splitter_close(&t->splitter);
    tern_added_free(&t->added[0]);
    tern_added_free(&t->added[1]);
    tern_export_store_free(atomic_load(&t->exported));
    tern_free(t);
}

int32_t tern_tokenizer_n_vocab(const tern_tokenizer *t) { return t->vocab.n; }
int32_t tern_tokenizer_bos(const tern_tokenizer *t) { return t->bos; }
int32_t tern_tokenizer_eos(const tern_tokenizer *t) { return t->eos; }
void tern_tokenizer_append_eos(tern_tokenizer *t) {
    if (t->n_suffix == 0 && t->eos >= 0) t->suffix[t->n_suffix++] = t->eos;
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

// Control tokens of these names end a turn or a text.
static const char *const known_ends[] = {
    "<|eot_id|>",       "<|eom_id|>",      "<|im_end|>",    "<|end_of_turn|>",
    "<end_of_turn>",    "<|endoftext|>",   "<|end_of_text|>", "<|end|>",
    "<|return|>",       "<|call|>",        "<|eot|>",       "<|eom|>",
    "<EOT>",            "_<EOT>",          "<turn|>",       "<end_of_utterance>",
    "<|END_OF_TURN_TOKEN|>", "</s>",       "<eos>",
    ("<\xEF\xBD\x9C" "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"), // DeepSeek's
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

// The model that makes a store's vectors. It is recognized by its result: the store has its vector
// of one fixed sentence, and a model whose vector differs is refused, whatever its name. The same
// weights in another number format count as the same model.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "store/store.h"

static const char sentence[] =
    "The harbour master's lantern swung over seventeen barrels of salted herring.";

// Cosine of two vectors of the sentence: usually above 0.98 for a model in F32 and in 4 bits, near
// 0 for two models.
#define SAME_MODEL 0.97

// The first of these names that is one of the model's prompts.
static const char *find_prompt(const tern_embedding_info *info, const char *const *names) {
    for (; *names; names++)
        for (size_t i = 0; i < info->n_prompts; i++)
            if (strcmp(info->prompts[i].name, *names) == 0) return info->prompts[i].name;
    return NULL;
}

tern_status tern_store_take_model(tern_memory_store *s, tern_error *err) {
    static const char *const queries[] = {"query", "Retrieval-query", "search_query", NULL};
    static const char *const documents[] = {"document", "passage", "Retrieval-document",
                                            "search_document", NULL};
    if (!s->model) return TERN_OK;
    tern_embedding_get_info(s->model, &s->embedding);
    s->query_prompt = find_prompt(&s->embedding, queries);
    s->document_prompt = find_prompt(&s->embedding, documents);
    size_t n = s->embedding.n_dims > 0 ? (size_t)s->embedding.n_dims : 1; // tern_embed reports why
    s->probe = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *s->probe);
    if (!s->probe) return tern_fail_memory(err, n * sizeof *s->probe);
    const tern_embed_text text = {.text = sentence, .n_bytes = sizeof sentence - 1};
    const tern_embed_params params = {.prompt = s->document_prompt};
    return tern_embed(s->model, &text, 1, &params, s->probe, err);
}

static tern_status keep(char **to, tern_str text, tern_error *err) {
    tern_free(*to);
    *to = tern_strndup(TERN_MEM_SESSION, text.ptr, text.len);
    return *to ? TERN_OK : tern_fail_memory(err, text.len);
}

// A row of meta; `st` selects a value by its key.
static tern_status look_up(tern_memory_store *s, sqlite3_stmt *st, const char *key, bool *found,
                           tern_error *err) {
    sqlite3_reset(st);
    sqlite3_bind_text(st, 1, key, -1, SQLITE_STATIC);
    return tern_store_step(s, st, found, err);
}

static tern_status compare(const tern_memory_store *s, tern_str probe, tern_error *err) {
    size_t n = (size_t)s->n_dims;
    if (s->embedding.n_dims == s->n_dims && probe.len == n * sizeof(float)) {
        float *other = tern_alloc_array(TERN_MEM_MISC, n, sizeof *other);
        if (!other) return tern_fail_memory(err, n * sizeof *other);
        memcpy(other, probe.ptr, probe.len);
        double same = tern_similarity(s->probe, other, n);
        tern_free(other);
        if (same >= SAME_MODEL) return TERN_OK;
    }
    tern_model_info info;
    tern_model_get_info(s->model, &info);
    return tern_fail(
        err, TERN_ERR_ARGUMENT,
        "%s: its vectors were made by \"%s\" (%d numbers), and \"%s\" (%d) makes others", s->path,
        s->model_name, (int)s->n_dims, info.name ? info.name : info.path, (int)s->embedding.n_dims);
}

static tern_status read_model(tern_memory_store *s, sqlite3_stmt *st, tern_error *err) {
    bool found;
    TERN_TRY(look_up(s, st, "dims", &found, err));
    int64_t n = found ? sqlite3_column_int64(st, 0) : 0;
    if (n < 0 || n > 1 << 20)
        return tern_fail(err, TERN_ERR_FORMAT, "%s: vectors of %lld numbers", s->path,
                         (long long)n);
    if (s->n_dims != (int32_t)n) {
        tern_vectors_free(&s->vectors);
        tern_vectors_open(&s->vectors, (size_t)n);
    }
    s->n_dims = (int32_t)n;
    if (n == 0) return TERN_OK;
    TERN_TRY(look_up(s, st, "model", &found, err));
    TERN_TRY(keep(&s->model_name, found ? tern_store_text(st, 0) : TERN_STR(""), err));
    TERN_TRY(look_up(s, st, "model path", &found, err));
    TERN_TRY(keep(&s->model_path, found ? tern_store_text(st, 0) : TERN_STR(""), err));
    TERN_TRY(look_up(s, st, "probe", &found, err));
    return s->model ? compare(s, found ? tern_store_text(st, 0) : TERN_STR(""), err) : TERN_OK;
}

tern_status tern_store_know_model(tern_memory_store *s, tern_error *err) {
    sqlite3_stmt *st = NULL;
    TERN_TRY(tern_store_prepare(s, &st, "SELECT value FROM meta WHERE key = ?", err));
    tern_status status = read_model(s, st, err);
    sqlite3_finalize(st);
    return status;
}

static tern_status put(tern_memory_store *s, sqlite3_stmt *st, const char *key, const char *text,
                       tern_error *err) {
    sqlite3_bind_text(st, 1, key, -1, SQLITE_STATIC);
    if (text) sqlite3_bind_text(st, 2, text, -1, SQLITE_STATIC);
    return tern_store_do(s, st, err);
}

static tern_status put_all(tern_memory_store *s, sqlite3_stmt *st, tern_error *err) {
    tern_model_info info;
    tern_model_get_info(s->model, &info);
    sqlite3_bind_int64(st, 2, s->embedding.n_dims);
    TERN_TRY(put(s, st, "dims", NULL, err));
    sqlite3_bind_blob(st, 2, s->probe, s->embedding.n_dims * (int)sizeof *s->probe, SQLITE_STATIC);
    TERN_TRY(put(s, st, "probe", NULL, err));
    TERN_TRY(put(s, st, "model", info.name && *info.name ? info.name : info.path, err));
    return put(s, st, "model path", info.path, err);
}

tern_status tern_store_put_model(tern_memory_store *s, tern_error *err) {
    sqlite3_stmt *st = NULL;
    TERN_TRY(tern_store_prepare(s, &st, "INSERT OR REPLACE INTO meta VALUES(?, ?)", err));
    tern_status status = put_all(s, st, err);
    sqlite3_finalize(st);
    return status == TERN_OK ? tern_store_know_model(s, err) : status;
}

tern_status tern_store_count_tokens(void *user, const char *text, size_t n, size_t *n_tokens,
                                    tern_error *err) {
    const tern_memory_store *s = user;
    *n_tokens = (n + 3) / 4;
    if (!s->counter) return TERN_OK;
    tern_ids count = {0};
    tern_status status = tern_tokenize(s->counter, text, n, TERN_TOKENIZE_PLAIN, &count, err);
    *n_tokens = count.n;
    return status;
}

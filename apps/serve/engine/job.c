#include "apps/serve/engine/shared_grammar.h"

#include <string.h>
#include "base/alloc.h"

// A list of texts, and the texts.
static size_t texts_bytes(const char *const *texts, size_t n) {
    size_t bytes = n * sizeof *texts;
    for (size_t i = 0; i < n; i++) bytes += strlen(texts[i]) + 1;
    return (bytes + sizeof *texts - 1) / sizeof *texts * sizeof *texts;
}

static const char *const *copy_texts(char **at, const char *const *texts, size_t n) {
    const char **list = (const char **)*at;
    char *text = *at + n * sizeof *list;
    *at += texts_bytes(texts, n);
    for (size_t i = 0; i < n; i++) {
        const size_t length = strlen(texts[i]) + 1;
        list[i] = memcpy(text, texts[i], length);
        text += length;
    }
    return list;
}

static const void *copy_array(char **at, const void *array, size_t bytes) {
    void *to = *at;
    if (bytes) memcpy(to, array, bytes);
    *at += bytes;
    return to;
}

// One block: the job, the lists of texts, then arrays of 4-byte numbers.
job *job_new(const int32_t *ids, size_t n_ids, const tern_generate_params *p) {
    const size_t id = sizeof *ids;
    const size_t bytes = texts_bytes(p->stops, p->n_stops) +
                         texts_bytes(p->bad_words, p->n_bad_words) +
                         texts_bytes(p->dry_sequence_breakers, p->n_dry_sequence_breakers) +
                         p->n_biases * sizeof *p->biases +
                         (n_ids + p->n_stop_token_ids + p->n_allowed_token_ids) * id;
    job *j = tern_alloc(TERN_MEM_SESSION, sizeof *j + bytes);
    if (!j) return NULL;
    char *at = (char *)(j + 1);
    j->params = *p;
    j->params.stops = copy_texts(&at, p->stops, p->n_stops);
    j->params.bad_words = copy_texts(&at, p->bad_words, p->n_bad_words);
    if (p->dry_sequence_breakers) // an empty list differs from NULL
        j->params.dry_sequence_breakers =
            copy_texts(&at, p->dry_sequence_breakers, p->n_dry_sequence_breakers);
    j->params.biases = copy_array(&at, p->biases, p->n_biases * sizeof *p->biases);
    j->params.stop_token_ids = copy_array(&at, p->stop_token_ids, p->n_stop_token_ids * id);
    j->params.allowed_token_ids =
        copy_array(&at, p->allowed_token_ids, p->n_allowed_token_ids * id);
    j->ids = copy_array(&at, ids, n_ids * id);
    j->n_ids = n_ids;
    j->sampling = p->sampling ? *p->sampling : tern_sampling_default();
    j->params.sampling = &j->sampling;
    j->end.job = j;
    j->end.kind = JOB_END;
    return j;
}

void job_free(job *j) {
    if (j) shared_grammar_release(j->grammar);
    tern_free(j);
}

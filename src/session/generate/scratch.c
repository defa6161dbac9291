// Room for the scores of a batch, shared by the sessions of a model.
#include "base/alloc.h"
#include "session/session.h"

static void free_scratch(tern_spare *spare) {
    tern_scratch *s = (tern_scratch *)spare;
    tern_free(s->logits);
    tern_free(s->top_ids);
    tern_free(s->top_logits);
    tern_free(s->allowed);
    tern_free(s->candidates);
    tern_free(s);
}
static const tern_spare_kind scratch_kind = {sizeof(tern_scratch), free_scratch};

// Replaces the old block, whose contents are no longer needed.
static tern_status renew(void *block, size_t n, size_t size, tern_error *err) {
    void **at = block;
    tern_free(*at);
    *at = tern_alloc_array(TERN_MEM_SESSION, n, size);
    return *at ? TERN_OK : tern_fail_memory(err, n * size);
}

tern_status tern_scratch_grow(tern_scratch *s, const tern_model *m, size_t n_rows, size_t n_logits,
                              tern_error *err) {
    size_t n_vocab = (size_t)m->info.n_vocab, n_top = n_rows * TERN_TOP_K_MAX;
    if (!s->candidates) TERN_TRY(renew(&s->candidates, n_vocab, sizeof *s->candidates, err));
    if (n_rows > s->n_rows) {
        s->n_rows = 0;
        TERN_TRY(renew(&s->top_ids, n_top, sizeof *s->top_ids, err));
        TERN_TRY(renew(&s->top_logits, n_top, sizeof *s->top_logits, err));
        TERN_TRY(renew(&s->allowed, n_rows, sizeof *s->allowed, err));
        s->n_rows = n_rows;
    }
    if (n_logits <= s->n_logits) return TERN_OK;
    s->n_logits = 0;
    TERN_TRY(renew(&s->logits, n_logits * n_vocab, sizeof *s->logits, err));
    s->n_logits = n_logits;
    return TERN_OK;
}

tern_status tern_scratch_take(tern_model *m, size_t n_rows, size_t n_logits, tern_scratch **out,
                              tern_error *err) {
    *out = NULL;
    tern_scratch *s;
    TERN_TRY(tern_model_take_spare(m, &scratch_kind, &s, err));
    tern_status status = tern_scratch_grow(s, m, n_rows, n_logits, err);
    if (status == TERN_OK)
        *out = s;
    else
        tern_scratch_give(m, s);
    return status;
}

void tern_scratch_give(tern_model *m, tern_scratch *s) {
    if (s) tern_model_give_spare(m, &s->spare);
}

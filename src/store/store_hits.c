// Reads the best chunks, and chooses those that fit a budget of tokens.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "store/store_recall.h"

bool tern_recall_allows(const tern_recall *r, int64_t id) {
    size_t low = 0, n = r->n_allowed;
    if (!r->allowed) return true;
    while (n > 0) {
        size_t half = n / 2;
        if (r->allowed[low + half] < id)
            low += half + 1, n -= half + 1;
        else
            n = half;
    }
    return low < r->n_allowed && r->allowed[low] == id;
}

void tern_memory_hits_free(tern_memory_hits *hits) {
    tern_store_hits *h = (tern_store_hits *)hits; // its first member
    if (!h) return;
    for (size_t i = 0; h->texts && i < 4 * h->n_read; i++) tern_strbuf_free(&h->texts[i]);
    tern_strbuf_free(&h->context);
    tern_free(h->texts);
    tern_free(h->list);
    tern_free(h);
}

static tern_status create(tern_recall *r, tern_error *err) {
    tern_store_hits *h = r->hits = tern_alloc(TERN_MEM_MISC, sizeof *h);
    if (!h) return tern_fail_memory(err, sizeof *h);
    const size_t most = (size_t)(r->n_ranked ? r->n_ranked : r->n_most);
    h->n_read = r->n_fused < most ? r->n_fused : most;
    h->list = tern_alloc_array(TERN_MEM_MISC, h->n_read, sizeof *h->list);
    h->texts = tern_alloc_array(TERN_MEM_MISC, 4 * h->n_read, sizeof *h->texts);
    if (!h->list || !h->texts) return tern_fail_memory(err, h->n_read * sizeof *h->list);
    h->pub.list = h->list;
    return TERN_OK;
}

static const char *keep(tern_strbuf *to, tern_str bytes) {
    tern_strbuf_clear(to);
    tern_strbuf_append(to, bytes.ptr, bytes.len);
    return tern_strbuf_text(to);
}

// Reads hit number n from a row of the statement below.
static tern_status read_hit(tern_recall *r, sqlite3_stmt *st, const tern_fused *f, size_t n,
                            tern_error *err) {
    tern_strbuf *texts = &r->hits->texts[4 * n];
    tern_memory_hit *hit = &r->hits->list[n];
    tern_str text = tern_store_text(st, 1);
    size_t begin = 0, end = text.len;
    tern_chunk_trim(text.ptr, &begin, &end);
    *hit = (tern_memory_hit){.id = f->id,
                             .record = sqlite3_column_int64(st, 0),
                             .n_tokens = (int32_t)sqlite3_column_int64(st, 3),
                             .first_line = (int32_t)sqlite3_column_int64(st, 4),
                             .created = sqlite3_column_int64(st, 7),
                             .score = f->score,
                             .similarity = NAN,
                             .relevance = NAN,
                             .vector_rank = f->ranks[0],
                             .word_rank = f->ranks[1]};
    hit->text = keep(&texts[0], (tern_str){text.ptr + begin, end - begin});
    hit->n_bytes = end - begin;
    hit->heading = keep(&texts[1], tern_store_text(st, 2));
    hit->source = keep(&texts[2], tern_store_text(st, 5));
    hit->metadata = keep(&texts[3], tern_store_text(st, 6));
    if (f->ranks[0]) hit->similarity = r->near[f->ranks[0] - 1].score;
    for (int i = 0; i < 4; i++)
        if (texts[i].failed) return tern_fail_memory(err, text.len);
    return TERN_OK;
}

tern_status tern_recall_take(tern_recall *r, size_t i, tern_error *err) {
    tern_store_hits *h = r->hits;
    const tern_memory_hit *hit = &h->list[i];
    size_t before = h->context.len, n_tokens;
    if (before) tern_strbuf_puts(&h->context, "\n\n");
    tern_strbuf_append(&h->context, hit->text, hit->n_bytes);
    if (h->context.failed) return tern_fail_memory(err, hit->n_bytes);
    TERN_TRY(tern_store_count_tokens(r->s, tern_strbuf_text(&h->context), h->context.len, &n_tokens,
                                     err));
    if (r->query->max_tokens && n_tokens > (size_t)r->query->max_tokens) {
        h->context.len = before;
        if (h->context.ptr) h->context.ptr[before] = 0;
        return TERN_OK;
    }
    h->list[h->pub.n++] = *hit;
    h->pub.n_tokens = (int64_t)n_tokens;
    return TERN_OK;
}

static tern_status read_hits(tern_recall *r, sqlite3_stmt *st, tern_error *err) {
    bool has_row;
    size_t n = 0; // read, and within the budget
    for (size_t i = 0; i < r->n_fused && n < r->hits->n_read; i++) {
        sqlite3_bind_int64(st, 1, r->fused[i].id);
        TERN_TRY(tern_store_step(r->s, st, &has_row, err));
        if (has_row) {
            TERN_TRY(read_hit(r, st, &r->fused[i], n, err));
            if (!r->n_ranked) TERN_TRY(tern_recall_take(r, n, err));
            n = r->n_ranked ? n + 1 : r->hits->pub.n;
        }
        sqlite3_reset(st);
    }
    r->hits->n_ranked = r->n_ranked ? n : 0;
    return TERN_OK;
}

tern_status tern_recall_hits(tern_recall *r, tern_error *err) {
    sqlite3_stmt *st = NULL;
    TERN_TRY(create(r, err));
    TERN_TRY(
        tern_store_prepare(r->s, &st,
                           "SELECT record, text, heading, n_tokens, line, source, metadata, created"
                           " FROM chunk JOIN record ON record.id = chunk.record WHERE chunk.id = ?",
                           err));
    tern_status status = read_hits(r, st, err);
    sqlite3_finalize(st);
    return status;
}

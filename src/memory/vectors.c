// Nearest vectors by reading all of them: 100,000 with 384 numbers are 41 MB in 8 bits, which two
// cores read in a few milliseconds. The kernel is that of Q8_0 matrices.
//
// Threads take runs of rows; each keeps its own k best in a heap whose root is the worst of them,
// and the heaps are merged at the end. So the result does not depend on which thread took which
// run.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "memory/memory.h"

#define RUN 256 // rows computed before their products are looked at

static size_t padded(size_t n_dims) { return (n_dims + 31) / 32 * 32; }

void tern_vectors_open(tern_vectors *v, size_t n_dims) {
    *v = (tern_vectors){.n_dims = n_dims, .row_bytes = tern_vectors_row_bytes(n_dims)};
    tern_cpu_kernels_select(NULL, &v->kernels); // queries the processor, which may be slow
}

size_t tern_vectors_row_bytes(size_t n_dims) { return padded(n_dims) / 32 * 34; }

void tern_vectors_encode(uint8_t *row, const float *vector, size_t n_dims) {
    float block[32];
    for (size_t i = 0; i < n_dims; i += 32) {
        size_t n = n_dims - i < 32 ? n_dims - i : 32;
        memset(block, 0, sizeof block);
        memcpy(block, vector + i, n * sizeof *block);
        tern_dtype_encode(TERN_DTYPE_Q8_0, block, 32, row + i / 32 * 34);
    }
}

tern_status tern_vectors_add(tern_vectors *v, int64_t id, const uint8_t *row, tern_error *err) {
    if (v->n == v->capacity) {
        size_t capacity = v->capacity ? v->capacity * 2 : 1024;
        uint8_t *rows = tern_realloc(TERN_MEM_SESSION, v->rows, capacity * v->row_bytes);
        if (rows) v->rows = rows;
        int64_t *ids = rows ? tern_realloc(TERN_MEM_SESSION, v->ids, capacity * sizeof *ids) : NULL;
        if (ids) v->ids = ids;
        if (!ids) return tern_fail_memory(err, capacity * v->row_bytes);
        v->capacity = capacity;
    }
    memcpy(v->rows + v->n * v->row_bytes, row, v->row_bytes);
    v->ids[v->n++] = id;
    return TERN_OK;
}

void tern_vectors_clear(tern_vectors *v) { v->n = 0; }

void tern_vectors_free(tern_vectors *v) {
    tern_free(v->rows);
    tern_free(v->ids);
    *v = (tern_vectors){0};
}

// ---- The best of a list -------------------------------------------------------------------------

static bool better(tern_match a, tern_match b) {
    return a.score > b.score || (a.score == b.score && a.id < b.id);
}

static int better_first(const void *a, const void *b) {
    const tern_match *x = a, *y = b;
    return better(*x, *y) ? -1 : better(*y, *x);
}

typedef struct best {
    tern_match *heap; // [k], the worst one first
    size_t n, k;
} best;

static void offer(best *b, tern_match m) {
    size_t i;
    if (b->n < b->k) { // moves up from the end
        for (i = b->n++; i > 0 && better(b->heap[(i - 1) / 2], m); i = (i - 1) / 2)
            b->heap[i] = b->heap[(i - 1) / 2];
    } else { // moves down from the root
        if (!better(m, b->heap[0])) return;
        for (i = 0; 2 * i + 1 < b->n;) {
            size_t child = 2 * i + 1;
            if (child + 1 < b->n && better(b->heap[child], b->heap[child + 1])) child++;
            if (!better(m, b->heap[child])) break;
            b->heap[i] = b->heap[child];
            i = child;
        }
    }
    b->heap[i] = m;
}

// ---- Search -------------------------------------------------------------------------------------

typedef struct search {
    const tern_vectors *v;
    const float *query; // 64: [padded]
    const int64_t *allowed;
    size_t n_allowed;
    best *best; // [threads]
    atomic_size_t claimed;
} search;

// The first place of `ids` whose id is not less.
static size_t lower_bound(const int64_t *ids, size_t n, int64_t id) {
    size_t low = 0;
    while (n > 0) {
        size_t half = n / 2;
        if (ids[low + half] < id)
            low += half + 1, n -= half + 1;
        else
            n = half;
    }
    return low;
}

static void look_at(const search *s, best *b, size_t first, size_t last) {
    float scores[RUN];
    const tern_vectors *v = s->v;
    size_t at = s->allowed ? lower_bound(s->allowed, s->n_allowed, v->ids[first]) : 0;
    if (s->allowed && (at == s->n_allowed || s->allowed[at] > v->ids[last - 1])) return;
    v->kernels.f->matvec(&(tern_matvec_args){.y = scores,
                                             .x = s->query,
                                             .w = v->rows + first * v->row_bytes,
                                             .type = TERN_DTYPE_Q8_0,
                                             .row_bytes = v->row_bytes,
                                             .n_rows = last - first,
                                             .n_in = padded(v->n_dims),
                                             .scale = 1});
    for (size_t i = first; i < last; i++) {
        if (s->allowed) {
            while (at < s->n_allowed && s->allowed[at] < v->ids[i]) at++;
            if (at == s->n_allowed) return;
            if (s->allowed[at] != v->ids[i]) continue;
        }
        if (b->n < b->k || scores[i - first] >= b->heap[0].score)
            offer(b, (tern_match){v->ids[i], scores[i - first]});
    }
}

static void search_runs(void *ctx, const tern_team *team) {
    search *s = ctx;
    size_t first, last;
    while (tern_team_claim(&s->claimed, s->v->n, RUN, &first, &last))
        look_at(s, &s->best[team->thread], first, last);
}

tern_status tern_vectors_search(const tern_vectors *v, const tern_team *team,
                                const tern_vectors_query *query, tern_match *out, size_t *n,
                                tern_error *err) {
    size_t n_threads = (size_t)team->n_threads, width = padded(v->n_dims);
    size_t k = query->k < v->n ? query->k : v->n;
    *n = 0;
    if (k == 0) return TERN_OK;
    float *wide = tern_alloc_array(TERN_MEM_MISC, width, sizeof *wide);
    best *lists = tern_alloc_array(TERN_MEM_MISC, n_threads, sizeof *lists);
    tern_match *heaps = tern_alloc_array(TERN_MEM_MISC, n_threads * k, sizeof *heaps);
    if (!wide || !lists || !heaps) {
        tern_free(wide), tern_free(lists), tern_free(heaps);
        return tern_fail_memory(err, n_threads * k * sizeof *heaps);
    }
    memcpy(wide, query->vector, v->n_dims * sizeof *wide);
    for (size_t t = 0; t < n_threads; t++) lists[t] = (best){heaps + t * k, 0, k};
    search s = {v, wide, query->allowed, query->n_allowed, lists, 0};
    tern_team_run(team, search_runs, &s);
    for (size_t t = 1; t < n_threads; t++)
        for (size_t i = 0; i < lists[t].n; i++) offer(&lists[0], lists[t].heap[i]);
    *n = lists[0].n;
    memcpy(out, lists[0].heap, *n * sizeof *out);
    if (*n) qsort(out, *n, sizeof *out, better_first);
    tern_free(wide), tern_free(lists), tern_free(heaps);
    return TERN_OK;
}

float tern_vectors_dot(const tern_vectors *v, const float *a, const float *b) {
    return v->kernels.f->dot(a, b, v->n_dims);
}

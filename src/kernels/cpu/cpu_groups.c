// Weights of codes in groups (grouped/grouped.h), packed once by all threads.
#include <string.h>
#include "base/alloc.h"
#include "kernels/affine.h"
#include "kernels/cpu/cpu.h"

typedef struct group_job {
    const tern_weight_source *s;
    const tern_grouped_matrix *m;
    uint8_t *out;
    atomic_size_t counter;
    atomic_int status;
} group_job;

// Finds factors that are infinite or NaN: the results of their products would be rounded to int8,
// which turns them into ordinary numbers.
static void check_factors(group_job *job, const uint16_t *factors, size_t n) {
    uint16_t all = job->m->is_bf16 ? 0x7f80 : 0x7c00; // the exponent
    bool damaged = false;
    if (job->m->has_table) return; // scales of other forms
    for (size_t i = 0; i < n; i++) damaged |= (factors[i] & all) == all;
    if (damaged) atomic_store(&job->status, TERN_ERR_FORMAT);
}

// ---- One and two bits ---------------------------------------------------------------------------

// Numbers and scales of 16 rows; those after the last row are 0. Blocks of 256 have their scale
// twice.
static void read_group_rows(const group_job *job, size_t row, int8_t *q, uint16_t *scales) {
    const tern_weight_source *s = job->s;
    size_t n_in = job->m->n_in, n_groups = n_in / job->m->group, n = (size_t)s->n_rows;
    size_t repeats = tern_dtype_group_n(s->type) / job->m->group;
    memset(scales, 0, TERN_GROUPED_ROWS * n_groups * sizeof *scales);
    for (size_t r = 0; r < TERN_GROUPED_ROWS && row + r < n; r++) {
        uint16_t *to = scales + r * n_groups;
        tern_dtype_decode_groups(s->type, s->data.memory, (row + r) * n_in, n_in, q + r * n_in, to);
        for (size_t g = n_groups; repeats > 1 && g-- > 0;) to[g] = to[g / repeats];
    }
}

static void pack_groups(void *ctx, const tern_team *team) {
    group_job *job = ctx;
    const tern_grouped_matrix *m = job->m;
    size_t n_blocks = (m->n_rows + TERN_GROUPED_ROWS - 1) / TERN_GROUPED_ROWS;
    (void)team;
    int8_t *q = tern_alloc(TERN_MEM_MISC, TERN_GROUPED_ROWS * m->n_in);
    uint16_t *scales =
        tern_alloc_array(TERN_MEM_MISC, TERN_GROUPED_ROWS, m->n_in / m->group * sizeof *scales);
    if (!q || !scales) atomic_store(&job->status, TERN_ERR_MEMORY);
    for (size_t b, last; q && scales && tern_team_claim(&job->counter, n_blocks, 4, &b, &last);)
        for (; b < last; b++) {
            read_group_rows(job, b * TERN_GROUPED_ROWS, q, scales);
            check_factors(job, scales, TERN_GROUPED_ROWS * (m->n_in / m->group));
            tern_grouped_pack(m, q, scales, job->out + b * m->block_bytes);
        }
    tern_free(q);
    tern_free(scales);
}

static void narrow_form(const tern_weight_source *s, tern_grouped_matrix *m) {
    size_t group = tern_dtype_group_n(s->type);
    m->bits = s->type == TERN_DTYPE_Q1_0 ? 1 : 2;
    m->group = group > 128 ? 128 : (uint32_t)group;
    m->block_bytes = tern_grouped_block_bytes(m->n_in, m->group, m->bits);
}

// ---- Four bits and more ------------------------------------------------------------------------

static bool wide_form(const tern_weight_source *s, tern_grouped_matrix *m) {
    tern_dtype_form affine;
    const tern_dtype_form *f = tern_dtype_form_of(s->type);
    if (!f && tern_affine_form(s, &affine)) f = &affine;
    if (!f) return false;
    m->bits = f->bits;
    m->group = f->group;
    m->super = f->super;
    m->zero = f->zero;
    m->has_minima = f->has_minima;
    m->is_bf16 = f->is_bf16;
    m->has_table = f->has_table;
    memcpy(m->table, f->table, sizeof m->table);
    return tern_grouped_wide_fits(m);
}

// Room for the parts of 16 rows, in one piece.
static void *wide_rows_new(const tern_grouped_matrix *m, tern_dtype_codes *to) {
    size_t n = TERN_GROUPED_ROWS * m->n_in, n_groups = n / m->group;
    uint8_t *room = tern_alloc(TERN_MEM_MISC, n + n_groups * 6);
    if (!room) return NULL;
    to->scales = (uint16_t *)room;
    to->minima = to->scales + n_groups;
    to->sub_scales = (int8_t *)(to->minima + n_groups);
    to->sub_minima = to->sub_scales + n_groups;
    to->codes = (uint8_t *)(to->sub_minima + n_groups);
    return room;
}

static void pack_wide(void *ctx, const tern_team *team) {
    group_job *job = ctx;
    const tern_grouped_matrix *m = job->m;
    const tern_weight_source *s = job->s;
    size_t n_blocks = (m->n_rows + TERN_GROUPED_ROWS - 1) / TERN_GROUPED_ROWS;
    tern_dtype_codes to;
    (void)team;
    void *room = wide_rows_new(m, &to);
    if (!room) atomic_store(&job->status, TERN_ERR_MEMORY);
    const tern_dtype_form affine = {.bits = m->bits,
                                    .group = (uint16_t)m->group,
                                    .has_minima = m->has_minima,
                                    .is_bf16 = m->is_bf16};
    const tern_grouped_wide rows = {to.codes, to.scales, to.minima, to.sub_scales, to.sub_minima};
    for (size_t b, last; room && tern_team_claim(&job->counter, n_blocks, 4, &b, &last);)
        for (; b < last; b++) {
            size_t row = b * TERN_GROUPED_ROWS, n = m->n_rows - row;
            if (n > TERN_GROUPED_ROWS) n = TERN_GROUPED_ROWS;
            if (tern_dtype_form_of(s->type))
                tern_dtype_decode_codes(s->type, s->data.memory, row * m->n_in, n * m->n_in, &to);
            else
                tern_affine_rows(s, &affine, (int64_t)row, (int64_t)n, &to);
            size_t n_factors = n * m->n_in / (m->super ? m->super : m->group);
            check_factors(job, to.scales, n_factors);
            if (m->has_minima) check_factors(job, to.minima, n_factors);
            tern_grouped_pack_wide(m, &rows, n, job->out + b * m->block_bytes);
        }
    tern_free(room);
}

// ---- Binding -----------------------------------------------------------------------------------

// Heads that the caller wants in another form are not grouped. Heads of one and two bits are,
// whatever else the caller wants: few bits are read for all logits. Heads of more bits are
// multiplied with floats, since exact greatest logits are found faster without most of the head
// (cpu_weights.c).
bool cpu_grouped_form(const tern_device *d, const tern_weight_source *s, tern_grouped_matrix *m) {
    *m = (tern_grouped_matrix){.n_in = (size_t)s->n_cols, .n_rows = (size_t)s->n_rows};
    if (tern_weight_in_groups(s, d->precise)) {
        narrow_form(s, m);
        return true;
    }
    bool may = !d->precise && !s->as_floats && s->n_parts == 0;
    return may && s->is_matrix && !s->is_head && wide_form(s, m);
}

static const char *layout_name(const tern_grouped_matrix *m) {
    switch (m->bits) {
    case 1: return "1-bit groups";
    case 2: return "2-bit groups";
    case 4: return "4-bit groups";
    case 5: return "5-bit groups";
    case 6: return "6-bit groups";
    default: return "8-bit groups";
    }
}

tern_status cpu_bind_grouped(tern_device *d, tern_weight *w, tern_error *err) {
    const tern_weight_source *s = &w->source;
    tern_grouped_matrix *m = &w->grouped;
    size_t bytes = (m->n_rows + TERN_GROUPED_ROWS - 1) / TERN_GROUPED_ROWS * m->block_bytes;
    w->owned = tern_alloc(TERN_MEM_WEIGHTS, bytes + 64);
    if (!w->owned) return tern_fail_memory(err, bytes);
    group_job job = {.s = s, .m = m, .out = w->owned};
    tern_team_run(d->team, m->bits < 4 ? pack_groups : pack_wide, &job);
    m->data = w->owned;
    w->info.kind = TERN_WEIGHT_GROUPED;
    w->info.layout = layout_name(m);
    w->info.bytes_per_token = bytes;
    if (atomic_load(&job.status) == TERN_ERR_FORMAT)
        return tern_fail(err, TERN_ERR_FORMAT, "%s: a scale is not a finite number", s->name);
    return atomic_load(&job.status) == TERN_OK ? TERN_OK : tern_fail_memory(err, bytes);
}

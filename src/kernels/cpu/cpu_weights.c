// Weights as the kernels read them. What can be used as the file has it is held and stays where it
// is; the rest is repacked once, a row at a time, by all threads, and let go.
#include <string.h>
#include "base/alloc.h"
#include "base/dtype/ternary.h"
#include "kernels/cpu/cpu.h"

// ---- Packing -----------------------------------------------------------------------------------

typedef struct pack_job {
    const tern_device *d;
    const tern_weight_source *s;
    const tern_ternary_kind *kind;
    tern_ternary_matrix *m;
    uint8_t *out;
    size_t n_rows; // to pack, from the first one on
    atomic_size_t counter;
    atomic_int status;
} pack_job;

static void pack_rows(void *ctx, const tern_team *team) {
    pack_job *job = ctx;
    tern_codes r;
    tern_matrix m = tern_weight_matrix(job->s); // held: nothing is read
    (void)team;
    bool straight = job->s->type == TERN_DTYPE_I2_S && job->s->n_cols % 128 == 0;
    tern_status status = tern_codes_open(&r, &m, job->kind, false, NULL);
    if (status != TERN_OK) atomic_store(&job->status, status);
    for (size_t first, last;
         status == TERN_OK && tern_team_claim(&job->counter, job->n_rows, 64, &first, &last);) {
        for (size_t row = first; row < last; row++) {
            uint8_t *to = job->out + row * job->m->row_bytes;
            if (straight)
                job->d->kernels.t->repack_row(
                    to, job->s->data.memory + row * (size_t)(job->s->n_cols / 4),
                    (size_t)job->s->n_cols);
            else
                job->d->kernels.t->pack_row(job->m->packing, tern_codes_row(&r, (int64_t)row),
                                            (size_t)job->s->n_cols, to);
        }
    }
    tern_codes_close(&r);
}

static tern_status pack(tern_device *d, const tern_weight_source *s, const tern_ternary_kind *kind,
                        tern_ternary_matrix *m, uint8_t **owned, tern_error *err) {
    size_t n_rows = (size_t)s->n_rows;
    m->packing = d->packing;
    m->n_in = (size_t)s->n_cols;
    m->n_rows = n_rows;
    m->row_bytes = tern_ternary_row_bytes(d->packing, m->n_in);
    size_t bytes = m->row_bytes * n_rows;
    *owned = tern_alloc(TERN_MEM_WEIGHTS, bytes + 64);
    if (!*owned) return tern_fail_memory(err, bytes);
    pack_job job = {.d = d, .s = s, .kind = kind, .m = m, .out = *owned, .n_rows = n_rows};
    tern_team_run(d->team, pack_rows, &job);
    m->data = *owned;
    return atomic_load(&job.status) == TERN_OK ? TERN_OK : tern_fail_memory(err, m->n_in);
}

static bool lies_packed(const tern_weight_source *s) {
    return s->type == TERN_DTYPE_I2_S && s->n_cols % 128 == 0;
}

static tern_status bind_ternary(tern_device *d, tern_weight *w, const tern_ternary_kind *kind,
                                tern_error *err) {
    const tern_weight_source *s = &w->source;
    w->info.kind = TERN_WEIGHT_TERNARY;
    w->info.layout = d->packing == TERN_PACK_2BIT ? "2-bit" : "1.6-bit";
    w->ternary.scale = kind->scale;
    if (d->packing == TERN_PACK_2BIT && lies_packed(s)) {
        w->ternary =
            (tern_ternary_matrix){TERN_PACK_2BIT,    s->data.memory,        (size_t)s->n_cols,
                                  (size_t)s->n_rows, (size_t)s->n_cols / 4, kind->scale};
        w->info.keeps_source = true;
    } else {
        uint8_t *owned = NULL;
        tern_status status = pack(d, s, kind, &w->ternary, &owned, err);
        w->owned = owned; // also after a failure: whoever unbinds the weight frees it
        if (status != TERN_OK) return status;
    }
    w->info.bytes_per_token = (uint64_t)w->ternary.row_bytes * w->ternary.n_rows;
    return TERN_OK;
}

// ---- Heads -------------------------------------------------------------------------------------

typedef struct convert_job {
    tern_weight *w;
    uint8_t *out;
    atomic_size_t counter;
    atomic_int status;
} convert_job;

static void convert_rows(void *ctx, const tern_team *team) {
    convert_job *job = ctx;
    const tern_weight_source *s = &job->w->source;
    (void)team;
    float *floats = tern_alloc_array(TERN_MEM_MISC, (size_t)s->n_cols, sizeof *floats);
    if (!floats) atomic_store(&job->status, TERN_ERR_MEMORY);
    for (size_t first, last;
         floats && tern_team_claim(&job->counter, (size_t)s->n_rows, 64, &first, &last);)
        for (size_t row = first; row < last; row++) {
            tern_dtype_decode(s->type, s->data.memory, row * (uint64_t)s->n_cols, (size_t)s->n_cols,
                              s->scale, floats);
            tern_dtype_encode(job->w->type, floats, (size_t)s->n_cols,
                              job->out + row * job->w->row_bytes);
        }
    tern_free(floats);
}

static tern_status convert_head(tern_device *d, tern_weight *w, tern_dtype type, tern_error *err) {
    const tern_weight_source *s = &w->source;
    uint64_t bytes;
    if (!tern_dtype_bytes(type, (uint64_t)(s->n_rows * s->n_cols), (uint64_t)s->n_cols, &bytes))
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: rows of %lld cannot be %s (blocks of %zu)",
                         s->name, (long long)s->n_cols, tern_dtype_name(type),
                         tern_dtype_block_n(type));
    w->type = type;
    w->row_bytes = bytes / (uint64_t)s->n_rows;
    w->owned = tern_alloc(TERN_MEM_WEIGHTS, bytes + 64);
    if (!w->owned) return tern_fail_memory(err, bytes);
    convert_job job = {.w = w, .out = w->owned};
    tern_team_run(d->team, convert_rows, &job);
    w->rows = w->owned;
    w->info.keeps_source = false; // only single rows of the table are read
    return atomic_load(&job.status) == TERN_OK ? TERN_OK : tern_fail_memory(err, bytes);
}

// The low-bit copy that finds the greatest logits exactly.
typedef struct screen_job {
    tern_head *screen;
    size_t n_rows;
    atomic_size_t counter;
    atomic_int status;
} screen_job;

// Long blocks: when two threads touch the same new huge page at once, both of them clear it.
#define SCREEN_BLOCK_ROWS 4096
static void build_screen_rows(void *ctx, const tern_team *team) {
    screen_job *job = ctx;
    (void)team;
    void *scratch = tern_alloc(TERN_MEM_MISC, tern_head_build_scratch_bytes(job->screen));
    if (!scratch) atomic_store(&job->status, TERN_ERR_MEMORY);
    for (size_t first, last;
         scratch && tern_team_claim(&job->counter, job->n_rows, SCREEN_BLOCK_ROWS, &first, &last);)
        tern_head_build(job->screen, first, last, scratch);
    tern_free(scratch);
}

static tern_status build_screen(tern_device *d, tern_weight *w, tern_error *err) {
    const tern_weight_source *s = &w->source;
    tern_head_matrix m = {w->type,           w->rows,           w->row_bytes,
                          (size_t)s->n_rows, (size_t)s->n_cols, s->scale};
    TERN_TRY(tern_head_create(&w->screen, &m, &d->kernels, err));
    screen_job job = {.screen = w->screen, .n_rows = (size_t)s->n_rows};
    tern_team_run(d->team, build_screen_rows, &job);
    if (atomic_load(&job.status) != TERN_OK) return tern_fail_memory(err, 0);
    w->info.bytes_per_token_greedy = tern_head_screen_bytes(w->screen);
    w->info.keeps_source = false; // from now on only single rows of it are read
    w->info.layout = w->type == TERN_DTYPE_F16    ? "exact F16"
                     : w->type == TERN_DTYPE_BF16 ? "exact BF16"
                     : w->type == TERN_DTYPE_F32  ? "exact F32"
                                                  : "exact";
    return TERN_OK;
}

// Worth it for all but the smallest heads: even when a head fits in a cache, screening multiplies
// fewer bits or fewer floats, and reads them once for up to eight tokens.
#define SCREEN_BYTES_MIN ((uint64_t)1 << 20)
static bool wants_screen(const tern_weight_source *s) {
    if (!s->is_head || s->head == TERN_HEAD_FILE) return false;
    if (s->head == TERN_HEAD_EXACT) return true;
    bool wide =
        tern_dtype_is_float(s->type) || tern_dtype_form_of(s->type) || tern_dtype_code_max(s->type);
    return s->head == TERN_HEAD_AUTO && wide && s->bytes >= SCREEN_BYTES_MIN;
}

// ---- Binding -----------------------------------------------------------------------------------

static tern_status bind_vector(tern_weight *w, tern_error *err) {
    const tern_weight_source *s = &w->source;
    size_t n = (size_t)s->n_rows * (size_t)s->n_cols; // one row, but for a convolution's taps
    float *v = tern_alloc_array(TERN_MEM_WEIGHTS, n, sizeof *v);
    if (!v) return tern_fail_memory(err, n * sizeof *v);
    tern_dtype_decode(s->type, s->data.memory, 0, n, s->scale, v);
    w->owned = v;
    w->vector = v;
    w->info.layout = "F32";
    return TERN_OK;
}

// Outputs in blocks of TERN_CONV_OUTPUTS side by side: [blocks][taps][inputs][outputs].
static tern_status bind_convolution(tern_weight *w, tern_error *err) {
    const tern_weight_source *s = &w->source;
    size_t n_out = (size_t)s->n_conv_outputs, taps = (size_t)s->n_cols;
    size_t n_in = (size_t)s->n_rows / n_out, each = taps * n_in, width = TERN_CONV_OUTPUTS;
    size_t n = (n_out + width - 1) / width * each * width;
    float *to = tern_alloc_array(TERN_MEM_WEIGHTS, n, sizeof *to);
    float *from = tern_alloc_array(TERN_MEM_MISC, each, sizeof *from);
    w->owned = to;
    w->vector = to;
    w->info.layout = "F32";
    if (!to || !from) {
        tern_free(from);
        return tern_fail_memory(err, n * sizeof *to);
    }
    for (size_t o = 0; o < n_out; o++) {
        float *column = to + o / width * each * width + o % width;
        tern_dtype_decode(s->type, s->data.memory, o * each, each, s->scale, from);
        for (size_t i = 0; i < n_in; i++)
            for (size_t j = 0; j < taps; j++) column[(j * n_in + i) * width] = from[i * taps + j];
    }
    tern_free(from);
    return TERN_OK;
}

static tern_status bind_float(tern_device *d, tern_weight *w, tern_error *err) {
    const tern_weight_source *s = &w->source;
    tern_dtype type;
    if (s->type == TERN_DTYPE_HF_TERNARY)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: a packed ternary %s is not supported",
                         s->name, s->is_head ? "head" : "table");
    w->type = s->type;
    w->rows = s->data.memory;
    w->row_bytes = s->bytes / (uint64_t)s->n_rows;
    if (s->type == TERN_DTYPE_I2_S) w->row_bytes = (size_t)s->n_cols / 4;
    w->info.keeps_source = s->is_matrix; // of a table single rows are read
    if (s->is_head && tern_head_type(s->head, &type)) TERN_TRY(convert_head(d, w, type, err));
    w->info.layout = tern_dtype_name(w->type);
    if (s->is_matrix) w->info.bytes_per_token = (uint64_t)w->row_bytes * (uint64_t)s->n_rows;
    w->info.bytes_per_token_greedy = w->info.bytes_per_token;
    return wants_screen(s) ? build_screen(d, w, err) : TERN_OK;
}

// Each part is held by itself, since the file may have them apart. A token reads a few of them:
// which pages of the file are in memory is left to the system.
static tern_status bind_in_parts(tern_weight *w, tern_error *err) {
    const tern_weight_source *s = &w->source;
    uint64_t n = (uint64_t)s->n_parts, rows = (uint64_t)s->n_rows / n, each;
    uint64_t n_cols = (uint64_t)s->n_cols;
    bool apart = s->type == TERN_DTYPE_I2_S ? n_cols % 128 == 0 : s->type != TERN_DTYPE_HF_TERNARY;
    if (!apart || !tern_dtype_bytes(s->type, rows * n_cols, n_cols, &each))
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: experts of type %s are not supported",
                         s->name, tern_dtype_name(s->type));
    w->type = s->type;
    w->row_bytes = s->type == TERN_DTYPE_I2_S ? (size_t)s->n_cols / 4 : each / rows;
    each = w->row_bytes * rows;
    w->info.layout = tern_dtype_name(w->type);
    w->info.bytes_per_token = each * (uint64_t)s->n_parts_read;
    w->parts = tern_alloc_array(TERN_MEM_WEIGHTS, (size_t)n, sizeof *w->parts);
    if (!w->parts) return tern_fail_memory(err, (size_t)n * sizeof *w->parts);
    for (uint64_t i = 0; i < n; i++) {
        tern_blob part = tern_blob_part(&s->data, i * each, each);
        TERN_TRY(tern_blob_hold(&part, &w->parts[i], err));
    }
    return TERN_OK;
}

static tern_status bind_held(tern_device *d, tern_weight *w, tern_error *err) {
    const tern_weight_source *s = &w->source;
    tern_ternary_kind kind = {0};
    tern_matrix m = tern_weight_matrix(s);
    if (s->is_matrix && !s->is_head) {
        tern_status status = tern_ternary_find(&m, s->ternarize, &kind, err);
        if (status != TERN_OK) return tern_fail_prefix(err, status, s->name);
    }
    if (s->n_conv_outputs > 0) return bind_convolution(w, err);
    if (!s->is_matrix && !s->is_table) return bind_vector(w, err);
    if (!kind.is_ternary && cpu_grouped_form(d, s, &w->grouped)) return cpu_bind_grouped(d, w, err);
    return kind.is_ternary ? bind_ternary(d, w, &kind, err) : bind_float(d, w, err);
}

// Whether kernels go on reading the file's own bytes.
static bool reads_source(const tern_weight *w) {
    const uint8_t *data = w->source.data.memory;
    return w->parts || w->source.is_table || w->rows == data || w->ternary.data == data;
}

tern_status cpu_weight_bind(tern_device *d, const tern_weight_source *s, tern_weight **out,
                            tern_error *err) {
    *out = NULL;
    tern_weight *w = tern_alloc(TERN_MEM_WEIGHTS, sizeof *w);
    if (!w) return tern_fail_memory(err, sizeof *w);
    w->source = *s;
    tern_status status = TERN_OK;
    if (s->n_parts > 0) {
        status = bind_in_parts(w, err);
    } else {
        status = tern_blob_hold(&s->data, &w->held, err);
        w->source.data = tern_blob_of(w->held.data, s->data.n);
        if (status == TERN_OK) status = bind_held(d, w, err);
    }
    if (status != TERN_OK) {
        cpu_weight_unbind(d, w);
        return status;
    }
    if (!reads_source(w)) {
        tern_blob_release(&w->held);
        w->source.data = (tern_blob){0};
    }
    if (w->info.bytes_per_token_greedy == 0)
        w->info.bytes_per_token_greedy = w->info.bytes_per_token;
    *out = w;
    return TERN_OK;
}

void cpu_weight_unbind(tern_device *d, tern_weight *w) {
    (void)d;
    if (!w) return;
    tern_head_free(w->screen);
    tern_blob_release(&w->held);
    for (int32_t i = 0; w->parts && i < w->source.n_parts; i++) tern_blob_release(&w->parts[i]);
    tern_free(w->parts);
    tern_free(w->owned);
    tern_free(w);
}

void cpu_weight_info(const tern_weight *w, tern_weight_info *info) {
    *info = w->info;
    info->is_settled = info->is_bound = true;
}

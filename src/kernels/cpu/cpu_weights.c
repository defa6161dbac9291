// Weights as the kernels read them. What can be used where it is mapped stays there; the rest is
// repacked once, a row at a time, by all threads.
#include <math.h>
#include <string.h>
#include <time.h>
#include "base/alloc.h"
#include "base/half.h"
#include "kernels/cpu/cpu.h"

// ---- Ternary codes of a row, from any representation -------------------------------------------

typedef struct code_reader {
    const tern_weight_source *s;
    float mean;     // of |w|, for master weights; 0: the values are already ternary
    float *floats;  // [n_cols] scratch
    int8_t *codes;  // [n_cols + 512] scratch
    float *scales;
} code_reader;

static bool is_float(tern_dtype t) {
    return t == TERN_DTYPE_F32 || t == TERN_DTYPE_F16 || t == TERN_DTYPE_BF16;
}

// Rows of Hugging Face's packing: byte [r, i] holds rows r, r + n/4, r + 2n/4, r + 3n/4.
static void read_hf_row(const tern_weight_source *s, int64_t row, int8_t *q) {
    int64_t quarter = s->n_rows / 4;
    const uint8_t *bytes = (const uint8_t *)s->data + row % quarter * s->n_cols;
    int shift = (int)(row / quarter) * 2;
    for (int64_t i = 0; i < s->n_cols; i++) q[i] = (int8_t)((bytes[i] >> shift & 3) - 1);
}

// Blocks run over the whole tensor: a row may begin and end inside one.
static const int8_t *read_block_row(const code_reader *r, int64_t row) {
    const tern_weight_source *s = r->s;
    uint64_t block = tern_dtype_block_n(s->type), first = (uint64_t)(row * s->n_cols);
    uint64_t from = first / block * block;
    uint64_t to = (first + (uint64_t)s->n_cols + block - 1) / block * block;
    tern_dtype_decode_ternary(s->type, s->data, from, (size_t)(to - from), r->codes, r->scales);
    if (s->type != TERN_DTYPE_I2_S)
        for (uint64_t b = 0; b < (to - from) / block; b++) // a block of scale 0 is all zeros
            if (r->scales[b] == 0) memset(r->codes + b * block, 0, block);
    return r->codes + (first - from);
}

static const int8_t *read_row(const code_reader *r, int64_t row) {
    const tern_weight_source *s = r->s;
    if (s->type == TERN_DTYPE_HF_TERNARY) {
        read_hf_row(s, row, r->codes);
        return r->codes;
    }
    if (!is_float(s->type)) return read_block_row(r, row);
    tern_dtype_decode(s->type, s->data, (uint64_t)(row * s->n_cols), (size_t)s->n_cols, 1,
                      r->floats);
    for (int64_t i = 0; i < s->n_cols; i++) {
        float w = r->floats[i];
        if (r->mean == 0) r->codes[i] = (int8_t)((w > 0) - (w < 0));
        else r->codes[i] = (int8_t)fmaxf(-1, fminf(1, nearbyintf(w * (1 / r->mean))));
    }
    return r->codes;
}

static tern_status reader_open(code_reader *r, const tern_weight_source *s, float mean,
                               tern_error *err) {
    size_t n = (size_t)s->n_cols;
    *r = (code_reader){.s = s, .mean = mean};
    r->floats = tern_alloc_array(TERN_MEM_MISC, n, sizeof *r->floats);
    r->codes = tern_alloc(TERN_MEM_MISC, n + 1024);
    r->scales = tern_alloc_array(TERN_MEM_MISC, n / 256 + 4, sizeof *r->scales);
    if (r->floats && r->codes && r->scales) return TERN_OK;
    return tern_fail_memory(err, n * sizeof(float));
}

static void reader_close(code_reader *r) {
    tern_free(r->floats);
    tern_free(r->codes);
    tern_free(r->scales);
}

// Block-ternary types have a scale every 256 weights; BitNet uses one for the whole matrix. True,
// and the scale, when all blocks agree (blocks of zeros have none).
static bool uniform_block_scale(const tern_weight_source *s, float *scale) {
    size_t step = tern_dtype_block_bytes(s->type);
    const uint8_t *at = (const uint8_t *)s->data + step - 2, *end = at + s->bytes / step * step;
    uint16_t seen = 0;
    for (; at < end; at += step) {
        uint16_t bits;
        memcpy(&bits, at, 2);
        if (bits == 0 || bits == seen) continue;
        if (seen != 0) return false;
        seen = bits;
    }
    *scale = tern_f16_to_f32(seen);
    return true;
}

// Float weights of a ternary layer: either ternary already (0 and +-s), or master weights. mean is
// 0 in the first case and mean|w| (at least 1e-5, as transformers has it) in the second.
static void float_scale(const tern_weight_source *s, float *floats, float *mean, float *scale) {
    double sum = 0;
    float seen = 0;
    bool ternary = true;
    for (int64_t row = 0; row < s->n_rows; row++) {
        tern_dtype_decode(s->type, s->data, (uint64_t)(row * s->n_cols), (size_t)s->n_cols, 1,
                          floats);
        double row_sum = 0;
        for (int64_t i = 0; i < s->n_cols; i++) {
            float a = fabsf(floats[i]);
            row_sum += a;
            if (a == 0 || a == seen) continue;
            if (seen != 0) ternary = false;
            seen = a;
        }
        sum += row_sum;
    }
    float m = fmaxf((float)(sum / ((double)s->n_rows * (double)s->n_cols)), 1e-5f);
    *mean = ternary ? 0 : m;
    *scale = ternary ? seen : m;
}

// ---- Packing -----------------------------------------------------------------------------------

typedef struct pack_job {
    const tern_device *d;
    const tern_weight_source *s;
    float mean;
    tern_ternary_matrix *m;
    uint8_t *out;
    size_t n_rows; // to pack: the first of the matrix
    atomic_size_t counter;
    atomic_int status;
} pack_job;

static void pack_rows(void *ctx, const tern_team *team) {
    pack_job *job = ctx;
    code_reader r;
    (void)team;
    bool straight = job->s->type == TERN_DTYPE_I2_S && job->s->n_cols % 128 == 0;
    tern_status status = reader_open(&r, job->s, job->mean, NULL);
    if (status != TERN_OK) atomic_store(&job->status, status);
    for (size_t first, last; status == TERN_OK &&
                             tern_team_claim(&job->counter, job->n_rows, 64, &first, &last);) {
        for (size_t row = first; row < last; row++) {
            uint8_t *to = job->out + row * job->m->row_bytes;
            if (straight)
                job->d->kernels.t->repack(to, (const uint8_t *)job->s->data +
                                                  row * (size_t)(job->s->n_cols / 4),
                                          (size_t)job->s->n_cols);
            else
                tern_ternary_pack_row(job->m->packing, read_row(&r, (int64_t)row),
                                      (size_t)job->s->n_cols, to);
        }
    }
    reader_close(&r);
}

static tern_status pack(tern_device *d, const tern_weight_source *s, tern_packing packing,
                        float mean, size_t n_rows, tern_ternary_matrix *m, uint8_t **owned,
                        tern_error *err) {
    m->packing = packing;
    m->n_in = (size_t)s->n_cols;
    m->n_rows = n_rows;
    m->row_bytes = tern_ternary_row_bytes(packing, m->n_in);
    size_t bytes = m->row_bytes * n_rows;
    *owned = tern_alloc(TERN_MEM_WEIGHTS, bytes + 64);
    if (!*owned) return tern_fail_memory(err, bytes);
    pack_job job = {.d = d, .s = s, .mean = mean, .m = m, .out = *owned, .n_rows = n_rows};
    tern_pool_run(d->pool, pack_rows, &job);
    m->data = *owned;
    return atomic_load(&job.status) == TERN_OK ? TERN_OK : tern_fail_memory(err, m->n_in);
}

static bool lies_packed(const tern_weight_source *s) {
    return s->type == TERN_DTYPE_I2_S && s->n_cols % 128 == 0;
}

static tern_status bind_ternary(tern_device *d, tern_weight *w, float mean, float scale,
                                tern_error *err) {
    const tern_weight_source *s = &w->source;
    w->info.kind = TERN_WEIGHT_TERNARY;
    w->info.layout = d->packing == TERN_PACK_2BIT ? "2-bit" : "1.6-bit";
    w->ternary.scale = scale;
    if (d->packing == TERN_PACK_2BIT && lies_packed(s)) {
        w->ternary = (tern_ternary_matrix){TERN_PACK_2BIT, s->data, (size_t)s->n_cols,
                                           (size_t)s->n_rows, (size_t)s->n_cols / 4, scale};
        w->info.keeps_source = true;
    } else {
        uint8_t *owned = NULL;
        TERN_TRY(pack(d, s, d->packing, mean, (size_t)s->n_rows, &w->ternary, &owned, err));
        w->owned = owned;
    }
    w->info.bytes_per_token = (uint64_t)w->ternary.row_bytes * w->ternary.n_rows;
    return TERN_OK;
}

// True when the source can be read as codes with one scale.
static tern_status find_ternary(const tern_weight_source *s, bool *ternary, float *mean,
                                float *scale, tern_error *err) {
    *mean = 0;
    *scale = s->scale;
    *ternary = false;
    if (!s->is_matrix || s->is_head) return TERN_OK;
    if (s->type == TERN_DTYPE_I2_S || s->type == TERN_DTYPE_HF_TERNARY) *ternary = true;
    else if (tern_dtype_is_ternary(s->type)) *ternary = uniform_block_scale(s, scale);
    else if (s->ternarize && is_float(s->type)) {
        float *floats = tern_alloc_array(TERN_MEM_MISC, (size_t)s->n_cols, sizeof *floats);
        if (!floats) return tern_fail_memory(err, (size_t)s->n_cols * sizeof *floats);
        float_scale(s, floats, mean, scale);
        tern_free(floats);
        *ternary = true;
    }
    return TERN_OK;
}

// ---- Heads -------------------------------------------------------------------------------------

static bool head_type(tern_head_mode mode, tern_dtype *type) {
    switch (mode) {
    case TERN_HEAD_Q8_0: *type = TERN_DTYPE_Q8_0; return true;
    case TERN_HEAD_Q6_K: *type = TERN_DTYPE_Q6_K; return true;
    case TERN_HEAD_Q4_0: *type = TERN_DTYPE_Q4_0; return true;
    default: return false;
    }
}

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
            tern_dtype_decode(s->type, s->data, row * (uint64_t)s->n_cols, (size_t)s->n_cols,
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
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "%s: rows of %lld cannot be %s (blocks of %zu)", s->name,
                         (long long)s->n_cols, tern_dtype_name(type), tern_dtype_block_n(type));
    w->type = type;
    w->row_bytes = bytes / (uint64_t)s->n_rows;
    w->owned = tern_alloc(TERN_MEM_WEIGHTS, bytes + 64);
    if (!w->owned) return tern_fail_memory(err, bytes);
    convert_job job = {.w = w, .out = w->owned};
    tern_pool_run(d->pool, convert_rows, &job);
    w->rows = w->owned;
    return atomic_load(&job.status) == TERN_OK ? TERN_OK : tern_fail_memory(err, bytes);
}

// ---- Binding -----------------------------------------------------------------------------------

static tern_status bind_vector(tern_weight *w, tern_error *err) {
    const tern_weight_source *s = &w->source;
    float *v = tern_alloc_array(TERN_MEM_WEIGHTS, (size_t)s->n_cols, sizeof *v);
    if (!v) return tern_fail_memory(err, (size_t)s->n_cols * sizeof *v);
    tern_dtype_decode(s->type, s->data, 0, (size_t)s->n_cols, s->scale, v);
    w->owned = v;
    w->vector = v;
    w->info.layout = "F32";
    return TERN_OK;
}

static tern_status bind_float(tern_device *d, tern_weight *w, tern_error *err) {
    const tern_weight_source *s = &w->source;
    tern_dtype type;
    if (s->type == TERN_DTYPE_HF_TERNARY)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: a packed ternary %s is not supported",
                         s->name, s->is_head ? "head" : "table");
    w->type = s->type;
    w->rows = s->data;
    w->row_bytes = s->bytes / (uint64_t)s->n_rows;
    if (s->type == TERN_DTYPE_I2_S) w->row_bytes = (size_t)s->n_cols / 4;
    w->info.keeps_source = true;
    if (s->is_head && head_type(s->head, &type)) TERN_TRY(convert_head(d, w, type, err));
    w->info.layout = tern_dtype_name(w->type);
    if (s->is_matrix) w->info.bytes_per_token = (uint64_t)w->row_bytes * (uint64_t)s->n_rows;
    w->info.bytes_per_token_greedy = w->info.bytes_per_token;
    return TERN_OK;
}

tern_status cpu_weight_bind(tern_device *d, const tern_weight_source *s, tern_weight **out,
                            tern_error *err) {
    *out = NULL;
    tern_weight *w = tern_alloc(TERN_MEM_WEIGHTS, sizeof *w);
    if (!w) return tern_fail_memory(err, sizeof *w);
    w->source = *s;
    bool ternary;
    float mean, scale;
    tern_status status = find_ternary(s, &ternary, &mean, &scale, err);
    if (status == TERN_OK) {
        if (!s->is_matrix && !s->is_table) status = bind_vector(w, err);
        else if (ternary) status = bind_ternary(d, w, mean, scale, err);
        else status = bind_float(d, w, err);
    }
    if (status != TERN_OK) {
        cpu_weight_unbind(d, w);
        return status;
    }
    if (w->info.bytes_per_token_greedy == 0)
        w->info.bytes_per_token_greedy = w->info.bytes_per_token;
    *out = w;
    return TERN_OK;
}

void cpu_weight_unbind(tern_device *d, tern_weight *w) {
    (void)d;
    if (!w) return;
    tern_free(w->owned);
    tern_free(w);
}

void cpu_weight_info(const tern_weight *w, tern_weight_info *info) { *info = w->info; }

// Frozen matrices that stay as codes on the device (QLoRA, arXiv:2305.14314), in the forms that
// inference has: before an op that reads one, a stripe of its rows is decoded into memory that all
// of them share. So the ops' kernels, and their bits, are those of a matrix of floats. What the
// forms would round (16-bit offsets of groups of 16 columns, grids) is not kept as codes.
#include "base/alloc.h"
#include "base/dtype/ternary.h"
#include "kernels/webgpu/train/gpu_train_steps.h"

// A stripe is worth a dispatch of its own; its rows are a multiple of what a product's workgroup
// takes, so that C and A are bound at its first column.
enum { STRIPE_FLOATS = 1 << 24, STRIPE_ROWS = 128 };

// ---- Arrays ------------------------------------------------------------------------------------

// The same without a head's modes, and in memory of its own. F16 is also BF16's form: bits are
// copied.
static tern_weight_source source_of(const tern_train_codes *codes) {
    tern_weight_source s = *codes->source;
    s.is_matrix = s.is_table = true;
    if (s.type == TERN_DTYPE_BF16 && !s.ternarize) s.type = TERN_DTYPE_F16;
    return s;
}

static bool is_halves(const tern_weight_source *s) {
    return s->type == TERN_DTYPE_F16 && !s->ternarize && s->n_cols % 8 == 0;
}

tern_status gpu_train_codes_bytes(const tern_trainer_device *d, const tern_train_codes *codes,
                                  uint64_t *bytes, tern_error *err) {
    *bytes = 0;
    if (!codes->source) return TERN_OK;
    tern_weight_source s = source_of(codes);
    const tern_matrix m = tern_weight_matrix(&s);
    tern_ternary_kind kind = {.is_ternary = s.ternarize};
    if (!s.ternarize) TERN_TRY(tern_ternary_find(&m, false, &kind, err));
    *bytes = is_halves(&s) ? gpu_round(2 * (uint64_t)s.n_rows * (uint64_t)s.n_cols, 256)
                           : gpu_tiles_bytes(d->gpu, &s, kind.is_ternary);
    if (*bytes && codes->row_of) *bytes += gpu_round(4 * (uint64_t)s.n_rows, 256);
    return TERN_OK;
}

static tern_status send_codes(tern_train_array *a, const tern_weight_source *s, tern_error *err) {
    tern_device *gpu = a->device->gpu;
    uint64_t left = 1;
    TERN_TRY(gpu_weight_bind(gpu, s, &a->weight, err));
    while (left > 0) TERN_TRY(gpu_weight_bind_poll(gpu, a->weight, &left, err));
    return TERN_OK;
}

static tern_status send_order(tern_train_array *a, const tern_train_codes *codes, tern_error *err) {
    tern_device *gpu = a->device->gpu;
    const size_t n = (size_t)codes->source->n_rows;
    uint32_t *rows = tern_alloc_array(TERN_MEM_MISC, n, sizeof *rows);
    if (!rows) return tern_fail_memory(err, n * sizeof *rows);
    for (size_t i = 0; i < n; i++) rows[i] = (uint32_t)codes->row_of(codes->ctx, i);
    tern_status status =
        gpu_buffer_new(gpu, GPU_USE_WEIGHTS, 4 * n, WGPU_BUFFER_STORAGE | WGPU_BUFFER_COPY_DST,
                       "the order of rows", &a->order, err);
    if (status == TERN_OK) gpu->api.QueueWriteBuffer(gpu->queue, a->order, 0, rows, 4 * n);
    tern_free(rows);
    return status == TERN_OK ? gpu_check(gpu, "writing", err) : status;
}

tern_status gpu_train_array_of_codes(tern_trainer_device *d, const tern_train_codes *codes,
                                     tern_train_array **out, tern_error *err) {
    const tern_weight_source s = source_of(codes);
    *out = NULL;
    tern_train_array *a = tern_alloc(TERN_MEM_WEIGHTS, sizeof *a);
    if (!a) return tern_fail_memory(err, sizeof *a);
    *a = (tern_train_array){.device = d,
                            .n = (uint64_t)s.n_rows * (uint64_t)s.n_cols,
                            .is_bf16 = codes->source->type == TERN_DTYPE_BF16};
    tern_status status = send_codes(a, &s, err);
    if (status == TERN_OK && codes->row_of) status = send_order(a, codes, err);
    if (status == TERN_OK)
        *out = a;
    else
        gpu_train_array_free(a);
    return status;
}

// ---- Programs ----------------------------------------------------------------------------------

uint64_t gpu_train_stripe(const tern_program *p, tern_vid w) {
    const tern_value *v = &p->g.values[w];
    const uint64_t n = (uint64_t)v->rows, step = STRIPE_ROWS * gpu_train_stride(v->cols);
    const uint64_t floats = p->device->stripe_floats ? p->device->stripe_floats : STRIPE_FLOATS;
    const uint64_t rows = floats / step * STRIPE_ROWS;
    if (!v->is_coded) return n;
    return n <= rows ? n : rows ? rows : STRIPE_ROWS;
}

static bool reads_stripes(tern_op op) {
    return op == TERN_OP_LINEAR || op == TERN_OP_LINEAR_GRAD_X;
}

// Rows that are decoded at once for an op; 0: it reads no codes, or those that it needs itself.
static uint64_t decoded_rows(const tern_program *p, const tern_node *n, int k) {
    const tern_value *v = &p->g.values[n->in[k]];
    if (!v->is_coded || n->op == TERN_OP_EMBED) return 0;
    return reads_stripes(n->op) ? gpu_train_stripe(p, n->in[k]) : (uint64_t)v->rows;
}

static uint64_t n_parts(const tern_program *p, tern_vid w) {
    return p->arrays ? p->arrays[w]->weight->n_parts : 1;
}

size_t gpu_train_decoding_steps(const tern_program *p, const tern_node *n) {
    uint64_t steps = 0;
    for (int k = 0; k < n->n_in; k++) {
        const tern_value *v = &p->g.values[n->in[k]];
        if (!v->is_coded) continue;
        const uint64_t rows = decoded_rows(p, n, k);
        steps += (rows ? groups((uint64_t)v->rows, rows) : 1) * (1 + n_parts(p, n->in[k]));
    }
    return (size_t)steps;
}

uint64_t gpu_train_decoded_bytes(const tern_program *p) {
    uint64_t most = 0;
    for (size_t i = 0; i < p->g.n_nodes; i++)
        for (int k = 0; k < p->g.nodes[i].n_in; k++) {
            const tern_node *n = &p->g.nodes[i];
            const uint64_t floats =
                decoded_rows(p, n, k) * gpu_train_stride(p->g.values[n->in[k]].cols);
            if (floats > most) most = floats;
        }
    return most * sizeof(float);
}

// ---- Steps -------------------------------------------------------------------------------------

static void set_form(gpu_train_step *s, const tern_train_array *a) {
    if (a->weight->form == GPU_FORM_TILES) {
        gpu_set_codes(&s->what, a->weight->codes);
        return;
    }
    set(s, "HALVES", 1);
    if (a->is_bf16) set(s, "BF16", 1);
}

// Rows first .. first + n - 1, or those of the run's tokens (n 0), to `y`. A plan counts no steps.
static void add_rows(tern_program *p, tern_vid w, uint64_t first, uint64_t n, wgpu_buffer y) {
    const tern_train_array *a = p->arrays ? p->arrays[w] : NULL;
    const uint64_t cols4 = stride4(p, w);
    for (size_t i = 0; a && i < a->weight->n_parts; i++) {
        const gpu_part *part = &a->weight->parts[i];
        const bool wide = gpu_is_wide(a->weight->codes);
        gpu_train_step *s =
            add(p, wide ? GPU_TRAIN_DECODE_WIDE : GPU_TRAIN_DECODE, fixed(groups(16 * cols4, 256)),
                n ? fixed(groups(n, 16)) : each(16));
        set(s, "COLS4", (double)cols4);
        set(s, "FIRST", (double)first);
        set(s, "COUNT", (double)n);
        set(s, "LISTED", n == 0 || a->order);
        set(s, "FIRST_ROW", (double)part->first_row);
        set(s, "N_ROWS", (double)part->n_rows);
        set_form(s, a);
        bind(s, part->buffer);
        bind(s, n == 0 ? p->ids : a->order ? a->order : part->buffer);
        bind(s, y);
    }
}

void gpu_train_add_decoded(tern_program *p, tern_vid w, uint64_t first, uint64_t n) {
    add_rows(p, w, first, n, p->decoded);
}

void gpu_train_decode_inputs(tern_program *p, const tern_node *n) {
    for (int k = 0; k < n->n_in; k++) {
        const uint64_t rows = reads_stripes(n->op) ? 0 : decoded_rows(p, n, k);
        if (rows == 0) continue;
        add_rows(p, n->in[k], 0, rows, p->decoded);
        p->buffers[n->in[k]] = p->decoded;
    }
}

void gpu_train_add_embed_of_codes(tern_program *p, const tern_node *n) {
    add_rows(p, n->in[1], 0, 0, p->buffers[n->out[0]]);
}

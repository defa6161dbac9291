// The dispatches of a head that is screened (../gpu_screen.c), and where its memory is.
#include "kernels/webgpu/ops/gpu_op.h"

#define UNIT_COLS 128       // rows of the copy are padded to a multiple of this
#define COLS_MAX  (1 << 17) // of sums that fit 32 bits

// ---- Memory ------------------------------------------------------------------------------------

static uint64_t padded_cols(const tern_weight *w) {
    return gpu_round((uint64_t)w->n_cols, UNIT_COLS);
}

// Offsets in the copy, and in the memory for rows of x.
uint64_t gpu_screen_infos_at(const tern_weight *w) {
    return gpu_round((uint64_t)w->n_rows * padded_cols(w), GPU_POOL_ALIGN);
}
uint64_t gpu_screen_copy_bytes(const tern_weight *w) {
    return gpu_screen_infos_at(w) + (uint64_t)w->n_rows * 16;
}
static uint64_t x_infos_at(const tern_plan *p) {
    return gpu_round((uint64_t)p->chunk_rows * 2 * padded_cols(p->screened), GPU_POOL_ALIGN);
}
static uint64_t units_at(const tern_plan *p) {
    return x_infos_at(p) + gpu_round((uint64_t)p->chunk_rows * 16, GPU_POOL_ALIGN);
}

uint64_t gpu_screen_x_bytes(const tern_plan *p) {
    if (!p->screened) return 0;
    return units_at(p) + (uint64_t)p->chunk_rows * padded_cols(p->screened) / 16;
}
uint64_t gpu_screen_list_bytes(const tern_plan *p) {
    return p->screened ? (uint64_t)p->chunk_rows * (GPU_SCREEN_LIST + 1) * 4 : 0;
}

// ---- Plan --------------------------------------------------------------------------------------

static bool has_float_rows(const tern_weight *w) {
    return w->form != GPU_FORM_TILES || gpu_is_wide(w->codes);
}

bool gpu_screen_can(const tern_plan *p, const tern_weight *w, float soft_cap) {
    const tern_device *d = p->device;
    return w->n_parts == 1 && has_float_rows(w) && w->n_cols <= COLS_MAX && soft_cap == 0 &&
           w->parts[0].bytes >= d->screen_bytes_min &&
           gpu_screen_copy_bytes(w) <= d->binding_bytes_max;
}

static void bind_copy(gpu_dispatch *d, uint64_t from, uint64_t to) {
    bind(d, (gpu_binding){.place = GPU_SCREEN_COPY, .offset = from, .bytes = to - from});
}
static void bind_x(gpu_dispatch *d, uint64_t from, uint64_t to) {
    bind(d, (gpu_binding){.place = GPU_SCREEN_X, .offset = from, .bytes = to - from});
}

static gpu_dispatch *add_screen(tern_plan *p, gpu_kernel kernel, uint32_t x, gpu_kind kind) {
    const tern_weight *w = p->screened;
    gpu_dispatch *d = add(p, kernel, x, GPU_ROWS_CHUNK);
    d->kinds = kind;
    d->phase = GPU_PHASE_TOP;
    d->screen = GPU_SCREENED;
    set(d, "COLS4", (double)(w->n_cols / 4));
    return d;
}

static void add_x(tern_plan *p, tern_vid x, gpu_kind kind) {
    gpu_dispatch *d = add_screen(p, GPU_HEAD_X, 1, kind);
    set(d, "THREADS", threads_for(p, (int64_t)padded_cols(p->screened) / 4));
    set(d, "Q_WORDS", (double)(padded_cols(p->screened) / 4));
    set(d, "PARTS", gpu_has_matrix(p->device) || kind == GPU_FEW_STEPS ? 2 : 1);
    bind_value(p, d, x);
    bind_x(d, 0, x_infos_at(p));
    bind_x(d, x_infos_at(p), units_at(p));
    bind_x(d, units_at(p), gpu_screen_x_bytes(p));
    bind_place(d, GPU_SCREEN_LISTS, -1);
}

// Matrix units take tiles of 16, 32 or 64 rows of x: few rows would leave larger tiles without
// work.
static void add_approximate(tern_plan *p) {
    static const uint32_t counts[] = {16, 32, 64};
    const tern_weight *w = p->screened;
    bool matrix = gpu_has_matrix(p->device);
    for (int i = 0; i < (matrix ? 3 : 1); i++) {
        uint32_t tile = matrix ? 128 : 64;
        gpu_dispatch *d = add_screen(p, matrix ? GPU_HEAD_SCREEN_MATRIX : GPU_HEAD_SCREEN_DOT,
                                     groups(w->n_rows, tile), GPU_MANY_STEPS);
        set(d, "N_ROWS", (double)w->n_rows);
        set(d, "VECS", (double)(padded_cols(w) / 16));
        set(d, "CHUNK_ROWS", p->chunk_rows);
        if (matrix) set(d, "TOKENS", counts[i]);
        d->rows_each = matrix ? counts[i] : 32;
        if (matrix && i > 0) d->rows_min = counts[i - 1] + 1;
        if (matrix && i < 2) d->rows_max = counts[i];
        bind_copy(d, 0, gpu_screen_infos_at(w));
        bind_copy(d, gpu_screen_infos_at(w), gpu_screen_copy_bytes(w));
        bind_x(d, 0, x_infos_at(p));
        bind_x(d, x_infos_at(p), units_at(p));
        bind_place(d, GPU_LOGITS, -1);
        if (!matrix) bind_x(d, units_at(p), gpu_screen_x_bytes(p));
    }
}

static void add_pick(tern_plan *p, gpu_kernel kernel) {
    const tern_weight *w = p->screened;
    gpu_dispatch *d = add_screen(p, kernel, GPU_TOP_PARTS_N, GPU_MANY_STEPS);
    set(d, "N_ROWS", (double)w->n_rows);
    set(d, "PARTS", GPU_TOP_PARTS_N);
    set(d, "CHUNK_ROWS", p->chunk_rows);
    set(d, "LIST", GPU_SCREEN_LIST);
    bind_place(d, GPU_LOGITS, -1);
    if (kernel == GPU_HEAD_LEAST) bind_copy(d, gpu_screen_infos_at(w), gpu_screen_copy_bytes(w));
    if (kernel == GPU_HEAD_LEAST) bind_x(d, x_infos_at(p), units_at(p));
    bind_place(d, GPU_TOP_PARTS_MEMORY, -1);
    if (kernel == GPU_HEAD_LIST) bind_place(d, GPU_SCREEN_LISTS, -1);
}

// The parameters of the kernels that read the head itself.
static void set_rows(const tern_weight *w, gpu_dispatch *d) {
    if (!gpu_is_wide(w->codes)) {
        set_form(w, d);
        return;
    }
    set_codes(d, w);
    set(d, "BLOCKS", (double)gpu_blocks(w->n_cols));
}

static gpu_dispatch *add_exact(tern_plan *p, gpu_kernel kernel, uint32_t n_groups, tern_vid x,
                               uint32_t each, gpu_kind kind) {
    const tern_weight *w = p->screened;
    gpu_dispatch *d = add_screen(p, kernel, n_groups, kind);
    d->what.n_constants = 0; // set_rows has all of them
    set_rows(w, d);
    if (gpu_is_wide(w->codes))
        set(d, "SPLITS", gpu_wide_float_splits(gpu_blocks(w->n_cols)));
    else
        set(d, "EACH", each);
    set(d, "N_ROWS", (double)w->n_rows);
    bind_part(d, &w->parts[0]);
    bind_value(p, d, x);
    bind_place(d, GPU_LOGITS, -1);
    bind_place(d, GPU_SCREEN_LISTS, -1);
    return d;
}

static void add_listed(tern_plan *p, tern_vid x, uint32_t each) {
    gpu_kernel exact = gpu_is_wide(p->screened->codes) ? GPU_WIDE_HEAD_EXACT : GPU_HEAD_EXACT;
    gpu_dispatch *d = add_exact(p, exact, GPU_SCREEN_LIST / 32, x, each, GPU_MANY_STEPS);
    set(d, "CHUNK_ROWS", p->chunk_rows);
    set(d, "LIST", GPU_SCREEN_LIST);
}

static void add_many(tern_plan *p, tern_vid x, uint32_t each) {
    add_x(p, x, GPU_MANY_STEPS);
    add_approximate(p);
    add_pick(p, GPU_HEAD_LEAST);
    add_pick(p, GPU_HEAD_LIST);
    add_listed(p, x, each);
}

// ---- Few rows ----------------------------------------------------------------------------------

// Rows of the copy that a workgroup's threads share at a time, and about how many workgroups there
// are: so that a large device is full, and each has the same number of rows.
#define FEW_ROWS     32
#define FEW_GROUPS   (8 * GPU_WORKGROUPS)
#define FEW_COLS_MAX (1 << 15) // of the sums of a thread that fit 32 bits
#define FEW_BESIDES  6144      // of a workgroup's memory: what sums of 32 threads need

static void add_approximate_few(tern_plan *p, uint32_t rows) {
    const tern_weight *w = p->screened;
    uint32_t n = groups(w->n_rows, FEW_ROWS);
    gpu_dispatch *d =
        add_screen(p, GPU_HEAD_SCREEN_FEW, groups(n, groups(n, FEW_GROUPS)), GPU_FEW_STEPS);
    d->rows_each = d->rows_max = rows;
    d->rows_min = rows / 2 + 1;
    set(d, "N_ROWS", (double)w->n_rows);
    set(d, "VECS", (double)(padded_cols(w) / 16));
    set(d, "CHUNK_ROWS", p->chunk_rows);
    set(d, "ROWS", rows);
    bind_copy(d, 0, gpu_screen_infos_at(w));
    bind_copy(d, gpu_screen_infos_at(w), gpu_screen_copy_bytes(w));
    bind_x(d, 0, x_infos_at(p));
    bind_x(d, x_infos_at(p), units_at(p));
    bind_place(d, GPU_LOGITS, -1);
    bind_place(d, GPU_SCREEN_LISTS, -1);
}

static void add_few(tern_plan *p, tern_vid x, uint32_t each) {
    add_x(p, x, GPU_FEW_STEPS);
    for (uint32_t rows = 1; rows <= p->screened_few; rows *= 2) add_approximate_few(p, rows);
    gpu_dispatch *d = add_exact(p, GPU_HEAD_OPEN, GPU_TOP_PARTS_N, x, each, GPU_FEW_STEPS);
    set(d, "PARTS", GPU_TOP_PARTS_N);
    bind_place(d, GPU_TOP_PARTS_MEMORY, -1);
}

// As many rows of x as a workgroup has memory for; none if the head has codes, whose rows are as
// short as the copy's.
static uint32_t rows_of_few(const tern_plan *p) {
    const tern_weight *w = p->screened;
    bool is_short = w->form == GPU_FORM_Q8 || w->form == GPU_FORM_TILES;
    uint32_t rows = is_short || w->n_cols > FEW_COLS_MAX ? 0 : GPU_FEW;
    while (rows > 0 && 2 * rows * padded_cols(w) + FEW_BESIDES > p->device->workgroup_bytes_max)
        rows /= 2;
    return rows;
}

gpu_kernel gpu_screen_copy_kernel(const tern_weight *w) {
    return gpu_is_wide(w->codes) ? GPU_WIDE_HEAD_COPY : GPU_HEAD_COPY;
}

// Begun now, since a pipeline takes long.
static tern_status open_copy(tern_plan *p, tern_error *err) {
    const tern_weight *w = p->screened;
    gpu_dispatch d = {.what.kernel = gpu_screen_copy_kernel(w)};
    set_rows(w, &d);
    if (gpu_is_wide(w->codes)) set(&d, "COLS4", (double)(w->n_cols / 4));
    set(&d, "N_ROWS", (double)w->n_rows);
    set(&d, "Q_WORDS", (double)(padded_cols(w) / 4));
    TERN_TRY(gpu_pipeline_find(p->device, &d.what, &p->screen_copy, err));
    return gpu_pipeline_begin(p->screen_copy, err);
}

tern_status gpu_screen_add(tern_plan *p, tern_vid x, tern_weight *w, uint32_t each,
                           tern_error *err) {
    p->screened = w;
    p->screened_few = rows_of_few(p);
    bool screens_many = p->chunk_rows >= GPU_SCREEN_ROWS;
    if (!screens_many && p->screened_few == 0) {
        p->screened = NULL;
        return TERN_OK;
    }
    TERN_TRY(open_copy(p, err));
    if (screens_many) add_many(p, x, each);
    if (p->screened_few > 0) add_few(p, x, each);
    return TERN_OK;
}

// Sums of products of each two inputs of a matrix over a text: X^T X, by which errors of some of
// its weights can be made up for in others (GPTQ, arXiv:2210.17323).
//
// They are as large as the matrices themselves or larger, so memory holds some of them at a time:
// when others are asked for, the text is run again for these and for those after them that fit.
// Matrices with the same input share them. The bits depend neither on that nor on the threads.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "kernels/cpu/gemm/gemm.h"
#include "tasks/compute/traced.h"
#include "tasks/imatrix/imatrix.h"
#include "tasks/tasks.h"

typedef struct input {
    tern_vid x;
    int64_t n_cols;
    float *sums;    // [n_cols * n_cols] while it is there
    int64_t n_rows; // that were added
} input;

typedef struct user_of {
    const char *matrix;
    size_t input;
} user_of;

struct tern_products {
    tern_model *model;
    tern_products_desc desc;
    tern_traced traced;
    input *inputs;
    user_of *users;
    size_t n_inputs, n_users;
    const tern_gemm_kernels *kernels;
    tern_team *team;
    float *scratch; // for each thread
    int32_t *outputs, *ids;
    // The product that the team computes.
    cpu_gemm product;
    atomic_size_t counter;
    size_t n_passes;
    double done; // of the current pass
    bool was_stopped;
};

static uint64_t bytes_of(int64_t n_cols) {
    return (uint64_t)n_cols * (uint64_t)n_cols * sizeof(float);
}

// ---- Which inputs ------------------------------------------------------------------------------

static void add_user(tern_products *p, const tern_node *n) {
    const tern_graph *g = &p->model->graphs[0].lowered;
    const tern_value *w = tern_imatrix_weight(p->model->arch, g, n);
    const tern_vid x = tern_imatrix_input(g, n);
    size_t i = 0;
    if (!w || g->values[x].producer < 0) return;
    while (i < p->n_inputs && p->inputs[i].x != x) i++;
    if (i == p->n_inputs) p->inputs[p->n_inputs++] = (input){.x = x, .n_cols = w->cols};
    p->users[p->n_users++] = (user_of){w->name, i};
}

static tern_status find_inputs(tern_products *p, tern_error *err) {
    const tern_graph *g = &p->model->graphs[0].lowered;
    const size_t n = g->n_nodes + 1;
    p->inputs = tern_alloc_array(TERN_MEM_MISC, n, sizeof *p->inputs);
    p->users = tern_alloc_array(TERN_MEM_MISC, n, sizeof *p->users);
    if (!p->inputs || !p->users) return tern_fail_memory(err, n * sizeof *p->inputs);
    for (size_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == TERN_OP_LINEAR) add_user(p, &g->nodes[i]);
    return TERN_OK;
}

static const user_of *find_user(const tern_products *p, const char *matrix) {
    for (size_t i = 0; i < p->n_users; i++)
        if (strcmp(p->users[i].matrix, matrix) == 0) return &p->users[i];
    return NULL;
}

// In the order in which the file has their matrices, which is the one they are asked for in: those
// that the next pass collects are those of the next matrices.
static void order_inputs(tern_products *p, input *sorted, size_t *place) {
    const tern_file *f = p->model->file;
    const size_t n = p->n_inputs;
    size_t n_placed = 0;
    char name[128];
    for (size_t i = 0; i < n; i++) place[i] = n;
    for (size_t i = 0; f && i < f->n_tensors; i++) {
        const char *tensor = f->tensors[i].name;
        const bool is_known = f->kind != TERN_FILE_GGUF &&
                              tern_arch_name_to_gguf(p->model->arch, tensor, name, sizeof name);
        const user_of *u = find_user(p, is_known ? name : tensor);
        if (u && place[u->input] == n) place[u->input] = n_placed++;
    }
    for (size_t i = 0; i < n; i++)
        if (place[i] == n) place[i] = n_placed++;
    for (size_t i = 0; i < n; i++) sorted[place[i]] = p->inputs[i];
    memcpy(p->inputs, sorted, n * sizeof *sorted);
    for (size_t i = 0; i < p->n_users; i++) p->users[i].input = place[p->users[i].input];
}

static tern_status sort_inputs(tern_products *p, tern_error *err) {
    input *sorted = tern_alloc_array(TERN_MEM_MISC, p->n_inputs, sizeof *sorted);
    size_t *place = tern_alloc_array(TERN_MEM_MISC, p->n_inputs, sizeof *place);
    const bool has_room = sorted && place;
    if (has_room) order_inputs(p, sorted, place);
    tern_free(sorted);
    tern_free(place);
    return has_room ? TERN_OK : tern_fail_memory(err, p->n_inputs * sizeof *sorted);
}

uint64_t tern_products_most_bytes(const tern_arch *arch, const tern_graph *g, uint64_t max_bytes) {
    uint64_t all = 0, largest = 0;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const tern_node *n = &g->nodes[i];
        const tern_value *w = n->op == TERN_OP_LINEAR ? tern_imatrix_weight(arch, g, n) : NULL;
        bool is_first = true;
        for (size_t k = 0; w && k < i && is_first; k++)
            is_first = g->nodes[k].op != TERN_OP_LINEAR || g->nodes[k].in[0] != n->in[0];
        if (!w || !is_first) continue;
        const uint64_t bytes = bytes_of(w->cols);
        all += bytes;
        if (bytes > largest) largest = bytes;
    }
    if (max_bytes < largest) max_bytes = largest;
    return all < max_bytes ? all : max_bytes;
}

// ---- Sums --------------------------------------------------------------------------------------

static void multiply(void *ctx, const tern_team *team) {
    tern_products *p = ctx;
    cpu_gemm_team(p->kernels, &p->product, team, &p->counter,
                  p->scratch + (size_t)team->thread * cpu_gemm_scratch_floats());
}

static void add_rows(tern_products *p, input *in, const float *x, int32_t n_rows) {
    const size_t n = (size_t)in->n_cols;
    p->product = (cpu_gemm){.transpose_a = true,
                            .accumulate = true,
                            .m = n,
                            .n = n,
                            .k = (size_t)n_rows,
                            .a = x,
                            .b = x,
                            .c = in->sums,
                            .lda = n,
                            .ldb = n,
                            .ldc = n};
    atomic_store(&p->counter, 0);
    tern_team_run(p->team, multiply, p);
    in->n_rows += n_rows;
}

static void see(void *ctx, tern_vid v, const float *rows, int32_t n_rows) {
    tern_products *p = ctx;
    p->was_stopped =
        p->was_stopped || !tern_progress(p->desc.on_progress, p->desc.user, "products", p->done);
    for (size_t i = 0; i < p->n_inputs && !p->was_stopped; i++)
        if (p->inputs[i].x == v && p->inputs[i].sums) add_rows(p, &p->inputs[i], rows, n_rows);
}

static tern_status check_sums(const tern_products *p, const input *in, tern_error *err) {
    double sum = 0;
    for (int64_t i = 0; i < in->n_cols; i++) sum += (double)in->sums[i * in->n_cols + i];
    if (in->n_rows != (int64_t)p->desc.n_ids)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "%s: what goes into its matrices is not computed by itself on this device",
                         p->model->path);
    if (isfinite(sum)) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "%s: what goes into a matrix is not finite",
                     p->model->path);
}

// ---- Passes ------------------------------------------------------------------------------------

static tern_status run_windows(tern_products *p, tern_error *err) {
    const size_t window = (size_t)p->desc.window, n = p->desc.n_ids;
    for (size_t first = 0; first < n; first += window) {
        const int32_t rows = (int32_t)(n - first < window ? n - first : window);
        tern_batch batch = {
            .ids = p->ids + first, .n_tokens = rows, .outputs = p->outputs, .n_outputs = rows};
        p->done = (double)first / (double)n;
        TERN_TRY(tern_traced_run(&p->traced, &batch, see, p, err));
        if (p->was_stopped) return tern_fail(err, TERN_ERR_CANCELLED, "cancelled");
    }
    return TERN_OK;
}

static void drop_sums(tern_products *p) {
    for (size_t i = 0; i < p->n_inputs; i++) {
        tern_free(p->inputs[i].sums);
        p->inputs[i].sums = NULL;
        p->inputs[i].n_rows = 0;
    }
}

// Room for the sums of this input and of those after it, as long as they fit.
static tern_status make_room(tern_products *p, size_t first, tern_vid *wanted, size_t *n,
                             tern_error *err) {
    uint64_t left = p->desc.max_bytes;
    for (size_t i = first; i < p->n_inputs; i++) {
        input *in = &p->inputs[i];
        const uint64_t bytes = bytes_of(in->n_cols);
        if (i > first && bytes > left) break;
        in->sums = tern_alloc(TERN_MEM_MISC, (size_t)bytes);
        if (!in->sums) return tern_fail_memory(err, (size_t)bytes);
        left -= bytes < left ? bytes : left;
        wanted[(*n)++] = in->x;
    }
    return TERN_OK;
}

static tern_status run_pass(tern_products *p, size_t first, tern_error *err) {
    size_t n = 0;
    tern_vid *wanted = tern_alloc_array(TERN_MEM_MISC, p->n_inputs, sizeof *wanted);
    if (!wanted) return tern_fail_memory(err, p->n_inputs * sizeof *wanted);
    drop_sums(p);
    tern_status status = make_room(p, first, wanted, &n, err);
    if (status == TERN_OK)
        status = tern_traced_choose(&p->traced, p->model, &p->model->graphs[0], wanted, n, err);
    tern_free(wanted);
    if (status == TERN_OK)
        status = tern_traced_open(&p->traced, p->desc.window, p->desc.window, TERN_KV_F32, err);
    if (status == TERN_OK) status = run_windows(p, err);
    tern_traced_close(&p->traced);
    for (size_t i = first; status == TERN_OK && i < first + n; i++)
        status = check_sums(p, &p->inputs[i], err);
    p->n_passes++;
    return status;
}

tern_status tern_products_of(tern_products *p, const char *matrix, const float **sums,
                             tern_error *err) {
    const user_of *u = find_user(p, matrix);
    *sums = NULL;
    if (!u) return TERN_OK;
    if (!p->inputs[u->input].sums) TERN_TRY(run_pass(p, u->input, err));
    *sums = p->inputs[u->input].sums;
    return TERN_OK;
}

// ---- The whole ---------------------------------------------------------------------------------

static tern_status open_products(tern_products *p, tern_error *err) {
    const tern_products_desc *d = &p->desc;
    tern_cpu_kernels kernels;
    tern_cpu_kernels_select(NULL, &kernels);
    p->kernels = kernels.g;
    TERN_TRY(tern_model_refuse_damaged(p->model, err));
    TERN_TRY(tern_team_open(&p->team, d->n_threads, err));
    const size_t n = (size_t)p->team->n_threads * cpu_gemm_scratch_floats();
    p->scratch = tern_alloc_array(TERN_MEM_MISC, n, sizeof *p->scratch);
    p->outputs = tern_alloc_array(TERN_MEM_MISC, (size_t)d->window, sizeof *p->outputs);
    p->ids = tern_alloc_array(TERN_MEM_MISC, d->n_ids, sizeof *p->ids);
    if (!p->scratch || !p->outputs || !p->ids) return tern_fail_memory(err, n * sizeof *p->scratch);
    for (int i = 0; i < d->window; i++) p->outputs[i] = i;
    memcpy(p->ids, d->ids, d->n_ids * sizeof *p->ids);
    TERN_TRY(find_inputs(p, err));
    return sort_inputs(p, err);
}

tern_status tern_products_open(tern_products **out, tern_model *m, const tern_products_desc *desc,
                               tern_error *err) {
    tern_products *p = tern_alloc(TERN_MEM_MISC, sizeof *p);
    *out = NULL;
    if (!p) return tern_fail_memory(err, sizeof *p);
    *p = (tern_products){.model = m, .desc = *desc};
    tern_model_hold(m);
    tern_status status = open_products(p, err);
    if (status == TERN_OK)
        *out = p;
    else
        tern_products_close(p);
    return status;
}

void tern_products_close(tern_products *p) {
    if (!p) return;
    drop_sums(p);
    tern_team_close(p->team);
    tern_free(p->inputs);
    tern_free(p->users);
    tern_free(p->scratch);
    tern_free(p->outputs);
    tern_free(p->ids);
    tern_model_let_go(p->model);
    tern_free(p);
}

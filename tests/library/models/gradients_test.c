// Gradients of whole models against PyTorch's. tests/reference/torch/gradients.py describes the
// models and why rounding makes no difference here. Weights follow from their names by its rule.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "tests/support/blobs.h"
#include "tests/library/webgpu/gpu_fixture.h"
#include "kernels/train.h"
#include "models/models.h"

static const char path[] =
    "tests/reference/torch/gradients.gguf"; // tests run in the repository's root
enum { N_TOKENS = 24, N_SPAN = 16, RANK = 4 };
static const float LORA_SCALE = 2;

typedef struct recipe {
    const char *name, *weights; // case in the file; whose weights it has
    bool sub_norms, bitlinear, tied_head, lora;
    tern_act_kind act;
} recipe;
static const recipe recipes[] = {
    {"llama", "llama", false, false, false, false, TERN_ACTIVATION_SILU},
    {"paper", "paper", false, true, true, false, TERN_ACTIVATION_SILU},
    {"bitnet", "bitnet", true, true, true, false, TERN_ACTIVATION_RELU2},
    {"lora", "bitnet", true, true, true, true, TERN_ACTIVATION_RELU2},
};

typedef struct rig {
    const recipe *recipe;
    const tern_train_backend *backend;
    tern_trainer_device *device;
    tern_file *file;
    tern_graph graph;
    bool *frozen;
    tern_train_array **arrays;
    tern_program *program;
    tern_error err;
} rig;

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), k = strlen(end);
    return n >= k && strcmp(name + n - k, end) == 0;
}

static bool is_adapters(const tern_value *v) {
    return ends_with(v->name, ".lora_a") || ends_with(v->name, ".lora_b");
}

// ---- Weights -----------------------------------------------------------------------------------

static void fill(const char *prefix, const tern_value *v, float *data) {
    char name[128];
    uint64_t seed = 0, n = (uint64_t)(v->rows * v->cols);
    snprintf(name, sizeof name, "%s.%s", prefix, v->name);
    for (const char *c = name; *c; c++) seed = tern_mix64(seed ^ (unsigned char)*c);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t h = tern_mix64(seed + i);
        double u = (double)(h >> 40) * 0x1p-24, magnitude = h & 1 ? 0.6 + 0.8 * u : 0.15 * u;
        double x = (h & 2 ? magnitude : -magnitude) * (1.5 / sqrt((double)v->cols));
        data[i] = (float)(v->rows == 1 ? 0.7 + 0.6 * u : x);
    }
}

// What a frozen base holds in memory: the rounded weights.
static void ternarize(float *w, uint64_t n) {
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) sum += fabs((double)w[i]);
    double gamma = sum / (double)n;
    for (uint64_t i = 0; i < n; i++)
        w[i] = (float)(gamma * fmax(-1, fmin(1, rint((double)w[i] / (gamma + 1e-6)))));
}

static tern_status add_array(rig *r, tern_vid v) {
    const tern_value *value = &r->graph.values[v];
    uint64_t n = (uint64_t)(value->rows * value->cols);
    TERN_TRY(r->backend->array_new(r->device, n, &r->arrays[v], &r->err));
    if (value->kind != TERN_VALUE_WEIGHT) return TERN_OK;
    float *data = tern_alloc_array(TERN_MEM_GRAPH, n, sizeof *data);
    if (strcmp(value->name, "lora.scale") == 0) {
        for (uint64_t i = 0; i < n; i++) data[i] = i % (RANK + 1) == 0 ? LORA_SCALE : 0;
    } else {
        fill(is_adapters(value) ? "lora" : r->recipe->weights, value, data);
        if (r->frozen && !is_adapters(value) && strncmp(value->name, "blk.", 4) == 0 &&
            value->is_matrix)
            ternarize(data, n);
    }
    tern_status status = r->backend->write(r->arrays[v], 0, n, data, &r->err);
    tern_free(data);
    return status;
}

// ---- The model ---------------------------------------------------------------------------------

static int64_t rank_of(const void *ctx, const char *weight) {
    (void)ctx;
    return strncmp(weight, "blk.", 4) == 0 ? RANK : 0;
}

// As the trainer makes an adapter's graph (src/train/lora.c), for a base of ternary weights.
static tern_status add_adapters(rig *r) {
    const tern_low_rank adapters = {.rank_of = rank_of, .scale = "lora.scale"};
    TERN_TRY(tern_pass_low_rank(&r->graph, &adapters, &r->err));
    tern_weight_kind kinds[256] = {0};
    for (size_t v = 0; v < r->graph.n_values && v < 256; v++)
        if (rank_of(NULL, r->graph.values[v].name) && !is_adapters(&r->graph.values[v]))
            kinds[v] = TERN_WEIGHT_TERNARY;
    CHECK(r->graph.n_values <= 256);
    return tern_pass_lower(&r->graph, kinds, &r->err);
}

static tern_status make_graph(rig *r) {
    const recipe *k = r->recipe;
    tern_config config = {.n_vocab = 40,
                          .n_layers = 2,
                          .n_embd = 16,
                          .n_ff = 44,
                          .n_heads = 2,
                          .n_kv_heads = 1,
                          .head_dim = 8,
                          .n_context = 64,
                          .rms_eps = 1e-5,
                          .final_rms_eps = 1e-5,
                          .act = k->act,
                          .tied_head = k->tied_head,
                          .sub_norms = k->sub_norms,
                          .bitlinear = k->bitlinear,
                          .rope = {.n_rot = 8, .halves = k->bitlinear, .base = 10000}};
    TERN_TRY(tern_build_decoder(&r->graph, &config, &r->err));
    if (k->lora) TERN_TRY(add_adapters(r));
    TERN_TRY(tern_graph_train(&r->graph, &r->err));
    if (k->lora) {
        r->frozen = tern_alloc_array(TERN_MEM_GRAPH, r->graph.n_values, sizeof *r->frozen);
        for (size_t v = 0; v < r->graph.n_values; v++)
            r->frozen[v] = !is_adapters(&r->graph.values[v]);
    }
    return tern_graph_differentiate(&r->graph, r->frozen, &r->err);
}

static tern_status rig_open(rig *r, const recipe *k, const tern_train_backend *backend) {
    *r = (rig){.recipe = k, .backend = backend};
    tern_graph_init(&r->graph);
    TERN_TRY(tern_file_open(&r->file, path, &r->err));
    TERN_TRY(make_graph(r));
    const tern_trainer_desc desc = {.n_threads = 2, .webgpu = gpu_webgpu(NULL)};
    TERN_TRY(backend->open(&r->device, &desc, &r->err));
    r->arrays = tern_alloc_array(TERN_MEM_GRAPH, r->graph.n_values, sizeof *r->arrays);
    for (size_t v = 0; v < r->graph.n_values; v++) {
        tern_value_kind kind = r->graph.values[v].kind;
        bool state = kind == TERN_VALUE_STATE && r->graph.values[v].state == TERN_STATE_ARRAY;
        if (kind == TERN_VALUE_WEIGHT || state) TERN_TRY(add_array(r, (tern_vid)v));
    }
    return backend->compile(r->device, &r->graph, r->arrays, N_TOKENS, N_SPAN, &r->program,
                            &r->err);
}

static void rig_close(rig *r) {
    if (r->device) {
        r->backend->program_free(r->program);
        for (size_t v = 0; r->arrays && v < r->graph.n_values; v++)
            r->backend->array_free(r->arrays[v]);
        r->backend->close(r->device);
    }
    tern_file_close(r->file);
    tern_free(r->arrays);
    tern_free(r->frozen);
    tern_graph_free(&r->graph);
}

// ---- The comparison ----------------------------------------------------------------------------

static bool read_rows(const rig *r, const char *what, int32_t *rows) {
    char key[64];
    snprintf(key, sizeof key, "%s%s", r->recipe->name, what);
    const tern_meta *m = tern_file_meta(r->file, what[0] == '.' ? key : what);
    double x;
    for (int i = 0; i < N_TOKENS; i++) {
        if (!m || !tern_meta_element(m, (uint64_t)i, &x)) return false;
        rows[i] = (int32_t)x;
    }
    return true;
}

static bool run_batch(rig *r) {
    char key[64];
    int32_t ids[N_TOKENS], targets[N_TOKENS], starts[N_TOKENS];
    double want = NAN;
    float loss = NAN, n_scored = 0;
    bool ok = read_rows(r, ".ids", ids) && read_rows(r, ".targets", targets) &&
              read_rows(r, "starts", starts);
    snprintf(key, sizeof key, "%s.loss", r->recipe->name);
    const tern_meta *m = tern_file_meta(r->file, key);
    CHECK_MSG(ok && m && tern_meta_element(m, 0, &want), "%s: %s is not whole", path, key);
    for (int i = 0; ok && i < N_TOKENS; i++) n_scored += targets[i] >= 0;
    tern_train_batch b = {.n_tokens = N_TOKENS,
                          .ids = ids,
                          .targets = targets,
                          .starts = starts,
                          .loss_scale = 1 / n_scored};
    ok = ok && r->backend->run(r->program, &b, &r->err) == TERN_OK &&
         r->backend->read(r->arrays[tern_graph_find(&r->graph, "loss")], 0, 1, &loss, &r->err) ==
             TERN_OK;
    CHECK_MSG(ok && fabs((double)(loss / n_scored) / want - 1) < 1e-5, "%s: loss %g, not %g %s",
              r->recipe->name, (double)(loss / n_scored), want, r->err.message);
    return ok;
}

// Adds the squares of the differences and of the values to sums[0] and sums[1].
static void compare(rig *r, const tern_value *w, double bound, double sums[2]) {
    char name[128];
    double top = 0, bottom = 0;
    uint64_t n = (uint64_t)(w->rows * w->cols);
    snprintf(name, sizeof name, "%s.%s", r->recipe->name, w->name);
    const tern_tensor *x = tern_file_tensor(r->file, name);
    snprintf(name, sizeof name, "grad.%s", w->name);
    tern_vid grad = tern_graph_find(&r->graph, name);
    CHECK_MSG(x && grad >= 0 && x->type == TERN_DTYPE_F32 && x->bytes == n * sizeof(float),
              "%s: %s has no gradient of %llu numbers", r->recipe->name, w->name,
              (unsigned long long)n);
    if (!x || grad < 0 || x->bytes != n * sizeof(float)) return;
    float *got = tern_alloc_array(TERN_MEM_GRAPH, n, sizeof *got);
    CHECK(r->backend->read(r->arrays[grad], 0, n, got, &r->err) == TERN_OK);
    for (uint64_t i = 0; i < n; i++) {
        double want = ((const float *)test_bytes(&x->data))[i], d = (double)got[i] - want;
        top += d * d;
        bottom += want * want;
    }
    CHECK_MSG(bottom > 0 && top <= bound * bound * bottom, "%s: gradient of %s differs by %.3g",
              r->recipe->name, w->name, sqrt(top / bottom));
    sums[0] += top;
    sums[1] += bottom;
    tern_free(got);
}

// bound: relative L2 of each weight's gradient; for all together, a third of that.
static void check_gradients(rig *r, double bound) {
    double sums[2] = {0};
    size_t n = 0;
    if (!run_batch(r)) return;
    for (size_t v = 0; v < r->graph.n_values; v++) {
        const tern_value *w = &r->graph.values[v];
        if (w->kind != TERN_VALUE_WEIGHT || (r->frozen && r->frozen[v])) continue;
        compare(r, w, bound, sums);
        n++;
    }
    CHECK_MSG(sums[0] * 9 <= bound * bound * sums[1], "%s: all gradients differ by %.3g",
              r->recipe->name, sqrt(sums[0] / sums[1]));
    size_t prefix = strlen(r->recipe->name), n_wanted = 0; // none of the file's may be left out
    for (size_t i = 0; i < r->file->n_tensors; i++)
        n_wanted += strncmp(r->file->tensors[i].name, r->recipe->name, prefix) == 0 &&
                    r->file->tensors[i].name[prefix] == '.';
    CHECK_MSG(n == n_wanted, "%s: %zu gradients, not %zu", r->recipe->name, n, n_wanted);
}

TEST(train_gradients_are_those_of_pytorch) {
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        rig r;
        REQUIRE_OK(rig_open(&r, &recipes[i], &tern_train_cpu), r.err);
        check_gradients(&r, 3e-5);
        rig_close(&r);
    }
}

// On SwiftShader most of the time goes into compiling, so one model must do.
TEST(webgpu_train_gradients_are_those_of_pytorch) {
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        rig r;
        if (strcmp(recipes[i].name, "bitnet") != 0 && !test_is_long()) continue;
        tern_status status = rig_open(&r, &recipes[i], &tern_train_webgpu);
        if (status == TERN_OK) check_gradients(&r, 1e-4);
        bool absent = status != TERN_OK && gpu_is_absent(r.err.message);
        CHECK_MSG(status == TERN_OK || absent, "%s: %s", recipes[i].name, r.err.message);
        rig_close(&r);
        if (absent) return;
    }
}

// Gradients of whole models of the families against differences in float64: the slopes of the loss
// along a few directions of each weight (tests/reference/family_gradients.py), in documents longer
// than a block of rows and a window, on the CPU and on a GPU.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/json/json.h"
#include "tests/support/blobs.h"
#include "tests/library/webgpu/gpu_fixture.h"
#include "tests/support/harness.h"
#include "kernels/train.h"
#include "models/models.h"

enum { N_FIRST = 72, N_SECOND = 20, N_TOKENS = N_FIRST + N_SECOND, N_DIRECTIONS = 4 };

typedef struct rig {
    const char *family;
    const tern_train_backend *backend;
    tern_trainer_device *device;
    tern_file *file, *golden;
    const tern_arch *arch;
    tern_graph graph;
    tern_train_array **arrays;
    tern_program *program;
    tern_error err;
} rig;

typedef enum rig_way { RIG_PLAIN, RIG_RECOMPUTES, RIG_BF16 } rig_way;

// ---- The model ---------------------------------------------------------------------------------

// Numbers of a weight as the graph reads them: floats of a file, perhaps changed.
static tern_status add_array(rig *r, tern_vid v) {
    const tern_value *value = &r->graph.values[v];
    uint64_t n = (uint64_t)(value->rows * value->cols);
    tern_tensor t;
    TERN_TRY(r->backend->array_new(r->device, n, &r->arrays[v], &r->err));
    if (value->kind != TERN_VALUE_WEIGHT) return TERN_OK;
    TERN_TRY(tern_arch_weight(r->file, r->arch, value, &t, &r->err));
    float *data = NULL;
    TERN_TRY(tern_arch_numbers(r->file, r->arch, &t, value->name, &data, &r->err));
    if (!data) {
        data = tern_alloc_array(TERN_MEM_GRAPH, n, sizeof *data);
        if (!data) return tern_fail_memory(&r->err, n * sizeof *data);
        tern_dtype_decode(t.type, test_bytes(&t.data), 0, n, t.scale, data);
    }
    tern_status status = r->backend->write(r->arrays[v], 0, n, data, &r->err);
    tern_free(data);
    return status;
}

// in_order: from GGUF, where rows stand as in the folder and numbers are as the graph reads them.
static tern_status open_graph(rig *r, bool in_order, bool recomputes) {
    char path[200];
    tern_config config;
    const char *family = r->family;
    tern_graph_init(&r->graph);
    snprintf(path, sizeof path, "tests/oracles/%s%s", family, in_order ? "/model.gguf" : "");
    TERN_TRY(tern_file_open(&r->file, path, &r->err));
    snprintf(path, sizeof path, "tests/oracles/%s/golden.safetensors", family);
    TERN_TRY(tern_file_open(&r->golden, path, &r->err));
    TERN_TRY(tern_arch_read(r->file, &r->arch, &config, &r->err));
    TERN_TRY(tern_arch_build(&r->graph, r->file, r->arch, &config, &r->err));
    TERN_TRY(tern_graph_find(&r->graph, "logits") < 0
                 ? tern_graph_train_vectors(&r->graph, 1, &r->err)
                 : tern_graph_train(&r->graph, &r->err));
    size_t n_forward = r->graph.n_nodes;
    TERN_TRY(tern_graph_differentiate(&r->graph, NULL, &r->err));
    return recomputes ? tern_graph_recompute(&r->graph, n_forward, &r->err) : TERN_OK;
}

static tern_status rig_open(rig *r, const char *family, bool in_order, rig_way way,
                            const tern_train_backend *backend) {
    *r = (rig){.family = family, .backend = backend};
    TERN_TRY(open_graph(r, in_order, way == RIG_RECOMPUTES));
    const tern_trainer_desc desc = {
        .n_threads = 2, .bf16 = way == RIG_BF16, .webgpu = gpu_webgpu(NULL)};
    TERN_TRY(backend->open(&r->device, &desc, &r->err));
    r->arrays = tern_alloc_array(TERN_MEM_GRAPH, r->graph.n_values, sizeof *r->arrays);
    if (!r->arrays) return tern_fail_memory(&r->err, r->graph.n_values);
    for (size_t v = 0; v < r->graph.n_values; v++) {
        const tern_value *value = &r->graph.values[v];
        bool state = value->kind == TERN_VALUE_STATE && value->state == TERN_STATE_ARRAY;
        if (value->kind == TERN_VALUE_WEIGHT || state) TERN_TRY(add_array(r, (tern_vid)v));
    }
    return backend->compile(r->device, &r->graph, r->arrays, N_TOKENS, N_FIRST, &r->program,
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
    tern_file_close(r->golden);
    tern_free(r->arrays);
    tern_graph_free(&r->graph);
}

// ---- The batch ---------------------------------------------------------------------------------

// The oracle's ids, and some of them in reverse.
static bool run_batch(rig *r, float *loss) {
    int32_t ids[N_TOKENS], targets[N_TOKENS], starts[N_TOKENS];
    const tern_tensor *t = tern_file_tensor(r->golden, "input_ids");
    CHECK_MSG(t && t->bytes == N_FIRST * sizeof *ids, "%s: input_ids", r->family);
    if (!t || t->bytes != N_FIRST * sizeof *ids) return false;
    memcpy(ids, test_bytes(&t->data), t->bytes);
    for (int i = 0; i < N_SECOND; i++) ids[N_FIRST + i] = ids[N_SECOND - 1 - i];
    for (int i = 0; i < N_TOKENS; i++) {
        bool last = i == N_FIRST - 1 || i == N_TOKENS - 1;
        targets[i] = last ? -1 : ids[i + 1];
        starts[i] = i < N_FIRST ? 0 : N_FIRST;
    }
    tern_train_batch b = {.n_tokens = N_TOKENS,
                          .ids = ids,
                          .targets = targets,
                          .starts = starts,
                          .loss_scale = 1.0f / (N_TOKENS - 2)};
    tern_vid sum = tern_graph_find(&r->graph, "loss");
    bool ok = r->backend->run(r->program, &b, &r->err) == TERN_OK &&
              r->backend->read(r->arrays[sum], 0, 1, loss, &r->err) == TERN_OK;
    CHECK_MSG(ok, "%s: %s", r->family, r->err.message);
    *loss *= b.loss_scale;
    return ok;
}

// ---- The comparison ----------------------------------------------------------------------------

// Its slopes in the file, by the name that it has in a folder, without "model.".
static const tern_json *slopes_of(const rig *r, const tern_json_doc *doc, const tern_json *all,
                                  const char *weight) {
    char hf[128];
    if (!tern_arch_name_to_hf(r->arch, weight, hf, sizeof hf)) return NULL;
    return tern_json_get(doc, all, strncmp(hf, "model.", 6) == 0 ? hf + 6 : hf);
}

// Of -e^w the slopes in the file are those of w.
static void undo_change(rig *r, const tern_value *w, float *grad, size_t n) {
    const tern_tensor_row *row = tern_arch_row(r->arch, w->name);
    float numbers[64];
    if (!row || row->change != TERN_CHANGE_MINUS_EXP || n > 64) return;
    tern_vid v = tern_graph_find(&r->graph, w->name);
    CHECK(r->backend->read(r->arrays[v], 0, n, numbers, &r->err) == TERN_OK);
    for (size_t i = 0; i < n; i++) grad[i] *= numbers[i];
}

// Along each direction the slope of a weight, whose numbers in the file begin with `first`.
typedef struct slopes {
    double along[N_DIRECTIONS], squares;
    size_t first;
} slopes;

static void add_slopes(rig *r, const tern_value *w, slopes *s) {
    char name[80];
    size_t n = (size_t)(w->rows * w->cols);
    snprintf(name, sizeof name, "grad.%s", w->name);
    tern_vid grad = tern_graph_find(&r->graph, name);
    float *got = tern_alloc_array(TERN_MEM_GRAPH, n, sizeof *got);
    // What only chooses experts has no slope.
    CHECK(grad >= 0 ? r->backend->read(r->arrays[grad], 0, n, got, &r->err) == TERN_OK
                    : strstr(w->name, "exp_probs_b") != NULL);
    undo_change(r, w, got, n);
    for (size_t i = 0; i < n; i++) {
        double at = (double)(s->first + i + 1) * 0.7390851;
        for (int k = 0; k < N_DIRECTIONS; k++)
            s->along[k] += (double)got[i] * sin((double)(k + 1) * at);
        s->squares += (double)got[i] * (double)got[i];
    }
    s->first += n;
    tern_free(got);
}

// An error of `bound` times the gradient's length, if it points anywhere, has bound / sqrt(n) of it
// along a direction of length 1; four times as much is refused. A factor in front of a norm hardly
// matters: what there is of its gradient is float32's rounding.
#define NOTHING 1e-7
static void compare(const rig *r, const char *weight, const slopes *s, const tern_json_doc *doc,
                    const tern_json *want, double bound) {
    const tern_json *slope = tern_json_first(doc, want);
    CHECK_MSG(slope != NULL, "%s: %s has no slopes", r->family, weight);
    for (int k = 0; slope && k < N_DIRECTIONS; k++) {
        double right = tern_json_number(slope, NAN), unit = sqrt(s->squares / 2);
        double error = fabs(s->along[k] - right);
        CHECK_MSG(error <= 4 * bound * unit + NOTHING,
                  "%s: %s: slope %d is %.9g, not %.9g: off by %.2g", r->family, weight, k,
                  s->along[k], right, error / unit);
        slope = tern_json_next(doc, want, slope);
    }
}

static void check_gradients(rig *r, const tern_json_doc *doc, double bound) {
    const tern_json *golden = tern_json_get(doc, tern_json_root(doc), r->family);
    const tern_json *all = tern_json_get(doc, golden, "slopes");
    double want = tern_json_number(tern_json_get(doc, golden, "loss"), NAN);
    float loss = NAN;
    size_t n = 0;
    if (!run_batch(r, &loss)) return;
    CHECK_MSG(fabs((double)loss / want - 1) < 1e-5, "%s: loss %g, not %g", r->family, (double)loss,
              want);
    // Several weights may be one tensor of the folder, one after the other.
    for (size_t v = 0, next; v < r->graph.n_values; v = next) {
        const tern_value *w = &r->graph.values[v];
        const tern_json *at = slopes_of(r, doc, all, w->name);
        slopes sum = {.first = 0};
        next = v + 1;
        if (w->kind != TERN_VALUE_WEIGHT || strncmp(w->name, "rope_", 5) == 0) continue;
        add_slopes(r, w, &sum);
        for (; next < r->graph.n_values; next++) {
            const tern_value *more = &r->graph.values[next];
            if (more->kind != TERN_VALUE_WEIGHT) continue;
            if (!at || slopes_of(r, doc, all, more->name) != at) break;
            add_slopes(r, more, &sum);
        }
        compare(r, w->name, &sum, doc, at, bound);
        n++;
    }
    CHECK_MSG(all && n == all->n, "%s: %zu weights", r->family, n);
}

static bool read_golden(tern_json_doc *doc, char **text) {
    size_t n;
    tern_error err = {0};
    *text = test_read("tests/oracles/family_gradients.json", &n); // run in the repository's root
    bool ok = *text && tern_json_parse(doc, *text, n, &err) == TERN_OK;
    CHECK_MSG(ok, "tests/oracles/family_gradients.json: %s", err.message);
    return ok;
}

static const struct {
    const char *name;
    bool in_order;
    bool has_own; // ops that none of the others has
} families[] = {{"gemma3", true, false},         {"lfm2", true, false},
                {"qwen3", true, false},          {"gemma3_linear", true, false},
                {"qwen2", true, false},          {"phi3", true, false},
                {"hunyuan", true, false},        {"exaone4", true, false},
                {"ernie4_5", true, false},       {"cohere2", true, true},
                {"olmo2", true, false},          {"granite", false, false},
                {"ministral3", false, false},    {"falcon_h1", false, true},
                {"granitehybrid", false, false}, {"qwen35", false, false},
                {"qwen35_grouped", false, true}, {"qwen3moe", true, true},
                {"lfm2moe", true, false},        {"gemma4", true, true}};
#define N_FAMILIES (sizeof families / sizeof *families)

// Seen to fail: a bias's gradient of one row; queries' growth left out of RoPE's gradient; a state
// space's decay of the row before, states of the rows before instead of after, sums of a head's B
// that its neighbour overwrites, D left out of dx, a document that begins with the state of the one
// before; a cap's gradient of the capped score; a norm of groups as one of the whole row; a delta
// net's dg without its decay, states that do not go on from chunk to chunk, lengths left out of dk;
// experts' weights that are normed as if they were not, a sigmoid's slope left out.
TEST(train_gradients_of_the_families_are_those_of_float64) {
    tern_json_doc doc;
    char *text;
    if (!read_golden(&doc, &text)) return;
    for (size_t i = 0; i < N_FAMILIES; i++) {
        rig r;
        REQUIRE_OK(rig_open(&r, families[i].name, families[i].in_order, RIG_PLAIN, &tern_train_cpu),
                   r.err);
        check_gradients(&r, &doc, 3e-5);
        rig_close(&r);
    }
    tern_json_free(&doc);
    free(text);
}

// Numbers of a state, to be freed.
static float *numbers_of(rig *r, tern_vid v) {
    size_t n = (size_t)(r->graph.values[v].rows * r->graph.values[v].cols);
    float *out = tern_alloc_array(TERN_MEM_GRAPH, n, sizeof *out);
    CHECK(out && r->backend->read(r->arrays[v], 0, n, out, &r->err) == TERN_OK);
    return out;
}

// Both rigs have run the same batch.
static void check_same_bits(rig *a, rig *b) {
    for (size_t v = 0; v < a->graph.n_values; v++) {
        const tern_value *x = &a->graph.values[v];
        if (x->kind != TERN_VALUE_STATE || x->state != TERN_STATE_ARRAY) continue;
        tern_vid w = tern_graph_find(&b->graph, x->name);
        REQUIRE(w >= 0);
        float *one = numbers_of(a, (tern_vid)v), *other = numbers_of(b, w);
        CHECK_MSG(memcmp(one, other, (size_t)(x->rows * x->cols) * sizeof *one) == 0,
                  "%s: %s differs", a->family, x->name);
        tern_free(one);
        tern_free(other);
    }
}

// Seen to fail: copies of nodes without their attributes.
TEST(train_gradients_are_the_same_if_activations_are_computed_again) {
    for (size_t i = 0; i < N_FAMILIES; i++) {
        rig r[2];
        float loss[2] = {0};
        for (int k = 0; k < 2; k++) {
            REQUIRE_OK(rig_open(&r[k], families[i].name, families[i].in_order,
                                k == 1 ? RIG_RECOMPUTES : RIG_PLAIN, &tern_train_cpu),
                       r[k].err);
            if (!run_batch(&r[k], &loss[k])) return;
        }
        CHECK_MSG(r[1].graph.n_nodes > r[0].graph.n_nodes, "%s: nothing is", families[i].name);
        check_same_bits(&r[0], &r[1]);
        rig_close(&r[0]);
        rig_close(&r[1]);
    }
}

// How far gradients with factors rounded to bf16 are from floats', all weights together, relative
// to their length.
static double distance(rig *floats, rig *rounded) {
    double wrong = 0, size = 0;
    for (size_t v = 0; v < floats->graph.n_values; v++) {
        const tern_value *x = &floats->graph.values[v];
        if (x->kind != TERN_VALUE_STATE || strncmp(x->name, "grad.", 5) != 0) continue;
        float *one = numbers_of(floats, (tern_vid)v), *other = numbers_of(rounded, (tern_vid)v);
        for (size_t i = 0; one && other && i < (size_t)(x->rows * x->cols); i++) {
            wrong += (double)(other[i] - one[i]) * (double)(other[i] - one[i]);
            size += (double)one[i] * (double)one[i];
        }
        tern_free(one);
        tern_free(other);
    }
    return sqrt(wrong / size);
}

// The bound is that of a GPU's halves (gpu_train_test.c), which have three bits more. States and
// choices of experts make a rounding grow, so their families are left out. Seen to fail: tiles that
// leave out the last step of a panel.
TEST(train_gradients_with_factors_in_bf16_are_near_those_of_floats) {
    enum { N_PLAIN = 13 };
    for (size_t i = 0; i < N_PLAIN; i++) {
        rig r[2];
        float loss[2] = {0};
        for (int k = 0; k < 2; k++) {
            REQUIRE_OK(rig_open(&r[k], families[i].name, families[i].in_order,
                                k == 1 ? RIG_BF16 : RIG_PLAIN, &tern_train_cpu),
                       r[k].err);
            if (!run_batch(&r[k], &loss[k])) return;
        }
        const bool is_rounded = strstr(tern_train_cpu.describe(r[1].device), "bf16") != NULL;
        const double off = distance(&r[0], &r[1]);
        CHECK_MSG(off < 3.2e-2 && (off > 0) == is_rounded, "%s: off by %g", families[i].name, off);
        rig_close(&r[0]);
        rig_close(&r[1]);
        if (!is_rounded) {
            test_skip("this processor does not multiply bf16 faster than floats");
            return;
        }
    }
}

// On SwiftShader most of the time goes into compiling, so those with ops of their own must do. Seen
// to fail: a LayerNorm's mean left out of dw, a scale's gradient without the run's, a router's
// gradient of the route without its norm.
TEST(webgpu_train_gradients_of_the_families_are_those_of_float64) {
    tern_json_doc doc;
    char *text;
    if (!read_golden(&doc, &text)) return;
    bool absent = false;
    for (size_t i = 0; i < N_FAMILIES && !absent; i++) {
        if (!families[i].has_own && !test_is_long()) continue;
        rig r;
        tern_status status =
            rig_open(&r, families[i].name, families[i].in_order, RIG_PLAIN, &tern_train_webgpu);
        if (status == TERN_OK) check_gradients(&r, &doc, 1e-4);
        absent = status != TERN_OK && gpu_is_absent(r.err.message);
        CHECK_MSG(status == TERN_OK || absent, "%s: %s", families[i].name, r.err.message);
        rig_close(&r);
    }
    tern_json_free(&doc);
    free(text);
}

// Differences would not show that the rows which training lets an encoder see are others than those
// of inference. Seen to fail: rows to one side only.
TEST(train_vectors_of_an_encoder_are_the_oracle_s) {
    enum { N = 23, COLS = 32 };
    int32_t ids[N], zeros[N] = {0};
    float got[COLS], want[COLS], length = 0;
    rig r;
    REQUIRE_OK(rig_open(&r, "modernbert", false, false, &tern_train_cpu), r.err);
    const tern_tensor *t = tern_file_tensor(r.golden, "input_ids");
    const tern_tensor *embedding = tern_file_tensor(r.golden, "embedding");
    REQUIRE(t && t->bytes == sizeof ids && embedding && embedding->bytes == sizeof want);
    memcpy(ids, test_bytes(&t->data), sizeof ids);
    memcpy(want, test_bytes(&embedding->data), sizeof want);
    const tern_train_batch b = {
        .n_tokens = N, .ids = ids, .targets = zeros, .starts = zeros, .loss_scale = 1};
    tern_vid vectors = tern_graph_find(&r.graph, "vectors");
    REQUIRE_OK(r.backend->run(r.program, &b, &r.err), r.err);
    REQUIRE_OK(r.backend->read(r.arrays[vectors], 0, COLS, got, &r.err), r.err);
    for (int i = 0; i < COLS; i++) length += got[i] * got[i];
    for (int i = 0; i < COLS; i++)
        CHECK_MSG(fabsf(got[i] / sqrtf(length) - want[i]) < 1e-5f, "%d: %g, not %g", i,
                  (double)(got[i] / sqrtf(length)), (double)want[i]);
    rig_close(&r);
}

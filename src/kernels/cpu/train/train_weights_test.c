// Steps of Muon and of AdamW with 8-bit moments against those of numpy in float64
// (tests/reference/family_gradients.py); steps of masters in bfloat16 against those of floats.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/dtype/half.h"
#include "base/json/json.h"
#include "kernels/train.h"
#include "tests/support/harness.h"

enum { N_STEPS = 3, N_MOST = 4196 };

// Number i of direction k, as the reference has it.
static void direction(int k, size_t n, float factor, float *out) {
    for (size_t i = 0; i < n; i++)
        out[i] = factor * (float)sin((double)(k + 1) * (double)(i + 1) * 0.7390851);
}

typedef struct rig {
    tern_graph graph, update;
    tern_trainer_device *device;
    tern_train_array *arrays[8];
    tern_program *program;
    tern_error err;
} rig;

typedef struct shape {
    tern_update_kind kind;
    int64_t rows, cols;
    int threads;
    bool bf16; // the weight
} shape;

static tern_status rig_open(rig *r, const shape *s) {
    *r = (rig){0};
    const tern_train_backend *b = &tern_train_cpu;
    tern_graph_init(&r->graph);
    tern_graph_init(&r->update);
    tern_g_matrix(&r->graph, "w", s->rows, s->cols);
    tern_g_array(&r->graph, "grad.w", s->rows, s->cols);
    TERN_TRY(tern_graph_optimizer(&r->graph, s->kind, &r->update, &r->err));
    TERN_TRY(b->open(&r->device, &(tern_trainer_desc){.n_threads = s->threads}, &r->err));
    for (size_t v = 0; v < r->update.n_values; v++) {
        const tern_value *x = &r->update.values[v];
        const uint64_t n = (uint64_t)x->rows, m = (uint64_t)x->cols;
        TERN_TRY(s->bf16 && x->kind == TERN_VALUE_WEIGHT
                     ? b->array_new_bf16(r->device, n, m, &r->arrays[v], &r->err)
                     : b->array_new(r->device, n * m, &r->arrays[v], &r->err));
    }
    return b->compile(r->device, &r->update, r->arrays, 1, 1, &r->program, &r->err);
}

static void rig_close(rig *r) {
    tern_train_cpu.program_free(r->program);
    for (size_t v = 0; v < r->update.n_values; v++) tern_train_cpu.array_free(r->arrays[v]);
    tern_train_cpu.close(r->device);
    tern_graph_free(&r->graph);
    tern_graph_free(&r->update);
}

static float *numbers(rig *r, const char *name) {
    return tern_train_cpu.host(r->arrays[tern_graph_find(&r->update, name)]);
}

// The weights after the steps.
static void step_all(const shape *s, float *out) {
    rig r;
    size_t n = (size_t)(s->rows * s->cols);
    REQUIRE_OK(rig_open(&r, s), r.err);
    direction(0, n, 0.1f, numbers(&r, "w"));
    for (int k = 1; k <= N_STEPS; k++) {
        direction(k, n, 1, numbers(&r, "grad.w"));
        const tern_train_batch b = {.rate = 0.02f,
                                    .decay = 0.1f,
                                    .beta1 = 0.9f,
                                    .beta2 = 0.95f,
                                    .eps = 1e-8f,
                                    .momentum = 0.95f,
                                    .step = k};
        REQUIRE_OK(tern_train_cpu.run(r.program, &b, &r.err), r.err);
        for (size_t i = 0; i < n; i++) REQUIRE(numbers(&r, "grad.w")[i] == 0);
    }
    memcpy(out, numbers(&r, "w"), n * sizeof *out);
    rig_close(&r);
}

// Relative to how far the weights went.
static double difference(const tern_json_doc *doc, const char *name, const float *w, size_t each) {
    const tern_json *list = tern_json_get(doc, tern_json_root(doc), name);
    static float first[N_MOST];
    double off = 0, all = 0;
    size_t i = 0;
    direction(0, N_MOST, 0.1f, first);
    for (const tern_json *x = tern_json_first(doc, list); x; x = tern_json_next(doc, list, x)) {
        off += pow(x->number - (double)w[i], 2);
        all += pow(x->number - (double)first[i], 2);
        i += each;
    }
    return i ? sqrt(off / all) : NAN;
}

// Seen to fail: with the lesser side for both, without Nesterov's momentum, with the square instead
// of the fourth power.
TEST(train_optimizers_are_those_of_float64) {
    static const struct {
        const char *name;
        tern_update_kind kind;
        int64_t rows, cols;
        double most;
        // Small singular values grow by 3.4445 in each of five iterations, and so does rounding.
    } all[] = {{"5x3", TERN_UPDATE_MUON, 5, 3, 3e-5},
               {"4x18", TERN_UPDATE_MUON, 4, 18, 3e-5},
               {"16x16", TERN_UPDATE_MUON, 16, 16, 3e-5},
               // A moment that is almost halfway between two codes may get the other one.
               {"adamw8", TERN_UPDATE_ADAMW8, 4, 1049, 5e-3}};
    static float w[N_MOST], again[N_MOST];
    tern_json_doc doc;
    tern_error err = {0};
    size_t n;
    char *text = test_read("tests/oracles/optimizers.json", &n);
    REQUIRE(text != NULL);
    REQUIRE_OK(tern_json_parse(&doc, text, n, &err), err);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size_t count = (size_t)(all[i].rows * all[i].cols);
        shape s = {all[i].kind, all[i].rows, all[i].cols, 1, false};
        step_all(&s, w);
        s.threads = 3;
        step_all(&s, again);
        CHECK_MSG(memcmp(w, again, count * sizeof *w) == 0, "%s with three threads", all[i].name);
        double off = difference(&doc, all[i].name, w, all[i].kind == TERN_UPDATE_MUON ? 1 : 53);
        CHECK_MSG(off <= all[i].most, "%s: %g", all[i].name, off);
    }
    tern_json_free(&doc);
    free(text);
}

// ---- Masters in bfloat16 -----------------------------------------------------------------------

typedef struct rounding {
    uint64_t seed;
    int64_t step;
    float rate;
} rounding;

// The weights after one step from the same numbers of bfloat16, which `first` gets.
static void step_once(const shape *s, const rounding *by, float *first, float *out) {
    rig r;
    const size_t n = (size_t)(s->rows * s->cols);
    REQUIRE_OK(rig_open(&r, s), r.err);
    tern_train_array *w = r.arrays[tern_graph_find(&r.update, "w")];
    direction(0, n, 0.1f, first);
    for (size_t i = 0; i < n; i++) first[i] = tern_bf16_to_f32(tern_f32_to_bf16(first[i]));
    REQUIRE_OK(tern_train_cpu.write(w, 0, n, first, &r.err), r.err);
    direction(1, n, 1, numbers(&r, "grad.w"));
    const tern_train_batch b = {.rate = by->rate,
                                .beta1 = 0.9f,
                                .beta2 = 0.95f,
                                .eps = 1e-8f,
                                .momentum = 0.95f,
                                .seed = by->seed,
                                .step = by->step};
    REQUIRE_OK(tern_train_cpu.run(r.program, &b, &r.err), r.err);
    REQUIRE_OK(tern_train_cpu.read(w, 0, n, out, &r.err), r.err);
    rig_close(&r);
}

// Both neighbours of x in bfloat16, the one nearer to zero first.
static bool is_neighbour(float x, float y) {
    const uint32_t down = tern_f32_to_bits(x) & 0xFFFF0000;
    return y == tern_bits_to_f32(down) ||
           (down != tern_f32_to_bits(x) && y == tern_bits_to_f32(down + 0x10000));
}

// A step of floats is rounded to one of both neighbours, and on average it is all there, though it
// is a small part of their distance. Seen to fail: rounded to the nearest (nothing of the way is
// left), with the same random bits for all numbers, with bits that the threads' shares begin anew.
TEST(train_bf16_masters_go_as_far_as_floats) {
    static float first[N_MOST], exact[N_MOST], w[N_MOST], again[N_MOST];
    static const tern_update_kind optimizers[] = {TERN_UPDATE_ADAMW, TERN_UPDATE_ADAMW8,
                                                  TERN_UPDATE_MUON};
    for (int k = 0; k < 3; k++) {
        shape s = {optimizers[k], 4, 1049, 1, false};
        rounding by = {.seed = 5, .step = 1, .rate = k == 2 ? 3e-4f : 2e-5f};
        double way = 0, gone = 0;
        step_once(&s, &by, first, exact);
        s.bf16 = true;
        step_once(&s, &by, first, w);
        size_t n_stay = 0, n_off = 0;
        for (size_t i = 0; i < N_MOST; i++) {
            const float to = exact[i] > first[i] ? 1 : -1;
            way += (double)((exact[i] - first[i]) * to);
            gone += (double)((w[i] - first[i]) * to);
            n_stay += w[i] == first[i];
            n_off += !is_neighbour(exact[i], w[i]);
        }
        CHECK_MSG(n_off == 0, "optimizer %d: %zu are not neighbours", k, n_off);
        CHECK_MSG(n_stay > N_MOST / 2 && fabs(gone / way - 1) < 0.15,
                  "optimizer %d: %g of the way, %zu stay", k, gone / way, n_stay);
        s.threads = 3;
        step_once(&s, &by, first, again);
        CHECK(memcmp(w, again, sizeof w) == 0);
        for (int other = 0; other < 2; other++) {
            by = (rounding){5 + (uint64_t)other, 2 - other, by.rate};
            step_once(&s, &by, first, again);
            CHECK(memcmp(w, again, sizeof w) != 0);
        }
    }
}

// What is not finite stays so. Seen to fail: with random bits added to a NaN, which overflows to
// -0.
TEST(train_bf16_masters_keep_what_is_not_finite) {
    rig r;
    const shape s = {TERN_UPDATE_ADAMW, 1, 16, 1, true};
    float w[16], found[16];
    REQUIRE_OK(rig_open(&r, &s), r.err);
    tern_train_array *a = r.arrays[tern_graph_find(&r.update, "w")];
    for (int i = 0; i < 16; i++) {
        w[i] = i % 3 == 0 ? 1 : i % 3 == 1 ? INFINITY : -INFINITY;
        numbers(&r, "grad.w")[i] = i % 3 == 0 ? tern_bits_to_f32(0x7FFFFFFF) : 0;
    }
    REQUIRE_OK(tern_train_cpu.write(a, 0, 16, w, &r.err), r.err);
    const tern_train_batch b = {.rate = 1, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .step = 1};
    REQUIRE_OK(tern_train_cpu.run(r.program, &b, &r.err), r.err);
    REQUIRE_OK(tern_train_cpu.read(a, 0, 16, found, &r.err), r.err);
    for (int i = 0; i < 16; i++)
        CHECK_MSG(i % 3 == 0 ? isnan(found[i]) : found[i] == w[i], "%d: %g", i, (double)found[i]);
    rig_close(&r);
}

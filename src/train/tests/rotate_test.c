// Training with weights in a rotated basis: the gradient of the rotation, and float models that
// become rotated ternary ones.
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "kernels/train.h"
#include "tasks/tasks.h"
#include "tests/library/webgpu/gpu_fixture.h"
#include "tests/support/blobs.h"
#include "tests/support/lora_fixture.h"
#include "train/trainer.h"

enum { PATH = 400, N_VOCAB = 9, N_COLS = 64, N_TOKENS = 6 };

// ---- The gradient ------------------------------------------------------------------------------

typedef struct rig {
    tern_graph graph;
    tern_trainer_device *device;
    tern_train_array **arrays;
    tern_program *program;
    tern_error err;
} rig;

static float any_number(uint64_t i) { return (float)(tern_mix64(i + 1) % 2001) / 1000 - 1; }

static tern_status build(rig *r, const tern_rotation *how) {
    tern_graph *g = &r->graph;
    tern_graph_init(g);
    tern_vid ids = tern_g_input(g, "ids", tern_g_dim(g, "tokens"), 1, TERN_VALUE_I32);
    tern_vid x = tern_g_embed(g, ids, tern_g_table(g, "table", N_VOCAB, N_COLS));
    tern_vid y =
        tern_g_hadamard(g, x, how->has_signs ? tern_g_vector(g, "signs", N_COLS) : -1, how);
    tern_g_output(g, tern_g_linear(g, y, tern_g_matrix(g, "head", N_VOCAB, N_COLS)), "logits");
    TERN_TRY(tern_graph_train(g, &r->err));
    return tern_graph_differentiate(g, NULL, &r->err);
}

static tern_status rig_open(rig *r, const tern_rotation *how) {
    const tern_train_backend *b = &tern_train_cpu;
    *r = (rig){0};
    TERN_TRY(build(r, how));
    TERN_TRY(b->open(&r->device, &(tern_trainer_desc){.n_threads = 2}, &r->err));
    r->arrays = tern_alloc_array(TERN_MEM_GRAPH, r->graph.n_values, sizeof *r->arrays);
    for (size_t v = 0; v < r->graph.n_values; v++) {
        const tern_value *value = &r->graph.values[v];
        const bool state = value->kind == TERN_VALUE_STATE && value->state == TERN_STATE_ARRAY;
        const uint64_t n = (uint64_t)(value->rows * value->cols);
        if (value->kind != TERN_VALUE_WEIGHT && !state) continue;
        TERN_TRY(b->array_new(r->device, n, &r->arrays[v], &r->err));
        float *x = b->host(r->arrays[v]);
        for (uint64_t i = 0; value->kind == TERN_VALUE_WEIGHT && i < n; i++)
            x[i] = any_number(i + 977 * v);
        for (uint64_t i = 0; strcmp(value->name, "signs") == 0 && i < n; i++)
            x[i] = x[i] < 0 ? -1.0f : 1.0f;
    }
    return b->compile(r->device, &r->graph, r->arrays, N_TOKENS, N_TOKENS, &r->program, &r->err);
}

static void rig_close(rig *r) {
    tern_train_cpu.program_free(r->program);
    for (size_t v = 0; v < r->graph.n_values; v++) tern_train_cpu.array_free(r->arrays[v]);
    tern_train_cpu.close(r->device);
    tern_free(r->arrays);
    tern_graph_free(&r->graph);
}

static float *numbers(rig *r, const char *name) {
    return tern_train_cpu.host(r->arrays[tern_graph_find(&r->graph, name)]);
}

static double loss_of(rig *r) {
    const int32_t ids[N_TOKENS] = {1, 4, 2, 8, 5, 7}, targets[N_TOKENS] = {4, 2, 8, 5, 7, 0};
    const int32_t starts[N_TOKENS] = {0};
    const tern_train_batch b = {
        .n_tokens = N_TOKENS, .ids = ids, .targets = targets, .starts = starts, .loss_scale = 1};
    *numbers(r, "loss") = 0;
    CHECK(tern_train_cpu.run(r->program, &b, &r->err) == TERN_OK);
    return (double)*numbers(r, "loss");
}

// The slope of the loss along what is said to be its gradient. Seen to fail: with signs on the
// other side, and with columns that stay in the order of the forward op.
TEST(rotation_has_the_gradient_of_differences) {
    static const tern_rotation cases[] = {
        {.block = 16},
        {.block = 32, .has_signs = true},
        {.block = 64, .has_signs = true, .inverse = true},
        {.block = 16, .has_signs = true, .groups = 2, .repeats = 4, .each = 4},
        {.block = 8, .has_signs = true, .inverse = true, .groups = 4, .repeats = 2, .each = 2}};
    enum { N = N_VOCAB * N_COLS };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig r;
        float grad[N], first[N];
        double along = 0, loss[2];
        tern_status status = rig_open(&r, &cases[i]);
        REQUIRE_OK(status, r.err);
        loss_of(&r);
        memcpy(grad, numbers(&r, "grad.table"), sizeof grad);
        memcpy(first, numbers(&r, "table"), sizeof first);
        for (size_t k = 0; k < N; k++) along += (double)grad[k] * (double)grad[k];
        const double step = 0.05 / along;
        for (int side = 0; side < 2; side++) {
            for (size_t k = 0; k < N; k++)
                numbers(&r, "table")[k] = first[k] + (float)(side ? step : -step) * grad[k];
            loss[side] = loss_of(&r);
        }
        const double slope = (loss[1] - loss[0]) / (2 * step);
        CHECK_MSG(along > 0 && fabs(slope / along - 1) < 2e-3, "case %zu: %g, by difference %g", i,
                  along, slope);
        rig_close(&r);
    }
}

// ---- Whole runs --------------------------------------------------------------------------------

static const base_kind llama = {"Llama", {.arch = "llama", .seed = 95, .n_layers = 1}, false};

typedef struct ternarizing {
    char base[PATH], text[PATH], out[PATH], work[PATH];
    const char *paths[1];
    tern_ternarize_desc d;
} ternarizing;

static bool prepare(ternarizing *t, const base_kind *kind, const char *name) {
    *t = (ternarizing){0};
    snprintf(t->text, PATH, "%s", test_tmp("rotate_text.txt"));
    snprintf(t->work, PATH, "%s", test_tmp(name));
    snprintf(t->out, PATH, "%s.gguf", test_tmp(name));
    FILE *f = fopen(t->text, "w");
    if (!f || !make_base(kind, t->base, PATH)) return false;
    for (int i = 0; i < 300; i++)
        fprintf(f, "the %d%d%d%d the end %d<|endoftext|>", i % 10, (i + 1) % 10, (i + 2) % 10,
                (i + 3) % 10, i);
    fclose(f);
    t->paths[0] = t->text;
    t->d = (tern_ternarize_desc){.model = t->base,
                                 .out = t->out,
                                 .work = t->work,
                                 .rotate = true,
                                 .start = "gptq",
                                 .source = {.paths = t->paths, .n_paths = 1},
                                 .valid = 0.2,
                                 .measure_tokens = 1024,
                                 .report_tokens = 256,
                                 .train = {.seq_len = SEQ_LEN,
                                           .batch_tokens = 256,
                                           .micro_tokens = 128,
                                           .n_steps = 6,
                                           .rate = 2e-3f,
                                           .valid_every = 3,
                                           .valid_tokens = 512,
                                           .checkpoint_every = 2,
                                           .n_threads = 1,
                                           .seed = 3}};
    return true;
}

static char *in(const char *folder, const char *name) {
    static char path[2][PATH + 64];
    static int at;
    char *to = path[at++ % 2];
    snprintf(to, sizeof path[0], "%s/%s", folder, name);
    return to;
}

static bool same_bytes(const char *a, const char *b) {
    size_t n, m;
    char *x = test_read(a, &n), *y = test_read(b, &m);
    const bool same = x && y && n == m && memcmp(x, y, n) == 0;
    free(x);
    free(y);
    return same;
}

enum { N_IDS = 24 };
static bool logits_of(const char *path, float *out) {
    tern_error err = {0};
    tern_model *m = NULL;
    tern_session *s = NULL;
    int32_t ids[N_IDS];
    for (int i = 0; i < N_IDS; i++) ids[i] = 3 + i * 7 % 41;
    const tern_model_desc d = {.n_threads = 1};
    bool ok = tern_model_open(&m, path, &d, &err) == TERN_OK &&
              tern_session_open(&s, m, NULL, &err) == TERN_OK &&
              tern_session_logits(s, ids, N_IDS, out, &err) == TERN_OK;
    CHECK_MSG(ok, "%s: %s", path, err.message);
    tern_session_close(s);
    tern_model_close(m);
    return ok;
}

// The rotated floats say what the model says; the ternary file has the keys and the type. Seen to
// fail: with signs that the file does not have.
TEST(rotated_ternary_models_say_what_they_are) {
    static const base_kind bases[] = {
        {"Llama", {.arch = "llama", .seed = 95, .n_layers = 1, .n_embd = 256, .n_ff = 384}, false},
        {"Qwen3.5", {.arch = "qwen35", .seed = 94}, false}};
    static const char *const types[] = {"pq2_0", "ptq1_0"};
    static float want[N_IDS * TINY_N_VOCAB], got[N_IDS * TINY_N_VOCAB];
    for (int i = 0; i < 2; i++) {
        ternarizing t;
        tern_error err;
        tern_file *f;
        double apart = 0, size = 0;
        if (!prepare(&t, &bases[i], i ? "rotate_qwen35" : "rotate_llama")) return;
        t.d.type = types[i];
        REQUIRE_OK(tern_ternarize(&t.d, &err), err);
        if (!logits_of(t.base, want) || !logits_of(in(t.work, "rotated.gguf"), got)) return;
        for (size_t k = 0; k < N_IDS * TINY_N_VOCAB; k++) {
            apart += pow((double)got[k] - (double)want[k], 2);
            size += pow((double)want[k], 2);
        }
        CHECK_MSG(size > 0 && sqrt(apart / size) < 2e-5, "%s: %g", bases[i].name,
                  sqrt(apart / size));
        REQUIRE_OK(tern_file_open(&f, t.out, &err), err);
        CHECK(tern_arch_is_rotated(f));
        const tern_tensor *w = tern_file_tensor(f, "blk.0.ffn_down.weight");
        CHECK(w && w->type == (i ? TERN_DTYPE_PTQ1_0 : TERN_DTYPE_PQ2_0));
        tern_file_close(f);
    }
}

// Where the process kills itself: as a stage begins, or after a step of training.
typedef struct end {
    int stage, step;
} end;

static void die_in_stage(void *user, tern_ternarize_stage stage, bool is_done) {
    const end *e = user;
    if ((int)stage == e->stage && !is_done) kill(getpid(), SIGKILL);
}

static bool die_in_step(void *user, const tern_train_event *event) {
    const end *e = user;
    if (event->step == e->step) kill(getpid(), SIGKILL);
    return true;
}

static void die(const tern_ternarize_desc *desc, end e) {
    tern_ternarize_desc d = *desc;
    int status = 0;
    d.on_stage = die_in_stage;
    d.train.on_step = die_in_step;
    d.user = d.train.user = &e;
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        tern_ternarize(&d, NULL);
        _exit(0);
    }
    waitpid(child, &status, 0);
    CHECK_MSG(WIFSIGNALED(status), "stage %d, step %d: it was not killed", e.stage, e.step);
}

// What was begun without it is another run.
TEST(rotated_ternary_models_go_on_to_the_same_bits_after_any_end) {
    static const end ends[] = {{2, -1}, {3, -1}, {4, -1}, {-1, 1}, {-1, 3}, {-1, 4}, {5, -1}};
    ternarizing whole, cut;
    tern_error err;
    if (!prepare(&whole, &llama, "rotate_whole")) return;
    REQUIRE_OK(tern_ternarize(&whole.d, &err), err);
    if (!prepare(&cut, &llama, "rotate_cut")) return;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) die(&cut.d, ends[i]);
    cut.d.train.n_threads = 2;
    REQUIRE_OK(tern_ternarize(&cut.d, &err), err);
    CHECK(same_bytes(whole.out, cut.out));
    CHECK(same_bytes(in(whole.work, "heal/best.gguf"), in(cut.work, "heal/best.gguf")));
    CHECK(same_bytes(in(whole.work, "rotated.gguf"), in(cut.work, "rotated.gguf")));
    cut.d.rotate = false;
    CHECK(tern_ternarize(&cut.d, &err) == TERN_ERR_ARGUMENT);
    CHECK_MSG(strstr(err.message, "start is gptq, rotate there"), "%s", err.message);
}

static bool take_losses_of(void *user, const tern_train_event *e) {
    if (!isnan(e->valid_loss)) ((double *)user)[e->step > 0] = e->valid_loss;
    return true;
}

// On a GPU, or on SwiftShader. Rounded numbers may fall on either side, and a few do after such a
// step, so there is one. Seen to fail: with signs that the device does not get.
TEST(webgpu_heals_rotated_models_as_the_cpu_does) {
    double loss[2][2] = {{0}};
    for (int device = 1; device >= 0; device--) {
        ternarizing t;
        tern_error err;
        if (!prepare(&t, &llama, device ? "rotate_gpu" : "rotate_cpu")) return;
        t.d.train.n_steps = 1;
        t.d.train.rate = 1e-2f;
        t.d.train.kd_ratio = 0.01f; // the base knows nothing
        t.d.train.batch_tokens = t.d.train.micro_tokens = 128;
        t.d.train.valid_tokens = 128;
        t.d.stages = (1u << TERN_TERNARIZE_HEAL) - 1;
        REQUIRE_OK(tern_ternarize(&t.d, &err), err);
        t.d.stages = 1u << TERN_TERNARIZE_HEAL;
        t.d.train.device = device ? "webgpu" : "cpu";
        t.d.train.webgpu = gpu_webgpu(NULL);
        t.d.train.on_event = take_losses_of;
        t.d.train.user = loss[device];
        if (tern_ternarize(&t.d, &err) == TERN_OK) continue;
        if (!gpu_is_absent(err.message)) CHECK_MSG(false, "%s", err.message);
        return;
    }
    CHECK_MSG(loss[0][1] < loss[0][0] - 0.1, "%g to %g", loss[0][0], loss[0][1]);
    for (int i = 0; i < 2; i++)
        CHECK_MSG(fabs(loss[1][i] / loss[0][i] - 1) < 2e-3, "%g, on the CPU %g", loss[1][i],
                  loss[0][i]);
}

// Each allocation of rotating a file fails in turn, some of those of all that follows. Then the
// same call goes on, to the same bits. Seen to fail: with signs that are left where the file they
// go into cannot be opened.
TEST(rotated_ternary_models_survive_failing_allocations) {
    ternarizing whole, cut;
    tern_error err;
    if (!prepare(&whole, &llama, "rotate_memory_whole")) return;
    whole.d.train.n_steps = 2;
    whole.d.stages = ~(1u << TERN_TERNARIZE_REPORT);
    REQUIRE_OK(tern_ternarize(&whole.d, &err), err);
    const tern_convert_desc how = {.type = TERN_TYPE_F32, .n_threads = 1};
    const char *rotated = test_tmp("rotate_memory.gguf");
    const size_t before = tern_mem_get_stats().total_now;
    tern_status status = TERN_ERR_MEMORY;
    uint64_t n = 0;
    while (status == TERN_ERR_MEMORY) {
        tern_mem_fail_at(++n);
        status = tern_convert_rotated(whole.base, rotated, &how, 3, &err);
        tern_mem_fail_at(0);
        CHECK_MSG(tern_mem_get_stats().total_now == before, "%llu: memory is left",
                  (unsigned long long)n);
    }
    CHECK_MSG(status == TERN_OK && n > 30, "%llu: %s", (unsigned long long)n, err.message);
    CHECK(same_bytes(rotated, in(whole.work, "rotated.gguf")));
    if (!prepare(&cut, &llama, "rotate_memory")) return;
    cut.d.train.n_steps = 2;
    cut.d.stages = whole.d.stages;
    status = TERN_ERR_MEMORY;
    for (n = 1; status == TERN_ERR_MEMORY; n += 1 + n / 6) {
        tern_mem_fail_at(n);
        status = tern_ternarize(&cut.d, &err);
        tern_mem_fail_at(0);
        CHECK_MSG(tern_mem_get_stats().total_now == before, "%llu: memory is left",
                  (unsigned long long)n);
    }
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    CHECK(same_bytes(whole.out, cut.out));
}

TEST(rotation_refuses_what_it_does_not_fit) {
    ternarizing t;
    tern_error err;
    if (!prepare(&t, &llama, "rotate_refused")) return;
    t.d.type = "q2_0";
    CHECK(tern_ternarize(&t.d, &err) == TERN_ERR_ARGUMENT);
    CHECK_MSG(strstr(err.message, "expected pq2_0 or ptq1_0"), "%s", err.message);
    CHECK(tern_path_look(t.work) == TERN_PATH_NONE);
}

// The plan of a run: its bytes are those that a process then has, and a run that cannot fit is
// refused before it takes anything.
#if defined(__linux__)
#include <sys/prctl.h>
#endif
#include <sys/wait.h>
#include <unistd.h>
#include "base/os/os_memory.h"
#include "tests/support/train_fixture.h"

typedef struct shape {
    const char *name;
    tern_train_desc desc; // what differs from small_run
} shape;

// Large enough that the program itself hardly counts: what dominates differs.
static const shape shapes[] = {
    {"weights", {.n_embd = 384, .n_heads = 12, .n_ff = 1024, .micro_tokens = 64}},
    {"bf16_masters",
     {.n_embd = 384, .n_heads = 12, .n_ff = 1024, .micro_tokens = 64, .bf16_masters = true}},
    {"activations", {.n_layers = 6, .n_embd = 64, .n_ff = 192, .micro_tokens = 2048}},
    {"again",
     {.n_layers = 6,
      .n_embd = 64,
      .n_ff = 192,
      .micro_tokens = 2048,
      .gradient_checkpointing = true}},
    {"separate_head",
     {.recipe = TERN_RECIPE_LLAMA,
      .separate_head = true,
      .n_embd = 256,
      .n_ff = 1024,
      .micro_tokens = 1024}},
    {"long",
     {.recipe = TERN_RECIPE_PAPER,
      .n_embd = 192,
      .n_ff = 768,
      .seq_len = 256,
      .micro_tokens = 1024}},
    {"wide", {.n_layers = 1, .n_embd = 64, .n_ff = 4096, .micro_tokens = 1024}},
    {"teacher", {.n_embd = 64, .n_ff = 192, .micro_tokens = 1024, .kd_ratio = 1}},
    {"adapter", {.lora_rank = 64, .micro_tokens = 512}},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

typedef struct figures {
    uint64_t planned, measured;
    tern_status status;
} figures;

static void take_plan(void *user, const tern_train_info *i) {
    ((figures *)((losses *)user + 1))->planned = i->memory.host;
}

// Before any data of `base` is used it is written: by the first shape.
static tern_train_desc desc_of(const shape *s, const char *data, const char *base, losses *l) {
    tern_train_desc d = small_run(data, test_tmp(s->name), l);
    const tern_train_desc *own = &s->desc;
    bool is_adapter = own->lora_rank > 0;
    d.recipe = own->recipe;
    d.n_layers = is_adapter ? 0 : own->n_layers ? own->n_layers : 2;
    d.n_embd = own->n_embd;
    d.n_heads = is_adapter ? 0 : own->n_heads ? own->n_heads : 4;
    d.n_ff = own->n_ff;
    d.separate_head = own->separate_head;
    d.seq_len = own->seq_len ? own->seq_len : 64;
    d.batch_tokens = d.micro_tokens = own->micro_tokens;
    d.lora_rank = own->lora_rank;
    d.gradient_checkpointing = own->gradient_checkpointing;
    d.bf16_masters = own->bf16_masters;
    d.init = is_adapter ? base : NULL;
    d.teacher = own->kd_ratio > 0 ? base : NULL;
    d.n_steps = 2;
    d.valid_tokens = 64;
    d.rate = 0;
    d.on_begin = take_plan;
    return d;
}

// In a child, whose memory is its own.
static figures run_apart(const shape *s, const char *data, const char *base) {
    int ends[2];
    figures f = {0};
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        struct {
            losses l;
            figures f;
        } told = {0};
        tern_error err;
        tern_train_desc d = desc_of(s, data, base, &told.l);
        told.f.status = tern_train(&d, &err);
        if (told.f.status != TERN_OK) fprintf(stderr, "%s: %s\n", s->name, err.message);
        told.f.measured = tern_process_memory_max();
        (void)!write(ends[1], &told.f, sizeof told.f);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    CHECK(read(ends[0], &f, sizeof f) == sizeof f);
    close(ends[0]);
    close(ends[1]);
    return f;
}

// The test again, in a program of its own: earlier tests have left memory in this one. Where a
// system gives huge pages unasked, stacks and heaps would have more than they use.
#define FRESH "TERN_TEST_FRESH"
static bool run_fresh(const char *name) {
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        setenv(FRESH, "1", 1);
#if defined(PR_SET_THP_DISABLE)
        prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
#endif
        if (!getenv("TERN_TEST_FIGURES")) (void)!freopen("/dev/null", "w", stdout);
        execl("/proc/self/exe", "tern_tests", name, (char *)NULL);
        _exit(127);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

// Seen to fail: without the memory that programs share; with layers computed again whose copies
// read what the first ones made, so that nothing is saved.
TEST(train_plan_is_what_a_process_then_has) {
    char data[300], base[400];
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    test_skip("a sanitizer has memory of its own");
    return;
#endif
    if (!getenv(FRESH)) {
        CHECK_MSG(run_fresh("train_plan_is_what_a_process_then_has"), "run it alone for figures");
        return;
    }
    make_data(data, sizeof data);
    snprintf(base, sizeof base, "%s/step-00000002.gguf", test_tmp(shapes[0].name));
    uint64_t before = 0; // of the shape above
    for (int i = 0; i < N_SHAPES; i++) {
        figures f = run_apart(&shapes[i], data, base);
        double ratio = (double)f.planned / (double)f.measured;
        if (getenv("TERN_TEST_FIGURES"))
            printf("%s: planned %.1f MB, measured %.1f MB\n", shapes[i].name,
                   (double)f.planned * 1e-6, (double)f.measured * 1e-6);
        CHECK_MSG(f.status == TERN_OK && ratio > 0.9 && ratio < 1.1, "%s: %.3f", shapes[i].name,
                  ratio);
        if (shapes[i].desc.gradient_checkpointing)
            CHECK_MSG(f.planned < before / 2, "%s: %.1f MB", shapes[i].name,
                      (double)f.planned * 1e-6);
        if (shapes[i].desc.bf16_masters) // 7 MB of weights less, and 4 more for a stripe of them
            CHECK_MSG(f.planned < before, "%s: %.1f MB", shapes[i].name, (double)f.planned * 1e-6);
        before = f.planned;
    }
}

TEST(train_plan_refuses_what_cannot_fit) {
    static const struct {
        tern_train_desc own;
        const char *says;
    } all[] = {
        {{.n_layers = 8, .n_embd = 65536, .n_ff = 1 << 20}, "needs a smaller shape (preset"},
        {{.n_layers = 2, .n_embd = 32, .n_ff = 64, .batch_tokens = 1 << 28}, "micro_tokens of "},
    };
    char data[300];
    losses l;
    make_data(data, sizeof data);
    for (int i = 0; i < 2; i++) {
        tern_train_desc d = small_run(data, test_tmp("train_refused"), &l);
        tern_error err = {0};
        d.n_layers = all[i].own.n_layers;
        d.n_embd = all[i].own.n_embd;
        d.n_ff = all[i].own.n_ff;
        if (all[i].own.batch_tokens) d.batch_tokens = d.micro_tokens = all[i].own.batch_tokens;
        size_t before = tern_mem_get_stats().bytes_now[TERN_MEM_WEIGHTS];
        tern_mem_reset_max();
        CHECK(tern_train(&d, &err) == TERN_ERR_MEMORY);
        CHECK_MSG(strstr(err.message, all[i].says), "%s", err.message);
        CHECK(tern_mem_get_stats().bytes_max[TERN_MEM_WEIGHTS] < before + (1 << 20));
    }
}

// So many layers that their activations are four times the free memory of any machine, and more
// than others give back meanwhile: one sequence of them cannot be cut, but computed again. Seen to
// fail: without that advice.
TEST(train_plan_advises_gradient_checkpointing) {
    enum { TOKENS = 1 << 17, LAYER_BYTES = 2000 }; // of a token
    char data[300], path[340];
    losses l;
    tern_error err;
    tern_file *file;
    tern_tokenizer *t;
    uint64_t available = tern_memory_available();
    if (!available) {
        test_skip("the system does not say how much memory is free");
        return;
    }
    snprintf(data, sizeof data, "%s", test_tmp("long_data"));
    make_data_in(data);
    REQUIRE_OK(tern_file_open(&file, data, &err), err);
    REQUIRE_OK(tern_tokenizer_open(&t, file, &err), err);
    snprintf(path, sizeof path, "%s/train-00000.tern", data);
    write_shard(path, t, 0, TOKENS / 8);
    snprintf(path, sizeof path, "%s/valid-00000.tern", data);
    CHECK(remove(path) == 0);
    write_manifest(data);
    tern_tokenizer_free(t);
    tern_file_close(file);
    tern_train_desc d = small_run(data, test_tmp("train_long"), &l);
    d.seq_len = d.batch_tokens = d.micro_tokens = TOKENS;
    d.n_layers = (int32_t)(4 * available / TOKENS / LAYER_BYTES);
    d.n_embd = 32;
    d.n_ff = 64;
    CHECK(tern_train(&d, &err) == TERN_ERR_MEMORY);
    CHECK_MSG(strstr(err.message, "gradient_checkpointing would fit"), "%s", err.message);
}

// Rates that teach nothing, teach and ruin are all tried. Seen to fail: with the rate of the least
// loss, with a loss that is not cleared after a step, and with one rate for all steps.
TEST(training_finds_a_rate) {
    char data[300];
    tern_error err;
    losses l;
    tern_train_rates found, again;
    make_data(data, sizeof data);
    tern_train_desc d = small_run(data, NULL, &l);
    d.seed = 2;
    REQUIRE_OK(tern_train_find_rate(&d, &found, &err), err);
    CHECK_MSG(found.n > 50 && found.n <= TERN_TRAIN_RATES, "%zu rates", found.n);
    CHECK_MSG(found.rate > 1e-4 && found.rate < 5e-2, "%g", found.rate);
    size_t least = 0;
    for (size_t i = 1; i < found.n; i++) {
        CHECK(fabs(found.tried[i].rate / found.tried[i - 1].rate - pow(1e7, 1.0 / 99)) < 1e-9);
        if (found.tried[i].smoothed < found.tried[least].smoothed) least = i;
    }
    CHECK_MSG(found.rate <= found.tried[least].rate / 10 * (1 + 1e-12), "%g of %g", found.rate,
              found.tried[least].rate);
    double first = found.tried[0].loss;
    CHECK_MSG(first > 2 && first < 12 && fabs(found.tried[5].loss - first) < 0.2 * first,
              "%g, then %g: of one step each", first, found.tried[5].loss);
    d.n_threads = 1;
    REQUIRE_OK(tern_train_find_rate(&d, &again, &err), err);
    CHECK(memcmp(&found, &again, sizeof found) == 0);
    d.preferences = data;
    CHECK(tern_train_find_rate(&d, &again, &err) != TERN_OK && isnan(again.rate));
}

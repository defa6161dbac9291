// The numbers of BitNets and Llamas, bit by bit: hashes of logits, of generated ids and of what
// training makes, against tests/bits.txt. The scalar kernels and their order of additions are the
// specification; every instruction set, number of threads, batch and packing has the same bits, and
// so has every later version. `make bits` writes the file again: only for a change that means to
// change the numbers, and says so.
//
// Seen to fail: an attention's scores with their dimensions added in reverse; a norm's mean times
// 1 / n instead of divided by n; a norm's gradient with its factor multiplied in before the sum.
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "tests/support/blobs.h"
#include "tests/support/harness.h"
#include "tern.h"
#include "tests/support/tiny_model.h"
#include "tests/support/train_fixture.h"

static const char path[] = "tests/bits.txt"; // tests run in the repository's root

// ---- The file: a line each, "name hash" ---------------------------------------------------------

static bool wanted_hash(const char *name, uint64_t *hash) {
    size_t n, n_name = strlen(name);
    char *text = test_read(path, &n), *line = text;
    bool found = false;
    while (line && !found) {
        found = strncmp(line, name, n_name) == 0 && line[n_name] == ' ';
        if (found) *hash = strtoull(line + n_name, NULL, 16);
        line = strchr(line, '\n');
        if (line) line++;
    }
    free(text);
    return found;
}

// The file's hash, or with TERN_BITS_NEW (a file to append to) the one that was computed.
static uint64_t settle(const char *name, uint64_t got) {
    const char *renewed = getenv("TERN_BITS_NEW");
    uint64_t want = 0;
    if (renewed) {
        FILE *f = fopen(renewed, "a");
        CHECK(f && fprintf(f, "%s %016llx\n", name, (unsigned long long)got) > 0);
        if (f) fclose(f);
        return got;
    }
    CHECK_MSG(wanted_hash(name, &want), "%s has no line \"%s\"", path, name);
    return want;
}

static uint64_t hash_floats(const float *x, size_t n) { return tern_hash64(1, x, n * sizeof *x); }

// ---- Inference ---------------------------------------------------------------------------------

typedef struct bits_case {
    const char *name, *path; // NULL: the tiny model below is written
    tiny_model_desc tiny;
    int32_t n_prompt, n_more; // 0: 70 and 20
    bool odd_heads;           // of a width that no Q8_0 cache has
    bool large;               // F16 alone, to be quick
    bool precise;             // float activations, which quantized weights take only if asked to
    tern_head_mode head;      // of those that change the logits
} bits_case;

// Random models with a tied head say their last token again and again: all but one have their own.
static const bits_case cases[] = {
    {.name = "bitnet-i2_s", .tiny = {.seed = 31, .head_type = TERN_DTYPE_F16}},
    {.name = "bitnet-1.5-blocks",
     .tiny = {.seed = 32, .n_embd = 192, .n_ff = 320, .n_heads = 6, .separate_head = true}},
    {.name = "bitnet-masters",
     .tiny = {.seed = 33,
              .separate_head = true,
              .type = TERN_DTYPE_BF16,
              .head_type = TERN_DTYPE_BF16}},
    {.name = "bitnet-tq1_0",
     .tiny = {.seed = 34,
              .separate_head = true,
              .type = TERN_DTYPE_TQ1_0,
              .n_embd = 256,
              .n_ff = 512,
              .head_type = TERN_DTYPE_Q8_0}},
    {.name = "bitnet-tq2_0",
     .tiny = {.seed = 35,
              .separate_head = true,
              .type = TERN_DTYPE_TQ2_0,
              .n_embd = 256,
              .n_ff = 768,
              .n_heads = 2,
              .head_type = TERN_DTYPE_F16}},
    {.name = "bitnet-head-q6_k",
     .tiny = {.seed = 36, .separate_head = true, .n_embd = 256},
     .head = TERN_HEAD_Q6_K},
    {.name = "llama-f32", .tiny = {.seed = 41, .separate_head = true, .arch = "llama"}},
    {.name = "llama-f16",
     .tiny = {.seed = 42,
              .arch = "llama",
              .type = TERN_DTYPE_F16,
              .head_type = TERN_DTYPE_F16,
              .separate_head = true}},
    {.name = "llama-bf16",
     .tiny = {.seed = 43,
              .separate_head = true,
              .arch = "llama",
              .type = TERN_DTYPE_BF16,
              .n_embd = 96,
              .n_ff = 200},
     .odd_heads = true},
    {.name = "llama-q8_0",
     .precise = true,
     .tiny = {.seed = 44,
              .separate_head = true,
              .arch = "llama",
              .type = TERN_DTYPE_Q8_0,
              .head_type = TERN_DTYPE_Q8_0}},
    {.name = "llama-q4_0",
     .precise = true,
     .tiny = {.seed = 45,
              .separate_head = true,
              .arch = "llama",
              .type = TERN_DTYPE_Q4_0,
              .n_kv_heads = 4}},
    {.name = "llama-q4_k",
     .precise = true,
     .tiny = {.seed = 46,
              .separate_head = true,
              .arch = "llama",
              .type = TERN_DTYPE_Q4_K,
              .n_embd = 256,
              .n_ff = 512}},
    {.name = "llama-q6_k",
     .precise = true,
     .tiny = {.seed = 47,
              .separate_head = true,
              .arch = "llama",
              .type = TERN_DTYPE_Q6_K,
              .head_type = TERN_DTYPE_Q6_K,
              .n_embd = 256,
              .n_ff = 512}},
    {.name = "llama-int8-q4_k",
     .large = true,
     .tiny = {.seed = 46,
              .separate_head = true,
              .arch = "llama",
              .type = TERN_DTYPE_Q4_K,
              .n_embd = 256,
              .n_ff = 512}},
    {.name = "llama-int8-q6_k",
     .large = true,
     .tiny = {.seed = 47,
              .separate_head = true,
              .arch = "llama",
              .type = TERN_DTYPE_Q6_K,
              .head_type = TERN_DTYPE_Q6_K,
              .n_embd = 256,
              .n_ff = 512}},
    {.name = "llama-i2_s",
     .tiny = {.seed = 48,
              .separate_head = true,
              .arch = "llama",
              .type = TERN_DTYPE_I2_S,
              .n_kv_heads = 1}},
    {.name = "llama-head-q8_0",
     .tiny = {.seed = 49, .separate_head = true, .arch = "llama", .type = TERN_DTYPE_F16},
     .head = TERN_HEAD_Q8_0},
    {.name = "stories", .path = "models/stories.gguf", .n_prompt = 40, .n_more = 15, .large = true},
    {.name = "oracle-packed", .path = "tests/oracles/bitnet_packed", .n_prompt = 40, .n_more = 20},
    {.name = "oracle-master",
     .path = "tests/oracles/bitnet_master",
     .n_prompt = 40,
     .n_more = 20,
     .odd_heads = true},
    {.name = "oracle-llama",
     .path = "tests/oracles/llama",
     .n_prompt = 40,
     .n_more = 20,
     .odd_heads = true},
};

// The first is what `make bits` writes down; the others have to have its bits. Heads and packings
// do nothing where a model has none to choose from.
static const tern_model_desc variants[] = {
    {.cpu_features = "scalar", .n_threads = 1, .n_batch = 1},
    {.cpu_features = "scalar", .n_threads = 2, .ternary = TERN_TERNARY_1_6BIT},
    {.cpu_features = "avx2", .n_threads = 2, .n_batch = 7},
    {.cpu_features = "avx2", .ternary = TERN_TERNARY_1_6BIT, .n_threads = 1},
    {.cpu_features = "avx512", .n_threads = 3, .n_batch = 64},
    {.cpu_features = "neon", .n_threads = 2},
    {.cpu_features = "dotprod", .n_threads = 1, .n_batch = 5},
    {.cpu_features = "i8mm", .n_threads = 2},
    {.n_threads = 1, .n_batch = 33, .ternary = TERN_TERNARY_2BIT},
    {.n_threads = 2, .n_batch = 1, .head = TERN_HEAD_EXACT},
    {.n_threads = 4, .ternary = TERN_TERNARY_1_6BIT},
};
#define N_VARIANTS (sizeof variants / sizeof *variants)

static const struct {
    const char *name;
    tern_kv_type type;
} caches[] = {{"f32", TERN_KV_F32}, {"f16", TERN_KV_F16}, {"q8_0", TERN_KV_Q8_0}};

typedef struct found {
    uint64_t logits, greedy, sampled, shifted;
} found;

// Ids of a generation after the first n_prompt of `prompt`, and how likely they were if n_top > 0.
static uint64_t generated(tern_session *s, const int32_t *prompt, size_t n_prompt, int32_t n_more,
                          const tern_sampling *sampling, int32_t n_top) {
    size_t n = 0, n_rows = 0, n_each = 0;
    tern_error err = {0};
    tern_generate_params p = {.sampling = sampling,
                              .max_tokens = n_more,
                              .ignore_end = true,
                              .logprobs = n_top > 0,
                              .n_top_logprobs = n_top};
    tern_status status = tern_generate_ids(s, prompt, n_prompt, &p, NULL, &err);
    const int32_t *ids = tern_session_generated(s, &n);
    CHECK_MSG(status == TERN_OK && n == (size_t)n_more, "%zu tokens: %s", n, err.message);
    uint64_t hash = tern_hash64(2, ids, n * sizeof *ids);
    const tern_token_logprob *of = tern_session_token_logprobs(s, &n_rows, &n_each);
    CHECK(n_top == 0 || (of && n_rows == n && n_each == (size_t)n_top + 1));
    return n_top > 0 && of ? tern_hash64(hash, of, n_rows * n_each * sizeof *of) : hash;
}

static found run_model(tern_model *m, const bits_case *c, tern_kv_type kv) {
    int32_t n_prompt = c->n_prompt ? c->n_prompt : 70, n_more = c->n_more ? c->n_more : 20, ids[70];
    tern_session *s = NULL, *short_one = NULL;
    tern_model_info info;
    tern_error err = {0};
    found f = {0};
    tern_model_get_info(m, &info);
    for (int32_t i = 0; i < n_prompt; i++)
        ids[i] = (int32_t)(tern_mix64((uint64_t)i + 77) % (uint64_t)info.n_vocab);
    tern_session_desc sd = {.kv_type = kv, .n_context = n_prompt + n_more};
    tern_session_desc narrow = {.kv_type = kv, .n_context = 48, .shift_context = true, .n_keep = 3};
    size_t n_logits = (size_t)n_prompt * (size_t)info.n_vocab;
    float *logits = malloc(n_logits * sizeof *logits);
    tern_status status = tern_session_open(&s, m, &sd, &err);
    if (status == TERN_OK) status = tern_session_open(&short_one, m, &narrow, &err);
    if (status == TERN_OK) // with a break that no batch has
        status = tern_session_logits(s, ids, 19, logits, &err);
    if (status == TERN_OK)
        status = tern_session_logits(s, ids + 19, (size_t)n_prompt - 19,
                                     logits + 19 * (size_t)info.n_vocab, &err);
    CHECK_MSG(logits && status == TERN_OK, "%s: %s", c->name, err.message);
    if (logits && status == TERN_OK) {
        tern_sampling greedy = {0}, random = {.temperature = 6, .top_k = 40, .seed = 5};
        f.logits = hash_floats(logits, n_logits);
        tern_session_reset(s);
        f.greedy = generated(s, ids, (size_t)n_prompt, n_more, &greedy, 0);
        f.sampled = generated(s, ids, 30, n_more, &random, 0);
        f.shifted = generated(short_one, ids, 35, n_more, &greedy, 3);
    }
    tern_session_close(s);
    tern_session_close(short_one);
    free(logits);
    return f;
}

static found settle_all(const char *name, found f) {
    char line[96];
    snprintf(line, sizeof line, "%s-logits", name);
    f.logits = settle(line, f.logits);
    snprintf(line, sizeof line, "%s-greedy", name);
    f.greedy = settle(line, f.greedy);
    snprintf(line, sizeof line, "%s-sampled", name);
    f.sampled = settle(line, f.sampled);
    snprintf(line, sizeof line, "%s-shifted", name);
    f.shifted = settle(line, f.shifted);
    return f;
}

static void compare(const char *name, size_t variant, found got, found want) {
    static const char format[] = "%s: other bits of the %s with variant %zu";
    CHECK_MSG(got.logits == want.logits, format, name, "logits", variant);
    CHECK_MSG(got.greedy == want.greedy, format, name, "greedy text", variant);
    CHECK_MSG(got.sampled == want.sampled, format, name, "sampled text", variant);
    CHECK_MSG(got.shifted == want.shifted, format, name, "text over a context's end", variant);
}

static void check_case(const bits_case *c) {
    found want[3] = {{0}};
    tern_error err = {0};
    char file[512] = "";
    if (!c->path) {
        snprintf(file, sizeof file, "%s", test_tmp("bits.gguf"));
        REQUIRE_OK(tiny_model_write(file, &c->tiny, &err), err);
    }
    for (size_t v = 0; v < N_VARIANTS; v++) {
        tern_model *m;
        tern_model_desc d = variants[v];
        d.precise = c->precise;
        if (c->head) d.head = c->head;
        tern_status status = tern_model_open(&m, c->path ? c->path : file, &d, &err);
        if (status == TERN_ERR_ARGUMENT && d.cpu_features) continue; // another machine's
        REQUIRE_OK(status, err);
        tern_model_info info;
        tern_model_get_info(m, &info);
        bool is_packed = d.ternary == TERN_TERNARY_1_6BIT;
        bool repeats = is_packed && strcmp(info.ternary_layout, "none") == 0;
        // In the short run the scalar kernels take every cache, each other variant one of them.
        size_t only = is_packed ? 0 : c->large || c->odd_heads ? 1 : v % 3;
        for (size_t k = 0; !repeats && k < sizeof caches / sizeof *caches; k++) {
            char name[64];
            if (caches[k].type == TERN_KV_Q8_0 && c->odd_heads) continue;
            if (caches[k].type != TERN_KV_F16 && c->large) continue;
            if (k > 0 && is_packed) continue; // weights are not the cache's
            if (v > 0 && k != only && !test_is_long()) continue;
            snprintf(name, sizeof name, "%s-%s", c->name, caches[k].name);
            found got = run_model(m, c, caches[k].type);
            if (v == 0) want[k] = settle_all(name, got);
            compare(name, v, got, want[k]);
        }
        tern_model_close(m);
    }
}

static void check_cases(const char *prefix) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strncmp(cases[i].name, prefix, strlen(prefix)) == 0) check_case(&cases[i]);
}

TEST(bits_of_bitnets) { check_cases("bitnet"); }
TEST(bits_of_llamas) { check_cases("llama"); }
TEST(bits_of_stories) { check_cases("stories"); }
TEST(bits_of_oracles) { check_cases("oracle"); }

// ---- Training ----------------------------------------------------------------------------------

typedef struct loss_bits {
    uint64_t hash;
    int n;
} loss_bits;

static bool hash_losses(void *user, const tern_train_event *e) {
    loss_bits *l = user;
    const double both[2] = {isnan(e->loss) ? 0 : e->loss, isnan(e->valid_loss) ? 0 : e->valid_loss};
    l->hash = tern_hash64(l->hash, both, sizeof both);
    l->n++;
    return true;
}

// All that a checkpoint keeps: weights and moments.
static uint64_t hash_tensors(const char *folder, int step, uint64_t hash) {
    char name[700];
    tern_file *f;
    tern_error err = {0};
    snprintf(name, sizeof name, "%s/step-%08d.gguf", folder, step);
    tern_status status = tern_file_open(&f, name, &err);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    if (status != TERN_OK) return 0;
    CHECK(f->n_tensors > 10);
    for (size_t i = 0; i < f->n_tensors; i++)
        hash = tern_hash64(hash, test_bytes(&f->tensors[i].data), f->tensors[i].bytes);
    tern_file_close(f);
    return hash;
}

typedef struct training {
    const char *name;
    tern_recipe recipe;
    bool lora, separate_head;
} training;

static const training trainings[] = {
    {.name = "train-bitnet", .recipe = TERN_RECIPE_BITNET},
    {.name = "train-paper", .recipe = TERN_RECIPE_PAPER, .separate_head = true},
    {.name = "train-llama", .recipe = TERN_RECIPE_LLAMA},
    {.name = "train-lora", .recipe = TERN_RECIPE_BITNET, .lora = true},
};

// Losses and weights of 12 steps; an adapter's base is the model that the first training made.
static uint64_t run_training(const training *t, const char *data, const char *base, const char *out,
                             const char *features, int n_threads) {
    losses unused;
    loss_bits l = {.hash = 3};
    tern_error err = {0};
    tern_train_desc d = small_run(data, out, &unused);
    d.recipe = t->recipe, d.separate_head = t->separate_head;
    d.n_steps = 12, d.log_every = 1, d.valid_every = 6, d.checkpoint_every = 12;
    d.cpu_features = features, d.n_threads = n_threads, d.seed = 9;
    d.on_event = hash_losses, d.user = &l;
    if (t->lora) {
        d.init = base, d.lora_rank = 4;
        d.n_layers = d.n_embd = d.n_heads = d.n_ff = 0;
    }
    tern_status status = tern_train(&d, &err);
    CHECK_MSG(status == TERN_OK && l.n >= 12, "%s: %d events, %s", t->name, l.n, err.message);
    return status == TERN_OK ? hash_tensors(out, 12, l.hash) : 0;
}

TEST(bits_of_training) {
    static const char *const features[] = {"scalar", "avx2", "avx512", "neon", NULL};
    char data[300], out[300], base[400] = "";
    make_data(data, sizeof data);
    for (size_t i = 0; i < sizeof trainings / sizeof *trainings; i++) {
        uint64_t want = 0;
        for (int k = 0; k < 5; k++) {
            tern_model *m;
            const tern_model_desc d = {.cpu_features = features[k]};
            if (tern_model_open(&m, "models/stories.gguf", &d, NULL) != TERN_OK)
                continue; // another machine's
            tern_model_close(m);
            snprintf(out, sizeof out, "%s%zu-%d", test_tmp("bits_train"), i, k);
            uint64_t got = run_training(&trainings[i], data, base, out, features[k], k % 3 + 1);
            if (k == 0) want = settle(trainings[i].name, got);
            CHECK_MSG(got == want, "%s: other bits with %s", trainings[i].name,
                      features[k] ? features[k] : "the machine's own kernels");
            if (i == 0) snprintf(base, sizeof base, "%s/step-%08d.gguf", out, 12);
        }
    }
}

// Whole models against logits, hidden states and greedy text that other programs computed:
// tests/oracles (tests/reference/oracles.py, in float64), and with TERN_TEST_DATA transformers'
// own.
#include <stdlib.h>
#include <string.h>
#include "base/os/os_file.h"
#include "tests/support/blobs.h"
#include "tests/support/closeness.h"
#include "tests/library/webgpu/gpu_fixture.h"
#include "tests/support/harness.h"
#include "tests/support/oracle_folders.h"
#include "kernels/single_test.h"
#include "runtime/runtime.h"
#include "tern_tools.h"

#define OWN "tests/oracles/" // tests run in the repository's root

// float32 with its sums in three other orders is at most 6.1e-7 (own) and 8.1e-7 (transformers')
// from these files. Nothing in them is near an edge between two integers.
static const close_bounds determined = {.n_exact = SIZE_MAX, .exact = 2e-6};
// Token 12 of this folder has five activations that lie exactly halfway between two integers, so
// that the last bit of a float decides each. The 32 ways to round them give logits that are up to
// 0.026 from each other (self_difference.py --ties), of which one is the file's; all choose the
// same tokens.
static const close_bounds with_ties = {
    .n_exact = 12, .exact = 2e-6, .most = 0.04, .median = 0.04, .p90 = 0.04};

// ---- Hidden states -----------------------------------------------------------------------------

typedef struct watched {
    const tern_model *m;
    const blob *golden;
    const char *name;
    int n_seen;
} watched;

// A layer's output is its sum with its last product; before the first layer, the table's rows.
static void compare_hidden(void *ctx, tern_vid v, const float *rows, int32_t n_rows) {
    watched *w = ctx;
    const tern_graph *g = &w->m->graphs[0].fused;
    const tern_node *n = g->values[v].producer >= 0 ? &g->nodes[g->values[v].producer] : NULL;
    int i = n && n->op == TERN_OP_EMBED ? 0 : n && n->op == TERN_OP_LINEAR_ADD ? n->layer + 1 : -1;
    char name[32];
    size_t n_values, n_cols = (size_t)g->values[v].cols;
    if (i < 0 || (i > 0 && !strstr(g->values[n->in[1]].name, "ffn_down"))) return;
    snprintf(name, sizeof name, "hidden.%d", i);
    const float *want = oracle_tensor(w->golden, name, &n_values);
    if (!want || n_values != (size_t)n_rows * n_cols) return;
    closeness c;
    bool close = close_logits(rows, want, (size_t)n_rows, n_cols, &determined, &c);
    // Values are not choices: which of them is the greatest says nothing.
    CHECK_MSG(close || strstr(c.why, "choice"), "%s: %s: %s", w->name, name, c.why);
    w->n_seen++;
}

static void check_hidden(const char *name, const tern_model *m, const blob *golden,
                         const int32_t *ids, size_t n_ids) {
    tern_error err = {0};
    const tern_backend *b = m->now->backend;
    tern_single single;
    const tern_cache_desc desc = {.kv_type = TERN_KV_F32, .n_context = 64};
    watched w = {m, golden, name, 0};
    REQUIRE_OK(
        tern_single_open(&single, b, m->now->graphs[0].plan, &m->graphs[0].fused, &desc, &err),
        err);
    float *logits = malloc(n_ids * (size_t)m->info.n_vocab * sizeof *logits);
    tern_batch batch = {.ids = ids, .n_tokens = (int32_t)n_ids, .n_outputs = (int32_t)n_ids};
    tern_batch_bind(&batch, tern_graph_scores(&m->graphs[0].fused), logits);
    CHECK(tern_single_trace(&single, &batch, 0, compare_hidden, &w, &err) == TERN_OK);
    CHECK_MSG(w.n_seen == m->info.n_layers + 1, "%s: %d hidden states", name, w.n_seen);
    free(logits);
    tern_single_close(&single);
}

// ---- Whole models ------------------------------------------------------------------------------

static void check_text(const char *name, tern_session *s, const int32_t *greedy, size_t n_prompt,
                       size_t n_greedy) {
    tern_error err = {0};
    size_t n = 0;
    tern_sampling sampling = {0};
    tern_generate_params params = {
        .sampling = &sampling, .max_tokens = (int)(n_greedy - n_prompt), .ignore_end = true};
    for (int round = 0; round < 2; round++) { // the second time with nothing in the cache
        tern_session_reset(s);
        REQUIRE_OK(tern_generate_ids(s, greedy, n_prompt, &params, NULL, &err), err);
        const int32_t *ids = tern_session_generated(s, &n);
        CHECK_MSG(n == n_greedy - n_prompt && memcmp(ids, greedy + n_prompt, n * sizeof *ids) == 0,
                  "%s: another greedy text", name);
    }
}

// A model, which it closes, against the golden file of the folder `oracle`.
static void check_opened(const char *oracle, tern_model *model, const close_bounds *bounds,
                         bool hidden) {
    tern_error err = {0};
    tern_session *session;
    closeness c;
    size_t n_ids, n_logits, n_greedy;
    blob golden = oracle_golden(oracle);
    const int32_t *ids = oracle_tensor(&golden, "input_ids", &n_ids);
    const float *want = oracle_tensor(&golden, "logits", &n_logits);
    const int32_t *greedy = oracle_tensor(&golden, "greedy_ids", &n_greedy);
    CHECK_MSG(ids && want && greedy && n_greedy > n_ids, "%s", oracle);
    REQUIRE(ids && want && greedy && n_greedy > n_ids);
    REQUIRE(n_logits == n_ids * (size_t)model->info.n_vocab);
    tern_session_desc sd = {.kv_type = TERN_KV_F32};
    REQUIRE_OK(tern_session_open(&session, model, &sd, &err), err);
    float *got = malloc(n_logits * sizeof *got);
    REQUIRE_OK(tern_session_logits(session, ids, n_ids, got, &err), err);
    bool close = close_logits(got, want, n_ids, n_logits / n_ids, bounds, &c);
    CHECK_MSG(close, "%s: logits of %s: %s", oracle, model->path, c.why);
    if (getenv("TERN_TEST_VERBOSE"))
        printf("%s: at most %.1e, the first flip in row %zu of %zu\n", oracle, c.most, c.first_flip,
               n_ids);
    check_text(oracle, session, greedy, n_ids, n_greedy);
    if (hidden) check_hidden(oracle, model, &golden, ids, n_ids);
    free(got);
    free(golden.bytes);
    tern_session_close(session);
    tern_model_close(model);
}

static void check_model(const char *oracle, const char *model_path, const tern_model_desc *desc,
                        const close_bounds *bounds, bool hidden) {
    tern_error err = {0};
    tern_model *model;
    REQUIRE_OK(tern_model_open(&model, model_path, desc, &err), err);
    check_opened(oracle, model, bounds, hidden);
}

static const char *const own[] = {OWN "bitnet_packed", OWN "bitnet_master", OWN "llama"};
#define N_OWN (sizeof own / sizeof *own)

TEST(oracle_own_models_have_the_references_numbers) {
    for (size_t i = 0; i < N_OWN; i++) check_model(own[i], own[i], NULL, &determined, true);
}

// On a GPU too: nothing in these models can round another way. In the short run only the BitNet of
// two layers, as a prompt; else all, and token by token.
TEST(webgpu_own_oracles_have_the_references_numbers) {
    for (size_t i = test_is_long() ? 0 : 1; i < (test_is_long() ? N_OWN : 2); i++)
        for (int n_batch = test_is_long() ? 1 : 64; n_batch <= 64; n_batch += 63) {
            tern_model *m = gpu_open(own[i], n_batch); // skips the test where there is no GPU
            if (!m) return;
            check_opened(own[i], m, &determined, n_batch > 1);
        }
}

static const tern_model_desc variants[] = {
    {.cpu_features = "scalar", .ternary = TERN_TERNARY_1_6BIT},
    {.n_threads = 1},
    {.ternary = TERN_TERNARY_1_6BIT, .n_threads = 3},
    {.n_batch = 7},
    {.n_batch = 1, .head = TERN_HEAD_EXACT},
};

TEST(oracle_own_models_with_every_packing_and_kernel) {
    for (size_t i = 0; i < N_OWN; i++)
        for (size_t k = 0; k < sizeof variants / sizeof *variants; k++)
            check_model(own[i], own[i], &variants[k], &determined, false);
}

// Where activations of int8 would hide what a test looks at.
static const tern_model_desc float_rows = {.precise = true};

// The reference's numbers still hold after a conversion to `type`: ternary weights to any type that
// holds them.
static void check_conversion(const char *in, const char *out_name, tern_type type,
                             const close_bounds *bounds) {
    tern_error err = {0};
    const char *out = test_tmp(out_name);
    tern_type head = type == TERN_TYPE_AUTO ? TERN_TYPE_AUTO : TERN_TYPE_BF16;
    tern_convert_desc d = {.type = type, .head_type = head};
    REQUIRE_OK(tern_convert(in, out, &d, &err), err);
    check_model(in, out, &float_rows, bounds, false);
}

TEST(oracle_own_models_survive_conversion) {
    static const struct {
        const char *model, *name;
        tern_type type;
    } outs[] = {
        {OWN "bitnet_packed", "packed.i2_s.gguf", TERN_TYPE_I2_S},
        {OWN "bitnet_packed", "packed.tq1_0.gguf", TERN_TYPE_TQ1_0},
        {OWN "bitnet_packed", "packed.tq2_0.gguf", TERN_TYPE_TQ2_0},
        {OWN "bitnet_packed", "packed.f32.gguf", TERN_TYPE_F32},
        {OWN "bitnet_packed", "packed_folder", TERN_TYPE_AUTO},
        {OWN "bitnet_master", "master_packed", TERN_TYPE_AUTO},
        {OWN "bitnet_master", "master_floats", TERN_TYPE_F32},
        {OWN "llama", "llama.f32.gguf", TERN_TYPE_F32},
        {OWN "llama", "llama.bf16.gguf", TERN_TYPE_BF16},
    };
    for (size_t i = 0; i < sizeof outs / sizeof *outs; i++)
        check_conversion(outs[i].model, outs[i].name, outs[i].type, &determined);
}

// ---- transformers' own files -------------------------------------------------------------------

// A copy: test_data's result does not last.
static bool data_folder(const char *family, char path[600]) {
    char name[128];
    snprintf(name, sizeof name, "oracle/%s", family);
    const char *found = test_data(name);
    if (found) snprintf(path, 600, "%s", found);
    return found != NULL;
}

static void check_family(const char *family, const tern_model_desc *desc,
                         const close_bounds *bounds) {
    char path[600];
    if (data_folder(family, path)) check_model(path, path, desc, bounds, false);
}

TEST(oracle_bitnet_bf16_master) { check_family("bitnet_bf16_master", NULL, &determined); }
TEST(oracle_bitnet_packed) { check_family("bitnet_packed", NULL, &with_ties); }
TEST(oracle_llama) { check_family("llama", NULL, &determined); }

TEST(oracle_is_the_same_with_every_packing_and_kernel) {
    for (size_t k = 0; k < sizeof variants / sizeof *variants; k++) {
        check_family("bitnet_bf16_master", &variants[k], &determined);
        check_family("bitnet_packed", &variants[k], &with_ties);
    }
}

TEST(oracle_survives_packing) {
    static const struct {
        const char *name;
        tern_type type;
    } outs[] = {
        {"packed", TERN_TYPE_AUTO}, {"i2_s.gguf", TERN_TYPE_I2_S}, {"floats", TERN_TYPE_F32}};
    char path[600];
    if (!data_folder("bitnet_bf16_master", path)) return;
    for (size_t i = 0; i < sizeof outs / sizeof *outs; i++)
        check_conversion(path, outs[i].name, outs[i].type, &determined);
}

// ---- Families ----------------------------------------------------------------------------------

static const char *const decoders[] = {
    OWN "qwen3",      OWN "qwen35",        OWN "qwen35_grouped", OWN "lfm2",
    OWN "gemma3",     OWN "gemma3_linear", OWN "qwen2",          OWN "llama_scaled",
    OWN "ministral3", OWN "smollm3",       OWN "granite",        OWN "minicpm",
    OWN "exaone4",    OWN "hunyuan",       OWN "olmo2",          OWN "phi3",
    OWN "qwen3moe",   OWN "lfm2moe",       OWN "granitehybrid",  OWN "falcon_h1",
    OWN "gemma4",     OWN "llama_biased",  OWN "ernie4_5",       OWN "cohere2"};

static const tern_model_desc ways[] = {
    {.cpu_features = "scalar", .n_threads = 1}, {.n_threads = 2}, {.n_threads = 1, .n_batch = 7}};

// Prompts of 72 tokens cross windows, histories of convolutions, and a chunk of 64. Seen to fail:
// a window one wider; a Llama's output biases left out; value heads of a GGUF in the order of a
// folder; the state of another head of Falcon-H1 after a cut.
TEST(oracle_families_have_the_references_numbers) {
    for (size_t i = 0; i < sizeof decoders / sizeof *decoders; i++) {
        char gguf[64];
        snprintf(gguf, sizeof gguf, "%s/model.gguf", decoders[i]);
        for (size_t k = 0; k < sizeof ways / sizeof *ways; k++)
            check_model(decoders[i], decoders[i], &ways[k], &oracle_family_bounds, false);
        check_model(decoders[i], gguf, &ways[1], &oracle_family_bounds, false);
    }
}

// Transformers' own: float32 there is up to 8.0e-6 from float64 (qwen3_5_tied_mtp).
static const close_bounds transformers_bounds = {.n_exact = SIZE_MAX, .exact = 1.2e-5};
static const char *const transformers[] = {ORACLES_OF_TRANSFORMERS};
#define N_TRANSFORMERS (sizeof transformers / sizeof *transformers)

// Seen to fail: OLMo 2's feed-forward on the rows before attention.
TEST(oracle_families_of_transformers) {
    for (size_t i = 0; i < N_TRANSFORMERS; i++) {
        char path[600];
        if (!data_folder(transformers[i], path)) return;
        check_model(path, path, NULL, &transformers_bounds, false);
    }
}

// The same from the GGUF that conversion writes. Seen to fail: Ministral 3's queries not growing in
// GGUF; another power in Hunyuan's base; SmolLM3's queries and keys not in GGUF's order; ERNIE's in
// the order that Llama's have there.
TEST(oracle_families_of_transformers_as_gguf) {
    for (size_t i = 0; i < N_TRANSFORMERS; i++) {
        char path[600], copy[600], name[80];
        if (!data_folder(transformers[i], path)) return;
        snprintf(copy, sizeof copy, "%s_%s", test_tmp("transformers"), transformers[i]);
        snprintf(name, sizeof name, "transformers_%s.gguf", transformers[i]);
        check_conversion(oracle_for_gguf(path, copy), name, TERN_TYPE_AUTO, &transformers_bounds);
    }
}

// Quantized folders of other programs: see docs/formats.md for which each is.
static const char *const quantized[] = {
    "mlx_q4",    "mlx_q8_f16_llama", "mlx_mixed",         "mlx_q2_ternary", "mlx_mxfp4",
    "mlx_nvfp4", "gptq_v1_sym",      "gptq_v1_asym_desc", "gptq_v2_8bit",   "gptq_3bit",
    "awq_gemm",  "awq_gemv",         "ct_w4_sym",         "ct_w4_asym_act", "ct_w8_channel"};
#define N_QUANTIZED (sizeof quantized / sizeof *quantized)

// With float activations: those of int8 for ternary groups have their own bounds below. Seen to
// fail: groups of columns by their place instead of g_idx, AWQ's eight rows in their own order.
TEST(oracle_quantized_folders_have_the_references_numbers) {
    for (size_t i = 0; i < N_QUANTIZED; i++) {
        char path[600];
        if (!data_folder(quantized[i], path)) return;
        check_model(path, path, &float_rows, &transformers_bounds, false);
    }
}

// Logits alone, which int8 activations leave near: another choice now and then where two are close.
static void check_rounded(const char *name) {
    static const close_bounds bounds = {
        .median = 0.02, .p90 = 0.025, .most = 0.03, .n_choices = 2, .tie = 0.1};
    char path[600];
    if (!data_folder(name, path)) return;
    blob golden = oracle_golden(path);
    size_t n_ids, n_logits;
    const int32_t *ids = oracle_tensor(&golden, "input_ids", &n_ids);
    const float *want = oracle_tensor(&golden, "logits", &n_logits);
    tern_error err = {0};
    tern_model *model;
    tern_session *session;
    closeness c;
    REQUIRE(ids && want);
    REQUIRE_OK(tern_model_open(&model, path, NULL, &err), err);
    REQUIRE_OK(tern_session_open(&session, model, NULL, &err), err);
    float *got = malloc(n_logits * sizeof *got);
    REQUIRE_OK(tern_session_logits(session, ids, n_ids, got, &err), err);
    CHECK_MSG(close_logits(got, want, n_ids, n_logits / n_ids, &bounds, &c), "%s: %s", name, c.why);
    free(got);
    free(golden.bytes);
    tern_session_close(session);
    tern_model_close(model);
}

// At most 1.9e-2 is measured. Seen to fail: zeros of a group taken for another group's, minima with
// the other sign.
TEST(oracle_quantized_folders_run_as_groups) {
    for (size_t i = 0; i < N_QUANTIZED; i++) check_rounded(quantized[i]);
}

// As GGUF: codes in blocks that hold them are the same numbers, others are rounded to F16 (4.7e-4
// is measured). Seen to fail: Q4_0's codes in the order of columns; any offset taken for a middle.
TEST(oracle_quantized_folders_as_gguf) {
    static const close_bounds rounded = {.n_exact = SIZE_MAX, .exact = 9e-4};
    static const char *const exact[] = {"mlx_q4", "gptq_v1_sym", "ct_w4_sym", "ct_w8_channel",
                                        "mlx_q2_ternary"};
    static const tern_model_desc desc = {.precise = true};
    for (size_t i = 0; i < N_QUANTIZED; i++) {
        char path[600], out[300];
        bool is_exact = false;
        tern_error err = {0};
        if (!data_folder(quantized[i], path)) return;
        for (size_t k = 0; k < sizeof exact / sizeof *exact; k++)
            is_exact |= !strcmp(quantized[i], exact[k]);
        snprintf(out, sizeof out, "%s", test_tmp("quantized.gguf"));
        REQUIRE_OK(tern_convert(path, out, NULL, &err), err);
        check_model(path, out, &desc, is_exact ? &transformers_bounds : &rounded, false);
    }
}

// A tensor of a folder as MLX has it: norms ready, the taps of convolutions before their 1.
static tern_status put_as_mlx(tern_st_writer *w, const tern_arch *arch, bool declare,
                              const tern_tensor *t, tern_error *err) {
    char gguf[128];
    const tern_tensor_row *row =
        tern_arch_name_to_gguf(arch, t->name, gguf, sizeof gguf) ? tern_arch_row(arch, gguf) : NULL;
    bool norm = row && row->change == TERN_CHANGE_PLUS_ONE;
    bool conv = row && row->change == TERN_CHANGE_SQUEEZE;
    uint64_t shape[3] = {t->ne[2], t->ne[1], t->ne[0]}, n = t->ne[0];
    if (conv) shape[1] = t->ne[0], shape[2] = 1;
    if (declare)
        return tern_st_declare(w, t->name, norm ? TERN_DTYPE_F32 : t->type, t->n_dims,
                               shape + 3 - t->n_dims);
    if (!norm) return tern_st_write(w, test_bytes(&t->data), t->bytes, err);
    float *x = malloc(n * sizeof *x);
    tern_status status = tern_tensor_decode(t, x, err);
    for (uint64_t i = 0; i < n; i++) x[i] += 1;
    if (status == TERN_OK) status = tern_st_write(w, x, n * sizeof *x, err);
    free(x);
    return status;
}

static bool write_as_mlx(const char *from, const char *to, tern_error *err) {
    tern_file *f = NULL;
    tern_st_writer *w = NULL;
    const tern_arch *arch;
    tern_config c;
    bool ok = tern_file_open(&f, from, err) == TERN_OK &&
              tern_arch_read(f, &arch, &c, err) == TERN_OK &&
              tern_st_writer_open(&w, to, 0, err) == TERN_OK;
    for (int pass = 0; ok && pass < 2; pass++)
        for (size_t i = 0; ok && i < f->n_tensors; i++)
            ok = put_as_mlx(w, arch, pass == 0, &f->tensors[i], err) == TERN_OK;
    ok = ok && tern_st_copy_file(w, from, "config.json", err) == TERN_OK &&
         tern_st_writer_finish(w, err) == TERN_OK;
    tern_st_writer_free(w);
    tern_file_close(f);
    return ok;
}

// MLX turns convolutions and adds 1 to norms that are stored around 0; conversion makes the usual
// folder and GGUF of it. Seen to fail: 1 added again, when a model is opened and when it is
// converted; 1 not taken away for a folder.
TEST(oracle_folders_as_mlx_has_them) {
    static const char *const names[] = {OWN "qwen35", OWN "qwen35_grouped", OWN "lfm2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char folder[300], out[2][300];
        tern_error err = {0};
        snprintf(folder, sizeof folder, "%s", test_tmp("as_mlx"));
        snprintf(out[0], sizeof out[0], "%s", test_tmp("as_mlx.gguf"));
        snprintf(out[1], sizeof out[1], "%s", test_tmp("as_mlx_not"));
        bool ok = write_as_mlx(names[i], folder, &err);
        CHECK_MSG(ok, "%s", err.message);
        if (!ok) return;
        check_model(names[i], folder, NULL, &oracle_family_bounds, false);
        for (int k = 0; k < 2; k++) {
            REQUIRE_OK(tern_convert(folder, out[k], NULL, &err), err);
            check_model(names[i], out[k], NULL, &oracle_family_bounds, false);
        }
    }
}

// Logits of n_ids tokens, the first piece of `first` and the others of `each`.
static void logits_in_pieces(tern_model *model, const int32_t *ids, size_t n_ids, size_t first,
                             size_t each, float *out) {
    const tern_session_desc desc = {.kv_type = TERN_KV_F32};
    tern_error err = {0};
    tern_session *s;
    REQUIRE_OK(tern_session_open(&s, model, &desc, &err), err);
    for (size_t at = 0, n; at < n_ids; at += n) {
        n = at == 0 ? first : each < n_ids - at ? each : n_ids - at;
        float *to = out + at * (size_t)model->info.n_vocab;
        CHECK(tern_session_logits(s, ids + at, n, to, &err) == TERN_OK);
    }
    tern_session_close(s);
}

// A text's logits are the same to the bit however it is cut: into 17 and the rest, after the first
// token, and token by token. Of texts that are longer than some factors are for (Phi-3's), those
// from where they are longer on. Seen to fail: RoPE's positions counted from each batch's
// beginning; texts that are not told how long they will be.
static void check_pieces(const char *oracle) {
    static const size_t cuts[][2] = {{17, SIZE_MAX}, {1, SIZE_MAX}, {1, 1}};
    size_t n_all;
    tern_error err = {0};
    tern_model *model;
    blob golden = oracle_golden(oracle);
    const int32_t *ids = oracle_tensor(&golden, "greedy_ids", &n_all);
    REQUIRE(ids);
    REQUIRE_OK(tern_model_open(&model, oracle, NULL, &err), err);
    size_t n_vocab = (size_t)model->info.n_vocab,
           n_short = (size_t)tern_model_short_rope_limit(model);
    float *want = malloc(n_all * n_vocab * sizeof *want), *got = malloc(n_all * n_vocab * 4);
    for (size_t i = 0; i < (n_all > n_short ? 6 : 3); i++) {
        size_t n = i >= 3 || n_all < n_short ? n_all : n_short, from = n > n_short ? n_short : 0;
        logits_in_pieces(model, ids, n, n, n, want);
        logits_in_pieces(model, ids, n, cuts[i % 3][0], cuts[i % 3][1], got);
        bool same = !memcmp(want + from * n_vocab, got + from * n_vocab,
                            (n - from) * n_vocab * sizeof *want);
        CHECK_MSG(same, "%s, cut %zu: other logits", oracle, i);
    }
    free(want);
    free(got);
    free(golden.bytes);
    tern_model_close(model);
}

static const char *const bitnets[] = {"bitnet_packed", "bitnet_bf16_master"};
#define N_BITNETS (sizeof bitnets / sizeof *bitnets)

TEST(oracle_families_of_transformers_in_pieces) {
    for (size_t i = 0; i < N_TRANSFORMERS; i++) {
        char path[600];
        if (data_folder(transformers[i], path)) check_pieces(path);
    }
}

// Where activations are rounded, too: a row's scale is its own. Seen to fail, for BitNets and for
// groups: scales that are one percent greater in batches of more than 20 rows.
TEST(oracle_rounded_models_in_pieces) {
    for (size_t i = 0; i < N_BITNETS + N_QUANTIZED; i++) {
        char path[600];
        if (data_folder(i < N_BITNETS ? bitnets[i] : quantized[i - N_BITNETS], path))
            check_pieces(path);
    }
}

// The logits of a folder's tokens, whole and cut, are near those of the reference.
static void check_cuts(const char *oracle, tern_model *model, const char *ids_name,
                       const char *logits_name, const close_bounds *bounds) {
    static const size_t cuts[][2] = {{0, 0}, {17, SIZE_MAX}, {1, SIZE_MAX}, {1, 1}};
    size_t n_ids, n_logits, n_vocab = (size_t)model->info.n_vocab;
    closeness c;
    blob golden = oracle_golden(oracle);
    const int32_t *ids = oracle_tensor(&golden, ids_name, &n_ids);
    const float *want = oracle_tensor(&golden, logits_name, &n_logits);
    REQUIRE(ids && want && n_ids > 17 && n_logits == n_ids * n_vocab);
    float *got = malloc(n_logits * sizeof *got);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        logits_in_pieces(model, ids, n_ids, i ? cuts[i][0] : n_ids, cuts[i][1], got);
        bool close = close_logits(got, want, n_ids, n_vocab, bounds, &c);
        CHECK_MSG(close, "%s, cut %zu: %s", oracle, i, c.why);
    }
    free(got);
    free(golden.bytes);
}

// What sees images is a language model besides: of text alone it has these scores. Seen to fail
// with norms of keys without their 1.
TEST(oracle_text_of_a_model_that_sees) {
    char path[600];
    tern_error err = {0};
    tern_model *model;
    if (!data_folder("qwen3_5_vl", path)) return;
    REQUIRE_OK(tern_model_open(&model, path, NULL, &err), err);
    check_cuts(path, model, "text_ids", "text_logits", &transformers_bounds);
    tern_model_close(model);
}

static bool is_in(const char *name, const char *const *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, list[i]) == 0) return true;
    return false;
}

// Every folder of the data's oracles is in one of the lists above, or here. Seen to fail with a
// name less here.
TEST(oracle_no_folder_is_left_out) {
    static const char *const others[] = {
        "embeddinggemma", "embeddinggemma_st", "qwen3_embedding", // families_test.c, embed_test.c
        "qwen3_5_vl",                                             // above: its text
        "smolvlm",                                                // see_squares_test.c
        "prism_blocks",                                           // gguf_oracle_test.c
        // No language models on text, or with more than text before it: sound, images, speech.
        "moonshine", "moonshine_streaming", "nanocodec_real", "nanocodec_tiny",
        "nanocodec_tiny_odd", "kani_tts2", "image_proc", "qwen3_5_video",
        // Families that are not read yet.
        "gemma2", "gemma4_audio", "gemma4_moe", "gemma4_vision", "gpt_oss", "gpt_oss_mxfp4",
        "granite_moe", "granite_moe_hybrid", "nemotron_h", "nemotron_h_moe", "olmo3", "olmo3_yarn",
        "qwen2_5_vl", "qwen3_5_moe", "qwen3_asr", "voxtral"};
    const char *root = test_data("oracle");
    tern_names names = {0};
    tern_error err = {0};
    size_t n_seen = 0;
    if (!root) return;
    REQUIRE_OK(tern_folder_list(&names, root, "", "", &err), err);
    for (size_t i = 0; i < names.n; i++) {
        const char *name = names.list[i];
        bool known = is_in(name, transformers, N_TRANSFORMERS) || is_in(name, bitnets, N_BITNETS) ||
                     is_in(name, quantized, N_QUANTIZED) ||
                     is_in(name, others, sizeof others / sizeof *others);
        CHECK_MSG(known, "oracle/%s is compared with nothing", name);
        n_seen += known;
    }
    CHECK_MSG(n_seen >= N_TRANSFORMERS + N_BITNETS + N_QUANTIZED, "%zu folders", n_seen);
    tern_names_free(&names);
}

// Rows of prompts and of steps are added up in other orders there: pieces are near the reference,
// not the same to the bit.
static bool check_on_gpu(const char *folder, int n_batch, const close_bounds *bounds) {
    tern_model *m = gpu_open(folder, n_batch); // skips the test where there is no GPU
    if (!m) return false;
    check_cuts(folder, m, "input_ids", "logits", bounds);
    check_opened(folder, m, bounds, false);
    return true;
}

// On a GPU: prompts whole, in several batches, cut at odd places and token by token, then a greedy
// text. The short run has the families with most ops. Seen to fail: the norms of heads over whole
// rows; a delta net's query that is not divided.
TEST(webgpu_families_have_the_references_numbers) {
    static const close_bounds bounds = {.n_exact = SIZE_MAX, .exact = 1e-5}; // 1.8e-6 is measured
    static const char *const few[] = {OWN "qwen35_grouped", OWN "gemma4"};
    for (size_t i = 0; !test_is_long() && i < sizeof few / sizeof *few; i++)
        if (!check_on_gpu(few[i], 13, &bounds)) return;
    for (size_t i = 0; test_is_long() && i < sizeof decoders / sizeof *decoders; i++)
        for (int n_batch = 13; n_batch <= 128; n_batch += 115)
            if (!check_on_gpu(decoders[i], n_batch, &bounds)) return;
}

// On a GPU codes of folders are F16: 1.1e-5 is measured. Seen to fail: with the offset left out.
TEST(webgpu_quantized_folder_is_near_the_reference) {
    static const close_bounds bounds = {.n_exact = SIZE_MAX, .exact = 2e-5};
    char path[600];
    if (data_folder("mlx_q4", path)) check_on_gpu(path, 64, &bounds);
}

// The same of transformers' own: in the short run those with most ops.
TEST(webgpu_families_of_transformers) {
    static const close_bounds bounds = {.n_exact = SIZE_MAX, .exact = 1e-5};
    for (size_t i = 0; i < N_TRANSFORMERS; i++) {
        char path[600];
        bool few = i == 1 || strcmp(transformers[i], "falcon_h1") == 0 ||
                   strcmp(transformers[i], "gemma4_full") == 0;
        if (!few && !test_is_long()) continue;
        if (!data_folder(transformers[i], path) || !check_on_gpu(path, 128, &bounds)) return;
    }
}

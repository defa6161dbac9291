// DoRA adapters (arXiv:2402.09353) against PEFT's formula in double precision,
//
//   W' = m (W + s B A) / |W + s B A|, norms and m by row,
//
// merged and beside the weights; and which ones are refused.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "formats/formats.h"
#include "models/models.h"
#include "tern_tools.h"
#include "tests/support/blobs.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

#define N_IDS   24
#define N_VOCAB TINY_N_VOCAB
#define RANK    3
#define SCALE   2.0 // lora_alpha / r

// ---- Adapters ----------------------------------------------------------------------------------

typedef struct matrix { // of the tiny models
    const char *gguf, *hf;
    int n_out, n_in;
} matrix;
static const matrix matrices[] = {
    {"blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj", 128, 128},
    {"blk.1.attn_output.weight", "model.layers.1.self_attn.o_proj", 128, 128},
    {"blk.0.ffn_gate.weight", "model.layers.0.mlp.gate_proj", 384, 128},
    {"blk.1.ffn_down.weight", "model.layers.1.mlp.down_proj", 128, 384},
};
#define N_MATRICES (sizeof matrices / sizeof *matrices)

static float element(int seed, int i) { // in -0.15..0.15, the same everywhere
    uint32_t x = (uint32_t)(seed * 7919 + i * 104729 + 1) * 2654435761u;
    return ((float)(x >> 8) * 0x1p-24f - 0.5f) * 0.3f;
}

static float a_of(int i, int k, int column) {
    return element(3 * i, k * matrices[i].n_in + column);
}
static float b_of(int i, int row, int k) { return element(3 * i + 1, row * RANK + k); }
static float m_of(int i, int row) { return 1 + 5 * element(3 * i + 2, row); } // 0.25 .. 1.75

typedef struct variant {
    float (*magnitudes)[384]; // [N_MATRICES], in place of m_of; NULL: those
    bool zero_b, without, short_by_one, off_in_config;
} variant;

static bool write_tensors(tern_st_writer *w, const variant *v, tern_error *err) {
    bool ok = true;
    for (int i = 0; i < (int)N_MATRICES; i++) {
        const int n_in = matrices[i].n_in, n_out = matrices[i].n_out;
        const size_t room = (size_t)(RANK * (n_in + n_out)) * sizeof(float);
        float *x = malloc(room);
        for (int k = 0; k < RANK * n_in; k++) x[k] = a_of(i, k / n_in, k % n_in);
        ok &= tern_st_write(w, x, sizeof *x * RANK * (size_t)n_in, err) == TERN_OK;
        for (int k = 0; k < RANK * n_out; k++) x[k] = v->zero_b ? 0 : b_of(i, k / RANK, k % RANK);
        ok &= tern_st_write(w, x, sizeof *x * RANK * (size_t)n_out, err) == TERN_OK;
        for (int k = 0; k < n_out; k++) x[k] = v->magnitudes ? v->magnitudes[i][k] : m_of(i, k);
        const size_t n = (size_t)(n_out - v->short_by_one);
        if (!v->without) ok &= tern_st_write(w, x, n * sizeof *x, err) == TERN_OK;
        free(x);
    }
    return ok;
}

// A folder as PEFT writes it, with rows in Hugging Face's order.
static bool write_peft(const char *folder, const variant *v) {
    tern_st_writer *w;
    tern_error err = {0};
    char name[128], config[128];
    bool ok = tern_st_writer_open(&w, folder, 0, &err) == TERN_OK;
    tern_st_writer_name(w, "adapter_model.safetensors");
    for (size_t i = 0; i < N_MATRICES; i++) {
        const uint64_t n_in = (uint64_t)matrices[i].n_in, n_out = (uint64_t)matrices[i].n_out;
        snprintf(name, sizeof name, "base_model.model.%s.lora_A.weight", matrices[i].hf);
        tern_st_declare(w, name, TERN_DTYPE_F32, 2, (uint64_t[]){RANK, n_in});
        snprintf(name, sizeof name, "base_model.model.%s.lora_B.weight", matrices[i].hf);
        tern_st_declare(w, name, TERN_DTYPE_F32, 2, (uint64_t[]){n_out, RANK});
        snprintf(name, sizeof name, "base_model.model.%s.lora_magnitude_vector", matrices[i].hf);
        if (!v->without)
            tern_st_declare(w, name, TERN_DTYPE_F32, 1, (uint64_t[]){n_out - v->short_by_one});
    }
    ok &= write_tensors(w, v, &err);
    snprintf(config, sizeof config,
             "{\"peft_type\": \"LORA\", \"r\": %d, \"lora_alpha\": %g, \"use_dora\": %s}", RANK,
             RANK * SCALE, v->off_in_config ? "false" : "true");
    ok &= tern_st_put_file(w, "adapter_config.json", config, strlen(config), &err) == TERN_OK;
    ok &= tern_st_writer_finish(w, &err) == TERN_OK;
    tern_st_writer_free(w);
    CHECK_MSG(ok, "%s", err.message);
    return ok;
}

// ---- The formula -------------------------------------------------------------------------------

// The row of the folder that row r of a Llama's GGUF is.
static int folder_row(int i, int r, bool moves) {
    const int in = r % 32;
    return moves && strstr(matrices[i].gguf, "attn_q") ? r - in + in % 2 * 16 + in / 2 : r;
}

// Row `from` of the adapter on a row of W: puts the row of W' there, and returns its factor.
static double by_formula(int i, int from, double s, double *row) {
    double squares = 0;
    for (int c = 0; c < matrices[i].n_in; c++) {
        for (int k = 0; k < RANK; k++)
            row[c] += s * (double)b_of(i, from, k) * (double)a_of(i, k, c);
        squares += row[c] * row[c];
    }
    const double factor = (double)m_of(i, from) / sqrt(squares);
    for (int c = 0; c < matrices[i].n_in; c++) row[c] *= factor;
    return factor;
}

static float *numbers_of(const tern_file *file, const char *name, size_t *n) {
    const tern_tensor *t = tern_file_tensor(file, name);
    *n = (size_t)(t->ne[0] * t->ne[1]);
    float *x = malloc(*n * sizeof *x);
    tern_dtype_decode(t->type, test_bytes(&t->data), 0, *n, t->scale, x);
    return x;
}

// The relative L2 error of a merged file's matrices.
static double error_of(const char *base, const char *merged, double s, bool moves) {
    tern_file *from, *to;
    double error = 0, norm = 0;
    if (tern_file_open(&from, base, NULL) != TERN_OK ||
        tern_file_open(&to, merged, NULL) != TERN_OK)
        return 1;
    for (int i = 0; i < (int)N_MATRICES; i++) {
        const int n_in = matrices[i].n_in;
        size_t n;
        float *w = numbers_of(from, matrices[i].gguf, &n),
              *got = numbers_of(to, matrices[i].gguf, &n);
        double row[384];
        for (int r = 0; r < matrices[i].n_out; r++) {
            for (int c = 0; c < n_in; c++) row[c] = (double)w[r * n_in + c];
            by_formula(i, folder_row(i, r, moves), s, row);
            for (int c = 0; c < n_in; c++) {
                error += pow(row[c] - (double)got[r * n_in + c], 2);
                norm += row[c] * row[c];
            }
        }
        free(w);
        free(got);
    }
    test_let_go();
    tern_file_close(from);
    tern_file_close(to);
    return sqrt(error / norm);
}

// ---- Logits ------------------------------------------------------------------------------------

static bool logits_of(const char *path, const tern_lora *lora, tern_model_desc desc, float *out) {
    int32_t ids[N_IDS];
    tern_model *model = NULL;
    tern_session *session = NULL;
    tern_error err = {0};
    desc.loras = lora;
    desc.n_loras = lora != NULL;
    for (int i = 0; i < N_IDS; i++) ids[i] = (i * i * 7 + 3) % N_VOCAB;
    tern_session_desc sd = {.kv_type = TERN_KV_F32};
    bool ok = tern_model_open(&model, path, &desc, &err) == TERN_OK &&
              tern_session_open(&session, model, &sd, &err) == TERN_OK &&
              tern_session_logits(session, ids, N_IDS, out, &err) == TERN_OK;
    CHECK_MSG(ok, "%s", err.message);
    tern_session_close(session);
    tern_model_close(model);
    return ok;
}

static double difference(const float *a, const float *b) {
    double error = 0, norm = 0;
    for (int i = 0; i < N_IDS * N_VOCAB; i++) {
        error += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(error / norm);
}

static float base[N_IDS * N_VOCAB], with[N_IDS * N_VOCAB], other[N_IDS * N_VOCAB];

// ---- What it computes --------------------------------------------------------------------------

static void check_merged(const char *arch, float scale) {
    char model[512], folder[512], merged[512], peft[512];
    tern_error err = {0};
    snprintf(model, sizeof model, "%s", test_tmp("dora.gguf"));
    snprintf(folder, sizeof folder, "%s", test_tmp("dora_hf"));
    snprintf(merged, sizeof merged, "%s", test_tmp("dora_merged.gguf"));
    snprintf(peft, sizeof peft, "%s", test_tmp("dora_peft"));
    REQUIRE_OK(tiny_model_write(model, &(tiny_model_desc){.arch = arch, .seed = 70}, &err), err);
    REQUIRE_OK(tern_convert(model, folder, &(tern_convert_desc){0}, &err), err);
    if (!write_peft(peft, &(variant){0})) return;
    const tern_lora lora = {.path = peft, .scale = scale};
    const tern_convert_desc desc = {.loras = &lora, .n_loras = 1};
    REQUIRE_OK(tern_convert(model, merged, &desc, &err), err);
    double error = error_of(model, merged, SCALE * (double)scale, strcmp(arch, "llama") == 0);
    CHECK_MSG(error < 1e-6, "%s: merged: %g", arch, error);
    if (!logits_of(merged, NULL, (tern_model_desc){0}, with)) return;
    if (!logits_of(model, NULL, (tern_model_desc){0}, base)) return;
    CHECK(difference(with, base) > 0.1);
    for (int i = 0; i < 2; i++) {
        if (!logits_of(i ? folder : model, &lora, (tern_model_desc){0}, other)) return;
        CHECK_MSG(difference(other, with) < 1e-5, "%s: %d: %g", arch, i, difference(other, with));
    }
}

// The scale is one of B A alone, as in PEFT. Seen to fail: without the factors in the graph; with
// norms of W alone; with magnitudes in the folder's order for a GGUF.
TEST(dora_merged_and_beside_float_weights_is_the_formula) {
    check_merged("llama", 1);
    check_merged("llama", 0.5f);
    check_merged("qwen3", 1);
    check_merged("gemma3", 1);
}

// Codes times a scale of W's row, decoded as products read them.
static void base_row(const tern_tensor *t, const float *w, bool is_master, int r, double *row) {
    const size_t n_in = (size_t)t->ne[0], n = n_in * (size_t)t->ne[1];
    double mean = 0;
    for (size_t k = 0; is_master && k < n; k++) mean += fabs((double)w[k]) / (double)n;
    for (size_t c = 0; c < n_in; c++) {
        double x = (double)w[(size_t)r * n_in + c];
        row[c] = is_master ? fmax(-1, fmin(1, nearbyint(x / mean))) * mean : x;
    }
}

static void check_factors(const char *model, const char *peft, bool moves, bool is_master) {
    tern_file *file;
    const tern_arch *arch;
    tern_config config;
    tern_adapters set = {0};
    tern_error err = {0};
    const tern_lora lora = {.path = peft};
    REQUIRE_OK(tern_file_open(&file, model, &err), err);
    REQUIRE_OK(tern_arch_read(file, &arch, &config, &err), err);
    REQUIRE_OK(tern_adapters_add(&set, &lora, file, arch, &config, &err), err);
    REQUIRE_OK(tern_adapters_find_factors(&set, file, arch, &config, &err), err);
    for (int i = 0; i < (int)N_MATRICES; i++) {
        const tern_adapter *p = tern_adapters_find(&set, matrices[i].gguf);
        const tern_tensor *t = tern_file_tensor(file, matrices[i].gguf);
        double row[384], worst = 0;
        size_t n;
        REQUIRE(p && p->factors);
        float *w = numbers_of(file, matrices[i].gguf, &n);
        for (int r = 0; r < matrices[i].n_out; r += 7) {
            base_row(t, w, is_master, r, row);
            double want = by_formula(i, folder_row(i, r, moves), SCALE, row);
            worst = fmax(worst, fabs((double)p->factors[r] / want - 1));
        }
        CHECK_MSG(worst < 1e-6, "%s: %s: %g", model, matrices[i].gguf, worst);
        free(w);
    }
    test_let_go();
    tern_adapters_free(&set);
    tern_file_close(file);
}

// Seen to fail: norms of a BitNet's masters as the file has them, which no product reads.
TEST(dora_factors_beside_codes_are_those_of_what_they_stand_for) {
    char model[512], peft[512];
    tern_error err = {0};
    static const tiny_model_desc models[] = {
        {.seed = 71},                                           // I2_S
        {.type = TERN_DTYPE_BF16, .seed = 72},                  // a BitNet's masters
        {.arch = "llama", .type = TERN_DTYPE_Q8_0, .seed = 73}, // quantized
    };
    snprintf(peft, sizeof peft, "%s", test_tmp("dora_codes_peft"));
    if (!write_peft(peft, &(variant){0})) return;
    for (int i = 0; i < 3; i++) {
        snprintf(model, sizeof model, "%s", test_tmp("dora_codes.gguf"));
        REQUIRE_OK(tiny_model_write(model, &models[i], &err), err);
        check_factors(model, peft, i == 2, models[i].type == TERN_DTYPE_BF16);
    }
}

// The norms of the matrices' rows, times `factor`.
static void find_norms(const tern_file *file, double factor, float (*norms)[384]) {
    for (int i = 0; i < (int)N_MATRICES; i++) {
        const int n_in = matrices[i].n_in;
        size_t n;
        float *w = numbers_of(file, matrices[i].gguf, &n);
        for (int r = 0; r < matrices[i].n_out; r++) {
            double squares = 0;
            for (int c = 0; c < n_in; c++) squares += pow((double)w[r * n_in + c], 2);
            norms[i][r] = (float)(factor * sqrt(squares));
        }
        free(w);
    }
}

// The same I2_S model with the matrices' scales doubled.
static bool write_doubled(const tern_file *file, const char *model, const char *doubled) {
    size_t size;
    char *bytes = test_read(model, &size);
    char *first = bytes ? memmem(bytes, size, test_bytes(&file->tensors[0].data), 64) : NULL;
    for (size_t i = 0; first && i < N_MATRICES; i++) {
        const tern_tensor *t = tern_file_tensor(file, matrices[i].gguf);
        const float scale = 2 * t->scale;
        char *at = first + (t->data.at - file->tensors[0].data.at);
        memcpy(at + t->ne[0] * t->ne[1] / 4, &scale, sizeof scale);
    }
    FILE *f = fopen(doubled, "wb");
    bool ok = first && f && fwrite(bytes, 1, size, f) == size;
    if (f) fclose(f);
    free(bytes);
    return ok;
}

// With B zero: the rows' norms are the base, as training begins, and twice those are a base of
// twice the scales. Seen to fail: without the factors in the graph.
TEST(dora_beside_ternary_weights_scales_their_products) {
    char model[512], doubled[512], peft[512];
    tern_error err = {0};
    tern_file *file;
    static float norms[N_MATRICES][384];
    snprintf(model, sizeof model, "%s", test_tmp("dora_ternary.gguf"));
    snprintf(doubled, sizeof doubled, "%s", test_tmp("dora_doubled.gguf"));
    snprintf(peft, sizeof peft, "%s", test_tmp("dora_ternary_peft"));
    REQUIRE_OK(tiny_model_write(model, &(tiny_model_desc){.seed = 74}, &err), err);
    REQUIRE_OK(tern_file_open(&file, model, &err), err);
    const tern_lora lora = {.path = peft};
    bool ok = write_doubled(file, model, doubled);
    for (int i = 1; ok && i <= 2; i++) {
        find_norms(file, i, norms);
        ok = write_peft(peft, &(variant){.zero_b = true, .magnitudes = norms}) &&
             logits_of(model, &lora, (tern_model_desc){0}, with) &&
             logits_of(i == 2 ? doubled : model, NULL, (tern_model_desc){0}, other);
        CHECK_MSG(ok && difference(with, other) < 1e-5, "%d: %g", i, difference(with, other));
    }
    CHECK(ok && logits_of(model, NULL, (tern_model_desc){0}, base));
    CHECK(difference(with, base) > 0.05);
    test_let_go();
    tern_file_close(file);
}

// Seen to fail: a factor left out in the last rows of a batch.
TEST(dora_gives_the_same_bits_everywhere) {
    char model[512], peft[512];
    tern_error err = {0};
    static const tern_model_desc descs[] = {
        {.n_batch = 1}, {.n_batch = 7, .n_threads = 3}, {.cpu_features = "scalar"}};
    static const tiny_model_desc models[] = {
        {.seed = 75}, {.arch = "llama", .type = TERN_DTYPE_Q8_0, .seed = 76}};
    snprintf(model, sizeof model, "%s", test_tmp("dora_bits.gguf"));
    snprintf(peft, sizeof peft, "%s", test_tmp("dora_bits_peft"));
    if (!write_peft(peft, &(variant){0})) return;
    const tern_lora lora = {.path = peft};
    for (int i = 0; i < 2; i++) {
        REQUIRE_OK(tiny_model_write(model, &models[i], &err), err);
        if (!logits_of(model, &lora, (tern_model_desc){0}, with)) return;
        for (size_t k = 0; k < sizeof descs / sizeof *descs; k++) {
            if (!logits_of(model, &lora, descs[k], other)) return;
            CHECK_MSG(!memcmp(with, other, sizeof with), "model %d, variant %zu", i, k);
        }
    }
}

// ---- What is refused ---------------------------------------------------------------------------

static void refused(const char *model, tern_model_desc desc, const char *says) {
    tern_model *m = NULL;
    tern_error err = {0};
    CHECK(tern_model_open(&m, model, &desc, &err) != TERN_OK && m == NULL);
    CHECK_MSG(strstr(err.message, says) != NULL, "'%s' is not in: %s", says, err.message);
    tern_model_close(m);
}

// Seen to fail, each: a plain adapter of the same matrix was added under the first one's factors;
// scales by session, rotated weights and NaN were let pass.
TEST(dora_refuses_what_does_not_fit) {
    char model[512], peft[512], plain[512], rotated[512];
    static float wrong[N_MATRICES][384];
    const tiny_model_desc tiny = {.arch = "llama", .type = TERN_DTYPE_Q8_0};
    tiny_model_desc turned = tiny;
    turned.rotation = 32;
    snprintf(model, sizeof model, "%s", test_tmp("dora_fit.gguf"));
    snprintf(rotated, sizeof rotated, "%s", test_tmp("dora_rotated.gguf"));
    snprintf(peft, sizeof peft, "%s", test_tmp("dora_fit_peft"));
    snprintf(plain, sizeof plain, "%s", test_tmp("dora_plain_peft"));
    REQUIRE(tiny_model_write(model, &tiny, NULL) == TERN_OK);
    REQUIRE(tiny_model_write(rotated, &turned, NULL) == TERN_OK);
    if (!write_peft(plain, &(variant){.without = true, .off_in_config = true})) return;
    const tern_lora loras[] = {{.path = peft}, {.path = plain}, {.path = peft}};
    const tern_model_desc one = {.loras = loras, .n_loras = 1};
    if (!write_peft(peft, &(variant){.off_in_config = true})) return;
    refused(model, one, "lora_magnitude_vector is not part of a pair");
    if (!write_peft(peft, &(variant){.without = true})) return;
    refused(model, one, "has no lora_magnitude_vector beside it");
    if (!write_peft(peft, &(variant){.short_by_one = true})) return;
    refused(model, one, "is not a vector of the");
    wrong[2][100] = NAN;
    if (!write_peft(peft, &(variant){.magnitudes = wrong})) return;
    refused(model, one, "lora_magnitude_vector: some of its numbers are not");
    if (!write_peft(peft, &(variant){0})) return;
    refused(model, (tern_model_desc){.loras = loras, .n_loras = 2}, "has two adapters");
    refused(model, (tern_model_desc){.loras = loras + 1, .n_loras = 2}, "has two adapters");
    refused(model, (tern_model_desc){.loras = loras, .n_loras = 1, .loras_by_session = true},
            "sessions cannot choose it");
    refused(rotated, one, "is stored in another form");
}

// Seen to fail: factors that are not freed.
TEST(dora_survives_failing_allocations) {
    char model[512], peft[512];
    snprintf(model, sizeof model, "%s", test_tmp("dora_oom.gguf"));
    snprintf(peft, sizeof peft, "%s", test_tmp("dora_oom_peft"));
    REQUIRE(tiny_model_write(model, &(tiny_model_desc){.arch = "llama"}, NULL) == TERN_OK);
    if (!write_peft(peft, &(variant){0})) return;
    const tern_lora lora = {.path = peft};
    tern_model_desc desc = {.loras = &lora, .n_loras = 1, .n_threads = 1};
    size_t before = tern_heap_get().heap_now;
    tern_status status = TERN_ERR_MEMORY;
    for (uint64_t n = 1; status != TERN_OK && n < 6000; n += 1 + n / 40) {
        tern_model *m = NULL;
        tern_mem_fail_at(n);
        status = tern_model_open(&m, model, &desc, NULL);
        tern_mem_fail_at(0);
        CHECK(status == TERN_OK || status == TERN_ERR_MEMORY);
        tern_model_close(m);
        CHECK_MSG(tern_heap_get().heap_now == before, "allocation %d leaks", (int)n);
    }
    CHECK(status == TERN_OK);
}

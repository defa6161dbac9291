// What every family can become: files of each type, and a model with an adapter beside or in it.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "formats/formats.h"
#include "runtime/runtime.h"
#include "tern_tools.h"
#include "tests/library/abilities/abilities_fixture.h"
#include "tests/support/harness.h"

// ---- Conversion --------------------------------------------------------------------------------

#define N_ROWS 40

// Logits, or of an encoder the last rows and the text's vector: [n], to be freed.
static float *numbers_of(const char *path, const tern_lora *lora, size_t *n) {
    const tern_model_desc md = {
        .n_threads = 1, .precise = true, .loras = lora, .n_loras = lora != NULL};
    tern_model *m;
    tern_lease *lease = NULL;
    tern_error err = {0};
    int32_t ids[N_ROWS];
    *n = 0;
    if (tern_model_open(&m, path, &md, &err) != TERN_OK) {
        CHECK_MSG(false, "%s", err.message);
        return NULL;
    }
    bool embeds = m->config.pooling != TERN_POOLING_NONE;
    size_t n_embd = (size_t)m->config.n_embd, n_cols = embeds ? n_embd : (size_t)m->config.n_vocab;
    float *out = calloc(N_ROWS * n_cols + n_embd, sizeof *out);
    fill_ids(ids, N_ROWS, (int32_t)m->config.n_vocab, 9);
    const tern_wants wanted = {.outputs = {embeds ? "hidden" : "logits", "embedding"},
                               .data = {out, embeds ? out + N_ROWS * n_cols : NULL}};
    bool ok = tern_lease_open(&lease, m, 128, TERN_KV_F32, &err) == TERN_OK;
    const tern_work work = {.lease = lease, .ids = ids, .n_ids = N_ROWS, .n_outputs = N_ROWS};
    ok = ok && tern_model_compute(m, &work, 1, &wanted, &err) == TERN_OK;
    CHECK_MSG(ok, "%s: %s", path, err.message);
    *n = N_ROWS * n_cols + (embeds ? n_embd : 0);
    tern_lease_close(lease);
    tern_model_close(m);
    return out;
}

// |a - b| / |b|; the arrays are freed.
static double distance(float *a, size_t n_a, const float *b, size_t n_b) {
    double error = 0, norm = 0;
    for (size_t i = 0; a && b && i < n_a && i < n_b; i++) {
        error += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    free(a);
    return n_a == n_b && norm > 0 && isfinite(error) ? sqrt(error / norm) : INFINITY;
}

// Types of floats lose nothing here but what F16 does of GGUF's ready norms. What the blocks lose,
// random weights amplify (one row of qwen35's has the distance 0.44 from Q8_0, by exact products as
// well), so these bounds are wide; but the numbers are exactly those of the rounded weights as
// floats. Rows are too short for blocks of 256: K types fall back to Q8_0.
static const struct {
    tern_type type;
    const char *name;
    double most;
} types[] = {
    {TERN_TYPE_F32, "f32.gguf", 1e-6},   {TERN_TYPE_F16, "f16.gguf", 1e-5},
    {TERN_TYPE_BF16, "bf16.gguf", 1e-6}, {TERN_TYPE_Q8_0, "q8_0.gguf", 0.2},
    {TERN_TYPE_Q6_K, "q6_k.gguf", 0.2},  {TERN_TYPE_Q4_0, "q4_0.gguf", 0.8},
    {TERN_TYPE_F32, "f32", 1e-6},        {TERN_TYPE_BF16, "bf16", 1e-6},
};

static void check_conversion(const family *f, tern_type type, const char *in, const char *out,
                             const float *want, size_t n_want, double most) {
    const tern_convert_desc d = {.type = type, .head_type = TERN_TYPE_F32};
    tern_error err = {0};
    size_t n;
    tern_status status = tern_convert(in, out, &d, &err);
    CHECK_MSG(status == TERN_OK, "%s: %s", out, err.message);
    if (status != TERN_OK) return;
    float *got = numbers_of(out, NULL, &n);
    double is = distance(got, n, want, n_want);
    CHECK_MSG(is <= most, "%s, %s to %s: %g", f->name, in, out, is);
}

// Seen to fail: value heads put in order in one direction only.
TEST(abilities_conversion_to_every_type) {
    for (const family *f = families; f < families + N_FAMILIES; f++) {
        size_t n_want, n;
        float *want = numbers_of(f->folder, NULL, &n_want);
        for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
            char name[80], out[600], floats[700];
            snprintf(name, sizeof name, "ability_%d_%s", (int)(f - families), types[i].name);
            snprintf(out, sizeof out, "%s", test_tmp(name));
            snprintf(floats, sizeof floats, "%s_floats", out);
            check_conversion(f, types[i].type, f->folder, out, want, n_want, types[i].most);
            float *rounded = numbers_of(out, NULL, &n);
            check_conversion(f, TERN_TYPE_F32, out, floats, rounded, n, 1e-5);
            free(rounded);
        }
        free(want);
    }
}

TEST(abilities_float_weights_do_not_become_ternary) {
    static const tern_type ternary[] = {TERN_TYPE_I2_S, TERN_TYPE_TQ1_0, TERN_TYPE_TQ2_0};
    for (const family *f = families; f < families + N_FAMILIES; f++)
        for (size_t i = 0; i < 3; i++) {
            const tern_convert_desc d = {.type = ternary[i]};
            tern_error err = {0};
            CHECK(tern_convert(f->folder, test_tmp("ability_ternary.gguf"), &d, &err) != TERN_OK);
            CHECK_MSG(strstr(err.message, "it is not ternary"), "%s: %s", f->name, err.message);
        }
}

// ---- Adapters ----------------------------------------------------------------------------------

#define RANK 3

static float element(const char *name, size_t i) {
    uint32_t h = 2166136261u;
    for (; *name; name++) h = (h ^ (uint8_t)*name) * 16777619u;
    h = (h ^ (uint32_t)i) * 2654435761u;
    return ((float)(h >> 8) * 0x1p-24f - 0.5f) * 0.3f;
}

// An adapter of every matrix that can have one, in a folder of PEFT; returns how many those are.
static int write_adapter(const char *model, const char *folder) {
    static const char config[] = "{\"peft_type\":\"LORA\",\"lora_alpha\":6}";
    tern_model *m;
    tern_st_writer *w = NULL;
    tern_error err = {0};
    int n = 0;
    char name[200], from[700], to[700];
    if (tern_model_open(&m, model, NULL, &err) != TERN_OK) return 0;
    bool ok = tern_st_writer_open(&w, folder, 0, &err) == TERN_OK;
    for (int pass = 0; pass < 2; pass++)
        for (size_t v = 0; ok && v < m->graphs[0].built.n_values; v++) {
            const tern_value *x = &m->graphs[0].built.values[v];
            char hf[128];
            tern_role role = tern_arch_role(m->arch, x->name);
            const tern_tensor_row *row = tern_arch_row(m->arch, x->name);
            if (x->parts || (row && row->shares)) continue; // refused
            if (x->kind != TERN_VALUE_WEIGHT || !x->is_matrix || role == TERN_ROLE_HEAD ||
                role == TERN_ROLE_TABLE || !tern_arch_name_to_hf(m->arch, x->name, hf, sizeof hf))
                continue;
            hf[strlen(hf) - strlen(".weight")] = 0;
            n += pass;
            for (int b = 0; ok && b < 2; b++) {
                uint64_t shape[] = {b ? (uint64_t)x->rows : RANK, b ? RANK : (uint64_t)x->cols};
                snprintf(name, sizeof name, "base_model.model.%s.lora_%c.weight", hf,
                         b ? 'B' : 'A');
                if (!pass) ok = tern_st_declare(w, name, TERN_DTYPE_F32, 2, shape) == TERN_OK;
                for (size_t i = 0; pass && ok && i < shape[0] * shape[1]; i++) {
                    float e = element(name, i);
                    ok = tern_st_write(w, &e, sizeof e, &err) == TERN_OK;
                }
            }
        }
    ok = ok && tern_st_put_file(w, "adapter_config.json", config, strlen(config), &err) == TERN_OK;
    ok = ok && tern_st_writer_finish(w, &err) == TERN_OK;
    tern_st_writer_free(w);
    tern_model_close(m);
    snprintf(from, sizeof from, "%s/model.safetensors", folder);
    snprintf(to, sizeof to, "%s/adapter_model.safetensors", folder);
    CHECK_MSG(ok && rename(from, to) == 0, "%s: %s", folder, err.message);
    return n;
}

// Whether the family's GGUF has factors of config.json in its weights.
static bool has_folded(const char *folder) {
    tern_model *m;
    tern_error err = {0};
    if (tern_model_open(&m, folder, NULL, &err) != TERN_OK) return false;
    bool folds = m->arch->folded != NULL;
    tern_model_close(m);
    return folds;
}

// Beside the folder's weights, beside those of a GGUF in its order, and merged into either. Seen to
// fail with B's rows left in the folder's order (qwen35 grouped).
TEST(abilities_adapters_beside_and_merged) {
    for (const family *f = families; f < families + N_FAMILIES; f++) {
        char name[80], adapter[600], gguf[600], merged[600];
        size_t n, n_base, n_want;
        tern_error err = {0};
        snprintf(name, sizeof name, "ability_%d", (int)(f - families));
        snprintf(adapter, sizeof adapter, "%s_lora", test_tmp(name));
        snprintf(gguf, sizeof gguf, "%s.gguf", test_tmp(name));
        int n_matrices = write_adapter(f->folder, adapter);
        CHECK_MSG(n_matrices >= 8, "%s: adapters of %d matrices", f->name, n_matrices);
        const tern_lora lora = {.path = adapter};
        const tern_convert_desc plain = {.type = TERN_TYPE_F32},
                                with = {.type = TERN_TYPE_F32, .loras = &lora, .n_loras = 1};
        float *base = numbers_of(f->folder, NULL, &n_base);
        float *want = numbers_of(f->folder, &lora, &n_want);
        CHECK_MSG(distance(base, n_base, want, n_want) > 0.05, "%s: no effect", f->name);
        CHECK(tern_convert(f->folder, gguf, &plain, &err) == TERN_OK);
        const bool folds = has_folded(f->folder); // then an adapter does not fit the GGUF
        float *got = folds ? NULL : numbers_of(gguf, &lora, &n);
        double is = folds ? 0 : distance(got, n, want, n_want);
        CHECK_MSG(is < 1e-5, "%s: beside a GGUF: %g", f->name, is);
        for (int i = 0; i < 3; i++) { // folder to GGUF, GGUF to GGUF, folder to folder
            if (folds && i == 1) continue;
            const char *end = i < 2 ? ".gguf" : "";
            snprintf(merged, sizeof merged, "%s_merged%d%s", test_tmp(name), i, end);
            tern_status status = tern_convert(i == 1 ? gguf : f->folder, merged, &with, &err);
            CHECK_MSG(status == TERN_OK, "%s: %s", f->name, err.message);
            if (status != TERN_OK) continue;
            got = numbers_of(merged, NULL, &n);
            is = distance(got, n, want, n_want);
            CHECK_MSG(is < 1e-5, "%s: merged, %d: %g", f->name, i, is);
        }
        free(want);
    }
}

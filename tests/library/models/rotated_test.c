// Models whose weights are in a rotated basis: the same numbers as before they were rotated, and a
// refusal of what is not understood.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "formats/formats.h"
#include "tests/support/harness.h"
#include "kernels/cpu/kernels.h"
#include "models/models.h"
#include "tern.h"
#include "tests/support/tiny_model.h"

#define PREFIX "prism.hadamard."

typedef struct rotation {
    tern_file *file;
    const tern_arch *arch;
    tern_config config;
    const tern_float_kernels *f;
    size_t block;
    bool signs;
    float sign[1024]; // by column of any width: the first ones
} rotation;

static bool is_rotated(const rotation *r, const tern_tensor *t) {
    tern_role role = tern_arch_role(r->arch, t->name);
    if (role == TERN_ROLE_VECTOR || role == TERN_ROLE_FLOATS || t->ne[0] % r->block) return false;
    return t->n_dims == 2;
}

// A row as such files have it: in Hugging Face's order of value heads, times signs, transformed.
static void rotate_row(const rotation *r, const tern_tensor *t, float *row) {
    float moved[1024], *from = row;
    size_t n = (size_t)t->ne[0];
    const tern_tensor_row *facts = tern_arch_row(r->arch, t->name);
    if (facts->columns == TERN_ORDER_V_HEADS) {
        tern_moves m = tern_arch_moves(r->arch, &r->config, t->name);
        for (size_t i = 0; i < n; i++)
            moved[i] = row[tern_order_source(&m.columns, (int64_t)i, false)];
        from = moved;
    }
    r->f->hadamard(row, from, r->signs ? r->sign : NULL, n, r->block);
}

static void put_contract(const rotation *r, tern_gguf_writer *w, int version) {
    tern_str names[64], table = TERN_STR("token_embd.weight");
    size_t n = 0, n_widths = 0;
    int32_t widths[8], values[8 * 1024], n_values = 0;
    for (size_t i = 0; i < r->file->n_tensors; i++) {
        const tern_tensor *t = &r->file->tensors[i];
        if (!is_rotated(r, t)) continue;
        size_t k = 0;
        while (k < n_widths && widths[k] != (int32_t)t->ne[0]) k++;
        if (k == n_widths) {
            widths[n_widths++] = (int32_t)t->ne[0];
            for (size_t c = 0; c < t->ne[0]; c++) values[n_values++] = (int32_t)r->sign[c];
        }
        if (strcmp(t->name, table.ptr) != 0) names[n++] = (tern_str){t->name, strlen(t->name)};
    }
    tern_gguf_put_int(w, PREFIX "version", TERN_META_U32, version);
    tern_gguf_put_int(w, PREFIX "block_size", TERN_META_U32, (int64_t)r->block);
    tern_gguf_put_str(w, PREFIX "transform", TERN_STR("normalized-sylvester-walsh-hadamard"));
    tern_gguf_put_str(w, PREFIX "axis", TERN_STR("input-last-dimension"));
    tern_gguf_put_str(w, PREFIX "sign_mode",
                      r->signs ? TERN_STR("explicit") : TERN_STR("identity"));
    if (r->signs) {
        tern_gguf_put_array(w, PREFIX "sign_widths", TERN_META_I32, widths, n_widths);
        tern_gguf_put_array(w, PREFIX "sign_values", TERN_META_I32, values, (size_t)n_values);
    }
    tern_gguf_put_strings(w, PREFIX "weight_names", names, n);
    tern_gguf_put_strings(w, PREFIX "inverse_weight_names", &table, 1);
    tern_gguf_put_int(w, PREFIX "gdn_v_grouped", TERN_META_BOOL, 1);
}

static tern_status write_rotated(const rotation *r, const char *path, int version,
                                 const char *extra_key, tern_error *err) {
    tern_gguf_writer *w;
    TERN_TRY(tern_gguf_writer_open(&w, path, 0, err));
    for (size_t i = 0; i < r->file->n_metas; i++) tern_gguf_put_meta(w, &r->file->metas[i]);
    put_contract(r, w, version);
    if (extra_key) tern_gguf_put_int(w, extra_key, TERN_META_U32, 1);
    for (size_t i = 0; i < r->file->n_tensors; i++) {
        const tern_tensor *t = &r->file->tensors[i];
        tern_gguf_declare(w, t->name, TERN_DTYPE_F32, t->n_dims, t->ne);
    }
    tern_status status = TERN_OK;
    for (size_t i = 0; i < r->file->n_tensors && status == TERN_OK; i++) {
        const tern_tensor *t = &r->file->tensors[i];
        size_t n_rows = (size_t)(t->ne[1] * t->ne[2]), n = (size_t)t->ne[0];
        float *x = calloc(n_rows * n, sizeof *x);
        status = tern_tensor_decode(t, x, err);
        for (size_t row = 0; row < n_rows && is_rotated(r, t); row++) rotate_row(r, t, x + row * n);
        if (status == TERN_OK) status = tern_gguf_write(w, x, n_rows * n * sizeof *x, err);
        free(x);
    }
    if (status == TERN_OK) status = tern_gguf_writer_finish(w, err);
    tern_gguf_writer_free(w);
    return status;
}

enum { N_IDS = 40, N_VOCAB_MAX = 600 };

static bool logits_of(const char *path, float *out, size_t *n_vocab) {
    tern_error err = {0};
    tern_model *model = NULL;
    tern_session *session = NULL;
    tern_model_info info;
    int32_t ids[N_IDS];
    for (int i = 0; i < N_IDS; i++) ids[i] = 3 + i * 7 % 41;
    bool ok = tern_model_open(&model, path, &(tern_model_desc){.n_threads = 2}, &err) == TERN_OK &&
              tern_session_open(&session, model, NULL, &err) == TERN_OK;
    tern_model_get_info(model, &info);
    *n_vocab = (size_t)info.n_vocab;
    ok = ok && *n_vocab <= N_VOCAB_MAX &&
         tern_session_logits(session, ids, N_IDS, out, &err) == TERN_OK;
    test_check(ok, __FILE__, __LINE__, "%s: %s", path, err.message);
    tern_session_close(session);
    tern_model_close(model);
    return ok;
}

static bool open_rotation(rotation *r, const char *path, size_t block, bool signs) {
    tern_error err = {0};
    tern_cpu_kernels k;
    *r = (rotation){.block = block, .signs = signs};
    bool ok = tern_cpu_kernels_select("scalar", &k) &&
              tern_file_open(&r->file, path, &err) == TERN_OK &&
              tern_arch_read(r->file, &r->arch, &r->config, &err) == TERN_OK;
    test_check(ok, __FILE__, __LINE__, "%s: %s", path, err.message);
    r->f = k.f;
    for (size_t i = 0; i < 1024; i++) r->sign[i] = i * 2654435761u >> 13 & 1 ? -1.0f : 1.0f;
    return ok;
}

// Qwen3 with its head tied or not, Qwen3.5 with value heads in either number. Seen to fail: without
// the permutation, with signs after the transform, and with the rotation left out of the head.
TEST(rotated_models_say_what_the_others_say) {
    static float want[N_IDS * N_VOCAB_MAX], got[N_IDS * N_VOCAB_MAX];
    const char *tied = test_tmp("tied.gguf"), *apart = test_tmp("apart.gguf");
    const char *out = test_tmp("rotated.gguf");
    const tiny_model_desc d = {.arch = "qwen3", .seed = 51};
    tiny_model_desc other = d;
    other.separate_head = true;
    tern_error err = {0};
    REQUIRE_OK(tiny_model_write(tied, &d, &err), err);
    REQUIRE_OK(tiny_model_write(apart, &other, &err), err);
    const struct {
        const char *path;
        size_t block;
        bool signs;
    } cases[] = {{tied, 128, true},
                 {apart, 64, false},
                 {apart, 32, true},
                 {"tests/oracles/qwen35/model.gguf", 8, true},
                 {"tests/oracles/qwen35_grouped/model.gguf", 8, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rotation r;
        size_t n_vocab;
        if (!open_rotation(&r, cases[i].path, cases[i].block, cases[i].signs)) return;
        tern_status status = write_rotated(&r, out, i == 0 ? 2 : 1, NULL, &err);
        tern_file_close(r.file);
        REQUIRE_OK(status, err);
        if (!logits_of(cases[i].path, want, &n_vocab) || !logits_of(out, got, &n_vocab)) return;
        double apart_by = 0, size = 0;
        for (size_t k = 0; k < N_IDS * n_vocab; k++) {
            apart_by += pow((double)got[k] - (double)want[k], 2);
            size += pow((double)want[k], 2);
        }
        CHECK_MSG(size > 0 && sqrt(apart_by / size) < 2e-5, "%s: %g", cases[i].path,
                  sqrt(apart_by / size));
    }
}

// Seen to fail: when version 3 was taken for 2, and when unknown keys were passed over.
TEST(rotated_models_that_are_not_understood_are_refused) {
    const char *from = test_tmp("tied.gguf"), *out = test_tmp("rotated.gguf");
    static const struct {
        int version;
        const char *extra, *words;
    } cases[] = {{3, NULL, "prism.hadamard.version is neither 1 nor 2"},
                 {0, NULL, "prism.hadamard.version is neither 1 nor 2"},
                 {1, PREFIX "second_block", "prism.hadamard.second_block is not known"},
                 {1, PREFIX "tied_output", NULL}};
    tern_error err = {0};
    REQUIRE_OK(tiny_model_write(from, &(tiny_model_desc){.arch = "qwen3"}, &err), err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rotation r;
        tern_model *model;
        if (!open_rotation(&r, from, 64, true)) return;
        tern_status status = write_rotated(&r, out, cases[i].version, cases[i].extra, &err);
        tern_file_close(r.file);
        REQUIRE_OK(status, err);
        status = tern_model_open(&model, out, NULL, &err);
        CHECK_MSG((status == TERN_OK) == !cases[i].words, "%s", err.message);
        if (cases[i].words) CHECK_MSG(strstr(err.message, cases[i].words), "%s", err.message);
        tern_model_close(model);
    }
}

// Transforms, products and rows of tables of the makers' own program.
TEST(rotated_oracle_of_the_transform) {
    const char *from = test_data("oracle/prism_blocks/golden.safetensors");
    static const size_t blocks[] = {128, 512};
    static const char *const names[] = {"sign", "x", "hx", "w", "y", "embed"};
    if (!from) return;
    tern_file *file;
    tern_error err = {0};
    tern_cpu_kernels k;
    CHECK(tern_cpu_kernels_select("scalar", &k));
    REQUIRE_OK(tern_file_open(&file, from, &err), err);
    for (size_t b = 0; b < 2; b++) {
        static float v[6][6 * 512], got[6 * 512];
        char name[32];
        for (size_t i = 0; i < 6; i++) {
            snprintf(name, sizeof name, "had%zu.%s", blocks[b], names[i]);
            const tern_tensor *t = tern_file_tensor(file, name);
            REQUIRE(t && t->ne[0] * t->ne[1] <= 6 * 512);
            REQUIRE_OK(tern_tensor_decode(t, v[i], &err), err);
        }
        for (size_t row = 0; row < 3; row++) {
            k.f->hadamard(got, v[1] + row * 512, v[0], 512, blocks[b]);
            for (size_t i = 0; i < 512; i++) CHECK(fabsf(got[i] - v[2][row * 512 + i]) < 2e-6f);
            for (size_t r = 0; r < 6; r++)
                CHECK(fabsf(k.f->dot(got, v[3] + r * 512, 512) - v[4][row * 6 + r]) < 2e-5f);
        }
        for (size_t row = 0; row < 6; row++) { // a row e of a table is s * H(what is stored)
            k.f->hadamard(got, v[3] + row * 512, NULL, 512, blocks[b]);
            for (size_t i = 0; i < 512; i++)
                CHECK(fabsf(got[i] * v[0][i] - v[5][row * 512 + i]) < 2e-6f);
        }
    }
    tern_file_close(file);
}

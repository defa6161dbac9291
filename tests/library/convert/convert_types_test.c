// Conversion to every element type: other programs compute from the file what the source computes.
// A float or block type is read here as plain numbers, as they read it.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/dtype/half.h"
#include "formats/formats.h"
#include "models/models.h"
#include "tests/support/blobs.h"
#include "tests/support/harness.h"
#include "tern_tools.h"
#include "tests/support/tiny_model.h"

enum { N_IDS = 12 };
static float want[N_IDS * TINY_N_VOCAB], got[N_IDS * TINY_N_VOCAB];

static bool logits_of(const char *path, float *out) {
    static const int32_t ids[N_IDS] = {1, 70, 100, 33, 259, 5, 61, 120, 44, 200, 9, 77};
    tern_model *model = NULL;
    tern_session *session = NULL;
    tern_error err = {0};
    tern_session_desc d = {.kv_type = TERN_KV_F32};
    bool ok = tern_model_open(&model, path, NULL, &err) == TERN_OK &&
              tern_session_open(&session, model, &d, &err) == TERN_OK &&
              tern_session_logits(session, ids, N_IDS, out, &err) == TERN_OK;
    CHECK_MSG(ok, "%s", err.message);
    tern_session_close(session);
    tern_model_close(model);
    return ok;
}

static double difference(const float *a, const float *b) {
    double error = 0, norm = 0;
    for (int i = 0; i < N_IDS * TINY_N_VOCAB; i++) {
        error += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(error / norm);
}

static float *decode(const tern_tensor *t, size_t *n) {
    *n = (size_t)(t->ne[0] * t->ne[1]);
    float *x = malloc(*n * sizeof *x);
    tern_dtype_decode(t->type, test_bytes(&t->data), 0, *n, t->scale, x);
    return x;
}

// Every weight of `t` is the BitNet rounding of the master, code * mean, the mean rounded as the
// type rounds its scale.
static void check_effective(const tern_tensor *master, const tern_tensor *t) {
    size_t n, m, n_wrong = 0;
    float *w = decode(master, &n), *x = decode(t, &m);
    double mean = 0;
    REQUIRE(n == m);
    for (size_t i = 0; i < n; i++) mean += fabs((double)w[i]);
    mean /= (double)n;
    for (size_t i = 0; i < n; i++) {
        double code = fmin(fmax(nearbyint((double)w[i] / mean), -1), 1);
        // A weight on the edge of two codes may go either way.
        bool on_edge = fabs(fabs((double)w[i] / mean) - 0.5) < 1e-5;
        if (!on_edge && fabs((double)x[i] - code * mean) > mean / 256) n_wrong++;
    }
    CHECK_MSG(n_wrong == 0, "%s as %s: %zu of %zu weights are not -s, 0 or s", t->name,
              tern_dtype_name(t->type), n_wrong, n);
    free(w);
    free(x);
}

static const struct {
    tern_type type;
    int64_t file_type;
    // Tolerances of the logits: exact scales; scales as F16 or BF16, which flip the rounding of
    // some activations; activations that are not rounded.
    double bound;
} types[] = {
    {TERN_TYPE_F32, 0, 1e-6},     {TERN_TYPE_F16, 1, 2e-2},     {TERN_TYPE_BF16, 32, 2e-2},
    {TERN_TYPE_Q8_0, 7, 2e-2},    {TERN_TYPE_Q4_0, 2, 2e-2},    {TERN_TYPE_Q4_K, 14, 2e-2},
    {TERN_TYPE_Q5_K, 16, 2e-2},   {TERN_TYPE_Q6_K, 18, 2e-2},   {TERN_TYPE_TQ1_0, 36, 2e-2},
    {TERN_TYPE_TQ2_0, 37, 2e-2},  {TERN_TYPE_I2_S, 40, 1e-6},   {TERN_TYPE_Q4_1, 3, 2e-2},
    {TERN_TYPE_Q5_0, 8, 2e-2},    {TERN_TYPE_Q5_1, 9, 2e-2},    {TERN_TYPE_Q2_K, 10, 2e-2},
    {TERN_TYPE_Q3_K_S, 11, 2e-2}, {TERN_TYPE_Q5_K_M, 17, 2e-2},
};
#define N_TYPES (sizeof types / sizeof *types)

// Seen to fail when rows of the source's own type are copied, and when block types are encoded by
// their general encoders (Q4_0: 7/8 s).
TEST(convert_writes_what_masters_stand_for_in_every_type) {
    static const tern_dtype sources[] = {TERN_DTYPE_BF16, TERN_DTYPE_F16};
    tern_error err = {0};
    const char *a = test_tmp("effective.gguf"), *out = test_tmp("effective_out.gguf");
    for (size_t s = 0; s < 2; s++) {
        tiny_model_desc d = {.type = sources[s],
                             .n_embd = 256,
                             .n_ff = 512,
                             .head_type = TERN_DTYPE_F16,
                             .seed = 71};
        REQUIRE_OK(tiny_model_write(a, &d, &err), err);
        if (!logits_of(a, want)) return;
        for (size_t k = 0; k < N_TYPES; k++) {
            tern_convert_desc to = {.type = types[k].type, .head_type = TERN_TYPE_F16};
            REQUIRE_OK(tern_convert(a, out, &to, &err), err);
            tern_file *x, *y;
            REQUIRE_OK(tern_file_open(&x, a, &err), err);
            REQUIRE_OK(tern_file_open(&y, out, &err), err);
            int64_t file_type = -1;
            CHECK(tern_file_meta_int(y, "general.file_type", &file_type) &&
                  file_type == types[k].file_type);
            for (size_t i = 0; i < x->n_tensors; i++)
                if (x->tensors[i].type == sources[s] && strncmp(x->tensors[i].name, "blk.", 4) == 0)
                    check_effective(&x->tensors[i], tern_file_tensor(y, x->tensors[i].name));
            tern_file_close(x);
            tern_file_close(y);
            if (!logits_of(out, got)) return;
            CHECK_MSG(difference(got, want) <= types[k].bound, "%s: %g",
                      tern_type_name(types[k].type), difference(got, want));
        }
    }
}

// ---- Embedding and head ------------------------------------------------------------------------

typedef struct notes {
    char text[2000];
    int n;
} notes;

static void on_note(void *user, const char *text) {
    notes *n = user;
    size_t at = strlen(n->text);
    snprintf(n->text + at, sizeof n->text - at, "%s\n", text);
    n->n++;
}

static tern_dtype type_of(const char *path, const char *name) {
    tern_file *f;
    tern_error err = {0};
    tern_dtype type = TERN_DTYPE_COUNT;
    if (tern_file_open(&f, path, &err) == TERN_OK) {
        const tern_tensor *t = tern_file_tensor(f, name);
        if (t) type = t->type;
        tern_file_close(f);
    }
    CHECK_MSG(type != TERN_DTYPE_COUNT, "%s: %s", path, err.message);
    return type;
}

// Seen to fail with the head always F16.
TEST(convert_gives_embedding_and_head_the_type_asked_for) {
    tern_error err = {0};
    const char *a = test_tmp("head.gguf"), *folder = test_tmp("head_hf");
    const char *out = test_tmp("head_out.gguf");
    tiny_model_desc d = {.arch = "llama",
                         .type = TERN_DTYPE_BF16,
                         .head_type = TERN_DTYPE_BF16,
                         .n_embd = 256,
                         .n_ff = 512,
                         .separate_head = true,
                         .seed = 72};
    static const struct {
        tern_type type, head;
        tern_dtype want;
    } cases[] = {
        {TERN_TYPE_AUTO, TERN_TYPE_AUTO, TERN_DTYPE_BF16},
        {TERN_TYPE_F32, TERN_TYPE_AUTO, TERN_DTYPE_F32},
        {TERN_TYPE_BF16, TERN_TYPE_AUTO, TERN_DTYPE_BF16},
        {TERN_TYPE_F16, TERN_TYPE_AUTO, TERN_DTYPE_F16},
        {TERN_TYPE_Q8_0, TERN_TYPE_AUTO, TERN_DTYPE_Q8_0},
        {TERN_TYPE_Q8_0, TERN_TYPE_Q6_K, TERN_DTYPE_Q6_K},
        {TERN_TYPE_F16, TERN_TYPE_F32, TERN_DTYPE_F32},
    };
    REQUIRE_OK(tiny_model_write(a, &d, &err), err);
    REQUIRE_OK(tern_convert(a, folder, NULL, &err), err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tern_convert_desc to = {.type = cases[i].type, .head_type = cases[i].head};
        REQUIRE_OK(tern_convert(folder, out, &to, &err), err);
        CHECK_MSG(type_of(out, "token_embd.weight") == cases[i].want, "%zu", i);
        CHECK_MSG(type_of(out, "output.weight") == cases[i].want, "%zu", i);
    }
}

// The first weight of the table becomes 1e6, in place.
static void make_huge(const char *path) {
    tern_file *f;
    tern_error err = {0};
    REQUIRE_OK(tern_file_open(&f, path, &err), err);
    const tern_tensor *t = tern_file_tensor(f, "token_embd.weight");
    REQUIRE(t && t->type == TERN_DTYPE_BF16);
    char start[64];
    memcpy(start, test_bytes(&t->data), sizeof start);
    tern_file_close(f);
    FILE *io = fopen(path, "rb+");
    REQUIRE(io != NULL);
    fseek(io, 0, SEEK_END);
    size_t n = (size_t)ftell(io);
    char *bytes = malloc(n);
    rewind(io);
    CHECK(fread(bytes, 1, n, io) == n);
    char *at = memmem(bytes, n, start, sizeof start);
    uint16_t huge = tern_f32_to_bf16(1e6f);
    REQUIRE(at != NULL);
    fseek(io, at - bytes, SEEK_SET);
    fwrite(&huge, 1, sizeof huge, io);
    fclose(io);
    free(bytes);
}

// Seen to fail without the check: F16 then has an infinity.
TEST(convert_does_not_make_infinities) {
    tern_error err = {0};
    const char *a = test_tmp("huge.gguf"), *folder = test_tmp("huge_hf");
    const char *out = test_tmp("huge_out.gguf");
    tiny_model_desc d = {.type = TERN_DTYPE_I2_S, .head_type = TERN_DTYPE_BF16, .seed = 73};
    REQUIRE_OK(tiny_model_write(a, &d, &err), err);
    make_huge(a);
    REQUIRE_OK(tern_convert(a, folder, NULL, &err), err);
    notes told = {0};
    tern_convert_desc to = {.on_note = on_note, .user = &told};
    REQUIRE_OK(tern_convert(folder, out, &to, &err), err);
    CHECK(type_of(out, "token_embd.weight") == TERN_DTYPE_BF16);
    CHECK_MSG(strstr(told.text, "token_embd.weight is BF16, not F16"), "%s", told.text);
    to.head_type = TERN_TYPE_F16;
    CHECK(tern_convert(folder, out, &to, &err) == TERN_ERR_UNSUPPORTED);
    CHECK_MSG(strstr(err.message, "weights up to 999424, and F16 holds 65504"), "%s", err.message);
    to.head_type = TERN_TYPE_Q8_0; // 127 steps of at most 65504
    REQUIRE_OK(tern_convert(folder, out, &to, &err), err);
    CHECK(type_of(out, "token_embd.weight") == TERN_DTYPE_Q8_0);
}

// ---- Rows that are not whole blocks -------------------------------------------------------------

TEST(convert_falls_back_where_rows_are_not_whole_blocks) {
    tern_error err = {0};
    const char *a = test_tmp("rows.gguf"), *out = test_tmp("rows_out.gguf");
    static const struct {
        const char *arch;
        tern_type type;
        tern_dtype narrow, wide; // of rows of 128, of 512
        double bound;
    } cases[] = {
        {"llama", TERN_TYPE_Q4_K, TERN_DTYPE_Q5_0, TERN_DTYPE_Q4_K, 0.15},
        {"llama", TERN_TYPE_Q5_K, TERN_DTYPE_Q5_1, TERN_DTYPE_Q5_K, 0.08},
        {"llama", TERN_TYPE_Q3_K_S, TERN_DTYPE_Q4_0, TERN_DTYPE_Q3_K, 0.3},
        {"llama", TERN_TYPE_IQ4_XS, TERN_DTYPE_IQ4_NL, TERN_DTYPE_IQ4_XS, 0.2},
        {"llama", TERN_TYPE_MXFP4, TERN_DTYPE_MXFP4, TERN_DTYPE_MXFP4, 0.25},
        {"llama", TERN_TYPE_Q6_K, TERN_DTYPE_Q8_0, TERN_DTYPE_Q6_K, 0.05},
        {"llama", TERN_TYPE_Q8_0, TERN_DTYPE_Q8_0, TERN_DTYPE_Q8_0, 0.02},
        {"bitnet-b1.58", TERN_TYPE_TQ2_0, TERN_DTYPE_Q4_0, TERN_DTYPE_TQ2_0, 0.02},
        {"bitnet-b1.58", TERN_TYPE_TQ1_0, TERN_DTYPE_Q4_0, TERN_DTYPE_TQ1_0, 0.02},
        {"bitnet-b1.58", TERN_TYPE_I2_S, TERN_DTYPE_I2_S, TERN_DTYPE_I2_S, 1e-6},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tiny_model_desc d = {
            .arch = cases[i].arch, .type = TERN_DTYPE_BF16, .n_ff = 512, .seed = 74};
        notes told = {0};
        tern_convert_desc to = {.type = cases[i].type, .on_note = on_note, .user = &told};
        REQUIRE_OK(tiny_model_write(a, &d, &err), err);
        REQUIRE_OK(tern_convert(a, out, &to, &err), err);
        CHECK(type_of(out, "blk.0.attn_q.weight") == cases[i].narrow);
        CHECK(type_of(out, "blk.1.ffn_down.weight") == cases[i].wide);
        CHECK_MSG((told.n > 0) == (cases[i].narrow != cases[i].wide), "%s", told.text);
        if (!logits_of(a, want) || !logits_of(out, got)) return;
        CHECK_MSG(difference(got, want) <= cases[i].bound, "%zu: %g", i, difference(got, want));
    }
}

// ---- Mixtures -----------------------------------------------------------------------------------

static bool same_bytes(const char *a, const char *b) {
    FILE *x = fopen(a, "rb"), *y = fopen(b, "rb");
    int c = 0, d = 0;
    while (x && y && (c = getc(x)) == (d = getc(y)) && c != EOF) {
    }
    bool same = x && y && c == d;
    if (x) fclose(x);
    if (y) fclose(y);
    return same;
}

// From floats in a GGUF and in a folder, and from other codes. Seen to fail: with the rules left
// out, with the head's type for a table beside it, with every second row twice.
TEST(convert_mixes_types_from_any_source) {
    tern_error err = {0};
    const char *a = test_tmp("mix.gguf"), *folder = test_tmp("mix_hf");
    const char *q8 = test_tmp("mix_q8.gguf"), *out = test_tmp("mix_out.gguf");
    const char *again = test_tmp("mix_again.gguf");
    const char *const sources[] = {a, folder, q8};
    tiny_model_desc d = {.arch = "llama",
                         .type = TERN_DTYPE_BF16,
                         .head_type = TERN_DTYPE_BF16,
                         .n_layers = 8,
                         .n_embd = 256,
                         .n_ff = 256,
                         .separate_head = true,
                         .seed = 78};
    REQUIRE_OK(tiny_model_write(a, &d, &err), err);
    REQUIRE_OK(tern_convert(a, folder, NULL, &err), err);
    REQUIRE_OK(tern_convert(a, q8, &(tern_convert_desc){.type = TERN_TYPE_Q8_0}, &err), err);
    if (!logits_of(a, want)) return;
    for (int i = 0; i < 3; i++) {
        tern_convert_desc to = {.type = TERN_TYPE_Q4_K_M, .n_threads = 1};
        REQUIRE_OK(tern_convert(sources[i], out, &to, &err), err);
        CHECK(type_of(out, "blk.0.attn_v.weight") == TERN_DTYPE_Q6_K);
        CHECK(type_of(out, "blk.1.attn_v.weight") == TERN_DTYPE_Q4_K);
        CHECK(type_of(out, "blk.3.ffn_down.weight") == TERN_DTYPE_Q6_K);
        CHECK(type_of(out, "blk.4.ffn_down.weight") == TERN_DTYPE_Q4_K);
        CHECK(type_of(out, "blk.7.ffn_up.weight") == TERN_DTYPE_Q4_K);
        CHECK(type_of(out, "blk.7.attn_norm.weight") == TERN_DTYPE_F32);
        CHECK(type_of(out, "output.weight") == TERN_DTYPE_Q6_K);
        CHECK(type_of(out, "token_embd.weight") == TERN_DTYPE_Q4_K);
        if (!logits_of(out, got)) return;
        CHECK_MSG(difference(got, want) <= 0.35, "%s: %g", sources[i], difference(got, want));
    }
    tern_convert_desc to = {.type = TERN_TYPE_Q4_K_M, .n_threads = 3};
    REQUIRE_OK(tern_convert(q8, again, &to, &err), err);
    CHECK(same_bytes(out, again));
    tern_file *f;
    int64_t file_type = 0;
    REQUIRE_OK(tern_file_open(&f, out, &err), err);
    CHECK(tern_file_meta_int(f, "general.file_type", &file_type) && file_type == 15);
    tern_file_close(f);
    d.separate_head = false; // the table is the head
    REQUIRE_OK(tiny_model_write(a, &d, &err), err);
    REQUIRE_OK(tern_convert(a, out, &(tern_convert_desc){.type = TERN_TYPE_Q3_K_L}, &err), err);
    CHECK(type_of(out, "token_embd.weight") == TERN_DTYPE_Q6_K);
    CHECK(tern_convert(a, out, &(tern_convert_desc){.head_type = TERN_TYPE_Q4_K_M}, &err) ==
          TERN_ERR_ARGUMENT);
    CHECK_MSG(strstr(err.message, "Q4_K_M is for many matrices"), "%s", err.message);
    CHECK(tern_convert(a, folder, &(tern_convert_desc){.type = TERN_TYPE_Q5_K_M}, &err) ==
          TERN_ERR_UNSUPPORTED);
    CHECK_MSG(strstr(err.message, "safetensors have no type Q5_K_M"), "%s", err.message);
}

// ---- Tokenizers ---------------------------------------------------------------------------------

static bool replace_in(const char *folder, const char *name, const char *from, const char *to) {
    tern_strbuf path = {0}, text = {0};
    tern_error err = {0};
    char bytes[4096];
    tern_strbuf_printf(&path, "%s/%s", folder, name);
    FILE *f = fopen(path.ptr, "rb");
    for (size_t n; f && (n = fread(bytes, 1, sizeof bytes, f)) > 0;)
        tern_strbuf_append(&text, bytes, n);
    if (f) fclose(f);
    char *at = text.ptr ? strstr(text.ptr, from) : NULL;
    tern_strbuf fresh = {0};
    if (at) {
        tern_strbuf_append(&fresh, text.ptr, (size_t)(at - text.ptr));
        tern_strbuf_puts(&fresh, to);
        tern_strbuf_puts(&fresh, at + strlen(from));
    }
    bool ok = at && tern_file_write(path.ptr, fresh.ptr, fresh.len, &err) == TERN_OK;
    CHECK_MSG(ok, "%s: no %s", path.ptr, from);
    tern_strbuf_free(&path);
    tern_strbuf_free(&text);
    tern_strbuf_free(&fresh);
    return ok;
}

// A rule that GGUF cannot express is reported, with a text that it changes. Seen to fail without
// the comparison of the two tokenizers.
TEST(convert_tells_where_ids_will_differ) {
    static const struct {
        const char *from, *to, *text; // text NULL: the ids stay
    } cases[] = {
        {"\"normalizer\": null", "\"normalizer\": null", NULL},
        {"\"normalizer\": null", "\"normalizer\": {\"type\": \"NFC\"}", "cafe\xCC\x81"},
        {"\"normalizer\": null", "\"normalizer\": {\"type\": \"Lowercase\"}", "Hello, world"},
        {"\"normalizer\": null", "\"normalizer\": {\"type\": \"Prepend\", \"prepend\": \"_\"}",
         "Hello, world"},
    };
    tern_error err = {0};
    const char *a = test_tmp("rules.gguf"), *folder = test_tmp("rules_hf");
    const char *out = test_tmp("rules_out.gguf");
    REQUIRE_OK(tiny_model_write(a, &(tiny_model_desc){.seed = 77}, &err), err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        notes told = {0};
        tern_convert_desc to = {.on_note = on_note, .user = &told};
        REQUIRE_OK(tern_convert(a, folder, &to, &err), err);
        CHECK_MSG(told.n == 0, "%s", told.text);
        if (!replace_in(folder, "tokenizer.json", cases[i].from, cases[i].to)) return;
        REQUIRE_OK(tern_convert(folder, out, &to, &err), err);
        CHECK_MSG(told.n == (cases[i].text ? 1 : 0), "%zu: %s", i, told.text);
        if (!cases[i].text) continue;
        CHECK_MSG(strstr(told.text, "GGUF has no form for") && strstr(told.text, cases[i].text),
                  "%s", told.text);
    }
}

// ---- Activations --------------------------------------------------------------------------------

// GGUF's names say which activation is computed; 2B-4T under llama.cpp's name is recognised by its
// whole shape, and the guess is reported. A large vocabulary alone says nothing.
TEST(bitnet_activation_is_told_by_name_and_shape) {
    size_t n;
    const tern_arch *const *list = tern_arch_list(&n);
    while (n > 0 && strcmp((*list)->name, "bitnet") != 0) list++, n--;
    REQUIRE(n > 0);
    const tern_config large = {.n_vocab = 128256, .n_embd = 1024, .n_layers = 12, .n_ff = 4096};
    const tern_config b2 = {.n_vocab = 128256, .n_embd = 2560, .n_layers = 30, .n_ff = 6912};
    const struct {
        const char *name;
        const tern_config *c;
        tern_act_kind act;
        bool guessed;
    } cases[] = {
        {"bitnet", &large, TERN_ACTIVATION_SILU, false},
        {"bitnet", &b2, TERN_ACTIVATION_RELU2, true},
        {"bitnet-b1.58", &b2, TERN_ACTIVATION_RELU2, false},
        {"bitnet-25", &large, TERN_ACTIVATION_RELU2, false},
    };
    for (size_t i = 0; i < 4; i++) {
        const char *guess = NULL;
        CHECK((*list)->gguf_act(cases[i].name, cases[i].c, &guess) == cases[i].act);
        CHECK((guess != NULL) == cases[i].guessed);
    }
}

// ---- What is refused ----------------------------------------------------------------------------

TEST(convert_refuses_architectures_that_are_another_model) {
    tern_error err = {0};
    const char *a = test_tmp("arch.gguf"), *out = test_tmp("arch_out.gguf");
    const char *folder = test_tmp("arch_hf");
    REQUIRE_OK(tiny_model_write(a, &(tiny_model_desc){.seed = 75}, &err), err);
    static const char *const wrong[] = {"llama", "nonsense", "", "bitnet"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) { // the model has squared ReLU
        CHECK(tern_convert(a, out, &(tern_convert_desc){.arch = wrong[i]}, &err) ==
              TERN_ERR_ARGUMENT);
        CHECK_MSG(strstr(err.message, "can be written as bitnet-b1.58, bitnet-25"), "%s",
                  err.message);
        FILE *f = fopen(out, "rb");
        CHECK(f == NULL);
        if (f) fclose(f);
    }
    CHECK(tern_convert(a, folder, &(tern_convert_desc){.arch = "bitnet"}, &err) ==
          TERN_ERR_ARGUMENT);
    REQUIRE_OK(tern_convert(a, out, &(tern_convert_desc){.arch = "bitnet-25"}, &err), err);
    if (logits_of(a, want) && logits_of(out, got)) CHECK(difference(got, want) == 0);
}

// One sentence names any impossible type, and says why.
TEST(convert_refuses_impossible_types_alike) {
    tern_error err = {0};
    const char *a = test_tmp("types.gguf"), *out = test_tmp("types_out.gguf");
    const char *folder = test_tmp("types_hf");
    tiny_model_desc d = {.arch = "llama", .type = TERN_DTYPE_F16, .seed = 76};
    REQUIRE_OK(tiny_model_write(a, &d, &err), err);
    static const tern_type ternary[] = {TERN_TYPE_I2_S, TERN_TYPE_TQ1_0, TERN_TYPE_TQ2_0};
    for (int i = 0; i < 3; i++) {
        CHECK(tern_convert(a, out, &(tern_convert_desc){.type = ternary[i]}, &err) ==
              TERN_ERR_UNSUPPORTED);
        CHECK_MSG(strstr(err.message, "not ternary"), "%s", err.message);
        CHECK(tern_convert(a, out, &(tern_convert_desc){.head_type = ternary[i]}, &err) ==
              TERN_ERR_UNSUPPORTED);
        CHECK_MSG(strstr(err.message, "not ternary"), "%s", err.message);
    }
    // Ternary numbers, and a scale for each 64: "it is not ternary" was said of them, too.
    const char *grouped = test_tmp("types_grouped.gguf");
    tiny_model_desc q2 = {.arch = "qwen3", .type = TERN_DTYPE_Q2_0, .seed = 77};
    REQUIRE_OK(tiny_model_write(grouped, &q2, &err), err);
    CHECK(tern_convert(grouped, out, &(tern_convert_desc){.type = TERN_TYPE_I2_S}, &err) ==
          TERN_ERR_UNSUPPORTED);
    CHECK_MSG(strstr(err.message, "it has a scale for each group of 64 weights"), "%s",
              err.message);
    tern_convert_desc blocks[] = {{.type = TERN_TYPE_Q8_0}, {.head_type = TERN_TYPE_Q8_0}};
    for (int i = 0; i < 2; i++) {
        CHECK(tern_convert(a, folder, &blocks[i], &err) == TERN_ERR_UNSUPPORTED);
        CHECK_MSG(strstr(err.message, "safetensors have no type Q8_0"), "%s", err.message);
    }
    CHECK(tern_convert(a, out, &(tern_convert_desc){.type = (tern_type)99}, &err) ==
          TERN_ERR_ARGUMENT);
}

// A model some of whose matrices are of IQ3_S: blocks of Q3_K, which are of the same size, get its
// number, and scales that are numbers.
static void write_iq3_s(const char *path) {
    const tiny_model_desc d = {
        .arch = "llama", .n_embd = 256, .n_ff = 256, .n_layers = 1, .head_dim = 64};
    const tern_convert_desc to = {.type = TERN_TYPE_Q3_K_S};
    const char *floats = test_tmp("grid_of.gguf");
    const uint32_t id = (uint32_t)tern_dtype_ggml_id(TERN_DTYPE_IQ3_S);
    tern_error err;
    tern_file *f;
    size_t size, n_changed = 0, each = tern_dtype_block_bytes(TERN_DTYPE_IQ3_S);
    REQUIRE(each == tern_dtype_block_bytes(TERN_DTYPE_Q3_K));
    REQUIRE_OK(tiny_model_write(floats, &d, &err), err);
    REQUIRE_OK(tern_convert(floats, path, &to, &err), err);
    char *bytes = test_read(path, &size);
    REQUIRE_OK(tern_file_open(&f, path, &err), err);
    for (size_t i = 0; i < f->n_tensors; i++) {
        const tern_tensor *t = &f->tensors[i];
        if (t->type != TERN_DTYPE_Q3_K) continue;
        char *at = memmem(bytes, size, t->name, strlen(t->name));
        char *data = memmem(bytes, size, test_bytes(&t->data), t->bytes);
        REQUIRE(at && data);
        memcpy(at + strlen(t->name) + 4 + 2 * 8, &id, sizeof id);
        for (size_t b = 0; b < t->bytes; b += each) data[b + 1] = 0x10;
        n_changed++;
    }
    CHECK_MSG(n_changed > 3, "%zu matrices", n_changed);
    tern_file_close(f);
    test_write(path, bytes, size);
    free(bytes);
}

// A model whose matrices of layers have this type, of bytes that are drawn; NVFP4 with the scales
// that are beside it.
#define SCALE_OF_MATRIX 0.0625f
static void put_bytes(tern_gguf_writer *w, const tern_tensor *t, tern_dtype type) {
    static uint8_t bytes[256 * 512];
    const size_t each = tern_dtype_block_bytes(type), block_n = tern_dtype_block_n(type);
    const size_t n = (size_t)(t->ne[0] * t->ne[1]) / block_n * each;
    uint32_t state = (uint32_t)t->bytes ^ (uint32_t)t->name[7];
    tern_error err;
    REQUIRE(n <= sizeof bytes);
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(state >> 16);
        if (type == TERN_DTYPE_NVFP4 && i % each < 4) bytes[i] = (uint8_t)(0x28 | (bytes[i] & 7));
        if (type == TERN_DTYPE_STQ1_0 && i % each == each - 1) bytes[i] = 0x2a; // 0.05
    }
    REQUIRE_OK(tern_gguf_write(w, bytes, n, &err), err);
}

static bool is_replaced(const tern_tensor *t) {
    return tern_tensor_block(t->name, NULL) >= 0 && t->ne[1] > 1;
}

static void declare_all(tern_gguf_writer *w, const tern_file *f, tern_dtype type) {
    for (size_t i = 0; i < f->n_tensors; i++) {
        const tern_tensor *t = &f->tensors[i];
        const tern_dtype to = is_replaced(t) ? type : t->type;
        REQUIRE(tern_gguf_declare(w, t->name, to, t->n_dims, t->ne) == TERN_OK);
    }
    for (size_t i = 0; type == TERN_DTYPE_NVFP4 && i < f->n_tensors; i++) {
        const tern_tensor *t = &f->tensors[i];
        const int n = (int)(strlen(t->name) - strlen(".weight"));
        const char *ends[] = {"scale", "input_scale"};
        char name[96];
        for (int k = 0; is_replaced(t) && k < 2; k++) {
            snprintf(name, sizeof name, "%.*s.%s", n, t->name, ends[k]);
            REQUIRE(tern_gguf_declare(w, name, TERN_DTYPE_F32, 1, (uint64_t[]){1}) == TERN_OK);
        }
    }
}

static void write_with_bytes(const char *path, tern_dtype type) {
    const tiny_model_desc d = {
        .arch = "llama", .n_embd = 256, .n_ff = 256, .n_layers = 1, .head_dim = 64};
    const char *floats = test_tmp("bytes_of.gguf");
    tern_gguf_writer *w;
    tern_file *f;
    tern_error err;
    REQUIRE_OK(tiny_model_write(floats, &d, &err), err);
    REQUIRE_OK(tern_file_open(&f, floats, &err), err);
    REQUIRE_OK(tern_gguf_writer_open(&w, path, 0, &err), err);
    for (size_t i = 0; i < f->n_metas; i++) CHECK(tern_gguf_put_meta(w, &f->metas[i]) == TERN_OK);
    declare_all(w, f, type);
    for (size_t i = 0; i < f->n_tensors; i++) {
        const tern_tensor *t = &f->tensors[i];
        if (is_replaced(t))
            put_bytes(w, t, type);
        else
            REQUIRE_OK(tern_gguf_write(w, test_bytes(&t->data), t->bytes, &err), err);
    }
    const float scales[] = {SCALE_OF_MATRIX, 0.5f};
    for (size_t i = 0; type == TERN_DTYPE_NVFP4 && i < f->n_tensors; i++)
        for (int k = 0; is_replaced(&f->tensors[i]) && k < 2; k++)
            REQUIRE_OK(tern_gguf_write(w, &scales[k], sizeof *scales, &err), err);
    REQUIRE_OK(tern_gguf_writer_finish(w, &err), err);
    tern_gguf_writer_free(w);
    tern_file_close(f);
}

// Of a matrix the numbers times its scale.
static void check_scaled(const char *path, const char *floats) {
    static float wanted[256 * 256];
    tern_file *f, *g;
    tern_error err;
    REQUIRE_OK(tern_file_open(&f, path, &err), err);
    REQUIRE_OK(tern_file_open(&g, floats, &err), err);
    const tern_tensor *t = tern_file_tensor(f, "blk.0.ffn_down.weight"),
                      *u = tern_file_tensor(g, "blk.0.ffn_down.weight");
    REQUIRE(t && u && t->type == TERN_DTYPE_NVFP4 && u->type == TERN_DTYPE_F32);
    tern_dtype_decode(t->type, test_bytes(&t->data), 0, 256 * 256, 1, wanted);
    for (int i = 0; i < 256 * 256; i++) wanted[i] *= SCALE_OF_MATRIX;
    CHECK(memcmp(wanted, test_bytes(&u->data), sizeof wanted) == 0);
    tern_file_close(f);
    tern_file_close(g);
}

// NVFP4 with a scale beside each matrix: as the floats that it stands for, also if no type is asked
// for. Seen to fail: with scales that are left unread.
TEST(convert_reads_nvfp4_with_its_scales) {
    const char *path = test_tmp("nvfp4.gguf"), *floats = test_tmp("nvfp4_f32.gguf"),
               *as_it_is = test_tmp("nvfp4_as_it_is.gguf");
    const tern_convert_desc d = {.type = TERN_TYPE_F32};
    tern_error err;
    write_with_bytes(path, TERN_DTYPE_NVFP4);
    REQUIRE_OK(tern_convert(path, floats, &d, &err), err);
    REQUIRE_OK(tern_convert(path, as_it_is, NULL, &err), err);
    check_scaled(path, floats);
    check_scaled(path, as_it_is);
    REQUIRE(logits_of(path, got) && logits_of(floats, want));
    CHECK_MSG(difference(got, want) < 1e-6, "%g", difference(got, want));
    CHECK(got[0] != got[1] && isfinite(got[0]));
}

// The trits of STQ1_0 and their scales are those of a TQ2_0 file, whose kernels it has.
TEST(convert_turns_stq1_0_into_tq2_0) {
    const char *path = test_tmp("stq.gguf"), *other = test_tmp("stq_tq2_0.gguf");
    const tern_convert_desc d = {.type = TERN_TYPE_TQ2_0,
                                 .head_type = TERN_TYPE_F32,
                                 .force_ternary = true},
                            back = {.type = TERN_TYPE_F32};
    tern_error err;
    write_with_bytes(path, TERN_DTYPE_STQ1_0);
    REQUIRE_OK(tern_convert(path, other, &d, &err), err);
    REQUIRE(logits_of(path, got) && logits_of(other, want));
    CHECK_MSG(difference(got, want) == 0, "%g", difference(got, want));
    CHECK(got[0] != got[1] && isfinite(got[0]));
    REQUIRE_OK(tern_convert(path, other, &back, &err), err);
    REQUIRE(logits_of(other, want));
    CHECK_MSG(difference(got, want) < 0.05, "%g", difference(got, want));
}

// Types with grids run as the floats that they are converted to. Seen to fail: with types that are
// only listed.
TEST(convert_reads_types_with_grids) {
    const char *path = test_tmp("grid.gguf"), *floats = test_tmp("grid_f32.gguf");
    const tern_convert_desc d = {.type = TERN_TYPE_F32};
    tern_error err;
    write_iq3_s(path);
    REQUIRE_OK(tern_convert(path, floats, &d, &err), err);
    REQUIRE(logits_of(path, got) && logits_of(floats, want));
    CHECK_MSG(difference(got, want) < 1e-6, "%g", difference(got, want));
    CHECK(got[0] != got[1] && isfinite(got[0]));
}

// With force_ternary floats become trits or signs by the rule of training, embedding and head Q8_0.
// Seen to fail: with the search for other types, which refuses them, and with a head of trits.
TEST(convert_rounds_floats_to_trits_if_it_must) {
    static const tern_type trits[] = {TERN_TYPE_Q2_0,  TERN_TYPE_PQ2_0, TERN_TYPE_PTQ1_0,
                                      TERN_TYPE_TQ1_0, TERN_TYPE_TQ2_0, TERN_TYPE_Q1_0};
    const tiny_model_desc d = {.arch = "qwen3", .seed = 78, .n_embd = 256, .n_ff = 256};
    const char *in = test_tmp("forced_in.gguf"), *out = test_tmp("forced_out.gguf");
    tern_error err;
    tern_file *a, *b;
    REQUIRE_OK(tiny_model_write(in, &d, &err), err);
    REQUIRE_OK(tern_file_open(&a, in, &err), err);
    for (size_t k = 0; k < sizeof trits / sizeof *trits; k++) {
        const tern_convert_desc to = {.type = trits[k], .force_ternary = true};
        tern_dtype type = TERN_DTYPE_F32;
        size_t n_rounded = 0;
        REQUIRE_OK(tern_convert(in, out, &to, &err), err);
        REQUIRE_OK(tern_file_open(&b, out, &err), err);
        tern_dtype_from_name(tern_type_name(trits[k]), &type);
        for (size_t i = 0; i < b->n_tensors; i++) {
            const tern_tensor *t = &b->tensors[i];
            size_t n, m;
            const bool is_layer = tern_tensor_block(t->name, NULL) >= 0;
            if (t->n_dims < 2) continue;
            CHECK_MSG(t->type == (is_layer ? type : TERN_DTYPE_Q8_0), "%s is %s", t->name,
                      tern_dtype_name(t->type));
            if (!is_layer) continue;
            float *want_w = decode(tern_file_tensor(a, t->name), &n), *w = decode(t, &m);
            tern_dtype_round(type, want_w, NULL, n, want_w, NULL);
            CHECK_MSG(n == m && memcmp(want_w, w, n * sizeof *w) == 0, "%s", t->name);
            free(want_w);
            free(w);
            n_rounded++;
        }
        tern_file_close(b);
        CHECK(n_rounded == 14);
        CHECK(logits_of(out, got) && isfinite(got[0]));
    }
    tern_file_close(a);
}

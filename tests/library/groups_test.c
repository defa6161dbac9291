// Models whose weights are codes with a scale for each group, through the public interface.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/dtype/half.h"
#include "formats/formats.h"
#include "tests/support/blobs.h"
#include "tests/support/harness.h"
#include "tern.h"
#include "tern_tools.h"
#include "tests/support/tiny_model.h"

#define N_IDS 23
static const int32_t ids[N_IDS] = {5,  70, 100, 33, 259, 8,  120, 64, 260, 90, 91, 92,
                                   93, 94, 95,  96, 97,  98, 99,  40, 41,  42, 43};

// Rows of logits for all ids, in steps of `step`. False: it failed, and was said.
static bool logits_of(const char *path, bool precise, size_t step, float *out) {
    tern_error err = {0};
    tern_model *model = NULL;
    tern_session *session = NULL;
    tern_model_desc desc = {.precise = precise, .n_threads = 2};
    bool ok = tern_model_open(&model, path, &desc, &err) == TERN_OK &&
              tern_session_open(&session, model, NULL, &err) == TERN_OK;
    for (size_t i = 0; ok && i < N_IDS; i += step) {
        size_t n = N_IDS - i < step ? N_IDS - i : step;
        ok = tern_session_logits(session, ids + i, n, out + i * TINY_N_VOCAB, &err) == TERN_OK;
    }
    test_check(ok, __FILE__, __LINE__, "%s: %s", path, err.message);
    tern_session_close(session);
    tern_model_close(model);
    return ok;
}

static const struct {
    tern_dtype type, head;
} kinds[] = {
    {TERN_DTYPE_Q2_0, TERN_DTYPE_Q2_0},     {TERN_DTYPE_PQ2_0, TERN_DTYPE_F16},
    {TERN_DTYPE_PTQ1_0, TERN_DTYPE_PTQ1_0}, {TERN_DTYPE_Q1_0, TERN_DTYPE_Q1_0},
    {TERN_DTYPE_TQ2_0, TERN_DTYPE_F16},     {TERN_DTYPE_Q8_0, TERN_DTYPE_Q8_0},
    {TERN_DTYPE_Q4_0, TERN_DTYPE_F16},      {TERN_DTYPE_Q4_K, TERN_DTYPE_Q6_K},
    {TERN_DTYPE_Q5_K, TERN_DTYPE_Q4_K},     {TERN_DTYPE_Q6_K, TERN_DTYPE_Q6_K},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

// Gives the blocks of all TQ2_0 tensors scales of their own.
static bool vary_scales(const char *path) {
    static char all[4 << 20];
    tern_error err = {0};
    tern_file *file;
    FILE *f = fopen(path, "rb+");
    size_t n = f ? fread(all, 1, sizeof all, f) : 0, n_varied = 0;
    if (tern_file_open(&file, path, &err) != TERN_OK) return false;
    for (size_t i = 0; i < file->n_tensors; i++) {
        const tern_tensor *t = &file->tensors[i];
        if (t->type != TERN_DTYPE_TQ2_0) continue;
        char *at = memmem(all, n, test_bytes(&t->data), (size_t)t->bytes);
        for (size_t b = 0; at && b < t->bytes / 66; b++, n_varied++) {
            uint16_t scale = tern_f32_to_f16(0.03f + 0.002f * (float)(b * 7 % 20));
            memcpy(at + 66 * b + 64, &scale, 2);
        }
    }
    tern_file_close(file);
    bool ok = f && n < sizeof all && n_varied > 0 && fseek(f, 0, SEEK_SET) == 0 &&
              fwrite(all, 1, n, f) == n;
    return f && fclose(f) == 0 && ok;
}

static bool write_kind(const char *path, size_t i) {
    tern_error err = {0};
    const tiny_model_desc d = {.arch = "qwen3",
                               .type = kinds[i].type,
                               .head_type = kinds[i].head,
                               .seed = 40 + (unsigned)i,
                               .n_embd = 256,
                               .n_ff = 512};
    bool ok = tiny_model_write(path, &d, &err) == TERN_OK &&
              (d.type != TERN_DTYPE_TQ2_0 || vary_scales(path));
    test_check(ok, __FILE__, __LINE__, "%s", err.message);
    return ok;
}

// Seen to fail: when a token of a block took its neighbour's scale.
TEST(groups_rows_have_the_bits_of_single_steps) {
    static float whole[N_IDS * TINY_N_VOCAB], steps[N_IDS * TINY_N_VOCAB];
    const char *path = test_tmp("groups.gguf");
    for (size_t i = 0; i < N_KINDS; i++) {
        if (!write_kind(path, i) || !logits_of(path, false, N_IDS, whole)) return;
        for (size_t step = 1; step < N_IDS; step += 6) {
            if (!logits_of(path, false, step, steps)) return;
            CHECK_MSG(memcmp(whole, steps, sizeof whole) == 0, "%s, %zu at once",
                      tern_dtype_name(kinds[i].type), step);
        }
    }
}

// With float activations the numbers are those of the same weights as floats, to the bit; rounded
// to int8 they are near, and others. Seen to fail: when --precise did not reach the head,
// and when blocks of 256 took the scale of the first.
TEST(groups_are_the_same_weights_as_floats) {
    static float precise[N_IDS * TINY_N_VOCAB], floats[N_IDS * TINY_N_VOCAB];
    static float rounded[N_IDS * TINY_N_VOCAB];
    const char *path = test_tmp("groups.gguf"), *as_floats = test_tmp("groups_f32.gguf");
    for (size_t i = 0; i < N_KINDS; i++) {
        tern_error err = {0};
        tern_convert_desc to_floats = {.type = TERN_TYPE_F32, .head_type = TERN_TYPE_F32};
        if (!write_kind(path, i)) return;
        REQUIRE_OK(tern_convert(path, as_floats, &to_floats, &err), err);
        if (!logits_of(path, true, N_IDS, precise) || !logits_of(as_floats, false, N_IDS, floats) ||
            !logits_of(path, false, N_IDS, rounded))
            return;
        CHECK_MSG(memcmp(precise, floats, sizeof floats) == 0, "%s",
                  tern_dtype_name(kinds[i].type));
        double apart = 0, size = 0;
        for (size_t k = 0; k < N_IDS * TINY_N_VOCAB; k++) {
            apart += pow((double)rounded[k] - (double)precise[k], 2);
            size += pow((double)precise[k], 2);
        }
        CHECK_MSG(apart > 0 && sqrt(apart / size) < 0.025, "%s: %g", tern_dtype_name(kinds[i].type),
                  sqrt(apart / size));
    }
}

// A folder of floats that are ternary, with several scales a matrix, is multiplied as the GGUF that
// it was made of. Seen to fail: when such floats stayed floats.
TEST(groups_are_found_in_a_folder_of_floats) {
    static float want[N_IDS * TINY_N_VOCAB], got[N_IDS * TINY_N_VOCAB];
    const char *path = test_tmp("groups.gguf"), *folder = test_tmp("groups_floats");
    tern_error err = {0};
    tern_convert_desc to_floats = {.type = TERN_TYPE_F16, .head_type = TERN_TYPE_F16};
    if (!write_kind(path, 4)) return; // TQ2_0, whose scales are varied; its head is F16
    REQUIRE_OK(tern_convert(path, folder, &to_floats, &err), err);
    if (!logits_of(path, false, N_IDS, want) || !logits_of(folder, false, N_IDS, got)) return;
    CHECK(memcmp(want, got, sizeof want) == 0);
}

// There and back through every type that holds the weights, the model is the same.
TEST(groups_survive_conversion) {
    static const tern_type trits[] = {TERN_TYPE_Q2_0, TERN_TYPE_PQ2_0, TERN_TYPE_PTQ1_0};
    static float want[N_IDS * TINY_N_VOCAB], got[N_IDS * TINY_N_VOCAB];
    const char *path = test_tmp("groups.gguf"), *other = test_tmp("groups_other.gguf");
    if (!write_kind(path, 2) || !logits_of(path, true, N_IDS, want)) return;
    for (size_t i = 0; i < 3; i++) {
        tern_error err = {0};
        REQUIRE_OK(tern_convert(path, other,
                                &(tern_convert_desc){.type = trits[i], .head_type = trits[i]},
                                &err),
                   err);
        if (!logits_of(other, true, N_IDS, got)) return;
        CHECK_MSG(memcmp(want, got, sizeof got) == 0, "%s", tern_type_name(trits[i]));
    }
    tern_error err = {0}; // three numbers have no place in one bit, nor floats in two
    CHECK(tern_convert(path, other, &(tern_convert_desc){.type = TERN_TYPE_Q1_0}, &err) ==
          TERN_ERR_UNSUPPORTED);
    CHECK_MSG(strstr(err.message, "cannot become Q1_0"), "%s", err.message);
    REQUIRE_OK(tiny_model_write(path, &(tiny_model_desc){.arch = "qwen3"}, &err), err);
    CHECK(tern_convert(path, other, &(tern_convert_desc){.type = TERN_TYPE_Q2_0}, &err) ==
          TERN_ERR_UNSUPPORTED);
    CHECK_MSG(strstr(err.message, "cannot become Q2_0"), "%s", err.message);
}

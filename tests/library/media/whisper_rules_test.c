// Whisper's rules of what may be written, by a model whose scores are told: its decoder's layers
// add nothing, and places are so large that a position's row is a column of the table by itself. So
// the scores at position p are five times column p of the table, whatever was said.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/support/blobs.h"
#include "formats/formats.h"
#include "tests/support/harness.h"
#include "tern_audio.h"

#define OWN "tests/oracles/whisper"
enum { WIDTH = 24, VOCAB = 172, TEXT_5 = 5, TEXT_6 = 6, TEXT_7 = 7, END = 60, TIMES = 71 };

typedef struct score {
    int position, token;
    float value;
} score;

static bool has(const char *name, const char *part) { return strstr(name, part) != NULL; }

// Of a tensor of the tiny Whisper, what the told one has.
static void tell(const char *name, float *x, size_t n, const score *scores, size_t n_scores) {
    bool decoder = has(name, "decoder.");
    bool adds = has(name, ".out_proj.") || has(name, ".fc2.");
    if (decoder && adds) memset(x, 0, n * sizeof *x);
    if (has(name, "decoder.embed_positions")) {
        memset(x, 0, n * sizeof *x);
        for (size_t p = 0; p < n / WIDTH; p++) x[p * WIDTH + p % WIDTH] = 1e6f;
    }
    if (has(name, "decoder.layer_norm.weight"))
        for (size_t i = 0; i < n; i++) x[i] = 1;
    // Of a row with one number, the others become minus the root of 1 / 23.
    if (has(name, "decoder.layer_norm.bias"))
        for (size_t i = 0; i < n; i++) x[i] = 0.20851441f;
    if (!has(name, "embed_tokens")) return;
    for (size_t i = 0; i < n; i++) x[i] = -4;
    for (size_t i = 0; i < n_scores; i++)
        x[scores[i].token * WIDTH + scores[i].position] = scores[i].value;
}

static void write_tensors(tern_st_writer *w, const score *scores, size_t n_scores) {
    tern_error err = {0};
    tern_file *file;
    REQUIRE_OK(tern_file_open(&file, OWN "/model.safetensors", &err), err);
    for (size_t i = 0; i < file->n_tensors; i++) {
        const tern_tensor *t = &file->tensors[i];
        uint64_t shape[4];
        for (int d = 0; d < t->n_dims; d++) shape[d] = t->ne[t->n_dims - 1 - d];
        CHECK(tern_st_declare(w, t->name, TERN_DTYPE_F32, t->n_dims, shape) == TERN_OK);
    }
    for (size_t i = 0; i < file->n_tensors; i++) {
        const tern_tensor *t = &file->tensors[i];
        float *x = malloc((size_t)t->bytes);
        REQUIRE(x);
        memcpy(x, test_bytes(&t->data), (size_t)t->bytes);
        tell(t->name, x, (size_t)t->bytes / sizeof *x, scores, n_scores);
        CHECK_MSG(tern_st_write(w, x, t->bytes, &err) == TERN_OK, "%s", err.message);
        free(x);
    }
    tern_file_close(file);
}

static void make_model(const char *folder, const score *scores, size_t n_scores) {
    static const char generation[] = "{\"is_multilingual\": false}";
    tern_error err = {0};
    tern_st_writer *w;
    size_t n;
    char *config = test_read(OWN "/config.json", &n);
    REQUIRE(config);
    REQUIRE_OK(tern_st_writer_open(&w, folder, 0, &err), err);
    CHECK(tern_st_put_file(w, "config.json", config, n, &err) == TERN_OK);
    CHECK(tern_st_put_file(w, "generation_config.json", generation, sizeof generation - 1, &err) ==
          TERN_OK);
    write_tensors(w, scores, n_scores);
    CHECK_MSG(tern_st_writer_finish(w, &err) == TERN_OK, "%s", err.message);
    tern_st_writer_free(w);
    free(config);
}

// What a window of two seconds says, with its times: one segment of these tokens that ends there.
static void check_said(const char *name, const score *scores, size_t n_scores, const int32_t *want,
                       int32_t n_want, double end) {
    tern_error err = {0};
    tern_model *m;
    tern_transcription t;
    tern_sound sound;
    const tern_transcribe_params params = {.no_fallback = true};
    char folder[512];
    snprintf(folder, sizeof folder, "%s", test_tmp(name));
    make_model(folder, scores, n_scores);
    REQUIRE_OK(tern_sound_create(&sound, 16000, 32000, &err), err);
    for (int64_t i = 0; i < sound.n; i++) sound.samples[i] = (float)(i % 80 - 40) / 100;
    REQUIRE_OK(tern_model_open(&m, folder, NULL, &err), err);
    CHECK_MSG(tern_transcribe(m, &sound, &params, &t, &err) == TERN_OK, "%s", err.message);
    CHECK_MSG(t.n == 1, "%s: %zu segments", name, t.n);
    if (t.n == 1) {
        const tern_segment *s = &t.segments[0];
        CHECK_MSG(s->n_ids == n_want && memcmp(s->ids, want, (size_t)n_want * sizeof *want) == 0,
                  "%s: %d tokens, the first is %d", name, (int)s->n_ids, (int)s->ids[0]);
        CHECK_MSG(s->end > end - 1e-5 && s->end < end + 1e-5, "%s: ends at %g", name, s->end);
    }
    tern_transcription_free(&t);
    tern_sound_close(&sound);
    tern_model_close(m);
}

// Text and the end are likelier than any time, and yet a time comes first. Seen to fail: text as
// the first token, and the end.
TEST(whisper_begins_with_a_time) {
    static const score scores[] = {{0, TEXT_5, 2}, {0, END, 1.8f}, {0, TIMES + 3, 0},
                                   {1, TEXT_6, 2}, {2, TEXT_7, 2}, {3, END, 2}};
    static const int32_t want[] = {TEXT_6, TEXT_7};
    check_said("whisper_first", scores, sizeof scores / sizeof *scores, want, 2, 0.06);
}

// After the time that ends a segment text is likelier than the end, and may not come; the end may.
// Seen to fail: no end after a time; text after it.
TEST(whisper_ends_after_a_time) {
    static const score scores[] = {{0, TIMES, 2},  {1, TEXT_5, 2}, {2, TIMES + 10, 2},
                                   {3, TEXT_7, 2}, {3, END, 1},    {4, TEXT_6, 2},
                                   {5, END, 2}};
    static const int32_t want[] = {TEXT_5};
    check_said("whisper_end", scores, sizeof scores / sizeof *scores, want, 1, 0.2);
}

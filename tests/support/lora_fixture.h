// What the tests of training adapters share: small bases of each kind, a text, a short run.
#ifndef TERN_TRAIN_LORA_FIXTURE_H
#define TERN_TRAIN_LORA_FIXTURE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/os/os_file.h"
#include "input/tokenizer/tok_small.h"
#include "tern_tools.h"
#include "tern_train.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

enum { SEQ_LEN = 64 };

// ---- Data --------------------------------------------------------------------------------------

// Shards of a file, with the base's tokenizer.
static inline bool build_data(const char *base, const char *text, const char *end,
                              const char *folder) {
    tern_error err = {0};
    tern_data_build_desc d = {.source = {.paths = &text, .n_paths = 1},
                              .tokenizer = base,
                              .end = end,
                              .valid = 0.2,
                              .n_threads = 1};
    bool ok = tern_data_build(folder, &d, NULL, &err) == TERN_OK;
    CHECK_MSG(ok, "%s", err.message);
    return ok;
}

// Documents that count numbers up.
static inline bool make_data(const char *base, bool is_folder, const char *folder) {
    const char *text = test_tmp("lora_train.txt"), *end = is_folder ? "<end>" : "<|endoftext|>";
    FILE *f = fopen(text, "w");
    if (!f) return false;
    for (int i = 0; i < 400; i++)
        fprintf(f, "the %d%d%d%d the end %d<|endoftext|>", i % 10, (i + 1) % 10, (i + 2) % 10,
                (i + 3) % 10, i); // <|endoftext|> separates documents, whatever the tokenizer has
    fclose(f);
    return build_data(base, text, end, folder);
}

typedef struct losses {
    double first_valid, last_valid, last, share;
    int n_events, stop_at;
} losses;

static inline bool take_losses(void *user, const tern_train_event *e) {
    losses *l = user;
    if (!isnan(e->loss)) l->last = e->loss;
    if (!isnan(e->valid_loss)) {
        if (e->step == 0) l->first_valid = e->valid_loss;
        l->last_valid = e->valid_loss;
    }
    return ++l->n_events != l->stop_at;
}

static inline tern_train_desc small_run(const char *base, const char *data, const char *out,
                                        losses *l) {
    *l = (losses){0};
    return (tern_train_desc){.data = data,
                             .out = out,
                             .init = base,
                             .lora_rank = 8,
                             .seq_len = SEQ_LEN,
                             .batch_tokens = 256,
                             .micro_tokens = 128,
                             .n_steps = 40,
                             .rate = 1e-2f,
                             .log_every = 4,
                             .valid_every = 40,
                             .valid_tokens = 1024,
                             .checkpoint_every = 10,
                             .keep = 2,
                             .n_threads = 1,
                             .seed = 3,
                             .on_event = take_losses,
                             .user = l};
}

// ---- Bases -------------------------------------------------------------------------------------

typedef struct base_kind {
    const char *name;
    tiny_model_desc desc;
    bool folder;
} base_kind;
static const base_kind kinds[] = {
    {"I2_S", {.seed = 70}, false},
    {"TQ2_0", {.seed = 71, .type = TERN_DTYPE_TQ2_0, .n_embd = 256, .n_ff = 256}, false},
    {"master weights", {.seed = 72, .type = TERN_DTYPE_BF16}, false},
    {"ternary folder", {.seed = 73}, true},
    {"Llama of F16", {.arch = "llama", .type = TERN_DTYPE_F16, .seed = 74}, false},
    {"Llama of Q8_0", {.arch = "llama", .type = TERN_DTYPE_Q8_0, .seed = 75}, false},
    {"Llama folder", {.arch = "llama", .seed = 76}, true},
    {"Qwen3 of Q8_0", {.arch = "qwen3", .type = TERN_DTYPE_Q8_0, .seed = 79}, false},
    {"Qwen3 folder", {.arch = "qwen3", .type = TERN_DTYPE_BF16, .seed = 80}, true},
    {"Gemma 3 of F16", {.arch = "gemma3", .type = TERN_DTYPE_F16, .seed = 81}, false},
    {"Gemma 3 folder", {.arch = "gemma3", .type = TERN_DTYPE_BF16, .seed = 82}, true},
    {"LFM2 of F16", {.arch = "lfm2", .type = TERN_DTYPE_F16, .seed = 83}, false},
    {"LFM2 folder", {.arch = "lfm2", .type = TERN_DTYPE_BF16, .seed = 84}, true},
    {"Qwen3.5 of Q8_0", {.arch = "qwen35", .type = TERN_DTYPE_Q8_0, .seed = 88}, false},
    {"Qwen3.5 folder", {.arch = "qwen35", .type = TERN_DTYPE_BF16, .seed = 89}, true},
};
#define N_KINDS (sizeof kinds / sizeof *kinds)

static inline bool write_tokenizer(const char *folder) {
    char path[400];
    tern_strbuf json = {0};
    tern_error err;
    small_byte_level(&json, SMALL_LLAMA3, false);
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    bool ok = tern_file_write(path, json.ptr, json.len, &err) == TERN_OK;
    tern_strbuf_free(&json);
    return ok;
}

static inline bool make_base(const base_kind *k, char *path, size_t size) {
    tern_error err = {0};
    snprintf(path, size, "%s", test_tmp("lora_base.gguf"));
    bool ok = tiny_model_write(path, &k->desc, &err) == TERN_OK;
    if (ok && k->folder) {
        char folder[300];
        snprintf(folder, sizeof folder, "%s", test_tmp("lora_base_folder"));
        ok = tern_convert(path, folder, &(tern_convert_desc){0}, &err) == TERN_OK;
        snprintf(path, size, "%s", folder);
        ok = ok && write_tokenizer(folder);
    }
    CHECK_MSG(ok, "%s: %s", k->name, err.message);
    return ok;
}

// ---- Families ----------------------------------------------------------------------------------

// A folder of tests/oracles with a tokenizer, and text about animals.
static inline bool copy_oracle(const char *from, char *folder, size_t size) {
    static const char *const names[][2] = {{"config.json", "config.json"},
                                           {"model.safetensors", "model.safetensors"},
                                           {"../small_tokenizer.json", "tokenizer.json"}};
    tern_error err = {0};
    bool ok = true;
    snprintf(folder, size, "%s", test_tmp("lora_family"));
    test_folder(folder);
    for (size_t i = 0; i < 3; i++) {
        char in[300], out[400];
        size_t n;
        snprintf(in, sizeof in, "%s/%s", from, names[i][0]);
        snprintf(out, sizeof out, "%s/%s", folder, names[i][1]);
        char *bytes = test_read(in, &n);
        ok = ok && bytes && tern_file_write(out, bytes, n, &err) == TERN_OK;
        free(bytes);
    }
    CHECK_MSG(ok, "%s: %s", from, err.message);
    return ok;
}

static inline bool make_animals(const char *base, const char *folder) {
    static const char *const names[] = {"cat", "dog", "hen", "fox"};
    const char *text = test_tmp("lora_family.txt");
    FILE *f = fopen(text, "w");
    if (!f) return false;
    for (int i = 0; i < 256; i++)
        fprintf(f, "the %s and the %s and the %s, a %s is a pet.<|endoftext|>", names[i % 4],
                names[i / 4 % 4], names[i / 16 % 4], names[i / 64]);
    fclose(f);
    return build_data(base, text, "<stop>", folder);
}

#endif

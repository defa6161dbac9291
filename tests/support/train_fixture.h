// What the tests of training share: a text that is easy to learn, a small model, a run of it.
#ifndef TERN_TESTS_TRAIN_FIXTURE_H
#define TERN_TESTS_TRAIN_FIXTURE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_file.h"
#include "input/tokenizer/tok_small.h"
#include "tests/support/harness.h"
#include "tests/support/shard_fixture.h"
#include "train/trainer.h"

// Documents that count: easy to learn, different enough to need more than the last token.
static inline void write_shard(const char *path, const tern_tokenizer *t, int first,
                               int n_documents) {
    tern_shard_writer *w;
    tern_error err;
    REQUIRE_OK(
        tern_shard_writer_open(
            &w, path,
            &(tern_shard_desc){.n_vocab = (uint32_t)tern_tokenizer_n_vocab(t), .end_id = SMALL_END},
            &err),
        err);
    for (int i = first; i < first + n_documents; i++) {
        tern_ids ids = {0};
        char text[128];
        snprintf(text, sizeof text, "the %d%d%d%d the end<end>", i % 10, (i + 1) % 10, (i + 2) % 10,
                 (i + 3) % 10);
        const unsigned flags = TERN_TOKENIZE_SPECIAL | TERN_TOKENIZE_BOS;
        CHECK(tern_tokenizer_encode(t, text, strlen(text), flags, &ids, &err) == TERN_OK);
        CHECK(tern_shard_write(w, ids.ids, ids.n, &err) == TERN_OK);
        tern_free(ids.ids);
    }
    CHECK(tern_shard_writer_finish(w, &err) == TERN_OK);
    tern_shard_writer_free(w);
}

// Puts tokenizer and shards into a folder.
static inline void make_data_in(const char *folder) {
    char path[4096];
    tern_strbuf json = {0};
    tern_error err;
    tern_file *file;
    tern_tokenizer *t;
    small_byte_level(&json, SMALL_LLAMA3, false);
    test_folder(folder);
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    test_write(path, json.ptr, json.len);
    tern_strbuf_free(&json);
    REQUIRE_OK(tern_file_open(&file, folder, &err), err);
    REQUIRE_OK(tern_tokenizer_open(&t, file, &err), err);
    snprintf(path, sizeof path, "%s/train-00000.tern", folder);
    write_shard(path, t, 0, 400);
    snprintf(path, sizeof path, "%s/valid-00000.tern", folder);
    write_shard(path, t, 5, 30);
    write_manifest(folder);
    tern_tokenizer_free(t);
    tern_file_close(file);
}

static inline void make_data(char *folder, size_t size) {
    snprintf(folder, size, "%s", test_tmp("train_data"));
    make_data_in(folder);
}

typedef struct losses {
    double last, first, valid, best;
    int64_t step, best_step;
    bool ends_early;
    int n_events, stop_at; // stop_at: stop after this many events, 0: never
} losses;

static inline bool take_losses(void *user, const tern_train_event *e) {
    losses *l = user;
    if (!isnan(e->loss)) {
        if (l->first == 0) l->first = e->loss;
        l->last = e->loss;
    }
    if (!isnan(e->valid_loss)) {
        l->valid = e->valid_loss;
        l->best = e->best_valid_loss;
        l->best_step = e->best_step;
    }
    l->ends_early |= e->ends_early;
    l->step = e->step;
    return ++l->n_events != l->stop_at;
}

static inline tern_train_desc small_run(const char *data, const char *out, losses *l) {
    *l = (losses){0};
    return (tern_train_desc){.data = data,
                             .out = out,
                             .n_layers = 2,
                             .n_embd = 32,
                             .n_heads = 2,
                             .n_ff = 64,
                             .seq_len = 64,
                             .batch_tokens = 512,
                             .micro_tokens = 256,
                             .n_steps = 60,
                             .rate = 6e-3f,
                             .rate_2 = 4e-3f,
                             .log_every = 4,
                             .valid_every = 20,
                             .checkpoint_every = 10,
                             .keep = 3,
                             .n_threads = 2,
                             .on_event = take_losses,
                             .user = l};
}

static inline double loss_of_log(const char *out, int step) {
    char path[4096], line[2048];
    double loss = NAN;
    snprintf(path, sizeof path, "%s/log.jsonl", out);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        int at;
        double x;
        char *found = strstr(line, "\"loss\":");
        if (found && sscanf(line, "{\"step\":%d", &at) == 1 && at == step &&
            sscanf(found, "\"loss\":%lf", &x) == 1)
            loss = x;
    }
    if (f) fclose(f);
    return loss;
}

static inline void flip_byte(const char *path, long from_end) {
    FILE *f = fopen(path, "r+b");
    REQUIRE(f != NULL);
    fseek(f, -from_end, SEEK_END);
    int c = fgetc(f);
    fseek(f, -from_end, SEEK_END);
    fputc(c ^ 4, f);
    fclose(f);
}

#endif

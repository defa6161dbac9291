// Training as a whole, on a text that the test makes: it learns, it resumes to the same bits after
// being killed, damaged checkpoints are passed over, and what it writes is a model that runs.
#include <glob.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/alloc.h"
#include "input/tok_small.h"
#include "tests/harness.h"
#include "tests/shard_fixture.h"
#include "train/trainer.h"

static void write_file(const char *path, const char *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    REQUIRE(f != NULL);
    CHECK(fwrite(bytes, 1, n, f) == n);
    fclose(f);
}

// Documents that count: easy to learn, different enough to need more than the last token.
static void write_shard(const char *path, const tern_tokenizer *t, int first, int n_documents) {
    tern_shard_writer *w;
    tern_error err;
    REQUIRE_OK(tern_shard_writer_open(&w, path,
                                      &(tern_shard_desc){.n_vocab =
                                                             (uint32_t)tern_tokenizer_n_vocab(t),
                                                         .end_id = SMALL_END},
                                      &err),
               err);
    for (int i = first; i < first + n_documents; i++) {
        tern_ids ids = {0};
        char text[128];
        snprintf(text, sizeof text, "the %d%d%d%d the end<end>", i % 10, (i + 1) % 10,
                 (i + 2) % 10, (i + 3) % 10);
        CHECK(tern_tokenizer_encode(t, text, strlen(text), 1, &ids, &err) == TERN_OK);
        CHECK(tern_shard_write(w, ids.ids, ids.n, &err) == TERN_OK);
        tern_free(ids.ids);
    }
    CHECK(tern_shard_writer_finish(w, &err) == TERN_OK);
    tern_shard_writer_free(w);
}

// A folder with tokenizer and shards; the same one for all tests of a run.
static void make_data(char *folder, size_t size) {
    char path[512];
    tern_strbuf json = {0};
    tern_error err;
    tern_file *file;
    tern_tokenizer *t;
    snprintf(folder, size, "%s", test_tmp("train_data"));
    small_byte_level(&json, SMALL_LLAMA3, false);
    mkdir(folder, 0777);
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    write_file(path, json.ptr, json.len);
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

typedef struct text_sink {
    char text[512];
    size_t n;
} text_sink;
static bool text_collect_test(void *user, const char *bytes, size_t n) {
    text_sink *s = user;
    if (n > sizeof s->text - 1 - s->n) n = sizeof s->text - 1 - s->n;
    memcpy(s->text + s->n, bytes, n);
    s->n += n;
    return true;
}

typedef struct losses {
    double last, first, valid;
    int n_events, stop_at; // stop_at: events after which the run is stopped, 0: never
} losses;

static bool take_losses(void *user, const tern_train_event *e) {
    losses *l = user;
    if (!isnan(e->loss)) {
        if (l->first == 0) l->first = e->loss;
        l->last = e->loss;
    }
    if (!isnan(e->valid_loss)) l->valid = e->valid_loss;
    return ++l->n_events != l->stop_at;
}

static tern_train_desc small_run(const char *data, const char *out, losses *l) {
    *l = (losses){0};
    return (tern_train_desc){.data = data, .out = out, .n_layers = 2, .n_embd = 32, .n_heads = 2,
                             .n_ff = 64, .seq_len = 64, .batch_tokens = 512, .micro_tokens = 256,
                             .n_steps = 60, .rate = 6e-3f, .rate_2 = 4e-3f, .log_every = 4,
                             .valid_every = 20, .checkpoint_every = 10, .keep = 3, .n_threads = 2,
                             .on_event = take_losses, .user = l};
}

TEST(training_learns_and_writes_a_model_that_runs) {
    char data[300], out[300], path[400];
    tern_error err;
    losses l;
    for (int recipe = TERN_RECIPE_BITNET; recipe <= TERN_RECIPE_LLAMA; recipe++) {
        make_data(data, sizeof data);
        snprintf(out, sizeof out, "%s", test_tmp("train_out"));
        tern_train_desc d = small_run(data, out, &l);
        d.recipe = (tern_recipe)recipe;
        d.n_steps = 150;
        d.n_threads = 1;
        REQUIRE_OK(tern_train(&d, &err), err);
        CHECK_MSG(l.first > 2.5 && l.last < 0.5 && l.valid < 0.5,
                  "recipe %d: %g to %g, held out %g", recipe, l.first, l.last, l.valid);
        snprintf(path, sizeof path, "%s/step-00000150.gguf", out);
        tern_model *m;
        tern_session *s;
        REQUIRE_OK(tern_model_open(&m, path, NULL, &err), err);
        REQUIRE_OK(tern_session_open(&s, m, NULL, &err), err);
        tern_sampling greedy = {0};
        text_sink sink = {0};
        tern_generate_params p = {.sampling = &greedy, .max_tokens = 24};
        CHECK(tern_generate(s, "the 4", &p, text_collect_test, &sink, NULL, &err) == TERN_OK);
        CHECK_MSG(strstr(sink.text, "567 the end") != NULL, "recipe %d: '%s'", recipe,
                  sink.text);
        tern_session_close(s);
        tern_model_close(m);
    }
}

static double loss_of_log(const char *out, int step) {
    char path[400], line[2048];
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

TEST(training_resumes_to_the_same_bits_after_being_killed) {
    char data[300], whole[300], cut[300];
    tern_error err;
    losses l;
    make_data(data, sizeof data);
    snprintf(whole, sizeof whole, "%s", test_tmp("train_whole"));
    snprintf(cut, sizeof cut, "%s", test_tmp("train_cut"));
    tern_train_desc d = small_run(data, whole, &l);
    REQUIRE_OK(tern_train(&d, &err), err);
    d = small_run(data, cut, &l);
    d.resume = true;
    for (int i = 0; i < 6; i++) {
        pid_t child = fork();
        if (child == 0) {
            tern_train(&d, &err);
            _exit(0);
        }
        usleep(50000 + 50000 * (useconds_t)i);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    REQUIRE_OK(tern_train(&d, &err), err);
    for (int step = 4; step <= 60; step += 4)
        CHECK_MSG(loss_of_log(whole, step) == loss_of_log(cut, step), "step %d: %.9g and %.9g",
                  step, loss_of_log(whole, step), loss_of_log(cut, step));
}

static void flip_byte(const char *path, long from_end) {
    FILE *f = fopen(path, "r+b");
    REQUIRE(f != NULL);
    fseek(f, -from_end, SEEK_END);
    int c = fgetc(f);
    fseek(f, -from_end, SEEK_END);
    fputc(c ^ 4, f);
    fclose(f);
}

TEST(training_passes_over_a_damaged_checkpoint) {
    char data[300], out[300], path[400];
    tern_error err;
    losses l;
    make_data(data, sizeof data);
    snprintf(out, sizeof out, "%s", test_tmp("train_damaged"));
    tern_train_desc d = small_run(data, out, &l);
    d.resume = true;
    l.stop_at = 9; // in the middle: after the checkpoint of step 20
    CHECK(tern_train(&d, &err) == TERN_ERR_CANCELLED);
    glob_t found;
    snprintf(path, sizeof path, "%s/step-*.gguf", out);
    REQUIRE(glob(path, 0, NULL, &found) == 0 && found.gl_pathc >= 2);
    flip_byte(found.gl_pathv[found.gl_pathc - 1], 1000);
    globfree(&found);
    tern_trainer *t;
    REQUIRE_OK(tern_trainer_open(&t, &d, &err), err);
    bool resumed;
    CHECK(tern_checkpoint_resume(t, &resumed, &err) == TERN_OK && resumed);
    CHECK_MSG(t->step > 0 && t->step % 10 == 0, "step %lld", (long long)t->step);
    tern_trainer_close(t);
    d.n_embd = 64;
    CHECK(tern_train(&d, &err) == TERN_ERR_ARGUMENT);
    CHECK_MSG(strstr(err.message, "n_embd"), "%s", err.message);
}

TEST(training_refuses_what_does_not_fit) {
    char data[300], out[300];
    tern_error err;
    losses l;
    make_data(data, sizeof data);
    snprintf(out, sizeof out, "%s", test_tmp("train_refused"));
    tern_train_desc d = small_run(data, out, &l);
    d.batch_tokens = 500;
    CHECK(tern_train(&d, &err) == TERN_ERR_ARGUMENT);
    d = small_run(data, out, &l);
    d.n_heads = 3;
    CHECK(tern_train(&d, &err) == TERN_ERR_ARGUMENT);
    d = small_run(data, out, &l);
    d.preset = "huge";
    CHECK(tern_train(&d, &err) == TERN_ERR_ARGUMENT);
    d = small_run(out, out, &l); // no shards there
    CHECK(tern_train(&d, &err) == TERN_ERR_ARGUMENT);
    char tokenizer[330], aside[340];
    snprintf(tokenizer, sizeof tokenizer, "%s/tokenizer.json", data);
    snprintf(aside, sizeof aside, "%s.aside", tokenizer);
    CHECK(rename(tokenizer, aside) == 0);
    d = small_run(data, out, &l);
    CHECK(tern_train(&d, &err) == TERN_ERR_ARGUMENT);
    CHECK_MSG(strstr(err.message, "tokenizer.json"), "%s", err.message);
    CHECK(rename(aside, tokenizer) == 0);
}

TEST(training_schedules) {
    tern_train_desc d = {.n_steps = 1000, .rate = 1, .rate_2 = 0.5f, .n_warmup = 10,
                         .weight_decay = 0.1f, .schedule = TERN_SCHEDULE_TWO_STAGE};
    CHECK(fabsf(tern_train_rate(&d, 5) - 0.498f) < 1e-3f);
    CHECK(fabsf(tern_train_rate(&d, 11) - 0.99f) < 1e-3f);
    CHECK(fabsf(tern_train_rate(&d, 500) - 0.501f) < 1e-3f);
    CHECK(fabsf(tern_train_rate(&d, 501) - 0.25f) < 1e-3f);
    CHECK(tern_train_decay(&d, 500) > 0 && tern_train_decay(&d, 501) == 0);
    d.schedule = TERN_SCHEDULE_COSINE;
    CHECK(fabsf(tern_train_rate(&d, 501) - 0.55f) < 1e-3f && tern_train_decay(&d, 900) > 0);
}

// Training as a whole, on a text that the test makes: it learns, it resumes to the same bits after
// being killed, damaged checkpoints are skipped, and the result is a model that runs.
#include <glob.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/alloc.h"
#include "input/tokenizer/tok_small.h"
#include "tests/support/blobs.h"
#include "tests/support/harness.h"
#include "tests/support/train_fixture.h"

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

TEST(training_learns_and_writes_a_model_that_runs) {
    char data[300], out[300], path[400];
    tern_error err;
    losses l;
    for (int recipe = TERN_RECIPE_BITNET; recipe <= TERN_RECIPE_LLAMA; recipe++) {
        make_data(data, sizeof data);
        snprintf(out, sizeof out, "%s%d", test_tmp("train_out"), recipe);
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
        tern_generate_params p = {
            .sampling = &greedy, .max_tokens = 24, .on_text = text_collect_test, .user = &sink};
        CHECK(tern_generate(s, "the 4", &p, NULL, &err) == TERN_OK);
        CHECK_MSG(strstr(sink.text, "567 the end") != NULL, "recipe %d: '%s'", recipe, sink.text);
        tern_session_close(s);
        tern_model_close(m);
    }
}

static void take_begin(void *user, const tern_train_info *i) {
    ((losses *)user)->step = i->n_damaged ? -1 : i->step;
}

static tern_train_desc run_of(const char *data, const char *out, const tern_train_desc *own,
                              losses *l) {
    tern_train_desc d = small_run(data, out, l);
    d.optimizer = own->optimizer;
    d.bf16 = own->bf16;
    d.bf16_masters = own->bf16_masters;
    d.recipe = own->recipe;
    d.qat = own->qat;
    d.qat_warmup = own->qat_warmup;
    return d;
}

// own: what differs from small_run.
static void check_resumes(const tern_train_desc *own, int n_kills) {
    char data[300], whole[300], cut[300];
    tern_error err;
    losses l;
    make_data(data, sizeof data);
    const int kind =
        (int)own->optimizer + (own->bf16_masters ? own->qat ? 20 : 10 : 0) + (own->bf16 ? 40 : 0);
    snprintf(whole, sizeof whole, "%s%d", test_tmp("train_whole"), kind);
    snprintf(cut, sizeof cut, "%s%d", test_tmp("train_cut"), kind);
    tern_train_desc d = run_of(data, whole, own, &l);
    REQUIRE_OK(tern_train(&d, &err), err);
    d = run_of(data, cut, own, &l);
    d.resume = true;
    for (int i = 0; i < n_kills; i++) {
        pid_t child = fork();
        if (child == 0) {
            tern_train(&d, &err);
            _exit(0);
        }
        usleep(50000 + 50000 * (useconds_t)i);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    l.stop_at = 6; // where a fast machine has left no more than six events, the run ends
    tern_status st = tern_train(&d, &err);
    CHECK(st == TERN_OK || st == TERN_ERR_CANCELLED);
    l.stop_at = 0;
    d.n_threads = 1;
    d.on_begin = take_begin;
    d.on_event = NULL;
    REQUIRE_OK(tern_train(&d, &err), err);
    CHECK_MSG(l.step > 0, "went on from step %lld", (long long)l.step);
    for (int step = 4; step <= 60; step += 4)
        CHECK_MSG(loss_of_log(whole, step) == loss_of_log(cut, step), "step %d: %.9g and %.9g",
                  step, loss_of_log(whole, step), loss_of_log(cut, step));
    char path[400];
    size_t n[2];
    snprintf(path, sizeof path, "%s/best.gguf", whole);
    char *best = test_read(path, &n[0]);
    snprintf(path, sizeof path, "%s/best.gguf", cut);
    char *again = test_read(path, &n[1]);
    CHECK(best && again && n[0] == n[1] && memcmp(best, again, n[0]) == 0);
    free(best);
    free(again);
}

TEST(training_resumes_to_the_same_bits_after_being_killed) {
    check_resumes(&(tern_train_desc){0}, 6);
}

// The last part has one thread, the others one for each core. Where bf16 is not fast, it is as
// above.
TEST(training_resumes_with_factors_in_bf16) { check_resumes(&(tern_train_desc){.bf16 = true}, 2); }

// Seen to fail: with moments that are not kept.
TEST(training_resumes_with_every_optimizer) {
    check_resumes(&(tern_train_desc){.optimizer = TERN_OPTIMIZER_ADAMW8BIT}, 4);
    check_resumes(&(tern_train_desc){.optimizer = TERN_OPTIMIZER_MUON}, 4);
    char data[300], out[300];
    tern_error err;
    losses l;
    make_data(data, sizeof data);
    snprintf(out, sizeof out, "%s%d", test_tmp("train_cut"), (int)TERN_OPTIMIZER_MUON);
    tern_train_desc d = small_run(data, out, &l);
    d.resume = true;
    CHECK(tern_train(&d, &err) == TERN_ERR_ARGUMENT); // another optimizer's run
    CHECK_MSG(strstr(err.message, "schedule is two-stage, muon there and two-stage here"), "%s",
              err.message);
    d.device = "webgpu";
    d.optimizer = TERN_OPTIMIZER_MUON;
    CHECK(tern_train(&d, &err) == TERN_ERR_UNSUPPORTED && strstr(err.message, "on a GPU"));
}

// Seen to fail: with masters that lose a bit in a checkpoint.
TEST(training_resumes_with_bf16_masters) {
    check_resumes(&(tern_train_desc){.bf16_masters = true}, 4);
    check_resumes(&(tern_train_desc){.bf16_masters = true, .optimizer = TERN_OPTIMIZER_MUON}, 2);
    check_resumes(&(tern_train_desc){.bf16_masters = true,
                                     .recipe = TERN_RECIPE_LLAMA,
                                     .optimizer = TERN_OPTIMIZER_ADAMW8BIT,
                                     .qat = "q8_0",
                                     .qat_warmup = 40},
                  2);
    char data[300], out[300];
    tern_error err;
    losses l;
    make_data(data, sizeof data);
    snprintf(out, sizeof out, "%s10", test_tmp("train_cut"));
    tern_train_desc d = small_run(data, out, &l);
    d.resume = true;
    CHECK(tern_train(&d, &err) == TERN_ERR_ARGUMENT);
    CHECK_MSG(strstr(err.message, "two-stage, bf16 masters there and two-stage here"), "%s",
              err.message);
    d.bf16_masters = true;
    d.device = "webgpu";
    CHECK(tern_train(&d, &err) == TERN_ERR_UNSUPPORTED && strstr(err.message, "are floats"));
}

TEST(training_knows_its_best_validation) {
    static const double found[] = {3, NAN, 2, 2.5, 2, 1.5};
    static const bool is_best[] = {true, false, true, false, false, true};
    tern_train_best b = {0};
    CHECK(!tern_train_best_take(&b, 0, NAN) && !b.is_known);
    for (int i = 0; i < 6; i++) {
        CHECK_MSG(tern_train_best_take(&b, i, found[i]) == is_best[i], "validation %d", i);
        CHECK(i != 4 || (b.step == 2 && b.loss == 2 && b.n_since == 2));
    }
}

// Seen to fail: with moments in it, and with weights of a step before.
TEST(training_keeps_the_best_weights) {
    char data[300], out[300], path[400];
    tern_error err;
    losses l;
    tern_file *best, *last;
    make_data(data, sizeof data);
    snprintf(out, sizeof out, "%s", test_tmp("train_best"));
    tern_train_desc d = small_run(data, out, &l);
    REQUIRE_OK(tern_train(&d, &err), err);
    CHECK_MSG(l.best_step == 60 && l.best == (double)(float)l.valid, "%g", l.best);
    snprintf(path, sizeof path, "%s/best.gguf", out);
    REQUIRE_OK(tern_file_open(&best, path, &err), err);
    snprintf(path, sizeof path, "%s/step-00000060.gguf", out);
    REQUIRE_OK(tern_file_open(&last, path, &err), err);
    CHECK(best->n_tensors > 0 && best->n_tensors < last->n_tensors);
    for (size_t i = 0; i < best->n_tensors; i++) {
        const tern_tensor *x = &best->tensors[i], *y = tern_file_tensor(last, x->name);
        CHECK_MSG(y && strncmp(x->name, "adam.", 5) != 0 &&
                      memcmp(test_bytes(&x->data), test_bytes(&y->data), x->bytes) == 0,
                  "%s", x->name);
    }
    tern_file_close(best);
    tern_file_close(last);
    tern_model *m;
    snprintf(path, sizeof path, "%s/best.gguf", out);
    REQUIRE_OK(tern_model_open(&m, path, NULL, &err), err);
    tern_model_close(m);
}

// Held-out text that counts the other way: its loss falls, while the words are learnt, and rises.
static void make_other_valid(const char *folder) {
    char path[400], text[64];
    tern_error err = {0};
    tern_file *file;
    tern_tokenizer *t;
    tern_shard_writer *w;
    REQUIRE_OK(tern_file_open(&file, folder, &err), err);
    REQUIRE_OK(tern_tokenizer_open(&t, file, &err), err);
    snprintf(path, sizeof path, "%s/valid-00000.tern", folder);
    const tern_shard_desc desc = {.n_vocab = (uint32_t)tern_tokenizer_n_vocab(t),
                                  .end_id = SMALL_END};
    REQUIRE_OK(tern_shard_writer_open(&w, path, &desc, &err), err);
    for (int i = 0; i < 30; i++) {
        tern_ids ids = {0};
        const unsigned flags = TERN_TOKENIZE_SPECIAL | TERN_TOKENIZE_BOS;
        snprintf(text, sizeof text, "the %d%d%d%d the end<end>", (i + 3) % 10, (i + 1) % 10,
                 (i + 7) % 10, i % 10);
        CHECK(tern_tokenizer_encode(t, text, strlen(text), flags, &ids, &err) == TERN_OK);
        CHECK(tern_shard_write(w, ids.ids, ids.n, &err) == TERN_OK);
        tern_free(ids.ids);
    }
    CHECK(tern_shard_writer_finish(w, &err) == TERN_OK);
    tern_shard_writer_free(w);
    write_manifest(folder);
    tern_tokenizer_free(t);
    tern_file_close(file);
}

static int64_t step_of_best(const char *out) {
    char path[400];
    tern_file *file;
    int64_t step = -1;
    snprintf(path, sizeof path, "%s/best.gguf", out);
    if (tern_file_open(&file, path, NULL) != TERN_OK) return -1;
    if (!tern_file_meta_int(file, "tern.train.step", &step)) step = -2;
    tern_file_close(file);
    return step;
}

// The best step is between two checkpoints, and the run goes on from the first of them: with fewer
// steps it never comes again. Seen to fail: without the check of best.gguf on
// resuming.
TEST(training_forgets_a_best_that_is_of_no_run) {
    char data[300], out[300];
    tern_error err;
    losses l;
    make_data(data, sizeof data);
    make_other_valid(data);
    snprintf(out, sizeof out, "%s", test_tmp("train_forgets"));
    tern_train_desc d = small_run(data, out, &l);
    d.n_steps = 120;
    d.valid_every = 5;
    d.checkpoint_every = 40;
    d.keep = 100;
    REQUIRE_OK(tern_train(&d, &err), err);
    int64_t best = l.best_step;
    CHECK_MSG(best > 5 && best < 115 && best % 40 != 0, "%lld: choose other steps",
              (long long)best);
    CHECK_MSG(step_of_best(out) == best, "%lld, not %lld", (long long)step_of_best(out),
              (long long)best);
    // As if it had been killed after the best step, and gone on otherwise.
    int64_t before = best / 40 * 40;
    char path[400];
    for (int64_t step = before + 40; step <= 120; step += 40) {
        snprintf(path, sizeof path, "%s/step-%08lld.gguf", out, (long long)step);
        CHECK(remove(path) == 0);
    }
    d.resume = true;
    d.n_steps = before + 1 > 1 ? before + 1 : 1;
    d.no_best = true; // nothing is written in its place
    l = (losses){0};
    REQUIRE_OK(tern_train(&d, &err), err);
    CHECK_MSG(step_of_best(out) != best, "best.gguf is still of step %lld", (long long)best);
}

// Weights that do not change are no better. Seen to fail: with a patience that counts from the
// beginning, and with a resumed run that knows nothing of the validations before.
TEST(training_ends_where_validation_gets_no_better) {
    char data[300], out[300];
    tern_error err;
    losses l;
    make_data(data, sizeof data);
    snprintf(out, sizeof out, "%s", test_tmp("train_patience"));
    tern_train_desc d = small_run(data, out, &l);
    d.rate = d.rate_2 = 1e-30f;
    d.weight_decay = -1;
    d.valid_every = 5;
    d.early_stopping_patience = 3;
    REQUIRE_OK(tern_train(&d, &err), err);
    CHECK_MSG(l.ends_early && l.step == 15, "step %lld", (long long)l.step);
    d.resume = true;
    l = (losses){0};
    REQUIRE_OK(tern_train(&d, &err), err);
    CHECK_MSG(l.n_events == 1 && l.ends_early, "%d events", l.n_events);
    d.early_stopping_patience = 5;
    REQUIRE_OK(tern_train(&d, &err), err);
    CHECK_MSG(l.ends_early && l.step == 25, "step %lld", (long long)l.step);
}

// What a run has left stays until it goes on, and then it goes on as ever. Seen to fail: with a
// best.gguf that was removed since there was no memory to open it.
TEST(training_resumes_after_failing_allocations) {
    char data[300], out[300], log[400];
    tern_error err;
    losses l;
    size_t n_first, n_now;
    make_data(data, sizeof data);
    make_other_valid(data);
    snprintf(out, sizeof out, "%s", test_tmp("train_memory"));
    snprintf(log, sizeof log, "%s/log.jsonl", out);
    tern_train_desc d = small_run(data, out, &l);
    d.n_steps = 120;
    d.valid_every = 5;
    d.checkpoint_every = 40;
    REQUIRE_OK(tern_train(&d, &err), err);
    const int64_t best = l.best_step;
    CHECK_MSG(best < 120, "%lld: choose other steps", (long long)best);
    char *first = test_read(log, &n_first);
    const size_t before = tern_mem_get_stats().total_now;
    tern_status status = TERN_ERR_MEMORY;
    d.resume = true;
    d.n_steps = 121;
    d.n_threads = 1;
    for (uint64_t n = 1; status == TERN_ERR_MEMORY; n += 1 + n / 32) {
        tern_mem_fail_at(n);
        status = tern_train(&d, &err);
        tern_mem_fail_at(0);
        CHECK(tern_mem_get_stats().total_now == before);
        CHECK_MSG(step_of_best(out) == best, "%llu: best.gguf is of step %lld",
                  (unsigned long long)n, (long long)step_of_best(out));
        char *now = test_read(log, &n_now);
        CHECK_MSG(now && n_now >= n_first && memcmp(now, first, n_first) == 0,
                  "%llu: the log is another", (unsigned long long)n);
        free(now);
    }
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    free(first);
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
    CHECK_MSG(strstr(err.message, "embd is 32 there and 64 here"), "%s", err.message);
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

static void build_and_train(const char *text, const char *tokenizer, const char *end,
                            const char *data, const char *out) {
    tern_error err;
    losses l;
    tern_data_build_desc b = {.source = {.paths = &text, .n_paths = 1},
                              .tokenizer = tokenizer,
                              .end = end,
                              .n_threads = 1};
    REQUIRE_OK(tern_data_build(data, &b, NULL, &err), err);
    tern_train_desc d = small_run(data, out, &l);
    d.n_steps = 1;
    REQUIRE_OK(tern_train(&d, &err), err);
}

static bool open_step_1(const char *out, tern_file **file, tern_tokenizer **t) {
    tern_error err = {0};
    char path[700];
    snprintf(path, sizeof path, "%s/step-00000001.gguf", out);
    bool ok = tern_file_open(file, path, &err) == TERN_OK &&
              tern_tokenizer_open(t, *file, &err) == TERN_OK;
    CHECK_MSG(ok, "%s", err.message);
    return ok;
}

// Each kind of tokenizer goes into a model, and from that model's GGUF into another one. Seen to
// fail: with the GGUF's tokenizer exported again instead of copied, SentencePiece was refused after
// the last step.
TEST(training_takes_the_tokenizer_of_a_gguf_along) {
    char folder[300], text[300], path[700], data[2][300], out[2][300];
    snprintf(text, sizeof text, "%s", test_tmp("gguf_text.txt"));
    FILE *f = fopen(text, "w");
    REQUIRE(f != NULL);
    for (int i = 0; i < 300; i++) fprintf(f, "the %d abab the %d hen.<|endoftext|>", i, i % 7);
    fclose(f);
    for (int kind = 0; kind < 2; kind++) {
        tern_strbuf json = {0};
        snprintf(folder, sizeof folder, "%s%d", test_tmp("gguf_tokenizer"), kind);
        test_folder(folder);
        if (kind == 0)
            small_byte_level(&json, SMALL_LLAMA3, false);
        else
            small_sentencepiece(&json);
        snprintf(path, sizeof path, "%s/tokenizer.json", folder);
        test_write(path, json.ptr, json.len);
        tern_strbuf_free(&json);
        for (int i = 0; i < 2; i++) {
            snprintf(data[i], sizeof data[i], "%s%d%d", test_tmp("gguf_data"), kind, i);
            snprintf(out[i], sizeof out[i], "%s%d%d", test_tmp("gguf_out"), kind, i);
            if (i == 1) snprintf(path, sizeof path, "%s/step-00000001.gguf", out[0]);
            build_and_train(text, i ? path : folder, kind ? "</s>" : "<end>", data[i], out[i]);
        }
        tern_file *files[2];
        tern_tokenizer *t[2];
        for (int i = 0; i < 2; i++)
            if (!open_step_1(out[i], &files[i], &t[i])) return;
        CHECK(tern_tokenizer_hash(t[0]) == tern_tokenizer_hash(t[1]));
        CHECK(tern_tokenizer_bos(t[0]) == tern_tokenizer_bos(t[1]));
        CHECK(tern_tokenizer_adds_bos(t[0]) && tern_tokenizer_adds_bos(t[1]));
        tern_ids ids[2] = {0};
        for (int i = 0; i < 2; i++) {
            const unsigned flags = TERN_TOKENIZE_SPECIAL | TERN_TOKENIZE_BOS;
            tern_tokenizer_encode(t[i], "the abab hen", 12, flags, &ids[i], NULL);
        }
        CHECK(ids[0].n > 3 && ids[0].n == ids[1].n &&
              memcmp(ids[0].ids, ids[1].ids, ids[0].n * sizeof *ids[0].ids) == 0);
        for (int i = 0; i < 2; i++) {
            tern_free(ids[i].ids);
            tern_tokenizer_free(t[i]);
            tern_file_close(files[i]);
        }
    }
}

TEST(training_schedules) {
    tern_train_desc d = {.n_steps = 1000,
                         .rate = 1,
                         .rate_2 = 0.5f,
                         .n_warmup = 10,
                         .weight_decay = 0.1f,
                         .schedule = TERN_SCHEDULE_TWO_STAGE};
    CHECK(fabsf(tern_train_rate(&d, 5) - 0.498f) < 1e-3f);
    CHECK(fabsf(tern_train_rate(&d, 11) - 0.99f) < 1e-3f);
    CHECK(fabsf(tern_train_rate(&d, 500) - 0.501f) < 1e-3f);
    CHECK(fabsf(tern_train_rate(&d, 501) - 0.25f) < 1e-3f);
    CHECK(tern_train_decay(&d, 500) > 0 && tern_train_decay(&d, 501) == 0);
    d.schedule = TERN_SCHEDULE_COSINE;
    CHECK(fabsf(tern_train_rate(&d, 501) - 0.55f) < 1e-3f && tern_train_decay(&d, 900) > 0);
}

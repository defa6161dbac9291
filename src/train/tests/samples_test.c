// What a run tells besides its losses, and that it may be stopped anywhere.
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/support/train_fixture.h"

typedef struct told {
    losses l; // first: take_losses counts in it
    tern_strbuf samples;
    tern_cancel *cancel;
    int64_t cancel_at; // requested after this step
} told;

static bool take(void *user, const tern_train_event *e) {
    told *t = user;
    if (e->sample)
        tern_strbuf_printf(&t->samples, "%lld %s|%s\n", (long long)e->step, e->prompt, e->sample);
    return take_losses(&t->l, e);
}

static bool after_step(void *user, const tern_train_event *e) {
    told *t = user;
    if (t->cancel && e->step == t->cancel_at) tern_cancel_request(t->cancel);
    return true;
}

static tern_train_desc told_run(const char *data, const char *out, told *t) {
    *t = (told){0};
    tern_train_desc d = small_run(data, out, &t->l);
    d.on_event = take;
    d.on_step = after_step;
    d.user = t;
    d.n_steps = 40;
    return d;
}

static bool take_text(void *user, const char *bytes, size_t n) {
    tern_strbuf_append(user, bytes, n);
    return true;
}

// What `tern run` says with a checkpoint.
static void say(const char *path, const char *prompt, int32_t n_tokens, tern_strbuf *out) {
    tern_model *m;
    tern_session *s;
    tern_error err;
    tern_sampling greedy = {0};
    tern_generate_params p = {
        .sampling = &greedy, .max_tokens = n_tokens, .on_text = take_text, .user = out};
    REQUIRE_OK(tern_model_open(&m, path, NULL, &err), err);
    REQUIRE_OK(tern_session_open(&s, m, NULL, &err), err);
    REQUIRE_OK(tern_generate(s, prompt, &p, NULL, &err), err);
    tern_session_close(s);
    tern_model_close(m);
}

static bool is_there(const char *folder, const char *pattern) {
    char path[4096];
    glob_t found;
    snprintf(path, sizeof path, "%s/%s", folder, pattern);
    bool is = glob(path, 0, NULL, &found) == 0;
    if (is) globfree(&found);
    return is;
}

// Seen to fail: with samples of the weights before the step.
TEST(training_samples_are_what_the_checkpoint_says) {
    char data[300], out[300], prompts[300], path[400];
    tern_error err;
    told t;
    make_data(data, sizeof data);
    snprintf(out, sizeof out, "%s", test_tmp("train_samples"));
    snprintf(prompts, sizeof prompts, "%s", test_tmp("prompts.jsonl"));
    static const char lines[] = "{\"prompt\":\"the 4\"}\n\n{\"prompt\":\"the 78\"}\n";
    test_write(prompts, lines, sizeof lines - 1);
    tern_train_desc d = told_run(data, out, &t);
    d.sample_prompts = prompts;
    d.sample_every = 20;
    d.sample_tokens = 12;
    REQUIRE_OK(tern_train(&d, &err), err);
    tern_strbuf said = {0};
    for (int64_t step = 20; step <= 40; step += 20) {
        snprintf(path, sizeof path, "%s/step-%08lld.gguf", out, (long long)step);
        for (int i = 0; i < 2; i++) {
            const char *prompt = i ? "the 78" : "the 4";
            tern_strbuf_printf(&said, "%lld %s|", (long long)step, prompt);
            say(path, prompt, 12, &said);
            tern_strbuf_putc(&said, '\n');
        }
    }
    // Before them those of step 0, whose weights are in no file.
    const char *later = strstr(tern_strbuf_text(&t.samples), "20 the 4|");
    CHECK_MSG(later && strcmp(later, tern_strbuf_text(&said)) == 0, "told '%s', it says '%s'",
              tern_strbuf_text(&t.samples), tern_strbuf_text(&said));
    CHECK(strncmp(tern_strbuf_text(&t.samples), "0 the 4|", 8) == 0);
    CHECK(!is_there(out, "sample.gguf"));
    tern_strbuf_free(&said);
    tern_strbuf_free(&t.samples);
}

TEST(training_samples_refuse_bad_prompts) {
    static const struct {
        const char *name, *text, *message;
    } bad[] = {{"p.jsonl", "{\"prompt\":\"a\"}\n{\"prompt\":7}\n", "p.jsonl:2: has neither"},
               {"p.jsonl", "{\"prompt\":\n", "p.jsonl:1: is not JSON"},
               {"p.txt", "\n\n", "there is no prompt in it"}};
    char data[300], out[300], prompts[300];
    tern_error err;
    told t;
    make_data(data, sizeof data);
    snprintf(out, sizeof out, "%s", test_tmp("train_bad_samples"));
    tern_train_desc d = told_run(data, out, &t);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(prompts, sizeof prompts, "%s", test_tmp(bad[i].name));
        test_write(prompts, bad[i].text, strlen(bad[i].text));
        d.sample_prompts = prompts;
        CHECK(tern_train(&d, &err) != TERN_OK);
        CHECK_MSG(strstr(err.message, bad[i].message) != NULL, "%s", err.message);
        CHECK(!is_there(out, "step-*.gguf") && !is_there(out, "sample.gguf"));
    }
    d.pairs = data;
    CHECK(tern_train(&d, &err) == TERN_ERR_ARGUMENT && strstr(err.message, "sample_prompts"));
    tern_strbuf_free(&t.samples);
}

// ---- Stopping ----------------------------------------------------------------------------------

static void same_logs(const char *whole, const char *cut) {
    for (int step = 4; step <= 40; step += 4)
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

static int count(const char *folder, const char *what) {
    char path[400];
    size_t size;
    int n = 0;
    snprintf(path, sizeof path, "%s/log.jsonl", folder);
    char *text = test_read(path, &size);
    for (const char *at = text; at && (at = strstr(at, what)); at++) n++;
    free(text);
    return n;
}

// A request that comes within a step ends it there; one that comes before a validation leaves it to
// the run that goes on. Seen to fail: with a validation that is not made up for, and with a
// backward pass that does not stop (the first step is whole then).
TEST(training_stops_within_a_step_and_resumes_to_the_same_bits) {
    char data[300], whole[300], cut[300];
    tern_error err;
    told t;
    tern_cancel stop = {0};
    make_data(data, sizeof data);
    snprintf(whole, sizeof whole, "%s", test_tmp("train_unstopped"));
    snprintf(cut, sizeof cut, "%s", test_tmp("train_stopped"));
    tern_train_desc d = told_run(data, whole, &t);
    REQUIRE_OK(tern_train(&d, &err), err);
    d = told_run(data, cut, &t);
    d.resume = true;
    tern_cancel_watch(&stop);
    tern_cancel_request(&stop);
    CHECK(tern_train(&d, &err) == TERN_ERR_CANCELLED);
    CHECK_MSG(strstr(err.message, "before the end of the first step") != NULL, "%s", err.message);
    CHECK(!is_there(cut, "step-*.gguf"));
    t.cancel = &stop;
    for (t.cancel_at = 18; t.cancel_at <= 21; t.cancel_at++) { // 20 has a validation
        tern_cancel_reset(&stop);
        CHECK(tern_train(&d, &err) == TERN_ERR_CANCELLED);
        CHECK_MSG(strstr(err.message, "resume goes on from there") != NULL, "%s", err.message);
    }
    // Within a step: the trainer itself, whose next step is then as if there had been none.
    tern_trainer *trainer;
    bool resumed;
    float before, after;
    REQUIRE_OK(tern_trainer_open(&trainer, &d, &err), err);
    REQUIRE_OK(tern_checkpoint_resume(trainer, &resumed, &err), err);
    const tern_slot *loss = tern_trainer_slot(trainer, "loss");
    CHECK(trainer->backend->read(loss->array, 0, 1, &before, &err) == TERN_OK);
    CHECK(tern_trainer_step(trainer, 1, 0, &err) == TERN_ERR_CANCELLED && trainer->step == 21);
    CHECK(trainer->backend->read(loss->array, 0, 1, &after, &err) == TERN_OK && before == after);
    tern_trainer_close(trainer);
    tern_cancel_watch(NULL);
    REQUIRE_OK(tern_train(&d, &err), err);
    same_logs(whole, cut);
    CHECK_MSG(count(whole, "valid_loss") == count(cut, "valid_loss"), "%d validations, not %d",
              count(cut, "valid_loss"), count(whole, "valid_loss"));
}

typedef struct stopper {
    tern_cancel *stop;
    useconds_t after;
} stopper;
static void *stop_later(void *arg) {
    const stopper *s = arg;
    usleep(s->after);
    tern_cancel_request(s->stop);
    return NULL;
}

// Wherever requests come, the whole is as without them. Seen to fail: with a loss that is not taken
// back.
TEST(training_that_is_stopped_anywhere_resumes_to_the_same_bits) {
    char data[300], whole[300], cut[300];
    tern_error err;
    told t;
    tern_cancel stop = {0};
    make_data(data, sizeof data);
    snprintf(whole, sizeof whole, "%s", test_tmp("train_not_stopped"));
    snprintf(cut, sizeof cut, "%s", test_tmp("train_stopped_often"));
    tern_train_desc d = told_run(data, whole, &t);
    REQUIRE_OK(tern_train(&d, &err), err);
    d = told_run(data, cut, &t);
    d.resume = true;
    tern_cancel_watch(&stop);
    for (useconds_t i = 0; i < 20; i++) {
        stopper s = {&stop, 20000 + 1300 * i};
        pthread_t thread;
        tern_cancel_reset(&stop);
        REQUIRE(pthread_create(&thread, NULL, stop_later, &s) == 0);
        tern_status status = tern_train(&d, &err);
        CHECK_MSG(status == TERN_OK || status == TERN_ERR_CANCELLED, "%s", err.message);
        pthread_join(thread, NULL);
    }
    tern_cancel_watch(NULL);
    REQUIRE_OK(tern_train(&d, &err), err);
    same_logs(whole, cut);
}

// ---- TensorBoard -------------------------------------------------------------------------------

static uint32_t crc32c(const unsigned char *bytes, size_t n) {
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < 8; k++) {
            uint32_t bit = (crc ^ bytes[i] >> k) & 1;
            crc = crc >> 1 ^ (bit ? 0x82f63b78 : 0);
        }
    return ~crc;
}
static uint32_t masked(const unsigned char *bytes, size_t n) {
    uint32_t crc = crc32c(bytes, n);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}
static uint64_t little(const unsigned char *at, int n) {
    uint64_t value = 0;
    for (int i = 0; i < n; i++) value |= (uint64_t)at[i] << 8 * i;
    return value;
}

// How many whole records with right checksums there are; -1: something else.
static int count_records(const unsigned char *file, size_t size) {
    int n = 0;
    for (size_t at = 0; at < size; n++) {
        uint64_t length = size - at >= 16 ? little(file + at, 8) : UINT64_MAX;
        if (size - at < 16 || length > size - at - 16) return -1;
        CHECK(little(file + at + 8, 4) == masked(file + at, 8));
        CHECK(little(file + at + 12 + length, 4) == masked(file + at + 12, (size_t)length));
        at += 16 + (size_t)length;
    }
    return n;
}

static bool has_bytes(const char *file, size_t size, const char *what, size_t n) {
    for (size_t i = 0; i + n <= size; i++)
        if (memcmp(file + i, what, n) == 0) return true;
    return false;
}

// Bytes as TensorFlow's own writer makes them (event.proto, summary.proto). Seen to fail: with a
// checksum that is not masked, and with the step in another field.
TEST(training_writes_events_for_tensorboard) {
    char data[300], out[300], path[400];
    tern_error err;
    told t;
    size_t size;
    CHECK(crc32c((const unsigned char *)"123456789", 9) == 0xe3069283); // RFC 3720's
    make_data(data, sizeof data);
    snprintf(out, sizeof out, "%s", test_tmp("train_events"));
    tern_train_desc d = told_run(data, out, &t);
    d.tensorboard = true;
    REQUIRE_OK(tern_train(&d, &err), err);
    glob_t found;
    snprintf(path, sizeof path, "%s/events.out.tfevents.*", out);
    REQUIRE(glob(path, 0, NULL, &found) == 0 && found.gl_pathc == 1);
    char *file = test_read(found.gl_pathv[0], &size);
    globfree(&found);
    REQUIRE(file != NULL);
    // Version, start, ten lines of losses, validations at 0, 20 and 40.
    CHECK_MSG(count_records((unsigned char *)file, size) == 15, "%d records",
              count_records((unsigned char *)file, size));
    CHECK(has_bytes(file, size,
                    "\x1a\x0d"
                    "brain.Event:2",
                    15));
    CHECK(has_bytes(file, size, "\x10\x00\x3a\x02\x08\x01", 6)); // step 0, session_log: START
    // Step 40, then a summary.
    CHECK(has_bytes(file, size, "\x10\x28\x2a", 3));
    CHECK(has_bytes(file, size, "train/learning_rate", 19) &&
          has_bytes(file, size, "eval/loss", 9));
    float loss = (float)t.l.last;
    char number[20] = "\x0a\x0a"
                      "train/loss\x15";
    memcpy(number + 13, &loss, 4);
    CHECK(has_bytes(file, size, number, 17));
    free(file);
}

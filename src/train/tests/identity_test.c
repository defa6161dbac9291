// A run cannot be lost or mixed up with another one: used folders, what resuming compares, longer
// runs, odd names, numbers that are not finite.
#include <limits.h>
#include "base/lines.h"
#include "tests/support/blobs.h"
#include "tests/support/train_fixture.h"

// A whole file; the caller frees it.
static tern_strbuf read_all(const char *folder, const char *name) {
    tern_strbuf text = {0};
    char *path = tern_path_join(folder, name), piece[4096];
    FILE *f = fopen(path, "rb");
    for (size_t n; f && (n = fread(piece, 1, sizeof piece, f)) > 0;)
        tern_strbuf_append(&text, piece, n);
    if (f) fclose(f);
    tern_free(path);
    return text;
}

static int64_t newest(const char *folder, size_t *n) {
    int64_t step = -1;
    tern_error err;
    CHECK(tern_checkpoint_count(folder, n, &step, &err) == TERN_OK);
    return step;
}

// Every line of the log is JSON; returns their number.
static int check_log(const char *folder) {
    char *path = tern_path_join(folder, "log.jsonl");
    tern_lines l;
    tern_error err;
    bool more = true;
    int n = 0;
    CHECK(tern_lines_open(&l, path, &err) == TERN_OK);
    while (tern_lines_next(&l, &more, &err) == TERN_OK && more) {
        tern_json_doc doc = {0};
        CHECK_MSG(tern_json_parse(&doc, tern_strbuf_text(&l.line), l.line.len, &err) == TERN_OK,
                  "line %d: %s: %s", n + 1, err.message, l.line.ptr);
        tern_json_free(&doc);
        n++;
    }
    tern_lines_close(&l);
    tern_free(path);
    return n;
}

// Seen to fail: without the call of refuse_used the second run empties the log of the first.
TEST(training_refuses_a_used_folder_and_one_that_is_in_use) {
    char data[300], out[300];
    tern_error err;
    losses l;
    size_t n;
    tern_lock lock = {0};
    make_data(data, sizeof data);
    snprintf(out, sizeof out, "%s", test_tmp("train_used"));
    tern_train_desc d = small_run(data, out, &l);
    d.n_steps = 20;
    d.init = "/no/such/model.gguf"; // fails before the first line of the log
    CHECK(tern_train(&d, &err) == TERN_ERR_IO);
    d.init = NULL;
    REQUIRE_OK(tern_train(&d, &err), err);
    tern_strbuf before = read_all(out, "log.jsonl");
    d.seed = 2;
    CHECK(tern_train(&d, &err) == TERN_ERR_ARGUMENT);
    CHECK_MSG(strstr(err.message, "step 20, 2 checkpoints") && strstr(err.message, "resume goes"),
              "%s", err.message);
    tern_strbuf after = read_all(out, "log.jsonl");
    CHECK(before.len > 500 && before.len == after.len && !memcmp(before.ptr, after.ptr, after.len));
    CHECK(newest(out, &n) == 20 && n == 2);
    REQUIRE_OK(tern_lock_folder(&lock, out, &err), err);
    d = small_run(data, out, &l);
    d.resume = true;
    CHECK(tern_train(&d, &err) == TERN_ERR_IO);
    CHECK_MSG(strstr(err.message, "another process"), "%s", err.message);
    tern_unlock(&lock);
    tern_strbuf_free(&before);
    tern_strbuf_free(&after);
}

static void differs(const tern_train_desc *d, const char *what) {
    tern_error err = {0};
    CHECK_MSG(tern_train(d, &err) == TERN_ERR_ARGUMENT && strstr(err.message, what), "%s: %s", what,
              err.message);
}

// Everything that the numbers depend on, one by one; each case changes a copy of the desc.
static void check_what_differs(const tern_train_desc *d, const char *other_data) {
    tern_train_desc x = *d;
    x.seed = (uint64_t)1 << 63 | 1; // its neighbour is the same double
    differs(&x, "seed is 9223372036854775808 there and 9223372036854775809 here");
    x = *d, x.rate = 5e-3f, differs(&x, "rate is 0.006 there and 0.005 here");
    x = *d, x.rate_2 = 5e-3f, differs(&x, "rate_2 is 0.004 there");
    x = *d, x.recipe = TERN_RECIPE_PAPER, differs(&x, "recipe is bitnet there and paper here");
    x = *d, x.act = "silu", differs(&x, "act is relu2 there and silu here");
    x = *d, x.n_heads = 4, differs(&x, "heads is 2 there and 4 here");
    x = *d, x.n_kv_heads = 1, differs(&x, "kv_heads is 2 there and 1 here");
    x = *d, x.n_ff = 96, differs(&x, "ff is 64 there and 96 here");
    x = *d, x.n_context = 128, differs(&x, "context is 64 there and 128 here");
    x = *d, x.separate_head = true, differs(&x, "separate_head is false there and true here");
    x = *d, x.seq_len = 32, differs(&x, "seq_len is 64 there and 32 here");
    x = *d, x.batch_tokens = 1024, differs(&x, "batch_tokens is 512 there");
    x = *d, x.schedule = TERN_SCHEDULE_COSINE, differs(&x, "schedule is two-stage there");
    x = *d, x.n_warmup = 9, differs(&x, "warmup is 0 there and 9 here");
    x = *d, x.weight_decay = -1, differs(&x, "weight_decay is 0.1 there and 0 here");
    x = *d, x.clip = 2, differs(&x, "clip is 1 there and 2 here");
    x = *d, x.in_order = true, differs(&x, "in_order is false there and true here");
    x = *d, x.data = other_data, differs(&x, "data is ");
}

// Seen to fail: without the checksum of put_data other shards of the same length are accepted, with
// seeds as numbers the first other seed is.
TEST(training_resume_names_what_differs) {
    char data[300], other[300], out[300], path[400];
    tern_error err;
    losses l;
    size_t n;
    make_data(data, sizeof data);
    snprintf(other, sizeof other, "%s", test_tmp("train_other_data"));
    make_data_in(other);
    tern_file *file;
    tern_tokenizer *t;
    REQUIRE_OK(tern_file_open(&file, other, &err), err);
    REQUIRE_OK(tern_tokenizer_open(&t, file, &err), err);
    snprintf(path, sizeof path, "%s/train-00000.tern", other);
    write_shard(path, t, 1, 400); // as many tokens
    write_manifest(other);
    tern_tokenizer_free(t);
    tern_file_close(file);
    snprintf(out, sizeof out, "%s", test_tmp("train_differs"));
    tern_train_desc d = small_run(data, out, &l);
    d.seed = (uint64_t)1 << 63;
    d.n_steps = 10;
    REQUIRE_OK(tern_train(&d, &err), err);
    d.resume = true;
    check_what_differs(&d, other);
    // Nor if there is only a log.
    snprintf(path, sizeof path, "%s/step-00000010.gguf", out);
    CHECK(remove(path) == 0 && newest(out, &n) == 0);
    d.rate = 5e-3f;
    differs(&d, "log.jsonl is of another run: rate is 0.006 there");
    d.rate = 6e-3f;
    // The way of computing may change.
    d.micro_tokens = 512;
    d.n_threads = 1;
    d.log_every = 5;
    REQUIRE_OK(tern_train(&d, &err), err);
    CHECK(newest(out, &n) == 10 && !isnan(loss_of_log(out, 5)) && check_log(out) == 5);
}

static double number_of_log(const char *out, int step, const char *key) {
    tern_strbuf text = read_all(out, "log.jsonl");
    char begin[64];
    double x = NAN;
    snprintf(begin, sizeof begin, "{\"step\":%d,", step);
    char *line = text.ptr ? strstr(text.ptr, begin) : NULL, *at = line ? strstr(line, key) : NULL;
    if (at) x = atof(at + strlen(key));
    tern_strbuf_free(&text);
    return x;
}

static void take_info(void *user, const tern_train_info *i) { *(tern_train_info *)user = *i; }

// 20 steps that become 60: the first 20 stay as they were, the rest follows the schedule of 60.
// Seen to fail: with the length of the checkpoint kept the rate of step 24 is zero.
TEST(training_goes_on_to_a_greater_length) {
    char data[300], whole[300], cut[300];
    tern_error err;
    losses l;
    make_data(data, sizeof data);
    snprintf(whole, sizeof whole, "%s", test_tmp("train_longer"));
    snprintf(cut, sizeof cut, "%s", test_tmp("train_longer_cut"));
    for (int i = 0; i < 2; i++) {
        tern_train_desc d = small_run(data, i ? cut : whole, &l);
        d.n_steps = 20;
        REQUIRE_OK(tern_train(&d, &err), err);
        d.n_steps = 60;
        d.resume = true;
        l.n_events = 0;
        l.stop_at = i ? 6 : 0;
        CHECK(tern_train(&d, &err) == (i ? TERN_ERR_CANCELLED : TERN_OK));
    }
    tern_train_desc d = small_run(data, cut, &l);
    d.resume = true;
    d.n_steps = 12;
    CHECK(tern_train(&d, &err) == TERN_ERR_ARGUMENT && strstr(err.message, "beyond the 12"));
    d.n_steps = 0; // the same number as before
    REQUIRE_OK(tern_train(&d, &err), err);
    tern_train_desc sixty = {.n_steps = 60,
                             .rate = 6e-3f,
                             .rate_2 = 4e-3f,
                             .n_warmup = 4,
                             .schedule = TERN_SCHEDULE_TWO_STAGE};
    for (int step = 4; step <= 60; step += 4) {
        sixty.n_steps = step > 20 ? 60 : 20;
        double rate = number_of_log(whole, step, "\"rate\":");
        CHECK_MSG(fabs(rate / (double)tern_train_rate(&sixty, step) - 1) < 1e-5 || step <= 4,
                  "step %d: %g", step, rate);
        CHECK_MSG(loss_of_log(whole, step) == loss_of_log(cut, step), "step %d: %.9g and %.9g",
                  step, loss_of_log(whole, step), loss_of_log(cut, step));
    }
    tern_train_info info = {0};
    d.on_begin = take_info;
    d.on_event = NULL;
    d.user = &info;
    REQUIRE_OK(tern_train(&d, &err), err); // all is done
    CHECK(info.step == 60 && info.n_steps == 60 && info.n_dropped_lines == 0);
    check_log(cut);
}

// An incomplete line that a killed process leaves at the log's end is cut off and written again.
// Seen to fail: with the whole file kept the last line is not JSON.
TEST(training_resume_drops_the_later_lines_of_the_log_alone) {
    char data[300], out[300], path[400];
    tern_error err;
    losses l;
    make_data(data, sizeof data);
    snprintf(out, sizeof out, "%s", test_tmp("train_log"));
    tern_train_desc d = small_run(data, out, &l);
    d.n_steps = 20;
    REQUIRE_OK(tern_train(&d, &err), err);
    snprintf(path, sizeof path, "%s/log.jsonl", out);
    FILE *f = fopen(path, "a");
    REQUIRE(f != NULL);
    fputs("{\"step\":24,\"tokens\":12288,\"loss\":1}\n{\"step\":28,\"tok", f);
    fclose(f);
    tern_train_info info = {0};
    d.on_begin = take_info;
    d.on_event = NULL;
    d.user = &info;
    d.resume = true;
    d.n_steps = 24;
    REQUIRE_OK(tern_train(&d, &err), err);
    CHECK(info.step == 20 && info.n_dropped_lines == 2);
    CHECK(!isnan(loss_of_log(out, 4)) && loss_of_log(out, 24) != 1);
    CHECK(check_log(out) == 11); // head, two of validation, five losses; resumed, two of step 24
}

// While a run goes on, readers of its log find whole lines up to now. Seen to fail: with lines held
// back.
static bool log_is_there(void *user, const tern_train_event *e) {
    const char *out = user;
    if (!isnan(e->loss)) CHECK(loss_of_log(out, (int)e->step) > 0);
    CHECK(check_log(out) > 0);
    return true;
}

static bool stop_at_seven(void *user, const tern_train_event *e) {
    (void)user;
    CHECK(isnan(e->loss) && e->tokens_per_second > 0 && e->seconds_left >= 0);
    return e->step != 7;
}

TEST(training_tells_each_step_and_its_log_can_be_read_along) {
    char data[300], out[300];
    tern_error err;
    losses l;
    size_t n;
    tern_train_info info = {0};
    make_data(data, sizeof data);
    snprintf(out, sizeof out, "%s", test_tmp("train_along"));
    tern_train_desc d = small_run(data, out, &l);
    d.on_event = log_is_there;
    d.on_step = stop_at_seven;
    d.user = out;
    CHECK(tern_train(&d, &err) == TERN_ERR_CANCELLED);
    CHECK_MSG(strstr(err.message, "after step 7 of 60") && strstr(err.message, "resume goes"), "%s",
              err.message);
    CHECK(newest(out, &n) == 7);
    d.on_event = NULL;
    d.on_step = NULL;
    d.on_begin = take_info;
    d.user = &info;
    d.resume = true;
    REQUIRE_OK(tern_train(&d, &err), err);
    CHECK(info.step == 7 && info.n_steps == 60 && info.n_layers == 2 && info.n_valid_tokens > 0);
    // Table, two layers of 4 x 32 x 32 and 3 x 32 x 64, two sub-norms each, three norms.
    int64_t matrices = 2 * (4 * 32 * 32 + 3 * 32 * 64);
    CHECK_MSG(info.n_ternary == matrices && info.n_params > matrices &&
                  fabs(info.n_epochs - 60.0 * 512 / (double)info.n_tokens) < 0.1,
              "%lld, %lld, %g", (long long)info.n_ternary, (long long)info.n_params, info.n_epochs);
}

// Names that mean something to a shell, and names longer than any buffer was. Seen to fail: with
// names cut at 1000 characters.
TEST(training_takes_folders_of_any_name) {
    char *folder = tern_path_join(test_tmp("train [a]*?"), ""), *data, *out;
    tern_error err;
    losses l;
    size_t n;
    test_folder(folder);
    for (int i = 0; i < 6; i++) {
        char name[201];
        snprintf(name, sizeof name, "%0200d", i);
        char *next = tern_path_join(folder, name);
        tern_free(folder);
        folder = next;
        CHECK(test_folder(folder));
    }
    data = tern_path_join(folder, "d[1]?*");
    out = tern_path_join(folder, "o[!a]");
    make_data_in(data);
    tern_train_desc d = small_run(data, out, &l);
    d.n_steps = 10;
    d.checkpoint_every = 5;
    d.keep = 1;
    REQUIRE_OK(tern_train(&d, &err), err);
    d.resume = true;
    d.n_steps = 20;
    tern_train_info info = {0};
    d.on_begin = take_info;
    d.on_event = NULL;
    d.user = &info;
    REQUIRE_OK(tern_train(&d, &err), err);
    CHECK(strlen(out) > 1200 && info.step == 10 && newest(out, &n) == 20 && n == 1);
    tern_free(folder);
    tern_free(data);
    tern_free(out);
}

// ---- Numbers that are not finite ---------------------------------------------------------------

// A rate that no training survives. Seen to fail: with the loss examined only when the log is due
// (step 8 of this run), and with %g in the log.
TEST(training_stops_where_the_loss_becomes_nan) {
    char data[300], out[300];
    tern_error err;
    losses l;
    size_t n;
    make_data(data, sizeof data);
    snprintf(out, sizeof out, "%s", test_tmp("train_nan"));
    tern_train_desc d = small_run(data, out, &l);
    d.recipe = TERN_RECIPE_LLAMA;
    d.rate = 1e20f;
    d.clip = -1;
    d.log_every = 8;
    CHECK(tern_train(&d, &err) == TERN_ERR_DEVICE);
    long long step = -1;
    const char *at = strstr(err.message, "the loss became ");
    if (at) sscanf(at, "the loss became %*s at step %lld,", &step);
    CHECK_MSG(step >= 2 && step < 8, "%s", err.message);
    CHECK(newest(out, &n) == 0 && n == 0);
    CHECK(check_log(out) == 3); // head, validation, the step
    CHECK(isnan(loss_of_log(out, (int)step)));
    // With a checkpoint after each step the last one is from a step with finite weights.
    snprintf(out, sizeof out, "%s", test_tmp("train_nan_often"));
    d.checkpoint_every = 1;
    CHECK(tern_train(&d, &err) == TERN_ERR_DEVICE);
    CHECK_MSG(newest(out, &n) > 0 && newest(out, &n) < step, "%s", err.message);
}

// Seen to fail: without the check in sum_slots.
TEST(training_keeps_no_checkpoint_that_is_not_finite) {
    char data[300], out[300];
    const float bad[] = {NAN, INFINITY, -INFINITY};
    tern_error err;
    losses l;
    size_t n;
    tern_trainer *t;
    make_data(data, sizeof data);
    snprintf(out, sizeof out, "%s", test_tmp("train_bad"));
    test_folder(out);
    tern_train_desc d = small_run(data, out, &l);
    REQUIRE_OK(tern_trainer_open(&t, &d, &err), err);
    CHECK(tern_trainer_init_weights(t, &err) == TERN_OK);
    t->step = 3;
    CHECK(tern_checkpoint_write(t, &err) == TERN_OK);
    for (int i = 0; i < 3; i++) {
        t->step = 4;
        tern_slot *s = tern_trainer_slot(t, i == 2 ? "m.token_embd.weight" : "output_norm.weight");
        REQUIRE(s != NULL);
        t->backend->write(s->array, 5, 1, &bad[i], &err);
        CHECK(tern_checkpoint_write(t, &err) == TERN_ERR_DEVICE);
        CHECK_MSG(strstr(err.message, s->name) && strstr(err.message, "after step 4"), "%s",
                  err.message);
        t->backend->write(s->array, 5, 1, &(float){1}, &err);
    }
    CHECK(newest(out, &n) == 3 && n == 1);
    // Counters that no run can have; under the sanitizer their product once overflowed.
    t->step = 4;
    t->steps_in_loss = INT_MAX;
    t->scored_in_loss = INT64_MAX;
    CHECK(tern_checkpoint_write(t, &err) == TERN_OK);
    bool resumed;
    CHECK(tern_checkpoint_resume(t, &resumed, &err) == TERN_OK && resumed && t->step == 3);
    CHECK(t->n_damaged == 1);
    tern_trainer_close(t);
}

// Seen to fail: without the check in weight_of_model the run ends with a loss that is NaN.
TEST(training_begins_with_no_model_that_is_not_finite) {
    char data[300], out[300], model[400];
    tern_error err;
    losses l;
    make_data(data, sizeof data);
    snprintf(out, sizeof out, "%s", test_tmp("train_init"));
    snprintf(model, sizeof model, "%s/step-00000004.gguf", out);
    tern_train_desc d = small_run(data, out, &l);
    d.n_steps = 4;
    REQUIRE_OK(tern_train(&d, &err), err);
    tern_file *file;
    REQUIRE_OK(tern_file_open(&file, model, &err), err);
    const tern_tensor *x = tern_file_tensor(file, "output_norm.weight");
    REQUIRE(x != NULL);
    tern_strbuf bytes = read_all(out, "step-00000004.gguf");
    char *hit = memmem(bytes.ptr, bytes.len, test_bytes(&x->data), x->bytes);
    REQUIRE(hit != NULL);
    memcpy(hit, &(float){NAN}, sizeof(float));
    tern_file_close(file);
    test_write(model, bytes.ptr, bytes.len);
    tern_strbuf_free(&bytes);
    snprintf(out, sizeof out, "%s", test_tmp("train_init_out"));
    d.init = model;
    CHECK(tern_train(&d, &err) == TERN_ERR_ARGUMENT); // the shape is the model's
    CHECK_MSG(strstr(err.message, "shape are those of the model that"), "%s", err.message);
    d = (tern_train_desc){.data = data, .out = out, .init = model};
    CHECK(tern_train(&d, &err) == TERN_ERR_FORMAT);
    CHECK_MSG(strstr(err.message, "output_norm.weight holds a number that is not finite"), "%s",
              err.message);
    d.lora_rank = 2;
    CHECK(tern_train(&d, &err) == TERN_ERR_FORMAT);
    CHECK_MSG(strstr(err.message, "not finite"), "%s", err.message);
}

TEST(training_refuses_numbers_without_a_meaning) {
    char data[300], out[300];
    losses l;
    make_data(data, sizeof data);
    snprintf(out, sizeof out, "%s", test_tmp("train_numbers"));
    tern_train_desc d = small_run(data, out, &l);
    tern_train_desc x = d;
    x.n_steps = INT64_MAX, differs(&x, "more than can be counted");
    x = d, x.n_steps = -1, differs(&x, "steps: -1");
    x = d, x.n_layers = -3, differs(&x, "layers: -3");
    x = d, x.keep = -1, differs(&x, "keep: -1");
    x = d, x.log_every = INT_MIN, differs(&x, "log_every");
    x = d, x.rate = NAN, differs(&x, "nan");
    x = d, x.clip = INFINITY, differs(&x, "inf");
    x = d, x.recipe = (tern_recipe)7, differs(&x, "recipe is 7");
    x = d, x.schedule = (tern_schedule)-1, differs(&x, "schedule is -1");
}

// keep = 1, and there is a damaged checkpoint of a later step: that is not the one to keep. Seen to
// fail: if later steps count, the one just written is removed.
TEST(training_keeps_the_newest_good_checkpoint_beside_a_damaged_one) {
    char data[300], out[300], path[400];
    tern_error err;
    losses l;
    size_t n;
    make_data(data, sizeof data);
    snprintf(out, sizeof out, "%s", test_tmp("train_keep"));
    tern_train_desc d = small_run(data, out, &l);
    d.n_steps = 20;
    d.keep = 2;
    REQUIRE_OK(tern_train(&d, &err), err);
    snprintf(path, sizeof path, "%s/step-00000020.gguf", out);
    flip_byte(path, 1000);
    d.resume = true;
    d.keep = 1;
    d.checkpoint_every = 4;
    l = (losses){.stop_at = 1}; // at step 12
    CHECK(tern_train(&d, &err) == TERN_ERR_CANCELLED);
    CHECK(newest(out, &n) == 20 && n == 2);
    tern_train_info info = {0};
    d.on_begin = take_info;
    d.on_event = NULL;
    d.user = &info;
    REQUIRE_OK(tern_train(&d, &err), err);
    CHECK_MSG(info.step == 12 && info.n_damaged == 1, "%lld", (long long)info.step);
    CHECK(newest(out, &n) == 20 && n == 1);
}

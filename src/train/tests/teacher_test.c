// Knowledge distillation in whole runs: students learn, resume to the same bits, and refusals.
#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/hash.h"
#include "tests/support/tiny_model.h"
#include "tests/support/train_fixture.h"

typedef struct figures {
    double cross_entropy, kl, agreement, loss, first_kl; // the last held out; the first
    bool is_known;
} figures;

static bool take_figures(void *user, const tern_train_event *e) {
    figures *f = user;
    if (isnan(e->valid_loss)) return true;
    if (!f->is_known) f->first_kl = e->kl;
    f->is_known = true;
    f->cross_entropy = e->cross_entropy;
    f->kl = e->kl;
    f->agreement = e->top1_agreement;
    f->loss = e->valid_loss;
    return true;
}

// A float model of another width and depth than the students.
static bool make_teacher(const char *data, const char *folder, int64_t n_steps, char *path,
                         size_t size) {
    losses l;
    tern_error err;
    tern_train_desc d = small_run(data, folder, &l);
    d.recipe = TERN_RECIPE_LLAMA;
    d.n_layers = 1;
    d.n_embd = 48;
    d.n_steps = n_steps;
    tern_status status = tern_train(&d, &err);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    snprintf(path, size, "%s/step-%08d.gguf", folder, (int)n_steps);
    return status == TERN_OK;
}

static tern_train_desc student_of(const char *data, const char *out, const char *teacher,
                                  figures *f) {
    losses unused;
    tern_train_desc d = small_run(data, out, &unused);
    *f = (figures){0};
    d.teacher = teacher;
    d.on_event = take_figures;
    d.user = f;
    return d;
}

static uint32_t sum_of(const char *folder, int step) {
    char path[400];
    size_t n;
    snprintf(path, sizeof path, "%s/step-%08d.gguf", folder, step);
    char *bytes = test_read(path, &n);
    uint32_t sum = bytes ? tern_crc32(0, bytes, n) : 0;
    CHECK_MSG(bytes != NULL, "%s is not there", path);
    free(bytes);
    return sum;
}

TEST(train_distilled_student_comes_near_its_teacher) {
    char data[300], path[400], out[300];
    tern_error err;
    figures f;
    make_data(data, sizeof data);
    if (!make_teacher(data, test_tmp("distill_teacher"), 60, path, sizeof path)) return;
    uint32_t before = sum_of(test_tmp("distill_teacher"), 60);
    snprintf(out, sizeof out, "%s", test_tmp("distill_student"));
    tern_train_desc d = student_of(data, out, path, &f);
    d.kd_ratio = 0.75f;
    d.temperature = 2;
    REQUIRE_OK(tern_train(&d, &err), err);
    CHECK_MSG(f.kl < 0.3 * f.first_kl && f.agreement > 0.5, "KL %g, then %g, agreement %g",
              f.first_kl, f.kl, f.agreement);
    double loss = 0.25 * f.cross_entropy + 0.75 * 4 * f.kl;
    CHECK_MSG(fabs(f.loss / loss - 1) < 1e-6, "loss %g, not %g", f.loss, loss);
    CHECK(sum_of(test_tmp("distill_teacher"), 60) == before);
    tern_file *file;
    snprintf(path, sizeof path, "%s/step-00000060.gguf", out);
    REQUIRE_OK(tern_file_open(&file, path, &err), err);
    CHECK(tern_file_tensor(file, "token_embd.weight") != NULL);
    CHECK(!tern_file_tensor(file, TERN_TEACHER "token_embd.weight"));
    tern_file_close(file);
}

TEST(train_distilled_from_itself_has_nothing_to_learn) {
    char data[300], path[400];
    tern_error err;
    figures f;
    make_data(data, sizeof data);
    if (!make_teacher(data, test_tmp("distill_itself"), 20, path, sizeof path)) return;
    tern_train_desc d = student_of(data, test_tmp("distill_same"), path, &f);
    d.n_layers = d.n_embd = d.n_heads = d.n_ff = 0;
    d.init = path;
    d.n_steps = 1;
    d.weight_decay = -1;
    REQUIRE_OK(tern_train(&d, &err), err);
    CHECK_MSG(f.first_kl == 0 && f.kl == 0 && f.agreement == 1, "KL %g, agreement %g", f.kl,
              f.agreement);
    CHECK(f.cross_entropy > 0);
}

// Also with other numbers of threads.
TEST(train_distilled_resumes_to_the_same_bits_after_being_killed) {
    char data[300], path[400], other[400], whole[300], cut[300];
    tern_error err;
    figures f, of_whole;
    make_data(data, sizeof data);
    if (!make_teacher(data, test_tmp("distill_first"), 20, path, sizeof path)) return;
    if (!make_teacher(data, test_tmp("distill_second"), 30, other, sizeof other)) return;
    snprintf(whole, sizeof whole, "%s", test_tmp("distill_whole"));
    snprintf(cut, sizeof cut, "%s", test_tmp("distill_cut"));
    tern_train_desc d = student_of(data, whole, path, &of_whole);
    d.log_every = 7;
    d.n_steps = 30;
    REQUIRE_OK(tern_train(&d, &err), err);
    d = student_of(data, cut, path, &f);
    d.log_every = 7;
    d.n_steps = 30;
    d.checkpoint_every = 5;
    d.resume = true;
    for (int i = 0; i < 4; i++) {
        pid_t child = fork();
        if (child == 0) {
            d.n_threads = 1 + i % 3;
            tern_train(&d, &err);
            _exit(0);
        }
        usleep(60000 + 60000 * (useconds_t)i);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    d.n_threads = 3;
    REQUIRE_OK(tern_train(&d, &err), err);
    CHECK(sum_of(whole, 30) == sum_of(cut, 30));
    CHECK(!f.is_known || (f.kl == of_whole.kl && f.loss == of_whole.loss));
    d.teacher = other;
    CHECK(tern_train(&d, &err) == TERN_ERR_ARGUMENT && strstr(err.message, "teacher is llama, "));
    d.teacher = NULL;
    CHECK(tern_train(&d, &err) == TERN_ERR_ARGUMENT && strstr(err.message, "unknown here"));
    d.teacher = path;
    d.kd_ratio = 0.5f;
    CHECK(tern_train(&d, &err) == TERN_ERR_ARGUMENT);
    CHECK_MSG(strstr(err.message, "kd_ratio is 1 there and 0.5 here"), "%s", err.message);
}

TEST(train_distilled_refuses_other_vocabularies_and_what_has_no_text) {
    char data[300], path[400], other[400];
    tern_error err;
    figures f;
    make_data(data, sizeof data);
    if (!make_teacher(data, test_tmp("distill_refused"), 2, path, sizeof path)) return;
    tern_train_desc d = student_of(data, test_tmp("distill_refused_out"), path, &f);
    snprintf(other, sizeof other, "%s", test_tmp("distill_other.gguf"));
    tiny_model_desc tiny = {.seed = 7};
    REQUIRE_OK(tiny_model_write(other, &tiny, &err), err);
    d.teacher = other;
    CHECK(tern_train(&d, &err) == TERN_ERR_ARGUMENT);
    CHECK_MSG(strstr(err.message, ": token ") && strstr(err.message, " and the student's is "),
              "%s", err.message);
    d.teacher = path;
    d.seq_len = 128;
    CHECK(tern_train(&d, &err) == TERN_ERR_ARGUMENT && strstr(err.message, "the teacher was made"));
    d.seq_len = 64;
    d.kd_ratio = 1.5f;
    CHECK(tern_train(&d, &err) == TERN_ERR_ARGUMENT && strstr(err.message, "kd_ratio 1.5"));
}

// ---- Caches ------------------------------------------------------------------------------------

// The process ends as if by kill -9: at the n-th event of the cache, or at a step.
typedef struct victim {
    figures f;
    int cache_event, step, n_events;
} victim;

static bool die_at_event(void *user, const tern_train_event *e) {
    victim *v = user;
    if (e->cache_bytes && ++v->n_events == v->cache_event) kill(getpid(), SIGKILL);
    return take_figures(&v->f, e);
}

static bool die_at_step(void *user, const tern_train_event *e) {
    const victim *v = user;
    if (e->step == v->step) kill(getpid(), SIGKILL);
    return true;
}

static void run_killed(tern_train_desc d, int cache_event, int step) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        tern_error err;
        victim v = {.cache_event = cache_event, .step = step};
        d.on_event = die_at_event;
        d.on_step = die_at_step;
        d.user = &v;
        tern_train(&d, &err);
        _exit(0);
    }
    waitpid(child, &status, 0);
    CHECK_MSG(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "it ended by itself");
}

static uint32_t sum_of_file(const char *path, size_t *n) {
    char *bytes = test_read(path, n);
    uint32_t sum = bytes ? tern_crc32(0, bytes, *n) : 0;
    CHECK_MSG(bytes != NULL, "%s is not there", path);
    free(bytes);
    return sum;
}

static tern_train_desc cached_of(const char *data, const char *name, const char *teacher,
                                 const char *cache, figures *f) {
    static char outs[16][300];
    static int n;
    char *out = outs[n++ % 16];
    snprintf(out, sizeof outs[0], "%s", test_tmp(name));
    tern_train_desc d = student_of(data, out, teacher, f);
    d.teacher_cache = cache;
    d.n_steps = 30;
    d.checkpoint_every = 10;
    return d;
}

// The first KL is that of the same weights, the last of 30 steps. Seen to fail: rows of another
// window; those held out taken for those that are learnt.
TEST(train_teacher_cache_of_all_tokens_is_the_teacher) {
    char data[300], path[400], cache[300];
    tern_error err;
    figures live, kept, alone;
    make_data(data, sizeof data);
    if (!make_teacher(data, test_tmp("cache_first"), 30, path, sizeof path)) return;
    snprintf(cache, sizeof cache, "%s", test_tmp("all.cache"));
    tern_train_desc d = cached_of(data, "cache_live", path, NULL, &live);
    REQUIRE_OK(tern_train(&d, &err), err);
    d = cached_of(data, "cache_kept", path, cache, &kept);
    tern_file *file;
    REQUIRE_OK(tern_file_open(&file, path, &err), err);
    d.teacher_top_k = (int32_t)tern_file_tensor(file, "token_embd.weight")->ne[1];
    tern_file_close(file);
    REQUIRE_OK(tern_train(&d, &err), err);
    CHECK_MSG(fabs(kept.first_kl / live.first_kl - 1) < 1e-5, "KL %.9g, not %.9g", kept.first_kl,
              live.first_kl);
    CHECK_MSG(fabs(kept.loss / live.loss - 1) < 1e-3 && kept.agreement > 0, "loss %.9g, not %.9g",
              kept.loss, live.loss);
    uint32_t want = sum_of(d.out, 30);
    d = cached_of(data, "cache_alone", NULL, cache, &alone);
    d.n_threads = 1;
    REQUIRE_OK(tern_train(&d, &err), err);
    CHECK(sum_of(d.out, 30) == want && alone.loss == kept.loss);
    d = cached_of(data, "cache_other_order", NULL, cache, &alone);
    d.seed = 9;
    REQUIRE_OK(tern_train(&d, &err), err);
}

// Seen to fail: windows of a killed pass that are not cut where the last whole one ends.
TEST(train_teacher_cache_goes_on_to_the_same_bits_after_being_killed) {
    char data[300], path[400], cache[300], other[300];
    size_t n, m;
    tern_error err;
    figures f;
    make_data(data, sizeof data);
    if (!make_teacher(data, test_tmp("cache_killed"), 10, path, sizeof path)) return;
    snprintf(cache, sizeof cache, "%s", test_tmp("whole.cache"));
    snprintf(other, sizeof other, "%s", test_tmp("killed.cache"));
    tern_train_desc d = cached_of(data, "cache_whole", path, cache, &f);
    d.teacher_tail = 9;
    REQUIRE_OK(tern_train(&d, &err), err);
    uint32_t want = sum_of(d.out, 30), want_cache = sum_of_file(cache, &n);
    d = cached_of(data, "cache_cut", path, other, &f);
    d.teacher_tail = 9;
    d.resume = true;
    run_killed(d, 1, -1);
    run_killed(d, 4, -1);
    char *bytes = test_read(other, &m); // a window that was being written
    CHECK(m < n);
    test_write(other, bytes, m - 100);
    free(bytes);
    d.micro_tokens = 128;
    run_killed(d, 3, -1);
    d.micro_tokens = 256;
    run_killed(d, 0, 7);
    CHECK(sum_of_file(other, &m) == want_cache && m == n);
    d.teacher = NULL;
    d.n_threads = 3;
    d.teacher_tail = 0; // what the file has
    run_killed(d, 0, 19);
    REQUIRE_OK(tern_train(&d, &err), err);
    CHECK(sum_of(d.out, 30) == want);
    d.teacher_cache = NULL;
    d.teacher = path;
    CHECK(tern_train(&d, &err) == TERN_ERR_ARGUMENT &&
          strstr(err.message, ", top 64, tail 9 of seed "));
}

static bool stop_cache(void *user, const tern_train_event *e) {
    (void)user;
    return !(e->cache_bytes && e->cache_share > 0.3);
}

#define CHECK_REFUSED(d, text)                                                                     \
    CHECK_MSG(tern_train(&(d), &err) != TERN_OK && strstr(err.message, text), "\"%s\": %s", text,  \
              err.message)

// What can be seen before anything is computed. Seen to fail: a disk that nobody asks for its room.
TEST(train_teacher_cache_refuses_what_it_cannot_keep) {
    char data[300], path[400], cache[300];
    tern_error err;
    figures f;
    make_data(data, sizeof data);
    if (!make_teacher(data, test_tmp("cache_refused"), 2, path, sizeof path)) return;
    snprintf(cache, sizeof cache, "%s", test_tmp("refused.cache"));
    tern_train_desc d = cached_of(data, "cache_refused_out", NULL, cache, &f);
    CHECK_REFUSED(d, "not there, and a teacher has to write it");
    d.teacher = path;
    d.temperature = 2;
    CHECK_REFUSED(d, "a temperature of 2: what teacher_cache keeps is of 1");
    d.temperature = 0;
    d.device = "webgpu";
    CHECK_REFUSED(d, "teacher_cache is for the CPU");
    d.device = NULL;
    d.teacher_top_k = 100000;
    CHECK_REFUSED(d, "the best 100000 tokens and 0 others cannot be kept of");
    d.teacher_top_k = -1;
    CHECK_REFUSED(d, "a teacher_top_k of -1");
    d.teacher_top_k = 0;
    d.teacher_tail = 100000;
    CHECK_REFUSED(d, "the best 64 tokens and 100000 others cannot be kept of");
    d.teacher_tail = 0;
    d.teacher_cache = path;
    CHECK_REFUSED(d, "this is not a cache of a teacher");
#ifdef __linux__
    d.teacher_cache = "/proc/teacher.cache"; // no disk is as full
    CHECK_REFUSED(d, "and the disk has room for 0.000");
#endif
    d.teacher_cache = cache;
    d.on_event = stop_cache;
    CHECK(tern_train(&d, &err) == TERN_ERR_CANCELLED && strstr(err.message, "goes on from there"));
    d.teacher = NULL;
    CHECK_REFUSED(d, "not complete, and its teacher has to go on");
}

static void take_plan(void *user, const tern_train_info *i) { *(tern_train_info *)user = *i; }

// Seen to fail: a beginning that is not counted; a plan that does not ask the disk.
TEST(train_teacher_cache_plan_says_what_it_will_take) {
    char data[300], path[400], cache[300];
    size_t n;
    tern_error err;
    figures f;
    tern_train_info before, part, after;
    make_data(data, sizeof data);
    if (!make_teacher(data, test_tmp("cache_planned"), 2, path, sizeof path)) return;
    snprintf(cache, sizeof cache, "%s", test_tmp("planned.cache"));
    tern_train_desc d = cached_of(data, "cache_planned_out", path, cache, &f);
    d.n_steps = 1;
    d.on_begin = take_plan;
    d.user = &before;
    REQUIRE_OK(tern_train_plan(&d, &err), err);
    CHECK(before.cache_share == 0 && tern_path_look(cache) == TERN_PATH_NONE);
    d.on_event = stop_cache;
    CHECK(tern_train(&d, &err) == TERN_ERR_CANCELLED);
    d.user = &part;
    REQUIRE_OK(tern_train_plan(&d, &err), err);
    CHECK_MSG(part.cache_share > 0.3 && part.cache_share < 0.9, "%g", part.cache_share);
    d.on_event = NULL;
    d.user = &after;
    REQUIRE_OK(tern_train(&d, &err), err);
    sum_of_file(cache, &n);
    CHECK(after.cache_bytes == n && after.cache_share == 1);
    CHECK_MSG(before.cache_bytes == n && part.cache_bytes == n, "%llu and %llu bytes, not %zu",
              (unsigned long long)before.cache_bytes, (unsigned long long)part.cache_bytes, n);
#ifdef __linux__
    d.teacher_cache = "/proc/teacher.cache";
    CHECK(tern_train_plan(&d, &err) == TERN_ERR_IO && strstr(err.message, "the disk has room for"));
    CHECK(after.cache_bytes == n && after.cache_share == 0);
#endif
}

// Waits in the middle of the pass until the other end of a pipe is closed.
static bool wait_in_pass(void *user, const tern_train_event *e) {
    const int *pipes = user;
    char unused;
    if (e->cache_share < 0.3) return true;
    close(pipes[1]); // says that it is there
    return read(pipes[2], &unused, 1) == 0;
}

// Seen to fail: a file that is not locked.
TEST(train_teacher_cache_has_one_writer) {
    char data[300], path[400], want[300], cache[300], unused;
    size_t n, m;
    int to_parent[2], to_child[2], status = 0;
    tern_error err;
    figures f;
    make_data(data, sizeof data);
    if (!make_teacher(data, test_tmp("cache_two"), 2, path, sizeof path)) return;
    snprintf(want, sizeof want, "%s", test_tmp("one.cache"));
    snprintf(cache, sizeof cache, "%s", test_tmp("two.cache"));
    tern_train_desc d = cached_of(data, "cache_one_out", path, want, &f);
    d.n_steps = 1;
    REQUIRE_OK(tern_train(&d, &err), err);
    d = cached_of(data, "cache_two_out", path, cache, &f);
    d.n_steps = 1;
    CHECK(pipe(to_parent) == 0 && pipe(to_child) == 0);
    pid_t child = fork();
    if (child == 0) {
        int pipes[] = {to_parent[0], to_parent[1], to_child[0]};
        close(to_child[1]);
        d.on_event = wait_in_pass;
        d.user = pipes;
        _exit(tern_train(&d, &err) == TERN_OK ? 0 : 1);
    }
    close(to_parent[1]);
    CHECK(read(to_parent[0], &unused, 1) == 0);
    d.out = cached_of(data, "cache_three_out", path, cache, &f).out;
    CHECK_REFUSED(d, "two.cache: another process is writing there");
    close(to_child[1]);
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(sum_of_file(cache, &n) == sum_of_file(want, &m) && n == m);
    close(to_parent[0]);
    close(to_child[0]);
}

// A run that has looked, before another one wrote the file whole. Seen to fail: a beginning that is
// written aside and renamed, and one that is not compared.
TEST(train_teacher_cache_that_came_meanwhile_is_read_or_refused) {
    char data[300], path[400], cache[300];
    size_t n, m;
    tern_error err;
    figures f;
    tern_trainer *same, *other;
    make_data(data, sizeof data);
    if (!make_teacher(data, test_tmp("cache_while"), 2, path, sizeof path)) return;
    snprintf(cache, sizeof cache, "%s", test_tmp("while.cache"));
    tern_train_desc d = cached_of(data, "cache_while_out", path, cache, &f);
    d.n_steps = 1;
    REQUIRE_OK(tern_trainer_lay_out(&same, &d, &err), err);
    d.teacher_top_k = 5;
    REQUIRE_OK(tern_trainer_lay_out(&other, &d, &err), err);
    d.teacher_top_k = 0;
    REQUIRE_OK(tern_train(&d, &err), err);
    uint32_t want = sum_of_file(cache, &n);
    REQUIRE_OK(tern_teacher_cache_fill(same, &err), err);
    CHECK(tern_teacher_cache_fill(other, &err) == TERN_ERR_FORMAT);
    CHECK_MSG(strstr(err.message, "another run has written it meanwhile"), "%s", err.message);
    CHECK(sum_of_file(cache, &m) == want && m == n);
    tern_trainer_close(same);
    tern_trainer_close(other);
}

// Its writer was killed while it wrote the beginning. Seen to fail: such a file taken as damaged.
TEST(train_teacher_cache_goes_on_from_a_part_of_its_beginning) {
    char data[300], path[400], cache[300], cut[300];
    size_t n, m;
    tern_error err;
    figures f;
    make_data(data, sizeof data);
    if (!make_teacher(data, test_tmp("cache_begun"), 2, path, sizeof path)) return;
    snprintf(cache, sizeof cache, "%s", test_tmp("begun.cache"));
    snprintf(cut, sizeof cut, "%s", test_tmp("cut.cache"));
    tern_train_desc d = cached_of(data, "cache_begun_out", path, cache, &f);
    d.n_steps = 1;
    REQUIRE_OK(tern_train(&d, &err), err);
    uint32_t want = sum_of_file(cache, &n);
    char *bytes = test_read(cache, &n);
    static const size_t kept[] = {0, 5, 55, 56, 300};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        test_write(cut, bytes, kept[i]);
        char out[32];
        snprintf(out, sizeof out, "cache_begun_%zu", i);
        d = cached_of(data, out, NULL, cut, &f);
        d.n_steps = 1;
        CHECK_REFUSED(d, "not complete, and its teacher has to go on");
        d.teacher = path;
        REQUIRE_OK(tern_train(&d, &err), err);
        CHECK(sum_of_file(cut, &m) == want && m == n);
    }
    bytes[30] ^= 1;
    test_write(cut, bytes, 35);
    d = cached_of(data, "cache_begun_last", path, cut, &f);
    CHECK_REFUSED(d, "cut.cache: its beginning is damaged, or another run has written it");
    free(bytes);
}

// A copy of a cache with one byte changed.
static void change(const char *from, const char *to, size_t at) {
    size_t n;
    char *bytes = test_read(from, &n);
    bytes[at < n ? at : n - 1 - (SIZE_MAX - at)] ^= 1;
    test_write(to, bytes, n);
    free(bytes);
}

// A copy whose last window has this number at place `at`, and a checksum that is right: somebody
// wrote it so.
static void falsify(const tern_train_desc *d, const char *from, size_t at, float value) {
    tern_trainer *t;
    tern_error err;
    size_t n;
    int64_t n_scored = 0;
    char *bytes = test_read(from, &n);
    REQUIRE_OK(tern_trainer_lay_out(&t, d, &err), err);
    uint64_t last[2] = {TERN_EPOCH_IN_ORDER, tern_token_set_n_sequences(t->valid) - 1};
    REQUIRE_OK(tern_trainer_fill(t, t->valid, last, 0, &n_scored, &err), err);
    size_t n_rows = (size_t)n_scored * (2 * (5 + 3) + 1) * sizeof value;
    char *rows = bytes + n - sizeof(uint32_t) - n_rows;
    memcpy(rows + at * sizeof value, &value, sizeof value);
    uint32_t sum = tern_crc32(0, t->targets, (size_t)d->seq_len * sizeof *t->targets);
    sum = tern_crc32(sum, rows, n_rows);
    memcpy(rows + n_rows, &sum, sizeof sum);
    tern_trainer_close(t);
    test_write(d->teacher_cache, bytes, n);
    free(bytes);
}

// Seen to fail: ids and logs that are not looked at; a beginning without a checksum.
TEST(train_teacher_cache_refuses_another_and_a_damaged_one) {
    char data[300], path[400], other[400], cache[300], copy[300];
    tern_error err;
    figures f;
    make_data(data, sizeof data);
    if (!make_teacher(data, test_tmp("cache_mine"), 2, path, sizeof path)) return;
    if (!make_teacher(data, test_tmp("cache_another"), 3, other, sizeof other)) return;
    snprintf(cache, sizeof cache, "%s", test_tmp("mine.cache"));
    snprintf(copy, sizeof copy, "%s", test_tmp("copy.cache"));
    tern_train_desc d = cached_of(data, "cache_damaged", path, cache, &f);
    d.n_steps = 1;
    d.teacher_top_k = 5;
    d.teacher_tail = 3;
    REQUIRE_OK(tern_train(&d, &err), err);
    d = cached_of(data, "cache_damaged_out", other, cache, &f);
    CHECK_REFUSED(d, "mine.cache: the cache is of another run: teacher is llama, ");
    d.teacher = NULL;
    d.seq_len = 32;
    CHECK_REFUSED(d, "seq_len is 64 there and 32 here");
    d.seq_len = 64;
    d.packing = TERN_PACKING_BFD;
    CHECK_REFUSED(d, "data is ");
    d.packing = TERN_PACKING_WRAPPED;
    d.teacher_top_k = 6;
    CHECK_REFUSED(d, "it has the best 5 of each token's, and teacher_top_k is 6");
    d.teacher_top_k = 0;
    d.teacher_tail = 2;
    CHECK_REFUSED(d, "it has 3 of each token's others, and teacher_tail is 2");
    d.teacher_tail = 0;
    d.teacher_cache = copy;
    change(cache, copy, 3);
    CHECK_REFUSED(d, "this is not a cache of a teacher");
    change(cache, copy, 24); // windows
    CHECK_REFUSED(d, "its beginning is damaged");
    change(cache, copy, 45); // bytes of the identity
    CHECK_REFUSED(d, "copy.cache");
    change(cache, copy, 50); // the checksum
    CHECK_REFUSED(d, "its beginning is damaged");
    change(cache, copy, SIZE_MAX - 8); // held out, which are validated with first
    CHECK_REFUSED(d, "is damaged, or of another text: remove it");
    size_t n;
    char *bytes = test_read(cache, &n);
    test_write(copy, bytes, n - 1);
    CHECK_REFUSED(d, "not complete, and its teacher has to go on");
    char *longer = calloc(1, n + 1);
    memcpy(longer, bytes, n);
    test_write(copy, longer, n + 1);
    CHECK_REFUSED(d, "it is too long");
    static const struct {
        size_t at;
        float value;
    } wrong[] = {{0, -1},  {4, 1e7f},      {7, -1},         {1, NAN},
                 {8, NAN}, {16, INFINITY}, {16, -INFINITY}, {15, 3}};
    test_write(copy, bytes, n);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        falsify(&d, cache, wrong[i].at, wrong[i].value);
        CHECK_REFUSED(d, "is damaged, or of another text: remove it");
    }
    falsify(&d, cache, 16, -3); // which is a number
    REQUIRE_OK(tern_train(&d, &err), err);
    free(longer);
    free(bytes);
}

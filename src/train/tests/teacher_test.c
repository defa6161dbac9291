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

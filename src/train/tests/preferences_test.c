// Training by preferences: an adapter and a whole model learn which answers are liked, from a
// reference that is the model they begin with, and resume to the same bits. The losses are numpy's,
// and their slopes differences of them.
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/strbuf.h"
#include "tests/library/webgpu/gpu_fixture.h"
#include "tests/support/lora_fixture.h"
#include "train/trainer.h"

// ---- The losses, and their slopes --------------------------------------------------------------

enum { N = 7 };

// The pairs of tests/reference/family_gradients.py.
typedef struct play {
    double logs[2 * N], reference[2 * N], slopes[2 * N];
    int32_t n_scored[2 * N];
    uint8_t labels[N];
} play;

static tern_preference_batch make_play(play *p) {
    for (int i = 0; i < 2 * N; i++) {
        p->logs[i] = -6 + 5 * sin((i + 1) * 0.7390851);
        p->reference[i] = -6 + 5 * sin(2 * (i + 1) * 0.7390851);
        p->n_scored[i] = 3 + i % 5;
        p->labels[i / 2] = i / 2 % 3 != 1;
    }
    return (tern_preference_batch){.n = N,
                                   .logs = p->logs,
                                   .reference = p->reference,
                                   .n_scored = p->n_scored,
                                   .labels = p->labels,
                                   .slopes = p->slopes};
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-12 * (1 + fabs(b)); }

static void check_line(const char *line) {
    char name[8];
    double want[5 + 2 * N];
    int at = 0, n = 0;
    play p;
    if (sscanf(line, "%7s%n", name, &at) != 1) return;
    for (int used; n < 5 + 2 * N && sscanf(line + at, "%lf%n", &want[n], &used) == 1; n++)
        at += used;
    tern_preference_loss f = {.kind = strcmp(name, "dpo") == 0    ? TERN_LOSS_DPO
                                      : strcmp(name, "orpo") == 0 ? TERN_LOSS_ORPO
                                                                  : TERN_LOSS_KTO,
                              .beta = (float)want[0],
                              .smoothing = (float)want[1]};
    tern_preference_batch b = make_play(&p);
    if (f.kind != TERN_LOSS_KTO) b.labels = NULL;
    tern_preference_loss_run(&f, &b);
    // beta is a float here.
    CHECK_MSG(n == 5 + 2 * N && fabs(b.loss - want[2]) < 1e-7 && fabs(b.margin - want[3]) < 1e-7 &&
                  near(b.accuracy, want[4]),
              "%s: loss %.12g of %.12g, margin %.12g of %.12g, accuracy %g of %g", name, b.loss,
              want[2], b.margin, want[3], b.accuracy, want[4]);
    for (int i = 0; i < 2 * N; i++)
        CHECK_MSG(fabs(p.slopes[i] - want[5 + i]) < 1e-7, "%s: slope %d is %.12g, not %.12g", name,
                  i, p.slopes[i], want[5 + i]);
}

TEST(preference_losses_are_those_of_numpy) {
    size_t n;
    int n_lines = 0;
    char *text = test_read("tests/oracles/preferences.txt", &n);
    REQUIRE(text != NULL);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), n_lines++)
        check_line(line);
    CHECK(n_lines == 4);
    free(text);
}

// KTO's drift has no gradient, so its slopes are compared where it is cut off at 0.
TEST(preference_slopes_are_differences_of_the_loss) {
    static const tern_train_loss all[] = {TERN_LOSS_DPO, TERN_LOSS_ORPO, TERN_LOSS_KTO};
    for (int k = 0; k < 3; k++) {
        play p, q;
        tern_preference_loss f = {all[k], 0.3f, all[k] == TERN_LOSS_DPO ? 0.1f : 0};
        tern_preference_batch b = make_play(&p);
        if (f.kind == TERN_LOSS_KTO)
            for (int i = 0; i < N; i++) p.reference[2 * i + 1] = 0;
        tern_preference_loss_run(&f, &b);
        for (int i = 0; i < 2 * N; i++) {
            double sides[2], step = 1e-5;
            for (int side = 0; side < 2; side++) {
                q = p;
                q.logs[i] += side ? step : -step;
                tern_preference_batch other = b;
                other.logs = q.logs;
                other.slopes = q.slopes;
                tern_preference_loss_run(&f, &other);
                sides[side] = other.loss;
            }
            double slope = (sides[1] - sides[0]) / (2 * step);
            CHECK_MSG(fabs(slope - p.slopes[i]) < 1e-8, "loss %d, answer %d: %.9g, not %.9g", k, i,
                      p.slopes[i], slope);
        }
    }
}

// ---- Training ----------------------------------------------------------------------------------

enum { N_STEPS = 24 };

typedef struct seen {
    double first_loss, first_margin, loss, margin, accuracy, last;
    int n;
} seen;

static bool take_seen(void *user, const tern_train_event *e) {
    seen *s = user;
    if (!isnan(e->loss)) s->last = e->loss;
    if (isnan(e->valid_loss)) return true;
    if (s->n++ == 0) s->first_loss = e->valid_loss, s->first_margin = e->reward_margin;
    s->loss = e->valid_loss;
    s->margin = e->reward_margin;
    s->accuracy = e->reward_accuracy;
    return true;
}

// Liked: an answer with the number of the question. As messages, as texts, and with the prompt in
// both answers.
static void put_pair(tern_strbuf *out, int i) {
    static const char *const forms[] = {
        "{\"prompt\":\"the %d\",\"chosen\":\"the end %d\",\"rejected\":\"no %d\"}\n",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"the %d\"}],\"chosen\":[{\"role\":"
        "\"assistant\",\"content\":\"the end %d\"}],\"rejected\":[{\"role\":\"assistant\","
        "\"content\":\"no %d\"}]}\n",
    };
    tern_strbuf_printf(out, forms[i % 2], i % 10, i % 10, i % 10);
}

static void put_common(tern_strbuf *out, int i) {
    static const char *const answers[] = {"the end", "no"};
    tern_strbuf_puts(out, "{");
    for (int k = 0; k < 2; k++)
        tern_strbuf_printf(out,
                           "%s\"%s\":[{\"role\":\"user\",\"content\":\"the %d\"},{\"role\":"
                           "\"assistant\",\"content\":\"%s %d\"}]",
                           k ? "," : "", k ? "rejected" : "chosen", i % 10, answers[k], i % 10);
    tern_strbuf_puts(out, "}\n");
}

static void put_labelled(tern_strbuf *out, int i) {
    tern_strbuf_printf(out, "{\"prompt\":\"the %d\",\"completion\":\"%s %d\",\"label\":%s}\n",
                       i % 10, i % 2 ? "the end" : "no", i % 10, i % 2 ? "true" : "false");
}

static void write_preferences(const char *path, bool labelled, int first, int n) {
    tern_strbuf text = {0};
    for (int i = first; i < first + n; i++)
        if (labelled)
            put_labelled(&text, i);
        else if (i % 3 == 2)
            put_common(&text, i);
        else
            put_pair(&text, i);
    test_write(path, text.ptr, text.len);
    tern_strbuf_free(&text);
}

typedef struct paths {
    char base[300], pairs[300], held_out[300], out[300];
} paths;

static bool make_paths(paths *p, const char *out, bool labelled) {
    snprintf(p->pairs, sizeof p->pairs, "%s.jsonl", test_tmp("preferences"));
    snprintf(p->held_out, sizeof p->held_out, "%s.jsonl", test_tmp("preferences_held_out"));
    snprintf(p->out, sizeof p->out, "%s", test_tmp(out));
    write_preferences(p->pairs, labelled, 0, 40);
    write_preferences(p->held_out, labelled, 100, 12);
    return make_base(&kinds[4], p->base, sizeof p->base);
}

static tern_train_desc small_preferences(const paths *p, tern_train_loss loss, seen *s) {
    *s = (seen){0};
    return (tern_train_desc){.preferences = p->pairs,
                             .held_out_pairs = p->held_out,
                             .loss = loss,
                             .init = p->base,
                             .lora_rank = 4,
                             .out = p->out,
                             .seq_len = SEQ_LEN,
                             .micro_tokens = 160,
                             .batch_pairs = 8,
                             .n_steps = N_STEPS,
                             .rate = 1e-2f,
                             .log_every = 4,
                             .valid_every = N_STEPS,
                             .checkpoint_every = 8,
                             .keep = 2,
                             .n_threads = 1,
                             .on_event = take_seen,
                             .user = s};
}

static void check_learnt(const seen *s, tern_train_loss loss, const char *what) {
    if (loss == TERN_LOSS_DPO) // nothing has changed yet: log 2
        CHECK_MSG(fabs(s->first_loss - 0.6931471805599453) < 1e-12 && s->first_margin == 0,
                  "%s: %.17g", what, s->first_loss);
    if (loss == TERN_LOSS_KTO) CHECK_MSG(fabs(s->first_loss - 0.5) < 1e-12, "%s", what);
    CHECK_MSG(s->n == 2 && s->loss < s->first_loss && s->margin > s->first_margin + 0.1 &&
                  s->accuracy == 1,
              "%s: loss %g to %g, margin %g to %g, accuracy %g", what, s->first_loss, s->loss,
              s->first_margin, s->margin, s->accuracy);
}

TEST(preferences_are_learnt_by_adapters) {
    static const tern_train_loss all[] = {TERN_LOSS_DPO, TERN_LOSS_ORPO, TERN_LOSS_KTO};
    static const char *const names[] = {"dpo", "orpo", "kto"};
    for (int i = 0; i < 3; i++) {
        paths p;
        seen s;
        tern_error err;
        char out[40];
        snprintf(out, sizeof out, "preferences_%s", names[i]);
        if (!make_paths(&p, out, all[i] == TERN_LOSS_KTO)) return;
        tern_train_desc d = small_preferences(&p, all[i], &s);
        REQUIRE_OK(tern_train(&d, &err), err);
        check_learnt(&s, all[i], names[i]);
    }
}

TEST(preferences_are_learnt_by_whole_models) {
    paths p;
    seen s;
    tern_error err;
    if (!make_paths(&p, "preferences_whole", false)) return;
    tern_train_desc d = small_preferences(&p, TERN_LOSS_DPO, &s);
    d.lora_rank = 0;
    d.rate = 1e-3f;
    d.label_smoothing = 0.1f;
    REQUIRE_OK(tern_train(&d, &err), err);
    CHECK_MSG(s.loss < s.first_loss && s.margin > 0.1 && s.accuracy == 1,
              "loss %g to %g, margin %g, accuracy %g", s.first_loss, s.loss, s.margin, s.accuracy);
}

// A step's answers, not as many rows as a GPU computes at once. Fails if settle_pairs takes those.
TEST(preferences_take_rows_for_the_answers_of_a_step) {
    tern_config c = {.n_layers = 2, .n_embd = 64, .n_context = 512};
    tern_error err;
    tern_train_desc d = {.preferences = "pairs.jsonl", .device = "webgpu", .seq_len = 224};
    REQUIRE_OK(tern_train_settle(&d, &c, &err), err);
    CHECK_MSG(d.batch_pairs == 16 && d.micro_tokens == 2 * 16 * 224, "%d", d.micro_tokens);
    d = (tern_train_desc){.preferences = "pairs.jsonl", .batch_pairs = 100, .seq_len = 224};
    REQUIRE_OK(tern_train_settle(&d, &c, &err), err);
    CHECK_MSG(d.micro_tokens == 4096, "%d", d.micro_tokens);
}

// The GPU's steps, up to rounding.
TEST(webgpu_learns_preferences_as_the_cpu_does) {
    double last[2];
    for (int i = 0; i < 2; i++) {
        paths p;
        seen s;
        tern_error err = {0};
        if (!make_paths(&p, i ? "preferences_gpu" : "preferences_cpu", false)) return;
        tern_train_desc d = small_preferences(&p, TERN_LOSS_DPO, &s);
        d.n_steps = 2;
        d.batch_pairs = 2;
        d.micro_tokens = SEQ_LEN;
        d.held_out_pairs = NULL;
        d.device = i ? "webgpu" : "cpu";
        d.webgpu = gpu_webgpu(NULL);
        tern_status status = tern_train(&d, &err);
        if (i && status != TERN_OK && gpu_is_absent(err.message)) return;
        REQUIRE_OK(status, err);
        last[i] = s.last;
    }
    CHECK_MSG(fabs(last[0] - last[1]) < 1e-4, "%.9g and %.9g", last[0], last[1]);
}

TEST(preferences_resume_to_the_same_bits) {
    paths p, cut;
    seen s;
    tern_error err;
    char file[2][400];
    size_t n[2];
    if (!make_paths(&p, "preferences_once", false)) return;
    tern_train_desc d = small_preferences(&p, TERN_LOSS_DPO, &s);
    d.checkpoint_every = 3;
    REQUIRE_OK(tern_train(&d, &err), err);
    double last = s.last;
    cut = p;
    snprintf(cut.out, sizeof cut.out, "%s", test_tmp("preferences_cut"));
    d = small_preferences(&cut, TERN_LOSS_DPO, &s);
    d.checkpoint_every = 3;
    d.resume = true;
    d.n_threads = 1;
    for (int i = 0; i < 4; i++) {
        pid_t child = fork();
        if (child == 0) {
            tern_train(&d, &err);
            _exit(0);
        }
        usleep(60000 + 60000 * (useconds_t)i);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        snprintf(file[0], sizeof file[0], "%s/reference.bin", cut.out);
        if (i == 2) remove(file[0]); // is computed again from the first weights
    }
    REQUIRE_OK(tern_train(&d, &err), err);
    CHECK_MSG(s.last == last || s.n == 0, "%.17g and %.17g", s.last, last);
    snprintf(file[0], sizeof file[0], "%s/step-%08d.gguf", p.out, N_STEPS);
    snprintf(file[1], sizeof file[1], "%s/step-%08d.gguf", cut.out, N_STEPS);
    char *bytes[2] = {test_read(file[0], &n[0]), test_read(file[1], &n[1])};
    CHECK(bytes[0] && bytes[1] && n[0] == n[1] && memcmp(bytes[0], bytes[1], n[0]) == 0);
    free(bytes[0]);
    free(bytes[1]);
    d.beta = 0.2f;
    CHECK(tern_train(&d, &err) == TERN_ERR_ARGUMENT);
    CHECK_MSG(strstr(err.message, "beta is 0.1"), "%s", err.message);
}

static void refuses(tern_train_loss loss, const char *lines, const char *why) {
    paths p;
    seen s;
    tern_error err = {0};
    if (!make_paths(&p, "preferences_refused", false)) return;
    tern_train_desc d = small_preferences(&p, loss, &s);
    test_write(p.pairs, lines, strlen(lines));
    d.held_out_pairs = NULL;
    d.batch_pairs = 2;
    tern_status status = tern_train(&d, &err);
    CHECK_MSG(status != TERN_OK && strstr(err.message, why), "%s: %s", why, err.message);
}

TEST(preferences_refuse_what_are_none) {
    refuses(TERN_LOSS_DPO, "{\"prompt\":\"a\",\"chosen\":\"b\"}\n", "line 1: ");
    refuses(TERN_LOSS_DPO, "{\"text\":\"a\"}\n", "line 1: no \"chosen\"");
    refuses(TERN_LOSS_DPO, "\n{\"chosen\":\"b\",\"rejected\":\"c\"}\n", "line 2: answers without");
    refuses(TERN_LOSS_DPO, "{\"prompt\":\"a\",\"chosen\":1,\"rejected\":\"c\"}\n",
            "line 1: a prompt and its answers");
    refuses(TERN_LOSS_DPO, "{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":\"c\"}\n",
            "fewer than the 2 of a step");
    refuses(TERN_LOSS_KTO, "{\"prompt\":\"a\",\"completion\":\"b\",\"label\":1}\n",
            "line 1: a \"label\"");
    refuses(TERN_LOSS_KTO, "{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":\"c\"}\n",
            "line 1: no \"prompt\"");
}

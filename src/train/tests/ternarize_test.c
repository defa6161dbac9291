// From a float model to a ternary one: its files, the ends that it goes on from, refusals.
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/json/json.h"
#include "tests/support/blobs.h"
#include "tests/support/lora_fixture.h"
#include "train/trainer.h"

static const base_kind llama = {"Llama", {.arch = "llama", .seed = 95, .n_layers = 1}, false};
enum { PATH = 400 };

typedef struct ternarizing {
    char base[PATH], text[PATH], out[PATH], work[PATH];
    const char *paths[1];
    tern_ternarize_desc d;
} ternarizing;

static void write_text(const char *path, int first, int n) {
    FILE *f = fopen(path, "w");
    REQUIRE(f != NULL);
    for (int i = first; i < first + n; i++)
        fprintf(f, "the %d%d%d%d the end %d<|endoftext|>", i % 10, (i + 1) % 10, (i + 2) % 10,
                (i + 3) % 10, i);
    fclose(f);
}

static bool prepare(ternarizing *t, const base_kind *kind, const char *name) {
    *t = (ternarizing){0};
    snprintf(t->text, PATH, "%s", test_tmp("ternarize_text.txt"));
    snprintf(t->work, PATH, "%s", test_tmp(name));
    snprintf(t->out, PATH, "%s.gguf", test_tmp(name));
    write_text(t->text, 0, 300);
    if (!make_base(kind, t->base, PATH)) return false;
    t->paths[0] = t->text;
    t->d = (tern_ternarize_desc){.model = t->base,
                                 .out = t->out,
                                 .work = t->work,
                                 .source = {.paths = t->paths, .n_paths = 1},
                                 .valid = 0.2,
                                 .measure_tokens = 1024,
                                 .report_tokens = 256,
                                 .train = {.seq_len = SEQ_LEN,
                                           .batch_tokens = 256,
                                           .micro_tokens = 128,
                                           .n_steps = 6,
                                           .rate = 2e-3f,
                                           .log_every = 2,
                                           .valid_every = 3,
                                           .valid_tokens = 512,
                                           .checkpoint_every = 2,
                                           .n_threads = 1,
                                           .seed = 3}};
    return true;
}

static char *in(const char *folder, const char *name) {
    static char path[PATH + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static bool same_bytes(const char *a, const char *b) {
    size_t n, m;
    char *x = test_read(a, &n), *y = test_read(b, &m);
    const bool same = x && y && n == m && memcmp(x, y, n) == 0;
    free(x);
    free(y);
    return same;
}

// ---- What is left ------------------------------------------------------------------------------

static double number(const tern_json_doc *doc, const tern_json *of, const char *key) {
    const tern_json *v = tern_json_get(doc, of, key);
    return tern_json_is(v, TERN_JSON_NUMBER) ? v->number : NAN;
}

static bool take_kl(void *user, const tern_train_event *e) {
    double *kl = user;
    if (!isnan(e->valid_loss)) *kl = e->kl;
    return true;
}

// Sizes and distances in the report have the order that they must have.
static void check_report(const char *work, double kl) {
    static const char *const keys[] = {"float", "ternary", "start", "q4_k_m", "q2_k"};
    tern_json_doc doc = {0};
    size_t n;
    double bytes[5], found[5];
    int i = 0;
    char *text = test_read(in(work, "report.json"), &n);
    REQUIRE(text && tern_json_parse(&doc, text, n, NULL) == TERN_OK);
    const tern_json *files = tern_json_get(&doc, tern_json_root(&doc), "files");
    for (const tern_json *f = tern_json_first(&doc, files); f && i < 5;
         f = tern_json_next(&doc, files, f), i++) {
        CHECK(tern_str_is(tern_json_str(tern_json_get(&doc, f, "name")), keys[i]));
        CHECK(number(&doc, f, "perplexity") > 1 && number(&doc, f, "perplexity_error") > 0);
        CHECK(number(&doc, f, "tokens_per_second") > 0 && number(&doc, f, "bits_per_weight") > 1);
        bytes[i] = number(&doc, f, "bytes");
        found[i] = number(&doc, f, "kl");
    }
    REQUIRE(i == 5);
    CHECK(bytes[1] == bytes[2] && bytes[1] < bytes[3] && bytes[3] < bytes[0]);
    CHECK_MSG(found[0] == 0 && found[3] < found[2] && found[1] < found[2], "KL %g %g %g %g %g",
              found[0], found[1], found[2], found[3], found[4]);
    // Training's validation had the table and the norms in floats, and other windows.
    CHECK_MSG(fabs(found[1] / kl - 1) < 0.2, "KL %g, in training %g", found[1], kl);
    CHECK(tern_json_str(tern_json_get(&doc, tern_json_root(&doc), "verdict")).len > 40);
    tern_json_free(&doc);
    free(text);
}

// A model that has something to lose.
static bool learn(ternarizing *t) {
    static char path[PATH + 64];
    char data[PATH];
    losses l;
    tern_error err;
    snprintf(data, PATH, "%s", test_tmp("ternarize_first_data"));
    if (!build_data(t->base, t->text, NULL, data)) return false;
    tern_train_desc d = small_run(t->base, data, test_tmp("ternarize_first"), &l);
    d.lora_rank = 0;
    d.resume = true; // another test may have trained it
    d.rate = 3e-3f;
    const tern_status status = tern_train(&d, &err);
    CHECK_MSG(status == TERN_OK && l.last < 2, "%s, loss %g", err.message, l.last);
    snprintf(path, sizeof path, "%s/step-00000040.gguf", d.out);
    t->d.model = path;
    return status == TERN_OK;
}

// The divergence that the report has is the one that training saw: of documents, each read alone.
// Seen to fail: with documents joined to one text; with the start's file exported.
TEST(ternarize_leaves_a_model_and_what_it_costs) {
    ternarizing t;
    tern_error err;
    tern_file *f;
    double kl = NAN;
    if (!prepare(&t, &llama, "ternarize_whole") || !learn(&t)) return;
    t.d.train.n_steps = 30;
    t.d.train.valid_every = 30;
    t.d.train.valid_tokens = 4096;
    t.d.report_tokens = 4096;
    t.d.train.on_event = take_kl;
    t.d.train.user = &kl;
    REQUIRE_OK(tern_ternarize(&t.d, &err), err);
    check_report(t.work, kl);
    REQUIRE_OK(tern_file_open(&f, t.out, &err), err);
    for (size_t i = 0; i < f->n_tensors; i++) {
        const tern_tensor *x = &f->tensors[i];
        const bool is_layer = tern_tensor_block(x->name, NULL) >= 0 && x->ne[1] > 1;
        const tern_dtype type = is_layer       ? TERN_DTYPE_PQ2_0
                                : x->ne[1] > 1 ? TERN_DTYPE_Q8_0
                                               : TERN_DTYPE_F32;
        CHECK_MSG(x->type == type, "%s is %s", x->name, tern_dtype_name(x->type));
    }
    tern_file_close(f);
    CHECK(tern_path_look(in(t.work, "report.md")) == TERN_PATH_FILE);
    CHECK(tern_path_look(in(t.work, "loss.svg")) == TERN_PATH_FILE);
    CHECK(tern_path_look(in(t.work, "other.gguf")) == TERN_PATH_NONE);
}

static void count_done(void *user, tern_ternarize_stage stage, bool is_done) {
    uint32_t *done = user;
    if (is_done) *done |= 1u << stage;
}

// ---- What else the report has ------------------------------------------------------------------

// The parts of what is lost are all of it.
static void check_lost(const tern_json_doc *doc, const tern_json *lost, double kl) {
    const tern_json *groups = tern_json_get(doc, lost, "by_certainty");
    const tern_json *documents = tern_json_get(doc, lost, "documents");
    double sum = 0, n = 0, shares = 0, before = INFINITY;
    for (const tern_json *g = tern_json_first(doc, groups); g; g = tern_json_next(doc, groups, g)) {
        n += number(doc, g, "tokens");
        sum += number(doc, g, "tokens") * number(doc, g, "kl");
        shares += number(doc, g, "share_of_kl");
    }
    CHECK(n == number(doc, tern_json_root(doc), "tokens"));
    CHECK_MSG(fabs(sum / n / kl - 1) < 1e-5 && fabs(shares - 1) < 1e-6, "KL %g of %g", sum / n, kl);
    const tern_json *d = tern_json_first(doc, documents);
    REQUIRE(d != NULL);
    CHECK(strncmp(tern_json_str(tern_json_get(doc, d, "begin")).ptr, "the ", 4) == 0);
    for (; d; d = tern_json_next(doc, documents, d)) {
        CHECK(number(doc, d, "kl") <= before && number(doc, d, "tokens") >= 16);
        before = number(doc, d, "kl");
    }
    CHECK(before > 0);
}

static void check_details(const char *work, int n_files) {
    tern_json_doc doc = {0};
    size_t n;
    double kl[8] = {0};
    int i = 0;
    char *text = test_read(in(work, "report.json"), &n);
    REQUIRE(text && tern_json_parse(&doc, text, n, NULL) == TERN_OK);
    const tern_json *root = tern_json_root(&doc), *files = tern_json_get(&doc, root, "files");
    for (const tern_json *f = tern_json_first(&doc, files); f && i < 8;
         f = tern_json_next(&doc, files, f))
        kl[i++] = number(&doc, f, "kl");
    CHECK_MSG(i == n_files, "%d files", i);
    CHECK(n_files < 6 || kl[5] == kl[2]); // the start again, as a file from elsewhere
    check_lost(&doc, tern_json_get(&doc, root, "lost"), kl[1]);
    const tern_json *lost = tern_json_path(&doc, "tasks_lost.metrics");
    const tern_json *row = tern_json_is(lost, TERN_JSON_ARRAY) ? tern_json_first(&doc, lost) : NULL;
    CHECK((row != NULL) == (n_files == 6));
    if (row)
        CHECK(number(&doc, row, "n_items") == 5 && number(&doc, row, "first") == 1 &&
              number(&doc, row, "difference_stderr") >= 0);
    tern_json_free(&doc);
    free(text);
}

// A folder of two files, of three items and of two.
static const char *write_task(void) {
    static const char item[] = "{\"sentence_good\":\"the 1234 the end 1\","
                               "\"sentence_bad\":\"end 9999 end 9 the\"}\n";
    static char folder[PATH];
    char path[PATH + 64], items[3 * sizeof item] = "";
    tern_error err;
    snprintf(folder, PATH, "%s", test_tmp("ternarize_tasks"));
    snprintf(path, sizeof path, "%s/blimp", folder);
    CHECK(tern_folder_make(folder, &err) == TERN_OK && tern_folder_make(path, &err) == TERN_OK);
    for (int i = 1; i < 4; i++) {
        strcat(items, item);
        snprintf(path, sizeof path, "%s/blimp/%d.jsonl", folder, i);
        if (i > 1) CHECK(tern_file_write(path, items, strlen(items), &err) == TERN_OK);
    }
    return folder;
}

// Files and tasks that are asked for later make another report. Seen to fail: with a report that is
// taken as done whatever is asked.
TEST(ternarize_reports_where_it_lost) {
    ternarizing t;
    char start[PATH + 64];
    tern_error err;
    uint32_t done = 0;
    if (!prepare(&t, &llama, "ternarize_lost") || !learn(&t)) return;
    t.d.report_tokens = 4096;
    REQUIRE_OK(tern_ternarize(&t.d, &err), err);
    check_details(t.work, 5);
    snprintf(start, sizeof start, "%s", in(t.work, "start.gguf"));
    const char *compared[] = {start};
    t.d.compared = compared;
    t.d.n_compared = 1;
    t.d.tasks = "BLiMP";
    t.d.tasks_folder = write_task();
    t.d.n_task_items = 4;
    t.d.on_stage = count_done;
    t.d.user = &done;
    REQUIRE_OK(tern_ternarize(&t.d, &err), err);
    CHECK(done == (1u << TERN_TERNARIZE_REPORT) - 2);
    check_details(t.work, 6);
    REQUIRE_OK(tern_ternarize(&t.d, &err), err);
    CHECK(done == (1u << TERN_TERNARIZE_STAGES) - 2);
}

// If no step is better than none, the model is the start, and the report says so. Seen to fail:
// with the last step exported.
TEST(ternarize_keeps_the_start_if_training_does_not_help) {
    ternarizing t;
    tern_error err;
    tern_file *out, *first;
    size_t n;
    if (!prepare(&t, &llama, "ternarize_worse") || !learn(&t)) return;
    t.d.train.rate = 2e-2f;
    REQUIRE_OK(tern_ternarize(&t.d, &err), err);
    REQUIRE(tern_path_look(in(t.work, "heal/best.gguf")) == TERN_PATH_NONE);
    REQUIRE_OK(tern_file_open(&out, t.out, &err), err);
    REQUIRE_OK(tern_file_open(&first, in(t.work, "start.gguf"), &err), err);
    for (size_t i = 0; i < out->n_tensors; i++) {
        const tern_tensor *x = &out->tensors[i], *y = tern_file_tensor(first, x->name);
        CHECK_MSG(y && x->bytes == y->bytes &&
                      memcmp(test_bytes(&x->data), test_bytes(&y->data), (size_t)x->bytes) == 0,
                  "%s", x->name);
    }
    tern_file_close(out);
    tern_file_close(first);
    char *report = test_read(in(t.work, "report.md"), &n);
    CHECK(report && strstr(report, "Training has not helped"));
    free(report);
}

static double kl_of_start(const char *work) {
    tern_json_doc doc = {0};
    size_t n;
    char *text = test_read(in(work, "report.json"), &n);
    double kl = NAN;
    CHECK(text && tern_json_parse(&doc, text, n, NULL) == TERN_OK);
    const tern_json *files = tern_json_get(&doc, tern_json_root(&doc), "files");
    for (const tern_json *f = tern_json_first(&doc, files); f; f = tern_json_next(&doc, files, f))
        if (tern_str_is(tern_json_str(tern_json_get(&doc, f, "name")), "start"))
            kl = number(&doc, f, "kl");
    tern_json_free(&doc);
    free(text);
    return kl;
}

// Held-out text, before any training. Seen to fail: with products of another matrix's inputs.
TEST(ternarize_starts_nearer_by_products) {
    static const char *const starts[] = {"rtn", "gptq"};
    double kl[2];
    for (int i = 0; i < 2; i++) {
        ternarizing t;
        tern_error err;
        if (!prepare(&t, &llama, i ? "ternarize_gptq" : "ternarize_rtn") || !learn(&t)) return;
        t.d.start = starts[i];
        t.d.train.n_steps = 1;
        t.d.report_tokens = 2048;
        REQUIRE_OK(tern_ternarize(&t.d, &err), err);
        kl[i] = kl_of_start(t.work);
    }
    CHECK_MSG(kl[1] > 0 && kl[1] < 0.7 * kl[0], "KL %g, by products %g", kl[0], kl[1]);
}

// ---- Ends --------------------------------------------------------------------------------------

typedef struct end {
    int stage, step; // where the process kills itself; -1: nowhere
    int progress;    // of the stage, its n-th report
    bool in_stage;
} end;

static void die_in_stage(void *user, tern_ternarize_stage stage, bool is_done) {
    end *e = user;
    e->in_stage = (int)stage == e->stage && !is_done;
    if (e->in_stage && e->progress == 0 && e->step < 0) kill(getpid(), SIGKILL);
}

static bool die_in_progress(void *user, const char *phase, double fraction) {
    end *e = user;
    (void)phase, (void)fraction;
    if (e->in_stage && e->progress > 0 && --e->progress == 0) kill(getpid(), SIGKILL);
    return true;
}

static bool die_in_step(void *user, const tern_train_event *event) {
    const end *e = user;
    if (event->step == e->step) kill(getpid(), SIGKILL);
    return true;
}

static void die(const tern_ternarize_desc *desc, end e) {
    tern_ternarize_desc d = *desc;
    int status = 0;
    d.on_stage = die_in_stage;
    d.on_progress = die_in_progress;
    d.train.on_step = die_in_step;
    d.user = d.train.user = &e;
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        tern_ternarize(&d, NULL);
        _exit(0);
    }
    waitpid(child, &status, 0);
    CHECK_MSG(WIFSIGNALED(status), "stage %d, step %d, progress %d: it was not killed", e.stage,
              e.step, e.progress);
}

static bool stop_in_step(void *user, const tern_train_event *event) {
    const int *at = user;
    return event->step != *at;
}

// A process that is killed at the begin of each stage, within each, and at steps with and without a
// checkpoint; then one that is cancelled. Seen to fail: with a build that is taken as done when its
// folder is there; with resume left out.
TEST(ternarize_goes_on_to_the_same_bits_after_any_end) {
    static const end ends[] = {
        {0, -1, 0, false}, {0, -1, 2, false}, {1, -1, 0, false}, {1, -1, 1, false},
        {2, -1, 0, false}, {2, -1, 1, false}, {3, -1, 0, false}, {3, -1, 2, false},
        {4, -1, 0, false}, {4, 1, 0, false},  {4, 3, 0, false},  {4, 4, 0, false},
        {5, -1, 0, false}, {5, -1, 2, false}, {6, -1, 0, false}, {6, -1, 2, false}};
    ternarizing whole, cut;
    tern_error err;
    int at = 5;
    if (!prepare(&whole, &llama, "ternarize_at_once") || !learn(&whole)) return;
    whole.d.n_answers = 4;
    whole.d.train.rate = 3e-4f;
    whole.d.start = "gptq";
    REQUIRE_OK(tern_ternarize(&whole.d, &err), err);
    if (!prepare(&cut, &llama, "ternarize_cut") || !learn(&cut)) return;
    cut.d.n_answers = 4;
    cut.d.train.rate = 3e-4f;
    cut.d.start = "gptq";
    for (size_t i = 0; i < 12; i++) die(&cut.d, ends[i]);
    cut.d.train.on_step = stop_in_step;
    cut.d.train.user = &at;
    CHECK(tern_ternarize(&cut.d, &err) == TERN_ERR_CANCELLED);
    cut.d.train.on_step = NULL;
    for (size_t i = 12; i < sizeof ends / sizeof *ends; i++) die(&cut.d, ends[i]);
    cut.d.train.n_threads = 2;
    REQUIRE_OK(tern_ternarize(&cut.d, &err), err);
    CHECK(same_bytes(whole.out, cut.out));
    // start.gguf says where its importance matrix was.
    static const char *const names[] = {"answers.jsonl", "imatrix.gguf", "heal/best.gguf"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[PATH + 64];
        snprintf(path, sizeof path, "%s", in(whole.work, names[i]));
        CHECK_MSG(same_bytes(path, in(cut.work, names[i])), "%s", names[i]);
    }
    CHECK(tern_path_look(in(cut.work, "report.md")) == TERN_PATH_FILE);
}

// Memory that ends anywhere is said and given back, and the next call goes on. Each stage alone, so
// that all of each is walked through. Seen to fail: with names that are not freed.
TEST(ternarize_survives_failing_allocations) {
    ternarizing t;
    tern_error err;
    if (!prepare(&t, &llama, "ternarize_memory") || !learn(&t)) return;
    t.d.n_answers = 2;
    t.d.start = "gptq";
    t.d.train.n_steps = 1;
    t.d.train.rate = 3e-4f;
    t.d.measure_tokens = t.d.report_tokens = t.d.train.valid_tokens = SEQ_LEN;
    t.d.compared = &t.d.model;
    t.d.n_compared = 1;
    const size_t before = tern_mem_get_stats().total_now;
    for (int i = 0; i < TERN_TERNARIZE_STAGES; i++) {
        tern_status status = TERN_ERR_MEMORY;
        int n_failures = 0;
        t.d.stages = 1u << i;
        for (uint64_t n = 1; status != TERN_OK; n += 1 + n / 2, n_failures++) {
            tern_mem_fail_at(n);
            status = tern_ternarize(&t.d, &err);
            tern_mem_fail_at(0);
            CHECK_MSG(tern_mem_get_stats().total_now == before, "%s, %llu: memory is left",
                      tern_ternarize_stage_name((tern_ternarize_stage)i), (unsigned long long)n);
            CHECK_MSG(status == TERN_OK || status == TERN_ERR_MEMORY, "%s, %llu: %s",
                      tern_ternarize_stage_name((tern_ternarize_stage)i), (unsigned long long)n,
                      err.message);
            if (status != TERN_OK && status != TERN_ERR_MEMORY) return;
        }
        CHECK(n_failures > 6);
    }
}

// Stage by stage, and again: then nothing is left to do.
TEST(ternarize_does_a_stage_alone) {
    ternarizing whole, parts;
    tern_error err;
    uint32_t done = 0;
    if (!prepare(&whole, &llama, "ternarize_one_call")) return;
    REQUIRE_OK(tern_ternarize(&whole.d, &err), err);
    if (!prepare(&parts, &llama, "ternarize_parts")) return;
    parts.d.stages = 1u << TERN_TERNARIZE_EXPORT;
    CHECK(tern_ternarize(&parts.d, &err) == TERN_ERR_ARGUMENT);
    CHECK_MSG(strstr(err.message, "stage start is not done, and stage export reads its files"),
              "%s", err.message);
    for (int i = 0; i < TERN_TERNARIZE_STAGES; i++) {
        parts.d.stages = 1u << i;
        REQUIRE_OK(tern_ternarize(&parts.d, &err), err);
    }
    CHECK(same_bytes(whole.out, parts.out));
    parts.d.stages = 0;
    parts.d.on_stage = count_done;
    parts.d.user = &done;
    REQUIRE_OK(tern_ternarize(&parts.d, &err), err);
    CHECK(done == (1u << TERN_TERNARIZE_STAGES) - 2); // there are no answers
}

static void take_plan(void *user, const tern_train_info *info) {
    tern_train_info *plan = user;
    *plan = *info;
}

static size_t count_lines(const char *path) {
    size_t n, lines = 0;
    char *text = test_read(path, &n);
    for (size_t i = 0; text && i < n; i++) lines += text[i] == '\n';
    free(text);
    return lines;
}

static void plan_answers(const ternarizing *t, tern_train_info *plan) {
    tern_error err;
    tern_ternarize_desc d = t->d;
    d.train.on_begin = take_plan;
    d.train.user = plan;
    REQUIRE_OK(tern_ternarize_plan(&d, &err), err);
}

// The model's own words become a part of the text, by its beginnings or the caller's prompts. Seen
// to fail: with answers that are not read.
TEST(ternarize_learns_answers) {
    ternarizing plain, begun, asked;
    char prompts[PATH];
    tern_train_info plans[3];
    tern_error err;
    if (!prepare(&plain, &llama, "ternarize_plain")) return;
    plan_answers(&plain, &plans[0]);
    if (!prepare(&begun, &llama, "ternarize_begun") || !learn(&begun)) return;
    begun.d.n_answers = 5;
    plan_answers(&begun, &plans[1]);
    CHECK(count_lines(in(begun.work, "answers.jsonl")) == 5);
    if (!prepare(&asked, &llama, "ternarize_asked") || !learn(&asked)) return;
    snprintf(prompts, PATH, "%s", test_tmp("ternarize_prompts.jsonl"));
    REQUIRE_OK(tern_file_write(prompts, "\"the 1\"\n{\"text\":\"the 2\"}\n", 25, &err), err);
    asked.d.n_answers = 5;
    asked.d.prompts = prompts;
    plan_answers(&asked, &plans[2]);
    CHECK(count_lines(in(asked.work, "answers.jsonl")) == 5);
    CHECK_MSG(plans[1].n_tokens + plans[1].n_valid_tokens >
                      plans[0].n_tokens + plans[0].n_valid_tokens + 20 &&
                  plans[2].n_tokens + plans[2].n_valid_tokens >
                      plans[0].n_tokens + plans[0].n_valid_tokens + 20,
              "%d, %d, %d", (int)plans[0].n_tokens, (int)plans[1].n_tokens, (int)plans[2].n_tokens);
    asked.d.prompts = NULL;
    CHECK(tern_ternarize(&asked.d, &err) == TERN_ERR_ARGUMENT);
    CHECK_MSG(strstr(err.message, "prompts is 25 bytes"), "%s", err.message);
    asked.d.n_answers = 0;
    CHECK(tern_ternarize(&asked.d, &err) == TERN_ERR_ARGUMENT);
    CHECK_MSG(strstr(err.message, "answers is 5 there and 0 here"), "%s", err.message);
}

// A plan has what training takes, and leaves the data alone.
TEST(ternarize_plans) {
    ternarizing t;
    tern_error err;
    tern_train_info plan = {0};
    if (!prepare(&t, &llama, "ternarize_planned")) return;
    t.d.train.n_steps = 0;
    t.d.n_tokens = 1000; // of steps of 256
    t.d.train.on_begin = take_plan;
    t.d.train.user = &plan;
    REQUIRE_OK(tern_ternarize_plan(&t.d, &err), err);
    CHECK(plan.n_steps == 4 && plan.seconds > 0 && plan.memory.host > plan.memory.weights);
    CHECK(tern_path_look(in(t.work, "data/manifest.json")) == TERN_PATH_FILE);
    CHECK(tern_path_look(in(t.work, "imatrix.gguf")) == TERN_PATH_NONE);
    CHECK(tern_path_look(in(t.work, "heal")) == TERN_PATH_NONE);
    CHECK(plan.start_bytes == 0);
    t.d.start = "gptq";
    t.d.work = test_tmp("ternarize_planned_gptq");
    REQUIRE_OK(tern_ternarize_plan(&t.d, &err), err);
    // Products of a layer's four inputs, and some times the largest matrix.
    CHECK_MSG(plan.start_bytes > 4 * 4 * 128 * 128 && plan.start_bytes < 4 << 20, "%llu bytes",
              (unsigned long long)plan.start_bytes);
}

// ---- Refusals ----------------------------------------------------------------------------------

static void refuses(const tern_ternarize_desc *d, const char *part) {
    tern_error err = {0};
    const tern_status status = tern_ternarize(d, &err);
    CHECK_MSG(status != TERN_OK && strstr(err.message, part), "not \"%s\": %s", part, err.message);
}

// Seen to fail: with an identity that lacks the text.
TEST(ternarize_names_what_is_another_than_before) {
    ternarizing t;
    tern_error err;
    if (!prepare(&t, &llama, "ternarize_named")) return;
    t.d.stages = 1u << TERN_TERNARIZE_DATA;
    REQUIRE_OK(tern_ternarize(&t.d, &err), err);
    t.d.stages = 0;
    tern_ternarize_desc d = t.d;
    d.train.rate = 1e-3f;
    refuses(&d, "is of another run: rate is 0.00200000009 there and 0.00100000005 here");
    d = t.d;
    d.type = "q2_0";
    refuses(&d, "type is PQ2_0 there and Q2_0 here");
    d = t.d;
    d.start = "gptq";
    refuses(&d, "start is rtn there and gptq here");
    d = t.d;
    d.train.n_steps = 7;
    d.train.seed = 4;
    refuses(&d, "steps is 6 there and 7 here; seed is 3 there and 4 here");
    d = t.d;
    d.train.kd_ratio = 0.5f;
    refuses(&d, "kd_ratio is 1 there and 0.5 here");
    write_text(t.text, 1, 300);
    refuses(&t.d, "data is 1 file of ");
    write_text(t.text, 0, 300);
    const base_kind other = {"Llama", {.arch = "llama", .seed = 96, .n_layers = 1}, false};
    CHECK(make_base(&other, t.base, PATH));
    refuses(&t.d, "model is 11 tensors, ");
}

TEST(ternarize_refuses_before_any_work) {
    ternarizing t;
    char text[PATH];
    if (!prepare(&t, &llama, "ternarize_refused")) return;
    tern_ternarize_desc d = t.d;
    d.type = "q4_0";
    refuses(&d, "type 'q4_0': expected ptq1_0, pq2_0");
    d = t.d;
    d.start = "imatrix";
    refuses(&d, "start 'imatrix': expected rtn or gptq");
    d = t.d;
    d.out = "model";
    refuses(&d, "out 'model': expected a name that ends in .gguf");
    d = t.d;
    d.source.n_paths = 0;
    refuses(&d, "no text to learn");
    d = t.d;
    d.compared = (const char *const[]){"/none/iq2.gguf"};
    d.n_compared = 1;
    refuses(&d, "/none/iq2.gguf, to compare, is not there");
    d = t.d;
    d.tasks = "piqa,chess";
    refuses(&d, "tasks, tasks_folder and n_task_items 0: expected names");
    d.tasks_folder = "/none";
    refuses(&d, "/none: there is no file for piqa in it");
    d.tasks = "chess";
    refuses(&d, "there is no task 'chess'");
    d = t.d;
    d.type = "tq2_0"; // rows of 128
    refuses(&d, "blocks of 256");
    d = t.d;
    d.train.lora_rank = 4;
    refuses(&d, "nor an adapter");
    const base_kind uneven = {
        "Llama", {.arch = "llama", .n_embd = 192, .n_heads = 3, .n_kv_heads = 3}, false};
    CHECK(make_base(&uneven, t.base, PATH)); // its down projection would be rounded alone
    refuses(&t.d, "attn_q.weight has rows of 192 weights, which are not whole blocks of 128, those "
                  "of PQ2_0: take type q2_0, blocks of 64");
    CHECK(make_base(&kinds[0], t.base, PATH)); // a BitNet
    refuses(&t.d, "a BitNet is trained ternary");
    CHECK(tern_path_look(t.work) == TERN_PATH_NONE);
    // Text that is learnt, too, is not held out.
    if (!prepare(&t, &llama, "ternarize_refused")) return;
    snprintf(text, sizeof text, "%s", test_tmp("ternarize_same.txt"));
    write_text(text, 0, 300);
    const char *held_out[] = {text};
    t.d.source.held_out = held_out;
    t.d.source.n_held_out = 1;
    t.d.valid = 0;
    refuses(&t.d, "0 tokens are held out, and the report needs 64");
    refuses(&t.d, "0 tokens are held out, and the report needs 64");
}

// ---- Families ----------------------------------------------------------------------------------

TEST(ternarize_takes_any_family_from_either_format) {
    static const base_kind families[] = {
        {"Llama folder", {.arch = "llama", .seed = 76, .n_layers = 1}, true},
        {"Qwen3", {.arch = "qwen3", .type = TERN_DTYPE_F16, .seed = 79, .n_layers = 1}, false},
        {"Qwen3 folder",
         {.arch = "qwen3", .type = TERN_DTYPE_BF16, .seed = 80, .n_layers = 1},
         true},
        {"Gemma 3", {.arch = "gemma3", .type = TERN_DTYPE_BF16, .seed = 81}, false},
        {"LFM2", {.arch = "lfm2", .type = TERN_DTYPE_F16, .seed = 83}, false},
        {"LFM2 folder", {.arch = "lfm2", .type = TERN_DTYPE_BF16, .seed = 84}, true},
        {"Qwen3.5", {.arch = "qwen35", .type = TERN_DTYPE_Q8_0, .seed = 88}, false}};
    static const char *const types[] = {"q2_0", "ptq1_0", "q1_0", "pq2_0"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        ternarizing t;
        char name[40];
        tern_error err;
        tern_model *m;
        snprintf(name, sizeof name, "ternarize_family%zu", i);
        if (!prepare(&t, &families[i], name)) return;
        t.d.type = types[i % 4];
        t.d.train.n_steps = 2;
        t.d.measure_tokens = t.d.report_tokens = t.d.train.valid_tokens = SEQ_LEN;
        if (i % 3) t.d.stages = (1u << TERN_TERNARIZE_REPORT) - 1; // of some no report
        const tern_status status = tern_ternarize(&t.d, &err);
        CHECK_MSG(status == TERN_OK, "%s: %s", families[i].name, err.message);
        if (status != TERN_OK) continue;
        REQUIRE_OK(tern_model_open(&m, t.out, &(tern_model_desc){.n_threads = 1}, &err), err);
        tern_model_close(m);
    }
}

// Multiple choice on our own fixtures: scores and metrics against a second computation from plain
// logits, resuming, and the messages for malformed files.
#include <unistd.h>
#include "base/alloc.h"
#include "base/os/os_file.h"
#include "tasks/eval/eval.h"
#include "tasks/eval/eval_fixture.h"

static const char *write_file(const char *name, const char *text) {
    const char *path = test_tmp(name);
    FILE *f = fopen(path, "wb");
    if (f) fwrite(text, 1, strlen(text), f);
    if (f) fclose(f);
    return path;
}

// The score of continuation after context, as the tiny tokenizer splits the two together.
static double slow_pair(rig *r, const char *context, const char *continuation, bool *greedy) {
    int32_t ids[2048], front[2048];
    tern_ids all = {ids, 2048, 0}, before = {front, 2048, 1};
    char both[2048];
    snprintf(both, sizeof both, "%s %s", context, continuation);
    CHECK(tern_tokenize(r->model, both, strlen(both), TERN_TOKENIZE_BOS, &all, NULL) == TERN_OK);
    if (*context)
        CHECK(tern_tokenize(r->model, context, strlen(context), TERN_TOKENIZE_BOS, &before, NULL) ==
              TERN_OK);
    return slow_score(r, ids, before.n, all.n, greedy);
}

// ---- Multiple choice ---------------------------------------------------------------------------

static const char piqa[] =
    "{\"goal\":\"To rest\",\"sol1\":\"sit on the hen\",\"sol2\":\"eat\",\"label\":0}\n"
    "{\"goal\":\"To rest \",\"sol1\":\"\u00e4\u00f6\u00fc\",\"sol2\":\"abc\",\"label\":1}\n"
    "\n"
    "{\"goal\":\"To stand\",\"sol1\":\"the\",\"sol2\":\"in the end\",\"label\":1}\n";

TEST(eval_choice_is_computed_as_by_hand) {
    static const struct {
        const char *goal, *solutions[2];
        int gold;
    } items[3] = {{"Question: To rest\nAnswer:", {"sit on the hen", "eat"}, 0},
                  {"Question: To rest \nAnswer:", {"\u00e4\u00f6\u00fc", "abc"}, 1},
                  {"Question: To stand\nAnswer:", {"the", "in the end"}, 1}};
    static const int n_characters[3][2] = {{14, 3}, {3, 3}, {3, 10}};
    rig r = {0};
    tern_eval_result result;
    tern_error err = {0};
    if (!rig_open(&r, 44, 0)) return;
    tern_eval_desc desc = {.task = "piqa", .path = write_file("piqa.jsonl", piqa)};
    REQUIRE_OK(tern_eval_run(r.session, &desc, &result, &err), err);
    double acc = 0, norm = 0, bytes = 0;
    for (int i = 0; i < 3; i++) {
        double s[2], c[2], b[2];
        bool greedy;
        for (int k = 0; k < 2; k++) {
            s[k] = slow_pair(&r, items[i].goal, items[i].solutions[k], &greedy);
            c[k] = s[k] / n_characters[i][k];
            b[k] = s[k] / (double)strlen(items[i].solutions[k]);
        }
        acc += (s[1] > s[0]) == items[i].gold;
        norm += (c[1] > c[0]) == items[i].gold;
        bytes += (b[1] > b[0]) == items[i].gold;
    }
    REQUIRE(result.n_items == 3 && result.n_metrics == 3 && result.n_cut == 0);
    CHECK(fabs(result.metrics[0].value - acc / 3) < 1e-12);
    CHECK(fabs(result.metrics[1].value - norm / 3) < 1e-12);
    CHECK(fabs(result.metrics[2].value - bytes / 3) < 1e-12);
    double p = acc / 3; // the error of a share: sqrt(p (1 - p) / (n - 1))
    CHECK(fabs(result.metrics[0].error - sqrt(p * (1 - p) / 2)) < 1e-12);
    rig_close(&r);
}

TEST(eval_lambada_and_blimp_are_computed_as_by_hand) {
    rig r = {0};
    tern_eval_result result;
    tern_error err = {0};
    if (!rig_open(&r, 45, 0)) return;
    tern_eval_desc desc = {.task = "lambada",
                           .path = write_file("lambada.jsonl", "{\"text\":\"on and on\"}\n"
                                                               "{\"text\":\"the hen sang\"}")};
    REQUIRE_OK(tern_eval_run(r.session, &desc, &result, &err), err);
    bool greedy[2];
    double nll =
        -slow_pair(&r, "on and", "on", &greedy[0]) - slow_pair(&r, "the hen", "sang", &greedy[1]);
    CHECK(result.metrics[0].value == (greedy[0] + greedy[1]) / 2.0);
    CHECK(!strcmp(result.metrics[1].name, "perplexity"));
    CHECK(fabs(result.metrics[1].value / exp(nll / 2) - 1) < 1e-5);
    desc = (tern_eval_desc){
        .task = "blimp",
        .path =
            write_file("b.jsonl", "{\"sentence_good\":\"He is.\",\"sentence_bad\":\"He are.\"}")};
    REQUIRE_OK(tern_eval_run(r.session, &desc, &result, &err), err);
    double good = slow_pair(&r, "", "He is.", greedy), bad = slow_pair(&r, "", "He are.", greedy);
    CHECK(result.n_metrics == 1 && result.metrics[0].value == (good > bad));
    CHECK(isnan(result.metrics[0].error)); // one item has none
    rig_close(&r);
}

// A log-probability in a results file.
static double recorded(const char *path, int item, int answer) {
    char line[1024] = "", key[32];
    FILE *f = fopen(path, "rb");
    snprintf(key, sizeof key, "\"item\":%d,", item);
    while (f && fgets(line, sizeof line, f) && !strstr(line, key)) line[0] = 0;
    if (f) fclose(f);
    const char *at = strstr(line, "\"logprobs\":[");
    at = at ? at + 12 : "nan,nan";
    for (int i = 0; i < answer; i++) at = strchr(at, ',') + 1;
    return strtod(at, NULL);
}

static const char shot[] = "{\"goal\":\"Go\",\"sol1\":\"in\",\"sol2\":\"on\",\"label\":1}\n";

TEST(eval_puts_examples_in_front) {
    rig r = {0};
    tern_eval_result result;
    tern_error err = {0};
    bool greedy;
    if (!rig_open(&r, 46, 0)) return;
    const char *path = write_file("main.jsonl", piqa), *results = test_tmp("shots.results");
    tern_eval_desc desc = {.task = "piqa", .path = path, .n_shots = 1, .results_path = results};
    CHECK(tern_eval_run(r.session, &desc, &result, &err) == TERN_ERR_ARGUMENT);
    desc.shots_path = path; // would give away the answers
    CHECK(tern_eval_run(r.session, &desc, &result, &err) == TERN_ERR_ARGUMENT);
    desc.shots_path = write_file("shots.jsonl", shot);
    REQUIRE_OK(tern_eval_run(r.session, &desc, &result, &err), err);
    double want = slow_pair(
        &r, "Question: Go\nAnswer: on\n\nQuestion: To stand\nAnswer:", "in the end", &greedy);
    CHECK_MSG(fabs(recorded(results, 3, 1) - want) < 1e-4, "%.9g, not %.9g",
              recorded(results, 3, 1), want);
    desc.n_shots = 2;
    CHECK(tern_eval_run(r.session, &desc, &result, &err) == TERN_ERR_ARGUMENT);
    CHECK(strstr(err.message, "only 1 items of 2") != NULL);
    rig_close(&r);
}

// In MMLU the description of a subject comes first, and examples are those of the same subject.
// Seen to fail with the first examples of the file whatever their subject, and without description.
TEST(eval_mmlu_takes_examples_of_the_subject) {
    static const char head[] = "The following are multiple choice questions (with answers) about ";
    rig r = {0};
    tern_eval_result result;
    tern_error err = {0};
    bool greedy;
    char text[512];
    if (!rig_open(&r, 48, 0)) return;
    const char *results = test_tmp("mmlu.results");
    const char *shots =
        write_file("mmlu_dev.jsonl",
                   "{\"question\":\"p\",\"subject\":\"a\",\"choices\":[\"1\",\"2\",\"3\",\"4\"],"
                   "\"answer\":3}\n"
                   "{\"question\":\"q\",\"subject\":\"b_c\",\"choices\":[\"1\",\"2\",\"3\",\"4\"],"
                   "\"answer\":2}\n");
    tern_eval_desc desc = {
        .task = "MMLU",
        .n_shots = 1,
        .shots_path = shots,
        .results_path = results,
        .path = write_file("mmlu.jsonl",
                           "{\"question\":\"x\",\"subject\":\"b_c\",\"choices\":[\"5\",\"6\","
                           "\"7\",\"8\"],\"answer\":1}\n"
                           "{\"question\":\"y\",\"subject\":\"a\",\"choices\":"
                           "[\"5\",\"6\",\"7\",\"8\"],\"answer\":1}\n")};
    tern_session_close(r.session);
    REQUIRE_OK(tern_session_open(&r.session, r.model,
                                 &(tern_session_desc){.n_context = 256, .kv_type = TERN_KV_F32},
                                 &err),
               err);
    REQUIRE_OK(tern_eval_run(r.session, &desc, &result, &err), err);
    static const char *const subjects[] = {"b c", "a"}, *const shown[] = {"q", "p"},
                             *const asked[] = {"x", "y"}, *const answers[] = {"C", "D"};
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof text,
                 "%s%s.\n\n%s\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer: %s\n\n%s\nA. 5\nB. 6\nC. 7\nD. 8\n"
                 "Answer:",
                 head, subjects[i], shown[i], answers[i], asked[i]);
        double want = slow_pair(&r, text, "B", &greedy);
        CHECK_MSG(fabs(recorded(results, i, 1) - want) < 1e-4, "item %d: %.9g, not %.9g", i,
                  recorded(results, i, 1), want);
    }
    desc.n_shots = 2;
    CHECK(tern_eval_run(r.session, &desc, &result, &err) == TERN_ERR_ARGUMENT);
    CHECK(strstr(err.message, "only 1 items of 2 for a subject") != NULL);
    rig_close(&r);
}

// If several answers are right, their share of the probability counts. Seen to fail with the first
// answer's alone, and with sums of ln p in place of sums of p.
TEST(eval_truthfulqa_mc2_is_computed_as_by_hand) {
    static const char *const answers[] = {"t", "j", "n", "k"};
    rig r = {0};
    tern_eval_result result;
    tern_error err = {0};
    tern_eval_item item = {0};
    bool greedy;
    static const char line[] =
        "{\"question\":\"Who?\",\"mc2_targets\":{\"choices\":[\"t\",\"j\",\"n\","
        "\"k\"],\"labels\":[1,0,1,0]}}";
    if (!rig_open(&r, 49, 0)) return;
    tern_session_close(r.session);
    REQUIRE_OK(tern_session_open(&r.session, r.model,
                                 &(tern_session_desc){.n_context = 1024, .kv_type = TERN_KV_F32},
                                 &err),
               err);
    tern_eval_desc desc = {.task = "truthfulqa_mc2", .path = write_file("mc2.jsonl", line)};
    REQUIRE_OK(tern_eval_run(r.session, &desc, &result, &err), err);
    REQUIRE_OK(tern_eval_item_read(&item, tern_eval_task_find("truthfulqa_mc2"),
                                   (tern_str){line, sizeof line - 1}, &err),
               err);
    double all = 0, right = 0, first = 0;
    for (int i = 0; i < 4; i++) {
        double p = exp(slow_pair(&r, item.contexts[0].ptr, answers[i], &greedy));
        first += i == 0 ? p : 0;
        all += p;
        right += i % 2 == 0 ? p : 0;
    }
    CHECK(result.n_metrics == 1 && result.n_cut == 0);
    CHECK_MSG(right > 1.1 * first && right < 0.9 * all, "%g, %g of %g: nothing to tell", first,
              right, all);
    CHECK_MSG(fabs(result.metrics[0].value - right / all) < 1e-5, "%.9g, not %.9g",
              result.metrics[0].value, right / all);
    tern_eval_item_free(&item);
    rig_close(&r);
}

// A context of 96 tokens gets the last 96 of context and continuation, without the final token.
TEST(eval_cuts_the_beginning_of_what_is_too_long) {
    rig r = {0}, other;
    tern_eval_result result;
    tern_error err = {0};
    bool greedy;
    char line[512], context[200];
    int32_t ids[300];
    tern_ids all = {ids, 300, 0};
    if (!rig_open(&r, 46, 0)) return;
    for (int i = 0; i < 150; i++) context[i] = (char)('a' + i % 26);
    context[150] = 0;
    snprintf(line, sizeof line, "{\"context\":\"%s\",\"continuation\":\"xyz\"}\n", context);
    const char *results = test_tmp("cut.results");
    tern_eval_desc desc = {
        .task = "lambada", .path = write_file("long.jsonl", line), .results_path = results};
    REQUIRE_OK(tern_eval_run(r.session, &desc, &result, &err), err);
    CHECK(result.n_cut == 1);
    strcat(context, " xyz");
    REQUIRE_OK(tern_tokenize(r.model, context, strlen(context), TERN_TOKENIZE_BOS, &all, &err),
               err);
    other = r;
    REQUIRE_OK(tern_session_open(&other.session, r.model, NULL, &err), err);
    double want = slow_score(&other, ids + all.n - 97, 93, 97, &greedy); // " xyz" has four tokens
    CHECK_MSG(fabs(recorded(results, 0, 0) - want) < 1e-4, "%.9g, not %.9g",
              recorded(results, 0, 0), want);
    tern_session_close(other.session);
    // A continuation that does not fit at all.
    snprintf(line, sizeof line, "{\"context\":\"a\",\"continuation\":\"%s\"}\n", context);
    desc = (tern_eval_desc){.task = "lambada", .path = write_file("longer.jsonl", line)};
    CHECK(tern_eval_run(r.session, &desc, &result, &err) == TERN_ERR_CONTEXT_FULL);
    CHECK(strstr(err.message, "longer.jsonl:1: answer 1 has ") != NULL);
    rig_close(&r);
}

TEST(eval_names_file_and_line_of_a_malformed_item) {
    rig r = {0};
    tern_eval_result result;
    tern_error err = {0};
    if (!rig_open(&r, 47, 0)) return;
    tern_eval_desc desc = {.task = "lambada"};
    desc.path = write_file("bad.jsonl", "\n\n{\"text\":\"a\n");
    CHECK(tern_eval_run(r.session, &desc, &result, &err) == TERN_ERR_FORMAT);
    CHECK_MSG(strstr(err.message, "bad.jsonl:3: ") != NULL, "%s", err.message);
    desc.path = write_file("bad.jsonl", "{\"words\":\"a b\"}");
    CHECK(tern_eval_run(r.session, &desc, &result, &err) == TERN_ERR_FORMAT);
    CHECK_MSG(strstr(err.message, "bad.jsonl:1: not an item of lambada") != NULL, "%s",
              err.message);
    desc.path = write_file("bad.jsonl", "\n\n");
    CHECK(tern_eval_run(r.session, &desc, &result, &err) == TERN_ERR_FORMAT);
    desc.path = test_tmp("absent.jsonl");
    CHECK(tern_eval_run(r.session, &desc, &result, &err) == TERN_ERR_IO);
    desc.task = "chess";
    CHECK(tern_eval_run(r.session, &desc, &result, &err) == TERN_ERR_ARGUMENT);
    rig_close(&r);
}

#define ARC_ITEM(rest)                                                                             \
    "{\"question\":\"q\",\"choices\":{\"text\":[\"a\",\"b\"],\"label\":[\"A\",\"B\"]}" rest "}\n"

// Each kind beside one good item. Seen to fail: the first fault ended the run; a missing key was
// that of an answer without a label; an answer without a text was the best by its length; with one
// answer all were right.
TEST(eval_counts_faulty_items_and_says_why) {
    static const struct {
        const char *line, *says;
    } cases[] = {
        {ARC_ITEM(""), ":2: 'answerKey' names none of the 2 answers"},
        {ARC_ITEM(",\"answerKey\":\"\""), ":2: 'answerKey' names none of the 2 answers"},
        {ARC_ITEM(",\"answerKey\":\"C\""), ":2: 'answerKey' names none of the 2 answers"},
        {"{\"question\":\"q\",\"choices\":{\"text\":[\"a\",\"b\",\"c\"],"
         "\"label\":[\"A\",\"B\"]}}\n",
         ":2: 'answerKey' names none of the 3 answers"},
        {"{\"question\":\"q\",\"choices\":{\"text\":[\"a\",\"\"],\"label\":[\"A\",\"B\"]},"
         "\"answerKey\":\"A\"}\n",
         ":2: answer 2 has no text"},
        {"{\"question\":\"q\",\"choices\":{\"text\":[\"a\"],\"label\":[\"A\"]},"
         "\"answerKey\":\"A\"}\n",
         ":2: 1 answer to choose from"},
        {"{\"question\":\"q\",\"answerKey\":\"A\"}\n", ":2: "},
        {"{\"question\n", ":2: "},
        {"[1]\n", ":2: not an item of arc_easy"},
    };
    rig r = {0};
    tern_error err = {0};
    if (!rig_open(&r, 47, 0)) return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char lines[1000];
        tern_eval_result result;
        tern_eval_desc desc = {.task = "arc_easy", .results_path = test_tmp("faulty.results")};
        snprintf(lines, sizeof lines, "%s%s%s", ARC_ITEM(",\"answerKey\":\"B\""), cases[i].line,
                 cases[i].line);
        desc.path = write_file("faulty.jsonl", lines);
        remove(desc.results_path);
        for (int again = 0; again < 2; again++) {
            REQUIRE_OK(tern_eval_run(r.session, &desc, &result, &err), err);
            CHECK_MSG(result.n_items == 1 && result.n_faulty == 2 &&
                          strstr(result.fault, cases[i].says),
                      "%zu: %zu, %zu: %s", i, result.n_items, result.n_faulty, result.fault);
            CHECK(result.n_resumed == (size_t)again && isfinite(result.metrics[1].value));
        }
    }
    rig_close(&r);
}

// ---- Resuming ----------------------------------------------------------------------------------

static long size_of(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) return -1;
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    fclose(f);
    return n;
}

TEST(eval_resumes_wherever_it_was_cut_off) {
    rig r = {0};
    tern_eval_result whole, result;
    tern_error err = {0};
    if (!rig_open(&r, 48, 0)) return;
    const char *results = test_tmp("piqa.results");
    tern_eval_desc desc = {
        .task = "piqa", .path = write_file("resume.jsonl", piqa), .results_path = results};
    REQUIRE_OK(tern_eval_run(r.session, &desc, &whole, &err), err);
    CHECK(whole.n_resumed == 0);
    long size = size_of(results);
    for (long cut = size - 1; cut >= 0; cut -= 41) {
        CHECK(truncate(results, cut) == 0);
        REQUIRE_OK(tern_eval_run(r.session, &desc, &result, &err), err);
        CHECK(result.n_items == 3 && result.n_resumed < 3 && size_of(results) == size);
        for (int m = 0; m < whole.n_metrics; m++) // to the bit
            CHECK(!memcmp(&result.metrics[m].value, &whole.metrics[m].value, sizeof(double)));
    }
    REQUIRE_OK(tern_eval_run(r.session, &desc, &result, &err), err);
    CHECK(result.n_resumed == 3);
    // Two writers of one file would truncate each other's results. Seen to fail with fopen.
    int fd;
    REQUIRE_OK(tern_file_open_log(&fd, results, UINT64_MAX, false, &err), err);
    CHECK(tern_eval_run(r.session, &desc, &result, &err) == TERN_ERR_IO);
    CHECK_MSG(strstr(err.message, "another process is writing there"), "%s", err.message);
    CHECK(size_of(results) == size);
    close(fd);
    rig_close(&r);
}

TEST(eval_refuses_results_of_something_else) {
    rig r = {0}, stranger = {0};
    tern_eval_result result;
    tern_error err = {0};
    if (!rig_open(&r, 48, 0) || !rig_open(&stranger, 49, 0)) return;
    const char *results = test_tmp("else.results");
    tern_eval_desc desc = {
        .task = "piqa", .path = write_file("else.jsonl", piqa), .results_path = results};
    REQUIRE_OK(tern_eval_run(r.session, &desc, &result, &err), err);
    CHECK(tern_eval_run(stranger.session, &desc, &result, &err) == TERN_ERR_ARGUMENT);
    CHECK_MSG(strstr(err.message, "else.results:1: ") != NULL, "%s", err.message);
    desc.path = write_file("else.jsonl", shot); // other text under the same number
    CHECK(tern_eval_run(r.session, &desc, &result, &err) == TERN_ERR_ARGUMENT);
    CHECK(strstr(err.message, "another text") != NULL);
    desc.path = write_file("second.jsonl", piqa); // another file's items are added
    REQUIRE_OK(tern_eval_run(r.session, &desc, &result, &err), err);
    CHECK(result.n_resumed == 0);
    FILE *f = fopen(results, "ab");
    fputs("{\"task\":\"piqa\",\"file\":\"second.jsonl\",\"item\":9,\"hash\":\"1\"}\n", f);
    fclose(f);
    CHECK(tern_eval_run(r.session, &desc, &result, &err) == TERN_ERR_FORMAT);
    CHECK_MSG(strstr(err.message, "else.results:8: not a record") != NULL, "%s", err.message);
    rig_close(&stranger);
    rig_close(&r);
}

// ---- Memory ------------------------------------------------------------------------------------

TEST(eval_survives_failing_allocations) {
    rig r = {0};
    tern_eval_result result;
    tern_perplexity p;
    if (!rig_open(&r, 50, 0)) return;
    // From now on the session keeps its room for scores.
    CHECK(tern_session_logprobs(r.session, (int32_t[]){1}, 1, (int32_t[]){2},
                                (tern_target_score[1]){{0}}, NULL) == TERN_OK);
    tern_eval_desc desc = {.task = "piqa", .path = write_file("oom.jsonl", piqa), .n_shots = 1};
    desc.shots_path = write_file("oom_shots.jsonl", shot);
    desc.results_path = test_tmp("oom.results");
    // And the pages of the longest text, once it has seen one.
    tern_perplexity_desc window = {.window = 32};
    CHECK(tern_eval_perplexity(r.session, story, sizeof story - 1, &window, &p, NULL) == TERN_OK);
    CHECK(tern_eval_run(r.session, &desc, &result, NULL) == TERN_OK);
    size_t before = tern_heap_get().heap_now;
    tern_status status = TERN_ERR_MEMORY;
    for (uint64_t n = 1; status != TERN_OK && n < 1000; n++) {
        remove(desc.results_path);
        tern_mem_fail_at(n);
        status = tern_eval_run(r.session, &desc, &result, NULL);
        tern_mem_fail_at(0);
        CHECK(status == TERN_OK || status == TERN_ERR_MEMORY);
        CHECK(tern_heap_get().heap_now == before);
    }
    CHECK(status == TERN_OK);
    status = TERN_ERR_MEMORY;
    for (uint64_t n = 1; status != TERN_OK && n < 1000; n++) {
        tern_mem_fail_at(n);
        status = tern_eval_perplexity(r.session, story, sizeof story - 1, &window, &p, NULL);
        tern_mem_fail_at(0);
        CHECK(status == TERN_OK || status == TERN_ERR_MEMORY);
        CHECK(tern_heap_get().heap_now == before);
    }
    CHECK(status == TERN_OK);
    rig_close(&r);
}

// Evaluation on our own fixtures: how each form of each task is rendered, scores and metrics
// against a second computation from plain logits, resuming, and the messages for malformed files.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/os/os_file.h"
#include "tasks/eval/eval.h"
#include "tern_tools.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

// ---- Items -------------------------------------------------------------------------------------

// Rows of the table below omit trailing fields that they do not have.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
typedef struct form {
    const char *task, *line;
    const char *contexts[2], *continuations[5]; // the first ones
    int n, gold;
    const char *description; // NULL: none
    uint64_t right;
} form;

static const form forms[] = {
    {"hellaswag",
     "{\"activity_label\":\"Roof\",\"ctx_a\":\"A man [a b]sits  up [title]Then.\","
     "\"ctx_b\":\"\\u00e9LAN\",\"endings\":[\" he  falls\",\"[x\\ny]\"],\"label\":\"1\"}",
     {"Roof: A man sits up. Then. \u00c9lan"},
     {"he falls", "[x\ny]"},
     2,
     1},
    {"hellaswag",
     "{\"query\":\"Roof: he\",\"choices\":[\"a\",\"b\",\"c\"],\"gold\":2}",
     {"Roof: he"},
     {"a", "b", "c"},
     3,
     2},
    {"arc_easy",
     "{\"question\":\"Why?\",\"choices\":{\"text\":[\"a\",\"b\"],\"label\":[\"1\",\"2\"]},"
     "\"answerKey\":\"2\"}",
     {"Question: Why?\nAnswer:"},
     {"a", "b"},
     2,
     1},
    {"arc_challenge",
     "{\"question\":{\"stem\":\"Why?\",\"choices\":[{\"text\":\"a\",\"label\":\"A\"},"
     "{\"text\":\"b\",\"label\":\"B\"}]},\"answerKey\":\"B\"}",
     {"Question: Why?\nAnswer:"},
     {"a", "b"},
     2,
     1},
    {"arc_challenge",
     "{\"query\":\"Question: Why?\",\"choices\":[\"a\",\"b\"],\"gold\":0}",
     {"Question: Why?\nAnswer:"},
     {"a", "b"},
     2,
     0},
    {"piqa",
     "{\"goal\":\"To sit\",\"sol1\":\"a\",\"sol2\":\"b\",\"label\":1}",
     {"Question: To sit\nAnswer:"},
     {"a", "b"},
     2,
     1},
    {"piqa",
     "{\"query\":\"Question: To sit\\n\",\"choices\":[\"a\",\"b\"],\"gold\":0}",
     {"Question: To sit\nAnswer:"},
     {"a", "b"},
     2,
     0},
    {"winogrande",
     "{\"sentence\":\"Ann beat Bo so _ won. \",\"option1\":\"Ann\",\"option2\":\"Bo\","
     "\"answer\":\"2\"}",
     {"Ann beat Bo so Ann", "Ann beat Bo so Bo"},
     {"won."},
     2,
     1},
    {"winogrande",
     "{\"context_options\":[\"so Ann\",\"so Bo\"],\"continuation\":\"won.\",\"gold\":0}",
     {"so Ann", "so Bo"},
     {"won."},
     2,
     0},
    {"boolq",
     "{\"passage\":\"P.\",\"question\":\"is it\",\"label\":1}",
     {"P.\nQuestion: is it?\nAnswer:"},
     {"no", "yes"},
     2,
     1},
    {"boolq",
     "{\"passage\":\"P.\",\"question\":\"is it\",\"answer\":true}",
     {"P.\nQuestion: is it?\nAnswer:"},
     {"no", "yes"},
     2,
     1},
    {"boolq",
     "{\"query\":\"Passage: P.\\nQuestion: is it?\",\"choices\":[\"no\",\"yes\"],\"gold\":0}",
     {"P.\nQuestion: is it?\nAnswer:"},
     {"no", "yes"},
     2,
     0},
    {"openbookqa",
     "{\"question_stem\":\"Fog is\",\"choices\":{\"text\":[\"a\",\"b\",\"c\",\"d\"],"
     "\"label\":[\"A\",\"B\",\"C\",\"D\"]},\"answerKey\":\" C\"}",
     {"Fog is"},
     {"a", "b", "c", "d"},
     4,
     2},
    {"openbookqa",
     "{\"question\":{\"stem\":\"Fog is\",\"choices\":[{\"text\":\"a\",\"label\":\"A\"},"
     "{\"text\":\"b\",\"label\":\"B\"}]},\"answerKey\":\"A\"}",
     {"Fog is"},
     {"a", "b"},
     2,
     0},
    {"openbookqa",
     "{\"query\":\"Fog is\",\"choices\":[\"a\",\"b\"],\"gold\":1}",
     {"Fog is"},
     {"a", "b"},
     2,
     1},
    {"lambada", "{\"text\":\"I care about signs\"}", {"I care about"}, {"signs"}, 1, 0},
    {"lambada",
     "{\"context\":\"I care about\",\"continuation\":\"signs\"}",
     {"I care about"},
     {"signs"},
     1,
     0},
    {"blimp",
     "{\"sentence_good\":\"He is.\",\"sentence_bad\":\"He are.\"}",
     {""},
     {"He is.", "He are."},
     2,
     0},
    {"copa",
     "{\"premise\":\"The hen woke. \",\"choice1\":\"The fox came.\",\"choice2\":"
     "\"\u00c4on ate.\",\"question\":\"cause\",\"label\":0}",
     {"The hen woke because"},
     {" the fox came.", " \u00e4on ate."},
     2,
     0},
    {"COPA",
     "{\"premise\":\"It rained\u3002\",\"choice1\":\"A\",\"choice2\":\"BC\",\"question\":"
     "\"effect\",\"label\":1}",
     {"It rained therefore"},
     {" a", " bC"},
     2,
     1},
    {"siqa",
     "{\"context\":\"Ann sat.\",\"question\":\"Why?\",\"answerA\":\"a\",\"answerB\":\"b\","
     "\"answerC\":\"c\",\"label\":\"3\"}",
     {"Q: Ann sat. Why?\nA:"},
     {"a", "b", "c"},
     3,
     2},
    {"Social-IQA",
     "{\"context\":\"Ann sat.\",\"question\":\"Why?\",\"answerA\":\"a\",\"answerB\":\"b\","
     "\"answerC\":\"c\",\"correct\":\"B\"}",
     {"Q: Ann sat. Why?\nA:"},
     {"a", "b", "c"},
     3,
     1},
    {"CommonsenseQA",
     "{\"question\":\" Where? \",\"choices\":{\"label\":[\"A\",\"B\",\"C\",\"D\",\"E\"],"
     "\"text\":[\"v\",\"w\",\"x\",\"y\",\"z\"]},\"answerKey\":\"E\"}",
     {"Question: Where?\nA. v\nB. w\nC. x\nD. y\nE. z\nAnswer:"},
     {"A", "B", "C", "D", "E"},
     5,
     4},
    {"commonsense_qa",
     "{\"question\":{\"stem\":\"Where?\",\"choices\":[{\"label\":\"A\",\"text\":\"v\"},"
     "{\"text\":\"w\"},{\"text\":\"x\"},{\"text\":\"y\"},{\"text\":\"z\"}]},"
     "\"answerKey\":\"A\"}",
     {"Question: Where?\nA. v\nB. w\nC. x\nD. y\nE. z\nAnswer:"},
     {"A", "B", "C", "D", "E"},
     5,
     0},
    {"MMLU",
     "{\"question\":\"1+1 \",\"subject\":\"abstract_algebra\",\"choices\":[\"1\",\"2\","
     "\"3\",\"4\"],\"answer\":1}",
     {"1+1\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer:"},
     {"A", "B", "C", "D"},
     4,
     1,
     "The following are multiple choice questions (with answers) about abstract algebra.\n\n"},
    {"mmlu",
     "{\"question\":\"1+1\",\"choices\":[\"1\",\"2\",\"3\",\"4\"],\"answer\":\"D\"}",
     {"1+1\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer:"},
     {"A", "B", "C", "D"},
     4,
     3},
    {"truthfulqa_mc1",
     "{\"question\":\"Do hens sing?\",\"mc1_targets\":{\"choices\":[\"No\",\"Yes\"],"
     "\"labels\":[1,0]}}",
     {NULL},
     {"No", "Yes"},
     2,
     0},
    {"TruthfulQA-mc2",
     "{\"question\":\"Do hens sing?\",\"mc2_targets\":{\"choices\":[\"No\",\"Yes\","
     "\"Never\"],\"labels\":[1,0,1]}}",
     {NULL},
     {"No", "Yes", "Never"},
     3,
     0,
     NULL,
     5},
    {"StoryCloze",
     "{\"input_sentence_1\":\"A.\",\"input_sentence_2\":\"B.\",\"input_sentence_3\":\"C.\","
     "\"input_sentence_4\":\"D.\",\"sentence_quiz1\":\"x\",\"sentence_quiz2\":\"y\","
     "\"answer_right_ending\":2}",
     {"A. B. C. D."},
     {"x", "y"},
     2,
     1},
    {"storycloze_2016",
     "{\"InputSentence1\":\"A.\",\"InputSentence2\":\"B.\",\"InputSentence3\":\"C.\","
     "\"InputSentence4\":\"D.\",\"RandomFifthSentenceQuiz1\":\"x\","
     "\"RandomFifthSentenceQuiz2\":\"y\",\"AnswerRightEnding\":\"1\"}",
     {"A. B. C. D."},
     {"x", "y"},
     2,
     0},
};

// As in lm-evaluation-harness: the question asked is the last of seven.
static const char truthfulqa_ends[] = "in Barcelona, Spain.\n\nQ: Do hens sing?\nA:";

TEST(eval_reads_every_form_of_every_task) {
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const form *f = &forms[i];
        tern_eval_item item = {0};
        tern_error err = {0};
        const tern_eval_task *task = tern_eval_task_find(f->task);
        REQUIRE(task != NULL);
        REQUIRE_OK(tern_eval_item_read(&item, task, (tern_str){f->line, strlen(f->line)}, &err),
                   err);
        CHECK_MSG(item.n == f->n && item.gold == f->gold, "%s: %d answers, %d", f->line, item.n,
                  item.gold);
        CHECK(item.right == f->right);
        const char *description = f->description ? f->description : "";
        CHECK_MSG(!strcmp(tern_strbuf_text(&item.description), description), "'%s'",
                  tern_strbuf_text(&item.description));
        if (!f->contexts[0]) {
            const tern_strbuf *c = &item.contexts[0];
            size_t n_end = sizeof truthfulqa_ends - 1, n_questions = 0;
            REQUIRE(c->len > n_end);
            CHECK(!strcmp(c->ptr + c->len - n_end, truthfulqa_ends));
            for (size_t k = 0; k + 3 < c->len; k++)
                n_questions += (k == 0 || c->ptr[k - 1] == '\n') && !memcmp(c->ptr + k, "Q: ", 3);
            CHECK(n_questions == 7);
        }
        for (int k = 0; k < 5; k++) {
            if (k < 2 && f->contexts[k])
                CHECK_MSG(!strcmp(tern_strbuf_text(&item.contexts[k]), f->contexts[k]), "'%s'",
                          tern_strbuf_text(&item.contexts[k]));
            if (f->continuations[k])
                CHECK_MSG(!strcmp(tern_strbuf_text(&item.continuations[k]), f->continuations[k]),
                          "'%s'", tern_strbuf_text(&item.continuations[k]));
        }
        tern_eval_item_free(&item);
    }
}

TEST(eval_has_a_form_for_every_layout_of_every_task) {
    for (size_t t = 0; tern_eval_task_name(t); t++) {
        const tern_eval_task *task = tern_eval_task_find(tern_eval_task_name(t));
        size_t n = 0, n_layouts = 0;
        while (n_layouts < TERN_EVAL_LAYOUTS && task->layouts[n_layouts].mark) n_layouts++;
        for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
            n += tern_eval_task_find(forms[i].task) == task;
        n += !strncmp(task->name, "arc_", 4) ? 2 : 0; // both have the same layouts; one
        CHECK_MSG(n >= n_layouts, "%s: %zu forms of %zu", task->name, n, n_layouts); // has the rest
    }
    CHECK(!tern_eval_task_find("") && !tern_eval_task_find("mmluu") && !tern_eval_task_find("mml"));
}

TEST(eval_says_what_an_item_lacks) {
    char many[512] = "{\"query\":\"q\",\"gold\":0,\"choices\":[\"a\"";
    for (int i = 0; i < TERN_EVAL_ANSWERS_MAX; i++) strcat(many, ",\"a\"");
    strcat(many, "]}");
    const struct {
        const char *task, *line, *says;
    } bad[] = {
        {"piqa", "{\"goal\":1,\"sol1\":\"a\",\"sol2\":\"b\",\"label\":0}",
         "'goal' is not a string"},
        {"piqa", "{\"goal\":\"a\",\"sol1\":\"a\",\"label\":0}", "'sol2' is missing"},
        {"piqa", "{\"goal\":\"a\",\"sol1\":\"a\",\"sol2\":\"b\",\"label\":2}",
         "'label' names none"},
        {"piqa", "{\"goal\":\"a\",\"sol1\":\"a\",\"sol2\":\"b\"}", "'label' names none"},
        {"piqa", "[\"goal\"]", "expected an object with 'goal' or 'query'"},
        {"piqa", "{\"goal\":", "line 1"},
        {"hellaswag", "{\"query\":\"q\",\"choices\":[],\"gold\":0}", "'choices' is missing"},
        {"hellaswag", "{\"query\":\"q\",\"choices\":[\"a\",2],\"gold\":0}",
         "'choices' is not a string"},
        {"hellaswag", many, "more than 64 answers"},
        {"copa", "{\"premise\":\"P.\",\"choice1\":\"a\",\"choice2\":\"b\",\"label\":0}",
         "'question' is missing"},
        {"mmlu", "{\"question\":\"q\",\"choices\":[\"1\",\"2\",\"3\"],\"answer\":0}",
         "'choices.3' is missing"},
        {"mmlu", "{\"question\":\"q\",\"choices\":[\"1\",\"2\",\"3\",\"4\"],\"answer\":\"E\"}",
         "'answer' names none"},
        {"truthfulqa_mc2",
         "{\"question\":\"q\",\"mc2_targets\":{\"choices\":[\"a\",\"b\"],\"labels\":[0,0]}}",
         "has no 1, or more values"},
        {"truthfulqa_mc2",
         "{\"question\":\"q\",\"mc2_targets\":{\"choices\":[\"a\",\"b\"],"
         "\"labels\":[1,0,1]}}",
         "has no 1, or more values"},
        {"truthfulqa_mc2",
         "{\"question\":\"q\",\"mc2_targets\":{\"choices\":[\"a\",\"b\"],\"labels\":[1]}}",
         "no 0 or 1 for answer 2"},
        {"winogrande", "{\"sentence\":\"_\",\"option1\":\"a\",\"option2\":\"b\",\"answer\":\"0\"}",
         "'answer' names none"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tern_eval_item item = {0};
        tern_error err = {0};
        tern_str line = {bad[i].line, strlen(bad[i].line)};
        CHECK(tern_eval_item_read(&item, tern_eval_task_find(bad[i].task), line, &err) ==
              TERN_ERR_FORMAT);
        CHECK_MSG(strstr(err.message, bad[i].says) != NULL, "%s: %s", bad[i].line, err.message);
        tern_eval_item_free(&item);
    }
}

// ---- A model and files -------------------------------------------------------------------------

typedef struct rig {
    tern_model *model;
    tern_session *session;
    tern_model_info info;
} rig;

static bool rig_open(rig *r, unsigned seed, int n_batch) {
    tern_error err = {0};
    char name[32];
    snprintf(name, sizeof name, "eval%u.gguf", seed);
    const char *path = test_tmp(name);
    tern_model_desc desc = {.n_threads = 1, .n_batch = n_batch};
    tern_session_desc session = {.n_context = 96, .kv_type = TERN_KV_F32};
    bool ok = tiny_model_write(path, &(tiny_model_desc){.seed = seed}, &err) == TERN_OK &&
              tern_model_open(&r->model, path, &desc, &err) == TERN_OK &&
              tern_session_open(&r->session, r->model, &session, &err) == TERN_OK;
    CHECK_MSG(ok, "%s", err.message);
    if (ok) tern_model_get_info(r->model, &r->info);
    return ok;
}

static void rig_close(rig *r) {
    tern_session_close(r->session);
    tern_model_close(r->model);
}

static const char *write_file(const char *name, const char *text) {
    const char *path = test_tmp(name);
    FILE *f = fopen(path, "wb");
    if (f) fwrite(text, 1, strlen(text), f);
    if (f) fclose(f);
    return path;
}

// ln p of ids[first..n), by logits of the whole sequence; *greedy: each was the greatest.
static double slow_score(rig *r, const int32_t *ids, size_t first, size_t n, bool *greedy) {
    size_t n_vocab = (size_t)r->info.n_vocab;
    float *logits = malloc(n * n_vocab * sizeof *logits);
    double sum = 0;
    *greedy = true;
    tern_session_reset(r->session);
    CHECK(tern_session_logits(r->session, ids, n, logits, NULL) == TERN_OK);
    for (size_t i = first; i < n; i++) {
        const float *row = logits + (i - 1) * n_vocab;
        double z = 0;
        for (size_t v = 0; v < n_vocab; v++) {
            z += exp((double)row[v]);
            if (row[v] > row[ids[i]]) *greedy = false;
        }
        sum += (double)row[ids[i]] - log(z);
    }
    free(logits);
    return sum;
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

TEST(session_logprobs_are_those_of_the_logits) {
    rig r = {0};
    int32_t ids[40], targets[40];
    tern_target_score got[40];
    if (!rig_open(&r, 41, 7)) return;
    for (int i = 0; i < 40; i++) {
        ids[i] = (i * 37 + 5) % 300;
        targets[i] = i % 9 < 4 ? -1 : (i * 11) % 300;
    }
    REQUIRE(tern_session_logprobs(r.session, ids, 40, targets, got, NULL) == TERN_OK);
    CHECK(tern_session_n_tokens(r.session) == 40);
    for (int i = 0; i < 40; i++) {
        int32_t sequence[41];
        bool greedy;
        if (targets[i] < 0) {
            CHECK(got[i].logprob == 0 && got[i].best == -1);
            continue;
        }
        memcpy(sequence, ids, sizeof ids);
        sequence[i + 1] = targets[i];
        double want = slow_score(&r, sequence, (size_t)i + 1, (size_t)i + 2, &greedy);
        CHECK_MSG(fabs(got[i].logprob - want) < 1e-5, "token %d: %.9g, not %.9g", i, got[i].logprob,
                  want);
        CHECK(greedy == (got[i].best == targets[i]));
    }
    targets[3] = 300;
    CHECK(tern_session_logprobs(r.session, ids, 4, targets, got, NULL) == TERN_ERR_ARGUMENT);
    rig_close(&r);
}

// ---- Perplexity --------------------------------------------------------------------------------

static const char story[] =
    "Once upon a time there was a hen. She and the other hens sang on and on.\n"
    "The sun went down, and then the hen went to rest in her nest. \u00c4h, the end.";
#define STORY_WORDS 34

TEST(eval_perplexity_of_both_conventions) {
    rig r = {0};
    tern_perplexity p;
    tern_error err = {0};
    int32_t ids[256], window[32];
    tern_ids all = {ids, 256, 0};
    bool greedy;
    if (!rig_open(&r, 42, 0)) return;
    REQUIRE_OK(tern_tokenize(r.model, story, sizeof story - 1, TERN_TOKENIZE_BOS, &all, &err), err);
    const size_t n = all.n;
    // llama.cpp: windows of 32, the last 15 tokens of each are scored, BOS overwrites the first.
    tern_perplexity_desc desc = {.window = 32};
    REQUIRE_OK(tern_eval_perplexity(r.session, story, sizeof story - 1, &desc, &p, &err), err);
    double sum = 0;
    for (size_t begin = 0; begin + 32 <= n; begin += 32) {
        memcpy(window, ids + begin, sizeof window);
        window[0] = r.info.bos_id;
        sum -= slow_score(&r, window, 17, 32, &greedy);
    }
    CHECK(p.n_tokens == n && p.n_windows == n / 32 && p.n_scored == n / 32 * 15 && p.stride == 32);
    CHECK_MSG(fabs(p.nll / sum - 1) < 1e-6, "%.9g, not %.9g", p.nll, sum);
    CHECK(fabs(p.perplexity / exp(sum / (double)p.n_scored) - 1) < 1e-5);
    // transformers: every token but the first, once.
    desc = (tern_perplexity_desc){
        .convention = TERN_PERPLEXITY_TRANSFORMERS, .window = 32, .stride = 20};
    REQUIRE_OK(tern_eval_perplexity(r.session, story, sizeof story - 1, &desc, &p, &err), err);
    sum = -slow_score(&r, ids, 1, 32, &greedy);
    size_t n_windows = 1;
    for (size_t begin = 20, done = 32; done < n; begin += 20, n_windows++) {
        size_t end = begin + 32 < n ? begin + 32 : n;
        sum -= slow_score(&r, ids + begin, done - begin, end - begin, &greedy);
        done = end;
    }
    CHECK(p.n_scored == n - 1 && p.n_windows == n_windows);
    CHECK_MSG(fabs(p.nll / sum - 1) < 1e-6, "%.9g, not %.9g", p.nll, sum);
    CHECK(p.scored_bytes == sizeof story - 1 && p.scored_words == STORY_WORDS);
    CHECK(fabs(p.bits_per_byte - p.nll / log(2) / (double)(sizeof story - 1)) < 1e-9);
    CHECK(fabs(p.nll_per_word - p.nll / STORY_WORDS) < 1e-9 && p.nll_error > 0);
    desc.n_windows = 2;
    REQUIRE_OK(tern_eval_perplexity(r.session, story, sizeof story - 1, &desc, &p, &err), err);
    CHECK(p.n_windows == 2 && p.n_scored == 31 + 20);
    rig_close(&r);
}

// llama-perplexity -c 256, of llama.cpp 34af94cd9: "PPL = 6.2132 +/- 0.15668".
TEST(eval_perplexity_is_that_of_llama_cpp) {
    const char *text = test_data("text/tinystories/valid_30k.txt");
    const char *path = test_data("models/stories260K/stories260K.f32.gguf");
    tern_model *model;
    tern_session *session;
    tern_perplexity p;
    tern_error err = {0};
    char bytes[1 << 16];
    if (!text || !path) return;
    FILE *f = fopen(text, "rb");
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    REQUIRE_OK(tern_model_open(&model, path, NULL, &err), err);
    REQUIRE_OK(tern_session_open(&session, model, NULL, &err), err);
    tern_perplexity_desc desc = {.window = 256};
    REQUIRE_OK(tern_eval_perplexity(session, bytes, n, &desc, &p, &err), err);
    CHECK_MSG(fabs(p.perplexity - 6.2132) < 1e-4 && fabs(p.perplexity_error - 0.15668) < 1e-5,
              "%.6f +- %.6f", p.perplexity, p.perplexity_error);
    tern_session_close(session);
    tern_model_close(model);
}

TEST(eval_perplexity_refuses_impossible_windows) {
    rig r = {0};
    tern_perplexity p;
    if (!rig_open(&r, 43, 0)) return;
    static const tern_perplexity_desc bad[] = {
        {.window = 97},
        {.window = 3},
        {.window = 32, .stride = 16},
        {.window = -1},
        {.convention = TERN_PERPLEXITY_TRANSFORMERS, .window = 32, .stride = 33},
        {.convention = TERN_PERPLEXITY_TRANSFORMERS, .window = 32, .stride = -1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(tern_eval_perplexity(r.session, story, sizeof story - 1, &bad[i], &p, NULL) ==
              TERN_ERR_ARGUMENT);
    CHECK(tern_eval_perplexity(r.session, "", 0, NULL, &p, NULL) == TERN_ERR_ARGUMENT);
    rig_close(&r);
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
    REQUIRE_OK(tern_eval_choice(r.session, &desc, &result, &err), err);
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
    REQUIRE_OK(tern_eval_choice(r.session, &desc, &result, &err), err);
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
    REQUIRE_OK(tern_eval_choice(r.session, &desc, &result, &err), err);
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
    CHECK(tern_eval_choice(r.session, &desc, &result, &err) == TERN_ERR_ARGUMENT);
    desc.shots_path = path; // would give away the answers
    CHECK(tern_eval_choice(r.session, &desc, &result, &err) == TERN_ERR_ARGUMENT);
    desc.shots_path = write_file("shots.jsonl", shot);
    REQUIRE_OK(tern_eval_choice(r.session, &desc, &result, &err), err);
    double want = slow_pair(
        &r, "Question: Go\nAnswer: on\n\nQuestion: To stand\nAnswer:", "in the end", &greedy);
    CHECK_MSG(fabs(recorded(results, 3, 1) - want) < 1e-4, "%.9g, not %.9g",
              recorded(results, 3, 1), want);
    desc.n_shots = 2;
    CHECK(tern_eval_choice(r.session, &desc, &result, &err) == TERN_ERR_ARGUMENT);
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
    REQUIRE_OK(tern_eval_choice(r.session, &desc, &result, &err), err);
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
    CHECK(tern_eval_choice(r.session, &desc, &result, &err) == TERN_ERR_ARGUMENT);
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
    REQUIRE_OK(tern_eval_choice(r.session, &desc, &result, &err), err);
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
    REQUIRE_OK(tern_eval_choice(r.session, &desc, &result, &err), err);
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
    CHECK(tern_eval_choice(r.session, &desc, &result, &err) == TERN_ERR_CONTEXT_FULL);
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
    CHECK(tern_eval_choice(r.session, &desc, &result, &err) == TERN_ERR_FORMAT);
    CHECK_MSG(strstr(err.message, "bad.jsonl:3: ") != NULL, "%s", err.message);
    desc.path = write_file("bad.jsonl", "{\"words\":\"a b\"}");
    CHECK(tern_eval_choice(r.session, &desc, &result, &err) == TERN_ERR_FORMAT);
    CHECK_MSG(strstr(err.message, "bad.jsonl:1: not an item of lambada") != NULL, "%s",
              err.message);
    desc.path = write_file("bad.jsonl", "\n\n");
    CHECK(tern_eval_choice(r.session, &desc, &result, &err) == TERN_ERR_FORMAT);
    desc.path = test_tmp("absent.jsonl");
    CHECK(tern_eval_choice(r.session, &desc, &result, &err) == TERN_ERR_IO);
    desc.task = "chess";
    CHECK(tern_eval_choice(r.session, &desc, &result, &err) == TERN_ERR_ARGUMENT);
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
            REQUIRE_OK(tern_eval_choice(r.session, &desc, &result, &err), err);
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
    REQUIRE_OK(tern_eval_choice(r.session, &desc, &whole, &err), err);
    CHECK(whole.n_resumed == 0);
    long size = size_of(results);
    for (long cut = size - 1; cut >= 0; cut -= 41) {
        CHECK(truncate(results, cut) == 0);
        REQUIRE_OK(tern_eval_choice(r.session, &desc, &result, &err), err);
        CHECK(result.n_items == 3 && result.n_resumed < 3 && size_of(results) == size);
        for (int m = 0; m < whole.n_metrics; m++) // to the bit
            CHECK(!memcmp(&result.metrics[m].value, &whole.metrics[m].value, sizeof(double)));
    }
    REQUIRE_OK(tern_eval_choice(r.session, &desc, &result, &err), err);
    CHECK(result.n_resumed == 3);
    // Two writers of one file would truncate each other's results. Seen to fail with fopen.
    int fd;
    REQUIRE_OK(tern_file_open_log(&fd, results, UINT64_MAX, false, &err), err);
    CHECK(tern_eval_choice(r.session, &desc, &result, &err) == TERN_ERR_IO);
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
    REQUIRE_OK(tern_eval_choice(r.session, &desc, &result, &err), err);
    CHECK(tern_eval_choice(stranger.session, &desc, &result, &err) == TERN_ERR_ARGUMENT);
    CHECK_MSG(strstr(err.message, "else.results:1: ") != NULL, "%s", err.message);
    desc.path = write_file("else.jsonl", shot); // other text under the same number
    CHECK(tern_eval_choice(r.session, &desc, &result, &err) == TERN_ERR_ARGUMENT);
    CHECK(strstr(err.message, "another text") != NULL);
    desc.path = write_file("second.jsonl", piqa); // another file's items are added
    REQUIRE_OK(tern_eval_choice(r.session, &desc, &result, &err), err);
    CHECK(result.n_resumed == 0);
    FILE *f = fopen(results, "ab");
    fputs("{\"task\":\"piqa\",\"file\":\"second.jsonl\",\"item\":9,\"hash\":\"1\"}\n", f);
    fclose(f);
    CHECK(tern_eval_choice(r.session, &desc, &result, &err) == TERN_ERR_FORMAT);
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
    CHECK(tern_eval_choice(r.session, &desc, &result, NULL) == TERN_OK);
    size_t before = tern_heap_get().heap_now;
    tern_status status = TERN_ERR_MEMORY;
    for (uint64_t n = 1; status != TERN_OK && n < 1000; n++) {
        remove(desc.results_path);
        tern_mem_fail_at(n);
        status = tern_eval_choice(r.session, &desc, &result, NULL);
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

// ---- The paper's checklist ---------------------------------------------------------------------

static bool collect(void *user, const char *text, size_t n) {
    tern_strbuf_append(user, text, n);
    return true;
}

static bool discard(void *user, const char *text, size_t n) {
    (void)user, (void)text, (void)n;
    return true;
}

static const char *verdict_of(const tern_strbuf *report, const char *property) {
    char key[64];
    snprintf(key, sizeof key, "{\"property\":\"%s\"", property);
    const char *at = strstr(tern_strbuf_text(report), key);
    at = at ? strstr(at, "\"holds\":\"") : NULL;
    return at ? at + 9 : "missing";
}

TEST(eval_paper_tells_a_bitnet_from_a_llama) {
    static const char *const properties[] = {"BitLinear layers", "weights",    "scale", "zeros",
                                             "bits a weight",    "activations"};
    const char *path = test_tmp("paper.gguf");
    for (int is_llama = 0; is_llama < 2; is_llama++) {
        tern_strbuf out = {0};
        tern_error err = {0};
        tern_json_doc doc;
        tiny_model_desc desc = {.arch = is_llama ? "llama" : "bitnet-b1.58", .seed = 3};
        REQUIRE_OK(tiny_model_write(path, &desc, &err), err);
        REQUIRE_OK(tern_eval_paper(path, TERN_FORMAT_JSON, collect, &out, &err), err);
        for (size_t i = 0; i < sizeof properties / sizeof *properties; i++)
            CHECK_MSG(!strncmp(verdict_of(&out, properties[i]), is_llama ? "no" : "yes", 2),
                      "%s: %.10s", properties[i], verdict_of(&out, properties[i]));
        CHECK(!strncmp(verdict_of(&out, "biases"), "yes", 3));
        CHECK(!strncmp(verdict_of(&out, "attention"), "no", 2));
        CHECK(!strncmp(verdict_of(&out, "training"), "unknown", 7));
        REQUIRE_OK(tern_json_parse(&doc, out.ptr, out.len, &err), err);
        tern_json_free(&doc);
        tern_strbuf_free(&out);
    }
    CHECK(tern_eval_paper(path, TERN_FORMAT_DOT, discard, NULL, NULL) == TERN_ERR_ARGUMENT);
}

TEST(eval_paper_survives_failing_allocations) {
    const char *path = test_tmp("paper_oom.gguf");
    tern_status status = TERN_ERR_MEMORY;
    REQUIRE(tiny_model_write(path, &(tiny_model_desc){.n_layers = 1}, NULL) == TERN_OK);
    size_t before = tern_heap_get().heap_now;
    for (uint64_t n = 1; status != TERN_OK && n < 1000; n++) {
        tern_mem_fail_at(n);
        status = tern_eval_paper(path, TERN_FORMAT_TEXT, discard, NULL, NULL);
        tern_mem_fail_at(0);
        CHECK(status == TERN_OK || status == TERN_ERR_MEMORY);
        CHECK(tern_heap_get().heap_now == before);
    }
    CHECK(status == TERN_OK);
}

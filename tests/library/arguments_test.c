// Arguments that mean nothing are refused by their own names, and an error speaks of the last call
// alone.
#include <math.h>
#include <string.h>
#include "tests/support/harness.h"
#include "tern.h"
#include "tern_memory.h"
#include "tern_tools.h"
#include "tern_train.h"
#include "tests/support/tiny_model.h"

static const int32_t prompt[] = {5, 70, 100, 33, 259, 8};
#define N_PROMPT (sizeof prompt / sizeof *prompt)

static bool open_tiny(tern_model **m, tern_session **s) {
    tern_error err = {0};
    const char *path = test_tmp("arguments.gguf");
    *m = NULL, *s = NULL;
    bool ok = tiny_model_write(path, &(tiny_model_desc){.seed = 3}, &err) == TERN_OK &&
              tern_model_open(m, path, NULL, &err) == TERN_OK &&
              tern_session_open(s, *m, NULL, &err) == TERN_OK;
    test_check(ok, __FILE__, __LINE__, "%s", err.message);
    return ok;
}

static bool ignore(void *user, const char *text, size_t n) {
    (void)user, (void)text, (void)n;
    return true;
}

static void refused(const char *what, tern_status status, const tern_error *err, const char *by) {
    test_check(status == TERN_ERR_ARGUMENT && strstr(err->message, by), __FILE__, __LINE__,
               "%s: %s (%s), expected one about %s", what, tern_status_name(status), err->message,
               by);
}
#define REFUSED(by, call) refused(#call, (call), &err, by)

// Seen to fail: NaN was taken for "the default", or the message blamed other values.
TEST(arguments_sampling_refuses_nan_by_its_name) {
    tern_model *m;
    tern_session *s;
    tern_error err = {0};
    REQUIRE(open_tiny(&m, &s));
    tern_sampling q;
    const struct {
        const char *name;
        float *value;
    } all[] = {{"temperature", &q.temperature},
               {"top_p", &q.top_p},
               {"min_p", &q.min_p},
               {"repeat_penalty", &q.repeat_penalty},
               {"frequency_penalty", &q.frequency_penalty},
               {"presence_penalty", &q.presence_penalty}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const tern_generate_params p = {.sampling = &q, .max_tokens = 2};
        q = tern_sampling_default();
        *all[i].value = NAN;
        REFUSED(all[i].name, tern_generate_ids(s, prompt, N_PROMPT, &p, NULL, &err));
    }
    tern_session_close(s);
    tern_model_close(m);
}

TEST(arguments_that_make_no_sense_are_refused) {
    tern_model *m, *none = NULL;
    tern_session *s, *other = NULL;
    tern_error err = {0};
    REQUIRE(open_tiny(&m, &s));
    const tern_logit_bias twice[] = {{35, 1}, {36, 1}, {35, 1}};
    tern_generate_params p = {.biases = twice, .n_biases = 3};
    REFUSED("token 35", tern_generate_ids(s, prompt, N_PROMPT, &p, NULL, &err));
    p = (tern_generate_params){.fork_at = -3};
    REFUSED("fork_at", tern_generate_ids(s, prompt, N_PROMPT, &p, NULL, &err));
    p = (tern_generate_params){.max_tokens = -1};
    REFUSED("max_tokens", tern_generate_ids(s, prompt, N_PROMPT, &p, NULL, &err));
    const tern_message hello = {.role = "user", .content = "hello"};
    REFUSED("max_tokens", tern_chat_answer(s, &hello, 1, &p, NULL, &err));

    tern_session_desc sd = {.kv_type = (tern_kv_type)99};
    REFUSED("kv_type", tern_session_open(&other, m, &sd, &err));
    sd = (tern_session_desc){.n_keep = -1};
    REFUSED("n_keep", tern_session_open(&other, m, &sd, &err));
    tern_ids ids = {(int32_t[8]){0}, 8, 1};
    REFUSED("flags", tern_tokenize(m, "a", 1, 4, &ids, &err));
    CHECK(ids.n == 0 && !other);

    const char *path = test_tmp("arguments.gguf");
    const tern_model_desc wrong[] = {
        {.ternary = (tern_ternary_layout)9}, {.matmul_precision = (tern_matmul_precision)9},
        {.head = (tern_head_mode)9},         {.thinking = (tern_thinking)-1},
        {.pooling = (tern_pooling)9},        {.n_threads = -1}};
    static const char *const names[] = {"ternary",  "matmul_precision", "head",
                                        "thinking", "pooling",          "threads"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        REFUSED(names[i], tern_model_open(&none, path, &wrong[i], &err));
    const tern_lora lora = {.path = path, .scale = NAN};
    const tern_model_desc scaled = {.loras = &lora, .n_loras = 1};
    REFUSED("scale", tern_model_open(&none, path, &scaled, &err));
    tern_grammar *g = NULL;
    const tern_grammar_desc gd = {.kind = (tern_grammar_kind)77, .text = "a"};
    REFUSED("kind", tern_grammar_open(&g, m, &gd, &err));
    REFUSED("format", tern_graph_report(m, NULL, (tern_format)7, ignore, NULL, &err));
    REFUSED("format", tern_compute_report(m, NULL, TERN_FORMAT_DOT, ignore, NULL, &err));
    const tern_convert_desc cd = {.type = (tern_type)999};
    REFUSED("type", tern_convert(path, test_tmp("arguments.out.gguf"), &cd, &err));
    const tern_train_desc td = {
        .data = "none", .out = test_tmp("arguments.run"), .schedule = (tern_schedule)9};
    REFUSED("schedule", tern_train(&td, &err));
    tern_perplexity ppl;
    const tern_perplexity_desc pd = {.convention = (tern_perplexity_convention)5};
    REFUSED("convention", tern_eval_perplexity(s, "abc", 3, &pd, &ppl, &err));
    tern_eval_comparison comparison;
    REFUSED("itself", tern_eval_compare(s, s, (tern_bytes){"abc", 3}, NULL, &comparison, &err));
    CHECK(!none && !g);
    tern_session_close(s);
    tern_model_close(m);
}

// Seen to fail: what failed before stayed there.
TEST(arguments_errors_are_cleared_by_what_succeeds) {
    tern_model *m;
    tern_session *s;
    tern_error err = {0};
    tern_ids ids = {(int32_t[8]){0}, 8, 0};
    REQUIRE(open_tiny(&m, &s));
#define CLEARS(call)                                                                               \
    do {                                                                                           \
        CHECK(tern_model_open(&(tern_model *){0}, "/nowhere", NULL, &err) != TERN_OK);             \
        CHECK((call) == TERN_OK);                                                                  \
        CHECK_MSG(err.status == TERN_OK && !err.message[0], "%s left \"%s\"", #call, err.message); \
    } while (0)
    const tern_generate_params p = {.max_tokens = 2};
    CLEARS(tern_generate_ids(s, prompt, N_PROMPT, &p, NULL, &err));
    CLEARS(tern_session_sync(s, prompt, N_PROMPT, NULL, &err));
    CLEARS(tern_session_logits(s, prompt, 1, NULL, &err));
    CLEARS(tern_tokenize(m, "a", 1, 0, &ids, &err));
    CLEARS(tern_file_write(test_tmp("arguments.txt"), "a", 1, &err));
    CLEARS(tern_session_save(s, test_tmp("arguments.session"), &err));
    CLEARS(tern_session_load(s, test_tmp("arguments.session"), &err));
    tern_group *g = NULL;
    CLEARS(tern_group_open(&g, m, NULL, &err));
    CLEARS(tern_group_step(g, NULL, &err));
    tern_group_close(g);
    tern_session_close(s);
    tern_model_close(m);
}

// The paper's checklist.
#include <string.h>
#include "base/alloc.h"
#include "base/json/json.h"
#include "tern_tools.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

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

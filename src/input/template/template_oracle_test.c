// Chat templates against Jinja2, to the byte (tests/reference/peers/templates.py): each with every
// conversation; what Jinja2 refuses must be refused.
#include <string.h>
#include "base/alloc.h"
#include "input/tokenizer/tests/tok_fixture.h"

static void check_rendering(tern_str source, tern_template *t, tern_str variables,
                            const tern_json_doc *doc, const tern_json *result) {
    tern_strbuf got = {0};
    tern_error err = {0};
    const tern_json *want = tern_json_get(doc, result, "text");
    tern_status status =
        t ? tern_template_render(t, variables.ptr, variables.len, &got, &err) : TERN_ERR_FORMAT;
    if (!want)
        CHECK_MSG(status != TERN_OK, "%.*s: not refused: %s", (int)source.len, source.ptr, got.ptr);
    else {
        tern_str text = tern_json_str(want);
        CHECK_MSG(status == TERN_OK, "%.*s: %s", (int)source.len, source.ptr, err.message);
        bool same =
            got.len == text.len && (text.len == 0 || memcmp(got.ptr, text.ptr, text.len) == 0);
        CHECK_MSG(status != TERN_OK || same, "%.*s\n with %.*s\n should be: %.*s\n is: %s",
                  (int)source.len, source.ptr, (int)variables.len, variables.ptr, (int)text.len,
                  text.ptr, got.ptr ? got.ptr : "");
    }
    tern_strbuf_free(&got);
}

// Returns the number of renderings.
static size_t check_case(const tern_json_doc *doc, const tern_json *c, const tern_json *variables) {
    tern_template *t = NULL;
    tern_error err = {0};
    tern_str source = tern_json_str(tern_json_get(doc, c, "template"));
    const tern_json *results = tern_json_get(doc, c, "results");
    const tern_json *v = tern_json_first(doc, variables), *r = tern_json_first(doc, results);
    size_t n = 0;
    if (tern_template_open(&t, source, &err) != TERN_OK) t = NULL; // Jinja2 must fail, too
    for (; v && r; n++) {
        check_rendering(source, t, tern_json_str(v), doc, r);
        v = tern_json_next(doc, variables, v);
        r = tern_json_next(doc, results, r);
    }
    CHECK(!v && !r);
    tern_template_free(t);
    return n;
}

static size_t check_list(const tern_json_doc *doc, const char *variables, const char *cases) {
    const tern_json *v = tern_json_path(doc, variables), *list = tern_json_path(doc, cases);
    size_t n = 0;
    for (const tern_json *c = tern_json_first(doc, list); c; c = tern_json_next(doc, list, c))
        n += check_case(doc, c, v);
    return n;
}

// Seen to fail with `loop.index` one less, with trim_blocks off, and with tojson's separators
// changed; and with each mutant of it in tests/mutants/list.
TEST(template_oracle_is_jinja2) {
    tern_json_doc doc = {0};
    tern_error err = {0};
    size_t n = 0;
    fixture_text file = fixture_read("tests/oracles/templates.json");
    REQUIRE(file.ptr != NULL);
    REQUIRE_OK(tern_json_parse(&doc, file.ptr, file.n, &err), err);
    n = check_list(&doc, "variables", "cases");
    CHECK_MSG(n > 200, "%zu renderings", n);
    n = check_list(&doc, "things", "of_things");
    CHECK_MSG(n > 190, "%zu renderings", n);
    tern_json_free(&doc);
    tern_free(file.ptr);
}

// The schema data of others: MaskBench's schemas with valid and invalid instances, and the official
// suite.
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include "base/json/json.h"
#include "base/strbuf.h"
#include "grammar/grammar.h"
#include "tests/support/grammar_data.h"
#include "tests/support/harness.h"

typedef struct tally {
    size_t n_schemas, n_whole, n_refused, n_right, n_tests;
    size_t n_wrong_yes, n_wrong_no; // invalid ones accepted, valid ones refused
} tally;

static bool accepts(tern_automaton *a, const tern_strbuf *text) {
    tern_gplace place = tern_automaton_start(a);
    tern_error err = {0};
    CHECK_MSG(tern_automaton_add(a, &place, text->ptr, text->len, &err) == TERN_OK, "%s",
              err.message);
    return place != TERN_PLACE_NONE && tern_automaton_accepts(a, place);
}

// {"schema": ..., "tests": [{"valid": ..., "data": ...}]}
static void run_group(tally *t, const tern_json_doc *d, const tern_json *group, const char *name) {
    const tern_json *tests = tern_json_get(d, group, "tests");
    tern_strbuf schema = {0};
    tern_automaton *a = NULL;
    tern_error err = {0};
    grammar_write_value(d, tern_json_get(d, group, "schema"), &schema);
    const tern_grammar_source source = {.kind = TERN_GRAMMAR_JSON_SCHEMA,
                                        .text = {schema.ptr, schema.len}};
    tern_status status = tern_automaton_open(&a, &source, NULL, &err);
    bool is_empty = status != TERN_OK && strstr(err.message, "no text satisfies");
    size_t n_right = 0;
    t->n_schemas++;
    t->n_tests += tests->n;
    t->n_refused += status != TERN_OK && !is_empty;
    if (status != TERN_OK && !is_empty && getenv("TERN_TEST_REFUSED"))
        printf("%s: refused, %u tests: %s\n", name, (unsigned)tests->n, err.message);
    for (const tern_json *c = tern_json_first(d, tests); c && (a || is_empty);
         c = tern_json_next(d, tests, c)) {
        bool valid = tern_json_bool(tern_json_get(d, c, "valid"), false), accepted = false;
        tern_strbuf text = {0};
        grammar_write_value(d, tern_json_get(d, c, "data"), &text);
        if (a) accepted = accepts(a, &text);
        n_right += accepted == valid;
        t->n_wrong_no += valid && !accepted;
        t->n_wrong_yes += !valid && accepted;
        CHECK_MSG(valid || !accepted, "%s accepts %.200s", name, tern_strbuf_text(&text));
        tern_strbuf_free(&text);
    }
    t->n_right += n_right;
    t->n_whole += n_right == tests->n && (a || is_empty);
    tern_automaton_close(a);
    tern_strbuf_free(&schema);
}

static void run_file(tally *t, const char *path) {
    tern_json_doc d;
    tern_error err = {0};
    size_t n;
    char *text = test_read(path, &n);
    if (text && tern_json_parse(&d, text, n, &err) == TERN_OK) {
        const tern_json *root = tern_json_root(&d);
        if (!tern_json_is(root, TERN_JSON_ARRAY))
            run_group(t, &d, root, path);
        else
            for (const tern_json *g = tern_json_first(&d, root); g; g = tern_json_next(&d, root, g))
                run_group(t, &d, g, path);
        tern_json_free(&d);
    }
    free(text);
}

// Every `step`-th file of a folder.
static tally run_folder(const char *path, size_t step) {
    tally t = {0};
    struct dirent **entries;
    int n = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name, *end = strrchr(name, '.');
        char whole[1024];
        snprintf(whole, sizeof whole, "%s/%s", path, name);
        if (end && strcmp(end, ".json") == 0 && (size_t)i % step == 0) run_file(&t, whole);
        free(entries[i]);
    }
    if (n >= 0) free(entries);
    printf("%s: %zu schemas, %zu whole, %zu refused; %zu of %zu tests; %zu invalid accepted, %zu "
           "valid refused\n",
           path, t.n_schemas, t.n_whole, t.n_refused, t.n_right, t.n_tests, t.n_wrong_yes,
           t.n_wrong_no);
    return t;
}

// Nothing invalid is accepted; nine of ten schemas are right in everything. What is refused of the
// valid ones has its properties in another order.
TEST(grammar_maskbench) {
    const char *path = test_data("schema/maskbench");
    if (!path) return;
    tally t = run_folder(path, test_is_long() ? 1 : 16);
    CHECK(t.n_schemas > 300 && t.n_wrong_yes == 0);
    CHECK_MSG(t.n_whole * 100 >= t.n_schemas * 90, "%zu of %zu", t.n_whole, t.n_schemas);
}

// Of 2020-12: what every implementation must do, then with the folders of what it may do: formats
// that bind, large numbers, other drafts' schemas within.
TEST(grammar_official_suite) {
    static const char *const parts[] = {"", "/optional", "/optional/format"};
    const char *path = test_data("schema/json-schema-test-suite/tests/draft2020-12");
    size_t n_right = 0, n_tests = 0;
    if (!path) return;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char folder[1024];
        snprintf(folder, sizeof folder, "%s%s", path, parts[i]);
        tally t = run_folder(folder, 1);
        CHECK(t.n_tests > 50 && t.n_wrong_yes == 0);
        if (i == 0)
            CHECK_MSG(t.n_right * 100 >= t.n_tests * 82, "%zu of %zu", t.n_right, t.n_tests);
        n_right += t.n_right;
        n_tests += t.n_tests;
    }
    printf("all of it: %zu of %zu tests\n", n_right, n_tests);
}

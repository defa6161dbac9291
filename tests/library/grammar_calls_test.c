// Calls that a grammar allows are calls to those who read answers: random texts of each family's
// grammar, read by the family's reader, are calls of tools with arguments that satisfy the schema.
#include <string.h>
#include "base/json/json.h"
#include "grammar/grammar.h"
#include "input/answer/answer.h"
#include "tests/support/harness.h"

#define ARGUMENTS                                                                                  \
    "{\"type\":\"object\",\"properties\":{\"town\":{\"$ref\":\"#/$defs/town\"},\"days\":{"         \
    "\"type\":\"integer\",\"minimum\":1,\"maximum\":20},\"note\":{\"type\":\"string\","            \
    "\"maxLength\":6},\"deep\":{\"type\":\"object\",\"properties\":{\"on\":{\"type\":"             \
    "\"boolean\"},\"odd key\":{\"type\":[\"null\",\"string\"],\"maxLength\":3}},\"required\":["    \
    "\"on\"],\"additionalProperties\":false},\"list\":{\"type\":\"array\",\"items\":{\"enum\":["   \
    "\"a\",\"b\",7,null,true]},\"maxItems\":3},\"either\":{\"anyOf\":[{\"type\":\"boolean\"},{"    \
    "\"enum\":[\"true\",\"12\"]}]}},\"required\":[\"town\",\"note\"],\"additionalProperties\":"    \
    "false,\"$defs\":{\"town\":{\"type\":\"string\",\"enum\":[\"Ghent\",\"New \\\"York\\\"\"]}}}"

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":" ARGUMENTS
    "}},{\"name\":\"clock\"}]";

static const struct {
    const char *source; // what a template of the family has
    const char *calls[3];
} families[] = {
    {"<tool_call>",
     {"<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>",
      "<tool_call>{\"name\":\"weather\",\"arguments\":{\"town\":\"Ghent\",\"note\":\"\"}}</"
      "tool_call>\n<tool_call>{\"name\":\"clock\",\"arguments\":{}}</tool_call>"}},
    {"<tool_call> <function=",
     {"<tool_call>\n<function=clock>\n</function>\n</tool_call>",
      "<tool_call>\n<function=weather>\n<parameter=town>\n\"New \\\"York\\\"\"\n</parameter>\n"
      "<parameter=days>\n3\n</parameter>\n<parameter=note>\n\n</parameter>\n<parameter=either>\n"
      "\"true\"\n</parameter>\n</function>\n</tool_call>"}},
    {"<|tool_call_start|>",
     {"<|tool_call_start|>[clock()]<|tool_call_end|>",
      "<|tool_call_start|>[weather(town=\"Ghent\", note=\"x\", deep={\"on\": True}), clock()]"
      "<|tool_call_end|>"}},
    {"<|tool_call>call:",
     {"<|tool_call>call:clock{}<tool_call|>",
      "<|tool_call>call:weather{town:<|\"|>New \"York\"<|\"|>,days:3,note:<|\"|>a "
      "b<|\"|>,deep:{on:true,<|\"|>odd key<|\"|>:null}}<tool_call|>"}},
    {"<start_function_call>", {"<start_function_call>call:clock{}<end_function_call>"}},
    {"\"parameters\": ",
     {"{\"name\": \"clock\", \"parameters\": {}}; {\"name\": \"clock\", \"parameters\": {}}"}},
    {"[TOOL_CALLS]",
     {"[TOOL_CALLS] [{\"name\": \"clock\", \"arguments\": {}}, {\"name\": \"clock\", "
      "\"arguments\": {}}]"}},
    {"[TOOL_CALLS] [ARGS]", {"[TOOL_CALLS]clock[ARGS]{}[TOOL_CALLS]clock[ARGS]{}"}},
    {"<|tool_call|>", {"<|tool_call|>[{\"name\": \"clock\", \"arguments\": {}}]"}},
    {"<|tool_call|> <|/tool_call|>",
     {"<|tool_call|>[{\"name\": \"clock\", \"arguments\": {}}]<|/tool_call|>"}},
};

static tern_str str(const char *s) { return (tern_str){s, s ? strlen(s) : 0}; }

static tern_call_form form_of(const tern_answer_style *style) {
    return (tern_call_form){.body = style->body,
                            .is_list = style->is_list,
                            .is_bare = style->is_bare,
                            .open = str(style->open),
                            .close = str(style->close),
                            .args = TERN_STR("[ARGS]"),
                            .quote = str(style->quote),
                            .forbidden = str(style->quote)};
}

static tern_automaton *open_calls(const tern_call_form *form, const char *list) {
    tern_automaton *a = NULL;
    tern_error err = {0};
    const tern_grammar_source source = {
        .kind = TERN_GRAMMAR_CALLS, .text = str(list), .calls = form};
    CHECK_MSG(tern_automaton_open(&a, &source, NULL, &err) == TERN_OK, "%s", err.message);
    return a;
}

static bool accepts(tern_automaton *a, const char *text, size_t n) {
    tern_gplace place = tern_automaton_start(a);
    tern_error err = {0};
    CHECK(tern_automaton_add(a, &place, text, n, &err) == TERN_OK);
    return place && tern_automaton_accepts(a, place);
}

// A random text: it prefers bytes that lead to an end, so that strings are short.
static bool make_text(tern_automaton *a, uint32_t *seed, tern_strbuf *out) {
    tern_gplace place = tern_automaton_start(a);
    tern_error err = {0};
    while (out->len < 600) {
        unsigned char may[256];
        size_t n = 0;
        *seed = *seed * 1664525u + 1013904223u;
        if (tern_automaton_accepts(a, place) && (*seed >> 24) % 3) return true;
        for (unsigned b = 0; b < 256; b++) {
            tern_gplace to = place;
            const char byte = (char)b;
            CHECK(tern_automaton_add(a, &to, &byte, 1, &err) == TERN_OK);
            if (to && b < 128) may[n++] = (unsigned char)b;
        }
        if (n == 0) return tern_automaton_accepts(a, place);
        const char byte = (char)may[(*seed >> 8) % n];
        tern_strbuf_putc(out, byte);
        CHECK(tern_automaton_add(a, &place, &byte, 1, &err) == TERN_OK);
    }
    return false;
}

typedef struct record {
    tern_strbuf arguments, other;
    bool is_weather;
    size_t n_calls, n_ended;
    tern_automaton *schema;
    const char *text;
} record;

static void on_part(void *user, const tern_part *part) {
    record *r = user;
    if (part->kind == TERN_PART_CALL) {
        tern_strbuf_clear(&r->arguments);
        r->is_weather = part->n_bytes == 7;
        r->n_calls++;
    } else if (part->kind == TERN_PART_ARGUMENTS) {
        tern_strbuf_append(&r->arguments, part->text, part->n_bytes);
    } else if (part->kind == TERN_PART_CALL_END) {
        r->n_ended++;
        const char *args = tern_strbuf_text(&r->arguments);
        bool ok = r->is_weather ? accepts(r->schema, args, r->arguments.len)
                                : r->arguments.len && *args == '{';
        CHECK_MSG(ok, "%s\nhas the arguments %s", r->text, args);
    } else {
        tern_strbuf_append(&r->other, part->text, part->n_bytes);
    }
}

static void check_read(const tern_answer_style *style, tern_automaton *schema, const char *text) {
    tern_answer *answer;
    tern_error err = {0};
    record r = {.schema = schema, .text = text};
    REQUIRE_OK(tern_answer_create(&answer, style, NULL, NULL, tools, &err), err);
    REQUIRE_OK(tern_answer_put(answer, text, strlen(text), on_part, &r, &err), err);
    REQUIRE_OK(tern_answer_end(answer, on_part, &r, &err), err);
    CHECK_MSG(r.n_calls > 0 && r.n_calls == r.n_ended && !r.other.len, "%s: %zu calls, text '%s'",
              text, r.n_calls, tern_strbuf_text(&r.other));
    tern_answer_close(answer);
    tern_strbuf_free(&r.arguments);
    tern_strbuf_free(&r.other);
}

// Seen to fail with the reader's JSON strings of parameters without type left as they are; with
// quotes in texts between marks escaped; with "arguments" for Llama's "parameters".
TEST(grammar_calls_are_read_as_calls) {
    tern_error err = {0};
    tern_automaton *schema = NULL;
    const tern_grammar_source source = {.kind = TERN_GRAMMAR_JSON_SCHEMA,
                                        .text = TERN_STR(ARGUMENTS)};
    REQUIRE_OK(tern_automaton_open(&schema, &source, NULL, &err), err);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        tern_answer_style style = tern_answer_style_of(str(families[i].source), NULL);
        tern_call_form form = form_of(&style);
        tern_automaton *a = open_calls(&form, tools);
        uint32_t seed = 1;
        size_t n_whole = 0;
        for (size_t k = 0; k < 3 && families[i].calls[k]; k++) {
            const char *text = families[i].calls[k];
            CHECK_MSG(accepts(a, text, strlen(text)), "%s", text);
            check_read(&style, schema, text);
        }
        for (int k = 0; k < 60; k++) {
            tern_strbuf text = {0};
            if (make_text(a, &seed, &text)) {
                check_read(&style, schema, text.ptr);
                n_whole++;
            }
            tern_strbuf_free(&text);
        }
        CHECK_MSG(n_whole > 10, "%s: %zu texts have an end", families[i].source, n_whole);
        tern_automaton_close(a);
    }
    tern_automaton_close(schema);
}

// A grammar of patches, of the kind that coding agents send.
#define PATCH                                                                                      \
    "start: \"*** Begin \\\"\\\\\" LF hunk~1..2 \"*** End\" LF?\n"                                 \
    "hunk: add | \"*** Delete: \" /(.{1,3})/ LF\n"                                                 \
    "add: \"*** Add: \" /(.{1,3})/ LF (\"+\" /(.{0,3})/ LF)~1..2\n"                                \
    "%import common.LF"
static const char patches[] =
    "[{\"name\":\"patch\",\"parameters\":{\"type\":\"object\",\"required\":[\"input\"],"
    "\"properties\":{\"input\":{\"type\":\"string\",\"x-grammar\":{\"syntax\":\"lark\","
    "\"definition\":\"%s\"}}},\"additionalProperties\":false}}]";

static void on_patch(void *user, const tern_part *part) {
    record *r = user;
    tern_json_doc doc = {0};
    tern_error err = {0};
    if (part->kind == TERN_PART_CALL) tern_strbuf_clear(&r->arguments);
    if (part->kind == TERN_PART_ARGUMENTS)
        tern_strbuf_append(&r->arguments, part->text, part->n_bytes);
    if (part->kind != TERN_PART_CALL_END) return;
    r->n_ended++;
    const char *args = tern_strbuf_text(&r->arguments);
    if (tern_json_parse(&doc, args, r->arguments.len, &err) != TERN_OK) err.message[0] = 'x';
    const tern_str input = tern_json_str(tern_json_get(&doc, tern_json_root(&doc), "input"));
    CHECK_MSG(input.ptr && accepts(r->schema, input.ptr, input.len), "%s\nhas the arguments %s",
              r->text, args);
    tern_json_free(&doc);
}

// What the call's reader makes of a text that is allowed is a text of the grammar, in each family's
// way of writing strings. Seen to fail with the characters as they are inside JSON.
TEST(grammar_calls_with_texts_of_a_grammar) {
    tern_strbuf list = {0}, rules = {0};
    tern_error err = {0};
    tern_automaton *plain = NULL;
    const tern_grammar_source source = {.kind = TERN_GRAMMAR_LARK, .text = TERN_STR(PATCH)};
    REQUIRE_OK(tern_automaton_open(&plain, &source, NULL, &err), err);
    tern_strbuf_json(&rules, PATCH, sizeof PATCH - 1);
    rules.ptr[rules.len - 1] = 0; // without its quotes
    tern_strbuf_printf(&list, patches, rules.ptr + 1);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        tern_answer_style style = tern_answer_style_of(str(families[i].source), NULL);
        tern_call_form form = form_of(&style);
        tern_automaton *a = open_calls(&form, list.ptr);
        uint32_t seed = 1;
        record r = {.schema = plain};
        for (int k = 0; k < 15; k++) {
            tern_strbuf text = {0};
            if (make_text(a, &seed, &text)) {
                tern_answer *answer;
                r.text = text.ptr;
                REQUIRE_OK(tern_answer_create(&answer, &style, NULL, NULL, list.ptr, &err), err);
                REQUIRE_OK(tern_answer_put(answer, text.ptr, text.len, on_patch, &r, &err), err);
                REQUIRE_OK(tern_answer_end(answer, on_patch, &r, &err), err);
                tern_answer_close(answer);
            }
            tern_strbuf_free(&text);
        }
        CHECK_MSG(r.n_ended > 5, "%s: %zu calls have an end", families[i].source, r.n_ended);
        tern_strbuf_free(&r.arguments);
        tern_automaton_close(a);
    }
    tern_automaton_close(plain);
    tern_strbuf_free(&rules);
    tern_strbuf_free(&list);
}

// Between tags a text has no escapes, so what ends the parameter is none. Seen to fail without.
TEST(grammar_calls_between_tags_end_once) {
    tern_answer_style style = tern_answer_style_of(TERN_STR("<tool_call> <function="), NULL);
    tern_call_form form = form_of(&style);
    tern_automaton *a = open_calls(
        &form, "[{\"name\":\"f\",\"parameters\":{\"required\":[\"t\"],\"properties\":{\"t\":{"
               "\"type\":\"string\",\"x-grammar\":{\"syntax\":\"lark\",\"definition\":\"start: "
               "/.{0,40}/s \\\"!\\\"\"}}}}}]");
    static const char front[] = "<tool_call>\n<function=f>\n<parameter=t>\n",
                      back[] = "\n</parameter>\n</function>\n</tool_call>";
    static const char *const texts[] = {"\"<b>\\\n!", "x\n</parameter>\n!"};
    for (int i = 0; i < 2; i++) {
        tern_strbuf text = {0};
        tern_strbuf_printf(&text, "%s%s%s", front, texts[i], back);
        CHECK_MSG(accepts(a, text.ptr, text.len) == (i == 0), "%s", text.ptr);
        tern_strbuf_free(&text);
    }
    tern_automaton_close(a);
}

// Seen to fail with one_call left out, and with every tool taken for the one that is named.
TEST(grammar_calls_of_one_tool) {
    tern_answer_style style = tern_answer_style_of(TERN_STR("<tool_call>"), NULL);
    tern_call_form form = form_of(&style);
#define CLOCK "<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>"
#define WEATHER                                                                                    \
    "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"town\": \"Ghent\", \"note\": "         \
    "\"\"}}\n</tool_call>"
    form.one_call = true;
    tern_automaton *a = open_calls(&form, tools);
    CHECK(accepts(a, CLOCK, strlen(CLOCK)) && accepts(a, WEATHER, strlen(WEATHER)));
    CHECK(!accepts(a, CLOCK CLOCK, strlen(CLOCK CLOCK)));
    tern_automaton_close(a);
    form.only = TERN_STR("clock");
    a = open_calls(&form, tools);
    CHECK(accepts(a, CLOCK, strlen(CLOCK)) && !accepts(a, WEATHER, strlen(WEATHER)));
    tern_automaton_close(a);
    // Arguments that the schema does not name are none, unless it says so.
    form.only = (tern_str){0};
    a = open_calls(&form, "[{\"name\":\"f\",\"parameters\":{\"properties\":{\"a\":{}}}},"
                          "{\"name\":\"g\",\"parameters\":{\"additionalProperties\":true}}]");
    const char *f = "<tool_call>{\"name\": \"f\", \"arguments\": {\"b\": 1}}</tool_call>",
               *g = "<tool_call>{\"name\": \"g\", \"arguments\": {\"b\": 1}}</tool_call>";
    CHECK(!accepts(a, f, strlen(f)) && accepts(a, g, strlen(g)));
    tern_automaton_close(a);
}

// Calls, or an answer in a form: either alone. Seen to fail without the form, without the calls.
TEST(grammar_calls_or_a_form) {
    tern_answer_style style = tern_answer_style_of(TERN_STR("<tool_call>"), NULL);
    tern_call_form form = form_of(&style);
    static const char json[] = "{\"ok\": true}", wrong[] = "{\"ok\": 1}";
    tern_automaton *a;
    tern_error err = {0};
    const tern_grammar_source other = {
        .kind = TERN_GRAMMAR_JSON_SCHEMA,
        .text = TERN_STR("{\"properties\": {\"ok\": {\"type\": \"boolean\"}}, \"required\": "
                         "[\"ok\"], \"additionalProperties\": false, \"type\": \"object\"}")};
    const tern_grammar_source source = {.kind = TERN_GRAMMAR_CALLS,
                                        .text = str(tools),
                                        .calls = &form,
                                        .otherwise = &other,
                                        .think_open = TERN_STR("<think>"),
                                        .think_close = TERN_STR("</think>")};
    REQUIRE_OK(tern_automaton_open(&a, &source, NULL, &err), err);
    CHECK(accepts(a, CLOCK, strlen(CLOCK)) && accepts(a, WEATHER CLOCK, strlen(WEATHER CLOCK)));
    CHECK(accepts(a, json, strlen(json)) && !accepts(a, wrong, strlen(wrong)));
    CHECK(!accepts(a, CLOCK "{\"ok\": true}", strlen(CLOCK "{\"ok\": true}")));
    CHECK(!accepts(a, "{\"ok\": true}" CLOCK, strlen("{\"ok\": true}" CLOCK)));
    CHECK(!accepts(a, "", 0) && !accepts(a, "No.", 3));
    static const char thought[] = "<think>Hm.</think>{\"ok\": true}";
    CHECK(accepts(a, thought, strlen(thought)));
    tern_automaton_close(a);
}

TEST(grammar_calls_that_are_refused) {
    static const struct {
        const char *source, *tools, *message;
    } rows[] = {
        {"", "[]", "no way to call"},
        {"<tool_call>", "[]", "there are no tools"},
        {"<tool_call>", "{}", "must be a JSON array"},
        {"<tool_call>", "[{}]", "without a name"},
        {"<tool_call>",
         "[{\"name\":\"f\",\"parameters\":{\"properties\":{\"a\":{\"type\":\"x\"}}}}]",
         "the tool 'f': the schema at #/properties/a/type: an unknown type"},
        {"<tool_call>", "[{\"name\":\"f\",\"parameters\":{\"type\":\"string\"}}]", "of an object"},
        {"<tool_call>",
         "[{\"name\":\"f\",\"parameters\":{\"required\":[\"a\"],\"properties\":{\"a\":false}}}]",
         "no arguments satisfy"},
        {"<|tool_call_start|>", "[{\"name\":\"f\",\"parameters\":{\"anyOf\":[{}]}}]",
         "more than a list of properties"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tern_automaton *a;
        tern_error err = {0};
        tern_answer_style style = tern_answer_style_of(str(rows[i].source), NULL);
        tern_call_form form = form_of(&style);
        const tern_grammar_source source = {
            .kind = TERN_GRAMMAR_CALLS, .text = str(rows[i].tools), .calls = &form};
        CHECK(tern_automaton_open(&a, &source, NULL, &err) != TERN_OK && !a);
        CHECK_MSG(strstr(err.message, rows[i].message), "%s", err.message);
    }
}

// What tern agent's tools compute, without a model: sums, words, events, front matter, permissions.
#include <stdlib.h>
#include <string.h>
#include "apps/agent/mcp/mcp_client.h"
#include "apps/agent/permission.h"
#include "apps/agent/tools.h"
#include "base/alloc.h"
#include "tests/support/harness.h"

typedef struct sum {
    const char *expression, *value; // value: of what is refused a part of why, after a '!'
} sum;

static const sum sums[] = {
    {"0.1 + 0.2", "0.3"},
    {"2^100", "1.26765060022823e+30"},
    {"1/3", "0.333333333333333"},
    {"-1/3", "-0.333333333333333"},
    {"(1/3)*3", "1"},
    {"-7 % 3", "2"},
    {"7 % -3", "-2"},
    {"-2^2", "-4"},
    {"2^3^2", "512"},
    {"2**-2", "0.25"},
    {"25!", "1.5511210043331e+25"},
    {"round(2.345, 2)", "2.35"},
    {"round(1.005, 2)", "1.01"},
    {"round(-2.5)", "-3"},
    {"round(1234, -2)", "1200"},
    {"floor(-7/2)", "-4"},
    {"ceil(-7/2)", "-3"},
    {"min(3, 1, 2) + max(4, 5)", "6"},
    {"abs(-1.50)", "1.5"},
    {"1.5e3 * 2", "3000"},
    {"1e-3", "0.001"},
    {"12 \xC3\x97 12 \xC3\xB7 9", "16"},
    {"2^53 - 1", "9007199254740991"},
    {"9007199254740991 % 10", "1"},
    {"123456789012345678901234567890 % 987654321", "!up to 2^53"},
    {"2^0.5", "1.4142135623731"},
    {"(-8)^0.5", "!a root of a negative"},
    {"round(1, 0.5)", "!whole decimals"},
    {"0^0", "1"},
    {"-0", "0"},
    {".5 + 5.", "5.5"},
    {"--5", "5"},
    {"1/0", "!a division by 0"},
    {"0^-1", "!a division by 0"},
    {"5 % 0", "!a division by 0"},
    {"2^^2", "!unexpected '^2' at byte 3"},
    {"(1", "!too early"},
    {"10^3000", "!more than 308 digits"},
    {"sqrt(2)", "!unexpected 'sqrt(2)'"},
    {"171!", "!factorials are of"},
    {"(-1)!", "!factorials are of"},
    {"", "!too early"},
    {"1 2", "!unexpected '2'"},
    {"1..2", "!unexpected '.2'"},
    {"abs(1, 2)", "!takes one number"},
    {"round(1, 2, 3)", "!a number and decimals"},
};

// Seen to fail with 17 digits, with a modulo that has the sign of the left, and with round() of the
// plain product.
TEST(agent_sums_are_right) {
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        tern_strbuf out = {0};
        tern_error err = {0};
        tern_status status =
            agent_calculate(sums[i].expression, strlen(sums[i].expression), &out, &err);
        const char *wanted = sums[i].value;
        if (*wanted == '!')
            CHECK_MSG(status != TERN_OK && strstr(err.message, wanted + 1), "%s: %s, %s",
                      sums[i].expression, tern_strbuf_text(&out), err.message);
        else
            CHECK_MSG(status == TERN_OK && !strcmp(tern_strbuf_text(&out), wanted), "%s: %s, %s",
                      sums[i].expression, tern_strbuf_text(&out), err.message);
        tern_strbuf_free(&out);
    }
}

TEST(agent_sums_survive_without_memory) {
    static const char text[] = "round((1/3 + 2^10) * 5! / 7, 3) % 1234567";
    for (uint64_t n = 1;; n++) {
        tern_strbuf out = {0};
        tern_mem_fail_at(n);
        tern_status status = agent_calculate(text, sizeof text - 1, &out, NULL);
        tern_mem_fail_at(0);
        tern_strbuf_free(&out);
        if (status == TERN_OK) break;
        CHECK(status == TERN_OK || status == TERN_ERR_MEMORY);
        REQUIRE(n < 100000);
    }
}

// Schemas with "x-mcp-header": which may be, and which fields calls have.
#define PROPERTY(name, type, field)                                                                \
    "\"" name "\":{\"type\":" type ",\"x-mcp-header\":\"" field "\"}"
#define PROPERTIES(list) "{\"type\":\"object\",\"properties\":{" list "}"

static const struct {
    const char *schema, *why, *arguments, *fields; // why: a part of it; NULL: it may be
} routed[] = {
    {PROPERTIES(PROPERTY("a", "\"string\"", "Town")) "}", NULL, "{\"a\":\"x y\",\"b\":1}",
     "Mcp-Param-Town: x y\n"},
    {PROPERTIES(PROPERTY("a", "\"integer\"", "A") "," PROPERTY("b", "\"boolean\"", "B")) "}", NULL,
     "{\"b\":true,\"a\":-7.0}", "Mcp-Param-A: -7\nMcp-Param-B: true\n"},
    {PROPERTIES(PROPERTY("a", "[\"string\",\"null\"]", "A")) "}", NULL, "{\"a\":null}", ""},
    {PROPERTIES("\"o\":{\"properties\":{" PROPERTY("a", "\"string\"", "A") "}}") "}", NULL,
     "{\"o\":{\"a\":\"\\n\"},\"a\":\"no\"}", "Mcp-Param-A: =?base64?Cg==?=\n"},
    {PROPERTIES("\"x-mcp-header\":{\"default\":{\"x-mcp-header\":1}}") "}", NULL, "{}", ""},
    {PROPERTIES("") "}", NULL, "[]", ""},
    {PROPERTIES(PROPERTY("a", "\"string\"", "")) "}", "not a field's name", NULL, NULL},
    {PROPERTIES(PROPERTY("a", "\"string\"", "A b")) "}", "not a field's name", NULL, NULL},
    {PROPERTIES(PROPERTY("a", "\"string\"", "A\\r\\nB: c")) "}", "not a field's name", NULL, NULL},
    {PROPERTIES("\"a\":{\"type\":\"string\",\"x-mcp-header\":1}") "}", "not a field's name", NULL,
     NULL},
    {PROPERTIES(PROPERTY("a", "\"number\"", "A")) "}", "simple type", NULL, NULL},
    {PROPERTIES(PROPERTY("a", "\"object\"", "A")) "}", "simple type", NULL, NULL},
    {PROPERTIES(PROPERTY("a", "\"null\"", "A")) "}", "simple type", NULL, NULL},
    {PROPERTIES(PROPERTY("a", "[]", "A")) "}", "simple type", NULL, NULL},
    {PROPERTIES(PROPERTY("a", "\"string\"", "A") "," PROPERTY("b", "\"string\"", "a")) "}",
     "the same", NULL, NULL},
    {PROPERTIES("\"a\":{\"items\":{\"x-mcp-header\":\"A\"}}") "}", "outside of a property", NULL,
     NULL},
    {PROPERTIES("") ",\"anyOf\":[{\"properties\":{" PROPERTY("a", "\"string\"", "A") "}}]}",
     "outside of a property", NULL, NULL},
};

// Seen to fail with names compared by their letters' cases, with null sent, with words within
// values counted, and with those of list elements let through.
TEST(agent_arguments_as_fields) {
    for (size_t i = 0; i < sizeof routed / sizeof *routed; i++) {
        const char *schema = routed[i].schema;
        tern_json_doc doc;
        tern_strbuf out = {0};
        tern_error err = {0};
        REQUIRE_OK(tern_json_parse(&doc, schema, strlen(schema), &err), err);
        const char *why = mcp_params_check(&doc, tern_json_root(&doc));
        CHECK_MSG(!why == !routed[i].why && (!why || strstr(why, routed[i].why)), "%s: %s", schema,
                  why ? why : "allowed");
        if (routed[i].arguments) {
            REQUIRE_OK(mcp_params_put(schema, routed[i].arguments, &out, &err), err);
            CHECK_MSG(!strcmp(tern_strbuf_text(&out), routed[i].fields), "%s: %s", schema,
                      tern_strbuf_text(&out));
        }
        tern_strbuf_free(&out);
        tern_json_free(&doc);
    }
}

// Seen to fail with a quote inside a word that ends it.
TEST(agent_words_of_a_command) {
    static const struct {
        const char *line, *words; // '|' after each; NULL: refused
    } rows[] = {
        {"npx -y  server", "npx|-y|server|"},
        {" a 'b c' \"d \\\" e\" f\\ g", "a|b c|d \" e|f g|"},
        {"--x=\"a b\"c ''", "--x=a bc||"},
        {"'a\\b'", "a\\b|"},
        {"", NULL},
        {"  ", NULL},
        {"a 'b", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char **words, all[100] = "";
        tern_error err = {0};
        bool ok = agent_split_words(rows[i].line, &words, &err) == TERN_OK;
        for (char **w = words; ok && *w; w++) strcat(strcat(all, *w), "|");
        CHECK_MSG(ok == (rows[i].words != NULL) && (!ok || !strcmp(all, rows[i].words)), "%s: %s",
                  rows[i].line, ok ? all : err.message);
        if (ok) agent_free_words(words);
    }
}

// Seen to fail with an event at each line, and with CR and LF that end two lines.
TEST(mcp_events_are_taken_apart) {
    static const char stream[] =
        "data: one\n\n: a comment\n\nevent: x\r\ndata:two\r\ndata: 2\r\n\r\n"
        "id: 3\n\ndata: three\r\rdata: cut";
    static const char *const wanted[] = {"one", "two\n2", "three"};
    mcp_events e = {0};
    size_t n = 0;
    for (size_t i = 0; i < sizeof stream - 1; i++)
        if (mcp_events_put(&e, stream[i])) {
            CHECK_MSG(n < 3 && !strcmp(tern_strbuf_text(&e.data), wanted[n]), "%zu: %s", n,
                      tern_strbuf_text(&e.data));
            tern_strbuf_clear(&e.data);
            n++;
        }
    CHECK(n == 3);
    mcp_events_free(&e);
}

TEST(mcp_fields_have_any_text) {
    static const char *const rows[][2] = {
        {"read_file", "read_file"}, {"caf\xC3\xA9", "=?base64?Y2Fmw6k=?="},
        {" a", "=?base64?IGE=?="},  {"a\nb", "=?base64?YQpi?="},
        {"=?a", "=?base64?PT9h?="}, {"\xC3\xA9", "=?base64?w6k=?="}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tern_strbuf out = {0};
        mcp_field_value((tern_str){rows[i][0], strlen(rows[i][0])}, &out);
        CHECK_MSG(!strcmp(tern_strbuf_text(&out), rows[i][1]), "%s", tern_strbuf_text(&out));
        tern_strbuf_free(&out);
    }
}

TEST(agent_permissions_by_name) {
    CHECK(permission_fits("a_b", "a_b") && !permission_fits("a_b", "a_bc"));
    CHECK(permission_fits("a_*", "a_bc") && permission_fits("*", "x") &&
          permission_fits("a*", "a"));
    CHECK(!permission_fits("a*", "b") && !permission_fits("", "a") &&
          !permission_fits("a*c", "abc"));
}

TEST(agent_skills_have_front_matter) {
    static const char text[] =
        "\xEF\xBB\xBF---\nname:  it \nother: x\ndescription: \"a \\\"b\\\"\"\n"
        "---\nBody\n---\n";
    skill_head h;
    tern_error err = {0};
    REQUIRE_OK(skill_read_head(&h, text, sizeof text - 1, &err), err);
    CHECK(!strcmp(h.name.ptr, "it") && !strcmp(h.description.ptr, "a \"b\""));
    CHECK(!strcmp(text + h.body, "Body\n---\n"));
    skill_free_head(&h);
    CHECK(skill_read_head(&h, "---\nname: a\ndescription: b", 27, &err) == TERN_ERR_FORMAT);
    skill_free_head(&h);
}

// Each family's way of writing calls and reasoning, as its documents show it, cut anywhere.
#include "input/answer/answer.h"

#include <stdlib.h>
#include <string.h>
#include "tests/harness.h"

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{\"type\":"
    "\"object\","
    "\"properties\":{\"town\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},\"units\":{"
    "\"type\":"
    "\"array\"},\"deep\":{\"type\":\"object\"},\"any\":{}}}}},{\"name\":\"clock\"}]";

// Signs by which a family is known, as its template has them.
#define QWEN           "{{ tools }} <tool_call> </think>"
#define CODER          "{{ tools }} <tool_call>\n<function=x> </think>"
#define LFM            "{{ tools }} <|tool_call_start|> </think>"
#define GEMMA          "{{ tools }} <|tool_call>call: <|channel>"
#define FUNCTION_GEMMA "{{ tools }} <start_function_call>"
#define LLAMA          "{{ tools }} \"parameters\": "
#define MISTRAL        "{{ tools }} [TOOL_CALLS] [THINK]"
#define GRANITE        "{{ tools }} <|tool_call|>"
#define PHI            "{{ tools }} <|tool_call|> <|/tool_call|>"

static const struct {
    const char *source, *prompt, *answer, *parts;
} rows[] = {
    {"", NULL, " A <think> and\n\n<tool_call>{}</tool_call>\n",
     "T( A <think> and\n\n<tool_call>{}</tool_call>\n)"},
    // Qwen3, Hermes.
    {QWEN, NULL,
     "<think>\nHm, rain?\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": "
     "{\"town\": \"Ghent\", \"days\": 2}}\n</tool_call>\n<tool_call>\n{\"name\": \"clock\", "
     "\"arguments\": "
     "{}}\n</tool_call>",
     "R(Hm, rain?)T(I look.)0C(weather)A({\"town\": \"Ghent\", \"days\": 2})E1C(clock)A({})E"},
    {QWEN, "<|im_start|>assistant\n<think>\n", "so\n</think>\n\nYes.\n", "R(so)T(Yes.\n)"},
    {QWEN, "<think>\n\n</think>\n\n", "Yes <think> is a tag </think>",
     "T(Yes <think> is a tag </think>)"},
    {QWEN, NULL, "<think>never ended \n", "R(never ended)"},
    {QWEN, NULL,
     "<tool_call>{\"arguments\": \"{\\\"town\\\": \\\"a\\\\nb\\\"}\", \"id\": [1, {\"x\": \"]\"}], "
     "\"name\": \"weather\"}</tool_call> done",
     "0C(weather)A({\"town\": \"a\\nb\"})ET(done)"},
    {QWEN, NULL,
     "<tool_call>{\"type\": \"function\", \"function\": {\"name\": \"clock\", \"arguments\": null}}"
     "\n{\"name\": \"clock\"}</tool_call>",
     "0C(clock)A({})E1C(clock)A({})E"},
    {QWEN, NULL,
     "<tool_call>{\"name\": \"weather\", \"arguments\": {\"town\": "
     "\"}</tool_call>\nx\"}}</tool_call>",
     "0C(weather)A({\"town\": \"}</tool_call>\\nx\"})E"},
    {QWEN, NULL, "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"town\": \"Ghe",
     "0C(weather)A({\"town\": \"Ghe)"},
    {QWEN, NULL, "a <tool_call>no json</tool_call> b", "T(a<tool_call>no json</tool_call> b)"},
    {QWEN, NULL, "a <tool_call>\n</tool_call> b", "T(a<tool_call>\n</tool_call> b)"},
    {QWEN, NULL, "a <tool_cal", "T(a <tool_cal)"},
    {QWEN, NULL, "<tool_call>{\"name\": \"weather\"", "0C(weather)"},
    {QWEN, NULL, "<tool_call>{\"name\": \"clock\", \"arguments\": {}} junk</tool_call>\nb",
     "0C(clock)A({})ET(b)"},
    // Seen to fail with a call that broke off and the one after it counted as one.
    {QWEN, NULL,
     "<tool_call>{\"name\": \"weather\", 7}</tool_call>\n<tool_call>{\"name\": "
     "\"clock\"}</tool_call>",
     "0C(weather)1C(clock)A({})E"},
    // Qwen3.5, Qwen3-Coder.
    {CODER, NULL,
     "<tool_call>\n<function=weather>\n<parameter=town>\nGhent \"x\"\nline "
     "2\n</parameter>\n<parameter=days>\n"
     "3\n</parameter>\n<parameter=units>\n[\"c\"]\n</parameter>\n<parameter=any>\nfree\n</"
     "parameter>\n"
     "</function>\n</tool_call>\n<tool_call>\n<function=clock>\n</function>\n</tool_call>",
     "0C(weather)A({\"town\":\"Ghent \\\"x\\\"\\nline "
     "2\",\"days\":3,\"units\":[\"c\"],\"any\":\"free\"})E1C(clock)A({})E"},
    {CODER, NULL,
     "<tool_call><function=weather><parameter=town>12</parameter><parameter=any>12</"
     "parameter><parameter=days>"
     "many</parameter><parameter=deep>{\"a\": 1}</parameter></function></tool_call>",
     "0C(weather)A({\"town\":\"12\",\"any\":12,\"days\":\"many\",\"deep\":{\"a\": 1}})E"},
    {CODER, NULL,
     "<tool_call><function=weather><parameter=town>\nA very long text, which is passed on before "
     "its end has "
     "come, <b>with</b> </param and more of it: "
     "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\n\n"
     "</parameter></function></tool_call>",
     "0C(weather)A({\"town\":\"A very long text, which is passed on before its end has come, "
     "<b>with</b> </param and more "
     "of it: \xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\\n\"})E"},
    {CODER, NULL, "<tool_call>weather</tool_call>", "T(<tool_call>weather</tool_call>)"},
    // LFM2.
    {LFM, NULL,
     "<|tool_call_start|>[weather(town=\"Ghent\", days=3, units=['c', \"it's\\n\"], deep={'a': "
     "True, \"b\": None,}, "
     "any=(1, -2.5e3)), clock()]<|tool_call_end|>Looking.",
     "0C(weather)A({\"town\":\"Ghent\",\"days\":3,\"units\":[\"c\",\"it's\\n\"],\"deep\":{\"a\":"
     "true,\"b\":null},"
     "\"any\":[1,-2.5e3]})E1C(clock)A({})ET(Looking.)"},
    {LFM, NULL, "<|tool_call_start|>[a.b(x='\\u00e9\\x41\\'\"\\q', y=1_000)]<|tool_call_end|>",
     "0C(a.b)A({\"x\":\"\\u00e9\\u0041'\\\"\\\\q\",\"y\":\"1_000\"})E"},
    {LFM, NULL, "<|tool_call_start|>[weather(\"Ghent\"", "0C(weather)A({\"Ghent\")"},
    {LFM, NULL, "<|tool_call_start|>[weather(town=f\"x\")]<|tool_call_end|>.",
     "0C(weather)A({\"town\":)T(.)"},
    {LFM, NULL, "<|tool_call_start|>[]<|tool_call_end|>.",
     "T(<|tool_call_start|>[]<|tool_call_end|>.)"},
    // Gemma 4.
    {GEMMA, NULL,
     "<|channel>thought\nlet me see\n<channel|><|tool_call>call:weather{town:<|\"|>New "
     "\"York\"<|x<|\"|>,days:3,"
     "deep:{<|\"|>a b<|\"|>:[true,<|\"|>x<|\"|>],n:null},any:free "
     "text}<tool_call|><|tool_call>call:clock{}"
     "<tool_call|>",
     "R(let me see)0C(weather)A({\"town\":\"New \\\"York\\\"<|x\",\"days\":3,\"deep\":{\"a "
     "b\":[true,\"x\"],\"n\":null},"
     "\"any\":\"free text\"})E1C(clock)A({})E"},
    {FUNCTION_GEMMA, NULL,
     "<start_function_call>call:weather{town:<escape>Ghent<escape>}<end_function_call>",
     "0C(weather)A({\"town\":\"Ghent\"})E"},
    // Llama 3: the whole answer.
    {LLAMA, NULL, "\n{\"name\": \"weather\", \"parameters\": {\"town\": \"Ghent\"}}",
     "0C(weather)A({\"town\": \"Ghent\"})E"},
    {LLAMA, NULL,
     "<|python_tag|>{\"name\": \"clock\", \"parameters\": {}}; {\"name\": \"clock\", "
     "\"parameters\": {}}",
     "0C(clock)A({})E1C(clock)A({})E"},
    {LLAMA, NULL, " {\"name\": \"Ghent\", \"people\": 3}",
     "T( {\"name\": \"Ghent\", \"people\": 3})"},
    {LLAMA, NULL, "{\"people\": 3}", "T({\"people\": 3})"},
    {LLAMA, NULL, "Call {\"name\": \"clock\"}", "T(Call {\"name\": \"clock\"})"},
    // Mistral: a list, and the newer way.
    {MISTRAL, NULL,
     "[THINK]so[/THINK][TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": {\"days\": 1}}, "
     "{\"name\": \"clock\", "
     "\"arguments\": {}}]",
     "R(so)0C(weather)A({\"days\": 1})E1C(clock)A({})E"},
    {MISTRAL, NULL, "Hm[TOOL_CALLS]weather[ARGS]{\"days\": 1}[TOOL_CALLS]clock[CALL_ID]abc[ARGS]{}",
     "T(Hm)0C(weather)A({\"days\": 1})"
     "E1C(clock)A({})E"},
    {GRANITE, NULL, "<|tool_call|>[{\"name\": \"clock\", \"arguments\": {}}]\nDone",
     "0C(clock)A({})ET(Done)"},
    {PHI, NULL, "<|tool_call|>[{\"name\": \"clock\", \"arguments\": {}}]<|/tool_call|>",
     "0C(clock)A({})E"},
};

typedef struct record {
    tern_strbuf out;
    tern_part_kind last;
    bool is_open; // of a text in brackets, which pieces join
    uint32_t call;
} record;

static void close_text(record *r) {
    if (r->is_open) tern_strbuf_putc(&r->out, ')');
    r->is_open = false;
}

static void on_part(void *user, const tern_part *part) {
    static const char letters[] = "TRCAE";
    record *r = user;
    CHECK(!part->n_bytes || ((unsigned char)*part->text & 0xc0) != 0x80); // whole characters
    bool goes_on = r->is_open && r->last == part->kind && part->kind != TERN_PART_CALL;
    if (!goes_on) {
        close_text(r);
        if (part->kind == TERN_PART_CALL) tern_strbuf_printf(&r->out, "%u", (unsigned)part->call);
        tern_strbuf_putc(&r->out, letters[part->kind]);
        if (part->kind != TERN_PART_CALL_END) tern_strbuf_putc(&r->out, '('), r->is_open = true;
    }
    tern_strbuf_append(&r->out, part->text, part->n_bytes);
    r->last = part->kind;
}

// step 0: random pieces.
static void check_row(size_t i, size_t step, unsigned seed) {
    tern_answer *a;
    tern_error err = {0};
    record r = {0};
    tern_str source = {rows[i].source, strlen(rows[i].source)};
    tern_answer_style style = tern_answer_style_of(source, NULL);
    size_t n = strlen(rows[i].answer);
    REQUIRE_OK(tern_answer_create(&a, &style, NULL, rows[i].prompt, tools, &err), err);
    for (size_t at = 0; at < n;) {
        seed = seed * 1664525u + 1013904223u;
        size_t piece = step ? step : 1 + (seed >> 16) % 11;
        // As they are decoded: whole characters.
        while (at + piece < n && ((unsigned char)rows[i].answer[at + piece] & 0xc0) == 0x80)
            piece++;
        if (piece > n - at) piece = n - at;
        REQUIRE_OK(tern_answer_put(a, rows[i].answer + at, piece, on_part, &r, &err), err);
        at += piece;
    }
    REQUIRE_OK(tern_answer_end(a, on_part, &r, &err), err);
    CHECK(tern_answer_put(a, "x", 1, on_part, &r, &err) != TERN_OK);
    close_text(&r);
    CHECK_MSG(!strcmp(tern_strbuf_text(&r.out), rows[i].parts), "row %zu, step %zu, seed %u: %s", i,
              step, seed, tern_strbuf_text(&r.out));
    tern_strbuf_free(&r.out);
    tern_answer_close(a);
}

// Seen to fail, each for its own reason: with the spaces before marks passed on, with a cut mark
// taken for text, with the name known before its end, with put_early in the middle of a character,
// with quotes in a word.
TEST(answer_of_each_family) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        check_row(i, 10000, 0);
        for (size_t step = 1; step < 4; step++) check_row(i, step, 0);
        for (unsigned seed = 1; seed < 30; seed++) check_row(i, 0, seed);
    }
}

static void count(void *user, const tern_part *part) {
    size_t *most = user;
    if (part->n_bytes > *most) *most = part->n_bytes;
}

// Arguments come as they are made: none of the parts is long. Seen to fail with arguments kept
// until the end.
TEST(answer_arguments_are_not_held_back) {
    static const char *const begin[] = {
        "<tool_call>{\"name\":\"weather\",\"arguments\":{\"town\":\"",
        "<tool_call><function=weather><parameter=town>\n",
        "<|tool_call_start|>[weather(town=\"",
        "<|tool_call>call:weather{town:<|\"|>",
    };
    static const char *const source[] = {QWEN, CODER, LFM, GEMMA};
    for (size_t i = 0; i < 4; i++) {
        tern_answer *a;
        tern_error err = {0};
        size_t most = 0;
        tern_answer_style style =
            tern_answer_style_of((tern_str){source[i], strlen(source[i])}, NULL);
        REQUIRE_OK(tern_answer_create(&a, &style, NULL, NULL, tools, &err), err);
        REQUIRE_OK(tern_answer_put(a, begin[i], strlen(begin[i]), count, &most, &err), err);
        most = 0;
        for (int k = 0; k < 1000; k++)
            REQUIRE_OK(tern_answer_put(a, "word ", 5, count, &most, &err), err);
        CHECK_MSG(most > 0 && most < 100, "%s: %zu bytes at once", begin[i], most);
        tern_answer_close(a);
    }
}

static void forget(void *user, const tern_part *part) {
    (void)user, (void)part;
}

static void put_noise(const char *source, unsigned seed) {
    static const char *const pieces[] = {"<tool_call>",
                                         "</tool_call>",
                                         "<think>",
                                         "</think>",
                                         "{\"name\":",
                                         "\"weather\"",
                                         ",\"arguments\":{",
                                         "}",
                                         "]",
                                         "[",
                                         "<function=weather>",
                                         "<parameter=town>",
                                         "</parameter>",
                                         "</function>",
                                         "<|tool_call_start|>",
                                         "weather(",
                                         "town=",
                                         "\"",
                                         "'",
                                         ")",
                                         "<|tool_call>call:",
                                         "<|\"|>",
                                         "<tool_call|>",
                                         "[TOOL_CALLS]",
                                         "[ARGS]",
                                         " ",
                                         "\n",
                                         "\\",
                                         "\\u00",
                                         "a",
                                         ",",
                                         ":",
                                         "<|tool_call|>",
                                         "{",
                                         "\xc3",
                                         "null",
                                         "<"};
    tern_answer *a;
    tern_error err = {0};
    tern_answer_style style = tern_answer_style_of((tern_str){source, strlen(source)}, NULL);
    REQUIRE_OK(tern_answer_create(&a, &style, NULL, NULL, tools, &err), err);
    for (int i = 0; i < 60; i++) {
        seed = seed * 1664525u + 1013904223u;
        const char *piece = pieces[(seed >> 16) % (sizeof pieces / sizeof *pieces)];
        REQUIRE_OK(tern_answer_put(a, piece, strlen(piece), forget, NULL, &err), err);
    }
    REQUIRE_OK(tern_answer_end(a, forget, NULL, &err), err);
    tern_answer_close(a);
}

TEST(answer_of_noise) {
    static const char *const sources[] = {QWEN,  CODER,   LFM,     GEMMA, FUNCTION_GEMMA,
                                          LLAMA, MISTRAL, GRANITE, PHI};
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
        for (unsigned seed = 0; seed < 2000; seed++) put_noise(sources[i], seed);
}

TEST(answer_tools_that_are_no_list) {
    tern_answer *a;
    tern_error err = {0};
    tern_answer_style style = tern_answer_style_of(TERN_STR(QWEN), NULL);
    CHECK(tern_answer_create(&a, &style, NULL, NULL, "{}", &err) == TERN_ERR_ARGUMENT && !a);
    CHECK_MSG(strstr(err.message, "tools must be"), "%s", err.message);
    CHECK(tern_answer_create(&a, &style, NULL, NULL, "[", &err) != TERN_OK && !a);
}

// Each family's form of calls and reasoning, as its documentation shows it, cut anywhere.
#include "input/answer/answer.h"

#include <stdlib.h>
#include <string.h>
#include "tests/support/harness.h"

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{\"type\":"
    "\"object\","
    "\"properties\":{\"town\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},\"units\":{"
    "\"type\":"
    "\"array\"},\"deep\":{\"type\":\"object\"},\"any\":{}}}}},{\"name\":\"clock\"}]";

// Signs of a family, as in its template.
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
     "\"arguments\": {}}\n</tool_call>",
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
     "0C(weather)A({\"town\": \"Ghe\"})"},
    {QWEN, NULL, "a <tool_call>no json</tool_call> b", "T(a <tool_call>no json</tool_call> b)"},
    {QWEN, NULL, "a <tool_call>\n</tool_call> b", "T(a <tool_call>\n</tool_call> b)"},
    {QWEN, NULL, "a <tool_cal", "T(a <tool_cal)"},
    {QWEN, NULL, "<tool_call>{\"name\": \"weather\"", "0C(weather)A({})"},
    {QWEN, NULL, "<tool_call>{\"name\": \"clock\", \"arguments\": {}} junk</tool_call>\nb",
     "0C(clock)A({})ET(junk\nb)"},
    // Seen to fail with an invalid call and the one after it counted as one.
    {QWEN, NULL,
     "<tool_call>{\"name\": \"weather\", 7}</tool_call>\n<tool_call>{\"name\": "
     "\"clock\"}</tool_call>",
     "0C(weather)A({})1C(clock)A({})E"},
    // Calls that are cut: closed, and their keys without values left out.
    {QWEN, NULL, "<tool_call>{\"name\": \"weather\", \"arguments\": {\"a\": [1, {\"b\": \"x\\u00",
     "0C(weather)A({\"a\": [1, {\"b\": \"x\"}]})"},
    {QWEN, NULL, "<tool_call>{\"name\": \"weather\", \"arguments\": {\"a\": \"\\ud83d\\ude",
     "0C(weather)A({\"a\": \"\"})"},
    {QWEN, NULL,
     "<tool_call>{\"name\": \"weather\", \"arguments\": {\"a\": \"\\ud83d\\ude00\", \"days\": 12",
     "0C(weather)A({\"a\": \"\\ud83d\\ude00\"})"},
    {QWEN, NULL, "<tool_call>{\"name\": \"weather\", \"arguments\": {\"a\": 1.5 , \"to",
     "0C(weather)A({\"a\": 1.5 })"},
    {QWEN, NULL, "<tool_call>{\"name\": \"weather\", \"arguments\": {town: 1}}</tool_call>x",
     "0C(weather)A({})T(x)"},
    {QWEN, NULL, "<tool_call>{\"name\": \"weather\", \"arguments\": {\"a\": tru}}</tool_call>",
     "0C(weather)A({})"},
    {QWEN, NULL, "<tool_call>{\"name\": \"clock\"}\n{\"na", "0C(clock)A({})ET({\"na)"},
    {QWEN, NULL, "a\n\n<tool_call>\n{\"na", "T(a\n\n<tool_call>\n{\"na)"},
    // Marks in prose, and in blocks of code.
    {QWEN, NULL, "Use <tool_call> tags to call.", "T(Use <tool_call> tags to call.)"},
    {QWEN, NULL, "Line one:\n\n<tool_call> is a tag.", "T(Line one:\n\n<tool_call> is a tag.)"},
    {QWEN, NULL, "<tool_call> <tool_call>{\"name\": \"clock\"}</tool_call>",
     "T(<tool_call>)0C(clock)A({})E"},
    {QWEN, NULL,
     "So:\n```xml\n<tool_call>\n{\"name\": \"clock\"}\n</tool_call>\n```\n\n<tool_call>{\"name\": "
     "\"clock\"}</tool_call>",
     "T(So:\n```xml\n<tool_call>\n{\"name\": \"clock\"}\n</tool_call>\n```)0C(clock)A({})E"},
    {QWEN, NULL, "~~~~\n~~~\n<tool_call>{\"name\": \"clock\"}\n~~~~",
     "T(~~~~\n~~~\n<tool_call>{\"name\": \"clock\"}\n~~~~)"},
    {QWEN, NULL, "Write `<tool_call>{\"name\": \"clock\"}</tool_call>` here",
     "T(Write `<tool_call>{\"name\": \"clock\"}</tool_call>` here)"},
    {QWEN, NULL, "```a``` <tool_call>{\"name\": \"clock\"}</tool_call>",
     "T(```a```)0C(clock)A({})E"},
    {QWEN, NULL, "Text\n<think>\nis a tag\n</think>\n\nend",
     "T(Text\n<think>\nis a tag\n</think>\n\nend)"},
    // Calls without the mark: objects at the beginning of a line that name a function, with
    // arguments.
    {QWEN, NULL, "{\"name\": \"clock\", \"arguments\": {}}", "0C(clock)A({})E"},
    {QWEN, NULL,
     "I look.\n\n{\"name\": \"weather\", \"arguments\": {\"days\": 1}}\n</tool_call>\nDone",
     "T(I look.)0C(weather)A({\"days\": 1})ET(Done)"},
    {QWEN, NULL,
     "{\"arguments\": {\"days\": 1}, \"name\": \"weather\"}\n{\"name\": \"clock\", \"arguments\": "
     "{}}",
     "0C(weather)A({\"days\": 1})E1C(clock)A({})E"},
    {QWEN, NULL, "{\"name\": \"clock\", \"id\": 7}\n", "T({\"name\": \"clock\", \"id\": 7}\n)"},
    {QWEN, NULL, "{\"name\": \"Ghent\", \"arguments\": {}}",
     "T({\"name\": \"Ghent\", \"arguments\": {}})"},
    {QWEN, NULL, "{\"people\":\n{\"name\": \"clock\"}}", "T({\"people\":\n{\"name\": \"clock\"}})"},
    {QWEN, NULL, "```json\n{\"name\": \"clock\", \"arguments\": {}}\n```",
     "T(```json\n{\"name\": \"clock\", \"arguments\": {}}\n```)"},
    {QWEN, NULL, "{\n<tool_call>{\"name\": \"clock\"}</tool_call>", "T({)0C(clock)A({})E"},
    {QWEN, NULL, "a {\"name\": \"clock\", \"arguments\": {}}",
     "T(a {\"name\": \"clock\", \"arguments\": {}})"},
    {QWEN, NULL, "{\"name\": \"clo", "T({\"name\": \"clo)"},
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
     "its end has come, <b>with</b> </param and more of it: "
     "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\n\n"
     "</parameter></function></tool_call>",
     "0C(weather)A({\"town\":\"A very long text, which is passed on before its end has come, "
     "<b>with</b> </param and more "
     "of it: \xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\\n\"})E"},
    {CODER, NULL, "<tool_call>weather</tool_call>", "T(<tool_call>weather</tool_call>)"},
    {CODER, NULL,
     "I look.\n\n<function=weather>\n<parameter=town>\nz\n</parameter>\n</function>\n</tool_call>",
     "T(I look.)0C(weather)A({\"town\":\"z\"})E"},
    {CODER, NULL, "<function=clock></function> <function=clock>\n</function>\n\n<b>x</b>",
     "0C(clock)A({})E1C(clock)A({})ET(<b>x</b>)"},
    {CODER, NULL, "<function=other></function> a <function=cl",
     "T(<function=other></function> a <function=cl)"},
    {CODER, NULL, "It is `<function=clock>` or\n```\n<function=clock>\n</function>\n```",
     "T(It is `<function=clock>` or\n```\n<function=clock>\n</function>\n```)"},
    {CODER, NULL,
     "<tool_call>\n<function=weather>\n<parameter=town>\nsee </parameter> <param </parameter> "
     "x\n</parameter>\n</function>\n</tool_call>",
     "0C(weather)A({\"town\":\"see </parameter> <param </parameter> x\"})E"},
    {CODER, NULL,
     "<tool_call>\n<function=weather>\n<parameter=town>\nab\n</parameter>\n</tool_call>\n.",
     "0C(weather)A({\"town\":\"ab\"})ET(.)"},
    {CODER, NULL, "<tool_call>\n<function=weather>\n<parameter=town>\nab\n</parameter>\n",
     "0C(weather)A({\"town\":\"ab\"})"},
    {CODER, NULL, "<tool_call>\n<function=weather>\n<parameter=town>\nab</para",
     "0C(weather)A({\"town\":\"ab\"})"},
    {CODER, NULL,
     "<tool_call>\n<function=weather>\n<parameter=town>\nab\n</parameter>\n<parameter=days>\n1",
     "0C(weather)A({\"town\":\"ab\"})"},
    {CODER, NULL, "<tool_call>\n<function=weather>\n", "0C(weather)A({})"},
    // LFM2.
    {LFM, NULL,
     "<|tool_call_start|>[weather(town=\"Ghent\", days=3, units=['c', \"it's\\n\"], deep={'a': "
     "True, \"b\": None,}, any=(1, -2.5e3)), clock()]<|tool_call_end|>Looking.",
     "0C(weather)A({\"town\":\"Ghent\",\"days\":3,\"units\":[\"c\",\"it's\\n\"],\"deep\":{\"a\":"
     "true,\"b\":null},\"any\":[1,-2.5e3]})E1C(clock)A({})ET(Looking.)"},
    {LFM, NULL, "<|tool_call_start|>[a.b(x='\\u00e9\\x41\\'\"\\q', y=1_000)]<|tool_call_end|>",
     "0C(a.b)A({\"x\":\"\\u00e9\\u0041'\\\"\\\\q\",\"y\":\"1_000\"})E"},
    {LFM, NULL, "<|tool_call_start|>[weather(\"Ghent\"", "0C(weather)A({})"},
    {LFM, NULL, "<|tool_call_start|>[weather(town=f\"x\")]<|tool_call_end|>.",
     "0C(weather)A({})T(.)"},
    {LFM, NULL, "<|tool_call_start|>[]<|tool_call_end|>.",
     "T(<|tool_call_start|>[]<|tool_call_end|>.)"},
    // Gemma 4.
    {GEMMA, NULL,
     "<|channel>thought\nlet me see\n<channel|><|tool_call>call:weather{town:<|\"|>New "
     "\"York\"<|x<|\"|>,days:3,"
     "deep:{<|\"|>a b<|\"|>:[true,<|\"|>x<|\"|>],n:null},any:free "
     "text}<tool_call|><|tool_call>call:clock{}<tool_call|>",
     "R(let me see)0C(weather)A({\"town\":\"New \\\"York\\\"<|x\",\"days\":3,\"deep\":{\"a "
     "b\":[true,\"x\"],\"n\":null},\"any\":\"free text\"})E1C(clock)A({})E"},
    {FUNCTION_GEMMA, NULL,
     "<start_function_call>call:weather{town:<escape>Ghent<escape>}<end_function_call>",
     "0C(weather)A({\"town\":\"Ghent\"})E"},
    // Llama 3: the whole answer.
    // Seen to fail where a piece ends after the space: then it was not part of the text.
    {LLAMA, NULL, "{\"name\": \"clock\", \"parameters\": {}; {\"name\": 1",
     "0C(clock)A({})T({\"name\": 1)"},
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
     "{\"name\": \"clock\", \"arguments\": {}}]",
     "R(so)0C(weather)A({\"days\": 1})E1C(clock)A({})E"},
    {MISTRAL, NULL, "Hm[TOOL_CALLS]weather[ARGS]{\"days\": 1}[TOOL_CALLS]clock[CALL_ID]abc[ARGS]{}",
     "T(Hm)0C(weather)A({\"days\": 1})E1C(clock)A({})E"},
    {GRANITE, NULL, "<|tool_call|>[{\"name\": \"clock\", \"arguments\": {}}]\nDone",
     "0C(clock)A({})ET(Done)"},
    {PHI, NULL, "<|tool_call|>[{\"name\": \"clock\", \"arguments\": {}}]<|/tool_call|>",
     "0C(clock)A({})E"},
};

typedef struct record {
    tern_strbuf out;
    tern_part_kind last;
    bool is_cut;  // within characters, too
    bool is_open; // inside the brackets of a text, which later pieces continue
    uint32_t call;
} record;

static void close_text(record *r) {
    if (r->is_open) tern_strbuf_putc(&r->out, ')');
    r->is_open = false;
}

static void on_part(void *user, const tern_part *part) {
    static const char letters[] = "TRCAE";
    record *r = user;
    CHECK(r->is_cut || !part->n_bytes ||
          ((unsigned char)*part->text & 0xc0) != 0x80); // whole characters
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

// A row in two pieces, cut at each byte, gives the same as the whole row. Seen to fail with cut
// marks taken for text. Parts have whole characters only if the pieces have.
static void check_cuts(size_t i) {
    size_t n = strlen(rows[i].answer);
    for (size_t cut = 0; cut <= n; cut++) {
        tern_answer *a;
        tern_error err = {0};
        record r = {.is_cut = true};
        tern_answer_style style =
            tern_answer_style_of((tern_str){rows[i].source, strlen(rows[i].source)}, NULL);
        REQUIRE_OK(tern_answer_create(&a, &style, NULL, rows[i].prompt, tools, &err), err);
        REQUIRE_OK(tern_answer_put(a, rows[i].answer, cut, on_part, &r, &err), err);
        REQUIRE_OK(tern_answer_put(a, rows[i].answer + cut, n - cut, on_part, &r, &err), err);
        REQUIRE_OK(tern_answer_end(a, on_part, &r, &err), err);
        close_text(&r);
        CHECK_MSG(!strcmp(tern_strbuf_text(&r.out), rows[i].parts), "row %zu, cut at %zu: %s", i,
                  cut, tern_strbuf_text(&r.out));
        tern_strbuf_free(&r.out);
        tern_answer_close(a);
    }
}

// Seen to fail, each for its own reason: with the spaces before marks passed on, with a cut mark
// taken for text, with a name taken before its end, with put_early in the middle of a character,
// with quotes in a word.
TEST(answer_of_each_family) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        check_row(i, 10000, 0);
        check_cuts(i);
        for (size_t step = 1; step < 4; step++) check_row(i, step, 0);
        for (unsigned seed = 1; seed < 30; seed++) check_row(i, 0, seed);
    }
}

static void count(void *user, const tern_part *part) {
    size_t *most = user;
    if (part->n_bytes > *most) *most = part->n_bytes;
}

// Arguments are passed on as they are generated: no part is long. Seen to fail with arguments kept
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

typedef struct noise {
    record r;
    tern_strbuf arguments;
    bool has_call;
} noise;

static void check_arguments(noise *n) {
    tern_json_doc doc = {0};
    if (n->has_call) {
        tern_status status =
            tern_json_parse(&doc, tern_strbuf_text(&n->arguments), n->arguments.len, NULL);
        CHECK_MSG(status == TERN_OK && tern_json_is(tern_json_root(&doc), TERN_JSON_OBJECT), "%s",
                  tern_strbuf_text(&n->arguments));
    }
    tern_json_free(&doc);
    tern_strbuf_clear(&n->arguments);
    n->has_call = false;
}

static void on_noise(void *user, const tern_part *part) {
    noise *n = user;
    if (part->kind == TERN_PART_CALL) check_arguments(n), n->has_call = true;
    if (part->kind == TERN_PART_ARGUMENTS)
        tern_strbuf_append(&n->arguments, part->text, part->n_bytes);
    on_part(&n->r, part);
}

// The parts of a text of n bytes, in pieces of `step` bytes. Arguments are JSON, whatever the text
// is.
static void take_noise(const char *source, const char *text, size_t n, size_t step,
                       tern_strbuf *out) {
    tern_answer *a;
    tern_error err = {0};
    noise r = {.r = {.is_cut = true}};
    tern_answer_style style = tern_answer_style_of((tern_str){source, strlen(source)}, NULL);
    REQUIRE_OK(tern_answer_create(&a, &style, NULL, NULL, tools, &err), err);
    for (size_t at = 0; at < n; at += step)
        REQUIRE_OK(tern_answer_put(a, text + at, step < n - at ? step : n - at, on_noise, &r, &err),
                   err);
    REQUIRE_OK(tern_answer_end(a, on_noise, &r, &err), err);
    check_arguments(&r);
    close_text(&r.r);
    *out = r.r.out;
    tern_strbuf_free(&r.arguments);
    tern_answer_close(a);
}

// Whole answers and streams agree, and no call is incomplete. Seen to fail: with spaces before a
// mark counted from the start of a piece; with arguments passed on as they come.
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
                                         "\n{\"name\": \"clock\", \"arguments\": {",
                                         "<function=clock>",
                                         "</tool_call",
                                         "1",
                                         "```",
                                         "                                                       ",
                                         "a",
                                         ",",
                                         ":",
                                         "<|tool_call|>",
                                         "{",
                                         "\xc3",
                                         "null",
                                         "<"};
    tern_strbuf text = {0}, whole, parts;
    for (int i = 0; i < 60; i++) {
        seed = seed * 1664525u + 1013904223u;
        tern_strbuf_puts(&text, pieces[(seed >> 16) % (sizeof pieces / sizeof *pieces)]);
    }
    take_noise(source, text.ptr, text.len, text.len, &whole);
    for (size_t step = 1; step < 12; step += 1 + step / 3) {
        take_noise(source, text.ptr, text.len, step, &parts);
        CHECK_MSG(!strcmp(tern_strbuf_text(&whole), tern_strbuf_text(&parts)),
                  "pieces of %zu of %s:\n%s\n%s", step, text.ptr, tern_strbuf_text(&whole),
                  tern_strbuf_text(&parts));
        tern_strbuf_free(&parts);
    }
    tern_strbuf_free(&whole);
    tern_strbuf_free(&text);
}

TEST(answer_of_noise) {
    static const char *const sources[] = {QWEN,  CODER,   LFM,     GEMMA, FUNCTION_GEMMA,
                                          LLAMA, MISTRAL, GRANITE, PHI};
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
        for (unsigned seed = 0; seed < 400; seed++) put_noise(sources[i], seed);
}

TEST(answer_tools_that_are_no_list) {
    tern_answer *a;
    tern_error err = {0};
    tern_answer_style style = tern_answer_style_of(TERN_STR(QWEN), NULL);
    CHECK(tern_answer_create(&a, &style, NULL, NULL, "{}", &err) == TERN_ERR_ARGUMENT && !a);
    CHECK_MSG(strstr(err.message, "tools must be"), "%s", err.message);
    CHECK(tern_answer_create(&a, &style, NULL, NULL, "[", &err) != TERN_OK && !a);
}

// The texts that tern agent reads. The first byte says which the rest is:
//
//   =   a sum for calculate
//   T   the file of a tool that is a program (which is not run)
//   S   a SKILL.md
//   M   a file for --mcp; its servers say nothing
//   W   the words of a command
//   E   server-sent events
//   J   what a model and its tools say, as the transcript has it
//   A   what a model says: a byte for its family, the tools, a zero byte, the prompt, a zero byte,
//       the answer
#include <stdio.h>
#include <string.h>
#include "apps/agent/agent_log.h"
#include "apps/agent/mcp/mcp_client.h"
#include "base/alloc.h"
#include "fuzz/support.h"
#include "input/input.h"

static bool gather(void *user, const char *text, size_t n) {
    tern_strbuf_append(user, text, n);
    return true;
}

static char *copy_of(tern_str s) { return tern_strndup(TERN_MEM_MISC, s.ptr, s.len); }

// ---- Sums --------------------------------------------------------------------------------------

// A value, as it is printed, is an expression of the same value.
static void calculate(tern_str s) {
    tern_strbuf out = {0}, again = {0};
    tern_error err = {0};
    tern_status status = agent_calculate(s.ptr, s.len, &out, &err);
    fuzz_require(status == TERN_OK ? out.len > 0 : err.message[0] != 0);
    if (status == TERN_OK) {
        status = agent_calculate(out.ptr, out.len, &again, &err);
        fuzz_require(status == TERN_ERR_MEMORY ||
                     (status == TERN_OK && !strcmp(out.ptr, again.ptr)));
    }
    tern_strbuf_free(&out);
    tern_strbuf_free(&again);
}

// ---- Files -------------------------------------------------------------------------------------

static void check_tools(const agent_tools *t) {
    for (size_t i = 0; i < t->n; i++) {
        fuzz_require(*t->list[i].name && t->list[i].description && t->list[i].run);
        const char *schema = t->list[i].parameters;
        if (schema) fuzz_require(fuzz_is_json(schema, strlen(schema)));
    }
}

static void read_program(tern_str s) {
    agent_tools tools = {0};
    tern_error err = {0};
    const char *path = fuzz_write("tool.json", (const uint8_t *)s.ptr, s.len);
    tern_status status = agent_add_program(&tools, path, &err);
    fuzz_require(status == TERN_OK ? tools.n == 1 : tools.n == 0 && err.message[0]);
    // A second of the same name is refused.
    if (status == TERN_OK) fuzz_require(agent_add_program(&tools, path, &err) != TERN_OK);
    check_tools(&tools);
    agent_tools_free(&tools);
}

// The head as a text, and as the tool has it, whose result is what follows the head.
static void read_skill(tern_str s) {
    agent_tools tools = {0};
    tern_error err = {0};
    tern_strbuf told = {0}, call = {0}, text = {0};
    skill_head head = {0};
    char folder[512];
    snprintf(folder, sizeof folder, "%s", fuzz_write("SKILL.md", (const uint8_t *)s.ptr, s.len));
    *strrchr(folder, '/') = 0;
    const char *const folders[] = {folder};
    tern_status status = skill_read_head(&head, s.ptr, s.len, &err);
    fuzz_require(status == TERN_OK || err.message[0]);
    if (status == TERN_OK)
        fuzz_require(head.body <= s.len && head.name.len && head.description.len);
    bool is_added = agent_add_skills(&tools, folders, 1, gather, &told, &err) == TERN_OK;
    fuzz_require(!is_added || status != TERN_ERR_FORMAT);
    if (is_added && status == TERN_OK) {
        tern_json_writer w = {.out = &call};
        tern_json_open(&w, NULL, '{');
        tern_json_put_text(&w, "name", head.name.ptr);
        tern_json_close(&w, '}');
        const tern_agent_call c = {.name = "read_skill", .arguments = tern_strbuf_text(&call)};
        bool ok = tools.list[0].run(tools.list[0].user, &c, gather, &text);
        if (ok && !text.failed)
            fuzz_require(text.len == s.len - head.body &&
                         (!text.len || !memcmp(text.ptr, s.ptr + head.body, text.len)));
    }
    check_tools(&tools);
    agent_tools_free(&tools);
    skill_free_head(&head);
    tern_strbuf_free(&told);
    tern_strbuf_free(&call);
    tern_strbuf_free(&text);
}

static void read_servers(tern_str s) {
    agent_tools tools = {0};
    tern_error err = {0};
    const char *path = fuzz_write("servers.json", (const uint8_t *)s.ptr, s.len);
    fuzz_server_says(NULL, 0);
    tern_status status = agent_add_servers(&tools, path, &err);
    fuzz_require(status == TERN_OK || err.message[0]);
    agent_tools_free(&tools);
}

// ---- Pieces ------------------------------------------------------------------------------------

static void read_words(tern_str s) {
    char *line = copy_of(s), **words = NULL;
    tern_error err = {0};
    if (!line) return;
    tern_status status = agent_split_words(line, &words, &err);
    fuzz_require(status == TERN_OK ? words && words[0] : !words && err.message[0]);
    size_t n = 0;
    for (char **at = words; at && *at; at++) n += strlen(*at);
    fuzz_require(n <= s.len);
    agent_free_words(words);
    tern_free(line);
}

static void read_events(tern_str s) {
    mcp_events e = {0};
    for (size_t i = 0; i < s.len; i++)
        if (mcp_events_put(&e, s.ptr[i])) {
            fuzz_require(e.data.failed || !e.data.len || !memchr(e.data.ptr, '\r', e.data.len));
            tern_strbuf_clear(&e.data);
        }
    mcp_events_free(&e);
}

// A line for each event, which is JSON whatever was said.
static void write_log(tern_str s) {
    agent_log log = {.fd = -1};
    tern_error err = {0};
    tern_strbuf text = {0};
    char *said = copy_of(s);
    const char *path = fuzz_write("log.jsonl", NULL, 0);
    if (said && agent_log_open(&log, path, &err) == TERN_OK) {
        const tern_agent_call call = {.name = said, .id = "call_1", .arguments = "{}"};
        const tern_agent_result end = {.answer = s.ptr, .n_bytes = s.len};
        agent_log_event(&log, &(tern_agent_event){.kind = TERN_AGENT_NOTE, .text = said}, NULL);
        agent_log_event(&log, &(tern_agent_event){.kind = TERN_AGENT_CALL, .call = &call}, NULL);
        agent_log_event(
            &log,
            &(tern_agent_event){
                .kind = TERN_AGENT_RESULT, .text = said, .n_bytes = strlen(said), .call = &call},
            "asked");
        agent_log_end(&log, &end, &err);
    }
    bool is_whole = said && log.fd >= 0 && log.err.status == TERN_OK;
    agent_log_close(&log);
    if (is_whole && agent_read_file(&text, path, (size_t)64 << 20, &err) == TERN_OK) {
        size_t n_lines = 0;
        for (char *at = text.ptr, *end; at < text.ptr + text.len; at = end + 1, n_lines++) {
            end = strchr(at, '\n');
            fuzz_require(end && fuzz_is_json(at, (size_t)(end - at)));
        }
        fuzz_require(n_lines == 4);
    }
    tern_strbuf_free(&text);
    tern_free(said);
}

// ---- Calls -------------------------------------------------------------------------------------

// What makes a family known, in the places where its template has it.
static const char *const families[] = {
    "{{ tools }} <tool_call> </think>",
    "{{ tools }} <tool_call>\n<function=x> </think>",
    "{{ tools }} <|tool_call_start|> </think>",
    "{{ tools }} <|tool_call>call: <|channel>",
    "{{ tools }} <start_function_call>",
    "{{ tools }} \"parameters\": ",
    "{{ tools }} [TOOL_CALLS] [THINK]",
    "{{ tools }} [TOOL_CALLS] [ARGS]",
    "{{ tools }} <|tool_call|>",
    "{{ tools }} <|tool_call|> <|/tool_call|>",
};

typedef struct heard {
    tern_strbuf all; // the parts, those of one kind as one
    int last;
    bool in_call;
    uint32_t n_calls;
} heard;

// A call that breaks off has no end; what follows is no part of it.
static void hear(void *user, const tern_part *p) {
    heard *h = user;
    bool of_call = p->kind != TERN_PART_TEXT && p->kind != TERN_PART_REASONING;
    if (p->kind == TERN_PART_CALL) {
        fuzz_require(p->call == h->n_calls && p->n_bytes > 0);
        h->n_calls++;
    } else if (of_call) {
        fuzz_require(h->in_call && p->call + 1 == h->n_calls);
    }
    h->in_call = of_call && p->kind != TERN_PART_CALL_END;
    if (h->last != (int)p->kind + 1 || p->kind == TERN_PART_CALL)
        tern_strbuf_putc(&h->all, (char)('0' + p->kind));
    h->last = (int)p->kind + 1;
    tern_strbuf_append(&h->all, p->text, p->n_bytes);
}

static bool listen(heard *h, const tern_answer_style *style, const char *tools, const char *prompt,
                   tern_str said, size_t piece) {
    tern_answer *a = NULL;
    tern_error err = {0};
    tern_status status = tern_answer_create(&a, style, NULL, prompt, tools, &err);
    for (size_t at = 0; at < said.len && status == TERN_OK; at += piece) {
        size_t n = said.len - at < piece ? said.len - at : piece;
        status = tern_answer_put(a, said.ptr + at, n, hear, h, &err);
    }
    if (status == TERN_OK) status = tern_answer_end(a, hear, h, &err);
    fuzz_require(status == TERN_OK || err.message[0]);
    tern_answer_close(a);
    return status == TERN_OK && !h->all.failed;
}

static tern_str take_text(tern_str *rest) {
    const char *zero = rest->len ? memchr(rest->ptr, 0, rest->len) : NULL;
    tern_str text = {rest->ptr, zero ? (size_t)(zero - rest->ptr) : rest->len};
    size_t used = text.len + (zero != NULL);
    *rest = (tern_str){rest->ptr + used, rest->len - used};
    return text;
}

// The same is heard however the answer is cut.
static void read_answer(tern_str s) {
    if (s.len == 0) return;
    const char *source = families[(uint8_t)s.ptr[0] % (sizeof families / sizeof *families)];
    tern_str rest = {s.ptr + 1, s.len - 1};
    char *tools = copy_of(take_text(&rest)), *prompt = copy_of(take_text(&rest));
    tern_answer_style style = tern_answer_style_of((tern_str){source, strlen(source)}, NULL);
    heard whole = {.last = 0}, cut = {.last = 0}, cut3 = {.last = 0};
    if (tools && prompt && listen(&whole, &style, tools, prompt, rest, SIZE_MAX / 2) &&
        listen(&cut, &style, tools, prompt, rest, 1) &&
        listen(&cut3, &style, tools, prompt, rest, 3)) {
        fuzz_require(whole.all.len == cut.all.len && whole.all.len == cut3.all.len);
        fuzz_require(!whole.all.len || (!memcmp(whole.all.ptr, cut.all.ptr, cut.all.len) &&
                                        !memcmp(whole.all.ptr, cut3.all.ptr, cut3.all.len)));
    }
    tern_strbuf_free(&whole.all);
    tern_strbuf_free(&cut.all);
    tern_strbuf_free(&cut3.all);
    tern_free(tools);
    tern_free(prompt);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static const struct {
        char sign;
        void (*read)(tern_str s);
    } readers[] = {{'=', calculate},  {'T', read_program}, {'S', read_skill}, {'M', read_servers},
                   {'W', read_words}, {'E', read_events},  {'J', write_log},  {'A', read_answer}};
    const tern_str rest = {(const char *)bytes + 1, n ? n - 1 : 0};
    for (size_t i = 0; n > 0 && i < sizeof readers / sizeof *readers; i++)
        if (bytes[0] == (uint8_t)readers[i].sign) readers[i].read(rest);
    return 0;
}

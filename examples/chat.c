// A chat that remembers, and a tool that the model may call. Answers are printed as they arrive:
//
//     cc chat.c $(pkg-config --cflags --libs tern) -o chat && ./chat model.gguf
//
// The conversation is a list of messages in JSON, as OpenAI has them. (If all that a program needs
// is the loop of calls, tern_agent.h has it; if there are no tools, tern_chat_answer.)
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tern.h"

typedef struct text { // that grows
    char *s;
    size_t n, room;
} text;

static bool put(void *user, const char *s, size_t n) {
    text *t = user;
    if (t->n + n + 1 > t->room) {
        char *grown = realloc(t->s, 2 * (t->n + n + 1));
        if (!grown) return false;
        t->s = grown;
        t->room = 2 * (t->n + n + 1);
    }
    memcpy(t->s + t->n, s, n);
    t->s[t->n += n] = 0;
    return true;
}

static void puts_to(text *t, const char *s) { put(t, s, strlen(s)); }

static void put_quoted(text *t, const char *s) {
    char code[8];
    puts_to(t, "\"");
    for (; s && *s; s++) {
        snprintf(code, sizeof code, "\\u%04x", *s);
        if (*s == '"' || *s == '\\') put(t, "\\", 1);
        if ((unsigned char)*s < 32)
            puts_to(t, code);
        else
            put(t, s, 1);
    }
    puts_to(t, "\"");
}

// ---- The tool ----------------------------------------------------------------------------------

static const char clock_tool[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"clock\", \"description\": \"Says what "
    "day "
    "and time it is\", \"parameters\": {\"type\": \"object\", \"properties\": {}}}}]";

static const char *tools = clock_tool; // NULL: the model's template takes none

// Whether the model's template knows what tools are.
static bool takes_tools(const tern_model *model) {
    text request = {0}, prompt = {0};
    puts_to(&request, "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}], \"tools\": ");
    puts_to(&request, clock_tool);
    puts_to(&request, "}");
    bool takes = tern_chat_format_json(model, request.s, request.n, put, &prompt, NULL) == TERN_OK;
    free(request.s), free(prompt.s);
    return takes;
}

static const char *run_tool(const char *name, const char *arguments) {
    static char result[80];
    const time_t now = time(NULL);
    (void)arguments; // a JSON object
    if (strcmp(name, "clock") != 0) return "there is no such tool";
    strftime(result, sizeof result, "%A, %Y-%m-%d %H:%M", localtime(&now));
    return result;
}

// ---- An answer ---------------------------------------------------------------------------------

typedef struct answer {
    tern_answer *parts; // takes the model's text apart
    text said, calls, results;
    text name, arguments; // of the current call
    int n_calls;
} answer;

static void end_call(answer *a) {
    char id[24];
    snprintf(id, sizeof id, "\"call_%d\"", ++a->n_calls);
    puts_to(&a->calls, a->n_calls > 1 ? ", {\"id\": " : "{\"id\": ");
    puts_to(&a->calls, id);
    puts_to(&a->calls, ", \"type\": \"function\", \"function\": {\"name\": ");
    put_quoted(&a->calls, a->name.s);
    puts_to(&a->calls, ", \"arguments\": ");
    puts_to(&a->calls, a->arguments.s ? a->arguments.s : "{}");
    puts_to(&a->calls, "}}");
    puts_to(&a->results, ", {\"role\": \"tool\", \"tool_call_id\": ");
    puts_to(&a->results, id);
    puts_to(&a->results, ", \"content\": ");
    put_quoted(&a->results, run_tool(a->name.s ? a->name.s : "", a->arguments.s));
    puts_to(&a->results, "}");
    a->name.n = a->arguments.n = 0;
}

static void on_part(void *user, const tern_part *p) {
    answer *a = user;
    switch (p->kind) {
    case TERN_PART_TEXT:
        put(&a->said, p->text, p->n_bytes);
        fwrite(p->text, 1, p->n_bytes, stdout);
        fflush(stdout);
        break;
    case TERN_PART_REASONING: break;
    case TERN_PART_CALL: put(&a->name, p->text, p->n_bytes); break;
    case TERN_PART_ARGUMENTS: put(&a->arguments, p->text, p->n_bytes); break;
    case TERN_PART_CALL_END: end_call(a); break;
    }
}

static bool on_text(void *user, const char *s, size_t n) {
    answer *a = user;
    return tern_answer_put(a->parts, s, n, on_part, a, NULL) == TERN_OK;
}

static void free_answer(answer *a) {
    tern_answer_close(a->parts);
    free(a->said.s), free(a->calls.s), free(a->results.s), free(a->name.s), free(a->arguments.s);
}

// Adds the answer to the messages; *called: it has calls, whose results follow.
static tern_status go_on(tern_session *session, const tern_model *model, text *messages,
                         bool *called, tern_error *err) {
    text request = {0}, prompt = {0};
    answer a = {0};
    int32_t *room = malloc((size_t)tern_session_n_context(session) * sizeof *room);
    tern_ids ids = {room, room ? (size_t)tern_session_n_context(session) : 0, 0};
    tern_generate_params params = {.max_tokens = 400, .on_text = on_text, .user = &a};
    // Room for the answer: the oldest turns make way for it.
    const tern_chat_limits limits = {.n_context = tern_session_n_context(session),
                                     .n_answer = params.max_tokens};
    puts_to(&request, "{\"messages\": [");
    puts_to(&request, messages->s);
    puts_to(&request, "]");
    if (tools) puts_to(&request, ", \"tools\": "), puts_to(&request, tools);
    puts_to(&request, "}");
    tern_status status = tern_chat_format_json(model, request.s, request.n, put, &prompt, err);
    if (status == TERN_OK) status = tern_answer_open(&a.parts, model, prompt.s, tools, err);
    const tern_chat_request asked = {.json = request.s, .n_bytes = request.n};
    if (status == TERN_OK) status = tern_chat_tokens_json(model, &asked, &limits, &ids, err);
    params.with_special = tern_answer_with_special(a.parts);
    // What the session has of the conversation is not computed again.
    if (status == TERN_OK) status = tern_generate_ids(session, ids.ids, ids.n, &params, NULL, err);
    if (status == TERN_OK) status = tern_answer_end(a.parts, on_part, &a, err);
    if (status == TERN_OK) {
        puts_to(messages, ", {\"role\": \"assistant\", \"content\": ");
        put_quoted(messages, a.said.s);
        if (a.n_calls) {
            puts_to(messages, ", \"tool_calls\": [");
            puts_to(messages, a.calls.s);
            puts_to(messages, "]");
        }
        puts_to(messages, "}");
        if (a.n_calls) puts_to(messages, a.results.s);
    }
    *called = a.n_calls > 0;
    free_answer(&a);
    free(request.s), free(prompt.s), free(room);
    return status;
}

int main(int argc, char **argv) {
    tern_error err = {0};
    tern_model *model = NULL;
    tern_session *session = NULL;
    text messages = {0};
    char line[4096];
    if (argc < 2) {
        fprintf(stderr, "usage: chat MODEL\n");
        return 2;
    }
    puts_to(&messages, "{\"role\": \"system\", \"content\": \"Be brief.\"}");
    bool ok = tern_model_open(&model, argv[1], NULL, &err) == TERN_OK &&
              tern_session_open(&session, model, NULL, &err) == TERN_OK;
    if (ok && !takes_tools(model)) tools = NULL;
    while (ok && fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        puts_to(&messages, ", {\"role\": \"user\", \"content\": ");
        put_quoted(&messages, line);
        puts_to(&messages, "}");
        bool called = true;
        for (int i = 0; ok && called && i < 5; i++) // results are answered, too
            ok = go_on(session, model, &messages, &called, &err) == TERN_OK;
        putchar('\n');
    }
    if (!ok) fprintf(stderr, "chat: %s\n", err.message);
    free(messages.s);
    tern_session_close(session);
    tern_model_close(model);
    return ok ? 0 : 1;
}

// A chat with a tool: the conversation is JSON that grows, the call is constrained by the tool's
// schema and taken apart as it arrives, its result goes back, and the model answers. The weights of
// the model are random: it calls because it must.
#include "program.h"

static const char chat_template[] =
    "{# \"parameters\": #}{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>";
static const char tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"find\", \"parameters\": {\"type\": "
    "\"object\", \"properties\": {\"what\": {\"enum\": [\"key\", \"lamp\"]}}, \"required\": "
    "[\"what\"], \"additionalProperties\": false}}}]";

typedef struct turn {
    tern_answer *answer;
    text said, name, arguments;
    int n_calls, n_ended;
} turn;

static void on_part(void *user, const tern_part *part) {
    turn *t = (turn *)user;
    switch (part->kind) {
    case TERN_PART_TEXT: text_put(&t->said, part->text, part->n_bytes); break;
    case TERN_PART_REASONING: break;
    case TERN_PART_CALL:
        t->n_calls++;
        text_put(&t->name, part->text, part->n_bytes);
        break;
    case TERN_PART_ARGUMENTS: text_put(&t->arguments, part->text, part->n_bytes); break;
    case TERN_PART_CALL_END: t->n_ended++; break;
    }
}

static bool on_text(void *user, const char *bytes, size_t n) {
    turn *t = (turn *)user;
    return tern_answer_put(t->answer, bytes, n, on_part, t, NULL) == TERN_OK;
}

static void put_string(text *out, const char *s) { text_put(out, s, strlen(s)); }

// The prompt of messages, a list without its brackets.
static void format(const tern_model *model, const text *messages, text *prompt) {
    tern_error err = ZEROS;
    text request = ZEROS;
    put_string(&request, "{\"messages\": [");
    put_string(&request, messages->bytes);
    put_string(&request, "], \"tools\": ");
    put_string(&request, tools);
    put_string(&request, "}");
    NEED(tern_chat_format_json(model, request.bytes, request.n, text_put, prompt, &err), err);
    text_free(&request);
}

static void answer(tern_session *session, tern_model *model, const text *messages, bool must_call,
                   turn *t) {
    tern_error err = ZEROS;
    tern_generate_params params = ZEROS;
    tern_sampling sampling = tern_sampling_default();
    text prompt = ZEROS;
    memset(t, 0, sizeof *t);
    format(model, messages, &prompt);
    NEED(tern_answer_open(&t->answer, model, prompt.bytes, tools, &err), err);
    if (must_call) {
        tern_grammar_desc desc = ZEROS;
        desc.kind = TERN_GRAMMAR_CALLS;
        desc.text = tools;
        desc.prompt = prompt.bytes;
        desc.one_call = desc.compact = true;
        NEED(tern_grammar_open(&params.grammar, model, &desc, &err), err);
    }
    sampling.seed = 3;
    params.sampling = &sampling;
    params.max_tokens = must_call ? 200 : 12;
    params.with_special = tern_answer_with_special(t->answer);
    params.on_text = on_text;
    params.user = t;
    NEED(tern_generate(session, prompt.bytes, &params, NULL, &err), err);
    NEED(tern_answer_end(t->answer, on_part, t, &err), err);
    tern_answer_close(t->answer);
    tern_grammar_close(params.grammar);
    text_free(&prompt);
}

static void turn_free(turn *t) {
    text_free(&t->said);
    text_free(&t->name);
    text_free(&t->arguments);
}

int main(int argc, char **argv) {
    tern_error err = ZEROS;
    tern_model *model = NULL;
    tern_model_desc desc = ZEROS;
    tern_session *session = NULL;
    text messages = ZEROS;
    turn call, end;
    if (argc < 2) return 2;
    desc.chat_template = chat_template;
    NEED(tern_model_open(&model, argv[1], &desc, &err), err);
    NEED(tern_session_open(&session, model, NULL, &err), err);
    put_string(&messages, "{\"role\": \"user\", \"content\": \"Where is it?\"}");
    answer(session, model, &messages, true, &call);
    CHECK(call.n_calls == 1 && call.n_ended == 1);
    CHECK(call.name.bytes && !strcmp(call.name.bytes, "find"));
    CHECK(call.arguments.bytes &&
          (strstr(call.arguments.bytes, "\"key\"") || strstr(call.arguments.bytes, "\"lamp\"")));
    put_string(&messages,
               ", {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": "
               "\"call_1\", \"type\": \"function\", \"function\": {\"name\": \"find\", "
               "\"arguments\": ");
    put_string(&messages, call.arguments.bytes ? call.arguments.bytes : "{}");
    put_string(&messages, "}}]}, {\"role\": \"tool\", \"tool_call_id\": \"call_1\", \"content\": "
                          "\"under the stairs\"}");
    size_t n_before = tern_session_n_tokens(session);
    answer(session, model, &messages, false, &end);
    CHECK(tern_session_n_tokens(session) > n_before);
    turn_free(&call);
    turn_free(&end);
    text_free(&messages);
    tern_session_close(session);
    tern_model_close(model);
    return n_failed != 0;
}

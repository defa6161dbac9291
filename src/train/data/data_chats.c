// Conversations in the shapes in which people keep them, as the request that the server takes.
//
// A line's members say its shape:
//
//     messages                           OpenAI's, with tools, calls, results and reasoning
//     conversations                      ShareGPT's: "from" and "value"; also with "role"
//     instruction, output [input]        Alpaca's; Dolly's have "context" and "response"
//     prompt, completion                 texts, or lists of messages
//     chosen, rejected [prompt]          the same; without a prompt, lists that begin alike
//
// What becomes of it is written here and rendered by input/template like any request, so that a
// model learns the text that it will be given.
#include <string.h>
#include "base/alloc.h"
#include "base/json/json_write.h"
#include "train/data/data.h"

#define MESSAGES_MAX 4096
#define ANY          "" // the answer of a shape that is learnt

typedef struct reader {
    tern_data_chat *chat;
    const tern_json_doc *doc;
    tern_json_writer w;
    const char *wrong;  // NULL: nothing
    const char *answer; // the member with the answer; NULL: the prompt is all there is
} reader;

static bool complain(reader *r, const char *why) {
    r->wrong = why;
    return false;
}

static tern_str text_at(const reader *r, const tern_json *object, const char *name) {
    return tern_json_str(tern_json_get(r->doc, object, name));
}

static bool is_list(const tern_json *value) { return tern_json_is(value, TERN_JSON_ARRAY); }

// ---- The plain text of a chat: for vocabularies and counts --------------------------------------

static void add_text(reader *r, tern_str text) {
    if (text.len == 0) return;
    tern_strbuf_append(&r->chat->text, text.ptr, text.len);
    tern_strbuf_putc(&r->chat->text, '\n');
}

// ---- Messages -----------------------------------------------------------------------------------

// A text, parts of text, or nothing.
static bool read_content(reader *r, const tern_json *content) {
    tern_str text = tern_json_str(content);
    add_text(r, text);
    if (text.ptr || !content || tern_json_is(content, TERN_JSON_NULL)) return true;
    if (!is_list(content)) return complain(r, "a message whose \"content\" is not a text");
    for (const tern_json *part = tern_json_first(r->doc, content); part;
         part = tern_json_next(r->doc, content, part)) {
        text =
            tern_json_is(part, TERN_JSON_STRING) ? tern_json_str(part) : text_at(r, part, "text");
        if (!text.ptr) return complain(r, "a part of \"content\" that is not a text");
        add_text(r, text);
    }
    return true;
}

// OpenAI's "weight" of an assistant's message, 0 or 1, and "train" of any.
static bool read_marks(reader *r, const tern_json *message) {
    const tern_json *weight = tern_json_get(r->doc, message, "weight");
    const tern_json *train = tern_json_get(r->doc, message, "train");
    double w = tern_json_number(weight, tern_json_is(weight, TERN_JSON_NULL) || !weight ? 1 : -1);
    if (w != 0 && w != 1) return complain(r, "a \"weight\" that is neither 0 nor 1");
    if (train && !tern_json_is(train, TERN_JSON_NULL) && !tern_json_is(train, TERN_JSON_BOOL))
        return complain(r, "a \"train\" that is neither true nor false");
    if (w == 1 && tern_json_bool(train, true)) return true;
    tern_data_chat *c = r->chat;
    if (tern_array_reserve(TERN_MEM_MISC, &c->left_out, &c->left_out_capacity, c->n_left_out, 1))
        c->request.failed = true;
    else
        c->left_out[c->n_left_out++] = (uint32_t)c->n_messages;
    return true;
}

// What a template reads of a message.
static void put_members(reader *r, const tern_json *message) {
    tern_json_open(&r->w, NULL, '{');
    for (const tern_json *key = tern_json_first(r->doc, message); key;
         key = tern_json_next(r->doc, message, key))
        if (!tern_str_is(tern_json_str(key), "weight") && !tern_str_is(tern_json_str(key), "train"))
            tern_json_put_member(&r->w, tern_json_str(key), r->doc,
                                 tern_json_value_of(r->doc, key));
    tern_json_close(&r->w, '}');
}

static bool count_message(reader *r) {
    if (++r->chat->n_messages > MESSAGES_MAX) return complain(r, "more than 4096 messages");
    return true;
}

// OpenAI's: all of it is passed on, but for the marks.
static bool put_message(reader *r, const tern_json *message) {
    tern_str role = text_at(r, message, "role");
    const tern_json *calls = tern_json_get(r->doc, message, "tool_calls");
    if (!role.len || memchr(role.ptr, 0, role.len))
        return complain(r, "a message without a text as \"role\"");
    const tern_json *content = tern_json_get(r->doc, message, "content");
    tern_str reasoning = text_at(r, message, "reasoning_content");
    if (!content && !calls && !reasoning.ptr) return complain(r, "a message without \"content\"");
    add_text(r, reasoning);
    if (!read_content(r, content)) return false;
    if (is_list(calls) && calls->n) {
        tern_json_writer w = {.out = &r->chat->text};
        tern_json_put_value(&w, NULL, r->doc, calls);
        tern_strbuf_putc(&r->chat->text, '\n');
    }
    if (!read_marks(r, message)) return false;
    put_members(r, message);
    return count_message(r);
}

static bool put_text(reader *r, const char *role, tern_str text) {
    add_text(r, text);
    tern_json_open(&r->w, NULL, '{');
    tern_json_put_text(&r->w, "role", role);
    tern_json_put_bytes(&r->w, "content", text.ptr ? text.ptr : "", text.len);
    tern_json_close(&r->w, '}');
    return count_message(r);
}

// Reads a text that is JSON of a type.
static bool parse_text(reader *r, tern_str text, tern_json_type type, tern_json_doc *out) {
    tern_status status = tern_json_parse(out, text.ptr, text.len, NULL);
    r->chat->request.failed |= status == TERN_ERR_MEMORY;
    return status == TERN_OK && tern_json_is(tern_json_root(out), type);
}

// A call that ShareGPT has as the text of a JSON object.
static bool put_call(reader *r, tern_str text) {
    tern_json_doc call = {0};
    bool ok = parse_text(r, text, TERN_JSON_OBJECT, &call);
    if (ok) {
        add_text(r, text);
        tern_json_open(&r->w, NULL, '{');
        tern_json_put_text(&r->w, "role", "assistant");
        tern_json_put_null(&r->w, "content");
        tern_json_open(&r->w, "tool_calls", '[');
        tern_json_put_value(&r->w, NULL, &call, tern_json_root(&call));
        tern_json_close(&r->w, ']');
        tern_json_close(&r->w, '}');
    }
    tern_json_free(&call);
    return ok ? count_message(r) : complain(r, "a \"function_call\" that is not a JSON object");
}

static bool put_sharegpt(reader *r, const tern_json *message) {
    static const struct {
        const char *from, *role; // NULL: a call
    } roles[] = {{"human", "user"},
                 {"user", "user"},
                 {"gpt", "assistant"},
                 {"assistant", "assistant"},
                 {"chatgpt", "assistant"},
                 {"model", "assistant"},
                 {"system", "system"},
                 {"function_call", NULL},
                 {"observation", "tool"},
                 {"tool", "tool"},
                 {"function_response", "tool"}};
    tern_str from = text_at(r, message, "from"), value = text_at(r, message, "value");
    if (!from.ptr) return put_message(r, message);
    if (!value.ptr) return complain(r, "a message without a text as \"value\"");
    if (!read_marks(r, message)) return false;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (tern_str_is(from, roles[i].from))
            return roles[i].role ? put_text(r, roles[i].role, value) : put_call(r, value);
    return complain(r, "\"from\" is none of human, gpt, system, function_call and observation");
}

typedef bool (*put_fn)(reader *r, const tern_json *message);

static bool put_list(reader *r, const tern_json *list, put_fn put) {
    for (const tern_json *at = tern_json_first(r->doc, list); at;
         at = tern_json_next(r->doc, list, at)) {
        if (!tern_json_is(at, TERN_JSON_OBJECT))
            return complain(r, "a message that is not an object");
        if (!put(r, at)) return false;
    }
    return true;
}

// ---- Shapes -------------------------------------------------------------------------------------

// Whether an answer is a conversation from its beginning on.
static bool is_whole(const reader *r, const tern_json *answer) {
    const tern_json *first = is_list(answer) ? tern_json_first(r->doc, answer) : NULL;
    return tern_json_is(first, TERN_JSON_OBJECT) &&
           !tern_str_is(text_at(r, first, "role"), "assistant");
}

// Files of preferences may have the chosen conversation once more, as "messages".
static tern_data_shape shape_of(const reader *r, const tern_json *root) {
    bool answers = text_at(r, root, "output").ptr || text_at(r, root, "response").ptr;
    const tern_json *chosen = tern_json_get(r->doc, root, "chosen");
    bool has_both = chosen && tern_json_get(r->doc, root, "rejected");
    bool has_chat = is_list(tern_json_get(r->doc, root, "messages")) ||
                    is_list(tern_json_get(r->doc, root, "conversations"));
    bool learns_any = r->answer && strcmp(r->answer, ANY) == 0;
    if (has_both && !(learns_any && has_chat && is_whole(r, chosen))) return TERN_SHAPE_PREFERENCE;
    if (is_list(tern_json_get(r->doc, root, "messages"))) return TERN_SHAPE_MESSAGES;
    if (is_list(tern_json_get(r->doc, root, "conversations"))) return TERN_SHAPE_SHAREGPT;
    if (text_at(r, root, "instruction").ptr && answers) return TERN_SHAPE_ALPACA;
    if (tern_json_get(r->doc, root, "prompt") && tern_json_get(r->doc, root, "completion"))
        return TERN_SHAPE_COMPLETION;
    return TERN_SHAPE_TEXT;
}

static bool put_alpaca(reader *r, const tern_json *root) {
    tern_str input = text_at(r, root, "input"), output = text_at(r, root, "output");
    tern_str instruction = text_at(r, root, "instruction");
    tern_strbuf question = {0};
    if (!input.ptr) input = text_at(r, root, "context");
    if (!output.ptr) output = text_at(r, root, "response");
    tern_strbuf_append(&question, instruction.ptr, instruction.len);
    if (input.len) {
        tern_strbuf_puts(&question, "\n\n");
        tern_strbuf_append(&question, input.ptr, input.len);
    }
    r->chat->text.failed |= question.failed;
    bool ok = put_text(r, "user", (tern_str){tern_strbuf_text(&question), question.len});
    tern_strbuf_free(&question);
    return ok && put_text(r, "assistant", output);
}

// One side of a completion.
static bool put_side(reader *r, const char *role, const tern_json *side) {
    tern_str text = tern_json_str(side);
    if (text.ptr) return put_text(r, role, text);
    if (is_list(side)) return put_list(r, side, put_message);
    return complain(r, "a prompt and its answers are texts or lists of messages");
}

static bool is_same_message(const reader *r, const tern_json *a, const tern_json *b) {
    tern_strbuf texts[2] = {{0}, {0}};
    tern_json_writer w[2] = {{.out = &texts[0]}, {.out = &texts[1]}};
    tern_json_put_value(&w[0], NULL, r->doc, a);
    tern_json_put_value(&w[1], NULL, r->doc, b);
    bool same = tern_str_eq((tern_str){tern_strbuf_text(&texts[0]), texts[0].len},
                            (tern_str){tern_strbuf_text(&texts[1]), texts[1].len});
    r->chat->request.failed |= texts[0].failed || texts[1].failed;
    tern_strbuf_free(&texts[0]);
    tern_strbuf_free(&texts[1]);
    return same;
}

// The messages with which both answers begin, if they have their prompt in them.
static bool put_common(reader *r, const tern_json *chosen, const tern_json *rejected) {
    const tern_json *a = tern_json_first(r->doc, chosen), *b = tern_json_first(r->doc, rejected);
    for (; a && b && is_same_message(r, a, b); a = tern_json_next(r->doc, chosen, a)) {
        if (!tern_json_next(r->doc, chosen, a) || !tern_json_next(r->doc, rejected, b)) break;
        if (!tern_json_is(a, TERN_JSON_OBJECT))
            return complain(r, "a message that is not an object");
        if (!put_message(r, a)) return false;
        b = tern_json_next(r->doc, rejected, b);
    }
    return r->chat->n_messages > 0 || complain(r, "answers without a prompt");
}

static bool put_answered(reader *r, const tern_json *root) {
    const tern_json *prompt = tern_json_get(r->doc, root, "prompt");
    const tern_json *answer = r->answer ? tern_json_get(r->doc, root, r->answer) : NULL;
    const tern_json *chosen = tern_json_get(r->doc, root, "chosen");
    const tern_json *rejected = tern_json_get(r->doc, root, "rejected");
    if (is_whole(r, chosen) && is_whole(r, rejected))
        prompt = NULL; // it is in both
    else if (!prompt)
        prompt = tern_json_get(r->doc, root, "messages");
    if (prompt) return put_side(r, "user", prompt) && (!answer || put_side(r, "assistant", answer));
    if (!is_list(chosen) || !is_list(rejected))
        return complain(r, "answers without a \"prompt\" that are not lists of messages");
    return answer ? put_list(r, answer, put_message) : put_common(r, chosen, rejected);
}

static bool put_conversation(reader *r, const tern_json *root) {
    tern_str system = text_at(r, root, "system");
    if (system.len && !put_text(r, "system", system)) return false;
    switch (r->chat->shape) {
    case TERN_SHAPE_MESSAGES:
        return put_list(r, tern_json_get(r->doc, root, "messages"), put_message);
    case TERN_SHAPE_SHAREGPT:
        return put_list(r, tern_json_get(r->doc, root, "conversations"), put_sharegpt);
    case TERN_SHAPE_ALPACA: return put_alpaca(r, root);
    default: return put_answered(r, root);
    }
}

// "tools": a list, or its text, as tables keep it.
static bool put_tools(reader *r, const tern_json *tools) {
    tern_str text = tern_json_str(tools);
    tern_json_doc own = {0};
    bool ok = true;
    if (!tools || tern_json_is(tools, TERN_JSON_NULL) || (text.ptr && !text.len)) return true;
    if (is_list(tools)) {
        tern_json_put_value(&r->w, "tools", r->doc, tools);
        return true;
    }
    ok = text.ptr && parse_text(r, text, TERN_JSON_ARRAY, &own);
    if (ok) tern_json_put_value(&r->w, "tools", &own, tern_json_root(&own));
    tern_json_free(&own);
    return ok || complain(r, "\"tools\" is not a list");
}

// The template's own switches, as requests have them.
static void put_switches(reader *r, const tern_json *switches) {
    static const char *const ours[] = {"messages", "tools", "add_generation_prompt"};
    if (!tern_json_is(switches, TERN_JSON_OBJECT)) return;
    for (const tern_json *key = tern_json_first(r->doc, switches); key;
         key = tern_json_next(r->doc, switches, key)) {
        bool is_ours = false;
        for (int i = 0; i < 3; i++) is_ours |= tern_str_is(tern_json_str(key), ours[i]);
        if (!is_ours)
            tern_json_put_member(&r->w, tern_json_str(key), r->doc,
                                 tern_json_value_of(r->doc, key));
    }
}

static tern_status read_chat(tern_data_chat *chat, const tern_json_doc *doc, const char *answer,
                             const char **wrong, tern_error *err) {
    reader r = {.chat = chat, .doc = doc, .w = {.out = &chat->request}, .answer = answer};
    const tern_json *root = tern_json_root(doc);
    tern_strbuf_clear(&chat->request);
    tern_strbuf_clear(&chat->text);
    chat->n_messages = chat->n_left_out = 0;
    chat->shape = shape_of(&r, root);
    if (answer && strcmp(answer, ANY) == 0)
        r.answer = chat->shape == TERN_SHAPE_PREFERENCE ? "chosen" : "completion";
    *wrong = NULL;
    if (chat->shape == TERN_SHAPE_TEXT) return TERN_OK;
    tern_json_open(&r.w, NULL, '{');
    tern_json_put_bool(&r.w, "add_generation_prompt", !answer);
    put_switches(&r, tern_json_get(doc, root, "chat_template_kwargs"));
    if (put_tools(&r, tern_json_get(doc, root, "tools"))) {
        tern_json_open(&r.w, "messages", '[');
        put_conversation(&r, root);
        tern_json_close(&r.w, ']');
    }
    tern_json_close(&r.w, '}');
    *wrong = r.wrong;
    if (!chat->request.failed && !chat->text.failed) return TERN_OK;
    return tern_fail_memory(err, chat->request.len + chat->text.len);
}

tern_status tern_data_chat_read(tern_data_chat *chat, const tern_json_doc *doc, const char **wrong,
                                tern_error *err) {
    return read_chat(chat, doc, ANY, wrong, err);
}

tern_status tern_data_chat_answer(tern_data_chat *chat, const tern_json_doc *doc,
                                  const char *answer, const char **wrong, tern_error *err) {
    return read_chat(chat, doc, answer, wrong, err);
}

void tern_data_chat_free(tern_data_chat *chat) {
    tern_strbuf_free(&chat->request);
    tern_strbuf_free(&chat->text);
    tern_free(chat->left_out);
}

const char *tern_data_shape_name(tern_data_shape shape) {
    static const char *const names[TERN_SHAPE_COUNT] = {
        "plain text", "OpenAI messages",       "ShareGPT",
        "Alpaca",     "prompt and completion", "preferences"};
    return (unsigned)shape < TERN_SHAPE_COUNT ? names[shape] : "unknown";
}

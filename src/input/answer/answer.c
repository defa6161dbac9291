// Answers, taken apart while they come: text, reasoning, calls of tools. See answer.h.
#include "input/answer/answer.h"

#include <string.h>
#include "base/alloc.h"

// ---- What is passed on --------------------------------------------------------------------------

static void pass(tern_answer *a, tern_part_kind kind, const char *text, size_t n) {
    tern_part part = {.kind = kind, .call = a->n_calls, .text = text, .n_bytes = n};
    a->on_part(a->user, &part);
}

static void pass_text(tern_answer *a, tern_part_kind kind, const char *text, size_t n) {
    if (!n) return;
    a->has_begun = true, a->skips_space = false;
    pass(a, kind, text, n);
}

static void flush_arguments(tern_answer *a) {
    if (!a->is_open || !a->arguments.len) return;
    pass(a, TERN_PART_ARGUMENTS, a->arguments.ptr, a->arguments.len);
    tern_strbuf_clear(&a->arguments);
}

static const tern_json *find_function(const tern_answer *a, const char *name) {
    const tern_json *list = tern_json_root(&a->tools);
    for (const tern_json *tool = tern_json_first(&a->tools, list); tool;
         tool = tern_json_next(&a->tools, list, tool)) {
        const tern_json *function = tern_json_get(&a->tools, tool, "function");
        if (!function) function = tool; // not wrapped
        if (tern_str_is(tern_json_str(tern_json_get(&a->tools, function, "name")), name))
            return function;
    }
    return NULL;
}

bool tern_call_begin(tern_answer *a) {
    a->call.function = find_function(a, tern_strbuf_text(&a->name));
    if (!a->name.len || (a->style.is_bare && !a->call.function)) return false;
    a->has_calls = a->is_open = true;
    tern_strbuf_clear(&a->raw);
    pass(a, TERN_PART_CALL, a->name.ptr, a->name.len);
    return true;
}

void tern_call_finish(tern_answer *a) {
    flush_arguments(a);
    pass(a, TERN_PART_CALL_END, "", 0);
    a->is_open = false;
    a->n_calls++;
}

// ---- Marks --------------------------------------------------------------------------------------

typedef enum match { MATCH_NO, MATCH_CUT, MATCH_WHOLE } match;

// Whether a mark begins the text; a text that ends within the mark may go on with it.
static match match_mark(const tern_answer *a, const char *mark, const char *text, size_t n) {
    size_t len = mark ? strlen(mark) : 0;
    if (!len || memcmp(text, mark, n < len ? n : len)) return MATCH_NO;
    if (n >= len) return MATCH_WHOLE;
    return a->has_ended ? MATCH_NO : MATCH_CUT;
}

typedef struct found {
    size_t at;        // where the mark begins, or may begin; the text's length: nowhere
    const char *mark; // NULL: not whole
} found;

// first: a mark that counts only where nothing but spaces stands before it; any: one that may stand
// anywhere. Either may be NULL.
static found find_mark(const tern_answer *a, const char *first, const char *any, const char *text,
                       size_t n) {
    for (size_t i = 0; i < n; i++) {
        match m = match_mark(a, any, text + i, n - i);
        if (m != MATCH_NO) return (found){i, m == MATCH_WHOLE ? any : NULL};
        m = match_mark(a, first, text + i, n - i);
        if (m != MATCH_NO) return (found){i, m == MATCH_WHOLE ? first : NULL};
        if (!tern_call_is_space(text[i])) first = NULL;
        if (!first && !any) break;
    }
    return (found){n, NULL};
}

// Spaces before a mark belong to it and are held back until something else comes; but not
// thousands.
enum { HELD_SPACES_MAX = 256 };

// Passes on text up to a mark that was found, and returns how many bytes it dealt with.
static size_t pass_until(tern_answer *a, tern_part_kind kind, const char *text, size_t n, found f) {
    size_t begin = 0, end = f.at;
    while (a->skips_space && begin < end && tern_call_is_space(text[begin])) begin++;
    while (end > begin && tern_call_is_space(text[end - 1])) end--;
    if (!f.mark && n - end > HELD_SPACES_MAX) end = f.at;
    pass_text(a, kind, text + begin, end - begin);
    if (f.mark) return f.at + strlen(f.mark);
    return end > begin ? end : begin;
}

static void enter_call(tern_answer *a, const char *mark) {
    a->at = ANSWER_CALL;
    a->call = (call_state){0};
    a->rests = true, a->has_calls = false;
    tern_strbuf_clear(&a->raw);
    tern_strbuf_puts(&a->raw, mark);
    tern_strbuf_clear(&a->arguments);
}

static void leave(tern_answer *a) {
    a->at = ANSWER_TEXT;
    a->skips_space = true;
}

// ---- One step in each state; each returns how many bytes it dealt with, 0: it waits for more
// -----

static size_t step_text(tern_answer *a, const char *text, size_t n) {
    if (a->calls && a->style.is_bare && !a->has_begun) {
        size_t i = 0;
        while (i < n && tern_call_is_space(text[i])) i++;
        if (i < n && text[i] == '{') {
            enter_call(a, "");
            tern_strbuf_append(&a->raw, text, i);
            return i;
        }
    }
    // Reasoning comes before the answer: a tag in the middle of a text is spoken of.
    bool may_think = !a->has_begun || a->skips_space;
    const char *think = may_think ? a->style.think_open : NULL;
    const char *call = a->calls ? a->style.open : NULL;
    if (!think && !call) {
        pass_text(a, TERN_PART_TEXT, text, n);
        return n;
    }
    found f = find_mark(a, think, call, text, n);
    size_t done = pass_until(a, TERN_PART_TEXT, text, n, f);
    if (f.mark && f.mark == call) enter_call(a, f.mark);
    if (f.mark && f.mark == think) a->at = ANSWER_REASONING, a->skips_space = true;
    return done;
}

static size_t step_reasoning(tern_answer *a, const char *text, size_t n) {
    found f = find_mark(a, NULL, a->style.think_close, text, n);
    size_t done = pass_until(a, TERN_PART_REASONING, text, n, f);
    if (f.mark) leave(a);
    return done;
}

// What began like a call is none: its bytes are text.
static void give_up_call(tern_answer *a) {
    a->at = ANSWER_TEXT, a->skips_space = false;
    if (a->has_calls) {
        flush_arguments(a);
        a->n_calls += a->is_open; // the next one is another
        a->is_open = false;       // what came of it stands; its rest up to the mark is lost
        a->at = a->style.close ? ANSWER_SKIP : ANSWER_TEXT;
        return;
    }
    pass_text(a, TERN_PART_TEXT, a->raw.ptr, a->raw.len);
    tern_strbuf_clear(&a->raw);
}

static call_fed feed(tern_answer *a, char c) {
    switch (a->style.body) {
    case TERN_CALLS_TAGS: return tern_call_feed_tags(a, c);
    case TERN_CALLS_NAMED: return tern_call_feed_named(a, c);
    case TERN_CALLS_PYTHON:
    case TERN_CALLS_BRACED: return tern_call_feed_literal(a, c);
    default: return tern_call_feed_json(a, c);
    }
}

// Between calls: whether the body ends here, and with how many bytes. Without a mark for the end it
// ends when something comes that no further call begins with.
static bool ends_body(tern_answer *a, const char *text, size_t n, size_t *n_mark, bool *waits) {
    match m = match_mark(a, a->style.close, text, n);
    *waits = m == MATCH_CUT;
    *n_mark = m == MATCH_WHOLE ? strlen(a->style.close) : 0;
    if (m == MATCH_WHOLE && !a->has_calls) {
        tern_strbuf_puts(&a->raw, a->style.close);
        return true;
    }
    bool goes_on = a->call.in_list || tern_call_is_space(*text) || strchr(",;{", *text);
    return m == MATCH_WHOLE || (!a->style.close && a->has_calls && !goes_on);
}

static size_t step_call(tern_answer *a, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        size_t n_mark = 0;
        bool waits = false;
        if (a->rests && ends_body(a, text + i, n - i, &n_mark, &waits)) {
            if (a->has_calls)
                leave(a);
            else
                give_up_call(a);
            return i + n_mark;
        }
        if (waits) return i;
        if (!a->has_calls) tern_strbuf_putc(&a->raw, text[i]);
        call_fed fed = feed(a, text[i]);
        a->rests = fed == CALL_REST;
        if (fed == CALL_BAD) return give_up_call(a), i + 1;
    }
    return n;
}

static size_t step_skip(tern_answer *a, const char *text, size_t n) {
    found f = find_mark(a, NULL, a->style.close, text, n);
    if (!f.mark) return f.at;
    leave(a);
    return f.at + strlen(f.mark);
}

static size_t step(tern_answer *a, const char *text, size_t n) {
    switch (a->at) {
    case ANSWER_TEXT: return step_text(a, text, n);
    case ANSWER_REASONING: return step_reasoning(a, text, n);
    case ANSWER_CALL: return step_call(a, text, n);
    default: return step_skip(a, text, n);
    }
}

static void take(tern_answer *a) {
    size_t at = 0;
    for (bool moves = true; moves && at < a->in.len;) {
        answer_at before = a->at;
        size_t done = step(a, a->in.ptr + at, a->in.len - at);
        moves = done || a->at != before;
        at += done;
    }
    if (!at) return;
    memmove(a->in.ptr, a->in.ptr + at, a->in.len - at + 1);
    a->in.len -= at;
}

static tern_status ended(tern_answer *a, tern_error *err) {
    const tern_strbuf *all[] = {&a->in, &a->raw, &a->name, &a->arguments, &a->word};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]->failed) return tern_fail_memory(err, all[i]->len);
    return TERN_OK;
}

// ---- The door -----------------------------------------------------------------------------------

tern_status tern_answer_put(tern_answer *a, const char *text, size_t n, tern_part_fn on_part,
                            void *user, tern_error *err) {
    if (!a || (!text && n) || !on_part)
        return tern_fail(err, TERN_ERR_ARGUMENT, "tern_answer_put: NULL argument");
    if (a->has_ended) return tern_fail(err, TERN_ERR_ARGUMENT, "the answer has ended");
    a->on_part = on_part, a->user = user;
    tern_strbuf_append(&a->in, text, n);
    if (!a->in.failed) take(a);
    flush_arguments(a);
    return ended(a, err);
}

tern_status tern_answer_end(tern_answer *a, tern_part_fn on_part, void *user, tern_error *err) {
    if (!a || !on_part) return tern_fail(err, TERN_ERR_ARGUMENT, "tern_answer_end: NULL argument");
    if (a->has_ended) return tern_fail(err, TERN_ERR_ARGUMENT, "the answer has ended");
    a->has_ended = true, a->on_part = on_part, a->user = user;
    if (!a->in.failed) take(a); // what looked like a beginning of a mark is none
    if (a->at == ANSWER_CALL && !a->has_calls)
        give_up_call(a);
    else if (a->at == ANSWER_CALL)
        flush_arguments(a);
    // Spaces at the end belong to the text, unless they stand after reasoning or a call.
    if (a->at == ANSWER_TEXT && !a->skips_space) pass_text(a, TERN_PART_TEXT, a->in.ptr, a->in.len);
    return ended(a, err);
}

bool tern_answer_with_special(const tern_answer *a) {
    return a && a->with_special;
}

// The longest beginning of a mark that the vocabulary has as a token: whether it is one of those
// that do not show in texts.
static bool is_hidden(const tern_tokenizer *t, const char *mark) {
    for (size_t n = mark ? strlen(mark) : 0; n > 1; n--) {
        int32_t id = tern_tokenizer_find(t, (tern_str){mark, n});
        if (id >= 0) return tern_tokenizer_is_control(t, id);
    }
    return false;
}

bool tern_answer_follows(const char *prompt, const char *mark) {
    size_t n = prompt ? strlen(prompt) : 0, len = mark ? strlen(mark) : 0;
    while (len && tern_call_is_space(mark[len - 1])) len--;
    while (n && tern_call_is_space(prompt[n - 1])) n--;
    return len && n >= len && !memcmp(prompt + n - len, mark, len);
}

static tern_status read_tools(tern_answer *a, const char *json, tern_error *err) {
    size_t n = strlen(json);
    a->tools_text = tern_alloc(TERN_MEM_MISC, n + 1);
    if (!a->tools_text) return tern_fail_memory(err, n + 1);
    memcpy(a->tools_text, json, n + 1);
    tern_status status = tern_json_parse(&a->tools, a->tools_text, n, err);
    if (status != TERN_OK) return tern_fail_prefix(err, status, "the tools");
    if (!tern_json_is(tern_json_root(&a->tools), TERN_JSON_ARRAY))
        return tern_fail(err, TERN_ERR_ARGUMENT, "the tools must be a JSON array");
    return TERN_OK;
}

tern_status tern_answer_create(tern_answer **out, const tern_answer_style *style,
                               const tern_tokenizer *tokenizer, const char *prompt,
                               const char *tools, tern_error *err) {
    *out = NULL;
    tern_answer *a = tern_alloc(TERN_MEM_MISC, sizeof *a);
    if (!a) return tern_fail_memory(err, sizeof *a);
    *a = (tern_answer){.style = *style, .calls = tools && style->body != TERN_CALLS_NONE};
    tern_status status = tools ? read_tools(a, tools, err) : TERN_OK;
    if (status != TERN_OK) return tern_answer_close(a), status;
    const char *marks[] = {style->think_open, style->think_close, a->calls ? style->open : NULL,
                           a->calls ? style->close : NULL, a->calls ? style->quote : NULL};
    for (size_t i = 0; tokenizer && i < sizeof marks / sizeof *marks; i++)
        a->with_special |= is_hidden(tokenizer, marks[i]);
    if (tern_answer_follows(prompt, style->think_open))
        a->at = ANSWER_REASONING, a->skips_space = true;
    *out = a;
    return TERN_OK;
}

void tern_answer_close(tern_answer *a) {
    if (!a) return;
    tern_strbuf *all[] = {&a->in, &a->raw, &a->name, &a->arguments, &a->word};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) tern_strbuf_free(all[i]);
    tern_json_free(&a->tools);
    tern_free(a->tools_text);
    tern_free(a);
}

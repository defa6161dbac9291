// Parses answers while they are generated: text, reasoning, tool calls. See answer.h.
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
    for (size_t i = 0; kind == TERN_PART_TEXT && i < n; i++) tern_prose_put(&a->prose, text[i]);
    pass(a, kind, text, n);
}

// Passes on the arguments as far as they can be closed.
static void flush_arguments(tern_answer *a) {
    tern_strbuf *all = &a->arguments;
    if (!a->is_open || !all->len || all->failed) return;
    tern_call_scan(&a->json, all->ptr, all->len);
    size_t n = a->json.safe;
    if (!n) return;
    pass(a, TERN_PART_ARGUMENTS, all->ptr, n);
    memmove(all->ptr, all->ptr + n, all->len - n + 1);
    all->len -= n;
    a->json.scanned -= n, a->json.safe = 0;
}

// Ends a call that is not complete: its arguments so far become JSON.
static void close_call(tern_answer *a) {
    tern_strbuf end = {0};
    if (!a->is_open) return;
    if (a->style.body == TERN_CALLS_TAGS) tern_call_cut_tags(a);
    flush_arguments(a);
    tern_call_close(&a->json, &end);
    if (end.len) pass(a, TERN_PART_ARGUMENTS, end.ptr, end.len);
    a->arguments.failed |= end.failed;
    tern_strbuf_free(&end);
    tern_strbuf_clear(&a->arguments);
    a->n_calls++; // the next call is a new one
    a->is_open = false;
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
    if (!a->name.len || ((a->style.is_bare || a->is_unmarked) && !a->call.function)) return false;
    a->has_calls = a->is_open = true;
    tern_strbuf_clear(&a->raw);
    tern_call_free(&a->json);
    a->json = (call_json){0};
    pass(a, TERN_PART_CALL, a->name.ptr, a->name.len);
    return true;
}

bool tern_call_is_known(tern_answer *a) {
    return a->name.len && find_function(a, tern_strbuf_text(&a->name));
}

void tern_call_finish(tern_answer *a) {
    if (!a->json.has_begun && !a->arguments.len) tern_strbuf_puts(&a->arguments, "{}");
    flush_arguments(a);
    if (!tern_call_is_complete(&a->json)) {
        close_call(a);
        return;
    }
    tern_strbuf_clear(&a->arguments);
    pass(a, TERN_PART_CALL_END, "", 0);
    a->is_open = false;
    a->n_calls++;
}

// ---- Marks --------------------------------------------------------------------------------------

typedef enum match { MATCH_NO, MATCH_CUT, MATCH_WHOLE } match;

// Whether the text begins with a mark. CUT: the text ends within the mark.
static match match_mark(const tern_answer *a, const char *mark, const char *text, size_t n) {
    size_t len = mark ? strlen(mark) : 0;
    if (!len || memcmp(text, mark, n < len ? n : len)) return MATCH_NO;
    if (n >= len) return MATCH_WHOLE;
    return a->has_ended ? MATCH_NO : MATCH_CUT;
}

typedef struct found {
    size_t at;        // where the mark begins, or may begin; the text's length: nowhere
    const char *mark; // NULL: no mark, or not whole yet
    bool begins_call; // without a mark
} found;

static const char bare_tag[] = "<function="; // Qwen3-Coder leaves out the mark before it

// Whether a call without its mark may begin here: a tag, or an object at the beginning of a line.
// Only later bytes show whether it is a call.
static match match_unmarked(const tern_answer *a, const answer_prose *p, const char *text,
                            size_t n) {
    if (a->style.body == TERN_CALLS_TAGS) return match_mark(a, bare_tag, text, n);
    bool begins = a->style.body == TERN_CALLS_JSON && !a->style.is_bare && *text == '{';
    return begins && tern_prose_at_line(p) ? MATCH_WHOLE : MATCH_NO;
}

// Finds the mark that ends reasoning.
static found find_mark(const tern_answer *a, const char *mark, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        match m = match_mark(a, mark, text + i, n - i);
        if (m != MATCH_NO) return (found){i, m == MATCH_WHOLE ? mark : NULL, false};
    }
    return (found){n, NULL, false};
}

// Finds a call in text; or reasoning, if only spaces come before it.
static found find_in_text(const tern_answer *a, const char *think, const char *call,
                          const char *text, size_t n) {
    answer_prose p = a->prose;
    for (size_t i = 0; i < n; i++) {
        if (tern_prose_takes_marks(&p)) {
            match m = match_mark(a, call, text + i, n - i);
            if (m != MATCH_NO) return (found){i, m == MATCH_WHOLE ? call : NULL, false};
            m = match_mark(a, think, text + i, n - i);
            if (m != MATCH_NO) return (found){i, m == MATCH_WHOLE ? think : NULL, false};
            m = call ? match_unmarked(a, &p, text + i, n - i) : MATCH_NO;
            if (m != MATCH_NO) return (found){i, NULL, m == MATCH_WHOLE};
        }
        if (!tern_call_is_space(text[i])) think = NULL;
        if (!think && !call) break;
        tern_prose_put(&p, text[i]);
    }
    return (found){n, NULL, false};
}

// Spaces before a mark are part of it, and held back until other bytes come; of more than this
// many, the first are text.
enum { HELD_SPACES_MAX = 256 };

// Passes on text up to a found mark, or to the spaces before it; returns how many bytes were used.
static size_t pass_until(tern_answer *a, tern_part_kind kind, const char *text, found f) {
    size_t begin = 0, end = f.at;
    while (a->skips_space && begin < end && tern_call_is_space(text[begin]))
        tern_prose_put(&a->prose, text[begin++]); // a line may begin after them
    while (end > begin && f.at - end < HELD_SPACES_MAX && tern_call_is_space(text[end - 1])) end--;
    pass_text(a, kind, text + begin, end - begin);
    return end > begin ? end : begin;
}

// Begins a call. text: spaces and the mark, which the reader does not get.
static void enter_call(tern_answer *a, const char *text, size_t n, bool is_unmarked) {
    a->at = ANSWER_CALL;
    a->call = (call_state){0};
    a->rests = true, a->has_calls = false;
    a->is_unmarked = is_unmarked;
    tern_strbuf_clear(&a->raw);
    tern_strbuf_append(&a->raw, text, n);
    a->n_mark = is_unmarked ? n + 1 : n;
    tern_strbuf_clear(&a->arguments);
}

static void leave(tern_answer *a) {
    a->at = ANSWER_TEXT;
    a->skips_space = true;
    a->prose = (answer_prose){0}; // new text begins
}

// ---- One step in each state; each returns how many bytes it dealt with, 0: it waits for more ---

static size_t step_text(tern_answer *a, const char *text, size_t n) {
    if (a->calls && a->style.is_bare && !a->has_begun) {
        size_t i = 0, begin = 0;
        while (i < n && tern_call_is_space(text[i])) i++;
        if (i < n && text[i] == '{') {
            while (a->skips_space && begin < i) tern_prose_put(&a->prose, text[begin++]);
            enter_call(a, text + begin, i - begin, false);
            a->n_mark++;
            return i;
        }
    }
    // Reasoning comes before the answer: a tag in the middle of text is only mentioned.
    bool may_think = !a->has_begun || a->skips_space;
    const char *think = may_think ? a->style.think_open : NULL;
    const char *call = a->calls ? a->style.open : NULL;
    if (!think && !call) {
        pass_text(a, TERN_PART_TEXT, text, n);
        return n;
    }
    found f = find_in_text(a, think, call, text, n);
    size_t done = pass_until(a, TERN_PART_TEXT, text, f);
    size_t n_mark = f.mark ? strlen(f.mark) : 0;
    if (f.begins_call || (f.mark && f.mark == call)) {
        enter_call(a, text + done, f.at + n_mark - done, f.begins_call);
        return f.at + n_mark;
    }
    if (!f.mark) return done;
    a->at = ANSWER_REASONING, a->skips_space = true;
    return f.at + n_mark;
}

static size_t step_reasoning(tern_answer *a, const char *text, size_t n) {
    found f = find_mark(a, a->style.think_close, text, n);
    size_t done = pass_until(a, TERN_PART_REASONING, text, f);
    if (!f.mark) return done;
    leave(a);
    return f.at + strlen(f.mark);
}

// At most this many bytes are read again; if there are more, all are text.
enum { AGAIN_MAX = 4096 };

// The body is not a call: its mark is text, and the bytes after it are read again. After calls all
// is text up to the body's end.
static void give_up_call(tern_answer *a) {
    tern_strbuf *raw = &a->raw;
    bool was_open = a->is_open;
    size_t n = raw->len < a->n_mark || raw->len > AGAIN_MAX ? raw->len : a->n_mark;
    close_call(a);
    a->at = ANSWER_TEXT, a->skips_space = false;
    if (a->has_calls) {
        size_t begin = 0;
        while (begin < raw->len && tern_call_is_space(raw->ptr[begin])) begin++;
        a->skips_space = true;
        pass_text(a, TERN_PART_TEXT, tern_strbuf_text(raw) + begin, raw->len - begin);
        if (a->style.close && !a->is_unmarked) a->at = ANSWER_SKIP, a->skips_rest = was_open;
    } else {
        pass_text(a, TERN_PART_TEXT, tern_strbuf_text(raw), n);
        tern_strbuf_clear(&a->again);
        tern_strbuf_append(&a->again, tern_strbuf_text(raw) + n, raw->len - n);
    }
    tern_strbuf_clear(raw);
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

// Whether these bytes may begin more calls, for bodies without a closing mark.
static match goes_on(const tern_answer *a, const char *text, size_t n) {
    if (a->call.in_list || tern_call_is_space(*text)) return MATCH_WHOLE;
    if (a->is_unmarked && a->style.body == TERN_CALLS_TAGS) return match_mark(a, bare_tag, text, n);
    return *text == '{' || (!a->is_unmarked && (*text == ',' || *text == ';')) ? MATCH_WHOLE
                                                                               : MATCH_NO;
}

// Between calls: whether the body ends here, and with how many bytes. Without a closing mark it
// ends when bytes come that cannot begin another call.
static bool ends_body(tern_answer *a, const char *text, size_t n, size_t *n_mark, bool *waits) {
    match m = match_mark(a, a->style.close, text, n);
    *n_mark = m == MATCH_WHOLE ? strlen(a->style.close) : 0;
    *waits = m == MATCH_CUT;
    if (m == MATCH_WHOLE && !a->has_calls) tern_strbuf_puts(&a->raw, a->style.close);
    if (m != MATCH_NO || !a->has_calls || (a->style.close && !a->is_unmarked))
        return m == MATCH_WHOLE;
    m = goes_on(a, text, n);
    *waits = m == MATCH_CUT;
    return m == MATCH_NO;
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
        if (!a->is_open) tern_strbuf_putc(&a->raw, text[i]);
        call_fed fed = feed(a, text[i]);
        a->rests = fed == CALL_REST;
        bool is_long = a->is_unmarked && !a->is_open && a->raw.len > AGAIN_MAX;
        if (fed == CALL_REST && a->has_calls && !a->is_open && !tern_call_is_space(text[i]))
            tern_strbuf_clear(&a->raw);
        if (fed == CALL_LAST) leave(a);
        if (fed == CALL_BAD || is_long) give_up_call(a);
        if (a->at != ANSWER_CALL) return i + 1;
    }
    return n;
}

// After an invalid call: the rest of the body is dropped if the call's name has been passed on
// already, else it is text.
static size_t step_skip(tern_answer *a, const char *text, size_t n) {
    found f = find_mark(a, a->style.close, text, n);
    size_t done = a->skips_rest ? f.at : pass_until(a, TERN_PART_TEXT, text, f);
    if (!f.mark) return done;
    leave(a);
    a->skips_space = a->skips_rest;
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

// Replaces the bytes used so far by those to be read again.
static void look_again(tern_answer *a, size_t n_done) {
    tern_strbuf_append(&a->again, tern_strbuf_text(&a->in) + n_done, a->in.len - n_done);
    tern_strbuf_clear(&a->in);
    tern_strbuf_append(&a->in, tern_strbuf_text(&a->again), a->again.len);
    a->in.failed |= a->again.failed;
    tern_strbuf_clear(&a->again);
}

static void take(tern_answer *a) {
    size_t at = 0;
    for (bool moves = true; moves && at < a->in.len;) {
        answer_at before = a->at;
        size_t done = step(a, a->in.ptr + at, a->in.len - at);
        moves = done || a->at != before;
        at += done;
        if (a->again.len) look_again(a, at), at = 0, moves = true;
    }
    if (!at) return;
    memmove(a->in.ptr, a->in.ptr + at, a->in.len - at + 1);
    a->in.len -= at;
}

static tern_status ended(tern_answer *a, tern_error *err) {
    const tern_strbuf *all[] = {&a->in,   &a->raw,   &a->name,        &a->arguments,
                                &a->word, &a->again, &a->json.closers};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]->failed) return tern_fail_memory(err, all[i]->len);
    return TERN_OK;
}

// ---- The door -----------------------------------------------------------------------------------

static tern_status end_call(tern_answer *a, tern_error *err) {
    tern_status status = ended(a, err);
    if (tern_use_end(&a->use)) tern_answer_close(a);
    return status;
}

tern_status tern_answer_put(tern_answer *a, const char *text, size_t n, tern_part_fn on_part,
                            void *user, tern_error *err) {
    tern_clear(err);
    if (!a || (!text && n) || !on_part)
        return tern_fail(err, TERN_ERR_ARGUMENT, "tern_answer_put: NULL argument");
    if (a->has_ended) return tern_fail(err, TERN_ERR_ARGUMENT, "the answer has ended");
    TERN_TRY(tern_use_begin(&a->use, "the answer", err));
    a->on_part = on_part, a->user = user;
    tern_strbuf_append(&a->in, text, n);
    if (!a->in.failed) take(a);
    flush_arguments(a);
    return end_call(a, err);
}

tern_status tern_answer_end(tern_answer *a, tern_part_fn on_part, void *user, tern_error *err) {
    tern_clear(err);
    if (!a || !on_part) return tern_fail(err, TERN_ERR_ARGUMENT, "tern_answer_end: NULL argument");
    if (a->has_ended) return tern_fail(err, TERN_ERR_ARGUMENT, "the answer has ended");
    TERN_TRY(tern_use_begin(&a->use, "the answer", err));
    a->has_ended = true, a->on_part = on_part, a->user = user;
    if (!a->in.failed) take(a); // what looked like the beginning of a mark is text
    while (a->at == ANSWER_CALL && !a->is_open && !a->in.failed) {
        give_up_call(a);
        look_again(a, a->in.len);
        if (!a->in.failed) take(a);
    }
    close_call(a);
    // Spaces at the end belong to the text, unless they come after reasoning or a call.
    if (a->at == ANSWER_TEXT && !a->skips_space) pass_text(a, TERN_PART_TEXT, a->in.ptr, a->in.len);
    return end_call(a, err);
}

bool tern_answer_with_special(const tern_answer *a) { return a && a->with_special; }

// Whether a mark does not show in texts: the longest prefix of it that is a token is a control
// token.
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
    if (!a || tern_use_waits(&a->use)) return;
    tern_strbuf *all[] = {&a->in,   &a->raw,   &a->name,        &a->arguments,
                          &a->word, &a->again, &a->json.closers};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) tern_strbuf_free(all[i]);
    tern_json_free(&a->tools);
    tern_free(a->tools_text);
    if (a->let_go) a->let_go(a->owner);
    tern_free(a);
}

void tern_answer_own(tern_answer *a, const void *owner, void (*let_go)(const void *owner)) {
    a->owner = owner;
    a->let_go = let_go;
}

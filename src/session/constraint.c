// Grammars in generation: where an answer stands in its grammar, which tokens may come, and which
// must.
//
// TEXT THAT MUST COME is appended without asking the model. Its tokens are those that the tokenizer
// makes of it, since that is how the model has seen such text. The last of them is left to the
// model: what follows it might have become one token with it.
#include <string.h>
#include "base/alloc.h"
#include "session/session.h"

#define FORCED_BYTES_MAX 256

// In a group masks are found between steps, in which other answers go on: there an answer whose
// grammar takes much ends by name. Steps of work, some 15 to 50 a microsecond, that one mask or
// token may take; that all of an answer may, not counting what most take; and what most take. Of a
// million masks of MaskBench none takes 200,000.
#define WORK_MAX   2000000
#define ANSWER_MAX 20000000
#define WORK_USUAL 200000

// ---- Grammars -----------------------------------------------------------------------------------

struct tern_grammar {
    atomic_size_t n_users; // who opened it, and the answers that it constrains
    tern_model *model;
    tern_mutex lock; // of the automaton
    tern_automaton *automaton;
    // Of calls that are optional: answers are bound from their opening mark on.
    bool waits, thinks; // thinks: an answer begins within reasoning
    bool is_bare;       // or where an answer begins as a call does
    tern_strbuf marks;
    tern_str open, think_open, think_close; // in marks
};

// ---- Marks --------------------------------------------------------------------------------------

// Marks as grammars know them, put together in one place: what points to them is set at the end.
typedef struct mark_list {
    const tern_tokenizer *tokenizer;
    tern_strbuf *text;
    tern_str *marks[8];
    size_t n;
} mark_list;

// Tokens that do not show in texts have a sign before their names.
static void put_mark(mark_list *l, const char *mark, tern_str *to) {
    const size_t from = l->text->len;
    for (size_t n; mark && *mark; mark += n) {
        for (n = strlen(mark); n > 1; n--) {
            int32_t id = tern_tokenizer_find(l->tokenizer, (tern_str){mark, n});
            if (id < 0 || !tern_tokenizer_is_control(l->tokenizer, id)) continue;
            tern_strbuf_putc(l->text, (char)TERN_CONTROL_SIGN);
            break;
        }
        tern_strbuf_append(l->text, mark, n);
    }
    to->len = l->text->len - from;
    l->marks[l->n++] = to;
}

static void set_marks(const mark_list *l) {
    const char *at = tern_strbuf_text(l->text);
    for (size_t i = 0; i < l->n; at += l->marks[i++]->len) l->marks[i]->ptr = at;
}

static void read_marks(tern_grammar *g, const tern_grammar_desc *d, const tern_answer_style *style,
                       tern_grammar_source *source, tern_call_form *form) {
    mark_list l = {.tokenizer = g->model->tokenizer, .text = &g->marks};
    const bool thinks = tern_answer_follows(d->prompt, style->think_open);
    const bool may_think = style->think_close && d->prompt && !d->is_optional &&
                           !tern_answer_follows(d->prompt, style->think_close);
    if (may_think) put_mark(&l, style->think_close, &source->think_close);
    if (may_think && !thinks) put_mark(&l, style->think_open, &source->think_open);
    if (d->kind == TERN_GRAMMAR_CALLS) {
        put_mark(&l, style->open, &form->open);
        put_mark(&l, style->close, &form->close);
        put_mark(&l, "[ARGS]", &form->args);
        put_mark(&l, style->quote, &form->quote);
    }
    if (d->is_optional) {
        put_mark(&l, style->think_open, &g->think_open);
        put_mark(&l, style->think_close, &g->think_close);
    }
    set_marks(&l);
    g->waits = d->is_optional && d->kind == TERN_GRAMMAR_CALLS;
    g->thinks = thinks;
    g->open = form->open;
    form->body = style->body;
    form->is_list = style->is_list, form->is_bare = style->is_bare;
    g->is_bare = g->waits && style->is_bare;
    form->is_open = g->waits;
    if (style->quote) form->forbidden = (tern_str){style->quote, strlen(style->quote)};
    if (d->tool) form->only = (tern_str){d->tool, strlen(d->tool)};
    form->one_call = d->one_call;
}

// What a grammar is about; its choices are put into `choices`.
static tern_grammar_source source_of(const tern_grammar_desc *d, tern_str *choices) {
    tern_grammar_source s = {.kind = d->kind,
                             .bytes_max = d->n_bytes_max,
                             .compact = d->compact,
                             .choices = choices,
                             .n_choices = d->n_choices};
    if (d->text) s.text = (tern_str){d->text, d->n_bytes ? d->n_bytes : strlen(d->text)};
    for (size_t i = 0; i < d->n_choices; i++)
        choices[i] = (tern_str){d->choices[i], strlen(d->choices[i])};
    return s;
}

static tern_status open_source(tern_grammar *g, const tern_grammar_desc *d, tern_error *err) {
    const tern_vocab_tree *tree;
    const size_t n_choices = d->n_choices + (d->otherwise ? d->otherwise->n_choices : 0);
    TERN_TRY(tern_model_vocab_tree(g->model, &tree, err));
    tern_str *choices = tern_alloc_array(TERN_MEM_SESSION, n_choices, sizeof *choices);
    if (!choices) return tern_fail_memory(err, n_choices * sizeof *choices);
    tern_grammar_source source = source_of(d, choices), otherwise;
    if (d->otherwise) {
        otherwise = source_of(d->otherwise, choices + d->n_choices);
        source.otherwise = &otherwise;
    }
    const tern_template *t = g->model->chat_template;
    tern_call_form form = {0};
    if (t) read_marks(g, d, tern_template_answer_style(t), &source, &form);
    source.calls = &form;
    tern_status status = g->marks.failed ? tern_fail_memory(err, g->marks.len)
                                         : tern_automaton_open(&g->automaton, &source, tree, err);
    tern_free(choices);
    return status;
}

// What can be said of a description without a model.
static tern_status check_desc(const tern_grammar_desc *desc, tern_error *err) {
    TERN_NEED_ENUM(desc->kind, TERN_GRAMMAR_CALLS);
    TERN_NEED_EACH(desc->choices, desc->n_choices);
    if (!desc->text && desc->kind != TERN_GRAMMAR_CHOICES && desc->kind != TERN_GRAMMAR_JSON)
        return tern_fail(err, TERN_ERR_ARGUMENT, "tern_grammar_open: desc->text is NULL");
    return TERN_OK;
}

tern_status tern_grammar_open(tern_grammar **out, tern_model *model, const tern_grammar_desc *desc,
                              tern_error *err) {
    tern_clear(err);
    TERN_NEED(out);
    *out = NULL;
    TERN_NEED(model);
    TERN_NEED(desc);
    TERN_TRY(check_desc(desc, err));
    if (desc->otherwise) {
        TERN_TRY(check_desc(desc->otherwise, err));
        if (desc->kind != TERN_GRAMMAR_CALLS || desc->is_optional || desc->otherwise->otherwise ||
            desc->otherwise->kind == TERN_GRAMMAR_CALLS)
            return tern_fail(err, TERN_ERR_ARGUMENT,
                             "%s: desc->otherwise is of calls that are not optional, and no calls",
                             __func__);
    }
    tern_grammar *g = tern_alloc(TERN_MEM_SESSION, sizeof *g);
    if (!g) return tern_fail_memory(err, sizeof *g);
    atomic_init(&g->n_users, 1);
    g->model = model;
    tern_model_hold(model);
    tern_mutex_init(&g->lock);
    tern_status status = open_source(g, desc, err);
    if (status == TERN_OK)
        *out = g;
    else
        tern_grammar_close(g);
    return status;
}

void tern_grammar_close(tern_grammar *g) {
    if (!g || atomic_fetch_sub_explicit(&g->n_users, 1, memory_order_acq_rel) > 1) return;
    tern_automaton_close(g->automaton);
    tern_strbuf_free(&g->marks);
    tern_mutex_free(&g->lock);
    tern_model_let_go(g->model);
    tern_free(g);
}

tern_status tern_grammar_check(tern_grammar *g, const char *text, size_t n_bytes,
                               size_t *n_possible, bool *is_accepted, tern_error *err) {
    tern_clear(err);
    tern_status status = TERN_OK;
    size_t n = 0;
    TERN_NEED(g);
    TERN_NEED_ARRAY(text, n_bytes);
    tern_mutex_lock(&g->lock);
    tern_gplace place = tern_automaton_start(g->automaton), next = place;
    for (; n < n_bytes && status == TERN_OK; n++) {
        status = tern_automaton_add(g->automaton, &next, text + n, 1, err);
        if (next == TERN_PLACE_NONE) break;
        place = next;
    }
    bool is_whole = n == n_bytes && tern_automaton_accepts(g->automaton, place);
    tern_mutex_unlock(&g->lock);
    if (n_possible) *n_possible = n;
    if (is_accepted) *is_accepted = status == TERN_OK && is_whole;
    return status;
}

tern_status tern_grammar_mask(tern_grammar *g, const char *text, size_t n_bytes, uint64_t *bits,
                              size_t n_words, size_t *n_allowed, tern_error *err) {
    tern_clear(err);
    TERN_NEED(g);
    TERN_NEED_ARRAY(text, n_bytes);
    TERN_NEED(bits);
    const size_t n = ((size_t)g->model->info.n_vocab + 63) / 64;
    if (n_words < n)
        return tern_fail(err, TERN_ERR_ARGUMENT, "a mask of %zu words: expected %zu", n_words, n);
    memset(bits, 0, n_words * sizeof *bits);
    if (n_allowed) *n_allowed = 0;
    tern_mutex_lock(&g->lock);
    tern_gplace place = tern_automaton_start(g->automaton);
    tern_status status = tern_automaton_add(g->automaton, &place, text, n_bytes, err);
    if (status == TERN_OK && place != TERN_PLACE_NONE)
        status = tern_automaton_mask(g->automaton, place, bits, n_allowed, err);
    tern_mutex_unlock(&g->lock);
    return status;
}

// ---- Budgets ------------------------------------------------------------------------------------

// Locks the automaton for an answer's work; returns what was done before.
static uint64_t begin_work(const tern_constraint *c) {
    uint64_t most = WORK_USUAL + c->work_left;
    if (most > WORK_MAX) most = WORK_MAX;
    tern_mutex_lock(&c->grammar->lock);
    tern_automaton_limit(c->grammar->automaton, c->is_beside ? most : 0);
    return tern_automaton_work(c->grammar->automaton);
}

static void end_work(tern_constraint *c, uint64_t before) {
    const uint64_t work = tern_automaton_work(c->grammar->automaton) - before;
    tern_automaton_limit(c->grammar->automaton, 0);
    tern_mutex_unlock(&c->grammar->lock);
    if (work <= WORK_USUAL) return;
    const uint64_t more = work - WORK_USUAL;
    c->work_left -= more < c->work_left ? more : c->work_left;
}

// ---- Where an answer stands ---------------------------------------------------------------------

static void begin_waiting(tern_constraint *c) {
    c->is_waiting = c->grammar->waits;
    c->in_thought = c->is_waiting && c->grammar->thinks;
    c->n_open = c->n_think = 0;
    c->place = tern_automaton_start(c->grammar->automaton);
    c->trial = TERN_PLACE_NONE;
}

tern_status tern_constraint_begin(tern_constraint *c, tern_model *m, tern_grammar *grammar,
                                  tern_error *err) {
    c->n_rows = c->n_taken = c->forced.n = 0;
    if (!grammar) return TERN_OK;
    if (grammar->model != m)
        return tern_fail(err, TERN_ERR_ARGUMENT, "the grammar is for another model");
    c->grammar = grammar;
    atomic_fetch_add_explicit(&grammar->n_users, 1, memory_order_relaxed);
    c->n_words = ((size_t)m->info.n_vocab + 63) / 64;
    c->work_left = ANSWER_MAX;
    tern_mutex_lock(&grammar->lock);
    begin_waiting(c);
    c->may_begin = grammar->is_bare && !c->in_thought;
    c->after_call = false;
    c->is_done = !grammar->waits && tern_automaton_is_done(grammar->automaton, c->place);
    tern_mutex_unlock(&grammar->lock);
    return TERN_OK;
}

void tern_constraint_end(tern_constraint *c) {
    tern_grammar_close(c->grammar);
    c->grammar = NULL;
}

void tern_constraint_free(tern_constraint *c) {
    tern_free(c->bits);
    tern_free(c->forced.ids);
    tern_strbuf_free(&c->text);
    *c = (tern_constraint){0};
}

// The mask of a place in a row of c->bits.
static tern_status fill_row(tern_constraint *c, tern_gplace place, size_t row, tern_error *err) {
    const size_t n = (row + 1) * c->n_words;
    if (n > c->bits_capacity &&
        tern_array_reserve(TERN_MEM_SESSION, &c->bits, &c->bits_capacity, 0, n) != 0)
        return tern_fail_memory(err, n * sizeof *c->bits);
    tern_automaton *a = c->grammar->automaton;
    TERN_TRY(tern_automaton_mask(a, place, c->bits + row * c->n_words, &c->n_allowed[row], err));
    c->can_end[row] = tern_automaton_accepts(a, place);
    return TERN_OK;
}

tern_status tern_constraint_masks(tern_constraint *c, const int32_t *draft, size_t *n_draft,
                                  tern_error *err) {
    tern_gplace place = c->place;
    const uint64_t before = begin_work(c);
    tern_status status = fill_row(c, place, 0, err);
    size_t n = 0;
    while (status == TERN_OK && n < *n_draft) {
        status = tern_automaton_token(c->grammar->automaton, &place, draft[n], err);
        if (status != TERN_OK || place == TERN_PLACE_NONE) break;
        status = fill_row(c, place, ++n, err);
    }
    end_work(c, before);
    *n_draft = n;
    c->n_rows = n + 1;
    return status;
}

// A byte of the text that a mark is looked for in; true: it is the mark's last one. Only the first
// byte of a mark is like its beginning.
static bool add_to_mark(tern_str mark, char byte, size_t *n) {
    if (!mark.len) return false;
    *n = byte == mark.ptr[*n] ? *n + 1 : byte == *mark.ptr;
    if (*n < mark.len) return false;
    *n = 0;
    return true;
}

// A byte of what may be the beginning of a call without a mark. It is one where it has the whole
// name of a tool, as for those who read answers: {"name": "Ghent"} may be meant for people.
static tern_status try_byte(tern_constraint *c, char byte, bool *begins, tern_error *err) {
    *begins = false;
    if (c->trial == TERN_PLACE_NONE) {
        bool is_between = strchr(c->after_call ? " \t\r\n,;" : " \t\r\n", byte) && byte;
        if (byte != '{') {
            c->may_begin = is_between;
            return TERN_OK;
        }
        c->trial = tern_automaton_start(c->grammar->automaton);
        c->in_text = c->escaped = false;
        c->n_texts = 0, c->n_head = 4;
    }
    TERN_TRY(tern_automaton_add(c->grammar->automaton, &c->trial, &byte, 1, err));
    if (c->trial == TERN_PLACE_NONE) {
        c->may_begin = false;
        return TERN_OK;
    }
    if (c->in_text && c->n_texts == 0 && byte == 'n') c->n_head = 2; // "name", and not "type"
    bool is_quote = byte == '"' && !c->escaped;
    c->escaped = c->in_text && byte == '\\' && !c->escaped;
    c->n_texts += is_quote && c->in_text;
    c->in_text ^= is_quote;
    *begins = c->n_texts == c->n_head;
    return TERN_OK;
}

// Text that is not bound, up to the mark or the beginning of a call; *n: how many bytes that took.
static tern_status wait(tern_constraint *c, tern_str bytes, size_t *n, tern_error *err) {
    const tern_grammar *g = c->grammar;
    for (*n = 0; *n < bytes.len && c->is_waiting;) {
        const char byte = bytes.ptr[(*n)++];
        bool begins = false;
        if (c->in_thought) {
            c->in_thought = !add_to_mark(g->think_close, byte, &c->n_think);
            continue;
        }
        c->in_thought = add_to_mark(g->think_open, byte, &c->n_think);
        c->is_waiting = !add_to_mark(g->open, byte, &c->n_open);
        if (c->may_begin && c->is_waiting) TERN_TRY(try_byte(c, byte, &begins, err));
        if (!begins) continue;
        c->place = c->trial;
        c->is_waiting = false;
    }
    return TERN_OK;
}

// A token of an answer that is bound here and there. What was written like a call and goes on as
// none is text.
static tern_status take_waiting(tern_constraint *c, tern_str bytes, tern_error *err) {
    tern_automaton *a = c->grammar->automaton;
    while (bytes.len) {
        size_t n = 1;
        if (c->is_waiting) {
            TERN_TRY(wait(c, bytes, &n, err));
        } else {
            TERN_TRY(tern_automaton_add(a, &c->place, bytes.ptr, 1, err));
            bool is_call = tern_automaton_accepts(a, c->place);
            if (is_call || c->place == TERN_PLACE_NONE) {
                begin_waiting(c);
                c->in_thought = false;
                c->may_begin = c->after_call = is_call && c->grammar->is_bare;
            }
        }
        bytes.ptr += n, bytes.len -= n;
    }
    return TERN_OK;
}

tern_status tern_constraint_take(tern_constraint *c, int32_t id, tern_error *err) {
    const tern_vocab_tree *tree;
    bool expected = c->n_taken < c->forced.n && c->forced.ids[c->n_taken] == id;
    if (expected)
        c->n_taken++;
    else
        c->n_taken = c->forced.n = 0;
    TERN_TRY(tern_model_vocab_tree(c->grammar->model, &tree, err));
    const uint64_t before = begin_work(c);
    tern_automaton *a = c->grammar->automaton;
    tern_status status = c->grammar->waits ? take_waiting(c, tern_vocab_tree_token(tree, id), err)
                                           : tern_automaton_token(a, &c->place, id, err);
    c->is_done = !c->grammar->waits && tern_automaton_is_done(a, c->place);
    end_work(c, before);
    return status;
}

// ---- Text that must come ------------------------------------------------------------------------

// Keeps those of the ids whose bytes are the text's, all but the last.
static tern_status keep_true(tern_constraint *c, tern_error *err) {
    const tern_tokenizer *t = c->grammar->model->tokenizer;
    tern_strbuf spelled = {0};
    size_t n = 0, at = 0;
    for (; n + 1 < c->forced.n; n++) {
        tern_decoder d = {.started = true, .raw = true};
        tern_strbuf_clear(&spelled);
        tern_tokenizer_decode(t, &d, c->forced.ids[n], &spelled);
        if (spelled.failed || spelled.len == 0 || spelled.len > c->text.len - at ||
            memcmp(spelled.ptr, c->text.ptr + at, spelled.len) != 0)
            break;
        at += spelled.len;
    }
    bool failed = spelled.failed;
    tern_strbuf_free(&spelled);
    c->forced.n = n;
    return failed ? tern_fail_memory(err, at) : TERN_OK;
}

static tern_status find_forced(tern_constraint *c, tern_error *err) {
    c->forced.n = c->n_taken = 0;
    tern_strbuf_clear(&c->text);
    const uint64_t before = begin_work(c);
    tern_status status =
        tern_automaton_forced(c->grammar->automaton, c->place, FORCED_BYTES_MAX, &c->text, err);
    end_work(c, before);
    if (status != TERN_OK || c->text.len < 2) return status;
    TERN_TRY(tern_tokenizer_encode(c->grammar->model->tokenizer, c->text.ptr, c->text.len,
                                   TERN_TOKENIZE_PLAIN, &c->forced, err));
    return keep_true(c, err);
}

tern_status tern_constraint_forced(tern_constraint *c, int32_t *id, tern_error *err) {
    // Calls that are optional are what the model would have said, wherever that is right.
    if (c->n_taken == c->forced.n && !c->grammar->waits) TERN_TRY(find_forced(c, err));
    *id = c->n_taken < c->forced.n ? c->forced.ids[c->n_taken] : -1;
    return TERN_OK;
}

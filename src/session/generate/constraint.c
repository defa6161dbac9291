// Grammars in generation: where an answer stands in its grammar, which tokens may come, and which
// must.
//
// TEXT THAT MUST COME is appended without asking the model. It is tokenized by the tokenizer, since
// that is how the model has seen such text. The last token is left to the model: with the text
// after it, it might have become another token.
#include <stddef.h>
#include <string.h>
#include "base/alloc.h"
#include "session/session.h"

#define FORCED_BYTES_MAX 256

// Limits in a group, where other answers must go on: an answer whose grammar exceeds them ends with
// an error. In steps of work, some 15 to 50 per microsecond: for one mask or token; for a whole
// answer, not counting WORK_USUAL for each call; and the usual work of a call. No mask of
// MaskBench's million takes 200,000.
#define WORK_MAX   2000000
#define ANSWER_MAX 20000000
#define WORK_USUAL 200000
// Work that is tried between two steps of a group before the helper does it: a millisecond or two;
// QUICK_NOW: after a try that was too slow.
#define QUICK     50000
#define QUICK_NOW 4000

// ---- Grammars -----------------------------------------------------------------------------------

struct tern_grammar {
    atomic_size_t n_users; // the opener, and the answers that it constrains
    tern_model *model;
    tern_mutex lock; // of the automaton
    tern_automaton *automaton;
    // For optional calls: the answer is constrained from a call's opening mark on.
    bool waits, thinks; // thinks: an answer begins within reasoning
    bool is_bare;       // or where an answer begins as a call does
    bool ends_empty;    // nothing can follow the empty text
    tern_strbuf marks;
    tern_str open, think_open, think_close; // in marks
};

// ---- Marks --------------------------------------------------------------------------------------

// Marks in the form that grammars use, in one buffer: pointers to them are set at the end.
typedef struct mark_list {
    const tern_tokenizer *tokenizer;
    tern_strbuf *text;
    tern_str *marks[8];
    size_t n;
} mark_list;

// Control tokens have a sign before their names.
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

// The subject of a grammar; its choices are put into `choices`.
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
    if (status == TERN_OK)
        g->ends_empty = tern_automaton_is_done(g->automaton, tern_automaton_start(g->automaton));
    tern_free(choices);
    return status;
}

// Checks a description as far as possible without a model.
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
                              size_t n_words, tern_error *err) {
    tern_clear(err);
    TERN_NEED(g);
    TERN_NEED_ARRAY(text, n_bytes);
    TERN_NEED(bits);
    const size_t n = ((size_t)g->model->info.n_vocab + 63) / 64;
    if (n_words < n)
        return tern_fail(err, TERN_ERR_ARGUMENT, "a mask of %zu words: expected %zu", n_words, n);
    memset(bits, 0, n_words * sizeof *bits);
    tern_mutex_lock(&g->lock);
    tern_gplace place = tern_automaton_start(g->automaton);
    tern_status status = tern_automaton_add(g->automaton, &place, text, n_bytes, err);
    if (status == TERN_OK && place != TERN_PLACE_NONE)
        status = tern_automaton_mask(g->automaton, place, bits, NULL, err);
    tern_mutex_unlock(&g->lock);
    return status;
}

// ---- Where an answer stands ---------------------------------------------------------------------

static void begin_waiting(const tern_grammar *g, tern_constraint_at *at) {
    at->is_waiting = g->waits;
    at->in_thought = at->is_waiting && g->thinks;
    at->n_open = at->n_think = 0;
    at->place = tern_automaton_start(g->automaton);
    at->trial = TERN_PLACE_NONE;
}

tern_status tern_constraint_begin(tern_constraint *c, tern_model *m, tern_grammar *grammar,
                                  tern_error *err) {
    c->n_taken = c->forced.n = 0;
    if (!grammar) return TERN_OK;
    if (grammar->model != m)
        return tern_fail(err, TERN_ERR_ARGUMENT, "the grammar is for another model");
    c->grammar = grammar;
    atomic_fetch_add_explicit(&grammar->n_users, 1, memory_order_relaxed);
    c->n_words = ((size_t)m->info.n_vocab + 63) / 64;
    c->work_left = ANSWER_MAX;
    c->quick = QUICK;
    begin_waiting(grammar, &c->at); // without the lock, which may be held for long
    c->at.may_begin = grammar->is_bare && !c->at.in_thought;
    c->at.after_call = false;
    c->at.is_done = !grammar->waits && grammar->ends_empty;
    return TERN_OK;
}

void tern_constraint_end(tern_constraint *c) {
    if (c->is_given) tern_helper_take_back(c->helper, &c->task);
    c->is_given = false;
    tern_grammar_close(c->grammar);
    c->grammar = NULL;
}

void tern_constraint_free(tern_constraint *c) {
    tern_free(c->bits);
    tern_free(c->forced.ids);
    tern_strbuf_free(&c->text);
    *c = (tern_constraint){0};
}

// Matches the next byte of a text against a mark; true: the mark is complete. A mark's beginning
// does not recur within it.
static bool add_to_mark(tern_str mark, char byte, size_t *n) {
    if (!mark.len) return false;
    *n = byte == mark.ptr[*n] ? *n + 1 : byte == *mark.ptr;
    if (*n < mark.len) return false;
    *n = 0;
    return true;
}

// The next byte of a possible call without a mark. It counts as a call once it has the whole name
// of a tool, as in tern_answer: {"name": "Ghent"} may be meant for people.
static tern_status try_byte(const tern_grammar *g, tern_constraint_at *at, char byte, bool *begins,
                            tern_error *err) {
    *begins = false;
    if (at->trial == TERN_PLACE_NONE) {
        bool is_between = strchr(at->after_call ? " \t\r\n,;" : " \t\r\n", byte) && byte;
        if (byte != '{') {
            at->may_begin = is_between;
            return TERN_OK;
        }
        at->trial = tern_automaton_start(g->automaton);
        at->in_text = at->escaped = false;
        at->n_texts = 0, at->n_head = 4;
    }
    TERN_TRY(tern_automaton_add(g->automaton, &at->trial, &byte, 1, err));
    if (at->trial == TERN_PLACE_NONE) {
        at->may_begin = false;
        return TERN_OK;
    }
    if (at->in_text && at->n_texts == 0 && byte == 'n') at->n_head = 2; // "name", and not "type"
    bool is_quote = byte == '"' && !at->escaped;
    at->escaped = at->in_text && byte == '\\' && !at->escaped;
    at->n_texts += is_quote && at->in_text;
    at->in_text ^= is_quote;
    *begins = at->n_texts == at->n_head;
    return TERN_OK;
}

// Unconstrained text, up to the mark or the beginning of a call; *n: how many bytes it has.
static tern_status wait(const tern_grammar *g, tern_constraint_at *at, tern_str bytes, size_t *n,
                        tern_error *err) {
    for (*n = 0; *n < bytes.len && at->is_waiting;) {
        const char byte = bytes.ptr[(*n)++];
        bool begins = false;
        if (at->in_thought) {
            at->in_thought = !add_to_mark(g->think_close, byte, &at->n_think);
            continue;
        }
        at->in_thought = add_to_mark(g->think_open, byte, &at->n_think);
        at->is_waiting = !add_to_mark(g->open, byte, &at->n_open);
        if (at->may_begin && at->is_waiting) TERN_TRY(try_byte(g, at, byte, &begins, err));
        if (!begins) continue;
        at->place = at->trial;
        at->is_waiting = false;
    }
    return TERN_OK;
}

// A token of an answer that is constrained only in its calls. Text that begins like a call but does
// not continue as one is text.
static tern_status take_waiting(const tern_grammar *g, tern_constraint_at *at, tern_str bytes,
                                tern_error *err) {
    tern_automaton *a = g->automaton;
    while (bytes.len) {
        size_t n = 1;
        if (at->is_waiting) {
            TERN_TRY(wait(g, at, bytes, &n, err));
        } else {
            TERN_TRY(tern_automaton_add(a, &at->place, bytes.ptr, 1, err));
            bool is_call = tern_automaton_accepts(a, at->place);
            if (is_call || at->place == TERN_PLACE_NONE) {
                begin_waiting(g, at);
                at->in_thought = false;
                at->may_begin = at->after_call = is_call && g->is_bare;
            }
        }
        bytes.ptr += n, bytes.len -= n;
    }
    return TERN_OK;
}

// ---- What may take long, with the grammar's lock held -------------------------------------------

// Writes the mask of a state into a row of c->bits.
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

// Does not change c->at: other threads read it.
static tern_status take(tern_constraint *c, int32_t id, tern_error *err) {
    const tern_vocab_tree *tree;
    const tern_grammar *g = c->grammar;
    c->after = c->at;
    TERN_TRY(tern_model_vocab_tree(g->model, &tree, err));
    if (g->waits) return take_waiting(g, &c->after, tern_vocab_tree_token(tree, id), err);
    TERN_TRY(tern_automaton_token(g->automaton, &c->after.place, id, err));
    c->after.is_done = tern_automaton_is_done(g->automaton, c->after.place);
    return TERN_OK;
}

// Keeps the ids as far as their bytes match the text, without the last one.
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
    TERN_TRY(
        tern_automaton_forced(c->grammar->automaton, c->at.place, FORCED_BYTES_MAX, &c->text, err));
    if (c->text.len < 2) return TERN_OK;
    TERN_TRY(tern_tokenizer_encode(c->grammar->model->tokenizer, c->text.ptr, c->text.len,
                                   TERN_TOKENIZE_PLAIN, &c->forced, err));
    return keep_true(c, err);
}

// ---- Budgets ------------------------------------------------------------------------------------

// The work that the next call may take; 0: up to the automaton's own limit.
static uint64_t budget_of(const tern_constraint *c) {
    const uint64_t most = WORK_USUAL + c->work_left;
    return !c->is_beside ? 0 : most < WORK_MAX ? most : WORK_MAX;
}

static void count_work(tern_constraint *c, uint64_t work) {
    const uint64_t more = work > WORK_USUAL ? work - WORK_USUAL : 0;
    c->work_left -= more < c->work_left ? more : c->work_left;
}

// Called with the lock held; releases it. *is_slow: it took more than `most`.
static tern_status do_call(tern_constraint *c, uint64_t most, bool *is_slow, tern_error *err) {
    tern_grammar *g = c->grammar;
    const uint64_t before = tern_automaton_work(g->automaton);
    tern_status status = TERN_OK;
    tern_automaton_limit(g->automaton, most);
    switch (c->call) {
    case TERN_CONSTRAINT_MASK: status = fill_row(c, c->at.place, 0, err); break;
    case TERN_CONSTRAINT_TAKE: status = take(c, c->id, err); break;
    case TERN_CONSTRAINT_FORCED: status = find_forced(c, err); break;
    }
    *is_slow = status != TERN_OK && tern_automaton_is_slow(g->automaton);
    tern_automaton_limit(g->automaton, 0);
    count_work(c, tern_automaton_work(g->automaton) - before);
    tern_mutex_unlock(&g->lock);
    return status;
}

static tern_status do_all(tern_constraint *c, tern_error *err) {
    bool is_slow;
    tern_mutex_lock(&c->grammar->lock);
    return do_call(c, budget_of(c), &is_slow, err);
}

// On the helper's thread.
static void run(tern_helper_task *t) {
    tern_constraint *c = (tern_constraint *)(void *)((char *)t - offsetof(tern_constraint, task));
    tern_clear(&c->err);
    c->status = do_all(c, &c->err);
}

bool tern_constraint_is_away(const tern_constraint *c) {
    return c->is_given && !tern_helper_is_done(c->helper, &c->task);
}

// Does quick work at once, unless another thread has the grammar's lock.
static bool try_now(tern_constraint *c, tern_status *status, tern_error *err) {
    const uint64_t most = budget_of(c);
    bool is_slow;
    if (!tern_mutex_try_lock(&c->grammar->lock)) return false;
    *status = do_call(c, most && most < c->quick ? most : c->quick, &is_slow, err);
    if (is_slow) tern_clear(err);
    c->quick = is_slow ? QUICK_NOW : QUICK;
    return !is_slow;
}

static tern_status call(tern_constraint *c, tern_constraint_call what, int32_t id, bool *later,
                        tern_error *err) {
    tern_status status = TERN_OK;
    *later = tern_constraint_is_away(c);
    if (*later) return TERN_OK;
    const bool is_done = c->is_given && c->call == what && c->id == id;
    c->is_given = false;
    if (is_done) {
        if (c->status != TERN_OK && err) *err = c->err;
        return c->status;
    }
    c->call = what;
    c->id = id;
    if (!c->helper) return do_all(c, err);
    if (try_now(c, &status, err)) return status;
    c->task.run = run;
    c->task.watched = c->cancel;
    *later = c->is_given = tern_helper_give(c->helper, &c->task);
    return *later ? TERN_OK : do_all(c, err);
}

// ---- What an answer asks ------------------------------------------------------------------------

tern_status tern_constraint_mask(tern_constraint *c, bool *later, tern_error *err) {
    *later = false;
    if (c->knows_mask) return TERN_OK;
    TERN_TRY(call(c, TERN_CONSTRAINT_MASK, 0, later, err));
    c->knows_mask = !*later;
    return TERN_OK;
}

tern_status tern_constraint_masks(tern_constraint *c, const int32_t *draft, size_t *n_draft,
                                  tern_error *err) {
    tern_automaton *a = c->grammar->automaton;
    tern_gplace place = c->at.place;
    tern_status status = TERN_OK;
    const size_t n_most = *n_draft;
    *n_draft = 0;
    if (n_most == 0) return TERN_OK;
    if (!c->helper)
        tern_mutex_lock(&c->grammar->lock);
    else if (!tern_mutex_try_lock(&c->grammar->lock))
        return TERN_OK;
    const uint64_t before = tern_automaton_work(a);
    tern_automaton_limit(a, c->helper ? c->quick : budget_of(c));
    for (size_t n = 0; n < n_most; n++) {
        status = tern_automaton_token(a, &place, draft[n], err);
        if (status != TERN_OK || place == TERN_PLACE_NONE) break;
        status = fill_row(c, place, n + 1, err);
        if (status == TERN_OK)
            *n_draft = n + 1;
        else
            break;
    }
    if (status != TERN_OK && tern_automaton_is_slow(a)) { // the answer may never get there
        tern_clear(err);
        status = TERN_OK;
    }
    tern_automaton_limit(a, 0);
    count_work(c, tern_automaton_work(a) - before);
    tern_mutex_unlock(&c->grammar->lock);
    return status;
}

tern_status tern_constraint_take(tern_constraint *c, int32_t id, bool *later, tern_error *err) {
    TERN_TRY(call(c, TERN_CONSTRAINT_TAKE, id, later, err));
    if (*later) return TERN_OK;
    const bool is_forced = c->n_taken < c->forced.n && c->forced.ids[c->n_taken] == id;
    c->at = c->after;
    if (is_forced)
        c->n_taken++;
    else
        c->n_taken = c->forced.n = 0;
    c->knows_forced = c->n_taken < c->forced.n;
    c->knows_mask = false;
    return TERN_OK;
}

tern_status tern_constraint_find_forced(tern_constraint *c, bool *later, tern_error *err) {
    *later = false;
    // Optional calls keep the model's own text wherever it is valid.
    if (c->knows_forced || c->grammar->waits) return TERN_OK;
    TERN_TRY(call(c, TERN_CONSTRAINT_FORCED, 0, later, err));
    c->knows_forced = !*later;
    return TERN_OK;
}

int32_t tern_constraint_forced(const tern_constraint *c) {
    return c->n_taken < c->forced.n ? c->forced.ids[c->n_taken] : -1;
}

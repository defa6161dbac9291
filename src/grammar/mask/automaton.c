// Compiles a grammar, and follows texts in it.
#include "grammar/mask/automaton.h"

#include <string.h>
#include "base/alloc.h"
#include "grammar/schema/calls.h"
#include "grammar/rules/ebnf.h"
#include "grammar/rules/pattern.h"
#include "grammar/schema/schema.h"

#define BYTES_MAX ((size_t)256 << 20)
// Steps of work, some 15 to 25 million a second: a grammar that takes more to compile, or more to
// find one mask, is refused.
#define COMPILE_WORK_MAX 40000000
#define WORK_MAX         10000000

static tern_status compile_regex(tern_automaton *a, tern_str text, bool anywhere, tern_expr *root,
                                 tern_error *err) {
    tern_term term;
    TERN_TRY(tern_pattern_term(
        &a->terms, text.ptr, text.len,
        (tern_pattern_way){.spelling = TERN_SPELL_UTF8, .is_search = anywhere}, &term, err));
    *root = tern_expr_term(&a->rules, term);
    return TERN_OK;
}

static tern_status compile_choices(tern_automaton *a, const tern_grammar_source *source,
                                   tern_expr *root, tern_error *err) {
    const size_t n = source->n_choices;
    if (n == 0) return tern_fail(err, TERN_ERR_ARGUMENT, "choices: at least one is expected");
    tern_term *terms = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *terms);
    if (!terms) return tern_fail_memory(err, n * sizeof *terms);
    for (size_t i = 0; i < n; i++)
        terms[i] = tern_term_text(&a->terms, source->choices[i].ptr, source->choices[i].len);
    *root = tern_expr_term(&a->rules, tern_term_either(&a->terms, terms, n));
    tern_free(terms);
    return TERN_OK;
}

static tern_status compile_schema(tern_automaton *a, tern_str schema, bool compact, tern_expr *root,
                                  tern_error *err) {
    const tern_json_way way = {.compact = compact};
    a->any_char = a->terms.any_char =
        tern_term_any_code(&a->terms, TERN_SPELL_JSON); // first: see tern_term_text
    return tern_schema_expr(&a->rules, schema, &way, (tern_str){0}, root, err);
}

static tern_status compile_expr(tern_automaton *a, const tern_grammar_source *source,
                                tern_expr *root, tern_error *err) {
    const tern_str text = source->text;
    switch (source->kind) {
    case TERN_GRAMMAR_JSON_SCHEMA: return compile_schema(a, text, source->compact, root, err);
    case TERN_GRAMMAR_JSON: return compile_schema(a, TERN_STR("true"), source->compact, root, err);
    case TERN_GRAMMAR_REGEX: return compile_regex(a, text, source->anywhere, root, err);
    case TERN_GRAMMAR_GBNF:
        return tern_ebnf_expr(&a->rules, text, &(tern_ebnf_way){TERN_NOTATION_GBNF, 0, 0}, root,
                              err);
    case TERN_GRAMMAR_LARK:
        return tern_ebnf_expr(&a->rules, text, &(tern_ebnf_way){TERN_NOTATION_LARK, 0, 0}, root,
                              err);
    case TERN_GRAMMAR_CHOICES: return compile_choices(a, source, root, err);
    case TERN_GRAMMAR_CALLS:
        a->any_char = a->terms.any_char = tern_term_any_code(&a->terms, TERN_SPELL_JSON);
        return tern_calls_expr(&a->rules, text, source->calls, root, err);
    }
    return tern_fail(err, TERN_ERR_ARGUMENT, "there is no grammar of kind %d", (int)source->kind);
}

// Characters up to and including the first occurrence of the text.
static tern_term up_to(tern_terms *t, tern_str text) {
    const tern_term one = tern_term_any_code(t, TERN_SPELL_UTF8);
    const tern_term any = tern_term_repeat(t, one, 0, TERN_NO_LIMIT);
    const tern_term end = tern_term_text(t, text.ptr, text.len);
    const tern_term again = tern_term_cat(t, TERN_TERM_ANY, TERN_TERM_ALL);
    const tern_term too_late = tern_term_cat(t, any, tern_term_cat(t, end, again));
    return tern_term_and(t, tern_term_cat(t, any, end), tern_term_not(t, too_late));
}

// Reasoning and blanks, then the answer.
static tern_expr think_first(tern_automaton *a, const tern_grammar_source *source, tern_expr root) {
    tern_terms *t = &a->terms;
    const tern_str open = source->think_open;
    tern_byteset blanks = {{0}};
    for (const char *b = " \t\r\n"; *b; b++) tern_byteset_add(&blanks, (unsigned char)*b);
    tern_term space = tern_term_repeat(t, tern_term_set(t, blanks), 0, 8);
    tern_term front =
        tern_term_cat(t, tern_term_text(t, open.ptr, open.len), up_to(t, source->think_close));
    tern_expr e = tern_expr_cat(&a->rules, tern_expr_term(&a->rules, space), root);
    e = tern_expr_cat(&a->rules, tern_expr_open(&a->rules, front), e);
    return open.len ? tern_expr_or(&a->rules, root, e) : e;
}

static tern_status compile(tern_automaton *a, const tern_grammar_source *source, tern_error *err) {
    tern_expr root = TERN_EXPR_NOTHING;
    TERN_TRY(compile_expr(a, source, &root, err));
    if (source->otherwise) {
        tern_expr other = TERN_EXPR_NOTHING;
        TERN_TRY(compile_expr(a, source->otherwise, &other, err));
        root = tern_expr_or(&a->rules, root, other);
    }
    if (source->think_close.len) root = think_first(a, source, root);
    return tern_automaton_finish(a, root, err);
}

tern_status tern_automaton_begin(tern_automaton **out, size_t bytes_max, const tern_vocab_tree *v,
                                 tern_error *err) {
    *out = NULL;
    tern_automaton *a = tern_alloc(TERN_MEM_SESSION, sizeof *a);
    if (!a) return tern_fail_memory(err, sizeof *a);
    a->vocab = v;
    a->bytes_max = bytes_max ? bytes_max : BYTES_MAX;
    tern_status status = TERN_OK;
    if (v) {
        a->bits = tern_alloc_array(TERN_MEM_SESSION, v->n_words, sizeof *a->bits);
        a->levels = tern_alloc_array(TERN_MEM_SESSION, v->depth_max + 2, sizeof *a->levels);
        a->more = tern_alloc_array(TERN_MEM_SESSION, v->n_words, sizeof *a->more);
        if (!a->bits || !a->levels || !a->more)
            status = tern_fail_memory(err, v->n_words * sizeof *a->bits);
    }
    if (status == TERN_OK) status = tern_terms_open(&a->terms, a->bytes_max, err);
    if (status == TERN_OK) tern_terms_allow(&a->terms, COMPILE_WORK_MAX);
    if (status == TERN_OK) status = tern_rules_open(&a->rules, &a->terms, err);
    if (status == TERN_OK)
        *out = a;
    else
        tern_automaton_close(a);
    return status;
}

tern_status tern_automaton_finish(tern_automaton *a, tern_expr root, tern_error *err) {
    TERN_TRY(tern_rules_finish(&a->rules, root, err));
    TERN_TRY(tern_states_open(&a->states, &a->rules, a->bytes_max, err));
    a->terms.is_ready = true;
    return TERN_OK;
}

tern_status tern_automaton_open(tern_automaton **out, const tern_grammar_source *source,
                                const tern_vocab_tree *v, tern_error *err) {
    tern_automaton *a;
    *out = NULL;
    TERN_TRY(tern_automaton_begin(&a, source->bytes_max, v, err));
    tern_status status = compile(a, source, err);
    if (status == TERN_OK)
        *out = a;
    else
        tern_automaton_close(a);
    return status;
}

void tern_automaton_close(tern_automaton *a) {
    if (!a) return;
    tern_automaton_free_masks(a);
    tern_free(a->levels);
    tern_free(a->slots);
    tern_free(a->bits);
    tern_free(a->more);
    tern_free(a->found.at);
    tern_free(a->exits.at);
    tern_states_close(&a->states);
    tern_rules_close(&a->rules);
    tern_terms_close(&a->terms);
    tern_free(a);
}

// ---- Budgets ------------------------------------------------------------------------------------

void tern_automaton_limit(tern_automaton *a, uint64_t work) { a->work_max = work; }

bool tern_automaton_is_slow(const tern_automaton *a) {
    return a->terms.failed && a->terms.fault == TERN_TERMS_TOO_LONG;
}

uint64_t tern_automaton_work(const tern_automaton *a) { return a->terms.work; }

static void allow(tern_automaton *a) {
    tern_terms_allow(&a->terms, a->work_max ? a->work_max : WORK_MAX);
}

// ---- Texts --------------------------------------------------------------------------------------

tern_gplace tern_automaton_start(const tern_automaton *a) { return a->states.start; }

tern_status tern_automaton_add(tern_automaton *a, tern_gplace *place, const char *bytes, size_t n,
                               tern_error *err) {
    tern_gplace to = *place;
    allow(a);
    for (size_t i = 0; i < n && to; i++)
        to = tern_state_step(&a->states, to, (unsigned char)bytes[i]);
    TERN_TRY(tern_automaton_check(a, err));
    *place = to;
    return TERN_OK;
}

bool tern_automaton_accepts(const tern_automaton *a, tern_gplace place) {
    return tern_state_accepts(&a->states, place);
}

bool tern_automaton_is_done(const tern_automaton *a, tern_gplace place) {
    return a->states.infos[place].configs.n == 0;
}

tern_status tern_automaton_forced(tern_automaton *a, tern_gplace place, size_t n_max,
                                  tern_strbuf *out, tern_error *err) {
    allow(a);
    for (size_t n = 0; n < n_max && !tern_automaton_accepts(a, place); n++) {
        tern_byteset first = a->states.infos[place].first;
        // A term's first bytes are an upper bound: a step that turns out dead does not count.
        int n_ways = 0;
        unsigned only = 0;
        tern_gplace next = TERN_PLACE_NONE;
        for (unsigned byte = 0; byte < 256 && n_ways < 2; byte++) {
            if (!tern_byteset_has(&first, byte)) continue;
            tern_gplace to = tern_state_step(&a->states, place, byte);
            TERN_TRY(tern_automaton_check(a, err));
            if (!to) continue;
            n_ways++;
            only = byte;
            next = to;
        }
        if (n_ways != 1) break;
        tern_strbuf_putc(out, (char)only);
        place = next;
    }
    return out->failed ? tern_fail_memory(err, n_max) : TERN_OK;
}

tern_status tern_automaton_mask(tern_automaton *a, tern_gplace place, uint64_t *bits,
                                size_t *n_allowed, tern_error *err) {
    const tern_mask *m = NULL;
    TERN_NEED(a->vocab);
    allow(a);
    TERN_TRY(tern_automaton_find_mask(a, place, &m, err));
    const size_t bytes = a->vocab->n_words * sizeof *bits;
    const tern_token_set *open = m->open ? &a->opens[m->open - 1].set : NULL;
    const uint64_t *base = open ? open->base : m->set.base;
    if (base)
        memcpy(bits, base, bytes);
    else
        memset(bits, 0, bytes);
    if (open) tern_token_set_write(open, bits);
    tern_token_set_write(&m->set, bits);
    if (n_allowed) *n_allowed = m->set.n_allowed;
    return TERN_OK;
}

tern_status tern_automaton_token(tern_automaton *a, tern_gplace *place, int32_t token,
                                 tern_error *err) {
    const tern_vocab_tree *v = a->vocab;
    TERN_NEED(v);
    if (token < 0 || (size_t)token >= v->n_vocab || v->text[token] == v->text[token + 1]) {
        *place = TERN_PLACE_NONE;
        return TERN_OK;
    }
    return tern_automaton_add(a, place, v->pool + v->text[token],
                              v->text[token + 1] - v->text[token], err);
}

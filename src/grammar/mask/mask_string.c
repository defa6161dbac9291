// Strings of JSON: a number of characters of one kind, then a quote.
//
// With limits on its length such a string loses only the tokens that are too long or end it too
// early. So the trees are walked once for each kind of characters, without limits, and the tokens
// of strings with limits follow from that.
#include <string.h>
#include "base/alloc.h"
#include "grammar/mask/mask_open.h"

// A string of a new kind with a smaller greatest length is walked, which ends soon.
#define LONG 16

// ---- Lengths ------------------------------------------------------------------------------------

static uint32_t plus(uint32_t a, uint32_t b) { return a > UINT32_MAX - b ? UINT32_MAX : a + b; }
static uint32_t most(uint32_t a, uint32_t b) { return a > b ? a : b; }

static tern_lengths find_lengths(tern_automaton *a, tern_term term, int depth);

// `left` of a term: from any point of its texts, how many bytes an end is away at most.
static tern_lengths lengths_of(tern_automaton *a, const tern_term_node *n, int depth) {
    tern_lengths r = {0, 0, true}, x, y;
    switch ((tern_term_kind)n->kind) {
    case TERN_KIND_EMPTY: return r;
    case TERN_KIND_SET: r.shortest = 1; return r;
    case TERN_KIND_TEXT: return (tern_lengths){n->b, n->b - 1, true};
    case TERN_KIND_CAT:
        x = find_lengths(a, n->a, depth);
        y = find_lengths(a, n->b, depth);
        return (tern_lengths){plus(x.shortest, y.shortest), most(plus(x.left, y.shortest), y.left),
                              true};
    case TERN_KIND_EITHER:
        r.shortest = UINT32_MAX;
        for (uint32_t i = 0; i < n->b; i++) {
            x = find_lengths(a, a->terms.lists[n->a + i], depth);
            if (x.shortest < r.shortest) r.shortest = x.shortest;
            r.left = most(r.left, x.left);
        }
        return r;
    case TERN_KIND_REPEAT:
        x = find_lengths(a, n->a, depth);
        r.left = x.left;
        for (uint32_t i = 0; i < n->b && r.shortest < UINT32_MAX; i++) {
            if (i > 0) r.left = plus(r.left, x.shortest);
            r.shortest = plus(r.shortest, x.shortest);
            if (x.shortest == 0) break;
        }
        return r;
    case TERN_KIND_NOTHING:
    case TERN_KIND_BOTH:
    case TERN_KIND_NOT:
    case TERN_KIND_MULTIPLE: break; // only a search would find it
    }
    return (tern_lengths){UINT32_MAX, UINT32_MAX, true};
}

static tern_lengths find_lengths(tern_automaton *a, tern_term term, int depth) {
    const tern_lengths unknown = {UINT32_MAX, UINT32_MAX, true};
    if (term < a->lengths_capacity && a->lengths[term].is_known) return a->lengths[term];
    if (term == TERN_TERM_ALL || depth == 0 ||
        tern_array_reserve(TERN_MEM_SESSION, &a->lengths, &a->lengths_capacity, term, 1) != 0)
        return unknown;
    const tern_term_node n = a->terms.nodes[term];
    const tern_lengths found = lengths_of(a, &n, depth - 1);
    a->lengths[term] = found;
    return found;
}

tern_term tern_string_uncounted(tern_automaton *a, tern_term term) {
    tern_terms *t = &a->terms;
    const tern_term_node n = t->nodes[term];
    if (!a->any_char || n.kind != TERN_KIND_CAT || t->nodes[n.a].kind != TERN_KIND_BOTH ||
        t->nodes[n.a].b != 2)
        return TERN_TERM_NOTHING;
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t *pair = t->lists + t->nodes[n.a].a;
        const tern_term_node *count = &t->nodes[pair[i]];
        const tern_term other = pair[1 - i];
        if (count->kind != TERN_KIND_REPEAT || count->a != a->any_char || count->b > 0 ||
            t->nodes[other].flags & TERN_TERM_HARD)
            continue;
        // A character has at least one byte: neither a token nor the missing rest has more
        // characters than bytes.
        const uint32_t left = find_lengths(a, other, 64).left, max = count->c;
        if (left < UINT32_MAX && max >= plus(left, (uint32_t)a->vocab->depth_max))
            return tern_term_cat(t, other, n.b);
    }
    return TERN_TERM_NOTHING;
}

// ---- Characters ---------------------------------------------------------------------------------

// Whether after the first byte exactly n continuation bytes follow in all texts.
static bool ends_after(tern_terms *t, tern_term a, int n) {
    const tern_byteset rest = tern_byteset_range(0x80, 0xBF), first = *tern_term_first(t, a);
    tern_term last = TERN_TERM_NOTHING;
    if (n == 0) return a == TERN_TERM_EMPTY;
    if (tern_term_is_nullable(t, a) || !tern_byteset_within(&first, &rest)) return false;
    for (unsigned byte = 0x80; byte <= 0xBF; byte++) {
        const tern_term to = tern_term_step(t, a, byte);
        if (!to || to == last) continue;
        if (!ends_after(t, to, n - 1)) return false;
        last = to;
    }
    return true;
}

// Whether every text of the term that does not begin with a backslash is one character.
static bool is_one_character(tern_terms *t, tern_term a) {
    const tern_byteset first = *tern_term_first(t, a);
    if (t->nodes[a].flags & (TERN_TERM_HARD | TERN_TERM_NULLABLE)) return false;
    for (unsigned byte = 0; byte < 256; byte++) {
        if (!tern_byteset_has(&first, byte) || byte == '\\') continue;
        if (byte < 0x20 || byte == '"' || (byte >= 0x80 && (byte < 0xC2 || byte > 0xF4)))
            return false;
        const int n = (byte >= 0xC0) + (byte >= 0xE0) + (byte >= 0xF0);
        const tern_term to = tern_term_step(t, a, byte);
        if (to && !ends_after(t, to, n)) return false;
    }
    return true;
}

// ---- Kinds of strings ---------------------------------------------------------------------------

static tern_status add_counted(tern_counted **list, size_t *n, size_t *capacity, tern_counted c,
                               tern_error *err) {
    if (tern_array_reserve(TERN_MEM_SESSION, list, capacity, *n, 1) != 0)
        return tern_fail_memory(err, *n * sizeof **list);
    (*list)[(*n)++] = c;
    return TERN_OK;
}

// Special tokens as they are found, and the room of their lists.
typedef struct counting {
    tern_automaton *a;
    tern_string_tokens *s;
    size_t inside_room, ended_room, exits_room;
    tern_error *err;
} counting;

static tern_status count_node(counting *c, uint32_t at, bool has_ended, uint32_t n_chars) {
    const tern_tree *tree = &c->a->vocab->trees[TERN_TREE_SPECIAL];
    const tern_tree_node *node = &tree->nodes[at];
    tern_string_tokens *s = c->s;
    tern_open_allow(c->a, tree->ids + node->ids, node->n_own);
    for (uint32_t i = 0; i < node->n_own; i++) {
        const tern_counted token = {tree->ids[node->ids + i], n_chars};
        TERN_TRY(has_ended ? add_counted(&s->ended, &s->n_ended, &c->ended_room, token, c->err)
                           : add_counted(&s->inside, &s->n_inside, &c->inside_room, token, c->err));
    }
    if (!has_ended || node[0].child == node[1].child) return TERN_OK;
    return add_counted(&s->exits, &s->n_exits, &c->exits_room,
                       (tern_counted){at << 1 | TERN_TREE_SPECIAL, n_chars}, c->err);
}

// Walks the special tree from `home`, to which the term comes back after each character.
static tern_status count_special(counting *c, tern_term home) {
    const tern_tree *tree = &c->a->vocab->trees[TERN_TREE_SPECIAL];
    tern_terms *t = &c->a->terms;
    tern_walk_level *level = c->a->levels; // state: the term; terms: characters
    *level = (tern_walk_level){tree->nodes[0].child, tree->nodes[1].child, .state = home};
    for (;;) {
        if (level->child == level->end) {
            if (level-- == c->a->levels) return tern_terms_check(t, c->err);
            continue;
        }
        const uint32_t at = level->child++;
        const tern_tree_node *child = &tree->nodes[at];
        const tern_term to = tern_term_step(t, level->state, child->byte);
        if (!to) continue;
        const bool has_ended = tern_term_is_nullable(t, to);
        const uint32_t n_chars = level->terms + (level->state == home && !has_ended);
        TERN_TRY(count_node(c, at, has_ended, n_chars));
        if (has_ended || child[0].child == child[1].child) continue;
        *++level = (tern_walk_level){child[0].child, child[1].child, .state = to, .terms = n_chars};
    }
}

void tern_string_tokens_free(tern_string_tokens *s) {
    tern_free(s->all);
    tern_free(s->inside);
    tern_free(s->ended);
    tern_free(s->exits);
    *s = (tern_string_tokens){0};
}

static tern_status find_tokens(tern_automaton *a, tern_term one, tern_string_tokens *s,
                               tern_error *err) {
    tern_terms *t = &a->terms;
    const size_t bytes = a->vocab->n_words * sizeof *s->all;
    const tern_term home =
        tern_term_cat(t, tern_term_repeat(t, one, 0, TERN_NO_LIMIT), tern_term_byte(t, '"'));
    TERN_TRY(tern_terms_check(t, err));
    bool done; // it always is
    TERN_TRY(tern_open_walk(a, TERN_TREE_PLAIN, home, UINT64_MAX, &done, err));
    TERN_TRY(count_special(&(counting){.a = a, .s = s, .err = err}, home));
    s->all = tern_alloc(TERN_MEM_SESSION, bytes);
    if (!s->all) return tern_fail_memory(err, bytes);
    memcpy(s->all, a->more, bytes);
    memset(a->more, 0, bytes);
    a->bytes += bytes + (s->n_inside + s->n_ended + s->n_exits) * sizeof(tern_counted);
    return TERN_OK;
}

static tern_status find_kind(tern_automaton *a, tern_term one, const tern_string_tokens **out,
                             tern_error *err) {
    for (size_t i = 0; i < a->n_strings; i++)
        if (a->strings[i].one == one) {
            *out = &a->strings[i].tokens;
            return TERN_OK;
        }
    if (tern_array_reserve(TERN_MEM_SESSION, &a->strings, &a->strings_capacity, a->n_strings, 1))
        return tern_fail_memory(err, a->n_strings * sizeof *a->strings);
    tern_string_kind *k = &a->strings[a->n_strings];
    *k = (tern_string_kind){.one = one};
    const tern_status status = find_tokens(a, one, &k->tokens, err);
    if (status != TERN_OK) {
        tern_string_tokens_free(&k->tokens);
        return status;
    }
    a->n_strings++;
    *out = &k->tokens;
    return TERN_OK;
}

void tern_string_free_kinds(tern_automaton *a) {
    for (size_t i = 0; i < a->n_strings; i++) tern_string_tokens_free(&a->strings[i].tokens);
    tern_free(a->strings);
    tern_free(a->lengths);
    a->strings = NULL;
    a->lengths = NULL;
    a->n_strings = a->strings_capacity = a->lengths_capacity = 0;
}

// Uses an automaton for the string alone.
tern_status tern_vocab_tree_find_string(tern_vocab_tree *v, tern_error *err) {
    tern_automaton *a = NULL;
    TERN_TRY(tern_automaton_begin(&a, 0, v, err));
    const tern_term one = tern_term_any_code(&a->terms, TERN_SPELL_JSON);
    tern_status status = find_tokens(a, one, &v->string, err);
    v->bytes += a->bytes;
    tern_automaton_close(a);
    return status;
}

// ---- Strings with limits ------------------------------------------------------------------------

bool tern_string_is_counted(tern_automaton *a, tern_term term, tern_counted_string *out) {
    tern_terms *t = &a->terms;
    if (!a->any_char || t->nodes[term].kind != TERN_KIND_CAT) return false;
    const tern_term quote = tern_term_byte(t, '"'); // may move the nodes
    const tern_term_node *n = &t->nodes[term], *head = &t->nodes[n->a];
    if (n->b != quote || head->kind != TERN_KIND_REPEAT) return false;
    *out = (tern_counted_string){.one = head->a, .min = head->b, .max = head->c};
    if (out->one == a->any_char) return true;
    for (size_t i = 0; i < a->n_strings; i++)
        if (a->strings[i].one == out->one) return true;
    return out->max >= LONG && is_one_character(t, out->one);
}

tern_term tern_string_like(tern_automaton *a, tern_term term) {
    tern_terms *t = &a->terms;
    const tern_term_node n = t->nodes[term];
    if (n.kind != TERN_KIND_CAT || t->nodes[n.a].kind != TERN_KIND_BOTH) return TERN_TERM_NOTHING;
    const tern_term_node both = t->nodes[n.a];
    tern_counted_string s;
    tern_term rest = TERN_TERM_NOTHING;
    for (uint32_t i = 0; i < both.b; i++) {
        tern_term member = t->lists[both.a + i];
        if (t->nodes[member].kind == TERN_KIND_NOT) continue;
        if (rest) return TERN_TERM_NOTHING; // most tokens would differ
        rest = member;
    }
    const tern_term like = tern_term_cat(t, rest, n.b);
    // If tokens were longer than the string may be, both counts would go on, and the terms differ.
    if (!tern_string_is_counted(a, like, &s) || s.one != a->any_char || s.max < a->vocab->depth_max)
        return TERN_TERM_NOTHING;
    return like;
}

tern_status tern_string_find(tern_automaton *a, const tern_counted_string *c, const uint64_t **base,
                             tern_list *gone, tern_error *err) {
    const tern_vocab_tree *v = a->vocab;
    const tern_string_tokens *s = &v->string;
    if (c->one != a->any_char) TERN_TRY(find_kind(a, c->one, &s, err));
    const size_t n_over = c->max < v->depth_max ? v->n_over[c->max] : 0;
    for (size_t i = 0; i < n_over; i++) {
        const uint32_t id = v->by_chars[i];
        if (s->all[id >> 6] >> (id & 63) & 1) TERN_TRY(tern_list_add(gone, id, err));
    }
    for (size_t i = 0; i < s->n_inside; i++)
        if (s->inside[i].n_chars > c->max) TERN_TRY(tern_list_add(gone, s->inside[i].what, err));
    for (size_t i = 0; i < s->n_ended; i++)
        if (s->ended[i].n_chars < c->min || s->ended[i].n_chars > c->max)
            TERN_TRY(tern_list_add(gone, s->ended[i].what, err));
    for (size_t i = 0; i < s->n_exits; i++)
        if (s->exits[i].n_chars >= c->min && s->exits[i].n_chars <= c->max)
            TERN_TRY(tern_list_add(&a->exits, s->exits[i].what, err));
    *base = s->all;
    return TERN_OK;
}

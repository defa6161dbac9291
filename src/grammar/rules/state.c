// States: closures over the network, and tables of the states and follow sets met before.
#include "grammar/rules/state.h"

#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"

#define UP_NEAR ((uint32_t)1 << 31) // + the index of a set among the adjacent ones
#define UP_OPEN ((uint32_t)3 << 30) // while sets are being found: + the rule

static bool give_up(tern_states *s, tern_status why) {
    if (!s->failed) s->status = why;
    s->failed = true;
    return false;
}

#define RESERVE(s, array, capacity, n, more)                                                       \
    reserve(s, (void **)(array), capacity, n, more, sizeof **(array))
static bool reserve(tern_states *s, void **array, size_t *capacity, size_t n, size_t more,
                    size_t each) {
    size_t had = *capacity;
    if (n + more <= had) return true;
    if (s->failed) return false;
    if (s->bytes_max && s->bytes > s->bytes_max) return give_up(s, TERN_ERR_UNSUPPORTED);
    if (tern_array_reserve_(TERN_MEM_SESSION, array, capacity, n, more, each) != 0)
        return give_up(s, TERN_ERR_MEMORY);
    s->bytes += (*capacity - had) * each;
    return true;
}

static bool grow_slots(tern_states *s, uint32_t **slots, size_t *n_slots, size_t n,
                       uint64_t (*hash)(const tern_states *s, size_t i)) {
    if (*slots && n * 2 < *n_slots) return true;
    size_t more = *n_slots ? *n_slots * 2 : 256;
    uint32_t *grown = tern_alloc_array(TERN_MEM_SESSION, more, sizeof *grown);
    if (!grown) return give_up(s, TERN_ERR_MEMORY);
    for (size_t i = 0; i < n; i++) {
        size_t at = hash(s, i) & (more - 1);
        while (grown[at]) at = (at + 1) & (more - 1);
        grown[at] = (uint32_t)i + 1;
    }
    s->bytes += (more - *n_slots) * sizeof *grown;
    tern_free(*slots);
    *slots = grown;
    *n_slots = more;
    return true;
}

// ---- Follow sets --------------------------------------------------------------------------------

static int by_frame(const void *a, const void *b) {
    const tern_frame *x = a, *y = b;
    if (x->node != y->node) return x->node < y->node ? -1 : 1;
    return x->up < y->up ? -1 : x->up > y->up;
}

static uint64_t hash_frames(const tern_frame *f, size_t n) {
    return tern_hash64(n, f, n * sizeof *f);
}
static uint64_t hash_of_up(const tern_states *s, size_t i) {
    return hash_frames(s->frames + s->ups[i].at, s->ups[i].n);
}

static bool new_up(tern_states *s, tern_span frames, uint32_t base) {
    if (!RESERVE(s, &s->ups, &s->ups_capacity, s->n_ups, 1) ||
        !RESERVE(s, &s->up_bases, &s->bases_capacity, s->n_ups, 1))
        return false;
    s->ups[s->n_ups] = frames;
    s->up_bases[s->n_ups++] = base;
    return true;
}

static size_t sort_frames(tern_frame *f, size_t n) {
    size_t m = 0;
    if (n > 1) qsort(f, n, sizeof *f, by_frame);
    for (size_t i = 0; i < n; i++)
        if (m == 0 || by_frame(&f[m - 1], &f[i]) != 0) f[m++] = f[i];
    return m;
}

// The follow set of the frames at the end of s->frames, from `at` on.
static uint32_t intern_up(tern_states *s, size_t at) {
    size_t n = sort_frames(s->frames + at, s->n_frames - at);
    s->n_frames = at + n;
    if (s->failed || !grow_slots(s, &s->up_slots, &s->n_up_slots, s->n_ups, hash_of_up)) return 0;
    size_t mask = s->n_up_slots - 1, slot = hash_frames(s->frames + at, n) & mask;
    for (; s->up_slots[slot]; slot = (slot + 1) & mask) {
        uint32_t up = s->up_slots[slot] - 1;
        if (s->up_bases[up] == up && s->ups[up].n == n &&
            memcmp(s->frames + s->ups[up].at, s->frames + at, n * sizeof *s->frames) == 0) {
            s->n_frames = at;
            return up;
        }
    }
    if (!new_up(s, (tern_span){(uint32_t)at, (uint32_t)n}, (uint32_t)s->n_ups)) return 0;
    s->up_slots[slot] = (uint32_t)s->n_ups;
    return (uint32_t)s->n_ups - 1;
}

static bool add_frame(tern_states *s, tern_frame f) {
    if (!RESERVE(s, &s->frames, &s->frames_capacity, s->n_frames, 1)) return false;
    s->frames[s->n_frames++] = f;
    return true;
}

// ---- Closures -----------------------------------------------------------------------------------

static bool push(tern_states *s, uint32_t node, uint32_t up) {
    if (!s->rules->nodes[node].has_text) return true;
    if (!RESERVE(s, &s->todo, &s->todo_capacity, s->n_todo, 1)) return false;
    s->terms->work++;
    s->todo[s->n_todo++] = (tern_frame){node, up};
    return true;
}

// Whether the thread is new in this closure.
static bool is_new(tern_states *s, tern_frame f) {
    if (s->n_seen * 2 >= s->n_seen_slots) {
        size_t more = s->n_seen_slots ? s->n_seen_slots * 2 : 256;
        tern_frame *seen = tern_alloc_array(TERN_MEM_SESSION, more, sizeof *seen);
        uint32_t *round = tern_alloc_array(TERN_MEM_SESSION, more, sizeof *round);
        if (!seen || !round) {
            tern_free(seen);
            tern_free(round);
            return give_up(s, TERN_ERR_MEMORY);
        }
        for (size_t i = 0; i < s->n_seen_slots; i++) {
            if (s->seen_round[i] != s->round) continue;
            size_t at = tern_mix64((uint64_t)s->seen[i].node << 32 | s->seen[i].up) & (more - 1);
            while (round[at] == s->round) at = (at + 1) & (more - 1);
            seen[at] = s->seen[i];
            round[at] = s->round;
        }
        tern_free(s->seen);
        tern_free(s->seen_round);
        s->seen = seen;
        s->seen_round = round;
        s->n_seen_slots = more;
    }
    size_t mask = s->n_seen_slots - 1, at = tern_mix64((uint64_t)f.node << 32 | f.up) & mask;
    for (; s->seen_round[at] == s->round; at = (at + 1) & mask)
        if (s->seen[at].node == f.node && s->seen[at].up == f.up) return false;
    s->seen[at] = f;
    s->seen_round[at] = s->round;
    s->n_seen++;
    return true;
}

static bool add_config(tern_states *s, tern_term term, uint32_t node, uint32_t up) {
    if (!RESERVE(s, &s->found, &s->found_capacity, s->n_found, 1)) return false;
    s->found[s->n_found++] = (tern_config){term, node, up};
    return true;
}

static bool add_call(tern_states *s, tern_rule rule, tern_frame f) {
    if (!RESERVE(s, &s->calls, &s->calls_capacity, s->n_calls, 1)) return false;
    s->calls[s->n_calls++] = (tern_call){rule, f};
    return true;
}

static bool call(tern_states *s, const tern_net_node *n, uint32_t up) {
    const tern_net_node *start = &s->rules->nodes[s->rules->rules[n->a].start];
    if (start->is_empty && !push(s, n->b, up)) return false;
    // A call at the end of a rule returns where the rule returns: so right-recursive lists need no
    // growing stack.
    if (n->b != TERN_NODE_RETURN || up >= UP_NEAR) return add_call(s, n->a, (tern_frame){n->b, up});
    for (uint32_t i = 0; i < s->ups[up].n; i++) {
        tern_frame f = s->frames[s->ups[up].at + i];
        if (f.up >= UP_NEAR) f.up = s->up_bases[up] + (f.up - UP_NEAR);
        if (!add_call(s, n->a, f)) return false;
    }
    return true;
}

// Advances all threads to where a text or a rule begins. Returns are followed only for rules that
// began earlier: if a rule is empty, its caller has gone on already.
static bool run(tern_states *s, bool returns) {
    while (s->n_todo && !s->failed && tern_terms_work(s->terms, 1)) {
        tern_frame f = s->todo[--s->n_todo];
        if (!is_new(s, f)) continue;
        const tern_net_node *n = &s->rules->nodes[f.node];
        bool ok = true;
        switch ((tern_net_kind)n->kind) {
        case TERN_NET_ACCEPT: s->accepts = true; break;
        case TERN_NET_RETURN:
            for (uint32_t i = 0; returns && i < s->ups[f.up].n && ok; i++) {
                tern_frame back = s->frames[s->ups[f.up].at + i];
                if (back.up >= UP_NEAR) back.up = s->up_bases[f.up] + (back.up - UP_NEAR);
                ok = push(s, back.node, back.up);
            }
            break;
        case TERN_NET_TERM:
            if (tern_term_goes_on(s->terms, n->a)) ok = add_config(s, n->a, n->b, f.up);
            if (ok && tern_term_is_nullable(s->terms, n->a)) ok = push(s, n->b, f.up);
            break;
        case TERN_NET_EITHER:
            for (uint32_t i = 0; i < n->b && ok; i++) ok = push(s, s->rules->lists[n->a + i], f.up);
            break;
        case TERN_NET_CALL: ok = call(s, n, f.up); break;
        }
    }
    return !tern_states_failed(s);
}

// ---- Calls --------------------------------------------------------------------------------------

static uint32_t group_of(const tern_states *s, const tern_call *c) {
    return s->rules->rules[c->rule].group;
}

// Puts new calls into the heap.
static void heap_calls(tern_states *s) {
    while (s->n_heap < s->n_calls) {
        const tern_call c = s->calls[s->n_heap];
        size_t i = s->n_heap++;
        for (; i > 0 && group_of(s, &s->calls[(i - 1) / 2]) > group_of(s, &c); i = (i - 1) / 2)
            s->calls[i] = s->calls[(i - 1) / 2];
        s->calls[i] = c;
    }
}

static tern_call pop_call(tern_states *s) {
    const tern_call top = s->calls[0], c = s->calls[--s->n_heap];
    size_t i = 0;
    for (size_t k = 1; k < s->n_heap; k = 2 * i + 1) {
        if (k + 1 < s->n_heap && group_of(s, &s->calls[k + 1]) < group_of(s, &s->calls[k])) k++;
        if (group_of(s, &s->calls[k]) >= group_of(s, &c)) break;
        s->calls[i] = s->calls[k];
        i = k;
    }
    s->calls[i] = c;
    s->n_calls = s->n_heap;
    return top;
}

static bool take_call(tern_states *s, tern_call c) {
    if (!RESERVE(s, &s->taken, &s->taken_capacity, s->n_taken, 1)) return false;
    s->taken[s->n_taken++] = c;
    return true;
}

// Takes the calls of a group among those added since the `from`th.
static bool take_added(tern_states *s, uint32_t group, size_t *from) {
    size_t m = *from;
    for (size_t i = *from; i < s->n_calls; i++) {
        if (group_of(s, &s->calls[i]) != group)
            s->calls[m++] = s->calls[i];
        else if (!take_call(s, s->calls[i]))
            return false;
    }
    *from = s->n_calls = m;
    return true;
}

// Enters a rule that cannot begin with itself: all its callers are known.
static bool enter_rule(tern_states *s) {
    const tern_rule rule = s->taken[0].rule;
    const size_t at = s->n_frames;
    for (size_t i = 0; i < s->n_taken; i++)
        if (!add_frame(s, s->taken[i].frame)) return false;
    uint32_t up = intern_up(s, at);
    return !s->failed && push(s, s->rules->rules[rule].start, up) && run(s, false);
}

static int by_call(const void *a, const void *b) {
    const tern_call *x = a, *y = b;
    if (x->rule != y->rule) return x->rule < y->rule ? -1 : 1;
    return by_frame(&x->frame, &y->frame);
}

static int by_rule(const void *a, const void *b) {
    const tern_rule x = *(const tern_rule *)a, y = *(const tern_rule *)b;
    return x < y ? -1 : x > y;
}

// While a group's follow sets are being found, that of a rule is UP_OPEN + the rule; this makes it
// base + the rule's index among the members.
static uint32_t settle(const tern_states *s, uint32_t up, uint32_t base) {
    if (up < UP_OPEN) return up;
    const tern_rule rule = up - UP_OPEN;
    const tern_rule *at = bsearch(&rule, s->members, s->n_members, sizeof rule, by_rule);
    return at ? base + (uint32_t)(at - s->members) : up;
}

// Appends the content of all sets of the group, as one list: for each frame its member, then the
// frame.
static bool add_content(tern_states *s) {
    size_t member = 0;
    for (size_t i = 0; i < s->n_taken; i++) {
        while (s->members[member] != s->taken[i].rule) member++;
        tern_frame f = s->taken[i].frame;
        f.up = settle(s, f.up, UP_NEAR);
        if (!add_frame(s, (tern_frame){(uint32_t)member, UP_OPEN}) || !add_frame(s, f))
            return false;
    }
    return true;
}

// Makes the sets of the members, which are adjacent; calls are sorted by rule. Returns the first.
static uint32_t intern_group(tern_states *s) {
    const size_t key = s->n_frames, first_up = s->n_ups;
    // The sets of a group are looked up by their whole content.
    if (!add_content(s)) return 0;
    size_t n_frames = s->n_frames - key;
    uint64_t hash = hash_frames(s->frames + key, n_frames);
    if (!grow_slots(s, &s->up_slots, &s->n_up_slots, s->n_ups, hash_of_up)) return 0;
    size_t mask = s->n_up_slots - 1, slot = hash & mask;
    for (; s->up_slots[slot]; slot = (slot + 1) & mask) {
        uint32_t up = s->up_slots[slot] - 1;
        if (s->up_bases[up] != up && s->ups[up].n == n_frames &&
            memcmp(s->frames + s->ups[up].at, s->frames + key, n_frames * sizeof *s->frames) == 0) {
            s->n_frames = key;
            return s->up_bases[up];
        }
    }
    // The content first, as the key; then the members' sets.
    const uint32_t base = (uint32_t)first_up + 1;
    if (!new_up(s, (tern_span){(uint32_t)key, (uint32_t)n_frames}, base)) return 0;
    s->up_slots[slot] = (uint32_t)s->n_ups;
    for (size_t m = 0, i = 0; m < s->n_members; m++) {
        const size_t from = s->n_frames;
        for (; i < s->n_taken && s->frames[key + 2 * i].node == m; i++)
            if (!add_frame(s, s->frames[key + 2 * i + 1])) return 0;
        if (!new_up(s, (tern_span){(uint32_t)from, (uint32_t)(s->n_frames - from)}, base)) return 0;
    }
    return base;
}

// Enters rules that may begin with each other: their callers are known once no new call comes.
static bool enter_group(tern_states *s, uint32_t group) {
    const size_t from = s->n_found;
    size_t added = s->n_calls, n = 0;
    s->n_members = 0;
    for (size_t i = 0; i < s->n_taken;) {
        for (; i < s->n_taken; i++) {
            const tern_rule rule = s->taken[i].rule;
            if (s->rule_round[rule] == s->round) continue;
            s->rule_round[rule] = s->round;
            if (!RESERVE(s, &s->members, &s->members_capacity, s->n_members, 1)) return false;
            s->members[s->n_members++] = rule;
            if (!push(s, s->rules->rules[rule].start, UP_OPEN + rule)) return false;
        }
        if (!run(s, false) || !take_added(s, group, &added)) return false;
    }
    qsort(s->members, s->n_members, sizeof *s->members, by_rule);
    qsort(s->taken, s->n_taken, sizeof *s->taken, by_call);
    for (size_t i = 0; i < s->n_taken; i++)
        if (n == 0 || by_call(&s->taken[n - 1], &s->taken[i]) != 0) s->taken[n++] = s->taken[i];
    s->n_taken = n;
    const uint32_t base = intern_group(s);
    if (s->failed) return false;
    for (size_t i = from; i < s->n_found; i++) s->found[i].up = settle(s, s->found[i].up, base);
    for (size_t i = s->n_heap; i < s->n_calls; i++)
        s->calls[i].frame.up = settle(s, s->calls[i].frame.up, base);
    return true;
}

// Turns threads into configurations. Callers come before the rules that they call, so that each
// rule is entered once, with all its callers.
static bool close_over(tern_states *s) {
    if (!run(s, true)) return false;
    for (heap_calls(s); s->n_heap; heap_calls(s)) {
        const uint32_t group = group_of(s, &s->calls[0]);
        const bool recursive = s->rules->rules[s->calls[0].rule].is_left_recursive;
        s->n_taken = 0;
        while (s->n_heap && group_of(s, &s->calls[0]) == group)
            if (!take_call(s, pop_call(s))) return false;
        if (!(recursive ? enter_group(s, group) : enter_rule(s))) return false;
    }
    return true;
}

// ---- The table of states ------------------------------------------------------------------------

static int by_config(const void *a, const void *b) {
    const tern_config *x = a, *y = b;
    if (x->node != y->node) return x->node < y->node ? -1 : 1;
    if (x->up != y->up) return x->up < y->up ? -1 : 1;
    return x->term < y->term ? -1 : x->term > y->term;
}

static uint64_t hash_configs(const tern_config *c, size_t n, bool accepts) {
    return tern_hash64(accepts, c, n * sizeof *c);
}
static uint64_t hash_of_state(const tern_states *s, size_t i) {
    const tern_state_info *f = &s->infos[i];
    return hash_configs(s->configs + f->configs.at, f->configs.n, f->accepts);
}

// The state of s->found and s->accepts.
static tern_gstate intern(tern_states *s) {
    size_t n = 0;
    if (s->n_found > 1) qsort(s->found, s->n_found, sizeof *s->found, by_config);
    for (size_t i = 0; i < s->n_found; i++)
        if (n == 0 || by_config(&s->found[n - 1], &s->found[i]) != 0) s->found[n++] = s->found[i];
    s->n_found = n;
    if (!grow_slots(s, &s->slots, &s->n_slots, s->n_infos, hash_of_state)) return TERN_STATE_DEAD;
    size_t mask = s->n_slots - 1, at = hash_configs(s->found, n, s->accepts) & mask;
    for (; s->slots[at]; at = (at + 1) & mask) {
        const tern_state_info *f = &s->infos[s->slots[at] - 1];
        if (f->accepts == s->accepts && f->configs.n == n &&
            (n == 0 || memcmp(s->configs + f->configs.at, s->found, n * sizeof *s->found) == 0))
            return s->slots[at] - 1;
    }
    if (!RESERVE(s, &s->infos, &s->infos_capacity, s->n_infos, 1) ||
        !RESERVE(s, &s->configs, &s->configs_capacity, s->n_configs, n))
        return TERN_STATE_DEAD;
    tern_state_info info = {.configs = {(uint32_t)s->n_configs, (uint32_t)n},
                            .accepts = s->accepts};
    for (size_t i = 0; i < n; i++) {
        const tern_byteset *first = tern_term_first(s->terms, s->found[i].term);
        for (int k = 0; k < 4; k++) info.first.w[k] |= first->w[k];
        s->configs[s->n_configs++] = s->found[i];
    }
    s->infos[s->n_infos] = info;
    s->slots[at] = (uint32_t)++s->n_infos;
    return (tern_gstate)s->n_infos - 1;
}

static void begin(tern_states *s) {
    s->n_todo = s->n_calls = s->n_heap = s->n_found = s->n_seen = 0;
    s->accepts = false;
    if (++s->round == 0) { // the marks of 2^32 closures ago would look like this one's
        if (s->seen_round) memset(s->seen_round, 0, s->n_seen_slots * sizeof *s->seen_round);
        memset(s->rule_round, 0, s->rules->n_rules * sizeof *s->rule_round);
        s->round = 1;
    }
}

static tern_gstate finish(tern_states *s) {
    if (tern_states_failed(s)) return TERN_STATE_DEAD;
    return close_over(s) && !tern_states_failed(s) ? intern(s) : TERN_STATE_DEAD;
}

// Adds a configuration whose term is now `to`.
static bool add_moved(tern_states *s, const tern_config *c, tern_term to) {
    s->terms->work++;
    if (to == TERN_TERM_NOTHING) return true;
    if (tern_term_goes_on(s->terms, to) && !add_config(s, to, c->node, c->up)) return false;
    return !tern_term_is_nullable(s->terms, to) || push(s, c->node, c->up);
}

tern_gstate tern_state_of_terms(tern_states *s, tern_gstate state, const tern_term *terms) {
    const tern_span span = s->infos[state].configs;
    begin(s);
    for (uint32_t i = 0; i < span.n && !s->failed; i++) {
        const tern_config c = s->configs[span.at + i];
        add_moved(s, &c, terms[i]);
    }
    return finish(s);
}

tern_gstate tern_state_after(tern_states *s, const tern_config *configs, size_t n) {
    begin(s);
    for (size_t i = 0; i < n && !s->failed; i++) push(s, configs[i].node, configs[i].up);
    return finish(s);
}

tern_gstate tern_state_of(tern_states *s, const tern_config *configs, size_t n) {
    begin(s);
    for (size_t i = 0; i < n && !s->failed; i++)
        add_config(s, configs[i].term, configs[i].node, configs[i].up);
    return finish(s);
}

// ---- Steps --------------------------------------------------------------------------------------

static bool grow_steps(tern_states *s) {
    if (s->n_steps * 2 < s->n_step_slots) return true;
    size_t more = s->n_step_slots ? s->n_step_slots * 2 : 256;
    uint64_t *keys = tern_alloc_array(TERN_MEM_SESSION, more, sizeof *keys);
    tern_gstate *to = tern_alloc_array(TERN_MEM_SESSION, more, sizeof *to);
    if (!keys || !to) {
        tern_free(keys);
        tern_free(to);
        return give_up(s, TERN_ERR_MEMORY);
    }
    for (size_t i = 0; i < s->n_step_slots; i++) {
        if (!s->step_keys[i]) continue;
        size_t at = tern_mix64(s->step_keys[i]) & (more - 1);
        while (keys[at]) at = (at + 1) & (more - 1);
        keys[at] = s->step_keys[i];
        to[at] = s->step_to[i];
    }
    s->bytes += (more - s->n_step_slots) * (sizeof *keys + sizeof *to);
    tern_free(s->step_keys);
    tern_free(s->step_to);
    s->step_keys = keys;
    s->step_to = to;
    s->n_step_slots = more;
    return true;
}

tern_gstate tern_state_step(tern_states *s, tern_gstate state, unsigned byte) {
    if (!tern_byteset_has(&s->infos[state].first, byte)) return TERN_STATE_DEAD;
    const uint64_t key = ((uint64_t)state << 8 | byte) + 1;
    if (tern_states_failed(s) || !grow_steps(s)) return TERN_STATE_DEAD;
    size_t mask = s->n_step_slots - 1, at = tern_mix64(key) & mask;
    for (; s->step_keys[at]; at = (at + 1) & mask)
        if (s->step_keys[at] == key) return s->step_to[at];
    const tern_span span = s->infos[state].configs;
    begin(s);
    for (uint32_t i = 0; i < span.n && !s->failed; i++) {
        const tern_config c = s->configs[span.at + i];
        add_moved(s, &c, tern_term_step(s->terms, c.term, byte));
    }
    tern_gstate to = finish(s);
    if (tern_states_failed(s)) return TERN_STATE_DEAD;
    s->step_keys[at] = key;
    s->step_to[at] = to;
    s->n_steps++;
    return to;
}

// ---- Beginning and end --------------------------------------------------------------------------

tern_status tern_states_open(tern_states *s, tern_rules *rules, size_t bytes_max, tern_error *err) {
    *s = (tern_states){.rules = rules, .terms = rules->terms, .bytes_max = bytes_max};
    s->rule_round = tern_alloc_array(TERN_MEM_SESSION, rules->n_rules, sizeof *s->rule_round);
    if (!s->rule_round) return tern_fail_memory(err, rules->n_rules * sizeof *s->rule_round);
    begin(s);
    tern_gstate dead = intern(s);
    // The follow set of the whole text: nothing returns to it.
    if (!s->failed) new_up(s, (tern_span){0, 0}, 0);
    begin(s);
    push(s, rules->root, 0);
    s->start = finish(s);
    if (!tern_states_failed(s) && (dead != TERN_STATE_DEAD || s->start == TERN_STATE_DEAD))
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "no text satisfies the grammar");
    return tern_states_check(s, err);
}

void tern_states_close(tern_states *s) {
    tern_free(s->infos);
    tern_free(s->slots);
    tern_free(s->configs);
    tern_free(s->ups);
    tern_free(s->up_bases);
    tern_free(s->up_slots);
    tern_free(s->frames);
    tern_free(s->step_keys);
    tern_free(s->step_to);
    tern_free(s->todo);
    tern_free(s->seen);
    tern_free(s->seen_round);
    tern_free(s->calls);
    tern_free(s->taken);
    tern_free(s->members);
    tern_free(s->rule_round);
    tern_free(s->found);
    *s = (tern_states){0};
}

tern_status tern_states_check(const tern_states *s, tern_error *err) {
    if (!s->failed) return tern_terms_check(s->terms, err);
    if (s->status == TERN_ERR_MEMORY) return tern_fail_memory(err, s->bytes);
    return tern_fail(err, s->status, "the grammar takes more than %zu MB: it is too complicated",
                     s->bytes_max >> 20);
}

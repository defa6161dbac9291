// Private to the grammar folder: the state of a text in a grammar.
//
// A configuration is a term whose text is being read, the network node after it, and what follows
// when that rule returns. A state is the set of all configurations possible after the text so far;
// equal sets always have the same number. What follows a rule is a set, too: of all places that
// called it at the same byte (Tomita's graph-structured stack, Earley's item sets). So an ambiguous
// grammar costs no more than its rules times the places where they began.
#ifndef TERN_GRAMMAR_STATE_H
#define TERN_GRAMMAR_STATE_H

#include "grammar/rules/rules.h"

typedef uint32_t tern_gstate;
#define TERN_STATE_DEAD ((tern_gstate)0)

typedef struct tern_frame {
    uint32_t node, up; // the node to go on at, and the follow set after that
} tern_frame;

typedef struct tern_config {
    tern_term term;
    uint32_t node; // after it
    uint32_t up;
} tern_config;

// A list, n elements from `at` on, in an array that holds all lists of its kind.
typedef struct tern_span {
    uint32_t at, n;
} tern_span;

typedef struct tern_state_info {
    tern_span configs;
    bool accepts;
    tern_byteset first; // no other byte may come
} tern_state_info;

typedef struct tern_call {
    tern_rule rule;
    tern_frame frame;
} tern_call;

typedef struct tern_states {
    tern_rules *rules;
    tern_terms *terms;
    tern_state_info *infos; // 0 is the dead one
    size_t n_infos, infos_capacity;
    uint32_t *slots; // hash table, + 1
    size_t n_slots;
    tern_config *configs;
    size_t n_configs, configs_capacity;
    // Follow sets, each a list of frames. Sets of rules that begin with each other refer to each
    // other: such sets are adjacent, and their frames have UP_NEAR (state.c) + the index of the set
    // among these. 0 is the end of the text.
    tern_span *ups;
    uint32_t *up_bases; // the first of adjacent sets
    size_t n_ups, ups_capacity, bases_capacity;
    uint32_t *up_slots;
    size_t n_up_slots;
    tern_frame *frames;
    size_t n_frames, frames_capacity;
    // Steps that were taken: keys are state << 8 | byte, + 1.
    uint64_t *step_keys;
    tern_gstate *step_to;
    size_t n_steps, n_step_slots;
    size_t bytes, bytes_max;
    // Scratch of a closure.
    tern_frame *todo; // threads: a node and a follow set
    size_t n_todo, todo_capacity;
    tern_frame *seen; // hash set of threads
    uint32_t *seen_round;
    size_t n_seen, n_seen_slots;
    uint32_t round;
    tern_call *calls; // a heap by the group of the rule, then those that were added since
    size_t n_heap, n_calls, calls_capacity;
    tern_call *taken; // those of the group that is being entered
    size_t n_taken, taken_capacity;
    tern_rule *members; // its rules
    size_t n_members, members_capacity;
    uint32_t *rule_round; // [n_rules] the last round in which it became a member
    tern_config *found;
    size_t n_found, found_capacity;
    bool accepts;
    tern_gstate start;
    bool failed;
    tern_status status;
} tern_states;

tern_status tern_states_open(tern_states *s, tern_rules *rules, size_t bytes_max, tern_error *err);
void tern_states_close(tern_states *s);
tern_status tern_states_check(const tern_states *s, tern_error *err);

// Memory ran out, or work was given up (tern_terms_allow).
static inline bool tern_states_failed(const tern_states *s) {
    return s->failed || s->terms->failed;
}

tern_gstate tern_state_step(tern_states *s, tern_gstate state, unsigned byte);
// The state that has the configurations of `state` with other terms, [n of its configs]; a
// configuration with NOTHING is dropped. Adds what follows the terms that may end.
tern_gstate tern_state_of_terms(tern_states *s, tern_gstate state, const tern_term *terms);
// The state after the terms of n configurations; `configs` must not point into s->configs.
tern_gstate tern_state_after(tern_states *s, const tern_config *configs, size_t n);
// The state of n configurations alone.
tern_gstate tern_state_of(tern_states *s, const tern_config *configs, size_t n);

static inline bool tern_state_accepts(const tern_states *s, tern_gstate state) {
    return s->infos[state].accepts;
}

#endif

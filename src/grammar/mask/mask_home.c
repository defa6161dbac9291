// Homes: terms that many characters lead back to. Most patterns have some: a search waits for a
// letter, a word goes on. At a home a walk need not look at the nodes one by one: it goes on to the
// next byte that leads away.
#include <string.h>
#include "base/alloc.h"
#include "grammar/mask/mask_open.h"

// Whether n continuation bytes, the first of them low to high, lead from a term to `home`.
static bool leads_back(tern_terms *t, tern_term a, int n, unsigned low, unsigned high,
                       tern_term home) {
    tern_term last = TERN_TERM_NOTHING;
    for (unsigned byte = low; byte <= high; byte++) {
        const tern_term to = tern_term_step(t, a, byte);
        if (!to) return false;
        if (to == last) continue;
        if (n == 1 ? to != home : !leads_back(t, to, n - 1, 0x80, 0xBF, home)) return false;
        last = to;
    }
    return true;
}

// The same for all characters of several bytes with this first byte, which led to `via`.
static bool stays_after(tern_terms *t, tern_term via, unsigned byte, tern_term home) {
    const unsigned low = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
    const unsigned high = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
    return leads_back(t, via, 1 + (byte >= 0xE0) + (byte >= 0xF0), low, high, home);
}

static bool find_stays(tern_terms *t, tern_term home, uint8_t *stays) {
    unsigned n = 0;
    memset(stays, 0, 256);
    for (unsigned byte = 0x20; byte < 0x80; byte++) {
        stays[byte] = tern_term_step(t, home, byte) == home;
        n += stays[byte];
    }
    if (n == 0) return false;
    memset(stays + 0x80, 1, 0x40);
    tern_term via = TERN_TERM_NOTHING;
    for (unsigned byte = 0xC2; byte <= 0xF4; byte++) {
        const tern_term to = tern_term_step(t, home, byte);
        // E0, ED, F0 and F4 have shorter ranges of second bytes, so a result for their neighbours
        // does not hold for them.
        const bool is_cut = byte == 0xE0 || byte == 0xED || byte == 0xF0 || byte == 0xF4;
        if (to && to == via && !is_cut && byte != 0xC2 && byte != 0xE1 && byte != 0xEE &&
            byte != 0xF1)
            stays[byte] = stays[byte - 1];
        else
            stays[byte] = to && stays_after(t, to, byte, home);
        via = to;
    }
    return !t->failed;
}

// Whether most nodes of the tree are skipped: otherwise looking at all of them is faster.
static bool is_worth(const tern_flat_tree *f, const uint8_t *stays) {
    size_t n = 0;
    for (int byte = 0; byte < 256; byte++) n += stays[byte] ? f->n_of[byte] : 0;
    return n >= f->n - f->n / 4;
}

const uint8_t *tern_open_home(tern_automaton *a, tern_term term) {
    if (term >= a->home_of_capacity || !a->home_of[term]) {
        if (tern_array_reserve(TERN_MEM_SESSION, &a->home_of, &a->home_of_capacity, term, 1) ||
            tern_array_reserve(TERN_MEM_SESSION, &a->homes, &a->homes_capacity, a->n_homes, 1))
            return NULL;
        uint8_t *stays = a->homes[a->n_homes].stays;
        const bool is_home = find_stays(&a->terms, term, stays) && is_worth(&a->vocab->flat, stays);
        if (a->terms.failed) return NULL;
        a->home_of[term] = is_home ? (uint32_t)a->n_homes++ + 2 : 1;
        if (is_home) a->bytes += sizeof *a->homes;
    }
    return a->home_of[term] < 2 ? NULL : a->homes[a->home_of[term] - 2].stays;
}

void tern_open_free_homes(tern_automaton *a) {
    tern_free(a->homes);
    tern_free(a->home_of);
    a->homes = NULL;
    a->home_of = NULL;
    a->n_homes = a->homes_capacity = a->home_of_capacity = 0;
}

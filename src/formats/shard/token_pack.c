// Whole documents into windows: best fit decreasing. The longest are placed first, each into the
// fullest window that has room for it, or into a new one (Johnson 1973: at most 11/9 of the fewest
// windows and a few). Equal documents keep their order, so the same documents always give the same
// windows.
#include <string.h>
#include "base/alloc.h"
#include "formats/shard/shard_private.h"

// ---- Which amounts of room there are ------------------------------------------------------------

// A set of numbers that finds the next greater one in a few steps: bit i of a level says whether
// word i of the level below holds any.
#define LEVELS 5 // of 64 bits each: 2^30 numbers

typedef struct room_set {
    uint64_t *levels[LEVELS], *words;
} room_set;

static bool open_rooms(room_set *s, uint32_t n) {
    size_t counts[LEVELS], n_words = 0, left = (size_t)n + 1;
    for (int i = 0; i < LEVELS; i++) {
        left = (left + 63) / 64;
        counts[i] = left;
        n_words += left;
    }
    s->words = tern_alloc_array(TERN_MEM_FILE, n_words, sizeof *s->words);
    if (!s->words) return false;
    for (int i = 0; i < LEVELS; i++) s->levels[i] = i ? s->levels[i - 1] + counts[i - 1] : s->words;
    return true;
}

static void put_room(room_set *s, uint32_t x) {
    for (int i = 0; i < LEVELS; i++, x /= 64) s->levels[i][x / 64] |= (uint64_t)1 << x % 64;
}

static void take_room(room_set *s, uint32_t x) {
    for (int i = 0; i < LEVELS; i++, x /= 64) {
        s->levels[i][x / 64] &= ~((uint64_t)1 << x % 64);
        if (s->levels[i][x / 64]) return;
    }
}

// The least number that is at least x; UINT32_MAX: there is none.
static uint32_t find_room(const room_set *s, uint32_t x, uint32_t n) {
    for (int i = 0; i < LEVELS && x <= n; i++) {
        uint64_t word = s->levels[i][x / 64] >> x % 64;
        if (word) {
            x += (uint32_t)__builtin_ctzll(word);
            for (; i > 0; i--) x = x * 64 + (uint32_t)__builtin_ctzll(s->levels[i - 1][x]);
            return x;
        }
        x = x / 64 + 1; // of the level above: nothing more in this word
        n /= 64;
    }
    return UINT32_MAX;
}

// ---- Placing ------------------------------------------------------------------------------------

typedef struct packer {
    const uint32_t *lengths;
    uint32_t n, capacity;
    room_set rooms;
    uint32_t *heads;     // [capacity + 1] a window with this much room, and 1; 0: none
    uint32_t *next;      // [n] of a window: another one with as much, and 1
    uint32_t *order;     // [n] the documents, longest first
    uint32_t *window_of; // [n]
    uint32_t n_windows;
} packer;

// A counting sort.
static void sort_documents(packer *p) {
    uint32_t *counts = p->heads, at = 0;
    for (uint32_t i = 0; i < p->n; i++) counts[p->lengths[i]]++;
    for (uint32_t length = p->capacity + 1; length-- > 0;) {
        uint32_t n = counts[length];
        counts[length] = at;
        at += n;
    }
    for (uint32_t i = 0; i < p->n; i++) p->order[counts[p->lengths[i]]++] = i;
    memset(counts, 0, ((size_t)p->capacity + 1) * sizeof *counts);
}

static void place(packer *p, uint32_t document) {
    uint32_t length = p->lengths[document], room = find_room(&p->rooms, length, p->capacity);
    uint32_t window = p->n_windows;
    if (room == UINT32_MAX) {
        p->n_windows++;
        room = p->capacity;
    } else {
        window = p->heads[room] - 1;
        p->heads[room] = p->next[window];
        if (!p->heads[room]) take_room(&p->rooms, room);
    }
    p->window_of[document] = window;
    room -= length;
    if (room == 0) return;
    if (!p->heads[room]) put_room(&p->rooms, room);
    p->next[window] = p->heads[room];
    p->heads[room] = window + 1;
}

static bool open_packer(packer *p) {
    p->heads = tern_alloc_array(TERN_MEM_FILE, (size_t)p->capacity + 1, sizeof *p->heads);
    p->next = tern_alloc_array(TERN_MEM_FILE, (size_t)p->n + 1, sizeof *p->next);
    p->order = tern_alloc_array(TERN_MEM_FILE, (size_t)p->n + 1, sizeof *p->order);
    p->window_of = tern_alloc_array(TERN_MEM_FILE, (size_t)p->n + 1, sizeof *p->window_of);
    return open_rooms(&p->rooms, p->capacity) && p->heads && p->next && p->order && p->window_of;
}

static void close_packer(packer *p) {
    tern_free(p->heads);
    tern_free(p->next);
    tern_free(p->order);
    tern_free(p->window_of);
    tern_free(p->rooms.words);
}

// Lists each window's documents, in their order.
static tern_status list_windows(const packer *p, tern_token_pack *out, tern_error *err) {
    out->firsts = tern_alloc_array(TERN_MEM_FILE, (size_t)p->n_windows + 2, sizeof *out->firsts);
    out->documents = tern_alloc_array(TERN_MEM_FILE, (size_t)p->n + 1, sizeof *out->documents);
    if (!out->firsts || !out->documents) return tern_fail_memory(err, (size_t)p->n * 8);
    uint32_t *at = out->firsts + 1; // at[w] becomes the end of window w
    for (uint32_t i = 0; i < p->n; i++) at[p->window_of[i] + 1]++;
    for (uint32_t w = 1; w < p->n_windows; w++) at[w] += at[w - 1];
    for (uint32_t i = 0; i < p->n; i++) out->documents[at[p->window_of[i]]++] = i;
    out->n_windows = p->n_windows;
    return TERN_OK;
}

tern_status tern_token_pack_make(tern_token_pack *out, const uint32_t *lengths, uint32_t n,
                                 uint32_t capacity, tern_error *err) {
    packer p = {.lengths = lengths, .n = n, .capacity = capacity};
    *out = (tern_token_pack){0};
    bool ok = open_packer(&p);
    tern_status status = ok ? TERN_OK : tern_fail_memory(err, (size_t)n * 12);
    if (ok) {
        sort_documents(&p);
        for (uint32_t i = 0; i < n; i++) place(&p, p.order[i]);
        status = list_windows(&p, out, err);
    }
    close_packer(&p);
    if (status != TERN_OK) tern_token_pack_free(out);
    return status;
}

void tern_token_pack_free(tern_token_pack *pack) {
    tern_free(pack->documents);
    tern_free(pack->firsts);
    *pack = (tern_token_pack){0};
}

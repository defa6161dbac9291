// A sequence has the bits that it has alone and fresh, whatever happens around it: random
// schedules of pieces of prompts, steps, drafts that are refused, forks, cuts, swaps, sequences
// that end, runs that fail after they have changed states, failing allocations. A family is one row
// of the table.
//
// Seen to fail with: pages that are written while shared; a window that gives back one page more;
// fixed states that are not restored, not copied by a fork, or taken from a run that failed;
// snapshots one position late; a swap that forgets a page (tests/mutants/list); rows stored beyond
// the end of a page, or to the page of the chunk before theirs.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "tests/support/harness.h"
#include "runtime/runtime.h"

typedef struct family {
    const char *name, *path;
    tern_kv_type kv_type;
} family;
static const family families[] = {
    {"bitnet", "tests/oracles/bitnet_packed", TERN_KV_F32},
    {"llama", "tests/oracles/llama", TERN_KV_F16},
    {"qwen3", "tests/oracles/qwen3/model.gguf", TERN_KV_F32},
    {"qwen3.5", "tests/oracles/qwen35/model.gguf", TERN_KV_F16}, // delta nets
    {"qwen3.5 grouped", "tests/oracles/qwen35_grouped/model.gguf", TERN_KV_F32},
    {"lfm2", "tests/oracles/lfm2/model.gguf", TERN_KV_F32},          // convolutions
    {"gemma3", "tests/oracles/gemma3/model.gguf", TERN_KV_F16},      // windows
    {"qwen3 moe", "tests/oracles/qwen3moe/model.gguf", TERN_KV_F32}, // experts
    {"lfm2 moe", "tests/oracles/lfm2moe/model.gguf", TERN_KV_F32},
    {"granite hybrid", "tests/oracles/granitehybrid/model.gguf", TERN_KV_F16},
    {"falcon-h1", "tests/oracles/falcon_h1/model.gguf", TERN_KV_F32}, // state spaces
    {"gemma4", "tests/oracles/gemma4/model.gguf", TERN_KV_F16},       // shared keys and values
};

enum {
    N_TIMELINES = 7, // at a time
    N_POSITIONS = 200,
    N_BATCH = 48, // less than what may be missing: that takes batches of its own
    N_DRAFT = 5,
    N_ACTIONS = 260,
};

typedef struct timeline {
    tern_lease *lease; // NULL: there is none
    int32_t n;         // positions computed, the same as the ids' that the lease was told
    int32_t n_known;   // positions whose bits are known
    int32_t ids[N_POSITIONS];
    uint64_t bits[N_POSITIONS]; // of the logits after each
} timeline;

typedef struct schedule {
    const family *family;
    tern_model *model;
    size_t n_vocab;
    uint32_t random;
    timeline lines[N_TIMELINES];
    float *logits;                                          // [N_BATCH, n_vocab]
    int32_t run[N_TIMELINES][N_BATCH];                      // what a batch is told
    size_t n_failed, n_forks, n_again, n_swaps, n_compared; // so that each is part of it
    bool ok;
} schedule;

static uint32_t draw(schedule *s, uint32_t n) { // 0 .. n - 1
    s->random = s->random * 1664525u + 1013904223u;
    return (s->random >> 8) % n;
}

// ---- A backend that fails now and then, after it has computed ----------------------------------

static uint32_t fails; // state of the draws; 0: never
static size_t n_fails;

static tern_status submit_or_fail(tern_instance *i, const tern_batch *b, tern_error *err) {
    TERN_TRY(tern_backend_cpu.submit(i, b, err));
    fails = fails * 1664525u + 1013904223u;
    if (fails >> 29) return TERN_OK; // seven of eight
    n_fails++;
    return tern_fail(err, TERN_ERR_MEMORY, "the test lets the run fail");
}

// ---- Actions -----------------------------------------------------------------------------------

static void fill(schedule *s, timeline *t, int32_t first) {
    for (int32_t i = first; i < N_POSITIONS; i++)
        t->ids[i] = (int32_t)draw(s, (uint32_t)s->n_vocab);
    if (t->n_known > first) t->n_known = first;
}

static void check(schedule *s, bool ok, const char *what) {
    s->ok &= ok;
    if (!ok) test_check(false, __FILE__, __LINE__, "%s: %s", s->family->name, what);
}

static void begin_anew(schedule *s, timeline *t) {
    tern_error err = {0};
    tern_lease_close(t->lease);
    *t = (timeline){0};
    fill(s, t, 0);
    check(s, tern_lease_open(&t->lease, s->model, N_POSITIONS, s->family->kv_type, &err) == TERN_OK,
          err.message);
}

static void fork_line(schedule *s, timeline *from, timeline *to) {
    tern_error err = {0};
    if (from == to || from->n == 0) return;
    begin_anew(s, to);
    int32_t n = draw(s, 3) ? from->n : 1 + (int32_t)draw(s, (uint32_t)from->n);
    if (tern_lease_fork(from->lease, n, to->lease, &err) != TERN_OK) return; // memory
    memcpy(to->ids, from->ids, (size_t)n * sizeof *to->ids);
    memcpy(to->bits, from->bits, (size_t)n * sizeof *to->bits);
    to->n = n;
    to->n_known = n < from->n_known ? n : from->n_known;
    s->n_forks++;
}

// Rows of the batch that hold what the timeline says: their bits are kept, or compared.
static void take_rows(schedule *s, timeline *t, const float *rows, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        uint64_t bits = tern_hash64(1, rows + (size_t)i * s->n_vocab, s->n_vocab * sizeof *rows);
        int32_t at = t->n + i;
        if (at < t->n_known) {
            check(s, t->bits[at] == bits, "a position that was computed again has other bits");
            s->n_again++;
        }
        t->bits[at] = bits;
        if (at >= t->n_known) t->n_known = at + 1;
    }
    t->n += n;
}

// One timeline's share of a batch; *n_right of its tokens are what the timeline says, the others a
// draft that is refused.
static tern_work plan(schedule *s, timeline *t, int32_t *run, int32_t room, int32_t *n_right) {
    static const int32_t pieces[] = {1, 1, 1, 7, 16, 33, 64};
    int32_t n = pieces[draw(s, 7)], left = N_POSITIONS - t->n, n_wrong = 0;
    if (n > left) n = left;
    if (n > room) n = room;
    *n_right = n;
    if (n == 1 && draw(s, 3) == 0) { // some of it right, the rest wrong
        int32_t most = left < room ? left : room;
        *n_right = 1 + (int32_t)draw(s, 3);
        if (*n_right > most) *n_right = most;
        n_wrong = most - *n_right < N_DRAFT ? most - *n_right : N_DRAFT;
    }
    tern_work w = {.lease = t->lease, .ids = run, .n_ids = *n_right + n_wrong, .first_pos = t->n};
    w.n_outputs = w.n_ids;
    memcpy(run, t->ids + t->n, (size_t)*n_right * sizeof *run);
    for (int32_t i = *n_right; i < w.n_ids; i++)
        run[i] = (t->ids[t->n + i] + 1) % (int32_t)s->n_vocab;
    if (n_wrong) { // as generation asks for it
        w.snapshot_at = t->n + 1;
        w.passing = true;
    } else if (draw(s, 3) == 0)
        w.snapshot_at = t->n + 1 + (int32_t)draw(s, (uint32_t)w.n_ids);
    return w;
}

static void compute(schedule *s) {
    tern_work works[N_TIMELINES];
    timeline *lines[N_TIMELINES];
    int32_t n_right[N_TIMELINES], n_works = 0, room = N_BATCH, row = 0;
    tern_error err = {0};
    for (int i = 0; i < N_TIMELINES; i++) {
        timeline *t = &s->lines[i];
        if (!t->lease || t->n == N_POSITIONS || room == 0 || draw(s, 2)) continue;
        lines[n_works] = t;
        works[n_works] = plan(s, t, s->run[n_works], room, &n_right[n_works]);
        room -= works[n_works++].n_ids;
    }
    if (n_works == 0) return;
    const tern_wants wanted = {.outputs = {"logits"}, .data = {s->logits}};
    if (draw(s, 12) == 0) tern_mem_fail_at(1 + draw(s, 6));
    tern_status status = tern_model_compute(s->model, works, n_works, &wanted, &err);
    tern_mem_fail_at(0);
    check(s, status == TERN_OK || status == TERN_ERR_MEMORY, err.message);
    s->n_failed += status != TERN_OK;
    for (int32_t i = 0; status == TERN_OK && i < n_works; i++) {
        take_rows(s, lines[i], s->logits + (size_t)row * s->n_vocab, n_right[i]);
        row += works[i].n_ids;
    }
}

static void act(schedule *s) {
    timeline *t = &s->lines[draw(s, N_TIMELINES)];
    tern_error err = {0};
    switch (draw(s, 16)) {
    case 0: fork_line(s, t, &s->lines[draw(s, N_TIMELINES)]); break;
    case 1: // goes back, to say the same or, from some place on, something else
        if (!t->lease || t->n == 0) break;
        t->n = (int32_t)draw(s, (uint32_t)t->n);
        if (draw(s, 2)) fill(s, t, t->n);
        break;
    case 2:
        if (!t->lease) break;
        if (draw(s, 2)) tern_lease_trim(t->lease);
        if (tern_lease_swap_out(t->lease, &err) == TERN_OK) s->n_swaps++;
        break;
    case 3:
        if (draw(s, 4)) break;
        begin_anew(s, t);
        break;
    default: compute(s);
    }
}

// Alone, fresh, one token at a time.
static void compare(schedule *s, const timeline *t) {
    tern_error err = {0};
    tern_lease *fresh;
    if (!t->lease || t->n_known == 0) return;
    if (tern_lease_open(&fresh, s->model, N_POSITIONS, s->family->kv_type, &err) != TERN_OK) {
        check(s, false, err.message);
        return;
    }
    const tern_wants wanted = {.outputs = {"logits"}, .data = {s->logits}};
    for (int32_t i = 0; i < t->n_known; i++) {
        const tern_work w = {
            .lease = fresh, .ids = t->ids + i, .n_ids = 1, .first_pos = i, .n_outputs = 1};
        check(s, tern_model_compute(s->model, &w, 1, &wanted, &err) == TERN_OK, err.message);
        bool same = tern_hash64(1, s->logits, s->n_vocab * sizeof *s->logits) == t->bits[i];
        s->n_compared++;
        if (!same) CHECK_MSG(false, "%s: position %d has other bits", s->family->name, (int)i);
        if (!s->ok || !same) break;
    }
    tern_lease_close(fresh);
}

static bool open_family(schedule *s, const family *f, tern_backend *backend) {
    tern_error err = {0};
    *s = (schedule){.family = f, .random = 1, .ok = true};
    const tern_model_desc desc = {.n_batch = N_BATCH, .n_threads = 1};
    bool ok = tern_model_open(&s->model, f->path, &desc, &err) == TERN_OK;
    CHECK_MSG(ok, "%s: %s", f->path, err.message);
    if (!ok) return false;
    tern_model_info info;
    tern_model_get_info(s->model, &info);
    s->n_vocab = (size_t)info.n_vocab;
    s->logits = malloc(N_BATCH * s->n_vocab * sizeof *s->logits);
    *backend = tern_backend_cpu;
    backend->submit = submit_or_fail;
    return s->logits != NULL;
}

static void run_schedule(schedule *s, uint32_t seed, const tern_backend *backend) {
    tern_placement *at = s->model->now;
    s->random = seed * 2654435761u + 7;
    fails = seed;
    at->backend = backend;
    for (int i = 0; i < N_TIMELINES; i++)
        if (i < 4) begin_anew(s, &s->lines[i]);
    for (int k = 0; s->ok && k < N_ACTIONS; k++) act(s);
    at->backend = &tern_backend_cpu;
    for (int i = 0; i < N_TIMELINES; i++) {
        if (s->ok) compare(s, &s->lines[i]);
        tern_lease_close(s->lines[i].lease);
        s->lines[i] = (timeline){0};
    }
    CHECK_MSG(s->ok, "%s: schedule %u", s->family->name, (unsigned)seed);
}

TEST(schedules_of_many_sequences_keep_the_bits_of_each) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        schedule s;
        tern_backend backend;
        if (!open_family(&s, &families[i], &backend)) return;
        size_t before = n_fails;
        for (uint32_t seed = 1; s.ok && seed <= (test_is_long() ? 200 : 5); seed++)
            run_schedule(&s, seed, &backend);
        CHECK_MSG(n_fails > before + 5 && s.n_failed > 10 && s.n_forks > 10 && s.n_swaps > 10 &&
                      s.n_again > 500 && s.n_compared > 2000,
                  "%s: %zu failed, %zu forks, %zu swaps, %zu again, %zu compared", families[i].name,
                  s.n_failed, s.n_forks, s.n_swaps, s.n_again, s.n_compared);
        free(s.logits);
        tern_model_close(s.model);
    }
}

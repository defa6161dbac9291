// Greedy steps of many sequences that run ahead of the host: whatever happens between two steps,
// each text is the one that its sequence generates alone, step by step, from rows of logits.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "kernels/webgpu/tests/gpu_rig_test.h"
#include "kernels/webgpu/run/gpu_instance.h"

enum { N_VOCAB = 200, EMBD = 128, MOST = 64, LENGTH = 40, N_ALONE = 9, N_PROMPT = 12 };

// Events between two steps, or beside one.
enum {
    FORK,
    SWAP,
    BACK,
    STAY_AWAY,
    SWAP_ROWS,
    ROWS_READ,
    TWO_WANTED,
    NO_ROOM,
    PIECE,
    PROMPT,
    N_EVENTS
};

typedef struct text {
    tern_sequence *sequence;            // NULL: it has ended, or does not run
    int32_t pos, length;                // the next position; where it ends
    const struct text *alone;           // that has the same tokens
    int32_t ids[LENGTH + 1];            // the token at each position
    rig_step want[LENGTH], got[LENGTH]; // after each position
} text;

typedef struct crowd {
    rig r;
    rig_machine m;
    uint32_t seed;
    int n, n_seeds;
    int32_t length, room; // of the longest text; positions reserved ahead
    text texts[MOST];
    int order[MOST];          // of the rows
    int32_t n_steps, n_ahead; // steps; those with others on their way already
    int32_t n_disturbed, n_events[N_EVENTS];
    int first_event;  // of those that happen
    int32_t n_passed; // prompts that left the steps ahead in place
    bool hides;       // a prompt's kernels are still being compiled when it is submitted
    int32_t n_held;   // those that waited for them
    bool has_prompt;
    rig_step after_prompt; // its result alone
    size_t fail_at;        // the first allocation of all texts' steps that fails; 0: none
    int32_t n_short;       // steps that lacked memory
} crowd;

static int32_t pick(crowd *c, int32_t n) {
    c->seed = c->seed * 1664525u + 1013904223u;
    return (int32_t)((c->seed >> 8) % (uint32_t)n);
}

static void build(rig *r) {
    const tern_rope_attrs a = {.n_rot = 32, .halves = true, .base = 1e4, .factor = 1};
    const tern_attention_attrs how = {
        .n_heads = 4, .n_kv_heads = 2, .head_dim = 32, .scale = 0.01f};
    tern_vid w[4];
    rig_open(r, N_VOCAB);
    tern_vid x = rig_rows(r, EMBD, fill_normal);
    tern_vid n = tern_g_rms_norm(&r->g, x, rig_vector(r, EMBD, fill_normal), 1e-5f);
    for (int i = 0; i < 4; i++)
        w[i] = rig_matrix(r, i == 1 || i == 2 ? 64 : EMBD, EMBD, TERN_DTYPE_F32, true, fill_codes);
    tern_vid q = tern_g_rope(&r->g, tern_g_bitlinear(&r->g, n, w[0]), -1, 4, 32, &a);
    tern_vid k = tern_g_rope(&r->g, tern_g_bitlinear(&r->g, n, w[1]), -1, 2, 32, &a);
    tern_vid ks = tern_g_positional_state(&r->g, "k", 64, 0);
    tern_vid vs = tern_g_positional_state(&r->g, "v", 64, 0);
    tern_g_kv_store(&r->g, k, tern_g_bitlinear(&r->g, n, w[2]), ks, vs, 2, 32);
    tern_vid o = tern_g_attention(&r->g, q, ks, vs, &how);
    o = tern_g_rms_norm(&r->g, o, rig_vector(r, EMBD, fill_normal), 1e-5f);
    rig_head(r, tern_g_add(&r->g, x, tern_g_bitlinear(&r->g, o, w[3])), N_VOCAB, TERN_DTYPE_F16,
             fill_normal);
}

// ---- One batch ---------------------------------------------------------------------------------

typedef struct rows {
    tern_chunk chunks[MOST + 1];
    text *who[MOST];
    int32_t ids[MOST + N_PROMPT], outputs[MOST + 1], top_ids[2 * MOST + 1];
    float top_logits[2 * MOST + 1], logits[MOST * N_VOCAB];
    tern_batch b;
} rows;

static tern_status add_row(rows *x, text *t, int32_t room, tern_error *err) {
    int32_t n = x->b.n_tokens++;
    x->who[n] = t;
    x->ids[n] = t->ids[t->pos];
    x->chunks[n] = (tern_chunk){.sequence = t->sequence, .n_tokens = 1, .first_pos = t->pos};
    TERN_TRY(tern_sequence_swap_in(t->sequence, err));
    return tern_sequence_reserve(t->sequence, t->pos + 1 + room, err);
}

static rig_step greatest(const float *row) {
    rig_step best = {0, row[0]};
    for (int32_t i = 1; i < N_VOCAB; i++)
        if (row[i] > best.logit) best = (rig_step){i, row[i]};
    return best;
}

// Takes the tokens of n texts from the results, from output `first` on.
static void take(rows *x, int32_t k, int32_t n, int32_t first) {
    for (int32_t i = 0; i < n; i++) {
        text *t = x->who[i];
        int32_t at = k * (first + i);
        rig_step said =
            k ? (rig_step){x->top_ids[at], x->top_logits[at]} : greatest(x->logits + i * N_VOCAB);
        tern_sequence_advance(t->sequence, t->pos + 1);
        t->got[t->pos++] = said;
        if (t->pos % 13 != 12) t->ids[t->pos] = said.id; // else another token than the said one
    }
}

// k: how many of the greatest logits to request; 0: the rows.
static tern_status run(crowd *c, rows *x, int32_t k, tern_error *err) {
    tern_instance *in = c->m.single.instance;
    tern_batch *b = &x->b;
    int32_t n = b->n_tokens;
    b->ids = x->ids;
    b->chunks = x->chunks;
    b->n_chunks = b->n_outputs = b->n_tokens;
    b->wants.top_k = k;
    b->wants.top_ids = x->top_ids;
    b->wants.top_logits = x->top_logits;
    if (k == 0) tern_batch_bind(b, tern_graph_scores(&c->m.g), x->logits);
    tern_status status = c->m.b->submit(in, b, err);
    if (status != TERN_OK)
        for (int32_t i = 0; i < b->n_chunks; i++) tern_sequence_abandon(x->who[i]->sequence);
    c->n_ahead += in->steps.ahead.n > 0;
    for (bool done = false; status == TERN_OK && !done;) status = c->m.b->poll(in, &done, err);
    if (status == TERN_OK) take(x, k, n, 0);
    return status;
}

// Makes a kernel of prompts one that is still being compiled.
static gpu_compiled *hide(tern_instance *in) {
    tern_plan *p = in->plan;
    for (size_t i = 0; i < p->n_dispatches; i++) {
        gpu_compiled *c = p->dispatches[i].pipeline[in->cache];
        if (p->dispatches[i].kinds != GPU_PROMPTS || !c || !c->handle) continue;
        c->is_pending = true;
        p->is_made[in->cache] = false;
        return c;
    }
    return NULL;
}

// The same beside a prompt, which may end in this batch, before the texts' rows or after them.
static tern_status run_beside(crowd *c, rows *x, bool ends, bool first, tern_error *err) {
    tern_batch *b = &x->b;
    int32_t n = b->n_tokens, at = first ? 0 : n, k = 0;
    tern_sequence *prompt;
    TERN_TRY(tern_sequence_open(&prompt, c->m.single.cache, err));
    tern_status status = tern_sequence_reserve(prompt, N_PROMPT, err);
    if (first) {
        memmove(x->ids + N_PROMPT, x->ids, (size_t)n * sizeof *x->ids);
        memmove(x->chunks + 1, x->chunks, (size_t)n * sizeof *x->chunks);
    }
    for (int32_t i = 0; i < N_PROMPT; i++) x->ids[at + i] = (7 * i + 5) % N_VOCAB;
    x->chunks[at] = (tern_chunk){.sequence = prompt, .n_tokens = N_PROMPT};
    if (first && ends) x->outputs[k++] = N_PROMPT - 1;
    for (int32_t i = 0; i < n; i++) x->outputs[k++] = first ? N_PROMPT + i : i;
    if (!first && ends) x->outputs[k++] = n + N_PROMPT - 1;
    *b = (tern_batch){.ids = x->ids,
                      .n_tokens = n + N_PROMPT,
                      .chunks = x->chunks,
                      .n_chunks = n + 1,
                      .outputs = x->outputs,
                      .n_outputs = k,
                      .wants.top_k = 1,
                      .wants.top_ids = x->top_ids,
                      .wants.top_logits = x->top_logits};
    tern_instance *in = c->m.single.instance;
    gpu_compiled *hidden = c->hides ? hide(in) : NULL;
    wgpu_pipeline handle = hidden ? hidden->handle : NULL;
    if (hidden) hidden->handle = NULL;
    if (status == TERN_OK) status = c->m.b->submit(in, b, err);
    bool done = false;
    if (hidden && status == TERN_OK) {
        status = c->m.b->poll(in, &done, err);
        CHECK(!done);
        c->n_held += in->is_held;
        hidden->handle = handle;
        hidden->is_pending = false;
    }
    c->n_passed += in->passes_steps;
    while (status == TERN_OK && !done) status = c->m.b->poll(in, &done, err);
    if (status != TERN_OK)
        for (int32_t i = 0; i < n; i++) tern_sequence_abandon(x->who[i]->sequence);
    if (status == TERN_OK && ends) {
        int32_t row = first ? 0 : k - 1;
        const rig_step said = {x->top_ids[row], x->top_logits[row]};
        if (!c->has_prompt) c->after_prompt = said;
        c->has_prompt = true;
        CHECK_MSG(memcmp(&said, &c->after_prompt, sizeof said) == 0,
                  "%d texts: the prompt says %d, alone %d", n, said.id, c->after_prompt.id);
    }
    if (status == TERN_OK) take(x, 1, n, first && ends ? 1 : 0);
    tern_sequence_close(prompt);
    return status;
}

// ---- Texts -------------------------------------------------------------------------------------

static tern_status begin(crowd *c, text *t, int number, tern_error *err) {
    t->pos = 0;
    t->length = c->length - number % (c->length / 2);
    t->alone = &c->texts[number % N_ALONE];
    for (int32_t i = 0; i <= LENGTH; i++) t->ids[i] = (number % N_ALONE * 17 + 3 + i) % N_VOCAB;
    return tern_sequence_open(&t->sequence, c->m.single.cache, err);
}

static void end(text *t) {
    tern_sequence_close(t->sequence);
    t->sequence = NULL;
}

static tern_status say_alone(crowd *c, rows *x, tern_error *err) {
    c->has_prompt = false;
    x->b = (tern_batch){0};
    TERN_TRY(run_beside(c, x, true, true, err));
    for (int i = 0; i < c->n && i < N_ALONE; i++) {
        text *t = &c->texts[i];
        TERN_TRY(begin(c, t, i, err));
        while (t->pos < c->length) {
            x->b = (tern_batch){0};
            TERN_TRY(add_row(x, t, 0, err));
            TERN_TRY(run(c, x, 0, err));
        }
        memcpy(t->want, t->got, sizeof t->want);
        end(t);
    }
    return TERN_OK;
}

// One of the events (above), to one text or to all.
static tern_status disturb(crowd *c, text *t, int event, tern_error *err) {
    tern_sequence *other;
    int32_t left;
    c->n_events[event]++;
    switch (event) {
    case FORK:
        TERN_TRY(tern_sequence_swap_in(t->sequence, err));
        TERN_TRY(tern_sequence_fork(t->sequence, t->pos, &other, err));
        tern_sequence_close(t->sequence);
        t->sequence = other;
        return TERN_OK;
    case SWAP: return tern_sequence_swap_out(t->sequence, err);
    case BACK:
        TERN_TRY(tern_sequence_swap_in(t->sequence, err));
        TERN_TRY(tern_sequence_cut(t->sequence, t->pos > 5 ? t->pos - 5 : 0, &left, err));
        t->pos = left;
        return TERN_OK;
    case SWAP_ROWS:
        left = c->order[0];
        memmove(c->order, c->order + 1, ((size_t)c->n - 1) * sizeof *c->order);
        c->order[c->n - 1] = left;
        return TERN_OK;
    default: return TERN_OK;
    }
}

// Runs all texts together until each has ended. every: steps from one event to the next, on
// average; 0: no events.
static tern_status say_together(crowd *c, rows *x, int32_t every, tern_error *err) {
    for (int i = 0; i < c->n; i++) {
        memset(c->texts[i].got, 0, sizeof c->texts[i].got);
        TERN_TRY(begin(c, &c->texts[i], i, err));
        c->order[i] = i;
    }
    tern_mem_fail_at(c->fail_at);
    for (;; c->n_steps++) {
        int event = every && pick(c, every) == 0
                        ? c->first_event + c->n_disturbed++ % (N_EVENTS - c->first_event)
                        : -1;
        text *t = &c->texts[pick(c, c->n)];
        if (event >= 0 && t->sequence) TERN_TRY(disturb(c, t, event, err));
        x->b = (tern_batch){0};
        tern_status status = TERN_OK;
        for (int i = 0; i < c->n && status == TERN_OK; i++) {
            text *each = &c->texts[c->order[i]];
            bool away = event == STAY_AWAY && each == t && c->n > 1;
            if (!each->sequence || away) continue;
            status = add_row(x, each, event == NO_ROOM ? 0 : c->room, err);
        }
        if (x->b.n_tokens == 0 && event == STAY_AWAY) continue;
        if (x->b.n_tokens == 0) return TERN_OK;
        int32_t k = event == ROWS_READ ? 0 : event == TWO_WANTED ? 2 : 1;
        bool beside = event == PIECE || event == PROMPT;
        if (status == TERN_OK && beside)
            status = run_beside(c, x, event == PROMPT, pick(c, 2), err);
        else if (status == TERN_OK)
            status = run(c, x, k, err);
        c->n_short += status == TERN_ERR_MEMORY;
        if (status == TERN_ERR_MEMORY)
            tern_mem_fail_at(0); // it can be tried again
        else
            TERN_TRY(status);
        for (int i = 0; i < c->n; i++)
            if (c->texts[i].sequence && c->texts[i].pos == c->texts[i].length) end(&c->texts[i]);
    }
}

static void compare(const crowd *c, const char *what, int32_t number) {
    for (int i = 0; i < c->n; i++) {
        const text *t = &c->texts[i];
        int32_t k = 0;
        while (k < t->length && memcmp(&t->got[k], &t->alone->want[k], sizeof *t->got) == 0) k++;
        CHECK_MSG(k == t->length, "%d texts, %s %d: text %d says something else at %d", c->n, what,
                  (int)number, i, (int)k);
        if (k < t->length) return;
    }
}

static tern_status check(crowd *c, rows *x, tern_error *err) {
    TERN_TRY(say_alone(c, x, err));
    c->n_steps = c->n_ahead = 0;
    c->m.single.instance->steps.seconds_max = INFINITY;
    TERN_TRY(say_together(c, x, 0, err));
    compare(c, "undisturbed", 0);
    CHECK_MSG(c->n_ahead * 5 >= c->n_steps * 2, "%d texts: %d of %d steps ahead", c->n,
              (int)c->n_ahead, (int)c->n_steps);
    for (int seed = 0; seed < c->n_seeds; seed++) {
        c->seed = (uint32_t)(seed + 1);
        // One step per submission, or as many as allowed.
        c->m.single.instance->steps.seconds_max = seed % 2 ? 0 : INFINITY;
        TERN_TRY(say_together(c, x, 2 + seed % 2, err));
        compare(c, "seed", seed);
        c->first_event = PIECE;
        TERN_TRY(say_together(c, x, 4, err));
        compare(c, "beside prompts, seed", seed);
        c->first_event = 0;
    }
    return TERN_OK;
}

// Sets up a test: n texts of this length, on a device.
static tern_status set_up(crowd *c, rig_device device, int n, int32_t length, int32_t room,
                          tern_error *err) {
    c->n = n;
    c->length = length;
    c->room = room;
    c->r.screens = n == 2 || n == 9; // the others' heads are computed in full
    return rig_set_up(&c->m, &c->r, device, true, MOST + N_PROMPT, LENGTH + 17, TERN_KV_F16, err);
}

static void take_down(crowd *c) {
    for (int k = 0; k < c->n; k++) end(&c->texts[k]);
    rig_take_down(&c->m);
}

// Seen to fail: with the tokens of sequences that left still among the others', with those of the
// first sequence alone, with results of every step in the same place, with rows of one submission
// in those of the next, with tokens that are not compared, and with pages that do not exist.
TEST(gpu_steps_of_many_sequences_ahead) {
    // Finding the greatest of a row takes a software adapter 20 ms.
    static const struct {
        int n, n_seeds;
        int32_t length, room;
    } cases[] = {{1, 1, 36, 8}, {2, 1, 12, 4}, {9, 1, 8, 3}, {MOST, 0, 4, 2}};
    bool all = test_is_long();
    crowd *c = calloc(1, sizeof *c);
    rows *x = calloc(1, sizeof *x);
    if (!c || !x) abort();
    tern_error err = {0};
    int end_device = all ? RIG_DEVICES : RIG_GPU_LEAST;
    if (rig_has_gpu()) {
        build(&c->r);
        for (int device = RIG_GPU; device < end_device; device++)
            for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                int32_t length = all ? LENGTH : cases[i].length;
                tern_status status =
                    set_up(c, (rig_device)device, cases[i].n, length, cases[i].room, &err);
                c->n_seeds = all ? 4 : cases[i].n_seeds;
                if (status == TERN_OK) status = check(c, x, &err);
                CHECK_MSG(status == TERN_OK, "%s", err.message);
                take_down(c);
            }
        for (int i = 0; i < N_EVENTS; i++)
            CHECK_MSG(c->n_events[i] > 0, "event %d never happened", i);
        CHECK_MSG(c->n_passed > 0, "no prompt has passed steps that were ahead");
        rig_close(&c->r);
    }
    free(c);
    free(x);
}

// A batch with a prompt whose kernels are not compiled yet waits for them, although its steps are
// read already. Seen to fail where those answer it at once: then neither it nor the prompt is
// computed, and the last tokens are said again.
TEST(gpu_prompts_wait_for_their_kernels_beside_steps_ahead) {
    crowd *c = calloc(1, sizeof *c);
    rows *x = calloc(1, sizeof *x);
    if (!c || !x) abort();
    tern_error err = {0};
    if (rig_has_gpu()) {
        build(&c->r);
        tern_status status = set_up(c, RIG_GPU, 2, 12, 4, &err);
        if (status == TERN_OK) status = say_alone(c, x, &err);
        c->m.single.instance->steps.seconds_max = INFINITY;
        c->first_event = PIECE;
        c->seed = 1;
        c->hides = true;
        if (status == TERN_OK) status = say_together(c, x, 2, &err);
        CHECK_MSG(status == TERN_OK, "%s", err.message);
        compare(c, "beside prompts that wait", 0);
        CHECK(c->n_held > 0);
        take_down(c);
        rig_close(&c->r);
    }
    free(c);
    free(x);
}

// Memory runs out at each allocation in turn: fewer steps go ahead, or a step is tried again. Seen
// to fail where groups that could not be made are not noticed.
TEST(gpu_steps_ahead_survive_failing_allocations) {
    crowd *c = calloc(1, sizeof *c);
    rows *x = calloc(1, sizeof *x);
    if (!c || !x) abort();
    tern_error err = {0};
    if (rig_has_gpu()) {
        build(&c->r);
        for (size_t n = 0; n < (test_is_long() ? 40 : 20); n += n ? 1 : 4) {
            tern_status status = set_up(c, RIG_GPU, 2, 6, 8, &err);
            if (status == TERN_OK && n == 0) status = say_alone(c, x, &err);
            c->m.single.instance->steps.seconds_max = INFINITY;
            c->fail_at = n;
            if (status == TERN_OK) status = say_together(c, x, 0, &err);
            tern_mem_fail_at(0);
            CHECK_MSG(status == TERN_OK, "%s", err.message);
            compare(c, "allocation", (int32_t)n);
            take_down(c);
        }
        CHECK(c->n_short > 0);
        rig_close(&c->r);
    }
    free(c);
    free(x);
}

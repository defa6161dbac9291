// Many sequences in one cache: what each gets does not depend on the others, nor on how its tokens
// were cut into batches, nor on where its pages lie.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "kernels/webgpu/tests/gpu_rig_test.h"

#define N_ROWS   97
#define N_TEXTS  4
#define N_ACTORS 6
#define N_BATCH  150
#define LENGTH   100 // of a text: more than three pages

typedef struct text {
    int32_t n_prompt; // first tokens, in chunks of more than 8; the others come in smaller ones
    float *want;      // [LENGTH, n_shown]
} text;

typedef struct actor {
    tern_sequence *sequence; // NULL: not in use
    int text;
    int32_t pos;
} actor;

typedef struct stage {
    rig r;
    rig_machine m;
    uint32_t seed;
    text texts[N_TEXTS];
    actor actors[N_ACTORS];
    int64_t n_wrong, n_rows;
    bool is_recurrent; // has fixed states
    int32_t n_left;    // forks, swaps and cuts that are still to come
    int32_t n_forks, n_swaps, n_cuts, n_mixed, n_many, n_kept, n_back;
} stage;

static int32_t pick(stage *s, int32_t n) {
    s->seed = s->seed * 1664525u + 1013904223u;
    return (int32_t)((s->seed >> 8) % (uint32_t)n);
}

static int32_t token(int t, int32_t pos) {
    return (int32_t)((t * 31 + pos * 7 + pos * pos % 11 + 3) % N_ROWS);
}

static tern_status run(stage *s, tern_batch *b, tern_error *err) {
    const tern_backend *backend = s->m.b;
    for (int32_t i = 0; i < b->n_chunks; i++) {
        const tern_chunk *c = &b->chunks[i];
        TERN_TRY(tern_sequence_swap_in(c->sequence, err));
        TERN_TRY(tern_sequence_reserve(c->sequence, c->first_pos + c->n_tokens, err));
    }
    tern_status status = backend->submit(s->m.single.instance, b, err);
    for (bool done = false; status == TERN_OK && !done;)
        status = backend->poll(s->m.single.instance, &done, err);
    for (int32_t i = 0; status == TERN_OK && i < b->n_chunks; i++)
        tern_sequence_advance(b->chunks[i].sequence,
                              b->chunks[i].first_pos + b->chunks[i].n_tokens);
    return status;
}

// A text alone: its prompt whole, then token by token.
static tern_status run_alone(stage *s, int t, tern_error *err) {
    text *x = &s->texts[t];
    int32_t ids[LENGTH], n;
    tern_sequence *sequence;
    TERN_TRY(tern_sequence_open(&sequence, s->m.single.cache, err));
    tern_status status = TERN_OK;
    for (int32_t pos = 0; status == TERN_OK && pos < LENGTH; pos += n) {
        n = pos < x->n_prompt ? x->n_prompt : 1;
        for (int32_t i = 0; i < n; i++) ids[i] = token(t, pos + i);
        const tern_chunk chunk = {.sequence = sequence, .n_tokens = n, .first_pos = pos};
        tern_batch b = {.ids = ids, .n_tokens = n, .chunks = &chunk, .n_chunks = 1, .n_outputs = n};
        tern_batch_bind(&b, tern_graph_scores(&s->m.g), x->want + pos * s->r.n_shown);
        status = run(s, &b, err);
    }
    tern_sequence_close(sequence);
    return status;
}

// Whether an actor's prompt may be cut here: nothing is left of it, or a chunk of more than 8.
static bool may_stop_at(const stage *s, const actor *a, int32_t pos) {
    int32_t n_prompt = s->texts[a->text].n_prompt;
    return pos >= n_prompt || n_prompt - pos > 8;
}

static int32_t chunk_of(stage *s, const actor *a) {
    int32_t left = s->texts[a->text].n_prompt - a->pos, n;
    if (left <= 0) {
        n = 1 + (pick(s, 2) ? pick(s, 8) : 0);
        return n < LENGTH - a->pos ? n : LENGTH - a->pos;
    }
    do n = 9 + pick(s, left - 8);
    while (!may_stop_at(s, a, a->pos + n));
    return n;
}

typedef struct mixed {
    tern_chunk chunks[N_ACTORS];
    actor *who[N_ACTORS];
    int32_t ids[N_BATCH], outputs[N_BATCH], texts[N_BATCH], positions[N_BATCH];
    tern_batch b;
} mixed;

static void add_actor(stage *s, mixed *x, actor *a) {
    tern_batch *b = &x->b;
    int32_t n = chunk_of(s, a), wants = pick(s, 4);
    if (b->n_tokens + n > N_BATCH) return;
    x->chunks[b->n_chunks] =
        (tern_chunk){.sequence = a->sequence, .n_tokens = n, .first_pos = a->pos};
    x->who[b->n_chunks++] = a;
    for (int32_t i = 0; i < n; i++) {
        int32_t row = b->n_tokens++;
        x->ids[row] = token(a->text, a->pos + i);
        x->texts[row] = a->text;
        x->positions[row] = a->pos + i;
        // All rows, the last one, some, none.
        if (wants == 0 || (wants == 1 && i == n - 1) || (wants == 2 && pick(s, 2)))
            x->outputs[b->n_outputs++] = row;
    }
}

static void check_rows(stage *s, const mixed *x, const float *got) {
    size_t n = (size_t)s->r.n_shown;
    for (int32_t i = 0; i < x->b.n_outputs; i++, s->n_rows++) {
        int32_t row = x->outputs[i];
        const float *want = s->texts[x->texts[row]].want + (size_t)x->positions[row] * n;
        s->n_wrong += memcmp(got + (size_t)i * n, want, n * sizeof *want) != 0;
    }
}

// Most chunks remember their fixed states somewhere in them.
static tern_status remember(stage *s, mixed *x, tern_error *err) {
    for (int32_t i = 0; s->is_recurrent && i < x->b.n_chunks; i++) {
        tern_chunk *c = &x->chunks[i];
        int32_t n = 1 + pick(s, c->n_tokens);
        if (pick(s, 4) == 0 || !may_stop_at(s, x->who[i], c->first_pos + n)) continue;
        c->kept_after = n;
        TERN_TRY(tern_sequence_swap_in(c->sequence, err));
        TERN_TRY(tern_sequence_snapshot(c->sequence, c->first_pos + n, pick(s, 2) != 0, &c->kept,
                                        &c->keeps, err));
        s->n_kept += c->keeps;
    }
    return TERN_OK;
}

static tern_status step(stage *s, float *got, tern_error *err) {
    mixed x = {0};
    bool prompts = false, steps = false;
    int32_t first = pick(s, N_ACTORS), n_steps = 0;
    for (int i = 0; i < N_ACTORS; i++) {
        actor *a = &s->actors[(first + i) % N_ACTORS];
        if (a->sequence && a->pos < LENGTH && pick(s, 4)) add_actor(s, &x, a);
    }
    if (x.b.n_chunks == 0) return TERN_OK;
    for (int32_t i = 0; i < x.b.n_chunks; i++) {
        bool prompt = x.chunks[i].n_tokens > 8;
        prompts = prompts || prompt;
        steps = steps || !prompt;
        n_steps += prompt ? 0 : x.chunks[i].n_tokens;
    }
    s->n_mixed += prompts && steps;
    s->n_many += n_steps > 8;
    x.b.ids = x.ids;
    x.b.chunks = x.chunks;
    x.b.outputs = x.outputs;
    tern_batch_bind(&x.b, tern_graph_scores(&s->m.g), got);
    TERN_TRY(remember(s, &x, err));
    TERN_TRY(run(s, &x.b, err));
    check_rows(s, &x, got);
    for (int32_t i = 0; i < x.b.n_chunks; i++) x.who[i]->pos += x.chunks[i].n_tokens;
    return TERN_OK;
}

static actor *nobody(stage *s) {
    for (int i = 0; i < N_ACTORS; i++)
        if (!s->actors[i].sequence) return &s->actors[i];
    return NULL;
}

static tern_status disturb(stage *s, actor *a, tern_error *err) {
    actor *other = nobody(s);
    if (s->n_left == 0) return TERN_OK;
    int32_t n = pick(s, a->pos + 1);
    if (!may_stop_at(s, a, n)) n = a->pos;
    int what = pick(s, 12);
    s->n_left -= what < 3;
    switch (what) {
    case 0: s->n_swaps++; return tern_sequence_swap_out(a->sequence, err);
    case 1:
        s->n_cuts++;
        TERN_TRY(tern_sequence_swap_in(a->sequence, err));
        // Fixed states go back to the last snapshot, which is in front of n.
        if (s->is_recurrent) n = a->pos - (a->pos > 0);
        TERN_TRY(tern_sequence_cut(a->sequence, n, &a->pos, err));
        s->n_back += a->pos > 0 && !tern_sequence_cuts_freely(a->sequence);
        return TERN_OK;
    case 2:
        if (!other) return TERN_OK;
        s->n_forks++;
        *other = *a;
        other->sequence = NULL;
        TERN_TRY(tern_sequence_swap_in(a->sequence, err));
        TERN_TRY(tern_sequence_fork(a->sequence, n, &other->sequence, err));
        other->pos = tern_sequence_length(other->sequence);
        return TERN_OK;
    default: return TERN_OK;
    }
}

static tern_status play(stage *s, tern_error *err) {
    float *got = tern_alloc_array(TERN_MEM_MISC, (size_t)(N_BATCH * s->r.n_shown), sizeof *got);
    if (!got) abort();
    tern_status status = TERN_OK;
    s->n_left = 16;
    for (int t = 0; status == TERN_OK && t < N_TEXTS; t++) {
        s->actors[t].text = t;
        status = tern_sequence_open(&s->actors[t].sequence, s->m.single.cache, err);
    }
    for (bool ends = false; status == TERN_OK && !ends;) {
        status = step(s, got, err);
        ends = true;
        for (int i = 0; status == TERN_OK && i < N_ACTORS; i++) {
            actor *a = &s->actors[i];
            if (!a->sequence) continue;
            if (a->pos < LENGTH) {
                ends = false;
                status = disturb(s, a, err);
            } else { // its pages now belong to others
                tern_sequence_close(a->sequence);
                a->sequence = NULL;
            }
        }
    }
    for (int i = 0; i < N_ACTORS; i++) tern_sequence_close(s->actors[i].sequence);
    tern_free(got);
    return status;
}

// How a problem's rows go through random schedules, one for each seed.
static void check_schedules(stage *s, rig_device device, bool fused, tern_kv_type kv,
                            uint32_t n_seeds) {
    static const int32_t n_prompt[N_TEXTS] = {70, 0, 43, 12};
    tern_error err = {0};
    tern_status status = rig_set_up(&s->m, &s->r, device, fused, N_BATCH, LENGTH, kv, &err);
    for (int t = 0; status == TERN_OK && t < N_TEXTS; t++) {
        size_t n = (size_t)(LENGTH * s->r.n_shown);
        s->texts[t] = (text){n_prompt[t], tern_alloc_array(TERN_MEM_MISC, n, sizeof(float))};
        if (!s->texts[t].want) abort();
        status = run_alone(s, t, &err);
    }
    for (uint32_t seed = 1; status == TERN_OK && seed <= n_seeds; seed++) {
        s->seed = seed;
        status = play(s, &err);
    }
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    CHECK_MSG(s->n_wrong == 0, "device %d: %lld of %lld rows differ", device, (long long)s->n_wrong,
              (long long)s->n_rows);
    // Every kind of event happened.
    CHECK(s->n_rows > 100 && s->n_forks > 0 && s->n_swaps > 0 && s->n_cuts > 0);
    CHECK(s->n_mixed > 0 && s->n_many > 0);
    CHECK(!s->is_recurrent || (s->n_kept > 0 && s->n_back > 0));
    for (int t = 0; t < N_TEXTS; t++) tern_free(s->texts[t].want);
    rig_take_down(&s->m);
}

typedef struct shape {
    int32_t n_embd, n_heads, n_kv_heads, head_dim;
    int32_t window; // of one of two layers
    float soft_cap;
    bool ternary, recurrent; // recurrent: the second layer has fixed states
    bool in_groups;          // codes with a scale for each
    bool has_ends;           // norms after the first layer's blocks, a factor of the second's
} shape;

static tern_vid linear(rig *r, tern_vid x, const shape *h, int64_t n_out, int64_t n_in) {
    if (h->in_groups)
        return tern_g_linear(&r->g, x,
                             rig_matrix(r, n_out, n_in, TERN_DTYPE_Q2_0, false, fill_two_bits));
    tern_vid w = rig_matrix(r, n_out, n_in, h->ternary ? TERN_DTYPE_F32 : TERN_DTYPE_F16,
                            h->ternary, h->ternary ? fill_codes : fill_normal);
    return h->ternary ? tern_g_bitlinear(&r->g, x, w) : tern_g_linear(&r->g, x, w);
}

static tern_vid end_of(rig *r, const shape *h, tern_vid x, tern_vid y, int32_t number) {
    if (h->has_ends && number == 0)
        y = tern_g_rms_norm(&r->g, y, rig_vector(r, h->n_embd, fill_normal), 1e-5f);
    if (h->has_ends && number == 1) y = tern_g_scale(&r->g, y, 0.22f);
    return tern_g_add(&r->g, x, y);
}

static tern_vid layer(rig *r, const shape *h, tern_vid x, int32_t number) {
    tern_rope_attrs a = {.n_rot = h->head_dim, .halves = true, .base = 1e4, .factor = 1};
    int32_t window = number == 0 ? h->window : 0;
    int64_t q_dim = h->n_heads * h->head_dim, kv_dim = h->n_kv_heads * h->head_dim;
    char k_name[16], v_name[16];
    snprintf(k_name, sizeof k_name, "k%d", number);
    snprintf(v_name, sizeof v_name, "v%d", number);
    tern_vid n = tern_g_rms_norm(&r->g, x, rig_vector(r, h->n_embd, fill_normal), 1e-5f);
    tern_vid q = linear(r, n, h, q_dim, h->n_embd), k = linear(r, n, h, kv_dim, h->n_embd);
    tern_vid v = linear(r, n, h, kv_dim, h->n_embd);
    q = tern_g_rope(&r->g, q, -1, h->n_heads, h->head_dim, &a);
    k = tern_g_rope(&r->g, k, -1, h->n_kv_heads, h->head_dim, &a);
    tern_vid ks = tern_g_positional_state(&r->g, k_name, kv_dim, window);
    tern_vid vs = tern_g_positional_state(&r->g, v_name, kv_dim, window);
    tern_g_kv_store(&r->g, k, v, ks, vs, h->n_kv_heads, h->head_dim);
    tern_vid o = tern_g_attention(
        &r->g, q, ks, vs,
        &(tern_attention_attrs){.n_heads = h->n_heads,
                                .n_kv_heads = h->n_kv_heads,
                                .head_dim = h->head_dim,
                                .scale = 6 / ((float)h->n_embd * sqrtf((float)h->head_dim)),
                                .window = window,
                                .soft_cap = h->soft_cap});
    if (h->ternary) o = tern_g_rms_norm(&r->g, o, rig_vector(r, q_dim, fill_normal), 1e-5f);
    x = end_of(r, h, x, linear(r, o, h, h->n_embd, q_dim), number);
    n = tern_g_rms_norm(&r->g, x, rig_vector(r, h->n_embd, fill_normal), 1e-5f);
    int64_t n_ff = h->in_groups ? 3 * h->n_embd : 2 * h->n_embd + 4;
    tern_vid gate = linear(r, n, h, n_ff, h->n_embd), up = linear(r, n, h, n_ff, h->n_embd);
    tern_act_kind act = h->ternary ? TERN_ACTIVATION_RELU2 : TERN_ACTIVATION_SILU;
    n = tern_g_mul(&r->g, tern_g_act(&r->g, gate, act), up);
    if (h->ternary && number == 0)
        n = tern_g_rms_norm(&r->g, n, rig_vector(r, n_ff, fill_normal), 1e-5f);
    return end_of(r, h, x, linear(r, n, h, h->n_embd, n_ff), number);
}

static void fill_decay(float *x, int64_t n, int64_t row, uint32_t *seed) {
    (void)row;
    for (int64_t i = 0; i < n; i++) x[i] = -expf(3 * rig_random(seed) - 1);
}

// A convolution, a delta net, norms of its heads.
static tern_vid recurrent_layer(rig *r, const shape *h, tern_vid x) {
    enum { K_HEADS = 2, V_HEADS = 4, DIM = 16, COLS = 2 * K_HEADS * DIM + V_HEADS * DIM };
    tern_graph *g = &r->g;
    tern_vid n = tern_g_rms_norm(g, x, rig_vector(r, h->n_embd, fill_normal), 1e-5f);
    tern_vid qkv = linear(r, n, h, COLS, h->n_embd);
    tern_vid a = linear(r, n, h, V_HEADS, h->n_embd), b = linear(r, n, h, V_HEADS, h->n_embd);
    tern_vid tail = tern_g_fixed_state(g, "tail", 3, COLS);
    qkv = tern_g_depthwise_conv(g, qkv, rig_array(r, COLS, 4, fill_normal), -1, tail,
                                TERN_ACTIVATION_SILU);
    tern_vid state = tern_g_fixed_state(g, "delta", V_HEADS * DIM, DIM);
    tern_vid decay = rig_vector(r, V_HEADS, fill_decay), bias = rig_vector(r, V_HEADS, fill_normal);
    tern_vid y = tern_g_delta_net(g, qkv, a, b, decay, bias, state,
                                  &(tern_delta_attrs){.n_k_heads = K_HEADS,
                                                      .n_v_heads = V_HEADS,
                                                      .head_dim = DIM,
                                                      .v_dim = DIM,
                                                      .eps = 1e-6f});
    y = tern_g_rms_norm(g, y, rig_vector(r, DIM, fill_normal), 1e-6f);
    return tern_g_add(g, x, linear(r, y, h, h->n_embd, V_HEADS * DIM));
}

static void check_shape(const shape *h, tern_kv_type kv) {
    stage *s = calloc(1, sizeof *s);
    if (!s) abort();
    rig_open(&s->r, N_ROWS);
    tern_vid x = rig_rows(&s->r, h->n_embd, fill_normal);
    for (int32_t i = 0; i < 2; i++)
        x = h->recurrent && i == 1 ? recurrent_layer(&s->r, h, x) : layer(&s->r, h, x, i);
    rig_show(&s->r, x);
    s->is_recurrent = h->recurrent;
    int end = test_is_long() ? RIG_DEVICES : RIG_GPU_LEAST;
    for (int d = RIG_GPU; d < end; d++)
        check_schedules(s, (rig_device)d, true, kv, test_is_long() ? 6 : 1);
    rig_close(&s->r);
    free(s);
}

// The windows are so short that pages are left on the way. Seen to fail with longer prompts taken
// for steps, with the first row's pages for all, with the other group's pages, and with another
// number of threads for the rows act(gate) * up of many steps.
TEST(gpu_schedules_of_ternary_layers) {
    static const shape h = {128, 4, 2, 32, 9, 0, .ternary = true};
    if (rig_has_gpu()) check_shape(&h, TERN_KV_F16);
}

// Seen to fail with the blocks of a step added up in reverse in tiles.
TEST(gpu_schedules_of_layers_in_groups) {
    static const shape h = {128, 4, 2, 32, 9, 0, .in_groups = true};
    if (rig_has_gpu()) check_shape(&h, TERN_KV_F16);
}

// Norms after blocks, and factors of added values. Seen to fail with the factor left out for many
// rows.
TEST(gpu_schedules_of_layers_with_other_ends) {
    static const shape h = {128, 4, 2, 32, 9, 0, .in_groups = true, .has_ends = true};
    if (rig_has_gpu()) check_shape(&h, TERN_KV_F16);
}

TEST(gpu_schedules_of_float_layers) {
    static const shape h = {96, 3, 1, 48, .window = 17, .soft_cap = 5};
    if (rig_has_gpu()) check_shape(&h, TERN_KV_F32);
}

// With snapshots in the middle of chunks, which cuts and forks go back to. Seen to fail with a
// prompt's rows as if they were the first chunk's, and with the first slot for all.
TEST(gpu_schedules_of_recurrent_layers) {
    static const shape h = {96, 3, 1, 48, .recurrent = true};
    if (rig_has_gpu()) check_shape(&h, TERN_KV_F16);
}

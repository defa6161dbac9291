// Groups: what sessions say together is what each says alone; who waits for whom; what may happen
// in callbacks and between begin and poll; what memory it takes. Faults that the checks were
// written for stand in tests/mutants/list.
#include <pthread.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "tests/support/harness.h"
#include "tests/library/webgpu/gpu_fixture.h"
#include "kernels/webgpu/run/gpu_instance.h"
#include "runtime/runtime.h"
#include "tern.h"
#include "tests/support/tiny_model.h"

static tern_model *open_model(const char *path, const tern_model_desc *desc) {
    tern_error err = {0};
    tern_model *m = NULL;
    tern_status status = tern_model_open(&m, path, desc, &err);
    CHECK_MSG(status == TERN_OK, "%s: %s", path, err.message);
    return m;
}

static tern_model *open_tiny(unsigned seed, int32_t n_batch) {
    tern_error err = {0};
    const char *path = test_tmp("group.gguf");
    CHECK_MSG(tiny_model_write(path, &(tiny_model_desc){.seed = seed}, &err) == TERN_OK, "%s",
              err.message);
    return open_model(path, &(tern_model_desc){.n_threads = 1, .n_batch = n_batch});
}

static tern_session *open_session(tern_model *m, const tern_session_desc *desc) {
    tern_error err = {0};
    tern_session *s = NULL;
    CHECK_MSG(tern_session_open(&s, m, desc, &err) == TERN_OK, "%s", err.message);
    return s;
}

static tern_group *open_group(tern_model *m, const tern_group_desc *desc) {
    tern_error err = {0};
    tern_group *g = NULL;
    CHECK_MSG(tern_group_open(&g, m, desc, &err) == TERN_OK, "%s", err.message);
    return g;
}

// ---- Answers -----------------------------------------------------------------------------------

enum { N_ANSWER = 40, N_PROMPT_MAX = 70 };

typedef struct answer {
    tern_session *session;
    int32_t prompt[N_PROMPT_MAX], ids[N_ANSWER];
    size_t n_prompt, n;
    tern_generate_params params;
    char text[1024];
    size_t n_text;
    tern_token_logprob logprobs[N_ANSWER * 3];
    size_t n_logprobs;
    tern_generate_stats stats;
    tern_status status;
    int n_ends, n_calls;
    int n_calls_max; // then its caller has enough; 0: never
} answer;

static bool on_text(void *user, const char *text, size_t n) {
    answer *a = user;
    a->n_calls++;
    if (a->n_text + n < sizeof a->text) memcpy(a->text + a->n_text, text, n);
    a->n_text += n;
    return a->n_calls != a->n_calls_max;
}

static void keep(answer *a, tern_session *s) {
    size_t n_each = 0;
    const int32_t *ids = tern_session_generated(s, &a->n);
    if (a->n > N_ANSWER) a->n = N_ANSWER;
    if (a->n) memcpy(a->ids, ids, a->n * sizeof *ids);
    const tern_token_logprob *p = tern_session_token_logprobs(s, &a->n_logprobs, &n_each);
    if (p) memcpy(a->logprobs, p, a->n_logprobs * n_each * sizeof *p);
}

static void on_end(void *user, tern_session *s, const tern_generate_stats *stats,
                   const tern_error *err) {
    answer *a = user;
    a->n_ends++;
    a->stats = *stats;
    a->status = err->status;
    keep(a, s);
}

static uint32_t draw(uint32_t *random, uint32_t n) {
    *random = *random * 1664525u + 1013904223u;
    return (*random >> 8) % n;
}

// Ways to generate; which one a number stands for.
static const char *const stops[] = {"e", "th"};
static const tern_sampling samplings[] = {
    {0},
    {.temperature = 1.5f, .top_k = 40, .top_p = 0.95f, .min_p = 0.01f, .seed = 5},
    {.temperature = 3, .top_k = 0, .top_p = 1, .seed = 9}, // all scores
    {.temperature = 2,
     .top_k = 5,
     .top_p = 1,
     .repeat_penalty = 1.3f,
     .presence_penalty = 0.5f,
     .seed = 7},
    {.temperature = 2,
     .top_p = 1,
     .xtc_probability = 0.5f,
     .xtc_threshold = 0.02f,
     .dry_multiplier = 1,
     .dry_base = 1.5f,
     .dry_allowed_length = 1,
     .dry_penalty_last_n = 30,
     .seed = 8},
    {.temperature = 2,
     .top_p = 1,
     .mirostat = 2,
     .mirostat_tau = 4,
     .mirostat_eta = 0.1f,
     .seed = 9},
};

static void make(answer *a, uint32_t *random, int32_t n_vocab) {
    *a = (answer){.n_prompt = 1 + draw(random, N_PROMPT_MAX)};
    for (size_t i = 0; i < a->n_prompt; i++)
        a->prompt[i] = (int32_t)draw(random, i % 3 ? 6 : (uint32_t)n_vocab); // it repeats itself
    a->params.sampling = &samplings[draw(random, 6)];
    a->params.max_tokens = 1 + (int32_t)draw(random, N_ANSWER);
    a->params.ignore_end = draw(random, 2);
    a->params.logprobs = draw(random, 4) == 0;
    a->params.n_top_logprobs = 2;
    if (draw(random, 3)) return;
    a->params.stops = stops;
    a->params.n_stops = 2;
}

// All scores are read for none: such steps may run ahead of the host.
static void make_greedy(answer *a, uint32_t *random) {
    a->params.sampling = &samplings[0];
    a->params.logprobs = false;
    a->params.ignore_end = true;
    a->params.max_tokens = N_ANSWER - (int32_t)draw(random, 15);
    a->n_calls_max = draw(random, 3) ? 0 : 1 + (int)draw(random, 12);
}

// What it says alone, in a fresh session.
static void check_alone(tern_model *m, const tern_session_desc *desc, const answer *a,
                        const char *what) {
    answer alone = *a;
    tern_error err = {0};
    tern_session *s = open_session(m, desc);
    alone.n_text = 0;
    alone.n_calls = 0;
    alone.params.on_text = on_text;
    alone.params.user = &alone;
    alone.status = tern_generate_ids(s, a->prompt, a->n_prompt, &alone.params, &alone.stats, &err);
    keep(&alone, s);
    bool same = alone.status == a->status && alone.n == a->n && alone.n_text == a->n_text &&
                memcmp(alone.ids, a->ids, a->n * sizeof *a->ids) == 0 &&
                memcmp(alone.text, a->text, a->n_text) == 0 && alone.n_logprobs == a->n_logprobs &&
                alone.stats.reason == a->stats.reason &&
                alone.stats.n_generated == a->stats.n_generated &&
                memcmp(alone.logprobs, a->logprobs, a->n_logprobs * 3 * sizeof *a->logprobs) == 0;
    CHECK_MSG(same, "%s: %zu tokens, reason %d, alone %zu, reason %d: %s", what, a->n,
              (int)a->stats.reason, alone.n, (int)alone.stats.reason, err.message);
    CHECK_MSG(a->n_ends == 1, "%s: on_end was called %d times", what, a->n_ends);
    tern_session_close(s);
}

static bool add(tern_group *g, answer *a) {
    tern_error err = {0};
    a->params.on_text = on_text;
    a->params.on_end = on_end;
    a->params.user = a;
    tern_status status = tern_group_add(g, a->session, a->prompt, a->n_prompt, &a->params, &err);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    return status == TERN_OK;
}

static size_t step(tern_group *g) {
    tern_error err = {0};
    size_t n = 0;
    CHECK_MSG(tern_group_step(g, &n, &err) == TERN_OK, "%s", err.message);
    return err.status == TERN_OK ? n : 0;
}

// ---- The same text -----------------------------------------------------------------------------

typedef struct family {
    const char *name, *path;
} family;
static const family families[] = {
    {"bitnet", NULL}, // with a tokenizer
    {"llama", "tests/oracles/llama"},
    {"qwen3", "tests/oracles/qwen3/model.gguf"},
    {"qwen3.5", "tests/oracles/qwen35/model.gguf"},
    {"lfm2", "tests/oracles/lfm2/model.gguf"},
    {"gemma3", "tests/oracles/gemma3/model.gguf"},
};
#define N_FAMILIES (sizeof families / sizeof *families)

// More than one knows of: some of it is not right.
static int32_t repeat_first(void *user, const int32_t *ids, size_t n_ids, int32_t *draft,
                            int32_t n_max) {
    (void)user, (void)n_ids;
    for (int32_t i = 0; i < n_max; i++) draft[i] = ids[i];
    return n_max;
}

static tern_session_desc desc_of(int which) {
    tern_session_desc d = {.n_context = 128};
    tern_speculation *p = &d.speculation;
    p->always = true;
    if (which == 1) p->lookup = true;
    if (which == 2) p->online = true, p->max_length = 3;
    if (which == 3) p->draft = repeat_first, p->lookup = true;
    if (which == 4) d.n_context = 80, d.shift_context = true;
    return d;
}

enum { N_ANSWERS = 14 };

// Sessions come one after the other, while others run; some are used again for another text.
static void check_together(tern_model *m, const char *name, uint32_t seed, int32_t n_piece,
                           bool greedy) {
    answer *answers = calloc(N_ANSWERS, sizeof *answers);
    tern_session_desc descs[N_ANSWERS];
    uint32_t random = seed;
    size_t n_added = 0, n_running = 0, n_all = !greedy ? N_ANSWERS : test_is_long() ? 8 : 5;
    tern_model_info info;
    tern_model_get_info(m, &info);
    tern_group *g = open_group(m, &(tern_group_desc){.n_piece = n_piece, .n_reserve = 4});
    while (n_added < n_all || n_running > 0) {
        uint32_t once_in = greedy ? 10 : 3;
        bool few = n_running < (greedy ? 3 : 1);
        if (n_added < n_all && (few || draw(&random, once_in) == 0)) {
            answer *a = &answers[n_added];
            make(a, &random, info.n_vocab);
            if (greedy) make_greedy(a, &random);
            // Drafts of the host, too, are steps of several tokens.
            descs[n_added] = desc_of(greedy && draw(&random, 4) ? 4 : (int)draw(&random, 5));
            a->session = open_session(m, &descs[n_added]);
            if (!add(g, a)) break;
            n_added++;
            n_running++;
        }
        for (size_t i = 0; i < n_added; i++) // now and then one is swapped out between steps
            if (draw(&random, 20) == 0) tern_session_swap_out(answers[i].session, NULL);
        n_running = step(g);
    }
    tern_group_close(g);
    for (size_t i = 0; i < n_added; i++) {
        check_alone(m, &descs[i], &answers[i], name);
        tern_session_close(answers[i].session);
    }
    free(answers);
}

TEST(group_sessions_say_what_they_say_alone) {
    static const int32_t pieces[] = {0, 1, 7, 64};
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const tern_model_desc desc = {.n_threads = 1, .n_batch = i % 2 ? 64 : 0};
        tern_model *m =
            families[i].path ? open_model(families[i].path, &desc) : open_tiny(41, desc.n_batch);
        if (!m) return;
        for (uint32_t k = 0; k < 4; k++)
            check_together(m, families[i].name, 100 * (uint32_t)i + k + 1, pieces[k], false);
        tern_model_close(m);
    }
}

typedef struct thread {
    pthread_t id;
    tern_model *model;
    uint32_t seed;
} thread;

static void *run_group(void *ctx) {
    const thread *t = ctx;
    check_together(t->model, "threads", t->seed, 0, false);
    return NULL;
}

// Groups of several threads share a model, its pages and its spares: for `make tsan`, too.
TEST(group_shares_its_model_with_other_threads) {
    enum { N = 3 };
    thread threads[N];
    tern_model *m = open_tiny(52, 64);
    if (!m) return;
    for (uint32_t i = 0; i < N; i++) {
        threads[i] = (thread){.model = m, .seed = 500 + i};
        REQUIRE(pthread_create(&threads[i].id, NULL, run_group, &threads[i]) == 0);
    }
    for (int i = 0; i < N; i++) pthread_join(threads[i].id, NULL);
    tern_model_close(m);
}

// A backend that takes few works at a time.
static int32_t works_max;
static tern_status submit_few(tern_instance *i, const tern_batch *b, tern_error *err) {
    CHECK(b->n_chunks <= works_max && b->n_tokens <= 24);
    return tern_backend_cpu.submit(i, b, err);
}

TEST(group_steps_are_divided_as_the_backend_needs_it) {
    static const int32_t most[] = {1, 3};
    tern_model *m = open_tiny(42, 24);
    tern_backend backend = tern_backend_cpu;
    if (!m) return;
    backend.submit = submit_few;
    m->now->backend = &backend;
    for (int i = 0; i < 2; i++) {
        works_max = backend.n_chunks_max = most[i];
        check_together(m, "few works", 77 + (uint32_t)i, 0, false);
    }
    tern_model_close(m);
}

// On a GPU rows of short chunks have other bits than those of long ones: pieces keep to what each
// session alone does.
TEST(webgpu_group_sessions_say_what_they_say_alone) {
    tern_error err = {0};
    const char *path = test_tmp("group.gguf");
    const tiny_model_desc desc = {.seed = 41, .head_type = TERN_DTYPE_F16};
    REQUIRE_OK(tiny_model_write(path, &desc, &err), err);
    tern_model *m = gpu_open(path, 32);
    if (!m) return;
    check_together(m, "webgpu", 901, 7, false);
    tern_model_close(m);
}

static int n_together, n_ahead; // steps of several sequences; those with others on their way
static bool one_at_a_time;
static tern_status submit_ahead(tern_instance *i, const tern_batch *b, tern_error *err) {
    i->steps.seconds_max = one_at_a_time ? 0 : INFINITY;
    tern_status status = tern_backend_webgpu.submit(i, b, err);
    bool is_step = b->n_chunks > 1 && b->n_chunks == b->n_tokens;
    n_together += is_step;
    n_ahead += is_step && i->steps.ahead.n > 0;
    return status;
}

static tern_model *open_ahead(const gpu_play *play, tern_backend *backend) {
    tern_error err = {0};
    const char *path = test_tmp("group.gguf");
    const tiny_model_desc desc = {.seed = 41, .head_type = TERN_DTYPE_F16, .n_layers = 1};
    CHECK_MSG(tiny_model_write(path, &desc, &err) == TERN_OK, "%s", err.message);
    tern_model *m = gpu_open_play(path, 64, play);
    *backend = tern_backend_webgpu;
    backend->submit = submit_ahead;
    if (m) m->now->backend = backend;
    n_together = n_ahead = 0;
    return m;
}

// Greedy steps run ahead of the host while sessions come, end by themselves, at stop texts or when
// their caller has enough, are swapped out, draft, and shift their contexts.
TEST(webgpu_group_steps_ahead_keep_the_text) {
    tern_backend backend;
    tern_model *m = open_ahead(NULL, &backend);
    if (!m) return;
    for (int i = 0; i < (test_is_long() ? 8 : 1); i++) {
        one_at_a_time = i % 2;
        check_together(m, "ahead", 77 + (uint32_t)i, 64, true);
    }
    CHECK_MSG(n_ahead * 4 >= n_together * 3, "%d of %d steps ahead", n_ahead, n_together);
    tern_model_close(m);
}

// What was on its way is computed again elsewhere.
TEST(webgpu_group_steps_ahead_are_lost_with_the_device) {
    tern_backend backend;
    one_at_a_time = true;
    tern_model *m = open_ahead(&(gpu_play){.lose_at = 30}, &backend);
    if (!m) return;
    check_together(m, "lost", 78, 64, true);
    CHECK_MSG(n_ahead >= 5, "%d steps ahead", n_ahead);
    CHECK(m->now->backend != &backend);
    tern_model_close(m);
}

enum { N_ALIKE = 3 };
static void add_alike(tern_group *g, tern_model *m, size_t n_prompt, answer *a) {
    uint32_t random = 12;
    for (int i = 0; i < N_ALIKE; i++) {
        make(&a[i], &random, TINY_N_VOCAB);
        make_greedy(&a[i], &random);
        a[i].n_prompt = n_prompt;
        a[i].params.max_tokens = N_ANSWER;
        a[i].n_calls_max = 0;
        a[i].params.n_stops = 0;
        a[i].session = open_session(m, NULL);
        add(g, &a[i]);
    }
}

static void close_alike(answer *a) {
    for (int i = 0; i < N_ALIKE; i++) tern_session_close(a[i].session);
}

// Seen to fail where only the answer is reserved when a session is added: then the last steps take
// pages for what goes ahead of them.
TEST(webgpu_group_steps_ahead_allocate_nothing) {
    static answer a[N_ALIKE];
    tern_backend backend;
    one_at_a_time = false;
    tern_model *m = open_ahead(NULL, &backend);
    if (!m) return;
    tern_group *g = open_group(m, NULL);
    add_alike(g, m, 20, a);               // 60 positions in two pages of 32
    for (int k = 0; k < 16; k++) step(g); // up to eight steps in one submission
    uint64_t before = tern_heap_get().n_allocs;
    while (tern_heap_get().n_allocs == before && step(g) == N_ALIKE) {
    }
    CHECK_MSG(a[0].n_ends + a[1].n_ends + a[2].n_ends > 0, "an allocation in a step");
    tern_group_close(g);
    close_alike(a);
    tern_model_close(m);
}

// Where steps take their own pages, those that run ahead do, too: only the first has none
// after it. Seen to fail where room for steps ahead is only made for a session alone.
TEST(webgpu_group_steps_ahead_take_their_pages) {
    static answer a[N_ALIKE];
    tern_backend backend;
    one_at_a_time = true;
    tern_model *m = open_ahead(NULL, &backend);
    if (!m) return;
    tern_group *g = open_group(m, &(tern_group_desc){.n_reserve = 1});
    add_alike(g, m, 35, a); // what is reserved at first, and for steps ahead, is two pages
    while (step(g) > 0) {
    }
    CHECK_MSG(n_together > N_ANSWER / 2 && n_together - n_ahead == 1, "%d of %d steps ahead",
              n_ahead, n_together);
    tern_group_close(g);
    close_alike(a);
    tern_model_close(m);
}

// Drafts on models whose states cannot be cut: snapshots lead back, and the text stays.
TEST(group_speculation_keeps_the_text_of_every_family) {
    for (size_t i = 0; i < N_FAMILIES; i++) {
        tern_model *m = families[i].path
                            ? open_model(families[i].path, &(tern_model_desc){.n_threads = 1})
                            : open_tiny(43, 0);
        if (!m) return;
        int32_t text[160], n_vocab = 40;
        uint32_t random = 5;
        tern_chain entries[40];
        tern_chains *chains;
        tern_error err = {0};
        for (int k = 0; k < 160; k++) text[k] = (int32_t)draw(&random, (uint32_t)n_vocab);
        for (int k = 0; k < 40; k++) entries[k] = (tern_chain){text + 4 * k, 4, 0.5f, NULL};
        REQUIRE_OK(tern_chains_create(&chains, entries, 40, &err), err);
        const tern_speculation kinds[] = {
            {.lookup = true, .always = true},
            {.chains = chains, .always = true},
            {.draft_model = m, .always = true, .max_length = 4}, // all of it right
            {.draft = repeat_first, .always = true, .max_length = 16},
            {.lookup = true, .online = true, .chains = chains},
        };
        size_t n_accepted = 0, n_refused = 0;
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            const tern_session_desc desc = {.n_context = 128, .speculation = kinds[k]};
            tern_session *s = open_session(m, &desc);
            for (int t = 0; t < 6; t++) { // in one session, with what it knows from before
                static answer a;
                make(&a, &random, n_vocab);
                a.params.on_text = on_text;
                a.params.user = &a;
                a.status = tern_generate_ids(s, a.prompt, a.n_prompt, &a.params, &a.stats, &err);
                keep(&a, s);
                a.n_ends = 1;
                n_accepted += a.stats.draft.n_accepted;
                n_refused += a.stats.draft.n_drafted - a.stats.draft.n_accepted;
                check_alone(m, &(tern_session_desc){.n_context = 128}, &a, families[i].name);
            }
            tern_session_close(s);
        }
        CHECK_MSG(n_accepted > 20 && n_refused > 20, "%s: %zu accepted, %zu refused",
                  families[i].name, n_accepted, n_refused);
        tern_chains_close(chains);
        tern_model_close(m);
    }
}

// ---- Who waits for whom ------------------------------------------------------------------------

static answer *begin_long(tern_group *g, tern_model *m, answer *a, size_t n_prompt, int32_t n) {
    *a = (answer){.session = open_session(m, &(tern_session_desc){.n_context = 512}),
                  .n_prompt = n_prompt,
                  .params = {.sampling = &samplings[0], .max_tokens = n, .ignore_end = true}};
    for (size_t i = 0; i < n_prompt && i < N_PROMPT_MAX; i++) a->prompt[i] = (int32_t)(i % 200);
    int32_t ids[400];
    tern_error err = {0};
    for (size_t i = 0; i < n_prompt; i++) ids[i] = (int32_t)((i * 7 + (size_t)n) % 200);
    a->params.on_text = on_text;
    a->params.on_end = on_end;
    a->params.user = a;
    tern_status status = tern_group_add(g, a->session, ids, n_prompt, &a->params, &err);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    return a;
}

static size_t n_said(const answer *a) {
    size_t n;
    tern_session_generated(a->session, &n);
    return n;
}

TEST(group_long_prompts_stall_nobody) {
    static answer a[4];
    tern_model *m = open_tiny(44, 128);
    if (!m) return;
    tern_group *g = open_group(m, &(tern_group_desc){.n_piece = 32});
    begin_long(g, m, &a[0], 10, 60);
    step(g);
    begin_long(g, m, &a[1], 400, 5); // by itself in 13 steps
    begin_long(g, m, &a[2], 400, 6);
    step(g);
    begin_long(g, m, &a[3], 12, 7);
    size_t first[4] = {0}, n_steps = 2;
    for (; n_steps < 40; n_steps++) {
        CHECK(n_said(&a[0]) == n_steps); // each step, whatever the others do
        size_t x = tern_session_n_tokens(a[1].session), y = tern_session_n_tokens(a[2].session);
        CHECK_MSG(x <= y + 16 && y <= x + 16, "%zu and %zu tokens of two prompts", x, y);
        step(g);
        for (int i = 1; i < 4; i++)
            if (!first[i] && n_said(&a[i]) > 0) first[i] = n_steps;
    }
    CHECK_MSG(first[3] <= 5, "the short prompt waited until step %zu", first[3]);
    CHECK_MSG(first[1] >= 20 && first[1] <= 30 && first[2] >= 20 && first[2] <= 30,
              "the long ones were done at %zu and %zu", first[1], first[2]);
    tern_group_close(g);
    for (int i = 0; i < 4; i++) {
        CHECK(a[i].n_ends == 1);
        tern_session_close(a[i].session);
    }
    tern_model_close(m);
}

// ---- Callbacks ---------------------------------------------------------------------------------

typedef struct doing {
    tern_group *group;
    answer answers[6];
    int n_added, n_ended;
    tern_error err;
} doing;
static doing now_doing;

static void add_again(void *user, tern_session *s, const tern_generate_stats *stats,
                      const tern_error *err) {
    doing *d = &now_doing;
    answer *a = user;
    (void)stats;
    d->n_ended++;
    if (err->status != TERN_OK) d->err = *err;
    a->params.on_end = add_again;
    a->params.user = a;
    if (d->n_added++ < 20)
        tern_group_add(d->group, s, a->prompt, a->n_prompt, &a->params, &d->err);
    else
        tern_session_close(s);
}

// Ends others, and is refused what cannot be. Seen to fail with cancelled sessions that end, when
// they are used, within another's callback.
static bool meddle(void *user, const char *text, size_t n) {
    doing *d = &now_doing;
    tern_error err = {0};
    bool done;
    (void)user, (void)text, (void)n;
    tern_session_cancel(d->answers[1].session);
    if (d->n_added == 0) {
        CHECK(tern_session_sync(d->answers[1].session, NULL, 0, NULL, &err) == TERN_ERR_ARGUMENT);
        CHECK(d->answers[1].n_ends == 0);
    }
    tern_session_close(d->answers[2].session);
    d->answers[2].session = NULL;
    CHECK(tern_group_begin(d->group, &err) == TERN_ERR_ARGUMENT);
    CHECK(tern_group_poll(d->group, &done, NULL, &err) == TERN_ERR_ARGUMENT);
    CHECK(tern_session_sync(d->answers[0].session, NULL, 0, NULL, &err) == TERN_ERR_ARGUMENT);
    CHECK(tern_generate(d->answers[0].session, "the", NULL, NULL, &err) == TERN_ERR_ARGUMENT);
    return d->n_added++ == 0; // the second time this one ends, too
}

TEST(group_callbacks_may_add_cancel_and_close) {
    tern_model *m = open_tiny(45, 0);
    uint32_t random = 3;
    if (!m) return;
    doing *d = &now_doing;
    *d = (doing){.group = open_group(m, NULL)};
    for (int i = 0; i < 4; i++) {
        make(&d->answers[i], &random, TINY_N_VOCAB);
        tern_error err = {0};
        d->answers[i].params.on_end = add_again;
        d->answers[i].params.user = &d->answers[i];
        REQUIRE_OK(tern_group_add(d->group, open_session(m, NULL), d->answers[i].prompt,
                                  d->answers[i].n_prompt, &d->answers[i].params, &err),
                   err);
    }
    while (step(d->group) > 0) {
    }
    CHECK_MSG(d->n_ended == 24 && d->err.status == TERN_OK, "%d ended: %s", d->n_ended,
              d->err.message);
    *d = (doing){.group = d->group};
    for (int i = 0; i < 4; i++) {
        answer *a = &d->answers[i];
        make(a, &random, TINY_N_VOCAB);
        a->params =
            (tern_generate_params){.sampling = &samplings[0], .max_tokens = 30, .ignore_end = true};
        a->session = open_session(m, NULL);
        a->params.on_text = i ? on_text : meddle;
        a->params.on_end = on_end;
        a->params.user = a;
        REQUIRE(tern_group_add(d->group, a->session, a->prompt, a->n_prompt, &a->params, &d->err) ==
                TERN_OK);
    }
    while (step(d->group) > 0) {
    }
    CHECK(d->answers[0].stats.reason == TERN_STOP_CALLER && d->answers[0].n < 30);
    CHECK(d->answers[1].stats.reason == TERN_STOP_CALLER && d->answers[1].n_ends == 1);
    CHECK(d->answers[2].n_ends == 0 && d->answers[2].session == NULL);
    CHECK(d->answers[3].n == 30);
    for (int i = 0; i < 4; i++) tern_session_close(d->answers[i].session);
    tern_group_close(d->group);
    tern_model_close(m);
}

// ---- Without waiting ---------------------------------------------------------------------------

static int n_polls;
static bool lost;
static tern_status poll_late(tern_instance *i, bool *done, tern_error *err) {
    (void)i;
    if (lost) return tern_fail(err, TERN_ERR_DEVICE, "the test took the device away");
    *done = ++n_polls % 3 == 0;
    return TERN_OK;
}
static bool says_lost(const tern_device *d) {
    (void)d;
    return lost;
}
static int n_cancelled;
static void cancel(tern_instance *i) {
    (void)i;
    n_cancelled++;
}

static tern_model *open_late(tern_backend *backend) {
    tern_model *m = open_tiny(46, 0);
    *backend = tern_backend_cpu;
    backend->poll = poll_late;
    backend->cancel = cancel;
    backend->is_lost = says_lost;
    if (m) m->now->backend = backend;
    lost = false;
    return m;
}

// Until it is done; how many polls said that it is not.
static int poll_all(tern_group *g, size_t *n_running) {
    tern_error err = {0};
    int n = 0;
    for (bool done = false; !done; n++)
        if (tern_group_poll(g, &done, n_running, &err) != TERN_OK) break;
    CHECK_MSG(err.status == TERN_OK, "%s", err.message);
    return n - 1;
}

TEST(group_between_begin_and_poll_anything_may_happen) {
    static answer a[5];
    tern_backend backend;
    tern_model *m = open_late(&backend);
    tern_error err = {0};
    uint32_t random = 8;
    size_t n_running = 0;
    if (!m) return;
    tern_group *g = open_group(m, NULL);
    for (int i = 0; i < 5; i++) {
        make(&a[i], &random, TINY_N_VOCAB);
        a[i].params.max_tokens = N_ANSWER;
        a[i].params.ignore_end = true;
        a[i].params.n_stops = 0;
        a[i].session = open_session(m, NULL);
        if (i < 4) add(g, &a[i]);
    }
    for (int k = 0; k < 4; k++) {
        REQUIRE_OK(tern_group_begin(g, &err), err);
        CHECK(tern_group_begin(g, &err) == TERN_ERR_ARGUMENT);
        CHECK(poll_all(g, &n_running) >= 2);
        CHECK(n_running == 4);
    }
    REQUIRE_OK(tern_group_begin(g, &err), err);
    tern_session *fork = NULL;
    CHECK(tern_session_fork(&fork, a[0].session, 1, &err) == TERN_ERR_ARGUMENT && !fork);
    CHECK(tern_session_swap_out(a[0].session, &err) == TERN_ERR_ARGUMENT);
    add(g, &a[4]);                     // from the next step on
    tern_session_cancel(a[1].session); // when this one is done
    size_t said = n_said(&a[1]);
    CHECK(a[1].n_ends == 0);
    poll_all(g, &n_running);
    CHECK(n_running == 4 && a[1].n_ends == 1 && a[1].stats.reason == TERN_STOP_CALLER);
    CHECK(a[1].n == said);
    REQUIRE_OK(tern_group_begin(g, &err), err);
    int polls = n_polls;
    n_cancelled = 0;
    tern_session_close(a[2].session); // does not wait for the step, which is planned again
    CHECK(n_polls == polls && n_cancelled == 1);
    a[2].session = NULL;
    poll_all(g, &n_running);
    CHECK(n_running == 3 && a[2].n_ends == 0);
    REQUIRE_OK(tern_session_fork(&fork, a[0].session, tern_session_n_tokens(a[0].session), &err),
               err); // between steps of the one that it forks from
    tern_session_close(fork);
    while (n_running > 0) n_running = step(g);
    for (int i = 0; i < 5; i++)
        if (i % 3 == 0 || i == 4) check_alone(m, NULL, &a[i], "late");
    REQUIRE(add(g, &a[0]));
    REQUIRE_OK(tern_group_begin(g, &err), err);
    tern_group_close(g); // in the middle of a step
    CHECK(a[0].n_ends == 2 && a[0].stats.reason == TERN_STOP_CALLER);
    for (int i = 0; i < 5; i++) tern_session_close(a[i].session);
    tern_model_close(m);
}

TEST(group_goes_on_after_a_lost_device) {
    static answer a[3];
    tern_backend backend;
    tern_model *m = open_late(&backend);
    uint32_t random = 9;
    if (!m) return;
    tern_group *g = open_group(m, NULL);
    for (int i = 0; i < 3; i++) {
        make(&a[i], &random, TINY_N_VOCAB);
        a[i].session = open_session(m, NULL);
        add(g, &a[i]);
    }
    for (int k = 0; k < 3; k++) step(g);
    REQUIRE(tern_group_begin(g, NULL) == TERN_OK);
    lost = true;
    size_t n_running;
    poll_all(g, &n_running);
    while (n_running > 0) n_running = step(g);
    for (int i = 0; i < 3; i++) {
        check_alone(m, NULL, &a[i], "lost");
        tern_session_close(a[i].session);
    }
    tern_group_close(g);
    tern_model_close(m);
}

// ---- Memory ------------------------------------------------------------------------------------

TEST(group_steps_allocate_nothing) {
    static answer a[8];
    tern_model *m = open_tiny(47, 0);
    uint32_t random = 10;
    if (!m) return;
    tern_group *g = open_group(m, NULL);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 8; i++) {
            tern_session *s = a[i].session;
            make(&a[i], &random, TINY_N_VOCAB);
            const tern_session_desc desc = desc_of(i % 5);
            a[i].session = s ? s : open_session(m, &desc);
            a[i].params.sampling = &samplings[i % 4];
            a[i].params.max_tokens = N_ANSWER;
            a[i].params.logprobs = false;
            add(g, &a[i]);
        }
        // The model's instance is made in the first step.
        size_t n_running = round == 0 ? step(g) : 1;
        uint64_t before = tern_heap_get().n_allocs;
        while (n_running > 0) n_running = step(g);
        uint64_t n = tern_heap_get().n_allocs - before;
        // What the ends keep of their answers, once a session.
        CHECK_MSG(n <= (round == 0 ? 8 * 2 : 8), "%llu allocations", (unsigned long long)n);
    }
    // Steps in which none ends.
    for (int i = 0; i < 8; i++) add(g, &a[i]);
    uint64_t before = tern_heap_get().n_allocs;
    for (int k = 0; k < 3; k++) step(g);
    CHECK(tern_heap_get().n_allocs == before);
    tern_group_close(g);
    for (int i = 0; i < 8; i++) tern_session_close(a[i].session);
    tern_model_close(m);
}

enum { N_IDLE = 1000, N_IDLE_TOKENS = 100, MOST_BESIDE_PAGES = 2048 };

// A session with that many tokens, come by in different ways.
static tern_session *make_idle(tern_model *m, tern_group *g, int way, uint32_t *random) {
    tern_generate_params params = {.sampling = &samplings[0], .max_tokens = 41, .ignore_end = true};
    tern_session *s = open_session(m, &(tern_session_desc){.n_context = 512});
    int32_t prompt[N_IDLE_TOKENS];
    size_t n = 60;
    tern_status status = TERN_OK;
    for (int t = 0; t < N_IDLE_TOKENS; t++) prompt[t] = (int32_t)draw(random, 40);
    if (way == 7) { // it held much more before
        params.max_tokens = 0;
        status = tern_generate_ids(s, prompt, n, &params, NULL, NULL);
        params.max_tokens = 1;
        n = N_IDLE_TOKENS;
    }
    if (way % 2) {
        if (status == TERN_OK) status = tern_generate_ids(s, prompt, n, &params, NULL, NULL);
    } else {
        status = tern_group_add(g, s, prompt, n, &params, NULL);
        while (step(g) > 0) {
        }
    }
    CHECK(status == TERN_OK && tern_session_n_tokens(s) == N_IDLE_TOKENS);
    return s;
}

// 1,000 sessions that hold 100 tokens each and rest: their pages, and at most 2 KB.
TEST(group_idle_sessions_cost_their_pages) {
    static tern_session *idle[N_IDLE];
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const tern_model_desc desc = {.n_threads = 1};
        tern_model *m = families[i].path ? open_model(families[i].path, &desc) : open_tiny(48, 0);
        int32_t prompt[N_IDLE_TOKENS] = {0};
        uint32_t random = 4;
        size_t before = 0, pages = 0;
        if (!m) return;
        tern_group *g = open_group(m, NULL);
        tern_session *fresh = open_session(m, &(tern_session_desc){.n_context = 512});
        CHECK(tern_session_sync(fresh, prompt, N_IDLE_TOKENS, NULL, NULL) == TERN_OK);
        tern_session_close(make_idle(m, g, 7, &random)); // what all share is there then
        tern_session_close(make_idle(m, g, 0, &random));
        for (int k = 0; k < N_IDLE; k++) {
            if (k == 0) before = tern_heap_get().heap_now;
            idle[k] = make_idle(m, g, k % 40, &random);
            pages += (size_t)tern_session_bytes(idle[k]);
            CHECK(tern_session_bytes(idle[k]) <= 3 * tern_session_bytes(fresh)); // with snapshots
        }
        size_t all = tern_heap_get().heap_now - before;
        CHECK_MSG(all <= pages + (size_t)N_IDLE * MOST_BESIDE_PAGES, "%s: %zu bytes beside %zu",
                  families[i].name, (all - pages) / N_IDLE, pages / N_IDLE);
        for (int k = 0; k < N_IDLE; k++) tern_session_close(idle[k]);
        tern_session_close(fresh);
        tern_group_close(g);
        tern_model_close(m);
    }
}

TEST(group_forks_share_a_front) {
    tern_model *m = open_tiny(49, 0);
    tern_error err = {0};
    static answer a[8];
    int32_t front[96];
    uint32_t random = 12;
    if (!m) return;
    const tern_session_desc desc = {.n_context = 256};
    tern_session *system = open_session(m, &desc), *fork = NULL;
    for (int i = 0; i < 96; i++) front[i] = (int32_t)draw(&random, 200);
    REQUIRE_OK(tern_session_sync(system, front, 96, NULL, &err), err);
    CHECK(tern_session_fork(&fork, system, 97, &err) == TERN_ERR_ARGUMENT && !fork);
    uint64_t alone = tern_session_bytes(system);
    tern_group *g = open_group(m, NULL);
    for (int i = 0; i < 8; i++) {
        int32_t prompt[100];
        make(&a[i], &random, TINY_N_VOCAB);
        REQUIRE_OK(tern_session_fork(&a[i].session, system, 96, &err), err);
        CHECK(tern_session_n_tokens(a[i].session) == 96);
        memcpy(prompt, front, sizeof front);
        for (int t = 96; t < 100; t++) prompt[t] = (int32_t)draw(&random, 200);
        a[i].params.on_text = on_text;
        a[i].params.on_end = on_end;
        a[i].params.user = &a[i];
        REQUIRE_OK(tern_group_add(g, a[i].session, prompt, 100, &a[i].params, &err), err);
        memcpy(a[i].prompt, prompt + 60, 40 * sizeof *prompt); // for comparing: see below
    }
    while (step(g) > 0) {
    }
    uint64_t all = tern_session_bytes(system);
    for (int i = 0; i < 8; i++) {
        CHECK(a[i].stats.n_reused == 96 && a[i].n_ends == 1);
        all += tern_session_bytes(a[i].session);
        answer fresh = a[i];
        int32_t prompt[100];
        memcpy(prompt, front, 60 * sizeof *front);
        memcpy(prompt + 60, a[i].prompt, 40 * sizeof *prompt);
        tern_session *s = open_session(m, &desc);
        REQUIRE_OK(tern_generate_ids(s, prompt, 100, &a[i].params, NULL, &err), err);
        keep(&fresh, s);
        CHECK(fresh.n == a[i].n && !memcmp(fresh.ids, a[i].ids, fresh.n * sizeof *fresh.ids));
        tern_session_close(s);
    }
    // Of nine fronts there is one: each has at most five pages of its own.
    CHECK_MSG(all < 8 * alone, "%llu bytes for nine, %llu for one", (unsigned long long)all,
              (unsigned long long)alone);
    tern_group_close(g);
    for (int i = 0; i < 8; i++) tern_session_close(a[i].session);
    tern_session_close(system);
    tern_model_close(m);
}

// Whatever allocation fails: a session ends with an error or says what it says alone.
TEST(group_survives_failing_allocations) {
    static answer a[3];
    tern_model *m = open_tiny(50, 0);
    if (!m) return;
    bool succeeded = false;
    int n_ended = 0, n_retried = 0, was_added[3];
    for (uint64_t n = 1; n < 600 && !succeeded; n++) {
        uint32_t random = 21;
        tern_error err = {0};
        tern_group *g = NULL;
        tern_mem_fail_at(n);
        tern_status status = tern_group_open(&g, m, &(tern_group_desc){.n_reserve = 1}, &err);
        for (int i = 0; i < 3; i++) {
            make(&a[i], &random, TINY_N_VOCAB);
            a[i].params.max_tokens = N_ANSWER;
            a[i].session = NULL;
            if (status == TERN_OK) status = tern_session_open(&a[i].session, m, NULL, &err);
            a[i].params.on_text = on_text;
            a[i].params.on_end = on_end;
            a[i].params.user = &a[i];
            if (status == TERN_OK)
                status =
                    tern_group_add(g, a[i].session, a[i].prompt, a[i].n_prompt, &a[i].params, &err);
            was_added[i] = status == TERN_OK;
        }
        succeeded = status == TERN_OK;
        for (size_t n_running = 1; g && n_running > 0;)
            if (tern_group_step(g, &n_running, &err) != TERN_OK) {
                CHECK_MSG(err.status == TERN_ERR_MEMORY, "%s", err.message);
                tern_mem_fail_at(0); // there is memory again
                succeeded = false;
                n_retried++;
                n_running = 1;
            }
        tern_mem_fail_at(0);
        for (int i = 0; i < 3; i++) {
            bool failed = a[i].n_ends && a[i].status != TERN_OK;
            CHECK(a[i].n_ends == was_added[i]);
            if (failed)
                n_ended++, succeeded = false;
            else if (a[i].n_ends)
                check_alone(m, NULL, &a[i], "after a failure");
            tern_session_close(a[i].session);
        }
        tern_group_close(g);
    }
    CHECK(succeeded);
    CHECK_MSG(n_ended > 0, "%d ended, %d steps were tried again", n_ended, n_retried);
    tern_model_close(m);
}

TEST(group_refuses_what_cannot_be) {
    tern_model *m = open_tiny(51, 0), *other = open_tiny(51, 0);
    tern_error err = {0};
    tern_group *g = NULL;
    const int32_t ids[] = {1, 2, TINY_N_VOCAB};
    if (!m || !other) return;
    CHECK(tern_group_open(&g, m, &(tern_group_desc){.n_piece = -1}, &err) == TERN_ERR_ARGUMENT);
    CHECK(tern_group_open(&g, NULL, NULL, &err) == TERN_ERR_ARGUMENT && !g);
    g = open_group(m, NULL);
    tern_session *s = open_session(m, &(tern_session_desc){.n_context = 8}),
                 *foreign = open_session(other, NULL),
                 *profiled = open_session(m, &(tern_session_desc){.profile = true});
#define ADD(session, ids, n) tern_group_add(g, session, ids, n, NULL, &err)
    CHECK(ADD(foreign, ids, 2) == TERN_ERR_ARGUMENT && strstr(err.message, "another model"));
    CHECK(ADD(profiled, ids, 2) == TERN_ERR_ARGUMENT && strstr(err.message, "profile"));
    CHECK(ADD(s, ids, 3) == TERN_ERR_ARGUMENT && ADD(s, ids, 0) == TERN_ERR_ARGUMENT);
    const int32_t nine[9] = {0};
    CHECK(ADD(s, nine, 9) == TERN_ERR_CONTEXT_FULL);
    CHECK(ADD(s, ids, 2) == TERN_OK && ADD(s, ids, 2) == TERN_ERR_ARGUMENT);
    tern_session_close(s); // while it runs
    size_t n_running = 7;
    CHECK(tern_group_step(g, &n_running, &err) == TERN_OK && n_running == 0);
    tern_session_close(foreign);
    tern_session_close(profiled);
    tern_group_close(g);
    tern_model_close(m);
    tern_model_close(other);
}

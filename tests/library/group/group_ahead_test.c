// Greedy steps of a group that run ahead of the host, on a GPU.
#include <math.h>
#include "base/alloc.h"
#include "kernels/webgpu/run/gpu_instance.h"
#include "runtime/runtime.h"
#include "tests/library/group/group_fixture.h"
#include "tests/library/webgpu/gpu_fixture.h"
#include "tests/support/tiny_model.h"

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
        answer_draw(&a[i], &random, TINY_N_VOCAB);
        answer_draw_greedy(&a[i], &random);
        a[i].n_prompt = n_prompt;
        a[i].params.max_tokens = N_ANSWER;
        a[i].n_calls_max = 0;
        a[i].params.n_stops = 0;
        a[i].session = open_session(m, NULL);
        answer_add(g, &a[i]);
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
    add_alike(g, m, 20, a);                     // 60 positions in two pages of 32
    for (int k = 0; k < 16; k++) step_group(g); // up to eight steps in one submission
    uint64_t before = tern_heap_get().n_allocs;
    while (tern_heap_get().n_allocs == before && step_group(g) == N_ALIKE) {
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
    while (step_group(g) > 0) {
    }
    CHECK_MSG(n_together > N_ANSWER / 2 && n_together - n_ahead == 1, "%d of %d steps ahead",
              n_ahead, n_together);
    tern_group_close(g);
    close_alike(a);
    tern_model_close(m);
}

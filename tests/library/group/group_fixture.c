#include "tests/library/group/group_fixture.h"

#include <stdlib.h>
#include <string.h>
#include "tests/support/tiny_model.h"

const group_family group_families[N_GROUP_FAMILIES] = {
    {"bitnet", NULL}, // with a tokenizer
    {"llama", "tests/oracles/llama"},
    {"qwen3", "tests/oracles/qwen3/model.gguf"},
    {"qwen3.5", "tests/oracles/qwen35/model.gguf"},
    {"lfm2", "tests/oracles/lfm2/model.gguf"},
    {"gemma3", "tests/oracles/gemma3/model.gguf"},
};

static tern_model *open_model(const char *path, const tern_model_desc *desc) {
    tern_error err = {0};
    tern_model *m = NULL;
    tern_status status = tern_model_open(&m, path, desc, &err);
    CHECK_MSG(status == TERN_OK, "%s: %s", path, err.message);
    return m;
}

tern_model *open_tiny(unsigned seed, int32_t n_batch) {
    tern_error err = {0};
    const char *path = test_tmp("group.gguf");
    CHECK_MSG(tiny_model_write(path, &(tiny_model_desc){.seed = seed}, &err) == TERN_OK, "%s",
              err.message);
    return open_model(path, &(tern_model_desc){.n_threads = 1, .n_batch = n_batch});
}

tern_model *open_family(const group_family *f, unsigned seed, int32_t n_batch) {
    if (!f->path) return open_tiny(seed, n_batch);
    return open_model(f->path, &(tern_model_desc){.n_threads = 1, .n_batch = n_batch});
}

tern_session *open_session(tern_model *m, const tern_session_desc *desc) {
    tern_error err = {0};
    tern_session *s = NULL;
    CHECK_MSG(tern_session_open(&s, m, desc, &err) == TERN_OK, "%s", err.message);
    return s;
}

tern_group *open_group(tern_model *m, const tern_group_desc *desc) {
    tern_error err = {0};
    tern_group *g = NULL;
    CHECK_MSG(tern_group_open(&g, m, desc, &err) == TERN_OK, "%s", err.message);
    return g;
}

// ---- Answers -----------------------------------------------------------------------------------

bool answer_on_text(void *user, const char *text, size_t n) {
    answer *a = user;
    a->n_calls++;
    if (a->n_text + n < sizeof a->text) memcpy(a->text + a->n_text, text, n);
    a->n_text += n;
    return a->n_calls != a->n_calls_max;
}

void answer_keep(answer *a, tern_session *s) {
    size_t n_each = 0;
    const int32_t *ids = tern_session_generated(s, &a->n);
    if (a->n > N_ANSWER) a->n = N_ANSWER;
    if (a->n) memcpy(a->ids, ids, a->n * sizeof *ids);
    const tern_token_logprob *p = tern_session_token_logprobs(s, &a->n_logprobs, &n_each);
    if (p) memcpy(a->logprobs, p, a->n_logprobs * n_each * sizeof *p);
}

void answer_on_end(void *user, tern_session *s, const tern_generate_stats *stats,
                   const tern_error *err) {
    answer *a = user;
    a->n_ends++;
    a->stats = *stats;
    a->status = err->status;
    answer_keep(a, s);
}

uint32_t draw_number(uint32_t *random, uint32_t n) {
    *random = *random * 1664525u + 1013904223u;
    return (*random >> 8) % n;
}

// Ways to generate; which one a number stands for.
static const char *const stops[] = {"e", "th"};
const tern_sampling samplings[6] = {
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

void answer_draw(answer *a, uint32_t *random, int32_t n_vocab) {
    *a = (answer){.n_prompt = 1 + draw_number(random, N_PROMPT_MAX)};
    for (size_t i = 0; i < a->n_prompt; i++)
        a->prompt[i] =
            (int32_t)draw_number(random, i % 3 ? 6 : (uint32_t)n_vocab); // it repeats itself
    a->params.sampling = &samplings[draw_number(random, 6)];
    a->params.max_tokens = 1 + (int32_t)draw_number(random, N_ANSWER);
    a->params.ignore_end = draw_number(random, 2);
    a->params.logprobs = draw_number(random, 4) == 0;
    a->params.n_top_logprobs = 2;
    if (draw_number(random, 3)) return;
    a->params.stops = stops;
    a->params.n_stops = 2;
}

void answer_draw_greedy(answer *a, uint32_t *random) {
    a->params.sampling = &samplings[0];
    a->params.logprobs = false;
    a->params.ignore_end = true;
    a->params.max_tokens = N_ANSWER - (int32_t)draw_number(random, 15);
    a->n_calls_max = draw_number(random, 3) ? 0 : 1 + (int)draw_number(random, 12);
}

void answer_check_alone(tern_model *m, const tern_session_desc *desc, const answer *a,
                        const char *what) {
    answer alone = *a;
    tern_error err = {0};
    tern_session *s = open_session(m, desc);
    alone.n_text = 0;
    alone.n_calls = 0;
    alone.params.on_text = answer_on_text;
    alone.params.user = &alone;
    alone.status = tern_generate_ids(s, a->prompt, a->n_prompt, &alone.params, &alone.stats, &err);
    answer_keep(&alone, s);
    bool same = alone.status == a->status && alone.n == a->n && alone.n_text == a->n_text &&
                memcmp(alone.ids, a->ids, a->n * sizeof *a->ids) == 0 &&
                memcmp(alone.text, a->text, a->n_text) == 0 && alone.n_logprobs == a->n_logprobs &&
                alone.stats.reason == a->stats.reason &&
                alone.stats.n_generated == a->stats.n_generated &&
                memcmp(alone.logprobs, a->logprobs, a->n_logprobs * 3 * sizeof *a->logprobs) == 0;
    CHECK_MSG(same, "%s: %zu tokens, reason %d, alone %zu, reason %d: %s", what, a->n,
              (int)a->stats.reason, alone.n, (int)alone.stats.reason, err.message);
    CHECK_MSG(a->n_ends == 1, "%s: answer_on_end was called %d times", what, a->n_ends);
    tern_session_close(s);
}

bool answer_add(tern_group *g, answer *a) {
    tern_error err = {0};
    a->params.on_text = answer_on_text;
    a->params.on_end = answer_on_end;
    a->params.user = a;
    tern_status status = tern_group_add(g, a->session, a->prompt, a->n_prompt, &a->params, &err);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    return status == TERN_OK;
}

size_t step_group(tern_group *g) {
    tern_error err = {0};
    size_t n = 0;
    CHECK_MSG(tern_group_step(g, &n, &err) == TERN_OK, "%s", err.message);
    return err.status == TERN_OK ? n : 0;
}

int32_t repeat_first(void *user, const int32_t *ids, size_t n_ids, int32_t *draft, int32_t n_max) {
    (void)user, (void)n_ids;
    for (int32_t i = 0; i < n_max; i++) draft[i] = ids[i];
    return n_max;
}

tern_session_desc desc_of(int which) {
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

void check_together(tern_model *m, const char *name, uint32_t seed, int32_t n_piece, bool greedy) {
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
        if (n_added < n_all && (few || draw_number(&random, once_in) == 0)) {
            answer *a = &answers[n_added];
            answer_draw(a, &random, info.n_vocab);
            if (greedy) answer_draw_greedy(a, &random);
            // Drafts of the host, too, are steps of several tokens.
            descs[n_added] =
                desc_of(greedy && draw_number(&random, 4) ? 4 : (int)draw_number(&random, 5));
            a->session = open_session(m, &descs[n_added]);
            if (!answer_add(g, a)) break;
            n_added++;
            n_running++;
        }
        for (size_t i = 0; i < n_added; i++) // now and then one is swapped out between steps
            if (draw_number(&random, 20) == 0) tern_session_swap_out(answers[i].session, NULL);
        n_running = step_group(g);
    }
    tern_group_close(g);
    for (size_t i = 0; i < n_added; i++) {
        answer_check_alone(m, &descs[i], &answers[i], name);
        tern_session_close(answers[i].session);
    }
    free(answers);
}

size_t answer_n_said(const answer *a) {
    size_t n;
    tern_session_generated(a->session, &n);
    return n;
}

// Answers of sessions, alone and in a group: random ones are made and compared.
#ifndef TERN_TESTS_GROUP_FIXTURE_H
#define TERN_TESTS_GROUP_FIXTURE_H

#include "tern.h"
#include "tests/support/harness.h"

typedef struct group_family {
    const char *name, *path; // NULL: the tiny model, which has a tokenizer
} group_family;
enum { N_GROUP_FAMILIES = 6 };
extern const group_family group_families[N_GROUP_FAMILIES];

tern_model *open_family(const group_family *f, unsigned seed, int32_t n_batch);
tern_model *open_tiny(unsigned seed, int32_t n_batch);
tern_session *open_session(tern_model *m, const tern_session_desc *desc);
tern_group *open_group(tern_model *m, const tern_group_desc *desc);

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

// Callbacks whose user is an answer; and what its session has generated.
bool answer_on_text(void *user, const char *text, size_t n);
void answer_on_end(void *user, tern_session *s, const tern_generate_stats *stats,
                   const tern_error *err);
void answer_keep(answer *a, tern_session *s);

uint32_t draw_number(uint32_t *random, uint32_t n); // 0 .. n - 1
extern const tern_sampling samplings[6];            // the first is greedy
void answer_draw(answer *a, uint32_t *random, int32_t n_vocab);
// All scores are read for none: such steps may run ahead of the host.
void answer_draw_greedy(answer *a, uint32_t *random);
bool answer_add(tern_group *g, answer *a);
size_t step_group(tern_group *g); // how many still run
// How many tokens it has generated so far.
size_t answer_n_said(const answer *a);

// What it says alone, in a fresh session.
void answer_check_alone(tern_model *m, const tern_session_desc *desc, const answer *a,
                        const char *what);
// Ways to generate: 0 to 4.
tern_session_desc desc_of(int which);
// Drafts more than one knows of: some of it is not right.
int32_t repeat_first(void *user, const int32_t *ids, size_t n_ids, int32_t *draft, int32_t n_max);
// Sessions come one after the other, while others run; some are used again for another text.
void check_together(tern_model *m, const char *name, uint32_t seed, int32_t n_piece, bool greedy);

#endif

// Many texts at once, each with an answer of its own, which are computed together:
//
//     cc many.c $(pkg-config --cflags --libs tern) -o many && ./many model.gguf A "The B" ...
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tern.h"

typedef struct answer {
    const char *prompt;
    char *text;
    size_t n, capacity;
    bool *failed; // whether any did
} answer;

// Grows the text: an answer has no length that would be enough.
static bool on_text(void *user, const char *text, size_t n) {
    answer *a = user;
    if (a->n + n > a->capacity) {
        size_t capacity = 2 * (a->n + n);
        char *grown = realloc(a->text, capacity);
        if (!grown) return false; // ends this answer, and no other
        a->text = grown;
        a->capacity = capacity;
    }
    memcpy(a->text + a->n, text, n);
    a->n += n;
    return true;
}

static void on_end(void *user, tern_session *session, const tern_generate_stats *stats,
                   const tern_error *err) {
    answer *a = user;
    printf("%s", a->prompt);
    fwrite(a->text, 1, a->n, stdout); // it may have zeros in it
    printf("\n[%zu tokens]\n\n", stats->n_generated);
    if (err->status != TERN_OK) {
        fprintf(stderr, "many: \"%.40s\": %s\n", a->prompt, err->message);
        *a->failed = true;
    }
    tern_session_close(session);
}

// All tokens of a text: the caller frees them.
static int32_t *tokenize(const tern_model *model, const char *text, size_t *n, tern_error *err) {
    tern_ids ids = {0};
    const size_t n_bytes = strlen(text);
    if (tern_tokenize(model, text, n_bytes, TERN_TOKENIZE_BOS, &ids, err) != TERN_OK) return NULL;
    ids.capacity = ids.n; // the first call counts them
    ids.ids = malloc((ids.n + 1) * sizeof *ids.ids);
    if (ids.ids) tern_tokenize(model, text, n_bytes, TERN_TOKENIZE_BOS, &ids, err);
    *n = ids.n;
    return ids.ids;
}

static bool add(tern_group *group, tern_model *model, answer *a, tern_error *err) {
    tern_session *session = NULL;
    size_t n = 0;
    const tern_generate_params params = {
        .max_tokens = 64, .on_text = on_text, .on_end = on_end, .user = a};
    int32_t *ids = tokenize(model, a->prompt, &n, err);
    bool ok = ids && tern_session_open(&session, model, NULL, err) == TERN_OK &&
              tern_group_add(group, session, ids, n, &params, err) == TERN_OK;
    if (!ok) tern_session_close(session); // one that was added is closed by on_end
    free(ids);                            // the group has a copy
    return ok;
}

int main(int argc, char **argv) {
    tern_error err = {0};
    tern_model *model = NULL;
    tern_group *group = NULL;
    bool failed = false;
    if (argc < 3) {
        fprintf(stderr, "usage: many MODEL PROMPT...\n");
        return 2;
    }
    answer *answers = calloc((size_t)argc, sizeof *answers);
    bool ok = answers && tern_model_open(&model, argv[1], NULL, &err) == TERN_OK &&
              tern_group_open(&group, model, NULL, &err) == TERN_OK;
    for (int i = 2; ok && i < argc; i++) {
        answers[i] = (answer){.prompt = argv[i], .failed = &failed};
        if (add(group, model, &answers[i], &err)) continue;
        fprintf(stderr, "many: \"%.40s\": %s\n", argv[i], err.message); // the others go on
        failed = true;
    }
    for (size_t n_running = 1; ok && n_running > 0;)
        ok = tern_group_step(group, &n_running, &err) == TERN_OK;
    if (!ok) fprintf(stderr, "many: %s\n", answers ? err.message : "out of memory");
    tern_group_close(group); // those that still run end here, with what they have
    tern_model_close(model);
    for (int i = 2; answers && i < argc; i++) free(answers[i].text);
    free(answers);
    return ok && !failed ? 0 : 1;
}

// Many texts at once: cc many.c $(pkg-config --cflags --libs tern) && ./a.out model.gguf A "The B"
#include <stdio.h>
#include <string.h>
#include "tern.h"

typedef struct answer {
    const char *prompt;
    char text[1000];
    size_t n;
} answer;

static bool on_text(void *user, const char *text, size_t n) {
    answer *a = user;
    for (size_t i = 0; i < n && a->n + 1 < sizeof a->text; i++) a->text[a->n++] = text[i];
    return true; // false would end this answer
}

static void on_end(void *user, tern_session *s, const tern_generate_stats *st,
                   const tern_error *e) {
    const answer *a = user;
    printf("%s%s\n[%zu tokens] %s\n\n", a->prompt, a->text, st->n_generated, e->message);
    tern_session_close(s);
}

int main(int argc, char **argv) {
    tern_error err = {0};
    tern_model *model = NULL;
    tern_group *group = NULL;
    size_t n_running = 1; // TERN_OK is 0
    static answer answers[100];
    if (argc < 3 || argc > 100) return fprintf(stderr, "usage: many MODEL PROMPT...\n"), 2;
    tern_generate_params params = {.max_tokens = 64, .on_text = on_text, .on_end = on_end};
    bool ok = !tern_model_open(&model, argv[1], NULL, &err) &&
              !tern_group_open(&group, model, NULL, &err);
    for (int i = 2; ok && i < argc; i++) {
        int32_t room[256];
        tern_ids ids = {room, 256, 0};
        tern_session *session = NULL;
        const char *text = answers[i].prompt = argv[i];
        params.user = &answers[i];
        ok = !tern_tokenize(model, text, strlen(text), TERN_TOKENIZE_BOS, &ids, &err) &&
             !tern_session_open(&session, model, NULL, &err) &&
             !tern_group_add(group, session, room, ids.n < 256 ? ids.n : 256, &params, &err);
    }
    while (ok && n_running > 0) ok = !tern_group_step(group, &n_running, &err);
    if (!ok) fprintf(stderr, "many: %s\n", err.message);
    tern_group_close(group); // sessions that still ran end here
    tern_model_close(model);
    return ok ? 0 : 1;
}

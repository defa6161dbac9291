// The smallest program on tern: cc hello.c $(pkg-config --cflags --libs tern) && ./a.out model.gguf
#include <stdio.h>
#include "tern.h"

static bool print(void *user, const char *text, size_t n_bytes) {
    (void)user;
    fwrite(text, 1, n_bytes, stdout);
    fflush(stdout);
    return true; // false would stop the generation
}

int main(int argc, char **argv) {
    tern_error err = {0};
    tern_model *model = NULL;
    tern_session *session = NULL;
    if (argc < 2) {
        fprintf(stderr, "usage: hello MODEL [PROMPT]\n");
        return 2;
    }
    const char *prompt = argc > 2 ? argv[2] : "Once upon a time";
    tern_generate_params params = {.max_tokens = 64, .on_text = print};
    bool ok = tern_model_open(&model, argv[1], NULL, &err) == TERN_OK &&
              tern_session_open(&session, model, NULL, &err) == TERN_OK &&
              tern_generate(session, prompt, &params, NULL, &err) == TERN_OK;
    putchar('\n');
    if (!ok) fprintf(stderr, "hello: %s\n", err.message);
    tern_session_close(session);
    tern_model_close(model);
    return ok ? 0 : 1;
}

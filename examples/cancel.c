// Ctrl-C at any time, while a model is loaded, a prompt is read or an answer is generated, ends
// what runs and leaves the program in order:
//
//     cc cancel.c $(pkg-config --cflags --libs tern) -o cancel && ./cancel model.gguf
#include <signal.h>
#include <stdio.h>
#include "tern.h"

static tern_cancel stop;
static void on_signal(int number) {
    (void)number;
    tern_cancel_request(&stop); // all that a signal handler has to do
}

static bool print(void *user, const char *text, size_t n_bytes) {
    (void)user;
    fwrite(text, 1, n_bytes, stdout);
    fflush(stdout);
    return true;
}

int main(int argc, char **argv) {
    tern_error err = {0};
    tern_model *model = NULL;
    tern_session *session = NULL;
    tern_generate_stats stats = {0};
    if (argc < 2) {
        fprintf(stderr, "usage: cancel MODEL [PROMPT]\n");
        return 2;
    }
    const char *prompt = argc > 2 ? argv[2] : "Once upon a time";
    // An answer without an end: what no longer fits the context is dropped.
    const tern_session_desc endless = {.shift_context = true};
    const tern_generate_params params = {.ignore_end = true, .on_text = print};
    signal(SIGINT, on_signal);
    tern_cancel_watch(&stop); // from here on, the calls of this thread
    bool ok = tern_model_open(&model, argv[1], NULL, &err) == TERN_OK &&
              tern_session_open(&session, model, &endless, &err) == TERN_OK &&
              tern_generate(session, prompt, &params, &stats, &err) == TERN_OK;
    tern_cancel_watch(NULL);
    putchar('\n');
    if (err.status == TERN_ERR_CANCELLED || (ok && stats.reason == TERN_STOP_CALLER))
        fprintf(stderr, "stopped after %zu tokens; the session has %zu\n", stats.n_generated,
                tern_session_n_tokens(session));
    else if (!ok)
        fprintf(stderr, "cancel: %s\n", err.message);
    tern_session_close(session);
    tern_model_close(model);
    return ok || err.status == TERN_ERR_CANCELLED ? 0 : 1;
}

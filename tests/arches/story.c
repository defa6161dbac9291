// The text of the carried model that every processor must write alike: run.sh compares them.
#include <stdio.h>
#include "tern.h"

static bool print(void *user, const char *text, size_t n_bytes) {
    (void)user;
    return fwrite(text, 1, n_bytes, stdout) == n_bytes;
}

int main(int argc, char **argv) {
    tern_error err = {0};
    tern_model *model = NULL;
    tern_session *session = NULL;
    tern_sampling sampling = tern_sampling_default();
    sampling.temperature = 0.7f;
    sampling.seed = 3;
    tern_generate_params params = {.max_tokens = 60, .on_text = print, .sampling = &sampling};
    bool ok = argc == 2 && tern_model_open(&model, argv[1], NULL, &err) == TERN_OK &&
              tern_session_open(&session, model, NULL, &err) == TERN_OK &&
              tern_generate(session, "Once upon a time", &params, NULL, &err) == TERN_OK;
    if (!ok) printf("%s\n", err.message);
    tern_session_close(session);
    tern_model_close(model);
    return ok ? 0 : 1;
}

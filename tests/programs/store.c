// Sessions kept in memory, as a server keeps conversations: each one's state is taken out of the
// one session there is and put back, and its text goes on as if nothing else had been computed
// between.
#include "program.h"

enum { N_USERS = 3, N_ROUNDS = 3 };

static void go_on(tern_session *s, const char *prompt, text *out) {
    tern_error err = ZEROS;
    tern_sampling greedy = ZEROS;
    tern_generate_params params = ZEROS;
    params.sampling = &greedy;
    params.max_tokens = 5;
    params.ignore_end = true;
    params.append = true;
    params.on_text = text_put;
    params.user = out;
    NEED(tern_generate(s, prompt, &params, NULL, &err), err);
}

int main(int argc, char **argv) {
    static const char *const prompts[N_USERS] = {"The fox", "A girl", "One day"};
    tern_error err = ZEROS;
    tern_model *model = NULL;
    tern_session *session = NULL, *alone = NULL;
    text kept[N_USERS], said[N_USERS];
    memset(kept, 0, sizeof kept);
    memset(said, 0, sizeof said);
    if (argc < 2) return 2;
    NEED(tern_model_open(&model, argv[1], NULL, &err), err);
    NEED(tern_session_open(&session, model, NULL, &err), err);
    NEED(tern_session_open(&alone, model, NULL, &err), err);
    for (int round = 0; round < N_ROUNDS; round++)
        for (int u = 0; u < N_USERS; u++) {
            if (round == 0)
                tern_session_reset(session);
            else
                NEED(tern_session_load_bytes(session, kept[u].bytes, kept[u].n, &err), err);
            go_on(session, round ? " and then" : prompts[u], &said[u]);
            kept[u].n = 0;
            NEED(tern_session_save_bytes(session, text_put, &kept[u], &err), err);
        }
    for (int u = 0; u < N_USERS; u++) { // what each of them gets alone
        text want = ZEROS;
        tern_session_reset(alone);
        for (int round = 0; round < N_ROUNDS; round++)
            go_on(alone, round ? " and then" : prompts[u], &want);
        CHECK(want.n == said[u].n && !memcmp(want.bytes, said[u].bytes, want.n));
        text_free(&want);
    }
    size_t n_tokens = tern_session_n_tokens(session);
    kept[0].bytes[kept[0].n / 2] ^= 8;
    CHECK(tern_session_load_bytes(session, kept[0].bytes, kept[0].n, &err) == TERN_ERR_FORMAT);
    CHECK(err.message[0] && tern_session_n_tokens(session) == n_tokens);
    CHECK(tern_session_load_bytes(session, kept[1].bytes, 40, &err) == TERN_ERR_FORMAT);
    for (int u = 0; u < N_USERS; u++) {
        text_free(&kept[u]);
        text_free(&said[u]);
    }
    tern_session_close(session);
    tern_session_close(alone);
    tern_model_close(model);
    return n_failed != 0;
}

// Fuzzing of saved sessions. The first byte says of which model; then come the bytes of a file.
// Checksums would keep every mutation out, so that what follows header and tokens is also read as
// states, without any: what is accepted must compute.
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "fuzz/support.h"
#include "runtime/runtime.h"

enum { HEADER = 40, N_IDS = 40, N_CONTEXT = 64 };

typedef struct source {
    const uint8_t *bytes;
    size_t n;
} source;

static tern_status get(void *user, void *to, size_t n, tern_error *err) {
    source *s = user;
    if (n > s->n) return tern_fail(err, TERN_ERR_FORMAT, "the end");
    memcpy(to, s->bytes, n);
    s->bytes += n;
    s->n -= n;
    return TERN_OK;
}

static void read_states(tern_model *m, const uint8_t *bytes, size_t n) {
    source from = {bytes, n};
    int32_t ids[N_IDS];
    tern_error err = {0};
    tern_lease *l;
    for (int i = 0; i < N_IDS; i++) ids[i] = i + 1;
    if (tern_lease_open(&l, m, N_CONTEXT, TERN_KV_F32, &err) != TERN_OK) return;
    if (tern_lease_read(l, ids, N_IDS, get, &from, &err) == TERN_OK)
        for (int32_t at = N_IDS; at > 0; at -= 13) { // on, and back to snapshots
            const tern_work w = {.lease = l, .ids = ids, .n_ids = 3, .first_pos = at};
            tern_model_compute(m, &w, 1, &(tern_wants){0}, &err);
        }
    tern_lease_close(l);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static const char *const models[] = {"tests/oracles/qwen35/model.gguf",  // delta nets
                                         "tests/oracles/gemma3/model.gguf"}; // windows
    const tern_model_desc desc = {.n_threads = 1, .n_batch = 64};
    const tern_session_desc session = {.n_context = N_CONTEXT, .kv_type = TERN_KV_F32};
    const size_t front = 1 + HEADER + N_IDS * 4;
    tern_model *m;
    tern_session *s;
    tern_error err = {0};
    if (n == 0 || tern_model_open(&m, models[*bytes & 1], &desc, &err) != TERN_OK) return 0;
    const char *path = fuzz_write("a.session", bytes + 1, n - 1);
    if (tern_session_open(&s, m, &session, &err) == TERN_OK) {
        bool loaded = tern_session_load(s, path, &err) == TERN_OK;
        fuzz_require(loaded || tern_session_n_tokens(s) == 0);
        tern_session_close(s);
    }
    if (n > front) read_states(m, bytes + front, n - front);
    tern_model_close(m);
    return 0;
}

// Sessions in files: what follows a session that was loaded has the bits of one that went on, for
// every kind of state; and files that are damaged, foreign or half there are refused.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "base/os/os_file.h"
#include "tests/support/harness.h"
#include "runtime/runtime.h"
#include "tern.h"

typedef struct family {
    const char *name, *path;
    tern_kv_type kv_type;
} family;
static const family families[] = {
    {"bitnet", "tests/oracles/bitnet_packed", TERN_KV_F32},
    {"llama", "tests/oracles/llama", TERN_KV_F16},
    {"qwen3", "tests/oracles/qwen3/model.gguf", TERN_KV_F16},
    {"qwen3.5", "tests/oracles/qwen35/model.gguf", TERN_KV_F16}, // delta nets
    {"lfm2", "tests/oracles/lfm2/model.gguf", TERN_KV_F32},      // convolutions
    {"gemma3", "tests/oracles/gemma3/model.gguf", TERN_KV_F16},  // windows
    {"granite hybrid", "tests/oracles/granitehybrid/model.gguf", TERN_KV_F16},
    {"falcon-h1", "tests/oracles/falcon_h1/model.gguf", TERN_KV_F32}, // Mamba-2
    {"gemma4", "tests/oracles/gemma4/model.gguf", TERN_KV_F16},
    {"bitnet, 4 bits", "tests/oracles/bitnet_packed", TERN_KV_Q4_0},
};
enum { N_FAMILIES = sizeof families / sizeof *families, N_IDS = 150, N_CONTEXT = 200 };

typedef struct opened {
    tern_model *model;
    tern_session *session;
    tern_model_info info;
    int32_t ids[N_IDS];
} opened;

static bool open_family(opened *o, const family *f) {
    tern_error err = {0};
    *o = (opened){0};
    const tern_model_desc desc = {.n_batch = 48, .n_threads = 1};
    const tern_session_desc session = {.n_context = N_CONTEXT, .kv_type = f->kv_type};
    bool ok = tern_model_open(&o->model, f->path, &desc, &err) == TERN_OK &&
              tern_session_open(&o->session, o->model, &session, &err) == TERN_OK;
    CHECK_MSG(ok, "%s: %s", f->name, err.message);
    if (ok) tern_model_get_info(o->model, &o->info);
    for (int i = 0; ok && i < N_IDS; i++) o->ids[i] = (int32_t)(1 + i * 7 % (o->info.n_vocab - 1));
    return ok;
}

static void close_family(opened *o) {
    tern_session_close(o->session);
    tern_model_close(o->model);
}

// The scores after tokens [first, end), as one number; *n_reused as sync says.
static uint64_t scores(const opened *o, tern_session *s, size_t first, size_t end,
                       size_t *n_reused) {
    tern_error err = {0};
    size_t n = end - first;
    float *logits = malloc(n * (size_t)o->info.n_vocab * sizeof *logits);
    uint64_t hash = 0;
    bool ok = logits && tern_session_sync(s, o->ids, first, n_reused, &err) == TERN_OK &&
              tern_session_logits(s, o->ids + first, n, logits, &err) == TERN_OK;
    CHECK_MSG(ok, "%s", err.message);
    if (ok) hash = tern_hash64(0, logits, n * (size_t)o->info.n_vocab * sizeof *logits);
    free(logits);
    return hash;
}

static bool grow(const opened *o, size_t n) { // with a point to go back to half way
    tern_error err = {0};
    bool ok = tern_session_sync(o->session, o->ids, n / 2, NULL, &err) == TERN_OK &&
              tern_session_sync(o->session, o->ids, n / 2, NULL, &err) == TERN_OK &&
              tern_session_sync(o->session, o->ids, n, NULL, &err) == TERN_OK;
    CHECK_MSG(ok, "%s", err.message);
    return ok;
}

// Seen to fail: snapshots that are not written, or with the present states; pages of windows that
// are not; the length written one less.
TEST(saved_sessions_go_on_with_the_same_bits) {
    for (size_t i = 0; i < N_FAMILIES; i++) {
        opened a, b;
        tern_error err = {0};
        const char *path = test_tmp("saved.session");
        if (!open_family(&a, &families[i]) || !grow(&a, 131)) return;
        if (i % 2) REQUIRE_OK(tern_session_swap_out(a.session, &err), err);
        REQUIRE_OK(tern_session_save(a.session, path, &err), err);
        if (!open_family(&b, &families[i])) return;
        REQUIRE_OK(tern_session_load(b.session, path, &err), err);
        CHECK(tern_session_n_tokens(b.session) == 131);
        size_t reused[2], back[2];
        uint64_t on = scores(&a, a.session, 131, 150, &reused[0]);
        CHECK_MSG(scores(&b, b.session, 131, 150, &reused[1]) == on && reused[1] == 131,
                  "%s: other bits, or %zu of 131 reused", families[i].name, reused[1]);
        // Back to where the first half ended, as far as either can go.
        on = scores(&a, a.session, 65, 90, &back[0]);
        CHECK_MSG(scores(&b, b.session, 65, 90, &back[1]) == on, "%s: other bits after going back",
                  families[i].name);
        // Swapping out forgets snapshots; else all that could be gone back to still can be.
        CHECK_MSG(i % 2 || back[0] == back[1], "%s: back to 65 kept %zu, loaded %zu",
                  families[i].name, back[0], back[1]);
        close_family(&a);
        close_family(&b);
    }
}

// A front, after a cut. Seen to fail: a page of a window too few, a length too short.
TEST(saved_sessions_end_where_the_timeline_does) {
    for (size_t i = 0; i < N_FAMILIES; i++) {
        opened a, b;
        tern_error err = {0};
        size_t n;
        int32_t ids[N_IDS];
        tern_ids there = {ids, N_IDS, 0};
        const char *path = test_tmp("front.session");
        if (!open_family(&a, &families[i]) || !grow(&a, 120)) return;
        REQUIRE_OK(tern_session_sync(a.session, a.ids, 100, NULL, &err), err);
        REQUIRE_OK(tern_session_save(a.session, path, &err), err);
        if (!open_family(&b, &families[i])) return;
        REQUIRE_OK(tern_session_peek(b.session, path, &there, &err), err);
        CHECK(there.n == 100 && !memcmp(ids, a.ids, 100 * sizeof *ids));
        REQUIRE_OK(tern_session_load(b.session, path, &err), err);
        CHECK(tern_session_n_tokens(b.session) == 100);
        CHECK_MSG(scores(&a, a.session, 100, 130, &n) == scores(&b, b.session, 100, 130, &n),
                  "%s: other bits", families[i].name);
        close_family(&a);
        close_family(&b);
    }
}

static void refuse(opened *o, const char *path, const char *why) {
    tern_error err = {0};
    CHECK(tern_session_load(o->session, path, &err) != TERN_OK);
    CHECK_MSG(strstr(err.message, why) && strstr(err.message, path), "'%s' has no '%s'",
              err.message, why);
    CHECK(tern_session_n_tokens(o->session) == 20); // it is as it was
}

// Seen to fail: without either checksum, without the digest, with bytes after the end allowed.
TEST(saved_sessions_that_are_not_whole_are_refused) {
    for (size_t i = 0; i < N_FAMILIES; i += 5) { // plain, windows
        opened o;
        tern_error err = {0};
        size_t n, n_reused;
        const char *path = test_tmp("whole.session"), *bad = test_tmp("bad.session");
        if (!open_family(&o, &families[i]) || !grow(&o, 131)) return;
        REQUIRE_OK(tern_session_save(o.session, path, &err), err);
        REQUIRE_OK(tern_session_sync(o.session, o.ids, 20, NULL, &err), err);
        char *bytes = test_read(path, &n);
        REQUIRE(bytes != NULL && n > 40 + 131 * 4 + 200);
        for (size_t k = 0; k < 100; k++) { // cut
            size_t at = k < 50 ? k * 2 : n * k / 100;
            test_write(bad, bytes, at);
            CHECK(tern_session_load(o.session, bad, &err) != TERN_OK);
        }
        for (size_t k = 0; k < 200; k++) { // changed
            size_t at = k < 100 ? k * 7 : n * k / 200 + k % 2;
            bytes[at] ^= 4;
            test_write(bad, bytes, n);
            CHECK_MSG(tern_session_load(o.session, bad, &err) != TERN_OK, "a change at %zu", at);
            bytes[at] ^= 4;
        }
        static const struct {
            size_t at;
            const char *why;
        } changes[] = {{0, "not a saved session"},       {8, "a saved session of version"},
                       {16, "saved with another model"}, {24, "checksum"},
                       {31, "ends too early"},           {44, "its tokens have another"},
                       {2000, "its states have another"}};
        for (size_t k = 0; k < sizeof changes / sizeof *changes; k++) {
            bytes[changes[k].at] ^= 1;
            test_write(bad, bytes, n);
            refuse(&o, bad, changes[k].why);
            bytes[changes[k].at] ^= 1;
        }
        test_write(bad, bytes, n - 9);
        refuse(&o, bad, "ends too early");
        char *more = malloc(n + 1);
        REQUIRE(more != NULL);
        memcpy(more, bytes, n);
        more[n] = 0;
        test_write(bad, more, n + 1);
        refuse(&o, bad, "more in it");
        CHECK(scores(&o, o.session, 20, 30, &n_reused) != 0 && (i > 0 || n_reused == 20));
        REQUIRE_OK(tern_session_load(o.session, path, &err), err);
        free(more);
        free(bytes);
        close_family(&o);
    }
}

// Seen to fail: with a digest of the graph alone, and of the weights alone.
TEST(saved_sessions_of_other_models_are_refused) {
    uint64_t digests[2 * N_FAMILIES];
    opened o;
    tern_error err = {0};
    size_t n = 0;
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const family other = {families[i].name, families[i].path,
                              families[i].kv_type == TERN_KV_F32    ? TERN_KV_F16
                              : families[i].kv_type == TERN_KV_Q4_0 ? TERN_KV_Q8_0
                                                                    : TERN_KV_F32};
        const family *both[] = {&families[i], &other};
        for (int k = 0; k < 2; k++) {
            if (!open_family(&o, both[k])) return;
            REQUIRE_OK(tern_session_digest(o.session, &digests[n++], &err), err);
            for (size_t d = 0; d + 1 < n; d++) CHECK(digests[d] != digests[n - 1]);
            close_family(&o);
        }
    }
    // One byte of a weight.
    const char *copy = test_tmp("changed.gguf"), *path = test_tmp("other.session");
    size_t size;
    char *bytes = test_read(families[2].path, &size);
    REQUIRE(bytes != NULL);
    bytes[size - 64] ^= 1;
    test_write(copy, bytes, size);
    free(bytes);
    const family changed = {"changed", copy, families[2].kv_type};
    if (!open_family(&o, &families[2]) || !grow(&o, 30)) return;
    REQUIRE_OK(tern_session_save(o.session, path, &err), err);
    close_family(&o);
    if (!open_family(&o, &changed) || !grow(&o, 20)) return;
    refuse(&o, path, "saved with another model");
    close_family(&o);
    // A model that differs in its arithmetic only.
    const tern_model_desc precise = {.n_batch = 48, .n_threads = 1, .precise = true};
    tern_model *m;
    uint64_t digest, plain;
    REQUIRE_OK(tern_model_open(&m, families[2].path, &precise, &err), err);
    REQUIRE_OK(tern_model_digest(m, &digest, &err), err);
    tern_model_close(m);
    REQUIRE_OK(tern_model_open(&m, families[2].path, NULL, &err), err);
    REQUIRE_OK(tern_model_digest(m, &plain, &err), err);
    CHECK(digest != plain);
    tern_model_close(m);
}

// Whatever fails, nothing leaks, the session is as it was, and the old file is whole.
TEST(saved_sessions_survive_failing_allocations) {
    static const size_t each[] = {3, 5};
    for (size_t k = 0; k < 2; k++) {
        opened o;
        tern_error err = {0};
        const char *path = test_tmp("memory.session");
        if (!open_family(&o, &families[each[k]]) || !grow(&o, 131)) return;
        REQUIRE_OK(tern_session_save(o.session, path, &err), err);
        bool saved = false, loaded = false;
        size_t n_failed = 0, n_reused;
        for (uint64_t at = 1; at < 2000 && !(saved && loaded); at++) {
            size_t before = tern_heap_get().heap_now;
            tern_mem_fail_at(at);
            if (!saved) saved = tern_session_save(o.session, path, &err) == TERN_OK;
            tern_mem_fail_at(0);
            CHECK_MSG(saved || err.status == TERN_ERR_MEMORY, "%s", err.message);
            CHECK_MSG(tern_heap_get().heap_now == before, "saving, allocation %d leaks", (int)at);
            REQUIRE_OK(tern_session_sync(o.session, o.ids, 40, NULL, &err), err);
            tern_mem_fail_at(at);
            bool ok = tern_session_load(o.session, path, &err) == TERN_OK;
            tern_mem_fail_at(0);
            CHECK_MSG(ok || err.status == TERN_ERR_MEMORY, "%s", err.message);
            CHECK(tern_session_n_tokens(o.session) == (ok ? 131u : 40u));
            loaded |= ok;
            n_failed += !ok;
            REQUIRE_OK(tern_session_load(o.session, path, &err), err);
        }
        CHECK(saved && loaded && n_failed > 10);
        CHECK(scores(&o, o.session, 131, 140, &n_reused) && n_reused == 131);
        close_family(&o);
    }
}

// Seen to fail where the whole sequence is written.
TEST(saved_sessions_that_cannot_be_are_said_so) {
    opened o;
    tern_error err = {0};
    tern_session *small;
    const char *path = test_tmp("fit.session");
    if (!open_family(&o, &families[2]) || !grow(&o, 131)) return;
    REQUIRE_OK(tern_session_save(o.session, path, &err), err);
    const tern_session_desc desc = {.n_context = 100, .kv_type = families[2].kv_type};
    REQUIRE_OK(tern_session_open(&small, o.model, &desc, &err), err);
    CHECK(tern_session_load(small, path, &err) == TERN_ERR_CONTEXT_FULL);
    CHECK(strstr(err.message, "131 tokens do not fit into a context of 100"));
    CHECK(tern_session_load(small, "no/such/file", &err) == TERN_ERR_IO);
    CHECK(tern_session_save(small, "no/such/file", &err) == TERN_ERR_IO);
    // One without tokens, and one that has states of a text that is no longer its own.
    tern_session *const empty[] = {o.session, small};
    tern_session_reset(o.session);
    for (int i = 0; i < 2; i++) {
        REQUIRE_OK(tern_session_save(empty[i], path, &err), err);
        REQUIRE_OK(tern_session_load(o.session, path, &err), err);
        CHECK(tern_session_n_tokens(o.session) == 0);
    }
    tern_session_close(small);
    close_family(&o);
}

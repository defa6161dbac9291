// Weights on their way to the device: in pieces, only as many as it takes, given up at any time.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "kernels/webgpu/device/gpu.h"
#include "tests/library/webgpu/gpu_fixture.h"
#include "tests/support/harness.h"

// A device that answers when the test lets it; NULL: skipped, or failed.
static tern_device *open_holding(void) {
    tern_error err = {0};
    tern_device *d = NULL;
    tern_webgpu_desc desc = *gpu_webgpu(&(gpu_play){.holds = true});
    desc.group = -1;
    tern_status status = gpu_device_begin(&d, &desc, &err);
    for (bool done = false; status == TERN_OK && !done;) {
        gpu_play_answer();
        status = gpu_device_poll(d, &done, &err);
    }
    if (status == TERN_OK) return d;
    if (!gpu_is_absent(err.message)) CHECK_MSG(false, "%s", err.message);
    gpu_device_close(d);
    return NULL;
}

static tern_weight_source source_of(tern_dtype type, int64_t n_rows, int64_t n_cols) {
    uint64_t bytes = 0;
    tern_dtype_bytes(type, (uint64_t)(n_rows * n_cols), (uint64_t)n_cols, &bytes);
    uint16_t *data = malloc((size_t)bytes);
    if (!data) abort();
    uint32_t seed = 7;
    for (uint64_t i = 0; i < bytes / 2; i++) {
        seed = seed * 1664525u + 1013904223u;
        data[i] = (uint16_t)(seed >> 20 | 0x3000); // as F16 and BF16: small and not zero
    }
    return (tern_weight_source){.name = "weight",
                                .type = type,
                                .bytes = bytes,
                                .data = tern_blob_of(data, bytes),
                                .n_rows = n_rows,
                                .n_cols = n_cols,
                                .is_table = true};
}

// Checks that all that was sent lies there.
static void check_bytes(tern_device *d, const tern_weight *w, const tern_weight_source *s,
                        uint64_t bytes) {
    tern_error err = {0};
    tern_weight_check c;
    gpu_webgpu(&(gpu_play){0}); // answers come by themselves
    tern_status status = gpu_weight_verify(d, w, s, &c, &err);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    CHECK_MSG(c.n_wrong == 0 && c.n_bytes == bytes, "%lld of %lld bytes are wrong",
              (long long)c.n_wrong, (long long)c.n_bytes);
}

// Polls until it is bound, or polls make no difference.
static tern_status bind_some(tern_device *d, tern_weight *w, uint64_t *left, tern_error *err) {
    for (uint64_t before = UINT64_MAX; *left > 0 && *left < before;) {
        before = *left;
        TERN_TRY(gpu_weight_bind_poll(d, w, left, err));
    }
    return TERN_OK;
}

#define MB ((uint64_t)1 << 20)
// Seen to fail when gpu_is_full says no: all is sent at once.
TEST(gpu_sends_as_much_as_the_device_takes) {
    tern_error err = {0};
    tern_weight *w = NULL;
    tern_device *d = open_holding();
    if (!d) return;
    const tern_weight_source s = source_of(TERN_DTYPE_F16, 34000, 2048);
    uint64_t left = UINT64_MAX - 1, stops[4] = {0}; // bytes read when it takes no more
    int n = 0;
    REQUIRE_OK(gpu_weight_bind(d, &s, &w, &err), err);
    tern_status status = bind_some(d, w, &left, &err);
    for (; status == TERN_OK && left > 0 && n < 4; n++) {
        stops[n] = s.bytes - left;
        CHECK(stops[n] > (54 + 27 * (uint64_t)n) * MB && stops[n] < (65 + 33 * (uint64_t)n) * MB);
        CHECK(gpu_weight_bind_poll(d, w, &left, &err) == TERN_OK && s.bytes - left == stops[n]);
        CHECK(gpu_play_answer());
        status = bind_some(d, w, &left, &err);
    }
    CHECK_MSG(status == TERN_OK && left == 0 && n == 3, "%d stops: %s", n, err.message);
    check_bytes(d, w, &s, s.bytes);
    gpu_weight_unbind(d, w);
    gpu_device_close(d);
    free((void *)(uintptr_t)s.data.memory);
}

// Threads pack what one packs alone. Seen to fail when all but the first pack other rows than they
// claimed.
TEST(gpu_weights_are_packed_by_threads) {
    static const struct {
        tern_dtype type;
        bool is_matrix;
        gpu_form form;
    } kinds[] = {{TERN_DTYPE_Q8_0, false, GPU_FORM_Q8},   {TERN_DTYPE_Q4_K, true, GPU_FORM_TILES},
                 {TERN_DTYPE_Q2_0, true, GPU_FORM_TILES}, {TERN_DTYPE_I2_S, true, GPU_FORM_TILES},
                 {TERN_DTYPE_BF16, false, GPU_FORM_F16},  {TERN_DTYPE_BF16, false, GPU_FORM_F32}};
    tern_error err = {0};
    tern_device *d = open_holding();
    if (!d) return;
    gpu_webgpu(&(gpu_play){0});
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        tern_weight *w = NULL;
        tern_weight_check c = {0};
        tern_weight_source s = source_of(kinds[i].type, 1027, 2048);
        uint8_t *data = (uint8_t *)(uintptr_t)s.data.memory;
        s.is_matrix = kinds[i].is_matrix;
        s.is_table = !s.is_matrix;
        if (kinds[i].form == GPU_FORM_F32) data[s.bytes - 5] = 0x4f; // 2^31, in the last row
        for (uint64_t k = 0; kinds[i].type == TERN_DTYPE_I2_S && k < s.bytes; k++)
            data[k] &= (uint8_t) ~(data[k] >> 1 & 0x55); // no code of 3
        REQUIRE_OK(gpu_tune(d, &s, 1, &err), err);
        REQUIRE_OK(tern_team_open(&d->team, 3, &err), err);
        tern_status status = gpu_weight_bind(d, &s, &w, &err);
        for (uint64_t left = 1; status == TERN_OK && left > 0;)
            status = gpu_weight_bind_poll(d, w, &left, &err);
        CHECK(!d->team); // it was closed with the last weight: one thread compares
        if (status == TERN_OK) status = gpu_weight_verify(d, w, &s, &c, &err);
        CHECK_MSG(status == TERN_OK, "%s: %s", tern_dtype_name(s.type), err.message);
        CHECK_MSG(w && w->form == kinds[i].form && c.n_bytes > 256 << 10 && c.n_wrong == 0,
                  "%s: %lld of %lld bytes are wrong", tern_dtype_name(s.type), (long long)c.n_wrong,
                  (long long)c.n_bytes);
        gpu_weight_unbind(d, w);
        free(data);
    }
    gpu_device_close(d);
}

// Whether a table becomes halves is checked in pieces, too; one number decides it. Seen to fail
// when only the first piece is checked.
TEST(gpu_sends_halves_where_all_numbers_fit) {
    tern_error err = {0};
    tern_device *d = open_holding();
    if (!d) return;
    const tern_weight_source s = source_of(TERN_DTYPE_BF16, 1800, 2048);
    uint16_t *data = (uint16_t *)(uintptr_t)s.data.memory;
    for (int large = 0; large < 2; large++) {
        tern_weight *w = NULL;
        uint64_t left = UINT64_MAX - 1;
        if (large) data[s.bytes / 2 - 3] = 0x4f00; // 2^31
        REQUIRE_OK(gpu_weight_bind(d, &s, &w, &err), err);
        REQUIRE_OK(bind_some(d, w, &left, &err), err);
        CHECK(left == 0 && w->form == (large ? GPU_FORM_F32 : GPU_FORM_F16));
        check_bytes(d, w, &s, s.bytes * (large ? 2 : 1));
        gpu_weight_unbind(d, w);
    }
    gpu_device_close(d);
    free(data);
}

// Given up after each poll, and with each allocation failing. Seen to fail when gpu_weight_unbind
// leaves what is being sent.
TEST(gpu_sends_can_be_given_up) {
    tern_error err = {0};
    tern_device *d = open_holding();
    if (!d) return;
    tern_weight_source s = source_of(TERN_DTYPE_BF16, 9000, 2048);
    s.is_head = s.is_matrix = true;
    s.head = TERN_HEAD_Q8_0; // the table and the head, each
    size_t before = tern_mem_get_stats().total_now;
    int n_alive = gpu_play_n_alive();
    for (int n_polls = 0; n_polls < 9; n_polls++) {
        tern_weight *w = NULL;
        uint64_t left = 1;
        tern_status status = gpu_weight_bind(d, &s, &w, &err);
        for (int i = 0; i < n_polls && left > 0 && status == TERN_OK; i++) {
            gpu_play_answer();
            status = gpu_weight_bind_poll(d, w, &left, &err);
        }
        CHECK_MSG(status == TERN_OK, "%s", err.message);
        if (n_polls == 8) CHECK(left == 0);
        gpu_weight_unbind(d, w);
        CHECK_MSG(tern_mem_get_stats().total_now == before && gpu_play_n_alive() == n_alive,
                  "after %d polls", n_polls);
    }
    s.n_rows = 20;
    s.bytes = s.data.n = 20 * 2048 * 2;
    tern_status status = TERN_ERR_MEMORY;
    int n = 0;
    while (status == TERN_ERR_MEMORY && n < 100) {
        tern_weight *w = NULL;
        uint64_t left = 1;
        tern_mem_fail_at((uint64_t)++n);
        status = gpu_weight_bind(d, &s, &w, &err);
        while (status == TERN_OK && left > 0) status = gpu_weight_bind_poll(d, w, &left, &err);
        tern_mem_fail_at(0);
        gpu_weight_unbind(d, w);
        CHECK(tern_mem_get_stats().total_now == before && gpu_play_n_alive() == n_alive);
    }
    CHECK_MSG(status == TERN_OK && n > 8, "after %d failures: %s", n, err.message);
    gpu_device_close(d);
    free((void *)(uintptr_t)s.data.memory);
}

// An earlier error is returned by the read that notices it, and by no other. Seen to fail when that
// read leaves its buffer mapped.
TEST(gpu_reads_go_on_after_an_error) {
    tern_error err = {0};
    tern_device *d = open_holding();
    if (!d) return;
    gpu_webgpu(&(gpu_play){0});
    wgpu_buffer b = NULL;
    const uint32_t sent[2] = {7, 8};
    uint32_t got[2] = {0};
    const uint64_t usage = WGPU_BUFFER_STORAGE | WGPU_BUFFER_COPY_DST | WGPU_BUFFER_COPY_SRC;
    tern_status status = gpu_buffer_new(d, GPU_USE_WORK, sizeof sent, usage, "words", &b, &err);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    gpu_send(d, b, 0, sent, sizeof sent);
    gpu_remember(d, "", (wgpu_text){"something failed", 16});
    CHECK(gpu_read(d, b, 0, got, sizeof got, &err) == TERN_ERR_DEVICE);
    status = gpu_read(d, b, 0, got, sizeof got, &err);
    CHECK_MSG(status == TERN_OK && got[0] == 7 && got[1] == 8, "%s", err.message);
    gpu_buffer_free(d, GPU_USE_WORK, b);
    gpu_device_close(d);
}

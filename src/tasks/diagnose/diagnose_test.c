// The diagnosis finds faults: a changed tensor, a weight that is NaN, a weight on a GPU that is not
// the file's.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/json/json.h"
#include "tasks/diagnose/diagnose.h"
#include "tests/support/blobs.h"
#include "tests/library/webgpu/gpu_fixture.h"
#include "tests/support/tiny_model.h"

static bool collect(void *user, const char *text, size_t n) {
    tern_strbuf_append(user, text, n);
    return true;
}

// Writes `bytes` over the beginning of a tensor.
static bool overwrite(const char *path, const char *tensor, const void *bytes, size_t n) {
    tern_error err = {0};
    tern_file *file;
    if (tern_file_open(&file, path, &err) != TERN_OK) return false;
    const tern_tensor *t = tern_file_tensor(file, tensor);
    FILE *f = fopen(path, "r+b");
    bool ok = false;
    char *all = NULL;
    long size = 0;
    if (t && f && fseek(f, 0, SEEK_END) == 0 && (size = ftell(f)) > 0) {
        all = malloc((size_t)size);
        rewind(f);
        ok = all && fread(all, 1, (size_t)size, f) == (size_t)size;
        const char *at = ok ? memmem(all, (size_t)size, test_bytes(&t->data), t->bytes) : NULL;
        ok = at && n <= t->bytes && fseek(f, at - all, SEEK_SET) == 0;
        ok = ok && fwrite(bytes, 1, n, f) == n;
    }
    if (f) fclose(f);
    free(all);
    tern_file_close(file);
    return ok;
}

static const tiny_model_desc tiny = {.seed = 3, .head_type = TERN_DTYPE_F16};

TEST(diagnose_names_the_first_tensor_that_differs) {
    tern_error err = {0};
    const char *good = test_tmp("good.gguf"), *bad = test_tmp("bad.gguf");
    tern_model *a = NULL, *b = NULL;
    uint8_t zeros[64] = {0}; // codes -1
    const int32_t ids[] = {5, 70, 100, 33, 259, 8, 120};
    REQUIRE_OK(tiny_model_write(good, &tiny, &err), err);
    REQUIRE_OK(tiny_model_write(bad, &tiny, &err), err);
    REQUIRE(overwrite(bad, "blk.1.attn_output.weight", zeros, sizeof zeros));
    const tern_model_desc md = {.n_batch = 16, .ternary = TERN_TERNARY_2BIT};
    REQUIRE_OK(tern_model_open(&a, good, &md, &err), err);
    tern_status status = tern_model_open(&b, bad, &md, &err);
    const tern_cache_desc desc = {.kv_type = TERN_KV_F32, .n_context = 32};
    tern_runner x = {0}, y = {0};
    const tern_graph *ga = &a->graphs[0].fused;
    if (status == TERN_OK &&
        tern_runner_open_plan(&x, &tern_backend_cpu, a->now->graphs[0].plan, ga, &desc, &err) ==
            TERN_OK &&
        tern_runner_open_plan(&y, &tern_backend_cpu, b->now->graphs[0].plan, &b->graphs[0].fused,
                              &desc, &err) == TERN_OK) {
        tern_difference d;
        CHECK(tern_compare(&(tern_comparison){ga, &x, &x, 0}, ids, 7, &d, &err) == TERN_OK);
        CHECK(!d.name[0] && d.same_top && d.error == 0 && d.logits == 0);
        CHECK(tern_compare(&(tern_comparison){ga, &x, &y, 1e-4}, ids, 7, &d, &err) == TERN_OK);
        // The changed matrix computes the residual after the attention of layer 1.
        tern_vid v = tern_graph_find(ga, d.name);
        bool found = v >= 0 && ga->values[v].producer >= 0;
        const tern_node *n = found ? &ga->nodes[ga->values[v].producer] : NULL;
        CHECK_MSG(n && n->op == TERN_OP_LINEAR_ADD && n->layer == 1 &&
                      strcmp(ga->values[n->in[1]].name, "blk.1.attn_output.weight") == 0,
                  "blamed %s", d.name);
        CHECK(d.logits > 1e-4);
    } else
        CHECK_MSG(false, "%s", err.message);
    tern_runner_close(&x);
    tern_runner_close(&y);
    tern_model_close(a);
    tern_model_close(b);
}

// ---- A device that says what it is told to -----------------------------------------------------

enum { N_SAID = 3, N_VOCAB = 50 };
typedef struct said {
    float value[N_SAID * 8], logits[N_SAID * N_VOCAB];
    bool shows_values;
} said;

static tern_status say(tern_instance *i, const tern_batch *b, tern_tap_fn on_value, void *ctx,
                       tern_error *err) {
    const said *s = (const said *)(const void *)i;
    (void)err;
    if (s->shows_values) on_value(ctx, 0, s->value, N_SAID);
    memcpy(b->bindings[0].data, s->logits, sizeof s->logits);
    return TERN_OK;
}

static bool differs(said *wanted, said *tested, double tolerance) {
    static const tern_backend talker = {.trace = say};
    tern_value values[] = {
        {.name = "x", .kind = TERN_VALUE_TEMP, .cols = 8, .dim = TERN_DIM_NONE, .producer = -1},
        {.name = "logits", .kind = TERN_VALUE_OUTPUT, .cols = N_VOCAB, .producer = -1}};
    const tern_graph g = {.values = values, .n_values = 2, .dims = {"outputs"}, .n_dims = 1};
    tern_runner a = {.backend = &talker, .instance = (tern_instance *)(void *)wanted};
    tern_runner b = {.backend = &talker, .instance = (tern_instance *)(void *)tested};
    const int32_t ids[N_SAID] = {0};
    tern_difference d;
    tern_error err = {0};
    CHECK(tern_compare(&(tern_comparison){&g, &a, &b, tolerance}, ids, N_SAID, &d, &err) ==
          TERN_OK);
    return d.name[0] != 0;
}

TEST(diagnose_refuses_what_a_device_must_not_say) {
    said wanted = {.shows_values = true}, tested;
    for (int i = 0; i < N_SAID * 8; i++) wanted.value[i] = (float)(i % 5) - 1.5f;
    for (int i = 0; i < N_SAID * N_VOCAB; i++) wanted.logits[i] = (float)(i * 37 % N_VOCAB) - 20;
    tested = wanted;
    CHECK(!differs(&wanted, &tested, 0) && !differs(&wanted, &tested, 0.02));
    tested.value[9] *= 1.01f;
    CHECK(differs(&wanted, &tested, 0) && !differs(&wanted, &tested, 0.02));
    tested.value[9] *= 1.03f; // 2.1% of its row, 1.3% of all three
    CHECK(differs(&wanted, &tested, 0.02));
    tested = wanted;
    // The greatest of a row, and the next one, which is three hundredths of the RMS away.
    float *row = tested.logits + N_VOCAB;
    for (int i = 0; i < N_VOCAB; i++)
        if (row[i] == 29)
            row[i] = 28.4f;
        else if (row[i] == 28)
            row[i] = 28.5f;
    CHECK(differs(&wanted, &tested, 1e-3) && !differs(&wanted, &tested, 0.02));
    for (int i = 0; i < N_VOCAB; i++) // one that is a tenth of the RMS away
        if (wanted.logits[N_VOCAB + i] == 27) row[i] = 28.6f;
    CHECK(differs(&wanted, &tested, 0.02));
    tested = wanted;
    wanted.shows_values = tested.shows_values = false; // nothing was compared
    CHECK(differs(&wanted, &tested, 0.02));
}

TEST(diagnose_finds_weights_that_are_no_numbers) {
    tern_error err = {0};
    const char *path = test_tmp("nan.gguf");
    uint32_t nan = 0x7fc00000;
    tern_strbuf text = {0};
    size_t n_failed = 0;
    REQUIRE_OK(tiny_model_write(path, &tiny, &err), err);
    const tern_diagnose_desc desc = {.model = path, .quick = true, .format = TERN_FORMAT_JSON};
    tern_status status = tern_diagnose(&desc, collect, &text, &n_failed, &err);
    CHECK_MSG(status == TERN_OK && n_failed == 0, "%s %s", err.message, tern_strbuf_text(&text));
    tern_json_doc json = {0};
    CHECK(tern_json_parse(&json, tern_strbuf_text(&text), text.len, &err) == TERN_OK);
    tern_json_free(&json);
    tern_strbuf_clear(&text);
    REQUIRE(overwrite(path, "blk.0.ffn_norm.weight", &nan, sizeof nan));
    status = tern_diagnose(&desc, collect, &text, &n_failed, &err);
    CHECK_MSG(status == TERN_OK && n_failed >= 1, "%s", err.message);
    CHECK(strstr(tern_strbuf_text(&text), "blk.0.ffn_norm.weight has 1 numbers") != NULL);
    CHECK(strstr(tern_strbuf_text(&text), "is not to be trusted: the first of ") != NULL);
    CHECK(strstr(tern_strbuf_text(&text), "failures is \\\"weights are numbers\\\"") != NULL);
    tern_strbuf_free(&text);
}

static bool refuse(void *user, const char *text, size_t n) {
    (void)text, (void)n;
    return ++*(int *)user < 3;
}

TEST(diagnose_survives_failing_allocations) {
    tern_error err = {0};
    const char *path = test_tmp("good.gguf");
    const bool is_long = test_is_long();
    size_t n_failed = 0, before = tern_mem_get_stats().total_now;
    REQUIRE_OK(tiny_model_write(path, &tiny, &err), err);
    const tern_diagnose_desc desc = {.model = path, .quick = true, .n_threads = 1};
    tern_status status = TERN_ERR_MEMORY;
    uint64_t n = 1, n_tried = 0;
    for (; status == TERN_ERR_MEMORY && n < 100000; n += 1 + n / (is_long ? 50 : 1)) {
        tern_strbuf text = {0};
        tern_mem_fail_at(n);
        status = tern_diagnose(&desc, collect, &text, &n_failed, &err);
        tern_mem_fail_at(0);
        tern_strbuf_free(&text);
        n_tried++;
        CHECK_MSG(tern_mem_get_stats().total_now == before, "at %d", (int)n);
        CHECK_MSG(n_failed == 0, "at %d", (int)n);
    }
    CHECK_MSG(status == TERN_OK && n_tried > 5, "after %d: %s", (int)n, err.message);
    int n_lines = 0;
    CHECK(tern_diagnose(&desc, refuse, &n_lines, &n_failed, &err) == TERN_ERR_CANCELLED);
}

TEST(diagnose_reads_weights_back_from_a_gpu) {
    tern_error err = {0};
    const char *path = test_tmp("gpu.gguf");
    REQUIRE_OK(tiny_model_write(path, &tiny, &err), err);
    tern_model *m = gpu_open(path, 16);
    if (!m) return;
    for (size_t w = 0; w < m->n_weights; w++) {
        tern_weight_source s = m->sources[w];
        const tern_placement *p = m->now;
        tern_weight_check c;
        CHECK(p->backend->verify(p->device, p->weights[w], &s, &c, &err) == TERN_OK);
        CHECK(c.n_bytes > 0 && c.n_wrong == 0 && c.wanted == c.found);
        if (!s.is_matrix) continue; // the backend keeps its own copy of vectors
        uint8_t *changed = malloc(s.bytes);
        if (!changed) continue;
        CHECK(tern_blob_read(&s.data, 0, s.bytes, changed, &err) == TERN_OK);
        changed[s.bytes / 2] ^= 1;
        s.data = tern_blob_of(changed, s.bytes);
        CHECK(p->backend->verify(p->device, p->weights[w], &s, &c, &err) == TERN_OK);
        CHECK_MSG(c.n_wrong == 1 && c.wanted != c.found, "%s: %d bytes", s.name, (int)c.n_wrong);
        free(changed);
    }
    tern_model_close(m);
}

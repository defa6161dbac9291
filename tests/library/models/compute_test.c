// tern_compute: a model's graphs on arrays, against other programs' numbers and against sessions.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "formats/formats.h"
#include "tests/support/blobs.h"
#include "tests/library/webgpu/gpu_fixture.h"
#include "tests/support/harness.h"
#include "kernels/single_test.h"
#include "runtime/runtime.h"
#include "tern_tools.h"
#include "tests/support/tiny_model.h"

#define OWN "tests/oracles/" // tests run in the repository's root

static tern_array ids_array(int32_t *ids, size_t n) {
    return (tern_array){
        .name = "ids", .type = TERN_ARRAY_I32, .n_dims = 1, .dims = {(int64_t)n}, .data = ids};
}

// The distance of an array from `want`, by the greatest number there.
static double distance(const tern_array *a, const float *want, size_t n) {
    double most = 0, largest = 0;
    if (!a->data || (size_t)(a->dims[0] * a->dims[1]) != n) return INFINITY;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)((float *)a->data)[i] - (double)want[i]);
        if (!(d <= most)) most = d; // NaN stays
        largest = fmax(largest, fabs((double)want[i]));
    }
    return most / largest;
}

// ---- Other programs' numbers -------------------------------------------------------------------

// What a golden file calls a value, and what the graph does.
static const char *value_of(const char *golden, bool own) {
    if (!strcmp(golden, "logits")) return "logits";
    if (!strcmp(golden, "last_hidden_state")) return "hidden";
    if (!strcmp(golden, "mean")) return "pooled";
    if (!strcmp(golden, "pooled") || !strcmp(golden, "embedding")) return "embedding";
    // Our own end before the final norm.
    return !strncmp(golden, "hidden.", 7) && !own ? golden : NULL;
}

static void check_oracle(const char *folder, const char *model_path, bool own,
                         const tern_model_desc *desc) {
    char path[700];
    tern_error err = {0};
    tern_file *golden;
    tern_model *m;
    tern_array outputs[24] = {{0}};
    const tern_tensor *wanted[24];
    size_t n = 0;
    snprintf(path, sizeof path, "%s/golden.safetensors", folder);
    REQUIRE_OK(tern_file_open(&golden, path, &err), err);
    REQUIRE_OK(tern_model_open(&m, model_path, desc, &err), err);
    const tern_tensor *ids = tern_file_tensor(golden, "input_ids");
    tern_array in = ids_array((int32_t *)(uintptr_t)test_bytes(&ids->data), ids->bytes / 4);
    for (size_t i = 0; i < golden->n_tensors; i++) {
        outputs[n].name = value_of(golden->tensors[i].name, own);
        wanted[n] = &golden->tensors[i];
        if (outputs[n].name) n++;
    }
    CHECK_MSG(n > 0, "%s: nothing to compare", path);
    tern_compute_desc d = {.inputs = &in, .n_inputs = 1, .outputs = outputs, .n_outputs = n};
    CHECK_MSG(tern_compute(m, &d, &err) == TERN_OK, "%s: %s", model_path, err.message);
    for (size_t i = 0; i < n; i++) {
        double off = distance(&outputs[i], test_bytes(&wanted[i]->data), wanted[i]->bytes / 4);
        CHECK_MSG(off < 2e-6, "%s: %s is %g off", model_path, wanted[i]->name, off);
        tern_array_free(&outputs[i]);
    }
    tern_model_close(m);
    tern_file_close(golden);
}

static const tern_model_desc small = {.n_batch = 8};

// Texts here are longer than the batch that the model was opened for. Seen to fail: a window one
// wider; without the dense products, whose tensors nothing reads then.
TEST(compute_has_the_references_rows) {
    static const char *const names[] = {"embeddinggemma", "qwen3", "qwen35", "lfm2", "gemma3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char folder[64], gguf[96];
        snprintf(folder, sizeof folder, OWN "%s", names[i]);
        snprintf(gguf, sizeof gguf, "%s/model.gguf", folder);
        check_oracle(folder, folder, true, &small);
        check_oracle(folder, gguf, true, &small);
    }
}

// Layer by layer. Seen to fail with each layer's rows called as the next one's.
TEST(compute_has_transformers_rows) {
    static const char *const names[] = {"embeddinggemma",  "embeddinggemma_st",
                                        "qwen3_embedding", "qwen3",
                                        "qwen3_5",         "lfm2",
                                        "gemma3",          "llama"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[64], folder[600];
        snprintf(name, sizeof name, "oracle/%s", names[i]);
        const char *path = test_data(name);
        if (!path) return;
        snprintf(folder, sizeof folder, "%s", path);
        check_oracle(folder, folder, false, &small);
    }
}

// On a GPU too: an encoder, and the scores of a decoder. Seen to fail with nothing read back.
TEST(webgpu_compute_has_the_references_rows) {
    static const char *const names[] = {"embeddinggemma", "qwen3"};
    for (size_t i = 0; i < 2; i++) {
        char folder[64];
        snprintf(folder, sizeof folder, OWN "%s", names[i]);
        tern_model *m = gpu_open(folder, 8); // skips the test where there is no GPU
        if (!m) return;
        tern_model_close(m);
        const tern_model_desc d = {.device = "webgpu", .webgpu = gpu_webgpu(NULL), .n_batch = 8};
        check_oracle(folder, folder, true, &d);
    }
}

// ---- Several graphs ----------------------------------------------------------------------------

// A weight that two graphs read is bound once, and what flows between them gives the same bits as
// one graph. Seen to fail with find_earlier always -1.
TEST(compute_graphs_share_weights_and_flow) {
    tern_error err = {0};
    tern_model *m;
    int32_t ids[] = {3, 9, 27, 40, 7};
    REQUIRE_OK(tern_model_open(&m, OWN "embeddinggemma", NULL, &err), err);
    CHECK(m->n_graphs == 2);
    for (size_t w = 0; w < m->n_weights; w++)
        for (size_t k = 0; k < w; k++)
            CHECK_MSG(strcmp(m->sources[w].name, m->sources[k].name) != 0, "%s twice",
                      m->sources[w].name);
    const tern_graph *dense = &m->graphs[1].built;
    tern_vid w = tern_graph_find(dense, "dense_2.weight");
    tern_vid same = tern_graph_find(&m->graphs[0].built, "dense_2.weight");
    REQUIRE(w >= 0 && same >= 0);
    CHECK(m->now->graphs[1].weights[w] == m->now->graphs[0].weights[same]);
    CHECK(tern_model_flow_from(m, 1, tern_graph_find(dense, "pooled")) == 0);

    tern_array in = ids_array(ids, 5), made[] = {{.name = "pooled"}, {.name = "embedding"}};
    tern_compute_desc d = {.inputs = &in, .n_inputs = 1, .outputs = made, .n_outputs = 2};
    REQUIRE_OK(tern_compute(m, &d, &err), err);
    tern_array then = {.name = "embedding"};
    d = (tern_compute_desc){
        .graph = "dense", .inputs = made, .n_inputs = 1, .outputs = &then, .n_outputs = 1};
    CHECK_MSG(tern_compute(m, &d, &err) == TERN_OK, "%s", err.message);
    CHECK(distance(&then, made[1].data, (size_t)made[1].dims[1]) == 0);
    for (int i = 0; i < 2; i++) tern_array_free(&made[i]);
    tern_array_free(&then);
    tern_model_close(m);
}

// Three rows at once into a graph without tokens. Seen to fail with its rows counted as chunks.
TEST(compute_a_graph_without_tokens_counts_its_rows) {
    tern_error err = {0};
    tern_model *m;
    static float rows[3 * 32];
    for (int i = 0; i < 96; i++) rows[i] = (float)(i * 37 % 19) - 9;
    REQUIRE_OK(tern_model_open(&m, OWN "embeddinggemma", NULL, &err), err);
    tern_array in = {.name = "pooled", .n_dims = 2, .dims = {3, 32}, .data = rows};
    tern_array all = {.name = "embedding"};
    tern_compute_desc d = {
        .graph = "dense", .inputs = &in, .n_inputs = 1, .outputs = &all, .n_outputs = 1};
    REQUIRE_OK(tern_compute(m, &d, &err), err);
    REQUIRE(all.dims[0] == 3 && all.dims[1] == 32);
    for (int i = 0; i < 3; i++) {
        tern_array one = {.name = "embedding"};
        in.dims[0] = 1;
        in.data = rows + 32 * i;
        d.outputs = &one;
        REQUIRE_OK(tern_compute(m, &d, &err), err);
        CHECK(distance(&one, (float *)all.data + 32 * i, 32) == 0);
        tern_array_free(&one);
    }
    tern_array_free(&all);
    tern_model_close(m);
}

// ---- Any value ---------------------------------------------------------------------------------

static const char *tiny_of(const char *arch) {
    tern_error err = {0};
    const tiny_model_desc d = {.seed = 11, .arch = arch, .n_layers = 1};
    const char *path = test_tmp(arch ? "compute_llama.gguf" : "compute_bitnet.gguf");
    CHECK_MSG(tiny_model_write(path, &d, &err) == TERN_OK, "%s", err.message);
    return path;
}

// Every float value by itself, where fusion may take all others, has the bits that it has when all
// are asked for and nothing is fused; and the scores are a session's. Values that are not there
// after lowering are refused. Seen to fail with
// fusion not told what is wanted.
static void check_every_value(const char *path) {
    tern_error err = {0};
    tern_model *m;
    tern_session *s;
    int32_t ids[] = {5, 70, 100, 33, 259, 8};
    REQUIRE_OK(tern_model_open(&m, path, NULL, &err), err);
    const tern_graph *g = &m->graphs[0].built;
    tern_array *all = calloc(g->n_values, sizeof *all), in = ids_array(ids, 6);
    size_t n = 0, n_refused = 0;
    for (size_t v = 0; v < g->n_values; v++) {
        tern_array one = {.name = g->values[v].name};
        tern_compute_desc d = {.inputs = &in, .n_inputs = 1, .outputs = &one, .n_outputs = 1};
        if (g->values[v].producer < 0) continue;
        if (tern_compute(m, &d, &err) == TERN_OK)
            all[n++].name = one.name;
        else
            CHECK(++n_refused && !one.data && strstr(err.message, "not an array of floats here"));
        tern_array_free(&one);
    }
    CHECK_MSG(n > 15 && n_refused > 0, "%zu values, %zu refused", n, n_refused);
    tern_compute_desc d = {.inputs = &in, .n_inputs = 1, .outputs = all, .n_outputs = n};
    CHECK_MSG(tern_compute(m, &d, &err) == TERN_OK, "%s", err.message);
    float *logits = calloc(6 * (size_t)m->info.n_vocab, sizeof *logits);
    const tern_session_desc sd = {.kv_type = TERN_KV_F32};
    REQUIRE_OK(tern_session_open(&s, m, &sd, &err), err);
    REQUIRE_OK(tern_session_logits(s, ids, 6, logits, &err), err);
    for (size_t i = 0; i < n; i++) {
        tern_array one = {.name = all[i].name};
        d.outputs = &one;
        d.n_outputs = 1;
        CHECK(tern_compute(m, &d, &err) == TERN_OK);
        CHECK_MSG(distance(&one, all[i].data, (size_t)(one.dims[0] * one.dims[1])) == 0, "%s: %s",
                  path, one.name);
        if (!strcmp(one.name, "logits"))
            CHECK(distance(&one, logits, 6 * (size_t)m->info.n_vocab) == 0);
        tern_array_free(&one);
    }
    for (size_t i = 0; i < n; i++) tern_array_free(&all[i]);
    free(all);
    free(logits);
    tern_session_close(s);
    tern_model_close(m);
}

TEST(compute_any_value_has_the_same_bits_alone) {
    check_every_value(tiny_of(NULL));
    check_every_value(tiny_of("llama"));
}

// ---- Rows instead of ids -----------------------------------------------------------------------

typedef struct fed { // a decoder that takes the rows of its table as an input
    tern_graph g;
    tern_weight **weights;
    tern_plan *plan;
    tern_single single;
} fed;

static tern_status open_fed(fed *f, const tern_model *m, tern_error *err) {
    TERN_TRY(tern_graph_copy(&f->g, &m->graphs[0].lowered, err));
    tern_vid rows = tern_graph_find(&f->g, "hidden.0");
    f->g.values[rows].kind = TERN_VALUE_INPUT;
    f->g.values[rows].producer = -1;
    memmove(f->g.nodes, f->g.nodes + 1, --f->g.n_nodes * sizeof *f->g.nodes); // the table's look-up
    for (size_t v = 0; v < f->g.n_values; v++)
        f->g.values[v].producer -= f->g.values[v].producer >= 0;
    TERN_TRY(tern_pass_fuse(&f->g, err));
    TERN_TRY(tern_placement_weights(m->now, &m->graphs[0], f->g.n_values, &f->weights, err));
    TERN_TRY(m->now->backend->compile(m->now->device, &f->g, f->weights, 16, &f->plan, err));
    const tern_cache_desc cache = {.kv_type = TERN_KV_F32, .n_context = 16};
    return tern_single_open(&f->single, m->now->backend, f->plan, &f->g, &cache, err);
}

// Seen to fail (no memory to read) with bound inputs passed over.
TEST(compute_rows_can_be_bound_instead_of_ids) {
    tern_error err = {0};
    tern_model *m;
    fed f = {0};
    int32_t ids[] = {5, 70, 100, 33}, wanted[] = {0, 1, 2, 3};
    REQUIRE_OK(tern_model_open(&m, tiny_of("llama"), NULL, &err), err);
    tern_array in = ids_array(ids, 4), made[] = {{.name = "hidden.0"}, {.name = "logits"}};
    tern_compute_desc d = {.inputs = &in, .n_inputs = 1, .outputs = made, .n_outputs = 2};
    REQUIRE_OK(tern_compute(m, &d, &err), err);
    REQUIRE_OK(open_fed(&f, m, &err), err);
    size_t n = (size_t)(made[1].dims[0] * made[1].dims[1]);
    tern_array got = {.n_dims = 2, .dims = {4, made[1].dims[1]}, .data = calloc(n, sizeof(float))};
    tern_batch b = {.n_tokens = 4, .outputs = wanted, .n_outputs = 4};
    tern_batch_bind(&b, tern_graph_find(&f.g, "hidden.0"), made[0].data);
    tern_batch_bind(&b, tern_graph_find(&f.g, "logits"), got.data);
    CHECK_MSG(tern_single_run(&f.single, &b, 0, &err) == TERN_OK, "%s", err.message);
    CHECK(distance(&got, made[1].data, n) == 0);
    free(got.data);
    for (int i = 0; i < 2; i++) tern_array_free(&made[i]);
    tern_single_close(&f.single);
    m->now->backend->plan_free(f.plan);
    tern_free(f.weights);
    tern_graph_free(&f.g);
    tern_model_close(m);
}

// ---- What is refused ---------------------------------------------------------------------------

// Seen to fail without the checks of indices, of the type, and of leading dimensions.
TEST(compute_refuses_in_one_line) {
    static int32_t good[] = {1, 2, 3}, high[] = {1, 48, 3}, back[] = {1, 0};
    static float floats[96];
    const tern_array ids = ids_array(good, 3);
    const tern_array row_of = {
        .name = "outputs", .type = TERN_ARRAY_I32, .n_dims = 1, .dims = {2}, .data = back};
    const struct {
        const char *graph, *out;
        tern_array in[2];
        size_t n_in;
        const char *says;
    } cases[] = {
        {NULL, "hidden", {ids_array(high, 3)}, 1, "input ids: 48 at place 1: expected 0 to 47"},
        {NULL,
         "hidden",
         {ids, row_of},
         2,
         "input outputs: 0 at place 1: expected 0 to 2, ascending"},
        {NULL,
         "hidden",
         {{.name = "ids", .n_dims = 1, .dims = {3}, .data = floats}},
         1,
         "input ids is of type float: expected int32"},
        {NULL,
         "hidden",
         {{.name = "idz", .n_dims = 1, .dims = {3}, .data = floats}},
         1,
         "graph encoder has no input \"idz\": it has ids, outputs"},
        {NULL, "hiden", {ids}, 1, "graph encoder has no value \"hiden\": it has hidden, embedding"},
        {NULL, "output_norm.weight", {ids}, 1, "has no value \"output_norm.weight\""},
        {NULL, "hidden", {ids, ids}, 2, "input ids is given twice"},
        {NULL, "hidden", {row_of}, 1, "input ids of graph encoder is missing"},
        {"decoder", "hidden", {ids}, 1, "has no graph \"decoder\": it has encoder, dense"},
        {"dense",
         "embedding",
         {{.name = "pooled", .n_dims = 1, .dims = {96}, .data = floats}},
         1,
         "input pooled is [96]: expected f32[sequences, 32], with 1 to 65536 sequences"},
        {"dense",
         "embedding",
         {{.name = "pooled", .n_dims = 3, .dims = {2, 1, 32}, .data = floats}},
         1,
         "input pooled is [2, 1, 32]"},
        {"dense",
         "embedding",
         {{.name = "pooled", .n_dims = 2, .dims = {0, 32}, .data = floats}},
         1,
         "input pooled is [0, 32]"},
    };
    tern_error err = {0};
    tern_model *m;
    REQUIRE_OK(tern_model_open(&m, OWN "embeddinggemma", NULL, &err), err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tern_array out = {.name = cases[i].out};
        tern_compute_desc d = {.graph = cases[i].graph,
                               .inputs = cases[i].in,
                               .n_inputs = cases[i].n_in,
                               .outputs = &out,
                               .n_outputs = 1};
        CHECK_MSG(tern_compute(m, &d, &err) != TERN_OK && !out.data, "%s", cases[i].says);
        CHECK_MSG(strstr(err.message, cases[i].says) && !strchr(err.message, '\n'), "%s: %s",
                  cases[i].says, err.message);
    }
    tern_model_close(m);
}

// Whatever allocation fails, the run fails with it, gives nothing, and leaves nothing behind. Seen
// to fail with the weights by value not freed.
TEST(compute_survives_failing_memory) {
    tern_error err = {0};
    tern_model *m;
    int32_t ids[] = {3, 9, 27};
    uint64_t n_failed = 0;
    REQUIRE_OK(tern_model_open(&m, OWN "embeddinggemma", NULL, &err), err);
    size_t before = tern_mem_get_stats().total_now;
    for (bool done = false; !done && n_failed < 1000; n_failed += !done) {
        tern_array in = ids_array(ids, 3), out[] = {{.name = "hidden.1"}, {.name = "embedding"}};
        tern_compute_desc d = {.inputs = &in, .n_inputs = 1, .outputs = out, .n_outputs = 2};
        tern_mem_fail_at(n_failed + 1);
        tern_status status = tern_compute(m, &d, &err);
        tern_mem_fail_at(0);
        done = status == TERN_OK;
        CHECK_MSG(done || (status == TERN_ERR_MEMORY && !out[0].data && !out[1].data), "%s",
                  err.message);
        for (int i = 0; i < 2; i++) tern_array_free(&out[i]);
        CHECK_MSG(tern_mem_get_stats().total_now == before, "after %d failures: %zu bytes left",
                  (int)n_failed, tern_mem_get_stats().total_now - before);
    }
    CHECK_MSG(n_failed > 20 && n_failed < 1000, "%d allocations failed", (int)n_failed);
    tern_model_close(m);
}

// A text that is read as a whole fits its batch or is refused by name, not cut. Seen to fail
// without the check: the batch's own sentence does not say why.
TEST(compute_a_whole_text_needs_a_batch_for_it) {
    tern_error err = {0};
    tern_model *m;
    tern_lease *lease;
    int32_t ids[20] = {0};
    float one[32];
    REQUIRE_OK(tern_model_open(&m, OWN "embeddinggemma", &(tern_model_desc){.n_batch = 8}, &err),
               err);
    REQUIRE_OK(tern_lease_open(&lease, m, 64, TERN_KV_F32, &err), err);
    const tern_work work = {.lease = lease, .ids = ids, .n_ids = 20};
    const tern_wants wanted = {.outputs = {"embedding"}, .data = {one}};
    CHECK(tern_model_compute(m, &work, 1, &wanted, &err) == TERN_ERR_ARGUMENT);
    CHECK_MSG(strstr(err.message, "reads a text as a whole: 20 tokens are more than the 8"), "%s",
              err.message);
    tern_lease_close(lease);
    tern_model_close(m);
}

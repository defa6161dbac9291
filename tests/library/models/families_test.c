// The families of src/models: what their configs mean in each spelling, and that a model is the
// same in both worlds: conversion there and back keeps every byte, and the numbers of GGUF are
// those of Hugging Face put in order, by formulas that stand here again.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/dtype/half.h"
#include "goldens.h"
#include "runtime/runtime.h"
#include "tern_tools.h"
#include "tests/library/models/families_fixture.h"
#include "tests/support/blobs.h"
#include "tests/support/oracle_folders.h"

// ---- Spellings ---------------------------------------------------------------------------------

static const spelling spellings[] = {
    {"{" QWEN3 ", \"head_dim\": null, \"rope_theta\": 5000}", "model.", NULL, "qwen3", "FF", 0,
     5000, 0, 1, 0, 4, 4, 4, TERN_POOLING_NONE},
    {"{" QWEN3 ", \"head_dim\": 8, \"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 4, "
     "\"rope_theta\": 7000}}",
     "", "layers.0.self_attn.rotary_emb.inv_freq", "qwen3", "FF", 0, 7000, 0, 4, 0, 4, 8, 8,
     TERN_POOLING_NONE},
    {"{" QWEN3 ", \"tern_pooling\": \"lasttoken\"}", "", NULL, "qwen3", "FF", 0, 10000, 0, 1, 0, 4,
     4, 4, TERN_POOLING_LAST},
    {NESTED("qwen3_5", QWEN35_SIZES
            ", \"rope_parameters\": {\"rope_theta\": 3000, \"partial_rotary_factor\": 0.25}"),
     "model.language_model.", "mtp.norm.weight", "qwen35", "DDDF", 0, 3000, 0, 1, 0, 2, 8, 2,
     TERN_POOLING_NONE},
    {QWEN35, "language_model.model.", "model.visual.norm.weight", "qwen35", "DFDF", 0, 10000, 0, 1,
     0, 2, 8, 4, TERN_POOLING_NONE},
    {"{\"model_type\": \"qwen3_5_text\", " QWEN35_SIZES ", \"layer_types\": [\"full_attention\", "
     "\"linear_attention\", \"linear_attention\", \"full_attention\"]}",
     "model.", NULL, "qwen35", "FDDF", 0, 10000, 0, 1, 0, 2, 8, 2, TERN_POOLING_NONE},
    {LFM2_CFC, "model.", NULL, "lfm2", "CFC", 0, 1e6, 0, 1, 0, 4, 4, 4, TERN_POOLING_NONE},
    {"{" LFM2 ", \"norm_eps\": 1e-3, \"layer_types\": [\"conv\", \"conv\", \"full_attention\"]}",
     "model.", NULL, "lfm2", "CCF", 0, 1e6, 0, 1, 0, 4, 4, 4, TERN_POOLING_NONE},
    // As the published 4B: what is not said has transformers' defaults.
    {NESTED("gemma3", GEMMA ", \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 8}"),
     "language_model.model.", "vision_tower.norm.weight", "gemma3", "WWWWWFW", 6, 1e6, 10000, 8,
     256, 8, 256, 256, TERN_POOLING_NONE},
    {"{\"model_type\": \"gemma3_text\", " GEMMA FEW_HEADS ", \"sliding_window_pattern\": 2, "
     "\"rope_theta\": 2000, \"rope_local_base_freq\": 300, \"query_pre_attn_scalar\": 10}",
     "model.", NULL, "gemma3", "WFWFWFW", 6, 2000, 300, 1, 10, 2, 8, 8, TERN_POOLING_NONE},
    {"{\"model_type\": \"gemma3_text\", " GEMMA FEW_HEADS ", \"rope_parameters\": "
     "{\"full_attention\": {\"rope_type\": \"linear\", \"factor\": 2, \"rope_theta\": 2000}, "
     "\"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 300}}}",
     "model.", NULL, "gemma3", "WWWWWFW", 6, 2000, 300, 2, 256, 2, 8, 8, TERN_POOLING_NONE},
    {"{\"model_type\": \"gemma3_text\", \"use_bidirectional_attention\": true, " GEMMA FEW_HEADS
     "}",
     "", NULL, "embeddinggemma", "WWWWWFW", 4, 1e6, 10000, 1, 256, 2, 8, 8, TERN_POOLING_MEAN},
    {"{" QWEN3 ", \"use_sliding_window\": true, \"sliding_window\": 5, \"max_window_layers\": 1}",
     "model.", NULL, "qwen3", "FW", 5, 10000, 0, 1, 0, 4, 4, 4, TERN_POOLING_NONE},
    {"{" QWEN3 ", \"use_sliding_window\": false, \"sliding_window\": 5}", "model.", NULL, "qwen3",
     "FF", 0, 10000, 0, 1, 0, 4, 4, 4, TERN_POOLING_NONE},
    {"{\"model_type\": \"qwen3_5_text\", " QWEN35_SIZES ", \"full_attention_interval\": 1}",
     "model.", NULL, "qwen35", "FFFF", 0, 10000, 0, 1, 0, 2, 8, 2, TERN_POOLING_NONE},
    {"{\"model_type\": \"gemma3_text\", " GEMMA FEW_HEADS ", \"sliding_window_pattern\": 1}",
     "model.", NULL, "gemma3", "FFFFFFF", 6, 1e6, 10000, 1, 256, 2, 8, 8, TERN_POOLING_NONE},
    {"{\"model_type\": \"gemma3_text\", \"use_bidirectional_attention\": true, " GEMMA FEW_HEADS
     ", \"text_config\": {\"sliding_window\": 1}}",
     "", NULL, "embeddinggemma", "WWWWWFW", 1, 1e6, 10000, 1, 256, 2, 8, 8, TERN_POOLING_MEAN},
    {"{" SMALL(
         "qwen2") ", \"use_sliding_window\": false, \"sliding_window\": 5, \"rope_theta\": 3000}",
     "model.", NULL, "qwen2", "FFFFF", 0, 3000, 0, 1, 0, 4, 4, 4, TERN_POOLING_NONE},
    {"{" SMALL("qwen2") ", \"use_sliding_window\": true, \"sliding_window\": 5, "
                        "\"max_window_layers\": 3}",
     "", NULL, "qwen2", "FFFWW", 5, 10000, 0, 1, 0, 4, 4, 4, TERN_POOLING_NONE},
    // An older Mistral inside of what sees images.
    {NESTED("mistral3", SMALL("mistral") ", \"head_dim\": 6, \"sliding_window\": null"),
     "language_model.model.", "multi_modal_projector.norm.weight", "ministral3", "FFFFF", 0, 10000,
     0, 1, 0, 4, 6, 6, TERN_POOLING_NONE},
    {"{" SMALL("smollm3") ", \"no_rope_layer_interval\": 2}", "model.", NULL, "smollm3", "FfFfF", 0,
     2e6, 0, 1, 0, 4, 4, 4, TERN_POOLING_NONE},
    {"{" SMALL("smollm3") ", \"no_rope_layers\": [1, 1, 0, 1, 0], \"rope_theta\": 7000}", "model.",
     NULL, "smollm3", "FFfFf", 0, 7000, 0, 1, 0, 4, 4, 4, TERN_POOLING_NONE},
    {"{" SMALL("smollm3") "}", "model.", NULL, "smollm3", "FFFfF", 0, 2e6, 0, 1, 0, 4, 4, 4,
     TERN_POOLING_NONE},
    {"{" SMALL("granite") ", \"attention_multiplier\": 0.25, \"logits_scaling\": 4, "
                          "\"embedding_multiplier\": 12, \"residual_multiplier\": 0.22}",
     "model.", NULL, "granite", "FFFFF", 0, 10000, 0, 1, 16, 4, 4, 4, TERN_POOLING_NONE},
    {"{" SMALL("minicpm") ", \"scale_emb\": 12, \"scale_depth\": 1.4, \"dim_model_base\": 8}",
     "model.", NULL, "minicpm", "FFFFF", 0, 10000, 0, 1, 0, 4, 4, 4, TERN_POOLING_NONE},
    {"{" SMALL("exaone4") ", \"sliding_window\": null}", "model.", NULL, "exaone4", "FFFFF", 0,
     10000, 0, 1, 0, 4, 4, 4, TERN_POOLING_NONE},
    {"{" SMALL("exaone4") ", \"sliding_window\": 6, \"sliding_window_pattern\": \"LG\"}", "model.",
     NULL, "exaone4", "WfWfW", 6, 10000, 0, 1, 0, 4, 4, 4, TERN_POOLING_NONE},
    {"{" SMALL("exaone4") ", \"sliding_window\": 6, \"sliding_window_pattern\": 3}", "model.", NULL,
     "exaone4", "WWfWW", 6, 10000, 0, 1, 0, 4, 4, 4, TERN_POOLING_NONE},
    {"{" SMALL("exaone4") "}", "model.", NULL, "exaone4", "WWWfW", 4096, 10000, 0, 1, 0, 4, 4, 4,
     TERN_POOLING_NONE},
    {"{" SMALL("hunyuan_v1_dense") ", \"rope_scaling\": {\"type\": \"dynamic\", \"alpha\": 9, "
                                   "\"factor\": 1}, \"head_dim\": 6}",
     "model.", NULL, "hunyuan", "FFFFF", 0, 270000, 0, 1, 0, 4, 6, 6, TERN_POOLING_NONE},
    {"{" SMALL("ernie4_5") ", \"use_bias\": true}", "model.", NULL, "ernie4_5", "FFFFF", 0, 5e5, 0,
     1, 0, 4, 128, 128, TERN_POOLING_NONE},
    {"{" SMALL("ernie4_5") ", \"head_dim\": null, \"rope_theta\": 3000}", "", NULL, "ernie4_5",
     "FFFFF", 0, 3000, 0, 1, 0, 4, 4, 4, TERN_POOLING_NONE},
    {"{" SMALL("cohere2") "}", "model.", NULL, "cohere2", "WWWfW", 4096, 10000, 0, 1, 0, 4, 4, 4,
     TERN_POOLING_NONE},
    {"{" SMALL("cohere2") ", \"sliding_window\": 6, \"sliding_window_pattern\": 2, "
                          "\"rope_theta\": 50000, \"logit_scale\": 0.3}",
     "", NULL, "cohere2", "WfWfW", 6, 50000, 0, 1, 0, 4, 4, 4, TERN_POOLING_NONE},
    {"{" SMALL("cohere2") ", \"sliding_window\": 6, \"layer_types\": [\"full_attention\", "
                          "\"sliding_attention\", \"full_attention\", \"full_attention\", "
                          "\"sliding_attention\"]}",
     "model.", NULL, "cohere2", "fWffW", 6, 10000, 0, 1, 0, 4, 4, 4, TERN_POOLING_NONE},
    {"{" QWEN3 ", \"num_experts\": 1}", "model.", NULL, "qwen3", "FF", 0, 10000, 0, 1, 0, 4, 4, 4,
     TERN_POOLING_NONE}, // a single expert is none
    {"{" LFM2_FIRST ", \"full_attn_idxs\": [1]}", "model.", NULL, "lfm2", "CFC", 0, 1e6, 0, 1, 0, 4,
     4, 4, TERN_POOLING_NONE},
    {NESTED("gemma4", GEMMA4), "model.language_model.", "model.audio_tower.norm.weight", "gemma4",
     "WWFWWF", 6, 2000, 300, 1, 0, 2, 8, 16, TERN_POOLING_NONE},
};
#define N_SPELLINGS (sizeof spellings / sizeof *spellings)

// Whether two files have the same bytes.
static bool same_files(const char *a, const char *b) {
    size_t na, nb;
    char *x = test_read(a, &na), *y = test_read(b, &nb);
    bool same = x && y && na == nb && memcmp(x, y, na) == 0;
    free(x);
    free(y);
    return same;
}

// Folder -> GGUF -> folder -> GGUF: the same facts, every tensor, and in the end the same bytes.
// (The name of a GGUF is in it.) Seen to fail: window_rope's base not written; the sign of
// TERN_CHANGE_PLUS_ONE not reversed; V_EACH moved in one direction only; query_scalar not written.
static void check_round_trip(const char *folder, const spelling *s) {
    static int n_calls;
    char gguf[700], back[700], again[700];
    opened o;
    const char *in = test_tmp("families_there"), *out = test_tmp("families_back");
    test_folder(in);
    test_folder(out);
    snprintf(gguf, sizeof gguf, "%s/m%d.gguf", in, n_calls);
    snprintf(back, sizeof back, "%s/folder%d", in, n_calls);
    snprintf(again, sizeof again, "%s/m%d.gguf", out, n_calls++);
    family_convert(folder, gguf);
    family_convert(gguf, back);
    family_convert(back, again);
    const char *const paths[] = {folder, gguf, back};
    for (size_t i = 0; i < 3; i++) {
        if (!family_open_model(&o, paths[i])) return;
        if (s) family_check_facts(paths[i], &o, s);
        CHECK_MSG(o.c.delta.tiled == (i == 1 && o.c.delta.n_v_heads > 0), "%s: order", paths[i]);
        tern_file_close(o.file);
    }
    CHECK_MSG(same_files(gguf, again), "%s: other bytes after two conversions", gguf);
}

TEST(families_configs_in_every_spelling_there_and_back) {
    for (size_t i = 0; i < N_SPELLINGS; i++) {
        const spelling *s = &spellings[i];
        char folder[600];
        snprintf(folder, sizeof folder, "%s%zu", test_tmp("family"), i);
        if (family_make_folder(folder, s->json, 16, s->prefix, s->extra))
            check_round_trip(folder, s);
    }
}

static const char *const oracles[] = {ORACLES_OF_TRANSFORMERS, "embeddinggemma",
                                      "embeddinggemma_st", "qwen3_embedding"};

TEST(families_of_transformers_go_there_and_back) {
    for (size_t i = 0; i < sizeof oracles / sizeof *oracles; i++) {
        char name[100];
        snprintf(name, sizeof name, "oracle/%s", oracles[i]);
        const char *path = test_data(name);
        if (!path) return;
        char folder[600], copy[600];
        snprintf(folder, sizeof folder, "%s", path);
        snprintf(copy, sizeof copy, "%s_%s", test_tmp("oracle"), oracles[i]);
        check_round_trip(oracle_for_gguf(folder, copy), NULL);
    }
}

// ---- Running -----------------------------------------------------------------------------------

// A text longer than the window is forgotten at its beginning; another one begins again there. Seen
// to fail (a store into no page) when a sequence goes back to 0 with the holes that windows left.
TEST(families_a_window_begins_again) {
    static float first[60 * N_VOCAB], second[60 * N_VOCAB];
    char folder[600];
    int32_t ids[60];
    tern_error err = {0};
    tern_model *model;
    tern_session *session;
    snprintf(folder, sizeof folder, "%s", test_tmp("family_again"));
    if (!family_make_folder(folder, spellings[9].json, 16, "model.", NULL)) return;
    for (int i = 0; i < 60; i++) ids[i] = i * 7 % N_VOCAB;
    REQUIRE_OK(tern_model_open(&model, folder, NULL, &err), err);
    REQUIRE_OK(tern_session_open(&session, model, NULL, &err), err);
    CHECK(tern_session_logits(session, ids, 60, first, &err) == TERN_OK);
    CHECK(tern_session_logits(session, ids + 59, 1, second, &err) == TERN_OK);
    tern_session_reset(session);
    CHECK_MSG(tern_session_logits(session, ids, 60, second, &err) == TERN_OK, "%s", err.message);
    CHECK(memcmp(first, second, sizeof first) == 0);
    tern_session_close(session);
    tern_model_close(model);
}

// Seen to fail (scores of 0, silently) without either check.
TEST(families_embeddings_are_no_scores) {
    char folder[600];
    float scores[N_VOCAB];
    const int32_t id = 3;
    tern_error err = {0};
    tern_model *model;
    tern_session *session = NULL;
    tern_lease *lease;
    snprintf(folder, sizeof folder, "%s", test_tmp("family_scores"));
    if (!family_make_folder(folder, spellings[2].json, 16, "", NULL)) return;
    REQUIRE_OK(tern_model_open(&model, folder, NULL, &err), err);
    CHECK(tern_session_open(&session, model, NULL, &err) == TERN_ERR_UNSUPPORTED && !session);
    CHECK_MSG(strstr(err.message, "it makes vectors and has no scores of next tokens"), "%s",
              err.message);
    REQUIRE_OK(tern_lease_open(&lease, model, 16, TERN_KV_F32, &err), err);
    const tern_work work = {.lease = lease, .ids = &id, .n_ids = 1, .n_outputs = 1};
    const tern_wants wanted = {.outputs = {"logits"}, .data = {scores}};
    CHECK(tern_model_compute(model, &work, 1, &wanted, &err) == TERN_ERR_UNSUPPORTED);
    CHECK_MSG(strstr(err.message, "has no output \"logits\""), "%s", err.message);
    tern_lease_close(lease);
    tern_model_close(model);
}

// What a delta net and a convolution remember is no cache of keys: it stays in floats whatever type
// that has, since rounding it would add up. Seen to fail with a delta net's state rounded to halves
// where the cache has no floats.
TEST(families_states_have_no_type_but_floats) {
    static const char *const configs[] = {
        "{\"model_type\": \"qwen3_5_text\", " QWEN35_SIZES ", \"layer_types\": "
        "[\"linear_attention\", \"linear_attention\", \"linear_attention\", "
        "\"linear_attention\"]}",
        "{" LFM2 ", \"layer_types\": [\"conv\", \"conv\", \"conv\"]}"};
    static const tern_kv_type types[] = {TERN_KV_F32, TERN_KV_F16, TERN_KV_Q8_0, TERN_KV_Q4_0};
    enum { N = 40 };
    static float rows[4][N * N_VOCAB];
    int32_t ids[N];
    for (int i = 0; i < N; i++) ids[i] = i * 7 % N_VOCAB;
    for (size_t i = 0; i < 2; i++) {
        char folder[600];
        tern_error err = {0};
        tern_model *model;
        snprintf(folder, sizeof folder, "%s%zu", test_tmp("family_states"), i);
        if (!family_make_folder(folder, configs[i], 16, "model.", NULL)) return;
        REQUIRE_OK(tern_model_open(&model, folder, NULL, &err), err);
        for (size_t k = 0; k < 4; k++) {
            const tern_session_desc d = {.kv_type = types[k]};
            tern_session *s;
            REQUIRE_OK(tern_session_open(&s, model, &d, &err), err);
            for (int at = 0; at < N; at += 10) // what is between the pieces is what was kept
                CHECK(tern_session_logits(s, ids + at, 10, rows[k] + at * N_VOCAB, &err) ==
                      TERN_OK);
            tern_session_close(s);
            CHECK_MSG(memcmp(rows[k], rows[0], sizeof rows[0]) == 0, "%s: type %zu", folder, k);
        }
        tern_model_close(model);
    }
}

// Layers of Gemma 4 that make no keys and values read those of the last layer of their own kind
// that does. Seen to fail with the first one of the kind, and with the last one of any (refused).
TEST(families_shared_keys_are_those_of_the_last_of_their_kind) {
    static const char *const want[] = {"cache_k.0", "cache_k.1", "cache_k.2",
                                       "cache_k.1", "cache_k.1", "cache_k.2"};
    char folder[600];
    opened o;
    tern_error err = {0};
    tern_graph g;
    int n = 0;
    snprintf(folder, sizeof folder, "%s", test_tmp("family_donors"));
    if (!family_make_folder(folder, NESTED("gemma4", GEMMA4), 16, "model.", NULL)) return;
    if (!family_open_model(&o, folder)) return;
    tern_graph_init(&g);
    CHECK_MSG(tern_arch_build_main(&g, o.arch, &o.c, &err) == TERN_OK, "%s", err.message);
    for (size_t i = 0; i < g.n_nodes; i++) {
        if (g.nodes[i].op != TERN_OP_ATTENTION || n >= 6) continue;
        const char *name = g.values[g.nodes[i].in[1]].name;
        CHECK_MSG(strcmp(name, want[n]) == 0, "layer %d reads %s, not %s", n, name, want[n]);
        n++;
    }
    CHECK(n == 6);
    tern_graph_free(&g);
    tern_file_close(o.file);
}

// Seen to fail: a window that is as long as the context.
TEST(families_windows_of_the_whole_context_are_none) {
    static const struct {
        const char *window;
        int64_t want, n_context;
    } cases[] = {{"40", 40, 64}, {"63", 63, 64}, {"64", 0, 64}, {"262144", 0, 64}};
    const made_tensor table = {"model.embed_tokens.weight", {N_VOCAB, 16}, 2};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char folder[600], json[600];
        opened o;
        tern_error err = {0};
        snprintf(folder, sizeof folder, "%s%zu", test_tmp("family_wide"), i);
        snprintf(json, sizeof json,
                 "{" SMALL("phi3") ", \"max_position_embeddings\": 64, \"sliding_window\": %s}",
                 cases[i].window);
        if (!family_write_tensors(folder, json, &table, 1)) return;
        CHECK_MSG(family_open_config(&o, folder, &err), "%s", err.message);
        CHECK_MSG(o.c.n_window == cases[i].want && o.c.n_context == cases[i].n_context,
                  "a window of %s: %d", cases[i].window, (int)o.c.n_window);
        tern_file_close(o.file);
    }
}

// Numbers of a golden file, and how many.
static float *golden(const char *folder, const char *name, size_t *n) {
    char path[700];
    tern_file *f;
    tern_error err = {0};
    snprintf(path, sizeof path, "%s/golden.safetensors", folder);
    *n = 0;
    if (tern_file_open(&f, path, &err) != TERN_OK) return NULL;
    const tern_tensor *t = tern_file_tensor(f, name);
    float *x = t ? malloc(t->bytes) : NULL;
    if (x) memcpy(x, test_bytes(&t->data), t->bytes);
    if (x) *n = t->bytes / sizeof *x;
    tern_file_close(f);
    return x;
}

static void check_embedding(const char *folder, const char *model_path) {
    size_t n_ids, n_hidden, n_pooled;
    tern_error err = {0};
    tern_model *model;
    tern_lease *lease = NULL;
    int32_t *ids = (int32_t *)golden(folder, "input_ids", &n_ids);
    float *hidden = golden(folder, "last_hidden_state", &n_hidden);
    float *pooled = golden(folder, "pooled", &n_pooled);
    REQUIRE(ids && hidden);
    REQUIRE_OK(tern_model_open(&model, model_path, NULL, &err), err);
    float *rows = calloc(n_hidden, sizeof *rows), *one = calloc(model->config.n_embd, sizeof *one);
    REQUIRE_OK(tern_lease_open(&lease, model, 64, TERN_KV_F32, &err), err);
    const tern_work work = {
        .lease = lease, .ids = ids, .n_ids = (int32_t)n_ids, .n_outputs = (int32_t)n_ids};
    const tern_wants wanted = {.outputs = {"hidden", "embedding"}, .data = {rows, one}};
    tern_status status = tern_model_compute(model, &work, 1, &wanted, &err);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    double off = golden_distance(rows, hidden, n_hidden);
    CHECK_MSG(off < 1e-5, "%s: hidden rows are %g off", model_path, off);
    off = pooled ? golden_distance(one, pooled, n_pooled) : 0;
    CHECK_MSG(!pooled || off < 1e-5, "%s: the embedding is %g off", model_path, off);
    tern_lease_close(lease);
    tern_model_close(model);
    free(ids);
    free(hidden);
    free(pooled);
    free(rows);
    free(one);
}

// transformers' hidden rows, and sentence-transformers' vectors, from folders and from GGUF. Seen
// to fail with a window one narrower, without the dense products, and with the first row pooled.
TEST(families_embeddings_are_sentence_transformers) {
    static const char *const names[] = {"embeddinggemma", "embeddinggemma_st", "qwen3_embedding"};
    for (size_t i = 0; i < 3; i++) {
        char name[100], folder[600], gguf[700];
        snprintf(name, sizeof name, "oracle/%s", names[i]);
        const char *path = test_data(name);
        if (!path) return;
        snprintf(folder, sizeof folder, "%s", path);
        snprintf(gguf, sizeof gguf, "%s%zu.gguf", test_tmp("family_embedding"), i);
        family_convert(folder, gguf);
        check_embedding(folder, folder);
        check_embedding(folder, gguf);
    }
}

// ---- Numbers -----------------------------------------------------------------------------------

static float element(const tern_file *file, const char *name, uint64_t i) {
    float x = NAN;
    const tern_tensor *t = tern_file_tensor(file, name);
    if (t) tern_dtype_decode(t->type, test_bytes(&t->data), i, 1, t->scale, &x);
    CHECK_MSG(t != NULL, "no tensor %s", name);
    return x;
}

#define K_HEADS 2 // of QWEN35_SIZES
#define V_HEADS 6
#define K_DIM   3
#define V_DIM   5
#define N_EMBD  16
#define TAPS    4

// Value head n of GGUF is head (n % K) * (V / K) + n / K of the folder. Seen to fail with / and %
// exchanged in tern_order_source.
TEST(families_value_heads_are_tiled_in_gguf) {
    char folder[600], gguf[700];
    tern_file *hf, *ggml;
    tern_error err = {0};
    snprintf(folder, sizeof folder, "%s", test_tmp("family_order"));
    snprintf(gguf, sizeof gguf, "%s.gguf", folder);
    if (!family_make_folder(folder, QWEN35, 16, "model.", NULL)) return;
    family_convert(folder, gguf);
    REQUIRE_OK(tern_file_open(&hf, folder, &err), err);
    REQUIRE_OK(tern_file_open(&ggml, gguf, &err), err);
#define HF(name, i)   element(hf, "model.layers.0." name, (uint64_t)(i))
#define GGUF(name, i) element(ggml, "blk.0." name, (uint64_t)(i))
    const int first = 2 * K_HEADS * K_DIM; // rows of queries and keys
    for (int n = 0; n < V_HEADS; n++) {
        int h = n % K_HEADS * (V_HEADS / K_HEADS) + n / K_HEADS;
        CHECK(GGUF("ssm_a", n) == (float)-exp((double)HF("linear_attn.A_log", h)));
        CHECK(GGUF("ssm_dt.bias", n) == HF("linear_attn.dt_bias", h));
        for (int i = 0; i < N_EMBD; i += 5) {
            CHECK(GGUF("ssm_alpha.weight", n * N_EMBD + i) ==
                  HF("linear_attn.in_proj_a.weight", h * N_EMBD + i));
            CHECK(GGUF("ssm_beta.weight", n * N_EMBD + i) ==
                  HF("linear_attn.in_proj_b.weight", h * N_EMBD + i));
        }
        for (int d = 0; d < V_DIM; d++) {
            int to = n * V_DIM + d, from = h * V_DIM + d;
            CHECK(GGUF("attn_gate.weight", to * N_EMBD + 3) ==
                  HF("linear_attn.in_proj_z.weight", from * N_EMBD + 3));
            CHECK(GGUF("attn_qkv.weight", (first + to) * N_EMBD + 3) ==
                  HF("linear_attn.in_proj_qkv.weight", (first + from) * N_EMBD + 3));
            CHECK(GGUF("ssm_conv1d.weight", (first + to) * TAPS + 1) ==
                  HF("linear_attn.conv1d.weight", (first + from) * TAPS + 1));
            CHECK(GGUF("ssm_out.weight", 2 * V_HEADS * V_DIM + to) ==
                  HF("linear_attn.out_proj.weight", 2 * V_HEADS * V_DIM + from));
        }
    }
    for (int i = 0; i < first * TAPS; i++)
        CHECK(GGUF("ssm_conv1d.weight", i) == HF("linear_attn.conv1d.weight", i));
    CHECK(GGUF("attn_norm.weight", 7) == 1 + HF("input_layernorm.weight", 7));
    CHECK(GGUF("ssm_norm.weight", 2) == HF("linear_attn.norm.weight", 2));
    tern_file_close(hf);
    tern_file_close(ggml);
}

// Every bfloat16 becomes in GGUF a number that comes back as one that becomes the same. Seen to
// fail with 1 added both ways, and with the logarithm of base 2.
TEST(families_changes_of_numbers_can_be_undone) {
    static const tern_change changes[] = {TERN_CHANGE_PLUS_ONE, TERN_CHANGE_MINUS_EXP};
    for (size_t k = 0; k < 2; k++) {
        size_t n_wrong = 0;
        for (uint32_t i = 0; i < 65536; i++) {
            float x = tern_bf16_to_f32((uint16_t)i), there;
            if (!(fabsf(x) < 40)) continue;
            tern_change_apply(changes[k], true, &x, 1);
            there = x;
            tern_change_apply(changes[k], false, &x, 1);
            tern_change_apply(changes[k], true, &x, 1);
            n_wrong += x != there;
        }
        CHECK_MSG(n_wrong == 0, "change %d: %zu numbers", (int)changes[k], n_wrong);
    }
}

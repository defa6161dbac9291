// Whatever a config says, a folder, a GGUF of it and a folder of that compute the same. The keys
// are those that the readers of a family ask for, so that new ones are tested by being read; the
// models are all of tests/oracles that have logits or vectors, and each family must be among them.
//
// Each key gets other values in turn, in config.json and in the GGUF. What is refused is all right;
// what changes the numbers must change them in all three; and a key that never does either is
// listed below with a reason.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tern_tools.h"
#include "tests/library/convert/keyed_model.h"
#include "tests/support/harness.h"

#define BOUND 2e-5

// Keys that leave the numbers as they are, and why.
static const char *const neutral[][2] = {
    {"bos_token_id", "of texts"},
    {"eos_token_id", "of texts"},
    {"model_type", "another is another family"},
    {"vocab_size", "the table has the real one"},
    {"max_position_embeddings", "how long a text may be, where RoPE is not scaled by it"},
    {"quantization_config", "of packed weights"},
    {"final_norm_eps", "our own, beside the other"},
    {"vision_config", "of images"},
    {"image_token_id", "of images"},
    {"video_token_id", "of images"},
    {"vision_", "of images"},
    {"n_deepstack_layers", "of images"},
    {"general.", "another is another family"},
    {"clip.", "of images"},
    {"tokenizer.", "of texts"},
    {"context_length", "as max_position_embeddings"},
    {"rope.scaling.yarn_log_multiplier", "attn_factor, which follows from it, is there, too"},
};

static bool is_neutral(const char *key) {
    for (size_t i = 0; i < sizeof neutral / sizeof *neutral; i++)
        if (strncmp(neutral[i][0], key, strlen(neutral[i][0])) == 0) return true;
    return false;
}

#define VALUES_MAX 12
static int values_for(const char *key, const tern_json *now, char v[VALUES_MAX][160]) {
    static const char *const ropes[] = {
        "{\"rope_type\":\"linear\",\"factor\":3}",
        "{\"rope_type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":16}",
        ("{\"rope_type\":\"llama3\",\"factor\":4,\"low_freq_factor\":1,\"high_freq_factor\":4,"
         "\"original_max_position_embeddings\":16}"),
        "{\"rope_type\":\"proportional\",\"partial_rotary_factor\":0.5}",
        "{\"rope_type\":\"default\",\"rope_theta\":50}"};
    static const char *const texts[] = {"relu2", "gelu", "silu", "linear", "yarn", "rope", "nope"};
    int n = 0;
    double x = tern_json_number(now, 0);
    bool is_rope = strcmp(key, "rope_scaling") == 0 || strcmp(key, "rope_parameters") == 0;
#define PUT(...) snprintf(v[n++], 160, __VA_ARGS__)
    if (is_rope) {
        for (int i = 0; i < 5; i++) PUT("%s", ropes[i]);
    } else if (tern_json_is(now, TERN_JSON_NUMBER)) {
        PUT("\"%.17g\"", x);
        const double others[] = {x / 2, x * 2, x + 1, x * 0.9, x - 1, 0, 7};
        for (int i = 0; i < 7; i++) PUT("%.17g", others[i]);
    } else if (tern_json_is(now, TERN_JSON_BOOL)) {
        PUT("%s", tern_json_bool(now, false) ? "false" : "true");
    } else if (tern_json_is(now, TERN_JSON_STRING)) {
        for (int i = 0; i < 7; i++) PUT("\"%s\"", texts[i]);
    } else if (!now || now->type == TERN_JSON_NULL) {
        const char *const any[] = {"3", "0.5", "true", "false", "9", "1000", "\"linear\""};
        for (int i = 0; i < 7; i++) PUT("%s", any[i]);
    }
    PUT("null");
#undef PUT
    return n;
}

static void check_same(const model *m, const char *what, const char *path, const answer *want) {
    answer got = answer_of(path);
    CHECK_MSG(!got.why[0] && answer_distance(&got, want) < BOUND, "%s: %s: %s: %g %s", m->name,
              what, strrchr(path, '.') && strstr(path, ".gguf") ? "GGUF" : "folder of the GGUF",
              got.why[0] ? 0.0 : answer_distance(&got, want), got.why);
    free(got.x);
}

// Whether the model is another one, or none, with this value.
static bool try_value(model *m, const char *path, const char *value, bool is_quoted) {
    const tern_arch *arch;
    keys seen = {.n = 0};
    tern_config c;
    tern_error err = {0};
    char what[300];
    m->n_tried++;
    if (!keyed_set_config(m, path, value)) return false;
    if (!keyed_read_keys(m->folder, &seen, &arch, &c, &err)) {
        m->n_refused++;
        return true;
    }
    bool is_same = memcmp(&c, &m->c, sizeof c) == 0;
    if (is_same) return false;
    answer a = answer_of(m->folder);
    snprintf(what, sizeof what, "%s = %.150s", path, value);
    bool changes = a.why[0] || answer_distance(&a, &m->base) > 1e-7;
    if (is_quoted)
        CHECK_MSG(!changes || a.why[0], "%s: %s: in quotes it is another number", m->name, what);
    if (!a.why[0] && changes) {
        m->n_changed++;
        if (keyed_convert(m->folder, m->gguf)) {
            m->n_kept++;
            check_same(m, what, m->gguf, &a);
            if (keyed_convert(m->gguf, m->back)) check_same(m, what, m->back, &a);
        }
    }
    free(a.x);
    return changes && !is_quoted;
}

static keys effective, without; // in some model; in some other one

static void try_key(model *m, const char *key) {
    char path[2 * KEY_ROOM], values[VALUES_MAX][160];
    const tern_json *now = keyed_find(&m->doc, key, path);
    int n = values_for(key, now, values), most = test_is_long() ? VALUES_MAX : 2, n_other = 0;
    bool is_rope = values[0][0] == '{';
    for (int i = 0; i < n && (n_other < most || is_rope); i++)
        n_other += try_value(m, path, values[i],
                             values[i][0] == '"' && now && now->type == TERN_JSON_NUMBER);
    bool has_children = now && now->type >= TERN_JSON_ARRAY;
    if (!now || has_children || is_neutral(key)) return;
    keys_add(n_other ? &effective : &without, key);
}

// Whether the model is another one, or none, with what is now in the GGUF.
static bool try_gguf(model *m, const tern_config *as_it_is, const char *key, int i) {
    const tern_arch *arch;
    keys seen = {.n = 0};
    tern_config c;
    tern_error err;
    char what[300];
    m->n_tried++;
    if (!keyed_read_keys(m->gguf, &seen, &arch, &c, &err)) {
        m->n_refused++;
        return true;
    }
    if (memcmp(&c, as_it_is, sizeof c) == 0) return false;
    answer a = answer_of(m->gguf);
    snprintf(what, sizeof what, "%s, value %d", key, i);
    bool changes = a.why[0] || answer_distance(&a, &m->base) > 1e-7;
    if (!a.why[0] && changes) {
        m->n_changed++;
        if (keyed_convert(m->gguf, m->back)) {
            m->n_kept++;
            check_same(m, what, m->back, &a);
            if (keyed_convert(m->back, m->again)) check_same(m, what, m->again, &a);
        }
    }
    free(a.x);
    return changes;
}

// Without "ARCHITECTURE.".
static const char *plain_key(const tern_arch *arch, const char *key) {
    for (const char *const *name = arch->gguf_names; *name; name++) {
        size_t n = strlen(*name);
        if (strncmp(key, *name, n) == 0 && key[n] == '.') return key + n + 1;
    }
    return key;
}

static void try_gguf_keys(model *m) {
    static keys all;
    const tern_arch *arch;
    tern_config c;
    tern_error err;
    all.n = 0;
    if (!keyed_convert(m->folder, m->gguf)) return;
    m->header = read_blob(m->gguf);
    CHECK_MSG(keyed_read_keys(m->gguf, &all, &arch, &c, &err), "%s: %s", m->name, err.message);
    for (size_t k = 0; k < all.n; k++) {
        const char *key = all.names[k];
        const char *plain = plain_key(arch, key);
        int most = test_is_long() ? VALUES_MAX : 2, n_other = 0, i = 0;
        for (; n_other < most && keyed_set_gguf(m, key, i); i++) n_other += try_gguf(m, &c, key, i);
        if (i > 0 && keyed_find_type(&m->header, key) && !is_neutral(plain))
            keys_add(n_other ? &effective : &without, plain);
    }
    free(m->header.bytes);
}

// key NULL: as it is.
static void try_model(const char *name, const char *key, const char *value,
                      const char **arch_name) {
    static keys all;
    static model m;
    const tern_arch *arch = NULL;
    tern_error err = {0};
    all.n = 0;
    CHECK_MSG(model_begin(&m, name, key, value), "%s", name);
    bool ok = keyed_read_keys(m.folder, &all, &arch, &m.c, &err);
    CHECK_MSG(ok, "%s: %s", name, err.message);
    if (!ok) goto end;
    *arch_name = arch->name;
    m.base = answer_of(m.folder);
    CHECK_MSG(!m.base.why[0], "%s: %s", name, m.base.why);
    for (size_t i = 0; !m.base.why[0] && i < all.n; i++) try_key(&m, all.names[i]);
    model_write(m.folder, "config.json", m.config.bytes, m.config.n);
    if (!m.base.why[0]) try_gguf_keys(&m);
    CHECK_MSG(m.n_kept > 4, "%s: only %d values changed a GGUF", name, m.n_kept);
    if (getenv("TERN_TEST_VERBOSE"))
        printf("%s: %zu keys, %d values: %d change it, %d as a GGUF; %d are refused\n", name, all.n,
               m.n_tried, m.n_changed, m.n_kept, m.n_refused);
end:
    free(m.base.x);
    model_end(&m);
}

// ---- All of them -------------------------------------------------------------------------------

static const struct {
    const char *name, *key, *value; // key: with that value instead
} models[] = {
    {"llama", NULL, NULL},
    {"llama", "model_type", "\"mistral\""}, // whose window is then tried
    {"llama", "rope_scaling",
     "{\"rope_type\": \"yarn\", \"factor\": 4, \"rope_theta\": 500, "
     "\"original_max_position_embeddings\": 16}"},
    {"llama_scaled", NULL, NULL},
    {"bitnet_master", NULL, NULL},
    {"llama_biased", NULL, NULL},
    {"qwen2", NULL, NULL},
    {"qwen2", "use_sliding_window", "true"},
    {"qwen3", NULL, NULL},
    {"qwen3moe", NULL, NULL},
    {"qwen35", NULL, NULL},
    {"qwen3vl_sees", NULL, NULL},
    {"olmo2", NULL, NULL},
    {"lfm2", NULL, NULL},
    {"lfm2moe", NULL, NULL},
    {"gemma3", NULL, NULL},
    {"gemma3_linear", NULL, NULL},
    {"gemma4", NULL, NULL},
    {"ministral3", NULL, NULL},
    {"ministral3", "sliding_window", "6"},
    {"smollm3", NULL, NULL},
    {"smollm3", "use_sliding_window", "true"},
    {"granite", NULL, NULL},
    {"granitehybrid", NULL, NULL},
    {"minicpm", NULL, NULL},
    {"exaone4", NULL, NULL},
    {"hunyuan", NULL, NULL},
    {"ernie4_5", NULL, NULL},
    {"cohere2", NULL, NULL},
    {"phi3", NULL, NULL},
    {"phi3", "sliding_window", "6"},
    {"falcon_h1", NULL, NULL},
    {"bert", NULL, NULL},
    {"xlm_roberta", NULL, NULL},
    {"nomic_bert", NULL, NULL},
    {"modernbert", NULL, NULL},
    {"embeddinggemma", NULL, NULL},
};
#define N_MODELS (sizeof models / sizeof *models)

static bool reads_text(const tern_arch *arch) {
    return !arch->own_config && arch->sample && arch->sample->n_image == 0 &&
           arch->sample->n_source == 0;
}

// Seen to fail: without the window of Mistral's layers in GGUF; with a Llama's biases in a folder's
// order there; with MiniCPM's attention read from GGUF with a scale that a folder cannot say; with
// queries that grow, of a RoPE that is not scaled, in neither.
TEST(convert_keeps_what_each_key_of_a_config_says) {
    static const char *seen[N_MODELS];
    size_t n;
    for (size_t i = 0; i < N_MODELS; i++)
        try_model(models[i].name, models[i].key, models[i].value, &seen[i]);
    const tern_arch *const *list = tern_arch_list(&n);
    for (size_t k = 0; k < without.n; k++) {
        bool found = false;
        for (size_t i = 0; i < effective.n; i++)
            found |= strcmp(effective.names[i], without.names[k]) == 0;
        CHECK_MSG(found, "%s changes nothing, and no reason is listed", without.names[k]);
    }
    for (size_t k = 0; k < n; k++) {
        bool found = !reads_text(list[k]);
        for (size_t i = 0; i < N_MODELS; i++)
            found |= seen[i] && strcmp(seen[i], list[k]->name) == 0;
        CHECK_MSG(found, "no model of %s is tried", list[k]->name);
    }
}

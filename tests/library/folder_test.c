// Folders of transformers: what config.json says about quantization is what is computed, and a
// tensor that nothing reads is refused. The reference here is a decoder written out in double.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "formats/formats.h"
#include "tests/support/blobs.h"
#include "tests/support/harness.h"
#include "tern_tools.h"
#include "tests/support/tiny_model.h"

enum { N_IDS = 4, EMBD = 128, FF = 384, HEADS = 4, KV = 2, HEAD = EMBD / HEADS, LAYERS = 2 };
static const int32_t ids[N_IDS] = {1, 70, 259, 33};

// ---- Making folders ----------------------------------------------------------------------------

typedef struct folder_desc {
    const char *config; // put into config.json, before its first member
    bool norms;         // a norm before every projection
    const char *extra;  // one more tensor of this name
    bool head_again;    // lm_head.weight, of other values, although there was none
} folder_desc;

static const char *const projections[] = {
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
    "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};
#define N_PROJECTIONS 7

static uint64_t n_in_of(int projection) { return projection == 6 ? FF : EMBD; }

static void norm_name(char *out, size_t size, int layer, int projection) {
    snprintf(out, size, "model.layers.%d.%s.rms_norm.weight", layer, projections[projection]);
}

static float norm_weight(int layer, int projection, uint64_t i) {
    return 0.5f + (float)((i * 37 + (uint64_t)(layer * 7 + projection) * 101) % 64) / 64;
}

static tern_status declare_all(tern_st_writer *w, const tern_file *f, const folder_desc *d) {
    char name[128];
    for (size_t i = 0; i < f->n_tensors; i++) {
        const tern_tensor *t = &f->tensors[i];
        uint64_t shape[2] = {t->n_dims > 1 ? t->ne[1] : t->ne[0], t->ne[0]};
        TERN_TRY(tern_st_declare(w, t->name, t->type, t->n_dims, shape));
    }
    for (int k = 0; d->norms && k < LAYERS * N_PROJECTIONS; k++) {
        uint64_t n = n_in_of(k % N_PROJECTIONS);
        norm_name(name, sizeof name, k / N_PROJECTIONS, k % N_PROJECTIONS);
        TERN_TRY(tern_st_declare(w, name, TERN_DTYPE_F32, 1, &n));
    }
    uint64_t head[] = {TINY_N_VOCAB, EMBD}, one = 1;
    if (d->head_again) TERN_TRY(tern_st_declare(w, "lm_head.weight", TERN_DTYPE_F32, 2, head));
    return d->extra ? tern_st_declare(w, d->extra, TERN_DTYPE_F32, 1, &one) : TERN_OK;
}

static tern_status write_all(tern_st_writer *w, const tern_file *f, const folder_desc *d,
                             tern_error *err) {
    float x = 0.25f;
    for (size_t i = 0; i < f->n_tensors; i++)
        TERN_TRY(tern_st_write(w, test_bytes(&f->tensors[i].data), f->tensors[i].bytes, err));
    for (int k = 0; d->norms && k < LAYERS * N_PROJECTIONS; k++)
        for (uint64_t i = 0; i < n_in_of(k % N_PROJECTIONS); i++) {
            float v = norm_weight(k / N_PROJECTIONS, k % N_PROJECTIONS, i);
            TERN_TRY(tern_st_write(w, &v, sizeof v, err));
        }
    for (int i = 0; d->head_again && i < TINY_N_VOCAB * EMBD; i++)
        TERN_TRY(tern_st_write(w, &x, sizeof x, err));
    if (d->extra) TERN_TRY(tern_st_write(w, &x, sizeof x, err));
    return tern_st_writer_finish(w, err);
}

// The tiny float llama, with what the description adds.
static bool make_folder(const char *out, const folder_desc *d) {
    char gguf[400], plain[400]; // test_tmp has few buffers, and callers use them
    snprintf(gguf, sizeof gguf, "%s", test_tmp("folder.gguf"));
    snprintf(plain, sizeof plain, "%s", test_tmp("folder_plain"));
    tiny_model_desc tiny = {
        .arch = "llama", .type = TERN_DTYPE_BF16, .seed = 81, .head_type = TERN_DTYPE_F32};
    tern_error err = {0};
    tern_file *f = NULL;
    tern_st_writer *w = NULL;
    tern_strbuf json = {0}, path = {0};
    test_folder(out);
    bool ok = tiny_model_write(gguf, &tiny, &err) == TERN_OK &&
              tern_convert(gguf, plain, NULL, &err) == TERN_OK &&
              tern_file_open(&f, plain, &err) == TERN_OK &&
              tern_st_writer_open(&w, out, 0, &err) == TERN_OK && declare_all(w, f, d) == TERN_OK &&
              write_all(w, f, d, &err) == TERN_OK;
    tern_strbuf_printf(&path, "%s/config.json", plain);
    FILE *from = fopen(path.ptr, "rb");
    char text[4000] = "";
    if (from) {
        text[fread(text, 1, sizeof text - 1, from)] = 0;
        fclose(from);
    }
    tern_strbuf_printf(&json, "{%s%s", d->config ? d->config : "", strchr(text, '{') + 1);
    tern_strbuf_clear(&path);
    tern_strbuf_printf(&path, "%s/config.json", out);
    ok = ok && tern_file_write(path.ptr, json.ptr, json.len, &err) == TERN_OK;
    CHECK_MSG(ok, "%s", err.message);
    tern_st_writer_free(w);
    tern_file_close(f);
    tern_strbuf_free(&json);
    tern_strbuf_free(&path);
    return ok;
}

// ---- The reference -----------------------------------------------------------------------------

typedef struct reference {
    tern_file *file;
    bool online, norms;
    double eps;
} reference;

static float *tensor(const reference *r, const char *name) {
    const tern_tensor *t = tern_file_tensor(r->file, name);
    if (!t) {
        CHECK_MSG(false, "no %s", name);
        abort();
    }
    size_t n = (size_t)(t->ne[0] * t->ne[1]);
    float *x = malloc(n * sizeof *x);
    tern_dtype_decode(t->type, test_bytes(&t->data), 0, n, 1, x);
    return x;
}

static void rms(double *y, const double *x, const float *w, int n, double eps) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * x[i];
    double s = 1 / sqrt(sum / n + eps);
    for (int i = 0; i < n; i++) y[i] = x[i] * s * (double)w[i];
}

// transformers' AutoBitLinear, or a plain linear.
static void project(const reference *r, int layer, int k, const double *in, int n_in, double *out,
                    int n_out) {
    char name[128];
    snprintf(name, sizeof name, "model.layers.%d.%s.weight", layer, projections[k]);
    float *w = tensor(r, name);
    double x[FF], mean = 0, top = 1e-5;
    memcpy(x, in, (size_t)n_in * sizeof *x);
    if (r->norms) {
        norm_name(name, sizeof name, layer, k);
        float *g = tensor(r, name);
        rms(x, in, g, n_in, r->eps);
        free(g);
    }
    for (int i = 0; i < n_in * n_out; i++) mean += fabs((double)w[i]);
    mean = fmax(mean / (n_in * n_out), 1e-5);
    for (int i = 0; i < n_in; i++) top = fmax(top, fabs(x[i]));
    for (int i = 0; r->online && i < n_in; i++) x[i] = nearbyint(x[i] * 127 / top) * top / 127;
    for (int o = 0; o < n_out; o++) {
        out[o] = 0;
        for (int i = 0; i < n_in; i++) {
            double v = (double)w[o * n_in + i];
            if (r->online) v = fmin(fmax(nearbyint(v / mean), -1), 1) * mean;
            out[o] += v * x[i];
        }
    }
    free(w);
}

static void rotate(double *head, int pos) {
    for (int i = 0; i < HEAD / 2; i++) {
        double angle = pos * pow(10000, -2.0 * i / HEAD), a = head[i], b = head[i + HEAD / 2];
        head[i] = a * cos(angle) - b * sin(angle);
        head[i + HEAD / 2] = b * cos(angle) + a * sin(angle);
    }
}

static double keys[LAYERS][N_IDS][KV * HEAD], values[LAYERS][N_IDS][KV * HEAD];

static void attend(int layer, int pos, const double *q, double *out) {
    for (int h = 0; h < HEADS; h++) {
        double p[N_IDS], sum = 0;
        int kv = h / (HEADS / KV) * HEAD;
        for (int t = 0; t <= pos; t++) {
            double dot = 0;
            for (int i = 0; i < HEAD; i++) dot += q[h * HEAD + i] * keys[layer][t][kv + i];
            sum += p[t] = exp(dot / sqrt(HEAD));
        }
        for (int i = 0; i < HEAD; i++) {
            out[h * HEAD + i] = 0;
            for (int t = 0; t <= pos; t++)
                out[h * HEAD + i] += p[t] / sum * values[layer][t][kv + i];
        }
    }
}

static void layer_forward(const reference *r, int l, int pos, double *x) {
    char name[128];
    double a[EMBD], q[EMBD], o[EMBD], y[EMBD], gate[FF], up[FF];
    snprintf(name, sizeof name, "model.layers.%d.input_layernorm.weight", l);
    float *w = tensor(r, name);
    rms(a, x, w, EMBD, 1e-5);
    free(w);
    project(r, l, 0, a, EMBD, q, EMBD);
    project(r, l, 1, a, EMBD, keys[l][pos], KV * HEAD);
    project(r, l, 2, a, EMBD, values[l][pos], KV * HEAD);
    for (int h = 0; h < HEADS; h++) rotate(q + h * HEAD, pos);
    for (int h = 0; h < KV; h++) rotate(keys[l][pos] + h * HEAD, pos);
    attend(l, pos, q, o);
    project(r, l, 3, o, EMBD, y, EMBD);
    for (int i = 0; i < EMBD; i++) x[i] += y[i];
    snprintf(name, sizeof name, "model.layers.%d.post_attention_layernorm.weight", l);
    w = tensor(r, name);
    rms(a, x, w, EMBD, 1e-5);
    free(w);
    project(r, l, 4, a, EMBD, gate, FF);
    project(r, l, 5, a, EMBD, up, FF);
    for (int i = 0; i < FF; i++) up[i] *= gate[i] / (1 + exp(-gate[i]));
    project(r, l, 6, up, FF, y, EMBD);
    for (int i = 0; i < EMBD; i++) x[i] += y[i];
}

static void forward(const reference *r, double *logits) { // of the last token
    float *table = tensor(r, "model.embed_tokens.weight"), *w = tensor(r, "model.norm.weight");
    for (int pos = 0; pos < N_IDS; pos++) {
        double x[EMBD], y[EMBD];
        for (int i = 0; i < EMBD; i++) x[i] = (double)table[ids[pos] * EMBD + i];
        for (int l = 0; l < LAYERS; l++) layer_forward(r, l, pos, x);
        rms(y, x, w, EMBD, 1e-5);
        for (int v = 0; v < TINY_N_VOCAB; v++) {
            logits[v] = 0;
            for (int i = 0; i < EMBD; i++) logits[v] += y[i] * (double)table[v * EMBD + i];
        }
    }
    free(table);
    free(w);
}

// ---- Comparing ---------------------------------------------------------------------------------

static float rows[N_IDS * TINY_N_VOCAB];

static tern_status run(const char *path, tern_error *err) {
    tern_model *model = NULL;
    tern_session *session = NULL;
    tern_session_desc d = {.kv_type = TERN_KV_F32};
    tern_status status = tern_model_open(&model, path, NULL, err);
    if (status == TERN_OK) status = tern_session_open(&session, model, &d, err);
    if (status == TERN_OK) status = tern_session_logits(session, ids, N_IDS, rows, err);
    tern_session_close(session);
    tern_model_close(model);
    return status;
}

// The relative distance of the engine's last row from the reference's.
static double distance(const char *path, const reference *how) {
    static double want[TINY_N_VOCAB];
    double error = 0, norm = 0;
    reference r = *how;
    tern_error err = {0};
    tern_status status = run(path, &err);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    if (status != TERN_OK || tern_file_open(&r.file, path, &err) != TERN_OK) return INFINITY;
    forward(&r, want);
    tern_file_close(r.file);
    for (int v = 0; v < TINY_N_VOCAB; v++) {
        double e = (double)rows[(N_IDS - 1) * TINY_N_VOCAB + v] - want[v];
        error += e * e;
        norm += want[v] * want[v];
    }
    return sqrt(error / norm);
}

static double apart(const float *a, const float *b) {
    double error = 0, norm = 0;
    for (int i = 0; i < N_IDS * TINY_N_VOCAB; i++) {
        error += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(error / norm);
}

#define QUANT(mode, rest)                                                                          \
    "\"quantization_config\": {\"quant_method\": \"bitnet\", \"linear_class\": "                   \
    "\"autobitlinear\", \"quantization_mode\": \"" mode "\"" rest "},"
#define NORMS ", \"use_rms_norm\": true, \"rms_norm_eps\": 0.001"

// Seen to fail with quantization_config left unread, and with the norms left out (0.6 and more). An
// activation on the edge of two steps may round either way: 1 in 127.
TEST(folder_online_quantization_is_computed) {
    static const struct {
        folder_desc d;
        reference how;
        double bound;
    } cases[] = {
        {{0}, {0}, 1e-5},
        {{.config = QUANT("online", "")}, {.online = true}, 5e-3},
        {{.config = QUANT("online", NORMS), .norms = true},
         {.online = true, .norms = true, .eps = 0.001},
         5e-3},
    };
    char out[400], gguf[400], again[400];
    snprintf(out, sizeof out, "%s", test_tmp("folder_online"));
    snprintf(gguf, sizeof gguf, "%s", test_tmp("folder_online.gguf"));
    snprintf(again, sizeof again, "%s", test_tmp("folder_again"));
    tern_error err = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!make_folder(out, &cases[i].d)) return;
        double d = distance(out, &cases[i].how);
        CHECK_MSG(d <= cases[i].bound, "case %zu: %g", i, d);
        if (i == 0) continue;
        // Ternary in a GGUF, whose tensors say what config.json said; and back.
        static float direct[N_IDS * TINY_N_VOCAB];
        memcpy(direct, rows, sizeof rows);
        tern_convert_desc to = {.head_type = TERN_TYPE_F32};
        REQUIRE_OK(tern_convert(out, gguf, &to, &err), err);
        REQUIRE_OK(run(gguf, &err), err);
        CHECK_MSG(apart(direct, rows) < 2e-3, "as GGUF: %g", apart(direct, rows));
        REQUIRE_OK(tern_convert(gguf, again, NULL, &err), err);
        REQUIRE_OK(run(again, &err), err);
        CHECK_MSG(apart(direct, rows) < 2e-3, "and back: %g", apart(direct, rows));
    }
}

TEST(folder_says_by_name_what_nothing_reads) {
    static const struct {
        folder_desc d;
        const char *says; // NULL: it runs
    } cases[] = {
        {{.extra = "model.layers.0.self_attn.q_norm.weight"}, "attn.q_norm.weight is not one"},
        {{.extra = "model.layers.7.mlp.up_proj.weight"}, "layers.7.mlp.up_proj.weight is not one"},
        {{.extra = "model.layers.0.mlp.up_proj.bias"}, "up_proj.bias: a bias that config.json"},
        {{.extra = "model.layers.0.mlp.up_proj.weight_scale"}, "up_proj.weight_scale is not one"},
        {{.extra = "vision.weight"}, "vision.weight is not one"},
        {{.extra = "model.layers.0.self_attn.rotary_emb.inv_freq"}, NULL},
        {{.norms = true}, "rms_norm.weight is not one"},
        {{.config = QUANT("online", NORMS)}, "rms_norm.weight is missing"},
        {{.config = "\"quantization_config\": {\"quant_method\": \"gptq\"},"}, "\"gptq\""},
        {{.config = QUANT("sometimes", "")}, "\"sometimes\""},
        {{.config = QUANT("online", ", \"modules_to_not_convert\": [\"lm_head\"]")}, NULL},
        {{.config = QUANT("online", ", \"modules_to_not_convert\": [\"v_proj\"]")}, "\"v_proj\""},
        {{.config = "\"hidden_act\": \"quick_gelu\","}, "\"quick_gelu\""},
    };
    char out[400], gguf[400];
    snprintf(out, sizeof out, "%s", test_tmp("folder_unread"));
    snprintf(gguf, sizeof gguf, "%s", test_tmp("folder_unread.gguf"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tern_error err = {0};
        if (!make_folder(out, &cases[i].d)) return;
        tern_status status = run(out, &err);
        CHECK_MSG((status == TERN_OK) == !cases[i].says, "%zu: %s", i, err.message);
        if (cases[i].says) CHECK_MSG(strstr(err.message, cases[i].says), "%zu: %s", i, err.message);
        status = tern_convert(out, gguf, NULL, &err);
        CHECK_MSG((status == TERN_OK) == !cases[i].says, "convert %zu: %s", i, err.message);
    }
}

// A head is not read if config.json says that the table is tied, as in transformers.
TEST(folder_tied_head_is_the_table) {
    const char *out = test_tmp("folder_tied"), *untied = test_tmp("folder_untied");
    folder_desc d = {.head_again = true, .config = "\"tie_word_embeddings\": true,"};
    if (!make_folder(out, &d)) return;
    CHECK(distance(out, &(reference){0}) < 1e-5);
    d.config = "\"tie_word_embeddings\": false,";
    if (!make_folder(untied, &d)) return;
    CHECK(distance(untied, &(reference){0}) > 0.1);
}

// transformers' Llama has no window, whatever its config says, and a session that asks for no
// context gets the model's. Seen to fail while the window was taken for the default context.
TEST(folder_llama_has_no_window) {
    static const char *const configs[] = {"\"sliding_window\": 24,", "\"sliding_window\": null,",
                                          "\"use_sliding_window\": false, \"sliding_window\": 24,"};
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        const char *out = test_tmp("folder_window");
        tern_error err = {0};
        tern_model *model;
        tern_session *session = NULL;
        if (!make_folder(out, &(folder_desc){.config = configs[i]})) return;
        REQUIRE_OK(tern_model_open(&model, out, NULL, &err), err);
        REQUIRE_OK(tern_session_open(&session, model, NULL, &err), err);
        CHECK(tern_session_n_context(session) != 24);
        CHECK(distance(out, &(reference){0}) < 1e-5);
        tern_session_close(session);
        tern_model_close(model);
    }
}

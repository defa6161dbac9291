// What llama.cpp makes of a GGUF file, through the interface of its library; check_llama.py
// compiles this against the headers and libraries of one version and compares what it writes with
// tern's.
//
//   llama_peer logits MODEL IDS N OUT [plain]
//                                      scores after each of the ids (little-endian int32), and of
//                                      N more that are the greatest each, into OUT; all ids into
//                                      OUT.ids. plain: the file has no tokenizer
//   llama_peer perplexity MODEL IDS W  of windows of W ids, of which the second half is scored
//   llama_peer quantize MODEL OUT TYPE TYPE is a number of enum llama_ftype
//
// Nothing is rounded that the library can be asked not to round: the cache is F32, attention is the
// plain one, and weights are multiplied as the file has them.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ggml-backend.h"
#include "llama.h"

#define THREADS 2

static int fail(const char *what, const char *which) {
    fprintf(stderr, "llama_peer: %s: %s\n", which, what);
    return 1;
}

static void say_errors(enum ggml_log_level level, const char *text, void *user) {
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

static int32_t *read_ids(const char *path, int *n) {
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END)) return NULL;
    long bytes = ftell(f);
    rewind(f);
    int32_t *ids = malloc((size_t)bytes + 1);
    *n = (int)(bytes / (long)sizeof *ids);
    if (ids && fread(ids, sizeof *ids, (size_t)*n, f) != (size_t)*n) *n = 0;
    fclose(f);
    return ids;
}

static struct llama_model *open_model(const char *path, bool plain) {
    struct llama_model_params p = llama_model_default_params();
    struct llama_model_kv_override no_tokenizer[2] = {
        {.tag = LLAMA_KV_OVERRIDE_TYPE_STR, .key = "tokenizer.ggml.model", .val_str = "none"}};
    if (plain) p.kv_overrides = no_tokenizer;
    p.use_extra_bufts = false; // weights stay as the file has them
    return llama_model_load_from_file(path, p);
}

static struct llama_context *open_context(struct llama_model *model, int n_tokens) {
    struct llama_context_params p = llama_context_default_params();
    p.n_ctx = p.n_batch = p.n_ubatch = (uint32_t)n_tokens;
    p.n_threads = p.n_threads_batch = THREADS;
    p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    p.type_k = p.type_v = GGML_TYPE_F32;
    return llama_init_from_model(model, p);
}

// Scores after each of n ids that go on from what the context has.
static bool decode(struct llama_context *ctx, const int32_t *ids, int n, int first) {
    struct llama_batch b = llama_batch_init(n, 0, 1);
    b.n_tokens = n;
    for (int i = 0; i < n; i++) {
        b.token[i] = ids[i];
        b.pos[i] = first + i;
        b.n_seq_id[i] = 1;
        b.seq_id[i][0] = 0;
        b.logits[i] = true;
    }
    bool ok = llama_decode(ctx, b) == 0;
    llama_batch_free(b);
    return ok;
}

static int32_t greatest(const float *x, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

static bool write_all(const char *path, const void *data, size_t bytes) {
    FILE *f = fopen(path, "wb");
    if (!f) return false;
    bool ok = fwrite(data, 1, bytes, f) == bytes;
    return fclose(f) == 0 && ok;
}

static int logits(struct llama_model *model, int32_t *ids, int n, int n_more, const char *out) {
    int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model)), n_all = n + n_more;
    struct llama_context *ctx = open_context(model, n_all);
    float *rows = malloc((size_t)n_all * (size_t)n_vocab * sizeof *rows);
    int32_t *all = malloc((size_t)n_all * sizeof *all);
    size_t row = (size_t)n_vocab * sizeof *rows;
    char name[4096];
    bool ok = ctx && rows && all && decode(ctx, ids, n, 0);
    for (int i = 0; ok && i < n; i++) {
        memcpy(rows + (size_t)i * (size_t)n_vocab, llama_get_logits_ith(ctx, i), row);
        all[i] = ids[i];
    }
    for (int i = n; ok && i < n_all; i++) {
        all[i] = greatest(rows + (size_t)(i - 1) * (size_t)n_vocab, n_vocab);
        ok = decode(ctx, &all[i], 1, i);
        if (ok) memcpy(rows + (size_t)i * (size_t)n_vocab, llama_get_logits_ith(ctx, 0), row);
    }
    snprintf(name, sizeof name, "%s.ids", out);
    ok = ok && write_all(out, rows, (size_t)n_all * row) &&
         write_all(name, all, (size_t)n_all * sizeof *all);
    free(rows);
    free(all);
    if (ctx) llama_free(ctx);
    return ok ? 0 : fail("cannot be computed", out);
}

// -ln of what the scores give to an id.
static double surprise(const float *x, int n, int32_t id) {
    double sum = 0, top = x[greatest(x, n)];
    for (int i = 0; i < n; i++) sum += exp(x[i] - top);
    return top + log(sum) - x[id];
}

static int perplexity(struct llama_model *model, const int32_t *ids, int n, int window) {
    int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model)), n_scored = 0;
    struct llama_context *ctx = open_context(model, window);
    double sum = 0;
    bool ok = ctx != NULL && window > 1;
    for (int at = 0; ok && at + window <= n; at += window) {
        llama_memory_clear(llama_get_memory(ctx), true);
        ok = decode(ctx, ids + at, window, 0);
        for (int i = window / 2; ok && i < window - 1; i++, n_scored++)
            sum += surprise(llama_get_logits_ith(ctx, i), n_vocab, ids[at + i + 1]);
    }
    if (ctx) llama_free(ctx);
    if (!ok || !n_scored) return fail("no perplexity", "ids");
    printf("%.5f\n", exp(sum / n_scored));
    return 0;
}

static int quantize(const char *model, const char *out, int type) {
    llama_model_quantize_params p = llama_model_quantize_default_params();
    p.nthread = THREADS;
    p.ftype = (enum llama_ftype)type;
    return llama_model_quantize(model, out, &p) == 0 ? 0 : fail("cannot be quantized", model);
}

int main(int argc, char **argv) {
    const char *libraries = getenv("LLAMA_LIBRARIES");
    int n = 0, result = 2;
    if (argc < 5) return fail("usage: see the file's top", argv[0]);
    llama_log_set(say_errors, NULL);
    llama_backend_init();
    if (libraries) ggml_backend_load_all_from_path(libraries);
    if (strcmp(argv[1], "quantize") == 0) return quantize(argv[2], argv[3], atoi(argv[4]));
    int32_t *ids = read_ids(argv[3], &n);
    if (!ids || n < 1) return fail("no ids", argv[3]);
    struct llama_model *model = open_model(argv[2], argc > 6);
    if (!model) return fail("cannot be loaded", argv[2]);
    if (strcmp(argv[1], "perplexity") == 0) result = perplexity(model, ids, n, atoi(argv[4]));
    if (strcmp(argv[1], "logits") == 0 && argc > 5)
        result = logits(model, ids, n, atoi(argv[4]), argv[5]);
    llama_model_free(model);
    free(ids);
    return result;
}

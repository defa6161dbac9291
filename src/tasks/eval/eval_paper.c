// How far a model matches what "The Era of 1-bit LLMs: All Large Language Models are in 1.58 Bits"
// (arXiv:2402.17764) describes. Each line is computed: from the graph of the file's own config,
// lowered for the file's own weights, and from every weight in it. Properties that a file cannot
// show are reported as unknown.
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/dtype/ternary.h"
#include "models/models.h"
#include "tasks/inspect/inspect.h"
#include "tern_tools.h"

typedef enum verdict { HOLDS, PARTS, UNKNOWN } verdict;

#define LINES_MAX 16
typedef struct line {
    const char *property, *paper;
    verdict verdict;
    char found[128];
} line;

typedef struct paper {
    tern_file *file;
    const tern_arch *arch;
    tern_config config;
    tern_graph built, lowered;
    tern_weight_kind *kinds; // by value of the graph
    // For the linears other than the output head:
    size_t n_linears, n_ternary, n_masters, n_all_three; // matrices; n_all_three: with -1, 0 and +1
    uint64_t codes[4];                                   // -1, 0, +1, and the invalid code
    uint64_t n_bytes, n_weights, n_params;
    float scale_min, scale_max;
    size_t n_biases;
    line lines[LINES_MAX];
    int n_lines;
} paper;

// ---- Looking -----------------------------------------------------------------------------------

static bool is_head(const paper *p, const tern_value *v) {
    tern_role role = tern_arch_role(p->arch, v->name);
    return role == TERN_ROLE_HEAD || role == TERN_ROLE_TABLE;
}

static tern_status count_codes(paper *p, const tern_matrix *m, const tern_ternary_kind *kind,
                               tern_error *err) {
    uint64_t n[4] = {0};
    tern_codes codes;
    TERN_TRY(tern_codes_open(&codes, m, kind, false, err));
    for (int64_t row = 0; row < m->n_rows; row++) {
        const int8_t *q = tern_codes_row(&codes, row);
        for (int64_t i = 0; i < m->n_cols; i++) n[(q[i] + 1) & 3]++;
    }
    tern_codes_close(&codes);
    tern_blob_drop(&m->data);
    for (int i = 0; i < 4; i++) p->codes[i] += n[i];
    p->n_all_three += n[0] && n[1] && n[2];
    return TERN_OK;
}

// The matrix of value w, which is multiplied directly or (rounded) after a ternarize.
static tern_status look_at_matrix(paper *p, tern_vid w, bool rounded, tern_error *err) {
    const tern_value *v = &p->built.values[w];
    tern_tensor t;
    TERN_TRY(tern_arch_weight(p->file, p->arch, v, &t, err));
    p->n_linears++;
    p->n_bytes += t.bytes;
    p->n_weights += t.ne[0] * t.ne[1];
    tern_matrix m = tern_tensor_matrix(&t);
    tern_ternary_kind kind;
    TERN_TRY(tern_ternary_find(&m, rounded, &kind, err));
    if (!kind.is_ternary) return TERN_OK;
    p->kinds[w] = TERN_WEIGHT_TERNARY;
    p->scale_min = p->n_ternary ? fminf(p->scale_min, kind.scale) : kind.scale;
    p->scale_max = p->n_ternary ? fmaxf(p->scale_max, kind.scale) : kind.scale;
    p->n_ternary++;
    p->n_masters += kind.mean > 0;
    return count_codes(p, &m, &kind, err);
}

static tern_status look_at_linears(paper *p, tern_error *err) {
    tern_graph *g = &p->built;
    p->kinds = tern_alloc_array(TERN_MEM_GRAPH, g->n_values + 1, sizeof *p->kinds);
    if (!p->kinds) return tern_fail_memory(err, g->n_values * sizeof *p->kinds);
    for (size_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].op != TERN_OP_LINEAR) continue;
        tern_vid w = g->nodes[i].in[1];
        int32_t maker = g->values[w].producer;
        bool rounded = maker >= 0 && g->nodes[maker].op == TERN_OP_TERNARIZE;
        if (rounded) w = g->nodes[maker].in[0];
        if (!is_head(p, &g->values[w])) TERN_TRY(look_at_matrix(p, w, rounded, err));
    }
    TERN_TRY(tern_graph_copy(&p->lowered, g, err));
    return tern_pass_lower(&p->lowered, p->kinds, err);
}

static void look_at_tensors(paper *p) {
    for (size_t i = 0; i < p->file->n_tensors; i++) {
        const char *name = p->file->tensors[i].name;
        size_t n = strlen(name);
        p->n_biases += n > 5 && !strcmp(name + n - 5, ".bias");
    }
    for (size_t v = 0; v < p->built.n_values; v++)
        if (p->built.values[v].kind == TERN_VALUE_WEIGHT)
            p->n_params += (uint64_t)(p->built.values[v].rows * p->built.values[v].cols);
}

static size_t count_nodes(const tern_graph *g, tern_op op) {
    size_t n = 0;
    for (size_t i = 0; i < g->n_nodes; i++) n += g->nodes[i].op == op;
    return n;
}

// ---- Judging -----------------------------------------------------------------------------------

__attribute__((format(printf, 5, 6))) static void
add(paper *p, const char *property, const char *says, verdict is, const char *format, ...) {
    line *l = &p->lines[p->n_lines++];
    va_list args;
    *l = (line){.property = property, .paper = says, .verdict = is};
    va_start(args, format);
    vsnprintf(l->found, sizeof l->found, format, args);
    va_end(args);
}

static verdict holds(bool yes) { return yes ? HOLDS : PARTS; }

static void judge_weights(paper *p) {
    const uint64_t *c = p->codes;
    double n = (double)(c[0] + c[1] + c[2] + c[3]) / 100;
    bool any = p->n_ternary > 0, all = any && p->n_ternary == p->n_linears;
    add(p, "BitLinear layers", "every linear but embedding and head", holds(all),
        "%zu of %zu linears have ternary weights", p->n_ternary, p->n_linears);
    if (any)
        add(p, "weights", "-1, 0 or +1", holds(c[3] == 0), "%.2f%% -1, %.2f%% 0, %.2f%% +1%s",
            (double)c[0] / n, (double)c[1] / n, (double)c[2] / n,
            c[3] ? ", and codes that mean nothing" : "");
    else
        add(p, "weights", "-1, 0 or +1", PARTS, "none are ternary");
    add(p, "zeros", "in every layer: a weight can switch an input off",
        holds(all && p->n_all_three == p->n_ternary), "%zu of %zu matrices have all three values",
        p->n_all_three, p->n_linears);
    if (any)
        add(p, "scale", "one for each matrix", holds(all), "%s, %.4g to %.4g",
            all ? "one for each" : "one for each ternary one", (double)p->scale_min,
            (double)p->scale_max);
    else
        add(p, "scale", "one for each matrix", PARTS, "none");
    bool masters = any && p->n_masters == p->n_ternary;
    add(p, "how rounded", "RoundClip(W / mean abs W, -1, 1)",
        masters ? HOLDS
        : any   ? UNKNOWN
                : PARTS,
        masters ? "from the master weights in the file"
        : any   ? "the file has the codes, not what they were rounded from"
                : "not rounded");
    if (any)
        add(p, "bits a weight", "1.58 = log2 3", holds(all && c[3] == 0),
            "%.3f by their entropy, %.2f as stored", tern_codes_entropy(c),
            8 * (double)p->n_bytes / (double)p->n_weights);
    else
        add(p, "bits a weight", "1.58 = log2 3", PARTS, "%.2f as stored",
            8 * (double)p->n_bytes / (double)p->n_weights);
}

static void judge_activations(paper *p) {
    size_t n = 0;
    for (size_t i = 0; i < p->lowered.n_nodes; i++) {
        const tern_node *node = &p->lowered.nodes[i];
        n += node->op == TERN_OP_LINEAR && p->lowered.values[node->in[0]].type == TERN_VALUE_I8ROWS;
    }
    add(p, "activations", "8 bits, scaled by each token's absmax", holds(n && n == p->n_linears),
        "%zu of %zu linears read int8 rows", n, p->n_linears);
}

static void judge_architecture(paper *p) {
    const tern_config *c = &p->config;
    static const char *const acts[] = {"SiLU: SwiGLU", "squared ReLU (as 2B-4T has)", "GELU",
                                       "GELU by tanh"};
    const tern_tensor *head =
        tern_arch_tensor(p->file, p->arch, c->tied_head ? "token_embd.weight" : "output.weight");
    size_t norms = count_nodes(&p->built, TERN_OP_RMS_NORM);
    size_t ropes = count_nodes(&p->built, TERN_OP_ROPE), plain = 2 * (size_t)c->n_layers + 1;
    add(p, "biases", "none", holds(p->n_biases == 0), "%zu", p->n_biases);
    add(p, "normalization", "RMSNorm", holds(norms >= plain), "%zu RMSNorms%s, eps %g", norms,
        norms > plain ? ", with sub-norms" : "", c->rms_eps);
    add(p, "feed-forward", "SwiGLU", holds(c->act == TERN_ACTIVATION_SILU), "%s", acts[c->act]);
    add(p, "positions", "rotary embedding", holds(ropes == 2 * (size_t)c->n_layers),
        "rotary on queries and keys of %zu of %lld layers, base %g", ropes / 2,
        (long long)c->n_layers, (double)c->rope.base);
    add(p, "attention", "as many key-value heads as heads", holds(c->n_heads == c->n_kv_heads),
        "%lld heads, %lld key-value heads", (long long)c->n_heads, (long long)c->n_kv_heads);
    add(p, "embedding and head", "high precision",
        holds(head && !tern_dtype_is_ternary(head->type)), "%s, %s",
        head ? tern_dtype_name(head->type) : "missing",
        c->tied_head ? "one table for both" : "two tables");
}

static void judge_size(paper *p) {
    static const double sizes[] = {0.7e9, 1.3e9, 3e9, 3.9e9};
    bool near = false;
    for (int i = 0; i < 4; i++) near |= fabs((double)p->n_params / sizes[i] - 1) < 0.12;
    add(p, "size", "700M, 1.3B, 3B, 3.9B", holds(near), "%.4g million weights",
        (double)p->n_params * 1e-6);
    add(p, "training", "RedPajama, 100B tokens, straight-through", UNKNOWN,
        "a model file does not say");
}

// ---- Printing ----------------------------------------------------------------------------------

static const char *const verdicts[] = {"yes", "no", "unknown"};

static void count_verdicts(const paper *p, int n[3]) {
    for (int i = 0; i < p->n_lines; i++) n[p->lines[i].verdict]++;
}

static void print_text(const paper *p, tern_strbuf *out) {
    int n[3] = {0};
    tern_strbuf_puts(out, "| property | arXiv:2402.17764 | this model | holds |\n"
                          "|---|---|---|---|\n");
    for (int i = 0; i < p->n_lines; i++) {
        const line *l = &p->lines[i];
        tern_strbuf_printf(out, "| %-18s | %-48s | %-57s | %-7s |\n", l->property, l->paper,
                           l->found, verdicts[l->verdict]);
    }
    count_verdicts(p, n);
    tern_strbuf_printf(out, "\n%d of %d properties hold, %d do not, %d cannot be seen in a file.\n",
                       n[HOLDS], p->n_lines, n[PARTS], n[UNKNOWN]);
}

static void print_json(const paper *p, tern_strbuf *out) {
    int n[3] = {0};
    count_verdicts(p, n);
    tern_strbuf_puts(out, "{\"path\":");
    tern_strbuf_json(out, p->file->path, strlen(p->file->path));
    tern_strbuf_printf(out,
                       ",\"paper\":\"arXiv:2402.17764\",\"yes\":%d,\"no\":%d,\"unknown\":%d,"
                       "\"properties\":[",
                       n[HOLDS], n[PARTS], n[UNKNOWN]);
    for (int i = 0; i < p->n_lines; i++) {
        const line *l = &p->lines[i];
        const char *texts[] = {"property", l->property, "paper", l->paper,
                               "found",    l->found,    "holds", verdicts[l->verdict]};
        for (int k = 0; k < 8; k += 2) {
            tern_strbuf_printf(out, "%s\"%s\":", k ? "," : i ? ",\n{" : "\n{", texts[k]);
            tern_strbuf_json(out, texts[k + 1], strlen(texts[k + 1]));
        }
        tern_strbuf_putc(out, '}');
    }
    tern_strbuf_puts(out, "]}\n");
}

static tern_status look_and_print(paper *p, tern_format format, tern_strbuf *out, tern_error *err) {
    TERN_TRY(tern_arch_read(p->file, &p->arch, &p->config, err));
    tern_graph_init(&p->built);
    TERN_TRY(tern_arch_build(&p->built, p->file, p->arch, &p->config, err));
    TERN_TRY(look_at_linears(p, err));
    look_at_tensors(p);
    judge_weights(p);
    judge_activations(p);
    judge_architecture(p);
    judge_size(p);
    if (format == TERN_FORMAT_JSON)
        print_json(p, out);
    else
        print_text(p, out);
    return out->failed ? tern_fail_memory(err, out->len) : TERN_OK;
}

tern_status tern_eval_paper(const char *path, tern_format format, tern_text_fn on_text, void *user,
                            tern_error *err) {
    tern_clear(err);
    paper p = {0};
    tern_strbuf out = {0};
    if (!path || !on_text || format > TERN_FORMAT_JSON)
        return tern_fail(
            err, TERN_ERR_ARGUMENT,
            "tern_eval_paper wants a path, a receiver, and text or json as its format");
    TERN_TRY(tern_file_open(&p.file, path, err));
    tern_status status = look_and_print(&p, format, &out, err);
    if (status != TERN_OK)
        status = tern_fail_prefix(err, status, path);
    else if (!on_text(user, out.ptr, out.len))
        status = tern_fail(err, TERN_ERR_CANCELLED, "%s: the report was stopped", path);
    tern_strbuf_free(&out);
    tern_free(p.kinds);
    tern_graph_free(&p.built);
    tern_graph_free(&p.lowered);
    tern_file_close(p.file);
    return status;
}

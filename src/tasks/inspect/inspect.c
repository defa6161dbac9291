// Counting what is in a file: weights and bytes by type, bytes read per token, ternary codes.
#include "tasks/inspect/inspect.h"

#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/dtype/ternary.h"
#include "models/models.h"
#include "tern_tools.h"

static uint64_t n_weights_of(const tern_tensor *t) { // cannot overflow: checked when it was read
    return t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
}

static void count_in(tern_tally *tally, const tern_tensor *t) {
    tally->n_tensors++;
    tally->n_weights += n_weights_of(t);
    tally->bytes += t->bytes;
}

double tern_bits_per_weight(const tern_tally *tally) {
    return tally->n_weights ? 8.0 * (double)tally->bytes / (double)tally->n_weights : 0;
}

double tern_codes_entropy(const uint64_t codes[3]) {
    double sum = (double)codes[0] + (double)codes[1] + (double)codes[2], bits = 0;
    for (int i = 0; i < 3; i++)
        if (codes[i]) bits -= (double)codes[i] / sum * log2((double)codes[i] / sum);
    return bits;
}

// A token reads every weight once, but only one row of the embedding table, unless the table is
// also the output head. For files that cannot run this is a guess.
static void guess_token_bytes(tern_inspection *in) {
    const tern_tensor *embedding = NULL;
    in->is_tied = true;
    for (size_t i = 0; i < in->file->n_tensors; i++) {
        const tern_tensor *t = &in->file->tensors[i];
        if (!strcmp(t->name, "token_embd.weight") || tern_name_ends(t->name, "embed_tokens.weight"))
            embedding = embedding ? embedding : t;
        if (!strcmp(t->name, "output.weight") || tern_name_ends(t->name, "lm_head.weight"))
            in->is_tied = false;
    }
    in->is_tied &= embedding != NULL;
    in->bytes_per_token = in->all.bytes - (embedding && !in->is_tied ? embedding->bytes : 0);
}

// ---- Ternary codes -----------------------------------------------------------------------------

// Four 2-bit codes in a byte: first counts how often each byte occurs, then the codes in it. The
// order of the codes in a byte does not matter, so one function serves all packings of two bits.
static void count_bytes(const uint8_t *p, uint64_t n, uint64_t of_byte[256]) {
    for (uint64_t i = 0; i < n; i++) of_byte[p[i]]++;
}

static bool has_code_type(tern_dtype type) {
    return tern_dtype_is_ternary(type) || tern_dtype_group_n(type);
}

static void add_byte_counts(const uint64_t of_byte[256], tern_code_counts *counts) {
    for (int byte = 0; byte < 256; byte++)
        for (int shift = 0; shift < 8; shift += 2) counts->n[byte >> shift & 3] += of_byte[byte];
}

static void count_groups(const tern_tensor *t, const void *data, tern_code_counts *counts) {
    int8_t codes[256];
    uint16_t scale;
    uint64_t n = n_weights_of(t);
    size_t group = tern_dtype_group_n(t->type);
    for (uint64_t first = 0; first < n; first += group) {
        if (!tern_dtype_decode_groups(t->type, data, first, group, codes, &scale)) return;
        for (size_t i = 0; i < group; i++) counts->n[codes[i] + 1]++;
    }
}

static tern_status count_codes(const tern_tensor *t, tern_code_counts *counts, tern_error *err) {
    uint64_t of_byte[256] = {0};
    tern_hold h;
    TERN_TRY(tern_blob_hold(&t->data, &h, err));
    const uint8_t *p = h.data;
    size_t block = tern_dtype_block_bytes(t->type);
    switch (t->type) {
    case TERN_DTYPE_I2_S: count_bytes(p, n_weights_of(t) / 4, of_byte); break;
    case TERN_DTYPE_HF_TERNARY: count_bytes(p, t->bytes, of_byte); break;
    case TERN_DTYPE_TQ2_0: // 64 bytes of codes, then a scale
        for (uint64_t at = 0; at < t->bytes; at += block) count_bytes(p + at, 64, of_byte);
        break;
    default: count_groups(t, p, counts); break;
    }
    add_byte_counts(of_byte, counts);
    tern_blob_release(&h);
    return TERN_OK;
}

// A matrix of floats that a BitNet's loading rounds to ternary.
static bool is_master(const tern_inspection *in, const tern_tensor *t) {
    const tern_arch *arch = in->arch;
    char gguf[128];
    if (!arch || !in->config.bitlinear || t->n_dims != 2 || !tern_dtype_is_float(t->type))
        return false;
    const char *name = t->name;
    if (in->file->kind == TERN_FILE_HF) {
        if (!tern_arch_name_to_gguf(arch, t->name, gguf, sizeof gguf)) return false;
        name = gguf;
    }
    tern_role role = tern_arch_role(arch, name);
    return strncmp(name, "blk.", 4) == 0 && role != TERN_ROLE_VECTOR && role != TERN_ROLE_FLOATS;
}

static tern_status count_rounded(const tern_tensor *t, tern_code_counts *counts, tern_error *err) {
    tern_matrix m = tern_tensor_matrix(t);
    tern_ternary_kind kind;
    tern_codes codes;
    tern_status status = tern_ternary_find(&m, true, &kind, err);
    if (status != TERN_OK) return tern_fail_prefix(err, status, t->name);
    TERN_TRY(tern_codes_open(&codes, &m, &kind, false, err));
    for (int64_t row = 0; row < m.n_rows; row++) {
        const int8_t *q = tern_codes_row(&codes, row);
        for (int64_t i = 0; i < m.n_cols; i++) counts->n[q[i] + 1]++;
    }
    tern_codes_close(&codes);
    return TERN_OK;
}

static tern_status count_all_codes(tern_inspection *in, tern_error *err) {
    size_t n = in->file->n_tensors;
    in->codes_of = tern_alloc_array(TERN_MEM_MISC, n, sizeof *in->codes_of);
    if (!in->codes_of) return tern_fail_memory(err, n * sizeof *in->codes_of);
    for (size_t i = 0; i < n; i++) {
        const tern_tensor *t = &in->file->tensors[i];
        bool master = is_master(in, t);
        if (!has_code_type(t->type) && !master) continue;
        if (master)
            TERN_TRY(count_rounded(t, &in->codes_of[i], err));
        else
            TERN_TRY(count_codes(t, &in->codes_of[i], err));
        in->n_masters += master;
        count_in(&in->coded, t);
        tern_blob_drop(&t->data); // read once, not needed again
        for (int k = 0; k < 4; k++) in->codes.n[k] += in->codes_of[i].n[k];
    }
    return TERN_OK;
}

// ---- All of it ---------------------------------------------------------------------------------

static tern_str architecture_of(const tern_file *f) {
    tern_str name = {NULL, 0};
    if (f->kind == TERN_FILE_GGUF) {
        tern_file_meta_str(f, "general.architecture", &name);
    } else {
        name = tern_json_str(tern_json_path(&f->config, "model_type"));
        const tern_json *classes = tern_json_path(&f->config, "architectures");
        if (!name.ptr) name = tern_json_str(tern_json_first(&f->config, classes));
    }
    return name.ptr ? name : TERN_STR("unknown");
}

static bool find_whether_it_runs(tern_inspection *in) {
    tern_status status = tern_file_need_weights(in->file, &in->refusal);
    if (status == TERN_OK) status = tern_arch_read(in->file, &in->arch, &in->config, &in->refusal);
    if (status != TERN_OK)
        in->arch = NULL;
    else
        status = tern_arch_check(in->file, in->arch, &in->config, &in->refusal);
    return status == TERN_OK;
}

// How much of a weight a decode step reads: almost nothing of a table that is only looked up; of
// the experts, those that a token is routed to.
static uint64_t bytes_read(const tern_graph *g, tern_vid v, uint64_t bytes) {
    const tern_value *x = &g->values[v];
    if (x->is_table && !x->is_matrix) return 0;
    for (size_t i = 0; x->parts > 0 && i < g->n_nodes; i++)
        if (g->nodes[i].op == TERN_OP_EXPERTS && g->nodes[i].in[2] == v)
            return bytes / (uint64_t)x->parts * (uint64_t)g->nodes[i].route.n_chosen;
    return bytes;
}

// Facts from the main graph of a model that can run.
static tern_status measure_model(tern_inspection *in, tern_error *err) {
    const tern_config *c = &in->config;
    tern_graph g;
    tern_graph_init(&g);
    tern_status status = tern_arch_build(&g, in->file, in->arch, c, err);
    in->is_tied = c->tied_head && c->pooling == TERN_POOLING_NONE;
    in->bytes_per_token = 0;
    for (size_t v = 0; status == TERN_OK && v < g.n_values; v++) {
        const tern_value *x = &g.values[v];
        tern_tensor t;
        if (x->kind != TERN_VALUE_WEIGHT) continue;
        if (tern_arch_weight(in->file, in->arch, x, &t, NULL) == TERN_OK)
            in->bytes_per_token += bytes_read(&g, (tern_vid)v, t.bytes);
    }
    if (status == TERN_OK) in->states = tern_graph_state_bytes(&g);
    tern_graph_free(&g);
    for (size_t i = 0; i < in->file->n_tensors; i++) {
        const tern_tensor *t = &in->file->tensors[i];
        if (tern_arch_ignores(in->file, in->arch, c, t->name)) count_in(&in->left_out, t);
    }
    return status;
}

tern_status tern_inspection_make(tern_inspection *in, const tern_file *file, bool histogram,
                                 tern_error *err) {
    *in = (tern_inspection){.file = file, .architecture = architecture_of(file)};
    for (size_t i = 0; i < file->n_tensors; i++) {
        const tern_tensor *t = &file->tensors[i];
        count_in(&in->all, t);
        count_in(&in->of_type[t->type], t);
        if (has_code_type(t->type)) count_in(&in->ternary, t);
        if ((size_t)t->shard + 1 > in->n_files) in->n_files = (size_t)t->shard + 1;
    }
    guess_token_bytes(in);
    if (find_whether_it_runs(in)) TERN_TRY(measure_model(in, err));
    return histogram ? count_all_codes(in, err) : TERN_OK;
}

void tern_inspection_free(tern_inspection *in) {
    tern_free(in->codes_of);
    in->codes_of = NULL;
}

static tern_status report(const tern_inspection *in, const tern_inspect_desc *desc,
                          tern_text_fn on_text, void *user, tern_error *err) {
    tern_strbuf out = {0};
    tern_status status = TERN_OK;
    if (desc->format == TERN_FORMAT_JSON)
        tern_inspection_json(in, desc->tensors, &out);
    else
        tern_inspection_text(in, desc->tensors, &out);
    if (out.failed)
        status = tern_fail_memory(err, out.len);
    else if (!on_text(user, out.ptr, out.len))
        status = tern_fail(err, TERN_ERR_CANCELLED, "%s: the report was stopped", in->file->path);
    tern_strbuf_free(&out);
    return status;
}

tern_status tern_inspect(const char *path, const tern_inspect_desc *desc, tern_text_fn on_text,
                         void *user, tern_error *err) {
    tern_clear(err);
    static const tern_inspect_desc defaults;
    tern_file *file;
    tern_inspection in = {0};
    if (!desc) desc = &defaults;
    if (!path || !on_text || desc->format > TERN_FORMAT_JSON)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "inspect wants a path, a receiver, and text or json as its format");
    TERN_TRY(tern_file_open(&file, path, err));
    tern_status status = tern_inspection_make(&in, file, desc->histogram, err);
    if (status == TERN_OK) status = report(&in, desc, on_text, user, err);
    tern_inspection_free(&in);
    tern_file_close(file);
    return status;
}

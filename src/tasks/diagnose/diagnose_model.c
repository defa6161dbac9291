// The user's model on the device: are its weights the file's, are they finite, and do hidden values
// and logits match the CPU's?
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "tasks/diagnose/diagnose.h"

#define N_TOKENS 12
#define N_STEPS  2 // further runs: of single tokens, or of texts for an encoder

// A weight that is not finite spoils everything after it; a file may have been damaged.
static tern_status count_strange(const tern_weight_source *s, uint64_t *n, tern_error *err) {
    *n = 0;
    if (!tern_dtype_is_float(s->type)) { // codes and a scale
        *n = !isfinite(s->scale);
        return TERN_OK;
    }
    size_t n_cols = (size_t)s->n_cols;
    float *row = tern_alloc_array(TERN_MEM_MISC, n_cols, sizeof *row);
    if (!row) return tern_fail_memory(err, n_cols * sizeof *row);
    tern_matrix m = tern_weight_matrix(s);
    tern_status status = TERN_OK;
    tern_rows rows;
    tern_rows_open_pieces(&rows, &m);
    for (int64_t r = 0; r < s->n_rows; r++) {
        status = tern_rows_reach(&rows, r, err);
        if (status != TERN_OK) break;
        tern_rows_decode(&rows, r, row);
        for (size_t i = 0; i < n_cols; i++) *n += !isfinite(row[i]);
    }
    tern_rows_close(&rows);
    tern_free(row);
    return status;
}

static tern_status check_numbers(tern_report *r, const tern_model *m, tern_error *err) {
    char detail[200] = "";
    uint64_t n;
    for (size_t w = 0; w < m->n_weights; w++) {
        TERN_TRY(count_strange(&m->sources[w], &n, err));
        if (n > 0 && !detail[0])
            snprintf(detail, sizeof detail, "%s has %llu numbers that are not finite",
                     m->sources[w].name, (unsigned long long)n);
    }
    tern_report_check(r, "weights are numbers", !detail[0], detail);
    return TERN_OK;
}

static tern_status check_weights(tern_report *r, const tern_model *m, tern_error *err) {
    const tern_placement *p = m->now;
    char detail[200] = "";
    uint64_t n_bytes = 0, n_tensors = 0, sum = 0;
    for (size_t w = 0; p->backend->verify && w < m->n_weights && !detail[0]; w++) {
        tern_weight_check c;
        TERN_TRY(p->backend->verify(p->device, p->weights[w], &m->sources[w], &c, err));
        n_bytes += c.n_bytes;
        n_tensors++;
        sum ^= c.found;
        if (c.n_wrong > 0 || c.found != c.wanted)
            snprintf(detail, sizeof detail,
                     "%s: %llu of %llu bytes differ, checksum %016llx instead of %016llx",
                     m->sources[w].name, (unsigned long long)c.n_wrong,
                     (unsigned long long)c.n_bytes, (unsigned long long)c.found,
                     (unsigned long long)c.wanted);
    }
    bool ok = !detail[0];
    if (ok)
        snprintf(detail, sizeof detail, "%llu tensors, %.1f MB, checksum %016llx",
                 (unsigned long long)n_tensors, (double)n_bytes * 1e-6, (unsigned long long)sum);
    if (p->backend->verify) tern_report_check(r, "weights on the device", ok, detail);
    return TERN_OK;
}

static tern_status check_values(tern_report *report, tern_model *wanted, tern_model *tested,
                                tern_error *err) {
    const tern_runner_desc desc = {.kv_type = TERN_KV_F16, .n_context = 64};
    const tern_graph *g = &tested->graphs[0].fused;
    tern_runner a = {0}, b = {0};
    tern_status status = TERN_OK;
    tern_difference d;
    double tolerance = tested->now->backend == &tern_backend_cpu ? 0 : TERN_GPU_TOLERANCE;
    int32_t ids[N_TOKENS + N_STEPS], n_vocab = wanted->info.n_vocab;
    for (uint32_t i = 0; i < N_TOKENS + N_STEPS; i++)
        ids[i] = (int32_t)((i * 2654435761u) % (uint32_t)n_vocab);
    TERN_TRY_GOTO(tern_runner_open(&a, wanted, &desc, err));
    TERN_TRY_GOTO(tern_runner_open(&b, tested, &desc, err));
    const tern_comparison pair = {g, &a, &b, tolerance};
    TERN_TRY_GOTO(tern_compare(&pair, ids, N_TOKENS, &d, err));
    const char *what = d.is_whole ? "hidden values" : "hidden values and logits";
    tern_report_difference(report, what, &d, tolerance);
    for (int32_t i = 0; i < N_STEPS; i++) {
        bool whole = d.is_whole;
        int32_t pos = whole ? 0 : N_TOKENS + i, n = whole ? N_TOKENS / 2 + i : 1;
        TERN_TRY_GOTO(tern_compare_run(&pair, ids + pos, n, pos, &d, err));
        const char *names[] = {whole ? "a shorter text" : "a single token",
                               whole ? "another text" : "another token"};
        tern_report_difference(report, names[i], &d, tolerance);
    }
fail:
    tern_runner_close(&a);
    tern_runner_close(&b);
    return status;
}

static void report_memory(tern_report *r, const tern_model *m) {
    tern_device_memory d;
    char text[100];
    m->now->backend->memory(m->now->device, &d);
    if (d.most == 0) return;
    snprintf(text, sizeof text, "%.1f MB, weights %.1f MB", (double)d.now * 1e-6,
             (double)d.weights * 1e-6);
    tern_report_fact(r, "device memory", text);
}

tern_status tern_diagnose_model(tern_report *r, const tern_diagnose_desc *desc, tern_error *err) {
    tern_model *tested = NULL, *wanted = NULL;
    tern_status status = TERN_OK;
    tern_model_desc md = {.device = desc->device,
                          .n_threads = desc->n_threads,
                          .n_batch = 32,
                          .cpu_features = desc->cpu_features,
                          .head = TERN_HEAD_FILE,
                          .webgpu = desc->webgpu};
    TERN_TRY_GOTO(tern_model_open(&tested, desc->model, &md, err));
    tern_report_fact(r, "model", tested->path);
    tern_report_fact(r, "placement", tested->now->text);
    report_memory(r, tested);
    TERN_TRY_GOTO(check_numbers(r, tested, err));
    TERN_TRY_GOTO(check_weights(r, tested, err));
    md.device = "cpu";
    md.ternary = TERN_TERNARY_2BIT;
    if (tested->now->backend == &tern_backend_cpu) md.cpu_features = "scalar";
    TERN_TRY_GOTO(tern_model_open(&wanted, desc->model, &md, err));
    status = check_values(r, wanted, tested, err);
fail:
    tern_model_close(wanted);
    tern_model_close(tested);
    return status;
}

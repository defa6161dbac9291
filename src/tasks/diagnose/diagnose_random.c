// Small models with random weights, made in memory: the real kernels in all shapes in which they
// occur, against the CPU's scalar kernels, which are the specification.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "tasks/diagnose/diagnose.h"

typedef struct shape {
    const char *name;
    bool bitlinear;
    int64_t n_embd, n_ff, n_heads, n_kv_heads, head_dim;
    bool sub_norms, tied_head;
    tern_act_kind act;
    int32_t n_tokens; // few are multiplied one by one, many together
} shape;

static const shape shapes[] = {
    {"bitnet, 3 tokens", true, 256, 640, 4, 1, 64, true, true, TERN_ACTIVATION_RELU2, 3},
    {"bitnet, 21 tokens", true, 256, 640, 4, 1, 64, true, true, TERN_ACTIVATION_RELU2, 21},
    {"bitnet, odd shapes", true, 192, 320, 6, 2, 32, false, false, TERN_ACTIVATION_SILU, 12},
    {"llama in floats", false, 128, 352, 4, 2, 32, false, false, TERN_ACTIVATION_GELU, 12},
    {"llama, gelu by tanh", false, 128, 352, 4, 2, 32, false, false, TERN_ACTIVATION_GELU_TANH, 12},
};
#define SAMPLE_TOKENS 28 // of the families' samples

// What to run, and its name.
typedef struct trial {
    const char *name;
    tern_config config;
    const tern_arch *arch; // NULL: a decoder as Llama's
    int32_t n_tokens;
} trial;

#define N_VOCAB  260 // minimum for every model
#define N_LAYERS 2
#define N_STEPS  3

// The graph and its weights, for any device.
typedef struct subject {
    tern_graph built, fused;
    tern_weight_source *sources;
    float **data; // of the sources
} subject;

// One device with the subject on it.
typedef struct rig {
    const tern_backend *backend;
    tern_device *device;
    tern_weight **weights;
    tern_plan *plan;
    tern_runner runner;
} rig;

static tern_status fill_source(subject *s, const tern_arch *arch, size_t v, tern_error *err) {
    const tern_value *value = &s->built.values[v];
    bool is_vector = !value->is_matrix && !value->is_table && value->rows == 1;
    const tern_tensor_row *row = arch ? tern_arch_row(arch, value->name) : NULL;
    bool decays = row && row->change == TERN_CHANGE_MINUS_EXP; // negative, else states would grow
    int64_t n_rows = value->rows;
    size_t n = (size_t)(n_rows * value->cols);
    float *data = s->data[v] = tern_alloc_array(TERN_MEM_MISC, n, sizeof *data);
    if (!data) return tern_fail_memory(err, n * sizeof *data);
    float scale = is_vector ? 0.25f : 1.7f / sqrtf((float)value->cols);
    for (size_t i = 0; i < n; i++) {
        uint64_t r = tern_mix64(v * 0x10001 + i);
        data[i] = ((float)(r >> 40) / 8388608.0f - 1.0f) * scale + (is_vector ? 1.0f : 0.0f);
        if (decays) data[i] *= -0.25f;
    }
    tern_weight_source *to = &s->sources[v];
    to->name = value->name;
    to->type = TERN_DTYPE_F32;
    to->bytes = n * sizeof *data;
    to->data = tern_blob_of(data, to->bytes);
    to->n_rows = n_rows;
    to->n_cols = value->cols;
    to->is_matrix = value->is_matrix;
    to->is_table = value->is_table;
    to->on_host = value->on_host;
    to->head = TERN_HEAD_FILE;
    return TERN_OK;
}

static trial trial_of(const shape *sh) {
    const tern_config c = {
        .n_vocab = N_VOCAB,
        .n_layers = N_LAYERS,
        .n_embd = sh->n_embd,
        .n_ff = sh->n_ff,
        .n_heads = sh->n_heads,
        .n_kv_heads = sh->n_kv_heads,
        .head_dim = sh->head_dim,
        .n_context = 64,
        .rms_eps = 1e-5,
        .final_rms_eps = 1e-5,
        .act = sh->act,
        .rope = {.n_rot = (int32_t)sh->head_dim, .halves = true, .base = 10000, .factor = 1},
        .tied_head = sh->tied_head,
        .sub_norms = sh->sub_norms,
        .bitlinear = sh->bitlinear,
        .bos_id = -1,
        .eos_id = -1};
    return (trial){sh->name, c, NULL, sh->n_tokens};
}

static tern_status subject_open(subject *s, const trial *t, tern_error *err) {
    tern_graph_init(&s->built);
    TERN_TRY(t->arch ? tern_arch_build_main(&s->built, t->arch, &t->config, err)
                     : tern_build_decoder(&s->built, &t->config, err));
    size_t n = s->built.n_values;
    s->sources = tern_alloc_array(TERN_MEM_MISC, n + 1, sizeof *s->sources);
    s->data = tern_alloc_array(TERN_MEM_MISC, n + 1, sizeof *s->data);
    if (!s->sources || !s->data) return tern_fail_memory(err, n * sizeof *s->sources);
    tern_model_mark_uses(&s->built, NULL, s->sources);
    for (size_t v = 0; v < n; v++)
        if (s->built.values[v].kind == TERN_VALUE_WEIGHT) TERN_TRY(fill_source(s, t->arch, v, err));
    return TERN_OK;
}

static void subject_close(subject *s) {
    for (size_t v = 0; s->data && v < s->built.n_values; v++) tern_free(s->data[v]);
    tern_free(s->data);
    tern_free(s->sources);
    tern_graph_free(&s->built);
    tern_graph_free(&s->fused);
}

static tern_status rig_bind(rig *r, const subject *s, tern_error *err) {
    // Room for the values that the passes add: they are not weights.
    r->weights = tern_alloc_array(TERN_MEM_MISC, 4 * s->built.n_values, sizeof *r->weights);
    if (!r->weights) return tern_fail_memory(err, s->built.n_values * sizeof *r->weights);
    TERN_TRY(r->backend->tune(r->device, s->sources, s->built.n_values, err));
    for (size_t v = 0; v < s->built.n_values; v++)
        if (s->built.values[v].kind == TERN_VALUE_WEIGHT)
            TERN_TRY(tern_backend_bind(r->backend, r->device, &s->sources[v], &r->weights[v], err));
    return TERN_OK;
}

static tern_status fuse(subject *s, const rig *r, tern_error *err) {
    size_t n = s->built.n_values;
    tern_weight_kind *kinds = tern_alloc_array(TERN_MEM_MISC, n + 1, sizeof *kinds);
    if (!kinds) return tern_fail_memory(err, n * sizeof *kinds);
    for (size_t v = 0; v < n; v++) {
        tern_weight_info info = {0};
        if (r->weights[v]) r->backend->weight_info(r->weights[v], &info);
        kinds[v] = info.kind;
    }
    tern_status status = tern_graph_copy(&s->fused, &s->built, err);
    if (status == TERN_OK) status = tern_pass_lower(&s->fused, kinds, err);
    if (status == TERN_OK) status = tern_pass_fuse(&s->fused, err);
    tern_free(kinds);
    return status;
}

static tern_status rig_open(rig *r, const subject *s, tern_error *err) {
    TERN_TRY(r->backend->compile(r->device, &s->fused, r->weights, 32, &r->plan, err));
    const tern_cache_desc desc = {.kv_type = TERN_KV_F32, .n_context = 64};
    return tern_runner_open_plan(&r->runner, r->backend, r->plan, &s->fused, &desc, err);
}

static void rig_close(rig *r, const subject *s) {
    tern_runner_close(&r->runner);
    if (r->plan) r->backend->plan_free(r->plan);
    for (size_t v = 0; r->weights && v < s->built.n_values; v++)
        if (r->weights[v]) r->backend->unbind(r->device, r->weights[v]);
    tern_free(r->weights);
}

static tern_status compare(tern_report *report, const trial *t, const subject *s, rig *wanted,
                           rig *tested, tern_error *err) {
    double on_gpu = t->config.bitlinear ? TERN_GPU_TOLERANCE : TERN_GPU_TOLERANCE_FLOATS;
    double tolerance = tested->backend == &tern_backend_cpu ? 0 : on_gpu;
    const tern_comparison pair = {&s->fused, &wanted->runner, &tested->runner, tolerance};
    tern_difference d, worst;
    int32_t ids[32];
    for (int32_t i = 0; i < 32; i++) ids[i] = (int32_t)(tern_mix64((uint64_t)i) % N_VOCAB);
    TERN_TRY(tern_compare(&pair, ids, t->n_tokens, &worst, err));
    for (int32_t i = 0; i < N_STEPS && !worst.name[0]; i++) {
        int32_t pos = worst.is_whole ? 0 : t->n_tokens + i, n = worst.is_whole ? 10 + i : 1;
        TERN_TRY(tern_compare_run(&pair, ids + pos, n, pos, &d, err));
        if (d.error > worst.error) worst.error = d.error;
        if (d.logits > worst.logits) worst.logits = d.logits;
        worst.same_top = worst.same_top && d.same_top;
        if (d.name[0]) memcpy(worst.name, d.name, sizeof worst.name);
    }
    tern_report_difference(report, t->name, &worst, tolerance);
    return TERN_OK;
}

static tern_status run_trial(tern_report *report, const trial *t, rig tested, tern_device *scalar,
                             tern_error *err) {
    subject s = {0};
    rig wanted = {.backend = &tern_backend_cpu, .device = scalar};
    tern_status status = TERN_OK;
    TERN_TRY_GOTO(subject_open(&s, t, err));
    TERN_TRY_GOTO(rig_bind(&wanted, &s, err));
    TERN_TRY_GOTO(rig_bind(&tested, &s, err));
    TERN_TRY_GOTO(fuse(&s, &wanted, err));
    TERN_TRY_GOTO(rig_open(&wanted, &s, err));
    TERN_TRY_GOTO(rig_open(&tested, &s, err));
    status = compare(report, t, &s, &wanted, &tested, err);
fail:
    rig_close(&tested, &s);
    rig_close(&wanted, &s);
    subject_close(&s);
    return status;
}

// Fails only if memory runs out; everything else is reported. *goes_on: the device still works.
static tern_status check_trial(tern_report *r, const trial *t, rig tested, tern_device *scalar,
                               bool *goes_on, tern_error *err) {
    tern_error why = {0};
    tern_status status = run_trial(r, t, tested, scalar, &why);
    *goes_on = status == TERN_OK || !tested.backend->is_lost(tested.device);
    if (status == TERN_ERR_MEMORY && err) *err = why;
    if (status == TERN_OK || status == TERN_ERR_MEMORY) return status;
    // A backend that lacks some ops may be right in the others.
    if (status == TERN_ERR_UNSUPPORTED)
        tern_report_fact(r, t->name, why.message);
    else
        tern_report_check(r, t->name, false, why.message);
    return TERN_OK;
}

tern_status tern_diagnose_random(tern_report *r, const tern_backend *backend, tern_device *tested,
                                 tern_error *err) {
    const tern_device_desc desc = {
        .n_threads = 1, .cpu_features = "scalar", .ternary = TERN_TERNARY_2BIT};
    const rig on = {.backend = backend, .device = tested};
    tern_device *scalar;
    size_t n;
    const tern_arch *const *list = tern_arch_list(&n);
    TERN_TRY(tern_backend_open(&tern_backend_cpu, &scalar, &desc, err));
    tern_status status = TERN_OK;
    bool goes_on = true;
    for (size_t i = 0; status == TERN_OK && goes_on && i < sizeof shapes / sizeof *shapes; i++) {
        const trial t = trial_of(&shapes[i]);
        status = check_trial(r, &t, on, scalar, &goes_on, err);
    }
    for (size_t i = 0; status == TERN_OK && goes_on && i < n; i++) {
        if (!list[i]->sample) continue;
        const trial t = {list[i]->name, *list[i]->sample, list[i], SAMPLE_TOKENS};
        status = check_trial(r, &t, on, scalar, &goes_on, err);
    }
    tern_backend_cpu.close(scalar);
    return status;
}

// Opening a model: file -> config -> graph -> weights (weights.c) -> plan. open_parts and go_on, at
// the end, call what is above in this order; binding weights and compiling plans (placement.c) need
// the device, so they are polled.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_time.h"
#include "base/use.h"
#include "runtime/runtime.h"

#define WHOLE_BATCH_MAX 8192 // the same for models that read a text as a whole

const char *tern_version(void) { return "0.1.0"; }
int tern_abi_version(void) { return TERN_ABI_VERSION; }

struct tern_opening {
    tern_use use;
    tern_model *model; // NULL: it failed
    bool is_open;      // so the opening counts as a user of it
    tern_error failure;
    bool has_weights, has_graphs; // settled; lowered and fused
    bool waits;                   // the last poll read no weights
    int n_batch;                  // as wanted; 0: what suits the device
    double began;
    tern_progress_fn on_progress;
    void *user;
};

static tern_status report(const tern_opening *o, double fraction, tern_error *err) {
    if (tern_progress(o->on_progress, o->user, "load", fraction)) return TERN_OK;
    return tern_fail(err, TERN_ERR_CANCELLED, "loading was cancelled");
}

// ---- Graphs ------------------------------------------------------------------------------------

int tern_model_graph_find(const tern_model *m, const char *name, tern_error *err) {
    tern_strbuf list = {0};
    for (int i = 0; i < m->n_graphs; i++)
        if (!name || strcmp(m->graphs[i].name, name) == 0) return i;
    for (int i = 0; i < m->n_graphs; i++)
        tern_strbuf_printf(&list, "%s%s", i ? ", " : "", m->graphs[i].name);
    tern_fail(err, TERN_ERR_ARGUMENT, "%s: the model has no graph \"%s\": it has %s", m->path, name,
              tern_strbuf_text(&list));
    tern_strbuf_free(&list);
    return -1;
}

int tern_model_flow_from(const tern_model *m, int graph, tern_vid v) {
    const tern_graph *built[TERN_GRAPHS_MAX];
    for (int i = 0; i < m->n_graphs; i++) built[i] = &m->graphs[i].built;
    return tern_arch_flow(built, graph, v);
}

bool tern_model_reads_whole(const tern_model *m) {
    const tern_graph *g = &m->graphs[0].built;
    for (size_t i = 0; i < g->n_nodes; i++)
        if (tern_node_looks_ahead(&g->nodes[i]) || g->nodes[i].op == TERN_OP_POOL) return true;
    return false;
}

// ---- Plan --------------------------------------------------------------------------------------

static tern_status run_passes_on(const tern_model *m, tern_model_graph *g, tern_error *err) {
    size_t n = g->built.n_values;
    tern_weight_kind *kinds = tern_alloc_array(TERN_MEM_GRAPH, n + 1, sizeof *kinds); // by value
    if (!kinds) return tern_fail_memory(err, n * sizeof *kinds);
    for (size_t v = 0; v < n; v++)
        if (g->weights[v] >= 0) kinds[v] = m->kinds[g->weights[v]];
    tern_status status = tern_graph_copy(&g->lowered, &g->built, err);
    if (status == TERN_OK) status = tern_pass_lower(&g->lowered, kinds, err);
    tern_free(kinds);
    TERN_TRY(status);
    TERN_TRY(tern_graph_copy(&g->fused, &g->lowered, err));
    return tern_pass_fuse(&g->fused, err);
}

static tern_status run_passes(tern_model *m, tern_error *err) {
    for (size_t w = 0; w < m->n_weights; w++) {
        m->kinds[w] = tern_placement_kind(m->now, w);
        // If the GPU is lost, the CPU must take weights in the forms that graphs are lowered for.
        m->sources[w].as_floats = m->kinds[w] == TERN_WEIGHT_FLOAT;
    }
    for (int i = 0; i < m->n_graphs; i++) TERN_TRY(run_passes_on(m, &m->graphs[i], err));
    return TERN_OK;
}

static tern_status keep(char **copy, const char *text, tern_error *err) {
    if (!text) return TERN_OK;
    *copy = tern_strdup(TERN_MEM_GRAPH, text);
    return *copy ? TERN_OK : tern_fail_memory(err, strlen(text));
}

static tern_status keep_device_desc(tern_model *m, const tern_model_desc *desc, tern_error *err) {
    static const tern_webgpu_desc defaults = {0};
    const tern_webgpu_desc *w = desc->webgpu ? desc->webgpu : &defaults;
    TERN_TRY(keep(&m->cpu_features, desc->cpu_features, err));
    TERN_TRY(keep(&m->webgpu_library, w->library, err));
    TERN_TRY(keep(&m->webgpu_state, w->state_folder, err));
    m->webgpu = *w;
    m->webgpu.library = m->webgpu_library;
    m->webgpu.state_folder = m->webgpu_state;
    m->device_desc = (tern_device_desc){.n_threads = desc->n_threads,
                                        .cpu_features = m->cpu_features,
                                        .ternary = desc->ternary,
                                        .precise = desc->precise,
                                        .products = desc->matmul_precision,
                                        .webgpu = &m->webgpu};
    return TERN_OK;
}

static tern_status place(tern_model *m, const tern_model_desc *desc, tern_error *err) {
    TERN_TRY(keep_device_desc(m, desc, err));
    return tern_placement_begin(&m->now, m, desc->device ? desc->device : "cpu", err);
}

// ---- Opening and closing -----------------------------------------------------------------------

static bool has_tokenizer(const tern_file *file) {
    if (file->kind == TERN_FILE_HF)
        return file->tokenizer_json.len > 0 || file->tokenizer_model.len > 0;
    return tern_file_meta(file, "tokenizer.ggml.tokens") != NULL;
}

// A model without a tokenizer is useful to callers with token ids; functions that need text fail.
// The error of an unusable template is kept, since plain generation does not need it.
static tern_status open_text(tern_model *m, const tern_model_desc *desc, tern_error *err) {
    if (!has_tokenizer(m->file)) return TERN_OK;
    TERN_TRY(tern_tokenizer_open(&m->tokenizer, m->file, err));
    if (m->config.appends_eos) tern_tokenizer_append_eos(m->tokenizer);
    if (m->config.n_segments > 1) m->config.separator_id = tern_tokenizer_eos(m->tokenizer);
    if (!desc->vocab_only && tern_tokenizer_n_vocab(m->tokenizer) > m->config.n_vocab)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "the tokenizer has %d tokens, but the embedding table %lld rows",
                         (int)tern_tokenizer_n_vocab(m->tokenizer), (long long)m->config.n_vocab);
    tern_status status = tern_template_for_model(&m->chat_template, m->file, m->tokenizer,
                                                 desc->chat_template, &m->template_error);
    if (status == TERN_OK) tern_template_set_thinking(m->chat_template, desc->thinking);
    if (status == TERN_OK || (status != TERN_ERR_MEMORY && !desc->chat_template)) return TERN_OK;
    if (err) *err = m->template_error;
    return status;
}

// Each with gains of its own, which sessions choose; they run the main graph.
static tern_status add_apart(tern_model *m, tern_low_rank *pass, tern_error *err) {
    for (pass->n_gains = m->n_loras; pass->gain < m->n_loras; pass->gain++)
        TERN_TRY(tern_pass_low_rank(&m->graphs[0].built, pass, err));
    m->lora_gains = tern_graph_find(&m->graphs[0].built, TERN_LORA_GAINS);
    for (size_t i = 0; i < m->adapters.n; i++) {
        char name[sizeof m->adapters.list->name + 8];
        snprintf(name, sizeof name, "%s.lora_a", m->adapters.list[i].name);
        if (tern_graph_find(&m->graphs[0].built, name) < 0)
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "an adapter of %s, which sessions cannot choose",
                             m->adapters.list[i].weight);
    }
    return TERN_OK;
}

// Whether sessions choose; vectors are made without any.
static void note_scales(tern_model *m, const tern_model_desc *desc) {
    if (!desc->loras_by_session || m->config.pooling != TERN_POOLING_NONE) return;
    m->adapters.apart = true;
    m->n_loras = (int32_t)desc->n_loras;
    for (size_t i = 0; i < desc->n_loras; i++) {
        const tern_lora *lora = &desc->loras[i];
        m->lora_scales[i] = lora->off ? 0 : lora->scale != 0 ? lora->scale : 1;
    }
}

static tern_status add_adapters(tern_model *m, const tern_model_desc *desc, tern_error *err) {
    note_scales(m, desc);
    for (size_t i = 0; i < desc->n_loras; i++)
        TERN_TRY(
            tern_adapters_add(&m->adapters, &desc->loras[i], m->file, m->arch, &m->config, err));
    TERN_TRY(tern_adapters_find_factors(&m->adapters, m->file, m->arch, &m->config, err));
    tern_low_rank pass = {.rank_of = tern_adapters_rank,
                          .has_factors = tern_adapters_has_factors,
                          .ctx = &m->adapters};
    if (m->n_loras) return add_apart(m, &pass, err);
    for (int i = 0; m->adapters.n > 0 && i < m->n_graphs; i++)
        TERN_TRY(tern_pass_low_rank(&m->graphs[i].built, &pass, err));
    return TERN_OK;
}

static tern_status build_graphs(tern_model *m, tern_error *err) {
    const tern_graph_row *rows[TERN_GRAPHS_MAX];
    tern_graph built[TERN_GRAPHS_MAX];
    tern_status status =
        tern_arch_build_all(built, &m->n_graphs, m->file, m->arch, &m->config, err);
    tern_arch_graphs(m->arch, &m->config, rows);
    for (int i = 0; i < m->n_graphs; i++) {
        m->graphs[i].built = built[i];
        m->graphs[i].name = rows[i]->name;
        m->graphs[i].n_rows = rows[i]->n_rows;
    }
    return status;
}

static tern_status refuse_unread(const tern_model *m, tern_error *err) {
    const tern_graph *built[TERN_GRAPHS_MAX];
    for (int i = 0; i < m->n_graphs; i++) built[i] = &m->graphs[i].built;
    return tern_arch_refuse_unread(m->file, m->arch, &m->config, built, m->n_graphs, err);
}

// Tokens computed at once. A text that is read as a whole must fit.
static int32_t choose_batch(const tern_model *m, int wanted, int32_t usual) {
    int64_t n = m->config.n_context < WHOLE_BATCH_MAX ? m->config.n_context : WHOLE_BATCH_MAX;
    if (m->config.n_batch_most > 0) return (int32_t)m->config.n_batch_most;
    if (wanted) return wanted;
    return tern_model_reads_whole(m) && n > usual ? (int32_t)n : usual;
}

// In an embedding decoder, the last token is the end token.
static void pool_as(tern_config *c, tern_pooling pooling) {
    c->pooling = pooling;
    c->appends_eos = pooling == TERN_POOLING_LAST;
}

static tern_status open_file(tern_model *m, const tern_model_desc *desc, tern_error *err) {
    if (desc->bytes.n_bytes) return tern_file_open_bytes(&m->file, m->path, &desc->bytes, err);
    return tern_file_open(&m->file, m->path, err);
}

// All steps that need no device. desc is not needed afterwards.
static tern_status open_parts(tern_model *m, const tern_model_desc *desc, tern_error *err) {
    TERN_TRY(open_file(m, desc, err)); // its messages name the file
    tern_status status = TERN_OK;
    TERN_TRY_GOTO(tern_model_read_keys(m, err));
    if (desc->vocab_only) {
        if (has_tokenizer(m->file))
            TERN_TRY_GOTO(open_text(m, desc, err));
        else
            TERN_TRY_GOTO(tern_fail(err, TERN_ERR_FORMAT, "there is no tokenizer in it"));
        return TERN_OK;
    }
    TERN_TRY_GOTO(tern_file_need_weights(m->file, err));
    TERN_TRY_GOTO(tern_arch_read(m->file, &m->arch, &m->config, err));
    const tern_tower_source tower = {.model = desc->bytes.n_bytes ? NULL : m->path,
                                     .mmproj = desc->mmproj,
                                     .bytes = &desc->mmproj_bytes};
    TERN_TRY_GOTO(tern_tower_add(m->file, &tower, &m->arch, &m->config, err));
    if (desc->pooling != TERN_POOLING_NONE) pool_as(&m->config, desc->pooling);
    TERN_TRY_GOTO(open_text(m, desc, err));
    TERN_TRY_GOTO(build_graphs(m, err));
    m->n_batch = choose_batch(m, desc->n_batch, TERN_BATCH);
    m->piece_work = TERN_PIECE_WORK;
    TERN_TRY_GOTO(tern_model_read_embedding(m, err));
    TERN_TRY_GOTO(add_adapters(m, desc, err));
    TERN_TRY_GOTO(tern_model_find_weights(m, desc->head, err));
    TERN_TRY_GOTO(refuse_unread(m, err));
    TERN_TRY_GOTO(place(m, desc, err));
    return TERN_OK;
fail:
    if (status == TERN_ERR_IO) return status; // a failed read names the file
    return tern_fail_prefix(err, status, m->path);
}

static tern_status begin(tern_opening *o, const char *path, const tern_model_desc *desc,
                         tern_error *err) {
    tern_model *m = tern_alloc(TERN_MEM_GRAPH, sizeof *m);
    if (!m) return tern_fail_memory(err, sizeof *m);
    atomic_init(&m->n_users, 1);
    tern_mutex_init(&m->lock);
    tern_mutex_init(&m->vocab_lock);
    tern_mutex_init(&m->images_lock);
    o->model = m;
    m->on_release = desc->on_release;
    m->on_log = desc->on_log;
    m->user = desc->user;
    m->vocab_only = desc->vocab_only;
    if (!path) path = "memory";
    m->path = tern_strdup(TERN_MEM_GRAPH, path);
    if (!m->path) return tern_fail_memory(err, strlen(path));
    TERN_TRY(report(o, 0, err));
    TERN_TRY(open_parts(m, desc, err));
    return tern_model_fill_names(m, err);
}

static tern_status check_desc(const tern_model_desc *desc, tern_error *err) {
    TERN_NEED_ARRAY(desc->loras, desc->n_loras);
    if (desc->loras_by_session && desc->n_loras > TERN_LORAS_MAX)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "%zu adapters that sessions choose from: at most %d", desc->n_loras,
                         TERN_LORAS_MAX);
    for (size_t i = 0; i < desc->n_loras; i++) {
        const tern_lora *lora = &desc->loras[i];
        if (!lora->bytes.n_bytes) TERN_NEED(lora->path);
        if (!isfinite(lora->scale))
            return tern_fail(err, TERN_ERR_ARGUMENT, "%s: a scale of %g makes no sense",
                             lora->path ? lora->path : "memory", (double)lora->scale);
    }
    TERN_NEED_ARRAY(desc->bytes.bytes, desc->bytes.n_bytes);
    TERN_NEED_ARRAY(desc->mmproj_bytes.bytes, desc->mmproj_bytes.n_bytes);
    TERN_NEED_ENUM(desc->pooling, TERN_POOLING_FIRST);
    TERN_NEED_ENUM(desc->ternary, TERN_TERNARY_1_6BIT);
#if !defined(TERN_NO_MATRIX) // browsers leave it zero
    TERN_NEED_ENUM(desc->matmul_precision, TERN_MATMUL_HALF);
#endif
    TERN_NEED_ENUM(desc->head, TERN_HEAD_Q4_0);
    TERN_NEED_ENUM(desc->thinking, TERN_THINKING_OFF);
    if (desc->n_threads < 0)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%d threads: expected 1 or more, or 0",
                         desc->n_threads);
    if (desc->n_batch < 0 || desc->n_batch > 65536)
        return tern_fail(err, TERN_ERR_ARGUMENT, "batch of %d tokens: expected 1 to 65536",
                         desc->n_batch);
    return TERN_OK;
}

// Before there is a model that releases the bytes itself.
static tern_status release(const tern_model_desc *desc, tern_status status) {
    if (desc && desc->on_release) desc->on_release(desc->user);
    return status;
}

static tern_status new_opening(tern_opening **out, const tern_model_desc *desc, tern_error *err) {
    TERN_TRY(check_desc(desc, err));
    tern_opening *o = tern_alloc(TERN_MEM_GRAPH, sizeof *o);
    if (!o) return tern_fail_memory(err, sizeof *o);
    o->began = tern_seconds();
    o->n_batch = desc->n_batch;
    o->on_progress = desc->on_progress;
    o->user = desc->user;
    *out = o;
    return TERN_OK;
}

tern_status tern_model_open_begin(tern_opening **out, const char *path, const tern_model_desc *desc,
                                  tern_error *err) {
    tern_clear(err);
    static const tern_model_desc defaults = {0};
    tern_opening *o = NULL;
    if (out) *out = NULL;
    if (!desc) desc = &defaults;
    if (!out || (!path && !desc->bytes.n_bytes))
        return release(desc, tern_fail(err, TERN_ERR_ARGUMENT, "%s: %s is NULL", __func__,
                                       out ? "path" : "out"));
    tern_status status = new_opening(&o, desc, err);
    if (status == TERN_OK) status = begin(o, path, desc, err);
    if (status == TERN_OK) {
        *out = o;
        return TERN_OK;
    }
    if (!o || !o->model) release(desc, status);
    tern_opening_close(o);
    return status;
}

// If the choice is automatic, a GPU that cannot take the model is ignored.
static tern_status settle(tern_opening *o, tern_status status, tern_error *err) {
    tern_error local = {0};
    if (status == TERN_OK) return TERN_OK;
    status = tern_placement_go_to_cpu(&o->model->now, o->model, status, err ? err : &local);
    if (status == TERN_OK) o->has_weights = false;
    return status;
}

// Weights until their types are known, graphs by these, plans, and then, while a device compiles
// its kernels, what is left of the weights.
static tern_status take_step(tern_opening *o, bool *done, tern_error *err) {
    tern_model *m = o->model;
    if (o->has_weights) return tern_placement_finish(m->now, m, done, err);
    TERN_TRY(tern_placement_poll(m->now, m, &o->has_weights, err));
    if (o->has_weights)
        m->n_batch = choose_batch(m, o->n_batch, m->now->backend->n_batch(m->now->device));
    return TERN_OK;
}

static tern_status go_on(tern_opening *o, bool *done, tern_error *err) {
    tern_model *m = o->model;
    *done = !m->now;
    if (*done) return TERN_OK;
    if (o->has_weights && !o->has_graphs) {
        TERN_TRY(run_passes(m, err));
        o->has_graphs = true;
    }
    const tern_placement *at = m->now;
    uint64_t before = m->now->bytes_bound;
    tern_status status = settle(o, take_step(o, done, err), err);
    if (status != TERN_OK || !o->has_weights) *done = false; // it may begin again on the CPU
    if (m->now != at && status == TERN_OK) return TERN_OK;
    if (status == TERN_ERR_IO) return status; // it names the file
    if (status != TERN_OK) return tern_fail_prefix(err, status, m->path);
    o->waits = m->now->bytes_bound == before;
    if (o->waits) return TERN_OK;
    return report(o, (double)m->now->bytes_bound / (double)m->file->tensor_bytes, err);
}

static void log_opened(const tern_model *m) {
    tern_model_info info;
    tern_model_get_info(m, &info);
    tern_model_log(m, TERN_LOG_INFO, "%s: %s, %llu weights, on %s: opened in %.2f s", info.path,
                   info.architecture, (unsigned long long)info.n_params,
                   info.device ? info.device : "no device", info.load_seconds);
    if (info.template_guess) tern_model_log(m, TERN_LOG_WARN, "%s", info.template_guess);
    if (m->template_error.status != TERN_OK)
        tern_model_log(m, TERN_LOG_WARN, "its chat template cannot be used: %s",
                       m->template_error.message);
    if (m->damaged)
        tern_model_log(m, TERN_LOG_WARN, "tensor %s has numbers that are not (NaN or infinite)",
                       m->damaged);
}

static tern_status poll(tern_opening *o, bool *done, tern_model **model, tern_error *err) {
    tern_model *m = o->model;
    if (!m) {
        if (err) *err = o->failure;
        return o->failure.status;
    }
    tern_status status = o->is_open ? TERN_OK : tern_check_cancelled("loading", &o->failure);
    if (status == TERN_OK && !o->is_open) status = go_on(o, done, &o->failure);
    if (status == TERN_OK && o->use.is_closed)
        status = tern_fail(&o->failure, TERN_ERR_CANCELLED, "the opening was closed");
    if (status == TERN_OK && !o->is_open && !*done) return TERN_OK;
    if (status != TERN_OK) {
        *done = false;
        o->model = NULL;
        tern_model_close(m);
        if (err) *err = o->failure;
        return status;
    }
    if (!o->is_open) {
        tern_model_fill_info(m);
        m->info.load_seconds = tern_seconds() - o->began;
        log_opened(m);
        tern_model_hold(m);
        o->is_open = true;
    }
    *done = true;
    *model = m;
    return TERN_OK;
}

tern_status tern_model_open_poll(tern_opening *o, bool *done, tern_model **model, tern_error *err) {
    tern_clear(err);
    TERN_NEED(o);
    TERN_NEED(done);
    *done = false;
    TERN_NEED(model);
    *model = NULL;
    TERN_TRY(tern_use_begin(&o->use, "the opening", err));
    tern_status status = poll(o, done, model, err);
    if (tern_use_end(&o->use)) tern_opening_close(o);
    return status;
}

void tern_opening_close(tern_opening *o) {
    if (!o || tern_use_waits(&o->use)) return;
    if (o->is_open)
        tern_model_let_go(o->model);
    else
        tern_model_close(o->model);
    tern_free(o);
}

// Between polls, for a device: the threads that compile its kernels need the processor more.
#define WAIT_SECONDS 1e-4
tern_status tern_model_open(tern_model **out, const char *path, const tern_model_desc *desc,
                            tern_error *err) {
    tern_clear(err);
    tern_opening *o;
    if (!out) return release(desc, tern_fail(err, TERN_ERR_ARGUMENT, "%s: out is NULL", __func__));
    *out = NULL;
    TERN_TRY(tern_model_open_begin(&o, path, desc, err));
    tern_status status = TERN_OK;
    for (bool done = false; status == TERN_OK && !done;) {
        status = tern_model_open_poll(o, &done, out, err);
        if (status == TERN_OK && !done && o->waits) tern_sleep(WAIT_SECONDS);
    }
    tern_opening_close(o);
    return status;
}

tern_status tern_model_take_spare(tern_model *m, const tern_spare_kind *kind, void *out,
                                  tern_error *err) {
    tern_mutex_lock(&m->lock);
    tern_spare **at = &m->spares;
    while (*at && (*at)->kind != kind) at = &(*at)->next;
    tern_spare *s = *at;
    if (s) *at = s->next;
    tern_mutex_unlock(&m->lock);
    if (!s) s = tern_alloc(TERN_MEM_SESSION, kind->bytes);
    if (!s) return tern_fail_memory(err, kind->bytes);
    s->kind = kind;
    *(tern_spare **)out = s;
    return TERN_OK;
}

void tern_model_give_spare(tern_model *m, tern_spare *s) {
    if (!s) return;
    tern_mutex_lock(&m->lock);
    s->next = m->spares;
    m->spares = s;
    tern_mutex_unlock(&m->lock);
}

static void free_model(tern_model *m) {
    for (tern_spare *s = m->spares, *next; s; s = next) {
        next = s->next;
        s->kind->free(s);
    }
    tern_placement_close(m->next, m);
    for (tern_placement *p = m->now, *before; p; p = before) {
        before = p->before;
        tern_placement_close(p, m);
    }
    tern_adapters_free(&m->adapters);
    for (size_t w = 0; w < m->n_weights; w++) tern_free(m->numbers[w]);
    tern_free(m->numbers);
    tern_free(m->sources);
    tern_free(m->kinds);
    tern_free(m->cpu_features);
    tern_free(m->webgpu_library);
    tern_free(m->webgpu_state);
    for (int i = 0; i < m->n_graphs; i++) {
        tern_model_graph *g = &m->graphs[i];
        tern_graph_free(&g->built);
        tern_graph_free(&g->lowered);
        tern_graph_free(&g->fused);
        tern_free(g->weights);
    }
    tern_template_free(m->chat_template);
    tern_tokenizer_free(m->tokenizer);
    tern_model_free_keys(m);
    tern_file_close(m->file);
    if (m->on_release) m->on_release(m->user);
    tern_free(m->path);
    tern_free(m->name);
    tern_free(m->architecture);
    tern_model_free_embedding(m);
    tern_vocab_tree_close(m->vocab_tree);
    tern_model_free_images(m);
    tern_mutex_free(&m->images_lock);
    tern_mutex_free(&m->vocab_lock);
    tern_mutex_free(&m->lock);
    tern_free(m);
}

void tern_model_hold(const tern_model *model) {
    tern_model *m = (tern_model *)(uintptr_t)model; // the count is not part of its value
    atomic_fetch_add_explicit(&m->n_users, 1, memory_order_relaxed);
}

void tern_model_let_go(const tern_model *model) {
    tern_model *m = (tern_model *)(uintptr_t)model;
    if (m && atomic_fetch_sub_explicit(&m->n_users, 1, memory_order_acq_rel) == 1) free_model(m);
}

void tern_model_close(tern_model *m) {
    if (m && !atomic_exchange(&m->is_closed, true)) tern_model_let_go(m);
}

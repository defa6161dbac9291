// Opens and describes models.
#include "web.h"

#include <string.h>
#include "base/alloc.h"
#include "web_args.h"
#include "tern_embed.h"
#include "tern_tools.h"

WEB_EXPORT(web_open) int32_t web_open(const char *json, uint32_t n);
WEB_EXPORT(web_open_poll) int32_t web_open_poll(int32_t id);
WEB_EXPORT(web_open_cancel) void web_open_cancel(int32_t id);
WEB_EXPORT(web_model_info) int32_t web_model_info(int32_t id);
WEB_EXPORT(web_metadata) int32_t web_metadata(int32_t id, const char *json, uint32_t n);
WEB_EXPORT(web_model_close) int32_t web_model_close(int32_t id);
WEB_EXPORT(web_memory) int32_t web_memory(void);

WEB_IMPORT(web, progress)
int32_t js_progress(int32_t opening, double fraction, const char *phase, uint32_t n);
WEB_IMPORT(web, log) void js_log(int32_t level, const char *line, uint32_t n);

static web_model *models;
static int32_t last_model;

web_model *web_model_find(int32_t id, tern_error *err) {
    web_model *m = models;
    while (m && m->id != id) m = m->next;
    if (!m) tern_fail(err, TERN_ERR_ARGUMENT, "there is no model %d", id);
    return m;
}

web_model *web_model_first(void) { return models; }

web_model *web_model_add(tern_model *model) {
    web_model *m = tern_alloc(TERN_MEM_MISC, sizeof *m);
    if (!m) return NULL;
    *m = (web_model){.id = ++last_model, .model = model, .next = models};
    models = m;
    return m;
}

// ---- Opening ----------------------------------------------------------------------------------

typedef struct opening {
    int32_t id;
    char *json; // args point into it
    web_args args;
    const char *path;
    tern_model_desc desc;
    tern_webgpu_desc webgpu;
    tern_lora *loras;
    tern_opening *begun;
    struct opening *next;
} opening;
static opening *openings;
static int32_t last_opening;

static bool on_progress(void *user, const char *phase, double fraction) {
    const opening *o = user;
    return js_progress(o->id, fraction, phase, (uint32_t)strlen(phase)) != 0;
}

static void on_log(void *user, tern_log_level level, const char *line) {
    (void)user; // the opening, which is over
    js_log((int32_t)level, line, (uint32_t)strlen(line));
}

static void opening_free(opening *o) {
    tern_opening_close(o->begun);
    web_args_free(&o->args);
    tern_free(o->loras);
    tern_free(o->json);
    tern_free(o);
}

static tern_status read_loras(opening *o, const tern_json *array, tern_error *err) {
    if (!array) return TERN_OK;
    o->loras = tern_alloc_array(TERN_MEM_MISC, array->n, sizeof *o->loras);
    if (!o->loras) return tern_fail_memory(err, array->n * sizeof *o->loras);
    for (const tern_json *item = tern_json_first(&o->args.doc, array); item;
         item = tern_json_next(&o->args.doc, array, item)) {
        tern_lora *lora = &o->loras[o->desc.n_loras++];
        lora->scale = 1;
        const web_field fields[] = {{"path", WEB_STRING, &lora->path, 0, 0, NULL},
                                    {"scale", WEB_NUMBER, &lora->scale, -1e6, 1e6, NULL}};
        TERN_TRY(web_args_object(&o->args, "loras", item, fields, 2, err));
        if (!lora->path) return tern_fail(err, TERN_ERR_ARGUMENT, "loras: \"path\" is missing");
        lora->off = lora->scale == 0; // to the library 0 is 1
    }
    o->desc.loras = o->loras;
    return TERN_OK;
}

static tern_status opening_read(opening *o, size_t n, tern_error *err) {
    static const char *const devices[] = {"cpu", "webgpu", "auto"};
    const tern_json *loras = NULL;
    int32_t device = 0, head = 0, ternary = 0, thinking = 0, pooling = 0;
    bool matrix = true;
    const web_field fields[] = {
        {"path", WEB_STRING, &o->path, 0, 0, NULL},
        {"device", WEB_CHOICE, &device, 0, 0, "cpu webgpu auto"},
        {"n_threads", WEB_INT, &o->desc.n_threads, 0, 1024, NULL},
        {"n_batch", WEB_INT, &o->desc.n_batch, 0, 1 << 20, NULL},
        {"ternary", WEB_CHOICE, &ternary, 0, 0, "auto 2bit 1.6bit"},
        {"head", WEB_CHOICE, &head, 0, 0, "auto file exact q8_0 q6_k q4_0"},
        {"thinking", WEB_CHOICE, &thinking, 0, 0, "auto on off"},
        {"chat_template", WEB_STRING, &o->desc.chat_template, 0, 0, NULL},
        {"vocab_only", WEB_BOOL, &o->desc.vocab_only, 0, 0, NULL},
        {"pooling", WEB_CHOICE, &pooling, 0, 0, "auto mean last cls"},
        {"cpu_features", WEB_STRING, &o->desc.cpu_features, 0, 0, NULL},
        {"loras", WEB_ARRAY, &loras, 0, 0, NULL},
        {"loras_by_session", WEB_BOOL, &o->desc.loras_by_session, 0, 0, NULL},
        {"webgpu_group", WEB_INT, &o->webgpu.group, -1, 1 << 20, NULL},
        {"webgpu_matrix", WEB_BOOL, &matrix, 0, 0, NULL},
        {"webgpu_state", WEB_STRING, &o->webgpu.state_folder, 0, 0, NULL},
    };
    TERN_TRY(
        web_args_read(&o->args, "open", o->json, n, fields, sizeof fields / sizeof *fields, err));
    if (!o->path) return tern_fail(err, TERN_ERR_ARGUMENT, "open: \"path\" is missing");
    TERN_TRY(read_loras(o, loras, err));
    o->desc.device = devices[device];
    o->desc.head = (tern_head_mode)head;
    o->desc.ternary = (tern_ternary_layout)ternary;
    o->desc.thinking = (tern_thinking)thinking;
    o->desc.pooling = (tern_pooling)pooling;
    o->webgpu.no_matrix = !matrix;
    o->webgpu.symbol = web_gpu_symbol;
    o->desc.webgpu = &o->webgpu;
    o->desc.on_progress = on_progress;
    o->desc.on_log = on_log;
    o->desc.user = o;
    return TERN_OK;
}

int32_t web_open(const char *json, uint32_t n) {
    tern_error err = {0};
    web_gpu_enter(false);
    opening *o = tern_alloc(TERN_MEM_MISC, sizeof *o);
    if (o) o->json = tern_strndup(TERN_MEM_MISC, json, n);
    tern_status status = o && o->json ? opening_read(o, n, &err) : tern_fail_memory(&err, n);
    if (o) o->id = ++last_opening;
    if (status == TERN_OK) status = tern_model_open_begin(&o->begun, o->path, &o->desc, &err);
    if (status != TERN_OK) {
        if (o) opening_free(o);
        return web_fail(&err);
    }
    o->next = openings;
    openings = o;
    return o->id;
}

static opening *opening_find(int32_t id) {
    opening *o = openings;
    while (o && o->id != id) o = o->next;
    return o;
}

static void opening_end(opening *o) {
    opening **at = &openings;
    while (*at != o) at = &(*at)->next;
    *at = o->next;
    opening_free(o);
}

// 0: not yet, > 0: the model's id. A failure ends the opening.
int32_t web_open_poll(int32_t id) {
    tern_error err = {0};
    tern_model *model = NULL;
    bool done = false;
    web_gpu_enter(false);
    opening *o = opening_find(id);
    if (!o) {
        tern_fail(&err, TERN_ERR_ARGUMENT, "there is no opening %d", id);
        return web_fail(&err);
    }
    tern_status status = tern_model_open_poll(o->begun, &done, &model, &err);
    if (status == TERN_OK && !done) return 0;
    opening_end(o);
    web_model *m = status == TERN_OK ? web_model_add(model) : NULL;
    if (m) return m->id;
    if (status == TERN_OK) tern_fail_memory(&err, sizeof *m);
    tern_model_close(model);
    return web_fail(&err);
}

void web_open_cancel(int32_t id) {
    web_gpu_enter(false);
    opening *o = opening_find(id);
    if (o) opening_end(o);
}

int32_t web_model_close(int32_t id) {
    tern_error err = {0};
    web_model *m = web_model_find(id, &err);
    if (!m) return web_fail(&err);
    web_model **at = &models;
    while (*at != m) at = &(*at)->next;
    *at = m->next;
    web_gpu_enter(false);
    web_sessions_close(m);
    web_grammars_close(m);
    web_embeddings_close(m);
    web_images_close(m);
    web_transcribers_close(m);
    web_speeches_close(m);
    tern_model_close(m->model);
    tern_free(m);
    return 0;
}

// ---- What a model is --------------------------------------------------------------------------

static void put_text(tern_strbuf *b, const char *name, const char *text) {
    tern_strbuf_printf(b, ",\"%s\":", name);
    if (text)
        tern_strbuf_json(b, text, strlen(text));
    else
        tern_strbuf_puts(b, "null");
}
static void put_count(tern_strbuf *b, const char *name, uint64_t n) {
    tern_strbuf_printf(b, ",\"%s\":%llu", name, (unsigned long long)n);
}
static void put_default(tern_strbuf *b, const char *name, float v) { // negative: the file has none
    tern_strbuf_printf(b, ",\"%s\":", name);
    if (v < 0)
        tern_strbuf_puts(b, "null");
    else
        tern_strbuf_json_float(b, v);
}

static void put_embedding(tern_strbuf *b, const tern_model *model) {
    tern_embedding_info i;
    tern_embedding_get_info(model, &i);
    tern_strbuf_printf(b, ",\"embedding\":{\"n_dims\":%d,\"max_length\":%d", (int)i.n_dims,
                       (int)i.max_length);
    tern_strbuf_printf(b, ",\"n_labels\":%d", (int)i.n_labels);
    put_text(b, "default_prompt", i.default_prompt);
    tern_strbuf_puts(b, ",\"prompts\":[");
    for (size_t k = 0; k < i.n_prompts; k++) {
        tern_strbuf_puts(b, k ? "," : "");
        tern_strbuf_json(b, i.prompts[k].name, strlen(i.prompts[k].name));
    }
    tern_strbuf_puts(b, "]}");
}

// The members of tern_media_info, all of them.
static void put_infill(tern_strbuf *b, const tern_model *model) {
    tern_infill_info i;
    tern_model_get_infill_info(model, &i);
    tern_strbuf_printf(b,
                       ",\"infill\":{\"prefix_token\":%d,\"suffix_token\":%d,\"middle_token\":%d",
                       (int)i.prefix_token, (int)i.suffix_token, (int)i.middle_token);
    tern_strbuf_printf(b, ",\"pad_token\":%d,\"repository_token\":%d,\"separator_token\":%d",
                       (int)i.pad_token, (int)i.repository_token, (int)i.separator_token);
    tern_strbuf_printf(b, ",\"fills_in\":%s,\"suffix_first\":%s}", i.fills_in ? "true" : "false",
                       i.suffix_first ? "true" : "false");
}

static void put_media(tern_strbuf *b, const tern_model *model) {
    tern_media_info i;
    tern_model_get_media_info(model, &i);
#define INT(name)                                                                                  \
    { #name, i.name }
    const struct {
        const char *name;
        int32_t value;
    } numbers[] = {INT(image_width), INT(image_height), INT(patch),       INT(n_labels),
                   INT(n_dims),      INT(image_token),  INT(begin_token), INT(end_token),
                   INT(audio_rate),  INT(n_speaker),    INT(codec_rate),  INT(codec_frame),
                   INT(n_codes),     INT(n_values)};
#undef INT
    const struct {
        const char *name;
        bool value;
    } flags[] = {{"has_vision", i.has_vision},
                 {"is_asr", i.is_asr},
                 {"is_tts", i.is_tts},
                 {"is_codec", i.is_codec}};
    tern_strbuf_puts(b, ",\"media\":{");
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
        tern_strbuf_printf(b, "\"%s\":%d,", numbers[k].name, (int)numbers[k].value);
    for (size_t k = 0; k < sizeof flags / sizeof *flags; k++)
        tern_strbuf_printf(b, "%s\"%s\":%s", k ? "," : "", flags[k].name,
                           flags[k].value ? "true" : "false");
    tern_strbuf_puts(b, "}");
}

int32_t web_model_info(int32_t id) {
    tern_error err = {0};
    const web_model *m = web_model_find(id, &err);
    if (!m) return web_fail(&err);
    tern_model_info i;
    tern_model_get_info(m->model, &i);
    tern_strbuf *b = web_result_begin();
    tern_strbuf_printf(b, "{\"n_vocab\":%d,\"n_layers\":%d,\"n_embd\":%d,\"n_context_train\":%d",
                       i.n_vocab, i.n_layers, i.n_embd, i.n_context_train);
    tern_strbuf_printf(b, ",\"n_threads\":%d,\"n_batch\":%d,\"bos_id\":%d,\"eos_id\":%d",
                       i.n_threads, i.n_batch, i.bos_id, i.eos_id);
    tern_strbuf_printf(b, ",\"adds_bos\":%s", i.adds_bos ? "true" : "false");
    put_text(b, "path", i.path);
    put_text(b, "architecture", i.architecture);
    put_text(b, "name", i.name);
    put_text(b, "device", i.device);
    put_text(b, "ternary_layout", i.ternary_layout);
    put_text(b, "head", i.head);
    put_text(b, "template_guess", i.template_guess);
    put_count(b, "n_params", i.n_params);
    put_count(b, "file_bytes", i.file_bytes);
    put_count(b, "bytes_per_token", i.bytes_per_token);
    put_count(b, "bytes_per_token_logits", i.bytes_per_token_logits);
    put_count(b, "kv_bytes_per_token", i.kv_bytes_per_token);
    put_count(b, "sequence_bytes", i.sequence_bytes);
    tern_strbuf_puts(b, ",\"load_seconds\":");
    tern_strbuf_json_number(b, i.load_seconds);
    put_default(b, "temperature", i.temperature);
    put_default(b, "top_p", i.top_p);
    put_default(b, "min_p", i.min_p);
    put_default(b, "repeat_penalty", i.repeat_penalty);
    put_default(b, "top_k", (float)i.top_k);
    tern_strbuf_printf(b, ",\"device_memory\":{\"weights\":%llu",
                       (unsigned long long)i.device_memory.weights);
    put_count(b, "cache", i.device_memory.cache);
    put_count(b, "work", i.device_memory.work);
    put_count(b, "results", i.device_memory.results);
    put_count(b, "now", i.device_memory.now);
    put_count(b, "most", i.device_memory.most);
    tern_strbuf_puts(b, "}");
    put_embedding(b, m->model);
    put_infill(b, m->model);
    put_media(b, m->model);
    tern_strbuf_puts(b, "}");
    return web_result_end();
}

// ---- What its file says ------------------------------------------------------------------------

#define SHORT_LIST 64 // longer ones are asked for by their key

static void put_metadata(tern_strbuf *b, const tern_model *m, const tern_metadata *x) {
    tern_metadata item;
    switch (x->kind) {
    case TERN_METADATA_STRING: tern_strbuf_json(b, x->text ? x->text : "", x->n); break;
    case TERN_METADATA_INT: tern_strbuf_printf(b, "%lld", (long long)x->integer); break;
    case TERN_METADATA_FLOAT: tern_strbuf_json_number(b, x->number); break;
    case TERN_METADATA_BOOL: tern_strbuf_puts(b, x->integer ? "true" : "false"); break;
    case TERN_METADATA_ARRAY:
        for (size_t i = 0; i < x->n; i++) {
            tern_strbuf_puts(b, i ? "," : "[");
            if (!tern_model_metadata_element(m, x->key, i, &item))
                tern_strbuf_puts(b, "null");
            else
                put_metadata(b, m, &item); // no array
        }
        tern_strbuf_puts(b, x->n ? "]" : "[]");
        break;
    }
}

// With a key its value, null if there is none; without, all but long lists.
int32_t web_metadata(int32_t id, const char *json, uint32_t n) {
    tern_error err = {0};
    web_args args = {0};
    const char *key = NULL, *between = "";
    tern_metadata x;
    const web_field fields[] = {{"key", WEB_STRING, &key, 0, 0, NULL}};
    const web_model *m = web_model_find(id, &err);
    if (!m || web_args_read(&args, "metadata", json, n, fields, 1, &err) != TERN_OK) {
        web_args_free(&args);
        return web_fail(&err);
    }
    tern_strbuf *b = web_result_begin();
    if (key && !tern_model_metadata(m->model, key, &x)) {
        tern_strbuf_puts(b, "null");
    } else if (key) {
        put_metadata(b, m->model, &x);
    } else {
        tern_strbuf_puts(b, "{");
        for (size_t i = 0; tern_model_metadata_at(m->model, i, &x); i++) {
            if (x.kind == TERN_METADATA_ARRAY && x.n > SHORT_LIST) continue;
            tern_strbuf_puts(b, between);
            tern_strbuf_json(b, x.key, strlen(x.key));
            tern_strbuf_puts(b, ":");
            put_metadata(b, m->model, &x);
            between = ",";
        }
        tern_strbuf_puts(b, "}");
    }
    web_args_free(&args);
    return web_result_end();
}

int32_t web_memory(void) {
    tern_heap m = tern_heap_get();
    tern_strbuf_printf(web_result_begin(), "{\"heap_now\":%zu,\"heap_max\":%zu,\"n_allocs\":%llu}",
                       m.heap_now, m.heap_max, (unsigned long long)m.n_allocs);
    return web_result_end();
}

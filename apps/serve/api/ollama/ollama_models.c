// Ollama's interface: which models there are.
#include "apps/serve/api/ollama/ollama.h"
#include "apps/serve/http/dates.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include "apps/serve/api/interfaces.h"
#include "base/hash.h"
#include "base/os/os_time.h"

// The version of Ollama's interface that is supported here: some clients compare it.
#define OLLAMA_LEVEL "0.12.11"

void ollama_time(char out[40]) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    date_write(&now, out);
}

double ollama_since(double began) { return tern_seconds() - began; }

// ---- Models ------------------------------------------------------------------------------------

// A digest of the file's name and size: that of its bytes would take minutes.
static void make_digest(const served *s, char out[65]) {
    const char *path = s->about.path;
    uint64_t hash = tern_hash64((uint64_t)s->facts.file_bytes, path, strlen(path));
    for (int i = 0; i < 4; i++, hash = tern_mix64(hash + 1))
        snprintf(out + 16 * i, 17, "%016llx", (unsigned long long)hash);
}

static void put_details(tern_json_writer *w, const served *s, const preset *p) {
    const hub_facts *f = &s->facts;
    char size[24];
    double n = (double)f->n_weights;
    if (n >= 1e9)
        snprintf(size, sizeof size, "%.1fB", n / 1e9);
    else
        snprintf(size, sizeof size, "%.1fM", n / 1e6);
    tern_json_open(w, "details", '{');
    tern_json_put_text(w, "parent_model", p ? p->from : "");
    tern_json_put_text(w, "format", f->is_gguf ? "gguf" : "safetensors");
    tern_json_put_text(w, "family", f->architecture);
    tern_json_open(w, "families", '[');
    tern_json_put_text(w, NULL, f->architecture);
    tern_json_close(w, ']');
    tern_json_put_text(w, "parameter_size", size);
    tern_json_put_text(w, "quantization_level", f->types);
    tern_json_close(w, '}');
}

// Ollama's names have a tag, and clients compare them whole.
static void put_name(tern_json_writer *w, const char *key, tern_str name) {
    tern_strbuf all = {0};
    tern_strbuf_append(&all, name.ptr, name.len);
    if (!memchr(name.ptr, ':', name.len)) tern_strbuf_puts(&all, ":latest");
    tern_json_put_bytes(w, key, tern_strbuf_text(&all), all.len);
    w->out->failed |= all.failed;
    tern_strbuf_free(&all);
}

// Leaves the object open in *w.
static void open_model(tern_json_writer *w, tern_str name, const served *s) {
    char digest[65];
    make_digest(s, digest);
    tern_json_open(w, NULL, '{');
    put_name(w, "name", name);
    put_name(w, "model", name);
    date_put(w, "modified_at", (time_t)s->about.modified);
    tern_json_put_int(w, "size", s->facts.file_bytes);
    tern_json_put_text(w, "digest", digest);
}

void ollama_tags(request *req) {
    registry *r = req->server->registry;
    tern_strbuf out = {0};
    tern_json_writer w = {.out = &out};
    tern_str name;
    served *s;
    registry_refresh(r);
    tern_json_open(&w, NULL, '{');
    tern_json_open(&w, "models", '[');
    for (size_t i = 0; (name = registry_name(r, i, &s)).ptr; i++) {
        open_model(&w, name, s);
        put_details(&w, s, presets_find(&r->presets, name));
        tern_json_close(&w, '}');
    }
    tern_json_close(&w, ']');
    tern_json_close(&w, '}');
    reply_json(req, &out);
    tern_strbuf_free(&out);
}

// When an open model will close: counted from its last use, which for one in use is now.
static void put_end(tern_json_writer *w, const served *s) {
    double since = s->n_users ? 0 : tern_seconds() - s->used;
    if (s->keep_seconds < 0)
        tern_json_put_text(w, "expires_at", "9999-12-31T23:59:59Z"); // it stays
    else
        date_put(w, "expires_at", time(NULL) + (time_t)(s->keep_seconds - since));
}

void ollama_ps(request *req) {
    const registry *r = req->server->registry;
    tern_strbuf out = {0};
    tern_json_writer w = {.out = &out};
    tern_json_open(&w, NULL, '{');
    tern_json_open(&w, "models", '[');
    for (size_t i = 0; i < r->n; i++) {
        const served *s = r->list[i];
        if (s->state != SERVED_OPEN) continue;
        open_model(&w, (tern_str){s->about.name, strlen(s->about.name)}, s);
        put_details(&w, s, NULL);
        put_end(&w, s);
        tern_json_put_int(&w, "size_vram", (int64_t)s->info.device_memory.now);
        tern_json_put_int(&w, "context_length", s->n_context);
        tern_json_close(&w, '}');
    }
    tern_json_close(&w, ']');
    tern_json_close(&w, '}');
    reply_json(req, &out);
    tern_strbuf_free(&out);
}

void ollama_version(request *req) {
    tern_strbuf out = {0};
    tern_strbuf_puts(&out, "{\"version\":\"" OLLAMA_LEVEL "\"}");
    reply_json(req, &out);
    tern_strbuf_free(&out);
}

static void put_info(tern_json_writer *w, const hub_facts *f) {
    const struct {
        const char *name;
        int64_t value;
    } rows[] = {{"context_length", f->n_context},
                {"embedding_length", f->n_embd},
                {"block_count", f->n_layers},
                {"vocab_size", f->n_vocab}};
    tern_json_open(w, "model_info", '{');
    tern_json_put_text(w, "general.architecture", f->architecture);
    tern_json_put_int(w, "general.parameter_count", f->n_weights);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        char key[96];
        snprintf(key, sizeof key, "%s.%s", f->architecture, rows[k].name);
        tern_json_put_int(w, key, rows[k].value);
    }
    tern_json_close(w, '}');
}

// ---- /api/show ---------------------------------------------------------------------------------

// As in a Modelfile: one line for each value.
static void put_parameter(tern_strbuf *out, const char *before, tern_str name,
                          const tern_json_doc *doc, const tern_json *value) {
    tern_json_writer w = {.out = out};
    tern_strbuf_printf(out, "%s%.*s ", before, (int)name.len, name.ptr);
    tern_json_put_value(&w, NULL, doc, value);
    tern_strbuf_putc(out, '\n');
}

static void put_parameters(tern_strbuf *out, const char *before, const tern_json_doc *doc,
                           const tern_json *list) {
    for (const tern_json *key = list ? tern_json_first(doc, list) : NULL; key;
         key = tern_json_next(doc, list, key)) {
        const tern_json *value = tern_json_value_of(doc, key);
        const tern_json *item =
            tern_json_is(value, TERN_JSON_ARRAY) ? tern_json_first(doc, value) : value;
        for (; item; item = item == value ? NULL : tern_json_next(doc, value, item))
            put_parameter(out, before, tern_json_str(key), doc, item);
    }
}

static void put_modelfile(tern_json_writer *w, const served *s, const tern_json_doc *doc,
                          const tern_json *root) {
    tern_strbuf text = {0};
    const tern_str system = tern_json_str(tern_json_get(doc, root, "system"));
    tern_strbuf_printf(&text, "FROM %s\n", s->about.name);
    put_parameters(&text, "PARAMETER ", doc, tern_json_get(doc, root, "parameters"));
    if (system.len)
        tern_strbuf_printf(&text, "SYSTEM \"\"\"%.*s\"\"\"\n", (int)system.len, system.ptr);
    tern_json_put_bytes(w, "modelfile", tern_strbuf_text(&text), text.len);
    tern_strbuf_clear(&text);
    put_parameters(&text, "", doc, tern_json_get(doc, root, "parameters"));
    tern_json_put_bytes(w, "parameters", tern_strbuf_text(&text), text.len);
    w->out->failed |= text.failed;
    tern_strbuf_free(&text);
}

static void put_preset(tern_json_writer *w, const served *s, const preset *p) {
    static const char *const names[] = {"system", "license"};
    tern_json_doc doc = {0};
    if (p) w->out->failed |= tern_json_parse(&doc, p->json, p->n_json, NULL) != TERN_OK;
    const tern_json *root = p && doc.n_nodes ? tern_json_root(&doc) : NULL;
    put_modelfile(w, s, &doc, root);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const tern_json *value = root ? tern_json_get(&doc, root, names[i]) : NULL;
        if (value) tern_json_put_value(w, names[i], &doc, value);
    }
    const tern_json *talk = root ? tern_json_get(&doc, root, "messages") : NULL;
    if (talk) tern_json_put_value(w, "messages", &doc, talk);
    tern_json_free(&doc);
}

void ollama_show(request *req) {
    const served *s = req->model;
    const preset *p = req->preset;
    const char *name = p ? p->name : s->about.name;
    tern_strbuf out = {0};
    tern_json_writer w = {.out = &out};
    open_model(&w, (tern_str){name, strlen(name)}, s);
    put_details(&w, s, p);
    put_preset(&w, s, p);
    tern_json_put_text(&w, "template", "");
    put_info(&w, &s->facts);
    tern_json_open(&w, "capabilities", '[');
    tern_json_put_text(&w, NULL, served_ability(s));
    if (served_sees(s)) tern_json_put_text(&w, NULL, "vision");
    if (served_fills(s)) tern_json_put_text(&w, NULL, "insert");
    tern_json_close(&w, ']');
    tern_json_close(&w, '}');
    reply_json(req, &out);
    tern_strbuf_free(&out);
}

// The report of tern_inspect, as text for people and as JSON for programs.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/plain.h"
#include "tasks/inspect/inspect.h"

#define ARRAY_SHOWN_TEXT 6
#define ARRAY_SHOWN_JSON 16
#define VALUE_SHOWN_TEXT 100 // characters of a metadata value
#define BAR_WIDTH        40

// ---- Values ------------------------------------------------------------------------------------

static void put_cut(uint64_t n, tern_strbuf *out) {
    tern_strbuf_printf(out, ",\"... of %llu\"", (unsigned long long)n);
}

static void put_members(const tern_json_doc *doc, const tern_json *v, uint32_t n_max,
                        tern_strbuf *out) {
    bool is_object = v->type == TERN_JSON_OBJECT;
    uint32_t i = 0;
    tern_strbuf_putc(out, is_object ? '{' : '[');
    for (const tern_json *m = tern_json_first(doc, v); m; m = tern_json_next(doc, v, m), i++) {
        if (!is_object && i == n_max) {
            put_cut(v->n, out);
            break;
        }
        if (i) tern_strbuf_putc(out, ',');
        if (is_object) {
            tern_strbuf_json(out, m->text, m->n);
            tern_strbuf_putc(out, ':');
        }
        tern_put_json(doc, is_object ? tern_json_value_of(doc, m) : m, n_max, out);
    }
    tern_strbuf_putc(out, is_object ? '}' : ']');
}

void tern_put_json(const tern_json_doc *doc, const tern_json *value, uint32_t n_max,
                   tern_strbuf *out) {
    switch (value->type) {
    case TERN_JSON_BOOL: tern_strbuf_puts(out, value->n ? "true" : "false"); break;
    case TERN_JSON_NUMBER: tern_strbuf_json_number(out, value->number); break;
    case TERN_JSON_STRING: tern_strbuf_json(out, value->text, value->n); break;
    case TERN_JSON_ARRAY:
    case TERN_JSON_OBJECT: put_members(doc, value, n_max, out); break;
    default: tern_strbuf_puts(out, "null"); break;
    }
}

static void put_scalar(tern_meta_type type, const void *data, tern_strbuf *out) {
    tern_meta one = {.type = TERN_META_ARRAY, .element_type = type, .n = 1, .data = data};
    double value = 0;
    uint64_t u = 0;
    float f = 0;
    switch (type) {
    case TERN_META_BOOL: tern_strbuf_puts(out, *(const uint8_t *)data ? "true" : "false"); break;
    case TERN_META_F32:
        memcpy(&f, data, sizeof f);
        tern_strbuf_json_float(out, f);
        break;
    case TERN_META_U64: // a double cannot hold all of them
        memcpy(&u, data, sizeof u);
        tern_strbuf_printf(out, "%llu", (unsigned long long)u);
        break;
    case TERN_META_I64:
        memcpy(&u, data, sizeof u);
        tern_strbuf_printf(out, "%lld", (long long)u);
        break;
    default: tern_meta_element(&one, 0, &value); tern_strbuf_json_number(out, value);
    }
}

void tern_put_meta(const tern_meta *m, uint64_t n_max, tern_strbuf *out) {
    if (m->type == TERN_META_STRING) {
        tern_strbuf_json(out, m->data, (size_t)m->n);
        return;
    }
    if (m->type != TERN_META_ARRAY) {
        put_scalar(m->type, m->data, out);
        return;
    }
    size_t bytes = tern_meta_type_bytes(m->element_type);
    tern_strbuf_putc(out, '[');
    for (uint64_t i = 0; i < m->n && i < n_max; i++) {
        if (i) tern_strbuf_putc(out, ',');
        if (m->strings)
            tern_strbuf_json(out, m->strings[i].ptr, m->strings[i].len);
        else
            put_scalar(m->element_type, (const char *)m->data + i * bytes, out);
    }
    if (m->n > n_max) put_cut(m->n, out);
    tern_strbuf_putc(out, ']');
}

// ---- JSON --------------------------------------------------------------------------------------

static void put_tally(const char *name, const tern_tally *t, tern_strbuf *out) {
    tern_strbuf_printf(out,
                       "\"%s\":{\"n_tensors\":%llu,\"n_weights\":%llu,\"bytes\":%llu,"
                       "\"bits_per_weight\":",
                       name, (unsigned long long)t->n_tensors, (unsigned long long)t->n_weights,
                       (unsigned long long)t->bytes);
    tern_strbuf_json_float(out, (float)tern_bits_per_weight(t));
    tern_strbuf_putc(out, '}');
}

static void put_codes(const tern_code_counts *c, tern_strbuf *out) {
    tern_strbuf_printf(out, "{\"-1\":%llu,\"0\":%llu,\"+1\":%llu,\"invalid\":%llu,\"entropy\":",
                       (unsigned long long)c->n[0], (unsigned long long)c->n[1],
                       (unsigned long long)c->n[2], (unsigned long long)c->n[3]);
    tern_strbuf_json_float(out, (float)tern_codes_entropy(c->n));
    tern_strbuf_putc(out, '}');
}

static bool has_codes(const tern_inspection *in, size_t i) {
    const uint64_t *n = in->codes_of ? in->codes_of[i].n : NULL;
    return n && n[0] + n[1] + n[2] + n[3] > 0;
}

// "type 99" for a GGUF type number that is not known here.
static const char *name_of_type(const tern_tensor *t, char *buffer, size_t size) {
    if (t->type != TERN_DTYPE_UNKNOWN || !t->type_id) return tern_dtype_name(t->type);
    snprintf(buffer, size, "type %u", t->type_id);
    return buffer;
}

static void put_tensor_json(const tern_inspection *in, size_t i, tern_strbuf *out) {
    const tern_tensor *t = &in->file->tensors[i];
    tern_strbuf_puts(out, i ? ",\n{\"name\":" : "\n{\"name\":");
    tern_strbuf_json(out, t->name, strlen(t->name));
    char type[32];
    tern_strbuf_printf(out, ",\"type\":\"%s\",\"ne\":[", name_of_type(t, type, sizeof type));
    for (int d = 0; d < t->n_dims; d++)
        tern_strbuf_printf(out, "%s%llu", d ? "," : "", (unsigned long long)t->ne[d]);
    tern_strbuf_printf(out, "],\"bytes\":%llu,\"file\":%d", (unsigned long long)t->bytes, t->shard);
    if (t->type == TERN_DTYPE_I2_S || t->type == TERN_DTYPE_HF_TERNARY) {
        tern_strbuf_puts(out, ",\"scale\":");
        tern_strbuf_json_float(out, t->scale);
    }
    if (has_codes(in, i)) {
        tern_strbuf_puts(out, ",\"codes\":");
        put_codes(&in->codes_of[i], out);
    }
    tern_strbuf_putc(out, '}');
}

static void put_metadata_json(const tern_file *f, tern_strbuf *out) {
    const tern_json *config = tern_json_root(&f->config);
    tern_strbuf_puts(out, ",\n\"metadata\":");
    if (f->kind == TERN_FILE_HF && config) {
        tern_put_json(&f->config, config, ARRAY_SHOWN_JSON, out);
        return;
    }
    tern_strbuf_putc(out, '{');
    for (size_t i = 0; i < f->n_metas; i++) {
        tern_strbuf_puts(out, i ? ",\n" : "\n");
        tern_strbuf_json(out, f->metas[i].key, strlen(f->metas[i].key));
        tern_strbuf_putc(out, ':');
        tern_put_meta(&f->metas[i], ARRAY_SHOWN_JSON, out);
    }
    tern_strbuf_putc(out, '}');
}

// What the model is for, and how large; zeros if its architecture is unknown.
static void put_shape(const tern_inspection *in, tern_strbuf *out) {
    const tern_config *c = &in->config;
    const char *kind = c->n_labels                       ? "reranker"
                       : c->pooling != TERN_POOLING_NONE ? "embedding"
                                                         : "language";
    if (c->vision.n_layers) tern_strbuf_puts(out, "\"sees\":true,");
    if (in->arch && tern_recognizer_of(in->arch)) tern_strbuf_puts(out, "\"transcribes\":true,");
    tern_strbuf_printf(out,
                       "\"kind\":\"%s\",\"n_context\":%lld,\"n_embd\":%lld,"
                       "\"n_layers\":%lld,\"n_vocab\":%lld,\n",
                       kind, (long long)c->n_context, (long long)c->n_embd, (long long)c->n_layers,
                       (long long)c->n_vocab);
}

void tern_inspection_json(const tern_inspection *in, bool tensors, tern_strbuf *out) {
    const tern_file *f = in->file;
    tern_strbuf_puts(out, "{\"path\":");
    tern_strbuf_json(out, f->path, strlen(f->path));
    tern_strbuf_printf(out, ",\"format\":\"%s\",\"n_files\":%zu,\"architecture\":",
                       f->kind == TERN_FILE_GGUF ? "gguf" : "huggingface", in->n_files);
    tern_strbuf_json(out, in->architecture.ptr, in->architecture.len);
    if (f->packing) tern_strbuf_printf(out, ",\"packing\":\"%s\"", f->packing);
    tern_strbuf_printf(out,
                       ",\n\"runs\":%s,\"refusal\":", in->refusal.message[0] ? "false" : "true");
    tern_strbuf_json(out, in->refusal.message, strlen(in->refusal.message));
    tern_strbuf_puts(out, ",\"guess\":");
    const char *guess = in->config.guess ? in->config.guess : "";
    tern_strbuf_json(out, guess, strlen(guess));
    tern_strbuf_printf(out, ",\n\"bytes_per_token\":%llu,\"tied_head\":%s,\n",
                       (unsigned long long)in->bytes_per_token, in->is_tied ? "true" : "false");
    tern_strbuf_printf(out, "\"kv_bytes_per_token\":%llu,\"sequence_bytes\":%llu,\n",
                       (unsigned long long)in->states.position,
                       (unsigned long long)in->states.sequence);
    put_shape(in, out);
    put_tally("all", &in->all, out);
    tern_strbuf_puts(out, ",\n");
    put_tally("left_out", &in->left_out, out);
    tern_strbuf_puts(out, ",\n");
    put_tally("ternary", &in->ternary, out);
    tern_strbuf_puts(out, ",\n\"types\":{");
    const char *between = "\n";
    for (int type = 0; type < TERN_DTYPE_COUNT; type++) {
        if (!in->of_type[type].n_tensors) continue;
        tern_strbuf_puts(out, between);
        put_tally(tern_dtype_name((tern_dtype)type), &in->of_type[type], out);
        between = ",\n";
    }
    tern_strbuf_putc(out, '}');
    if (in->codes_of) {
        tern_strbuf_puts(out, ",\n\"codes\":");
        put_codes(&in->codes, out);
    }
    put_metadata_json(f, out);
    if (tensors) {
        tern_strbuf_puts(out, ",\n\"tensors\":[");
        for (size_t i = 0; i < f->n_tensors; i++) put_tensor_json(in, i, out);
        tern_strbuf_putc(out, ']');
    }
    tern_strbuf_puts(out, "}\n");
}

// ---- Text --------------------------------------------------------------------------------------

static void put_size(double bytes, tern_strbuf *out) {
    static const char *const units[] = {"bytes", "KB", "MB", "GB", "TB"};
    int unit = 0;
    for (; bytes >= 1000 && unit < 4; unit++) bytes /= 1000;
    tern_strbuf_printf(out, unit ? "%.2f %s" : "%.0f %s", bytes, units[unit]);
}

// A value, cut at a whole character when it is long. It is emptied.
static void put_value(tern_strbuf *value, tern_strbuf *out) {
    size_t n = value->len, keep = n < VALUE_SHOWN_TEXT ? n : VALUE_SHOWN_TEXT;
    while (keep < n && keep > 0 && (value->ptr[keep] & 0xC0) == 0x80) keep--;
    tern_plain_line(tern_strbuf_text(value), keep, out);
    if (keep < n) tern_strbuf_printf(out, "... (%zu characters)", n);
    tern_strbuf_putc(out, '\n');
    out->failed |= value->failed;
    tern_strbuf_clear(value);
}

static void put_metadata_text(const tern_file *f, tern_strbuf *out) {
    const tern_json *config = tern_json_root(&f->config);
    tern_strbuf value = {0};
    if (!config && !f->n_metas) return;
    tern_strbuf_printf(out, "\nmetadata%s\n", f->kind == TERN_FILE_HF ? " (config.json)" : "");
    for (size_t i = 0; i < f->n_metas; i++) {
        tern_strbuf_puts(out, "  ");
        tern_plain_line(f->metas[i].key, strlen(f->metas[i].key), out);
        tern_strbuf_puts(out, " = ");
        tern_put_meta(&f->metas[i], ARRAY_SHOWN_TEXT, &value);
        put_value(&value, out);
    }
    bool has_config = tern_json_is(config, TERN_JSON_OBJECT);
    for (const tern_json *k = has_config ? tern_json_first(&f->config, config) : NULL; k;
         k = tern_json_next(&f->config, config, k)) {
        tern_strbuf_puts(out, "  ");
        tern_plain_line(k->text, k->n, out);
        tern_strbuf_puts(out, " = ");
        tern_put_json(&f->config, tern_json_value_of(&f->config, k), ARRAY_SHOWN_TEXT, &value);
        put_value(&value, out);
    }
    tern_strbuf_free(&value);
}

static double percent(uint64_t part, const tern_code_counts *c) {
    uint64_t sum = c->n[0] + c->n[1] + c->n[2] + c->n[3];
    return sum ? 100.0 * (double)part / (double)sum : 0;
}

static void put_tensors_text(const tern_inspection *in, tern_strbuf *out) {
    tern_strbuf_printf(out, "\ntensors%s\n", in->codes_of ? " (with the shares of -1, 0, +1)" : "");
    for (size_t i = 0; i < in->file->n_tensors; i++) {
        const tern_tensor *t = &in->file->tensors[i];
        char shape[100];
        int n = snprintf(shape, sizeof shape, "%llu", (unsigned long long)t->ne[0]);
        for (int d = 1; d < t->n_dims; d++)
            n += snprintf(shape + n, sizeof shape - (size_t)n, " x %llu",
                          (unsigned long long)t->ne[d]);
        char type[32];
        tern_strbuf_printf(out, "  %-10s %-20s %12llu  ", name_of_type(t, type, sizeof type), shape,
                           (unsigned long long)t->bytes);
        tern_plain_line(t->name, strlen(t->name), out);
        if (has_codes(in, i)) {
            const tern_code_counts *c = &in->codes_of[i];
            tern_strbuf_printf(out, "  %.1f %.1f %.1f%%", percent(c->n[0], c), percent(c->n[1], c),
                               percent(c->n[2], c));
        }
        tern_strbuf_putc(out, '\n');
    }
}

static void put_histogram(const tern_inspection *in, tern_strbuf *out) {
    const tern_code_counts *c = &in->codes;
    static const char *const names[] = {"-1", " 0", "+1", "??"};
    uint64_t most = 1;
    for (int i = 0; i < 4; i++) most = c->n[i] > most ? c->n[i] : most;
    tern_strbuf_puts(out, "\nternary weights");
    if (in->n_masters)
        tern_strbuf_printf(out, " (%zu matri%s of floats, as loading rounds them)", in->n_masters,
                           in->n_masters == 1 ? "x" : "ces");
    tern_strbuf_putc(out, '\n');
    for (int i = 0; i < 4; i++) {
        if (i == 3 && !c->n[i]) continue; // invalid codes: only shown if there are any
        int width = (int)((double)c->n[i] / (double)most * BAR_WIDTH + 0.5);
        tern_strbuf_printf(out, "  %s %14llu  %5.2f%%  %.*s\n", names[i],
                           (unsigned long long)c->n[i], percent(c->n[i], c), width,
                           "########################################");
    }
    tern_strbuf_printf(out,
                       "  bits a weight: %.3f carried (the entropy; at most log2 3 = 1.585), "
                       "%.3f stored\n",
                       tern_codes_entropy(c->n), tern_bits_per_weight(&in->coded));
}

static void put_line(const char *name, const tern_tally *t, tern_strbuf *out) {
    tern_strbuf_printf(out,
                       "  %-10s %7llu tensors %14llu weights %14llu bytes  %6.3f bits a weight\n",
                       name, (unsigned long long)t->n_tensors, (unsigned long long)t->n_weights,
                       (unsigned long long)t->bytes, tern_bits_per_weight(t));
}

// Memory for a text, besides the weights.
static void put_states(const tern_state_bytes *s, tern_strbuf *out) {
    if (s->position) {
        tern_strbuf_puts(out, "  a position of the text takes ");
        put_size((double)s->position, out);
        tern_strbuf_puts(out, " of keys and values (F16)\n");
    }
    if (s->sequence) {
        tern_strbuf_puts(out, "  a text of any length takes ");
        put_size((double)s->sequence, out);
        tern_strbuf_printf(out, " of states and windows%s\n", s->position ? " besides" : "");
    }
}

void tern_inspection_text(const tern_inspection *in, bool tensors, tern_strbuf *out) {
    const tern_file *f = in->file;
    tern_plain_line(f->path, strlen(f->path), out);
    tern_strbuf_printf(out, "\n  %s, %zu file%s of tensors, architecture ",
                       f->kind == TERN_FILE_GGUF ? "GGUF" : "Hugging Face folder", in->n_files,
                       in->n_files == 1 ? "" : "s");
    tern_plain_line(in->architecture.ptr, in->architecture.len, out);
    if (f->packing)
        tern_strbuf_printf(out, "\n  weights in the files: %s; below, in memory", f->packing);
    if (in->config.guess) tern_strbuf_printf(out, "\n  not said by the file: %s", in->config.guess);
    if (in->refusal.message[0]) {
        tern_strbuf_puts(out, "\n  cannot be run: ");
        tern_plain_line(in->refusal.message, strlen(in->refusal.message), out);
    }
    tern_strbuf_puts(out, "\n  a token reads ");
    put_size((double)in->bytes_per_token, out);
    tern_strbuf_printf(out, " of weights%s\n",
                       in->is_tied ? " (the embedding table is the output head)" : "");
    put_states(&in->states, out);
    tern_strbuf_putc(out, '\n');
    for (int type = 0; type < TERN_DTYPE_COUNT; type++)
        if (in->of_type[type].n_tensors)
            put_line(tern_dtype_name((tern_dtype)type), &in->of_type[type], out);
    put_line("all", &in->all, out);
    if (in->left_out.n_tensors) put_line("not run", &in->left_out, out);
    if (in->ternary.n_tensors) put_line("ternary", &in->ternary, out);
    if (in->codes_of && in->coded.n_tensors) put_histogram(in, out);
    put_metadata_text(f, out);
    if (tensors) put_tensors_text(in, out);
}

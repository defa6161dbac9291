#include "tests/support/grammar_data.h"

#include <stdio.h>
#include <stdlib.h>
#include "tests/support/harness.h"

bool grammar_vocabulary_open(grammar_vocabulary *v, const char *path) {
    tern_error err = {0};
    tern_file *file = NULL;
    *v = (grammar_vocabulary){0};
    if (tern_file_open(&file, path, &err) == TERN_OK &&
        tern_tokenizer_open(&v->tokenizer, file, &err) == TERN_OK) {
        v->n = (size_t)tern_tokenizer_n_vocab(v->tokenizer);
        size_t *at = calloc(v->n + 1, sizeof *at);
        v->bytes = calloc(v->n, sizeof *v->bytes);
        for (size_t i = 0; i < v->n; i++) {
            tern_decoder d = {.started = true, .raw = true};
            tern_tokenizer_decode(v->tokenizer, &d, (int32_t)i, &v->pool);
            at[i + 1] = v->pool.len;
        }
        for (size_t i = 0; i < v->n; i++)
            v->bytes[i] = (tern_str){v->pool.ptr + at[i], at[i + 1] - at[i]};
        free(at);
        v->n_ends = tern_tokenizer_ends(v->tokenizer, &v->ends);
        tern_vocab_tree_open(&v->tree, v->bytes, v->n, v->ends, v->n_ends, &err);
    }
    CHECK_MSG(v->tree != NULL, "%s: %s", path, err.message);
    tern_file_close(file);
    return v->tree != NULL;
}

void grammar_vocabulary_close(grammar_vocabulary *v) {
    tern_vocab_tree_close(v->tree);
    tern_tokenizer_free(v->tokenizer);
    tern_strbuf_free(&v->pool);
    free(v->bytes);
}

static void write_number(const tern_json *v, tern_strbuf *out) {
    if (v->n == TERN_JSON_LONG) {
        tern_strbuf_append(out, v[1].text, v[1].n);
    } else if (v->n == TERN_JSON_WHOLE) {
        tern_strbuf_printf(out, "%.0f", v->number);
    } else { // 1.0 stays what it is: in draft 4 it is no integer
        char text[400];
        double size = v->number < 0 ? -v->number : v->number;
        bool plain = size < 1e16 && (size >= 1e-4 || size == 0);
        for (int p = 1; p < 20; p++) {
            snprintf(text, sizeof text, plain ? "%.*f" : "%.*g", p, v->number);
            if (strtod(text, NULL) == v->number) break;
        }
        tern_strbuf_puts(out, text);
    }
}

void grammar_write_value(const tern_json_doc *d, const tern_json *v, tern_strbuf *out) {
    const char *before = "";
    switch ((tern_json_type)v->type) {
    case TERN_JSON_NULL: tern_strbuf_puts(out, "null"); return;
    case TERN_JSON_BOOL: tern_strbuf_puts(out, v->n ? "true" : "false"); return;
    case TERN_JSON_STRING: tern_strbuf_json(out, v->text, v->n); return;
    case TERN_JSON_NUMBER: write_number(v, out); return;
    case TERN_JSON_ARRAY:
        tern_strbuf_putc(out, '[');
        for (const tern_json *e = tern_json_first(d, v); e; e = tern_json_next(d, v, e)) {
            tern_strbuf_puts(out, before);
            before = ", ";
            grammar_write_value(d, e, out);
        }
        tern_strbuf_putc(out, ']');
        return;
    case TERN_JSON_OBJECT:
        tern_strbuf_putc(out, '{');
        for (const tern_json *k = tern_json_first(d, v); k; k = tern_json_next(d, v, k)) {
            tern_strbuf_puts(out, before);
            before = ", ";
            tern_strbuf_json(out, k->text, k->n);
            tern_strbuf_puts(out, ": ");
            grammar_write_value(d, tern_json_value_of(d, k), out);
        }
        tern_strbuf_putc(out, '}');
        return;
    }
}

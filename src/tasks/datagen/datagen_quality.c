// How much an answer repeats itself, and the sketch by which it is compared.
#include <stdlib.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "base/json/json_write.h"
#include "tasks/datagen/datagen.h"

#define RUN 4 // tokens

static int rising(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

tern_status tern_datagen_repetition(const int32_t *ids, size_t n_ids, double *out,
                                    tern_error *err) {
    *out = 0;
    if (n_ids <= RUN) return TERN_OK;
    size_t n = n_ids - RUN + 1, n_again = 0;
    uint64_t *runs = tern_alloc_array(TERN_MEM_MISC, n, sizeof *runs);
    if (!runs) return tern_fail_memory(err, n * sizeof *runs);
    for (size_t i = 0; i < n; i++) runs[i] = tern_hash64(0, ids + i, RUN * sizeof *ids);
    qsort(runs, n, sizeof *runs, rising);
    for (size_t i = 1; i < n; i++) n_again += runs[i] == runs[i - 1];
    *out = (double)n_again / (double)n;
    tern_free(runs);
    return TERN_OK;
}

// For JSON the values alone: all records have the same names.
static void put_values(tern_strbuf *out, const tern_json_doc *doc, const tern_json *value) {
    bool is_object = tern_json_is(value, TERN_JSON_OBJECT);
    if (is_object || tern_json_is(value, TERN_JSON_ARRAY)) {
        for (const tern_json *at = tern_json_first(doc, value); at;
             at = tern_json_next(doc, value, at))
            put_values(out, doc, is_object ? tern_json_value_of(doc, at) : at);
    } else if (tern_json_is(value, TERN_JSON_STRING)) {
        tern_str text = tern_json_str(value);
        tern_strbuf_append(out, text.ptr, text.len);
    } else {
        tern_json_writer w = {.out = out};
        tern_json_put_value(&w, NULL, doc, value);
    }
    tern_strbuf_putc(out, ' ');
}

tern_status tern_datagen_sketch(datagen_job *j, const tern_json_doc *object, tern_str said,
                                tern_sketch *out, tern_error *err) {
    if (!tern_json_root(object)) return tern_sketch_text(&j->sketcher, said, true, out, err);
    tern_strbuf values = {0};
    put_values(&values, object, tern_json_root(object));
    tern_status status =
        values.failed
            ? tern_fail_memory(err, values.len)
            : tern_sketch_text(&j->sketcher, (tern_str){values.ptr, values.len}, true, out, err);
    tern_strbuf_free(&values);
    return status;
}

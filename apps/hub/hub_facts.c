// Facts about a model, from tern_inspect's report on its files.
#include <string.h>
#include "apps/hub/hub_private.h"
#include "base/json/json.h"
#include "base/status.h"
#include "tern_tools.h"

static bool collect(void *user, const char *text, size_t n) {
    tern_strbuf_append(user, text, n);
    return true;
}

static void copy(char *out, size_t size, tern_str s) {
    size_t n = s.len < size - 1 ? s.len : size - 1;
    if (n < s.len)
        while (n > 0 && ((unsigned char)s.ptr[n] & 0xC0) == 0x80) n--; // no partial characters
    if (n) memcpy(out, s.ptr, n);
    out[n] = 0;
}

// The tensor type that has most bytes.
static tern_str main_type(const tern_json_doc *doc, const tern_json *types) {
    tern_str best = {"", 0};
    int64_t most = 0;
    for (const tern_json *key = tern_json_first(doc, types); key;
         key = tern_json_next(doc, types, key)) {
        int64_t n = tern_json_int(tern_json_get(doc, tern_json_value_of(doc, key), "bytes"), 0);
        if (n <= most) continue;
        most = n;
        best = tern_json_str(key);
    }
    return best;
}

static void read_facts(hub_facts *f, const tern_json_doc *doc) {
    const tern_json *root = tern_json_root(doc);
    const struct {
        const char *path;
        int64_t *to;
    } numbers[] = {{"n_context", &f->n_context},  {"n_embd", &f->n_embd},
                   {"n_layers", &f->n_layers},    {"n_vocab", &f->n_vocab},
                   {"all.bytes", &f->file_bytes}, {"all.n_weights", &f->n_weights}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        *numbers[i].to = tern_json_int(tern_json_path(doc, numbers[i].path), 0);
    const tern_json *metadata = tern_json_get(doc, root, "metadata"),
                    *label = tern_json_get(doc, metadata, "general.name");
    copy(f->kind, sizeof f->kind, tern_json_str(tern_json_get(doc, root, "kind")));
    copy(f->architecture, sizeof f->architecture,
         tern_json_str(tern_json_get(doc, root, "architecture")));
    copy(f->refusal, sizeof f->refusal, tern_json_str(tern_json_get(doc, root, "refusal")));
    copy(f->label, sizeof f->label, tern_json_str(label));
    copy(f->types, sizeof f->types, main_type(doc, tern_json_get(doc, root, "types")));
    f->is_gguf = tern_str_is(tern_json_str(tern_json_get(doc, root, "format")), "gguf");
    f->sees = tern_json_bool(tern_json_get(doc, root, "sees"), false);
    f->transcribes = tern_json_bool(tern_json_get(doc, root, "transcribes"), false);
    if (f->refusal[0]) f->kind[0] = 0;
}

tern_status hub_read_facts(hub_facts *out, const char *path, tern_error *err) {
    const tern_inspect_desc desc = {.format = TERN_FORMAT_JSON};
    tern_strbuf text = {0};
    tern_json_doc doc = {0};
    *out = (hub_facts){0};
    tern_status status = tern_inspect(path, &desc, collect, &text, err);
    if (status == TERN_OK && text.failed) status = tern_fail_memory(err, text.len);
    if (status == TERN_OK) status = tern_json_parse(&doc, text.ptr, text.len, err);
    if (status == TERN_OK) read_facts(out, &doc);
    tern_json_free(&doc);
    tern_strbuf_free(&text);
    return status;
}

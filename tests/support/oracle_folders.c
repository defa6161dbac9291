#include "tests/support/oracle_folders.h"
#include <stdlib.h>
#include <string.h>
#include "base/json/json.h"
#include "tests/support/harness.h"

static bool splits_texts(const char *folder) {
    char path[700];
    size_t n;
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    char *text = test_read(path, &n);
    bool splits = !text || !strstr(text, "\"ByteLevel\"") || strstr(text, "\"Split\"") ||
                  strstr(text, "\"use_regex\": true");
    free(text);
    return splits;
}

const char *oracle_for_gguf(const char *folder, const char *copy) {
    static const char *const names[] = {"config.json", "model.safetensors", "golden.safetensors"};
    if (splits_texts(folder)) return folder;
    test_folder(copy);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[700];
        size_t n;
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        char *bytes = test_read(path, &n);
        snprintf(path, sizeof path, "%s/%s", copy, names[i]);
        if (bytes) test_write(path, bytes, n);
        CHECK_MSG(bytes, "%s: not copied", path);
        free(bytes);
    }
    return copy;
}

// float32 with its sums in other orders is at most 3.9e-6 from these (family_oracles.py says how
// far each is): half as much again.
const close_bounds oracle_family_bounds = {.n_exact = SIZE_MAX, .exact = 6e-6};

blob oracle_golden(const char *folder) {
    char path[700];
    snprintf(path, sizeof path, "%s/golden.safetensors", folder);
    return read_blob(path);
}

const void *oracle_tensor(const blob *b, const char *name, size_t *n_values) {
    uint64_t header;
    tern_json_doc doc;
    const void *found = NULL;
    *n_values = 0;
    if (b->n < 8) return NULL;
    memcpy(&header, b->bytes, 8);
    if (tern_json_parse(&doc, b->bytes + 8, header, NULL) != TERN_OK) return NULL;
    const tern_json *t = tern_json_get(&doc, tern_json_root(&doc), name);
    const tern_json *offsets = tern_json_get(&doc, t, "data_offsets");
    if (offsets) {
        const tern_json *first = tern_json_first(&doc, offsets);
        int64_t from = tern_json_int(first, 0);
        *n_values = (size_t)(tern_json_int(tern_json_next(&doc, offsets, first), 0) - from) / 4;
        found = b->bytes + 8 + header + from;
    }
    tern_json_free(&doc);
    return found;
}

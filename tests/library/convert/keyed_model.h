// Copies of the models of tests/oracles in which one key, in config.json or in the GGUF, has
// another value.
#ifndef TERN_TESTS_KEYED_MODEL_H
#define TERN_TESTS_KEYED_MODEL_H

#include "base/json/json.h"
#include "formats/formats.h"
#include "models/models.h"
#include "tests/support/closeness.h"

// ---- Numbers of a model ------------------------------------------------------------------------

typedef struct answer {
    float *x;
    size_t n;
    char why[600]; // empty: it answered
} answer;

answer answer_of(const char *path);
double answer_distance(const answer *a, const answer *b);

// ---- Keys --------------------------------------------------------------------------------------

#define KEYS_MAX 256
#define KEY_ROOM 96

typedef struct keys {
    char names[KEYS_MAX][KEY_ROOM];
    size_t n;
} keys;
void keys_add(keys *k, const char *key);
// The keys that the readers of a family ask for, and what they read.
bool keyed_read_keys(const char *path, keys *k, const tern_arch **arch, tern_config *c,
                     tern_error *err);

// ---- A copy ------------------------------------------------------------------------------------

typedef struct model {
    const char *name;
    char folder[600], gguf[640], back[640], again[640];
    blob config, header; // header: the whole GGUF of the folder as it is
    tern_json_doc doc;
    tern_config c;
    answer base;
    int n_tried, n_changed, n_refused, n_kept; // kept: and became a GGUF
} model;
// key NULL: as it is.
bool model_begin(model *m, const char *name, const char *key, const char *value);
void model_end(model *m);
bool model_write(const char *folder, const char *name, const void *bytes, size_t n);
bool keyed_convert(const char *in, const char *out);
// Where readers find the key: in text_config, if there is one.
const tern_json *keyed_find(const tern_json_doc *doc, const char *key, char *path);
bool keyed_set_config(model *m, const char *path, const char *value);
// Where the type of a key's value stands in a GGUF; 0: the key is not there.
size_t keyed_find_type(const blob *file, const char *key);
// The GGUF with the key's i-th other value; false: there are no more.
bool keyed_set_gguf(const model *m, const char *key, int i);

#endif

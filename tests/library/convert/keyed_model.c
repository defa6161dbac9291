#include "tests/library/convert/keyed_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/json/json_write.h"
#include "base/os/os_file.h"
#include "base/strbuf.h"
#include "runtime/runtime.h"
#include "tern_tools.h"
#include "tests/support/harness.h"

#define ORACLES "tests/oracles/"
#define N_IDS   40

static void take_logits(tern_model *m, const int32_t *ids, answer *a, tern_error *err) {
    tern_session *s = NULL;
    const tern_session_desc desc = {.kv_type = TERN_KV_F32, .n_context = 64};
    a->n = (size_t)N_IDS * (size_t)m->info.n_vocab;
    a->x = calloc(a->n, sizeof *a->x);
    if (tern_session_open(&s, m, &desc, err) == TERN_OK)
        (void)tern_session_logits(s, ids, N_IDS, a->x, err);
    tern_session_close(s);
}

static void take_vector(tern_model *m, const int32_t *ids, answer *a, tern_error *err) {
    const tern_embed_text text = {.ids = ids, .n_ids = N_IDS};
    a->n = (size_t)m->config.n_embd;
    a->x = calloc(a->n, sizeof *a->x);
    (void)tern_embed(m, &text, 1, NULL, a->x, err);
}

answer answer_of(const char *path) {
    answer a = {0};
    tern_error err = {0};
    tern_model *m = NULL;
    int32_t ids[N_IDS];
    if (tern_model_open(&m, path, &(tern_model_desc){.n_threads = 1, .precise = true}, &err) ==
        TERN_OK) {
        for (int i = 0; i < N_IDS; i++) ids[i] = (i * 11 + i * i + 3) % m->info.n_vocab;
        if (m->config.pooling == TERN_POOLING_NONE)
            take_logits(m, ids, &a, &err);
        else
            take_vector(m, ids, &a, &err);
    }
    tern_model_close(m);
    if (err.status != TERN_OK) snprintf(a.why, sizeof a.why, "%s", err.message);
    return a;
}

double answer_distance(const answer *a, const answer *b) {
    double error = 0, norm = 0;
    if (a->n != b->n) return INFINITY;
    for (size_t i = 0; i < a->n; i++) {
        double d = (double)a->x[i] - (double)b->x[i];
        error += d * d;
        norm += (double)b->x[i] * (double)b->x[i];
    }
    return isfinite(error) && isfinite(norm) ? sqrt(error / fmax(norm, 1e-30)) : INFINITY;
}

// ---- Keys --------------------------------------------------------------------------------------

void keys_add(keys *k, const char *key) {
    for (size_t i = 0; i < k->n; i++)
        if (strcmp(k->names[i], key) == 0) return;
    if (k->n < KEYS_MAX) snprintf(k->names[k->n++], KEY_ROOM, "%s", key);
}

static void on_key(void *user, const char *key) { keys_add(user, key); }

bool keyed_read_keys(const char *path, keys *k, const tern_arch **arch, tern_config *c,
                     tern_error *err) {
    tern_file *file = NULL;
    const tern_config_watch watch = {.on_key = on_key, .user = k};
    *err = (tern_error){0};
    bool ok = tern_file_open(&file, path, err) == TERN_OK &&
              tern_arch_read_watched(file, &watch, arch, c, err) == TERN_OK;
    tern_file_close(file);
    return ok;
}

// ---- A config with another value ----------------------------------------------------------------

// Copies an object, with the member at `path` as the text `value`; it is added where it is not.
static void put_changed(tern_json_writer *w, const char *key, const tern_json_doc *doc,
                        const tern_json *object, const char *path, const char *value) {
    const char *dot = strchr(path, '.');
    size_t n = dot ? (size_t)(dot - path) : strlen(path);
    bool found = false;
    char name[KEY_ROOM];
    tern_json_open(w, key, '{');
    for (const tern_json *k = tern_json_first(doc, object); k; k = tern_json_next(doc, object, k)) {
        const tern_json *v = tern_json_value_of(doc, k);
        tern_str text = tern_json_str(k);
        if (text.len != n || memcmp(text.ptr, path, n) != 0) {
            tern_json_put_member(w, text, doc, v);
            continue;
        }
        snprintf(name, sizeof name, "%.*s", (int)n, path);
        found = true;
        if (dot)
            put_changed(w, name, doc, v, dot + 1, value);
        else
            tern_json_put_raw(w, name, value);
    }
    snprintf(name, sizeof name, "%.*s", (int)n, path);
    if (!found && dot)
        put_changed(w, name, doc, NULL, dot + 1, value);
    else if (!found)
        tern_json_put_raw(w, name, value);
    tern_json_close(w, '}');
}

const tern_json *keyed_find(const tern_json_doc *doc, const char *key, char *path) {
    snprintf(path, 2 * KEY_ROOM, "text_config.%s", key);
    const tern_json *j = tern_json_path(doc, path);
    if (j) return j;
    const tern_json *outer = tern_json_path(doc, key);
    if (outer || !tern_json_path(doc, "text_config")) snprintf(path, 2 * KEY_ROOM, "%s", key);
    return outer;
}

bool model_write(const char *folder, const char *name, const void *bytes, size_t n) {
    char path[900];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(bytes, 1, n, f) == n;
    if (f) ok &= fclose(f) == 0;
    return ok;
}

static bool copy_file(const char *from, const char *to, const char *name, bool is_needed) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", from, name);
    FILE *f = fopen(path, "rb");
    if (f) fclose(f);
    if (!f) return !is_needed;
    blob b = read_blob(path);
    bool ok = model_write(to, name, b.bytes, b.n);
    free(b.bytes);
    return ok;
}

bool keyed_set_config(model *m, const char *path, const char *value) {
    tern_strbuf text = {0};
    tern_json_writer w = {.out = &text};
    put_changed(&w, NULL, &m->doc, tern_json_root(&m->doc), path, value);
    bool ok = !text.failed && model_write(m->folder, "config.json", text.ptr, text.len);
    tern_strbuf_free(&text);
    return ok;
}

bool keyed_convert(const char *in, const char *out) {
    tern_error err = {0};
    return tern_convert(in, out, &(tern_convert_desc){.n_threads = 1}, &err) == TERN_OK;
}

// ---- The same of a GGUF -------------------------------------------------------------------------

static uint64_t bytes_at(const char *p, size_t n) { // n: at most 8
    uint64_t x = 0;
    memcpy(&x, p, n); // of a little-endian machine, as GGUF is
    return x;
}

size_t keyed_find_type(const blob *file, const char *key) {
    size_t n = strlen(key);
    for (size_t at = 24; at + 16 + n < file->n; at++)
        if (bytes_at(file->bytes + at, 8) == n && memcmp(file->bytes + at + 8, key, n) == 0)
            return at + 8 + n;
    return 0;
}

// Of names, some have one that is as long.
static bool change_text(char *at, int i) {
    static const char *const pairs[][2] = {{"silu", "gelu"}, {"gelu", "silu"}, {"yarn", "none"}};
    for (size_t k = 0; i == 0 && bytes_at(at, 8) == 4 && k < 3; k++)
        if (memcmp(at + 8, pairs[k][0], 4) == 0) return memcpy(at + 8, pairs[k][1], 4) != NULL;
    return false;
}

// A value, or the first of an array, to the i-th other one; false: there is none.
static bool change_value(char *at, uint64_t type, int i) {
    static const double factors[] = {0.5, 2, 1, 0.9, 1, 0, 0}, more[] = {0, 0, 1, 0, -1, 0, 7};
    static const int sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == TERN_META_STRING) return change_text(at, i);
    if (type == TERN_META_ARRAY) return change_value(at + 12, bytes_at(at, 4), i);
    if (type > TERN_META_F64 || sizes[type] == 0 || i > (type == TERN_META_BOOL ? 0 : 6))
        return false;
    size_t n = (size_t)sizes[type];
    uint64_t whole = bytes_at(at, n);
    float single = 0;
    memcpy(&single, at, n == 4 ? 4 : 1);
    if (type == TERN_META_F32) single = (float)(single * factors[i] + more[i]);
    // Of a number with a sign, too: below zero it wraps, as its bytes do.
    double other = (double)whole * factors[i] + more[i];
    if (other < -9e18 || other > 9e18) other = more[i];
    whole = type == TERN_META_BOOL ? !whole : (uint64_t)(int64_t)other;
    if (type == TERN_META_F32)
        memcpy(at, &single, n);
    else
        memcpy(at, &whole, n);
    return type != TERN_META_F64;
}

static size_t put_key(char *at, const char *key, size_t n_key, uint32_t type) {
    const uint64_t n = n_key;
    memcpy(at, &n, 8);
    memcpy(at + 8, key, n_key);
    memcpy(at + 8 + n_key, &type, 4);
    return 12 + n_key;
}

// A key that is not there, before all others; tensors stay at multiples of 32 by another, whose
// name is as long as it takes.
static blob with_key(const blob *file, const char *key, int i) {
    static const struct {
        uint32_t type;
        float single;
        uint32_t whole;
    } others[] = {{TERN_META_U32, 0, 3},
                  {TERN_META_F32, 0.5f, 0},
                  {TERN_META_BOOL, 0, 1},
                  {TERN_META_F32, 3, 0}};
    char entry[2 * KEY_ROOM + 64] = "", filler[33] = "test.and.thirty-two.more.letters";
    size_t n_value = others[i].type == TERN_META_BOOL ? 1 : 4;
    size_t n = put_key(entry, key, strlen(key), others[i].type);
    if (others[i].type == TERN_META_F32)
        memcpy(entry + n, &others[i].single, 4);
    else
        memcpy(entry + n, &others[i].whole, n_value);
    n += n_value;
    size_t n_filler = (32 - (n + 13 + 1) % 32) % 32 + 1;
    n += put_key(entry + n, filler, n_filler, TERN_META_BOOL) + 1;
    uint64_t n_keys = bytes_at(file->bytes + 16, 8) + 2;
    blob out = {.bytes = malloc(file->n + n), .n = file->n + n};
    memcpy(out.bytes, file->bytes, 24);
    memcpy(out.bytes + 16, &n_keys, 8);
    memcpy(out.bytes + 24, entry, n);
    memcpy(out.bytes + 24 + n, file->bytes + 24, file->n - 24);
    return out;
}

bool keyed_set_gguf(const model *m, const char *key, int i) {
    size_t at = keyed_find_type(&m->header, key);
    blob out = {.n = m->header.n};
    if (!at) {
        if (i > 3) return false;
        out = with_key(&m->header, key, i);
    } else {
        out.bytes = malloc(out.n);
        memcpy(out.bytes, m->header.bytes, out.n);
        if (!change_value(out.bytes + at + 4, bytes_at(out.bytes + at, 4), i)) {
            free(out.bytes);
            return false;
        }
    }
    CHECK(model_write(m->folder, "out.gguf", out.bytes, out.n));
    free(out.bytes);
    return true;
}

// ---- Copies ------------------------------------------------------------------------------------

static void copy_folder(const char *from, const char *to, const char *name) {
    char inner[400], outer[700];
    snprintf(inner, sizeof inner, "%s/%s", from, name);
    snprintf(outer, sizeof outer, "%s/%s", to, name);
    if (!tern_folder_is(inner)) return;
    tern_folder_create(outer, false);
    CHECK(copy_file(inner, outer, "config.json", true));
    CHECK(copy_file(inner, outer, "model.safetensors", false));
}

bool model_begin(model *m, const char *name, const char *key, const char *value) {
    char from[300], path[400];
    static const char *const others[] = {"model.safetensors", "modules.json", "tokenizer.json"};
    static const char *const parts[] = {"1_Pooling", "2_Dense", "3_Dense"};
    *m = (model){.name = name};
    snprintf(from, sizeof from, ORACLES "%s", name);
    snprintf(path, sizeof path, "keys_%s", name); // others have other files
    snprintf(m->folder, sizeof m->folder, "%s", test_memory_tmp(path));
    snprintf(m->gguf, sizeof m->gguf, "%s/out.gguf", m->folder);
    snprintf(m->back, sizeof m->back, "%s/back", m->folder);
    snprintf(m->again, sizeof m->again, "%s/again.gguf", m->folder);
    tern_folder_create(m->folder, false);
    for (int i = 0; i < 3; i++) CHECK(copy_file(from, m->folder, others[i], i == 0));
    for (int i = 0; i < 3; i++) copy_folder(from, m->folder, parts[i]);
    snprintf(path, sizeof path, "%s/config.json", from);
    m->config = read_blob(path);
    if (tern_json_parse(&m->doc, m->config.bytes, m->config.n, NULL) != TERN_OK) return false;
    if (key) { // the model begins with this
        tern_strbuf text = {0};
        tern_json_writer w = {.out = &text};
        put_changed(&w, NULL, &m->doc, tern_json_root(&m->doc), key, value);
        char *copy = malloc(text.len);
        memcpy(copy, text.ptr, text.len);
        tern_json_free(&m->doc);
        free(m->config.bytes);
        m->config = (blob){.bytes = copy, .n = text.len};
        tern_strbuf_free(&text);
        if (tern_json_parse(&m->doc, copy, m->config.n, NULL) != TERN_OK) return false;
    }
    return model_write(m->folder, "config.json", m->config.bytes, m->config.n);
}

void model_end(model *m) {
    tern_json_free(&m->doc);
    free(m->config.bytes);
}

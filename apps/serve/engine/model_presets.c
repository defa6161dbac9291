#include "apps/serve/engine/model_presets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "apps/serve/http/http.h"
#include "base/alloc.h"
#include "base/file/out_set.h"
#include "base/json/json.h"
#include "base/os/os_file.h"
#include "base/status.h"

#define FOLDER     ".presets"
#define NAME_BYTES 120

// ---- Names -------------------------------------------------------------------------------------

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
}

bool preset_name_is_valid(tern_str name) {
    bool in_word = false, in_tag = false;
    if (name.len > NAME_BYTES) return false;
    for (size_t i = 0; i < name.len; i++) {
        const char c = name.ptr[i];
        if (is_letter(c)) {
            if (!in_word && c == '.') return false; // neither hidden nor "..": see file_of
            in_word = true;
        } else {
            if (!in_word || in_tag || (c != '/' && c != ':')) return false;
            in_tag = c == ':';
            in_word = false;
        }
    }
    return in_word;
}

tern_str name_without_latest(tern_str name) {
    const size_t n = strlen(":latest");
    if (name.len > n && tern_str_ends(name, ":latest")) name.len -= n;
    return name;
}

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

// One file's name: "/" and ":" are escaped, so that no name leads out of the folder.
static char *file_of(const char *folder, tern_str name) {
    tern_strbuf out = {0};
    name = name_without_latest(name);
    if (!preset_name_is_valid(name)) return NULL;
    tern_strbuf_printf(&out, "%s/" FOLDER "/", folder);
    for (size_t i = 0; i < name.len; i++)
        if (is_letter(name.ptr[i]))
            tern_strbuf_putc(&out, lower(name.ptr[i]));
        else
            tern_strbuf_puts(&out, name.ptr[i] == '/' ? "%2f" : "%3a");
    tern_strbuf_puts(&out, ".json");
    if (!out.failed) return out.ptr;
    tern_strbuf_free(&out);
    return NULL;
}

// ---- Files -------------------------------------------------------------------------------------

tern_status preset_write(const char *folder, tern_str name, const tern_strbuf *json,
                         tern_error *err) {
    char *path = file_of(folder, name), *in = tern_path_join(folder, FOLDER);
    tern_status status = path && in ? tern_folder_make(in, err) : tern_fail_memory(err, 0);
    if (status == TERN_OK && json->len > PRESET_BYTES)
        status = tern_fail(err, TERN_ERR_ARGUMENT, "this has more than %d bytes", PRESET_BYTES);
    if (status == TERN_OK) status = tern_file_write_private(path, json->ptr, json->len, err);
    tern_free(path);
    tern_free(in);
    return status;
}

tern_status preset_remove(const char *folder, tern_str name, tern_error *err) {
    char *path = file_of(folder, name);
    if (!path) return tern_fail_memory(err, 0);
    const bool ok = tern_file_remove(path);
    tern_free(path);
    return ok ? TERN_OK : tern_fail(err, TERN_ERR_IO, "it cannot be removed");
}

static char *read_all(const char *path, size_t *n) {
    FILE *file = fopen(path, "rb");
    char *text = file ? tern_alloc(TERN_MEM_SESSION, PRESET_BYTES + 1) : NULL;
    *n = text ? fread(text, 1, PRESET_BYTES + 1, file) : 0;
    if (file) fclose(file);
    if (text && *n > 0 && *n <= PRESET_BYTES) {
        char *fits = tern_realloc(TERN_MEM_SESSION, text, *n);
        return fits ? fits : text;
    }
    tern_free(text);
    return NULL;
}

static char *copy_text(const tern_json_doc *doc, const char *key) {
    const tern_str s =
        name_without_latest(tern_json_str(tern_json_get(doc, tern_json_root(doc), key)));
    const bool ok = s.len > 0 && !memchr(s.ptr, 0, s.len);
    return ok ? tern_strndup(TERN_MEM_SESSION, s.ptr, s.len) : NULL;
}

static void free_preset(preset *p) {
    if (!p) return;
    tern_free(p->name);
    tern_free(p->from);
    tern_free(p->json);
    tern_free(p->file);
    tern_free(p);
}

static preset *read_preset(const char *path, const char *file) {
    tern_json_doc doc = {0};
    preset *p = tern_alloc(TERN_MEM_SESSION, sizeof *p);
    if (!p) return NULL;
    p->stamp = tern_file_stamp(path);
    p->file = tern_strdup(TERN_MEM_SESSION, file);
    p->json = read_all(path, &p->n_json);
    if (p->json && tern_json_parse(&doc, p->json, p->n_json, NULL) == TERN_OK) {
        p->name = copy_text(&doc, "name");
        p->from = copy_text(&doc, "from");
    }
    tern_json_free(&doc);
    const bool ok = p->name && p->from && p->file;
    if (ok && preset_name_is_valid((tern_str){p->name, strlen(p->name)})) return p;
    free_preset(p);
    return NULL;
}

// ---- The list ----------------------------------------------------------------------------------

preset *preset_hold(preset *p) {
    if (p) p->n_users++;
    return p;
}

void preset_release(preset *p) {
    if (p && --p->n_users == 0 && p->is_gone) free_preset(p);
}

static void drop(preset *p) {
    p->is_gone = true;
    if (p->n_users == 0) free_preset(p);
}

preset *presets_find(const presets *p, tern_str name) {
    name = name_without_latest(name);
    for (size_t i = 0; i < p->n; i++)
        if (http_same_name(name, p->list[i]->name)) return p->list[i];
    return NULL;
}

// One that has not changed since it was read is taken out of the list; else it is read.
static preset *take_or_read(presets *old, const char *folder, const char *file) {
    char *path = tern_path_join(folder, file);
    preset *found = NULL;
    if (!path) return NULL;
    const tern_stamp now = tern_file_stamp(path);
    for (size_t i = 0; i < old->n && !found; i++) {
        if (!old->list[i] || strcmp(old->list[i]->file, file) != 0) continue;
        if (!tern_stamp_same(&old->list[i]->stamp, &now)) break;
        found = old->list[i];
        old->list[i] = NULL;
    }
    if (!found) found = read_preset(path, file);
    tern_free(path);
    return found;
}

void presets_refresh(presets *p, const char *folder) {
    tern_names names = {0};
    presets now = {0};
    char *at = tern_path_join(folder, FOLDER);
    if (!at || !tern_folder_is(at) || tern_folder_list(&names, at, "", ".json", NULL) != TERN_OK) {
        tern_free(at);
        presets_free(p);
        return;
    }
    for (size_t i = 0; i < names.n && now.n < PRESETS_MAX; i++) {
        preset *one = take_or_read(p, at, names.list[i]);
        if (!one) continue;
        if (tern_array_reserve(TERN_MEM_SESSION, &now.list, &now.capacity, now.n, 1) == 0)
            now.list[now.n++] = one;
        else
            drop(one);
    }
    tern_names_free(&names);
    tern_free(at);
    presets_free(p);
    *p = now;
}

void presets_free(presets *p) {
    for (size_t i = 0; i < p->n; i++)
        if (p->list[i]) drop(p->list[i]);
    tern_free(p->list);
    *p = (presets){0};
}

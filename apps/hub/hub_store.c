// The models folder: listing it, finding a model by name, and removing one. See hub.h.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "apps/hub/hub_private.h"
#include "base/alloc.h"
#include "base/os/os_library.h"
#include "base/status.h"

#define DEPTH_MAX 4 // OWNER/NAME/FOLDER/file.gguf

void hub_list_free(hub_list *list) {
    for (size_t i = 0; i < list->n; i++) {
        tern_free(list->models[i].name);
        tern_free(list->models[i].path);
    }
    tern_free(list->models);
    *list = (hub_list){0};
}

// ---- Sizes -------------------------------------------------------------------------------------

uint64_t hub_file_bytes(const char *path) {
    uint64_t n = 0;
    int fd;
    if (tern_file_open_regular(&fd, path, &n, NULL) != TERN_OK) return 0;
    tern_fd_close(fd);
    return n;
}

char *hub_part_path(const char *first, unsigned part, unsigned n_parts) {
    tern_str stem = hub_stem((tern_str){first, strlen(first)});
    tern_strbuf b = {0};
    tern_strbuf_append(&b, first, (size_t)(stem.ptr + stem.len - first));
    tern_strbuf_printf(&b, "-%05u-of-%05u.gguf", part, n_parts);
    char *path = b.failed ? NULL : tern_strdup(TERN_MEM_MISC, b.ptr);
    tern_strbuf_free(&b);
    return path;
}

// Calls fn with the path of every part of a GGUF file, from 1 on, until it returns false.
static bool each_part(const char *path, bool (*fn)(void *user, const char *path), void *user) {
    unsigned part, n_parts;
    if (!hub_split((tern_str){path, strlen(path)}, &part, &n_parts)) return fn(user, path);
    for (unsigned i = 1; i <= n_parts; i++) {
        char *one = hub_part_path(path, i, n_parts);
        bool ok = one && fn(user, one);
        tern_free(one);
        if (!ok) return false;
    }
    return true;
}

static bool add_size(void *user, const char *path) {
    hub_model *m = user;
    if (tern_path_look(path) != TERN_PATH_FILE) return false;
    m->bytes += hub_file_bytes(path);
    m->n_files++;
    return true;
}

static bool is_weights(const char *name) {
    tern_str s = {name, strlen(name)};
    return hub_ends(s, ".safetensors");
}

// Whether it is a folder with config.json and weights. Adds up its files' sizes.
static bool is_model_folder(hub_model *m, const char *path) {
    tern_names names = {0};
    bool has_config = false, has_weights = false;
    tern_folder_list(&names, path, "", "", NULL);
    for (size_t i = 0; i < names.n; i++) {
        has_config |= !strcmp(names.list[i], "config.json");
        has_weights |= is_weights(names.list[i]);
    }
    for (size_t i = 0; i < names.n && has_config && has_weights; i++) {
        char *file = tern_path_join(path, names.list[i]);
        if (file && hub_is_folder_file(names.list[i])) add_size(m, file);
        tern_free(file);
    }
    tern_names_free(&names);
    return has_config && has_weights;
}

// ---- Listing -----------------------------------------------------------------------------------

// The name of the model at `rel` in the folder: see hub.h. plain: with the file's name, if two
// files of one repository would have the same model name.
static void put_name(tern_strbuf *b, const char *rel, bool is_folder, bool plain) {
    tern_str path = {rel, strlen(rel)}, stem = hub_stem(path), label = hub_quantization(path);
    tern_str front = {rel, path.len - hub_last_part(path).len};
    const char *first = strchr(rel, '/'), *second = first ? strchr(first + 1, '/') : NULL;
    if (is_folder) {
        tern_strbuf_puts(b, rel);
    } else if (second && !plain) { // OWNER/NAME/...
        if (label.len == 0) label = stem;
        tern_strbuf_append(b, rel, (size_t)(second - rel));
        tern_strbuf_putc(b, ':');
        for (size_t i = 0; i < label.len; i++)
            tern_strbuf_putc(b, label.ptr == stem.ptr || label.ptr[i] < 'a' || label.ptr[i] > 'z'
                                    ? label.ptr[i]
                                    : (char)(label.ptr[i] - 'a' + 'A'));
    } else {
        tern_strbuf_append(b, front.ptr, front.len);
        tern_strbuf_append(b, stem.ptr, stem.len);
    }
}

static tern_status set_name(hub_model *m, const char *folder, bool plain, tern_error *err) {
    const char *rel = m->path + strlen(folder);
    tern_strbuf b = {0};
    while (*rel == '/') rel++;
    put_name(&b, rel, m->is_folder, plain);
    char *name = b.failed ? NULL : tern_strdup(TERN_MEM_MISC, tern_strbuf_text(&b));
    tern_strbuf_free(&b);
    if (!name) return tern_fail_memory(err, strlen(rel));
    tern_free(m->name);
    m->name = name;
    return TERN_OK;
}

static bool is_gguf_model(const char *name) {
    tern_str s = {name, strlen(name)};
    unsigned part, n_parts;
    return hub_is_gguf_model(s) && (!hub_split(s, &part, &n_parts) || part == 1);
}

static tern_status add_model(hub_list *out, hub_model *m, const char *path, tern_error *err) {
    m->path = tern_strdup(TERN_MEM_MISC, path);
    m->modified = (int64_t)tern_file_stamp(path).seconds;
    if (!m->path ||
        tern_array_reserve(TERN_MEM_MISC, &out->models, &out->capacity, out->n, 1) != 0) {
        tern_free(m->path);
        return tern_fail_memory(err, strlen(path));
    }
    out->models[out->n++] = *m;
    return TERN_OK;
}

static tern_status scan(hub_list *out, const char *folder, int depth, tern_error *err);

static tern_status scan_entry(hub_list *out, const char *path, int depth, tern_error *err) {
    hub_model m = {0};
    tern_path_kind kind = tern_path_look(path);
    if (kind == TERN_PATH_FILE && is_gguf_model(tern_path_name(path)) &&
        each_part(path, add_size, &m))
        return add_model(out, &m, path, err);
    if (kind != TERN_PATH_FOLDER) return TERN_OK;
    m.is_folder = true;
    if (is_model_folder(&m, path)) TERN_TRY(add_model(out, &m, path, err));
    return depth < DEPTH_MAX ? scan(out, path, depth + 1, err) : TERN_OK;
}

static tern_status scan(hub_list *out, const char *folder, int depth, tern_error *err) {
    tern_names names = {0};
    // A folder that cannot be read, or has just vanished, has no models.
    if (tern_folder_list(&names, folder, "", "", NULL) != TERN_OK) return TERN_OK;
    tern_status status = TERN_OK;
    for (size_t i = 0; i < names.n && status == TERN_OK; i++) {
        if (names.list[i][0] == '.') continue;
        char *path = tern_path_join(folder, names.list[i]);
        status = path ? scan_entry(out, path, depth, err) : tern_fail_memory(err, strlen(folder));
        tern_free(path);
    }
    tern_names_free(&names);
    return status;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const hub_model *)a)->name, ((const hub_model *)b)->name);
}

static tern_status name_all(hub_list *list, const char *folder, tern_error *err) {
    for (size_t i = 0; i < list->n; i++) TERN_TRY(set_name(&list->models[i], folder, false, err));
    if (list->n) qsort(list->models, list->n, sizeof *list->models, by_name);
    for (size_t i = 0; i < list->n;) {
        size_t end = i + 1;
        while (end < list->n && !strcmp(list->models[i].name, list->models[end].name)) end++;
        if (end - i == 1) i = end;
        for (; i < end; i++) TERN_TRY(set_name(&list->models[i], folder, true, err));
    }
    if (list->n) qsort(list->models, list->n, sizeof *list->models, by_name);
    return TERN_OK;
}

tern_status hub_list_folder(hub_list *out, const char *folder, tern_error *err) {
    *out = (hub_list){0};
    tern_status status = scan(out, folder, 1, err);
    if (status == TERN_OK) status = name_all(out, folder, err);
    if (status != TERN_OK) hub_list_free(out);
    return status;
}

// ---- Finding -----------------------------------------------------------------------------------

const hub_model *hub_find(const hub_list *list, const char *name, const hub_model **other) {
    const hub_model *best = NULL, *second = NULL;
    int most = 0;
    for (size_t i = 0; i < list->n; i++) {
        int fit = hub_name_fits(&list->models[i], name, strlen(name));
        if (fit == 0 || fit < most) continue;
        second = fit == most ? best : NULL;
        best = &list->models[i];
        most = fit;
    }
    if (other) *other = second;
    return second ? NULL : best;
}

static bool looks_like_path(const char *name) {
    static const char *const ends[] = {".gguf", ".safetensors", ".json", ".model"};
    tern_str s = {name, strlen(name)};
    if (*name == '/' || *name == '.') return true;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (hub_ends(s, ends[i])) return true;
    return false;
}

static tern_status find_in(const hub_list *list, const char *folder, const char *name,
                           const hub_model **out, tern_error *err) {
    const hub_model *other;
    *out = hub_find(list, name, &other);
    if (*out) return TERN_OK;
    if (other) {
        int n = 0;
        const hub_model *first = NULL;
        for (size_t i = 0; i < list->n; i++)
            if (hub_name_fits(&list->models[i], name, strlen(name))) {
                if (!first) first = &list->models[i];
                n++;
            }
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "'%s' may be any of %d models: %s, %s ... (`tern list`)", name, n,
                         first->name, other->name);
    }
    return tern_fail(err, TERN_ERR_IO,
                     "'%s': no such file or folder, and no model of that name in %s (`tern list` "
                     "shows those, `tern pull --list` those with a short name)",
                     name, folder);
}

char *hub_installed_folder(void) {
    char *folder = NULL, *out = NULL;
    if (tern_program_folder(&folder, NULL) != TERN_OK) return NULL;
    char *up = folder[0] ? tern_path_folder(folder) : NULL;
    char *shared = up ? tern_path_join(up, "share/tern/models") : NULL;
    if (shared && tern_folder_is(shared)) out = strdup(shared);
    tern_free(shared);
    tern_free(up);
    tern_free(folder);
    return out;
}

static bool has_name(const hub_list *list, const char *name) {
    for (size_t i = 0; i < list->n; i++)
        if (!strcmp(list->models[i].name, name)) return true;
    return false;
}

tern_status hub_list_installed(hub_list *list, tern_error *err) {
    hub_list more = {0};
    char *folder = hub_installed_folder();
    tern_status status = folder ? hub_list_folder(&more, folder, err) : TERN_OK;
    if (tern_array_reserve(TERN_MEM_MISC, &list->models, &list->capacity, list->n, more.n + 1) != 0)
        status = tern_fail_memory(err, more.n * sizeof *more.models);
    for (size_t i = 0; status == TERN_OK && i < more.n; i++) {
        if (has_name(list, more.models[i].name)) continue;
        list->models[list->n++] = more.models[i];
        more.models[i] = (hub_model){0};
    }
    if (list->n) qsort(list->models, list->n, sizeof *list->models, by_name);
    hub_list_free(&more);
    free(folder);
    return status;
}

// The user's own models come before installed ones.
static void find_installed(char **path, const char *name) {
    hub_list list;
    char *folder = hub_installed_folder();
    if (folder && hub_list_folder(&list, folder, NULL) == TERN_OK) {
        const hub_model *m = hub_find(&list, name, NULL);
        if (m) *path = strdup(m->path);
        hub_list_free(&list);
    }
    free(folder);
}

tern_status hub_resolve(char **path, const char *folder, const char *name, tern_error *err) {
    hub_list list;
    const hub_model *m = NULL;
    *path = NULL;
    if (tern_path_look(name) == TERN_PATH_NONE) {
        TERN_TRY(hub_list_folder(&list, folder, err));
        tern_status status = find_in(&list, folder, name, &m, err);
        if (m) *path = strdup(m->path);
        hub_list_free(&list);
        if (status == TERN_ERR_IO) find_installed(path, name);
        if (*path) return TERN_OK;
        // The error comes from opening the file.
        if (status != TERN_OK && !looks_like_path(name)) return status;
    }
    *path = strdup(name);
    return *path ? TERN_OK : tern_fail_memory(err, strlen(name));
}

// ---- Removing ----------------------------------------------------------------------------------

static bool remove_file(void *user, const char *path) {
    uint64_t *bytes = user, n = hub_file_bytes(path);
    if (!tern_file_remove(path)) return false;
    *bytes += n;
    return true;
}

// Removes the files of a folder that `is_one` accepts; NULL: all files.
static void remove_files(const char *folder, bool (*is_one)(const char *name), uint64_t *bytes) {
    tern_names names = {0};
    tern_folder_list(&names, folder, "", "", NULL);
    for (size_t i = 0; i < names.n; i++) {
        char *path = tern_path_join(folder, names.list[i]);
        if (path && (!is_one || is_one(names.list[i]))) remove_file(bytes, path);
        tern_free(path);
    }
    tern_names_free(&names);
}

// 1_Pooling, 2_Dense: parts of an embedding model.
static void remove_modules(const char *folder, uint64_t *bytes) {
    tern_names names = {0};
    tern_folder_list(&names, folder, "", "", NULL);
    for (size_t i = 0; i < names.n; i++) {
        char *path = tern_path_join(folder, names.list[i]);
        if (path && hub_is_module(names.list[i]) && tern_path_look_at(path) == TERN_PATH_FOLDER) {
            remove_files(path, hub_is_folder_file, bytes);
            tern_folder_remove(path);
        }
        tern_free(path);
    }
    tern_names_free(&names);
}

// Removes a GGUF's vision tower: the one with its name, and with the last model of a folder below
// `root` all of them.
static void remove_towers(const char *root, const char *folder, const char *model,
                          uint64_t *bytes) {
    tern_names names = {0};
    tern_folder_list(&names, folder, "", "", NULL);
    bool all = strlen(folder) > strlen(root);
    for (size_t i = 0; i < names.n; i++) all &= !is_gguf_model(names.list[i]);
    for (size_t i = 0; i < names.n; i++) {
        const char *name = names.list[i];
        bool is_named = strlen(name) > 7 && !strcmp(name + 7, tern_path_name(model));
        char *path = hub_is_tower(name) && (all || is_named) ? tern_path_join(folder, name) : NULL;
        if (path) remove_file(bytes, path);
        tern_free(path);
    }
    tern_names_free(&names);
}

void hub_remove_empty(const char *root, const char *path) {
    size_t n_root = strlen(root);
    char *folder = tern_strdup(TERN_MEM_MISC, path);
    while (folder && strlen(folder) > n_root) {
        tern_names names = {0};
        uint64_t bytes = 0;
        char *state = tern_path_join(folder, HUB_STATE);
        tern_folder_list(&names, folder, "", "", NULL);
        if (state && names.n == 1 && !strcmp(names.list[0], HUB_STATE)) {
            remove_files(state, NULL, &bytes);
            tern_folder_remove(state);
        }
        tern_names_free(&names);
        tern_free(state);
        if (!tern_folder_remove(folder)) break; // it is not empty
        char *up = tern_path_folder(folder);
        tern_free(folder);
        folder = up;
    }
    tern_free(folder);
}

static tern_status remove_model(const char *root, const hub_model *m, uint64_t *bytes,
                                tern_error *err) {
    char *folder = m->is_folder ? tern_strdup(TERN_MEM_MISC, m->path) : tern_path_folder(m->path);
    if (!folder) return tern_fail_memory(err, strlen(m->path));
    // The file that readers look for first is removed first: a half-removed model is not found.
    char *config = m->is_folder ? tern_path_join(folder, "config.json") : NULL;
    bool ok = m->is_folder ? config && remove_file(bytes, config)
                           : each_part(m->path, remove_file, bytes);
    int why = errno;
    if (ok && m->is_folder && tern_path_look_at(m->path) == TERN_PATH_FOLDER) {
        remove_files(folder, hub_is_folder_file, bytes);
        remove_modules(folder, bytes);
    }
    if (ok && !m->is_folder) remove_towers(root, folder, m->path, bytes);
    hub_remove_empty(root, folder);
    tern_free(config);
    tern_free(folder);
    if (ok) return TERN_OK;
    return tern_fail(err, TERN_ERR_IO, "%s: cannot be removed: %s", m->path, strerror(why));
}

// Removes the left-overs of an unfinished pull.
static bool remove_begun(const char *root, const char *name, uint64_t *bytes) {
    hub_name n;
    if (!hub_name_read(&n, name, strlen(name), NULL)) return false;
    char *folder = hub_folder_of(root, &n),
         *state = folder ? tern_path_join(folder, HUB_STATE) : NULL;
    bool is_there = state && tern_folder_is(state);
    if (is_there) {
        remove_files(state, NULL, bytes);
        tern_folder_remove(state);
        hub_remove_empty(root, folder);
    }
    tern_free(state);
    tern_free(folder);
    return is_there;
}

tern_status hub_remove(const char *folder, const char *name, uint64_t *bytes, tern_error *err) {
    hub_list list;
    const hub_model *m;
    *bytes = 0;
    TERN_TRY(hub_list_folder(&list, folder, err));
    tern_status status = find_in(&list, folder, name, &m, err);
    if (status == TERN_OK)
        status = remove_model(folder, m, bytes, err);
    else if (!hub_find(&list, name, &m) && !m && remove_begun(folder, name, bytes))
        status = TERN_OK;
    hub_list_free(&list);
    return status;
}

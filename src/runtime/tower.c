// A GGUF's vision tower, which is a separate file: llama.cpp's mmproj.
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_file.h"
#include "runtime/runtime.h"

// The model that a tower's file name refers to; NULL: none.
static const char *model_of(const char *name) {
    static const char begin[] = "mmproj-";
    return strncmp(name, begin, sizeof begin - 1) == 0 ? name + sizeof begin - 1 : NULL;
}

// Whether the model that it names is in the folder, too. Without memory to look: no.
static bool is_of_another(const char *folder, const char *name) {
    const char *model = model_of(name);
    char *path = model ? tern_path_join(folder, model) : NULL;
    bool is_there = path && tern_path_look(path) == TERN_PATH_FILE;
    tern_free(path);
    return is_there;
}

// The tower with the model's name, else the only one that belongs to no other model in the folder.
static tern_status choose(const tern_names *names, const char *folder, const char *model,
                          char **path, tern_error *err) {
    const char *name = NULL, *named = NULL;
    size_t n = 0;
    for (size_t i = 0; i < names->n; i++) {
        const char *its = model_of(names->list[i]);
        if (its && strcmp(its, tern_path_name(model)) == 0)
            named = names->list[i];
        else if (!is_of_another(folder, names->list[i]) && n++ == 0)
            name = names->list[i];
    }
    if (n > 1) name = NULL;
    if (named) name = named;
    if (!name) return TERN_OK;
    *path = tern_path_join(folder, name);
    return *path ? TERN_OK : tern_fail_memory(err, strlen(folder) + strlen(name) + 2);
}

// *path stays NULL if there is none. A folder that cannot be listed has none.
static tern_status find_beside(const char *model, char **path, tern_error *err) {
    tern_names names = {0};
    tern_error unused = {0};
    char *folder = tern_path_folder(model);
    if (!folder) return tern_fail_memory(err, strlen(model) + 1);
    tern_status status = tern_folder_list(&names, folder, "mmproj", ".gguf", &unused);
    if (status == TERN_OK)
        status = choose(&names, folder, model, path, err);
    else if (status == TERN_ERR_MEMORY)
        *err = unused;
    else
        status = TERN_OK;
    tern_names_free(&names);
    tern_free(folder);
    return status;
}

// asked: the caller named it, so it must fit.
static tern_status add(tern_file *file, const tern_arch **arch, tern_config *c, tern_file *tower,
                       bool asked, tern_error *err) {
    const char *path = tower->path;
    if (!asked && !tern_arch_fits_tower(*arch, c, tower)) {
        tern_file_close(tower);
        return TERN_OK;
    }
    // Another family's tower is added as it is: reading the config then says that it is another's.
    const tern_tower *own = tern_tower_of(*arch);
    bool joins = own && own->joined && tern_str_is(tern_file_projector(tower), own->projector);
    TERN_TRY(tern_file_add_tower(file, tower, joins, err));
    TERN_TRY(tern_arch_read(file, arch, c, err));
    if (c->vision.n_layers) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: a %s reads no images in texts", path,
                     (*arch)->name);
}

static tern_status add_file(tern_file *file, const tern_arch **arch, tern_config *c,
                            const char *path, bool asked, tern_error *err) {
    tern_file *tower;
    TERN_TRY(tern_file_open(&tower, path, err));
    return add(file, arch, c, tower, asked, err);
}

tern_status tern_tower_add(tern_file *file, const tern_tower_source *from, const tern_arch **arch,
                           tern_config *c, tern_error *err) {
    char *found = NULL;
    tern_file *tower;
    const char *mmproj = from->mmproj;
    const bool is_given = from->bytes && from->bytes->n_bytes;
    if (mmproj && !*mmproj && !is_given) return TERN_OK;
    if ((mmproj || is_given) && file->kind != TERN_FILE_GGUF)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "a folder has its part that sees with it: an mmproj goes with a GGUF");
    if (file->kind != TERN_FILE_GGUF) return TERN_OK;
    if (is_given) {
        TERN_TRY(tern_file_open_bytes(&tower, mmproj ? mmproj : "the mmproj in memory", from->bytes,
                                      err));
        return add(file, arch, c, tower, true, err);
    }
    if (mmproj) return add_file(file, arch, c, mmproj, true, err);
    if (!from->model) return TERN_OK;
    TERN_TRY(find_beside(from->model, &found, err));
    tern_status status = found ? add_file(file, arch, c, found, false, err) : TERN_OK;
    tern_free(found);
    return status;
}

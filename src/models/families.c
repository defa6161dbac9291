// The list of families, and which of them a file is of.
#include <string.h>
#include "models/core/config_fields.h"

#define TERN_ARCH_ROW(name) extern const tern_arch tern_arch_##name;
#include "models/models.inc"
#undef TERN_ARCH_ROW

const tern_arch *const *tern_arch_list(size_t *n) {
    static const tern_arch *const list[] = {
#define TERN_ARCH_ROW(name) &tern_arch_##name,
#include "models/models.inc"
#undef TERN_ARCH_ROW
    };
    *n = sizeof list / sizeof *list;
    return list;
}

const tern_arch *tern_arch_fresh(bool bitlinear) {
    size_t n;
    const tern_arch *const *list = tern_arch_list(&n);
    for (size_t i = 0; i < n; i++)
        if (list[i]->fresh == (bitlinear ? TERN_FRESH_TERNARY : TERN_FRESH_FLOATS)) return list[i];
    return NULL;
}

// ---- Which architecture ------------------------------------------------------------------------

static bool in_list(const char *const *list, tern_str name) {
    for (; *list; list++)
        if (tern_str_is(name, *list)) return true;
    return false;
}

// timm has "vit_tiny_patch16_224" in its own member: the part before the first "_".
static tern_str hf_type(const tern_file *file) {
    tern_str name = tern_json_str(tern_json_path(&file->config, "model_type"));
    if (name.ptr) return name;
    name = tern_json_str(tern_json_path(&file->config, "architecture"));
    const char *end = name.ptr ? memchr(name.ptr, '_', name.len) : NULL;
    if (end) name.len = (size_t)(end - name.ptr);
    return name;
}

static tern_status find_arch(const tern_file *file, tern_config_source *s, const tern_arch **arch,
                             tern_error *err) {
    bool gguf = file->kind == TERN_FILE_GGUF;
    tern_str name = {NULL, 0};
    if (gguf)
        tern_file_meta_str(file, "general.architecture", &name);
    else
        name = hf_type(file);
    const char *key = gguf ? "general.architecture" : "config.json: model_type";
    if (!name.ptr || name.len == 0 || name.len >= sizeof s->prefix)
        return tern_fail(err, TERN_ERR_FORMAT, "%s is missing", key);
    memcpy(s->prefix, name.ptr, name.len);
    s->prefix[name.len] = 0;
    size_t n;
    const tern_arch *const *list = tern_arch_list(&n);
    for (size_t i = 0; i < n; i++) {
        if (!in_list(gguf ? list[i]->gguf_names : list[i]->hf_types, name)) continue;
        if (list[i]->is_mine && !list[i]->is_mine(file)) continue;
        *arch = s->arch = list[i];
        return TERN_OK;
    }
    if (gguf && tern_str_is(name, "clip"))
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "this is a model's part that sees (mmproj): open the model's own file, "
                         "and this one with it");
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s is \"%s\": this architecture is not supported",
                     key, s->prefix);
}

// ---- Its config --------------------------------------------------------------------------------

tern_status tern_arch_read_watched(const tern_file *file, const tern_config_watch *watch,
                                   const tern_arch **arch, tern_config *c, tern_error *err) {
    struct tern_config_odd odd = {0};
    tern_config_source s = {.file = file, .odd = &odd, .watch = watch};
    *c = (tern_config){0};
    TERN_TRY(find_arch(file, &s, arch, err));
    tern_status status = tern_config_read(&s, c, err);
    if (!odd.key[0]) return status;
    return tern_fail(err, TERN_ERR_FORMAT, "config: %s is not %s", odd.key, odd.expected);
}

tern_status tern_arch_read(const tern_file *file, const tern_arch **arch, tern_config *c,
                           tern_error *err) {
    return tern_arch_read_watched(file, NULL, arch, c, err);
}

// ---- Its tower ---------------------------------------------------------------------------------

// Whether the architecture has the name of the other in GGUF.
static bool is_namesake(const tern_arch *arch, const tern_arch *of) {
    return arch->gguf_names && of->gguf_names && !strcmp(arch->gguf_names[0], of->gguf_names[0]);
}

// A model with its tower may be of another architecture than its text alone.
bool tern_arch_fits_tower(const tern_arch *arch, const tern_config *c, const tern_file *tower) {
    tern_str name = {NULL, 0};
    int64_t n_out = 0;
    bool deep = false;
    const tern_meta *flags = tern_file_meta(tower, TERN_CLIP "is_deepstack_layers");
    double flag;
    for (uint64_t i = 0; flags && i < flags->n; i++)
        deep |= tern_meta_element(flags, i, &flag) && flag != 0;
    tern_file_meta_str(tower, "general.architecture", &name);
    tern_file_meta_int(tower, TERN_CLIP "projection_dim", &n_out);
    size_t n;
    const tern_arch *const *list = tern_arch_list(&n);
    for (size_t i = 0; i < n && tern_str_is(name, "clip") && n_out == c->n_embd; i++) {
        const tern_tower *own = is_namesake(list[i], arch) ? tern_tower_of(list[i]) : NULL;
        if (own && tern_str_is(tern_file_projector(tower), own->projector) &&
            deep == list[i]->reads_deep)
            return true;
    }
    return false;
}

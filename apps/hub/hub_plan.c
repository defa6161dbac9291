// Chooses the files of a repository that make the requested model: the same choice as in the
// browser package, and also the parts of embedding models.
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "apps/hub/hub_private.h"
#include "base/alloc.h"
#include "base/json/json.h"
#include "base/status.h"

// ---- Kinds of files ----------------------------------------------------------------------------

static bool has_word(tern_str name, const char *word) {
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= name.len; i++)
        if (hub_begins((tern_str){name.ptr + i, name.len - i}, word)) return true;
    return false;
}

bool hub_is_gguf_model(tern_str name) {
    return hub_ends(name, ".gguf") && !has_word(name, "mmproj") && !has_word(name, "imatrix");
}

bool hub_is_tower(const char *name) {
    tern_str s = {name, strlen(name)};
    return hub_begins(s, "mmproj") && hub_ends(s, ".gguf");
}

bool hub_is_folder_file(const char *name) {
    static const char *const names[] = {"config.json",
                                        "generation_config.json",
                                        "tokenizer.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "chat_template.jinja",
                                        "preprocessor_config.json",
                                        "processor_config.json",
                                        "modules.json",
                                        "config_sentence_transformers.json",
                                        "sentence_bert_config.json",
                                        "quantize_config.json",
                                        "quant_config.json",
                                        "model.safetensors",
                                        "model.safetensors.index.json"};
    unsigned part, n_parts;
    int n = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) return true;
    return sscanf(name, "model-%5u-of-%5u.safetensors%n", &part, &n_parts, &n) == 2 && n > 0 &&
           !name[n];
}

bool hub_is_module(const char *name) {
    size_t digits = strspn(name, "0123456789");
    return digits > 0 && name[digits] == '_' && isalpha((unsigned char)name[digits + 1]);
}

// ---- Reading the listing -----------------------------------------------------------------------

// A name from a hub becomes a path here: it must not lead elsewhere.
static bool is_safe(tern_str name) {
    if (name.len == 0 || name.len > 1000) return false;
    for (size_t i = 0; i < name.len; i++) {
        unsigned char c = (unsigned char)name.ptr[i];
        bool begins = i == 0 || name.ptr[i - 1] == '/';
        if (c < 32 || c == 127 || strchr("\\:*?\"<>|", c)) return false;
        if (begins && (c == '.' || c == '/')) return false;
    }
    return name.ptr[name.len - 1] != '/';
}

static void read_digest(hub_file *f, tern_str hex, bool is_git) {
    if (hub_begins(hex, "sha256:")) hex = (tern_str){hex.ptr + 7, hex.len - 7};
    if (f->digest[0] || hex.len != (is_git ? 40 : 64)) return;
    for (size_t i = 0; i < hex.len; i++) {
        if (!isxdigit((unsigned char)hex.ptr[i])) {
            f->digest[0] = 0;
            return;
        }
        f->digest[i] = (char)tolower((unsigned char)hex.ptr[i]);
    }
    f->digest[hex.len] = 0;
    f->is_git = is_git;
}

static tern_status add_file(hub_plan *all, const tern_json_doc *doc, const tern_json *one,
                            tern_error *err) {
    tern_str name = tern_json_str(tern_json_get(doc, one, "rfilename"));
    const tern_json *lfs = tern_json_get(doc, one, "lfs");
    hub_file f = {0};
    int64_t n = tern_json_int(tern_json_get(doc, lfs, "size"), -1);
    if (n < 0) n = tern_json_int(tern_json_get(doc, one, "size"), -1);
    f.bytes = n < 0 ? UINT64_MAX : (uint64_t)n;
    read_digest(&f, tern_json_str(tern_json_get(doc, lfs, "sha256")), false);
    read_digest(&f, tern_json_str(tern_json_get(doc, lfs, "oid")), false);
    if (!lfs) read_digest(&f, tern_json_str(tern_json_get(doc, one, "blobId")), true);
    f.name = tern_strndup(TERN_MEM_MISC, name.ptr ? name.ptr : "", name.len);
    if (!f.name || tern_array_reserve(TERN_MEM_MISC, &all->files, &all->capacity, all->n, 1) != 0) {
        tern_free(f.name);
        return tern_fail_memory(err, name.len);
    }
    all->files[all->n++] = f;
    return TERN_OK;
}

// The licence on the model card, else in a tag.
static void read_licence(hub_plan *all, const tern_json_doc *doc) {
    const tern_json *root = tern_json_root(doc);
    const tern_json *tags = tern_json_get(doc, root, "tags");
    tern_str s = tern_json_str(tern_json_get(doc, tern_json_get(doc, root, "cardData"), "license"));
    for (const tern_json *t = tern_json_first(doc, tags); t && !s.ptr;
         t = tern_json_next(doc, tags, t))
        if (hub_begins(tern_json_str(t), "license:"))
            s = (tern_str){tern_json_str(t).ptr + 8, tern_json_str(t).len - 8};
    for (size_t i = 0; s.ptr && i < s.len && i + 1 < sizeof all->licence; i++)
        all->licence[i] = s.ptr[i] > 32 && s.ptr[i] < 127 ? s.ptr[i] : '?';
}

static tern_status read_listing(hub_plan *all, const char *json, size_t n, tern_error *err) {
    tern_json_doc doc = {0};
    tern_status status = tern_json_parse(&doc, json, n, err);
    const tern_json *list = tern_json_get(&doc, tern_json_root(&doc), "siblings");
    tern_str sha = tern_json_str(tern_json_get(&doc, tern_json_root(&doc), "sha"));
    if (status == TERN_OK && !tern_json_is(list, TERN_JSON_ARRAY))
        status = tern_fail(err, TERN_ERR_FORMAT, "the hub's answer lists no files");
    for (const tern_json *one = tern_json_first(&doc, list); one && status == TERN_OK;
         one = tern_json_next(&doc, list, one))
        status = add_file(all, &doc, one, err);
    if (status == TERN_OK) read_licence(all, &doc);
    if (status == TERN_OK && hub_is_word(sha)) {
        all->commit = tern_strndup(TERN_MEM_MISC, sha.ptr, sha.len);
        if (!all->commit) status = tern_fail_memory(err, sha.len);
    }
    tern_json_free(&doc);
    return status;
}

void hub_plan_free(hub_plan *plan) {
    for (size_t i = 0; i < plan->n; i++) tern_free(plan->files[i].name);
    tern_free(plan->files);
    tern_free(plan->commit);
    *plan = (hub_plan){0};
}

// ---- Choosing ----------------------------------------------------------------------------------

typedef struct chooser {
    hub_plan *all, *out; // chosen files move from `all` to `out`
    const hub_name *name;
    bool text_only;
    tern_error *err;
} chooser;

static tern_str name_of(const hub_file *f) { return (tern_str){f->name, strlen(f->name)}; }

static tern_status take(const chooser *c, hub_file *f) {
    if (!is_safe(name_of(f)))
        return tern_fail(c->err, TERN_ERR_FORMAT,
                         "the hub has a file '%.200s': such a name is not written here", f->name);
    if (tern_array_reserve(TERN_MEM_MISC, &c->out->files, &c->out->capacity, c->out->n, 1) != 0)
        return tern_fail_memory(c->err, sizeof *f);
    c->out->files[c->out->n++] = *f;
    f->name = NULL;
    return TERN_OK;
}

static hub_file *find_file(const chooser *c, const char *name) {
    for (size_t i = 0; i < c->all->n; i++)
        if (c->all->files[i].name && !strcmp(c->all->files[i].name, name)) return &c->all->files[i];
    return NULL;
}

// A GGUF's vision tower: in the same folder, where it is looked for later. Among several, the one
// with the model's name, else one of a type with little or no loss; NULL: none.
static hub_file *find_tower(const chooser *c, const hub_file *model) {
    static const char *const types[] = {"f16", "bf16", "q8_0", "f32", ""};
    const size_t n_types = sizeof types / sizeof *types;
    const char *name = tern_path_name(model->name);
    size_t n_folder = (size_t)(name - model->name), best = n_types;
    hub_file *found = NULL;
    for (size_t i = 0; i < c->all->n; i++) {
        hub_file *f = &c->all->files[i];
        bool beside = f->name && strncmp(f->name, model->name, n_folder) == 0 &&
                      !strchr(f->name + n_folder, '/') && hub_is_tower(f->name + n_folder);
        if (!beside) continue;
        if (strlen(f->name + n_folder) > 7 && !strcmp(f->name + n_folder + 7, name)) return f;
        tern_str label = hub_quantization(name_of(f));
        size_t rank = 0;
        while (rank + 1 < n_types &&
               !(label.ptr && hub_same(label, (tern_str){types[rank], strlen(types[rank])})))
            rank++;
        if (rank < best) found = f;
        if (rank < best) best = rank;
    }
    return found;
}

static tern_status take_tower(const chooser *c, const hub_file *model) {
    bool wanted = !c->text_only && !hub_is_tower(tern_path_name(model->name));
    hub_file *tower = wanted ? find_tower(c, model) : NULL;
    return tower ? take(c, tower) : TERN_OK;
}

// Chooses a GGUF file with the other parts of its set, and before them its vision tower.
static tern_status take_set(const chooser *c, hub_file *first) {
    unsigned part, n_parts;
    TERN_TRY(take_tower(c, first));
    if (!hub_split(name_of(first), &part, &n_parts)) return take(c, first);
    for (unsigned i = n_parts; i >= 1; i--) {
        char *name = hub_part_path(first->name, i, n_parts);
        hub_file *f = i == 1 ? first : name ? find_file(c, name) : NULL;
        tern_status status =
            f      ? take(c, f)
            : name ? tern_fail(c->err, TERN_ERR_FORMAT, "the repository has no file '%s'", name)
                   : tern_fail_memory(c->err, 0);
        tern_free(name);
        TERN_TRY(status);
    }
    return TERN_OK;
}

// The path within the requested folder; {NULL, 0}: outside.
static tern_str within(const chooser *c, const hub_file *f) {
    tern_str s = name_of(f), folder = c->name->inside;
    if (folder.len == 0) return s;
    if (s.len <= folder.len + 1 || memcmp(s.ptr, folder.ptr, folder.len) != 0 ||
        s.ptr[folder.len] != '/')
        return (tern_str){NULL, 0};
    return (tern_str){s.ptr + folder.len + 1, s.len - folder.len - 1};
}

// Whether a GGUF file may be the requested one: a single file, or the first of a set. deep: in
// subfolders, too.
static bool is_candidate(const chooser *c, const hub_file *f, bool deep) {
    unsigned part, n_parts;
    tern_str s = within(c, f);
    if (!s.ptr || !hub_is_gguf_model(s) || (!deep && memchr(s.ptr, '/', s.len))) return false;
    return !hub_split(s, &part, &n_parts) || part == 1;
}

// A candidate of a type, the last one; *n: how many there are.
static hub_file *of_type(const chooser *c, bool deep, tern_str type, size_t *n) {
    hub_file *found = NULL;
    *n = 0;
    for (size_t i = 0; i < c->all->n; i++) {
        hub_file *f = &c->all->files[i];
        if (!is_candidate(c, f, deep)) continue;
        if (type.ptr && !hub_same(hub_quantization(name_of(f)), type)) continue;
        found = f;
        ++*n;
    }
    return found;
}

static tern_status fail_choice(const chooser *c, bool deep, const char *what) {
    tern_strbuf list = {0};
    for (size_t i = 0; i < c->all->n && list.len < 300; i++) {
        if (!is_candidate(c, &c->all->files[i], deep)) continue;
        tern_strbuf_printf(&list, "%s%s", list.len ? ", " : "", c->all->files[i].name);
    }
    tern_fail(c->err, TERN_ERR_ARGUMENT, "%s; name one of: %s", what, tern_strbuf_text(&list));
    tern_strbuf_free(&list);
    return TERN_ERR_ARGUMENT;
}

static tern_status choose_type(const chooser *c) {
    size_t n;
    char what[160];
    tern_str type = c->name->quantization;
    hub_file *f = of_type(c, true, type, &n);
    if (n == 1) return take_set(c, f);
    snprintf(what, sizeof what, "the repository has %s GGUF file of type %.*s",
             n ? "more than one" : "no", type.len < 60 ? (int)type.len : 60, type.ptr);
    return fail_choice(c, true, what);
}

// Ternary types first, then those that lose least for their size.
static hub_file *preferred(const chooser *c) {
    static const char *const types[] = {"i2_s", "tq1_0", "tq2_0", "q4_k_m", "q4_k_s", "q5_k_m",
                                        "q6_k", "q8_0",  "q4_0",  "bf16",   "f16",    "f32"};
    size_t n;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        hub_file *f = of_type(c, false, (tern_str){types[i], strlen(types[i])}, &n);
        if (n == 1) return f;
    }
    return NULL;
}

// "config.json", or "1_Pooling/config.json".
static bool belongs_to_folder(tern_str s) {
    char name[300], *slash;
    if (!s.ptr || s.len >= sizeof name) return false;
    memcpy(name, s.ptr, s.len);
    name[s.len] = 0;
    slash = strchr(name, '/');
    if (!slash) return hub_is_folder_file(name);
    *slash = 0;
    return hub_is_module(name) && hub_is_folder_file(slash + 1);
}

static tern_status choose_folder(const chooser *c) {
    hub_file *config = NULL;
    bool has_weights = false;
    for (size_t i = 0; i < c->all->n; i++) {
        hub_file *f = &c->all->files[i];
        tern_str s = f->name ? within(c, f) : (tern_str){NULL, 0};
        if (!belongs_to_folder(s)) continue;
        if (tern_str_is(s, "config.json")) {
            config = f;
            continue;
        }
        has_weights |= hub_ends(s, ".safetensors");
        TERN_TRY(take(c, f));
    }
    if (!config || !has_weights)
        return tern_fail(c->err, TERN_ERR_FORMAT,
                         "there is neither a GGUF file nor config.json with model.safetensors%s",
                         c->name->inside.len ? " in that folder" : "");
    return take(c, config);
}

static tern_status choose(const chooser *c) {
    size_t n;
    tern_str inside = c->name->inside;
    if (hub_ends(inside, ".gguf")) {
        for (size_t i = 0; i < c->all->n; i++)
            if (tern_str_eq(name_of(&c->all->files[i]), inside))
                return take_set(c, &c->all->files[i]);
        return tern_fail(c->err, TERN_ERR_ARGUMENT, "the repository has no file '%.*s'",
                         inside.len < 200 ? (int)inside.len : 200, inside.ptr);
    }
    if (c->name->quantization.len && !tern_str_is(c->name->quantization, "latest"))
        return choose_type(c);
    hub_file *f = of_type(c, false, (tern_str){NULL, 0}, &n);
    if (n > 1) f = preferred(c);
    if (n > 1 && !f) return fail_choice(c, false, "the repository has several GGUF files");
    return f ? take_set(c, f) : choose_folder(c);
}

tern_status hub_plan_read(hub_plan *out, const hub_name *n, bool text_only, const char *json,
                          size_t n_json, tern_error *err) {
    hub_plan all = {0};
    *out = (hub_plan){0};
    tern_status status = read_listing(&all, json, n_json, err);
    const chooser c = {&all, out, n, text_only, err};
    if (status == TERN_OK) status = choose(&c);
    out->commit = all.commit;
    memcpy(out->licence, all.licence, sizeof out->licence);
    all.commit = NULL;
    hub_plan_free(&all);
    if (status != TERN_OK) hub_plan_free(out);
    return status;
}

char *hub_folder_of(const char *root, const hub_name *n) {
    tern_strbuf b = {0};
    tern_strbuf_printf(&b, "%s/%.*s/%.*s", root, (int)n->owner.len, n->owner.ptr, (int)n->name.len,
                       n->name.ptr);
    if (n->revision.len && !tern_str_is(n->revision, "main")) {
        tern_strbuf_putc(&b, '@');
        for (size_t i = 0; i < n->revision.len; i++)
            tern_strbuf_putc(&b, n->revision.ptr[i] == '/' ? '-' : n->revision.ptr[i]);
    }
    char *path = b.failed ? NULL : tern_strdup(TERN_MEM_MISC, b.ptr);
    tern_strbuf_free(&b);
    return path;
}

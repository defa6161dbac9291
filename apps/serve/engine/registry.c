// The list of models and their names. See registry.h.
#include "apps/serve/engine/registry.h"

#include <stdlib.h>
#include <string.h>
#include "apps/serve/http/serve_log.h"
#include "base/alloc.h"
#include "tern.h"
#include "base/hash.h"
#include "base/os/os_file.h"
#include "base/os/os_time.h"
#include "base/status.h"

#define LOOK_AGAIN    2   // seconds between two looks at the folder
#define STUCK_SECONDS 120 // a step never takes so long

static bool is_listed(const served *s) { return !s->is_gone && !s->is_bad; }

// ---- Adding ------------------------------------------------------------------------------------

static void free_served(served *s) {
    if (!s) return;
    served_close_now(s);
    tern_free(s->about.name);
    tern_free(s->about.path);
    tern_free(s);
}

static tern_status read_facts(served *s, tern_error *err) {
    tern_status status = hub_read_facts(&s->facts, s->about.path, err);
    s->bytes = (uint64_t)s->facts.file_bytes;
    if (status == TERN_OK && s->facts.refusal[0])
        status = tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: %s", s->about.path, s->facts.refusal);
    return status;
}

// The position of a folder's model in the list.
static size_t place_of(const registry *r, const served *s) {
    size_t at = 0;
    while (at < r->n && (s->is_given || r->list[at]->is_given ||
                         strcmp(r->list[at]->about.name, s->about.name) < 0))
        at++;
    return at;
}

// about: its texts are copied.
static tern_status add(served **out, registry *r, const hub_model *about, tern_str name,
                       bool is_given, tern_error *err) {
    served *s = tern_alloc(TERN_MEM_SESSION, sizeof *s);
    *out = NULL;
    if (!s) return tern_fail_memory(err, sizeof *s);
    s->registry = r;
    s->about = *about;
    s->about.name = tern_strndup(TERN_MEM_SESSION, name.ptr, name.len);
    s->about.path = tern_strdup(TERN_MEM_SESSION, about->path);
    s->is_given = is_given;
    s->keep_seconds = r->desc->keep_seconds;
    if (!s->about.name || !s->about.path ||
        tern_array_reserve(TERN_MEM_SESSION, &r->list, &r->capacity, r->n, 1) != 0) {
        free_served(s);
        return tern_fail_memory(err, sizeof *s);
    }
    size_t at = place_of(r, s);
    memmove(r->list + at + 1, r->list + at, (r->n - at) * sizeof *r->list);
    r->list[at] = s;
    r->n++;
    *out = s;
    return TERN_OK;
}

static tern_status add_given(registry *r, const serve_model *m, tern_error *err) {
    served *s;
    tern_str name = m->name ? (tern_str){m->name, strlen(m->name)} : name_of_path(m->path);
    const hub_model about = {.path = (char *)m->path,
                             .modified = (int64_t)tern_file_stamp(m->path).seconds,
                             .is_folder = tern_path_look(m->path) == TERN_PATH_FOLDER};
    for (size_t i = 0; i < r->n; i++)
        if (tern_str_is(name, r->list[i]->about.name))
            return tern_fail(err, TERN_ERR_ARGUMENT, "%s and %s would both be called '%s'",
                             r->list[i]->about.path, m->path, r->list[i]->about.name);
    TERN_TRY(add(&s, r, &about, name, true, err));
    tern_status status = read_facts(s, err);
    // Opening the first model gives a better error.
    return r->n == 1 ? TERN_OK : status;
}

// ---- The folder --------------------------------------------------------------------------------

static served *by_path(const registry *r, const char *path) {
    for (size_t i = 0; i < r->n; i++)
        if (!strcmp(r->list[i]->about.path, path)) return r->list[i];
    return NULL;
}

// A name from the command line takes precedence over the same one in the folder.
static bool is_taken(const registry *r, const served *s) {
    for (size_t i = 0; i < r->n; i++)
        if (r->list[i] != s && r->list[i]->is_given &&
            !strcmp(r->list[i]->about.name, s->about.name))
            return true;
    return false;
}

static void look_at(served *s) {
    tern_error err = {0};
    s->is_gone = false;
    s->is_bad = is_taken(s->registry, s);
    if (s->is_bad || read_facts(s, &err) == TERN_OK) return;
    s->is_bad = true;
    if (!s->registry->desc->is_silent)
        log_line("skipped", "model=\"%s\" reason=\"%s\"", s->about.name, err.message);
}

static void note(registry *r, const hub_model *m) {
    served *s = by_path(r, m->path);
    if (!s && add(&s, r, m, (tern_str){m->name, strlen(m->name)}, false, NULL) == TERN_OK)
        look_at(s);
    if (!s || s->is_given || (s->about.modified == m->modified && !s->is_gone)) return;
    registry_drop(s); // the file has changed: closes the open model once it is unused
    if (s->state != SERVED_CLOSED) return; // the next scan finds it changed, too
    s->about.modified = m->modified;
    look_at(s);
}

void registry_refresh(registry *r) {
    double now = tern_seconds();
    hub_list found;
    if (!r->desc->folder || (r->looked > 0 && now - r->looked < LOOK_AGAIN)) return;
    r->looked = now;
    if (hub_list_folder(&found, r->desc->folder, NULL) != TERN_OK) return;
    for (size_t i = 0; i < found.n; i++) note(r, &found.models[i]);
    for (size_t i = 0; i < r->n; i++) {
        served *s = r->list[i];
        bool is_there = s->is_given;
        for (size_t k = 0; k < found.n && !is_there; k++)
            is_there = !strcmp(found.models[k].path, s->about.path);
        if (is_there) continue;
        s->is_gone = true;
        registry_drop(s);
    }
    hub_list_free(&found);
    presets_refresh(&r->presets, r->desc->folder);
}

void registry_look_again(registry *r) { r->looked = 0; }

// ---- Finding -----------------------------------------------------------------------------------

static size_t count_listed(const registry *r) {
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++) n += is_listed(r->list[i]);
    return n;
}

// An alias's name and model: "NAME=MODEL".
static tern_str alias_name(const char *alias) { return (tern_str){alias, strcspn(alias, "=")}; }
static tern_str alias_model(const char *alias) {
    size_t n = strcspn(alias, "=");
    if (alias[n]) n++;
    return (tern_str){alias + n, strlen(alias + n)};
}

static tern_str resolve_alias(const registry *r, tern_str name) {
    tern_str plain = name_without_latest(name);
    for (size_t i = 0; i < r->desc->aliases.n; i++)
        if (tern_str_eq(alias_name(r->desc->aliases.items[i]), plain))
            return alias_model(r->desc->aliases.items[i]);
    return name;
}

size_t registry_adapter(const registry *r, tern_str name) {
    const adapters *a = &r->adapters;
    if (a->n == 0 || name.len == 0) return SIZE_MAX;
    const char *model = r->list[0]->about.name;
    const size_t n = strlen(model);
    name = name_without_latest(resolve_alias(r, name));
    if (name.len > n && !memcmp(name.ptr, model, n) && name.ptr[n] == ':')
        name = (tern_str){name.ptr + n + 1, name.len - n - 1};
    return adapters_find(a, name);
}

// The best match; *other: another that matches as well. Models from the command line win.
static served *best_fit(const registry *r, tern_str name, served **other) {
    served *best = NULL;
    int most = 0;
    *other = NULL;
    for (size_t i = 0; i < r->n; i++) {
        served *s = r->list[i];
        int fit = is_listed(s) ? hub_name_fits(&s->about, name.ptr, name.len) : 0;
        if (fit == 0 || fit < most || (fit == most && best->is_given && !s->is_given)) continue;
        *other = fit == most ? best : NULL;
        best = s;
        most = fit;
    }
    return best;
}

static served *look_up(const registry *r, tern_str name, tern_error *err) {
    if (registry_adapter(r, name) != SIZE_MAX) return r->list[0];
    served *other, *best = best_fit(r, resolve_alias(r, name), &other);
    int n = name.len < 100 ? (int)name.len : 100;
    if (best && !other) return best;
    if (best)
        tern_fail(err, TERN_ERR_ARGUMENT, "model '%.*s' may be '%s' or '%s'", n, name.ptr,
                  other->about.name, best->about.name);
    else if (r->n == 1)
        tern_fail(err, TERN_ERR_ARGUMENT, "model '%.*s' not found: this is '%s'", n, name.ptr,
                  r->list[0]->about.name);
    else
        tern_fail(err, TERN_ERR_ARGUMENT, "model '%.*s' not found", n, name.ptr);
    return NULL;
}

static served *find_default(const registry *r, tern_error *err) {
    if (r->n && r->list[0]->is_given) return r->list[0];
    size_t n = count_listed(r);
    for (size_t i = 0; i < r->n && n == 1; i++)
        if (is_listed(r->list[i])) return r->list[i];
    tern_fail(
        err, TERN_ERR_ARGUMENT,
        n ? "'model' must be given: there are %zu (GET /v1/models)" : "there is no model here", n);
    return NULL;
}

served *registry_find(registry *r, tern_str name, tern_error *err) {
    served *s = name.len ? look_up(r, name, err) : find_default(r, err);
    if (s || !r->desc->folder) return s;
    registry_refresh(r);
    return name.len ? look_up(r, name, err) : find_default(r, err);
}

preset *registry_preset(registry *r, tern_str name) {
    if (!r->desc->folder || !name.len) return NULL;
    registry_refresh(r);
    return presets_find(&r->presets, name);
}

const char *served_ability(const served *s) {
    const bool is_language = !strcmp(s->facts.kind, "language") && !s->facts.transcribes;
    bool writes = s->state == SERVED_OPEN ? s->generates : is_language;
    tern_media_info info;
    tern_model_get_media_info(s->state == SERVED_OPEN ? s->model : NULL, &info);
    if (info.is_tts) return "speech";
    if (writes) return "completion";
    if (info.is_asr || s->facts.transcribes) return "transcription";
    return !strcmp(s->facts.kind, "reranker") ? "rerank" : "embedding";
}

bool served_fills(const served *s) { return s->state == SERVED_OPEN && s->infill.fills_in; }

bool served_sees(const served *s) {
    tern_media_info info;
    if (s->state != SERVED_OPEN) return s->facts.sees;
    tern_model_get_media_info(s->model, &info);
    return s->generates && info.has_vision;
}

served *registry_recognizer(const registry *r) {
    for (size_t i = 0; i < r->n; i++)
        if (is_listed(r->list[i]) && r->list[i]->facts.transcribes) return r->list[i];
    return NULL;
}

tern_str registry_name(registry *r, size_t i, served **model) {
    for (size_t k = 0; k < r->n; k++) {
        if (!is_listed(r->list[k]) || i-- > 0) continue;
        *model = r->list[k];
        return (tern_str){r->list[k]->about.name, strlen(r->list[k]->about.name)};
    }
    for (size_t k = 0; k < r->adapters.n; k++) {
        if (i-- > 0) continue;
        *model = r->list[0];
        return r->adapters.names[k];
    }
    for (size_t k = 0; k < r->desc->aliases.n; k++) {
        const char *alias = r->desc->aliases.items[k];
        served *s = look_up(r, alias_model(alias), NULL);
        if (!s || i-- > 0) continue;
        *model = s;
        return alias_name(alias);
    }
    for (size_t k = 0; k < r->presets.n; k++) {
        const preset *p = r->presets.list[k];
        served *s = look_up(r, (tern_str){p->from, strlen(p->from)}, NULL);
        if (!s || i-- > 0) continue;
        *model = s;
        return (tern_str){p->name, strlen(p->name)};
    }
    return (tern_str){NULL, 0};
}

// ---- Beginning and end -------------------------------------------------------------------------

// "MODEL=DEVICE": a model's name may contain '=', a device's does not.
static tern_status set_device(registry *r, const char *text, tern_error *err) {
    static const char *const known[] = {"cpu", "webgpu", "auto"};
    const char *equals = strrchr(text, '=');
    if (!equals)
        return tern_fail(err, TERN_ERR_ARGUMENT, "'%s': expected MODEL=cpu, webgpu or auto", text);
    served *s = registry_find(r, (tern_str){text, (size_t)(equals - text)}, err);
    if (!s) return TERN_ERR_ARGUMENT;
    for (size_t i = 0; i < sizeof known / sizeof *known && !s->device; i++)
        if (!strcmp(equals + 1, known[i])) s->device = known[i];
    if (s->device) return TERN_OK;
    return tern_fail(err, TERN_ERR_ARGUMENT, "'%s': expected MODEL=cpu, webgpu or auto", text);
}

static tern_status list_all(registry *r, tern_error *err) {
    const serve_desc *d = r->desc;
    for (size_t i = 0; i < d->n_models; i++) TERN_TRY(add_given(r, &d->models[i], err));
    if (r->n)
        TERN_TRY(adapters_open(&r->adapters, d->opening.loras, d->opening.n_loras,
                               r->list[0]->about.name, err));
    if (d->folder && tern_path_look(d->folder) != TERN_PATH_FOLDER)
        return tern_fail(err, TERN_ERR_IO, "%s: there is no such folder", d->folder);
    registry_refresh(r);
    for (size_t i = 0; i < d->aliases.n; i++) {
        const char *alias = d->aliases.items[i];
        tern_str name = alias_name(alias), model = alias_model(alias);
        if (name.len == 0 || model.len == 0)
            return tern_fail(err, TERN_ERR_ARGUMENT, "'%s': expected NAME=MODEL", alias);
        if (!look_up(r, model, err)) return TERN_ERR_ARGUMENT;
    }
    for (size_t i = 0; i < d->devices.n; i++) TERN_TRY(set_device(r, d->devices.items[i], err));
    return TERN_OK;
}

// ---- Whose texts -------------------------------------------------------------------------------

// A key's id is the same on all servers, in any order of keys: with a shared folder, each key finds
// its own files.
static tern_status list_owners(registry *r, tern_error *err) {
    const serve_list *keys = &r->desc->keys;
    bool is_one = r->desc->shares_cache || keys->n == 0;
    r->n_owners = is_one ? 1 : keys->n;
    r->owners = tern_alloc_array(TERN_MEM_SESSION, r->n_owners, sizeof *r->owners);
    if (!r->owners) return tern_fail_memory(err, r->n_owners * sizeof *r->owners);
    for (size_t i = 0; i < r->n_owners; i++)
        r->owners[i] = is_one ? 0 : tern_hash64(1, keys->items[i], strlen(keys->items[i]));
    return TERN_OK;
}

size_t registry_owner(const registry *r, size_t key) {
    size_t owner = key < r->n_owners ? key : 0;
    for (size_t i = 0; i < owner; i++)
        if (r->owners[i] == r->owners[owner]) return i; // the same key given twice
    return owner;
}

// ---- What they do now --------------------------------------------------------------------------

bool registry_is_stuck(const registry *r, double now) {
    for (size_t i = 0; i < r->n; i++) {
        scheduler_view v;
        if (r->list[i]->state != SERVED_OPEN) continue;
        scheduler_look(r->list[i]->scheduler, &v);
        if (v.step_began > 0 && now - v.step_began > STUCK_SECONDS) return true;
    }
    return false;
}

// ---- Beginning and end -------------------------------------------------------------------------

tern_status registry_list(registry **out, const serve_desc *desc, void (*wake)(void *user),
                          void *user, tern_error *err) {
    registry *r = tern_alloc(TERN_MEM_SESSION, sizeof *r);
    *out = NULL;
    if (!r) return tern_fail_memory(err, sizeof *r);
    *r = (registry){.desc = desc, .wake = wake, .user = user};
    tern_status status = tasks_open(&r->opener, 1, SIZE_MAX, wake, user, err);
    if (status == TERN_OK) status = list_owners(r, err);
    if (status == TERN_OK) status = list_all(r, err);
    if (status == TERN_OK)
        *out = r;
    else
        registry_close(r);
    return status;
}

tern_status registry_open(registry **out, const serve_desc *desc, void (*wake)(void *user),
                          void *user, tern_error *err) {
    TERN_TRY(registry_list(out, desc, wake, user, err));
    tern_status status = desc->n_models ? served_open_now((*out)->list[0], err) : TERN_OK;
    if (status == TERN_OK) return status;
    registry_close(*out);
    *out = NULL;
    return status;
}

void registry_close(registry *r) {
    if (!r) return;
    r->stopping = true;
    tasks_close(r->opener);
    for (size_t i = 0; i < r->n; i++) free_served(r->list[i]);
    tern_free(r->list);
    presets_free(&r->presets);
    tern_free(r->owners);
    tern_free(r);
}

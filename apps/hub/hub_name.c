// Names: as typed, and of a hub's files. See hub_name.h.
#include "apps/hub/hub_name.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

// ---- Texts -------------------------------------------------------------------------------------

bool hub_begins(tern_str s, const char *front) {
    size_t n = strlen(front);
    return s.len >= n && !strncasecmp(s.ptr, front, n);
}

bool hub_ends(tern_str s, const char *end) {
    size_t n = strlen(end);
    return s.len >= n && !strncasecmp(s.ptr + s.len - n, end, n);
}

bool hub_same(tern_str a, tern_str b) {
    return a.len == b.len && (a.len == 0 || !strncasecmp(a.ptr, b.ptr, a.len));
}

static tern_str text_of(const char *s) { return (tern_str){s, strlen(s)}; }
static tern_str from(tern_str s, size_t n) { return (tern_str){s.ptr + n, s.len - n}; }
static tern_str drop_end(tern_str s, const char *end) {
    if (hub_ends(s, end)) s.len -= strlen(end);
    return s;
}

static bool cut(tern_str *s, char at, tern_str *rest) { // at the first `at`
    const char *c = s->len ? memchr(s->ptr, at, s->len) : NULL;
    if (!c) return false;
    *rest = (tern_str){c + 1, s->len - (size_t)(c + 1 - s->ptr)};
    s->len = (size_t)(c - s->ptr);
    return true;
}

tern_str hub_last_part(tern_str path) {
    for (size_t i = path.len; i > 0; i--)
        if (path.ptr[i - 1] == '/') return from(path, i);
    return path;
}

// ---- Quantizations -----------------------------------------------------------------------------

// "Q4_K_M", "IQ2_XXS", "TQ1_0", "I2_S", "BF16", "F16", "MXFP4"
static bool is_label(tern_str s) {
    static const char *const words[] = {"F16", "F32", "BF16", "FP16", "FP32", "I2_S", "MXFP4"};
    static const char *const fronts[] = {"Q", "IQ", "TQ", "PQ", "PTQ"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (hub_same(s, (tern_str){words[i], strlen(words[i])})) return true;
    for (size_t i = 0; i < sizeof fronts / sizeof *fronts; i++) {
        size_t n = strlen(fronts[i]);
        if (!hub_begins(s, fronts[i]) || s.len <= n || !isdigit((unsigned char)s.ptr[n])) continue;
        while (n < s.len && (isalnum((unsigned char)s.ptr[n]) || s.ptr[n] == '_')) n++;
        if (n == s.len) return true;
    }
    return false;
}

tern_str hub_stem(tern_str path) {
    tern_str s = drop_end(hub_last_part(path), ".gguf");
    unsigned part, n_parts;
    int n = 0;
    char end[20];
    static const char form[] = "-00001-of-00003";
    if (s.len <= sizeof form - 1) return s;
    memcpy(end, s.ptr + s.len - (sizeof form - 1), sizeof form - 1);
    end[sizeof form - 1] = 0;
    if (sscanf(end, "-%5u-of-%5u%n", &part, &n_parts, &n) == 2 && n == (int)sizeof form - 1)
        s.len -= sizeof form - 1;
    return s;
}

tern_str hub_quantization(tern_str path) {
    tern_str stem = hub_stem(path);
    for (size_t i = 1; i < stem.len; i++)
        if (strchr("-._", stem.ptr[i - 1]) && is_label(from(stem, i))) return from(stem, i);
    return is_label(stem) ? stem : (tern_str){NULL, 0};
}

bool hub_split(tern_str path, unsigned *part, unsigned *n_parts) {
    tern_str s = drop_end(hub_last_part(path), ".gguf"), stem = hub_stem(path);
    char end[20];
    if (s.len == stem.len || s.len - stem.len >= sizeof end) return false;
    memcpy(end, stem.ptr + stem.len, s.len - stem.len);
    end[s.len - stem.len] = 0;
    return sscanf(end, "-%u-of-%u", part, n_parts) == 2 && *part >= 1 && *part <= *n_parts;
}

// ---- Short names -------------------------------------------------------------------------------

static const hub_short shorts[] = {
#define TERN_HUB_NAME(name, source, megabytes, licence, what)                                      \
    {name, source, megabytes, licence, what},
#include "apps/hub/hub_names.inc"
#undef TERN_HUB_NAME
};

const hub_short *hub_shorts(size_t *n) {
    *n = sizeof shorts / sizeof *shorts;
    return shorts;
}

const hub_short *hub_find_short(const char *name, size_t n) {
    tern_str typed = drop_end((tern_str){name, n}, ":latest");
    if (hub_begins(typed, "hf://")) typed = from(typed, 5); // -hf
    for (size_t i = 0; i < sizeof shorts / sizeof *shorts; i++) {
        tern_str family = text_of(shorts[i].name), size;
        if (hub_same(family, typed)) return &shorts[i];
        cut(&family, ':', &size);
        if (hub_same(family, typed)) return &shorts[i];
    }
    return NULL;
}

// ---- What is typed -----------------------------------------------------------------------------

// "https://huggingface.co/", "hf.co/", "hf:" and equivalent forms. *is_page: the rest may be
// OWNER/NAME/blob/REVISION/FILE.
static tern_str drop_front(tern_str s, const char *endpoint, bool *is_page) {
    static const char *const hosts[] = {"www.huggingface.co/", "huggingface.co/", "hf.co/"};
    *is_page = false;
    if (hub_begins(s, "hf://")) return from(s, 5);
    if (hub_begins(s, "hf:")) return from(s, 3);
    size_t n = endpoint ? strlen(endpoint) : 0;
    if (n && hub_begins(s, endpoint) && s.len > n && s.ptr[n] == '/') {
        *is_page = true;
        return from(s, n + 1);
    }
    tern_str bare = hub_begins(s, "https://") ? from(s, 8) : s;
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        if (hub_begins(bare, hosts[i])) {
            *is_page = true;
            return from(bare, strlen(hosts[i]));
        }
    return s;
}

// A page of one file, or of a folder: blob/REVISION/FILE.
static void read_page(hub_name *out) {
    static const char *const kinds[] = {"blob/", "resolve/", "tree/"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!hub_begins(out->inside, kinds[i])) continue;
        tern_str revision = from(out->inside, strlen(kinds[i])), file = {NULL, 0}, query;
        cut(&revision, '/', &file);
        cut(&file, '?', &query);
        out->inside = file;
        if (!tern_str_is(revision, "main")) out->revision = revision;
        return;
    }
}

bool hub_is_word(tern_str s) {
    if (s.len == 0 || s.ptr[0] == '.' || s.len > 200) return false;
    for (size_t i = 0; i < s.len; i++)
        if (!isalnum((unsigned char)s.ptr[i]) && !strchr("-_.", s.ptr[i])) return false;
    return true;
}

bool hub_name_read(hub_name *out, const char *text, size_t n, const char *endpoint) {
    bool is_page;
    const hub_short *known = hub_find_short(text, n);
    tern_str typed = known ? text_of(known->source) : (tern_str){text, n};
    tern_str s = drop_front(typed, endpoint, &is_page), rest;
    *out = (hub_name){0};
    if (!is_page && cut(&s, '@', &rest)) out->revision = rest;
    if (!is_page && cut(&s, ':', &rest)) out->quantization = rest;
    out->owner = s;
    if (!cut(&out->owner, '/', &out->name)) return false;
    cut(&out->name, '/', &out->inside);
    if (is_page && !out->inside.len && cut(&out->name, ':', &rest)) // as Ollama's clients say it
        out->quantization = rest;
    if (is_page) read_page(out);
    if (hub_ends(out->quantization, ".gguf") && !out->inside.len) {
        out->inside = out->quantization;
        out->quantization = (tern_str){NULL, 0};
    }
    while (out->inside.len && out->inside.ptr[out->inside.len - 1] == '/') out->inside.len--;
    return hub_is_word(out->owner) && hub_is_word(out->name);
}

// ---- Fitting -----------------------------------------------------------------------------------

// "a/b" for "a/b:tag": without the tag.
static tern_str untagged(tern_str name) {
    tern_str rest;
    cut(&name, ':', &rest);
    return name;
}

// "name:tag" for "owner/name:tag".
static tern_str unowned(tern_str name) {
    tern_str front = untagged(name);
    return from(name, (size_t)(hub_last_part(front).ptr - front.ptr));
}

static int fit_one(tern_str own, tern_str typed) {
    if (hub_same(own, typed)) return 16;
    if (hub_same(unowned(own), typed)) return 12;
    if (hub_same(untagged(own), typed)) return 10;
    if (hub_same(untagged(unowned(own)), typed)) return 8;
    return 0;
}

// "name-GGUF:tag" as "name:tag", within `room`.
static tern_str without_gguf(tern_str own, char *room, size_t size) {
    tern_str front = untagged(own), tag = from(own, front.len), bare = drop_end(front, "-GGUF");
    if (bare.len == front.len || own.len >= size) return (tern_str){NULL, 0};
    memcpy(room, bare.ptr, bare.len);
    memcpy(room + bare.len, tag.ptr, tag.len);
    return (tern_str){room, bare.len + tag.len};
}

// "owner/name/file.gguf", the last three parts of a path in the folder.
static bool is_inside(tern_str path, tern_str typed) {
    return memchr(typed.ptr, '/', typed.len) && path.len > typed.len &&
           hub_same(from(path, path.len - typed.len), typed) &&
           path.ptr[path.len - typed.len - 1] == '/';
}

// "owner/name:file.gguf".
static bool names_file(tern_str path, tern_str typed) {
    char room[512];
    const char *colon = typed.len < sizeof room ? memchr(typed.ptr, ':', typed.len) : NULL;
    if (!colon || !hub_ends(typed, ".gguf")) return false;
    memcpy(room, typed.ptr, typed.len);
    room[colon - typed.ptr] = '/';
    return is_inside(path, (tern_str){room, typed.len});
}

int hub_name_fits(const hub_model *m, const char *name, size_t n) {
    bool is_page;
    char room[512];
    tern_str typed = drop_end(drop_front((tern_str){name, n}, NULL, &is_page), ":latest");
    tern_str own = text_of(m->name), path = text_of(m->path), last = hub_last_part(path);
    if (typed.len == 0) return 0;
    if (tern_str_eq(typed, own)) return 17;
    if (tern_str_eq((tern_str){name, n}, path)) return 17;
    int fit = fit_one(own, typed);
    if (fit) return fit;
    if (!m->is_folder && (hub_same(last, typed) || hub_same(hub_stem(path), typed))) return 14;
    if (!m->is_folder && is_inside(path, typed)) return 14;
    const hub_short *known = hub_find_short(typed.ptr, typed.len);
    if (known && hub_same(own, text_of(known->source))) return 15;
    if (!m->is_folder && names_file(path, typed)) return 14;
    tern_str bare = without_gguf(own, room, sizeof room);
    return bare.ptr && (fit = fit_one(bare, typed)) ? fit - 1 : 0;
}

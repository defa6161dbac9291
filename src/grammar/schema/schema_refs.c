// Resolves references: ids, anchors and JSON pointers within the one document.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "grammar/schema/schema.h"

// ---- Walking over the schemas of a document -----------------------------------------------------

// How a keyword's value holds schemas.
typedef enum holds { HOLDS_ONE, HOLDS_LIST, HOLDS_MAP, HOLDS_EITHER } holds;
static const struct {
    const char *name;
    holds holds;
} holders[] = {
    {"additionalItems", HOLDS_ONE},
    {"additionalProperties", HOLDS_ONE},
    {"not", HOLDS_ONE},
    {"contains", HOLDS_ONE},
    {"propertyNames", HOLDS_ONE},
    {"if", HOLDS_ONE},
    {"then", HOLDS_ONE},
    {"else", HOLDS_ONE},
    {"unevaluatedItems", HOLDS_ONE},
    {"unevaluatedProperties", HOLDS_ONE},
    {"items", HOLDS_EITHER},
    {"allOf", HOLDS_LIST},
    {"anyOf", HOLDS_LIST},
    {"oneOf", HOLDS_LIST},
    {"prefixItems", HOLDS_LIST},
    {"properties", HOLDS_MAP},
    {"patternProperties", HOLDS_MAP},
    {"definitions", HOLDS_MAP},
    {"$defs", HOLDS_MAP},
    {"dependencies", HOLDS_MAP},
    {"dependentSchemas", HOLDS_MAP},
    {"contentSchema", HOLDS_ONE},
};

static bool is_schema(const tern_json *v) {
    return tern_json_is(v, TERN_JSON_OBJECT) || tern_json_is(v, TERN_JSON_BOOL);
}

// ---- URIs ---------------------------------------------------------------------------------------

static size_t scheme_length(const char *uri, size_t n) { // including the colon; 0: no scheme
    for (size_t i = 0; i < n; i++) {
        char c = uri[i] | 0x20;
        if (uri[i] == ':') return i ? i + 1 : 0;
        if (!(c >= 'a' && c <= 'z') && !(i && strchr("0123456789+-.", uri[i]))) return 0;
    }
    return 0;
}

// Takes "." and ".." out of the path from `from` on.
static void remove_dots(char *uri, size_t from) {
    char *in = uri + from, *out = uri + from;
    while (*in) {
        char *end = strchr(in + 1, '/');
        size_t n = end ? (size_t)(end - in) : strlen(in);
        if (n == 2 && memcmp(in, "/.", 2) == 0) {
            if (!end) *out++ = '/';
        } else if (n == 3 && memcmp(in, "/..", 3) == 0) {
            while (out > uri + from && *--out != '/') {
            }
            if (!end) *out++ = '/';
        } else {
            memmove(out, in, n);
            out += n;
        }
        in += n;
    }
    *out = 0;
}

// base may be "". The result has no fragment; the caller frees it.
static char *resolve_uri(const char *base, const char *ref, size_t n) {
    const char *hash = memchr(ref, '#', n);
    if (hash) n = (size_t)(hash - ref);
    size_t scheme = scheme_length(base, strlen(base)), path = scheme;
    if (scheme && strncmp(base + scheme, "//", 2) == 0) {
        path = scheme + 2;
        while (base[path] && base[path] != '/') path++;
    }
    size_t keep = strlen(base);
    if (scheme_length(ref, n))
        keep = 0;
    else if (n >= 2 && memcmp(ref, "//", 2) == 0)
        keep = scheme;
    else if (n && *ref == '/')
        keep = path;
    else if (n)
        while (keep > path && base[keep - 1] != '/') keep--;
    bool slash = n && keep == path && path > scheme && *ref != '/';
    char *uri = tern_alloc(TERN_MEM_SESSION, keep + n + 2);
    if (!uri) return NULL;
    memcpy(uri, base, keep);
    if (slash) uri[keep++] = '/';
    memcpy(uri + keep, ref, n);
    size_t first = scheme_length(uri, strlen(uri));
    if (strncmp(uri + first, "//", 2) == 0) {
        first += 2;
        while (uri[first] && uri[first] != '/') first++;
    }
    if (uri[first] == '/') remove_dots(uri, first);
    return uri;
}

// ---- Collecting ---------------------------------------------------------------------------------

static tern_status add_named(tern_schema *x, const tern_json *at, const char *base, tern_str name,
                             bool is_anchor) {
    if (tern_array_reserve(TERN_MEM_SESSION, &x->named, &x->named_capacity, x->n_named, 1) != 0)
        return tern_schema_memory(x);
    char *uri = NULL;
    if (is_anchor) {
        uri = tern_alloc(TERN_MEM_SESSION, strlen(base) + name.len + 2);
        if (uri) {
            strcpy(uri, base);
            strcat(uri, "#");
            memcpy(uri + strlen(uri), name.ptr, name.len);
        }
    } else {
        uri = resolve_uri(base, name.ptr, name.len);
    }
    if (!uri) return tern_schema_memory(x);
    x->named[x->n_named++] = (tern_named){at, uri};
    // URIs of nested schemas contain each other: together they may be long.
    x->terms->bytes += strlen(uri);
    if (x->terms->bytes_max && x->terms->bytes > x->terms->bytes_max)
        tern_terms_fail(x->terms, TERN_TERMS_TOO_LARGE);
    return tern_schema_work(x, 1 + strlen(uri) / 64);
}

static tern_status collect(tern_schema *x, const tern_json *schema, const char *base, int depth);

static tern_status collect_each(tern_schema *x, const tern_json *v, const char *base, bool map,
                                int depth) {
    const tern_json *c = tern_json_first(&x->doc, v);
    for (; c; c = tern_json_next(&x->doc, v, c)) {
        const tern_json *s = map ? tern_json_value_of(&x->doc, c) : c;
        if (is_schema(s)) TERN_TRY(collect(x, s, base, depth + 1));
    }
    return TERN_OK;
}

static tern_status collect(tern_schema *x, const tern_json *schema, const char *base, int depth) {
    if (!tern_json_is(schema, TERN_JSON_OBJECT)) return TERN_OK;
    TERN_TRY(tern_schema_work(x, 1));
    tern_str id = tern_json_str(tern_json_get(&x->doc, schema, x->draft < 6 ? "id" : "$id"));
    bool ref_hides = x->draft < 8 && tern_json_get(&x->doc, schema, "$ref");
    if (id.len && !ref_hides) {
        if (*id.ptr == '#' && x->draft < 8) { // an anchor of older drafts
            TERN_TRY(add_named(x, schema, base, (tern_str){id.ptr + 1, id.len - 1}, true));
        } else {
            TERN_TRY(add_named(x, schema, base, id, false));
            base = x->named[x->n_named - 1].uri;
        }
    }
    static const char *const anchors[] = {"$anchor", "$dynamicAnchor"};
    for (size_t i = 0; i < 2 && x->draft >= 8; i++) {
        tern_str name =
            tern_json_str(tern_schema_key(x, schema, (tern_str){anchors[i], strlen(anchors[i])}));
        if (name.len) TERN_TRY(add_named(x, schema, base, name, true));
    }
    for (size_t i = 0; i < sizeof holders / sizeof *holders; i++) {
        const tern_json *v =
            tern_schema_key(x, schema, (tern_str){holders[i].name, strlen(holders[i].name)});
        if (!v) continue;
        bool map = holders[i].holds == HOLDS_MAP && tern_json_is(v, TERN_JSON_OBJECT);
        bool list = holders[i].holds != HOLDS_ONE && tern_json_is(v, TERN_JSON_ARRAY);
        if (map || list)
            TERN_TRY(collect_each(x, v, base, map, depth));
        else if (holders[i].holds != HOLDS_LIST && is_schema(v))
            TERN_TRY(collect(x, v, base, depth + 1));
    }
    return TERN_OK;
}

tern_status tern_schema_collect(tern_schema *x) {
    const tern_json *root = tern_json_root(&x->doc);
    // The root is a document even without an id.
    TERN_TRY(add_named(x, root, "", (tern_str){"", 0}, false));
    return collect(x, root, "", 0);
}

// ---- Resolving ----------------------------------------------------------------------------------

static bool is_document(const tern_named *n) { return !strchr(n->uri, '#'); }

// The innermost schema with an id that holds the node.
static const tern_named *document_of(const tern_schema *x, const tern_json *at) {
    const tern_named *best = &x->named[0];
    for (size_t i = 0; i < x->n_named; i++) {
        const tern_json *s = x->named[i].at;
        if (is_document(&x->named[i]) && s <= at && at < &x->doc.nodes[s->next] && s >= best->at)
            best = &x->named[i];
    }
    return best;
}

// One part of a pointer, unescaped into `out`: first %41, then ~0 and ~1.
static size_t unescape(const char *s, size_t n, char *out) {
    size_t m = 0, k = 0;
    for (size_t i = 0; i < n; i++) {
        char hex[3] = {0}, *end = hex;
        long v = 0;
        if (s[i] == '%' && n - i > 2) {
            memcpy(hex, s + i + 1, 2);
            v = strtol(hex, &end, 16);
        }
        bool is_escape = end == hex + 2;
        out[m++] = is_escape ? (char)v : s[i];
        if (is_escape) i += 2;
    }
    for (size_t i = 0; i < m; i++) {
        bool is_escape = out[i] == '~' && i + 1 < m && (out[i + 1] == '0' || out[i + 1] == '1');
        out[k++] = !is_escape ? out[i] : out[i + 1] == '0' ? '~' : '/';
        i += is_escape;
    }
    return k;
}

static const tern_json *child(const tern_schema *x, const tern_json *v, tern_str name) {
    if (tern_json_is(v, TERN_JSON_OBJECT)) {
        return tern_schema_key(x, v, name);
    } else if (tern_json_is(v, TERN_JSON_ARRAY)) {
        size_t i = 0, wanted = 0;
        for (size_t k = 0; k < name.len; k++) {
            if (name.ptr[k] < '0' || name.ptr[k] > '9' || wanted > v->n) return NULL;
            wanted = wanted * 10 + (size_t)(name.ptr[k] - '0');
        }
        for (const tern_json *e = tern_json_first(&x->doc, v); e && name.len;
             e = tern_json_next(&x->doc, v, e))
            if (i++ == wanted) return e;
    }
    return NULL;
}

static const tern_json *follow(const tern_schema *x, const tern_json *v, const char *p, size_t n) {
    char *name = tern_alloc(TERN_MEM_SESSION, n + 1);
    while (n && v && name) {
        const char *end = memchr(p + 1, '/', n - 1);
        size_t length = end ? (size_t)(end - p) : n;
        if (*p != '/')
            v = NULL;
        else
            v = child(x, v, (tern_str){name, unescape(p + 1, length - 1, name)});
        p += length;
        n -= length;
    }
    tern_free(name);
    return name ? v : NULL;
}

tern_status tern_schema_resolve(const tern_schema *x, const tern_json *ref, const tern_json **out) {
    const tern_str text = tern_json_str(ref);
    if (!text.ptr) return tern_schema_fail(x, ref, "a reference that is not a string");
    TERN_TRY(tern_schema_work(x, 1 + x->n_named));
    const tern_named *from = document_of(x, ref);
    char *uri = resolve_uri(from->uri, text.ptr, text.len);
    if (!uri) return tern_schema_memory(x);
    const char *hash = memchr(text.ptr, '#', text.len);
    tern_str fragment = {"", 0};
    if (hash) fragment = (tern_str){hash + 1, text.len - (size_t)(hash + 1 - text.ptr)};
    *out = NULL;
    for (size_t i = x->n_named; i-- > 0 && !*out;) {
        const tern_named *n = &x->named[i];
        size_t length = strlen(uri);
        if (fragment.len && *fragment.ptr != '/') { // an anchor
            if (strncmp(n->uri, uri, length) == 0 && n->uri[length] == '#' &&
                strlen(n->uri + length + 1) == fragment.len &&
                memcmp(n->uri + length + 1, fragment.ptr, fragment.len) == 0)
                *out = n->at;
        } else if (is_document(n) && strcmp(n->uri, uri) == 0) {
            *out = follow(x, n->at, fragment.ptr, fragment.len);
        }
    }
    tern_free(uri);
    if (!*out)
        return tern_schema_fail(x, ref, "a reference to '%.*s', which is not in this document",
                                (int)(text.len < 200 ? text.len : 200), text.ptr);
    if (!is_schema(*out))
        return tern_schema_fail(x, ref, "a reference to something that is not a schema");
    return TERN_OK;
}

// Values of templates: memory, lists, dicts, attributes.
#include "input/jinja/jinja.h"

#include <math.h>
#include <string.h>
#include "base/hash.h"
#include "base/utf8.h"
#include "input/unicode.h"

// ---- Memory ------------------------------------------------------------------------------------

struct jchunk {
    struct jchunk *next;
    size_t bytes;
};
#define CHUNK_HEAD 16
#define CHUNK_MIN  ((size_t)8 << 10)
#define CHUNK_MAX  ((size_t)1 << 20)

void *tern_jinja_arena_alloc(jarena *a, size_t bytes) {
    if (bytes > a->max) return NULL;
    bytes = (bytes + 15) & ~(size_t)15;
    if (bytes > a->left) {
        size_t grown = a->total < CHUNK_MIN   ? CHUNK_MIN
                       : a->total > CHUNK_MAX ? CHUNK_MAX
                                              : a->total;
        if (grown < bytes + CHUNK_HEAD) grown = bytes + CHUNK_HEAD;
        if (grown > a->max - a->total) return NULL;
        struct jchunk *chunk = tern_alloc(TERN_MEM_MISC, grown);
        if (!chunk) return NULL;
        chunk->next = a->chunks;
        a->chunks = chunk;
        a->total += grown;
        a->at = (char *)chunk + CHUNK_HEAD;
        a->left = grown - CHUNK_HEAD;
    }
    void *block = a->at;
    a->at += bytes;
    a->left -= bytes;
    return block;
}

void tern_jinja_arena_free(jarena *a) {
    for (struct jchunk *chunk = a->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        tern_free(chunk);
    }
    *a = (jarena){0};
}

void *tern_jinja_alloc(jrun *r, size_t n, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes) || bytes > r->limits->memory_bytes) {
        tern_jinja_fail(r, "makes a value that is too large");
        return NULL;
    }
    if (!tern_jinja_work(r, bytes)) return NULL;
    void *block = tern_jinja_arena_alloc(&r->arena, bytes ? bytes : 1);
    if (block) return block;
    if (r->arena.total + bytes + CHUNK_MAX > r->arena.max)
        tern_jinja_fail(r, "needs more than %zu MiB", r->limits->memory_bytes >> 20);
    else
        r->status = tern_fail_memory(r->err, bytes);
    return NULL;
}

// ---- Characters --------------------------------------------------------------------------------

size_t tern_jinja_char(const char *s, size_t n) {
    uint32_t code;
    int length = (unsigned char)*s < 0x80 ? 1 : tern_utf8_decode(s, n, &code);
    return length > 0 ? (size_t)length : 1; // an invalid byte counts as a character
}

size_t tern_jinja_count(const char *s, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; count++) i += tern_jinja_char(s + i, n - i);
    return count;
}

size_t tern_jinja_space(const char *s, size_t n) {
    unsigned char c = (unsigned char)*s;
    if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
    uint32_t code;
    int length = tern_utf8_decode(s, n, &code);
    if (length <= 0) return 0;
    bool space = code == 0x85 || code == 0xA0 || code == 0x1680 ||
                 (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
                 code == 0x202F || code == 0x205F || code == 0x3000;
    return space ? (size_t)length : 0;
}

size_t tern_jinja_line_end(const char *s, size_t n) {
    unsigned char c = (unsigned char)*s;
    if (c == '\r') return n > 1 && s[1] == '\n' ? 2 : 1;
    if (c < 0x80) return (c >= 10 && c <= 13) || (c >= 28 && c <= 30);
    uint32_t code;
    int length = tern_utf8_decode(s, n, &code);
    return length > 0 && (code == 0x85 || code == 0x2028 || code == 0x2029) ? (size_t)length : 0;
}

bool tern_jinja_is_word(uint32_t code) {
    tern_char_class class = tern_unicode_class(code);
    return class == TERN_CHAR_LETTER || class == TERN_CHAR_NUMBER || code == '_';
}

static bool strips(tern_str c, const tern_str *chars) { // c is one character
    if (!chars) return tern_jinja_space(c.ptr, c.len) != 0;
    for (size_t i = 0, n; i < chars->len; i += n) {
        n = tern_jinja_char(chars->ptr + i, chars->len - i);
        if (tern_str_eq(c, (tern_str){chars->ptr + i, n})) return true;
    }
    return false;
}

tern_str tern_jinja_strip(tern_str s, const tern_str *chars, bool left, bool right) {
    while (left && s.len) {
        size_t n = tern_jinja_char(s.ptr, s.len);
        if (!strips((tern_str){s.ptr, n}, chars)) break;
        s.ptr += n;
        s.len -= n;
    }
    while (right && s.len) {
        size_t n = 1;
        while (n < 4 && n < s.len && (s.ptr[s.len - n] & 0xC0) == 0x80) n++;
        if (tern_jinja_char(s.ptr + s.len - n, n) != n) n = 1;
        if (!strips((tern_str){s.ptr + s.len - n, n}, chars)) break;
        s.len -= n;
    }
    return s;
}

// ---- Kinds of values ---------------------------------------------------------------------------

const char *tern_jinja_type_name(jvalue v) {
    static const char *const names[] = {[J_MISSING] = "nothing",
                                        [J_UNDEFINED] = "Undefined",
                                        [J_NONE] = "NoneType",
                                        [J_BOOL] = "bool",
                                        [J_INT] = "int",
                                        [J_FLOAT] = "float",
                                        [J_STRING] = "str",
                                        [J_LIST] = "list",
                                        [J_DICT] = "dict",
                                        [J_NAMESPACE] = "Namespace",
                                        [J_MACRO] = "Macro",
                                        [J_FUNCTION] = "function",
                                        [J_METHOD] = "method",
                                        [J_LOOP] = "LoopContext",
                                        [J_CYCLER] = "Cycler",
                                        [J_JOINER] = "Joiner",
                                        [J_SELF] = "TemplateReference",
                                        [J_BLOCK_REF] = "BlockReference"};
    static const char *const lists[] = {"list", "tuple", "generator", "dict view"};
    return v.type == J_LIST && v.list ? lists[v.list->kind] : names[v.type];
}

jvalue tern_jinja_undefined(jvalue name, uint8_t owner) {
    return (jvalue){.type = J_UNDEFINED, .owner = owner, .n = name.n, .s = name.s};
}

bool tern_jinja_fail_undefined(jrun *r, jvalue u) {
    jvalue owner = {.type = u.owner & 0x3F};
    const char *type = owner.type == J_NONE ? "None" : tern_jinja_type_name(owner);
    int n = (int)(u.n < 80 ? u.n : 80);
    if (owner.type == J_MISSING) return tern_jinja_fail(r, "'%.*s' is undefined", n, u.s);
    if (u.owner & J_OWNER_UNSAFE)
        return tern_jinja_fail(r, "access to attribute '%.*s' of '%s' object is unsafe", n, u.s,
                               type);
    if (u.owner & J_OWNER_ELEMENT)
        return tern_jinja_fail(r, "%s object has no element %.*s", type, n, u.s);
    return tern_jinja_fail(r, "'%s%s' has no attribute '%.*s'", type,
                           owner.type == J_NONE ? "" : " object", n, u.s);
}

bool tern_jinja_is_number(jvalue v) {
    return v.type == J_BOOL || v.type == J_INT || v.type == J_FLOAT;
}

double tern_jinja_double(jvalue v) {
    return v.type == J_FLOAT ? v.f : v.type == J_BOOL ? (double)v.b : (double)v.i;
}

bool tern_jinja_truth(jvalue v) {
    switch (v.type) {
    case J_MISSING:
    case J_UNDEFINED:
    case J_NONE: return false;
    case J_BOOL: return v.b;
    case J_INT: return v.i != 0;
    case J_FLOAT: return v.f != 0;
    case J_STRING: return v.n != 0;
    case J_LIST: return v.list->n != 0 || v.list->kind == J_ITERATOR;
    case J_DICT: return v.dict->n != 0;
    default: return true;
    }
}

bool tern_jinja_length(jrun *r, jvalue v, int64_t *out) {
    switch (v.type) {
    case J_UNDEFINED: *out = 0; return true;
    case J_STRING: *out = (int64_t)tern_jinja_count(v.s, v.n); return tern_jinja_work_chars(r, v.n);
    case J_DICT: *out = v.dict->n; return true;
    case J_LOOP: *out = v.loop->n; return true;
    case J_LIST:
        *out = v.list->n;
        if (v.list->kind != J_ITERATOR) return true;
        break;
    default: break;
    }
    return tern_jinja_fail(r, "object of type '%s' has no len()", tern_jinja_type_name(v));
}

// ---- Lists -------------------------------------------------------------------------------------

bool tern_jinja_list_new(jrun *r, uint8_t kind, size_t capacity, jvalue *out) {
    jlist *list = tern_jinja_alloc(r, 1, sizeof *list);
    if (!list) return false;
    if (capacity) {
        list->items = tern_jinja_alloc(r, capacity, sizeof *list->items);
        if (!list->items) return false;
    }
    list->capacity = (uint32_t)capacity;
    list->kind = kind;
    *out = (jvalue){.type = J_LIST, .list = list};
    return true;
}

bool tern_jinja_list_add(jrun *r, jlist *list, jvalue item) {
    if (list->n == list->capacity) {
        uint32_t capacity = list->capacity < 4 ? 8 : list->capacity * 2;
        jvalue *items = tern_jinja_alloc(r, capacity, sizeof *items);
        if (!items) return false;
        if (list->n) memcpy(items, list->items, list->n * sizeof *items);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->n++] = item;
    return true;
}

static bool iterate_string(jrun *r, jvalue v, const jvalue **items, uint32_t *n) {
    size_t count = tern_jinja_count(v.s, v.n), at = 0;
    jvalue *chars = tern_jinja_alloc(r, count, sizeof *chars);
    if (!chars) return false;
    for (size_t i = 0; i < count; i++) {
        size_t length = tern_jinja_char(v.s + at, v.n - at);
        chars[i] = J_STR_OF(v.s + at, length);
        at += length;
    }
    *items = chars;
    *n = (uint32_t)count;
    return true;
}

bool tern_jinja_iterate(jrun *r, jvalue v, const jvalue **items, uint32_t *n) {
    *items = NULL;
    *n = 0;
    switch (v.type) {
    case J_UNDEFINED: return true;
    case J_STRING: return iterate_string(r, v, items, n);
    case J_LIST:
        *items = v.list->items;
        *n = v.list->n;
        if (v.list->kind == J_ITERATOR) v.list->n = 0;
        return tern_jinja_work(r, *n);
    case J_DICT:
        *items = v.dict->keys;
        *n = v.dict->n;
        return tern_jinja_work(r, *n);
    default: return tern_jinja_fail(r, "'%s' object is not iterable", tern_jinja_type_name(v));
    }
}

// ---- Dicts -------------------------------------------------------------------------------------

#define HASH_DEPTH_MAX 16
#define DICT_SMALL     8 // up to this many entries are searched one by one
#define PROBES_FEW     64

static uint32_t hash_bytes(uint64_t secret, const void *bytes, size_t n) {
    return (uint32_t)tern_hash64(secret, bytes, n);
}

// False: it cannot be a key.
static bool hash_value(uint64_t secret, jvalue v, int depth, uint32_t *out) {
    if (v.type == J_STRING) {
        *out = hash_bytes(secret, v.s, v.n);
        return true;
    }
    if (tern_jinja_is_number(v)) { // 1, 1.0 and True are one key
        double f = tern_jinja_double(v) + 0.0;
        *out = hash_bytes(secret, &f, sizeof f);
        return true;
    }
    *out = v.type;
    if (v.type != J_LIST) return v.type == J_NONE || v.type == J_UNDEFINED;
    if (v.list->kind != J_TUPLE || depth >= HASH_DEPTH_MAX) return false;
    for (uint32_t i = 0, h; i < v.list->n; i++) {
        if (!hash_value(secret, v.list->items[i], depth + 1, &h)) return false;
        *out = (*out ^ h) * 16777619u;
    }
    return true;
}

static bool same_key(jvalue a, jvalue b) {
    if (tern_jinja_is_number(a) && tern_jinja_is_number(b))
        return a.type != J_FLOAT && b.type != J_FLOAT
                   ? (a.type == J_BOOL ? a.b : a.i) == (b.type == J_BOOL ? b.b : b.i)
                   : tern_jinja_double(a) == tern_jinja_double(b);
    if (a.type != b.type) return false;
    if (a.type == J_STRING) return a.n == b.n && (a.n == 0 || memcmp(a.s, b.s, a.n) == 0);
    if (a.type != J_LIST) return true;
    if (a.list->n != b.list->n) return false;
    for (uint32_t i = 0; i < a.list->n; i++)
        if (!same_key(a.list->items[i], b.list->items[i])) return false;
    return true;
}

// Index of an entry, or -1. Slots are probed one after the other, starting at the hash; *n: how
// many.
static int64_t find_entry(const jdict *d, jvalue key, uint32_t hash, uint32_t *n) {
    *n = 1;
    if (!d->slots) {
        for (uint32_t i = 0; i < d->n; i++)
            if (same_key(d->keys[i], key)) return i;
        return -1;
    }
    for (uint32_t at = hash;; at++, ++*n) {
        uint32_t entry = d->slots[at & (d->n_slots - 1)];
        if (entry == 0) return -1;
        if (same_key(d->keys[entry - 1], key)) return entry - 1;
    }
}

static void put_slot(jdict *d, uint32_t hash, uint32_t entry) {
    while (d->slots[hash & (d->n_slots - 1)]) hash++;
    d->slots[hash & (d->n_slots - 1)] = entry + 1;
}

static bool rebuild_slots(jrun *r, jdict *d) {
    uint32_t n_slots = 16;
    while (n_slots < d->capacity * 2) n_slots *= 2;
    d->slots = tern_jinja_alloc(r, n_slots, sizeof *d->slots);
    if (!d->slots) return false;
    d->n_slots = n_slots;
    d->secret = r->secret;
    for (uint32_t i = 0, hash; i < d->n; i++)
        if (hash_value(r->secret, d->keys[i], 0, &hash)) put_slot(d, hash, i);
    return true;
}

static bool grow(jrun *r, jdict *d) {
    uint32_t capacity = d->capacity ? d->capacity * 2 : 4;
    jvalue *keys = tern_jinja_alloc(r, capacity, sizeof *keys);
    jvalue *values = keys ? tern_jinja_alloc(r, capacity, sizeof *values) : NULL;
    if (!values) return false;
    if (d->n) {
        memcpy(keys, d->keys, d->n * sizeof *keys);
        memcpy(values, d->values, d->n * sizeof *values);
    }
    d->keys = keys;
    d->values = values;
    d->capacity = capacity;
    return capacity <= DICT_SMALL || rebuild_slots(r, d);
}

// The hash of a key, and its entry, or -1.
static bool look_up(jrun *r, const jdict *d, jvalue key, uint32_t *hash, int64_t *entry) {
    uint32_t n;
    if (!hash_value(r->secret, key, 0, hash))
        return tern_jinja_fail(r, "unhashable type: '%s'", tern_jinja_type_name(key));
    *entry = find_entry(d, key, *hash, &n);
    uint64_t more = n > PROBES_FEW ? n - PROBES_FEW : 0; // none by chance alone
    return tern_jinja_work(r, (key.type == J_STRING ? key.n : 1) + 64 * more);
}

bool tern_jinja_dict_new(jrun *r, uint8_t type, jvalue *out) {
    *out = (jvalue){.type = type, .dict = tern_jinja_alloc(r, 1, sizeof *out->dict)};
    return out->dict != NULL;
}

bool tern_jinja_dict_set(jrun *r, jdict *d, jvalue key, jvalue value) {
    uint32_t hash;
    int64_t entry;
    if (!look_up(r, d, key, &hash, &entry)) return false;
    if (entry < 0) {
        if (d->n == d->capacity && !grow(r, d)) return false;
        entry = d->n++;
        d->keys[entry] = key;
        if (d->slots) put_slot(d, hash, (uint32_t)entry);
    }
    d->values[entry] = value;
    return true;
}

bool tern_jinja_dict_get(jrun *r, const jdict *d, jvalue key, jvalue *out, bool *found) {
    uint32_t hash;
    int64_t entry;
    if (!look_up(r, d, key, &hash, &entry)) return false;
    *found = entry >= 0;
    if (*found && out) *out = d->values[entry];
    return true;
}

const jvalue *tern_jinja_dict_find(const jdict *d, jvalue key) {
    uint32_t n;
    int64_t entry = find_entry(d, key, d->slots ? hash_bytes(d->secret, key.s, key.n) : 0, &n);
    return entry < 0 ? NULL : &d->values[entry];
}

// ---- Attributes and elements -------------------------------------------------------------------

// Attributes that Jinja2's immutable sandbox hides.
static bool is_mutating(jvalue v, tern_str name) {
    static const char *const of_lists[] = {"append", "clear",  "pop",  "reverse",
                                           "insert", "remove", "sort", "extend"};
    static const char *const of_dicts[] = {"clear", "pop", "popitem", "setdefault", "update"};
    bool list = v.type == J_LIST && v.list->kind == J_PLAIN;
    size_t n = list               ? sizeof of_lists / sizeof *of_lists
               : v.type == J_DICT ? sizeof of_dicts / sizeof *of_dicts
                                  : 0;
    for (size_t i = 0; i < n; i++)
        if (tern_str_is(name, list ? of_lists[i] : of_dicts[i])) return true;
    return false;
}

static bool get_method(jrun *r, jvalue v, jvalue name, jvalue *out, bool *found) {
    bool has = v.type != J_LIST || v.list->kind <= J_TUPLE;
    const jbuiltin *b = has ? tern_jinja_find_method(v.type, name.s, name.n) : NULL;
    *found = b != NULL;
    if (!b) return true;
    jmethod *method = tern_jinja_alloc(r, 1, sizeof *method);
    if (!method) return false;
    *method = (jmethod){v, b};
    *out = (jvalue){.type = J_METHOD, .method = method};
    return true;
}

static bool loop_attr(jloop *loop, tern_str name, jvalue *out) {
    uint32_t i = loop->index;
    if (tern_str_is(name, "index"))
        *out = J_INT_OF(i + 1);
    else if (tern_str_is(name, "index0"))
        *out = J_INT_OF(i);
    else if (tern_str_is(name, "revindex"))
        *out = J_INT_OF(loop->n - i);
    else if (tern_str_is(name, "revindex0"))
        *out = J_INT_OF(loop->n - i - 1);
    else if (tern_str_is(name, "first"))
        *out = J_BOOL_OF(i == 0);
    else if (tern_str_is(name, "last"))
        *out = J_BOOL_OF(i + 1 == loop->n);
    else if (tern_str_is(name, "length"))
        *out = J_INT_OF(loop->n);
    else if (tern_str_is(name, "depth"))
        *out = J_INT_OF(loop->depth + 1);
    else if (tern_str_is(name, "depth0"))
        *out = J_INT_OF(loop->depth);
    else if (tern_str_is(name, "previtem") && i > 0)
        *out = loop->items[i - 1];
    else if (tern_str_is(name, "nextitem") && i + 1 < loop->n)
        *out = loop->items[i + 1];
    else
        return false;
    return true;
}

// An attribute that is not a method; false: none of that name.
static bool own_attr(const jrun *r, jvalue v, tern_str name, jvalue *out) {
    switch (v.type) {
    case J_LOOP: return loop_attr(v.loop, name, out);
    case J_MACRO: *out = v.macro->node->value; return tern_str_is(name, "name");
    case J_LIST:
        if (!v.list->is_group || v.list->n != 2) return false;
        *out = v.list->items[tern_str_is(name, "list")];
        return tern_str_is(name, "list") || tern_str_is(name, "grouper");
    case J_CYCLER:
        if (tern_str_is(name, "current"))
            *out = v.cycler->items.list->items[v.cycler->at];
        else if (tern_str_is(name, "pos"))
            *out = J_INT_OF(v.cycler->at);
        else
            *out = v.cycler->items;
        return tern_str_is(name, "current") || tern_str_is(name, "pos") ||
               tern_str_is(name, "items");
    case J_JOINER:
        *out = tern_str_is(name, "used") ? J_BOOL_OF(v.joiner->used) : v.joiner->separator;
        return tern_str_is(name, "used") || tern_str_is(name, "sep");
    case J_SELF:
        for (const jnode *b = r->blocks; b; b = b->orelse)
            if (tern_str_eq(name, (tern_str){b->value.s, b->value.n})) {
                *out = (jvalue){.type = J_BLOCK_REF, .block = b};
                return true;
            }
        return false;
    default: return false;
    }
}

bool tern_jinja_get_attr(jrun *r, jvalue v, jvalue name, jvalue *out) {
    bool found = false;
    if (v.type == J_UNDEFINED) return tern_jinja_fail_undefined(r, v);
    if (own_attr(r, v, (tern_str){name.s, name.n}, out)) return true;
    if (is_mutating(v, (tern_str){name.s, name.n})) {
        *out = tern_jinja_undefined(name, v.type | J_OWNER_UNSAFE);
        return true;
    }
    if (!get_method(r, v, name, out, &found)) return false;
    if (found) return true;
    if (v.type == J_DICT || v.type == J_NAMESPACE) {
        const jvalue *member = tern_jinja_dict_find(v.dict, name);
        if (member) {
            *out = *member;
            return true;
        }
    }
    *out = tern_jinja_undefined(name, v.type);
    return true;
}

// The index of n elements, counted from the end if negative; false: out of range.
static bool to_index(jvalue key, size_t n, size_t *index) {
    int64_t i = key.type == J_BOOL ? key.b : key.i;
    if (i < 0) i += (int64_t)n;
    *index = (size_t)i;
    return i >= 0 && (size_t)i < n;
}

static bool get_element(jrun *r, jvalue v, jvalue key, jvalue *out, bool *found) {
    size_t i, n;
    if (v.type == J_LIST && v.list->kind <= J_TUPLE) {
        *found = to_index(key, v.list->n, &i);
        if (*found) *out = v.list->items[i];
        return true;
    }
    if (v.type != J_STRING) return true;
    if (!tern_jinja_work_chars(r, v.n)) return false;
    n = tern_jinja_count(v.s, v.n);
    *found = to_index(key, n, &i);
    if (!*found) return true;
    size_t at = 0;
    if (n == v.n)
        at = i;
    else
        while (i-- > 0) at += tern_jinja_char(v.s + at, v.n - at);
    *out = J_STR_OF(v.s + at, tern_jinja_char(v.s + at, v.n - at));
    out->owner = v.owner;
    return true;
}

bool tern_jinja_get_item(jrun *r, jvalue v, jvalue key, jvalue *out) {
    bool found = false, is_int = key.type == J_INT || key.type == J_BOOL;
    uint32_t hash;
    if (v.type == J_UNDEFINED) return tern_jinja_fail_undefined(r, v);
    if (v.type == J_DICT) {
        if (hash_value(r->secret, key, 0, &hash) &&
            !tern_jinja_dict_get(r, v.dict, key, out, &found))
            return false;
    } else if (is_int && !get_element(r, v, key, out, &found)) {
        return false;
    }
    if (found) return true;
    if (key.type == J_STRING) return tern_jinja_get_attr(r, v, key, out);
    jvalue name;
    size_t mark = r->out->len;
    if (!tern_jinja_repr(r, key) || !tern_jinja_take(r, mark, &name)) return false;
    *out = tern_jinja_undefined(name, v.type | J_OWNER_ELEMENT);
    return true;
}

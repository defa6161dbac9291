#include "base/json/json_index.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "base/os/os_time.h"
#include "base/utf8.h"

// One pass, recursive over the nesting (at most TERN_JSON_DEPTH_MAX deep). Strings with escapes are
// decoded into `unescaped`, which has room for all of them since no escape is shorter than its
// decoded form.
typedef struct parser {
    const char *at, *end, *begin;
    tern_json_doc *doc;
    size_t capacity;
    char *write; // next free byte of doc->unescaped
    size_t text_bytes;
    uint32_t line;
    bool is_part; // messages do not name the line
    tern_error *err;
} parser;

static tern_status fail(parser *p, const char *what) {
    if (p->is_part) return tern_fail(p->err, TERN_ERR_FORMAT, "not JSON: %s", what);
    return tern_fail(p->err, TERN_ERR_FORMAT, "line %u: not JSON: %s", p->line, what);
}

static void skip_space(parser *p) {
    for (; p->at < p->end; p->at++) {
        if (*p->at == '\n')
            p->line++;
        else if (*p->at != ' ' && *p->at != '\t' && *p->at != '\r')
            break;
    }
}

static tern_status new_node(parser *p, tern_json_type type, size_t *index) {
    tern_json_doc *d = p->doc;
    if (d->n_nodes >= UINT32_MAX - 1) return fail(p, "too many values");
    if (tern_array_reserve(TERN_MEM_MISC, &d->nodes, &p->capacity, d->n_nodes, 1) != 0)
        return tern_fail_memory(p->err, p->capacity * 2 * sizeof *d->nodes);
    *index = d->n_nodes++;
    d->nodes[*index] = (tern_json){.type = type, .line = p->line, .next = (uint32_t)d->n_nodes};
    return TERN_OK;
}

static int hex4(const char *s) {
    int value = 0;
    for (int i = 0; i < 4; i++) {
        char c = s[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return -1;
        value = value << 4 | digit;
    }
    return value;
}

// At the backslash; writes the character and moves past the escape.
static tern_status unescape_one(parser *p) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (p->end - p->at < 2) return fail(p, "string without end");
    char c = p->at[1];
    const char *hit = c ? strchr(from, c) : NULL;
    if (hit) {
        *p->write++ = to[hit - from];
        p->at += 2;
        return TERN_OK;
    }
    int code = c == 'u' && p->end - p->at >= 6 ? hex4(p->at + 2) : -1;
    if (code < 0) return fail(p, "unknown escape in a string");
    p->at += 6;
    uint32_t full = (uint32_t)code;
    if (full >= 0xD800 && full < 0xDC00 && p->end - p->at >= 6 && p->at[0] == '\\' &&
        p->at[1] == 'u') {
        int low = hex4(p->at + 2);
        if (low >= 0xDC00 && low < 0xE000) {
            full = 0x10000 + ((full - 0xD800) << 10) + ((uint32_t)low - 0xDC00);
            p->at += 6;
        }
    }
    p->write += tern_utf8_encode(full, p->write); // a lone surrogate becomes U+FFFD
    return TERN_OK;
}

// At the opening quote.
static tern_status parse_string(parser *p, tern_str *out) {
    const char *start = ++p->at;
    while (p->at < p->end && *p->at != '"' && *p->at != '\\' && (unsigned char)*p->at >= 0x20)
        p->at++;
    if (p->at < p->end && *p->at == '"') { // no escapes: stays in the text
        *out = (tern_str){start, (size_t)(p->at++ - start)};
        return TERN_OK;
    }
    if (!p->doc->unescaped) {
        p->doc->unescaped = tern_alloc(TERN_MEM_MISC, p->text_bytes + 1);
        if (!p->doc->unescaped) return tern_fail_memory(p->err, p->text_bytes + 1);
        p->write = p->doc->unescaped;
    }
    char *first = p->write;
    memcpy(p->write, start, (size_t)(p->at - start));
    p->write += p->at - start;
    while (p->at < p->end && *p->at != '"') {
        if ((unsigned char)*p->at < 0x20) return fail(p, "control character in a string");
        if (*p->at == '\\')
            TERN_TRY(unescape_one(p));
        else
            *p->write++ = *p->at++;
    }
    if (p->at >= p->end) return fail(p, "string without end");
    p->at++;
    *out = (tern_str){first, (size_t)(p->write - first)};
    return TERN_OK;
}

static tern_status set_string(parser *p, size_t index, tern_str s) {
    if (s.len > UINT32_MAX) return fail(p, "string longer than 4 GiB");
    p->doc->nodes[index].text = s.ptr;
    p->doc->nodes[index].n = (uint32_t)s.len;
    return TERN_OK;
}

static bool is_digit(const parser *p) { return p->at < p->end && *p->at >= '0' && *p->at <= '9'; }

// strtod wants a terminated text, which a document is not always.
static tern_status convert_number(parser *p, const char *start, size_t n, double *out) {
    char few[64], *spelling = n < sizeof few ? few : tern_alloc(TERN_MEM_MISC, n + 1);
    if (!spelling) return tern_fail_memory(p->err, n + 1);
    memcpy(spelling, start, n);
    spelling[n] = 0;
    *out = strtod(spelling, NULL);
    if (spelling != few) tern_free(spelling);
    return TERN_OK;
}

static tern_status keep_digits(parser *p, size_t index, const char *digits, size_t n) {
    size_t at;
    TERN_TRY(new_node(p, TERN_JSON_STRING, &at));
    p->doc->nodes[at].text = digits;
    p->doc->nodes[at].n = (uint32_t)n;
    p->doc->nodes[index].n = TERN_JSON_LONG;
    p->doc->nodes[index].next = (uint32_t)p->doc->n_nodes;
    return TERN_OK;
}

static tern_status parse_number(parser *p, size_t index) {
    const char *start = p->at;
    if (*p->at == '-') p->at++;
    if (!is_digit(p)) return fail(p, "unexpected character");
    if (*p->at == '0')
        p->at++;
    else
        while (is_digit(p)) p->at++;
    if (p->at < p->end && *p->at == '.') {
        p->at++;
        if (!is_digit(p)) return fail(p, "number without digits after the point");
        while (is_digit(p)) p->at++;
    }
    if (p->at < p->end && (*p->at == 'e' || *p->at == 'E')) {
        p->at++;
        if (p->at < p->end && (*p->at == '+' || *p->at == '-')) p->at++;
        if (!is_digit(p)) return fail(p, "number without exponent");
        while (is_digit(p)) p->at++;
    }
    tern_json *node = &p->doc->nodes[index];
    size_t n = (size_t)(p->at - start);
    for (const char *c = start; c < p->at; c++)
        if (*c == '.' || *c == 'e' || *c == 'E') node->n = TERN_JSON_FRACTION;
    TERN_TRY(convert_number(p, start, n, &node->number));
    if (node->n == TERN_JSON_WHOLE && fabs(node->number) >= 0x1p53)
        return keep_digits(p, index, start, n);
    return TERN_OK;
}

static tern_status parse_value(parser *p, int depth);

static tern_status parse_members(parser *p, size_t index, int depth) {
    bool is_object = p->doc->nodes[index].type == TERN_JSON_OBJECT;
    char close = is_object ? '}' : ']';
    if (depth >= TERN_JSON_DEPTH_MAX) return fail(p, "nested too deeply");
    p->at++;
    skip_space(p);
    if (p->at < p->end && *p->at == close) {
        p->at++;
        return TERN_OK;
    }
    for (uint32_t count = 1;; count++) {
        if (is_object) {
            size_t key;
            tern_str s;
            if (p->at >= p->end || *p->at != '"') return fail(p, "expected a member's name");
            TERN_TRY(new_node(p, TERN_JSON_STRING, &key));
            TERN_TRY(parse_string(p, &s));
            TERN_TRY(set_string(p, key, s));
            skip_space(p);
            if (p->at >= p->end || *p->at++ != ':') return fail(p, "expected ':'");
            skip_space(p);
        }
        TERN_TRY(parse_value(p, depth + 1));
        p->doc->nodes[index].n = count;
        skip_space(p);
        if (p->at >= p->end) return fail(p, is_object ? "object without end" : "array without end");
        char c = *p->at++;
        if (c == close) break;
        if (c != ',') return fail(p, is_object ? "expected ',' or '}'" : "expected ',' or ']'");
        skip_space(p);
    }
    p->doc->nodes[index].next = (uint32_t)p->doc->n_nodes;
    return TERN_OK;
}

static tern_status parse_word(parser *p, const char *word, tern_json_type type, bool value) {
    size_t index, n = strlen(word);
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, word, n) != 0)
        return fail(p, "unexpected character");
    p->at += n;
    TERN_TRY(new_node(p, type, &index));
    p->doc->nodes[index].n = value;
    return TERN_OK;
}

static tern_status parse_value(parser *p, int depth) {
    size_t index;
    if (p->at >= p->end) return fail(p, "the text ends where a value should be");
    switch (*p->at) {
    case '{':
        TERN_TRY(new_node(p, TERN_JSON_OBJECT, &index));
        return parse_members(p, index, depth);
    case '[': TERN_TRY(new_node(p, TERN_JSON_ARRAY, &index)); return parse_members(p, index, depth);
    case '"': {
        tern_str s;
        TERN_TRY(new_node(p, TERN_JSON_STRING, &index));
        TERN_TRY(parse_string(p, &s));
        return set_string(p, index, s);
    }
    case 't': return parse_word(p, "true", TERN_JSON_BOOL, true);
    case 'f': return parse_word(p, "false", TERN_JSON_BOOL, false);
    case 'n': return parse_word(p, "null", TERN_JSON_NULL, false);
    default: TERN_TRY(new_node(p, TERN_JSON_NUMBER, &index)); return parse_number(p, index);
    }
}

static tern_status parse(tern_json_doc *doc, const char *text, size_t n, bool is_part,
                         tern_error *err) {
    *doc = (tern_json_doc){0};
    if (tern_utf8_mark(text, n)) {
        text += 3;
        n -= 3;
    }
    parser p = {.at = text,
                .begin = text,
                .end = text + n,
                .doc = doc,
                .text_bytes = n,
                .line = 1,
                .is_part = is_part,
                .err = err};
    skip_space(&p);
    tern_status status = parse_value(&p, 0);
    skip_space(&p);
    if (status == TERN_OK && p.at != p.end) status = fail(&p, "text after the end of the value");
    if (status != TERN_OK) tern_json_free(doc);
    return status;
}

tern_status tern_json_parse(tern_json_doc *doc, const char *text, size_t n, tern_error *err) {
    return parse(doc, text, n, false, err);
}

tern_status tern_json_parse_part(tern_json_doc *doc, const char *text, size_t n, tern_error *err) {
    return parse(doc, text, n, true, err);
}

// ---- An index of the root's members ------------------------------------------------------------

#define FEW_MEMBERS 64

// It is at the root's `text`, which objects do not use otherwise. At most half of its places are
// taken; the seed is secret, so that nobody can choose colliding names.
typedef struct name_index {
    uint64_t seed;
    size_t mask;
    const tern_json *keys[]; // [mask + 1]
} name_index;

static name_index *index_of(const tern_json_doc *doc) {
    const tern_json *root = tern_json_root(doc);
    return tern_json_is(root, TERN_JSON_OBJECT) ? (name_index *)(void *)root->text : NULL;
}

static const tern_json *find_name(const name_index *index, tern_str name, size_t *at) {
    *at = tern_hash64(index->seed, name.ptr, name.len) & index->mask;
    for (; index->keys[*at]; *at = (*at + 1) & index->mask)
        if (tern_str_eq(tern_json_str(index->keys[*at]), name)) return index->keys[*at];
    return NULL;
}

tern_status tern_json_index(tern_json_doc *doc, tern_error *err) {
    const tern_json *root = tern_json_root(doc);
    size_t n = FEW_MEMBERS, at;
    if (!tern_json_is(root, TERN_JSON_OBJECT) || root->n < FEW_MEMBERS || root->text)
        return TERN_OK;
    while (n < 2 * (size_t)root->n) n *= 2;
    name_index *index = tern_alloc(TERN_MEM_MISC, sizeof *index + n * sizeof *index->keys);
    if (!index) return tern_fail_memory(err, n * sizeof *index->keys);
    index->seed = tern_random_seed();
    index->mask = n - 1;
    for (const tern_json *key = tern_json_first(doc, root); key;
         key = tern_json_next(doc, root, key)) // among members of one name the first counts
        if (!find_name(index, tern_json_str(key), &at)) index->keys[at] = key;
    doc->nodes[0].text = (const char *)index;
    return TERN_OK;
}

void tern_json_free(tern_json_doc *doc) {
    tern_free(index_of(doc));
    tern_free(doc->nodes);
    tern_free(doc->unescaped);
    *doc = (tern_json_doc){0};
}

// The value's subtree is one piece of the array, linked by indices.
void tern_json_keep(tern_json_doc *doc, const tern_json *value) {
    uint32_t first = (uint32_t)(value - doc->nodes);
    name_index *index = index_of(doc);
    if (index) doc->nodes[0].text = NULL;
    tern_free(index);
    doc->n_nodes = value->next - first;
    memmove(doc->nodes, value, doc->n_nodes * sizeof *doc->nodes);
    for (size_t i = 0; i < doc->n_nodes; i++) doc->nodes[i].next -= first;
}

const tern_json *tern_json_root(const tern_json_doc *doc) {
    return doc->n_nodes ? &doc->nodes[0] : NULL;
}

const tern_json *tern_json_first(const tern_json_doc *doc, const tern_json *parent) {
    if (!parent || parent->n == 0) return NULL;
    if (parent->type != TERN_JSON_ARRAY && parent->type != TERN_JSON_OBJECT) return NULL;
    (void)doc;
    return parent + 1;
}

const tern_json *tern_json_next(const tern_json_doc *doc, const tern_json *parent,
                                const tern_json *value) {
    uint32_t next = value->next;
    if (parent->type == TERN_JSON_OBJECT) // value is a key: step over its value
        next = doc->nodes[value->next].next;
    return next < parent->next ? &doc->nodes[next] : NULL;
}

const tern_json *tern_json_value_of(const tern_json_doc *doc, const tern_json *key) {
    return key ? &doc->nodes[key->next] : NULL;
}

const tern_json *tern_json_get(const tern_json_doc *doc, const tern_json *object, const char *key) {
    if (!tern_json_is(object, TERN_JSON_OBJECT)) return NULL;
    if (object == tern_json_root(doc) && object->text) {
        size_t at;
        const tern_str name = {key, strlen(key)};
        return tern_json_value_of(doc, find_name((name_index *)(void *)object->text, name, &at));
    }
    const tern_json *k = tern_json_first(doc, object);
    for (; k; k = tern_json_next(doc, object, k))
        if (tern_str_is(tern_json_str(k), key)) return tern_json_value_of(doc, k);
    return NULL;
}

const tern_json *tern_json_path(const tern_json_doc *doc, const char *dotted_path) {
    const tern_json *at = tern_json_root(doc);
    char key[128];
    while (at && *dotted_path) {
        size_t n = strcspn(dotted_path, ".");
        if (n >= sizeof key) return NULL;
        memcpy(key, dotted_path, n);
        key[n] = 0;
        at = tern_json_get(doc, at, key);
        dotted_path += n + (dotted_path[n] == '.');
    }
    return at;
}

bool tern_json_is(const tern_json *value, tern_json_type type) {
    return value && value->type == (uint32_t)type;
}

tern_str tern_json_str(const tern_json *value) {
    if (!tern_json_is(value, TERN_JSON_STRING)) return (tern_str){NULL, 0};
    return (tern_str){value->text, value->n};
}

double tern_json_number(const tern_json *value, double otherwise) {
    return tern_json_is(value, TERN_JSON_NUMBER) ? value->number : otherwise;
}

int64_t tern_json_int(const tern_json *value, int64_t otherwise) {
    double d = tern_json_number(value, 0.5);
    if (!(d >= -9007199254740992.0 && d <= 9007199254740992.0) || d != (double)(int64_t)d)
        return otherwise;
    return (int64_t)d;
}

bool tern_json_whole(const tern_json *value, uint64_t *out, bool *is_negative) {
    bool is_long = tern_json_is(value, TERN_JSON_NUMBER) && value->n == TERN_JSON_LONG;
    double d = tern_json_number(value, 0.5);
    *is_negative = d < 0;
    if (!is_long) {
        if (!(fabs(d) <= 0x1p53) || d != (double)(int64_t)d) return false;
        *out = (uint64_t)(int64_t)d;
        return true;
    }
    uint64_t sum = 0;
    for (uint32_t i = *is_negative; i < value[1].n; i++) {
        unsigned digit = (unsigned)(value[1].text[i] - '0');
        if (sum > (UINT64_MAX - digit) / 10) return false;
        sum = sum * 10 + digit;
    }
    if (*is_negative && sum > (uint64_t)INT64_MAX + 1) return false;
    *out = *is_negative ? 0 - sum : sum;
    return true;
}

bool tern_json_bool(const tern_json *value, bool otherwise) {
    return tern_json_is(value, TERN_JSON_BOOL) ? value->n != 0 : otherwise;
}

// The filter pprint, like Python's pprint.pformat: 80 columns, dicts sorted by key; values that do
// not fit in a line are broken between elements, long texts between words.
#include <string.h>
#include "input/jinja/jinja.h"

#define WIDTH 80

static bool put(jrun *r, const char *text) { return tern_jinja_put(r, text, strlen(text)); }

// Keys of one type are compared by value, others by the names of their types.
static bool key_less(jrun *r, jvalue a, jvalue b, bool *less) {
    bool numbers = tern_jinja_is_number(a) && tern_jinja_is_number(b);
    if (numbers || (a.type == J_STRING && b.type == J_STRING))
        return tern_jinja_less(r, "<", a, b, less);
    *less = strcmp(tern_jinja_type_name(a), tern_jinja_type_name(b)) < 0;
    return tern_jinja_work(r, 1);
}

static bool sort_entries(jrun *r, const jdict *d, uint32_t **order) {
    uint32_t *from = tern_jinja_alloc(r, d->n, sizeof *from);
    uint32_t *to = from ? tern_jinja_alloc(r, d->n, sizeof *to) : NULL;
    if (!to) return false;
    for (uint32_t i = 0; i < d->n; i++) from[i] = i;
    for (uint64_t width = 1; width < d->n; width *= 2) { // merges runs of `width`
        for (uint64_t start = 0; start < d->n; start += 2 * width) {
            uint64_t middle = start + width < d->n ? start + width : d->n;
            uint64_t end = start + 2 * width < d->n ? start + 2 * width : d->n;
            for (uint64_t i = start, j = middle, k = start; k < end; k++) {
                bool right = i == middle;
                if (i < middle && j < end &&
                    !key_less(r, d->keys[from[j]], d->keys[from[i]], &right))
                    return false;
                to[k] = right ? from[j++] : from[i++];
            }
        }
        uint32_t *swap = from;
        from = to;
        to = swap;
    }
    *order = from;
    return true;
}

static bool is_plain_list(jvalue v) {
    return v.type == J_LIST && v.list->kind <= J_TUPLE && !v.list->is_group;
}

// repr() with sorted dicts.
static bool put_repr(jrun *r, jvalue v) {
    uint32_t *order;
    bool is_dict = v.type == J_DICT, ok = true;
    if (!is_dict && !is_plain_list(v)) return tern_jinja_repr(r, v);
    bool tuple = !is_dict && v.list->kind == J_TUPLE;
    if (!tern_jinja_enter(r) || !put(r, is_dict ? "{" : tuple ? "(" : "[")) return false;
    uint32_t n = is_dict ? v.dict->n : v.list->n;
    if (is_dict && !sort_entries(r, v.dict, &order)) return false;
    for (uint32_t i = 0; ok && i < n; i++) {
        ok = !i || put(r, ", ");
        if (is_dict)
            ok = ok && put_repr(r, v.dict->keys[order[i]]) && put(r, ": ") &&
                 put_repr(r, v.dict->values[order[i]]);
        else
            ok = ok && put_repr(r, v.list->items[i]);
    }
    r->depth--;
    return ok && put(r, is_dict ? "}" : tuple ? (n == 1 ? ",)" : ")") : "]");
}

static bool take_repr(jrun *r, jvalue v, jvalue *out, int64_t *n) {
    size_t mark = r->out->len;
    if (!put_repr(r, v) || !tern_jinja_take(r, mark, out)) return false;
    *n = (int64_t)tern_jinja_count(out->s, out->n);
    return true;
}

static bool put_break(jrun *r, const char *before, int64_t indent) {
    if (!put(r, before) || !put(r, "\n")) return false;
    for (int64_t i = 0; i < indent; i++)
        if (!put(r, " ")) return false;
    return true;
}

static bool put_value(jrun *r, jvalue v, int64_t indent, int64_t allowance, int level);

static bool put_dict(jrun *r, const jdict *d, int64_t indent, int64_t allowance, int level) {
    uint32_t *order;
    if (!put(r, "{") || !sort_entries(r, d, &order)) return false;
    for (uint32_t i = 0; i < d->n; i++) {
        jvalue key;
        int64_t n;
        if (!take_repr(r, d->keys[order[i]], &key, &n) || !tern_jinja_put(r, key.s, key.n) ||
            !put(r, ": "))
            return false;
        bool last = i + 1 == d->n;
        if (!put_value(r, d->values[order[i]], indent + 1 + n + 2, last ? allowance + 1 : 1,
                       level) ||
            (!last && !put_break(r, ",", indent + 1)))
            return false;
    }
    return put(r, "}");
}

static bool put_list(jrun *r, const jlist *list, int64_t indent, int64_t allowance, int level) {
    bool tuple = list->kind == J_TUPLE;
    const char *end = !tuple ? "]" : list->n == 1 ? ",)" : ")";
    if (!put(r, tuple ? "(" : "[")) return false;
    for (uint32_t i = 0; i < list->n; i++) {
        bool last = i + 1 == list->n;
        int64_t room = last ? allowance + (int64_t)strlen(end) : 1;
        if (!put_value(r, list->items[i], indent + 1, room, level) ||
            (!last && !put_break(r, ",", indent + 1)))
            return false;
    }
    return put(r, end);
}

static bool add_repr(jrun *r, jlist *chunks, const char *s, size_t n) {
    jvalue repr;
    int64_t length;
    return take_repr(r, J_STR_OF(s, n), &repr, &length) && tern_jinja_list_add(r, chunks, repr);
}

// Breaks a line that does not fit into chunks of words. room: for all chunks but the last.
static bool add_words(jrun *r, jlist *chunks, tern_str s, int64_t room, int64_t last_room) {
    size_t from = 0, at = 0; // the chunk so far is [from, at)
    while (at < s.len) {
        size_t end = at, space;
        jvalue repr;
        int64_t n;
        while (end < s.len && !tern_jinja_space(s.ptr + end, s.len - end)) end++;
        while (end < s.len && (space = tern_jinja_space(s.ptr + end, s.len - end))) end += space;
        if (end == s.len) room = last_room;
        if (!take_repr(r, J_STR_OF(s.ptr + from, end - from), &repr, &n)) return false;
        if (n > room) {
            if (at > from && !add_repr(r, chunks, s.ptr + from, at - from)) return false;
            from = at;
        }
        at = end;
    }
    return at == from || add_repr(r, chunks, s.ptr + from, at - from);
}

static bool put_string(jrun *r, jvalue v, int64_t indent, int64_t allowance, int level) {
    jvalue chunks, repr = {0};
    if (level == 1) indent++, allowance++;
    int64_t room = WIDTH - indent, n;
    if (!tern_jinja_list_new(r, J_PLAIN, 0, &chunks)) return false;
    for (size_t at = 0, end; at < v.n; at = end) {
        size_t length = 0;
        for (end = at; end < v.n && !(length = tern_jinja_line_end(v.s + end, v.n - end));) end++;
        end += length;
        int64_t last_room = end == v.n ? room - allowance : room;
        if (!take_repr(r, J_STR_OF(v.s + at, end - at), &repr, &n)) return false;
        if (n <= last_room
                ? !tern_jinja_list_add(r, chunks.list, repr)
                : !add_words(r, chunks.list, (tern_str){v.s + at, end - at}, room, last_room))
            return false;
    }
    if (chunks.list->n == 1) return tern_jinja_put(r, repr.s, repr.n);
    if (level == 1 && !put(r, "(")) return false;
    for (uint32_t i = 0; i < chunks.list->n; i++) {
        jvalue chunk = chunks.list->items[i];
        if ((i && !put_break(r, "", indent)) || !tern_jinja_put(r, chunk.s, chunk.n)) return false;
    }
    return level != 1 || put(r, ")");
}

static bool put_value(jrun *r, jvalue v, int64_t indent, int64_t allowance, int level) {
    jvalue repr;
    int64_t n;
    bool text = v.type == J_STRING && !tern_jinja_is_markup(v) && v.n;
    if (!take_repr(r, v, &repr, &n)) return false;
    if (n <= WIDTH - indent - allowance || (!text && v.type != J_DICT && !is_plain_list(v)))
        return tern_jinja_put(r, repr.s, repr.n);
    if (!tern_jinja_enter(r)) return false;
    bool ok = text               ? put_string(r, v, indent, allowance, level + 1)
              : v.type == J_DICT ? put_dict(r, v.dict, indent, allowance, level + 1)
                                 : put_list(r, v.list, indent, allowance, level + 1);
    r->depth--;
    return ok;
}

bool tern_jinja_filter_pprint(jrun *r, const jcall *c, jvalue *out) {
    size_t mark = r->out->len;
    return put_value(r, c->self, 0, 0, 0) && tern_jinja_take(r, mark, out);
}

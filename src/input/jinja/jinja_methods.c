// Methods of strings, lists, dicts and `loop`. Those that change their object (append, pop, update)
// are not here: Jinja2's immutable sandbox, in which transformers runs templates, refuses them
// (is_mutating in jinja_value.c).
#include "input/jinja/jinja.h"

#include <string.h>
#include <utf8proc.h>
#include "base/utf8.h"
#include "input/unicode.h"

// For methods that are special cases of a more general function.
#define METHOD(name, call)                                                                         \
    static bool name(jrun *r, const jcall *c, jvalue *out) { return call; }

static tern_str self_str(const jcall *c) { return (tern_str){c->self.s, c->self.n}; }
static jvalue str_value(tern_str s) { return J_STR_OF(s.ptr, s.len); }

// ---- Letters -----------------------------------------------------------------------------------

typedef enum letters { LOWER, UPPER, TITLE, CAPITALIZE, SWAP } letters;

// A capital sigma becomes the word-final form if a letter comes before it and none after it; marks
// and signs that words may contain are skipped. No search goes past the next sigma, so all of them
// together read the text twice.
static bool is_final_sigma(tern_str s, size_t at) {
    uint32_t code = 0;
    size_t i = at;
    bool before = false;
    while (i > 0) {
        size_t n = 1;
        while (n < 4 && n < i && (s.ptr[i - n] & 0xC0) == 0x80) n++;
        i -= n;
        if (tern_utf8_decode(s.ptr + i, n, &code) <= 0) break;
        if (tern_unicode_is_case_ignorable(code)) continue;
        before = tern_unicode_is_cased(code);
        break;
    }
    for (i = at + 2; before && i < s.len;) {
        int n = tern_utf8_decode(s.ptr + i, s.len - i, &code);
        if (n <= 0) break;
        i += (size_t)n;
        if (tern_unicode_is_case_ignorable(code)) continue;
        return !tern_unicode_is_cased(code);
    }
    return before;
}

static tern_case wanted_case(letters how, uint32_t code, bool in_word, bool is_first) {
    switch (how) {
    case UPPER: return TERN_UPPER;
    case TITLE: return in_word ? TERN_LOWER : TERN_TITLE;
    case CAPITALIZE: return is_first ? TERN_TITLE : TERN_LOWER;
    case SWAP: return tern_unicode_is_upper(code) ? TERN_LOWER : TERN_UPPER;
    default: return TERN_LOWER;
    }
}

static bool put_char(jrun *r, tern_str s, size_t at, uint32_t code, tern_case to) {
    uint32_t changed[3];
    char text[12];
    size_t n = 0;
    int count = tern_unicode_change_case(code, to, changed);
    if (code == 0x3A3 && to == TERN_LOWER) changed[0] = is_final_sigma(s, at) ? 0x3C2 : 0x3C3;
    for (int i = 0; i < count; i++) n += (size_t)tern_utf8_encode(changed[i], text + n);
    return tern_jinja_put(r, text, n);
}

static bool change_case(jrun *r, tern_str s, letters how, jvalue *out) {
    size_t mark = r->out->len;
    bool in_word = false;
    for (size_t i = 0; i < s.len;) {
        uint32_t code;
        int n = tern_utf8_decode(s.ptr + i, s.len - i, &code);
        if (n <= 0) {
            if (!tern_jinja_put(r, s.ptr + i++, 1)) return false;
            continue;
        }
        tern_case to = wanted_case(how, code, in_word, i == 0);
        bool stays = how == SWAP && !tern_unicode_is_upper(code) && !tern_unicode_is_lower(code);
        if (stays ? !tern_jinja_put(r, s.ptr + i, (size_t)n) : !put_char(r, s, i, code, to))
            return false;
        in_word = tern_unicode_is_cased(code);
        i += (size_t)n;
    }
    return tern_jinja_take(r, mark, out);
}

static bool str_casefold(jrun *r, const jcall *c, jvalue *out) {
    size_t mark = r->out->len;
    for (uint32_t i = 0; i < c->self.n;) {
        uint32_t code;
        utf8proc_int32_t folded[8];
        char text[4];
        int boundary = 0, n = tern_utf8_decode(c->self.s + i, c->self.n - i, &code);
        utf8proc_ssize_t count = n <= 0 ? 0
                                        : utf8proc_decompose_char((utf8proc_int32_t)code, folded, 8,
                                                                  UTF8PROC_CASEFOLD, &boundary);
        if (count <= 0 || count > 8) {
            if (!tern_jinja_put(r, c->self.s + i++, 1)) return false;
            continue;
        }
        for (utf8proc_ssize_t k = 0; k < count; k++)
            if (!tern_jinja_put(r, text, (size_t)tern_utf8_encode((uint32_t)folded[k], text)))
                return false;
        i += (uint32_t)n;
    }
    return tern_jinja_take(r, mark, out);
}

METHOD(str_lower, change_case(r, self_str(c), LOWER, out))
METHOD(str_upper, change_case(r, self_str(c), UPPER, out))
METHOD(str_title, change_case(r, self_str(c), TITLE, out))
METHOD(str_swapcase, change_case(r, self_str(c), SWAP, out))
METHOD(str_capitalize, change_case(r, self_str(c), CAPITALIZE, out))

typedef enum char_class { DIGIT, ALPHA, ALNUM, SPACE, UPPERCASE, LOWERCASE } char_class;

static bool is_of_class(jrun *r, tern_str s, char_class want, jvalue *out) {
    bool all = s.len > 0, any_cased = false;
    for (size_t i = 0; i < s.len && all;) {
        uint32_t code = 0;
        int n = tern_utf8_decode(s.ptr + i, s.len - i, &code);
        utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)code);
        bool alpha = n > 0 && c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
        bool digit = n > 0 && c == UTF8PROC_CATEGORY_ND;
        switch (want) {
        case DIGIT: all = digit; break;
        case ALPHA: all = alpha; break;
        case ALNUM: all = alpha || digit; break;
        case SPACE: all = tern_jinja_space(s.ptr + i, s.len - i) != 0; break;
        case UPPERCASE:
            all = !tern_unicode_is_lower(code) && !tern_unicode_is_title(code);
            any_cased |= tern_unicode_is_upper(code);
            break;
        case LOWERCASE:
            all = !tern_unicode_is_upper(code) && !tern_unicode_is_title(code);
            any_cased |= tern_unicode_is_lower(code);
            break;
        }
        i += n > 0 ? (size_t)n : 1;
    }
    if (want >= UPPERCASE) all = all && any_cased;
    *out = J_BOOL_OF(all);
    return tern_jinja_work(r, s.len);
}

METHOD(str_isdigit, is_of_class(r, self_str(c), DIGIT, out))
METHOD(str_isalpha, is_of_class(r, self_str(c), ALPHA, out))
METHOD(str_isalnum, is_of_class(r, self_str(c), ALNUM, out))
METHOD(str_isspace, is_of_class(r, self_str(c), SPACE, out))
METHOD(str_isupper, is_of_class(r, self_str(c), UPPERCASE, out))
METHOD(str_islower, is_of_class(r, self_str(c), LOWERCASE, out))

// ---- Ends --------------------------------------------------------------------------------------

static bool strip(jrun *r, const jcall *c, bool left, bool right, jvalue *out) {
    tern_str chars, *given = NULL;
    if (c->arg[0].type != J_MISSING && c->arg[0].type != J_NONE) {
        if (!tern_jinja_arg_str(r, c->arg[0], NULL, &chars)) return false;
        given = &chars;
    }
    *out = str_value(tern_jinja_strip(self_str(c), given, left, right));
    return tern_jinja_work(r, c->self.n);
}

METHOD(str_strip, strip(r, c, true, true, out))
METHOD(str_lstrip, strip(r, c, true, false, out))
METHOD(str_rstrip, strip(r, c, false, true, out))

static bool has_end(tern_str s, tern_str part, bool at_end) {
    return s.len >= part.len &&
           tern_str_eq((tern_str){at_end ? s.ptr + s.len - part.len : s.ptr, part.len}, part);
}

static bool test_end(jrun *r, const jcall *c, bool at_end, jvalue *out) { // a string or a tuple
    jvalue one = c->arg[0], s = c->self;
    bool is_tuple = one.type == J_LIST && one.list->kind == J_TUPLE;
    tern_str part;
    if (c->arg[1].type != J_MISSING && !tern_jinja_slice(r, s, &c->arg[1], NULL, NULL, &s))
        return false;
    *out = J_BOOL_OF(false);
    for (uint32_t i = 0; i < (is_tuple ? one.list->n : 1) && !out->b; i++) {
        if (!tern_jinja_arg_str(r, is_tuple ? one.list->items[i] : one, NULL, &part)) return false;
        out->b = has_end((tern_str){s.s, s.n}, part, at_end);
    }
    return true;
}

METHOD(str_startswith, test_end(r, c, false, out))
METHOD(str_endswith, test_end(r, c, true, out))

static bool remove_end(jrun *r, const jcall *c, bool at_end, jvalue *out) {
    tern_str s = self_str(c), part;
    if (!tern_jinja_arg_str(r, c->arg[0], NULL, &part)) return false;
    bool has = has_end(s, part, at_end);
    if (has && !at_end) s.ptr += part.len;
    if (has) s.len -= part.len;
    *out = str_value(s);
    return true;
}

METHOD(str_removeprefix, remove_end(r, c, false, out))
METHOD(str_removesuffix, remove_end(r, c, true, out))

// ---- Search ------------------------------------------------------------------------------------

// Takes s.len * part.len steps: count them before.
static const char *find_last(tern_str s, tern_str part) {
    if (part.len > s.len) return NULL;
    for (const char *p = s.ptr + (s.len - part.len);; p--) {
        if (part.len == 0 || memcmp(p, part.ptr, part.len) == 0) return p;
        if (p == s.ptr) return NULL;
    }
}

static const char *find_first(tern_str s, tern_str part) {
    if (part.len == 0) return s.ptr;
    return s.len ? memmem(s.ptr, s.len, part.ptr, part.len) : NULL;
}

static bool find(jrun *r, const jcall *c, bool last, jvalue *out) {
    tern_str s = self_str(c), part;
    jvalue rest = c->self;
    if (!tern_jinja_arg_str(r, c->arg[0], NULL, &part)) return false;
    if (!tern_jinja_work(r, last ? (uint64_t)s.len * (part.len + 1) : s.len)) return false;
    if (c->arg[1].type != J_MISSING || c->arg[2].type != J_MISSING) {
        const jvalue *stop = c->arg[2].type == J_MISSING ? NULL : &c->arg[2];
        if (!tern_jinja_slice(r, c->self, &c->arg[1], stop, NULL, &rest)) return false;
    }
    const char *hit = last ? find_last((tern_str){rest.s, rest.n}, part)
                           : find_first((tern_str){rest.s, rest.n}, part);
    *out = J_INT_OF(hit ? (int64_t)tern_jinja_count(s.ptr, (size_t)(hit - s.ptr)) : -1);
    return true;
}

METHOD(str_find, find(r, c, false, out))
METHOD(str_rfind, find(r, c, true, out))
static bool str_index(jrun *r, const jcall *c, jvalue *out) {
    if (!find(r, c, false, out)) return false;
    return out->i >= 0 || tern_jinja_fail(r, "substring not found");
}

static bool str_count(jrun *r, const jcall *c, jvalue *out) {
    tern_str s = self_str(c), part;
    int64_t n = 0;
    if (!tern_jinja_arg_str(r, c->arg[0], NULL, &part)) return false;
    if (part.len == 0) n = (int64_t)tern_jinja_count(s.ptr, s.len) + 1;
    for (const char *hit; part.len && (hit = find_first(s, part)); n++) {
        s.len -= (size_t)(hit - s.ptr) + part.len;
        s.ptr = hit + part.len;
    }
    *out = J_INT_OF(n);
    return tern_jinja_work(r, c->self.n);
}

static bool str_replace(jrun *r, const jcall *c, jvalue *out) {
    tern_str s = self_str(c), old, new;
    int64_t left;
    size_t mark = r->out->len;
    if (!tern_jinja_arg_str(r, c->arg[0], NULL, &old) ||
        !tern_jinja_arg_str(r, c->arg[1], NULL, &new) ||
        !tern_jinja_arg_int(r, c->arg[2], -1, &left))
        return false;
    while (left != 0) {
        const char *hit = find_first(s, old);
        size_t before = hit ? (size_t)(hit - s.ptr) : 0;
        if (!hit) break;
        if (!tern_jinja_put(r, s.ptr, before) || !tern_jinja_put(r, new.ptr, new.len)) return false;
        if (old.len == 0) { // between all characters
            if (s.len == 0) return tern_jinja_take(r, mark, out);
            size_t n = tern_jinja_char(s.ptr, s.len);
            if (!tern_jinja_put(r, s.ptr, n)) return false;
            before = n;
        }
        s.ptr += before + old.len;
        s.len -= before + old.len;
        left--;
    }
    return tern_jinja_put(r, s.ptr, s.len) && tern_jinja_take(r, mark, out);
}

// ---- Parts -------------------------------------------------------------------------------------

static bool add_part(jrun *r, jlist *list, const char *from, const char *to) {
    return tern_jinja_list_add(r, list, J_STR_OF(from, to - from));
}

static bool split_words(jrun *r, tern_str s, int64_t limit, jlist *list) {
    s = tern_jinja_strip(s, NULL, true, false);
    while (s.len) {
        size_t n = 0, space = 0;
        if (limit-- == 0) return add_part(r, list, s.ptr, s.ptr + s.len);
        while (n < s.len && !(space = tern_jinja_space(s.ptr + n, s.len - n)))
            n += tern_jinja_char(s.ptr + n, s.len - n);
        if (!add_part(r, list, s.ptr, s.ptr + n)) return false;
        s = tern_jinja_strip((tern_str){s.ptr + n, s.len - n}, NULL, true, false);
    }
    return true;
}

static bool split(jrun *r, const jcall *c, bool from_right, jvalue *out) {
    tern_str s = self_str(c), by;
    int64_t limit;
    if (!tern_jinja_list_new(r, J_PLAIN, 0, out) || !tern_jinja_work(r, s.len)) return false;
    jlist *list = out->list;
    if (!tern_jinja_arg_int(r, c->arg[1], -1, &limit)) return false;
    bool words = c->arg[0].type == J_MISSING || c->arg[0].type == J_NONE;
    if (words && from_right && limit >= 0)
        return tern_jinja_fail(r, "rsplit() at white space with a limit is not supported");
    if (words) return split_words(r, s, limit, list);
    if (!tern_jinja_arg_str(r, c->arg[0], NULL, &by)) return false;
    if (by.len == 0) return tern_jinja_fail(r, "empty separator");
    if (from_right && !tern_jinja_work(r, (uint64_t)s.len * by.len)) return false;
    for (const char *hit; limit-- != 0;) {
        hit = from_right ? find_last(s, by) : find_first(s, by);
        if (!hit) break;
        const char *after = hit + by.len, *end = s.ptr + s.len;
        if (!(from_right ? add_part(r, list, after, end) : add_part(r, list, s.ptr, hit)))
            return false;
        s = from_right ? (tern_str){s.ptr, (size_t)(hit - s.ptr)}
                       : (tern_str){after, (size_t)(end - after)};
    }
    if (!add_part(r, list, s.ptr, s.ptr + s.len)) return false;
    for (uint32_t i = 0, j = list->n - 1; from_right && i < j; i++, j--) {
        jvalue swap = list->items[i];
        list->items[i] = list->items[j];
        list->items[j] = swap;
    }
    return true;
}

METHOD(str_split, split(r, c, false, out))
METHOD(str_rsplit, split(r, c, true, out))

static bool partition(jrun *r, const jcall *c, bool last, jvalue *out) {
    tern_str s = self_str(c), by;
    const char *end = s.ptr + s.len;
    if (!tern_jinja_arg_str(r, c->arg[0], NULL, &by)) return false;
    if (by.len == 0) return tern_jinja_fail(r, "empty separator");
    if (!tern_jinja_work(r, (uint64_t)s.len * by.len)) return false;
    const char *hit = last ? find_last(s, by) : find_first(s, by);
    if (!tern_jinja_list_new(r, J_TUPLE, 3, out)) return false;
    if (hit)
        return add_part(r, out->list, s.ptr, hit) && add_part(r, out->list, hit, hit + by.len) &&
               add_part(r, out->list, hit + by.len, end);
    return add_part(r, out->list, s.ptr, last ? s.ptr : end) &&
           add_part(r, out->list, s.ptr, s.ptr) && add_part(r, out->list, last ? s.ptr : end, end);
}

METHOD(str_partition, partition(r, c, false, out))
METHOD(str_rpartition, partition(r, c, true, out))

static bool str_splitlines(jrun *r, const jcall *c, jvalue *out) {
    tern_str s = self_str(c);
    bool keep = tern_jinja_truth(c->arg[0]);
    if (!tern_jinja_list_new(r, J_PLAIN, 0, out)) return false;
    for (size_t at = 0, n = 0; at < s.len; at = n) {
        size_t length = 0;
        while (n < s.len && !(length = tern_jinja_line_end(s.ptr + n, s.len - n))) n++;
        size_t end = n;
        n += length;
        if (!add_part(r, out->list, s.ptr + at, s.ptr + (keep ? n : end))) return false;
    }
    return tern_jinja_work(r, s.len);
}

static bool str_join(jrun *r, const jcall *c, jvalue *out) {
    const jvalue *items;
    uint32_t n;
    size_t mark = r->out->len;
    if (!tern_jinja_iterate(r, c->arg[0], &items, &n)) return false;
    for (uint32_t i = 0; i < n; i++) {
        if (items[i].type != J_STRING)
            return tern_jinja_fail(r, "sequence item %u: expected str instance, %s found", i,
                                   tern_jinja_type_name(items[i]));
        if ((i && !tern_jinja_put(r, c->self.s, c->self.n)) ||
            !tern_jinja_put(r, items[i].s, items[i].n))
            return false;
    }
    return tern_jinja_take(r, mark, out);
}

static bool str_format(jrun *r, const jcall *c, jvalue *out) {
    size_t mark = r->out->len;
    return tern_jinja_str_format(r, self_str(c), c->args) && tern_jinja_take(r, mark, out);
}

static bool pad(jrun *r, const jcall *c, bool left, bool right, const char *with, jvalue *out) {
    int64_t width, have = (int64_t)tern_jinja_count(c->self.s, c->self.n);
    tern_str fill;
    size_t mark = r->out->len;
    if (!tern_jinja_arg_int(r, c->arg[0], 0, &width) ||
        !tern_jinja_arg_str(r, c->arg[1], with, &fill))
        return false;
    if (tern_jinja_count(fill.ptr, fill.len) != 1)
        return tern_jinja_fail(r, "the fill character must be exactly one character long");
    int64_t missing = width > have ? width - have : 0, before = left ? missing : 0;
    // Python puts the extra space of a centred text in front if the width is odd.
    if (left && right) before = missing / 2 + (missing & width & 1);
    if ((uint64_t)missing > r->limits->text_bytes)
        return tern_jinja_fail(r, "pads a text to more than %zu MiB", r->limits->text_bytes >> 20);
    tern_str sign = {c->self.s,
                     *with == '0' && c->self.n && strchr("+-", *c->self.s) && *c->self.s};
    if (!tern_jinja_put(r, sign.ptr, sign.len)) return false;
    for (int64_t i = 0; i < before; i++)
        if (!tern_jinja_put(r, fill.ptr, fill.len)) return false;
    if (!tern_jinja_put(r, c->self.s + sign.len, c->self.n - sign.len)) return false;
    for (int64_t i = before; i < missing; i++)
        if (!tern_jinja_put(r, fill.ptr, fill.len)) return false;
    return tern_jinja_take(r, mark, out);
}

METHOD(str_ljust, pad(r, c, false, true, " ", out))
METHOD(str_rjust, pad(r, c, true, false, " ", out))
METHOD(str_center, pad(r, c, true, true, " ", out))
METHOD(str_zfill, pad(r, c, true, false, "0", out))

// ---- Lists and dicts ---------------------------------------------------------------------------

static bool list_index(jrun *r, const jcall *c, jvalue *out) {
    for (uint32_t i = 0; i < c->self.list->n; i++) {
        bool same;
        if (!tern_jinja_equal(r, c->self.list->items[i], c->arg[0], &same)) return false;
        *out = J_INT_OF(i);
        if (same) return true;
    }
    return tern_jinja_fail(r, "index(): the value is not in the list");
}

static bool list_count(jrun *r, const jcall *c, jvalue *out) {
    *out = J_INT_OF(0);
    for (uint32_t i = 0; i < c->self.list->n; i++) {
        bool same;
        if (!tern_jinja_equal(r, c->self.list->items[i], c->arg[0], &same)) return false;
        out->i += same;
    }
    return true;
}

static bool list_copy(jrun *r, const jcall *c, jvalue *out) {
    return tern_jinja_slice(r, c->self, NULL, NULL, NULL, out);
}

static bool dict_get(jrun *r, const jcall *c, jvalue *out) {
    bool found;
    *out = c->arg[1].type == J_MISSING ? J_NONE_VALUE : c->arg[1];
    return tern_jinja_dict_get(r, c->self.dict, c->arg[0], out, &found);
}

static bool dict_view(jrun *r, const jdict *d, bool keys, bool values, jvalue *out) {
    if (!tern_jinja_list_new(r, J_VIEW, d->n, out)) return false;
    out->list->view = !values ? 'k' : !keys ? 'v' : 'i';
    for (uint32_t i = 0; i < d->n; i++) {
        jvalue item = keys ? d->keys[i] : d->values[i];
        if (keys && values &&
            (!tern_jinja_list_new(r, J_TUPLE, 2, &item) ||
             !tern_jinja_list_add(r, item.list, d->keys[i]) ||
             !tern_jinja_list_add(r, item.list, d->values[i])))
            return false;
        if (!tern_jinja_list_add(r, out->list, item)) return false;
    }
    return true;
}

METHOD(dict_keys, dict_view(r, c->self.dict, true, false, out))
METHOD(dict_values, dict_view(r, c->self.dict, false, true, out))
METHOD(dict_items, dict_view(r, c->self.dict, true, true, out))

static bool dict_copy(jrun *r, const jcall *c, jvalue *out) {
    if (!tern_jinja_dict_new(r, J_DICT, out)) return false;
    for (uint32_t i = 0; i < c->self.dict->n; i++)
        if (!tern_jinja_dict_set(r, out->dict, c->self.dict->keys[i], c->self.dict->values[i]))
            return false;
    return true;
}

// ---- Objects -----------------------------------------------------------------------------------

static bool cycler_next(jrun *r, const jcall *c, jvalue *out) {
    (void)r;
    jcycler *cycler = c->self.cycler;
    *out = cycler->items.list->items[cycler->at];
    cycler->at = (cycler->at + 1) % cycler->items.list->n;
    return true;
}

static bool cycler_reset(jrun *r, const jcall *c, jvalue *out) {
    (void)r;
    c->self.cycler->at = 0;
    *out = J_NONE_VALUE;
    return true;
}

// ---- loop --------------------------------------------------------------------------------------

static bool loop_cycle(jrun *r, const jcall *c, jvalue *out) {
    if (c->args->n == 0) return tern_jinja_fail(r, "no items for cycling given");
    *out = c->args->at[c->self.loop->index % c->args->n];
    return true;
}

static bool loop_changed(jrun *r, const jcall *c, jvalue *out) {
    jvalue now;
    bool same = false;
    if (!tern_jinja_list_new(r, J_TUPLE, c->args->n, &now)) return false;
    for (uint32_t i = 0; i < c->args->n; i++)
        if (!tern_jinja_list_add(r, now.list, c->args->at[i])) return false;
    if (!tern_jinja_equal(r, c->self.loop->changed, now, &same)) return false;
    c->self.loop->changed = now;
    *out = J_BOOL_OF(!same);
    return true;
}

// ---- Tables ------------------------------------------------------------------------------------

static const jbuiltin str_methods[] = {
    {"split", "?sep ?maxsplit", str_split},
    {"strip", "?chars", str_strip},
    {"lstrip", "?chars", str_lstrip},
    {"rstrip", "?chars", str_rstrip},
    {"startswith", "prefix ?start", str_startswith},
    {"endswith", "suffix ?start", str_endswith},
    {"replace", "old new ?count", str_replace},
    {"join", "iterable", str_join},
    {"format", "*", str_format},
    {"lower", "", str_lower},
    {"upper", "", str_upper},
    {"title", "", str_title},
    {"capitalize", "", str_capitalize},
    {"swapcase", "", str_swapcase},
    {"casefold", "", str_casefold},
    {"rsplit", "?sep ?maxsplit", str_rsplit},
    {"splitlines", "?keepends", str_splitlines},
    {"partition", "sep", str_partition},
    {"rpartition", "sep", str_rpartition},
    {"find", "sub ?start ?end", str_find},
    {"rfind", "sub ?start ?end", str_rfind},
    {"index", "sub ?start ?end", str_index},
    {"count", "sub", str_count},
    {"removeprefix", "prefix", str_removeprefix},
    {"removesuffix", "suffix", str_removesuffix},
    {"isdigit", "", str_isdigit},
    {"isdecimal", "", str_isdigit},
    {"isnumeric", "", str_isdigit},
    {"isalpha", "", str_isalpha},
    {"isalnum", "", str_isalnum},
    {"isspace", "", str_isspace},
    {"isupper", "", str_isupper},
    {"islower", "", str_islower},
    {"ljust", "width ?fillchar", str_ljust},
    {"rjust", "width ?fillchar", str_rjust},
    {"center", "width ?fillchar", str_center},
    {"zfill", "width", str_zfill},
};
static const jbuiltin list_methods[] = {
    {"index", "value", list_index},
    {"count", "value", list_count},
    {"copy", "", list_copy},
};
static const jbuiltin dict_methods[] = {
    {"get", "key ?default", dict_get}, {"items", "", dict_items}, {"keys", "", dict_keys},
    {"values", "", dict_values},       {"copy", "", dict_copy},
};
static const jbuiltin cycler_methods[] = {{"next", "", cycler_next}, {"reset", "", cycler_reset}};
static const jbuiltin loop_methods[] = {{"cycle", "*", loop_cycle}, {"changed", "*", loop_changed}};

#define FIND(table) tern_jinja_find(table, sizeof table / sizeof *table, name, n)

const jbuiltin *tern_jinja_find_method(uint8_t type, const char *name, size_t n) {
    switch (type) {
    case J_STRING: return FIND(str_methods);
    case J_LIST: return FIND(list_methods);
    case J_DICT: return FIND(dict_methods);
    case J_LOOP: return FIND(loop_methods);
    case J_CYCLER: return FIND(cycler_methods);
    default: return NULL;
    }
}

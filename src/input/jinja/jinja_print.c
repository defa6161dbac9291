// Values as text: Python's str() and repr(), and json.dumps().
#include "input/jinja/jinja.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "base/utf8.h"

static bool put(jrun *r, const char *text) { return tern_jinja_put(r, text, strlen(text)); }

// The shortest decimal that reads back as the same double, in Python's notation: plain for
// exponents from -4 to 15, and always with a point or an exponent.
static bool put_float(jrun *r, double f) {
    char text[40], *exponent;
    if (isnan(f)) return put(r, "nan");
    if (isinf(f)) return put(r, f < 0 ? "-inf" : "inf");
    int digits = 1;
    do snprintf(text, sizeof text, "%.*e", digits - 1, f);
    while (strtod(text, NULL) != f && digits++ < 17);
    exponent = strchr(text, 'e');
    int power = atoi(exponent + 1);
    if (power >= -4 && power < 16) {
        int decimals = digits - 1 - power;
        snprintf(text, sizeof text, "%.*f", decimals > 0 ? decimals : 1, f);
    } else {
        snprintf(exponent, sizeof text - (size_t)(exponent - text), "e%c%02d",
                 power < 0 ? '-' : '+', abs(power));
    }
    return put(r, text);
}

static bool is_printable(uint32_t code) {
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    case UTF8PROC_CATEGORY_ZS: return code == ' ';
    default: return true;
    }
}

static bool put_string_repr(jrun *r, jvalue v) {
    bool single = v.n && memchr(v.s, '\'', v.n), twofold = v.n && memchr(v.s, '"', v.n);
    char quote = single && !twofold ? '"' : '\'', text[16];
    if (!tern_jinja_put(r, &quote, 1)) return false;
    for (uint32_t i = 0; i < v.n;) {
        uint32_t code;
        int n = tern_utf8_decode(v.s + i, v.n - i, &code);
        if (n <= 0) code = (unsigned char)v.s[i], n = 1;
        const char *escape = code == '\n'   ? "\\n"
                             : code == '\r' ? "\\r"
                             : code == '\t' ? "\\t"
                                            : NULL;
        if (code == '\\' || code == (uint32_t)quote) {
            snprintf(text, sizeof text, "\\%c", (int)code);
            escape = text;
        } else if (!escape && !is_printable(code)) {
            const char *form = code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x";
            snprintf(text, sizeof text, form, (unsigned)code);
            escape = text;
        }
        if (escape ? !put(r, escape) : !tern_jinja_put(r, v.s + i, (size_t)n)) return false;
        i += (uint32_t)n;
    }
    return tern_jinja_put(r, &quote, 1);
}

static bool put_list(jrun *r, const jlist *list) {
    static const char *const open[] = {"[", "(", "[", ""};
    static const char *const close[] = {"]", ")", "]", "])"};
    const char *view = list->view == 'k'   ? "dict_keys(["
                       : list->view == 'v' ? "dict_values(["
                                           : "dict_items([";
    if (!put(r, list->kind == J_VIEW ? view : open[list->kind])) return false;
    for (uint32_t i = 0; i < list->n; i++)
        if ((i && !put(r, ", ")) || !tern_jinja_repr(r, list->items[i])) return false;
    if (list->kind == J_TUPLE && list->n == 1 && !put(r, ",")) return false;
    return put(r, close[list->kind]);
}

static bool put_dict(jrun *r, const jdict *d) {
    if (!put(r, "{")) return false;
    for (uint32_t i = 0; i < d->n; i++)
        if ((i && !put(r, ", ")) || !tern_jinja_repr(r, d->keys[i]) || !put(r, ": ") ||
            !tern_jinja_repr(r, d->values[i]))
            return false;
    return put(r, "}");
}

bool tern_jinja_repr(jrun *r, jvalue v) {
    char text[48];
    bool ok;
    switch (v.type) {
    case J_STRING:
        if (!tern_jinja_is_markup(v)) return put_string_repr(r, v);
        return put(r, "Markup(") && put_string_repr(r, v) && put(r, ")");
    case J_UNDEFINED: return put(r, "Undefined");
    case J_NONE: return put(r, "None");
    case J_BOOL: return put(r, v.b ? "True" : "False");
    case J_INT: snprintf(text, sizeof text, "%lld", (long long)v.i); return put(r, text);
    case J_FLOAT: return put_float(r, v.f);
    case J_LIST:
    case J_DICT:
    case J_NAMESPACE:
        if (!tern_jinja_enter(r)) return false;
        if (v.type == J_LIST)
            ok = put_list(r, v.list);
        else if (v.type == J_DICT)
            ok = put_dict(r, v.dict);
        else
            ok = put(r, "<Namespace ") && put_dict(r, v.dict) && put(r, ">");
        r->depth--;
        return ok;
    case J_MACRO:
        return put(r, "<Macro ") && put_string_repr(r, v.macro->node->value) && put(r, ">");
    case J_LOOP:
        snprintf(text, sizeof text, "<LoopContext %u/%u>", v.loop->index + 1, v.loop->n);
        return put(r, text);
    case J_CYCLER: return put(r, "<Cycler>");
    case J_JOINER: return put(r, "<Joiner>");
    case J_SELF: return put(r, "<TemplateReference None>");
    case J_BLOCK_REF: return put(r, "<BlockReference>");
    default: return put(r, "<function>");
    }
}

bool tern_jinja_print(jrun *r, jvalue v) {
    if (v.type == J_STRING) return tern_jinja_put(r, v.s, v.n);
    if (v.type == J_UNDEFINED) return !r->limits->strict || tern_jinja_fail_undefined(r, v);
    return tern_jinja_repr(r, v);
}

bool tern_jinja_to_string(jrun *r, jvalue v, jvalue *out) {
    size_t mark = r->out->len;
    *out = v;
    return v.type == J_STRING || (tern_jinja_print(r, v) && tern_jinja_take(r, mark, out));
}

// ---- JSON --------------------------------------------------------------------------------------

static bool json_string(jrun *r, tern_str s, bool ascii) {
    static const char plain[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    char text[16];
    if (!put(r, "\"")) return false;
    for (size_t i = 0; i < s.len;) {
        uint32_t code;
        int n = tern_utf8_decode(s.ptr + i, s.len - i, &code);
        if (n <= 0) code = 0xFFFD, n = 1; // not UTF-8
        const char *hit = code && code < 128 ? strchr(plain, (int)code) : NULL;
        if (hit)
            snprintf(text, sizeof text, "\\%c", letters[hit - plain]);
        else if (code < 32 || (ascii && code > 126 && code < 0x10000))
            snprintf(text, sizeof text, "\\u%04x", (unsigned)code);
        else if (ascii && code > 0xFFFF)
            snprintf(text, sizeof text, "\\u%04x\\u%04x",
                     (unsigned)(0xD800 + ((code - 0x10000) >> 10)),
                     (unsigned)(0xDC00 + ((code - 0x10000) & 0x3FF)));
        else
            text[tern_utf8_encode(code, text)] = 0;
        if (code ? !put(r, text) : !put(r, "\\u0000")) return false;
        i += (size_t)n;
    }
    return put(r, "\"");
}

static bool json_key(jrun *r, jvalue key, const jjson_style *style) {
    if (key.type == J_STRING) return json_string(r, (tern_str){key.s, key.n}, style->ascii);
    if (!tern_jinja_is_number(key) && key.type != J_NONE)
        return tern_jinja_fail(r, "tojson: keys must be str, int, float, bool or None, not %s",
                               tern_jinja_type_name(key));
    return put(r, "\"") && tern_jinja_to_json(r, key, style, 0) && put(r, "\"");
}

static bool json_break(jrun *r, const jjson_style *style, uint32_t level) {
    if (!style->pretty) return true;
    if (!put(r, "\n")) return false;
    for (uint32_t i = 0; i < level; i++)
        if (!tern_jinja_put(r, style->indent.ptr, style->indent.len)) return false;
    return true;
}

// Indices of a dict's entries, in the order of their keys.
static bool sorted_entries(jrun *r, const jdict *d, uint32_t **order) {
    *order = tern_jinja_alloc(r, d->n, sizeof **order);
    if (!*order) return false;
    for (uint32_t i = 0; i < d->n; i++) { // insertion sort: such dicts are small
        uint32_t at = i;
        for (bool less; at > 0; at--) {
            if (!tern_jinja_work(r, 64) ||
                !tern_jinja_less(r, "<", d->keys[i], d->keys[(*order)[at - 1]], &less))
                return false;
            if (!less) break;
            (*order)[at] = (*order)[at - 1];
        }
        (*order)[at] = i;
    }
    return true;
}

static bool json_members(jrun *r, jvalue v, const jjson_style *style, uint32_t level) {
    bool is_dict = v.type == J_DICT;
    uint32_t n = is_dict ? v.dict->n : v.list->n, *order = NULL;
    if (n == 0) return put(r, is_dict ? "{}" : "[]");
    if (is_dict && style->sort && !sorted_entries(r, v.dict, &order)) return false;
    if (!put(r, is_dict ? "{" : "[")) return false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = order ? order[i] : i;
        if (i && !tern_jinja_put(r, style->item.ptr, style->item.len)) return false;
        if (!json_break(r, style, level + 1)) return false;
        if (is_dict && (!json_key(r, v.dict->keys[at], style) ||
                        !tern_jinja_put(r, style->key.ptr, style->key.len)))
            return false;
        if (!tern_jinja_to_json(r, is_dict ? v.dict->values[at] : v.list->items[at], style,
                                level + 1))
            return false;
    }
    return json_break(r, style, level) && put(r, is_dict ? "}" : "]");
}

bool tern_jinja_to_json(jrun *r, jvalue v, const jjson_style *style, uint32_t level) {
    if (v.type == J_DICT || (v.type == J_LIST && v.list->kind <= J_TUPLE)) {
        if (!tern_jinja_enter(r)) return false;
        bool ok = json_members(r, v, style, level);
        r->depth--;
        return ok;
    }
    switch (v.type) {
    case J_STRING: return json_string(r, (tern_str){v.s, v.n}, style->ascii);
    case J_NONE: return put(r, "null");
    case J_BOOL: return put(r, v.b ? "true" : "false");
    case J_INT: return tern_jinja_repr(r, v);
    case J_FLOAT:
        if (isfinite(v.f)) return tern_jinja_repr(r, v);
        return put(r, isnan(v.f) ? "NaN" : v.f < 0 ? "-Infinity" : "Infinity");
    default:
        return tern_jinja_fail(r, "tojson: object of type %s is not JSON serializable",
                               tern_jinja_type_name(v));
    }
}

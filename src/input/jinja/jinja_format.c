// Python's two ways of formatting: "%05.1f" % x, and "{:>8,}".format(x). One specification serves
// both: [[fill]align][sign][#][0][width][,][.precision][type].
#include "input/jinja/jinja.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define WIDTH_MAX     10000
#define PRECISION_MAX 400

typedef struct spec {
    tern_str fill;  // one character
    char align;     // '<' '>' '^' '=' or 0: depends on the type
    char sign;      // '+' ' ' or 0
    bool alternate; // 0x in front
    bool comma;
    int width, precision; // precision -1: none
    char type;            // 0: none
} spec;

static bool put_fill(jrun *r, const spec *f, size_t n) {
    while (n-- > 0)
        if (!tern_jinja_put(r, f->fill.ptr, f->fill.len)) return false;
    return true;
}

// head (a sign, 0x) comes before '=' padding.
static bool put_padded(jrun *r, const spec *f, tern_str head, tern_str body, char default_align) {
    size_t n = head.len + tern_jinja_count(body.ptr, body.len), left = 0, inner = 0;
    size_t pad = n < (size_t)f->width ? (size_t)f->width - n : 0;
    char align = f->align ? f->align : default_align;
    if (align == '>') left = pad;
    if (align == '^') left = pad / 2;
    if (align == '=') inner = pad;
    return put_fill(r, f, left) && tern_jinja_put(r, head.ptr, head.len) && put_fill(r, f, inner) &&
           tern_jinja_put(r, body.ptr, body.len) && put_fill(r, f, pad - left - inner);
}

static bool put_string(jrun *r, const spec *f, jvalue text) {
    size_t n = text.n;
    if (f->precision >= 0) { // at most this many characters
        size_t at = 0;
        for (int i = 0; i < f->precision && at < n; i++) at += tern_jinja_char(text.s + at, n - at);
        n = at;
    }
    return put_padded(r, f, TERN_STR(""), (tern_str){text.s, n}, '<');
}

// digits = the number without its sign
static bool put_number(jrun *r, const spec *f, bool negative, const char *prefix,
                       const char *digits) {
    char head[8], grouped[1000];
    tern_str body = {digits, strlen(digits)};
    snprintf(head, sizeof head, "%s%s",
             negative         ? "-"
             : f->sign == '+' ? "+"
             : f->sign == ' ' ? " "
                              : "",
             prefix);
    if (f->comma && body.len < sizeof grouped / 2) {
        size_t whole = strspn(digits, "0123456789"), to = 0;
        for (size_t i = 0; i < body.len; i++) {
            if (i && i < whole && (whole - i) % 3 == 0) grouped[to++] = ',';
            grouped[to++] = digits[i];
        }
        body = (tern_str){grouped, to};
    }
    return put_padded(r, f, (tern_str){head, strlen(head)}, body, '>');
}

static bool put_int(jrun *r, const spec *f, int64_t i) {
    char digits[72], *at = digits + sizeof digits - 1;
    uint64_t rest = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    unsigned base = f->type == 'x' || f->type == 'X' ? 16
                    : f->type == 'o'                 ? 8
                    : f->type == 'b'                 ? 2
                                                     : 10;
    const char *prefix = !f->alternate || base == 10 ? ""
                         : f->type == 'X'            ? "0X"
                         : base == 16                ? "0x"
                         : base == 8                 ? "0o"
                                                     : "0b";
    *at = 0;
    do *--at = (f->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[rest % base];
    while (rest /= base);
    return put_number(r, f, i < 0, prefix, at);
}

static bool put_double(jrun *r, const spec *f, double x) {
    char digits[800], form[8];
    char type = f->type == '%' ? 'f' : f->type;
    if (f->type == '%') x *= 100;
    snprintf(form, sizeof form, "%%%s.*%c", f->alternate ? "#" : "", type);
    int n = snprintf(digits, sizeof digits - 2, form, f->precision < 0 ? 6 : f->precision, fabs(x));
    if (n < 0 || (size_t)n >= sizeof digits - 2) return tern_jinja_fail(r, "a number is too long");
    if (f->type == '%') strcat(digits, "%");
    return put_number(r, f, signbit(x) && !isnan(x), "", digits);
}

static bool put_formatted(jrun *r, const spec *f, jvalue v) {
    jvalue text;
    bool is_int = v.type == J_INT || v.type == J_BOOL;
    if (f->type && strchr("dxXobc", f->type) && is_int) {
        if (f->type != 'c') return put_int(r, f, v.type == J_INT ? v.i : v.b);
    } else if (f->type && strchr("eEfFgG%", f->type) && tern_jinja_is_number(v)) {
        return put_double(r, f, tern_jinja_double(v));
    } else if (!f->type && is_int && (v.type == J_INT || f->width)) {
        return put_int(r, f, v.type == J_INT ? v.i : v.b);
    } else if (!f->type && v.type == J_FLOAT && f->precision >= 0) {
        spec general = *f;
        general.type = 'g';
        return put_double(r, &general, v.f);
    } else if (!f->type && v.type == J_FLOAT) {
        if (!tern_jinja_to_string(r, J_FLOAT_OF(fabs(v.f)), &text)) return false;
        char digits[48];
        snprintf(digits, sizeof digits, "%.*s", (int)text.n, text.s);
        return put_number(r, f, signbit(v.f), "", digits);
    } else if (!f->type || (f->type == 's' && v.type == J_STRING)) {
        return tern_jinja_to_string(r, v, &text) && put_string(r, f, text);
    }
    return tern_jinja_fail(r, "unknown format code '%c' for an object of type '%s'", f->type,
                           tern_jinja_type_name(v));
}

static bool read_number(jrun *r, const char **p, const char *end, int limit, int *out) {
    *out = 0;
    for (; *p < end && isdigit((unsigned char)**p); ++*p) {
        *out = *out * 10 + (**p - '0');
        if (*out > limit) return tern_jinja_fail(r, "a format's width is larger than %d", limit);
    }
    return true;
}

// ---- format % args -----------------------------------------------------------------------------

typedef struct percent_args {
    jvalue all;
    uint32_t next;
} percent_args;

static bool next_arg(jrun *r, percent_args *a, jvalue *out) {
    bool is_tuple = a->all.type == J_LIST && a->all.list->kind == J_TUPLE;
    if (a->next >= (is_tuple ? a->all.list->n : 1))
        return tern_jinja_fail(r, "not enough arguments for format string");
    *out = is_tuple ? a->all.list->items[a->next] : a->all;
    a->next++;
    return true;
}

static bool percent_flags(jrun *r, const char **p, const char *end, spec *f) {
    *f = (spec){.fill = TERN_STR(" "), .align = '>', .precision = -1};
    for (; *p < end && **p && strchr("-+ 0#", **p); ++*p) {
        if (**p == '-')
            f->align = '<';
        else if (**p == '0' && f->align != '<')
            f->fill = TERN_STR("0"), f->align = '=';
        else if (**p == '+' || (**p == ' ' && !f->sign))
            f->sign = **p;
        else if (**p == '#')
            f->alternate = true;
    }
    if (!read_number(r, p, end, WIDTH_MAX, &f->width)) return false;
    if (*p >= end || **p != '.') return true;
    ++*p;
    return read_number(r, p, end, PRECISION_MAX, &f->precision);
}

static bool put_percent(jrun *r, spec *f, char type, jvalue v) {
    jvalue text = v;
    size_t mark = r->out->len;
    f->type = type == 'i' || type == 'u' ? 'd' : type;
    if (type == 's' || type == 'r' || (type == 'c' && v.type == J_STRING)) {
        if (f->align == '=') f->fill = TERN_STR(" "), f->align = '>';
        if (type == 'r' && (!tern_jinja_repr(r, v) || !tern_jinja_take(r, mark, &text)))
            return false;
        bool ok = r->escape_args ? tern_jinja_escape(r, text, &text)
                                 : tern_jinja_to_string(r, text, &text);
        return ok && put_string(r, f, text);
    }
    if (v.type == J_UNDEFINED) return tern_jinja_fail_undefined(r, v);
    if (f->type == 'd' && v.type == J_FLOAT && fabs(v.f) < 0x1p63) v = J_INT_OF((int64_t)v.f);
    if (!strchr("dxXoeEfFgG", f->type) || !f->type || !tern_jinja_is_number(v))
        return tern_jinja_fail(r, "%%%c format: a number is required, not %s", type,
                               tern_jinja_type_name(v));
    return put_formatted(r, f, v);
}

bool tern_jinja_percent(jrun *r, tern_str format, jvalue args) {
    percent_args a = {.all = args};
    const char *p = format.ptr, *end = format.ptr + format.len;
    bool by_name = false;
    while (p < end) {
        const char *sign = memchr(p, '%', (size_t)(end - p));
        if (!tern_jinja_put(r, p, (size_t)((sign ? sign : end) - p))) return false;
        if (!sign) break;
        p = sign + 1;
        jvalue v = {0};
        const char *close = p < end && *p == '(' ? memchr(p, ')', (size_t)(end - p)) : NULL;
        if (close && args.type == J_DICT) {
            if (!tern_jinja_get_item(r, args, J_STR_OF(p + 1, close - p - 1), &v)) return false;
            by_name = true;
            p = close + 1;
        }
        spec f;
        if (!percent_flags(r, &p, end, &f)) return false;
        if (p >= end) return tern_jinja_fail(r, "incomplete format");
        char type = *p++;
        if (type == '%') {
            if (!tern_jinja_put(r, "%", 1)) return false;
            continue;
        }
        if (!close && !next_arg(r, &a, &v)) return false;
        if (!put_percent(r, &f, type, v)) return false;
    }
    bool is_tuple = args.type == J_LIST && args.list->kind == J_TUPLE;
    if (a.next < (is_tuple ? args.list->n : 1) && !by_name && args.type != J_DICT)
        return tern_jinja_fail(r, "not all arguments converted during string formatting");
    return true;
}

// ---- format.format(...) ------------------------------------------------------------------------

static bool read_spec(jrun *r, tern_str text, spec *f) {
    const char *p = text.ptr, *end = p + text.len;
    *f = (spec){.fill = TERN_STR(" "), .precision = -1};
    size_t first = text.len ? tern_jinja_char(p, text.len) : 0;
    if (first < text.len && strchr("<>=^", p[first]) && p[first]) {
        f->fill = (tern_str){p, first};
        f->align = p[first];
        p += first + 1;
    } else if (p < end && *p && strchr("<>=^", *p)) {
        f->align = *p++;
    }
    if (p < end && (*p == '+' || *p == '-' || *p == ' ')) f->sign = *p++;
    if (p < end && *p == '#') f->alternate = true, p++;
    if (p < end && *p == '0' && ++p && !f->align) f->fill = TERN_STR("0"), f->align = '=';
    if (!read_number(r, &p, end, WIDTH_MAX, &f->width)) return false;
    if (p < end && *p == ',') f->comma = true, p++;
    if (p < end && *p == '.') {
        p++;
        if (!read_number(r, &p, end, PRECISION_MAX, &f->precision)) return false;
    }
    if (p < end) f->type = *p++;
    return p == end || tern_jinja_fail(r, "format: a specification that is not understood");
}

static bool all_digits(tern_str s) {
    for (size_t i = 0; i < s.len; i++)
        if (!isdigit((unsigned char)s.ptr[i])) return false;
    return s.len > 0 && s.len < 6;
}

static int64_t to_int(tern_str s) {
    int64_t x = 0;
    for (size_t i = 0; i < s.len; i++) x = x * 10 + (s.ptr[i] - '0');
    return x;
}

// "0", "name", "" (the next one), then any of ".attribute" and "[key]".
static bool find_field(jrun *r, tern_str path, const jargs *a, uint32_t *next, jvalue *out) {
    size_t n = 0;
    while (n < path.len && path.ptr[n] != '.' && path.ptr[n] != '[') n++;
    tern_str name = {path.ptr, n};
    if (n == 0 || all_digits(name)) {
        int64_t i = n == 0 ? (*next)++ : to_int(name);
        if (i >= a->n) return tern_jinja_fail(r, "format: there is no argument %lld", (long long)i);
        *out = a->at[i];
    } else {
        uint32_t i = 0;
        while (i < a->n_named &&
               !tern_str_eq(name, (tern_str){a->named[i].name.s, a->named[i].name.n}))
            i++;
        if (i == a->n_named)
            return tern_jinja_fail(r, "format: there is no argument '%.*s'", (int)n, name.ptr);
        *out = a->named[i].value;
    }
    while (n < path.len) {
        bool item = path.ptr[n++] == '[';
        size_t start = n;
        while (n < path.len &&
               (item ? path.ptr[n] != ']' : path.ptr[n] != '.' && path.ptr[n] != '['))
            n++;
        tern_str part = {path.ptr + start, n - start};
        jvalue key =
            item && all_digits(part) ? J_INT_OF(to_int(part)) : J_STR_OF(part.ptr, part.len);
        if (item ? !tern_jinja_get_item(r, *out, key, out)
                 : !tern_jinja_get_attr(r, *out, key, out))
            return false;
        if (item) n++;
    }
    return true;
}

static bool put_field(jrun *r, tern_str field, const jargs *a, uint32_t *next) {
    spec f;
    jvalue v;
    tern_str format = {field.ptr + field.len, 0};
    const char *colon = field.len ? memchr(field.ptr, ':', field.len) : NULL;
    if (colon) {
        format = (tern_str){colon + 1, (size_t)(field.ptr + field.len - colon - 1)};
        field.len = (size_t)(colon - field.ptr);
    }
    bool repr = field.len >= 2 && !memcmp(field.ptr + field.len - 2, "!r", 2);
    bool str = field.len >= 2 && !memcmp(field.ptr + field.len - 2, "!s", 2);
    if (repr || str) field.len -= 2;
    if (!find_field(r, field, a, next, &v) || !read_spec(r, format, &f)) return false;
    size_t mark = r->out->len;
    if (repr && (!tern_jinja_repr(r, v) || !tern_jinja_take(r, mark, &v))) return false;
    if (str && !tern_jinja_to_string(r, v, &v)) return false;
    if (!r->escape_args || tern_jinja_is_markup(v)) return put_formatted(r, &f, v);
    return put_formatted(r, &f, v) && tern_jinja_take(r, mark, &v) && tern_jinja_escape(r, v, &v) &&
           tern_jinja_put(r, v.s, v.n);
}

bool tern_jinja_str_format(jrun *r, tern_str format, const jargs *a) {
    const char *p = format.ptr, *end = p + format.len;
    uint32_t next = 0;
    while (p < end) {
        const char *q = p;
        while (q < end && *q != '{' && *q != '}') q++;
        if (!tern_jinja_put(r, p, (size_t)(q - p))) return false;
        if (q == end) break;
        if (q + 1 < end && q[1] == *q) { // {{ and }}
            if (!tern_jinja_put(r, q, 1)) return false;
            p = q + 2;
            continue;
        }
        const char *close = memchr(q, '}', (size_t)(end - q));
        if (*q == '}' || !close) return tern_jinja_fail(r, "format: a single '%c'", *q);
        if (!put_field(r, (tern_str){q + 1, (size_t)(close - q - 1)}, a, &next)) return false;
        p = close + 1;
    }
    return true;
}

// Calls: arguments, and the parameters of built-ins and macros that take them; and the global
// functions.
#include "input/jinja/jinja.h"

#include <string.h>
#include <time.h>
#include "base/os/os_time.h"

#define RANGE_MAX 100000 // as in Jinja2's sandbox

// ---- Built-ins ---------------------------------------------------------------------------------

const jbuiltin *tern_jinja_find(const jbuiltin *table, size_t n_table, const char *name, size_t n) {
    for (size_t i = 0; i < n_table; i++)
        if (strlen(table[i].name) == n && memcmp(table[i].name, name, n) == 0) return &table[i];
    return NULL;
}

static bool bind_named(jrun *r, const jbuiltin *b, const jnamed *named, jcall *c) {
    int i = 0;
    for (const char *p = b->params; *p; i++) {
        size_t n = strcspn(p, " ");
        tern_str name = *p == '?' ? (tern_str){p + 1, n - 1} : (tern_str){p, n};
        if (tern_str_eq(name, (tern_str){named->name.s, named->name.n})) {
            c->arg[i] = named->value;
            return true;
        }
        p += n + (p[n] == ' ');
    }
    return tern_jinja_fail(r, "%s() has no argument '%.*s'", b->name,
                           (int)(named->name.n < 80 ? named->name.n : 80), named->name.s);
}

bool tern_jinja_call_builtin(jrun *r, const jbuiltin *b, jvalue self, const jargs *args,
                             jvalue *out) {
    jcall c = {.self = self, .args = args};
    uint32_t i = 0;
    if (!tern_jinja_work(r, 1)) return false;
    if (*b->params == '*') return b->call(r, &c, out);
    for (const char *p = b->params; *p; i++) {
        size_t n = strcspn(p, " ");
        if (i < args->n) c.arg[i] = args->at[i];
        p += n + (p[n] == ' ');
    }
    if (args->n > i)
        return tern_jinja_fail(r, "%s() takes at most %u arguments, not %u", b->name, i, args->n);
    for (uint32_t k = 0; k < args->n_named; k++)
        if (!bind_named(r, b, &args->named[k], &c)) return false;
    i = 0;
    for (const char *p = b->params; *p; i++) {
        size_t n = strcspn(p, " ");
        if (*p != '?' && c.arg[i].type == J_MISSING)
            return tern_jinja_fail(r, "%s() needs the argument '%.*s'", b->name, (int)n, p);
        p += n + (p[n] == ' ');
    }
    return b->call(r, &c, out);
}

bool tern_jinja_arg_int(jrun *r, jvalue v, int64_t otherwise, int64_t *out) {
    *out = otherwise;
    if (v.type == J_MISSING || v.type == J_NONE) return true;
    if (v.type == J_UNDEFINED) return tern_jinja_fail_undefined(r, v);
    if (v.type != J_INT && v.type != J_BOOL)
        return tern_jinja_fail(r, "'%s' object cannot be interpreted as an integer",
                               tern_jinja_type_name(v));
    *out = v.type == J_INT ? v.i : v.b;
    return true;
}

bool tern_jinja_arg_str(jrun *r, jvalue v, const char *otherwise, tern_str *out) {
    if ((v.type == J_MISSING || v.type == J_NONE) && otherwise) {
        *out = (tern_str){otherwise, strlen(otherwise)};
        return true;
    }
    if (v.type == J_UNDEFINED) return tern_jinja_fail_undefined(r, v);
    *out = (tern_str){v.s, v.n};
    return v.type == J_STRING ||
           tern_jinja_fail(r, "expected str, not %s", tern_jinja_type_name(v));
}

// ---- Arguments and macros ----------------------------------------------------------------------

static bool splat(jrun *r, jvalue v, bool named, jlist *positional, jdict *by_name) {
    const jvalue *items;
    uint32_t n;
    if (!named) {
        if (!tern_jinja_iterate(r, v, &items, &n)) return false;
        for (uint32_t i = 0; i < n; i++)
            if (!tern_jinja_list_add(r, positional, items[i])) return false;
        return true;
    }
    if (v.type != J_DICT) return tern_jinja_fail(r, "argument after ** must be a mapping");
    for (uint32_t i = 0; i < v.dict->n; i++) {
        if (v.dict->keys[i].type != J_STRING) return tern_jinja_fail(r, "keywords must be strings");
        if (!tern_jinja_dict_set(r, by_name, v.dict->keys[i], v.dict->values[i])) return false;
    }
    return true;
}

bool tern_jinja_eval_args(jrun *r, const jnode *list, const jvalue *caller, jargs *args) {
    jlist positional = {0};
    jdict named = {0};
    jvalue v;
    for (const jnode *arg = list; arg; arg = arg->next) {
        if (!tern_jinja_eval(r, arg->a, &v)) return false;
        bool ok = arg->op == 0     ? tern_jinja_list_add(r, &positional, v)
                  : arg->op == '=' ? tern_jinja_dict_set(r, &named, arg->value, v)
                                   : splat(r, v, arg->op == J_OP_POW, &positional, &named);
        if (!ok) return false;
    }
    if (caller && !tern_jinja_dict_set(r, &named, J_STR_LIT("caller"), *caller)) return false;
    *args = (jargs){.at = positional.items, .n = positional.n, .n_named = named.n};
    if (!named.n) return true;
    args->named = tern_jinja_alloc(r, named.n, sizeof *args->named);
    for (uint32_t i = 0; args->named && i < named.n; i++)
        args->named[i] = (jnamed){named.keys[i], named.values[i]};
    return args->named != NULL;
}

static const jvalue *find_named(const jargs *args, jvalue name) {
    for (uint32_t i = 0; i < args->n_named; i++)
        if (tern_str_eq((tern_str){args->named[i].name.s, args->named[i].name.n},
                        (tern_str){name.s, name.n}))
            return &args->named[i].value;
    return NULL;
}

static bool is_param(const jnode *macro, jvalue name) {
    for (const jnode *p = macro->a; p; p = p->next)
        if (p->value.n == name.n && !memcmp(p->value.s, name.s, name.n)) return true;
    return false;
}

// Sets the arguments beyond a macro's parameters: varargs, kwargs and caller, if its body uses
// them.
static bool bind_extras(jrun *r, const jnode *macro, const jargs *args, uint32_t n_params) {
    jvalue varargs, kwargs, caller_name = J_STR_LIT("caller");
    const jvalue *caller = find_named(args, caller_name);
    int n = (int)macro->value.n;
    if (args->n > n_params && !(macro->op & J_USES_VARARGS))
        return tern_jinja_fail(r, "macro '%.*s' takes not more than %u argument(s)", n,
                               macro->value.s, n_params);
    if (!tern_jinja_list_new(r, J_TUPLE, 0, &varargs) || !tern_jinja_dict_new(r, J_DICT, &kwargs))
        return false;
    for (uint32_t i = n_params; i < args->n; i++)
        if (!tern_jinja_list_add(r, varargs.list, args->at[i])) return false;
    for (uint32_t i = 0; i < args->n_named; i++) {
        jvalue name = args->named[i].name;
        if (is_param(macro, name)) continue;
        bool is_caller = caller == &args->named[i].value;
        if (is_caller && (macro->op & J_USES_CALLER)) continue;
        if (!(macro->op & J_USES_KWARGS) || is_caller)
            return tern_jinja_fail(r, "macro '%.*s' takes no keyword argument '%.*s'", n,
                                   macro->value.s, (int)(name.n < 80 ? name.n : 80), name.s);
        if (!tern_jinja_dict_set(r, kwargs.dict, name, args->named[i].value)) return false;
    }
    if ((macro->op & J_USES_VARARGS) && !tern_jinja_set_var(r, J_STR_LIT("varargs"), varargs))
        return false;
    if ((macro->op & J_USES_KWARGS) && !tern_jinja_set_var(r, J_STR_LIT("kwargs"), kwargs))
        return false;
    if (!(macro->op & J_USES_CALLER) || is_param(macro, caller_name)) return true;
    return tern_jinja_set_var(r, caller_name,
                              caller ? *caller : tern_jinja_undefined(caller_name, J_MISSING));
}

bool tern_jinja_bind_params(jrun *r, const jnode *macro, const jargs *args) {
    uint32_t i = 0;
    for (const jnode *p = macro->a; p; p = p->next, i++) {
        jvalue v = tern_jinja_undefined(p->value, J_MISSING);
        const jvalue *named = find_named(args, p->value);
        if (i < args->n)
            v = args->at[i];
        else if (named)
            v = *named;
        else if (p->a && !tern_jinja_eval(r, p->a, &v))
            return false;
        if (!tern_jinja_set_var(r, p->value, v)) return false;
    }
    return bind_extras(r, macro, args, i);
}

// ---- Global functions --------------------------------------------------------------------------

static bool call_range(jrun *r, const jcall *c, jvalue *out) {
    int64_t first = 0, last, step, count = 0;
    bool one = c->arg[1].type == J_MISSING;
    if (!tern_jinja_arg_int(r, c->arg[one ? 1 : 0], 0, &first) ||
        !tern_jinja_arg_int(r, c->arg[one ? 0 : 1], 0, &last) ||
        !tern_jinja_arg_int(r, c->arg[2], 1, &step))
        return false;
    if (step == 0) return tern_jinja_fail(r, "range() arg 3 must not be zero");
    uint64_t span = step > 0 ? (uint64_t)last - (uint64_t)first : (uint64_t)first - (uint64_t)last;
    uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    bool empty = step > 0 ? last <= first : last >= first;
    uint64_t n = empty ? 0 : (span - 1) / stride + 1;
    if (n > RANGE_MAX) return tern_jinja_fail(r, "range() of more than %d numbers", RANGE_MAX);
    if (!tern_jinja_list_new(r, J_PLAIN, n, out)) return false;
    for (int64_t i = first; (uint64_t)count < n;
         count++, i = (int64_t)((uint64_t)i + (uint64_t)step))
        out->list->items[count] = J_INT_OF(i);
    out->list->n = (uint32_t)n;
    return true;
}

// dict(a=1), dict({...}), dict([(k, v), ...]) and the same for namespace().
static bool fill_dict(jrun *r, const jcall *c, jdict *d) {
    const jvalue *items, *pair;
    uint32_t n = 0, n_pair;
    if (c->args->n > 1) return tern_jinja_fail(r, "dict() takes at most one positional argument");
    if (c->args->n == 1 && c->args->at[0].type == J_DICT) {
        const jdict *from = c->args->at[0].dict;
        for (uint32_t i = 0; i < from->n; i++)
            if (!tern_jinja_dict_set(r, d, from->keys[i], from->values[i])) return false;
    } else if (c->args->n == 1 && !tern_jinja_iterate(r, c->args->at[0], &items, &n)) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!tern_jinja_iterate(r, items[i], &pair, &n_pair)) return false;
        if (n_pair != 2) return tern_jinja_fail(r, "dict() takes pairs of key and value");
        if (!tern_jinja_dict_set(r, d, pair[0], pair[1])) return false;
    }
    for (uint32_t i = 0; i < c->args->n_named; i++)
        if (!tern_jinja_dict_set(r, d, c->args->named[i].name, c->args->named[i].value))
            return false;
    return true;
}

static bool call_dict(jrun *r, const jcall *c, jvalue *out) {
    return tern_jinja_dict_new(r, J_DICT, out) && fill_dict(r, c, out->dict);
}

static bool call_namespace(jrun *r, const jcall *c, jvalue *out) {
    return tern_jinja_dict_new(r, J_NAMESPACE, out) && fill_dict(r, c, out->dict);
}

static bool call_cycler(jrun *r, const jcall *c, jvalue *out) {
    if (!c->args->n || c->args->n_named) return tern_jinja_fail(r, "cycler() needs items");
    jcycler *cycler = tern_jinja_alloc(r, 1, sizeof *cycler);
    if (!cycler || !tern_jinja_list_new(r, J_TUPLE, c->args->n, &cycler->items)) return false;
    for (uint32_t i = 0; i < c->args->n; i++)
        if (!tern_jinja_list_add(r, cycler->items.list, c->args->at[i])) return false;
    *out = (jvalue){.type = J_CYCLER, .cycler = cycler};
    return true;
}

static bool call_joiner(jrun *r, const jcall *c, jvalue *out) {
    jjoiner *joiner = tern_jinja_alloc(r, 1, sizeof *joiner);
    if (!joiner) return false;
    joiner->separator = c->arg[0].type == J_MISSING ? J_STR_LIT(", ") : c->arg[0];
    *out = (jvalue){.type = J_JOINER, .joiner = joiner};
    return true;
}

static bool call_raise(jrun *r, const jcall *c, jvalue *out) {
    (void)out;
    jvalue text;
    if (!tern_jinja_to_string(r, c->arg[0], &text)) return false;
    return tern_jinja_fail_status(r, TERN_ERR_ARGUMENT, "%.*s", (int)(text.n < 400 ? text.n : 400),
                                  text.s);
}

static bool call_strftime(jrun *r, const jcall *c, jvalue *out) {
    char format[128], text[512];
    tern_str f = {0};
    struct tm when;
    if (!tern_jinja_arg_str(r, c->arg[0], NULL, &f)) return false;
    if (f.len >= sizeof format || !tern_local_time(&when))
        return tern_jinja_fail(r, "strftime_now() with a format of more than 127 characters");
    memcpy(format, f.ptr, f.len);
    format[f.len] = 0;
    size_t n = f.len ? strftime(text, sizeof text, format, &when) : 0;
    size_t mark = r->out->len;
    return tern_jinja_put(r, text, n) && tern_jinja_take(r, mark, out);
}

const jbuiltin *tern_jinja_find_function(const char *name, size_t n) {
    static const jbuiltin table[] = {
        {"range", "start ?stop ?step", call_range},
        {"namespace", "*", call_namespace},
        {"dict", "*", call_dict},
        {"cycler", "*", call_cycler},
        {"joiner", "?sep", call_joiner},
        {"raise_exception", "message", call_raise},
        {"strftime_now", "format", call_strftime},
    };
    return tern_jinja_find(table, sizeof table / sizeof *table, name, n);
}

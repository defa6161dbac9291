// Runs a tree: statements append text to r->out, expressions return values.
//
// Scopes are those of Jinja2: loops, macros and blocks have scopes of their own, `if` has none. So
// variables set in a loop are gone after each iteration, unless they are in a namespace. A macro
// sees the scope in which it was defined, in its state at the time of the call.
#include "input/jinja/jinja.h"
#include "base/os/os_time.h"

#include <string.h>

typedef enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE, FLOW_FAILED } flow;

static flow run_list(jrun *r, const jnode *n);
static flow run_loop(jrun *r, const jnode *n, jvalue iterable, uint32_t depth);

// ---- Names -------------------------------------------------------------------------------------

static jscope *new_scope(jrun *r, jscope *parent) {
    jscope *scope = tern_jinja_alloc(r, 1, sizeof *scope);
    if (scope) scope->parent = parent;
    return scope;
}

bool tern_jinja_set_var(jrun *r, jvalue name, jvalue value) {
    return tern_jinja_dict_set(r, &r->scope->vars, name, value);
}

static void get_var(const jrun *r, jvalue name, jvalue *out) {
    for (const jscope *scope = r->scope; scope; scope = scope->parent) {
        const jvalue *found = tern_jinja_dict_find(&scope->vars, name);
        if (!found) continue;
        *out = *found;
        return;
    }
    const jbuiltin *function = tern_jinja_find_function(name.s, name.n);
    if (function)
        *out = (jvalue){.type = J_FUNCTION, .function = function};
    else
        *out = tern_jinja_undefined(name, J_MISSING);
}

static bool set_attr(jrun *r, const jnode *target, jvalue value) {
    jvalue object;
    if (!tern_jinja_eval(r, target->a, &object)) return false;
    if (object.type != J_NAMESPACE)
        return tern_jinja_fail(r, "cannot assign attribute on non-namespace object");
    return tern_jinja_dict_set(r, object.dict, target->value, value);
}

static bool assign(jrun *r, const jnode *target, jvalue value) {
    if (target->kind == J_NAME) return tern_jinja_set_var(r, target->value, value);
    if (target->kind == J_ATTR) return set_attr(r, target, value);
    const jvalue *items;
    uint32_t n, i = 0, wanted = 0;
    for (const jnode *t = target->list; t; t = t->next) wanted++;
    if (!tern_jinja_iterate(r, value, &items, &n)) return false;
    if (n != wanted)
        return tern_jinja_fail(r, "%s values to unpack (expected %u, got %u)",
                               n < wanted ? "not enough" : "too many", wanted, n);
    for (const jnode *t = target->list; t; t = t->next)
        if (!assign(r, t, items[i++])) return false;
    return true;
}

// ---- Calls -------------------------------------------------------------------------------------

// Whether text printed at `n` is escaped.
static bool escapes(const jrun *r, const jnode *n) {
    return n->escape & J_ESCAPE_AS_RUN_SAYS ? r->autoescape : n->escape == J_ESCAPE_YES;
}

static bool take_text(jrun *r, size_t mark, bool is_safe, jvalue *out) {
    if (!tern_jinja_take(r, mark, out)) return false;
    if (is_safe) out->owner = J_MARKUP;
    return true;
}

static bool call_macro(jrun *r, const jmacro *macro, const jargs *args, jvalue *out) {
    jscope *outer = r->scope;
    size_t mark = r->out->len;
    r->scope = new_scope(r, macro->scope);
    if (!r->scope || !tern_jinja_bind_params(r, macro->node, args)) return false;
    if (run_list(r, macro->node->list) == FLOW_FAILED) return false;
    r->scope = outer;
    return take_text(r, mark, r->autoescape, out);
}

// loop(items): the body again, for other items.
static bool call_loop(jrun *r, const jloop *loop, const jargs *args, jvalue *out) {
    jscope *outer = r->scope;
    size_t mark = r->out->len;
    if (!loop->node->op)
        return tern_jinja_fail(r, "the loop must have the 'recursive' marker to be called");
    if (args->n != 1 || args->n_named) return tern_jinja_fail(r, "loop() takes what to walk over");
    r->scope = loop->outer;
    if (run_loop(r, loop->node, args->at[0], loop->depth + 1) == FLOW_FAILED) return false;
    r->scope = outer;
    return take_text(r, mark, escapes(r, loop->node), out);
}

// The body of a block sees the variables of the template's top level, or, if `scoped`, those around
// the block.
static bool run_block_body(jrun *r, const jnode *block, jscope *parent) {
    jscope *outer = r->scope;
    if (block->op & J_BLOCK_REQUIRED)
        return tern_jinja_fail(r, "required block '%.*s' not found",
                               (int)(block->value.n < 80 ? block->value.n : 80), block->value.s);
    r->scope = new_scope(r, parent);
    if (!r->scope || run_list(r, block->list) == FLOW_FAILED) return false;
    r->scope = outer;
    return true;
}

static bool call_block(jrun *r, const jnode *block, const jargs *args, jvalue *out) {
    size_t mark = r->out->len;
    if (args->n || args->n_named) return tern_jinja_fail(r, "a block takes no arguments");
    return run_block_body(r, block, r->root) && take_text(r, mark, r->autoescape, out);
}

static bool call_joiner(jrun *r, jjoiner *joiner, const jargs *args, jvalue *out) {
    if (args->n || args->n_named) return tern_jinja_fail(r, "a joiner takes no arguments");
    *out = joiner->used ? joiner->separator : J_STR_LIT("");
    joiner->used = true;
    return true;
}

bool tern_jinja_call(jrun *r, jvalue callee, const jargs *args, jvalue *out) {
    if (!tern_jinja_enter(r)) return false;
    bool ok;
    switch (callee.type) {
    case J_MACRO: ok = call_macro(r, callee.macro, args, out); break;
    case J_FUNCTION: ok = tern_jinja_call_builtin(r, callee.function, callee, args, out); break;
    case J_METHOD:
        ok = tern_jinja_call_method(r, callee.method->builtin, callee.method->self, args, out);
        break;
    case J_LOOP: ok = call_loop(r, callee.loop, args, out); break;
    case J_BLOCK_REF: ok = call_block(r, callee.block, args, out); break;
    case J_JOINER: ok = call_joiner(r, callee.joiner, args, out); break;
    case J_UNDEFINED: ok = tern_jinja_fail_undefined(r, callee); break;
    default: ok = tern_jinja_fail(r, "'%s' object is not callable", tern_jinja_type_name(callee));
    }
    r->depth--;
    return ok;
}

static bool eval_call(jrun *r, const jnode *n, const jvalue *caller, jvalue *out) {
    jvalue callee;
    jargs args;
    if (!tern_jinja_eval(r, n->a, &callee)) return false;
    if (callee.type == J_UNDEFINED) return tern_jinja_fail_undefined(r, callee);
    return tern_jinja_eval_args(r, n->list, caller, &args) &&
           tern_jinja_call(r, callee, &args, out);
}

// Filters of Jinja2 that no published chat template uses.
static bool is_left_out(const jvalue *name) {
    static const char *const names[] = {"filesizeformat", "pprint",   "random",
                                        "striptags",      "truncate", "urlencode",
                                        "urlize",         "wordwrap", "xmlattr"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == name->n && !memcmp(names[i], name->s, name->n)) return true;
    return false;
}

static bool eval_builtin(jrun *r, const jnode *n, jvalue *out) { // a filter or a test
    jvalue self;
    jargs args;
    const char *what = n->kind == J_TEST ? "test" : "filter";
    const int width = (int)(n->value.n < 80 ? n->value.n : 80);
    if (!n->builtin && n->kind != J_TEST && is_left_out(&n->value))
        return tern_jinja_fail(r, "the filter '%.*s' is not supported", width, n->value.s);
    if (!n->builtin) return tern_jinja_fail(r, "no %s named '%.*s'", what, width, n->value.s);
    return tern_jinja_eval(r, n->a, &self) && tern_jinja_eval_args(r, n->list, NULL, &args) &&
           tern_jinja_call_builtin(r, n->builtin, self, &args, out);
}

// ---- Expressions -------------------------------------------------------------------------------

static bool compare(jrun *r, uint8_t op, jvalue a, jvalue b, bool *out) {
    bool ok = true, negate = false;
    switch (op) {
    case J_OP_NE: negate = true; /* fall through */
    case J_OP_EQ: ok = tern_jinja_equal(r, a, b, out); break;
    case J_OP_NOT_IN: negate = true; /* fall through */
    case J_OP_IN: ok = tern_jinja_contains(r, b, a, out); break;
    case '<': return tern_jinja_less(r, "<", a, b, out);
    case '>': return tern_jinja_less(r, ">", b, a, out);
    default: { // a <= b is a < b or a == b, so that NaN compares as in Python
        bool same;
        bool is_le = op == J_OP_LE;
        return tern_jinja_less(r, is_le ? "<=" : ">=", is_le ? a : b, is_le ? b : a, out) &&
               (*out || (tern_jinja_equal(r, a, b, &same) && (*out = same, true)));
    }
    }
    *out = *out != negate;
    return ok;
}

static bool eval_compare(jrun *r, const jnode *n, jvalue *out) {
    jvalue left, right;
    bool holds = true;
    if (!tern_jinja_eval(r, n->a, &left)) return false;
    for (const jnode *with = n->list; with && holds; with = with->next, left = right)
        if (!tern_jinja_eval(r, with->a, &right) || !compare(r, with->op, left, right, &holds))
            return false;
    *out = J_BOOL_OF(holds);
    return true;
}

static bool eval_items(jrun *r, const jnode *n, jvalue *out) {
    jvalue item, key;
    if (n->kind == J_DICT_OF) {
        if (!tern_jinja_dict_new(r, J_DICT, out)) return false;
        for (const jnode *k = n->list; k; k = k->next->next)
            if (!tern_jinja_eval(r, k, &key) || !tern_jinja_eval(r, k->next, &item) ||
                !tern_jinja_dict_set(r, out->dict, key, item))
                return false;
        return true;
    }
    if (!tern_jinja_list_new(r, n->kind == J_TUPLE_OF ? J_TUPLE : J_PLAIN, 0, out)) return false;
    for (const jnode *i = n->list; i; i = i->next)
        if (!tern_jinja_eval(r, i, &item) || !tern_jinja_list_add(r, out->list, item)) return false;
    return true;
}

static bool eval_item(jrun *r, const jnode *n, jvalue *out) {
    jvalue v, key, part[3];
    if (!tern_jinja_eval(r, n->a, &v)) return false;
    if (n->b->kind != J_SLICE)
        return tern_jinja_eval(r, n->b, &key) && tern_jinja_get_item(r, v, key, out);
    const jnode *ends[3] = {n->b->a, n->b->b, n->b->c};
    for (int i = 0; i < 3; i++)
        if (ends[i] && !tern_jinja_eval(r, ends[i], &part[i])) return false;
    return tern_jinja_slice(r, v, ends[0] ? &part[0] : NULL, ends[1] ? &part[1] : NULL,
                            ends[2] ? &part[2] : NULL, out);
}

static bool eval_unary(jrun *r, const jnode *n, jvalue *out) {
    jvalue v;
    if (!tern_jinja_eval(r, n->a, &v)) return false;
    if (v.type == J_UNDEFINED) return tern_jinja_fail_undefined(r, v);
    if (!tern_jinja_is_number(v))
        return tern_jinja_fail(r, "bad operand type for unary %c: '%s'",
                               n->kind == J_NEG ? '-' : '+', tern_jinja_type_name(v));
    if (n->kind == J_NEG && v.type == J_FLOAT) {
        *out = J_FLOAT_OF(-v.f);
        return true;
    }
    return tern_jinja_binary(r, n->kind == J_NEG ? '-' : '+', J_INT_OF(0), v, out);
}

static bool eval_concat(jrun *r, const jnode *n, jvalue *out) {
    jvalue a, b;
    if (!tern_jinja_eval(r, n->a, &a) || !tern_jinja_eval(r, n->b, &b)) return false;
    size_t mark = r->out->len;
    // If only the run decides on escaping, Jinja2 joins without it.
    if (n->escape == J_ESCAPE_YES && (tern_jinja_is_markup(a) || tern_jinja_is_markup(b)))
        return tern_jinja_escape(r, a, &a) && tern_jinja_escape(r, b, &b) &&
               tern_jinja_put(r, a.s, a.n) && tern_jinja_put(r, b.s, b.n) &&
               take_text(r, mark, true, out);
    return tern_jinja_print(r, a) && tern_jinja_print(r, b) && tern_jinja_take(r, mark, out);
}

static bool eval_cond(jrun *r, const jnode *n, jvalue *out) {
    jvalue condition;
    if (!tern_jinja_eval(r, n->a, &condition)) return false;
    if (tern_jinja_truth(condition)) return tern_jinja_eval(r, n->b, out);
    if (n->c) return tern_jinja_eval(r, n->c, out);
    *out = tern_jinja_undefined(J_STR_LIT("else"), J_MISSING);
    return true;
}

static bool eval_inner(jrun *r, const jnode *n, jvalue *out) {
    jvalue a, b;
    switch (n->kind) {
    case J_CONST: *out = n->value; return true;
    case J_HOLE: *out = r->hole; return true;
    case J_NAME: get_var(r, n->value, out); return true;
    case J_ATTR: return tern_jinja_eval(r, n->a, &a) && tern_jinja_get_attr(r, a, n->value, out);
    case J_ITEM: return eval_item(r, n, out);
    case J_CALL: return eval_call(r, n, NULL, out);
    case J_FILTER:
    case J_TEST: return eval_builtin(r, n, out);
    case J_LIST_OF:
    case J_TUPLE_OF:
    case J_DICT_OF: return eval_items(r, n, out);
    case J_COND: return eval_cond(r, n, out);
    case J_AND:
    case J_OR:
        if (!tern_jinja_eval(r, n->a, out)) return false;
        return tern_jinja_truth(*out) == (n->kind == J_OR) || tern_jinja_eval(r, n->b, out);
    case J_NOT:
        if (!tern_jinja_eval(r, n->a, &a)) return false;
        *out = J_BOOL_OF(!tern_jinja_truth(a));
        return true;
    case J_NEG:
    case J_POS: return eval_unary(r, n, out);
    case J_COMPARE: return eval_compare(r, n, out);
    case J_CONCAT: return eval_concat(r, n, out);
    default: // J_BINARY
        return tern_jinja_eval(r, n->a, &a) && tern_jinja_eval(r, n->b, &b) &&
               tern_jinja_binary(r, n->op, a, b, out);
    }
}

bool tern_jinja_eval(jrun *r, const jnode *n, jvalue *out) {
    r->line = n->line;
    if (!tern_jinja_enter(r)) return false;
    bool ok = eval_inner(r, n, out);
    r->depth--;
    return ok;
}

// ---- Statements --------------------------------------------------------------------------------

static flow flow_of(bool ok) { return ok ? FLOW_ON : FLOW_FAILED; }

static bool define_macro(jrun *r, const jnode *n, jvalue *out) {
    jmacro *macro = tern_jinja_alloc(r, 1, sizeof *macro);
    if (!macro) return false;
    *macro = (jmacro){n, r->scope};
    for (jscope *scope = r->scope; scope; scope = scope->parent) scope->captured = true;
    *out = (jvalue){.type = J_MACRO, .macro = macro};
    return true;
}

// Runs a body in a scope of its own; if `capture`, its text becomes r->hole.
static flow run_block(jrun *r, const jnode *body, bool capture, bool is_safe) {
    jscope *outer = r->scope;
    size_t mark = r->out->len;
    r->scope = new_scope(r, outer);
    if (!r->scope) return FLOW_FAILED;
    flow f = run_list(r, body);
    r->scope = outer;
    if (capture && f != FLOW_FAILED && !take_text(r, mark, is_safe, &r->hole)) return FLOW_FAILED;
    return f;
}

static flow run_with(jrun *r, const jnode *n) {
    jscope *outer = r->scope, *scope = new_scope(r, outer);
    if (!scope) return FLOW_FAILED;
    for (const jnode *set = n->a; set; set = set->next) {
        jvalue v; // evaluated in the outer scope, without the other values
        if (!tern_jinja_eval(r, set->b, &v) ||
            !tern_jinja_dict_set(r, &scope->vars, set->a->value, v))
            return FLOW_FAILED;
    }
    r->scope = scope;
    flow f = run_list(r, n->list);
    r->scope = outer;
    return f;
}

static bool begin_turn(jrun *r, jscope **scope) { // an iteration: no variables are set
    if ((*scope)->captured) {
        *scope = new_scope(r, (*scope)->parent);
        if (!*scope) return false;
    }
    jdict *vars = &(*scope)->vars;
    vars->n = 0;
    if (vars->slots) memset(vars->slots, 0, vars->n_slots * sizeof *vars->slots);
    r->scope = *scope;
    return true;
}

// The items for which the loop's condition holds.
static bool filter_items(jrun *r, const jnode *n, jscope **scope, const jvalue **items,
                         uint32_t *count) {
    jvalue kept, condition;
    if (!tern_jinja_list_new(r, J_PLAIN, 0, &kept)) return false;
    for (uint32_t i = 0; i < *count; i++) {
        if (!begin_turn(r, scope) || !assign(r, n->a, (*items)[i]) ||
            !tern_jinja_eval(r, n->c, &condition))
            return false;
        if (tern_jinja_truth(condition) && !tern_jinja_list_add(r, kept.list, (*items)[i]))
            return false;
    }
    *items = kept.list->items;
    *count = kept.list->n;
    return true;
}

static flow run_loop(jrun *r, const jnode *n, jvalue iterable, uint32_t depth) {
    jscope *outer = r->scope, *scope = new_scope(r, outer);
    jloop *loop = tern_jinja_alloc(r, 1, sizeof *loop);
    flow f = FLOW_ON;
    if (!scope || !loop || !tern_jinja_iterate(r, iterable, &loop->items, &loop->n))
        return FLOW_FAILED;
    loop->node = n;
    loop->outer = outer;
    loop->depth = depth;
    if (n->op) outer->captured = true;
    if (n->c && !filter_items(r, n, &scope, &loop->items, &loop->n)) return FLOW_FAILED;
    for (; loop->index < loop->n && f != FLOW_BREAK; loop->index++) {
        if (!tern_jinja_work(r, 0) || !begin_turn(r, &scope) ||
            !tern_jinja_set_var(r, J_STR_LIT("loop"), (jvalue){.type = J_LOOP, .loop = loop}) ||
            !assign(r, n->a, loop->items[loop->index]))
            return FLOW_FAILED;
        f = run_list(r, n->list);
        if (f == FLOW_FAILED) return f;
    }
    r->scope = outer;
    return loop->n == 0 && n->orelse ? run_block(r, n->orelse, false, false) : FLOW_ON;
}

static flow run_for(jrun *r, const jnode *n) {
    jvalue iterable;
    return tern_jinja_eval(r, n->b, &iterable) ? run_loop(r, n, iterable, 0) : FLOW_FAILED;
}

// The result of a call or filter block is text, and is not escaped again.
static bool put_text(jrun *r, jvalue v) {
    if (v.type == J_STRING) return tern_jinja_put(r, v.s, v.n);
    return tern_jinja_fail(r, "expected str instance, %s found", tern_jinja_type_name(v));
}

static flow run_call_block(jrun *r, const jnode *n) {
    jvalue caller, text;
    return flow_of(define_macro(r, n, &caller) && eval_call(r, n->b, &caller, &text) &&
                   put_text(r, text));
}

static flow run_filter_block(jrun *r, const jnode *n) {
    jvalue v;
    flow f = run_block(r, n->list, true, escapes(r, n));
    return f != FLOW_ON ? f : flow_of(tern_jinja_eval(r, n->b, &v) && put_text(r, v));
}

static flow run_set_block(jrun *r, const jnode *n) {
    jvalue v;
    flow f = run_block(r, n->list, true, escapes(r, n));
    if (f != FLOW_ON) return f;
    return flow_of(tern_jinja_eval(r, n->b, &v) &&
                   (!r->autoescape || tern_jinja_markup(r, v, true, &v)) && assign(r, n->a, v));
}

// As in Jinja2, `break` and `continue` out of the body do not restore the setting.
static flow run_autoescape(jrun *r, const jnode *n) {
    bool outer = r->autoescape;
    jvalue v;
    if (!tern_jinja_eval(r, n->a, &v)) return FLOW_FAILED;
    r->autoescape = tern_jinja_truth(v);
    flow f = run_block(r, n->list, false, false);
    if (f == FLOW_ON) r->autoescape = outer;
    return f;
}

// Jinja2 puts constants into the text when it compiles, and does not escape them if only the run
// decides on escaping.
static bool is_constant(const jnode *n) {
    if (n->kind != J_LIST_OF && n->kind != J_TUPLE_OF && n->kind != J_DICT_OF)
        return n->kind == J_CONST;
    for (const jnode *i = n->list; i; i = i->next)
        if (!is_constant(i)) return false;
    return true;
}

static flow run_print(jrun *r, const jnode *n) {
    jvalue v;
    if (!tern_jinja_eval(r, n->a, &v)) return FLOW_FAILED;
    bool escaped = is_constant(n->a) ? n->escape & J_ESCAPE_YES : escapes(r, n);
    if (escaped && !tern_jinja_escape(r, v, &v)) return FLOW_FAILED;
    return flow_of(tern_jinja_print(r, v));
}

static flow run_inner(jrun *r, const jnode *n) {
    jvalue v;
    switch (n->kind) {
    case J_TEXT: return flow_of(tern_jinja_put(r, n->value.s, n->value.n));
    case J_PRINT: return run_print(r, n);
    case J_IF:
        for (; n; n = n->orelse) { // an elif is an if in the orelse of the one before
            if (n->kind != J_IF) return run_list(r, n);
            if (!tern_jinja_eval(r, n->a, &v)) return FLOW_FAILED;
            if (tern_jinja_truth(v)) return run_list(r, n->list);
            if (n->orelse && n->orelse->next) return run_list(r, n->orelse);
        }
        return FLOW_ON;
    case J_FOR: return run_for(r, n);
    case J_SET: return flow_of(tern_jinja_eval(r, n->b, &v) && assign(r, n->a, v));
    case J_SET_BLOCK: return run_set_block(r, n);
    case J_FILTER_BLOCK: return run_filter_block(r, n);
    case J_AUTOESCAPE: return run_autoescape(r, n);
    case J_BLOCK: return flow_of(run_block_body(r, n, n->op & J_BLOCK_SCOPED ? r->scope : r->root));
    case J_MACRO_DEF: return flow_of(define_macro(r, n, &v) && tern_jinja_set_var(r, n->value, v));
    case J_CALL_BLOCK: return run_call_block(r, n);
    case J_WITH: return run_with(r, n);
    case J_BREAK: return FLOW_BREAK;
    default: return FLOW_CONTINUE;
    }
}

static flow run_list(jrun *r, const jnode *n) {
    flow f = FLOW_ON;
    if (!tern_jinja_enter(r)) return FLOW_FAILED;
    for (; n && f == FLOW_ON; n = n->next) {
        r->line = n->line;
        f = run_inner(r, n);
    }
    r->depth--;
    return f;
}

tern_status tern_jinja_render(const jprogram *program, const jlimits *limits,
                              const tern_json_doc *variables, tern_strbuf *out, tern_error *err) {
    jrun r = {.limits = limits,
              .arena.max = limits->memory_bytes,
              .out = out,
              .out_base = out->len,
              .steps_left = limits->n_steps,
              .secret = tern_random_seed(),
              .err = err,
              .line = 1};
    const tern_json *root = variables ? tern_json_root(variables) : NULL;
    jvalue v;
    r.blocks = program->blocks;
    r.scope = new_scope(&r, NULL);
    bool ok = r.scope != NULL;
    if (ok && root && root->type == TERN_JSON_OBJECT) {
        ok = tern_jinja_from_json(&r, variables, root, &v);
        if (ok) r.scope->vars = *v.dict;
    }
    if (ok && program->uses_self)
        ok = tern_jinja_set_var(&r, J_STR_LIT("self"), (jvalue){.type = J_SELF});
    r.root = r.scope;
    if (ok) run_list(&r, program->body);
    tern_jinja_arena_free(&r.arena);
    if (r.status != TERN_OK) {
        out->len = r.out_base;
        if (out->ptr) out->ptr[out->len] = 0;
    } else if (out->ptr) {
        out->ptr[out->len] = 0; // taken texts lie after it
    }
    return r.status;
}

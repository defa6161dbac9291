// A Jinja2 interpreter, as far as chat templates need it: the interface between its files.
//
//   source -> jinja_lex.c -> tokens -> jinja_parse.c -> tree -> jinja_eval.c -> text
//             the library: jinja_call.c, jinja_filters.c, jinja_text.c, jinja_markup.c,
//                          jinja_predicates.c, jinja_methods.c
//             values: jinja_value.c, jinja_ops.c, jinja_print.c, jinja_format.c
//
// It behaves like Jinja2 as transformers sets it up: trim_blocks and lstrip_blocks on, no escaping,
// loop controls, tojson that leaves non-ASCII text alone, raise_exception and strftime_now, and
// nothing that changes a list or a dict in place. Values behave as in Python: how True and 1.0
// print, `//` and `%` of negative numbers, which values count as true.
//
// A template is a program from a file, so it is run as an untrusted one: every evaluation counts as
// a step, every byte made counts, too, and steps, memory, text and depth have limits. All memory of
// a run is one arena which is thrown away at its end; nothing in it is freed or moved before.
#ifndef TERN_INPUT_JINJA_JINJA_H
#define TERN_INPUT_JINJA_JINJA_H

#include <stdarg.h>
#include "base/alloc.h"
#include "base/json/json.h"
#include "base/status.h"
#include "base/strbuf.h"

// ---- Memory ------------------------------------------------------------------------------------

typedef struct jarena {
    struct jchunk *chunks;
    char *at;
    size_t left, total, max; // max: most bytes that it may allocate
} jarena;
// Zeroed, aligned to 16. NULL: no memory, or `max` is reached.
void *tern_jinja_arena_alloc(jarena *a, size_t bytes);
void tern_jinja_arena_free(jarena *a);

// ---- Values ------------------------------------------------------------------------------------

typedef enum jtype {
    J_MISSING, // an argument that was not given; never seen by a template
    J_UNDEFINED,
    J_NONE,
    J_BOOL,
    J_INT,
    J_FLOAT,
    J_STRING,
    J_LIST, // and everything that is iterated like one: see jlist.kind
    J_DICT,
    J_NAMESPACE, // a dict whose members can be set
    J_MACRO,
    J_FUNCTION, // one of the global functions
    J_METHOD,   // "text".split before it is called
    J_LOOP,
    J_CYCLER,    // the result of cycler(...)
    J_JOINER,    // the result of joiner(...)
    J_SELF,      // `self`: the template's blocks by name
    J_BLOCK_REF, // self.name before it is called
} jtype;

#define J_OWNER_ELEMENT 0x80
#define J_OWNER_UNSAFE  0x40 // it has the attribute, but the sandbox hides it
#define J_MARKUP        1    // owner of a string: it is safe text, which escaping leaves alone

typedef struct jvalue {
    uint8_t type;
    uint8_t owner; // undefined: type of the value that lacks it, J_MISSING for a variable; with
                   // J_OWNER_ELEMENT: it lacks an element, not an attribute. Or J_MARKUP
    uint32_t n;    // string, undefined: bytes
    union {
        bool b;
        int64_t i;
        double f;
        const char *s; // string; undefined: its name. UTF-8 as in the source, not terminated
        struct jlist *list;
        struct jdict *dict;
        const struct jmacro *macro;
        const struct jbuiltin *function;
        const struct jmethod *method;
        struct jloop *loop;
        struct jcycler *cycler;
        struct jjoiner *joiner;
        const struct jnode *block;
    };
} jvalue;

typedef enum jlist_kind {
    J_PLAIN,
    J_TUPLE,
    J_ITERATOR, // the result of map, select, reverse ...: true even when empty, has no length, and
                // is empty after it was iterated
    J_VIEW,     // dict.keys() and so on
} jlist_kind;

typedef struct jlist {
    jvalue *items;
    uint32_t n, capacity;
    uint8_t kind;
    char view;     // of a dict: 'k'eys, 'v'alues or 'i'tems
    bool is_group; // an element of groupby's result: a pair whose parts also have names
} jlist;

typedef struct jdict { // in order of insertion
    jvalue *keys, *values;
    uint32_t n, capacity;
    uint32_t *slots; // hash table of entry numbers + 1, n_slots a power of two; NULL while small
    uint32_t n_slots;
    uint64_t secret; // the run's, if there are slots
} jdict;

typedef struct jmethod {
    jvalue self;
    const struct jbuiltin *builtin;
} jmethod;

typedef struct jscope {
    jdict vars;
    struct jscope *parent;
    bool captured; // a macro refers to it: do not use it again
} jscope;

typedef struct jmacro {
    const struct jnode *node;
    jscope *scope; // where it was defined
} jmacro;

typedef struct jloop {
    const struct jnode *node;
    jscope *outer; // the scope around the loop, in which recursive calls of it run
    const jvalue *items;
    uint32_t n, index;
    uint32_t depth; // depth of recursive calls
    jvalue changed; // what loop.changed() saw last
} jloop;

typedef struct jcycler {
    jvalue items; // a tuple, not empty
    uint32_t at;
} jcycler;

typedef struct jjoiner {
    jvalue separator;
    bool used;
} jjoiner;

#define J_INT_OF(x)      ((jvalue){.type = J_INT, .i = (x)})
#define J_FLOAT_OF(x)    ((jvalue){.type = J_FLOAT, .f = (x)})
#define J_BOOL_OF(x)     ((jvalue){.type = J_BOOL, .b = (x)})
#define J_STR_OF(p, len) ((jvalue){.type = J_STRING, .n = (uint32_t)(len), .s = (p)})
#define J_STR_LIT(text)  J_STR_OF(text, sizeof(text) - 1)
#define J_NONE_VALUE     ((jvalue){.type = J_NONE})

// ---- The tree ----------------------------------------------------------------------------------

// The meaning of the children a, b, c and of the lists `list` and `orelse` by kind.
typedef enum jkind {
    // Statements
    J_TEXT,         // value: the text
    J_PRINT,        // a: expression
    J_IF,           // a: condition, list: body, orelse
    J_FOR,          // a: target, b: iterable, c: condition, list: body, orelse; op: recursive
    J_SET,          // a: target, b: expression
    J_SET_BLOCK,    // a: target, b: filters around a J_HOLE, list: body
    J_FILTER_BLOCK, // b: filters around a J_HOLE, list: body
    J_MACRO_DEF,    // value: name, a: parameters (J_PARAM list), list: body, op: J_USES_...
    J_CALL_BLOCK,   // b: the call, a: parameters, list: body (both of the caller)
    J_WITH,         // a: list of J_SET, list: body
    J_AUTOESCAPE,   // a: whether, list: body
    J_BLOCK,        // value: name, list: body, op: J_BLOCK_...; `orelse` links all blocks
    J_BREAK,
    J_CONTINUE,
    // Expressions
    J_CONST,   // value
    J_NAME,    // value: name
    J_HOLE,    // the text that a filter block captured
    J_ATTR,    // a.value
    J_ITEM,    // a[b]
    J_SLICE,   // in J_ITEM.b: a:b:c
    J_CALL,    // a(list of J_ARG)
    J_FILTER,  // a | value(list); builtin
    J_TEST,    // a is value(list); builtin
    J_LIST_OF, // [list] (J_TUPLE_OF: (list))
    J_TUPLE_OF,
    J_DICT_OF, // {list: keys and values by turns}
    J_COND,    // b if a else c
    J_AND,
    J_OR,
    J_NOT,
    J_NEG,
    J_POS,
    J_COMPARE, // a, then list of J_COMPARE_WITH (op, a)
    J_COMPARE_WITH,
    J_BINARY, // a op b
    J_CONCAT, // a ~ b
    // Parts
    J_ARG,   // a; op: 0, '=' (value: name), '*' or J_OP_POW for **
    J_PARAM, // value: name, a: default or NULL
} jkind;

typedef enum jop { // tokens that are not one character
    J_OP_END = 128,
    J_OP_TEXT,
    J_OP_BLOCK_BEGIN,
    J_OP_BLOCK_END,
    J_OP_PRINT_BEGIN,
    J_OP_PRINT_END,
    J_OP_NAME,
    J_OP_STRING,
    J_OP_NUMBER,
    J_OP_FLOORDIV,
    J_OP_POW,
    J_OP_EQ,
    J_OP_NE,
    J_OP_LE,
    J_OP_GE,
    J_OP_IN,
    J_OP_NOT_IN,
} jop;

typedef struct jtoken {
    uint8_t op; // a character, or jop
    uint32_t line;
    jvalue value; // of text, names, strings, numbers
} jtoken;

// J_ESCAPE_AS_RUN_SAYS is or-ed to the setting of the last constant {% autoescape %}.
typedef enum jescape { J_ESCAPE_NO, J_ESCAPE_YES, J_ESCAPE_AS_RUN_SAYS } jescape;

typedef struct jnode {
    uint8_t kind, op;
    uint8_t escape; // jescape: set by the {% autoescape %} around it
    uint32_t line;
    jvalue value;
    struct jnode *a, *b, *c, *list, *orelse;
    const struct jbuiltin *builtin; // NULL: no such filter or test
    struct jnode *next;             // the next one in its list
} jnode;

typedef struct jprogram {
    jarena arena; // of everything below
    const jnode *body, *blocks;
    bool uses_self;
} jprogram;

#define J_USES_VARARGS   1 // in the op of a macro: arguments it takes beyond its parameters
#define J_USES_KWARGS    2
#define J_USES_CALLER    4
#define J_BLOCK_SCOPED   1 // a block sees the variables around it
#define J_BLOCK_REQUIRED 2 // and must be overridden, which no template here can do

#define J_SOURCE_MAX ((size_t)1 << 20)

// White space around tags: as transformers has it (jinja_lex.c), or as written.
typedef enum jspace { J_SPACE_TRIMMED, J_SPACE_KEPT } jspace;

// The source must not be longer than J_SOURCE_MAX. *tokens is freed by the caller, also on failure.
tern_status tern_jinja_lex(jarena *arena, tern_str source, jspace space, jtoken **tokens,
                           tern_error *err);
// Free the program also after a failure.
tern_status tern_jinja_parse(jprogram *program, tern_str source, jspace space, tern_error *err);

// ---- A run -------------------------------------------------------------------------------------

typedef struct jlimits {
    uint64_t n_steps;
    size_t memory_bytes, text_bytes;
    uint32_t depth;
    bool strict; // printing an undefined value is an error; else it is empty
} jlimits;
extern const jlimits tern_jinja_limits;

typedef struct jrun {
    const jlimits *limits;
    jarena arena;
    tern_strbuf *out; // the text so far; after it, as on a stack, texts being built
    size_t out_base;  // length of the caller's text in it
    jscope *scope, *root;
    const jnode *blocks;
    bool autoescape;  // setting of the running {% autoescape %}, for filters and results of calls
    bool escape_args; // of the format that is being filled in
    jvalue hole;
    uint64_t steps_left;
    uint64_t secret; // seed of hashes: nobody can choose keys that collide
    uint32_t depth, line;
    tern_status status;
    tern_error *err;
} jrun;

// variables: a JSON object or NULL.
tern_status tern_jinja_render(const jprogram *program, const jlimits *limits,
                              const tern_json_doc *variables, tern_strbuf *out, tern_error *err);

// All of these return false after setting the run's status and message.
bool tern_jinja_fail(jrun *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool tern_jinja_fail_status(jrun *r, tern_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool tern_jinja_fail_undefined(jrun *r, jvalue undefined);
bool tern_jinja_work(jrun *r, uint64_t n_bytes); // counts the steps for going over n_bytes
static inline bool tern_jinja_work_chars(jrun *r, uint64_t n_bytes) { // one character at a time
    return tern_jinja_work(r, n_bytes * 8);
}
bool tern_jinja_enter(jrun *r); // a step, one level deeper; r->depth-- leaves
void *tern_jinja_alloc(jrun *r, size_t n, size_t size); // NULL after a failure

// Text is built at the end of r->out and then taken from there as a value.
bool tern_jinja_put(jrun *r, const char *text, size_t n);
bool tern_jinja_take(jrun *r, size_t mark, jvalue *out);

// A call, as a built-in function sees it.
typedef struct jnamed {
    jvalue name, value;
} jnamed;
typedef struct jargs {
    jvalue *at;
    jnamed *named;
    uint32_t n, n_named;
} jargs;

#define J_MAX_PARAMS 6
typedef struct jcall {
    jvalue self;
    jvalue arg[J_MAX_PARAMS]; // by parameter; J_MISSING: not given
    const jargs *args;        // as given
} jcall;

typedef struct jbuiltin {
    const char *name;
    const char *params; // names with a space between; optional ones begin with '?'; "*": any
    bool (*call)(jrun *r, const jcall *c, jvalue *out);
} jbuiltin;

bool tern_jinja_call_builtin(jrun *r, const jbuiltin *b, jvalue self, const jargs *args,
                             jvalue *out);
bool tern_jinja_call(jrun *r, jvalue callee, const jargs *args, jvalue *out); // jinja_eval.c
// The arguments of a call, as it stands in the template; caller: of a call block, or NULL.
bool tern_jinja_eval_args(jrun *r, const jnode *list, const jvalue *caller, jargs *args);
// Sets a macro's parameters in the current scope.
bool tern_jinja_bind_params(jrun *r, const jnode *macro, const jargs *args);

// ---- jinja_eval.c ------------------------------------------------------------------------------

bool tern_jinja_eval(jrun *r, const jnode *n, jvalue *out);
bool tern_jinja_set_var(jrun *r, jvalue name, jvalue value); // in the current scope

const jbuiltin *tern_jinja_find_filter(const char *name, size_t n); // NULL: none
extern const jbuiltin tern_jinja_text_filters[]; // jinja_text.c; a name of NULL ends it
bool tern_jinja_string_method(jrun *r, const jcall *c, const char *name, jvalue *out);
const jbuiltin *tern_jinja_find_test(const char *name, size_t n);
const jbuiltin *tern_jinja_find_function(const char *name, size_t n);
const jbuiltin *tern_jinja_find_method(uint8_t type, const char *name, size_t n);
const jbuiltin *tern_jinja_find(const jbuiltin *table, size_t n_table, const char *name, size_t n);

// Conveniences of built-ins: an argument's value or the default.
bool tern_jinja_arg_int(jrun *r, jvalue v, int64_t otherwise, int64_t *out);
bool tern_jinja_arg_str(jrun *r, jvalue v, const char *otherwise, tern_str *out);

// ---- jinja_markup.c ----------------------------------------------------------------------------

static inline bool tern_jinja_is_markup(jvalue v) {
    return v.type == J_STRING && v.owner == J_MARKUP;
}
// str() with & < > " ' escaped, unless it is markup; the result is markup.
bool tern_jinja_escape(jrun *r, jvalue v, jvalue *out);
// str(), marked as safe where `is_safe`.
bool tern_jinja_markup(jrun *r, jvalue v, bool is_safe, jvalue *out);
// A method of a value; those of markup escape their arguments and return markup.
bool tern_jinja_call_method(jrun *r, const jbuiltin *b, jvalue self, const jargs *args,
                            jvalue *out);

// ---- jinja_value.c, jinja_ops.c ----------------------------------------------------------------

const char *tern_jinja_type_name(jvalue v); // as Python names it
jvalue tern_jinja_undefined(jvalue name, uint8_t owner);
bool tern_jinja_truth(jvalue v);
bool tern_jinja_equal(jrun *r, jvalue a, jvalue b, bool *out);
bool tern_jinja_less(jrun *r, const char *op, jvalue a, jvalue b, bool *out);
bool tern_jinja_contains(jrun *r, jvalue container, jvalue item, bool *out);
bool tern_jinja_length(jrun *r, jvalue v, int64_t *out);
bool tern_jinja_is_number(jvalue v); // bool, int, float
double tern_jinja_double(jvalue v);

bool tern_jinja_list_new(jrun *r, uint8_t kind, size_t capacity, jvalue *out);
bool tern_jinja_list_add(jrun *r, jlist *list, jvalue item);
// The elements that a for loop sees: of lists, characters of strings, keys of dicts.
bool tern_jinja_iterate(jrun *r, jvalue v, const jvalue **items, uint32_t *n);

bool tern_jinja_dict_new(jrun *r, uint8_t type, jvalue *out);
bool tern_jinja_dict_set(jrun *r, jdict *d, jvalue key, jvalue value);
bool tern_jinja_dict_get(jrun *r, const jdict *d, jvalue key, jvalue *out, bool *found);
const jvalue *tern_jinja_dict_find(const jdict *d, jvalue string_key); // NULL: not there
bool tern_jinja_from_json(jrun *r, const tern_json_doc *doc, const tern_json *json, jvalue *out);

// Attribute (a.name) and element (a[key]); undefined if it does not exist.
bool tern_jinja_get_attr(jrun *r, jvalue v, jvalue name, jvalue *out);
bool tern_jinja_get_item(jrun *r, jvalue v, jvalue key, jvalue *out);
// Python's indices of v[start:stop:step]; NULL: left out.
bool tern_jinja_slice(jrun *r, jvalue v, const jvalue *start, const jvalue *stop,
                      const jvalue *step, jvalue *out);
bool tern_jinja_binary(jrun *r, uint8_t op, jvalue a, jvalue b, jvalue *out);

// ---- jinja_print.c, jinja_format.c: appended to r->out -----------------------------------------

bool tern_jinja_print(jrun *r, jvalue v); // Python's str()
bool tern_jinja_repr(jrun *r, jvalue v);
bool tern_jinja_to_string(jrun *r, jvalue v, jvalue *out); // str() as a value

typedef struct jjson_style {
    tern_str item, key; // separators, ", " and ": "
    tern_str indent;    // one level
    bool pretty, sort, ascii;
} jjson_style;
bool tern_jinja_to_json(jrun *r, jvalue v, const jjson_style *style, uint32_t level);

bool tern_jinja_percent(jrun *r, tern_str format, jvalue args);       // format % args
bool tern_jinja_str_format(jrun *r, tern_str format, const jargs *a); // format.format(...)

// ---- Characters --------------------------------------------------------------------------------

size_t tern_jinja_char(const char *s, size_t n);     // bytes of the first character, n > 0
size_t tern_jinja_count(const char *s, size_t n);    // characters
size_t tern_jinja_space(const char *s, size_t n);    // bytes of a white-space character, 0: none
size_t tern_jinja_line_end(const char *s, size_t n); // bytes of a line end, 0: none
bool tern_jinja_is_word(uint32_t code);              // Python's \w
tern_str tern_jinja_strip(tern_str s, const tern_str *chars, bool left, bool right);

#endif

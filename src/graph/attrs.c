// Attributes of nodes, member by member, as ops.inc lists them: printed, compared and hashed. The
// padding between members is undefined.
#include <string.h>
#include "base/hash.h"
#include "graph/build.h"

#ifdef TERN_NO_TRAINING // browsers
#define TERN_OPS_OF_MODELS
#endif

typedef enum number_kind { WHOLE, FLAG, REAL } number_kind;
#define KIND(x)  _Generic((x), bool : FLAG, float : REAL, const float * : REAL, default : WHOLE)
#define COUNT(x) (sizeof(x) / (KIND(x) == FLAG ? sizeof(bool) : sizeof(int32_t)))

// Either prints the attributes or lists them as numbers of 32 bits.
#define NUMBERS_MAX 32
typedef struct visit {
    tern_strbuf *out; // NULL: list them
    uint32_t numbers[NUMBERS_MAX];
    size_t n;
} visit;

static void list(visit *v, number_kind kind, const void *x, size_t n) {
    for (size_t i = 0; i < n && v->n < NUMBERS_MAX; i++) {
        uint32_t number = kind == FLAG && ((const bool *)x)[i];
        if (kind != FLAG) memcpy(&number, (const char *)x + i * sizeof number, sizeof number);
        v->numbers[v->n++] = number;
    }
}

// Numbers that are all 0 are what an op does anyway.
static void print(visit *v, const char *name, number_kind kind, const void *x, size_t n) {
    bool any = false;
    for (size_t i = 0; i < n; i++)
        any = any || (kind == FLAG   ? ((const bool *)x)[i]
                      : kind == REAL ? ((const float *)x)[i] != 0
                                     : ((const int32_t *)x)[i] != 0);
    if (any) tern_strbuf_printf(v->out, " %s", name);
    for (size_t i = 0; any && kind != FLAG && i < n; i++)
        if (kind == REAL)
            tern_strbuf_printf(v->out, "%c%g", i ? ',' : '=', (double)((const float *)x)[i]);
        else
            tern_strbuf_printf(v->out, "%c%d", i ? ',' : '=', (int)((const int32_t *)x)[i]);
}

static void see(visit *v, const char *name, number_kind kind, const void *x, size_t n) {
    if (v->out)
        print(v, name, kind, x, n);
    else
        list(v, kind, x, n);
}

static void see_named(visit *v, const char *name, const void *x, const char *text) {
    if (v->out)
        tern_strbuf_printf(v->out, " %s=%s", name, text);
    else
        list(v, WHOLE, x, 1);
}

// A function for each struct of attributes.
// clang-format off
#define TERN_ATTRS_BEGIN(type) static void visit_##type(visit *v, const type *a) {
#define TERN_ATTR(type, member) \
    see(v, #member, KIND(a->member), &a->member, COUNT(a->member));
#define TERN_ATTR_LIST(type, member, n) TERN_ATTR(type, member)
#define TERN_ATTR_NAMED(type, member, name) see_named(v, #member, &a->member, name(a->member));
#define TERN_ATTR_STRUCT(type, member) visit_##type(v, &a->member);
#define TERN_ATTRS_END(type) }
#include "graph/ops.inc"
// clang-format on

static void visit_node(visit *v, const tern_node *n) {
    const tern_op_facts *f = tern_op_info(n->op);
    switch (f ? f->attrs : TERN_ATTRS_NONE) {
    default: break;
#define TERN_NODE_ATTRS(id, type, member)                                                          \
    case TERN_ATTRS_##id:                                                                          \
        visit_##type(v, &n->member);                                                               \
        break;
#define TERN_NODE_ATTR(id, type, member)                                                           \
    case TERN_ATTRS_##id:                                                                          \
        see(v, #member, KIND(n->member), &n->member, 1);                                           \
        break;
#include "graph/ops.inc"
    }
}

void tern_g_print_attrs(const tern_node *n, tern_strbuf *out) {
    visit_node(&(visit){.out = out}, n);
}

uint64_t tern_node_hash_attrs(uint64_t h, const tern_node *n) {
    visit v = {0};
    visit_node(&v, n);
    return tern_hash64(h, v.numbers, v.n * sizeof *v.numbers);
}

static bool is_same(const visit *a, const visit *b) {
    return a->n == b->n && memcmp(a->numbers, b->numbers, a->n * sizeof *a->numbers) == 0;
}

bool tern_rope_same(const tern_rope_attrs *a, const tern_rope_attrs *b) {
    visit x = {0}, y = {0};
    visit_tern_rope_attrs(&x, a);
    visit_tern_rope_attrs(&y, b);
    return is_same(&x, &y);
}

bool tern_rotation_same(const tern_rotation *a, const tern_rotation *b) {
    visit x = {0}, y = {0};
    visit_tern_rotation(&x, a);
    visit_tern_rotation(&y, b);
    return is_same(&x, &y);
}

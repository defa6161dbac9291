// A student's graph with its teacher in it (arXiv:1503.02531): both end in logits of the same rows,
// which one op compares.
//
//   the teacher's layers | the student's layers | the teacher's head | the student's head | distill
//
// Nothing of the teacher's layers is read again, except the rows that its head multiplies: so their
// memory is free for the student's. The two heads are computed in pieces (scored.c), so that the
// logits that exist at once are those of a piece of rows, twice.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "graph/build.h"

bool tern_value_is_teacher(const tern_value *v) {
    return strncmp(v->name, TERN_TEACHER, sizeof TERN_TEACHER - 1) == 0;
}

typedef struct side {
    tern_graph *g;
    tern_vid logits; // of the scored rows
    size_t head;     // first node of the head
    tern_vid *now;   // by value: which one it is in the joined graph, -1: none yet
} side;

// Becomes a graph for training that ends in logits.
static tern_status end_in_logits(side *s, tern_error *err) {
    tern_graph *g = s->g;
    s->logits = tern_graph_find(g, "logits");
    if (s->logits < 0) return tern_fail(err, TERN_ERR_FORMAT, "graph: it has no logits");
    TERN_TRY(tern_g_for_rows(g, s->logits, err));
    g->values[s->logits].kind = TERN_VALUE_TEMP;
    s->logits = tern_g_take_scored(g, s->logits);
    if (s->logits < 0) return tern_fail_memory(err, g->n_nodes * sizeof *g->nodes);
    while (g->nodes[s->head].op != TERN_OP_TAKE_SCORED) s->head++;
    s->now = tern_alloc_array(TERN_MEM_GRAPH, g->n_values + 1, sizeof *s->now);
    return s->now ? TERN_OK : tern_fail_memory(err, g->n_values * sizeof *s->now);
}

// Makes the teacher's value one of `to`, if it is not yet; inputs are shared.
static tern_status bring(tern_graph *to, const side *teacher, tern_vid v, tern_error *err) {
    const tern_value *from = &teacher->g->values[v];
    tern_vid *now = &teacher->now[v];
    char name[2 * TERN_NAME_BYTES];
    if (*now >= 0) return TERN_OK;
    tern_dim dim = TERN_DIM_NONE;
    if (from->dim != TERN_DIM_NONE) dim = tern_g_dim(to, teacher->g->dims[from->dim]);
    if (from->kind == TERN_VALUE_INPUT) {
        *now = tern_g_input(to, from->name, dim, from->cols, from->type);
        return TERN_OK;
    }
    snprintf(name, sizeof name, TERN_TEACHER "%s", from->name);
    if (from->kind == TERN_VALUE_WEIGHT && strlen(name) >= TERN_NAME_BYTES)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "graph: the name %s is too long for a teacher",
                         from->name);
    *now = tern_g_value(to, from->kind, from->type, dim, from->rows, from->cols);
    if (*now < 0) return tern_fail_memory(err, sizeof *from);
    tern_value *made = &to->values[*now];
    *made = *from;
    made->dim = dim;
    made->producer = -1;
    snprintf(made->name, sizeof made->name, "%.*s", TERN_NAME_BYTES - 1, name);
    return TERN_OK;
}

static tern_status bring_all(tern_graph *to, const side *teacher, tern_error *err) {
    const tern_graph *t = teacher->g;
    for (size_t i = 0; i < t->n_nodes; i++) {
        const tern_node *n = &t->nodes[i];
        for (int k = 0; k < n->n_in; k++) TERN_TRY(bring(to, teacher, n->in[k], err));
        for (int k = 0; k < n->n_out; k++) TERN_TRY(bring(to, teacher, n->out[k], err));
    }
    return TERN_OK;
}

static void append(tern_graph *to, const side *s, size_t first, size_t end) {
    for (size_t i = first; i < end; i++) {
        tern_node *n = tern_g_node(to, s->g->nodes[i].op);
        if (!n) return;
        *n = s->g->nodes[i];
        for (int k = 0; k < n->n_in; k++) n->in[k] = s->now[n->in[k]];
        for (int k = 0; k < n->n_out; k++) {
            n->out[k] = s->now[n->out[k]];
            to->values[n->out[k]].producer = (int32_t)(to->n_nodes - 1);
        }
    }
}

static void add_loss(tern_graph *g, tern_vid logits, tern_vid teacher,
                     const tern_distill_attrs *how) {
    static const char *const sums[] = {"loss", "kl", "agreement"};
    tern_vid out[4];
    tern_vid targets = tern_g_input(g, "targets", tern_g_dim(g, "tokens"), 1, TERN_VALUE_I32);
    tern_node *n = tern_g_node(g, TERN_OP_DISTILL);
    tern_g_in(g, n, logits);
    tern_g_in(g, n, targets);
    tern_g_in(g, n, teacher);
    if (!n) return;
    n->distill = *how;
    for (int i = 0; i < 4; i++) out[i] = tern_g_out(g, n, logits, TERN_VALUE_F32, i < 3 ? 1 : 3);
    for (int i = 0; i < 3; i++) tern_g_sum_into(g, out[i], sums[i]);
}

static tern_status join(tern_graph *to, const side *student, const side *teacher,
                        const tern_distill_attrs *how, tern_error *err) {
    const tern_graph *g = student->g, *t = teacher->g;
    TERN_TRY(tern_graph_copy(to, g, err));
    to->n_nodes = 0; // the student's values keep their numbers, the nodes are added again
    for (size_t v = 0; v < g->n_values; v++) student->now[v] = (tern_vid)v;
    for (size_t v = 0; v < t->n_values; v++) teacher->now[v] = -1;
    TERN_TRY(bring_all(to, teacher, err));
    append(to, teacher, 0, teacher->head);
    append(to, student, 0, student->head);
    append(to, teacher, teacher->head, t->n_nodes);
    append(to, student, student->head, g->n_nodes);
    add_loss(to, student->logits, teacher->now[teacher->logits], how);
    return tern_graph_check(to, err);
}

tern_status tern_graph_train_distilled(tern_graph *g, const tern_graph *teacher,
                                       const tern_distill_attrs *how, tern_error *err) {
    tern_graph copy, joined = {0};
    TERN_TRY(tern_graph_copy(&copy, teacher, err));
    side own = {.g = g}, other = {.g = &copy};
    tern_status status = end_in_logits(&own, err);
    if (status == TERN_OK) status = end_in_logits(&other, err);
    if (status == TERN_OK) status = join(&joined, &own, &other, how, err);
    if (status == TERN_OK) {
        tern_graph old = *g;
        *g = joined;
        joined = old;
    }
    tern_graph_free(&joined);
    tern_graph_free(&copy);
    tern_free(own.now);
    tern_free(other.now);
    return status;
}

// ---- In two programs ---------------------------------------------------------------------------

static tern_vid add_top(tern_graph *g, const tern_top *top) {
    return tern_g_named(g, TERN_TEACHER_TOP, TERN_VALUE_STATE, TERN_VALUE_F32, TERN_DIM_NONE,
                        top->n_rows, 2 * (top->n_top + top->n_tail) + 1);
}

// For a graph that is joined to no other.
static tern_status end_alone(tern_graph *g, tern_vid *logits, tern_error *err) {
    side own = {.g = g};
    tern_status status = end_in_logits(&own, err);
    *logits = own.logits;
    tern_free(own.now);
    return status;
}

tern_status tern_graph_keep_top(tern_graph *g, const tern_top *top, tern_error *err) {
    tern_vid logits;
    TERN_TRY(end_alone(g, &logits, err));
    tern_vid kept = add_top(g, top);
    tern_node *n = tern_g_node(g, TERN_OP_KEEP_TOP);
    tern_g_in(g, n, logits);
    tern_g_in(g, n, kept);
    if (n) n->top = (tern_top_attrs){(int32_t)top->n_cols, (int32_t)top->n_tail};
    return tern_graph_check(g, err);
}

tern_status tern_graph_train_on_top(tern_graph *g, const tern_top *top,
                                    const tern_distill_attrs *how, tern_error *err) {
    tern_distill_attrs with_tail = *how;
    tern_vid logits;
    with_tail.n_tail = (int32_t)top->n_tail;
    TERN_TRY(end_alone(g, &logits, err));
    add_loss(g, logits, add_top(g, top), &with_tail);
    return tern_graph_check(g, err);
}

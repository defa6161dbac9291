// Names and attributes of a graph: nothing is cut, and padding between members does not count.
#include <string.h>
#include "graph/build.h"
#include "kernels/rope.h"
#include "tests/support/harness.h"

// Seen to fail when tern_g_named cuts: two weights became one.
TEST(graph_refuses_names_that_do_not_fit) {
    char name[TERN_NAME_BYTES + 1];
    tern_error err = {0};
    tern_graph g;
    memset(name, 'x', sizeof name);
    name[TERN_NAME_BYTES - 1] = 0; // the longest
    tern_graph_init(&g);
    CHECK(tern_g_vector(&g, name, 4) == 0);
    REQUIRE_OK(tern_graph_check(&g, &err), err);
    memcpy(name + TERN_NAME_BYTES - 1, "y", 2);
    CHECK(tern_g_vector(&g, name, 4) == -1);
    CHECK(tern_graph_check(&g, &err) == TERN_ERR_UNSUPPORTED);
    CHECK_MSG(strstr(err.message, "longer than 63 characters: xxx"), "%s", err.message);
    tern_graph_free(&g);
}

// Seen to fail with "grad.%.58s": the gradients of two weights became one.
TEST(graph_refuses_gradients_whose_names_do_not_fit) {
    char name[TERN_NAME_BYTES];
    tern_error err = {0};
    tern_graph g, update;
    memset(name, 'x', sizeof name);
    name[TERN_NAME_BYTES - 1] = 0;
    tern_graph_init(&g);
    tern_graph_init(&update);
    tern_vid ids = tern_g_input(&g, "ids", tern_g_dim(&g, "tokens"), 1, TERN_VALUE_I32);
    tern_vid x = tern_g_embed(&g, ids, tern_g_table(&g, name, 8, 4));
    name[TERN_NAME_BYTES - 2] = 'y';
    tern_g_output(&g, tern_g_linear(&g, x, tern_g_matrix(&g, name, 8, 4)), "logits");
    tern_status status = tern_graph_train(&g, &err);
    if (status == TERN_OK) status = tern_graph_differentiate(&g, NULL, &err);
    if (status == TERN_OK) status = tern_graph_check(&g, &err);
    CHECK(status == TERN_ERR_UNSUPPORTED);
    CHECK_MSG(strstr(err.message, "longer than 63 characters: grad.xxx"), "%s", err.message);
    tern_graph_free(&update);
    tern_graph_free(&g);
}

// Seen to fail with memcmp: the bytes after `halves` differ.
TEST(graph_rope_attributes_are_compared_by_member) {
    tern_error err = {0};
    tern_rope_list list = {0};
    tern_node n[2];
    int index[2] = {-1, -1};
    for (int i = 0; i < 2; i++) {
        memset(&n[i], i ? 0xff : 0, sizeof n[i]);
        tern_rope_attrs *a = &n[i].rope.angles;
        a->n_rot = 8;
        a->halves = true;
        a->base = 10000;
        a->scaling = TERN_ROPE_NONE;
        a->factor = a->low_freq_factor = a->high_freq_factor = 1;
        a->beta_fast = a->beta_slow = a->attn_factor = a->growth = 0;
        a->n_context_orig = 64;
        a->axes = TERN_ROPE_LINE;
        memset(a->sections, 0, sizeof a->sections);
        REQUIRE_OK(tern_rope_list_find(&list, &n[i], NULL, NULL, &index[i], &err), err);
    }
    CHECK(list.n == 1 && index[0] == 0 && index[1] == 0);
    n[1].rope.angles.n_context_orig = 65;
    REQUIRE_OK(tern_rope_list_find(&list, &n[1], NULL, NULL, &index[1], &err), err);
    CHECK(list.n == 2 && index[1] == 1);
    tern_rope_list_free(&list);
}

static uint64_t hash_of(const tern_node *n) { return tern_node_hash_attrs(1, n); }

// Catches a hash of the struct's bytes, whose padding differs, and of members that the op lacks.
TEST(graph_attributes_are_hashed_by_member_and_op) {
    tern_node n[2];
    for (int i = 0; i < 2; i++) {
        memset(&n[i], i ? 0xff : 0, sizeof n[i]);
        n[i].op = TERN_OP_ATTENTION;
        tern_attention_attrs *a = &n[i].attention;
        a->n_heads = 4;
        a->n_kv_heads = 2;
        a->head_dim = 8;
        a->scale = 0.5f;
        a->window = a->ahead = 0;
        a->bidirectional = a->images = false;
        a->soft_cap = 0;
    }
    CHECK(hash_of(&n[0]) == hash_of(&n[1]));
    n[1].attention.images = true;
    CHECK(hash_of(&n[0]) != hash_of(&n[1]));
    n[0].op = n[1].op = TERN_OP_ADD; // which has none
    CHECK(hash_of(&n[0]) == hash_of(&n[1]));
    tern_node rope[2] = {{.op = TERN_OP_ROPE}, {.op = TERN_OP_ROPE}};
    rope[1].rope.angles.sections[2] = 1;
    CHECK(hash_of(&rope[0]) != hash_of(&rope[1]));
}

// A node is as its row says: columns, inputs that may be missing, attributes that are printed.
TEST(graph_nodes_follow_their_rows) {
    tern_graph g;
    tern_error err = {0};
    tern_strbuf out = {0};
    tern_graph_init(&g);
    tern_vid x = tern_g_input(&g, "x", tern_g_dim(&g, "tokens"), 8, TERN_VALUE_F32);
    tern_vid w = tern_g_vector(&g, "w", 8);
    tern_vid y = tern_g_layer_norm(&g, x, w, -1, 0.5f);
    tern_vid z =
        tern_g_op(&g, &(tern_node){.op = TERN_OP_COLUMNS, TERN_IN(y), .columns = {4, 1, 2}});
    REQUIRE_OK(tern_graph_check(&g, &err), err);
    CHECK(g.n_nodes == 2 && g.nodes[0].n_in == 2 && tern_node_optional(&g.nodes[0], 1) == -1);
    CHECK(tern_node_optional(&g.nodes[0], 0) == w);
    CHECK(g.values[z].cols == 4 && g.values[z].dim == g.values[x].dim);
    CHECK(!tern_node_stores(&g.nodes[1]) && tern_node_has(&g.nodes[1], TERN_ATTRS_COLUMNS));
    tern_graph_print(&g, "g", "built", NULL, TERN_FORMAT_TEXT, &out);
    CHECK_MSG(strstr(out.ptr, "w) eps=0.5 :") && strstr(out.ptr, " group=4 first=1 width=2 :"),
              "%s", out.ptr);
    // Catches a row of ops.inc without its check.
    g.nodes[1].columns.first = 3;
    CHECK(tern_graph_check(&g, &err) == TERN_ERR_FORMAT);
    // An input that may not be missing.
    CHECK(tern_g_op(&g, &(tern_node){.op = TERN_OP_ADD, TERN_IN(x, -1)}) == -1 && g.failed);
    tern_strbuf_free(&out);
    tern_graph_free(&g);
}

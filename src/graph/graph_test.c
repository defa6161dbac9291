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
        tern_rope_attrs *a = &n[i].rope;
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
    n[1].rope.n_context_orig = 65;
    REQUIRE_OK(tern_rope_list_find(&list, &n[1], NULL, NULL, &index[1], &err), err);
    CHECK(list.n == 2 && index[1] == 1);
    tern_rope_list_free(&list);
}

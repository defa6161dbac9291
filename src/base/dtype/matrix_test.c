// A matrix read piece by piece has the same rows as in memory; ternary ones have a scale.
#include "base/dtype/matrix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file/out_set.h"
#include "base/dtype/ternary.h"
#include "tests/support/blobs.h"
#include "tests/support/harness.h"

#define SCALE 0.5f

// Written between other bytes: a matrix need not begin where its file does.
enum { BEFORE = 96 };
static bool write_matrix(const char *path, tern_matrix *m, uint8_t **bytes) {
    tern_error err = {0};
    uint64_t n = 0;
    uint32_t state = 7;
    uint64_t n_elements = (uint64_t)m->n_rows * (uint64_t)m->n_cols;
    if (!tern_dtype_bytes(m->type, n_elements, (uint64_t)m->n_cols, &n)) return false;
    *bytes = malloc(BEFORE + n + BEFORE);
    if (!*bytes) return false;
    for (uint64_t i = 0; i < BEFORE + n + BEFORE; i++) {
        state = state * 1664525u + 1013904223u;
        (*bytes)[i] = (uint8_t)(state >> 24) & 0xaa; // codes 0 and 2, and no number too large
    }
    m->data = tern_blob_of(*bytes + BEFORE, n);
    return tern_file_write(path, *bytes, BEFORE + n + BEFORE, &err) == TERN_OK;
}

typedef struct pair {
    tern_codes memory, pieces;
    float *wanted, *found;
} pair;

static bool same_row(pair *p, int64_t row) {
    const tern_matrix *m = &p->memory.rows.m;
    size_t n = (size_t)m->n_cols;
    if (!tern_dtype_is_ternary(m->type)) {
        tern_rows_decode(&p->memory.rows, row, p->wanted);
        tern_rows_decode(&p->pieces.rows, row, p->found);
        return memcmp(p->wanted, p->found, n * sizeof(float)) == 0;
    }
    const int8_t *codes = tern_codes_row(&p->memory, row);
    return memcmp(codes, tern_codes_row(&p->pieces, row), n) == 0;
}

static void compare(pair *p, const char *name) {
    int64_t n = p->memory.rows.m.n_rows;
    size_t before = tern_mem_get_stats().total_now, most = 0;
    uint64_t first_read = tern_blob_n_reads();
    int n_bad = 0;
    const tern_rows *rows = &p->pieces.rows;
    for (int64_t row = 0; row < n; row++) {
        CHECK(tern_rows_reach(&p->pieces.rows, row, NULL) == TERN_OK);
        size_t now = tern_mem_get_stats().total_now - before;
        if (now > most) most = now;
        bool at_edge = row == rows->first || row == rows->end - 1;
        if (at_edge || row % 37 == 0) n_bad += !same_row(p, row);
    }
    CHECK(tern_rows_reach(&p->pieces.rows, 1, NULL) == TERN_OK && same_row(p, 1)); // back again
    CHECK_MSG(n_bad == 0, "%s: %d rows differ", name, n_bad);
    CHECK_MSG(most <= (4 << 20) + 64, "%s: %zu bytes at once", name, most);
    uint64_t n_reads = tern_blob_n_reads() - first_read;
    CHECK_MSG(n_reads > 2 && n_reads < 14, "%s: %d reads", name, (int)n_reads);
}

// Rows in any order, each read alone, into no more room than was requested. Seen to fail: one block
// too few for rows that begin inside a block; the first row of a block for all of them.
static void compare_single(const tern_matrix *memory, const tern_matrix *read, const char *name) {
    uint64_t n_bytes = tern_matrix_row_bytes(read);
    size_t n = (size_t)read->n_cols;
    uint8_t *room = malloc(n_bytes + 1);
    float *rows[3];
    tern_rows all;
    int n_bad = 0;
    for (int i = 0; i < 3; i++) rows[i] = malloc(n * sizeof(float));
    tern_rows_open_pieces(&all, memory);
    for (int64_t i = 0; n_bytes > 0 && i < 50; i++) {
        int64_t row = i * 7919 % read->n_rows;
        room[n_bytes] = 0x5a;
        CHECK(tern_matrix_decode_row(read, row, room, rows[0], NULL) == TERN_OK);
        CHECK(tern_matrix_decode_row(memory, row, NULL, rows[1], NULL) == TERN_OK);
        CHECK(tern_rows_reach(&all, row, NULL) == TERN_OK);
        tern_rows_decode(&all, row, rows[2]);
        n_bad += room[n_bytes] != 0x5a || memcmp(rows[0], rows[2], n * sizeof(float)) != 0 ||
                 memcmp(rows[1], rows[2], n * sizeof(float)) != 0;
    }
    CHECK_MSG(n_bad == 0, "%s: %d single rows differ", name, n_bad);
    tern_rows_close(&all);
    for (int i = 0; i < 3; i++) free(rows[i]);
    free(room);
}

// Seen to fail: with pieces of I2_S that begin inside a block (a step of 1); with HF_TERNARY's
// pieces across quarters; with a part that lacks the offset of its whole in the file.
TEST(matrix_in_pieces_has_the_rows_of_the_whole) {
    static const struct {
        tern_dtype type;
        int64_t n_rows, n_cols;
    } cases[] = {
        {TERN_DTYPE_F32, 2500, 1024},         {TERN_DTYPE_F16, 9001, 512},
        {TERN_DTYPE_Q8_0, 9000, 1024},        {TERN_DTYPE_Q6_K, 9000, 1024},
        {TERN_DTYPE_TQ1_0, 50, 1 << 20},      {TERN_DTYPE_TQ2_0, 40000, 512},
        {TERN_DTYPE_I2_S, 40000, 1024},       {TERN_DTYPE_I2_S, 40000, 1100},
        {TERN_DTYPE_HF_TERNARY, 39996, 1100}, {TERN_DTYPE_HF_TERNARY, 12, 3 << 20},
    };
    bool before = test_map_never(true);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tern_matrix m = {.type = cases[i].type,
                         .n_rows = cases[i].n_rows,
                         .n_cols = cases[i].n_cols,
                         .scale = SCALE};
        const char *path = test_tmp("matrix");
        const tern_ternary_kind kind = {.scale = SCALE};
        tern_error err = {0};
        uint8_t *bytes = NULL;
        tern_blob_file *file;
        tern_blob all;
        pair p = {0};
        REQUIRE(write_matrix(path, &m, &bytes));
        REQUIRE_OK(tern_blob_open(&file, path, false, &all, &err), err);
        tern_matrix read = m;
        read.data = tern_blob_part(&all, BEFORE, m.data.n);
        REQUIRE_OK(tern_codes_open(&p.memory, &m, &kind, false, &err), err);
        REQUIRE_OK(tern_codes_open(&p.pieces, &read, &kind, true, &err), err);
        p.wanted = malloc((size_t)m.n_cols * 2 * sizeof(float));
        p.found = p.wanted + m.n_cols;
        compare(&p, tern_dtype_name(m.type));
        compare_single(&m, &read, tern_dtype_name(m.type));
        free(p.wanted);
        tern_codes_close(&p.memory);
        tern_codes_close(&p.pieces);
        tern_blob_close(file);
        free(bytes);
    }
    test_map_never(before);
}

// A NaN in weights whose inputs are rounded to int8 came out as some number. Seen to fail: the mean
// of masters with one was 1e-5, and blocks with such a scale were ternary weights times it.
TEST(ternary_weights_whose_scale_is_none_are_refused) {
    float floats[512] = {0};
    uint8_t blocks[2 * 66];
    int8_t codes[512];
    tern_error err = {0};
    tern_ternary_kind kind;
    for (int i = 0; i < 512; i++) codes[i] = (int8_t)(i % 3 - 1);
    for (int i = 0; i < 512; i++) floats[i] = (float)(i % 7) / 8;
    tern_matrix m = {.n_rows = 2, .n_cols = 256, .type = TERN_DTYPE_F32, .scale = 1};
    for (int bad = 0; bad < 3; bad++) {
        const float value = bad == 0 ? 0.5f : bad == 1 ? NAN : INFINITY;
        floats[300] = value;
        m.type = TERN_DTYPE_F32;
        m.data = tern_blob_of(floats, sizeof floats);
        CHECK((tern_ternary_find(&m, true, &kind, &err) == TERN_OK) == (bad == 0));
        tern_dtype_encode_ternary(TERN_DTYPE_TQ2_0, codes, 512, 0.5f, blocks);
        const uint16_t half = bad == 0 ? 0x3800 : bad == 1 ? 0x7e00 : 0xfc00;
        memcpy(blocks + 2 * 66 - 2, &half, 2);
        m.type = TERN_DTYPE_TQ2_0;
        m.data = tern_blob_of(blocks, sizeof blocks);
        CHECK((tern_ternary_find(&m, false, &kind, &err) == TERN_OK) == (bad == 0));
        CHECK(bad == 0 || strstr(err.message, "not a finite number"));
    }
}

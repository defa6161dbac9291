#include <math.h>
#include <string.h>
#include "tern.h"
#include "tests/support/harness.h"

// ln softmax(logits)[id], in double.
static double expected(const float *logits, int32_t n, int32_t id) {
    double sum = 0, most = -INFINITY;
    for (int32_t i = 0; i < n; i++)
        if ((double)logits[i] > most) most = (double)logits[i];
    for (int32_t i = 0; i < n; i++) sum += exp((double)logits[i] - most);
    return (double)logits[id] - most - log(sum);
}

// Seen to fail: with ties in the order of higher ids, with the sum not shifted by the greatest
// logit (1000 overflows), and with the loop over the best ending one early.
TEST(rank_logprobs_are_those_of_a_sorted_row) {
    static const float rows[][6] = {{0, 1, 2, 3, 4, 5},
                                    {5, 4, 3, 2, 1, 0},
                                    {1, 3, 3, -2, 3, 1},
                                    {1000, 999, -1000, 1000.5f, 0, 3},
                                    {7, 7, 7, 7, 7, 7}};
    static const int32_t sorted[][6] = {{5, 4, 3, 2, 1, 0},
                                        {0, 1, 2, 3, 4, 5},
                                        {1, 2, 4, 0, 5, 3},
                                        {3, 0, 1, 5, 4, 2},
                                        {0, 1, 2, 3, 4, 5}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        for (size_t n_each = 1; n_each <= 9; n_each++) {
            tern_token_logprob out[10];
            tern_error err = {0};
            memset(out, 77, sizeof out);
            REQUIRE_OK(tern_rank_logprobs(rows[r], 6, 4, out, n_each, &err), err);
            CHECK(out[0].id == 4 && out[n_each].id == 0x4d4d4d4d);
            for (size_t k = 0; k < n_each; k++) {
                const int32_t id = k >= 1 && k <= 6 ? sorted[r][k - 1] : 4;
                CHECK_MSG(out[k].id == id, "row %zu, place %zu of %zu: %d", r, k, n_each,
                          (int)out[k].id);
                CHECK(fabs((double)out[k].logprob - expected(rows[r], 6, id)) < 1e-5);
            }
        }
    }
}

// Seen to fail without the check of id, which is an index of the row: the row of an image in a
// prompt has an id far above all tokens.
TEST(rank_logprobs_refuse_what_is_not_a_token) {
    static const float row[3] = {1, 2, NAN};
    tern_token_logprob out[2] = {{9, 9}, {9, 9}};
    tern_error err = {0};
    CHECK(tern_rank_logprobs(row, 3, 3, out, 2, &err) == TERN_ERR_ARGUMENT);
    CHECK(strstr(err.message, "token 3") != NULL);
    CHECK(tern_rank_logprobs(row, 3, -1, out, 2, &err) == TERN_ERR_ARGUMENT);
    CHECK(tern_rank_logprobs(row, 0, 0, out, 2, &err) == TERN_ERR_ARGUMENT);
    CHECK(out[0].id == 9 && out[1].id == 9);
    CHECK(tern_rank_logprobs(row, 3, 0, NULL, 0, &err) == TERN_OK);
    REQUIRE_OK(tern_rank_logprobs(row, 3, 0, out, 2, &err), err);
    CHECK(out[0].id == 0 && isnan(out[0].logprob) && isnan(out[1].logprob));
}

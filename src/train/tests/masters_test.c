// Master weights in bfloat16: a run computes with them as with floats of the same numbers.
#include "base/dtype/half.h"
#include "tests/support/lora_fixture.h"
#include "train/trainer.h"

typedef struct found {
    float loss, norm2;
    int n_bf16, n_matrices;
} found;

// One step from the first weights, rounded to bfloat16 also where the trainer keeps floats.
static bool run_one(const tern_train_desc *d, found *out) {
    tern_error err = {0};
    tern_trainer *t;
    tern_train_sums sums;
    *out = (found){0};
    bool ok = tern_trainer_open(&t, d, &err) == TERN_OK;
    CHECK_MSG(ok, "%s", err.message);
    if (!ok) return false;
    ok = tern_trainer_init_weights(t, &err) == TERN_OK;
    for (size_t i = 0; ok && i < t->n_slots; i++) {
        const tern_slot *s = &t->slots[i];
        const uint64_t n = s->n_rows * s->n_cols;
        if (!s->is_weight || !s->is_matrix) continue;
        out->n_matrices++;
        out->n_bf16 += s->is_bf16;
        float *w = malloc(n * sizeof *w);
        ok = w && t->backend->read(s->array, 0, n, w, &err) == TERN_OK;
        for (uint64_t k = 0; ok && k < n; k++) w[k] = tern_bf16_to_f32(tern_f32_to_bf16(w[k]));
        ok = ok && t->backend->write(s->array, 0, n, w, &err) == TERN_OK;
        free(w);
    }
    ok = ok && tern_trainer_step(t, 1e-3f, 0, &err) == TERN_OK &&
         tern_trainer_read_sums(t, &sums, &err) == TERN_OK &&
         t->backend->read(tern_trainer_slot(t, "grad_norm2")->array, 0, 1, &out->norm2, &err) ==
             TERN_OK;
    CHECK_MSG(ok, "%s", err.message);
    out->loss = sums.loss;
    tern_trainer_close(t);
    return ok;
}

static void check_same(const char *name, tern_train_desc d) {
    found floats, halves;
    if (!run_one(&d, &floats)) return;
    d.bf16_masters = true;
    d.n_threads = 3;
    if (!run_one(&d, &halves)) return;
    CHECK_MSG(floats.loss == halves.loss && floats.norm2 == halves.norm2,
              "%s: loss %.9g, not %.9g; gradient %.9g, not %.9g", name, (double)halves.loss,
              (double)floats.loss, (double)halves.norm2, (double)floats.norm2);
    CHECK_MSG(floats.n_bf16 == 0 && halves.n_bf16 > 0.8 * halves.n_matrices,
              "%s: %d matrices of %d are bfloat16", name, halves.n_bf16, halves.n_matrices);
}

// Loss and gradients to the bit. Seen to fail: with trits whose scale is of floats in memory that
// others have not decoded yet; with experts of the one before.
TEST(training_with_bf16_masters_computes_as_with_floats) {
    static const base_kind kinds_[] = {{"ternary", {.seed = 70}, false},
                                       {"Llama", {.arch = "llama", .seed = 74}, false},
                                       {"LFM2", {.arch = "lfm2", .seed = 83}, false}};
    char base[300], data[300];
    losses l;
    snprintf(data, sizeof data, "%s", test_tmp("masters_data"));
    for (int i = 0; i < 4; i++) {
        const base_kind *k = &kinds_[i < 3 ? i : 1];
        if (!make_base(k, base, sizeof base) || !make_data(base, false, data)) return;
        tern_train_desc d = small_run(base, data, test_tmp("masters_out"), &l);
        d.lora_rank = 0;
        d.qat = i == 3 ? "q8_0" : NULL;
        check_same(i == 3 ? "qat" : k->name, d);
    }
    if (!copy_oracle("tests/oracles/qwen3moe", base, sizeof base)) return;
    snprintf(data, sizeof data, "%s", test_tmp("masters_animals"));
    if (!make_animals(base, data)) return;
    tern_train_desc d = small_run(base, data, test_tmp("masters_out"), &l);
    d.lora_rank = 0;
    check_same("experts", d);
}

TEST(training_refuses_bf16_masters_of_an_adapter) {
    char base[300], data[300];
    tern_error err = {0};
    losses l;
    snprintf(data, sizeof data, "%s", test_tmp("masters_data"));
    if (!make_base(&kinds[4], base, sizeof base) || !make_data(base, false, data)) return;
    tern_train_desc d = small_run(base, data, test_tmp("masters_out"), &l);
    d.bf16_masters = true;
    CHECK(tern_train(&d, &err) == TERN_ERR_ARGUMENT);
    CHECK_MSG(strstr(err.message, "an adapter stays in floats"), "%s", err.message);
}

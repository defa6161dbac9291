// Full training of published models: all of a model's weights, whatever its type and format.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "tests/support/harness.h"
#include "tests/support/lora_fixture.h"
#include "train/trainer.h"

static tern_train_desc tuning(const char *base, const char *data, const char *out, losses *l) {
    tern_train_desc d = small_run(base, data, out, l);
    d.lora_rank = 0;
    d.rate = 2e-3f;
    d.n_steps = d.checkpoint_every = 10;
    return d;
}

// A run of 10 steps, and its last checkpoint.
static bool tune(const base_kind *k, const char *name, tern_train_desc *d, losses *l, char *last) {
    static char base[300], data[300], out[300];
    tern_error err;
    snprintf(data, sizeof data, "%s", test_tmp("tune_data"));
    snprintf(out, sizeof out, "%s", test_tmp(name));
    if (!make_base(k, base, sizeof base) || !make_data(base, k->folder, data)) return false;
    *d = tuning(base, data, out, l);
    snprintf(last, 400, "%s/step-00000010.gguf", out);
    tern_status status = tern_train(d, &err);
    CHECK_MSG(status == TERN_OK, "%s: %s", k->name, err.message);
    return status == TERN_OK;
}

static void check_opens(const char *path) {
    tern_model *m;
    tern_error err;
    bool ok = tern_model_open(&m, path, &(tern_model_desc){.n_threads = 1}, &err) == TERN_OK;
    CHECK_MSG(ok, "%s: %s", path, err.message);
    if (ok) tern_model_close(m);
}

// The first loss is that of an adapter that changes nothing yet.
TEST(tuning_begins_with_models_of_any_type_and_format) {
    for (size_t i = 0; i < N_KINDS; i++) {
        char last[400], folder[300];
        tern_error err;
        tern_train_desc d;
        losses l, adapter;
        snprintf(folder, sizeof folder, "tune_kind_%zu", i);
        if (!tune(&kinds[i], folder, &d, &l, last)) continue;
        double first = l.first_valid, end = l.last_valid;
        d.on_event = take_losses;
        d.user = &adapter;
        adapter = (losses){0};
        d.lora_rank = 4;
        d.n_steps = 1;
        snprintf(folder, sizeof folder, "tune_adapter_%zu", i);
        d.out = test_tmp(folder);
        CHECK_MSG(tern_train(&d, &err) == TERN_OK, "%s: %s", kinds[i].name, err.message);
        CHECK_MSG(fabs(first - adapter.first_valid) < 2e-3 * first && end < 0.9 * first,
                  "%s: %.7g to %g, beside an adapter %.7g", kinds[i].name, first, end,
                  adapter.first_valid);
        check_opens(last);
        snprintf(folder, sizeof folder, "%s", test_tmp("tune_folder"));
        tern_status status = tern_convert(last, folder, &(tern_convert_desc){0}, &err);
        CHECK_MSG(status == TERN_OK, "%s: %s", kinds[i].name, err.message);
    }
}

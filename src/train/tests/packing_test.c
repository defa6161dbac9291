// Documents packed into windows are learnt as if each were alone.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/hash.h"
#include "tests/library/webgpu/gpu_fixture.h"
#include "tests/support/train_fixture.h"

enum { LENGTH = 64 };

// Texts of many lengths, some longer than a window. leads: with a tokenizer whose end token begins
// texts; otherwise it has another token for that, which the shards have too.
static bool make_lengths(char *folder, size_t size, bool leads) {
    tern_error err = {0};
    char text[400], tokenizer[400], path[500];
    snprintf(folder, size, "%s%d", test_tmp("packing_data"), leads);
    snprintf(text, sizeof text, "%s", test_tmp("packing.txt"));
    snprintf(tokenizer, sizeof tokenizer, "%s%d", test_tmp("packing_tok"), leads);
    FILE *f = fopen(text, "w");
    if (!f) return false;
    for (uint64_t i = 0; i < 60; i++) {
        for (uint64_t k = 0; k < (i % 9 == 8 ? 24 : tern_mix64(i) % 5); k++)
            fprintf(f, "the %d hen ", (int)(tern_mix64(i * 64 + k) % 10));
        fprintf(f, "%d<|endoftext|>", (int)i);
    }
    fclose(f);
    const char *source = text;
    if (leads) {
        tern_data_tokenizer_desc learn = {.source = {.paths = &source, .n_paths = 1},
                                          .n_vocab = 270};
        strcat(tokenizer, ".json");
        if (tern_data_tokenizer(tokenizer, &learn, NULL, &err) != TERN_OK) return false;
    } else {
        tern_strbuf json = {0};
        test_folder(tokenizer);
        small_byte_level(&json, SMALL_LLAMA3, false);
        snprintf(path, sizeof path, "%s/tokenizer.json", tokenizer);
        test_write(path, json.ptr, json.len);
        tern_strbuf_free(&json);
    }
    tern_data_build_desc build = {.source = {.paths = &source, .n_paths = 1},
                                  .tokenizer = tokenizer,
                                  .end = leads ? NULL : "<end>",
                                  .valid = 0.2,
                                  .n_threads = 1};
    bool ok = tern_data_build(folder, &build, NULL, &err) == TERN_OK;
    CHECK_MSG(ok, "%s", err.message);
    return ok;
}

static int32_t count_windows(const char *data, tern_packing packing, bool leads) {
    tern_token_set_desc desc = {.seq_len = LENGTH, .packing = packing};
    tern_token_set *set = NULL;
    tern_error err = {0};
    bool ok = tern_token_set_open_folder(&set, data, "train", &desc, &err) == TERN_OK &&
              tern_token_set_pack(set, leads, &err) == TERN_OK;
    CHECK_MSG(ok, "%s", err.message);
    uint64_t n = ok ? tern_token_set_n_sequences(set) : 1;
    tern_token_set_close(set);
    return (int32_t)n;
}

typedef struct run {
    losses l;
    tern_train_info info;
    char out[400], checkpoint[450];
} run;

static bool take_event(void *user, const tern_train_event *e) {
    run *r = user;
    return take_losses(&r->l, e);
}
static void take_info(void *user, const tern_train_info *info) {
    run *r = user;
    r->info = *info;
}

// A step that has each window once, computed one by one, or on a GPU together.
static tern_status train_once(run *r, const char *data, tern_packing packing, bool leads,
                              const char *device, tern_error *err) {
    int32_t n = count_windows(data, packing, leads);
    static int n_runs;
    snprintf(r->out, sizeof r->out, "%s%d", test_tmp("packing_out"), n_runs++);
    snprintf(r->checkpoint, sizeof r->checkpoint, "%s/step-00000001.gguf", r->out);
    tern_train_desc d = small_run(data, r->out, &r->l);
    d.recipe = TERN_RECIPE_LLAMA;
    d.packing = packing;
    d.seq_len = LENGTH;
    d.batch_tokens = n * LENGTH;
    d.micro_tokens = strcmp(device, "cpu") == 0 ? LENGTH : d.batch_tokens;
    d.n_steps = 1;
    d.log_every = d.valid_every = d.checkpoint_every = 1;
    d.clip = -1;
    d.seed = 9;
    d.device = device;
    d.webgpu = gpu_webgpu(NULL);
    d.on_event = take_event;
    d.on_begin = take_info;
    d.user = r;
    return tern_train(&d, err);
}

// The gradients, by the first moments that they leave behind: the greatest relative L2 distance of
// a weight's.
static double compare_gradients(const char *a, const char *b) {
    tern_file *files[2];
    tern_error err = {0};
    double worst = 0;
    int n_compared = 0;
    if (tern_file_open(&files[0], a, &err) != TERN_OK) return 1;
    if (tern_file_open(&files[1], b, &err) != TERN_OK) return 1;
    for (size_t i = 0; i < files[0]->n_tensors; i++) {
        const tern_tensor *x = &files[0]->tensors[i], *y;
        static float values[2][1 << 18];
        if (strncmp(x->name, "adam.m.", 7) != 0) continue;
        y = tern_file_tensor(files[1], x->name);
        size_t n = (size_t)(x->ne[0] * x->ne[1]);
        bool ok = y && n <= 1 << 18 && tern_tensor_decode(x, values[0], &err) == TERN_OK &&
                  tern_tensor_decode(y, values[1], &err) == TERN_OK;
        CHECK_MSG(ok, "%s", x->name);
        double difference = 0, size = 0;
        for (size_t k = 0; ok && k < n; k++) {
            double d = (double)values[0][k] - (double)values[1][k];
            difference += d * d;
            size += (double)values[0][k] * (double)values[0][k];
        }
        if (sqrt(difference / size) > worst) worst = sqrt(difference / size);
        n_compared++;
    }
    CHECK(n_compared > 15 && worst > 0);
    tern_file_close(files[0]);
    tern_file_close(files[1]);
    return worst;
}

// Fails if packed documents see each other, if positions go on from one to the next, and if
// padding is scored.
TEST(training_on_packed_documents_is_training_on_each) {
    for (int leads = 0; leads < 2; leads++) {
        char data[400];
        tern_error err;
        static run alone, packed;
        if (!make_lengths(data, sizeof data, leads)) return;
        REQUIRE_OK(train_once(&alone, data, TERN_PACKING_NONE, leads, "cpu", &err), err);
        REQUIRE_OK(train_once(&packed, data, TERN_PACKING_BFD, leads, "cpu", &err), err);
        CHECK_MSG(packed.info.n_windows * 3 < alone.info.n_windows * 2, "%llu windows of %llu",
                  (unsigned long long)packed.info.n_windows,
                  (unsigned long long)alone.info.n_windows);
        CHECK(packed.info.n_truncated == alone.info.n_truncated && alone.info.n_truncated > 0);
        CHECK(packed.info.n_padding < alone.info.n_padding / 4);
        CHECK_MSG(fabs(packed.l.last / alone.l.last - 1) < 1e-6, "loss %.9g, %.9g", packed.l.last,
                  alone.l.last);
        CHECK_MSG(fabs(packed.l.valid / alone.l.valid - 1) < 1e-5, "held out %.9g, %.9g",
                  packed.l.valid, alone.l.valid);
        double worst = compare_gradients(alone.checkpoint, packed.checkpoint);
        CHECK_MSG(worst < 5e-6, "leads %d: gradients differ by %g", leads, worst);
    }
}

TEST(webgpu_trains_on_packed_documents_as_on_each) {
    char data[400];
    tern_error err;
    static run alone, packed;
    if (!make_lengths(data, sizeof data, true)) return;
    REQUIRE_OK(train_once(&alone, data, TERN_PACKING_NONE, true, "cpu", &err), err);
    if (train_once(&packed, data, TERN_PACKING_BFD, true, "webgpu", &err) != TERN_OK) {
        if (!gpu_is_absent(err.message)) CHECK_MSG(false, "%s", err.message);
        return;
    }
    CHECK_MSG(fabs(packed.l.last / alone.l.last - 1) < 2e-5, "loss %.9g, %.9g", packed.l.last,
              alone.l.last);
    double worst = compare_gradients(alone.checkpoint, packed.checkpoint);
    CHECK_MSG(worst < 2e-5, "gradients differ by %g", worst);
}

// ---- Against a session --------------------------------------------------------------------------

// Adds the losses of a document's tokens; ids: from its first input on.
static void add_losses(tern_session *s, size_t n_vocab, const int32_t *ids, size_t n_rows,
                       double *sum, double *n_scored) {
    static float logits[LENGTH * 512];
    tern_error err = {0};
    tern_session_reset(s);
    REQUIRE(n_vocab <= 512);
    REQUIRE_OK(tern_session_logits(s, ids, n_rows, logits, &err), err);
    for (size_t i = 0; i < n_rows; i++) {
        double total = 0;
        for (size_t k = 0; k < n_vocab; k++) total += exp((double)logits[i * n_vocab + k]);
        *sum += log(total) - (double)logits[i * n_vocab + (size_t)ids[i + 1]];
    }
    *n_scored += (double)n_rows;
}

// The mean over the held-out documents, each in a session of its own.
static double session_loss(const char *model, const char *data, bool leads) {
    tern_error err = {0};
    tern_model *m = NULL;
    tern_session *s = NULL;
    tern_shard *shard = NULL;
    tern_model_info info = {0};
    char path[500];
    double sum = 0, n_scored = 0;
    snprintf(path, sizeof path, "%s/valid-00000.tern", data);
    bool ok =
        tern_model_open(&m, model, &(tern_model_desc){.n_threads = 1}, &err) == TERN_OK &&
        tern_session_open(&s, m, &(tern_session_desc){.kv_type = TERN_KV_F32}, &err) == TERN_OK &&
        tern_shard_open(&shard, path, &err) == TERN_OK;
    CHECK_MSG(ok, "%s", err.message);
    if (ok) tern_model_get_info(m, &info);
    for (uint64_t d = 0; ok && d < tern_shard_get_info(shard)->n_documents; d++) {
        int32_t ids[LENGTH + 1] = {tern_shard_get_info(shard)->end_id};
        uint64_t first = tern_shard_document(shard, d),
                 n = tern_shard_document(shard, d + 1) - first;
        if (n > (uint64_t)(LENGTH + 1 - leads)) n = (uint64_t)(LENGTH + 1 - leads);
        ok = tern_shard_read(shard, first, n, ids + leads, &err) == TERN_OK;
        add_losses(s, (size_t)info.n_vocab, ids, (size_t)n - !leads, &sum, &n_scored);
    }
    if (shard) tern_shard_close(shard);
    tern_session_close(s);
    tern_model_close(m);
    return sum / n_scored;
}

// Fails with padding that is scored.
TEST(training_with_a_document_for_each_window_is_what_a_session_computes) {
    for (int leads = 0; leads < 2; leads++) {
        char data[400];
        tern_error err;
        static run r;
        if (!make_lengths(data, sizeof data, leads)) return;
        REQUIRE_OK(train_once(&r, data, TERN_PACKING_NONE, leads, "cpu", &err), err);
        double loss = session_loss(r.checkpoint, data, leads);
        CHECK_MSG(fabs(loss / r.l.valid - 1) < 1e-5, "leads %d: %.9g, of a session %.9g", leads,
                  r.l.valid, loss);
    }
}

// ---- What a run is ------------------------------------------------------------------------------

TEST(training_does_not_resume_with_another_packing) {
    char data[400];
    tern_error err;
    losses l;
    if (!make_lengths(data, sizeof data, true)) return;
    for (int packing = TERN_PACKING_WRAPPED; packing <= TERN_PACKING_NONE; packing++) {
        tern_train_desc d = small_run(data, test_tmp("packing_resumed"), &l);
        d.n_steps = 1;
        d.packing = (tern_packing)packing;
        d.resume = packing > 0;
        tern_status status = tern_train(&d, &err);
        CHECK_MSG(status == (packing ? TERN_ERR_ARGUMENT : TERN_OK), "%s", err.message);
        const char *words = packing == TERN_PACKING_BFD ? ", bfd here" : ", none here";
        if (packing) CHECK_MSG(strstr(err.message, words), "%s", err.message);
    }
}

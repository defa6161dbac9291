// Training has the losses that a session has: of adapters, of the base before the first step, and
// of the base with the adapter after the last; of matrices that are rounded in every step, of the
// file that has them so.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "formats/shard/shard.h"
#include "tasks/tasks.h"
#include "tests/support/blobs.h"
#include "tests/library/webgpu/gpu_fixture.h"
#include "tests/support/lora_fixture.h"
#include "train/trainer.h"

static double loss_of_rows(tern_session *s, int32_t n_vocab, const int32_t *ids, int n,
                           const int32_t *targets, double *n_scored, tern_error *err) {
    static float logits[SEQ_LEN * TINY_N_VOCAB];
    double sum = 0;
    tern_session_reset(s);
    if (tern_session_logits(s, ids, (size_t)n, logits, err) != TERN_OK) return NAN;
    for (int i = 0; i < n; i++) {
        const float *row = logits + (size_t)i * (size_t)n_vocab;
        double total = 0;
        for (int k = 0; k < n_vocab; k++) total += exp((double)row[k]);
        if (targets[i] < 0) continue;
        sum += log(total) - (double)row[targets[i]];
        *n_scored += 1;
    }
    return sum;
}

// Mean over the first 1024 tokens of the held-out text, document by document. The tiny model begins
// texts with the token that ends them; the folder's tokenizer has a separate one for that.
// begin: the token that texts begin with; -1: as the shards say.
static double session_loss_from(const char *model, int32_t begin, const char *lora,
                                const char *data) {
    tern_error err = {0};
    tern_model *m = NULL;
    tern_session *s = NULL;
    tern_token_set *set = NULL;
    tern_lora adapter = {.path = lora, .scale = 1};
    tern_model_desc desc = {.loras = &adapter, .n_loras = lora != NULL, .n_threads = 1};
    tern_token_set_desc sd = {.seq_len = SEQ_LEN, .in_order = true};
    tern_model_info info = {0};
    double sum = 0, n_scored = 0;
    bool ok =
        tern_model_open(&m, model, &desc, &err) == TERN_OK &&
        tern_session_open(&s, m, &(tern_session_desc){.kv_type = TERN_KV_F32}, &err) == TERN_OK &&
        tern_token_set_open_folder(&set, data, "valid", &sd, &err) == TERN_OK && set;
    if (ok) tern_model_get_info(m, &info);
    ok = ok && info.n_vocab <= TINY_N_VOCAB;
    for (uint64_t i = 0; ok && i < tern_token_set_n_sequences(set) && i < 1024 / SEQ_LEN; i++) {
        int32_t ids[SEQ_LEN + 1], targets[SEQ_LEN];
        uint8_t starts[SEQ_LEN + 1];
        ok = tern_token_set_sequence(set, 0, i, ids, starts, &err) == TERN_OK;
        for (int t = 0; t < SEQ_LEN; t++) {
            targets[t] = begin < 0 && starts[t + 1] ? -1 : ids[t + 1];
            if (begin >= 0) starts[t] = ids[t] == begin;
        }
        for (int first = 0, last; ok && first < SEQ_LEN; first = last) {
            for (last = first + 1; last < SEQ_LEN && !starts[last];) last++;
            sum += loss_of_rows(s, info.n_vocab, ids + first, last - first, targets + first,
                                &n_scored, &err);
        }
    }
    CHECK_MSG(ok, "%s", err.message);
    tern_token_set_close(set);
    tern_session_close(s);
    tern_model_close(m);
    return sum / n_scored;
}

static double session_loss(const char *model, bool is_folder, const char *lora, const char *data) {
    return session_loss_from(model, is_folder ? -1 : 0, lora, data);
}

TEST(lora_training_is_what_a_session_computes) {
    char base[300], data[300], out[300], adapter[400];
    tern_error err;
    losses l;
    for (size_t i = 0; i < N_KINDS; i++) {
        if (!make_base(&kinds[i], base, sizeof base)) return;
        snprintf(data, sizeof data, "%s", test_tmp("lora_train_data"));
        snprintf(out, sizeof out, "%s%zu", test_tmp("lora_train_out"), i);
        if (!make_data(base, kinds[i].folder, data)) return;
        tern_train_desc d = small_run(base, data, out, &l);
        REQUIRE_OK(tern_train(&d, &err), err);
        double first = session_loss(base, kinds[i].folder, NULL, data);
        snprintf(adapter, sizeof adapter, "%s/step-00000040.gguf", out);
        double last = session_loss(base, kinds[i].folder, adapter, data);
        CHECK_MSG(fabs(l.first_valid / first - 1) < 2e-3, "%s: %g, a session's %g", kinds[i].name,
                  l.first_valid, first);
        CHECK_MSG(fabs(l.last_valid / last - 1) < 5e-3 && last < 0.6 * first,
                  "%s: %g, a session's %g, from %g", kinds[i].name, l.last_valid, last, first);
    }
}

// For a Falcon-H1: its folder has factors besides the weights, which the GGUF has folded in.
static void check_other_world(const char *other, const char *adapter) {
    tern_error err = {0};
    tern_model *m;
    const tern_lora lora = {.path = adapter, .scale = 1};
    const tern_model_desc desc = {.loras = &lora, .n_loras = 1, .n_threads = 1};
    CHECK(tern_model_open(&m, other, &desc, &err) == TERN_ERR_UNSUPPORTED);
    CHECK_MSG(strstr(err.message, "has factors in its weights"), "%s", err.message);
}

// Families with state spaces, experts or eyes, and Gemma 4, from the folder and from the GGUF that
// it becomes. Seen to fail: an adapter for pieces of a matrix, which no session loads; from a
// GGUF's rates, a column there, only the first was read.
TEST(lora_training_of_the_families_is_what_a_session_computes) {
    static const char *const from[] = {"tests/oracles/granitehybrid", "tests/oracles/falcon_h1",
                                       "tests/oracles/gemma4",        "tests/oracles/qwen3moe",
                                       "tests/oracles/lfm2moe",       "tests/oracles/qwen3vl_sees"};
    for (int i = 0; i < 12; i++) {
        char folder[300], data[300], out[300], adapter[400], gguf[300];
        tern_error err = {0};
        losses l;
        if (!copy_oracle(from[i / 2], folder, sizeof folder)) return;
        snprintf(gguf, sizeof gguf, "%s", test_tmp("lora_family.gguf"));
        REQUIRE_OK(tern_convert(folder, gguf, NULL, &err), err);
        const char *base = i % 2 ? gguf : folder;
        snprintf(data, sizeof data, "%s", test_tmp("lora_family_data"));
        snprintf(out, sizeof out, "%s%d", test_tmp("lora_family_out"), i);
        if (!make_animals(base, data)) return;
        tern_train_desc d = small_run(base, data, out, &l);
        REQUIRE_OK(tern_train(&d, &err), err);
        double first = session_loss_from(base, -1, NULL, data);
        snprintf(adapter, sizeof adapter, "%s/step-00000040.gguf", out);
        double last = session_loss_from(base, -1, adapter, data);
        CHECK_MSG(fabs(l.first_valid / first - 1) < 2e-3, "%s: %g, a session's %g", base,
                  l.first_valid, first);
        CHECK_MSG(fabs(l.last_valid / last - 1) < 5e-3 && last < 0.95 * first,
                  "%s: %g, a session's %g, from %g", base, l.last_valid, last, first);
        if (i / 2 == 1) check_other_world(i % 2 ? folder : gguf, adapter);
        d.lora_targets = i < 2 ? "gate,up" : "q,v";
        snprintf(out, sizeof out, "%s%d", test_tmp("lora_family_some"), i);
        tern_status status = tern_train(&d, &err);
        CHECK_MSG((status == TERN_OK) == (i >= 2), "%s", err.message);
        CHECK(i >= 2 || strstr(err.message, "no matrix of 'gate,up' that can have an adapter"));
    }
}

// All weights of such models: a session computes the loss that was trained, with the GGUF of it.
// Seen to fail: with experts that a checkpoint has as one matrix; with RoPE's factors that it
// lacks, and that are compiled before they are read; without the factors of a Falcon-H1's folder.
TEST(tuning_of_the_families_is_what_a_session_computes) {
    static const char *const from[] = {"tests/oracles/granitehybrid", "tests/oracles/falcon_h1",
                                       "tests/oracles/gemma4",        "tests/oracles/qwen3moe",
                                       "tests/oracles/lfm2moe",       "tests/oracles/llama_scaled",
                                       "tests/oracles/phi3"};
    for (int i = 0; i < 14; i++) {
        char folder[300], data[300], out[300], last[400], gguf[300];
        tern_error err = {0};
        losses l;
        if (!copy_oracle(from[i / 2], folder, sizeof folder)) return;
        snprintf(gguf, sizeof gguf, "%s", test_tmp("tune_family.gguf"));
        REQUIRE_OK(tern_convert(folder, gguf, NULL, &err), err);
        const char *base = i % 2 ? gguf : folder;
        snprintf(data, sizeof data, "%s", test_tmp("tune_family_data"));
        snprintf(out, sizeof out, "%s%d", test_tmp("tune_family_out"), i);
        if (!make_animals(base, data)) return;
        tern_train_desc d = small_run(base, data, out, &l);
        d.lora_rank = 0;
        d.rate = 1e-3f;
        d.bf16_masters = i % 2;
        REQUIRE_OK(tern_train(&d, &err), err);
        snprintf(last, sizeof last, "%s/step-00000040.gguf", out);
        const double first = session_loss_from(base, -1, NULL, data);
        const double end = session_loss_from(last, -1, NULL, data);
        CHECK_MSG(fabs(l.first_valid / first - 1) < 1e-5, "%s: %g, a session's %g", base,
                  l.first_valid, first);
        CHECK_MSG(fabs(l.last_valid / end - 1) < 1e-5 && end < 0.8 * first,
                  "%s: %g, a session's %g, from %g", base, l.last_valid, end, first);
    }
}

// ---- The base stays as it is -------------------------------------------------------------------

// As for codes that a device has no form for.
static void decode_base(tern_trainer *t) {
    tern_graph *graphs[] = {&t->train.graph, &t->score.graph};
    for (size_t i = 0; i < t->n_slots; i++) t->slots[i].codes_bytes = 0;
    for (int i = 0; i < 2; i++)
        for (size_t v = 0; v < graphs[i]->n_values; v++) graphs[i]->values[v].is_coded = false;
}

typedef struct result {
    uint32_t crc;  // of the loss and all gradients
    double floats; // numbers of the base that are kept as floats, of all
} result;

static uint32_t add_array(const tern_trainer *t, const tern_slot *s, uint32_t crc) {
    const uint64_t n = s->n_rows * s->n_cols;
    float *data = tern_alloc_array(TERN_MEM_MISC, n, sizeof *data);
    tern_error err = {0};
    CHECK_MSG(data && t->backend->read(s->array, 0, n, data, &err) == TERN_OK, "%s", err.message);
    if (data) crc = tern_crc32(crc, data, n * sizeof *data);
    tern_free(data);
    return crc;
}

// B is not zero.
static tern_status set_adapters(const tern_trainer *t, tern_error *err) {
    float data[512 * 8];
    for (size_t i = 0; i < t->n_slots; i++) {
        const tern_slot *s = &t->slots[i];
        const uint64_t n = s->n_rows * s->n_cols;
        if (!s->is_weight || !s->is_kept) continue;
        if (n > sizeof data / sizeof *data) return tern_fail_memory(err, n);
        tern_trainer_normal(t, s, 0.02f, data);
        TERN_TRY(t->backend->write(s->array, 0, n, data, err));
    }
    return TERN_OK;
}

// False: there is no such device.
static bool run_base(const tern_train_desc *d, bool decoded, result *out) {
    int32_t ids[SEQ_LEN], targets[SEQ_LEN], starts[SEQ_LEN];
    tern_error err = {0};
    tern_trainer *t;
    uint64_t n_floats = 0, n_all = 0;
    bool any_matrix = false;
    for (int i = 0; i < SEQ_LEN; i++) {
        ids[i] = (i * 31 + i / 3) % 40;
        targets[i] = i % 7 == 3 ? -1 : i % 40;
        starts[i] = i < 20 ? 0 : 20;
    }
    const tern_train_batch b = {.n_tokens = SEQ_LEN,
                                .ids = ids,
                                .targets = targets,
                                .starts = starts,
                                .loss_scale = 1.0f / SEQ_LEN};
    if (tern_trainer_lay_out(&t, d, &err) != TERN_OK) {
        CHECK_MSG(gpu_is_absent(err.message), "%s", err.message);
        return false;
    }
    if (decoded) decode_base(t);
    tern_status status = tern_trainer_take(t, &err);
    if (status == TERN_OK) status = tern_trainer_init_weights(t, &err);
    if (status == TERN_OK) status = set_adapters(t, &err);
    if (status == TERN_OK) status = t->backend->run(t->train.program, &b, &err);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    for (size_t i = 0; status == TERN_OK && i < t->n_slots; i++) {
        const tern_slot *s = &t->slots[i];
        const uint64_t n = s->n_rows * s->n_cols;
        if (!s->is_weight) out->crc = add_array(t, s, out->crc);
        any_matrix |= s->is_decoded;
        if (s->is_weight && !s->is_kept) n_all += n;
        if (s->is_weight && !s->is_kept && !s->codes_bytes) n_floats += n;
    }
    if (!decoded) CHECK((t->memory.decoded > 0) == any_matrix);
    out->floats = (double)n_floats / (double)n_all;
    tern_trainer_close(t);
    return status == TERN_OK;
}

// False: there is no such device.
static bool check_bits(const tern_train_desc *d, const char *name, double floats_max) {
    result codes = {0}, floats = {0};
    if (!run_base(d, false, &codes) || !run_base(d, true, &floats)) return false;
    CHECK_MSG(codes.floats < floats_max && floats.floats == 1, "%s: %g are floats", name,
              codes.floats);
    CHECK_MSG(codes.crc == floats.crc, "%s: other bits than with floats", name);
    return true;
}

static void check_bits_on_cpu(const char *name, const char *base, const char *data) {
    losses l;
    tern_train_desc d = small_run(base, data, test_tmp("lora_codes_out"), &l);
    d.n_threads = 2;
    check_bits(&d, name, 0.1);
}

// Seen to fail: columns of a Llama's folder in its own order; a ternary matrix without its scale;
// an expert's rows from the beginning of all.
static const base_kind more[] = {
    {"Q4_0", {.arch = "llama", .type = TERN_DTYPE_Q4_0, .seed = 90}, false},
    {"Q4_K", {.arch = "qwen3", .type = TERN_DTYPE_Q4_K, .n_embd = 256, .n_ff = 256}, false},
    {"Q6_K",
     {.arch = "llama", .type = TERN_DTYPE_Q6_K, .n_embd = 256, .n_ff = 256, .seed = 91},
     false},
    {"TQ1_0", {.type = TERN_DTYPE_TQ1_0, .n_embd = 256, .n_ff = 256, .seed = 92}, false},
    {"Q2_0", {.arch = "qwen3", .type = TERN_DTYPE_PQ2_0, .n_embd = 128, .n_ff = 128}, false}};
TEST(lora_training_has_the_bits_of_a_decoded_base) {
    char base[300], data[300];
    snprintf(data, sizeof data, "%s", test_tmp("lora_codes_data"));
    for (size_t i = 0; i < N_KINDS + sizeof more / sizeof *more; i++) {
        const base_kind *k = i < N_KINDS ? &kinds[i] : &more[i - N_KINDS];
        if (!make_base(k, base, sizeof base) || !make_data(base, k->folder, data)) return;
        check_bits_on_cpu(k->name, base, data);
    }
    static const char *const experts[] = {"tests/oracles/qwen3moe", "tests/oracles/lfm2moe",
                                          "tests/oracles/gemma4"};
    for (int i = 0; i < 3; i++) {
        if (!copy_oracle(experts[i], base, sizeof base) || !make_animals(base, data)) return;
        check_bits_on_cpu(experts[i], base, data);
    }
}

// With gradient checkpointing, which decodes again. floats_max: what has no form on a GPU, such as
// floats and what folders have in another order of columns.
static bool check_bits_on_gpu(const char *name, const char *base, const char *data,
                              double floats_max) {
    losses l;
    tern_train_desc d = small_run(base, data, test_tmp("lora_codes_out"), &l);
    d.device = "webgpu";
    d.webgpu = gpu_webgpu(NULL);
    d.micro_tokens = d.batch_tokens = SEQ_LEN;
    d.gradient_checkpointing = true;
    return check_bits(&d, name, floats_max);
}

TEST(webgpu_trains_adapters_with_the_bits_of_a_decoded_base) {
    char base[300], data[300];
    snprintf(data, sizeof data, "%s", test_tmp("lora_codes_data"));
    for (size_t i = 0; i < N_KINDS + sizeof more / sizeof *more; i++) {
        const base_kind *k = i < N_KINDS ? &kinds[i] : &more[i - N_KINDS];
        const bool is_short = i == 8 || i == N_KINDS + 1; // BF16 of a folder, Q4_K of a GGUF
        if ((!is_short && !test_is_long()) || (k->folder && k->desc.type == TERN_DTYPE_F32))
            continue;
        if (!make_base(k, base, sizeof base) || !make_data(base, k->folder, data)) return;
        if (!check_bits_on_gpu(k->name, base, data, 0.2)) return;
    }
    if (!test_is_long() || !copy_oracle("tests/oracles/qwen3moe", base, sizeof base)) return;
    if (make_animals(base, data)) check_bits_on_gpu("experts", base, data, 0.2);
}

// ---- Elsewhere ---------------------------------------------------------------------------------

TEST(lora_training_merges_into_float_weights) {
    char base[300], data[300], out[300], adapter[400], merged[300];
    tern_error err;
    losses l;
    if (!make_base(&kinds[4], base, sizeof base)) return;
    snprintf(data, sizeof data, "%s", test_tmp("lora_merge_data"));
    snprintf(out, sizeof out, "%s", test_tmp("lora_merge_out"));
    snprintf(merged, sizeof merged, "%s", test_tmp("lora_merged_trained.gguf"));
    if (!make_data(base, false, data)) return;
    tern_train_desc d = small_run(base, data, out, &l);
    REQUIRE_OK(tern_train(&d, &err), err);
    snprintf(adapter, sizeof adapter, "%s/step-00000040.gguf", out);
    tern_lora lora = {.path = adapter, .scale = 1};
    tern_convert_desc convert = {.loras = &lora, .n_loras = 1, .type = TERN_TYPE_F32};
    REQUIRE_OK(tern_convert(base, merged, &convert, &err), err);
    double beside = session_loss(base, false, adapter, data);
    double inside = session_loss(merged, false, NULL, data);
    CHECK_MSG(fabs(inside / beside - 1) < 1e-4, "beside %g, merged %g", beside, inside);
}

// Rows of queries and keys have another order in a Llama's folder, and a short convolution's parts
// stay where they are. Seen to fail: with the GGUF's order; with alpha / rank in the GGUF.
TEST(lora_training_writes_what_peft_reads) {
    static const struct {
        size_t kind;
        const char *targets;
    } all[] = {{4, "q_proj,k_proj,down_proj"}, {6, "all-linear"}, {11, NULL}};
    char base[300], data[300], out[300], adapter[400], folder[400];
    tern_error err;
    losses l;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const base_kind *kind = &kinds[all[i].kind];
        if (!make_base(kind, base, sizeof base)) return;
        snprintf(data, sizeof data, "%s", test_tmp("lora_peft_data"));
        snprintf(out, sizeof out, "%s%zu", test_tmp("lora_peft_out"), i);
        if (!make_data(base, kind->folder, data)) return;
        tern_train_desc d = small_run(base, data, out, &l);
        d.lora_targets = all[i].targets;
        d.rslora = d.peft = true;
        d.n_steps = 10;
        REQUIRE_OK(tern_train(&d, &err), err);
        snprintf(adapter, sizeof adapter, "%s/step-00000010.gguf", out);
        snprintf(folder, sizeof folder, "%s/peft", out);
        double first = session_loss(base, kind->folder, NULL, data);
        double of_gguf = session_loss(base, kind->folder, adapter, data);
        double of_folder = session_loss(base, kind->folder, folder, data);
        CHECK_MSG(fabs(of_gguf / of_folder - 1) < 1e-6 && of_gguf < 0.95 * first,
                  "%s: %.9g, as a folder %.9g, from %g", kind->name, of_gguf, of_folder, first);
    }
    char *text = test_read(strcat(folder, "/adapter_config.json"), &(size_t){0});
    CHECK(text && strstr(text, "\"use_rslora\": true") && strstr(text, "\"in_proj\"") == NULL);
    free(text);
}

// ---- Quantization-aware training ---------------------------------------------------------------

#define WIDE                                                                                       \
    { "Llama", {.arch = "llama", .seed = 90, .n_layers = 1, .n_embd = 256, .n_ff = 256}, false }

// Seen to fail: with inputs that are not rounded, or rounded by whole rows; with files whose scales
// come from the floats behind the codes by another rule; with rotated weights whose inputs are not.
TEST(qat_trains_what_a_session_computes) {
    enum { N_ROTATED = 2 };
    static const struct {
        const char *type;
        base_kind base;
    } runs[] = {{"pq2_0", WIDE},
                {"ptq1_0", {"Qwen3.5", {.arch = "qwen35", .seed = 94}, false}},
                {"q2_0", WIDE},
                {"pq2_0", WIDE},
                {"ptq1_0", WIDE},
                {"tq1_0", WIDE},
                {"tq2_0", WIDE},
                {"q1_0", WIDE},
                {"q4_0", WIDE},
                {"q8_0", WIDE},
                {"q2_0", {"Qwen3", {.arch = "qwen3", .seed = 91}, false}},
                {"q2_0", {"Gemma 3", {.arch = "gemma3", .seed = 92}, false}},
                {"q2_0", {"LFM2", {.arch = "lfm2", .seed = 93}, false}},
                {"q2_0", {"Qwen3.5", {.arch = "qwen35", .seed = 94}, false}}};
    char base[300], data[300], out[300], last[400];
    tern_error err;
    losses l;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char name[40];
        snprintf(name, sizeof name, "qat_out%zu", i);
        if (!make_base(&runs[i].base, base, sizeof base)) return;
        snprintf(data, sizeof data, "%s", test_tmp("qat_data"));
        snprintf(out, sizeof out, "%s", test_tmp(name));
        if (!make_data(base, false, data)) return;
        tern_train_desc d = small_run(base, data, out, &l);
        if (i < N_ROTATED) d.init = test_tmp("qat_rotated.gguf");
        if (i < N_ROTATED) REQUIRE_OK(tern_convert_rotated(base, d.init, NULL, 7, &err), err);
        d.lora_rank = 0;
        d.rate = 2e-3f;
        d.n_steps = d.checkpoint_every = d.valid_every = 10;
        d.qat = runs[i].type;
        REQUIRE_OK(tern_train(&d, &err), err);
        snprintf(last, sizeof last, "%s/step-00000010.gguf", out);
        double loss = session_loss(last, false, NULL, data);
        const double bound = i == 0 ? 1e-5 : 5e-4;
        CHECK_MSG(fabs(l.last_valid / loss - 1) < bound && loss < 0.8 * l.first_valid,
                  "%s of %s: %.8g, a session's %.8g, from %g", runs[i].type, runs[i].base.name,
                  l.last_valid, loss, l.first_valid);
    }
}

// ---- DoRA --------------------------------------------------------------------------------------

// The magnitudes of a checkpoint.
static double sum_of_magnitudes(const char *path) {
    tern_file *file;
    tern_error err = {0};
    double sum = 0;
    if (tern_file_open(&file, path, &err) != TERN_OK) return NAN;
    for (size_t i = 0; i < file->n_tensors; i++) {
        const tern_tensor *t = &file->tensors[i];
        if (!tern_name_ends(t->name, ".lora_m")) continue;
        CHECK(t->n_dims == 1 && t->type == TERN_DTYPE_F32);
        const float *m = test_bytes(&t->data);
        for (uint64_t k = 0; k < t->ne[0]; k++) sum += (double)m[k];
    }
    tern_file_close(file);
    return sum;
}

// It begins with the base's loss, to the bit; what it writes is what it trained, as a GGUF, as a
// folder of PEFT, and merged. Seen to fail: lengths of the rows' masters, which no product reads;
// magnitudes in the folder's order in a GGUF, and the other way round; without s in the lengths.
TEST(dora_training_is_what_a_session_computes) {
    static const size_t some[] = {0, 2, 3, 4, 6, 7, 10}; // ternary ones, masters, floats, folders
    char base[300], data[300], out[300], adapter[400], folder[400], merged[300];
    tern_error err = {0};
    losses l, plain;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        const base_kind *kind = &kinds[some[i]];
        if (!make_base(kind, base, sizeof base)) return;
        snprintf(data, sizeof data, "%s", test_tmp("dora_train_data"));
        snprintf(out, sizeof out, "%s%zu", test_tmp("dora_train_out"), i);
        if (!make_data(base, kind->folder, data)) return;
        snprintf(folder, sizeof folder, "%s%zu", test_tmp("dora_train_plain"), i);
        tern_train_desc d = small_run(base, data, folder, &plain);
        d.n_steps = 1;
        REQUIRE_OK(tern_train(&d, &err), err);
        d = small_run(base, data, out, &l);
        d.dora = d.peft = true;
        REQUIRE_OK(tern_train(&d, &err), err);
        CHECK_MSG(l.first_valid == plain.first_valid, "%s: %.9g and %.9g", kind->name,
                  l.first_valid, plain.first_valid);
        snprintf(adapter, sizeof adapter, "%s/step-00000040.gguf", out);
        snprintf(folder, sizeof folder, "%s/peft", out);
        double last = session_loss(base, kind->folder, adapter, data);
        double of_folder = session_loss(base, kind->folder, folder, data);
        CHECK_MSG(fabs(l.last_valid / last - 1) < 5e-3 && last < 0.6 * l.first_valid,
                  "%s: %g, a session's %g, from %g", kind->name, l.last_valid, last, l.first_valid);
        CHECK_MSG(fabs(of_folder / last - 1) < 1e-6, "%s: %.9g, as a folder %.9g", kind->name, last,
                  of_folder);
        if (some[i] != 4) continue;
        snprintf(merged, sizeof merged, "%s", test_tmp("dora_merged_trained.gguf"));
        const tern_lora lora = {.path = adapter, .scale = 1};
        const tern_convert_desc convert = {.loras = &lora, .n_loras = 1, .type = TERN_TYPE_F32};
        REQUIRE_OK(tern_convert(base, merged, &convert, &err), err);
        double inside = session_loss(merged, false, NULL, data);
        CHECK_MSG(fabs(inside / last - 1) < 1e-4, "beside %g, merged %g", last, inside);
        char first[400];
        snprintf(first, sizeof first, "%s/step-00000030.gguf", out);
        double moved = sum_of_magnitudes(adapter) - sum_of_magnitudes(first);
        CHECK_MSG(fabs(moved) > 1e-4, "magnitudes moved by %g", moved);
    }
    char *text = test_read(strcat(folder, "/adapter_config.json"), &(size_t){0});
    CHECK(text && strstr(text, "\"use_dora\": true"));
    free(text);
}

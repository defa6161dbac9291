// Models where the system cannot map files: the same bits, never all of a model in memory beside
// what the device keeps of it, and one clear line for a file that fails or changes. The whole suite
// runs so, too, with TERN_TEST_UNMAPPED=1.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/os/os_file.h"
#include "tests/support/blobs.h"
#include "formats/formats.h"
#include "tests/library/webgpu/gpu_fixture.h"
#include "runtime/runtime.h"
#include "tern_tools.h"
#include "tests/support/tiny_model.h"

#define MB ((size_t)1 << 20)

// ---- The same bits -----------------------------------------------------------------------------

// Scores after each token of a text, or an encoder's vector; to be freed.
static tern_array results_of(const char *path, const tern_model_desc *desc) {
    tern_error err = {0};
    tern_model *m = NULL;
    int32_t ids[24];
    tern_array in = {.name = "ids", .type = TERN_ARRAY_I32, .n_dims = 1, .dims = {24}, .data = ids};
    tern_array out = {.name = "logits"};
    CHECK_MSG(tern_model_open(&m, path, desc, &err) == TERN_OK, "%s", err.message);
    if (!m) return out;
    for (int i = 0; i < 24; i++) ids[i] = (i * 37 + 5) % m->info.n_vocab;
    if (tern_graph_find(&m->graphs[0].built, "embedding") >= 0) out.name = "embedding";
    const tern_compute_desc d = {.inputs = &in, .n_inputs = 1, .outputs = &out, .n_outputs = 1};
    CHECK_MSG(tern_compute(m, &d, &err) == TERN_OK, "%s: %s", path, err.message);
    tern_model_close(m);
    return out;
}

static size_t n_bytes_of(const tern_array *a) {
    size_t n = sizeof(float);
    for (int i = 0; i < a->n_dims; i++) n *= (size_t)a->dims[i];
    return n;
}

static void check_same(const char *path, const tern_model_desc *desc) {
    bool before = test_map_never(false);
    uint64_t n_reads = tern_blob_n_reads();
    tern_array wanted = results_of(path, desc);
    CHECK_MSG(tern_blob_n_reads() == n_reads, "%s: is read although it could be mapped", path);
    test_map_never(true);
    tern_array found = results_of(path, desc);
    CHECK_MSG(tern_blob_n_reads() > n_reads + 10, "%s: was mapped", path);
    test_map_never(before);
    bool same = wanted.data && found.data && n_bytes_of(&wanted) == n_bytes_of(&found) &&
                memcmp(wanted.data, found.data, n_bytes_of(&wanted)) == 0;
    CHECK_MSG(same, "%s: other bits than mapped", path);
    tern_array_free(&wanted);
    tern_array_free(&found);
}

// Seen to fail: with a table that is let go after it was bound, and with a part that forgets where
// its whole begins in the file.
TEST(unmapped_files_have_the_bits_of_mapped_ones) {
    static const char *const paths[] = {
        "models/stories.gguf",
        "tests/oracles/bitnet_master",
        "tests/oracles/bitnet_packed",
        "tests/oracles/llama",
        "tests/oracles/qwen3",
        "tests/oracles/qwen3/model.gguf",
        "tests/oracles/gemma3",
        "tests/oracles/gemma3/model.gguf",
        "tests/oracles/gemma3_linear",
        "tests/oracles/lfm2",
        "tests/oracles/lfm2/model.gguf",
        "tests/oracles/qwen35",
        "tests/oracles/qwen35/model.gguf",
        "tests/oracles/qwen35_grouped",
        "tests/oracles/embeddinggemma",
        "tests/oracles/embeddinggemma/model.gguf",
        "tests/oracles/gemma4",
        "tests/oracles/gemma4/model.gguf",
        "tests/oracles/granitehybrid",
        "tests/oracles/falcon_h1",
        "tests/oracles/lfm2moe/model.gguf",
    };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) check_same(paths[i], NULL);
}

TEST(unmapped_files_of_every_type_have_the_bits_of_mapped_ones) {
    static const tiny_model_desc tiny[] = {
        {.type = TERN_DTYPE_I2_S, .head_type = TERN_DTYPE_F16, .split_bytes = 160 << 10},
        {.type = TERN_DTYPE_TQ1_0, .n_embd = 256, .n_ff = 512},
        {.type = TERN_DTYPE_TQ2_0, .n_embd = 256, .n_ff = 512, .separate_head = true},
        {.type = TERN_DTYPE_BF16, .head_type = TERN_DTYPE_BF16},
        {.arch = "llama", .type = TERN_DTYPE_F16, .head_type = TERN_DTYPE_F16, .n_vocab = 5000},
        {.arch = "llama", .type = TERN_DTYPE_Q8_0, .head_type = TERN_DTYPE_Q8_0},
        {.arch = "llama", .type = TERN_DTYPE_Q6_K, .n_embd = 256, .n_ff = 512},
    };
    static const tern_model_desc descs[] = {
        {.ternary = TERN_TERNARY_2BIT},
        {.ternary = TERN_TERNARY_1_6BIT, .head = TERN_HEAD_Q8_0},
        {.head = TERN_HEAD_EXACT}};
    for (size_t i = 0; i < sizeof tiny / sizeof *tiny; i++)
        for (size_t k = 0; k < sizeof descs / sizeof *descs; k++) {
            tern_error err = {0};
            const char *path = test_tmp("unmapped.gguf");
            REQUIRE_OK(tiny_model_write(path, &tiny[i], &err), err);
            if (tiny[i].split_bytes) path = test_tmp("unmapped-00001-of-00002.gguf");
            check_same(path, &descs[k]);
        }
}

// ---- How much memory ---------------------------------------------------------------------------

// 60 MB: a table of 41 MB, matrices of 1.5 MB.
static const tiny_model_desc large = {.arch = "llama",
                                      .type = TERN_DTYPE_F16,
                                      .head_type = TERN_DTYPE_F16,
                                      .n_layers = 3,
                                      .n_embd = 512,
                                      .n_ff = 1536,
                                      .n_heads = 8,
                                      .n_kv_heads = 4,
                                      .n_vocab = 40000};

// The heap's peak while the model is opened, above what it was.
static tern_model *open_measured(const char *path, const tern_model_desc *desc, size_t *most,
                                 tern_error *err) {
    tern_model *m = NULL;
    size_t before = tern_mem_get_stats().total_now;
    tern_mem_reset_max();
    tern_model_open(&m, path, desc, err);
    *most = tern_mem_get_stats().total_max - before;
    return m;
}

// Seen to fail: with matrices that are held after they were packed.
TEST(unmapped_model_lies_in_memory_once) {
    const tiny_model_desc ternary = {.n_layers = 4,
                                     .n_embd = 1024,
                                     .n_ff = 6144,
                                     .n_heads = 8,
                                     .n_kv_heads = 4,
                                     .type = TERN_DTYPE_TQ2_0};
    static const struct {
        tern_ternary_layout ternary;
        double share, extra; // of the file's bytes, and MB
    } cases[] = {{TERN_TERNARY_2BIT, 1, 3}, {TERN_TERNARY_1_6BIT, 0.83, 4.5}};
    const char *paths[] = {test_tmp("once_ternary.gguf"), test_tmp("once_float.gguf")};
    tern_error err = {0};
    bool before = test_map_never(true);
    REQUIRE_OK(tiny_model_write(paths[0], &ternary, &err), err);
    REQUIRE_OK(tiny_model_write(paths[1], &large, &err), err);
    for (int i = 0; i < 4; i++) {
        size_t most;
        const tern_model_desc desc = {
            .n_threads = 2, .head = TERN_HEAD_FILE, .n_batch = 16, .ternary = cases[i % 2].ternary};
        tern_model *m = open_measured(paths[i / 2], &desc, &most, &err);
        CHECK_MSG(m != NULL, "%s", err.message);
        if (!m) break;
        double share = i / 2 ? 1 : cases[i % 2].share, size = (double)m->file->tensor_bytes;
        CHECK_MSG((double)most < size * share + cases[i % 2].extra * (double)MB,
                  "%s: %.1f MB for %.1f MB", paths[i / 2], (double)most * 1e-6, size * 1e-6);
        tern_model_close(m);
    }
    test_map_never(before);
}

// And what was sent is the file's, which is read again to compare. Seen to fail: with a table that
// is held whole while it is sent.
TEST(webgpu_unmapped_model_is_never_in_memory) {
    const char *path = test_tmp("never.gguf");
    tern_error err = {0};
    bool before = test_map_never(true);
    size_t most = 0;
    REQUIRE_OK(tiny_model_write(path, &large, &err), err);
    const tern_model_desc desc = {.device = "webgpu", .webgpu = gpu_webgpu(NULL), .n_batch = 16};
    tern_model *m = open_measured(path, &desc, &most, &err);
    if (!m && !gpu_is_absent(err.message)) CHECK_MSG(false, "%s", err.message);
    uint64_t n_reads = tern_blob_n_reads(), n_compared = 0;
    for (size_t w = 0; m && w < m->n_weights; w++) {
        tern_weight_check c;
        const tern_placement *p = m->now;
        CHECK(p->backend->verify(p->device, p->weights[w], &m->sources[w], &c, &err) == TERN_OK);
        CHECK(c.n_wrong == 0 && c.found == c.wanted);
        n_compared += c.n_bytes;
    }
    if (m) {
        uint64_t size = m->file->tensor_bytes;
        CHECK_MSG(size > 55 * MB && most < size / 4, "%.1f MB for %.1f MB", (double)most * 1e-6,
                  (double)size * 1e-6);
        CHECK(n_compared >= size && tern_blob_n_reads() > n_reads + size / (4 * MB));
    }
    tern_model_close(m);
    test_map_never(before);
}

// ---- What fails --------------------------------------------------------------------------------

static tern_status open_and_close(const char *path, const tern_model_desc *desc, tern_error *err) {
    tern_model *m = NULL;
    tern_status status = tern_model_open(&m, path, desc, err);
    tern_model_close(m);
    return status;
}

// Every read fails once, and leaves nothing. Returns how many reads opening takes.
static uint64_t fail_each_read(const char *path, const tern_model_desc *desc) {
    size_t heap = tern_heap_get().heap_now;
    tern_status status = TERN_ERR_IO;
    uint64_t n = 0;
    while (status != TERN_OK && n < 2000) {
        tern_error err = {0};
        tern_blob_fail_read_at(++n);
        status = open_and_close(path, desc, &err);
        tern_blob_fail_read_at(0);
        const char *name = strstr(err.message, tern_path_name(path));
        CHECK_MSG(status == TERN_OK ||
                      (status == TERN_ERR_IO && name && strstr(err.message, "cannot be read: ")),
                  "%s: read %d: status %d: %s", path, (int)n, (int)status, err.message);
        // Named once.
        CHECK_MSG(!name || !strstr(name + 1, tern_path_name(path)), "%s", err.message);
        CHECK_MSG(tern_heap_get().heap_now == heap, "%s: read %d leaks", path, (int)n);
    }
    CHECK(status == TERN_OK);
    return n - 1;
}

TEST(unmapped_files_survive_failing_reads) {
    tern_error err = {0};
    const tern_model_desc one = {.n_threads = 1};
    const char *path = test_tmp("failing_reads.gguf");
    bool before = test_map_never(true);
    REQUIRE_OK(
        tiny_model_write(
            path,
            &(tiny_model_desc){.type = TERN_DTYPE_TQ2_0, .n_embd = 256, .n_ff = 512, .n_layers = 1},
            &err),
        err);
    CHECK(fail_each_read(path, &one) > 12);
    CHECK(fail_each_read("tests/oracles/bitnet_packed", &one) > 20);
    CHECK(fail_each_read("tests/oracles/embeddinggemma", &one) > 30);
    test_map_never(before);
}

// Floats, which are looked through before they are sent, and pieces. Seen to fail: with rows that
// are not closed when a read of theirs fails.
TEST(webgpu_unmapped_files_survive_failing_reads_and_allocations) {
    tern_error err = {0};
    const gpu_play play = {.null = true};
    tern_webgpu_desc webgpu = *gpu_webgpu(&play);
    const tern_model_desc desc = {.device = "webgpu", .n_batch = 8, .webgpu = &webgpu};
    const char *path = test_tmp("failing_gpu.gguf");
    webgpu.group = -1; // there is nothing to try out
    bool before = test_map_never(true);
    REQUIRE_OK(tiny_model_write(path,
                                &(tiny_model_desc){.type = TERN_DTYPE_BF16,
                                                   .n_layers = 1,
                                                   .head_type = TERN_DTYPE_BF16,
                                                   .n_vocab = 20000},
                                &err),
               err);
    tern_status status = open_and_close(path, &desc, &err);
    CHECK_MSG(status == TERN_OK || gpu_is_absent(err.message), "%s", err.message);
    if (status == TERN_OK) CHECK(fail_each_read(path, &desc) > 20);
    size_t heap = tern_heap_get().heap_now;
    bool there = status == TERN_OK;
    if (there) status = TERN_ERR_MEMORY;
    for (uint64_t n = 1; there && status != TERN_OK && n < 20000; n += 1 + n / 16) {
        tern_mem_fail_at(n);
        status = open_and_close(path, &desc, NULL);
        tern_mem_fail_at(0);
        CHECK(status == TERN_OK || status == TERN_ERR_MEMORY || status == TERN_ERR_DEVICE);
        CHECK_MSG(tern_heap_get().heap_now == heap, "allocation %d leaks", (int)n);
    }
    gpu_webgpu(NULL); // the play is over
    test_map_never(before);
}

// Gemma 4's table of numbers for each layer stays in the file: a batch reads the rows of its
// tokens, and one that cannot be read fails that batch alone. Seen to fail: the status of a read
// that nobody looks at.
TEST(webgpu_rows_of_an_unmapped_table_are_read_with_each_batch) {
    static const int32_t ids[] = {3, 17, 40};
    bool before = test_map_never(true);
    tern_error err = {0};
    tern_session *s = NULL;
    tern_model *m = gpu_open("tests/oracles/gemma4/model.gguf", 8);
    float logits[3][3 * 64];
    if (!m) {
        test_map_never(before);
        return;
    }
    REQUIRE_OK(tern_session_open(&s, m, NULL, &err), err);
    REQUIRE(m->info.n_vocab <= 64);
    for (int i = 0; i < 3; i++) {
        uint64_t n_reads = tern_blob_n_reads();
        tern_blob_fail_read_at(i == 1 ? 2 : 0);
        tern_session_reset(s);
        tern_status status = tern_session_logits(s, ids, 3, logits[i], &err);
        tern_blob_fail_read_at(0);
        CHECK_MSG(status == (i == 1 ? TERN_ERR_IO : TERN_OK), "%d: %s", i, err.message);
        CHECK_MSG(tern_blob_n_reads() - n_reads == (i == 1 ? 2 : 3), "%d: %d reads", i,
                  (int)(tern_blob_n_reads() - n_reads));
    }
    size_t n = 3 * (size_t)m->info.n_vocab;
    CHECK(memcmp(logits[0], logits[2], n * sizeof **logits) == 0);
    tern_session_close(s);
    tern_model_close(m);
    test_map_never(before);
}

static bool is_in(const char *text, const char *const *parts) {
    for (; *parts; parts++)
        if (!strstr(text, *parts)) return false;
    return true;
}

// The front is there; a tensor's bytes are not, any more.
TEST(unmapped_files_that_are_cut_are_named) {
    tern_error err = {0};
    tern_file *f;
    const char *path = test_tmp("cut.gguf");
    bool before = test_map_never(true);
    REQUIRE_OK(tiny_model_write(path, &(tiny_model_desc){.seed = 4}, &err), err);
    REQUIRE_OK(tern_file_open(&f, path, &err), err);
    const tern_tensor *t = tern_file_tensor(f, "blk.1.ffn_down.weight");
    REQUIRE(t != NULL);
    CHECK(truncate(path, (off_t)t->data.at + 5) == 0);
    tern_hold h;
    CHECK(tern_blob_hold(&t->data, &h, &err) == TERN_ERR_IO);
    CHECK_MSG(is_in(err.message, (const char *[]){path, "was cut to ", NULL}), "%s", err.message);
    CHECK(tern_blob_hold(&f->tensors[0].data, &h, &err) == TERN_ERR_IO); // what is left is no file
    CHECK_MSG(strstr(err.message, "was changed"), "%s", err.message);
    tern_file_close(f);
    test_map_never(before);
}

// A weight that is bound from a file that was cut meanwhile. Seen to fail: with the tensor not
// named.
static bool cut_on_load(void *user, const char *phase, double fraction) {
    (void)phase;
    if (fraction > 0) (void)!truncate(user, 60000);
    return true;
}
TEST(unmapped_weights_that_cannot_be_read_are_named) {
    tern_error err = {0};
    tern_model *m = NULL;
    char *path = tern_strdup(TERN_MEM_MISC, test_tmp("cut_on_load.gguf"));
    bool before = test_map_never(true);
    REQUIRE_OK(tiny_model_write(path, &large, &err), err); // so large that it is bound in steps
    const tern_model_desc desc = {.n_threads = 1, .on_progress = cut_on_load, .user = path};
    CHECK(tern_model_open(&m, path, &desc, &err) == TERN_ERR_IO && !m);
    CHECK_MSG(is_in(err.message, (const char *[]){"blk.", path, "was cut to 60000", NULL}), "%s",
              err.message);
    tern_free(path);
    test_map_never(before);
}

// ---- A lost device -----------------------------------------------------------------------------

static bool write_text(tern_session *s, int32_t text[40]) {
    tern_error err = {0};
    const int32_t prompt[] = {5, 70, 100, 33, 259, 8};
    const tern_sampling greedy = {0};
    const tern_generate_params p = {.sampling = &greedy, .max_tokens = 40, .ignore_end = true};
    size_t n = 0;
    tern_status status = tern_generate_ids(s, prompt, 6, &p, NULL, &err);
    const int32_t *ids = tern_session_generated(s, &n);
    CHECK_MSG(status == TERN_OK && n == 40, "%s", err.message);
    if (n == 40) memcpy(text, ids, 40 * sizeof *text);
    return n == 40;
}

// The weights are read from the file once more. Seen to fail: with sources that are forgotten once
// they are bound.
TEST(webgpu_unmapped_weights_are_read_again_after_a_loss) {
    tern_error err = {0};
    const char *path = test_tmp("unmapped_loss.gguf");
    const tern_session_desc sd = {.n_context = 64};
    const gpu_play play = {.lose_at = 20};
    int32_t wanted[40] = {0}, found[40] = {0};
    tern_model *on_cpu = NULL, *m;
    tern_session *a = NULL, *b = NULL;
    bool before = test_map_never(true);
    REQUIRE_OK(tiny_model_write(path, &(tiny_model_desc){.seed = 3, .n_layers = 1}, &err), err);
    REQUIRE_OK(tern_model_open(&on_cpu, path, NULL, &err), err);
    REQUIRE_OK(tern_session_open(&a, on_cpu, &sd, &err), err);
    m = write_text(a, wanted) ? gpu_open_play(path, 8, &play) : NULL;
    if (m && tern_session_open(&b, m, &sd, &err) == TERN_OK) {
        uint64_t n_reads = tern_blob_n_reads();
        CHECK(write_text(b, found) && memcmp(wanted, found, sizeof wanted) == 0);
        CHECK(tern_session_notice(b) != NULL);
        CHECK(tern_blob_n_reads() >= n_reads + m->n_weights);
    }
    tern_session_close(b);
    tern_model_close(m);
    tern_session_close(a);
    tern_model_close(on_cpu);
    test_map_never(before);
}

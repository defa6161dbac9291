// The output is read back, from one file and from sets; nothing appears before it is complete.
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/alloc.h"
#include "formats/formats.h"
#include "tests/support/blobs.h"
#include "tests/support/harness.h"

static bool exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

static bool exists_beside(const char *path, const char *end) {
    char name[700];
    snprintf(name, sizeof name, "%s%s", path, end);
    return exists(name);
}

// Unfinished output is in a folder ".tern-..." next to its destination.
static bool leaves_something(const char *path) {
    tern_names names = {0};
    char *folder = tern_path_folder(path);
    tern_folder_list(&names, folder, ".tern-", "", NULL);
    bool found = names.n > 0;
    tern_names_free(&names);
    tern_free(folder);
    return found;
}

static size_t read_all(const char *path, uint8_t *to, size_t n_max) {
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(to, 1, n_max, file) : 0;
    if (file) fclose(file);
    return n;
}

enum { N_TENSORS = 4 };
static const char *const names[N_TENSORS] = {"token_embd.weight", "blk.0.ffn_up.weight",
                                             "blk.0.ffn_norm.weight", "output_norm.weight"};
static const tern_dtype types[N_TENSORS] = {TERN_DTYPE_F16, TERN_DTYPE_I2_S, TERN_DTYPE_F32,
                                            TERN_DTYPE_F32};
static const uint64_t shapes[N_TENSORS][2] = {{128, 3}, {128, 2}, {5, 1}, {128, 1}};

static void put_model_metas(tern_gguf_writer *w) {
    static const int32_t numbers[] = {3, -1, 7};
    static const tern_str words[] = {{"a", 1}, {"", 0}, {"bc", 2}};
    tern_gguf_put_str(w, "general.architecture", TERN_STR("bitnet"));
    tern_gguf_put_int(w, "bitnet.block_count", TERN_META_U32, 1);
    tern_gguf_put_int(w, "signed", TERN_META_I64, INT64_MIN);
    tern_gguf_put_int(w, "flag", TERN_META_BOOL, 1);
    tern_gguf_put_f32(w, "eps", 1e-5f);
    tern_gguf_put_strings(w, "words", words, 3);
    tern_gguf_put_array(w, "numbers", TERN_META_I32, numbers, 3);
}

// Data in pieces of 7 bytes, which never coincide with the ends of tensors.
static tern_status write_model(const char *path, uint64_t split_bytes, tern_error *err) {
    tern_gguf_writer *w;
    uint8_t bytes[768];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 7 % 16);
    TERN_TRY(tern_gguf_writer_open(&w, path, split_bytes, err));
    put_model_metas(w);
    for (int i = 0; i < N_TENSORS; i++) tern_gguf_declare(w, names[i], types[i], 2, shapes[i]);
    tern_status status = TERN_OK;
    static const size_t sizes[N_TENSORS] = {768, 64, 20, 512};
    for (int i = 0; i < N_TENSORS && status == TERN_OK; i++) {
        for (size_t at = 0; at < sizes[i] && status == TERN_OK; at += 7)
            status = tern_gguf_write(w, bytes + at, sizes[i] - at < 7 ? sizes[i] - at : 7, err);
        if (types[i] == TERN_DTYPE_I2_S && status == TERN_OK)
            status = tern_gguf_write_i2_s_scale(w, 1.5f, err);
    }
    if (status == TERN_OK) status = tern_gguf_writer_finish(w, err);
    tern_gguf_writer_free(w);
    return status;
}

static void check_model(const char *path) {
    tern_file *f;
    tern_error err = {0};
    REQUIRE_OK(tern_file_open(&f, path, &err), err);
    tern_str arch;
    int64_t i = 0;
    double d = 0;
    bool flag = false;
    CHECK(tern_file_meta_str(f, "general.architecture", &arch) && tern_str_is(arch, "bitnet"));
    CHECK(tern_file_meta_int(f, "signed", &i) && i == INT64_MIN);
    CHECK(tern_file_meta_bool(f, "flag", &flag) && flag);
    CHECK(tern_file_meta_float(f, "eps", &d) && d == 1e-5f);
    const tern_meta *words = tern_file_meta(f, "words"), *numbers = tern_file_meta(f, "numbers");
    REQUIRE(words && words->n == 3 && numbers && numbers->n == 3);
    CHECK(tern_str_is(words->strings[2], "bc") && words->strings[1].len == 0);
    CHECK(tern_meta_element(numbers, 1, &d) && d == -1);
    CHECK(f->n_tensors == N_TENSORS);
    for (int k = 0; k < N_TENSORS; k++) {
        const tern_tensor *t = tern_file_tensor(f, names[k]);
        REQUIRE(t && t->type == types[k] && t->ne[0] == shapes[k][0] && t->ne[1] == shapes[k][1]);
        const uint8_t *data = test_bytes(&t->data);
        size_t n = t->type == TERN_DTYPE_I2_S ? 64 : (size_t)t->bytes, n_wrong = 0;
        for (size_t at = 0; at < n; at++) n_wrong += data[at] != at * 7 % 16;
        CHECK(n_wrong == 0);
        if (t->type != TERN_DTYPE_I2_S) continue;
        CHECK(t->scale == 1.5f);
        for (size_t at = 68; at < 96; at++) CHECK(data[at] == 0);
    }
    tern_file_close(f);
}

TEST(gguf_writer_round_trip) {
    const char *path = test_tmp("round_trip.gguf");
    tern_error err = {0};
    REQUIRE_OK(write_model(path, 0, &err), err);
    CHECK(exists(path) && !leaves_something(path));
    check_model(path);
    struct stat st;
    CHECK(stat(path, &st) == 0 && st.st_size % 32 == 0);
    REQUIRE_OK(write_model(path, 1 << 20, &err), err); // too small to be split
    check_model(path);
}

TEST(gguf_writer_splits) {
    const char *path = test_tmp("split.gguf"), *first = test_tmp("split-00001-of-00003.gguf");
    const char *second = test_tmp("split-00002-of-00003.gguf");
    const char *third = test_tmp("split-00003-of-00003.gguf");
    tern_error err = {0};
    tern_file *f;
    REQUIRE_OK(write_model(path, 128, &err), err); // 768 | 96 + 20 | 512
    CHECK(!exists(path) && exists(first) && exists(second) && exists(third));
    CHECK(!leaves_something(first));
    check_model(first);
    REQUIRE_OK(tern_file_open(&f, first, &err), err);
    CHECK(tern_file_tensor(f, names[0])->shard == 0 && tern_file_tensor(f, names[1])->shard == 1);
    CHECK(tern_file_tensor(f, names[2])->shard == 1 && tern_file_tensor(f, names[3])->shard == 2);
    const tern_meta *count = tern_file_meta(f, "split.count");
    CHECK(count && count->type == TERN_META_U16);
    CHECK(tern_file_meta(f, "split.tensors.count")->type == TERN_META_I32);
    tern_file_close(f);
    CHECK(tern_file_open(&f, second, &err) == TERN_ERR_ARGUMENT);
    CHECK(strstr(err.message, "split-00001-of-00003.gguf"));
    // A part in the place of another.
    uint8_t bytes[4096];
    size_t n = read_all(third, bytes, sizeof bytes);
    FILE *file = fopen(second, "wb");
    REQUIRE(file && n > 0);
    CHECK(fwrite(bytes, 1, n, file) == n);
    fclose(file);
    CHECK(tern_file_open(&f, first, &err) == TERN_ERR_FORMAT);
    CHECK(strstr(err.message, "says that it is part 2 of 3, not 1 of 3"));
    remove(second);
    CHECK(tern_file_open(&f, first, &err) == TERN_ERR_IO);
    const char *renamed = test_tmp("renamed.gguf");
    CHECK(rename(first, renamed) == 0);
    CHECK(tern_file_open(&f, renamed, &err) == TERN_ERR_FORMAT);
    CHECK(strstr(err.message, "but not by its name"));
}

TEST(gguf_writer_copies_metadata_as_it_is) {
    const char *from = test_data("models/bitllama2c/bit3M.TQ2_0.gguf");
    if (!from) return;
    const char *to = test_tmp("copy.gguf");
    tern_error err = {0};
    tern_file *f, *g;
    tern_gguf_writer *w;
    REQUIRE_OK(tern_file_open(&f, from, &err), err);
    REQUIRE_OK(tern_gguf_writer_open(&w, to, 0, &err), err);
    for (size_t i = 0; i < f->n_metas; i++) CHECK(tern_gguf_put_meta(w, &f->metas[i]) == TERN_OK);
    for (size_t i = 0; i < f->n_tensors; i++) {
        const tern_tensor *t = &f->tensors[i];
        CHECK(tern_gguf_declare(w, t->name, t->type, t->n_dims, t->ne) == TERN_OK);
    }
    for (size_t i = 0; i < f->n_tensors; i++) {
        const tern_tensor *t = &f->tensors[i];
        CHECK(tern_gguf_write(w, test_bytes(&t->data), t->bytes, &err) == TERN_OK);
    }
    REQUIRE_OK(tern_gguf_writer_finish(w, &err), err);
    tern_gguf_writer_free(w);
    REQUIRE_OK(tern_file_open(&g, to, &err), err);
    CHECK(g->n_metas == f->n_metas && g->n_tensors == f->n_tensors);
    for (size_t i = 0; i < f->n_tensors && i < g->n_tensors; i++) {
        const tern_tensor *a = &f->tensors[i], *b = &g->tensors[i];
        CHECK(a->bytes == b->bytes);
        CHECK(memcmp(test_bytes(&b->data), test_bytes(&a->data), b->bytes) == 0);
    }
    for (size_t i = 0; i < f->n_metas && i < g->n_metas; i++) {
        const tern_meta *a = &f->metas[i], *b = &g->metas[i];
        CHECK(!strcmp(a->key, b->key) && a->type == b->type && a->n == b->n);
        for (uint64_t k = 0; a->strings && k < a->n; k++)
            CHECK(tern_str_eq(a->strings[k], b->strings[k]));
        if (a->type == TERN_META_STRING) CHECK(memcmp(a->data, b->data, a->n) == 0);
    }
    tern_file_close(f);
    tern_file_close(g);
}

TEST(gguf_writer_refuses_misuse) {
    static const char *const words[] = {"'k' is there twice",
                                        "'k' does not fit its type",
                                        "cannot have this shape as TQ2_0",
                                        "U8 does not exist in GGUF",
                                        "room for 63 bytes",
                                        "tensor 'w' is there twice",
                                        "'w' got 4 of its 8 bytes",
                                        "1 bytes more than the tensors have"};
    for (int i = 0; i < 8; i++) {
        const char *path = test_tmp("misuse.gguf");
        tern_error err = {0};
        tern_gguf_writer *w;
        REQUIRE_OK(tern_gguf_writer_open(&w, path, 0, &err), err);
        tern_gguf_put_int(w, "k", TERN_META_U8, i == 1 ? 256 : 255);
        if (i == 0) CHECK(tern_gguf_put_f32(w, "k", 1) == TERN_ERR_ARGUMENT);
        tern_dtype type = i == 2 ? TERN_DTYPE_TQ2_0 : i == 3 ? TERN_DTYPE_U8 : TERN_DTYPE_F32;
        tern_gguf_declare(w, "w", type, 1, &(uint64_t){2});
        char longest[65] = {0};
        memset(longest, 'x', 64);
        if (i == 4) tern_gguf_declare(w, longest, TERN_DTYPE_F32, 1, &(uint64_t){2});
        if (i == 5) tern_gguf_declare(w, "w", TERN_DTYPE_F32, 1, &(uint64_t){2});
        uint8_t data[9] = {0};
        tern_status status = tern_gguf_write(w, data, i == 6 ? 4 : i == 7 ? 9 : 8, &err);
        CHECK(i == 6 || status == TERN_ERR_ARGUMENT);
        if (i == 6) CHECK(tern_gguf_writer_finish(w, &err) == TERN_ERR_ARGUMENT);
        CHECK_MSG(strstr(err.message, words[i]), "%s", err.message);
        CHECK(tern_gguf_writer_finish(w, &err) == TERN_ERR_ARGUMENT); // stays failed
        tern_gguf_writer_free(w);
        CHECK(!exists(path) && !leaves_something(path));
    }
    tern_gguf_writer *w;
    tern_error err = {0};
    REQUIRE_OK(tern_gguf_writer_open(&w, "/nowhere/at/all.gguf", 0, &err), err);
    CHECK(tern_gguf_writer_finish(w, &err) == TERN_ERR_IO && strstr(err.message, "/nowhere"));
    tern_gguf_writer_free(w);
}

TEST(gguf_writer_survives_failing_allocations) {
    const char *path = test_tmp("failing.gguf");
    size_t before = tern_mem_get_stats().total_now;
    tern_status status = TERN_ERR_MEMORY;
    int n = 1;
    for (; status != TERN_OK && n < 1000; n++) {
        remove(path);
        tern_mem_fail_at((uint64_t)n);
        status = write_model(path, 0, NULL);
        tern_mem_fail_at(0);
        CHECK(status == TERN_OK || status == TERN_ERR_MEMORY);
        CHECK(tern_mem_get_stats().total_now == before);
        CHECK(exists(path) == (status == TERN_OK));
    }
    CHECK(status == TERN_OK && n > 10);
    check_model(path);
}

TEST(gguf_writer_writes_a_vocabulary_only) {
    const char *path = test_tmp("vocab.gguf");
    tern_error err = {0};
    tern_gguf_writer *w;
    tern_file *f;
    REQUIRE_OK(tern_gguf_writer_open(&w, path, 0, &err), err);
    put_model_metas(w);
    REQUIRE_OK(tern_gguf_writer_finish(w, &err), err);
    CHECK(tern_gguf_writer_finish(w, &err) == TERN_ERR_ARGUMENT);
    tern_gguf_writer_free(w);
    REQUIRE_OK(tern_file_open(&f, path, &err), err);
    CHECK(f->n_tensors == 0 && f->n_metas == 7);
    tern_file_close(f);
}

// ---- safetensors -------------------------------------------------------------------------------

static tern_status write_folder(const char *folder, uint64_t split_bytes, tern_error *err) {
    static const uint64_t a_shape[] = {2, 3}, b_shape[] = {40}, quoted_shape[] = {1};
    tern_st_writer *w;
    uint8_t bytes[52];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)i;
    TERN_TRY(tern_st_writer_open(&w, folder, split_bytes, err));
    tern_st_declare(w, "a", TERN_DTYPE_BF16, 2, a_shape);
    tern_st_declare(w, "b", TERN_DTYPE_U8, 1, b_shape);
    tern_st_declare(w, "\"quoted\"\n", TERN_DTYPE_F32, 1, quoted_shape);
    tern_st_declare(w, "scalar", TERN_DTYPE_I64, 0, NULL);
    tern_status status = tern_st_write(w, bytes, 12, err);
    if (status == TERN_OK) status = tern_st_write(w, bytes + 12, 40, err);
    if (status == TERN_OK) status = tern_st_write(w, &(float){3}, 4, err);
    if (status == TERN_OK) status = tern_st_write(w, &(int64_t){-9}, 8, err);
    if (status == TERN_OK) status = tern_st_writer_finish(w, err);
    tern_st_writer_free(w);
    return status;
}

static void check_folder(const char *folder, int shard_of_scalar) {
    tern_file *f;
    tern_error err = {0};
    REQUIRE_OK(tern_file_open(&f, folder, &err), err);
    CHECK(f->n_tensors == 4);
    const tern_tensor *a = tern_file_tensor(f, "a"), *b = tern_file_tensor(f, "b");
    REQUIRE(a && b && a->type == TERN_DTYPE_BF16 && b->type == TERN_DTYPE_U8);
    CHECK(a->ne[0] == 3 && a->ne[1] == 2 && b->ne[0] == 40);
    CHECK(((const uint8_t *)test_bytes(&b->data))[39] == 51);
    const tern_tensor *quoted = tern_file_tensor(f, "\"quoted\"\n");
    const tern_tensor *scalar = tern_file_tensor(f, "scalar");
    REQUIRE(quoted && scalar);
    CHECK(*(const float *)test_bytes(&quoted->data) == 3);
    CHECK(*(const int64_t *)test_bytes(&scalar->data) == -9);
    CHECK(scalar->n_dims == 0 && scalar->shard == shard_of_scalar);
    tern_file_close(f);
}

TEST(safetensors_writer_round_trip_and_shards) {
    const char *folder = test_tmp("st_writer");
    tern_error err = {0};
    REQUIRE_OK(write_folder(folder, 0, &err), err);
    check_folder(folder, 0);
    CHECK(exists_beside(folder, "/model.safetensors"));
    CHECK(!leaves_something(test_tmp("st_writer/model.safetensors")));
    REQUIRE_OK(write_folder(folder, 44, &err), err);     // 12 | 40 + 4 | 8
    CHECK(!exists_beside(folder, "/model.safetensors")); // would hide the shards
    CHECK(exists_beside(folder, "/model-00003-of-00003.safetensors"));
    check_folder(folder, 2);
    REQUIRE_OK(write_folder(folder, 0, &err), err);
    CHECK(!exists_beside(folder, "/model.safetensors.index.json"));
    check_folder(folder, 0);
}

TEST(safetensors_writer_refuses_and_survives) {
    const char *folder = test_tmp("st_failing");
    tern_error err = {0};
    tern_st_writer *w;
    REQUIRE_OK(tern_st_writer_open(&w, folder, 0, &err), err);
    CHECK(tern_st_declare(w, "w", TERN_DTYPE_Q8_0, 1, &(uint64_t){32}) == TERN_ERR_ARGUMENT);
    CHECK(tern_st_writer_finish(w, &err) == TERN_ERR_ARGUMENT);
    CHECK(strstr(err.message, "Q8_0 does not exist in safetensors"));
    tern_st_writer_free(w);
    size_t before = tern_mem_get_stats().total_now;
    tern_status status = TERN_ERR_MEMORY;
    int n = 1;
    for (; status != TERN_OK && n < 1000; n++) {
        tern_mem_fail_at((uint64_t)n);
        status = write_folder(folder, 44, NULL);
        tern_mem_fail_at(0);
        CHECK(status == TERN_OK || status == TERN_ERR_MEMORY);
        CHECK(tern_mem_get_stats().total_now == before);
    }
    CHECK(status == TERN_OK && n > 10);
    check_folder(folder, 2);
}

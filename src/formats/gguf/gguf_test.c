// Reading GGUF: the contents found, and the files refused. Files are built byte by byte here, so
// that the reader is not only compared with our own writer.
#include "formats/file_private.h"

#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "tests/support/blobs.h"
#include "tests/support/harness.h"

// ---- Making bytes ------------------------------------------------------------------------------

static void put(tern_strbuf *b, const void *p, size_t n) { tern_strbuf_append(b, p, n); }
static void put_u32(tern_strbuf *b, uint32_t v) { put(b, &v, 4); }
static void put_u64(tern_strbuf *b, uint64_t v) { put(b, &v, 8); }
static void put_text(tern_strbuf *b, const char *text) {
    put_u64(b, strlen(text));
    put(b, text, strlen(text));
}
static void put_key(tern_strbuf *b, const char *key, tern_meta_type type) {
    put_text(b, key);
    put_u32(b, type);
}
static void put_header(tern_strbuf *b, uint64_t n_tensors, uint64_t n_kv) {
    put(b, "GGUF", 4);
    put_u32(b, 3);
    put_u64(b, n_tensors);
    put_u64(b, n_kv);
}
static void put_tensor(tern_strbuf *b, const char *name, uint32_t type, uint64_t ne0, uint64_t ne1,
                       uint64_t offset) {
    put_text(b, name);
    put_u32(b, 2);
    put_u64(b, ne0);
    put_u64(b, ne1);
    put_u32(b, type);
    put_u64(b, offset);
}
static void pad(tern_strbuf *b, size_t to) {
    while (b->len % to) tern_strbuf_putc(b, 0);
}

enum { GGML_F32 = 0, GGML_F16 = 1, GGML_I2_S = 36 };

static void put_metas(tern_strbuf *b) { // 12 of them
    put_key(b, "general.architecture", TERN_META_STRING);
    put_text(b, "bitnet");
    put_key(b, "u8", TERN_META_U8);
    put(b, &(uint8_t){200}, 1);
    put_key(b, "i8", TERN_META_I8);
    put(b, &(int8_t){-100}, 1);
    put_key(b, "u16", TERN_META_U16);
    put(b, &(uint16_t){60000}, 2);
    put_key(b, "i16", TERN_META_I16);
    put(b, &(int16_t){-30000}, 2);
    put_key(b, "u64", TERN_META_U64);
    put_u64(b, UINT64_MAX);
    put_key(b, "i64", TERN_META_I64);
    put(b, &(int64_t){-5}, 8);
    put_key(b, "f32", TERN_META_F32);
    put(b, &(float){0.5f}, 4);
    put_key(b, "f64", TERN_META_F64);
    put(b, &(double){0.25}, 8);
    put_key(b, "yes", TERN_META_BOOL);
    put(b, &(uint8_t){1}, 1);
    put_key(b, "words", TERN_META_ARRAY);
    put_u32(b, TERN_META_STRING);
    put_u64(b, 3);
    put_text(b, "one");
    put_text(b, "");
    put_text(b, "three");
    put_key(b, "numbers", TERN_META_ARRAY);
    put_u32(b, TERN_META_I32);
    put_u64(b, 2);
    put_u32(b, 7);
    put_u32(b, (uint32_t)-7);
}

// A small file with every kind of metadata and three tensors.
static tern_strbuf small_file(void) {
    tern_strbuf b = {0};
    put_header(&b, 3, 12);
    put_metas(&b);
    put_tensor(&b, "f32.weight", GGML_F32, 4, 2, 0);         // 32 bytes
    put_tensor(&b, "ternary.weight", GGML_I2_S, 128, 2, 32); // 64 + 32 bytes
    put_tensor(&b, "f16.weight", GGML_F16, 3, 1, 128);       // 6 bytes
    pad(&b, 32);
    for (int i = 0; i < 8; i++) put(&b, &(float){(float)i}, 4);
    for (int i = 0; i < 64; i++) tern_strbuf_putc(&b, (char)(i < 32 ? 0x18 : 0x92));
    put(&b, &(float){0.75f}, 4);
    pad(&b, 32);
    put(&b, (uint16_t[]){0x3C00, 0, 0}, 6);
    return b;
}

static tern_status parse_at(tern_file **file, const uint8_t *bytes, size_t n, tern_error *err) {
    tern_gguf_split split;
    *file = NULL;
    tern_status status = tern_file_new(file, "test", err);
    const tern_blob all = tern_blob_of(bytes, n);
    if (status == TERN_OK) status = tern_gguf_parse(*file, 0, &all, &split, err);
    if (status == TERN_OK) status = tern_file_index_tensors(*file, err);
    if (status != TERN_OK) {
        tern_file_close(*file);
        *file = NULL;
    }
    return status;
}

// Parses a copy of exactly n bytes, so that a sanitizer catches any read past the end; then closes.
static tern_status parse_and_close(const void *bytes, size_t n, tern_error *err) {
    tern_file *file;
    uint8_t *copy = malloc(n ? n : 1);
    memcpy(copy, bytes, n);
    tern_status status = parse_at(&file, copy, n, err);
    if (status == TERN_OK) tern_file_close(file);
    free(copy);
    return status;
}

// ---- What is found -----------------------------------------------------------------------------

TEST(gguf_reads_metadata_of_every_type) {
    tern_strbuf b = small_file();
    tern_file *f;
    tern_error err = {0};
    REQUIRE_OK(parse_at(&f, (uint8_t *)b.ptr, b.len, &err), err);
    CHECK(f->kind == TERN_FILE_GGUF && f->n_metas == 12);
    int64_t i = 0;
    CHECK(tern_file_meta_int(f, "u8", &i) && i == 200);
    CHECK(tern_file_meta_int(f, "i8", &i) && i == -100);
    CHECK(tern_file_meta_int(f, "u16", &i) && i == 60000);
    CHECK(tern_file_meta_int(f, "i16", &i) && i == -30000);
    CHECK(tern_file_meta_int(f, "i64", &i) && i == -5);
    CHECK(!tern_file_meta_int(f, "u64", &i)); // does not fit
    CHECK(!tern_file_meta_int(f, "f32", &i) && !tern_file_meta_int(f, "yes", &i));
    CHECK(!tern_file_meta_int(f, "absent", &i) && !tern_file_meta_int(f, "words", &i));
    double d = 0;
    CHECK(tern_file_meta_float(f, "f32", &d) && d == 0.5);
    CHECK(tern_file_meta_float(f, "f64", &d) && d == 0.25);
    CHECK(tern_file_meta_float(f, "u64", &d) && d == 0x1p64);
    bool yes = false;
    CHECK(tern_file_meta_bool(f, "yes", &yes) && yes);
    CHECK(!tern_file_meta_bool(f, "u8", &yes));
    tern_str s = {0};
    CHECK(tern_file_meta_str(f, "general.architecture", &s) && tern_str_is(s, "bitnet"));
    CHECK(!tern_file_meta_str(f, "u8", &s));
    const tern_meta *words = tern_file_meta(f, "words"), *numbers = tern_file_meta(f, "numbers");
    REQUIRE(words && words->n == 3 && words->strings);
    CHECK(tern_str_is(words->strings[0], "one") && words->strings[1].len == 0 &&
          tern_str_is(words->strings[2], "three"));
    CHECK(!tern_meta_element(words, 0, &d));
    REQUIRE(numbers && numbers->n == 2);
    CHECK(tern_meta_element(numbers, 1, &d) && d == -7 && !tern_meta_element(numbers, 2, &d));
    tern_file_close(f);
    tern_strbuf_free(&b);
}

TEST(gguf_finds_tensors) {
    tern_strbuf b = small_file();
    tern_file *f;
    tern_error err = {0};
    REQUIRE_OK(parse_at(&f, (uint8_t *)b.ptr, b.len, &err), err);
    CHECK(f->n_tensors == 3 && f->tensor_bytes == 32 + 96 + 6);
    const tern_tensor *t = tern_file_tensor(f, "ternary.weight");
    REQUIRE(t && t->type == TERN_DTYPE_I2_S);
    CHECK(t->n_dims == 2 && t->ne[0] == 128 && t->ne[1] == 2 && t->ne[2] == 1 && t->ne[3] == 1);
    CHECK(t->bytes == 96 && t->scale == 0.75f && *(const uint8_t *)test_bytes(&t->data) == 0x18);
    t = tern_file_tensor(f, "f16.weight");
    CHECK(t && t->bytes == 6 && t->data.memory == (const uint8_t *)b.ptr + b.len - 6);
    CHECK(!tern_file_tensor(f, "f16") && !tern_file_tensor(f, ""));
    tern_file_close(f);
    tern_strbuf_free(&b);
}

TEST(gguf_honours_its_own_alignment) {
    tern_strbuf b = {0};
    put_header(&b, 1, 1);
    put_key(&b, "general.alignment", TERN_META_U32);
    put_u32(&b, 256);
    put_tensor(&b, "w", GGML_F32, 1, 1, 0);
    pad(&b, 256);
    put(&b, &(float){42}, 4);
    tern_file *f;
    tern_error err = {0};
    REQUIRE_OK(parse_at(&f, (uint8_t *)b.ptr, b.len, &err), err);
    CHECK(*(const float *)test_bytes(&tern_file_tensor(f, "w")->data) == 42);
    tern_file_close(f);
    tern_strbuf_free(&b);
}

// ---- What is refused ---------------------------------------------------------------------------

static void check_refused(tern_strbuf *b, tern_status status, const char *words) {
    tern_error err = {0};
    tern_status got = parse_and_close(tern_strbuf_text(b), b->len, &err);
    CHECK_MSG(got == status && strstr(err.message, words), "wanted \"%s\", got %s: \"%s\"", words,
              tern_status_name(got), err.message);
    tern_strbuf_free(b);
}

TEST(gguf_refuses_other_files) {
    tern_strbuf b = {0};
    check_refused(&b, TERN_ERR_FORMAT, "ends at byte 0");
    tern_strbuf_puts(&b, "GGML and more of it, long enough for a header");
    check_refused(&b, TERN_ERR_FORMAT, "neither a GGUF file");
    put(&b, "GGUF", 4);
    put_u32(&b, 1);
    put_u64(&b, 0);
    check_refused(&b, TERN_ERR_UNSUPPORTED, "version 1");
    put(&b, "GGUF\0\0\0\3", 8);
    put_u64(&b, 0);
    check_refused(&b, TERN_ERR_UNSUPPORTED, "big-endian");
}

TEST(gguf_refuses_counts_that_cannot_be) {
    tern_strbuf b = {0};
    put_header(&b, 0, UINT64_MAX);
    check_refused(&b, TERN_ERR_FORMAT, "metadata entries do not fit");
    put_header(&b, (uint64_t)1 << 60, 0);
    check_refused(&b, TERN_ERR_FORMAT, "tensors do not fit");
    for (int k = 0; k < 2; k++) {
        put_header(&b, 0, 1);
        put_key(&b, "list", TERN_META_ARRAY);
        put_u32(&b, k ? TERN_META_STRING : TERN_META_U64);
        put_u64(&b, ((uint64_t)1 << 61) + 1);
        put_u64(&b, 0);
        check_refused(&b, TERN_ERR_FORMAT, "inside list");
    }
    put_header(&b, 0, 1);
    put_u64(&b, UINT64_MAX - 3);
    put_text(&b, "key");
    check_refused(&b, TERN_ERR_FORMAT, "said to be 18446744073709551612 bytes long");
}

TEST(gguf_refuses_strange_metadata) {
    tern_strbuf b = {0};
    put_header(&b, 0, 1);
    put_key(&b, "nested", TERN_META_ARRAY);
    put_u32(&b, TERN_META_ARRAY);
    put_u64(&b, 1);
    put_u32(&b, TERN_META_U8);
    put_u64(&b, 0);
    check_refused(&b, TERN_ERR_UNSUPPORTED, "'nested' is an array of arrays");
    put_header(&b, 0, 1);
    put_key(&b, "odd", 13);
    put_u64(&b, 0);
    check_refused(&b, TERN_ERR_FORMAT, "'odd' has the unknown type 13");
    put_header(&b, 0, 1);
    put_key(&b, "odd", TERN_META_ARRAY);
    put_u32(&b, 99);
    put_u64(&b, 0);
    check_refused(&b, TERN_ERR_FORMAT, "array of the unknown type 99");
    put_header(&b, 0, 2);
    for (int i = 0; i < 2; i++) {
        put_key(&b, "same", TERN_META_U32);
        put_u32(&b, 1);
    }
    check_refused(&b, TERN_ERR_FORMAT, "'same' is there twice");
    put_header(&b, 0, 1);
    put_key(&b, "general.alignment", TERN_META_U32);
    put_u32(&b, 48);
    check_refused(&b, TERN_ERR_UNSUPPORTED, "general.alignment is 48");
    put_header(&b, 0, 1);
    put_u64(&b, 3);
    put(&b, "a\0b", 3);
    put_u64(&b, 0);
    check_refused(&b, TERN_ERR_FORMAT, "none of them 0");
}

static tern_strbuf one_tensor(uint32_t type, uint64_t ne0, uint64_t ne1, uint64_t offset,
                              size_t n_data) {
    tern_strbuf b = {0};
    put_header(&b, 1, 0);
    put_tensor(&b, "w", type, ne0, ne1, offset);
    pad(&b, 32);
    for (size_t i = 0; i < n_data; i++) tern_strbuf_putc(&b, 0);
    return b;
}

TEST(gguf_refuses_impossible_tensors) {
    tern_strbuf b = one_tensor(GGML_F32, 4, 1, 0, 16);
    tern_error err = {0};
    CHECK(parse_and_close(b.ptr, b.len, &err) == TERN_OK);
    tern_strbuf_free(&b);
    b = one_tensor(GGML_F32, 4, 1, 0, 15);
    check_refused(&b, TERN_ERR_FORMAT, "'w' leaves the file");
    b = one_tensor(GGML_F32, 4, 1, UINT64_MAX - 31, 16);
    check_refused(&b, TERN_ERR_FORMAT, "'w' leaves the file");
    b = one_tensor(GGML_F32, 4, 1, 8, 64);
    check_refused(&b, TERN_ERR_FORMAT, "not at a multiple of 32");
    b = one_tensor(GGML_F32, 0, 1, 0, 16);
    check_refused(&b, TERN_ERR_FORMAT, "impossible dimension 0");
    b = one_tensor(GGML_F32, (uint64_t)1 << 40, (uint64_t)1 << 40, 0, 16);
    check_refused(&b, TERN_ERR_FORMAT, "impossible dimension 1");
    b = one_tensor(GGML_F32, (uint64_t)1 << 62, 1, 0, 16);
    check_refused(&b, TERN_ERR_FORMAT, "'w'");
    b = one_tensor(35, 128, 2, 0, 66); // TQ2_0 needs rows of 256
    check_refused(&b, TERN_ERR_FORMAT, "not whole blocks of 256 (TQ2_0)");
    b = one_tensor(GGML_I2_S, 128, 1, 0, 60); // the tail is cut
    check_refused(&b, TERN_ERR_FORMAT, "'w' leaves the file");
    b = one_tensor(GGML_I2_S, 128, 1, 0, 64);
    memcpy(b.ptr + b.len - 32, &(uint32_t){0x7FC00000}, 4);
    check_refused(&b, TERN_ERR_FORMAT, "scale of tensor 'w'");
    put_header(&b, 1, 0);
    put_text(&b, "five");
    put_u32(&b, 5);
    for (int i = 0; i < 8; i++) put_u64(&b, 1);
    check_refused(&b, TERN_ERR_FORMAT, "'five' has 5 dimensions");
}

// A file of tensors of one type, [n_cols, rows] each, whose bytes are those of `bytes_of` blocks.
static tern_status parse_sized(uint32_t id, const uint64_t *n_cols, size_t n, uint64_t block_n,
                               uint64_t block_bytes, tern_dtype *type, uint64_t *bytes,
                               tern_error *err) {
    tern_strbuf b = {0};
    uint64_t at = 0;
    char name[8];
    put_header(&b, n, 0);
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "w%zu", i);
        put_tensor(&b, name, id, n_cols[i], 3, at);
        at += (3 * n_cols[i] * block_bytes / block_n + 31) / 32 * 32;
    }
    pad(&b, 32);
    for (uint64_t i = 0; i < at; i++) tern_strbuf_putc(&b, 0);
    tern_file *f;
    tern_status status = parse_at(&f, (uint8_t *)b.ptr, b.len, err);
    if (status == TERN_OK) {
        *type = f->tensors[n - 1].type;
        *bytes = f->tensors[n - 1].bytes;
        for (size_t i = 0; i < n; i++) CHECK(f->tensors[i].type == *type);
        tern_file_close(f);
    }
    tern_strbuf_free(&b);
    return status;
}

// Two layouts share a number, and only the room distinguishes them; small tensors fit both and
// follow the others. Seen to fail: when the first layout was always taken, and when more room than
// alignment explains was taken for a fit.
TEST(gguf_tells_layouts_of_one_number_by_their_room) {
    static const struct {
        uint32_t id;
        uint64_t cols[3], block_n, block_bytes;
        tern_dtype type; // F32: refused
    } cases[] = {
        {42, {1024, 256, 2048}, 64, 18, TERN_DTYPE_Q2_0},
        {42, {1024, 256, 2048}, 128, 34, TERN_DTYPE_PQ2_0},
        {42, {2048, 1024, 128}, 128, 34, TERN_DTYPE_PQ2_0},
        {42, {128, 128, 128}, 64, 18, TERN_DTYPE_Q2_0},
        {42, {1024, 64, 1024}, 64, 18, TERN_DTYPE_Q2_0},
        {42, {1024, 64, 1024}, 64, 20, TERN_DTYPE_F32},
        {42, {1024, 256, 2048}, 256, 42, TERN_DTYPE_STQ1_0},
        {43, {1024, 256, 2048}, 256, 42, TERN_DTYPE_STQ1_0},
        {40, {1024, 64, 1024}, 32, 6, TERN_DTYPE_Q1_0_32},
        {40, {1024, 64, 1024}, 64, 36, TERN_DTYPE_NVFP4},
        {40, {1024, 64, 1024}, 32, 8, TERN_DTYPE_F32},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tern_error err = {0};
        tern_dtype type = TERN_DTYPE_F32;
        uint64_t bytes = 0;
        tern_status status = parse_sized(cases[i].id, cases[i].cols, 3, cases[i].block_n,
                                         cases[i].block_bytes, &type, &bytes, &err);
        CHECK_MSG(type == cases[i].type, "case %zu: %s, %s", i, tern_dtype_name(type), err.message);
        if (cases[i].type == TERN_DTYPE_F32)
            CHECK_MSG(status == TERN_ERR_FORMAT && strstr(err.message, "has room neither"), "%s",
                      err.message);
        else
            CHECK(bytes == 3 * cases[i].cols[2] * cases[i].block_bytes / cases[i].block_n);
    }
}

TEST(gguf_refuses_overlap_and_double_names) {
    static const struct {
        const char *second;
        uint64_t at;
        const char *words;
    } cases[] = {
        {"b", 0, "'b' overlaps 'a'"},
        {"b", 32, "'b' overlaps 'a'"},
        {"a", 64, "'a' is there twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tern_strbuf b = {0};
        put_header(&b, 2, 0);
        put_tensor(&b, "a", GGML_F32, 9, 1, 0);
        put_tensor(&b, cases[i].second, GGML_F32, 4, 1, cases[i].at);
        pad(&b, 32);
        for (int k = 0; k < 128; k++) tern_strbuf_putc(&b, 0);
        check_refused(&b, TERN_ERR_FORMAT, cases[i].words);
    }
}

TEST(gguf_name_index_finds_each_of_many) {
    enum { N = 20000 };
    static char names[N][16];
    static const char *items[N];
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "n%d", i);
        items[i] = names[i];
    }
    tern_name_index index = {0};
    tern_error err = {0};
    REQUIRE_OK(tern_name_index_build(&index, items, N, sizeof *items, "name", &err), err);
    int n_wrong = 0;
    for (int i = 0; i < N; i++)
        n_wrong += tern_name_index_find(&index, items, sizeof *items, names[i]) != i;
    CHECK(n_wrong == 0);
    CHECK(tern_name_index_find(&index, items, sizeof *items, "n20000") == -1);
    tern_name_index_free(&index);
}

// A file's author can make names that collide; looking for room must not become quadratic.
TEST(gguf_name_index_refuses_names_made_to_collide) {
    enum { N = 600, MASK = 4095 }; // 600 names get 4096 slots; all of these want the same one
    static char names[N][20];
    static const char *items[N];
    for (int i = 0, n = 0; n < N; i++) {
        snprintf(names[n], sizeof names[n], "n%d", i);
        if ((tern_name_hash(names[n]) & MASK) == 0) items[n] = names[n], n++;
    }
    tern_name_index index = {0};
    tern_error err = {0};
    CHECK(tern_name_index_build(&index, items, N, sizeof *items, "name", &err) == TERN_ERR_FORMAT);
    CHECK(strstr(err.message, "collide on purpose"));
    tern_name_index_free(&index);
}

TEST(gguf_refuses_every_truncation) {
    tern_strbuf b = small_file();
    size_t before = tern_mem_get_stats().total_now;
    int n_accepted = 0;
    for (size_t n = 0; n < b.len; n++) {
        tern_error err = {0};
        n_accepted += parse_and_close(b.ptr, n, &err) == TERN_OK;
        if (!err.message[0]) n_accepted++;
    }
    CHECK(n_accepted == 0);
    CHECK(tern_mem_get_stats().total_now == before);
    tern_strbuf_free(&b);
}

// Every field of the header, and everything between fields, replaced by large values. Most are
// refused; an accepted file must stay inside its bytes, which is checked by reading it.
TEST(gguf_survives_corruption_of_every_byte) {
    static const uint64_t values[] = {
        0, 1, 31, 0x7F, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF, (uint64_t)1 << 61, INT64_MAX, UINT64_MAX};
    tern_strbuf b = small_file();
    size_t before = tern_mem_get_stats().total_now;
    uint8_t *bad = malloc(b.len);
    unsigned sum = 0, n_refused = 0;
    for (size_t at = 0; at + 8 <= b.len; at++) {
        for (size_t k = 0; k < 3 * (sizeof values / sizeof *values); k++) {
            size_t width = k % 3 == 0 ? 1 : k % 3 == 1 ? 4 : 8;
            tern_file *f;
            memcpy(bad, b.ptr, b.len);
            memcpy(bad + at, &values[k / 3], width);
            if (parse_at(&f, bad, b.len, NULL) != TERN_OK) {
                n_refused++;
                continue;
            }
            for (size_t i = 0; i < f->n_tensors; i++) {
                const uint8_t *p = test_bytes(&f->tensors[i].data);
                CHECK(p >= bad && f->tensors[i].bytes <= (uint64_t)(bad + b.len - p));
                sum += p[0] + p[f->tensors[i].bytes - 1];
            }
            tern_file_close(f);
        }
    }
    CHECK(sum > 0 && n_refused > 1000);
    CHECK(tern_mem_get_stats().total_now == before);
    free(bad);
    tern_strbuf_free(&b);
}

TEST(gguf_survives_failing_allocations) {
    tern_strbuf b = small_file();
    size_t before = tern_mem_get_stats().total_now;
    tern_status status = TERN_ERR_MEMORY;
    int n = 1;
    for (; status != TERN_OK && n < 1000; n++) {
        tern_error err = {0};
        tern_mem_fail_at((uint64_t)n);
        status = parse_and_close(b.ptr, b.len, &err);
        tern_mem_fail_at(0);
        CHECK(status == TERN_OK || status == TERN_ERR_MEMORY);
        CHECK(tern_mem_get_stats().total_now == before);
    }
    CHECK(status == TERN_OK && n > 5);
    tern_strbuf_free(&b);
}

// The worked example of docs/formats.md: the weights -1, 0, +1, -1, 0, +1, ... times 0.5.
TEST(gguf_i2_s_is_as_documented) {
    static const uint8_t pattern[3] = {0x24, 0x49, 0x92};
    tern_strbuf b = one_tensor(GGML_I2_S, 128, 1, 0, 64);
    uint8_t *data = (uint8_t *)b.ptr + b.len - 64;
    for (int i = 0; i < 32; i++) data[i] = pattern[i % 3];
    memcpy(data + 32, (uint8_t[]){0x00, 0x00, 0x00, 0x3F}, 4);
    tern_file *f;
    tern_error err = {0};
    float weights[128];
    REQUIRE_OK(parse_at(&f, (uint8_t *)b.ptr, b.len, &err), err);
    const tern_tensor *t = tern_file_tensor(f, "w");
    CHECK(t->scale == 0.5f);
    tern_dtype_decode(t->type, test_bytes(&t->data), 0, 128, t->scale, weights);
    for (int i = 0; i < 128; i++) CHECK(weights[i] == (float)(i % 3 - 1) * 0.5f);
    tern_file_close(f);
    tern_strbuf_free(&b);
}

// ---- Files that are read -----------------------------------------------------------------------

// Words of 0 to 40 bytes, one longer than any window, arrays of numbers, and many tensors:
// everything in which a window of the front may end.
enum { WORDS = 60000, LONG_WORD = 700000, NUMBERS = 100000, TENSORS = 20000 };
static tern_strbuf large_front(void) {
    tern_strbuf b = {0};
    put_header(&b, TENSORS, 4);
    put_key(&b, "words", TERN_META_ARRAY);
    put_u32(&b, TERN_META_STRING);
    put_u64(&b, WORDS);
    for (int i = 0; i < WORDS; i++) {
        uint64_t n = i == WORDS / 2 ? LONG_WORD : (uint64_t)(i * 7 % 41);
        put_u64(&b, n);
        for (uint64_t k = 0; k < n; k++) tern_strbuf_putc(&b, (char)('a' + (k + (uint64_t)i) % 26));
    }
    put_key(&b, "u8", TERN_META_U8);
    put(&b, &(uint8_t){200}, 1);
    put_key(&b, "numbers", TERN_META_ARRAY);
    put_u32(&b, TERN_META_I32);
    put_u64(&b, NUMBERS);
    for (uint32_t i = 0; i < NUMBERS; i++) put_u32(&b, i * i);
    put_key(&b, "text", TERN_META_STRING);
    put_text(&b, "the last");
    for (uint32_t i = 0; i < TENSORS; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%u", i);
        put_tensor(&b, name, GGML_F32, 8, 1, (uint64_t)i * 32);
    }
    pad(&b, 32);
    for (int i = 0; i < TENSORS * 8; i++) put(&b, &(float){(float)i}, 4);
    return b;
}

static bool same_metas(const tern_file *a, const tern_file *b) {
    bool same = a->n_metas == b->n_metas;
    for (size_t i = 0; same && i < a->n_metas; i++) {
        const tern_meta *x = &a->metas[i], *y = &b->metas[i];
        size_t each = tern_meta_type_bytes(x->type == TERN_META_ARRAY ? x->element_type : x->type);
        same = !strcmp(x->key, y->key) && x->type == y->type && x->n == y->n;
        for (uint64_t k = 0; same && x->strings && k < x->n; k++)
            same = tern_str_eq(x->strings[k], y->strings[k]);
        if (x->type == TERN_META_STRING) each = 1;
        if (same && !x->strings) same = memcmp(x->data, y->data, (size_t)x->n * each) == 0;
    }
    return same;
}

// Seen to fail: with a window that gives the beginning of the one before it, and with one that does
// not grow for a long text.
TEST(gguf_front_is_read_in_windows) {
    tern_strbuf b = large_front();
    const char *path = test_tmp("large_front.gguf");
    tern_file *mapped, *read;
    tern_error err = {0};
    FILE *out = fopen(path, "wb");
    CHECK(out && fwrite(b.ptr, 1, b.len, out) == b.len && fclose(out) == 0);
    REQUIRE_OK(parse_at(&mapped, (uint8_t *)b.ptr, b.len, &err), err);
    size_t heap = tern_mem_get_stats().total_now;
    bool before = test_map_never(true);
    uint64_t n_reads = tern_blob_n_reads();
    REQUIRE_OK(tern_file_open(&read, path, &err), err);
    n_reads = tern_blob_n_reads() - n_reads;
    CHECK_MSG(n_reads >= 5 && n_reads <= 14, "%d reads", (int)n_reads);
    CHECK(same_metas(mapped, read) && read->n_tensors == TENSORS);
    for (size_t i = 0; i < TENSORS && i < read->n_tensors; i++)
        CHECK(!strcmp(read->tensors[i].name, mapped->tensors[i].name) &&
              read->tensors[i].data.at == mapped->tensors[i].data.at);
    float first = 0;
    CHECK(tern_blob_read(&read->tensors[TENSORS - 1].data, 0, 4, &first, &err) == TERN_OK);
    CHECK(first == (TENSORS - 1) * 8);
    tern_file_close(read);
    for (uint64_t n = 1; n <= n_reads; n++) {
        tern_blob_fail_read_at(n);
        CHECK(tern_file_open(&read, path, &err) == TERN_ERR_IO && strstr(err.message, path));
        tern_blob_fail_read_at(0);
    }
    CHECK(tern_mem_get_stats().total_now == heap);
    test_map_never(before);
    tern_file_close(mapped);
    tern_strbuf_free(&b);
}

// Reading safetensors and Hugging Face folders.
#include "formats/file_private.h"

#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "tests/support/blobs.h"
#include "tests/support/harness.h"

// A file of this header and n_data bytes of data, 0, 1, 2, ...
static tern_strbuf make(const char *header, size_t n_data) {
    tern_strbuf b = {0};
    uint64_t n = strlen(header);
    tern_strbuf_append(&b, &n, 8);
    tern_strbuf_puts(&b, header);
    for (size_t i = 0; i < n_data; i++) tern_strbuf_putc(&b, (char)i);
    return b;
}

static tern_status parse_at(tern_file **file, const void *bytes, size_t n, tern_error *err) {
    *file = NULL;
    tern_status status = tern_file_new(file, "test", err);
    const tern_blob all = tern_blob_of(bytes, n);
    if (status == TERN_OK) status = tern_safetensors_parse(*file, 0, &all, err);
    if (status == TERN_OK) status = tern_file_index_tensors(*file, err);
    if (status != TERN_OK) {
        tern_file_close(*file);
        *file = NULL;
    }
    return status;
}

static tern_status parse_and_close(const void *bytes, size_t n, tern_error *err) {
    tern_file *file;
    uint8_t *copy = malloc(n ? n : 1); // exactly n: a sanitizer catches reads past the end
    memcpy(copy, bytes, n);
    tern_status status = parse_at(&file, copy, n, err);
    if (status == TERN_OK) tern_file_close(file);
    free(copy);
    return status;
}

static const char small_header[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
    "\"scalar\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[24,26]},"
    "\"bytes\":{\"dtype\":\"U8\",\"shape\":[2,1,3,1,2],\"data_offsets\":[26,38]},"
    "\"b\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[38,40]}}   ";

TEST(safetensors_reads_tensors) {
    tern_strbuf b = make(small_header, 40);
    tern_file *f;
    tern_error err = {0};
    REQUIRE_OK(parse_at(&f, b.ptr, b.len, &err), err);
    CHECK(f->n_tensors == 4 && f->tensor_bytes == 40);
    const tern_tensor *t = tern_file_tensor(f, "a");
    REQUIRE(t && t->type == TERN_DTYPE_F32 && t->n_dims == 2);
    CHECK(t->ne[0] == 3 && t->ne[1] == 2 && t->ne[2] == 1); // reversed: rows of 3
    t = tern_file_tensor(f, "scalar");
    CHECK(t && t->n_dims == 0 && t->ne[0] == 1 && t->bytes == 2);
    t = tern_file_tensor(f, "bytes"); // five dimensions: the outermost two become one
    CHECK(t && t->n_dims == 4 && t->ne[0] == 2 && t->ne[1] == 1 && t->ne[2] == 3 && t->ne[3] == 2);
    tern_file_close(f);
    tern_strbuf_free(&b);
}

TEST(safetensors_copies_what_is_not_aligned) {
    static const char header[] = "{\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                                 "\"y\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[1,9]}}";
    tern_strbuf b = make(header, 9);
    tern_file *f;
    tern_error err = {0};
    REQUIRE_OK(parse_at(&f, b.ptr, b.len, &err), err);
    const tern_tensor *y = tern_file_tensor(f, "y");
    REQUIRE(y);
    CHECK((uintptr_t)test_bytes(&y->data) % 4 == 0);
    CHECK(memcmp(test_bytes(&y->data), b.ptr + b.len - 8, 8) == 0);
    tern_blob_drop(&y->data); // on the heap: must stay unchanged
    CHECK(memcmp(test_bytes(&y->data), b.ptr + b.len - 8, 8) == 0);
    tern_file_close(f);
    tern_strbuf_free(&b);
}

TEST(safetensors_refuses_impossible_headers) {
#define T(dtype, shape, offsets)                                                                   \
    "{\"w\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
    static const struct {
        const char *header, *words;
        tern_status status;
    } cases[] = {
        {T("F32", "[2]", "[0,8]"), "", TERN_OK},
        {T("F32", "[3]", "[0,8]"), "'w' needs 12 bytes by its shape, but has 8", TERN_ERR_FORMAT},
        {T("F32", "[2]", "[0,16]"), "'w' leaves the file", TERN_ERR_FORMAT},
        {T("F32", "[2]", "[8,0]"), "'w' leaves the file", TERN_ERR_FORMAT},
        {T("F32", "[2]", "[0]"), "no data_offsets", TERN_ERR_FORMAT},
        {T("F32", "[2]", "[-8,0]"), "no data_offsets", TERN_ERR_FORMAT},
        {T("F32", "[2]", "[0.5,8]"), "no data_offsets", TERN_ERR_FORMAT},
        {T("F32", "[1]", "[0,4]"), "4 bytes after the last tensor", TERN_ERR_FORMAT},
        {T("F32", "[1]", "[4,8]"), "4 bytes before tensor 'w'", TERN_ERR_FORMAT},
        {T("F32", "[0]", "[0,0]"), "impossible dimension 0", TERN_ERR_FORMAT},
        {T("F32", "[4294967296,4294967296]", "[0,8]"), "impossible dimension 1", TERN_ERR_FORMAT},
        {T("F32", "[4611686018427387904]", "[0,8]"), "impossible", TERN_ERR_FORMAT},
        {T("F32", "\"2\"", "[0,8]"), "'w' has no shape", TERN_ERR_FORMAT},
        {T("F8_E4M3", "[9]", "[0,8]"), "'w' needs 9 bytes by its shape", TERN_ERR_FORMAT},
        {T("F6_X", "[9]", "[0,9]"), "'w' leaves the file", TERN_ERR_FORMAT},
        {"{\"w\":7}", "'w' has no dtype", TERN_ERR_FORMAT},
        {"{\"w\\u0000\":7}", "none of them 0", TERN_ERR_FORMAT},
        {"[1]", "not a JSON object", TERN_ERR_FORMAT},
        {"{\"w\":", "not JSON", TERN_ERR_FORMAT},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[3,8]}}",
         "'b' overlaps 'a'", TERN_ERR_FORMAT},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         "'a' is there twice", TERN_ERR_FORMAT},
    };
#undef T
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tern_strbuf b = make(cases[i].header, 8);
        tern_error err = {0};
        tern_status got = parse_and_close(b.ptr, b.len, &err);
        CHECK_MSG(got == cases[i].status && strstr(err.message, cases[i].words),
                  "%s gave %s: \"%s\"", cases[i].header, tern_status_name(got), err.message);
        tern_strbuf_free(&b);
    }
}

TEST(safetensors_refuses_impossible_header_lengths) {
    static const uint64_t lengths[] = {UINT64_MAX, INT64_MAX, ((uint64_t)100 << 20) + 1, 1000};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        tern_strbuf b = make(small_header, 40);
        tern_error err = {0};
        memcpy(b.ptr, &lengths[i], 8);
        CHECK(parse_and_close(b.ptr, b.len, &err) == TERN_ERR_FORMAT);
        CHECK(strstr(err.message, "header is said to be"));
        tern_strbuf_free(&b);
    }
}

TEST(safetensors_refuses_every_truncation_and_corruption) {
    tern_strbuf b = make(small_header, 40);
    size_t before = tern_mem_get_stats().total_now;
    int n_accepted = 0;
    for (size_t n = 0; n < b.len; n++) n_accepted += parse_and_close(b.ptr, n, NULL) == TERN_OK;
    CHECK(n_accepted == 0);
    static const char junk[] = {0, '"', '{', '}', '[', ']', '9', ',', '\\', (char)0xFF};
    char *bad = malloc(b.len);
    for (size_t at = 0; at < b.len - 40; at++) {
        for (size_t k = 0; k < sizeof junk; k++) {
            memcpy(bad, b.ptr, b.len);
            bad[at] = junk[k];
            n_accepted += parse_and_close(bad, b.len, NULL) == TERN_OK;
        }
    }
    CHECK(n_accepted > 0); // in names and spaces most changes are harmless
    CHECK(tern_mem_get_stats().total_now == before);
    free(bad);
    tern_strbuf_free(&b);
}

TEST(safetensors_survives_failing_allocations) {
    tern_strbuf b = make(small_header, 40);
    size_t before = tern_mem_get_stats().total_now;
    tern_status status = TERN_ERR_MEMORY;
    for (int n = 1; status != TERN_OK && n < 1000; n++) {
        tern_mem_fail_at((uint64_t)n);
        status = parse_and_close(b.ptr, b.len, NULL);
        tern_mem_fail_at(0);
        CHECK(status == TERN_OK || status == TERN_ERR_MEMORY);
        CHECK(tern_mem_get_stats().total_now == before);
    }
    CHECK(status == TERN_OK);
    tern_strbuf_free(&b);
}

// ---- Folders -----------------------------------------------------------------------------------

static void save(const char *folder, const char *name, const void *bytes, size_t n) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    REQUIRE(file != NULL);
    CHECK(fwrite(bytes, 1, n, file) == n);
    CHECK(fclose(file) == 0);
}

static void save_text(const char *folder, const char *name, const char *text) {
    save(folder, name, text, strlen(text));
}

static const char *new_folder(const char *name) {
    const char *folder = test_tmp(name);
    test_folder(folder);
    return folder;
}

#define SHARD(name) "{\"" name "\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]}}"

TEST(hf_folder_opens_shards_by_index) {
    const char *folder = new_folder("hf_shards");
    tern_strbuf a = make(SHARD("a"), 4), b = make(SHARD("b"), 4);
    save(folder, "model-1.safetensors", a.ptr, a.len);
    save(folder, "model-2.safetensors", b.ptr, b.len);
    save_text(folder, "config.json", "{\"model_type\":\"llama\"}");
    static const struct {
        const char *map, *words;
    } cases[] = {
        {"{\"weight_map\":{\"a\":\"model-1.safetensors\",\"b\":\"model-2.safetensors\"}}", NULL},
        {"{\"weight_map\":{\"a\":\"model-2.safetensors\",\"b\":\"model-1.safetensors\"}}",
         "'a' is not in model-2.safetensors"},
        {"{\"weight_map\":{\"a\":\"model-1.safetensors\",\"c\":\"model-1.safetensors\"}}",
         "'c' is not in model-1.safetensors"},
        {"{\"weight_map\":{\"a\":\"../hf_shards/model-1.safetensors\"}}", "outside of the folder"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "outside of the folder"},
        {"{\"weight_map\":{\"a\":7}}", "outside of the folder"},
        {"{\"weight_map\":{\"a\":\"model-3.safetensors\"}}", "cannot be opened"},
        {"{\"weight_map\":[]}", "no weight_map"},
        {"{\"weight_map\":", "not JSON"},
    };
    char one_shard[600];
    snprintf(one_shard, sizeof one_shard, "%s/model-2.safetensors", folder);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tern_file *f = NULL;
        tern_error err = {0};
        save_text(folder, "model.safetensors.index.json", cases[i].map);
        if (cases[i].words) {
            CHECK(tern_file_open(&f, folder, &err) != TERN_OK && !f);
            CHECK_MSG(strstr(err.message, cases[i].words), "%s", err.message);
            continue;
        }
        for (int by_shard = 0; by_shard < 2; by_shard++) { // naming a shard opens the set
            REQUIRE_OK(tern_file_open(&f, by_shard ? one_shard : folder, &err), err);
            CHECK(f->kind == TERN_FILE_HF && f->n_tensors == 2);
            CHECK(tern_file_tensor(f, "b") && tern_file_tensor(f, "b")->shard == 1);
            CHECK(tern_str_is(tern_json_str(tern_json_path(&f->config, "model_type")), "llama"));
            tern_file_close(f);
        }
    }
    tern_strbuf_free(&a);
    tern_strbuf_free(&b);
}

TEST(hf_folder_refuses_what_is_no_model) {
    const char *folder = new_folder("hf_empty");
    tern_file *f;
    tern_error err = {0};
    CHECK(tern_file_open(&f, folder, &err) == TERN_ERR_FORMAT);
    CHECK(strstr(err.message, "no model here"));
    save_text(folder, "adapter_config.json", "{}"); // seen to fail: as an empty folder
    CHECK(tern_file_open(&f, folder, &err) == TERN_ERR_UNSUPPORTED);
    CHECK(strstr(err.message, "hf_empty: an adapter, not a model"));
    CHECK(tern_file_open(&f, "/nowhere/at/all", &err) == TERN_ERR_IO);
    CHECK(tern_file_open(&f, "/dev/null", &err) == TERN_ERR_IO);
    CHECK(strstr(err.message, "not a regular file"));
    save_text(folder, "config.json", "");
    CHECK(tern_file_open(&f, folder, &err) == TERN_ERR_FORMAT);
    CHECK(strstr(err.message, "config.json"));
    save_text(folder, "config.json", "{}");
    save_text(folder, "chat_template.jinja", "{{ bos_token }}");
    REQUIRE_OK(tern_file_open(&f, folder, &err), err);
    CHECK(f->n_tensors == 0 && tern_str_is(f->chat_template, "{{ bos_token }}"));
    CHECK(f->tokenizer_json.ptr == NULL && !tern_json_root(&f->generation_config));
    tern_file_close(f);
}

// Seen to fail: a folder of GGUF files was said to lack model.safetensors; one with config.json
// alone, its number of layers.
TEST(hf_folder_names_what_is_there_instead) {
    const char *folder = new_folder("hf_ggufs");
    tern_file *f;
    tern_error err = {0};
    for (char c = 'a'; c < 'h'; c++)
        save_text(folder, (char[]){c, '.', 'g', 'g', 'u', 'f', 0}, "x");
    CHECK(tern_file_open(&f, folder, &err) == TERN_ERR_FORMAT);
    CHECK_MSG(strstr(err.message, "name the one that is meant") &&
                  strstr(err.message, "/a.gguf, ") && strstr(err.message, "/e.gguf and 2 more"),
              "%s", err.message);
    save_text(folder, "config.json", "{\"model_type\":\"llama\"}");
    REQUIRE_OK(tern_file_open(&f, folder, &err), err);
    CHECK(tern_file_need_weights(f, &err) == TERN_ERR_FORMAT);
    CHECK_MSG(strstr(err.message, "/b.gguf"), "%s", err.message);
    tern_file_close(f);
    const char *bare = new_folder("hf_bare");
    save_text(bare, "config.json", "{\"model_type\":\"llama\"}");
    REQUIRE_OK(tern_file_open(&f, bare, &err), err);
    CHECK(tern_file_need_weights(f, &err) == TERN_ERR_FORMAT);
    CHECK_MSG(
        strstr(err.message, "no weights here, only config.json: neither model.safetensors nor"),
        "%s", err.message);
    tern_file_close(f);
}

static tern_status open_packed(const char *folder, const char *quantization,
                               const char *scale_header, const uint8_t scale[4], tern_file **f,
                               tern_error *err) {
    char text[400];
    snprintf(text, sizeof text,
             "{\"l.weight\":{\"dtype\":\"U8\",\"shape\":[2,4],\"data_offsets\":[0,8]}%s}",
             scale_header);
    tern_strbuf b = make(text, 8);
    if (*scale_header) tern_strbuf_append(&b, scale, strstr(scale_header, "F32") ? 4 : 2);
    save(folder, "model.safetensors", b.ptr, b.len);
    tern_strbuf_free(&b);
    snprintf(text, sizeof text, "{\"quantization_config\":%s}", quantization);
    save_text(folder, "config.json", text);
    return tern_file_open(f, folder, err);
}

TEST(hf_packed_ternary_resolves_the_scale) {
#define SCALE(dtype, to)                                                                           \
    ",\"l.weight_scale\":{\"dtype\":\"" dtype "\",\"shape\":[1],\"data_offsets\":[8," to "]}"
    static const char autobit[] =
        "{\"quant_method\":\"bitnet\",\"linear_class\":\"autobitlinear\"}";
    static const char bit[] = "{\"quant_method\":\"bitnet\",\"linear_class\":\"bitlinear\"}";
    static const char absent[] = "{\"quant_method\":\"bitnet\"}";
    static const struct {
        const char *quantization, *header;
        uint8_t scale[4];
        float value;
    } cases[] = {
        {autobit, SCALE("BF16", "10"), {0x80, 0x40}, 4}, // 4 as bf16
        {bit, SCALE("BF16", "10"), {0x80, 0x40}, 0.25f},
        {absent, SCALE("F16", "10"), {0x00, 0x44}, 0.25f}, // bitlinear is the default
        {autobit, SCALE("F32", "12"), {0, 0, 0x80, 0x3F}, 1},
    };
    const char *folder = new_folder("hf_packed");
    tern_file *f;
    tern_error err = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        REQUIRE_OK(
            open_packed(folder, cases[i].quantization, cases[i].header, cases[i].scale, &f, &err),
            err);
        const tern_tensor *t = tern_file_tensor(f, "l.weight");
        CHECK(t && t->type == TERN_DTYPE_HF_TERNARY && t->ne[0] == 4 && t->ne[1] == 8);
        CHECK(t && t->bytes == 8 && t->scale == cases[i].value);
        tern_file_close(f);
    }
    // Bytes of another quantization stay bytes.
    REQUIRE_OK(open_packed(folder, "{\"quant_method\":\"x\"}", "", NULL, &f, &err), err);
    CHECK(tern_file_tensor(f, "l.weight")->type == TERN_DTYPE_U8);
    tern_file_close(f);
    CHECK(open_packed(folder, bit, "", NULL, &f, &err) == TERN_ERR_FORMAT);
    CHECK(strstr(err.message, "there is no 'l.weight_scale'"));
    CHECK(open_packed(folder, bit, SCALE("BF16", "10"), (uint8_t[4]){0}, &f, &err) ==
          TERN_ERR_FORMAT);
    CHECK(strstr(err.message, "not a usable scale"));
    CHECK(open_packed(folder, "{\"quant_method\":\"bitnet\",\"linear_class\":\"odd\"}",
                      SCALE("BF16", "10"), (uint8_t[4]){0}, &f, &err) == TERN_ERR_UNSUPPORTED);
#undef SCALE
}

TEST(hf_folder_survives_failing_allocations) {
    const char *folder = "tests/oracles/bitnet_packed"; // tests run in the repository's root
    size_t before = tern_mem_get_stats().total_now;
    tern_status status = TERN_ERR_MEMORY;
    int n = 1;
    for (; status != TERN_OK && n < 1000; n++) {
        tern_file *f;
        tern_mem_fail_at((uint64_t)n);
        status = tern_file_open(&f, folder, NULL);
        tern_mem_fail_at(0);
        CHECK(status == TERN_OK || status == TERN_ERR_MEMORY);
        if (status == TERN_OK) tern_file_close(f);
        CHECK(tern_mem_get_stats().total_now == before);
    }
    CHECK_MSG(status == TERN_OK && n > 10, "%d allocations", n);
}

TEST(hf_opens_real_folders) {
    static const char *const names[] = {
        "bitnet_packed", "bitnet_bf16_master", "llama",  "qwen2",    "qwen3", "qwen3_5", "lfm2",
        "gemma3",        "embeddinggemma",     "gemma4", "moonshine"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[64];
        snprintf(name, sizeof name, "oracle/%s", names[i]);
        const char *folder = test_data(name);
        if (!folder) return;
        tern_file *f;
        tern_error err = {0};
        REQUIRE_OK(tern_file_open(&f, folder, &err), err);
        CHECK(f->n_tensors > 20 && tern_json_root(&f->config));
        tern_file_close(f);
        char golden[700];
        snprintf(golden, sizeof golden, "%s/golden.safetensors", folder);
        REQUIRE_OK(tern_file_open(&f, golden, &err), err); // only this file, not the model
        CHECK(!tern_file_tensor(f, "model.norm.weight"));
        CHECK(tern_file_tensor(f, "logits") || tern_file_tensor(f, "last_hidden_state"));
        tern_file_close(f);
    }
    tern_file *f;
    tern_error err = {0};
    REQUIRE_OK(tern_file_open(&f, test_data("oracle/bitnet_packed"), &err), err);
    const tern_tensor *t = tern_file_tensor(f, "model.layers.0.mlp.down_proj.weight");
    REQUIRE(t && t->type == TERN_DTYPE_HF_TERNARY);
    CHECK(t->ne[0] == 384 && t->ne[1] == 128 && t->bytes == 384 * 128 / 4);
    CHECK(t->scale > 0 && t->scale < 10);
    tern_file_close(f);
}

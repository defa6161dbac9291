// Against Hugging Face's own tokenizers: small vocabularies of every kind, and the library's ids
// for texts that are hard to split (tests/reference/peers/tokenizers.cjs).
#include "input/tokenizer/tok.h"
#include "input/tokenizer/tests/tok_fixture.h"

#define FOLDER "tests/oracles/tokenizers/" // tests run in the repository's root

// Reads the ids of a JSON array; returns their number.
static size_t read_ids(const tern_json_doc *doc, const tern_json *array, int32_t *ids, size_t max) {
    size_t n = 0;
    for (const tern_json *v = tern_json_first(doc, array); v;
         v = tern_json_next(doc, array, v), n++)
        if (n < max) ids[n] = (int32_t)tern_json_int(v, -1);
    return n;
}

static void check_ids(const char *name, const tern_tokenizer *t, tern_str text, unsigned flags,
                      const int32_t *want, size_t n_want) {
    tern_ids got = {0};
    tern_error err = {0};
    CHECK(tern_tokenizer_encode(t, text.ptr, text.len, flags, &got, &err) == TERN_OK);
    size_t same = 0;
    while (same < got.n && same < n_want && got.ids[same] == want[same]) same++;
    CHECK_MSG(same == got.n && same == n_want,
              "%s, flags %u: \"%.*s\": token %zu should be %d, is %d (%zu ids, not %zu)", name,
              flags, (int)text.len, text.ptr, same, same < n_want ? (int)want[same] : -1,
              same < got.n ? (int)got.ids[same] : -1, got.n, n_want);
    tern_free(got.ids);
}

// One text: [ids, ids with BOS, decoded].
static void check_text(const char *name, const tern_tokenizer *t, tern_str text,
                       const tern_json_doc *doc, const tern_json *row) {
    int32_t ids[256];
    const tern_json *plain = tern_json_first(doc, row), *begun = tern_json_next(doc, row, plain);
    tern_str decoded = tern_json_str(tern_json_next(doc, row, begun));
    size_t n = read_ids(doc, begun, ids, 256);
    check_ids(name, t, text, TERN_TOKENIZE_SPECIAL | TERN_TOKENIZE_BOS, ids, n);
    n = read_ids(doc, plain, ids, 256);
    check_ids(name, t, text, TERN_TOKENIZE_SPECIAL, ids, n);
    tern_strbuf back = fixture_decode(t, ids, n, true);
    bool same = back.len == decoded.len && // an empty text has no bytes to compare
                (back.len == 0 || memcmp(back.ptr, decoded.ptr, back.len) == 0);
    CHECK_MSG(same, "%s: \"%.*s\" is decoded as \"%s\"", name, (int)text.len, text.ptr,
              tern_strbuf_text(&back));
    tern_strbuf_free(&back);
}

static bool read_json(const char *name, const char *end, fixture_text *text, tern_json_doc *doc) {
    char path[200];
    snprintf(path, sizeof path, FOLDER "%s%s", name, end);
    *text = fixture_read(path);
    bool ok = text->ptr && tern_json_parse(doc, text->ptr, text->n, NULL) == TERN_OK;
    CHECK_MSG(ok, "%s", path);
    return ok;
}

static size_t check_texts(const char *name, const tern_tokenizer *t) {
    fixture_text texts = {0}, vectors = {0};
    tern_json_doc a = {0}, b = {0};
    size_t n = 0;
    if (read_json("texts", ".json", &texts, &a) && read_json(name, ".ids.json", &vectors, &b)) {
        const tern_json *x = tern_json_root(&a), *y = tern_json_root(&b);
        const tern_json *text = tern_json_first(&a, x), *row = tern_json_first(&b, y);
        for (; text && row; n++) {
            check_text(name, t, tern_json_str(text), &b, row);
            text = tern_json_next(&a, x, text);
            row = tern_json_next(&b, y, row);
        }
        CHECK(!text && !row);
    }
    tern_json_free(&a);
    tern_json_free(&b);
    tern_free(texts.ptr);
    tern_free(vectors.ptr);
    return n;
}

// From tokenizer.json and, if `converts`, also from the GGUF made of it.
static void check_tokenizer(const char *name, bool converts) {
    tern_error err = {0};
    tern_tokenizer *t = NULL, *converted = NULL;
    char path[200];
    snprintf(path, sizeof path, FOLDER "%s.json", name);
    fixture_text json = fixture_read(path);
    CHECK_MSG(json.ptr != NULL, "%s", path);
    tern_status status = fixture_open_json(&t, json.ptr, json.n, NULL, NULL, &err);
    CHECK_MSG(status == TERN_OK, "%s: %s", name, err.message);
    if (t) CHECK(check_texts(name, t) > 100);
    if (t && converts) converted = fixture_through_gguf(t, "oracle.gguf", true);
    if (converted) CHECK(check_texts(name, converted) > 100);
    tern_tokenizer_free(converted);
    tern_tokenizer_free(t);
    tern_free(json.ptr);
}

TEST(tok_oracle_llama3) { check_tokenizer("llama3", true); }
TEST(tok_oracle_qwen2) { check_tokenizer("qwen2", false); }
TEST(tok_oracle_gpt2) { check_tokenizer("gpt2", true); }
TEST(tok_oracle_digits) { check_tokenizer("digits", false); }
TEST(tok_oracle_deepseek) { check_tokenizer("deepseek", false); }
TEST(tok_oracle_llama2) { check_tokenizer("llama2", true); }
TEST(tok_oracle_mistral) { check_tokenizer("mistral", false); }
TEST(tok_oracle_gemma) { check_tokenizer("gemma", true); }

// ---- Ways to split text by name -----------------------------------------------------------------

static size_t count_chars(const char *text, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

static void check_pieces(const char *name, const tern_splitter *s, tern_str text,
                         const tern_json_doc *doc, const tern_json *row) {
    tern_pieces pieces = {0};
    tern_error err = {0};
    CHECK_MSG(tern_splitter_run(s, text.ptr, text.len, true, &pieces, &err) == TERN_OK, "%s: %s",
              name, err.message);
    const tern_json *want = tern_json_first(doc, row);
    size_t i = 0;
    for (; want && i < pieces.n; i++, want = tern_json_next(doc, row, want))
        if (count_chars(pieces.text + pieces.list[i].at, pieces.list[i].n) != (size_t)want->number)
            break;
    CHECK_MSG(!want && i == pieces.n, "%s: \"%.*s\": piece %zu of %zu", name, (int)text.len,
              text.ptr, i, pieces.n);
    tern_pieces_free(&pieces);
}

// Seen to fail with "\\p{N}{2,2}" in THREES, without NO_HAN, with the CJK class of deepseek-llm
// left out and with "jais-2" as llama-bpe.
TEST(tok_oracle_splits_by_name) {
    fixture_text texts = {0}, file = {0};
    tern_json_doc a = {0}, b = {0};
    tern_error err = {0};
    size_t n = 0;
    REQUIRE(read_json("texts", ".json", &texts, &a) && read_json("splits", ".json", &file, &b));
    const tern_json *all = tern_json_root(&b), *list = tern_json_root(&a);
    for (const tern_json *m = tern_json_first(&b, all); m; m = tern_json_next(&b, all, m), n++) {
        char name[64];
        tern_splitter s = {0};
        snprintf(name, sizeof name, "%.*s", (int)m->n, m->text);
        const tern_pre *pre = tern_pre_find((tern_str){m->text, m->n});
        REQUIRE(pre != NULL);
        REQUIRE_OK(tern_pre_add_steps(pre, &s, &err), err);
        const tern_json *rows = tern_json_value_of(&b, m), *row = tern_json_first(&b, rows);
        const tern_json *text = tern_json_first(&a, list);
        for (; text && row; text = tern_json_next(&a, list, text)) {
            check_pieces(name, &s, tern_json_str(text), &b, row);
            row = tern_json_next(&b, rows, row);
        }
        CHECK(!text && !row);
        tern_splitter_close(&s);
    }
    CHECK(n >= 25);
    tern_json_free(&a);
    tern_json_free(&b);
    tern_free(texts.ptr);
    tern_free(file.ptr);
}

// Gemma 4's kind of GGUF: characters merged by rank, spaces as marks, lines separate.
TEST(tok_gemma4_gguf) {
    static const tern_str tokens[] = {TERN_STR("<0x0A>"),
                                      TERN_STR("<0xC3>"),
                                      TERN_STR("<0xA9>"),
                                      TERN_STR("\xE2\x96\x81"),
                                      TERN_STR("a"),
                                      TERN_STR("b"),
                                      TERN_STR("\xE2\x96\x81"
                                               "a"),
                                      TERN_STR("\n"),
                                      TERN_STR("\n\n"),
                                      TERN_STR("ba")};
    static const tern_str merges[] = {TERN_STR("\xE2\x96\x81 a"), TERN_STR("\n \n"),
                                      TERN_STR("b a")};
    static const int32_t types[] = {6, 6, 6, 1, 1, 1, 1, 1, 1, 1};
    tern_error err = {0};
    for (int i = 0; i < 2; i++) { // by the model's name, and by the way to split
        tern_gguf_writer *w = NULL;
        tern_file *file = NULL;
        tern_tokenizer *t = NULL;
        const char *path = test_tmp("gemma4.gguf");
        uint64_t ne[4] = {4, 1, 1, 1};
        const float zeros[4] = {0};
        REQUIRE_OK(tern_gguf_writer_open(&w, path, 0, &err), err);
        tern_gguf_put_str(w, "general.architecture", TERN_STR("llama"));
        tern_gguf_put_str(w, "tokenizer.ggml.model", i ? TERN_STR("gpt2") : TERN_STR("gemma4"));
        if (i) tern_gguf_put_str(w, "tokenizer.ggml.pre", TERN_STR("sarvam-moe"));
        tern_gguf_put_strings(w, "tokenizer.ggml.tokens", tokens, 10);
        tern_gguf_put_array(w, "tokenizer.ggml.token_type", TERN_META_I32, types, 10);
        tern_gguf_put_strings(w, "tokenizer.ggml.merges", merges, 3);
        REQUIRE(tern_gguf_declare(w, "x", TERN_DTYPE_F32, 1, ne) == TERN_OK);
        REQUIRE_OK(tern_gguf_write(w, zeros, sizeof zeros, &err), err);
        REQUIRE_OK(tern_gguf_writer_finish(w, &err), err);
        tern_gguf_writer_free(w);
        REQUIRE_OK(tern_file_open(&file, path, &err), err);
        REQUIRE_OK(tern_tokenizer_open(&t, file, &err), err);
        CHECK_IDS(t, "ba a\n\na\xC3\xA9 b", TERN_TOKENIZE_PLAIN, 9, 6, 8, 4, 1, 2, 3, 5);
        tern_tokenizer_free(t);
        tern_file_close(file);
    }
}

// Against Hugging Face's own tokenizers: small vocabularies of every kind, and the library's ids
// for texts that are hard to split (tests/reference/tokenizers.cjs).
#include "input/tok_fixture.h"

#define FOLDER "tests/oracles/tokenizers/" // tests run in the repository's root

// The ids of a JSON array; the number that it has.
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
    bool same = back.len == decoded.len && // nothing has no bytes to compare
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

TEST(tok_oracle_llama3) {
    check_tokenizer("llama3", true);
}
TEST(tok_oracle_qwen2) {
    check_tokenizer("qwen2", false);
}
TEST(tok_oracle_gpt2) {
    check_tokenizer("gpt2", true);
}
TEST(tok_oracle_digits) {
    check_tokenizer("digits", false);
}
TEST(tok_oracle_deepseek) {
    check_tokenizer("deepseek", false);
}
TEST(tok_oracle_llama2) {
    check_tokenizer("llama2", true);
}
TEST(tok_oracle_mistral) {
    check_tokenizer("mistral", false);
}
TEST(tok_oracle_gemma) {
    check_tokenizer("gemma", true);
}

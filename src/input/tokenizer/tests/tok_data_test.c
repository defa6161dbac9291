// Against other programs: ids of the models' own tokenizers for real and for hostile text.
#include <time.h>
#include "input/tokenizer/tests/tok_fixture.h"

// ---- llama.cpp's vectors: cases in .inp, a line of ids for each in .out -------------------------

static void check_case(const tern_tokenizer *t, const char *text, size_t n, const char *line,
                       const char *name) {
    tern_ids ids = {0};
    tern_error err = {0};
    CHECK(tern_tokenizer_encode(t, text, n, TERN_TOKENIZE_PLAIN, &ids, &err) == TERN_OK);
    char *at = (char *)(uintptr_t)line;
    size_t i = 0;
    bool same = true;
    while (*at == ' ') at++;
    while (*at && *at != '\n' && same) {
        long id = strtol(at, &at, 10);
        while (*at == ' ') at++;
        same = i < ids.n && ids.ids[i] == (int32_t)id;
        i++;
    }
    CHECK_MSG(same && i == ids.n, "%s: \"%.*s\": token %zu of %zu", name, (int)n, text, i, ids.n);
    tern_free(ids.ids);
}

static void run_llama_cpp_vectors(const char *vocabulary, const char *name) {
    static const char separator[] = "\n__ggml_vocab_test__\n";
    char path[256];
    snprintf(path, sizeof path, "tokenizers/llama.cpp-vectors/ggml-vocab-%s.gguf.inp", name);
    fixture_text in = fixture_read(test_data(path));
    snprintf(path, sizeof path, "tokenizers/llama.cpp-vectors/ggml-vocab-%s.gguf.out", name);
    fixture_text out = fixture_read(test_data(path));
    tern_tokenizer *t = in.ptr && out.ptr ? fixture_open(vocabulary) : NULL;
    int n_cases = 0;
    const char *line = out.ptr;
    for (const char *text = in.ptr; t && text;) {
        const char *end = strstr(text, separator);
        if (!end) break; // after the last separator there is nothing
        REQUIRE(line && *line);
        check_case(t, text, (size_t)(end - text), line, name);
        n_cases++;
        text = end + strlen(separator);
        line = strchr(line, '\n');
        if (line) line++;
    }
    if (t) CHECK(n_cases > 40);
    tern_tokenizer_free(t);
    tern_free(in.ptr);
    tern_free(out.ptr);
}

TEST(tok_llama_cpp_vectors_llama_bpe) {
    run_llama_cpp_vectors("tokenizers/gguf/vocab-llama3_1.gguf", "llama-bpe");
}
TEST(tok_llama_cpp_vectors_gpt2) {
    run_llama_cpp_vectors("tokenizers/gguf/ggml-vocab-gpt-2.gguf", "gpt-2");
}
TEST(tok_llama_cpp_vectors_qwen2) {
    run_llama_cpp_vectors("tokenizers/gguf/vocab-qwen3.gguf", "qwen2");
}
TEST(tok_llama_cpp_vectors_deepseek_r1_qwen) {
    run_llama_cpp_vectors("tokenizers/gguf/vocab-qwen3.gguf", "deepseek-r1-qwen");
}
TEST(tok_llama_cpp_vectors_llama_spm) {
    run_llama_cpp_vectors("tokenizers/gguf/ggml-vocab-llama-spm.gguf", "llama-spm");
}
TEST(tok_llama_cpp_vectors_phi3) { // Llama-2's vocabulary
    run_llama_cpp_vectors("tokenizers/gguf/ggml-vocab-llama-spm.gguf", "phi-3");
}

TEST(tok_llama_cpp_vectors_bert) {
    run_llama_cpp_vectors("tokenizers/gguf/ggml-vocab-bert-bge.gguf", "bert-bge");
}

// ---- Golden ids, line by line -------------------------------------------------------------------

static void run_golden(const char *vocabulary, const char *name, const char *set,
                       const char *text_path) {
    char path[256];
    snprintf(path, sizeof path, "golden/tokenizer/%s.%s.ids.i32", name, set);
    fixture_text want = fixture_read(test_data(path));
    snprintf(path, sizeof path, "golden/tokenizer/%s.%s.linecounts.i32", name, set);
    fixture_text counts = fixture_read(test_data(path));
    fixture_text text = fixture_read(test_data(text_path));
    tern_tokenizer *t = want.ptr && counts.ptr && text.ptr ? fixture_open(vocabulary) : NULL;
    const int32_t *next = (const int32_t *)(const void *)want.ptr;
    const char *line = text.ptr, *end = text.ptr + text.n;
    tern_ids ids = {0};
    int n_bad = 0;
    for (size_t i = 0; t && i < counts.n / 4; i++) {
        int32_t n = ((const int32_t *)(const void *)counts.ptr)[i];
        const char *stop = line < end ? memchr(line, '\n', (size_t)(end - line)) : NULL;
        if (!stop) stop = end;
        ids.n = 0;
        tern_error err = {0};
        CHECK(tern_tokenizer_encode(t, line, (size_t)(stop - line), TERN_TOKENIZE_PLAIN, &ids,
                                    &err) == TERN_OK);
        bool same = ids.n == (size_t)n && (n == 0 || memcmp(ids.ids, next, 4 * ids.n) == 0);
        if (!same && n_bad++ < 5)
            CHECK_MSG(same, "%s, line %zu: %.*s", name, i + 1, (int)(stop - line), line);
        next += n;
        line = stop < end ? stop + 1 : end;
    }
    CHECK_MSG(n_bad == 0, "%s %s: %d lines differ", name, set, n_bad);
    tern_free(ids.ids);
    tern_tokenizer_free(t);
    tern_free(want.ptr);
    tern_free(counts.ptr);
    tern_free(text.ptr);
}

#define WIKI "eval/wikitext-2-raw/wiki.test.raw"
#define BLNS "torture/blns/blns.txt"
static void run_both(const char *vocabulary, const char *name) {
    run_golden(vocabulary, name, "wiki_test", WIKI);
    run_golden(vocabulary, name, "blns", BLNS);
}

TEST(tok_golden_llama3) { run_both("tokenizers/llama3_1/tokenizer.json", "llama3_1"); }
TEST(tok_golden_llama3_gguf) { run_both("tokenizers/gguf/vocab-llama3_1.gguf", "llama3_1"); }
TEST(tok_golden_qwen3) { run_both("tokenizers/qwen3/tokenizer.json", "qwen3"); }
TEST(tok_golden_qwen3_gguf) { run_both("tokenizers/gguf/vocab-qwen3.gguf", "qwen3"); }
TEST(tok_golden_gemma3) { run_both("tokenizers/gemma3/tokenizer.json", "gemma3"); }
TEST(tok_golden_moonshine) { run_both("tokenizers/moonshine/tokenizer.json", "moonshine"); }
TEST(tok_golden_llama2) { run_both("tokenizers/kitoken-models/llama2.json", "llama2"); }
TEST(tok_golden_llama2_by_scores) {
    run_both("tokenizers/gguf/ggml-vocab-llama-spm.gguf", "llama2");
}

TEST(tok_golden_llama2_model) { run_both("tokenizers/llama2-spm/tokenizer.model", "llama2"); }

// ---- kitoken's vectors --------------------------------------------------------------------------
//
// "small" and "mixed" have a text a line, with \n for a newline and \s for a space at the end;
// "utf8" is one text. Special tokens in the text are recognised.

static size_t unescape(const char *from, size_t n, char *to) {
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        char next = from[i] == '\\' && i + 1 < n ? from[i + 1] : 0;
        to[k++] = next == 'n' ? '\n' : next == 's' && i + 2 == n ? ' ' : from[i];
        if (to[k - 1] != from[i]) i++;
    }
    return k;
}

static void check_list(const tern_tokenizer *t, const char *text, size_t n, const char *list,
                       const char *what, int line) {
    bool pads = !strncmp(what, "gte", 3);
    tern_ids ids = {0};
    tern_error err = {0};
    CHECK(tern_tokenizer_encode(t, text, n, TERN_TOKENIZE_SPECIAL, &ids, &err) == TERN_OK);
    char *at = (char *)(uintptr_t)list;
    size_t i = 0;
    bool same = true;
    while (same && (*at == ' ' || (*at >= '0' && *at <= '9'))) {
        long id = strtol(at, &at, 10);
        bool is_pad = pads && i >= ids.n && id == 0; // to 512 tokens
        same = is_pad || (i < ids.n && ids.ids[i] == (int32_t)id);
        i++;
        while (*at == ',' || *at == ' ') at++;
    }
    CHECK_MSG(same && (i == ids.n || (pads && i == 512)), "%s line %d: token %zu of %zu: %.*s",
              what, line, i, ids.n, (int)(n < 60 ? n : 60), text);
    tern_free(ids.ids);
}

static void run_kitoken(const tern_tokenizer *t, const char *name, const char *set) {
    char path[256], what[64];
    snprintf(what, sizeof what, "%s %s", name, set);
    snprintf(path, sizeof path, "tokenizers/kitoken-vectors/%s_input.txt", set);
    fixture_text in = fixture_read(test_data(path));
    snprintf(path, sizeof path, "tokenizers/kitoken-vectors/%s_tokens_%s.txt", set, name);
    fixture_text out = fixture_read(test_data(path));
    char *buffer = in.ptr ? tern_alloc(TERN_MEM_MISC, in.n + 1) : NULL;
    if (!buffer || !out.ptr) {
    } else if (!strcmp(set, "utf8")) {
        check_list(t, in.ptr, in.n, out.ptr, what, 0);
    } else {
        const char *text = in.ptr, *list = out.ptr;
        int line = 0;
        while (*text && *list) {
            size_t n = strcspn(text, "\n");
            check_list(t, buffer, unescape(text, n, buffer), list, what, ++line);
            text += n + (text[n] != 0);
            list += strcspn(list, "\n");
            list += *list != 0;
        }
        CHECK(line >= 20);
    }
    tern_free(buffer);
    tern_free(in.ptr);
    tern_free(out.ptr);
}

static void run_kitoken_sets(const char *vocabulary, const char *name) {
    tern_tokenizer *t = fixture_open(vocabulary);
    if (!t) return;
    run_kitoken(t, name, "small");
    run_kitoken(t, name, "mixed");
    run_kitoken(t, name, "utf8");
    tern_tokenizer_free(t);
}

TEST(tok_kitoken_gpt2) { run_kitoken_sets("tokenizers/kitoken-models/gpt2.json", "gpt2"); }
TEST(tok_kitoken_llama2) { run_kitoken_sets("tokenizers/kitoken-models/llama2.json", "llama2"); }
TEST(tok_kitoken_bert_cased) {
    run_kitoken_sets("tokenizers/kitoken-models/bert_base_cased.json", "bert_base_cased");
}
TEST(tok_kitoken_gte) { run_kitoken_sets("tokenizers/kitoken-models/gte.json", "gte"); }
TEST(tok_kitoken_modernbert) {
    run_kitoken_sets("tokenizers/kitoken-models/modernbert.json", "modernbert");
}
TEST(tok_kitoken_llama32) { run_kitoken_sets("tokenizers/llama3_1/tokenizer.json", "llama32"); }
TEST(tok_kitoken_gemma3) { run_kitoken_sets("tokenizers/gemma3/tokenizer.json", "gemma3"); }

// ---- There and back -----------------------------------------------------------------------------

// The length of the common prefix. To SentencePiece a U+2581 of the text is a space: only these may
// differ, at any place.
static size_t same_bytes(const char *text, size_t n, const char *back, size_t n_back) {
    size_t i = 0, k = 0;
    while (i < n && k < n_back) {
        bool is_space = back[k] == ' ' && n - i >= 3 && memcmp(text + i, "\xE2\x96\x81", 3) == 0;
        if (!is_space && text[i] != back[k]) break;
        i += is_space ? 3 : 1;
        k++;
    }
    return k == n_back ? i : i < n ? i : n - 1;
}

static void run_round_trip(const char *vocabulary) {
    static const char *const files[] = {
        "torture/utf8/utf8_sequence_0-0x10ffff_assigned_printable.txt",
        "torture/utf8/utf8_sequence_0-0xffff_assigned_printable_unseparated.txt",
        "torture/unicode_emoji_12_0_test.txt",
        BLNS,
    };
    tern_tokenizer *t = fixture_open(vocabulary);
    for (size_t i = 0; t && i < sizeof files / sizeof *files; i++) {
        fixture_text text = fixture_read(test_data(files[i]));
        if (!text.ptr) continue;
        tern_ids ids = {0};
        tern_error err = {0};
        CHECK(tern_tokenizer_encode(t, text.ptr, text.n, 0, &ids, &err) == TERN_OK);
        tern_strbuf back = fixture_decode(t, ids.ids, ids.n, false);
        size_t same = same_bytes(text.ptr, text.n, back.ptr, back.len);
        CHECK_MSG(same == text.n, "%s %s: differs at byte %zu", vocabulary, files[i], same);
        tern_strbuf_free(&back);
        tern_free(ids.ids);
        tern_free(text.ptr);
    }
    tern_tokenizer_free(t);
}

TEST(tok_round_trip_llama3) { run_round_trip("tokenizers/gguf/vocab-llama3_1.gguf"); }
TEST(tok_round_trip_gpt2) { run_round_trip("tokenizers/gguf/ggml-vocab-gpt-2.gguf"); }
TEST(tok_round_trip_llama2) { run_round_trip("tokenizers/gguf/ggml-vocab-llama-spm.gguf"); }
TEST(tok_round_trip_gemma3) { run_round_trip("tokenizers/gemma3/tokenizer.json"); }

// ---- Conversion ---------------------------------------------------------------------------------

static void run_conversion(const char *vocabulary) {
    fixture_text text = fixture_read(test_data(WIKI));
    tern_tokenizer *t = text.ptr ? fixture_open(vocabulary) : NULL;
    tern_tokenizer *back = t ? fixture_through_gguf(t, "vocabulary.gguf", true) : NULL;
    if (back) {
        tern_ids a = {0}, b = {0};
        tern_error err = {0};
        CHECK(tern_tokenizer_encode(t, text.ptr, text.n, 3, &a, &err) == TERN_OK);
        CHECK(tern_tokenizer_encode(back, text.ptr, text.n, 3, &b, &err) == TERN_OK);
        CHECK_MSG(a.n == b.n && memcmp(a.ids, b.ids, a.n * sizeof *a.ids) == 0, "%s", vocabulary);
        tern_free(a.ids);
        tern_free(b.ids);
    }
    tern_tokenizer_free(back);
    tern_tokenizer_free(t);
    tern_free(text.ptr);
}

TEST(tok_conversion_keeps_the_ids) {
    run_conversion("tokenizers/llama3_1/tokenizer.json");
    run_conversion("tokenizers/qwen3/tokenizer.json");
    run_conversion("tokenizers/gemma3/tokenizer.json");
    run_conversion("tokenizers/kitoken-models/llama2.json");
    run_conversion("tokenizers/kitoken-models/gpt2.json");
    run_conversion("oracle/bitnet_packed/tokenizer.json");
}

// A vocabulary with scores, written as tokenizer.json, gives the same ids and the same text. Seen
// to fail with the order of merges reversed, and without the decoder's Strip.
static void check_json_of(const tern_tokenizer *t, const char *vocabulary) {
    static const char *const files[] = {
        WIKI, BLNS, "torture/utf8/utf8_sequence_0-0x10ffff_assigned_printable.txt",
        "torture/unicode_emoji_12_0_test.txt"};
    tern_strbuf json = {0}, config = {0};
    tern_error err = {0};
    tern_tokenizer *back = NULL;
    REQUIRE_OK(tern_tokenizer_write_json(t, (tern_str){NULL, 0}, &json, &config, &err), err);
    tern_file file = {.kind = TERN_FILE_HF, .path = "x", .tokenizer_json = {json.ptr, json.len}};
    REQUIRE_OK(tern_json_parse(&file.tokenizer_config, config.ptr, config.len, &err), err);
    REQUIRE_OK(tern_tokenizer_open(&back, &file, &err), err);
    CHECK(tern_tokenizer_n_vocab(back) == tern_tokenizer_n_vocab(t));
    CHECK(tern_tokenizer_bos(back) == tern_tokenizer_bos(t));
    CHECK(tern_tokenizer_eos(back) == tern_tokenizer_eos(t));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        fixture_text text = fixture_read(test_data(files[i]));
        tern_ids a = {0}, b = {0};
        if (!text.ptr) continue;
        CHECK(tern_tokenizer_encode(t, text.ptr, text.n, 3, &a, &err) == TERN_OK);
        CHECK(tern_tokenizer_encode(back, text.ptr, text.n, 3, &b, &err) == TERN_OK);
        size_t same = 0;
        while (same < a.n && same < b.n && a.ids[same] == b.ids[same]) same++;
        CHECK_MSG(same == a.n && same == b.n, "%s: %s differs at id %zu of %zu", vocabulary,
                  files[i], same, a.n);
        tern_strbuf x = fixture_decode(t, a.ids, a.n, false);
        tern_strbuf y = fixture_decode(back, a.ids, a.n, false);
        CHECK_MSG(x.len == y.len && memcmp(x.ptr, y.ptr, x.len) == 0, "%s: %s", vocabulary,
                  files[i]);
        tern_strbuf_free(&x);
        tern_strbuf_free(&y);
        tern_free(a.ids);
        tern_free(b.ids);
        tern_free(text.ptr);
    }
    tern_tokenizer_free(back);
    tern_json_free(&file.tokenizer_config);
    tern_strbuf_free(&json);
    tern_strbuf_free(&config);
}

TEST(tok_scores_become_json_with_the_same_ids) {
    static const char *const vocabularies[] = {"tokenizers/gguf/ggml-vocab-llama-spm.gguf",
                                               "models/stories260K/stories260K.f32.gguf"};
    for (size_t i = 0; i < 2; i++) {
        tern_tokenizer *t = fixture_open(vocabularies[i]);
        if (t) check_json_of(t, vocabularies[i]);
        tern_tokenizer_free(t);
    }
    tern_tokenizer *json = fixture_open("tokenizers/gemma3/tokenizer.json");
    tern_tokenizer *t = json ? fixture_through_gguf(json, "gemma.gguf", true) : NULL;
    if (t) check_json_of(t, "gemma3");
    tern_tokenizer_free(t);
    tern_tokenizer_free(json);
}

// ---- Work -------------------------------------------------------------------------------------

// Seconds of CPU time, so that other programs do not matter.
static double encode_seconds(const tern_tokenizer *t, const char *text, size_t n, size_t *n_ids) {
    tern_ids ids = {0};
    tern_error err = {0};
    clock_t start = clock();
    CHECK(tern_tokenizer_encode(t, text, n, 0, &ids, &err) == TERN_OK);
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    *n_ids = ids.n;
    tern_free(ids.ids);
    return seconds;
}

static void check_work(const char *vocabulary) {
    fixture_text text = fixture_read(test_data(WIKI));
    tern_tokenizer *t = text.ptr ? fixture_open(vocabulary) : NULL;
    if (t) {
        size_t n_eighth, n_all;
        double eighth = encode_seconds(t, text.ptr, text.n / 8, &n_eighth);
        double all = encode_seconds(t, text.ptr, text.n, &n_all);
        CHECK(n_all > 250000 && n_all < 400000);
        CHECK_MSG(all < 24 * eighth + 0.05, "%s: %.3f s for an eighth, %.3f s for all", vocabulary,
                  eighth, all);
        if (getenv("TERN_TEST_TIMES"))
            printf("%s: %.0f ms, %zu ids\n", vocabulary, all * 1e3, n_all);
    }
    tern_tokenizer_free(t);
    tern_free(text.ptr);
}

// Eight times the text is about eight times the work. Seen to fail when each piece counted those
// before it.
TEST(tok_work_grows_with_the_text_alone) {
#ifdef __SANITIZE_ADDRESS__ // its memmem always reads the whole rest of the text
    test_skip("the address sanitizer's own work grows faster than the text");
    return;
#endif
    check_work("tokenizers/gguf/vocab-llama3_1.gguf");
    check_work("tokenizers/gguf/vocab-qwen3.gguf");
    check_work("tokenizers/gguf/ggml-vocab-gpt-2.gguf");
    check_work("tokenizers/gguf/ggml-vocab-llama-spm.gguf");
    check_work("tokenizers/gemma3/tokenizer.json");
    check_work("tokenizers/kitoken-models/llama2.json");
}

// ---- A GGUF vocabulary written as tokenizer.json gives the same ids -----------------------------

static void write_text(const char *folder, const char *name, const tern_strbuf *text) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    REQUIRE(f != NULL);
    CHECK(fwrite(text->ptr, 1, text->len, f) == text->len);
    fclose(f);
}

static void check_same_ids(const tern_tokenizer *a, const tern_tokenizer *b, const char *text,
                           size_t n) {
    tern_ids x = {0}, y = {0};
    tern_error err = {0};
    for (unsigned flags = 0; flags < 4; flags++) {
        x.n = y.n = 0;
        CHECK(tern_tokenizer_encode(a, text, n, flags, &x, &err) == TERN_OK);
        CHECK(tern_tokenizer_encode(b, text, n, flags, &y, &err) == TERN_OK);
        CHECK_MSG(x.n == y.n && memcmp(x.ids, y.ids, x.n * sizeof *x.ids) == 0,
                  "flags %u: %zu and %zu ids", flags, x.n, y.n);
    }
    tern_free(x.ids);
    tern_free(y.ids);
}

static void check_written(const char *vocabulary) {
    tern_tokenizer *t = fixture_open(vocabulary), *again;
    fixture_text text = fixture_read(test_data(BLNS));
    tern_strbuf json = {0}, config = {0};
    tern_error err = {0};
    tern_file *file;
    if (t && text.ptr) {
        REQUIRE_OK(tern_tokenizer_write_json(t, TERN_STR("{{ messages }}"), &json, &config, &err),
                   err);
        char folder[512];
        snprintf(folder, sizeof folder, "%s", test_tmp("written_tokenizer"));
        test_folder(folder);
        write_text(folder, "tokenizer.json", &json);
        write_text(folder, "tokenizer_config.json", &config);
        REQUIRE_OK(tern_file_open(&file, folder, &err), err);
        REQUIRE_OK(tern_tokenizer_open(&again, file, &err), err);
        check_same_ids(t, again, text.ptr, text.n);
        check_same_ids(t, again, "<|im_start|>user\nHi<|im_end|><|begin_of_text|> x", 49);
        tern_tokenizer_free(again);
        tern_file_close(file);
    }
    tern_strbuf_free(&json);
    tern_strbuf_free(&config);
    tern_tokenizer_free(t);
    tern_free(text.ptr);
}

TEST(tok_gguf_written_as_json_llama3) { check_written("tokenizers/gguf/vocab-llama3_1.gguf"); }
TEST(tok_gguf_written_as_json_qwen3) { check_written("tokenizers/gguf/vocab-qwen3.gguf"); }
TEST(tok_gguf_written_as_json_gpt2) { check_written("tokenizers/gguf/ggml-vocab-gpt-2.gguf"); }

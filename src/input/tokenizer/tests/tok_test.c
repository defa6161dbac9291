#include "input/tokenizer/tests/tok_fixture.h"
#include "base/utf8.h"
#include "input/tokenizer/tok_small.h"

static tern_tokenizer *open_text(const char *json, const char *tokenizer_config,
                                 const char *config) {
    tern_tokenizer *t = NULL;
    tern_error err = {0};
    tern_status status = fixture_open_json(&t, json, strlen(json), tokenizer_config, config, &err);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    return t;
}

static tern_tokenizer *open_byte_level(const char *tokenizer_config, const char *config) {
    tern_strbuf json = {0};
    small_byte_level(&json, SMALL_LLAMA3, false);
    tern_tokenizer *t = open_text(tern_strbuf_text(&json), tokenizer_config, config);
    tern_strbuf_free(&json);
    return t;
}

static tern_tokenizer *open_sentencepiece(void) {
    tern_strbuf json = {0};
    small_sentencepiece(&json);
    tern_tokenizer *t = open_text(tern_strbuf_text(&json), NULL, NULL);
    tern_strbuf_free(&json);
    return t;
}

TEST(tok_byte_level_merges_bytes) {
    tern_tokenizer *t = open_byte_level(NULL, NULL);
    REQUIRE(t);
    CHECK(tern_tokenizer_n_vocab(t) == 268);
    CHECK_IDS(t, "the", 0, 't', 257); // "t he": no merge makes "th"
    CHECK_IDS(t, "a the", 0, 'a', 258);
    CHECK_IDS(t, "123", 0, 260, '3');
    CHECK_IDS(t, "x   y", 0, 'x', 259, ' ', 'y');           // "x", two spaces, " y"
    CHECK_IDS(t, "\xC3\xA9\xC3", 0, 261, 0xEF, 0xBF, 0xBD); // a cut character: U+FFFD
    CHECK_IDS(t, "", 0, -1);
    tern_tokenizer_free(t);
}

// Seen to fail: without checks between words.
TEST(tok_stops_where_cancelled) {
    tern_tokenizer *t = open_byte_level(NULL, NULL);
    tern_strbuf text = {0};
    tern_ids ids = {0};
    tern_error err = {0};
    tern_cancel cancel = {0};
    REQUIRE(t);
    for (int i = 0; i < 20000; i++) tern_strbuf_puts(&text, "the 123 ");
    tern_cancel_request(&cancel);
    tern_cancel_watch(&cancel);
    CHECK(tern_tokenizer_encode(t, text.ptr, text.len, 0, &ids, &err) == TERN_ERR_CANCELLED &&
          ids.n < 5000);
    tern_cancel_watch(NULL);
    tern_free(ids.ids);
    tern_strbuf_free(&text);
    tern_tokenizer_free(t);
}

TEST(tok_added_tokens) {
    tern_tokenizer *t = open_byte_level(NULL, NULL);
    REQUIRE(t);
    CHECK_IDS(t, "a<end>b", TERN_TOKENIZE_SPECIAL, 'a', SMALL_END, 'b');
    CHECK_IDS(t, "a<end>", 0, 'a', '<', 'e', 'n', 'd', '>'); // only text
    CHECK_IDS(t, "<think>", 0, SMALL_THINK);
    CHECK_IDS(t, "a word.", 0, 'a', ' ', SMALL_WORD, '.');
    CHECK_IDS(t, "words", 0, 'w', 'o', 'r', 'd', 's');
    CHECK_IDS(t, "a  <l> b", 0, 'a', SMALL_LEFT, ' ', 'b');
    CHECK_IDS(t, "a <r>\t b", 0, 'a', ' ', SMALL_RIGHT, 'b');
    CHECK_IDS(t, "<end><end>", TERN_TOKENIZE_SPECIAL, SMALL_END, SMALL_END);
    CHECK_IDS(t, "a", TERN_TOKENIZE_BOS, SMALL_BOS, 'a');
    CHECK_IDS(t, "", TERN_TOKENIZE_BOS, SMALL_BOS);
    tern_tokenizer_free(t);
}

TEST(tok_longest_added_token_wins) {
    tern_tokenizer *t =
        open_text("{\"model\":{\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]},\"added_tokens\":["
                  "{\"id\":2,\"content\":\"ab\"},{\"id\":3,\"content\":\"aba\"},"
                  "{\"id\":4,\"content\":\"abab\",\"special\":true}]}",
                  NULL, NULL);
    REQUIRE(t);
    CHECK_IDS(t, "abab", 0, 3, 1);
    CHECK_IDS(t, "abab", TERN_TOKENIZE_SPECIAL, 4);
    CHECK_IDS(t, "aab", 0, 0, 2);
    tern_tokenizer_free(t);
}

TEST(tok_ids_of_special_tokens) {
    tern_tokenizer *t = open_byte_level(
        "{\"bos_token\":\"<bos>\",\"eos_token\":{\"content\":\"<end>\"},\"add_eos_token\":true}",
        "{\"eos_token_id\":[262,263,100000,-1]}");
    REQUIRE(t);
    const int32_t *ends;
    CHECK(tern_tokenizer_bos(t) == SMALL_BOS && tern_tokenizer_eos(t) == SMALL_END);
    CHECK(tern_tokenizer_adds_bos(t) && tern_tokenizer_ends(t, &ends) == 2);
    CHECK(tern_tokenizer_is_end(t, SMALL_END) && tern_tokenizer_is_end(t, SMALL_THINK));
    CHECK(!tern_tokenizer_is_end(t, 'a') && !tern_tokenizer_is_end(t, -1));
    CHECK(tern_tokenizer_is_control(t, SMALL_BOS) && !tern_tokenizer_is_control(t, SMALL_THINK));
    CHECK(!tern_tokenizer_is_control(t, 1 << 30) && !tern_tokenizer_is_control(t, -5));
    CHECK(tern_str_is(tern_tokenizer_text(t, 258), "\xC4\xA0the"));
    CHECK(tern_tokenizer_text(t, 268).ptr == NULL && tern_tokenizer_text(t, -1).ptr == NULL);
    CHECK(tern_tokenizer_find(t, TERN_STR("he")) == 257);
    CHECK(tern_tokenizer_find(t, TERN_STR("nothing")) == -1);
    CHECK_IDS(t, "a", TERN_TOKENIZE_BOS, SMALL_BOS, 'a', SMALL_END);
    tern_tokenizer_free(t);
    t = open_byte_level("{\"bos_token\":\"<bos>\",\"add_bos_token\":false}", NULL);
    REQUIRE(t);
    CHECK(!tern_tokenizer_adds_bos(t));
    tern_tokenizer_free(t);
}

TEST(tok_known_names_end_only_where_special) {
    tern_tokenizer *t =
        open_text("{\"model\":{\"vocab\":{\"a\":0,\"<|end|>\":1},\"merges\":[]},\"added_tokens\":["
                  "{\"id\":2,\"content\":\"<|im_end|>\",\"special\":true},"
                  "{\"id\":3,\"content\":\"</s>\",\"special\":false}]}",
                  NULL, NULL);
    REQUIRE(t);
    CHECK(tern_tokenizer_is_end(t, 2) && !tern_tokenizer_is_end(t, 1));
    CHECK(!tern_tokenizer_is_end(t, 3) && tern_tokenizer_eos(t) == -1);
    tern_tokenizer_free(t);
}

TEST(tok_sentencepiece_merges_characters) {
    tern_tokenizer *t = open_sentencepiece();
    REQUIRE(t);
    CHECK_IDS(t, "the", 0, 288);
    CHECK_IDS(t, "ab", 0, 259, 289);
    CHECK_IDS(t, "a  b", 0, 259, 260, 290, 261);
    CHECK_IDS(t, "\xC3\xA9", 0, 259, 3 + 0xC3, 3 + 0xA9);
    CHECK_IDS(t, "a</s>the", TERN_TOKENIZE_SPECIAL, 259, 260, 2, 288); // each part gets its space
    CHECK_IDS(t, "<0x41>", 0, 259, 3 + '<', 3 + '0', 283, 3 + '4', 3 + '1', 3 + '>');
    CHECK_IDS(t, "", 0, -1);
    tern_tokenizer_free(t);
}

TEST(tok_unknown_characters_fuse_or_go) {
    const char *fused = "{\"model\":{\"vocab\":{\"?\":0,\"a\":1},\"merges\":[],\"unk_token\":\"?\","
                        "\"fuse_unk\":true}}";
    tern_tokenizer *t = open_text(fused, NULL, NULL);
    REQUIRE(t);
    CHECK_IDS(t, "xyaz", 0, 0, 1, 0);
    tern_tokenizer_free(t);
    t = open_text("{\"model\":{\"vocab\":{\"?\":0,\"a\":1},\"merges\":[],\"unk_token\":\"?\"}}",
                  NULL, NULL);
    REQUIRE(t);
    CHECK_IDS(t, "xya", 0, 0, 0, 1);
    tern_tokenizer_free(t);
    t = open_text("{\"model\":{\"vocab\":{\"a\":1},\"merges\":[]}}", NULL, NULL);
    REQUIRE(t);
    CHECK_IDS(t, "xya", 0, 1);
    tern_tokenizer_free(t);
}

TEST(tok_ignore_merges_takes_whole_words) {
    const char *json = "{\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"abb\":3},"
                       "\"merges\":[\"a b\"],\"ignore_merges\":%s},"
                       "\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"}}";
    char text[512];
    snprintf(text, sizeof text, json, "true");
    tern_tokenizer *t = open_text(text, NULL, NULL);
    REQUIRE(t);
    CHECK_IDS(t, "abb ab abbb", 0, 3, 2, 2, 1, 1);
    tern_tokenizer_free(t);
    snprintf(text, sizeof text, json, "false");
    t = open_text(text, NULL, NULL);
    REQUIRE(t);
    CHECK_IDS(t, "abb", 0, 2, 1);
    tern_tokenizer_free(t);
}

TEST(tok_normalizers) {
    tern_tokenizer *t = open_text(
        "{\"model\":{\"vocab\":{\"a\":0,\"\xC3\xA9\":1,\"-\":2},\"merges\":[]},"
        "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},"
        "{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true},{\"type\":\"Lowercase\"},"
        "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"[0-9]+\"},\"content\":\"-\"},"
        "{\"type\":\"Prepend\",\"prepend\":\"a\"}]}}",
        NULL, NULL);
    REQUIRE(t);
    CHECK_IDS(t,
              "  E\xCC\x81"
              "1234A ",
              0, 0, 1, 2, 0);
    tern_tokenizer_free(t);
}

// ---- Decoding -----------------------------------------------------------------------------------

static void check_decoded(const tern_tokenizer *t, const int32_t *ids, bool special,
                          const char *expected, int line) {
    size_t n = 0;
    while (ids[n] != -2) n++;
    tern_strbuf text = fixture_decode(t, ids, n, special);
    test_check(strcmp(tern_strbuf_text(&text), expected) == 0, __FILE__, line, "gave \"%s\"",
               tern_strbuf_text(&text));
    tern_strbuf_free(&text);
}
#define CHECK_DECODED(t, special, expected, ...)                                                   \
    check_decoded(t, (const int32_t[]){__VA_ARGS__, -2}, special, expected, __LINE__)

TEST(tok_decodes_whole_characters) {
    tern_tokenizer *t = open_byte_level(NULL, NULL);
    REQUIRE(t);
    tern_decoder d = {0};
    tern_strbuf out = {0};
    tern_tokenizer_decode(t, &d, 0xE2, &out);
    tern_tokenizer_decode(t, &d, 0x82, &out);
    CHECK(out.len == 0);
    tern_tokenizer_decode(t, &d, 0xAC, &out);
    CHECK(strcmp(tern_strbuf_text(&out), "\xE2\x82\xAC") == 0);
    tern_strbuf_free(&out);
    CHECK_DECODED(t, false, " the\xEF\xBF\xBDx", 258, 0xE2, 0x82, 'x'); // broken off
    CHECK_DECODED(t, false, "\xEF\xBF\xBD", 0xF0, 0x9F, 0x92);          // cut
    CHECK_DECODED(t, false, "\xEF\xBF\xBD\xEF\xBF\xBD", 0xFF, 0x80);
    CHECK_DECODED(t, false, "ab", 'a', SMALL_END, 'b', -1, 100000);
    CHECK_DECODED(t, true, "a<end>b<think>", 'a', SMALL_END, 'b', SMALL_THINK);
    tern_tokenizer_free(t);
}

TEST(tok_decodes_sentencepiece_spaces) {
    tern_tokenizer *t = open_sentencepiece();
    REQUIRE(t);
    CHECK_DECODED(t, false, "the the", 288, 288);
    CHECK_DECODED(t, false, "the", 1, 288, 2);
    CHECK_DECODED(t, true, "<s> the", 1, 288);
    CHECK_DECODED(t, false, " ab", 290, 289); // only one space goes
    CHECK_DECODED(t, false, "\xC3\xA9", 259, 3 + 0xC3, 3 + 0xA9);
    tern_decoder d = {.started = true}; // in the middle of a text
    tern_strbuf out = {0};
    tern_tokenizer_decode(t, &d, 288, &out);
    CHECK(strcmp(tern_strbuf_text(&out), " the") == 0);
    tern_strbuf_free(&out);
    tern_tokenizer_free(t);
}

static void check_round_trip(const tern_tokenizer *t, const char *text, size_t n) {
    tern_ids ids = {0};
    tern_error err = {0};
    CHECK(tern_tokenizer_encode(t, text, n, 0, &ids, &err) == TERN_OK);
    tern_strbuf back = fixture_decode(t, ids.ids, ids.n, false);
    CHECK_MSG(back.len == n && memcmp(tern_strbuf_text(&back), text, n) == 0, "\"%.*s\" \"%s\"",
              (int)n, text, tern_strbuf_text(&back));
    tern_strbuf_free(&back);
    tern_free(ids.ids);
}

TEST(tok_round_trips_every_character) {
    tern_tokenizer *bytes = open_byte_level(NULL, NULL), *chars = open_sentencepiece();
    REQUIRE(bytes && chars);
    char text[64];
    for (uint32_t c = 0; c < 0x110000; c += c < 0x3100 ? 1 : 61) {
        if ((c >= 0xD800 && c < 0xE000) || c == 0x2581) continue;
        size_t n = (size_t)tern_utf8_encode(c, text);
        memcpy(text + n, " the\n", 5);
        memcpy(text + n + 5, text, n);
        check_round_trip(bytes, text, 2 * n + 5);
        check_round_trip(chars, text, 2 * n + 5);
    }
    tern_tokenizer_free(bytes);
    tern_tokenizer_free(chars);
}

TEST(tok_long_words_take_no_square_of_time) {
    const size_t n = 1 << 20;
    char *text = tern_alloc(TERN_MEM_MISC, n + 1);
    tern_tokenizer *bytes = open_byte_level(NULL, NULL), *chars = open_sentencepiece();
    REQUIRE(text && bytes && chars);
    for (size_t i = 0; i < n; i++) text[i] = "abheth"[i % 6];
    check_round_trip(bytes, text, n);
    check_round_trip(chars, text, n);
    memset(text, ' ', n);
    check_round_trip(bytes, text, n);
    tern_tokenizer_free(bytes);
    tern_tokenizer_free(chars);
    tern_free(text);
}

// ---- Hostile files ------------------------------------------------------------------------------

TEST(tok_json_refuses_by_name) {
#define MODEL "\"model\":{\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}"
    static const struct {
        const char *json, *says;
    } cases[] = {
        {"", "tokenizer.json"},
        {"{", "JSON"},
        {"{}", "vocab"},
        {"[]", "vocab"},
        {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{}}}", "WordLevel"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":{}}}", "not an array"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[\"a\"]}}", "entry 0"},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0},"
         "\"continuing_subword_prefix\":\"12345678901234567\"}}",
         "17 bytes"},
        {"{" MODEL ",\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"a-\"}}",
         "base64"},
        {"{" MODEL ",\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}}",
         "not a table"},
        {"{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}", "\"a\""},
        {"{\"model\":{\"vocab\":{\"a\":1.5},\"merges\":[]}}", "\"a\""},
        {"{\"model\":{\"vocab\":{\"a\":4294967296},\"merges\":[]}}", "\"a\""},
        {"{\"model\":{\"vocab\":{\"a\":4194304},\"merges\":[]}}", "\"a\""},
        {"{\"model\":{\"vocab\":{\"a\":\"0\"},\"merges\":[]}}", "\"a\""},
        {"{\"model\":{\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", "id 0"},
        {"{\"model\":{\"vocab\":{\"a\":0}}}", "merges"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", "merge 0"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}", "merge 0"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}", "merge 0"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[7]}}", "merge 0"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"\"]}}", "merge 0"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"end_of_word_suffix\":\"</w>\"}}", "</w>"},
        {"{" MODEL ",\"normalizer\":{\"type\":\"Nmt\"}}", "Nmt"},
        {"{" MODEL ",\"normalizer\":{\"type\":\"Replace\",\"content\":\"\"}}", "pattern"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}}", "UnicodeScripts"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"}}}", "("},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Odd\","
         "\"pattern\":{\"String\":\"(\"}}}",
         "Odd"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
         "{\"type\":\"ByteLevel\"},{\"type\":\"Digits\"}]}}",
         "ByteLevel"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\"}}", "_"},
        {"{" MODEL ",\"decoder\":{\"type\":\"WordPiece\"}}", "WordPiece"},
        {"{" MODEL ",\"post_processor\":{\"type\":\"Odd\"}}", "Odd"},
        {"{" MODEL ",\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"a\",9]}}", "post"},
        {"{" MODEL ",\"added_tokens\":[{\"content\":\"x\"}]}", "\"x\""},
        {"{" MODEL ",\"added_tokens\":[{\"content\":\"x\",\"id\":0}]}", "id 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tern_tokenizer *t = NULL;
        tern_error err = {0};
        tern_status status =
            fixture_open_json(&t, cases[i].json, strlen(cases[i].json), NULL, NULL, &err);
        CHECK_MSG(status == TERN_ERR_FORMAT || status == TERN_ERR_UNSUPPORTED, "%s", cases[i].json);
        CHECK_MSG(strstr(err.message, cases[i].says) != NULL, "%s: %s", cases[i].json, err.message);
        CHECK(t == NULL);
    }
}

TEST(tok_holes_between_ids) {
    tern_tokenizer *t =
        open_text("{\"model\":{\"vocab\":{\"a\":0,\"b\":70000},\"merges\":[]}}", NULL, NULL);
    REQUIRE(t);
    CHECK(tern_tokenizer_n_vocab(t) == 70001 && tern_tokenizer_text(t, 5).ptr == NULL);
    CHECK_IDS(t, "ab", 0, 0, 70000);
    CHECK_DECODED(t, true, "b", 5, 70000);
    tern_tokenizer_free(t);
}

TEST(tok_survives_failing_allocations) {
    for (int kind = 0; kind < 2; kind++) {
        tern_strbuf json = {0};
        if (kind)
            small_sentencepiece(&json);
        else
            small_byte_level(&json, "\\\\w+|.", true); // an expression for PCRE2
        size_t before = tern_mem_get_stats().total_now;
        tern_status status = TERN_ERR_MEMORY;
        uint64_t n = 0;
        while (status == TERN_ERR_MEMORY && n < 5000) {
            tern_tokenizer *t = NULL;
            tern_tokenizer_export e;
            tern_ids ids = {0};
            tern_mem_fail_at(++n);
            status = fixture_open_json(&t, json.ptr, json.len, NULL, NULL, NULL);
            if (status == TERN_OK)
                status = tern_tokenizer_encode(t, "a <end>the \xFF\xC3\xA9", 13, 3, &ids, NULL);
            if (status == TERN_OK) status = tern_tokenizer_export_gguf(t, &e, NULL);
            if (status == TERN_ERR_UNSUPPORTED && !kind) status = TERN_OK; // no name for \w+
            tern_mem_fail_at(0);
            tern_free(ids.ids);
            tern_tokenizer_free(t);
            CHECK(tern_mem_get_stats().total_now == before);
        }
        CHECK_MSG(status == TERN_OK && n > 20, "%llu allocations", (unsigned long long)n);
        tern_strbuf_free(&json);
    }
}

// ---- GGUF ---------------------------------------------------------------------------------------

static void check_same(const tern_tokenizer *a, const tern_tokenizer *b) {
    static const char *const texts[] = {
        "the theab a  b   the<end></s><think> word", "\xC3\xA9 12345 don't DON'T\r\n\n x", "", " ",
        "<l> <r> \xF0\x9F\x98\x80 <0x41> [PAD3] abababab \xE2\x96\x81the"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        tern_ids x = {0}, y = {0};
        tern_error err = {0};
        CHECK(tern_tokenizer_encode(a, texts[i], strlen(texts[i]), 3, &x, &err) == TERN_OK);
        CHECK(tern_tokenizer_encode(b, texts[i], strlen(texts[i]), 3, &y, &err) == TERN_OK);
        CHECK_MSG(x.n == y.n && (x.n == 0 || memcmp(x.ids, y.ids, x.n * sizeof *x.ids) == 0), "%s",
                  texts[i]);
        tern_strbuf u = fixture_decode(a, x.ids, x.n, true);
        tern_strbuf v = fixture_decode(b, x.ids, x.n, true);
        CHECK_MSG(strcmp(tern_strbuf_text(&u), tern_strbuf_text(&v)) == 0, "%s and %s",
                  tern_strbuf_text(&u), tern_strbuf_text(&v));
        tern_strbuf_free(&u);
        tern_strbuf_free(&v);
        tern_free(x.ids);
        tern_free(y.ids);
    }
}

TEST(tok_export_reads_back_the_same) {
    // GGUF has no keys for the flags of added tokens: tokens with flags are left out.
    tern_strbuf json = {0};
    small_byte_level(&json, SMALL_LLAMA3, true);
    for (char *at; json.ptr && (at = strstr(json.ptr, "strip\":true"));) memcpy(at, "strid", 5);
    for (char *at; json.ptr && (at = strstr(json.ptr, "single_word"));) memcpy(at, "simple", 6);
    tern_tokenizer *bytes =
        open_text(tern_strbuf_text(&json), "{\"bos_token\":\"<bos>\"}", "{\"vocab_size\":300}");
    tern_tokenizer *chars = open_sentencepiece();
    REQUIRE(bytes && chars);
    tern_tokenizer_export e;
    tern_error err = {0};
    REQUIRE_OK(tern_tokenizer_export_gguf(bytes, &e, &err), err);
    CHECK(!strcmp(e.model, "gpt2") && !strcmp(e.pre, "llama-bpe") && e.n_vocab == 300);
    CHECK(e.n_merges == 6 && tern_str_is(e.merges[2], "\xC4\xA0t he") && !e.scores && e.add_bos);
    CHECK(tern_str_is(e.tokens[299], "[PAD299]") && e.types[299] == 5 && e.types[SMALL_END] == 3);
    tern_tokenizer_export again;
    CHECK(tern_tokenizer_export_gguf(bytes, &again, &err) == TERN_OK && again.tokens == e.tokens);
    tern_tokenizer *back = fixture_through_gguf(bytes, "bytes.gguf", true);
    REQUIRE(back);
    check_same(bytes, back);
    CHECK(tern_tokenizer_n_vocab(back) == 300 && tern_tokenizer_bos(back) == SMALL_BOS);
    tern_tokenizer_free(back);
    tern_tokenizer_free(bytes);
    REQUIRE_OK(tern_tokenizer_export_gguf(chars, &e, &err), err);
    CHECK(!strcmp(e.model, "llama") && e.scores && !e.merges && e.add_space_prefix);
    CHECK(e.types[0] == 2 && e.types[1] == 3 && e.types[3] == 6 && e.types[260] == 1);
    CHECK(e.scores[286] > e.scores[287] && e.scores[290] > e.scores[260]);
    back = fixture_through_gguf(chars, "chars.gguf", true);
    REQUIRE(back);
    check_same(chars, back);
    tern_tokenizer_free(back);
    tern_tokenizer_free(chars);
    tern_strbuf_free(&json);
}

TEST(tok_gguf_without_pre_is_llama3_by_its_vocabulary) {
    static const char *const names[][2] = {{"<|begin_of_text|>", "llama-bpe"},
                                           {"<|startoftext|>", "default"}};
    for (int i = 0; i < 2; i++) {
        char json[512];
        snprintf(json, sizeof json,
                 "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"pre_tokenizer\":{\"type\":"
                 "\"ByteLevel\",\"add_prefix_space\":false},\"added_tokens\":[{\"id\":1,"
                 "\"content\":\"%s\",\"special\":true}]}",
                 names[i][0]);
        tern_tokenizer *t = open_text(json, NULL, NULL);
        REQUIRE(t);
        tern_tokenizer *back = fixture_through_gguf(t, "nopre.gguf", false);
        REQUIRE(back);
        tern_tokenizer_export e;
        CHECK(tern_tokenizer_export_gguf(back, &e, NULL) == TERN_OK);
        CHECK_MSG(strcmp(e.pre, names[i][1]) == 0, "%s: %s", names[i][0], e.pre);
        tern_tokenizer_free(back);
        tern_tokenizer_free(t);
    }
}

// GGUF files of other programs may have merges of texts that are not tokens, and other faults.
TEST(tok_gguf_refuses_by_name) {
    static const struct {
        const char *model, *pre, *says;
        int n_tokens, n_types;
    } cases[] = {
        {"gpt2", "llama-bpe", NULL, 3, 3},
        {"gpt2", "nonsense", "nonsense", 3, 3},
        {"rwkv", NULL, "rwkv", 3, 3},
        {"llama", NULL, "scores", 3, 3},
        {"gpt2", "qwen2", "token_type", 3, 2},
        {"gpt2", "qwen2", "tokens", 0, 0},
        {NULL, NULL, "tokenizer.ggml.model", 3, 3},
    };
    const tern_str tokens[] = {TERN_STR("a"), TERN_STR("b"), TERN_STR("ab")};
    const tern_str merges[] = {TERN_STR("a c"), TERN_STR("a b"), TERN_STR(""),
                               TERN_STR("ab"),  TERN_STR("b b"), TERN_STR(" ")};
    const int32_t types[] = {1, 99, 1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tern_error err = {0};
        tern_gguf_writer *w = NULL;
        uint64_t ne[4] = {4, 1, 1, 1};
        const float zeros[4] = {0};
        const char *path = test_tmp("odd.gguf"), *model = cases[i].model, *pre = cases[i].pre;
        REQUIRE_OK(tern_gguf_writer_open(&w, path, 0, &err), err);
        tern_gguf_put_str(w, "general.architecture", TERN_STR("llama"));
        if (model) tern_gguf_put_str(w, "tokenizer.ggml.model", (tern_str){model, strlen(model)});
        if (pre) tern_gguf_put_str(w, "tokenizer.ggml.pre", (tern_str){pre, strlen(pre)});
        if (cases[i].n_tokens)
            tern_gguf_put_strings(w, "tokenizer.ggml.tokens", tokens, (size_t)cases[i].n_tokens);
        if (cases[i].n_types)
            tern_gguf_put_array(w, "tokenizer.ggml.token_type", TERN_META_I32, types,
                                (size_t)cases[i].n_types);
        tern_gguf_put_strings(w, "tokenizer.ggml.merges", merges, 6);
        tern_gguf_put_int(w, "tokenizer.ggml.bos_token_id", TERN_META_U32, 4000000000);
        tern_gguf_declare(w, "x", TERN_DTYPE_F32, 1, ne);
        REQUIRE_OK(tern_gguf_write(w, zeros, sizeof zeros, &err), err);
        REQUIRE_OK(tern_gguf_writer_finish(w, &err), err);
        tern_gguf_writer_free(w);
        tern_file *file = NULL;
        tern_tokenizer *t = NULL;
        REQUIRE_OK(tern_file_open(&file, path, &err), err);
        tern_status status = tern_tokenizer_open(&t, file, &err);
        tern_file_close(file);
        CHECK_MSG((status == TERN_OK) == !cases[i].says, "case %zu: %s", i, err.message);
        if (cases[i].says) CHECK_MSG(strstr(err.message, cases[i].says), "%s", err.message);
        if (t) {
            CHECK(tern_tokenizer_bos(t) == -1);
            CHECK_IDS(t, "abb", TERN_TOKENIZE_BOS, 2, 1);
        }
        tern_tokenizer_free(t);
    }
}

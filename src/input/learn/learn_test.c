// Learning a vocabulary: the file is identical to the obvious algorithm's; memory is bounded.
#include "input/learn/learn.h"

#include "base/hash.h"
#include "input/tokenizer/tests/tok_fixture.h"

static const char *const specials[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
#define N_SPECIALS (sizeof specials / sizeof *specials)

// A text with repetitions, overlaps ("aaaa"), several scripts and white space.
static tern_strbuf make_text(uint64_t seed, int n_words) {
    static const char *const parts[] = {"the",      "th",           "e",   "ing", "an", "and",
                                        "a",        "aa",           "aaa", "b",   "ab", "ba",
                                        "\xC3\xA9", "\xE4\xB8\xAD", "12",  "ion"};
    static const char *const gaps[] = {" ", " ", " ", " ", "\n", "  ", ", ", ". ", "'s "};
    tern_strbuf b = {0};
    for (int i = 0; i < n_words; i++) {
        uint64_t r = tern_mix64(seed * 1000003 + (uint64_t)i);
        for (uint64_t k = r % 4; k < 4; k++, r >>= 6) // small indices come more often
            tern_strbuf_puts(&b, parts[r % 16 * (r / 16 % 16) / 16]);
        tern_strbuf_puts(&b, gaps[r % 9]);
    }
    return b;
}

// ---- The obvious algorithm ----------------------------------------------------------------------

enum { REFERENCE_VOCAB = 340, REFERENCE_BYTES = 1 << 16 };

typedef struct reference {
    int symbols[REFERENCE_BYTES]; // the whole text, with all its words
    uint8_t begins[REFERENCE_BYTES];
    size_t n;
    tern_strbuf texts[REFERENCE_VOCAB];
    int merges[REFERENCE_VOCAB][2], n_tokens, n_merges;
} reference;

static int reference_token(reference *r, const char *text, size_t n) {
    for (int i = 0; i < r->n_tokens; i++)
        if (r->texts[i].len == n && !memcmp(r->texts[i].ptr, text, n)) return i;
    tern_strbuf_append(&r->texts[r->n_tokens], text, n);
    return r->n_tokens++;
}

static void reference_begin(reference *r, const char *text, size_t n) {
    int ids[256];
    tern_splitter splitter = {0};
    tern_pieces pieces = {0};
    tern_error err;
    for (size_t i = 0; i < N_SPECIALS; i++) reference_token(r, specials[i], strlen(specials[i]));
    for (uint32_t code = 0; code < 0x10000; code++) {
        int byte = tern_alphabet_byte(code);
        char c = (char)byte;
        if (byte >= 0) ids[byte] = reference_token(r, &c, 1);
    }
    tern_pre_add_steps(tern_pre_find(TERN_STR("llama-bpe")), &splitter, &err);
    tern_splitter_run(&splitter, text, n, true, &pieces, &err);
    for (size_t i = 0; i < pieces.n; i++) r->begins[pieces.list[i].at] = 1;
    for (size_t i = 0; i < n; i++) r->symbols[i] = ids[(unsigned char)text[i]];
    r->n = n;
    tern_pieces_free(&pieces);
    tern_splitter_close(&splitter);
}

// One pass over the text for each merge. False: no pair occurs twice.
static bool reference_step(reference *r) {
    static int counts[REFERENCE_VOCAB][REFERENCE_VOCAB];
    int left = 0, right = 0;
    memset(counts, 0, sizeof counts);
    for (size_t i = 0; i + 1 < r->n; i++)
        if (!r->begins[i + 1]) counts[r->symbols[i]][r->symbols[i + 1]]++;
    for (int a = 0; a < r->n_tokens; a++)
        for (int b = 0; b < r->n_tokens; b++)
            if (counts[a][b] > counts[left][right]) left = a, right = b;
    if (counts[left][right] < 2) return false;
    tern_strbuf both = {0};
    tern_strbuf_append(&both, r->texts[left].ptr, r->texts[left].len);
    tern_strbuf_append(&both, r->texts[right].ptr, r->texts[right].len);
    int id = reference_token(r, both.ptr, both.len);
    tern_strbuf_free(&both);
    r->merges[r->n_merges][0] = left;
    r->merges[r->n_merges++][1] = right;
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++) {
        bool is_pair = i + 1 < r->n && !r->begins[i + 1] && r->symbols[i] == left &&
                       r->symbols[i + 1] == right;
        r->begins[n] = r->begins[i];
        r->symbols[n++] = is_pair ? id : r->symbols[i];
        i += is_pair;
    }
    r->n = n;
    return true;
}

TEST(bpe_trainer_learns_what_the_obvious_algorithm_learns) {
    reference *r = calloc(1, sizeof *r);
    for (uint64_t seed = 1; seed <= 6; seed++) {
        tern_strbuf text = make_text(seed, seed == 6 ? 12 : 900); // the last runs out of pairs
        tern_bpe_desc desc = {
            .n_vocab = 320, .specials = specials, .n_specials = N_SPECIALS, .min_count = 2};
        tern_splitter splitter = {0};
        tern_pieces pieces = {0};
        tern_words words = {0};
        tern_learned learned = {0};
        tern_error err = {0};
        REQUIRE(text.len < REFERENCE_BYTES);
        memset(r, 0, sizeof *r);
        reference_begin(r, text.ptr, text.len);
        while (r->n_tokens < 320 && reference_step(r)) continue;
        tern_pre_add_steps(tern_pre_find(TERN_STR("llama-bpe")), &splitter, &err);
        REQUIRE_OK(tern_splitter_run(&splitter, text.ptr, text.len, true, &pieces, &err), err);
        for (size_t i = 0; i < pieces.n; i++)
            tern_words_add(&words, text.ptr + pieces.list[i].at, pieces.list[i].n, &err);
        REQUIRE_OK(tern_learn_merges(&learned, &words, &desc, &err), err);
        CHECK(learned.n_merges == (size_t)r->n_merges && learned.n_tokens == (size_t)r->n_tokens);
        CHECK(seed == 6 ? learned.n_tokens < 320 : learned.n_tokens == 320);
        for (int i = 0; i < r->n_merges; i++) {
            bool same = learned.merges[2 * i] == (uint32_t)r->merges[i][0] &&
                        learned.merges[2 * i + 1] == (uint32_t)r->merges[i][1];
            CHECK_MSG(same, "seed %d, merge %d: %u %u, expected %d %d", (int)seed, i,
                      learned.merges[2 * i], learned.merges[2 * i + 1], r->merges[i][0],
                      r->merges[i][1]);
        }
        for (int i = 0; i < r->n_tokens; i++) {
            tern_str got = tern_learned_text(&learned, (size_t)i);
            CHECK(tern_str_eq(got, (tern_str){r->texts[i].ptr, r->texts[i].len}));
            tern_strbuf_free(&r->texts[i]);
        }
        tern_learned_free(&learned);
        tern_words_free(&words);
        tern_pieces_free(&pieces);
        tern_splitter_close(&splitter);
        tern_strbuf_free(&text);
    }
    free(r);
}

// ---- The file -----------------------------------------------------------------------------------

static tern_status train(const tern_bpe_desc *desc, tern_str text, tern_strbuf *json,
                         tern_bpe_stats *stats, tern_error *err) {
    tern_bpe_trainer *t;
    TERN_TRY(tern_bpe_trainer_open(&t, desc, err));
    tern_status status = tern_bpe_trainer_add(t, text.ptr, text.len, err);
    if (status == TERN_OK) status = tern_bpe_trainer_finish(t, json, err);
    *stats = tern_bpe_trainer_stats(t);
    tern_bpe_trainer_free(t);
    return status;
}

TEST(bpe_trainer_writes_a_tokenizer_that_gives_the_text_back) {
    static const char *const splits[] = {NULL, "gpt-2", "qwen2", "smollm"};
    for (int k = 0; k < 4; k++) {
        tern_strbuf text = make_text(40, 2000), json = {0}, back = {0};
        tern_strbuf_puts(&text, "\xFF\x01 \xF0\x9F\x98\x80 3.14159 don't"); // not UTF-8 at first
        tern_bpe_desc desc = {
            .n_vocab = 400, .specials = specials, .n_specials = N_SPECIALS, .pre = splits[k]};
        tern_tokenizer *t;
        tern_ids ids = {0};
        tern_bpe_stats stats;
        tern_error err = {0};
        REQUIRE_OK(train(&desc, (tern_str){text.ptr, text.len}, &json, &stats, &err), err);
        REQUIRE_OK(fixture_open_json(&t, json.ptr, json.len, NULL, NULL, &err), err);
        CHECK(tern_tokenizer_n_vocab(t) == 400 && stats.n_tokens == 400);
        CHECK(tern_tokenizer_bos(t) == 0 && tern_tokenizer_adds_bos(t));
        CHECK(tern_tokenizer_is_end(t, 0) && tern_tokenizer_is_end(t, 2));
        CHECK(tern_tokenizer_find(t, TERN_STR("<|im_start|>")) == 1);
        CHECK(t->pre && (!splits[k] || strcmp(t->pre, splits[k]) == 0 || k == 3));
        REQUIRE_OK(tern_tokenizer_encode(t, text.ptr, text.len, 0, &ids, &err), err);
        CHECK_MSG(ids.n * 2 < text.len, "%zu tokens of %zu bytes", ids.n, text.len);
        tern_decoder d = {0};
        for (size_t i = 0; i < ids.n; i++) tern_tokenizer_decode(t, &d, ids.ids[i], &back);
        tern_tokenizer_decode_end(&d, &back);
        tern_strbuf repaired = {0};
        tern_unicode_repair(&repaired, text.ptr, text.len);
        CHECK(back.len == repaired.len && !memcmp(back.ptr, repaired.ptr, back.len));
        tern_strbuf_free(&repaired);
        tern_strbuf_free(&back);
        tern_strbuf_free(&json);
        tern_strbuf_free(&text);
        tern_free(ids.ids);
        tern_tokenizer_free(t);
    }
}

TEST(bpe_trainer_never_makes_a_special_token_of_text) {
    static const char *const words[] = {"<|endoftext|>", "the"};
    tern_strbuf json = {0};
    tern_bpe_desc desc = {.n_vocab = 262, .specials = words, .n_specials = 2};
    tern_bpe_stats stats;
    tern_error err = {0};
    const char text[] = "the the the then then their";
    tern_tokenizer *t;
    tern_ids ids = {0};
    REQUIRE_OK(train(&desc, TERN_STR(text), &json, &stats, &err), err);
    REQUIRE_OK(fixture_open_json(&t, json.ptr, json.len, NULL, NULL, &err), err);
    REQUIRE_OK(tern_tokenizer_encode(t, "the", 3, 0, &ids, &err), err);
    for (size_t i = 0; i < ids.n; i++) CHECK(ids.ids[i] != 1);
    tern_free(ids.ids);
    tern_tokenizer_free(t);
    tern_strbuf_free(&json);
}

TEST(bpe_trainer_refuses_wrong_wishes) {
    static const char *const twice[] = {"<a>", "<a>"}, *const tiny[] = {"x"};
    static const struct {
        tern_bpe_desc desc;
        const char *words;
    } cases[] = {
        {{.n_vocab = 255}, "a vocabulary of 255"},
        {{.n_vocab = 257, .specials = specials, .n_specials = 2}, "a vocabulary of 257"},
        {{.n_vocab = -5}, "a vocabulary of -5"},
        {{.n_vocab = 300, .pre = "no-such"}, "'no-such'"},
        {{.n_vocab = 300, .specials = twice, .n_specials = 2}, "there twice"},
        {{.n_vocab = 300, .specials = tiny, .n_specials = 1}, "less than two bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tern_strbuf json = {0};
        tern_bpe_stats stats;
        tern_error err = {0};
        CHECK(train(&cases[i].desc, TERN_STR("some text"), &json, &stats, &err) ==
              TERN_ERR_ARGUMENT);
        CHECK_MSG(strstr(err.message, cases[i].words), "%s", err.message);
        tern_strbuf_free(&json);
    }
}

// A million different words in 1 MiB: frequent ones are still learnt.
TEST(bpe_trainer_forgets_rare_words_and_stays_within_its_memory) {
    tern_bpe_desc desc = {.n_vocab = 262, .n_bytes_max = 1 << 20};
    tern_bpe_trainer *t;
    tern_error err = {0};
    tern_strbuf json = {0};
    REQUIRE_OK(tern_bpe_trainer_open(&t, &desc, &err), err);
    size_t before = tern_mem_get_stats().total_now, most = 0;
    for (uint64_t i = 0; i < 1000000; i += 10) {
        char text[512];
        int n = 0;
        for (uint64_t k = i; k < i + 10; k++)
            n += snprintf(text + n, sizeof text - (size_t)n, " z%c%c%c%c aaaaaab",
                          'c' + (int)(k % 23), 'c' + (int)(k / 23 % 23), 'c' + (int)(k / 529 % 23),
                          'c' + (int)(k / 12167 % 23));
        REQUIRE_OK(tern_bpe_trainer_add(t, text, (size_t)n, &err), err);
        size_t now = tern_mem_get_stats().total_now - before;
        if (now > most) most = now;
    }
    tern_bpe_stats stats = tern_bpe_trainer_stats(t);
    CHECK(stats.n_words == 2000000 && stats.n_forgotten > 100000);
    CHECK_MSG(most < 3 << 20, "%zu bytes", most); // arrays double
    REQUIRE_OK(tern_bpe_trainer_finish(t, &json, &err), err);
    CHECK(strstr(json.ptr, "\"\xC4\xA0"
                           "aaaaaab\""));
    CHECK(tern_bpe_trainer_finish(t, &json, &err) == TERN_ERR_ARGUMENT);
    tern_strbuf_free(&json);
    tern_bpe_trainer_free(t);
}

TEST(bpe_trainer_gives_back_all_memory_when_it_fails) {
    tern_strbuf text = make_text(3, 60);
    size_t before = tern_mem_get_stats().total_now;
    for (uint64_t n = 1;; n++) {
        tern_bpe_desc desc = {.n_vocab = 280, .specials = specials, .n_specials = N_SPECIALS};
        tern_strbuf json = {0};
        tern_bpe_stats stats;
        tern_error err = {0};
        tern_mem_fail_at(n);
        tern_status status = train(&desc, (tern_str){text.ptr, text.len}, &json, &stats, &err);
        tern_mem_fail_at(0);
        tern_strbuf_free(&json);
        CHECK(tern_mem_get_stats().total_now == before);
        if (status == TERN_OK) break;
        CHECK(status == TERN_ERR_MEMORY);
        REQUIRE(n < 2000);
    }
    tern_strbuf_free(&text);
}

// New tokens: how a tokenizer grows by them, and a model that is tuned on such data.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "tests/support/harness.h"
#include "tests/support/lora_fixture.h"
#include "train/data/data.h"
#include "train/trainer.h"

// No vocabulary has these. The last one is not composed, as Qwen's normalizer would make it.
static const char *const plain[] = {"QZQ", "the QZ", " QZQ\n", "12#Z", "Q~", "Ze\xCC\x81Q"};
static const char *const special[] = {"<|turn~|>", "<|QZ~|>"};
enum { N_PLAIN = 6, N_SPECIAL = 2, N_NEW = N_PLAIN + N_SPECIAL };
#define PLAIN_LIST   "[\"QZQ\",\"the QZ\",\" QZQ\\n\",\"12#Z\",\"Q~\",\"Ze\\u0301Q\"]"
#define SPECIAL_LIST "[\"<|turn~|>\",\"<|QZ~|>\"]"

static tern_data_build_desc building(const char *base, const char *const *text, const char *end) {
    return (tern_data_build_desc){.source = {.paths = text, .n_paths = 1},
                                  .tokenizer = base,
                                  .end = end,
                                  .valid = 0.2,
                                  .n_threads = 1};
}

// Shards of a text with some of the new tokens.
static bool grow_data(const char *base, const char *end, const char *folder) {
    const char *text = test_tmp("grow.txt");
    tern_data_build_stats stats;
    tern_error err = {0};
    FILE *f = fopen(text, "w");
    if (!f) return false;
    for (int i = 0; i < 400; i++)
        fprintf(f, "the %d%d QZQ\n of 1%d2#Z the QZ %d<|endoftext|>", i % 10, (i + 1) % 10,
                (i + 2) % 10, i);
    fclose(f);
    tern_data_build_desc d = building(base, &text, end);
    d.add_tokens = PLAIN_LIST;
    d.add_special_tokens = SPECIAL_LIST;
    bool ok = tern_data_build(folder, &d, &stats, &err) == TERN_OK;
    CHECK_MSG(ok && stats.n_new_tokens == N_NEW, "%s: %s", base, err.message);
    return ok;
}

// ---- Ids ---------------------------------------------------------------------------------------

static const char *text_of(int i) { return i < N_PLAIN ? plain[i] : special[i - N_PLAIN]; }

// What tokenizers promise of added tokens without flags, written anew: from the left, the longest
// one at each place; what is between them is encoded alone.
static bool encode_slowly(const tern_tokenizer *base, int32_t first, bool with_special,
                          tern_str text, tern_ids *out) {
    size_t begin = 0;
    for (size_t at = 0; at <= text.len; at++) {
        int best = -1;
        for (int i = 0; i < (with_special ? N_NEW : N_PLAIN); i++) {
            size_t n = strlen(text_of(i));
            bool fits = n <= text.len - at && memcmp(text.ptr + at, text_of(i), n) == 0;
            if (fits && (best < 0 || n > strlen(text_of(best)))) best = i;
        }
        if (best < 0 && at < text.len) continue;
        if (tern_tokenizer_encode(base, text.ptr + begin, at - begin, TERN_TOKENIZE_PLAIN, out,
                                  NULL) != TERN_OK)
            return false;
        if (best < 0) break;
        if (tern_array_reserve(TERN_MEM_MISC, &out->ids, &out->capacity, out->n, 1)) return false;
        out->ids[out->n++] = first + best;
        begin = at + strlen(text_of(best));
        at = begin - 1;
    }
    return true;
}

static void check_text(const tern_tokenizer *base, const tern_tokenizer *grown, int32_t first,
                       tern_str text, const char *where) {
    tern_strbuf back = {0};
    for (int with_special = 0; with_special < 2; with_special++) {
        tern_ids got = {0}, want = {0};
        tern_decoder decoder = {.with_special = true};
        unsigned flags = with_special ? TERN_TOKENIZE_SPECIAL : TERN_TOKENIZE_PLAIN;
        CHECK(tern_tokenizer_encode(grown, text.ptr, text.len, flags, &got, NULL) == TERN_OK);
        CHECK(encode_slowly(base, first, with_special, text, &want));
        bool same = got.n == want.n && memcmp(got.ids, want.ids, got.n * sizeof *got.ids) == 0;
        CHECK_MSG(same, "%s: '%.*s': %zu ids, not %zu", where, (int)text.len, text.ptr, got.n,
                  want.n);
        tern_strbuf_clear(&back);
        for (size_t i = 0; i < got.n; i++)
            tern_tokenizer_decode(grown, &decoder, got.ids[i], &back);
        tern_tokenizer_decode_end(&decoder, &back);
        CHECK_MSG(tern_str_eq((tern_str){tern_strbuf_text(&back), back.len}, text),
                  "%s: '%.*s' becomes '%s'", where, (int)text.len, text.ptr,
                  tern_strbuf_text(&back));
        tern_free(got.ids);
        tern_free(want.ids);
    }
    tern_strbuf_free(&back);
}

// Random texts of new tokens, their parts and others.
static void check_texts(const char *base, const char *data, const char *where) {
    static const char *const parts[] = {
        "QZQ", "the QZ",    " ",  "\n",      "Q",  "Z",  "12",   "12#Z",        "#Z",        "~",
        "the", "<|turn~|>", "th", "<|QZ~|>", "<|", "|>", "turn", "Ze\xCC\x81Q", "Z\xC3\xA9Q"};
    tern_file *from, *to;
    tern_tokenizer *own, *grown;
    tern_error err;
    uint64_t x = 7;
    REQUIRE_OK(tern_file_open(&from, base, &err), err);
    REQUIRE_OK(tern_tokenizer_open(&own, from, &err), err);
    REQUIRE_OK(tern_data_open_tokenizer(&to, data, &err), err);
    REQUIRE_OK(tern_tokenizer_open(&grown, to, &err), err);
    int32_t first = tern_tokenizer_n_named(own);
    CHECK_MSG(tern_tokenizer_n_named(grown) == first + N_NEW, "%s", where);
    for (int i = 0; i < N_NEW; i++) {
        tern_str text = {text_of(i), strlen(text_of(i))};
        CHECK(tern_tokenizer_find(grown, text) == first + i);
        CHECK(tern_tokenizer_is_control(grown, first + i) == (i >= N_PLAIN));
    }
    for (int i = 0; i < 300; i++) {
        char text[160] = "";
        for (int k = (int)((x = tern_mix64(x + 1)) % 12); k >= 0; k--)
            strcat(text, parts[(x = tern_mix64(x + 1)) % (sizeof parts / sizeof *parts)]);
        check_text(own, grown, first, (tern_str){text, strlen(text)}, where);
    }
    tern_tokenizer_free(own);
    tern_tokenizer_free(grown);
    tern_file_close(from);
    tern_file_close(to);
}

// Seen to fail: with special tokens that are those of users; with user's tokens of a GGUF that are
// normal ones.
TEST(new_tokens_are_matched_before_all_else) {
    char base[300], data[300];
    snprintf(data, sizeof data, "%s", test_tmp("grow_data"));
    for (size_t i = 4; i < 7; i += 2) { // a GGUF, a folder
        if (!make_base(&kinds[i], base, sizeof base)) return;
        if (grow_data(base, kinds[i].folder ? "<end>" : NULL, data))
            check_texts(base, data, kinds[i].name);
    }
}

// Seen to fail: with "normalized" in tokenizer.json, since Qwen's normalizer composes characters;
// with a list that is not searched to its end.
TEST(new_tokens_of_published_tokenizers) {
    static const char *const real[] = {"tokenizers/qwen3", "tokenizers/gguf/vocab-llama3_1.gguf"};
    char data[300];
    snprintf(data, sizeof data, "%s", test_tmp("grow_data"));
    for (size_t i = 0; i < sizeof real / sizeof *real; i++) {
        const char *path = test_data(real[i]);
        if (path && grow_data(path, NULL, data)) check_texts(path, data, real[i]);
    }
}

// ---- Rows --------------------------------------------------------------------------------------

static tern_train_desc growing(const char *base, const char *data, const char *out, losses *l) {
    tern_train_desc d = small_run(base, data, out, l);
    d.lora_rank = 0;
    d.rate = 2e-3f;
    d.n_steps = d.checkpoint_every = 10;
    return d;
}

// The first weights, as a file.
static bool write_first(const tern_train_desc *d, tern_train_info *info, char *path) {
    tern_trainer *t;
    tern_error err;
    bool ok = tern_trainer_open(&t, d, &err) == TERN_OK;
    CHECK_MSG(ok, "%s", err.message);
    if (!ok) return false;
    ok = tern_plan_shares(t, &err) == TERN_OK && tern_trainer_init_weights(t, &err) == TERN_OK &&
         tern_folder_make(d->out, &err) == TERN_OK &&
         tern_checkpoint_write_weights(t, "first.gguf", &err) == TERN_OK;
    CHECK_MSG(ok, "%s", err.message);
    *info = tern_plan_info(t);
    snprintf(path, 400, "%s/first.gguf", d->out);
    tern_trainer_close(t);
    return ok;
}

static bool read_tensor(const tern_file *file, const char *name, size_t n_rows, float *out) {
    const tern_tensor *t = tern_file_tensor(file, name);
    tern_error err;
    bool ok =
        t && t->ne[0] == 128 && t->ne[1] == n_rows && tern_tensor_decode(t, out, &err) == TERN_OK;
    CHECK_MSG(ok, "%s: %llu rows", name, t ? (unsigned long long)t->ne[1] : 0ull);
    return ok;
}

// Old rows keep their bits, and a new one is the mean of those of its text's bytes, here without
// the merges of the small tokenizer, "th" and "the".
static void check_rows(const char *base, const char *grown, const char *name, size_t n_rows,
                       size_t first) {
    static float old[400][128], new[400][128];
    tern_file *a, *b;
    tern_error err;
    size_t n_all = first + N_NEW > n_rows ? first + N_NEW : n_rows;
    REQUIRE_OK(tern_file_open(&a, base, &err), err);
    REQUIRE_OK(tern_file_open(&b, grown, &err), err);
    if (read_tensor(a, name, n_rows, old[0]) && read_tensor(b, name, n_all, new[0])) {
        CHECK_MSG(memcmp(old, new, first * sizeof *old) == 0, "%s", name);
        for (size_t r = first + N_NEW; r < n_rows; r++)
            CHECK_MSG(memcmp(old[r], new[r], sizeof *old) == 0, "%s: row %zu", name, r);
    }
    const char *texts[] = {"QZQ", "<|QZ~|>"};
    size_t ids[] = {first, first + N_NEW - 1};
    for (int i = 0; i < 2; i++)
        for (size_t c = 0; c < 128; c++) {
            double sum = 0, n = 0;
            for (const char *t = texts[i]; *t; t++, n++)
                sum += (double)old[(unsigned char)*t + 3][c]; // after three special tokens
            CHECK_MSG(fabs(sum / n - (double)new[ids[i]][c]) < 1e-6, "%s: %s has %g, not %g", name,
                      texts[i], (double)new[ids[i]][c], sum / n);
        }
    tern_file_close(a);
    tern_file_close(b);
}

// The logits of a text without new tokens.
static bool read_logits(const char *path, int32_t n_wanted, float *out) {
    static const int32_t ids[] = {0, 40, 107, 260, 35, 120, 77};
    static float all[7 * 400];
    tern_model *m;
    tern_session *s = NULL;
    tern_model_info info;
    tern_error err;
    bool ok = tern_model_open(&m, path, &(tern_model_desc){.n_threads = 1}, &err) == TERN_OK;
    CHECK_MSG(ok, "%s: %s", path, err.message);
    if (!ok) return false;
    tern_model_get_info(m, &info);
    ok = info.n_vocab >= n_wanted && info.n_vocab <= 400 &&
         tern_session_open(&s, m, &(tern_session_desc){.n_context = 64}, &err) == TERN_OK &&
         tern_session_logits(s, ids, 7, all, &err) == TERN_OK;
    for (int32_t i = 0; i < 7 && ok; i++)
        memcpy(out + i * n_wanted, all + i * info.n_vocab, (size_t)n_wanted * sizeof *out);
    tern_session_close(s);
    tern_model_close(m);
    return ok;
}

// Tables with and without a head beside them, exactly as large as the vocabulary, with a few free
// rows, and with enough of them. Seen to fail: with rows that begin at random; with the head's left
// out; with a sum; with new tokens after the free rows.
TEST(new_tokens_get_rows_and_change_no_other) {
    static const struct {
        tiny_model_desc model;
        size_t n_rows;
    } bases[] = {{{.arch = "llama", .seed = 91}, 300},
                 {{.arch = "llama", .seed = 92, .separate_head = true}, 300},
                 {{.arch = "qwen3", .seed = 93, .n_vocab = 303}, 303},
                 {{.arch = "llama", .seed = 94, .n_vocab = 330, .separate_head = true}, 330}};
    static float before[7 * 300], after[7 * 300];
    char base[300], data[300], first[400];
    tern_error err;
    tern_train_info info;
    losses l;
    snprintf(data, sizeof data, "%s", test_tmp("grow_data"));
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++) {
        snprintf(base, sizeof base, "%s", test_tmp("grow_base.gguf"));
        REQUIRE_OK(tiny_model_write(base, &bases[i].model, &err), err);
        if (!grow_data(base, NULL, data)) return;
        tern_train_desc d = growing(base, data, test_tmp("grow_first"), &l);
        if (!write_first(&d, &info, first)) return;
        CHECK(info.n_new_tokens == N_NEW && info.first_new_token == 300);
        check_rows(base, first, "token_embd.weight", bases[i].n_rows, 300);
        if (bases[i].model.separate_head)
            check_rows(base, first, "output.weight", bases[i].n_rows, 300);
        if (read_logits(base, 300, before) && read_logits(first, 300, after))
            CHECK_MSG(memcmp(before, after, sizeof before) == 0, "base %zu: other logits", i);
    }
}

// ---- Runs --------------------------------------------------------------------------------------

static void check_encodes(const char *path, const char *text, unsigned flags, int32_t id) {
    int32_t room[64];
    tern_ids ids = {room, 64, 0};
    tern_model *m;
    tern_error err;
    bool ok = tern_model_open(&m, path, &(tern_model_desc){.n_threads = 1}, &err) == TERN_OK;
    CHECK_MSG(ok, "%s: %s", path, err.message);
    if (!ok) return;
    CHECK(tern_tokenize(m, text, strlen(text), flags, &ids, &err) == TERN_OK);
    CHECK_MSG(id < 0 ? ids.n > 1 : ids.n == 1 && room[0] == id,
              "%s: '%s' is %zu tokens, the first %d", path, text, ids.n, (int)room[0]);
    tern_model_close(m);
}

static bool same_files(const char *a, const char *b) {
    size_t n, m;
    char *x = test_read(a, &n), *y = test_read(b, &m);
    bool same = n > 0 && n == m && !memcmp(x, y, n);
    free(x);
    free(y);
    return same;
}

// A run of bases of several kinds, quantized ones too: its loss falls, its file has the tokens, and
// a folder made of that, too. A run that goes on from an earlier step has the same bits. Seen to
// fail: with a tokenizer from before it grew in the file; with a resumed run that does not grow.
TEST(new_tokens_are_learnt_and_kept) {
    static const size_t chosen[] = {0, 6, 7};
    char base[300], data[300], out[300], folder[300], last[400], lost[400];
    tern_error err;
    losses l;
    snprintf(data, sizeof data, "%s", test_tmp("grow_data"));
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++) {
        const base_kind *k = &kinds[chosen[i]];
        char name[32];
        snprintf(name, sizeof name, "grow_run_%zu", i);
        snprintf(out, sizeof out, "%s", test_tmp(name));
        snprintf(last, sizeof last, "%s/step-00000010.gguf", out);
        snprintf(lost, sizeof lost, "%s/lost.gguf", out);
        if (!make_base(k, base, sizeof base)) return;
        if (!grow_data(base, k->folder ? "<end>" : NULL, data)) return;
        tern_train_desc d = growing(base, data, out, &l);
        d.checkpoint_every = 5;
        REQUIRE_OK(tern_train(&d, &err), err);
        CHECK_MSG(l.last_valid < 0.95 * l.first_valid, "%s: %g to %g", k->name, l.first_valid,
                  l.last_valid);
        int32_t first = k->folder ? 268 : 300;
        check_encodes(last, "Ze\xCC\x81Q", TERN_TOKENIZE_PLAIN, first + 5);
        check_encodes(last, special[1], TERN_TOKENIZE_SPECIAL, first + 7);
        check_encodes(last, special[1], TERN_TOKENIZE_PLAIN, -1);
        CHECK(rename(last, lost) == 0);
        d.resume = true;
        REQUIRE_OK(tern_train(&d, &err), err);
        CHECK_MSG(same_files(last, lost), "%s: other bits when resumed", k->name);
        snprintf(folder, sizeof folder, "%s", test_tmp("grow_folder"));
        REQUIRE_OK(tern_convert(last, folder, &(tern_convert_desc){0}, &err), err);
        check_encodes(folder, "the QZ", TERN_TOKENIZE_PLAIN, first + 1);
        check_encodes(folder, special[0], TERN_TOKENIZE_SPECIAL, first + 6);
    }
}

// A file that has grown is filled up to its rows with names of ids, and grows again from its last
// token on. Seen to fail: with new tokens after what fills it up.
TEST(a_model_that_has_grown_grows_again) {
    char base[300], data[300], last[400], twice[400];
    tern_error err;
    tern_train_info info;
    losses l;
    const char *text = test_tmp("grow.txt");
    snprintf(data, sizeof data, "%s", test_tmp("grow_data"));
    if (!make_base(&kinds[6], base, sizeof base) || !grow_data(base, "<end>", data)) return;
    tern_train_desc d = growing(base, data, test_tmp("grow_once"), &l);
    if (!write_first(&d, &info, last)) return;
    CHECK(info.first_new_token == 268);
    tern_data_build_desc b = building(last, &text, "<end>");
    b.add_tokens = "[\"more\"]";
    REQUIRE_OK(tern_data_build(data, &b, NULL, &err), err);
    d = growing(last, data, test_tmp("grow_twice"), &l);
    if (!write_first(&d, &info, twice)) return;
    CHECK(info.first_new_token == 268 + N_NEW && info.n_new_tokens == 1);
    check_encodes(twice, "more", TERN_TOKENIZE_PLAIN, 268 + N_NEW);
    check_encodes(twice, "QZQ", TERN_TOKENIZE_PLAIN, 268);
}

// A template's mark for turns becomes one token, in what is read and where answers are scored. Seen
// to fail: with the mark in add_tokens, which plain text becomes, too.
TEST(new_tokens_are_marks_of_a_chat_template) {
    static const char template[] =
        "{% for m in messages %}<|turn~|>{{ m.role }}\n{{ m.content }}<|QZ~|>{% endfor %}"
        "{% if add_generation_prompt %}<|turn~|>assistant\n{% endif %}";
    char base[300], data[300], path[400];
    const char *text = test_tmp("grow.jsonl");
    int32_t ids[4096], n_marks = 0, n_text = 0;
    tern_error err;
    tern_shard *shard;
    losses l;
    FILE *f = fopen(text, "w");
    REQUIRE(f);
    for (int i = 0; i < 60; i++)
        fprintf(f,
                "{\"messages\":[{\"role\":\"user\",\"content\":\"%d?\"},"
                "{\"role\":\"assistant\",\"content\":\"the %d\"}]}\n",
                i, i * 7);
    fputs("{\"text\":\"plain <|turn~|> text\"}\n", f);
    fclose(f);
    snprintf(data, sizeof data, "%s", test_tmp("grow_chats"));
    if (!make_base(&kinds[6], base, sizeof base)) return;
    snprintf(path, sizeof path, "%s/chat_template.jinja", base);
    REQUIRE_OK(tern_file_write(path, template, sizeof template - 1, &err), err);
    tern_data_build_desc b = building(base, &text, "<end>");
    b.add_special_tokens = SPECIAL_LIST;
    b.valid = 0;
    REQUIRE_OK(tern_data_build(data, &b, NULL, &err), err);
    snprintf(path, sizeof path, "%s/train-00000.tern", data);
    REQUIRE_OK(tern_shard_open(&shard, path, &err), err);
    uint64_t n = tern_shard_get_info(shard)->n_tokens;
    REQUIRE(n < 4096);
    REQUIRE_OK(tern_shard_read(shard, 0, n, ids, &err), err);
    for (uint64_t i = 0; i < n; i++) {
        n_marks += ids[i] == 268;
        n_text += i + 2 < n && ids[i] == '<' && ids[i + 1] == '|' && ids[i + 2] == 't';
    }
    CHECK_MSG(n_marks == 120 && n_text == 1, "%d marks, %d as text", (int)n_marks, (int)n_text);
    tern_shard_close(shard);
    tern_train_desc d = growing(base, data, test_tmp("grow_chats_run"), &l);
    d.assistant_only = true;
    REQUIRE_OK(tern_train(&d, &err), err);
    CHECK(isfinite(l.last));
    snprintf(path, sizeof path, "%s/chat_template.jinja", base);
    tern_file_remove(path); // other tests have the folder, too
}

// ---- What is refused ---------------------------------------------------------------------------

static void check_list(const char *base, const char *list, const char *why) {
    const char *text = test_tmp("grow.txt");
    tern_error err = {0};
    tern_data_build_desc d = building(base, &text, NULL);
    d.add_tokens = list;
    CHECK_MSG(tern_data_build(test_tmp("grow_no"), &d, NULL, &err) != TERN_OK, "%s", list);
    CHECK_MSG(strstr(err.message, why) && !strchr(err.message, '\n'), "%s: %s", list, err.message);
}

static void check_lines(const char *base, const char *text, size_t n, const char *why) {
    tern_error err;
    const char *path = test_tmp("grow_list.txt");
    REQUIRE_OK(tern_file_write(path, text, n, &err), err);
    check_list(base, path, why);
}

// Seen to fail: each without its check.
TEST(lists_of_new_tokens_are_checked) {
    char base[300];
    tern_error err;
    tern_strbuf many = {0};
    if (!make_base(&kinds[4], base, sizeof base) || !grow_data(base, NULL, test_tmp("grow_data")))
        return;
    check_lines(base, "one\n\nthree\n", 11, "line 2: an empty token");
    check_lines(base, "one\nth\xFF\n", 8, "line 2: a token that is not UTF-8");
    check_lines(base, "one\r\ntwo\r\none\r\n", 15, "'one' is there twice");
    check_lines(base, "one\nthe", 7, "line 2: 'the' is in the vocabulary already, as token 260");
    check_list(base, "[\"one\",\"\"]", "add_tokens: element 2: an empty token");
    check_list(base, "[\"one\",2]", "add_tokens: element 2 is not a text");
    check_list(base, "[\"one\"", "add_tokens: ");
    check_list(base, "no_such_file", "no_such_file: ");
    const char *json = test_tmp("grow_list.json");
    REQUIRE_OK(tern_file_write(json, "{}", 2, &err), err);
    check_list(base, json, "not a list of texts");
    for (int i = 0; i < 513; i++) tern_strbuf_putc(&many, 'x');
    check_lines(base, many.ptr, many.len, "line 1: a token of 513 bytes: at most 512 are matched");
    tern_strbuf_clear(&many);
    for (int i = 0; i < 65537; i++) tern_strbuf_printf(&many, "new%d\n", i);
    check_lines(base, many.ptr, many.len, "line 65537: more than 65536 new tokens");
    tern_strbuf_free(&many);
}

static void check_refused(const tern_train_desc *d, const char *why) {
    tern_error err = {0};
    tern_trainer *t = NULL;
    CHECK_MSG(tern_trainer_lay_out(&t, d, &err) != TERN_OK, "%s", why);
    CHECK_MSG(strstr(err.message, why) != NULL, "%s", err.message);
    tern_trainer_close(t);
}

// Seen to fail: with an adapter that is not refused.
TEST(models_grow_by_new_tokens_alone) {
    char base[300], data[300], other[300];
    tern_error err;
    losses l;
    snprintf(data, sizeof data, "%s", test_tmp("grow_data"));
    snprintf(other, sizeof other, "%s", test_tmp("grow_other"));
    if (!make_base(&kinds[4], base, sizeof base) || !grow_data(base, NULL, data)) return;
    tern_train_desc d = growing(base, data, test_tmp("grow_out"), &l);
    d.lora_rank = 4;
    check_refused(&d, "has 8 new tokens, and an adapter has no rows for them");
    d.lora_rank = 0;
    d.teacher = base;
    check_refused(&d, "vocabulary");
    d.teacher = NULL;
    // Longer, and another from the first token on.
    REQUIRE_OK(tern_folder_make(other, &err), err);
    if (!write_tokenizer(other) || !grow_data(other, "<end>", data)) return;
    check_refused(&d, "was not made with the tokenizer of");
}

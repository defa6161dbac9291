// Training an embedding model as a whole, on pairs that the test makes: it learns to find unseen
// answers, it resumes to the same bits, and the model it writes embeds as measured.
#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tern_embed.h"
#include "tern_tools.h"
#include "tests/support/train_fixture.h"

enum { N_HELD_OUT = 50, TEXT_MOST = 64 };

// Two letters, and an answer that has them as capitals, in the other order.
static void letters_of(int i, char query[TEXT_MOST], char positive[TEXT_MOST]) {
    int a = i % 26, b = (a + 1 + i / 26) % 26;
    snprintf(query, TEXT_MOST, "%c and %c", 'a' + a, 'a' + b);
    snprintf(positive, TEXT_MOST, "the answer is %c, then %c.", 'A' + b, 'A' + a);
}

// Held out: every sixth of the 300 pairs.
static void write_pairs(const char *path, bool held_out) {
    char query[TEXT_MOST], positive[TEXT_MOST];
    tern_strbuf text = {0};
    for (int i = 0; i < 6 * N_HELD_OUT; i++) {
        if ((i % 6 == 5) != held_out) continue;
        letters_of(i, query, positive);
        tern_strbuf_printf(&text, "{\"query\":\"%s\",\"positive\":\"%s\"", query, positive);
        if (i % 3 == 0) tern_strbuf_puts(&text, ",\"negatives\":[\"the answer is none.\"]");
        tern_strbuf_puts(&text, "}\n");
    }
    test_write(path, text.ptr, text.len);
    tern_strbuf_free(&text);
}

typedef struct found {
    double first_loss, first_recall_1, loss, recall_1, recall_10;
    int n;
} found;
static bool take_found(void *user, const tern_train_event *e) {
    found *f = user;
    if (isnan(e->valid_loss)) return true;
    if (f->n++ == 0) f->first_loss = e->valid_loss, f->first_recall_1 = e->recall_1;
    f->loss = e->valid_loss;
    f->recall_1 = e->recall_1;
    f->recall_10 = e->recall_10;
    return true;
}

typedef struct paths {
    char data[300], pairs[300], held_out[300], out[300];
} paths;
static const int32_t sizes[] = {8, 16};

static tern_train_desc small_pairs(paths *p, const char *out, found *f) {
    make_data(p->data, sizeof p->data); // for the tokenizer only
    snprintf(p->pairs, sizeof p->pairs, "%s.jsonl", test_tmp("pairs"));
    snprintf(p->held_out, sizeof p->held_out, "%s.jsonl", test_tmp("pairs_held_out"));
    snprintf(p->out, sizeof p->out, "%s", test_tmp(out));
    write_pairs(p->pairs, false);
    write_pairs(p->held_out, true);
    *f = (found){0};
    return (tern_train_desc){.data = p->data,
                             .pairs = p->pairs,
                             .held_out_pairs = p->held_out,
                             .out = p->out,
                             .n_layers = 1,
                             .n_embd = 32,
                             .n_heads = 2,
                             .n_ff = 64,
                             .seq_len = 40,
                             .micro_tokens = 300,
                             .batch_pairs = 32,
                             .n_steps = 60,
                             .sizes = sizes,
                             .n_sizes = 2,
                             .rate = 1e-2f,
                             .log_every = 4,
                             .valid_every = 30,
                             .checkpoint_every = 15,
                             .keep = 2,
                             .n_threads = 2,
                             .on_event = take_found,
                             .user = f};
}

// How often the nearest of all held-out answers is the right one, by tern_embed.
static double recall_of(const char *path, int32_t n_dims) {
    tern_error err;
    tern_model *m;
    char texts[2 * N_HELD_OUT][TEXT_MOST];
    tern_embed_text list[2 * N_HELD_OUT];
    static float vectors[2 * N_HELD_OUT * 32];
    int right = 0;
    for (int i = 0; i < N_HELD_OUT; i++) letters_of(6 * i + 5, texts[i], texts[N_HELD_OUT + i]);
    for (int i = 0; i < 2 * N_HELD_OUT; i++)
        list[i] = (tern_embed_text){.text = texts[i], .n_bytes = strlen(texts[i])};
    tern_status status = tern_model_open(&m, path, NULL, &err);
    tern_embedding_info info = {0};
    if (status == TERN_OK) tern_embedding_get_info(m, &info);
    CHECK(info.pooling == TERN_POOLING_MEAN && info.max_length == 40 && info.n_dims == 32);
    if (status == TERN_OK)
        status = tern_embed(m, list, 2 * N_HELD_OUT, &(tern_embed_params){.n_dims = n_dims},
                            vectors, &err);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    tern_model_close(m);
    for (int i = 0; i < N_HELD_OUT; i++) {
        int best = 0;
        double most = -2;
        for (int j = 0; j < N_HELD_OUT; j++) {
            double s = tern_similarity(vectors + i * n_dims, vectors + (N_HELD_OUT + j) * n_dims,
                                       (size_t)n_dims);
            if (s > most) most = s, best = j;
        }
        right += best == i;
    }
    return (double)right / N_HELD_OUT;
}

// Seen to fail: each run's vectors begin at row 0; the texts of the second pass in another order
// than those of the first; a gradient without its scale; answers cut to fewer tokens than measured.
TEST(contrastive_training_finds_what_it_has_not_seen) {
    static const tern_recipe recipes[] = {TERN_RECIPE_LLAMA, TERN_RECIPE_BITNET};
    for (size_t i = 0; i < 2; i++) {
        paths p;
        found f;
        char path[400];
        tern_error err;
        tern_train_desc d = small_pairs(&p, i ? "contrast_bitnet" : "contrast_llama", &f);
        d.recipe = recipes[i];
        if (i) d.n_steps = 150, d.rate = 2e-2f; // learning takes longer with rounding
        REQUIRE_OK(tern_train(&d, &err), err);
        CHECK_MSG(f.first_recall_1 < 0.2 && f.recall_1 > (i ? 0.35 : 0.8) &&
                      f.recall_10 >= f.recall_1 && f.loss < f.first_loss,
                  "%zu: recall@1 %g to %g, @10 %g, loss %g to %g", i, f.first_recall_1, f.recall_1,
                  f.recall_10, f.first_loss, f.loss);
        snprintf(path, sizeof path, "%s/step-%08d.gguf", p.out, (int)d.n_steps);
        CHECK_MSG(fabs(recall_of(path, 32) - f.recall_1) < 0.05, "embedded: %g, measured: %g",
                  recall_of(path, 32), f.recall_1);
        CHECK_MSG(recall_of(path, 16) > (i ? 0.25 : 0.6), "of 16 numbers: %g", recall_of(path, 16));
    }
}

TEST(contrastive_training_has_the_same_bits_however_it_is_run) {
    paths p;
    found f;
    char whole[300];
    tern_error err;
    tern_train_desc d = small_pairs(&p, "contrast_whole", &f);
    snprintf(whole, sizeof whole, "%s", p.out);
    REQUIRE_OK(tern_train(&d, &err), err);
    d = small_pairs(&p, "contrast_cut", &f);
    d.resume = true;
    d.n_threads = 1;
    d.checkpoint_every = 5;
    for (int i = 0; i < 4; i++) {
        pid_t child = fork();
        if (child == 0) {
            tern_train(&d, &err);
            _exit(0);
        }
        usleep(100000 + 70000 * (useconds_t)i);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    REQUIRE_OK(tern_train(&d, &err), err);
    for (int step = 4; step <= 60; step += 4)
        CHECK_MSG(loss_of_log(whole, step) == loss_of_log(p.out, step), "step %d: %.9g and %.9g",
                  step, loss_of_log(whole, step), loss_of_log(p.out, step));
    d.temperature = 0.1f;
    CHECK(tern_train(&d, &err) == TERN_ERR_ARGUMENT);
    CHECK_MSG(strstr(err.message, "temperature is 0.05"), "%s", err.message);
}

// Apart from the order of sums, a step does not depend on how many of its texts are computed at
// once.
TEST(contrastive_training_is_that_of_any_runs) {
    double last[2];
    for (int i = 0; i < 2; i++) {
        paths p;
        found f;
        tern_error err;
        tern_train_desc d = small_pairs(&p, i ? "contrast_runs" : "contrast_one", &f);
        d.recipe = TERN_RECIPE_LLAMA;
        d.n_steps = 4;
        d.rate = 1e-3f;
        d.micro_tokens = i ? 64 : 4096;
        REQUIRE_OK(tern_train(&d, &err), err);
        last[i] = f.loss;
    }
    CHECK_MSG(fabs(last[0] - last[1]) < 1e-4 * last[0], "%.9g and %.9g", last[0], last[1]);
}

// Seen to fail: masters whose mean is not the scale.
TEST(contrastive_training_begins_with_a_ternary_model) {
    paths p;
    found f, again;
    char path[400], ternary[400];
    tern_error err;
    tern_train_desc d = small_pairs(&p, "contrast_masters", &f);
    d.n_steps = 20;
    REQUIRE_OK(tern_train(&d, &err), err);
    snprintf(path, sizeof path, "%s/step-00000020.gguf", p.out);
    snprintf(ternary, sizeof ternary, "%s/ternary.gguf", p.data);
    REQUIRE_OK(tern_convert(path, ternary, &(tern_convert_desc){.type = TERN_TYPE_I2_S}, &err),
               err);
    double loss = f.loss;
    d = small_pairs(&p, "contrast_ternary", &again);
    d.data = NULL;
    d.init = ternary;
    d.n_layers = d.n_embd = d.n_heads = d.n_ff = 0;
    d.n_steps = 1;
    REQUIRE_OK(tern_train(&d, &err), err);
    CHECK_MSG(fabs(again.first_loss - loss) < 2e-5 * loss, "%.9g after %.9g", again.first_loss,
              loss);
    d.n_layers = 2;
    CHECK(tern_train(&d, &err) == TERN_ERR_ARGUMENT);
}

static void refuses(const char *lines, const char *why) {
    paths p;
    found f;
    tern_error err = {0};
    tern_train_desc d = small_pairs(&p, "contrast_refused", &f);
    test_write(p.pairs, lines, strlen(lines));
    d.batch_pairs = 2;
    tern_status status = tern_train(&d, &err);
    CHECK_MSG(status != TERN_OK && strstr(err.message, why), "%s: %s", why, err.message);
}

TEST(contrastive_training_refuses_what_are_no_pairs) {
    refuses("{\"query\":\"a\"}\n", "line 1: no text as \"positive\"");
    refuses("{\"query\":\"a\",\"positive\":\"\"}\n", "line 1: an empty text");
    refuses("{\"positive\":\"a\"}\n", "line 1: neither");
    refuses("\n{\"query\":\"a\",\"positive\":\"b\",\"negatives\":\"c\"}\n",
            "line 2: \"negatives\"");
    refuses("{\"query\":\"a\",\"positive\":\"b\",\"negatives\":[1]}\n", "line 1: \"negatives\"");
    refuses("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}\n", "a chat is not a pair");
    refuses("{\"query\":\"a\",\"positive\":\"b\"}\n", "fewer than the 2 of a step");
    refuses("", "there are no pairs");
    refuses("{\"query\":", "line 1");
}

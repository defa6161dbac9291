// Training adapters on chats: what assistants say alone is learnt, or what is not marked.
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "train/data/data.h"
#include "tests/support/lora_fixture.h"
#include "train/trainer.h"

// Chats in which the users' words are random and the answers are not. mark: further members of the
// users' messages.
static bool make_marked_chats(const char *base, const char *mark, const char *folder) {
    const char *text = test_tmp("lora_chats.jsonl");
    FILE *f = fopen(text, "w");
    uint64_t x = 5;
    if (!f) return false;
    for (int i = 0; i < 300; i++) {
        fprintf(f, "{\"messages\":[{\"role\":\"user\",%s\"content\":\"", mark);
        for (int k = 0; k < 12; k++) fputc('a' + (int)((x = tern_mix64(x + 1)) % 26), f);
        fputs("\"},{\"role\":\"assistant\",\"content\":\"the end\"}]}\n", f);
    }
    fclose(f);
    return build_data(base, text, NULL, folder);
}

static bool make_chats(const char *base, const char *folder) {
    return make_marked_chats(base, "", folder);
}

TEST(assistants_alone_are_learnt) {
    static const tern_message chat[] = {{.role = "user", .content = "Once?"},
                                        {.role = "assistant", .content = "Twice."},
                                        {.role = "user", .content = "Hm"},
                                        {.role = "assistant", .content = "Yes, no"}};
    static const char *const spoken = "Twice.<|im_end|>Yes, no<|im_end|>";
    char base[300];
    tern_error err;
    tern_file *file;
    tern_tokenizer *t;
    tern_template *template;
    tern_assistant *assistant;
    tern_strbuf text = {0}, learnt = {0};
    tern_ids ids = {0};
    if (!make_base(&kinds[0], base, sizeof base)) return;
    REQUIRE_OK(tern_file_open(&file, base, &err), err);
    REQUIRE_OK(tern_tokenizer_open(&t, file, &err), err);
    REQUIRE_OK(tern_template_for_model(&template, file, t, NULL, &err), err);
    REQUIRE_OK(tern_assistant_open(&assistant, file, t, &err), err);
    REQUIRE_OK(tern_template_chat(template, t, chat, 4, false, &text, &err), err);
    REQUIRE_OK(tern_tokenizer_encode(t, text.ptr, text.len, TERN_TOKENIZE_SPECIAL, &ids, &err),
               err);
    int32_t targets[256];
    uint8_t starts[256] = {1};
    int32_t n = (int32_t)ids.n - 1;
    REQUIRE(n > 0 && n < 256);
    for (int32_t i = 0; i < n; i++) targets[i] = ids.ids[i + 1];
    tern_assistant_mask(assistant, ids.ids, starts, n, targets);
    tern_decoder decoder = {.with_special = true};
    for (int32_t i = 0; i < n; i++)
        if (targets[i] >= 0) tern_tokenizer_decode(t, &decoder, targets[i], &learnt);
    CHECK_MSG(strcmp(tern_strbuf_text(&learnt), spoken) == 0, "'%s' of '%s'",
              tern_strbuf_text(&learnt), tern_strbuf_text(&text));
    tern_free(ids.ids);
    tern_strbuf_free(&text);
    tern_strbuf_free(&learnt);
    tern_assistant_close(assistant);
    tern_template_free(template);
    tern_tokenizer_free(t);
    tern_file_close(file);
}

// Only answers count: nobody can learn the users' words.
TEST(lora_training_of_chats_learns_the_answers) {
    char base[300], data[300], out[300];
    tern_error err;
    losses l;
    if (!make_base(&kinds[0], base, sizeof base)) return;
    snprintf(data, sizeof data, "%s", test_tmp("lora_chats_data"));
    if (!make_chats(base, data)) return;
    double learnt[2];
    for (int only = 0; only < 2; only++) {
        snprintf(out, sizeof out, "%s%d", test_tmp("lora_chats_out"), only);
        tern_train_desc d = small_run(base, data, out, &l);
        d.assistant_only = only;
        REQUIRE_OK(tern_train(&d, &err), err);
        learnt[only] = l.last_valid;
    }
    CHECK_MSG(learnt[0] > 1 && learnt[1] < 0.2, "all of the text %g, answers %g", learnt[0],
              learnt[1]);
}

static void take_share(void *user, const tern_train_info *info) {
    losses *l = user;
    l->share = info->share;
}

// The same, if the users' messages are marked instead. Fails if the trainer does not read the
// marks, and if a step divides by the tokens that it does not score.
TEST(lora_training_does_not_learn_messages_without_weight) {
    char base[300], data[300];
    tern_error err;
    losses l;
    if (!make_base(&kinds[0], base, sizeof base)) return;
    snprintf(data, sizeof data, "%s", test_tmp("lora_marked_data"));
    if (!make_marked_chats(base, "\"weight\":0,", data)) return;
    tern_train_desc d = small_run(base, data, test_tmp("lora_marked_out"), &l);
    d.on_begin = take_share;
    REQUIRE_OK(tern_train(&d, &err), err);
    CHECK_MSG(l.share > 0.3 && l.share < 0.8, "%g of the tokens", l.share);
    CHECK_MSG(l.last_valid < 0.1 && l.last < 0.2, "held out %g, learnt %g", l.last_valid, l.last);
    d = small_run(base, data, test_tmp("lora_marked_all"), &l);
    if (!make_marked_chats(base, "", data)) return;
    REQUIRE_OK(tern_train(&d, &err), err);
    CHECK_MSG(l.last_valid > 1, "held out %g", l.last_valid);
}

TEST(lora_training_survives_failing_allocations) {
    char base[300], data[300], out[300];
    tern_error err = {0};
    losses l;
    if (!make_base(&kinds[0], base, sizeof base)) return;
    snprintf(data, sizeof data, "%s", test_tmp("lora_memory_data"));
    snprintf(out, sizeof out, "%s", test_tmp("lora_memory_out"));
    if (!make_chats(base, data)) return;
    tern_train_desc d = small_run(base, data, out, &l);
    d.n_steps = 1;
    d.assistant_only = true;
    d.resume = true; // since a late failure has left a run
    size_t before = tern_mem_get_stats().total_now;
    int failures = 0;
    for (uint64_t n = 1; n < 8000; n += 1 + n / 8) {
        tern_mem_fail_at(n);
        tern_status status = tern_train(&d, &err);
        tern_mem_fail_at(0);
        CHECK(tern_mem_get_stats().total_now == before);
        if (status == TERN_OK) break;
        CHECK_MSG(status == TERN_ERR_MEMORY, "%llu: %s", (unsigned long long)n, err.message);
        failures++;
    }
    CHECK(failures > 10);
}

// Conversations that outgrow the context, and their transcripts.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/strbuf.h"
#include "tests/support/harness.h"
#include "tern.h"
#include "tests/support/tiny_model.h"

static const char chatml[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
// The system text goes into the first question, and roles must alternate, as in Llama 2.
static const char folded[] =
    "{% if messages[0].role == 'system' %}{% set system = messages[0].content %}"
    "{% set messages = messages[1:] %}{% endif %}{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate!') }}"
    "{% endif %}{% if m.role == 'user' %}[Q] {% if loop.first and system %}({{ system }}) "
    "{% endif %}{{ m.content }} [A]{% else %} {{ m.content }}\n{% endif %}{% endfor %}";

typedef struct rig {
    tern_model *model;
    tern_session *session;
} rig;

static bool rig_open(rig *r, const char *template, int n_context) {
    tern_error err = {0};
    const char *path = test_tmp("chat.gguf");
    tern_model_desc desc = {.n_threads = 1, .chat_template = template};
    tern_session_desc session = {.n_context = n_context, .kv_type = TERN_KV_F32};
    *r = (rig){0};
    bool ok =
        tiny_model_write(path, &(tiny_model_desc){.seed = 3, .readable = true}, &err) == TERN_OK &&
        tern_model_open(&r->model, path, &desc, &err) == TERN_OK &&
        tern_session_open(&r->session, r->model, &session, &err) == TERN_OK;
    CHECK_MSG(ok, "%s", err.message);
    return ok;
}

static void rig_close(rig *r) {
    tern_session_close(r->session);
    tern_model_close(r->model);
}

// A conversation of n messages: system text, then questions and answers of various lengths, the
// question last.
static tern_chat *make_chat(int n) {
    static const char filler[] = "and the fox ran over the hill and the hen sat in the barn again";
    tern_chat *chat;
    char text[128];
    if (tern_chat_open(&chat, NULL) != TERN_OK) return NULL;
    tern_chat_set_system(chat, "Be kind.", NULL);
    for (int i = 1; i < n; i++) {
        snprintf(text, sizeof text, "%d %.*s", i, i * 7 % 40, filler);
        tern_chat_add(chat, i % 2 ? "user" : "assistant", text, NULL);
    }
    return chat;
}

static size_t tokens_of(const tern_model *model, const tern_message *messages, size_t n,
                        int n_context, int32_t *ids, size_t capacity, size_t *dropped) {
    tern_error err = {0};
    const tern_chat_limits limits = {.n_context = n_context, .n_dropped = dropped};
    tern_ids all = {ids, capacity, 0};
    tern_status status = tern_chat_tokens(model, messages, n, &limits, &all, &err);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    return all.n;
}

// The same conversation, only without the messages dropped after the system text.
static bool is_rest(const tern_model *model, const tern_message *messages, size_t n, size_t dropped,
                    const int32_t *ids, size_t n_ids) {
    tern_message rest[64];
    int32_t expected[4096];
    rest[0] = messages[0];
    memcpy(rest + 1, messages + 1 + dropped, (n - 1 - dropped) * sizeof *rest);
    size_t n_expected = tokens_of(model, rest, n - dropped, 0, expected, 4096, NULL);
    return n_expected == n_ids && !memcmp(expected, ids, n_ids * sizeof *ids);
}

// Seen to fail: a turn cut in its middle (next_turn one message on), the system text dropped
// (first = 1), no room left for the answer (n_most = n_context).
static void check_dropping(const char *template) {
    rig r;
    int32_t ids[4096];
    if (!rig_open(&r, template, 64)) return;
    for (int n = 2; n < 60; n += 2)
        for (int n_context = 160; n_context <= 640; n_context += 120) {
            tern_chat *chat = make_chat(n);
            size_t n_messages, dropped = 99, n_ids;
            const tern_message *m = tern_chat_messages(chat, &n_messages);
            size_t n_all = tokens_of(r.model, m, n_messages, 0, ids, 4096, NULL);
            n_ids = tokens_of(r.model, m, n_messages, n_context, ids, 4096, &dropped);
            size_t most = (size_t)(n_context - n_context / 4);
            CHECK(n_ids <= most || dropped + 2 == n_messages);
            CHECK(dropped == 0 || n_all > most);
            CHECK(dropped % 2 == 0 && dropped <= n_messages - 2);
            CHECK(is_rest(r.model, m, n_messages, dropped, ids, n_ids));
            tern_chat_close(chat);
        }
    rig_close(&r);
}

TEST(chat_drops_whole_turns) {
    check_dropping(chatml);
    check_dropping(folded);
    check_dropping(NULL); // the tokens of the model's vocabulary
}

TEST(chat_drops_whole_turns_with_real_templates) {
    static const char *const names[] = {"HuggingFaceTB-SmolLM3-3B", "Qwen-Qwen2.5-7B-Instruct",
                                        "Qwen-Qwen3-0.6B", "meta-llama-Llama-3.2-3B-Instruct"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[96], *text = calloc(1, 65536);
        snprintf(name, sizeof name, "chat-templates/%s.jinja", names[i]);
        const char *path = test_data(name);
        FILE *f = path ? fopen(path, "rb") : NULL;
        if (f && fread(text, 1, 65535, f) > 0) {
            rig r;
            int32_t ids[8192];
            tern_chat *chat = make_chat(48);
            size_t n, dropped = 0;
            const tern_message *m = tern_chat_messages(chat, &n);
            if (rig_open(&r, text, 64)) {
                size_t n_all = tokens_of(r.model, m, n, 0, ids, 8192, NULL);
                int n_context = (int)n_all * 3 / 4;
                CHECK(tokens_of(r.model, m, n, n_context, ids, 8192, &dropped) < (size_t)n_context);
                CHECK(dropped > 0 && dropped % 2 == 0);
            }
            rig_close(&r);
            tern_chat_close(chat);
        }
        if (f) fclose(f);
        free(text);
        if (!path) return;
    }
}

// The dropped part stays the same for many turns, so that a session can keep its keys and values.
// Seen to fail without the steps of a quarter: then nearly every question changes it.
TEST(chat_drops_in_steps) {
    rig r;
    int32_t ids[4096];
    size_t n, last = 0, dropped = 0, n_changes = 0, n_all = 0;
    if (!rig_open(&r, chatml, 64)) return;
    for (int k = 2; k < 60; k += 2) {
        tern_chat *chat = make_chat(k);
        const tern_message *m = tern_chat_messages(chat, &n);
        n_all = tokens_of(r.model, m, n, 0, ids, 4096, NULL);
        tokens_of(r.model, m, n, 512, ids, 4096, &dropped);
        CHECK(dropped >= last); // dropped messages never come back
        n_changes += dropped != last;
        last = dropped;
        tern_chat_close(chat);
    }
    CHECK(n_changes > 2 && n_changes <= n_all / 128 + 1);
    rig_close(&r);
}

TEST(chat_refuses_a_message_longer_than_the_context_and_goes_on) {
    rig r;
    tern_error err = {0};
    tern_chat_stats stats;
    char longest[600];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    if (!rig_open(&r, chatml, 256)) return;
    const tern_message m[] = {{.role = "user", .content = "Hi"},
                              {.role = "assistant", .content = "Hi"},
                              {.role = "user", .content = longest}};
    const tern_sampling greedy = {0};
    const tern_generate_params p = {.sampling = &greedy, .max_tokens = 4};
    CHECK(tern_chat_answer(r.session, m, 3, &p, &stats, &err) == TERN_ERR_CONTEXT_FULL);
    CHECK_MSG(strstr(err.message, "the newest message has ") &&
                  strstr(err.message, "too many for a context of 256"),
              "%s", err.message);
    CHECK(tern_chat_answer(r.session, m, 1, &p, &stats, &err) == TERN_OK);
    CHECK(tern_chat_answer(r.session, m, 0, &p, &stats, &err) == TERN_ERR_ARGUMENT);
    rig_close(&r);
}

// ---- Answers that reach the end of the context --------------------------------------------------

// The choice after `ids`, in a session that has seen nothing else.
static int32_t greedy_next(tern_model *model, const int32_t *ids, size_t n, int n_context) {
    tern_session *fresh;
    tern_session_desc desc = {.n_context = n_context, .kv_type = TERN_KV_F32};
    const tern_sampling greedy = {0};
    const tern_generate_params p = {.sampling = &greedy, .max_tokens = 1, .ignore_end = true};
    size_t n_out;
    if (tern_session_open(&fresh, model, &desc, NULL) != TERN_OK) return -1;
    bool ok = tern_generate_ids(fresh, ids, n, &p, NULL, NULL) == TERN_OK;
    int32_t id = ok ? tern_session_generated(fresh, &n_out)[0] : -1;
    tern_session_close(fresh);
    return id;
}

// After an answer the timeline is the conversation without the dropped part, then the answer
// without the cut part, except its last token, which nothing followed.
static void check_timeline(const rig *r, const tern_message *messages, size_t n,
                           const tern_chat_stats *st) {
    tern_message rest[64];
    int32_t *ids = calloc(8192, sizeof *ids);
    size_t n_said, n_same = 0, first = !strcmp(messages[0].role, "system");
    memcpy(rest, messages, first * sizeof *rest);
    memcpy(rest + first, messages + first + st->n_dropped,
           (n - first - st->n_dropped) * sizeof *rest);
    size_t n_ids = tokens_of(r->model, rest, n - st->n_dropped, 0, ids, 4096, NULL);
    const int32_t *said = tern_session_generated(r->session, &n_said);
    for (size_t i = st->n_cut; i + 1 < n_said; i++) ids[n_ids++] = said[i];
    CHECK(tern_session_n_tokens(r->session) == n_ids);
    CHECK(tern_session_sync(r->session, ids, n_ids, &n_same, NULL) == TERN_OK);
    CHECK_MSG(n_same == n_ids, "the timeline differs after %zu of %zu tokens", n_same, n_ids);
    free(ids);
}

// An answer that outgrows the context goes on with older turns dropped, exactly as if they had
// never existed. Seen to fail when refit leaves out the newest token, or make_room the old prompt.
TEST(chat_answers_past_the_end_of_the_context) {
    enum { N_CONTEXT = 256 };
    rig r;
    int32_t ids[1024];
    tern_error err = {0};
    tern_chat_stats st, first;
    size_t n, n_said, dropped = 0;
    const tern_sampling greedy = {0};
    tern_generate_params p = {.sampling = &greedy, .ignore_end = true};
    if (!rig_open(&r, chatml, N_CONTEXT)) return;
    tern_chat *chat = make_chat(6);
    const tern_message *m = tern_chat_messages(chat, &n);
    size_t n_prompt = tokens_of(r.model, m, n, N_CONTEXT, ids, 1024, &dropped);
    CHECK(dropped == 0);
    size_t until_full = N_CONTEXT - n_prompt; // of which the last is chosen when all are in it
    p.max_tokens = (int32_t)until_full + 1;
    CHECK(tern_chat_answer(r.session, m, n, &p, &first, &err) == TERN_OK);
    CHECK(first.n_dropped == 0 && first.generate.n_generated == until_full + 1);
    p.max_tokens++;
    CHECK(tern_chat_answer(r.session, m, n, &p, &st, &err) == TERN_OK);
    CHECK(st.n_dropped > 0 && st.n_cut == 0 && st.generate.reason == TERN_STOP_LENGTH);
    dropped = st.n_dropped;
    const int32_t *said = tern_session_generated(r.session, &n_said);
    REQUIRE(n_said == until_full + 2);
    tern_message rest[8];
    rest[0] = m[0];
    memcpy(rest + 1, m + 1 + dropped, (n - 1 - dropped) * sizeof *rest);
    size_t n_rest = tokens_of(r.model, rest, n - dropped, 0, ids, 1024, NULL);
    memcpy(ids + n_rest, said, (n_said - 1) * sizeof *ids);
    CHECK(greedy_next(r.model, ids, n_rest + n_said - 1, N_CONTEXT) == said[n_said - 1]);
    check_timeline(&r, m, n, &st);
    tern_chat_close(chat);
    rig_close(&r);
}

static bool collect(void *user, const char *text, size_t n) {
    tern_strbuf_append(user, text, n);
    return true;
}

// Even with nothing left to drop: the answer loses its own beginning, and never ends for lack of
// room. The text is that of all tokens, whatever was dropped. Seen to fail when make_room keeps the
// answer's beginning and not its end.
TEST(chat_answers_of_any_length) {
    enum { N_CONTEXT = 96, N = 700 };
    rig r;
    tern_chat_stats st;
    tern_error err = {0};
    if (!rig_open(&r, chatml, N_CONTEXT)) return;
    const tern_message m[] = {{.role = "user", .content = "Hi"},
                              {.role = "assistant", .content = "Hello"},
                              {.role = "user", .content = "More"}};
    for (int k = 0; k < 2; k++) {
        const tern_sampling sampling = {.temperature = k ? 1.0f : 0, .seed = 7};
        tern_generate_params p = {.sampling = &sampling, .max_tokens = N, .ignore_end = true};
        tern_strbuf text = {0}, all = {0};
        size_t n_said;
        p.on_text = collect;
        p.user = &text;
        CHECK(tern_chat_answer(r.session, m, 3, &p, &st, &err) == TERN_OK);
        CHECK(st.n_dropped == 2 && st.n_cut > N - N_CONTEXT && st.n_cut < N);
        CHECK(st.generate.reason == TERN_STOP_LENGTH && st.generate.n_generated == N);
        const int32_t *said = tern_session_generated(r.session, &n_said);
        CHECK(n_said == N);
        tern_detokenize(r.model, &(tern_ids){(int32_t *)said, n_said, n_said}, false, collect, &all,
                        NULL);
        CHECK(text.len == all.len && !memcmp(text.ptr, all.ptr, all.len));
        check_timeline(&r, m, 3, &st);
        tern_strbuf_free(&text);
        tern_strbuf_free(&all);
    }
    // Without a limit a model that never ends is stopped after ten contexts.
    const tern_sampling greedy = {0};
    tern_generate_params p = {.sampling = &greedy, .ignore_end = true};
    CHECK(tern_chat_answer(r.session, m, 3, &p, &st, &err) == TERN_OK);
    CHECK(st.generate.reason == TERN_STOP_LENGTH && st.generate.n_generated == 10 * N_CONTEXT);
    rig_close(&r);
}

// ---- Transcripts --------------------------------------------------------------------------------

static bool same_chats(const tern_chat *a, const tern_chat *b) {
    size_t n, k;
    const tern_message *x = tern_chat_messages(a, &n), *y = tern_chat_messages(b, &k);
    bool same = n == k;
    for (size_t i = 0; same && i < n; i++)
        same = !strcmp(x[i].role, y[i].role) && !strcmp(x[i].content, y[i].content);
    return same;
}

// Seen to fail without the backslash, and with only one newline taken off a message's end.
TEST(chat_transcripts_are_read_back) {
    static const char *const texts[] = {"",
                                        "\n",
                                        "\n\n\n",
                                        "# a head",
                                        "\n# one",
                                        "<!-- tern: user -->",
                                        "\\<!-- tern: user -->",
                                        "a\n<!-- tern: system -->\n\\\\<!-- tern: x -->\nb\n",
                                        "tab\t \"quote\" \\ \x01 \r\n",
                                        "h\xc3\xa4h \xe2\x9c\x93 \xf0\x9f\x90\xa6",
                                        "## user\n\ntext"};
    static const char *const files[] = {"talk.json", "talk.md"};
    tern_error err = {0};
    for (int f = 0; f < 2; f++) {
        tern_chat *a, *b;
        const char *path = test_tmp(files[f]);
        REQUIRE(tern_chat_open(&a, &err) == TERN_OK && tern_chat_open(&b, &err) == TERN_OK);
        tern_chat_set_system(a, "Be\n\nkind.", NULL);
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
            tern_chat_add(a, i % 2 ? "assistant" : "user", texts[i], NULL);
        CHECK_MSG(tern_chat_save(a, path, &err) == TERN_OK, "%s", err.message);
        CHECK_MSG(tern_chat_load(b, path, &err) == TERN_OK, "%s", err.message);
        CHECK_MSG(same_chats(a, b), "%s is read back as another conversation", files[f]);
        tern_chat_set_system(b, NULL, NULL);
        tern_chat_cut(a, 3);
        CHECK(!same_chats(a, b));
        tern_chat_close(a);
        tern_chat_close(b);
    }
}

TEST(chat_refuses_what_is_no_transcript) {
    static const struct {
        const char *name, *text, *says;
    } bad[] = {
        {"a.json", "[{\"role\":\"user\"}]", "message 1 (line 1): expected the texts"},
        {"b.json", "[\n{\"role\":\"user\",\"content\":\"x\"},\n{\"role\":1,\"content\":\"\"}]",
         "message 2 (line 3): expected"},
        {"c.json", "{\"talk\":[]}", "expected a list of messages"},
        {"d.json", "[", "line 1"},
        {"e.md", "# Hello\n", "no message in it: expected a line '<!-- tern: ROLE -->'"},
    };
    tern_chat *chat = make_chat(4), *same = make_chat(4);
    tern_error err = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *path = test_tmp(bad[i].name);
        FILE *f = fopen(path, "wb");
        REQUIRE(f);
        fputs(bad[i].text, f);
        fclose(f);
        CHECK(tern_chat_load(chat, path, &err) == TERN_ERR_FORMAT);
        CHECK_MSG(strstr(err.message, bad[i].says) && strstr(err.message, bad[i].name), "%s",
                  err.message);
        CHECK(same_chats(chat, same));
    }
    CHECK(tern_chat_load(chat, test_tmp("none.json"), &err) == TERN_ERR_IO);
    CHECK(tern_chat_save(chat, "/nowhere/talk.json", &err) != TERN_OK);
    tern_chat_close(chat);
    tern_chat_close(same);
}

TEST(chat_survives_failing_allocations) {
    rig r;
    const tern_sampling greedy = {0};
    tern_generate_params p = {.sampling = &greedy, .max_tokens = 120, .ignore_end = true};
    if (!rig_open(&r, chatml, 96)) return;
    tern_chat *chat = make_chat(4);
    size_t n;
    const tern_message *m = tern_chat_messages(chat, &n);
    CHECK(tern_chat_answer(r.session, m, n, &p, NULL, NULL) == TERN_OK);
    const char *paths[] = {test_tmp("oom.json"), test_tmp("oom.md")};
    size_t before = tern_heap_get().heap_now;
    for (int job = 0; job < 3; job++) {
        tern_status status = TERN_ERR_MEMORY;
        for (uint64_t at = 1; status != TERN_OK && at < 4000; at++) {
            tern_chat *read = NULL;
            tern_mem_fail_at(at);
            if (job == 2) {
                status = tern_chat_answer(r.session, m, n, &p, NULL, NULL);
            } else {
                status = tern_chat_save(chat, paths[job], NULL);
                if (status == TERN_OK) status = tern_chat_open(&read, NULL);
                if (status == TERN_OK) status = tern_chat_load(read, paths[job], NULL);
            }
            tern_mem_fail_at(0);
            CHECK(status == TERN_OK || status == TERN_ERR_MEMORY);
            CHECK(status != TERN_OK || job == 2 || same_chats(chat, read));
            tern_chat_close(read);
            CHECK(tern_heap_get().heap_now == before);
        }
        CHECK(status == TERN_OK);
    }
    tern_chat_close(chat);
    rig_close(&r);
}

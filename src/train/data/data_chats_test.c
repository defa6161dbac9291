// Chats are learnt as they are used: the tokens of a shard are those that inference makes.
#include "train/data/data.h"

#include "tests/support/learnt_fixture.h"

// ---- One line of JSON to tokens ----------------------------------------------------------------

// Those of the shard that is built from a line, without the end token.
static tern_status learn(const path *tokenizer, const char *line, const char *end, tern_ids *out,
                         tern_error *err) {
    path text = path_of(test_tmp("learnt"), "chat.jsonl"), folder, shard;
    const char *source = text.text;
    test_folder(test_tmp("learnt"));
    test_write(source, line, strlen(line));
    folder = path_of(test_tmp("learnt"), "shards");
    shard = path_of(folder.text, "train-00000.tern");
    tern_data_build_desc desc = {.source = {.paths = &source, .n_paths = 1},
                                 .tokenizer = tokenizer->text,
                                 .end = end,
                                 .n_threads = 1};
    tern_shard *s;
    TERN_TRY(tern_data_build(folder.text, &desc, NULL, err));
    TERN_TRY(tern_shard_open(&s, shard.text, err));
    uint64_t n = tern_shard_get_info(s)->n_tokens;
    tern_status status = TERN_OK;
    if (tern_array_reserve(TERN_MEM_MISC, &out->ids, &out->capacity, 0, n) != 0)
        status = tern_fail_memory(err, n);
    if (status == TERN_OK) status = tern_shard_read(s, 0, n, out->ids, err);
    out->n = n - 1;
    tern_shard_close(s);
    return status;
}

static bool begins_with(const tern_ids *all, const tern_ids *part) {
    return part->n <= all->n && !memcmp(all->ids, part->ids, part->n * sizeof *all->ids);
}

// ---- Conversations -----------------------------------------------------------------------------

#define SYSTEM   "{\"role\":\"system\",\"content\":\"Be brief.\"}"
#define QUESTION "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Rain in Ulm?\"}]}"
#define CALL                                                                                       \
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"abcdef123\",\"type\":"     \
    "\"function\",\"function\":{\"name\":\"rain\",\"arguments\":\"{\\\"town\\\": "                 \
    "\\\"Ulm\\\"}\"}}]}"
#define RESULT "{\"role\":\"tool\",\"tool_call_id\":\"abcdef123\",\"content\":\"none\"}"
#define ANSWER                                                                                     \
    "{\"role\":\"assistant\",\"reasoning_content\":\"It says none.\",\"content\":\"No rain.\"}"
#define TOOLS                                                                                      \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"rain\",\"description\":\"Rain\","  \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"town\":{\"type\":\"string\","           \
    "\"description\":\"Where\"}}}}}],"
#define ASKED "{\"role\":\"user\",\"content\":\"Hi there\"}"
#define SAID  "{\"role\":\"assistant\",\"content\":\"Hello.\"}"

static const struct conversation {
    const char *members, *prompt, *rest; // `prompt` ends where the model answers
} conversations[] = {
    {"", ASKED, "," SAID},
    {"", SYSTEM "," ASKED "," SAID "," ASKED, "," SAID},
    {TOOLS, SYSTEM "," QUESTION, "," CALL},
    {TOOLS, QUESTION "," CALL "," RESULT, "," ANSWER},
};

// The learnt tokens are those that are read. *n counts the conversations that the template can
// render, *n_begun those whose prompt is how the learnt text begins: a template that opens the
// reasoning in the prompt may write no reasoning into the past.
static void check_conversation(const path *tokenizer, const speaker *s,
                               const struct conversation *c, int *n, int *n_begun) {
    char line[2048], whole[2048], asked[2048];
    tern_ids learnt = {0}, read = {0}, prompt = {0};
    tern_error err = {0};
    snprintf(line, sizeof line, "{%s\"messages\":[%s%s]}\n", c->members, c->prompt, c->rest);
    snprintf(whole, sizeof whole, "{\"add_generation_prompt\":false,%s\"messages\":[%s%s]}",
             c->members, c->prompt, c->rest);
    snprintf(asked, sizeof asked, "{%s\"messages\":[%s]}", c->members, c->prompt);
    tern_status status = read_as_model(s, whole, &read, &err);
    if (status == TERN_OK) {
        REQUIRE_OK(learn(tokenizer, line, s->end, &learnt, &err), err);
        REQUIRE_OK(read_as_model(s, asked, &prompt, &err), err);
        int32_t bos = tern_tokenizer_bos(s->tokenizer);
        CHECK_MSG(learnt.n == read.n && begins_with(&learnt, &read), "%s: %zu tokens, not %zu",
                  tokenizer->text, learnt.n, read.n);
        *n_begun += begins_with(&learnt, &prompt);
        CHECK_MSG(learnt.n < 2 || learnt.ids[0] != bos || learnt.ids[1] != bos, "%s: two BOS",
                  tokenizer->text);
        ++*n;
    } else {
        CHECK(learn(tokenizer, line, s->end, &learnt, &err) != TERN_OK);
        CHECK_MSG(strstr(err.message, "chat.jsonl: line 1: "), "%s", err.message);
    }
    tern_free(learnt.ids);
    tern_free(read.ids);
    tern_free(prompt.ids);
}

static int check_all(const path *tokenizer, const char *end, int *n_begun) {
    speaker s = {.end = end};
    tern_error err = {0};
    int n = *n_begun = 0;
    tern_status status = open_speaker(&s, tokenizer, &err);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    for (size_t i = 0; status == TERN_OK && i < sizeof conversations / sizeof *conversations; i++)
        check_conversation(tokenizer, &s, &conversations[i], &n, n_begun);
    close_speaker(&s);
    return n;
}

// ---- With a tokenizer that is made here --------------------------------------------------------

static const char template[] =
    "{{ bos_token }}{% if tools %}<|im_start|>tools\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{{ m.content }}{% if m.tool_calls %}{% for c in m.tool_calls %}<call>{{ c.function.name }}"
    "{{ c.function.arguments | tojson }}</call>{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

static path make_own_tokenizer(void) { return make_tokenizer(template); }

// Fails with the BOS in front of chats whose template writes it, and with tool_calls left
// out of the request.
TEST(data_learns_chats_as_they_are_used) {
    path tokenizer = make_own_tokenizer();
    int n_begun;
    CHECK(check_all(&tokenizer, "<|im_end|>", &n_begun) == 4 && n_begun == 4);
    // The end token of the document before it is the BOS of this one.
    tern_ids ids = {0};
    tern_error err = {0};
    REQUIRE_OK(learn(&tokenizer, "{\"messages\":[" ASKED "]}", NULL, &ids, &err), err);
    CHECK(ids.n > 2 && ids.ids[0] == 1);
    tern_free(ids.ids);
}

static void check_same(const path *tokenizer, const char *line, const char *messages) {
    tern_ids a = {0}, b = {0};
    tern_error err = {0};
    char other[2048];
    snprintf(other, sizeof other, "{\"messages\":[%s]}", messages);
    REQUIRE_OK(learn(tokenizer, line, NULL, &a, &err), err);
    REQUIRE_OK(learn(tokenizer, other, NULL, &b, &err), err);
    CHECK_MSG(a.n == b.n && begins_with(&a, &b), "%s", line);
    tern_free(a.ids);
    tern_free(b.ids);
}

// Fails with Alpaca's input left out, and with ShareGPT's calls as texts.
TEST(data_reads_chats_in_the_shapes_that_people_have) {
    path tokenizer = make_own_tokenizer();
    check_same(&tokenizer,
               "{\"conversations\":[{\"from\":\"human\",\"value\":\"Hi there\"},"
               "{\"from\":\"gpt\",\"value\":\"Hello.\"}]}",
               ASKED "," SAID);
    check_same(&tokenizer,
               "{\"conversations\":[{\"from\":\"human\",\"value\":\"Hi there\"},"
               "{\"from\":\"function_call\",\"value\":\"{\\\"name\\\":\\\"rain\\\","
               "\\\"arguments\\\":{\\\"town\\\":\\\"Ulm\\\"}}\"},"
               "{\"from\":\"observation\",\"value\":\"none\"}],\"system\":\"Be brief.\"}",
               SYSTEM "," ASKED "," CALL ",{\"role\":\"tool\",\"content\":\"none\"}");
    check_same(&tokenizer,
               "{\"instruction\":\"Hi\",\"input\":\"there\",\"output\":\"Hello.\",\"text\":\"x\"}",
               "{\"role\":\"user\",\"content\":\"Hi\\n\\nthere\"}," SAID);
    check_same(&tokenizer, "{\"prompt\":\"Hi there\",\"completion\":\"Hello.\"}", ASKED "," SAID);
    check_same(&tokenizer, "{\"prompt\":[" SYSTEM "," ASKED "],\"completion\":[" SAID "]}",
               SYSTEM "," ASKED "," SAID);
}

TEST(data_names_what_is_wrong_with_a_chat) {
    static const struct {
        const char *line, *words;
    } cases[] = {
        {"{\"messages\":[1]}", "a message that is not an object"},
        {"{\"messages\":[{\"role\":\"user\"}]}", "a message without \"content\""},
        {"{\"messages\":[{\"role\":\"user\",\"content\":5}]}", "\"content\" is not a text"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}]}", "a part of"},
        {"{\"conversations\":[{\"from\":\"nobody\",\"value\":\"x\"}]}", "\"from\" is none of"},
        {"{\"tools\":5,\"messages\":[" ASKED "]}", "\"tools\" is not a list"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"weight\":0.5}]}",
         "\"weight\" that is neither 0 nor 1"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"weight\":true}]}",
         "\"weight\" that is neither 0 nor 1"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"train\":1}]}",
         "\"train\" that is neither true nor false"},
        {"{\"prompt\":1,\"completion\":\"x\"}", "are texts or lists of messages"},
    };
    path tokenizer = make_own_tokenizer();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tern_ids ids = {0};
        tern_error err = {0};
        CHECK(learn(&tokenizer, cases[i].line, NULL, &ids, &err) == TERN_ERR_FORMAT);
        CHECK_MSG(strstr(err.message, "line 1: ") && strstr(err.message, cases[i].words), "%s",
                  err.message);
        tern_free(ids.ids);
    }
}

// Seen to fail: when a call or a list of tools that memory did not suffice for was a wrong one.
TEST(data_does_not_call_a_chat_wrong_for_want_of_memory) {
    static const char line[] =
        "{\"tools\":\"[{\\\"name\\\":\\\"rain\\\"}]\",\"conversations\":["
        "{\"from\":\"human\",\"value\":\"w1\"},"
        "{\"from\":\"function_call\",\"value\":\"{\\\"name\\\":\\\"rain\\\"}\"}]}";
    tern_json_doc doc;
    tern_error err = {0};
    REQUIRE_OK(tern_json_parse(&doc, line, sizeof line - 1, &err), err);
    tern_status status = TERN_ERR_MEMORY;
    for (uint64_t n = 1; status != TERN_OK; n++) {
        tern_data_chat chat = {0};
        const char *wrong;
        tern_mem_fail_at(n);
        status = tern_data_chat_read(&chat, &doc, &wrong, &err);
        tern_mem_fail_at(0);
        CHECK(status == TERN_ERR_MEMORY || (status == TERN_OK && !wrong && chat.n_messages == 2));
        tern_data_chat_free(&chat);
        REQUIRE(n < 100);
    }
    tern_json_free(&doc);
}

// ---- Messages that are not learnt ---------------------------------------------------------------

// The tokens of a line's shard that are not scored, as text; spans are apart by "|".
static void read_unscored(const path *tokenizer, const char *line, tern_strbuf *out) {
    tern_ids ids = {0};
    tern_error err = {0};
    speaker s = {0};
    tern_shard *shard;
    path folder = path_of(test_tmp("learnt"), "shards");
    tern_strbuf_clear(out);
    REQUIRE_OK(open_speaker(&s, tokenizer, &err), err);
    REQUIRE_OK(learn(tokenizer, line, NULL, &ids, &err), err);
    REQUIRE_OK(tern_shard_open(&shard, path_of(folder.text, "train-00000.tern").text, &err), err);
    for (uint32_t i = 0; i < tern_shard_get_info(shard)->n_spans; i++) {
        tern_token_span span = tern_shard_span(shard, i);
        tern_decoder d = {.with_special = true};
        if (i) tern_strbuf_putc(out, '|');
        for (uint64_t t = span.first; t < span.end && t < ids.n; t++)
            tern_tokenizer_decode(s.tokenizer, &d, ids.ids[t], out);
        tern_tokenizer_decode_end(&d, out);
    }
    tern_shard_close(shard);
    close_speaker(&s);
    tern_free(ids.ids);
}

#define OTHER "{\"role\":\"user\",\"content\":\"xHi 0\","

// Fails with one text instead of the message in place of two ("x" begins the user's, too), and
// without what the template writes into an answer: "<think>" would be scored.
TEST(data_keeps_messages_that_are_not_learnt) {
    static const struct {
        const char *messages, *unscored;
    } cases[] = {
        {ASKED "," SAID, ""},
        {ASKED ",{\"weight\":1,\"train\":true,\"role\":\"assistant\",\"content\":\"Hm\"}", ""},
        {ASKED ",{\"role\":\"assistant\",\"content\":\"Hm\",\"weight\":null}", ""},
        {ASKED ",{\"role\":\"assistant\",\"content\":\"Hm\",\"weight\":0}," ASKED "," SAID,
         "Hm<|im_end|>"},
        {ASKED ",{\"role\":\"assistant\",\"content\":\"Hm\",\"train\":false}", "Hm<|im_end|>"},
        {ASKED ",{\"role\":\"assistant\",\"content\":\"\",\"weight\":0}," ASKED, "<|im_end|>"},
        {ASKED ",{\"role\":\"assistant\",\"content\":\"x\",\"reasoning_content\":\"0\","
               "\"weight\":0}",
         "<think>0</think>x<|im_end|>"},
        {OTHER "\"weight\":0}," SAID, "xHi 0<|im_end|>"},
        {OTHER "\"train\":false},{\"role\":\"assistant\",\"content\":\"0x\",\"weight\":0}," ASKED,
         "xHi 0<|im_end|>|0x<|im_end|>"},
        {ASKED ",{\"role\":\"assistant\",\"content\":\"So:\",\"weight\":0,\"tool_calls\":[{"
               "\"function\":{\"name\":\"rain\",\"arguments\":{\"a\":\"x\"}}}]}," RESULT,
         "So:<call>rain{\"a\": \"x\"}</call><|im_end|>"},
    };
    path tokenizer = make_own_tokenizer();
    tern_strbuf found = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[1024];
        snprintf(line, sizeof line, "{\"messages\":[%s]}", cases[i].messages);
        read_unscored(&tokenizer, line, &found);
        CHECK_MSG(!strcmp(tern_strbuf_text(&found), cases[i].unscored), "%s: '%s'",
                  cases[i].messages, tern_strbuf_text(&found));
    }
    read_unscored(&tokenizer,
                  "{\"conversations\":[{\"from\":\"human\",\"value\":\"Hi\"},{\"from\":\"gpt\","
                  "\"value\":\"Hm\",\"train\":false}],\"system\":\"Be brief.\"}",
                  &found);
    CHECK_MSG(!strcmp(tern_strbuf_text(&found), "Hm<|im_end|>"), "'%s'", tern_strbuf_text(&found));
    tern_strbuf_free(&found);
}

// ---- With the templates and vocabularies of models ---------------------------------------------

TEST(data_learns_chats_of_every_family_as_they_are_used) {
    static const struct {
        const char *tokenizer, *template_name; // NULL: the vocabulary's own
        int n;                                 // conversations that it renders, at least
    } families[] = {
        {"llama3_1", NULL, 2},
        {"llama3_1", "meta-llama-Llama-3.2-3B-Instruct.jinja", 4},
        {"gemma3", NULL, 2},
        {"gemma3", "google-gemma-2-2b-it.jinja", 2},
        {"gemma3", "google-gemma-4-31B-it.jinja", 4},
        {"qwen3", NULL, 4},
        {"qwen3", "Qwen-Qwen2.5-7B-Instruct.jinja", 4},
        {"qwen3", "Qwen-Qwen3-0.6B.jinja", 4},
        {"qwen3", "Qwen3.5-4B.jinja", 4},
        {"qwen3", "HuggingFaceTB-SmolLM3-3B.jinja", 2},
        {"qwen3", "LFM2.5-Instruct.jinja", 2},
    };
    if (!test_data("chat-templates") || !test_data("tokenizers")) return;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        path folder;
        REQUIRE(borrow(&folder, families[i].tokenizer, families[i].template_name));
        int n_begun, n = check_all(&folder, NULL, &n_begun);
        CHECK_MSG(n >= families[i].n && n_begun > 0, "%s, %s: %d, %d", families[i].tokenizer,
                  families[i].template_name ? families[i].template_name : "its own", n, n_begun);
    }
}

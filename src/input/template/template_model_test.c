// Which template a model gets, and a conversation rendered with it.
#include "input/tokenizer/tests/tok_fixture.h"

// A vocabulary of single letters and these special tokens.
#define VOCABULARY(specials)                                                                       \
    "{\"added_tokens\":[" specials "],\"model\":{\"type\":\"BPE\",\"vocab\":{\"<s>\":0,"           \
    "\"</s>\":1,\"a\":2,\"b\":3},\"merges\":[]},\"pre_tokenizer\":{\"type\":\"ByteLevel\","        \
    "\"add_prefix_space\":false},\"decoder\":{\"type\":\"ByteLevel\"}}"
#define SPECIAL(id, text) "{\"id\":" id ",\"content\":\"" text "\",\"special\":true}"
#define BOS_EOS           SPECIAL("0", "<s>") "," SPECIAL("1", "</s>")

static const tern_message talk[] = {{.role = "system", .content = " Be kind. "},
                                    {.role = "user", .content = "Hi "},
                                    {.role = "assistant", .content = "Hello"},
                                    {.role = "user", .content = "Bye"}};

// Renders `talk` for a model with this vocabulary; *text must be freed.
static tern_status render(const tern_file *file, const char *vocabulary, const char *override,
                          tern_strbuf *text, tern_error *err) {
    tern_tokenizer *tokenizer = NULL;
    tern_template *t = NULL;
    static const char names[] = "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}";
    tern_status status =
        fixture_open_json(&tokenizer, vocabulary, strlen(vocabulary), names, NULL, err);
    if (status == TERN_OK) status = tern_template_for_model(&t, file, tokenizer, override, err);
    if (status == TERN_OK) status = tern_template_chat(t, tokenizer, talk, 4, true, text, err);
    tern_template_free(t);
    tern_tokenizer_free(tokenizer);
    return status;
}

static void check(const tern_file *file, const char *vocabulary, const char *override,
                  const char *expected) {
    tern_strbuf text = {0};
    tern_error err = {0};
    CHECK_MSG(render(file, vocabulary, override, &text, &err) == TERN_OK, "%s", err.message);
    CHECK_MSG(strcmp(tern_strbuf_text(&text), expected) == 0, "'%s', not '%s'",
              tern_strbuf_text(&text), expected);
    tern_strbuf_free(&text);
}

static const char llama3_vocabulary[] =
    VOCABULARY(BOS_EOS "," SPECIAL("4", "<|start_header_id|>") "," SPECIAL("5", "<|eot_id|>"));
static const char bitnet_text[] = "<s>System: Be kind.<|eot_id|>User: Hi<|eot_id|>"
                                  "Assistant: Hello<|eot_id|>User: Bye<|eot_id|>Assistant: ";

TEST(template_by_vocabulary) {
    const tern_file file = {.kind = TERN_FILE_HF, .path = "model"},
                    in_bitnet = {.kind = TERN_FILE_HF, .path = "/m/BitNet-2B/llama-2-chat"};
    tern_file bitnet = {.kind = TERN_FILE_HF, .path = "x"}, llama2 = bitnet;
    static const char bitnet_type[] = "{\"model_type\":\"bitnet\"}";
    static const char llama2_name[] = "{\"_name_or_path\":\"meta/Llama-2-7b-chat-hf\"}";
    tern_error err = {0};
    REQUIRE_OK(tern_json_parse(&bitnet.config, bitnet_type, sizeof bitnet_type - 1, &err), err);
    REQUIRE_OK(tern_json_parse(&llama2.config, llama2_name, sizeof llama2_name - 1, &err), err);
    check(&file, VOCABULARY(BOS_EOS "," SPECIAL("4", "<|im_start|>")), NULL,
          "<|im_start|>system\n Be kind. <|im_end|>\n<|im_start|>user\nHi <|im_end|>\n"
          "<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
          "<|im_start|>assistant\n");
    static const char llama3_text[] =
        "<s><|start_header_id|>system<|end_header_id|>\n\nBe kind."
        "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n";
    check(&file, llama3_vocabulary, NULL, llama3_text);
    check(&bitnet, llama3_vocabulary, NULL, bitnet_text);
    check(&file, VOCABULARY(BOS_EOS "," SPECIAL("4", "<start_of_turn>")), NULL,
          "<s><start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello"
          "<end_of_turn>\n<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n");
    const char *inst = "<s>[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nHi [/INST] Hello </s>"
                       "<s>[INST] Bye [/INST]";
    check(&llama2, VOCABULARY(BOS_EOS), NULL, inst);
    check(&file, VOCABULARY(BOS_EOS "," SPECIAL("4", "[INST]")), NULL, inst);
    // Words of the path do not count; seen to fail when they did.
    static const char plain_text[] =
        "<s>System: Be kind.\nUser: Hi\nAssistant: Hello\nUser: Bye\nAssistant: ";
    check(&file, VOCABULARY(BOS_EOS), NULL, plain_text);
    check(&in_bitnet, VOCABULARY(BOS_EOS), NULL, plain_text);
    check(&in_bitnet, llama3_vocabulary, NULL, llama3_text);
    tern_json_free(&bitnet.config);
    tern_json_free(&llama2.config);
}

// A guess is reported; a template from the file or the caller is not a guess.
TEST(template_says_when_it_is_guessed) {
    static const char own[] = "{\"chat_template\":\"x\"}";
    tern_file file = {.kind = TERN_FILE_HF, .path = "model"};
    tern_error err = {0};
    tern_tokenizer *t = NULL;
    REQUIRE_OK(
        fixture_open_json(&t, llama3_vocabulary, strlen(llama3_vocabulary), NULL, NULL, &err), err);
    for (int i = 0; i < 3; i++) {
        tern_template *chosen = NULL;
        if (i == 2)
            REQUIRE_OK(tern_json_parse(&file.tokenizer_config, own, sizeof own - 1, &err), err);
        const char *given = i == 1 ? "mine" : NULL;
        REQUIRE_OK(tern_template_for_model(&chosen, &file, t, given, &err), err);
        const char *guess = tern_template_guess(chosen);
        CHECK(i == 0 ? guess && strstr(guess, "llama3's is guessed") : !guess);
        tern_template_free(chosen);
    }
    tern_json_free(&file.tokenizer_config);
    tern_tokenizer_free(t);
}

TEST(template_of_the_file) {
    tern_error err = {0};
    tern_file file = {.kind = TERN_FILE_HF, .path = "model"};
    static const char one[] = "{\"chat_template\":\"one {{ bos_token }}{{ messages|length }}\"}";
    static const char named[] = "{\"chat_template\":[{\"name\":\"rag\",\"template\":\"r\"},"
                                "{\"name\":\"default\",\"template\":\"d{{ eos_token }}\"}]}";
    static const char unnamed[] = "{\"chat_template\":[{\"name\":\"rag\",\"template\":\"r\"}]}";
    REQUIRE_OK(tern_json_parse(&file.tokenizer_config, one, sizeof one - 1, &err), err);
    check(&file, VOCABULARY(BOS_EOS), NULL, "one <s>4");
    check(&file, VOCABULARY(BOS_EOS), "mine {{ messages[1].content }}", "mine Hi ");
    file.chat_template = TERN_STR("file {{ messages[-1].role }}"); // takes precedence
    check(&file, VOCABULARY(BOS_EOS), NULL, "file user");
    file.chat_template = (tern_str){0};
    tern_json_free(&file.tokenizer_config);
    REQUIRE_OK(tern_json_parse(&file.tokenizer_config, named, sizeof named - 1, &err), err);
    check(&file, VOCABULARY(BOS_EOS), NULL, "d</s>");
    tern_json_free(&file.tokenizer_config);
    REQUIRE_OK(tern_json_parse(&file.tokenizer_config, unnamed, sizeof unnamed - 1, &err), err);
    check(&file, VOCABULARY(BOS_EOS), NULL, "r");
    tern_json_free(&file.tokenizer_config);

    tern_strbuf text = {0};
    CHECK(render(&file, VOCABULARY(BOS_EOS), "{% if %}", &text, &err) == TERN_ERR_FORMAT);
    CHECK(strncmp(err.message, "chat template: line 1: ", 23) == 0);
    tern_strbuf_free(&text);
}

// The template that BitNet's first converter wrote.
TEST(template_of_old_bitnet_files_is_replaced) {
    static const char wrong[] =
        "{% for message in messages %}{% if message['role'] == 'user' %}Human: "
        "{{ message['content'] }}\n\nBITNETAssistant: {% endif %}{% endfor %}";
    tern_file file = {.kind = TERN_FILE_HF, .path = "model", .chat_template = TERN_STR(wrong)};
    static const char type[] = "{\"model_type\":\"bitnet\"}";
    tern_error why = {0};
    REQUIRE_OK(tern_json_parse(&file.config, type, sizeof type - 1, &why), why);
    check(&file, llama3_vocabulary, NULL, bitnet_text);
    tern_json_free(&file.config);

    const char *path = test_tmp("old-bitnet.gguf");
    static const char weights[32];
    const uint64_t ne[] = {8};
    tern_gguf_writer *w = NULL;
    tern_file *gguf = NULL;
    tern_error err = {0};
    REQUIRE_OK(tern_gguf_writer_open(&w, path, 0, &err), err);
    tern_gguf_put_str(w, "general.architecture", TERN_STR("bitnet-25"));
    tern_gguf_put_str(w, "tokenizer.chat_template", TERN_STR(wrong));
    tern_gguf_declare(w, "token_embd.weight", TERN_DTYPE_F32, 1, ne);
    CHECK(tern_gguf_write(w, weights, sizeof weights, &err) == TERN_OK);
    CHECK_MSG(tern_gguf_writer_finish(w, &err) == TERN_OK, "%s", err.message);
    tern_gguf_writer_free(w);
    REQUIRE_OK(tern_file_open(&gguf, path, &err), err);
    check(gguf, llama3_vocabulary, NULL, bitnet_text);
    tern_file_close(gguf);
}

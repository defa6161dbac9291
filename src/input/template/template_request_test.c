// Clients' requests, and the variables that templates get.
#include "input/tokenizer/tests/tok_fixture.h"

static const char vocabulary[] =
    "{\"added_tokens\":[],\"model\":{\"type\":\"BPE\",\"vocab\":{\"<s>\":0,\"</s>\":1,\"a\":2},"
    "\"merges\":[]},\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
    "\"decoder\":{\"type\":\"ByteLevel\"}}";

static tern_status render(const char *source, const char *request, tern_strbuf *text,
                          tern_error *err) {
    const tern_file file = {.kind = TERN_FILE_HF, .path = "model"};
    tern_tokenizer *tokenizer = NULL;
    tern_template *t = NULL;
    tern_status status =
        fixture_open_json(&tokenizer, vocabulary, strlen(vocabulary), "{}", NULL, err);
    if (status == TERN_OK) status = tern_template_for_model(&t, &file, tokenizer, source, err);
    if (status == TERN_OK)
        status = tern_template_chat_json(t, tokenizer, request, strlen(request), text, err);
    tern_template_free(t);
    tern_tokenizer_free(tokenizer);
    return status;
}

static void check(const char *source, const char *request, const char *expected) {
    tern_strbuf text = {0};
    tern_error err = {0};
    CHECK_MSG(render(source, request, &text, &err) == TERN_OK, "%s", err.message);
    CHECK_MSG(!strcmp(tern_strbuf_text(&text), expected), "'%s', not '%s'", tern_strbuf_text(&text),
              expected);
    tern_strbuf_free(&text);
}

static void check_refused(const char *source, const char *request, const char *reason) {
    tern_strbuf text = {0};
    tern_error err = {0};
    CHECK(render(source, request, &text, &err) != TERN_OK);
    CHECK_MSG(strstr(err.message, reason) != NULL, "%s", err.message);
    tern_strbuf_free(&text);
}

#define CALL(arguments)                                                                            \
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"type\":"             \
    "\"function\","                                                                                \
    "\"function\":{\"name\":\"f\",\"arguments\":" arguments "}}]}"
#define TOOL "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":true}}"

// Seen to fail: with each part of put_message and put_tool left out in turn.
TEST(template_request) {
    static const char all[] =
        "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
        "{% for m in messages %}{{ m.role }}:{{ m.content }};{% for c in m.tool_calls or [] %}{{ "
        "c.id }} {{ "
        "c.function.name }} {% for k, v in c.function.arguments | items %}{{ k }}={{ v }} {% "
        "endfor %}{% endfor %}"
        "{% if m.reasoning_content %}R{{ m.reasoning_content }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}>{% endif %}{% if loud %}!{% endif %}";
    check(all,
          "{\"messages\":[{\"role\":\"developer\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{"
          "\"type\":\"text\",\"text\":\"b\"}]},{\"role\":\"user\",\"content\":\"c\"}," CALL(
              "\"{\\\"x\\\": 1.0, \\\"y\\\": \\\"z\\\"}\"") ",{\"role\":\"tool\",\"tool_call_id\":"
                                                            "\"1\",\"content\":\"d\"}],\"loud\":"
                                                            "true}",
          "system:ab;user:c;assistant:;1 f x=1.0 y=z tool:d;>!");
    check(all,
          "{\"add_generation_prompt\":false,\"tools\":[" TOOL
          ",{\"name\":\"g\",\"parameters\":{\"a\":1234567890123456789}}],"
          "\"messages\":[{\"role\":\"assistant\",\"content\":\"x\",\"reasoning_content\":\"y\","
          "\"tool_calls\":null}]}",
          "{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": "
          "\"object\", \"properties\": {}}}}"
          "{\"type\": \"function\", \"function\": {\"name\": \"g\", \"parameters\": {\"a\": "
          "1234567890123456789}}}assistant:x;Ry");
    check(all, "{\"tools\":[],\"messages\":[" CALL("{}") "]}", "assistant:;1 f >");
    // Seen to fail: with the text before an image taken for the whole message.
    check("{% for m in messages %}{% for p in m.content %}{{ p.type }} {{ p.text or '' }};"
          "{% endfor %}{% endfor %}",
          "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
          "{\"type\":\"image\"},{\"type\":\"text\",\"text\":\"b\"}]}]}",
          "text a;image ;text b;");
    check_refused(all, "{\"messages\":{}}", "\"messages\"");
    check_refused(all, "{\"messages\":[1]}", "\"messages\" must be a list of objects");
    check_refused(all, "{\"tools\":{\"a\":1},\"messages\":[]}", "\"tools\" must be a list");
    check_refused(all, "[", "the request");
    check_refused("{{ messages[0].content }}", "{\"tools\":[" TOOL "],\"messages\":[]}",
                  "takes no tools");
}

// LFM2's template writes only the texts of messages, so these must contain the calls, in the form
// that the model has learned.
TEST(template_request_writes_calls) {
    static const char lfm[] =
        "{# tools <|tool_call_start|> #}{% for m in messages %}{{ m.content }}|{% endfor %}";
    static const char qwen[] =
        "{# tools <tool_call> #}{% for m in messages %}{{ m.content }}|{% endfor %}";
    static const char talk[] = "{\"messages\":[" CALL(
        "{\"a\":\"it's \\\"so\\\"\",\"b\":[1,true,null],\"c\":{\"d\":2.5}}") "]}";
    check(lfm, talk,
          "<|tool_call_start|>[f(a=\"it's \\\"so\\\"\", b=[1, True, None], c={\"d\": "
          "2.5})]<|tool_call_end|>|");
    check(qwen, talk,
          "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"it's "
          "\\\"so\\\"\",\"b\":[1,true,null],\"c\":{\"d\":2.5}}}</tool_call>|");
    check(lfm, "{\"messages\":[" CALL("\"no object\"") "]}",
          "<|tool_call_start|>[f()]<|tool_call_end|>|");
}

// Gemma 2's template refuses the role. Seen to fail, as every request with a system message did.
TEST(template_request_puts_a_refused_system_message_into_the_users) {
    static const char refuses[] =
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}"
        "{% endif %}{{ m.role }}:{% if m.content is string %}{{ m.content }}{% else %}"
        "{% for p in m.content %}<{{ p.type }}{{ p.text or '' }}>{% endfor %}{% endif %};"
        "{% if m.content == 'bad' %}{{ raise_exception('bad words') }}{% endif %}{% endfor %}";
#define SAYS(role, content) "{\"role\":\"" role "\",\"content\":" content "}"
    check(refuses, "{\"messages\":[" SAYS("system", "\"s\"") "," SAYS("user", "\"u\"") "]}",
          "user:s\n\nu;");
    check(refuses,
          "{\"messages\":[" SAYS("developer", "\"s\"") "," SAYS("system", "\"t\"") "," SAYS(
              "user", "[{\"type\":\"image\"},{\"type\":\"text\",\"text\":\"u\"}]") "]}",
          "user:<texts\n\nt\n\n><image><textu>;");
    check(refuses, "{\"messages\":[" SAYS("system", "\"s\"") "," SAYS("assistant", "\"a\"") "]}",
          "user:s;assistant:a;");
    check(refuses, "{\"messages\":[" SAYS("system", "\"s\"") "]}", "user:s;");
    check_refused(refuses, "{\"messages\":[" SAYS("user", "\"bad\"") "]}", "bad words");
}

// Real chat templates, if available, render the conversations that they should accept.
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "input/input.h"
#include "tests/support/harness.h"

static char *read_file(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    char *text = f ? calloc(1, 16 << 20) : NULL;
    *n = text ? fread(text, 1, (16 << 20) - 1, f) : 0;
    if (f) fclose(f);
    return text;
}

#define BEGIN           "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"," GENERATES
#define GENERATES       "\"add_generation_prompt\":true,"
#define USER(text)      "{\"role\":\"user\",\"content\":\"" text "\"}"
#define ASSISTANT(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"
static const char plain_chat[] = BEGIN
    "\"messages\":[" USER("Hello there") "," ASSISTANT("Good day") "," USER("What is 2+2?") "]}";
static const char thinking[] = BEGIN "\"enable_thinking\":false,\"messages\":[" USER(
    "One") "," ASSISTANT("<think>\\nhm\\n</think>\\n\\nTwo") "," USER("Three") "]}";
static const char with_tools[] = BEGIN
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"description\":\"Looks "
    "outside\",\"parameters\":{\"type\":\"object\",\"properties\":{\"town\":{\"type\":\"string\","
    "\"description\":\"where\"}},\"required\":[\"town\"]}}}],\"messages\":[" USER(
        "Rain?") ","
                 "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"1\",\"type\":"
                 "\"function\","
                 "\"function\":{\"name\":\"weather\",\"arguments\":{\"town\":\"Ghent\",\"n\":1.5}}}"
                 "]},"
                 "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"name\":\"weather\",\"content\":"
                 "\"dry\"}]}";

// The text must contain all of the words, in this order.
static void check_words(const char *name, const char *text, const char *const *words) {
    for (const char *at = text; *words; words++) {
        at = strstr(at, *words);
        CHECK_MSG(at != NULL, "%s: no '%s' in its place in: %s", name, *words, text);
        if (!at) return;
    }
}

static void check_template(const char *name, const char *source, size_t n) {
    static const char *const spoken[] = {"Hello there", "Good day", "What is 2+2?", NULL};
    static const char *const thought[] = {"One", "Two", "Three", NULL};
    static const char *const called[] = {"weather", "Rain?", "Ghent", NULL};
    static const struct {
        const char *variables;
        const char *const *words;
    } runs[] = {{plain_chat, spoken}, {thinking, thought}, {with_tools, called}};
    tern_template *t;
    tern_error err = {0};
    REQUIRE_OK(tern_template_open(&t, (tern_str){source, n}, &err), err);
    bool has_tools = strstr(source, "tool_calls") != NULL;
    for (size_t i = 0; i < 2 + (size_t)has_tools; i++) {
        tern_strbuf out = {0};
        tern_status status =
            tern_template_render(t, runs[i].variables, strlen(runs[i].variables), &out, &err);
        CHECK_MSG(status == TERN_OK, "%s: %s", name, err.message);
        if (status == TERN_OK) check_words(name, out.ptr, runs[i].words);
        tern_strbuf_free(&out);
    }
    tern_template_free(t);
}

TEST(template_renders_real_files) {
    const char *folder = test_data("chat-templates");
    DIR *dir = folder ? opendir(folder) : NULL;
    int n_templates = 0;
    if (!dir) return;
    for (struct dirent *e; (e = readdir(dir));) {
        char path[1024];
        size_t n;
        if (!strstr(e->d_name, ".jinja")) continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        char *source = read_file(path, &n);
        check_template(e->d_name, source, n);
        n_templates++;
        free(source);
    }
    CHECK_MSG(n_templates > 5, "%d templates in %s", n_templates, folder);
    closedir(dir);
}

TEST(template_renders_tokenizer_configs) {
    static const char *const names[] = {"llama3_1", "gemma3", "qwen3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char relative[64];
        size_t n;
        tern_json_doc doc;
        tern_error err = {0};
        snprintf(relative, sizeof relative, "tokenizers/%s/tokenizer_config.json", names[i]);
        const char *path = test_data(relative);
        if (!path) return;
        char *text = read_file(path, &n);
        REQUIRE_OK(tern_json_parse(&doc, text, n, &err), err);
        tern_str source = tern_json_str(tern_json_path(&doc, "chat_template"));
        char *copy = tern_strndup(TERN_MEM_MISC, source.ptr, source.len);
        check_template(names[i], copy, source.len);
        tern_free(copy);
        tern_json_free(&doc);
        free(text);
    }
}

TEST(template_variables_must_be_an_object) {
    tern_template *t;
    tern_strbuf out = {0};
    tern_error err = {0};
    REQUIRE_OK(tern_template_open(&t, TERN_STR("a{{ x }}b{{ 1.0 ~ y }}"), &err), err);
    CHECK(tern_template_render(t, "[1]", 3, &out, &err) == TERN_ERR_ARGUMENT);
    CHECK(tern_template_render(t, "{\"x\":", 5, &out, &err) == TERN_ERR_FORMAT);
    CHECK(strstr(err.message, "the chat template's variables") != NULL);
    tern_strbuf_puts(&out, ">");
    REQUIRE_OK(tern_template_render(t, NULL, 0, &out, &err), err);
    REQUIRE_OK(tern_template_render(t, "{\"y\":1,\"x\":1.0}", 15, &out, &err), err);
    CHECK(strcmp(out.ptr, ">ab1.0a1.0b1.01") == 0);
    tern_strbuf_free(&out);
    tern_template_free(t);
}

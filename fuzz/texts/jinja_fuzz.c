// Fuzzing of chat templates: the input is a template, then a zero byte and its variables as JSON
// (without one, some that make the usual paths reachable). Output left by a failed run, or that
// differs between two runs, is a bug.
#include <stdlib.h>
#include <string.h>
#include "input/jinja/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void require(bool ok) {
    if (!ok) abort();
}

static const char usual[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":"
    "[{\"type\":\"text\",\"text\":\"\\u00e9\"}]}],\"n\":-3,\"f\":2.5,\"t\":true,\"z\":null,"
    "\"bos_token\":\"<s>\",\"tools\":[{\"name\":\"f\",\"x\":{\"y\":[1,2]}}]}";

static tern_status render(const jprogram *program, const tern_json_doc *variables,
                          tern_strbuf *out) {
    const jlimits limits = {
        .n_steps = 30000, .memory_bytes = 4 << 20, .text_bytes = 1 << 20, .depth = 200};
    tern_error err = {0};
    tern_strbuf_puts(out, ">");
    tern_status status = tern_jinja_render(program, &limits, variables, out, &err);
    require(status != TERN_OK ? out->len <= 1 && err.message[0] : out->len >= 1);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    const char *text = (const char *)bytes, *zero = n ? memchr(text, 0, n) : NULL;
    size_t n_source = zero ? (size_t)(zero - text) : n;
    const char *json = zero ? zero + 1 : usual;
    jprogram program;
    tern_json_doc variables = {0};
    tern_error err;
    if (tern_jinja_parse(&program, (tern_str){text, n_source}, J_SPACE_TRIMMED, &err) == TERN_OK &&
        tern_json_parse(&variables, json, zero ? n - n_source - 1 : sizeof usual - 1, &err) ==
            TERN_OK) {
        tern_strbuf a = {0}, b = {0};
        bool tells_time = n_source && memmem(text, n_source, "strftime", 8);
        tern_status first = render(&program, &variables, &a);
        tern_status second = first == TERN_ERR_MEMORY ? first : render(&program, &variables, &b);
        if (second != TERN_ERR_MEMORY && !tells_time)
            require(first == second && a.len == b.len && (!a.len || !memcmp(a.ptr, b.ptr, a.len)));
        tern_strbuf_free(&a);
        tern_strbuf_free(&b);
    }
    tern_json_free(&variables);
    tern_jinja_arena_free(&program.arena);
    return 0;
}

// Long and deep inputs on a thread with a small stack: whoever reads them must refuse what is too
// deep, and call itself for nothing that is only long. The input is a generator:
//
//     kind, count / 8, then five texts with a byte 1 between: head, open, middle, close, tail
//
// and what is read is head, count times open, middle, count times close, tail.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "base/json/json.h"
#include "base/json/json_write.h"
#include "fuzz/support.h"
#include "grammar/mask/automaton.h"
#include "input/jinja/jinja.h"

enum { DEEP_JSON, DEEP_TEMPLATE, DEEP_VARIABLES, DEEP_GRAMMAR, N_KINDS = DEEP_GRAMMAR + 5 };

#define TEXT_MAX 400000
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STACK_BYTES ((size_t)1 << 20)
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define STACK_BYTES ((size_t)1 << 20)
#endif
#endif
#ifndef STACK_BYTES // musl's threads have no more
#define STACK_BYTES ((size_t)128 << 10)
#endif

typedef struct reading {
    unsigned kind;
    tern_str text;
} reading;

static void read_json(tern_str text) {
    tern_json_doc doc = {0};
    tern_strbuf out = {0};
    tern_json_writer w = {.out = &out};
    tern_error err = {0};
    if (tern_json_parse(&doc, text.ptr, text.len, &err) == TERN_OK)
        tern_json_put_value(&w, NULL, &doc, tern_json_root(&doc));
    tern_strbuf_free(&out);
    tern_json_free(&doc);
}

static void read_template(tern_str source, tern_str variables) {
    const jlimits limits = {.n_steps = 300000,
                            .memory_bytes = 16 << 20,
                            .text_bytes = 1 << 20,
                            .depth = tern_jinja_limits.depth};
    jprogram program;
    tern_json_doc doc = {0};
    tern_strbuf out = {0};
    tern_error err = {0};
    if (tern_jinja_parse(&program, source, J_SPACE_TRIMMED, &err) == TERN_OK &&
        tern_json_parse(&doc, variables.ptr, variables.len, &err) == TERN_OK)
        (void)tern_jinja_render(&program, &limits, &doc, &out, &err);
    tern_strbuf_free(&out);
    tern_json_free(&doc);
    tern_jinja_arena_free(&program.arena);
}

static void read_grammar(tern_grammar_kind kind, tern_str text) {
    const tern_grammar_source source = {.kind = kind, .text = text, .bytes_max = 32 << 20};
    tern_automaton *a;
    tern_error err = {0};
    if (tern_automaton_open(&a, &source, NULL, &err) != TERN_OK) {
        fuzz_require(!a && err.message[0]);
        return;
    }
    tern_gplace place = tern_automaton_start(a);
    tern_strbuf forced = {0};
    tern_automaton_limit(a, 1000000);
    if (tern_automaton_forced(a, place, 64, &forced, &err) == TERN_OK)
        for (size_t i = 0; i < 16 && place; i++)
            if (tern_automaton_add(a, &place, &"a0({[\"xb"[i % 8], 1, &err) != TERN_OK) break;
    tern_strbuf_free(&forced);
    tern_automaton_close(a);
}

static void *read_text(void *user) {
    static const char usual[] =
        "{{ x }}{{ x|tojson }}{{ x == x }}{{ [x, 1]|sort|length }}{{ x|string }}";
    static const tern_grammar_kind kinds[] = {TERN_GRAMMAR_JSON_SCHEMA, TERN_GRAMMAR_REGEX,
                                              TERN_GRAMMAR_GBNF, TERN_GRAMMAR_LARK,
                                              TERN_GRAMMAR_CHOICES};
    const reading *r = user;
    switch (r->kind) {
    case DEEP_JSON: read_json(r->text); break;
    case DEEP_TEMPLATE: read_template(r->text, TERN_STR("{\"x\":[1,{\"y\":\"z\"}]}")); break;
    case DEEP_VARIABLES: read_template(TERN_STR(usual), r->text); break;
    default: read_grammar(kinds[r->kind - DEEP_GRAMMAR], r->text); break;
    }
    return NULL;
}

static void add(tern_strbuf *out, tern_str part, size_t n) {
    for (size_t i = 0; i < n && out->len + part.len < TEXT_MAX; i++)
        tern_strbuf_append(out, part.ptr, part.len);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static uint64_t last;
    tern_str parts[5] = {{0}};
    tern_strbuf text = {0};
    pthread_attr_t attributes;
    pthread_t thread;
    if (n < 2) return 0;
    const uint64_t hash = tern_hash64(n, bytes, n);
    // Again, as where allocations fail: that depends on no length.
    const size_t count = hash == last ? 10 : (size_t)bytes[1] * 256;
    const char *at = (const char *)bytes + 2, *end = (const char *)bytes + n;
    last = hash;
    for (size_t i = 0; i < 5; i++) {
        const char *next = at < end ? memchr(at, 1, (size_t)(end - at)) : NULL;
        parts[i] = (tern_str){at, (size_t)((next ? next : end) - at)};
        at = next ? next + 1 : end;
    }
    add(&text, parts[0], 1);
    add(&text, parts[1], count);
    add(&text, parts[2], 1);
    add(&text, parts[3], count);
    add(&text, parts[4], 1);
    const reading r = {bytes[0] % N_KINDS, {tern_strbuf_text(&text), text.len}};
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    fuzz_require(pthread_create(&thread, &attributes, read_text, (void *)(uintptr_t)&r) == 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    tern_strbuf_free(&text);
    return 0;
}

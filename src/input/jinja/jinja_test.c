// Output of templates: each line was checked against Jinja2 3.1, set up as in transformers.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "input/input.h"
#include "input/jinja/jinja.h"
#include "tests/support/harness.h"

static const char variables[] =
    "{\"s\":\"Hello World\",\"u\":\"\\u00dcn\\u00efc \\ud83d\\ude42x\",\"e\":\"\",\"n\":7,"
    "\"f\":2.5,\"t\":true,\"no\":null,\"l\":[3,1,2],\"ls\":[\"b\",\"A\",\"c\"],\"ws\":\"  x y  z "
    "\",\"d\":{\"b\":1,\"a\":[1,2.0],\"items\":5},\"dd\":{\"z\":1,\"Y\":2,\"x\":3},"
    "\"m\":[{\"role\":\"user\",\"c\":\"hi\"},{\"role\":\"assistant\",\"c\":\"yo\"},"
    "{\"role\":\"user\",\"c\":\"HI\"}],\"multi\":\"a\\nb\\n\\n c\"}";

// Renders source; the caller frees *out. err gets the message of a failure.
static tern_status render(const char *source, tern_strbuf *out, tern_error *err) {
    tern_template *t;
    tern_status status = tern_template_open(&t, (tern_str){source, strlen(source)}, err);
    if (status != TERN_OK) return status;
    status = tern_template_render(t, variables, sizeof variables - 1, out, err);
    tern_template_free(t);
    return status;
}

typedef struct example {
    const char *source, *text;
} example;

static void check_examples(const example *examples, size_t n) {
    for (size_t i = 0; i < n; i++) {
        tern_strbuf out = {0};
        tern_error err = {0};
        tern_status status = render(examples[i].source, &out, &err);
        CHECK_MSG(status == TERN_OK, "%s: %s", examples[i].source, err.message);
        CHECK_MSG(strcmp(tern_strbuf_text(&out), examples[i].text) == 0, "%s gives '%s', not '%s'",
                  examples[i].source, tern_strbuf_text(&out), examples[i].text);
        tern_strbuf_free(&out);
    }
}
#define CHECK_ALL(table) check_examples(table, sizeof table / sizeof *table)

TEST(jinja_white_space) {
    static const example table[] = {
        {"a\n  {% if t %}\n  b\n  {% endif %}\nc", "a\n  b\nc"},
        {"a\n  {%+ if t %}\n  b\n  {%+ endif +%}\nc", "a\n    b\n  \nc"},
        {"a  {%- if t -%}  b  {%- endif -%}  c", "abc"},
        {"  {{ n }}\n  {{- n }}  {{ n -}}  \n x", "  77  7x"},
        {"x {#- c -#} y{# c #}\nz", "xyz"},
        {"{% raw %}{{ x }}{% y %}{# z #}{% endraw %}\n.", "{{ x }}{% y %}{# z #}."},
        {"one\n\n", "one\n"},
        {"a\r\nb\rc", "a\nb\nc"},
        {"{% for i in l -%}\n  {{ i }}\n{%- endfor %}\n!", "312!"},
    };
    CHECK_ALL(table);
}

TEST(jinja_expressions) {
    static const example table[] = {
        {"{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7.5 // 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }}",
         "3 -4 2 3.0 1024 0.5"},
        {"{{ 4 / 2 }} {{ 0.1 + 0.2 }} {{ 1e16 }} {{ 1.5e-7 }} {{ 123456789.125 }} {{ 100.0 }}",
         "2.0 0.30000000000000004 1e+16 1.5e-07 123456789.125 100.0"},
        {"{{ -2 ** 2 }} {{ 1 < 2 < 3 }} {{ 1 == 1.0 }} {{ [1, 2] < [1, 3] }} {{ not e }}",
         "4 True True True True"},
        {"{{ e or n }} {{ s and n }} {{ 1 if e else 2 if e else 3 }} [{{ 1 if e }}]", "7 7 3 []"},
        {"{{ s ~ 1 ~ none ~ true ~ 2.0 }} {{ 'ab' * 2 }} {{ l + [4] }} {{ (1,) * 2 }}",
         "Hello World1NoneTrue2.0 abab [3, 1, 2, 4] (1, 1)"},
        {"{{ [1, (2, 3), {'a': none, 'it\\'s': \"q\\\"\"}, 'x\\n'] }}",
         "[1, (2, 3), {'a': None, \"it's\": 'q\"'}, 'x\\n']"},
        {"{{ s[0] }}{{ s[-1] }}{{ s[99] }} {{ s[1:3] }} {{ s[::-1] }} {{ u[::-1] }} {{ u[1:4] }}",
         "Hd el dlroW olleH x\U0001F642 c\u00efn\u00dc n\u00efc"},
        {"{{ l[::-1] }} {{ l[5:0:-2] }} {{ l[:-1] }} {{ m[::2] | length }}",
         "[2, 1, 3] [2] [3, 1] 2"},
        {"{{ d.b }} {{ d['items'] }} {{ d.get('q') }} {{ d.get('q', 3) }} {{ m.0.role }}",
         "1 5 None 3 user"},
        {"{{ d.items() | list }} {{ dd.keys() | list }}",
         "[('b', 1), ('a', [1, 2.0]), ('items', 5)] ['z', 'Y', 'x']"},
        {"{{ 'll' in s }} {{ 2 in l }} {{ 'a' in d }} {{ 9 not in l }} {{ nope in l }}",
         "True True True True False"},
        {"[{{ nope }}][{{ d.nope }}]{{ nope | length }}{{ nope | list }}{{ nope is defined }}",
         "[][]0[]False"},
        {"{{ 'a' 'b' }} {{ '\\x41\\u00e9\\101\\q' }} {{ \"}}\" }} {{ {'a': {'b': 1}}}}",
         "ab A\u00e9A\\q }} {'a': {'b': 1}}"},
        {"{{ -3 | abs }} {{ 1 + 2 | string | length }} {{ m | length - 1 }}", "3 2 2"},
    };
    CHECK_ALL(table);
}

TEST(jinja_statements) {
    static const example table[] = {
        {"{% for c in 'ab' %}{{ loop.index }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}"
         "{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }} {% endfor %}",
         "11TrueFalse2b 20FalseTrue2a "},
        {"{% for k, v in dd | dictsort %}{{ k }}{{ v }}{% endfor %}", "x3Y2z1"},
        {"{% for x in l if x > 1 %}{{ loop.index }}:{{ x }} {% endfor %}", "1:3 2:2 "},
        {"{% for x in l if x > 9 %}a{% else %}none{% endfor %}", "none"},
        {"{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "32"},
        {"{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}", "3"},
        {"{% set y = 0 %}{% for x in l %}{% set y = y + x %}{{ y }}{% endfor %}{{ y }}", "3120"},
        {"{% set ns = namespace(y=0) %}{% for x in l %}{% set ns.y = ns.y + x %}{% endfor %}"
         "{{ ns.y }}",
         "6"},
        {"{% set a, b = 1, [2] %}{{ a }}{{ b }}", "1[2]"},
        {"{% set a | upper %}x {{ s }}{% endset %}[{{ a }}]", "[X HELLO WORLD]"},
        {"{% if e %}A{% elif 0 %}B{% elif t %}C{% else %}D{% endif %}", "C"},
        {"{% macro f(a, b=2) %}{{ a }}-{{ b }};{% endmacro %}{{ f(1) }}{{ f(b=1, a=2) }}{{ f() }}",
         "1-2;2-1;-2;"},
        {"{% macro f(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, k=4) }}",
         "1(2,){'k': 4}"},
        {"{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
         "3210"},
        {"{% macro f() %}{{ g }}{% endmacro %}{% set g = 1 %}{{ f() }}{% set g = 2 %}{{ f() }}",
         "12"},
        {"{% macro f() %}<{{ caller(1) }}>{% endmacro %}{% call(a) f() %}{{ a }}{{ s }}{% endcall "
         "%}",
         "<1Hello World>"},
        {"{% filter replace('a', 'b') | upper %}abc{% endfilter %}", "BBC"},
        {"{% set a = 3 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}", "133"},
        {"{% generation %}said {{ n }}{% endgeneration %}", "said 7"},
        {"{% set x = l | select('odd') %}{{ 'T' if x }}{{ x | list }}{{ x | list }}", "T[3, 1][]"},
    };
    CHECK_ALL(table);
}

TEST(jinja_filters_and_tests) {
    static const example table[] = {
        {"{{ ws | trim }}|{{ 'xax' | trim('x') }}|{{ s | replace('o', '0', 1) }}|{{ s | title }}",
         "x y  z|a|Hell0 World|Hello World"},
        {"{{ l | join('-') }} {{ m | join(',', attribute='role') }} {{ u | upper }}",
         "3-1-2 user,assistant,user \u00dcN\u00cfC \U0001F642X"},
        {"{{ l | sort }} {{ ls | sort }} {{ ls | sort(case_sensitive=true, reverse=true) }}",
         "[1, 2, 3] ['A', 'b', 'c'] ['c', 'b', 'A']"},
        {"{{ m | map(attribute='c') | list }} {{ ls | map('upper') | join }}",
         "['hi', 'yo', 'HI'] BAC"},
        {"{{ m | selectattr('role', 'equalto', 'user') | map(attribute='c') | join('+') }} "
         "{{ m | rejectattr('role', 'eq', 'user') | list | length }} {{ l | reject('odd') | list "
         "}}",
         "hi+HI 1 [2]"},
        {"{{ l | first }}{{ l | last }}{{ l | min }}{{ l | max }}{{ l | sum }}{{ l | reverse | "
         "list }}",
         "32136[2, 1, 3]"},
        {"{{ ['a', 'A', 'b'] | unique | list }} {{ l | batch(2, 0) | list }} {{ dd | items | list "
         "}}",
         "['a', 'b'] [[3, 1], [2, 0]] [('z', 1), ('Y', 2), ('x', 3)]"},
        {"{{ '42' | int }} {{ '4.7' | int }} {{ 'x' | int(5) }} {{ 'ff' | int(base=16) }} "
         "{{ '2.5' | float }} {{ 2.5 | round }} {{ 2.675 | round(2) }} {{ 2.1 | round(1, 'ceil') "
         "}}",
         "42 4 5 255 2.5 2.0 2.67 2.1"},
        {"{{ multi | indent(2) }}|{{ '<a>' | escape }}|{{ no | default('x', true) }}",
         "a\n  b\n\n   c|&lt;a&gt;|x"},
        {"{{ d | tojson }} {{ u | tojson(ensure_ascii=true) }} {{ [1, [], {}] | tojson(indent=1) "
         "}}",
         "{\"b\": 1, \"a\": [1, 2.0], \"items\": 5} \"\\u00dcn\\u00efc \\ud83d\\ude42x\" "
         "[\n 1,\n [],\n {}\n]"},
        {"{{ '<\\x01\"/' | tojson }} {{ {1: none, true: 2.5} | tojson }} {{ dd | "
         "tojson(sort_keys=true) }}",
         "\"<\\u0001\\\"/\" {\"1\": 2.5} {\"Y\": 2, \"x\": 3, \"z\": 1}"},
        {"{{ s is string }}{{ t is number }}{{ n is integer }}{{ d is mapping }}{{ d is sequence }}"
         "{{ l is iterable }}{{ no is none }}{{ t is true }}{{ n is divisibleby 7 }}{{ n is odd }}",
         "TrueTrueTrueTrueTrueTrueTrueTrueTrueTrue"},
        {"{{ n is in [7] }}{{ n is not eq 7 }}{{ f is float }}{{ n is ge 7 }}{{ nope is undefined "
         "}}{{ 'AB' is upper }}{{ no is sameas none }}",
         "TrueFalseTrueTrueTrueTrueTrue"},
    };
    CHECK_ALL(table);
}

TEST(jinja_methods) {
    static const example table[] = {
        {"{{ ws.split() }}{{ 'a,b,,c'.split(',', 2) }}{{ 'a.b.c'.rsplit('.', 1) }}",
         "['x', 'y', 'z']['a', 'b', ',c']['a.b', 'c']"},
        {"{{ ws.strip() }}|{{ ws.lstrip() }}|{{ ws.rstrip() }}|{{ s.strip('Hd') }}",
         "x y  z|x y  z |  x y  z|ello Worl"},
        {"{{ s.startswith(('x', 'H')) }}{{ s.endswith('ld') }}{{ s.find('o') }}{{ s.rfind('o') }}"
         "{{ s.count('o') }}{{ s.find('zz') }}{{ u.find('x') }}",
         "TrueTrue472-16"},
        {"{{ s.replace('', '-') | length }}{{ s.partition(' ') }}{{ ', '.join(ls) }}",
         "23('Hello', ' ', 'World')b, A, c"},
        {"{{ '{} {1} {a.b} {0!r:>5}|{2:,}'.replace('{}', '{0}').format('x', 'y', 12345, a=d) }}",
         "x y 1   'x'|12,345"},
        {"{{ '%s-%05.1f-%-4s|%x' % ('a', 3.14159, 'b', 255) }} {{ '{:^7.3}|'.format('abcdef') }}",
         "a-003.1-b   |ff   abc  |"},
        {"{{ '5'.zfill(3) }}{{ 'a'.ljust(3, '.') }}{{ 'ab'.center(5) }}|{{ multi.splitlines() }}",
         "005a..  ab |['a', 'b', '', ' c']"},
        {"{{ range(3) | list }}{{ range(5, 0, -2) | list }}{{ dict(a=1, **{'b': 2}) }}",
         "[0, 1, 2][5, 3, 1]{'a': 1, 'b': 2}"},
        {"{{ strftime_now('%%') }}{{ l.index(1) }}{{ l.count(2) }}{{ l.append is defined }}",
         "%11False"},
    };
    CHECK_ALL(table);
}

TEST(jinja_errors_name_line_and_reason) {
    static const example table[] = {
        {"{{ nope.x }}", "chat template: line 1: 'nope' is undefined"},
        {"a\n\n{{ d.nope.x }}", "chat template: line 3: 'dict object' has no attribute 'nope'"},
        {"{{ l[5].x }}", "chat template: line 1: list object has no element 5"},
        {"{{ no.x.y }}", "chat template: line 1: 'None' has no attribute 'x'"},
        {"{{ raise_exception('roles must alternate') }}",
         "chat template: line 1: roles must alternate"},
        {"{{ 'a' + 1 }}", "chat template: line 1: can only concatenate str (not \"int\") to str"},
        {"{{ 1 < 'a' }}",
         "chat template: line 1: '<' not supported between instances of 'int' and 'str'"},
        {"{{ s | zork }}", "chat template: line 1: no filter named 'zork'"},
        // Jinja2 has these, which no published chat template uses.
        {"{{ s | pprint }}", "chat template: line 1: the filter 'pprint' is not supported"},
        {"{{ s | wordwrap(9) }}", "chat template: line 1: the filter 'wordwrap' is not supported"},
        {"{{ s | urlize }}", "chat template: line 1: the filter 'urlize' is not supported"},
        {"{% for x in 5 %}{% endfor %}", "chat template: line 1: 'int' object is not iterable"},
        {"{% for a, b in l %}{% endfor %}", "chat template: line 1: 'int' object is not iterable"},
        {"{{ s | replace('a') }}", "chat template: line 1: replace() needs the argument 'new'"},
        {"{{ s | trim(x=1) }}", "chat template: line 1: trim() has no argument 'x'"},
        {"{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}",
         "chat template: line 1: macro 'f' takes not more than 1 argument(s)"},
        {"{% if t %}\nx", "chat template: line 2: expected 'endif', found the end of the template"},
        {"{{ 1 + }}", "chat template: line 1: expected an expression, found '}}'"},
        {"{{ x y }}", "chat template: line 1: expected '}}', found 'y'"},
        {"x\n{{ 'abc }}", "chat template: line 2: a string without end"},
        {"{# abc", "chat template: line 1: a comment '{#' without '#}'"},
        {"{% zork %}", "chat template: line 1: expected a statement, found 'zork'"},
        {"{% break %}", "chat template: line 1: expected a loop around 'break' and 'continue', "
                        "found '%}'"},
        {"{{ 1 // 0 }}", "chat template: line 1: division by zero"},
        {"{{ 2 ** 63 }}", "chat template: line 1: an integer is too large"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        tern_strbuf out = {0};
        tern_error err = {0};
        CHECK_MSG(render(table[i].source, &out, &err) != TERN_OK, "%s was accepted",
                  table[i].source);
        CHECK_MSG(strcmp(err.message, table[i].text) == 0, "%s: '%s', not '%s'", table[i].source,
                  err.message, table[i].text);
        CHECK(out.len == 0);
        tern_strbuf_free(&out);
    }
    tern_error err = {0};
    tern_strbuf out = {0};
    CHECK(render("{{ raise_exception('no') }}", &out, &err) == TERN_ERR_ARGUMENT);
    tern_strbuf_free(&out);
}

TEST(jinja_bounds_hostile_templates) {
    static const char *const table[] = {
        "{% for a in range(99999) %}{% for b in range(999) %}{% set q = a %}{% endfor %}{% endfor "
        "%}",
        "{{ 'x' * 10 ** 9 }}",
        "{{ [1] * 10 ** 9 }}",
        "{% set ns = namespace(s='x') %}{% for a in range(99) %}{% set ns.s = ns.s + ns.s %}"
        "{% endfor %}",
        "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
        "{% set ns = namespace(t=()) %}{% for a in range(9999) %}{% set ns.t = (ns.t,) %}"
        "{% endfor %}{{ {ns.t: 1} }}",
        "{% set ns = namespace(t=[]) %}{% for a in range(9999) %}{% set ns.t = [ns.t] %}"
        "{% endfor %}{{ ns.t | tojson }}",
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
        "{% set ns = namespace(t=[]) %}{% for a in range(9999) %}{% set ns.t = [ns.t] %}"
        "{% endfor %}{{ ns.t | string }}",
        "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% for a in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
        "{% block a %}{{ self.a() }}{{ self.a() }}{% endblock %}",
        "{% macro m() %}{{ self.a() }}{% endmacro %}{% block a %}{{ m() }}{% endblock %}",
        "{{ [1] | slice(10 ** 15) | list }}",
        "{{ [1] | batch(10 ** 12, 'x') | list }}",
        "{{ range(10 ** 18) | length }}",
        "{{ '%999999999d' % 1 }}",
        "{{ 'a'.ljust(10 ** 12) }}",
        "{{ ('a' * 10 ** 7).rfind('a' * 10 ** 6 ~ 'b') }}",
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        tern_strbuf out = {0};
        tern_error err = {0};
        CHECK_MSG(render(table[i], &out, &err) != TERN_OK, "%s was accepted", table[i]);
        CHECK(strncmp(err.message, "chat template: line 1: ", 23) == 0);
        tern_strbuf_free(&out);
    }
}

TEST(jinja_bounds_nesting) {
    static const char *const parts[][4] = {
        {"{{ ", "(", "1", ")"},
        {"{{ ", "[", "1", "]"},
        {"{{ ", "{1:", "1", "}"},
        {"{{ ", "not ", "1", ""},
        {"{{ ", "-", "1", ""},
        {"{{ ", "1+", "1", ""},
        {"{{ n", "|abs", "", ""},
        {"{{ s", "[0]", "", ""},
        {"", "{% if t %}", "{{ 1", ""},
        {"{% set ", "(", "a", ")"},
        {"{{ 1", " if 1 else 1", "", ""},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        tern_strbuf source = {0}, out = {0};
        tern_error err = {0};
        tern_strbuf_puts(&source, parts[i][0]);
        for (int k = 0; k < 20000; k++) tern_strbuf_puts(&source, parts[i][1]);
        tern_strbuf_puts(&source, parts[i][2]);
        for (int k = 0; k < 20000; k++) tern_strbuf_puts(&source, parts[i][3]);
        tern_strbuf_puts(&source, i == 9 ? " = 1 %}" : " }}");
        CHECK_MSG(render(source.ptr, &out, &err) != TERN_OK, "%s was accepted", parts[i][1]);
        CHECK_MSG(strstr(err.message, "nested deeper than") != NULL, "%s", err.message);
        tern_strbuf_free(&source);
        tern_strbuf_free(&out);
    }
    tern_strbuf huge = {0};
    tern_error err = {0};
    tern_template *t;
    for (size_t i = 0; i <= J_SOURCE_MAX; i++) tern_strbuf_putc(&huge, 'x');
    CHECK(tern_template_open(&t, (tern_str){huge.ptr, huge.len}, &err) == TERN_ERR_FORMAT);
    tern_strbuf_free(&huge);
}

static uint32_t fnv(const char *text) { // a well-known hash
    uint32_t h = 2166136261u;
    for (; *text; text++) h = (h ^ (unsigned char)*text) * 16777619u;
    return h;
}

// Seen to take half a million steps when dicts hashed by FNV. Rendering can be cancelled.
TEST(jinja_keys_that_meet_take_few_steps) {
    enum { N = 1000, MASK = 4095 };
    jprogram program = {0};
    jlimits few = tern_jinja_limits;
    tern_json_doc doc = {0};
    tern_strbuf json = {0}, out = {0};
    tern_error err = {0};
    tern_cancel cancel = {0};
    char name[9];
    few.n_steps = 20 * N;
    tern_strbuf_puts(&json, "{\"d\":{\"x\":1");
    for (uint32_t n = 0, found = 0; found < N; n++) {
        snprintf(name, sizeof name, "a%07u", (unsigned)n);
        if (fnv(name) & MASK) continue;
        tern_strbuf_printf(&json, ",\"%s\":%u", name, (unsigned)n);
        found++;
    }
    tern_strbuf_puts(&json, "}}");
    REQUIRE_OK(tern_json_parse(&doc, json.ptr, json.len, &err), err);
    REQUIRE_OK(tern_jinja_parse(&program, TERN_STR("{{ d.x }}"), J_SPACE_TRIMMED, &err), err);
    CHECK_MSG(tern_jinja_render(&program, &few, &doc, &out, &err) == TERN_OK &&
                  strcmp(tern_strbuf_text(&out), "1") == 0,
              "%s", err.message);
    tern_jinja_arena_free(&program.arena);
    tern_strbuf_clear(&out);
    tern_cancel_request(&cancel);
    tern_cancel_watch(&cancel);
    CHECK(render("{% for i in range(90000) %}{% for k in range(99) %}{% endfor %}{% endfor %}",
                 &out, &err) == TERN_ERR_CANCELLED);
    tern_cancel_watch(NULL);
    tern_json_free(&doc);
    tern_strbuf_free(&json);
    tern_strbuf_free(&out);
}

TEST(jinja_out_of_memory) {
    static const char source[] =
        "{% macro f(a, b=1) %}{{ a ~ b }}{{ caller() }}{% endmacro %}"
        "{% call f([1, 2] + l, b={'x': 'y\\n'}) %}{{ d | tojson(indent=2) }}{% endcall %}"
        "{% set ns = namespace(x='') %}{% for k, v in dd | dictsort if v %}"
        "{% set ns.x = ns.x + k.upper() ~ v %}{% endfor %}{{ ns.x }}{{ u[::-1] }}"
        "{{ ls | map('lower') | sort | join(',') }}{{ '%s' % s.split('o') }}"
        "{{ dict(a=1, b=2, c=3, d=4, e=5, f=6, g=7, h=8, i=9, j=10) }}";
    size_t before = tern_mem_get_stats().total_now;
    tern_status status = TERN_ERR_MEMORY;
    for (uint64_t n = 1; n < 500 && status != TERN_OK; n++) {
        tern_strbuf out = {0};
        tern_error err = {0};
        tern_mem_fail_at(n);
        status = render(source, &out, &err);
        tern_mem_fail_at(0);
        CHECK_MSG(status == TERN_OK || status == TERN_ERR_MEMORY, "%s", err.message);
        tern_strbuf_free(&out);
        CHECK_MSG(tern_mem_get_stats().total_now == before, "leak at allocation %u", (unsigned)n);
    }
    CHECK(status == TERN_OK);
}

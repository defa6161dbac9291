#!/usr/bin/env python3
"""Writes tests/oracles/templates.json: chat templates, variables, and the text that Jinja2 makes of
them, set up as transformers sets it up. Needs jinja2 3.1.5: the sandbox of earlier ones lets list.pop and
list.clear through.

Each template is rendered with each of the conversations, or (FULL) with one set of values of every
kind; what Jinja2 refuses is "error": true. The
templates are written for this file: the shapes that published ones have, and what they use of the
language, one thing at a time.
"""
import json, os
from jinja2.exceptions import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

CHATML = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "You may call functions:\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages and messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(last=messages|length - 1, seen=false) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if not ns.seen and message.role == "user" and message.content is string %}
        {%- set ns.seen = true %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == "assistant" %}
        {%- set thought = '' %}
        {%- if '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if loop.index0 > ns.last and thought %}
            {{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- content }}
        {%- for call in message.tool_calls or [] %}
            {%- set call = call.function if call.function else call %}
            {{- '\\n<tool_call>\\n{"name": "' ~ call.name ~ '", "arguments": ' }}
            {{- call.arguments if call.arguments is string else call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or loop.previtem.role != "tool" %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' ~ content ~ '\\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != "tool" %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- elif message.role == "user" or not loop.first %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""

HEADERS = """{{- bos_token }}
{%- macro head(role) -%}<|start_header_id|>{{ role }}<|end_header_id|>{{ "\\n\\n" }}{%- endmacro -%}
{%- if messages and messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- head("system") }}
{%- if tools is not none and tools is defined %}{{- "Environment: ipython\\n" }}{%- endif %}
{{- "Today Date: " + (date_string | default("26 Jul 2024")) + "\\n\\n" + system_message + "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- head(message['role']) + message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}{{- raise_exception("one call at a time") }}{%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- head('assistant') + '{"name": "' + call.name + '", "parameters": ' + call.arguments | tojson + "}<|eot_id|>" }}
    {%- else %}
        {{- head("ipython") }}
        {%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}{%- else %}{{- message.content }}{%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- head("assistant") }}{%- endif %}
"""

TURNS = """{{ bos_token }}{% if messages and messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{% for message in messages %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}
    {% set role = 'model' if message['role'] == 'assistant' else message['role'] %}
<start_of_turn>{{ role }}
{{ message['content'] | trim }}<end_of_turn>
{% endfor %}
{% if add_generation_prompt %}<start_of_turn>model
{% endif %}"""

INST = ("{% if messages and messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system = '<<SYS>>\\n' + messages[0]['content'] + '\\n<</SYS>>\\n\\n' %}"
        "{% else %}{% set loop_messages = messages %}{% set system = '' %}{% endif %}{% for m in loop_messages %}{% if loop.first %}{% set c = system ~ m.content %}{% else %}{% set c = m.content %}{% endif %}"
        "{% if m.role == 'user' %}{{ bos_token ~ '[INST] ' ~ c ~ ' [/INST]' }}{% elif m.role == 'assistant' %}{{ ' ' ~ c ~ ' ' ~ eos_token }}{% endif %}{% endfor %}")

PARTS = """{%- for m in messages -%}
[{{ m.role|upper }}]
{%- if m.content is string %} {{ m.content }}
{%- elif m.content is none or m.content is undefined %} (nothing)
{%- else %}{% for part in m.content %}{% if part.type == 'text' %} {{ part.text }}{% elif part.type == 'image' %} <image {{ loop.index }}>{% endif %}{% endfor %}
{%- endif %}
{%- if not loop.last %}{{ '\\n' }}{% endif %}
{%- endfor %}"""

# Gemma 3's shape: what the system says goes before the first user's words, content may be parts.
FIRST_TURN = """{{ bos_token }}
{%- set said = '' -%}
{%- if messages and messages[0].role == 'system' -%}
    {%- set first = messages[0].content -%}
    {%- set said = (first if first is string else first[0].text) + '\\n\\n' -%}
    {%- set messages = messages[1:] -%}
{%- endif -%}
{%- for m in messages -%}
    {%- if (m.role == 'user') != (loop.index0 is even) -%}{{ raise_exception('user and model take turns') }}{%- endif -%}
    {{ '<start_of_turn>' ~ ('model' if m.role == 'assistant' else m.role) ~ '\\n' ~ (said if loop.first else '') }}
    {%- if m.content is string -%}{{ m.content | trim }}
    {%- elif m.content is iterable -%}
        {%- for part in m.content -%}{{ '<start_of_image>' if part['type'] == 'image' else part['text'] | trim }}{%- endfor -%}
    {%- else -%}{{ raise_exception('neither text nor parts') }}{%- endif -%}
    {{ '<end_of_turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model
' }}{%- endif -%}"""

# Qwen3's switch: an answer that shall not think begins with an empty thought.
SWITCH = """{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '\\n' + (m.content if m.content is string else '') + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}"""

# LFM2's shape: tools are listed in the system's words; only the last answer keeps its thought.
LISTED = """{{- bos_token -}}
{%- set keep = keep_past_thinking | default(false) -%}
{%- set ns = namespace(system='', last=-1) -%}
{%- if messages and messages[0].role == 'system' -%}
    {%- set ns.system = messages[0].content -%}
    {%- set messages = messages[1:] -%}
{%- endif -%}
{%- for tool in tools or [] -%}
    {%- set ns.system = ns.system ~ ('[' if loop.first else ', ') ~ (tool if tool is string else tool | tojson) ~ (']' if loop.last else '') -%}
{%- endfor -%}
{%- if ns.system -%}{{- '<|im_start|>system\\n' ~ ns.system ~ '<|im_end|>\\n' -}}{%- endif -%}
{%- for m in messages if m.role == 'assistant' -%}{%- set ns.last = ns.last + 1 -%}{%- endfor -%}
{%- set seen = namespace(n=-1) -%}
{%- for m in messages -%}
    {%- set content = m.content if m.content is string else m.content | tojson -%}
    {%- if m.role == 'assistant' -%}
        {%- set seen.n = seen.n + 1 -%}
        {%- if not keep and seen.n != ns.last and '</think>' in content -%}
            {%- set content = content.split('</think>')[-1] | trim -%}
        {%- endif -%}
    {%- endif -%}
    {{- '<|im_start|>' ~ m.role ~ '\\n' ~ content ~ '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"""

# What templates use of the language, one thing at a time.
SMALL = [
    "{% for m in messages %}{{ loop.index }}/{{ loop.length }}:{{ m.role }}{{ ', ' if not loop.last }}{% else %}none{% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index0 }}{{ loop.revindex }}{{ m.content|string|length }};{% endfor %}",
    "{{ messages | map(attribute='role') | join(',') }}|{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
    "{{ messages | rejectattr('role', 'in', ['user', 'tool']) | map(attribute='role') | unique | sort | join(' ') }}",
    "{{ messages | tojson }}", "{{ messages | tojson(indent=2) }}", "{{ messages }}",
    "{{ tools | tojson(indent=4) if tools else 'no tools' }}",
    "{% set x = {'b': 1, 'a': [1, 2.5, 'x', none, true]} %}{{ x }} {{ x | tojson }} {{ x.items() | list }} {{ x | dictsort }}",
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 1e3 }} {{ 10 | float }} {{ '3.7' | int }} {{ 3.7 | round }} {{ 1_000 }}",
    "{{ 'a,b,,c'.split(',') }} {{ ' a b '.split() }} {{ 'abc'[::-1] }} {{ 'abcdef'[1:4] }} {{ 'abcdef'[-2:] }} {{ [1,2,3,4][1::2] }}",
    "{{ 'x'.join(['a', 'b']) }} {{ 'Hello'.lower().startswith('he') }} {{ 'aXbX'.replace('X', '-') }} {{ 'hello world'.title() }} {{ 'abc'.find('c') }}",
    "{{ '  a '.strip() ~ '|' ~ '  a '.lstrip() ~ '|' ~ ' a  '.rstrip() }}|{{ 'xxaxx'.strip('x') }} {{ 'a\\nb'.splitlines() }} {{ 'abc' is in 'xabcx' }}",
    "{{ undefined_name is defined }} {{ undefined_name | default('d') }} {{ none | default('d') }} {{ none | default('d', true) }} [{{ undefined_name }}]",
    "{% set ns = namespace(n=0, text='') %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% set ns.text = ns.text ~ m.role[0] %}{% endfor %}{{ ns.n }} {{ ns.text }}",
    "{% for i in range(10) %}{% if i == 3 %}{% continue %}{% endif %}{% if i > 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% macro f(a, b='x') %}<{{ a }}{{ b }}{{ caller() if caller }}>{% endmacro %}{{ f(1) }}{{ f(2, b=3) }}{% call f(4) %}inner{% endcall %}",
    "{% filter upper %}a {{ 'b' }}{% endfilter %}{% set t %}  block\n text {% endset %}[{{ t }}]",
    "a\n  {% if true %}  \n b\n  {%- endif %}\n{#- note -#}\n c {# kept? #} d\n   {%+ if true %}e{% endif %}\n",
    "{{ 'yes' if messages else 'no' }}{{ ' one' if messages|length == 1 }} {{ messages|length > 1 and messages[0].role or 'x' }}",
    "{{ [3,1,2]|sort }} {{ [3,1,2]|max }} {{ ['a','B']|sort }} {{ [1,2,3]|sum }} {{ [1,2]|first }} {{ [1,2]|last }} {{ [[1,2],[3]]|map('length')|list }} {{ 'abc'|reverse }}",
    "{{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ 1 < 2 < 3 }} {{ not 0 }} {{ [] or 'e' }} {{ 1 is number }} {{ true is boolean }} {{ 'a' is string }} {{ {} is mapping }} {{ 5 is odd }} {{ 6 is divisibleby(3) }}",
    "{{ 'q\"uo\\'te' }} {{ 'q\"uo\\'te' | tojson }} {{ '<&>' | tojson }} {{ '<&>' | e }} {{ 'h\u00e9\u4e2d\U0001f600' | tojson }} {{ 'tab\\t' | tojson }}",
    "{{ messages[0].content.foo }}|{{ messages[0]['nope'] is defined }}|{{ messages[5] is defined }}",
    "{{ messages[0].content + 1 }}", "{{ undefined_name.x }}", "{{ 'a' | nonsense }}", "{% if %}", "{{ raise_exception('no: ' ~ messages|length) }}",
    "{{ '%s-%d' | format('a', 3) }} {{ '%05.2f' % 3.14159 }} {{ 'abc' | capitalize }} {{ 'a b c' | wordcount }} {{ 'text' | indent(2, true) }} {{ 'a\nb' | indent }}",
    "{{ messages | batch(2) | list | length }} {{ {'a': 1} | items | list }} {{ ['a', 'b'] | list | tojson }} {{ 'abc' | list }} {{ (1, 2) }} {{ [1, [2, {'x': none}]] }}",
]

# The rest of the language, with variables of its own (THINGS).
RECURSIVE = "{% for i in tree recursive %}[{{ loop.depth }}:{{ loop.index }}/{{ loop.length }} {{ i.v }}{% if i.c %}({{ loop(i.c) }}){% endif %}]{% else %}none{% endfor %}"
FILTERS_OF_ALL = ["length", "default('x')", "d('x', true)", "join", "join(',')", "upper", "lower", "string", "list", "first", "last", "items|list", "dictsort",
    "map('upper')|list", "select|list", "rejectattr('role')|list", "replace('o', '0')", "reverse|list", "sort", "unique|list", "min", "max", "sum", "int", "float", "abs", "round",
    "indent", "capitalize", "title", "center(9)", "wordcount", "safe", "e", "forceescape", "format", "batch(2)|list", "slice(2)|list", "groupby('k')", "groupby('k', default='c')",
    "tojson", "attr('x')", "trim"]
FULL = [
    RECURSIVE, "{% autoescape true %}" + RECURSIVE + "{% endautoescape %}", RECURSIVE.replace("recursive", "if i.v != 3 recursive"),
    "{% for i in list %}{{ loop(list) }}{% endfor %}", "{% for i in list recursive %}{{ loop() }}{% endfor %}", "{% for i in tree recursive %}{{ loop(none) }}{% endfor %}",
    "{% set x = 1 %}{% for i in tree recursive %}{% set x = 2 %}{{ x }}{% if i.v == 3 %}{% break %}{% endif %}{{ loop(i.c or []) }}{% endfor %}{{ x }}",
    "{% for i in tree recursive %}{{ seen is defined }}{% set seen = 1 %}{{ loop(i.c or []) }}{% endfor %}", "{{ [('<'|safe) + '<', '<' + ('<'|safe)] }}",
    "{{ {'update': 1, 'pop': 2}.update }}|{{ {'update': 1}['update'] }}|{{ {'get': 1}.get is callable }}",
    "{% block a %}x{{ s }}{% endblock a %}|{{ self.a()|upper }}{{ self['a']() }}{{ self.q is defined }}{{ self }}", "{% block a %}{% endblock %}{% block a %}{% endblock %}", "{{ self.q() }}",
    "{% for i in list %}{% block a scoped %}{{ i }}{{ loop.index }}{% endblock %}{% block b %}[{{ i }}]{% endblock %}{% endfor %}", "{% block a %}{{ super() }}{% endblock %}",
    "{% set z = 5 %}{% block a %}{{ z }}{% set z = 6 %}{{ z }}{% endblock %}{{ z }}{% with z = 7 %}{{ self.a() }}{% endwith %}", "{% for i in list %}{% block a %}{% break %}{% endblock %}{% endfor %}",
    "{% block a required %}{% endblock %}", "{% block a required %}x{% endblock %}", "{% if false %}{% block a required %} {% endblock %}{% endif %}ok",
    "{% autoescape true %}{{ s }}{{ s|safe }}{{ s|e }}{{ s ~ '<' }}{{ (s|safe) ~ '<' ~ 1 }}{{ [s] }}{{ none }}{{ [s, '<'|safe]|join('&') }}{{ s|replace('<', '&') }}{{ '%s<'|format(s) }}{% endautoescape %}{{ s }}",
    "{{ ('<'|safe) + '<' }}{{ '<' + ('<'|safe) }}{{ ('<'|safe) ~ '<' }}{{ ('<%s %d %r>'|safe) % ('<', 3, '<') }}{{ ('<{0!r:>8}>'|safe).format('<') }}{{ ('<'|safe).join(['<', 1]) }}{{ ['<'|safe, ('a<b'|safe).split('<'), ('ab'|safe)[1], ('ab'|safe)|first] }}",
    "{% macro m(x) %}<{{ x }}>{% endmacro %}{% autoescape true %}{{ m('<') }}{% set v %}<{{ s }}>{% endset %}{{ v }}{% filter upper %}<{{ s }}>{% endfilter %}{% call m(2) %}{% endcall %}{% endautoescape %}",
    "{% macro m() %}[{{ caller() }}]{% endmacro %}{% autoescape s %}{% call m() %}<{{ s }}>{% endcall %}{% autoescape false %}{{ s }}{% endautoescape %}{% endautoescape %}",
    "{% macro m() %}{{ s }}{% endmacro %}{% autoescape s %}{{ '<' }}{{ ['<', {'a': (1, '&')}] }}{{ [s] }}{{ m() ~ '<' }}{{ m() }}{% endautoescape %}",
    "{% for i in list %}{% autoescape true %}{{ s }}{% if i == 2 %}{% break %}{% endif %}{% endautoescape %}{% endfor %}{{ s }}{% set q %}<{% endset %}{{ [q] }}",
    "{% autoescape true %}{% block a %}{{ s }}{% endblock %}{% set v = 1 %}{{ v }}{% endautoescape %}{{ v }}", "{% filter length %}abc{% endfilter %}", "{% set z | length %}abc{% endset %}{{ z + 1 }}",
    "{% set c = cycler('a', 'b', 3) %}{{ c.current }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.next() }}{{ c.reset() }}{{ c.next() }}{{ c.pos }}{{ c.items }}", "{{ cycler() }}", "{{ cycler(1)() }}",
    "{% set j = joiner() %}{{ j() }}a{{ j() }}b{{ j.used }}{{ j.sep }}{% set k = joiner('|') %}{% for i in list %}{{ k() }}{{ i }}{% endfor %}", "{{ joiner(1, 2) }}",
    "{{ list.append is defined }}{{ list.append }}{{ dict.update }}{{ list.index(2) }}{{ list.count(1) }}{{ dict.keys() }}{{ dict.items() }}{{ dict.values() }}",
] + ["{%% set _ = %s %%}" % x for x in ["list.append(4)", "list.extend([1])", "list.insert(0, 1)", "list.pop()", "list.remove(1)", "list.reverse()", "list.sort()", "list.clear()", "list['append'](1)", "(list|attr('append'))(1)",
    "dict.update({'b': 1})", "dict.pop('a')", "dict.popitem()", "dict.setdefault('a', 1)", "dict.clear()", "{}.update(a=1)", "namespace(l=[]).l.append(1)"]] + [
    "{{ rows|groupby('role') }}{% for g in rows|groupby('k') %}{{ g.grouper }}{{ g.list|length }}{{ g[0] }}{{ g }}{{ g|tojson }};{% endfor %}{% for k, xs in rows|groupby('x.y', default=0) %}{{ k }}{{ xs }}{% endfor %}",
    "{{ rows|groupby('k', case_sensitive=true)|map('first')|list }}", "{{ [1, 'a']|groupby('x') }}", "{{ list|slice(2, 0)|list }}{{ list|slice(5, 'z')|list }}", "{{ list|slice(0)|list }}", "{{ list|slice(-1)|list }}",
] + ["{{ %s|%s }}" % (v, f) for v in ["none", "s", "nope"] for f in FILTERS_OF_ALL]
WORDS = ["\u00df", "\ufb01n \ufb03", "\u039f\u0394\u03a5\u03a3\u03a3\u0395\u03a5\u03a3", "\u0391\u03a3. \u03a3", "A\u03a3\u0301B A\u03a3\u0301", "\u1fb3 \u1fbc", "\u01c6 \u01c4 \u01c5", "\u0130I\u0131i", "\u0149", "\u2177 \u2167",
         "\u24d0\u24b6", "\u0587", "x\u2019y l'\u00e9", "\U00010400x\U00010428", "\u0345a", "\u1e9e\u212a", "hello wORLD-foo (bar)"]
FULL += ["{%% for w in words %%}{{ w.%s }},{%% endfor %%}" % m for m in ["upper()", "lower()", "title()", "capitalize()", "swapcase()", "casefold()", "isupper()", "islower()"]]
FULL += ["{%% for w in words %%}{{ w|%s }},{%% endfor %%}" % m for m in ["upper", "lower", "title", "capitalize"]]
THINGS = {"tree": [{"v": 1, "c": [{"v": 2, "c": []}, {"v": 3, "c": [{"v": 4}]}]}, {"v": "<5>"}], "list": [1, 2, 3], "dict": {"b": "1 &", "a": [1, 2]}, "s": "a<b> c", "words": WORDS,
    "rows": [{"role": "user", "k": "B", "x": {"y": 2}}, {"role": "a", "k": "b", "x": {"y": 1}}, {"role": "user", "k": "a", "x": {}}],
    "long": "The quick-brown fox jumped over the lazy-dog--and then some well-known extraordinarilylongwordthatfitsnowhere 1-2-3 a-b-c.\n\nSecond   paragraph\there -- yes--no --- maybe\u00a0x",
    "html": "<p>a &amp; b</p> <!-- c <i> --> &lt;x&gt; &eacute;&notit; <b  >z</b>"}

TOOL = {"type": "function", "function": {"name": "weather", "description": "Looks <outside> & \"reports\"", "parameters": {
    "type": "object", "properties": {"town": {"type": "string", "description": "where, e.g. Troms\u00f8"}, "days": {"type": "integer"}}, "required": ["town"]}}}
CALL = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": {"town": "Ghent", "days": 2, "exact": True, "x": None, "p": 0.5}}}


def say(*turns):
    return [{"role": r, "content": c} for r, c in turns]


COMMON = {"bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True}
CONVERSATIONS = [
    {"messages": say(("user", "Hello there"))},
    {"messages": say(("system", " Be brief. "), ("user", "What is 2+2?"), ("assistant", "4"), ("user", "  And 3+3?\n"))},
    {"messages": say(("user", "\u00bfQu\u00e9? \u4f60\u597d \U0001f600"), ("assistant", "<think>\nhm\n</think>\n\nS\u00ed"), ("user", "line\n\nline")), "add_generation_prompt": False},
    {"messages": [{"role": "user", "content": "Rain?"}, {"role": "assistant", "content": "", "tool_calls": [CALL]},
                  {"role": "tool", "content": "dry"}, {"role": "tool", "content": "windy"}, {"role": "assistant", "content": "<think>ok</think>No."}], "tools": [TOOL]},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "Look:"}, {"type": "image"}, {"type": "text", "text": "what?"}]}, {"role": "assistant", "content": None}]},
    {"messages": say(("system", "Be brief."), ("user", "One"), ("assistant", "<think>\nhm\n</think>\n\nTwo"), ("user", " Three "),
                     ("assistant", "<think>so</think>Four"), ("user", "Five")), "enable_thinking": False},
    {"messages": [{"role": "system", "content": [{"type": "text", "text": "Parts."}]}, {"role": "user", "content": "Say"}],
     "enable_thinking": True, "keep_past_thinking": True},
    {"messages": []},
    {"messages": say(("assistant", "I begin"), ("assistant", "twice"), ("user", "{{ 7*7 }} {% raw %} \\n \"q\""))},
]


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise TemplateError(message)


def main():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    n_errors = 0

    def render(source, variables):
        nonlocal n_errors
        try:
            return {"text": env.from_string(source).render(**json.loads(json.dumps(variables)))}
        except Exception:  # whatever Python raises in the middle of it
            n_errors += 1
            return {"error": True}

    chats = [{**COMMON, **v} for v in CONVERSATIONS]
    cases = [{"template": t, "results": [render(t, v) for v in chats]} for t in [CHATML, HEADERS, TURNS, INST, PARTS, FIRST_TURN, SWITCH, LISTED] + SMALL]
    things = [{"template": t, "results": [render(t, THINGS)]} for t in FULL]
    out = {"variables": [json.dumps(v, ensure_ascii=False) for v in chats], "cases": cases,
           "things": [json.dumps(THINGS, ensure_ascii=False)], "of_things": things}
    path = os.path.join(os.path.dirname(__file__), "..", "..", "oracles", "templates.json")
    with open(path, "w") as f:
        f.write(json.dumps(out, ensure_ascii=False, indent=0) + "\n")
    print("%d templates with %d conversations, %d others, %d refused" % (len(cases), len(CONVERSATIONS), len(things), n_errors))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes tests/oracles/templates.json: chat templates, variables, and the text that Jinja2 makes of
them, set up as transformers sets it up. Needs jinja2.

Each template is rendered with each of the conversations; what Jinja2 refuses is "error": true. The
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
    cases, n_errors = [], 0
    for source in [CHATML, HEADERS, TURNS, INST, PARTS] + SMALL:
        results = []
        for variables in CONVERSATIONS:
            try:
                results.append({"text": env.from_string(source).render(**{**COMMON, **variables})})
            except Exception:  # whatever Python raises in the middle of it
                results.append({"error": True})
                n_errors += 1
        cases.append({"template": source, "results": results})
    out = {"variables": [json.dumps({**COMMON, **v}, ensure_ascii=False) for v in CONVERSATIONS], "cases": cases}
    path = os.path.join(os.path.dirname(__file__), "..", "oracles", "templates.json")
    with open(path, "w") as f:
        f.write(json.dumps(out, ensure_ascii=False, indent=0) + "\n")
    print("%d templates, %d conversations, %d refused" % (len(cases), len(CONVERSATIONS), n_errors))


if __name__ == "__main__":
    main()

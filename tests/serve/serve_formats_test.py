#!/usr/bin/env python3
"""Answers that must be of a form, by all interfaces of tern serve, of models that would say something else (parrot.py).

    tests/serve/serve_formats_test.py TERN [NAME]     the tests with NAME in their names
"""
import json
import re
import sys

import serve_test
from serve_test import Server, check
from serve_tools_test import QWEN, TIGHT, USER, calls_of, gather, is_right, model

SCRIPTS = {"<|else|>": "<think>\nRain?\n</think>\n\nI look.", "<|think|>": "Good day.", "<|call|>": "Calls.", "<|after|>": "After.",
           "<|once|>": "Once."}
MARKS = ["<think>", "</think>"]  # tokens that do not show
BEGUN = {"<think>": "Dry!\n</think>", "<|else|>": "I look."}
SCHEMA = {"type": "object", "properties": {"town": {"enum": ["Ghent", "Lier"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
          "required": ["town", "days"], "additionalProperties": False}
BAD = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True, "contains": {"format": "regex"}}}}
CHAT = {"messages": USER, "temperature": 0, "max_tokens": 400}
OUT = "/v1/chat/completions"


def fits(text):
    value = json.loads(text)
    return list(value) == ["town", "days"] and value["town"] in ("Ghent", "Lier") and 1 <= value["days"] <= 9


def form(schema):
    return {"type": "json_schema", "json_schema": {"name": "weather", "strict": True, "schema": schema}}


def test_chat(s):
    # Seen to fail: with the grammar left out of the jobs; with the reasoning not let through.
    whole = s.post(OUT, dict(CHAT, response_format=form(SCHEMA)))[1]["choices"][0]
    m = whole["message"]
    check(fits(m["content"]) and whole["finish_reason"] == "stop" and m["reasoning_content"] == "Rain?", whole)
    streamed, finish = gather(s.stream(OUT, dict(CHAT, response_format=form(SCHEMA))))
    check(streamed["content"] == m["content"] and streamed["reasoning_content"] == "Rain?" and finish == "stop", streamed)
    # A template that begins the reasoning itself, whose end is no token.
    other = Server(model=model("begun", QWEN.replace("<|think|><think>\n", "<think>"), BEGUN))
    ask = dict(CHAT, response_format=form(SCHEMA), chat_template_kwargs={"enable_thinking": True})
    got = other.post(OUT, ask)[1]["choices"][0]["message"]
    check(fits(got["content"]) and got["reasoning_content"] == "Dry!", got)
    other.stop()
    for seed in range(20):
        hot = dict(CHAT, response_format=form(SCHEMA), temperature=2, seed=seed, logit_bias={str(ord("<") - 33): -100})
        said = s.post(OUT, dict(hot, n=2, logprobs=True))[1]["choices"]
        check(all(c["finish_reason"] == "length" or fits(c["message"]["content"]) for c in said), said)
    # Any object.
    bare = s.post(OUT, dict(CHAT, response_format={"type": "json_object"}, max_tokens=1000))[1]["choices"][0]
    check(bare["message"]["content"].startswith("{"), bare)
    if bare["finish_reason"] == "stop":
        check(isinstance(json.loads(bare["message"]["content"]), dict), bare)
    free = s.post(OUT, dict(CHAT, response_format={"type": "text"}))[1]["choices"][0]["message"]
    check(free["content"] == "I look.", free)


def test_every_name(s):
    # Seen to fail: with "guided_regex" taken for rules; with Ollama's schema taken for a name.
    wanted = dict(json_schema=SCHEMA, guided_json=SCHEMA, structured_outputs={"json": SCHEMA}, response_format={"type": "json_object", "schema": SCHEMA})
    for name, value in wanted.items():
        for path, ask in ((OUT, CHAT), ("/v1/completions", {"prompt": "Rain?", "temperature": 0, "max_tokens": 400})):
            status, got = s.post(path, dict(ask, **{name: value}))
            choice = got["choices"][0] if status == 200 else {}
            check(fits(choice.get("text") or choice.get("message", {}).get("content")), path, name, status, got)
    for name, value, pattern in (
            ("guided_json", json.dumps(SCHEMA), None), ("guided_regex", "[ab]{2}-[0-9]", "[ab]{2}-[0-9]"),
            ("guided_choice", ["yes", "no \u00e9"], "yes|no \u00e9"), ("structured_outputs", {"choice": ["x"]}, "x"),
            ("structured_outputs", {"regex": "q[u]"}, "qu"), ("grammar", 'root ::= "a" [0-9] "b"', "a[0-9]b"),
            ("guided_grammar", 'root ::= ("ab"){2}', "abab"), ("guided_grammar", '// Lark\nstart: "ab"~2', "abab"),
            ("grammar", '%llguidance {}\nstart: "q" A\nA: "0".."9"', "q[0-9]"), ("grammar", "", ".*"), ("response_format", None, ".*")):
        status, got = s.post("/v1/completions", {"prompt": "Rain?", "temperature": 0, "max_tokens": 300, name: value})
        text = got["choices"][0]["text"] if status == 200 else ""
        check(status == 200 and (re.fullmatch(pattern, text, re.S) if pattern else fits(text)), name, value, got)
    for name, value in (("json_schema", SCHEMA), ("grammar", 'root ::= "{\\"town\\":\\"Lier\\",\\"days\\":" [1-9] "}"')):
        got = s.post("/completion", {"prompt": "Rain?", "n_predict": 300, "temperature": 0, name: value})[1]
        check(fits(got["content"]), name, got)
    text = {"format": {"type": "json_schema", "name": "weather", "schema": SCHEMA}}
    got = s.post("/v1/responses", {"input": "Rain?", "temperature": 0, "text": text})[1]
    check(fits(got["output"][-1]["content"][0]["text"]) and got["text"] == text, got)
    got = s.post("/v1/messages", {"max_tokens": 300, "messages": USER, "temperature": 0,
                                  "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}})[1]
    check(fits(got["content"][-1]["text"]) and got["stop_reason"] == "end_turn", got)
    for path, more in (("/api/chat", {"messages": USER}), ("/api/generate", {"prompt": "Rain?"}), ("/api/generate", {"prompt": "Rain?", "raw": True})):
        ask = dict(more, stream=False, options={"temperature": 0, "num_predict": 400})
        got = s.post(path, dict(ask, format=SCHEMA))[1]
        check(fits(got["message"]["content"] if "message" in got else got["response"]), path, got)
        got = s.post(path, dict(ask, format="json"))[1]
        check((got["message"]["content"] if "message" in got else got["response"]).startswith("{"), path, got)
        check(s.post(path, dict(ask, format=""))[0] == 200, path)


def test_calls_or_a_form(_):
    # The model calls, or it answers in the form; never as it would say. Seen to fail: with the form alone.
    call = '<tool_call>\n{"name": "weather", "arguments": {"town": "Paris", "days": 77}}\n</tool_call>'
    ask = dict(CHAT, tools=TIGHT, response_format=form(SCHEMA))
    for i, (said, calls) in enumerate(((call, True), ('{"town": "Paris", "days": 0}', False))):
        s = Server(model=model("either%d" % i, QWEN, {"<|call|>": said, "<|else|>": "No."}, ["<tool_call>", "</tool_call>"]))
        for wish, must in ((None, calls), ("auto", calls), ("none", False), ("required", True)):
            c = s.post(OUT, dict(ask, **({"tool_choice": wish} if wish else {})))[1]["choices"][0]
            m = c["message"]
            if wish in ("none", "required") and c["finish_reason"] == "length":
                continue  # what it would not say, it says at length
            check((c["finish_reason"] == "tool_calls") == must, said, wish, c)
            check(all(map(is_right, calls_of(m))) and not m["content"] if must else fits(m["content"]), said, wish, c)
        for seed in range(10):  # whatever is drawn
            c = s.post(OUT, dict(ask, temperature=2, seed=seed))[1]["choices"][0]
            m = c["message"]
            check(c["finish_reason"] == "length" or (all(map(is_right, calls_of(m))) if c["finish_reason"] == "tool_calls" else fits(m["content"])), c)
        streamed, finish = gather(s.stream(OUT, ask))
        check(finish == ("tool_calls" if calls else "stop"), streamed)
        got = s.post("/v1/responses", {"input": "Rain?", "tools": [dict(t["function"], type="function") for t in TIGHT], "temperature": 0,
                                       "text": {"format": {"type": "json_schema", "name": "w", "schema": SCHEMA}}})[1]
        check(got["output"][-1]["type"] == ("function_call" if calls else "message"), got)
        odd = [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"uniqueItems": True, "minItems": 2}}}}}]
        status, got = s.post(OUT, dict(ask, tools=odd))
        check(status == 400 and "the tool 'f'" in got["error"]["message"] and got["error"]["param"] == "tools", got)
        s.stop()


def test_refusals(s):
    # Seen to fail: with the pointer left out; with a second form taken for the first.
    for wrong, param, said in (
            ({"response_format": form(BAD)}, "response_format.json_schema.schema", "#/properties/a"),
            ({"response_format": form([1])}, "response_format.json_schema.schema", "must be a JSON Schema"),
            ({"response_format": form({"type": "objekt"})}, "response_format.json_schema.schema", "#/type: an unknown type"),
            ({"response_format": form({"allOf": [{"type": "string"}, {"type": "null"}]})}, "response_format.json_schema.schema", ""),
            ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "missing"),
            ({"response_format": {"type": "yaml"}}, "response_format", "'yaml'"),
            ({"response_format": 3}, "response_format", "object"),
            ({"guided_regex": "a(?<=b)"}, "guided_regex", ""), ({"guided_regex": 3}, "guided_regex", "a string"),
            ({"guided_choice": []}, "guided_choice", "list of strings"), ({"guided_choice": ["a", 1]}, "guided_choice", "list of strings"),
            ({"grammar": "root ::= x"}, "grammar", "'x' is not defined"), ({"json_schema": "{"}, "json_schema", "JSON"),
            ({"json_schema": SCHEMA, "grammar": 'root ::= "a"'}, "grammar", "not the only form")):
        for ask in (dict(CHAT, **wrong), dict(CHAT, stream=True, **wrong)):
            status, got = s.post(OUT, ask)
            check(status == 400 and got["error"]["param"] == param and said in got["error"]["message"] and
                  got["error"]["type"] == "invalid_request_error", wrong, status, got)
    status, got = s.post("/v1/responses", {"input": "a", "text": {"format": {"type": "json_schema", "schema": BAD}}})
    check((status, got["error"]["param"]) == (400, "text.format.schema") and "#/properties/a" in got["error"]["message"], got)
    status, got = s.post("/v1/messages", {"max_tokens": 9, "messages": USER, "output_config": {"format": {"type": "json_schema", "schema": BAD}}})
    check(status == 400 and got["error"]["type"] == "invalid_request_error" and "#/properties/a" in got["error"]["message"], got)
    status, got = s.post("/api/chat", {"messages": USER, "format": BAD})
    check(status == 400 and "#/properties/a" in got["error"], got)
    for bad in (3, "yaml", ["json"]):
        check(s.post("/api/chat", {"messages": USER, "format": bad})[0] == 400, bad)


def test_many_grammars(s):
    # More than are kept, asked for twice, by clients that do not wait for each other. Seen to fail with a grammar that is closed
    # while it is used (with a sanitizer).
    for _ in range(2):
        for i in range(40):
            got = s.post("/v1/completions", {"prompt": "Rain?", "max_tokens": 20, "guided_choice": ["%d" % i]})[1]
            check(got["choices"][0]["text"] == "%d" % i, i, got)


def main():
    if not serve_test.can_serve():
        print("serve formats: skipped: built without libevent")
        return 0
    shared = Server(model=model("thinks", QWEN, SCRIPTS, MARKS))
    n = serve_test.run_tests((test_chat, test_every_name, test_calls_or_a_form, test_refusals, test_many_grammars), shared)
    shared.stop()
    print("serve formats: %d tests, %d checks failed" % (n, serve_test.failures))
    return serve_test.failures != 0


if __name__ == "__main__":
    sys.exit(main())

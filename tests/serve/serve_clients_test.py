#!/usr/bin/env python3
"""What clients send beside the plain fields, in the interfaces that tern serve speaks.

    tests/serve/serve_clients_test.py TERN [NAME]     the tests with NAME in their names
"""
import json
import re
import sys

import os
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import serve_test
from parrot import QWEN, SCRIPTS
from serve_test import Server, check
from serve_tools_test import TOOLS, WANTED, calls_of, model

SAY = {"role": "user", "content": "a"}


def shown(s, **body):
    """The prompt that a conversation makes."""
    return s.post("/apply-template", body)[1]["prompt"]


def test_instructions_within_an_anthropic_conversation(s):
    # They belong to the first system message, in their order; the user's words around them stay one turn. Seen to fail
    # with only user and assistant known; with the message left in its place, which the template shows after the first.
    text = lambda t: [{"type": "text", "text": t, "cache_control": {"type": "ephemeral"}}]
    b = {"role": "user", "content": "b"}
    be = lambda t: {"role": "system", "content": t}
    said = {"role": "assistant", "content": "c"}
    count = lambda **m: s.post("/v1/messages/count_tokens", dict(m))[1]["input_tokens"]
    joined = [{"role": "user", "content": "a\n\nb"}]
    for given, system, messages in (
            ([SAY, be("x"), b], "x", joined), ([be(text("x")), SAY], "x", [SAY]), ([SAY, be("x"), be(text("y")), b], "x\n\ny", joined),
            ([SAY, said, be("x"), b], "x", [SAY, said, b]), ([SAY, said, b, be("x")], "x", [SAY, said, b]), ([SAY, be(""), b], None, joined)):
        same = dict({"messages": messages, "max_tokens": 3}, **({"system": system} if system else {}))
        check(count(messages=given) == count(**same), given)
        whole = s.post("/v1/messages", {"messages": given, "max_tokens": 3, "temperature": 0})
        check(whole == (200, dict(s.post("/v1/messages", dict(same, temperature=0))[1], id=whole[1].get("id"), usage=whole[1].get("usage"))), given, whole)
    check(count(messages=[SAY, be("y"), b], system=text("x")) == count(messages=joined, system="x\n\ny"))
    # After an answer that instructions follow there is a new one, and not its continuation.
    check(count(messages=[SAY, said, be("x")]) > count(messages=[be("x"), SAY, said]))
    for wrong in ([SAY, be(5)], [SAY, {"role": "system"}], [SAY, be([{"type": "image"}])], [SAY, {"role": "tool", "content": "x"}]):
        status, answer = s.post("/v1/messages", {"messages": wrong, "max_tokens": 3})
        check(status == 400 and "messages." in answer["error"]["message"], wrong, answer)


def test_refusals_are_what_was_said(s):
    # Seen to fail with parts of other types refused; with content demanded beside a refusal.
    plain = s.post("/v1/chat/completions", {"messages": [SAY, {"role": "assistant", "content": "I cannot."}, SAY], "max_tokens": 2})[1]
    for m in ({"content": [{"type": "refusal", "refusal": "I cannot."}]}, {"content": None, "refusal": "I cannot."}, {"refusal": "I cannot."},
              {"content": [{"type": "text", "text": "I "}, {"type": "refusal", "refusal": "cannot."}]}, {"content": "I cannot.", "refusal": None}):
        status, got = s.post("/v1/chat/completions", {"messages": [SAY, dict(m, role="assistant"), SAY], "max_tokens": 2})
        check(status == 200 and got["usage"]["prompt_tokens"] == plain["usage"]["prompt_tokens"], m, got)
    item = {"type": "message", "role": "assistant", "status": "completed", "id": "m", "content": [{"type": "refusal", "refusal": "I cannot."}]}
    status, got = s.post("/v1/responses", {"input": [SAY, item, SAY], "max_output_tokens": 2})
    check(status == 200 and got["usage"]["input_tokens"] == plain["usage"]["prompt_tokens"], got)
    for m in ({"content": [{"type": "refusal"}]}, {"content": None, "refusal": 5}, {"content": None, "refusal": None}):
        check(s.post("/v1/chat/completions", {"messages": [SAY, dict(m, role="assistant"), SAY]})[0] == 400, m)


READ = {"type": "function", "name": "read", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}
RULES = 'start: "*** Begin" LF line+\nline: /(.+)/ LF?\n%import common.LF'
PATCH = {"type": "custom", "name": "apply_patch", "description": "Edits", "format": {"type": "grammar", "syntax": "lark", "definition": RULES}}
FILES = {"type": "namespace", "name": "files", "description": "Of files", "tools": [READ]}
SERVERS = [{"type": "web_search"}, {"type": "local_shell"}, {"type": "image_generation"}, {"type": "mcp", "server_label": "x"}, {"type": "tool_of_2027", "name": "y"}]


def test_tools_of_other_types_in_responses():
    # Offered as functions or left out, and never in the way of the others; a call has its tool's form again. Seen to fail
    # with functions known alone; with the namespace's name left in the call's; with the arguments in the place of the input.
    patch = "*** Begin\n\"a\""
    calls = [("apply_patch", {"input": patch}), ("files__read", {"path": "x"}), ("read", {"path": "y"})]
    said = "Well.\n" + "\n".join("<tool_call>\n%s\n</tool_call>" % json.dumps({"name": n, "arguments": a}) for n, a in calls)
    s = Server(model=model("codex", QWEN, {"<|call|>": said, "<|after|>": "Done.", "<|else|>": "Hi.", "<|once|>": "."}))
    for tool in SERVERS + [PATCH, FILES]:
        for tools in ([READ, tool], [tool, READ], [tool]):
            status, got = s.post("/v1/responses", {"input": "a", "tools": tools, "max_output_tokens": 3})
            check(status == 200 and got["tools"] == tools, tool, got)
    check(s.read_log().count("left_out") == 3 * len(SERVERS) and 'first="web_search"' in s.read_log(), s.read_log())
    alone = s.post("/v1/responses", {"input": "a", "tools": SERVERS, "temperature": 0})[1]
    check(alone["output"][0]["content"][0]["text"] == "Hi.", "no tools at all", alone)
    ask = {"input": "a", "tools": SERVERS + [PATCH, FILES, READ], "temperature": 0}
    status, whole = s.post("/v1/responses", ask)
    items = whole["output"][1:]
    bare = [{k: v for k, v in i.items() if k not in ("id", "call_id", "status")} for i in items]
    check(bare == [{"type": "custom_tool_call", "name": "apply_patch", "input": patch},
                   {"type": "function_call", "name": "read", "namespace": "files", "arguments": json.dumps({"path": "x"})},
                   {"type": "function_call", "name": "read", "arguments": json.dumps({"path": "y"})}], items)
    check(items[0]["id"].startswith("ctc_") and items[1]["id"].startswith("fc_"), items)
    events = s.stream("/v1/responses", ask)
    about = [e for e in events if e.get("output_index") == 1]
    check([e["type"] for e in about] == ["response.output_item.added", "response.custom_tool_call_input.delta",
                                         "response.custom_tool_call_input.done", "response.output_item.done"], about)
    check(about[0]["item"]["input"] == "" and about[1]["delta"] == about[2]["input"] == about[3]["item"]["input"] == patch, about)
    done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
    check([d.get("namespace") for d in done] == [None, None, "files", None] and done == events[-1]["response"]["output"], done)
    # And back.
    outputs = [{"type": i["type"] + "_output", "call_id": i["call_id"], "output": "ok"} for i in items]
    status, after = s.post("/v1/responses", dict(ask, input=[SAY] + whole["output"] + outputs))
    check(status == 200 and after["output"][0]["content"][0]["text"] == "Done.", after)
    count = lambda *more: s.post("/v1/responses/input_tokens", {"input": [SAY, *more, {"type": "function_call_output", "call_id": "c", "output": "ok"}]})[1]["input_tokens"]
    function = lambda name, arguments, **more: dict({"type": "function_call", "call_id": "c", "name": name, "arguments": arguments}, **more)
    custom = {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "*** Begin"}
    check(count(custom) == count(function("apply_patch", '{"input":"*** Begin"}')), custom)
    check(count(function("read", "{}", namespace="files")) == count(function("files__read", "{}")) > count(function("read", "{}")))
    check(count(function("read", "{}", namespace="mcp__files__")) == count(function("mcp__files__read", "{}")))
    for name in ("local_shell", "shell", "apply_patch"):
        key = "operation" if name == "apply_patch" else "action"
        check(count({"type": name + "_call", "call_id": "c", key: {"command": ["ls"]}}) == count(function(name, '{"command":["ls"]}')), name)
    for kind in ("web_search_call", "reasoning", "mcp_list_tools", "image_generation_call"):
        check(count({"type": kind, "id": "x", "status": "completed"}) == count(), kind)
    for output in ({"type": "shell_call_output", "output": [{"stdout": "a", "stderr": ""}]}, {"type": "local_shell_call_output", "id": "c", "output": "{}"},
                   {"type": "apply_patch_call_output", "status": "completed"}, {"type": "custom_tool_call_output", "output": [{"type": "input_text", "text": "a"}]}):
        check(s.post("/v1/responses", {"input": [SAY, custom, dict(output, call_id="c")], "max_output_tokens": 2})[0] == 200, output)
    status, got = s.post("/v1/responses", {"input": [{"type": "additional_tools", "tools": [PATCH, READ, FILES]}, SAY], "temperature": 0})
    check([i["type"] for i in got["output"]] == [i["type"] for i in whole["output"]], got)
    for wrong in ([custom, {"type": "custom_tool_call", "call_id": "c", "input": "x"}], [dict(custom, input=5)], [{"type": "item_reference", "id": "fc_1"}],
                  [{"type": "compaction"}]):
        status, got = s.post("/v1/responses", {"input": [SAY] + wrong})
        check(status == 400 and got["error"]["param"].startswith("input."), wrong, got)
    for wrong in ([READ, 5], [{"type": "custom"}], [dict(FILES, tools=[{"type": "function"}])], [{}], {}):
        status, got = s.post("/v1/responses", {"input": "a", "tools": wrong})
        check(status == 400 and got["error"]["param"] == "tools", wrong, got)
    s.stop()


def test_custom_tools_in_chats():
    # Seen to fail with 400; with the arguments in the place of the input; with a call sent back that no template knows.
    patch = "*** Begin\n\"a\""
    said = "\n".join("<tool_call>\n%s\n</tool_call>" % json.dumps({"name": n, "arguments": a}) for n, a in (("apply_patch", {"input": patch}), ("clock", {})))
    s = Server(model=model("custom", QWEN, {"<|call|>": said, "<|after|>": "Done.", "<|else|>": "Hi.", "<|once|>": "."}))
    custom = lambda **grammar: {"type": "custom", "custom": {"name": "apply_patch", "description": "Edits", **({"format": {"type": "grammar", "grammar": grammar}} if grammar else {})}}
    ask = {"messages": [SAY], "tools": [custom(syntax="lark", definition=RULES), TOOLS[1]], "temperature": 0}
    wanted = {"name": "apply_patch", "input": patch}
    status, got = s.post("/v1/chat/completions", ask)
    m = got["choices"][0]["message"]
    check(status == 200 and m["tool_calls"][0]["custom"] == wanted and m["tool_calls"][0]["type"] == "custom" and m["tool_calls"][1]["function"]["name"] == "clock", got)
    pieces = [t for e in s.stream("/v1/chat/completions", ask) for c in e["choices"] for t in c["delta"].get("tool_calls", [])]
    check([t["custom"] for t in pieces if "custom" in t] == [wanted] and any(t.get("function", {}).get("name") == "clock" for t in pieces), pieces)
    back = ask["messages"] + [m] + [{"role": "tool", "tool_call_id": t["id"], "content": "ok"} for t in m["tool_calls"]]
    status, after = s.post("/v1/chat/completions", dict(ask, messages=back))
    check(status == 200 and after["choices"][0]["message"]["content"] == "Done.", after)
    named = dict(ask, tool_choice={"type": "custom", "custom": {"name": "apply_patch"}})
    check(s.post("/v1/chat/completions", named)[1]["choices"][0]["message"]["tool_calls"][0]["custom"] == wanted)
    status, got = s.post("/v1/chat/completions", dict(ask, tools=[custom(syntax="regex", definition="[*]{3}.*")], tool_choice="required", max_tokens=60))
    check(status == 200 and got["choices"][0]["message"]["tool_calls"][0]["custom"]["input"].startswith("***"), got)
    check(s.post("/v1/chat/completions", dict(ask, tools=[{"type": "custom", "custom": {}}]))[0] == 400)
    s.stop()


def test_grammars_of_custom_tools():
    # The input is a text of the grammar, whatever the model would say, called or not; what cannot be enforced is refused. Seen to
    # fail with the grammar in the description alone.
    said = "<tool_call>\n%s\n</tool_call>" % json.dumps({"name": "apply_patch", "arguments": {"input": "*** Begin"}})
    s = Server(model=model("rules", QWEN, {"<|call|>": said, "<|after|>": "Done.", "<|else|>": "Hi.", "<|once|>": "."}))
    tool = lambda rules, syntax="lark": {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": syntax, "definition": rules}}
    older = lambda t: {"type": "custom", "custom": {"name": t["name"], "format": {"type": "grammar", "grammar": {k: t["format"][k] for k in ("syntax", "definition")}}}}
    for rules, form in (('start: line~2\nline: "b".."d" LF\n%import common.LF', r'[b-d]\n[b-d]\n'), (r'start: /"[^"\n]{1,3}"/ "\\"', r'"[^"\n]{1,3}"\\'),
                        ('start: "(" start ")" | "x"i', r'\(*[xX]\)*')):
        for more in ({"tool_choice": "required"}, {}):
            status, got = s.post("/v1/responses", {"input": "a", "tools": [tool(rules), READ], "temperature": 0, "max_output_tokens": 80, **more})
            calls = [i for i in got.get("output", []) if i["type"] == "custom_tool_call"]
            check(status == 200 and calls and all(re.fullmatch(form, i["input"]) for i in calls if i["status"] == "completed"), rules, more, got)
            status, got = s.post("/v1/chat/completions", {"messages": [SAY], "tools": [older(tool(rules)), TOOLS[1]], "temperature": 0, "max_tokens": 80, **more})
            choice = got["choices"][0]
            check(status == 200 and choice["message"]["tool_calls"], got)
            check(choice["finish_reason"] == "length" or re.fullmatch(form, choice["message"]["tool_calls"][0]["custom"]["input"]), rules, got)
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "custom", "name": "apply_patch"}]}
    status, got = s.post("/v1/responses", {"input": "a", "tools": [tool('start: "q"'), READ], "tool_choice": allowed, "temperature": 0})
    check(status == 200 and got["output"][-1]["input"] == "q", got)
    for t, why in ((tool('start: "a"\nx{y}: y'), "line 2: templates"), (tool("start: /(?<!b)a/"), "looking behind"), (tool("start", "abnf"), "syntax")):
        for path, body in (("/v1/responses", {"input": "a", "tools": [t, READ]}), ("/v1/chat/completions", {"messages": [SAY], "tools": [older(t)]})):
            status, got = s.post(path, body)
            check(status == 400 and got["error"]["param"] == "tools" and why in got["error"]["message"] and "apply_patch" in got["error"]["message"], t, got)
    s.stop()


def test_items_by_reference():
    # As the AI SDK sends its second step unless told not to store. Seen to fail with 400; with another key's items found.
    s = Server("--api-key", "one", "--api-key", "two", model=model("sdk", QWEN, SCRIPTS))
    flat = [dict(t["function"], type="function") for t in TOOLS]
    ask = {"input": [SAY], "tools": flat, "temperature": 0}
    post = lambda body, key="one": s.post("/v1/responses", body, headers={"Authorization": "Bearer " + key})
    items = post(ask)[1]["output"]
    result = lambda i: {"type": "function_call_output", "call_id": i["call_id"], "output": "dry"}
    second = [SAY] + [{"type": "item_reference", "id": i["id"]} for i in items] + [result(i) for i in items if "call_id" in i]
    status, got = post(dict(ask, input=second))
    sent = post(dict(ask, input=[SAY] + items + second[1 + len(items):]))[1]
    check(status == 200 and got["output"][0]["content"] == sent["output"][0]["content"] and got["usage"]["input_tokens"] == sent["usage"]["input_tokens"], got, sent)
    status, got = post(dict(ask, input=second), "two")
    check(status == 400 and got["error"]["param"] == "input.id", "another's", got)
    events = s.ask("POST", "/v1/responses", dict(ask, stream=True), {"Authorization": "Bearer one"})[2]
    done = [json.loads(e.split("data: ", 1)[1])["item"] for e in events.split("\n\n") if '"response.output_item.done"' in e]
    check(len(done) == len(items) and post(dict(ask, input=[SAY, {"type": "item_reference", "id": done[-1]["id"]}, result(done[-1])]))[0] == 200, done)
    unkept = post(dict(ask, store=False))[1]["output"]
    for i in (unkept[-1]["id"], "fc_1", "", None, 5):
        status, got = post(dict(ask, input=[SAY, {"type": "item_reference", "id": i}]))
        check(status == 400 and got["error"]["param"] == "input.id", i, got)
    check(post(dict(ask, input=[SAY] + second[1:] * 3000))[0] == 400, "an end to it")
    s.stop()


def test_long_conversations_are_cut_if_asked(s):
    # Seen to fail with 400; with the system message dropped; with an answer of one token for want of room.
    turns = [dict(role=r, content="%s %d. " % (r, i) + "Once upon a time. " * 30) for i in range(40) for r in ("user", "assistant")]
    ask = {"instructions": "Be brief.", "input": turns + [SAY], "max_output_tokens": 24, "temperature": 0}
    status, got = s.post("/v1/responses", ask)
    check((status, got["error"]["code"]) == (400, "context_length_exceeded"), got)
    status, got = s.post("/v1/responses", dict(ask, truncation="auto"))
    check(status == 200 and got["usage"]["output_tokens"] > 3, got)
    kept = [n for n in range(0, 80, 2) if s.post("/v1/responses/input_tokens", dict(ask, input=turns[n:] + [SAY]))[1].get("input_tokens") == got["usage"]["input_tokens"]]
    check(len(kept) == 1 and 60 < kept[0] < 80, "the last turns, with the instructions", kept, got["usage"])
    count = s.post("/v1/responses/input_tokens", dict(ask, truncation="auto"))[1]
    check(count["input_tokens"] == got["usage"]["input_tokens"], count)
    alone = {"role": "user", "content": "Once upon a time. " * 3000}
    for wrong in (dict(ask, input=turns + [alone], truncation="auto"), dict(ask, truncation="middle"), dict(ask, truncation=5)):
        check(s.post("/v1/responses", wrong)[0] == 400, str(wrong)[-60:])


def test_allowed_tools():
    # The others are not called, however much the model wants to, and the prompt stays the same. Seen to fail with the list
    # left out of the grammar; with it in the prompt.
    said = '<tool_call>\n{"name": "read", "arguments": {"path": "x"}}\n</tool_call>'
    s = Server(model=model("allowed", QWEN, {"<|call|>": said, "<|after|>": "Done.", "<|else|>": "Hi.", "<|once|>": "."}, ["<tool_call>", "</tool_call>"]))
    shell = {"type": "function", "name": "shell", "parameters": {"type": "object", "additionalProperties": False, "properties": {"n": {"enum": [7]}}, "required": ["n"]}}
    ask = {"input": "a", "tools": [READ, shell, FILES, PATCH, {"type": "web_search"}], "temperature": 0, "max_output_tokens": 300}
    some = lambda mode, *tools: dict(ask, tool_choice={"type": "allowed_tools", "mode": mode, "tools": list(tools)})
    one = {"type": "function", "name": "shell"}
    plain = s.post("/v1/responses", ask)[1]
    check(plain["output"][0]["name"] == "read", plain)
    for mode in ("auto", "required"):
        status, got = s.post("/v1/responses", some(mode, one))
        check(status == 200 and got["output"][0]["name"] == "shell" and json.loads(got["output"][0]["arguments"]) == {"n": 7}, mode, got)
        check(got["usage"]["input_tokens"] == plain["usage"]["input_tokens"] and got["tool_choice"]["mode"] == mode, got)
        both = s.post("/v1/responses", some(mode, one, {"type": "function", "name": "read"}, {"type": "web_search"}))[1]
        check(both["output"][0]["name"] == "read", both)
    got = s.post("/v1/responses", some("required", {"type": "function", "name": "read", "namespace": "files"}))[1]["output"][0]
    check(got.get("namespace") == "files" or got["status"] == "incomplete", got)
    got = s.post("/v1/responses", some("auto", {"type": "web_search"}))
    check(got[0] == 200, "one that was left out", got)
    for name, wanted in (("shell", "function_call"), ("apply_patch", "custom_tool_call")):
        kind = "custom" if name == "apply_patch" else "function"
        got = s.post("/v1/responses", dict(ask, tool_choice={"type": kind, "name": name}))[1]["output"][0]
        check((got["type"], got["name"]) == (wanted, name), got)
    wrapped = [{"type": "function", "function": {k: v for k, v in t.items() if k != "type"}} for t in (READ, shell)]
    got = s.post("/v1/chat/completions", {"messages": [SAY], "tools": wrapped, "temperature": 0, "tool_choice": {"type": "allowed_tools", "allowed_tools": {
        "mode": "auto", "tools": [{"type": "function", "function": {"name": "shell"}}]}}})[1]
    check(calls_of(got["choices"][0]["message"]) == [("shell", {"n": 7})], got)
    for wrong in (some("auto", {"type": "function", "name": "none"}), some("never", one), some("auto"), dict(ask, tool_choice={"type": "web_search"}),
                  dict(some("auto", one), tools=[]), dict(ask, tool_choice={"type": "custom", "name": "none"})):
        status, got = s.post("/v1/responses", wrong)
        check(status == 400 and got["error"]["param"].startswith("tool_choice"), wrong["tool_choice"], got)
    s.stop()


def test_tools_of_servers_in_anthropic():
    # Seen to fail with one of them refusing the whole request.
    s = Server(model=model("claude", QWEN, SCRIPTS))
    weather = {"name": "weather", "input_schema": TOOLS[0]["function"]["parameters"], "cache_control": {"type": "ephemeral"}}
    others = [{"type": "web_search_20250305", "name": "web_search", "max_uses": 8}, {"type": "bash_20250124", "name": "bash"},
              {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}, {"name": "late", "defer_loading": True}]
    ask = {"messages": [SAY], "max_tokens": 200, "temperature": 0}
    clock = {"name": "clock", "input_schema": {"type": "object", "properties": {}}}
    plain = s.post("/v1/messages", dict(ask, tools=[weather, clock]))[1]
    for tools in ([weather, clock] + others, [weather] + others + [clock], [dict(weather, type="custom", defer_loading=True), clock]):
        got = s.post("/v1/messages", dict(ask, tools=tools))[1]
        check([b.get("name") for b in got["content"]] == [b.get("name") for b in plain["content"]] and got["stop_reason"] == "tool_use", got)
        check(s.post("/v1/messages/count_tokens", dict(ask, tools=tools))[0] == 200, tools)
    check(s.post("/v1/messages", dict(ask, tools=others))[1]["content"] == [{"type": "text", "text": "Good day."}])
    check('first="web_search_20250305"' in s.read_log())
    s.stop()


def test_context_of_ollama_goes_round(s):
    # What one answer gives as its context, the next request continues. Seen to fail with the field refused; with a BOS token
    # in the middle.
    ask = lambda **more: s.post("/api/generate", dict({"stream": False, "options": {"num_predict": 3, "temperature": 0}}, **more))
    first = ask(prompt="a")[1]
    for context in (first["context"], [], None):
        status, got = ask(prompt="b", context=context)
        n = len(context or [])
        check(status == 200 and got["context"][:n] == (context or []), context, got)
        check(got["prompt_eval_count"] == ask(prompt="b")[1]["prompt_eval_count"] + max(0, n - 1), context, got)
    last = s.stream("/api/generate", {"prompt": "b", "context": first["context"], "options": {"num_predict": 3, "temperature": 0}})[-1]
    check(last["context"] == ask(prompt="b", context=first["context"])[1]["context"], last)
    info = s.post("/tokenize", {"content": "a", "add_special": True})[1]["tokens"]
    if len(info) == 2:
        check(got["context"].count(info[0]) == 1 and last["context"].count(info[0]) == 1, info, last)
    for wrong in ([-1], [1 << 31], ["a"], [0.5], 5, "a", [7] * 100000):
        status, got = ask(prompt="b", context=wrong)
        check(status == 400 and isinstance(got["error"], str), str(wrong)[:40], got)
    check(ask(prompt="b", raw=True, context=[7])[0] == 400)


def test_temperatures_below_zero(s):
    # The likeliest token, as Ollama and llama-server have it. Seen to fail with 400.
    for t in (-1, -0.5, -100):
        got = [s.post("/api/generate", {"prompt": "Once", "raw": True, "stream": False, "options": {"temperature": t, "num_predict": 9, "seed": k}})[1]["response"] for k in (1, 2, 3)]
        got += [s.post("/completion", {"prompt": "Once", "temperature": t, "n_predict": 9, "seed": 4})[1]["content"]]
        check(len(set(got)) == 1, t, got)
    check(s.post("/v1/completions", {"prompt": "Once", "temperature": -1})[0] == 400, "OpenAI's is from 0")


def test_fields_come_back_from_responses(s):
    # Seen to fail with null in the place of what was sent.
    sent = {"reasoning": {"effort": "low", "summary": "auto"}, "truncation": "auto", "user": "u", "safety_identifier": "i", "prompt_cache_key": "k",
            "max_tool_calls": 3, "service_tier": "default", "metadata": {"a": "b"}, "text": {"verbosity": "low"}, "instructions": "Be brief."}
    got = s.post("/v1/responses", dict(sent, input="a", max_output_tokens=2))[1]
    check({k: got[k] for k in sent} == dict(sent, text={"format": {"type": "text"}, "verbosity": "low"}), got)
    check(got["completed_at"] >= got["created_at"], got)
    plain = s.post("/v1/responses", {"input": "a", "max_output_tokens": 2})[1]
    check((plain["reasoning"], plain["truncation"], plain.get("user")) == ({"effort": None, "summary": None}, "disabled", None), plain)
    model = json.loads(s.ask("GET", "/v1/models/stories")[2])
    check(model["created_at"].startswith("20") and model["created_at"].endswith("Z"), model)


def test_prompts_without_an_answer(s):
    # Seen to fail with one token generated; with 0 refused.
    status, got = s.post("/completion", {"prompt": "Once upon", "n_predict": 0, "n_probs": 2, "return_tokens": True})
    check(status == 200 and (got["content"], got["tokens"], got["tokens_predicted"], got["stop_type"]) == ("", [], 0, "limit"), got)
    check(got["timings"]["predicted_n"] == 0 and got["timings"]["cache_n"] + got["timings"]["prompt_n"] == got["tokens_evaluated"] > 0, got)
    check(s.post("/completion", {"prompt": "Once upon", "max_tokens": 0})[1]["tokens_predicted"] == 0)
    long = "Once upon a time there was a little girl. " * 12
    s.post("/completion", {"prompt": long, "n_predict": 0})
    again = s.post("/completion", {"prompt": long, "n_predict": 1})[1]
    check(again["timings"]["cache_n"] > 0, "the prompt is kept", again)
    events = s.stream("/completion", {"prompt": "Once upon", "n_predict": 0})
    check("".join(e["content"] for e in events) == "" and events[-1]["stop"], events)
    for more, text in (({"echo": True}, "Once upon"), ({}, ""), ({"echo": True, "n": 2}, "Once upon")):
        status, got = s.post("/v1/completions", dict({"prompt": "Once upon", "max_tokens": 0}, **more))
        check(status == 200 and {c["text"] for c in got["choices"]} == {text} and got["usage"]["completion_tokens"] == 0, more, got)
        check(got["choices"][0]["finish_reason"] == "length" and got["choices"][0]["logprobs"] is None, got)
    chunks = s.stream("/v1/completions", {"prompt": ["a", "b"], "max_tokens": 0, "echo": True})
    check("".join(c["choices"][0]["text"] for c in chunks) == "ab", chunks)
    for path, name in (("/v1/completions", "max_tokens"), ("/completion", "n_predict")):
        check(s.post(path, {"prompt": "a", name: -3})[0] == 400, path)


def test_several_prompts_for_llama_server(s):
    # A list of texts, of lists, or of objects is that many prompts; one with tokens in it is one. Seen to fail with all of
    # them joined.
    ask = lambda prompt, **more: s.post("/completion", dict({"prompt": prompt, "n_predict": 6, "temperature": 0}, **more))
    a, b = ask("Once upon")[1], ask("The little")[1]
    ids = s.post("/tokenize", {"content": "Once upon", "add_special": True})[1]["tokens"]
    for prompt in (["Once upon", "The little"], [ids, "The little"], [{"prompt_string": "Once upon"}, "The little"], [ids, [*ids[:-2], "The little"]]):
        status, got = ask(prompt)
        check(status == 200 and [(g["content"], g["index"], g["tokens_evaluated"]) for g in got] ==
              [(a["content"], 0, a["tokens_evaluated"]), (b["content"], 1, b["tokens_evaluated"])], prompt, got)
        told = {0: "", 1: ""}
        for e in s.stream("/completion", {"prompt": prompt, "n_predict": 6, "temperature": 0}):
            told[e["index"]] += e["content"]
            check(e["tokens_evaluated"] == (a, b)[e["index"]]["tokens_evaluated"], e)
        check(told == {0: a["content"], 1: b["content"]}, prompt, told)
    for prompt in (["Once upon"], ids, [*ids[:-1], " upon"], [ids]):
        check(ask(prompt)[1]["content"] == a["content"], prompt)
    check([g["index"] for g in ask(["a", "b"], n=2)[1]] == [0, 1, 2, 3])
    for wrong in ([], [[]], ["a", True], ["a", None], [["a", {}]], [[-1]], {}):
        status, got = ask(wrong)
        check(status == 400 and got["error"]["param" if "param" in got["error"] else "message"], wrong, got)


def test_likelihoods_of_prompts(s):
    # As evaluation harnesses ask for them: by text or ids, several at once. What a prompt's tokens are worth must be what they
    # were worth when they were generated. Seen to fail with 400; with scores a token late; with offsets from the answer's start.
    ask = {"prompt": "Once upon a", "max_tokens": 8, "temperature": 0, "logprobs": 3}
    made = s.post("/v1/completions", ask)[1]["choices"][0]
    ids = s.post("/tokenize", {"content": "Once upon a" + made["text"], "add_special": True})[1]["tokens"]
    n = s.post("/v1/completions", dict(ask, max_tokens=0))[1]["usage"]["prompt_tokens"]
    for max_tokens in (0, 1):
        for prompt in (ids, "Once upon a" + made["text"]):
            status, got = s.post("/v1/completions", dict(ask, prompt=prompt, echo=True, max_tokens=max_tokens))
            check(status == 200, got)
            choice = got["choices"][0]
            told = choice["logprobs"]
            check({len(v) for v in told.values()} == {len(ids) + max_tokens} and choice["text"].startswith("Once upon a" + made["text"]), told)
            check(told["token_logprobs"][0] is None and told["top_logprobs"][0] is None and None not in told["token_logprobs"][1:], told)
            check(told["tokens"][n:len(ids)] == made["logprobs"]["tokens"], told["tokens"], made)
            near = lambda a, b: abs(a - b) < 1e-3
            check(all(map(near, told["token_logprobs"][n:len(ids)], made["logprobs"]["token_logprobs"])), told, made)
            check([list(t) for t in told["top_logprobs"][n:len(ids)]] == [list(t) for t in made["logprobs"]["top_logprobs"]], told, made)
            where = [t + len("Once upon a") for t in made["logprobs"]["text_offset"]]
            check(told["text_offset"][n:len(ids)] == where or prompt is ids, told["text_offset"], where)
            check(got["usage"]["completion_tokens"] == max_tokens, got["usage"])
    two = s.post("/v1/completions", dict(ask, prompt=[ids, ids[:4]], echo=True, max_tokens=0, n=2))[1]["choices"]
    check([len(c["logprobs"]["tokens"]) for c in two] == [len(ids)] * 2 + [4] * 2 and two[0]["logprobs"] == dict(told, **{k: v[:len(ids)] for k, v in two[1]["logprobs"].items()}), two)
    pieces = [c["choices"][0]["logprobs"] for c in s.stream("/v1/completions", dict(ask, echo=True)) if c["choices"]]
    whole = s.post("/v1/completions", dict(ask, echo=True))[1]["choices"][0]["logprobs"]
    for name in whole:
        check([v for p in pieces if p for v in p[name]] == whole[name], name, pieces)
    zero = s.post("/v1/completions", dict(ask, echo=True, logprobs=0, max_tokens=0))[1]["choices"][0]["logprobs"]
    check(len(zero["tokens"]) == n and zero["top_logprobs"][1] == {}, zero)


def test_the_best_of_several(s):
    # Seen to fail with 400; with the worst; with likelihoods that nobody asked for.
    ask = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 1.2, "seed": 5}
    all_of = s.post("/v1/completions", dict(ask, n=6, logprobs=0))[1]
    mean = lambda c: sum(c["logprobs"]["token_logprobs"]) / len(c["logprobs"]["token_logprobs"])
    order = sorted(all_of["choices"], key=mean, reverse=True)
    status, got = s.post("/v1/completions", dict(ask, n=2, best_of=6))
    check(status == 200 and {c["text"] for c in got["choices"]} == {c["text"] for c in order[:2]}, got, order)
    check(sorted(c["index"] for c in got["choices"]) == [0, 1] and {c["index"]: c["text"] for c in got["choices"]}[0] == order[0]["text"], got)
    check(all(c["logprobs"] is None for c in got["choices"]) and got["usage"]["completion_tokens"] == all_of["usage"]["completion_tokens"], got)
    got = s.post("/v1/completions", dict(ask, prompt=["a", "b"], best_of=3, logprobs=1))[1]["choices"]
    check([c["index"] for c in got] == [0, 1] and all(c["logprobs"]["tokens"] for c in got), got)
    for more in ({"n": 3, "best_of": 2}, {"best_of": 2, "stream": True}, {"best_of": 0}, {"best_of": 129}):
        status, got = s.post("/v1/completions", dict(ask, **more))
        check(status == 400 and got["error"]["param"] == "best_of", more, got)


MARKS = ["<|fim_prefix|>", "<|fim_suffix|>", "<|file_sep|>", "<|repo_name|>", "<|fim_pad|>"]
# As llama.vim sends them: at the cursor, and to warm up.
VIM = {"n_predict": 128, "n_indent": 0, "top_k": 40, "top_p": 0.90, "stream": False, "samplers": ["top_k", "top_p", "infill"], "cache_prompt": True,
       "t_max_prompt_ms": 500, "t_max_predict_ms": 60000, "temperature": 0, "id_slot": 0, "stop": [],
       "response_fields": ["content", "timings/prompt_n", "timings/prompt_ms", "timings/prompt_per_token_ms", "timings/prompt_per_second",
                           "timings/predicted_n", "timings/predicted_ms", "timings/predicted_per_token_ms", "timings/predicted_per_second",
                           "truncated", "tokens_cached", "nothing/like_it"]}
WARM = {"id_slot": 0, "input_prefix": "", "input_suffix": "", "prompt": "", "n_predict": 0, "temperature": 0.0, "samplers": [], "stream": False,
        "cache_prompt": True, "t_max_prompt_ms": 1, "t_max_predict_ms": 1, "response_fields": [""]}
FILLED = "  if x:\n    return 1\n  deep\nflat"


def test_filling_in():
    # What is between the marks is seen by what of it is cached for the same tokens. Seen to fail with 404; with the marks' names
    # read in texts; with the suffix first; with the extra files behind the prefix; with the line before the cursor left out.
    s = Server(model=model("fim", QWEN, {"<|fim_middle|>": FILLED, "<|else|>": "Hi."}, MARKS))
    ids = lambda *parts: [i for p in parts for i in s.post("/tokenize", {"content": p, "parse_special": p in MARKS + ["<|fim_middle|>"]})[1]["tokens"]]

    def same(body, *parts):
        status, got = s.post("/infill", dict(VIM, **{"temperature": 0, "response_fields": [], **body}))
        check(status == 200 and got["content"] == FILLED and got["stop_type"] == "eos", body, got)
        wanted = ids(*parts)
        check(got["tokens_evaluated"] == len(wanted), body, got, len(wanted))
        again = s.post("/completion", {"prompt": wanted, "n_predict": 1})[1]
        check(again["timings"]["cache_n"] == len(wanted) - 1, body, again)

    before, after, line = "def f(x): # <|fim_suffix|>\n" * 4, "\nprint(f(2))\n" * 4, "  if"
    head = ("<|repo_name|>", "myproject\n")
    here = ("<|file_sep|>", "filename\n", "<|fim_prefix|>", before, line, "<|fim_suffix|>", after, "<|fim_middle|>")
    at = {"input_prefix": before, "prompt": line, "input_suffix": after}
    same(dict(at, input_extra=[]), *head, *here)
    same(at, *head, *here)
    files = [{"text": "one\n", "filename": "a.py"}, {"text": "two", "time": 5}]
    same(dict(at, input_extra=files), *head, "<|file_sep|>", "a.py\n", "one\n", "<|file_sep|>", "tmp\n", "two", *here)
    same(dict(at, input_suffix="", prompt=""), *head, *here[:4], "<|fim_suffix|>", "<|fim_middle|>")
    # Long ones: read away; and what does not fit is left out, the farthest first.
    same(dict(at, input_extra=[{"text": "x" * 700, "filename": "a" * 40}]), *head, "<|file_sep|>", "a" * 40 + "\n", "x" * 700, *here)
    status, got = s.post("/infill", dict(VIM, input_prefix="a" * 200000, input_suffix="b" * 200000, input_extra=[{"text": "c" * 90000}], prompt="d"))
    check(status == 200 and got["content"] == FILLED, got)
    wanted = s.post("/infill", dict(VIM, input_prefix="a" * 9000, input_suffix="b" * 9000, prompt="d", n_predict=0, response_fields=["tokens_evaluated"]))[1]
    check(3500 < wanted["tokens_evaluated"] < 4096 - 100, wanted)
    # What editors ask for of the answer.
    status, got = s.post("/infill", dict(VIM, **at))
    check(status == 200 and set(got) == set(VIM["response_fields"]) - {"nothing/like_it"} and got["content"] == FILLED, got)
    check(s.post("/infill", dict(WARM, input_extra=files)) == (200, {}))
    fim = {"model": "fim", "prompt": before, "suffix": after, "temperature": 0, "random_seed": 5, "max_tokens": 40}  # Mistral's
    status, got = s.post("/v1/fim/completions", fim)
    check(status == 200 and got["object"] == "chat.completion" and got["choices"][0]["message"]["content"] == FILLED, got)
    check(got["usage"]["prompt_tokens"] == len(ids("<|fim_prefix|>", before, "<|fim_suffix|>", after, "<|fim_middle|>")), got)
    check("".join(c["delta"].get("content", "") for e in s.stream("/v1/fim/completions", fim) for c in e["choices"]) == FILLED)
    check(s.post("/v1/fim/completions", dict(fim, suffix=None))[0] == 200 and s.post("/v1/fim/completions", dict(fim, prompt=None))[0] == 400)
    check(s.post("/infill", dict(VIM, **at, n_cmpl=2))[1][1]["content"] == FILLED)
    last = s.stream("/infill", dict(VIM, **at))[-1]
    check(last["truncated"] is False and "stop" not in last, last)
    # A line that is indented less, and one that is too late: seen to fail with the whole answer.
    for more, content in (({"n_indent": 4}, "  if x:\n    return 1\n  "), ({"n_indent": 2}, "  if x:\n    return 1\n  deep\n"),
                          ({"t_max_predict_ms": 1e-6}, "  if x:\n"), ({"n_indent": 9, "t_max_predict_ms": -1}, "  if x:\n    ")):
        for path, body in (("/infill", at), ("/completion", {"prompt": "<|fim_middle|>"})):
            body = dict(VIM, **{**body, **more, "response_fields": []})
            status, got = s.post(path, body)
            check(status == 200 and got["content"] == content and got["stop_type"] == "limit", path, more, got)
            events = s.stream(path, body)
            check("".join(e["content"] for e in events) == content and events[-1]["stop_type"] == "limit", path, more, events)
    # Other interfaces' ways to say it.
    plain = ids("<|fim_prefix|>", before, "<|fim_suffix|>", after, "<|fim_middle|>")
    status, got = s.post("/api/generate", {"prompt": before, "suffix": after, "stream": False, "options": {"temperature": 0}})
    check(status == 200 and got["response"] == FILLED and got["context"][:len(plain)] == plain, got, plain)
    status, got = s.post("/v1/completions", {"prompt": [before, before], "suffix": after, "max_tokens": 64, "temperature": 0})
    check([c["text"] for c in got["choices"]] == [FILLED] * 2 and got["usage"]["prompt_tokens"] == 2 * len(plain), got)
    check(s.post("/v1/completions", {"prompt": "<|else|>", "suffix": "", "max_tokens": 9, "temperature": 0})[1]["choices"][0]["text"] == "Hi.", "an empty one")
    for wrong, name in (({"input_prefix": "a"}, "input_suffix"), ({"input_suffix": "a"}, "input_prefix"), (dict(at, prompt=[1]), "prompt"),
                        (dict(at, input_extra=[{"filename": "a"}]), "input_extra.text"), (dict(at, input_extra=5), "input_extra"),
                        (dict(at, n_indent=-1), "n_indent"), (dict(at, response_fields=[5]), "response_fields"),
                        (dict(at, input_extra=[{"text": ""}] * 257), "input_extra")):
        status, got = s.post("/infill", wrong)
        check(status == 400 and name in got["error"]["message"], wrong, got)
    check(s.post("/v1/completions", {"prompt": [1, 2], "suffix": "a"})[0] == 400, "tokens")
    s.stop()


def test_marks_that_the_file_names():
    # By the newer keys and the older ones. Seen to fail with names alone.
    key = "tokenizer.ggml.%s_token_id"
    for keys in (("fim_pre", "fim_suf", "fim_mid"), ("prefix", "suffix", "middle")):
        named = dict(zip((key % k for k in keys), ("<|x|>", "<|y|>", "<|z|>")))
        s = Server(model=model("named_" + keys[0], QWEN, {"<|z|>": "Right.", "<|else|>": "Hi."}, ["<|x|>", "<|y|>"], named=named))
        status, got = s.post("/infill", {"input_prefix": "a", "input_suffix": "b", "temperature": 0})
        check(status == 200 and got["content"] == "Right." and got["tokens_evaluated"] == 5, keys, got)
        s.stop()
    s = Server(model=model("codestral", QWEN, {"[PREFIX]": "Right.", "<|else|>": "Hi."}, ["[SUFFIX]"]))
    got = s.post("/infill", {"input_prefix": "", "input_suffix": "b", "temperature": 0})[1]
    check(got["content"] == "Right." and got["tokens_evaluated"] == 3, "the suffix first", got)
    s.stop()


def test_filling_in_without_the_marks(s):
    for path, body, status in (("/infill", {"input_prefix": "a", "input_suffix": "b"}, 501), ("/v1/fim/completions", {"prompt": "a"}, 400), ("/v1/completions", {"prompt": "a", "suffix": "b"}, 400),
                               ("/api/generate", {"prompt": "a", "suffix": "b"}, 400)):
        got = s.post(path, body)
        check(got[0] == status and "'stories' does not fill in" in str(got[1]) and "a prefix a suffix a middle" in str(got[1]), path, got)


def test_the_document_of_what_is_served(s):
    # Seen to fail: with a route without a summary; with one that is not in it.
    doc = json.loads(s.ask("GET", "/openapi.json")[2])
    rows = re.findall(r'^    \{"(GET|POST|DELETE)", "([^"]+)"', open("apps/serve/routes.c").read(), re.M)
    named = lambda path: path + "{name}" if len(path) > 1 and path.endswith("/") else path
    check(len(rows) > 50 and sorted((m.lower(), named(p)) for m, p in rows) == sorted((m, p) for p, ops in doc["paths"].items() for m in ops), doc["paths"].keys())
    for path, operations in doc["paths"].items():
        for method, about in operations.items():
            check(about["summary"] and about["tags"], path)
            body = about.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            check((method == "get") == ("requestBody" not in about) and set(body.get("required", [])) <= set(body.get("properties", [])), path, about)
            status, _, text = s.ask(method.upper(), path.replace("{name}", "x"), None if method == "get" else {})
            check(path.startswith("/page/") or (status != 405 and "there is no /" not in text), method, path, status, text)


def test_the_table_of_fields(s):
    # Each row of docs/reference/server-fields.md is as it says. Seen to fail with a row that is not.
    path, base, n = None, {}, 0
    first = {"/v1/messages": ("messages", "max_tokens")}
    for line in open("docs/reference/server-fields.md"):
        head = re.match(r"## `POST (\S+)`", line)
        if head:
            path, base = head[1], {}
        row = re.match(r"\| (served|ignored|refused)\W[^|]*\| (.+) \|", line)
        for name, value in re.findall(r'`"([\w.]+)": ([^`]+)`', row[2]) if row else ():
            what, value = row[1], json.loads(value)
            if len(base) < len(first.get(path, "1")):
                base[name] = value
            limit = {"/v1/responses": "max_output_tokens", "/completion": "n_predict", "/api/chat": "options", "/api/generate": "options"}.get(path, "max_tokens")
            few = {"num_predict": 2} if limit == "options" else 2
            body = {limit: few, **base, **({"stream": False} if path.startswith("/api") else {}), name: value}
            status, _, text = s.ask("POST", path, body)
            check(status == 200 if what != "refused" else status >= 400 and (name in text or name == "suffix"), path, name, what, status, text)
            n += 1
    check(n > 100, n)


def test_the_table_of_routes(s):
    # Each route is as its row says, and each that is served has one. Seen to fail with a row that is not; with a route left out.
    served, n = set(), 0
    for line in open("docs/reference/server-fields.md"):
        row = re.match(r"\| [^|]*\| (`(?:GET|HEAD|POST|DELETE) .+`) \| (served|not|refused)", line)
        for method, path in re.findall(r"`(\w+) (\S+)`", row[1]) if row else ():
            status, _, text = s.ask(method, path, {} if method == "POST" else None)
            is_there = status != 405 and "there is no /" not in text
            check(is_there == (row[2] != "not") and (is_there or status in (404, 405) and path in text), method, path, status, text)
            served |= {(method, re.sub("(ID|0)$", "", path))} if is_there else set()
            n += 1
    own = {("GET", p) for p in ("/", "/page/", "/openapi.json")}
    rows = re.findall(r'^    \{"(GET|POST|DELETE)", "([^"]+)"', open("apps/serve/routes.c").read(), re.M)
    check(n > 80 and set(rows) == served | own, set(rows) ^ (served | own))


def test_reasoning_comes_back():
    # As Codex and the AI SDK send it: to the answer or the call after it. Seen to fail with it left out; with two thoughts joined to
    # the first turn's message.
    s = Server(model=model("thinks", QWEN, SCRIPTS))
    think = lambda text, **more: dict({"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}, **more)
    call = {"type": "function_call", "call_id": "c", "name": "weather", "arguments": '{"town":"Ghent"}'}
    output = {"type": "function_call_output", "call_id": "c", "output": "dry"}
    said = {"role": "assistant", "content": "Hm."}
    as_call = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "weather", "arguments": '{"town":"Ghent"}'}}]}
    result = {"role": "tool", "tool_call_id": "c", "content": "dry"}
    for items, messages in (([think("why"), said], [dict(said, reasoning_content="why")]),
                            ([think("why"), call, output], [dict(as_call, reasoning_content="why"), result]),
                            ([said, think("why"), call, output], [said, dict(as_call, reasoning_content="why"), result]),
                            ([think("a"), think("b"), said], [dict(said, reasoning_content="a\n\nb")]),
                            ([think("", content=None, summary=[{"type": "summary_text", "text": "short"}]), said], [dict(said, reasoning_content="short")]),
                            ([think("", content=None, encrypted_content="x"), said], [said]), ([think("why"), SAY, said], [SAY, said])):
        tokens = s.post("/v1/responses/input_tokens", {"input": [SAY, *items, SAY]})[1].get("input_tokens")
        wanted = len(s.post("/tokenize", {"content": shown(s, messages=[SAY, *messages, SAY])})[1]["tokens"])
        check(tokens == wanted, items, tokens, wanted)
    s.stop()


def test_scores_of_pairs():
    # vLLM's: one text with each of others, or pair by pair. Seen to fail with 404; with the first text of all for every pair.
    s = Server(model="tests/oracles/bert_ranker")
    rank = lambda query, *texts: [r["relevance_score"] for r in sorted(s.post("/v1/rerank", {"query": query, "documents": list(texts)})[1]["results"], key=lambda r: r["index"])]
    score = lambda **body: s.post("/v1/score", body)
    status, got = score(text_1="a", text_2=["b", "c d", "a"])
    check(status == 200 and [d["score"] for d in got["data"]] == rank("a", "b", "c d", "a") and got["data"][2]["index"] == 2, got)
    check(got["object"] == "list" and got["data"][0]["object"] == "score" and got["usage"]["prompt_tokens"] > 0, got)
    check([d["score"] for d in score(text_1=["a", "b"], text_2=["c d", "e"])[1]["data"]] == rank("a", "c d") + rank("b", "e"))
    check([d["score"] for d in score(queries=["a"], documents="b")[1]["data"]] == rank("a", "b"), "newer names")
    check(s.post("/score", {"text_1": "a", "text_2": "b"})[1]["data"] == score(text_1="a", text_2="b")[1]["data"])
    for wrong, name in ((dict(text_1="a"), "text_2"), (dict(text_2="a"), "text_1"), (dict(text_1=["a", "b"], text_2=["c"]), "text_1"), (dict(text_1=5, text_2="a"), "text_1"),
                        (dict(text_1="a", text_2=[]), "text_2"), (dict(text_1="a", text_2=[5]), "text_2"), (dict(text_1=["a"] * 5000, text_2="a"), "text_1")):
        status, got = score(**wrong)
        check(status == 400 and got["error"]["param"] == name, str(wrong)[:80], got)
    s.stop()


def test_drafts_change_no_answer(s):
    # Seen to fail with an option that is not known.
    text = "Once upon a time there was a fox. Once upon a time there was a fox. Once upon"
    drafts = Server("--lookup")
    for more in ({"temperature": 0}, {"temperature": 1, "seed": 5}):
        ask = dict({"prompt": [text, "A girl"], "n_predict": 30}, **more)
        bare = [[r["content"], r["tokens_predicted"]] for r in s.post("/completion", ask)[1]]
        check([[r["content"], r["tokens_predicted"]] for r in drafts.post("/completion", ask)[1]] == bare, more)
    drafts.stop()


CLAUDE = {"model": "claude-sonnet-4-5", "max_tokens": 32000, "stream": True, "temperature": 1, "metadata": {"user_id": "user_1_account__session_2"},
          "system": [{"type": "text", "text": "You are Claude Code.", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "Be brief."}],
          "messages": [{"role": "user", "content": [{"type": "text", "text": "<system-reminder>x</system-reminder>"}, {"type": "text", "text": "Rain?", "cache_control": {"type": "ephemeral"}}]}],
          "tools": [{"name": "Bash", "description": "Runs", "input_schema": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {
              "command": {"type": "string"}, "timeout": {"type": "number"}}, "required": ["command"], "additionalProperties": False}},
                    {"name": "weather", "input_schema": {"type": "object", "properties": {"town": {"type": "string"}}}},
                    {"name": "clock", "input_schema": {"type": "object", "properties": {}}}, {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}],
          "thinking": {"type": "enabled", "budget_tokens": 31999}, "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}}
CODEX = {"model": "gpt-5-codex", "instructions": "You are Codex.", "stream": True, "store": False, "tool_choice": "auto", "parallel_tool_calls": False,
         "input": [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "<permissions instructions>"}]},
                   {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<environment_context>\n<cwd>/x</cwd>\n</environment_context>"}]},
                   {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Rain?"}]}],
         "tools": [{"type": "function", "name": "weather", "description": "Looks", "strict": False, "parameters": {"type": "object", "properties": {"town": {"type": "string"}}}},
                   {"type": "function", "name": "clock", "strict": False, "parameters": {"type": "object", "properties": {}}}, PATCH, {"type": "web_search", "external_web_access": False}, {"type": "local_shell"}],
         "reasoning": {"effort": "medium", "summary": "auto"}, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "0199", "text": {"verbosity": "medium"},
         "client_metadata": {"x": "y"}}
SDK_TOOL = {"type": "function", "function": {"name": "weather", "description": "Looks", "parameters": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
            "properties": {"town": {"type": "string"}}, "required": ["town"], "additionalProperties": False}}}

SDK_CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}


def test_what_programs_send():
    # Requests as the programs send them, to a server that answers to any of the names they use. Seen to fail with the clients' names
    # refused; each of them with a field of its own refused (see the tests above).
    aliases = [x for name in ("claude-sonnet-4-5", "gpt-5-codex", "gpt-4o") for x in ("--alias", name + "=programs")]
    s = Server(*aliases, model=model("programs", QWEN, dict(SCRIPTS, **{"<|fim_middle|>": FILLED}), MARKS))
    read = lambda text: [json.loads(e.split("data: ", 1)[1]) for e in text.split("\n\n") if "data: {" in e]
    # Claude Code: its headers, a stream that ends, and what it counts.
    status, _, text = s.ask("POST", "/v1/messages?beta=true", CLAUDE, {"x-api-key": "any", "anthropic-version": "2023-06-01", "User-Agent": "claude-cli/2.1.0 (external, cli)",
                            "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27"})
    events = read(text)
    kinds = [e["type"] for e in events]
    blocks = [e["content_block"] for e in events if e["type"] == "content_block_start"]
    check(status == 200 and kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"], text)
    check([b["type"] for b in blocks] == ["thinking", "text", "tool_use", "tool_use"] and blocks[2]["name"] == "weather", blocks)
    check(events[0]["message"]["usage"]["input_tokens"] > 0 and events[-2]["delta"]["stop_reason"] == "tool_use", events[0], events[-2])
    check(s.post("/v1/messages/count_tokens?beta=true", {k: CLAUDE[k] for k in ("model", "system", "messages", "tools", "thinking")})[1]["input_tokens"] > 0)
    # Codex: it retries unless the stream ends with response.completed and its usage.
    events = read(s.ask("POST", "/v1/responses", CODEX, {"originator": "codex_cli_rs", "session_id": "0199", "Accept": "text/event-stream", "OpenAI-Beta": "responses=experimental"})[2])
    last = events[-1]
    check(last["type"] == "response.completed" and last["response"]["usage"]["input_tokens"] > 0, last)
    items = [e["item"] for e in events if e["type"] == "response.output_item.done"]
    check([i["type"] for i in items] == ["reasoning", "message", "function_call"] and items[2]["arguments"] == '{"town": "Ghent"}', items)
    back = CODEX["input"] + items + [{"type": "function_call_output", "call_id": items[2]["call_id"], "output": "dry"}]
    events = read(s.ask("POST", "/v1/responses", dict(CODEX, input=back))[2])
    check(events[-1]["type"] == "response.completed" and events[-1]["response"]["output"][0]["content"][0]["text"] == "It is dry in Ghent.", events[-1])
    # Open WebUI: what it looks at, then a conversation by either interface.
    tags = json.loads(s.ask("GET", "/api/tags")[2])["models"]
    check(s.ask("GET", "/api/version")[0] == 200 and tags[0]["model"] == "programs:latest" and tags[0]["details"]["family"], tags)
    webui = {"model": "programs:latest", "messages": [{"role": "user", "content": "Hi", "images": []}], "options": {"temperature": 0, "num_ctx": 4096}, "stream": True}
    lines = [json.loads(line) for line in s.ask("POST", "/api/chat", webui)[2].splitlines()]
    check("".join(e["message"]["content"] for e in lines) == SCRIPTS["<|else|>"] and lines[-1]["done"] and lines[-1]["eval_count"] > 0, lines)
    running = json.loads(s.ask("GET", "/api/ps")[2])["models"]
    check(running[0]["name"] == "programs:latest" and running[0]["expires_at"], running)
    webui = {"stream": True, "model": "programs", "messages": [{"role": "user", "content": "Hi"}], "stream_options": {"include_usage": True}}
    events = s.stream("/v1/chat/completions", webui)
    check("".join(c["delta"].get("content") or "" for e in events for c in e["choices"]) == SCRIPTS["<|else|>"] and events[-1]["usage"]["total_tokens"] > 0, events)
    # llama.vim: the chunks first, then at the cursor.
    extra = [{"text": "one\n", "time": 1, "filename": "a.py"}]
    check(s.post("/infill", dict(WARM, input_extra=extra)) == (200, {}))
    status, got = s.post("/infill", dict(VIM, input_prefix="def f():\n", prompt="  ", input_suffix="\n", input_extra=extra))
    check(status == 200 and got["content"] == FILLED, got)
    # The AI SDK: by both of OpenAI's interfaces.
    sdk = {"model": "gpt-4o", "messages": [{"role": "system", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": "Rain?"}]}], "tools": [SDK_TOOL, SDK_CLOCK],
           "tool_choice": "auto", "stream": True, "stream_options": {"include_usage": True}, "temperature": 0}
    events = s.stream("/v1/chat/completions", sdk)
    check(any(c["delta"].get("tool_calls") for e in events for c in e["choices"]), events)
    sdk = {"model": "gpt-4o", "input": [{"role": "system", "content": "x"}, {"role": "user", "content": [{"type": "input_text", "text": "Rain?"}]}], "store": False,
           "include": ["reasoning.encrypted_content"], "tools": [dict(t["function"], type="function", strict=False) for t in (SDK_TOOL, SDK_CLOCK)], "tool_choice": "auto", "stream": True}
    events = s.stream("/v1/responses", sdk)
    check(events[-1]["type"] == "response.completed" and any(i["type"] == "function_call" for i in events[-1]["response"]["output"]), events[-1])
    s.stop()


def test_slashes_too_many(s):
    # As a base URL that ends with one makes them. Seen to fail with paths taken to the letter.
    for path in ("/v1/chat/completions/", "//v1//chat/completions", "/v1/chat/completions//", "/v1/messages/count_tokens/", "/api/show/", "/tokenize/"):
        body = {"messages": [SAY], "max_tokens": 1, "content": "a"}
        check(s.post(path, body)[0] == 200, path)
    for path in ("/v1/models/", "/v1//models", "/v1/models/stories/", "/health/", "//", "/api/tags/"):
        check(s.ask("GET", path)[0] == 200, path)
    check(json.loads(s.ask("GET", "/version")[2])["version"].count(".") == 2, "vLLM's; seen to fail with 404")
    for path in ("/page/", "/slots/", "/v1/", "/v1/chat/"):
        check(s.ask("POST", path, {})[0] in (404, 405), path)


def main():
    if not serve_test.can_serve():
        print("serve clients: skipped: built without libevent")
        return 0
    stories = Server()
    n = serve_test.run_tests((test_instructions_within_an_anthropic_conversation, test_refusals_are_what_was_said,
                              test_context_of_ollama_goes_round, test_temperatures_below_zero, test_fields_come_back_from_responses,
                              test_prompts_without_an_answer, test_several_prompts_for_llama_server,
                              test_long_conversations_are_cut_if_asked, test_likelihoods_of_prompts, test_the_best_of_several, test_slashes_too_many,
                              test_filling_in_without_the_marks, test_the_document_of_what_is_served, test_the_table_of_fields, test_the_table_of_routes, test_drafts_change_no_answer), stories)
    n += serve_test.run_tests((test_what_programs_send, test_reasoning_comes_back, test_scores_of_pairs, test_filling_in, test_marks_that_the_file_names, test_tools_of_other_types_in_responses, test_custom_tools_in_chats, test_grammars_of_custom_tools, test_items_by_reference, test_allowed_tools,
                               test_tools_of_servers_in_anthropic))
    stories.stop()
    print("serve clients: %d tests, %d checks failed" % (n, serve_test.failures))
    return serve_test.failures != 0


if __name__ == "__main__":
    sys.exit(main())

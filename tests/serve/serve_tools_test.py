#!/usr/bin/env python3
"""Tools and reasoning in tern serve, by all of its interfaces, with models that say what they are told to (parrot.py).

    tests/serve/serve_tools_test.py TERN [NAME]     the tests with NAME in their names
"""
import json
import os
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import parrot
import serve_test
from parrot import LFM, QWEN, SCRIPTS, TURNS
from serve_test import Server, check

TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Looks outside", "parameters": {
    "type": "object", "properties": {"town": {"type": "string"}, "days": {"type": "integer"}}}}},
    {"type": "function", "function": {"name": "clock"}}]
USER = [{"role": "user", "content": "Rain in Ghent?"}]
CHAT = {"messages": USER, "tools": TOOLS, "temperature": 0}
folder = tempfile.TemporaryDirectory()


def model(name, template, scripts, controls=(), **more):
    path = os.path.join(folder.name, name + ".gguf")
    parrot.write(path, template, scripts, controls, **more)
    return path


def calls_of(message):
    return [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message.get("tool_calls", [])]


WANTED = [("weather", {"town": "Ghent"}), ("clock", {})]


def gather(events):
    """What a client of OpenAI makes of a stream."""
    message, calls, finish = {"content": "", "reasoning_content": ""}, {}, None
    for e in events:
        for c in e["choices"]:
            for key in message:
                message[key] += c["delta"].get(key) or ""
            for piece in c["delta"].get("tool_calls", []):
                call = calls.setdefault(piece["index"], {"id": piece.get("id"), "function": {"name": "", "arguments": ""}})
                for key, value in piece["function"].items():
                    call["function"][key] += value
            finish = c["finish_reason"] or finish
    if calls:
        message["tool_calls"] = [calls[i] for i in sorted(calls)]
    return message, finish


def test_openai(s):
    # Seen to fail: with the reasoning left in the text; with "stop" in the place of "tool_calls"; with pieces of calls without
    # their place; with the second call kept where one was asked for.
    whole = s.post("/v1/chat/completions", CHAT)[1]
    choice = whole["choices"][0]
    m = choice["message"]
    check((m["content"], m["reasoning_content"], choice["finish_reason"]) == ("I look.", "Rain?", "tool_calls"), choice)
    check(calls_of(m) == WANTED and len({c["id"] for c in m["tool_calls"]}) == 2, m)
    check(0 < whole["usage"]["completion_tokens_details"]["reasoning_tokens"] < whole["usage"]["completion_tokens"], whole)
    streamed, finish = gather(s.stream("/v1/chat/completions", CHAT))
    check(calls_of(streamed) == WANTED and finish == "tool_calls", streamed)
    check((streamed["content"], streamed["reasoning_content"]) == ("I look.", "Rain?"), streamed)
    # The results go back, and the template sees all of it: arguments as objects, whatever the client made of them.
    talk = USER + [dict(m, role="assistant")] + [
        {"role": "tool", "tool_call_id": m["tool_calls"][0]["id"], "content": "dry"}]
    shown = s.post("/apply-template", {"messages": talk, "tools": TOOLS})[1]["prompt"]
    check(shown == "[weather:town,days][clock:]user=Rain in Ghent?;assistant=I look.~Rain?(weather Ghent)(clock );tool=dry;<|after|>",
          shown)
    after = s.post("/v1/chat/completions", dict(CHAT, messages=talk))[1]["choices"][0]
    check((after["message"]["content"], after["finish_reason"]) == ("It is dry in Ghent.", "stop"), after)
    for more, said in (({"parallel_tool_calls": False}, WANTED[:1]), ({"reasoning_effort": "none"}, WANTED[1:]),
                       ({"chat_template_kwargs": {"enable_thinking": False}}, WANTED[1:]), ({"tool_choice": "none"}, []),
                       ({"tools": []}, []), ({"tool_choice": "auto"}, WANTED)):
        for got in (s.post("/v1/chat/completions", dict(CHAT, **more))[1]["choices"][0]["message"],
                    gather(s.stream("/v1/chat/completions", dict(CHAT, **more)))[0]):
            check(calls_of(got) == said, more, got)
    cut = s.post("/v1/chat/completions", dict(CHAT, max_tokens=30))[1]["choices"][0]
    check(cut["finish_reason"] == "length", cut)
    for n in range(10, 60, 5):  # wherever a call is cut, its arguments are an object: seen to fail with those that had come
        m = s.post("/v1/chat/completions", dict(CHAT, max_tokens=n))[1]["choices"][0]["message"]
        check(all(isinstance(json.loads(c["function"]["arguments"]), dict) for c in m.get("tool_calls") or []), n, m)
    many = s.post("/v1/chat/completions", dict(CHAT, n=3, logprobs=True))[1]["choices"]
    check([calls_of(c["message"]) for c in many] == [WANTED] * 3 and len({c["message"]["tool_calls"][0]["id"] for c in many}) == 3, many)
    for wrong, param in (({"tools": [{"type": "function"}]}, "tools"), ({"tools": [{"type": "web_search"}]}, "tools"),
                         ({"tools": {}}, "tools"), ({"tool_choice": "perhaps"}, "tool_choice"), ({"tool_choice": 1}, "tool_choice"),
                         ({"tool_choice": {"type": "function", "function": {"name": "cloud"}}}, "tool_choice"),
                         ({"tools": [], "tool_choice": "required"}, "tool_choice"),
                         ({"messages": USER + [{"role": "assistant", "tool_calls": [{"id": "1"}]}]}, "messages.tool_calls"),
                         ({"messages": USER + [{"role": "assistant"}]}, "messages.content")):
        status, answer = s.post("/v1/chat/completions", dict(CHAT, **wrong))
        check((status, answer["error"]["param"]) == (400, param), wrong, status, answer)


def test_responses(s):
    # Seen to fail: with the calls' items not ended; with two items in one place.
    flat = [dict(t["function"], type="function") for t in TOOLS]
    ask = {"input": USER[0]["content"], "tools": flat, "temperature": 0}
    answer = s.post("/v1/responses", ask)[1]
    items = answer["output"]
    check([i["type"] for i in items] == ["reasoning", "message", "function_call", "function_call"], items)
    check(items[0]["content"][0]["text"] == "Rain?" and items[1]["content"][0]["text"] == "I look." and answer["status"] == "completed", items)
    check([(i["name"], json.loads(i["arguments"])) for i in items[2:]] == WANTED and answer["tools"] == flat, items)
    events = s.stream("/v1/responses", ask)
    kinds = [e["type"].replace("response.", "") for e in events if not e["type"].endswith("delta")]
    part = ["output_item.added", "content_part.added", "%s.done", "content_part.done", "output_item.done"]
    call = ["output_item.added", "function_call_arguments.done", "output_item.done"]
    check(kinds == ["created", "in_progress"] + [k.replace("%s", "reasoning_text") for k in part] +
          [k.replace("%s", "output_text") for k in part] + call * 2 + ["completed"], kinds)
    strip = lambda items: [{k: v for k, v in i.items() if k not in ("id", "call_id")} for i in items]
    done = [e["item"] for e in events if e["type"].endswith("output_item.done")]
    check(strip(done) == strip(events[-1]["response"]["output"]) == strip(items), done)
    deltas = {}
    for e in events:
        if e["type"].endswith("delta"):
            deltas[e["output_index"]] = deltas.get(e["output_index"], "") + e["delta"]
    check(deltas == {0: "Rain?", 1: "I look.", 2: items[2]["arguments"], 3: "{}"}, deltas)
    again = [{"role": "user", "content": USER[0]["content"]}] + items + [
        {"type": "function_call_output", "call_id": items[2]["call_id"], "output": "dry"}]
    after = s.post("/v1/responses", dict(ask, input=again))[1]
    check(after["output"][-1]["content"][0]["text"] == "It is dry in Ghent.", after)
    status, wrong = s.post("/v1/responses", dict(ask, input=again[:1] + [{"type": "function_call"}]))
    check((status, wrong["error"]["param"]) == (400, "input.name"), wrong)


def test_anthropic(s):
    # Seen to fail: with results of tools in the user's text; with a block that is not stopped; with "end_turn" after calls.
    tools = [{"name": "weather", "description": "Looks outside", "input_schema": TOOLS[0]["function"]["parameters"]},
             {"name": "clock", "input_schema": {"type": "object", "properties": {}}}]
    ask = {"model": "qwen", "max_tokens": 200, "messages": USER, "tools": tools, "temperature": 0}
    answer = s.post("/v1/messages", ask)[1]
    blocks = answer["content"]
    check([b["type"] for b in blocks] == ["thinking", "text", "tool_use", "tool_use"] and answer["stop_reason"] == "tool_use", answer)
    check((blocks[0]["thinking"], blocks[1]["text"]) == ("Rain?", "I look."), blocks)
    check([(b["name"], b["input"]) for b in blocks[2:]] == WANTED, blocks)
    events, told, is_open = s.stream("/v1/messages", ask), [], None
    for e in events:
        if e["type"] == "content_block_start":
            check(is_open is None and e["index"] == len(told), e)
            is_open = e["index"]
            told.append(dict(e["content_block"], said=""))
        elif e["type"] == "content_block_delta":
            check(e["index"] == is_open, e)
            told[-1]["said"] += e["delta"].get("text") or e["delta"].get("thinking") or e["delta"].get("partial_json") or ""
            told[-1]["signature"] = e["delta"].get("signature", "")
        elif e["type"] == "content_block_stop":
            check(e["index"] == is_open, e)
            is_open = None
    check([t["said"] for t in told] == ["Rain?", "I look.", json.dumps({"town": "Ghent"}), "{}"] and is_open is None, told)
    # As the last of its pieces: clients drop thinking that is not signed. Seen to fail with none.
    check(told[0]["signature"] == blocks[0]["signature"] != "", told, blocks)
    check([t["type"] for t in told] == [b["type"] for b in blocks] and events[-2]["delta"]["stop_reason"] == "tool_use", events[-2])
    talk = USER + [{"role": "assistant", "content": blocks}, {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": blocks[2]["id"], "content": [{"type": "text", "text": "dry"}]}]}]
    after = s.post("/v1/messages", dict(ask, messages=talk))[1]
    check(after["content"] == [{"type": "text", "text": "It is dry in Ghent."}] and after["stop_reason"] == "end_turn", after)
    check(s.post("/v1/messages/count_tokens", dict(ask, messages=talk))[1]["input_tokens"] ==
          after["usage"]["input_tokens"] + after["usage"]["cache_read_input_tokens"], after)
    once = s.post("/v1/messages", dict(ask, tool_choice={"type": "auto", "disable_parallel_tool_use": True}))[1]
    check(len(once["content"]) == 3, once)
    off = s.post("/v1/messages", dict(ask, thinking={"type": "disabled"}))[1]
    check([b["type"] for b in off["content"]] == ["tool_use"], off)
    for wrong in ({"tool_choice": {"type": "tool", "name": "cloud"}}, {"tools": [{}]},
                  {"tools": [{"type": "web_search_20250305", "name": "w"}], "tool_choice": {"type": "tool", "name": "w"}}):
        status, answer = s.post("/v1/messages", dict(ask, **wrong))
        check(status == 400 and answer["error"]["type"] == "invalid_request_error", wrong, answer)


def test_ollama(s):
    # Seen to fail: with arguments as texts; with thinking told twice.
    ask = {"model": "qwen", "messages": USER, "tools": TOOLS, "options": {"temperature": 0}}
    m = s.post("/api/chat", dict(ask, stream=False))[1]["message"]
    check((m["content"], m["thinking"]) == ("I look.", "Rain?"), m)
    check([(c["function"]["name"], c["function"]["arguments"]) for c in m["tool_calls"]] == WANTED, m)
    lines = s.stream("/api/chat", ask)
    check("".join(x["message"]["content"] for x in lines) == "I look." and lines[-1]["done_reason"] == "stop", lines)
    check("".join(x["message"].get("thinking", "") for x in lines) == "Rain?", lines)
    calls = [c for x in lines for c in x["message"].get("tool_calls", [])]
    check([(c["function"]["name"], c["function"]["arguments"]) for c in calls] == WANTED, calls)
    talk = USER + [dict(m, role="assistant"), {"role": "tool", "tool_name": "weather", "content": "dry"}]
    after = s.post("/api/chat", dict(ask, messages=talk, stream=False))[1]["message"]
    check(after == {"role": "assistant", "content": "It is dry in Ghent."}, after)
    off = s.post("/api/chat", dict(ask, think=False, stream=False))[1]["message"]
    check("thinking" not in off and len(off["tool_calls"]) == 1, off)
    check(s.post("/api/chat", dict(ask, think=[1]))[0] == 400, "think")


def test_marks_that_do_not_show():
    # Seen to fail: with with_special left out.
    path = model("lfm", LFM, {"<|call|>": "<|tool_call_start|>[weather(town=\"Ghent\")]<|tool_call_end|>Wait.", "<|after|>": "Dry.",
                              "<|else|>": "Hi.", "<|once|>": "."}, ["<|tool_call_start|>", "<|tool_call_end|>"])
    s = Server(model=path)
    m = s.post("/v1/chat/completions", CHAT)[1]["choices"][0]["message"]
    check(calls_of(m) == WANTED[:1] and m["content"] == "Wait.", m)
    streamed, finish = gather(s.stream("/v1/chat/completions", CHAT))
    check(calls_of(streamed) == WANTED[:1] and streamed["content"] == "Wait." and finish == "tool_calls", streamed)
    s.stop()


# Each family's sign in its template, and the marks of it that are tokens which do not show.
FAMILIES = (("<tool_call>", ["<tool_call>", "</tool_call>"]), ("<tool_call> <function=", []), ("\"parameters\": ", []),
            ("<|tool_call_start|>", ["<|tool_call_start|>", "<|tool_call_end|>"]), ("<|tool_call|>", ["<|tool_call|>"]),
            ("<|tool_call>call:", ["<|tool_call>", "<tool_call|>", '<|"|>']), ("[TOOL_CALLS] [ARGS]", ["[TOOL_CALLS]", "[ARGS]"]),
            ("[TOOL_CALLS]", ["[TOOL_CALLS]"]), ("<|tool_call|> <|/tool_call|>", ["<|tool_call|>", "<|/tool_call|>"]))
TIGHT = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "additionalProperties": False,
          "properties": {"town": {"type": "string", "enum": ["Ghent", "Lier"]}, "days": {"type": "integer", "minimum": 1, "maximum": 3},
                         "dry": {"type": "boolean"}}, "required": ["town", "days"]}}}, {"type": "function", "function": {"name": "clock"}}]


def is_right(call):
    name, a = call
    more = set(a) - {"town", "days"}
    return (name, a) == ("clock", {}) or (name == "weather" and a["town"] in ("Ghent", "Lier") and a["days"] in (1, 2, 3) and
                                          (not more or more == {"dry"} and isinstance(a["dry"], bool)))


def test_calls_that_must_come():
    # Of a model that would rather say good day. Seen to fail: with the grammar left out; with calls that are forced taken for
    # text; with parallel calls where one was asked for; with marks that do not show not known to the grammar.
    talk = TURNS.replace("<|after|>", "<|else|>").replace("<|once|>", "<|else|>").replace("<|call|>", "<|else|>").replace("<|think|>", "<|else|>")
    for i, (sign, marks) in enumerate(FAMILIES):
        s = Server(model=model("must%d" % i, "{# %s #}" % sign + talk, {"<|else|>": "Good day."}, marks))
        ask = dict(CHAT, tools=TIGHT, temperature=1, max_tokens=900, tool_choice="required")
        check(s.post("/v1/chat/completions", dict(ask, tool_choice="auto", temperature=0))[1]["choices"][0]["message"]["content"] == "Good day.", sign)
        for seed in range(3):
            for more in ({}, {"parallel_tool_calls": False}, {"tool_choice": {"type": "function", "function": {"name": "clock"}}}):
                status, got = s.post("/v1/chat/completions", dict(ask, seed=seed, **more))
                choice = got["choices"][0] if status == 200 else {"message": {}, "finish_reason": got}
                if not more and choice["finish_reason"] == "length":
                    continue
                # One that had to be called by its name is no reason, as OpenAI has it: seen to fail with the other one.
                reason = "stop" if "tool_choice" in more else "tool_calls"
                calls = calls_of(choice["message"]) if choice["finish_reason"] == reason else []
                check(calls and all(map(is_right, calls)) and not choice["message"]["content"], sign, more, choice)
                check(not more or len(calls) == 1, sign, more, choice)
                check("tool_choice" not in more or calls[0][0] == "clock", sign, choice)
        streamed, finish = gather(s.stream("/v1/chat/completions", dict(ask, seed=1)))
        check(finish == "length" or finish == "tool_calls" and all(map(is_right, calls_of(streamed))), sign, streamed)
        flat = [dict(t["function"], type="function") for t in TIGHT]
        for wish in ("required", {"type": "function", "name": "clock"}):
            got = s.post("/v1/responses", {"input": "Rain?", "tools": flat, "tool_choice": wish, "max_output_tokens": 900})[1]
            check(got["tool_choice"] == wish, sign, got)
            check(got["status"] == "incomplete" or all(
                o["type"] == "function_call" and is_right((o["name"], json.loads(o["arguments"]))) for o in got["output"]), sign, got)
        tools = [{"name": t["function"]["name"], "input_schema": t["function"].get("parameters", {"type": "object"})} for t in TIGHT]
        for wish in ({"type": "any"}, {"type": "tool", "name": "clock"}):
            got = s.post("/v1/messages", {"messages": USER, "tools": tools, "tool_choice": wish, "max_tokens": 900})[1]
            check(got["stop_reason"] == "max_tokens" or got["stop_reason"] == "tool_use" and all(is_right((b["name"], b["input"])) for b in got["content"]), sign, got)
        odd = [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"uniqueItems": True, "minItems": 2}}}}}]
        for more, wanted in (({}, 400), ({"tool_choice": "auto"}, 200)):  # calls that may come go without what is not known
            check(s.post("/v1/chat/completions", dict(ask, tools=odd, **more))[0] == wanted, sign, more)
        odd[0]["function"]["strict"] = True
        status, got = s.post("/v1/chat/completions", dict(ask, tools=odd, tool_choice="auto"))
        check(status == 400 and got["error"]["param"] == "tools" and "#/properties/a" in got["error"]["message"], sign, got)
        s.stop()


def test_calls_that_are_begun():
    # What stands in the marks of a call is bound by the tool's schema: the model would write a town that there is not. Seen to
    # fail: with the grammar's binding left out after the mark.
    said = "Hm. <tool_call>\n{\"name\": \"weather\", \"arguments\": {\"town\": \"Paris\", \"days\": 77}}\n</tool_call>"
    s = Server(model=model("begun", QWEN, {"<|call|>": said, "<|else|>": "No."}, ["<tool_call>", "</tool_call>"]))
    for seed in range(8):
        m = s.post("/v1/chat/completions", dict(CHAT, tools=TIGHT, temperature=0, seed=seed))[1]["choices"][0]["message"]
        check(m["content"] == "Hm." and calls_of(m) and all(map(is_right, calls_of(m))), m)
    free = [dict(t, function=dict(t["function"], parameters={"type": "object", "additionalProperties": True})) for t in TIGHT]
    m = s.post("/v1/chat/completions", dict(CHAT, tools=free))[1]["choices"][0]["message"]
    check(calls_of(m) == [("weather", {"town": "Paris", "days": 77})], m)
    s.stop()


def test_models_without_tools():
    s = Server(model=model("plain", "{% for m in messages %}{{ m.content }}{% endfor %}<|else|>", {"<|else|>": "Good <think> day."}))
    status, answer = s.post("/v1/chat/completions", CHAT)
    check(status == 400 and "takes no tools" in answer["error"]["message"] and answer["error"]["param"] == "tools", answer)
    m = s.post("/v1/chat/completions", {"messages": USER, "temperature": 0})[1]["choices"][0]["message"]
    check(m["content"] == "Good <think> day." and "reasoning_content" not in m, m)
    s.stop()


def main():
    if not serve_test.can_serve():
        print("serve tools: skipped: built without libevent")
        return 0
    shared = Server(model=model("qwen", QWEN, SCRIPTS))
    n = serve_test.run_tests((test_openai, test_responses, test_anthropic, test_ollama), shared)
    n += serve_test.run_tests((test_marks_that_do_not_show, test_calls_that_must_come, test_calls_that_are_begun,
                               test_models_without_tools))
    shared.stop()
    print("serve tools: %d tests, %d checks failed" % (n, serve_test.failures))
    return serve_test.failures != 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""What tern serve tells of tokens, and the fields that choose among them, in all interfaces.

    tests/serve/serve_tokens_test.py TERN [NAME]     the tests with NAME in their names
"""
import json
import sys

import serve_test
from serve_test import Server, check
from serve_tools_test import model

TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}<|go|>"
TEXT = "a\u00e9b\u2014c\U0001f601d"  # characters of one to four bytes, a token for each byte
CHAT = [{"role": "user", "content": "u"}]
BYTES = [bytes([b]) for b in TEXT.encode()]


def named(piece):
    """As /v1/completions has tokens, whose names must differ."""
    return piece.decode() if piece[0] < 128 else "bytes:" + "".join("\\x%02x" % b for b in piece)


def bytes_of(entries):
    return [bytes(t["bytes"]) for t in entries]


def streamed(s, path, body):
    """The entries of a stream, whichever chunk they come with."""
    out = []
    for e in s.stream(path, body):
        if not isinstance(e, dict):
            continue
        if path == "/v1/responses":
            out += e["logprobs"] if e["type"] == "response.output_text.delta" else []
        elif path == "/completion":
            out += e.get("completion_probabilities", [])
        elif path == "/api/chat":
            out += e.get("logprobs", [])
        elif e["choices"] and e["choices"][0]["logprobs"]:
            out += e["choices"][0]["logprobs"]["content"]
    return out


def test_bytes_of_tokens():
    # Seen to fail: with pieces decoded as text each, in which bytes after the first one of a character are U+FFFD; with
    # tokens of which no text shows yet left out of streams.
    s = Server(model=model("bytes", TEMPLATE, {"<|go|>": TEXT.encode()}))
    asks = {
        "/v1/chat/completions": {"messages": CHAT, "logprobs": True, "temperature": 0},
        "/v1/responses": {"input": "u", "include": ["message.output_text.logprobs"], "temperature": 0},
        "/api/chat": {"messages": CHAT, "logprobs": True, "stream": False, "options": {"temperature": 0}},
        "/completion": {"prompt": "<|go|>", "n_probs": 1, "temperature": 0},
    }
    for path, body in asks.items():
        r = s.post(path, body)[1]
        entries = (r["choices"][0]["logprobs"]["content"] if "choices" in r else r["output"][-1]["content"][0]["logprobs"]
                   if "output" in r else r.get("logprobs") or r["completion_probabilities"])
        check(bytes_of(entries) == BYTES, path, entries)
        check(entries[0]["token"] == "a" and entries[1]["token"] == "\ufffd", path, entries)
        check(bytes_of(streamed(s, path, dict(body, stream=True))) == BYTES, path)
    ask = {"prompt": "<|go|>", "logprobs": 2, "temperature": 0}
    whole = s.post("/v1/completions", ask)[1]["choices"][0]
    told = whole["logprobs"]
    check(whole["text"] == TEXT and told["tokens"] == [named(b) for b in BYTES], whole)
    # A byte within a character is at its character's place.
    check(told["text_offset"] == [0, 1, 1, 2, 3, 3, 3, 4, 5, 5, 5, 5, 6], told["text_offset"])
    check(all(len(top) == 2 for top in told["top_logprobs"]), told["top_logprobs"])
    pieces = [c["choices"][0]["logprobs"] for c in s.stream("/v1/completions", ask) if isinstance(c, dict)]
    for name in told:
        check([v for p in pieces if p for v in p[name]] == told[name], name, pieces)
    # A stop string that ends in the middle of a token's text; one that is never completed.
    for stop, n in ((["b\u2014"], 3), (["c\U0001f601x"], len(BYTES))):
        body = dict(asks["/v1/chat/completions"], stop=stop)
        for entries in (s.post("/v1/chat/completions", body)[1]["choices"][0]["logprobs"]["content"],
                        streamed(s, "/v1/chat/completions", dict(body, stream=True))):
            check(bytes_of(entries) == BYTES[:n], stop, entries)
    said = s.post("/tokenize", {"content": "a\u00e9", "with_pieces": True})[1]["tokens"]
    check([t["piece"] for t in said] == ["a", [0xC3], [0xA9]], said)
    check(s.post("/detokenize", {"tokens": [t["id"] for t in said]})[1]["content"] == "a\u00e9", said)
    s.stop()


def test_bytes_of_reasoning():
    # What is told begins with the answer's text: the tokens of the reasoning before it are not among it. Seen to fail with
    # as many told as the text has bytes, the reasoning's first.
    script = {"<|go|>": "<think>\nRain?\n</think>\n\nI look."}
    s = Server(model=model("thinks", "{# </think> #}" + TEMPLATE, script, ["<think>", "</think>"]))
    ask = {"messages": CHAT, "logprobs": True, "temperature": 0}
    m = s.post("/v1/chat/completions", ask)[1]["choices"][0]
    check(m["message"] == {"role": "assistant", "content": "I look.", "reasoning_content": "Rain?", "refusal": None}, m)
    told = b"".join(bytes_of(m["logprobs"]["content"]))
    check(told.strip() == b"I look.", told)
    check(b"".join(bytes_of(streamed(s, "/v1/chat/completions", dict(ask, stream=True)))) == told, told)
    s.stop()


STORY = {"prompt": "Once upon a time, there was a little girl. Once upon a time, there was a little", "max_tokens": 12}


def test_top_p_zero_is_the_likeliest_token(s):
    # Seen to fail with 0 as "all".
    hot = {"temperature": 1.0, "top_p": 0, "min_p": 0, "top_k": 0}
    ways = {
        "/v1/completions": (dict(hot, prompt="Once", max_tokens=12), lambda r: r["choices"][0]["text"]),
        "/completion": (dict(hot, prompt="Once", n_predict=12), lambda r: r["content"]),
        "/v1/messages": ({"messages": CHAT, "max_tokens": 10, "temperature": 1, "top_p": 0, "top_k": 0}, lambda r: r["content"][0]["text"]),
        "/api/generate": ({"prompt": "Once", "raw": True, "stream": False, "options": dict(hot, num_predict=12)}, lambda r: r["response"]),
    }
    for path, (body, text_of) in ways.items():
        said = set()
        for seed in range(1, 5):
            asked = dict(body, options=dict(body["options"], seed=seed)) if "options" in body else dict(body, seed=seed)
            said.add(text_of(s.post(path, asked)[1]))
        check(len(said) == 1, path, said)


def test_samplers_have_effects(s):
    # Each where it must change the answer, by its names. Seen to fail with the names left out.
    def say(**more):
        status, r = s.post("/v1/completions", dict(STORY, **{"temperature": 0, **more}))
        check(status == 200, more, r)
        return r["choices"][0]["text"]
    plain = say()
    ids = [t["id"] for t in s.post("/tokenize", {"content": plain, "with_pieces": True})[1]["tokens"]]
    for more in ({"repetition_penalty": 3.0}, {"repeat_penalty": 3.0}, {"dry_multiplier": 5.0}, {"xtc_probability": 1.0, "xtc_threshold": 0.0001},
                 {"typical_p": 0.01, "temperature": 1, "seed": 1}, {"allowed_token_ids": ids[:1]}, {"stop_token_ids": ids[2:3]},
                 {"mirostat": 2, "temperature": 1, "mirostat_tau": 9, "seed": 1}, {"samplers": [], "temperature": 0, "seed": 3, "max_tokens": 40},
                 {"truncate_prompt_tokens": 2}, {"dynatemp_range": 1.5, "temperature": 1.5, "seed": 1, "top_k": 0, "min_p": 0}):
        check(say(**more) != (plain if "max_tokens" not in more else say(max_tokens=40)), more)
    check(say(dry_multiplier=5.0, dry_sequence_breakers=[" "]) == plain, "every token of a word is a breaker")
    check(say(samplers=["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"], temperature=1, seed=4)
          == say(samplers="edskypmxt", temperature=1, seed=4) == say(temperature=1, seed=4), "the usual order")
    check(say(top_n_sigma=0.0001, temperature=2, seed=5, top_k=0) == plain and say(top_k=1, temperature=2, seed=6) == plain, "one is left")
    check(say(repeat_last_n=0, repeat_penalty=3.0) == plain, "a window of no tokens")
    whole = s.post("/v1/completions", dict(STORY, temperature=0, max_tokens=60))[1]
    long = s.post("/v1/completions", dict(STORY, temperature=0, max_tokens=60, min_tokens=60))[1]
    check(long["usage"]["completion_tokens"] == 60, whole, long)
    stopped = s.post("/v1/completions", dict(STORY, temperature=0, stop_token_ids=ids[2:3]))[1]["choices"][0]
    check(plain.startswith(stopped["text"]) and stopped["finish_reason"] == "stop", stopped)
    for bias in ([[ids[0], -100.0]], [[ids[0], False]]):
        check(not say(logit_bias=bias).startswith(plain[:4]) or say(logit_bias=bias) != plain, bias)
    for bias in ([[" upon", False]], [[" upon", -100]], [[609, -100.0], [" upon", False]]):  # texts: each of their tokens
        got = s.post("/completion", {"prompt": "Once", "n_predict": 4, "temperature": 0, "logit_bias": bias})
        check(got[0] == 200 and not got[1]["content"].startswith(" upon"), bias, got)
    # false in an object: seen to fail with 400; texts as its keys are llama-server's alone.
    ask = {"prompt": "Once", "max_tokens": 4, "temperature": 0}
    for path in ("/completion", "/v1/completions"):
        got = s.post(path, dict(ask, logit_bias={"609": False}))
        check(got[0] == 200 and got[1] != s.post(path, ask)[1] and " upon" not in json.dumps(got[1])[:400], path, got)
    got = s.post("/completion", dict(ask, logit_bias={" upon": False, "5": 1}))
    check(got[0] == 200 and not got[1]["content"].startswith(" upon"), got)
    check(s.post("/v1/completions", dict(ask, logit_bias={" upon": False}))[0] == s.post("/completion", dict(ask, logit_bias={"5": True}))[0] == 400)
    check(s.post("/completion", dict(ask, logit_bias={"a" * 9000: 1}))[0] == 400)
    many = s.post("/completion", {"prompt": "Once", "n_predict": 3, "n_cmpl": 2, "seed": 1})[1]
    check(len(many) == 2, many)


def test_conversations_end_as_asked(s):
    told = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Once upon"}]
    ask = lambda messages, **more: s.post("/v1/chat/completions", dict({"messages": messages, "max_tokens": 4, "temperature": 0}, **more))
    goes_on = ask(told)[1]
    check(ask(told, continue_final_message=True)[1]["choices"][0]["message"] == goes_on["choices"][0]["message"], goes_on)
    turn = ask(told, continue_final_message=False)[1]["usage"]["prompt_tokens"]
    closed = ask(told, add_generation_prompt=False)[1]["usage"]["prompt_tokens"]
    check(len({goes_on["usage"]["prompt_tokens"], turn, closed}) == 3, goes_on, turn, closed)
    for messages, more in ((told[:1], {"continue_final_message": True}), (told, {"continue_final_message": True, "add_generation_prompt": True})):
        status, r = ask(messages, **more)
        check(status == 400 and r["error"]["param"] == "continue_final_message", r)


def test_fields_are_refused_by_name(s):
    # What changes an answer and is not there; values that change nothing are taken. Seen to fail with the list left out.
    bad = {"lora": [{"id": 0, "scale": 0.5}], "chat_template": "{{ 'x' }}", "use_beam_search": True, "tfs_z": 0.5, "min_keep": 2,
           "no_repeat_ngram_size": 2, "prompt_logprobs": 1, "detokenize": False, "include_stop_str_in_output": True,
           "mirostat": 3, "top_p": 1.5, "samplers": ["outfill"], "stop_token_ids": [-1], "allowed_token_ids": [1 << 30], "bad_words": [""],
           "min_tokens": 500, "truncate_prompt_tokens": 0, "typical_p": -1, "xtc_threshold": 2, "logit_bias": [[5]]}
    neutral = {"lora": [], "tfs_z": 1.0, "min_keep": 0, "detokenize": True, "no_repeat_ngram_size": 0, "chat_template": None, "top_a": 0,
               "typical_p": 1.0, "mirostat": 0, "dry_multiplier": 0, "xtc_probability": 0, "adaptive_target": -1.0, "use_beam_search": False,
               "dynatemp_range": 0, "top_n_sigma": -1, "bad_words": [], "stop_token_ids": [], "min_tokens": 0, "num_beams": 1}
    for path, body in (("/v1/chat/completions", {"messages": CHAT}), ("/v1/completions", {"prompt": "a"}), ("/completion", {"prompt": "a"}),
                       ("/v1/responses", {"input": "a", "max_output_tokens": 4}), ("/v1/messages", {"messages": CHAT})):
        body = dict(body, **({} if "input" in body else {"max_tokens": 4}))
        for name, value in bad.items():
            status, r = s.post(path, dict(body, **{name: value}))
            check(status == 400 and name in str(r), path, name, status, r)
        status, r = s.post(path, dict(body, temperature=0, **neutral))
        check(status == 200, path, r)
    for name, value in {"tfs_z": 0.5, "mirostat": 7, "penalize_newline": False}.items():
        status, r = s.post("/api/generate", {"prompt": "a", "stream": False, "options": {name: value, "num_predict": 1}})
        check(status == 400 and "options." + name in r["error"], r)


def main():
    if not serve_test.can_serve():
        print("serve tokens: skipped: built without libevent")
        return 0
    stories = Server()
    n = serve_test.run_tests((test_bytes_of_tokens, test_bytes_of_reasoning))
    n += serve_test.run_tests((test_top_p_zero_is_the_likeliest_token, test_samplers_have_effects, test_conversations_end_as_asked,
                               test_fields_are_refused_by_name), stories)
    stories.stop()
    print("serve tokens: %d tests, %d checks failed" % (n, serve_test.failures))
    return serve_test.failures != 0


if __name__ == "__main__":
    sys.exit(main())

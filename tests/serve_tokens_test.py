#!/usr/bin/env python3
"""What tern serve tells of tokens, and the fields that choose among them, in all interfaces.

    tests/serve_tokens_test.py TERN [NAME]     the tests with NAME in their names
"""
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


def main():
    if not serve_test.can_serve():
        print("serve tokens: skipped: built without libevent")
        return 0
    n = serve_test.run_tests((test_bytes_of_tokens, test_bytes_of_reasoning))
    print("serve tokens: %d tests, %d checks failed" % (n, serve_test.failures))
    return serve_test.failures != 0


if __name__ == "__main__":
    sys.exit(main())

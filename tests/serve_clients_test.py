#!/usr/bin/env python3
"""What clients send beside the plain fields, in the interfaces that tern serve speaks.

    tests/serve_clients_test.py TERN [NAME]     the tests with NAME in their names
"""
import json
import sys

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


def test_slashes_too_many(s):
    # As a base URL that ends with one makes them. Seen to fail with paths taken to the letter.
    for path in ("/v1/chat/completions/", "//v1//chat/completions", "/v1/chat/completions//", "/v1/messages/count_tokens/", "/api/show/", "/tokenize/"):
        body = {"messages": [SAY], "max_tokens": 1, "content": "a"}
        check(s.post(path, body)[0] == 200, path)
    for path in ("/v1/models/", "/v1//models", "/v1/models/stories/", "/health/", "//", "/api/tags/"):
        check(s.ask("GET", path)[0] == 200, path)
    for path in ("/page/", "/slots/", "/v1/", "/v1/chat/"):
        check(s.ask("POST", path, {})[0] in (404, 405), path)


def main():
    if not serve_test.can_serve():
        print("serve clients: skipped: built without libevent")
        return 0
    stories = Server()
    n = serve_test.run_tests((test_instructions_within_an_anthropic_conversation, test_refusals_are_what_was_said,
                              test_slashes_too_many), stories)
    stories.stop()
    print("serve clients: %d tests, %d checks failed" % (n, serve_test.failures))
    return serve_test.failures != 0


if __name__ == "__main__":
    sys.exit(main())

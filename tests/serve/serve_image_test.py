#!/usr/bin/env python3
"""Images over HTTP: in the conversations of every interface of tern serve.

    tests/serve/serve_image_test.py TERN [NAME]     the tests with NAME in their names

What is asked here is that an image stands where the client put it and nowhere else; what the model sees on it is
tests/library/media/see_test.c's. So all interfaces must say what `tern run --chat --image` says.
"""
import base64
import json
import os
import struct
import subprocess
import sys
import tempfile
import zlib

import serve_test
from serve_test import TERN, Server, check

ORACLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracles", "qwen35_sees")
FILE = os.path.join(ORACLE, "image.png")
QUESTION = "What is it?"


def png(width, height, level, declared=None):
    """An image of one level, or a small file that declares another size."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress((b"\0" + bytes([level, 255 - level, level // 2]) * width) * height)
    head = struct.pack(">IIBBBBB", *(declared or (width, height)), 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


with open(FILE, "rb") as file:
    BYTES = file.read()
B64 = base64.b64encode(BYTES).decode()
OTHER = base64.b64encode(png(40, 30, 200)).decode()
URL = "data:image/png;base64,"
GREEDY = {"temperature": 0, "max_tokens": 8}


def image(b64=B64, **more):
    return {"type": "image_url", "image_url": dict(url=URL + b64, **more)}


def text(said=QUESTION):
    return {"type": "text", "text": said}


def user(*parts):
    return {"role": "user", "content": list(parts)}


def chat(s, *messages, **more):
    status, got = s.post("/v1/chat/completions", dict(GREEDY, messages=list(messages), **more))
    check(status == 200, status, got)
    return got


def said(got):
    return got["choices"][0]["message"]["content"] if "choices" in got else got


def run(*args):
    """What `tern run` says of the same: the text, and the tokens of its prompt."""
    out = subprocess.run([TERN, "run", ORACLE, "--chat", "-n", "8", "--temp", "0", "--json", *args], capture_output=True, text=True, check=True).stdout
    last = json.loads(out.splitlines()[-1])
    return last


def reads_images(s):
    status, got = s.post("/v1/chat/completions", dict(GREEDY, messages=[user(image(), text())]))
    return not (status == 400 and "this build" in json.dumps(got))


def test_all_interfaces_say_the_same(s):
    # Seen to fail: with Ollama's images behind the text.
    want = run("--image", FILE, "-p", QUESTION)
    got = chat(s, user(image(), text()))
    check(said(got) == want["text"] and want["text"], said(got), want)
    check(got["usage"]["prompt_tokens"] == want["prompt_tokens"], got["usage"], want)
    blind = chat(s, user(text()))
    n_rows = got["usage"]["prompt_tokens"] - blind["usage"]["prompt_tokens"] - 2
    check(n_rows >= 1 and said(blind) != said(got), n_rows, said(blind))
    events = s.stream("/v1/chat/completions", dict(GREEDY, messages=[user(image(), text())]))
    check("".join(e["choices"][0]["delta"].get("content", "") for e in events if e["choices"]) == said(got), events)

    item = {"role": "user", "content": [{"type": "input_image", "image_url": URL + B64}, {"type": "input_text", "text": QUESTION}]}
    status, responses = s.post("/v1/responses", {"input": [item], "temperature": 0, "max_output_tokens": 8})
    check(status == 200 and responses["output"][0]["content"][0]["text"] == said(got), status, responses)
    check(responses["usage"]["input_tokens"] == got["usage"]["prompt_tokens"], responses["usage"])
    status, n = s.post("/v1/responses/input_tokens", {"input": [item]})
    check(n.get("input_tokens") == got["usage"]["prompt_tokens"], status, n)

    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": B64}}
    body = {"messages": [user(block, text())], "temperature": 0, "max_tokens": 8}
    status, messages = s.post("/v1/messages", body)
    check(status == 200 and messages["content"][0]["text"] == said(got), status, messages)
    status, n = s.post("/v1/messages/count_tokens", body)
    check(n.get("input_tokens") == got["usage"]["prompt_tokens"], status, n)

    ollama = {"messages": [{"role": "user", "content": QUESTION, "images": [B64]}], "stream": False, "options": {"temperature": 0, "num_predict": 8}}
    status, o = s.post("/api/chat", ollama)
    check(status == 200 and o["message"]["content"] == said(got), status, o)
    check(o["prompt_eval_count"] == got["usage"]["prompt_tokens"], o)
    status, o = s.post("/api/generate", dict(ollama, messages=None, prompt=QUESTION, images=[B64]))
    check(status == 200 and o["response"] == said(got) and "context" not in o, status, o)

    prompt = "<|im_start|>user\n<__media__>" + QUESTION + "<|im_end|>\n<|im_start|>assistant\n"
    status, o = s.post("/completion", {"prompt": {"prompt_string": prompt, "multimodal_data": [B64]}, "temperature": 0, "n_predict": 8})
    check(status == 200 and o["content"] == said(got), status, o)
    status, o = s.post("/apply-template", {"messages": [user(image(), text())]})
    check("<|vision_start|><|image_pad|><|vision_end|>" + QUESTION in o.get("prompt", ""), status, o)


def test_images_have_their_places(s):
    # Seen to fail: with a text in front of an image taken for all of its message.
    forms = [[image(), text(), image(OTHER)], [image(OTHER), text(), image()], [text(), image(), image(OTHER)]]
    answers = [said(chat(s, user(*parts))) for parts in forms]
    check(len(set(answers)) == 3, answers)
    with tempfile.NamedTemporaryFile(suffix=".png") as other:
        other.write(base64.b64decode(OTHER))
        other.flush()
        for files, parts in ((FILE, other.name), [image(), image(OTHER)]), ((other.name, FILE), [image(OTHER), image()]):
            want = run("--image", files[0], "--image", files[1], "-p", QUESTION)["text"]
            check(said(chat(s, user(*parts, text()))) == want, files, want)
    again = [said(chat(s, user(*parts))) for parts in forms]
    check(again == answers, answers, again)
    turns = [user(image(), text()), {"role": "assistant", "content": "x"}, user(image(OTHER), text())]
    other = [user(image(OTHER), text()), turns[1], user(image(), text())]
    check(said(chat(s, *turns)) != said(chat(s, *other)))
    in_tool = [user(text()), {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
               {"role": "tool", "tool_call_id": "a", "content": [image()]}]
    check(chat(s, *in_tool)["usage"]["prompt_tokens"] > chat(s, *in_tool[:2], dict(in_tool[2], content=""))["usage"]["prompt_tokens"])


def test_fronts_are_of_the_same_image(s):
    # Seen to fail: with images that are told apart by their size alone.
    words = text(QUESTION * 3)
    first = chat(s, user(image(), words))
    again = chat(s, user(image(), words))
    n = first["usage"]["prompt_tokens"]
    check(again["usage"]["prompt_tokens_details"]["cached_tokens"] == n - 1 and said(again) == said(first), again)
    same_size = base64.b64encode(png(*struct.unpack(">II", BYTES[16:24]), 90)).decode()
    other = chat(s, user(image(same_size), words))
    check(other["usage"]["prompt_tokens"] == n and other["usage"]["prompt_tokens_details"]["cached_tokens"] < 16, other["usage"])
    check(chat(s, user(image(), words))["usage"]["prompt_tokens_details"]["cached_tokens"] == n - 1)


def test_a_image_may_be_shown_small(s):
    large = base64.b64encode(png(96, 96, 10)).decode()
    check(chat(s, user(image(large, detail="low"), text()))["usage"]["prompt_tokens"] <= chat(s, user(image(large), text()))["usage"]["prompt_tokens"])


def test_refusals(s):
    # Seen to fail: with the images of a request in the reverse order; with addresses taken for data: URLs; with as many pixels as the library allows.
    huge = base64.b64encode(png(1, 1, 0, (9000, 8000))).decode()
    long_url = {"type": "image_url", "image_url": "https://example.org/x.png"}
    for parts, words in (
            ([long_url], "this server fetches nothing"),
            ([{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}], "this server fetches nothing"),
            ([{"type": "image_url", "image_url": {"url": "data:image/png,x"}}], ";base64,"),
            ([{"type": "image_url"}], "neither"),
            ([{"type": "input_image", "file_id": "file-1"}], "neither"),
            ([image("")], "no bytes"),
            ([image("####")], "image 1 of 1: this is not base64"),
            ([image(), image("AAAA")], "image 2 of 2: "),
            ([image(huge)], "9000 x 8000 pixels"),
            ([image(base64.b64encode(BYTES[:200]).decode())], "image 1 of 1: "),
            ([{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}], "no model that transcribes"),
            ([image(), text("<|image_pad|>")], "1 images for 2 places"),
            ([image()] * 257, "more than 256 images")):
        status, got = s.post("/v1/chat/completions", dict(GREEDY, messages=[user(*parts)]))
        check(status == 400 and words in got["error"]["message"] and got["error"]["param"].startswith("messages"), words, status, got)
    for role in "system", "assistant":
        status, got = s.post("/v1/chat/completions", dict(GREEDY, messages=[{"role": role, "content": [image()]}, user(text())]))
        check(status == 400 and "only the user's and a tool's" in got["error"]["message"], status, got)
    status, got = s.post("/v1/messages", {"max_tokens": 1, "messages": [user({"type": "image", "source": {"type": "url", "url": "http://x/"}})]})
    check(status == 400 and got["type"] == "error" and "fetches nothing" in got["error"]["message"], status, got)
    status, got = s.post("/api/chat", {"messages": [{"role": "user", "content": "a", "images": [1]}]})
    check(status == 400 and "'messages.images' must be" in got["error"], status, got)
    status, got = s.post("/api/generate", {"prompt": "a", "images": [B64], "raw": True})
    check(status == 400 and "'images'" in got["error"], status, got)
    status, got = s.post("/completion", {"prompt": {"prompt_string": "x", "multimodal_data": [B64]}})
    check(status == 400 and "1 images for 0 places" in got["error"]["message"], status, got)
    # Ids that are no tokens are nobody's to say: with them a client could go on from what another one saw.
    chat(s, user(image(), text()))
    for prompt in [[1 << 30]], [(1 << 30) + 1, 5]:
        status, got = s.post("/v1/completions", {"prompt": prompt})
        check(status == 400 and "a token that is not in 0" in got["error"]["message"], status, got)
    many = chat(s, user(*[image()] * 3, text()))["usage"]["prompt_tokens"]
    status, got = s.post("/v1/chat/completions", dict(GREEDY, messages=[user(*[image()] * 200)]))
    check(status == 400 and got["error"]["code"] == "context_length_exceeded" and "images have" in got["error"]["message"], many, status, got)


def test_what_sees_says_so(s):
    check(s.post("/api/show", {"model": "qwen35_sees"})[1]["capabilities"] == ["completion", "vision"])
    check(json.loads(s.ask("GET", "/v1/models")[2])["data"][0]["capabilities"] == ["completion", "multimodal"])
    check(json.loads(s.ask("GET", "/props")[2])["modalities"]["vision"] is True)


def test_a_model_of_text_alone():
    s = Server()
    status, got = s.post("/v1/chat/completions", dict(GREEDY, messages=[user(image(), text())]))
    check(status == 400 and "this model reads text only" in got["error"]["message"], status, got)
    check(json.loads(s.ask("GET", "/props")[2])["modalities"]["vision"] is False)
    s.stop()


def test_a_model_whose_images_are_cut_into_squares():
    # Seen to fail: without the tokens that come with an image.
    folder = os.path.join(os.path.dirname(ORACLE), "lfm2vl_sees")
    s = Server(model=folder)
    large = base64.b64encode(png(200, 130, 90)).decode()
    n = []
    for b64, rows in ((B64, 2), (large, 26)):
        got = chat(s, user(image(b64), text()))
        n.append(got["usage"]["prompt_tokens"] - chat(s, user(text()))["usage"]["prompt_tokens"])
        check(n[-1] == rows + (2 if rows == 2 else 9), n)
    ollama = {"messages": [{"role": "user", "content": QUESTION, "images": [large]}], "stream": False, "options": {"temperature": 0, "num_predict": 8}}
    status, o = s.post("/api/chat", ollama)
    check(status == 200 and o["message"]["content"] == said(got) and said(got), status, o, got)
    s.stop()


def test_a_model_whose_images_see_to_their_end():
    # Of 9 rows, two tokens around them, and line breaks, of which those in front join the template's. Seen to fail without.
    s = Server(model=os.path.join(os.path.dirname(ORACLE), "gemma3_sees"))
    got = chat(s, user(image(B64), text()))
    n = got["usage"]["prompt_tokens"] - chat(s, user(text()))["usage"]["prompt_tokens"]
    check(n == 12, n)
    again = chat(s, user(image(B64), text()))
    check(said(again) == said(got) and again["usage"]["prompt_tokens_details"]["cached_tokens"] > 12, got, again)
    two = chat(s, user(image(B64), image(B64), text()))
    check(two["usage"]["prompt_tokens"] == got["usage"]["prompt_tokens"] + 13, two)  # four line breaks are two tokens
    s.stop()


def test_a_front_with_a_image_has_no_file():
    # Seen to fail: with prefixes of any ids written, whose failure the log tells.
    with tempfile.TemporaryDirectory() as folder:
        s = Server("--cache-dir", folder, "--cache-disk", "1G", model=ORACLE)
        chat(s, user(image(), text(QUESTION * 3)))
        chat(s, user(text(QUESTION * 3)))
        s.stop()
        files = [name for name in os.listdir(folder) if name.endswith(".session")]
        check(files and "images" not in s.read_log(), files, s.read_log())


def test_images_of_turns_that_are_cut(s):
    # They go with their turns, and those that stay belong to theirs. Seen to fail with 400; with the first images in the
    # place of the last.
    turns = lambda n: [m for i in range(n) for m in ({"role": "user", "content": [
        {"type": "input_image", "image_url": URL + (B64 if i % 2 else OTHER)}, {"type": "input_text", "text": "Turn %d." % i}]},
        {"role": "assistant", "content": "Yes."})]
    last = {"role": "user", "content": [{"type": "input_image", "image_url": URL + OTHER}, {"type": "input_text", "text": QUESTION}]}
    n = 12
    ask = {"input": turns(n) + [last], "max_output_tokens": 8, "temperature": 0}
    status, got = s.post("/v1/responses", ask)
    check((status, got.get("error", {}).get("code")) == (400, "context_length_exceeded"), got)
    status, got = s.post("/v1/responses", dict(ask, truncation="auto"))
    check(status == 200, got)
    same = [i for i in range(0, 2 * n, 2) for kept in [s.post("/v1/responses", dict(ask, input=ask["input"][i:]))[1]]
            if kept.get("usage", {}).get("input_tokens") == got["usage"]["input_tokens"]]
    check(len(same) == 1 and same[0] > 0, same, got["usage"])
    check(s.post("/v1/responses", dict(ask, input=ask["input"][same[0]:]))[1]["output"][0]["content"] == got["output"][0]["content"], got)


def main():
    if not serve_test.can_serve():
        print("serve image: skipped: built without libevent")
        return 0
    shared = Server(model=ORACLE)
    if not reads_images(shared):
        print("serve image: skipped: this build reads no images")
        return 0
    n = serve_test.run_tests((test_a_model_of_text_alone, test_a_model_whose_images_are_cut_into_squares, test_a_model_whose_images_see_to_their_end, test_a_front_with_a_image_has_no_file))
    n += serve_test.run_tests((test_all_interfaces_say_the_same, test_images_have_their_places, test_fronts_are_of_the_same_image,
                              test_a_image_may_be_shown_small, test_refusals, test_what_sees_says_so, test_images_of_turns_that_are_cut), shared)
    shared.stop()
    print("serve image: %d tests, %d checks failed" % (n, serve_test.failures))
    return serve_test.failures != 0


if __name__ == "__main__":
    sys.exit(main())

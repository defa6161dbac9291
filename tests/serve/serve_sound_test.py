#!/usr/bin/env python3
"""Recordings over HTTP: /v1/audio/transcriptions of tern serve.

    tests/serve/serve_sound_test.py TERN [NAME]     the tests with NAME in their names
"""
import base64
import json
import os
import shutil
import sys
import tempfile

import serve_test
from serve_test import MODEL, Server, check

ORACLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracles", "moonshine")
OUT = "/v1/audio/transcriptions"


def form(**fields):
    """A value of bytes is a file."""
    body = b""
    for name, value in fields.items():
        of = '; filename="x.wav"' if isinstance(value, bytes) else ""
        body += ('--bound\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n' % (name, of)).encode()
        body += (value if isinstance(value, bytes) else value.encode()) + b"\r\n"
    return body + b"--bound--\r\n"


def send(s, **fields):
    """(status, headers, text)"""
    return s.ask("POST", OUT, form(**fields), {"Content-Type": "multipart/form-data; boundary=bound"})


def sound():
    with open(os.path.join(ORACLE, "sound.wav"), "rb") as file:
        wav = file.read()
    return wav[:40] + (4 * (len(wav) - 44)).to_bytes(4, "little") + 4 * wav[44:]  # 1.2 seconds


def test_forms_of_answers(s):
    # Seen to fail: with tokens left out.
    status, _, text = send(s, model="moonshine", file=sound(), response_format="verbose_json")
    if status == 400 and "this build reads no sound files" in text:
        return
    got = json.loads(text)
    check(status == 200 and got["task"] == "transcribe" and 1.1 < got["duration"] < 1.3, status, text)
    check(len(got["segments"]) == 1 and got["segments"][0]["start"] == 0 and got["segments"][0]["tokens"], got)
    check(abs(got["segments"][0]["end"] - got["duration"]) < 0.3, got)
    check(json.loads(send(s, model="moonshine", file=sound())[2]) == {"text": got["text"]})
    status, headers, text = send(s, model="moonshine", file=sound(), response_format="text")
    check(status == 200 and text == got["text"] + "\n" and headers["Content-Type"].startswith("text/plain"), headers, text)
    srt = send(s, model="moonshine", file=sound(), response_format="srt")[2]
    check(srt.startswith("1\n00:00:00,000 --> 00:00:01,"), srt)
    vtt = send(s, model="moonshine", file=sound(), response_format="vtt")[2]
    check(vtt.startswith("WEBVTT\n\n00:00:00.000 --> 00:00:01."), vtt)


def test_streams(s):
    # Segments as they come, then the whole.
    wav = sound()
    silence = b"\0" * 64000
    data = wav[44:] + silence + wav[44:]
    wav = wav[:40] + len(data).to_bytes(4, "little") + data
    status, headers, text = send(s, model="moonshine", file=wav, stream="true")
    if status == 400 and "this build reads no sound files" in text:
        return
    events = [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: ")]
    check(status == 200 and headers["Content-Type"].startswith("text/event-stream"), status, headers)
    check([e["type"] for e in events][-1] == "transcript.text.done" and len(events) >= 2, text)
    check(all(e["type"] == "transcript.text.delta" for e in events[:-1]), text)
    check("".join(e["delta"] for e in events[:-1]) == events[-1]["text"], text)


def test_translations(s):
    status, _, text = s.ask("POST", "/v1/audio/translations", form(model="moonshine", file=sound()),
                            {"Content-Type": "multipart/form-data; boundary=bound"})
    check(status == 400 and ("does not translate" in text or "reads no sound files" in text), status, text)


def test_refusals(s):
    for fields, status, words in (
            (dict(model="moonshine"), 400, "'file' is missing"),
            (dict(model="nobody", file=b"x"), 404, "'nobody' not found"),
            (dict(model="moonshine", file=b"no sound"), 400, "this "),
            (dict(model="moonshine", file=b"x", response_format="xml"), 400, "response_format"),
            (dict([("model", "moonshine"), ("file", b"x"), ("timestamp_granularities[]", "word")]), 400, "timestamp_granularities[]"),
            (dict(model="moonshine", file=b"no sound", stream="true"), 400, "this ")):
        got, _, text = send(s, **fields)
        check(got == status and words in json.loads(text)["error"]["message"], fields, got, text)
    check(s.post(OUT, {"model": "moonshine"})[0] == 400)
    status, got = s.post("/v1/completions", {"model": "moonshine", "prompt": "a"})
    check(status == 400 and "generates no text" in got["error"]["message"], got)
    models = json.loads(s.ask("GET", "/v1/models")[2])["data"]
    check(models[0]["capabilities"] == ["transcription"], models)


def with_words(folder):
    """The oracle with a vocabulary, so that what it says can be read."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {"added_tokens": [], "pre_tokenizer": byte_level, "decoder": byte_level,
                 "model": {"type": "BPE", "vocab": {chr(65 + i): i for i in range(48)}, "merges": []}}
    to = os.path.join(folder, "moonshine")
    shutil.copytree(ORACLE, to)
    with open(os.path.join(to, "tokenizer.json"), "w") as file:
        json.dump(tokenizer, file)
    return to


def test_recordings_in_conversations():
    # What is said stands in their place, also with a long body and where the model must be closed for the other. Seen to fail
    # with 400; with the text before and after in one line with it; with one said for both.
    folder = tempfile.TemporaryDirectory()
    hears = with_words(folder.name)
    two = Server("-m", MODEL, "-m", hears, model=None)
    wav, other = sound(), sound()[:44 + 16000]
    said = [json.loads(send(two, model="moonshine", file=w)[2]).get("text") for w in (wav, other)]
    if said[0] is None:
        two.stop()
        return
    check(said[0] and said[1] and said[0] != said[1], said)
    b64 = lambda w: base64.b64encode(w).decode()
    part = lambda w: {"type": "input_audio", "input_audio": {"data": b64(w), "format": "wav"}}
    text = lambda t: {"type": "text", "text": t}
    user = lambda *parts: {"role": "user", "content": list(parts)}
    shown = lambda s, *m: s.post("/apply-template", {"messages": list(m), "model": "stories"})[1]
    for parts, wanted in (([part(wav)], said[0]), ([text("a"), part(wav), text("b")], "a\n%s\nb" % said[0]),
                          ([part(wav), part(other)], "%s\n%s" % tuple(said)),
                          ([{"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64," + b64(other)}}, text("c")], said[1] + "\nc")):
        check(shown(two, user(*parts)) == shown(two, user(text(wanted))), wanted, shown(two, user(*parts)))
    both = lambda path, ask: [two.post(path, ask(c))[1] for c in ([text("a"), part(wav)], "a\n" + said[0])]
    one, same = both("/v1/chat/completions", lambda c: {"messages": [{"role": "user", "content": c}], "max_tokens": 8, "temperature": 0, "model": "stories"})
    check(one["choices"] == same["choices"] and one["usage"]["prompt_tokens"] == same["usage"]["prompt_tokens"], one, same)
    as_input = lambda c: [dict(p, type="input_text") if p["type"] == "text" else p for p in c] if isinstance(c, list) else c
    one, same = both("/v1/responses", lambda c: {"input": [{"role": "user", "content": as_input(c)}], "max_output_tokens": 8, "temperature": 0, "model": "stories"})
    check(one["output"][0]["content"] == same["output"][0]["content"] and one["usage"]["input_tokens"] == same["usage"]["input_tokens"], one, same)
    check(json.loads(two.ask("GET", "/props")[2])["modalities"]["audio"] is True)
    for parts, words in (([part(b"no sound")], "recording 1 of 1"), ([part(wav), part(b"x")], "recording 2 of 2"), ([{"type": "input_audio"}], "base64"),
                         ([dict(part(wav), input_audio={"data": "?"})], "base64"), ([part(b"")], "base64"), ([part(other)] * 17, "more than 16"),
                         ([{"type": "audio_url", "audio_url": {"url": "http://127.0.0.1/x"}}], "data: URL")):
        status, got = two.post("/v1/chat/completions", {"messages": [user(*parts)], "model": "stories"})
        check(status == 400 and words in got["error"]["message"], words, got)
    status, got = two.post("/v1/messages", {"messages": [user(part(wav))], "max_tokens": 3, "model": "stories"})
    check(status == 400 and "recording" in got["error"]["message"], got)
    two.stop()
    # Only one of the two fits in memory.
    small = Server("-m", MODEL, "-m", hears, "--models-memory", str(os.path.getsize(MODEL) + 1000), model=None)
    check(shown(small, user(part(wav))) == shown(small, user(text(said[0]))), "one after the other")
    small.stop()
    alone = Server()
    status, got = alone.post("/v1/chat/completions", {"messages": [user(part(wav))]})
    check(status == 400 and "no model that transcribes" in got["error"]["message"], got)
    alone.stop()


def main():
    if not serve_test.can_serve():
        print("serve sound: skipped: built without libevent")
        return 0
    shared = Server(model=ORACLE)
    n = serve_test.run_tests((test_forms_of_answers, test_streams, test_translations, test_refusals), shared)
    n += serve_test.run_tests((test_recordings_in_conversations,))
    shared.stop()
    print("serve sound: %d tests, %d checks failed" % (n, serve_test.failures))
    return serve_test.failures != 0


if __name__ == "__main__":
    sys.exit(main())

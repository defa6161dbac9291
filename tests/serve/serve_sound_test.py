#!/usr/bin/env python3
"""Recordings over HTTP: /v1/audio/transcriptions of tern serve.

    tests/serve/serve_sound_test.py TERN [NAME]     the tests with NAME in their names
"""
import json
import os
import sys

import serve_test
from serve_test import Server, check

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


def main():
    if not serve_test.can_serve():
        print("serve sound: skipped: built without libevent")
        return 0
    shared = Server(model=ORACLE)
    n = serve_test.run_tests((test_forms_of_answers, test_streams, test_translations, test_refusals), shared)
    shared.stop()
    print("serve sound: %d tests, %d checks failed" % (n, serve_test.failures))
    return serve_test.failures != 0


if __name__ == "__main__":
    sys.exit(main())

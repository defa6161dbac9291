#!/usr/bin/env python3
"""Speech over HTTP: /v1/audio/speech of tern serve.

    tests/serve/serve_speech_test.py TERN [NAME]     the tests with NAME in their names
"""
import http.client
import json
import os
import shutil
import struct
import sys
import tempfile

import serve_test
from serve_test import PATIENCE, Server, check

ORACLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracles")
OUT = "/v1/audio/speech"
ASK = {"model": "kani", "input": "12 34", "voice": "default", "seed": 5}


def ask(s, **fields):
    """(status, headers, bytes)"""
    c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=PATIENCE)
    c.request("POST", OUT, json.dumps(dict(ASK, **fields)))
    r = c.getresponse()
    body = r.read()
    c.close()
    return r.status, dict(r.getheaders()), body


def test_samples(s):
    status, headers, pcm = ask(s, response_format="pcm")
    check(status == 200 and headers["Content-Type"] == "audio/pcm" and headers["Transfer-Encoding"] == "chunked", status, headers)
    check(len(pcm) > 0 and len(pcm) % 12 == 0, len(pcm))  # frames of 6 samples
    check(ask(s, response_format="pcm")[2] == pcm)  # the same seed
    check(ask(s, response_format="pcm", seed=6)[2] != pcm)
    status, headers, wav = ask(s)
    check(status == 200 and headers["Content-Type"] == "audio/wav", status, headers)
    check(wav[:4] == b"RIFF" and wav[8:16] == b"WAVEfmt " and wav[36:40] == b"data" and wav[44:] == pcm, wav[:44])
    check(struct.unpack("<HHIIHH", wav[20:36]) == (1, 1, 22050, 44100, 2, 16), wav[20:36])
    slow = ask(s, response_format="pcm", speed=0.5)[2]  # Seen to fail: with the first piece lost in the head's room.
    check(abs(len(slow) - 2 * len(pcm)) <= 4, len(slow), len(pcm))
    check(ask(s, response_format="pcm", voice="andrew")[2] != pcm)


def test_files(s):
    wav = ask(s)[2]
    for form, kind, begins in (("mp3", "audio/mpeg", None), ("opus", "audio/ogg", b"OggS"), ("flac", "audio/flac", b"fLaC")):
        status, headers, body = ask(s, response_format=form)
        if status == 501 or b"libsndfile" in body:
            return  # built without
        check(status == 200 and headers["Content-Type"] == kind, form, status, headers, body[:200])
        check(begins is None or body.startswith(begins), body[:8])
        check(len(body) > 100, len(body))
    # STREAMINFO: 22,050 samples a second, one channel, 16 bits, as many samples as the WAV has.
    # Seen to fail: a file that cannot go back to its head.
    flac = int.from_bytes(body[18:26], "big")
    check((flac >> 44, flac >> 41 & 7, flac >> 36 & 31, flac & (1 << 36) - 1) == (22050, 0, 15, (len(wav) - 44) // 2), hex(flac))


def test_refusals(s):
    for fields, words in ((dict(input=""), "'input' is missing"), (dict(response_format="aac"), "must be wav, pcm, mp3, opus or flac"),
                          (dict(speed=9), "speed"), (dict(voice=["x"]), "'voice'"), (dict(model="x"), "not found")):
        status, _, body = ask(s, **fields)
        check(status in (400, 404) and words in json.loads(body)["error"]["message"], fields, status, body)
    models = json.loads(s.ask("GET", "/v1/models")[2])["data"]
    check(models[0]["capabilities"] == ["speech"], models)


def main():
    if not serve_test.can_serve():
        print("serve speech: skipped: built without libevent")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "kani")
        shutil.copytree(os.path.join(ORACLES, "kani"), model)
        shutil.copy(os.path.join(ORACLES, "small_tokenizer.json"), os.path.join(model, "tokenizer.json"))
        shared = Server("--codec", os.path.join(ORACLES, "nanocodec"), model=model)
        n = serve_test.run_tests((test_samples, test_files, test_refusals), shared)
        shared.stop()
    print("serve speech: %d tests, %d checks failed" % (n, serve_test.failures))
    return serve_test.failures != 0


if __name__ == "__main__":
    sys.exit(main())

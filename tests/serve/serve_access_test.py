#!/usr/bin/env python3
"""Who may ask a server, and how much of it one client may have.

    tests/serve/serve_access_test.py TERN [NAME]     the tests with NAME in their names
"""
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time

import serve_test
from serve_test import LONG, MODEL, PATIENCE, TERN, Server, begin, check, head


def test_the_queue_has_an_end():
    # Seen to fail: with a queue of one more.
    s = Server("--parallel", "1", "--queue", "1", "-c", "64K", "--no-page")
    check(s.ask("GET", "/", headers={"Accept": "text/html"})[2] == "Ollama is running", "--no-page")
    check(s.ask("GET", "/page/page.js")[0] == 404, "--no-page")
    running = begin(s, "/v1/completions", LONG)
    running.recv(100)
    waiting = begin(s, "/v1/completions", LONG)
    s.wait_for("tern_requests_waiting", 1)
    status, headers, text = s.ask("POST", "/v1/completions", LONG)
    check(status == 429 and int(headers["Retry-After"]) > 0 and json.loads(text)["error"]["code"] == "queue_full", status, text)
    running.close()
    got = b""
    while b"data: " not in got and (more := waiting.recv(1000)):
        got += more
    check(b"data: " in got, "the one in the queue does not begin", got)
    waiting.close()
    s.stop(signal.SIGINT)


def test_keys_names_and_origins():
    # Seen to fail: with a key's beginning taken for the key; with `evil.localhost.com` taken for local.
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as f:
        f.write("# of the house\nsecret-2\n\n")
        f.flush()
        s = Server("--api-key", "secret-1", "--api-key-file", f.name, "--cors", "https://page.example", "--allow-host", "box.lan")
    for key, status in {"": 401, "Bearer": 401, "Bearer secret": 401, "Bearer secret-1": 200, "bearer secret-2": 200,
                        "Bearer secret-11": 401, "Bearer secret-1secret-1": 401}.items():
        check(s.ask("GET", "/v1/models", headers={"Authorization": key})[0] == status, key, "is not", status)
    for field in ("x-api-key", "api-key"):  # the second one: of clients for Azure
        check(s.ask("GET", "/v1/models", headers={field: "secret-1"})[0] == 200, field)
        check(s.ask("GET", "/v1/models", headers={field: "secret"})[0] == 401, field)
    check(s.ask("GET", "/health")[0] == 200 and s.ask("GET", "/")[0] == 200, "/health asks for a key")
    for name, status in {"localhost:9": 200, "127.0.0.1": 200, "[::1]:80": 200, "box.lan": 200, "evil.example": 403,
                         "evil.localhost.com": 403, "127.0.0.1.evil.example": 403}.items():
        check(s.ask("GET", "/health", headers={"Host": name})[0] == status, name, "is not", status)
    for origin, status in {"https://page.example": 200, "http://localhost:3000": 200, "https://evil.example": 403,
                           "null": 403, "https://page.example.evil": 403, "http://0.0.0.0:3000": 200,
                           # Of programs on this machine, as Ollama allows them.
                           "app://obsidian.md": 200, "tauri://localhost": 200, "file://": 200, "vscode-webview://1a2b": 200,
                           "vscode-file://vscode-app": 200, "chrome-extension://a": 403, "tauri.evil.example": 403,
                           "https://evil.example/app://": 403}.items():
        got, headers, _ = s.ask("GET", "/health", headers={"Origin": origin})
        check(got == status, origin, "is not", status)
        check(headers.get("Access-Control-Allow-Origin") == (origin if status == 200 else None), origin, headers)
    status, headers, _ = s.ask("OPTIONS", "/v1/chat/completions", headers={
        "Origin": "https://page.example", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-stainless-os"})
    check(status == 204 and "x-stainless-os" in headers["Access-Control-Allow-Headers"], status, headers)
    s.stop()


def refused(*options):
    """How a server that does not start says so."""
    p = subprocess.run([TERN, "serve", MODEL, "--port", "0", *options], capture_output=True, text=True, timeout=PATIENCE)
    return p.stderr if p.returncode else "it serves"


def test_keys_that_are_none_are_refused():
    # Seen to fail: with an empty key that everybody has who has none.
    for key in ("", " ", "\t"):
        check("--api-key: a key is empty" in refused("--api-key", "good", "--api-key", key), repr(key), refused("--api-key", key))
    check("a blank" in refused("--api-key", "key "), refused("--api-key", "key "))
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as f:
        f.write("\n  \n# none\n")
        f.flush()
        check("there is no key in it" in refused("--api-key-file", f.name), refused("--api-key-file", f.name))


def test_folders_of_others_are_refused():
    # Seen to fail: with a folder in which everybody may put what answers are gone on from.
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        for option in ("--cache-dir", "--slot-save-path"):
            check("other users may write there" in refused(option, folder), option, refused(option, folder))


def test_names_and_a_warning_beyond_this_machine():
    # Seen to fail: with any name answered to because the server listens everywhere.
    s = Server("--host", "0.0.0.0", "--allow-host", "box.lan")
    check("warning" in s.read_log() and "asks for no key" in s.read_log(), s.read_log())
    for name, status in {"127.0.0.1:1": 200, "localhost": 200, "box.lan:8080": 200, "evil.example": 403}.items():
        check(s.ask("GET", "/v1/models", headers={"Host": name})[0] == status, name, "is not", status)
    s.stop()
    s = Server("--host", "0.0.0.0")
    check(s.ask("GET", "/v1/models", headers={"Host": "evil.example"})[0] == 403, "a page's own name")
    s.stop()
    s = Server("--host", "0.0.0.0", "--api-key", "k")
    check("warning" not in s.read_log(), s.read_log())
    check(s.ask("GET", "/v1/models", headers={"Host": "any.example", "x-api-key": "k"})[0] == 200, "it has a key")
    s.stop()


def test_who_may_not_ask_sends_no_body():
    # Seen to fail: with bodies read before the key is looked at, with leave to send them.
    s = Server("--api-key", "k")
    long = "Content-Length: 16000000"
    for path, fields, status in (("/v1/chat/completions", (long,), 401), ("/v1/chat/completions", (long, "Authorization: Bearer no"), 401),
                                 ("/none", (long, "x-api-key: k"), 404), ("/v1/models", (long, "x-api-key: k"), 405),
                                 ("/v1/chat/completions", ("Expect: 100-continue", "Content-Length: 10"), 401),
                                 ("/v1/chat/completions", ("Transfer-Encoding: chunked",), 401),
                                 ("/v1/chat/completions", (long, "x-api-key: k", "Content-Encoding: br"), 415)):
        got = s.raw(head(path, *fields))  # and no byte of a body
        check(got.startswith(b"HTTP/1.1 %d " % status) and b"Connection: close" in got and b"100 Continue" not in got, path, fields, got)
    # A short one is read past, and the connection goes on.
    got = s.raw(head("/v1/embeddings", "Content-Length: 2") + b"{}" + head("/health", "Connection: close", method="GET"))
    check(re.findall(rb"HTTP/1\.1 (\d+) ", got) == [b"401", b"200"], got)
    with s.connect() as c:
        c.sendall(head("/tokenize", "x-api-key: k", "Expect: 100-continue", "Content-Length: 15"))
        check(c.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n", "leave to send it")
        c.sendall(b'{"content":"a"}')
        check(c.recv(100).startswith(b"HTTP/1.1 200 "), "the body comes")
    s.stop()


def test_one_key_leaves_others_a_place():
    # Seen to fail: with a queue that is whoever's who fills it.
    s = Server("--parallel", "1", "--queue", "4", "-c", "64K", "--api-key", "a", "--api-key", "b")
    def of(key):
        data = json.dumps(LONG).encode()
        c = s.connect()
        c.sendall(head("/v1/completions", "x-api-key: " + key, "Content-Length: %d" % len(data)) + data)
        return c
    running = of("a")
    running.recv(100)
    full = [of("a") for _ in range(6)]
    answers = [c.recv(100) for c in full]
    check(sum(a.startswith(b"HTTP/1.1 429 ") for a in answers) == 2, answers)
    other = of("b")
    check(other.recv(100).startswith(b"HTTP/1.1 200 "), "the other key is refused")
    for c in full + [running, other]:
        c.close()
    s.stop(signal.SIGINT)


def test_bytes_in_flight_have_an_end():
    # Seen to fail: with bodies of any number of connections kept.
    s = Server("--max-inflight", "4M", "--max-body", "2M", "--api-key", "a", "--api-key", "b")
    def begin_body(key, n=1500000):
        c = s.connect()
        c.sendall(head("/tokenize", "x-api-key: " + key, "Content-Length: %d" % n) + b" " * (n - 1))
        return c
    first = begin_body("a")
    time.sleep(0.3)  # so that mostly its bytes are there when the other's head comes
    second = begin_body("a")
    refused = select.select([first, second], [], [], PATIENCE)[0]
    check(refused and refused[0].recv(100).startswith(b"HTTP/1.1 429 "), "two of the same key")
    other = s.ask("POST", "/tokenize", json.dumps({"content": "a", "x": " " * 200000}), {"x-api-key": "b"})
    check(other[0] == 200, "the other key's", other)
    first.close()
    second.close()
    end = time.monotonic() + PATIENCE
    while (got := s.ask("POST", "/tokenize", json.dumps({"content": "a", "x": " " * 900000}), {"x-api-key": "a"})[0]) == 429 and time.monotonic() < end:
        time.sleep(0.05)
    check(got == 200, "what was given back is not", got)
    s.stop()


def test_idle_connections_make_room():
    # Seen to fail: with a newcomer that waits until others' idle time is over.
    s = Server("--connections", "4", "--idle", "600")
    idle = [s.connect() for _ in range(4)]
    time.sleep(0.2)
    check(s.ask("GET", "/health")[0] == 200, "the fifth")
    for c in idle:
        c.close()
    s.stop()
    s = Server("--client-connections", "2", "--idle", "600")
    kept = [s.connect() for _ in range(2)]
    time.sleep(0.2)
    check(s.raw(head("/health", method="GET")) == b"", "more than one address may have")
    for c in kept:
        c.close()
    end = time.monotonic() + PATIENCE
    while not (got := s.raw(head("/health", "Connection: close", method="GET"))) and time.monotonic() < end:
        time.sleep(0.02)
    check(got.startswith(b"HTTP/1.1 200 "), "a place that was given back", got)
    s.stop()


def test_keys_have_what_was_computed_apart():
    # Seen to fail: with the owner of a job not set; with a slot's text erased by who has another key.
    prefix = "Once upon a time a little girl lived with her grandmother near a big forest, and in it was a fox"
    ask = {"prompt": prefix, "n_predict": 4, "id_slot": 0}
    with tempfile.TemporaryDirectory() as folder:
        for options, cached in ((["--cache-dir", folder], [False, False, True]), ([], [False, False, True]), (["--cache-scope", "all"], [False, True, True])):
            for turn in range(2 if "--cache-dir" in options else 1):
                s = Server("--parallel", "1", "--api-key", "a", "--api-key", "b", "--slot-save-path", folder, *options)
                got = [s.post("/completion", ask, headers={"x-api-key": key})[1]["timings"]["cache_n"] > 0 for key in "aba"]
                check(got == ([True] * 3 if turn else cached), options, turn, got)
                erase = lambda key: s.post("/slots/0?action=erase", {}, headers={"x-api-key": key})[1]["n_erased"]
                n = [erase("b"), erase("a")]
                check((n[0] > 0) == ("all" in options) and (n[1] > 0) != (n[0] > 0), options, n)
                s.post("/completion", ask, headers={"x-api-key": "a"})
                s.stop()


def main():
    if not serve_test.can_serve():
        print("serve access: skipped: built without libevent")
        return 0
    n = serve_test.run_tests((test_the_queue_has_an_end, test_keys_names_and_origins,
                             test_keys_that_are_none_are_refused, test_folders_of_others_are_refused,
                             test_names_and_a_warning_beyond_this_machine, test_who_may_not_ask_sends_no_body,
                             test_one_key_leaves_others_a_place, test_bytes_in_flight_have_an_end,
                             test_idle_connections_make_room, test_keys_have_what_was_computed_apart))
    print("serve access: %d tests, %d checks failed" % (n, serve_test.failures))
    return serve_test.failures != 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""tern bench --server against a server whose answers take a known time.

    tests/load_test.py TERN
"""
import html.parser
import json
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TERN = sys.argv[1]
failures = 0
FIRST, GAP = 0.05, 0.02  # seconds
PATIENCE = 300  # after which something will never come


def check(ok, *what):
    global failures
    if not ok:
        failures += 1
        print("load:", *(str(w)[:400] for w in what))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_POST(self):
        s = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = body["messages"][0]["content"]
        n = len(text.split()) * 2 + 10  # tokens: two a word, and the template's
        usage = {"prompt_tokens": n, "completion_tokens": body["max_tokens"], "prompt_tokens_details": {"cached_tokens": 4}}
        with s.lock:
            s.seen.append((time.monotonic(), text, n, self.headers.get("Authorization"), body["stream"]))
            s.running += 1
            s.most = max(s.most, s.running)
            s.n_streams += body["stream"]
            if body["stream"] and s.n_streams > s.meets_after and s.most < s.meets:
                s.met.wait_for(lambda: s.most >= s.meets, PATIENCE / 10)
                s.meets = 0  # once
            s.met.notify_all()
            fails = body["stream"] and s.fails and len(s.seen) % s.fails == 0
        if fails:
            self.reply(429, {"error": {"message": "busy"}})
        elif not body["stream"]:
            self.reply(200, {"choices": [], "usage": usage})
        else:
            self.stream(body["max_tokens"], usage)

    def over(self):
        """Before the last byte: whoever reads it may ask again at once."""
        with self.server.lock:
            self.server.running -= 1

    def reply(self, status, answer):
        data = json.dumps(answer).encode()
        self.over()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def event(self, data):
        raw = b"data: %s\r\n\r\n" % (data if isinstance(data, bytes) else json.dumps(data).encode())
        self.wfile.write(b"%x\r\n%s\r\n" % (len(raw), raw))
        self.wfile.flush()

    def stream(self, n, usage):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        for i in range(n):
            time.sleep(GAP if i else FIRST)
            self.event({"choices": [{"delta": {"reasoning_content" if i == 0 else "content": "w "}}]})
        self.event({"choices": [], "usage": usage})
        self.event(b"[DONE]")
        self.over()
        self.wfile.write(b"0\r\n\r\n")


class Fake:
    """meets, meets_after: after so many answers the next ones wait until so many are asked for at once."""

    def __init__(self, fails=0, meets=0, meets_after=0):
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.lock, self.server.seen, self.server.running, self.server.most = threading.Lock(), [], 0, 0
        self.server.met = threading.Condition(self.server.lock)
        self.server.fails, self.server.meets, self.server.meets_after, self.server.n_streams = fails, meets, meets_after, 0
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = "http://127.0.0.1:%d" % self.server.server_port


def bench(*options):
    return subprocess.run([TERN, "bench", *options], capture_output=True, text=True, timeout=PATIENCE)


def test_users():
    # Seen to fail: with one user more than asked for; with pieces without text counted; with texts that repeat.
    fake, other = Fake(meets=3, meets_after=6), Fake()
    done = bench("--server", fake.url, "--server", other.url + "/v1", "--users", "1,3", "--requests", "6", "-p", "110", "-n", "5",
                 "--shared", "50", "--api-key", "k", "-o", "json")
    check(done.returncode == 0, done)
    loads = json.loads(done.stdout)["loads"]
    check([(x["server"], x["users"]) for x in loads] == [(u, n) for u in (fake.url, other.url + "/v1") for n in (1, 3)], loads)
    for x in loads:
        check((x["answered"], x["failed"], x["error"]) == (6, 0, None), x)
        # Who reads late finds what was sent in between at once: of an answer only its whole time has a least one.
        check(x["between_tokens_seconds"]["n"] == 24 and x["first_token_seconds"]["max"] + 4 * x["between_tokens_seconds"]["max"] >= (FIRST + 4 * GAP) * 0.9, x)
        check(x["first_token_seconds"]["quantiles"][0] >= FIRST * 0.9, x)
        check(x["request_seconds"]["p50"] >= FIRST + 4 * GAP and x["request_seconds"]["max"] >= x["request_seconds"]["p50"], x)
        check(0 < x["tokens_per_second"] <= x.get("users") * 5 / (FIRST + 4 * GAP), x)
    check(fake.server.most == 3, "requests at once", fake.server.most)
    streams = [s for s in fake.server.seen if s[4]]
    check(all(abs(n - 110) <= 2 for _, _, n, _, _ in streams), "lengths", [s[2] for s in streams])
    check(len({text for _, text, *_ in streams}) == 12, "every request has its own text")
    shared = {" ".join(text.split()[:20]) for _, text, *_ in streams}
    check(len(shared) == 2 and all(auth == "Bearer k" for *_, auth, _ in streams), "what a load's prompts begin with", shared)


def test_lengths():
    # Seen to fail: with equal lengths, and with answers that are as long as their prompts.
    fake = Fake()
    done = bench("--server", fake.url, "--users", "8", "--requests", "60", "-p", "100", "-n", "4", "--range-ratio", "0.5",
                 "-o", "json")
    report = json.loads(done.stdout)
    lengths = [n for _, _, n, _, stream in fake.server.seen if stream]
    check(report["range_ratio"] == 0.5 and report["loads"][0]["answered"] == 60, report)
    check(min(lengths) >= 48 and max(lengths) <= 152 and min(lengths) < 70 and max(lengths) > 130, "lengths", lengths)
    check(2 * 60 < report["loads"][0]["between_tokens_seconds"]["n"] + 60 < 6 * 60, "answers of 2 to 6", report)


def test_arrivals():
    # Seen to fail: with arrivals that wait for one another; with times from when a connection was free.
    fake = Fake()
    begin = time.monotonic()
    done = bench("--server", fake.url, "--rate", "60", "--requests", "40", "-p", "30", "-n", "8", "-o", "json")
    load = json.loads(done.stdout)["loads"][0]
    times = [s[0] for s in fake.server.seen if s[4]]
    check(load["answered"] == 40 and load["rate"] == 60 and fake.server.most > 3, load, fake.server.most)
    check(max(times) - begin > 0.4, "forty at sixty a second", max(times) - begin)


def test_failures():
    fake = Fake(fails=4)
    done = bench("--server", fake.url, "--users", "2", "--requests", "8", "-p", "30", "-n", "2", "-o", "json")
    load = json.loads(done.stdout)["loads"][0]
    check(load["failed"] >= 1 and load["answered"] + load["failed"] == 8 and load["error"] == "busy", load)
    check("requests failed, the first with: busy" in done.stderr and done.returncode == 0, done)
    for options, says in ((("--server", "http://127.0.0.1:9"), "chat/completions: "), (("--server", fake.url, "-o", "csv"), "prints md"),
                          (("-o", "html"), "is for --server")):
        done = bench(*options)
        check(done.returncode != 0 and done.stderr.startswith("tern: ") and says in done.stderr, done)


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.svgs, self.lines, self.outside = 0, 0, []

    def handle_starttag(self, tag, attributes):
        self.svgs += tag == "svg"
        self.lines += tag == "polyline"
        self.outside += [v for k, v in attributes if k in ("src", "href")]
        for k, v in attributes:
            check("nan" not in (v or "") and "inf" not in (v or ""), tag, k, v)


def test_reports():
    # Seen to fail: with plots of a load without gaps.
    fake = Fake()
    done = bench("--server", fake.url, "--users", "1,2", "--requests", "3", "-p", "30", "-n", "3", "-o", "html")
    page = Page()
    page.feed(done.stdout)
    check((page.svgs, page.lines, page.outside) == (4, 6, []), page.svgs, page.lines)
    done = bench("--server", fake.url, "--users", "2", "--requests", "2", "-p", "30", "-n", "1", "-o", "html")
    Page().feed(done.stdout)
    rows = bench("--server", fake.url, "--users", "2", "--requests", "2", "-p", "30", "-n", "2").stdout.splitlines()
    check(rows[-1].startswith("| %s | 2 users | 2 | 0 |" % fake.url), rows)


def main():
    if "without libcurl" in bench("--server", "http://127.0.0.1:9").stderr:
        print("load: skipped: built without libcurl")
        return 0
    for test in (test_users, test_arrivals, test_failures, test_reports):
        try:
            test()
        except Exception as e:  # what a test did not expect is its failure, and no end of the others
            check(False, test.__name__, repr(e))
    print("load:", "ok" if not failures else "failed")
    return failures != 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""A thousand clients at once, most of them bad, for as long as it is told.

    tests/serve/serve_storm.py TERN [SECONDS] [CLIENTS]

Some read slowly or not at all, send half of a request, bytes that are none, too many of them, one after the other
without waiting, or leave in the middle. A few ask for what they asked for alone before, and must get the same to the
byte. The server must live, keep what it has of memory and files, and be as it was when all have gone. `make
test-serve-storm` has it for the sanitizers, too.

Among the bad ones are those that try to make it stand still: long requests of every kind, whoever keeps the queue
full, texts without end for vectors, bodies without a key, bombs of gzip. With STRICT=1, on a machine that does nothing
else, /health must come within 50 ms in 99 of 100 cases, and the gaps between the tokens of a good stream must be at
most twice as long as beside as many answers without them: STRICT=1 make test-serve-storm TIME=3600.

Seen to fail: with a client's time to read its answer counted from before there was any, which cut answers off.
"""
import asyncio
import contextlib
import gzip
import json
import os
import random
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import time

from process_log import ProcessLog

os.environ["TERN_DEVICE"] = "cpu"  # also on machines with a GPU
TERN = sys.argv[1]
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 60
CLIENTS = int(sys.argv[3]) if len(sys.argv) > 3 else 1000
GOOD = max(2, CLIENTS // 40)
BODY_MAX = 2000000
STRICT = os.environ.get("STRICT", "") not in ("", "0")
PATIENCE = 120  # seconds after which something will never come
MODEL = "models/stories.gguf"
HOST = b"Host: localhost\r\n"
failures = []
counts = {}


def check(ok, *what):
    if not ok:
        failures.append(what)
        if len(failures) < 20:
            print("storm:", *(str(w)[:400] for w in what), file=sys.stderr, flush=True)
    return ok


def count(what, n=1):
    counts[what] = counts.get(what, 0) + n


def request(path, body=None, more=b""):
    if body is None:
        return b"GET " + path.encode() + b" HTTP/1.1\r\n" + HOST + more + b"\r\n"
    data = json.dumps(body).encode()
    return b"POST %s HTTP/1.1\r\n%sContent-Length: %d\r\n%s\r\n" % (path.encode(), HOST, len(data), more) + data


# ---- The server ---------------------------------------------------------------------------------


class Server:
    def __init__(self, port=0):
        if port:  # another process has started it
            self.port = port
            return
        self.log = ProcessLog()
        self.process = subprocess.Popen(
            [TERN, "serve", "-m", MODEL, "-t", "1", "--port", "0", "--parallel", "8", "--queue", str(CLIENTS // 2), "--connections", str(CLIENTS + 100),
             "--idle", "30", "--max-body", str(BODY_MAX), "--max-inflight", "64M", "--cache-memory", "32M", "-m", "models/embed.gguf"], stderr=self.log)
        end = time.time() + PATIENCE
        while not (found := re.search(r"listening \S*?(\d+) model=", self.read_log())):
            if self.process.poll() is not None or time.time() > end:
                raise SystemExit("storm: it does not start: " + self.read_log())
            time.sleep(0.02)
        self.port = int(found[1])

    def read_log(self):
        return self.log.read()

    def resident(self):
        with open("/proc/%d/statm" % self.process.pid) as f:
            return int(f.read().split()[1]) * resource.getpagesize()

    def files(self):
        return len(os.listdir("/proc/%d/fd" % self.process.pid))

    async def connect(self, receive=0, address=None):
        s = socket.socket()
        s.setblocking(False)
        if address:
            s.bind((address, 0))
        if receive:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        try:
            await asyncio.get_running_loop().sock_connect(s, ("127.0.0.1", self.port))
        except BaseException:
            s.close()
            raise
        return s

    async def ask(self, data, address=None):
        """What comes until the server closes: (status, head, body)."""
        loop, got = asyncio.get_running_loop(), b""
        with await self.connect(address=address) as s:
            await loop.sock_sendall(s, data)
            while more := await loop.sock_recv(s, 65536):
                got += more
        head, _, body = got.partition(b"\r\n\r\n")
        if b"chunked" in head:
            body = whole_of_chunks(body)
        return int(head[9:12] or 0), head, body

    async def metric(self, name):
        _, _, text = await self.ask(request("/metrics", more=b"Connection: close\r\n"))
        return float(re.search(r"^%s(?:\{model=[^}]*\})? (\S+)$" % name, text.decode(), re.M)[1])


def whole_of_chunks(data):
    out = b""
    whole = data
    while data:
        size, _, data = data.partition(b"\r\n")
        n = int(size, 16)
        if n == 0:
            return out
        out, data = out + data[:n], data[n + 2:]
    raise ValueError("the last chunk is missing: %r" % whole[-200:])


# ---- Clients that want an answer ------------------------------------------------------------------

SAMPLING = {"temperature": 0.9, "top_k": 40, "min_p": 0.05}
FRONT = "Once upon a time a little girl lived with her grandmother near a big forest, and in it "


def questions():
    """(path, body, what of the answer is said)"""
    completions = lambda a: [(c["text"], c["finish_reason"]) for c in a["choices"]] + [a["usage"]["completion_tokens"]]
    chat = lambda a: (a["choices"][0]["message"]["content"], a["choices"][0]["finish_reason"], a["usage"]["completion_tokens"])
    for i, more in enumerate(["was a fox", "a bear slept", "it was dark", "ran a river"]):
        words = FRONT + more
        user = [{"role": "user", "content": words}]
        yield "/v1/completions", dict(SAMPLING, prompt=words, max_tokens=12, seed=i, n=1 + i % 2), completions
        yield "/v1/chat/completions", dict(SAMPLING, messages=user, max_tokens=12, seed=i), chat
        yield "/v1/messages", dict(temperature=0, messages=user, max_tokens=8, model="stories"), lambda a: a["content"]
        yield "/api/chat", {"messages": user, "stream": False, "options": {"num_predict": 8, "seed": i}}, lambda a: a["message"]
    yield "/tokenize", {"content": FRONT}, lambda a: a["tokens"]
    yield "/v1/completions", dict(SAMPLING, prompt=FRONT, max_tokens=15, seed=9, stream=True), None


def said(body, what):
    if what:
        return what(json.loads(body))
    events = [json.loads(e[6:]) for e in body.decode().split("\n\n") if e.startswith("data: {")]
    return "".join(e["choices"][0]["text"] for e in events), body.endswith(b"data: [DONE]\n\n")


async def be_good(server, i, expected, end):
    """From an address of its own: clients take turns, and the bad ones are all the same to the server."""
    kinds, rng, address = list(questions()), random.Random(i), "127.0.1.%d" % (i + 1)
    while time.time() < end:
        k = rng.randrange(len(kinds))
        path, body, what = kinds[k]
        status, head, text = await server.ask(request(path, body, b"Connection: close\r\n"), address)
        if status == 429:
            count("good: told to come back")
            await asyncio.sleep(0.2 + rng.random())
        elif check(status == 200, path, status, text) and check(said(text, what) == expected[k], path, said(text, what), "and not", expected[k]):
            count("good: answered as alone")


async def time_a_stream(server, gaps, address, end):
    """How long each piece of a stream is in coming."""
    loop = asyncio.get_running_loop()
    body = dict(SAMPLING, prompt=FRONT, max_tokens=60, seed=3, stream=True, ignore_eos=True)
    while time.time() < end:
        with await server.connect(address=address) as s:
            await loop.sock_sendall(s, request("/v1/completions", body, b"Connection: close\r\n"))
            last, n = None, 0
            while more := await asyncio.wait_for(loop.sock_recv(s, 65536), PATIENCE):
                now = time.time()
                if last and n > 2:  # its beginning waits for its turn
                    gaps.append(now - last)
                last, n = now, n + more.count(b"data: ")
        await asyncio.sleep(0.2)


def middle(times, share=0.5):
    times = sorted(times)
    return times[min(len(times) - 1, int(len(times) * share))] if times else 0


async def calm(server):
    """The gaps of a stream beside as many answers as run in the storm, of clients that only ask."""
    gaps, end = [], time.time() + min(20, SECONDS / 4)
    async def ask():
        while time.time() < end:
            await server.ask(long_stream(random.Random(1)).replace(HOST, HOST + b"Connection: close\r\n"))
    others = [asyncio.create_task(ask()) for _ in range(12)]
    await time_a_stream(server, gaps, "127.0.2.1", end)
    await asyncio.gather(*others)
    return gaps


async def look_at_health(server, times, end):
    while time.time() < end:
        start = time.time()
        status, _, _ = await server.ask(request("/health", more=b"Connection: close\r\n"), "127.0.2.2")
        times.append(time.time() - start)
        check(status == 200, "/health is", status)
        await asyncio.sleep(0.1)


# ---- Clients that are bad -------------------------------------------------------------------------


def long_stream(rng):
    body = dict(SAMPLING, prompt=FRONT + str(rng.randrange(50)), max_tokens=rng.choice([20, 100, 300]), stream=True, ignore_eos=True)
    return request("/v1/completions", body)


async def read_slowly(server, loop, rng):
    with await server.connect(receive=2048) as s:
        await loop.sock_sendall(s, long_stream(rng))
        for _ in range(rng.randrange(1, 60)):
            if not await asyncio.wait_for(loop.sock_recv(s, rng.choice([1, 40, 500])), 30):
                break
            await asyncio.sleep(rng.random() * 0.5)


async def never_read(server, loop, rng):
    with await server.connect(receive=2048) as s:
        await loop.sock_sendall(s, long_stream(rng))
        await asyncio.sleep(rng.random() * 20)


async def say_nothing(server, loop, rng):
    """Or half of a request: the server closes it after --idle seconds."""
    with await server.connect() as s:
        data = long_stream(rng)
        await loop.sock_sendall(s, data[:rng.choice([0, rng.randrange(len(data))])])
        got = await asyncio.wait_for(loop.sock_recv(s, 100), PATIENCE)
        check(got == b"" or got.startswith(b"HTTP/1.1 4"), "half a request is answered", got)


async def send_slowly(server, loop, rng):
    with await server.connect() as s:
        for b in request("/tokenize", {"content": "a b"}, b"Connection: close\r\n"):
            await loop.sock_sendall(s, bytes([b]))
            await asyncio.sleep(rng.random() * 0.04)
        got = await asyncio.wait_for(loop.sock_recv(s, 4096), PATIENCE)
        check(got.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 408 ")), "what came byte by byte", got)


async def send_garbage(server, loop, rng):
    with await server.connect() as s:
        data = bytearray(long_stream(rng) * rng.choice([1, 3]))
        if rng.random() < 0.5:
            data = rng.randbytes(rng.randrange(1, 3000))
        for _ in range(rng.randrange(1, 5) if isinstance(data, bytearray) else 0):
            data[rng.randrange(len(data))] = rng.randrange(256)
        await loop.sock_sendall(s, data)
        await asyncio.sleep(rng.random())


async def send_too_much(server, loop, rng):
    with await server.connect() as s:
        kind = rng.randrange(3)
        if kind == 0:
            await loop.sock_sendall(s, b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"x" * 100000)
        elif kind == 1:
            await loop.sock_sendall(s, b"POST /tokenize HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % (BODY_MAX + 1))
        else:
            await loop.sock_sendall(s, b"POST /tokenize HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n")
            for _ in range(BODY_MAX // 4096 + 2):
                await loop.sock_sendall(s, b"1000\r\n" + b" " * 4096 + b"\r\n")
        got = await asyncio.wait_for(loop.sock_recv(s, 100), PATIENCE)
        check(re.match(rb"HTTP/1.1 4(13|31|08|29) ", got) or not got, "too much is answered with", got)


async def send_a_row(server, loop, rng):
    """Without waiting. The answers have the order of the requests, none is left out or there twice."""
    paths = [rng.choice(["/health", "/v1/models", "/none", "tokens"]) for _ in range(rng.randrange(2, 30))]
    status = {"/health": b"200", "/v1/models": b"200", "/none": b"404", "tokens": b"200"}
    data = b"".join(request("/tokenize", {"content": "a"}) if p == "tokens" else request(p) for p in paths)
    got = b""
    with await server.connect() as s:
        await loop.sock_sendall(s, data + request("/none", more=b"Connection: close\r\n"))
        while more := await asyncio.wait_for(loop.sock_recv(s, 65536), PATIENCE):
            got += more
    if got:  # else there were too many connections
        check(re.findall(rb"HTTP/1\.1 (\d+) ", got) == [status[p] for p in paths] + [b"404"], "a row", paths, got)


async def leave(server, loop, rng):
    with await server.connect() as s:
        await loop.sock_sendall(s, long_stream(rng) * rng.choice([1, 1, 4]))
        await asyncio.sleep(rng.random() * rng.choice([0.01, 1, 3]))
        way = rng.randrange(3)
        if way == 0:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        elif way == 1:
            s.shutdown(socket.SHUT_WR)
            await asyncio.wait_for(loop.sock_recv(s, 100), PATIENCE)


# ---- Clients that want it to stand still ----------------------------------------------------------


def members(n):
    return {str(i): 1 for i in range(n)}


MESSAGES = [{"role": "user", "content": "a"}]
HEAVY = [  # (path, body): what grows with a request, in every part of one
    ("/v1/chat/completions", lambda: {"messages": MESSAGES, "max_tokens": 2, "logit_bias": members(4096)}),
    ("/v1/chat/completions", lambda: {"messages": MESSAGES, "max_tokens": 2, "logit_bias": {str(i % 4096).zfill(1 + i // 4096): 1 for i in range(40000)}}),
    ("/v1/chat/completions", lambda: dict(members(120000), messages=MESSAGES, max_tokens=2)),
    ("/v1/chat/completions", lambda: {"messages": MESSAGES, "max_tokens": 2, "chat_template_kwargs": members(20000)}),
    ("/v1/chat/completions", lambda: {"messages": MESSAGES, "max_tokens": 2, "metadata": members(120000)}),
    ("/v1/chat/completions", lambda: {"messages": MESSAGES * 16384, "max_tokens": 2}),
    ("/v1/chat/completions", lambda: {"messages": [dict(members(100000), role="user", content="a")], "max_tokens": 2}),
    ("/v1/chat/completions", lambda: {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * 50000}], "max_tokens": 2}),
    ("/v1/chat/completions", lambda: {"messages": MESSAGES, "max_tokens": 2, "tools": [{"type": "function", "function": {"name": "f%d" % i}} for i in range(8000)]}),
    ("/v1/chat/completions", lambda: {"messages": MESSAGES, "max_tokens": 30, "n": 16, "logprobs": True, "top_logprobs": 20}),
    ("/v1/responses", lambda: {"input": "a", "max_output_tokens": 2, "metadata": members(120000)}),
    ("/v1/responses", lambda: {"input": [{"role": "user", "content": "a"}] * 16000, "max_output_tokens": 2}),
    ("/v1/messages", lambda: {"max_tokens": 2, "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * 40000}]}),
    ("/detokenize", lambda: {"tokens": [67] * 400000}),
    ("/tokenize", lambda: {"content": "a b " * 100000, "with_pieces": True}),
    ("/apply-template", lambda: {"messages": MESSAGES * 10000}),
    ("/v1/embeddings", lambda: {"model": "embed", "input": ["word " * 20 + str(i) for i in range(100)]}),
    ("/api/embed", lambda: {"model": "embed", "input": ["word " * 20 + str(i) for i in range(50)]}),
    ("/v1/completions", lambda: {"prompt": [5] * 500000}),
    ("/completion", lambda: {"prompt": "a", "n_predict": 2, "stop": ["x%d" % i for i in range(50000)]}),
]


heavy = []  # (path, bytes): made once, since making them takes time, too


async def ask_much(server, loop, rng):
    path, data = rng.choice(heavy)
    status, _, text = await server.ask(data)
    check(status in (200, 400, 429, 0), path, status, text)


async def ask_for_a_form(server, loop, rng):
    body = b"".join(b'--B\r\nContent-Disposition: form-data; name="k%d"\r\n\r\nx\r\n' % i for i in range(30000)) + b"--B--\r\n"
    more = b"Content-Type: multipart/form-data; boundary=B\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    status, _, text = await server.ask(b"POST /v1/audio/transcriptions HTTP/1.1\r\n" + HOST + more + body)
    check(status in (400, 429), "a form", status, text)


bombs = [gzip.compress(b"[" + b"0," * n, 1) for n in (1000, 25000000)]


async def send_a_bomb(server, loop, rng):
    body = rng.choice(bombs)
    more = b"Content-Encoding: gzip\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    status, _, text = await server.ask(b"POST /tokenize HTTP/1.1\r\n" + HOST + more + body)
    check(status in (400, 413, 429, 0), "a bomb", status, text)


async def send_most_of_a_body(server, loop, rng):
    with await server.connect() as s:
        await loop.sock_sendall(s, b"POST /v1/chat/completions HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % BODY_MAX)
        await loop.sock_sendall(s, b" " * (BODY_MAX - 1))
        await asyncio.sleep(rng.random() * 5)


async def fill_the_queue(server, loop, rng):
    waits = [server.ask(request("/v1/completions", dict(SAMPLING, prompt="a", max_tokens=20, ignore_eos=True), b"Connection: close\r\n")) for _ in range(20)]
    for status, _, text in await asyncio.gather(*waits):
        check(status in (200, 429, 0), "one of many", status, text)


BAD = [ask_much, ask_much, ask_for_a_form, send_a_bomb, send_most_of_a_body, fill_the_queue, read_slowly, read_slowly, never_read, say_nothing, say_nothing, send_slowly, send_garbage, send_too_much, send_a_row, leave, leave]


async def be_bad(server, rng, end):
    loop = asyncio.get_running_loop()
    await asyncio.sleep(rng.random() * min(5, SECONDS / 5))  # a queue of connections has an end, too
    while time.time() < end:
        kind = rng.choice(BAD)
        with contextlib.suppress(OSError):  # the server may close first
            await kind(server, loop, rng)
        count(kind.__name__.replace("_", " "))
        await asyncio.sleep(rng.random() * 0.2)


# ---- The storm ------------------------------------------------------------------------------------


async def watch(server, sizes, many, end):
    while time.time() < end:
        sizes.append(server.resident())
        many.append(server.files())
        await asyncio.sleep(0.25)


async def look_alone(server):
    """In a process of its own, which the bad clients do not keep busy: what a client waits."""
    times, gaps, end = [], [], time.time() + SECONDS
    await asyncio.gather(look_at_health(server, times, end), time_a_stream(server, gaps, "127.0.2.1", end))
    check(not failures, failures)
    print(json.dumps([times, gaps]))


async def weather(server):
    heavy.extend((path, request(path, body(), b"Connection: close\r\n")) for path, body in HEAVY)
    expected = []
    for path, body, what in questions():
        status, _, text = await server.ask(request(path, body, b"Connection: close\r\n"))
        check(status == 200, path, status, text)
        expected.append(said(text, what))
    quiet, gaps = await calm(server), []
    files, sizes, many, times = server.files(), [server.resident()], [], []
    end = time.time() + SECONDS
    bad = [asyncio.create_task(be_bad(server, random.Random(1000 + i), end)) for i in range(CLIENTS - GOOD)]
    others = [asyncio.create_task(be_good(server, i, expected, end)) for i in range(GOOD)]
    others += [asyncio.create_task(watch(server, sizes, many, end))]
    look = await asyncio.create_subprocess_exec(sys.executable, __file__, TERN, str(SECONDS), str(CLIENTS), str(server.port), stdout=subprocess.PIPE)
    waiting = set(bad + others)
    while waiting and server.process.poll() is None and time.time() < end + PATIENCE:
        done, waiting = await asyncio.wait(waiting, timeout=1)
        for task in done:
            check(task.cancelled() or task.exception() is None, "a client of the test:", repr(task))
        if time.time() > end:
            for task in waiting & set(bad):  # they all leave at once
                task.cancel()
    for task in waiting:
        task.cancel()
    check(not waiting, len(waiting), "clients wait for ever")
    if not check(server.process.poll() is None, "the server ended with", server.process.poll(), server.read_log()[-2000:]):
        return
    end = time.time() + PATIENCE  # it is as it was
    for name, value in (("tern_requests_running", 0), ("tern_requests_waiting", 0), ("tern_connections", 1)):
        while await server.metric(name) != value and time.time() < end:
            await asyncio.sleep(0.1)
        check(await server.metric(name) == value, name, "is", await server.metric(name))
    while server.files() > files and time.time() < end:  # the last connection closes, too
        await asyncio.sleep(0.1)
    check(server.files() <= files, "files are open:", server.files(), "and were", files)
    # Memory is what most clients at once took, and grows no more: its most in the last third is that of the second.
    looked, _ = await look.communicate()
    if check(look.returncode == 0, "who looks at it has failed"):
        times, gaps = json.loads(looked)
    third = len(sizes) // 3
    early, late = max(sizes[third:2 * third], default=0), max(sizes[2 * third:], default=0)
    mb = lambda n: "%.0f MB" % (n / 1e6)
    if SECONDS >= 30:
        check(late <= early * 1.1 + 8e6, "memory grows:", mb(early), mb(late))
    check(counts.get("good: answered as alone", 0) >= GOOD, "nobody is answered", counts)
    times.sort()
    print("storm: %.0f s, at most %d connections at once; memory %s before, at most %s in the second third and %s in the last" %
          (SECONDS, max(many) - files, mb(sizes[0]), mb(early), mb(late)))
    print("storm: /health asked %d times: half within %.1f ms, 99%% within %.1f ms, all within %.1f ms" %
          (len(times), *(1e3 * times[min(len(times) - 1, int(len(times) * p))] for p in (0.5, 0.99, 1))))
    print("storm: gaps of a stream, middle and 99%%: %.1f and %.1f ms, in the storm %.1f and %.1f ms" %
          tuple(1e3 * middle(g, p) for g in (quiet, gaps) for p in (0.5, 0.99)))
    if STRICT:
        check(middle(times, 0.99) <= 0.05, "/health takes", middle(times, 0.99))
        check(middle(gaps) <= 2 * middle(quiet), "gaps of streams:", middle(gaps), "and without bad clients", middle(quiet))
    print("storm:", ", ".join("%s: %d" % item for item in sorted(counts.items())))


def main():
    probe = subprocess.run([TERN, "serve", "no-such-model"], capture_output=True, text=True)
    if "without libevent" in probe.stderr:
        print("storm: skipped: built without libevent")
        return 0
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if len(sys.argv) > 4:
        asyncio.run(look_alone(Server(int(sys.argv[4]))))
        return len(failures) > 0
    server = Server()
    try:
        asyncio.run(weather(server))
        if server.process.poll() is None:
            server.process.send_signal(signal.SIGTERM)
            check(server.process.wait(PATIENCE) == 0, "exit status", server.process.returncode, server.read_log()[-3000:])
        found = re.search(r"(ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|runtime error).*", server.read_log(), re.S)
        check(not found, found and found[0][:3000])
    finally:
        server.process.kill()
    print("storm: %d clients, %d checks failed" % (CLIENTS, len(failures)))
    return len(failures) > 0


if __name__ == "__main__":
    sys.exit(main())

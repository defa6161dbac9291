#!/usr/bin/env python3
"""Servers of several models: which one a request names, and which are open.

    tests/serve/serve_folder_test.py TERN [NAME]     the tests with NAME in their names
"""
import atexit
import calendar
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import serve_test
from serve_test import LONG, MODEL, PATIENCE, PROMPT, SAMPLING, TERN, Server, begin, check, run


def folder_of_models():
    """Two that write and one that ranks."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, True)
    for name in ("a.gguf", "b.gguf"):
        shutil.copy(MODEL, os.path.join(folder, name))
    shutil.copytree("tests/oracles/bert_ranker", os.path.join(folder, "ranker"))
    return folder


def open_models(s):
    return sorted(m["name"].removesuffix(":latest") for m in json.loads(s.ask("GET", "/api/ps")[2])["models"])


def wait_for_open(s, names, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while open_models(s) != names and time.monotonic() < end:
        time.sleep(0.02)
    check(open_models(s) == names, open_models(s), "are open, and not", names)


def check_stays(s, name, since, what):
    """It is open for a second, its --keep-alive, after what happened at `since`. How long after that it goes says
    nothing: the machine may be busy."""
    end = time.monotonic() + PATIENCE
    while name in open_models(s) and time.monotonic() < end:
        time.sleep(0.02)
    check(1 <= time.monotonic() - since < PATIENCE, what, time.monotonic() - since)


def test_a_folder_of_models():
    # Seen to fail: with an alias's own name in place of what the client said; with the first of the folder for
    # requests without a name; with a broken file listed; with the folder looked through only once.
    folder = folder_of_models()
    with open(os.path.join(folder, "broken.gguf"), "wb") as f:
        f.write(open(MODEL, "rb").read(1000))
    s = Server("--alias", "gpt-4=a", "--models", folder, model=None)
    listed = json.loads(s.ask("GET", "/v1/models")[2])["data"]
    check([m["id"] for m in listed] == ["a", "b", "ranker", "gpt-4"], listed)
    check([m["capabilities"] for m in listed] == [["completion"], ["completion"], ["rerank"], ["completion"]], listed)
    check({m["status"]["value"] for m in listed} == {"unloaded"} and listed[0]["meta"]["n_params"] > 1e6, listed)
    check([m["name"] for m in json.loads(s.ask("GET", "/api/tags")[2])["models"]] == ["a:latest", "b:latest", "ranker:latest", "gpt-4:latest"])
    check('skipped model="broken"' in s.read_log() and open_models(s) == [], s.read_log())
    ask = dict(SAMPLING, prompt=PROMPT, max_tokens=20)
    text = run("-p", PROMPT, "-n", "20", "--temp", "0.9", "--seed", "7")["text"]
    for name in ("a", "gpt-4", "b", "a.gguf", "b:latest"):
        status, answer = s.post("/v1/completions", dict(ask, model=name))
        check(status == 200 and answer["choices"][0]["text"] == text and answer["model"] == name, name, answer)
    results = s.post("/v1/rerank", {"model": "ranker", "query": "w h o", "documents": ["h e n", "a n d"]})
    check(results[0] == 200 and len(results[1]["results"]) == 2, results)
    check(open_models(s) == ["a", "b", "ranker"], open_models(s))
    check(re.search(r'request id=.* model="a" opening=\d+\.\d+\n', s.read_log()), "the log tells the model", s.read_log())
    status, answer = s.post("/v1/completions", ask)
    check(status == 400 and answer["error"]["param"] == "model", answer)
    missing = "model 'c' not found"
    user = [{"role": "user", "content": "x"}]
    for path, body in {"/v1/chat/completions": {"messages": user}, "/v1/messages": {"messages": user, "max_tokens": 1},
                       "/api/chat": {"messages": user}, "/tokenize": {"content": "x"}, "/api/show": {},
                       "/v1/embeddings": {"input": "x"}}.items():
        status, answer = s.post(path, dict(body, model="c"))
        error = answer["error"] if isinstance(answer["error"], str) else answer["error"]["message"]
        check(status == 404 and error == missing, path, status, answer)
    props = json.loads(s.ask("GET", "/props?model=b")[2])
    check(props["model_alias"] == "b" and not props["is_sleeping"], props)
    check(json.loads(s.ask("GET", "/props")[2])["role"] == "router" and s.ask("GET", "/props?model=c")[0] == 404)
    slots = json.loads(s.ask("GET", "/slots")[2])
    check({x["model"] for x in slots} == {"a", "b", "ranker"} and len(slots) == 48, slots)
    check(len(json.loads(s.ask("GET", "/slots?model=gpt%2D4")[2])) == 16)
    shutil.copy(MODEL, os.path.join(folder, "c.gguf"))
    os.remove(os.path.join(folder, "b.gguf"))
    time.sleep(2.1)
    status, answer = s.post("/v1/completions", dict(ask, model="c"))
    check(status == 200 and answer["choices"][0]["text"] == text, "one that came later", answer)
    check(s.ask("GET", "/v1/models/b")[0] == 404, "one that has gone")
    wait_for_open(s, ["a", "c", "ranker"])
    s.stop()


def test_models_come_and_go():
    # Seen to fail: with a time that begins when the model was asked for; with a keep_alive that outlives the
    # opening, where the next one goes at once, too.
    s = Server("--keep-alive", "1", "-m", MODEL, "--models", folder_of_models(), "-c", "64K", model=None)
    check(set(open_models(s)) <= {"stories"}, open_models(s))  # or it has been closed: that was a second
    running = begin(s, "/v1/completions", dict(LONG, model="a"))
    running.recv(100)
    wait_for_open(s, ["a"])  # longer than a second
    status, answer = s.post("/v1/completions", dict(SAMPLING, prompt=PROMPT, max_tokens=3))
    check(status == 200 and answer["model"] == "stories", "the first is for those who name none", answer)
    since = time.monotonic()
    running.close()
    check_stays(s, "a", since, "its time begins when the stream ends")
    wait_for_open(s, [])
    loads = 'tern_model_loads_total{model="%s"}'
    together = [begin(s, "/v1/completions", dict(SAMPLING, prompt=PROMPT, max_tokens=3, model="b")) for _ in range(8)]
    for c in together:
        check(c.recv(100).startswith(b"HTTP/1.1 200 "), "one of them is not answered")
        c.close()
    check(1 <= s.metric(loads % "b") < 8 and s.metric(loads % "stories") == 2, "opened for each request")
    check(s.metric('tern_answers_total{reason="length"}') == 9, "answers")
    load = {"model": "b", "keep_alive": "10m"}
    check(s.post("/api/generate", load)[1]["done_reason"] == "load" and s.post("/api/chat", load)[0] == 200)
    time.sleep(2.2)
    check(open_models(s) == ["b"], open_models(s))
    model = json.loads(s.ask("GET", "/api/ps")[2])["models"][0]
    check(time.time() + 500 < calendar.timegm(time.strptime(model["expires_at"][:19], "%Y-%m-%dT%H:%M:%S")) < time.time() + 601, model)
    check(s.post("/api/generate", {"model": "b", "keep_alive": 0})[1]["done_reason"] == "unload")
    wait_for_open(s, [])
    check(s.post("/api/generate", {"model": "b", "keep_alive": 0})[1]["done_reason"] == "unload" and open_models(s) == [])
    check(s.post("/api/embed", {"model": "ranker", "input": "a", "keep_alive": -1})[0] == 400, "it makes no vectors")
    check("9999" in s.ask("GET", "/api/ps")[2], "for ever")
    check(s.post("/models/unload", {"model": "ranker"}) == (200, {"success": True}))
    wait_for_open(s, [])
    check(s.post("/models/unload", {"model": "ranker"})[0] == 400 and s.post("/models/load", {"model": "c"})[0] == 404)
    since = time.monotonic()
    check(s.post("/models/load", {"model": "ranker"}) == (200, {"success": True}))
    check_stays(s, "ranker", since, "it was not opened")
    check("keep_alive" in s.post("/api/chat", {"model": "b", "keep_alive": "soon"})[1]["error"])
    since = time.monotonic()
    check(s.post("/api/generate", {"model": "b", "prompt": "a", "options": {"num_predict": 2}, "stream": False})[1]["load_duration"] > 0)
    check_stays(s, "b", since, "the time of 0 was the last opening's")
    s.stop()


def test_models_share_memory():
    # Seen to fail: with a model closed that a stream uses, which ends it; with what waits for memory forgotten.
    s = Server("--models-memory", "14M", "--models", folder_of_models(), "-c", "64K", model=None)
    ask = dict(SAMPLING, prompt=PROMPT, max_tokens=20)
    first = begin(s, "/v1/completions", dict(LONG, model="a"))
    first.recv(100)
    answers = {}
    def work(name):
        answers[name] = s.post("/v1/completions", dict(ask, model=name))
    waiting = threading.Thread(target=work, args=("b",))
    waiting.start()
    state = lambda: [m["status"]["value"] for m in json.loads(s.ask("GET", "/v1/models")[2])["data"] if m["id"] == "b"]
    end = time.monotonic() + PATIENCE
    while state() != ["loading"] and time.monotonic() < end:  # it is asked for
        time.sleep(0.02)
    time.sleep(0.2)
    check(open_models(s) == ["a"] and not answers and first.recv(100), "it waits, and the stream goes on")
    later = threading.Thread(target=work, args=("a",))
    later.start()
    time.sleep(0.2)
    check(not answers, "who comes later waits for its turn")
    first.close()
    waiting.join()
    later.join()
    check([answers[n][0] for n in "ab"] == [200, 200] and answers["a"][1]["choices"] == answers["b"][1]["choices"], answers)
    check(s.metric('tern_model_loads_total{model="a"}') == 2 and open_models(s) == ["a"], "a was opened again")
    s.stop()
    s = Server("--models-memory", "1M", "--models", folder_of_models(), model=None)
    status, answer = s.post("/v1/completions", dict(ask, model="a"))
    check(status == 500 and "--models-memory is 0.00 GB" in answer["error"]["message"], status, answer)
    first = begin(s, "/v1/rerank", {"model": "ranker", "query": "w h o", "documents": ["a"]})
    check(b"200 OK" in first.recv(100), "a small one fits")
    s.stop()


def test_options_of_several_models():
    folder = folder_of_models()
    for options, status, words in [
        (["--models", folder, "--name", "x"], 2, "for one model"), ([MODEL, MODEL], 1, "both be called 'stories'"),
        (["--models", folder, "--alias", "x=c"], 1, "'c' not found"), (["--models", folder, "--alias", "x"], 1, "NAME=MODEL"),
        (["--models", folder, "--device-of", "a=tpu"], 1, "cpu, webgpu or auto"), (["--models", "/none"], 1, "no such folder"),
        ([MODEL, "--keep-alive", "soon"], 2, "--keep-alive"), (["-m", MODEL, "-m", folder + "/none.gguf"], 1, "none.gguf"),
    ]:
        out = subprocess.run([TERN, "serve", "--port", "0", *options], capture_output=True, text=True, timeout=PATIENCE)
        check(out.returncode == status and words in out.stderr, options, out.returncode, out.stderr)
    empty = tempfile.mkdtemp()
    out = subprocess.run([TERN, "serve"], env=dict(os.environ, TERN_MODELS=empty), capture_output=True, text=True, timeout=PATIENCE)
    check(out.returncode == 1 and "no models in " + empty in out.stderr, out)
    s = Server("--models", empty, model=None)  # which may fill later
    check(json.loads(s.ask("GET", "/v1/models")[2])["data"] == [] and s.ask("GET", "/health")[0] == 200)
    check("there is no model here" in s.post("/v1/completions", {"prompt": "a"})[1]["error"]["message"])
    s.stop()
    os.rmdir(empty)
    s = Server("--device-of", "b=cpu", folder + "/a.gguf", folder + "/b.gguf", model=None)
    check(open_models(s) == ["a"] and s.post("/tokenize", {"model": "b", "content": "x"})[0] == 200)
    check(open_models(s) == ["a", "b"], open_models(s))
    s.stop()


def main():
    if not serve_test.can_serve():
        print("serve folder: skipped: built without libevent")
        return 0
    n = serve_test.run_tests((test_a_folder_of_models, test_models_come_and_go, test_models_share_memory,
                             test_options_of_several_models))
    print("serve folder: %d tests, %d checks failed" % (n, serve_test.failures))
    return serve_test.failures != 0


if __name__ == "__main__":
    sys.exit(main())

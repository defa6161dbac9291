#!/usr/bin/env python3
"""tern pull, list, show, rm against a hub of its own (fake_hub.py): no network.

    tests/hub_test.py TERN [NAME]     the tests with NAME in their names

What was seen to fail stands beside each check. Without libcurl in the program only what needs no hub runs.
"""
import json
import os
import queue
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
os.environ["TERN_DEVICE"] = "cpu"  # also on machines with a GPU
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fake_hub import FakeHub
from terminal import Terminal

TERN = os.path.abspath(sys.argv[1])
STORIES = open("models/stories.gguf", "rb").read()
failures = 0


def check(ok, *what):
    global failures
    if not ok:
        failures += 1
        print("hub:", *(str(w)[:600] for w in what))


class Place:
    """A models folder and a hub, and tern between them."""

    def __init__(self, hub, folder):
        self.hub, self.folder = hub, folder

    def tern(self, *args, env=None, **kw):
        variables = {"PATH": os.environ["PATH"], "HOME": self.folder, "TERN_MODELS": self.folder,
                     "HF_ENDPOINT": self.hub.url,
                     "TERN_DEVICE": "cpu", **(env or {})}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LD_LIBRARY_PATH"):
            if name in os.environ:
                variables[name] = os.environ[name]
        return subprocess.run([TERN, *args], env=variables, capture_output=True, text=True, timeout=120, **kw)

    def pull(self, *args, ok=True, **kw):
        done = self.tern("pull", "--retries", "1", *args, **kw)
        check((done.returncode == 0) == ok, args, done.returncode, done.stdout, done.stderr)
        check(ok or done.stderr.startswith("tern: ") and done.stderr.count("\n") == 1, "one line", done.stderr)
        return done.stdout.strip() if ok else done.stderr

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def files(self):
        return sorted(os.path.relpath(os.path.join(at, f), self.folder) for at, _, files in os.walk(self.folder) for f in files)

    def read(self, *parts):
        with open(self.path(*parts), "rb") as f:
            return f.read()


def part(n, seed=1):
    """Bytes that differ everywhere."""
    return random.Random(seed).randbytes(n)


def test_pull_names_and_run(p):
    # Seen to fail: without the file's type in its name; with the label not in capitals.
    p.hub.add("own/Tiny-GGUF", {"README.md": b"hello", "tiny-q4_k_m.gguf": STORIES, "tiny-F16.gguf": part(1000),
                                "mmproj-F16.gguf": STORIES})  # no tower: it is there and not taken
    check(p.pull("hf:own/Tiny-GGUF") == "own/Tiny-GGUF:Q4_K_M", "the type that is preferred")
    check(p.files() == ["own/Tiny-GGUF/mmproj-F16.gguf", "own/Tiny-GGUF/tiny-q4_k_m.gguf"], p.files())
    check(p.read("own/Tiny-GGUF/tiny-q4_k_m.gguf") == STORIES, "another content")
    for name in ("own/Tiny-GGUF:Q4_K_M", "tiny:q4_k_m", "Tiny-GGUF", "tiny", "tiny-q4_k_m", "tiny-q4_k_m.gguf",
                 "hf:own/Tiny-GGUF", "hf.co/own/Tiny-GGUF:q4_k_m", "hf:own/Tiny-GGUF/tiny-q4_k_m.gguf",
                 "https://huggingface.co/own/Tiny-GGUF", "own/tiny-gguf:latest"):
        shown = json.loads(p.tern("show", name, "--json").stdout or "{}")
        check(shown.get("path") == p.path("own/Tiny-GGUF/tiny-q4_k_m.gguf"), name, shown)
    check(shown["kind"] == "language" and shown["context"] == 1024, shown)
    ran = p.tern("run", "-m", "tiny", "-p", "Once", "-n", "4", "--seed", "1")
    check(ran.returncode == 0 and ran.stdout, ran.stderr)
    check("Q4_K_M" in p.tern("list").stdout and len(json.loads(p.tern("list", "--json").stdout)) == 1, "list")
    # Nothing comes twice.
    p.hub.log.clear()
    check(p.pull("own/Tiny-GGUF:Q4_K_M").endswith("(nothing new)"), "it comes again")
    check(all(kind == "hub" for kind, *_ in p.hub.log), p.hub.log)
    # By type, in any case; one that is not there is told with what there is.
    check(p.pull("hf:own/tiny-gguf:f16", ok=False).find("404") > 0, "repositories have their own case")
    check(p.pull("hf:own/Tiny-GGUF:f16") == "own/Tiny-GGUF:F16", "by type")
    refusal = p.pull("hf:own/Tiny-GGUF:Q8_0", ok=False)
    check("no GGUF file of type Q8_0" in refusal and "tiny-F16.gguf" in refusal, refusal)
    both = p.tern("show", "tiny").stderr
    check("may be any of 2 models" in both, "an ambiguous name", both)


def test_what_sees_comes_along(p):
    # Seen to fail: with the last one of several types; without the one of its name, in the hub and beside a model; with
    # nothing removed but the model, and with all removed that lies in the models folder itself.
    made = p.path("../made")
    os.mkdir(made)
    for type in ("bf16", "q8_0"):
        done = p.tern("convert", "tests/oracles/qwen3vl_sees", f"{made}/vl-{type}.gguf", "--type", type)
        check(done.returncode == 0, done.stderr)
    files = {name: open(os.path.join(made, name), "rb").read() for name in os.listdir(made)}
    shutil.rmtree(made)
    files["mmproj-F16.gguf"] = files.pop("mmproj-vl-bf16.gguf")
    files["mmproj-F32.gguf"], files["other/mmproj-F16.gguf"] = part(9), part(9)
    p.hub.add("own/vl-GGUF", files)
    check(p.pull("hf:own/vl-GGUF:bf16") == "own/vl-GGUF:BF16", "its name is the model's")
    check(p.files() == ["own/vl-GGUF/mmproj-F16.gguf", "own/vl-GGUF/vl-bf16.gguf"], p.files())
    came = [path for kind, path, *_ in p.hub.log if kind == "cdn"]
    check(came[-1].endswith("vl-bf16.gguf"), "what is listed is whole: the model comes last", came)
    image = ("--image", "tests/oracles/qwen3vl_sees/image.png", "-p", "What is it?", "-n", "10", "--temp", "0", "--json")
    ran = p.tern("run", "-m", "vl:bf16", *image)
    said = '"ids":[220,220,220,37,135,135,135,135,135,135]'  # by numpy
    check(said in ran.stdout, ran.stdout, ran.stderr)
    p.pull("hf:own/vl-GGUF/vl-q8_0.gguf")
    check("own/vl-GGUF/mmproj-vl-q8_0.gguf" in p.files() and "own/vl-GGUF/mmproj-F32.gguf" not in p.files(),
          "the one of its name", p.files())
    check(p.tern("run", "-m", "vl:q8_0", *image).returncode == 0, "q8_0")
    check(said in p.tern("run", "-m", "vl:bf16", *image).stdout, "a second model's takes the first one's away")
    check(len(json.loads(p.tern("list", "--json").stdout)) == 2, "what sees is no model of its own")
    p.tern("rm", "vl:q8_0")
    check(p.files() == ["own/vl-GGUF/mmproj-F16.gguf", "own/vl-GGUF/vl-bf16.gguf"], p.files())
    p.tern("rm", "vl")
    check(not os.listdir(p.folder), p.files())
    p.pull("hf:own/vl-GGUF:bf16", "--text-only")
    check(p.files() == ["own/vl-GGUF/vl-bf16.gguf"], p.files())
    # In the models folder itself files of people lie beside each other.
    for name, content in (("a.gguf", STORIES), ("mmproj-a.gguf", part(5)), ("mmproj-b.gguf", part(6))):
        open(p.path(name), "wb").write(content)
    p.tern("rm", "a")
    check(os.path.exists(p.path("mmproj-b.gguf")) and not os.path.exists(p.path("mmproj-a.gguf")), p.files())


def test_list_and_remove(p):
    # Seen to fail: a folder left that held nothing; --models-dir not read.
    p.hub.add("own/a", {"a-Q8_0.gguf": part(5000), "a-Q4_0.gguf": part(6000)})
    p.pull("hf:own/a:Q8_0")
    p.pull("hf:own/a:Q4_0")
    shutil.copytree("tests/oracles/bert", p.path("bert"), ignore=shutil.ignore_patterns("*.gguf", "golden*"))
    rows = {r["name"]: r for r in json.loads(p.tern("list", "--json").stdout)}
    check(sorted(rows) == ["bert", "own/a:Q4_0", "own/a:Q8_0"], rows)
    check(rows["own/a:Q8_0"]["bytes"] == 5000 and rows["bert"]["kind"] == "embedding", rows)
    check(p.tern("rm", "a:q8_0", "bert").returncode == 0, "rm")
    check(p.files() == ["own/a/a-Q4_0.gguf"], p.files())
    check(p.tern("rm", "a").returncode == 0 and os.listdir(p.folder) == [], os.listdir(p.folder))
    check(p.tern("rm", "a").returncode == 1, "a name that is not there")
    outside = p.path("../outside.gguf")
    open(outside, "wb").write(b"x")
    check(p.tern("rm", outside).returncode == 1 and os.path.exists(outside), "rm takes no paths")
    os.remove(outside)
    check(p.tern("list", "--models-dir", "models").stdout.startswith("NAME") and
          "stories" in p.tern("list", "--models-dir", "models").stdout, "--models-dir")


def test_folder_and_parts(p):
    # Seen to fail: config.json brought first; the modules of an embedding model left out.
    folder = {}
    for at, _, files in os.walk("tests/oracles/bert"):
        for f in files:
            if f != "model.gguf":
                folder[os.path.relpath(os.path.join(at, f), "tests/oracles/bert")] = open(os.path.join(at, f), "rb").read()
    folder.update({"README.md": b"x", "onnx/model.onnx": b"y"})
    p.hub.add("own/bert", folder)
    p.hub.small = {"config.json", "modules.json", "1_Pooling/config.json"}
    check(p.pull("hf:own/bert@refs/pr/1") == "own/bert@refs-pr-1", "the name of another revision")
    check(p.files() == ["own/bert@refs-pr-1/" + f for f in ("1_Pooling/config.json", "config.json", "model.safetensors",
                                                          "modules.json")], p.files())
    came = [path for kind, path, *_ in p.hub.log if kind == "cdn"]
    check(came[-1].endswith("c0ffee/config.json"), "config.json makes it a model: it comes last", came)
    check(p.tern("embed", "bert@refs-pr-1", "--help").returncode == 0, "embed")
    split = {f"q/m-Q8_0-0000{i}-of-00003.gguf": part(3000 + i, i) for i in (1, 2, 3)}
    p.hub.add("own/split", split)
    check(p.pull("hf:own/split:q8_0") == "own/split:Q8_0", "a split set")
    came = [path for kind, path, *_ in p.hub.log if kind == "cdn"][-3:]
    check(came[-1].endswith("00001-of-00003.gguf") and len(came) == 3, "its first part comes last", came)
    row = [r for r in json.loads(p.tern("list", "--json").stdout) if r["name"] == "own/split:Q8_0"]
    check(row and row[0]["bytes"] == sum(map(len, split.values())), row)
    os.remove(p.path("own/split/q/m-Q8_0-00002-of-00003.gguf"))
    check("split" not in p.tern("list").stdout, "a set with a hole is no model")
    p.pull("hf:own/split/q/m-Q8_0-00001-of-00003.gguf")
    check(p.tern("rm", "split").returncode == 0 and not os.path.exists(p.path("own/split")), p.files())


def test_cut_and_resume(p):
    # Seen to fail: with the digest begun anew after a cut; with "from" not sent; with a part that is
    # named by the file rather than its content.
    content = part(900000)
    p.hub.add("own/big", {"big-Q8_0.gguf": content})
    p.hub.cuts = [300000, 1 << 30]
    check(p.pull("hf:own/big") == "own/big:Q8_0", "one pull lives through a cut")
    check(p.hub.sent == len(content), "bytes came twice", p.hub.sent)
    p.tern("rm", "big")
    p.hub.reset()
    p.hub.cuts = [100000, 0, 0]
    told = p.pull("hf:own/big", ok=False)
    check("of 900000 bytes are there" in told and "goes on from there" in told, told)
    check(len(p.files()) == 1 and "/.tern-pull/" in p.files()[0], p.files())
    check("big" not in p.tern("list").stdout, "a part is no model")
    have = os.path.getsize(p.path(p.files()[0]))
    p.hub.reset()
    p.pull("hf:own/big")
    check(p.hub.log[-1][3] == f"bytes={have}-", "it does not go on", p.hub.log)
    check(p.read("own/big/big-Q8_0.gguf") == content, "another content")
    check(p.files() == ["own/big/big-Q8_0.gguf"], p.files())
    # A server that knows no ranges sends all of it again; a part of another content is not used.
    p.tern("rm", "big")
    p.hub.reset()
    p.hub.cuts, p.hub.ranges = [500000, 1 << 30], False
    p.pull("hf:own/big")
    check(p.read("own/big/big-Q8_0.gguf") == content, "without ranges")
    p.hub.reset()
    p.hub.add("own/big", {"big-Q8_0.gguf": part(900000, 7)})
    p.pull("hf:own/big")
    check(p.read("own/big/big-Q8_0.gguf") == part(900000, 7), "the hub has a new one")


def test_killed(p):
    # Seen to fail: with the new file written in the place of the old one.
    old, new = part(400000, 3), part(3000000, 4)
    p.hub.add("own/k", {"k-Q8_0.gguf": old})
    p.pull("hf:own/k")
    p.hub.add("own/k", {"k-Q8_0.gguf": new})
    started = queue.Queue()

    def stop_at(n, number):  # the hub sends nothing more until the child is gone, however busy the machine
        def pause(at):
            if at < n or stopped:
                time.sleep(0.001)
            else:
                stopped.append(started.get(timeout=60))
                stopped[0].send_signal(number)
                stopped[0].wait(60)
        stopped = []
        return pause

    p.hub.pause = stop_at(1000000, signal.SIGKILL)
    child = subprocess.Popen([TERN, "pull", "hf:own/k"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             env={"TERN_MODELS": p.folder, "HF_ENDPOINT": p.hub.url, "PATH": os.environ["PATH"]})
    started.put(child)
    check(child.wait(60) == -signal.SIGKILL, "it was to be killed", child.returncode)
    check(p.read("own/k/k-Q8_0.gguf") == old, "what was there is lost: killed")
    p.hub.reset()
    p.pull("hf:own/k")
    check(p.read("own/k/k-Q8_0.gguf") == new and p.hub.sent < len(new), "it does not go on", p.hub.sent)
    check(p.files() == ["own/k/k-Q8_0.gguf"], p.files())
    p.hub.add("own/k", {"k-Q8_0.gguf": old})
    p.hub.pause = stop_at(0, signal.SIGTERM)  # a process in the background may not hear of SIGINT
    child = subprocess.Popen([TERN, "pull", "hf:own/k"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                             env={"TERN_MODELS": p.folder, "HF_ENDPOINT": p.hub.url, "PATH": os.environ["PATH"]})
    started.put(child)
    told = child.communicate(timeout=60)[1]
    check(child.returncode == 1 and "stopped; what came stays" in told, child.returncode, told)
    check(p.read("own/k/k-Q8_0.gguf") == new, "what was there is lost: interrupted")


def test_short_names(p):
    # Seen to fail: without the table a short name was no name at all; with a repository's types mixed up; a question on
    # a pipe, which waited for an answer; a mistyped path that was told to the hub.
    p.hub.add("Qwen/Qwen3-0.6B-GGUF", {"Qwen3-0.6B-Q8_0.gguf": STORIES, "Qwen3-0.6B-F16.gguf": part(9)})
    rows = p.tern("pull", "--list").stdout.split("\n")
    row = [r for r in rows if r.startswith("qwen3:0.6b ")]
    check(row and "640 MB" in row[0] and "Apache-2.0" in row[0] and "Qwen/Qwen3-0.6B-GGUF:Q8_0" in row[0], rows)
    check(len([r for r in rows if r]) > 15 and all("/" in r and " B " in r + " B " for r in rows[1:] if r), rows)
    told = p.tern("run", "qwen3:0.6b", "Once", stdin=subprocess.DEVNULL)
    check(told.returncode == 1 and "`tern pull qwen3:0.6b` gets it (about 640 MB, licence Apache-2.0)" in told.stderr, told)
    check(not p.hub.log, "the hub was asked without a yes", p.hub.log)
    told = p.tern("run", "models/nothing", "Once", stdin=subprocess.DEVNULL)
    check(told.returncode == 1 and not p.hub.log and "-y" not in told.stderr, told, p.hub.log)
    ran = p.tern("run", "-y", "QWEN3:0.6B", "Once", "-n", "4", "--seed", "1", stdin=subprocess.DEVNULL)
    check(ran.returncode == 0 and "11 MB, licence apache-2.0" in ran.stderr, ran)
    check(p.files() == ["Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf"], p.files())
    p.hub.log.clear()
    for name in ("qwen3:0.6b", "qwen3", "qwen3:latest", "Qwen/Qwen3-0.6B-GGUF:Qwen3-0.6B-Q8_0.gguf"):
        shown = json.loads(p.tern("show", name, "--json").stdout or "{}")
        check(shown.get("path") == p.path("Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf"), name, shown)
    check(not p.hub.log, p.hub.log)
    check(p.pull("qwen3:0.6b").endswith("(nothing new)"), "a short name is pulled again")
    check(p.tern("rm", "qwen3:0.6b").returncode == 0 and not p.files(), p.files())


def test_hf_option(p):
    # -hf, as llama.cpp has it: no question. Seen to fail: the text behind it was taken for the model.
    p.hub.add("own/two-GGUF", {"two-Q4_K_M.gguf": STORIES, "two-Q8_0.gguf": part(99)})
    said = p.tern("run", "models/stories.gguf", "Once upon a time", "-n", "4", "--temp", "0", stdin=subprocess.DEVNULL).stdout
    for args in (("own/two-GGUF",), ("own/two-GGUF:Q4_K_M",), ("own/two-GGUF:two-Q4_K_M.gguf",)):
        ran = p.tern("run", "-hf", *args, "Once upon a time", "-n", "4", "--temp", "0", stdin=subprocess.DEVNULL)
        check(ran.returncode == 0 and ran.stdout == said != "", args, ran)
    check(sum(kind == "cdn" for kind, *_ in p.hub.log) == 1, "it came more than once", p.hub.log)
    for command in (("tokenize", "-hf", "own/two-GGUF", "Once"), ("inspect", "-hf", "own/two-GGUF"),
                    ("graph", "--hf-repo", "own/two-GGUF"), ("embed", "-hf", "own/two-GGUF", "x", "--pooling", "mean"),
                    ("convert", "-hf", "own/two-GGUF", p.path("out.gguf"), "--type", "tq2_0")):
        done = p.tern(*command, stdin=subprocess.DEVNULL)
        check(done.returncode == 0, command, done)
    told = p.tern("run", "-hf", "own/none", "x", stdin=subprocess.DEVNULL)
    check(told.returncode == 1 and "404" in told.stderr and told.stderr.count("\n") == 1, told)


def on_terminal(p, keys, *args):
    """What tern says on a terminal on which these keys are typed as soon as it asks, and its status."""
    t = Terminal([TERN, *args], env={"HOME": p.folder, "TERN_MODELS": p.folder, "HF_ENDPOINT": p.hub.url, "TERM": "dumb"})
    if t.read_until(r"\[y/N\]"):
        t.type(keys)
    status = t.end()
    return t.text, status


def test_offer(p):
    # Seen to fail: "no such file or folder" where the hub has it.
    p.hub.add("own/offer-GGUF", {"offer-Q8_0.gguf": STORIES})
    for keys in (b"n\r", b"\r", b"\x04"):
        said, status = on_terminal(p, keys, "run", "own/offer-GGUF", "Once", "-n", "4")
        check(status == 1 and "own/offer-GGUF, offer-Q8_0.gguf (11 MB, licence apache-2.0)" in said, said)
        check("not downloaded" in said and not p.files(), said, p.files())
    said, status = on_terminal(p, b"y\r", "run", "own/offer-GGUF", "Once", "-n", "4", "--temp", "0")
    check(status == 0 and p.files() == ["own/offer-GGUF/offer-Q8_0.gguf"], said, p.files())
    p.hub.tags = []
    said, status = on_terminal(p, b"n\r", "chat", "hf:own/offer-GGUF:q8_0@v1")
    check("no licence named" in said, said)


def test_token(p):
    # Seen to fail: with the token sent to whatever address the hub leads to.
    p.hub.add("own/secret", {"s-Q8_0.gguf": part(2000)})
    p.hub.token = "hf_secret"
    told = p.pull("hf:own/secret", ok=False)
    check("401" in told and "HF_TOKEN" in told, told)
    told = p.pull("hf:own/secret", "--token", "wrong", ok=False)
    check("does not take the token" in told and "Invalid username" in told, told)
    check("wrong" not in told, "the token is told")
    check(not p.files(), p.files())
    p.hub.log.clear()
    p.pull("hf:own/secret", env={"HF_TOKEN": "hf_secret"})
    check({(kind, token) for kind, _, token, _ in p.hub.log} == {("hub", "Bearer hf_secret"), ("cdn", None)}, p.hub.log)


def test_refusals(p):
    # Seen to fail: without the checksum; with the answer's status not looked at; with a name taken as it is.
    p.hub.add("own/r", {"r-Q8_0.gguf": part(3000)})
    check("404" in p.pull("hf:own/nothing", ok=False), "no repository")
    check("404" in p.pull("hf:own/r@v9", ok=False), "no revision")
    check("no file 'x.gguf'" in p.pull("hf:own/r/x.gguf", ok=False), "no file")
    check("not a short name" in p.pull("nonsense", ok=False), "no name")
    check("not of the form" in p.pull("hf:../../etc", ok=False), "a path for a name")
    check(not p.files(), p.files())
    p.hub.wrong = "0" * 64
    told = p.pull("hf:own/r", ok=False)
    check("wrong checksum" in told and "it was removed" in told and not p.files(), told, p.files())
    p.hub.reset()
    for status, word in ((403, "licence"), (500, "answers 500"), (404, "404")):
        p.hub.status = status
        told = p.pull("--retries", "0", "hf:own/r", ok=False)
        check(word in told and "as the test wants it" in told, status, told)
    p.hub.reset()
    for address in ("file:///etc/passwd", "ftp://127.0.0.1/x", p.hub.url + "/own/r/resolve/c0ffee/r-Q8_0.gguf"):
        p.hub.leads_to = address
        check("it leads" in p.pull("hf:own/r", ok=False), address)
    p.hub.reset()
    for name in ("../../out-Q8_0.gguf", "/tmp/out-Q8_0.gguf", "a/../../out-Q8_0.gguf", ".tern-pull/out-Q8_0.gguf",
                 "a\\..\\out-Q8_0.gguf", "a//out-Q8_0.gguf", "a\nout-Q8_0.gguf"):
        p.hub.add("own/evil", {name: part(100)})
        told = p.pull("hf:own/evil:Q8_0", ok=False)
        check("is not written here" in told, name, told)
        check(not any(kind == "cdn" for kind, *_ in p.hub.log), "it was fetched", p.hub.log)
    check(not p.files() and not os.path.exists(p.path("../out-Q8_0.gguf")), p.files())
    told = p.pull("--retries", "0", "--endpoint", "http://127.0.0.1:9", "hf:own/r", ok=False)
    check("127.0.0.1" in told, told)


def test_full_disk(p):
    # Seen to fail: with the result of the write not looked at.
    p.hub.add("own/full", {"f-Q8_0.gguf": part(3 << 20)})
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    told = p.pull("hf:own/full", ok=False, preexec_fn=limit)
    check("File too large" in told, told)
    p.hub.reset()
    p.pull("hf:own/full")
    check(p.hub.log[-1][3] == f"bytes={1 << 20}-", "it does not go on", p.hub.log)
    p.hub.add("own/huge", {"h-Q8_0.gguf": Huge()})
    check("the disk has room for" in p.pull("hf:own/huge", ok=False), "a disk that is too small")


class Huge(bytes):  # only in the listing
    def __len__(self):
        return 1 << 50


def main():
    built_with_curl = "built without libcurl" not in subprocess.run([TERN, "pull", "hf:a/b", "--endpoint", "http://127.0.0.1:9"],
                                                                    capture_output=True, text=True).stderr
    if not built_with_curl:
        print("hub: this tern has no libcurl: ITS PULLS ARE NOT TESTED")
        return
    wanted = sys.argv[2] if len(sys.argv) > 2 else ""
    for name, test in list(globals().items()):
        if not name.startswith("test_") or wanted not in name:
            continue
        with FakeHub() as hub, tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "models"))
            test(Place(hub, os.path.join(folder, "models")))
    print("hub:", "failed" if failures else "ok")
    sys.exit(1 if failures else 0)


main()

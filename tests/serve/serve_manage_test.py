#!/usr/bin/env python3
"""Models that clients pull, make, copy and delete, as Ollama's clients and Open WebUI's page of models ask for it.

    tests/serve/serve_manage_test.py TERN [NAME]     the tests with NAME in their names
"""
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import serve_test
from fake_hub import FakeHub
from serve_test import MODEL, Server, check

SAY = [{"role": "user", "content": "Write a story about a fox."}]


class Folder:
    """A server of a folder with one model."""

    def __init__(self, *options, hub=None):
        self.folder = tempfile.TemporaryDirectory()
        self.path = self.folder.name
        shutil.copy(MODEL, os.path.join(self.path, "stories.gguf"))
        os.environ["HF_ENDPOINT"] = hub.url if hub else "http://127.0.0.1:1"
        self.server = Server("--models", self.path, *options, model=None)

    def __enter__(self):
        return self.server, self.path

    def __exit__(self, *args):
        self.server.stop()
        self.folder.cleanup()


def names(s):
    return [m["name"] for m in json.loads(s.ask("GET", "/api/tags")[2])["models"]]


def lines(s, path, body, method="POST", **kw):
    status, headers, text = s.ask(method, path, body, **kw)
    return status, [json.loads(line) for line in text.splitlines()]


def delete(s, name, **kw):
    return s.ask("DELETE", "/api/delete", {"model": name}, **kw)[0]


def test_presets():
    # A name with a system message, messages and parameters, in every interface. Seen to fail with 404; with the request's own
    # parameters replaced; with a preset of a preset without what the first has; after a restart.
    parameters = {"temperature": 0, "num_predict": 5, "stop": ["zebra"], "num_ctx": 512}
    talk = [{"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}]
    create = {"model": "Fox:latest", "from": "stories", "system": "Be brief.", "messages": talk, "parameters": parameters, "license": "MIT"}
    with Folder() as (s, folder):
        check(lines(s, "/api/create", create) == (200, [{"status": "writing manifest"}, {"status": "success"}]))
        check(s.post("/api/create", {"name": "own/second:x", "from": "fox", "stream": False, "parameters": {"temperature": 0, "num_predict": 2}}) == (200, {"status": "success"}))
        check(s.ask("POST", "/api/copy", {"source": "fox", "destination": "third"})[0] == 200)
        check(names(s) == ["stories:latest", "Fox:latest", "own/second:x", "third:latest"], names(s))
        whole = [{"role": "system", "content": "Be brief."}, *talk, *SAY]
        wanted = s.post("/api/chat", {"model": "stories", "messages": whole, "stream": False, "options": {"temperature": 0, "num_predict": 5}})[1]
        for name in ("fox", "FOX:latest", "third"):
            got = s.post("/api/chat", {"model": name, "messages": SAY, "stream": False})[1]
            check(got["message"] == wanted["message"] and got["prompt_eval_count"] == wanted["prompt_eval_count"] and got["model"] == name, name, got)
        check(s.post("/api/chat", {"model": "own/second:x", "messages": SAY, "stream": False})[1]["eval_count"] == 2, "its own parameters")
        more = s.post("/api/chat", {"model": "fox", "messages": [{"role": "system", "content": "x"}, *SAY], "stream": False, "options": {"num_predict": 3}})[1]
        check(more["eval_count"] == 3 and more["prompt_eval_count"] == s.post("/api/chat", {"model": "stories", "messages": [*talk, {"role": "system", "content": "x"}, *SAY],
              "stream": False, "options": {"num_predict": 3}})[1]["prompt_eval_count"], more)
        text = wanted["message"]["content"]
        chat = s.post("/v1/chat/completions", {"model": "fox", "messages": SAY})[1]
        check(chat["choices"][0]["message"]["content"] == text and chat["choices"][0]["finish_reason"] == "length", chat)
        long = s.post("/v1/chat/completions", {"model": "fox", "messages": [{"role": "user", "content": "a fox " * 3000}]})  # read away
        check(long[0] == 400 and "context" in long[1]["error"]["message"], long)
        for path, body, of in (("/v1/responses", {"input": SAY[0]["content"]}, lambda r: r["output"][0]["content"][0]["text"]),
                               ("/v1/responses", {"input": SAY}, lambda r: r["output"][0]["content"][0]["text"]),
                               ("/v1/messages", {"messages": SAY, "max_tokens": 5}, lambda r: r["content"][0]["text"])):
            status, got = s.post(path, dict(body, model="fox"))
            check(status == 200 and of(got) == text, path, got)
        system = s.post("/api/generate", {"model": "stories", "prompt": SAY[0]["content"], "system": "Be brief.", "stream": False, "options": {"temperature": 0, "num_predict": 5}})[1]
        check(s.post("/api/generate", {"model": "fox", "prompt": SAY[0]["content"], "stream": False})[1]["response"] == system["response"])
        check(s.post("/completion", {"model": "fox", "prompt": "Once"})[1]["tokens_predicted"] == 5)
        check(s.post("/completion", {"model": "fox", "prompt": "Once", "n_predict": 3})[1]["tokens_predicted"] == 3)
        shown = s.post("/api/show", {"model": "fox"})[1]
        check(shown["system"] == "Be brief." and shown["license"] == "MIT" and shown["messages"] == talk and shown["details"]["parent_model"] == "stories", shown)
        check("temperature 0\n" in shown["parameters"] and 'stop "zebra"' in shown["parameters"] and shown["modelfile"].startswith("FROM stories\n"), shown)
        check(any(m["id"] == "Fox" for m in json.loads(s.ask("GET", "/v1/models")[2])["data"]))
        for wrong, status, words in (({"from": "nobody"}, 404, "not found"), ({"from": None}, 400, "'from'"), ({"model": "../x"}, 400, "'model'"),
                                     ({"model": "/x"}, 400, "'model'"), ({"model": "a/../b"}, 400, "'model'"), ({"model": "a//b"}, 400, "'model'"),
                                     ({"model": ".x"}, 400, "'model'"), ({"model": "x" * 121}, 400, "'model'"), ({"model": "a\u0000b"}, 400, "model"),
                                     ({"model": "stories"}, 400, "there is a model of this name"), ({"template": "{{ .Prompt }}"}, 400, "'template'"),
                                     ({"files": {"a": "sha256:0"}}, 400, "'from'"), ({"quantize": "q4_0"}, 400, "'quantize'"),
                                     ({"adapters": {"a": "b"}}, 400, "'adapters'"), ({"parameters": {"magic": 1}}, 400, "parameters.magic"),
                                     ({"parameters": {"top_k": "x"}}, 400, "parameters.top_k"), ({"messages": [{"role": "x", "content": "y"}]}, 400, "messages.role"),
                                     ({"system": 5}, 400, "'system'"), ({"system": "x" * 300000}, 400, "bytes")):
            status_is, got = s.post("/api/create", dict(create, **{"model": "new", "stream": False, **wrong}))
            check(status_is == status and words in got["error"], wrong, got)
        check(s.ask("POST", "/api/copy", {"source": "nobody", "destination": "x"})[0] == 404)
        check(s.ask("POST", "/api/push", {"model": "fox"})[0] == 501)
        check(sorted(os.listdir(folder)) == [".presets", "stories.gguf"] and len(os.listdir(os.path.join(folder, ".presets"))) == 3, os.listdir(folder))
        other = Server("--models", folder, model=None)  # as after a restart
        check(names(other) == names(s) and other.post("/api/chat", {"model": "fox", "messages": SAY, "stream": False})[1]["message"] == wanted["message"])
        other.stop()
        check(delete(s, "fox") == 200 and delete(s, "fox") == 404 and "Fox:latest" not in names(s), names(s))
        check(s.post("/api/chat", {"model": "third", "messages": SAY, "stream": False})[1]["message"] == wanted["message"], "a copy stays")
        check(delete(s, "storie") == 404 and delete(s, "") == 400 and delete(s, "stories:latest") == 200, "exactly its name")
        check(names(s) == [] and not os.path.exists(os.path.join(folder, "stories.gguf")), names(s))


def test_pulling():
    # Progress as Open WebUI draws it. Seen to fail: with a file's digest left out; with the model listed only after a restart;
    # with a hub of the client's choice.
    with FakeHub() as hub, open(MODEL, "rb") as model:
        content = model.read()
        hub.add("own/tiny-GGUF", {"tiny-Q4_K_M.gguf": content})
        hub.add("own/bad-GGUF", {"bad-Q4_K_M.gguf": content})
        with Folder(hub=hub) as (s, folder):
            status, got = lines(s, "/api/pull", {"model": "hf.co/own/tiny-GGUF:Q4_K_M"})
            check(status == 200 and got[-1] == {"status": "success"} and got[0]["status"].startswith(("pulling", "verifying")), got)
            files = [line for line in got if "digest" in line]
            check(files and all(f["digest"].startswith("sha256:") and 0 <= f["completed"] <= f["total"] == len(content) for f in files), files)
            check(names(s)[0] == "own/tiny-GGUF:Q4_K_M" and s.post("/api/chat", {"model": names(s)[0], "messages": SAY, "stream": False,
                  "options": {"num_predict": 2}})[0] == 200, names(s))
            check(s.post("/api/pull", {"name": "hf.co/own/tiny-GGUF:Q4_K_M", "stream": False}) == (200, {"status": "success"}), "again")
            status, got = lines(s, "/api/pull", {"model": "hf.co/own/none:latest"})
            check("no such repository" in got[-1]["error"], got)
            hub.wrong = "0" * 64
            check("wrong checksum" in lines(s, "/api/pull", {"model": "hf.co/own/bad-GGUF"})[1][-1]["error"])
            hub.wrong = None
            asked = len(hub.log)
            for name in ("llama9000", "http://127.0.0.1:1/own/bad-GGUF", "../../etc", "hf.co/../x", "a\nb"):
                status, got = s.post("/api/pull", {"model": name, "stream": False})
                check(status >= 400 and isinstance(got["error"], str), name, got)
            check(s.post("/api/pull", {"stream": False})[0] == 400)
            check(delete(s, "own/tiny-GGUF:Q4_K_M") == 200 and sorted(os.listdir(folder)) == ["stories.gguf"], os.listdir(folder))
        with Folder("--host", "0.0.0.0", "--manage", str(len(content) * 2 + 1000), hub=hub) as (s, folder):
            check(lines(s, "/api/pull", {"model": "hf.co/own/tiny-GGUF"})[1][-1] == {"status": "success"})
            status, got = lines(s, "/api/pull", {"model": "hf.co/own/bad-GGUF"})
            check("--manage leaves room" in got[-1]["error"], got)
            check(sorted(os.listdir(os.path.join(folder, "own"))) == ["tiny-GGUF"], os.listdir(os.path.join(folder, "own")))


def name_of(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


def upload(s, content, digest=None, **kw):
    """(status, the error)"""
    status, _, text = s.ask("POST", "/api/blobs/" + (digest or name_of(content)), content, **kw)
    return status, json.loads(text)["error"] if text else None


def left_in(folder):
    """What is in the folder of blobs, once no upload is."""
    path = os.path.join(folder, ".blobs")
    end = time.monotonic() + serve_test.PATIENCE
    while True:
        names = os.listdir(path)
        if not any(n.startswith(".") for n in names) or time.monotonic() > end:
            break
        time.sleep(0.05)
    return sorted(names)


def test_blobs():
    # Files as `ollama create` sends them, then models of them. Seen to fail: with a digest that is not checked; with a part that stays
    # when its client goes; with a blob that is lost where no model could be made of it.
    with open(MODEL, "rb") as f:
        content = f.read()
    digest, json_file = name_of(content), b'{"no": "model"}'
    with Folder() as (s, folder):
        exists = lambda d: s.ask("HEAD", "/api/blobs/" + d)[0]
        check(exists(digest) == 404 and upload(s, content) == (201, None) and exists(digest) == 200 == exists(digest.replace(":", "-")))
        check(left_in(folder) == [digest.replace(":", "-")], left_in(folder))
        check(s.post("/api/create", {"model": "own/mine", "files": {"./x/some.gguf": digest}, "stream": False}) == (200, {"status": "success"}))
        check(left_in(folder) == [] and os.path.getsize(os.path.join(folder, "own", "mine.gguf")) == len(content) and "own/mine:latest" in names(s), names(s))
        say = lambda name: s.post("/api/chat", {"model": name, "messages": SAY, "stream": False, "options": {"temperature": 0, "num_predict": 4}})
        check(say("own/mine")[1]["message"] == say("stories")[1]["message"])
        pieces = (content[i:i + 300000] for i in range(0, len(content), 300000))
        check(upload(s, pieces, digest) == (201, None), "in chunks, as Ollama's own client sends them")
        check(upload(s, b"small")[0] == 201 and upload(s, content, name_of(b"other"))[1].endswith("digest is " + digest))
        check(lines(s, "/api/create", {"model": "fox:x", "files": {"m.gguf": digest}, "system": "Be brief."})[1][-1] == {"status": "success"})
        shown = s.post("/api/show", {"model": "fox:x"})[1]
        check(shown["system"] == "Be brief." and shown["details"]["parent_model"] == "fox-x-weights" and say("fox:x")[0] == 200, shown)
        whole = "POST /api/blobs/%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (name_of(b"other"), len(content))
        c = s.connect()
        c.sendall(whole.encode() + content[:len(content) // 2])
        time.sleep(0.2)
        c.close()
        check(left_in(folder) == [name_of(b"small").replace(":", "-")], left_in(folder))
        other, bad = name_of(b"other"), name_of(json_file)
        check(upload(s, json_file) == (201, None))
        for files, words in (({"a.gguf": other}, "there is no blob " + other), ({"a.gguf": bad}, "GGUF"), ({"config.json": bad}, ""), ({"a.gguf": "sha256:0"}, "'files'"),
                             ({"../config.json": bad}, "not a file of a model"), ({"a.gguf": bad, "b.gguf": bad}, "a GGUF file among others"), ({"x/y.bin": bad}, "not a file of")):
            status, got = s.post("/api/create", {"model": "new", "files": files, "stream": False})
            check(400 <= status <= 500 and words in got["error"] and exists(bad) == 200, files, status, got)
        check(s.post("/api/create", {"model": "stories", "files": {"a.gguf": bad}, "stream": False})[0] == 400)
        check(s.post("/api/create", {"model": "new", "from": "stories", "files": {"a.gguf": bad}, "stream": False})[0] == 400)
        check(sorted(os.listdir(folder)) == [".blobs", ".presets", "fox-x-weights.gguf", "own", "stories.gguf"], os.listdir(folder))
        files = {}
        for name in os.listdir("tests/oracles/llama"):
            if name.endswith((".json", ".safetensors")):
                with open(os.path.join("tests/oracles/llama", name), "rb") as f:
                    part = f.read()
                files[name] = name_of(part)
                check(upload(s, part) == (201, None), name)
        files = {n: d for n, d in files.items() if n in ("config.json", "model.safetensors")}
        check(s.post("/api/create", {"model": "folder", "files": files, "stream": False}) == (200, {"status": "success"}) and "folder:latest" in names(s), files)
        for path in ("sha256:0", "sha256:" + "g" * 64, "sha1:" + "0" * 64, digest + "0"):
            check(exists(path) == 400 and upload(s, b"x", path)[0] == 400, path)
        check(s.ask("POST", "/api/blobs/" + digest, b"x", {"Content-Encoding": "gzip"})[0] == 415)
        check(s.ask("HEAD", "/api/blobs/" + digest, headers={"Origin": "https://evil.example"})[0] == 403)
    with Folder("--host", "0.0.0.0", "--manage", str(len(content) * 2 - 1000)) as (s, folder):
        check("--manage leaves room" in upload(s, content)[1], "its length is told")
        check("there is room for" in upload(s, iter([content]), digest)[1], "it is not")
        check(left_in(folder) == [] and upload(s, content[:5000])[0] == 201)
    with Folder("--host", "0.0.0.0") as (s, folder):
        check(upload(s, b"x")[0] == 403 and not os.path.exists(os.path.join(folder, ".blobs")))


def test_who_may():
    # Seen to fail: with a page that --cors allows to ask; with a name that --allow-host has; without a key.
    create = {"model": "x", "from": "stories", "stream": False}
    ask = lambda s, **headers: s.ask("POST", "/api/create", create, {k.replace("_", "-"): v for k, v in headers.items()})[0]
    with Folder("--cors", "*", "--allow-host", "model.example") as (s, _):
        check(ask(s) == 200 and ask(s, Origin="http://localhost:3000") == 200 and ask(s, Origin="app://obsidian.md") == 200)
        check(ask(s, Origin="https://evil.example") == 403 and ask(s, Origin="null") == 403 and ask(s, Host="model.example") == 403)
        check(s.ask("DELETE", "/api/delete", {"model": "x"}, {"Origin": "https://evil.example"})[0] == 403 and "x:latest" in names(s))
        check(ask(s, Host="192.168.1.7") == 403, "another's name for it")
        check(s.ask("GET", "/api/delete")[0] == 405 and s.ask("OPTIONS", "/api/delete", headers={"Origin": "http://localhost:3000"})[1]["Access-Control-Allow-Methods"].count("DELETE"))
    with Folder("--host", "0.0.0.0") as (s, _):
        check(ask(s) == 403 and delete(s, "stories") == 403 and names(s) == ["stories:latest"])
    with Folder("--api-key", "k", "--manage", "1G") as (s, _):
        check(ask(s) == 401 and ask(s, Authorization="Bearer k") == 200)
    alone = Server()
    status, got = alone.post("/api/create", create)
    check(status == 400 and "--models" in got["error"], got)
    check(delete(alone, "stories") == 400 and os.path.exists(MODEL))
    alone.stop()
    with Folder("-m", "tests/oracles/llama") as (s, _):
        check(delete(s, "llama") == 400 and "llama:latest" in names(s), "the command line's")


def main():
    if not serve_test.can_serve():
        print("serve manage: skipped: built without libevent")
        return 0
    n = serve_test.run_tests((test_presets, test_pulling, test_blobs, test_who_may))
    print("serve manage: %d tests, %d checks failed" % (n, serve_test.failures))
    return serve_test.failures != 0


if __name__ == "__main__":
    sys.exit(main())

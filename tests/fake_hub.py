"""A hub of models like Hugging Face's, as small as tests need it, with the faults that networks have.

    with FakeHub() as hub:
        hub.add("own/tiny-GGUF", {"tiny-Q4_K_M.gguf": b"..."})
        ... hub.url ...

Files go through a second server, as from a CDN: with another port, and so another origin.
"""
import hashlib
import json
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def say(self, status, body=b"", headers=()):
        body = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        hub, path = self.server.hub, urllib.parse.unquote(self.path.split("?")[0])
        token = self.headers.get("Authorization")
        with hub.lock:
            hub.log.append((self.server.kind, path, token, self.headers.get("Range")))
        if self.server.kind == "cdn":
            return self.send_file(hub, path)
        if hub.token and token != "Bearer " + hub.token:
            return self.say(401, '{"error":"Invalid username or password."}')
        if path.startswith("/api/models/"):
            return self.send_listing(hub, path)
        name = path.split("/resolve/c0ffee/")
        if len(name) != 2 or name[1] not in hub.repos.get(name[0][1:], {}):
            return self.say(404, '{"error":"Entry not found"}')
        if hub.status:
            return self.say(hub.status, "", [("X-Error-Message", "as the test wants it")])
        return self.say(302, "", [("Location", hub.leads_to or f"http://127.0.0.1:{hub.cdn_port}{self.path}")])

    def send_listing(self, hub, path):
        repo, _, revision = path[len("/api/models/"):].partition("/revision/")
        if repo not in hub.repos or revision not in ("main", "v1", "refs/pr/1"):
            return self.say(404, '{"error":"Repository not found"}')
        siblings = []
        for name, content in hub.repos[repo].items():
            one = {"rfilename": name, "size": len(content)}
            sha = hashlib.sha256(content).hexdigest()
            if name in hub.small:
                one["blobId"] = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            else:
                one["lfs"] = {"sha256": hub.wrong or sha, "size": len(content), "pointerSize": 130}
            siblings.append(one)
        self.say(200, json.dumps({"id": repo, "sha": "c0ffee", "tags": hub.tags, "siblings": siblings}))

    def send_file(self, hub, path):
        repo, _, name = path[1:].partition("/resolve/c0ffee/")
        content, at = hub.repos[repo][name], 0
        wanted = self.headers.get("Range")
        if wanted and hub.ranges:
            at = int(wanted[len("bytes="):-1])
            if at >= len(content):
                return self.say(416)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {at}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - at))
        self.end_headers()
        end = len(content)
        if hub.cuts:  # the connection breaks after so many bytes
            end = min(end, at + hub.cuts.pop(0))
        with hub.lock:
            hub.sent += end - at
        while at < end:
            n = min(65536, end - at)
            try:
                self.wfile.write(content[at:at + n])
            except OSError:
                return
            at += n
            if hub.pause:
                hub.pause(at)
        if end < len(content):
            self.close_connection = True
            self.connection.close()


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *args):
        pass  # a client that was killed


class FakeHub:
    def __init__(self):
        self.lock, self.log, self.repos, self.small = threading.Lock(), [], {}, set()
        self.sent = 0
        self.reset()

    def reset(self):
        self.token = self.wrong = self.status = self.leads_to = self.pause = None
        self.cuts, self.ranges, self.tags = [], True, ["gguf", "license:apache-2.0"]
        self.log.clear()
        self.sent = 0

    def add(self, repo, files):
        self.repos[repo] = files

    def __enter__(self):
        self.servers = []
        for kind in ("hub", "cdn"):
            server = Server(("127.0.0.1", 0), Handler)
            server.kind, server.hub = kind, self
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            self.servers.append(server)
        self.port, self.cdn_port = (s.server_address[1] for s in self.servers)
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    def __exit__(self, *args):
        for server in self.servers:
            server.shutdown()
            server.server_close()

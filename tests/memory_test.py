#!/usr/bin/env python3
"""tern memory from outside: its jobs, kills while it adds, several processes at once, a full disk.

    tests/memory_test.py TERN [NAME]     the tests with NAME in their names
"""
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import parrot

os.environ["TERN_DEVICE"] = "cpu"  # also on machines with a GPU
TERN = os.path.abspath(sys.argv[1])
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
folder = tempfile.TemporaryDirectory()
n_checks = n_bad = 0


def check(ok, what):
    global n_checks, n_bad
    n_checks += 1
    if not ok:
        n_bad += 1
        print("  " + what, file=sys.stderr)


def at(name):
    return os.path.join(folder.name, name)


def run(*words, status=0, says="", stdin=b"", limit=None):
    """The output of tern memory; it must end with the status and say this on standard error."""
    def before():
        if limit:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    p = subprocess.run([TERN, "memory", *words], input=stdin, capture_output=True, preexec_fn=before)
    error = p.stderr.decode(errors="replace")
    check(p.returncode == status, "exit %d, not %d: %s: %s" % (p.returncode, status, words, error))
    check(says in error, "no %r said by %s: %s" % (says, words, error))
    if status:
        check(error.startswith("tern: ") and error.count("\n") == 1, "not one line: %s: %s" % (words, error))
    return p.stdout.decode()


def hits(*words):
    return [json.loads(line) for line in run("recall", *words, "--json").splitlines()]


def test_jobs():
    """Seen to fail: with the filter of recall left out, with add that keeps the old text of a source."""
    m = at("jobs")
    os.makedirs(at("notes/deep"))
    with open(at("notes/a.md"), "w") as f:
        f.write("# Garden\n\nThe spare key is under the third flowerpot.\n\n## Roses\n\nNo water in the evening.\n")
    with open(at("notes/deep/b.txt"), "w") as f:
        f.write("The router's reset button is at the back. Ask ann@example.com.\n")
    with open(at("notes/image.bin"), "wb") as f:
        f.write(b"\x89PNG\xff\0")
    out = run("add", m, at("notes"), "--metadata", "where=home", "--metadata", "year=2026", says="1 file is no text")
    check(out.count("\n") == 2 and "1 place blacked out" in out, "add printed " + out)
    run("add", m, at("notes/image.bin"), status=1, says="image.bin: not text in UTF-8 at byte 1")
    run("add", m, at("none"), status=1, says="there is no such file")
    run("add", m, "--text", "tea at four", "--source", "diary")
    run("add", m, stdin=b"from standard input\n")
    found = hits(m, "where is the spare key", "-n", "1")
    check(len(found) == 1 and found[0]["source"].endswith("a.md") and found[0]["heading"] == "Garden"
          and found[0]["metadata"] == {"where": "home", "year": 2026}, "recall found %s" % found)
    check("[redacted email]" in hits(m, "router")[0]["text"], "an address was stored")
    check(hits(m, "tea", "--where", "where=home") == [], "a filter lets others through")
    check(len(hits(m, "key router tea", "--where", "year>=2026", "--where", "source^=" + at("notes/deep"))) == 1, "filters")
    check(run("recall", m, "tea", "--context") == "tea at four\n", "the context alone")
    check(run("recall", m, "tea", "--context", "--max-tokens", "2") == "", "a budget that is too small")
    check("[1] diary:1" in run("recall", m, "tea"), "a hit's source")
    with open(at("marked.md"), "w", encoding="utf-8-sig") as f:  # U+FEFF first: seen to fail with it in the text
        f.write("# Cake\n\nPlums and flour\n")
    run("add", at("marked"), at("marked.md"))
    hit = json.loads(run("recall", at("marked"), "plums", "--json"))
    check(hit["heading"] == "Cake" and "\ufeff" not in hit["text"], "a file that begins with a mark: %s" % hit)
    asia = at("asia")  # words of scripts without blanks: seen to fail with the words that blanks make
    texts = ("\u8bbe\u5907\u6e05\u5355(devices) NAS", "\u6b652 \u91cd\u8dd1gen-itgc\u540e50\u6761\u60ac\u7a7a\u5f15\u7528",
             "\u30b5\u30f3\u30c9\u30dc\u30c3\u30af\u30b9\u4fee\u6b63\u30c6\u30b9\u30c8", "\u0e15\u0e31\u0e27\u0e2d\u0e22\u0e48\u0e32\u0e07\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22")
    for text in texts:
        run("add", asia, "--text", text)
    for query, found in (("\u8bbe\u5907", 0), ("\u6e05\u5355\u5728\u54ea", 0), ("\u5355", 0), ("devices", 0), ("\u60ac\u7a7a", 1), ("itgc", 1), ("gen", 1), ("\u6b65", 1),
                         ("\u4fee\u6b63", 2), ("\u30dc\u30c3\u30af\u30b9", 2), ("\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22", 3)):
        shown = run("recall", asia, query)
        check(shown.startswith("[1]") and texts[found] in shown.split("[2]")[0], "recall %s: %s" % (query, shown))
    run("forget", asia, "1")
    check(run("recall", asia, "\u8bbe\u5907") == "" and texts[1] in run("recall", asia, "\u60ac\u7a7a"), "what was forgotten is found")
    h = at("hidden")
    run("add", h, "--text", "cocoa \u202eat\u202c five", "--source", "a\u200bb")
    for shown in (run("recall", h, "cocoa"), run("list", h)):  # seen to fail with what is stored shown as it is
        check("\\u{200B}" in shown and not [c for c in "\u202e\u202c\u200b" if c in shown], "what is shown: %s" % shown)
    records = [json.loads(line) for line in run("list", m, "--json").splitlines()]
    check([r["id"] for r in records] == [1, 2, 3, 4], "list printed %s" % records)
    check(run("show", m, "1") == open(at("notes/a.md")).read(), "show prints another text")
    with open(at("notes/a.md"), "a") as f:
        f.write("\nThe key moved to the shed.\n")
    run("add", m, at("notes"), "--metadata", "where=home", "--metadata", "year=2026", says="1 record added, 1 was there")
    check("shed" in hits(m, "key shed", "-n", "1")[0]["text"], "the new text is not found")
    check(len([h for h in hits(m, "flowerpot")]) == 1, "the old text is still there")
    run("forget", m, "99", status=1, says="there is no record 99")
    run("forget", m, status=2, says="by their numbers, or --where")
    check(run("forget", m, "--where", "source=diary") == "1 record forgotten\n", "forget")
    check(hits(m, "tea") == [], "what was forgotten is found")
    run("compact", m)
    stats = json.loads(run("stats", m, "--json"))
    check(stats["records"] == 3 and stats["vectors"] == 0 and stats["model"] == "", "stats printed %s" % stats)
    lines = run("export", m)
    check(run("import", at("copy"), stdin=lines.encode()) == "3 records added\n", "import")
    check(run("export", at("copy")) == lines, "a copy exports something else")
    run("import", at("copy"), status=1, says="line 1: expected a string", stdin=b"{\"text\": 1}\n")
    run("recall", at("none"), "x", status=1, says="there is no memory here")
    run("recall", m, status=2, says="give a memory and a question")
    run("recall", m, "x", "--where", "nonsense", status=2, says="expected KEY=VALUE")
    run("recall", m, "x", "--search", "vectors", status=1, says="needs the model")
    run("add", m, "--text", "x", "--redact", "(", status=1, says="wrong at byte 2")
    run("add", m, "--text", "x", "--metadata", "[1]", status=2, says="expected KEY=VALUE")
    check("email\t" in run("rules"), "rules")
    check("ann@example.com" in open(at("notes/deep/b.txt")).read(), "the file itself was changed")


def test_private():
    """Seen to fail: with what the umask leaves to others, in the log that SQLite writes, too."""
    old = os.umask(0)
    m = at("private")
    run("add", m, "--text", "what nobody else may read")
    for name in [m] + [os.path.join(m, n) for n in os.listdir(m)]:
        check(os.stat(name).st_mode & 0o77 == 0, "others may open " + name)
    os.umask(old)


def acknowledged(output):
    """Numbers of the lines that came whole."""
    whole = output[:output.rfind(b"\n") + 1].decode()
    return [int(line.split()[0]) for line in whole.splitlines()]


def test_kills_lose_nothing(kills=30):
    """Adds until killed: every record that was reported is there afterwards, whole and found, and none is there in
    part. Seen to fail: with a line printed before the add, and with the chunks written in a second transaction."""
    m, said, rnd = at("kills"), [], random.Random(4)
    run("add", m, "--text", "the first one")
    said.append(1)
    for turn in range(kills):
        least = turn % 5  # records that it reports first: none, too, however fast the machine is
        words = [w for i in range(200) for w in ("--text", "note %d of turn %d: %s" % (i, turn, "word%d and more. " % i * 40))]
        p = subprocess.Popen([TERN, "memory", "add", m, *words, "--chunk-tokens", "32"], stdout=subprocess.PIPE)
        lines = b"".join(p.stdout.readline() for _ in range(least))
        time.sleep(rnd.uniform(0, 0.05))
        p.send_signal(signal.SIGKILL)
        said += acknowledged(lines + p.communicate()[0])
    there = {}
    for line in run("list", m, "--json").splitlines():
        record = json.loads(line)
        there[record["id"]] = record
    check(len(said) > kills, "only %d records were added" % len(said))
    check(len(set(said)) == len(said), "numbers were given twice")
    check(set(said) <= set(there), "lost: %s" % sorted(set(said) - set(there))[:10])
    # At most the one that a kill came between the disk and the line.
    check(len(there) - len(said) <= kills, "%d records that nobody was told of" % (len(there) - len(said)))
    for record in list(there)[1::7]:
        text = run("show", m, str(record))
        check(text.count("word") == 40, "record %d has %d of its 40 parts" % (record, text.count("word")))
    check(json.loads(run("stats", m, "--json"))["records"] == len(there), "a record without its chunks")
    exported = [json.loads(line) for line in run("export", m).splitlines()]
    check(all(r["text"].count("word") in (0, 40) for r in exported), "a record is there in part")
    check(len(hits(m, "note 3 of turn 5", "-n", "4")) == 4, "recall after kills")


def test_many_processes():
    """Six add at once, to a store that none of them has made yet, while others recall. Seen to fail with the wait for
    the others' writing left out."""
    memory = tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)  # nobody waits for a disk
    m = os.path.join(memory.name, "many")
    jobs = [subprocess.Popen([TERN, "memory", "add", m] + [w for i in range(20) for w in ("--text", "worker %d note %d" % (k, i))],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE) for k in range(6)]
    while any(p.poll() is None for p in jobs):
        if os.path.exists(os.path.join(m, "memory.sqlite")):
            p = subprocess.run([TERN, "memory", "recall", m, "worker note", "-n", "3"], capture_output=True)
            check(p.returncode == 0, "recall beside adding: %s" % p.stderr.decode())
        time.sleep(0.02)
    ids = []
    for p in jobs:
        out, error = p.communicate()
        check(p.returncode == 0, "a process could not add: %s" % error.decode())
        ids += acknowledged(out)
    check(sorted(ids) == list(range(1, 121)), "%d records of 120" % len(set(ids)))
    check(len(run("list", m, "--json").splitlines()) == 120, "records in the list")


def test_full_disk():
    """A limit on the size of files is a disk that is full. Seen to fail with the result of COMMIT ignored."""
    m = at("full")
    run("add", m, "--text", "the first one")
    with open(at("large.txt"), "w") as f:
        f.writelines("sentence number %d of a text that is large. " % i for i in range(20000))
    size = os.path.getsize(os.path.join(m, "memory.sqlite")) + 100000
    out = run("add", m, at("large.txt"), status=1, says="memory.sqlite: ", limit=size)
    check(out == "", "a record that is not there is reported: " + out)
    check(len(run("list", m, "--json").splitlines()) == 1, "a part of it is there")
    run("add", m, at("large.txt"))
    check(len(hits(m, "sentence number 19999", "-n", "2")) == 2, "the disk has room again")


def test_vectors():
    """With a model that embeds: the memory knows it, and takes no other. Seen to fail with the path not kept."""
    m, model = at("vectors"), at("embedder")
    oracle = os.path.join(ROOT, "tests/oracles/embeddinggemma")
    shutil.copytree(os.path.join(ROOT, "tests/oracles/embeddinggemma"), model)
    os.remove(os.path.join(model, "model.gguf"))
    with open(os.path.join(ROOT, "tests/oracles/small_tokenizer.json"), "rb") as f, open(os.path.join(model, "tokenizer.json"), "wb") as to:
        to.write(f.read())
    run("add", m, "-m", model, "--text", "the cat and the dog", "--text", "the hen", "--text", "the cat")
    found = hits(m, "the cat", "-n", "3")  # with the model that the memory knows
    check(len(found) == 3 and found[0]["text"] == "the cat" and found[0]["vector_rank"] > 0, "found %s" % found)
    check(len(hits(m, "the cat", "--search", "vectors", "-n", "2")) == 2, "by vectors alone")
    exact = hits(m, "the hen", "--search", "vectors", "--exact")
    check(exact == hits(m, "the hen", "--search", "vectors"), "the codes find something else")
    check(all(h["similarity"] is None for h in hits(m, "the cat", "-m", "none")), "vectors without a model")
    run("add", m, "-m", "none", "--text", "x", status=1, says="open it with this model")
    stats = json.loads(run("stats", m, "--json"))
    check(stats["vectors"] == 3 and stats["dimensions"] > 0, "stats printed %s" % stats)
    os.rename(model, model + ".moved")
    found = run("recall", m, "the cat", says="is not there: words alone")
    check("the cat" in found, "words alone")


def test_ask():
    """A model that says what it is told to cites a passage, which is printed below. Seen to fail: with all passages
    printed, and with the room for the question left out."""
    m, model, silent = at("ask"), at("ask.gguf"), at("silent.gguf")
    parrot.write(model, "{{ '<|a|>' }}", {"<|a|>": "Under the flowerpot [2]."})
    parrot.write(silent, "{{ '<|a|>' }}", {"<|a|>": "I do not know."})
    run("add", m, "--text", "The key of the house.", "--source", "a.md")
    run("add", m, "--text", "The spare key is under the flowerpot.", "--text", "Roses want little water.", "--source", "b.md")

    def ask(*words, status=0, says=""):
        p = subprocess.run([TERN, "ask", *words], capture_output=True, text=True)
        check(p.returncode == status and says in p.stderr, "tern ask %s: %d %s" % (words, p.returncode, p.stderr))
        return p.stdout

    out = ask(model, "where is the key of the house?", "--memory", m, "--temp", "0")
    check(out == "Under the flowerpot [2].\n\nSources:\n[2] b.md:1\n", "ask printed " + out)
    out = ask(silent, "where is the key of the house?", "--memory", m, "--temp", "0")
    check("Passages (the answer cites none):\n[1] " in out and "[2] " in out, "ask printed " + out)
    told = json.loads(ask(model, "where is the key of the house?", "--memory", m, "--json", "--temp", "0"))
    check([p["cited"] for p in told["passages"]][:2] == [False, True] and told["answer"] == "Under the flowerpot [2].", "%s" % told)
    told = json.loads(ask(model, "key", "--memory", m, "--json", "--temp", "0", "--where", "source=a.md"))
    check([p["source"] for p in told["passages"]] == ["a.md"], "ask with a filter: %s" % told)
    ask(model, "zebra", "--memory", m, status=1, says="nothing in it has to do with the question")
    ask(model, "key " * 400, "--memory", m, "-c", "1024", status=1, says="no room for passages")
    ask(model, "key", status=2, says="give a question and --memory")
    ask(model, "key", "--memory", at("none"), status=1, says="there is no memory here")


def main():
    probe = subprocess.run([TERN, "memory", "stats", at("probe")], capture_output=True)
    if b"without SQLite" in probe.stderr:
        print("tern is built without SQLite: THE TESTS OF MEMORY ARE SKIPPED", file=sys.stderr)
        return 0
    for name, test in list(globals().items()):
        if name.startswith("test_") and (len(sys.argv) < 3 or sys.argv[2] in name):
            test()
    print("tern memory: %d checks, %d failed" % (n_checks, n_bad))
    return n_bad > 0


if __name__ == "__main__":
    sys.exit(main())

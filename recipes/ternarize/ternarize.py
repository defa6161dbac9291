#!/usr/bin/env python3
"""A float model, and what is left of it in few bits: files of one model beside each other, and what each cost.

    ternarize.py TEXTS WORK [--tern build/tern] [--device webgpu] [--stage NAME] [--small | --tiny] [options]

TEXTS is a folder of plain text, by tens of MB. A vocabulary is learnt of it, and a float model in the shape of Llama
(--shape: layers, dimensions, heads, key heads, feed-forward; 10 of 512 are 38 million parameters), or of random
weights of another architecture (--init, a folder that random_model.py writes with its vocabulary). Of that model
`tern convert` makes BF16, Q4_K_M and Q2_K, and `tern ternarize` ternary files, with --seeds: rounded alone, and healed
with --heal times the float model's tokens. The same shape is trained as a BitNet with as many tokens as both together.

All are compared with the float model on text that no run has seen: one piece of text in 100 chooses the best weights of
a run, another one is for the table. --compare FILE puts another program's file of the model, as an IQ2_XXS, beside them
(WORK/float.gguf, imatrix.gguf are what to make it of).

WORK gets table.md, results.json and curve.svg. What is there is not made again, and a run that was stopped goes on: the
same command, or one --stage of texts, vocabulary, data, float, heal, files, bitnet, table at a time. --seconds stops
the whole with checkpoints. Standard library only.
"""
import argparse, glob, hashlib, json, os, re, signal, subprocess, sys, time

STAGES = ("texts", "vocabulary", "data", "float", "heal", "files", "bitnet", "table")
ROWS = (("bf16", "BF16"), ("q4_k_m", "Q4_K_M"), ("q2_k", "Q2_K"), ("rounded", "ternary, rounded"))
PIECE = 16384  # bytes; a longer document is cut between paragraphs, so that a novel is in all parts of the text
SIZES = {
    None: {"shape": "10,512,8,8,1536", "vocab": 8192, "tokens": 100e6, "batch": 32768, "heal_batch": 16384, "seq": 512},
    "small": {"shape": "2,256,4,2,768", "vocab": 2048, "tokens": 2e6, "batch": 4096, "heal_batch": 4096, "seq": 256},
    "tiny": {"shape": "1,256,4,2,256", "vocab": 384, "tokens": 8192, "batch": 512, "heal_batch": 512, "seq": 64},
}


def read(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


# ---- Texts -------------------------------------------------------------------------------------

def pieces(text, separator):
    for document in text.split(separator) if separator else [text]:
        while len(document) > PIECE:
            end = document.find("\n\n", PIECE // 2)
            end = PIECE if end < 0 or end > PIECE else end + 2
            yield document[:end]
            document = document[end:]
        if document.strip():
            yield document


def part_of(piece):
    """By its bytes: the same piece is in one part alone, whichever files it is in."""
    drawn = int.from_bytes(hashlib.sha256(piece.encode()).digest()[:4], "little") % 100
    return {0: "test", 1: "valid"}.get(drawn, "train")


def split_texts(a):
    """Train and valid have an end token between pieces; test is for `tern eval`, which wants none."""
    names = sorted(n for end in ("txt", "md") for n in glob.glob("%s/**/*.%s" % (a.texts, end), recursive=True))
    if not names:
        sys.exit("%s: there is no .txt or .md in it" % a.texts)
    parts = {name: open(a.path(name + ".txt.new"), "w", encoding="utf-8") for name in ("train", "valid", "test")}
    for name in names:
        for piece in pieces(read(name), a.separator):
            part = part_of(piece)
            parts[part].write(piece + ("\n\n" if part == "test" else "<|endoftext|>"))
    for name, file in parts.items():
        if file.tell() == 0:
            sys.exit("%s: too little text: none of it is for %s" % (a.texts, name))
        file.close()
        os.replace(file.name, a.path(name + ".txt"))


# ---- Runs --------------------------------------------------------------------------------------

class Stopped(Exception):
    pass


class Runs:
    """Runs tern with a log for each name, and adds up how long each took, over all calls."""
    def __init__(self, a):
        self.a, self.end, self.child = a, time.time() + a.seconds if a.seconds else None, None
        self.spent = json.loads(read(a.path("seconds.json"))) if os.path.exists(a.path("seconds.json")) else {}
        os.makedirs(a.path("log"), exist_ok=True)

    def run(self, name, *command, course=None):
        """course: the log of a training, of which is told how far it is."""
        begun, told = time.time(), 0
        with open(self.a.path("log/" + name), "a") as log:
            self.child = subprocess.Popen([self.a.tern, *map(str, command)], stdout=log, stderr=subprocess.STDOUT)
            while self.child.poll() is None:
                try:
                    self.child.wait(0.2)
                except subprocess.TimeoutExpired:
                    told = self.tell(name, course, told)
                if self.end and time.time() > self.end and self.child.returncode is None:
                    self.stop()
        self.spent[name] = self.spent.get(name, 0) + time.time() - begun
        write(self.a.path("seconds.json"), json.dumps(self.spent))
        if self.end and time.time() > self.end:
            raise Stopped
        if self.child.returncode:
            said = read(self.a.path("log/" + name)).strip().splitlines()[-1:]
            sys.exit("%s: exit status %d: %s (%s)" % (name, self.child.returncode, "".join(said), self.a.path("log/" + name)))
        print("%7.1f s  %s" % (self.spent[name], name), flush=True)

    def stop(self):
        """Training leaves a checkpoint at this signal."""
        if self.child and self.child.poll() is None:
            self.child.send_signal(signal.SIGINT)
            self.child.wait()

    def tell(self, name, course, told):
        if not course or time.time() - told < 15 or not os.path.exists(course):
            return told
        lines = [l for l in read_log(course) if l.get("tokens_per_second")]
        if lines:
            print("           %s: %.1f million tokens, loss %.3f, %d tokens/s" % (
                name, lines[-1]["tokens"] / 1e6, lines[-1]["loss"], lines[-1]["tokens_per_second"]), flush=True)
        return time.time()


def read_log(path):
    """Its last line may be half written."""
    lines = []
    for line in read(path).splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            break
    return lines


# ---- Stages ------------------------------------------------------------------------------------

def steps(a, tokens, batch):
    return max(1, round(tokens / batch))


def train(m, a, name, recipe, n_tokens, *more):
    """From random weights; those with the least held-out loss count."""
    n, folder = steps(a, n_tokens, a.batch), a.path(name + "-run")
    if os.path.exists("%s/step-%08d.gguf" % (folder, n)):
        return
    m.run(name, "train", "--data", a.path("shards"), "-o", folder, "--resume", "-n", n, *first_weights(a, recipe),
          *learning(a, n, a.batch), *a.training, *more, course=folder + "/log.jsonl")


def first_weights(a, recipe):
    """With --init the rates are those of a beginning, not those with which a learnt model is tuned."""
    if a.init:
        return ("--init", a.init, "--rate", a.init_rate, "--weight-decay", 0.1)
    shape = a.shape.split(",")
    preset = "micro" if int(shape[1]) >= 512 else "nano"  # for its rates
    return ("--recipe", recipe, "--preset", preset,
            *sum(zip(("--layers", "--embd", "--heads", "--kv-heads", "--ff"), shape), ()))


def learning(a, n, batch):
    return ("--batch-tokens", batch, "--seq-len", a.seq, "--valid-every", max(1, n // 20), "--log-every",
            max(1, min(10, n // 20)), "--checkpoint-every", 500, "--device", a.device)


def heal(m, a, seed):
    n = steps(a, a.tokens * a.heal, a.heal_batch)
    out, work = a.path("healed-%d.gguf" % seed), a.path("heal-%d" % seed)
    if os.path.exists(out) and os.path.exists(work + "/export.json"):
        return
    rate = ("--rate", a.heal_rate) if a.heal_rate else ()
    m.run("heal-%d" % seed, "ternarize", a.path("float.gguf"), "-o", out, "--work", work, "--type", a.type, "--data",
          a.path("train.txt"), "--held-out", a.path("valid.txt"), "--seed", seed, "-n", n, "--no-report", *rate,
          *learning(a, n, a.heal_batch), *a.training, *a.healing, course=work + "/heal/log.jsonl")


def convert(m, a, name, source, *options):
    """One file, which gets its name when it is whole."""
    out = a.path(name + ".gguf")
    if not os.path.exists(out):
        m.run(name + "-file", "convert", source, out + ".new.gguf", *options)
        os.replace(out + ".new.gguf", out)


def make_files(m, a):
    first = a.path("heal-%d/" % a.seeds[0])
    convert(m, a, "bf16", a.path("float.gguf"), "--type", "bf16")
    for name in ("q4_k_m", "q2_k"):
        convert(m, a, name, a.path("float.gguf"), "--type", name, "--imatrix", first + "imatrix.gguf")
    convert(m, a, "rounded", first + "start.gguf", "--head-type", "q8_0")


def run_stage(m, a, stage):
    total = a.tokens * (1 + a.heal)
    if stage == "texts" and not os.path.exists(a.path("test.txt")):
        split_texts(a)
    elif stage == "vocabulary" and not os.path.exists(a.path("vocabulary/tokenizer.json")):
        m.run(stage, "data", "tokenizer", a.path("train.txt"), "-o", a.path("vocabulary"), "--vocab", a.vocab, "--no-bos")
    elif stage == "data" and not os.path.exists(a.path("shards/manifest.json")):
        m.run(stage, "data", "build", a.path("train.txt"), "--held-out", a.path("valid.txt"), "--tokenizer",
              a.path("vocabulary"), "-o", a.path("shards"))
    elif stage == "float":
        train(m, a, "float", "llama", a.tokens)
        convert(m, a, "float", a.path("float-run/best.gguf"), "--type", "f32")
    elif stage == "heal":
        for seed in a.seeds:
            heal(m, a, seed)
    elif stage == "files":
        make_files(m, a)
    elif stage == "bitnet" and not a.init:
        train(m, a, "bitnet", "bitnet", total)
        convert(m, a, "bitnet", a.path("bitnet-run/best.gguf"), "--type", "i2_s", "--head-type", "q8_0")
    elif stage == "table":
        write_table(a, compare_all(m, a))


# ---- The table ---------------------------------------------------------------------------------

def compare(m, a, name, path):
    """What `tern eval compare` says of a file, kept with the file's size and time."""
    out, stat = a.path("compared/%s.json" % name), os.stat(path)
    mark = [stat.st_size, stat.st_mtime_ns, a.windows]
    if os.path.exists(out):
        found = json.loads(read(out))
        if found["mark"] == mark:
            return found
    log = a.path("log/compare-" + name)
    if os.path.exists(log):
        os.remove(log)
    m.run("compare-" + name, "eval", "compare", path, "--reference", a.path("float.gguf"), "-f", a.path("test.txt"),
          "--window", a.seq, "--limit", a.windows, "-o", "json")
    found = next(json.loads(line) for line in read(log).splitlines() if line.startswith("{"))
    found.update(mark=mark, bytes=stat.st_size)
    os.makedirs(a.path("compared"), exist_ok=True)
    write(out, json.dumps(found))
    return found


def compare_all(m, a):
    """A row for each file: names, what was found, tokens learnt, minutes."""
    healed = a.tokens * a.heal
    files = [(name, shown, a.path(name + ".gguf"), a.tokens, ["float"]) for name, shown in ROWS]
    files += [("healed-%d" % s, "ternary, healed, seed %d" % s, a.path("healed-%d.gguf" % s), a.tokens + healed,
               ["float", "heal-%d" % s]) for s in a.seeds]
    files += [("bitnet", "BitNet from the start", a.path("bitnet.gguf"), a.tokens + healed, ["bitnet"])]
    files += [(re.sub(r"\W", "_", os.path.basename(f)), os.path.basename(f), f, a.tokens, ["float"]) for f in a.compare]
    return [dict(compare(m, a, name, path), name=name, shown=shown, learnt=tokens,
                 minutes=sum(m.spent.get(r, 0) for r in runs) / 60)
            for name, shown, path, tokens, runs in files if os.path.exists(path)]


def curve_of(a, seed):
    """(tokens, KL on held-out text) of a healing."""
    path = a.path("heal-%d/heal/log.jsonl" % seed)
    lines = read_log(path) if os.path.exists(path) else []
    return [(l["tokens"], l["kl"]) for l in lines if "valid_loss" in l and l.get("kl") is not None]


def spread(values, form):
    return (form + " (" + form + " to " + form + ")") % (sum(values) / len(values), min(values), max(values))


def table_lines(a, rows):
    e = 2.718281828459045
    yield "| file | MB | tokens, millions | minutes | perplexity | of the float model's | KL | same likeliest token |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for r in rows:
        ratio = e ** r["log_ratio"]
        yield "| %s | %.2f | %.1f | %.1f | %.3f | %.4f ± %.4f | %.4f ± %.4f | %.2f%% ± %.2f%% |" % (
            r["shown"], r["bytes"] / 1e6, r["learnt"] / 1e6, r["minutes"], r["perplexity"], ratio,
            ratio * r["log_ratio_stderr"], r["kl"]["mean"], r["kl"]["stderr"], 100 * r["same_top"],
            100 * r["same_top_stderr"])
    healed = [r for r in rows if r["name"].startswith("healed-")]
    if healed:
        yield ""
        yield "Healed, %d seeds, mean (least to most): of the float model's perplexity %s, KL %s, same token %s%%." % (
            len(healed), spread([e ** r["log_ratio"] for r in healed], "%.4f"),
            spread([r["kl"]["mean"] for r in healed], "%.4f"), spread([100 * r["same_top"] for r in healed], "%.2f"))
    if rows:
        yield "The float model's perplexity is %.3f, on %d tokens that no run has seen; errors are of that text." % (
            rows[0]["reference_perplexity"], rows[0]["n_scored"])


def curve_lines(curves):
    """By tokens the KL of each seed."""
    yield "| healed with tokens, millions | %s |" % " | ".join("KL, seed %d" % s for s in curves)
    yield "|---:|" + "---:|" * len(curves)
    for tokens in sorted({t for c in curves.values() for t, _ in c}):
        at = [dict(c).get(tokens) for c in curves.values()]
        yield "| %.2f | %s |" % (tokens / 1e6, " | ".join("-" if v is None else "%.4f" % v for v in at))


def draw(curves, levels, width=640, height=360, left=60, low=40):
    """KL over tokens, from 0; a level is a file's KL, with its name."""
    far = max((t for c in curves.values() for t, _ in c), default=0) or 1
    late = [kl for c in curves.values() for t, kl in c if t > far / 50]
    top = 1.05 * max(late + [v for _, v in levels], default=1) or 1
    x = lambda t: left + (width - left - 10) * t / far
    y = lambda v: height - low - (height - low - 10) * min(v, top) / top
    text = lambda px, py, s, more="": '<text x="%.1f" y="%.1f" %s>%s</text>' % (px, py, more, s)
    lines = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" ' % (width, height) +
             'font-family="sans-serif" font-size="11">',
             '<rect width="100%" height="100%" fill="white"/>']
    for i in range(6):
        lines += ['<path d="M%d %.1fH%d" stroke="#ddd"/>' % (left, y(top * i / 5), width - 10),
                  text(left - 6, y(top * i / 5) + 4, "%.3g" % (top * i / 5), 'text-anchor="end"'),
                  text(x(far * i / 5), height - low + 16, "%.3g" % (far * i / 5e6), 'text-anchor="middle"')]
    for name, v in levels:
        lines += ['<path d="M%d %.1fH%d" stroke="#888" stroke-dasharray="5 4"/>' % (left, y(v), width - 10),
                  text(width - 12, y(v) - 4, name, 'text-anchor="end" fill="#555"')]
    for colour, (seed, c) in zip(("#1b6ca8", "#c4511b", "#2c8a4b", "#7a4ca0", "#8a6d1b") * 9, curves.items()):
        lines.append('<polyline fill="none" stroke="%s" stroke-width="1.5" points="%s"/>' % (
            colour, " ".join("%.1f,%.1f" % (x(t), y(v)) for t, v in c)))
    lines += [text(width / 2, height - 6, "million tokens of healing", 'text-anchor="middle"'),
              text(14, height / 2, "KL to the float model, nats a token",
                   'text-anchor="middle" transform="rotate(-90 14 %d)"' % (height // 2)),
              "</svg>"]
    return "\n".join(lines) + "\n"


def write_table(a, rows):
    curves = {s: curve_of(a, s) for s in a.seeds}
    lines = [*table_lines(a, rows), "", *curve_lines(curves)]
    write(a.path("table.md"), "\n".join(lines) + "\n")
    others = [r for r in rows if r["name"] in ("q4_k_m", "q2_k") or r["shown"].endswith(".gguf")]
    levels = [(r["shown"], r["kl"]["mean"]) for r in others]
    write(a.path("curve.svg"), draw(curves, levels))
    write(a.path("results.json"), json.dumps({"settings": a.settings, "rows": rows, "curves": curves}, indent=1))
    print("\n".join(lines))


# ---- The command -------------------------------------------------------------------------------

def arguments(argv=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("texts")
    p.add_argument("work")
    p.add_argument("--tern", default="build/tern")
    p.add_argument("--device", default="cpu")
    p.add_argument("--stage", choices=STAGES, help="only this one (all)")
    p.add_argument("--plan", action="store_true", help="only say how much is learnt, and how fast")
    p.add_argument("--seconds", type=float, default=0, help="then stop; the same command goes on (0: never)")
    p.add_argument("--shape", help="LAYERS,DIMENSIONS,HEADS,KEY HEADS,FEED-FORWARD")
    p.add_argument("--init", metavar="MODEL", help="random weights in another architecture, instead of --shape")
    p.add_argument("--init-rate", type=float, default=1e-3, help="of the float model's training from --init (0.001)")
    p.add_argument("--vocab", type=int)
    p.add_argument("--tokens", type=float, help="of the float model's training (100e6)")
    p.add_argument("--heal", type=float, default=0.2, help="share of them that heals (0.2)")
    p.add_argument("--heal-rate", type=float, help="(tern ternarize's)")
    p.add_argument("--type", default="q2_0", help="of the ternary files (q2_0)")
    p.add_argument("--batch", type=int, help="tokens of a step (32768)")
    p.add_argument("--heal-batch", type=int, help="(16384)")
    p.add_argument("--seq", type=int, help="tokens of a sequence, and of a window of the table (512)")
    p.add_argument("--seeds", type=lambda x: [int(i) for i in x.split(",")], default=[1, 2, 3])
    p.add_argument("--windows", type=int, default=400, help="of the table, at most")
    p.add_argument("--separator", default="<|endoftext|>", help="between documents of a file")
    p.add_argument("--compare", action="append", default=[], metavar="FILE",
                   help="another file of the float model; may be repeated")
    p.add_argument("--training", default="", metavar="OPTIONS", help="more of all trainings: --training=--bf16")
    p.add_argument("--healing", default="", metavar="OPTIONS", help="more of tern ternarize: --healing='--kd-ratio 0.7'")
    p.add_argument("--small", action="store_true", help="2 million parameters: minutes on a CPU")
    p.add_argument("--tiny", action="store_true", help="only tries the parts")
    a = p.parse_args(argv)
    for key, value in SIZES["tiny" if a.tiny else "small" if a.small else None].items():
        if getattr(a, key) is None:
            setattr(a, key, value)
    a.training, a.healing = a.training.split(), a.healing.split()
    a.tern = os.path.abspath(a.tern)
    a.path = lambda name: os.path.join(a.work, name)
    a.settings = {k: getattr(a, k) for k in ("shape", "init", "init_rate", "vocab", "tokens", "heal", "heal_rate", "type",
                                             "batch", "heal_batch", "seq", "seeds", "windows", "training", "healing",
                                             "separator")}
    return a


def keep_settings(a):
    """Files of other settings are not taken for these."""
    path, now = a.path("settings.json"), {k: v for k, v in a.settings.items() if k not in ("seeds", "windows")}
    if not os.path.exists(path):
        write(path, json.dumps(now))
    was = json.loads(read(path))
    other = [k for k in now if now[k] != was.get(k)]
    if other:
        sys.exit("%s was begun with another %s: %s" % (a.work, other[0], was.get(other[0])))


def plan(m, a):
    healed, total = a.tokens * a.heal, a.tokens * (1 + a.heal)
    print("float   %.1f million tokens, %d steps" % (a.tokens / 1e6, steps(a, a.tokens, a.batch)))
    print("healing %.1f million tokens, %d steps, %d times" % (healed / 1e6, steps(a, healed, a.heal_batch), len(a.seeds)))
    print("BitNet  %.1f million tokens, %d steps" % (total / 1e6, steps(a, total, a.batch)), flush=True)
    for stage in STAGES[:3]:
        run_stage(m, a, stage)
    train(m, a, "plan", "llama", a.tokens, "--plan")
    print(read(a.path("log/plan")))


def main(argv=None):
    a = arguments(argv)
    os.makedirs(a.work, exist_ok=True)
    keep_settings(a)
    m = Runs(a)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        if a.plan:
            plan(m, a)
        for stage in () if a.plan else (a.stage,) if a.stage else STAGES:
            run_stage(m, a, stage)
    except Stopped:
        print("stopped after %g s: the same command goes on" % a.seconds)
    finally:
        m.stop()


if __name__ == "__main__":
    main()

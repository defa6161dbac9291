#!/usr/bin/env python3
"""What `tern convert` writes, loaded by llama.cpp: the same scores as tern's, and the same tokens.

    check_llama.py LIBRARIES HEADERS [FOLDER...]                    # models as floats
    check_llama.py LIBRARIES HEADERS --types q4_k_m,q8_0 --text FILE MODEL...

LIBRARIES is the folder with libllama.so and its fellows, HEADERS the source tree of the same version.
Both come with two packages of npm, or of a build of one's own (`cmake --build build --target llama`):

    npm pack node-llama-cpp@3.22.1 @node-llama-cpp/linux-x64@3.22.1      # llama.cpp v0.5.0
    tar xzf node-llama-cpp-3.22.1.tgz && git clone package/llama/gitRelease.bundle llama.cpp
    tar xzf node-llama-cpp-linux-x64-3.22.1.tgz
    tests/reference/peers/check_llama.py package/bins/linux-x64 llama.cpp

A FOLDER is a model of Hugging Face's, by default each of tests/oracles that makes text. tern converts it to
F32; llama.cpp reads the file, goes on from the prompt of golden.safetensors by 40 tokens, the likeliest each,
and tern, which runs on the folder, must choose each of these, too, with scores whose rows differ by at most
1e-5 of their length: float32 with its sums in another order. Where the activation is GELU, llama.cpp takes
it from a table of F16, numbers below 6e-5 with few bits; there the bound is 5e-3.

With --types each MODEL is quantized by tern and by llama.cpp, and both files are run by both programs: their
perplexities over the text, in windows of 256 tokens of which the second half is scored. Needs numpy.
"""
import argparse, glob, json, os, subprocess, sys, tempfile
import numpy as np
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from safetensors_np import read_safetensors

HERE = os.path.dirname(os.path.abspath(__file__))
OWN = os.path.join(HERE, "..", "..", "oracles")
# Configs of tests/oracles that llama.cpp v0.5.0 cannot compute, whatever a file says.
ELSEWHERE = {
    "bitnet_master": "its bitnet has SiLU, and activations that are not rounded",
    "bitnet_packed": "its bitnet has SiLU, and activations that are not rounded",
    "ernie4_5": "has no biases of the feed-forward",
    "exaone4": "has windows with 64 layers only",
    "granitehybrid": "wants an inner state of twice the width",
    "lfm2moe": "has no routed_scaling_factor (1 in the published model, 1.5 here)",
    "phi3": "wants queries as wide as the model",
}
WINDOW = 256
# What llama.h calls them (enum llama_ftype).
TYPES = dict(q4_0=2, q4_1=3, q8_0=7, q5_0=8, q5_1=9, q2_k=10, q3_k_s=11, q3_k_m=12, q3_k_l=13, q4_k_s=14, q4_k_m=15,
             q5_k_s=16, q5_k_m=17, q6_k=18, iq4_nl=25, iq4_xs=30)


class Peer:
    """llama_peer.c, made for one version."""

    def __init__(self, libraries, headers, folder):
        self.program = os.path.join(folder, "llama_peer")
        self.env = dict(os.environ, LLAMA_LIBRARIES=libraries)
        found = [sorted(glob.glob(os.path.join(libraries, p))) for p in
                 ("libllama.so*", "libllama.v*.so", "libggml.so*", "libggml.v*.so", "libggml-base.so*")]
        objects = [x[0] for x in (found[0] or found[1], found[2] or found[3], found[4]) if x]
        if len(objects) < 3:
            sys.exit("%s: no libllama, libggml and libggml-base" % libraries)
        subprocess.run(["cc", "-std=c11", "-O2", "-I" + headers + "/include", "-I" + headers + "/ggml/include",
                        HERE + "/llama_peer.c", "-o", self.program, *objects,
                        "-Wl,-rpath," + os.path.abspath(libraries), "-lm"], check=True)

    def run(self, *args):
        return subprocess.run([self.program, *map(str, args)], env=self.env, capture_output=True, text=True)


def tern(args, *rest, **more):
    return subprocess.run([args.tern, *map(str, rest)], capture_output=True, text=True, **more)


def last_line(run):
    return (run.stderr.strip().splitlines() or ["ended with %d" % run.returncode])[-1]


def compare(args, peer, folder, tmp):
    """What there is to say of a folder, and whether it is as it should be."""
    model, ids, ours, theirs = (os.path.join(tmp, x) for x in ("model.gguf", "ids", "ours", "theirs"))
    prompt = read_safetensors(os.path.join(folder, "golden.safetensors"))["input_ids"]
    prompt.reshape(-1)[: prompt.shape[-1]].astype("<i4").tofile(ids)
    run = tern(args, "convert", folder, model, "--type", "f32", "--head-type", "f32")
    if run.returncode:
        return "tern convert: " + last_line(run), False
    plain = [] if os.path.exists(os.path.join(folder, "tokenizer.json")) else ["plain"]
    run = peer.run("logits", model, ids, args.tokens, theirs, *plain)
    if run.returncode:
        return "llama.cpp: " + last_line(run), False
    run = tern(args, "logits", folder, "--ids", theirs + ".ids", "-o", ours, "--kv-type", "f32", "--precise")
    if run.returncode:
        return "tern: " + last_line(run), False
    all_ids = np.fromfile(theirs + ".ids", "<i4")
    a, b = (np.fromfile(x, "<f4").reshape(len(all_ids), -1).astype(np.float64) for x in (ours, theirs))
    rows = np.linalg.norm(a - b, axis=1) / np.linalg.norm(b, axis=1)
    n = prompt.shape[-1]
    same = int((a[n - 1 : -1].argmax(1) == all_ids[n:]).sum())
    text = "%4d + %d tokens: scores differ by %.1e at most, %d of %d choices are the same" % (
        n, args.tokens, rows.max(), same, args.tokens)
    return text, rows.max() <= (5e-3 if has_gelu(folder) else 1e-5) and same == args.tokens


def has_gelu(folder):
    with open(os.path.join(folder, "config.json")) as f:
        return "gelu" in f.read()


def makes_text(folder):
    config = os.path.join(folder, "config.json")
    golden = os.path.join(folder, "golden.safetensors")
    if not os.path.exists(config) or not os.path.exists(golden):
        return False
    return "logits" in read_safetensors(golden) and "input_ids" in read_safetensors(golden)


def check_floats(args, peer, tmp):
    bad = 0
    for folder in args.models or sorted(filter(makes_text, glob.glob(OWN + "/*"))):
        name = os.path.basename(folder.rstrip("/"))
        if not args.models and name in ELSEWHERE:
            print("%-20s --   not compared: llama.cpp %s" % (name, ELSEWHERE[name]))
            continue
        text, ok = compare(args, peer, folder, tmp)
        print("%-20s %s %s" % (name, "ok  " if ok else "BAD ", text), flush=True)
        bad += not ok
    return bad


def perplexity_of_tern(args, model):
    run = tern(args, "eval", "ppl", model, "-f", args.text, "--window", WINDOW, "--json")
    return json.loads(run.stdout)["perplexity"] if run.returncode == 0 else float("nan")


def perplexity_of_llama(peer, model, ids):
    run = peer.run("perplexity", model, ids, WINDOW)
    return float(run.stdout) if run.returncode == 0 else float("nan")


def check_types(args, peer, tmp):
    bad, ids = 0, os.path.join(tmp, "ids")
    print("| type | MB, tern | MB, llama.cpp | tern's file in tern | llama.cpp's in tern | tern's in llama.cpp "
          "| llama.cpp's in llama.cpp |")
    for model in args.models:
        run = tern(args, "tokenize", "-m", model, "-f", args.text)
        np.array([int(x) for x in run.stdout.split()], "<i4").tofile(ids)
        for name in args.types.split(","):
            ours, theirs = os.path.join(tmp, "ours.gguf"), os.path.join(tmp, "theirs.gguf")
            run = tern(args, "convert", model, ours, "--type", name)
            other = peer.run("quantize", model, theirs, TYPES[name])
            if run.returncode or other.returncode:
                print("%s: %s" % (name, last_line(run if run.returncode else other)))
                bad += 1
                continue
            sizes = ["%.2f" % (os.path.getsize(x) / 1e6) for x in (ours, theirs)]
            values = [perplexity_of_tern(args, ours), perplexity_of_tern(args, theirs),
                      perplexity_of_llama(peer, ours, ids), perplexity_of_llama(peer, theirs, ids)]
            print("| `%s` | %s | %s |" % (name, *sizes), " | ".join("%.4f" % x for x in values), "|", flush=True)
            bad += not (values[0] <= 1.005 * values[1] and values[2] <= 1.005 * values[3])
    return bad


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("libraries")
    p.add_argument("headers")
    p.add_argument("models", nargs="*")
    p.add_argument("--tern", default="build/tern")
    p.add_argument("--tokens", type=int, default=40)
    p.add_argument("--types")
    p.add_argument("--text")
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        peer = Peer(args.libraries, args.headers, tmp)
        bad = (check_types if args.types else check_floats)(args, peer, tmp)
    if bad:
        sys.exit("%d differ" % bad)


if __name__ == "__main__":
    main()

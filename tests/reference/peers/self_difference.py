#!/usr/bin/env python3
"""How far the reference is from itself: what the bounds of tests/library/models/golden_test.c and oracle_test.c are
made of. Needs numpy and the data folder.

    self_difference.py $TERN_TEST_DATA              # float64, float32 and other orders of sums
    self_difference.py $TERN_TEST_DATA --llama-cpp  # with what llama.cpp rounds, and without
    self_difference.py $TERN_TEST_DATA --ties       # activations exactly between two integers

Rows of logits are compared as tests/support/closeness.h does: the row of the first flip, then the distances of
rows, then the choices that differ and the greatest gap between the two, in units of the row's RMS.
"""
import argparse, itertools, os, re
import numpy as np
import sys
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from decoder_np import Folder
from safetensors_np import read_safetensors, to_bf16

FREE_RUNS = (("models/bitllama2c/hf_1M", "golden/bitllama2c_1M/p%d"), ("models/bitllama2c/hf_3M", "golden/bitllama2c_3M/p%d"),
             ("models/stories260K/hf", "golden/stories260K/p%d"))
# Type of the file, folder with the same numbers, llama.cpp's rounding of activations.
LLAMA_CPP = (("stories260K/stories260K.f32", "models/stories260K/hf", None),
             ("stories260K/stories260K.F16", "models/stories260K/hf", "f16"),
             ("stories260K/stories260K.BF16", "models/stories260K/hf", "bf16"),
             ("bit3M/bitllama2c_3M.f32", "models/bitllama2c/hf_3M", None),
             ("bit3M/bit3M.Q8_0", "models/bitllama2c/hf_3M", 32), ("bit3M/bit3M.Q6_K", "models/bitllama2c/hf_3M", 256),
             ("bit3M/bit3M.Q4_K", "models/bitllama2c/hf_3M", 256), ("bit3M/bit3M.TQ1_0", "models/bitllama2c/hf_3M", 256),
             ("bit3M/bit3M.TQ2_0", "models/bitllama2c/hf_3M", 256))


class AsLlamaCpp(Folder):
    """An F16 cache, and activations in F16, BF16 or 8 bits with a scale for each 32 or 256 of them."""
    activations = None

    def keep(self, x):
        return x.astype(np.float16).astype(self.dtype)

    def prepare(self, x):
        kind = self.activations
        if kind is None:
            return x
        if kind == "f16":
            return self.keep(x)
        if kind == "bf16":
            return to_bf16(x.astype(np.float32)).astype(self.dtype)
        blocks = x.reshape(*x.shape[:-1], -1, min(kind, x.shape[-1]))
        d = np.abs(blocks).max(-1, keepdims=True) / 127
        steps = np.round(blocks / np.where(d == 0, 1, d))
        return (steps * (self.keep(d) if kind == 32 else d)).reshape(x.shape)


class WithTies(Folder):
    """Activations within 1e-12 of an edge go the way that the bits of `way` say: the same one each time
    that they are quantized, for the products that share an input."""
    way = 0

    def run(self, ids):
        self.ties = {}
        return super().run(ids)

    def quantize(self, x):
        s = 127 / np.maximum(np.abs(x).max(-1, keepdims=True), 1e-5)
        steps = x * s
        for at in zip(*np.nonzero(np.abs(steps - np.floor(steps) - 0.5) < 1e-12)):
            i = self.ties.setdefault((x[at], at), len(self.ties))
            steps[at] += 1e-6 if self.way >> i & 1 else -1e-6
        return np.clip(np.round(steps), -128, 127) / s


def distances(a, b):
    return np.linalg.norm(a - b, axis=1) / np.linalg.norm(b, axis=1)


def compare(a, b):
    d, ours, theirs = distances(a, b), a.argmax(1), b.argmax(1)
    rms = np.sqrt((b * b).mean(1))
    other = np.nonzero(ours != theirs)[0]
    gaps = [(b[t, theirs[t]] - b[t, ours[t]]) / rms[t] for t in other]
    flips = np.nonzero(d > 1e-5)[0]
    first = flips[0] if len(flips) else len(d)
    return first, d[:first].max(initial=0), np.median(d), np.quantile(d, 0.9), d.max(), len(other), max(gaps, default=0)


def show(name, pairs):
    found = [compare(a, b) for a, b in pairs]
    print("%-32s first flip in row %d, before it %.1e; median %.1e, 90%% %.1e, most %.1e; %d choices, gap %.3f"
          % ((name, min(x[0] for x in found)) + tuple(max(x[i] for x in found) for i in range(1, 7))), flush=True)


def golden(path, n_vocab):
    ids = [int(x) for x in re.search("all_tokens: ([0-9 ]+)", open(path + ".txt").read()).group(1).split()]
    logits = np.fromfile(path + ".logits.f32", "<f4").reshape(-1, n_vocab).astype(np.float64)
    n = min(len(ids), len(logits))
    return ids[:n], logits[:n]


def free_runs(data):
    for folder, runs in FREE_RUNS:
        kinds = [(np.float64, None)] + [(np.float32, s) for s in (None, 1, 2, 3)]
        models = [Folder(os.path.join(data, folder), *kind) for kind in kinds]
        for i in range(4):
            ids, want = golden(os.path.join(data, runs % i), models[0].c["vocab_size"])
            y = [m.run(ids)[0].astype(np.float64) for m in models]
            show(runs % i, itertools.combinations(y, 2))
            show("    against the golden run", [(a, want) for a in y])


def llama_cpp(data):
    for name, folder, activations in LLAMA_CPP:
        a, b = Folder(os.path.join(data, folder)), AsLlamaCpp(os.path.join(data, folder))
        b.activations = activations
        ids, want = golden(os.path.join(data, "golden/llama.cpp_c392e5094", name), a.c["vocab_size"])
        x, y = a.run(ids)[0], b.run(ids)[0]
        show(name, [(x, y)])
        show("    as it rounds, against it", [(y, want)])


def ties(data):
    folder = os.path.join(data, "oracle/bitnet_packed")
    t = read_safetensors(os.path.join(folder, "golden.safetensors"))
    model, all_ways, n = WithTies(folder), [], 1
    while len(all_ways) < n:
        model.way = len(all_ways)
        all_ways.append(model.run(t["input_ids"][0])[0])
        n = 2 ** len(model.ties) if model.way == 0 else n
    show("%d ways to round" % n, itertools.combinations(all_ways, 2))
    nearest = min(all_ways, key=lambda y: np.linalg.norm(y - t["logits"][0]))
    show("    the nearest, against the file", [(nearest, t["logits"][0].astype(np.float64))])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("data")
    p.add_argument("--llama-cpp", action="store_true")
    p.add_argument("--ties", action="store_true")
    a = p.parse_args()
    (llama_cpp if a.llama_cpp else ties if a.ties else free_runs)(a.data)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""A Hugging Face folder of a BitNet or a Llama, computed as transformers computes it, in float64
(decoder_np.py), against tern's logits. Needs numpy; with --transformers the real one is asked instead.

    check_hf.py FOLDER [--tern build/tern] [--model FILE]   # tern on FILE, else on FOLDER itself
    check_hf.py FOLDER --golden golden.safetensors          # against logits that are known
    check_hf.py FOLDER --like OTHER                         # names, types and config of two folders
"""
import argparse, json, os, subprocess, sys, tempfile
import numpy as np
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from decoder_np import Folder
from safetensors_np import read_header, read_safetensors

TEXT = ("Once upon a time there was a small bear who lived in the forest with his mother. Every morning he "
        "went down to the river to look for fish, and every evening he told her what he had seen.")


def logits_of_transformers(folder, ids):
    import torch
    from transformers import AutoModelForCausalLM
    torch.set_grad_enabled(False)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return model(torch.tensor([ids])).logits[0].double().numpy()


def logits_of_tern(tern, model, text, ids):
    """Of the text, or of ids if there are any; and the ids."""
    if ids is None:
        run = subprocess.run([tern, "tokenize", "-m", model, "--bos"], input=text.encode(), stdout=subprocess.PIPE, check=True)
        ids = [int(x) for x in run.stdout.split()]
    with tempfile.TemporaryDirectory() as tmp:
        np.array(ids, "<i4").tofile(tmp + "/ids")
        subprocess.run([tern, "logits", "-m", model, "--ids", tmp + "/ids", "-o", tmp + "/logits"], check=True)
        return np.fromfile(tmp + "/logits", "<f4").reshape(len(ids), -1).astype(np.float64), ids


def compare(name, a, b):
    """Relative L2. One value that is rounded to the other side changes all rows after it, so the rows
    in front of the first such are told apart."""
    by_row = np.linalg.norm(a - b, axis=1) / np.linalg.norm(b, axis=1)
    flips = np.nonzero(~(by_row <= 1e-5))[0]
    first = int(flips[0]) if len(flips) else len(b)
    print("%s: logits differ by %.2g over %d tokens; by at most %.2g in the first %d; the greatest is the same in %d"
          % (name, np.linalg.norm(a - b) / np.linalg.norm(b), len(b), by_row[:first].max() if first else 0, first,
             int((a.argmax(1) == b.argmax(1)).sum())))


def shape_of(folder):
    """What transformers looks at, with sizes and layers taken out."""
    tensors, _ = read_header(os.path.join(folder, "model.safetensors"))
    kinds = {}
    for k, x in tensors.items():
        name = ".".join("N" if p.isdigit() else p for p in k.split("."))
        kinds[name] = "%s of %d dimensions" % (x["dtype"], len(x["shape"]))
    config = json.load(open(os.path.join(folder, "config.json")))
    for key, x in config.pop("quantization_config", {}).items():
        config["quantization_config." + key] = x
    return kinds, config


def compare_shapes(ours, theirs):
    (a, c), (b, d) = shape_of(ours), shape_of(theirs)
    print("%d of %d names of tensors are the same" % (len(a.keys() & b.keys()), len(a.keys() | b.keys())))
    for k in sorted(a.keys() | b.keys()):
        if a.get(k) != b.get(k):
            print("tensor %s: %s, there %s" % (k, a.get(k, "none"), b.get(k, "none")))
    for k in sorted(c.keys() | d.keys()):
        if c.get(k) != d.get(k):
            print("config %s: %s, there %s" % (k, json.dumps(c.get(k)), json.dumps(d.get(k))))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder")
    p.add_argument("--tern", default="build/tern")
    for name in ("model", "golden", "like"):
        p.add_argument("--" + name)
    p.add_argument("--text", default=TEXT)
    p.add_argument("--transformers", action="store_true")
    a = p.parse_args()
    if a.like:
        return compare_shapes(a.folder, a.like)
    ids, golden = None, None
    if a.golden:
        golden = read_safetensors(a.golden)
        ids = golden["input_ids"].ravel().tolist()
        want = golden["logits"].reshape(len(ids), -1).astype(np.float64)
    tern, ids = logits_of_tern(a.tern, a.model or a.folder, a.text, ids)
    computed = logits_of_transformers(a.folder, ids) if a.transformers else Folder(a.folder).run(ids)[0]
    name = "transformers" if a.transformers else "numpy"
    if golden:
        compare("%s and the golden file" % name, computed, want)
        compare("tern and the golden file", tern, want)
    compare("tern and %s" % name, tern, computed)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""The training of `tern train`, again in PyTorch: gradients of the first step and the losses of the
run are compared. Needs torch and numpy; float32 arithmetic throughout.

    S="--data DATA --preset nano --recipe bitnet --batch-tokens 2048 --seq-len 256"
    tern train $S -o first -n 1 --rate 1e-30 --clip 1e30    # the first weights, and their gradient
    tern train $S -o run -n 200 --rate 1e-3 --warmup 50 --log-every 1
    train_torch.py DATA first/step-00000001.gguf run/log.jsonl --recipe bitnet --batch-tokens 2048
        --seq-len 256 --steps 200 --rate 1e-3 --warmup 50

The rate of the first run moves no weight, and its first moments are a tenth of the gradient. For an
adapter both runs have `--init BASE --lora 16`; then BASE.gguf (float master weights) goes to `--base`.

How far does rounding alone part two runs of the same program? --write FILE keeps the losses in the form
of a log; with --perturb E the first weights (and a base's) differ by a part of E, the gradient is compared with that of
the undisturbed weights, and the losses with those of LOG, which is then such a file.
"""
import argparse, json, math, sys
import numpy as np
import torch
from decoder import Decoder
from files import read_gguf, read_shards
from sequence_order import mix, permute


def batch(ids, end, step, a, device):
    n_seq, n = a.batch_tokens // a.seq_len, a.seq_len
    n_all = (len(ids) - 1) // n
    rows = []
    for at in range(step * n_seq, (step + 1) * n_seq):
        i, epoch = at % n_all, at // n_all
        rows.append(n * (i if a.in_order else permute(i, n_all, (mix(a.seed) + epoch) % 2**64)))
    x = torch.stack([ids[r : r + n] for r in rows])
    y = torch.stack([ids[r + 1 : r + n + 1] for r in rows])
    row = torch.arange(n)[None].expand(n_seq, n)
    starts = torch.where(x == end, row, torch.zeros_like(row)).cummax(1).values
    return x.to(device), y.to(device), starts.to(device)


def rate(a, step):
    done = (step - 1) / a.steps
    if a.schedule == "cosine":
        r = a.rate * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done)))
    else:
        r = (a.rate if done < 0.5 else a.rate_2) * (1 - done)
    return r * min(1, step / a.warmup)


def open_model(a, device):
    """The model, and by name what is trained and the gradients that tern has of it."""
    meta, tensors = read_gguf(a.base or a.first)
    arch = meta["general.architecture"]
    w = {k: v.to(device) for k, v in tensors.items() if not k.startswith("adam.")}
    model = Decoder(w, a.recipe, meta[arch + ".attention.head_count"], meta[arch + ".attention.head_count_kv"],
                    meta[arch + ".attention.layer_norm_rms_epsilon"], meta[arch + ".rope.freq_base"])
    trained, moments = w, tensors
    if a.base:
        model.ternary_eps = 0  # inference rounds without it, as transformers does
        meta, trained = read_gguf(a.first)
        _, moments = read_gguf(a.first.replace(".gguf", ".adam.gguf"))
        trained = {k: v.to(device) for k, v in trained.items()}
        for k in trained:
            trained[k][trained[k].abs() < 1e-20] = 0  # B after a step of length 1e-30
        pairs = {k[:-7] for k in trained}
        model.lora = {k: (trained[k + ".lora_a"], trained[k + ".lora_b"]) for k in pairs}
        rank = trained[min(pairs) + ".lora_a"].shape[0]
        model.lora_scale = meta["adapter.lora.alpha"] / rank
    for v in trained.values():
        v.requires_grad_()
    return model, trained, {k: moments["adam.m." + k].to(device) * 10 for k in trained}


def gradients_of(model, trained, a_batch):
    model.loss(*a_batch).backward()
    gradients = {}
    for name, w in trained.items():
        gradients[name], w.grad = w.grad, None
    return gradients


def compare_gradients(ours, theirs):
    top, bottom, worst = 0.0, 0.0, (0, "")
    for name, g in ours.items():
        d, n = (theirs[name].view_as(g) - g).norm().item(), g.norm().item()
        top, bottom = top + d * d, bottom + n * n
        if n > 0:  # A has none while B is zero
            worst = max(worst, (d / n, name))
    print("gradient: relative difference %.3g of the whole, at most %.3g (%s)" % (math.sqrt(top / bottom), *worst))


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("data", "first", "log"):
        p.add_argument(name)
    p.add_argument("--recipe", default="bitnet", choices=("bitnet", "paper", "llama"))
    p.add_argument("--base")
    p.add_argument("--schedule", choices=("two-stage", "cosine"))
    p.add_argument("--in-order", action="store_true")
    for name, kind, default in (("steps", int, 200), ("batch-tokens", int, 16384), ("seq-len", int, 256),
                                ("warmup", int, 11), ("rate", float, 3e-3), ("rate-2", float, None),
                                ("weight-decay", float, None), ("clip", float, 1), ("seed", int, 1),
                                ("threads", int, 2), ("perturb", float, 0)):
        p.add_argument("--" + name, type=kind, default=default)
    p.add_argument("--write")
    a = p.parse_args()
    a.schedule = a.schedule or ("cosine" if a.recipe == "llama" or a.base else "two-stage")
    a.rate_2 = a.rate / 2 if a.rate_2 is None else a.rate_2
    if a.weight_decay is None:
        a.weight_decay = 0 if a.base else 0.1
    return a


def main():
    a = arguments()
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, trained, theirs = open_model(a, device)
    ids, end = read_shards(a.data)
    first = batch(ids, end, 0, a, device)
    if a.perturb:
        theirs = gradients_of(model, trained, first)
        with torch.no_grad():
            for w in {**model.w, **trained}.values():
                w.mul_(1 + a.perturb * torch.randn_like(w))
    compare_gradients(gradients_of(model, trained, first), theirs)

    losses = {}
    for line in map(json.loads, open(a.log)):
        if "loss" in line:
            losses[line["step"]] = line["loss"]
    groups = [{"params": [w for w in trained.values() if (w.dim() == 2) == matrix]} for matrix in (True, False)]
    adam = torch.optim.AdamW(groups, lr=1, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    written = open(a.write, "w") if a.write else None
    differences = []
    for step in range(1, a.steps + 1):
        loss = model.loss(*batch(ids, end, step - 1, a, device))
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(trained.values()), a.clip)
        for g in adam.param_groups:
            g["lr"] = rate(a, step)
        late = a.schedule == "two-stage" and (step - 1) * 2 >= a.steps
        adam.param_groups[0]["weight_decay"] = 0 if late else a.weight_decay  # matrices and the table
        adam.step()
        differences.append(abs(losses[step] - loss.item()) / loss.item())
        if written:
            print(json.dumps({"step": step, "loss": loss.item()}), file=written, flush=True)
        if step in (1, 2, 5, 10, 20, 50, 100, 150) or step == a.steps:
            print("step %d: torch %.6f, the log %.6f, relative difference %.2g"
                  % (step, loss.item(), losses[step], differences[-1]), flush=True)
    print("losses: relative difference at most %.3g, at step %d; mean %.3g; last ten %.3g"
          % (max(differences), 1 + int(np.argmax(differences)), np.mean(differences), np.mean(differences[-10:])))


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Writes tests/oracles/family_gradients.json: derivatives of the loss of tests/oracles/<family> along directions in
the space of each weight (`make oracles`), with which tests/library/models/family_gradients_test.c compares the
gradients that tern has. Needs numpy.

The loss is the mean of -log p of what follows, over two documents side by side: the 72 ids of the
oracle, and 20 of them in reverse. Differences of families_np.py in float64, extrapolated from two
steps, have 8 digits, which is checked against half of these steps. Number i of direction k is
sin((k + 1) (i + 1) 0.7390851): no random numbers, so that any language has the same.

Also tests/oracles/optimizers.json: weights after steps of Muon and of AdamW with 8-bit moments, for
src/kernels/cpu/train/train_weights_test.c. Weights begin as direction 0 times 0.1, the gradient of step k is
direction k; the formulas are those of train_weights.c, in float64.
Also writes tests/oracles/preferences.txt, the losses of preferences (src/train/tests/preferences_test.c): a line for each
with its name, beta, smoothing, loss, margin, accuracy, and the slopes by all log-probabilities, which are derivatives
along the imaginary axis, exact to rounding.
And tests/oracles/dora.json: the loss of a small model with a DoRA adapter, and its gradients
(src/kernels/cpu/train/train_dora_test.c):

    y = m / |W + s B A| (x W^T + s (x A^T) B^T),   logits = y H^T,   loss = mean of -log p of the targets

x is a row of the table for each token. The length |...| is a constant for the gradient (arXiv:2402.09353, section 4.3):
it is computed once, from the real matrices, and then each number is moved along the imaginary axis. Matrix k has the
numbers of direction k times a factor.
"""
import json, os, re, sys
import numpy as np
import mixed_oracles
from families_np import family
from safetensors_np import read_safetensors

HERE = os.path.dirname(os.path.abspath(__file__))
FAMILIES = ("qwen3", "gemma3", "gemma3_linear", "lfm2", "qwen2", "ministral3", "granite", "phi3", "hunyuan", "exaone4",
            "qwen35", "qwen35_grouped", "qwen3moe", "lfm2moe", "olmo2", "granitehybrid", "falcon_h1", "gemma4", "ernie4_5", "cohere2")
N_DIRECTIONS, N_SECOND = 4, 20


def direction(shape, k):
    return np.sin((k + 1) * np.arange(1, np.prod(shape) + 1) * 0.7390851).reshape(shape)


def loss(model, documents):
    total, n = 0.0, 0
    for ids in documents:
        y = model.run(ids)[0][:-1]
        top = y.max(1, keepdims=True)
        log_sums = np.log(np.exp(y - top).sum(1)) + top[:, 0]
        total += (log_sums - y[np.arange(len(y)), ids[1:]]).sum()
        n += len(y)
    return total / n


def stacked(names):
    """Each expert's matrix is a part of one: the names of the parts by its name."""
    parts = {}
    for name in names:
        parts.setdefault(re.sub(r"\.experts\.\d+\.", ".experts.", name), []).append(name)
    return {name: sorted(x, key=lambda n: [int(i) for i in re.findall(r"\d+", n)]) for name, x in parts.items()}


def slope(model, documents, names, k):
    kept = [model.w(name) for name in names]
    d = np.split(direction(sum(x.size for x in kept), k), np.cumsum([x.size for x in kept])[:-1])

    def difference(step):
        sides = []
        for sign in (1, -1):
            model.ready.update({n: x + sign * step * y.reshape(x.shape) for n, x, y in zip(names, kept, d)})
            sides.append(loss(model, documents))
        model.ready.update(zip(names, kept))
        return (sides[0] - sides[1]) / (2 * step)

    def extrapolated(step):  # the error of the fourth order remains
        return (4 * difference(step / 2) - difference(step)) / 3

    step, a, b = 2e-4, np.inf, 0.0
    while abs(a - b) > 2e-9 * (1 + abs(b)):
        assert step > 2e-6, (names, a, b)
        step, a, b = step / 2, extrapolated(step), extrapolated(step / 2)
    return b


RATE, DECAY, N_STEPS, BLOCK = 0.02, 0.1, 3, 256


def muon(shape):
    w, m = 0.1 * direction(shape, 0), np.zeros(shape)
    for k in range(1, N_STEPS + 1):
        m = 0.95 * m + direction(shape, k)
        x = direction(shape, k) + 0.95 * m
        x /= np.linalg.norm(x) + 1e-7
        for _ in range(5):
            square = x @ x.T
            x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
        w = (1 - RATE * DECAY) * w - RATE * 0.2 * np.sqrt(max(shape)) * x
    return w


def packed(x, most):  # as a byte for each number and the largest one of a block give it back
    out = np.empty_like(x)
    for at in range(0, x.size, BLOCK):
        block = x[at:at + BLOCK]
        largest = np.abs(block).max()
        codes = np.rint(most * np.sqrt(np.sqrt(np.abs(block) / largest)))
        if most == 255:
            codes = np.maximum(codes, block > 0)
        out[at:at + BLOCK] = np.sign(block) * largest * (codes / most) ** 4
    return out


def adamw8(n):
    w, m, v = 0.1 * direction(n, 0), np.zeros(n), np.zeros(n)
    for k in range(1, N_STEPS + 1):
        g = direction(n, k)
        m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g * g
        w = (1 - RATE * DECAY) * w - RATE * (m / (1 - 0.9 ** k)) / (np.sqrt(v / (1 - 0.95 ** k)) + 1e-8)
        m, v = packed(m, 127), packed(v, 255)
    return w


def write_optimizers():
    out = {"%dx%d" % shape: muon(shape).reshape(-1).tolist() for shape in ((5, 3), (4, 18), (16, 16))}
    out["adamw8"] = adamw8(4196)[::53].tolist()
    with open(os.path.join(HERE, "..", "oracles", "optimizers.json"), "w") as f:
        json.dump(out, f, indent=0)
        f.write("\n")


# ---- Losses of preferences, of N pairs of answers ----

N = 7
LOGS, REFERENCE = -6 + 5 * direction(2 * N, 0), -6 + 5 * direction(2 * N, 1)
LENGTHS, LABELS = 3 + np.arange(2 * N) % 5, np.arange(N) % 3 != 1


def log_sigmoid(x):
    return -np.log(1 + np.exp(-x))


def preference_loss(name, beta, smoothing, logs):
    """Of logs [N, 2]: the loss, and the rewards of each answer; z of KTO is that of the real parts."""
    ratios = logs - REFERENCE.reshape(N, 2)
    if name == "dpo":
        h = beta * (ratios[:, 0] - ratios[:, 1])
        return (-(1 - smoothing) * log_sigmoid(h) - smoothing * log_sigmoid(-h)).mean(), beta * ratios
    if name == "orpo":
        mean = logs / LENGTHS.reshape(N, 2)
        odds = mean - np.log(1 - np.exp(mean))
        return (-mean[:, 0] - beta * log_sigmoid(odds[:, 0] - odds[:, 1])).mean(), beta * mean
    z = max(ratios[:, 1].real.mean(), 0)
    side = np.where(LABELS, 1, -1)
    return (1 - 1 / (1 + np.exp(-side * beta * (ratios[:, 0] - z)))).mean(), beta * ratios


def preferences(path):
    with open(path, "w") as f:
        for name, beta, smoothing in (("dpo", 0.3, 0), ("dpo", 0.1, 0.2), ("orpo", 0.25, 0), ("kto", 0.4, 0)):
            loss, rewards = preference_loss(name, beta, smoothing, LOGS.reshape(N, 2))
            better = rewards[:, 0] > (0 if name == "kto" else rewards[:, 1])
            margin = (rewards[:, 0] - rewards[:, 1]).mean()
            if name == "kto":
                margin, better = rewards[LABELS, 0].mean() - rewards[~LABELS, 0].mean(), better == LABELS
            slopes = [preference_loss(name, beta, smoothing, (LOGS + 1e-30j * (np.arange(2 * N) == i)).reshape(N, 2))[0].imag
                      * 1e30 for i in range(2 * N)]
            print(name, beta, smoothing, *("%.15g" % x for x in [loss, margin, better.mean()] + slopes), file=f)


DORA_IDS, DORA_TARGETS, DORA_SCALE = [1, 4, 4, 8, 0, 2, 7], [4, 4, 8, 0, 2, 7, 3], 1.75
DORA = {"table": ((9, 12), 1), "w": ((10, 12), 0.5), "a": ((3, 12), 0.4), "b": ((10, 3), 0.3), "m": ((10,), 1), "head": ((9, 10), 0.8)}


def dora_loss(p, length):
    x = p["table"][DORA_IDS]
    y = (x @ p["w"].T + DORA_SCALE * (x @ p["a"].T) @ p["b"].T) * (p["m"] / length)
    logits = y @ p["head"].T
    return (np.log(np.exp(logits).sum(1)) - logits[np.arange(len(DORA_IDS)), DORA_TARGETS]).mean()


def write_dora():
    p = {name: factor * direction(shape, k) for k, (name, (shape, factor)) in enumerate(DORA.items())}
    p["m"] += 1.5
    length = np.sqrt(((p["w"] + DORA_SCALE * p["b"] @ p["a"]) ** 2).sum(1))
    out = {"loss": dora_loss(p, length)}
    for name in ("table", "a", "b", "m"):
        out[name] = []
        for i in range(p[name].size):
            moved = dict(p, **{name: p[name].astype(complex)})
            moved[name].reshape(-1)[i] += 1e-30j
            out[name].append(dora_loss(moved, length).imag / 1e-30)
    with open(os.path.join(HERE, "..", "oracles", "dora.json"), "w") as f:
        json.dump(out, f, indent=0)
        f.write("\n")


def main():  # [NAME...]: which; the others stay as they are
    write_optimizers()
    write_dora()
    preferences(os.path.join(HERE, "..", "oracles", "preferences.txt"))
    path = os.path.join(HERE, "..", "oracles", "family_gradients.json")
    out = json.load(open(path)) if sys.argv[1:] else {}
    for case in sys.argv[1:] or FAMILIES:
        folder = os.path.join(HERE, "..", "oracles", case)
        model = mixed_oracles.CLASSES[case](folder) if case in mixed_oracles.CLASSES else family(folder)
        ids = read_safetensors(os.path.join(folder, "golden.safetensors"))["input_ids"].reshape(-1)
        documents = [ids, ids[:N_SECOND][::-1]]
        slopes = {name: [slope(model, documents, parts, k) for k in range(N_DIRECTIONS)]
                  for name, parts in sorted(stacked(model.t).items())}
        out[case] = {"loss": loss(model, documents), "slopes": slopes}
        print("%s: loss %.6f, %d weights" % (case, out[case]["loss"], len(slopes)), flush=True)
    with open(path, "w") as f:
        json.dump(out, f, indent=0)
        f.write("\n")


if __name__ == "__main__":
    main()

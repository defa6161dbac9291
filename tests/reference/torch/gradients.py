#!/usr/bin/env python3
"""Writes gradients.gguf: gradients of whole tiny models as PyTorch has them (`make gradients`), with
which tests/library/models/gradients_test.c compares tern's. Needs torch and numpy.

    llama    float weights, a head of its own, RoPE's pairs beside each other
    paper    BitLinears (arXiv:2402.17764), SwiGLU, tied head, RoPE's pairs in halves
    bitnet   the same with squared ReLU and sub-norms (arXiv:2504.12285)
    lora     adapters of rank 4 beside all matrices of `bitnet`, which is frozen: of A and B alone

Two layers, 16 dimensions, two heads that share a key, 24 tokens in three documents, of which some are
not scored. The weights follow from their names (`numbers`), so the file has only the tokens, the
losses and the gradients.

Rounding makes a reference worthless where a value lies so near to the edge between two integers that
the last bit of a float decides. Here none does: the magnitudes of weights leave out what would be
near half their mean, and each token is the first of a random order with which all its activations
are at least MARGIN away from an edge. So float32 and float64 agree, which is checked, and what is
written is float64's.
"""
import os
import numpy as np
import torch
import decoder
from files import write_gguf
from train_torch import mix

LAYERS, EMBD, HEADS, KV, FF, VOCAB, TOKENS, RANK = 2, 16, 2, 1, 44, 40, 24, 4
LORA_SCALE = 2.0
STARTS = [0] * 7 + [7] + [8] * 16
MARGIN = 4e-3  # of a step between two integers


def numbers(name, shape):
    """24 bits of a hash make a number u in [0, 1). Vectors: 0.7 + 0.6 u. Matrices: 0.15 u or, as often,
    0.6 + 0.8 u, of either sign, times 1.5 / sqrt(columns): nothing is near half of the mean magnitude,
    which is 0.54 times that."""
    seed = 0
    for c in name.encode():
        seed = mix(seed ^ c)
    out = np.empty(int(np.prod(shape)))
    for i in range(out.size):
        h = mix((seed + i) % 2**64)
        u = (h >> 40) * 2.0**-24
        if len(shape) == 1:
            out[i] = 0.7 + 0.6 * u
        else:
            magnitude = 0.6 + 0.8 * u if h & 1 else 0.15 * u
            out[i] = (magnitude if h & 2 else -magnitude) * (1.5 / np.sqrt(float(shape[1])))
    return torch.tensor(out.astype(np.float32).reshape(shape))


def shapes(recipe):
    head = EMBD // HEADS
    s = {"token_embd.weight": (VOCAB, EMBD), "output_norm.weight": (EMBD,)}
    if recipe == "llama":
        s["output.weight"] = (VOCAB, EMBD)
    for i in range(LAYERS):
        layer = {"attn_norm": (EMBD,), "attn_q": (EMBD, EMBD), "attn_k": (KV * head, EMBD),
                 "attn_v": (KV * head, EMBD), "attn_output": (EMBD, EMBD), "ffn_norm": (EMBD,),
                 "ffn_gate": (FF, EMBD), "ffn_up": (FF, EMBD), "ffn_down": (EMBD, FF)}
        if recipe == "bitnet":
            layer.update({"attn_sub_norm": (EMBD,), "ffn_sub_norm": (FF,)})
        s.update({"blk.%d.%s.weight" % (i, k): v for k, v in layer.items()})
    return s


def make_model(case, dtype):
    """The model, and what is trained of it, by name."""
    recipe = "bitnet" if case == "lora" else case
    base = "bitnet" if case == "lora" else case
    w = {k: numbers(base + "." + k, s).to(dtype) for k, s in shapes(recipe).items()}
    lora, trained = {}, w
    if case == "lora":
        trained = {}
        for k, x in w.items():
            if k.startswith("blk.") and x.dim() == 2:
                a, b = k + ".lora_a", k + ".lora_b"
                trained[a] = numbers("lora." + a, (RANK, x.shape[1])).to(dtype)
                trained[b] = numbers("lora." + b, (x.shape[0], RANK)).to(dtype)
                lora[k] = trained[a], trained[b]
    for x in trained.values():
        x.requires_grad_()
    return decoder.Decoder(w, recipe, HEADS, KV, lora=lora, lora_scale=LORA_SCALE), trained


def margin(model, ids):
    """Distance of the last token's activations, and of the weights, to the nearest edge."""
    found = []

    def look(x):
        inside = (x if x.dim() == 2 else x[:, -1]).abs()
        inside = inside[inside < (1 if x.dim() == 2 else 127)]
        found.append(0.5 - (inside - inside.round()).abs().max().item())

    decoder.on_rounding = look
    with torch.no_grad():
        batch = torch.tensor([ids]), torch.tensor([[-1] * (len(ids) - 1) + [0]]), torch.tensor([STARTS[: len(ids)]])
        model.loss(*batch)
    decoder.on_rounding = None
    return min(found, default=0.5)


def choose_ids(model, random):
    ids, least = [], 0.5
    while len(ids) < TOKENS:
        for token in random.permutation(VOCAB):
            m = margin(model, ids + [int(token)])
            if m > MARGIN:
                break
        else:
            raise SystemExit("no token keeps away from the edges")
        ids.append(int(token))
        least = min(least, m)
    return ids, least


def gradients(case, dtype, ids, targets):
    model, trained = make_model(case, dtype)
    loss = model.loss(torch.tensor([ids]), torch.tensor([targets]), torch.tensor([STARTS]))
    loss.backward()
    return loss.item(), {k: x.grad for k, x in trained.items()}


def main():
    torch.set_num_threads(1)
    random = np.random.RandomState(5)
    arrays, tensors = {"starts": np.array(STARTS, np.int32)}, {}
    for case in ("llama", "paper", "bitnet", "lora"):
        ids, least = choose_ids(make_model(case, torch.float64)[0], random)
        targets = [int(t) if i % 9 != 4 else -1 for i, t in enumerate(random.randint(0, VOCAB, TOKENS))]
        loss, g = gradients(case, torch.float64, ids, targets)
        _, g32 = gradients(case, torch.float32, ids, targets)
        worst = max(((g32[k] - g[k]).norm() / g[k].norm()).item() for k in g)
        print("%s: loss %.6f, %d gradients, float32 differs by at most %.2g, edges are at least %.2g away"
              % (case, loss, len(g), worst, least))
        assert worst < 1e-5
        arrays[case + ".ids"], arrays[case + ".targets"] = np.array(ids, np.int32), np.array(targets, np.int32)
        arrays[case + ".loss"] = np.array([loss], np.float32)
        tensors.update({case + "." + k: x.numpy() for k, x in g.items()})
    write_gguf(os.path.join(os.path.dirname(os.path.abspath(__file__)), "gradients.gguf"), arrays, tensors)


if __name__ == "__main__":
    main()

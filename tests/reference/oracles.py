#!/usr/bin/env python3
"""Writes tests/oracles: tiny seeded models as Hugging Face folders, and what decoder_np.py computes
for them in float64 (`make oracles`). Needs numpy. tests/library/models/oracle_test.c compares tern with them.

    bitnet_packed  2-bit weights and a scale, as microsoft/bitnet-b1.58-2B-4T is published; widths of
                   256, so that every type of GGUF can hold it
    bitnet_master  bfloat16 master weights that are made ternary at load
    llama          bfloat16 weights, a head of its own, heads that are not hidden_size / n wide

golden.safetensors: input_ids, logits of each, hidden.0 (the table's rows), hidden.i after layer i,
greedy_ids (input_ids and what greedy decoding adds).

A BitNet rounds activations to int8, and a value next to the edge between two integers goes one way
or the other by the last bit of a float. Here none is within MARGIN of an edge (float32 is wrong by
some 4e-5 of a step), nor are weights next to the edge of being ternarized, nor two logits close to
each other where the greater is chosen: prompts are tried until one is found. So what a program has to
compute is determined, and float32 with sums in any order agrees with float64, which is checked.
"""
import json, os, sys
import numpy as np
from decoder_np import Folder
from safetensors_np import to_bf16, write_safetensors

MARGIN = 2e-4  # of a step between two integers
GAP = 0.02     # between the two greatest logits, of their RMS
N_PROMPT, N_MORE = 20, 10
BASE = {"model_type": "bitnet", "architectures": ["BitNetForCausalLM"], "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5, "bos_token_id": 0, "eos_token_id": 1, "attention_bias": False}
CASES = {
    "bitnet_packed": dict(BASE, vocab_size=96, hidden_size=256, intermediate_size=256, num_hidden_layers=1,
                          num_attention_heads=4, num_key_value_heads=2, hidden_act="relu2",
                          tie_word_embeddings=True, rope_theta=500000.0,
                          quantization_config={"quant_method": "bitnet", "linear_class": "autobitlinear",
                                               "quantization_mode": "offline"}),
    "bitnet_master": dict(BASE, vocab_size=160, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                          num_attention_heads=4, num_key_value_heads=1, hidden_act="relu2",
                          tie_word_embeddings=True, rope_theta=10000.0,
                          quantization_config={"quant_method": "bitnet", "linear_class": "autobitlinear",
                                               "quantization_mode": "online"}),
    "llama": dict(BASE, model_type="llama", architectures=["LlamaForCausalLM"], vocab_size=128, hidden_size=48,
                  intermediate_size=80, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                  head_dim=16, hidden_act="silu", tie_word_embeddings=False, rope_theta=10000.0),
}


def away_from_edges(w):
    """Master weights of which none is near half of the mean magnitude."""
    g = np.abs(w).mean()
    near = np.abs(np.abs(w) / g - 0.5) < 5e-4
    return to_bf16(np.where(near, w * 1.06, w))


def pack(codes):  # -1, 0, 1: [n_out, n_in] to uint8 [n_out / 4, n_in]
    parts = (codes + 1).astype(np.uint8).reshape(4, -1, codes.shape[1])
    return parts[0] | parts[1] << 2 | parts[2] << 4 | parts[3] << 6


def make_tensors(c, random):
    head = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    n, ff, kv = c["hidden_size"], c["intermediate_size"], c["num_key_value_heads"] * head
    q = c["num_attention_heads"] * head
    mode = c.get("quantization_config", {}).get("quantization_mode")
    t, bf16 = {}, set()

    def put(name, x):
        t[name] = to_bf16(x.astype(np.float32))
        bf16.add(name)

    def matrix(name, rows, columns):
        if mode == "offline":
            t[name + ".weight"] = pack(random.choice([-1, 0, 1], (rows, columns), p=[0.3, 0.4, 0.3]))
            return put(name + ".weight_scale", random.uniform(0.7, 1.4, 1) / np.sqrt(columns))
        x = random.normal(0, 1 / np.sqrt(columns), (rows, columns)).astype(np.float32)
        put(name + ".weight", away_from_edges(to_bf16(x)) if mode else x)

    def norm(name, width):
        put(name + ".weight", random.uniform(0.5, 1.5, width))

    put("model.embed_tokens.weight", random.normal(0, 0.7, (c["vocab_size"], n)))
    for i in range(c["num_hidden_layers"]):
        p = "model.layers.%d." % i
        norm(p + "input_layernorm", n)
        norm(p + "post_attention_layernorm", n)
        for s, rows in (("q", q), ("k", kv), ("v", kv)):
            matrix(p + "self_attn.%s_proj" % s, rows, n)
        matrix(p + "self_attn.o_proj", n, q)
        matrix(p + "mlp.gate_proj", ff, n)
        matrix(p + "mlp.up_proj", ff, n)
        matrix(p + "mlp.down_proj", n, ff)
        if mode:
            norm(p + "self_attn.attn_sub_norm", q)
            norm(p + "mlp.ffn_sub_norm", ff)
    norm("model.norm", n)
    if not c["tie_word_embeddings"]:
        put("lm_head.weight", random.normal(0, 0.7, (c["vocab_size"], n)))
    return t, bf16


def is_determined(model, ids):
    """Whether nothing that `ids` make is near an edge; the logits of the last one."""
    model.margin = np.inf
    y = model.run(ids)[0][-1]
    best = np.sort(y)[-2:]
    return model.margin >= MARGIN and best[1] - best[0] >= GAP * np.sqrt((y * y).mean()), y


def find_prompt(model, n_vocab, random):
    """A prompt token by token, then what is greedy; anew until all of it is determined."""
    while True:
        ids = []
        while len(ids) < N_PROMPT:
            more = ids + [int(random.integers(n_vocab))]
            if is_determined(model, more)[0]:
                ids = more
        for _ in range(N_MORE):
            ok, y = is_determined(model, ids)
            if not ok:
                break
            ids.append(int(y.argmax()))
        else:
            return ids[:N_PROMPT], ids


def check_orders(c, t, ids, logits):
    """float32 with its sums in other orders."""
    for shuffle in (None, 1, 2, 3):
        y = Folder("", np.float32, shuffle, t, c).run(ids)[0]
        error = np.linalg.norm(y - logits, axis=1) / np.linalg.norm(logits, axis=1)
        assert error.max() < 1e-6, "float32 differs by %g" % error.max()
        assert (y.argmax(1) == logits.argmax(1)).all()
    return error.max()


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "oracles")
    for seed, (name, c) in enumerate(CASES.items()):
        random = np.random.default_rng(1000 + seed)
        t, bf16 = make_tensors(c, random)
        model = Folder("", np.float64, None, t, c)
        prompt, ids = find_prompt(model, c["vocab_size"], random)
        logits, hidden = model.run(ids)
        error = check_orders(c, t, ids, logits)
        golden = {"input_ids": np.array(prompt, np.int32), "greedy_ids": np.array(ids, np.int32),
                  "logits": logits[:N_PROMPT].astype(np.float32)}
        for i, x in enumerate(hidden):
            golden["hidden.%d" % i] = x[:N_PROMPT].astype(np.float32)
        folder = os.path.join(out, name)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(c, f, indent=1)
            f.write("\n")
        write_safetensors(os.path.join(folder, "model.safetensors"), t, bf16)
        write_safetensors(os.path.join(folder, "golden.safetensors"), golden)
        print("%s: float32 and float64 differ by at most %.1e" % (name, error))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes tests/oracles/bitnet_qwen3 and bitnet_gemma3: tiny embedding models as BitNet's are published, with
what plain numpy computes for them in float64 (`make oracles`). Needs numpy.

The bodies are Qwen3's and Gemma 3's. In front of each projection is a norm of its own ("q_proj.norm", plain
weights in both), then activations are rounded to int8 and weights to -1, 0, 1 times their mean magnitude;
config.json does not say so. The vector is the last token's row, of unit length. model.gguf has the weights as
I2_S, norms as F16 and the names "attn_q_norm_in"; Gemma's has neither windows nor a second base of RoPE.

As in oracles.py no activation is next to the edge between two integers.
"""
import json, os, sys
import numpy as np
from decoder_np import Folder
from families_np import Gemma3, Qwen3, difference
from family_gguf import gguf_name
from gguf_np import write_gguf
from oracles import MARGIN, away_from_edges
from safetensors_np import write_safetensors

N_VOCAB, N_PROMPT, WIDTH = 48, 12, 64
BASE = {"vocab_size": N_VOCAB, "hidden_size": WIDTH, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "bos_token_id": 0,
        "eos_token_id": 1, "tie_word_embeddings": True, "torch_dtype": "bfloat16"}
CASES = {
    "bitnet_qwen3": dict(BASE, model_type="qwen3", architectures=["Qwen3Model"], hidden_act="silu", rope_theta=1000000.0),
    "bitnet_gemma3": dict(BASE, model_type="gemma3_text", architectures=["Gemma3TextModel"],
                          hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=32, sliding_window=64,
                          layer_types=["sliding_attention", "full_attention"], rope_theta=10000.0,
                          rope_local_base_freq=10000.0),
}


class BitNet:
    """Linears of a family, each with its norm and its quantizers."""
    quantize = Folder.quantize

    def linear(self, x, name):
        w = self.w(name + ".weight")
        g = np.maximum(np.abs(w).mean(), self.dtype(1e-5))
        x = self.quantize(self.norm(x, name + ".norm", plus=0))
        return self.sum_products(x, np.clip(np.round(w / g), -1, 1)) * g

    def embed(self, ids):
        y = self.rows(ids)[0][-1]
        return y / np.linalg.norm(y)


class BitNetQwen3(BitNet, Qwen3):
    pass


class BitNetGemma3(BitNet, Gemma3):
    def run(self, ids):
        y, hidden = self.rows(ids)
        return self.all_used(y), hidden


def model_of(c, t, dtype=np.float64, shuffle=None):
    kind = BitNetQwen3 if c["model_type"] == "qwen3" else BitNetGemma3
    model = kind(None, dtype, shuffle, t, c)
    model.margin = np.inf
    return model


def make_tensors(c, random):
    t = {"embed_tokens.weight": random.integers(-64, 65, (N_VOCAB, WIDTH)) / 64}
    plus = 0 if c["model_type"] == "qwen3" else 1

    def norm(name, n, less):  # numbers that F16 and bfloat16 hold
        t[name + ".weight"] = random.integers(90, 150, n) / 128 - less

    heads, kv, ff = 4 * 32, 2 * 32, c["intermediate_size"]
    sizes = {"self_attn.q_proj": (heads, WIDTH), "self_attn.k_proj": (kv, WIDTH), "self_attn.v_proj": (kv, WIDTH),
             "self_attn.o_proj": (WIDTH, heads), "mlp.gate_proj": (ff, WIDTH), "mlp.up_proj": (ff, WIDTH),
             "mlp.down_proj": (WIDTH, ff)}
    for i in range(c["num_hidden_layers"]):
        p = "layers.%d." % i
        for name, shape in sizes.items():
            t[p + name + ".weight"] = away_from_edges(random.normal(0, 0.1, shape).astype(np.float32))
            norm(p + name + ".norm", shape[1], 0)
        names = ["input_layernorm", "post_attention_layernorm"]
        names += ["pre_feedforward_layernorm", "post_feedforward_layernorm"] if plus else []
        for name in names:
            norm(p + name, WIDTH, plus)
        norm(p + "self_attn.q_norm", 32, plus)
        norm(p + "self_attn.k_norm", 32, plus)
    norm("norm", WIDTH, plus)
    return {name: np.asarray(x, np.float32) for name, x in t.items()}


def make_model(c, random):
    while True:
        t = make_tensors(c, random)
        ids = [int(i) for i in random.integers(2, N_VOCAB, N_PROMPT)]
        model = model_of(c, t)
        y = model.run(ids)[0]
        if model.margin < MARGIN:
            continue
        errors = [difference(model_of(c, t, np.float32, shuffle).run(ids)[0], y) for shuffle in (None, 1, 2)]
        if max(errors) < 4e-6:
            return t, model, ids, y, max(errors)


def i2_s(w):
    """128 codes in 32 bytes, those of a byte 32 apart and the first in its highest bits; the scale."""
    g = np.float32(np.abs(w.astype(np.float64)).mean())
    codes = (np.clip(np.round(w / g), -1, 1) + 1).astype(np.uint8).reshape(-1, 4, 32)
    packed = codes[:, 0] << 6 | codes[:, 1] << 4 | codes[:, 2] << 2 | codes[:, 3]
    return 36, packed.tobytes() + g.tobytes() + bytes(28)


def write_model_gguf(path, c, t):
    gemma = c["model_type"] != "qwen3"
    arch, out, raw = "gemma3" if gemma else "qwen3", {}, {}
    for name, x in t.items():
        own = name.endswith("_proj.norm.weight")
        new = gguf_name(arch, name.replace("_proj.norm.", "_proj."))
        if own:
            new = new.replace(".weight", "_norm_in.weight")
        elif name.endswith("norm.weight") and gemma:
            x = x + 1
        out[new] = x
        matrix = x.ndim == 2 and name != "embed_tokens.weight"
        raw[new] = i2_s(x) if matrix else (1, x.astype("<f2").tobytes())
    keys = {"block_count": 2, "context_length": 128, "embedding_length": WIDTH, "feed_forward_length": 96,
            "attention.head_count": 4, "attention.head_count_kv": 2, "vocab_size": N_VOCAB, "rope.dimension_count": 32,
            "attention.key_length": 32, "attention.value_length": 32, "rope.freq_base": c["rope_theta"],
            "attention.layer_norm_rms_epsilon": 1e-6, "pooling_type": 3}
    meta = dict({"general.architecture": arch, "general.file_type": 40}, **{arch + "." + k: v for k, v in keys.items()})
    write_gguf(path, meta, out, (), raw)


def write_case(folder, c, random):
    t, model, ids, y, error = make_model(c, random)
    os.makedirs(os.path.join(folder, "1_Pooling"), exist_ok=True)
    modules = [{"idx": i, "name": str(i), "path": p, "type": "sentence_transformers.models." + k}
               for i, (p, k) in enumerate((("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")))]
    pooling = {"word_embedding_dimension": WIDTH, "pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True}
    for name, x in (("config.json", c), ("modules.json", modules), ("1_Pooling/config.json", pooling)):
        with open(os.path.join(folder, name), "w") as f:
            f.write(json.dumps(x, indent=1) + "\n")
    write_safetensors(os.path.join(folder, "model.safetensors"), t, set(t))
    write_safetensors(os.path.join(folder, "golden.safetensors"),
                      {"input_ids": np.array(ids, np.int32), "last_hidden_state": y.astype(np.float32),
                       "embedding": model.embed(ids).astype(np.float32)})
    write_model_gguf(os.path.join(folder, "model.gguf"), c, t)
    print("%s: float32 and float64 differ by at most %.1e" % (folder, error))


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "oracles")
    for seed, (name, c) in enumerate(CASES.items()):
        write_case(os.path.join(out, name), c, np.random.default_rng(7000 + seed))


if __name__ == "__main__":
    main()

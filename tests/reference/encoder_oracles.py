#!/usr/bin/env python3
"""Writes tests/oracles/nomic_bert and modernbert: tiny encoders with RoPE, as sentence-transformers has them, with what
plain numpy computes for them in float64 (`make oracles`). Needs numpy.

Nomic's pools the mean as it comes, ModernBERT the first row, of length 1; its window of 8 is shorter than the text.
"""
import json, os, sys
import numpy as np
from bert_oracles import FF, HEADS, LAYERS, N_CONTEXT, N_TEXT, N_VOCAB, WIDTH, Bert
from families_np import difference
from gguf_np import write_gguf
from safetensors_np import write_safetensors

CASES = {
    "nomic_bert": dict(model_type="nomic_bert", architectures=["NomicBertModel"], n_embd=WIDTH, n_head=HEADS, n_layer=LAYERS,
                       n_inner=FF, n_positions=N_CONTEXT, layer_norm_epsilon=1e-12, rotary_emb_base=1000,
                       rotary_emb_fraction=1.0, rotary_emb_interleaved=False, type_vocab_size=2,
                       activation_function="swiglu", prenorm=False, qkv_proj_bias=False, mlp_fc1_bias=False,
                       mlp_fc2_bias=False, use_rms_norm=False, causal=False, vocab_size=N_VOCAB),
    "modernbert": dict(model_type="modernbert", architectures=["ModernBertModel"], hidden_size=WIDTH,
                       num_attention_heads=HEADS, num_hidden_layers=LAYERS + 1, intermediate_size=FF,
                       max_position_embeddings=N_CONTEXT, norm_eps=1e-5, norm_bias=False, attention_bias=False,
                       mlp_bias=False, global_attn_every_n_layers=3, local_attention=8, global_rope_theta=160000.0,
                       local_rope_theta=10000.0, hidden_activation="gelu", vocab_size=N_VOCAB),
}
GGUF = {
    "nomic_bert": {"embeddings.word_embeddings": "token_embd", "embeddings.token_type_embeddings": "token_types",
                   "emb_ln": "token_embd_norm", "attn.Wqkv": "attn_qkv", "attn.out_proj": "attn_output",
                   "norm1": "attn_output_norm", "mlp.fc11": "ffn_up", "mlp.fc12": "ffn_gate", "mlp.fc2": "ffn_down",
                   "norm2": "layer_output_norm"},
    "modernbert": {"embeddings.tok_embeddings": "token_embd", "embeddings.norm": "token_embd_norm", "final_norm": "output_norm",
                   "attn_norm": "attn_norm", "attn.Wqkv": "attn_qkv", "attn.Wo": "attn_output", "mlp_norm": "ffn_norm",
                   "mlp.Wi": "ffn_up", "mlp.Wo": "ffn_down"},
}


class Encoder(Bert):
    def norm(self, x, name):
        d = x - x.mean(-1, keepdims=True)
        eps = self.dtype(self.c.get("layer_norm_epsilon", self.c.get("norm_eps")))
        return d / np.sqrt((d * d).mean(-1, keepdims=True) + eps) * self.t[name + ".weight"] + self.t.get(name + ".bias", 0)

    def linear(self, x, name):
        return x @ self.t[name + ".weight"].T

    def rotate(self, x, base):
        """Pairs are halves of a head: [heads, tokens, dimensions]."""
        half = x.shape[-1] // 2
        angle = np.arange(x.shape[1])[:, None] * float(base) ** (-np.arange(half) / half)
        cos, sin = np.cos(angle).astype(self.dtype), np.sin(angle).astype(self.dtype)
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    def attend(self, x, qkv, out, base, reach=None):
        n = len(x)
        q, k, v = self.linear(x, qkv).reshape(n, 3, HEADS, -1).transpose(1, 2, 0, 3)
        scores = self.rotate(q, base) @ self.rotate(k, base).transpose(0, 2, 1) / self.dtype(np.sqrt(q.shape[-1]))
        if reach is not None:
            far = np.abs(np.arange(n)[:, None] - np.arange(n)) > reach
            scores = np.where(far, self.dtype(-np.inf), scores)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        y = (p / p.sum(-1, keepdims=True)) @ v
        return self.linear(y.transpose(1, 0, 2).reshape(n, -1), out)


class Nomic(Encoder):
    def run(self, ids):
        x = self.t["embeddings.word_embeddings.weight"][ids] + self.t["embeddings.token_type_embeddings.weight"][0]
        x = self.norm(x, "emb_ln")
        for i in range(LAYERS):
            p = "encoder.layers.%d." % i
            a = self.attend(x, p + "attn.Wqkv", p + "attn.out_proj", self.c["rotary_emb_base"])
            x = self.norm(x + a, p + "norm1")
            gate = self.linear(x, p + "mlp.fc12")
            f = self.linear(self.linear(x, p + "mlp.fc11") * (gate / (1 + np.exp(-gate))), p + "mlp.fc2")
            x = self.norm(x + f, p + "norm2")
        return x

    def embed(self, rows):
        return rows.mean(0)


class Modern(Encoder):
    def run(self, ids):
        x, c = self.norm(self.t["embeddings.tok_embeddings.weight"][ids], "embeddings.norm"), self.c
        for i in range(c["num_hidden_layers"]):
            p, local = "layers.%d." % i, i % c["global_attn_every_n_layers"] != 0
            a = self.norm(x, p + "attn_norm") if i else x
            base = c["local_rope_theta"] if local else c["global_rope_theta"]
            x = x + self.attend(a, p + "attn.Wqkv", p + "attn.Wo", base, c["local_attention"] // 2 if local else None)
            up, gate = np.split(self.linear(self.norm(x, p + "mlp_norm"), p + "mlp.Wi"), 2, -1)
            x = x + self.linear(self.gelu(up) * gate, p + "mlp.Wo")
        return self.norm(x, "final_norm")

    def embed(self, rows):
        return rows[0] / np.linalg.norm(rows[0])


def make_tensors(c, random):
    t, nomic = {}, c["model_type"] == "nomic_bert"

    def matrix(name, *shape, scale=0.15):
        t[name + ".weight"] = random.normal(0, scale, shape)

    def norm(name):
        t[name + ".weight"] = random.uniform(0.7, 1.3, WIDTH)
        if nomic:
            t[name + ".bias"] = random.normal(0, 0.2, WIDTH)

    matrix("embeddings.word_embeddings" if nomic else "embeddings.tok_embeddings", N_VOCAB, WIDTH, scale=1)
    if nomic:
        matrix("embeddings.token_type_embeddings", 2, WIDTH, scale=0.5)
    norm("emb_ln" if nomic else "embeddings.norm")
    for i in range(LAYERS if nomic else c["num_hidden_layers"]):
        p = "encoder.layers.%d." % i if nomic else "layers.%d." % i
        matrix(p + "attn.Wqkv", 3 * WIDTH, WIDTH, scale=0.3)
        matrix(p + ("attn.out_proj" if nomic else "attn.Wo"), WIDTH, WIDTH)
        if nomic:
            matrix(p + "mlp.fc11", FF, WIDTH)
            matrix(p + "mlp.fc12", FF, WIDTH)
            matrix(p + "mlp.fc2", WIDTH, FF)
        else:
            matrix(p + "mlp.Wi", 2 * FF, WIDTH)
            matrix(p + "mlp.Wo", WIDTH, FF)
        for name in ("norm1", "norm2") if nomic else (("attn_norm",) if i else ()) + ("mlp_norm",):
            norm(p + name)
    if not nomic:
        norm("final_norm")
    return {name: x.astype(np.float32) for name, x in t.items()}


def gguf_name(kind, name):
    part, end = name.rsplit(".", 1)
    for front in ("encoder.layers.", "layers."):
        if part.startswith(front):
            i, rest = part[len(front) :].split(".", 1)
            return "blk.%s.%s.%s" % (i, GGUF[kind][rest], end)
    return "%s.%s" % (GGUF[kind][part], end)


def write_model_gguf(path, c, t):
    nomic = c["model_type"] == "nomic_bert"
    arch = "nomic-bert" if nomic else "modern-bert"
    keys = {"block_count": c.get("n_layer", c.get("num_hidden_layers")), "context_length": N_CONTEXT,
            "embedding_length": WIDTH, "feed_forward_length": FF, "attention.head_count": HEADS,
            "attention.layer_norm_epsilon": c.get("layer_norm_epsilon", c.get("norm_eps")), "attention.causal": False,
            "pooling_type": 1 if nomic else 2, "rope.freq_base": float(c.get("rotary_emb_base", c.get("global_rope_theta")))}
    if nomic:
        keys["pooling_normalize"] = 0  # tern's own
    else:
        keys.update({"attention.sliding_window": c["local_attention"], "rope.freq_base_swa": c["local_rope_theta"]})
    meta = dict({"general.architecture": arch, "general.file_type": 0}, **{arch + "." + k: v for k, v in keys.items()})
    write_gguf(path, meta, {gguf_name(c["model_type"], name): x for name, x in t.items()})


def write_case(folder, c, random):
    nomic = c["model_type"] == "nomic_bert"
    os.makedirs(os.path.join(folder, "1_Pooling"), exist_ok=True)
    t, kind = make_tensors(c, random), Nomic if nomic else Modern
    ids = random.integers(5, N_VOCAB, N_TEXT)
    model = kind(c, t)
    rows = model.run(ids)
    error = difference(kind(c, t, np.float32).run(ids), rows)
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling")] + ([] if nomic else [("2_Normalize", "Normalize")])
    modules = [{"idx": i, "name": str(i), "path": p, "type": "sentence_transformers.models." + k} for i, (p, k) in enumerate(kinds)]
    pooling = {"word_embedding_dimension": WIDTH, "pooling_mode_cls_token": not nomic, "pooling_mode_mean_tokens": nomic}
    for name, x in (("config.json", c), ("modules.json", modules), ("1_Pooling/config.json", pooling)):
        with open(os.path.join(folder, name), "w") as f:
            f.write(json.dumps(x, indent=1) + "\n")
    write_safetensors(os.path.join(folder, "model.safetensors"), t)
    write_safetensors(os.path.join(folder, "golden.safetensors"),
                      {"input_ids": ids.astype(np.int32), "last_hidden_state": rows.astype(np.float32),
                       "embedding": model.embed(rows).astype(np.float32)})
    write_model_gguf(os.path.join(folder, "model.gguf"), c, t)
    print("%s: float32 and float64 differ by at most %.1e" % (folder, error))


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "oracles")
    for seed, (name, c) in enumerate(CASES.items()):
        write_case(os.path.join(out, name), c, np.random.default_rng(8200 + seed))


if __name__ == "__main__":
    main()

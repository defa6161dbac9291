"""Families that are close to Llama, computed in plain numpy from a Hugging Face folder (families_np.py has
what they share): Llama with its scaled RoPE, Qwen2, Ministral 3, SmolLM3, Phi-3, Granite, MiniCPM, EXAONE 4,
Hunyuan, OLMo 2, ERNIE 4.5 and Cohere 2. Written from the papers and from what transformers documents, not from tern.
"""
import numpy as np
from decoder_np import silu
from families_np import Family


class Llama(Family):
    """Neither norms of heads nor biases; RoPE of the kinds default, llama3 and yarn."""

    other_ropes = ("llama3", "yarn", "longrope", "dynamic")

    def rope(self):
        return self.c.get("rope_parameters") or self.c.get("rope_scaling") or {}

    def original(self):
        return self.rope().get("original_max_position_embeddings") or self.c["max_position_embeddings"]

    def frequencies(self, f, n):
        r = self.rope()
        how = r.get("rope_type", "default")
        if how == "llama3":
            turns = self.original() * f / (2 * np.pi)
            low, high = r["low_freq_factor"], r["high_freq_factor"]
            keep = np.clip((turns - low) / (high - low), 0, 1)
            return f * keep + f / r["factor"] * (1 - keep), 1
        if how == "yarn":
            return self.yarn(f, r)
        if how == "longrope":
            return self.long(f, r, n)
        return f, 1

    def yarn(self, f, r):
        rot, theta = 2 * len(f), r["rope_theta"]
        edge = lambda turns: rot * np.log(self.original() / (turns * 2 * np.pi)) / (2 * np.log(theta))
        low = max(np.floor(edge(r.get("beta_fast", 32))), 0)
        high = min(np.ceil(edge(r.get("beta_slow", 1))), rot - 1)
        ramp = np.clip((np.arange(len(f)) - low) / max(high - low, 0.001), 0, 1)
        size = lambda m: 0.1 * m * np.log(r["factor"]) + 1
        magnitude = size(1) if "mscale" not in r else size(r["mscale"]) / size(r["mscale_all_dim"])
        return f * (1 - ramp) + f / r["factor"] * ramp, magnitude

    def long(self, f, r, n):
        """One set of factors up to the length of training, and another for longer texts as a whole."""
        scale = self.c["max_position_embeddings"] / self.original()
        magnitude = np.sqrt(1 + np.log(scale) / np.log(self.original())) if scale > 1 else 1
        return f / np.array(r["long_factor" if n > self.original() else "short_factor"]), magnitude

    def growth(self, n):
        beta = self.rope().get("llama_4_scaling_beta", 0)
        return 1 + beta * np.log(1 + np.floor(np.arange(n) / self.original()))

    def rotates(self, p, kind):
        return True

    def turned(self, q, k, p, kind):
        if not self.rotates(p, kind):
            return q, k
        grown = self.growth(len(q)).astype(self.dtype)[:, None, None]
        return self.rotate(q, kind) * grown, self.rotate(k, kind)


class SmolLM3(Llama):
    def rotates(self, p, kind):
        return bool(self.c["no_rope_layers"][int(p.split(".")[1])])


class Phi3(Llama):
    def queries(self, a, p):
        d, kv = self.head_dim, self.c["num_key_value_heads"]
        rows = self.linear(a, p + "qkv_proj").reshape(len(a), self.heads + 2 * kv, d)
        self.keys_and_values = rows[:, self.heads : self.heads + kv], rows[:, self.heads + kv :]
        return rows[:, : self.heads], None

    def heads_of(self, x, name):
        return self.keys_and_values[name.endswith("v_proj")]

    def feed_forward(self, f, p):
        gate, up = np.split(self.linear(f, p + "mlp.gate_up_proj"), 2, 1)
        return self.linear(silu(gate) * up, p + "mlp.down_proj")


class Scaled(Llama):
    """Granite, and MiniCPM, whose config says the same in other words."""

    def numbers(self):
        c = self.c
        if c["model_type"] == "granite":
            return [c[key] for key in ("embedding_multiplier", "residual_multiplier", "logits_scaling")]
        return c["scale_emb"], c["scale_depth"] / self.n_layers**0.5, c["hidden_size"] / c["dim_model_base"]

    def scale(self):
        return self.c.get("attention_multiplier") or super().scale()

    def table(self, ids):
        return super().table(ids) * self.dtype(self.numbers()[0])

    def layer(self, x, p, kind):
        r = self.dtype(self.numbers()[1])
        x = x + r * self.mixer(self.norm(x, p + self.names["attn_in"]), p, kind)
        return x + r * self.feed_forward(self.norm(x, p + self.names["ffn_in"]), p)

    def run(self, ids):
        y, hidden = super().run(ids)
        return y / self.dtype(self.numbers()[2]), hidden


class Olmo2(Llama):
    """Norms after each half of a layer and of all queries together."""

    def heads_of(self, x, name):
        y = self.linear(x, name)
        if not name.endswith("v_proj"):
            y = self.norm(y, name.replace("_proj", "_norm"))
        return y.reshape(len(x), -1, self.head_dim)

    def layer(self, x, p, kind):
        x = x + self.norm(self.mixer(x, p, kind), p + "post_attention_layernorm")
        return x + self.norm(self.feed_forward(x, p), p + "post_feedforward_layernorm")


class Exaone4(Olmo2):
    def sees(self, n, kind):
        back, window = np.subtract.outer(np.arange(n), np.arange(n)), self.c["sliding_window"]
        return (back >= 0) & (back < window) if kind == "sliding_attention" else back >= 0

    def heads_of(self, x, name):
        return Family.heads_of(self, x, name)

    def rotates(self, p, kind):
        return kind == "sliding_attention" or self.c["sliding_window"] is None

    def turned(self, q, k, p, kind):
        q, k = self.norm(q, p + "q_norm"), self.norm(k, p + "k_norm")
        return super().turned(q, k, p, kind)


class Hunyuan(Llama):
    def frequencies(self, f, n):
        half = len(f)
        theta = self.rope()["rope_theta"] * self.rope()["alpha"] ** (half / (half - 1))
        return theta ** (-np.arange(half) / half), 1

    def turned(self, q, k, p, kind):
        q, k = super().turned(q, k, p, kind)
        return self.norm(q, p + "query_layernorm"), self.norm(k, p + "key_layernorm")


class Ernie(Llama):
    """Dimensions 2 i and 2 i + 1 of a head are a pair of RoPE."""

    def rotate(self, x, kind):
        halves = np.concatenate([x[..., ::2], x[..., 1::2]], -1)
        return np.stack(np.split(super().rotate(halves, kind), 2, -1), -1).reshape(x.shape)


class Cohere2(Ernie):
    """One LayerNorm for attention and feed-forward, which are added together; RoPE in windows only."""

    sees = Exaone4.sees

    def norm(self, x, name, plus=None):
        return super().norm(x - x.mean(-1, keepdims=True), name, plus)

    def rotates(self, p, kind):
        return kind == "sliding_attention"

    def layer(self, x, p, kind):
        n = self.norm(x, p + "input_layernorm")
        return x + self.mixer(n, p, kind) + self.feed_forward(n, p)

    def run(self, ids):
        y, hidden = super().run(ids)
        return y * self.dtype(self.c["logit_scale"]), hidden


DENSE = {"llama": Llama, "qwen2": Llama, "ministral3": Llama, "smollm3": SmolLM3, "phi3": Phi3, "granite": Scaled,
         "minicpm": Scaled, "exaone4": Exaone4, "hunyuan_v1_dense": Hunyuan, "olmo2": Olmo2,
         "ernie4_5": Ernie, "cohere2": Cohere2}

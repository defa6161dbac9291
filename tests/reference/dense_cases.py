"""The tiny models of dense_np.py's families, for family_oracles.py: configs, weights, and misreadings that
their numbers tell apart."""
import numpy as np
from family_gguf import neighbours

N_VOCAB = 48
COMMON = {"vocab_size": N_VOCAB, "hidden_size": 32, "max_position_embeddings": 128, "bos_token_id": 0, "eos_token_id": 1,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48,
          "hidden_act": "silu", "rms_norm_eps": 1e-5, "tie_word_embeddings": True}
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}


def of(kind, name, **more):
    c = dict(COMMON, model_type=kind, architectures=[name + "ForCausalLM"], **more)
    if "layer_norm_eps" in c:
        del c["rms_norm_eps"]
    return c


CASES = {
    "qwen2": of("qwen2", "Qwen2", rope_parameters=dict(PLAIN, rope_theta=1000000.0), use_sliding_window=False,
                sliding_window=16, max_window_layers=1),
    "llama_scaled": of("llama", "Llama", head_dim=16, rope_parameters={
        "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32}),
    "ministral3": dict(of("ministral3", "Ministral3", head_dim=16), rope_parameters={
        "rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "beta_fast": 2.0, "beta_slow": 1.0, "mscale": 1.0,
        "mscale_all_dim": 1.0, "original_max_position_embeddings": 32, "llama_4_scaling_beta": 0.5}, sliding_window=None),
    "smollm3": dict(of("smollm3", "SmolLM3", rope_parameters=dict(PLAIN, rope_theta=50000.0), no_rope_layers=[1, 1, 1, 0, 1]),
                    num_hidden_layers=5, intermediate_size=16),
    "phi3": of("phi3", "Phi3", head_dim=16, partial_rotary_factor=0.75, original_max_position_embeddings=76, rope_parameters={
        "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
        "original_max_position_embeddings": 76, "short_factor": [1.0, 1.25, 1.5, 1.75, 2.0, 2.5],
        "long_factor": [1.0, 2.0, 4.0, 6.0, 9.0, 12.0]}),
    "granite": of("granite", "Granite", rope_parameters=PLAIN, embedding_multiplier=1.5, residual_multiplier=0.4,
                  logits_scaling=3.0, attention_multiplier=0.2),
    "minicpm": of("minicpm", "MiniCPM", rope_theta=10000.0, scale_emb=1.5, scale_depth=1.4, dim_model_base=8),
    "exaone4": of("exaone4", "Exaone4", rope_parameters=PLAIN, sliding_window=8,
                  layer_types=["sliding_attention", "full_attention"]),
    "hunyuan": of("hunyuan_v1_dense", "HunYuanDenseV1", head_dim=16, rope_parameters={
        "rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 50.0, "factor": 1.0}),
    "olmo2": dict(of("olmo2", "Olmo2", rope_parameters=PLAIN), tie_word_embeddings=False),
    "llama_biased": of("llama", "Llama", head_dim=16, rope_parameters=PLAIN, attention_bias=True, mlp_bias=True),
    "ernie4_5": of("ernie4_5", "Ernie4_5", head_dim=16, rope_parameters=dict(PLAIN, rope_theta=500000.0), use_bias=True),
    "cohere2": dict(of("cohere2", "Cohere2", rope_parameters=PLAIN, layer_norm_eps=1e-5, logit_scale=0.3, sliding_window=8,
                       layer_types=["sliding_attention"] * 3 + ["full_attention"]), num_hidden_layers=4, intermediate_size=16),
}
HEAD_NORMS = {"exaone4": ("q_norm", "k_norm"), "hunyuan_v1_dense": ("query_layernorm", "key_layernorm")}
NORMS = {"exaone4": ("post_attention_layernorm", "post_feedforward_layernorm"), "cohere2": ("input_layernorm",),
         "olmo2": ("post_attention_layernorm", "post_feedforward_layernorm")}  # else before each half


def make_layer(m, p):
    c, h = m.c, m.c["hidden_size"]
    kind, n, kv = c["model_type"], c["num_attention_heads"], c["num_key_value_heads"]
    d = c.get("head_dim") or h // n
    for name in NORMS.get(kind, ("post_attention_layernorm", "input_layernorm")):
        m.norm(p + name, h)
    if kind == "phi3":
        m.matrix(p + "self_attn.qkv_proj", (n + 2 * kv) * d, h)
        m.matrix(p + "self_attn.o_proj", h, n * d)
        m.matrix(p + "mlp.gate_up_proj", 2 * c["intermediate_size"], h)
        return m.matrix(p + "mlp.down_proj", h, c["intermediate_size"])
    m.attention(p + "self_attn.", norms=HEAD_NORMS.get(kind, ()))
    if kind == "olmo2":
        m.norm(p + "self_attn.q_norm", n * d, 0.9, 2.2)
        m.norm(p + "self_attn.k_norm", kv * d, 0.9, 2.2)
    biased = c.get("use_bias")  # everywhere
    for name, width in (("q", n * d), ("k", kv * d), ("v", kv * d)) if kind == "qwen2" or c.get("attention_bias", biased) else ():
        m.put(p + "self_attn.%s_proj.bias" % name, m.random.normal(0, 2, width))
    if c.get("attention_bias", biased):
        m.put(p + "self_attn.o_proj.bias", m.random.normal(0, 0.5, h))
    for name in ("gate", "up", "down") if c.get("mlp_bias", biased) else ():
        m.put(p + "mlp.%s_proj.bias" % name, m.random.normal(0, 0.5, h if name == "down" else c["intermediate_size"]))
    m.feed_forward(p + "mlp.", ("gate_proj", "up_proj", "down_proj"), c["intermediate_size"])


def swapped(x, a, b):
    """Rows a .. and b .. of the same number, exchanged."""
    return np.concatenate([x[b], x[a]] + ([x[b.stop :]] if b.stop < len(x) else []))


def misreadings(c, t):
    """Configs and tensors that are wrong in one thing; family_oracles.py has those of all families."""
    kind, rope = c["model_type"], c.get("rope_parameters") or {}
    for key in ("factor", "llama_4_scaling_beta", "beta_fast", "alpha", "high_freq_factor"):
        if key in rope and (kind, key) != ("hunyuan_v1_dense", "factor"):
            yield key, dict(c, rope_parameters=dict(rope, **{key: rope[key] * 2})), t
    for key in ("embedding_multiplier", "residual_multiplier", "logits_scaling", "attention_multiplier", "scale_emb",
                "scale_depth", "dim_model_base", "logit_scale"):
        if key in c:
            yield key, dict(c, **{key: c[key] * 1.25}), t
    if kind == "phi3":
        yield "the other factors", dict(c, rope_parameters=dict(rope, short_factor=rope["long_factor"])), t
        yield "no magnitude", dict(c, max_position_embeddings=rope["original_max_position_embeddings"]), t
        for name in (n for n in t if "gate_up_proj" in n):
            half = len(t[name]) // 2
            yield "up before gate", c, dict(t, **{name: swapped(t[name], slice(0, half), slice(half, 2 * half))})
        for name in (n for n in t if "qkv_proj" in n):
            rows, d = t[name], c["head_dim"]
            q = c["num_attention_heads"] * d
            k, v = rows[q : q + 2 * d], rows[q + 2 * d :]
            yield "values before keys", c, dict(t, **{name: np.concatenate([rows[:q], v, k])})
    if kind == "ernie4_5":
        yield "RoPE's pairs in halves", dict(c, model_type="llama"), t
    if kind == "cohere2":
        yield "full attention first", dict(c, layer_types=c["layer_types"][::-1]), t
        yield "RoPE's pairs in halves", c, {n: neighbours(c, x) if n.endswith(("q_proj.weight", "k_proj.weight")) else x
                                            for n, x in t.items()}
    if kind == "smollm3":
        yield "RoPE everywhere", dict(c, no_rope_layers=[1] * c["num_hidden_layers"]), t
        yield "the opposite", dict(c, no_rope_layers=[1 - x for x in c["no_rope_layers"]]), t
    for name in (n for n in t if n.endswith("_proj.bias")):
        # A bias of all keys alike changes no attention; these differ by head and dimension.
        yield name, c, dict(t, **{name: 0 * t[name]})

#!/usr/bin/env python3
"""Writes the tiny models of the families that mix in other ways, as family_oracles.py does for the others
(`make oracles`): a Hugging Face folder, model.gguf in llama.cpp's names and layouts, and what plain numpy
computes for them in float64. Needs numpy.

    qwen3moe       softmax over all experts, the chosen ones' weights normed
    lfm2moe        sigmoids, a bias that only chooses; the first layer without experts
    granitehybrid  Mamba-2 and attention without positions; four factors; gate and up as one matrix
    falcon_h1      both side by side in each layer; factors, which GGUF has in its weights; two groups
    gemma4         heads and widths by layer, shared keys and values, a table by layer, capped scores

Written from the papers and from what transformers documents, not from tern.
"""
import json, os, sys
import numpy as np
from decoder_np import silu
from families_np import Family, Lfm2, difference, gelu_tanh, sigmoid, softplus
from family_oracles import find_greedy
from gguf_np import write_gguf
from safetensors_np import to_bf16, write_safetensors

N_PROMPT, N_VOCAB = 72, 48
COMMON = {"vocab_size": N_VOCAB, "hidden_size": 32, "max_position_embeddings": 128, "bos_token_id": 0,
          "eos_token_id": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu"}
MAMBA = dict(mamba_d_conv=4, mamba_d_state=8, mamba_conv_bias=True, mamba_proj_bias=False, mamba_expand=2)
CASES = {
    "qwen3moe": dict(COMMON, model_type="qwen3_moe", architectures=["Qwen3MoeForCausalLM"], num_hidden_layers=2,
                     head_dim=16, intermediate_size=48, moe_intermediate_size=12, num_experts=5, num_experts_per_tok=2,
                     norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], rms_norm_eps=1e-6,
                     rope_theta=10000.0, tie_word_embeddings=False),
    "lfm2moe": dict(COMMON, model_type="lfm2_moe", architectures=["Lfm2MoeForCausalLM"], num_hidden_layers=3,
                    intermediate_size=24, moe_intermediate_size=12, num_experts=5, num_experts_per_tok=2,
                    num_dense_layers=1, norm_topk_prob=True, use_expert_bias=True, routed_scaling_factor=1.5,
                    conv_L_cache=3, conv_bias=False, norm_eps=1e-5, rope_theta=1000000.0,
                    layer_types=["conv", "full_attention", "conv"], tie_word_embeddings=True),
    "granitehybrid": dict(COMMON, model_type="granitemoehybrid", architectures=["GraniteMoeHybridForCausalLM"],
                          num_hidden_layers=3, layer_types=["mamba", "attention", "mamba"], intermediate_size=24,
                          shared_intermediate_size=24, num_local_experts=0, position_embedding_type="nope",
                          embedding_multiplier=1.5, residual_multiplier=0.4, logits_scaling=3.0,
                          attention_multiplier=0.2, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=True,
                          mamba_n_heads=4, mamba_d_head=12, mamba_n_groups=1, **dict(MAMBA, mamba_expand=1.5)),
    "falcon_h1": dict(COMMON, model_type="falcon_h1", architectures=["FalconH1ForCausalLM"], num_hidden_layers=2,
                      head_dim=8, intermediate_size=24, rms_norm_eps=1e-5, rope_theta=100000.0,
                      tie_word_embeddings=False, mamba_n_heads=4, mamba_d_head=12, mamba_d_ssm=48, mamba_n_groups=2,
                      mamba_rms_norm=False, mamba_norm_before_gate=False, projectors_bias=False,
                      # Powers of two: a product with them has no more digits, and GGUF is the same model.
                      embedding_multiplier=2.0, lm_head_multiplier=0.25, key_multiplier=0.5, ssm_in_multiplier=2.0,
                      ssm_out_multiplier=0.5, attention_in_multiplier=2.0, attention_out_multiplier=0.5,
                      mlp_multipliers=[2.0, 0.25], ssm_multipliers=[0.5, 1.0, 2.0, 0.25, 4.0], **MAMBA),
    "gemma4": dict(COMMON, model_type="gemma4_text", architectures=["Gemma4ForCausalLM"], num_hidden_layers=6,
                   head_dim=8, global_head_dim=16, num_attention_heads=2, num_key_value_heads=1, intermediate_size=20,
                   layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2,
                   num_kv_shared_layers=3, use_double_wide_mlp=True, hidden_size_per_layer_input=8,
                   vocab_size_per_layer_input=N_VOCAB, final_logit_softcapping=5.0, sliding_window=8, rms_norm_eps=1e-6,
                   hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=True, rope_parameters={
                       "full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0, "partial_rotary_factor": 0.25},
                       "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}),
}


# ---- The mathematics ---------------------------------------------------------------------------

class Experts:
    """A feed-forward part that is chosen row by row."""

    def scores(self, x, p):
        return (sigmoid(x),) * 2

    def factor(self, chosen):
        return chosen / chosen.sum()

    def experts(self, f, p, names):
        k, y = self.c["num_experts_per_tok"], np.zeros_like(f)
        scores, order = self.scores(self.linear(f, p + "gate"), p)
        for t in range(len(f)):
            best = np.argsort(-order[t], kind="stable")[:k]
            for e, weight in zip(best, self.factor(scores[t][best])):
                gate, up, down = (p + "experts.%d.%s" % (e, n) for n in names)
                h = silu(self.linear(f[t : t + 1], gate)) * self.linear(f[t : t + 1], up)
                y[t] += weight * self.linear(h, down)[0]
        self.used.update(n for n in self.t if p + "experts." in n)  # perhaps nobody chose it
        return y


class Qwen3Moe(Experts, Family):
    def scores(self, x, p):
        e = np.exp(x - x.max(-1, keepdims=True))
        return (e / e.sum(-1, keepdims=True),) * 2

    def feed_forward(self, f, p):
        return self.experts(f, p + "mlp.", ("gate_proj", "up_proj", "down_proj"))


class Lfm2Moe(Experts, Lfm2):
    def scores(self, x, p):
        return sigmoid(x), sigmoid(x) + self.w(p + "expert_bias")

    def factor(self, chosen):
        return chosen / (chosen.sum() + 1e-6) * self.c["routed_scaling_factor"]

    def feed_forward(self, f, p):
        if p + "feed_forward.gate.weight" not in self.t:
            return super().feed_forward(f, p)
        return self.experts(f, p + "feed_forward.", ("w1", "w3", "w2"))


class Mamba:
    def mamba(self, a, p, factors=(1,) * 5):
        c, n = self.c, len(a)
        heads, dim, groups, width = (c["mamba_" + k] for k in ("n_heads", "d_head", "n_groups", "d_state"))
        inner = heads * dim
        cuts = np.cumsum([inner, inner, groups * width, groups * width])
        z, x, b, to, dt = (y * self.dtype(m) for y, m in zip(np.split(self.linear(a, p + "in_proj"), cuts, 1), factors))
        w, taps = self.w(p + "conv1d.weight")[:, 0], c["mamba_d_conv"]
        rows = np.concatenate([x, b, to], 1)
        rows = np.concatenate([np.zeros((taps - 1, rows.shape[1]), self.dtype), rows])
        rows = silu(sum(rows[j : j + n] * w[:, j] for j in range(taps)) + self.w(p + "conv1d.bias"))
        x, b, to = np.split(rows, [inner, inner + groups * width], 1)
        x = x.reshape(n, heads, dim)
        b, to = (np.repeat(y.reshape(n, groups, width), heads // groups, 1) for y in (b, to))
        dt = softplus(dt + self.w(p + "dt_bias"))
        decay = np.exp(-np.exp(self.w(p + "A_log")) * dt)
        state, y = np.zeros((heads, dim, width), self.dtype), np.empty_like(x)
        for t in range(n):
            state = state * decay[t][:, None, None] + (dt[t][:, None] * x[t])[:, :, None] * b[t][:, None]
            y[t] = np.einsum("hpn,hn->hp", state, to[t]) + self.w(p + "D")[:, None] * x[t]
        y = y.reshape(n, inner) * silu(z)
        if p + "norm.weight" in self.t:
            y = self.norm(y, p + "norm")
        return self.linear(y, p + "out_proj")


class GraniteHybrid(Mamba, Family):
    def table(self, ids):
        return super().table(ids) * self.dtype(self.c["embedding_multiplier"])

    def scale(self):
        return self.c["attention_multiplier"]

    def turned(self, q, k, p, kind):
        return q, k

    def layer(self, x, p, kind):
        r = self.dtype(self.c["residual_multiplier"])
        a = self.norm(x, p + "input_layernorm")
        x = x + r * (self.mamba(a, p + "mamba.") if kind == "mamba" else self.attention(a, p + "self_attn.", kind))
        gate, up = np.split(self.linear(self.norm(x, p + "post_attention_layernorm"), p + "shared_mlp.input_linear"), 2, 1)
        return x + r * self.linear(silu(gate) * up, p + "shared_mlp.output_linear")

    def run(self, ids):
        y, hidden = super().run(ids)
        return y / self.dtype(self.c["logits_scaling"]), hidden


class FalconH1(Mamba, Family):
    names = dict(Family.names, attn_in="input_layernorm", ffn_in="pre_ff_layernorm", last="final_layernorm")

    def m(self, name):
        return self.dtype(self.c[name + "_multiplier"])

    def table(self, ids):
        return super().table(ids) * self.m("embedding")

    def turned(self, q, k, p, kind):
        return self.rotate(q, kind), self.rotate(k * self.m("key"), kind)

    def mixer(self, a, p, kind):
        factors = [self.c["ssm_in_multiplier"] * x for x in self.c["ssm_multipliers"]]
        y = self.m("ssm_out") * self.mamba(a, p + "mamba.", factors)
        return y + self.m("attention_out") * self.attention(a * self.m("attention_in"), p + "self_attn.", kind)

    def feed_forward(self, f, p):
        gate, down = (self.dtype(x) for x in self.c["mlp_multipliers"])
        p += "feed_forward."
        h = silu(self.linear(f, p + "gate_proj") * gate) * self.linear(f, p + "up_proj")
        return self.linear(h, p + "down_proj") * down

    def run(self, ids):
        y, hidden = super().run(ids)
        return y * self.m("lm_head"), hidden


class Gemma4(Family):
    act = staticmethod(gelu_tanh)

    def turn(self, x, kind):
        r, d = self.c["rope_parameters"][kind], x.shape[-1]
        f = r["rope_theta"] ** (-np.arange(d // 2) * 2 / d)
        f[int(d * r.get("partial_rotary_factor", 1)) // 2 :] = 0
        angle = np.outer(np.arange(len(x)), f)[:, None]
        c, s, (a, b) = np.cos(angle).astype(self.dtype), np.sin(angle).astype(self.dtype), np.split(x, 2, -1)
        return np.concatenate([a * c - b * s, b * c + a * s], -1)

    def sees(self, n, kind):
        back = np.subtract.outer(np.arange(n), np.arange(n))
        return (back >= 0) & ((back < self.c["sliding_window"]) | (kind == "full_attention"))

    def scale(self):
        return 1

    def table(self, ids):
        c, h, d = self.c, self.c["hidden_size"], self.c["hidden_size_per_layer_input"]
        x = super().table(ids) * self.dtype(h**0.5)
        token = self.w("embed_tokens_per_layer.weight")[np.asarray(ids)] * self.dtype(d**0.5)
        rows = self.linear(x, "per_layer_model_projection") * self.dtype(h**-0.5)
        rows = self.norm(rows.reshape(len(x), -1, d), "per_layer_projection_norm")
        self.per_layer = (rows + token.reshape(rows.shape)) * self.dtype(0.5**0.5)
        self.kept = {}
        return x

    def attention(self, a, p, kind):
        self.head_dim = self.c["global_head_dim" if kind == "full_attention" else "head_dim"]
        q = self.turn(self.norm(self.heads_of(a, p + "q_proj"), p + "q_norm"), kind)
        if p + "k_proj.weight" in self.t:
            k = self.turn(self.norm(self.heads_of(a, p + "k_proj"), p + "k_norm"), kind)
            v = self.heads_of(a, p + "v_proj")
            self.kept[kind] = k, v / np.sqrt((v * v).mean(-1, keepdims=True) + self.eps)
        o = self.weighted_values(q, *self.kept[kind], kind)
        return self.linear(o.reshape(len(a), -1), p + "o_proj")

    def layer(self, x, p, kind):
        i = int(p.split(".")[1])
        o = self.attention(self.norm(x, p + "input_layernorm"), p + "self_attn.", kind)
        x = x + self.norm(o, p + "post_attention_layernorm")
        f = self.feed_forward(self.norm(x, p + "pre_feedforward_layernorm"), p)
        x = x + self.norm(f, p + "post_feedforward_layernorm")
        y = gelu_tanh(self.linear(x, p + "per_layer_input_gate")) * self.per_layer[:, i]
        x = x + self.norm(self.linear(y, p + "per_layer_projection"), p + "post_per_layer_input_norm")
        return x * self.w(p + "layer_scalar")

    def run(self, ids):
        y, hidden = super().run(ids)
        cap = self.dtype(self.c["final_logit_softcapping"])
        return cap * np.tanh(y / cap), hidden


CLASSES = {"qwen3moe": Qwen3Moe, "lfm2moe": Lfm2Moe, "granitehybrid": GraniteHybrid, "falcon_h1": FalconH1, "gemma4": Gemma4}


# ---- Weights -----------------------------------------------------------------------------------

class Shapes:
    """Names and shapes of a model's tensors."""

    def __init__(self, name, c):
        self.c, self.h, self.out = c, c["hidden_size"], {}
        getattr(self, name)()

    def attention(self, p, d, norms=(), out="o_proj", own=True):
        n, kv = self.c["num_attention_heads"], self.c["num_key_value_heads"]
        self.out.update({p + "q_proj.weight": (n * d, self.h), p + out + ".weight": (self.h, n * d)})
        if own:
            self.out.update({p + x + "_proj.weight": (kv * d, self.h) for x in "kv"})
        self.out.update({p + x + ".weight": (d,) for x in norms if own or x.startswith("q")})

    def feed_forward(self, p, names, width):
        self.out.update({p + names[0] + ".weight": (width, self.h), p + names[1] + ".weight": (width, self.h),
                         p + names[2] + ".weight": (self.h, width)})

    def norms(self, p, *names):
        self.out.update({p + x + ".weight": (self.h,) for x in names})

    def experts(self, p, names):
        self.out[p + "gate.weight"] = (self.c["num_experts"], self.h)
        for e in range(self.c["num_experts"]):
            self.feed_forward(p + "experts.%d." % e, names, self.c["moe_intermediate_size"])

    def mamba(self, p, norm):
        c = self.c
        inner, group = c["mamba_n_heads"] * c["mamba_d_head"], c["mamba_n_groups"] * c["mamba_d_state"]
        wide, heads = inner + 2 * group, (c["mamba_n_heads"],)
        self.out.update({p + "in_proj.weight": (inner + wide + heads[0], self.h), p + "conv1d.weight": (wide, 1, c["mamba_d_conv"]),
                         p + "conv1d.bias": (wide,), p + "dt_bias": heads, p + "A_log": heads, p + "D": heads,
                         p + "out_proj.weight": (self.h, inner)})
        if norm:
            self.out[p + "norm.weight"] = (inner,)

    def whole(self, layer, last):
        self.out["embed_tokens.weight"] = (N_VOCAB, self.h)
        for i in range(self.c["num_hidden_layers"]):
            layer("layers.%d." % i, i)
        self.norms("", last)
        if not self.c["tie_word_embeddings"]:
            self.out["lm_head.weight"] = (N_VOCAB, self.h)

    def qwen3moe(self):
        def layer(p, i):
            self.norms(p, "input_layernorm", "post_attention_layernorm")
            self.attention(p + "self_attn.", self.c["head_dim"], ("q_norm", "k_norm"))
            self.experts(p + "mlp.", ("gate_proj", "up_proj", "down_proj"))
        self.whole(layer, "norm")

    def lfm2moe(self):
        def layer(p, i):
            self.norms(p, "operator_norm", "ffn_norm")
            if self.c["layer_types"][i] == "conv":
                self.out.update({p + "conv.in_proj.weight": (3 * self.h, self.h), p + "conv.conv.weight": (self.h, 1, 3),
                                 p + "conv.out_proj.weight": (self.h, self.h)})
            else:
                self.attention(p + "self_attn.", self.h // 4, ("q_layernorm", "k_layernorm"), "out_proj")
            if i < self.c["num_dense_layers"]:
                return self.feed_forward(p + "feed_forward.", ("w1", "w3", "w2"), self.c["intermediate_size"])
            self.experts(p + "feed_forward.", ("w1", "w3", "w2"))
            self.out[p + "feed_forward.expert_bias"] = (self.c["num_experts"],)
        self.whole(layer, "embedding_norm")

    def granitehybrid(self):
        def layer(p, i):
            self.norms(p, "input_layernorm", "post_attention_layernorm")
            if self.c["layer_types"][i] == "mamba":
                self.mamba(p + "mamba.", True)
            else:
                self.attention(p + "self_attn.", self.h // 4)
            width = self.c["shared_intermediate_size"]
            self.out.update({p + "shared_mlp.input_linear.weight": (2 * width, self.h),
                             p + "shared_mlp.output_linear.weight": (self.h, width)})
        self.whole(layer, "norm")

    def falcon_h1(self):
        def layer(p, i):
            self.norms(p, "input_layernorm", "pre_ff_layernorm")
            self.mamba(p + "mamba.", False)
            self.attention(p + "self_attn.", self.c["head_dim"])
            self.feed_forward(p + "feed_forward.", ("gate_proj", "up_proj", "down_proj"), self.c["intermediate_size"])
        self.whole(layer, "final_layernorm")

    def gemma4(self):
        c = self.c
        d, all_layers = c["hidden_size_per_layer_input"], c["num_hidden_layers"]
        def layer(p, i):
            own = i < all_layers - c["num_kv_shared_layers"]
            self.norms(p, "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                       "post_feedforward_layernorm", "post_per_layer_input_norm")
            full = c["layer_types"][i] == "full_attention"
            self.attention(p + "self_attn.", c["global_head_dim" if full else "head_dim"], ("q_norm", "k_norm"), own=own)
            self.feed_forward(p + "mlp.", ("gate_proj", "up_proj", "down_proj"), c["intermediate_size"] * (1 if own else 2))
            self.out.update({p + "per_layer_input_gate.weight": (d, self.h), p + "per_layer_projection.weight": (self.h, d),
                             p + "layer_scalar": (1,)})
        self.whole(layer, "norm")
        self.out.update({"embed_tokens_per_layer.weight": (N_VOCAB, d * all_layers),
                         "per_layer_model_projection.weight": (d * all_layers, self.h), "per_layer_projection_norm.weight": (d,)})


def draw(name, shape, random):
    if name.endswith("A_log"):
        return np.log(random.uniform(0.05, 1.5, shape))
    if name.endswith("dt_bias"):
        return random.uniform(-2, 1, shape)
    if name.endswith(("D", "layer_scalar", "norm.weight", "layernorm.weight")):
        return random.uniform(0.6, 1.5, shape)
    if name.endswith("expert_bias"):
        return random.uniform(-0.4, 0.4, shape)
    if len(shape) == 1:
        return random.normal(0, 0.5, shape)
    if len(shape) == 3 or "embed_tokens" in name:
        return random.normal(0, 0.7, shape)
    return random.normal(0, 2 if name.endswith(".gate.weight") else 1, shape) / np.sqrt(shape[1])


def misreadings(name, c, t):
    """Configs and tensors that are wrong in one thing; each must show in the numbers."""
    for key in [k for k in c if k.endswith("_multiplier") or k in ("logits_scaling", "routed_scaling_factor", "final_logit_softcapping")]:
        yield key, dict(c, **{key: c[key] * 1.25}), t
    for key in ("mlp_multipliers", "ssm_multipliers"):
        for i in range(len(c.get(key, ()))):
            yield "%s %d" % (key, i), dict(c, **{key: [x * (1.25 if i == j else 1) for j, x in enumerate(c[key])]}), t
    for end in ("A_log", "dt_bias", "mamba.D", "conv1d.bias", "expert_bias", "layer_scalar", "mamba.norm.weight"):
        found = [k for k in t if k.endswith(end)]
        if found and end == "layer_scalar":
            yield end, c, dict(t, **{found[-2]: 0 * t[found[-2]] + 1})
        elif found:
            yield end, c, dict(t, **{found[-1]: t[found[-1]][::-1]})
    if name == "gemma4":
        rope = c["rope_parameters"]
        yield "all pairs turn", dict(c, rope_parameters=dict(rope, full_attention=dict(rope["full_attention"], partial_rotary_factor=1.0))), t
        yield "a window of 9", dict(c, sliding_window=9), t
    if "num_experts" in c:
        yield "one expert", dict(c, num_experts_per_tok=1), t


# ---- GGUF --------------------------------------------------------------------------------------

NAMES = [("embed_tokens_per_layer", "per_layer_token_embd"), ("per_layer_model_projection", "per_layer_model_proj"),
         ("per_layer_projection_norm", "per_layer_proj_norm"), ("embed_tokens", "token_embd"), ("lm_head", "output"),
         ("embedding_norm", "token_embd_norm"), ("final_layernorm", "output_norm"), ("layers.", "blk."),
         ("input_layernorm", "attn_norm"), ("operator_norm", "attn_norm"), ("pre_feedforward_layernorm", "ffn_norm"),
         ("pre_ff_layernorm.weight", "ffn_norm"), ("post_feedforward_layernorm", "post_ffw_norm"),
         ("post_per_layer_input_norm", "post_norm"), ("per_layer_input_gate", "inp_gate"), ("per_layer_projection", "proj"),
         ("layer_scalar", "layer_output_scale.weight"), ("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"),
         ("self_attn.v_proj", "attn_v"), ("self_attn.o_proj", "attn_output"), ("self_attn.out_proj", "attn_output"),
         ("self_attn.q_norm", "attn_q_norm"), ("self_attn.k_norm", "attn_k_norm"), ("self_attn.q_layernorm", "attn_q_norm"),
         ("self_attn.k_layernorm", "attn_k_norm"), ("feed_forward.expert_bias", "exp_probs_b.bias"),
         ("feed_forward.gate.", "ffn_gate_inp."), ("mlp.gate.", "ffn_gate_inp."), ("mlp.gate_proj", "ffn_gate"),
         ("mlp.up_proj", "ffn_up"), ("mlp.down_proj", "ffn_down"), ("feed_forward.gate_proj", "ffn_gate"),
         ("feed_forward.up_proj", "ffn_up"), ("feed_forward.down_proj", "ffn_down"), ("feed_forward.w1", "ffn_gate"),
         ("feed_forward.w3", "ffn_up"), ("feed_forward.w2", "ffn_down"), ("shared_mlp.output_linear", "ffn_down"),
         ("conv.conv", "shortconv.conv"), ("conv.in_proj", "shortconv.in_proj"), ("conv.out_proj", "shortconv.out_proj"),
         ("mamba.in_proj", "ssm_in"), ("mamba.conv1d", "ssm_conv1d"), ("mamba.dt_bias", "ssm_dt.bias"), ("mamba.A_log", "ssm_a"),
         ("mamba.D", "ssm_d"), ("mamba.norm", "ssm_norm"), ("mamba.out_proj", "ssm_out")]
ENDS = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down", "w1": "gate", "w3": "up", "w2": "down"}


def gguf_name(arch, name):
    if name == "norm.weight":
        return "output_norm.weight"
    if "post_attention_layernorm" in name:
        return name.replace("layers.", "blk.").replace("post_attention_layernorm", "post_attention_norm" if arch == "gemma4" else "ffn_norm")
    for theirs, ours in NAMES:
        name = name.replace(theirs, ours)
    return name


def folded(c, name, x):
    """Falcon-H1's factors, in the weights."""
    inner, group = c["mamba_n_heads"] * c["mamba_d_head"], c["mamba_n_groups"] * c["mamba_d_state"]
    m = lambda n: c[n + "_multiplier"]
    if name.endswith("mamba.in_proj.weight"):
        widths = [inner, inner, group, group, c["mamba_n_heads"]]
        return x * np.repeat(m("ssm_in") * np.array(c["ssm_multipliers"]), widths)[:, None]
    for end, factor in (("q_proj.weight", m("attention_in")), ("k_proj.weight", m("attention_in") * m("key")),
                        ("v_proj.weight", m("attention_in")), ("o_proj.weight", m("attention_out")),
                        ("mamba.out_proj.weight", m("ssm_out")), ("gate_proj.weight", c["mlp_multipliers"][0]),
                        ("down_proj.weight", c["mlp_multipliers"][1]), ("embed_tokens.weight", m("embedding")),
                        ("lm_head.weight", m("lm_head"))):
        if name.endswith(end):
            return x * factor
    return x


def gguf_tensors(name, arch, c, t):
    out, bf16, experts = {}, set(), {}
    for key, x in t.items():
        if ".experts." in key:
            p, _, e, end, _ = key.rsplit(".", 4)
            layer = p.split(".")[1]
            experts.setdefault("blk.%s.ffn_%s_exps.weight" % (layer, ENDS[end]), []).append(x)
            continue
        x = folded(c, key, x) if name == "falcon_h1" else x
        x = -np.exp(x) if key.endswith("A_log") else x
        if key.endswith(("A_log", "mamba.D")):
            x = x[:, None]
        if x.ndim == 3:
            x = x[:, 0]
        if name == "granitehybrid" and key.endswith(("q_proj.weight", "k_proj.weight")):
            d = c["hidden_size"] // c["num_attention_heads"]
            x = x.reshape(-1, 2, d // 2, x.shape[1]).swapaxes(1, 2).reshape(x.shape)
        if "input_linear" in key:
            layer = key.split(".")[1]
            for part, half in zip(("gate", "up"), np.split(x, 2)):
                out["blk.%s.ffn_%s.weight" % (layer, part)] = half
                bf16.add("blk.%s.ffn_%s.weight" % (layer, part))
            continue
        new = gguf_name(arch, key)
        out[new] = x
        if x.ndim == 2 and not any(s in new for s in ("conv", "ssm_a", "ssm_d", "ffn_gate_inp")):
            bf16.add(new)
    for key, parts in experts.items():
        out[key] = np.stack(parts)
        bf16.add(key)
    return out, bf16


def gguf_meta(name, c, kinds):
    n, d = len(kinds), c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    attends = [kind not in ("conv", "mamba") for kind in kinds]
    kv = c["num_key_value_heads"]
    m = {"block_count": n, "context_length": c["max_position_embeddings"], "embedding_length": c["hidden_size"],
         "feed_forward_length": c["intermediate_size"], "attention.head_count": c["num_attention_heads"],
         "attention.head_count_kv": kv if all(attends) else [kv if a else 0 for a in attends],
         "attention.layer_norm_rms_epsilon": float(c.get("norm_eps", c.get("rms_norm_eps"))), "vocab_size": c["vocab_size"],
         "attention.key_length": d, "attention.value_length": d}
    if "rope_theta" in c:
        m["rope.freq_base"] = c["rope_theta"]
    if "num_experts" in c:
        m.update({"expert_count": c["num_experts"], "expert_used_count": c["num_experts_per_tok"],
                  "expert_feed_forward_length": c["moe_intermediate_size"]})
    if name == "lfm2moe":
        m.update({"shortconv.l_cache": c["conv_L_cache"], "expert_gating_func": 2, "expert_weights_scale": c["routed_scaling_factor"],
                  "leading_dense_block_count": c["num_dense_layers"]})
    if "mamba_n_heads" in c:
        m.update({"ssm.conv_kernel": c["mamba_d_conv"], "ssm.state_size": c["mamba_d_state"], "ssm.group_count": c["mamba_n_groups"],
                  "ssm.time_step_rank": c["mamba_n_heads"], "ssm.inner_size": c["mamba_n_heads"] * c["mamba_d_head"]})
    if name == "granitehybrid":
        m.update({"embedding_scale": c["embedding_multiplier"], "residual_scale": c["residual_multiplier"],
                  "logit_scale": c["logits_scaling"], "attention.scale": c["attention_multiplier"], "rope.scaling.finetuned": False})
    if name == "gemma4":
        shared, wide = n - c["num_kv_shared_layers"], c["intermediate_size"]
        rope = c["rope_parameters"]
        m.update({"feed_forward_length": [wide * (1 if i < shared else 2) for i in range(n)], "attention.sliding_window": c["sliding_window"],
                  "attention.sliding_window_pattern": [k == "sliding_attention" for k in kinds], "attention.key_length": c["global_head_dim"],
                  "attention.value_length": c["global_head_dim"], "attention.key_length_swa": d, "attention.value_length_swa": d,
                  "rope.freq_base": rope["full_attention"]["rope_theta"], "rope.freq_base_swa": rope["sliding_attention"]["rope_theta"],
                  "rope.dimension_count": c["global_head_dim"], "rope.dimension_count_swa": d,
                  "attention.shared_kv_layers": c["num_kv_shared_layers"], "final_logit_softcapping": c["final_logit_softcapping"],
                  "embedding_length_per_layer_input": c["hidden_size_per_layer_input"]})
    return m


# ---- The whole ---------------------------------------------------------------------------------

def make_model(name, c, random):
    shapes = Shapes(name, c).out
    while True:
        t = {("" if k.startswith("lm_head") else "model.") + k: to_bf16(draw(k, s, random).astype(np.float32)) for k, s in shapes.items()}
        model = CLASSES[name](None, np.float64, None, t, c)
        ids = [int(i) for i in random.integers(2, N_VOCAB, N_PROMPT)]
        y = model.run(ids)[0]
        worst = max(difference(CLASSES[name](None, np.float32, s, t, c).run(ids)[0], y) for s in (None, 1, 2))
        if worst >= 4e-6:
            continue
        greedy = find_greedy(model, ids)
        if greedy:
            return t, model, ids, greedy, y, worst


def write_case(folder, name, c, random):
    t, model, ids, greedy, y, worst = make_model(name, c, random)
    least = (np.inf, "")
    for what, wrong_c, wrong_t in misreadings(name, c, t):
        d = difference(CLASSES[name](None, np.float64, None, wrong_t, wrong_c).run(ids)[0], y)
        assert d > 0.005, "%s: %s changes the numbers by %.1e only" % (name, what, d)
        least = min(least, (d, what))
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as f:
        f.write(json.dumps(c, indent=1) + "\n")
    write_safetensors(os.path.join(folder, "model.safetensors"), t, set(t))
    golden = {"input_ids": np.array(ids, np.int32), "logits": y.astype(np.float32), "greedy_ids": np.array(greedy, np.int32)}
    write_safetensors(os.path.join(folder, "golden.safetensors"), golden)
    arch = {"falcon_h1": "falcon-h1"}.get(name, name)
    tensors, bf16 = gguf_tensors(name, arch, c, model.t)
    if name == "gemma4":
        tensors["rope_freqs.weight"] = np.array([1.0] * 2 + [1e30] * 6, np.float32)
    meta = {"general.architecture": arch, "general.name": name}
    meta.update({arch + "." + k: x for k, x in gguf_meta(name, c, model.kinds).items()})
    meta["tokenizer.ggml.model"] = "none"
    write_gguf(os.path.join(folder, "model.gguf"), meta, tensors, bf16)
    print("%s: float32 and float64 differ by at most %.1e; the least visible misreading (%s) by %.1e" % (name, worst, least[1], least[0]))


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "oracles")
    for seed, (name, c) in enumerate(CASES.items()):
        write_case(os.path.join(out, name), name, c, np.random.default_rng(3000 + seed))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes tests/oracles/<family>: tiny seeded models of each family as a Hugging Face folder and as
model.gguf (the names, keys and layouts of llama.cpp), and what families_np.py computes for them in
float64 (`make oracles`). Needs numpy.

    qwen3           norms of query and key by head; heads wider than hidden_size / n; tied
    qwen35          nested config, as many value heads as key heads, tied, a block to predict further
                    tokens and an image's tensor beside it, neither of which is run
    qwen35_grouped  flat config, three value heads to a key head, a head of its own
    lfm2            short convolutions, a feed-forward width that is adjusted
    gemma3          a window of 8, local and global RoPE
    gemma3_linear   nested config; positions divided by 8 in full layers only; keys of transformers 5
    embeddinggemma  both directions, mean of the rows, two matrices, unit length (sentence-transformers)

    qwen2, llama_scaled, ministral3, smollm3, phi3, granite, minicpm, exaone4, hunyuan, olmo2, llama_biased,
    ernie4_5, cohere2: dense_cases.py

golden.safetensors: input_ids (72: longer than a chunk of 64, than every window and every history),
logits and greedy_ids, or last_hidden_state and embedding.

Each of WRONG is a misreading (a window one too wide, a base of RoPE from the other kind of layer, the
order of value heads, ...) that changes the numbers by at least two percent, and float32 with its sums
in any order is within 4e-6: else other weights are tried, or there is no model.
"""
import json, os, sys
import numpy as np
import dense_cases
from families_np import difference, family
from family_gguf import tiled, write_model_gguf
from safetensors_np import to_bf16, write_safetensors

N_PROMPT, N_MORE, N_VOCAB = 72, 12, 48
GAP = 0.02      # between the two greatest logits, of their RMS
CLEAR = 0.02    # what a misreading changes at least
SUMS = 4e-6     # how far float32 with its sums in any order may be from float64
COMMON = {"vocab_size": N_VOCAB, "hidden_size": 32, "max_position_embeddings": 128, "bos_token_id": 0, "eos_token_id": 1}
QWEN35 = dict(COMMON, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=1, head_dim=16, hidden_act="silu",
              intermediate_size=24, rms_norm_eps=1e-6, linear_conv_kernel_dim=4, linear_num_key_heads=2,
              linear_num_value_heads=2, linear_key_head_dim=8, linear_value_head_dim=8, attn_output_gate=True)
GEMMA = dict(COMMON, num_hidden_layers=6, num_attention_heads=2, num_key_value_heads=1, head_dim=8, intermediate_size=20,
             rms_norm_eps=1e-6, hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=8, sliding_window=8,
             tie_word_embeddings=True)
LOCAL = {"rope_type": "default", "rope_theta": 10000.0}
CASES = {
    "qwen3": dict(COMMON, model_type="qwen3", architectures=["Qwen3ForCausalLM"], num_hidden_layers=2,
                  num_attention_heads=4, num_key_value_heads=2, head_dim=16, intermediate_size=64, hidden_act="silu",
                  rms_norm_eps=1e-6, rope_theta=1000000.0, rope_scaling=None, tie_word_embeddings=True,
                  use_sliding_window=False, sliding_window=None, torch_dtype="bfloat16"),
    "qwen35": {"model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"],
               "tie_word_embeddings": True, "image_token_id": 46, "vision_config": {"depth": 1, "hidden_size": 8},
               "text_config": dict(QWEN35, model_type="qwen3_5_text", tie_word_embeddings=True, mtp_num_hidden_layers=1,
                                   layer_types=["linear_attention"] * 3 + ["full_attention"],
                                   rope_parameters={"rope_type": "default", "rope_theta": 10000000.0, "mrope_interleaved": True,
                                                    "mrope_section": [1, 1, 0], "partial_rotary_factor": 0.25})},
    "qwen35_grouped": dict(QWEN35, model_type="qwen3_5_text", architectures=["Qwen3_5ForCausalLM"], num_hidden_layers=2,
                           linear_num_value_heads=6, full_attention_interval=2, tie_word_embeddings=False, hidden_size=40,
                           rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}),
    "lfm2": dict(COMMON, model_type="lfm2", architectures=["Lfm2ForCausalLM"], num_hidden_layers=3, num_attention_heads=4,
                 num_key_value_heads=2, intermediate_size=70, block_ff_dim=70, block_auto_adjust_ff_dim=True,
                 block_ffn_dim_multiplier=1.0, block_multiple_of=8, conv_L_cache=3, conv_bias=False, norm_eps=1e-5,
                 rope_theta=1000000.0, layer_types=["conv", "full_attention", "conv"], tie_embedding=True),
    "gemma3": dict(GEMMA, model_type="gemma3_text", architectures=["Gemma3ForCausalLM"], rope_theta=1000000.0,
                   rope_local_base_freq=10000.0, rope_scaling=None, sliding_window_pattern=6),
    "gemma3_linear": {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"],
                      "text_config": dict(GEMMA, model_type="gemma3_text",
                                          layer_types=["sliding_attention"] * 5 + ["full_attention"],
                                          rope_parameters={"sliding_attention": LOCAL,
                                                           "full_attention": {"rope_type": "linear", "factor": 8.0,
                                                                              "rope_theta": 1000000.0}}),
                      "vision_config": {"hidden_size": 8}},
    "embeddinggemma": dict(GEMMA, model_type="gemma3_text", architectures=["Gemma3TextModel"], use_bidirectional_attention=True,
                           sliding_window=16, layer_types=["sliding_attention"] * 5 + ["full_attention"],
                           rope_parameters={"sliding_attention": LOCAL, "full_attention": dict(LOCAL, rope_theta=1000000.0)}),
}
PREFIX = {"qwen35": "model.language_model.", "gemma3_linear": "language_model.model.", "embeddinggemma": ""}


# ---- Weights -----------------------------------------------------------------------------------

def text_config(c):
    return dict(c, **c.get("text_config", {}))


class Maker:
    """Random tensors of a layer, by the names that Hugging Face has."""

    def __init__(self, c, random):
        self.c, self.random, self.t = c, random, {}
        self.plus = 1 if c["model_type"].startswith(("qwen3_5", "gemma3")) else 0

    def put(self, name, x):
        self.t[name] = to_bf16(np.asarray(x, np.float32))

    def matrix(self, name, rows, columns, gain=1.0):
        self.put(name + ".weight", self.random.normal(0, gain / np.sqrt(columns), (rows, columns)))

    def norm(self, name, width, low=0.6, high=1.5, plus=None):
        plus = self.plus if plus is None else plus
        self.put(name + ".weight", self.random.uniform(low, high, width) - plus)

    def attention(self, p, out="o_proj", norms=("q_norm", "k_norm"), gated=False):
        c, h = self.c, self.c["hidden_size"]
        n, kv = c["num_attention_heads"], c["num_key_value_heads"]
        d = c.get("head_dim") or h // n
        self.matrix(p + "q_proj", n * d * (2 if gated else 1), h)
        self.matrix(p + "k_proj", kv * d, h)
        self.matrix(p + "v_proj", kv * d, h)
        self.matrix(p + out, h, n * d)
        for name in norms:  # wide enough for attention that prefers some positions
            self.norm(p + name, d, 0.9, 2.2)

    def feed_forward(self, p, names, width):
        self.matrix(p + names[0], width, self.c["hidden_size"])
        self.matrix(p + names[1], width, self.c["hidden_size"])
        self.matrix(p + names[2], self.c["hidden_size"], width)

    def delta_net(self, p):
        c, h = self.c, self.c["hidden_size"]
        n_k, n_v = c["linear_num_key_heads"], c["linear_num_value_heads"]
        keys, values = n_k * c["linear_key_head_dim"], n_v * c["linear_value_head_dim"]
        self.matrix(p + "in_proj_qkv", 2 * keys + values, h)
        self.matrix(p + "in_proj_z", values, h)
        self.matrix(p + "in_proj_a", n_v, h)
        self.matrix(p + "in_proj_b", n_v, h)
        self.put(p + "conv1d.weight", self.random.normal(0, 0.7, (2 * keys + values, 1, c["linear_conv_kernel_dim"])))
        self.put(p + "A_log", np.log(self.random.uniform(0.02, 1.5, n_v)))  # some forget at once, some hardly
        self.put(p + "dt_bias", self.random.uniform(-2, 1, n_v))
        self.norm(p + "norm", c["linear_value_head_dim"], plus=0)
        self.matrix(p + "out_proj", h, values)

    def layer(self, p, kind):
        c, h = self.c, self.c["hidden_size"]
        if any(c["model_type"] == x["model_type"] for x in dense_cases.CASES.values()):
            return dense_cases.make_layer(self, p)
        if c["model_type"] == "lfm2":
            self.norm(p + "operator_norm", h)
            self.norm(p + "ffn_norm", h)
            if kind == "conv":
                self.matrix(p + "conv.in_proj", 3 * h, h, 1.5)
                self.put(p + "conv.conv.weight", self.random.normal(0, 0.7, (h, 1, c["conv_L_cache"])))
                self.matrix(p + "conv.out_proj", h, h)
            else:
                self.attention(p + "self_attn.", "out_proj", ("q_layernorm", "k_layernorm"))
            multiple = c["block_multiple_of"]
            width = int(c["block_ffn_dim_multiplier"] * int(2 * c["block_ff_dim"] / 3))
            return self.feed_forward(p + "feed_forward.", ("w1", "w3", "w2"), -(-width // multiple) * multiple)
        self.norm(p + "input_layernorm", h)
        self.norm(p + "post_attention_layernorm", h)
        if c["model_type"].startswith("gemma3"):
            self.norm(p + "pre_feedforward_layernorm", h)
            self.norm(p + "post_feedforward_layernorm", h)
        if kind == "linear_attention":
            self.delta_net(p + "linear_attn.")
        else:
            self.attention(p + "self_attn.", gated=c["model_type"].startswith("qwen3_5"))
        self.feed_forward(p + "mlp.", ("gate_proj", "up_proj", "down_proj"), c["intermediate_size"])

    def whole(self, kinds):
        c, h = self.c, self.c["hidden_size"]
        self.put("embed_tokens.weight", self.random.normal(0, 0.7, (N_VOCAB, h)))
        for i, kind in enumerate(kinds):
            self.layer("layers.%d." % i, kind)
        self.norm("embedding_norm" if c["model_type"] == "lfm2" else "norm", h)
        return self.t


def with_prefix(name, c, t):
    prefix = PREFIX.get(name, "model.")
    out = {prefix + key: x for key, x in t.items()}
    if name == "qwen35":  # what a text model passes over
        zeros = np.zeros((8, 8), np.float32)
        out.update({"model.visual.merger.linear_fc1.weight": zeros, "mtp.fc.weight": zeros})
    if name == "gemma3_linear":
        out["vision_tower.vision_model.post_layernorm.weight"] = np.ones(8, np.float32)
    if c.get("tie_word_embeddings") is False:
        out["lm_head.weight"] = out[prefix + "embed_tokens.weight"][::-1].copy()
    return out


# ---- What the numbers tell apart ---------------------------------------------------------------

def changed(c, **more):
    """The same config with other facts, wherever it has its text's."""
    inner = dict(c.get("text_config", c), **more)
    return dict(c, text_config=inner) if "text_config" in c else inner


def misreadings(name, c, t):
    """Configs and tensors that are wrong in one thing."""
    x = text_config(c)
    rope = x.get("rope_parameters") or {}
    for key, wrong in (("rms_norm_eps", 1e-1), ("norm_eps", 1e-1), ("layer_norm_eps", 1e-1), ("query_pre_attn_scalar", 16)):
        if key in x:
            yield key, changed(c, **{key: wrong}), t
    if "rope_theta" in x:
        yield "rope_theta", changed(c, rope_theta=x["rope_theta"] / 10), t
    if x.get("sliding_window") and x.get("use_sliding_window", True):
        step = 2 if x.get("use_bidirectional_attention") else 1
        for window in (x["sliding_window"] + step, x["sliding_window"] - step):
            yield "a window of %d" % window, changed(c, sliding_window=window), t
    if "rope_local_base_freq" in x:
        yield "local base", changed(c, rope_local_base_freq=x["rope_theta"]), t
    if "sliding_attention" in rope:
        yield "local base", changed(c, rope_parameters=dict(rope, sliding_attention=rope["full_attention"])), t
        yield "global base", changed(c, rope_parameters=dict(rope, full_attention=LOCAL)), t
        for factor in (1.0, 4.0) if "factor" in rope["full_attention"] else ():
            full = dict(rope["full_attention"], factor=factor)
            yield "factor", changed(c, rope_parameters=dict(rope, full_attention=full)), t
    elif "partial_rotary_factor" in rope and "short_factor" not in rope:
        yield "partial RoPE", changed(c, rope_parameters=dict(rope, partial_rotary_factor=1.0)), t
    if "use_bidirectional_attention" in x:
        yield "causal", changed(c, use_bidirectional_attention=None), t
    yield from dense_cases.misreadings(x, t)
    for part in sorted({key.rsplit(".", 2)[-2] for key in t if "layers." in key and t[key].ndim == 1}):
        if part != "linear_attn":  # each vector of a layer counts, in its last layer alone
            last = sorted(key for key in t if "." + part + "." in key)[-1]
            yield last, c, dict(t, **{last: t[last][::-1]})
    for key in t:
        if key.endswith(("conv.weight", "conv1d.weight")):
            yield "taps reversed", c, dict(t, **{key: t[key][..., ::-1]})
            yield "oldest tap", c, dict(t, **{key: np.concatenate([0 * t[key][..., :1], t[key][..., 1:]], -1)})
        if key.endswith(("A_log", "dt_bias")):
            yield key, c, dict(t, **{key: t[key][::-1]})
        if key.endswith("in_proj_a.weight") and x["linear_num_value_heads"] > x["linear_num_key_heads"]:
            swapped = {k: tiled(x, k, t[k]) for k in t if "linear_attn" in k and ("in_proj" in k or "conv1d" in k or "out_proj" in k
                                                                            or "A_log" in k or "dt_bias" in k)}
            yield "value heads in the other order", c, dict(t, **swapped)
        if key.endswith("q_proj.weight") and x["model_type"] == "qwen3_5_text":
            yield "query and gate in halves", c, dict(t, **{key: t[key].reshape(2, -1, x["head_dim"], x["hidden_size"])
                                                            .transpose(1, 0, 2, 3).reshape(t[key].shape)})


def check_misreadings(name, c, t, ids, want):
    least = (np.inf, "")
    for what, wrong_c, wrong_t in misreadings(name, c, t):
        model = family(None, np.float64, None, wrong_t, wrong_c)
        model.all_used = lambda y: y
        got = model.run(ids)[0]
        if got.shape != want.shape:  # "causal" makes a decoder of an encoder
            got = model.rows(ids)[0]
        d = difference(got, want)
        assert d > CLEAR, "%s: %s changes the numbers by %.1e only" % (name, what, d)
        least = min(least, (d, what))
    return least


# ---- The whole ---------------------------------------------------------------------------------

def find_greedy(model, ids):
    ids = list(ids)
    for _ in range(N_MORE):
        y = model.run(ids)[0][-1]
        best = np.sort(y)[-2:]
        if best[1] - best[0] < GAP * np.sqrt((y * y).mean()):
            return None
        ids.append(int(y.argmax()))
    return ids


def check_orders(c, t, dense, ids, want):
    """How far float32 with its sums in other orders is; infinitely if it chooses otherwise."""
    worst = 0
    for shuffle in (None, 1, 2, 3):
        model = family(None, np.float32, shuffle, t, c)
        model.dense = dense
        y = model.run(ids)[0]
        worst = max(worst, difference(y, want))
        if (y.argmax(1) != want.argmax(1)).any():
            return np.inf
        if worst >= SUMS:
            break
    return worst


def write_sentence_transformers(folder, dense, bf16):
    h = dense[0].shape[1]
    kinds = ["", "1_Pooling", "2_Dense", "3_Dense", "4_Normalize"]
    types = ["Transformer", "Pooling", "Dense", "Dense", "Normalize"]
    modules = [{"idx": i, "name": str(i), "path": p, "type": "sentence_transformers.models." + t}
               for i, (p, t) in enumerate(zip(kinds, types))]
    configs = {"modules.json": modules, "1_Pooling/config.json": {"word_embedding_dimension": h, "pooling_mode_cls_token": False,
                                                                  "pooling_mode_mean_tokens": True, "include_prompt": True}}
    for i, w in enumerate(dense):
        p = "%d_Dense/" % (i + 2)
        configs[p + "config.json"] = {"in_features": w.shape[1], "out_features": w.shape[0], "bias": False,
                                      "activation_function": "torch.nn.modules.linear.Identity"}
        os.makedirs(os.path.join(folder, p), exist_ok=True)
        write_safetensors(os.path.join(folder, p, "model.safetensors"), {"linear.weight": w}, bf16)
    os.makedirs(os.path.join(folder, "1_Pooling"), exist_ok=True)
    for path, x in configs.items():
        with open(os.path.join(folder, path), "w") as f:
            f.write(json.dumps(x, indent=1) + "\n")


def make_model(name, c, random):
    """A model, a prompt and what it says to it: tried until the numbers are determined."""
    x = text_config(c)
    kinds = family(None, tensors={}, config=c).kinds
    while True:
        t = with_prefix(name, x, Maker(x, random).whole(kinds))
        model = family(None, np.float64, None, t, c)
        if name == "embeddinggemma":
            model.dense = [to_bf16((random.normal(0, 1, shape) / np.sqrt(shape[1])).astype(np.float32))
                           for shape in ((64, 32), (32, 64))]
        ids = [int(i) for i in random.integers(2, N_VOCAB, N_PROMPT)]
        y = model.run(ids)[0]
        error = check_orders(c, t, model.dense, ids, y)
        if error >= SUMS:
            continue
        greedy = ids if model.dense else find_greedy(model, ids)
        if greedy:
            return t, model, ids, greedy, y, error


def write_case(folder, name, c, random):
    t, model, ids, greedy, y, error = make_model(name, c, random)
    least = check_misreadings(name, c, t, ids, y)
    golden = {"input_ids": np.array(ids, np.int32)}
    if model.dense:
        golden.update(last_hidden_state=y.astype(np.float32), embedding=model.embed(ids).astype(np.float32))
    else:
        golden.update(logits=y.astype(np.float32), greedy_ids=np.array(greedy, np.int32))
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as f:
        f.write(json.dumps(c, indent=1) + "\n")
    write_safetensors(os.path.join(folder, "model.safetensors"), t, set(t))
    write_safetensors(os.path.join(folder, "golden.safetensors"), golden)
    if model.dense:
        write_sentence_transformers(folder, model.dense, {"linear.weight"})
    from_gguf = write_model_gguf(os.path.join(folder, "model.gguf"), name, model, model.dense, random)
    assert difference(from_gguf.run(ids)[0], y) < 1e-6, "%s: the GGUF is another model" % name
    print("%s: float32 and float64 differ by at most %.1e; the least visible misreading (%s) by %.1e"
          % (name, error, least[1], least[0]))


def main():  # [FOLDER [NAME...]]: where to, and which; a name's seed is its place in its table
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "oracles")
    for first, cases in ((2000, CASES), (3000, dense_cases.CASES)):
        for seed, (name, c) in enumerate(cases.items(), first):
            if name in sys.argv[2:] or not sys.argv[2:]:
                write_case(os.path.join(out, name), name, c, np.random.default_rng(seed))


if __name__ == "__main__":
    main()

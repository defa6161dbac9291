"""The same models as GGUF: names, keys and layouts as llama.cpp's converter writes them.

Norms are stored ready (1 + w), ssm_a is -exp(A_log), and the value heads of a delta net are in tiles: the
r value heads of key head j (HF: j r .. j r + r - 1) are j, K + j, 2 K + j, ...
"""
import numpy as np
from families_np import EPSILONS, family, plain_name
from gguf_np import write_gguf
from safetensors_np import to_bf16

NAMES = [("embed_tokens", "token_embd"), ("lm_head", "output"), ("embedding_norm", "token_embd_norm"),
         ("input_layernorm", "attn_norm"), ("operator_norm", "attn_norm"), ("pre_feedforward_layernorm", "ffn_norm"),
         ("post_feedforward_layernorm", "post_ffw_norm"), ("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"),
         ("self_attn.v_proj", "attn_v"), ("self_attn.o_proj", "attn_output"), ("self_attn.out_proj", "attn_output"),
         ("self_attn.q_norm", "attn_q_norm"), ("self_attn.k_norm", "attn_k_norm"), ("self_attn.q_layernorm", "attn_q_norm"),
         ("self_attn.k_layernorm", "attn_k_norm"), ("mlp.gate_proj", "ffn_gate"), ("mlp.up_proj", "ffn_up"),
         ("mlp.down_proj", "ffn_down"), ("feed_forward.w1", "ffn_gate"), ("feed_forward.w3", "ffn_up"),
         ("feed_forward.w2", "ffn_down"), ("conv.conv", "shortconv.conv"), ("conv.in_proj", "shortconv.in_proj"),
         ("conv.out_proj", "shortconv.out_proj"), ("linear_attn.in_proj_qkv", "attn_qkv"), ("linear_attn.in_proj_z", "attn_gate"),
         ("linear_attn.in_proj_a", "ssm_alpha"), ("linear_attn.in_proj_b", "ssm_beta"), ("linear_attn.conv1d", "ssm_conv1d"),
         ("linear_attn.A_log", "ssm_a"), ("linear_attn.dt_bias", "ssm_dt.bias"), ("linear_attn.norm", "ssm_norm"),
         ("linear_attn.out_proj", "ssm_out"), ("self_attn.qkv_proj", "attn_qkv"), ("mlp.gate_up_proj", "ffn_up"),
         ("self_attn.query_layernorm", "attn_q_norm"), ("self_attn.key_layernorm", "attn_k_norm")]
NEIGHBOURS = ("llama", "mistral3", "smollm3", "granite", "minicpm")  # of RoPE's pairs, which are halves in folders
AFTER_ATTENTION = {"olmo2": "post_attention_norm", "exaone4": "post_attention_norm", "qwen35": "post_attention_norm", "gemma3": "post_attention_norm",
                   "gemma-embedding": "post_attention_norm"}


def gguf_name(arch, name):
    name = name.replace("layers.", "blk.")
    if name == "norm.weight":
        return "output_norm.weight"
    if name.endswith("post_attention_layernorm.weight"):
        return name.replace("post_attention_layernorm", AFTER_ATTENTION.get(arch, "ffn_norm"))
    for theirs, ours in NAMES:
        name = name.replace(theirs, ours) if name.startswith(theirs) or "." + theirs in name else name
    return name


def tiled(c, name, x):
    """Value head j r + k of key head j goes to k K + j, in rows or (the last matrix) in columns."""
    n_k, n_v, dv = c["linear_num_key_heads"], c["linear_num_value_heads"], c["linear_value_head_dim"]
    order = np.arange(n_v).reshape(n_k, n_v // n_k).T.reshape(-1)
    wide = (order[:, None] * dv + np.arange(dv)).reshape(-1)
    keys = 2 * n_k * c["linear_key_head_dim"]
    if "in_proj_qkv" in name or "conv1d" in name:
        return np.concatenate([x[:keys], x[keys:][wide]])
    if "in_proj_z" in name:
        return x[wide]
    if "out_proj" in name:
        return x[:, wide]
    return x[order] if any(s in name for s in ("in_proj_a", "in_proj_b", "A_log", "dt_bias")) else x


def neighbours(c, x, back=False):
    """Rows of a head as pairs (2 i, 2 i + 1), of halves (i, i + n / 2), or back."""
    d = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    shape = (-1, d // 2, 2) if back else (-1, 2, d // 2)
    return x.reshape(shape + x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def is_turned(arch, name):
    return arch in NEIGHBOURS and name.endswith(("q_proj.weight", "k_proj.weight", "q_proj.bias", "k_proj.bias"))


def dense_meta(arch, c, model):
    """Keys and tensors that the families of dense_np.py have besides."""
    r, m, extra = c.get("rope_parameters") or {}, {}, {}
    if arch in ("granite", "minicpm"):
        scales = model.numbers()
        m = {"embedding_scale": float(scales[0]), "residual_scale": float(scales[1]), "logit_scale": float(scales[2])}
        if arch == "granite":
            m["attention.scale"] = float(c["attention_multiplier"])
    if r.get("rope_type") == "yarn":
        m.update({"rope.scaling.type": "yarn", "rope.scaling.factor": r["factor"],
                  "rope.scaling.original_context_length": r["original_max_position_embeddings"],
                  "rope.scaling.yarn_beta_fast": r["beta_fast"], "rope.scaling.yarn_beta_slow": r["beta_slow"],
                  "rope.scaling.yarn_log_multiplier": r["mscale_all_dim"],
                  "attention.temperature_scale": r["llama_4_scaling_beta"]})
    if r.get("rope_type") == "llama3":
        d = model.head_dim
        f = r["rope_theta"] ** (-np.arange(d // 2) / (d // 2))
        extra["rope_freqs.weight"] = (f / model.frequencies(f, 1)[0]).astype(np.float32)
    if r.get("rope_type") == "longrope":
        scale, original = c["max_position_embeddings"] / model.original(), model.original()
        m.update({"rope.scaling.original_context_length": original,
                  "rope.scaling.attn_factor": float(np.sqrt(1 + np.log(scale) / np.log(original))),
                  "rope.dimension_count": int(model.head_dim * c["partial_rotary_factor"])})
        for kind in ("long", "short"):
            extra["rope_factors_%s.weight" % kind] = np.array(r[kind + "_factor"], np.float32)
    if r.get("rope_type") == "dynamic":
        d = model.head_dim
        m["rope.freq_base"] = float(r["rope_theta"] * r["alpha"] ** (d / (d - 2)))
    if arch == "exaone4":
        m.update({"attention.sliding_window": c["sliding_window"],
                  "attention.sliding_window_pattern": [kind == "sliding_attention" for kind in model.kinds]})
    if arch == "cohere2":  # each 4th layer has full attention, which no key says
        m.update({"attention.sliding_window": c["sliding_window"], "logit_scale": c["logit_scale"],
                  "rope.dimension_count": model.head_dim, "rope.scaling.type": "none"})
    return m, extra


def gguf_tensors(arch, c, t, plus):
    out, bf16 = {}, set()
    for name, x in t.items():
        name = plain_name(name)
        if name.startswith(("model.", "mtp.", "vision_tower.")):
            continue
        if "linear_attn." in name and "linear_attn.norm" not in name:
            x = tiled(c, name, x)
        if is_turned(arch, name):
            x = neighbours(c, x)
        if name.endswith("A_log"):
            x = -np.exp(x)
        if x.ndim == 3:
            x = x[:, 0]
        elif name.endswith("norm.weight") and "linear_attn" not in name:
            x = x + np.float32(plus)
        new = gguf_name(arch, name)
        out[new] = x
        if x.ndim == 2 and "conv" not in new.rsplit(".", 2)[-2]:
            bf16.add(new)
    return out, bf16


def gguf_meta(arch, c, kinds, n_ff):
    d = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    theta = c.get("rope_theta")
    r = c.get("rope_parameters") or {}
    r = r.get("full_attention", r)
    eps = next(key for key in EPSILONS if key in c)
    conv_layers = [0 if kind == "conv" else c["num_key_value_heads"] for kind in kinds]
    m = {"block_count": len(kinds), "context_length": c["max_position_embeddings"], "embedding_length": c["hidden_size"],
         "feed_forward_length": n_ff, "attention.head_count": c["num_attention_heads"],
         "attention.head_count_kv": conv_layers if arch == "lfm2" else c["num_key_value_heads"],
         "attention.layer_norm_%sepsilon" % ("" if eps == "layer_norm_eps" else "rms_"): float(c[eps]),
         "rope.freq_base": float(theta or r["rope_theta"])}
    if arch == "lfm2":
        m.update({"vocab_size": c["vocab_size"], "shortconv.l_cache": c["conv_L_cache"]})
        return m
    m.update({"attention.key_length": d, "attention.value_length": d})
    if arch == "qwen35":
        rot = int(d * r["partial_rotary_factor"])
        m.update({"rope.dimension_count": rot, "rope.dimension_sections": (r.get("mrope_section") or [2, 1, 1]) + [0],
                  "full_attention_interval": c.get("full_attention_interval", 4),
                  "ssm.conv_kernel": c["linear_conv_kernel_dim"], "ssm.state_size": c["linear_key_head_dim"],
                  "ssm.group_count": c["linear_num_key_heads"], "ssm.time_step_rank": c["linear_num_value_heads"],
                  "ssm.inner_size": c["linear_num_value_heads"] * c["linear_value_head_dim"]})
    if arch.startswith("gemma"):
        m["attention.sliding_window"] = c["sliding_window"]
        if r.get("rope_type") == "linear":
            m.update({"rope.scaling.type": "linear", "rope.scaling.factor": float(r["factor"])})
    if arch == "gemma-embedding":
        m["pooling_type"] = 1
    return m


def add_next_token_block(meta, tensors, bf16, random):
    """qwen35: the block after the last predicts further tokens; a text is computed without it."""
    p = "blk.%d." % meta["block_count"]
    meta.update({"block_count": meta["block_count"] + 1, "nextn_predict_layers": 1})
    h = meta["embedding_length"]
    tensors[p + "nextn.eh_proj.weight"] = to_bf16(random.normal(0, 1, (h, 2 * h)).astype(np.float32))
    bf16.add(p + "nextn.eh_proj.weight")
    for name in ("attn_norm", "nextn.enorm", "nextn.hnorm"):
        tensors[p + name + ".weight"] = np.ones(h, np.float32)


def as_read(model, tensors):
    """The model that a reader of the GGUF has: value heads stay in tiles."""
    back = {}
    for name in model.t:
        x = tensors[gguf_name(model.arch, name)]
        if name.endswith("A_log"):
            x = np.log(-x)
        elif is_turned(model.arch, name):
            x = neighbours(model.c, x, True)
        elif name.endswith("conv.weight") or name.endswith("conv1d.weight"):
            x = x[:, None]
        elif x.ndim == 1 and name.endswith("norm.weight") and "linear_attn" not in name:
            x = x - np.float32(model.plus)
        back[name] = x
    other = family(None, np.float64, None, back, model.c)
    other.tiled = True
    return other


def write_model_gguf(path, name, model, dense, random):
    """Returns the model as_read."""
    c = model.c
    arch = {"qwen3": "qwen3", "lfm2": "lfm2", "embeddinggemma": "gemma-embedding", "ministral3": "mistral3",
            "hunyuan": "hunyuan-dense", "ernie4_5": "ernie4_5"}.get(name, name.split("_")[0])
    model.arch = arch
    tensors, bf16 = gguf_tensors(arch, c, model.t, model.plus)
    n_ff = tensors["blk.0.ffn_down.weight"].shape[1]
    meta = gguf_meta(arch, c, model.kinds, n_ff)
    if hasattr(model, "growth"):
        more, extra = dense_meta(arch, c, model)
        meta.update(more)
        tensors.update(extra)
    if name == "qwen35":
        add_next_token_block(meta, tensors, bf16, random)
    for i, x in enumerate(dense):
        tensors["dense_%d.weight" % (i + 2)] = x
        bf16.add("dense_%d.weight" % (i + 2))
        meta["dense_%d_feat_in" % (i + 2)], meta["dense_%d_feat_out" % (i + 2)] = x.shape[1], x.shape[0]
    head = {"general.architecture": arch, "general.name": name}
    head.update({arch + "." + key: x for key, x in meta.items()})
    head["tokenizer.ggml.model"] = "none"
    write_gguf(path, head, tensors, bf16)
    return as_read(model, tensors)

#!/usr/bin/env python3
"""Writes tests/oracles/kani and tests/oracles/nanocodec: a tiny model that speaks and a tiny codec as their repositories
have them, and what plain numpy makes of a text in float64 (`make oracles`). Needs numpy.

    speech_oracles.py --shape real FOLDER

writes instead FOLDER/kani and FOLDER/nanocodec, models of the published sizes with random weights, to measure speed with.
"""
import json, math, os, sys
import numpy as np
from families_np import Lfm2
from safetensors_np import write_safetensors

N_TEXT, MARKS = 64, 10  # text: as many as tests/oracles/small_tokenizer.json has, and some
CODEC = dict(levels=[3, 4], channels=12, rates=[3, 2], kernels=[3, 5], dilations=[1, 3], in_kernel=7, out_kernel=3, codes=4)
MODEL = dict(hidden=32, layers=["conv", "full_attention", "conv", "full_attention"], heads=4, kv=2, ff=48, context=128,
             text=N_TEXT, speaker=6)
REAL_CODEC = dict(levels=[9, 8, 8, 7], channels=864, rates=[7, 7, 6, 3, 2], kernels=[3, 7, 11], dilations=[1, 3, 5],
                  in_kernel=7, out_kernel=3, codes=4)
REAL_MODEL = dict(hidden=1024, layers=["full_attention" if i in (2, 5, 8, 10, 12, 14) else "conv" for i in range(16)],
                  heads=16, kv=8, ff=4608, context=4096, text=64400, speaker=128)
TEXT = [1, 17, 5, 30, 22]
FRAMES = 9


def values_of(codec):
    return math.prod(codec["levels"])


# ---- The codec -----------------------------------------------------------------------------------

def codec_config(s):
    return dict(model_type="nanocodec", sample_rate=22050, samples_per_frame=math.prod(s["rates"]),
                vector_quantizer=dict(num_groups=s["codes"], num_levels_per_group=s["levels"]),
                audio_decoder=dict(input_dim=s["codes"] * len(s["levels"]), up_sample_rates=s["rates"],
                                   base_channels=s["channels"], in_kernel_size=s["in_kernel"],
                                   out_kernel_size=s["out_kernel"], resblock_kernel_sizes=s["kernels"],
                                   resblock_dilation_sizes=s["dilations"], activation="half_snake",
                                   output_activation="clamp", pad_mode="zeros", n_groups_equal_to_out_channels=True))


def codec_tensors(s, random, normed):
    """normed: the convolutions as direction and length, those of odd stages in the older spelling."""
    t, n = {}, s["channels"]

    def conv(name, shape, fan, spelling=0):
        w = random.normal(0, 1 / math.sqrt(fan), shape)
        name = "audio_decoder." + name + ".conv"
        t[name + ".bias"] = random.normal(0, 0.05, shape[0] if "up_sample" not in name else shape[0] // 2)
        if not normed:
            t[name + ".weight"] = w
            return
        length = np.sqrt((w * w).sum((1, 2), keepdims=True))
        g, v = ((".parametrizations.weight.original0", ".parametrizations.weight.original1"),
                (".weight_g", ".weight_v"))[spelling]
        t[name + g], t[name + v] = length, w * random.uniform(0.5, 2, (shape[0], 1, 1))

    def snake(name, n):
        t["audio_decoder." + name + ".activation.snake_act.alpha"] = random.uniform(0.5, 1.5, (1, n // 2, 1))

    n_in = s["codes"] * len(s["levels"])
    conv("pre_conv", (n, n_in, s["in_kernel"]), n_in * s["in_kernel"])
    for i, rate in enumerate(s["rates"]):
        snake("activations.%d" % i, n)
        conv("up_sample_conv_layers.%d" % i, (n, 1, 2 * rate), 4, i % 2)
        n //= 2
        for k, taps in enumerate(s["kernels"]):
            for d in range(len(s["dilations"])):
                p = "res_layers.%d.res_blocks.%d.res_blocks.%d." % (i, k, d)
                for act, part in (("input_activation", "input_conv"), ("skip_activation", "skip_conv")):
                    snake(p + act, n)
                    conv(p + part, (n, n, taps), n * taps * 2, i % 2)
    snake("post_activation", n)
    conv("post_conv", (1, n, s["out_kernel"]), n * s["out_kernel"])
    return {name: x.astype(np.float32) for name, x in t.items()}


class Codec:
    """Rows are channels, columns are samples, as in the paper's own program."""

    def __init__(self, s, tensors):
        self.s, self.t = s, {k[len("audio_decoder."):]: x.astype(np.float64) for k, x in tensors.items()}

    def weight(self, name):
        for g, v in ((".parametrizations.weight.original0", ".parametrizations.weight.original1"),
                     (".weight_g", ".weight_v")):
            if name + v in self.t:
                w = self.t[name + v]
                return self.t[name + g] * w / np.sqrt((w * w).sum((1, 2), keepdims=True))
        return self.t[name + ".weight"]

    def conv(self, x, name, dilation=1):
        w, b = self.weight(name + ".conv"), self.t[name + ".conv.bias"]
        before = (w.shape[2] - 1) * dilation
        x = np.pad(x, ((0, 0), (before, 0)))
        n = x.shape[1] - before
        return b[:, None] + sum(w[:, :, j] @ x[:, j * dilation : j * dilation + n] for j in range(w.shape[2]))

    def upsample(self, x, name, rate):
        w, b = self.weight(name + ".conv"), self.t[name + ".conv.bias"]
        n = x.shape[1]
        y = np.zeros((len(b), (n + 1) * rate))
        for i in range(len(x)):  # input i feeds output i // 2
            for t in range(n):
                y[i // 2, t * rate : (t + 2) * rate] += w[i, 0] * x[i, t]
        return y[:, : n * rate] + b[:, None]

    def snake(self, x, name):
        alpha, half = self.t[name + ".activation.snake_act.alpha"][0], len(x) // 2
        a, b = x[:half], x[half:]
        return np.concatenate([a + np.sin(alpha * a) ** 2 / (alpha + 1e-9), np.maximum(b, 0.01 * b)])

    def sound(self, codes):
        """codes: [codes of a frame, frames]."""
        digits = []
        for group in codes:
            rest = group.copy()
            for levels in self.s["levels"]:
                digits.append((rest % levels - levels // 2) / (levels // 2))
                rest //= levels
        x = self.conv(np.array(digits, np.float64), "pre_conv")
        for i, rate in enumerate(self.s["rates"]):
            x = self.upsample(self.snake(x, "activations.%d" % i), "up_sample_conv_layers.%d" % i, rate)
            ends = []
            for k in range(len(self.s["kernels"])):
                y = x
                for d, dilation in enumerate(self.s["dilations"]):
                    p = "res_layers.%d.res_blocks.%d.res_blocks.%d." % (i, k, d)
                    h = self.conv(self.snake(y, p + "input_activation"), p + "input_conv", dilation)
                    y = y + self.conv(self.snake(h, p + "skip_activation"), p + "skip_conv")
                ends.append(y)
            x = sum(ends) / len(ends)
        return np.clip(self.conv(self.snake(x, "post_activation"), "post_conv")[0], -1, 1)


# ---- The model that speaks -----------------------------------------------------------------------

def model_config(s, codec):
    return dict(model_type="lfm2", architectures=["KaniTTS2ForCausalLM"], hidden_size=s["hidden"],
                num_hidden_layers=len(s["layers"]), num_attention_heads=s["heads"], num_key_value_heads=s["kv"],
                intermediate_size=s["ff"], block_auto_adjust_ff_dim=False, conv_L_cache=3, conv_bias=False, norm_eps=1e-5,
                rope_theta=1e6, vocab_size=s["text"] + MARKS + codec["codes"] * values_of(codec), layer_types=s["layers"],
                max_position_embeddings=s["context"], tie_word_embeddings=True, bos_token_id=1,
                eos_token_id=s["text"] + 2, tokens_per_frame=codec["codes"], audio_step=1.0, use_learnable_rope=True,
                alpha_min=0.1, alpha_max=2.0, speaker_emb_dim=s["speaker"], text_vocab_size=s["text"],
                codebook_size=values_of(codec), num_codebooks=codec["codes"],
                audio_tokens_start=s["text"] + MARKS)


def model_tensors(s, c, random):
    n, t, dim = s["hidden"], {}, s["hidden"] // s["heads"]

    def put(name, *shape, scale=1.0):
        t["model." + name] = random.normal(0, scale / math.sqrt(shape[-1]), shape)

    put("embed_tokens.weight", c["vocab_size"], n, scale=3)
    put("speaker_emb_projection.weight", n, s["speaker"], scale=2)
    t["model.embedding_norm.weight"] = random.uniform(0.7, 1.3, n)
    for i, kind in enumerate(s["layers"]):
        p = "layers.%d." % i
        for name in ("operator_norm", "ffn_norm"):
            t["model." + p + name + ".weight"] = random.uniform(0.7, 1.3, n)
        put(p + "feed_forward.w1.weight", s["ff"], n)
        put(p + "feed_forward.w3.weight", s["ff"], n)
        put(p + "feed_forward.w2.weight", n, s["ff"])
        if kind == "conv":
            put(p + "conv.in_proj.weight", 3 * n, n)
            put(p + "conv.conv.weight", n, 1, 3)
            put(p + "conv.out_proj.weight", n, n)
            continue
        put(p + "self_attn.q_proj.weight", n, n, scale=2)
        put(p + "self_attn.k_proj.weight", s["kv"] * dim, n, scale=2)
        put(p + "self_attn.v_proj.weight", s["kv"] * dim, n)
        put(p + "self_attn.out_proj.weight", n, n)
        for name in ("q_layernorm", "k_layernorm"):
            t["model." + p + "self_attn." + name + ".weight"] = random.uniform(0.7, 1.3, dim)
        t["model.learnable_rope_layers.%d.alpha_weight" % i] = random.normal(0, 1, 1)
    return {name: x.astype(np.float32) for name, x in t.items()}


class Kani(Lfm2):
    """Rows of frames share a place, layers turn at speeds of their own, and id -1 is the voice's row."""
    places = voice = None

    def table(self, ids):
        ids = np.asarray(ids)
        x = self.w("embed_tokens.weight")[np.maximum(ids, 0)]
        if self.voice is not None:
            x[ids < 0] = self.w("speaker_emb_projection.weight") @ self.voice
        return x

    def turned(self, q, k, p, kind):
        q, k = self.norm(q, p + self.names["q"]), self.norm(k, p + self.names["k"])
        c, half = self.c, self.head_dim // 2
        w = self.w("learnable_rope_layers.%s.alpha_weight" % p.split(".")[1])[0]
        rate = c["alpha_min"] + (c["alpha_max"] - c["alpha_min"]) / (1 + np.exp(-w))
        angle = np.outer(self.places, rate * c["rope_theta"] ** (-np.arange(half) / half))[:, None]
        cos, sin = np.cos(angle), np.sin(angle)
        return (np.concatenate([x[..., :half] * cos - x[..., half:] * sin, x[..., half:] * cos + x[..., :half] * sin], -1)
                for x in (q, k))

    def say(self, text, voice, n_frames):
        """Frames of codes, greedily, whether it ended by itself, and by how much the least certain choice was one."""
        c, first = self.c, self.c["text_vocab_size"]
        each, values = c["tokens_per_frame"], c["codebook_size"]
        self.voice = voice
        ids = [first + 3] + ([-1] if voice is not None else []) + text + [2, first + 4, first + 5, first + 1]
        n, frames, margin = len(ids), [], np.inf
        for t in range(n_frames * each):
            self.places = np.minimum(np.arange(len(ids)), n) + np.maximum(np.arange(len(ids)) - n, 0) // each
            y = self.sum_products(self.rows(ids)[0][-1:], self.w("embed_tokens.weight"))[0]
            start = first + MARKS + t % each * values
            allowed = list(range(start, start + values)) + ([first + 2] if t % each == 0 else [])
            best = sorted(allowed, key=lambda i: -y[i])
            margin = min(margin, y[best[0]] - y[best[1]])
            if best[0] == first + 2:
                return np.array(frames).reshape(-1, each), True, margin
            ids.append(best[0])
            frames.append(best[0] - start)
        return np.array(frames).reshape(-1, each), False, margin


# ---- Files ---------------------------------------------------------------------------------------

def write(folder, config, tensors, golden=None):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
        f.write("\n")
    write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
    if golden:
        write_safetensors(os.path.join(folder, "golden.safetensors"), golden)


def search(folder):
    """The first seed whose choices are certain, one of which ends by itself, and whose sound is within its bounds."""
    for seed in range(1, 4000):
        random = np.random.default_rng(seed)
        config = model_config(MODEL, CODEC)
        tensors = model_tensors(MODEL, config, random)
        model = Kani("", tensors=tensors, config=config)
        voice = random.normal(0, 1, MODEL["speaker"]).astype(np.float32)
        short, ends, margin = model.say(TEXT, None, FRAMES)
        if not ends or len(short) < 3 or margin < 0.02:
            continue
        long, ends, margin = model.say(TEXT, voice.astype(np.float64), FRAMES)
        if not ends and margin >= 0.02 and len(np.unique(long)) > 6:
            return seed, config, tensors, voice, short, long
    raise SystemExit("no seed")


def main():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracles")
    if sys.argv[1:2] == ["--shape"]:
        random = np.random.default_rng(1)
        config = model_config(REAL_MODEL, REAL_CODEC)
        write(os.path.join(sys.argv[3], "kani"), config, model_tensors(REAL_MODEL, config, random))
        write(os.path.join(sys.argv[3], "nanocodec"), codec_config(REAL_CODEC), codec_tensors(REAL_CODEC, random, False))
        return
    seed, config, tensors, voice, short, long = search(folder)
    codec = codec_tensors(CODEC, np.random.default_rng(5), True)
    reference = Codec(CODEC, codec)
    sounds = {name: reference.sound(codes.T).astype(np.float32) for name, codes in (("short", short), ("long", long))}
    print("seed %d: %d and %d frames, samples up to %.2f" % (seed, len(short), len(long), np.abs(sounds["long"]).max()))
    golden = dict(text=np.array(TEXT, np.int32), voice=voice, short_codes=short.astype(np.int32),
                  long_codes=long.astype(np.int32), short_sound=sounds["short"], long_sound=sounds["long"])
    write(os.path.join(folder, "kani"), config, tensors, golden)
    write(os.path.join(folder, "nanocodec"), codec_config(CODEC), codec)


if __name__ == "__main__":
    main()

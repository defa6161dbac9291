#!/usr/bin/env python3
"""Writes the seeds of the file readers' fuzz targets: small files, valid and not.

usage: tools/make_fuzz_corpus.py [fuzz/corpus]

The seeds are committed; run this again when a format gets a new feature.
"""
import json
import math
import os
import struct
import sys
import zlib

F32, F16, Q8_0, TQ1_0, TQ2_0, I2_S = 0, 1, 8, 34, 35, 36
Q1_0_32, Q1_0, Q2_0, PQ2_0, PTQ1_0 = 40, 41, 42, 142, 143  # the first is NVFP4, too
META = {name: i for i, name in enumerate(
    "u8 i8 u16 i16 u32 i32 f32 bool str arr u64 i64 f64".split())}
PACK = dict(u8="<B", i8="<b", u16="<H", i16="<h", u32="<I", i32="<i", f32="<f", bool="<B",
            u64="<Q", i64="<q", f64="<d")


def text(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def value(kind, v):
    return text(v) if kind == "str" else struct.pack(PACK[kind], v)


def meta(key, kind, v):
    if isinstance(v, list):
        head = struct.pack("<IIQ", META["arr"], META[kind], len(v))
        return text(key) + head + b"".join(value(kind, x) for x in v)
    return text(key) + struct.pack("<I", META[kind]) + value(kind, v)


def gguf(metas, tensors, version=3, alignment=32, cut=0):
    """tensors: (name, type, ne, data)"""
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metas)) + b"".join(metas)
    offset = 0
    for name, kind, ne, data in tensors:
        out += text(name) + struct.pack("<I", len(ne))
        out += b"".join(struct.pack("<Q", n) for n in ne) + struct.pack("<IQ", kind, offset)
        offset += -(-len(data) // alignment) * alignment
    for _, _, _, data in tensors:
        out += b"\0" * (-len(out) % alignment) + data
    return out[:len(out) - cut]


def gguf_seeds():
    every = [meta("general.architecture", "str", "bitnet-b1.58")]
    every += [meta("k." + k, k, 1) for k in PACK]
    every += [meta("tokens", "str", ["a", "", "<s>"]), meta("scores", "f32", [0, -1]),
              meta("types", "i32", [1, 3, 6])]
    i2_s = bytes([0x1B, 0x92] * 16) + struct.pack("<f", 0.5) + bytes(28)
    tensors = [("token_embd.weight", F16, [4, 2], bytes(16)),
               ("blk.0.ffn_up.weight", I2_S, [128], i2_s),
               ("output_norm.weight", F32, [4], bytes(16))]
    blocks = [("a", TQ1_0, [256, 1], bytes(54)), ("b", TQ2_0, [256, 1, 1], bytes(66)),
              ("c", Q8_0, [32, 1, 1, 1], bytes(34))]
    groups = [("a", Q1_0, [128, 1], bytes(18)), ("b", Q2_0, [1024, 2], bytes(1024 * 2 // 64 * 18)),
              ("c", PQ2_0, [128, 2], bytes(68)), ("d", PTQ1_0, [128], bytes(28)),
              ("e", Q1_0_32, [256, 1], bytes(48))]
    split = [meta("split.no", "u16", 0), meta("split.count", "u16", 2),
             meta("split.tensors.count", "i32", 3)]
    nested = text("n") + struct.pack("<IIQIQ", META["arr"], META["arr"], 1, META["u8"], 0)
    yield "every_kind", gguf(every, tensors)
    yield "version_2", gguf(every[:3], tensors[:1], version=2)
    yield "blocks", gguf([], blocks)
    yield "groups", gguf([], groups)
    yield "groups_of_128", gguf([], [("b", Q2_0, [1024, 2], bytes(1024 * 2 // 128 * 34))])
    yield "aligned_64", gguf([meta("general.alignment", "u32", 64)], tensors, alignment=64)
    yield "split", gguf(split, tensors)
    yield "empty", gguf([], [])
    yield "cut", gguf(every, tensors, cut=20)
    yield "nested", gguf([nested], [])
    yield "same_name", gguf([], tensors[:1] * 2)
    yield "unknown_type", gguf([], [("t", 135, [256], bytes(64))])
    yield "unknown_type_cut", gguf([], [("t", 135, [256], b"")])
    yield "huge_counts", b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1 << 61)
    yield "whisper", whisper_bin()
    yield "whisper_blocks", whisper_bin(kind=2008, tensors=[("decoder.blocks.0.mlp.0.weight", Q8_0, [32, 2], bytes(68))])
    yield "whisper_english", whisper_bin(vocab=51864, tensors=[])
    yield "whisper_cut", whisper_bin()[:-9]
    yield "whisper_sizes", whisper_bin(vocab=(1 << 20), context=-1, tensors=[])


def whisper_tensors(width, layers, vocab, context, source, mels):
    """OpenAI's names; shapes with the longest dimension last."""
    def norm(name):
        yield name + ".weight", [width]
        yield name + ".bias", [width]

    def attention(name, ln):
        yield from norm(ln)
        for part in ("query", "key", "value", "out"):
            yield "%s.%s.weight" % (name, part), [width, width]
            if part != "key":
                yield "%s.%s.bias" % (name, part), [width]

    for i, n_in in ((1, mels), (2, width)):
        yield "encoder.conv%d.weight" % i, [3, n_in, width]
        yield "encoder.conv%d.bias" % i, [1, width]
    yield "encoder.positional_embedding", [width, source]
    yield "decoder.positional_embedding", [width, context]
    yield "decoder.token_embedding.weight", [width, vocab]
    for side, end in (("encoder", "ln_post"), ("decoder", "ln")):
        yield from norm("%s.%s" % (side, end))
        for i in range(layers):
            block = "%s.blocks.%d." % (side, i)
            yield from attention(block + "attn", block + "attn_ln")
            if side == "decoder":
                yield from attention(block + "cross_attn", block + "cross_attn_ln")
            yield from norm(block + "mlp_ln")
            for part in ("0", "2"):
                yield block + "mlp.%s.weight" % part, [width, width]
                yield block + "mlp.%s.bias" % part, [width]


def whisper_bin(vocab=40, context=8, kind=0, tensors=None):
    """A file of whisper.cpp: a window of 16 rows, one layer, 8 columns."""
    out = struct.pack("<I11i", 0x67676d6c, vocab, 16, 8, 1, 1, context, 8, 1, 1, 4, kind)
    out += struct.pack("<2i", 4, 201) + bytes(4 * 4 * 201) + struct.pack("<i", 12)
    for i in range(12):
        word = bytes([32 + 20 * i]) * (1 + i % 3)
        out += struct.pack("<i", len(word)) + word
    if tensors is None:
        tensors = []
        for name, ne in whisper_tensors(8, 1, vocab, 8, 16, 4):
            n = math.prod(ne)
            tensors.append((name, F32, ne, floats(n, F32)))
    for name, kind, ne, data in tensors:
        out += struct.pack("<3i%di" % len(ne), len(ne), len(name), kind, *ne) + name.encode() + data
    return out


def safetensors(tensors, extra=None, pad=0):
    """tensors: name -> (dtype, shape, data)"""
    head, data = dict(extra or {}), b""
    for name, (dtype, shape, b) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape,
                      "data_offsets": [len(data), len(data) + len(b)]}
        data += b
    h = json.dumps(head).encode() + b" " * pad
    return struct.pack("<Q", len(h)) + h + data


def safetensors_seeds():
    packed = {"l.weight": ("U8", [2, 4], bytes(8)), "l.weight_scale": ("BF16", [1], b"\x80\x3f")}
    yield "packed", safetensors(packed, {"__metadata__": {"format": "pt"}})
    yield "no_scale", safetensors({"l.weight": packed["l.weight"]})
    yield "f32_scale", safetensors({"l.weight": packed["l.weight"],
                                    "l.weight_scale": ("F32", [], struct.pack("<f", 2))})
    yield "unaligned", safetensors({"a": ("U8", [1], b"x"), "b": ("F32", [2], bytes(8))})
    yield "dims", safetensors({"v": ("F16", [1, 2, 1, 3, 2], bytes(24))}, pad=5)
    yield "escapes", safetensors({"\u00e9\n\"": ("I64", [1], bytes(8))})
    yield "empty", safetensors({})
    yield "hole", struct.pack("<Q", 2) + b"{}abc"
    yield "long_header", struct.pack("<Q", 1 << 62) + b"{}"


def shard(documents, n_vocab=300, end=0, token_bytes=2, block=4096, **fields):
    tokens = [t for d in documents for t in d]
    body = b"".join(t.to_bytes(token_bytes, "little") for t in tokens)
    body += bytes(-len(body) % 8)
    starts, at = [], 0
    for d in documents:
        starts.append(at)
        at += len(d)
    body += struct.pack("<%dQ" % len(starts), *starts)
    spans = fields.get("spans", [])
    body += struct.pack("<%dQ" % len(spans), *spans)
    sums = b"".join(struct.pack("<I", zlib.crc32(body[i:i + block]))
                    for i in range(0, len(body), block))
    head = struct.pack("<8sIIIiQQQIII", b"TERNTOKS", fields.get("version", 1), token_bytes, n_vocab,
                       end, fields.get("n_tokens", len(tokens)),
                       fields.get("n_documents", len(starts)), 77, block, zlib.crc32(sums), len(spans) // 2)
    return head + struct.pack("<I", zlib.crc32(head)) + body + sums


def shard_seeds():
    yield "small", shard([[1, 2, 0], [299, 0]])
    yield "wide", shard([[70000, 5], [99999]], n_vocab=100000, end=-1, token_bytes=4)
    yield "blocks", shard([[i % 300] * 40 for i in range(60)])
    yield "empty", shard([])
    yield "beyond_vocabulary", shard([[300]])
    yield "counts", shard([[1]], n_tokens=(1 << 64) - 1)
    yield "documents", shard([[1, 2], []])
    yield "cut", shard([[1, 2, 0]])[:-3]
    yield "version_3", shard([[1]], version=3)
    yield "spans", shard([[1, 2, 0], [4, 5, 6, 0]], version=2, spans=[1, 3, 5, 6])
    yield "spans_cross", shard([[1, 2, 0], [4, 5, 6, 0]], version=2, spans=[1, 4, 3, 6])


def chains(version, count, most, entries):
    """entries: (tokens, confidence); the rest of the buckets is empty"""
    out = b"CHNB" + struct.pack("<HHHH", version, count, most, 0)
    for i, (tokens, confidence) in enumerate((entries + [([], 0)] * count)[:count]):
        out += struct.pack("<HH%dif" % len(tokens), i, len(tokens), *tokens, confidence)
    return out + struct.pack("<I", zlib.crc32(out))


def chain_seeds():
    few = [([5, 6, 7], .5), ([5, 6], .9), ([6], 1), (list(range(8)), .25)]
    yield "v1", chains(1, 256, 8, few)
    yield "v2", chains(2, 5, 16, few + [(list(range(16)), 1)])
    yield "too_long", chains(2, 4, 4, few)
    yield "nan", chains(2, 1, 2, [([1, 2], float("nan"))])
    yield "cut", chains(1, 256, 8, few)[:-7]


def task_seeds():
    """A task file, a line of data, an answer."""
    regex = [{"function": "regex", "regex_pattern": "#### (-?[0-9]+)|(x)", "group_select": -1, "fallback": "none"},
             {"function": "take_first"}]
    filters = [{"name": "strict", "filter": regex},
               {"name": "loose", "filter": [{"function": "remove_whitespace"}, {"function": "uppercase"}]}]
    generate = {"task": "g", "output_type": "generate_until", "doc_to_text": "a", "doc_to_target": "a"}
    match = lambda pattern: [{"metric": "exact_match", "ignore_case": True, "regexes_to_ignore": [pattern, "x*"]}]
    choice = {"task": "m", "output_type": "multiple_choice", "doc_to_text": "{% if q %}\n{{q}}{% endif %}",
              "doc_to_target": "{{l}}", "doc_to_choice": "{{[b, 'it\\'s', c]}}", "description": "On {{s}}.\n",
              "target_delimiter": "\n", "fewshot_delimiter": "\n\n", "num_fewshot": 2,
              "metric_list": [{"metric": "acc"}, {"metric": "acc_norm", "aggregation": "mean", "higher_is_better": True}]}
    until = {"until": ["\n"], "max_gen_toks": 8, "do_sample": False}
    seeds = {
        "generate": ({**generate, "generation_kwargs": until, "filter_list": filters, "metric_list": match("(?s).*#### ")},
                     {"a": "#### 2"}, " It is 2. #### 2,0 x"),
        "choice": (choice, {"q": "Why?", "b": "a \" b\n", "c": "\u00e9", "s": "x", "l": "2"}, "x"),
        "choice_list": ({**choice, "doc_to_choice": ["yes", "no"]}, {"q": "", "s": "", "l": "yes"}, ""),
        "slow_expression": ({**generate, "metric_list": match("(a+)+b")}, {}, "a" * 300),
        "back_reference": ({**generate, "metric_list": match("(a)\\1")}, {}, "aa"),
        "unknown_field": ({**generate, "process_docs": "x"}, {}, ""),
    }
    for name, parts in seeds.items():
        yield name, b"\0".join(json.dumps(part).encode() for part in parts)


def item_seeds():
    labelled = {"text": ["a", "b"], "label": ["A", "B"]}
    items = {
        "hellaswag": {"activity_label": "Roof", "ctx_a": "A [x] man  [title]", "ctx_b": "\u00e9 is",
                      "endings": [" he", "[y\n]"], "label": "1"},
        "arc": {"question": "Why?", "choices": labelled, "answerKey": "B"},
        "arc_stem": {"question": {"stem": "Why?", "choices": [{"text": "a", "label": "A"}]},
                     "answerKey": "A"},
        "piqa": {"goal": "g", "sol1": "a", "sol2": "b", "label": 0},
        "winogrande": {"sentence": "so _ won. ", "option1": "a", "option2": "b", "answer": "2"},
        "boolq": {"passage": "p", "question": "q", "answer": True},
        "query": {"query": "Passage: q\n", "choices": ["a", "b"], "gold": 1},
        "options": {"context_options": ["a", "b"], "continuation": "c", "gold": 0},
        "lambada": {"text": "a b c"},
        "blimp": {"sentence_good": "a", "sentence_bad": "b"},
    }
    for name, item in items.items():
        yield name, json.dumps(item).encode()


# ---- Whole models: one layer, a vocabulary of a dozen -------------------------------------------

TOKENS = ["<unk>", "<s>", "</s>", "\u2581", "a", "b", "\u2581a", "<0x0A>"]
HF_NAMES = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj",
            "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
            "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
            "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def floats(n, kind):
    values = [((i * 37 + 11) % 64 - 31.5) / 64 for i in range(n)]
    return struct.pack("<%d%s" % (n, "f" if kind == F32 else "e"), *values)


def i2_s(n):
    return bytes((i * 57 + 3) % 256 & 0xAA for i in range(n // 4)) + struct.pack("<f", .5) + bytes(28)


def q2_0(n):
    blocks = [struct.pack("<e", .5) + bytes((i * 57 + k * 3) % 256 for k in range(16))
              for i in range(n // 64)]
    return b"".join(blocks)


def matrix(rows, cols, kind):
    if kind == Q2_0:
        return q2_0(rows * cols)
    return i2_s(rows * cols) if kind == I2_S else floats(rows * cols, kind)


def layer(width, kind, sub_norms):
    for name in ["attn_norm", "ffn_norm"] + ["attn_sub_norm", "ffn_sub_norm"] * sub_norms:
        yield name, F32, [width], floats(width, F32)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        yield name, kind, [width, width], matrix(width, width, kind)


def config_metas(arch, width, heads):
    sizes = {"context_length": 32, "embedding_length": width, "block_count": 1,
             "feed_forward_length": width, "attention.head_count": heads,
             "attention.head_count_kv": heads, "rope.dimension_count": width // heads}
    metas = [meta("general.architecture", "str", arch), meta("general.name", "str", "seed")]
    metas += [meta("%s.%s" % (arch, k), "u32", v) for k, v in sizes.items()]
    return metas + [meta(arch + ".rope.freq_base", "f32", 1e4),
                    meta(arch + ".attention.layer_norm_rms_epsilon", "f32", 1e-5)]


def sentencepiece_metas():
    return [meta("tokenizer.ggml.model", "str", "llama"),
            meta("tokenizer.ggml.tokens", "str", TOKENS),
            meta("tokenizer.ggml.scores", "f32", [-i for i in range(len(TOKENS))]),
            meta("tokenizer.ggml.token_type", "i32", [2, 3, 3, 1, 1, 1, 1, 6]),
            meta("tokenizer.ggml.bos_token_id", "u32", 1),
            meta("tokenizer.ggml.eos_token_id", "u32", 2),
            meta("tokenizer.ggml.add_bos_token", "bool", 1),
            meta("tokenizer.chat_template", "str",
                 "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")]


def byte_level_metas(pre):
    tokens = ["a", "b", "\u0120", "ab", "\u0120a", "<|end|>", "1", "\u00c3"]
    return [meta("tokenizer.ggml.model", "str", "gpt2"), meta("tokenizer.ggml.pre", "str", pre),
            meta("tokenizer.ggml.tokens", "str", tokens),
            meta("tokenizer.ggml.token_type", "i32", [1, 1, 1, 1, 1, 3, 1, 1]),
            meta("tokenizer.ggml.merges", "str", ["a b", "\u0120 a"]),
            meta("tokenizer.ggml.eos_token_id", "u32", 5),
            meta("tokenizer.ggml.add_bos_token", "bool", 0)]


def model(arch, width, heads, kind, head_kind, tokenizer, extra=()):
    tensors = [("token_embd.weight", head_kind, [width, 8], matrix(8, width, head_kind)),
               ("output_norm.weight", F32, [width], floats(width, F32))]
    tensors += [("blk.0.%s.weight" % t[0],) + t[1:] for t in layer(width, kind, arch != "llama")]
    return gguf(config_metas(arch, width, heads) + tokenizer + list(extra), tensors)


def tower(width, deep, depth=3, patch=2, edge=2, rows=32, apart=False):
    """An mmproj for tests/oracles/qwen3vl_sees, whose rows have 32 numbers."""
    tensors, four = [], 4 * width

    def put(name, ne, kind=F16):
        tensors.append((name, kind, ne, floats(math.prod(ne), kind)))

    def linear(name, n_in, n_out):
        put(name + ".weight", [n_in, n_out])
        put(name + ".bias", [n_out], F32)

    def norm(name, n):
        put(name + ".weight", [n], F32)
        put(name + ".bias", [n], F32)

    put("v.patch_embd.weight", [patch, patch, 3, width])
    put("v.patch_embd.weight.1", [patch, patch, 3, width])
    put("v.patch_embd.bias", [width], F32)
    put("v.position_embd.weight", [width, edge * edge])
    for i in range(depth):
        b = "v.blk.%d." % i
        norm(b + "ln1", width)
        norm(b + "ln2", width)
        for part in ["q", "k", "v"] if apart else ["qkv"]:
            linear(b + "attn_" + part, width, len(part) * width)
        linear(b + "attn_out", width, width)
        linear(b + "ffn_up", width, 12)
        linear(b + "ffn_down", 12, width)
        if i in deep:
            norm("v.deepstack.%d.norm" % i, four)
            linear("v.deepstack.%d.fc1" % i, four, four)
            linear("v.deepstack.%d.fc2" % i, four, rows)
    norm("v.post_ln", width)
    linear("mm.0", four, four)
    linear("mm.2", four, rows)
    sizes = dict(block_count=depth, embedding_length=width, feed_forward_length=12, patch_size=patch,
                 spatial_merge_size=2, projection_dim=rows, image_size=edge * patch,
                 image_min_pixels=16, image_max_pixels=1024)
    metas = [meta("general.architecture", "str", "clip"), meta("clip.projector_type", "str", "qwen3vl_merger"),
             meta("clip.use_gelu", "bool", True), meta("clip.vision.attention.head_count", "u32", 2),
             meta("clip.vision.attention.layer_norm_epsilon", "f32", 1e-6),
             meta("clip.vision.is_deepstack_layers", "bool", [i in deep for i in range(depth)]),
             meta("clip.vision.image_mean", "f32", [0.5] * 3), meta("clip.vision.image_std", "f32", [0.5] * 3)]
    return gguf(metas + [meta("clip.vision." + k, "u32", v) for k, v in sizes.items()], tensors)


def siglip_tower(width, norm=True, bias=True, depth=2, patch=2, edge=2, rows=32):
    """The same for tests/oracles/lfm2vl_sees."""
    tensors, four = [], 4 * width

    def put(name, ne, kind=F16):
        tensors.append((name, kind, ne, floats(math.prod(ne), kind)))

    def both(name, *ne, more=True):
        put(name + ".weight", list(ne), F16 if len(ne) > 1 else F32)
        if more:
            put(name + ".bias", [ne[-1]], F32)

    both("v.patch_embd", patch, patch, 3, width)
    put("v.position_embd.weight", [width, edge * edge], F32)
    for i in range(depth):
        for name, n_in, n_out in [("attn_" + part, width, width) for part in ("q", "k", "v", "out")] + [
                ("ffn_up", width, 12), ("ffn_down", 12, width)]:
            both("v.blk.%d.%s" % (i, name), n_in, n_out)
        both("v.blk.%d.ln1" % i, width)
        both("v.blk.%d.ln2" % i, width)
    both("v.post_ln", width)
    if norm:
        both("mm.input_norm", four)
    both("mm.1", four, 20, more=bias)
    both("mm.2", 20, rows, more=bias)
    sizes = {"block_count": depth, "embedding_length": width, "feed_forward_length": 12, "attention.head_count": 2,
             "patch_size": patch, "projector.scale_factor": 2, "projection_dim": rows}
    metas = [meta("general.architecture", "str", "clip"), meta("clip.projector_type", "str", "lfm2"),
             meta("clip.use_gelu", "bool", True), meta("clip.vision.attention.layer_norm_epsilon", "f32", 1e-6),
             meta("clip.vision.image_mean", "f32", [.5] * 3), meta("clip.vision.image_std", "f32", [.5] * 3),
             meta("tern.image.tile_size", "u32", 8), meta("tern.image.max_tiles", "u32", 4)]
    return gguf(metas + [meta("clip.vision." + k, "u32", v) for k, v in sizes.items()], tensors)


def tower_seeds():
    yield "deep", tower(8, [0, 2])
    yield "apart", tower(8, [1, 2], apart=True)
    yield "plain", tower(8, [])  # another family's
    yield "wide", tower(8, [0, 2], rows=64)
    yield "siglip", siglip_tower(8)
    yield "siglip_bare", siglip_tower(8, norm=False, bias=False)


def model_seeds():
    sampling = [meta("general.sampling.temp", "f32", .5), meta("general.sampling.top_k", "i32", 4)]
    yield "llama", model("llama", 16, 2, F32, F32, sentencepiece_metas(), sampling)
    yield "masters", model("bitnet-b1.58", 32, 1, F16, F16, byte_level_metas("llama-bpe"))
    yield "i2_s", model("bitnet", 128, 2, I2_S, F16, sentencepiece_metas())
    yield "yarn", model("llama", 16, 1, F16, F16, byte_level_metas("gpt-2"), [
        meta("llama.rope.scaling.type", "str", "yarn"), meta("llama.rope.scaling.factor", "f32", 2),
        meta("llama.rope.scaling.original_context_length", "u32", 16)])
    names = ["blk.0.%s.weight" % n for n in ("attn_q", "attn_k", "attn_v", "attn_output",
                                             "ffn_gate", "ffn_up", "ffn_down")]
    contract = dict(version=("u32", 2), block_size=("u32", 32),
                    transform=("str", "normalized-sylvester-walsh-hadamard"),
                    axis=("str", "input-last-dimension"), sign_mode=("str", "explicit"),
                    sign_widths=("i32", [64]), sign_values=("i8", [1, -1] * 32),
                    weight_names=("str", names), inverse_weight_names=("str", ["token_embd.weight"]))
    yield "rotated", model("llama", 64, 2, Q2_0, Q2_0, sentencepiece_metas(),
                           [meta("prism.hadamard." + k, *v) for k, v in contract.items()])
    yield "no_tokenizer", model("llama", 16, 2, F32, F16, [])
    yield "whisper", whisper_bin()


def charsmap():
    """One node a block of 256 units: "A" becomes "a", "xy" becomes "long" (tok_charsmap.c)."""
    units = [0] * 256 * 5
    units[0] = 256 << 10
    for at, block, leaf in ((256 ^ ord("A"), 2, 0), (256 ^ ord("x"), 3, None), (768 ^ ord("y"), 4, 2)):
        units[at] = (at ^ block * 256) << 10 | (leaf is not None) << 8 | at & 255
        if leaf is not None:
            units[block * 256] = leaf | 1 << 31
    trie = b"".join(struct.pack("<I", u) for u in units)
    return struct.pack("<I", len(trie)) + trie + b"a\0long\0"


PIECES = [("<unk>", 0, 2), ("<s>", 0, 3), ("</s>", 0, 3), ("\u2581", -2, 1), ("a", -3, 1), ("b", -3.5, 1),
          ("ab", -5, 1), ("\u2581The", -4, 1), ("\u00e9", -6, 1), ("<0x0A>", 0, 6), ("aaaa", -7, 1), ("<tag>", 0, 4)]


def unigram_metas():
    texts, scores, types = zip(*PIECES)
    return [meta("general.architecture", "str", "bert"), meta("tokenizer.ggml.model", "str", "t5"),
            meta("tokenizer.ggml.tokens", "str", list(texts)), meta("tokenizer.ggml.scores", "f32", list(scores)),
            meta("tokenizer.ggml.token_type", "i32", list(types)),
            meta("tokenizer.ggml.precompiled_charsmap", "u8", list(charsmap())),
            meta("tokenizer.ggml.remove_extra_whitespaces", "bool", 1), meta("tokenizer.ggml.unknown_token_id", "u32", 0)]


def wordpiece_metas():
    texts = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2581the", "\u2581a", "a", "b", "\u2581wo", "rd", "\u25811", "2"]
    return [meta("general.architecture", "str", "bert"), meta("tokenizer.ggml.model", "str", "bert"),
            meta("tokenizer.ggml.tokens", "str", texts),
            meta("tokenizer.ggml.token_type", "i32", [3, 2, 3, 3] + [1] * 8),
            meta("tokenizer.ggml.unknown_token_id", "u32", 1), meta("tokenizer.ggml.cls_token_id", "u32", 2),
            meta("tokenizer.ggml.seperator_token_id", "u32", 3)]


def varint(n):
    return bytes([n & 127 | 128]) + varint(n >> 7) if n > 127 else bytes([n])


def proto(number, v):
    if isinstance(v, bytes):
        return varint(number << 3 | 2) + varint(len(v)) + v
    if isinstance(v, float):
        return varint(number << 3 | 5) + struct.pack("<f", v)
    return varint(number << 3) + varint(v)


def model_seeds_of_sentencepiece():
    pieces = b"".join(proto(1, proto(1, t.encode()) + proto(2, float(s)) + (proto(3, k) if k != 1 else b""))
                      for t, s, k in PIECES)
    for name, kind in (("unigram", 1), ("bpe", 2), ("word", 3)):
        trainer = proto(3, kind) + proto(35, 1) + proto(40, 0) + proto(41, 1) + proto(42, 2)
        yield name, pieces + proto(2, trainer) + proto(3, proto(2, charsmap()) + proto(3, 1) + proto(4, kind == 1))


def tokenizer_seeds():
    yield "sentencepiece", gguf(sentencepiece_metas(), [])
    yield "unigram", gguf(unigram_metas(), [])
    yield "wordpiece", gguf(wordpiece_metas(), [])
    for pre in ("gpt-2", "llama-bpe", "qwen2", "default"):
        yield pre, gguf(byte_level_metas(pre), [])
    yield "no_types", gguf(byte_level_metas("gpt-2")[:3] + byte_level_metas("gpt-2")[4:5], [])


# ---- Inputs of several files --------------------------------------------------------------------

def parts(*files):
    """files: (kind, bytes), see fuzz/support.h"""
    return b"".join(struct.pack("<BI", kind, len(b)) + b for kind, b in files)


def config(**fields):
    c = dict(model_type="llama", hidden_size=16, intermediate_size=16, num_hidden_layers=1,
             num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=32, vocab_size=8,
             rms_norm_eps=1e-5, rope_theta=10000.0, hidden_act="silu", tie_word_embeddings=True)
    c.update(fields)
    return json.dumps(c).encode()


def nested(model_type, **fields):
    return json.dumps({"model_type": model_type,
                       "text_config": json.loads(config(**fields))}).encode()


def config_seeds():
    yield "llama", config()
    yield "bitnet", config(model_type="bitnet", hidden_act="relu2", bos_token_id=1, eos_token_id=2,
                           quantization_config={"quant_method": "bitnet",
                                                "linear_class": "autobitlinear"})
    yield "llama3", config(rope_scaling={"rope_type": "llama3", "factor": 8.0,
                                         "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                         "original_max_position_embeddings": 16})
    yield "yarn", config(rope_parameters={"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e6,
                                          "beta_fast": 32, "beta_slow": 1})
    yield "linear", config(rope_scaling={"type": "linear", "factor": 2.0}, head_dim=8,
                           partial_rotary_factor=0.5)
    yield "qwen3", config(model_type="qwen3", head_dim=6, tern_pooling="lasttoken")
    yield "qwen35", nested("qwen3_5", full_attention_interval=2, linear_conv_kernel_dim=4,
                           linear_num_key_heads=1, linear_num_value_heads=2, linear_key_head_dim=3,
                           linear_value_head_dim=2, partial_rotary_factor=0.5)
    yield "lfm2", config(model_type="lfm2", conv_L_cache=3, norm_eps=1e-5,
                         layer_types=["conv", "full_attention"], num_hidden_layers=2)
    windows = {"sliding_attention": {"rope_theta": 1e4},
               "full_attention": {"rope_theta": 1e6, "rope_type": "linear", "factor": 8.0}}
    yield "gemma3", config(model_type="gemma3_text", sliding_window=8, rope_parameters=windows,
                           hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=6)
    windows = {"sliding_attention": {}, "full_attention": {"partial_rotary_factor": 0.25}}
    yield "gemma3_part", config(model_type="gemma3_text", sliding_window=8, rope_parameters=windows)
    yield "encoder", nested("gemma3", sliding_window=9, use_bidirectional_attention=True,
                            sliding_window_pattern=2)
    yield "bert", config(model_type="bert", hidden_act="gelu", layer_norm_eps=1e-12, type_vocab_size=2,
                         position_embedding_type="absolute")
    yield "roberta", config(model_type="xlm-roberta", hidden_act="gelu", pad_token_id=0, layer_norm_eps=1e-5)
    yield "nomic_bert", json.dumps({"model_type": "nomic_bert", "n_embd": 16, "n_head": 2, "n_layer": 1, "n_inner": 16,
                                    "n_positions": 32, "rotary_emb_base": 1000, "activation_function": "swiglu",
                                    "tern_pooling": "mean", "tern_pooling_any_length": True}).encode()
    yield "modernbert", config(model_type="modernbert", hidden_activation="gelu", local_attention=8, num_hidden_layers=4,
                               global_attn_every_n_layers=3, global_rope_theta=160000.0, local_rope_theta=10000.0)
    yield "modernbert_alone", config(model_type="modernbert", hidden_activation="gelu", local_attention=1,
                                     num_hidden_layers=4, global_attn_every_n_layers=2)
    yield "wide_head", config(hidden_size=10 ** 6, partial_rotary_factor=0.3)


def folder_tensors(width, vocab, kv):
    dims = {"attn_k": [kv, width], "attn_v": [kv, width]}
    out = {"model.embed_tokens.weight": ("F16", [vocab, width], floats(vocab * width, F16)),
           "model.norm.weight": ("F16", [width], floats(width, F16))}
    for name, _, ne, _ in layer(width, F16, False):
        shape = dims.get(name, ne)
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        out["model.layers.0.%s.weight" % HF_NAMES[name]] = ("F16", shape, floats(n, F16))
    return out


def tokenizer_json():
    vocab = {t: i for i, t in enumerate(TOKENS)}
    added = [{"id": i, "content": TOKENS[i], "special": True} for i in range(3)]
    return json.dumps({"model": {"type": "BPE", "byte_fallback": True, "unk_token": "<unk>",
                                 "vocab": vocab, "merges": ["\u2581 a"]}, "added_tokens": added,
                       "normalizer": {"type": "Replace", "pattern": {"String": " "},
                                      "content": "\u2581"}}).encode()


def folder_seeds():
    weights = folder_tensors(16, 8, 8)
    settings = json.dumps({"bos_token": "<s>", "eos_token": {"content": "</s>"},
                           "add_bos_token": True, "chat_template": "{{ messages[0].content }}"})
    generation = json.dumps({"eos_token_id": [2, 1], "temperature": 0.6, "top_p": 0.9, "top_k": 9})
    texts = [(0, config()), (1, tokenizer_json()), (2, settings.encode()),
             (3, generation.encode()), (4, b"{{ bos_token }}{{ messages | length }}")]
    yield "whole", parts(*texts, (5, safetensors(weights)))
    index = json.dumps({"weight_map": {name: "part.safetensors" for name in weights}}).encode()
    yield "indexed", parts(*texts[:2], (6, index), (7, safetensors(weights)))
    yield "tokenizer_only", parts(*texts[1:4])
    packed = {"model.layers.0.self_attn.q_proj.weight": ("U8", [4, 16], bytes(range(64))),
              "model.layers.0.self_attn.q_proj.weight_scale": ("F32", [1], struct.pack("<f", 2))}
    ternary = config(quantization_config={"quant_method": "bitnet", "linear_class": "bitlinear"})
    yield "packed", parts((0, ternary), texts[1], (5, safetensors({**weights, **packed})))
    yield from quantized_seeds(weights, texts[1])


def quantized_seeds(weights, tokenizer):
    """q_proj [16, 16] in four bits, as other programs pack it."""
    name, words = "model.layers.0.self_attn.q_proj.", bytes(range(128))
    rest = {key: x for key, x in weights.items() if not key.startswith(name)}

    def folder(tensors, **more):
        tensors = {name + key: x for key, x in tensors.items()}
        return parts((0, config(**more)), tokenizer, (5, safetensors({**tensors, **rest})))

    by_row = ("F16", [16, 1], floats(16, F16))
    yield "mlx", folder({"weight": ("U32", [16, 2], words), "scales": by_row, "biases": by_row},
                        quantization={"bits": 4, "group_size": 16})
    columns = {"qzeros": ("I32", [1, 2], words[:8]), "scales": ("F16", [1, 16], floats(16, F16))}
    order = ("I32", [16], struct.pack("<16i", *[0] * 16))
    yield "gptq", folder({"qweight": ("I32", [2, 16], words), "g_idx": order, **columns},
                         quantization_config={"quant_method": "gptq", "group_size": 16})
    yield "awq", folder({"qweight": ("I32", [16, 2], words), **columns},
                        quantization_config={"quant_method": "awq", "group_size": 16})
    shape = ("I64", [2], struct.pack("<2q", 16, 16))
    yield "compressed", folder({"weight_packed": ("I32", [16, 2], words), "weight_scale": by_row,
                                "weight_shape": shape, "weight_zero_point": ("I32", [2, 1], words[:8])},
                               quantization_config={"quant_method": "compressed-tensors",
                                                    "config_groups": {"a": {"weights": {"num_bits": 4}}}})
    yield "fp8", folder({"weight": ("F8_E4M3", [16, 16], words * 2), "weight_scale": by_row},
                        quantization_config={"quant_method": "fp8"})


# ---- Models that hear and speak ------------------------------------------------------------------

HEARING = dict(vocab_size=24, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, is_encoder_decoder=True,
               tie_word_embeddings=True, max_position_embeddings=64)


def of_shapes(shapes):
    return safetensors({name: ("F32", shape, floats(math.prod(shape), F32)) for name, shape in shapes})


def moonshine_block(name, norms, width, wide, gamma="weight"):
    for norm in norms:
        yield "%s.%s.%s" % (name, norm, gamma), [width]
    for part in ("self_attn", "encoder_attn")[:len(norms) - 1]:
        for which in "qkvo":
            yield "%s.%s.%s_proj.weight" % (name, part, which), [width, width]
    yield from ((name + ".mlp.fc1.weight", [wide, width]), (name + ".mlp.fc1.bias", [wide]),
                (name + ".mlp.fc2.weight", [width, width]), (name + ".mlp.fc2.bias", [width]))


def moonshine_decoder(width):
    yield "model.decoder.embed_tokens.weight", [24, width]
    yield "model.decoder.norm.weight", [width]
    yield from moonshine_block("model.decoder.layers.0", ("input_layernorm", "post_attention_layernorm", "final_layernorm"),
                               width, 2 * width)


def moonshine_shapes(width):
    yield "model.encoder.conv1.weight", [width, 1, 127]
    for name, n_out, n_in, taps in (("conv2", 2 * width, width, 7), ("conv3", width, 2 * width, 3)):
        yield "model.encoder.%s.weight" % name, [n_out, n_in, taps]
        yield "model.encoder.%s.bias" % name, [n_out]
    for name in ("groupnorm.weight", "groupnorm.bias", "layer_norm.weight"):
        yield "model.encoder." + name, [width]
    yield from moonshine_block("model.encoder.layers.0", ("input_layernorm", "post_attention_layernorm"), width, width)
    yield from moonshine_decoder(width)


def streaming_shapes(inner, width):
    front = "model.encoder.embedder."
    yield front + "comp.log_k", []
    yield front + "linear.weight", [inner, 80]
    for name, n_out, n_in in (("conv1", 2 * inner, inner), ("conv2", inner, 2 * inner)):
        yield front + name + ".weight", [n_out, n_in, 5]
        yield front + name + ".bias", [n_out]
    yield "model.encoder.final_norm.gamma", [inner]
    yield "model.decoder.pos_emb.weight", [64, inner]
    if inner != width:
        yield "model.decoder.proj.weight", [width, inner]
    yield from moonshine_block("model.encoder.layers.0", ("input_layernorm", "post_attention_layernorm"), inner, inner, "gamma")
    yield from moonshine_decoder(width)


def whisper_shapes(width):
    names = (("positional_embedding", "embed_positions.weight"), ("token_embedding", "embed_tokens"), (".blocks.", ".layers."),
             ("cross_attn_ln", "encoder_attn_layer_norm"), ("attn_ln", "self_attn_layer_norm"), (".cross_attn.", ".encoder_attn."),
             (".attn.", ".self_attn."), (".query", ".q_proj"), (".key", ".k_proj"), (".value", ".v_proj"), (".out.", ".out_proj."),
             ("mlp_ln", "final_layer_norm"), ("mlp.0", "fc1"), ("mlp.2", "fc2"), ("ln_post", "layer_norm"),
             ("decoder.ln.", "decoder.layer_norm."))
    for name, ne in whisper_tensors(width, 1, 40, 8, 16, 4):
        for old, new in names:
            name = name.replace(old, new)
        shape = ne[::-1] if ne[0] != 1 else ne[1:]
        yield "model." + name, shape


def kani_shapes(n, wide, c):
    """One layer of a convolution and one of attention, which has a head of keys for each of two."""
    yield "model.embed_tokens.weight", (c["vocab_size"], n)
    yield "model.speaker_emb_projection.weight", (n, c["speaker_emb_dim"])
    yield "model.embedding_norm.weight", (n,)
    for i, kind in enumerate(c["layer_types"]):
        p = "model.layers.%d." % i
        for name in ("operator_norm", "ffn_norm"):
            yield p + name + ".weight", (n,)
        for name, shape in (("w1", (wide, n)), ("w3", (wide, n)), ("w2", (n, wide))):
            yield p + "feed_forward." + name + ".weight", shape
        if kind == "conv":
            yield p + "conv.in_proj.weight", (3 * n, n)
            yield p + "conv.conv.weight", (n, 1, 3)
            yield p + "conv.out_proj.weight", (n, n)
            continue
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield p + "self_attn." + name + ".weight", (n, n)
        for name in ("q_layernorm", "k_layernorm"):
            yield p + "self_attn." + name + ".weight", (n // 2,)
        yield "model.learnable_rope_layers.%d.alpha_weight" % i, (1,)


def senses_seeds():
    sizes = dict(HEARING, hidden_size=8, intermediate_size=8)
    heads = {side + key: 1 if key == "_num_hidden_layers" else 2 for side in ("encoder", "decoder")
             for key in ("_num_hidden_layers", "_num_attention_heads", "_num_key_value_heads")}
    yield "moonshine", parts((0, json.dumps(dict(sizes, model_type="moonshine", **heads)).encode()),
                             (2, of_shapes(moonshine_shapes(8))))
    layers = dict(num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2)
    for name, inner in (("streaming", 8), ("streaming_wide", 12)):
        encoder = dict(layers, hidden_size=inner, intermediate_size=inner, sliding_windows=[[4, 2]])
        c = dict(sizes, model_type="moonshine_streaming", encoder_config=encoder, **layers,
                 rope_parameters={"rope_theta": 10000.0, "partial_rotary_factor": 0.8})
        yield name, parts((0, json.dumps(c).encode()), (2, of_shapes(streaming_shapes(inner, 8))))
    c = dict(model_type="whisper", d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=1,
             decoder_attention_heads=1, encoder_ffn_dim=8, decoder_ffn_dim=8, num_mel_bins=4, max_source_positions=16,
             max_target_positions=8, vocab_size=40, decoder_start_token_id=13, eos_token_id=12, tie_word_embeddings=True)
    lists = {"suppress_tokens": [1], "begin_suppress_tokens": [2, 12], "is_multilingual": True}
    yield "whisper", parts((0, json.dumps(c).encode()), (1, json.dumps(lists).encode()), (2, of_shapes(whisper_shapes(8))))
    codec = [open("tests/oracles/nanocodec/" + name, "rb").read() for name in ("config.json", "model.safetensors")]
    yield "nanocodec", parts((0, codec[0]), (2, codec[1]))
    c = dict(model_type="lfm2", architectures=["KaniTTS2ForCausalLM"], hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
             num_key_value_heads=2, intermediate_size=8, block_auto_adjust_ff_dim=False, conv_L_cache=3, conv_bias=False,
             norm_eps=1e-5, rope_theta=1e6, vocab_size=74, layer_types=["conv", "full_attention"], max_position_embeddings=64,
             tie_word_embeddings=True, bos_token_id=1, eos_token_id=18, tokens_per_frame=4, audio_step=1.0,
             use_learnable_rope=True, alpha_min=0.1, alpha_max=2.0, speaker_emb_dim=6, text_vocab_size=16, codebook_size=12,
             num_codebooks=4, audio_tokens_start=26)
    yield "kani", parts((0, json.dumps(c).encode()), (2, of_shapes(kani_shapes(8, 8, c))))


def lora_seeds():
    """For the model of lora_fuzz.c: 32 wide, one layer, two heads, one key head."""
    metas = [meta("general.type", "str", "adapter"), meta("general.architecture", "str", "llama"),
             meta("adapter.type", "str", "lora"), meta("adapter.lora.alpha", "f32", 16)]
    pair = [("blk.0.attn_q.weight.lora_a", F32, [32, 2], floats(64, F32)),
            ("blk.0.attn_q.weight.lora_b", F16, [2, 32], floats(64, F16))]
    yield "gguf", parts((0, gguf(metas, pair)))
    yield "gguf_alone", parts((0, gguf(metas, pair[:1])))
    settings = {"peft_type": "LORA", "lora_alpha": 16, "r": 2, "use_rslora": True,
                "alpha_pattern": {"q_proj": 8}}
    front = "base_model.model.model.layers.0.self_attn."
    tensors = {front + "q_proj.lora_A.weight": ("F32", [2, 32], floats(64, F32)),
               front + "q_proj.lora_B.weight": ("F16", [32, 2], floats(64, F16)),
               front + "k_proj.lora_A.weight": ("F16", [2, 32], floats(64, F16)),
               front + "k_proj.lora_B.weight": ("F16", [16, 2], floats(32, F16))}
    yield "peft", parts((1, json.dumps(settings).encode()), (2, safetensors(tensors)))
    settings["use_dora"] = True
    yield "dora_without", parts((1, json.dumps(settings).encode()), (2, safetensors(tensors)))
    tensors[front + "q_proj.lora_magnitude_vector"] = ("F32", [32], floats(32, F32))
    tensors[front + "k_proj.lora_magnitude_vector"] = ("F16", [16], floats(16, F16))
    yield "dora", parts((1, json.dumps(settings).encode()), (2, safetensors(tensors)))


# ---- Lines --------------------------------------------------------------------------------------

def log_seeds():
    step = '{"step":%d,"tokens":%d,"loss":%g,"rate":0.001,"grad_norm":1.5,"tokens_per_second":9}\n'
    valid = '{"step":%d,"tokens":%d,"valid_loss":%g,"minus":0.3,"zero":0.4,"plus":0.3}\n'
    lines = [step % (i, i * 512, 5 - i / 10) for i in range(1, 20)]
    yield "usual", "".join(lines + [valid % (20, 10240, 3)]).encode()
    yield "one", (step % (1, 512, 4)).encode()
    yield "cut", "".join(lines)[:-30].encode()
    yield "extreme", "".join(step % v for v in [(1, 1, -1e308), (2, 2, 1e308), (3, 0, 0)]).encode()
    yield "close", "".join(step % (i, 1, 1e17) for i in range(3)).encode()
    yield "null", b'{"step":1,"tokens":512,"loss":null}\n' + lines[0].encode()


def results_seeds():
    header = '{"tern_eval":1}\n'
    line = ('{"task":"%s","file":"items.jsonl","item":%d,"hash":"%016x","logprobs":[-1.25,-3e2],'
            '"greedy":[false,true],"cut":false}\n')
    lines = [line % (task, i, 77 * i) for i in range(4) for task in ("piqa", "arc_easy")]
    yield "usual", (header + "".join(lines)).encode()
    yield "cut", (header + "".join(lines))[:-9].encode()
    yield "header", header.encode()
    yield "twice", (header + lines[0] * 2).encode()
    yield "other_model", ('{"tern_eval":1,"model":"m"}\n' + lines[0]).encode()


def transcript_seeds():
    talk = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi \u00e9\n<"},
            {"role": "assistant", "content": "# A\n\n```c\nx\n```\n"}]
    yield "list", json.dumps(talk).encode()
    yield "object", json.dumps({"messages": talk[1:], "model": "m"}, indent=1).encode()
    yield "markdown", "".join("<!-- tern: %s -->\n## %s\n\n%s\n\n" % (
        m["role"], m["role"], m["content"]) for m in talk).encode()
    yield "no_role", b'[{"content": "x"}]'
    yield "zero_role", b"<!-- tern: \0a -->\n\nx\n\n"


def manifest_seeds():
    """For the shard of manifest_fuzz.c: one document of four tokens below 9."""
    sums = struct.unpack("<I", shard([[1, 2, 3, 0]], n_vocab=9, block=1 << 20)[52:56])[0]
    entry = {"file": "train-00000.tern", "split": "train", "tokens": 4, "documents": 1,
             "checksum": "%08x" % sums}
    yield "one", json.dumps({"shards": [entry]}).encode()
    yield "two", json.dumps({"shards": [entry, dict(entry, file="train-00001.tern")]}).encode()
    yield "other_split", json.dumps({"shards": [dict(entry, split="valid")]}).encode()
    yield "none", b"{}"


def document_seeds():
    """The first byte: see documents_fuzz.c."""
    text = "One document.\n<|endoftext|> The second, \u00e9.<|endoftext|><|endoftext|>last"
    chat = {"messages": [{"role": "user", "content": "Hi \u00e9\n"}, {"role": "a", "content": "x"}]}
    lines = "\n".join([json.dumps({"text": "a b c"}), json.dumps(chat), "", json.dumps(chat)])
    packed = zlib.compressobj(9, zlib.DEFLATED, 31)
    member = packed.compress(text.encode()) + packed.flush()
    for flags, name in ((0, "plain"), (6, "packed"), (8, "one")):
        yield name, bytes([flags]) + text.encode()
        yield name + "_json", bytes([flags | 1]) + lines.encode()
    yield "gzip", bytes([2]) + member
    yield "gzip_twice", bytes([2]) + member * 2
    yield "gzip_cut", bytes([2]) + member[:-12]
    yield "array", bytes([1]) + json.dumps([{"text": "a ]},"}, chat], indent=1).encode()
    yield "array_cut", bytes([1]) + b'[{"text": "a b"},\n{"text": "a'
    yield "no_text", bytes([1]) + b'{"x":1}\n'
    yield "no_messages", bytes([1]) + b'{"messages": []}\n{"text": "a b"}\n'


def checkpoint_seeds():
    """Edits of a checkpoint: see checkpoint_fuzz.c."""
    def edit(place, b):
        return struct.pack("<IB", place, len(b)) + b
    yield "as_it_is", b"\0"
    yield "fixed", b"\1" + edit(100000, bytes(8))
    yield "damaged", b"\0" + edit(100000, b"\xff" * 8)
    yield "cut", b"\2" + edit(5000, b"")
    yield "counts", b"\1" + edit(8, b"\xff" * 8) + edit(16, b"\xff" * 8)
    for place in range(24, 1500, 200):  # where metadata lies
        yield "meta_%d" % place, b"\1" + edit(place, b"\xff\x7f")


def npy_seeds():
    def npy(descr, shape, data, version=1, order="False"):
        text = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }" % (descr, order, shape)
        text = text.encode() + b"\n"
        length = struct.pack("<H" if version == 1 else "<I", len(text))
        return b"\x93NUMPY" + bytes([version, 0]) + length + text + data
    yield "f4", npy("<f4", (2, 3), struct.pack("<6f", *range(6)))
    yield "f2", npy("<f2", (1, 2), struct.pack("<2e", 1, -2))
    yield "f8", npy("<f8", (2,), struct.pack("<2d", 1, 1e300), version=2)
    yield "i4", npy("<i4", (3,), struct.pack("<3i", 1, -2, 3), order="True")
    yield "i8", npy("<i8", (2,), struct.pack("<2q", 1, 1 << 40), version=3)
    yield "scalar", npy("<f4", (), bytes(4))
    yield "none", npy("<f4", (0, 5), b"")


def imatrix_seeds():
    sums = [("blk.0.attn_q.weight.in_sum2", F32, [4, 1], struct.pack("<4f", 4, 0, 2, 1)),
            ("blk.0.attn_q.weight.counts", F32, [1, 1], struct.pack("<f", 2)),
            ("blk.0.ffn_up_exps.weight.in_sum2", F32, [2, 3], struct.pack("<6f", *range(6))),
            ("blk.0.ffn_up_exps.weight.counts", F32, [1, 3], struct.pack("<3f", 1, 0, 7))]
    metas = [meta("general.type", "str", "imatrix"), meta("imatrix.datasets", "str", ["a.txt"]),
             meta("imatrix.chunk_count", "u32", 3), meta("imatrix.chunk_size", "u32", 512)]

    def entry(name, calls, x):
        head = struct.pack("<i", len(name)) + name.encode() + struct.pack("<2i", calls, len(x))
        return head + struct.pack("<%df" % len(x), *x)

    old = struct.pack("<i", 2) + entry("blk.0.attn_q.weight", 2, [4, 0, 2])
    old += entry("blk.0.ffn_up_exps.weight", 0, [1.5])
    yield "gguf", gguf(metas, sums)
    yield "gguf_counts", gguf(metas, sums[:1] + sums[3:])
    yield "old", old + struct.pack("<2i", 7, 5) + b"a.txt"
    yield "oldest", old
    yield "minus", struct.pack("<i", 1) + entry("x", 1, [-1])


# Templates: what the language has in addition to what chats use.
def jinja_seeds():
    seeds = {
        'recursive': "{% for i in [{'v': 1, 'c': [{'v': 2}]}] recursive %}{{ loop.depth }}{{ i.v }}{{ loop(i.c or []) }}{% if i.v == 2 %}{% break %}{% endif %}{% else %}none{% endfor %}",
        'self': "{% block a scoped %}x{{ n }}{% endblock a %}{{ self.a() | upper }}{% for m in messages %}{% block b %}{{ m }}{% endblock %}{% endfor %}{{ self['b']() }}{% block c required %}{% endblock %}",
        'escape': "{% autoescape true %}{{ '<' ~ ('&'|safe) }}{% set x %}<{{ bos_token }}>{% endset %}{{ [x] | join('<') }}{% autoescape n %}{{ '<' | replace('<', '&') }}{% endautoescape %}{% endautoescape %}{{ ('<%s>'|safe) % '<' }}{{ ('{}'|safe).format('<') }}{{ ('<'|safe).join(['<']) }}",
        'group': "{% for g in messages | groupby('role', default='z') %}{{ g.grouper }}{{ g.list }}{% endfor %}",
        'objects': "{% set c = cycler(1, 2) %}{{ c.next() }}{{ c.current }}{{ c.reset() }}{% set j = joiner('|') %}{{ j() }}{{ j() }}{{ c.items }}{{ j.used }}",
        'case': "{{ 'stra\xdfe \u039f\u03a3 \ufb01 \u0130 \u1fb3' | upper }}{{ '\u0391\u03a3\u0301 \u03a3' | lower }}{{ '\xdfa \u01c6'.title() }}{{ 'A\xdf'.casefold() }}{{ '\xdfx'.capitalize() }}{{ '\u2177a'.swapcase() }}",
    }
    for name, source in seeds.items():
        yield name, source.encode()


def grammar_seeds():
    """A byte for the kind, as fuzz/texts/grammar_fuzz.c has them, the grammar, a zero byte and a text."""
    schema = {"$defs": {"n": {"type": "object", "properties": {"v": {"type": "integer", "minimum": -3, "maximum": 120}, "next": {
        "anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}}, "required": ["v"], "additionalProperties": False}}, "$ref": "#/$defs/n"}
    strings = {"type": "array", "prefixItems": [{"format": "date"}, {"pattern": "^a(b|[^c])+$"}, {"minLength": 2, "maxLength": 4}],
               "items": {"oneOf": [{"const": "\u00e9"}, {"enum": [1, None, {"a": [True]}]}, {"type": "number", "multipleOf": 0.25}]},
               "contains": {"type": "number"}, "maxItems": 6}
    objects = {"type": "object", "patternProperties": {"^x": {"type": "boolean"}}, "properties": {"a": {}, "b": {"not": {"type": "string"}}},
               "propertyNames": {"maxLength": 3}, "minProperties": 1, "maxProperties": 3, "dependentRequired": {"a": ["b"]},
               "if": {"required": ["b"]}, "then": {"properties": {"xa": False}}, "additionalProperties": {"type": "null"}}
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {
        "town": {"type": "string"}, "days": {"type": "integer"}, "deep": {"type": "object", "properties": {"b": {"type": "boolean"}}}},
        "required": ["town"]}}}, {"name": "clock"}]
    gbnf = 'root ::= list | "x" [^a-c]{2,3} # end\nlist ::= "[" (item ("," item)*)? "]"\nitem ::= "\\u00e9" | list | root "!"'
    patch = 'start: ("*** Add" LF ("+" /(.*)/s? LF)+)+ "*** End"i LF?\n%import common.LF'
    lark = 'start: sum\n?sum: NUMBER | sum "+" NUMBER -> add\nNUMBER: /[0-9]+/i | "a".."f"\n%ignore " "\n%import common.WORD'
    seeds = {"schema": (0, json.dumps(schema), '{"v": 12, "next": {"v": -3}}'), "strings": (0, json.dumps(strings), '["2024-02-29","ab","xyz",0.5'),
             "objects": (128, json.dumps(objects), '{"a":1,"b":[],"xa"'), "json": (1, "", '[1, {"a": "b\\n"}]'),
             "regex": (2, r"^(?:a|b{2,3}?)[^\W\d]*(?=c)c(?!d).$", "abbcx"), "gbnf": (3, gbnf, "[\u00e9,[x12]]!"), "lark": (4, lark, "1 + a+ 2"),
             "patch": (0, json.dumps({"type": "string", "x-grammar": {"syntax": "lark", "definition": patch}}), '"*** Add\\n+a'),
             "choices": (5, "yes no", "yes"), "nothing": (3, 'root ::= [] | "x" []', "x")}
    for i in range(5):
        seeds["calls%d" % i] = (6 + 7 * i, json.dumps(tools), '<tool_call>{"name": "clock"')
    tools = [{"name": "patch", "parameters": {"required": ["input"], "properties": {"input": {"type": "string", "x-grammar": {
        "syntax": "lark", "definition": patch}}}, "additionalProperties": False}}]
    for i in range(5):
        seeds["patch%d" % i] = (6 + 7 * i, json.dumps(tools), '<tool_call>{"name": "patch", "arguments": {"input": "*** Add')
    for name, (kind, text, sample) in seeds.items():
        yield name, bytes([kind]) + text.encode() + b"\0" + sample.encode()


def request_seeds():
    """A byte for the route, as fuzz/texts/request_body_fuzz.c has them, and a body."""
    user = [{"role": "user", "content": "a fox"}]
    parts = [{"type": "text", "text": "a "}, {"type": "text", "text": "fox"}]
    sampling = {"temperature": 0.5, "top_p": 0.9, "top_k": 4, "min_p": 0.1, "seed": 7, "repeat_penalty": 1.1,
                "frequency_penalty": -1, "presence_penalty": 1, "repeat_last_n": 3, "ignore_eos": True}
    tool = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}
    seeds = {
        "chat": (0, {"model": "gpt-4", "messages": [{"role": "developer", "content": "b"}, {"role": "user", "content": parts},
                                                    {"role": "assistant", "content": "A"}], "max_tokens": 3, "stop": ["x", "zz"], **sampling}),
        "chat_fields": (0, {"model": "stories:latest", "messages": user, "max_completion_tokens": 2, "logprobs": True,
                            "top_logprobs": 3, "logit_bias": {"7": -100, "8": 2.5}, "n": 2, "stream_options": {"include_usage": True},
                            "response_format": {"type": "text"}, "user": "me", "metadata": {}, "store": None}),
        "tools": (0, {"messages": user, "tools": [tool], "tool_choice": "auto", "parallel_tool_calls": False}),
        "called": (0, {"messages": user + [{"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "now", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "c", "content": "5"}]}),
        "completion": (1, {"prompt": ["a", [5, 6], "b"], "max_tokens": 3, "n": 2, "logprobs": 2, "echo": False, "best_of": 1, "suffix": None}),
        "completion_ids": (1, {"prompt": [5, 6, 7], "echo": True, "stop": "."}),
        "response": (2, {"instructions": "a", "input": [{"role": "user", "content": [{"type": "input_text", "text": "a fox"}]}],
                         "max_output_tokens": 3, "stream": True, "top_logprobs": 1, "metadata": {"a": "b"}, "include": ["message.output_text.logprobs"]}),
        "response_tokens": (3, {"input": "a fox"}),
        "embeddings": (4, {"model": "bert", "input": ["a fox", [5, 6]], "encoding_format": "base64", "dimensions": 9, "prompt_name": "query"}),
        "messages": (5, {"model": "stories", "system": [{"type": "text", "text": "a"}], "messages": user + [{"role": "assistant", "content": "A"}],
                         "max_tokens": 3, "stop_sequences": ["x"], "temperature": 0, "thinking": {"type": "disabled"}}),
        "count": (6, {"model": "stories", "messages": [{"role": "user", "content": parts}], "max_tokens": 3}),
        "generate": (7, {"model": "stories", "prompt": "a fox", "system": "b", "options": {"num_predict": 3, "stop": ["x"], "seed": 1},
                         "keep_alive": "1h30m", "logprobs": True, "raw": False}),
        "unload": (7, {"model": "stories", "keep_alive": 0}),
        "ollama_chat": (8, {"messages": user, "options": {"temperature": 1}, "keep_alive": -1, "stream": False, "format": ""}),
        "embed": (9, {"model": "bert", "input": ["a", "b"], "truncate": False, "dimensions": 8}),
        "old_embed": (10, {"model": "bert", "prompt": "a"}),
        "show": (11, {"name": "bert_ranker"}),
        "llama": (12, {"prompt": ["a", 5, "b"], "n_predict": 3, "n_probs": 1, "return_tokens": True, **sampling}),
        "llama_embedding": (13, {"model": "bert", "content": [[5, 6], "a"], "embd_normalize": 2}),
        "rerank": (14, {"model": "bert_ranker", "query": "w", "documents": ["a", {"text": "b"}], "top_n": 1, "return_documents": True}),
        "tei": (14, {"model": "bert_ranker", "query": "w", "texts": ["a"], "return_text": True}),
        "tokenize": (15, {"content": "a f\u00e4x\U0001f98a", "with_pieces": True, "add_special": True, "parse_special": False}),
        "detokenize": (16, {"tokens": [5, 6, 300]}),
        "template": (17, {"messages": user, "add_generation_prompt": False}),
        "format": (0, {"messages": user, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}}),
        "must_call": (0, {"messages": user, "tools": [tool], "tool_choice": {"type": "function", "function": {"name": "now"}}}),
        "guided": (1, {"prompt": "a", "guided_choice": ["a", "b"], "structured_outputs": {"regex": "a+"}}),
        "response_format": (2, {"input": "a", "text": {"format": {"type": "json_object"}}}),
        "output_format": (5, {"messages": user, "max_tokens": 3, "output_config": {"format": {"type": "json_schema", "schema": {}}}}),
        "ollama_format": (8, {"messages": user, "format": {"type": "object"}}),
        "wrong_types": (0, {"model": 5, "messages": {}, "temperature": "hot", "n": 1.5, "stop": [1], "logit_bias": []}),
        "wrong_sizes": (1, {"prompt": [], "max_tokens": 0, "n": 129, "seed": -1e300, "stop": ["a"] * 17, "top_p": 1.1}),
        "wrong_keep": (8, {"messages": [], "keep_alive": "1h-3m"}),
        "wrong_list": (4, {"model": "bert", "input": [[], "a", 5], "dimensions": 100000}),
    }
    for name, (route, body) in seeds.items():
        yield name, bytes([route]) + json.dumps(body).encode()
    yield "no_object", b"\x00[]"
    yield "no_json", b"\x05{\"model\": nul"
    yield "no_utf8", b"\x0f{\"content\": \"\xff\"}"
    yield "zero_byte", b"\x00{\"messages\":[{\"role\":\"user\",\"content\":\"a\\u0000b\"}],\"stop\":\"\\u0000\"}"


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else "fuzz/corpus"
    for target, seeds in (("gguf", gguf_seeds()), ("safetensors", safetensors_seeds()),
                          ("shard", shard_seeds()), ("chains", chain_seeds()),
                          ("eval_item", item_seeds()), ("eval_task", task_seeds()), ("jinja", jinja_seeds()),
                          ("model", model_seeds()), ("tower", tower_seeds()),
                          ("tokenizer_model", model_seeds_of_sentencepiece()),
                          ("tokenizer_gguf", tokenizer_seeds()), ("config", config_seeds()),
                          ("model_folder", folder_seeds()), ("lora", lora_seeds()),
                          ("train_log", log_seeds()), ("eval_results", results_seeds()),
                          ("transcript", transcript_seeds()), ("manifest", manifest_seeds()),
                          ("documents", document_seeds()), ("checkpoint", checkpoint_seeds()),
                          ("npy", npy_seeds()), ("senses", senses_seeds()), ("imatrix", imatrix_seeds()),
                          ("grammar", grammar_seeds()), ("request_body", request_seeds())):
        folder = os.path.join(root, target)
        os.makedirs(folder, exist_ok=True)
        for name, data in seeds:
            with open(os.path.join(folder, name), "wb") as f:
                f.write(data)


main()

#!/usr/bin/env python3
"""Writes the seeds of the file readers' fuzz targets: small files, valid and not.

usage: tools/make_fuzz_corpus.py [fuzz/corpus]

The seeds are committed; run this again when a format gets a new feature.
"""
import json
import os
import struct
import sys
import zlib

F32, F16, Q8_0, TQ1_0, TQ2_0, I2_S = 0, 1, 8, 34, 35, 36
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
    split = [meta("split.no", "u16", 0), meta("split.count", "u16", 2),
             meta("split.tensors.count", "i32", 3)]
    nested = text("n") + struct.pack("<IIQIQ", META["arr"], META["arr"], 1, META["u8"], 0)
    yield "every_kind", gguf(every, tensors)
    yield "version_2", gguf(every[:3], tensors[:1], version=2)
    yield "blocks", gguf([], blocks)
    yield "aligned_64", gguf([meta("general.alignment", "u32", 64)], tensors, alignment=64)
    yield "split", gguf(split, tensors)
    yield "empty", gguf([], [])
    yield "cut", gguf(every, tensors, cut=20)
    yield "nested", gguf([nested], [])
    yield "same_name", gguf([], tensors[:1] * 2)
    yield "unknown_type", gguf([], [("t", 135, [256], bytes(64))])
    yield "huge_counts", b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1 << 61)


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
    sums = b"".join(struct.pack("<I", zlib.crc32(body[i:i + block]))
                    for i in range(0, len(body), block))
    head = struct.pack("<8sIIIiQQQIII", b"TERNTOKS", fields.get("version", 1), token_bytes, n_vocab,
                       end, fields.get("n_tokens", len(tokens)),
                       fields.get("n_documents", len(starts)), 77, block, zlib.crc32(sums), 0)
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
    yield "version_2", shard([[1]], version=2)


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


# Templates: what the language has beside what chats use.
def jinja_seeds():
    seeds = {
        'recursive': "{% for i in [{'v': 1, 'c': [{'v': 2}]}] recursive %}{{ loop.depth }}{{ i.v }}{{ loop(i.c or []) }}{% if i.v == 2 %}{% break %}{% endif %}{% else %}none{% endfor %}",
        'self': "{% block a scoped %}x{{ n }}{% endblock a %}{{ self.a() | upper }}{% for m in messages %}{% block b %}{{ m }}{% endblock %}{% endfor %}{{ self['b']() }}{% block c required %}{% endblock %}",
        'escape': "{% autoescape true %}{{ '<' ~ ('&'|safe) }}{% set x %}<{{ bos_token }}>{% endset %}{{ [x] | join('<') }}{% autoescape n %}{{ '<' | replace('<', '&') }}{% endautoescape %}{% endautoescape %}{{ ('<%s>'|safe) % '<' }}{{ ('{}'|safe).format('<') }}{{ ('<'|safe).join(['<']) }}",
        'wrap': "{{ 'The quick-brown fox--and a-b-c' | wordwrap(7) }}{{ 'a b c d' | truncate(5, false, '', 0) }}{{ {'a b': 'c/d'} | urlencode }}{{ '<b>x &amp; &#65;&eacute;</b><!-- -->' | striptags }}{{ [1, 2, 3] | slice(2, 'z') | list }}",
        'pprint': "{{ messages | pprint }}{{ {'k': 'word ' * 30, 'b': [('x' * 70, 'y' * 30)]} | pprint }}{% for g in messages | groupby('role', default='z') %}{{ g.grouper }}{{ g.list }}{% endfor %}",
        'objects': "{% set c = cycler(1, 2) %}{{ c.next() }}{{ c.current }}{{ c.reset() }}{% set j = joiner('|') %}{{ j() }}{{ j() }}{{ c.items }}{{ j.used }}",
        'case': "{{ 'stra\xdfe \u039f\u03a3 \ufb01 \u0130 \u1fb3' | upper }}{{ '\u0391\u03a3\u0301 \u03a3' | lower }}{{ '\xdfa \u01c6'.title() }}{{ 'A\xdf'.casefold() }}{{ '\xdfx'.capitalize() }}{{ '\u2177a'.swapcase() }}",
    }
    for name, source in seeds.items():
        yield name, source.encode()


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else "fuzz/corpus"
    for target, seeds in (("gguf", gguf_seeds()), ("safetensors", safetensors_seeds()),
                          ("shard", shard_seeds()), ("chains", chain_seeds()),
                          ("eval_item", item_seeds()), ("jinja", jinja_seeds())):
        folder = os.path.join(root, target)
        os.makedirs(folder, exist_ok=True)
        for name, data in seeds:
            with open(os.path.join(folder, name), "wb") as f:
                f.write(data)


main()

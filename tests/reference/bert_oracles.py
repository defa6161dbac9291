#!/usr/bin/env python3
"""Writes tests/oracles/bert and xlm_roberta: tiny encoders as sentence-transformers has them, with what plain
numpy computes for them in float64 (`make oracles`). bert_ranker and xlm_roberta_ranker have a classifier of pairs,
and a tokenizer of letters: the score is that of the texts QUERY and DOCUMENT. Needs numpy.

BERT pools the first row and gives it the length 1; XLM-R, whose positions begin at row 2 and which has one
segment, the mean of the rows as it comes. model.gguf has GGUF's names; XLM-R's has lost the first two positions,
as llama.cpp's converter makes it.
"""
import json, math, os, sys
import numpy as np
from families_np import difference
from gguf_np import write_gguf
from safetensors_np import write_safetensors

N_VOCAB, WIDTH, FF, HEADS, LAYERS, N_CONTEXT, N_TEXT = 48, 32, 80, 4, 3, 40, 23
CASES = {
    "bert": dict(model_type="bert", architectures=["BertModel"], type_vocab_size=2, max_position_embeddings=N_CONTEXT,
                 pad_token_id=0, layer_norm_eps=1e-12),
    "xlm_roberta": dict(model_type="xlm-roberta", architectures=["XLMRobertaModel"], type_vocab_size=1,
                        max_position_embeddings=N_CONTEXT + 2, pad_token_id=1, layer_norm_eps=1e-5),
}
for _name in list(CASES):
    _c = dict(CASES[_name], num_labels=1)
    _c["architectures"] = [_c["architectures"][0].replace("Model", "ForSequenceClassification")]
    CASES[_name + "_ranker"] = _c
QUERY, DOCUMENT = "w h o", "t h e f o x a n d h e n"
BASE = {"vocab_size": N_VOCAB, "hidden_size": WIDTH, "intermediate_size": FF, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "hidden_act": "gelu", "position_embedding_type": "absolute"}
GGUF_LAYER = {"attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
              "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
              "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm"}
GGUF_BEGIN = {"word_embeddings": "token_embd", "position_embeddings": "position_embd",
              "token_type_embeddings": "token_types", "LayerNorm": "token_embd_norm"}


class Bert:
    def __init__(self, c, t, dtype=np.float64):
        self.c, self.dtype = c, dtype
        self.t = {name: x.astype(dtype) for name, x in t.items()}

    def linear(self, x, name):
        return x @ self.t[name + ".weight"].T + self.t[name + ".bias"]

    def norm(self, x, name):
        d = x - x.mean(-1, keepdims=True)
        y = d / np.sqrt((d * d).mean(-1, keepdims=True) + self.dtype(self.c["layer_norm_eps"]))
        return y * self.t[name + ".weight"] + self.t[name + ".bias"]

    def gelu(self, x):
        return (x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))).astype(self.dtype)

    def attention(self, x, name):
        q, k, v = (self.linear(x, name + ".self." + part).reshape(len(x), HEADS, -1).transpose(1, 0, 2)
                   for part in ("query", "key", "value"))
        scores = q @ k.transpose(0, 2, 1) / self.dtype(math.sqrt(q.shape[-1]))
        p = np.exp(scores - scores.max(-1, keepdims=True))
        y = (p / p.sum(-1, keepdims=True)) @ v
        return self.linear(y.transpose(1, 0, 2).reshape(x.shape), name + ".output.dense")

    def run(self, ids, types):
        first = self.c["pad_token_id"] + 1 if self.c["model_type"] == "xlm-roberta" else 0
        x = self.t["embeddings.word_embeddings.weight"][ids]
        x = x + self.t["embeddings.position_embeddings.weight"][first : first + len(ids)]
        x = x + self.t["embeddings.token_type_embeddings.weight"][types]
        x = self.norm(x, "embeddings.LayerNorm")
        for i in range(LAYERS):
            p = "encoder.layer.%d." % i
            x = self.norm(x + self.attention(x, p + "attention"), p + "attention.output.LayerNorm")
            f = self.linear(self.gelu(self.linear(x, p + "intermediate.dense")), p + "output.dense")
            x = self.norm(x + f, p + "output.LayerNorm")
        return x

    def score(self, rows):
        dense, out = ("pooler.dense", "classifier") if self.c["model_type"] == "bert" else ("classifier.dense", "classifier.out_proj")
        return self.linear(np.tanh(self.linear(rows[0], dense)), out)

    def embed(self, rows):
        if self.c["model_type"] == "bert":
            return rows[0] / np.linalg.norm(rows[0])
        return rows.mean(0)


def make_tensors(c, random):
    t = {}

    def matrix(name, *shape, scale=0.15):
        t[name + ".weight"] = random.normal(0, scale, shape)

    def vector(name, n, around):
        t[name + ".weight"] = random.uniform(around - 0.3, around + 0.3, n)
        t[name + ".bias"] = random.normal(0, 0.2, n)

    def linear(name, n_out, n_in):
        matrix(name, n_out, n_in)
        t[name + ".bias"] = random.normal(0, 0.1, n_out)

    matrix("embeddings.word_embeddings", N_VOCAB, WIDTH, scale=1)
    matrix("embeddings.position_embeddings", c["max_position_embeddings"], WIDTH, scale=0.5)
    matrix("embeddings.token_type_embeddings", c["type_vocab_size"], WIDTH, scale=0.5)
    vector("embeddings.LayerNorm", WIDTH, 1)
    for i in range(LAYERS):
        p = "encoder.layer.%d." % i
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            linear(p + "attention." + part, WIDTH, WIDTH)
        vector(p + "attention.output.LayerNorm", WIDTH, 1)
        linear(p + "intermediate.dense", FF, WIDTH)
        linear(p + "output.dense", WIDTH, FF)
        vector(p + "output.LayerNorm", WIDTH, 1)
    if "num_labels" in c:
        bert = c["model_type"] == "bert"
        linear("pooler.dense" if bert else "classifier.dense", WIDTH, WIDTH)
        linear("classifier" if bert else "classifier.out_proj", 1, WIDTH)
    return {name: x.astype(np.float32) for name, x in t.items()}


SPECIAL = {"bert": ["[PAD]", "[UNK]", "[CLS]", "[SEP]"], "xlm-roberta": ["<s>", "<pad>", "</s>", "<unk>"]}


def pair_of(c):
    """Ids and segments of the two texts: a letter is a token."""
    letters = lambda text: [4 + ord(x) - ord("a") for x in text.split()]
    a, b = letters(QUERY), letters(DOCUMENT)
    if c["model_type"] == "bert":
        return [2] + a + [3] + b + [3], [0] * (len(a) + 2) + [1] * (len(b) + 1)
    return [0] + a + [2, 2] + b + [2], [0] * (len(a) + len(b) + 4)


def write_tokenizer(path, c):
    bert, names = c["model_type"] == "bert", SPECIAL[c["model_type"]]
    first, last = (2, 3) if bert else (0, 2)
    tokens = names + [("" if bert else "\u2581") + chr(ord("a") + i) for i in range(26)]
    vocab = {x: i for i, x in enumerate(tokens)}
    token = lambda i: {"SpecialToken": {"id": names[i], "type_id": 0}}
    text = lambda x: {"Sequence": {"id": x, "type_id": 0}}
    middle = [token(last)] if bert else [token(last), token(last)]
    processor = {"type": "TemplateProcessing", "single": [token(first), text("A"), token(last)],
                 "pair": [token(first), text("A")] + middle + [text("B"), token(last)],
                 "special_tokens": {names[i]: {"id": names[i], "ids": [i], "tokens": [names[i]]} for i in (first, last)}}
    if bert:
        model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                 "max_input_chars_per_word": 100, "vocab": vocab}
        normalizer, splitter = {"type": "BertNormalizer"}, {"type": "BertPreTokenizer"}
    else:
        model = {"type": "Unigram", "unk_id": 3, "vocab": [[x, -1.0 - i] for i, x in enumerate(tokens)]}
        marks = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"}
        normalizer, splitter = None, {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, marks]}
    added = [{"id": i, "content": x, "special": True, "normalized": False} for i, x in enumerate(names)]
    with open(path, "w") as f:
        f.write(json.dumps({"version": "1.0", "added_tokens": added, "normalizer": normalizer, "pre_tokenizer": splitter,
                            "post_processor": processor, "decoder": None, "model": model}) + "\n")


def gguf_name(name):
    part, end = name.rsplit(".", 1)
    if part.startswith("encoder.layer."):
        _, _, i, rest = part.split(".", 3)
        return "blk.%s.%s.%s" % (i, GGUF_LAYER[rest], end)
    return "%s.%s" % (GGUF_BEGIN[part.split(".", 1)[1]], end)


def write_model_gguf(path, c, t):
    out = {gguf_name(name): x for name, x in t.items()}
    out["position_embd.weight"] = out["position_embd.weight"][-N_CONTEXT:]
    mean = c["model_type"] != "bert"
    keys = {"block_count": LAYERS, "context_length": N_CONTEXT, "embedding_length": WIDTH, "feed_forward_length": FF,
            "attention.head_count": HEADS, "attention.layer_norm_epsilon": c["layer_norm_eps"], "attention.causal": False,
            "pooling_type": 1 if mean else 2}
    if mean:
        keys["pooling_normalize"] = 0  # tern's own
    meta = dict({"general.architecture": "bert", "general.file_type": 0}, **{"bert." + k: v for k, v in keys.items()})
    write_gguf(path, meta, out)


def write_safetensors_of(folder, c, t, golden):
    bert, ranks = c["model_type"] == "bert", "num_labels" in c
    prefix = {True: "bert." if ranks else "", False: "roberta."}[bert]
    named = {(name if name.startswith("classifier") else prefix + name): x for name, x in t.items()}
    write_safetensors(os.path.join(folder, "model.safetensors"), named)
    write_safetensors(os.path.join(folder, "golden.safetensors"), golden)
    with open(os.path.join(folder, "config.json"), "w") as f:
        f.write(json.dumps(c, indent=1) + "\n")


def write_modules(folder, c):
    os.makedirs(os.path.join(folder, "1_Pooling"), exist_ok=True)
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling")] + ([("2_Normalize", "Normalize")] if c["model_type"] == "bert" else [])
    modules = [{"idx": i, "name": str(i), "path": p, "type": "sentence_transformers.models." + k} for i, (p, k) in enumerate(kinds)]
    pooling = {"word_embedding_dimension": WIDTH, "pooling_mode_cls_token": c["model_type"] == "bert",
               "pooling_mode_mean_tokens": c["model_type"] != "bert"}
    for name, x in (("modules.json", modules), ("1_Pooling/config.json", pooling)):
        with open(os.path.join(folder, name), "w") as f:
            f.write(json.dumps(x, indent=1) + "\n")


def write_case(folder, c, random):
    os.makedirs(folder, exist_ok=True)
    c = dict(BASE, **c)
    t, ranks = make_tensors(c, random), "num_labels" in c
    ids, types = random.integers(5, N_VOCAB, N_TEXT), np.zeros(N_TEXT, int)
    if ranks:
        ids, types = (np.array(x) for x in pair_of(c))
    model = Bert(c, t)
    rows = model.run(ids, types)
    error = difference(Bert(c, t, np.float32).run(ids, types), rows)
    golden = {"input_ids": ids.astype(np.int32)}
    if ranks:
        golden["score"] = model.score(rows).astype(np.float32)
        write_tokenizer(os.path.join(folder, "tokenizer.json"), c)
    else:
        golden.update(last_hidden_state=rows.astype(np.float32), embedding=model.embed(rows).astype(np.float32))
        write_modules(folder, c)
        write_model_gguf(os.path.join(folder, "model.gguf"), c, t)
    write_safetensors_of(folder, c, t, golden)
    print("%s: float32 and float64 differ by at most %.1e" % (folder, error))


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "oracles")
    for seed, (name, c) in enumerate(CASES.items()):
        write_case(os.path.join(out, name), c, np.random.default_rng(8100 + seed))


if __name__ == "__main__":
    main()

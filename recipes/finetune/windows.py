"""What `tern train --packing none --assistant-only` learns from shards: a window for each document, and which of its
tokens are scored (docs/formats.md, docs/data.md); and the order of the windows. Plain numpy."""
import glob, json, os, struct, sys
import numpy as np
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/reference/torch"))
from sequence_order import mix, permute


def read_shards(folder, split):
    """The documents of train-*.tern or valid-*.tern, each with its end token."""
    documents = []
    for path in sorted(glob.glob("%s/%s-*.tern" % (folder, split))):
        data = open(path, "rb").read()
        assert data[:8] == b"TERNTOKS", path
        (width,) = struct.unpack_from("<I", data, 12)
        n_tokens, n_documents = struct.unpack_from("<QQ", data, 24)
        ids = np.frombuffer(data, "<u%d" % width, n_tokens, 64).astype(np.int64)
        firsts = np.frombuffer(data, "<u8", n_documents, 64 + (n_tokens * width + 7) // 8 * 8)
        documents += np.split(ids, firsts[1:].astype(np.int64))
    return documents


def marks_of(folder):
    """What answers() needs of a vocabulary: names of its tokens, and those that begin a turn and end it."""
    tokenizer = json.load(open(folder + "/tokenizer.json"))
    vocab = dict(tokenizer["model"]["vocab"])
    vocab.update({t["content"]: t["id"] for t in tokenizer["added_tokens"]})
    return {i: t for t, i in vocab.items()}, vocab["<|im_start|>"], vocab["<|im_end|>"]


def answers(ids, marks):
    """[first, end) of each answer, its end token included."""
    names, start, stop = marks
    found, at, n = [], 0, len(ids)
    while at < n:
        if ids[at] != start:
            at += 1
            continue
        text, first = "", at + 1
        while first < n and "\u010a" not in text:  # a line feed, as byte-level vocabularies write it
            text += names[int(ids[first])]
            first += 1
        at = first
        if text != "assistant\u010a":
            continue
        while at < n and ids[at] != stop:
            at += 1
        found.append((first, min(at + 1, n)))
    return found


def windows(documents, seq_len, marks):
    """Inputs and targets [n, seq_len]; -100: not scored."""
    x = np.zeros((len(documents), seq_len), np.int64)
    y = np.full_like(x, -100)
    for i, ids in enumerate(documents):
        ids = ids[: seq_len + 1]
        x[i, : min(len(ids), seq_len)] = ids[:seq_len]
        for first, end in answers(ids, marks):
            y[i, first - 1 : end - 1] = ids[first:end]
    return x, y


def last_answers(documents, seq_len, marks):
    """The same for preferences: all after the last mark is scored, and no end token is there."""
    x = np.zeros((len(documents), seq_len), np.int64)
    y = np.full_like(x, -100)
    for i, ids in enumerate(documents):
        first = answers(ids, marks)[-1][0]
        ids = ids[:-1][:seq_len]
        x[i, : len(ids)] = ids
        y[i, first - 1 : len(ids) - 1] = ids[first:]
    return x, y


def order(n, step, per_step, seed):
    """Which of n windows a step has, counted from 0."""
    at = range(step * per_step, (step + 1) * per_step)
    return [permute(i % n, n, (mix(seed) + i // n) % 2**64) for i in at]

#!/usr/bin/env python3
"""How often an embedding model finds the right one of held-out passages, beside BM25, which compares words.

    recipes/embed/score.py MODEL PAIRS [TERN] [--dimensions N] [--pooling mean]

PAIRS is a folder of pairs.py; each kind of its test is a haystack of its own. Printed are, in percent,
    @1, @10   queries whose passage is the nearest, or among the nearest ten
    MRR       the mean of 1 / the passage's place
of the model, of BM25 (k1 1.2, b 0.75, whole words in lower case), and of both: the sum of 1 / (60 + place), by
which rankings that cannot be compared are usually put together.
"""
import argparse
import array
import collections
import glob
import json
import math
import os
import re
import subprocess
import sys
import tempfile

WAYS = ("model", "BM25", "both")


def words_of(text):
    return re.findall(r"\w+", text.lower())


def read(path):
    with open(path, encoding="utf-8") as file:
        pairs = [json.loads(line) for line in file]
    return [p["query"] for p in pairs], [p["positive"] for p in pairs]


def similarities(args, queries, passages):
    """A row of cosines with all passages for each query."""
    with tempfile.TemporaryDirectory() as folder:
        for name, texts in (("q", queries), ("p", passages)):
            with open(f"{folder}/{name}.jsonl", "w", encoding="utf-8") as file:
                file.writelines(json.dumps(t) + "\n" for t in texts)
            subprocess.run([args.tern, "embed", args.model, "-f", f"{folder}/{name}.jsonl", "--jsonl", "--pooling", args.pooling,
                            "--dimensions", str(args.dimensions), "--format", "npy", "-o", f"{folder}/{name}.npy"],
                           check=True, stderr=subprocess.DEVNULL)
        matrix = array.array("f", subprocess.run([args.tern, "embed", "--similarity", f"{folder}/q.npy", f"{folder}/p.npy",
                                                  "--format", "raw"], check=True, stdout=subprocess.PIPE).stdout)
    n = len(passages)
    return [matrix[i * n:(i + 1) * n] for i in range(len(queries))]


def bm25(queries, passages, k1=1.2, b=0.75):
    texts = [collections.Counter(words_of(p)) for p in passages]
    lengths = [sum(t.values()) for t in texts]
    mean = sum(lengths) / len(lengths)
    places = collections.defaultdict(list) # of each word: passage and how often
    for i, t in enumerate(texts):
        for word, n in t.items():
            places[word].append((i, n))
    for query in queries:
        scores = array.array("f", bytes(4 * len(passages)))
        for word in set(words_of(query)):
            found = places.get(word, ())
            idf = math.log(1 + (len(passages) - len(found) + 0.5) / (len(found) + 0.5))
            for i, n in found:
                scores[i] += idf * n * (k1 + 1) / (n + k1 * (1 - b + b * lengths[i] / mean))
        yield scores


def ranks(scores):
    """The place of each passage, from 1; of equals the later one comes first only if it is better."""
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    place = [0] * len(scores)
    for at, i in enumerate(order):
        place[i] = at + 1
    return place


def place_of(scores, right):
    """The right one's: equals count as better, so that no score at all is no success."""
    return 1 + sum(s >= scores[right] for i, s in enumerate(scores) if i != right)


def measure(places):
    n = len(places)
    return [100 * x / n for x in (sum(p == 1 for p in places), sum(p <= 10 for p in places), sum(1 / p for p in places))]


def score(args, path):
    queries, passages = read(path)
    if not queries:
        sys.exit(f"{path}: there are no pairs in it")
    places = {way: [] for way in WAYS}
    for right, (near, words) in enumerate(zip(similarities(args, queries, passages), bm25(queries, passages))):
        both = [1 / (60 + a) + 1 / (60 + b) for a, b in zip(ranks(near), ranks(words))]
        for way, scores in zip(WAYS, (near, words, both)):
            places[way].append(place_of(scores, right))
    return len(queries), {way: measure(p) for way, p in places.items()}


def line(name, n, by_way):
    cells = " | ".join(f"{x:.1f}" for way in WAYS for x in by_way[way])
    return f"| {name} | {n} | {cells} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("pairs")
    parser.add_argument("tern", nargs="?", default="build/tern")
    parser.add_argument("--dimensions", type=int, default=0)
    parser.add_argument("--pooling", default="auto")
    args = parser.parse_args()
    paths = sorted(glob.glob(f"{args.pairs}/test-*.jsonl"))
    if not paths:
        sys.exit(f"{args.pairs}: there is no test-*.jsonl (recipes/embed/pairs.py makes them)")
    print(f"{os.path.basename(args.model)}\n\n| queries | passages | " + " | ".join(f"{w} @1 | @10 | MRR" for w in WAYS) + " |")
    print("|---|---:|" + "---:|" * 9)
    made = {}
    for path in paths:
        kind = os.path.basename(path)[len("test-"):-len(".jsonl")]
        n, made[kind] = score(args, path)
        print(line(kind, n, made[kind]), flush=True)
    mean = {way: [sum(m[way][i] for m in made.values()) / len(made) for i in range(3)] for way in WAYS}
    print(line("mean", "", mean))


if __name__ == "__main__":
    main()

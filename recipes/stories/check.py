#!/usr/bin/env python3
"""How well a story model does what it is asked: counts over the 100 requests of requests.tsv.

    recipes/stories/check.py MODEL [TERN] [--seed S] [--show]

The requests are never used in training (corpus.py leaves them out). Each is a chat of its own, with the
model's own sampling defaults and the seeds S, S + 1, ... An answer is good if it
    ends by itself before the context of the model is full,
    names everything that was asked for, each at least twice (its title does not count), and
    has at least 50 words.
"""
import concurrent.futures
import json
import os
import re
import subprocess
import sys

from tales import plural

HERE = os.path.dirname(os.path.abspath(__file__))


def requests():
    """(request, words that the answer must name)"""
    with open(f"{HERE}/requests.tsv", encoding="utf-8") as file:
        for line in file:
            request, words = line.rstrip("\n").split("\t")
            yield request, words.split()


def count(word, text):
    return len(re.findall(rf"\b(?:{word}|{plural(word)}|{word}y)\b", text, re.I))  # rain, rainy


def ask(tern, model, request, seed):
    done = subprocess.run([tern, "run", "-m", model, "--chat", "--json", "--device", "cpu", "-t", "1", "--seed", str(seed),
                           "-p", request], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main():
    args = [a for a in sys.argv[1:] if not a.startswith("--")]
    seed = int(sys.argv[sys.argv.index("--seed") + 1]) if "--seed" in sys.argv else 1
    if "--seed" in sys.argv:
        args.remove(str(seed))
    if not args:
        sys.exit(__doc__)
    model, tern = args[0], args[1] if len(args) > 1 else "build/tern"
    asked = list(requests())
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        answers = list(pool.map(lambda i: ask(tern, model, asked[i][0], seed + i), range(len(asked))))
    ended = named = long_enough = good = 0
    for (request, words), answer in zip(asked, answers):
        text = re.sub(r"^\*\*.*\*\*\n", "", answer["text"])
        verdicts = (answer["stop_reason"] == "end", all(count(w, text) >= 2 for w in words), len(text.split()) >= 50)
        ended, named, long_enough = (n + v for n, v in zip((ended, named, long_enough), verdicts))
        good += all(verdicts)
        if "--show" in sys.argv and not all(verdicts):
            print(f"{request} {verdicts}\n    {text[:300]!r}")
    print(f"{model}: of {len(asked)} answers {ended} end by themselves, {named} keep to the subject, "
          f"{long_enough} have 50 words or more; {good} do all three")


if __name__ == "__main__":
    main()

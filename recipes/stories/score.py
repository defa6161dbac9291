#!/usr/bin/env python3
"""How well a model does what it is asked: the 100 requests of prompts.jsonl, each with a rule.

    recipes/stories/score.py MODEL [TERN] [--fair] [--seed S] [--show] [--json FILE]

With --fair it is asked the 60 requests of fair.jsonl, which were written by somebody who had not seen the recipe;
nothing in the training text is made for them. No request is used in training: corpus.py leaves them out, and the
passages of questions and summaries were written for these lists. (The facts that are asked for are in the training
text, in other words or in other company.) Each is a chat of its own, with the model's own sampling defaults and the
seeds S, S + 1, ... Every answer must
    end by itself before the context of the model is full, and
    repeat no six words in a row more than twice.
Besides, by the kind of request,
    story     it names each thing that was asked for at least twice, its title not counted, in 50 words or more;
    question  about a passage, and
    fact      it is one of the accepted answers; case, signs and the words "a", "an", "the", "it is" do not count.
              Where a request lists words ("any", "none"), one of the first and none of the second are in it;
    summary   it names who the passage is about and one of the words of what happens, in at most 40 words and
              in fewer than half of the passage's.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import re

from check import ask, count

HERE = os.path.dirname(os.path.abspath(__file__))
KINDS = ("story", "question", "fact", "summary")


def words_of(text):
    return re.findall(r"[a-z0-9']+", text.lower())


def plain(text):
    """An answer without what does not count."""
    words = words_of(text.replace("-", " "))
    while words and words[0] in ("a", "an", "the", "it", "is", "it's"):
        words = words[1:]
    return " ".join(words)


def repeats(text):
    words = words_of(text)
    runs = collections.Counter(tuple(words[i:i + 6]) for i in range(len(words) - 5))
    return max(runs.values(), default=0) > 2


def is_story(one, text):
    text = re.sub(r"^\*\*.*\*\*\n", "", text)
    return all(count(w, text) >= 2 for w in one["names"]) and len(text.split()) >= 50


def is_accepted(one, text):
    if "any" in one:
        return any(count(re.escape(w), text) for w in one["any"]) and \
            not any(count(re.escape(w), text) for w in one.get("none", []))
    return plain(text) in [plain(a) for a in one["accept"]]


def is_summary(one, text):
    n = len(text.split())
    return (any(count(w, text) for w in one["names"]) and any(count(w, text) for w in one["keys"])
            and n <= 40 and 2 * n < one["words"])


RULES = {"story": is_story, "question": is_accepted, "fact": is_accepted, "summary": is_summary}


def main():
    first, usage, rules = __doc__.split("\n\n", 2)
    args = argparse.ArgumentParser(usage=usage.strip(), description=f"{first}\n\n{rules}",
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("model")
    args.add_argument("tern", nargs="?", default="build/tern")
    args.add_argument("--fair", action="store_true")
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--show", action="store_true")
    args.add_argument("--json")
    args = args.parse_args()
    with open(f"{HERE}/{'fair' if args.fair else 'prompts'}.jsonl", encoding="utf-8") as file:
        asked = [json.loads(line) for line in file]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        answers = list(pool.map(lambda i: ask(args.tern, args.model, asked[i]["prompt"], args.seed + i), range(len(asked))))
    good, n, ended, looped = collections.Counter(), collections.Counter(), 0, 0
    for one, answer in zip(asked, answers):
        kind, text = one["kind"], answer["text"].strip()
        verdicts = answer["stop_reason"] == "end", not repeats(text), RULES[kind](one, text)
        n[kind] += 1
        ended += verdicts[0]
        looped += not verdicts[1]
        good[kind] += all(verdicts)
        answer["good"] = all(verdicts)
        if args.show and not all(verdicts):
            print(f"{kind} {verdicts}\n  {one['prompt'][-150:]!r}\n  {text[:250]!r}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            for one, answer in zip(asked, answers):
                file.write(json.dumps({**one, "answer": answer["text"], "good": answer["good"]}) + "\n")
    print(f"{args.model}: " + ", ".join(f"{good[k]} of {n[k]} {k}" for k in KINDS) +
          f"; {sum(good.values())} of {len(asked)}; {ended} end by themselves, {looped} repeat themselves")


if __name__ == "__main__":
    main()

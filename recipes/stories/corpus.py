#!/usr/bin/env python3
"""Text of the model that the repository carries: files of JSON lines for `tern data`.

    recipes/stories/corpus.py TEXT OUT

TEXT is a folder with
    snakes_synthetic/{stories,textbook}.{train,val}.txt   synthetic stories and explanations, MIT:
                                                          "PROMPT<start>TEXT<end>" again and again
    tinystories/tiny_stories_944k.txt                     a sample of TinyStories, CDLA-Sharing-1.0:
                                                          one story after the other
OUT gets train.jsonl, valid.jsonl (one story in fifty, in all its forms) and vocabulary.jsonl (every
story and explanation once, a part of the rest). The same input gives the same files.

    tales.py      stories in several forms, with requests that are made from what is in them
    questions.py  questions, answers and summaries about a passage of a story, found in its words
    fables.py     short stories that are put together, each with what was asked for and its gist
    worlds.py     passages that are put together from facts, with questions, answers and a gist
    scenes.py     passages made of the sentences in scenes.txt, passages.txt and nouns.txt, with questions
    plots.py      stories by the plots of plots.txt, each with a request that says what happens in it
    facts.py      short questions with short answers, those of facts.txt too
    chats.py      the chats that are made of these
What the model is judged by, requests.tsv (check.py), prompts.jsonl and fair.jsonl (score.py), is left out.
"""
import collections
import concurrent.futures
import json
import os
import random
import sys

from chats import N_PARTS, continued, made_up, of_article, passages, repeated
from tales import MAX_EXPLANATION, chat, forms, name_pools, synthetic, tiny_stories

HERE = os.path.dirname(os.path.abspath(__file__))
VALID_EVERY = 50
VOCABULARY_EVERY = 100 # of the documents that are neither stories nor explanations


def held_out_requests():
    with open(f"{HERE}/requests.tsv", encoding="utf-8") as file:
        held_out = {line.split("\t")[0] for line in file}
    for name in ("prompts", "fair"):
        with open(f"{HERE}/{name}.jsonl", encoding="utf-8") as file:
            held_out |= {json.loads(line)["prompt"] for line in file}
    return held_out


class Corpus:
    """The three files, and how many documents went into each."""

    def __init__(self, out, held_out):
        os.makedirs(out, exist_ok=True)
        self.files = {k: open(f"{out}/{k}.jsonl", "w", encoding="utf-8") for k in ("train", "valid", "vocabulary")}
        self.n = collections.Counter()
        self.held_out = held_out

    def add(self, part, document):
        if document is None or "messages" in document and document["messages"][0]["content"] in self.held_out:
            return
        self.files[part].write(json.dumps(document) + "\n")
        self.n[part] += 1

    def close(self):
        for file in self.files.values():
            file.close()


def of_story(job):
    """All that is made of the i-th story."""
    i, request, text, pools, held_out = job
    rng = random.Random(i)
    return [*forms(request, text, pools, held_out, rng), *passages(text, pools, rng), *continued(text, rng), *repeated(text, rng), *repeated(text, rng)]


def of_part(part):
    return list(made_up(part, held_out_requests()))


def add_stories(corpus, stories, pools, pool):
    jobs = [(i, request, text, pools, corpus.held_out) for i, (request, text) in enumerate(stories)]
    for (i, _, text, *_), made in zip(jobs, pool.map(of_story, jobs, chunksize=64)):
        corpus.add("vocabulary", {"text": text})
        for document in made:
            corpus.add("valid" if i % VALID_EVERY == 0 else "train", document)


def add_explanations(corpus, explanations):
    rng = random.Random(1)
    for i, (request, text) in enumerate(explanations):
        part = "valid" if i % VALID_EVERY == 0 else "train"
        is_long = len(text.encode()) > MAX_EXPLANATION
        if not is_long:
            corpus.add("vocabulary", {"text": text})
        corpus.add(part, {"text": text} if is_long else chat(request, text))
        for document in of_article(request, text, rng):
            corpus.add(part, document)


def add_made_up(corpus, pool):
    for made in pool.map(of_part, range(N_PARTS)):
        for i, document in enumerate(made):
            corpus.add("valid" if i % (8 * VALID_EVERY) == 0 else "train", document)
            if i % VOCABULARY_EVERY == 0:
                corpus.add("vocabulary", document)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.split("\n\n")[1].strip())
    text_folder, out = sys.argv[1:]
    stories = list(synthetic(f"{text_folder}/snakes_synthetic", "stories"))
    stories += [(None, t) for t in tiny_stories(f"{text_folder}/tinystories/tiny_stories_944k.txt")]
    explanations = list(synthetic(f"{text_folder}/snakes_synthetic", "textbook"))
    seen = set()
    unique = [s for s in stories if not (s[1] in seen or seen.add(s[1]))]
    pools = name_pools([t for _, t in unique])
    corpus = Corpus(out, held_out_requests())
    with concurrent.futures.ProcessPoolExecutor() as pool:
        add_stories(corpus, unique, pools, pool)
        add_explanations(corpus, explanations)
        add_made_up(corpus, pool)
    corpus.close()
    print(f"{len(unique)} stories, {len(explanations)} explanations, {len(pools['?'])} names: "
          f"{corpus.n['train']} documents to train on, {corpus.n['valid']} held out")


if __name__ == "__main__":
    main()

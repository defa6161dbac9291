#!/usr/bin/env python3
"""Tests of the recipe: pairs are of their own document, what is held out is not in the training, places are counted."""
import contextlib
import io
import json
import os
import sys
import tempfile
import unittest
from unittest import mock

import pairs
import score

ARTICLE = """Write a blog post about Kites.<start>**What Kites Are**

A kite is a light frame that flies in the wind. It is held by a string, and its tail keeps it steady in the air.
Number {i} was red and flew over the river for an hour before the storm.

**How They Fly**

The wind pushes against the sail number {i} and lifts it, while the string holds it back. Without wind it falls.
Children often run to make it rise on calm days, which works for a while.
<end>"""


def make(folder):
    os.makedirs(f"{folder}/snakes_synthetic")
    with open(f"{folder}/snakes_synthetic/textbook.train.txt", "w", encoding="utf-8") as file:
        file.writelines(ARTICLE.replace("A kite is", f"A kite of kind {i} is").replace("{i}", str(i)) for i in range(300))
    with mock.patch.object(sys, "argv", ["pairs.py", folder, f"{folder}/out"]), contextlib.redirect_stdout(io.StringIO()):
        pairs.main()
    made = {}
    for name in os.listdir(f"{folder}/out"):
        with open(f"{folder}/out/{name}", encoding="utf-8") as file:
            made[name] = [json.loads(line) for line in file]
    return made


class Pairs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            cls.made = make(folder)

    def test_kinds_are_made_of_an_article(self): # seen to fail: headings taken for paragraphs
        queries = {p["query"] for p in self.made["train.jsonl"]}
        self.assertTrue(any(q.startswith("What Kites Are") for q in queries), queries)
        self.assertTrue(any("blog post about Kites" in q for q in queries))
        for p in self.made["train.jsonl"]:
            self.assertNotIn("**", p["positive"])
            self.assertLessEqual(len(p["positive"]), pairs.PASSAGE)

    def test_what_is_held_out_is_not_learnt(self): # seen to fail: with documents chosen by their place in each list
        def number(p):
            return {w for w in p["positive"].split() if w.isdigit()}
        learnt = set().union(*(number(p) for p in self.made["train.jsonl"]))
        tests = [p for name, made in self.made.items() if name.startswith("test-") for p in made] + self.made["valid.jsonl"]
        self.assertGreater(len(tests), 20)
        self.assertFalse(learnt & set().union(*(number(p) for p in tests)))


class Scores(unittest.TestCase):
    def test_places(self): # seen to fail: equals counted as worse
        self.assertEqual(score.place_of([1, 3, 2], 1), 1)
        self.assertEqual(score.place_of([1, 3, 2], 0), 3)
        self.assertEqual(score.place_of([0, 0, 0, 0], 2), 4)
        self.assertEqual(score.ranks([1, 3, 2]), [3, 1, 2])
        self.assertEqual(score.measure([1, 20]), [50, 50, 52.5])

    def test_bm25_prefers_rare_words(self): # seen to fail: without the logarithm of rarity
        rows = list(score.bm25(["the kite"], ["the the hen", "a kite", "the hen", "the cow"]))
        self.assertEqual(max(range(4), key=lambda i: rows[0][i]), 1)


if __name__ == "__main__":
    unittest.main()

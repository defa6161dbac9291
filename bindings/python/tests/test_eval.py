"""Evaluation beside a second implementation: float64 arithmetic on plain logits, Python's own expressions and
formatting, and lm-evaluation-harness's rules written down again."""
import json
import math
import os
import re
import shutil
import string
import tempfile
import unittest

import tern
from common import STORIES, needs_numpy

try:
    import numpy as np
except ImportError:
    pass

SHOTS = [{"question": "Tom has 3 cats and finds 2. How many?", "answer": "3 + 2 = 5.\n#### 5"},
         {"question": "Ann had $1,200 and spent 200. How much is left?", "answer": "1,200 - 200.\n#### 1,000"}]
QUESTIONS = ["Ben had 7 dogs and lost 3. How many?", "Sue ate 2 of 9 figs. How many are left?", "What is 4 and 4?",
             "Lily has 1 hat and Mia has 6. How many in all?", "A box has 10 pens. 5 are red. How many are not?"]


class Reference:
    """A model by its logits alone."""

    def __init__(self, model):
        self.model = model
        self.session = model.session(kv="f32", speculate=False)
        self.bos = model.tokenize("a")[:1] if len(model.tokenize("a")) > len(model.tokenize("a", bos=False)) else []

    def rows(self, ids):
        """ln p of each next token, [len(ids), n_vocab]."""
        self.session.reset()
        x = self.session.logits(ids).astype(np.float64)
        x -= x.max(1, keepdims=True)
        return x - np.log(np.exp(x).sum(1, keepdims=True))

    def score(self, context, continuation):
        spaces = len(context) - len(context.rstrip())
        if spaces:
            context, continuation = context[:-spaces], context[-spaces:] + continuation
        n = len(self.model.tokenize(context, special=True))
        ids = self.model.tokenize(context + continuation, special=True)
        rows = self.rows(ids)
        return sum(rows[i - 1, ids[i]] for i in range(n, len(ids)))

    def answer(self, prompt, until, most):
        ids = self.model.tokenize(prompt, special=True)
        before = self.model.detokenize(ids, special=True)
        text, n = "", len(ids)
        self.session.reset()
        row = self.session.logits(ids)[-1]
        while len(ids) - n < most:
            following = int(row.argmax())
            if self.model.token_is_end(following):
                break
            ids.append(following)
            text = self.model.detokenize(ids, special=True)[len(before):]
            if any(stop in text for stop in until):
                break
            row = self.session.logits([following])[-1]
        for stop in until:
            text = text.split(stop)[0]
        return text


def regex_filter(text, pattern, select=0, fallback="[invalid]"):
    found = re.compile(pattern).findall(text)
    if not found:
        return fallback
    found = found[select]
    if isinstance(found, tuple):
        found = ([part for part in found if part] or [fallback])[0]
    return found.strip()


def exact_match(got, want, ignored=(), case=False, punctuation=False):
    sides = []
    for side in (got, want):
        for pattern in ignored:
            side = re.sub(pattern, "", side)
        side = side.lower() if case else side
        sides.append(side.translate(str.maketrans("", "", string.punctuation)) if punctuation else side)
    return float(sides[0] == sides[1])


@needs_numpy
class Rules(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.model = tern.Model(STORIES, threads=1)
        self.addCleanup(self.model.close)
        self.reference = Reference(self.model)

    def write(self, name, rows):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write(json.dumps(rows) if isinstance(rows, dict) else "".join(json.dumps(row) + "\n" for row in rows))
        return path

    def records(self, path):
        with open(path) as file:
            return [json.loads(line) for line in file][1:]

    def test_gsm8k(self):
        """Half of the right answers are what the model says."""
        until = ["Question:", "</s>", "<|im_end|>"]
        front = "".join("Question: %(question)s\nAnswer: %(answer)s\n\n" % shot for shot in SHOTS)
        ignored = [",", r"\$", r"(?s).*#### ", r"\.$"]
        strict, flexible, data, said = [], [], [], []
        for i, question in enumerate(QUESTIONS):
            text = self.reference.answer(front + "Question: %s\nAnswer:" % question, until, 256)
            last = regex_filter(text, r"(-?[$0-9.,]{2,})|(-?[0-9]+)", -1)
            answer = "so\n#### " + (last if i % 2 else "11")
            first = regex_filter(text, r"#### (\-?[0-9\.\,]+)")
            strict.append(exact_match(first, answer, ignored, case=True))
            flexible.append(exact_match(last, answer, ignored, case=True))
            data.append({"question": question, "answer": answer})
            said.append(text)
        results = os.path.join(self.folder, "results")
        got = tern.eval.run(self.model, "gsm8k", self.write("gsm8k.jsonl", data), shots=2, kv="f32", results=results,
                            shots_path=self.write("train.jsonl", SHOTS))
        self.assertEqual([record["answer"] for record in self.records(results)], said)
        self.assertEqual(got.metrics["exact_match,strict-match"][0], sum(strict) / len(strict))
        self.assertEqual(got.metrics["exact_match,flexible-extract"][0], sum(flexible) / len(flexible))

    def test_own_generation(self):
        task = self.write("own.json", {
            "task": "own", "output_type": "generate_until", "doc_to_text": "{{ start | trim }} was", "doc_to_target": "end",
            "generation_kwargs": {"until": [".", "\n"], "max_gen_toks": 12},
            "filter_list": [{"name": "word", "filter": [{"function": "regex", "regex_pattern": r"(\w+)(?: (\w+))?", "group_select": 0}]},
                            {"name": "loud", "filter": [{"function": "remove_whitespace"}, {"function": "uppercase"}]}],
            "metric_list": [{"metric": "exact_match", "ignore_case": True, "ignore_punctuation": True, "regexes_to_ignore": [r"^the "]}]})
        word, loud, data = [], [], []
        for i, start in enumerate(["Once upon a time there", " The dog ", "Lily's mom", "The sun", "It", "One day Tom"]):
            text = self.reference.answer(start.strip() + " was", [".", "\n"], 12)
            took = regex_filter(text, r"(\w+)(?: (\w+))?", 0)
            end = [took.upper() + "!", "the " + text.strip(), "no"][i % 3]
            word.append(exact_match(took, end, [r"^the "], True, True))
            loud.append(exact_match(text.lstrip().upper(), end, [r"^the "], True, True))
            data.append({"start": start, "end": end})
        got = tern.eval.run(self.model, task, self.write("own.jsonl", data), kv="f32", parallel=3)
        self.assertEqual(got.metrics["exact_match,word"][0], sum(word) / len(word))
        self.assertEqual(got.metrics["exact_match,loud"][0], sum(loud) / len(loud))
        self.assertTrue(0 < sum(word) < len(word) and 0 < sum(loud) < len(loud))

    def test_own_choice(self):
        task = self.write("own.json", {
            "task": "own", "output_type": "multiple_choice", "description": "Say what follows.\n\n",
            "doc_to_text": "{{start}}:\n", "doc_to_choice": "{{[good, bad, 'it\\'s \"over\"']}}", "doc_to_target": "{{good}}",
            "target_delimiter": "-", "fewshot_delimiter": "\n##\n", "num_fewshot": 1,
            "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}]})
        rows = [("The cat was hungry", "She ate a fish", "The sky sat on a bed"), ("Tom was sad", "His mom gave him a hug", "A"),
                ("It rained", "They went inside to play", "Dogs fly"), ("She saw a bird", "It could sing", "Wet eat the in")]
        data = [{"start": a, "good": b, "bad": c} for a, b, c in rows]
        acc, norm, scores = [], [], []
        for a, b, c in rows[1:]:
            front = "Say what follows.\n\n%s:\n-%s\n##\n%s:\n" % (rows[0][0], rows[0][1], a)
            choices = [b, c, 'it\'s "over"']
            lls = [self.reference.score(front, "-" + text) for text in choices]
            acc.append(float(np.argmax(lls) == 0))
            norm.append(float(np.argmax([ll / len(text) for ll, text in zip(lls, choices)]) == 0))
            scores.append(lls)
        results = os.path.join(self.folder, "results")
        got = tern.eval.run(self.model, task, self.write("own.jsonl", data[1:]), kv="f32", results=results,
                            shots_path=self.write("shots.jsonl", data[:1]))
        for record, lls in zip(self.records(results), scores):
            np.testing.assert_allclose(record["logprobs"], lls, rtol=1e-5)
        self.assertEqual((got.metrics["acc"][0], got.metrics["acc_norm"][0]), (sum(acc) / 3, sum(norm) / 3))

    def test_chat(self):
        template = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant]"
        task = self.write("own.json", {"task": "own", "output_type": "generate_until", "doc_to_text": "q", "doc_to_target": "a",
                                       "generation_kwargs": {"until": ["\n"], "max_gen_toks": 8}})
        turns = ("[system] Be kind.\n[user] Hi\n[assistant] Hello\n[user] Who?\n[assistant]",
                 "[system] Be kind.\n[user] Hi Hello\n\nWho?\n[assistant]")
        with tern.Model(STORIES, threads=1, chat_template=template) as model:
            reference = Reference(model)
            for as_turns, prompt in zip((True, False), turns):
                results = os.path.join(self.folder, "results%d" % as_turns)
                tern.eval.run(model, task, self.write("own.jsonl", [{"q": "Who?", "a": "x"}]), shots=1, kv="f32",
                              shots_path=self.write("shots.jsonl", [{"q": "Hi", "a": "Hello"}]), results=results,
                              apply_chat_template=True, system="Be kind.", shots_as_turns=as_turns)
                self.assertEqual(self.records(results)[0]["answer"], reference.answer(prompt, ["\n"], 8))

    def test_comparison_of_two_models(self):
        """Equal to NumPy's on two models."""
        text = "Once upon a time there was a cat. She had a hat, and the dog had none. They sat in the sun all day. " * 6
        small = os.path.join(self.folder, "q4.gguf")
        tern.convert(STORIES, small, type="q4_0")
        window = 64
        with tern.Model(small, threads=1) as model:
            got = tern.eval.compare(model, self.model, text, window=window)
            other = Reference(model)
            ids = self.model.tokenize(text)
            kl, change, same, ratio = [], [], [], []
            for begin in range(0, len(ids) - window + 1, window):
                piece = self.reference.bos + ids[begin + len(self.reference.bos):begin + window]
                p, q = self.reference.rows(piece), other.rows(piece)
                for i in range(window // 2, window - 1):
                    kl.append((np.exp(p[i]) * (p[i] - q[i])).sum())
                    change.append(math.exp(q[i, piece[i + 1]]) - math.exp(p[i, piece[i + 1]]))
                    same.append(float(p[i].argmax() == q[i].argmax()))
                    ratio.append(p[i, piece[i + 1]] - q[i, piece[i + 1]])
            self.assertEqual(got.model.n_scored, len(kl))
            for mine, theirs in ((got.kl.mean, np.mean(kl)), (got.kl.median, np.median(kl)), (got.kl.max, np.max(kl)),
                                 (got.kl.p99, np.quantile(kl, 0.99)), (got.kl.rms, np.sqrt(np.mean(np.square(kl)))),
                                 (got.kl.error, np.std(kl, ddof=1) / math.sqrt(len(kl))), (got.p_change.mean, np.mean(change)),
                                 (got.same_top, np.mean(same)), (got.log_ratio, np.mean(ratio))):
                self.assertAlmostEqual(mine, theirs, delta=1e-5 * max(1e-1, abs(theirs)))
            self.assertGreater(got.kl.mean, 1e-4)

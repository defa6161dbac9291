"""What a caller decides himself: the timeline, the scores, where a model's bytes are; and what the library says."""
import mmap
import os
import shutil
import tempfile
import unittest

import tern
from common import ORACLES, STORIES, needs_numpy

PROMPT, GREEDY = "Once upon a time", dict(temperature=0, max_tokens=8)


class Timeline(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = tern.Model(STORIES, threads=1, context=256)

    @classmethod
    def tearDownClass(cls):
        cls.model.close()

    def test_ids_alone_continue_it(self):
        """Seen to fail: with a BOS in the middle, with the prompt in place of the timeline."""
        want, ids = self.model.generate(PROMPT, **GREEDY), self.model.tokenize(PROMPT)
        with self.model.session() as session:
            self.assertEqual(session.generate("Once", append=True, **GREEDY).stats.n_prompt, len(self.model.tokenize("Once")))
            session.truncate(len(self.model.tokenize("Once")))
            self.assertEqual(session.generate(" upon a time", append=True, **GREEDY).text, want.text)
            session.truncate(len(ids))
            self.assertEqual(session.tokens, ids)
            self.assertEqual(session.generate([], append=True, **GREEDY).ids, want.ids)
            with self.assertRaisesRegex(tern.TernError, "cannot be truncated"):
                session.truncate(10000)
            with self.assertRaisesRegex(tern.TernError, "append"):
                session.chat("Hello", append=True)
        with self.assertRaisesRegex(tern.TernError, "append"):
            self.model.generate(PROMPT, append=True)

    def test_it_is_kept_in_memory(self):
        with self.model.session() as session, self.model.session() as other:
            session.sync(self.model.tokenize(PROMPT))
            kept = session.save_bytes()
            self.assertEqual(other.load_bytes(kept), session.n_tokens)
            self.assertEqual(other.generate("", append=True, **GREEDY).text, session.generate("", append=True, **GREEDY).text)
            for wrong in (kept[:-1], kept[:50], b"", b"x" + kept[1:]):
                with self.assertRaises(tern.TernError):
                    other.load_bytes(wrong)
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "s")
                session.load_bytes(kept)
                session.save(path)
                with open(path, "rb") as file:
                    self.assertEqual(file.read(), kept)

    def test_a_prompts_progress(self):
        """Seen to fail: with an exception in it that is lost."""
        told = []
        self.model.generate(PROMPT, on_progress=lambda *now: told.append(now), **GREEDY).text
        self.assertEqual(told, [("prompt", 1.0)])
        answer = self.model.generate(PROMPT + " there", on_progress=lambda *_: False, **GREEDY)
        self.assertEqual((answer.text, answer.reason), ("", "caller"))
        with self.assertRaises(ZeroDivisionError):
            self.model.generate(PROMPT, on_progress=lambda *_: 1 / 0, **GREEDY).text

    @needs_numpy
    def test_the_last_scores(self):
        ids = self.model.tokenize(PROMPT)
        with self.model.session() as session:
            rows = session.logits(ids)
            self.assertEqual(session.last_logits().tobytes(), rows[-1].tobytes())
            self.assertEqual(session.n_tokens, len(ids))
            session.truncate(2)
            self.assertEqual(session.last_logits().tobytes(), rows[1].tobytes())

    @needs_numpy
    def test_logits_processors(self):
        """Seen to fail: with a processor's array that is not copied back, with ids of the prompt alone."""
        import numpy as np
        want, ids, seen = self.model.generate(PROMPT, **GREEDY), self.model.tokenize(PROMPT), []

        def look(ids, logits):
            seen.append(list(ids))

        def without(ids, logits):
            logits = logits.copy()
            logits[want.ids[0]] = -np.inf
            return logits

        say = lambda processor, **options: self.model.generate(PROMPT, logits_processor=processor, **dict(GREEDY, **options))
        self.assertEqual(say(look).ids, want.ids)
        self.assertEqual(seen, [ids + want.ids[:i] for i in range(len(seen))])
        self.assertEqual(say([look, lambda ids, logits: logits.argmax()]).ids, want.ids)
        self.assertNotIn(want.ids[0], say(without).ids)
        self.assertEqual(say([without, lambda ids, logits: want.ids[0]], max_tokens=1).ids, want.ids[:1])
        with self.assertRaises(ZeroDivisionError):
            say(lambda *_: 1 / 0).text
        for wrong in (lambda *_: -5, lambda *_: np.zeros(3), lambda *_: 10**7, lambda *_: True):
            with self.assertRaisesRegex(tern.TernError, "logits_processor|on_logits"):
                say(wrong).text
        for wrong in (5, ["x"], {}):
            with self.assertRaisesRegex(tern.TernError, "logits_processor"):
                say(wrong)
        self.assertEqual(self.model.generate(PROMPT, **GREEDY).ids, want.ids)


class Sources(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def test_a_model_from_bytes(self):
        """Seen to fail: with bytes that nobody keeps."""
        with tern.Model(STORIES, threads=1) as model:
            want = model.generate(PROMPT, **GREEDY).text
        with open(STORIES, "rb") as file:
            raw = file.read()
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        for data in (raw, bytearray(raw), memoryview(raw), memoryview(b"xy" + raw)[2:], mapped):
            with tern.Model(data, threads=1) as model:
                del data
                self.assertEqual(model.generate(PROMPT, **GREEDY).text, want)
                self.assertEqual(model.info.path, "memory")
        for wrong in (raw[:1000], b"", b"GGUF", 5, None, object()):
            with self.assertRaises(tern.TernError):
                tern.Model(wrong)

    def test_metadata(self):
        """Seen to fail: with a list's last element left out."""
        with tern.Model(STORIES, vocab_only=True) as model:
            metadata = model.metadata
            self.assertIn("general.architecture", metadata)
            kind = metadata["general.architecture"]
            self.assertIsInstance(metadata[kind + ".block_count"], int)
            self.assertIsInstance(metadata[kind + ".rope.freq_base"], float)
            tokens = metadata["tokenizer.ggml.tokens"]
            self.assertEqual(len(tokens), model.info.n_vocab)
            self.assertEqual(tokens[-1].encode(), model.token_text(len(tokens) - 1))
            self.assertEqual(len(list(metadata)), len(metadata))
            self.assertIsNone(metadata.get("no.such.key"))
            with self.assertRaises(KeyError):
                metadata["general"]
        with tern.Model(os.path.join(ORACLES, "llama_scaled"), threads=1) as model:
            self.assertEqual((model.metadata["model_type"], model.metadata["architectures"]), ("llama", ["LlamaForCausalLM"]))
            self.assertEqual(model.metadata["rope_parameters.factor"], 8.0)

    def test_the_log(self):
        """Seen to fail: with a callback that is collected while the model lives."""
        lines = []
        with tern.Model(STORIES, threads=1, on_log=lambda level, line: lines.append((level, line))) as model:
            model.generate(PROMPT, **GREEDY).text
        self.assertEqual(lines[0][0], "info")
        self.assertIn("stories.gguf", lines[0][1])
        self.assertTrue(any(level == "debug" and "8 generated" in line for level, line in lines), lines)


if __name__ == "__main__":
    unittest.main()

"""What needs NumPy: vectors, scores, graphs."""
import asyncio
import ctypes
import json
import os
import struct
import tempfile
import unittest

import tern
from common import ORACLES, STORIES, needs_numpy, python, tern as command

try:
    import numpy as np
except ImportError:
    pass


def golden(name):
    """What another program computed: the arrays of a safetensors file."""
    with open(os.path.join(ORACLES, name, "golden.safetensors"), "rb") as file:
        raw = file.read()
    n = struct.unpack("<Q", raw[:8])[0]
    kinds = {"F32": "<f4", "I32": "<i4", "U8": "u1"}
    out = {}
    for key, row in json.loads(raw[8:8 + n]).items():
        if key != "__metadata__":
            begin, end = row["data_offsets"]
            if row["dtype"] in kinds:  # NumPy knows no bf16
                out[key] = np.frombuffer(raw[8 + n + begin:8 + n + end], kinds[row["dtype"]]).reshape(row["shape"])
    return out


@needs_numpy
class Vectors(unittest.TestCase):
    def test_the_references_vectors(self):
        """Seen to fail: with rows that are not as wide as the vectors."""
        for name in ("embeddinggemma", "bert"):
            want = golden(name)
            ids = want["input_ids"].tolist()
            with tern.Model(os.path.join(ORACLES, name, "model.gguf")) as model:
                self.assertEqual(model.embedding.n_dims, len(want["embedding"]))
                got = model.embed([ids, ids[:5], want["input_ids"]])
                self.assertEqual((got.shape, got.dtype), ((3, 32), np.float32))
                np.testing.assert_allclose(got[0], want["embedding"], atol=2e-6)
                np.testing.assert_array_equal(got[0], got[2])
                self.assertFalse(np.array_equal(got[0], got[1]))
                short = model.embed([ids], dimensions=8)
                self.assertEqual(short.shape, (1, 8))
                self.assertAlmostEqual(float(np.linalg.norm(short)), 1, places=5)
                self.assertAlmostEqual(tern.similarity(got[0], got[0]), 1, places=6)
                self.assertEqual(model.embed([]).shape, (0, 32))
                seen = []
                model.embed([ids] * 3, on_progress=lambda *now: seen.append(now))
                self.assertTrue(seen)
                with self.assertRaises(tern.TernError) as caught:
                    model.embed([ids], on_progress=lambda *_: False)
                self.assertEqual(caught.exception.code, "aborted")
                with self.assertRaises(tern.TernError):
                    model.embed([ids], dimensions=33)

    def test_images_are_classified(self):
        """Seen to fail: with rows and columns of an array exchanged."""
        want = golden("vit")
        with tern.Model(os.path.join(ORACLES, "vit")) as model:
            self.assertEqual(model.media.n_labels, len(want["scores"]))
            order = sorted(range(5), key=lambda i: -want["scores"][i])
            labels = model.classify(want["image"], top=3)
            self.assertEqual([(x.id, x.label) for x in labels], [(i, "thing %d" % i) for i in order[:3]])
            self.assertEqual([x.label for x in labels], [model.labels()[x.id] for x in labels])
            both = model.classify([want["image"], want["sized"]])
            self.assertEqual(both[0][:3], labels)
            self.assertAlmostEqual(sum(x.probability for x in both[0]), 1, 5)
            vectors = model.embed_images([want["sized"], want["image"]])
            np.testing.assert_allclose(vectors[1], want["embedding"], atol=2e-6)
            np.testing.assert_array_equal(model.embed_images(want["image"]), vectors[1])
            for wrong in (want["image"][0], want["image"].astype("f4"), 7):
                with self.assertRaisesRegex(tern.TernError, "an image is a file"):
                    model.classify(wrong)
            with self.assertRaisesRegex(tern.TernError, "(?s)no.jpg"):
                model.classify("no.jpg")
        sized = tern.read_image(want["image"], size=(16, 16), filter="bilinear")
        np.testing.assert_array_equal(sized, want["sized"])

    def test_images_in_conversations(self):
        """Seen to fail: with the images of a message left out of its ids."""
        image = golden("qwen35_sees")["image"]
        other = np.ascontiguousarray(255 - image)
        greedy = dict(temperature=0, max_tokens=8)

        def user(*images):
            return {"role": "user", "content": "What is it?", "images": list(images)}

        with tern.Model(os.path.join(ORACLES, "qwen35_sees")) as model:
            self.assertIn("<|vision_start|><|image_pad|><|vision_end|>What", model.format([user(image)]))
            blind, one = model.count_tokens([user()]), model.count_tokens([user(image)])
            self.assertEqual(model.count_tokens([user(image, other)]) - one, one - blind)
            said = model.chat([user(image)], **greedy).text
            self.assertNotEqual(said, model.chat([user(other)], **greedy).text)
            self.assertEqual(said, model.chat([user(image)], **greedy).text)
            with model.session() as session:
                self.assertEqual(session.chat([user(image)], **greedy).text, said)
            turns = [[user(a), {"role": "assistant", "content": "x"}, user(b)] for a, b in ((image, other), (other, image))]
            answers = [model.chat(talk, **greedy) for talk in turns]
            self.assertNotEqual(answers[0].text, answers[1].text)
            text, shown = {"type": "text", "text": "What is it?"}, [{"type": "image", "image": i} for i in (image, other)]
            parts = lambda *content: [{"role": "user", "content": list(content)}]
            self.assertEqual(model.chat(parts(shown[0], text), **greedy).text, said)
            self.assertEqual(model.chat(parts(*shown, text), **greedy).text, model.chat([user(image, other)], **greedy).text)
            self.assertIn("it?<|vision_start|>", model.format(parts(text, shown[0])))
            self.assertNotEqual(*(model.chat(parts(text, i), **greedy).text for i in shown))
            # The oldest turns make way, with their images. Seen to fail: with the images of another turn.
            turn = parts(shown[1], text) + [{"role": "assistant", "content": "x"}]
            with model.session(context=model.count_tokens(parts(shown[0], text)) + 60) as session:
                answer = session.chat(turn * 3 + parts(shown[0], text), **greedy)
                self.assertGreater(answer.dropped, 0)
                kept = turn * 3
                self.assertEqual(answer.text, model.chat(kept[answer.dropped:] + parts(shown[0], text), **greedy).text)
            with self.assertRaisesRegex(tern.TernError, "an image is a file"):
                model.chat([user(7)])
            # Encoded ahead: at once, in steps, in a loop. Seen to fail: with the first image's tokens for the second.
            tokens, encoder = model.image_tokens(image), model.image_encoder(other)
            seen = next(filter(None, iter(encoder.poll, 0)))
            self.assertTrue(all(i >= model.info.n_vocab for i in tokens.ids) and not set(tokens.ids) & set(seen.ids))

            async def awaited():
                return (await model.image_encoder(image)).ids
            self.assertEqual(asyncio.run(awaited()), tokens.ids)
            self.assertEqual(model.chat([user(tokens)], **greedy).text, said)
            placed = model.image_tokens_place(model.format([user(image, other)]), [tokens, seen])
            self.assertEqual([i for i in placed if i >= model.info.n_vocab], tokens.ids + seen.ids)
            self.assertEqual(model.generate(model.image_tokens_place(model.format([user(image)]), [tokens]), **greedy).text, said)
            self.assertLess(len(model.image_tokens(image, max_pixels=image.size // 12).ids), len(tokens.ids))
            with self.assertRaises(tern.TernError):
                model.image_tokens_place(model.format([user(image)]), [tokens, seen])
            with tern.Model(os.path.join(ORACLES, "qwen35_sees")) as twin, self.assertRaisesRegex(tern.TernError, "another model"):
                twin.chat([user(tokens)])
            encoder.close()
            tokens.close()
            with self.assertRaisesRegex(tern.TernError, "closed"):
                model.chat([user(tokens)])
        with tern.Model(STORIES) as model:
            with self.assertRaisesRegex(tern.TernError, "reads no images"):
                model.chat([user(image)])
        with tempfile.TemporaryDirectory() as folder:
            gguf, tower = os.path.join(folder, "m.gguf"), os.path.join(folder, "tower.gguf")
            tern.convert(os.path.join(ORACLES, "qwen35_sees"), gguf)
            os.rename(os.path.join(folder, "mmproj-m.gguf"), tower)
            with tern.Model(gguf, mmproj=tower) as model:
                self.assertEqual(model.chat([user(image)], **greedy).text, said)
            with open(gguf, "rb") as text, open(tower, "rb") as sees, tern.Model(text.read(), mmproj=sees.read()) as model:
                self.assertEqual(model.chat([user(image)], **greedy).text, said)
            with tern.Model(gguf) as model:
                with self.assertRaisesRegex(tern.TernError, "reads no images"):
                    model.chat([user(image)])

    def test_images_whose_rows_see_to_their_end(self):
        want = golden("gemma3_sees")
        with tern.Model(os.path.join(ORACLES, "gemma3_sees")) as model:
            asked = [{"role": "user", "content": "What is it?", "images": [want["image"]]}]
            n = [model.count_tokens([{"role": "user", "content": "What is it?", "images": images}]) for images in ([], [want["image"]])]
            self.assertEqual(n[1] - n[0], 12)
            self.assertEqual(*(model.chat(asked, max_tokens=8, temperature=0).text for _ in range(2)))

    def test_images_that_are_cut_into_squares(self):
        """As many tokens as the reference has; seen to fail without those around an image."""
        want = golden("lfm2vl_sees")
        large = np.zeros((130, 200, 3), np.uint8)
        with tern.Model(os.path.join(ORACLES, "lfm2vl_sees")) as model:
            n = [model.count_tokens([{"role": "user", "content": "What is it?", "images": images}]) for images in ([], [want["image"]], [large])]
            self.assertEqual(n[1] - n[0], 4)
            self.assertEqual(n[2] - n[0], len(want["large_ids"]) - len("What is it?"))

    def test_texts_are_said(self):
        want = golden("kani")
        with tern.Model(os.path.join(ORACLES, "kani")) as model, tern.Model(os.path.join(ORACLES, "nanocodec")) as codec:
            self.assertEqual((model.media.n_speaker, codec.media.is_tts, codec.media.codec_rate, model.media.is_codec), (6, False, 22050, False))
            codes, pieces = [], []
            sound = model.speak(want["text"], codec, speaker=want["voice"], temperature=-1, max_seconds=9 * 6 / 22050,
                                on_codes=codes.append, on_samples=pieces.append)
            self.assertEqual(codes, want["long_codes"].tolist())
            np.testing.assert_allclose(sound, want["long_sound"], atol=1e-5)
            np.testing.assert_array_equal(np.concatenate(pieces), sound)
            np.testing.assert_array_equal(codec.decode_codes(want["long_codes"]), sound)
            with self.assertRaises(tern.TernError) as caught:
                model.speak(want["text"], codec, temperature=-1, on_samples=lambda _: False)
            self.assertEqual(caught.exception.code, "aborted")
            with self.assertRaisesRegex(tern.TernError, "takes 6"):
                model.speak(want["text"], codec, speaker=[1, 2])
            with self.assertRaisesRegex(tern.TernError, "code 1 is 12"):
                codec.decode_codes([[0, 12, 0, 0]])
            for call in (lambda: codec.decode_codes([[0, 2**32, 0, 0]]), lambda: codec.decode_codes([[0.5, 0, 0, 0]]),
                         lambda: model.speak(np.array([2**32 + 1]), codec), lambda: model.speak("x", codec, seed=2**64 + 1)):
                with self.assertRaises(tern.TernError) as caught:  # seen to fail: the low bits were taken
                    call()
                self.assertEqual(caught.exception.code, "argument")

    def test_sounds_are_written_down(self):
        want = golden("moonshine")
        with tern.Model(os.path.join(ORACLES, "moonshine")) as model:
            self.assertEqual(model.media.audio_rate, 16000)
            seen = []
            got = model.transcribe(want["pcm"], whole=True, tokens_per_second=40, on_segment=seen.append)
            self.assertEqual(got.segments, seen)
            self.assertEqual(got.segments[0].ids, want["greedy"].tolist())
            self.assertAlmostEqual(got.seconds, len(want["pcm"]) / 16000)
            self.assertEqual(got.text, "")
            with self.assertRaises(tern.TernError) as caught:
                model.transcribe(want["pcm"], whole=True, tokens_per_second=40, on_segment=lambda _: False)
            self.assertEqual(caught.exception.code, "aborted")
            with self.assertRaisesRegex(tern.TernError, "a sound is a file"):
                model.transcribe(want["pcm"].astype("f8"))
            heard, partial = [], []
            with model.transcriber(tokens_per_second=40, on_segment=heard.append, on_partial=partial.append) as listener:
                for _ in range(4):
                    listener.feed(want["pcm"])
                listener.end()
            self.assertEqual(len(heard), 1)
            self.assertGreaterEqual(len(partial), 1)
            self.assertGreater(heard[0].end, 1)
        with tern.Model(os.path.join(ORACLES, "whisper")) as model:
            self.assertEqual(model.transcribe(want["pcm"], language="de", fallback=False).language, "de")
            with self.assertRaisesRegex(tern.TernError, "tlh"):
                model.transcribe(want["pcm"], language="tlh")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.wav")
            tern.write_sound(path, want["pcm"], 16000)
            with open(path, "rb") as file:
                self.assertEqual(file.read(4), b"RIFF")
            try:
                samples, rate = tern.read_sound(path)
                self.assertEqual(rate, 16000)
                np.testing.assert_allclose(samples, want["pcm"], atol=1e-4)
            except tern.TernError as error:
                self.assertEqual(error.code, "unsupported")

    def test_texts(self):
        texts = ["the cat and the dog", "the hen", "the cat"]
        with tern.Model(STORIES, pooling="mean", threads=1) as model:
            got = model.embed(texts)
            said = [json.loads(line)["embedding"] for line in
                    command("embed", STORIES, "--pooling", "mean", "-t", "1", *texts).splitlines()]
            np.testing.assert_allclose(got, np.array(said, np.float32), rtol=1e-5, atol=1e-7)
            np.testing.assert_array_equal(model.embed(texts[1]), got[1])
            np.testing.assert_array_equal(model.embed(texts[1], prefix="the "), model.embed("the " + texts[1]))
            self.assertEqual(model.embedding.pooling, "mean")
            with self.assertRaises(tern.TernError):
                model.embed("x", prompt="nobody's")
        with tern.Model(STORIES) as words, self.assertRaises(tern.TernError) as caught:
            words.embed("x")
        self.assertEqual(caught.exception.code, "unsupported")

    def test_the_references_scores(self):
        """Seen to fail: with query and document exchanged."""
        with tern.Model(os.path.join(ORACLES, "bert_ranker")) as model:
            got = model.rerank("w h o", ["t h e f o x a n d h e n", "t"])
            np.testing.assert_allclose(got[0], golden("bert_ranker")["score"].reshape(-1)[0], atol=2e-6)
            self.assertNotEqual(got[0], got[1])
            self.assertEqual(model.embedding.n_labels, 1)

    def test_similarity(self):
        self.assertEqual(tern.similarity([3, 4], [6, 8]), 1)
        self.assertEqual(tern.similarity(np.array([3.0, 4.0]), [-4, 3]), 0)
        with self.assertRaises(tern.TernError):
            tern.similarity([1, 2], [1, 2, 3])


@needs_numpy
class Scores(unittest.TestCase):
    def test_rows_are_ranked_as_answers_are(self):
        with tern.Model(STORIES) as model, model.session() as session:
            told = model.generate("Once upon a time", max_tokens=1, temperature=0, logprobs=True, top_logprobs=3)
            told.text
            logits = session.logits(model.tokenize("Once upon a time"))
            self.assertEqual(model.rank_logprobs(logits[-1], told.ids[0], top_logprobs=3), told.logprobs[0])
            self.assertEqual(model.rank_logprobs(list(logits[-1]), told.ids[0]).top, [])
            for wrong in (lambda: model.rank_logprobs(logits, 1), lambda: model.rank_logprobs(logits[0], logits.shape[1]),
                          lambda: model.rank_logprobs(logits[0], 1, top_logprobs=-1)):
                self.assertRaises(tern.TernError, wrong)

    def test_logits_of_other_programs(self):
        want = golden("qwen3")
        ids = want["input_ids"].tolist()
        with tern.Model(os.path.join(ORACLES, "qwen3", "model.gguf")) as model, model.session(kv="f32") as session:
            first, rest = session.logits(ids[:10]), session.logits(ids[10:])
            got = np.concatenate([first, rest])
            self.assertEqual(got.shape, want["logits"].shape)
            np.testing.assert_allclose(got, want["logits"], atol=5e-4)
            self.assertEqual(session.n_tokens, len(ids))
            self.assertEqual(session.tokens, list(ids))
            # The same numbers as likelihoods, and from the graph itself.
            session.reset()
            targets = ids[1:] + [-1]
            logprobs, best = session.logprobs(ids, targets)
            rows = got.astype(np.float64)
            told = rows - np.log(np.exp(rows - rows.max(1, keepdims=True)).sum(1, keepdims=True)) - rows.max(1, keepdims=True)
            np.testing.assert_allclose(logprobs[:-1], told[np.arange(len(ids) - 1), targets[:-1]], atol=1e-5)
            self.assertEqual(best.tolist(), rows.argmax(1).tolist()[:-1] + [-1])
            self.assertEqual(logprobs[-1], 0)
            out = model.compute({"ids": np.array(ids, np.int64)})
            self.assertEqual(list(out), ["logits"])
            np.testing.assert_allclose(out["logits"], want["logits"], atol=5e-4)
            some = model.compute({"ids": ids, "outputs": [3, 5]}, ["logits"])
            np.testing.assert_allclose(some["logits"], got[[3, 5]], atol=1e-5)
            with self.assertRaises(tern.TernError):
                model.compute({"ids": np.array([2**40])})
            with self.assertRaises(tern.TernError):
                model.compute({"ids": [1]}, ["nothing"])
            with self.assertRaises(tern.TernError):
                session.logprobs(ids, ids[1:])


class WithoutNumpy(unittest.TestCase):
    def test_only_arrays_need_it(self):
        """Seen to fail: with an import of numpy at the top of _arrays.py."""
        done = python("""
import sys
sys.modules["numpy"] = None  # an import fails
import tern
with tern.Model(sys.argv[1], threads=1) as model:
    assert len(model.generate("Once", max_tokens=5).ids) == 5
    for call in (lambda: model.embed("x"), lambda: model.rerank("x", ["y"]), lambda: model.compute({"ids": [1]}),
                 lambda: model.session().logits([1]), lambda: model.session().logprobs([1], [2]), lambda: tern.similarity([1], [1])):
        try:
            call()
        except ImportError as error:
            assert "NumPy is not installed" in str(error), error
        else:
            raise SystemExit("it was found")
assert tern.eval.tasks()
""", STORIES)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

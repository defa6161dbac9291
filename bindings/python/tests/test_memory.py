"""Memory stores: what is added is found, also by the command line, and what is forgotten is gone."""
import json
import os
import shutil
import tempfile
import unittest

import tern
from common import ROOT, STORIES, has_memory, tern as command

EMBEDDER = os.path.join(ROOT, "models/embed.gguf")
RANKER = os.path.join(ROOT, "tests/oracles/bert_ranker")


@unittest.skipUnless(has_memory(), "the library was built without SQLite")
class Stores(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.path = os.path.join(self.folder, "m")

    def tearDown(self):
        shutil.rmtree(self.folder)

    def test_what_is_added_is_found(self):
        with tern.MemoryStore(self.path) as store:
            key = store.add("The spare key is under the third flowerpot.", source="garden.md",
                            metadata={"author": "Bo", "year": 2001}, created=1000)
            store.add("# Boats\n\nThe boat needs paint.\n\n# Oars\n\nThe oars are in the shed.", source="lake.md",
                      metadata={"author": "Al", "year": 1999})
            self.assertEqual((key.id, key.n_chunks, key.n_redacted, key.was_there), (1, 1, 0, False))
            hits = store.recall("where is the key?")
            self.assertEqual((hits[0].text, hits[0].source, hits[0].metadata), (
                "The spare key is under the third flowerpot.", "garden.md", {"author": "Bo", "year": 2001}))
            self.assertEqual((hits[0].created, hits[0].record, hits[0].word_rank, hits[0].vector_rank), (1000, 1, 1, None))
            self.assertIn(hits[0].text, hits.context)
            self.assertEqual(store.recall("oars", 1)[0].heading, "Boats")
            self.assertEqual(len(store.recall("the shed", where={"year": ("<", 2000), "author": "Al"}, search="words")), 1)
            self.assertEqual(len(store.recall("the", where={"source": ("begins", "gar")})), 1)
            self.assertEqual([r.source for r in store], ["garden.md", "lake.md"])
            self.assertEqual(store[1].text, "The spare key is under the third flowerpot.")
            self.assertIsNone(store.records({"author": "Bo"})[0].text)
            self.assertEqual((store.stats.n_records, store.stats.n_vectors, store.stats.model_name), (2, 0, ""))
            told = json.loads(command("memory", "recall", self.path, "the key", "--json").splitlines()[0])
            self.assertIn("flowerpot", json.dumps(told))
            with self.assertRaisesRegex(tern.TernError, "comparison"):
                store.recall("x", where={"a": ("~", 1)})

    def test_secrets_and_redaction(self):
        self.assertIn("email", str(tern.MemoryStore.rules()).lower())
        with tern.MemoryStore(self.path) as store:
            added = store.add("Write to bo@example.org about plan 9-77.", patterns=["[0-9]-[0-9]+"])
            self.assertEqual(added.n_redacted, 2)
            self.assertNotIn("example.org", store[added.id].text)
            self.assertNotIn("9-77", store[added.id].text)
            shouted = store.add("quiet words", redact=str.upper)
            self.assertEqual(store[shouted.id].text, "QUIET WORDS")
            with self.assertRaises(tern.TernError):
                store.add("no", redact=lambda text: None)
            with self.assertRaises(ZeroDivisionError):
                store.add("no", redact=lambda text: 1 / 0)
            self.assertEqual(store.stats.n_records, 2)

    def test_dump_load_forget(self):
        with tern.MemoryStore(self.path) as store:
            store.add("one", source="a", metadata={"n": 1})
            store.add("two", source="b")
            again = store.add("one", source="a", metadata={"n": 1}, replace=True)
            self.assertTrue(again.was_there)
            lines = store.dump()
            self.assertEqual([json.loads(line)["text"] for line in lines.splitlines()], ["one", "two"])
            with tern.MemoryStore(self.path + "2") as other:
                self.assertEqual(other.load(lines), 2)
                self.assertEqual(other.dump(), lines)
                self.assertEqual(other.forget(where={"n": 1}), 1)
                self.assertEqual(other.forget(2), 1)
                other.compact()
                self.assertEqual(other.stats.n_records, 0)
                with self.assertRaisesRegex(tern.TernError, "needs a record"):
                    other.forget()
                other.add("three")
                for wrong in (2**64 + 1, 2**64 + 3, -1, True):  # seen to fail: another record was deleted
                    for call in (lambda: other.forget(wrong), lambda: other[wrong]):
                        with self.assertRaisesRegex(tern.TernError, "a record"):
                            call()
        with self.assertRaises(tern.TernError):
            store.recall("x")
        with self.assertRaises(tern.TernError):
            tern.MemoryStore(self.path + "3", must_exist=True)

    def test_a_reranker_orders(self):
        with tern.Model(RANKER, threads=1) as ranker, tern.MemoryStore(self.path) as store:
            for text in ("f o x a n d h e n", "t h e f o x", "o w e"):
                store.add(text)
            self.assertIsNone(store.recall("f o x")[0].relevance)
            hits = store.recall("f o x", reranker=ranker)
            scores = [h.relevance for h in hits]
            self.assertEqual((len(hits), scores), (3, sorted(scores, reverse=True)))
            self.assertEqual(store.recall("f o x", 1, reranker=ranker)[0].text, hits[0].text)
            self.assertNotEqual(store.recall("f o x", 1)[0].text, hits[0].text)
            ranker.close()
            with self.assertRaisesRegex(tern.TernError, "closed"):
                store.recall("f o x", reranker=ranker)

    def test_vectors_of_a_model(self):
        with tern.Model(EMBEDDER, threads=1) as model, tern.Model(STORIES, threads=1, vocab_only=True) as counter:
            with tern.MemoryStore(self.path, model, counter=counter) as store:
                store.add("A dog ran after the ball in the park.")
                store.add("The king lived in a castle on the hill.")
                hits = store.recall("A puppy chased its toy", search="vectors")
                self.assertEqual([h.vector_rank for h in hits], [1, 2])
                self.assertGreater(hits[0].similarity, hits[1].similarity)
                stats = store.stats
                self.assertEqual((stats.n_vectors, stats.n_dims > 0), (2, True))
                model.close()  # the store keeps it
                store.add("Rain fell on the lake.")
                self.assertEqual(store.stats.n_vectors, 3)

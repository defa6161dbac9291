#!/usr/bin/env python3
"""Tests of the recipe: a piece of text is in one part alone, a run goes on where it stopped, and the table is of all
files. The whole is tried with a model of one layer if TERN or build/tern is there."""
import contextlib, io, json, os, random, tempfile, unittest
import ternarize

TERN = os.environ.get("TERN", os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build/tern"))


def write_texts(folder, n=1500):
    r = random.Random(1)
    words = ["".join(r.choice("aeiouklmnprst") for _ in range(r.randint(2, 7))) for _ in range(300)]
    line = lambda: " ".join(r.choice(words) for _ in range(12)).capitalize() + "."
    os.makedirs(folder + "/more")
    for name in ("one.txt", "more/two.txt"):
        with open(os.path.join(folder, name), "w") as f:
            f.write("<|endoftext|>".join("\n\n".join(line() for _ in range(4)) for _ in range(n)))


class Texts(unittest.TestCase):
    # Fails if a cut loses a byte, or begins in the middle of a paragraph that could have been whole.
    def test_long_documents_are_cut(self):
        book = "\n\n".join("%d %s" % (i, "x" * 500) for i in range(1000))
        parts = list(ternarize.pieces("short<|endoftext|>" + book, "<|endoftext|>"))
        self.assertEqual((parts[0], "".join(parts[1:])), ("short", book))
        self.assertTrue(all(len(p) <= ternarize.PIECE for p in parts))
        self.assertTrue(all(p[0].isdigit() for p in parts[1:]))
        self.assertEqual("".join(ternarize.pieces("y" * 200000, "")), "y" * 200000)

    # Fails if the part is drawn by anything but the text: the same story in two files was learnt and asked.
    def test_parts_are_apart(self):
        with tempfile.TemporaryDirectory() as work:
            write_texts(work + "/texts")
            os.link(work + "/texts/one.txt", work + "/texts/again.txt")
            a = ternarize.arguments([work + "/texts", work])
            ternarize.split_texts(a)
            of = {}
            for name in ("train", "valid"):
                for piece in ternarize.read("%s/%s.txt" % (work, name)).split("<|endoftext|>"):
                    self.assertEqual(of.setdefault(piece, name), name if piece else of[piece])
            test = ternarize.read(work + "/test.txt")
            self.assertGreater(len(test), 1000)
            self.assertFalse([p for p in of if p and p in test])
            self.assertGreater(len(of), 2800)


class Tables(unittest.TestCase):
    ROW = {"name": "healed-1", "shown": "a", "bytes": 2e6, "learnt": 12e5, "minutes": 2, "perplexity": 11, "n_scored": 9,
           "log_ratio": 0.0953102, "log_ratio_stderr": 0.01, "reference_perplexity": 10, "same_top": 0.5,
           "same_top_stderr": 0.01, "kl": {"mean": 0.1, "stderr": 0.002}}

    def test_rows(self):
        lines = list(ternarize.table_lines(None, [self.ROW, dict(self.ROW, name="healed-2", log_ratio=0)]))
        self.assertIn("| a | 2.00 | 1.2 | 2.0 | 11.000 | 1.1000 ± 0.0110 | 0.1000 ± 0.0020 | 50.00% ± 1.00% |", lines)
        self.assertIn("perplexity 1.0500 (1.0000 to 1.1000)", lines[-2])
        curve = list(ternarize.curve_lines({1: [(0, 2), (1e6, 1)], 2: [(0, 2.5)]}))
        self.assertEqual(curve[-2:], ["| 0.00 | 2.0000 | 2.5000 |", "| 1.00 | 1.0000 | - |"])

    # Fails if one file of another course is taken for this.
    def test_other_settings_are_refused(self):
        with tempfile.TemporaryDirectory() as work:
            ternarize.keep_settings(ternarize.arguments(["t", work, "--tiny"]))
            ternarize.keep_settings(ternarize.arguments(["t", work, "--tiny", "--seeds", "4"]))
            with self.assertRaisesRegex(SystemExit, "another heal: 0.2"):
                ternarize.keep_settings(ternarize.arguments(["t", work, "--tiny", "--heal", "0.3"]))


@unittest.skipUnless(os.path.exists(TERN), "needs build/tern")
class Whole(unittest.TestCase):
    # Fails if a stage is done again, if a stopped one does not go on, if a file is not in the table, or if the weights
    # of --init are not those that learn.
    def test_run(self):
        with tempfile.TemporaryDirectory() as work, contextlib.redirect_stdout(io.StringIO()) as told:
            write_texts(work + "/texts")
            command = [work + "/texts", work + "/w", "--tern", TERN, "--tiny", "--seeds", "1", "--windows", "4"]
            ternarize.main(command + ["--seconds", "0.001"])
            self.assertIn("stopped", told.getvalue())
            self.assertFalse(os.path.exists(work + "/w/table.md"))
            ternarize.main(command)
            log, made = ternarize.read(work + "/w/log/float"), os.stat(work + "/w/bitnet.gguf").st_mtime_ns
            ternarize.main(command + ["--compare", work + "/w/q2_k.gguf"])
            self.assertEqual((ternarize.read(work + "/w/log/float"), os.stat(work + "/w/bitnet.gguf").st_mtime_ns), (log, made))
            results = json.loads(ternarize.read(work + "/w/results.json"))
            names = ["bf16", "q4_k_m", "q2_k", "rounded", "healed-1", "bitnet", "q2_k_gguf"]
            self.assertEqual([r["name"] for r in results["rows"]], names)
            self.assertGreater(len(results["curves"]["1"]), 2)
            self.assertEqual(results["rows"][2]["kl"], results["rows"][-1]["kl"])
            self.assertIn("</svg>", ternarize.read(work + "/w/curve.svg"))
            other = command + ["--init", work + "/w/float.gguf"]
            with self.assertRaisesRegex(SystemExit, "another init: None"):
                ternarize.main(other)
            other[1] = work + "/other"
            for stage in ternarize.STAGES[:4] + ("bitnet",):
                ternarize.main(other + ["--stage", stage])
            learnt, begun = [[l["valid_loss"] for l in ternarize.read_log(work + name + "/float-run/log.jsonl")
                              if "valid_loss" in l] for name in ("/w", "/other")]
            self.assertAlmostEqual(begun[0], min(learnt), 5)
            self.assertTrue(os.path.exists(work + "/other/float.gguf"))
            self.assertFalse(os.path.exists(work + "/other/bitnet-run"))


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""Tests of the recipe: no request is in two files, calls are found in answers, and windows score what is said."""
import json
import tempfile
import unittest
from unittest import mock

import chats

try:
    import compare
    import windows
except ImportError:  # numpy
    compare = None


class Chats(unittest.TestCase):
    # Fails if `seen` is begun anew for a file.
    def test_requests_are_apart(self):
        with tempfile.TemporaryDirectory() as out, mock.patch("sys.argv", ["chats.py", out, "--records", "100"]):
            chats.main()
            texts = []
            for name in ("chats", "held-out", "pairs", "held-out-pairs"):
                for line in map(json.loads, open("%s/%s.jsonl" % (out, name))):
                    texts.append((line.get("messages") or line["prompt"])[0]["content"])
                    if "chosen" in line:
                        self.assertNotEqual(line["chosen"], line["rejected"])
            self.assertEqual((len(texts), len(set(texts))), (1000, 1000))
            for r in map(json.loads, open(out + "/requests.jsonl")):
                self.assertIn(r["name"], [t["function"]["name"] for t in r["tools"]])


@unittest.skipUnless(compare, "needs numpy")
class Windows(unittest.TestCase):
    # 1 begins a turn, 2 ends it, 3 is "assistant", 4 a line feed, 5 "user". Fails if the mark itself is scored.
    def test_answers_are_scored(self):
        names = {1: "<|im_start|>", 2: "<|im_end|>", 3: "assistant", 4: "\u010a", 5: "user", 9: "x", 0: "end"}
        document = windows.np.array([1, 5, 4, 9, 2, 4, 1, 3, 4, 9, 9, 2, 4, 0])
        x, y = windows.windows([document], 16, (names, 1, 2))
        self.assertEqual(x[0].tolist(), document.tolist() + [0, 0])
        self.assertEqual([i for i in range(16) if y[0, i] >= 0], [8, 9, 10])
        x, y = windows.last_answers([document], 16, (names, 1, 2))
        self.assertEqual([i for i in range(16) if y[0, i] >= 0], [8, 9, 10, 11])

    def test_order_is_a_permutation(self):
        steps = [windows.order(500, step, 20, 3) for step in range(25)]
        self.assertEqual(sorted(sum(steps, [])), list(range(500)))

    def test_calls_are_found(self):
        text = '<tool_call>\n{"name": "set_alarm", "arguments": {"time": "7:15"}}\n</tool_call>'
        right = {"name": "set_alarm", "arguments": {"time": "7:15"}}
        self.assertEqual(compare.call_in(text), right)
        self.assertIsNone(compare.call_in(text.replace("}}", "}")))
        other = dict(right, arguments={"time": "8:15"})
        self.assertEqual(compare.score([right, other, right], [right, right, None]), (2, 1))


if __name__ == "__main__":
    unittest.main()

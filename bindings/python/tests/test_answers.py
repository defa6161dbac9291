"""How answers are read: by loops, threads, event loops, people."""
import asyncio
import copy
import importlib.util
import pickle
import threading
import unittest

import tern
from common import STORIES

PROMPT, HOW = "Once upon a time", dict(seed=5, max_tokens=40)


class Reading(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = tern.Model(STORIES, threads=1)
        cls.want = cls.model.generate(PROMPT, **HOW).text

    @classmethod
    def tearDownClass(cls):
        cls.model.close()

    def test_each_loop_gets_the_whole(self):
        """Seen to fail: a loop after `text`, and a second loop, got nothing."""
        answer = self.model.generate(PROMPT, **HOW)
        first = next(answer)
        self.assertEqual(answer.text, self.want)
        pieces = list(answer)
        self.assertEqual("".join(pieces), self.want)
        self.assertEqual(list(answer), pieces)
        self.assertEqual([first, next(answer)], pieces[:2])
        for piece in answer:
            break
        self.assertEqual(piece, first)

    def test_threads(self):
        """Seen to fail: the second one never returned."""
        for kinds in (("iter", "iter"), ("text", "text"), ("iter", "text"), ("next", "iter"), ("next", "next")):
            answer, texts = self.model.generate(PROMPT, **HOW), {}

            def read(i, kind):
                texts[i] = "".join({"iter": answer, "next": iter(lambda: next(answer, None), None)}.get(kind) or answer.text)
            threads = [threading.Thread(target=read, args=pair, daemon=True) for pair in enumerate(kinds)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(300)
                self.assertFalse(thread.is_alive())
            self.assertEqual([texts[i] for i, kind in enumerate(kinds) if kind != "next"], [self.want] * (2 - kinds.count("next")))
            if kinds == ("next", "next"):  # these share the pieces
                self.assertEqual(sorted(texts[0] + texts[1]), sorted(self.want))

    def test_an_event_loop(self):
        """Seen to fail: an Answer was no asynchronous iterable. While it is awaited, other tasks run."""
        async def read(answer):
            return "".join([piece async for piece in answer])

        async def main():
            for _ in range(10):  # an answer may be over before this thread has had its turns
                answer, turns = self.model.generate(PROMPT, **HOW), 0
                task = asyncio.ensure_future(read(answer))
                while not task.done():
                    turns += 1
                    await asyncio.sleep(0)
                if turns > 3:
                    break
            self.assertGreater(turns, 3)
            both = await asyncio.gather(read(answer), read(self.model.generate(PROMPT, **HOW)))
            over = await self.model.generate(PROMPT, **HOW)
            with self.model.session() as session:
                mine = await session.generate(PROMPT, **HOW)
            with self.assertRaises(tern.TernError):
                await self.model.generate([1 << 30])
            return [task.result(), *both, over.text, mine.text]
        self.assertEqual(asyncio.run(main()), [self.want] * 5)

    @unittest.skipUnless(importlib.util.find_spec("numpy"), "NumPy is not installed")
    def test_a_task_that_is_cancelled_cancels_it(self):
        """Answers that stop after a few tokens until they are let go, so that none ends before. Seen to fail: without
        the cancel in Answer._wait_in_loop, it went on."""
        def held(gate):
            n_left = [8]

            def wait(ids, logits):
                n_left[0] -= 1
                if n_left[0] < 0:
                    gate.wait(300)
            return self.model.generate(PROMPT, seed=1, ignore_end=True, logits_processor=wait)

        async def main(wait):
            gate = threading.Event()
            answer = held(gate)
            task = asyncio.ensure_future(wait(answer))
            async for _ in answer:
                break
            self.assertFalse(answer._job.cancelled)  # a loop that is left does not
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            gate.set()
            self.assertEqual((await answer).reason, "caller")
            gate = threading.Event()
            slow = held(gate)
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(wait(slow), 0.02)
            gate.set()
            self.assertEqual((await slow).reason, "caller")

        async def all_of(answer):
            await answer

        async def each_of(answer):
            async for _ in answer:
                pass
        for wait in (all_of, each_of):
            asyncio.run(main(wait))

    def test_a_loop_may_end_before_the_answer(self):
        """Seen to fail: without the look at RuntimeError, the engine died of a loop that was closed."""
        loop = asyncio.new_event_loop()
        answer = self.model.generate(PROMPT, **HOW)
        waiting = answer._wait_in_loop(None)
        loop.call_soon(lambda: None)

        async def begin():
            waiting.send(None)
        loop.run_until_complete(begin())
        loop.close()
        self.assertEqual(answer.text, self.want)
        waiting.close()

    def test_people_see_the_text(self):
        """Seen to fail: print(answer) showed an address."""
        answer = self.model.generate(PROMPT, **HOW)
        self.assertEqual(str(answer), self.want)
        self.assertIn(repr(self.want), repr(answer))
        self.assertIn(self.want, answer._repr_html_())
        marked = self.model.generate(PROMPT, grammar=tern.Grammar(self.model, choices=["<b>&"]))
        self.assertIn("&lt;b&gt;&amp;", marked._repr_html_())
        running = self.model.generate(PROMPT, seed=1, ignore_end=True)
        self.assertIn("so far", repr(running))  # which does not wait
        running.cancel()

    def test_what_is_open_is_not_pickled(self):
        """Seen to fail: the reason was Python's, of a lock."""
        with self.model.session() as session:
            for thing in (self.model, session, self.model.generate(PROMPT, **HOW), tern.Grammar(self.model, json=True)):
                for way in (pickle.dumps, copy.deepcopy):
                    with self.assertRaisesRegex(TypeError, "send the model's path"):
                        way(thing)

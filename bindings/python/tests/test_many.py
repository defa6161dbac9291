"""Many answers, threads, interruption, and the order in which things go."""
import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import tern
from common import STORIES, TINY, python

PROMPTS = ["Once upon a time", "The fox", "A little girl named Lily", "One day", "In a forest", "There was a cat"]


class Many(unittest.TestCase):
    def setUp(self):
        self.model = tern.Model(STORIES, threads=1, parallel=4)
        self.addCleanup(self.model.close)

    def meets(self, attempt):
        """Whether it comes in time: where an answer is over first, because this thread had no turn, it is tried again."""
        for _ in range(10):
            if attempt():
                return
        self.fail("never in ten times")

    def alone(self, prompt, **options):
        with tern.Model(STORIES, threads=1) as model:
            return model.generate(prompt, **options).text

    def test_together_each_says_what_it_says_alone(self):
        options = [dict(seed=i + 1, max_tokens=30 + i) for i in range(len(PROMPTS))]
        answers = [self.model.generate(p, **o) for p, o in zip(PROMPTS, options)]  # more than run at once
        self.assertEqual([a.text for a in answers], [self.alone(p, **o) for p, o in zip(PROMPTS, options)])

    def test_steps_are_shared(self):
        """Two answers run at the same time: the second ends before the first. Seen to fail with parallel=1."""
        def attempt():
            long = self.model.generate(PROMPTS[0], seed=1, max_tokens=900, ignore_end=True)
            next(long)
            short = self.model.generate(PROMPTS[1], seed=1, max_tokens=3)
            self.assertTrue(short.text)
            first = not long._job.ended.is_set()
            long.cancel()
            return first
        self.meets(attempt)

    def test_threads(self):
        texts, want = {}, self.alone(PROMPTS[0], seed=5, max_tokens=40)

        def work(i):
            texts[i] = [self.model.generate(PROMPTS[0], seed=5, max_tokens=40).text, self.model.tokenize(PROMPTS[1])]
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
        self.assertEqual([texts[i][0] for i in range(8)], [want] * 8)

    def test_a_session_is_cancelled_from_another_thread(self):
        with self.model.session(context=4096) as session:
            ids, over = [300 + i % 1000 for i in range(4000)], threading.Event()

            def ask():
                while not over.wait(0.001):
                    session.cancel()
            thread = threading.Thread(target=ask)
            thread.start()
            with self.assertRaises(tern.TernError) as caught:
                while True:  # until it is met
                    session.reset()
                    session.sync(ids)
            over.set()
            thread.join()
            self.assertEqual(caught.exception.code, "aborted")
            self.assertLess(session.n_tokens, len(ids))
            session.sync(ids[:50])
            self.assertEqual(session.tokens, ids[:50])

    def test_cancelling_from_another_thread(self):
        """Seen to fail: without the look for cancelled jobs, and with a bare flag, for one that waits."""
        whole = self.alone(PROMPTS[0], seed=1, ignore_end=True)

        def attempt():
            answer = self.model.generate(PROMPTS[0], seed=1, ignore_end=True)
            next(answer)
            threading.Thread(target=answer.cancel).start()
            self.assertTrue(whole.startswith(answer.text))
            return (answer.reason, answer.finish_reason) == ("caller", "stop")
        self.meets(attempt)

        def attempt_to_wait():
            running = [self.model.generate(PROMPTS[0], seed=1, ignore_end=True) for _ in range(4)]
            waiting = self.model.generate(PROMPTS[0])
            waiting.cancel()
            waited = (waiting.text, waiting.reason, waiting.stats, waiting.seed) == ("", "caller", None, 0)
            first = not running[3]._job.ended.is_set()
            for each in running:
                each.cancel()
            return waited and first
        self.meets(attempt_to_wait)

    def test_cancelling_while_the_prompt_is_read(self):
        """Seen to fail: with cancellation in the text's callback alone."""
        with tern.Model(STORIES, threads=1, batch=8, cpu_features="scalar") as model:
            def attempt():
                answer = model.generate([300 + i for i in range(900)], max_tokens=3)
                while not model._engine._running and not answer._job.ended.is_set():
                    time.sleep(0.001)
                answer.cancel()
                return (answer.reason, answer.ids) == ("caller", [])
            self.meets(attempt)

    def test_leaving_cancels(self):
        with self.model.generate(PROMPTS[0], seed=1, ignore_end=True) as answer:
            next(answer)
        self.assertEqual(answer.reason, "caller")
        dropped = self.model.generate(PROMPTS[0], seed=1, ignore_end=True)
        job = dropped._job
        for _ in dropped:
            break
        del dropped
        self.assertTrue(job.ended.wait(10))
        self.assertTrue(job.cancelled)

    def test_closing_ends_what_runs(self):
        answer = self.model.generate(PROMPTS[0], ignore_end=True)
        waits = [self.model.generate(PROMPTS[0]) for _ in range(9)]
        session = self.model.session()
        next(answer)
        self.model.close()
        self.model.close()
        for each in (answer, waits[-1]):
            with self.assertRaises(tern.TernError) as caught:
                each.text
            self.assertEqual(caught.exception.code, "closed")
        for use in (lambda: self.model.generate("x"), lambda: self.model.info, lambda: session.n_tokens,
                    lambda: self.model.tokenize("x"), lambda: session.generate("x"), self.model.session):
            with self.assertRaises(tern.TernError) as caught:
                use()
            self.assertEqual(caught.exception.code, "closed")

    def test_closing_waits_for_calls(self):
        """A call in another thread goes on to its end; the model is freed then. Seen to fail (a crash) with
        the count of users left out."""
        begun, results = threading.Event(), []
        session = self.model.session()

        def work():
            try:
                results.append(tern.eval.perplexity(self.model, "a cat and a dog. " * 900, on_progress=lambda *_: begun.set()))
            except tern.TernError as error:
                results.append(error)
        thread = threading.Thread(target=work)
        thread.start()
        begun.wait(10)
        self.model.close()
        self.assertTrue(session._handle.closed)
        thread.join(300)
        self.assertIsInstance(results[0], tern.Perplexity)

    def test_everything_is_freed(self):
        """Seen to fail: with a thread that holds the model, and with a handle that frees nothing."""
        for explicit in (True, False):
            self.model.close()
            gc.collect()
            before = tern.heap().heap_now
            for _ in range(3):
                model = tern.Model(TINY, threads=1)
                session = model.session()
                answers = [model.generate([5, 6, 7], max_tokens=5), session.generate([5, 6], max_tokens=5), session.fork]
                fork = session.fork() if answers[1].text is not None else None
                thread = model._engine._thread
                if explicit:
                    with fork, session, model:
                        pass
                del model, session, fork, answers
                gc.collect()
                thread.join(300)
                self.assertFalse(thread.is_alive())
            self.assertEqual(tern.heap().heap_now, before)

    def test_sessions(self):
        with self.model.session(context=200) as session:
            want = self.alone(PROMPTS[0], seed=4, max_tokens=20)
            self.assertEqual(session.generate(PROMPTS[0], seed=4, max_tokens=20).text, want)
            again = session.generate(PROMPTS[0], seed=4, max_tokens=20)
            self.assertEqual(again.text, want)
            self.assertGreater(again.stats.n_reused, 0)
            ids = self.model.tokenize(PROMPTS[0])
            self.assertEqual(session.sync(ids), len(ids))
            self.assertEqual(session.n_tokens, len(ids))
            fork = session.fork(len(ids) - 1)
            self.assertEqual(fork.n_tokens, len(ids) - 1)
            self.assertEqual(fork.generate(ids, seed=4, max_tokens=20).text, want)
            self.assertGreater(session.bytes, 0)
            session.swap_out()
            self.assertEqual(session.generate(ids, seed=4, max_tokens=20).text, want)
            running = session.generate(PROMPTS[0], ignore_end=True, max_tokens=150)
            with self.assertRaisesRegex(tern.TernError, "answering"):
                session.sync([1])
            running.cancel()
            session.reset()  # one that was cancelled is waited for
            self.assertEqual((session.n_tokens, session.notice), (0, None))
            self.assertEqual(session.chat("A story, please.", seed=1, max_tokens=9).text,
                             self.model.chat("A story, please.", seed=1, max_tokens=9).text)
        with self.model.session(profile=True) as timed:
            timed.sync([1, 2, 3])
            self.assertGreater(sum(row.seconds for row in timed.profile()), 0)
        with self.model.session(context=64, shift=True) as shifting:
            self.assertEqual(shifting.generate(PROMPTS[0], ignore_end=True, max_tokens=100).stats.n_generated, 100)

    def test_saved_sessions(self):
        """Seen to fail with a load that keeps the timeline of the session."""
        want = self.alone(PROMPTS[0], seed=4, max_tokens=20)
        ids = self.model.tokenize(PROMPTS[0])
        with tempfile.TemporaryDirectory() as folder, self.model.session(context=200) as session:
            path = os.path.join(folder, "one.session")
            session.sync(ids)
            session.save(path)
            self.assertEqual(session.peek(path), ids)
            with self.model.session(context=200) as other:
                self.assertEqual(other.digest, session.digest)
                self.assertEqual(other.load(path), len(ids))
                answer = other.generate(ids, seed=4, max_tokens=20)
                self.assertEqual(answer.text, want)
                self.assertEqual(answer.stats.n_reused, len(ids) - 1)
                os.truncate(path, 100)
                with self.assertRaisesRegex(tern.TernError, "one.session"):
                    other.load(path)
                self.assertGreater(other.n_tokens, len(ids))

    def test_conversations_keep_their_prefixes(self):
        """Two conversations take turns: each finds its own prefix again. Seen to fail with sessions=1."""
        talks = [[{"role": "user", "content": "Tell me of a %s." % what}] for what in ("fox", "cat")]
        for _ in range(2):
            for talk in talks:
                answer = self.model.chat(talk, max_tokens=12, temperature=0)
                talk += [{"role": "assistant", "content": answer.text}, {"role": "user", "content": "And then?"}]
                if len(talk) > 3:
                    self.assertGreater(answer.stats.n_reused, 15)


INTERRUPTED = """
import sys, tern
model = tern.Model(sys.argv[1], threads=1, context=65536)
%s
"""
ANSWER = """
answer = model.generate("Once upon a time", ignore_end=True, max_tokens=60000)
try:
    for i, piece in enumerate(answer):
        if i == 3:
            print("begun", flush=True)
except KeyboardInterrupt:
    assert answer.reason == "caller", answer.reason
    print(len(model.generate("The", max_tokens=5).ids))
"""
CALL = """
print("begun", flush=True)
try:
    while True:
        tern.eval.perplexity(model, "the cat and the dog. " * 20000)
except KeyboardInterrupt:
    print("ended")
"""


class Ends(unittest.TestCase):
    def interrupt(self, code):
        # A shell's background jobs inherit an ignored SIGINT, of which Python would make no exception.
        process = subprocess.Popen([sys.executable, "-c", INTERRUPTED % code, STORIES], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "begun\n")
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=300)
        self.assertEqual((process.returncode, errors), (0, ""))
        return out.strip()

    def test_ctrl_c_ends_an_answer(self):
        """Seen to fail: without the cancel in Answer.__next__."""
        self.assertEqual(self.interrupt(ANSWER), "5")

    def test_ctrl_c_ends_a_call(self):
        """Seen to fail: with the call made in the main thread, where the exception is lost in a callback."""
        self.assertEqual(self.interrupt(CALL), "ended")

    def test_the_interpreter_may_end_at_any_time(self):
        """Seen to fail: with a thread that is no daemon, for which Python waits for ever."""
        for what in ("next(a)", "a = None", "a.me = a", "threading.Thread(target=lambda: a.text).start()"):
            done = python("import sys, threading, tern\nm = tern.Model(sys.argv[1], threads=1)\ns = m.session()\n"
                          "a = m.generate('Once', ignore_end=True, max_tokens=100)\nb = s.generate('Once', ignore_end=True)\n" + what, STORIES)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""), what)

    @unittest.skipUnless(hasattr(os, "fork"), "there is no fork")
    def test_fork_is_refused(self):
        """Seen to fail: without the look at the process, a child waits for threads that it has not."""
        done = python("import os, sys, tern\nm = tern.Model(sys.argv[1], threads=2)\nlen(m.generate('Once', max_tokens=3).text)\n"
                      "if os.fork() == 0:\n"
                      "    try: m.generate('x')\n    except tern.TernError as e: print('fork' in str(e), flush=True)\n"
                      "    m.close()\n    del m\n    os._exit(0)\nos.wait()\nprint(len(m.generate('Once', max_tokens=3).ids))", STORIES)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "True\n3\n", ""))

#!/usr/bin/env python3
"""How long running answers wait between two tokens while a long prompt is read beside them.

    bench/serve_gaps.py TERN MODEL [TOKENS [STREAMS [OPTIONS OF TERN SERVE...]]]

STREAMS (4) answers run, each from a connection of its own. Their gaps are measured alone, then from the moment at
which a prompt of TOKENS (8,000) random tokens arrives until its first token, and alone again. Printed are quantiles
of the gaps, in milliseconds and as multiples of a step without the prompt: of the median before it, and after it,
since answers that have become longer need longer steps; in between on the straight line. The machine should do
nothing else.
"""
import random
import statistics
import sys
import threading
import time

from served import Server

ALONE = 3.0  # seconds that are measured before the prompt arrives
LATE = 60  # seconds until every answer must have begun


class Stream(threading.Thread):
    """An answer that goes on until it is left."""

    def __init__(self, server, ids, n):
        super().__init__(daemon=True)
        self.connection = server.begin(ids, n, stream=True)
        self.times = []
        self.start()

    def run(self):
        answer = self.connection.getresponse()
        while line := answer.readline():
            if line.startswith(b"data: "):
                self.times.append(time.perf_counter())


def gaps(streams, begin, end):
    """(time, gap) between neighbours in time of which the later one lies in [begin, end]."""
    return [(b, b - a) for s in streams for a, b in zip(s.times, s.times[1:]) if begin <= b <= end]


def median(found):
    return statistics.median(gap for _, gap in found)


def tell(name, found, step_at):
    quantile = lambda some, q: sorted(some)[min(len(some) - 1, int(q * len(some)))]
    seconds, steps = [gap for _, gap in found], [gap / step_at(at) for at, gap in found]
    print("%-22s %6d gaps" % (name, len(found)), end="")
    for label, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("most", 1)):
        print("  %s %.1f ms (%.2f steps)" % (label, 1000 * quantile(seconds, q), quantile(steps, q)), end="")
    print()


def main():
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    tern, model = sys.argv[1:3]
    n = int(sys.argv[3]) if len(sys.argv) > 3 else 8000
    n_streams = int(sys.argv[4]) if len(sys.argv) > 4 else 4
    options = sys.argv[5:] or ["-c", str(n + 256)]
    rng = random.Random(1)
    some = lambda count: [rng.randrange(256, 1000) for _ in range(count)]
    server = Server(tern, model, options)
    server.ask(some(64))
    cold = server.ask(some(n))[0]
    # Random weights go on with what they were given, and most of their tokens have no text: letters go on as letters.
    streams = [Stream(server, [100 + i % 20] * 32, n) for i in range(n_streams)]
    late = time.perf_counter() + LATE
    while min(len(s.times) for s in streams) < 8:
        if time.perf_counter() > late:
            raise SystemExit("in %d s not every answer had 8 pieces of text" % LATE)
        time.sleep(0.01)
    began = time.perf_counter()
    time.sleep(ALONE)
    arrives = time.perf_counter()
    seconds = server.ask(some(n))[0]
    ends = time.perf_counter()
    time.sleep(ALONE)
    before, beside, after = (gaps(streams, began, arrives), gaps(streams, arrives, ends),
                             gaps(streams, ends + 0.1, time.perf_counter()))
    if any(not s.is_alive() for s in streams) or not before or not beside or not after:
        raise SystemExit("the answers ended before the prompt was read: more context (-c) is needed")
    first, last = median(before), median(after)
    step_at = lambda at: first + (last - first) * min(1, max(0, (at - arrives) / (ends - arrives)))
    print("%d answers, a prompt of %d tokens: read in %.2f s beside them, %.2f s alone" %
          (n_streams, n, seconds, cold))
    tell("alone, before", before, step_at)
    tell("while it is read", beside, step_at)
    tell("alone, after", after, step_at)
    server.process.kill()


main()

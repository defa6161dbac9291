#!/usr/bin/env python3
"""How soon a request starts whose prefix the server has computed before: in memory, and on disk after a restart.

    bench/serve_prefix_cache.py TERN MODEL [TOKENS [ROUNDS [OPTIONS OF TERN SERVE...]]]

Each round asks about a prefix of its own (4,000 random tokens unless told otherwise), then again with another
last token, then once more after a restart. Printed are medians: the times to the first token, what a step takes,
and the second and third time as shares of the first, less one step. The machine should do nothing else.
"""
import os
import random
import statistics
import sys
import tempfile

from served import Server

N_STEPS = 16


def main():
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    tern, model = sys.argv[1:3]
    n = int(sys.argv[3]) if len(sys.argv) > 3 else 4000
    n_rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 3
    options = sys.argv[5:] or ["-c", str(n + 256)]
    rng = random.Random(1)
    prefixes = [[rng.randrange(256, 1000) for _ in range(n)] for _ in range(n_rounds)]
    cold, warm, late, steps = [], [], [], []
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", ".")) as folder:
        server = Server(tern, model, ["--cache-dir", folder, "--cache-memory", "8G", *options])
        server.ask(prefixes[0][:64])  # what is done once
        for prefix in prefixes:
            for times, last in ((cold, 300), (warm, 301)):
                seconds, cached = server.ask(prefix + [last])
                times.append(seconds)
                if times is warm and cached < n:
                    raise SystemExit("only %d of %d tokens were found" % (cached, n))
            few, many = server.ask(prefix + [302])[0], server.ask(prefix + [302], 1 + N_STEPS)[0]
            steps.append((many - few) / N_STEPS)
        server.stop()
        size = sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder))
        server = Server(tern, model, ["--cache-dir", folder, "--cache-memory", "8G", *options])
        server.ask(prefixes[0][:64][::-1])
        for prefix in prefixes:
            seconds, cached = server.ask(prefix + [303])
            late.append(seconds)
            if cached < n:
                raise SystemExit("only %d of %d tokens were found after the restart" % (cached, n))
        server.stop()
    step = statistics.median(steps)
    first = statistics.median(cold)
    print("%d tokens, %d rounds, load %.1f, %.0f MB on disk" % (n, n_rounds, os.getloadavg()[0], size / 1e6))
    print("cold      %9.4f s   (%.0f tokens/s), a step %.4f s" % (first, n / first, step))
    for name, times in (("again", warm), ("restarted", late)):
        seconds = statistics.median(times)
        print("%-9s %9.4f s   %.2f%% of that, %.2f%% without a step" %
              (name, seconds, 100 * seconds / first, 100 * (seconds - step) / first))


main()

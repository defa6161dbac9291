"""A server for a benchmark: started, asked and stopped."""
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/serve"))
from process_log import ProcessLog


class Server:
    def __init__(self, tern, model, options):
        self.log = ProcessLog()
        self.process = subprocess.Popen([tern, "serve", model, "--port", "0", "--no-page", *options],
                                        stderr=self.log)
        while True:
            found = re.search(r"listening \S*?:(\d+) ", self.log.read())
            if found:
                break
            if self.process.poll() is not None:
                raise SystemExit(self.log.read())
            time.sleep(0.02)
        self.port = int(found[1])

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def begin(self, ids, n, **more):
        """A connection that is answered by n tokens after these."""
        body = json.dumps({"prompt": ids, "n_predict": n, "temperature": 0, "ignore_eos": True, **more})
        c = http.client.HTTPConnection("127.0.0.1", self.port)
        c.connect()
        c.request("POST", "/completion", body)
        return c

    def ask(self, ids, n=1):
        """Seconds until there are n tokens, and how many of the prompt were not computed again."""
        began = time.perf_counter()
        c = self.begin(ids, n)
        text = c.getresponse().read().decode()
        seconds = time.perf_counter() - began
        c.close()
        found = re.search(r'"cache_n":(\d+)', text)
        if not found:
            raise SystemExit(text)
        return seconds, int(found[1])

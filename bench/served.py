"""A server for a benchmark: started, asked and stopped."""
import http.client
import json
import re
import signal
import subprocess
import tempfile
import time


class Server:
    def __init__(self, tern, model, options):
        self.log = tempfile.TemporaryFile("a+")  # appended to: reading moves the offset that both processes share
        self.process = subprocess.Popen([tern, "serve", model, "--port", "0", "--no-page", *options],
                                        stderr=self.log)
        while True:
            self.log.seek(0)
            found = re.search(r"listening \S*?:(\d+) ", self.log.read())
            if found:
                break
            if self.process.poll() is not None:
                self.log.seek(0)
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

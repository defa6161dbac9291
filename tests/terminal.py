"""A program on a terminal, for tests that type."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time


class Terminal:
    """words: the program and its arguments. columns 0: a window of unknown size. early: typed before it begins."""

    def __init__(self, words, columns=80, rows=24, stdin=None, env=None, early=b""):
        self.bytes = b""  # what it has shown
        begin, go = os.pipe()
        self.child, self.fd = pty.fork()
        if self.child == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # which processes in the background may not hear of
            os.read(begin, 1)  # until the window has its size, and what is early was typed
            if stdin is not None:
                os.dup2(stdin, 0)
            os.environ.update(env or {})
            os.execv(words[0], words)
        if columns:
            self.resize(columns, rows)
        self.type(early)
        os.write(go, b"!")
        os.close(begin), os.close(go)

    def resize(self, columns, rows=24):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    @property
    def text(self):
        return self.bytes.decode("utf-8", "replace").replace("\r\n", "\n")

    def _read(self, end):
        """More of what it shows. False: it has ended, or it is too late."""
        left = end - time.monotonic()
        if left <= 0 or not select.select([self.fd], [], [], left)[0]:
            return False
        try:
            more = os.read(self.fd, 65536)
        except OSError:  # it has ended
            return False
        self.bytes += more
        return bool(more)

    def read_until(self, pattern, seconds=120):
        end = time.monotonic() + seconds
        while not re.search(pattern, self.text) and self._read(end):
            pass
        return re.search(pattern, self.text)

    def type(self, keys):
        if keys:
            os.write(self.fd, keys if isinstance(keys, bytes) else keys.encode())

    def answer(self, prompt, answers, seconds=120):
        """Types each of these when there is one more match of prompt, which is bytes."""
        asked, end = 0, time.monotonic() + seconds
        for keys in answers:
            while len(re.findall(prompt, self.bytes)) <= asked:
                if not self._read(end):
                    return
            asked = len(re.findall(prompt, self.bytes))
            self.type(keys)

    def end(self, seconds=120):
        """Its exit status; it must end by itself."""
        end = time.monotonic() + seconds
        while self._read(end):
            pass
        if time.monotonic() >= end:
            os.kill(self.child, signal.SIGKILL)
        status = os.waitpid(self.child, 0)[1]
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)

#!/usr/bin/env python3
"""What tern serve tells a service manager, spoken to as systemd does; and the unit that is installed, as
systemd itself judges it.

    tests/systemd_test.py TERN
"""
import atexit
import contextlib
import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "serve"))
from process_log import ProcessLog

os.environ["TERN_DEVICE"] = "cpu"  # also on machines with a GPU
TERN = os.path.abspath(sys.argv[1])
MODEL = "models/stories.gguf"
UNIT = "apps/serve/systemd/tern@.service"
PATIENCE = 300  # seconds after which something will never come
failures = 0


def check(ok, *what):
    global failures
    if not ok:
        failures += 1
        print("systemd:", *(str(w)[:600] for w in what))


class Manager:
    """A server and the socket to which it tells how it is."""

    def __init__(self, name, *options, **variables):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(name.replace("@", "\0", 1))
        self.socket.settimeout(PATIENCE)
        self.log = ProcessLog()
        env = dict(os.environ, NOTIFY_SOCKET=name, **variables)
        self.process = subprocess.Popen([TERN, "serve", MODEL, "-t", "1", "--port", "0", *options], env=env, stderr=self.log)
        atexit.register(self.process.kill)

    def told(self):
        """The next message, as a dictionary."""
        return dict(line.split("=", 1) for line in self.socket.recv(4096).decode().split("\n"))

    def port(self):
        return int(re.search(r"listening \S*?(\d+) model=", self.log.read())[1])


def serve_until_it_logs(words, *options, **variables):
    """Serves until the words are in the log, and then until SIGTERM: (exit status, log)."""
    log = ProcessLog()
    process = subprocess.Popen([TERN, "serve", *options], env=dict(os.environ, **variables), stderr=log)
    atexit.register(process.kill)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None and words not in log.read():
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    return process.wait(PATIENCE), log.read()


def test_it_says_when_it_is_ready_and_when_it_stops(folder):
    # Seen to fail: with READY before loop_listen, where there is no port yet; with the 0 after a path left out
    # of one name and put into the other; with the time of lame ducks left out.
    for name in (os.path.join(folder, "notify"), "@tern-test-%d" % os.getpid()):
        m = Manager(name, "--drain", "7", "--lame-duck", "2")
        check(m.told() == {"READY": "1", "STATUS": "1 model"}, "at first")
        c = http.client.HTTPConnection("127.0.0.1", m.port(), timeout=PATIENCE)
        c.request("GET", "/health")
        check(c.getresponse().status == 200, "it is ready, and does not answer")
        m.process.send_signal(signal.SIGTERM)
        for seconds in (2 + 7 + 60, 7 + 60, 60):  # of a lame duck; of what runs; of what is written
            told = m.told()
            check(told["STOPPING"] == "1" and told["EXTEND_TIMEOUT_USEC"] == str(seconds * 10**6), seconds, told)
        check(m.process.wait(PATIENCE) == 0, "exit status", m.process.returncode)
        m.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            check(False, "and then", m.told())


def test_it_says_that_it_is_alive(folder):
    # Seen to fail: with a message at the beginning only; with the number of the process not looked at.
    start = time.monotonic()
    m = Manager(os.path.join(folder, "alive"), WATCHDOG_USEC="2000000")
    m.told()
    for _ in range(3):
        check(m.told() == {"WATCHDOG": "1"}, "no sign of life")
    check(time.monotonic() - start > 1.5, "three of them in", time.monotonic() - start)
    m.process.send_signal(signal.SIGTERM)
    while "STOPPING" not in m.told():
        pass
    check(m.process.wait(PATIENCE) == 0, "exit status")
    m = Manager(os.path.join(folder, "others"), WATCHDOG_USEC="1000000", WATCHDOG_PID="1")
    m.told()
    time.sleep(2.2)
    m.process.send_signal(signal.SIGTERM)
    check("STOPPING" in m.told(), "it was not meant, and told that it is alive")
    m.process.wait(PATIENCE)


def test_who_does_not_listen_is_no_trouble(folder):
    # Nor is a name that is none.
    for name in (os.path.join(folder, "nobody"), "no socket", "/" + "x" * 200):
        code, log = serve_until_it_logs("notify error=", MODEL, "-t", "1", "--port", "0", NOTIFY_SOCKET=name)
        check(code == 0 and name in log, name, code, log)


def test_systemd_takes_the_unit(folder):
    # Seen to fail: with a setting misspelt; without CapabilityBoundingSet, which leaves it at 3.0 of 10.
    if not shutil.which("systemd-analyze"):
        print("systemd: the unit is not looked at: there is no systemd-analyze")
        return
    prefix = os.path.join(folder, "a prefix")
    os.makedirs(prefix + "/bin")
    shutil.copy(TERN, prefix + "/bin/tern")
    path = os.path.join(folder, "tern@8080.service")
    with open(UNIT) as unit, open(path, "w") as out:
        out.write(unit.read().replace("@PREFIX@", prefix))
    run = lambda *a: subprocess.run(["systemd-analyze", *a], capture_output=True, text=True)
    out = run("verify", "--man=no", path)
    check(out.returncode == 0 and not out.stderr, out.stderr)
    out = run("security", "--offline=yes", "--threshold=13", path)  # in tenths
    if "unrecognized option" in out.stderr:
        print("systemd: how safe the unit is was not asked: systemd is older than 250")
        return
    check(out.returncode == 0, out.stdout[-200:], out.stderr)


def test_its_options_are_the_servers(folder):
    # Seen to fail: with an option that the server has not.
    command = re.search(r'^ExecStart="@PREFIX@/bin/tern" serve (.*)$', open(UNIT).read(), re.M)[1]
    models, cache = os.path.join(folder, "models"), os.path.join(folder, "cache")
    os.mkdir(models)
    shutil.copy(MODEL, models)
    command = command.replace("%i", "0").replace("%C", cache).replace("$TERN_OPTIONS", "--drain 3").split()
    os.makedirs(cache + "/tern")
    code, log = serve_until_it_logs("listening", *command, TERN_MODELS=models)
    check(code == 0 and "models=1" in log, code, log)


def main():
    probe = subprocess.run([TERN, "serve", "no-such-model"], capture_output=True, text=True)
    if "without libevent" in probe.stderr:
        print("systemd: skipped: built without libevent")
        return 0
    tests = [f for name, f in sorted(globals().items()) if name.startswith("test_")]
    with tempfile.TemporaryDirectory() as folder:
        for test in tests:
            before = failures
            try:
                test(folder)
            except Exception as e:  # what a test did not expect is its failure, and no end of the others
                check(False, repr(e))
            if failures > before:
                print("FAILED  ", test.__name__)
    print("systemd: %d tests, %d checks failed" % (len(tests), failures))
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Restarts the servers behind haproxy.cfg one after the other, and loses no request.

    restart.py ADMIN_SOCKET SERVER=COMMAND...

    restart.py /run/tern/haproxy.sock "a=systemctl restart tern@8081" "b=systemctl restart tern@8082"

Each server gets nothing new, is waited for until it has said what it was asked for, is restarted by its
COMMAND, and gets requests again when it answers GET /health. What goes wrong ends it with one line: the
other servers are left as they are.
"""
import csv
import io
import socket
import subprocess
import sys
import time

PATIENCE = 600  # seconds for answers to come to their end, and for a model to be read


def say(admin, command):
    """What HAProxy answers to a line."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(10)
        s.connect(admin)
        s.sendall(command.encode() + b"\n")
        s.shutdown(socket.SHUT_WR)
        got = b""
        while True:
            more = s.recv(65536)
            if not more:
                return got.decode().strip()
            got += more


def state(admin, name):
    """Its row of the statistics."""
    rows = csv.DictReader(io.StringIO(say(admin, "show stat").lstrip("# ")))
    found = [row for row in rows if row["pxname"] == "servers" and row["svname"] == name]
    if not found:
        raise SystemExit("restart: HAProxy has no server %s" % name)
    return found[0]


def wait(what, admin, name, holds):
    end = time.time() + PATIENCE
    while not holds(state(admin, name)):
        if time.time() > end:
            raise SystemExit("restart: %s: %s after %d seconds" % (name, what, PATIENCE))
        time.sleep(0.1)


def restart(admin, name, command):
    said = say(admin, "set server servers/%s state drain" % name)
    if said:
        raise SystemExit("restart: %s: %s" % (name, said))
    try:
        wait("still answering", admin, name, lambda row: row["scur"] == "0" and row["qcur"] == "0")
        subprocess.run(command, shell=True, check=True)
        time.sleep(2)  # a check or two: what is seen from here on is the new one
        wait("not healthy", admin, name, lambda row: row["check_status"] == "L7OK")
    except subprocess.CalledProcessError as error:
        raise SystemExit("restart: %s: %s" % (name, error))
    finally:
        say(admin, "set server servers/%s state ready" % name)
    wait("not up", admin, name, lambda row: row["status"].startswith("UP"))
    print("restart: %s is back" % name, flush=True)


def main():
    if len(sys.argv) < 3 or not all("=" in each for each in sys.argv[2:]):
        raise SystemExit(__doc__.split("\n\n")[1].strip())
    for each in sys.argv[2:]:
        name, command = each.split("=", 1)
        restart(sys.argv[1], name, command)


if __name__ == "__main__":
    main()

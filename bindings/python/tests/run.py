#!/usr/bin/env python3
"""The package's tests, on what `make python` assembled.

    run.py BUILD CC [NAME...]     those whose names contain one of the NAMEs

Says what is skipped, and why. Needs nothing but Python and the compiler; NumPy and mypy where they are.
"""
import os
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD, CC = os.path.abspath(sys.argv[1]), sys.argv[2]
sys.path[:0] = [os.path.join(BUILD, "python"), HERE]
os.environ.update(TERN_PYTHON_BUILD=BUILD, TERN_PYTHON_CC=CC, PYTHONDONTWRITEBYTECODE="1",
                  PYTHONPATH=os.path.join(BUILD, "python"))
sys.dont_write_bytecode = True


def named(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from named(test)
        elif not sys.argv[3:] or any(name in test.id() for name in sys.argv[3:]):
            yield test


class Timed(unittest.TextTestResult):
    def startTest(self, test):
        super().startTest(test)
        self.begun = time.time()

    def stopTest(self, test):
        super().stopTest(test)
        if os.environ.get("TERN_TEST_TIMES"):
            print("%6.2f s  %s" % (time.time() - self.begun, test.id()), flush=True)


def main():
    tests = unittest.TestSuite(named(unittest.defaultTestLoader.discover(HERE, pattern="test_*.py")))
    result = unittest.TextTestRunner(verbosity=0, stream=sys.stdout, resultclass=Timed).run(tests)
    for why in sorted({why for _, why in result.skipped}):
        print("python: skipped:", sum(1 for _, w in result.skipped if w == why), "tests:", why)
    print("python: %d tests, %d failed" % (result.testsRun, len(result.failures) + len(result.errors)))
    return not result.wasSuccessful() or result.testsRun == 0


sys.exit(main())

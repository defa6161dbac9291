"""What the tests share."""
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

os.environ["TERN_DEVICE"] = "cpu"  # also on machines with a GPU
BUILD, CC = os.environ["TERN_PYTHON_BUILD"], os.environ["TERN_PYTHON_CC"]
ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
TERN = os.path.join(BUILD, "tern")
STORIES = os.path.join(ROOT, "models/stories.gguf")
TINY = os.path.join(BUILD, "tiny.gguf")
PARROT = os.path.join(ROOT, "tests/parrot.py")
ORACLES = os.path.join(ROOT, "tests/oracles")

needs_numpy = unittest.skipUnless(importlib.util.find_spec("numpy"), "numpy is not installed")


def tern(*args, **kw):
    """What the command line prints."""
    return subprocess.run([TERN, *args], check=True, capture_output=True, text=True, **kw).stdout


def python(code, *args, **kw):
    """Another interpreter, with the package."""
    return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=300, **kw)


def has_memory():
    """Whether the library was built with SQLite."""
    import tern as package
    folder = tempfile.mkdtemp()
    try:
        package.MemoryStore(os.path.join(folder, "m")).close()
        return True
    except package.TernError as error:
        return error.code != "unsupported"
    finally:
        shutil.rmtree(folder)

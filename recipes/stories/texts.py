"""Reads the recipe's own texts, the files in text/, in which a line that begins with # is a comment."""
import os

HERE = os.path.dirname(os.path.abspath(__file__))


def read_lines(name):
    """The lines that say something."""
    with open(f"{HERE}/text/{name}", encoding="utf-8") as file:
        return [line.strip() for line in file if not line.startswith("#") and line.strip()]


def read_parts(name):
    """What empty lines divide: [the lines of a part]."""
    with open(f"{HERE}/text/{name}", encoding="utf-8") as file:
        text = "\n".join(line for line in file.read().split("\n") if not line.startswith("#"))
    return [part.strip().split("\n") for part in text.strip().split("\n\n")]

"""Answers taken apart: text, reasoning, tool calls."""
from __future__ import annotations

import ctypes
import json
from dataclasses import dataclass
from typing import Iterable, Iterator, List, Optional

from . import _c as c
from ._library import Handle, lib, text_member, utf8
from ._messages import Tools

KINDS = {c.TERN_PART_TEXT: "text", c.TERN_PART_REASONING: "reasoning", c.TERN_PART_CALL: "call",
         c.TERN_PART_ARGUMENTS: "arguments", c.TERN_PART_CALL_END: "call_end"}


@dataclass(frozen=True)
class Part:
    """A part of an answer.

    kind  "text", "reasoning"; "call": a tool call, text is the tool's name; "arguments": a piece of its
          arguments, which together are a JSON object; "call_end". A call that was cut off has no end.
    call  index of the call, from 0
    """

    kind: str
    text: str
    call: int


class Splitter:
    """Takes an answer apart as it arrives."""

    def __init__(self, model: Handle, prompt: Optional[str], tools: Optional[Tools]) -> None:
        raw = json.dumps(list(tools)).encode() if tools else None
        out = ctypes.POINTER(c.tern_answer)()
        with model as opened:
            lib.tern_answer_open(ctypes.byref(out), opened, None if prompt is None else utf8(prompt), raw)
        self._handle = Handle(out, lib.tern_answer_close, model)
        self._found = found = []  # type: List[Part]

        def on_part(_user: object, part: "ctypes._Pointer[c.tern_part]") -> None:
            p = part.contents
            found.append(Part(KINDS[p.kind], text_member(p, "text", p.n_bytes), p.call))
        self._on_part = c.tern_part_fn(on_part)

    def put(self, piece: str) -> List[Part]:
        raw = piece.encode("utf-8", "surrogatepass")
        with self._handle as answer:
            lib.tern_answer_put(answer, raw, len(raw), self._on_part, None)
        return self._taken()

    def end(self) -> List[Part]:
        with self._handle as answer:
            lib.tern_answer_end(answer, self._on_part, None)
        return self._taken()

    def _taken(self) -> List[Part]:
        parts = list(self._found)
        self._found.clear()
        return parts


def parts_of(splitter: Splitter, pieces: Iterable[str]) -> Iterator[Part]:
    for piece in pieces:
        yield from splitter.put(piece)
    yield from splitter.end()

"""Answers taken apart: text, reasoning, tool calls."""
from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Iterable, Iterator, List, Optional

from . import _c as c
from ._library import Handle, lib

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


def parts_of(model: Handle, pieces: Iterable[str], prompt: Optional[bytes], tools: Optional[bytes]) -> Iterator[Part]:
    found: List[Part] = []

    def on_part(_user: object, part: "ctypes._Pointer[c.tern_part]") -> None:
        p = part.contents
        text = ctypes.string_at(p.text or b"", p.n_bytes).decode("utf-8", "replace") if p.n_bytes else ""
        found.append(Part(KINDS[p.kind], text, p.call))
    callback = c.tern_part_fn(on_part)
    out = ctypes.POINTER(c.tern_answer)()
    with model as opened:
        lib.tern_answer_open(ctypes.byref(out), opened, prompt, tools)
    handle = Handle(out, lib.tern_answer_close, model)
    try:
        for piece in pieces:
            raw = piece.encode("utf-8", "surrogatepass")
            with handle as answer:
                lib.tern_answer_put(answer, raw, len(raw), callback, None)
            yield from found
            found.clear()
        with handle as answer:
            lib.tern_answer_end(answer, callback, None)
        yield from found
    finally:
        handle.close()

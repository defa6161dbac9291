"""Constrained answers."""
from __future__ import annotations

import ctypes
import json
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, TYPE_CHECKING, Union

from . import _c as c
from ._library import Handle, lib, refuse, utf8

if TYPE_CHECKING:
    from ._model import Model

KINDS = {"schema": c.TERN_GRAMMAR_JSON_SCHEMA, "regex": c.TERN_GRAMMAR_REGEX, "gbnf": c.TERN_GRAMMAR_GBNF,
         "lark": c.TERN_GRAMMAR_LARK, "choices": c.TERN_GRAMMAR_CHOICES, "json": c.TERN_GRAMMAR_JSON,
         "tools": c.TERN_GRAMMAR_CALLS}


def grammar_desc(*, compact: bool = False, **given: Any) -> c.tern_grammar_desc:
    """For the one argument that is given, under Grammar's names."""
    named = [name for name, value in given.items() if value is not None]
    if len(named) != 1 or named[0] not in KINDS:
        refuse("a grammar needs one of schema, regex, gbnf, lark, choices, tools and json=True")
    value, desc = given[named[0]], c.tern_grammar_desc(kind=KINDS[named[0]], compact=bool(compact))
    if named[0] == "choices":
        texts = [utf8(text) for text in value]
        desc.choices, desc.n_choices = (ctypes.c_char_p * len(texts))(*texts), len(texts)
    elif named[0] != "json":
        desc.text = utf8(value if isinstance(value, str) else _dumps(value))
    return desc


def grammar_arguments(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Grammar's arguments from a dict: as it stands if it names a kind, else it is a JSON Schema itself."""
    return given if set(given) & set(KINDS) else {"schema": given}


def choice_arguments(tool_choice: Any) -> Dict[str, Any]:
    """Grammar's arguments for OpenAI's tool_choice: "required", or the function that must be called."""
    if tool_choice == "required":
        return {}
    named = tool_choice.get("function", tool_choice) if isinstance(tool_choice, Mapping) else {}
    if not isinstance(named, Mapping) or not isinstance(named.get("name"), str):
        refuse('tool_choice is "auto", "none", "required" or {"function": {"name": ...}}, not %r' % (tool_choice,))
    return {"tool": named["name"], "one_call": True}


class Grammar:
    """Constrains answers of a model: generate(..., grammar=...). Any number of answers may use one.

    One of: schema (a JSON Schema, as a dict or JSON text; answers have its order of properties), regex, gbnf,
    lark (rules), choices (texts), json=True (any JSON), tools (calls of them in the model's format: only of
    `tool`, at most one, or optional). compact: JSON without whitespace. prompt: the end of the conversation's
    text before the answer: the model may then reason first. What is not supported is refused by name:
    docs/grammar.md.

    >>> grammar = tern.Grammar(model, schema={"type": "object", "properties": {"age": {"type": "integer"}}})
    >>> json.loads(model.generate("Bo: ", grammar=grammar).text)
    """

    def __init__(self, model: "Model", *, schema: Union[Mapping[str, Any], bool, str, None] = None,
                 regex: Optional[str] = None, gbnf: Optional[str] = None, lark: Optional[str] = None,
                 choices: Optional[Sequence[str]] = None, json: bool = False, compact: bool = False,
                 prompt: Optional[str] = None, tools: Union[Sequence[Mapping[str, Any]], str, None] = None,
                 tool: Optional[str] = None, one_call: bool = False, optional: bool = False) -> None:
        desc = grammar_desc(compact=compact, schema=schema, regex=regex, gbnf=gbnf, lark=lark, choices=choices,
                            json=True if json else None, tools=tools)
        desc.one_call, desc.is_optional = bool(one_call), bool(optional)
        if tool is not None:
            desc.tool = utf8(tool)
        if prompt is not None:
            desc.prompt = utf8(prompt)
        out = ctypes.POINTER(c.tern_grammar)()
        with model._handle as pointer:
            lib.tern_grammar_open(ctypes.byref(out), pointer, ctypes.byref(desc))
        self._n_vocab = model.info.n_vocab
        self._handle = Handle(out, lib.tern_grammar_close, model._handle)

    def check(self, text: str) -> Tuple[int, bool]:
        """How many bytes of the text (in UTF-8) are a prefix of some accepted text, and whether all of it is
        accepted."""
        raw, possible, accepted = utf8(text), ctypes.c_size_t(), ctypes.c_bool()
        with self._handle as grammar:
            lib.tern_grammar_check(grammar, raw, len(raw), ctypes.byref(possible), ctypes.byref(accepted))
        return possible.value, accepted.value

    def allowed(self, text: str = "") -> List[int]:
        """The tokens that may follow a text; end tokens are among them where it may end."""
        raw, n = utf8(text), (self._n_vocab + 63) // 64
        bits = (ctypes.c_uint64 * n)()
        with self._handle as grammar:
            lib.tern_grammar_mask(grammar, raw, len(raw), bits, n)
        return [64 * i + k for i, word in enumerate(bits) if word for k in range(64) if word >> k & 1]

    def close(self) -> None:
        """Frees it once the last answer that uses it is over."""
        self._handle.close()

    def __enter__(self) -> "Grammar":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _dumps(schema: Any) -> str:
    try:
        return json.dumps(schema)
    except (TypeError, ValueError) as error:
        refuse("the schema is no JSON: %s" % error)

"""What a model's file says about itself."""
from __future__ import annotations

import ctypes
from typing import Any, Iterator, List, Mapping, Union

from . import _c as c
from ._library import Handle, decoded, lib, text_member, utf8

Value = Union[str, int, float, bool, List[Any]]


class Metadata(Mapping[str, Any]):
    """The keys of a GGUF, or of a folder's config.json (nested ones joined by points), with their values: str, int,
    float, bool, or a list of these. Lists are read when they are asked for; a vocabulary is long.

    >>> model.metadata["general.name"], model.metadata.get("llama.rope.freq_base")
    """

    def __init__(self, model: Handle) -> None:
        self._model = model

    def __getitem__(self, key: str) -> Value:
        found, name = c.tern_metadata(), utf8(key)
        with self._model as model:
            if not lib.tern_model_metadata(model, name, ctypes.byref(found)):
                raise KeyError(key)
            if found.kind != c.TERN_METADATA_ARRAY:
                return _value(found)
            values: List[Any] = []
            for i in range(found.n):
                item = c.tern_metadata()
                values.append(_value(item) if lib.tern_model_metadata_element(model, name, i, ctypes.byref(item)) else None)
            return values

    def __iter__(self) -> Iterator[str]:
        found = c.tern_metadata()
        for i in range(len(self)):
            with self._model as model:
                lib.tern_model_metadata_at(model, i, ctypes.byref(found))
                key = decoded(found.key)
            yield key

    def __len__(self) -> int:
        with self._model as model:
            return int(lib.tern_model_n_metadata(model))

    def __repr__(self) -> str:
        return "<tern.Metadata of %d keys>" % len(self)


def _value(found: c.tern_metadata) -> Value:
    if found.kind == c.TERN_METADATA_STRING:
        return text_member(found, "text", found.n)
    if found.kind == c.TERN_METADATA_BOOL:
        return bool(found.integer)
    return found.integer if found.kind == c.TERN_METADATA_INT else found.number

"""Tables of chains for speculation."""
from __future__ import annotations

import ctypes
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from . import _c as c
from ._library import Handle, Path, encoded, ids_array, lib, refuse
from ._options import whole


class Chain(NamedTuple):
    """A short run of tokens that often follow one another."""

    tokens: Tuple[int, ...]
    confidence: float  # mean probability of the tokens after the first
    chances: Optional[Tuple[int, ...]] = None  # of each token given those before it, in 255ths


class Chains:
    """A table of chains, from a file or from entries. It never changes: any thread may use it.

    >>> with tern.Chains("chain-buckets.bin") as chains: ...
    """

    def __init__(self, path: Optional[Path] = None, *, entries: Optional[Sequence[Chain]] = None) -> None:
        if (path is None) == (entries is None):
            refuse("Chains needs a path or entries")
        out = ctypes.POINTER(c.tern_chains)()
        if path is not None:
            lib.tern_chains_open(ctypes.byref(out), encoded(path))
        else:
            array = _entries_array(entries or ())
            lib.tern_chains_create(ctypes.byref(out), array, len(array))
        self._handle = Handle(out, lib.tern_chains_close)

    @classmethod
    def _of(cls, pointer: Any) -> "Chains":
        self = cls.__new__(cls)
        self._handle = Handle(pointer, lib.tern_chains_close)
        return self

    @property
    def version(self) -> int:
        with self._handle as chains:
            return int(lib.tern_chains_version(chains))

    def entries(self) -> List[Chain]:
        """All buckets, including empty ones."""
        n = ctypes.c_size_t()
        with self._handle as chains:
            rows = lib.tern_chains_entries(chains, ctypes.byref(n))
            return [Chain(tuple(rows[i].tokens[:rows[i].n_tokens]), rows[i].confidence,
                          tuple(rows[i].chances[:rows[i].n_tokens]) if rows[i].chances else None)
                    for i in range(n.value)]

    def save(self, path: Path) -> None:
        with self._handle as chains:
            lib.tern_chains_save(chains, encoded(path))

    def close(self) -> None:
        """Frees it once the last session that drafts from it is closed."""
        self._handle.close()

    def __enter__(self) -> "Chains":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _entries_array(entries: Sequence[Chain]) -> Any:
    """tern_chain[n]. Arrays assigned to members live as long as it does."""
    array = (c.tern_chain * len(entries))()
    for i, (tokens, confidence, chances) in enumerate(entries):
        if chances is not None and len(chances) != len(tokens):
            refuse("a chain of %d tokens has %d chances" % (len(tokens), len(chances)))
        array[i].tokens, array[i].n_tokens, array[i].confidence = ids_array(tokens), len(tokens), confidence
        if chances is not None:
            array[i].chances = (ctypes.c_uint8 * len(chances))(*[whole("a chance", chance, 0, 255) for chance in chances])
    return array

"""Memory: a store of texts that are found by what they say."""
from __future__ import annotations

import contextlib
import ctypes
import json
import os
import threading
from typing import Any, Callable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from . import _c as c
from ._callbacks import OnProgress
from ._library import Callbacks, Handle, Path, choice, decoded, encoded, lib, optional, refuse, text_of, utf8
from ._model import Model
from ._options import real, whole
from ._results import MemoryAdded, MemoryHit, MemoryHits, MemoryRecord, MemoryStats

FORMATS = tuple((name, getattr(c, "TERN_MEMORY_" + name.upper())) for name in ("auto", "text", "markdown", "code"))
SEARCHES = tuple((name, getattr(c, "TERN_MEMORY_" + name.upper())) for name in ("hybrid", "vectors", "words"))
COMPARISONS = (("=", c.TERN_MEMORY_EQUAL), ("!=", c.TERN_MEMORY_NOT_EQUAL), ("<", c.TERN_MEMORY_LESS),
               ("<=", c.TERN_MEMORY_LESS_EQUAL), (">", c.TERN_MEMORY_GREATER), (">=", c.TERN_MEMORY_GREATER_EQUAL),
               ("begins", c.TERN_MEMORY_BEGINS))
Where = Mapping[str, Any]


def _filters(where: Optional[Where]) -> Tuple[Any, int]:
    """tern_memory_filter[n] of {"author": "Bo", "year": (">=", 2000)}."""
    given = list((where or {}).items())
    array = (c.tern_memory_filter * len(given))()
    for each, (key, value) in zip(array, given):
        compare, value = value if isinstance(value, tuple) else ("=", value)
        each.key, each.compare = utf8(key), choice("a comparison", compare, COMPARISONS)
        each.value = utf8(value if isinstance(value, str) else json.dumps(value))
    return array, len(given)


def record_id(record: int) -> int:
    return whole("a record", record, 0, 2**63 - 1)


def _record(struct: Any) -> MemoryRecord:
    return MemoryRecord(struct.id, decoded(struct.source), json.loads(struct.metadata), struct.created, struct.n_chunks,
                        struct.n_tokens, struct.n_bytes, None if struct.text is None else decoded(struct.text))


class MemoryStore:
    """Texts in a folder, found by what they say (docs/memory.md). Processes can share a folder, threads an
    object.

    model: an embedding model, which computes the vectors; None: recall goes by words. counter: the model that
    counts tokens. must_exist: do not create a new store. wait: seconds to wait for other processes' writes.

    >>> with tern.MemoryStore("notes.memory") as store:
    ...     store.add("The spare key is under the third flowerpot.", source="garden.md")
    ...     print(store.recall("where is the key")[0].text)
    """

    def __init__(self, folder: Path, model: Optional[Model] = None, *, counter: Optional[Model] = None,
                 must_exist: bool = False, threads: int = 0, wait: float = 0) -> None:
        out, needs = ctypes.POINTER(c.tern_memory_store)(), [m._handle for m in (model, counter) if m is not None]
        desc = c.tern_memory_desc(must_exist=bool(must_exist), n_threads=whole("threads", threads),
                                  wait_seconds=real("wait", wait, 0))
        for handle in needs:  # not closed before the store is
            handle.__enter__()
        try:
            if model is not None:
                desc.model = model._handle._pointer
            if counter is not None:
                desc.counter = counter._handle._pointer
            lib.tern_memory_open(ctypes.byref(out), encoded(folder), ctypes.byref(desc))
            self._handle = Handle(out, lib.tern_memory_close, *needs)
        finally:
            for handle in needs:
                handle.__exit__()
        self._lock = threading.Lock()  # one thread at a time
        self.folder = os.fspath(folder)

    # ---- Adding ----------------------------------------------------------------------------------

    def add(self, text: str, *, source: Optional[str] = None, metadata: Optional[Mapping[str, Any]] = None,
            format: str = "auto", created: int = 0, chunk_tokens: int = 0, overlap_tokens: int = 0, whole_text: bool = False,
            replace: bool = False, keep_secrets: bool = False, patterns: Sequence[str] = (),
            redact: Optional[Callable[[str], Optional[str]]] = None,
            on_progress: Optional[OnProgress] = None) -> MemoryAdded:
        """Adds a record: when this returns, all of it is on disk. replace: it replaces those of the same
        source. patterns: further secrets (PCRE2). redact: returns the text to store, or None to refuse it."""
        raw, callbacks, added = text.encode("utf-8", "surrogatepass"), Callbacks(), c.tern_memory_added()
        item = c.tern_memory_item(text=raw, n_bytes=len(raw), source=optional(source), created=created,
                                  metadata=None if metadata is None else utf8(json.dumps(metadata)),
                                  format=choice("format", format, FORMATS))
        params = self._params(callbacks, chunk_tokens, overlap_tokens, whole_text, replace, keep_secrets, patterns, redact,
                              on_progress)
        with self._lock, self._handle as store:
            callbacks.run(lib.tern_memory_add, store, ctypes.byref(item), ctypes.byref(params), ctypes.byref(added))
        return MemoryAdded(added.id, added.n_chunks, added.n_redacted, added.was_there)

    def load(self, lines: str, *, chunk_tokens: int = 0, overlap_tokens: int = 0, whole_text: bool = False,
             replace: bool = False, keep_secrets: bool = False, patterns: Sequence[str] = (),
             redact: Optional[Callable[[str], Optional[str]]] = None, on_progress: Optional[OnProgress] = None) -> int:
        """Adds records from JSON lines in dump()'s format. Returns how many."""
        raw, callbacks, n = lines.encode("utf-8", "surrogatepass"), Callbacks(), ctypes.c_int64()
        params = self._params(callbacks, chunk_tokens, overlap_tokens, whole_text, replace, keep_secrets, patterns, redact,
                              on_progress)
        with self._lock, self._handle as store:
            callbacks.run(lib.tern_memory_import, store, raw, len(raw), ctypes.byref(params), ctypes.byref(n))
        return n.value

    @staticmethod
    def _params(callbacks: Callbacks, chunk_tokens: int, overlap_tokens: int, whole_text: bool, replace: bool,
                keep_secrets: bool, patterns: Sequence[str], redact: Optional[Callable[[str], Optional[str]]],
                on_progress: Optional[OnProgress]) -> c.tern_memory_add_params:
        params = c.tern_memory_add_params(
            chunk_tokens=whole("chunk_tokens", chunk_tokens), overlap_tokens=whole("overlap_tokens", overlap_tokens, -1),
            whole=bool(whole_text), replace=bool(replace), keep_secrets=bool(keep_secrets),
            on_progress=callbacks.progress(on_progress))
        params.patterns, params.n_patterns = (ctypes.c_char_p * len(patterns))(*map(utf8, patterns)), len(patterns)
        if redact is not None:
            function = redact

            def keep(_user: Any, text: Any, n: int, give: Any, give_to: Any) -> bool:
                kept = function(ctypes.string_at(text, n).decode("utf-8", "replace"))
                if kept is None:
                    return False
                raw = kept.encode("utf-8", "surrogatepass")
                return bool(give(give_to, ctypes.cast(ctypes.c_char_p(raw), ctypes.POINTER(ctypes.c_char)), len(raw)))
            params.redact = c.tern_memory_redact_fn(callbacks.guarded(keep))
        return params

    @staticmethod
    def rules() -> List[Tuple[str, str]]:
        """What is redacted before anything is stored: names, which may repeat, and expressions."""
        found: List[Tuple[str, str]] = []
        pattern = ctypes.c_char_p()
        while True:
            name = lib.tern_memory_rule(len(found), ctypes.byref(pattern))
            if name is None:
                return found
            found.append((decoded(name), decoded(pattern.value)))

    # ---- Recall ----------------------------------------------------------------------------------

    def recall(self, question: str, hits: int = 0, *, max_tokens: int = 0, search: str = "hybrid",
               where: Optional[Where] = None, least_similarity: float = 0, exact: bool = False,
               reranker: Optional[Model] = None, candidates: int = 0) -> MemoryHits:
        """The passages that answer a question, best first; `context` has their texts for a prompt.

        hits: at most, 0: 8. max_tokens: of the context. search: "hybrid", "vectors", "words". where: filters on
        the metadata, "source" or "created": {"author": "Bo", "year": (">=", 2000)}. reranker: a model that
        reads the question with the best `candidates` (0: 32) and reorders them; no other thread may use it
        meanwhile.
        """
        raw, out = question.encode("utf-8", "surrogatepass"), ctypes.POINTER(c.tern_memory_hits)()
        query = c.tern_memory_query(text=raw, n_bytes=len(raw), n_most=whole("hits", hits),
                                    max_tokens=whole("max_tokens", max_tokens), search=choice("search", search, SEARCHES),
                                    least_similarity=real("least_similarity", least_similarity), exact=bool(exact),
                                    n_candidates=whole("candidates", candidates))
        query.filters, query.n_filters = _filters(where)
        with contextlib.ExitStack() as held:
            held.enter_context(self._lock)
            store = held.enter_context(self._handle)
            if reranker is not None:
                query.reranker = held.enter_context(reranker._handle)
            lib.tern_memory_recall(store, ctypes.byref(query), ctypes.byref(out))
        try:
            found = out.contents
            return MemoryHits([self._hit(found.list[i]) for i in range(found.n)], decoded(found.context), found.n_tokens)
        finally:
            lib.tern_memory_hits_free(out)

    @staticmethod
    def _hit(h: Any) -> MemoryHit:
        return MemoryHit(h.id, h.record, decoded(h.text), decoded(h.source), decoded(h.heading), json.loads(h.metadata),
                         h.created, h.n_tokens, h.first_line, h.score, None if h.similarity != h.similarity else h.similarity,
                         h.vector_rank or None, h.word_rank or None,
                         None if h.relevance != h.relevance else h.relevance)

    # ---- What is there ---------------------------------------------------------------------------

    @property
    def stats(self) -> MemoryStats:
        """The size of the store, and which model computed the vectors."""
        info = c.tern_memory_info()
        with self._lock, self._handle as store:
            lib.tern_memory_get_info(store, ctypes.byref(info))
            return MemoryStats(info.n_records, info.n_chunks, info.n_tokens, info.n_vectors, info.n_dims, info.n_bytes,
                               decoded(info.model_name), decoded(info.model_path))

    def records(self, where: Optional[Where] = None) -> List[MemoryRecord]:
        """All records that match, without their texts."""
        found: List[MemoryRecord] = []
        callbacks = Callbacks()
        on_record = c.tern_memory_record_fn(callbacks.guarded(lambda _user, r: found.append(_record(r.contents))))
        with self._lock, self._handle as store:
            callbacks.run(lib.tern_memory_list, store, *_filters(where), on_record, None)
        return found

    def __iter__(self) -> Iterator[MemoryRecord]:
        return iter(self.records())

    def __getitem__(self, record: int) -> MemoryRecord:
        """One record, with its text."""
        found: List[MemoryRecord] = []
        callbacks = Callbacks()
        on_record = c.tern_memory_record_fn(callbacks.guarded(lambda _user, r: found.append(_record(r.contents))))
        with self._lock, self._handle as store:
            callbacks.run(lib.tern_memory_show, store, record_id(record), on_record, None)
        return found[0]

    def forget(self, record: Optional[int] = None, *, where: Optional[Where] = None) -> int:
        """Deletes one record, or those that match. Returns how many."""
        if (record is None) == (not where):
            refuse("forget needs a record or where={...}")
        n = ctypes.c_int64(1)
        with self._lock, self._handle as store:
            if record is not None:
                lib.tern_memory_forget(store, record_id(record))
            else:
                lib.tern_memory_forget_where(store, *_filters(where), ctypes.byref(n))
        return n.value

    def compact(self) -> None:
        """Frees space, and leaves nothing of what was deleted in the index, the file and its log."""
        with self._lock, self._handle as store:
            lib.tern_memory_compact(store)

    def dump(self, where: Optional[Where] = None) -> str:
        """The records as JSON lines, which load() reads."""
        with self._lock, self._handle as store:
            return text_of(lib.tern_memory_export, store, *_filters(where)).decode("utf-8", "replace")

    def close(self) -> None:
        """Closes the store; its models may then be closed."""
        self._handle.close()

    def __enter__(self) -> "MemoryStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

"""Callbacks of an answer, and bytes that the library reads where they are."""
from __future__ import annotations

import ctypes
import operator
import sys
from typing import Any, Callable, Optional, Sequence, Union, TYPE_CHECKING

from . import _c as c
from ._arrays import numpy_for
from ._library import decoded, refuse

if TYPE_CHECKING:
    import numpy

    # Gets the timeline's tokens (the prompt and the answer so far) and the scores of the next one. It changes the
    # scores in place, or returns others; a whole number chooses the token itself.
    LogitsProcessor = Callable[["numpy.ndarray[Any, Any]", "numpy.ndarray[Any, Any]"], Any]
else:
    LogitsProcessor = Callable[[Any, Any], Any]
LogitsProcessors = Union[LogitsProcessor, Sequence[LogitsProcessor]]
OnProgress = Callable[[str, float], Optional[bool]]  # a phase and 0..1; returning False stops it
OnLog = Callable[[str, str], Any]  # a level ("debug", "info", "warn") and a line

LEVELS = {c.TERN_LOG_DEBUG: "debug", c.TERN_LOG_INFO: "info", c.TERN_LOG_WARN: "warn"}


def processors_of(value: Any) -> Sequence[LogitsProcessor]:
    """A list of the callables."""
    found = [value] if callable(value) and not isinstance(value, (list, tuple)) else value
    if not isinstance(found, (list, tuple)) or not all(map(callable, found)):
        refuse("logits_processor must be a function of (ids, logits), or a list of them")
    if found:
        numpy_for("logits_processor")
    return list(found)


def process(processors: Sequence[LogitsProcessor], at: c.tern_logits) -> int:
    """What tern_logits_fn returns."""
    np = numpy_for("logits_processor")
    ids = np.array(at.ids[:at.n_ids], np.int32)
    logits = np.ctypeslib.as_array(at.logits, (at.n_vocab,))
    for processor in processors:
        told = processor(ids, logits)
        if told is None or told is logits:
            continue
        if np.ndim(told) == 0:
            return _token(told)
        if np.shape(told) != logits.shape:
            refuse("logits_processor returned %r: expected None, %d scores, or a token" % (np.shape(told), at.n_vocab))
        logits[:] = told
    return c.TERN_LOGITS_SAMPLE


def _token(told: Any) -> int:
    try:
        token = operator.index(told)
    except TypeError:
        token = -1
    return token if 0 <= token < 2**31 and not isinstance(told, bool) else refuse("logits_processor chose %r, which is no token" % (told,))


def log_callback(on_log: Optional[OnLog]) -> Any:
    """tern_log_fn. It must live as long as the model."""
    def tell(_user: Any, level: int, line: bytes) -> None:
        try:
            assert on_log is not None
            on_log(LEVELS[level], decoded(line))
        except BaseException:  # no exception may pass through the library
            sys.unraisablehook(sys.UnraisableHookArgs((*sys.exc_info(), "tern: on_log", on_log)))  # type: ignore[call-arg]
    none: Any = 0
    return c.tern_log_fn(tell if on_log is not None else none)


class Bytes:
    """A tern_bytes of an object that has bytes: bytes, bytearray, memoryview, mmap. Keeps it."""

    def __init__(self, data: Any) -> None:
        self.struct = c.tern_bytes()
        try:
            view = memoryview(data)
        except TypeError:
            refuse("a path or bytes are expected, not %r" % type(data).__name__)
        view = view.cast("B") if view.c_contiguous else memoryview(bytes(view))
        self.struct.n_bytes = view.nbytes
        if view.nbytes == 0:
            refuse("the model has no bytes")
        if isinstance(data, bytes) or view.readonly and not _has_numpy():
            data = data if isinstance(data, bytes) else bytes(view)
            self._kept: Any = data
            self.struct.bytes = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p)
        elif view.readonly:
            self._kept = numpy_for("Model").frombuffer(view, "uint8")
            self.struct.bytes = self._kept.ctypes.data
        else:
            self._kept = (ctypes.c_char * view.nbytes).from_buffer(view)
            self.struct.bytes = ctypes.addressof(self._kept)


def _has_numpy() -> bool:
    try:
        import numpy  # noqa: F401
    except ImportError:
        return False
    return True

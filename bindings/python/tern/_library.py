"""The shared library: where it is found, how it is called, how its errors are raised.

Everything here serves the other modules. `lib` has each public function under its name. Functions that return a
tern_status are called without their last argument, the tern_error, and raise TernError.
"""
from __future__ import annotations

import ctypes
import ctypes.util
import errno
import operator
import os
import queue
import threading
from typing import Any, Callable, Iterable, List, NoReturn, Optional, Sequence, SupportsIndex, Tuple, Type, TypeVar, Union

from . import _c as c

T = TypeVar("T")
Path = Union[str, "os.PathLike[str]"]
Ids = Iterable[SupportsIndex]  # token ids: a list, or an array of NumPy's

CODES = {
    c.TERN_ERR_MEMORY: "memory", c.TERN_ERR_IO: "io", c.TERN_ERR_FORMAT: "format",
    c.TERN_ERR_UNSUPPORTED: "unsupported", c.TERN_ERR_ARGUMENT: "argument", c.TERN_ERR_CONTEXT_FULL: "context",
    c.TERN_ERR_CANCELLED: "aborted", c.TERN_ERR_DEVICE: "device",
}


class TernError(Exception):
    """An error: one line that names the file, the place and the reason.

    `code` is a word for programs: "memory", "io", "format" (a file is not what it claims to be),
    "unsupported", "argument", "context" (a prompt is too long), "aborted" (by a callback that returned
    False), "device", or "closed" (used after close()).

    Where Python has a class for an error, it is of that class, too: OSError (of a missing file
    FileNotFoundError, with errno), MemoryError, and ValueError for "format", "argument", "context" and "closed".
    """

    __module__ = "tern"

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> Tuple[Any, ...]:
        return failure, (self.code, str(self))


class TernOSError(TernError, OSError):
    """A file cannot be read or written."""

    __module__ = "tern"
    __str__ = Exception.__str__


class TernFileNotFoundError(TernOSError, FileNotFoundError):
    """A file is missing."""

    __module__ = "tern"


class TernMemoryError(TernError, MemoryError):
    """There is no memory left."""

    __module__ = "tern"


class TernValueError(TernError, ValueError):
    """A value, a text or a file is not what is expected."""

    __module__ = "tern"


KINDS = {"io": TernOSError, "memory": TernMemoryError, **dict.fromkeys(("format", "argument", "context", "closed"), TernValueError)}
REASONS = {os.strerror(number): number for number in errno.errorcode}  # with which the library's sentences end


def failure(code: str, message: str) -> TernError:
    """The error of a code."""
    kind = KINDS.get(code, TernError)
    number = REASONS.get(message.rpartition(": ")[2]) if code == "io" else None
    error = (TernFileNotFoundError if number == errno.ENOENT else kind)(code, message)
    if isinstance(error, OSError) and number is not None:
        error.errno = number
    return error


def _find() -> str:
    """TERN_LIBRARY, else the library in this package, else the system's."""
    told = os.environ.get("TERN_LIBRARY")
    if told:
        return told
    for name in ("libtern.so", "libtern.dylib", "tern.dll"):
        beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
        if os.path.exists(beside):
            return beside
    found = ctypes.util.find_library("tern")
    if not found:
        raise ImportError("tern: there is no libtern in the package nor in the system; TERN_LIBRARY may name one")
    return found


def _raising(function: Any) -> Callable[..., None]:
    def call(*args: Any) -> None:
        error = c.tern_error()
        if function(*args, ctypes.byref(error)) != c.TERN_OK:
            raise error_of(error)
    return call


class Library:
    """The functions of include/*.h, by their names."""

    def __init__(self, path: str) -> None:
        try:
            loaded = ctypes.CDLL(path)
        except OSError as why:
            raise ImportError("tern: %s" % why) from None
        for name, (result, arguments) in c.FUNCTIONS.items():
            try:
                function = getattr(loaded, name)
            except AttributeError:
                raise ImportError("tern: %s has no %s: it is another version's" % (path, name)) from None
            function.restype, function.argtypes = result, arguments
            fails = bool(arguments) and arguments[-1] is ctypes.POINTER(c.tern_error)
            setattr(self, name, _raising(function) if fails else function)
        self.path = path
        self.version = self.tern_version().decode()
        wanted = "%d.%d.%d" % (c.TERN_VERSION_MAJOR, c.TERN_VERSION_MINOR, c.TERN_VERSION_PATCH)
        if self.version != wanted or self.tern_abi_version() != c.TERN_ABI_VERSION:  # structs may differ
            raise ImportError("tern: %s is version %s (ABI %d), this package is for %s (ABI %d)"
                              % (path, self.version, self.tern_abi_version(), wanted, c.TERN_ABI_VERSION))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


lib = Library(_find())


# ---- Errors --------------------------------------------------------------------------------------


def error_of(error: c.tern_error) -> TernError:
    return failure(CODES.get(error.status, "argument"), error.message.decode("utf-8", "replace"))


def refuse(message: str, code: str = "argument") -> NoReturn:
    raise failure(code, message)


def choice(what: str, name: str, choices: Sequence[Tuple[str, int]]) -> int:
    """The number of a name, or an error with all names."""
    for known, number in choices:
        if name == known:
            return number
    return refuse("%s is one of %s, not %r" % (what, ", ".join(known for known, _ in choices), name))


# ---- Values --------------------------------------------------------------------------------------


def encoded(path: Path) -> bytes:
    """A path for the library. A zero byte in it would cut it short."""
    raw = os.fsencode(path)
    return raw if b"\0" not in raw else refuse("a path with a zero in it: %r" % os.fspath(path))


def utf8(text: str) -> bytes:
    """Zero-terminated text for the library."""
    if not isinstance(text, str):
        refuse("a text (str) is expected, not %r" % type(text).__name__)
    raw = text.encode("utf-8", "surrogatepass")
    return raw if b"\0" not in raw else refuse("a zero in a text that may have none: %r" % text[:40])


def optional(text: Optional[str]) -> Optional[bytes]:
    return None if text is None else utf8(text)


def decoded(raw: Optional[bytes]) -> str:
    return "" if raw is None else raw.decode("utf-8", "replace")


def text_member(struct: Any, name: str, n_bytes: int) -> str:
    """The n_bytes of a text in a struct. It may end without a zero and contain some: only its address is read."""
    at = ctypes.c_void_p.from_buffer(struct, getattr(type(struct), name).offset).value
    return ctypes.string_at(at, n_bytes).decode("utf-8", "replace") if at and n_bytes else ""


def ids_array(ids: Ids) -> Any:
    """int32_t[n] of token ids."""
    if isinstance(ids, (str, bytes, bytearray)):
        refuse("token ids are a list of whole numbers, not %r" % type(ids).__name__)
    try:
        values = ids if isinstance(ids, (list, tuple)) else list(ids)
    except TypeError:
        refuse("token ids are a list of whole numbers, not %r" % type(ids).__name__)
    return (ctypes.c_int32 * len(values))(*map(token_id, values))


def token_id(value: Any) -> int:
    """ctypes would silently keep the low bits of a larger one."""
    try:
        number = operator.index(value)
    except TypeError:  # of an array, too
        number = None
    if number is None or isinstance(value, bool):
        refuse("a token id is a whole number, not %r" % (value,))
    return number if -1 << 31 <= number < 1 << 31 else refuse("%d is not a token id" % number)


def from_struct(kind: Type[T], struct: Any) -> T:
    """A dataclass filled from the struct members of the same names."""
    values = {}
    for name in kind.__dataclass_fields__:  # type: ignore[attr-defined]
        value = getattr(struct, name)
        values[name] = decoded(value) if isinstance(value, bytes) else value
    return kind(**values)


# ---- Callbacks -----------------------------------------------------------------------------------


class Callbacks:
    """Python functions that the library calls, and a library call during which it does so.

    An exception in one of them stops the call, which then raises it. From the main thread, the call is made in
    another thread, so that Ctrl-C is noticed at once, stops the call, and is raised when it has ended. So callbacks run in that other thread.
    """

    def __init__(self) -> None:
        self.error: Optional[BaseException] = None
        self.stopped = False

    def guarded(self, function: Callable[..., Any]) -> Callable[..., bool]:
        """A function that the library may call: no exception passes through it."""
        def call(*args: Any) -> bool:
            try:
                return not self.stopped and function(*args) is not False
            except BaseException as error:  # no exception may pass through the library
                self.error = self.error or error
                return False
        return call

    def progress(self, function: Optional[Callable[[str, float], Optional[bool]]]) -> Any:
        """tern_progress_fn. It exists even without a function, for Ctrl-C."""
        return c.tern_progress_fn(self.guarded(
            lambda _user, phase, fraction: function is None or function(decoded(phase), fraction)))

    def text(self, function: Callable[[bytes], Optional[bool]]) -> Any:
        """tern_text_fn."""
        return c.tern_text_fn(self.guarded(lambda _user, text, n: function(ctypes.string_at(text, n))))

    def note(self, function: Callable[[str], Any]) -> Any:
        """A function that gets a sentence and cannot stop the call."""
        guarded = self.guarded(lambda _user, text: function(decoded(text)))
        return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)(lambda *args: guarded(*args) and None)

    def run(self, function: Callable[..., None], *args: Any) -> None:
        try:
            if threading.current_thread() is threading.main_thread():
                self._run_aside(function, args)
            else:
                function(*args)
        except TernError:
            if self.error is None:
                raise
        if self.error is not None:
            raise self.error

    def _run_aside(self, function: Callable[..., None], args: Tuple[Any, ...]) -> None:
        done: queue.SimpleQueue[Optional[BaseException]] = queue.SimpleQueue()
        stop = c.tern_cancel()

        def work() -> None:
            lib.tern_cancel_watch(ctypes.byref(stop))
            try:
                function(*args)
                done.put(None)
            except BaseException as error:
                done.put(error)
            finally:
                lib.tern_cancel_watch(None)
        threading.Thread(target=work, name="tern call", daemon=True).start()
        interrupt: Optional[BaseException] = None
        while True:
            try:
                failure = done.get()
                break
            except BaseException as error:  # KeyboardInterrupt, or what a signal handler raises
                self.stopped = True
                lib.tern_cancel_request(ctypes.byref(stop))
                interrupt = interrupt or error
        if interrupt is not None:
            raise interrupt
        if failure is not None:
            raise failure


def text_of(function: Callable[..., None], *args: Any) -> bytes:
    """The text that a short function passes to its tern_text_fn, its last parameter before the user pointer."""
    pieces: List[bytes] = []
    callbacks = Callbacks()
    on_text = callbacks.text(pieces.append)
    try:
        function(*args, on_text, None)
    except TernError as error:
        # A signal's exception at the very entry of the callback is lost, and looks like a request to stop.
        if error.code == "aborted" and callbacks.error is None:
            raise KeyboardInterrupt from None
        raise callbacks.error or error
    return b"".join(pieces)


# ---- Handles -------------------------------------------------------------------------------------


class Handle:
    """A library pointer that is freed once: by close(), or when nothing refers to it any more.

    It is freed once the last call that uses it has returned, so that closing it in one thread does not pull it
    away from another. What it was made from lives as long: a session holds its model.
    """

    def __init__(self, pointer: Any, close: Callable[[Any], None], *needs: "Handle") -> None:
        self._pointer, self._close, self._needs = pointer, close, needs
        self.kept: Any = None  # what the library reads, or calls, while it is open
        self._lock = threading.RLock()  # in the same thread: the garbage collector may run at any time
        self._users, self._closed, self._process = 0, False, os.getpid()
        for i, need in enumerate(needs):
            try:
                need.__enter__()
            except BaseException:
                self._needs, self._closed = needs[:i], True
                self._free()
                raise

    @property
    def closed(self) -> bool:
        return self._closed

    def __enter__(self) -> Any:
        with self._lock:
            if self._closed:
                refuse("used after it was closed", "closed")
            self._users += 1
        if self._process != os.getpid():
            self.__exit__()
            refuse("models and sessions do not pass through fork(): open them in the new process")
        return self._pointer

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            last = self._closed and self._users == 0
        if last:
            self._free()

    def close(self) -> None:
        with self._lock:
            last = not self._closed and self._users == 0
            self._closed = True
        if last:
            self._free()

    def _free(self) -> None:
        if self._process == os.getpid():  # after a fork() its threads are missing
            self._close(self._pointer)
        for need in self._needs:
            need.__exit__()

    def __reduce__(self) -> NoReturn:
        raise TypeError("what belongs to an open model lives in one process and is not pickled: send the model's path and "
                        "open it there, and of an answer send its text")

    def __del__(self) -> None:
        if hasattr(self, "_process"):
            self.close()

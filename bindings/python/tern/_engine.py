"""The thread that computes a model's answers.

Each model that generates has one. It steps a group of sessions, so that answers which run at the same time
share each reading of the weights, and it alone touches that group. Other threads send it jobs through a queue,
which must be safe to use inside the garbage collector, at any point (SimpleQueue). A job's output only grows, so
any number of threads and event loops read it, each from where it is.
"""
from __future__ import annotations

import atexit
import contextlib
import ctypes
import queue
import threading
import weakref
from collections import deque
from dataclasses import replace
from typing import Any, Callable, Deque, Dict, Iterator, List, Literal, NamedTuple, Optional, Sequence, Tuple

from . import _c as c
from ._callbacks import process
from ._library import Handle, TernError, error_of, failure, ids_array, lib, refuse, text_of, token_id
from ._parts import Part, Splitter
from ._results import GenerateStats, TokenLogprob

Reason = Literal["end", "length", "string", "context", "caller"]
REASONS: Dict[int, Reason] = {c.TERN_STOP_END: "end", c.TERN_STOP_LENGTH: "length", c.TERN_STOP_STRING: "string",
           c.TERN_STOP_CONTEXT: "context", c.TERN_STOP_CALLER: "caller"}
IDLE_BYTES = 256 << 20  # of keys and values, in sessions kept for the next turn


class Piece(NamedTuple):
    text: str
    logprobs: List[TokenLogprob]


class Ending(NamedTuple):
    """What is known when a job is over."""

    reason: Reason
    ids: List[int]
    stats: Optional[GenerateStats]
    notice: Optional[str]
    error: Optional[BaseException]
    logprobs: Sequence[TokenLogprob] = ()  # of tokens after the last piece


class Job:
    """A text to continue."""

    def __init__(self, ids: Sequence[int], params: c.tern_generate_params, session: Optional[Handle] = None) -> None:
        self.ids, self.params, self.session = ids, params, session
        self.pooled = session is None  # a session of the engine's own
        self.pieces: List[Piece] = []
        self.splitter: Optional[Splitter] = None  # then pieces are the text alone
        self.parts: List[Part] = []
        self.ending: Optional[Ending] = None
        self.n_logprobs = 0  # tokens that were told
        self.logprobs: List[TokenLogprob] = []  # of them, those of the next piece
        self.cancelled = False
        self.error: Optional[BaseException] = None
        self.ended = threading.Event()
        self._listeners: Dict[object, Callable[[], None]] = {}
        self._uses = Handle(None, lambda _: None, *getattr(params, "uses", ()))

    def has(self, n: Optional[int], items: Sequence[object]) -> bool:
        """Whether there are n pieces or parts (None: all), or no more will come."""
        return self.ending is not None or (n is not None and len(items) >= n)

    @contextlib.contextmanager
    def listening(self, listener: Callable[[], None]) -> Iterator[None]:
        """Calls it in the engine's thread whenever there is more. Look at what there is afterwards."""
        key = object()
        self._listeners[key] = listener
        try:
            yield
        finally:
            del self._listeners[key]

    def _tell(self) -> None:
        for listener in list(self._listeners.values()):
            listener()

    def put(self, text: str) -> None:
        text = text if self.splitter is None else self._split(self.splitter.put(text))
        self._add(text)

    def _split(self, parts: List[Part]) -> str:
        self.parts += parts
        if parts:
            self._tell()
        return "".join(part.text for part in parts if part.kind == "text")

    def _add(self, text: str) -> None:
        if text:
            self.pieces.append(Piece(text, self.logprobs))
            self.logprobs = []
            self._tell()

    def end(self, ending: Ending) -> None:
        self._uses.close()
        if self.splitter is not None:
            try:
                self._add(self._split(self.splitter.end()))
            except BaseException as why:
                ending = ending._replace(error=ending.error or why)
        self.ending = ending
        self.ended.set()
        self._tell()

    def fail(self, error: BaseException) -> None:
        self.end(Ending("caller", [], None, None, error))


class Asked(NamedTuple):
    """A text to continue, before there is a job of it."""

    ids: Sequence[int]
    params: c.tern_generate_params
    dropped: int = 0  # messages that did not fit
    images: object = None  # kept meanwhile
    splitter: Optional[Splitter] = None

    def job(self, session: Optional[Handle] = None) -> Job:
        job = Job(self.ids, self.params, session)
        job.splitter = self.splitter
        return job


class Pool:
    """Sessions that answered keep what they computed: a text goes to the one with the longest common prefix, so
    that a conversation continues where it was, and several can take turns."""

    def __init__(self, open_session: Callable[[], Handle], kv_bytes: int, keep: int) -> None:
        self._open, self._kv_bytes, self._keep = open_session, kv_bytes, keep
        self._idle: List[Tuple[Handle, Sequence[int]]] = []  # least recently used first

    def take(self, ids: Sequence[int]) -> Handle:
        best, most = None, 0
        for slot in self._idle:
            common = common_length(slot[1], ids)
            if common > most or (best is not None and common == most):
                best, most = slot, common
        # A session of another conversation is taken only if there is no room for one more. A text that
        # lies whole in what was computed is asked again: the answer makes way for another.
        if best is None or (most < len(best[1]) / 2 and most < len(ids)):
            best = self._idle[0] if len(self._idle) >= self._keep > 0 else None
        if best is None:
            try:
                return self._open()
            except TernError as error:
                if error.code != "memory" or not self.forget():
                    raise
                return self._open()
        self._idle.remove(best)
        return best[0]

    def give(self, session: Handle, ids: Sequence[int]) -> None:
        self._idle.append((session, ids))
        while len(self._idle) > self._keep or (len(self._idle) > 1 and self._bytes() > IDLE_BYTES):
            self._idle.pop(0)[0].close()

    def _bytes(self) -> int:
        return self._kv_bytes * sum(len(ids) for _, ids in self._idle)

    def forget(self) -> bool:
        """Frees what is kept for later; returns whether there was anything."""
        any_idle = bool(self._idle)
        while self._idle:
            self._idle.pop()[0].close()
        return any_idle


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    n = min(len(a), len(b))
    return next((i for i in range(n) if a[i] != b[i]), n)


class Engine:
    """The thread, its group, and the jobs in it. The thread starts with the first job."""

    def __init__(self, model: Handle, open_session: Callable[[], Handle], kv_bytes: int, parallel: int, keep: int) -> None:
        self._model, self._parallel = model, parallel
        self._pool = Pool(open_session, kv_bytes, keep)
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()  # jobs; None: look for cancelled ones; STOP
        self._lock = threading.RLock()
        self._thread: Optional[threading.Thread] = None
        self._stopped = False
        # Used by the thread alone:
        self._waiting: Deque[Job] = deque()
        self._running: Dict[int, Job] = {}
        self._number = 0
        self._on_text: Any = c.tern_text_fn(self._take_text)
        self._on_end: Any = c.tern_end_fn(self._take_end)
        self._on_progress: Any = c.tern_progress_fn(self._take_progress)
        self._on_logits: Any = c.tern_logits_fn(self._take_logits)

    # ---- For all threads -------------------------------------------------------------------------

    def submit(self, job: Job) -> None:
        with self._lock:
            if self._stopped:
                refuse("the model is closed", "closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tern", daemon=True)
                ENGINES.add(self)
                self._thread.start()
            self._inbox.put(job)

    def cancel(self, job: Job) -> None:
        job.cancelled = True
        self._inbox.put(None)

    def stop(self, wait: bool) -> None:
        """Ends all jobs, then the thread."""
        with self._lock:
            first, self._stopped = not self._stopped, True
            thread = self._thread
        if thread is None:
            return
        if first:
            self._inbox.put(STOP)
        if wait and thread is not threading.current_thread():
            thread.join()

    # ---- The thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        error: BaseException = failure("closed", "the model was closed")
        group = None
        try:
            out = ctypes.POINTER(c.tern_group)()
            with self._model as model:
                lib.tern_group_open(ctypes.byref(out), model, None)
            group = Handle(out, lib.tern_group_close, self._model)
            while self._receive():
                while self._waiting and len(self._running) < self._parallel:
                    self._begin(out, self._waiting.popleft())
                if self._running:
                    self._step(out)
        except BaseException as why:  # no job may be left waiting for its answer
            error = why
        with self._lock:
            self._stopped = True
        for job in self._running.values():
            job.error = error
        if group is not None:
            group.close()  # ends what runs
        self._pool.forget()
        while not self._inbox.empty():
            message = self._inbox.get()
            if isinstance(message, Job):
                self._waiting.append(message)
        for job in self._waiting:
            job.fail(error)
        self._on_text = self._on_end = self._on_progress = self._on_logits = None  # which hold this engine, and so the model

    def _receive(self) -> bool:
        """Takes what was sent, waiting for it while there is nothing to do. False: stop."""
        block, look = not self._running and not self._waiting, False
        while True:
            try:
                message = self._inbox.get(block)
            except queue.Empty:
                break
            block = False
            if message is STOP:
                return False
            if isinstance(message, Job):
                self._waiting.append(message)
            look = True  # a job may have been cancelled before it arrived
        if look:
            for job in [job for job in self._waiting if job.cancelled]:
                self._waiting.remove(job)
                job.end(Ending("caller", [], None, None, None))
            for job in [job for job in self._running.values() if job.cancelled]:
                self._cancel(job)
        return True

    @staticmethod
    def _cancel(job: Job) -> None:
        assert job.session is not None
        lib.tern_session_cancel(job.session._pointer)  # in use while it runs

    def _begin(self, group: Any, job: Job) -> None:
        try:
            if job.session is None:
                job.session = self._pool.take(job.ids)
            session = job.session.__enter__()
        except BaseException as error:
            return job.fail(error)
        self._number += 1
        number = self._number
        self._running[number] = job
        try:
            ids = job.ids if isinstance(job.ids, ctypes.Array) else ids_array(job.ids)
            params = c.tern_generate_params.from_buffer_copy(job.params)  # the job must not hold the engine
            params.on_text, params.on_end, params.user = self._on_text, self._on_end, number
            if getattr(job.params, "told_progress", None) is not None:
                params.on_progress = self._on_progress
            if getattr(job.params, "processors", ()):
                params.on_logits = self._on_logits
            lib.tern_group_add(group, session, ids, len(ids), ctypes.byref(params))
        except BaseException as error:
            del self._running[number]
            self._release(job, [])
            job.fail(error)

    def _step(self, group: Any) -> None:
        try:
            lib.tern_group_step(group, None)
        except TernError as error:
            # Nothing is lost: the step may be tried again. Idle sessions may hold the memory that it lacks.
            if error.code == "memory" and self._pool.forget():
                return
            for job in list(self._running.values()):
                job.error = error
                self._cancel(job)

    def _release(self, job: Job, ids: Sequence[int]) -> None:
        session = job.session
        assert session is not None
        session.__exit__()
        if job.pooled:
            if self._stopped or (job.error is not None):
                session.close()
            else:
                self._pool.give(session, ids)

    # ---- Called by the library -------------------------------------------------------------------

    def _take_text(self, number: int, text: Any, n: int) -> bool:
        job = self._running[number]
        try:
            self._take_logprobs(job)
            job.put(ctypes.string_at(text, n).decode("utf-8", "replace"))
        except BaseException as error:
            job.error = error
        return not job.cancelled and job.error is None

    def _take_progress(self, number: int, phase: bytes, fraction: float) -> bool:
        job = self._running[number]
        try:
            told = getattr(job.params, "told_progress")(phase.decode(), fraction)
        except BaseException as error:
            job.error, told = error, False
        return told is not False and not job.cancelled

    def _take_logits(self, number: int, at: Any) -> int:
        job = self._running[number]
        try:
            return c.TERN_LOGITS_STOP if job.cancelled else process(getattr(job.params, "processors"), at[0])
        except BaseException as error:
            job.error = error
            return c.TERN_LOGITS_STOP

    def _take_end(self, number: int, session: Any, stats: Any, error: Any) -> None:
        job = self._running.pop(number)
        ids: List[int] = []
        told = None
        notice: Optional[str] = None
        try:
            if error[0].status != c.TERN_OK:
                job.error = job.error or error_of(error[0])
            n = ctypes.c_size_t()
            generated = lib.tern_session_generated(session, ctypes.byref(n))
            ids = generated[:n.value] if n.value else []
            told = _stats_of(stats[0])
            said = lib.tern_session_notice(session)
            notice = said.decode("utf-8", "replace") if said else None
            self._take_logprobs(job)
            timeline = (list(job.ids) + ids)[:lib.tern_session_n_tokens(session)]
            self._release(job, timeline)
        except BaseException as why:
            job.error = job.error or why
        job.end(Ending(REASONS[stats[0].reason], ids, told, notice, job.error, job.logprobs))

    def _take_logprobs(self, job: Job) -> None:
        """For the tokens since the last call."""
        if not job.params.logprobs:
            return
        assert job.session is not None
        n_tokens, n_each = ctypes.c_size_t(), ctypes.c_size_t()
        rows = lib.tern_session_token_logprobs(job.session._pointer, ctypes.byref(n_tokens), ctypes.byref(n_each))
        first, job.n_logprobs = job.n_logprobs, n_tokens.value
        each = n_each.value
        job.logprobs += [token_logprob(self._model, rows[i * each : (i + 1) * each]) for i in range(first, n_tokens.value)]


def token_logprob(model: Handle, row: Sequence[Any]) -> TokenLogprob:
    """A row of tern_token_logprob: the token, then the most likely ones in its place."""
    raws = [token_piece(model, at.id) for at in row]
    first, *top = (TokenLogprob(at.id, raw.decode("utf-8", "replace"), raw, at.logprob) for at, raw in zip(row, raws))
    return replace(first, top=top)


def token_piece(model: Handle, token: int) -> bytes:
    """What a token adds in the middle of a text."""
    token = token_id(token)
    with model as pointer:
        return text_of(lib.tern_token_piece, pointer, token)


def _stats_of(s: c.tern_generate_stats) -> GenerateStats:
    return GenerateStats(s.n_prompt, s.n_reused, s.n_generated, s.prompt_seconds, s.generate_seconds, s.seed,
                         s.draft.n_steps, s.draft.n_drafted, s.draft.n_accepted, s.draft.speedup)


STOP = object()
ENGINES: "weakref.WeakSet[Engine]" = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Runs before the interpreter exits: a thread in the library must not return to it afterwards."""
    for engine in list(ENGINES):
        engine.stop(wait=True)

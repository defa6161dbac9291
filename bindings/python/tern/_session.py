"""One timeline over a model."""
from __future__ import annotations

import ctypes
import os
import threading
from typing import Any, List, Mapping, Optional, Sequence, Tuple, Union, TYPE_CHECKING

from . import _c as c
from ._answer import Answer
from ._arrays import numpy_for, pointer
from ._engine import Asked, Job
from ._library import Callbacks, Handle, Ids, ids_array, lib, refuse
from ._messages import Messages, ToolChoice, Tools
from ._options import KV, GenerateOptions, Kv, whole
from ._results import ProfileRow

if TYPE_CHECKING:
    import numpy
    from typing_extensions import Unpack
    from ._model import Model


class Session:
    """A timeline of tokens with its keys and values, as Model.session() opens it.

    Model.generate() and Model.chat() choose a session by themselves; use this to decide what stays computed, to
    look at logits, or to continue one prefix in several ways. A call with a longer or changed text computes
    only what differs from the timeline.

    Calls from several threads wait for one another. While an answer runs it owns the timeline: other calls are
    refused until it has ended or been cancelled.
    """

    def __init__(self, model: "Model", handle: Handle) -> None:
        self.model = model
        self._handle = handle
        self._lock = threading.RLock()
        self._job: Optional[Job] = None

    def _free(self) -> Handle:
        """The handle, if no answer is running; waits for one that was cancelled. Called with the lock held."""
        job = self._job
        if job is not None and not job.ended.is_set():
            if not job.cancelled:
                refuse("the session is answering: read the answer to its end, or cancel it")
            job.ended.wait()
        self._job = None
        return self._handle

    # ---- Text ------------------------------------------------------------------------------------

    def generate(self, prompt: Union[str, Ids], **options: "Unpack[GenerateOptions]") -> Answer:
        """Continues a text or tokens; see Model.generate. append=True: they follow the timeline, which is empty after
        reset(), instead of replacing it; "" or [] goes on from where it is."""
        begins = not options.get("append") or self.n_tokens == 0
        return self._answer(Asked(self.model._ids(prompt, begins), self.model._params(options)))

    def chat(self, messages: Messages, *, tools: Optional[Tools] = None, tool_choice: ToolChoice = "auto",
             **options: "Unpack[GenerateOptions]") -> Answer:
        """Answers the last message; see Model.chat."""
        if options.get("append"):
            refuse("append: the messages are the whole conversation, not what follows it")
        return self._answer(self.model._asked(messages, options, self.context, tools, tool_choice))

    def _answer(self, asked: Asked) -> Answer:
        job = asked.job(self._handle)
        with self._lock:
            if self._free().closed:
                refuse("the session is closed", "closed")
            self.model._engine.submit(job)
            self._job = job
        return Answer(self.model._engine, job, (self, asked.images), asked.dropped)

    @property
    def lora_scales(self) -> Tuple[float, ...]:
        """One for each adapter; empty unless the model was opened with loras_by_session."""
        n = ctypes.c_size_t()
        with self._lock, self._handle as session:
            scales = lib.tern_session_lora_scales(session, ctypes.byref(n))
            return tuple(scales[:n.value]) if n.value else ()

    # ---- Tokens and scores -----------------------------------------------------------------------

    def sync(self, ids: Ids) -> int:
        """Makes the timeline equal to ids: keeps the common prefix and computes the rest. Returns the length of
        the reused prefix."""
        reused = ctypes.c_size_t()
        array = ids_array(ids)
        with self._lock, self._free() as session:
            Callbacks().run(lib.tern_session_sync, session, array, len(array), ctypes.byref(reused))
        return reused.value

    def logits(self, ids: Ids) -> "numpy.ndarray[Any, Any]":
        """Appends ids to the timeline. float32 [len(ids), n_vocab]: the logits of the token after each."""
        np = numpy_for("Session.logits")
        array = ids_array(ids)
        out: "numpy.ndarray[Any, Any]" = np.empty((len(array), self.model.info.n_vocab), np.float32)
        with self._lock, self._free() as session:
            Callbacks().run(lib.tern_session_logits, session, array, len(array), pointer(out, ctypes.c_float))
        return out

    def logprobs(self, ids: Ids, targets: Ids) -> \
            "Tuple[numpy.ndarray[Any, Any], numpy.ndarray[Any, Any]]":
        """Appends ids to the timeline and scores what follows: float64 [n] of ln p(targets[i]) after ids[i],
        and int32 [n] of the most likely tokens there. A target below 0 is not computed: 0 and -1."""
        np = numpy_for("Session.logprobs")
        array, wanted = ids_array(ids), ids_array(targets)
        if len(array) != len(wanted):
            refuse("%d ids and %d targets" % (len(array), len(wanted)))
        scores = np.empty(len(array), np.dtype([("logprob", np.float64), ("best", np.int32)], align=True))
        with self._lock, self._free() as session:
            Callbacks().run(lib.tern_session_logprobs, session, array, len(array), wanted, pointer(scores, c.tern_target_score))
        return np.ascontiguousarray(scores["logprob"]), np.ascontiguousarray(scores["best"])

    def last_logits(self) -> "numpy.ndarray[Any, Any]":
        """float32 [n_vocab]: the logits of the token after the timeline's last one."""
        np = numpy_for("Session.last_logits")
        out: "numpy.ndarray[Any, Any]" = np.empty(self.model.info.n_vocab, np.float32)
        with self._lock, self._free() as session:
            Callbacks().run(lib.tern_session_last_logits, session, pointer(out, ctypes.c_float))
        return out

    # ---- The timeline ----------------------------------------------------------------------------

    def fork(self, n_tokens: Optional[int] = None) -> "Session":
        """A new session whose timeline is the first n_tokens (all) of this one. The common prefix is computed
        and stored once."""
        out = ctypes.POINTER(c.tern_session)()
        with self._lock, self._free() as session:
            n = lib.tern_session_n_tokens(session) if n_tokens is None else whole("n_tokens", n_tokens)
            lib.tern_session_fork(ctypes.byref(out), session, n)
        # What this one needs (a table of chains, a draft model), the other needs, too.
        return self.model._adopt(Handle(out, lib.tern_session_close, *self._handle._needs))

    def reset(self) -> None:
        """Clears the timeline."""
        with self._lock, self._free() as session:
            lib.tern_session_reset(session)

    def truncate(self, n_tokens: int) -> None:
        """Drops what comes after the first n_tokens of the timeline."""
        with self._lock, self._free() as session:
            lib.tern_session_truncate(session, whole("n_tokens", n_tokens))

    def swap_out(self) -> None:
        """Moves keys and values to the host's memory. They come back when the session is used."""
        with self._lock, self._free() as session:
            lib.tern_session_swap_out(session)

    def save(self, path: "Union[str, os.PathLike[str]]") -> None:
        """Writes the timeline to a file: tokens, keys and values, other states."""
        with self._lock, self._free() as session:
            Callbacks().run(lib.tern_session_save, session, os.fsencode(path))

    def load(self, path: "Union[str, os.PathLike[str]]") -> int:
        """Replaces the timeline by the one in the file, without computing it. Returns how many tokens it has.
        Files of another model, and damaged ones, are refused; the session is then unchanged."""
        with self._lock, self._free() as session:
            Callbacks().run(lib.tern_session_load, session, os.fsencode(path))
            return int(lib.tern_session_n_tokens(session))

    def save_bytes(self) -> bytes:
        """What save() writes to a file."""
        pieces: List[bytes] = []
        callbacks = Callbacks()
        with self._lock, self._free() as session:
            callbacks.run(lib.tern_session_save_bytes, session, callbacks.text(pieces.append), None)
        return b"".join(pieces)

    def load_bytes(self, data: bytes) -> int:
        """load() of what save_bytes() gave."""
        raw = bytes(data)
        with self._lock, self._free() as session:
            Callbacks().run(lib.tern_session_load_bytes, session, raw, len(raw))
            return int(lib.tern_session_n_tokens(session))

    def peek(self, path: "Union[str, os.PathLike[str]]") -> List[int]:
        """The tokens of the timeline in a file that load() would accept. The states are not read."""
        with self._lock, self._free() as session:
            array = (ctypes.c_int32 * self.context)()
            ids = c.tern_ids(array, len(array))
            Callbacks().run(lib.tern_session_peek, session, os.fsencode(path), ctypes.byref(ids))
        return list(array[:ids.n])

    @property
    def digest(self) -> int:
        """A number that identifies which saved files the session can load: for names of files."""
        out = ctypes.c_uint64()
        with self._lock, self._free() as session:
            Callbacks().run(lib.tern_session_digest, session, ctypes.byref(out))
        return out.value

    @property
    def n_tokens(self) -> int:
        """The number of tokens in the timeline."""
        with self._lock, self._free() as session:
            return int(lib.tern_session_n_tokens(session))

    @property
    def tokens(self) -> List[int]:
        """The tokens of the timeline."""
        with self._lock, self._free() as session:
            return list(lib.tern_session_tokens(session)[:lib.tern_session_n_tokens(session)])

    @property
    def bytes(self) -> int:
        """Bytes of keys, values and other states on the device, shared ones divided among their holders."""
        with self._lock, self._free() as session:
            return int(lib.tern_session_bytes(session))

    @property
    def context(self) -> int:
        """Its capacity in tokens."""
        with self._handle as session:
            return int(lib.tern_session_n_context(session))

    @property
    def kv(self) -> str:
        """The type of its keys and values: "f32", "f16", "q8_0"."""
        with self._handle as session:
            kind = lib.tern_session_kv_type(session)
        return next(name for name, number in KV if number == kind)

    @property
    def notice(self) -> Optional[str]:
        """One line if the device was lost since the last call, saying what the session continues on."""
        with self._lock, self._free() as session:
            said = lib.tern_session_notice(session)
        return said.decode("utf-8", "replace") if said else None

    def profile(self) -> List[ProfileRow]:
        """Where the time went in a session with profile=True, longest first."""
        rows, n = ctypes.POINTER(c.tern_profile_row)(), ctypes.c_size_t()
        with self._lock, self._free() as session:
            lib.tern_session_profile(session, ctypes.byref(rows), ctypes.byref(n))
            return [ProfileRow(row.name.decode(), row.n_calls, row.seconds, row.bytes) for row in rows[:n.value]]

    def cancel(self) -> None:
        """Stops what it is doing, from any thread: an answer ends with the reason "caller", other calls raise a
        TernError "aborted". The timeline keeps what was computed."""
        job = self._job
        if job is not None and not job.ended.is_set():
            self.model._engine.cancel(job)
        with self._handle as session:
            lib.tern_session_cancel(session)

    def close(self) -> None:
        """Cancels its answer, and frees it: at once, or when a call that uses it has returned."""
        job = self._job
        if job is not None and not job.ended.is_set():
            self.model._engine.cancel(job)
        self._handle.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

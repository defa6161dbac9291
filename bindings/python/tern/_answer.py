"""An answer that is being generated."""
from __future__ import annotations

import threading
from typing import Any, Dict, Iterator, List, Optional

from ._engine import Ending, Engine, Job
from ._results import GenerateStats, TokenLogprob


class Answer(Iterator[str]):
    """A model's answer: pieces of whole characters as they are generated, or all of it: `text`.

    It is computed whether or not it is read, together with all other answers of the model. Ctrl-C while reading
    cancels it; so does leaving a `with` block, dropping the last reference, and cancel() from any thread. Threads
    that read one answer share its pieces; the properties are the same for all.

    >>> for piece in model.generate("Once upon a time"):
    ...     print(piece, end="", flush=True)

    The properties wait for the end, except `logprobs`, which has the tokens read so far.
    """

    def __init__(self, engine: Engine, job: Job, owner: object, dropped: int = 0) -> None:
        self._engine, self._job, self._owner = engine, job, owner  # keeps the owner open meanwhile
        self._reading = threading.RLock()  # a signal handler may read what its thread reads
        self._pieces: List[str] = []
        self._ending: Optional[Ending] = None
        self.logprobs: List[TokenLogprob] = []  # with the option logprobs
        self.dropped = dropped  # number of oldest messages that did not fit the context

    def __iter__(self) -> "Answer":
        return self

    def __next__(self) -> str:
        try:
            self._reading.acquire()
        except BaseException:  # Ctrl-C while another thread reads
            self.cancel()
            raise
        try:
            return self._read()
        finally:
            self._reading.release()

    def _read(self) -> str:
        while self._ending is None:
            try:
                said = self._job.out.get()
            except BaseException:  # Ctrl-C while waiting
                self.cancel()
                raise
            if isinstance(said, Ending):
                self._ending = said
                break
            self.logprobs += said.logprobs
            if said.text:
                self._pieces.append(said.text)
                return said.text
        if self._ending.error is not None:
            raise self._ending.error
        raise StopIteration

    def cancel(self) -> None:
        """Ends it within one step: the text so far stays, and the reason is "caller". From any thread."""
        if self._ending is None:
            self._engine.cancel(self._job)

    def _end(self) -> Ending:
        for _ in self:
            pass
        assert self._ending is not None
        return self._ending

    @property
    def text(self) -> str:
        """The whole text."""
        self._end()
        return "".join(self._pieces)

    @property
    def ids(self) -> List[int]:
        """The generated tokens, including an end token."""
        return self._end().ids

    @property
    def reason(self) -> str:
        """Why it ended: "end" (by the model), "length", "string", "context" (full), "caller" (cancelled)."""
        return self._end().reason

    @property
    def finish_reason(self) -> str:
        """OpenAI's name for the reason: "stop" or "length"."""
        return "length" if self.reason in ("length", "context") else "stop"

    @property
    def stats(self) -> Optional[GenerateStats]:
        """Counts and times. None: it was cancelled before it began."""
        return self._end().stats

    @property
    def seed(self) -> int:
        """The seed that was used: the same seed gives the same text. 0: it was cancelled before it began."""
        stats = self.stats
        return stats.seed if stats else 0

    @property
    def usage(self) -> Dict[str, Any]:
        """Token counts, as in OpenAI's API."""
        stats = self.stats
        prompt, generated, reused = (stats.n_prompt, stats.n_generated, stats.n_reused) if stats else (0, 0, 0)
        return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated,
                "prompt_tokens_details": {"cached_tokens": reused}}

    @property
    def notice(self) -> Optional[str]:
        """One line if a device was lost meanwhile, saying what the answer continued on."""
        return self._end().notice

    def __enter__(self) -> "Answer":
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def __del__(self) -> None:
        if hasattr(self, "_ending"):
            self.cancel()

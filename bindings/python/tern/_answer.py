"""An answer that is being generated."""
from __future__ import annotations

import asyncio
import html
import itertools
import queue
import uuid
from typing import Any, AsyncIterator, Dict, Generator, Iterator, List, Literal, Optional, Sequence

from ._engine import Ending, Engine, Job, Reason
from ._library import refuse
from ._messages import Function, Message, ToolCall
from ._parts import Part
from ._results import GenerateStats, TokenLogprob


class Answer(Iterator[str]):
    """A model's answer: pieces of whole characters as they are generated, or all of it: `text`.

    It is computed whether or not it is read, together with all other answers of the model. Each loop over it, in
    any thread or event loop, gets all pieces from the first; next() has a place of its own.

    >>> for piece in model.generate("Once upon a time"):
    ...     print(piece, end="", flush=True)
    >>> async for piece in model.generate("Once upon a time"):
    ...     await send(piece)
    >>> print((await model.generate("Once upon a time")).text)

    Ctrl-C while reading cancels it, and so does cancelling a task that waits for it; further leaving a `with`
    block, dropping the last reference, and cancel() from any thread. The properties wait for the end, except
    `logprobs`, which has the tokens of the pieces read so far; in an event loop await the answer first.
    """

    def __init__(self, engine: Engine, job: Job, owner: object, dropped: int = 0) -> None:
        self._engine, self._job, self._owner = engine, job, owner  # keeps the owner open meanwhile
        self._places = itertools.count()  # of next(), each given once
        self._n_read = 0
        self._id = uuid.uuid4().hex[:16]
        self.dropped = dropped  # number of oldest messages that did not fit the context

    # ---- Reading ---------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[str]:
        for at in itertools.count():
            self._wait(at + 1, self._job.pieces)
            if self._ends_at(at):
                return
            yield self._job.pieces[at].text

    def __next__(self) -> str:
        at = next(self._places)
        self._wait(at + 1, self._job.pieces)
        if self._ends_at(at):
            raise StopIteration
        return self._job.pieces[at].text

    def __aiter__(self) -> AsyncIterator[str]:
        return _AsyncPieces(self)

    def __await__(self) -> Generator[Any, None, "Answer"]:
        """Waits for the end, and gives the answer itself."""
        yield from self._wait_in_loop(None).__await__()
        self._end()
        return self

    def _wait(self, n: Optional[int], items: Sequence[object] = ()) -> None:
        """Returns when there are n pieces or parts (None: all), or no more will come."""
        if self._job.has(n, items):
            return
        news: "queue.SimpleQueue[None]" = queue.SimpleQueue()
        try:
            with self._job.listening(lambda: news.put(None)):
                while not self._job.has(n, items):
                    news.get()
        except BaseException:  # Ctrl-C
            self.cancel()
            raise

    async def _wait_in_loop(self, n: Optional[int]) -> None:
        """The same, while an event loop does other things."""
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def listener() -> None:
            try:
                loop.call_soon_threadsafe(news.set)
            except RuntimeError:  # the loop was closed: nobody waits
                pass
        try:
            with self._job.listening(listener):
                while not self._job.has(n, self._job.pieces):
                    await news.wait()
                    news.clear()
        except BaseException:  # the task was cancelled
            self.cancel()
            raise

    def _ends_at(self, at: int) -> bool:
        """Whether there is no piece at this place. If an error ended the answer, it is raised there."""
        if at < len(self._job.pieces):
            self._n_read = max(self._n_read, at + 1)
            return False
        ending = self._job.ending
        if ending is not None and ending.error is not None:
            raise ending.error
        return True

    def cancel(self) -> None:
        """Ends it within one step: the text so far stays, and the reason is "caller". From any thread."""
        if self._job.ending is None:
            self._engine.cancel(self._job)

    # ---- With tools ------------------------------------------------------------------------------

    def parts(self) -> Iterator[Part]:
        """Text, reasoning and tool calls as they arrive, for an answer of chat(tools=...)."""
        if self._job.splitter is None:
            refuse("an answer has parts if chat() got tools; Model.take_apart() has those of others")
        for at in itertools.count():
            self._wait(at + 1, self._job.parts)
            if at >= len(self._job.parts):
                self._end()  # which raises its error
                return
            yield self._job.parts[at]

    @property
    def tool_calls(self) -> List[ToolCall]:
        """The calls that are complete, in OpenAI's form."""
        self._end()
        names: Dict[int, str] = {}
        arguments: Dict[int, List[str]] = {}
        calls: List[ToolCall] = []
        for part in self._job.parts:
            if part.kind == "call":
                names[part.call] = part.text
            elif part.kind == "arguments":
                arguments.setdefault(part.call, []).append(part.text)
            elif part.kind == "call_end":
                called: Function = {"name": names[part.call], "arguments": "".join(arguments.get(part.call, ["{}"]))}
                calls.append({"id": self.call_id(part.call), "type": "function", "function": called})
        return calls

    def call_id(self, number: int) -> str:
        """The id of a tool call, unique among all answers."""
        return "call_%s_%d" % (self._id, number)

    @property
    def reasoning(self) -> str:
        """With tools: what the model thought before it answered."""
        self._end()
        return "".join(part.text for part in self._job.parts if part.kind == "reasoning")

    @property
    def message(self) -> Message:
        """The message to add to the conversation."""
        told: Message = {"role": "assistant", "content": self.text}
        if self.reasoning:
            told["reasoning_content"] = self.reasoning
        if self.tool_calls:
            told["tool_calls"] = self.tool_calls
        return told

    # ---- The whole -------------------------------------------------------------------------------

    def _end(self) -> Ending:
        self._wait(None)
        self._n_read = len(self._job.pieces)
        ending = self._job.ending
        assert ending is not None
        if ending.error is not None:
            raise ending.error
        return ending

    @property
    def text(self) -> str:
        """The whole text."""
        self._end()
        return "".join(piece.text for piece in self._job.pieces)

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return '<div style="white-space: pre-wrap">%s</div>' % html.escape(self.text)

    def __repr__(self) -> str:  # for debuggers, too: it does not wait
        said = "".join(piece.text for piece in list(self._job.pieces))
        return "<tern.Answer%s: %r>" % ("" if self._job.ending else " so far", said)

    @property
    def logprobs(self) -> List[TokenLogprob]:
        """With the option logprobs: those of the tokens of the pieces read so far."""
        pieces, n, ending = self._job.pieces, self._n_read, self._job.ending
        found = [token for piece in pieces[:n] for token in piece.logprobs]
        return found + list(ending.logprobs) if ending and n == len(pieces) else found

    @property
    def ids(self) -> List[int]:
        """The generated tokens, including an end token."""
        return self._end().ids

    @property
    def reason(self) -> Reason:
        """Why it ended: "end" (by the model), "length", "string", "context" (full), "caller" (cancelled)."""
        return self._end().reason

    @property
    def finish_reason(self) -> Literal["stop", "length", "tool_calls"]:
        """OpenAI's name for the reason: "stop", "length" or "tool_calls"."""
        if self.tool_calls:
            return "tool_calls"
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
        if hasattr(self, "_job"):
            self.cancel()


class _AsyncPieces:
    """One loop over an answer in an event loop."""

    def __init__(self, answer: Answer) -> None:
        self._answer, self._at = answer, 0

    def __aiter__(self) -> "_AsyncPieces":
        return self

    async def __anext__(self) -> str:
        at, self._at = self._at, self._at + 1
        await self._answer._wait_in_loop(at + 1)
        if self._answer._ends_at(at):
            raise StopAsyncIteration
        return self._answer._job.pieces[at].text

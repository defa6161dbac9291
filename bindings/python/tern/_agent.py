"""A model that calls tools until its task is done."""
from __future__ import annotations

import ctypes
import inspect
import json
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import _c as c
from ._library import Callbacks, Handle, decoded, lib, optional, refuse, text_member, text_of, utf8
from ._model import Model
from ._options import generate_params, real, whole
from ._session import Session

Run = Callable[..., Any]
EVENTS = {
    c.TERN_AGENT_NOTE: "note", c.TERN_AGENT_STEP: "step", c.TERN_AGENT_TEXT: "text",
    c.TERN_AGENT_REASONING: "reasoning", c.TERN_AGENT_MESSAGE: "message", c.TERN_AGENT_CALL: "call",
    c.TERN_AGENT_RESULT: "result", c.TERN_AGENT_SHORTENED: "shortened",
}


@dataclass(frozen=True)
class Tool:
    """A function that the model may call. It gets the arguments by name, and returns a text, or what JSON can say.
    An exception is a result, too: the model reads it."""

    run: Run
    name: str = ""  # "": the function's
    description: str = ""  # "": the first line of its docstring
    parameters: Optional[Mapping[str, Any]] = None  # a JSON Schema of an object; None: read from the function


@dataclass(frozen=True)
class AgentEvent:
    kind: str  # "note", "step", "text", "reasoning", "message", "call", "result", "shortened"
    text: str
    call: str = ""  # of call, result and shortened: the tool's name
    arguments: str = ""  # and its arguments, a JSON object
    failed: bool = False  # of result
    seconds: float = 0.0  # of message and result


@dataclass(frozen=True)
class AgentResult:
    text: str  # of the last answer
    end: str  # "finished", or the budget that is spent: "steps", "tokens", "time", "context"; "stopped": by on_event
    n_steps: int  # answers from the model
    n_calls: int
    n_failed: int  # of the calls
    n_shortened: int  # results
    n_prompt: int  # tokens that were computed
    n_generated: int
    seconds: float

    def __str__(self) -> str:
        return self.text


class Agent:
    """A model that calls tools until its task is done or a budget is spent (docs/agent.md).

    Tools are functions, Tool, or dicts in OpenAI's format with the function as "run". A call is constrained by the
    tool's schema while it is generated. options: temperature, seed and other samplers. For each number, 0 is the
    default. on_event gets each AgentEvent; returning False stops. Calls run in the thread that calls run(), or,
    from the main thread, in one of their own.

    >>> def weather(town: str) -> str:
    ...     "Says what the weather is like."
    ...     return "dry in " + town
    >>> with tern.Agent(model, [weather]) as agent:
    ...     print(agent.run("Do I need an umbrella in Ghent?"))
    """

    def __init__(self, model: Model, tools: Sequence[Union[Tool, Run, Mapping[str, Any]]], *, system: Optional[str] = None,
                 max_steps: int = 0, max_tokens: int = 0, max_seconds: float = 0, answer_tokens: int = 0,
                 result_bytes: int = 0, one_call: bool = False, must_call: bool = False,
                 on_event: Optional[Callable[[AgentEvent], Optional[bool]]] = None, session: Optional[Session] = None,
                 **options: Any) -> None:
        params = generate_params(options)
        self._callbacks, self._own = Callbacks(), session is None
        self._on_event, self._tools = on_event, [_tool(tool) for tool in tools]
        rows = (c.tern_agent_tool * max(1, len(self._tools)))()
        self._kept: List[Any] = [rows]
        for row, tool in zip(rows, self._tools):
            row.name, row.description = utf8(tool.name), optional(tool.description or None)
            row.parameters = utf8(json.dumps(tool.parameters)) if tool.parameters is not None else None
            row.run = c.tern_agent_tool_fn(self._runner(tool))
            self._kept.append(row.run)
        desc = c.tern_agent_desc(
            tools=rows, n_tools=len(self._tools), system=optional(system), sampling=params.sampling,
            max_steps=whole("max_steps", max_steps), max_tokens=whole("max_tokens", max_tokens),
            max_seconds=real("max_seconds", max_seconds, 0), answer_tokens=whole("answer_tokens", answer_tokens),
            result_bytes=whole("result_bytes", result_bytes), one_call=bool(one_call), must_call=bool(must_call),
            on_event=c.tern_agent_event_fn(self._callbacks.guarded(self._take_event)))
        self._kept.append(desc)
        self.session = model.session() if session is None else session
        out = ctypes.POINTER(c.tern_agent)()
        with self.session._lock, self.session._free() as pointer:
            lib.tern_agent_open(ctypes.byref(out), pointer, ctypes.byref(desc))
        self._handle = Handle(out, lib.tern_agent_close, self.session._handle)

    def run(self, task: str) -> AgentResult:
        """Does a task. If it has run before, the task continues that conversation, with a new budget."""
        told, callbacks = c.tern_agent_result(), self._callbacks
        callbacks.error, callbacks.stopped = None, False
        with self.session._lock, self.session._free(), self._handle as agent:
            callbacks.run(lib.tern_agent_run, agent, utf8(task), ctypes.byref(told))
            text = decoded((told.answer or b"")[:told.n_bytes])
        return AgentResult(text, decoded(lib.tern_agent_end_name(told.end)), told.n_steps, told.n_calls, told.n_failed,
                           told.n_shortened, told.n_prompt, told.n_generated, told.seconds)

    @property
    def messages(self) -> List[Dict[str, Any]]:
        """The conversation so far, as the model reads it."""
        with self._handle as agent:
            return list(json.loads(text_of(lib.tern_agent_messages, agent)))

    def close(self) -> None:
        """Frees it, and its session, if that is its own."""
        self._handle.close()
        if self._own:
            self.session.close()

    def __enter__(self) -> "Agent":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- Called by the library -------------------------------------------------------------------

    def _runner(self, tool: Tool) -> Callable[..., bool]:
        """tern_agent_tool_fn. What is not an Exception, such as Ctrl-C, ends the run."""
        def run(_user: Any, call: Any, put: Any, put_user: Any) -> bool:
            try:
                try:
                    told, worked = tool.run(**json.loads(decoded(call[0].arguments))), True
                    text = told if isinstance(told, str) else json.dumps(told)
                except Exception as error:
                    text, worked = "%s: %s" % (type(error).__name__, error), False
                raw = text.encode("utf-8", "replace")
                put(put_user, raw, len(raw))
                return worked
            except BaseException as error:
                self._callbacks.error = self._callbacks.error or error
                return False
        return run

    def _take_event(self, _user: Any, event: Any) -> Optional[bool]:
        e = event[0]
        if self._callbacks.error is not None:
            return False
        if self._on_event is None or e.kind not in EVENTS:
            return None
        call = e.call[0] if e.call else None
        text = text_member(e, "text", e.n_bytes)
        name, arguments = (decoded(call.name), decoded(call.arguments)) if call is not None else ("", "")
        return self._on_event(AgentEvent(EVENTS[e.kind], text, name, arguments, e.failed, e.seconds))


# By the annotation, or by its text (from __future__ import annotations).
TYPES: Dict[Any, str] = {}
for _kind, _name in ((str, "string"), (int, "integer"), (float, "number"), (bool, "boolean"), (list, "array"), (dict, "object")):
    TYPES[_kind] = TYPES[_kind.__name__] = _name


def _tool(given: Any) -> Tool:
    """A Tool with everything."""
    if isinstance(given, Mapping):
        function: Mapping[str, Any] = given.get("function", given)
        run = given.get("run", function.get("run"))
        given = Tool(run, function.get("name", ""), function.get("description", ""), function.get("parameters", {}))
    tool = given if isinstance(given, Tool) else Tool(given)
    if not callable(tool.run):
        refuse("a tool is a function, a tern.Tool, or a dict with its function as \"run\", not %r" % (given,))
    name = tool.name or getattr(tool.run, "__name__", "")
    description = tool.description or (inspect.getdoc(tool.run) or "").split("\n\n")[0]
    return Tool(tool.run, name, description, _schema(tool.run) if tool.parameters is None else tool.parameters)


def _schema(run: Run) -> Dict[str, Any]:
    """A JSON Schema of a function's arguments, by their annotations."""
    properties: Dict[str, Any] = {}
    required = []
    for name, parameter in inspect.signature(run).parameters.items():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            refuse("the arguments of %s are not all named: give the tool's parameters" % getattr(run, "__name__", run))
        kind = TYPES.get(parameter.annotation)
        properties[name] = {"type": kind} if kind else {}
        if parameter.default is parameter.empty:
            required.append(name)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

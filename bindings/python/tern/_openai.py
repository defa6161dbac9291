"""Answers in the shape of OpenAI's chat completions."""
from __future__ import annotations

import time
import uuid
from typing import Any, Dict, Iterator, List, Mapping, Optional

from ._answer import Answer
from ._library import refuse
from ._results import ModelInfo, TokenLogprob


def options_of(request: Mapping[str, Any]) -> Dict[str, Any]:
    """The options of chat() in a request."""
    options = {key: value for key, value in request.items() if key not in ("tools", "tool_choice") and value is not None}
    most = options.pop("max_completion_tokens", None)
    if most is not None:
        options["max_tokens"] = most
    grammar = _grammar_of(options.pop("response_format", None))
    return dict(options, grammar=grammar) if grammar else options


def _grammar_of(form: Optional[Mapping[str, Any]]) -> Optional[Dict[str, Any]]:
    kind = "text" if form is None else form.get("type") if isinstance(form, Mapping) else form
    if kind == "text":
        return None
    if kind == "json_object":
        return {"json": True}
    named = form.get("json_schema") if isinstance(form, Mapping) and kind == "json_schema" else None
    if isinstance(named, Mapping) and "schema" in named:
        return {"schema": named["schema"]}
    return refuse('response_format is {"type": "text"}, {"type": "json_object"} or {"type": "json_schema", '
                  '"json_schema": {"schema": ...}}, not %r' % (form,))


def completion_of(answer: Answer, info: ModelInfo) -> Dict[str, Any]:
    """The whole answer."""
    message: Dict[str, Any] = dict(answer.message)
    if answer.tool_calls and not message["content"]:
        message["content"] = None
    choice = _choice({"message": message}, answer.finish_reason, answer.logprobs)
    return dict(_head("chat.completion", info), choices=[choice], usage=answer.usage)


def chunks_of(answer: Answer, info: ModelInfo) -> Iterator[Dict[str, Any]]:
    """The answer's parts as they arrive; the last chunk has the reason and the usage."""
    head = _head("chat.completion.chunk", info)
    with answer:  # a stream that is closed cancels it
        yield dict(head, choices=[_choice({"delta": {"role": "assistant", "content": ""}}, None)])
        for part in answer.parts():
            delta: Dict[str, Any]
            if part.kind in ("text", "reasoning"):
                delta = {"content" if part.kind == "text" else "reasoning_content": part.text}
            elif part.kind == "call":
                delta = {"tool_calls": [{"index": part.call, "id": answer.call_id(part.call), "type": "function",
                                         "function": {"name": part.text, "arguments": ""}}]}
            elif part.kind == "arguments":
                delta = {"tool_calls": [{"index": part.call, "function": {"arguments": part.text}}]}
            else:
                continue
            yield dict(head, choices=[_choice({"delta": delta}, None)])
        yield dict(head, choices=[_choice({"delta": {}}, answer.finish_reason, answer.logprobs)], usage=answer.usage)


def _head(kind: str, info: ModelInfo) -> Dict[str, Any]:
    return {"id": "chatcmpl-" + uuid.uuid4().hex, "object": kind, "created": int(time.time()), "model": info.name or info.path}


def _choice(said: Dict[str, Any], reason: Optional[str], tokens: List[TokenLogprob] = []) -> Dict[str, Any]:
    likely = {"content": [dict(_likely(t), top_logprobs=[_likely(other) for other in t.top]) for t in tokens]} if tokens else None
    return dict(said, index=0, finish_reason=reason, logprobs=likely)


def _likely(token: TokenLogprob) -> Dict[str, Any]:
    return {"token": token.text, "logprob": token.logprob, "bytes": list(token.bytes)}

"""Messages of a conversation, in the forms that people write them, and in the library's."""
from __future__ import annotations

import base64
import ctypes
import json
from typing import Any, Dict, List, Literal, Mapping, Optional, Sequence, Tuple, TypedDict, Union

from . import _c as c
from ._images import Image, pointers, tokens_handle
from ._library import Handle, lib, refuse, utf8

Messages = Union[str, Sequence[Mapping[str, Any]]]
Tools = Sequence[Mapping[str, Any]]
ToolChoice = Union[Literal["auto", "none", "required"], Mapping[str, Any]]


class Function(TypedDict):
    """What a tool call calls."""

    name: str
    arguments: str  # a JSON object


class ToolCall(TypedDict):
    """A call of a tool, in OpenAI's form."""

    id: str
    type: Literal["function"]
    function: Function


class _Message(TypedDict):
    role: str  # "system", "user", "assistant", "tool"
    content: Union[str, List[Dict[str, Any]], None]  # a text, or parts; None beside tool calls


class Message(_Message, total=False):
    """One message of a conversation, as OpenAI has them."""

    images: Sequence[Image]  # before the text
    reasoning_content: str
    tool_calls: List[ToolCall]
    tool_call_id: str


def plain(messages: Messages) -> List[Dict[str, Any]]:
    """Messages in one form: contents are texts or, with images, parts {"type": "image"} and {"type": "text"} in
    their order; "images" has the images of both forms."""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    if isinstance(messages, (Mapping, bytes)):
        refuse("messages is a list of messages, or the user's text, and no single mapping")
    return [_plain(message, "messages[%d]" % i) for i, message in enumerate(messages)]


def _plain(message: Mapping[str, Any], where: str) -> Dict[str, Any]:
    if not isinstance(message, Mapping):
        refuse("%s must be a mapping with a role and a content, not %r" % (where, type(message).__name__))
    role, content = message.get("role"), message.get("content")
    if content is None and message.get("tool_calls"):
        content = ""
    if not isinstance(role, str) or not isinstance(content, (str, list, tuple)):
        refuse('%s must have a "role" and a "content", a text or a list of parts' % where)
    images, parts = list(message.get("images") or ()), []
    if not isinstance(content, str):
        parts = [_part(part, "%s, part %d" % (where, i)) for i, part in enumerate(content)]
        shown = [part.pop("image") for part in parts if "image" in part]
        if images and shown:
            refuse("%s has images beside its parts: put them among these" % where)
        images += shown
        content = parts if shown else "".join(part["text"] for part in parts)
    rest = {key: value for key, value in message.items() if key != "images" and value is not None}
    return dict(rest, content=content, **({"images": images} if images else {}))


def _part(part: Any, where: str) -> Dict[str, Any]:
    """A text, or an image with the image itself as "image"."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    if kind in ("text", "input_text", "output_text", "refusal") and isinstance(part.get(kind, part.get("text")), str):
        return {"type": "text", "text": part.get(kind, part.get("text"))}
    if kind in ("image_url", "input_image"):
        url = part.get("image_url")
        return {"type": "image", "image": _of_url(url.get("url") if isinstance(url, Mapping) else url, where)}
    if kind == "image" and part.get("image", part.get("path")) is not None:
        return {"type": "image", "image": part.get("image", part.get("path"))}
    return refuse("%s is %r: there are text, image_url and image" % (where, kind))


def _of_url(url: Any, where: str) -> Image:
    if not isinstance(url, str):
        refuse("%s has no url" % where)
    scheme, colon, rest = url.partition(":")
    if scheme == "data" and colon:
        head, _, data = rest.partition(",")
        try:
            return base64.b64decode(data, validate=True) if head.endswith(";base64") else refuse("%s: a data: URL must be base64" % where)
        except ValueError as error:
            refuse("%s: %s" % (where, error))
    if scheme in ("http", "https"):
        refuse("%s: %s is not downloaded: pass the image's path or its bytes" % (where, url[:80]))
    return rest[2:] if scheme == "file" and rest.startswith("//") else url


def is_simple(message: Mapping[str, Any]) -> bool:
    """Whether a tern_message can say it."""
    return set(message) <= {"role", "content", "images"} and isinstance(message["content"], str)


def messages_array(messages: Sequence[Mapping[str, Any]]) -> Any:
    """tern_message[n] of simple ones."""
    array = (c.tern_message * len(messages))()
    for row, message in zip(array, messages):
        row.role, row.content = utf8(message["role"]), utf8(message["content"])
    return array


def request_json(messages: Sequence[Mapping[str, Any]], tools: Optional[Tools], generate: bool, switches: Mapping[str, Any]) -> bytes:
    """What tern_chat_format_json reads."""
    try:
        return json.dumps(dict(switches, messages=[_with_places(m) for m in messages], tools=list(tools or ()),
                               add_generation_prompt=generate)).encode()
    except (TypeError, ValueError) as error:
        refuse("the messages or tools are no JSON: %s" % error)


def _with_places(message: Mapping[str, Any]) -> Dict[str, Any]:
    """A message in the form of chat templates, with one part per image."""
    rest = {key: value for key, value in message.items() if key != "images"}
    images = message.get("images") or ()
    if not images or not isinstance(rest["content"], str):
        return rest
    return dict(rest, content=[{"type": "image"}] * len(images) + [{"type": "text", "text": rest["content"]}])


# ---- Images --------------------------------------------------------------------------------------


class MessageImages:
    """The encoded images of messages, to be kept until their ids are in a session."""

    def __init__(self, model: Handle, messages: Sequence[Mapping[str, Any]]) -> None:
        self.of_messages = [[tokens_handle(model, image) for image in m.get("images") or ()] for m in messages]
        self._lists: List[Any] = []

    def show(self, array: Any) -> None:
        """Puts them into tern_message[n]."""
        for images, row in zip(self.of_messages, array):
            if images:
                self._lists.append(pointers(images))
                row.images, row.n_images = self._lists[-1], len(images)

    def all(self) -> Tuple[Any, int]:
        """tern_image_tokens *[n] and n, for a request in JSON."""
        images = [image for images in self.of_messages for image in images]
        self._lists.append(pointers(images))
        return self._lists[-1], len(images)

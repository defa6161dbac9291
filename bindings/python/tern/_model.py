"""An open model."""
from __future__ import annotations

import contextlib
import ctypes
import json
import os
import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, Literal, Mapping, Optional, Sequence, Tuple, Union, TYPE_CHECKING

from . import _c as c
from ._answer import Answer
from ._arrays import free, inputs_array, int32_array, numpy_for, optional_float, outputs_array, pointer, taken
from ._callbacks import Bytes, OnLog, OnProgress, log_callback
from ._engine import Asked, Engine, token_logprob, token_piece
from ._grammar import Grammar, choice_arguments, grammar_arguments
from ._library import (
    Callbacks, Handle, Ids, Path, choice, decoded, encoded, from_struct, ids_array, lib, optional, refuse, text_of,
    token_id, utf8,
)
from ._options import (
    HEAD, KV, MATMUL_PRECISION, POOLING, TERNARY, THINKING, GenerateOptions, Head, Kv, LorasOption, MatmulPrecision, Pooling, SpeculateOption, Ternary, Thinking, WebGpu, embed_params,
    embed_texts, generate_params, loras_array, raw_text, session_desc, webgpu_desc, whole,
)
from ._messages import (
    MessageImages, Messages, ToolChoice, Tools, is_simple, messages_array, plain, request_json,
)
from ._openai import chunks_of, completion_of, options_of
from ._metadata import Metadata
from ._parts import Part, Splitter, parts_of
from ._images import Image, ImageEncoder, ImageTokens, Images, Label, image_encoder, image_tokens, listed, pointers, tokens_handle
from ._results import DeviceMemory, EmbeddingInfo, InfillInfo, MediaInfo, ModelInfo, TokenLogprob
from ._session import Session
from ._sounds import Transcriber, OnSegment, Read, Sound, Transcript, params_of, segment_of

if TYPE_CHECKING:
    import numpy
    import numpy.typing
    from typing_extensions import Unpack

Tokens = Union[str, Ids]


class Model:
    """A model: a .gguf file (the first of a split set), its bytes, or a Hugging Face folder.

    Bytes (bytes, mmap, memoryview) must not change while it is open; those that do not begin at a multiple of 64, as
    a mapping does, are copied.

    Any number of threads may use it at a time. One thread of its own computes its answers, in shared steps.
    Close it with close() or `with`; running answers then end with a TernError "closed".

    device          "cpu", "webgpu", "auto"
    context         tokens of a conversation; None: the model's training context, at most 8192
    threads         0: one per core
    kv              type of the key/value cache: "auto", "f32", "f16", "q8_0", "q4_0" (on the CPU)
    batch           prompt tokens per batch, 0: 512
    ternary, head   how weights are stored: "auto", "2bit", "1.6bit"; "auto", "file", "exact", "q8_0", ...
    precise         keep activations in float where weights are quantized in groups
    matmul_precision  "exact", or "half": how a GPU with matrix units multiplies such weights in prompts
    thinking        "auto", "on", "off", for models that can think before answering
    chat_template   a Jinja template that replaces the file's
    pooling         "mean", "last", "cls": makes an embedding model of a decoder whose files name no pooling
    vocab_only      only tokenizer and template
    cpu_features    at most these: "scalar", "avx2", "avx512", "amx", "neon", "dotprod", "i8mm"
    loras           adapters, one or a list: a path, (path, scale), Lora
    loras_by_session   session(lora_scales=[...]) chooses among them, instead of all together
    mmproj          the vision part of a GGUF, a path or bytes; None: mmproj*.gguf beside it, "": text only
    webgpu          WebGpu
    speculate       speculation: the same text, often sooner. True, or Speculation
    sessions        conversations that stay in the cache, so that their next turn starts at once
    parallel        answers computed at the same time; more wait
    on_progress     gets a phase and 0..1; returning False stops the opening
    on_log          gets a level ("debug", "info", "warn") and a line: what was opened, what answers took, what is
                    not as one would expect. From any thread
    """

    def __init__(
        self, path: Union[Path, bytes, bytearray, memoryview, Any], *, device: str = "cpu", context: Optional[int] = None, threads: int = 0, kv: Kv = "auto",
        batch: int = 0, ternary: Ternary = "auto", head: Head = "auto", precise: bool = False,
        matmul_precision: MatmulPrecision = "exact", thinking: Thinking = "auto",
        chat_template: Optional[str] = None, pooling: Pooling = "none", vocab_only: bool = False,
        cpu_features: Optional[str] = None, loras: LorasOption = (), loras_by_session: bool = False,
        webgpu: Optional[WebGpu] = None, speculate: SpeculateOption = False, sessions: int = 4, parallel: int = 16,
        on_progress: Optional[OnProgress] = None, mmproj: Union[Path, bytes, None] = None, on_log: Optional[OnLog] = None,
    ) -> None:
        callbacks = Callbacks()
        adapters = loras_array(loras)
        desc = c.tern_model_desc(
            device=utf8(device), n_threads=whole("threads", threads), n_batch=whole("batch", batch),
            ternary=choice("ternary", ternary, TERNARY), precise=precise, matmul_precision=choice("matmul_precision", matmul_precision, MATMUL_PRECISION),
            head=choice("head", head, HEAD),
            chat_template=optional(chat_template), thinking=choice("thinking", thinking, THINKING),
            pooling=choice("pooling", pooling, POOLING), vocab_only=vocab_only, cpu_features=optional(cpu_features),
            loras=adapters, n_loras=len(adapters), loras_by_session=loras_by_session,
            on_progress=callbacks.progress(on_progress), on_log=log_callback(on_log))
        kept = [desc.on_log]  # as long as the model
        for name, source in (("bytes", path), ("mmproj_bytes", mmproj)):
            if (name == "bytes" or source is not None) and not isinstance(source, (str, os.PathLike)):
                kept.append(Bytes(source))
                setattr(desc, name, kept[-1].struct)
        desc.mmproj = encoded(mmproj) if isinstance(mmproj, (str, os.PathLike)) else None
        where = encoded(path) if isinstance(path, (str, os.PathLike)) else None
        desc.webgpu = ctypes.pointer(webgpu_desc(webgpu))
        out = ctypes.POINTER(c.tern_model)()
        try:
            callbacks.run(lib.tern_model_open, ctypes.byref(out), where, ctypes.byref(desc))
        except BaseException:
            lib.tern_model_close(out)  # Ctrl-C may come when it is already open
            raise
        self._handle = Handle(out, lib.tern_model_close)
        self._handle.kept = kept
        self._timelines: "weakref.WeakSet[Session]" = weakref.WeakSet()
        self._how: Dict[str, Any] = {"context": context, "kv": kv, "shift": False, "keep": 0, "speculate": speculate}
        session_desc(**self._how)  # wrong options are found here
        self._n_context = 0
        self._make_engine(whole("parallel", parallel, 1), whole("sessions", sessions))

    def _make_engine(self, parallel: int, sessions: int) -> None:
        handle, how = self._handle, self._how  # not the model: the engine's thread would keep it
        self._engine = Engine(handle, lambda: open_session(handle, **how), self.info.kv_bytes_per_token, parallel, sessions)
        weakref.finalize(self, self._engine.stop, False).atexit = False

    # ---- What it is ------------------------------------------------------------------------------

    @property
    def info(self) -> ModelInfo:
        """The current state: the device and its memory change."""
        info = c.tern_model_info()
        with self._handle as model:
            lib.tern_model_get_info(model, ctypes.byref(info))
            plain = {name: getattr(info, name) for name in ModelInfo.__dataclass_fields__}
            for name, value in plain.items():
                if isinstance(value, bytes):
                    plain[name] = decoded(value)
            for name in ("temperature", "top_p", "min_p", "repeat_penalty"):
                plain[name] = optional_float(plain[name])
            plain["top_k"] = None if info.top_k < 0 else info.top_k
            plain["device_memory"] = from_struct(DeviceMemory, info.device_memory)
            return ModelInfo(**plain)

    @property
    def metadata(self) -> Metadata:
        """What its file says about itself, by key."""
        return Metadata(self._handle)

    @property
    def context(self) -> int:
        """Tokens of a conversation."""
        if not self._n_context:
            with self.session() as session:
                self._n_context = session.context
        return self._n_context

    def graph(self, name: Optional[str] = None, form: Literal["text", "json", "dot"] = "text") -> str:
        """A graph of the model (None: all) after each pass: as "text", "json" or "dot"."""
        return self._report(lib.tern_graph_report, name, form)

    def _report(self, function: Any, graph: Optional[str], form: str) -> str:
        forms = (("text", c.TERN_FORMAT_TEXT), ("json", c.TERN_FORMAT_JSON), ("dot", c.TERN_FORMAT_DOT))
        with self._handle as model:
            return text_of(function, model, optional(graph), choice("form", form, forms)).decode("utf-8", "replace")

    # ---- Text and tokens -------------------------------------------------------------------------

    def tokenize(self, text: str, *, special: bool = False, bos: bool = True) -> List[int]:
        """Token ids. special: names of special tokens become those tokens. bos: begin as the tokenizer does."""
        flags = (c.TERN_TOKENIZE_SPECIAL if special else 0) | (c.TERN_TOKENIZE_BOS if bos else 0)
        raw = raw_text("the text", text)
        with self._handle as model:
            return _with_room(len(raw) + 16, lambda ids: lib.tern_tokenize(model, raw, len(raw), flags, ids))

    def detokenize(self, ids: Ids, *, special: bool = False) -> str:
        """The text of ids. special: include the names of control tokens."""
        array = ids_array(ids)
        given = c.tern_ids(array, len(array), len(array))
        with self._handle as model:
            return text_of(lib.tern_detokenize, model, ctypes.byref(given), special).decode("utf-8", "replace")

    def count_tokens(self, text: Messages) -> int:
        """Number of tokens of a text, or of messages with all that the chat template adds."""
        return len(self.tokenize(text) if isinstance(text, str) else self._asked(text, {}, 0).ids)

    def token_piece(self, token: int) -> bytes:
        """The bytes that a token adds in the middle of a text: perhaps part of a character."""
        return token_piece(self._handle, token)

    def rank_logprobs(self, logits: "numpy.typing.ArrayLike", token: int, top_logprobs: int = 0) -> TokenLogprob:
        """ln p of a token, and of the most likely ones in its place, from a row of Session.logits."""
        np = numpy_for("Model.rank_logprobs")
        row = np.ascontiguousarray(logits, dtype=np.float32)
        if row.ndim != 1:
            refuse("the logits have %d dimensions; one row of them is expected" % row.ndim)
        top = whole("top_logprobs", top_logprobs, 0, row.size)
        out = (c.tern_token_logprob * (1 + top))()
        Callbacks().run(lib.tern_rank_logprobs, pointer(row, ctypes.c_float), row.size, token_id(token), out, len(out))
        return token_logprob(self._handle, list(out))

    def token_text(self, token: int) -> Optional[bytes]:
        """The vocabulary entry, as stored; None: no such id."""
        n, token = ctypes.c_size_t(), token_id(token)
        with self._handle as model:
            text = lib.tern_token_text(model, token, ctypes.byref(n))
            return ctypes.string_at(text, n.value) if text else None

    def token_is_end(self, token: int) -> bool:
        """Whether it ends a turn or a text."""
        token = token_id(token)
        with self._handle as model:
            return bool(lib.tern_token_is_end(model, token))

    @property
    def infill(self) -> InfillInfo:
        """The tokens for filling in between two texts."""
        info = c.tern_infill_info()
        with self._handle as model:
            lib.tern_model_get_infill_info(model, ctypes.byref(info))
        return from_struct(InfillInfo, info)

    def format(self, messages: Messages, *, generate: bool = True, tools: Optional[Tools] = None,
               **switches: Any) -> str:
        """Renders messages with the chat template. generate: end with the text that starts the model's answer.
        tools: functions in OpenAI's format; messages may then have "tool_calls" and "tool_call_id". switches:
        other variables of the template, such as enable_thinking."""
        return self._rendered(plain(messages), tools, generate, switches)

    def _rendered(self, rows: Sequence[Mapping[str, Any]], tools: Optional[Tools] = None, generate: bool = True,
                  switches: Mapping[str, Any] = {}) -> str:
        if generate and not (tools or switches) and all(is_simple(m) and "images" not in m for m in rows):
            array = messages_array(rows)
            with self._handle as model:
                return text_of(lib.tern_chat_format, model, array, len(array)).decode("utf-8", "replace")
        raw = request_json(rows, tools, generate, switches)
        with self._handle as model:
            return text_of(lib.tern_chat_format_json, model, raw, len(raw)).decode("utf-8", "replace")

    def take_apart(self, pieces: Iterable[str], *, prompt: Optional[str] = None,
                   tools: Optional[Tools] = None) -> Iterator[Part]:
        """An answer's text, reasoning and tool calls as they arrive. prompt: the text before it, from format().
        tools: those of the request; without them calls are text.

        >>> prompt = model.format(messages, tools=tools)
        >>> answer = model.generate(model.tokenize(prompt, special=True, bos=False), with_special=True)
        >>> for part in model.take_apart(answer, prompt=prompt, tools=tools):
        ...     print(part.kind, part.text)
        """
        return parts_of(Splitter(self._handle, prompt, tools), pieces)

    def _ids(self, prompt: Tokens, begins: bool = True) -> Sequence[int]:
        return self.tokenize(prompt, special=True, bos=begins) if isinstance(prompt, str) else list(ids_array(prompt))

    def _simple_ids(self, rows: Sequence[Mapping[str, Any]], images: MessageImages, context: int, answer: int) -> Tuple[List[int], int]:
        """The ids of a conversation without its oldest turns that do not fit, and how many messages these are."""
        array, dropped = messages_array(rows), ctypes.c_size_t()
        limits = c.tern_chat_limits(n_context=context, n_answer=answer, n_dropped=ctypes.pointer(dropped))
        images.show(array)
        with self._handle as model:
            ids = _with_room(1024, lambda ids: lib.tern_chat_tokens(model, array, len(array), ctypes.byref(limits), ids))
        return ids, dropped.value

    def _request_ids(self, request: bytes, images: MessageImages, context: int, answer: int) -> Tuple[List[int], int]:
        """The same for a request in JSON."""
        dropped = ctypes.c_size_t()
        limits = c.tern_chat_limits(n_context=context, n_answer=answer, n_dropped=ctypes.pointer(dropped))
        asked = c.tern_chat_request(json=request, n_bytes=len(request))
        asked.images, asked.n_images = images.all()
        with self._handle as model:
            ids = _with_room(1024, lambda ids: lib.tern_chat_tokens_json(model, ctypes.byref(asked), ctypes.byref(limits), ids))
        return ids, dropped.value

    def _asked(self, messages: Messages, options: Mapping[str, Any], context: int, tools: Optional[Tools] = None,
               tool_choice: ToolChoice = "auto", split: bool = False) -> Asked:
        """What chat() asks. split: take the answer apart even without tools."""
        rows, tools = plain(messages), None if tool_choice == "none" else tools
        images = MessageImages(self._handle, rows)
        answer = whole("max_tokens", options.get("max_tokens") or 0)
        if not tools and all(map(is_simple, rows)):
            ids, dropped = self._simple_ids(rows, images, context, answer)
            prompt = self._rendered(rows) if split else ""
        else:
            prompt = self._rendered(rows, tools)
            ids, dropped = self._request_ids(request_json(rows, tools, True, {}), images, context, answer)
        if not (tools or split):
            return Asked(ids, self._params(options), dropped, images)
        options = dict(options, with_special=True)
        if tools and tool_choice != "auto":
            if options.get("grammar") is not None:
                refuse("a grammar and a tool_choice: an answer is either")
            options["grammar"] = Grammar(self, tools=tools, prompt=prompt, **choice_arguments(tool_choice))
        return Asked(ids, self._params(options), dropped, images, Splitter(self._handle, prompt, tools))

    # ---- Answers ---------------------------------------------------------------------------------

    def generate(self, prompt: Tokens, **options: "Unpack[GenerateOptions]") -> Answer:
        """Continues a text, in which names of special tokens are recognised, or tokens, used as they are.

        Returns at once: the Answer is computed in the background, together with others. GenerateOptions has the
        options.
        """
        return self._answer(Asked(self._ids(prompt), self._params(options)))

    def chat(self, messages: Messages, *, tools: Optional[Tools] = None, tool_choice: ToolChoice = "auto",
             **options: "Unpack[GenerateOptions]") -> Answer:
        """Answers the last of the messages ({"role": ..., "content": ...}, or just the user's text), using the
        model's template. For a model that sees, contents may be lists of parts, {"type": "text", "text": ...}
        and {"type": "image_url", "image_url": {"url": ...}} (a data: URL, or a file) or {"type": "image",
        "image": ...}; or a message has "images", which come before its text: [...], each a file, its bytes, or
        an array of uint8 [height, width, 3].

        tools: functions in OpenAI's format. The answer's text is then without reasoning and calls, which
        Answer.reasoning and tool_calls have; Answer.message goes into the conversation, and results of calls
        as {"role": "tool", "tool_call_id": ..., "content": ...}. tool_choice: "auto", "none", "required", or one
        function: {"function": {"name": ...}}.

        The oldest turns that leave no room for the answer are left out, with their images: Answer.dropped. Otherwise
        like generate()."""
        return self._answer(self._asked(messages, options, self.context, tools, tool_choice))

    def create_chat_completion(self, messages: Messages, *, stream: bool = False, **request: Any) -> Any:
        """The same in the shape of OpenAI's API: a dict, or with stream=True an iterator of chunks. Takes
        tools, tool_choice, response_format, max_completion_tokens, and the options of chat(), which has what
        this shape does not: use it if there is a choice."""
        asked = self._asked(messages, options_of(request), self.context, request.get("tools"),
                            request.get("tool_choice") or "auto", split=True)
        answer = self._answer(asked)
        return chunks_of(answer, self.info) if stream else completion_of(answer, self.info)

    def _params(self, options: Mapping[str, Any]) -> c.tern_generate_params:
        grammar = options.get("grammar")
        if isinstance(grammar, Mapping):
            options = dict(options, grammar=Grammar(self, **grammar_arguments(grammar)))
        return generate_params(options)

    def _answer(self, asked: Asked) -> Answer:
        if asked.params.append:
            refuse("append: Model.session() has a timeline that a prompt can follow")
        job = asked.job()
        self._engine.submit(job)
        return Answer(self._engine, job, (self, asked.images), asked.dropped)

    def session(self, *, context: Optional[int] = None, kv: Optional[Kv] = None, shift: bool = False, keep: int = 0,
                speculate: Optional[SpeculateOption] = None, profile: bool = False,
                lora_scales: Optional[Sequence[float]] = None) -> Session:
        """A timeline that you control yourself. Options left out are the model's.

        shift: when the context is full, drop the oldest half after the first `keep` (4) tokens. profile: time
        each kernel; such a session accepts only tokens (sync, logits, logprobs). lora_scales: one for each adapter of a
        model with loras_by_session, 0: not applied."""
        how = dict(self._how, shift=shift, keep=keep, profile=profile, lora_scales=lora_scales)
        given = {"context": context, "kv": kv, "speculate": speculate}
        how.update({name: value for name, value in given.items() if value is not None})
        return self._adopt(open_session(self._handle, **how))

    def _adopt(self, handle: Handle) -> Session:
        session = Session(self, handle)
        self._timelines.add(session)
        return session

    # ---- Embeddings ------------------------------------------------------------------------------

    @property
    def embedding(self) -> EmbeddingInfo:
        """About its vectors; n_dims is 0 if it does not embed."""
        info = c.tern_embedding_info()
        with self._handle as model:
            lib.tern_embedding_get_info(model, ctypes.byref(info))
            return EmbeddingInfo(
                info.n_dims, info.max_length, next(name for name, number in POOLING if number == info.pooling),
                info.any_length, info.n_labels, {decoded(p.name): decoded(p.text) for p in info.prompts[:info.n_prompts]},
                decoded(info.default_prompt) if info.default_prompt else None)

    def embed(self, texts: Union[str, Sequence[Tokens]], *, prompt: Optional[str] = None, prefix: Optional[str] = None,
              max_length: int = 0, dimensions: int = 0, step: int = 0, kv: Kv = "auto",
              on_progress: Optional[OnProgress] = None) -> "numpy.ndarray[Any, Any]":
        """float32 [n, dimensions] for texts (or their tokens), [dimensions] for one text.

        prompt: name of one of the model's prompts, None: its default, "": none. prefix: a text in place of it.
        max_length: of a text in tokens, 0: the model's; the rest is cut off. dimensions: leading dimensions to
        keep, normalized again, 0: all. step: tokens per step, 0: 2048. A vector has the same bits whatever is
        computed beside it.
        """
        np = numpy_for("Model.embed")
        alone = isinstance(texts, str)
        array = embed_texts([texts] if isinstance(texts, str) else texts)
        n_dims = self.embedding.n_dims
        if n_dims == 0:
            refuse("%s makes no vectors" % self.info.path, "unsupported")
        params, callbacks = embed_params(prompt, prefix, max_length, dimensions, step, kv), Callbacks()
        params.on_progress = callbacks.progress(on_progress)
        out = np.empty((len(array), min(dimensions, n_dims) or n_dims), np.float32)
        with self._handle as model:
            callbacks.run(lib.tern_embed, model, array, len(array), ctypes.byref(params), pointer(out, ctypes.c_float))
        return out[0] if alone else out  # type: ignore[no-any-return]

    def rerank(self, query: str, documents: Sequence[str], *, instruction: Optional[str] = None, max_length: int = 0,
               step: int = 0, kv: Kv = "auto", on_progress: Optional[OnProgress] = None) -> "numpy.ndarray[Any, Any]":
        """float32 [n]: how well documents answer a query. instruction: for a decoder, what counts as an answer."""
        np = numpy_for("Model.rerank")
        array, raw = embed_texts(documents), raw_text("the query", query)
        callbacks = Callbacks()
        params = c.tern_rerank_params(query=raw, n_bytes=len(raw), instruction=optional(instruction),
                                      max_length=whole("max_length", max_length), n_step=whole("step", step),
                                      kv_type=choice("kv", kv, KV), on_progress=callbacks.progress(on_progress))
        out = np.empty(len(array), np.float32)
        with self._handle as model:
            callbacks.run(lib.tern_rerank, model, array, len(array), ctypes.byref(params), pointer(out, ctypes.c_float))
        return out  # type: ignore[no-any-return]

    # ---- Images and sound ----------------------------------------------------------------------

    @property
    def media(self) -> MediaInfo:
        """What the model does with images and sound."""
        info = c.tern_media_info()
        with self._handle as model:
            lib.tern_model_get_media_info(model, ctypes.byref(info))
        return from_struct(MediaInfo, info)


    def labels(self) -> List[str]:
        """The names of what it recognises in images."""
        n = self.media.n_labels
        with self._handle as model:
            return [decoded(lib.tern_model_label(model, i)) for i in range(n)]

    def classify(self, images: Union[Image, Sequence[Image]], *, top: int = 5, as_stored: bool = False,
                 on_progress: Optional[OnProgress] = None) -> Any:
        """What an image shows, most likely first: a list of Label; for a list of images, a list of lists.

        An image is a file, its bytes, or an array of uint8 [height, width, 3]. as_stored: ignore the camera's
        orientation.
        """
        (given, alone), callbacks = listed(images), Callbacks()
        with Images(given, as_stored) as read:
            n_hits = min(whole("top", top), self.media.n_labels) or top
            hits = (c.tern_classify_hit * max(read.n * n_hits, 1))()
            params = c.tern_classify_params(n_hits=n_hits)
            params.on_progress = callbacks.progress(on_progress)
            with self._handle as model:
                callbacks.run(lib.tern_classify, model, read.array, read.n, ctypes.byref(params), hits)
                found = [Label(h.label_id, decoded(h.label), h.probability, h.score) for h in hits]
            lists = [found[i * n_hits:(i + 1) * n_hits] for i in range(read.n)]
        return lists[0] if alone else lists

    def embed_images(self, images: Union[Image, Sequence[Image]], *,
                       as_stored: bool = False) -> "numpy.ndarray[Any, Any]":
        """float32 [n, dimensions] for images, [dimensions] for one, normalized to length 1."""
        np = numpy_for("Model.embed_images")
        given, alone = listed(images)
        with Images(given, as_stored) as read, self._handle as model:
            out = np.empty((read.n, self.media.n_dims or 1), np.float32)
            lib.tern_embed_images(model, read.array, read.n, pointer(out, ctypes.c_float))
        return out[0] if alone else out  # type: ignore[no-any-return]

    def image_tokens(self, *images: Image, max_pixels: int = 0) -> ImageTokens:
        """Encodes an image, or two frames of a video, for prompts. Larger ones are scaled down to max_pixels (0: 1,048,576,
        or the limit in the model's files)."""
        return image_tokens(self._handle, images, max_pixels)

    def image_encoder(self, *images: Image, max_pixels: int = 0) -> ImageEncoder:
        """The same in steps."""
        return image_encoder(self._handle, images, max_pixels)

    def image_tokens_place(self, prompt: Tokens, images: Sequence[ImageTokens]) -> List[int]:
        """The prompt's ids with those of the images at its placeholders, as many as there are images."""
        ids = ids_array(self._ids(prompt))
        given, handles = c.tern_ids(ids, len(ids), len(ids)), [tokens_handle(self._handle, image) for image in images]
        room = len(ids) + sum(len(image.ids) for image in images)
        with self._handle as model:
            return _with_room(room, lambda out: lib.tern_image_tokens_place(
                model, ctypes.byref(given), pointers(handles), len(handles), out))

    # ---- Sounds ------------------------------------------------------------------------------------

    def transcribe(self, sound: Sound, *, vad: Optional[Path] = None, whole: bool = False, max_seconds: float = 0,
                   tokens_per_second: float = 0, language: Optional[str] = None, translate: bool = False,
                   fallback: bool = True, on_segment: OnSegment = None) -> Transcript:
        """Transcribes a sound: a file, its bytes, or a one-dimensional array of float32 at media.audio_rate.

        vad: Silero VAD (ONNX), which finds the speech; without it, loudness does. whole: leave nothing out.
        max_seconds: of a segment (15). Whisper: language is the spoken one, "en" and so on, by default
        detected; translate: into English; fallback: uncertain passages are transcribed again. on_segment gets
        each segment as soon as it is there; returning False stops.
        """
        callbacks, out = Callbacks(), c.tern_transcription()
        params = params_of(callbacks, on_segment, vad=vad, whole=whole, seconds_max=max_seconds,
                           tokens_per_second=tokens_per_second, language=language, translate=translate,
                           no_fallback=not fallback)
        with Read(sound, self.media.audio_rate) as read, self._handle as model:
            try:
                callbacks.run(lib.tern_transcribe, model, ctypes.byref(read.sound), ctypes.byref(params), ctypes.byref(out))
                return Transcript([segment_of(out.segments[i]) for i in range(out.n)], out.seconds, decoded(out.language))
            finally:
                lib.tern_transcription_free(ctypes.byref(out))

    def transcriber(self, *, vad: Optional[Path] = None, max_seconds: float = 0, tokens_per_second: float = 0,
               language: Optional[str] = None, translate: bool = False, on_segment: OnSegment = None,
               on_partial: OnSegment = None) -> Transcriber:
        """The same for a sound that is still being recorded: segments when they have ended and, to on_partial,
        what the current one may become, every half second at most."""
        return Transcriber(self._handle, on_segment, on_partial, vad=vad, seconds_max=max_seconds,
                        tokens_per_second=tokens_per_second, language=language, translate=translate)

    # ---- Speech ------------------------------------------------------------------------------------

    def speak(self, text: Tokens, codec: "Model", *, voice: Optional[str] = None,
              speaker: "Optional[numpy.ndarray[Any, Any]]" = None, temperature: float = 0, top_p: float = 0,
              repeat_penalty: float = 0, seed: int = 0, speed: float = 1, max_seconds: float = 0,
              on_samples: "Optional[Callable[[numpy.ndarray[Any, Any]], Any]]" = None,
              on_codes: "Optional[Callable[[List[int]], Any]]" = None) -> "numpy.ndarray[Any, Any]":
        """Speaks a text, or its tokens: float32 at codec.media.codec_rate. codec decodes this model's codes to sound.

        voice: written before the text, for models that know voices or languages by name. speaker: a vector of
        media.n_speaker numbers. temperature: 0: the makers' value, below 0: greedy. on_samples gets pieces as soon
        as they are there, on_codes each frame's codes; returning False stops.
        """
        np = numpy_for("Model.speak")
        callbacks, pieces = Callbacks(), []
        vector = None if speaker is None else np.ascontiguousarray(speaker, np.float32)
        params = c.tern_speak_params(voice=optional(voice), temperature=temperature, top_p=top_p, repeat_penalty=repeat_penalty,
                                     seed=whole("seed", seed, 0, 2**64 - 1), speed=speed, seconds_max=max_seconds)
        if vector is not None:
            params.speaker, params.n_speaker = pointer(vector, ctypes.c_float), vector.size

        def take(_user: Any, samples: Any, n: int) -> bool:
            pieces.append(np.ctypeslib.as_array(samples, (n,)).copy())
            return on_samples is None or on_samples(pieces[-1]) is not False

        def tell(_user: Any, codes: Any, n: int) -> bool:
            return on_codes is None or on_codes(codes[:n]) is not False

        params.on_samples = type(params.on_samples)(callbacks.guarded(take))
        params.on_codes = type(params.on_codes)(callbacks.guarded(tell))
        raw = utf8(text) if isinstance(text, str) else None
        if not isinstance(text, str):
            ids = ids_array(text)
            params.ids, params.n_ids = ids, len(ids)
        with self._handle as model, codec._handle as other:
            callbacks.run(lib.tern_speak, model, other, raw, ctypes.byref(params), None)
        sound: "numpy.ndarray[Any, Any]" = np.concatenate([np.zeros(0, np.float32), *pieces])
        return sound

    def decode_codes(self, codes: Any) -> "numpy.ndarray[Any, Any]":
        """Decodes a codec's codes [frames, codes per frame] to sound: float32 at media.codec_rate."""
        np = numpy_for("Model.decode_codes")
        given, stream = int32_array("codes", np.asarray(codes)), ctypes.POINTER(c.tern_codec_stream)()
        samples, n = ctypes.POINTER(ctypes.c_float)(), ctypes.c_size_t()
        with self._handle as model:
            lib.tern_codec_open(ctypes.byref(stream), model)
            try:
                lib.tern_codec_decode(stream, pointer(given, ctypes.c_int32), len(given), ctypes.byref(samples), ctypes.byref(n))
                sound: "numpy.ndarray[Any, Any]" = np.zeros(n.value, np.float32)
                if n.value:
                    sound[:] = np.ctypeslib.as_array(samples, (n.value,))
                return sound
            finally:
                lib.tern_codec_close(stream)

    # ---- Numbers ---------------------------------------------------------------------------------

    def compute(self, inputs: Mapping[str, Any], outputs: Optional[Sequence[str]] = None, *, graph: Optional[str] = None,
                kv: Kv = "auto") -> "Dict[str, numpy.ndarray[Any, Any]]":
        """Runs one of the model's graphs (None: the main one) once, on a new sequence, on arrays by the names
        of its inputs. outputs: names of any of its values; None: the graph's own outputs. See graphs()."""
        if outputs is None:
            graphs = self.graphs()
            mine = next((g for g in graphs if graph in (None, g["graph"])), None)
            outputs = [value["name"] for value in mine["outputs"]] if mine else []
        (rows, _kept), wanted = inputs_array(inputs), outputs_array(outputs)
        desc = c.tern_compute_desc(graph=optional(graph), inputs=rows, n_inputs=len(rows), outputs=wanted,
                                   n_outputs=len(wanted), kv_type=choice("kv", kv, KV))
        with self._handle as model:
            lib.tern_compute(model, ctypes.byref(desc))
            try:
                return taken(wanted)
            finally:
                free(wanted)

    def graphs(self) -> List[Dict[str, Any]]:
        """The model's graphs with their inputs and outputs."""
        found = json.loads(self._report(lib.tern_compute_report, None, "json"))
        return list(found["graphs"]) if isinstance(found, dict) else list(found)

    # ---- The end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends what is running, and frees everything: at once, or when calls that use it have returned."""
        self._engine.stop(wait=True)
        for session in list(self._timelines):
            session.close()
        self._handle.close()

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_session(model: Handle, **how: Any) -> Handle:
    desc, needs = session_desc(**how)
    out = ctypes.POINTER(c.tern_session)()
    with contextlib.ExitStack() as used:
        for need in needs:
            used.enter_context(need)
        lib.tern_session_open(ctypes.byref(out), used.enter_context(model), ctypes.byref(desc))
    return Handle(out, lib.tern_session_close, model, *needs)


def _with_room(room: int, call: Callable[[Any], object]) -> List[int]:
    """The ids from a function that gives them in a tern_ids."""
    while True:
        array = (ctypes.c_int32 * room)()
        ids = c.tern_ids(array, room)
        call(ctypes.byref(ids))
        if ids.n <= room:
            return array[:ids.n]
        room = ids.n

"""Conversion, inspection and measurements, without an open model."""
from __future__ import annotations

import ctypes
import json
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from . import _c as c
from ._callbacks import OnProgress
from ._chains import Chains
from ._library import Callbacks, Handle, Ids, Path, decoded, encoded, from_struct, ids_array, lib, optional, refuse, text_of, utf8
from ._model import Model
from ._messages import Message
from ._options import LorasOption, WebGpu, loras_array, real, webgpu_desc, whole
from ._results import Heap, ImatrixStats, MachineLimits, MineStats


def convert(source: Path, out: Path, *, type: str = "auto", head_type: str = "auto", loras: LorasOption = (),
            force_ternary: bool = False, imatrix: Optional[Path] = None, split_bytes: int = 0, arch: Optional[str] = None,
            group_size: int = 0, mmproj: Optional[Path] = None, threads: int = 0, on_note: Optional[Callable[[str], None]] = None,
            on_progress: Optional[OnProgress] = None) -> None:
    """Converts a GGUF file, or a folder of safetensors, to either.

    type: type of the weight matrices: "f16", "q8_0", "q4_k_m" ...; "auto": unchanged. head_type: type of embedding and
    output head. loras: adapters to merge. imatrix: a file from imatrix(). mmproj: when converting a GGUF to a folder, its
    vision part; None: mmproj*.gguf next to it, "": no vision part. group_size: for MLX types, columns per scale (0: 64).
    on_note is called with notes on how the output differs from what one may expect. An existing `out` is kept until the
    new one is complete.
    """
    callbacks, adapters = Callbacks(), loras_array(loras)
    desc = c.tern_convert_desc(
        loras=adapters, n_loras=len(adapters), force_ternary=force_ternary, type=_type(type), head_type=_type(head_type),
        split_bytes=whole("split_bytes", split_bytes, 0, 2**64 - 1), arch=optional(arch),
        imatrix=None if imatrix is None else encoded(imatrix), group_size=whole("group_size", group_size),
        mmproj=None if mmproj is None else encoded(mmproj), n_threads=whole("threads", threads), on_progress=callbacks.progress(on_progress))
    if on_note is not None:
        desc.on_note = callbacks.note(on_note)
    callbacks.run(lib.tern_convert, encoded(source), encoded(out), ctypes.byref(desc))


def _type(name: str) -> int:
    number = int(lib.tern_type_from_name(utf8(name)))
    if number == c.TERN_TYPE_AUTO and name.lower() != "auto":
        refuse("there is no type %s; there are %s" % (name, ", ".join(types())))
    return number


def types() -> List[str]:
    """The element types that convert() supports."""
    return [decoded(lib.tern_type_name(number)) for number in c.ENUMS["tern_type"].values()]


def inspect(path: Path, *, tensors: bool = False, histogram: bool = False) -> Dict[str, Any]:
    """What is in a model's file or folder, without computing anything. tensors: list every tensor. histogram:
    count -1, 0 and +1 in ternary tensors."""
    desc = c.tern_inspect_desc(tensors=tensors, histogram=histogram, format=c.TERN_FORMAT_JSON)
    return dict(json.loads(text_of(lib.tern_inspect, encoded(path), ctypes.byref(desc))))


def imatrix(model: Model, text: str, out: Path, *, ids: Optional[Ids] = None, window: int = 0, limit: int = 0,
            dataset: Optional[str] = None, on_progress: Optional[OnProgress] = None) -> ImatrixStats:
    """Measures which weight columns matter for a text (or ids in its place): a file for convert().

    window: in tokens, 0: 512. limit: windows at most, 0: all. dataset: the text's name.
    """
    callbacks, stats, raw = Callbacks(), c.tern_imatrix_stats(), text.encode("utf-8", "surrogatepass")
    desc = c.tern_imatrix_desc(text=raw, n_bytes=len(raw), window=whole("window", window), n_windows=whole("limit", limit), dataset=optional(dataset),
                               on_progress=callbacks.progress(on_progress))
    if ids is not None:
        array = ids_array(ids)
        desc.ids, desc.n_ids = array, len(array)
    with model._handle as pointer:
        callbacks.run(lib.tern_imatrix, pointer, encoded(out), ctypes.byref(desc), ctypes.byref(stats))
    return from_struct(ImatrixStats, stats)


def mine(model: Model, shards: Sequence[Path] = (), *, generate_tokens: int = 0, buckets: int = 0, max_length: int = 0,
         min_probability: float = 0, score_tokens: int = 0, memory: int = 0,
         on_progress: Optional[OnProgress] = None) -> Tuple[Chains, MineStats]:
    """The most profitable chains of a corpus (shards from `tern data build`), or of generate_tokens that the
    model itself generates. docs/speculation.md."""
    callbacks, stats = Callbacks(), c.tern_mine_stats()
    paths = [encoded(path) for path in shards]
    most = 2**64 - 1
    desc = c.tern_mine_desc(
        shards=(ctypes.c_char_p * len(paths))(*paths), n_shards=len(paths),
        generate_tokens=whole("generate_tokens", generate_tokens, 0, most), n_buckets=whole("buckets", buckets),
        max_length=whole("max_length", max_length), min_probability=real("min_probability", min_probability, 0),
        score_tokens=whole("score_tokens", score_tokens, 0, most), memory=whole("memory", memory, 0, most),
        on_progress=callbacks.progress(on_progress))
    out = ctypes.POINTER(c.tern_chains)()
    with model._handle as pointer:
        try:
            callbacks.run(lib.tern_mine, ctypes.byref(out), pointer, ctypes.byref(desc), ctypes.byref(stats))
        except BaseException:
            lib.tern_chains_close(out)  # Ctrl-C may come when they already exist
            raise
    return Chains._of(out), from_struct(MineStats, stats)


def diagnose(model: Optional[Path] = None, *, device: str = "cpu", cpu_features: Optional[str] = None, threads: int = 0,
             webgpu: Optional[WebGpu] = None, quick: bool = True) -> Tuple[int, List[Dict[str, Any]]]:
    """What a device is, and whether it computes correctly; with a model, also its weights and values.

    Returns how many checks failed, and rows: {"fact", "value"} or {"check", "ok", "seconds", "detail"}. quick:
    do not measure the machine's limits.
    """
    desc = c.tern_diagnose_desc(
        model=None if model is None else encoded(model), format=c.TERN_FORMAT_JSON, device=utf8(device),
        cpu_features=optional(cpu_features), n_threads=whole("threads", threads), quick=quick)
    desc.webgpu = ctypes.pointer(webgpu_desc(webgpu))
    callbacks, n_failed = Callbacks(), ctypes.c_size_t()
    pieces: List[bytes] = []
    callbacks.run(lib.tern_diagnose, ctypes.byref(desc), callbacks.text(pieces.append), None, ctypes.byref(n_failed))
    return n_failed.value, list(json.loads(b"".join(pieces)))


def machine(threads: int = 0) -> MachineLimits:
    """Measures the machine's limits; takes a few seconds."""
    out = c.tern_machine_limits()
    callbacks = Callbacks()
    callbacks.run(lib.tern_machine_measure, whole("threads", threads), ctypes.byref(out))
    return from_struct(MachineLimits, out)


def machine_report() -> str:
    """How fast the CPU's integer kernels are at each level of instructions, as Markdown; takes seconds."""
    callbacks = Callbacks()
    pieces: List[bytes] = []
    callbacks.run(lib.tern_machine_report, callbacks.text(pieces.append), None)
    return decoded(b"".join(pieces))


def heap() -> Heap:
    """Memory use of the library and the process."""
    return from_struct(Heap, lib.tern_heap_get())


# ---- Transcripts ---------------------------------------------------------------------------------


def load_chat(path: Path) -> List[Message]:
    """The messages of a transcript: Markdown, or JSON."""
    with _transcript() as chat:
        lib.tern_chat_load(chat, encoded(path))
        n = ctypes.c_size_t()
        messages = lib.tern_chat_messages(chat, ctypes.byref(n))
        return [{"role": decoded(m.role), "content": decoded(m.content)} for m in messages[:n.value]]


def save_chat(path: Path, messages: Sequence[Mapping[str, str]]) -> None:
    """Writes a transcript: Markdown if the path ends in .md, else JSON. Both read back the same."""
    with _transcript() as chat:
        for message in messages:
            lib.tern_chat_add(chat, utf8(message["role"]), utf8(message["content"]))
        lib.tern_chat_save(chat, encoded(path))


def _transcript() -> Handle:
    out = ctypes.POINTER(c.tern_chat)()
    lib.tern_chat_open(ctypes.byref(out))
    return Handle(out, lib.tern_chat_close)

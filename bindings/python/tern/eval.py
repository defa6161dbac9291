"""How good a model is: perplexity, comparison, tasks, and the checklist of arXiv:2402.17764.

docs/evaluation.md defines exactly what is computed.
"""
from __future__ import annotations

import ctypes
import json
from typing import Any, Dict, List, Optional, Sequence, Tuple

from . import _c as c
from ._callbacks import OnProgress
from ._library import Callbacks, Path, choice as number_of, encoded, from_struct, lib, optional, refuse, text_of, utf8
from ._model import Model
from ._options import Kv, whole
from ._results import ChoiceResult, Comparison, Distribution, Perplexity
from ._session import Session

__all__ = ["perplexity", "compare", "run", "choice", "significance", "table", "paper", "tasks", "find_file"]

CONVENTIONS = (("llama.cpp", c.TERN_PERPLEXITY_LLAMA_CPP), ("transformers", c.TERN_PERPLEXITY_TRANSFORMERS))


def perplexity(model: Model, text: str, *, convention: str = "llama.cpp", window: int = 0, stride: int = 0,
               limit: int = 0, context: Optional[int] = None, kv: Kv = "f32",
               on_progress: Optional[OnProgress] = None) -> Perplexity:
    """How well a model predicts a text.

    convention: "llama.cpp" or "transformers". window: in tokens, 0: 512, or the context. stride: for
    transformers, 0: half the window. limit: windows at most, 0: the whole text.
    """
    callbacks, out = Callbacks(), c.tern_perplexity()
    desc, raw = _windows(callbacks, text, convention, window, stride, limit, on_progress)
    with _session(model, window, context, kv) as session, session._handle as pointer:
        callbacks.run(lib.tern_eval_perplexity, pointer, raw, len(raw), ctypes.byref(desc), ctypes.byref(out))
    return from_struct(Perplexity, out)


def _windows(callbacks: Callbacks, text: str, convention: str, window: int, stride: int, limit: int,
             on_progress: Optional[OnProgress]) -> Tuple[Any, bytes]:
    desc = c.tern_perplexity_desc(
        window=whole("window", window), stride=whole("stride", stride), n_windows=whole("limit", limit),
        convention=number_of("convention", convention, CONVENTIONS), on_progress=callbacks.progress(on_progress))
    return desc, text.encode("utf-8", "surrogatepass")


def _session(model: Model, window: int, context: Optional[int], kv: Kv) -> Session:
    if context is None and window > model.context:
        context = window
    return model.session(context=context, kv=kv, speculate=False)


def compare(model: Model, reference: Model, text: str, *, convention: str = "llama.cpp", window: int = 0,
            stride: int = 0, limit: int = 0, context: Optional[int] = None, kv: Kv = "f32",
            on_progress: Optional[OnProgress] = None) -> Comparison:
    """How far a model is from a reference, token by token of a text: what quantization or tuning has changed.

    Both must have the same vocabulary. The other arguments are perplexity()'s.
    """
    callbacks, out = Callbacks(), c.tern_eval_comparison()
    desc, raw = _windows(callbacks, text, convention, window, stride, limit, on_progress)
    words = c.tern_bytes(bytes=ctypes.cast(ctypes.c_char_p(raw), ctypes.c_void_p), n_bytes=len(raw))
    with _session(model, window, context, kv) as one, _session(reference, window, context, kv) as other:
        with one._handle as first, other._handle as second:
            callbacks.run(lib.tern_eval_compare, first, second, words, ctypes.byref(desc), ctypes.byref(out))
    return Comparison(from_struct(Perplexity, out.model), from_struct(Perplexity, out.reference), out.log_ratio,
                      out.log_ratio_error, out.correlation, from_struct(Distribution, out.kl),
                      from_struct(Distribution, out.p_change), out.same_top, out.same_top_error)


def run(model: Model, task: Path, path: Path, *, shots: Optional[int] = None, shots_path: Optional[Path] = None,
        limit: int = 0, results: Optional[Path] = None, apply_chat_template: bool = False, system: Optional[str] = None,
        shots_as_turns: bool = False, temperature: float = 0, parallel: int = 0, context: Optional[int] = None,
        kv: Kv = "auto", on_progress: Optional[OnProgress] = None) -> ChoiceResult:
    """Scores a task by the likelihood of its answers, or by what the model generates, as lm-evaluation-harness does.

    task: a name of tasks(), or a task file, whose name ends in .json. path: the task's JSON lines. shots: answered
    examples before each question, from the start of shots_path; None: as many as the task has. limit: items at most,
    0: all. results: each item's scores are appended to this file, and items already in it are not computed again.
    apply_chat_template: questions are a user's messages, after a `system` message and the examples, which
    shots_as_turns makes turns of the chat. temperature: of generated answers, of which `parallel` are computed at
    once (0: 8).
    """
    name = ctypes.c_char_p(encoded(task))
    if not lib.tern_eval_task_known(ctypes.byref(name)):
        refuse("there is no task %s; there are %s" % (task, ", ".join(tasks())))
    callbacks, out = Callbacks(), c.tern_eval_result()
    desc = c.tern_eval_desc(
        task=name.value, path=encoded(path), n_shots=0 if shots is None else whole("shots", shots) or -1,
        shots_path=None if shots_path is None else encoded(shots_path), n_items=whole("limit", limit),
        results_path=None if results is None else encoded(results), apply_chat_template=apply_chat_template,
        shots_as_turns=shots_as_turns, system=optional(system), temperature=temperature,
        n_parallel=whole("parallel", parallel), on_progress=callbacks.progress(on_progress))
    with model.session(context=context, kv=kv, speculate=False) as session, session._handle as pointer:
        callbacks.run(lib.tern_eval_run, pointer, ctypes.byref(desc), ctypes.byref(out))
    metrics = {row.name.decode(): (row.value, row.error) for row in out.metrics[:out.n_metrics]}
    return ChoiceResult(out.n_items, out.n_resumed, out.n_cut, metrics, out.n_faulty,
                        out.fault.decode("utf-8", "replace"), out.n_shots)


choice = run  # its older name


def significance(first: Path, other: Path) -> Dict[str, Any]:
    """Whether the results file `other` is better than `first`, item by item: differences with errors and p."""
    found = json.loads(text_of(lib.tern_eval_significance, encoded(first), encoded(other), c.TERN_TABLE_JSON))
    return dict(found)


def table(paths: Sequence[Path]) -> Dict[str, Any]:
    """The metrics of several results files side by side; "best" marks one that is better than each other, p < 0.05."""
    names = [encoded(path) for path in paths]
    found = json.loads(text_of(lib.tern_eval_table, (ctypes.c_char_p * len(names))(*names), len(names), c.TERN_TABLE_JSON))
    return dict(found)


def paper(path: Path) -> Dict[str, Any]:
    """Which of the properties described in the paper a model file has. Nothing is run."""
    found = json.loads(text_of(lib.tern_eval_paper, encoded(path), c.TERN_FORMAT_JSON))
    return dict(found)


def tasks() -> List[str]:
    """The tasks that run() supports, in the order of the usual tables."""
    names: List[str] = []
    while True:
        name = lib.tern_eval_task_name(len(names))
        if name is None:
            return names
        names.append(name.decode())


def find_file(task: str, folder: Path) -> Optional[str]:
    """The task's file in a folder and its subfolders, under its usual names."""
    found: List[bytes] = []
    callbacks = Callbacks()
    on_path = callbacks.text(found.append)
    ok = lib.tern_eval_find_file(optional(task), encoded(folder), on_path, None)
    if callbacks.error is not None:
        raise callbacks.error
    return b"".join(found).decode("utf-8", "surrogateescape") if ok else None

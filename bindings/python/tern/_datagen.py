"""Training data that a model writes."""
from __future__ import annotations

import ctypes
import json
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import _c as c
from ._grammar import grammar_desc
from ._library import Callbacks, Path, decoded, encoded, lib, optional, utf8
from ._model import Model, OnProgress
from ._options import generate_params, real, whole
from ._results import DatagenStats

OnRecord = Callable[[Dict[str, Any], str], Optional[bool]]


def _texts(texts: Sequence[str]) -> Tuple[Any, int]:
    return (ctypes.c_char_p * len(texts))(*[utf8(text) for text in texts]), len(texts)


def datagen(model: Model, prompt: str, *, records: int = 100, seeds: Sequence[Union[str, Mapping[str, Any]]] = (),
            system: Optional[str] = None, grammar: Optional[Mapping[str, Any]] = None, path: Optional[Path] = None,
            items: int = 0, candidates: int = 1, parallel: int = 0, context: int = 0, min_tokens: int = 0,
            min_quality: float = 0, max_repetition: float = 0, max_similarity: float = 0, mentions: Sequence[str] = (),
            required: Sequence[str] = (), forbidden: Sequence[str] = (), keep_cut: bool = False, raw: bool = False,
            on_record: Optional[OnRecord] = None, on_progress: Optional[OnProgress] = None,
            **options: Any) -> Tuple[List[Dict[str, Any]], DatagenStats]:
    """Answers to prompts from a template, those that pass, as records to train on (docs/datagen.md).

    prompt, system: Jinja templates that see the members of a seed: an object, or a text, which is `text`.
    records: wanted, with those that are in the file `path`, to which they are appended. items: prompts to try
    at most. candidates: answers to each, of which the best is kept. grammar: as Grammar's arguments,
    {"schema": {...}}. mentions, required, forbidden: templates of texts, and expressions, that an answer must
    or must not have in it. 0: the usual of each number; of the shares, negative: no such condition. options: max_tokens, temperature, seed, stop ...
    on_record is told of each candidate and what became of it; False stops.

    >>> records, stats = tern.datagen(model, "Write a story about {{ text }}.", seeds=["a fox", "a bell"], records=2)
    """
    callbacks, stats, made = Callbacks(), c.tern_datagen_stats(), []

    def told(_user: Any, record: Any) -> Optional[bool]:
        line = json.loads(ctypes.string_at(record.contents.line, record.contents.n_bytes))
        reason = decoded(lib.tern_datagen_reason_name(record.contents.reason))
        if reason == "accepted":
            made.append(line)
        return None if on_record is None else on_record(line, reason)

    params = generate_params(options)
    lines = utf8("\n".join(json.dumps(seed) for seed in seeds)) if seeds else None
    desc = c.tern_datagen_desc(
        prompt=utf8(prompt), system=optional(system), seeds=lines, n_seed_bytes=len(lines or b""), raw=bool(raw),
        n_records=whole("records", records, 1), n_items_max=whole("items", items),
        n_candidates=whole("candidates", candidates, 1), n_parallel=whole("parallel", parallel),
        n_context=whole("context", context), max_tokens=params.max_tokens, sampling=params.sampling, stops=params.stops,
        n_stops=params.n_stops, min_tokens=whole("min_tokens", min_tokens), min_quality=real("min_quality", min_quality),
        max_repetition=real("max_repetition", max_repetition),
        max_similarity=real("max_similarity", max_similarity), keep_cut=bool(keep_cut),
        path=None if path is None else encoded(path), on_record=c.tern_datagen_fn(callbacks.guarded(told)),
        on_progress=callbacks.progress(on_progress))
    desc.mentions, desc.n_mentions = _texts(mentions)
    desc.required, desc.n_required = _texts(required)
    desc.forbidden, desc.n_forbidden = _texts(forbidden)
    if grammar is not None:
        desc.grammar = ctypes.pointer(grammar_desc(**grammar))
    with model._handle as pointer:
        callbacks.run(lib.tern_datagen, pointer, ctypes.byref(desc), ctypes.byref(stats))
    fates = {decoded(lib.tern_datagen_reason_name(i)): n for i, n in enumerate(stats.n_candidates) if n}
    return made, DatagenStats(stats.n_records, stats.n_accepted, stats.n_items, fates, stats.n_tokens, stats.seconds)

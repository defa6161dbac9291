"""Options of models, sessions and answers, and the structs that they become."""
from __future__ import annotations

import ctypes
import math
import operator
import os
from dataclasses import dataclass, fields
from typing import Any, Iterable, List, Literal, Mapping, Optional, Sequence, Tuple, TypedDict, Union, TYPE_CHECKING

from . import _c as c
from ._callbacks import LogitsProcessors, OnProgress, processors_of
from ._library import Handle, Ids, Path, choice, encoded, ids_array, lib, optional, refuse, utf8

if TYPE_CHECKING:
    from ._chains import Chains
    from ._grammar import Grammar
    from ._model import Model

Drafter = Literal["chains", "lookup", "online", "model", "caller"]
Kv = Literal["auto", "f32", "f16", "q8_0", "q4_0"]
Ternary = Literal["auto", "2bit", "1.6bit"]
Head = Literal["auto", "file", "exact", "q8_0", "q6_k", "q4_0"]
MatmulPrecision = Literal["exact", "half"]
Thinking = Literal["auto", "on", "off"]
Pooling = Literal["none", "mean", "last", "cls"]

DRAFTERS = (("chains", c.TERN_DRAFTER_CHAINS), ("lookup", c.TERN_DRAFTER_LOOKUP), ("online", c.TERN_DRAFTER_ONLINE),
            ("model", c.TERN_DRAFTER_MODEL), ("caller", c.TERN_DRAFTER_CALLER))
KV = (("auto", c.TERN_KV_AUTO), ("f32", c.TERN_KV_F32), ("f16", c.TERN_KV_F16), ("q8_0", c.TERN_KV_Q8_0),
      ("q4_0", c.TERN_KV_Q4_0))
TERNARY = (("auto", c.TERN_TERNARY_AUTO), ("2bit", c.TERN_TERNARY_2BIT), ("1.6bit", c.TERN_TERNARY_1_6BIT))
HEAD = (("auto", c.TERN_HEAD_AUTO), ("file", c.TERN_HEAD_FILE), ("exact", c.TERN_HEAD_EXACT),
        ("q8_0", c.TERN_HEAD_Q8_0), ("q6_k", c.TERN_HEAD_Q6_K), ("q4_0", c.TERN_HEAD_Q4_0))
MATMUL_PRECISION = (("exact", c.TERN_MATMUL_EXACT), ("half", c.TERN_MATMUL_HALF))
THINKING = (("auto", c.TERN_THINKING_AUTO), ("on", c.TERN_THINKING_ON), ("off", c.TERN_THINKING_OFF))
POOLING = (("none", c.TERN_POOLING_NONE), ("mean", c.TERN_POOLING_MEAN), ("last", c.TERN_POOLING_LAST),
           ("cls", c.TERN_POOLING_FIRST))


class GenerateOptions(TypedDict, total=False):
    """Keywords of generate() and chat(). None is the same as leaving one out."""

    max_tokens: Optional[int]  # left out: until the model ends or the context is full
    # Left out: the model's own default or, if it has none, 0.8, 40, 0.95, 0.05, 1.
    temperature: Optional[float]  # 0: greedy
    top_k: Optional[int]  # 0: off
    top_p: Optional[float]  # 1: off; 0: the likeliest token alone
    min_p: Optional[float]  # 0: off
    repeat_penalty: Optional[float]  # 0 or 1: off
    frequency_penalty: Optional[float]
    presence_penalty: Optional[float]
    penalty_window: Optional[int]  # last tokens that the penalties look at (64)
    # Further samplers, off unless given; in brackets what their settings are otherwise.
    top_n_sigma: Optional[float]  # logits at most this many standard deviations below the greatest
    typical_p: Optional[float]  # the most typical tokens that exceed it together
    xtc_probability: Optional[float]  # of leaving out all but the least likely of the likely tokens
    xtc_threshold: Optional[float]  # which are those of this probability (0.1)
    dynatemp_range: Optional[float]  # the temperature goes this far up and down with the entropy
    dynatemp_exponent: Optional[float]  # (1)
    dry_multiplier: Optional[float]  # penalty of what would continue a repetition,
    dry_base: Optional[float]  # times this (1.75) for each token of it more
    dry_allowed_length: Optional[int]  # than so many (2)
    dry_penalty_last_n: Optional[int]  # of the last tokens (-1: all)
    dry_sequence_breakers: Optional[Sequence[str]]  # no repetition goes beyond one ("\n", ":", '"', "*")
    mirostat: Optional[int]  # 1 or 2: replaces all samplers but biases and temperature
    mirostat_tau: Optional[float]  # the surprise that it aims at, in bits (5)
    mirostat_eta: Optional[float]  # how fast (0.1)
    samplers: Optional[str]  # letters of those that act, in their order ("edskypmxt"); "-": none
    seed: Optional[int]  # from 1 to 2^64 - 1; left out: a new one each time
    stop: Union[str, Sequence[str], None]  # strings that end the answer and are not part of it
    ignore_end: Optional[bool]  # go on after end tokens
    min_tokens: Optional[int]  # no end token and no stop before so many
    stop_token_ids: Optional[Ids]  # tokens that end the answer, as end tokens do
    allowed_token_ids: Optional[Ids]  # no others are chosen
    bad_words: Optional[Sequence[str]]  # texts that are not written
    logprobs: Optional[bool]  # log-probability of each token: Answer.logprobs
    top_logprobs: Optional[int]  # 0 to 20, with logprobs: how many of the most likely tokens to add
    with_special: Optional[bool]  # include the names of control tokens in the text: for Model.take_apart()
    grammar: Union["Grammar", Mapping[str, Any], None]  # constrains the answer; a dict is a JSON Schema
    logit_bias: Optional[Mapping[int, float]]  # added to tokens' logits; -math.inf excludes one
    # Functions of (ids, logits), NumPy's: they change the scores of the next token in place, or return others, or
    # the token itself. They run in the thread that computes all answers.
    logits_processor: Optional[LogitsProcessors]
    on_progress: Optional[OnProgress]  # while the prompt is read: "prompt" and 0..1; returning False ends the answer
    drafts: Optional["DraftLimits"]  # of speculation, for this answer
    append: Optional[bool]  # for sessions: the prompt follows the timeline instead of replacing it


@dataclass(frozen=True)
class Lora:
    """A LoRA adapter: a GGUF file, or a PEFT folder. A scale of 0 leaves it out."""

    path: Path
    scale: float = 1.0


@dataclass(frozen=True)
class Speculation:
    """How to speculate. The text stays the same to the bit, whatever is drafted."""

    # Keep chains and draft_model open as long as sessions are opened with them.
    chains: Optional["Chains"] = None  # a mined table
    lookup: bool = False  # what followed earlier occurrences of the last tokens
    online: bool = False  # what was learnt from the session's own text
    draft_model: Optional["Model"] = None  # a smaller model with the same vocabulary
    max_length: int = 0  # of a draft in tokens, 0: 8, at most 16
    threshold: float = 0.0  # greedy: minimum probability of a drafted token
    token_cost: float = 0.0  # of one more token in a run, relative to a run of one; 0: measured
    always: bool = False  # draft even if it has not paid off so far


@dataclass(frozen=True)
class DraftLimits:
    """Limits of one answer's drafts; what is left out is as the model or session has it."""

    none: bool = False  # no drafts
    without: Sequence[Drafter] = ()  # drafters that are left out
    most: int = 0  # tokens of a draft, 0: no limit
    least: int = 0  # a shorter draft is not computed
    chance: float = 0.0  # a draft ends before a guess whose like was right less often


@dataclass(frozen=True)
class WebGpu:
    """How a GPU is found and used (docs/webgpu.md)."""

    library: Optional[Path] = None  # the WebGPU library; None: $TERN_WEBGPU_LIB, else the system's
    state_folder: Optional[Path] = None  # keeps what was found out about the driver
    group: int = 0  # dispatches per submission, without trying; negative: no limit
    checks: bool = False  # keep WebGPU's own validation
    matrix: bool = True  # use matrix units


SpeculateOption = Union[bool, Speculation]
LoraOption = Union[Lora, Path, Tuple[Path, float]]
LorasOption = Union[LoraOption, Sequence[LoraOption]]  # one, or several

INT_MAX = 2**31 - 1


def whole(name: str, value: Any, least: int = 0, most: int = INT_MAX) -> int:
    """An integer within bounds. ctypes would silently keep the low bits of a larger one."""
    try:
        number = operator.index(value)
    except TypeError:  # of an array, too
        number = None
    if number is None or isinstance(value, bool):
        refuse("%s must be a whole number, not %r" % (name, value))
    if not least <= number <= most:
        refuse("%s must be from %d to %d, not %d" % (name, least, most, number))
    return number


def real(name: str, value: Any, least: float = -math.inf) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        refuse("%s must be a number, not %r" % (name, value))
    if math.isnan(number) or number < least:
        refuse("%s must be a number%s, not %r" % (name, "" if least == -math.inf else " from %g" % least, value))
    return number


# ---- Answers -------------------------------------------------------------------------------------

NAMES = frozenset(GenerateOptions.__annotations__)


def generate_params(options: Mapping[str, Any]) -> c.tern_generate_params:
    """A tern_generate_params and what it points to."""
    unknown = sorted(set(options) - NAMES)
    if unknown:
        raise TypeError("there is no option %s; there are %s" % (", ".join(unknown), ", ".join(sorted(NAMES))))
    given = {name: value for name, value in options.items() if value is not None}
    sampling = lib.tern_sampling_default()
    for name in ("temperature", "top_p", "min_p", "repeat_penalty", "top_n_sigma", "typical_p", "xtc_probability",
                 "xtc_threshold", "dynatemp_range", "dynatemp_exponent", "dry_multiplier", "dry_base", "mirostat_tau",
                 "mirostat_eta"):
        if name in given:  # a negative value would mean the model's
            setattr(sampling, name, real(name, given[name], 0))
    for name in ("frequency_penalty", "presence_penalty"):
        setattr(sampling, name, real(name, given.get(name, 0)))
    if "top_k" in given:
        sampling.top_k = whole("top_k", given["top_k"])
    for name, least in (("dry_allowed_length", 0), ("dry_penalty_last_n", -1), ("mirostat", 0)):
        if name in given:
            setattr(sampling, name, whole(name, given[name], least))
    letters = utf8(given.get("samplers", ""))
    if len(letters) > 15:
        refuse("samplers: more than 15 letters")
    sampling.samplers = letters
    sampling.penalty_window = whole("penalty_window", given.get("penalty_window", 0))
    sampling.seed = whole("seed", given["seed"], 1, 2**64 - 1) if "seed" in given else 0
    params = c.tern_generate_params(max_tokens=whole("max_tokens", given.get("max_tokens", 0)))
    params.sampling = ctypes.pointer(sampling)
    params.ignore_end, params.logprobs = bool(given.get("ignore_end")), bool(given.get("logprobs"))
    params.with_special = bool(given.get("with_special"))
    if "grammar" in given:
        handle = getattr(given["grammar"], "_handle", None)
        if not isinstance(handle, Handle):
            refuse("grammar must be a tern.Grammar or a dict, not %r" % type(given["grammar"]).__name__)
        with handle as grammar:
            params.grammar = grammar
        setattr(params, "uses", (handle,))  # kept until the answer is over
    params.n_top_logprobs = whole("top_logprobs", given.get("top_logprobs", 0), 0, c.TERN_TOP_LOGPROBS_MAX)
    if params.n_top_logprobs and not params.logprobs:
        refuse("top_logprobs needs logprobs=True")
    stops = given.get("stop", ())
    texts = [utf8(text) for text in ([stops] if isinstance(stops, str) else stops)]
    params.stops, params.n_stops = (ctypes.c_char_p * len(texts))(*texts), len(texts)
    if not isinstance(given.get("logit_bias", {}), Mapping):
        refuse("logit_bias maps tokens to numbers, not %r" % type(given["logit_bias"]).__name__)
    biases = [c.tern_logit_bias(whole("a token of logit_bias", token), real("logit_bias", value))
              for token, value in given.get("logit_bias", {}).items()]
    params.biases, params.n_biases = (c.tern_logit_bias * len(biases))(*biases), len(biases)
    params.min_tokens = whole("min_tokens", given.get("min_tokens", 0))
    for name, count in (("stop_token_ids", "n_stop_token_ids"), ("allowed_token_ids", "n_allowed_token_ids")):
        ids = ids_array(given.get(name, ()))
        setattr(params, name, ids)
        setattr(params, count, len(ids))
    for name, count in (("bad_words", "n_bad_words"), ("dry_sequence_breakers", "n_dry_sequence_breakers")):
        if name in given:
            words = [utf8(text) for text in given[name]]
            setattr(params, name, (ctypes.c_char_p * max(1, len(words)))(*words))
            setattr(params, count, len(words))
    params.drafts = draft_limits(given.get("drafts", DraftLimits()))
    params.append = bool(given.get("append"))
    setattr(params, "told_progress", given.get("on_progress"))
    setattr(params, "processors", processors_of(given.get("logits_processor", ())))
    return params


def draft_limits(drafts: Any) -> c.tern_draft_limits:
    if not isinstance(drafts, DraftLimits):
        refuse("drafts must be a tern.DraftLimits, not %r" % type(drafts).__name__)
    limits = c.tern_draft_limits(none=drafts.none, most=whole("most", drafts.most), least=whole("least", drafts.least),
                                 chance=real("chance", drafts.chance, 0))
    for drafter in drafts.without:
        limits.without[choice("without", drafter, DRAFTERS)] = True
    return limits


def raw_text(what: str, text: Any) -> bytes:
    """A text that may have zeros in it."""
    if not isinstance(text, str):
        refuse("%s must be a text (str), not %r" % (what, type(text).__name__))
    return text.encode("utf-8", "surrogatepass")


# ---- Models and sessions -------------------------------------------------------------------------


def loras_array(loras: LorasOption) -> Any:
    if isinstance(loras, (str, bytes, os.PathLike, Lora)) or (
            isinstance(loras, tuple) and len(loras) == 2 and isinstance(loras[1], (int, float))):
        loras = [loras]  # type: ignore[list-item]  # a pair of a path and a scale
    if not isinstance(loras, (list, tuple)):
        refuse("loras must be an adapter or a list of them, not %r" % type(loras).__name__)
    array = (c.tern_lora * len(loras))()
    for i, each in enumerate(loras):
        lora = each if isinstance(each, Lora) else Lora(*each) if isinstance(each, tuple) else Lora(each)
        array[i].path, array[i].scale = encoded(lora.path), real("the scale of an adapter", lora.scale)
        array[i].off = lora.scale == 0  # to the library 0 is 1
    return array


def webgpu_desc(webgpu: Optional[WebGpu]) -> c.tern_webgpu_desc:
    gpu = webgpu or WebGpu()
    library = gpu.library or os.environ.get("TERN_WEBGPU_LIB") or None
    desc = c.tern_webgpu_desc(group=whole("group", gpu.group, -INT_MAX), checks=gpu.checks, no_matrix=not gpu.matrix)
    desc.library = None if library is None else encoded(library)
    desc.state_folder = None if gpu.state_folder is None else encoded(gpu.state_folder)
    return desc


def session_desc(context: Optional[int], kv: Kv, shift: bool, keep: int, speculate: SpeculateOption,
                 profile: bool = False, lora_scales: Optional[Sequence[float]] = None) -> Tuple[c.tern_session_desc, List[Handle]]:
    """A tern_session_desc, and what its session needs as long as it lives."""
    desc = c.tern_session_desc(n_context=whole("context", context or 0), kv_type=choice("kv", kv, KV),
                               shift_context=shift, n_keep=whole("keep", keep), profile=profile)
    if lora_scales is not None:
        scales = [real("lora_scales", each) for each in lora_scales]
        desc.lora_scales, desc.n_lora_scales = (ctypes.c_float * len(scales))(*scales), len(scales)
    how = speculate if isinstance(speculate, Speculation) else Speculation(lookup=bool(speculate), online=bool(speculate))
    needs: List[Handle] = []
    wanted = desc.speculation
    for field in fields(Speculation):
        value = getattr(how, field.name)
        if field.name in ("chains", "draft_model"):
            if value is not None:
                needs.append(value._handle)
                setattr(wanted, field.name, value._handle._pointer)
        else:
            setattr(wanted, field.name, value)
    wanted.max_length = whole("max_length", how.max_length, 0, c.TERN_DRAFT_MAX)
    return desc, needs


def embed_texts(texts: Iterable[Union[str, Ids]]) -> Any:
    """tern_embed_text[n], from texts and from ids."""
    if not isinstance(texts, (list, tuple)):
        texts = list(texts)
    array = (c.tern_embed_text * len(texts))()
    for i, text in enumerate(texts):
        if isinstance(text, str):
            raw = text.encode("utf-8", "surrogatepass")
            array[i].text, array[i].n_bytes = raw, len(raw)
        else:
            ids = ids_array(text)
            array[i].ids, array[i].n_ids = ids, len(ids)
    return array


def embed_params(prompt: Optional[str] = None, prefix: Optional[str] = None, max_length: int = 0, dimensions: int = 0,
                 step: int = 0, kv: Kv = "auto") -> c.tern_embed_params:
    return c.tern_embed_params(
        prompt=optional(prompt), prefix=optional(prefix), max_length=whole("max_length", max_length),
        n_dims=whole("dimensions", dimensions), n_step=whole("step", step), kv_type=choice("kv", kv, KV))

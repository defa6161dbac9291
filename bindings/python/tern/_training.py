"""Training: text into a vocabulary and shards of tokens, these into a model or an adapter."""
from __future__ import annotations

import ctypes
import json
import os
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, List, Literal, Mapping, Optional, Sequence, Tuple, TypedDict, Union, TYPE_CHECKING

from . import _c as c
from ._library import Callbacks, Path, choice, decoded, encoded, from_struct, lib, optional, refuse, utf8
from ._options import INT_MAX, POOLING, Pooling, WebGpu, real, webgpu_desc, whole

if TYPE_CHECKING:
    from typing_extensions import Unpack

OnProgress = Callable[[str, float], Optional[bool]]
Paths = Union[Path, Iterable[Path]]

RECIPES = (("bitnet", c.TERN_RECIPE_BITNET), ("paper", c.TERN_RECIPE_PAPER), ("llama", c.TERN_RECIPE_LLAMA))
SCHEDULES = (("auto", c.TERN_SCHEDULE_AUTO), ("two-stage", c.TERN_SCHEDULE_TWO_STAGE), ("cosine", c.TERN_SCHEDULE_COSINE),
             ("constant", c.TERN_SCHEDULE_CONSTANT))
OPTIMIZERS = (("adamw", c.TERN_OPTIMIZER_ADAMW), ("adamw8bit", c.TERN_OPTIMIZER_ADAMW8BIT), ("muon", c.TERN_OPTIMIZER_MUON))
LOSSES = (("auto", c.TERN_LOSS_AUTO), ("dpo", c.TERN_LOSS_DPO), ("orpo", c.TERN_LOSS_ORPO), ("kto", c.TERN_LOSS_KTO))
PACKINGS = (("wrapped", c.TERN_PACKING_WRAPPED), ("bfd", c.TERN_PACKING_BFD), ("none", c.TERN_PACKING_NONE))


@dataclass(frozen=True)
class TrainEvent:
    """A line of the log; numbers that it does not have are NaN."""

    step: int
    n_steps: int
    n_tokens: int
    loss: float  # nats per token
    valid_loss: float
    rate: float
    grad_norm: float
    tokens_per_second: float
    seconds_left: float
    pairs_per_second: float  # of training with pairs
    recall_1: float
    recall_10: float
    reward_margin: float  # of preferences, of the last step or held out
    reward_accuracy: float
    cross_entropy: float  # with a teacher
    kl: float
    top1_agreement: float
    sign_flips: float  # with qat: shares of weights of another sign than at first, and 0 in one of both alone
    zero_changes: float
    cache_bytes: int  # while teacher_cache is written: its size in all
    cache_share: float  # how much of it is there
    checkpoint: Optional[str]  # just written, a name in the folder
    prompt: Optional[str]  # of sample_prompts, as the model read it
    sample: Optional[str]  # what it said to that
    best_valid_loss: float  # with valid_loss: the least so far, of the weights in best.gguf
    best_step: int
    ends_early: bool  # the last event: early_stopping_patience has run out


@dataclass(frozen=True)
class TrainMemory:
    """Bytes that a run takes at most; on the CPU all are the host's."""

    weights: int  # also frozen ones
    gradients: int
    optimizer: int
    decoded: int  # a part of the weights: frozen matrices that are floats on the device
    activations: int
    logits: int  # a part of the activations
    process: int  # taken before
    host: int  # all of them
    device: int
    host_available: int  # besides process; 0: unknown


@dataclass(frozen=True)
class TrainPlan:
    """What a run will do and need: of train_plan(), and for on_begin of train()."""

    device: str
    n_params: int  # trained
    n_ternary: int
    n_all_params: int  # also frozen ones
    n_layers: int
    n_embd: int
    seq_len: int
    batch_tokens: int
    n_tokens: int
    n_valid_tokens: int
    n_windows: int
    n_padding: int
    n_truncated: int
    n_pairs: int
    n_valid_pairs: int
    share: float  # scored tokens
    valid_share: float
    batch_pairs: int
    n_cut_texts: int
    step: int  # above 0: resumed from that step
    n_damaged: int  # newer checkpoints that were skipped
    n_dropped_lines: int  # of the log, which will be written again
    n_steps: int
    n_epochs: float
    memory: TrainMemory
    cache_bytes: int  # of teacher_cache on the disk when it is complete; 0: there is none
    cache_share: float  # how much of it is there
    seconds: float  # of all steps, as measured with measured_tokens; NaN: not measured
    measured_tokens: int
    n_new_tokens: int  # by which init grows
    first_new_token: int  # its id
    start_bytes: int  # memory of ternarize's start "gptq", beside the model; else 0


class TrainOptions(TypedDict, total=False):
    """Keywords of train(): the command line's names (docs/training.md); None is the same as leaving one out."""

    init: Optional[Path]  # a model with the first weights
    resume: Optional[bool]  # go on from the newest checkpoint in `out`
    freeze: Optional[str]  # of init, not trained: some of "q,k,v,o,gate,up,down,norm,router", "layers.0-3,embed_tokens"
    layer_rate_decay: Optional[float]  # the rate of layer l of n is times this^(n - l)
    embedding_rate: Optional[float]  # of table and head
    teacher: Optional[Path]  # a model with the same vocabulary, whose distributions are learnt
    teacher_cache: Optional[Path]  # a file that keeps its best tokens for the text: then it is not needed
    teacher_top_k: Optional[int]  # how many of each; None: 64
    teacher_tail: Optional[int]  # so many of the others, drawn by their probability: the mean of KL is all tokens'
    kd_ratio: Optional[float]  # share of KL in the loss, None: 1; below 0: it is only measured
    qat: Optional[str]  # "pq2_0", "q2_0", "tq2_0", "q4_0" ...: steps compute with matrices of this type, checkpoints have it
    qat_start: Optional[Path]  # a GGUF of init in that type, whose numbers training begins with
    qat_warmup: Optional[int]  # steps in which rounding sets in, from floats on
    assistant_only: Optional[bool]  # of chats learn only what the assistant says
    lora_rank: Optional[int]  # train an adapter beside the frozen weights of init
    lora_alpha: Optional[float]
    lora_targets: Optional[str]  # some of "q,k,v,o,gate,up,down", or a folder's modules; None: all
    rslora: Optional[bool]  # lora_alpha / sqrt(lora_rank) is the scale
    dora: Optional[bool]  # the lengths of the rows of W + s B A are trained, too
    peft: Optional[bool]  # also write the adapter as a folder of PEFT
    pairs: Optional[Path]  # train an embedding model on lines {"query", "positive", "negatives"}
    preferences: Optional[Path]  # train init on lines {"prompt", "chosen", "rejected"}
    loss: Optional[Literal["auto", "dpo", "orpo", "kto"]]  # kto: lines {"prompt", "completion", "label"}
    beta: Optional[float]  # how near init it stays
    label_smoothing: Optional[float]
    held_out_pairs: Optional[Path]
    batch_pairs: Optional[int]
    valid_pairs: Optional[int]
    temperature: Optional[float]
    pooling: Optional[Pooling]
    sizes: Optional[Iterable[int]]  # to which vectors may be cut
    preset: Optional[Literal["nano", "tiny", "micro", "small", "medium"]]
    recipe: Optional[Literal["bitnet", "paper", "llama"]]
    layers: Optional[int]  # instead of the preset's, as the five that follow
    embd: Optional[int]
    heads: Optional[int]
    kv_heads: Optional[int]
    ff: Optional[int]
    context: Optional[int]
    act: Optional[Literal["silu", "relu2", "gelu", "gelu_pytorch_tanh"]]
    separate_head: Optional[bool]
    steps: Optional[int]
    seq_len: Optional[int]  # tokens of a sequence
    batch_tokens: Optional[int]  # of a step
    micro_tokens: Optional[int]  # computed at once
    gradient_checkpointing: Optional[bool]  # activations inside layers are computed again: less memory
    schedule: Optional[Literal["auto", "two-stage", "cosine", "constant"]]
    optimizer: Optional[Literal["adamw", "adamw8bit", "muon"]]
    bf16_masters: Optional[bool]  # matrices are bfloat16, rounded at random after each step
    rate: Optional[float]  # peak learning rates of both stages
    rate_2: Optional[float]
    warmup: Optional[int]
    weight_decay: Optional[float]
    clip: Optional[float]
    seed: Optional[int]
    packing: Optional[Literal["wrapped", "bfd", "none"]]  # of documents into sequences
    in_order: Optional[bool]
    log_every: Optional[int]  # steps
    valid_every: Optional[int]
    valid_tokens: Optional[int]
    checkpoint_every: Optional[int]
    keep: Optional[int]  # newest checkpoints
    sample_prompts: Optional[Path]  # texts to continue while it learns, one a line; .jsonl: also chats
    sample_every: Optional[int]
    sample_tokens: Optional[int]
    tensorboard: Optional[bool]  # also write the log as TensorBoard's events
    early_stopping_patience: Optional[int]  # end after this number of validations without a lower loss
    no_best: Optional[bool]  # do not keep the weights with the least validation loss as best.gguf
    device: Optional[Literal["cpu", "webgpu"]]
    cpu_features: Optional[str]
    threads: Optional[int]
    bf16: Optional[bool]
    webgpu: Optional[WebGpu]


MEMBERS = {"layers": "n_layers", "embd": "n_embd", "heads": "n_heads", "kv_heads": "n_kv_heads", "ff": "n_ff",
           "context": "n_context", "steps": "n_steps", "warmup": "n_warmup", "threads": "n_threads"}
CHOICES = {"recipe": RECIPES, "schedule": SCHEDULES, "packing": PACKINGS, "optimizer": OPTIMIZERS,
           "loss": LOSSES, "pooling": POOLING}
MOST = {ctypes.c_int32: INT_MAX, ctypes.c_int: INT_MAX, ctypes.c_int64: 2**63 - 1, ctypes.c_uint64: 2**64 - 1}


def _set(desc: Any, options: Mapping[str, Any]) -> None:
    """Members from options, by the types that the header gives them."""
    kinds: Dict[str, Any] = {field[0]: field[1] for field in type(desc)._fields_}
    for name, value in options.items():
        member = MEMBERS.get(name, name)
        if value is None:
            continue
        if name in CHOICES:
            value = choice(name, value, CHOICES[name])
        elif name == "webgpu":
            value = ctypes.pointer(webgpu_desc(value))
        elif name == "sizes":
            numbers = [whole("a size", size, 1) for size in value]
            desc.n_sizes, value = len(numbers), (ctypes.c_int32 * len(numbers))(*numbers)
        elif kinds[member] is ctypes.c_char_p:
            value = encoded(value)
        elif kinds[member] is ctypes.c_bool:
            value = bool(value)
        elif kinds[member] in MOST:
            value = whole(name, value, 0, MOST[kinds[member]])
        else:
            value = real(name, value)
        setattr(desc, member, value)


def _texts(paths: Iterable[bytes]) -> Tuple[Any, int]:
    found = list(paths)
    return (ctypes.c_char_p * len(found))(*found), len(found)


def _paths(paths: Paths) -> List[bytes]:
    return [encoded(path) for path in ([paths] if isinstance(paths, (str, bytes, os.PathLike)) else paths)]


def _source(texts: Paths, separator: Optional[str], field: Optional[str], held_out: Paths = ()) -> c.tern_data_source:
    source = c.tern_data_source(separator=optional(separator), field=optional(field))
    source.paths, source.n_paths = _texts(_paths(texts))
    source.held_out, source.n_held_out = _texts(_paths(held_out))
    return source


def data_tokenizer(texts: Paths, out: Path, *, vocab: int = 0, special: Iterable[str] = (), split: Optional[str] = None,
                   bos: bool = True, memory: int = 0, separator: Optional[str] = None, field: Optional[str] = None,
                   on_progress: Optional[OnProgress] = None) -> int:
    """Learns a byte-level BPE vocabulary from texts, and returns its size (docs/data.md).

    texts: files and folders. out: a tokenizer.json, or a folder. vocab: tokens in all, 0: 4096. special: further
    special tokens. split: how words are cut, "llama-bpe" ... bos: texts begin with <|endoftext|>.
    """
    callbacks, stats = Callbacks(), c.tern_data_tokenizer_stats()
    desc = c.tern_data_tokenizer_desc(
        source=_source(texts, separator, field), n_vocab=whole("vocab", vocab), split=optional(split), no_bos=not bos,
        memory=whole("memory", memory, 0, 2**64 - 1), on_progress=callbacks.progress(on_progress))
    desc.specials, desc.n_specials = _texts(utf8(text) for text in special)
    callbacks.run(lib.tern_data_tokenizer, encoded(out), ctypes.byref(desc), ctypes.byref(stats))
    return stats.n_vocab


def data_build(texts: Paths, folder: Path, *, tokenizer: Path, valid: float = 0.01, held_out: Paths = (), seed: int = 0,
               dedup: Literal["none", "exact", "exact,near"] = "exact", threshold: float = 0, memory: int = 0,
               shard_tokens: int = 0, end: Optional[str] = None, licence: Optional[str] = None,
               separator: Optional[str] = None, field: Optional[str] = None, weights: Iterable[float] = (), threads: int = 0,
               add_tokens: Union[Path, Sequence[str]] = (), add_special_tokens: Union[Path, Sequence[str]] = (),
               on_notice: Optional[Callable[[str], None]] = None,
               on_progress: Optional[OnProgress] = None) -> Tuple[int, int]:
    """Tokenizes texts to shards in a folder; returns how many tokens are for training and held out (docs/data.md).

    tokenizer: a tokenizer.json, a folder with one, or a model. valid: share of the documents to hold out;
    held_out: texts to hold out. add_tokens, add_special_tokens: for the end of its vocabulary, lists or files with one a
    line; a model that is trained on the shards (init) grows by them. weights: how often each of texts is taken, 0.5: a half of it. dedup: which duplicates are dropped, near ones from a likeness of threshold (0.8).
    """
    if dedup not in ("none", "exact", "exact,near"):
        refuse('dedup is one of none, exact, exact,near, not %r' % (dedup,))
    callbacks, stats = Callbacks(), c.tern_data_build_stats()
    desc = c.tern_data_build_desc(
        source=_source(texts, separator, field, held_out), on_progress=callbacks.progress(on_progress),
        keep_exact=dedup == "none", drop_near=dedup == "exact,near")
    shares = [real("a weight", weight) for weight in weights]
    if shares and len(shares) != desc.source.n_paths:
        refuse("there are %d weights for %d texts" % (len(shares), desc.source.n_paths))
    if shares:
        desc.source.weights = (ctypes.c_double * len(shares))(*shares)
    _set(desc, dict(tokenizer=tokenizer, valid=valid, seed=seed, threshold=threshold, memory=memory,
                    shard_tokens=shard_tokens, end=end, licence=licence, threads=threads))
    for name, tokens in ("add_tokens", add_tokens), ("add_special_tokens", add_special_tokens):
        setattr(desc, name, encoded(tokens) if isinstance(tokens, (str, os.PathLike)) else utf8(json.dumps(list(tokens))))
    if on_notice is not None:
        desc.on_notice = callbacks.note(on_notice)
    callbacks.run(lib.tern_data_build, encoded(folder), ctypes.byref(desc), ctypes.byref(stats))
    return stats.train.n_tokens, stats.valid.n_tokens


def _desc(options: Dict[str, Any], **places: Optional[Path]) -> Any:
    unknown = sorted(set(options) - set(TrainOptions.__annotations__))
    if unknown:
        raise TypeError("there is no option %s; there are %s" % (", ".join(unknown), ", ".join(sorted(TrainOptions.__annotations__))))
    desc = c.tern_train_desc()
    _set(desc, dict(options, **places))
    return desc


def _plan(info: Any) -> TrainPlan:
    told = info.contents
    values = {name: getattr(told, name) for name in TrainPlan.__dataclass_fields__}
    return TrainPlan(**dict(values, device=decoded(told.device), memory=from_struct(TrainMemory, told.memory)))


def train_plan(data: Optional[Path], **options: "Unpack[TrainOptions]") -> TrainPlan:
    """What train() would do and need with these options; trains and writes nothing. The speed is measured in some
    seconds. A run that the machine's memory cannot hold is refused, as train() does.

    >>> tern.train_plan("shards", preset="micro").memory.host
    """
    callbacks, found, desc = Callbacks(), [], _desc(dict(options), data=data)  # type: Callbacks, List[TrainPlan], Any

    def begin(_user: Any, info: Any) -> None:
        found.append(_plan(info))
    guarded = callbacks.guarded(begin)
    desc.on_begin = type(desc.on_begin)(lambda *args: guarded(*args) and None)
    callbacks.run(lib.tern_train_plan, ctypes.byref(desc))
    return found[0]


def train_find_rate(data: Optional[Path], **options: "Unpack[TrainOptions]") -> Tuple[float, List[Tuple[float, float]]]:
    """A learning rate for train() with these options, and what was tried: rates and losses, smoothed. A hundred steps
    with rising rates; nothing is written. NaN: the loss fell with none.
    """
    callbacks, desc, rates = Callbacks(), _desc(dict(options), data=data), c.tern_train_rates()
    callbacks.run(lib.tern_train_find_rate, ctypes.byref(desc), ctypes.byref(rates))
    return rates.rate, [(tried.rate, tried.smoothed) for tried in rates.tried[:rates.n]]


def _listen(callbacks: Callbacks, desc: Any, on_begin: Optional[Callable[[TrainPlan], None]],
            on_event: Optional[Callable[[TrainEvent], Optional[bool]]],
            on_step: Optional[Callable[[TrainEvent], Optional[bool]]]) -> None:
    """The callbacks of a tern_train_desc."""
    def line(_user: Any, event: Any) -> Optional[bool]:
        return on_event is None or on_event(from_struct(TrainEvent, event.contents))

    def step(_user: Any, event: Any) -> Optional[bool]:
        return callbacks.error is None and (on_step is None or on_step(from_struct(TrainEvent, event.contents)))

    def begin(_user: Any, info: Any) -> None:
        if on_begin is not None:
            on_begin(_plan(info))
    guarded = callbacks.guarded(begin)
    desc.on_begin = type(desc.on_begin)(lambda *args: guarded(*args) and None)
    desc.on_event = type(desc.on_event)(callbacks.guarded(line))
    desc.on_step = type(desc.on_step)(callbacks.guarded(step))  # Ctrl-C is noticed in it


def train(data: Optional[Path], out: Path, *, on_begin: Optional[Callable[[TrainPlan], None]] = None,
          on_event: Optional[Callable[[TrainEvent], Optional[bool]]] = None,
          on_step: Optional[Callable[[TrainEvent], Optional[bool]]] = None, **options: "Unpack[TrainOptions]") -> Optional[str]:
    """Trains a model on the shards of data_build(), or an adapter (lora_rank), or an embedding model (pairs).
    Returns the newest checkpoint that it wrote, which is a model that runs (docs/training.md).

    out: a folder for checkpoints and log.jsonl. on_begin gets the plan before the first step, on_event each
    line of the log, on_step each step; returning False from these two writes a checkpoint and stops (TernError
    "aborted"), and so does Ctrl-C. With resume=True the same call goes on, to the same numbers.

    >>> tern.data_tokenizer("texts", "tokenizer.json")
    >>> tern.data_build("texts", "shards", tokenizer="tokenizer.json")
    >>> model = tern.Model(tern.train("shards", "run", preset="nano", steps=1000))
    """
    callbacks, written, desc = Callbacks(), [], _desc(dict(options), data=data, out=out)  # type: Callbacks, List[str], Any

    def line(told: TrainEvent) -> Optional[bool]:
        if told.checkpoint:
            written.append(told.checkpoint)
        return on_event is None or on_event(told)
    _listen(callbacks, desc, on_begin, line, on_step)
    callbacks.run(lib.tern_train, ctypes.byref(desc))
    return os.path.join(os.fsdecode(out), written[-1]) if written else None


Stage = Literal["answers", "data", "measure", "start", "heal", "export", "report"]


def _ternarize_desc(model: Path, out: Path, texts: Paths, options: Dict[str, Any], held_out: Paths, valid: float, type: str, start: str,
                    rotate: bool, work: Optional[Path], n_tokens: int, measure_tokens: int, report_tokens: int, stages: Iterable[Stage],
                    separator: Optional[str], field: Optional[str], n_answers: int, prompts: Optional[Path], compare: Paths,
                    tasks: Union[str, Iterable[str], None], tasks_folder: Optional[Path], n_task_items: int) -> Any:
    names = {decoded(lib.tern_ternarize_stage_name(number)): number for number in range(c.TERN_TERNARIZE_STAGES)}
    bits = 0
    for stage in [stages] if isinstance(stages, str) else stages:
        bits |= 1 << names[stage] if stage in names else refuse("there is no stage %s; there are %s" % (stage, ", ".join(names)))
    desc = c.tern_ternarize_desc(source=_source(texts, separator, field, held_out), train=_desc(options), stages=bits)
    _set(desc, dict(model=model, out=out, work=work, valid=valid, type=type, start=start, rotate=rotate, n_tokens=n_tokens,
                    measure_tokens=measure_tokens, report_tokens=report_tokens, n_answers=n_answers, prompts=prompts,
                    tasks=tasks if tasks is None or isinstance(tasks, str) else ",".join(tasks), tasks_folder=tasks_folder,
                    n_task_items=n_task_items))
    desc.compared, desc.n_compared = _texts(_paths(compare))
    return desc


def ternarize(model: Path, out: Path, *, texts: Paths, held_out: Paths = (), valid: float = 0,
              type: Literal["ptq1_0", "pq2_0", "q2_0", "tq1_0", "tq2_0", "q1_0"] = "pq2_0", start: Literal["rtn", "gptq"] = "rtn",
              rotate: bool = False, work: Optional[Path] = None, n_tokens: int = 0, measure_tokens: int = 0, report_tokens: int = 0,
              stages: Iterable[Stage] = (),
              separator: Optional[str] = None, field: Optional[str] = None, n_answers: int = 0, prompts: Optional[Path] = None,
              compare: Paths = (), tasks: Union[str, Iterable[str], None] = None, tasks_folder: Optional[Path] = None,
              n_task_items: int = 0, on_stage: Optional[Callable[[str, bool], None]] = None,
              on_begin: Optional[Callable[[TrainPlan], None]] = None,
              on_event: Optional[Callable[[TrainEvent], Optional[bool]]] = None,
              on_step: Optional[Callable[[TrainEvent], Optional[bool]]] = None,
              on_progress: Optional[OnProgress] = None, **options: "Unpack[TrainOptions]") -> Optional[Dict[str, Any]]:
    """Makes a float model ternary, and returns what that costs, the report's JSON; None: the report was not among the stages
    (docs/training.md).

    out: the ternary model, a name ending in .gguf. texts: what is learnt; held_out, or without it valid (0: 0.01) of the
    documents, is what the report is of. start: how it is rounded before training; rotate: in
    a basis without outliers. work: a folder for all other files, None: beside out. n_tokens: to learn, instead of steps.
    n_answers: what the model itself says to prompts (lines of JSON, None: beginnings of the texts) is learnt, too.
    compare: other files of the model for the report; tasks: names or task files that all of them answer, whose items are in
    tasks_folder, at most n_task_items of each file (0: all).
    stages: only these. on_stage gets a stage and whether it was done before; the other callbacks and options are
    those of train(). The same call goes on after any end, to the same bits.

    >>> report = tern.ternarize("model.gguf", "ternary.gguf", texts="texts", steps=2000)
    >>> report["verdict"], [(f["name"], f["bytes"], f["kl"]) for f in report["files"]]
    """
    callbacks = Callbacks()
    desc = _ternarize_desc(model, out, texts, dict(options), held_out, valid, type, start, rotate, work, n_tokens, measure_tokens,
                           report_tokens, stages, separator, field, n_answers, prompts, compare, tasks, tasks_folder, n_task_items)

    def stage(_user: Any, number: int, done: bool) -> None:
        if on_stage is not None:
            on_stage(decoded(lib.tern_ternarize_stage_name(number)), bool(done))
    guarded = callbacks.guarded(stage)
    desc.on_stage = desc.on_stage.__class__(lambda *args: guarded(*args) and None)
    desc.on_progress = callbacks.progress(on_progress)
    _listen(callbacks, desc.train, on_begin, on_event, on_step)
    callbacks.run(lib.tern_ternarize, ctypes.byref(desc))
    if desc.stages and not desc.stages >> c.TERN_TERNARIZE_REPORT & 1:
        return None
    folder = os.fsdecode(out)[:-len(".gguf")] + ".work" if work is None else os.fsdecode(work)
    with open(os.path.join(folder, "report.json"), encoding="utf-8") as file:
        return dict(json.load(file))


def ternarize_plan(model: Path, out: Path, *, texts: Paths, held_out: Paths = (), valid: float = 0, type: str = "pq2_0",
                   start: str = "rtn", rotate: bool = False, work: Optional[Path] = None, n_tokens: int = 0, measure_tokens: int = 0,
                   separator: Optional[str] = None, field: Optional[str] = None, n_answers: int = 0, prompts: Optional[Path] = None, **options: "Unpack[TrainOptions]") -> TrainPlan:
    """What the training of ternarize() would do and need; its first stages, "answers" and "data", are done."""
    callbacks, found = Callbacks(), []  # type: Callbacks, List[TrainPlan]
    desc = _ternarize_desc(model, out, texts, dict(options), held_out, valid, type, start, rotate, work, n_tokens, measure_tokens, 0, (),
                           separator, field, n_answers, prompts, (), None, None, 0)
    _listen(callbacks, desc.train, found.append, None, None)
    callbacks.run(lib.tern_ternarize_plan, ctypes.byref(desc))
    return found[0]

"""Results: facts about models, answers and measurements. Names are tern.h's; times in seconds, sizes in bytes."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence, Tuple


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes of GPU memory that a model and its sessions use; zeros on the CPU."""

    weights: int
    cache: int
    work: int
    results: int
    now: int
    most: int


@dataclass(frozen=True)
class ModelInfo:
    path: str
    architecture: str
    name: str
    device: str  # where it runs: "cpu avx512vnni, 2 threads"
    ternary_layout: str  # "2-bit", "1.6-bit", ... "none"
    head: str
    n_vocab: int
    n_layers: int
    n_embd: int
    n_context_train: int
    n_threads: int
    n_batch: int
    n_params: int
    file_bytes: int
    bytes_per_token: int  # of weights that one greedy step reads
    bytes_per_token_logits: int
    kv_bytes_per_token: int
    sequence_bytes: int
    held_bytes: int  # what all sessions hold of these: on the device
    swapped_bytes: int  # swapped out to the host's memory
    device_memory: DeviceMemory
    load_seconds: float
    bos_id: int  # -1: none
    eos_id: int
    adds_bos: bool
    template_guess: Optional[str]  # a sentence if the file has no chat template
    # The file's sampling defaults; None: it has none.
    temperature: Optional[float]
    top_p: Optional[float]
    min_p: Optional[float]
    repeat_penalty: Optional[float]
    top_k: Optional[int]


@dataclass(frozen=True)
class DatagenStats:
    n_records: int  # in all, including those already in the file
    n_accepted: int  # in this call
    n_items: int  # prompts tried
    n_candidates: Dict[str, int]  # by what became of them: "accepted", "cut" ...
    n_tokens: int  # generated
    seconds: float


@dataclass(frozen=True)
class EmbeddingInfo:
    n_dims: int  # of a vector; 0: the model does not embed
    max_length: int  # of a text in tokens
    pooling: str  # "none", "mean", "last", "cls"
    any_length: bool  # vectors are not normalized to length 1
    n_labels: int  # of a classifier of pairs, else 0
    prompts: Dict[str, str]  # name: text put in front
    default_prompt: Optional[str]  # name of the one used if none is requested


@dataclass(frozen=True)
class InfillInfo:
    """Tokens for filling in: PREFIX text SUFFIX text MIDDLE, and the answer follows. -1: none."""

    prefix_token: int
    suffix_token: int
    middle_token: int
    pad_token: int
    repository_token: int  # before the name of a repository
    separator_token: int  # before each file
    fills_in: bool  # the vocabulary has what this takes
    suffix_first: bool  # SUFFIX text PREFIX text: without a middle


@dataclass(frozen=True)
class MediaInfo:
    """Zero, False and -1 where a model has nothing of the kind."""

    image_width: int  # of the images that classify() and embed_images() take
    image_height: int
    patch: int  # the edge of the squares that become rows
    n_labels: int  # 0: it gives vectors and no labels
    n_dims: int  # of a vector
    has_vision: bool  # messages may have images
    image_token: int  # that stands for an image in a text
    begin_token: int  # before and after it
    end_token: int
    is_asr: bool  # transcribe()
    audio_rate: int  # samples per second that it reads
    is_tts: bool  # speak()
    n_speaker: int  # size of the vector that describes a voice; 0: it takes none
    is_codec: bool  # decode_codes()
    codec_rate: int  # samples per second that it gives
    codec_frame: int  # samples of a frame
    n_codes: int  # of a frame
    n_values: int  # codes are below this


@dataclass(frozen=True)
class TokenLogprob:
    """A token at a position of an answer, and its ln p by the model itself."""

    id: int
    text: str  # as far as its bytes are valid UTF-8
    bytes: bytes
    logprob: float
    top: List["TokenLogprob"] = field(default_factory=list)  # the most likely tokens at this position, in order


@dataclass(frozen=True)
class GenerateStats:
    n_prompt: int  # tokens
    n_reused: int  # of the prompt, not computed again
    n_generated: int
    prompt_seconds: float
    generate_seconds: float
    seed: int  # the one that was used: the same seed gives the same text
    n_steps: int  # runs of the model
    n_drafted: int  # tokens drafted by speculation
    n_accepted: int
    speedup: float  # by speculation, as timed in this session; 0: unknown


@dataclass(frozen=True)
class ProfileRow:
    name: str  # of a kernel or op
    n_calls: int
    seconds: float
    bytes: int  # moved, a lower bound


@dataclass(frozen=True)
class Perplexity:
    window: int
    stride: int
    n_windows: int
    n_tokens: int  # of the whole text
    n_scored: int
    scored_bytes: int
    scored_words: int
    nll: float  # sum of -ln p
    nll_per_token: float
    nll_error: float  # standard error of the mean
    nll_per_word: float
    bits_per_byte: float
    perplexity: float
    perplexity_error: float


@dataclass(frozen=True)
class Distribution:
    """How a number is spread over the scored tokens; p1 to p999 are percentiles."""
    mean: float
    error: float  # standard error of the mean
    rms: float
    min: float
    p1: float
    p5: float
    p10: float
    median: float
    p90: float
    p95: float
    p99: float
    p999: float
    max: float


@dataclass(frozen=True)
class Comparison:
    model: Perplexity
    reference: Perplexity
    log_ratio: float  # ln(perplexity of the model / of the reference)
    log_ratio_error: float
    correlation: float  # of both models' ln p
    kl: Distribution  # Kullback-Leibler divergence, in nats
    p_change: Distribution  # p of the text's token: the model's less the reference's
    same_top: float  # share of tokens where both have one favourite
    same_top_error: float


@dataclass(frozen=True)
class ChoiceResult:
    n_items: int  # scored
    n_resumed: int  # of these, how many were read from the results file
    n_cut: int  # too long for the context: their beginning was left out
    metrics: Dict[str, Tuple[float, float]]  # "acc": (value, standard error)
    n_faulty: int  # that cannot be scored, and are not among n_items
    fault: str  # of the first of them: its place and the reason
    n_shots: int  # examples that were in front of each question


@dataclass(frozen=True)
class ImatrixStats:
    n_tokens: int
    n_windows: int
    window: int
    n_matrices: int


@dataclass(frozen=True)
class MineStats:
    n_tokens: int  # of the corpus
    n_scored: int  # scored by the model
    n_candidates: int  # frequent runs of tokens
    n_chains: int  # filled buckets
    seconds: float


@dataclass(frozen=True)
class MachineLimits:
    cpu: str
    features: str
    n_threads: int
    read_gb_per_second: float
    int8_gmac_per_second: float


@dataclass(frozen=True)
class Heap:
    heap_now: int  # allocated by the library itself, without mapped files
    heap_max: int
    process_max: int  # peak resident size of the process, 0 if unknown
    n_allocs: int  # since the program began


# ---- Memory stores -------------------------------------------------------------------------------


@dataclass(frozen=True)
class MemoryAdded:
    id: int  # of the record
    n_chunks: int
    n_redacted: int  # redacted secrets
    was_there: bool  # with replace: the same text was already there; nothing was changed


@dataclass(frozen=True)
class MemoryHit:
    id: int  # of the chunk
    record: int
    text: str
    source: str  # "" if there is none
    heading: str  # "Guide > Install", the headings above it, or ""
    metadata: Dict[str, Any]
    created: int  # seconds since 1970
    n_tokens: int
    first_line: int  # in the record's text, from 1
    score: float
    similarity: Optional[float]  # cosine; None: unknown
    vector_rank: Optional[int]  # from 1; None: not in that list
    word_rank: Optional[int]
    relevance: Optional[float]  # the reranker's score; None: not reranked


@dataclass(frozen=True)
class MemoryHits(Sequence[MemoryHit]):
    hits: List[MemoryHit]  # the best first
    context: str  # their texts separated by empty lines, for a prompt
    n_tokens: int  # of the context

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, i: Any) -> Any:
        return self.hits[i]


@dataclass(frozen=True)
class MemoryRecord:
    id: int
    source: str
    metadata: Dict[str, Any]
    created: int
    n_chunks: int
    n_tokens: int
    n_bytes: int
    text: Optional[str]  # only of store[id]


@dataclass(frozen=True)
class MemoryStats:
    n_records: int
    n_chunks: int
    n_tokens: int  # of all chunks, overlaps counted twice
    n_vectors: int  # chunks that have one
    n_dims: int  # of a vector; 0: the store never had any
    n_bytes: int  # of the file and its log
    model_name: str  # of the model of the vectors; "" if none
    model_path: str

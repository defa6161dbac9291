"""Small language models on the device they run on.

    import tern

    with tern.Model("model.gguf") as model:
        for piece in model.chat("Write a bedtime story about a fox."):
            print(piece, end="", flush=True)

Errors raise TernError, whose text is one line; where Python has a class for them, they are of that class, too. docs/python.md tells more.
"""
from . import eval
from ._agent import Agent, AgentEvent, AgentResult, Tool
from ._answer import Answer
from ._arrays import similarity
from ._chains import Chain, Chains
from ._datagen import datagen
from ._grammar import Grammar
from ._library import (
    TernError, TernFileNotFoundError, TernMemoryError, TernOSError, TernValueError, lib as _lib,
)
from ._memory import MemoryStore
from ._metadata import Metadata
from ._model import Model
from ._messages import Message, ToolCall
from ._options import DraftLimits, GenerateOptions, Lora, Speculation, WebGpu
from ._parts import Part
from ._images import ImageEncoder, ImageTokens, Label, read_image
from ._results import (
    ChoiceResult, DatagenStats, DeviceMemory, EmbeddingInfo, GenerateStats, Heap, ImatrixStats, InfillInfo, MachineLimits, MediaInfo,
    MemoryAdded, MemoryHit, MemoryHits, MemoryRecord, MemoryStats, MineStats,
    ModelInfo, Perplexity, ProfileRow, TokenLogprob,
)
from ._session import Session
from ._sounds import Transcriber, Segment, Transcript, read_sound, write_sound
from ._training import (
    TrainEvent, TrainMemory, TrainOptions, TrainPlan, data_build, data_tokenizer, ternarize, ternarize_plan, train, train_find_rate,
    train_plan,
)
from ._tools import convert, diagnose, heap, imatrix, inspect, load_chat, machine, machine_report, mine, save_chat, types

__version__ = _lib.version
__all__ = [
    "Agent", "AgentEvent", "AgentResult", "Answer", "Chain", "Chains", "ChoiceResult", "DatagenStats", "DeviceMemory", "DraftLimits", "EmbeddingInfo", "GenerateOptions",
    "GenerateStats", "Grammar", "Heap", "ImatrixStats", "ImageEncoder", "ImageTokens", "InfillInfo", "Label", "Transcriber", "Lora", "MachineLimits", "MediaInfo", "MemoryAdded", "MemoryHit", "MemoryHits", "MemoryRecord",
    "MemoryStats", "MemoryStore", "Message", "Metadata", "MineStats", "Model", "ModelInfo", "Part", "Perplexity",
    "ProfileRow", "Segment", "Session", "Speculation", "TernError", "TernFileNotFoundError",
    "TernMemoryError", "TernOSError", "TernValueError", "TokenLogprob", "Tool", "ToolCall", "TrainEvent", "TrainMemory", "TrainOptions", "TrainPlan", "Transcript", "WebGpu", "convert", "data_build", "data_tokenizer", "datagen", "diagnose", "eval", "heap", "imatrix",
    "inspect", "load_chat", "machine", "machine_report", "mine", "read_image", "read_sound", "save_chat", "similarity",
    "ternarize", "ternarize_plan", "train", "train_find_rate", "train_plan", "types", "write_sound",
]

"""Sounds: files, or arrays of samples."""
from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import Any, Callable, List, Optional, Union

from . import _c as c
from ._library import Callbacks, Handle, Path, decoded, encoded, lib, refuse
from ._options import whole

# A file, a file's bytes, or samples: a one-dimensional array of float32, -1 to 1, at the model's rate.
Sound = Union[Path, bytes, Any]


@dataclass(frozen=True)
class Segment:
    """What is said from start to end, in seconds; ids are its tokens."""

    start: float
    end: float
    text: str
    ids: List[int]


@dataclass(frozen=True)
class Transcript:
    """What is said in a sound of this many seconds."""

    segments: List[Segment]
    seconds: float
    language: str = ""  # the language spoken, "en" and so on; "": the model does not tell

    @property
    def text(self) -> str:
        """The texts of all segments, joined by spaces."""
        return " ".join(s.text for s in self.segments)


def segment_of(s: Any) -> Segment:
    return Segment(s.start, s.end, decoded(s.text), [s.ids[i] for i in range(s.n_ids)])


class Read:
    """A tern_sound, at this rate (0: its own); freed at the end of a `with`."""

    def __init__(self, sound: Sound, rate: int = 0, max_seconds: float = 0) -> None:
        self.sound = c.tern_sound()
        out, desc = ctypes.byref(self.sound), c.tern_sound_desc(rate=whole("rate", rate), seconds_max=max_seconds)
        if isinstance(sound, (str, os.PathLike)):
            lib.tern_sound_open(out, encoded(sound), ctypes.byref(desc))
        elif isinstance(sound, (bytes, bytearray)):
            lib.tern_sound_open_bytes(out, bytes(sound), len(sound), ctypes.byref(desc))
        else:
            shape: Any = getattr(sound, "shape", ())
            if len(shape) != 1 or str(getattr(sound, "dtype", "")) != "float32":
                refuse("a sound is a file, its bytes, or a one-dimensional array of float32")
            lib.tern_sound_create(out, rate or 16000, shape[0])
            raw = sound.tobytes()
            ctypes.memmove(self.sound.samples, raw, len(raw))

    def __enter__(self) -> "Read":
        return self

    def __exit__(self, *_: object) -> None:
        lib.tern_sound_close(ctypes.byref(self.sound))


def read_sound(sound: Sound, *, rate: int = 0, max_seconds: float = 0) -> Any:
    """The samples of a WAV, FLAC, MP3, Ogg or AIFF file as float32, one channel, and their rate.

    rate: to resample to; 0: the file's own.
    """
    from ._arrays import numpy_for
    np = numpy_for("tern.read_sound")
    with Read(sound, rate, max_seconds) as read:
        s = read.sound
        return np.frombuffer(ctypes.string_at(s.samples, s.n * 4), np.float32).copy(), s.rate


def write_sound(path: Path, samples: Any, rate: int) -> None:
    """Writes FLAC, MP3, Ogg or Opus by the name's extension (.flac, .mp3, .ogg, .opus), else a 16-bit WAV.

    samples: a one-dimensional array of float32.
    """
    with Read(samples, rate) as read:
        lib.tern_sound_write(ctypes.byref(read.sound), encoded(path))


OnSegment = Optional[Callable[[Segment], Any]]


def params_of(callbacks: Callbacks, on_segment: OnSegment, **members: Any) -> Any:
    """tern_transcribe_params."""
    texts = {name: None if members[name] is None else encoded(members[name]) for name in ("vad", "language")}
    params = c.tern_transcribe_params(**{**members, **texts})
    tell = callbacks.guarded(lambda _user, s: on_segment is None or on_segment(segment_of(s.contents)))
    params.on_segment = type(params.on_segment)(tell)
    return params


class Transcriber:
    """A sound that is still being recorded (Model.transcriber): feed() it, and end()."""

    def __init__(self, model: Handle, on_segment: OnSegment, on_partial: OnSegment, **members: Any) -> None:
        self._callbacks = Callbacks()
        self._params = params_of(self._callbacks, on_segment, **members)
        if on_partial is not None:
            tell = on_partial
            self._params.on_partial = type(self._params.on_partial)(
                self._callbacks.guarded(lambda _user, s: tell(segment_of(s.contents))))
        out = ctypes.POINTER(c.tern_transcriber)()
        with model as pointer:
            lib.tern_transcriber_open(ctypes.byref(out), pointer, ctypes.byref(self._params))
        self._handle = Handle(out, lib.tern_transcriber_close, model)

    def feed(self, samples: Any) -> None:
        """Adds samples: a one-dimensional array of float32, -1 to 1, at the model's media.audio_rate."""
        with Read(samples) as read, self._handle as transcriber:
            self._callbacks.run(self._finish, lib.tern_transcriber_feed, transcriber, read.sound.samples, read.sound.n)

    def end(self) -> None:
        """Ends the sound: gives the last segment. Another sound may be fed then."""
        with self._handle as transcriber:
            self._callbacks.run(self._finish, lib.tern_transcriber_end, transcriber)

    @staticmethod
    def _finish(first: Callable[..., None], transcriber: Any, *args: Any) -> None:
        """Computes all that can be said by now."""
        first(transcriber, *args)
        done = ctypes.c_bool()
        while not done.value:
            lib.tern_transcriber_poll(transcriber, None, ctypes.byref(done))

    def close(self) -> None:
        self._handle.close()

    def __enter__(self) -> "Transcriber":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

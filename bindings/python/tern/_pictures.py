"""Pictures: files, or arrays of their pixels."""
from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import Any, List, Mapping, Sequence, Tuple, Union

from . import _c as c
from ._library import Handle, Path, encoded, lib, refuse

# A file, a file's bytes, or pixels: an array of uint8 [height, width, 3].
Picture = Union[Path, bytes, Any]


@dataclass(frozen=True)
class Label:
    """A label of a picture: score is the model's own, probability its share among all labels."""

    id: int
    label: str
    probability: float
    score: float


def listed(pictures: Any) -> Tuple[List[Picture], bool]:
    """A list of the pictures, and whether a single one was given."""
    alone = not isinstance(pictures, (list, tuple))
    return ([pictures] if alone else list(pictures)), alone


class Pictures:
    """tern_picture[n] from pictures; freed at the end of a `with`."""

    def __init__(self, pictures: Sequence[Picture], as_stored: bool = False, max_pixels: int = 0) -> None:
        self.n = len(pictures)
        self.array = (c.tern_picture * max(self.n, 1))()
        self._desc = c.tern_picture_desc(n_pixels_max=max_pixels, as_stored=as_stored)
        try:
            for i, picture in enumerate(pictures):
                self._read(self.array[i], picture)
        except BaseException:
            self.close()
            raise

    def _read(self, out: c.tern_picture, picture: Picture) -> None:
        if isinstance(picture, (str, os.PathLike)):
            lib.tern_picture_open(ctypes.byref(out), encoded(picture), ctypes.byref(self._desc))
        elif isinstance(picture, (bytes, bytearray)):
            lib.tern_picture_read(ctypes.byref(out), bytes(picture), len(picture), ctypes.byref(self._desc))
        else:
            shape: Any = getattr(picture, "shape", ())
            if len(shape) != 3 or shape[2] != 3 or str(getattr(picture, "dtype", "")) != "uint8":
                refuse("a picture is a file, its bytes, or an array of uint8 [height, width, 3]")
            lib.tern_picture_new(ctypes.byref(out), shape[1], shape[0])
            raw = picture.tobytes()
            ctypes.memmove(out.rgb, raw, len(raw))

    def close(self) -> None:
        for picture in self.array:
            lib.tern_picture_free(ctypes.byref(picture))

    def __enter__(self) -> "Pictures":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ---- In conversations ----------------------------------------------------------------------------


class Shown:
    """tern_shown[n]: the pictures of messages ("images" of each), and what keeps their encodings."""

    def __init__(self, model: Handle, messages: Union[str, Sequence[Mapping[str, Any]]]) -> None:
        self.sights: List[Handle] = []
        places: List[int] = []
        for i, message in enumerate([] if isinstance(messages, str) else messages):
            for picture in message.get("images") or ():
                self.sights.append(see(model, picture))
                places.append(i)
        self.n = len(places)
        self.array = (c.tern_shown * max(self.n, 1))()
        for at, (place, sight) in enumerate(zip(places, self.sights)):
            with sight as pointer:
                self.array[at].message, self.array[at].sight = place, pointer


def see(model: Handle, picture: Picture) -> Handle:
    """A picture as encoded by a model."""
    sight = ctypes.POINTER(c.tern_sight)()
    with Pictures([picture]) as read, model as m:
        lib.tern_sight_open(ctypes.byref(sight), m, read.array, 1, None)
    return Handle(sight, lib.tern_sight_close, model)


def with_places(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message in the form of chat templates, with one part per picture."""
    pictures = message.get("images") or ()
    rest = {key: value for key, value in message.items() if key != "images"}
    if not pictures:
        return rest
    return dict(rest, content=[{"type": "image"}] * len(pictures) + [{"type": "text", "text": message["content"]}])


def read_picture(picture: Picture, *, size: Any = None, filter: str = "bicubic", as_stored: bool = False,
                 max_pixels: int = 0) -> Any:
    """The pixels of a JPEG, PNG, WebP or GIF: uint8 [height, width, 3], the right way up.

    size: (width, height) to resize to, bit-identical to Pillow's resize; filter "bicubic" or "bilinear".
    """
    from ._arrays import numpy_for
    np = numpy_for("tern.read_picture")
    if filter not in ("bicubic", "bilinear"):
        refuse("filter %r: there are bicubic and bilinear" % filter)
    with Pictures([picture], as_stored, max_pixels) as read:
        if size is not None:
            sized = c.tern_picture()
            which = c.TERN_PICTURE_BICUBIC if filter == "bicubic" else c.TERN_PICTURE_BILINEAR
            lib.tern_picture_resize(ctypes.byref(sized), ctypes.byref(read.array[0]), size[0], size[1], which)
            lib.tern_picture_free(ctypes.byref(read.array[0]))
            read.array[0] = sized
        p = read.array[0]
        n = p.width * p.height * 3
        return np.frombuffer(ctypes.string_at(p.rgb, n), np.uint8).reshape(p.height, p.width, 3).copy()

"""Images: files, or arrays of their pixels."""
from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import Any, List, Sequence, Tuple, Union

from . import _c as c
from ._library import Path, encoded, lib, refuse
from ._options import whole

# A file, a file's bytes, or pixels: an array of uint8 [height, width, 3].
Image = Union[Path, bytes, Any]


@dataclass(frozen=True)
class Label:
    """A label of an image: score is the model's own, probability its share among all labels."""

    id: int
    label: str
    probability: float
    score: float


def listed(images: Any) -> Tuple[List[Image], bool]:
    """A list of the images, and whether a single one was given."""
    alone = not isinstance(images, (list, tuple))
    return ([images] if alone else list(images)), alone


class Images:
    """tern_image[n] from images; freed at the end of a `with`."""

    def __init__(self, images: Sequence[Image], as_stored: bool = False, max_pixels: int = 0) -> None:
        self.n = len(images)
        self.array = (c.tern_image * max(self.n, 1))()
        self._desc = c.tern_image_desc(n_pixels_max=whole("max_pixels", max_pixels, 0, 2**63 - 1), as_stored=as_stored)
        try:
            for i, image in enumerate(images):
                self._read(self.array[i], image)
        except BaseException:
            self.close()
            raise

    def _read(self, out: c.tern_image, image: Image) -> None:
        if isinstance(image, (str, os.PathLike)):
            lib.tern_image_open(ctypes.byref(out), encoded(image), ctypes.byref(self._desc))
        elif isinstance(image, (bytes, bytearray)):
            lib.tern_image_open_bytes(ctypes.byref(out), bytes(image), len(image), ctypes.byref(self._desc))
        else:
            shape: Any = getattr(image, "shape", ())
            if len(shape) != 3 or shape[2] != 3 or str(getattr(image, "dtype", "")) != "uint8":
                refuse("an image is a file, its bytes, or an array of uint8 [height, width, 3]")
            lib.tern_image_create(ctypes.byref(out), shape[1], shape[0])
            raw = image.tobytes()
            ctypes.memmove(out.rgb, raw, len(raw))

    def close(self) -> None:
        for image in self.array:
            lib.tern_image_close(ctypes.byref(image))

    def __enter__(self) -> "Images":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_image(image: Image, *, size: Any = None, filter: str = "bicubic", as_stored: bool = False,
               max_pixels: int = 0) -> Any:
    """The pixels of a JPEG, PNG, WebP or GIF: uint8 [height, width, 3], the right way up.

    size: (width, height) to resize to, bit-identical to Pillow's resize; filter "bicubic" or "bilinear".
    """
    from ._arrays import numpy_for
    np = numpy_for("tern.read_image")
    if filter not in ("bicubic", "bilinear"):
        refuse("filter %r: there are bicubic and bilinear" % filter)
    with Images([image], as_stored, max_pixels) as read:
        if size is not None:
            sized = c.tern_image()
            which = c.TERN_IMAGE_BICUBIC if filter == "bicubic" else c.TERN_IMAGE_BILINEAR
            lib.tern_image_resize(ctypes.byref(sized), ctypes.byref(read.array[0]), whole("a width", size[0], 1), whole("a height", size[1], 1), which)
            lib.tern_image_close(ctypes.byref(read.array[0]))
            read.array[0] = sized
        p = read.array[0]
        n = p.width * p.height * 3
        return np.frombuffer(ctypes.string_at(p.rgb, n), np.uint8).reshape(p.height, p.width, 3).copy()

"""Images: files, or arrays of their pixels."""
from __future__ import annotations

import asyncio
import ctypes
import os
from dataclasses import dataclass
from typing import Any, Generator, List, Optional, Sequence, Tuple, Union

from . import _c as c
from ._library import Handle, Path, encoded, lib, refuse
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


class ImageTokens:
    """What a model computes from an image, or from two frames of a video. In a prompt it is a run of ids above the
    vocabulary, and in a message it stands for its image. Keep it open until what it is put into was computed."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    @property
    def ids(self) -> List[int]:
        """To be put into a prompt; equal images have equal ones."""
        n = ctypes.c_size_t()
        with self._handle as tokens:
            ids = lib.tern_image_tokens_ids(tokens, ctypes.byref(n))
            return list(ids[:n.value])

    def close(self) -> None:
        self._handle.close()

    def __enter__(self) -> "ImageTokens":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ImageEncoder:
    """The same in steps, between which answers and event loops go on.

    >>> tokens = await model.image_encoder("photo.jpg")
    """

    def __init__(self, handle: Handle, model: Handle) -> None:
        self._handle, self._model = handle, model

    def poll(self) -> Optional[ImageTokens]:
        """Computes a piece; None: there is more."""
        tokens = ctypes.POINTER(c.tern_image_tokens)()
        with self._handle as encoder:
            lib.tern_image_encoder_poll(encoder, ctypes.byref(tokens))
        return ImageTokens(Handle(tokens, lib.tern_image_tokens_close, self._model)) if tokens else None

    def __await__(self) -> Generator[Any, None, ImageTokens]:
        try:
            while True:
                tokens = self.poll()
                if tokens:
                    return tokens
                yield from asyncio.sleep(0).__await__()
        finally:  # also of a task that is cancelled
            self.close()

    def close(self) -> None:
        """Cancels it, if it is not done."""
        self._handle.close()


def image_tokens(model: Handle, images: Sequence[Image], max_pixels: int = 0) -> ImageTokens:
    tokens, params = ctypes.POINTER(c.tern_image_tokens)(), tokens_params(max_pixels)
    with Images(images) as read, model as m:
        lib.tern_image_tokens_open(ctypes.byref(tokens), m, read.array, read.n, ctypes.byref(params))
    return ImageTokens(Handle(tokens, lib.tern_image_tokens_close, model))


def image_encoder(model: Handle, images: Sequence[Image], max_pixels: int = 0) -> ImageEncoder:
    encoder, params = ctypes.POINTER(c.tern_image_encoder)(), tokens_params(max_pixels)
    with Images(images) as read, model as m:
        lib.tern_image_encoder_open(ctypes.byref(encoder), m, read.array, read.n, ctypes.byref(params))
    return ImageEncoder(Handle(encoder, lib.tern_image_encoder_close, model), model)


def tokens_params(max_pixels: int) -> c.tern_image_tokens_params:
    return c.tern_image_tokens_params(n_pixels_max=whole("max_pixels", max_pixels, 0, 2**63 - 1))


def tokens_handle(model: Handle, image: Any) -> Handle:
    """Of an image, or of one that the model has encoded."""
    if not isinstance(image, ImageTokens):
        return image_tokens(model, [image])._handle
    if model not in image._handle._needs:
        refuse("an image was encoded by another model")
    return image._handle


def pointers(images: Sequence[Handle]) -> Any:
    """tern_image_tokens *[n]"""
    array = (ctypes.POINTER(c.tern_image_tokens) * len(images))()
    for at, image in enumerate(images):
        with image as pointer:
            array[at] = pointer
    return array


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

"""NumPy, needed only by functions that return arrays."""
from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, TYPE_CHECKING

from . import _c as c
from ._library import lib, refuse, utf8

if TYPE_CHECKING:
    import numpy
    import numpy.typing


def numpy_for(what: str) -> Any:
    try:
        import numpy
    except ImportError:
        raise ImportError("%s returns NumPy arrays, and NumPy is not installed" % what) from None
    return numpy


def pointer(array: Any, kind: Any) -> Any:
    """A pointer to the data of a contiguous array, which must outlive it."""
    return array.ctypes.data_as(ctypes.POINTER(kind))


def similarity(a: "numpy.typing.ArrayLike", b: "numpy.typing.ArrayLike") -> float:
    """The cosine similarity of two vectors, -1 to 1; 0 if one of them is 0."""
    np = numpy_for("tern.similarity")
    x, y = (np.ascontiguousarray(v, dtype=np.float32) for v in (a, b))
    if x.ndim != 1 or x.shape != y.shape:
        refuse("similarity is of two vectors of one length, not of shapes %s and %s" % (x.shape, y.shape))
    return float(lib.tern_similarity(pointer(x, ctypes.c_float), pointer(y, ctypes.c_float), x.size))


def int32_array(name: str, array: Any) -> Any:
    """A contiguous int32 array. NumPy would silently keep the low bits of larger numbers."""
    if array.size and not (array.dtype.kind in "iub" and -2**31 <= int(array.min()) and int(array.max()) < 2**31):
        refuse("%s has numbers beyond 32 bits, or none that are whole" % name)
    return numpy_for(name).ascontiguousarray(array, dtype="int32").reshape(array.shape)


def inputs_array(inputs: Mapping[str, Any]) -> Tuple[Any, List[Any]]:
    """tern_array[n] for a graph's inputs, by name, and the arrays that it points into."""
    np = numpy_for("Model.compute")
    out = (c.tern_array * len(inputs))()
    kept = []
    for row, (name, value) in zip(out, inputs.items()):
        array = np.asarray(value)
        if array.ndim > c.TERN_ARRAY_DIMS:
            refuse("%s has %d dimensions, at most %d are taken" % (name, array.ndim, c.TERN_ARRAY_DIMS))
        whole = array.dtype.kind in "iub"
        array = int32_array(name, array) if whole else np.ascontiguousarray(array, dtype=np.float32).reshape(array.shape)
        kept.append(array)
        row.name, row.type = utf8(name), c.TERN_ARRAY_I32 if whole else c.TERN_ARRAY_F32
        row.n_dims, row.data = array.ndim, array.ctypes.data
        for i, n in enumerate(array.shape):
            row.dims[i] = n
    return out, kept


def outputs_array(names: Sequence[str]) -> Any:
    out = (c.tern_array * len(names))()
    for row, name in zip(out, names):
        row.name = utf8(name)
    return out


def taken(rows: Any) -> Dict[str, "numpy.ndarray[Any, Any]"]:
    """Copies of a graph's outputs, whose own memory is freed."""
    np = numpy_for("Model.compute")
    results: Dict[str, Any] = {}
    for row in rows:
        shape: List[int] = list(row.dims[:row.n_dims])
        whole = row.type == c.TERN_ARRAY_I32
        n = 1
        for length in shape:
            n *= length
        raw = ctypes.string_at(row.data, 4 * n) if n else b""
        results[row.name.decode()] = np.frombuffer(raw, np.int32 if whole else np.float32).reshape(shape).copy()
    return results


def free(rows: Any) -> None:
    for row in rows:
        if row.data:
            lib.tern_array_free(ctypes.byref(row))


def optional_float(value: float) -> Optional[float]:
    return None if value < 0 else float(value)

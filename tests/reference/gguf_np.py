"""Writer of GGUF files in plain numpy, after ggml's description of the format."""
import struct
import numpy as np

U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9


def text(s):
    s = s.encode()
    return struct.pack("<Q", len(s)) + s


def value(x):
    """Kind and bytes of a metadata value: bool, int, float, str, or a list of one of these."""
    if isinstance(x, bool):
        return BOOL, struct.pack("<?", x)
    if isinstance(x, int):
        return (U32, struct.pack("<I", x)) if x >= 0 else (I32, struct.pack("<i", x))
    if isinstance(x, float):
        return F32, struct.pack("<f", x)
    if isinstance(x, str):
        return STRING, text(x)
    if x and isinstance(x[0], int) and not isinstance(x[0], bool):
        return ARRAY, struct.pack("<IQ%di" % len(x), I32, len(x), *x)
    kinds, parts = zip(*(value(y) for y in x))
    return ARRAY, struct.pack("<IQ", kinds[0], len(x)) + b"".join(parts)


def write_gguf(path, meta, tensors, bf16=(), raw_types={}):
    """meta: values by key, in order. tensors: float32 arrays, the first dimension is the slowest.
    `bf16`: names of those that hold such numbers and are written so; raw_types: type and bytes of others."""
    head, data = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(meta)), b""
    for key, x in meta.items():
        kind, raw = value(x)
        head += text(key) + struct.pack("<I", kind) + raw
    for name, x in tensors.items():
        x = np.ascontiguousarray(x, "<f4")
        kind, raw = (30, (x.view(np.uint32) >> 16).astype("<u2").tobytes()) if name in bf16 else (0, x.tobytes())
        kind, raw = raw_types.get(name, (kind, raw))
        head += text(name) + struct.pack("<I%dQIQ" % x.ndim, x.ndim, *x.shape[::-1], kind, len(data))
        data += raw + bytes(-len(raw) % 32)
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + data)

"""Reader and writer of safetensors in plain numpy. BF16 is read as float32."""
import json, struct
import numpy as np

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I8": "i1", "U8": "u1", "BOOL": "?"}


def read_header(path):
    """dtype, shape and data_offsets of each tensor, and where the offsets begin."""
    with open(path, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(n))
    header.pop("__metadata__", None)
    return header, 8 + n


def read_safetensors(path):
    data, tensors = open(path, "rb").read(), {}
    header, base = read_header(path)
    for name, t in header.items():
        first, end = t["data_offsets"]
        raw = data[base + first : base + end]
        if t["dtype"] == "BF16":
            x = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            x = np.frombuffer(raw, TYPES[t["dtype"]])
        tensors[name] = x.reshape(t["shape"])
    return tensors


def to_bf16(x):
    """The nearest numbers that BF16 has, as float32."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = bits + 0x7FFF + (bits >> 16 & 1) & np.uint32(0xFFFF0000)
    return rounded.view(np.float32).reshape(x.shape)


def write_safetensors(path, tensors, bf16=()):
    """`bf16`: names of float32 tensors that are written so; they hold such numbers already."""
    header, blobs, at = {}, [], 0
    for name in sorted(tensors):
        x = np.ascontiguousarray(tensors[name])
        if name in bf16:
            kind, raw = "BF16", (x.view(np.uint32) >> 16).astype("<u2").tobytes()
        else:
            kind = {np.dtype(v): k for k, v in TYPES.items()}[x.dtype]
            raw = x.tobytes()
        header[name] = {"dtype": kind, "shape": list(x.shape), "data_offsets": [at, at + len(raw)]}
        blobs.append(raw)
        at += len(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))

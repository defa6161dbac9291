"""Readers of the files that the references share: GGUF and shards of tokens; and a writer."""
import glob, json, struct
import numpy as np
import torch


def read_gguf(path):
    """Metadata (numbers and strings) and float tensors of a GGUF v3 file."""
    data = open(path, "rb").read()
    at = 8
    n_tensors, n_meta = struct.unpack_from("<QQ", data, at)
    at += 16
    sizes = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def text():
        nonlocal at
        (n,) = struct.unpack_from("<Q", data, at)
        s = data[at + 8 : at + 8 + n]
        at += 8 + n
        return s.decode("utf-8", "replace")

    def value(kind):
        nonlocal at
        if kind == 8:
            return text()
        if kind == 9:
            element, n = struct.unpack_from("<IQ", data, at)
            at += 12
            return [value(element) for _ in range(n)]
        (v,) = struct.unpack_from("<" + sizes[kind], data, at)
        at += struct.calcsize(sizes[kind])
        return v

    meta, infos, tensors = {}, [], {}
    for _ in range(n_meta):
        key = text()
        (kind,) = struct.unpack_from("<I", data, at)
        at += 4
        meta[key] = value(kind)
    for _ in range(n_tensors):
        name = text()
        (n_dims,) = struct.unpack_from("<I", data, at)
        dims = struct.unpack_from("<%dQ" % n_dims, data, at + 4)
        kind, offset = struct.unpack_from("<IQ", data, at + 4 + 8 * n_dims)
        at += 16 + 8 * n_dims
        infos.append((name, dims, kind, offset))
    align = meta.get("general.alignment", 32)
    base = (at + align - 1) // align * align
    for name, dims, kind, offset in infos:
        assert kind in (0, 1), "%s: only float32 and float16 are read" % name
        n = int(np.prod(dims))
        x = np.frombuffer(data, (np.float32, np.float16)[kind], n, base + offset)
        tensors[name] = torch.tensor(x.astype(np.float32).reshape(dims[::-1]))
    return meta, tensors


def write_gguf(path, arrays, tensors):
    """A GGUF file of int32 or float32 arrays as metadata, and float32 tensors."""
    text = lambda s: struct.pack("<Q", len(s)) + s.encode()
    head = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(arrays) + 1)]
    head.append(text("general.architecture") + struct.pack("<I", 8) + text("gradients"))
    for name, x in arrays.items():
        kind = 5 if x.dtype == np.int32 else 6
        head.append(text(name) + struct.pack("<IIQ", 9, kind, len(x)) + x.tobytes())
    data = b""
    for name, x in tensors.items():
        head.append(text(name) + struct.pack("<I%dQIQ" % x.ndim, x.ndim, *x.shape[::-1], 0, len(data)))
        data += x.astype("<f4").tobytes()
        data += bytes(-len(data) % 32)
    head = b"".join(head)
    open(path, "wb").write(head + bytes(-len(head) % 32) + data)


def read_shards(folder):
    """The token ids of train-*.tern one after the other, and the id that ends documents."""
    parts = []
    for path in sorted(glob.glob(folder + "/train-*.tern")):
        head = open(path, "rb").read(64)
        assert head[:8] == b"TERNTOKS"
        (width,) = struct.unpack_from("<I", head, 12)
        (end,) = struct.unpack_from("<i", head, 20)
        (n,) = struct.unpack_from("<Q", head, 24)
        parts.append(np.fromfile(path, np.uint16 if width == 2 else np.uint32, n, offset=64))
    return torch.tensor(np.concatenate(parts).astype(np.int64)), end

#!/usr/bin/env python3
"""Writes tests/oracles/blocks.gguf: a GGUF file with metadata of every kind and a tensor of random
bytes of every block type, and what they mean as float32 tensors (TYPE.values). Needs numpy.

Written from the formats' descriptions in ggml and bitnet.cpp; it shares no code with tern.
"""
import os, struct
import numpy as np

ROWS, COLUMNS = 2, 512
f32 = np.float32


def half(raw):
    return f32(np.frombuffer(raw, "<f2")[0])


def q4_0(b):
    q = np.frombuffer(b, np.uint8, 16, 2)
    return half(b[:2]) * (np.concatenate([q & 15, q >> 4]).astype(f32) - 8)


def q8_0(b):
    return half(b[:2]) * np.frombuffer(b, np.int8, 32, 2).astype(f32)


def scales_and_mins(s):
    low = [(s[j] & 63, s[j + 4] & 63) for j in range(4)]
    high = [(s[j + 8] & 15 | s[j] >> 6 << 4, s[j + 8] >> 4 | s[j + 4] >> 6 << 4) for j in range(4)]
    return low + high


def k_block(b, low, high):
    d, smallest, parts = half(b[0:2]), half(b[2:4]), []
    for j, (scale, minimum) in enumerate(scales_and_mins(b[4:16])):
        four = low[j // 2 * 32 :][:32] >> 4 * (j % 2) & 15
        fifth = high >> j & 1 if high is not None else 0
        parts.append(d * f32(scale) * (four + 16 * fifth).astype(f32) - smallest * f32(minimum))
    return np.concatenate(parts)


def q4_k(b):
    return k_block(b, np.frombuffer(b, np.uint8, 128, 16), None)


def q5_k(b):
    return k_block(b, np.frombuffer(b, np.uint8, 128, 48), np.frombuffer(b, np.uint8, 32, 16).astype(int))


def q6_k(b):
    low, high = np.frombuffer(b, np.uint8, 128).astype(int), np.frombuffer(b, np.uint8, 64, 128).astype(int)
    scale, d, y = np.frombuffer(b, np.int8, 16, 192).astype(f32), half(b[208:210]), np.empty(256, f32)
    for i in range(256):
        half_block, at = divmod(i, 128)
        part, l = divmod(at, 32)
        four = low[64 * half_block + 32 * (part % 2) + l] >> 4 * (part // 2) & 15
        q = (four | (high[32 * half_block + l] >> 2 * part & 3) << 4) - 32
        y[i] = d * scale[8 * half_block + 2 * part + l // 16] * f32(q)
    return y


def digit(byte, n):  # the n-th digit to base 3 of byte / 256
    return (int(byte) * 3**n % 256) * 3 >> 8


def tq1_0(b):
    codes = [digit(b[m], n) for n in range(5) for m in range(32)]
    codes += [digit(b[32 + m], n) for n in range(5) for m in range(16)]
    codes += [digit(b[48 + m], n) for n in range(4) for m in range(4)]
    return half(b[52:54]) * (np.array(codes, f32) - 1)


def tq2_0(b):
    codes = [b[j + m] >> 2 * l & 3 for j in (0, 32) for l in range(4) for m in range(32)]
    return half(b[64:66]) * (np.array(codes, f32) - 1)


def two_bits_from_low(b):  # Q2_0 (64 values) and PQ2_0 (128)
    return half(b[:2]) * (np.array([byte >> 2 * k & 3 for byte in b[2:] for k in range(4)], f32) - 1)


def q1_0(b):
    return half(b[:2]) * np.array([1 if byte >> k & 1 else -1 for byte in b[2:] for k in range(8)], f32)


def ptq1_0(b):
    codes = [digit(b[m], n) for n in range(5) for m in range(16)]
    codes += [digit(b[16 + m], n) for n in range(5) for m in range(8)]
    codes += [digit(b[24 + m], n) for n in range(4) for m in range(2)]
    return half(b[26:28]) * (np.array(codes, f32) - 1)


def i2_s(raw, n):  # 128 values in 32 bytes; one scale after all of them
    scale = f32(struct.unpack_from("<f", raw, n // 4)[0])
    codes = [raw[32 * block + m] >> 6 - 2 * l & 3 for block in range(n // 128) for l in range(4) for m in range(32)]
    return scale * (np.array(codes, f32) - 1)


# id in GGUF, values and bytes of a block, where its halves are, how it is read
TYPES = {"Q4_0": (2, 32, 18, (0,), q4_0), "Q8_0": (8, 32, 34, (0,), q8_0), "Q4_K": (12, 256, 144, (0, 2), q4_k),
         "Q5_K": (13, 256, 176, (0, 2), q5_k), "Q6_K": (14, 256, 210, (208,), q6_k),
         "TQ1_0": (34, 256, 54, (52,), tq1_0), "TQ2_0": (35, 256, 66, (64,), tq2_0),
         "Q1_0": (41, 128, 18, (0,), q1_0), "Q2_0": (42, 64, 18, (0,), two_bits_from_low),
         "PQ2_0": (142, 128, 34, (0,), two_bits_from_low), "PTQ1_0": (143, 128, 28, (26,), ptq1_0)}


def two_bits(random, n):
    codes = random.integers(0, 3, (n, 4))
    return (codes[:, 0] | codes[:, 1] << 2 | codes[:, 2] << 4 | codes[:, 3] << 6).astype(np.uint8).tobytes()


def random_blocks(random, name, n, size, halves):
    out = b""
    for _ in range(n):
        b = bytearray(two_bits(random, size) if name == "TQ2_0" else random.bytes(size))
        for at in halves:
            b[at : at + 2] = np.float16(random.uniform(-0.2, 0.2)).tobytes()
        out += bytes(b)
    return out


def tensors(random):
    n = ROWS * COLUMNS
    for name, (kind, values, size, halves, read) in TYPES.items():
        raw = random_blocks(random, name, n // values, size, halves)
        yield name, kind, raw
        yield name + ".values", 0, b"".join(read(raw[i : i + size]).astype("<f4").tobytes() for i in range(0, len(raw), size))
    raw = two_bits(random, n // 4) + struct.pack("<8f", 0.375, *[0] * 7)
    yield "I2_S", 36, raw
    yield "I2_S.values", 0, i2_s(raw, n).astype("<f4").tobytes()
    x = random.normal(0, 1, n).astype(f32)
    for name, kind, raw in (("F16", 1, x.astype("<f2").tobytes()), ("BF16", 30, (x.view(np.uint32) >> 16).astype("<u2").tobytes())):
        yield name, kind, raw
        y = x.astype(np.float16).astype(f32) if kind == 1 else (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(f32)
        yield name + ".values", 0, y.tobytes()


def text(s):
    s = s.encode()
    return struct.pack("<Q", len(s)) + s


METADATA = [("general.architecture", 8, text("blocks")), ("a.u8", 0, struct.pack("<B", 200)), ("a.i8", 1, struct.pack("<b", -100)),
            ("a.u16", 2, struct.pack("<H", 60000)), ("a.i16", 3, struct.pack("<h", -30000)), ("a.u32", 4, struct.pack("<I", 4000000000)),
            ("a.i32", 5, struct.pack("<i", -2000000000)), ("a.f32", 6, struct.pack("<f", 0.15625)), ("a.bool", 7, b"\1"),
            ("a.text", 8, text("\u00e4 \u4e2d\n")), ("a.list", 9, struct.pack("<IQ3i", 5, 3, -1, 2, 3)),
            ("a.texts", 9, struct.pack("<IQ", 8, 2) + text("") + text("xy")), ("a.u64", 10, struct.pack("<Q", 2**53 + 1)),
            ("a.i64", 11, struct.pack("<q", -(2**53) - 1)), ("a.f64", 12, struct.pack("<d", 1e300)), ("general.alignment", 4, struct.pack("<I", 64))]


def main():
    infos, data = b"", b""
    all_tensors = list(tensors(np.random.default_rng(77)))
    for name, kind, raw in all_tensors:
        infos += text(name) + struct.pack("<IQQIQ", 2, COLUMNS, ROWS, kind, len(data))
        data += raw + bytes(-len(raw) % 64)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(all_tensors), len(METADATA))
    head += b"".join(text(key) + struct.pack("<I", kind) + value for key, kind, value in METADATA) + infos
    path = os.path.join(os.path.dirname(__file__), "..", "oracles", "blocks.gguf")
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 64) + data)
    print("%d tensors" % len(all_tensors))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Block types of GGUF that few programs read, read by their definitions: what src/base/dtype/dtype_test.c compares with.

STQ1_0: Sherry (arXiv:2601.07892), three trits of four that are not 0. NVFP4: e2m1 with a scale of E4M3 for 16.
"""
import struct
import zlib


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def e4m3(byte):
    exponent, fraction = byte >> 3 & 15, byte & 7
    if byte & 127 == 127:  # no number
        return 0.0
    return fraction / 512 if exponent == 0 else (1 + fraction / 8) * 2.0 ** (exponent - 7)


def e2m1(code):
    exponent, fraction = code >> 1 & 3, code & 1
    size = fraction / 2 if exponent == 0 else (1 + fraction / 2) * 2.0 ** (exponent - 1)
    return -size if code & 8 else size


def nvfp4(block):
    out = []
    for s, scale in enumerate(block[:4]):
        codes = block[4 + 8 * s : 12 + 8 * s]
        out += [f32(e4m3(scale) * e2m1(c)) for c in [b & 15 for b in codes] + [b >> 4 for b in codes]]
    return out


def stq1_0(block):
    scale, out = struct.unpack("<e", block[40:42])[0], [0.0] * 256
    for g in range(64):
        code, sign = block[g // 2] >> g % 2 * 4 & 15, -1 if block[32 + g // 8] >> g % 8 & 1 else 1
        trits = [sign, -sign if code & 1 else sign, -sign if code & 2 else sign]
        trits.insert(code >> 2, 0)
        for lane, trit in enumerate(trits):
            out[g // 16 * 64 + g % 16 + 16 * lane] = f32(trit * scale)
    return out


def main():
    for read, n_bytes in ((stq1_0, 42), (nvfp4, 36)):
        state, data = 7, bytearray()
        for _ in range(64 * n_bytes):
            state = (state * 1664525 + 1013904223) % 2**32
            data.append(state >> 16 & 255)
        values = []
        for i in range(0, len(data), n_bytes):
            block = data[i : i + n_bytes]
            if read is stq1_0:
                block[41] = 0x2C | block[41] & 3  # a number
            values += read(block)
        print("%-7s %08x %r" % (read.__name__, zlib.crc32(struct.pack("<%df" % len(values), *values)), values[1000]))


if __name__ == "__main__":
    main()

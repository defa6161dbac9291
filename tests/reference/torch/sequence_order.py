"""The order in which training reads its sequences: a permutation for each epoch, as in tern."""


def mix(z):  # splitmix64's finalizer
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return z ^ z >> 31


def permute(index, n, key):
    """The order of sequences (docs/formats.md): a Feistel network of six rounds on the least even
    number of bits, walked until it falls inside."""
    half = 1
    while half < 32 and 1 << 2 * half < n:
        half += 1
    keys = []
    for _ in range(6):
        key = mix((key + 0x9E3779B97F4A7C15) % 2**64)
        keys.append(key)
    while True:
        left, right = index >> half, index % (1 << half)
        for k in keys:
            left, right = right, left ^ mix(right ^ k) % (1 << half)
        index = left << half | right
        if index < n:
            return index

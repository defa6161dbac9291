#!/usr/bin/env python3
"""Draws what Whisper reads of a sound:

    spectrogram.py SOUND.wav OUT.png

SOUND is a WAV of 16 bits and any rate; of several channels the mean is taken. Time runs to the right, 10 milliseconds
a column; a row is one of the model's 80 bins of pitch, the lowest at the bottom; the brighter, the louder, over a range
of 80 dB. The numbers are those of tests/reference/whisper_oracles.py, which src/media/mel.c is compared with.
Needs numpy.
"""
import os, sys, wave
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "reference"))
from image_tokens_oracles import png
from whisper_oracles import log_mel, mel_filters

RATE, HOP, N_BINS = 16000, 160, 80
WIDE, HIGH = 4, 4  # pixels of a column and a row
LEFT, RIGHT, TOP, BOTTOM, TICK, INK = 100, 12, 12, 44, 6, 3
COLOURS = np.array([[13, 12, 34], [72, 22, 102], [158, 42, 99], [226, 93, 55], [252, 174, 60], [252, 252, 190]], float)
# Five rows of three dots.
GLYPHS = {"0": ("###", "# #", "# #", "# #", "###"), "1": (" # ", "## ", " # ", " # ", "###"), "2": ("###", "  #", "###", "#  ", "###"),
          "3": ("###", "  #", " ##", "  #", "###"), "4": ("# #", "# #", "###", "  #", "  #"), "5": ("###", "#  ", "###", "  #", "###"),
          "6": ("###", "#  ", "###", "# #", "###"), "7": ("###", "  #", "  #", " # ", " # "), "8": ("###", "# #", "###", "# #", "###"),
          "9": ("###", "# #", "###", "  #", "###"), ".": ("   ", "   ", "   ", "   ", " # "), "s": ("   ", " ##", " # ", "  #", " ##"),
          "k": ("#  ", "# #", "## ", "## ", "# #"), "H": ("# #", "# #", "###", "# #", "# #"), "z": ("   ", "###", "  #", " # ", "###"),
          " ": ("   ",) * 5}


def read_wav(path):
    with wave.open(path) as w:
        if w.getsampwidth() != 2:
            sys.exit("%s: %d bits a sample: expected 16" % (path, 8 * w.getsampwidth()))
        x = np.frombuffer(w.readframes(w.getnframes()), "<i2").reshape(-1, w.getnchannels()).mean(1) / 32768
        rate = w.getframerate()
    if not len(x):
        sys.exit("%s: there are no samples" % path)
    return resample(x, rate)


def resample(x, rate):
    """The Fourier transform cut off, or continued with zeros."""
    n = max(1, round(len(x) * RATE / rate))
    return np.fft.irfft(np.fft.rfft(x), n) * (n / len(x)) if rate != RATE else x


def write(image, text, x, y, right):
    """Ends at x, or (`right`) begins there; y is the middle."""
    width = 4 * INK * len(text) - INK
    x, y = x if right else x - width, y - 5 * INK // 2
    for i, letter in enumerate(text):
        for r, row in enumerate(GLYPHS[letter]):
            for c, dot in enumerate(row):
                if dot == "#":
                    at = x + INK * (4 * i + c)
                    image[y + INK * r : y + INK * (r + 1), at : at + INK] = 90


def bin_of(hz):
    """The row whose triangle is highest there."""
    peaks = np.linspace(0, RATE / 2, 201)[mel_filters(N_BINS).argmax(1)]
    return int(np.abs(peaks - hz).argmin())


def draw(levels):
    """levels: [columns, N_BINS] within 0 .. 1."""
    place = levels.T[::-1] * (len(COLOURS) - 1)
    low = np.minimum(place.astype(int), len(COLOURS) - 2)
    part = (place - low)[..., None]
    image = COLOURS[low] * (1 - part) + COLOURS[low + 1] * part
    image = image.repeat(HIGH, 0).repeat(WIDE, 1)
    h, w = image.shape[:2]
    image = np.full((TOP + h + BOTTOM, LEFT + w + RIGHT, 3), 255, np.uint8)
    image[TOP : TOP + h, LEFT : LEFT + w] = np.round(image)
    for hz in (500, 1000, 2000, 4000):
        y = TOP + h - HIGH * bin_of(hz) - HIGH // 2
        image[y, LEFT - TICK : LEFT] = 90
        write(image, "%g kHz" % (hz / 1000), LEFT - TICK - 4, y, False)
    seconds = RATE // HOP * WIDE
    for i, x in enumerate(range(LEFT, LEFT + w, seconds // 2)):
        image[TOP + h : TOP + h + TICK, x] = 90
        if i % 2 == 0:
            write(image, "%d s" % (i // 2), x, TOP + h + TICK + 18, True)
    return image


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: spectrogram.py SOUND.wav OUT.png")
    mel = log_mel(read_wav(sys.argv[1]), N_BINS, 0)
    levels = 1 + (mel - mel.max()) / 2  # log_mel divides by 4, and 80 dB are eight powers of ten
    with open(sys.argv[2], "wb") as f:
        f.write(png(draw(np.clip(levels, 0, 1))))


if __name__ == "__main__":
    main()

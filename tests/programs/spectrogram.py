"""A spectrogram in decibels: frames by stride tricks or by index, a Hann window, the FFT."""

import numpy as np


def frames(x, size, hop):
    count = 1 + (len(x) - size) // hop
    index = np.arange(size)[None, :] + hop * np.arange(count)[:, None]
    return x[index]


def spectrogram(x, rate, size=128, hop=64, floor=-80.0):
    window = np.hanning(size + 1)[:-1]
    spectrum = np.fft.rfft(frames(x, size, hop) * window, axis=-1)
    power = np.abs(spectrum) ** 2 / (rate * np.sum(window**2))
    power[:, 1:-1] *= 2
    level = 10 * np.log10(np.maximum(power, 10 ** (floor / 10)))
    peak = np.fft.rfftfreq(size, 1 / rate)[level.argmax(axis=1)]
    return level.T, peak


def example(rng):
    t = np.arange(4000) / 8000.0
    return np.sin(2 * np.pi * (500 + 1500 * t) * t) + 0.1 * rng.normal(size=t.size), 8000.0

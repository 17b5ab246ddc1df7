"""A windowed-sinc FIR filter and a biquad IIR filter sample by sample (R. Bristow-Johnson's cookbook)."""

import numpy as np


def sinc_lowpass(cutoff, taps):
    n = np.arange(taps) - (taps - 1) / 2
    h = np.sinc(2 * cutoff * n) * np.blackman(taps)
    return h / h.sum()


def biquad(cutoff, q):
    w = 2 * np.pi * cutoff
    alpha = np.sin(w) / (2 * q)
    cos = np.cos(w)
    b = np.array([(1 - cos) / 2, 1 - cos, (1 - cos) / 2])
    a = np.array([1 + alpha, -2 * cos, 1 - alpha])
    return b / a[0], a / a[0]


def iir(x, b, a):
    y = np.zeros_like(x)
    x1 = x2 = y1 = y2 = 0.0
    for n in range(len(x)):
        y[n] = b[0] * x[n] + b[1] * x1 + b[2] * x2 - a[1] * y1 - a[2] * y2
        x2, x1 = x1, x[n]
        y2, y1 = y1, y[n]
    return y


def filters(x, cutoff):
    low = np.convolve(x, sinc_lowpass(cutoff, 31), mode="same")
    return low, iir(x, *biquad(cutoff, np.sqrt(0.5)))


def example(rng):
    return rng.normal(size=300), 0.1

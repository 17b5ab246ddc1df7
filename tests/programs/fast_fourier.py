"""The fast Fourier transform by recursion (Cooley and Tukey 1965), and a convolution with it."""

import numpy as np


def fft(x):
    n = len(x)
    if n == 1:
        return x
    even, odd = fft(x[::2]), fft(x[1::2])
    twiddle = np.exp(-2j * np.pi * np.arange(n // 2) / n) * odd
    return np.concatenate([even + twiddle, even - twiddle])


def ifft(x):
    return np.conj(fft(np.conj(x))) / len(x)


def fast_fourier(a, b):
    size = 1
    while size < len(a) + len(b) - 1:
        size *= 2
    fa = fft(np.concatenate([a, np.zeros(size - len(a))]).astype(complex))
    fb = fft(np.concatenate([b, np.zeros(size - len(b))]).astype(complex))
    return np.abs(fa), ifft(fa * fb).real[: len(a) + len(b) - 1]


def example(rng):
    return rng.normal(size=20), rng.normal(size=9)

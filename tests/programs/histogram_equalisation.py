"""Histogram equalisation of an 8-bit image, and Otsu's threshold (1979)."""

import numpy as np


def equalise(image):
    counts, _ = np.histogram(image, bins=256, range=(0, 256))
    cdf = counts.cumsum()
    masked = np.ma.masked_equal(cdf, 0)
    low = masked.min()
    table = np.ma.filled((masked - low) * 255 / (cdf[-1] - low), 0).astype(np.uint8)
    return table[image]


def otsu(image):
    p = np.bincount(image.ravel(), minlength=256) / image.size
    omega = np.cumsum(p)
    mu = np.cumsum(p * np.arange(256))
    with np.errstate(divide="ignore", invalid="ignore"):
        between = (mu[-1] * omega - mu) ** 2 / (omega * (1 - omega))
    return np.nanargmax(between)


def histogram_equalisation(image):
    threshold = otsu(image)
    return equalise(image), threshold, image > threshold


def example(rng):
    dark, light = rng.normal(60, 12, (32, 16)), rng.normal(150, 20, (32, 16))
    return (np.clip(np.hstack([dark, light]), 0, 255).astype(np.uint8),)

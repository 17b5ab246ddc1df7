"""Error diffusion to a few grey levels (Floyd and Steinberg 1976), pixel by pixel."""

import numpy as np


def dithering(image, levels):
    img = image.astype(float)
    h, w = img.shape
    for y in range(h):
        for x in range(w):
            old = img[y, x]
            new = np.round(old * (levels - 1)) / (levels - 1)
            img[y, x] = new
            err = old - new
            if x + 1 < w:
                img[y, x + 1] += err * 7 / 16
            if y + 1 < h:
                if x > 0:
                    img[y + 1, x - 1] += err * 3 / 16
                img[y + 1, x] += err * 5 / 16
                if x + 1 < w:
                    img[y + 1, x + 1] += err / 16
    return img


def example(rng):
    return rng.random((10, 14)), 3

"""Bits of integers in compiled loops: shifts of NumPy's scalars and of Python's numbers, by counts of any size."""

from __future__ import annotations

import numpy as np
import pytest
from compare import calls_of_loops, outcome

import futurex as fx

RNG = np.random.default_rng(0)


def checksum(data):
    crc = 0xFFFF
    for byte in data:
        current = 0xFF & byte
        for _ in range(8):
            if (crc & 1) ^ (current & 1):
                crc = (crc >> 1) ^ 0x8408
            else:
                crc >>= 1
            current >>= 1
    return (crc << 8 | crc >> 8 & 0xFF) & 0xFFFF


def ones(values):
    total = 0
    for value in values:
        number = int(value)
        while number:
            total += number & 1
            number >>= 1
    return total


def reversed_bits(n, width):
    out = np.zeros(n, dtype=int)
    for i in range(n):
        for k in range(width):
            out[i] |= ((i >> k) & 1) << (width - 1 - k)
    return out


def shifted(values, counts):
    left, right = np.zeros_like(values), np.zeros_like(values)
    for k in range(len(values)):
        left[k] = values[k] << counts[k]
        right[k] = values[k] >> counts[k]
    return left, right


def of_python(values, counts):
    total = 0
    for k in range(len(values)):
        total += int(values[k]) >> int(counts[k])
    return total


def edges(code):
    limits, width = np.iinfo(code), 8 * np.dtype(code).itemsize
    values = np.array([0, 1, 3, limits.max, limits.min, limits.max - 1, limits.min + 1, 77], code)
    counts = np.array([0, 1, width - 1, width, width + 1, 100, *([-1, -100] if limits.min else [])], code)
    return tuple(each.ravel().copy() for each in np.meshgrid(values, counts))


CASES = [
    (checksum, RNG.integers(0, 256, 50).astype(np.uint8)), (checksum, RNG.integers(0, 256, 50)),
    (ones, RNG.integers(0, 1 << 40, 30)), (reversed_bits, 64, 6),
    (of_python, RNG.integers(-(1 << 62), 1 << 62, 40), RNG.integers(0, 100, 40)),
    *((shifted, *edges(code)) for code in "bhilBHIL"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].__name__}-{getattr(case[1], 'dtype', '')}")
def test_the_bits_are_numpys_and_pythons(case, at_once):
    function, *args = case
    futurized = fx.futurize(function)
    for _ in range(4):
        assert outcome(futurized, args) == outcome(function, args), futurized.explain()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].__name__}-{getattr(case[1], 'dtype', '')}")
def test_nothing_is_called_in_python(case):
    function, *args = case
    futurized = fx.futurize(function)
    assert calls_of_loops(futurized, args) == [], futurized.explain()


@pytest.mark.parametrize("counts", [[3, -1], [1, 2]], ids=str)
def test_negative_counts_are_pythons_error(counts, at_once):
    values, counts = np.array([5, 9] * 20), np.array(counts * 20)
    futurized = fx.futurize(of_python)
    for _ in range(3):
        assert outcome(futurized, (values, counts)) == outcome(of_python, (values, counts))

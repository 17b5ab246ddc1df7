"""Times and sizes as people read them, and sizes as people write them."""

from __future__ import annotations

import re

_SIZES = {unit: 1000**k for k, unit in enumerate(("b", "kb", "mb", "gb", "tb"))}
_SIZES |= {unit: 1024**k for k, unit in enumerate(("", "kib", "mib", "gib", "tib"))}


def size_of(text: float | str) -> int:
    """Bytes of a number with or without a unit. Raises ValueError or TypeError for what is none, or not positive.

    >>> size_of("1.5 MB"), size_of("2GiB"), size_of(512), size_of(2e9)
    (1500000, 2147483648, 512, 2000000000)
    """
    if isinstance(text, float) and text.is_integer():  # 2e9
        text = int(text)
    if isinstance(text, bool) or not isinstance(text, int | str):
        raise TypeError(f"a number of bytes or a text such as '512 MB', not {text!r}")
    found = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([A-Za-z]*)\s*", str(text))
    if found is None or found[2].lower() not in _SIZES or not float(found[1]):
        raise ValueError(f"{text!r} is no number of bytes; write 536870912, '512 MB' or '0.5 GiB'")
    return int(float(found[1]) * _SIZES[found[2].lower()])


def bytes_text(count: float) -> str:
    """A size in the largest unit that leaves a number above one.

    >>> bytes_text(72), bytes_text(1_600_000), bytes_text(2.5e9)
    ('72 B', '1.60 MB', '2.50 GB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{_three_digits(count / size)} {unit}"
    return f"{count:.0f} B"


def seconds_text(seconds: float) -> str:
    """A time in the largest unit that leaves a number above one.

    >>> seconds_text(0.0123), seconds_text(4.1e-6), seconds_text(80)
    ('12.3 ms', '4.10 µs', '80.0 s')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{_three_digits(seconds / size)} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def _three_digits(number: float) -> str:
    return f"{number:.{2 if number < 10 else 1 if number < 100 else 0}f}"

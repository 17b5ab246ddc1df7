"""The page of the documentation that says what becomes of every function of NumPy, from the verdicts of the judge."""

import numpy as np
from numpy_cases import EXCLUDED

from futurex.frontend.numpy_api import HANDLERS, NATIVE
from futurex.frontend.numpy_api.source import PURE, WALKED

HEAD = """# NumPy in a futurized function

What becomes of every name of `numpy` in a function that is futurized. The table is measured: example calls of every
name (`tests/frontend/numpy_cases.py`) are compared with NumPy, bit for bit, on arrays of seven kinds. The products and
`numpy.linalg`, `numpy.fft`, `numpy.random` and the methods of arrays have examples and tests of their own. `python
tools/numpy_table.py` writes this page, and a test fails where it is out of date.

- **operation**: one node of the tree, with a derivative, tiling rule and kernels of its own
- **translation**: several operations, in NumPy's order
- **NumPy's source**: NumPy's own Python code is traced, as the user's code is
- **NumPy's code**: one node that calls NumPy's function; some have a derivative, as the table says
- **view or copy**: elements are read, moved or written, nothing is computed
- **known before the run**: it reads no elements, or no array at all; the tree holds the answer
- **fragment**: the call stays a call, made by the run between operations
- **plain**: such a call is not staged: the reason is what `f.explain()` says

## Masked arrays

Masked arrays are staged, too ([decision 67](decisions/067-masked-arrays-are-two-arrays.md)): `np.ma`'s ways to make
them, its ufuncs and operators with their domains, reductions, indexing and writes, moves, and NumPy's own ufuncs on
them. A masked array that is returned is a `np.ma.MaskedArray`, with NumPy's data under the mask and its fill value;
such a call waits for its result.

```python
import numpy as np

import futurex as fx


@fx.futurize
def stretched(image):
    seen = np.ma.masked_equal(image, 0)
    return ((seen - seen.min()) * 255 / (seen.max() - seen.min())).filled(0).astype(np.uint8)


print(stretched(np.array([[0, 30, 40], [80, 0, 60]])).tolist())  # [[0, 0, 51], [255, 0, 153]]
```

Where an element, or a reduction, is `np.ma.masked` itself in some run, that run is made again as plain NumPy.

## Every name

{summary}

| name | how | operations | derivative | staged examples |
|---|---|---|---|---|
"""


#: Operations that move elements and compute nothing.
MOVING = {"load", "store", "reshape", "transpose", "cast", "contiguous", "broadcast_to"}


def page(verdicts):
    """The page as text."""
    staged = sum(all(each.staged is True for each in found) for found in verdicts.values())
    summary = (
        f"{sum(map(len, verdicts.values()))} examples of {len(verdicts)} names: none differs from NumPy; of "
        f"{staged} names every example is staged."
    )
    rows = [row(name, verdicts[name]) for name in sorted(verdicts, key=str.lower)]
    return HEAD.format(summary=summary) + "\n".join(rows) + "\n" + not_judged()


def row(name, found):
    """One line of the table."""
    ops = sorted(set().union(*(each.ops for each in found)))
    listed = ", ".join(f"`{op}`" for op in ops[:6]) + (" ..." if len(ops) > 6 else "")
    known = {each.derivative for each in found} - {None}
    derivative = "-" if not known else "yes" if known == {True} else "no" if known == {False} else "partly"
    count = sum(each.staged is True for each in found)
    return f"| `{name}` | {how(name, found, ops)} | {listed} | {derivative} | {count} of {len(found)} |"


def how(name, found, ops):
    """By which of the ways a name is staged."""
    function = getattr(np, name)
    if not any(each.staged is True for each in found):
        if all(each.staged == "fragment" for each in found):
            return "fragment"
        reasons = (line.split("why: ")[1] for each in found for line in each.detail.splitlines() if "why: " in line)
        return f"plain: {next(reasons, 'it is not traced')}"
    if not ops:
        moved = any(node.op in MOVING for each in found if each.graph for node in each.graph.nodes)
        return "view or copy" if moved else "known before the run"
    if isinstance(function, np.ufunc):
        return "operation"
    try:
        handled, walked, native, pure = (function in table for table in (HANDLERS, WALKED, NATIVE, PURE))
    except TypeError:  # an unhashable object such as np.r_
        handled, walked, native, pure = False, True, False, False
    if handled:
        only = all(len(each.ops) <= 1 for each in found)
        return ("NumPy's code" if ops == ["native"] else "operation") if only else "translation"
    if native and "native" in ops and len(ops) == 1:
        return "NumPy's code"
    if walked or not (native or pure):
        return "NumPy's source"
    return "NumPy's code" if native else "known before the run"


def not_judged():
    """The names without examples, by reason."""
    reasons = {}
    for name, reason in EXCLUDED.items():
        reasons.setdefault(reason, []).append(f"`{name}`")
    lines = [f"- {reason}: {', '.join(sorted(names))}" for reason, names in reasons.items()]
    return "\nNot judged, because the name\n\n" + "\n".join(lines) + "\n"

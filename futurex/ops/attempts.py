"""Factorizations that tell whether they failed, where others raise ``LinAlgError``: what a ``try`` stands for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from futurex.ops.elementwise import where
from futurex.tree.aval import Aval, aval_of
from futurex.tree.dims import is_static
from futurex.tree.node import Node, const, item
from futurex.tree.record import Sample, op, record


def _attempted(*inputs: Any, call: str, options: tuple[tuple[str, Any], ...]) -> tuple[Any, Any]:
    try:
        return record(call).kernel(*inputs, **dict(options)), np.False_
    except np.linalg.LinAlgError:
        found = _value_aval(*map(aval_of, inputs), call=call, options=options)
        blank = np.zeros(found.shape, found.dtype)
        return blank + np.eye(*found.shape[-2:], dtype=found.dtype) if call != "solve" else blank, np.True_


def _value_aval(*avals: Aval, call: str, options: tuple[tuple[str, Any], ...]) -> Aval:
    found = record(call).infer(avals, (None,) * len(avals), dict(options))
    assert isinstance(found, Aval)
    return found


def _attempted_rule(
    g: tuple[Any, ...], out: Node, a: Node, *rest: Node, call: str, options: tuple[tuple[str, Any], ...]
) -> Any:
    """That of the factorization; nothing where it failed, for which the derivative sees the matrix of ones."""
    rule = record(call).vjp
    if rule is None or not is_static(a.shape):
        return NotImplemented
    if g[0] is None:
        return (None,) * (1 + len(rest))
    failed = item(out, 1)
    safe = where(failed, const(np.eye(a.shape[-1], dtype=a.dtype)), a)
    found = rule(g[0], item(out, 0), safe, *rest, **dict(options))
    return tuple(None if each is None else where(failed, 0.0, each) for each in found)


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    a, b = rng.normal(size=(3, 3)), rng.normal(size=(3, 2))
    for matrix in (a @ a.T + np.eye(3), np.ones((3, 3))):
        yield Sample((matrix,), {"call": "cholesky", "options": (("upper", False),)}, order=0)
    yield Sample((a + 3 * np.eye(3),), {"call": "inv", "options": ()}, order=2)
    yield Sample((a + 3 * np.eye(3), b), {"call": "solve", "options": ()}, order=2)
    yield Sample((np.ones((3, 3)), b), {"call": "solve", "options": ()}, order=0)


op(
    "attempted", _attempted, aval=lambda *avals, **attrs: (_value_aval(*avals, **attrs), Aval((), np.dtype(bool))),
    vjp=_attempted_rule, samples=_samples,
)  # fmt: skip

"""Softmax, log-softmax, log-sum-exp and cross-entropy, shifted by the maximum so that large logits do not overflow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from futurex.ops import batching
from futurex.ops.elementwise import where
from futurex.ops.reduce import Axis, restore
from futurex.tree.aval import Aval
from futurex.tree.node import Node, apply
from futurex.tree.record import Cost, Sample, op


def _float(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that ``np.exp`` gives."""
    return np.exp(np.empty(0, dtype)).dtype


def _total(x: Node, axis: int) -> Node:
    return apply("sum", x, axis=(axis,), keepdims=True, dtype=None)


def _whole(x: Aval, axis: int) -> str:
    return " ".join(f"!d{k}" if k == axis else f"d{k}" for k in range(x.ndim))


def _softmax(x: Any, axis: int) -> Any:
    e = np.exp(np.subtract(x, np.max(x, axis, keepdims=True), dtype=_float(x.dtype)))
    e /= np.sum(e, axis, keepdims=True)
    return e


def _log_softmax(x: Any, axis: int) -> Any:
    shifted = np.subtract(x, np.max(x, axis, keepdims=True), dtype=_float(x.dtype))
    shifted -= np.log(np.sum(np.exp(shifted), axis, keepdims=True))
    return shifted


def _softmax_grad(g: Any, y: Any, axis: int) -> Any:
    return y * (g - np.sum(g * y, axis, keepdims=True))


def _log_softmax_grad(g: Any, y: Any, axis: int) -> Any:
    return g - np.exp(y) * np.sum(g, axis, keepdims=True)


def _inexact(x: Node) -> Node:
    return x if x.aval.inexact else apply("cast", x, dtype=_float(x.dtype))


def _shifted(x: Node, axis: int) -> Node:
    x = _inexact(x)
    return x - apply("stop_gradient", apply("max", x, axis=(axis,), keepdims=True))


def _softmax_decomposed(x: Node, axis: int) -> Node:
    e = apply("exp", _shifted(x, axis))
    return e / _total(e, axis)


def _log_softmax_decomposed(x: Node, axis: int) -> Node:
    shifted = _shifted(x, axis)
    return shifted - apply("log", _total(apply("exp", shifted), axis))


def _grad_aval(g: Aval, y: Aval, axis: int) -> Aval:
    return Aval(y.shape, np.result_type(g.dtype, y.dtype))


def _cost(x: Aval, *_: Aval, **__: Any) -> Cost:
    return Cost(15.0 * x.size, 3.0 * x.nbytes)


def _samples(n_inputs: int) -> Any:
    def samples(rng: np.random.Generator) -> Iterable[Sample]:
        for shape, axis, dtype in (((3, 4), 1, "f8"), ((2, 3, 4), 1, "f8"), ((3, 4), 0, "f4"), ((0, 3), 1, "f8")):
            inputs = tuple(rng.normal(size=shape).astype(dtype) for _ in range(n_inputs))
            yield Sample(inputs, {"axis": axis}, order=2 if dtype == "f8" else 0)
        yield Sample(tuple(rng.normal(size=(3, 4)) + 1e4 for _ in range(n_inputs)), {"axis": 1}, order=0)

    return samples


for _name, _kernel, _grad, _decomposed in (
    ("softmax", _softmax, _softmax_grad, _softmax_decomposed),
    ("log_softmax", _log_softmax, _log_softmax_grad, _log_softmax_decomposed),
):
    op(
        _name, _kernel, aval=lambda x, axis: Aval(x.shape, _float(x.dtype)), decompose=_decomposed, cost=_cost,
        vjp=lambda g, out, x, axis: (apply(f"{out.op}_grad", g, out, axis=axis),),
        factors=lambda x, axis: f"{_whole(x, axis)} -> {_whole(x, axis)}", samples=_samples(1),
    )  # fmt: skip

op(
    "softmax_grad", _softmax_grad, aval=_grad_aval, cost=_cost, samples=_samples(2),
    decompose=lambda g, y, axis: y * (g - _total(g * y, axis)),
    factors=lambda g, y, axis: f"{_whole(g, axis)}, {_whole(g, axis)} -> {_whole(g, axis)}",
)  # fmt: skip
op(
    "log_softmax_grad", _log_softmax_grad, aval=_grad_aval, cost=_cost, samples=lambda rng: list(_samples(2)(rng))[:-1],
    decompose=lambda g, y, axis: g - apply("exp", y) * _total(g, axis),
    factors=lambda g, y, axis: f"{_whole(g, axis)}, {_whole(g, axis)} -> {_whole(g, axis)}",
)  # fmt: skip


def _logsumexp(x: Any, axis: Axis, keepdims: bool) -> Any:
    top = np.max(x, axis, keepdims=True).astype(_float(x.dtype))
    top = np.where(np.isfinite(top), top, top.dtype.type(0))
    with np.errstate(divide="ignore"):  # the logarithm of an empty sum is -inf, as it should be
        out = np.log(np.sum(np.exp(x - top), axis, keepdims=True)) + top
    return out if keepdims else np.squeeze(out, axis)


def _logsumexp_decomposed(x: Node, axis: Axis, keepdims: bool) -> Node:
    x = _inexact(x)
    top = apply("stop_gradient", apply("max", x, axis=axis, keepdims=True))
    top = where(apply("isfinite", top), top, 0.0)
    out = apply("log", apply("sum", apply("exp", x - top), axis=axis, keepdims=True, dtype=None)) + top
    return out if keepdims else apply("reshape", out, shape=_kept(x.aval, axis, keepdims))


def _kept(x: Aval, axis: Axis, keepdims: bool) -> tuple[int, ...]:
    reduced = range(x.ndim) if axis is None else axis
    sizes = ((1 if keepdims else None) if k in reduced else extent for k, extent in enumerate(x.shape))
    return tuple(extent for extent in sizes if extent is not None)


def _logsumexp_factors(x: Aval, axis: Axis, keepdims: bool) -> str:
    reduced = range(x.ndim) if axis is None else axis
    outs = [("1" if keepdims else "") if k in reduced else f"d{k}" for k in range(x.ndim)]
    return f"{' '.join(f'!d{k}' if k in reduced else f'd{k}' for k in range(x.ndim))} -> {' '.join(filter(None, outs))}"


op(
    "logsumexp", _logsumexp, decompose=_logsumexp_decomposed, factors=_logsumexp_factors, cost=_cost,
    aval=lambda x, axis, keepdims: Aval(_kept(x, axis, keepdims), _float(x.dtype)),
    vjp=lambda g, out, x, axis, keepdims: (restore(g, x, axis) * apply("exp", x - restore(out, x, axis)),),
    samples=lambda rng: [
        Sample((rng.normal(size=(3, 4)),), {"axis": (1,), "keepdims": False}),
        Sample((rng.normal(size=(2, 3, 4)),), {"axis": (0, 2), "keepdims": True}),
        Sample((rng.normal(size=(3, 4)),), {"axis": None, "keepdims": False}),
        Sample((np.array([[1e4, 1e4 + 1], [-np.inf, -np.inf]]),), {"axis": (1,), "keepdims": False}, order=0),
    ],
)  # fmt: skip


def _check_labels(logits: Any, labels: Any) -> None:
    if labels.dtype.kind not in "iu" or labels.shape != logits.shape[:-1]:
        raise TypeError(
            f"cross-entropy needs one integer label per row: logits of shape {logits.shape} want labels of shape "
            f"{logits.shape[:-1]}, got {labels.dtype} of shape {labels.shape}"
        )


def _picked(x: Any, labels: Any) -> Any:
    """The element of every row that its label names. Raises IndexError for a label outside the classes."""
    _check_labels(x, labels)
    return np.take_along_axis(x, _checked(labels, x.shape[-1])[..., None], -1)


def _cross_entropy(logits: Any, labels: Any) -> Any:
    return -_picked(_log_softmax(logits, -1), labels)[..., 0]


def _cross_entropy_grad(g: Any, logits: Any, labels: Any) -> Any:
    out = _softmax(logits, -1)
    np.put_along_axis(out, labels[..., None], _picked(out, labels) - out.dtype.type(1), -1)
    return out * g[..., None]


def _cross_entropy_decomposed(logits: Node, labels: Node) -> Node:
    picked = apply("log_softmax", logits, axis=logits.ndim - 1) * _one_hot_like(logits, labels)
    return -apply("sum", picked, axis=(logits.ndim - 1,), keepdims=False, dtype=None)


def _cross_entropy_grad_decomposed(g: Node, logits: Node, labels: Node) -> Node:
    rows = apply("reshape", g, shape=(*g.shape, 1))
    return (apply("softmax", logits, axis=logits.ndim - 1) - _one_hot_like(logits, labels)) * rows


def _one_hot_like(logits: Node, labels: Node) -> Node:
    return apply("one_hot", labels, classes=logits.shape[-1], dtype=_float(logits.dtype))


def _cross_entropy_aval(logits: Aval, labels: Aval) -> Aval:
    _check_labels(logits, labels)
    return Aval(labels.shape, _float(logits.dtype))


def _cross_entropy_grad_aval(g: Aval, logits: Aval, labels: Aval) -> Aval:
    _check_labels(logits, labels)
    return Aval(logits.shape, np.result_type(g.dtype, _float(logits.dtype)))


def _row_names(labels: Aval) -> str:
    return " ".join(f"d{k}" for k in range(labels.ndim))


def _cross_entropy_samples(with_g: bool) -> Any:
    def samples(rng: np.random.Generator) -> Iterable[Sample]:
        cases = (((3,), "f8", "i8"), ((2, 3), "f8", "u1"), ((), "f8", "i8"), ((3,), "f4", "i4"))
        for rows, dtype, label_dtype in cases:
            g = (rng.normal(size=rows).astype(dtype),) if with_g else ()
            labels = np.asarray(rng.integers(0, 4, rows)).astype(label_dtype)
            yield Sample((*g, rng.normal(size=(*rows, 4)).astype(dtype), labels), order=2 if dtype == "f8" else 0)
        g = (rng.normal(size=2),) if with_g else ()
        yield Sample((*g, np.array([[1e4, 0.0], [-1e4, 1e4]]), np.array([1, 1])), order=0)

    return samples


op(
    "softmax_cross_entropy", _cross_entropy, aval=_cross_entropy_aval, decompose=_cross_entropy_decomposed, cost=_cost,
    vjp=lambda g, out, logits, labels: (apply("softmax_cross_entropy_grad", g, logits, labels), None),
    factors=lambda logits, labels: f"{_row_names(labels)} !c, {_row_names(labels)} -> {_row_names(labels)}",
    samples=_cross_entropy_samples(False), batch=batching.rows("softmax_cross_entropy"),
)  # fmt: skip
op(
    "softmax_cross_entropy_grad", _cross_entropy_grad, aval=_cross_entropy_grad_aval,
    decompose=_cross_entropy_grad_decomposed, samples=_cross_entropy_samples(True), cost=lambda g, x, labels: _cost(x),
    factors=lambda g, x, labels: f"{_row_names(g)}, {_row_names(g)} !c, {_row_names(g)} -> {_row_names(g)} !c",
    batch=batching.rows("softmax_cross_entropy_grad"),
)  # fmt: skip


def _checked(labels: Any, classes: int) -> Any:
    if labels.size and not 0 <= labels.min() <= labels.max() < classes:
        raise IndexError(f"labels from {labels.min()} to {labels.max()} do not name the {classes} classes")
    return labels


_SHORT = np.dtype(np.int32)
"""What labels are once they are checked: vectors compare twice as many as of 64 bits."""
op(
    "checked_labels", lambda labels, classes: np.array(_checked(labels, classes), _SHORT),
    aval=lambda labels, classes: Aval(labels.shape, _SHORT),
    factors=lambda labels, classes: f"{_row_names(labels)} -> {_row_names(labels)}",
    samples=lambda rng: [Sample((rng.integers(0, 4, (2, 3)),), {"classes": 4}, order=0)],
    batch=batching.rows("checked_labels"),
)  # fmt: skip


def _one_hot(labels: Any, classes: int, dtype: Any) -> Any:
    return (np.asarray(labels)[..., None] == np.arange(classes)).astype(dtype)


op(
    "one_hot", _one_hot, aval=lambda labels, classes, dtype: Aval((*labels.shape, classes), np.dtype(dtype)),
    factors=lambda labels, classes, dtype: f"{_row_names(labels)} -> {_row_names(labels)} !c",
    batch=batching.rows("one_hot"),
    samples=lambda rng: [
        Sample((rng.integers(0, 4, (2, 3)),), {"classes": 4, "dtype": np.dtype("float32")}, order=0),
        Sample((np.array([-1, 0, 5], np.int8),), {"classes": 3, "dtype": np.dtype("float64")}, order=0),
    ],
)  # fmt: skip

"""Normalisation of channels-last arrays: over batches, layers, groups of channels and instances."""

from __future__ import annotations

from typing import Any

import numpy as np

from futurex.errors import whole_number
from futurex.nn.operation import operation, shape_of


def batch_norm(x: Any, scale: Any, shift: Any, eps: float = 1e-5, local: bool = False) -> tuple[Any, Any, Any]:
    """``x`` (..., C) standardised over all axes but the last, times ``scale`` plus ``shift``, both (C,).

    Returns ``(y, mean, variance)``; the variance is the biased one of this batch. On a cluster these are the
    statistics of the whole batch, and localities exchange sums for them. With ``local`` each locality standardises its
    own share of the batch by the statistics of that share, as PyTorch's ``DistributedDataParallel`` does by default:
    other mathematics on every number of localities, and nothing is exchanged. ``mean`` and ``variance`` are those of
    the whole batch even so, and cost an exchange only where they are used. With ``local`` a second derivative raises
    NotDifferentiable (a TypeError).

    >>> import numpy as np, futurex as fx
    >>> y, mean, variance = fx.nn.batch_norm(np.array([[1.0], [3.0]]), np.ones(1), np.zeros(1))
    >>> float(mean[0]), float(variance[0])
    (2.0, 1.0)
    """
    _check_norm("batch_norm", x, scale, shift)
    if not local:
        return operation("batch_norm", x, scale, shift, results=3, eps=float(eps))
    axes = tuple(range(len(shape_of(x, "x", "batch_norm")) - 1))
    return operation("local_batch_norm", x, scale, shift, eps=float(eps)), x.mean(axis=axes), x.var(axis=axes)


def batch_norm_inference(x: Any, scale: Any, shift: Any, mean: Any, variance: Any, eps: float = 1e-5) -> Any:
    """``x`` (..., C) normalised by a given mean and variance (C,), as after training: no statistics of this batch.

    >>> import numpy as np, futurex as fx
    >>> fx.nn.batch_norm_inference(np.array([[3.0]]), np.ones(1), np.zeros(1), np.ones(1), np.full(1, 4.0), eps=0.0)
    array([[1.]])
    """
    _check_norm("batch_norm_inference", x, scale, shift)
    gain = scale / np.sqrt(variance + float(eps))
    return x * gain + (shift - mean * gain)


def running_statistics(
    mean: Any, variance: Any, batch_mean: Any, batch_variance: Any, count: int, momentum: float = 0.1
) -> tuple[Any, Any]:
    """Running ``(mean, variance)`` moved by ``momentum`` to those that :func:`batch_norm` gave, all (C,).

    ``count`` is the number of elements of each channel (``x.size // C``), by which the variance becomes the unbiased
    one. Raises ValueError for a count below 1.

    >>> import numpy as np, futurex as fx
    >>> fx.nn.running_statistics(np.zeros(1), np.ones(1), np.ones(1), np.ones(1), count=2, momentum=0.5)
    (array([0.5]), array([1.5]))
    """
    if count < 1:
        raise ValueError(f"running_statistics: count={count} must be at least 1, the elements of each channel")
    keep, share = 1.0 - momentum, momentum * count / max(count - 1, 1)
    return mean * keep + batch_mean * momentum, variance * keep + batch_variance * share


def layer_norm(x: Any, scale: Any, shift: Any, eps: float = 1e-5) -> Any:
    """``x`` (..., C) standardised over its last axis, times ``scale`` plus ``shift``, both (C,).

    >>> import numpy as np, futurex as fx
    >>> np.asarray(fx.nn.layer_norm(np.array([[1.0, 3.0]]), np.ones(2), np.zeros(2), eps=0.0))
    array([[-1.,  1.]])
    """
    _check_norm("layer_norm", x, scale, shift)
    if len(shape_of(x, "x", "layer_norm")) == 1:  # one example, as vmap sees it
        return operation("layer_norm", x[None], scale, shift, eps=float(eps))[0]
    return operation("layer_norm", x, scale, shift, eps=float(eps))


def group_norm(x: Any, groups: int, scale: Any, shift: Any, eps: float = 1e-5) -> Any:
    """``x`` (N, *spatial, C) standardised for each example and each of ``groups`` groups of channels.

    That is over the positions and the channels of the group, then times ``scale`` plus ``shift``, both (C,) (Wu and He,
    arXiv 1803.08494). Raises ValueError where C is no multiple of ``groups``.

    >>> import numpy as np, futurex as fx
    >>> x = np.arange(8.0).reshape(1, 2, 4)
    >>> fx.nn.group_norm(x, 2, np.ones(4), np.zeros(4)).round(2)[0, 0]
    array([-1.21, -0.73, -1.21, -0.73])
    """
    _check_norm("group_norm", x, scale, shift)
    shape, parts = shape_of(x, "x", "group_norm"), whole_number("group_norm: groups", groups, 1)
    if len(shape) < 2 or shape[-1] % parts:
        raise ValueError(f"group_norm: the channels of x {shape} do not make {groups} groups of one size")

    def mean(values: Any) -> Any:
        """Of each group, for each of its channels: first over the positions, which a kernel adds up as rows."""
        found = values.mean(axis=tuple(range(1, len(shape) - 1))) if len(shape) > 2 else values
        grouped = found.reshape(shape[0], parts, shape[-1] // parts)
        every = np.broadcast_to(grouped.mean(axis=-1, keepdims=True), grouped.shape)
        return every.reshape(shape[0], *(1,) * (len(shape) - 2), shape[-1])

    centred = x - mean(x)
    return centred / np.sqrt(mean(np.square(centred)) + float(eps)) * scale + shift


def instance_norm(x: Any, scale: Any, shift: Any, eps: float = 1e-5) -> Any:
    """``x`` (N, *spatial, C) standardised for each example and channel over its positions, times scale plus shift.

    ``scale`` and ``shift`` are (C,) (Ulyanov et al., arXiv 1607.08022).

    >>> import numpy as np, futurex as fx
    >>> fx.nn.instance_norm(np.array([[[1.0], [3.0]]]), np.ones(1), np.zeros(1), eps=0.0).ravel()
    array([-1.,  1.])
    """
    _check_norm("instance_norm", x, scale, shift)
    shape = shape_of(x, "x", "instance_norm")
    if len(shape) < 3:
        raise ValueError(f"instance_norm needs x (N, *spatial, C), got shape {shape}")
    return _standardised(x, tuple(range(1, len(shape) - 1)), eps) * scale + shift


def _standardised(x: Any, axes: tuple[int, ...], eps: float) -> Any:
    centred = x - x.mean(axis=axes, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(axis=axes, keepdims=True) + float(eps))


def _check_norm(layer: str, x: Any, scale: Any, shift: Any) -> None:
    shapes = [shape_of(value, name, layer) for value, name in ((x, "x"), (scale, "scale"), (shift, "shift"))]
    channels = shapes[0][-1:]
    if not channels or any(shape != channels for shape in shapes[1:]):
        raise ValueError(
            f"{layer} needs x (..., C) with scale and shift (C,); "
            f"got x {shapes[0]}, scale {shapes[1]}, shift {shapes[2]}"
        )

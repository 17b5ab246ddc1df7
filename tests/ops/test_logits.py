"""Softmax and its relatives against SciPy; large and infinite logits; labels that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from futurex import ops
from futurex.tree import Aval, apply, param

logits = hnp.arrays(
    np.float64, hnp.array_shapes(min_dims=1, max_dims=3, max_side=4), elements=st.floats(-1e6, 1e6, allow_nan=False)
)


@given(logits, st.data())
def test_softmax_family_is_scipys(x: Any, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, x.ndim - 1))
    np.testing.assert_allclose(ops.softmax(x, axis=axis), scipy.special.softmax(x, axis), rtol=1e-12)
    expected = scipy.special.log_softmax(x, axis)
    np.testing.assert_allclose(ops.log_softmax(x, axis=axis), expected, rtol=1e-12, atol=1e-12)
    expected = scipy.special.logsumexp(x, axis)
    np.testing.assert_allclose(ops.logsumexp(x, axis=(axis,), keepdims=False), expected, rtol=1e-12, atol=1e-12)


@given(logits, st.data())
def test_cross_entropy_is_minus_the_log_probability_of_the_label(x: Any, data: st.DataObject) -> None:
    labels = np.asarray(data.draw(hnp.arrays(np.int64, x.shape[:-1], elements=st.integers(0, x.shape[-1] - 1))))
    picked = np.take_along_axis(scipy.special.log_softmax(x, -1), labels[..., None], -1)[..., 0]
    np.testing.assert_allclose(ops.softmax_cross_entropy(x, labels), -picked, rtol=1e-12, atol=1e-12)
    g = np.full(labels.shape, 2.0)
    expected = 2 * (scipy.special.softmax(x, -1) - np.eye(x.shape[-1])[labels])
    np.testing.assert_allclose(ops.softmax_cross_entropy_grad(g, x, labels), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_results_keep_the_dtype_of_the_logits(dtype: Any) -> None:
    x, labels = np.array([[1, 2, 3]], dtype), np.array([2])
    assert ops.softmax(x, axis=1).dtype == dtype
    assert ops.log_softmax(x, axis=1).dtype == dtype
    assert ops.logsumexp(x, axis=None, keepdims=False).dtype == dtype
    assert ops.softmax_cross_entropy(x, labels).dtype == dtype
    assert ops.softmax_cross_entropy_grad(np.ones(1, dtype), x, labels).dtype == dtype


def test_small_unsigned_logits_do_not_wrap_around() -> None:
    x = np.array([0, 1, 2], np.uint8)
    expected = scipy.special.softmax(x.astype(float))
    np.testing.assert_allclose(ops.softmax(x, axis=0), expected, rtol=2e-3)
    np.testing.assert_allclose(np.exp(ops.log_softmax(x, axis=0)), expected, rtol=2e-3)


def test_impossible_classes_are_allowed() -> None:
    x = np.array([[0.0, -np.inf, 0.0]])
    np.testing.assert_array_equal(ops.softmax(x, axis=1), [[0.5, 0.0, 0.5]])
    assert ops.softmax_cross_entropy(x, np.array([1])) == np.inf
    assert ops.logsumexp(np.full((2,), -np.inf), axis=(0,), keepdims=False) == -np.inf
    assert ops.logsumexp(np.array([0.0, np.inf]), axis=(0,), keepdims=False) == np.inf


@pytest.mark.parametrize("labels", [[3], [-1]])
def test_labels_outside_the_classes_are_refused(labels: list[int]) -> None:
    with pytest.raises(IndexError, match="do not name the 3 classes"):
        ops.softmax_cross_entropy(np.zeros((1, 3)), np.array(labels))
    with pytest.raises(IndexError, match="do not name the 3 classes"):
        ops.softmax_cross_entropy_grad(np.ones(1), np.zeros((1, 3)), np.array(labels))


@pytest.mark.parametrize("shape, dtype", [((2,), "f8"), ((3,), "i8"), ((2, 1), "i8")])
def test_labels_of_another_type_are_refused(shape: tuple[int, ...], dtype: str) -> None:
    with pytest.raises(TypeError, match="one integer label per row"):
        apply("softmax_cross_entropy", param(Aval((2, 3), np.dtype(float))), param(Aval(shape, np.dtype(dtype))))


def test_one_hot_of_a_foreign_label_is_zero() -> None:
    expected = [[0, 0], [1, 0], [0, 1], [0, 0]]
    np.testing.assert_array_equal(ops.one_hot(np.array([-1, 0, 1, 2]), classes=2, dtype=np.dtype(int)), expected)

"""Results of other calls that a function finds in objects, dicts, lists and outside are the arrays that they are."""

import numpy as np
import pytest

import futurex as fx
from futurex.frontend.array import READ_ONLY

W = np.arange(24.0).reshape(2, 3, 4)


class Layer:
    """Its arrays may be results of other calls."""

    def __init__(self, array):
        self.w = array(W)
        self.parts = {"w": array(W)}
        self.several = [array(W), array(W[0])]
        self.total = array(W.sum()) if array is result else W.sum()


def turned(layer):
    return layer.w.transpose(2, 0, 1), layer.w.T, layer.w.swapaxes(0, 1), layer.w.mT, np.moveaxis(layer.w, 0, -1)


def multiplied(layer):
    return layer.parts["w"].transpose(2, 0, 1).reshape(4, -1).T @ layer.several[1].T


def every_entry(layer):
    return [each.T * 2 for each in layer.several]


def asked(layer):
    return isinstance(layer.w, np.ndarray), isinstance(layer.w.T, np.ndarray), layer.w.copy() is layer.w, layer.w.ndim


def flattened(layer):
    return layer.w.T.ravel(), layer.w.flatten("F"), layer.w.reshape(6, 4, order="F"), layer.w.squeeze()[0]


def parted(layer):
    return layer.w.real, layer.w.astype(np.float32), np.sort(layer.w.T, axis=0), layer.w.max(axis=(0, 2))


def number(layer):
    return layer.total + 1, layer.total.reshape(1), np.ndim(layer.total), isinstance(layer.total, np.ndarray)


def looped(layer):
    total = 0.0
    for k in range(layer.w.T.shape[0]):
        total = total + layer.w.T[k].sum() * k
    return total


def updated(layer):
    layer.w -= 0.5 * layer.w.T.T
    layer.parts["w"] *= 2
    return layer.w.sum(), layer.parts["w"].T


FUNCTIONS = [turned, multiplied, every_entry, asked, flattened, parted, number, looped, updated]


def result(value):
    """The same as a result of another call."""
    return fx.futurize(lambda x: x * 1)(value)


def shown(value):
    if isinstance(value, tuple | list):
        return [shown(each) for each in value]
    return type(value) is bool or np.asarray(value).dtype, np.shape(value), np.asarray(value).tolist()


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda each: each.__name__)
def test_results_in_objects_are_arrays(function, either_way):
    staged, mine, plain = fx.futurize(function), Layer(result), Layer(np.copy)
    for _ in range(4):
        assert shown(staged(mine)) == shown(function(plain))
        for one, other in ((mine.w, plain.w), (mine.parts["w"], plain.parts["w"])):
            assert shown(one) == shown(other)


@pytest.mark.parametrize("function", [turned, every_entry, updated], ids=lambda each: each.__name__)
def test_calls_that_read_them_are_one_tree(function):
    assert fx.futurize(function, escape="error").graph(Layer(result)).nodes


held = result(W)


def test_those_outside():
    def read(x):
        return held.T @ x, held.transpose(1, 0, 2) + 1

    x = np.ones((2, 2))
    for _ in range(4):
        for one, other in zip(fx.futurize(read)(x), (W.T @ x, W.transpose(1, 0, 2) + 1), strict=True):
            np.testing.assert_array_equal(one, other)


def put(layer):
    layer.w[0] = 5.0


def put_into_a_view(layer):
    layer.w.T[0] += 1.0


def sorted_in_place(layer):
    layer.w.sort()


def filled(layer):
    np.copyto(layer.parts["w"], 0.0)


@pytest.mark.parametrize("function", [put, put_into_a_view, sorted_in_place, filled], ids=lambda each: each.__name__)
@pytest.mark.parametrize("escape", ["fragment", "error"])
def test_nobody_writes_to_them(function, escape):
    layer = Layer(result)
    for _ in range(4):
        with pytest.raises(TypeError, match=READ_ONLY.partition(";")[0]):
            fx.futurize(function, escape=escape)(layer)
    np.testing.assert_array_equal(layer.w, W)
    np.testing.assert_array_equal(layer.parts["w"], W)

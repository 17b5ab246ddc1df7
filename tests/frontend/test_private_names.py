"""Names that begin with two underscores mean another attribute in each class, in staged code as in plain code."""

import numpy as np
import pytest

import futurex as fx

_Layer__scale = 7.0


class Layer:
    __rate = 3.0

    def __init__(self):
        self.__weight = np.arange(3.0)

    def __forward(self, x):
        return self.__weight * x * self.__rate

    def call(self, x):
        self.__held = self.__forward(x)
        self.__held[0] += 5.0
        __twice = self.__held * 2

        def later(__by):
            return __twice + __by * __scale  # noqa: F821  (as the compiler spells it, a name of this module)

        return later(x) + (lambda __y=2.0: __y * self.__weight)()

    def forget(self, x):
        self.__held = x
        del self.__held
        return x + hasattr(self, "_Layer__held")

    def loss(self, x):
        __y = self.__forward(x)
        return (__y * __y).sum()

    def keyword(self, x, *, __by=2.0):
        return self.keyword(x, _Layer__by=__by + 1) if __by < 3 else x * __by


class _Other(Layer):
    def call(self, x):
        self.__held = x * 2
        return super().call(x) + self.__held

    class __Inner:
        def call(self, x):
            self.__value = x + 1
            return self.__value


class Nobodys(Layer):
    def call(self, x):
        return x + self.__weight


class __:
    def call(self, x):
        self.__value = x
        return self.__value * 2


INNER = _Other._Other__Inner  # type: ignore[attr-defined]


def same_attributes(a, b):
    assert list(vars(a)) == list(vars(b))
    for name, value in vars(a).items():
        np.testing.assert_array_equal(value, vars(b)[name])


@pytest.mark.parametrize("kind", [Layer, _Other, INNER, __], ids=lambda kind: kind.__name__)
def test_private_attributes_are_those_of_their_class(kind):
    @fx.futurize
    def step(layer, x):
        return layer.call(x)

    plain, staged = kind(), kind()
    for start in (0.0, 1.0, 2.0):
        x = np.arange(3.0) + start
        np.testing.assert_array_equal(plain.call(x), np.asarray(step(staged, x)))
        same_attributes(plain, staged)
    assert "plain" not in str(step.explain())


@pytest.mark.parametrize("method", ["forget", "keyword"])
def test_private_names_that_are_deleted_and_passed(method):
    step = fx.futurize(lambda layer, x: getattr(layer, method)(x))
    x = np.arange(3.0)
    np.testing.assert_array_equal(getattr(Layer(), method)(x), np.asarray(step(Layer(), x)))
    assert "plain" not in str(step.explain())


def test_another_class_has_no_such_attribute():
    with pytest.raises(AttributeError, match="_Nobodys__weight"):
        np.asarray(fx.futurize(lambda layer, x: layer.call(x))(Nobodys(), np.ones(3)))


def test_gradient_of_a_private_method():
    layer = Layer()
    np.testing.assert_allclose(fx.grad(layer.loss)(np.ones(3)), [0.0, 18.0, 72.0])

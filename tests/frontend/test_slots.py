"""Objects that keep their attributes in slots are changed, merged and carried as those with a ``__dict__`` are."""

import dataclasses

import numpy as np
import pytest

import futurex as fx


class Base:
    __slots__ = ("__rate", "weight")

    def __init__(self, x):
        self.weight, self.__rate = x, 2.0

    def decay(self):
        self.__rate *= 0.5
        return self.__rate


class Layer(Base):
    __slots__ = ("__count", "late")

    def __init__(self, x):
        super().__init__(x)
        self.__count = 0

    def steps(self, x):
        self.weight = self.weight + x * self.decay()
        self.__count += 1
        return self.weight.sum()

    def in_a_branch(self, x):
        if x.sum() > 2:
            self.weight, self.__count = self.weight - x, self.__count + 1
            self.decay()
        return self.weight * self.__count

    def in_a_loop(self, x):
        for k in range(4):
            if x[0] > k:
                self.__count += k
        while self.weight.sum() < 5:
            self.weight = self.weight + 1
        return self.__count

    def in_place(self, x):
        self.weight[1:] += x[:-1]

    def comes(self, x):
        self.late = x * 2
        return self.late + self.weight

    def held(self):
        late = getattr(self, "late", None)
        return self.weight.tolist(), self._Base__rate, self.__count, late if late is None else late.tolist()


class Both(Layer):
    """Has a ``__dict__`` beside slots."""

    def comes(self, x):
        self.late, self.other = x * 2, x + 1
        return self.late + self.other


@dataclasses.dataclass(slots=True)
class Point:
    place: np.ndarray
    speed: float = 1.0

    def moves(self, x):
        self.place = self.place + x * self.speed
        self.speed = self.speed * 0.5
        if x.sum() > 2:
            self.speed = self.speed + 1
        return self.place

    def held(self):
        return self.place.tolist(), self.speed


class Flowing:
    __slots__ = iter(("here", "there"))  # has nothing left once the class is made

    def __init__(self, x):
        self.here, self.there = x, x

    def moves(self, x):
        if x.sum() > 2:
            self.here = self.there * x
        return self.here + self.there

    def held(self):
        return self.here.tolist(), self.there.tolist()


METHODS = [
    *((Layer, method) for method in (Layer.steps, Layer.in_a_branch, Layer.in_a_loop, Layer.in_place, Layer.comes)),
    *((Both, method) for method in (Layer.steps, Layer.in_a_branch, Both.comes)),
    (Point, Point.moves), (Flowing, Flowing.moves),
]  # fmt: skip


def states(kind, method):
    made = kind(np.arange(3.0))
    for k in range(9):
        result = method(made, np.full(3, k / 2))
        yield np.asarray(result).tolist(), made.held()
        if k in (3, 6):
            setattr(made, "place" if kind is Point else "here" if kind is Flowing else "weight", np.full(3, -1.0 * k))


@pytest.mark.parametrize(("kind", "method"), METHODS)
def test_the_callers_objects_are_changed(kind, method):
    staged = fx.futurize(method)
    assert list(states(kind, staged)) == list(states(kind, method))
    assert "plain NumPy" not in staged.explain()


@pytest.mark.parametrize(("kind", "method"), METHODS)
def test_objects_of_the_function_are_changed(kind, method):
    own = {Point: ("place", "speed"), Flowing: ("here", "there")}
    names = own.get(kind, ("weight", "_Base__rate", "_Layer__count"))

    def made(x):
        made = kind(x + 1)
        method(made, x)
        if x[1] > 1:
            method(made, x)
        return method(made, x * 2), *(getattr(made, name) for name in names)

    staged = fx.futurize(made)
    for k in range(9):
        expected, found = made(np.full(3, k / 2)), staged(np.full(3, k / 2))
        assert [np.asarray(each).tolist() for each in found] == [np.asarray(each).tolist() for each in expected]
    assert "plain NumPy" not in staged.explain()

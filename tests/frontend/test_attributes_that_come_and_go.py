"""A method that changes its object leaves alone what others have put there, or taken away, since it was traced."""

import numpy as np
import pytest

import futurex as fx


class Part:
    def __init__(self):
        self.width = 2.0


class Model:
    __slots__ = ("__dict__", "scale", "shift")

    def __init__(self):
        self.scale, self.part = 2.0, Part()
        self.old, self.new = np.zeros(2), np.ones(2)

    def sets(self, x):
        self.norm = 1.0 / self.scale

    def computes(self, x):
        self.seen = x * self.scale
        return self.seen

    def reaches_in(self, x):
        self.part.seen = x + 1

    def changes_places(self, x):
        self.old, self.new = self.new, self.old

    def takes_away(self, x):
        if hasattr(self, "extra"):
            del self.extra
        self.seen = x


PROGRAMS = [Model.sets, Model.computes, Model.reaches_in, Model.changes_places, Model.takes_away]


def shown(value):
    if isinstance(value, Part):
        return shown(vars(value))
    if isinstance(value, dict):
        return [(name, shown(each)) for name, each in value.items()]
    return np.asarray(value).tolist()


def states(method):
    """What the object holds after each of many calls, between which others change it."""
    model = Model()
    for k in range(12):
        method(model, np.full(2, float(k)))
        yield shown(vars(model)), getattr(model, "shift", None)
        if k in (0, 3, 7):
            setattr(model, f"at{k}", k)
            setattr(model.part, f"at{k}", k)
        if k in (4, 8):
            model.late, model.extra = np.ones(2), 4
        if k in (5, 9):
            del model.late
        if k == 6:
            model.shift = 3.0
        if k == 10:
            del model.at0, model.part.at0
            model.at3 = 77


@pytest.mark.parametrize("method", PROGRAMS)
def test_what_others_put_into_an_object_stays_there(method):
    assert list(states(fx.futurize(method))) == list(states(method))


class Open:
    def __init__(self):
        self.weight, self.rate = np.arange(3.0), 2.0

    def sets_and_reads(self, x):
        self.seen = x
        return x + self.__dict__["weight"]

    def sets_twice(self, x):
        self.__dict__["first"] = x + 1
        self.second = x
        return self.first * self.second

    def sets_twice_the_other_way(self, x):
        self.second = x
        self.__dict__["first"] = x + 1
        return x

    def reads_many(self, x):
        found = sum(each.sum() for each in self.__dict__.values() if isinstance(each, np.ndarray))
        self.weight = self.weight + x
        return found

    def counts(self, x):
        self.rate += 1
        return x * self.__dict__["rate"]

    def reads_and_sets(self, x):
        found = x * self.__dict__["rate"]
        self.seen = found
        return found


OPEN = [each for name, each in vars(Open).items() if not name.startswith("_")]


def results(method):
    held = Open()
    for k in range(8):
        result = method(held, np.full(3, float(k)))
        yield shown(result), shown(vars(held))
        if k % 4 != 1:
            held.rate = float(k)


@pytest.mark.parametrize("method", OPEN)
def test_what_an_object_holds_is_changed_under_either_name(method):
    assert list(results(fx.futurize(method))) == list(results(method))


class Response:
    squeeze, scale = None, 2.0

    def __init__(self, x, squeeze=None, scale=2.0):
        self.x = x * 2
        self.squeeze, self.scale = squeeze, scale


def sets_what_the_class_has(response, x):
    response.squeeze = None
    return x + response.scale


@pytest.mark.parametrize("program", [Response.__init__, sets_what_the_class_has], ids=lambda f: f.__name__)
def test_what_the_class_has_already_becomes_the_objects_own(program):
    futurized = fx.futurize(program)
    kept = Response.__new__(Response), Response.__new__(Response)
    for k in range(5):
        for here, there in (kept, (Response.__new__(Response), Response.__new__(Response))):
            program(here, np.ones(3) * k), futurized(there, np.ones(3) * k)
            assert [*vars(there)] == [*vars(here)]
            assert vars(there)["squeeze"] is None


def test_an_array_that_is_only_asked_whether_it_is_there():
    """Nothing reads its elements, and the call replaces it: calls that find None there are others."""

    class Holder:
        last = None

    def toggled(x, holder):
        found = None
        if holder.last is None:
            found = x * 2
        holder.last = found
        return holder.last

    staged, plain, mine = fx.futurize(toggled), Holder(), Holder()
    for k in range(16):
        x = np.full(3, float(k))
        wanted, got = toggled(x, plain), staged(x, mine)
        assert (wanted is None) == (got is None) == (mine.last is None)


class Holder:
    """Of an array."""


def _by_axes(holder, x):
    return x * 2 if holder.a.ndim == 1 else x * 3


def _by_length(holder, x):
    return x * 2 if len(holder.a) == 3 else x * 3


def _by_shape(holder, x):
    return x * 2 if np.shape(holder.a) == x.shape else x * 3


def _by_type(holder, x):
    return x * 2 if holder.a.dtype == x.dtype else x * 3


def _anew_where_it_does_not_fit(holder, x):
    if holder.a.shape != x.shape:
        holder.a = np.zeros(x.shape)
    holder.a = holder.a + x
    return holder.a


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("function", [_by_axes, _by_length, _by_shape, _by_type, _anew_where_it_does_not_fit])
def test_an_array_of_which_nobody_reads_the_elements_has_its_shape_and_type(function, replaced):
    def step(holder, x):
        result = function(holder, x)
        if replaced:
            holder.a = x + 1
        return result

    futurized, x = fx.futurize(step), np.arange(3.0)
    arrays = [np.zeros(3), np.ones((3, 2)), np.ones(5), np.ones(3), np.ones(3, np.float32), np.ones((2, 3))]
    for array in arrays + arrays[:4]:
        mine, theirs = Holder(), Holder()
        mine.a, theirs.a = array, array
        for _ in range(2):
            np.testing.assert_array_equal(futurized(mine, x), step(theirs, x))
            np.testing.assert_array_equal(mine.a, theirs.a)

"""Futurized functions are functions to the rest of Python: bound as methods, copied and pickled as those are."""

import copy
import functools
import inspect
import pickle
import pydoc
import subprocess
import sys
import typing

import cloudpickle
import numpy as np
import pytest
from compare import check

import futurex as fx

X = np.arange(3.0)


@fx.futurize
def scaled(x, factor=2.0):
    """What it does."""
    return x * factor


@fx.futurize(donate="x")
def given(x):
    return x + 1


def energy(x):
    return (x * x).sum()


slope = fx.grad(energy)
narrow = fx.autocast(scaled, "bfloat16")


class Model:
    def __init__(self, w):
        self.w = w

    @fx.futurize
    def apply(self, x, n=1):
        """Of the model."""
        return x * self.w + n

    @fx.futurize
    @staticmethod
    def doubled(x):
        return x * 2

    @fx.futurize
    @classmethod
    def named(cls, x):
        return x * len(cls.__name__)


@pytest.mark.parametrize("function", [scaled, given, Model.apply, Model.doubled])
def test_a_function_that_can_be_imported_is_pickled_by_its_name(function):
    for pickler in (pickle, cloudpickle):
        text = pickler.dumps(function)
        assert pickler.loads(text) is function
        assert len(text) < 400


def test_what_has_no_name_is_pickled_by_its_code():
    nameless = fx.futurize(lambda x: x + 5, donate="x")
    again = cloudpickle.loads(cloudpickle.dumps(nameless))
    assert again is not nameless
    assert again(X).tolist() == [5, 6, 7]
    assert again.options() == nameless.options()
    with pytest.raises(AttributeError, match="lambda"):
        pickle.dumps(nameless)
    assert pickle.loads(pickle.dumps(slope))(X).tolist() == [0, 2, 4]
    other = pickle.loads(pickle.dumps(narrow))
    assert other.options() == narrow.options() != scaled.options()
    assert other.plain is scaled.plain


class Task:
    """What libraries that hand functions to other processes make of them."""

    def __init__(self, function):
        self.function = function
        functools.update_wrapper(self, function)

    def __call__(self, x):
        return self.function(x)


@pytest.mark.parametrize("pickler", [pickle, cloudpickle])
def test_what_wraps_a_function_gets_nothing_of_its_insides(pickler):
    scaled(X)
    task = Task(scaled)
    assert set(vars(task)) <= {"function", "by_name", "__wrapped__", *functools.WRAPPER_ASSIGNMENTS}
    again = pickler.loads(pickler.dumps(task))
    assert again.function is scaled
    assert again(X)[1] == 2


def test_attributes_of_a_function_are_those_of_its_futurized_one():
    def counted(x):
        return x + counted.shift

    counted.shift = 2
    futurized = fx.futurize(counted)
    assert futurized.shift == 2
    futurized.label = "mine"
    assert not hasattr(counted, "label")
    assert futurized(X)[0] == 2


def test_defaults_of_a_function_are_seen():
    def scaled(x, factor=2.0, *, shift=1.0):
        return x * factor + shift

    futurized = fx.futurize(scaled)
    for name in ("__defaults__", "__kwdefaults__", "__globals__"):
        assert getattr(futurized, name) is getattr(scaled, name)
    assert Model(2.0).apply.__defaults__ == (1,)
    assert not hasattr(fx.futurize(functools.partial(scaled, factor=3.0)), "__defaults__")

    def defaults(x):
        return x * futurized.__defaults__[0] + futurized.__kwdefaults__["shift"]

    check(defaults, X)
    scaled.__defaults__ = (5.0,)
    check(defaults, X)


def test_functions_are_copied_as_themselves():
    assert copy.copy(scaled) is scaled
    assert copy.deepcopy({"f": [scaled]})["f"][0] is scaled


@pytest.mark.parametrize("pickler", ["pickle", "cloudpickle"])
def test_functions_of_a_script_reach_other_processes(tmp_path, pickler):
    """``pickle`` finds them under ``__main__`` again, ``cloudpickle`` brings them along, with what they refer to."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, numpy as np, futurex as fx, " + pickler + " as pickler\n"
        "rate = 3.0\n"
        "def helper(x):\n    return x * rate\n"
        "@fx.futurize\n"
        "def f(x, n=1):\n    'doc'\n    return helper(x) + (f(x - 1, n=0) if n else 0)\n"
        "if sys.argv[1:]:\n    print(pickler.load(open(sys.argv[1], 'rb')) is f)\n"
        "else:\n    pickler.dump(f, open('packed', 'wb'))\n"
    )
    subprocess.run([sys.executable, script], check=True, cwd=tmp_path, timeout=100)
    if pickler == "pickle":
        found = subprocess.run(
            [sys.executable, script, "packed"], check=True, cwd=tmp_path, timeout=100, capture_output=True, text=True
        )
        assert found.stdout == "True\n"
        return
    script.unlink()
    f = pickle.loads((tmp_path / "packed").read_bytes())
    assert (f.__name__, f.__qualname__, f.plain.__qualname__, f.__doc__) == ("f", "f", "f", "doc")
    assert f(np.ones(2)).tolist() == [3.0, 3.0]
    assert inspect.signature(f).parameters["n"].default == 1


def test_a_method_tells_what_the_function_tells():
    model = Model(2.0)
    method = model.apply
    assert method(X).tolist() == [1, 3, 5]
    assert (method.__name__, method.__doc__, method.__self__) == ("apply", "Of the model.", model)
    assert str(inspect.signature(method)) == "(x, n=1)"
    assert "Of the model." in pydoc.render_doc(method)
    assert method == model.apply != Model(2.0).apply
    assert len({method, model.apply}) == 1
    assert method.plain(X).tolist() == [1, 3, 5]
    assert method.explain().startswith("Model.apply: 1 trace(s)")
    assert method.graph(X).name == "apply"
    assert method.memory(X).peak >= 0
    assert fx.grad(lambda x: method(x).sum())(X).tolist() == [2, 2, 2]
    assert fx.vmap(method)(np.ones((2, 3))).tolist() == [[3, 3, 3], [3, 3, 3]]
    assert pickle.loads(pickle.dumps(method))(X).tolist() == [1, 3, 5]
    assert functools.partial(method, n=0)(X).tolist() == [0, 2, 4]
    with pytest.raises(AttributeError, match="explian"):
        method.explian()


def test_static_and_class_methods_whichever_decorator_stands_first():
    for owner in (Model, Model(1.0)):
        assert owner.doubled(X).tolist() == [0, 2, 4]
        assert owner.named(X).tolist() == [0, 5, 10]
        assert "1 trace(s)" in owner.doubled.explain()


def test_what_gives_its_results_later_is_refused():
    async def coroutine(x):
        return x

    async def generator(x):
        yield x

    for function in (coroutine, generator):
        with pytest.raises(TypeError, match="generator or coroutine"):
            fx.futurize(function)


def test_a_type_checker_is_told_the_parameters():
    for overload in typing.get_overloads(fx.futurize):
        assert "Futurized[P, R]" in str(overload.__annotations__["return"])
        assert set(overload.__annotations__) == {"function", "options", "return"}
    assert len(typing.get_overloads(fx.futurize)) == 2


class Shifted:
    def __init__(self):
        self.w = np.arange(3.0)

    @fx.futurize
    def shift(self, x):
        return x + self.w

    @fx.futurize
    def back(self, x):
        return x - self.w

    @fx.futurize
    def twice(self, x):
        return self.shift(x) * 2

    @fx.futurize
    def by_sign(self, x):
        move = self.shift if x.sum() > 0 else self.back
        return move(x)


class ShiftedLess(Shifted):
    @fx.futurize
    def shift(self, x):
        return super().shift(x) - 1


def test_methods_that_call_futurized_methods_are_traced_once(monkeypatch):
    """Looking one up gives another object each time; which function it is and of whom is what counts."""
    shifted, less = Shifted(), ShiftedLess()
    applied = fx.futurize(lambda f, x: f(x) + 1)
    x = np.ones(3)
    for k in range(10):
        shifted.w = np.arange(3.0) + k
        assert np.array_equal(shifted.twice(x), (x + shifted.w) * 2)
        assert np.array_equal(shifted.by_sign(-x), -x - shifted.w)
        assert np.array_equal(less.shift(x), x + less.w - 1)
        assert np.array_equal(applied(shifted.back, x), x - shifted.w + 1)
    for function in (Shifted.twice, Shifted.by_sign, ShiftedLess.shift, applied):
        assert "1 trace(s)" in function.explain()
    monkeypatch.setattr(Shifted, "shift", fx.futurize(lambda self, x: x * 100))
    assert np.array_equal(shifted.twice(x), x * 200)
    assert np.array_equal(less.shift(x), x * 100 - 1)
    shifted.shift = less.shift
    assert np.array_equal(shifted.twice(x), (x * 100 - 1) * 2)


class Scaled:
    def __init__(self, scale):
        self.scale = scale
        self.calls = 0

    @fx.futurize
    def forward(self, x):
        self.calls += 1
        return x / self.scale

    @fx.futurize
    def __call__(self, x):
        return self.forward(x) + 1


class ScaledTwice(Scaled):
    @fx.futurize
    def forward(self, x):
        return super().forward(x) * 2


def test_futurized_methods_of_objects_that_the_function_makes(monkeypatch):
    @fx.futurize
    def standardized(x):
        scaled, twice = Scaled(x.std()), ScaledTwice(x.std())
        forward = scaled.forward
        return forward(x), scaled(x), Scaled.forward(scaled, x), twice.forward(x), scaled.calls, twice.calls

    def expected(x):
        y = x / x.std()
        return y, y + 1, y, y * 2, 3, 1

    for k in range(3):
        for mine, numpys in zip(standardized(X + k), expected(X + k), strict=True):
            assert np.array_equal(mine, numpys)
    assert "plain" not in standardized.explain()
    assert np.allclose(fx.grad(lambda x: standardized(x)[0].sum())(X), fx.grad(lambda x: (x / x.std()).sum())(X))
    monkeypatch.setattr(Scaled, "forward", fx.futurize(lambda self, x: x * 100))
    assert np.array_equal(standardized(X)[0], X * 100)

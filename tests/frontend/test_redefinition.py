"""What a function reads from outside may change between calls, by whatever way: the next call sees it."""

import collections
import functools
import gc
import importlib
import linecache
import sys
import types
import weakref

import numpy as np
import pytest
from compare import bits, plain

import futurex as fx
from futurex.frontend.rewrite import function
from futurex.frontend.rewrite import source as source_module
from futurex.tree import source

X = np.array([1.0, 2.0])


def helper(x):
    return x + 1


def other_helper(x):
    return x * 10


def with_defaults(x, k=2.0, *, shift=1):
    return x * k + shift


class Base:
    factor = 3.0

    def scaled(self, x):
        return x * self.factor


class Model(Base):
    def __init__(self):
        self.w = 2.0
        self.layers = [1.0, 2.0]

    def __call__(self, x):
        return x * self.w

    def __add__(self, x):
        return x + self.w

    def __getitem__(self, k):
        return self.layers[k]

    def __len__(self):
        return 2

    @property
    def double(self):
        return self.w * 2

    @staticmethod
    def fixed(x):
        return x - 1

    @classmethod
    def made(cls, x):
        return x + cls.factor


class Length(float):
    """A number with an attribute."""

    def __new__(cls, value, unit):
        self = super().__new__(cls, value)
        self.unit = unit
        return self


class Pair(tuple):
    """A tuple with attributes."""


def pair(values, unit):
    made = Pair(values)
    made.unit = unit
    return made


RATE, LIST, NESTED, TABLE, SET = 0.5, [1.0, 2.0], [[1.0], {"a": 2.0}], {"a": 1.0, "b": [2.0]}, {1, 2}
MODEL, LENGTH, PAIR, NAMESPACE = Model(), Length(2.0, "m"), pair((1.0,), 3.0), types.SimpleNamespace(rate=2.0)
PARTIAL = functools.partial(with_defaults, k=3.0)
HERE = sys.modules[__name__]


def set_global(name, value):
    return lambda: setattr(HERE, name, value)


def clear_default():
    with_defaults.__defaults__ = (7.0,)


def change_keyword_default():
    with_defaults.__kwdefaults__["shift"] = 9


def patch_code():
    helper.__code__ = other_helper.__code__


def on_class(kind, name, value):
    return lambda: setattr(kind, name, value)


# A reader of outside state, and what changes it.
CASES = {
    "global": (lambda x: x * RATE, set_global("RATE", 0.25)),
    "global of another type": (lambda x: x * RATE, set_global("RATE", np.float32(0.25))),
    "global integer that equals": (lambda x: (x, RATE), set_global("RATE", 0)),
    "list entry": (lambda x: x * LIST[0], lambda: LIST.__setitem__(0, 5.0)),
    "list length": (lambda x: x * len(LIST), lambda: LIST.append(1.0)),
    "entry that equals": (lambda x: (x, LIST[0]), lambda: LIST.__setitem__(0, True)),
    "nested list": (lambda x: x * NESTED[0][0], lambda: NESTED[0].__setitem__(0, 5.0)),
    "dict in a list": (lambda x: x * NESTED[1]["a"], lambda: NESTED[1].update(a=7.0)),
    "dict entry": (lambda x: x * TABLE["a"], lambda: TABLE.update(a=7.0)),
    "dict keys": (lambda x: x * len(TABLE), lambda: TABLE.update(c=7.0)),
    "dict order": (lambda x: x * next(iter(TABLE.values())), lambda: TABLE.update(a=TABLE.pop("a"))),
    "list in a dict": (lambda x: x * TABLE["b"][0], lambda: TABLE["b"].append(7.0) or TABLE["b"].reverse()),
    "set": (lambda x: x * (3 in SET), lambda: SET.add(3)),
    "namespace": (lambda x: x * NAMESPACE.rate, lambda: setattr(NAMESPACE, "rate", 5.0)),
    "attribute": (lambda x: MODEL(x), lambda: setattr(MODEL, "w", 5.0)),
    "list of an object": (lambda x: x * MODEL.layers[1], lambda: MODEL.layers.__setitem__(1, 5.0)),
    "class attribute": (lambda x: MODEL.scaled(x), on_class(Base, "factor", 7.0)),
    "class attribute hidden": (lambda x: MODEL.scaled(x), on_class(Model, "factor", 7.0)),
    "class attribute of the class": (lambda x: x * Base.factor, on_class(Base, "factor", 7.0)),
    "method": (lambda x: MODEL.scaled(x), on_class(Base, "scaled", lambda self, x: x - 5)),
    "method hidden": (lambda x: MODEL.scaled(x), on_class(Model, "scaled", lambda self, x: x - 5)),
    "method of the object": (lambda x: MODEL.scaled(x), lambda: setattr(MODEL, "scaled", lambda x: x - 5)),
    "call": (lambda x: MODEL(x), on_class(Model, "__call__", lambda self, x: x - 5)),
    "operator": (lambda x: MODEL + x, on_class(Model, "__add__", lambda self, x: x - 5)),
    "item": (lambda x: x * MODEL[1], on_class(Model, "__getitem__", lambda self, k: 5.0)),
    "length": (lambda x: x * len(MODEL), on_class(Model, "__len__", lambda self: 5)),
    "property": (lambda x: x * MODEL.double, on_class(Model, "double", property(lambda self: 5.0))),
    "static method": (lambda x: MODEL.fixed(x), on_class(Model, "fixed", staticmethod(lambda x: x - 5))),
    "class method": (lambda x: Model.made(x), on_class(Model, "made", classmethod(lambda cls, x: x - 5))),
    "method of an object made inside": (lambda x: Model().scaled(x), on_class(Base, "scaled", lambda self, x: x - 5)),
    "constructor": (lambda x: Model().w * x, on_class(Model, "__init__", lambda self: setattr(self, "w", 5.0))),
    "operator of an object made inside": (lambda x: Model() + x, on_class(Model, "__add__", lambda self, x: x - 5)),
    "call of an object made inside": (lambda x: Model()(x), on_class(Model, "__call__", lambda self, x: x - 5)),
    "helper": (lambda x: helper(x), set_global("helper", other_helper)),
    "code of a helper": (lambda x: helper(x), patch_code),
    "helper of a helper": (lambda x: PARTIAL(x), set_global("PARTIAL", functools.partial(with_defaults, k=5.0))),
    "default": (lambda x: with_defaults(x), clear_default),
    "keyword default": (lambda x: with_defaults(x), change_keyword_default),
    "number with an attribute": (lambda x: x * LENGTH.unit, set_global("LENGTH", Length(2.0, 5.0))),
    "tuple with an attribute": (lambda x: x * PAIR.unit, set_global("PAIR", pair((1.0,), 5.0))),
    "builtin that is hidden": (lambda x: x * max(1, 2), set_global("max", lambda *values: 5)),
}  # fmt: skip
LENGTH = Length(2.0, 3.0)


@pytest.fixture
def untouched():
    """Everything as it was, afterwards."""
    contents = [(value, type(value)(value)) for value in (LIST, NESTED[0], NESTED[1], TABLE, TABLE["b"], SET)]
    kinds = [(kind, dict(vars(kind))) for kind in (Base, Model)]
    state, names = [(MODEL, dict(vars(MODEL))), (NAMESPACE, dict(vars(NAMESPACE)))], dict(vars(HERE))
    layers, code, defaults = list(MODEL.layers), helper.__code__, (with_defaults.__defaults__, {"shift": 1})
    yield
    for value, before in contents:
        value.clear()
        (value.extend if isinstance(value, list) else value.update)(before)
    for kind, before in kinds:
        for name in [name for name in vars(kind) if name not in before]:
            delattr(kind, name)
        for name, value in before.items():
            if vars(kind)[name] is not value:
                setattr(kind, name, value)
    for value, before in state:
        vars(value).clear()
        vars(value).update(before)
    for name in [name for name in vars(HERE) if name not in names]:
        delattr(HERE, name)
    vars(HERE).update(names)
    MODEL.layers[:] = layers
    helper.__code__, (with_defaults.__defaults__, with_defaults.__kwdefaults__) = code, defaults


@pytest.mark.parametrize("name", CASES)
def test_changes_are_seen(name, untouched):
    function, change = CASES[name]
    futurized = fx.futurize(function)
    for _ in range(2):
        assert bits(plain(futurized(X))) == bits(function(X))
    change()
    for _ in range(2):
        assert bits(plain(futurized(X))) == bits(function(X)), futurized.explain()


def test_a_variable_of_an_enclosing_function():
    def enclosing():
        k, table = 2.0, [1.0]

        def change():
            nonlocal k
            k = k + 1.0
            table.append(k)

        return (lambda x: x * k + len(table)), change

    function, change = enclosing()
    futurized = fx.futurize(function, escape="error")
    for _ in range(3):
        assert bits(plain(futurized(X))) == bits(function(X))
        change()


def cell_of_a_notebook(text, number, scope):
    """Run source text as IPython does: compiled under a name of its own that ``linecache`` knows."""
    name = f"<ipython-input-{number}>"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    exec(compile(text, name, "exec"), scope)


def test_cells_that_were_run_long_ago_are_forgotten(monkeypatch):
    monkeypatch.setattr(function, "_CODES", 4)
    monkeypatch.setattr(function, "_code_cache", collections.OrderedDict())
    monkeypatch.setattr(source, "_PLACES", 40)
    scope, codes = {"fx": fx, "np": np, "__name__": "__main__"}, []
    cell_of_a_notebook("@fx.futurize\ndef first(x):\n    return [y * 2 for y in (lambda: (x, -x))()]\n", 0, scope)
    for number in range(1, 40):
        text = f"@fx.futurize\ndef f(x):\n    return x.sum() + {number} if x[0] > 0 else x.sum()\n"
        cell_of_a_notebook(text, number, scope)
        assert [float(scope["f"](X)) for _ in range(3)] == [3 + number] * 3
        codes.append(weakref.ref(scope["f"].plain.__code__))
        del linecache.cache[f"<ipython-input-{number}>"]
    source_module._functions.cache_clear()
    gc.collect()
    assert sum(code() is not None for code in codes) < 10
    assert [y.tolist() for y in scope["first"](X)] == [[2, 4], [-2, -4]]  # traced anew
    assert "staged" in scope["first"].explain()


def test_a_cell_that_is_run_again():
    scope = {"fx": fx, "np": np, "__name__": "__main__"}
    cell_of_a_notebook("def helper(x):\n    return x + 1\n", 1, scope)
    cell_of_a_notebook("@fx.futurize\ndef f(x):\n    return helper(x) * 2\n", 2, scope)
    f = scope["f"]
    assert f(X).tolist() == [4, 6]
    cell_of_a_notebook("def helper(x):\n    return x + 2\n", 3, scope)
    assert f(X).tolist() == [6, 8]
    cell_of_a_notebook("def helper(x):\n    return x + 3\n", 3, scope)  # the same name again
    assert f(X).tolist() == [8, 10]
    cell_of_a_notebook("@fx.futurize\ndef f(x):\n    return helper(x) * 3\n", 4, scope)
    assert scope["f"](X).tolist() == [12, 15]
    assert f(X).tolist() == [8, 10]


def test_a_cell_that_imports_what_its_functions_call():
    """IPython compiles each statement by itself; in one piece with the import, the calls would be other code."""
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell.instance()
    shell.run_cell("import numpy as np\nimport futurex as fx\n\ndef waves(x):\n    return np.sin(np.cos(x)).sum()\n")
    waves = shell.user_ns["waves"]
    futurized = fx.futurize(waves, escape="error")
    assert float(futurized(X)) == pytest.approx(waves(X))
    assert np.asarray(fx.grad(waves)(X)).shape == X.shape


def test_a_module_that_is_loaded_again(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    source = tmp_path / "reloaded_module.py"
    source.write_text("RATE = 2.0\ndef scaled(x):\n    return x * RATE\n")
    module = importlib.import_module("reloaded_module")
    futurized = fx.futurize(lambda x: module.scaled(x) + module.RATE, escape="error")
    assert futurized(X).tolist() == [4, 6]
    source.write_text("RATE = 3.0\n\n\ndef scaled(x):\n    return x * RATE + 100\n")
    importlib.invalidate_caches()
    importlib.reload(module)
    assert futurized(X).tolist() == [106, 109]
    del sys.modules["reloaded_module"]


def test_code_that_is_replaced_in_place_as_autoreload_does():
    def first(x, k=1.0):
        return x + k

    def second(x, k=5.0):
        return x * k

    futurized = fx.futurize(first, escape="error")
    assert futurized(X).tolist() == [2, 3]
    first.__code__, first.__defaults__ = second.__code__, second.__defaults__
    assert futurized(X).tolist() == [5, 10]


class TooLarge(Exception):
    pass


@fx.futurize
def small(x):
    if x.sum() > 10:
        raise TooLarge(f"{x.sum()}")
    return x * 2


def test_an_exception_is_of_the_class_that_its_name_is_now(monkeypatch):
    """As in a notebook, where a cell that defines the class runs again."""
    for _ in range(2):
        assert small(np.ones(3)).tolist() == [2.0, 2.0, 2.0]
        with pytest.raises(TooLarge, match="30"):
            small(np.full(3, 10.0)).result()
        monkeypatch.setattr(HERE, "TooLarge", type("TooLarge", (Exception,), {"__module__": __name__}))


@functools.lru_cache(typed=True)
def cached_table(n):
    return np.arange(float(n)) * FACTOR


FACTOR = 1.0


def added(x):
    return x + cached_table(2)


def test_what_a_cache_holds_is_the_array_that_it_holds(monkeypatch):
    """Others write into it, the function does, and what it was made of may be another by now."""
    cached_table.cache_clear()
    function = fx.futurize(added)
    assert function(X).tolist() == [1.0, 3.0]
    cached_table(2)[0] = 5.0
    assert function(X).tolist() == [6.0, 3.0]
    monkeypatch.setattr(HERE, "FACTOR", 2.0)
    assert function(X).tolist() == [6.0, 3.0]
    cached_table.cache_clear()
    assert function(X).tolist() == [1.0, 4.0]


@fx.futurize
def counted_in_a_cache(x):
    cached_table(2)[1] += x[0]
    return cached_table(2) is cached_table(2), cached_table(2)


def test_what_is_written_into_a_cached_array_stays():
    cached_table.cache_clear()
    for k in (1, 2, 3):
        same, table = counted_in_a_cache(X)
        assert same
        assert table is cached_table(2)
        assert table.tolist() == [0.0, 1.0 + k]


@functools.lru_cache(typed=True)
def cached_kind(n):
    return np.full(2, isinstance(n, float), float)


def test_typed_caches_tell_one_from_another():
    assert fx.futurize(lambda x: x * cached_kind(1) + 10 * cached_kind(1.0))(X).tolist() == [10.0, 10.0]


def test_a_cache_without_room_is_asked_as_often_as_plain_python_asks():
    made = []

    @functools.lru_cache(maxsize=1)
    def last(n):
        made.append(n)
        return np.full(2, float(len(made)))

    f = fx.futurize(lambda x: x + last(1) + last(2))
    assert [f(X).tolist() for _ in range(3)] == [(X + 4 * k + 3).tolist() for k in range(3)]
    assert made == [1, 2, 1, 2, 1, 2]


def test_arguments_of_a_cache_are_hashed():
    with pytest.raises(TypeError, match="unhashable"):
        fx.futurize(lambda x: x + cached_table([2]))(X)

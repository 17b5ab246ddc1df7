"""Modules that are edited while the program runs, as beside a notebook: what runs is still found in their source."""

import importlib
import itertools
import os
import pathlib
import sys

import numpy as np
import pytest

import futurex as fx

X = np.array([1.0, 2.0])
SOURCE = '''
import numpy as np
import futurex as fx


def unused():
    return None


def helper(x):
    # a comment, which is gone when the syntax tree is written out
    y = 2 * x
    return (lambda z: z + 1)(y)


def below(x):
    return sorted([1, 2], key=lambda k: -k)[0] * x


class Layer:
    def scaled(self, x):
        """Its text has
        two lines."""

        def inner(y):
            return y * 3

        return inner(x)


@fx.futurize(escape="error")
def decorated(x):
    return helper(x) - 1


def loss(x):
    return (helper(x) ** 2 + below(x)).sum()
'''
_edits = itertools.count(1)


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    name = f"edited_module_{next(_edits)}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    importlib.invalidate_caches()
    yield importlib.import_module(name)
    del sys.modules[name]


def edit(module, old, new):
    path = pathlib.Path(module.__file__)
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    later = path.stat().st_mtime + 10 * next(_edits)  # two edits may come within a second
    os.utime(path, (later, later))


@pytest.fixture
def reload(module):
    """Edits the module, and has IPython's autoreload see it, as before a cell runs."""
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell.instance()
    reloader = importlib.import_module("IPython.extensions.autoreload").ModuleReloader(shell)
    reloader.enabled = True

    def changed(old, new):
        edit(module, old, new)
        reloader.check()

    return changed


def test_a_helper_is_edited(module, reload):
    futurized, slope = fx.futurize(lambda x: module.helper(x) * 2, escape="error"), fx.grad(module.loss)
    assert futurized(X).tolist() == [6, 10]
    assert slope(X).tolist() == [14, 22]
    reload("2 * x", "4 * x")
    for _ in range(3):
        assert futurized(X).tolist() == [10, 18]
        assert module.decorated(X).tolist() == [4, 8]
        assert slope(X).tolist() == [42, 74]
    reload("4 * x", "5 * x")
    assert futurized(X).tolist() == [12, 22]


def test_a_method_is_edited(module, reload):
    layer = module.Layer()
    futurized = fx.futurize(lambda x: layer.scaled(x), escape="error")
    assert futurized(X).tolist() == [3, 6]
    reload("y * 3", "y * 7")
    for _ in range(3):
        assert futurized(X).tolist() == [7, 14]


def test_a_decorated_function_is_edited(module, reload):
    assert module.decorated(X).tolist() == [2, 4]
    reload("helper(x) - 1", "helper(x) - 3")
    for _ in range(3):
        assert module.decorated(X).tolist() == [0, 2]


def test_a_function_stands_further_down_now(module, reload):
    """Those that were not edited keep their code, and in it the lines where they stood."""
    reload("return None", "\n\n    return 5")
    assert fx.grad(module.loss)(X).tolist() == [14, 22]
    assert fx.futurize(module.below, escape="error")(X).tolist() == [2, 4]


def test_functions_methods_and_classes_are_added(module, reload):
    reload("def loss", "def added(x):\n    # one\n    return (lambda z: z - 1)(x)\n\n\ndef loss")
    reload("    def scaled", "    def halved(self, x):\n        return x / 2\n\n    def scaled")
    reload("class Layer", "class Shift:\n    def __init__(self):\n        self.__by = 3\n\n    def __call__(self, x):\n"
           "        return x + self.__by\n\n\nclass Layer")  # fmt: skip
    layer, shift = module.Layer(), module.Shift()
    futurized = fx.futurize(lambda x: module.added(x) + layer.halved(x) * shift(x), escape="error")
    for _ in range(3):
        assert futurized(X).tolist() == [2, 6]


def test_an_error_names_the_line_where_it_stands_now(module, reload):
    reload("2 * x", "x[7] * x")
    line = pathlib.Path(module.__file__).read_text().split("\n").index("    y = x[7] * x") + 1
    with pytest.raises(IndexError) as caught:
        np.asarray(fx.grad(module.loss)(X))
    lines = [entry.lineno + 1 for entry in caught.traceback if str(entry.path) == module.__file__]
    assert lines[-1] == line


def test_what_was_edited_but_not_loaded_again_is_not_what_runs(module):
    edit(module, "2 * x", "4 * x")
    for _ in range(3):
        assert fx.futurize(module.helper)(X).tolist() == [3, 5]

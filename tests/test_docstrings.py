"""The examples in docstrings run and print what they say."""

import doctest
import importlib
import inspect
from pathlib import Path

import numpy as np
import pytest

import futurex

PACKAGE = Path(futurex.__file__).parent
ON_A_GPU = {"cuda_", "cupy_"}
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    for path in PACKAGE.rglob("*.py")
    if ">>> " in path.read_text() and not ON_A_GPU & set(path.parts)
)
NUMPYS = {method.__doc__ for method in vars(np.ndarray).values()}
"""Methods of arrays bear NumPy's own texts."""


def documented(module):
    """What is defined in a module, by name: classes, their methods, and functions below what decorates them."""
    yield module.__name__, module
    for name, value in list(vars(module).items()):
        for place, plain in ((name, below(value)), *members(name, value)):
            own = (inspect.isfunction(plain) or inspect.isclass(plain)) and plain.__module__ == module.__name__
            if own and plain.__doc__ not in NUMPYS:
                yield f"{module.__name__}.{place}", plain


def members(name, value):
    return [(f"{name}.{key}", below(member)) for key, member in vars(value).items()] if inspect.isclass(value) else []


def below(value):
    value = getattr(value, "fget", None) or getattr(value, "__func__", value)
    return inspect.unwrap(value) if callable(value) else value


@pytest.mark.parametrize("name", MODULES)
def test_examples_print_what_they_say(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name.removesuffix(".__init__"))
    finder, said = doctest.DocTestFinder(recurse=False), []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    examples = [
        example
        for place, owner in documented(module)
        for example in finder.find(owner, place, module=False, globs=dict(vars(module)))
    ]
    for example in examples:
        runner.run(example, out=said.append)
    assert sum(len(each.examples) for each in examples), "the examples were not found"
    assert not runner.failures, "".join(said)

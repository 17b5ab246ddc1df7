"""Functions without a file, as ``exec`` and ``python -c`` make them, and Python's own: calls mean what NumPy means."""

import collections
import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest

import futurex as fx

TEXTS = {
    "adds at places": "o = np.zeros(7); np.add.at(o, i, x); return o",
    "gives an array": "o = np.empty(x.shape); np.add(x, 1, out=o); np.multiply(o, x, out=o); return o",
    "copies into an array": "o = np.ones(x.shape); np.copyto(o, x * 2, where=x > 0); return o",
    "writes": "o = np.zeros(x.shape); o[1:] = x[:-1]; o += x; return o",
    "asks": "return x.sum() if x.mean() > 0 else -x",
    "counts": "a = 0\n    for k in range(3): a = a + x * k\n    return a",
}
X, PLACES = np.linspace(-1, 3, 5000), np.arange(5000) % 7


def made(name):
    space = {"np": np}
    exec(f"def function(x, i):\n    {TEXTS[name]}\n", space)
    return space["function"]


@pytest.mark.parametrize("name", TEXTS)
def test_every_call_gives_the_same(name):
    function = made(name)
    expected = function(X, PLACES)
    futurized = fx.futurize(function)
    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(futurized(X, PLACES)), expected)


@pytest.mark.parametrize("name", TEXTS)
def test_a_helper_is_called_as_it_is(name):
    helper = made(name)

    def function(x, i):
        return helper(x * 2, i) + 1

    expected = function(X, PLACES)
    futurized = fx.futurize(function)
    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(futurized(X, PLACES)), expected)


Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass(frozen=True)
class Pair:
    left: object
    right: object = 2.0


def test_what_the_standard_library_writes_is_staged():
    def function(x):
        pair, point = Pair(x + 1), Point(x, y=x * 2)
        return pair.left * pair.right + point.y

    futurized = fx.futurize(function, escape="error")
    np.testing.assert_array_equal(np.asarray(futurized(X)), function(X))


def test_a_function_of_a_command_is_staged():
    program = "\n".join((
        "import numpy as np, futurex as fx",
        "def f(x, i):",
        "    o = np.zeros(3); np.add.at(o, i, x); return o",
        "g = fx.futurize(f, escape='error')",
        "for _ in range(3): print(np.asarray(g(np.ones(6), np.arange(6) % 3)).tolist())",
    ))  # fmt: skip
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split("\n")[:3] == ["[2.0, 2.0, 2.0]"] * 3


MAGICS = {
    "a cell": "%%time\n",
    "two": "%%capture -\n%%time\n",
    "a profile": "%%prun -q -T {file}\n",
}
LOOP = """@fx.futurize
def halved_while_large(x):
    while x.sum() > 1:
        x = x * 0.5
    return x
print(halved_while_large(np.ones(3)))"""


def test_functions_under_a_magic_are_staged(tmp_path):
    """``%%time`` above a cell with functions: IPython compiles what is below under one name for all cells."""
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell.instance()

    def run(text):
        shell.run_cell(text, store_history=True).raise_error()

    run("import numpy as np, futurex as fx")
    for magic in MAGICS.values():
        run(magic.format(file=tmp_path / "profile") + LOOP)
        run("assert 'compiled whole' in halved_while_large.explain(), halved_while_large.explain()")
    lambda_ = "(lambda w: (w * w).sum() if w[0] > 0 else w.sum())(np.ones(3))"
    run(f"%time g = fx.grad{lambda_}")
    run("assert g.result().tolist() == [2, 2, 2]")
    run(f"%timeit -n 2 -r1 fx.grad{lambda_}")
    for k in (2, 3):
        run(f"%%time\ndef other(x): return x.sum() * {k}")
    run("assert fx.grad(other)(np.ones(2)).result().tolist() == [3, 3]")


PROMPT = """import numpy as np, futurex as fx
def f(x):
    return x.sum()

try: fx.grad(fx.futurize(f))(np.ones(3))
except fx.StagingError as error: print(error)

"""


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="the prompt keeps what was typed")
def test_the_prompt_says_what_keeps_the_source():
    done = subprocess.run(
        [sys.executable, "-i", "-q"], input=PROMPT, capture_output=True, text=True, timeout=120, check=True
    )
    first, second, third = done.stdout.strip().split("\n")
    assert first == "<stdin>:1: a call of f"
    assert second == "  why: no source for f (<stdin>)"
    assert third.startswith("  do: define it in a file, a notebook, IPython, ")


WRITTEN_ANEW = """
import numpy as np
import pytest
import futurex as fx

@fx.futurize
def doubled(x):
    assert x.min() > 0, "nothing below zero"
    assert x.ndim == 1
    return x * 2

def test_of_a_user():
    x = np.ones(3)
    assert doubled(x).tolist() == [2, 2, 2]
    assert fx.grad(lambda x: doubled(x).sum())(x).tolist() == [2, 2, 2]
    assert "plain" not in doubled.explain()
    for _ in range(4):
        with pytest.raises(AssertionError, match="nothing below zero"):
            doubled(-x).result()
"""


def test_functions_whose_assertions_pytest_has_written_anew_are_staged(tmp_path):
    (tmp_path / "test_them.py").write_text(WRITTEN_ANEW)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout


ASKED = {
    "exists": lambda x, path: x * 2 if os.path.exists(path) else x,
    "isfile": lambda x, path: x * 2 if os.path.isfile(path) else x,
    "lexists": lambda x, path: x * 2 if os.path.lexists(path) else x,
    "isdir": lambda x, path: x * 2 if os.path.isdir(path) else x,
    "getsize": lambda x, path: x * os.path.getsize(path),
    "expandvars": lambda x, path: x * len(os.path.expandvars(f"$FX_ASKED{path[:0]}")),
    "abspath": lambda x, path: x * len(os.path.abspath("name" + path[:0])),
    "texts alone": lambda x, path: x * len(os.path.join(os.path.dirname(path), *os.path.splitext(path))),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_python_asks_the_system_is_asked_at_every_call(name, tmp_path, monkeypatch):
    monkeypatch.setenv("FUTUREX_COMPILE", "wait")
    f, path = fx.futurize(ASKED[name]), tmp_path / "made"

    def called(function, k):
        monkeypatch.setenv("FX_ASKED", "x" * k)
        monkeypatch.chdir(tmp_path / "inner" if k % 2 else tmp_path)
        path.write_text("x" * k) if k % 2 else path.unlink(missing_ok=True)
        try:
            return np.asarray(function(np.ones(3), str(path))).tolist()
        except OSError as error:
            return str(error)

    (tmp_path / "inner").mkdir()
    for k in range(6):
        assert called(f, k) == called(ASKED[name], k)


def test_help_is_printed_at_every_call(capsys):
    def helped(x):
        help(len)
        return x + 1

    f = fx.futurize(helped)
    for _ in range(3):
        assert f(X).tolist() == (X + 1).tolist()
        assert "Help on" in capsys.readouterr().out

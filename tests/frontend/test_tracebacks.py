"""Errors are those of NumPy and Python, at the user's line and columns, and show no frames of the package."""

import copy
import os
import pickle
import re
import subprocess
import sys
import traceback

import error_cases
import numpy as np
import pytest
from compare import plain

import futurex as fx
from futurex.frontend.errors import StagingError

HERE = error_cases.__file__


def failure(function, args):
    """Type, message, and the user's frames of what a call raises; None if it does not."""
    try:
        plain(function(*copy.deepcopy(args)))
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        places = [(each.name, each.lineno, each.colno) for each in frames if each.filename == HERE]
        package = [each.filename for each in frames if os.sep + "futurex" + os.sep in each.filename]
        inside = [name for name in package if f"{os.sep}tests{os.sep}" not in name]
        return type(error), str(error), places, inside
    return None


@pytest.mark.parametrize("case", error_cases.cases, ids=lambda case: case.name)
def test_errors_are_those_of_python(case):
    expected = failure(case.function, case.args)
    futurized = fx.futurize(case.function)
    for _ in range(2):
        assert failure(futurized, case.args) == expected
    with fx.disable():
        assert failure(futurized, case.args) == expected
    with np.errstate(divide="raise"):
        assert failure(futurized, case.args) == failure(case.function, case.args)


@pytest.mark.parametrize("case", error_cases.cases, ids=lambda case: case.name)
def test_errors_of_the_trace_are_of_the_same_type_at_the_same_line(case):
    expected = failure(case.function, case.args)
    actual = failure(fx.futurize(case.function, escape="error"), case.args)
    if expected is None or actual is None:
        assert actual == expected
        return
    if actual[0] is not StagingError:
        assert issubclass(expected[0], actual[0])
    assert [place[:2] for place in actual[2]][:1] == [place[:2] for place in expected[2]][:1]
    assert not actual[3]


SCRIPT = """
import numpy as np
import futurex as fx

def inner(x):
    return np.linalg.inv(x)

def loss(x):
    y = inner(x * 1)
    return y.sum()

call = fx.grad(loss) if {derivative} else fx.futurize(loss)
value = call(np.zeros((2, 2)))
print(np.asarray(value))
"""


@pytest.mark.parametrize("derivative", [False, True])
def test_a_script_shows_the_users_lines_alone(tmp_path, derivative):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(derivative=derivative))
    shown = {}
    for mode in ("short", "full"):
        run = subprocess.run(
            [sys.executable, str(script)],
            env={**os.environ, "FUTUREX_TRACEBACK": mode},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        shown[mode] = run.stderr
    files = [line.split('"')[1] for line in shown["short"].splitlines() if line.startswith('  File "')]
    assert all(name == str(script) or "numpy" in name for name in files)
    assert re.search(r"return np\.linalg\.inv\(x\)\n {11}[~^]{16}\n", shown["short"])  # Python 3.13 has ~ for the name
    assert "y = inner(x * 1)" in shown["short"]
    assert "LinAlgError: Singular matrix" in shown["short"]
    assert os.path.join("futurex", "frontend") in shown["full"]


def test_an_error_raised_twice_does_not_remember_where():
    future = fx.futurize(error_cases.a_singular_matrix)(np.zeros((2, 2)))
    depths = []
    for _ in range(3):
        with pytest.raises(np.linalg.LinAlgError) as caught:
            float(future)
        depths.append(len(traceback.extract_tb(caught.value.__traceback__)))
    assert len(set(depths)) == 1


def test_an_error_keeps_its_line_when_it_travels():
    future = fx.futurize(error_cases.a_singular_matrix)(np.zeros((2, 2)))
    error = pickle.loads(pickle.dumps(future.exception()))
    assert error.__source__.line == error_cases.a_singular_matrix.__code__.co_firstlineno + 2


def test_ipython_shows_the_users_lines_alone(capsys):
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell.instance()
    shell.run_cell("import numpy as np, futurex as fx\nf = fx.futurize(lambda x: np.linalg.inv(x + 0))")
    shell.run_cell("print(f(np.zeros((2, 2))))")
    shown = capsys.readouterr()
    text = shown.out + shown.err
    assert "Singular matrix" in text
    assert os.path.join("futurex", "frontend") not in text


def test_a_cell_is_named_as_ipython_names_it(capsys):
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell.instance()
    number = shell.execution_count
    shell.run_cell(
        "import scipy.fft, numpy as np, futurex as fx\n@fx.futurize\ndef turned(x):\n"
        "    y = x + np.ones(3)\n    return scipy.fft.dct(y)\nturned(np.zeros(3))", store_history=True,
    )  # fmt: skip
    shell.run_cell("print(turned(np.ones(3)), turned.explain(), turned.graph(np.ones(3)))", store_history=True)
    shell.run_cell("fx.grad(turned)(np.ones(3))", store_history=True)
    shown = capsys.readouterr()
    assert f"called at Cell In[{number}], line 5: return scipy.fft.dct(y)" in shown.out
    assert f"Cell In[{number}], line 4: y = x + np.ones(3)" in shown.out
    assert f"Cell In[{number}], line 5: a call of dct" in shown.out + shown.err
    node = shell.user_ns["turned"].graph(np.ones(3)).nodes[-1]
    travelled = pickle.loads(pickle.dumps(node.src))
    assert (str(travelled), travelled.file) == (str(node.src), node.src.file)
    assert travelled.cell == f"Cell In[{number}]"


def test_numpy_called_by_the_trace_is_not_the_users_line():
    def product(x):
        return (x[:3] * np.ones(2)).sum()

    with pytest.raises(ValueError, match="broadcast") as caught:
        fx.grad(product)(np.ones(4))
    line = product.__code__.co_firstlineno + 1
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.filename, last.lineno) == (__file__, line)
    assert any(f"{__file__}:{line}: " in note for note in caught.value.__notes__)
    assert not any("numpy" + os.sep in note for note in caught.value.__notes__)


def test_precompile_shows_the_users_lines_alone():
    with pytest.raises(ValueError, match="matmul") as caught:
        fx.precompile(fx.futurize(lambda x: x @ np.ones(7)), np.ones(3))
    assert {frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)} == {__file__}


def test_an_error_of_a_trace_shows_all_shapes():
    """NumPy names two of the four extents."""
    with pytest.raises(ValueError, match="matmul") as caught:
        fx.grad(lambda x, w: (x @ w).sum())(np.ones((3, 4)), np.ones((5, 2)))
    operands, line = caught.value.__notes__
    assert operands == "in matmul(float64[3,4], float64[5,2])"
    assert "(x @ w).sum()" in line


def test_what_cannot_be_staged_inside_a_library_is_named_by_the_users_line():
    filters = pytest.importorskip("scipy.ndimage")

    def blurred(x):
        return filters.gaussian_filter(x, 1.0).sum()

    with pytest.raises(fx.StagingError) as caught:
        fx.grad(blurred)(np.arange(9.0))
    first, own, library, _, remedy = str(caught.value).splitlines()
    assert first == f"{__file__}:{blurred.__code__.co_firstlineno + 1}: a call of correlate1d"
    assert own.strip() == "return filters.gaussian_filter(x, 1.0).sum()"
    assert library.startswith("  which comes to ")
    assert "_filters.py" in library
    assert "NumPy's functions, or make the call outside" in remedy


def always_raises(x):
    raise ValueError(f"a sum of {x.sum():.1f} of {len(x)} numbers")


def test_a_text_with_values_can_be_shown_where_no_run_will_tell_them():
    f, x = fx.futurize(always_raises), np.ones(3)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"a sum of 3\.0 of 3 numbers"):
            f(x)
    assert "tracing raised ValueError: a sum of ... of 3 numbers" in f.explain()
    for call in (f.trace, fx.grad(always_raises), lambda x: fx.lower(always_raises, x)):
        with pytest.raises(ValueError, match=r"a sum of \.\.\. of 3 numbers"):
            call(x)


def again(x):
    try:
        raise KeyError(x[0])
    except KeyError as error:
        raise ValueError(error.args[0]) from error


class Unreadable(ValueError):
    def __str__(self):
        return f"{self.args[0].nothing:.2f}"


def unreadable(x):
    raise Unreadable(x)


@pytest.mark.parametrize("function", [again, unreadable])
def test_what_a_function_became_is_told_of_errors_without_a_text(function):
    """Their text would tell values of the run, or is the program's own and fails."""
    f = fx.futurize(function)
    for _ in range(2):
        with pytest.raises(ValueError) as found:
            f(np.arange(3.0))
    assert f"tracing raised {found.type.__name__}" in f.explain()


def test_what_the_program_raises_says_no_more_than_in_plain_python():
    def at_once(x):
        if x[0] < 0:
            raise ValueError(f"negative: {x[0]}")
        return x * 2

    def in_rounds(x):
        total = 0.0
        for value in x:
            if value < 0:
                raise AssertionError("negative")
            total += value
        return total

    def without_such_an_entry(x):
        stack = [0.0]
        for value in x:
            if value < 0:
                stack.pop()
        return stack[-1] + x[0]

    for function in (at_once, in_rounds, without_such_an_entry):
        shown = []
        for each in (function, fx.futurize(function), fx.futurize(function)):
            with pytest.raises((ValueError, AssertionError, IndexError)) as caught:
                float(np.sum(each(-np.ones(4))))
            error = caught.value
            assert not hasattr(error, "__notes__")
            shown.append((traceback.format_exception_only(error), traceback.extract_tb(error.__traceback__)[-1].lineno))
        assert shown[0] == shown[1] == shown[2]

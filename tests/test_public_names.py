"""Every public name is there in a program that has asked for no other before."""

import re
import subprocess
import sys

import pytest

import futurex as fx

LATE = [name for name in fx.__all__ if name in (*fx._LATE, *fx._MODULES)]


@pytest.mark.parametrize("name", LATE)
def test_a_name_that_is_imported_when_it_is_asked_for(name):
    program = f"import futurex as fx; print(type(fx.{name}).__name__, {name!r} in dir(fx))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[1] == "True"


def test_every_public_name_exists():
    assert all(getattr(fx, name) is not None for name in fx.__all__)
    assert set(fx.__all__) <= set(dir(fx))


def test_a_name_that_is_not_there_names_the_nearest():
    program = "import futurex as fx; fx.gradd"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert "AttributeError: module 'futurex' has no attribute 'gradd'. Did you mean: 'grad'?" in done.stderr


@pytest.mark.parametrize(
    "name, found",
    [
        ("jit", "futurex.futurize"), ("lax", "plain Python's if, for and while"), ("relu", "futurex.nn.relu"),
        ("Adam", "futurex.optim.adam"), ("where", "numpy.where"), ("tensor", "a NumPy array"),
    ],
)  # fmt: skip
def test_names_of_other_libraries_say_what_there_is(name, found):
    with pytest.raises(AttributeError, match=f"no attribute {name!r}: here it is {re.escape(found)}"):
        getattr(fx, name)
    assert not hasattr(fx, "_jit")


def test_an_interrupt_while_a_package_is_imported_comes_when_it_is():
    program = """
import os, signal, sys
import futurex as fx
signal.signal(signal.SIGINT, signal.default_int_handler)  # who starts this in the background ignores it
class Interrupts:
    def find_spec(self, name, path, target=None):
        if name == "distributed.client":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
try:
    fx.Cluster
except KeyboardInterrupt:
    print("interrupted", "distributed" in sys.modules, fx.Cluster.__name__)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert done.stdout.split() == ["interrupted", "True", "Cluster"], done.stderr

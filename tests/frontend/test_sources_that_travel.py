"""Functions of a notebook in another process, as Dask sends them: staged, and differentiated, as at home."""

import linecache
import pickle
import subprocess
import sys

import numpy as np
import pytest

import futurex as fx

cloudpickle = pytest.importorskip("cloudpickle")

CELLS = [
    "import numpy as np, futurex as fx\nscale = 3.0\n",
    "def scaled(x):\n    return x * scale\n",
    "class Base:\n    def act(self, x):\n        return scaled(x) if x.sum() > 0 else x\n",
    """
@fx.futurize
def halved(x):
    while x.sum() > 100:
        x = x / 2
    return scaled(x).sum()

class Net(Base):
    def __init__(self):
        self.w = np.arange(3.0)

    @fx.futurize
    def forward(self, x):
        self.cache = x, x * self.w
        return self.act(self.cache[1]).sum()

    def slope(self, x):
        return fx.grad(lambda w: (x * w).sum())(self.w)

net, slope, squares = Net(), fx.grad(halved), fx.grad(lambda w: (w**2).sum() if w[0] > 0 else w.sum())
both = fx.vmap(scaled)
""",
]
THERE = """
import pickle, sys, numpy as np
halved, net, slope, squares, both = pickle.load(sys.stdin.buffer)
x = np.ones(3)
assert float(halved(x)) == 9 and "staged" in halved.explain() and "plain" not in halved.explain(), halved.explain()
assert np.asarray(slope(x)).tolist() == [3, 3, 3] and np.asarray(squares(x)).tolist() == [2, 2, 2]
assert float(net.forward(x)) == 9 and "plain" not in type(net).forward.explain(), type(net).forward.explain()
assert np.asarray(net.slope(x)).tolist() == [1, 1, 1] and np.asarray(both(x)).tolist() == [3, 3, 3]
import cloudpickle
sys.stdout.buffer.write(cloudpickle.dumps((halved, net)))
"""


@pytest.fixture
def notebook():
    """The names of a notebook whose cells were run."""
    scope = {"__name__": "__main__"}
    for number, text in enumerate(CELLS):
        name = f"/tmp/ipykernel_1/{number}_of_a_test.py"
        linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
        exec(compile(text, name, "exec"), scope)
    yield scope
    for number in range(len(CELLS)):
        del linecache.cache[f"/tmp/ipykernel_1/{number}_of_a_test.py"]


def test_functions_of_a_notebook_are_staged_in_another_process(notebook):
    sent = cloudpickle.dumps([notebook[name] for name in ("halved", "net", "slope", "squares", "both")])
    done = subprocess.run([sys.executable, "-c", THERE], input=sent, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    halved, net = pickle.loads(done.stdout)  # and back
    assert float(halved(np.ones(3))) == float(net.forward(np.ones(3))) == 9


def test_files_do_not_travel():
    from futurex.frontend.carried import texts_of

    assert texts_of(test_files_do_not_travel) == {} == texts_of(fx.futurize(np.sum))

"""Small programs that write into their arguments mean the same as one compiled function, of every dtype."""

import linecache

import numpy as np
import pytest
from compare import outcome
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import futurex as fx

pytestmark = pytest.mark.filterwarnings("ignore")
STATEMENTS = [
    "a *= 2", "b += a", "a[...] = b", "b[1:] = a[:-1]", "b[::-1] = a", "a[0] = b[:, 0].max()",
    "np.maximum(a, b, out=a)",
    "a[a > 2] = 1", "np.add.at(b, 0, 1)", "b.sort(axis=0)", "c = a + b", "c = b.T.copy()", "c = a",
    "c = a[1:]", "c = b.ravel()", "c = np.where(a > b, a, 0)", "c[0] = 3", "d = c * 1", "d = a * 1",
]  # fmt: skip
RETURNED = ["c", "d", "c, d", "c * 1", "a", "b, a.copy()"]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(STATEMENTS), min_size=2, max_size=6), st.sampled_from(RETURNED), st.sampled_from("eedfiB?")
)
def test_writes_mean_the_same_before_and_after(at_once, statements, returned, code):
    lines = ["p, q = a.copy(), b.copy()", "c = d = a + b", *statements, f"return p, q, {returned}, a.max()"]
    text = "def written(a, b):\n" + "".join(f"    {line}\n" for line in lines)
    name, scope = f"<written {hash(text)}>", {"np": np}
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    exec(compile(text, name, "exec"), scope)
    rng = np.random.default_rng(1)
    args = [rng.integers(0, 5, (4, 4)).astype(code) for _ in range(2)]
    futurized, expected = fx.futurize(scope["written"]), outcome(scope["written"], args)
    for _ in range(4):
        assert outcome(futurized, args) == expected, text

"""Code that may come after the first calls of a kernel."""

import numpy as np
import pytest

from futurex.kernels.numba_ import truths
from futurex.kernels.numba_.arriving import Arriving


@pytest.mark.parametrize("waits", [True, False])
def test_a_call_waits_for_code_where_calls_do(waits):
    code = Arriving(f"{truths._text('i8', 1, True)}; {np.random.default_rng().integers(2**62)}\n")  # nobody has it
    code.wait = waits
    if waits:
        assert code.is_there()
    code.prepare((), wait=True)
    assert code.ready
    assert code.is_there()

"""``vmap`` of every op record: equal to a loop over the examples, whichever inputs have them."""

import numpy as np
import pytest
from op_cases import cases, copies, generator

from futurex.autodiff.batch import vmap
from futurex.ops.batching import NotBatchable
from futurex.tree.verify import verify

SIZE = 3
CASES = [case for case in cases() if case.inputs and not any(node.dtype == object for node in case.graph.params)]
# Ops whose batch rules leave some inputs to the last resort, a scan over the examples.
ONE_BY_ONE = {"pad", "pinv", "python_scalar"}


def examples(value, rng):
    """Values like one: of equal type and shape, and legal wherever it is."""
    array = np.asarray(value)
    for k in range(SIZE):
        other = array
        if array.dtype.kind in "fc" and array.ndim < 2:
            other = (array * (1 + 0.1 * k)).astype(array.dtype)
        elif array.dtype.kind in "fc":  # a scalar multiple: a definite matrix stays one
            other = (array * array.dtype.type(1 + 0.1 * k)).astype(array.dtype)
        elif array.dtype.kind in "iub" and array.ndim:
            other = np.roll(array, k, axis=0)
        yield other.item() if type(value) in (bool, int, float, complex) else other[()] if other.ndim == 0 else other


def patterns(case):
    """Which inputs have examples: all of them, and each alone."""
    n = len(case.inputs)
    yield (True,) * n
    if n > 1:
        yield from (tuple(k == j for k in range(n)) for j in range(n))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_vmap_is_a_loop_over_examples(case):
    for batched in patterns(case):
        rng = generator(str(case))
        columns = [list(examples(value, rng)) for value in case.inputs]
        choices = list(zip(columns, batched, case.inputs, strict=True))
        rows = [[column[k] if has else value for column, has, value in choices] for k in range(SIZE)]
        notes = []
        try:
            graph, flags = vmap(case.graph, SIZE, batched, range(len(case.graph.outs)), notes)
        except NotBatchable:
            outs = case.graph.outs
            assert case.record.effect or not all(node.aval.static and node.dtype != object for node in outs)
            continue
        assert all(flags)
        at_once = case.record.elementwise or (case.record.batch and case.name not in ONE_BY_ONE)
        if any(step[0] == "sized" for step in case.sample.attrs.get("chain", ())):
            at_once = not any(batched[-2:])  # slices of each example's own
        if case.name == "masked_store":
            at_once = not batched[1]  # a mask of each example's own
        assert not (at_once and notes)
        stacked = [
            np.stack([np.asarray(x) for x in c]) if has else v
            for c, has, v in zip(columns, batched, case.inputs, strict=True)
        ]
        try:
            expected = [case.graph(*copies(row)) for row in rows]
        except (ValueError, ArithmeticError) as error:
            with pytest.raises(type(error)):
                graph(*copies(stacked))
            continue
        for position, result in enumerate(verify(graph)(*copies(stacked))):
            wanted = np.stack([np.asarray(row[position]) for row in expected])
            assert np.asarray(result).dtype == wanted.dtype
            tolerance = 100 * np.finfo(wanted.dtype).eps if wanted.dtype.kind in "fc" else 0
            np.testing.assert_allclose(result, wanted, rtol=tolerance, atol=tolerance * 10)

"""What a run has written comes into the caller's arrays and generators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from futurex.frontend.array import Array
from futurex.frontend.generators import is_generator
from futurex.frontend.inflight import Result
from futurex.frontend.variants import Variant
from futurex.ops.streams import restore


def write_back(
    variant: Variant, name: str, leaves: list[Any], captured: list[Any], inputs: list[Any], futures: Sequence[Result]
) -> None:
    """Write the results that are an argument's, or an outside array's, into it. Raises TypeError, with the function's
    ``name``, where that is the result of another call."""
    for place, out in variant.written:
        target = leaves[place] if place >= 0 else captured[~place]
        if isinstance(target, Array):
            raise TypeError(f"{name} writes into an argument that is the result of another call; pass np.array(a)")
        if is_generator(target):
            restore(target, futures[out].result())
        else:
            variant.lying.write_back(target, out, futures[out].result(), inputs)

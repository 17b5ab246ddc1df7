"""``np.ma`` in staged code: functions, methods and results, on :class:`futurex.frontend.masked.Masked`."""

from futurex.frontend.masked_arrays import arithmetic, making, reductions, shapes  # noqa: F401  (they register)
from futurex.frontend.masked_arrays.returned import taken_apart as taken_apart

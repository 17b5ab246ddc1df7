"""How localities share the work of a training: ``fx.fit(..., strategy=...)``."""

from futurex.training.strategy.averaging import local_sgd
from futurex.training.strategy.cross_barrier import cross_barrier
from futurex.training.strategy.server import parameter_server
from futurex.training.strategy.synchronous import all_reduce
from futurex.training.strategy.zero import zero

__all__ = ["all_reduce", "cross_barrier", "local_sgd", "parameter_server", "zero"]

"""How localities share the work of a training: ``fx.fit(..., strategy=...)``."""

from futurex.training.strategy.synchronous import all_reduce

__all__ = ["all_reduce"]

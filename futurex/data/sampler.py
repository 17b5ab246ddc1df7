"""Which samples make up which batch, for any number of localities."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from futurex.errors import whole_number


class Sampler:
    """Global batches of a seeded permutation that depends on seed and epoch alone, never on the number of localities.

    >>> import futurex as fx
    >>> sampler = fx.data.Sampler(10, batch_size=4, seed=0)
    >>> [len(batch) for batch in sampler.epoch(0)]
    [4, 4, 2]
    >>> len(fx.data.Sampler.share(next(sampler.epoch(0)), rank=1, size=2))
    2
    """

    def __init__(self, n_samples: int, batch_size: int, seed: int, drop_last: bool = False) -> None:
        """`drop_last` leaves out the short batch at the end of an epoch; `ValueError` where no batch would be left."""
        n_samples, batch_size = whole_number("n_samples", n_samples, 1), whole_number("batch_size", batch_size, 1)
        seed = whole_number("seed", seed, 0)
        if drop_last and batch_size > n_samples:
            raise ValueError(f"drop_last leaves no batch: batch_size {batch_size} is more than the {n_samples} samples")
        self.n_samples, self.batch_size, self.seed, self.drop_last = n_samples, batch_size, seed, drop_last

    def __len__(self) -> int:
        """Return the number of batches in one epoch."""
        whole, rest = divmod(self.n_samples, self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the global batches of `epoch` (counted from 0) as index vectors; `start` > 0 resumes in its middle."""
        epoch, start = whole_number("epoch", epoch, 0), whole_number("start", start, 0)
        order = np.random.default_rng((self.seed, epoch)).permutation(self.n_samples)
        for batch in range(start, len(self)):
            yield order[batch * self.batch_size : (batch + 1) * self.batch_size]

    @staticmethod
    def share(batch: npt.NDArray[np.int64], rank: int, size: int) -> npt.NDArray[np.int64]:
        """Return the part of a global `batch` that falls to locality `rank` of `size`; the parts leave no gap."""
        if not 0 <= rank < size:
            raise ValueError(f"rank must lie in 0 to {size - 1} for {size} localities, not {rank}")
        return batch[len(batch) * rank // size : len(batch) * (rank + 1) // size]

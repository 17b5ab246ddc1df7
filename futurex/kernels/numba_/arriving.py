"""A kernel's machine code, which may come after its first calls."""

from __future__ import annotations

from collections.abc import Sequence

from futurex.kernels.compiling import is_behind
from futurex.kernels.numba_.compiler import compiled
from futurex.kernels.numba_.team import Share


class Arriving:
    """The code of one text. ``interpreted``: calls that NumPy computed meanwhile, or because LLVM refused it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.wait = not is_behind()
        self.interpreted = 0
        self.entry = compiled(text, wait=False)

    def prepare(self, sharing: Sequence[int], *, wait: bool) -> None:
        """Have the code compiled."""
        self.entry = compiled(self.text, wait=wait)

    @property
    def ready(self) -> bool:
        return self.entry.ready

    def is_there(self) -> bool:
        """Is the code there for a call, which waits for it where calls do?"""
        if not self.ready:
            self.prepare((), wait=self.wait)
        return self.ready

    def play(self, block: bytes, share: Share) -> None:
        """Run the code on a block of parameters, shared like this."""
        if share.threads > 1:
            self.entry.on_threads(block, share)
        else:
            self.entry(block)

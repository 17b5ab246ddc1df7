"""Storage cells: what the arrays of a trace hold, which views of them share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from futurex.frontend.array import READ_ONLY
from futurex.frontend.errors import Escape
from futurex.frontend.layout import Strides
from futurex.frontend.sites import Collected, MayBeCollected
from futurex.tree.node import Node, next_id


class Cell:
    """Storage of one array during a trace; ``value`` is what it holds now. All views of the array share the cell.

    ``origin``: the caller's array that the cell stands for (an argument or a captured array).
    ``is_array``: False for a NumPy or Python scalar, which is 0-dimensional and never changes.
    ``strides``: how NumPy lays the array out, None where that is not known.
    ``entangled``: the cell may be the same storage as another; then writes cannot be traced. It says why; ``site`` is
    the choice that made it so, and ``which`` array it is then, where branches or rounds have merged several.
    ``asked``: the layout that was asked for, by ``order=`` or with a copy: a result has it, whatever it is.
    ``seen``: the view that NumPy gives where a plan, whose arrays lie in C order, copies.
    ``frozen``: an array that nobody may write to; with an operator in place its name becomes another one's.
    ``looked``: somebody has asked for the elements of an array, or for their number or type.
    ``unread``: what refuses whoever looks at it: it was a name's before a loop whose rounds write it and bind it anew.
    """

    __slots__ = (
        "_value", "asked", "born", "entangled", "frozen", "is_array", "looked", "origin", "seen", "site", "strides",
        "unread", "which", "written",
    )  # fmt: skip

    def __init__(self, value: Node, origin: Any = None, is_array: bool = True, strides: Strides = None) -> None:
        self._value = value
        self.born = next_id()
        self.origin = origin
        self.is_array = is_array
        self.strides = origin.strides if origin is not None else strides
        self.entangled = ""
        self.site: Any = None
        self.which: Any = None
        self.written = False
        self.asked: Strides = None
        self.seen: Any = None
        self.frozen = False
        self.looked = False
        self.unread: Callable[[], None] | None = None

    @property
    def value(self) -> Node:
        if self.unread is not None:
            self.unread()
        return self._value

    def write(self, value: Node) -> None:
        """Replace what the cell holds, and tell the scopes."""
        from futurex.frontend.trace import current

        if self.unread is not None:
            self.unread()
        if self.frozen:
            raise TypeError(READ_ONLY)
        if self.entangled:
            if isinstance(self.site, Collected | MayBeCollected):
                current().loops.add(self.site if isinstance(self.site, Collected) else self.site.site)
            raise Escape(
                f"a write into an array that {self.entangled}", "whether another array changes too is not known",
                site=self.site,
            )  # fmt: skip
        self.settle(value)

    def settle(self, value: Node) -> None:
        """What the cell holds after a branch or loop that wrote it."""
        from futurex.frontend.trace import current

        before = self._value
        for region in reversed(current().regions):  # one that has put a stand-in here knows what others find
            if self.born < region.start:
                before = region.journal.setdefault(self, before)
        self._value = value
        self.written = True

    def restore(self, value: Node) -> None:
        self._value = value

    def entangle(self, why: str, site: Any = None) -> bool:
        """Let nobody write into the cell from now on; True if that is new."""
        from futurex.frontend.trace import current

        if self.entangled:
            return False
        for journal in current().journals:
            journal.entangled.append(self)
        self.entangled, self.site = why, site
        return True

"""The errors every layer may raise, the one way to import an optional package, and to be told a whole number."""

import importlib
import operator
from types import ModuleType
from typing import Any


class FuturexError(Exception):
    """The base of every error that futurex defines."""


class Donated(FuturexError, RuntimeError):
    """An array was read after its memory had been given to a call; the message names the call and its argument."""


class MissingExtra(FuturexError, ImportError):
    """A package that only an extra installs is not there; the message names the command that installs it."""


def require(module: str, extra: str) -> ModuleType:
    """Import and return `module`, or raise `MissingExtra` naming the `extra` that installs it.

    >>> require("json", "train").dumps(1)
    '1'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = error.name or module
        raise MissingExtra(
            f"the package {missing!r} is needed for this and cannot be imported ({error}); "
            f"it comes with an extra: pip install 'futurex[{extra}]'",
            name=missing,
        ) from error


def whole_number(name: str, value: Any, least: int | None = None) -> int:
    """A whole number that a user gave. Raises TypeError for what is none, ValueError below ``least``, by its name.

    >>> whole_number("epochs", 3, least=1)
    3
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {value!r}") from None
    if least is not None and number < least:
        raise ValueError(f"{name} must be at least {least}, not {number}")
    return number

"""Text with traced values in it: what f-strings make, to be printed or raised when the values are there."""

from __future__ import annotations

import re
import string
from typing import Any, NoReturn

from futurex.frontend.control.either import of_one_dtype
from futurex.frontend.errors import Escape
from futurex.frontend.outside import any_traced, refuse_special
from futurex.frontend.trace import current
from futurex.frontend.tracer import Placeholder, Tracer
from futurex.ops.python import Text, Value
from futurex.tree.node import Node

_CONVERSIONS = {-1: "", ord("s"): "s", ord("r"): "r", ord("a"): "a"}


class TracedText(Placeholder):
    """A string that is known when its values are. It can be printed, raised, added to text, and nothing else."""

    __slots__ = ("nodes", "parts")

    def __init__(self, parts: tuple[str | Value, ...], nodes: tuple[Node, ...]) -> None:
        self.parts, self.nodes = parts, nodes

    def used(self) -> NoReturn:
        raise Escape("the text of a value that is not known before the run", "plain Python needs it here")

    @property
    def text(self) -> Text:
        return Text(self.parts)

    def outline(self) -> str:
        """What is known of it before the run."""
        return "".join(part if isinstance(part, str) else "..." for part in self.parts)

    def __add__(self, other: Any) -> TracedText:
        return joined(self, other) if isinstance(other, str | TracedText) else self.used()

    def __radd__(self, other: Any) -> TracedText:
        return joined(other, self) if isinstance(other, str) else self.used()


def without_values(error: Exception) -> Exception:
    """An error of a trace whose texts can be shown: what they say of values is not known before the run."""
    if any(isinstance(arg, TracedText) for arg in error.args):
        error.args = tuple(arg.outline() if isinstance(arg, TracedText) else arg for arg in error.args)
    return error


def joined(*pieces: Any) -> Any:
    """Text from strings and texts with values."""
    if all(isinstance(piece, str) for piece in pieces):
        return "".join(pieces)
    parts: list[str | Value] = []
    nodes: list[Node] = []
    for piece in pieces:
        if isinstance(piece, TracedText):
            parts += piece.parts
            nodes += piece.nodes
        else:
            parts.append(piece)
    return TracedText(tuple(parts), tuple(nodes))


def formatted(value: Any, conversion: str = "", spec: Any = "") -> Any:
    """``format(value, spec)``, after ``!s``, ``!r`` or ``!a``."""
    if isinstance(spec, TracedText):
        spec.used()
    if isinstance(value, TracedText) and conversion in ("", "s") and not spec:
        return value
    if conversion in ("", "s"):
        value = of_one_dtype(value)
    if isinstance(value, Tracer) and value._node.op != "const":
        if value._loose and conversion in ("r", "a"):
            current().tell()
            raise Escape("the representation of a value that is a Python number in some branch", "NumPy's differs")
        return TracedText((Value(kind_of_value(value), conversion, spec),), (value._node,))
    if any_traced([value]) and not isinstance(value, Tracer):
        raise Escape("the text of a container with values that are not known before the run", "plain Python needs it")
    refuse_special(value)
    converted = {"": value, "s": str, "r": repr, "a": ascii}[conversion]
    return format(converted(value) if conversion else value, spec)


def kind_of_value(value: Tracer) -> str:
    """How Python has the value: as a number, a NumPy scalar or an array."""
    return "number" if value.aval.weak else "scalar" if value.is_scalar else "array"


def f_string(*pieces: Any) -> Any:
    """An f-string: text, and ``(value, conversion, spec)`` for every expression in it."""
    return joined(*(p if isinstance(p, str) else formatted(p[0], _CONVERSIONS[p[1]], p[2]) for p in pieces))


def format_method(text: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``text.format(*args, **kwargs)`` with traced values."""
    pieces: list[Any] = []
    for position, (literal, field, spec, conversion) in enumerate(string.Formatter().parse(text)):
        pieces.append(literal)
        if field is None:
            continue
        key = field or str(position)
        if not (key.isdigit() or key.isidentifier()) or "{" in (spec or ""):
            raise Escape("str.format() with fields inside fields of traced values", "use an f-string")
        pieces.append(formatted(args[int(key)] if key.isdigit() else kwargs[key], conversion or "", spec or ""))
    return joined(*pieces)


_PERCENT = re.compile(r"%(?P<flags>[-+ #0]*)(?P<width>\d*)(?P<precision>\.\d*)?[hlL]?(?P<kind>[a-zA-Z%])")


def percent(text: str, values: Any) -> Any:
    """``text % values`` with traced values: integers as such, other numbers with a point, all of them as they print."""
    given = list(values) if type(values) is tuple else [values]
    pieces: list[Any] = []
    end = 0
    for found in _PERCENT.finditer(text):
        pieces.append(text[end : found.start()])
        end, spec = found.end(), found[0]
        if spec == "%%":
            pieces.append("%")
            continue
        if not given or found["kind"] not in "diufFeEgGsra":
            _refuse_percent()
        pieces.append(_with_percent(given.pop(0), spec, found["kind"]))
    rest = text[end:]
    if given or "%" in "".join(piece for piece in [*pieces[::2], rest] if isinstance(piece, str)):
        _refuse_percent()
    return joined(*pieces, rest)


def _with_percent(value: Any, spec: str, kind: str) -> Any:
    if isinstance(value, TracedText) and spec == "%s":
        return value
    if kind not in "ra":
        value = of_one_dtype(value)
    if isinstance(value, Tracer) and value._node.op == "const":
        return Value(kind_of_value(value), "%", spec).text(value._node.value)
    if not isinstance(value, Tracer):
        if any_traced([value]):
            _refuse_percent()
        refuse_special(value)
        return spec % (value,)
    kinds = "biu" if kind in "diu" else "biuf"
    if kind in "sra":
        formatted(value, kind)  # may refuse
    elif not value.is_scalar or value.dtype.kind not in kinds:
        _refuse_percent()
    return TracedText((Value(kind_of_value(value), "%", spec),), (value._node,))


def _refuse_percent() -> NoReturn:
    raise Escape("the operator % of such a text and traced values", "plain Python needs the values", "use an f-string")


def join_method(text: str, parts: Any) -> Any:
    """``text.join(parts)`` with traced values."""
    pieces = list(parts) if hasattr(type(parts), "__iter__") else parts
    if not any_traced([pieces]):
        return text.join(pieces)
    if not all(isinstance(piece, str | TracedText) for piece in pieces):
        raise Escape("str.join of a traced value", "plain Python needs the value here")
    return joined(*[each for piece in pieces for each in (text, piece)][1:])

"""``grad`` and ``value_and_grad`` of functions: trace, transform the graph, run it as any other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from futurex.autodiff import reverse
from futurex.frontend import calls
from futurex.frontend.calls import SPECIAL
from futurex.frontend.errors import Escape
from futurex.frontend.staging import Futurized
from futurex.frontend.trace import close, current, emit
from futurex.frontend.tracer import Tracer, fresh, node_of
from futurex.tree.node import Node, param
from futurex.tree.pytree import flatten, leaf_paths, unflatten


class _Derivative:
    """A function's value and gradients as a staged function."""

    def __init__(
        self, function: Callable[..., Any], argnums: int | Sequence[int], has_aux: bool, with_value: bool
    ) -> None:
        self.function = function
        self.argnums = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        self.single = isinstance(argnums, int)
        self.has_aux = has_aux
        self.with_value = with_value
        self.__name__ = f"{'value_and_' if with_value else ''}grad_{getattr(function, '__name__', 'function')}"
        self.__qualname__ = self.__name__
        self.__wrapped__ = function  # the signature is the function's
        self.__doc__ = (
            f"The gradient of {getattr(function, '__name__', 'a function')} with respect to argument {argnums}."
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("a derivative exists only as a tree; call it through fx.grad")

    def __fx_stage__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for number in self.argnums:
            if not 0 <= number < len(args):
                raise TypeError(f"argnums={number}, but the function was called with {len(args)} positional arguments")
        parts = [flatten(arg) for arg in args]
        wrt = [
            _checked(leaf, path)
            for k in self.argnums
            for leaf, path in zip(parts[k][0], leaf_paths(parts[k][1], f"argument {k}"), strict=True)
        ]
        grads, value = self._differentiate(args, kwargs, wrt)
        position = 0
        out = []
        for number in self.argnums:
            count = len(parts[number][0])
            out.append(unflatten(parts[number][1], [fresh(node) for node in grads[position : position + count]]))
            position += count
        gradient = out[0] if self.single else tuple(out)
        if not self.with_value:
            return (gradient, value[1]) if self.has_aux else gradient
        return value, gradient

    def _differentiate(self, args: Any, kwargs: Any, wrt: list[Any]) -> tuple[list[Node], Any]:
        """Trace the function on stand-ins for what it is differentiated by; put gradient and value into the tree."""
        outer = [node_of(leaf) for leaf in wrt]
        with current().scope() as scope:
            inner = [param(node.aval, "x") for node in outer]
            stand_ins = iter(fresh(node) for node in inner)
            arguments = [_replaced(arg, stand_ins) if k in self.argnums else arg for k, arg in enumerate(args)]
            result = calls.call(self.function, tuple(arguments), kwargs)
            if scope.journal:
                raise Escape(
                    "a write into an array from outside the differentiated function", "its derivative is not defined"
                )
            if scope.effects:
                raise Escape("a check or print inside a differentiated function", "effects are not differentiated yet")
            leaves, structure = flatten(result)
            nodes = [_as_node(leaf) for leaf in leaves]
            (graph,), free = close([nodes], [inner], scope.start, [self.__name__])
        derived = reverse.value_and_grad(graph, range(len(inner)))
        outs = derived.inline([*outer, *free])
        value = unflatten(structure, [fresh(node) for node in outs[: len(nodes)]])
        if self.has_aux and not (isinstance(value, tuple) and len(value) == 2):
            raise TypeError("has_aux=True needs a function that returns (value, aux)")
        return outs[len(nodes) :], value


def _as_node(leaf: Any) -> Node:
    node = node_of(leaf)
    return emit("cast", node, dtype=node.dtype) if node.aval.weak and node.dtype.kind == "f" else node


def _replaced(arg: Any, stand_ins: Any) -> Any:
    leaves, structure = flatten(arg)
    return unflatten(structure, [next(stand_ins) for _ in leaves])


def _checked(leaf: Any, path: str) -> Any:
    traced = isinstance(leaf, Tracer)
    if not traced or leaf.dtype.kind not in "fc":
        kind = f"{leaf.dtype} array" if traced else f"{type(leaf).__name__} ({leaf!r})"
        raise TypeError(
            f"cannot differentiate with respect to {path}: it is a {kind}; only floats have gradients. "
            "Keep it in another argument"
        )
    return leaf


def _made(
    function: Callable[..., Any], argnums: int | Sequence[int], has_aux: bool, with_value: bool
) -> Futurized[Any, Any]:
    if not callable(function):
        raise TypeError(f"a derivative is taken of a function, not of {type(function).__name__}")
    return Futurized(_Derivative(function, argnums, has_aux, with_value), strict=True)


def grad(function: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Futurized[Any, Any]:
    """The gradient function: same arguments, returns d function / d argument(s) with the argument's structure.

    ``function`` returns a real scalar (with ``has_aux``: the pair of it and anything else, which is returned beside the
    gradient). Works through control flow, views and writes; may be nested.

    >>> import numpy as np, futurex as fx
    >>> fx.grad(lambda x: (x ** 3).sum())(np.array([1.0, 2.0])).result()
    array([ 3., 12.])
    """
    return _made(function, argnums, has_aux, False)


def value_and_grad(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Futurized[Any, Any]:
    """Like :func:`grad`, and returns ``(value, gradient)`` from one tree.

    >>> import numpy as np, futurex as fx
    >>> value, g = fx.value_and_grad(lambda x: (x * x).sum())(np.array([3.0]))
    >>> float(value), float(g[0])
    (9.0, 6.0)
    """
    return _made(function, argnums, has_aux, True)


def stop_gradient(x: Any) -> Any:
    """``x`` as a constant to every derivative.

    >>> import numpy as np, futurex as fx
    >>> float(fx.grad(lambda x: x * fx.stop_gradient(x))(np.float64(3.0)))
    3.0
    """
    return x


SPECIAL[stop_gradient] = lambda x: fresh(emit("stop_gradient", node_of(x)))

"""What small models are written with: NumPy's functions and the few in which the stacks differ."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

Arrays = dict[str, Any]
_SMALL = 1e-5  # what is added to a variance


class Stack(ABC):
    """What a model is written with. ``np`` is the stack's own module of NumPy's functions; arrays are float32.

    Images and sequences are channels-last, (N, *places, C), and filters (*kernel, in, out), unless a stack arranges
    them otherwise before the clock starts.
    """

    np: Any

    @abstractmethod
    def value_and_grad(self, loss: Callable[..., Any]) -> Callable[..., tuple[Any, Arrays]]:
        """A function that returns the loss and its gradient in the first argument, a dict."""

    @abstractmethod
    def slope(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The derivative of a scalar function of one array, which can be differentiated again."""

    @abstractmethod
    def constant(self, x: Any) -> Any:
        """``x``, which no gradient passes."""

    @abstractmethod
    def softmax(self, x: Any) -> Any:
        """Over the last axis."""

    @abstractmethod
    def log_softmax(self, x: Any) -> Any:
        """Its logarithm."""

    @abstractmethod
    def sigmoid(self, x: Any) -> Any:
        """Of each element."""

    @abstractmethod
    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        """The mean over a batch with labels of integers."""

    @abstractmethod
    def conv(self, x: Any, w: Any, b: Any) -> Any:
        """Convolution with as many places as before, and the bias."""

    @abstractmethod
    def pool(self, x: Any) -> Any:
        """The largest of each 2 x 2 places."""

    def relu(self, x: Any) -> Any:
        """Nothing below zero."""
        return self.np.maximum(x, 0)

    def dense(self, x: Any, w: Any, b: Any) -> Any:
        """A linear layer."""
        return x @ w + b

    def dense_places(self, x: Any, w: Any) -> Any:
        """A linear layer that reads all places; ``w`` is (*places, in, out)."""
        return x.reshape(x.shape[0], -1) @ w.reshape(-1, w.shape[-1])

    def mean_places(self, x: Any) -> Any:
        """The mean over the places of a sequence."""
        return x.mean(1)

    def rows(self, table: Any, places: Any) -> Any:
        """The rows of a table by their places."""
        return table[places]

    def chosen(self, x: Any, columns: Any) -> Any:
        """One element of each row."""
        return self.np.take_along_axis(x, columns[:, None], 1)[:, 0]

    def layer_norm(self, x: Any, scale: Any) -> Any:
        """Mean zero and variance one along the last axis, times a scale."""
        away = x - x.mean(-1, keepdims=True)
        return away / self.np.sqrt((away * away).mean(-1, keepdims=True) + np.float32(_SMALL)) * scale

    def batch_norm(self, x: Any, scale: Any, shift: Any) -> Any:
        """Mean zero and variance one over the batch, times a scale and shifted."""
        away = x - x.mean(0)
        return away / self.np.sqrt((away * away).mean(0) + np.float32(_SMALL)) * scale + shift

    def binary_cross_entropy(self, z: Any, y: Any) -> Any:
        """The mean over a batch of logits with labels 0 and 1."""
        return (self.np.logaddexp(np.float32(0), z) - z * y).mean()

    def zeros(self, *shape: int) -> Any:
        """An array of zeros."""
        return self.np.zeros(shape, np.float32)

    def eye(self, size: int) -> Any:
        """The identity matrix."""
        return self.np.eye(size, dtype=np.float32)

    def scan(self, cell: Callable[[Any, Any], Any], carry: Any, xs: Any) -> Any:
        """The last carry of ``carry = cell(carry, x)`` along the first axis of ``xs``."""
        for k in range(xs.shape[0]):
            carry = cell(carry, xs[k])
        return carry

    def repeat(self, function: Callable[[Any], Any], x: Any, count: int) -> Any:
        """``function`` applied ``count`` times."""
        for _ in range(count):
            x = function(x)
        return x


class FuturexStack(Stack):
    """Plain NumPy with futurex's layers."""

    np = np

    def __init__(self) -> None:
        import futurex as fx

        self.fx = fx

    def value_and_grad(self, loss: Callable[..., Any]) -> Callable[..., tuple[Any, Arrays]]:
        return self.fx.value_and_grad(loss)

    def slope(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return self.fx.grad(function)

    def constant(self, x: Any) -> Any:
        return self.fx.stop_gradient(x)

    def softmax(self, x: Any) -> Any:
        return self.fx.nn.softmax(x)

    def log_softmax(self, x: Any) -> Any:
        return self.fx.nn.log_softmax(x)

    def sigmoid(self, x: Any) -> Any:
        return self.fx.nn.sigmoid(x)

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        return self.fx.nn.softmax_cross_entropy(logits, labels).mean()

    def conv(self, x: Any, w: Any, b: Any) -> Any:
        return self.fx.nn.conv(x, w, padding="same") + b

    def pool(self, x: Any) -> Any:
        return self.fx.nn.max_pool(x, (2, 2))


class JaxStack(Stack):
    """``jax.numpy``; a loop is ``lax.scan``, or ``unrolled`` into one long function."""

    def __init__(self, unrolled: bool = False) -> None:
        import jax

        self.jax, self.np, self.unrolled = jax, jax.numpy, unrolled

    def value_and_grad(self, loss: Callable[..., Any]) -> Callable[..., tuple[Any, Arrays]]:
        return self.jax.value_and_grad(loss)

    def slope(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return self.jax.grad(function)

    def constant(self, x: Any) -> Any:
        return self.jax.lax.stop_gradient(x)

    def softmax(self, x: Any) -> Any:
        return self.jax.nn.softmax(x)

    def log_softmax(self, x: Any) -> Any:
        return self.jax.nn.log_softmax(x)

    def sigmoid(self, x: Any) -> Any:
        return self.jax.nn.sigmoid(x)

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        return -self.chosen(self.log_softmax(logits), labels).mean()

    def conv(self, x: Any, w: Any, b: Any) -> Any:
        layout = ("NWC", "WIO", "NWC") if x.ndim == 3 else ("NHWC", "HWIO", "NHWC")
        ones = (1,) * (x.ndim - 2)
        return self.jax.lax.conv_general_dilated(x, w, ones, "SAME", dimension_numbers=layout) + b

    def pool(self, x: Any) -> Any:
        """As a reshape, whose gradient needs no select-and-scatter."""
        n, rows, columns, channels = x.shape
        return x.reshape(n, rows // 2, 2, columns // 2, 2, channels).max(axis=(2, 4))

    def scan(self, cell: Callable[[Any, Any], Any], carry: Any, xs: Any) -> Any:
        if self.unrolled:
            return super().scan(cell, carry, xs)
        return self.jax.lax.scan(lambda carry, x: (cell(carry, x), None), carry, xs)[0]

    def repeat(self, function: Callable[[Any], Any], x: Any, count: int) -> Any:
        if self.unrolled:
            return super().repeat(function, x, count)
        return self.jax.lax.scan(lambda x, _: (function(x), None), x, length=count)[0]


class TorchStack(Stack):
    """PyTorch, channels first; ``compiled`` differentiates by ``torch.func``, which a compiled step can hold."""

    def __init__(self, compiled: bool = False) -> None:
        import torch

        self.torch = self.np = torch
        self.functional, self.compiled = torch.nn.functional, compiled

    def value_and_grad(self, loss: Callable[..., Any]) -> Callable[..., tuple[Any, Arrays]]:
        if self.compiled:
            both = self.torch.func.grad_and_value(loss)
            return lambda params, *batch: both(params, *batch)[::-1]

        def value_and_grad(params: Arrays, *batch: Any) -> tuple[Any, Arrays]:
            value = loss(params, *batch)
            grads = self.torch.autograd.grad(value, list(params.values()))
            return value.detach(), dict(zip(params, grads, strict=True))

        return value_and_grad

    def slope(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        if self.compiled:
            return self.torch.func.grad(function)

        def slope(x: Any) -> Any:
            x = x if x.requires_grad else x.detach().requires_grad_()
            return self.torch.autograd.grad(function(x), x, create_graph=True)[0]

        return slope

    def constant(self, x: Any) -> Any:
        return x.detach()

    def softmax(self, x: Any) -> Any:
        return self.torch.softmax(x, -1)

    def log_softmax(self, x: Any) -> Any:
        return self.torch.log_softmax(x, -1)

    def sigmoid(self, x: Any) -> Any:
        return self.torch.sigmoid(x)

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        return self.functional.cross_entropy(logits, labels)

    def conv(self, x: Any, w: Any, b: Any) -> Any:
        return (self.functional.conv1d if x.ndim == 3 else self.functional.conv2d)(x, w, b, padding="same")

    def pool(self, x: Any) -> Any:
        return self.functional.max_pool2d(x, 2)

    def relu(self, x: Any) -> Any:
        return self.torch.relu(x)

    def dense(self, x: Any, w: Any, b: Any) -> Any:
        return self.torch.addmm(b, x, w) if x.ndim == 2 and w.ndim == 2 else x @ w + b

    def dense_places(self, x: Any, w: Any) -> Any:
        return x.flatten(1) @ w.flatten(1).T

    def mean_places(self, x: Any) -> Any:
        return x.mean(2)

    def rows(self, table: Any, places: Any) -> Any:
        return self.functional.embedding(places, table)

    def chosen(self, x: Any, columns: Any) -> Any:
        return x.gather(1, columns[:, None])[:, 0]

    def layer_norm(self, x: Any, scale: Any) -> Any:
        return self.functional.layer_norm(x, scale.shape, scale, eps=_SMALL)

    def batch_norm(self, x: Any, scale: Any, shift: Any) -> Any:
        return self.functional.batch_norm(x, None, None, scale, shift, training=True, eps=_SMALL)

    def binary_cross_entropy(self, z: Any, y: Any) -> Any:
        return self.functional.binary_cross_entropy_with_logits(z, y)

    def zeros(self, *shape: int) -> Any:
        return self.torch.zeros(shape)

    def eye(self, size: int) -> Any:
        return self.torch.eye(size)

    def scan(self, cell: Callable[[Any, Any], Any], carry: Any, xs: Any) -> Any:
        for x in xs.unbind():
            carry = cell(carry, x)
        return carry

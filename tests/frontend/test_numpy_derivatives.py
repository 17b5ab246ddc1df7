"""NumPy functions that are differentiable have derivatives in futurized functions: compared with differences."""

import numpy as np
import pytest
from numpy_judge import function_of

import futurex as fx
from futurex.tree.record import NotDifferentiable

RNG = np.random.default_rng(3)
ARGUMENTS = {
    "x": RNG.normal(size=(4, 5)), "v": RNG.normal(size=6), "w": np.sort(RNG.normal(size=6)),
    "m": RNG.normal(size=(4, 4)), "t": RNG.normal(size=(2, 3, 4)),
}  # fmt: skip
WITH_NAN = ARGUMENTS["x"].copy()
WITH_NAN[1, 2] = WITH_NAN[3, 0] = np.nan

EXPRESSIONS = """
np.sort(x) | np.sort(x, axis=0) | np.sort(x, axis=None) | np.partition(v, 2) | np.median(x) | np.median(x, axis=0)
np.percentile(v, 30) | np.percentile(x, [10, 60], axis=1) | np.quantile(x, 0.3, keepdims=True) | np.max(x, axis=1)
np.min(x) | np.ptp(x, axis=0) | np.cumsum(x, axis=1) | np.cumprod(x, axis=0) | np.prod(x, axis=1) | np.diff(v, 2)
np.diff(v, prepend=0.5) | np.ediff1d(v) | np.gradient(v) | np.gradient(x, axis=1) | np.gradient(v, w)
np.trapezoid(v, w) | np.trapezoid(x, dx=0.5, axis=0) | np.interp(v, w, v * 2) | np.interp(x, w, v, left=0.5)
np.interp(x, w, v, period=2.0)
np.convolve(v, w[:3]) | np.convolve(v, w[:4], 'same') | np.correlate(v, w[:2], 'full') | np.correlate(w, v, 'valid')
np.pad(v, 2) | np.pad(x, 1, mode='edge') | np.pad(x, ((1, 0), (2, 2)), mode='reflect') | np.pad(v, 3, mode='wrap')
np.pad(v, 2, mode='symmetric') | np.pad(x, 1, constant_values=(1.0, 2.0)) | np.pad(v, 1, mode='linear_ramp')
np.roll(x, 2, 0) | np.roll(v, -1) | np.tile(v, 2) | np.repeat(x, 2, axis=1) | np.repeat(v, [1, 2, 0, 1, 3, 1])
np.take(v, [0, 2, 2]) | np.take(v, [7, -9], mode='wrap') | np.take(v, [9, -9], mode='clip')
np.take_along_axis(x, np.argsort(x, axis=1), axis=1) | np.select([x > 0.5, x < 0], [x * 2, x**3], 0.5)
np.choose([0, 1, 1, 0, 1, 0], [v, w]) | np.where(x > 0, x, x * x) | np.average(x, axis=0, weights=m[0])
np.average(v, weights=w) | np.cov(x) | np.cov(v, w) | np.corrcoef(x) | np.var(x, axis=0, ddof=1) | np.std(x)
np.std(v, correction=1) | np.nansum(q, axis=0) | np.nanmean(q, axis=1) | np.nanvar(q) | np.nanstd(q, axis=0)
np.nanmax(q, axis=0) | np.nanmin(q) | np.nanprod(q) | np.nanmedian(q, axis=1) | np.nanpercentile(q, 40)
np.nancumsum(q, axis=0) | np.nancumprod(q, axis=0) | np.nan_to_num(q) | np.linspace(v, w, 3) | np.polyval(v, x)
np.polyval([1.0, 2.0], v) | np.polyadd(v, w[:3]) | np.polyder(v) | np.polyint(v) | np.vander(v, 3) | np.kron(v, w)
np.cross(v[:3], w[:3]) | np.outer(v, w) | np.inner(x, x) | np.tensordot(x, x, 2) | np.dot(t, m) | np.inner(t, m)
np.vdot(v, w) | np.trace(m) | np.diag(v, 1) | np.diag(m) | np.diagflat(v) | np.tril(m) | np.triu(m, 1)
np.append(v, w) | np.insert(v, 2, w[0]) | np.insert(x, [1, 3], w[0], axis=1) | np.delete(v, [1, 3])
np.resize(v, (2, 4)) | np.block([[m, m * m], [m, m]]) | np.stack([v, w]) | np.column_stack([v, w])
np.meshgrid(v, w)[0] | np.unwrap(v) | np.sinc(v) | np.angle(v + 1j * w) | np.clip(x, -0.5, 0.7) | np.rot90(x)
np.flip(x) | np.moveaxis(t, 0, 2) | np.broadcast_to(v, (2, 6)) | np.atleast_3d(v) | np.hsplit(m, 2)[1]
np.array_split(v, 4)[1] | np.unstack(x)[2] | np.apply_along_axis(lambda r: r * r.sum(), 1, x)
np.apply_over_axes(np.sum, t, [0, 2]) | np.round(v) * v | np.fix(v) * v | np.einsum('ij,ij->i', x, x) | np.r_[v, w]
np.c_[v, w] | np.real_if_close(v) | np.isclose(v, w) * v | np.around(x, 1) * x | np.put(v.copy(), [0], w[0]) or v
np.heaviside(v, 0.5) * v | np.geomspace(np.exp(v[0]), np.exp(w[0]), 4) | np.nanargmax(v) * v
np.searchsorted(w, v) * v | np.histogram(v, bins=3, weights=w)[0] | np.bincount([0, 1, 1, 2, 0, 1], weights=v)
np.piecewise(v, [v < 0, v >= 0], [lambda r: -r, lambda r: r * 2])
np.compress([True, False, True, True], x, axis=0) | np.i0(x * 4) | np.polyfit(v, w, 2)
np.polyval(np.polyfit(v, w, 3), x) | np.sort_complex(v).real
np.polyfit(np.sin(v), np.stack([v, w], 1), 1, w=np.cos(w)) | np.kaiser(5, 3.0) * v[:5] | np.kaiser(5, w[0])
np.histogram(v, bins=[-2.0, 0.0, 0.5, 3.0], weights=w)[0] | np.histogram(v, weights=w, range=(-1, 1))[0]
np.histogram(v, bins=3, weights=w, density=True)[0] | np.histogram(v, bins=4, density=True)[0]
np.histogram(v, bins=3)[1] | np.histogram_bin_edges(x, bins=3) | np.histogram(v, np.cumsum(np.exp(w)), weights=v)[0]
np.histogram(v, np.cumsum(np.exp(w)) - 2, weights=np.exp(v), density=True)[0] | np.histogram(v)[0] * w[0]
np.polymul(v, w) | np.polymul(v[:2], w) | np.polymul(v[0], w) | np.quantile(x, np.abs(np.sin(v[0])))
np.polymul(np.where(v > v[1], v, 0), w)[-3:] | np.quantile(x, np.sin(v[:2]) ** 2, axis=1)
np.percentile(v, np.sin(w[0]) ** 2 * 70) | np.interp(x, w, v, period=np.exp(v[0])) | np.interp(v, w, x[0, 0] * v)
"""
#: What NumPy computes as a whole has no derivative; asking for one is an error, not a zero.
WITHOUT = """
np.histogramdd(x, bins=2, weights=v[:4])[0] | np.nanquantile(q, np.sin(v[0]) ** 2) | np.polyfit(v, w, 2, full=True)[0]
np.histogram(v, bins='auto', density=True)[0]
"""


def split(text):
    return [each.strip() for each in text.replace("\n", "|").split("|") if each.strip()]


TABLE = [each for each in split(EXPRESSIONS) if each not in split(WITHOUT)]


def loss_of(code):
    """A weighted sum of the elements of an expression."""
    names = [*ARGUMENTS, "q"]
    inner = function_of(code, names)
    total = function_of("(part(x, v, w, m, t, q) * np.cos(shape_of)).sum()", [*names, "shape_of"])
    total.__globals__["part"] = inner
    return total


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("code", TABLE)
def test_gradient_equals_differences(code):
    total = loss_of(code)
    values = [*ARGUMENTS.values(), WITH_NAN]
    size = np.asarray(total.__globals__["part"](*values))
    weights = np.arange(size.size, dtype=float).reshape(size.shape) + 0.5
    gradients = fx.grad(total, argnums=tuple(range(6)))(*values, weights)
    rng = np.random.default_rng(5)
    for k, (gradient, value) in enumerate(zip(gradients, values, strict=True)):
        direction, step = rng.normal(size=value.shape), 1e-6
        moved = [total(*values[:k], value + sign * step * direction, *values[k + 1 :], weights) for sign in (1, -1)]
        slope = np.sum(np.where(np.isnan(value), 0, gradient * direction))
        np.testing.assert_allclose(slope, (moved[0] - moved[1]) / (2 * step), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("code", split(WITHOUT))
def test_without_a_rule_it_is_an_error(code):
    total = loss_of(code)
    values = [*ARGUMENTS.values(), WITH_NAN]
    with pytest.raises((NotDifferentiable, fx.StagingError), match=r"derivative|numpy"):
        fx.grad(total, argnums=(0, 1))(*values, 1.0)

"""A few lines of NumPy each, on arrays that the first caches do not hold: called as they are, and futurized."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import futurex as fx

_STEADY_SECONDS = 0.8
CASES: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {}
"""By name the function, and which arrays of :func:`arrays` it gets."""


def arrays() -> dict[str, Any]:
    """Return what the functions get, the same in every process."""
    rng = np.random.default_rng(0)
    row = rng.standard_normal(1_000_000)
    return {
        "a": rng.standard_normal((1000, 1000)), "b": rng.standard_normal((1000, 1000)),
        "v": rng.standard_normal((64, 64, 64)), "w": rng.standard_normal((600, 800)).astype(np.float32),
        "x": row, "z": row[:250_000] + 1j * row[250_000:500_000], "mask": rng.random(1_000_000) > 0.5,
        "places": rng.integers(0, 1000, 1_000_000), "points": rng.standard_normal((1500, 3)),
        "image": rng.integers(0, 256, (1080, 1920, 3)).astype(np.uint8),
        "stack": rng.standard_normal((2000, 8, 8)),
    }  # fmt: skip


def case(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a function; ``names`` are its arguments'."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        CASES[function.__name__.replace("_", " ")] = function, names
        return function

    return add


@case("a")
def five_points(a: Any) -> Any:
    """Return what a step of heat conduction gives."""
    return a[1:-1, 1:-1] + 0.1 * (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] - 4 * a[1:-1, 1:-1])


@case("v")
def seven_points(v: Any) -> Any:
    """Return the Laplacian in space."""
    inner = v[1:-1, 1:-1, 1:-1]
    along = v[2:, 1:-1, 1:-1] + v[:-2, 1:-1, 1:-1] + v[1:-1, 2:, 1:-1] + v[1:-1, :-2, 1:-1]
    return along + v[1:-1, 1:-1, 2:] + v[1:-1, 1:-1, :-2] - 6 * inner


@case("a")
def heat_in_place(a: Any) -> Any:
    """Return twenty rounds of it, written into one array."""
    u = a.copy()
    for _ in range(20):
        u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return u


@case("a")
def waves(a: Any) -> Any:
    """Return ten steps of the wave equation."""
    now, before = a.copy(), a.copy()
    for _ in range(10):
        bend = np.zeros_like(now)
        bend[1:-1, 1:-1] = now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:] - 4 * now[1:-1, 1:-1]
        now, before = 2 * now - before + 0.1 * bend, now
    return now


@case("a")
def edges_repeated(a: Any) -> Any:
    """Return second differences of a padded array."""
    p = np.pad(a, 1, mode="edge")
    return p[:-2, 1:-1] + p[2:, 1:-1] - 2 * a


@case("a")
def slope_of_a_field(a: Any) -> Any:
    """Return the length of the gradient."""
    across, along = np.gradient(a)
    return np.sqrt(across * across + along * along)


@case("a")
def neighbours_by_roll(a: Any) -> Any:
    """Return a Laplacian with edges that meet."""
    return np.roll(a, 1, 0) + np.roll(a, -1, 0) + np.roll(a, 1, 1) + np.roll(a, -1, 1) - 4 * a


@case("a")
def residual(a: Any) -> Any:
    """Return a sum of squares of differences."""
    return ((a[1:-1, 1:-1] - a[:-2, 1:-1]) ** 2).sum()


@case("a")
def turned_and_added(a: Any) -> Any:
    """Return the symmetric part."""
    return (a + a.T) / 2


@case("x")
def every_other(x: Any) -> Any:
    """Return sums of pairs."""
    return x[::2] + x[1::2]


@case("x")
def differences(x: Any) -> Any:
    """Return steps from one element to the next."""
    return np.diff(x)


@case("x")
def moving_average(x: Any) -> Any:
    """Return means of fifty elements."""
    total = np.cumsum(x)
    return (total[50:] - total[:-50]) / 50


@case("x")
def largest_loss(x: Any) -> Any:
    """Return how far a sum falls below its highest."""
    total = np.cumsum(x)
    return (np.maximum.accumulate(total) - total).max()


@case("x")
def standard_scores(x: Any) -> Any:
    """Return a mean without outliers."""
    z = (x - x.mean()) / x.std()
    return x[np.abs(z) < 2].mean()


@case("x")
def clipped_statistics(x: Any) -> Any:
    """Return mean, spread and largest element after a clip."""
    y = np.clip(x, -1, 1)
    return y.mean(), y.std(), y.max()


@case("x")
def chosen(x: Any) -> Any:
    """Return one of three formulas for each element."""
    return np.where(x > 1, x * 2, np.where(x < -1, -x, 0))


@case("x")
def powers(x: Any) -> Any:
    """Return powers of magnitudes."""
    return np.abs(x) ** 1.5


@case("x")
def polynomial(x: Any) -> Any:
    """Return a polynomial of third degree."""
    return np.polyval([1.0, -2.0, 3.0, 4.0], x)


@case("x")
def log_of_summed_exponentials(x: Any) -> Any:
    """Return it without overflow."""
    top = x.max()
    return top + np.log(np.exp(x - top).sum())


@case("x")
def spectrum(x: Any) -> Any:
    """Return magnitudes of a Fourier transform."""
    return np.abs(np.fft.rfft(x))


@case("x")
def sorted_values(x: Any) -> Any:
    """Return the elements in order."""
    return np.sort(x)


@case("x")
def quantiles(x: Any) -> Any:
    """Return three of them."""
    return np.percentile(x, [5, 50, 95])


@case("x", "mask")
def masked_out(x: Any, mask: Any) -> Any:
    """Return an array with zeros where a mask is true."""
    y = x.copy()
    y[mask] = 0
    return y


@case("x")
def sum_of_selected(x: Any) -> Any:
    """Return the sum of what is positive."""
    return x[x > 0].sum()


@case("x", "places")
def picked(x: Any, places: Any) -> Any:
    """Return elements by place."""
    return x[places] * 2


@case("x", "places")
def means_of_groups(x: Any, places: Any) -> Any:
    """Return the mean of each group."""
    return np.bincount(places, weights=x) / np.bincount(places)


@case("z")
def complex_magnitudes(z: Any) -> Any:
    """Return magnitudes of a complex polynomial."""
    return np.abs(z * z + 1)


@case("a")
def standardised_columns(a: Any) -> Any:
    """Return columns of mean 0 and spread 1."""
    return (a - a.mean(0)) / a.std(0)


@case("a")
def softmax_of_rows(a: Any) -> Any:
    """Return shares of exponentials."""
    e = np.exp(a - a.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@case("a")
def balanced(a: Any) -> Any:
    """Return ten rounds of Sinkhorn's algorithm."""
    p = np.exp(a)
    for _ in range(10):
        p = p / p.sum(1, keepdims=True)
        p = p / p.sum(0, keepdims=True)
    return p


@case("w")
def normalised_rows(w: Any) -> Any:
    """Return layer normalisation, written out."""
    mean = w.mean(-1, keepdims=True)
    return (w - mean) / np.sqrt(((w - mean) ** 2).mean(-1, keepdims=True) + 1e-5)


@case("a")
def running_sums(a: Any) -> Any:
    """Return sums along either axis."""
    return a.cumsum(0) + a.cumsum(1)


@case("a")
def means_of_blocks(a: Any) -> Any:
    """Return means of 4 x 4 elements."""
    return a.reshape(250, 4, 250, 4).mean(axis=(1, 3))


@case("a", "b")
def side_by_side(a: Any, b: Any) -> Any:
    """Return two arrays as one."""
    return np.concatenate([a, b], 1) * 2


@case("a")
def repeated(a: Any) -> Any:
    """Return every element four times."""
    return np.repeat(np.repeat(a[:500, :500], 2, 0), 2, 1)


@case("a")
def triangles(a: Any) -> Any:
    """Return two triangles of a matrix."""
    return np.tril(a) + np.triu(a, 1) * 2


@case("a")
def rank_one_update(a: Any) -> Any:
    """Return a matrix less an outer product."""
    return a - np.outer(a[:, 0], a[0])


@case("a")
def row_after_row(a: Any) -> Any:
    """Return a recurrence over rows."""
    d = a.copy()
    for i in range(1, len(d)):
        d[i] -= 0.3 * d[i - 1]
    return d


@case("points")
def distances(points: Any) -> Any:
    """Return how far each point is from each."""
    return np.sqrt(((points[:, None, :] - points[None, :, :]) ** 2).sum(-1))


@case("image")
def brighter(image: Any) -> Any:
    """Return a picture in bytes."""
    return (image.astype(np.float32) * 0.7 + 30).clip(0, 255).astype(np.uint8)


@case("image")
def shades_of_grey(image: Any) -> Any:
    """Return weighted sums of colours."""
    return image[..., 0] * 0.299 + image[..., 1] * 0.587 + image[..., 2] * 0.114


@case("image")
def negative(image: Any) -> Any:
    """Return a picture with its shades turned round."""
    return 255 - image


@case("stack")
def small_systems(stack: Any) -> Any:
    """Return inverses of many matrices."""
    return np.linalg.inv(stack @ stack.transpose(0, 2, 1) + np.eye(8))


@case("image")
def box_blur(image: Any) -> Any:
    """Return means of 3 x 3 points of one colour."""
    wide = np.pad(image[..., 0].astype(np.float32), 1, mode="edge")
    rows, columns = image.shape[:2]
    return sum(wide[i : i + rows, j : j + columns] for i in range(3) for j in range(3)) / 9


@case("image")
def shifted_colours(image: Any) -> Any:
    """Return a picture whose colours lie the other way round, a shade brighter."""
    return image[:, :, ::-1] + np.uint8(1)


@case("x")
def spread_in_windows(x: Any) -> Any:
    """Return standard deviations of twenty elements, by running sums."""
    first, second = np.cumsum(x), np.cumsum(x * x)
    mean = (first[20:] - first[:-20]) / 20
    return np.sqrt(np.maximum((second[20:] - second[:-20]) / 20 - mean * mean, 0))


@case("x")
def smoothed(x: Any) -> Any:
    """Return a signal behind a window of 25 elements."""
    return np.convolve(x, np.hanning(25) / 12, "same")


@case("image")
def colours_backwards(image: Any) -> Any:
    """Return a picture whose colours lie the other way round, as numbers from zero to one."""
    return image[:, :, ::-1].astype(np.float32) / 255


@case("a")
def in_blocks(a: Any) -> Any:
    """Return blocks of 50 x 50 elements, scaled."""
    return a.reshape(20, 50, 20, 50).swapaxes(1, 2) * 2 + 1


@case("a")
def centred_rows(a: Any) -> Any:
    """Return rows of mean 0, by transposing twice."""
    return (a.T - a.mean(1)).T


@case("a")
def part_of_an_array(a: Any) -> Any:
    """Return the standard scores of what lies inside of an edge."""
    inner = a[100:900, 100:900]
    return (inner - inner.mean()) / inner.std()


@case("a")
def sum_inside(a: Any) -> Any:
    """Return a sum over what lies inside of an edge."""
    return a[1:-1, 1:-1].sum()


@case("a")
def edges_set(a: Any) -> Any:
    """Return a copy whose edges are set."""
    u = a.copy()
    u[:, 0] = 0
    u[:, -1] = 1
    u[0] = u[-1]
    return u


@case("x")
def all_of_one_row(x: Any) -> Any:
    """Return a sum, the smallest and the largest element."""
    return x.sum(), x.min(), x.max()


@case("places")
def years(places: Any) -> Any:
    """Return the years of days since 1970."""
    days = places * 20 + 719468
    era = days // 146097
    day = days - era * 146097
    return (day - day // 1460 + day // 36524 - day // 146096) // 365 + era * 400


@case("a", "places")
def columns_picked(a: Any, places: Any) -> Any:
    """Return columns by place."""
    return a[:, places[:1000]] * 2


@case("x")
def four_formulas(x: Any) -> Any:
    """Return one of four formulas for each element."""
    return np.select([x < -1, x < 0, x < 1], [x, x * 2, x * 3], 0.0)


@case("x")
def elements_repeated(x: Any) -> Any:
    """Return every element four times."""
    return np.repeat(x[:250_000], 4)


@case("x")
def simulated(x: Any) -> Any:
    """Return noise of a seed added."""
    return x + 0.1 * np.random.default_rng(5).standard_normal(x.size)


class Call:
    """One function on its arguments; a step is a call whose results are waited for."""

    def __init__(self, case: str, futurized: bool) -> None:
        plain, names = CASES[case]
        found = arrays()
        self.args = [found[name] for name in names]
        self.function = fx.futurize(plain) if futurized else plain

    def check(self) -> float:
        """Return the sum of the magnitudes of all results, in a steady state."""
        end = time.perf_counter() + _STEADY_SECONDS
        results = self.step()
        while time.perf_counter() < end:
            results = self.step()
        return float(sum(np.abs(np.asarray(each, dtype=complex)).sum() for each in results))

    def step(self) -> list[Any]:
        """Call the function once."""
        found = self.function(*self.args)
        parts = found if isinstance(found, tuple) else (found,)
        return [part.result() if isinstance(part, fx.Array) else part for part in parts]

"""Loops as machine code: NumPy's bits, Python's numbers, and what happens where a compiled loop gives up."""

from __future__ import annotations

import numpy as np
import pytest

import futurex as fx
from futurex.kernels.loops.emit import Emitter


def lcs(a, b):
    table = np.zeros((len(a) + 1, len(b) + 1), dtype=np.int64)
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            if a[i - 1] == b[j - 1]:
                table[i, j] = table[i - 1, j - 1] + 1
            else:
                table[i, j] = max(table[i - 1, j], table[i, j - 1])
    return table


def shortest(d):
    d = d.copy()
    for k in range(d.shape[0]):
        for i in range(d.shape[0]):
            d[i] = np.minimum(d[i], d[i, k] + d[k])
    return d


def swaps(a):
    for i in range(len(a) - 1):
        if a[i] > a[i + 1]:
            a[i], a[i + 1] = a[i + 1], a[i]
    return a


def rows(a):
    a = a.copy()
    for i in range(20):
        a[0], a[1] = a[1].copy(), a[0].copy()
        a[1, i % 4] += i
    return a


def exchange(u, v):
    for _ in range(33):
        u, v = v, u + 0.5 * v
    return u, v


def jacobi(u):
    u = u.copy()
    new = u.copy()
    for _ in range(25):
        new[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
        u[...] = new
    return u


def gauss_seidel(u):
    u = u.copy()
    for _ in range(18):
        u[1:-1] = 0.5 * (u[:-2] + u[2:])
        u[::2] *= np.float64(0.99)
    return u


def transcendental(x):
    total, y = 0.0, x.copy()
    for i in range(30):
        y = np.sin(y) * np.exp(-y) + np.log1p(np.abs(y)) ** 1.5
        total += float(np.exp(-0.1 * i))
        y[i % 5] = np.tanh(y[i % 5] + total)
    return y, total


def collatz(n):
    steps = 0
    while n > 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def newton(x):
    for _ in range(50):
        step = (x * x - 2.0) / (2.0 * x)
        x = x - step
        if abs(step) < 1e-15:
            break
    else:
        x = -x
    return x


def factors(x, flags, small):
    count = np.int32(0)
    for i in range(24):
        flags[i] = flags[i] ^ (x[i] > 0)
        small[i] = small[i] * np.uint8(3) + np.uint8(i)
        if flags[i] and not x[i] >= 2:
            count += 1
        x[i] = x[-i] if i else x[i] - 1
    return count, x, flags, small


def strided(a):
    a = a.copy()
    for i in range(17):
        a[i % 3, ::-1] = a[(i + 1) % 3] + a.T[i % 4].sum()
    return a


def diagonal(a):
    a = a.copy()
    for i in range(20):
        a[i % 4, i % 4] = a.T[3 - i % 4, i % 4] * 1.5 - i
        a[:] = a.T + a[::-1]
    return a


def running(x):
    best, out = -np.inf, np.empty_like(x)
    for i in range(len(x)):
        best = x[i] if x[i] > best else best
        out[i] = best
    return out


def single(x):
    y = np.float32(0)
    out = np.zeros(40, np.float32)
    for i in range(40):
        y = np.float32(0.9) * y + x[i]
        out[i] = y * 2
    return out


def powers(x):
    total = 0.0
    for i in range(20):
        total += x[i] ** 3 + float(x[i]) ** 0.5 + 2.0**i
    return total


def votes(xs, ys):
    table, turns = np.zeros((400, 180), np.int64), np.linspace(0, np.pi, 180)
    for k in range(len(xs)):
        distance = np.round(xs[k] * np.cos(turns) + ys[k] * np.sin(turns)).astype(int)
        table[distance + 200, np.arange(180)] += 1
        table[distance[::7], 3] = k
    return table


def triangle(a):
    total = np.zeros(len(a))
    for i in range(len(a)):
        for j in range(i):
            total[i] += a[i, j] * a[j, i]
    return total


RNG = np.random.default_rng(3)
CASES = {
    "table": (lcs, lambda: (RNG.integers(0, 4, 21), RNG.integers(0, 4, 30))),
    "rows and elements": (shortest, lambda: (RNG.random((20, 20)),)),
    "swap in an argument": (swaps, lambda: (RNG.random(30),)),
    "swapped rows": (rows, lambda: (RNG.random((3, 4)),)),
    "exchanged arrays": (exchange, lambda: (RNG.random(7), RNG.random(7))),
    "two buffers": (jacobi, lambda: (RNG.random((9, 8)),)),
    "overlapping slices": (gauss_seidel, lambda: (RNG.random(19),)),
    "functions": (transcendental, lambda: (RNG.normal(size=5),)),
    "integers": (collatz, lambda: (np.int64(97),)),
    "break": (newton, lambda: (np.float64(3.0),)),
    "else": (newton, lambda: (np.float64(np.nan),)),
    "small integers and flags": (
        factors,
        lambda: (RNG.normal(size=24) * 3, RNG.random(24) < 0.5, RNG.integers(0, 255, 24).astype(np.uint8)),
    ),
    "transposed": (diagonal, lambda: (RNG.random((4, 4)),)),
    "running maximum": (running, lambda: (np.array([*RNG.normal(size=20), np.nan, 3.0]),)),
    "single precision": (single, lambda: (RNG.normal(size=40).astype(np.float32),)),
    "powers": (powers, lambda: (RNG.random(20),)),
    "places in a large array": (votes, lambda: (RNG.integers(0, 120, 40), RNG.integers(0, 120, 40))),
    "nested bounds": (triangle, lambda: (RNG.random((18, 18)),)),
}


def backends(function):
    return {row.backend for row in function.profile() if row.op == "loop"}


@pytest.mark.parametrize("name", CASES)
def test_compiled_loop_gives_numpys_bits(name):
    function, make = CASES[name]
    arguments = make()
    copies = [argument.copy() for argument in arguments]
    staged = fx.futurize(function, escape="error")
    for _ in range(2):
        given, taken = ([argument.copy() for argument in copies] for _ in range(2))
        expected, found = function(*taken), staged(*given)
        pairs = zip(expected, found, strict=True) if isinstance(expected, tuple) else [(expected, found)]
        for one, two in (*pairs, *zip(taken, given, strict=True)):
            np.testing.assert_array_equal(np.asarray(two), np.asarray(one))
            assert np.asarray(two).dtype == np.asarray(one).dtype
    assert backends(staged) == {"loops"}


def test_index_out_of_bounds_is_the_users_error():
    def reach(x):
        for i in range(40):
            x = x + x[i]
        return x

    staged = fx.futurize(reach, escape="error")
    with pytest.raises(IndexError, match="index 30 is out of bounds for axis 0 with size 30"):
        staged(np.ones(30)).result()


def test_a_check_that_does_not_hold_raises_its_exception():
    def guarded(x):
        total = 0.0
        for i in range(30):
            if x[i] <= 0:
                raise ArithmeticError("not positive")
            total += x[i]
        return total

    staged = fx.futurize(guarded, escape="error")
    x = RNG.random(30) + 0.1
    assert float(staged(x)) == guarded(x)
    x[17] = -1
    with pytest.raises(ArithmeticError, match="not positive"):
        staged(x).result()


def test_numbers_that_outgrow_64_bits_are_not_wrapped_by_the_compiled_loop():
    def grow(x):
        total = 1
        for i in range(80):
            total = total * 3 + i
            x = x + 1
        return x * float(total > 0)

    staged, small = fx.futurize(grow), fx.futurize(lambda x: grow(x), escape="eager")
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(np.asarray(staged(np.ones(2))), np.asarray(small(np.ones(2))))


def test_large_bodies_whose_elements_meet_stay_with_numpy():
    def wide(x):
        for i in range(20):
            x = x * 0.5 + x[::-1] * i
        return x

    staged = fx.futurize(wide, escape="error")
    x = np.ones(100_000)
    np.testing.assert_array_equal(np.asarray(staged(x)), wide(x))
    assert "loops" not in backends(staged)


def test_checks_of_pythons_numbers_in_rounds_of_their_own():
    def ring(x, length, rounds):
        size, place = int(length / 2), 0
        for _ in range(rounds):
            place = (place + 1) % size
            x = x * 0.5 + x[::-1] * place
        return x

    staged = fx.futurize(ring, escape="error")
    x = np.ones(100_000)
    for _ in range(4):
        np.testing.assert_array_equal(np.asarray(staged(x, 14.0, 30)), ring(x, 14.0, 30))
    assert "loops" not in backends(staged)
    with pytest.raises(ZeroDivisionError):
        staged(x, 0.5, 30).result()


def test_what_has_no_machine_code_is_called_in_python():
    def descent(matrix, b):
        x, r = np.zeros_like(b), b.copy()
        for _ in range(30):
            step = (r @ r) / (r @ (matrix @ r))
            x = x + step * r
            r = b - matrix @ x
            if np.abs(r).max() < 1e-9:
                break
        return x, np.argmax(x), np.sort(x)[:3]

    matrix = RNG.random((12, 12))
    matrix = matrix @ matrix.T + 12 * np.eye(12)
    b = RNG.random(12)
    staged = fx.futurize(descent, escape="error")
    for one, two in zip(descent(matrix, b), staged(matrix, b), strict=True):
        np.testing.assert_array_equal(np.asarray(two), one)
    assert backends(staged) == {"loops"}


@pytest.mark.parametrize("fault", [TypeError("of our own"), IndexError("of our own"), AssertionError("of our own")])
def test_a_fault_of_code_generation_is_told_and_the_loop_runs_another_way(fault, monkeypatch):
    def fails(*_):
        raise fault

    def f(x):
        total = 0.0
        while total < 10 and x.sum() > 0:
            total += x[0] * 2
            x = x * 0.9
        return total, x

    monkeypatch.setattr(Emitter, "graph", fails)
    x = np.array([1.0, 2.0])
    with pytest.warns(RuntimeWarning, match="a kernel was not compiled and runs as NumPy: .*of our own"):
        found = [np.asarray(each) for each in fx.futurize(f)(x)]
    for each, expected in zip(found, f(x), strict=True):
        np.testing.assert_array_equal(each, expected)


def test_an_error_in_a_call_is_the_users_error():
    def invert(a):
        for i in range(20):
            a = np.linalg.inv(a) * (i != 10)
        return a

    staged = fx.futurize(invert, escape="error")
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
        staged(RNG.random((3, 3)) + np.eye(3)).result()


def test_short_loops_over_small_values_are_loops_and_over_large_ones_are_not():
    def rounds(x):
        for i in range(8):
            x = x * 0.5 + i
        return x

    small, large = fx.futurize(rounds, escape="error"), fx.futurize(rounds, escape="error")
    assert any(node.op == "loop" for node in small.graph(np.ones(10)).nodes)
    assert not any(node.op == "loop" for node in large.graph(np.ones(100_000)).nodes)
    assert not any(node.op == "loop" for node in fx.grad(lambda x: rounds(x).sum()).graph(np.ones(10)).nodes)


def padded(u, k):
    for _ in range(k):
        p = np.pad(u, 1, constant_values=2)
        u = u + 0.1 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * u)
    return u


def padded_with_another_type(u, k):
    u = (u * 9).astype(int)
    for _ in range(k):
        u = np.pad(u, ((0, 1), (0, 0)), constant_values=1.7)[1:] + 1
    return u


def padded_complex(u, k):
    z = u + 1j * u
    for _ in range(k):
        z = np.pad(z, ((0, 1), (2, 0)), constant_values=1 - 2j)[1:, 2:] * 0.5
    return z


@pytest.mark.parametrize("function", [padded, padded_with_another_type, padded_complex])
def test_paddings_are_frames_into_which_loops_write(function):
    u = np.random.default_rng(1).normal(size=(20, 30))
    staged = fx.futurize(function)
    fx.precompile(staged, u, 40)
    for k in (40, 3, 41):
        found, expected = np.asarray(staged(u, k)), function(u, k)
        assert found.dtype == expected.dtype
        assert found.tobytes() == expected.tobytes()
    assert "compiled whole" in staged.explain()

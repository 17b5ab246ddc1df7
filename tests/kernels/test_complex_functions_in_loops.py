"""Functions of `cmath` in compiled loops have Python's bits and Python's errors."""

import cmath

import numpy as np
import pytest

import futurex as fx

COMPILED = ("exp", "sqrt", "log", "log10", "sin", "cos", "sinh", "cosh", "phase", "isnan", "isinf", "isfinite")
NAMES = (*COMPILED, "tan", "asin", "atanh", "polar", "rect")
LIMITS = dict.fromkeys(("exp", "sin", "cos", "sinh", "cosh"), 600.0)
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-320, -1e-310, 1e-200, 1e200, 700.0, -745.2]
NOT_FINITE = [np.inf, -np.inf, np.nan]


def numbers(name, scale):
    rng = np.random.default_rng(3)
    z = scale * (rng.normal(size=300) + 1j * rng.normal(size=300))
    z[:20], z[20:40] = z[:20].real, 1j * z[20:40].imag
    z[40:140] = np.exp(1j * rng.uniform(-3, 3, 100)) * rng.uniform(0.7, 1.75, 100)
    limit = LIMITS.get(name, np.inf)
    return z[(abs(z.real) < limit) & (abs(z.imag) < limit)]


def over(name):
    function = getattr(cmath, name)

    def called(z):
        out = np.zeros(len(z), complex)
        for k in range(len(z)):
            out[k] = function(complex(z[k]))
        return out

    def polar(z):
        out = np.zeros((len(z), 2))
        for k in range(len(z)):
            r, phi = cmath.polar(z[k])
            out[k, 0] = r
            out[k, 1] = phi
        return out

    def rect(z):
        out = np.zeros(len(z), complex)
        for k in range(len(z)):
            out[k] = cmath.rect(z[k].real, z[k].imag)
        return out

    return {"polar": polar, "rect": rect}.get(name, called)


@pytest.mark.parametrize("name", NAMES)
def test_values_are_python_s(name, monkeypatch):
    monkeypatch.setenv("FUTUREX_COMPILE", "wait")
    plain = over(name)
    futurized = fx.futurize(plain)
    for scale in (1.0, 30.0, 1e5, 1e-200, 1e-320):
        z = numbers(name, scale)
        for _ in range(2):
            assert futurized(z).result().tobytes() == plain(z).tobytes(), scale
    if name in COMPILED:
        assert "is compiled whole" in futurized.explain()


@pytest.mark.parametrize("name", NAMES)
def test_edges_and_errors_are_python_s(name, monkeypatch):
    monkeypatch.setenv("FUTUREX_COMPILE", "wait")
    plain = over(name)
    futurized = fx.futurize(plain)
    futurized(numbers(name, 1.0)).result()
    for real in EDGES + NOT_FINITE:
        for imag in EDGES + NOT_FINITE:
            z = np.array([complex(real, imag)] * 140)
            try:
                expected = plain(z).tobytes()
            except (ValueError, OverflowError) as error:
                with pytest.raises(type(error), match=str(error)):
                    futurized(z).result()
            else:
                assert futurized(z).result().tobytes() == expected, z[0]


def kinds(x, n, f, z):
    return (cmath.sqrt(x), cmath.exp(n), cmath.sqrt(f), cmath.log(z), cmath.phase(z), cmath.isnan(z), cmath.polar(z),
            cmath.rect(x, n), cmath.sqrt(z.imag), cmath.log(z, 2))  # fmt: skip


def test_every_kind_of_number_gives_python_s():
    futurized = fx.futurize(kinds)
    for args in ((2.0, 3, np.float32(1.3), 1 + 2j), (-2.5, np.int16(2), np.float64(-3), np.complex64(0.1 - 1j))):
        for _ in range(3):
            expected, found = kinds(*args), futurized(*args)
            flat = [*found[:6], *found[6], *found[7:]]
            values = [value.result() if isinstance(value, fx.Array) else value for value in flat]
            assert repr(values) == repr([*expected[:6], *expected[6], *expected[7:]])


def spiral(x):
    z = cmath.exp(complex(0.1, x)) * cmath.sqrt(complex(x, 1.0))
    return (z * z.conjugate()).real


def test_its_derivative():
    step = 1e-6
    slope = (spiral(0.7 + step) - spiral(0.7 - step)) / (2 * step)
    assert abs(float(fx.grad(spiral)(0.7)) - slope) < 1e-7
    with pytest.raises(TypeError, match="no derivative"):
        fx.grad(lambda x: cmath.phase(complex(x, 1.0)))(0.7)


def parts(z):
    total = np.zeros(len(z))
    for k in range(len(z)):
        total[k] = z[k].real - 2 * z[k].imag
    return total


def test_parts_of_elements_are_no_calls_of_python(monkeypatch):
    monkeypatch.setenv("FUTUREX_COMPILE", "wait")
    z, futurized = numbers("sqrt", 1.0), fx.futurize(parts)
    for each in (z, z.astype(np.complex64)):
        for _ in range(2):
            assert futurized(each).result().tobytes() == parts(each).tobytes()

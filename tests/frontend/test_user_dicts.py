"""Classes derived from ``collections.UserDict``, as settings of a program often are."""

import collections

import numpy as np
import pytest

import futurex as fx


class Settings(collections.UserDict):
    def __setitem__(self, key, value):
        super().__setitem__(key.lower(), value)

    def __missing__(self, key):
        if key.lower() in self.data:
            return self.data[key.lower()]
        raise KeyError(key)


SETTINGS = Settings({"rate": 2.0, "shape": None})


def reads(x):
    return x * SETTINGS["rate"] if SETTINGS["shape"] is None and "other" not in SETTINGS else x


def reads_by_another_name(x):
    return x * SETTINGS["RATE"] + SETTINGS.get("none", 3.0) + len(SETTINGS)


def goes_over(x):
    return x * sum(value for key, value in SETTINGS.items() if key != "shape")


@pytest.mark.parametrize("function", [reads, reads_by_another_name, goes_over])
def test_settings_outside(function):
    f = fx.futurize(function)
    try:
        for rate in (2.0, 2.0, 3.0, 4, 4):
            SETTINGS["RATE"] = rate
            np.testing.assert_array_equal(np.asarray(f(np.arange(3.0))), function(np.arange(3.0)))
        assert "plain NumPy" not in f.explain()
        SETTINGS["shape"] = 1.0
        np.testing.assert_array_equal(np.asarray(f(np.arange(3.0))), function(np.arange(3.0)))
    finally:
        SETTINGS.update(rate=2.0, shape=None)


def writes(x, settings):
    settings["Last"] = x * 2
    settings["n"] = settings["n"] + 1
    return x * settings["n"]


def removes(x, settings):
    del settings["n"]
    return x * len(settings)


def pops(x, settings):
    return x * settings.pop("n")


def makes(x, settings):
    made = Settings(settings)
    made["A"] = x
    return made["a"] + len(made)


def misses(x, settings):
    return x * settings["absent"]


@pytest.mark.parametrize("function", [writes, removes, pops, makes, misses])
@pytest.mark.parametrize("kind", [Settings, collections.UserDict])
def test_settings_as_arguments(function, kind):
    f, given, settings = fx.futurize(function), kind(n=1, a=2.0), kind(n=1, a=2.0)
    for shift in range(4):
        outcomes = []
        for each, held in ((f, given), (function, settings)):
            try:
                result = np.asarray(each(np.arange(3.0) + shift, held)).tolist()
            except KeyError as error:
                result = str(error)
            outcomes.append((result, {key: np.asarray(value).tolist() for key, value in held.data.items()}))
        assert outcomes[0] == outcomes[1]

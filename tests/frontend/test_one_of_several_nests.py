"""Names and results that are None or an array, tuple, list or dict: the values of each, and flags that say which."""

import collections
import dataclasses
import traceback

import numpy as np
import optional_programs
import pytest
from compare import check, plain
from hypothesis import given, settings
from hypothesis import strategies as st
from program_search import share_staged

import futurex as fx

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

RNG = np.random.default_rng(0)


def _hit(origin, direction, centre, radius):
    apart = origin - centre
    b = np.dot(apart, direction)
    inside = b * b - (np.dot(apart, apart) - radius * radius)
    if inside < 0:
        return None
    t = -b - np.sqrt(inside)
    if t < 1e-3:
        return None
    return t, origin + t * direction


def light_on_two_spheres(origins, directions, first, second, light):
    total = 0.0
    for k in range(len(origins)):
        hit = _hit(origins[k], directions[k], first, 1.0)
        if hit is None:
            continue
        normal = (hit[1] - first) / np.linalg.norm(hit[1] - first)
        if _hit(hit[1] + 1e-3 * normal, light, second, 0.7) is None:
            total += max(0.0, np.dot(normal, light))
        else:
            total += 0.1
    return total


def nearest_of_many_spheres(origins, directions, centres, light):
    seen = np.zeros(len(origins), origins.dtype)
    for k in range(len(origins)):
        nearest = None
        for centre in centres:
            hit = _hit(origins[k], directions[k], centre, 0.6)
            if hit is not None and (nearest is None or hit[0] < nearest[0]):
                nearest = hit
        if nearest is not None:
            seen[k] = np.dot(nearest[1], light)
    return seen


def _wall(place, speed, k):
    axis, wall = k % 2, 0.0 if k < 2 else 1.0
    if speed[axis] == 0:
        return None
    t = (wall - place[axis]) / speed[axis]
    if t <= 1e-9:
        return None
    return t, k


def between_four_walls(place, speed):
    hits = np.zeros(4)
    for _ in range(40):
        first = None
        for k in range(4):
            wall = _wall(place, speed, k)
            if wall is not None and (first is None or wall[0] < first[0]):
                first = wall
        if first is None:
            break
        t, k = first
        place = place + t * speed
        speed = speed.copy()
        speed[k % 2] *= -0.99
        hits[k] += 1
    return place, speed, hits


def found_late_or_never(x, y):
    """Carried by a long loop, asked in its rounds, and left behind."""
    last, total = None, x.dtype.type(0)
    for k in range(len(x)):
        if last is not None:
            total = total + last["at"] * last["row"].sum()
        if x[k] > 1.5:
            last = {"at": x[k], "row": y * x[k]}
    return last, total


def forgotten_again(x, y):
    kept, count = None, 0
    for k in range(len(x)):
        if kept is None:
            if x[k] > 0.5:
                kept = (k, y + x[k])
        elif x[k] < -0.5:
            count += kept[0]
            kept = None
    return kept, count


def in_an_attribute(x, y):
    class Best:
        found = None

    best = Best()
    best.found = None
    for k in range(3):
        if x[k] > 0:
            best.found = y * x[k]
    return y if best.found is None else best.found


def an_attribute_that_rounds_bind(x, y):
    class Best:
        pass

    best, k = Best(), 0
    best.found = {"row": y}
    while x[k] < 1 and k < 15:
        best.found = None if x[k] < 0 else {"row": y + k}
        k += 1
    return -y if best.found is None else best.found["row"]


Hit = collections.namedtuple("Hit", "at row")


@dataclasses.dataclass
class Best:
    loss: float
    row: np.ndarray


def named_tuples(x, y):
    nearest = None
    for k in range(len(x)):
        hit = Hit(x[k], y * k) if x[k] > 0.5 else None
        if hit is not None and (nearest is None or hit.at < nearest.at):
            nearest = hit
    return nearest


def dataclasses_of_rounds(x, y):
    best, seen = None, 0
    for k in range(len(x)):
        if (best is None or x[k] < best.loss) and x[k] < 0.7:
            best = Best(x[k], y - k)
        seen += best is not None
    return seen if best is None else best.row.sum() * best.loss


def a_dataclass_or_none(x, y):
    return Best(x[0], y) if x[1] > 0 else None


def unpacked(x, y):
    options = None
    if x[0] > 0:
        options = {"scale": x[1], "offset": y}
    if options is None:
        return {"scale": x[0]}

    def shifted(scale, offset):
        return scale * offset

    return {**options, "both": shifted(**options)}


def returned_beside_others(x, y):
    pair = (y * 2, x[1]) if x[0] > 0 else None
    row = None if x[1] > 0 else [y, y + 1]
    return pair, row, x[2]


def passed_on(x, y):
    first = None if x[0] > 0 else (x[0], y)
    second = first
    if second is None and x[1] > 0:
        second = (x[1], y * 3)
    return first, second


RAYS = np.concatenate([RNG.normal(size=(60, 2)) * 0.2, np.ones((60, 1))], 1)
RAYS /= np.linalg.norm(RAYS, axis=1)[:, None]
ORIGINS = np.tile([0.0, 0.0, -4.0], (60, 1))
LIGHT = np.array([0.4, 0.6, -0.7])
CENTRES = RNG.normal(size=(30, 3)) * [0.7, 0.7, 0.2]


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_rays(dtype):
    origins, rays, light, centres = (each.astype(dtype) for each in (ORIGINS, RAYS, LIGHT, CENTRES))
    check(light_on_two_spheres, origins, rays, np.zeros(3, dtype), np.array([0.5, 0.8, -1.0], dtype), light)
    check(nearest_of_many_spheres, origins, rays, centres, light)
    check(nearest_of_many_spheres, origins, -rays, centres, light)


def test_walls():
    for _ in range(4):
        check(between_four_walls, RNG.random(2), RNG.normal(size=2))
    check(between_four_walls, np.array([0.5, 0.5]), np.zeros(2))


@pytest.mark.parametrize(
    "function",
    [
        found_late_or_never, forgotten_again, in_an_attribute, an_attribute_that_rounds_bind, named_tuples,
        dataclasses_of_rounds, a_dataclass_or_none, unpacked, returned_beside_others, passed_on,
    ],
)  # fmt: skip
def test_what_is_found(function):
    y = np.arange(3.0)
    for x in (RNG.normal(size=20), np.zeros(20), np.full(20, 2.0), np.full(20, np.nan)):
        check(function, x, y)
        check(function, np.r_[0.0, -1.0, x[2:]], y)


def test_what_follows_is_traced_once():
    """Where branches know which it is nothing is traced for each outcome, of which these would have 2**12."""

    def f(x):
        total = x[0] * 0
        for k in range(12):
            found = _hit(x, x[::-1], x * k, 0.5)
            if found is not None:
                total = total + found[0]
        return total

    futurized = fx.futurize(f)
    for x in (RNG.normal(size=3), np.ones(3)):
        np.testing.assert_allclose(float(futurized(x)), f(x), rtol=1e-12)
    assert "staged: " in futurized.explain()


def test_derivatives_go_through_it():
    def loss(w, x, least):
        nearest = None
        for k in range(len(x)):
            away = np.sum((w - x[k]) ** 2)
            if away < least:
                least, nearest = away, (k, w * x[k])
        return 0.0 if nearest is None else np.sum(nearest[1] ** 2)

    w, x = RNG.normal(size=3), RNG.normal(size=(25, 3))
    step = 1e-6
    wanted = [(loss(w + step * e, x, np.inf) - loss(w - step * e, x, np.inf)) / (2 * step) for e in np.eye(3)]
    np.testing.assert_allclose(fx.grad(loss)(w, x, np.inf), wanted, rtol=1e-5)
    np.testing.assert_array_equal(fx.grad(loss)(w, x, 0.0), np.zeros(3))


def test_derivatives_of_several_nests_that_many_rounds_may_leave():
    """The rounds are unrolled, and each has two choices: what follows them is traced once for each nest."""

    def last(x):
        state = None
        for k in range(8):
            row = x[k]
            if row[0] > 0.3:
                state = (row, row)
            elif row[0] > -0.3:
                state = (row * 2, row[1])
        if state is None:
            return x.sum()
        a, b = state
        return (a * b).sum()

    slope = fx.grad(last)
    for k in range(8):
        x = np.random.default_rng(k).standard_normal((8, 4)) - k / 4
        step = 1e-6 * np.eye(32).reshape(32, 8, 4)
        wanted = [(last(x + each) - last(x - each)) / 2e-6 for each in step]
        np.testing.assert_allclose(np.ravel(slope(x)), wanted, rtol=1e-5, atol=1e-8)


def _first_above(rows, otherwise):
    if rows[0, 0] > 0:
        return 1, rows[0]
    return otherwise


@pytest.mark.parametrize("x", [np.eye(3), -np.eye(3)])
def test_parts_that_are_one_of_several_things_are_not_asked_for_between_rounds(x):
    """Whether it is the row that is first, only the round knows that has left it."""

    def found(x):
        t = x[1], 1.0
        for _ in range(8):
            for _ in range(8):
                t = _first_above(x, t)
                if x.ndim == 2:
                    return t
        return None

    check(found, x)


def test_none_is_refused_where_the_program_would_refuse_it():
    def f(x):
        found = None
        for k in range(20):
            if x[k] > 1:
                found = (x[k], x[:3])
        return found[1] * 2

    futurized = fx.futurize(f)
    x = np.zeros(20)
    x[7] = 2.0
    np.testing.assert_array_equal(futurized(x), x[:3] * 2)
    with pytest.raises(TypeError, match="'NoneType' object is not subscriptable") as caught:
        np.asarray(futurized(np.zeros(20)))
    assert "return found[1] * 2" in traceback.extract_tb(caught.value.__traceback__)[-1].line


def _last_positive(x):
    k = 0
    while x[k] > 0:
        last = k
        k += 1
    if x[-1] > 0:
        return last, 1
    return None


def _last_positive_of_one(x):
    k = 0
    while x[k] > 0:
        last = k
        k += 1
    found = None
    if x[-1] > 0:
        found = (last, x)
    return -1 if found is None else found[0]


@pytest.mark.parametrize("function", [_last_positive, _last_positive_of_one])
def test_names_in_it_may_be_unbound(function):
    for x in (np.array([1.0, 1, -1, 1]), np.array([-1.0, 1, -1, 1]), np.array([-1.0, 1, -1, -1])):
        check(function, x)
    with pytest.raises(UnboundLocalError, match="'last'"):
        np.asarray(fx.futurize(function)(np.array([-1.0, 1, -1, 1])))


def test_which_array_it_is():
    def f(x, y):
        first = other = y
        for k in range(20):
            if x[k] > 0.5:
                first = x[k:][:4] if x[0] > 0 else other
            if x[k] < -0.5:
                first = None
            if x[k] > 0.9:
                other = y * x[k]
        return first, other

    futurized = fx.futurize(f)
    for _ in range(30):
        x, y = RNG.uniform(-1, 1, 30), RNG.normal(size=4)
        found, wanted = futurized(x, y), f(x, y)
        for mine, theirs in zip(found, wanted, strict=True):
            assert (mine is None) is (theirs is None)
            assert (mine is y) is (theirs is y)
            assert mine is None or np.array_equal(mine, theirs)
        assert (found[0] is found[1]) is (wanted[0] is wanted[1])
    assert "staged: " in futurized.explain()


def test_more_things_than_a_name_carries():
    def f(x):
        found = None
        if x[0] > 0:
            found = (x,)
        if x[1] > 0:
            found = (x, x)
        if x[2] > 0:
            found = (x, x, x)
        if x[3] > 0:
            found = (x, x, x, x)
        return 0 if found is None else len(found)

    futurized = fx.futurize(f)
    for k in range(32):
        x = np.array([1.0 if k >> j & 1 else -1.0 for j in range(5)])
        assert int(futurized(x)) == f(x)


def test_a_fixed_set_of_programs(tmp_path):
    assert share_staged(optional_programs.OptionalWriter, 60, tmp_path, optional_programs.disagreement) > 0.75


@settings(max_examples=60)
@given(data=st.data())
def test_any_program(tmp_path_factory, data):
    writer = optional_programs.OptionalWriter(lambda n: data.draw(st.integers(0, n - 1)))
    text = writer.program(data.draw(st.integers(2, 6)))
    wrong, _ = optional_programs.disagreement(text, tmp_path_factory.mktemp("programs"))
    assert not wrong, f"{text}\n{wrong}"


def a_write_into_what_an_earlier_round_left(x, y):
    row, found = y * 1.0, None
    for k in range(len(x)):
        if found is not None:
            found[0] = found[0] + 1
        if x[k] > 0:
            found = row
    return row


def an_entry_of_what_an_earlier_round_left(x, y):
    kept, found = {"u": x[0]}, None
    for k in range(len(x)):
        if found is not None:
            found["u"] = found["u"] + 1
        if x[k] > 0:
            found = kept
    return kept["u"]


@pytest.mark.parametrize(
    "function", [a_write_into_what_an_earlier_round_left, an_entry_of_what_an_earlier_round_left]
)  # fmt: skip
def test_what_rounds_left_may_be_what_others_have(function):
    y = np.arange(3.0)
    for x in (RNG.normal(size=20), np.full(20, 2.0), -np.ones(20)):
        np.testing.assert_array_equal(fx.futurize(function)(x, y), function(x, y))


def numbers_of_either_kind(x, y):
    found = None
    for k in range(len(x)):
        if x[k] > 0.5:
            found = (x[k], y)
        elif x[k] < -0.5:
            found = (1.0, y)
    return found


def arrays_without_axes(x, y):
    found = None
    for k in range(len(x)):
        if x[k] > 0.5:
            found = (x[k], y)
        elif x[k] < -0.5:
            found = (np.array(x[k]), y)
    return found


def arrays_that_may_not_be_written(x, y):
    found = None
    for k in range(len(x)):
        if x[k] > 0.5:
            found = (y * x[k], k)
        elif x[k] < -0.5:
            found = (np.broadcast_to(x[:1], 3), k)
    return found


@pytest.mark.parametrize("function", [numbers_of_either_kind, arrays_without_axes, arrays_that_may_not_be_written])
def test_kinds_are_told_apart(function):
    futurized, y = fx.futurize(function), np.arange(3.0)
    for x in (RNG.normal(size=20), np.zeros(20), np.full(20, 2.0), np.full(20, -2.0), np.r_[2.0, -2.0], np.r_[-2.0, 2]):
        found, wanted = plain(futurized(x, y)), function(x, y)
        assert repr(found) == repr(wanted)
        assert list(map(_kind, found or ())) == list(map(_kind, wanted or ()))


def _kind(value):
    return type(value), isinstance(value, np.ndarray) and value.flags.writeable


def test_what_a_name_was_before_a_loop_comes_back():
    def f(x, y, z):
        first = z
        for k in range(len(x)):
            if x[k] > 0.5:
                first = y if x[0] > 0 else None
        return first, y

    futurized = fx.futurize(f)
    for x in (np.zeros(20), np.ones(20), np.r_[-1.0, np.ones(19)], np.zeros(20)):
        y, z = np.arange(3.0), np.ones(3)
        found, wanted = futurized(x, y, z), f(x, y, z)
        assert [found[0] is each for each in (y, z, None)] == [wanted[0] is each for each in (y, z, None)]

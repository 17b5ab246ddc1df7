"""Numbers in lists, dicts and tuples that objects and global names hold: a step that changes them is staged, once for
each kind, and leaves what plain NumPy leaves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from number_programs import NumberWriter, fixed
from object_programs import held
from program_search import load

import futurex as fx
from futurex.tree.pytree import flatten

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"), pytest.mark.filterwarnings("ignore:.*was traced 8 times"),
]  # fmt: skip


def outcome(module, model, function, call):
    """All that a call leaves behind: what it returned or raised, and what is held, with types and identities."""
    x = np.random.default_rng(call).normal(size=3).round(2) * 3
    try:
        module.others(model, call)
        result = function(model, x)
        result = held(result) if not isinstance(result, fx.Array) else held(result.result())
    except Exception as error:
        result = type(error), str(error)
    return held(model, module.SEEN), result


def agrees(text, folder):
    """Does a program mean the same, call after call? Whether it was staged."""
    plain, staged = load(text, folder), load(text, folder)
    function, models = fx.futurize(staged.program), (plain.made(), staged.made())
    for call in range(8):
        expected = outcome(plain, models[0], plain.program, call)
        assert repr(outcome(staged, models[1], function, call)) == _of(staged, plain, expected), f"{text}\ncall {call}"
    return "plain" not in str(function.explain())


def _of(module, other, found):
    """The two modules have classes of their own."""
    return repr(found).replace(other.__name__, module.__name__)


def test_a_fixed_set_of_programs(tmp_path):
    staged = [agrees(text, tmp_path) for text in fixed(80)]
    assert sum(staged) > 0.4 * len(staged)


@settings(max_examples=25)
@given(data=st.data())
def test_any_program(tmp_path_factory, data):
    text = NumberWriter(lambda n: data.draw(st.integers(0, n - 1))).program(data.draw(st.integers(1, 4)))
    agrees(text, tmp_path_factory.mktemp("programs"))


def squares(params, x):
    return ((params["w"] * x) ** 2).sum()


class Trainer:
    """As trainers are written."""

    def __init__(self, optimizer):
        self.params, self.optimizer = {"w": np.ones(3)}, optimizer
        self.state = optimizer.init(self.params)
        self.history = {"n": 0, "best": np.float64(1e9), "losses": [0.0, 0.0]}
        self.options = {"schedule": {"decay": 0.5, "kind": "cosine"}}

    def step(self, x):
        value, grads = fx.value_and_grad(squares)(self.params, x)
        self.params, self.state = self.optimizer.update(self.params, grads, self.state)
        self.history["n"] += 1
        if value < self.history["best"]:
            self.history["best"] = value
        self.history["losses"][0] = self.options["schedule"]["decay"] * self.history["losses"][0] + float(value)
        return value, self.history["n"]


@pytest.mark.parametrize("make", [lambda: fx.optim.adam(1e-2), lambda: fx.optim.sgd(1e-2, momentum=0.9)])
def test_a_trainer_is_traced_once_and_again_only_for_what_somebody_else_changes(make):
    futurized, plain, staged = fx.futurize(Trainer.step), Trainer(make()), Trainer(make())
    shared = staged.history
    for call in range(12):
        if call > 5:
            for each in (plain, staged):
                each.options["schedule"]["decay"] = 0.9**call
                each.state["lr"] = 1e-3 * call
        x = np.array([1.0, -2.0, 0.5]) + call % 3
        expected, found = plain.step(x), futurized(staged, x)
        pairs = (plain.params, staged.params), (plain.state, staged.state), (plain.history, staged.history)
        for theirs, mine in ((expected, found), *pairs):
            for a, b in zip(flatten(theirs)[0], flatten(mine)[0], strict=True):
                np.testing.assert_allclose(np.asarray(b), np.asarray(a), rtol=1e-12)
        assert staged.history is shared
        assert list(map(type, staged.history.values())) == [int, np.float64, list]
    assert len(futurized._traces()) <= 3
    assert "plain" not in str(futurized.explain())


def test_momentum_that_an_object_holds_is_read_in_every_call():
    """The library's own code multiplies what it finds in the state."""

    class Held:
        def __init__(self):
            self.params, self.optimizer = {"w": np.ones(3)}, fx.optim.sgd(0.1, momentum=0.9)
            self.state = self.optimizer.init(self.params)

    def step(held, x):
        held.params, held.state = held.optimizer.update(held.params, {"w": x}, held.state)
        return held.params["w"].sum()

    futurized, plain, staged = fx.futurize(step), Held(), Held()
    for call in range(5):
        x = np.arange(3.0) + call
        assert float(futurized(staged, x)) == pytest.approx(float(step(plain, x)))
        np.testing.assert_allclose(staged.state["velocity"]["w"], np.asarray(plain.state["velocity"]["w"]))
    assert "plain" not in str(futurized.explain())


def test_a_constant_is_written_over_a_number_that_somebody_else_changes():
    def step(model, x):
        model["n"] = 3
        return x * COUNTS["n"]

    COUNTS = {"n": 1}
    futurized = fx.futurize(lambda x: step(COUNTS, x))
    for call in range(8):
        COUNTS["n"] = 6 if call % 2 else 3
        np.testing.assert_array_equal(futurized(np.ones(2)), [3, 3])
        assert COUNTS == {"n": 3}


def test_a_call_that_fails_leaves_what_numpy_leaves():
    def step(model, x, k):
        model["state"]["n"] += 1
        found = x[k]
        model["state"]["v"] *= 0.5
        return found

    class Model:
        def __init__(self):
            self.nest = {"state": {"n": 0, "v": 1.0}}

        def step(self, x, k):
            return step(self.nest, x, k)

    futurized, plain, staged = fx.futurize(Model.step), Model(), Model()
    for call in range(8):
        k = np.int64(5 if call % 3 == 2 else 1)
        for function, model in ((Model.step, plain), (futurized, staged)):
            if k == 5:
                with pytest.raises(IndexError):
                    np.asarray(function(model, np.ones(3), k))
            else:
                np.asarray(function(model, np.ones(3), k))
        assert repr(staged.nest) == repr(plain.nest)
    assert "plain" not in str(futurized.explain())


def test_nests_are_whole_again_where_they_cannot_be_traced():
    class Model:
        def __init__(self):
            self.state = {"n": 0, "inner": [0.5, (1, 2.0)]}

    def step(model, x):
        model.state["n"] += 1
        model.state["inner"][0] *= 2
        return str(x)

    model, futurized = Model(), fx.futurize(step, escape="error")
    for _ in range(3):
        with pytest.raises(fx.StagingError):
            futurized(model, np.ones(2))
        assert repr(model.state) == "{'n': 0, 'inner': [0.5, (1, 2.0)]}"

"""Lists, dicts and tuples that objects hold: layers keep what they will need, parameters lie in dicts, one list has
several names.

Each step is called again and again, as plain NumPy and futurized, and all that the objects hold is compared: values,
and which names are one object.
"""

import numpy as np
import pytest

import futurex as fx

CACHE, RUNS = {"w": np.ones(3)}, []


class Layer:
    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.params = {"w": rng.normal(size=(3, 3)), "b": np.zeros(3)}
        self.grads, self.saved, self.inputs, self.moments = {}, None, [], [np.zeros((3, 3)), np.zeros(3)]

    def forward(self, x):
        self.inputs.append(x)
        self.saved = (x, np.tanh(x @ self.params["w"] + self.params["b"]))
        return self.saved[1]

    def backward(self, g):
        x, y = self.saved
        g = g * (1 - y * y)
        self.grads["w"], self.grads["b"] = x.T @ g, g.sum(0)
        return g @ self.params["w"].T

    def update(self, rate):
        for k, name in enumerate(self.params):
            self.moments[k] = 0.9 * self.moments[k] + self.grads[name]
            self.params[name] = self.params[name] - rate * self.moments[k]
        self.inputs = []


class Net:
    def __init__(self):
        self.layers, self.rate, self.alias, self.n = [Layer(0), Layer(1)], 0.1, None, 0
        self.shared, self.empty = self.layers[0].params, {"w": None, "b": None}
        self.state = {"pair": (np.ones(3), "a"), "inner": [np.zeros(3)], "words": ["x"]}


def batch(round_):
    return np.random.default_rng(round_).normal(size=(4, 3))


def whole_step(net, x):
    y = x
    for layer in net.layers:
        y = layer.forward(y)
    g = y - 1
    for layer in reversed(net.layers):
        g = layer.backward(g)
    for layer in net.layers:
        layer.update(net.rate)
    return (y * y).sum()


def swaps(net, x):
    first, second = net.layers
    first.moments[0], second.moments[0] = second.moments[0], first.moments[0] + x.sum()
    first.moments, second.moments = second.moments, first.moments
    return first.moments[0]


def one_of_two_names(net, x):
    net.shared["w"] = net.shared["w"] + x.sum()
    return net.layers[0].params["w"]


def another_name(net, x):
    net.alias = net.layers[1].params
    net.alias["w"] = net.alias["w"] * 2
    return net.layers[1].params["w"].sum() + x


def written_in_place(net, x):
    net.state["inner"][0][1:] += x[0, 1:]
    net.state["inner"][0] *= 0.5
    net.alias = net.state["inner"][0], net.state["pair"]
    return net.state["pair"][0] * x


def in_a_branch(net, x):
    if x.sum() > 0:
        net.state["inner"][0] = net.state["inner"][0] + x[0]
    else:
        net.state["inner"][0] *= 2
    return net.state["inner"][0]


def in_a_loop(net, x):
    moments = net.layers[0].moments
    for row in range(40):
        moments[1] = moments[1] * 0.5 + x[row % 4]
    return moments[1].sum()


def until_small(net, x):
    held = net.state["inner"]
    held[0] = held[0] + abs(x[0]) + 1
    while held[0].sum() > 0.5:
        held[0] = held[0] / 2
    return x


def beside_a_loop(net, x):
    net.alias = net.state["pair"][0], net.state["words"]
    for k in range(9):
        net.rate = net.rate * 0.9 + x[0, 0]
        net.layers[0].moments[0] = net.layers[0].moments[0] * 0.5 + k
    return net.layers[0].moments[0] * net.rate


def bound_in_a_loop(net, x):
    for k in range(9):
        net.alias = [x[k % 4], x[0] * k]
        net.n = net.n + net.alias[1]
    return net.alias[0] + net.n


def replaced_in_a_branch(net, x):
    if x.sum() > 0:
        net.layers[0].params = {"w": x[:3] * 2, "b": x[0] * 2}
    return x


def replaced_in_a_loop(net, x):
    k = 0
    while x[0, 0] + k < 1:
        net.layers[0].params = {"w": x[:3] * k, "b": x[0] * 2}
        k += 1
    return x


def returned(net, x):
    net.state["inner"][0] = x[0]
    return net.state, net.layers[0].params, net.state["pair"]


def of_globals(net, x):
    CACHE["w"] = CACHE["w"] + x.sum(0)
    return CACHE["w"] * 2


def by_name(net, x):
    net.state["new"] = x * 2
    net.state.pop("words", None)
    return len(net.state)


def is_it(net, x):
    return x if net.shared is net.layers[0].params else -x


def counts(net, x):
    net.state["n"] = net.state.get("n", 0) + 1
    return x * net.state["n"]


def grows(net, x):
    net.state["inner"].append(x[0])
    return sum(entry.sum() for entry in net.state["inner"])


def of_attributes(net, x):
    vars(net)["n"] = x.sum()
    net.__dict__["alias"] = x
    return net.n


def under_two_names(net, x):
    y = np.zeros_like(x)
    for layer in net.layers:
        y = y + layer.moments[1] * x
    net.layers[0].saved = net.alias = y
    net.layers[1].saved = net.alias
    return y.sum()


def read_under_two_names(net, x):
    seen = 0.0 if net.alias is None else net.alias.sum() + net.layers[0].saved[0].sum()
    net.layers[0].saved = net.alias = x * 2
    return x + seen


def filled_in(net, x):
    net.empty["w"] = x * 2
    net.empty["b"] = net.empty["b"]
    return x


def made_under_two_names(net, x):
    net.empty = [x * 2, x]
    net.state = (net.empty[0], net.empty)
    return x.sum()


def made_as_one(net, x):
    net.alias = net.shared = {"w": x[0], "b": x[1]}
    return x.sum()


STAGED = [
    whole_step, swaps, one_of_two_names, another_name, written_in_place, in_a_loop, returned, of_globals, by_name,
    is_it, filled_in, under_two_names, read_under_two_names, beside_a_loop, bound_in_a_loop, in_a_branch, until_small,
    counts,
]  # fmt: skip
PLAIN = [
    grows, of_attributes, replaced_in_a_branch, replaced_in_a_loop, made_under_two_names, made_as_one,
]  # fmt: skip


def values(thing):
    """What a thing holds, and under how many names it holds each."""
    seen, out = {}, []

    def look(value):
        value = value.result() if isinstance(value, fx.Array) else value
        if isinstance(value, np.ndarray | list | dict | Net | Layer):
            if id(value) in seen:
                out.append(("again", seen[id(value)][0]))
                return
            seen[id(value)] = len(seen), value
        out.append(type(value))
        if isinstance(value, np.ndarray | np.generic):
            out.append((value.dtype, value.shape, value.tobytes()))
        elif isinstance(value, dict | list | tuple):
            out.append(list(value) if isinstance(value, dict) else len(value))
            for entry in value.values() if isinstance(value, dict) else value:
                look(entry)
        elif isinstance(value, Net | Layer):
            look(vars(value))
        else:
            out.append(repr(value))

    look(thing)
    return out


def calls(step, function, rounds):
    """What a net holds after each call, and what the call returned."""
    net = Net()
    CACHE.update(w=np.ones(3))
    for round_ in range(rounds):
        result = function(net, batch(round_))
        yield values([net, result] if step is not of_globals else [net, result, CACHE])


@pytest.mark.parametrize("step", STAGED + PLAIN, ids=lambda f: f.__name__)
def test_what_objects_hold_after_each_call(step):
    futurized = fx.futurize(step)
    for mine, theirs in zip(list(calls(step, futurized, 12)), list(calls(step, step, 12)), strict=True):
        assert mine == theirs
    assert ("plain" in str(futurized.explain())) == (step in PLAIN)
    assert len(futurized._traces()) <= 4


@pytest.mark.parametrize("step", STAGED, ids=lambda f: f.__name__)
def test_they_are_traced_no_more_once_calls_leave_them_as_they_were(step, monkeypatch):
    from futurex.frontend import staging

    futurized, net, traced = fx.futurize(step), Net(), []
    make = staging.trace_call
    monkeypatch.setattr(staging, "trace_call", lambda *args: traced.append(1) or make(*args))
    for round_ in range(12):
        if round_ == 3:
            traced.clear()
        futurized(net, batch(round_))
    assert not traced


def test_methods_that_leave_arrays_for_each_other_are_traced_once():
    plain, net = Layer(0), Layer(0)
    methods = [fx.futurize(method) for method in (Layer.forward, Layer.backward, Layer.update)]
    for round_ in range(8):
        x = batch(round_)
        plain.inputs, net.inputs = [], []
        expected = plain.forward(x), plain.backward(x), plain.update(0.1)
        assert values([methods[0](net, x), methods[1](net, x), methods[2](net, 0.1), net]) == values([*expected, plain])
    assert all(len(method._traces()) <= 2 for method in methods[1:])


def steps_of_a_dict(net, params):
    params["w"] = params["w"] - 1
    return net.shared["w"].sum()


def steps_of_the_object(net, params):
    net.shared["w"] = net.shared["w"] - 1
    return params["w"].sum()


def compared(net, params):
    return params["w"] if params is net.shared else -params["w"]


@pytest.mark.parametrize("step", [steps_of_a_dict, steps_of_the_object, compared], ids=lambda f: f.__name__)
@pytest.mark.parametrize("first", [True, False])
def test_an_argument_that_an_object_holds_too(step, first):
    futurized, plain, net = fx.futurize(step), Net(), Net()
    for round_ in range(6):
        mine, theirs = {"w": np.ones((3, 3))}, {"w": np.ones((3, 3))}
        if (round_ % 2 == 0) == first:
            mine, theirs = net.shared, plain.shared
        assert values(futurized(net, mine)) == values(step(plain, theirs))
        assert values([net, mine]) == values([plain, theirs])


def test_names_that_come_to_be_one_and_part_again():
    def step(net, x):
        net.layers[0].grads["w"] = x
        net.layers[1].grads["w"] = x * 2
        return net.layers[0].grads["w"].sum()

    futurized, plain, net = fx.futurize(step), Net(), Net()
    for each in (plain, net):
        for layer in each.layers:
            layer.grads["w"] = np.zeros((4, 3))
    for round_ in range(12):
        for each in (plain, net):
            if round_ % 4 == 2:
                each.layers[0].grads = each.layers[1].grads
            elif round_ % 4 == 0:
                each.layers[0].grads = {"w": each.layers[1].grads["w"]}
        assert values(futurized(net, batch(round_))) == values(step(plain, batch(round_)))
        assert values(net) == values(plain)


def test_arrays_of_two_places_are_seen_to_part():
    def step(net, x):
        net.layers[0].moments[1] += x[0]
        return net.layers[1].moments[1] * 2

    futurized, plain, net = fx.futurize(step), Net(), Net()
    for round_ in range(9):
        for each in (plain, net):
            first, second = each.layers
            if round_ % 3 == 1:
                second.moments[1] = first.moments[1]
            elif round_ % 3 == 2:
                second.moments[1] = first.moments[1][:]
        assert values(futurized(net, batch(round_))) == values(step(plain, batch(round_)))
        assert values(net) == values(plain)


def apart(kept):
    """The same with no array in two places."""
    if isinstance(kept, dict):
        return {name: apart(entry) for name, entry in kept.items()}
    return kept.copy() if isinstance(kept, np.ndarray) else type(kept)(map(apart, kept))


@pytest.mark.parametrize("kept", [lambda z: {"z": z, "a": z}, lambda z: [z, z], lambda z: (z, {"a": z})], ids="dlt")
def test_an_array_that_a_cache_holds_twice_may_be_another_at_every_call(kept, monkeypatch):
    """The last layer has no activation: ``cache["Z3"]`` is ``cache["A3"]``."""
    from futurex.frontend import staging

    def step(net, x):
        first, second = list(net.saved.values()) if isinstance(net.saved, dict) else net.saved
        second = second["a"] if isinstance(second, dict) else second
        if net.rate > 1:
            first += 1.0
        return (second * x).sum() - first[0, 0]

    futurized, plain, net, traced = fx.futurize(step), Net(), Net(), []
    make = staging.trace_call
    monkeypatch.setattr(staging, "trace_call", lambda *args: traced.append(1) or make(*args))
    for round_ in range(14):
        for each in (plain, net):
            each.saved, each.rate = kept(batch(round_) + 1), 2.0 if round_ > 10 else 0.1
            if round_ in (9, 13):
                each.saved = apart(each.saved)
        assert values(futurized(net, batch(round_))) == values(step(plain, batch(round_)))
        assert values(net) == values(plain)
        assert round_ != 8 or len(traced) == 1
    assert "plain" not in str(futurized.explain())


def test_what_is_only_replaced_may_be_of_any_shape():
    def step(net, x):
        net.last = x * 2
        net.state["last"] = x
        net.layers[0].moments[0] = x - 1
        return x.sum()

    futurized, plain, net, traces = fx.futurize(step), Net(), Net(), []
    for round_ in range(12):
        x = np.arange(3.0 + round_)
        assert values(futurized(net, x)) == values(step(plain, x))
        assert values(net) == values(plain)
        traces.append([id(variant) for variant in futurized._traces()])
    assert traces[-1] == traces[3]


def test_what_only_an_argument_is_made_of_is_read():
    def scaled(net, x):
        net.n = 0
        x *= CACHE["w"]
        return net.rate

    CACHE.update(w=np.ones(3))
    futurized, net = fx.futurize(scaled, escape="error"), Net()
    for round_ in range(1, 4):
        x = np.ones(3)
        CACHE["w"] = np.full(3, float(round_))
        assert futurized(net, x) == net.rate
        np.testing.assert_array_equal(x, np.full(3, float(round_)))


def test_what_somebody_else_puts_there_between_calls():
    futurized, plain, net = fx.futurize(returned_sum), Net(), Net()
    future = fx.futurize(lambda x: x + 1)(np.ones(3))
    entries = [np.ones(3), np.ones(2), np.float32([1, 2, 3]), 2.0, 3, "text", future, [np.ones(3)], np.ones(3), None]
    for entry in entries:
        for each in (plain, net):
            each.state["inner"] = [entry]
        if isinstance(entry, str) or entry is None or isinstance(entry, list):
            with pytest.raises(TypeError):
                returned_sum(plain, 1.0)
            with pytest.raises(TypeError):
                np.asarray(futurized(net, 1.0))
        else:
            plain.state["inner"] = [np.asarray(entry) if isinstance(entry, fx.Array) else entry]
            assert values(futurized(net, 1.0)) == values(returned_sum(plain, 1.0))


def returned_sum(net, x):
    return net.state["inner"][0] * x + np.ones(1)


def test_a_call_that_fails_leaves_them_alone():
    @fx.futurize
    def step(net, x, k):
        net.state["inner"][0] = x[k]
        return x[k + 2]

    net = Net()
    before = net.state["inner"][0]
    for _ in range(3):
        with pytest.raises(IndexError):
            step.plain(Net(), batch(0), np.int64(3))
    step(net, batch(0), np.int64(0))
    before = net.state["inner"][0]
    for _ in range(3):
        with pytest.raises(IndexError):
            step(net, batch(0), np.int64(2))
        np.testing.assert_array_equal(net.state["inner"][0], batch(0)[2])
        net.state["inner"][0] = before


class Fitted:
    def __init__(self):
        self.rate, self.rounds, self.w, self.b, self.seen = 0.1, 30, None, None, 0

    def fit(self, x, y):
        self.w, self.b = np.zeros(x.shape[1]), 0
        for _ in range(self.rounds):
            wrong = x @ self.w + self.b - y
            self.w -= self.rate * (x.T @ wrong) / len(x)
            self.b -= self.rate * wrong.sum() / len(x)
            self.seen += 1
        return self.w


def test_attributes_that_no_round_changes_stay_known():
    futurized, plain, staged = fx.futurize(Fitted.fit), Fitted(), Fitted()
    for round_ in range(4):
        x = batch(round_)
        np.testing.assert_allclose(futurized(staged, x, x[:, 0]), plain.fit(x, x[:, 0]), rtol=1e-12)
        assert (type(plain.b), plain.seen, plain.rate) == (type(staged.b), staged.seen, staged.rate)
        np.testing.assert_allclose(staged.b, plain.b, rtol=1e-12)
    text = str(futurized.explain())
    assert "plain" not in text
    assert "Fitted.rounds" in text


class Shifted:
    def __init__(self):
        self.a = self.b = self.c = self.d = self.e = self.f = self.g = self.h = 0.0


def shift(model, x):
    for k in range(20):
        model.a, model.b, model.c, model.d, model.e, model.f, model.g, model.h = (
            x[k % 3], model.a, model.b, model.c, model.d, model.e, model.f, model.g,
        )  # fmt: skip
    return model.h


def test_attributes_that_hand_on_what_changes():
    futurized, plain, staged = fx.futurize(shift), Shifted(), Shifted()
    for round_ in range(3):
        assert futurized(staged, batch(round_)[0]) == shift(plain, batch(round_)[0])
        assert vars(staged) == vars(plain)
    assert "plain" not in str(futurized.explain())

"""Strategies of training: each makes the steps that its mathematics says, on any number of localities."""

import time
from dataclasses import dataclass, field

import numpy as np
import pytest
from local_group import thread_group

import futurex as fx
from futurex.data import Sampler
from futurex.ops.comm import communications
from futurex.partition import Mesh, partition
from futurex.partition.mesh import SUM
from futurex.runtime.collectives import CollectiveError
from futurex.runtime.plan import compile_plan
from futurex.training.checkpoint import load
from futurex.training.programs import Model, Problem, adding_program, part_program
from futurex.training.strategy.base import Options
from futurex.training.strategy.server import ParameterServer
from futurex.tree.pytree import tree_map

WAIT = 60


def loss(params, x, y, key=None):
    hidden = np.tanh(x @ params["w1"] + params["b1"])
    if key is not None:
        hidden = hidden * (1.0 + 0.0 * fx.random.uniform(key))
    error = fx.nn.softmax_cross_entropy(hidden @ params["w2"] + params["b2"], y).mean()
    return error + 1e-3 * (params["w1"] ** 2).sum(), {"size": np.abs(hidden).mean()}


def problem(n=61):
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(n, 40)), rng.integers(0, 3, n)
    params = {
        "w1": rng.normal(size=(40, 33)) * 0.3, "b1": np.zeros(33), "w2": rng.normal(size=(33, 3)) * 0.3,
        "b2": np.zeros(3),
    }  # fmt: skip
    return params, (x, y)


def fit(group=None, n=61, **options):
    params, data = problem(n)
    taken = {"epochs": 2, "batch_size": 16, "seed": 5, "progress": False, "on": group, **options}
    run = fx.fit(loss, params, data, **taken)
    run.result(WAIT)
    return run


@pytest.fixture(scope="module", params=[2, 3])
def group(request):
    with thread_group(request.param) as found:
        yield found


def assert_same(run, other, rtol=1e-9):
    for name, array in other.params.items():
        np.testing.assert_allclose(run.params[name], array, rtol=rtol, atol=1e-12, err_msg=name)
    for mine, theirs in zip(run.history, other.history, strict=True):
        for name in ("loss", "size", "step"):
            np.testing.assert_allclose(mine[name], theirs[name], rtol=rtol)


@pytest.fixture(scope="module")
def alone():
    return fit(optimizer=fx.optim.adam(0.01))


def of_whole_gradients():
    """Looks at the norms of arrays and of all gradients, which no locality has whole where they are sharded."""
    schedule = fx.optim.warmup(fx.optim.cosine(0.02, steps=20), steps=3, start=0.001)
    return fx.optim.clipped(fx.optim.scheduled(fx.optim.lamb(), schedule), norm=0.5)


@pytest.mark.parametrize("name", ["all_reduce", "zero", "cross_barrier"])
def test_optimizers_that_look_at_whole_gradients(group, name):
    alone = fit(optimizer=of_whole_gradients())
    assert_same(fit(group, strategy=getattr(fx.strategy, name)(), optimizer=of_whole_gradients()), alone)


@pytest.mark.parametrize("parts", [2, 3, 5, 16, 40])
def test_parts_of_a_batch_make_its_step(alone, parts):
    assert_same(fit(optimizer=fx.optim.adam(0.01), accumulate=parts), alone)


@pytest.mark.parametrize("parts", [1, 3])
def test_localities_make_the_steps_of_one(group, alone, parts):
    assert_same(fit(group, optimizer=fx.optim.adam(0.01), accumulate=parts), alone)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("stage", [1, 2])
def test_sharded_state_makes_the_same_steps_with_less_memory(group, alone, stage, parts):
    options = {"optimizer": fx.optim.adam(0.01), "accumulate": parts}
    run = fit(group, strategy=fx.strategy.zero(stage), **options)
    assert_same(run, alone)
    plain = fit(group, **options).memory[0]
    most = [max(held[name] for held in run.memory) for name in plain]
    wider = dict(zip(plain, most, strict=True))
    large = 2 * 40 * 33 * 8  # bytes of both moments of the one array that is large enough to be sharded
    assert wider["parameters"] == plain["parameters"]
    assert plain["optimizer state"] - large < wider["optimizer state"] < plain["optimizer state"] - 0.4 * large
    if parts > 1:
        summed, full = wider["gradients summed up"], plain["gradients summed up"]
        assert summed == full if stage == 1 else summed < full - 0.2 * large


class Clipped:
    """Adam, but for the length of the whole gradient: what shards must add up for."""

    def __init__(self):
        self.adam = fx.optim.adam(0.01)

    def init(self, params):
        return self.adam.init(params)

    def update(self, params, grads, state):
        length = sum((g * g).sum() for g in grads.values()) ** 0.5
        return self.adam.update(params, {name: g / (1.0 + length) for name, g in grads.items()}, state)


@pytest.mark.parametrize("strategy", [fx.strategy.all_reduce(), fx.strategy.zero(2)], ids=str)
def test_parts_of_a_batch_for_parameters_without_dimensions(group, strategy):
    """Their gradients are numbers, which no run can be given to write to."""

    def line(params, x, y):
        return ((params["slope"] * x + params["shift"] - y) ** 2).mean()

    x = np.linspace(-1, 1, 24)
    options = {"epochs": 3, "batch_size": 12, "progress": False}
    params = {"slope": 0.0, "shift": np.zeros(())}
    alone = fx.fit(line, params, (x, 3 * x + 1), **options).result(WAIT)
    for on in (None, group):
        found = fx.fit(line, params, (x, 3 * x + 1), on=on, accumulate=4, strategy=strategy, **options).result(WAIT)
        np.testing.assert_allclose([found[name] for name in alone], list(alone.values()), rtol=1e-12)


@pytest.mark.parametrize("stage", [1, 2])
def test_shards_are_right_for_optimizers_that_look_at_all_gradients(group, stage):
    run = fit(group, strategy=fx.strategy.zero(stage), optimizer=Clipped(), accumulate=stage)
    assert_same(run, fit(optimizer=Clipped()))


def test_sharded_state_is_exchanged_once_as_shards_and_once_as_parameters():
    params, data = problem()
    optimizer, strategy = fx.optim.adam(0.01), fx.strategy.zero()
    asked = Problem(Model(loss), optimizer, params, optimizer.init(params), data, 2)
    graph, layout = strategy.programs(asked, [16], Options())["step", 16]
    found = communications(partition(graph, layout.placements, Mesh((("data", 2),)), 0, layout.outs))
    floats = {node.op: [source.shape for source in node.inputs] for node in found if node.inputs[0].dtype == float}
    assert list(floats) == ["all_reduce", "reduce_scatter", "all_gather"]
    assert floats["reduce_scatter"] == [(40, 33)]
    assert floats["all_gather"] == [(20, 33)]


def test_a_checkpoint_of_shards_is_whole(group, tmp_path, alone):
    run = fit(group, strategy=fx.strategy.zero(), optimizer=fx.optim.adam(0.01), checkpoint=tmp_path)
    assert_same(run, alone)
    found = load(run.saved)
    moments = fit(optimizer=fx.optim.adam(0.01), checkpoint=tmp_path / "alone").saved
    for name in ("m", "v"):
        np.testing.assert_allclose(found.optimizer[name]["w1"], load(moments).optimizer[name]["w1"], rtol=1e-9)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_steps_without_a_barrier_are_the_same(group, alone, share):
    assert_same(fit(group, strategy=fx.strategy.cross_barrier(share), optimizer=fx.optim.adam(0.01)), alone)


def test_a_step_without_a_barrier_begins_before_the_gradients_of_later_layers_have_come():
    params, data = problem()
    optimizer = fx.optim.adam(0.01)
    asked = Problem(Model(loss), optimizer, params, optimizer.init(params), data, 2)
    graph, layout = fx.strategy.cross_barrier(1.0).programs(asked, [16], Options())["next", 16]
    mesh = Mesh((("data", 2),))
    rank = partition(graph, layout.placements, mesh, 0, layout.outs, first_bucket=1, bucket_bytes=1)
    exchanges = [node for node in communications(rank) if node.inputs[0] in rank.params and node.inputs[0].ndim]
    named = [source.attrs["name"] for node in exchanges for source in node.inputs]
    assert named == ["grads_w1", "grads_b1", "grads_w2", "grads_b2"]  # in the order of need
    behind = {node: {node} for node in rank.params}
    for node in rank.nodes:
        behind[node] = {node}.union(*(behind[source] for source in node.inputs))
    first_layer = next(node for node in rank.nodes if node.op == "matmul")
    assert exchanges[0] in behind[first_layer]
    assert not behind[first_layer] & set(exchanges[1:])


def deep_loss(params, x, y):
    for name in ("z", "m", "k", "a"):  # not the order of their names
        x = np.tanh(x @ params[name])
    return ((x - y) ** 2).mean(), {}


@pytest.mark.parametrize("bytes_of_a_bucket", [1, 1 << 40])
def test_carried_gradients_come_and_are_urgent_in_the_order_of_need(bytes_of_a_bucket):
    params = {name: np.zeros((8, 8)) for name in "amkz"}
    optimizer = fx.optim.sgd(0.1)
    data = (np.zeros((16, 8)), np.zeros((16, 8)))
    asked = Problem(Model(deep_loss), optimizer, params, optimizer.init(params), data, 2)
    graph, layout = fx.strategy.cross_barrier(1.0).programs(asked, [16], Options())["next", 16]
    rank = partition(
        graph, layout.placements, Mesh((("data", 2),)), 0, layout.outs, first_bucket=1, bucket_bytes=bytes_of_a_bucket
    )
    carried = [node for node in communications(rank) if node.inputs[0] in rank.params and node.inputs[0].ndim]
    assert [[source.attrs["name"] for source in node.inputs] for node in carried] == [
        ["grads_z"], ["grads_m"], ["grads_k"], ["grads_a"]
    ]  # fmt: skip
    plan = compile_plan(rank, threads=1)
    urgency = [plan.instructions[index].priority for index in plan.collectives]
    assert urgency[: len(carried)] == sorted(urgency[: len(carried)], reverse=True)
    assert len({*urgency[: len(carried)]}) == len(carried)


def test_statistics_of_a_batch_are_more_urgent_than_gradients():
    """What the backward pass waits for must not stand behind a bucket of gradients that only the end waits for."""
    params = {name: np.zeros((8, 8)) for name in ("w", "v")} | {"scale": np.ones(8), "shift": np.zeros(8)}

    def normalised(params, x, y):
        h, _, _ = fx.nn.batch_norm(x @ params["w"], params["scale"], params["shift"])
        return ((h @ params["v"] - y) ** 2).mean(), {}

    optimizer = fx.optim.sgd(0.1)
    data = (np.zeros((16, 8)), np.zeros((16, 8)))
    asked = Problem(Model(normalised), optimizer, params, optimizer.init(params), data, 2)
    graph, layout = fx.strategy.all_reduce().programs(asked, [16], Options())["step", 16]
    rank = partition(graph, layout.placements, Mesh((("data", 2),)), 0, layout.outs, first_bucket=1, bucket_bytes=1)
    plan = compile_plan(rank, threads=1)
    by_shape = {}
    for index in plan.collectives:
        each = plan.instructions[index]
        by_shape.setdefault(each.node.inputs[0].shape, []).append(each.priority)
    assert min(by_shape[8,][:2]) > max(by_shape[8, 8])  # mean and variance; then those of the backward pass


@dataclass(frozen=True)
class Watched(ParameterServer):
    """A parameter server whose workers the test can look at."""

    seen: list = field(default_factory=list, compare=False)

    def stepper(self, *args):
        self.seen.append(super().stepper(*args))
        return self.seen[-1]


def test_a_server_that_waits_for_all_makes_the_steps_of_one_locality(group, alone):
    options = {"n": 60, "batch_size": 20}
    alone = fit(optimizer=fx.optim.adam(0.01), **options)
    run = fit(group, strategy=fx.strategy.parameter_server(), optimizer=fx.optim.adam(0.01), **options)
    assert_same(run, alone)
    for counters in run.counters:
        assert counters.steps == 2 * 3
        assert counters.exchanges == 2 * (3 + 1) - 2  # up to the end of the last computation
    assert run.memory[1]["optimizer state"] == 0


@pytest.mark.parametrize("staleness", [1, 3, None])
def test_gradients_that_come_late_are_applied_as_they_come(group, staleness):
    """Whatever the order was: the same updates by hand, each with the gradient at what its worker had read."""
    strategy, optimizer = Watched(staleness), fx.optim.sgd(0.05, momentum=0.9)
    params, data = problem()
    batches = list(Sampler(len(data[0]), 11, 5).epoch(0))
    run = fit(group, strategy=strategy, optimizer=optimizer, epochs=1, batch_size=11)
    [log] = [worker.log for worker in strategy.seen if worker.locality.rank == 0]
    assert sorted(log)[0][:2] == (0, 1)
    assert len(log) == group.size * len(batches)
    states, state = [params], optimizer.init(params)
    done = [[0] * group.size]  # by version, how many steps of each worker are in it
    for worker, step, version in log:
        share = Sampler.share(batches[step - 1], worker, group.size)
        _, grads = fx.value_and_grad(loss, has_aux=True)(states[version], *(array[share] for array in data))
        grads = {name: np.asarray(grad) for name, grad in grads.items()}
        fresh, state = optimizer.update(states[-1], grads, state)
        states.append(fresh)
        done.append([count + (rank == worker) for rank, count in enumerate(done[-1])])
        assert done[-1][worker] == step
        if staleness is not None and step > 1:
            assert min(done[version]) >= step - 1 - staleness
    for name, array in run.params.items():
        np.testing.assert_allclose(array, states[-1][name], rtol=1e-9, atol=1e-12, err_msg=name)


def test_a_server_alone_is_one_locality(alone):
    assert_same(fit(strategy=fx.strategy.parameter_server(3), optimizer=fx.optim.adam(0.01)), alone)


@pytest.mark.parametrize("staleness", [0, 2, None])
def test_workers_of_a_server_stop_after_the_same_step(group, staleness):
    params, data = problem()
    strategy = Watched(staleness)
    run = fx.fit(loss, params, data, on=group, strategy=strategy, epochs=10**6, batch_size=16, progress=False)
    end = time.monotonic() + WAIT
    while not run.history:
        assert not run.done(), run.result(0)
        assert time.monotonic() < end, "no step is over"
        time.sleep(0.01)
    run.stop()
    run.result(WAIT)
    assert run.status == "stopped"
    assert len({counters.steps for counters in run.counters}) == 1 or staleness is None


def test_what_fails_on_a_server_is_raised(group):
    class Failing:
        def init(self, params):
            return {"lr": 0.1, "steps": np.zeros(1)}

        def update(self, params, grads, state):
            steps = state["steps"] + 1.0
            picked = np.arange(3.0)[steps.astype(np.int64)]  # the third update raises
            return {name: params[name] - picked.sum() * 0.0 for name in params}, {"lr": 0.1, "steps": steps}

    with pytest.raises(CollectiveError, match="the parameters of the server, rank 0 in vain: index 3"):
        fit(group, strategy=fx.strategy.parameter_server(), optimizer=Failing())


def averaged(size, every, optimizer, epochs=2, batch_size=16, seed=5):
    """The definition of local SGD, with NumPy's mean and a state for every locality."""
    params, data = problem()
    ours = [params] * size
    states = [optimizer.init(params)] * size
    losses, since = [], 0
    mean = lambda *leaves: sum(leaves) / size if isinstance(leaves[0], np.ndarray) else leaves[0]  # noqa: E731
    for epoch in range(epochs):
        total = 0.0
        for chosen in Sampler(len(data[0]), batch_size, seed).epoch(epoch):
            for rank in range(size):
                share = Sampler.share(chosen, rank, size)
                (value, _), grads = fx.value_and_grad(loss, has_aux=True)(ours[rank], *(array[share] for array in data))
                grads = {name: np.asarray(grad) for name, grad in grads.items()}
                ours[rank], states[rank] = optimizer.update(ours[rank], grads, states[rank])
                total += float(value) * len(share)
            since += 1
            if since == every:
                ours, states, since = [tree_map(mean, *ours)] * size, [tree_map(mean, *states)] * size, 0
        if since:
            ours, states, since = [tree_map(mean, *ours)] * size, [tree_map(mean, *states)] * size, 0
        losses.append(total / len(data[0]))
    return ours[0], losses


@pytest.mark.parametrize("every", [1, 3, 100])
def test_averaging_does_what_its_definition_says(group, every):
    optimizer = fx.optim.adam(0.01)
    run = fit(group, strategy=fx.strategy.local_sgd(every), optimizer=optimizer, accumulate=2)
    params, losses = averaged(group.size, every, optimizer)
    for name in params:
        np.testing.assert_allclose(run.params[name], params[name], rtol=1e-9, atol=1e-12, err_msg=name)
    np.testing.assert_allclose([record["loss"] for record in run.history], losses, rtol=1e-9)
    assert run.step == 2 * 4


def test_averaging_after_every_step_of_equal_shares_is_a_step_of_the_whole_batch(group):
    options = {"n": 48, "batch_size": 12, "optimizer": fx.optim.sgd(0.1, momentum=0.9)}
    assert_same(fit(group, strategy=fx.strategy.local_sgd(1), **options), fit(**options))


def test_averaging_exchanges_nothing_in_between(group):
    run = fit(group, strategy=fx.strategy.local_sgd(4), optimizer=fx.optim.adam(0.01))
    for counters in run.counters:
        assert counters.exchanges == 2  # one mean in each of two epochs of four steps
        assert counters.steps == 2 * 4 + 2


def test_a_run_that_averages_stops_on_all_localities(group):
    params, data = problem()
    run = fx.fit(
        loss, params, data, on=group, strategy=fx.strategy.local_sgd(5), epochs=10**6, batch_size=16, progress=False
    )
    with pytest.raises(TimeoutError):
        run.result(0.2)
    run.stop()
    run.result(WAIT)
    assert run.status == "stopped"


def test_nothing_is_exchanged_before_the_last_part():
    params, data = problem()
    optimizer = fx.optim.sgd(0.1)
    asked = Problem(Model(loss), optimizer, params, optimizer.init(params), data, 2)
    first = part_program(asked, 6, 6 / 16, (SUM,) * 4)
    for graph, layout in (first, adding_program(asked, first)):
        for rank in range(2):
            assert not communications(partition(graph, layout.placements, Mesh((("data", 2),)), rank, layout.outs))


@pytest.mark.parametrize(
    "options, kind, said",
    [
        ({"accumulate": 0}, ValueError, "accumulate must be at least 1"),
        ({"accumulate": 1.5}, TypeError, "accumulate must be a whole number, not 1.5"),
        ({"strategy": "zero"}, TypeError, "strategy='zero' is none of fx.strategy"),
        (
            {"strategy": fx.strategy.zero(), "compression": "bf16"}, ValueError,
            r"compression='bf16' does not go with strategy zero\(stage=2\)",
        ),
        (
            {"strategy": fx.strategy.cross_barrier(0.5), "accumulate": 2}, ValueError,
            r"accumulate=2 does not go with strategy cross_barrier\(share=0.5\)",
        ),
        (
            {"strategy": fx.strategy.parameter_server(None), "compression": "bf16"}, ValueError,
            r"compression='bf16' does not go with strategy parameter_server\(staleness=None\)",
        ),
        (
            {"strategy": fx.strategy.local_sgd(2), "compression": "bf16"}, ValueError,
            r"compression='bf16' does not go with strategy local_sgd\(every=2\)",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_name(options, kind, said):
    with pytest.raises(kind, match=said):
        fit(**options)


def test_averaging_needs_examples_for_every_locality(group):
    with pytest.raises(ValueError, match="examples of every batch, and one has 1: choose a batch_size"):
        fit(group, n=49, batch_size=16, strategy=fx.strategy.local_sgd(2))
    with pytest.raises(ValueError, match="every must be at least 1"):
        fx.strategy.local_sgd(0)


def test_options_of_strategies_are_checked():
    with pytest.raises(ValueError, match=r"staleness \(None for no bound\) must be at least 0, not -1"):
        fx.strategy.parameter_server(-1)
    with pytest.raises(ValueError, match="share must lie in 0 to 1, not 2"):
        fx.strategy.cross_barrier(2)
    with pytest.raises(ValueError, match=r"stage must be 1 .* or 2 .*, not 3"):
        fx.strategy.zero(3)

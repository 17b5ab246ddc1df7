"""Arguments and results that hold themselves, and recursions of what is not staged: they mean what Python means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest

import futurex as fx


@dataclass
class Node:
    value: float
    parent: Node | None = None
    children: list[Node] = field(default_factory=list)

    def add(self, value: float) -> Node:
        self.children.append(Node(value, self))
        return self.children[-1]

    def __iter__(self) -> Iterator[Node]:
        yield self
        for child in self.children:
            yield from child


def tree():
    root = Node(1.0)
    root.add(2.0).add(3.0)
    root.add(4.0)
    return root


def total(root, x):
    return sum(node.value for node in root) * x


def grown(root, value):
    return root.add(value)


def around(x):
    root = tree()
    root.value = x
    return root


@fx.futurize
def inner(root, x):
    return total(root, x)


def outer(root, x):
    root.value += 1
    found = inner(root, x)
    found[0] = 7.0
    return found, root


def test_arguments_that_hold_themselves_are_taken_as_they_are():
    staged, x = fx.futurize(total), np.arange(3.0)
    for _ in range(3):
        assert np.array_equal(staged(tree(), x), total(tree(), x))
    root = tree()
    assert fx.futurize(grown)(root, 5.0) is root.children[-1]
    assert root.children[-1].parent is root


def test_results_that_hold_themselves_come_as_they_are():
    staged = fx.futurize(around)
    for _ in range(3):
        found = staged(np.arange(2.0))
        assert type(found) is Node
        assert found.children[0].parent is found
        assert np.array_equal(found.value, np.arange(2.0))


def test_calls_of_others_in_plain_ones():
    staged, root = fx.futurize(outer), tree()
    for _ in range(3):
        found, same = staged(root, np.arange(3.0))
        assert same is root
        assert np.asarray(found).tolist() == [7.0, total(root, 1), 2 * total(root, 1)]


def test_a_list_in_itself():
    held = [1.0]
    held.append(held)
    assert float(fx.futurize(lambda values: values[1][1][0] + 1.0)(held)) == 2.0


def test_traces_are_refused():
    with pytest.raises(fx.StagingError, match="holds itself"):
        fx.grad(total)(tree(), 2.0)
    with pytest.raises(fx.StagingError, match="holds itself"):
        fx.futurize(total).graph(tree(), 2.0)


@fx.futurize
def counted(n, seen, k=2):
    if k >= n:
        return seen
    seen[k] = seen.get(k, 0) + 1
    return counted(n, seen, k + 1)


@fx.futurize
def one(n, seen):
    seen.append(str(n))
    return other(n - 1, seen) if n else seen


@fx.futurize
def other(n, seen):
    seen.append(n)
    return one(n - 1, seen) if n else seen


@pytest.mark.filterwarnings("ignore:.*was traced")
def test_recursions_that_run_as_plain_python_are_as_deep_as_staged_ones():
    for _ in range(2):
        assert counted(202, {}) == dict.fromkeys(range(2, 202), 1)
        assert len(one(150, [])) == 151


@dataclass
class Link:
    value: float
    following: Link | None = None


def chain(*values):
    first = None
    for value in reversed(values):
        first = Link(value, first)
    return first


def turned_by_one(first):
    second = first.following
    last = second
    while last.following is not None:
        last = last.following
    first.following = None
    last.following = first
    return second


def closed(first):
    second = first.following
    third = second.following
    second.following = None
    third.following = first


@pytest.mark.parametrize("function", [turned_by_one, closed])
def test_arguments_that_are_put_into_what_they_held_stay_the_ones_that_they_are(function):
    staged = fx.futurize(function)
    for _ in range(3):
        links = [first := chain(1.0, 2.0, 3.0), first.following, first.following.following]
        found = staged(first)
        assert found is (links[1] if function is turned_by_one else None)
        assert links[2].following is first
        assert (links[0] if function is turned_by_one else links[1]).following is None

"""Letters between single ranks: they arrive whole and in order, and nobody waits for what will not come."""

import threading

import numpy as np
import pytest
from transport_mesh import mesh

from futurex.runtime.collectives import CollectiveError, CollectiveTimeout
from futurex.runtime.collectives import mailbox as module
from futurex.runtime.collectives.mailbox import Mailbox

KINDS = ["inproc", "local", "tcp"]


def boxes(kind, size=2):
    made = []
    return mesh(kind, size, lambda endpoint: made.append(Mailbox(endpoint))), made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 999, 1000, 1001, 12345])
def test_letters_arrive_whole_and_in_order(kind, size, monkeypatch):
    monkeypatch.setattr(module, "_PIECE", 1000)
    letters = [np.random.default_rng(k).integers(0, 256, size).astype(np.uint8) for k in range(3)]
    opened, made = boxes(kind)
    with opened:
        for letter in letters:
            made[1].post(0, 0, 7, letter, 30)
            letter_sent = letter.copy()
            made[0].post(0, 0, 8, letter, 30)  # to oneself
            letter[:] = 0  # what was sent is not what is written later
            source, found = made[0].take(0, 7, 30, "a letter")
            assert source == 1
            np.testing.assert_array_equal(found, letter_sent)
            np.testing.assert_array_equal(made[0].take(0, 8, 30, "my own letter")[1], letter_sent)


def test_who_waits_too_long_is_told_for_what():
    opened, made = boxes("inproc")
    with opened, pytest.raises(CollectiveTimeout, match=r"rank 0 has waited 0.01 s for a letter of rank 1"):
        made[0].take(0, 1, 0.01, "a letter of rank 1")


@pytest.mark.parametrize("what", ["lost", "generation", "failed"])
def test_who_waits_in_vain_is_told_why(what):
    opened, made = boxes("inproc")
    said = {"lost": "rank 1", "generation": "generation 3 began", "failed": "division"}[what]
    raised = []

    def wait():
        try:
            made[0].take(0, 1, 60, "a letter")
        except CollectiveError as error:
            raised.append(error)

    with opened as endpoints:
        waiting = threading.Thread(target=wait)
        waiting.start()
        if what == "lost":
            endpoints[1].close()
        elif what == "generation":
            endpoints[0].set_generation(3)
        else:
            made[0].fail(0, 1, ZeroDivisionError("division"))
        waiting.join(60)
        assert not waiting.is_alive()
    assert said in str(raised[0])
    assert "for a letter in vain" in str(raised[0])


def test_letters_of_an_older_generation_are_not_taken_later():
    opened, made = boxes("inproc")
    with opened as endpoints:
        made[0].post(0, 0, 1, np.ones(1, np.uint8), 30)
        for endpoint in endpoints:
            endpoint.set_generation(2)
        with pytest.raises(CollectiveError, match="generation 2 began"):
            made[0].take(0, 1, 30, "an old letter")
        made[1].post(0, 2, 1, np.full(1, 5, np.uint8), 30)
        assert made[0].take(2, 1, 30, "a new one")[1].tolist() == [5]


@pytest.mark.parametrize("step, part, size", [(4, 2, 4), (8, 4, 4), (1 << 40, 0, 4)])
def test_pieces_that_do_not_fit_end_the_connection(step, part, size):
    opened, made = boxes("inproc")
    with opened as endpoints:
        endpoints[1].send(0, module.HANDLER, b"x" * size, generation=0, step=step, tag=1, part=part)
        with pytest.raises(CollectiveError, match="a letter in vain"):
            made[0].take(0, 1, 60, "a letter")

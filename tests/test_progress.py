"""Progress is one live line in a terminal and one plain line per epoch elsewhere."""

import io
import os
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import futurex as fx
from futurex.training.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def run(stream):
    with Progress(total_steps=20, epochs=2, stream=stream) as progress:
        for step in range(1, 21):
            progress.update(step=step, epoch=1 + (step - 1) // 10, loss=1 / step, samples_per_second=12345.6)
            if step % 10 == 0:
                progress.epoch({"epoch": step // 10, "loss": 1 / step, "accuracy": None, "samples_per_second": 12345.6})
    return "" if stream is None else stream.getvalue()


PLAIN = "epoch 1/2  loss 0.1  samples_per_second 12,346\nepoch 2/2  loss 0.05  samples_per_second 12,346\n"


def test_a_file_gets_one_plain_line_per_epoch():
    assert run(io.StringIO()) == PLAIN


def test_a_terminal_gets_a_live_line_and_keeps_the_epochs(monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    shown = run(Terminal())
    for part in ("epoch 1/2  loss 0.1", "epoch 2/2  loss 0.05", "20/20", "loss 0.0500", "12,346 samples/s", "\x1b["):
        assert part in shown


def test_a_terminal_without_rich_gets_plain_lines(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    assert run(Terminal()) == PLAIN


def test_closing_twice_and_updating_after_it_do_nothing(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    progress = Progress(total_steps=2, epochs=1, stream=stream)
    progress.close()
    progress.close()
    before = stream.getvalue()
    progress.update(step=1, epoch=1, loss=0.5, samples_per_second=1.0)
    assert stream.getvalue() == before


def closed():
    stream = io.StringIO()
    stream.close()
    return stream


def full():
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    return open("/dev/full", "w", buffering=1)


@pytest.mark.parametrize("nowhere", [closed, full, lambda: None], ids=["closed", "full", "none"])
def test_a_training_goes_on_where_its_progress_cannot_be_shown(nowhere, monkeypatch):
    monkeypatch.setattr(sys, "stderr", nowhere())
    run = fx.fit(lambda w, x: ((x - w) ** 2).mean(), np.zeros(2), np.ones((8, 2)), epochs=2)
    assert run.result(60).shape == (2,)


def test_a_terminal_that_hangs_up_is_shown_nothing_more(monkeypatch):
    pty = pytest.importorskip("pty")
    pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = pty.openpty()
    progress = Progress(total_steps=2, epochs=1, stream=os.fdopen(theirs, "w"))
    os.close(ours)
    progress.update(step=1, epoch=1, loss=0.5, samples_per_second=1.0)
    progress.epoch({"epoch": 1, "loss": 0.5})
    progress.close()


@pytest.mark.parametrize("steps, epochs", [(0, 1), (1, 0)])
def test_a_run_without_steps_is_refused(steps, epochs):
    with pytest.raises(ValueError, match="at least 1"):
        Progress(total_steps=steps, epochs=epochs)


def below_the_cell(monkeypatch):
    """All that a notebook's cell is given to show."""
    display = pytest.importorskip("IPython.display")
    shown = []

    class Handle:
        def update(self, data, raw):
            shown.append(data["text/plain"])

    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: types.SimpleNamespace(kernel=True))
    monkeypatch.setattr(display, "display", lambda data, raw, display_id: Handle())
    return shown


def test_a_notebook_gets_one_line_that_changes(monkeypatch):
    shown = below_the_cell(monkeypatch)
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    run(None)
    assert shown[0] == "epoch 1/2  step 1/20  loss 1.0000  12,346 samples/s"
    assert shown[-1] == "epoch 2/2  loss 0.05  samples_per_second 12,346"
    assert len(shown) < 20  # a browser is not sent every step
    assert stream.getvalue() == ""


def test_a_notebook_says_below_the_cell_that_a_run_failed_whose_result_nobody_asks_for(monkeypatch):
    shown = below_the_cell(monkeypatch)
    def refusing(w, x):
        if x.max() > 0:
            raise ValueError("too large")
        return ((x - w) ** 2).mean()

    run = fx.fit(refusing, np.zeros(2), np.ones((8, 2)))
    with pytest.raises(ValueError, match="too large"):
        run.result(60)
    assert shown[-1] == "failed with ValueError: too large; run.result() raises it"


def test_a_cell_that_is_run_again_says_that_the_first_run_goes_on(monkeypatch):
    shown = below_the_cell(monkeypatch)

    def loss(w, x):
        return ((x - w) ** 2).mean()

    def begin(epochs):
        return fx.fit(loss, np.zeros(2), np.ones((8, 2)), epochs=epochs)

    first = begin(10**7)
    try:
        with pytest.raises(LookupError, match=r"no run 'other' goes on in this process; there is 'loss'"):
            fx.attach("other")
        assert not any("beside" in each for each in shown)
        begin(1).result(60)
        assert shown[-1].endswith("\nbeside another run 'loss', which goes on: fx.attach('loss').stop() ends it")
        assert fx.attach("loss") is first
    finally:
        first.stop()
    first.result(60)
    with pytest.raises(LookupError, match="there is none"):
        fx.attach("loss")
    begin(1).result(60)
    assert "beside" not in shown[-1]


def test_the_users_own_figures_are_shown(monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())

    def loss(w, x):
        return ((x - w) ** 2).mean(), {"reach": abs(w).max()}

    x = np.ones((8, 2))
    run = fx.fit(loss, np.zeros(2), (x,), epochs=2, validation=(x,), metrics={"worst": lambda w, x: abs(x - w).max()})
    run.result(60)
    line = stream.getvalue().splitlines()[-1]
    names = ["loss", "val_loss", "reach", "worst", "samples_per_second", "seconds"]
    assert [word for word in line.split() if word in names] == names
    assert [part.partition("<")[0] for part in run._repr_html_().split("<th scope='col'>")[1:]] == ["epoch", *names]

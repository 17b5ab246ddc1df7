"""The command line, from arguments to files."""

import os
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import futurex as fx
from futurex.cli import doctor, train
from futurex.cli.main import main
from futurex.cli.train import tree_nodes
from futurex.errors import MissingExtra
from futurex.runtime.timeline import Timeline
from futurex.training.checkpoint import load


def test_training_prints_results_and_writes_checkpoint_and_report(tmp_path, capsys):
    out = tmp_path / "digits"
    assert main(["train", "mlp", "--localities", "1", "--epochs", "6", "--out", str(out)]) == 0
    said, progress = capsys.readouterr()
    assert "1,438 examples, 9,610 parameters, 1 locality, " in said
    assert float(re.search(r"accuracy +([\d.]+)% on digits it has never seen", said)[1]) > 60
    assert re.search(r"throughput +[\d,]+ samples/s", said)
    assert "communication" not in said
    assert str(out / "report.html") in said
    assert progress.count("epoch ") == 6
    checkpoint = load(out / "step-000072")
    assert checkpoint.metrics["epoch"] == 6
    page = (out / "report.html").read_text()
    for part in ("matmul", "Timeline", "never seen", "trace.json", "val_loss"):
        assert part in page
    assert "http" not in page.split("<svg")[0]


def test_har_trains_on_what_it_is_limited_to(tmp_path, capsys):
    pytest.importorskip("seglearn")
    options = ["--localities", "1", "--epochs", "1", "--limit", "130", "--batch-size", "64", "--seed", "3"]
    assert main(["train", "har", *options, "--out", str(tmp_path)]) == 0
    assert "130 examples, 523,647 parameters" in capsys.readouterr().out
    assert load(tmp_path / "step-000003").params["conv1"]["w"].shape == (10, 6, 100)


@pytest.mark.cluster
@pytest.mark.timeout(300)  # two processes start and compile their kernels
def test_two_localities_say_how_much_communication_was_hidden(tmp_path, capsys):
    options = ["--localities", "2", "--epochs", "2", "--limit", "200"]
    assert main(["train", "mlp", *options, "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert re.search(r"communication hidden +\d+% of [\d.]+ s", said)
    assert re.search(r"beside instructions +\d+%, \d+% of the recorded", said)
    assert re.search(r"time +[\d.]+ s for 2 epochs, 4 steps", said)
    page = (tmp_path / "report.html").read_text()
    assert "rank 0" in page
    assert "rank 1" in page


def test_a_run_that_is_over_before_steps_are_recorded_says_nothing_of_them():
    record = {"accuracy": 0.5, "loss": 1.0, "val_loss": 1.0, "seconds": 1.0, "samples_per_second": 9.0}
    record |= {"comm_seconds": 0.2, "exposed_comm_seconds": 0.1}
    run = SimpleNamespace(history=[record], step=2, status="done", timeline=Timeline(), counters=[], memory=[])
    facts = train._facts(run, train.JOBS["mlp"], 3.0)
    assert (facts["time"], facts["communication hidden"]) == ("3.0 s for 1 epoch, 2 steps (done)", "50% of 0.20 s")
    assert "beside instructions" not in facts


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["trian", "har"], "did you mean 'train'?"),
        (["train", "hra"], "did you mean 'har'?"),
        (["train", "har", "--epoch", "3"], "unrecognized arguments: --epoch 3; did you mean --epochs?"),
        (["train", "har", "--batchsize=3"], "did you mean --batch-size?"),
        (["train", "har", "--epochs", "many"], "invalid int value: 'many'"),
        (["train", "har", "--transport", "udp"], "choose from 'auto', 'local', 'tcp', 'ucx'"),
        ([], "required: COMMAND"),
    ],
)
def test_wrong_arguments_name_the_nearest_choice(arguments, said, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--epochs", "0"], "epochs must be at least 1"),
        (["--limit", "0"], "limit must be at least 1"),
        (["--lr", "-1"], "lr must be a positive number"),
        (["--localities", "0"], "--localities must be at least 1"),
        (["--batch-size", "0"], "batch_size must be at least 1"),
        (["--seed", "-1"], "--seed must be at least 0, not -1"),
    ],
)
def test_impossible_values_end_with_one_sentence(arguments, said, tmp_path, capsys):
    assert main(["train", "mlp", "--localities", "1", "--out", str(tmp_path), *arguments]) == 1
    error = capsys.readouterr().err
    assert error.startswith("futurex train: ")
    assert said in error
    assert error.count("\n") == 1


def test_nothing_is_overwritten(tmp_path, capsys):
    arguments = ["train", "mlp", "--localities", "1", "--epochs", "1", "--limit", "64", "--out", str(tmp_path)]
    assert main(arguments) == 0
    assert main(arguments) == 1
    assert "choose another --out" in capsys.readouterr().err


def test_the_doctor_says_what_is_there(capsys):
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    for name in ("futurex", "python", "numpy", "onednn", "ucx", "dask", "[notebook]"):
        assert re.search(rf"^{re.escape(name)} +\S", said, re.MULTILINE)
    assert np.__version__ in said


def test_the_doctor_says_what_is_missing_and_how_to_get_it(capsys, monkeypatch):
    def missing():
        raise MissingExtra("libucp.so is not here: pip install 'futurex[ucx]'")

    monkeypatch.setattr(doctor.ucx_library, "load", missing)
    monkeypatch.setattr(doctor, "EXTRAS", {"train": ("no-such-package",)})
    monkeypatch.setattr(doctor, "PACKAGES", ("no-such-core",))
    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert "not usable: libucp.so is not here: pip install 'futurex[ucx]'" in said
    assert "without no-such-package: pip install 'futurex[train]'" in said
    assert "missing: pip install futurex" in said


@pytest.mark.skipif(os.name == "nt", reason="pipes break in another way")
def test_a_reader_who_has_seen_enough_gets_no_error():
    """``futurex doctor | head``: the reading end is closed before anything is printed."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        command = [sys.executable, "-m", "futurex", "doctor"]
        found = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=300, check=False)
    finally:
        os.close(writing)
    assert (found.returncode, found.stderr) == (141, "")


def test_the_tree_has_the_lines_of_the_user():
    nodes = tree_nodes(fx.lower(lambda x: np.exp(x) * 2.0, x=np.ones(3)).graph)
    assert [node.label for node in nodes] == ["x", "exp", "multiply"]
    assert nodes[2].inputs == (nodes[1].id,)
    assert "test_cli.py" in nodes[1].title
    assert "np.exp(x) * 2.0" in nodes[1].title


def test_version():
    found = subprocess.run(
        [sys.executable, "-m", "futurex", "--version"], capture_output=True, text=True, timeout=280, check=True
    )
    assert found.stdout.strip() == f"futurex {fx.__version__}"


@pytest.mark.parametrize("begun", [False, True])
def test_an_interrupt_keeps_what_a_run_has_learnt(begun, tmp_path, monkeypatch, capsys):
    """A run that has made no step yet has nothing to keep, and is left at once."""
    stopped = []

    class Training:
        step = 3 if begun else 0

        def result(self, timeout=None):
            if timeout is None or not stopped:
                raise KeyboardInterrupt
            raise ValueError("stopped")

        def stop(self):
            stopped.append(True)

    monkeypatch.setattr("futurex.cli.train._start", lambda *arguments: Training())
    code = main(["train", "mlp", "--localities", "1", "--limit", "64", "--out", str(tmp_path / "run")])
    assert (code, bool(stopped)) == ((1, True) if begun else (130, False))
    assert ("Ctrl-C again" in capsys.readouterr().out) == begun

"""What a run of fit writes, and the folders that it refuses."""

from pathlib import Path

import numpy as np
import pytest
from fit_problem import WAIT, fit, mean_square, problem

from futurex.training.checkpoint import load

pytestmark = pytest.mark.onednn


def test_a_checkpoint_holds_parameters_state_and_the_last_record(tmp_path):
    params, data = problem()
    run = fit(mean_square, params, data, epochs=2, batch_size=20, checkpoint=tmp_path)
    result = run.result(WAIT)
    assert run.saved == tmp_path / "step-000006"
    found = load(run.saved)
    np.testing.assert_array_equal(found.params["w"], result["w"])
    assert found.optimizer["step"] == 6.0
    assert found.metrics["epoch"] == 2


def test_a_failed_checkpoint_does_not_lose_the_parameters(tmp_path, monkeypatch):
    params, data = problem()

    def full(folder, _):
        raise OSError(28, "No space left on device", str(folder))

    monkeypatch.setattr("futurex.training.run.save", full)
    run = fit(mean_square, params, data, checkpoint=tmp_path)
    with pytest.raises(OSError, match="No space left") as caught:
        run.result(WAIT)
    assert run.status == "failed"
    assert run.params["w"].any()
    assert "run.params" in "".join(caught.value.__notes__)


def test_a_folder_whose_checkpoint_would_stay_the_newest_is_refused_before_anything_is_trained(tmp_path):
    params, data = problem()
    fit(mean_square, params, data, epochs=2, batch_size=25, checkpoint=tmp_path).result(WAIT)
    for epochs in (1, 2):
        with pytest.raises(ValueError, match=rf"step-000004, and this one ends at step {2 * epochs}: .*resume=True"):
            fit(mean_square, params, data, epochs=epochs, batch_size=25, checkpoint=tmp_path, seed=1)
    longer = fit(mean_square, params, data, epochs=3, batch_size=25, checkpoint=tmp_path)
    longer.result(WAIT)
    assert longer.saved.name == "step-000006"


def test_a_folder_where_nothing_can_be_written_is_refused_before_anything_is_trained(tmp_path):
    params, data = problem()
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "run", Path("/proc/run")):
        with pytest.raises(OSError, match="no checkpoint can be written there; name another folder") as caught:
            fit(mean_square, params, data, checkpoint=folder)
        assert caught.value.filename == str(folder)


def test_a_folder_belongs_to_one_run_at_a_time(tmp_path):
    params, data = problem()
    first = fit(mean_square, params, data, epochs=10**6, checkpoint=tmp_path, checkpoint_every=10**5)
    with pytest.raises(ValueError, match="another run that has not ended writes its checkpoints to"):
        fit(mean_square, params, data, checkpoint=tmp_path)
    first.stop()
    first.result(WAIT)
    resumed = fit(mean_square, params, data, epochs=10**6, checkpoint=tmp_path, resume=True)
    resumed.stop()
    resumed.result(WAIT)
    with pytest.raises(TypeError, match="momentum"):
        fit(mean_square, params, data, checkpoint=tmp_path / "other", momentum=1)
    fit(mean_square, params, data, checkpoint=tmp_path / "other").result(WAIT)

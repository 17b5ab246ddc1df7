"""The benchmark for a GPU says why there is none."""

from pathlib import Path

from futurex.kernels.cupy_ import devices


def test_without_a_gpu_the_benchmark_says_so_and_ends_well(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2]))
    from benchmarks import gpu

    assert gpu.why_not() == "FUTUREX_GPU=emulated runs on the processor" or devices._missing() is None
    if devices._missing() is not None:
        monkeypatch.delenv("FUTUREX_GPU")
        assert gpu.main(None) == 0
        assert capsys.readouterr().out.startswith("no GPU: CuPy")

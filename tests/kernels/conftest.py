"""Which tests run once more where oneDNN does not exist: those in which it acts, or what stands in front of it; and
where kernels of tests are kept."""

import pytest

from futurex.kernels.gemm import GemmBackend
from futurex.kernels.numba_ import program
from futurex.kernels.onednn_backend import OneDNNBackend


@pytest.fixture(autouse=True)
def others_do_without_onednn(request, monkeypatch):
    """A test without the mark runs once only, so these backends must have no part in it."""
    if request.node.get_closest_marker("onednn"):
        yield
        return
    taken = []

    def noting(claim):
        def noted(self, node, threads):
            kernel = claim(self, node, threads)
            if kernel is not None:
                taken.append(node.op)
            return kernel

        return noted

    for backend in (GemmBackend, OneDNNBackend):
        monkeypatch.setattr(backend, "claim", noting(backend.claim))
    yield
    assert not taken, f"mark the file with `pytest.mark.onednn`, so that {taken} run without it too"


@pytest.fixture(autouse=True)
def code_written_anew():
    """What a test pretends of the machine is part of the code, and of no other test's."""
    program._reducing.cache_clear()
    yield
    program._reducing.cache_clear()


@pytest.fixture(scope="module")
def own_cache(tmp_path_factory):
    """Kernels of the tests do not fill the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FUTUREX_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def compiled_at_once(own_cache):
    """Runs wait for their kernels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FUTUREX_COMPILE", "wait")
        yield

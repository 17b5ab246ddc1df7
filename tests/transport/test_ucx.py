"""What is particular to UCX: finding the library, its structures, strangers."""

import ctypes
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from transport_mesh import PATIENCE, SECRET, connect_all, listening, mesh, open_or_skip

from futurex.errors import MissingExtra
from futurex.runtime.transport import AuthenticationError, Completion, Header, open_endpoint, ucx, ucx_library
from futurex.runtime.transport.auth import Handshake
from futurex.runtime.transport.frames import pack_header

pytestmark = [pytest.mark.timeout(180), pytest.mark.ucx]


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch):
    """UCX is not loaded, and a test may hide where it comes from."""
    ucx_library.load.cache_clear()
    yield monkeypatch
    ucx_library.load.cache_clear()


def test_without_the_library_the_error_names_the_extra(no_library: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    no_library.setattr(ucx_library, "CDLL", missing)
    no_library.setitem(sys.modules, "libucx", None)
    with pytest.raises(MissingExtra, match=r"pip install 'futurex\[ucx\]'") as raised:
        open_endpoint("ucx", 0, 1, SECRET)
    assert isinstance(raised.value, ImportError)


def test_a_chosen_library_is_the_only_one_tried(no_library: pytest.MonkeyPatch) -> None:
    no_library.setenv("FUTUREX_LIBUCP", "/nowhere/libucp.so")
    with pytest.raises(MissingExtra, match=r"/nowhere/libucp\.so"):
        open_endpoint("ucx", 0, 1, SECRET)


def test_the_structures_have_the_layout_of_the_header_files(tmp_path: Path) -> None:
    libucx = pytest.importorskip("libucx")
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    fields = {
        "ucp_params_t": (ucx_library._Params, {"field_mask": "field_mask", "features": "features"}),
        "ucp_worker_params_t": (ucx_library._WorkerParams, {"thread_mode": "thread_mode"}),
        "ucp_am_handler_param_t": (ucx_library._HandlerParam, {"id": "id", "flags": "flags", "cb": "cb", "arg": "arg"}),
        "ucp_ep_params_t": (
            ucx_library._EndpointParams,
            {
                "address": "address",
                "err_mode": "err_mode",
                "err_callback": "err_handler.cb",
                "err_arg": "err_handler.arg",
            },
        ),
        "ucp_request_param_t": (
            ucx_library.RequestParam,
            {"flags": "flags", "callback": "cb", "datatype": "datatype", "user_data": "user_data"},
        ),
    }
    lines = [
        f'printf("%zu\\n", offsetof({c}, {theirs}));' for c, (_, names) in fields.items() for theirs in names.values()
    ]
    lines += [f'printf("%zu\\n", sizeof({c}));' for c in fields]
    program = "#include <stdio.h>\n#include <stddef.h>\n#include <ucp/api/ucp.h>\nint main(void) {%s return 0; }"
    source = tmp_path / "offsets.c"
    source.write_text(program % "\n".join(lines))
    include = Path(libucx.__file__).parent / "include"
    subprocess.run(["gcc", f"-I{include}", str(source), "-o", str(tmp_path / "offsets")], check=True, timeout=100)
    output = subprocess.run([str(tmp_path / "offsets")], capture_output=True, text=True, check=True, timeout=100).stdout
    values = [int(line) for line in output.split()]
    ours = [getattr(python, name).offset for python, names in fields.values() for name in names]
    assert values[: len(ours)] == ours
    for needed, (python, _) in zip(values[len(ours) :], fields.values(), strict=True):
        assert ctypes.sizeof(python) >= needed


def test_nothing_listens_on_the_network() -> None:
    before = listening()
    with mesh("ucx", 2):
        assert not listening() - before


@pytest.mark.parametrize(
    "blob", [b"", b"tcp://127.0.0.1:1", ucx._MAGIC + bytes(200), ucx._sign("x", b"y", b"other" * 8)]
)
def test_an_address_that_the_secret_did_not_sign_is_refused(blob: bytes) -> None:
    with open_or_skip("ucx", 0, 2) as endpoint, pytest.raises(AuthenticationError, match="rank 1"):
        endpoint.connect([endpoint.address, blob], 1.0)


def test_a_rogue_that_knows_the_address_is_not_served() -> None:
    real = [open_or_skip("ucx", rank, 2) for rank in range(2)]
    secret = b"0123456789abcdef"
    rogue = open_or_skip("ucx", 1, 2, secret)
    name, worker_address = ucx._verify(real[0].address, SECRET, 0)
    served, arrived = [], Completion()
    real[0].register(1, lambda header, payload: served.append(bytes(payload)))
    real[0].register(2, lambda header, payload: arrived.finish())
    try:
        rogue._dial(0, ucx._sign(name, worker_address, secret), 1e9)
        channel = rogue._channels[0]
        for header in (b"", bytes(7), bytes(16) + pack_header(Header(1, 0, 0, 1, 0, 0, 4))):
            with rogue._lock:
                rogue._submit(channel, ucx._DATA, header, memoryview(b"evil"), None, 0)
                rogue._submit(channel, ucx._DATA, header, memoryview(bytes(1 << 20)), None, 0)
                rogue._submit(channel, ucx._CONTROL, header, memoryview(b"evil"), None, 0)
        assert connect_all(real) == [None, None]
        real[1].send(0, 2, b"good", generation=0)
        arrived.wait(PATIENCE)
        deadline = time.monotonic() + PATIENCE  # the stranger's messages come by a way of their own
        while real[0].counters.rejected < 9 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert served == []
        assert real[0].counters.rejected >= 9
        assert real[0].lost == {}
    finally:
        for endpoint in (*real, rogue):
            endpoint.close()


@pytest.mark.parametrize("announced, sent, ahead", [(4, 64, 0), (4, 1 << 20, 0), (64, 64, -1)])
def test_a_peer_whose_messages_are_not_as_it_says_is_lost(announced: int, sent: int, ahead: int) -> None:
    """There is memory for what it announces, and every message has a number of its own."""
    served, lost = [], Completion()
    with mesh("ucx", 2) as (first, second):
        first.register(1, lambda header, payload: served.append(len(payload)))
        first.on_peer_lost(lambda error: lost.finish())
        second.send(0, 1, bytes(64), generation=0)
        channel = second._channels[0]
        header = ucx._ENVELOPE.pack(channel.token_out, channel.sent + ahead)
        header += pack_header(Header(1, 0, 0, 1, 0, 0, announced))
        with second._lock:
            second._submit(channel, ucx._DATA, header, memoryview(bytes(sent)), None, 0)
        lost.wait(PATIENCE)
        assert "a malformed message from rank 1" in str(first.lost[1])
    assert served == [64]


def test_a_connected_rank_does_not_authenticate_again() -> None:
    with mesh("ucx", 2) as (first, _):
        handshake, greeting = first._channels[1].handshake, Handshake(1, 2, SECRET, peer=0).greeting()
        first.run_on_thread(lambda: first._authenticate(1, greeting), PATIENCE)
        assert first._channels[1].handshake is handshake
        assert first.counters.rejected == 1


def test_no_rank_speaks_for_another() -> None:
    with open_or_skip("ucx", 0, 3) as first, open_or_skip("ucx", 1, 3) as second:
        first.run_on_thread(lambda: first._open(1, second.address), PATIENCE)
        greeting = Handshake(2, 3, SECRET, peer=0).greeting()
        first.run_on_thread(lambda: first._authenticate(1, greeting), PATIENCE)
        assert first.counters.rejected == 1

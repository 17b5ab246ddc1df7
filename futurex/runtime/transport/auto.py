"""The transport for any cluster: memory that they share between the ranks of a machine, TCP between machines.

Which of the two is meant is decided for each pair of ranks: by the boot of the kernel, the network namespace (where
local sockets have their names) and the user. Both ways lead to one endpoint, with one thread and one set of handlers.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from futurex.runtime import config
from futurex.runtime.transport.doors import Door, TcpDoor
from futurex.runtime.transport.errors import PeerLost
from futurex.runtime.transport.local import LocalEndpoint
from futurex.runtime.transport.message import Limits
from futurex.runtime.transport.wire import Tls

_SCHEME = "auto://"


def machine_name(given: str | None = None) -> str:
    """Return what the processes of one machine have in common: `given`, FUTUREX_MACHINE, or what the kernel says."""
    given = given or config.machine()
    if given is None:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        network = os.stat("/proc/self/ns/net")
        given = f"{boot} {network.st_dev} {network.st_ino} {os.geteuid()}"
    return hashlib.sha256(given.encode()).hexdigest()[:32]


class AutoEndpoint(LocalEndpoint):
    """A rank that shares memory with the ranks of its machine, and reaches the others over TCP.

    Ranks that give the same `machine` are on one; by default it is found out (`machine_name`).
    """

    def __init__(
        self, rank: int, size: int, secret: bytes, limits: Limits, host: str, tls: Tls | None, machine: str | None
    ) -> None:
        self._machine = machine_name(machine)
        self._port = TcpDoor(host, tls, size + limits.max_guests)
        super().__init__(rank, size, secret, limits, "auto", [self._port])
        self.machines = ()  # not known before the addresses are
        self.address = f"{_SCHEME}{self._machine}|{'|'.join(door.address for door in self._doors)}".encode()

    def connect(self, addresses: list[bytes], timeout: float) -> None:
        """Open the channels, each in its way; where nobody is elsewhere, no port stays open."""
        numbers: dict[str, int] = {}
        names = [_parsed(peer, address)[0] for peer, address in enumerate(addresses)]
        self.machines = tuple(numbers.setdefault(name, len(numbers)) for name in names)
        super().connect(addresses, timeout)
        if len(numbers) == 1:
            self.run_on_thread(self._shut, timeout)

    def _way(self, peer: int, address: bytes) -> tuple[Door, str]:
        machine, local, port = _parsed(peer, address)
        return (self._doors[0], local) if machine == self._machine else (self._port, port)

    def _shut(self) -> None:
        self._selector.unregister(self._port.listener)
        self._port.listener.close()


def _parsed(peer: int, address: bytes) -> tuple[str, str, str]:
    text = address.decode(errors="replace")
    parts = text.removeprefix(_SCHEME).split("|")
    if not text.startswith(_SCHEME) or len(parts) != 3:
        raise PeerLost(peer, text, "its address is not that of an endpoint that chooses for itself (transport 'auto')")
    return parts[0], parts[1], parts[2]

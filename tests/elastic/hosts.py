"""Hosts on one machine: network namespaces on a bridge, whose cables can be unplugged. They need root and iproute2."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any


class NoHosts(Exception):
    """Why there are none."""


class Hosts:
    """``n`` hosts; number 0 has the bridge, and all of them reach each other as :meth:`address` says."""

    def __init__(self, n: int) -> None:
        if os.geteuid() or shutil.which("ip") is None:
            raise NoHosts("network namespaces need root and iproute2")
        name = secrets.token_hex(3)
        self.names = [f"fx{name}{k}" for k in range(n)]
        self._processes: list[subprocess.Popen[str]] = []
        try:
            for each in self.names:
                _ip("netns", "add", each)
                _ip("-n", each, "link", "set", "lo", "up")
            _ip("-n", self.names[0], "link", "add", "bridge", "type", "bridge")
            _ip("-n", self.names[0], "address", "add", f"{self.address(0)}/24", "dev", "bridge")
            _ip("-n", self.names[0], "link", "set", "bridge", "up")
            for k, each in enumerate(self.names[1:], 1):
                port = f"port{k}"
                _ip(
                    "-n", self.names[0], "link", "add", port, "type", "veth", "peer", "name", "cable", "netns", each
                )  # fmt: skip
                _ip("-n", self.names[0], "link", "set", port, "master", "bridge")
                _ip("-n", self.names[0], "link", "set", port, "up")
                _ip("-n", each, "address", "add", f"{self.address(k)}/24", "dev", "cable")
                _ip("-n", each, "link", "set", "cable", "up")
        except NoHosts:
            self.close()
            raise

    def address(self, host: int) -> str:
        """Of a host; the subnet is one that nobody routes."""
        return f"192.0.2.{host + 1}"

    def start(self, host: int, command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        """Start a program on a host."""
        process = subprocess.Popen(["ip", "netns", "exec", self.names[host], *command], text=True, **options)
        self._processes.append(process)
        return process

    def unplug(self, host: int) -> None:
        """Nothing reaches the host any more, and nothing comes from it; no connection is closed."""
        _ip("-n", self.names[0], "link", "set", f"port{host}", "down")

    def plug_in(self, host: int) -> None:
        """As before."""
        _ip("-n", self.names[0], "link", "set", f"port{host}", "up")

    def close(self) -> None:
        """End all programs, and take the hosts away."""
        for process in self._processes:
            process.kill()  # `ip netns exec` becomes the program
            process.wait()
        for each in self.names:
            subprocess.run(["ip", "netns", "del", each], capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoHosts(f"`ip {' '.join(arguments)}`: {done.stderr.strip()}")

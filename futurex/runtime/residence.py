"""Arrays that stay on a device: how they come to the host, how they are copied, and how they get there."""

from __future__ import annotations

from typing import Any

import numpy as np

from futurex.kernels.cupy_.devices import Device
from futurex.kernels.cupy_.streams import fetching, lane
from futurex.runtime.futures import Resident


class Home:
    """The device on which arrays live."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def fetch(self, resident: Resident) -> Any:
        """The array on the host, once it is there; what was launched after it is not waited for."""
        with lane(self.device, [resident.ready], fetching(self.device)):
            return self.device.to_host(resident.array)

    def copy(self, resident: Resident) -> Resident:
        """The same values in memory of its own."""
        with lane(self.device, [resident.ready]) as ready:
            array = resident.array.copy()
        return Resident(array, ready[0], self)

    def put(self, array: np.ndarray) -> Resident:
        """An array of the host on the device."""
        with lane(self.device, []) as ready:
            there = self.device.to_device(array)
        return Resident(there, ready[0], self)

"""The extension of the array standard for Fourier transforms."""

from __future__ import annotations

import numpy as np

from futurex.numpy.arrays import staged
from futurex.numpy.functions import fftfreq, rfftfreq

_NAMES = "fft ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft fftshift ifftshift"
FUNCTIONS = _NAMES.split()
globals().update({name: staged(getattr(np.fft, name)) for name in FUNCTIONS})

__all__ = ["FUNCTIONS", "fftfreq", "rfftfreq"]

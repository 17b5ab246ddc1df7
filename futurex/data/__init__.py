"""Data sets that need no download, and the sampler that deals them out."""

from futurex.data.dataset import Dataset
from futurex.data.digits import load_digits
from futurex.data.har import load_har
from futurex.data.sampler import Sampler

__all__ = ["Dataset", "Sampler", "load_digits", "load_har"]

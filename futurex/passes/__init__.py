"""Passes: pure Graph -> Graph rewrites, listed in order in :mod:`futurex.passes.pipeline`."""

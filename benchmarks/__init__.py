"""Benchmarks of futurex against its peers: one script per question, see ``benchmarks/README.md``."""

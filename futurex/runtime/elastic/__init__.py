"""Runs that go on when localities come and go: who takes part, in which generation, and from which commit."""

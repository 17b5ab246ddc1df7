"""What cannot be compiled."""


class Unsupported(Exception):
    """The loop stays with the interpreter; the text says why."""

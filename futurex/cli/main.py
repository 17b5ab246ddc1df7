"""``futurex``: train a network, or say what is installed."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import futurex
from futurex.cli import doctor, train
from futurex.errors import FuturexError


class _Parser(argparse.ArgumentParser):
    """Errors name the nearest choice."""

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if wrong:
            choices = [choice.strip(" '") for choice in wrong[2].split(",")]
            close = difflib.get_close_matches(wrong[1], choices, 1)
            message += f"; did you mean {close[0]!r}?" if close else ""
        super().error(message)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 1 after an error that is said on standard error, 130 after Ctrl-C, 141
    where nobody reads what it prints any more (``futurex doctor | head``).

    >>> main(["train", "mlp", "--epochs", "3", "--localities", "1"])  # doctest: +SKIP
    0
    """
    parser, commands = _parsers()
    options, unknown = parser.parse_known_args(arguments)
    command = commands[options.command]
    if unknown:
        command.error(f"unrecognized arguments: {' '.join(unknown)}{_nearest(unknown[0], command)}")
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        code = run(options)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is flushed when the process ends
        return 141
    except (FuturexError, ValueError, TypeError, OSError) as error:
        print(f"futurex {options.command}: {error}", file=sys.stderr)
        return 1


def _nearest(option: str, parser: argparse.ArgumentParser) -> str:
    known = [name for action in parser._actions for name in action.option_strings]
    close = difflib.get_close_matches(option.split("=")[0], known, 1)
    return f"; did you mean {close[0]}?" if close else ""


def _parsers() -> tuple[_Parser, dict[str, argparse.ArgumentParser]]:
    parser = _Parser(prog="futurex", description=__doc__, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"futurex {futurex.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    training = commands.add_parser("train", help="train a network on data that needs no download", allow_abbrev=False)
    _add_training(training)
    checking = commands.add_parser("doctor", help="say what is installed and what is missing", allow_abbrev=False)
    checking.add_argument("--scheduler", metavar="ADDRESS", help="look at the Dask cluster there, too")
    checking.set_defaults(run=doctor.run)
    return parser, {"train": training, "doctor": checking}


def _add_training(parser: argparse.ArgumentParser) -> None:
    add, default = parser.add_argument, "(%(default)s unless given)"
    add("model", choices=sorted(train.JOBS), help="har: human activity recognition; mlp: handwritten digits")
    add("--epochs", type=int, help="passes over the data (as many as the model needs unless given)")
    add("--localities", type=int, default=2, help=f"worker processes; 1 trains in this process {default}")
    add("--batch-size", type=int, default=128, help=f"examples in a batch, over all localities {default}")
    add("--limit", type=int, help="use only so many examples of each part")
    add("--seed", type=int, default=0, help=f"of initial weights, batches and dropout {default}")
    add("--lr", type=float, default=1e-3, help=f"learning rate of Adam {default}")
    kinds = ("auto", "local", "tcp", "ucx")
    add("--transport", choices=kinds, default="auto", help=f"how localities exchange gradients {default}")
    add("--out", type=Path, help="folder of checkpoint and report (a new one in runs/ unless given)")
    parser.set_defaults(run=train.run)

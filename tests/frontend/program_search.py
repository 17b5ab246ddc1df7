"""Random programs, plain and futurized: do they mean the same? A failing one is cut down to what matters.

Run as a script for a longer search: ``python program_search.py 5000 [first seed [array|flow|kinds ...]]``
with ``tests`` on the path. Prints every program that means something else, and how many were staged.
"""

import collections
import contextlib
import importlib.util
import itertools
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
from argument_programs import ArgumentWriter
from array_programs import ArrayWriter, LargeWriter, SmoothWriter
from class_programs import ClassWriter
from compare import agree, bits, is_staged, plain
from kind_programs import GrowingWriter, KindWriter
from programs import Writer
from recursion_programs import RecursionWriter
from table_programs import TableWriter

import futurex as fx
from futurex.autodiff.reverse import NotDifferentiable
from futurex.frontend.errors import StagingError

_numbers = itertools.count()


def load(text, folder):
    """The module of a program, from a file so that its source is found."""
    path = Path(folder) / f"program_{next(_numbers)}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kinds(value):
    """The types of what a result holds: which numbers are Python's, which NumPy's, which are arrays without axes."""
    if isinstance(value, dict):
        return {key: kinds(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [kinds(entry) for entry in value]
    return type(value).__name__


def whose(value, args):
    """Which of the lists in a result are those of the caller, and where these have them."""
    given = {id(arg): place for place, arg in enumerate(args) if type(arg) is list}
    given |= {id(row): (place, k) for place, arg in enumerate(args) if type(arg) is list for k, row in enumerate(arg)}
    parts = enumerate(value) if isinstance(value, tuple) else [(0, value)]
    return {k: given[id(part)] for k, part in parts if type(part) is list and id(part) in given}


def outcome(module, function, seed):
    """Result or error of a call, the arguments afterwards, and the module's arrays, which are put back."""
    arrays = [value for value in vars(module).values() if isinstance(value, np.ndarray)]
    before = [array.copy() for array in arrays]
    args = module.inputs(seed)
    try:
        with np.errstate(all="ignore"):
            made = function(*args)
            value = plain(made)
        result = ("value", bits(value), (kinds(value), kinds(args), whose(made, args)))
    except Exception as error:
        result = ("error", type(error), None)
    after = bits([list(args), arrays])
    for array, old in zip(arrays, before, strict=True):
        np.copyto(array, old)
    return result, after


def disagreement(text, folder, seeds=(1, 2, 3)):
    """What differs between the plain and the futurized program ("" if nothing), and whether it was staged."""
    module = load(text, folder)
    futurized = fx.futurize(module.program)
    seeds = getattr(module, "SEEDS", seeds)
    for seed in seeds:
        (kind, value, numbers), after = outcome(module, module.program, seed)
        (kind_now, value_now, numbers_now), after_now = outcome(module, futurized, seed)
        if not agree((kind_now, value_now, after_now), (kind, value, after)):
            what = "VALUE" if kind == kind_now == "value" else "ERROR"
            return (
                f"{what}: inputs {seed}:\n{value_now}\n{after_now}\nis not\n{value}\n{after}\n{futurized.explain()}"
            ), True
        if numbers != numbers_now:
            return f"NUMBER: inputs {seed}:\n{numbers_now}\nis not\n{numbers}\n{futurized.explain()}", True
    return "", any(is_staged(futurized, module.inputs(seed)) for seed in seeds[:1])


def slope_disagreement(text, folder, seeds=(1, 2)):
    """What is wrong with the gradient of a program ("" if nothing), and whether it has one."""
    module = load(text, folder)
    staged = False
    for seed in seeds:
        args = module.inputs(seed)
        numbers = [k for k, arg in enumerate(args) if np.asarray(arg).dtype.kind == "f"]
        direction = [np.random.default_rng(k).normal(size=np.shape(args[k])) for k in numbers]

        def along(step, seed=seed, numbers=numbers, direction=direction):
            moved = list(module.inputs(seed))
            for k, way in zip(numbers, direction, strict=True):
                moved[k] = moved[k] + step * way if isinstance(moved[k], np.ndarray) else float(moved[k] + step * way)
            result = module.program(*moved)
            return float("nan") if np.iscomplexobj(result) else float(result)  # only real functions have slopes

        with np.errstate(all="ignore"):
            try:
                value = along(0.0)
                estimates = [
                    (8 * (along(h) - along(-h)) - (along(2 * h) - along(-2 * h))) / (12 * h) for h in (1e-5, 3e-5, 1e-4)
                ]
            except Exception:
                continue
        size = 1 + max(map(abs, estimates))
        if not np.isfinite([value, *estimates]).all() or np.ptp(estimates) > 1e-5 * size or max(size, abs(value)) > 1e8:
            continue  # not smooth here
        with np.errstate(all="ignore"):
            ahead, behind = (along(1e-5) - value) / 1e-5, (value - along(-1e-5)) / 1e-5
        if abs(ahead - behind) > 1e-2 * size:
            continue  # a corner: equal elements of two arguments, of which the larger is taken
        try:
            with np.errstate(all="ignore"):
                found, gradients = plain(
                    fx.value_and_grad(module.program, argnums=numbers)(
                        *[np.array(arg) if isinstance(arg, np.ndarray) else arg for arg in args]
                    )
                )
        except (StagingError, NotDifferentiable):
            continue
        staged = True
        actual = sum(np.sum(g * way) for g, way in zip(gradients, direction, strict=True))
        if np.isnan(actual):
            continue  # zero times the infinite slope of what nobody reads
        if not np.isclose(found, value, rtol=1e-9, atol=1e-9) or not np.isclose(
            actual, estimates[1], rtol=1e-4, atol=1e-4 * size
        ):
            return f"SLOPE: inputs {seed}: value {found}, slope {actual}, is not {value}, {estimates}", True
    return "", staged


def share_staged(writer, number, folder, judge=disagreement):
    """The share of staged ones among a writer's first programs, each of which means the same, plain and futurized."""
    staged = 0
    for seed in range(number):
        text = written(seed, writer)
        wrong, traced = judge(text, folder)
        assert not wrong, f"seed {seed}\n{text}\n{wrong}"
        staged += traced is True
    return staged / number


def judged(text, folder):
    """``disagreement``, or that of the gradient, with whatever is raised as text."""
    try:
        return slope_disagreement(text, folder) if "= smooth(" in text else disagreement(text, folder)
    except Exception:
        return f"CRASH:\n{traceback.format_exc(limit=-4)}", False


class TooLong(BaseException):
    """A program that takes too long, as loops that double an array do; no ``except`` of a program catches it."""


@contextlib.contextmanager
def limited(seconds):
    """Raise TooLong in the main thread after ``seconds``."""

    def ring(*_):
        raise TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def smaller(text, folder):
    """The program with every statement removed that the disagreement does not need."""
    what = judged(text, folder)[0].partition(":")[0]
    head, lines = text[: text.index("def program")], text[text.index("def program") :].splitlines()
    changed = True
    while changed:
        changed = False
        for k in range(len(lines) - 1, 0, -1):
            for candidate in _without(lines, k):
                try:
                    compile("\n".join(candidate), "", "exec")
                except SyntaxError:
                    continue
                if _same_trouble(head + "\n".join(candidate) + "\n", folder, what):
                    lines, changed = candidate, True
                    break
            if changed and k > len(lines) - 1:
                break
    return head + "\n".join(lines) + "\n"


def _same_trouble(text, folder, what):
    try:
        with limited(10):
            return judged(text, folder)[0].partition(":")[0] == what
    except TooLong:
        return False


def _indent(line):
    return len(line) - len(line.lstrip())


def _without(lines, k):
    """The lines without line k and its block; without line k and its block moved out; with a pass for it."""
    if k >= len(lines):
        return
    end = k + 1
    while end < len(lines) and _indent(lines[end]) > _indent(lines[k]):
        end += 1
    yield lines[:k] + lines[end:]
    if end > k + 1:
        yield lines[:k] + [line[4:] for line in lines[k + 1 : end]] + lines[end:]
    elif lines[k].strip() != "pass":
        yield [*lines[:k], " " * _indent(lines[k]) + "pass", *lines[end:]]


def written(seed, writer):
    """The text of the program of a seed."""
    rng = random.Random(seed)
    return writer(rng.randrange).program(2 + rng.randrange(7))


def why_not(text, folder):
    """The reason why a program is not staged."""
    module = load(text, folder)
    try:
        fx.futurize(module.program).trace(*module.inputs(1))
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0].split(': ')[-1]}"
    return ""


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    kinds_of_programs = {
        "array": ArrayWriter, "flow": Writer, "smooth": SmoothWriter, "large": LargeWriter,
        "recursion": RecursionWriter, "kinds": KindWriter, "growing": GrowingWriter, "tables": TableWriter,
        "classes": ClassWriter, "arguments": ArgumentWriter,
    }  # fmt: skip
    writers = [kinds_of_programs[name] for name in sys.argv[3:] or kinds_of_programs]
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    n_staged, kinds, reasons, start = 0, collections.Counter(), collections.Counter(), time.monotonic()
    for seed in range(first, first + count):
        print("seed", seed, file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            for writer in writers:
                try:
                    with limited(15):
                        text = written(seed, writer)
                        wrong, staged = judged(text, folder)
                except TooLong:
                    reasons["too long"] += 1
                    continue
                n_staged += staged
                if wrong:
                    kinds[wrong.partition(":")[0]] += 1
                    text = smaller(text, folder)
                    flows = writer in (Writer, RecursionWriter)
                    body = text[text.index("def program" if flows else "def inputs") :]
                    print(f"--- {writer.__name__} seed {seed}\n{body}\n{judged(text, folder)[0][:1800]}\n", flush=True)
                elif not staged:
                    reasons["no slope" if writer is SmoothWriter else why_not(text, folder)] += 1
    total = count * len(writers)
    seconds = time.monotonic() - start
    print(f"{total} programs, {n_staged} staged, {sum(kinds.values())} differ {dict(kinds)}, {seconds:.0f} s")
    for reason, n in reasons.most_common(40):
        print(n, reason)


if __name__ == "__main__":
    main()

"""One call of generated code at a time: its block and scratch memory, and the function that goes in and out.

That function is written for the program, as Python without loops over arguments and results: a call of generated code
takes some hundred nanoseconds, and looking at what kind of thing each argument is would take many times as long.
"""

from __future__ import annotations

import builtins
import ctypes
import functools
import os
import struct
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from futurex.kernels import interrupts
from futurex.kernels.addresses import DATA_OFFSET, IN_ORDER, address_of, on_lines
from futurex.kernels.loops.arrays import Opaque
from futurex.kernels.loops.calls import Calls, Cell
from futurex.kernels.loops.looking import CALLED, ENDED, FETCHED, FIRST_BLOCK
from futurex.kernels.loops.streams import Stream
from futurex.kernels.numba_.compiler import Entry
from futurex.kernels.numba_.team import Share
from futurex.tree.aval import PYTHON_SCALARS

if TYPE_CHECKING:
    from futurex.kernels.loops.program import Program

_CODE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_FILE = os.path.join(os.path.dirname(__file__), "<call>")
Results = tuple[Any, ...] | None


class Written(NamedTuple):
    """A result that the code writes into an array that the call brings, in C order: its shape and type."""

    shape: tuple[int, ...]
    dtype: Any


def is_fixed(cell: Cell) -> bool:
    """Is it known where a result lies?"""
    return cell.array.place.scratch and not cell.extents and cell.offset is None


class Source:
    """The text of a program's function; ``into``: results go into arrays that the caller brings."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._looks = bool(program.calls or program.drawers) or any(
            isinstance(cell, Opaque) or (isinstance(cell, Cell) and not ours and not is_fixed(cell))
            for cell, _, ours in program.outs
        )
        """Does somebody look at the arrays and objects of a run?"""

    @functools.cached_property
    def fresh(self) -> types.CodeType:
        return self._code(into=False)

    @functools.cached_property
    def fitting(self) -> types.CodeType:
        return self._code(into=False, fitting=True)

    @functools.cached_property
    def into(self) -> types.CodeType:
        return self._code(into=True)

    def _code(self, into: bool, fitting: bool = False) -> types.CodeType:
        lines = [*self._entrance(into, fitting), *self._run(), *self._results(into)]
        module = compile("def run(inputs, outs):\n" + "".join(f" {line}\n" for line in lines), _FILE, "exec")
        return next(each for each in module.co_consts if isinstance(each, types.CodeType))

    def _entrance(self, into: bool, fitting: bool) -> list[str]:
        """Arguments as words of the block; those that the code overwrites are copies. ``fitting``: nobody need look
        what kind of array each of them is."""
        entries = self._program.entries
        lines = [f"{''.join(f'i{k}, ' for k in range(len(entries)))} = inputs"] if entries else []
        words, copies = [], []
        for k, wanted in enumerate(entries):
            if wanted is None:
                lines.append(f"if type(i{k}) not in numbers: i{k} = i{k}.item()")
                words.append(f"i{k}")
            elif not isinstance(wanted, Opaque):
                shape = f"{{0}}.shape{'[1:]' if wanted.open else ''} == s{k}"
                fits = f"{shape} and ({{0}}.dtype is d{k} or {{0}}.dtype == d{k})"
                name = f"i{k}"
                if wanted.owned and into:
                    name = f"o{k}"
                    lines += [f"o{k} = outs[{k}]", f"if not ({fits.format(name)}): misfit(o{k}, s{k}, d{k})"]
                    copies += [f"if at(o{k}) != at(i{k}): copyto(o{k}, i{k})"] * (k not in self._program.refilled)
                elif not wanted.shape and not wanted.open:
                    lines.append(f"if type(i{k}) is not ndarray: i{k} = array(i{k}, d{k})")
                elif wanted.owned:
                    lines.append(f"i{k} = array(i{k}, order='C')")
                    lines += [f"if not ({fits.format(name)}): misfit(i{k}, s{k}, d{k})"] * (not fitting)
                elif not fitting or wanted.open:
                    ready = f"type(i{k}) is ndarray and i{k}.flags.num & {IN_ORDER} == {IN_ORDER}"
                    how = f"admitted(i{k}, s{k}, d{k}, {wanted.open})"
                    lines.append(f"if not ({ready} and {fits.format(name)}): i{k} = {how}")
                words.append(f"{'id' if DATA_OFFSET else 'at'}({name})")
                words += [f"len({name})"] * wanted.open
        for k in self._program.written:
            own = f"empty(w{k}, e{k})"
            lines += [f"o{k} = outs[{k}]", f"if o{k} is None: o{k} = {own}"] if into else [f"o{k} = {own}"]
            words.append(f"{'id' if DATA_OFFSET else 'at'}(o{k})")
        packed = "".join(f", {word}" for word in words)
        lines.append("try:")
        for number in range(self._program.threads):
            lines.append(f" pack(block, {8 * number * self._program.words}, 0, base{number}{packed})")
        lines.append("except too_large: return None")  # a Python int that needs more than 64 bits
        if self._looks:
            arrays = ", ".join(
                f"{wanted.word}: {'o' if into and wanted.owned else 'i'}{k}"
                for k, wanted in enumerate(entries) if isinstance(wanted, tuple)
            )  # fmt: skip
            objects = ", ".join(f"{each.index}: i{k}" for k, each in enumerate(entries) if isinstance(each, Opaque))
            copies.append(f"calls.begin({{**kept, {arrays}}}, {{**objects, {objects}}})")
        return [*lines, *copies]

    def _run(self) -> list[str]:
        threads = self._program.threads
        lines = ["on_threads(block, share)" if threads > 1 else "code(where)"]
        numbers = "".join(f", r{k}" for k, (cell, _, _) in enumerate(self._program.outs) if cell is None)
        lines.append(f"status{numbers or ','} = unpack(block)")
        failed = "status" if threads == 1 else "statuses.any()"
        ended = self._program.look is not None or self._looks
        return [*lines, f"if {failed}: return {'ended(calls, statuses, fetched)' if ended else None}"]

    def _results(self, into: bool) -> list[str]:
        entries = self._program.entries
        homes = {
            wanted.word: f"{'o' if into else 'i'}{k}"
            for k, wanted in enumerate(entries) if isinstance(wanted, tuple) and wanted.owned
        }  # fmt: skip
        lines, results = [], []
        # What the caller holds, or another result is.
        shared = {wanted.index for wanted in entries if isinstance(wanted, Opaque)}
        for k, (cell, kind, ours) in enumerate(self._program.outs):
            result = f"r{k}"
            if cell is None:
                if into:
                    lines += [f"o{k} = outs[{k}]", f"if o{k} is not None: o{k}[()] = r{k}; r{k} = o{k}"]
                    lines += [f"else: r{k} = k{k}(r{k})"] * (kind is not None)
                elif kind is not None:
                    result = f"k{k}(r{k})"
            elif isinstance(cell, Written):
                result = f"o{k}"
            elif isinstance(cell, Stream):
                result = f"calls.state({cell.index})"
            elif isinstance(cell, Opaque):
                found = f"calls.objects[{cell.index}]"
                result = f"apart({found})" if cell.index in shared else found
                shared.add(cell.index)
            elif ours:
                result = homes[cell.array.place.index]
            else:
                found = f"v{k}" if is_fixed(cell) else f"view(c{k})"
                own = ".copy()" if cell.array.shape else ".item()" if cell.weak else "[()]"
                if into:
                    lines += [f"o{k} = outs[{k}]", f"r{k} = {found}"]
                    lines.append(f"if o{k} is not None: copyto(o{k}, r{k}); r{k} = o{k}")
                    lines.append(f"else: r{k} = r{k}{own}")
                else:
                    result = f"{found}{own}"
            results.append(f"{result}.transpose(t{k})" if k in self._program.turned else result)
        found = f"({''.join(f'{each}, ' for each in results)})"
        if not self._looks:
            return [*lines, f"return {found}"]
        return [*lines, f"results = {found}", "calls.end()", "return results"]


class Instance:
    """Block and scratch memory of one call at a time; ``run(inputs, outs)`` gives its results, None after a failure."""

    def __init__(self, program: Program, entry: Entry) -> None:
        self._program = program
        scratch = on_lines((program.scratch * program.threads,), np.dtype(np.uint8))
        blocks = np.tile(program.template, (program.threads, 1))
        bases = [address_of(scratch) + number * program.scratch for number in range(program.threads)]
        calls, fetched = Calls(program.calls, program.drawers, scratch, blocks[0]), None
        if (look := program.look) is not None:
            blocks[:, [look + FIRST_BLOCK, look + CALLED]] = address_of(blocks), id(calls)
            fetched = blocks[:, look + FETCHED : look + FETCHED + 3]
        for words, base in zip(blocks, bases, strict=True):
            if len(program.in_scratch):
                words[program.in_scratch[:, 0]] = program.in_scratch[:, 1] + base
            words[program.in_block] = address_of(words)
        self._known: dict[str, Any] = {
            "__builtins__": builtins,  # functions of NumPy in C that import something look here for it
            "block": (ctypes.c_char * (8 * blocks.size)).from_buffer(blocks.data), "scratch": scratch,
            "statuses": blocks[:, 0], "fetched": fetched, "ended": _ended,
            "pack": program.pack, "unpack": program.unpack, "too_large": struct.error,
            "code": _CODE(entry.address), "where": ctypes.c_void_p(address_of(blocks)), "on_threads": entry.on_threads,
            "share": Share(program.threads, program.threads),
            "calls": calls, "view": calls.view, "kept": program.kept, "objects": program.objects,
            "numbers": frozenset(PYTHON_SCALARS), "ndarray": np.ndarray, "array": np.array, "empty": np.empty,
            "copyto": np.copyto, "at": address_of, "admitted": _admitted, "misfit": _misfit, "apart": _apart,
        }  # fmt: skip
        self._known |= {f"base{number}": base for number, base in enumerate(bases)}
        for k, wanted in enumerate(program.entries):
            if isinstance(wanted, tuple):
                self._known |= {f"s{k}": wanted.shape, f"d{k}": wanted.dtype}
        self._known |= {f"t{k}": axes for k, axes in program.turned.items()}
        for k, written in program.written.items():
            self._known |= {f"w{k}": written.shape, f"e{k}": written.dtype}
        for k, (cell, kind, _) in enumerate(program.outs):
            self._known |= {f"c{k}": cell, f"k{k}": kind}
            if isinstance(cell, Cell) and is_fixed(cell):
                self._known[f"v{k}"] = calls.view(cell)

    def run(self, inputs: Sequence[Any], outs: Sequence[Any] | None) -> Results:
        return self._fresh(inputs, outs) if outs is None else self._into(inputs, outs)

    @functools.cached_property
    def _fresh(self) -> Callable[..., Results]:
        return types.FunctionType(self._program.source.fresh, self._known, "run")

    @functools.cached_property
    def fitting(self) -> Callable[..., Results]:
        """``run(inputs, None)`` of inputs whose kinds are known."""
        return types.FunctionType(self._program.source.fitting, self._known, "run")

    @functools.cached_property
    def _into(self) -> Callable[..., Results]:
        return types.FunctionType(self._program.source.into, self._known, "run")


def _ended(calls: Calls, statuses: Any, fetched: Any) -> None:
    """After a failure: raise what Python has raised where the code called it or looked, or that the run is to end."""
    calls.end()
    if fetched is None:
        return
    for words in fetched[fetched[:, 0] != 0]:
        exception = tuple(map(int, words))
        words[:] = 0
        interrupts.raise_again(*exception)
    if (statuses == ENDED).any():
        interrupts.look()


def _apart(value: Any) -> Any:
    """An object as a result of its own."""
    return value.copy() if isinstance(value, np.ndarray) else value


def _admitted(value: Any, shape: tuple[int, ...], dtype: Any, is_open: bool) -> Any:
    """An array of the expected kind in C order; ``is_open``: its rows are. Raises ValueError for another one."""
    array = np.array(value, order="C")
    if array.shape[is_open:] != shape or array.dtype != dtype:
        _misfit(array, shape, dtype)
    return array


def _misfit(array: Any, shape: tuple[int, ...], dtype: Any) -> None:
    raise ValueError(f"compiled code: built for {dtype} {shape}, got {array.dtype} {array.shape}")

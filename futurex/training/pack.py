"""A pytree as named arrays and a JSON structure, and back; no pickle on the way."""

import sys
from collections import namedtuple
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

# What safetensors stores itself; every other dtype is stored as the bytes of the array.
NATIVE = frozenset({"|b1", "|i1", "|u1", "<i2", "<u2", "<f2", "<i4", "<u4", "<f4", "<i8", "<u8", "<f8"})
KINDS = "biufcmM"
Arrays = dict[str, npt.NDArray]


def pack(tree: Any) -> tuple[dict[str, Any], Arrays]:
    """Return the structure of `tree` in JSON terms and its arrays, C-contiguous, under names such as `a/b/0`.

    A tree is made of dicts with string or integer keys, lists, tuples, named tuples, arrays, NumPy scalars, numbers,
    strings and None. Raises `TypeError` naming the place of anything else.

    >>> structure, arrays = pack({"w": np.zeros(2), "lr": 0.1})
    >>> list(arrays)
    ['w']
    """
    arrays: Arrays = {}
    return _pack(tree, (), arrays), arrays


def unpack(structure: dict[str, Any], arrays: Arrays) -> Any:
    """Return the tree that `pack` took apart. Raises `ValueError` where structure and arrays do not fit together.

    A named tuple comes back as its class if that is imported and still has these fields, else as a class with the same
    name and fields.
    """
    ((kind, content),) = structure.items()
    match kind:
        case "dict":
            return {key: unpack(child, arrays) for key, child in content}
        case "list":
            return [unpack(child, arrays) for child in content]
        case "tuple":
            return tuple(unpack(child, arrays) for child in content)
        case "namedtuple":
            class_ = _named(content["module"], content["name"], tuple(content["fields"]))
            return class_._make(unpack(child, arrays) for child in content["children"])
        case "array":
            return _restore(content, arrays)
        case "scalar":
            return _restore(content, arrays)[()]
        case "float":
            return float(content)
        case "complex":
            return complex(*map(float, content))
        case "value":
            return content
    raise ValueError(f"unknown kind of node {kind!r}")


def _pack(tree: Any, path: tuple[str | int, ...], arrays: Arrays) -> dict[str, Any]:
    if type(tree) in (bool, int, str) or tree is None:
        return {"value": tree}
    if type(tree) is float:
        return {"float": repr(tree)}  # JSON has no NaN and no infinity
    if type(tree) is complex:
        return {"complex": [repr(tree.real), repr(tree.imag)]}
    if isinstance(tree, dict):
        return {"dict": [[_key(key, path), _pack(child, (*path, key), arrays)] for key, child in tree.items()]}
    if isinstance(tree, list | tuple):
        children = [_pack(child, (*path, index), arrays) for index, child in enumerate(tree)]
        if isinstance(tree, list):
            return {"list": children}
        if not hasattr(tree, "_fields"):
            return {"tuple": children}
        class_ = type(tree)
        named = {"module": class_.__module__, "name": class_.__qualname__, "fields": list(class_._fields)}
        return {"namedtuple": {**named, "children": children}}
    if hasattr(tree, "__array__"):
        return {"scalar" if isinstance(tree, np.generic) else "array": _store(np.asarray(tree), path, arrays)}
    raise TypeError(
        f"{_place(path)} is a {type(tree).__name__}, which a checkpoint cannot hold: "
        "use arrays, numbers, strings, None, or dicts, lists and tuples of them"
    )


def _key(key: Any, path: tuple[str | int, ...]) -> str | int:
    if type(key) not in (str, int):
        raise TypeError(f"{_place(path)} has the key {key!r}; the keys in a checkpoint are strings or integers")
    return key


def _place(path: tuple[str | int, ...]) -> str:
    return "the tree itself" if not path else "tree" + "".join(f"[{key!r}]" for key in path)


def _store(array: npt.NDArray, path: tuple[str | int, ...], arrays: Arrays) -> dict[str, Any]:
    dtype = array.dtype
    if dtype.kind not in KINDS:
        raise TypeError(f"{_place(path)} has dtype {dtype}, which a checkpoint cannot hold: convert it first")
    name = "/".join(str(key).replace("~", "~0").replace("/", "~1") for key in path) or "~root"
    if name == "__metadata__":  # taken by safetensors
        name = "~metadata"
    if name in arrays:
        raise TypeError(f"{_place(path)} and another array are both called {name!r}: a key is there as number and text")
    whole = np.array(array, order="C", copy=None)  # safetensors writes the buffer as it lies
    arrays[name] = whole if dtype.str in NATIVE else np.frombuffer(whole.tobytes(), np.uint8)
    return {"name": name, "dtype": dtype.str, "shape": list(array.shape)}


def _restore(entry: dict[str, Any], arrays: Arrays) -> npt.NDArray:
    stored, dtype, shape = arrays[entry["name"]], np.dtype(entry["dtype"]), tuple(entry["shape"])
    if dtype.str not in NATIVE:
        stored = np.frombuffer(stored.tobytes(), dtype).reshape(shape).copy()  # writable, as all others are
    if stored.dtype != dtype or stored.shape != shape:
        raise ValueError(f"{entry['name']!r} is {stored.dtype} {stored.shape}, and should be {dtype} {shape}")
    return stored


def _named(module: str, name: str, fields: tuple[str, ...]) -> Any:
    class_: Any = sys.modules.get(module)
    for part in name.split("."):
        class_ = getattr(class_, part, None)
    if isinstance(class_, type) and issubclass(class_, tuple) and getattr(class_, "_fields", None) == fields:
        return class_
    return _stand_in(name.rpartition(".")[2], fields)


@cache  # two trees of one structure have one class
def _stand_in(name: str, fields: tuple[str, ...]) -> Any:
    return namedtuple(name, fields)

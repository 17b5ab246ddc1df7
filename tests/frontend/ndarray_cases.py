"""What every method and attribute of an array is checked on: functions of a matrix, a vector and positions."""

import copy

import numpy as np


def put(x, v, n):
    x.put([0, 5, -1], [9, 8])
    x.put(n, v, mode="wrap")
    x.put([100, -100], 3, mode="clip")
    return x


def flat(x, v, n):
    x.flat[2] = 7
    x.flat[[3, 4]] = v[:2]
    x.flat[5:9] = [1, 2]
    total = x[0, 0]
    for each in x.flat:
        total = total + each
    x.T.flat[1] = 4
    return x, x.flat[3], x.flat[2:4], len(x.flat), x.T.flat[5], total


def flat_everything(x, v, n):
    x.flat = v
    return x


def in_place_sort(x, v, n):
    x.sort(0)
    x[0].sort()
    x[:, 1].sort(kind="stable")
    v.sort()
    return x, v


def partition(x, v, n):
    x.partition(1, axis=1)
    v.partition(2)
    return np.sort(x, axis=1), v[2]


def fill(x, v, n):
    x[1:].fill(3)
    v.fill(v[1])
    return x, v


def shape(x, v, n):
    y = x * 1
    y.shape = (4, 3)
    y[0] = 1
    return y, x.shape


def bytes_as_another_type(x, v, n):
    words = x.view(np.uint8)
    words[0, :2] = 1
    return x, words[1], x.view(x.dtype), x[::2].view(np.uint8), x.view()


def in_pairs(x, v, n):
    pairs = np.zeros((2, 4)).view(complex)
    pairs[1] = 2 + 3j
    return pairs.real, pairs.view(float)


def setfield(x, v, n):
    n.setfield(7, np.int16, 2)
    return n, n.getfield(np.int16), n.getfield(np.int32, offset=4)


def byteswap(x, v, n):
    return n.byteswap(), n.byteswap(inplace=True), n


def parts(x, v, n):
    z = x * (1 + 2j)
    z.real = v
    z.imag[0] = 1
    return z, z.real.sum(), z.imag, x.real, x.imag


def assigned_imag(x, v, n):
    z = x + 0j
    z.imag = x
    return z


def resized(x, v, n):
    y = x.copy()
    y.resize((2, 3), refcheck=False)
    return y


def setflags(x, v, n):
    x.setflags(write=False)
    x[0] = 1


def locked(x, v, n):
    y = x + 1
    y.flags.writeable = False
    y[0] = 1


def locked_by_name(x, v, n):
    n.flags["WRITEABLE"] = False
    n += 1


def assigned_dtype(x, v, n):
    y = n.copy()
    y.dtype = np.uint8
    return y


def deleted(x, v, n):
    del x[0]


def pickled(x, v, n):
    other = np.empty(0)
    other.__setstate__(x.__reduce__()[2])
    return other


def in_place(name, *operands):
    def function(x, v, n):
        target = {"x": x, "n": n}[operands[0]]
        result = getattr(target, name)({"v": v, "m": np.eye(4, dtype=x.dtype), "3": 3}[operands[1]])
        return target, result is None

    return function


BINARY = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor"),
    *("lshift", "rshift", "divmod", "matmul"),
)
CASES = {
    "T": [lambda x, v, n: (x.T, v.T, x.T[1:])],
    "mT": [lambda x, v, n: x.mT, lambda x, v, n: v.mT],
    "all": [lambda x, v, n: (x.all(), x.all(0), x.all(axis=1, keepdims=True), x.all(where=x > 1))],
    "any": [lambda x, v, n: (x.any(), x.any(0), x.any(axis=(0, 1)), x.any(1, where=x > 1))],
    "argmax": [lambda x, v, n: (x.argmax(), x.argmax(1), x.argmax(axis=0, keepdims=True), x.argmax(0, n.copy()))],
    "argmin": [lambda x, v, n: (x.argmin(), x.argmin(1), x.argmin(keepdims=True))],
    "argpartition": [lambda x, v, n: np.sort(v[v.argpartition(2)][:2])],
    "argsort": [lambda x, v, n: (x.argsort(kind="stable"), x.argsort(0, stable=True), v.argsort(axis=None))],
    "astype": [
        lambda x, v, n: (x.astype(float), x.astype("f4", copy=False), x.astype(x.dtype, copy=False), n.astype(bool)),
        lambda x, v, n: x.astype(np.int8, casting="safe"),
        lambda x, v, n: (x.astype(complex, order="F").ravel("K"), x.T.astype(int).ravel("K")),
    ],
    "byteswap": [byteswap],
    "choose": [lambda x, v, n: ((n % 3).choose([v, v * 2, v * 3]), (n % 5).choose(v, mode="wrap"))],
    "clip": [
        lambda x, v, n: (x.clip(0, 1), x.clip(1), x.clip(max=2), x.clip(min=v, max=3), x.clip(v[0], v[1])),
        lambda x, v, n: (n.clip(-(2**70), 2**70), x.clip(None, None), x.clip(0, 1, out=np.zeros(x.shape, x.dtype))),
    ],
    "compress": [lambda x, v, n: (x.compress([1, 0, 1], axis=0), x.compress([True, False, True]))],
    "conj": [lambda x, v, n: (x.conj(), (x * 1j).conj())],
    "conjugate": [lambda x, v, n: (x.conjugate(), (x * 1j).conjugate(), v.conjugate(np.zeros(4, v.dtype)))],
    "copy": [lambda x, v, n: (x.copy(), x.T.copy().ravel(), x.copy("F").ravel("K"), x.T.copy("K").ravel("K"))],
    "cumprod": [lambda x, v, n: (x.cumprod(), x.cumprod(1), x.cumprod(axis=0, dtype=float))],
    "cumsum": [lambda x, v, n: (x.cumsum(), x.cumsum(1), x.cumsum(0, out=np.zeros(x.shape)))],
    "device": [lambda x, v, n: x.device],
    "diagonal": [lambda x, v, n: (x.diagonal(), x.diagonal(1), x.diagonal(0, 1, 0))],
    "dot": [lambda x, v, n: (x.dot(v), v.dot(v), x.dot(x.T), v.dot(2))],
    "dtype": [lambda x, v, n: (x.dtype, x.dtype.name, x.dtype == float), assigned_dtype],
    "fill": [fill],
    "flags": [lambda x, v, n: (x.flags.c_contiguous, x.T.flags["F"], x.T.flags.fnc, x[:, 1].flags.forc)],
    "flat": [flat, flat_everything],
    "flatten": [lambda x, v, n: (x.flatten(), x.flatten("F"), x.T.flatten("A"), x.T.flatten("K"), x[:, ::2].flatten())],
    "getfield": [setfield],
    "imag": [parts, assigned_imag],
    "item": [
        lambda x, v, n: (x.item(3), x.item(1, 2), x.item((0, 1)), x.item(-1), v[0].item()), lambda x, v, n: x.item()
    ],
    "itemsize": [lambda x, v, n: x.itemsize],
    "max": [lambda x, v, n: (x.max(), x.max(0), x.max(1, keepdims=True), x.max(initial=2, where=x > 3))],
    "mean": [lambda x, v, n: (x.mean(), x.mean(0), x.mean(1, dtype="f4"), x.mean(axis=1, where=x > -9, keepdims=True))],
    "min": [lambda x, v, n: (x.min(), x.min(axis=(0, 1)), x.min(0, np.zeros(4, x.dtype)))],
    "nbytes": [lambda x, v, n: x.nbytes],
    "ndim": [lambda x, v, n: (x.ndim, x[0, 0].ndim)],
    "nonzero": [lambda x, v, n: x.nonzero()],
    "partition": [partition],
    "prod": [lambda x, v, n: (x.prod(), x.prod(1), x.prod(dtype=float, initial=2), x.prod(0, where=x > 1))],
    "put": [put],
    "ravel": [lambda x, v, n: (x.ravel(), x.ravel("F"), x.T.ravel(), x.T.ravel("K"), x[:, ::2].ravel("A"))],
    "real": [parts],
    "repeat": [lambda x, v, n: (x.repeat(2), x.repeat([1, 2, 0], axis=0))],
    "reshape": [
        lambda x, v, n: (x.reshape(4, 3), x.reshape(-1), x.reshape((2, 6), order="F"), x.T.reshape(-1, order="A")),
        lambda x, v, n: x.reshape(5, 2),
    ],
    "resize": [resized],
    "round": [lambda x, v, n: (x.round(), x.round(1), x.round(decimals=-1))],
    "searchsorted": [lambda x, v, n: (n.searchsorted([1, 2]), n.searchsorted(2, side="right"))],
    "setfield": [setfield],
    "setflags": [setflags, locked, locked_by_name],
    "shape": [shape],
    "size": [lambda x, v, n: (x.size, x[:0].size)],
    "sort": [in_place_sort],
    "squeeze": [lambda x, v, n: (x[:1].squeeze(), x[:, :1].squeeze(1)), lambda x, v, n: x.squeeze(0)],
    "std": [lambda x, v, n: (x.std(), x.std(0), x.std(1, ddof=1), x.std(mean=x.mean(keepdims=True)))],
    "strides": [lambda x, v, n: (x.strides, x.T.strides, x[::2, ::3].strides)],
    "sum": [
        lambda x, v, n: (x.sum(), x.sum(0), x.sum((0, 1)), x.sum(1, x.dtype, np.zeros(3, x.dtype))),
        lambda x, v, n: x.sum(where=x > 1, initial=2),
    ],
    "swapaxes": [lambda x, v, n: (x.swapaxes(0, 1), x.swapaxes(-1, 0)), lambda x, v, n: x.swapaxes(0, 5)],
    "take": [lambda x, v, n: (x.take([0, 2]), x.take(n % 3, axis=0), x.take(-1), x.take([[1]], 1))],
    "to_device": [lambda x, v, n: x.to_device("cpu"), lambda x, v, n: x.to_device("gpu")],
    "tolist": [lambda x, v, n: x.tolist()],
    "tobytes": [lambda x, v, n: x.tobytes()],
    "trace": [lambda x, v, n: (x.trace(), x.trace(1), x.trace(0, 1, 0), x.trace(dtype=float))],
    "transpose": [lambda x, v, n: (x.transpose(), x.transpose(1, 0), x.transpose((0, 1)), x.transpose(None))],
    "var": [lambda x, v, n: (x.var(), x.var(0), x.var(1, ddof=1, keepdims=True), x.var(0, where=x > -9))],
    "view": [bytes_as_another_type, in_pairs, lambda x, v, n: x.T.view(np.uint8)],
    "base": [lambda x, v, n: x[1:].base is None],
    "data": [lambda x, v, n: bytes(x.data)],
    "ctypes": [lambda x, v, n: x.ctypes.shape[0]],
    "dumps": [lambda x, v, n: len(x.dumps()) > 0],
    "__abs__": [lambda x, v, n: (abs(x), x.__abs__())],
    "__array__": [lambda x, v, n: (np.asarray(x), x.__array__())],
    "__array_namespace__": [lambda x, v, n: x.__array_namespace__().add(x, v)],
    "__array_ufunc__": [lambda x, v, n: np.add(x, v)],
    "__array_function__": [lambda x, v, n: np.concatenate([x, x])],
    "__array_interface__": [lambda x, v, n: x.__array_interface__["shape"]],
    "__bool__": [lambda x, v, n: (bool(x[0, 0]), 1 if x[:1, :1] else 2), lambda x, v, n: bool(x)],
    "__complex__": [lambda x, v, n: complex(x[0, 1])],
    "__contains__": [lambda x, v, n: (3 in x, v[0] in x, 99 in v)],
    "__copy__": [lambda x, v, n: (copy.copy(x), x.__copy__())],
    "__deepcopy__": [lambda x, v, n: (copy.deepcopy(x), x.__deepcopy__({}))],
    "__delitem__": [deleted],
    "__dlpack_device__": [lambda x, v, n: x.__dlpack_device__()[1]],
    "__dlpack__": [lambda x, v, n: np.from_dlpack(x)],
    "__eq__": [lambda x, v, n: (x == v, x == 1, x == None, x == "a", x[0, 0] == None)],  # noqa: E711
    "__float__": [lambda x, v, n: float(x[1, 1].real)],
    "__format__": [lambda x, v, n: f"{x[0, 0]}"],
    "__ge__": [lambda x, v, n: (x >= v, x <= 1)],
    "__getitem__": [lambda x, v, n: (x[1], x[..., 0], x[n % 3], x[:, None, ::2])],
    "__gt__": [lambda x, v, n: (x > v, x < 1), lambda x, v, n: x > None],
    "__index__": [lambda x, v, n: np.arange(9)[n[1]]],
    "__int__": [lambda x, v, n: int(n[1])],
    "__invert__": [lambda x, v, n: ~n],
    "__iter__": [lambda x, v, n: [row * 2 for row in x]],
    "__le__": [lambda x, v, n: (x <= v, x >= 1)],
    "__len__": [lambda x, v, n: (len(x), len(x.T)), lambda x, v, n: len(x[0, 0])],
    "__lt__": [lambda x, v, n: (x < v, x > 1), lambda x, v, n: x < "a"],
    "__ne__": [lambda x, v, n: (x != v, x != None, x != "a")],  # noqa: E711
    "__neg__": [lambda x, v, n: -n],
    "__pos__": [lambda x, v, n: +n],
    "__reduce__": [pickled],
    "__reduce_ex__": [pickled],
    "__setstate__": [pickled],
    "__repr__": [lambda x, v, n: repr(x)],
    "__setitem__": [shape, flat],
    "__sizeof__": [lambda x, v, n: x.__sizeof__() > 0],
    "__str__": [lambda x, v, n: str(x)],
}
for _name in BINARY:
    CASES[f"__{_name}__"] = [
        (lambda name: lambda x, v, n: getattr(n, f"__{name}__")(n % 3 + 1))(_name),
        (lambda name: lambda x, v, n: getattr(n, f"__{name}__")(3))(_name),
        (lambda name: lambda x, v, n: getattr(x, f"__{name}__")(v))(_name),
    ]
    CASES[f"__r{_name}__"] = [
        (lambda name: lambda x, v, n: getattr(n, f"__r{name}__")(3))(_name),
        (lambda name: lambda x, v, n: getattr(x, f"__r{name}__")(x))(_name),
    ]
    if _name != "divmod":
        CASES[f"__i{_name}__"] = [
            in_place(f"__i{_name}__", *operands) for operands in (("n", "3"), ("x", "v"), ("x", "m"))
        ]  # fmt: skip

#: Names that are not about arrays, and why they are not checked.
NOT_CHECKED = {
    "dump": "writes a file", "tofile": "writes a file",
    "__array_finalize__": "a hook for subclasses", "__array_wrap__": "a hook for subclasses",
    "__array_priority__": "a hook for subclasses",
    "__array_struct__": "a capsule that holds an address", "__class_getitem__": "for type annotations",
    "__class__": "Python's own", "__delattr__": "Python's own", "__dir__": "Python's own", "__doc__": "Python's own",
    "__getattribute__": "Python's own", "__getstate__": "Python's own", "__hash__": "Python's own",
    "__init__": "Python's own", "__init_subclass__": "Python's own", "__new__": "Python's own",
    "__setattr__": "Python's own", "__subclasshook__": "Python's own", "__buffer__": "Python's own",
    "__module__": "Python's own",
}  # fmt: skip

#: Cases that run as plain NumPy, and why: by name, all of them or those with these numbers.
PLAIN = {
    "resize": "memory that grows in place",
    "setflags": "whether an array may be written",
    "tobytes": "Python needs the values",
    "base": "which object owns the memory",
    "data": "an address",
    "ctypes": "an address",
    "dumps": "Python needs the values",
    "__array_interface__": "an address",
    "__dlpack__": "an address",
    "__format__": "Python needs the values",
    "__reduce__": "Python needs the values",
    "__reduce_ex__": "Python needs the values",
    "__setstate__": "Python needs the values",
    "__repr__": "Python needs the values",
    "__str__": "Python needs the values",
    "__sizeof__": "the memory of an object",
    "__array__": "asks for an ndarray by name",
}

"""What random array programs are made of: templates, and the module that they stand in.

Templates hold places: ``{e}`` an expression, ``{v}`` a name, ``{A}`` the name of an array, ``{s}`` a scalar, ``{k}`` an
axis, ``{i}`` a small integer, ``{d}`` a dtype, ``{x}`` an index, ``{m}`` a mask, ``{t}`` a test, ``{S}`` and ``{I}`` the
names of a scalar and of integers, ``{n}`` a name to bind; ``{u}``, ``{b}``, ``{r}``, ``{o}``, ``{M}`` and ``{p}`` unary and
binary ufuncs, reductions, operators, methods and operators in place.
"""

import dataclasses

HEAD = """import numpy as np

TABLE = np.array([0.5, -1.0, 2.0, 0.25])
LIMIT = 2


def plain(rng, shape, dtype):
    values = rng.integers(-8, 9, shape) / 4
    return np.asarray(values * 2 if np.dtype(dtype).kind in "iu" else values).astype(dtype)


def ties(rng, shape, dtype):
    return np.asarray(rng.integers(0, 3, shape)).astype(dtype)


def odd(rng, shape, dtype):
    array = plain(rng, shape, dtype)
    if array.dtype.kind in "fc" and array.size:
        array.reshape(-1)[:: 1 + array.size // 3] = rng.choice([np.nan, np.inf, -np.inf, -0.0, 1e5])
    return array


def smooth(rng, shape, dtype):
    return rng.normal(size=shape)


def fortran(rng, shape, dtype):
    return np.asfortranarray(plain(rng, shape, dtype))


def helper(x, y=1.5):
    if np.sum(x) > y:
        return x * 2
    x = x + y
    return x


"""
DTYPES = ("float64", "float64", "float32", "int64", "float16", "int32", "uint8", "int8", "bool", "complex128", "complex64")
SHAPES = ((4,), (3, 4), (4,), (3,), (4, 3), (2, 3, 4), (1, 4), (3, 1), (), (0,), (2, 0, 3), (1,), (4, 4))
UNARY = ["negative", "positive", "absolute", "fabs", "sign", "floor", "ceil", "trunc", "rint", "sqrt", "square", "cbrt", "reciprocal", "exp", "expm1", "log", "log1p", "sin", "cos", "tan", "arctan", "tanh", "sinh", "isnan", "isinf", "isfinite", "signbit", "logical_not", "invert", "conj", "spacing", "deg2rad", "exp2", "bitwise_count"]
BINARY = ["add", "subtract", "multiply", "divide", "floor_divide", "remainder", "fmod", "power", "maximum", "minimum", "fmax", "fmin", "arctan2", "hypot", "copysign", "nextafter", "logaddexp", "less", "less_equal", "greater", "equal", "not_equal", "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "heaviside", "float_power", "gcd"]
REDUCE = ["sum", "prod", "mean", "std", "var", "min", "max", "any", "all", "argmin", "argmax", "ptp", "nansum", "nanmax", "nanmean", "count_nonzero", "median"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<", "<=", ">", ">=", "==", "!=", "+", "-", "*", "+", "-", "*"]
METHODS = ["sum()", "mean()", "max()", "min()", "cumsum()", "cumprod()", "T", "copy()", "ravel()", "flatten()", "any()", "all()", "argmax()", "argmin()", "squeeze()", "std()", "prod()", "conj()", "real", "imag", "round(1)", "nonzero()[0]", "transpose()", "argsort()", "item()", "var()", "dot({v})", "clip(-1,1)", "repeat(2)", "diagonal()", "trace()", "sum({k})", "max({k})", "mean({k},keepdims=True)", "cumsum({k})", "astype({d})", "reshape(-1)", "swapaxes(0,1)", "take([0,1])", "searchsorted(0.5)", "shape", "ndim", "size", "dtype.name", "sum(axis={k},keepdims=True)", "argmax({k})", "view()", "astype({d},copy=False)", "swapaxes(-1,0)", "compress([True,False])", "byteswap().byteswap()", "fill(1)", "itemsize", "ptp", "nbytes", "flat[1]", "any({k})", "put([0],1)", "all(axis={k})", "choose([1,2,3])", "min(initial=0)", "real.copy()"]

EXPRESSIONS = (
    "{v}", "{v}", "{v}", "({e} {o} {e})", "({e} {o} {e})", "({e} {o} {s})", "({s} {o} {e})", "np.{u}({e})", "np.{b}({e}, {e})", "np.{b}({e}, {s})",
    "np.{r}({e}, axis={k})", "np.{r}({e})", "{v}.{M}", "{v}.{M}", "{v}[{x}]", "{v}[{x}]", "{v}[{x}][{x}]", "{v}[{x}].{M}", "(-{e})", "abs({e})",
    "(~{e})", "{v}.T[{x}]", "{v}.reshape(-1)[{x}]", "np.where({m}, {e}, {e})", "np.where({m}, {e}, {s})", "np.concatenate([{e}, {e}], axis={k})",
    "np.stack([{e}, {e}], axis={k})", "np.hstack([{e}, {e}])", "np.vstack([{e}, {e}])", "np.cumsum({e}, axis={k})", "np.cumprod({e}, axis={k})",
    "np.diff({e})", "np.expand_dims({e}, {k})", "np.squeeze({e})", "np.flip({e}, {k})", "np.roll({e}, {i}, axis={k})",
    "np.repeat({e}, {i}, axis={k})", "np.tile({e}, {i})", "np.transpose({e})", "np.moveaxis({e}, 0, -1)", "np.swapaxes({e}, 0, {k})",
    "np.broadcast_to({e}, (3, 4))", "np.diagonal({e})", "np.tril({e})", "np.triu({e}, {i})", "np.trace({e})", "np.take({e}, [{i}, {i}], axis={k})",
    "np.clip({e}, {s}, {s})", "np.clip({e}, None, {s})", "np.outer({e}, {e})", "np.dot({e}, {e})", "({e} @ {e})", "np.inner({e}, {e})",
    "np.vdot({e}, {e})", "np.tensordot({e}, {e}, axes=1)", "np.einsum('ij,j->i', {e}, {e})", "np.einsum('i,i', {e}, {e})", "np.pad({e}, 1)",
    "np.zeros_like({e})", "np.ones_like({e}, dtype={d})", "np.full_like({e}, {s})", "np.zeros({i}, {d})", "np.arange({i})", "np.eye({i})",
    "np.array([{s}, {s}, {s}])", "np.array([{e}, {e}])", "np.asarray({e}, dtype={d})", "{e}.astype({d})", "{d}({s})", "np.array({s})", "np.real({e})",
    "np.imag({e})", "np.add.reduce({e}, axis={k})", "np.multiply.accumulate({e})", "np.maximum.reduce({e}, axis={k}, initial={s})",
    "np.minimum.accumulate({e}, axis={k})", "np.logical_or.reduce({e}, axis={k})", "np.sum({e}, axis={k}, dtype={d})", "np.sum({e}, where={m})",
    "np.mean({e}, axis={k}, keepdims=True)", "np.max({e}, axis={k}, initial={s}, where={m})", "np.add({e}, {s}, dtype={d})",
    "np.{b}({e}, {e}, where={m}, out=np.zeros_like({v}))", "helper({e})", "helper({v}, {s})", "TABLE", "TABLE[{x}]", "({e} if {t} else {e})",
    "np.ravel({e})", "np.reshape({e}, (-1, 2))", "np.split({e}, 2)[{i}]", "np.atleast_2d({e})", "np.sum([{s}, {e}.sum()])", "sum({v})",
    "max({s}, {s})", "min({e})", "len({v})", "float({s})", "int({i})", "bool({s})", "isinstance({e}, np.ndarray)", "np.ndim({e})", "np.shape({e})",
    "{e}.dtype.kind", "[{s}, {e}][{i}]", "({s}, {e})[-1]", "np.append({v}, {s})", "np.dstack([{e}, {e}])", "np.column_stack([{e}, {e}])",
)  # fmt: skip
RARE_EXPRESSIONS = (
    "np.take({e}, {v}, mode='wrap')", "np.kron({e}, {e})", "np.pad({e}, 1, mode='edge')", "np.nan_to_num({e})", "np.angle({e})", "np.unique({e})",
    "np.nonzero({e})[0]", "np.flatnonzero({e})", "np.argwhere({e})", "np.bincount({v})", "np.isin({e}, {e})",
    "np.searchsorted(np.sort(np.ravel({e})), {e})", "np.interp({e}, [0, 1, 2], [1.0, 3.0, 2.0])", "np.convolve({e}, {e})",
    "np.add.reduceat({e}, [0, 2])", "np.reshape({e}, -1, order='F')", "np.meshgrid({e}, {e})[{i}]", "np.ix_([0, 1], [1, 0])[{i}] + {s}",
    "np.divmod({e}, {s})[1]", "np.modf({e})[0]", "np.frexp({e})[1]", "np.average({e}, axis={k})", "np.cov({e})", "np.histogram({e}, 3)[0]",
    "np.digitize({e}, [0.0, 1.0])", "np.partition({e}, 1)", "np.lexsort(({e}, {e}))", "np.unwrap({e})", "np.fft.fft({e})", "type({e}).__name__",
    "np.shares_memory({v}, {v})", "np.delete({v}, {i})", "np.insert({v}, 1, {s})", "np.rot90({e})", "np.cross({e}, {e})", "np.trapezoid({e})",
    "np.gradient({e})", "np.ediff1d({e})", "np.fliplr({e})", "np.argsort({e}, kind='stable')", "np.sort({e}, axis={k})", "np.diag({e})",
    "np.array_equal({e}, {e})", "np.allclose({e}, {e})", "np.linspace({s}, {s}, 4)", "np.linalg.norm({e})", "np.arange({s}, {s}, 0.5)",
    "np.take_along_axis({v}, np.argsort({v}, axis=0), axis=0)", "np.select([{m}], [{e}], {s})", "np.add.outer({e}, {e})",
    "np.result_type({v}, {v}).name", "np.round({e}, 1)",
)  # fmt: skip
SCALARS = (
    "0.5", "2.0", "-1.5", "2", "3", "-1", "0", "1", "True", "0.0", "1j", "np.float32(0.1)", "np.float64(2)", "np.int8(3)", "np.uint8(200)", "np.nan",
    "np.inf", "-0.0", "np.float16(1.5)", "LIMIT", "np.int64(-2)", "1e300", "np.True_", "{v}.sum()", "{v}.max()", "{v}[{i}]", "{v}[{i}, {i}]", "{v}[-1]",
    "len({v})", "{v}.mean()", "{v}.size", "{v}.argmax()", "{v}.item()", "{S}", "{S}", "{S}", "({S} + {S})", "(-{S})", "abs({S})", "({S} * 2)", "float({v}[{i}])", "{v}.any()",
)  # fmt: skip
INDICES = (
    "{i}", "-1", "{i}:", ":{i}", "::2", "::-1", "1:3", "-3:-1", "::-2", "...", "None", ":, {i}", ":, ::-1", "..., {i}", "..., None", "1:, 1:", "None, :, {i}",
    "[0, 1]", "[{i}, 0, {i}]", "[[0, 1], [1, 0]]", "{m}", "{m}", "{v} > {s}", "{I}", "{I}", ":, [1, 0]", "[0, 1], [1, 0]", "[0, 1], 1:", "{i}, {i}",
    "{i}, ::-1", "np.newaxis, {i}", "np.array([1, 0])", "np.ix_([0, 1], [1, 0])", "()", "True", "[True, False, True]", "{v} % 2 == 0", "5:1", "{i}:{S}", "{I}, {I}", "{I} % 2",
    "np.argsort({v})", "..., {m}", "[]", "np.nonzero({v})", "1, ..., 0", "slice(None, 2)", "(slice(1, None), 0)", "{v}.argmax()", ":, None", "np.s_[1:]", "{I}[None]", "{m}, {i}",
)  # fmt: skip
STATEMENTS = (
    "{n} = {e}", "{n} = {e}", "{n} = {e}", "{n} = {e}", "{n} = {v}[{x}]", "{n} = {A}.T", "{n} = {A}.reshape(-1)", "{n} = {A}[::-1]", "{n} = {A}",
    "{n} = {s}", "{A}[{x}] = {e}", "{A}[{x}] = {e}", "{A}[{x}] = {s}", "{A}[{x}] {p} {e}", "{A}[{x}] {p} {s}", "{A} {p} {e}", "{A} {p} {s}",
    "{A}[{x}][{x}] = {s}", "{A}[{x}][{x}] {p} {e}", "{A}.T[{x}] = {e}", "{A}.reshape(-1)[{x}] = {s}", "{A}[...] = {e}", "{A}[:] = {A}[::-1]",
    "{A}[1:] = {A}[:-1]", "{A}[1:] {p} {A}[:-1]", "{A}[:-1] {p} {A}[1:]", "{A}[{m}] = {s}", "{A}[{m}] {p} {s}", "{A}[[0, 0, 1]] {p} {s}",
    "{A}[{I}] = {e}", "{A}.ravel()[{x}] = {s}", "{A}.diagonal()[0]", "np.{b}({A}, {e}, out={A})", "np.{b}({e}, {e}, out={A})",
    "np.{b}({A}, {s}, out={A}, where={m})", "np.copyto({A}, {e})", "np.copyto({A}, {s}, where={m})", "{A}.fill({s})", "{n}, {n} = {e}, {e}",
    "{n}, *{n} = {v}", "{v}, {v} = {v}, {v}", "{n} = [{e}, {e}]; {n}.append({v}); {n} = {n}[{i}]", "{n} = {{'a': {e}, 'b': {s}}}['a']",
    "{n} = np.array([r * 2 for r in {v}])", "{n} = lambda z: z + {v}; {n} = {n}({e})", "{n} = [r for r in {v}]; {n} = {n}[-1]",
    "{A}[{x}], {A}[{x}] = {A}[{x}], {s}", "{A}[0], {A}[1] = {A}[1], {A}[0]", "{A}[[0, 1]] = {A}[[1, 0]]", "{A}.T[...] {p} {e}", "{A} = {A} {o} {e}",
    "{A}[..., 0] {p} {e}", "{n} = {A}.reshape(2, -1); {n}[0] {p} {s}", "{n} = np.diagonal({A}).copy()",
    "{n} = np.broadcast_to({A}, (3, 4)); {A}[0] {p} {s}", "{n} = {A}.swapaxes(0, 1); {n}[0] = {s}", "{n} = np.atleast_2d({A}); {n}[0] {p} {s}",
    "{n} = np.ravel({A}); {n}[0] = {s}", "{n} = np.asarray({A}); {n}[-1] {p} {s}", "{n} = {A}.squeeze(); {n}[...] {p} {s}",
    "{n} = np.real({A}); {n}[0] = {s}", "{n} = {A}.astype({d}, copy=False); {n}[0] = 1", "{n} = np.split({A}, 2); {n}[0][:] = {s}; {n} = {n}[1]",
    "{n} = np.moveaxis({A}, 0, -1); {n}[0] {p} {s}", "{n} = np.expand_dims({A}, 0); {n}[0] = {s}", "{n} = {A}[None]; {n} {p} {e}", "assert {t}",
    "pass",
)  # fmt: skip
RARE_STATEMENTS = (
    "np.add.at({A}, [0, 1, 0], {s})", "np.subtract.at({A}, {I}, {e})", "np.put({A}, [0, 2], {s})", "np.putmask({A}, {m}, {s})",
    "np.place({A}, {m}, [{s}, {s}])", "np.fill_diagonal({A}, {s})", "{A}.sort()", "{A}.sort(axis=0)",
    "np.clip({A}, {s}, {s}, out={A})", "{n} = {A}.view({d})", "{A}.flat[{i}] = {s}", "{A}.put({i}, {s})",
    "{n} = np.lib.stride_tricks.sliding_window_view({v}, 2)", "np.put_along_axis({A}, {I}[None], {s}, axis={k})", "{A}.itemset",
    "{n} = np.frombuffer({A})", "del {v}", "{n} = sum(r.sum() for r in {v})", "np.sum({e}, axis={k}, out={A})", "np.{u}({A}, out={A}[...])",
    "{A}.imag[{x}] = {s}", "{A}.real = {s}",
)  # fmt: skip
TESTS = (
    "{S} > {S}", "{v}.sum() > {S}", "({v} > {S}).any()", "{S} == {S}", "not {S}", "{S} and {S}", "{v}[0] < {v}[-1]", "len({v}) > {i}", "{v}.shape == {v}.shape", "0 < {S} < 3", "{v} is {v}", "{S} in (1, 2)",
    "{v}.ndim > 1", "np.all({v} == {v})", "np.isnan({v}).any()", "isinstance({S}, float)", "{S} is not None", "{v}.size", "{v}.max() >= {S} or {S}", "{S} in {v}",
)  # fmt: skip
SMOOTH_EXPRESSIONS = (
    "{v}", "{v}", "({e} {o} {e})", "({e} {o} {e})", "({e} * {s})", "({s} - {e})", "({e} / ({e} * {e} + 1))", "np.{u}({e})", "np.{u}({e})", "({e} ** 2)", "({e} ** 3)",
    "np.sqrt({e} * {e} + 1)", "np.log({e} * {e} + 0.5)", "(({e} * {e} + 0.1) ** 0.7)", "np.{b}({e}, {e})", "np.sum({e}, axis={k})", "np.mean({e}, axis={k}, keepdims=True)", "np.prod({e})",
    "{v}.max({k})", "{v}.min()", "np.sqrt({v}.var() + 0.1)", "np.var({e}, axis={k})", "{v}[{x}]", "{v}[{x}][{x}]", "{v}.T[{x}]", "{v}.reshape(-1)[{x}]", "np.where({m}, {e}, {e})", "np.where({m}, {e}, {s})",
    "np.concatenate([{e}, {e}], axis={k})", "np.stack([{e}, {e}])", "np.cumsum({e}, axis={k})", "np.diff({e})", "np.expand_dims({e}, {k})", "np.flip({e}, 0)", "np.roll({e}, {i})", "np.repeat({e}, 2)",
    "np.tile({e}, 2)", "{v}.T", "np.broadcast_to({e}, (3, 4))", "np.diagonal({e})", "np.tril({e})", "np.trace({e})", "np.take({e}, [{i}, 0, {i}], axis={k})", "np.clip({e}, -0.7, 0.8)", "np.outer({e}, {e})",
    "np.dot({e}, {e})", "({e} @ {e})", "np.tensordot({e}, {e}, axes=1)", "np.einsum('ij,j->i', {e}, {e})", "np.einsum('ij,kj->ik', {e}, {e})", "np.pad({e}, 1)", "np.zeros_like({e})", "np.array([{s}, {s}])",
    "helper({e})", "TABLE", "({e} if {t} else {e})", "{v}.ravel()", "np.max({e}, axis={k})", "np.sort({e})", "np.linalg.norm({e} + 3.0)", "np.cumprod({e})", "np.add.reduce({e})", "np.inner({e}, {e})", "abs({e})",
    "np.hypot({e}, 1.0)", "np.arctan2({e}, 2.0)", "np.logaddexp({e}, {e})", "np.hstack([{e}, {e}])", "np.swapaxes({e}, 0, -1)", "np.split({e}, 2)[{i}]", "np.atleast_2d({e})", "np.squeeze({e})", "np.take_along_axis({v}, np.argsort({v}, axis=0), axis=0)",
    "np.median({e})", "np.kron({e}, {e})", "np.interp({e}, [0, 1, 2], [1.0, 3.0, 2.0])", "np.linalg.solve(np.eye(4) * 9 + np.outer(TABLE, {v}), {v})", "np.fft.fft({v}).real", "np.multiply.accumulate({v})",
)  # fmt: skip
SMOOTH_SCALARS = ("0.5", "2.0", "-1.5", "3", "{v}.sum()", "{v}.mean()", "{v}[{i}]", "{v}[{i}, {i}]", "{v}[-1]", "{v}.max()", "float({v}[0])", "s")
SMOOTH_INDICES = (
    "{i}", "-1", "{i}:", ":{i}", "::2", "::-1", "1:3", "...", "None", ":, {i}", "..., None", "1:, 1:", "[0, 1]", "[{i}, 0, {i}]", "[[0, 1], [1, 0]]", "{m}", ":, [1, 0]", "[0, 1], [1, 0]", "{v}.argmax()", "np.argsort({v})",
)  # fmt: skip
SMOOTH_STATEMENTS = (
    "{n} = {e}", "{n} = {e}", "{n} = {e}", "{n} = {v}[{x}]", "{n} = {A}.T", "{n} = {A}.reshape(-1)", "{n} = {A}[::-1]", "{n} = {A}.copy()", "{A}[{x}] = {e}", "{A}[{x}] = {e}", "{A}[{x}] = {s}", "{A}[{x}] {p} {e}",
    "{A}[{x}] {p} {s}", "{A} {p} {e}", "{A} {p} {s}", "{A}[{x}][{x}] {p} {e}", "{A}.T[{x}] = {e}", "{A}[1:] = {A}[:-1]", "{A}[1:] {p} {A}[:-1]", "{A}[{m}] = {s}", "{A}[{m}] {p} {s}", "{A}[[0, 0, 1]] {p} {s}",
    "np.{u}({A}, out={A})", "np.multiply({A}, {s}, out={A}, where={m})", "np.add.at({A}, [0, 1, 0], {s})", "np.copyto({A}, {e})", "{A}.fill({s})", "{n}, {n} = {e}, {e}", "{A}[0], {A}[1] = {A}[1], {A}[0]",
    "{n} = np.array([r * 2 for r in {v}])", "{n} = [{e}, {e}]; {n} = {n}[{i}]", "{A}[[0, 1]] = {A}[[1, 0]]", "{n} = {A}.reshape(2, -1); {n}[0] {p} {s}", "np.fill_diagonal({A}, {s})", "{A}.sort()", "{A}[{x}] = {A}[{x}] * {s}",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """What programs are made of."""

    expressions: tuple[str, ...]
    scalars: tuple[str, ...]
    indices: tuple[str, ...]
    statements: tuple[str, ...]
    unary: tuple[str, ...]
    binary: tuple[str, ...]
    operators: tuple[str, ...]
    updates: tuple[str, ...]
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    makers: tuple[str, ...]
    numbers: tuple[str, ...]
    masks: tuple[str, ...]


NUMBERS = (
    "1.5", "2", "float(rng.integers(-3, 4))", "np.float32(rng.integers(-8, 9) / 4)", "np.int64(rng.integers(0, 3))", "bool(rng.integers(2))", "True", "-1",
)  # fmt: skip
UPDATES = ("+=", "-=", "*=", "+=", "/=", "//=", "**=", "|=", "%=")
ALL = Vocabulary(
    EXPRESSIONS, SCALARS, INDICES, STATEMENTS, UNARY, BINARY, OPERATORS, UPDATES, DTYPES, SHAPES, ("plain", "plain", "plain", "odd", "ties", "fortran"), NUMBERS,
    ("({v} > {S})", "({v} == {v})", "({v} < 1)"),
)  # fmt: skip
SMOOTH = Vocabulary(
    SMOOTH_EXPRESSIONS, SMOOTH_SCALARS, SMOOTH_INDICES, SMOOTH_STATEMENTS, ("sin", "cos", "tanh", "exp", "square", "arctan", "negative", "abs"), ("maximum", "minimum", "multiply", "add"),
    ("+", "-", "*"), ("+=", "-=", "*="), ("float64",), ((4,), (3, 4), (4, 4), (3,), (2, 3, 2)), ("smooth",), ("float(rng.normal())",), ("({v} > {S})", "({v} < 0.3)"),
)  # fmt: skip
# Arrays that compiled regions and several threads compute, and functions that they compute bit for bit as NumPy does:
# a last bit that differs may turn a comparison over.
LARGE = dataclasses.replace(
    ALL,
    shapes=((400,), (40, 30), (30, 40), (300, 5), (5, 300), (1, 30), (30,), (), (8, 20, 12), (256, 260), (70000,)),
    unary=(
        "negative", "positive", "absolute", "fabs", "sign", "floor", "ceil", "trunc", "rint", "sqrt", "square", "reciprocal",
        "isnan", "isinf", "isfinite", "signbit", "logical_not", "invert", "conj", "spacing", "bitwise_count",
    ),
    binary=tuple(name for name in BINARY if name not in {"arctan2", "hypot", "logaddexp", "float_power", "power"}),
)  # fmt: skip

"""Each layer imports only from those above it, and each outside library has one place."""

import ast
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.onednn

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "futurex"

# Lower numbers never import higher ones; folders of one number may import each other.
LEVEL = {
    "errors": 0, "files": 0, "silence": 0, "uninterrupted": 0,
    "tree": 1,
    "ops": 2,
    "autodiff": 3, "passes": 3, "partition": 3,
    "kernels": 4,
    "runtime": 5,
    "frontend": 6, "numpy": 6,
    "nn": 7, "optim": 7, "data": 7, "models": 7, "training": 7, "notebook": 7, "cli": 7,
    "elsewhere": 7,
}  # fmt: skip
PRODUCT = 7
FACE = 8  # futurex/__init__.py and __main__.py

# Top-level module -> the paths (prefixes under futurex/) that may import it.
HOMES = {
    "dask": ("runtime/cluster/",),
    "distributed": ("runtime/cluster/",),
    "bokeh": ("runtime/cluster/dashboard",),
    "numba": ("kernels/",),
    "llvmlite": ("kernels/",),
    "scipy": ("ops/special.py", "ops/scipy_linear.py"),
    "cupy": ("kernels/",),
    "cupyx": ("kernels/",),
    "cudnn": ("kernels/",),
    "ducc0": ("kernels/ducc",),
    "ucp": ("runtime/transport/ucx",),
    "ucxx": ("runtime/transport/ucx",),
    "libucx": ("runtime/transport/ucx",),
}


def place_of(path):
    """A module's place under `futurex/`, such as `runtime/plan.py`."""
    return path.relative_to(PACKAGE).as_posix()


def level_of(place):
    room = place.split("/")[0].removesuffix(".py")
    return FACE if room in ("__init__", "__main__") else LEVEL.get(room)


def imports_of(source, place):
    """Yield `(line, module)` for every import: statements anywhere, and names given to an importing function."""
    package = ["futurex", *place.split("/")[:-1]]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if name in ("import_module", "__import__", "require") and isinstance(node.args[0].value, str):
                yield node.lineno, node.args[0].value


def faults_of(source, place):
    """Every import in `source` that the rules forbid at `place`, as `line: what is wrong`."""
    level, faults = level_of(place), []
    if level is None:
        return [f"1: futurex/{place} belongs to no layer; add it to the table"]
    for line, module in imports_of(source, place):
        top, *rest = module.split(".")
        if top == "futurex":
            # `import futurex` and `from futurex import fit` mean the face, which only the product is written on
            target = LEVEL.get(rest[0], FACE) if rest else FACE
            if target > level and not (target == FACE and level == PRODUCT):
                faults.append(f"{line}: {module} stands below {place}")
        elif top in HOMES and not place.startswith(HOMES[top]):
            faults.append(f"{line}: {top} is imported only under {' and '.join(HOMES[top])}")
    return faults


MODULES = sorted(place_of(path) for path in PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("place", MODULES)
def test_a_module_imports_only_what_its_layer_may(place):
    faults = faults_of((PACKAGE / place).read_text(), place)
    assert not faults, "\n".join(f"futurex/{place}:{fault}" for fault in faults)


@pytest.mark.parametrize(
    "place, source, fault",
    [
        ("tree/node.py", "from futurex.ops import conv", "stands below"),
        ("tree/node.py", "def f():\n    import futurex.runtime.plan", "2: futurex.runtime.plan"),
        ("ops/conv.py", "from futurex import passes", "stands below"),
        ("ops/conv.py", "import futurex", "stands below"),
        ("ops/conv.py", "from ..runtime import plan", "stands below"),
        ("autodiff/vjp.py", "from futurex.kernels import table", "stands below"),
        ("runtime/plan.py", "import dask.array", "runtime/cluster/"),
        ("runtime/plan.py", "from distributed import Client", "runtime/cluster/"),
        ("frontend/trace.py", "import numba as nb", "kernels/"),
        ("training/fit.py", "import importlib\nimportlib.import_module('cupy')", "2: cupy"),
        ("training/fit.py", "require('distributed.client', 'x')", "distributed is imported only"),
        ("runtime/transport/tcp.py", "import ucxx", "transport/ucx"),
        ("misc.py", "", "belongs to no layer"),
    ],
)
def test_the_rule_finds_what_it_forbids(place, source, fault):
    assert fault in "\n".join(faults_of(source, place))


@pytest.mark.parametrize(
    "place, source",
    [
        ("runtime/cluster/locality.py", "import dask, distributed\nfrom futurex.kernels import table"),
        ("runtime/transport/ucx.py", "import libucx"),
        ("kernels/numba_.py", "import numba\nfrom futurex.errors import require"),
        ("autodiff/vjp.py", "from futurex.partition import place"),
        ("training/fit.py", "import futurex as fx\nfrom futurex.data import Sampler"),
        ("__init__.py", "from futurex.training.fit import fit"),
    ],
)
def test_the_rule_lets_pass_what_is_meant(place, source):
    assert faults_of(source, place) == []


def test_every_outside_library_is_declared():
    allowed = {"futurex", *HOMES, *sys.stdlib_module_names}
    extras = {"rich", "safetensors", "seglearn", "sklearn", "anywidget", "traitlets", "ipywidgets", "IPython"}
    for place in MODULES:
        tops = {module.split(".")[0] for _, module in imports_of((PACKAGE / place).read_text(), place)}
        assert tops <= allowed | extras | {"numpy"}, f"futurex/{place} imports {tops - allowed - extras - {'numpy'}}"

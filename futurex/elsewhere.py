"""What other libraries call what futurex has, for who asks for it by that name."""

from __future__ import annotations

import importlib

_PLAIN = "plain Python's if, for and while, on data, too"
_HERE = {
    **dict.fromkeys(("jit", "compile", "njit", "script", "function"), "futurex.futurize"),
    **dict.fromkeys(("remat", "checkpoint_sequential"), "futurex.checkpoint"),
    **dict.fromkeys(("jacfwd", "jacrev"), "futurex.jacobian"),
    **dict.fromkeys(("lax", "scan", "cond", "while_loop", "fori_loop", "switch"), _PLAIN),
    **dict.fromkeys(("no_grad", "enable_grad"), "nothing: only futurex.grad and its like differentiate"),
    **dict.fromkeys(("cuda", "device_put", "device"), "futurex.futurize(f, device='gpu')"),
    **dict.fromkeys(("pmap", "distributed", "shard_map"), "futurex.fit(..., on=cluster)"),
    **dict.fromkeys(("manual_seed", "PRNGKey", "key"), "np.random.default_rng, and futurex.random with a key"),
    **dict.fromkeys(("Tensor", "tensor"), "a NumPy array"),
    "block_until_ready": "the result() of what a call returns",
    "custom_jvp": "futurex.custom_vjp",
    "Module": "a function of its parameters: futurex.nn has layers, futurex.models models",
}


def instead(name: str) -> str:
    """What stands for it here; "" for a name that none of them has."""
    if name in _HERE:
        return _HERE[name]
    for module, spelled in (("futurex.nn", name), ("futurex.optim", name.lower()), ("numpy", name)):
        if not spelled.startswith("_") and hasattr(importlib.import_module(module), spelled):
            return f"{module}.{spelled}"
    return ""

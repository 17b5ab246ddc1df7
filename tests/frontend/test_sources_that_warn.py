"""What Python warns about when it compiles a module it has said: staging a function of it says nothing more."""

import importlib.util
import warnings

import numpy as np
import pytest

import futurex as fx

BODIES = {
    "an escape that there is not": '"a loss \\\\d \\\\m"\n    return x * 2',
    "identity with a literal": "return x * 2 if x.ndim is 1 else x",
    "a literal that is asked for identity": "return x * 2 if 1 is not None else x",
    "a tuple that is asserted": "assert (x.ndim == 1, 'rows')\n    return x * 2",
}


@pytest.mark.parametrize("name", BODIES)
def test_staging_does_not_warn_again(name, tmp_path):
    path = tmp_path / "warned_about.py"
    path.write_text(f"def double(x):\n    {BODIES[name]}\n".replace("\\\\", "\\"))
    spec = importlib.util.spec_from_file_location("warned_about", path)
    module = importlib.util.module_from_spec(spec)
    with pytest.warns((SyntaxWarning, DeprecationWarning)):
        spec.loader.exec_module(module)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        double = fx.futurize(module.double, escape="error")
        np.testing.assert_array_equal(double(np.ones(3)), np.full(3, 2.0))

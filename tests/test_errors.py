"""A missing package is one clear error."""

import json

import pytest

from futurex.errors import FuturexError, MissingExtra, require


def test_a_module_that_is_there_is_returned():
    assert require("json", "train") is json


def test_a_missing_module_names_the_command_that_installs_it():
    with pytest.raises(MissingExtra, match=r"'no_such_module'.*pip install 'futurex\[train\]'") as caught:
        require("no_such_module.part", "train")
    assert caught.value.name == "no_such_module"
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value, FuturexError)

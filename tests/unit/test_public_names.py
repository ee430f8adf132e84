"""``import oncelog``: the names that programs use, and what they cost those that do not use them."""

import subprocess
import sys
from importlib.metadata import version

import pytest

import oncelog


@pytest.mark.parametrize("name", oncelog.__all__)
def test_public_names_are_listed_and_load(name: str) -> None:
    assert name in dir(oncelog)
    value = getattr(oncelog, name)
    assert not isinstance(value, type) or value.__name__ == name


def test_version_is_that_of_the_distribution() -> None:
    assert oncelog.__version__ == version("oncelog")


def test_unknown_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="module 'oncelog' has no attribute 'Nothing'"):
        _ = oncelog.Nothing  # type: ignore[attr-defined]


@pytest.mark.parametrize("module", ["oncelog", "oncelog.broker.serve", "oncelog.broker.__main__"])
def test_import_loads_none_of_the_public_names(module: str) -> None:
    """A broker's start and memory do not pay for producers and consumers."""
    program = (
        f"import sys, {module}\n"
        "heavy = ('oncelog.clients.producer', 'oncelog.clients.consumer', 'oncelog.clients.admin.admin')\n"
        "print([name for name in sys.modules if name.startswith(heavy)])"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"

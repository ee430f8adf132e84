"""``import oncelog``: the names that programs use, and what they cost those that do not use them."""

import inspect
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


@pytest.mark.parametrize("name", [name for name in oncelog.__all__ if name != "__version__"])
def test_public_name_and_its_public_methods_have_docstrings(name: str) -> None:
    value = getattr(oncelog, name)
    documented = {name: value.__doc__}
    for member, attribute in vars(value).items() if inspect.isclass(value) else ():
        function = getattr(attribute, "fget", None) or getattr(attribute, "__func__", attribute)
        if inspect.isfunction(function) and not member.startswith("_"):
            documented[f"{name}.{member}"] = function.__doc__
    assert not [each for each, text in documented.items() if not (text or "").strip()]


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

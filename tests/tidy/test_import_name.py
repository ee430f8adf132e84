"""There is one import name: what is in the folder ``broker`` is ``oncelog.broker``, in code, in texts and in tests."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import FOLDERS
from tests.tidy.test_tidy import REPOSITORY, tracked

_NAMES: Final = "|".join(sorted(FOLDERS))
_SPARED: Final = ("CHANGELOG.md", "tests/house/", "tests/unit/house/", "tests/tidy/test_import_name.py")
"""The changelog says what former names have become, and the measures of the house read former commits."""
_QUOTED: Final = re.compile(rf"(?<=[\"'`])(?>(?:{_NAMES})(?:\.\w+)+)(?!\()")
"""A dotted name that begins a string, or what a page or a docstring quotes."""
_RUN: Final = re.compile(rf"-m[\"', ]+({_NAMES})\b(?!/)")
_IMPORT: Final = re.compile(rf"(?:^|[\"'`;]|>>> )[ \t]*(?:import|from) (?:{_NAMES})(?=[ .,;`\"'\\]|$)", re.MULTILINE)
TEXTS: Final = [
    path
    for path in tracked(".py", ".md", ".toml", ".yml", "Makefile", "Dockerfile", ".ci/run")
    if not path.relative_to(REPOSITORY).as_posix().startswith(_SPARED)
]
MODULES: Final = {
    ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")
    for path in tracked(".py")
    if path.relative_to(REPOSITORY).parts[0] in FOLDERS
}


def bare_names(text: str) -> list[str]:
    """Return what a text says of modules by the names of their folders."""
    quoted = [name for name in _QUOTED.findall(text) if ".".join(name.split(".")[:2]) in MODULES]
    return [*quoted, *_RUN.findall(text), *_IMPORT.findall(text)]


@pytest.mark.parametrize(
    "text",
    [
        'import_module("broker.serve")',
        "`clients.producer.Producer`",
        '[sys.executable, "-m", "broker", "serve"]',
        'CMD ["python", "-P", "-m", "broker.container"]',
        "python -m broker.tools.config_page",
        "import broker",
        "from clients import VERSION",
        "from protocol.errors import ErrorCode",
        '"import coordinator.promise\\n"',
    ],
)
def test_bare_name_in_a_text_is_found(text: str) -> None:
    assert bare_names(text)


@pytest.mark.parametrize(
    "text",
    ['"broker.id"', "import oncelog.broker", "`broker/start.py`", "from coordinators import it", '"-m", "oncelog"'],
)
def test_other_text_is_not_taken_for_a_bare_name(text: str) -> None:
    assert not bare_names(text)


def test_texts_of_the_repository_name_no_module_by_its_folder() -> None:
    assert not {str(path): names for path in TEXTS if (names := bare_names(path.read_text()))}


def test_lint_refuses_bare_imports() -> None:
    forms = ("import {}", "import {}.errors", "from {} import errors", "from {}.errors import NAME")
    statements = [form.format(name) for form in forms for name in sorted(FOLDERS)]
    ruff = [Path(sys.executable).parent / "ruff", "check", "--select=TID251", "--output-format=concise"]
    done = subprocess.run(
        [*ruff, "--stdin-filename=tests/unit/test_any.py", "-"],
        input="\n".join(statements),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    refused = {int(line.split(":")[1]) for line in done.stdout.splitlines() if "import oncelog." in line}
    assert refused == set(range(1, len(statements) + 1)), done.stdout + done.stderr


@pytest.mark.parametrize("name", sorted(FOLDERS))
def test_bare_import_fails_under_pytest(name: str) -> None:
    """Although the repository is on the path, where it would make a second copy of every module."""
    with pytest.raises(ModuleNotFoundError, match=rf"import oncelog\.{name}, not {name}"):
        import_module(name)


def test_packages_of_oncelog_are_relative_links_to_their_folders() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--stage", "oncelog"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    links = {line.split()[3] for line in listed.stdout.splitlines() if line.startswith("120000 ")}
    assert links == {f"oncelog/{name}" for name in FOLDERS}
    for name in FOLDERS:
        assert (REPOSITORY / "oncelog" / name).readlink() == Path("..", name)

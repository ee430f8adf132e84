"""The modules of the product, parsed, under names that do not depend on how they are imported."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

REPOSITORY: Final = Path(__file__).resolve().parent.parent.parent
FACADE: Final = "oncelog"
"""The one import name: a folder in which the packages are links, or a prefix that nothing has yet."""
PACKAGES: Final = ("protocol", "coordinator", "broker", "clients", "spark_connector", "pyspark_oncelog")

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class Source(NamedTuple):
    """One file of the product."""

    name: str
    """``broker.dispatch``; a package's ``__init__.py`` has the name of the package."""
    path: str
    """Relative to the root of the repository."""
    text: str
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        return self.path.endswith("__init__.py")


def read_product(root: Path = REPOSITORY) -> list[Source]:
    """Return every module of the product below ``root``, sorted by name."""
    files = [file for package in PACKAGES for file in (root / package).rglob("*.py")]
    files += (file for file in (root / FACADE).glob("*.py"))
    return sorted(_read(file, root) for file in files)


def _read(file: Path, root: Path) -> Source:
    path = file.relative_to(root)
    parts = path.parent.parts if path.name == "__init__.py" else path.with_suffix("").parts
    text = file.read_text()
    return Source(".".join(parts), str(path), text, ast.parse(text))


def canonical(name: str) -> str:
    """Return a module's name without the prefix of the one import name."""
    inner = name.removeprefix(f"{FACADE}.")
    return inner if inner.partition(".")[0] in PACKAGES else name


def functions(source: Source) -> Iterator[Function]:
    """Yield every function and method of a module, nested ones too."""
    return (node for node in ast.walk(source.tree) if isinstance(node, Function))


def defining_module(sources: Iterable[Source], name: str) -> str:
    """Return the one module that defines a function or class of this name at its top level."""
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    (module,) = (
        source.name
        for source in sources
        if any(isinstance(node, kinds) and node.name == name for node in source.tree.body)
    )
    return module

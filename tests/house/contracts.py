"""Imports that go against what ``pyproject.toml`` and the design say of packages.

The contracts of import-linter are read from ``pyproject.toml`` (kinds ``forbidden`` and ``layers``), and the order of
the top-level packages from ``docs/explanation/architecture.md``, whose picture is ``LAYERS``. Only direct imports
count, each file that imports a module once.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.house.import_graph import Graph
from tests.house.rooms import Arrow
from tests.house.sources import REPOSITORY, canonical

LAYERS: Final = (("spark_connector", "broker"), ("clients", "coordinator"), ("protocol",))
"""From top to bottom; packages of one layer never import each other."""

Contract: TypeAlias = Mapping[str, Any]


def read_contracts(root: Path = REPOSITORY) -> list[Contract]:
    """Return the contracts of import-linter."""
    contracts: list[Contract] = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    return contracts


def broken_imports(imports: Graph, contracts: Iterable[Contract]) -> list[Arrow]:
    """Return the imports that a contract forbids, or that lead up or sideways in the house."""
    forbidden = [pair for contract in contracts for pair in _forbidden(contract)]
    forbidden += _against_layers(LAYERS)
    return sorted(
        (a, b) for a, targets in imports.items() for b in targets if any(_in(a, x) and _in(b, y) for x, y in forbidden)
    )


def _forbidden(contract: Contract) -> Iterator[Arrow]:
    """Yield (importer, imported) pairs of packages."""
    if contract["type"] == "forbidden":
        for a in contract["source_modules"]:
            yield from ((canonical(a), canonical(b)) for b in contract["forbidden_modules"])
    elif contract["type"] == "layers":
        for container in contract.get("containers", [""]):
            layers = [_layer(line, container) for line in contract["layers"]]
            yield from _against_layers(layers)


def _layer(line: str, container: str) -> tuple[str, ...]:
    """Return the packages of one line of a layers contract: ``broker | (clients)``, below a container."""
    names = (name.strip(" ()") for name in line.replace(":", "|").split("|"))
    return tuple(canonical(f"{container}.{name}" if container else name) for name in names)


def _against_layers(layers: Iterable[tuple[str, ...]]) -> Iterator[Arrow]:
    above: list[str] = []
    for layer in layers:
        yield from ((low, high) for low in layer for high in above)
        yield from ((a, b) for a in layer for b in layer if a != b)
        above += layer


def _in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")

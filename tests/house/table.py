"""The table of all measures of one tree, and the lists behind its figures."""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from tests.house.broad_excepts import broad_excepts
from tests.house.contracts import broken_imports, read_contracts
from tests.house.docstrings import openings, ruff_count
from tests.house.import_graph import circles, import_graph
from tests.house.naming import collected_names, is_not_subject_first
from tests.house.reaching import reaching_places
from tests.house.rooms import Arrow, arrow_count, room_graph, upward_arrows, within
from tests.house.sizes import Sized, long_files, long_functions, many_methods, many_parameters
from tests.house.sources import REPOSITORY, Source, read_product
from tests.house.words import pages_of_tests, product_pages, riddle_places


class Row(NamedTuple):
    """One figure, and what it counts where that can be listed."""

    name: str
    figure: int
    listed: Sequence[str] = ()


def rows(root: Path = REPOSITORY) -> list[Row]:
    """Return every row for the tree at ``root``."""
    sources = read_product(root)
    return [
        *direction_rows(sources, read_contracts(root)),
        *size_rows(sources),
        *text_rows(sources, root),
        *_crossing_rows(root),
    ]


def direction_rows(sources: Sequence[Source], contracts: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return how modules and packages import each other."""
    imports = import_graph(sources)
    rooms = room_graph(sources, imports)
    broker = within(rooms, "broker")
    of_files, of_rooms = circles(imports), circles(rooms)
    return [
        Row("import cycles of modules", len(of_files), _members(of_files)),
        Row("modules in import cycles", sum(map(len, of_files))),
        _arrows("fewest imports between modules to turn around", upward_arrows(imports)),
        Row("import cycles of packages", len(of_rooms), _members(of_rooms)),
        Row("packages in import cycles", sum(map(len, of_rooms))),
        Row("packages", len(rooms)),
        Row("imports between packages", arrow_count(rooms)),
        Row("packages in broker/", len(broker)),
        Row("imports between packages in broker/", arrow_count(broker)),
        _arrows("upward imports between packages", upward_arrows(rooms)),
        _arrows("imports against contracts and layers", broken_imports(imports, contracts)),
    ]


def size_rows(sources: Sequence[Source]) -> list[Row]:
    """Return what is too large, or catches too much."""
    return [
        Row("modules", len(sources)),
        _sized("files of more than 600 lines", long_files(sources, 600)),
        _sized("files of more than 500 lines", long_files(sources, 500)),
        _sized("functions of more than 60 lines", long_functions(sources, 60)),
        _sized("classes of more than 25 methods", many_methods(sources, 25)),
        _sized("functions of more than 7 parameters", many_parameters(sources, 7)),
        _places("broad excepts outside dispatch", map(str, broad_excepts(sources))),
        Row("of them without raising again", sum(not each.raises_again for each in broad_excepts(sources))),
    ]


def text_rows(sources: Sequence[Source], root: Path) -> list[Row]:
    """Return in what words the house speaks."""
    docstrings = list(openings(sources))
    wrong = [f"{each.place}: {each.words}" for each in docstrings if not each.is_imperative]
    riddles = riddle_places(product_pages(root, sources))
    riddles_of_tests = riddle_places(pages_of_tests(root))
    names = list(collected_names(root))
    return [
        Row("docstrings of functions", len(docstrings)),
        _places("of them not beginning with a verb", wrong),
        Row("of them not beginning with a verb, %", round(100 * len(wrong) / max(1, len(docstrings)))),
        Row("of them reported by ruff's D401", ruff_count(root)),
        Row("names of tests", len(names)),
        _places(
            "of them not subject first, or of fewer than three words",
            (f"{each.place} {each.name}" for each in names if is_not_subject_first(each.name)),
        ),
        _places("private attributes that tests reach into", reaching_places(root)),
        *(_places(f"word: {name}", places) for name, places in riddles.items()),
        _places("riddle words together", chain(*riddles.values())),
        *(_places(f"word in tests: {name}", places) for name, places in riddles_of_tests.items()),
        _places("riddle words in tests together", chain(*riddles_of_tests.values())),
    ]


def _crossing_rows(root: Path) -> list[Row]:
    """Return what requests cross, measured in a process of its own, which imports the tree at ``root``."""
    command = [sys.executable, "-m", "tests.house.request_path", str(root)]
    done = subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, text=True)
    found: list[Row] = []
    for name, each in json.loads(done.stdout).items():
        found.append(Row(f"{name}: files", len(each["files"]), each["files"]))
        found.append(Row(f"{name}: moves", each["moves"]))
        found.append(Row(f"{name}: frames deep", each["depth"]))
    return found


def _members(found: Iterable[Sequence[str]]) -> list[str]:
    return [f"{len(circle)}: {', '.join(circle)}" for circle in found]


def _arrows(name: str, arrows: Sequence[Arrow]) -> Row:
    return _places(name, (f"{a} -> {b}" for a, b in arrows))


def _sized(name: str, found: Iterable[Sized]) -> Row:
    return _places(name, (f"{each.size} {each.place}" for each in found))


def _places(name: str, places: Iterable[str]) -> Row:
    listed = list(places)
    return Row(name, len(listed), listed)

"""Measures of the code that may only fall: lower a limit in the commit that lowers its figure, and never raise one."""

from typing import Final

import pytest

from tests.house.contracts import read_contracts
from tests.house.sources import REPOSITORY, read_product
from tests.house.table import Row, direction_rows, size_rows, text_rows

LIMITS: Final = {
    "import cycles of modules": 0,
    "import cycles of packages": 0,
    "upward imports between packages": 0,
    "imports against contracts and layers": 0,
    "files of more than 500 lines": 0,
    "functions of more than 60 lines": 1,
    "classes of more than 25 methods": 1,
    "functions of more than 7 parameters": 0,
    "broad excepts outside dispatch": 0,
    "of them not beginning with a verb": 1,
    "of them not subject first, or of fewer than three words": 0,
    "riddle words together": 0,
    "private attributes that tests reach into": 100,
    "riddle words in tests together": 414,
}


@pytest.fixture(scope="module")
def rows() -> dict[str, Row]:
    sources = read_product()
    found = [*direction_rows(sources, read_contracts()), *size_rows(sources), *text_rows(sources, REPOSITORY)]
    return {row.name: row for row in found}


@pytest.mark.parametrize("name", LIMITS)
def test_house_figure_stays_at_or_below_its_limit(rows: dict[str, Row], name: str) -> None:
    assert rows[name].figure <= LIMITS[name], "\n".join(rows[name].listed)

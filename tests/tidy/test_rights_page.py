"""``docs/reference/rights.md`` names every request of the table that ``make security`` tries."""

import re
from pathlib import Path

from tests.security.authorization_brokers import BROKERS_ROWS
from tests.security.authorization_table import ROWS

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs" / "reference" / "rights.md").read_text()
TRIED = (*ROWS, *BROKERS_ROWS)


def test_page_of_rights_names_every_request_that_is_tried() -> None:
    named = set(re.findall(r"[A-Z][A-Za-z]+", PAGE))
    assert {row.request for row in TRIED} - named == set()


def test_page_of_rights_names_every_operation_that_is_needed() -> None:
    operations = {need.operation.name.lower().replace("_", "-") for row in TRIED for need in row.needs}
    assert {each for each in operations if f"`{each}`" not in PAGE} == set()

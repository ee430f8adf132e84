"""Requests under access control lists get the response that Apache Kafka gave, but for ``acl_differences``."""

from itertools import groupby

import pytest

from tests.conformance.acl_differences import DIFFERENCES, expected
from tests.conformance.acl_requests import REQUESTS
from tests.conformance.acl_table import read_cells
from tests.conformance.broker_stage import acl_stage

CELLS = read_cells()
CASES = {case: list(cells) for case, cells in groupby(CELLS, key=lambda cell: cell.case)}


@pytest.mark.parametrize("case", CASES)
async def test_responses_under_every_state_are_those_of_kafka(case: str) -> None:
    cells = CASES[case]
    async with acl_stage(allows_everyone=cells[0].allows_everyone) as stage:
        responses = {str(cell): await stage.respond(cell) for cell in cells}
    assert responses == {str(cell): expected(cell) for cell in cells}


def test_table_is_whole_and_every_request_is_sent() -> None:
    assert len(CELLS) == 1757
    assert len({str(cell) for cell in CELLS}) == 1757
    assert {cell.request for cell in CELLS} <= REQUESTS.keys()


def test_difference_names_a_response_of_the_table() -> None:
    responses = {(cell.case, cell.response) for cell in CELLS}
    assert [each for each in DIFFERENCES if (each.case, each.kafka) not in responses] == []

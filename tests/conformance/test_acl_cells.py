"""Requests under access control lists get the response that Apache Kafka gave, but for what is listed here."""

from itertools import groupby
from typing import NamedTuple

import pytest

from tests.conformance.acl_requests import REQUESTS
from tests.conformance.acl_stage import acl_stage
from tests.conformance.acl_table import Cell, read_cells

CELLS = read_cells()
CASES = {case: list(cells) for case, cells in groupby(CELLS, key=lambda cell: cell.case)}


class Difference(NamedTuple):
    case: str
    kafka: str
    ours: str
    why: str


_IN_ORDER = "topics come in the order of the request; Kafka's come in that of a hash table, and cells-u before cells-t"
_NO_SHARE_GROUPS = "share groups are not served, so their coordinators are no key type"
_CREATED = "the topic is created before the response; Kafka's client has to ask again"
_REFUSED, _LEFT = "TOPIC_AUTHORIZATION_FAILED", "OPERATION_NOT_ATTEMPTED"
DIFFERENCES = [
    Difference("add-partitions-v3", f"{_LEFT} {_REFUSED}", f"{_REFUSED} {_LEFT}", _IN_ORDER),
    Difference("add-partitions-v3", f"{_REFUSED} {_LEFT}", f"{_LEFT} {_REFUSED}", _IN_ORDER),
    Difference("find-coordinator-share", "CLUSTER_AUTHORIZATION_FAILED", "INVALID_REQUEST", _NO_SHARE_GROUPS),
    Difference("find-coordinator-share", "NONE", "INVALID_REQUEST", _NO_SHARE_GROUPS),
    Difference("metadata-auto-create-by-topic", "UNKNOWN_TOPIC_OR_PARTITION NONE", "NONE NONE NONE", _CREATED),
    Difference("metadata-auto-create-by-cluster", "UNKNOWN_TOPIC_OR_PARTITION NONE", "NONE NONE NONE", _CREATED),
]


def expected(cell: Cell) -> str:
    different = (each.ours for each in DIFFERENCES if (each.case, each.kafka) == (cell.case, cell.response))
    return next(different, cell.response)


@pytest.mark.parametrize("case", CASES)
async def test_responses_under_every_state_are_those_of_kafka(case: str) -> None:
    cells = CASES[case]
    async with acl_stage(allows_everyone=cells[0].allows_everyone) as stage:
        responses = {str(cell): await stage.respond(cell) for cell in cells}
    assert responses == {str(cell): expected(cell) for cell in cells}


def test_table_is_whole_and_every_request_is_sent() -> None:
    assert len(CELLS) == 981
    assert len({str(cell) for cell in CELLS}) == 981
    assert {cell.request for cell in CELLS} <= REQUESTS.keys()


def test_difference_names_a_response_of_the_table() -> None:
    responses = {(cell.case, cell.response) for cell in CELLS}
    assert [each for each in DIFFERENCES if (each.case, each.kafka) not in responses] == []

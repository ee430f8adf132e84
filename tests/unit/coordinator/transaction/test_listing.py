"""The listing of transactional ids in slices, whatever a client's pattern costs."""

import pytest

from oncelog.coordinator.regular_expression import RegularExpression
from oncelog.coordinator.transaction.listing import TransactionFilter
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_walk import WorkBudget
from tests.unit.coordinator.transaction.world import LISTING_UNITS, World, world

IDS = 60


def ids_of_length(w: World, length: int) -> list[str]:
    ids = [(f"{index:06}" + "ab" * length)[:length] for index in range(IDS)]
    for transactional_id in ids:
        w.init(transactional_id)
    return ids


@pytest.mark.parametrize("pattern", [".*a.{200}", "(.*a.{50}){4}", ".*(a|b).*(a|b){800}x"])
def test_listing_by_a_costly_pattern_matches_one_id_in_a_slice(pattern: str) -> None:
    with world() as w:
        ids = ids_of_length(w, 1_024)
        expression = RegularExpression(pattern)
        assert expression.match_units(ids[0]) > LISTING_UNITS
        w.listed(TransactionFilter(id_pattern=expression))
        assert w.listing_slices == IDS + 1


def test_listing_by_an_ordinary_pattern_takes_one_slice() -> None:
    with world() as w:
        ids = ids_of_length(w, 20)
        found = w.listed(TransactionFilter(id_pattern=RegularExpression("0000[0-2].*")))
        assert isinstance(found, list)
        assert [txn.transactional_id for txn in found] == ids[:30]
        assert w.listing_slices == 1


def test_listing_without_a_pattern_is_done_in_slices_too() -> None:
    with world() as w:
        ids_of_length(w, 20)
        budget = WorkBudget(IDS // 2)
        selection = w.coordinator.list_transactions(TransactionFilter(), budget)
        assert not isinstance(selection, ErrorCode)
        next(selection)
        assert budget.left == 0

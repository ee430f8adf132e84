"""The ledger of a consumer group finds what a coordinator must not do, and nothing else."""

import pytest

from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.group_ledger import Commit, CommitOutcome, GroupLedger

P0, P1 = TopicPartition("inputs", 0), TopicPartition("inputs", 1)


def _acknowledged(ledger: GroupLedger, begun: float, generation: int = 1, member_id: str = "a") -> Commit:
    commit = ledger.begin(P0, generation, member_id, begun)
    commit.outcome, commit.ended = CommitOutcome.ACKNOWLEDGED, begun + 1.0
    return commit


def test_partition_with_two_owners_in_a_generation_is_found() -> None:
    ledger = GroupLedger()
    ledger.take(1, P0, "a")
    ledger.take(1, P1, "b")
    ledger.take(2, P0, "b")
    with pytest.raises(AssertionError, match="a and b own"):
        ledger.take(1, P0, "b")


def test_group_that_was_removed_may_give_its_generations_again_until_it_has_offsets() -> None:
    ledger = GroupLedger(may_begin_anew=True)
    ledger.take(1, P0, "a")
    ledger.take(1, P0, "b")
    _acknowledged(ledger, 1.0, member_id="b")
    ledger.take(1, P0, "c")
    with pytest.raises(AssertionError, match="c and d own"):
        ledger.take(1, P0, "d")


def test_acknowledged_commit_that_is_not_shown_is_found() -> None:
    ledger = GroupLedger()
    first, second = _acknowledged(ledger, 1.0), _acknowledged(ledger, 5.0)
    newest = ledger.newest_acknowledged(P0)
    assert newest is second
    ledger.assert_is_current(P0, newest, "1", second.offset)
    with pytest.raises(AssertionError, match="is lost"):
        ledger.assert_is_current(P0, newest, "0", first.offset)
    with pytest.raises(AssertionError, match="is lost"):
        ledger.assert_is_current(P0, newest, "", -1)


def test_commit_without_a_response_may_be_shown_at_any_time() -> None:
    ledger = GroupLedger()
    unknown = ledger.begin(P0, 1, "a", 1.0)
    _acknowledged(ledger, 5.0)
    ledger.assert_is_current(P0, ledger.newest_acknowledged(P0), "0", unknown.offset)
    unknown.outcome = CommitOutcome.REFUSED
    with pytest.raises(AssertionError, match="although it was refused"):
        ledger.assert_is_current(P0, ledger.newest_acknowledged(P0), "0", unknown.offset)


def test_partition_without_commits_shows_none() -> None:
    ledger = GroupLedger()
    ledger.assert_is_current(P0, ledger.newest_acknowledged(P0), "", -1)


def test_commit_of_an_older_generation_after_a_newer_one_is_found() -> None:
    ledger = GroupLedger()
    _acknowledged(ledger, 1.0, generation=1)
    _acknowledged(ledger, 2.0, generation=2)
    ledger.assert_order(P0, ["0", "1"])
    with pytest.raises(AssertionError, match="follows generation 2"):
        ledger.assert_order(P0, ["1", "0"])


def test_commit_of_a_static_member_that_was_replaced_is_found() -> None:
    ledger = GroupLedger()
    for begun, member_id in enumerate(["former", "former", "successor", "former"]):
        _acknowledged(ledger, float(begun), member_id=member_id)
    ledger.assert_order(P0, ["0", "1", "2"])
    with pytest.raises(AssertionError, match="was replaced"):
        ledger.assert_order(P0, ["0", "1", "2", "3"])

"""A commit of many offsets is the same as a small one, whatever happens while it is made in slices."""

from collections.abc import Callable, Sequence

import pytest

from oncelog.coordinator.group.offset_requests import Committer, OffsetToCommit
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_walk import WorkBudget
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.coordinator.group.group_world import GROUP, MEMBER, P0, P1, PRODUCER, TOPIC_ID, GroupWorld, group_world

OK = ErrorCode.NONE
OFFSETS = [OffsetToCommit(P0, 5, 2, "note", TOPIC_ID), OffsetToCommit(P1, 7), OffsetToCommit(P1, 9, -1, "twice")]
TOO_LARGE = OffsetToCommit(TopicPartition(P0.topic, 2), 1, -1, "x" * 4097)


def nothing() -> None:
    pass


def commit_at_once(
    w: GroupWorld,
    offsets: Sequence[OffsetToCommit],
    *,
    meanwhile: Callable[[], object] = nothing,
    committer: Committer = MEMBER,
    transactional: bool = False,
) -> dict[TopicPartition, ErrorCode]:
    """Make a commit offset by offset, with something in between before the last step."""
    made = w.do(lambda: w.coordinator.begin_commit(committer.group_id))
    assert not isinstance(made, ErrorCode)
    for _ in made.encode(offsets, WorkBudget(0)):
        pass
    meanwhile()
    producer = PRODUCER if transactional else None
    return w.begin(
        lambda reply: w.coordinator.commit_at_once(committer._replace(producer=producer), made, reply)
    ).response


@pytest.mark.parametrize("transactional", [False, True])
def test_large_commit_writes_and_remembers_what_a_small_one_does(transactional: bool) -> None:
    with group_world() as small, group_world() as large:
        offsets = [*OFFSETS, TOO_LARGE]
        if transactional:
            expected = small.begin(
                lambda reply: small.coordinator.commit_offsets(MEMBER._replace(producer=PRODUCER), offsets, reply)
            ).response
        else:
            expected = small.commit_all(offsets).response
        assert commit_at_once(large, offsets, transactional=transactional) == expected
        assert expected[TOO_LARGE.partition] is ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert large.log.batches == small.log.batches
        for w in (small, large):
            assert bool(w.shard.offsets.unstable(GROUP)) is transactional
            if transactional:
                w.marker()
        assert large.fetch().response == small.fetch().response
        large.elect()
        large.load()
        assert large.fetch().response == small.fetch().response


def test_large_commit_without_leader_epochs_keeps_those_of_a_commit_in_between() -> None:
    with group_world() as w:
        response = commit_at_once(
            w,
            [OffsetToCommit(P0, 4), OffsetToCommit(P1, 4), OffsetToCommit(P0, 5)],
            meanwhile=lambda: w.commit(10, leader_epoch=3),
        )
        assert response == {P0: OK, P1: OK}
        assert w.fetch().response == {P0: (5, 3, "", OK), P1: (4, -1, "", OK)}
        w.elect()
        w.load()
        assert w.fetched(P0) == (5, 3, "", OK)


def test_large_commit_is_refused_when_a_commit_in_between_changes_very_many_of_its_records() -> None:
    """To make them anew would be one long turn of the loop."""
    with group_world() as w:
        many = [OffsetToCommit(P0, offset) for offset in range(2_001)]
        refused = dict.fromkeys([P0], ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        assert commit_at_once(w, many, meanwhile=lambda: w.commit(10, leader_epoch=3)) == refused
        assert w.fetched(P0) == (10, 3, "", OK)
        assert commit_at_once(w, many[:2_000], meanwhile=lambda: w.commit(11, leader_epoch=4)) == {P0: OK}
        assert w.fetched(P0) == (1_999, 4, "", OK)


@pytest.mark.parametrize("commit", [True, False])
def test_large_commit_without_leader_epochs_learns_from_a_transaction_that_ends_in_between(commit: bool) -> None:
    with group_world() as w:
        w.commit(2, leader_epoch=1)
        w.begin(
            lambda reply: w.coordinator.commit_offsets(
                MEMBER._replace(producer=PRODUCER), [OffsetToCommit(P0, 10, 3)], reply
            )
        )
        commit_at_once(w, [OffsetToCommit(P0, 1)], meanwhile=lambda: w.marker(commit=commit))
        assert w.fetched() == (1, 3 if commit else 1, "", OK)


def test_large_commit_is_refused_when_one_of_its_topics_was_deleted_in_between() -> None:
    with group_world() as w:
        response = commit_at_once(w, OFFSETS, meanwhile=lambda: w.delete_topic(P0.topic))
        assert response == dict.fromkeys([P0, P1], ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        assert w.fetch().response == {}
        assert commit_at_once(w, OFFSETS, meanwhile=lambda: w.delete_topic("another")) == {P0: OK, P1: OK}


def test_large_commit_is_refused_when_its_shard_was_loaded_anew_in_between() -> None:
    """The old shard has forgotten its groups: by its word the member would be fenced."""
    with group_world() as w:
        member = w.member()

        def elect_again() -> None:
            w.elect()
            w.load()

        response = commit_at_once(w, OFFSETS, committer=Committer(GROUP, member, None, 1), meanwhile=elect_again)
        assert response == dict.fromkeys([P0, P1], ErrorCode.NOT_COORDINATOR)
        assert w.fetch().response == {}


def test_large_commit_is_refused_by_the_rules_of_its_group_when_it_is_committed() -> None:
    with group_world() as w:
        member = w.member()
        response = commit_at_once(
            w, OFFSETS, committer=Committer(GROUP, member, None, 1), meanwhile=lambda: w.leave(member)
        )
        assert response == dict.fromkeys([P0, P1], ErrorCode.UNKNOWN_MEMBER_ID)


@pytest.mark.parametrize(
    ("refusal", "reported"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
def test_large_commit_that_the_log_refuses_changes_nothing(refusal: ErrorCode, reported: ErrorCode) -> None:
    with group_world() as w:
        response = commit_at_once(w, [*OFFSETS, TOO_LARGE], meanwhile=lambda: w.refuse(refusal))
        assert response == {P0: reported, P1: reported, TOO_LARGE.partition: ErrorCode.OFFSET_METADATA_TOO_LARGE}
        assert w.fetch().response == {}


def test_large_commit_that_is_given_up_is_not_watched_any_more() -> None:
    with group_world() as w:
        made = w.do(lambda: w.coordinator.begin_commit(GROUP))
        assert len(w.shard.offsets._watching) == 1
        del made
        assert w.shard.offsets._watching == []

"""The metadata of committed offsets, and the ids of groups, take bounded memory."""

from collections.abc import Iterator

import pytest

from oncelog.coordinator.group.large_commit import LargeCommit
from oncelog.coordinator.group.offset_metadata import GROUP_WEIGHT
from oncelog.coordinator.group.offset_requests import Committer, OffsetToCommit, PartitionErrors
from oncelog.coordinator.group.offsets import size_of_metadata
from oncelog.coordinator.group.settings import GroupSettings
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_walk import WorkBudget
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.coordinator.group.group_world import GroupWorld, group_world

METADATA = "m" * 1_000
SIZE = size_of_metadata(METADATA)
LIMITS = GroupSettings(group_initial_rebalance_delay_ms=0, offsets_metadata_max_bytes=3 * SIZE, group_id_max_length=10)
TOO_LARGE = ErrorCode.OFFSET_METADATA_TOO_LARGE


@pytest.fixture
def world() -> Iterator[GroupWorld]:
    with group_world(settings=LIMITS) as w:
        yield w


def _offsets(first: int, count: int, metadata: str = METADATA) -> list[OffsetToCommit]:
    return [OffsetToCommit(TopicPartition("t", first + n), 1, metadata=metadata) for n in range(count)]


def _commit(w: GroupWorld, offsets: list[OffsetToCommit], group_id: str = "g") -> list[ErrorCode]:
    response = w.commit_all(offsets, committer=Committer(group_id)).response
    return [response[offset.partition] for offset in offsets]


def test_commit_with_metadata_beyond_the_bound_is_refused(world: GroupWorld, caplog: pytest.LogCaptureFixture) -> None:
    assert _commit(world, _offsets(0, 2)) == [ErrorCode.NONE] * 2
    assert _commit(world, _offsets(2, 2), "h") == [ErrorCode.NONE, TOO_LARGE]
    assert f"oncelog.offsets.metadata.max.bytes is {3 * SIZE}" in caplog.text
    assert _commit(world, _offsets(4, 2, "")) == [ErrorCode.NONE] * 2, "without metadata it is always taken"
    assert _commit(world, _offsets(0, 2)) == [ErrorCode.NONE] * 2, "the same again takes no more"
    assert _commit(world, _offsets(0, 1, "shorter")) == [ErrorCode.NONE]


def test_commit_beyond_the_number_of_offsets_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    with group_world(settings=GroupSettings(offsets_max_count=2 + GROUP_WEIGHT)) as w:
        refused = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        assert _commit(w, _offsets(0, 1)) == [ErrorCode.NONE]
        assert _commit(w, _offsets(0, 3)) == [ErrorCode.NONE, ErrorCode.NONE, refused]
        assert f"oncelog.offsets.max.count is {2 + GROUP_WEIGHT}" in caplog.text
        assert _commit(w, _offsets(0, 2)) == [ErrorCode.NONE] * 2, "those that are known go on"
        assert _commit(w, _offsets(0, 1), "another group") == [refused]
        w.delete_offsets(TopicPartition("t", 0), group="g")
        assert _commit(w, _offsets(5, 1)) == [ErrorCode.NONE]


def test_metadata_of_deleted_offsets_leaves_room(world: GroupWorld) -> None:
    _commit(world, _offsets(0, 3))
    assert _commit(world, _offsets(3, 1)) == [TOO_LARGE]
    world.delete_offsets(TopicPartition("t", 0), group="g")
    assert _commit(world, _offsets(3, 1)) == [ErrorCode.NONE]


def test_large_commit_with_metadata_beyond_the_bound_is_refused(world: GroupWorld) -> None:
    made = world.do(lambda: world.coordinator.begin_commit("g"))
    assert isinstance(made, LargeCommit)
    world.do(lambda: list(made.encode(_offsets(0, 5), WorkBudget(1_000_000))))

    def reply_to(reply: object) -> None:
        world.coordinator.commit_at_once(Committer("g"), made, reply)  # type: ignore[arg-type]

    response: PartitionErrors = world.begin(reply_to).response  # type: ignore[assignment]
    assert sorted(response.values()) == sorted([ErrorCode.NONE] * 3 + [TOO_LARGE] * 2)


def test_new_group_with_a_long_id_is_refused(world: GroupWorld) -> None:
    long_id = "g" * 11
    assert _commit(world, _offsets(0, 1), long_id) == [ErrorCode.INVALID_GROUP_ID]
    assert world.join(group=long_id).response.error is ErrorCode.INVALID_GROUP_ID
    assert world.join(group="g" * 10).response.error is ErrorCode.NONE


def test_group_with_a_long_id_that_is_in_the_log_goes_on() -> None:
    long_id = "g" * 2_000
    with group_world() as w:
        w.coordinator._shards._settings = GroupSettings(group_id_max_length=2_000)
        assert _commit(w, _offsets(0, 1), long_id) == [ErrorCode.NONE]
        w.coordinator._shards._settings = GroupSettings()
        w.elect()
        w.load()
        assert _commit(w, _offsets(1, 1), long_id) == [ErrorCode.NONE]

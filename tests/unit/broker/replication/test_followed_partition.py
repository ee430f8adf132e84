"""What a follower does with answers: where it cuts its log, and when it begins anew. Logs are real."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.broker.process.supervisor import Supervisor
from oncelog.broker.replication.followed_partition import FollowedPartition
from oncelog.broker.replication.partition import Partition
from oncelog.broker.replication.replica_host import ReplicaHost
from oncelog.broker.replication.topic_traffic import TopicTraffic
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.partition_log import AppendOrigin, PartitionLog
from oncelog.broker.storage.recovery import NotedLog
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import EpochEndOffset, PartitionData
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.sim_disk import SimDisk
from tests.unit.broker.batches import batch, with_header
from tests.unit.broker.storage.logs import log_host

ME, LEADER = 1, 2


def log_of(epochs: Sequence[int], disk: SimDisk | None = None) -> PartitionLog:
    """A log with one record per offset, of these leader epochs."""
    disk = disk or SimDisk()
    disk.make_dirs("/data/t-0")
    log = PartitionLog.open(log_host(disk, lambda: 1_000), "/data/t-0", TopicPartition("t", 0), LogConfig(), NotedLog())
    for epoch in epochs:
        view, header = with_header(batch(b"of epoch %d" % epoch))
        log.append_as_leader(view, header, epoch, AppendOrigin.CLIENT)
    return log


def following(epochs: Sequence[int], *, leader_epoch: int = 9, disk: SimDisk | None = None) -> FollowedPartition:
    partition = Partition(TopicPartition("t", 0), ReplicaHost(broker_id=ME, spawn=Supervisor().spawn), TopicTraffic())
    state = LeaderAndIsrPartitionState(leader=LEADER, leader_epoch=leader_epoch, replicas=[ME, LEADER], isr=[LEADER])
    partition.become_follower(state, log_of(epochs, disk))
    return FollowedPartition(partition)


def records(log: PartitionLog) -> bytes:
    return b"".join(segment.file.read_at(segment.size, 0) for segment in log.segments)


@pytest.mark.parametrize(
    ("mine", "epoch", "end", "expected"),
    [
        ("1 1 1", 1, 2, 2),  # The leader's epoch 1 ended earlier.
        ("1 1 2 2", 1, 4, 2),  # The leader has no epoch 2: mine begins at 2.
        ("1 1 2 2", 1, 1, 1),  # Nor all of my epoch 1.
        ("1 1 3 3", 2, 3, 2),  # Its epoch 2 is unknown here: back to the end of 1, and ask again.
        ("2 2 3", 1, 5, 0),  # I have nothing that old.
        ("1 1 1", 1, 9, 3),  # It has more of it.
    ],
)
def test_diverging_log_is_truncated_where_both_agree(mine: str, epoch: int, end: int, expected: int) -> None:
    """B49, B50"""
    followed = following([int(each) for each in mine.split()])
    reply = PartitionData(diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end), high_watermark=7, records=b"")
    assert followed.take(reply) is ErrorCode.NONE
    assert followed.log.log_end_offset == expected
    assert followed.log.high_watermark == 0


def test_truncation_ignores_the_high_watermark() -> None:
    """B49: neither does it save what was never history, nor cut what is."""
    followed = following([1, 1, 1])
    followed.log.update_high_watermark(3)
    followed.take(PartitionData(diverging_epoch=EpochEndOffset(epoch=1, end_offset=2)))
    assert (followed.log.log_end_offset, followed.log.high_watermark) == (2, 2)
    followed = following([1, 1, 1])
    assert followed.position()[1:3] == (3, 1)
    assert followed.log.high_watermark == 0


@pytest.mark.parametrize("seed", range(20))
async def test_cut_is_synced_before_the_next_fetch(seed: int) -> None:
    """B57: else a loss of power may bring back what was cut, in front of what was fetched since."""
    disk = SimDisk()
    followed = following([1, 2, 2], disk=disk)
    log = followed.log
    disk.sync_dir("/")
    log.flush()
    assert not followed.needs_flush
    followed.take(PartitionData(diverging_epoch=EpochEndOffset(epoch=1, end_offset=1)))
    assert followed.needs_flush
    await log.flush_off_loop()
    assert not followed.needs_flush
    view, header = with_header(batch(b"of epoch 3"))
    log.append_as_leader(view, header, 3, AppendOrigin.CLIENT)
    disk.crash("power", random.Random(seed))
    content = disk.read("/data/t-0/00000000000000000000.log")
    assert b"of epoch 1" in content
    assert b"of epoch 2" not in content


def _epochs() -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, 4), max_size=8).map(sorted)


@given(common=_epochs(), mine=_epochs(), leaders=_epochs())
@settings(max_examples=150, deadline=None)
def test_rounds_of_divergence_end_at_the_common_beginning(
    common: list[int], mine: list[int], leaders: list[int]
) -> None:
    """B49, B50: any two histories that one epoch has at most one leader in."""
    # Beyond what they share, no epoch occurs in both: each epoch has one leader.
    base = max(common, default=0)
    mine = common + [base + 1 + 2 * epoch for epoch in mine]
    leaders = common + [base + 2 + 2 * epoch for epoch in leaders]
    followed, leader = following(mine, leader_epoch=99), log_of(leaders)
    leader.assign_epoch(99)
    for _ in range(len(mine) + 2):
        _, offset, last_epoch, _ = followed.position()
        epoch, end = leader.end_offset_for_epoch(last_epoch)
        if last_epoch == -1 or (epoch == last_epoch and end >= offset):
            break
        followed.take(PartitionData(diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end)))
    else:
        pytest.fail("it never ends")
    kept = followed.log.log_end_offset
    assert records(followed.log) == records(leader)[: len(records(followed.log))]
    assert kept >= min(len(common), leader.log_end_offset)


def test_records_and_offsets_are_taken_over() -> None:
    leader, followed = log_of([1, 1, 2]), following([])
    reply = PartitionData(high_watermark=2, log_start_offset=1, records=records(leader))
    assert followed.take(reply) is ErrorCode.NONE
    log = followed.log
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset, log.epochs.latest_epoch) == (1, 2, 3, 2)


def test_high_watermark_stays_within_the_log_and_does_not_go_back() -> None:
    """B55"""
    leader, followed = log_of([1, 1]), following([])
    followed.take(PartitionData(high_watermark=5, log_start_offset=0, records=records(leader)))
    assert followed.log.high_watermark == 2
    followed.take(PartitionData(high_watermark=1, log_start_offset=0, records=b""))
    assert followed.log.high_watermark == 2


def test_batches_of_a_later_epoch_than_the_leaders_are_left_out() -> None:
    leader, followed = log_of([1, 9, 10]), following([], leader_epoch=9)
    followed.take(PartitionData(high_watermark=3, log_start_offset=0, records=records(leader)))
    assert followed.log.log_end_offset == 2


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, 2, (0, 2)), (5, 8, (5, 5)), (1, 8, (0, 3)), (3, 3, (0, 3))],
)
def test_out_of_range_is_the_leaders_shorter_end_or_its_later_beginning(
    start: int, end: int, expected: tuple[int, int]
) -> None:
    followed = following([1, 1, 1])
    followed.reset(start, end)
    assert (followed.log.log_start_offset, followed.log.log_end_offset) == expected


def test_reply_with_error_changes_nothing() -> None:
    followed = following([1, 1])
    reply = PartitionData(error_code=ErrorCode.UNKNOWN_LEADER_EPOCH, high_watermark=2)
    assert followed.take(reply) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert (followed.log.log_end_offset, followed.log.high_watermark) == (2, 0)


def test_damaged_records_are_not_appended() -> None:
    leader, followed = log_of([1, 1]), following([])
    damaged = bytearray(records(leader))
    damaged[-1] ^= 1
    assert followed.take(PartitionData(high_watermark=2, records=damaged)) is ErrorCode.CORRUPT_MESSAGE
    assert followed.log.log_end_offset == 0

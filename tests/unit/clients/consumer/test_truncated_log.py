"""A log that loses its end while its records are fetched, wait to be polled and are polled, in every order.

Each record of the log names the one before it, and new records take the offsets of those that were lost. Whatever a
consumer returns at an offset must follow what it returned at the offset before: a record of a lost end that is followed
by one of the new end means that records were passed over without notice.
"""

from dataclasses import dataclass
from random import Random

import pytest

from oncelog.clients.consumer.assigned_partitions import (
    NO_RESET,
    RESET_TO_EARLIEST,
    FetchPosition,
    Leader,
    Phase,
    ResetPolicy,
)
from oncelog.clients.consumer.completed_fetch import CompletedFetch
from oncelog.clients.consumer.consumer_errors import LogTruncated, OffsetOutOfRange
from oncelog.clients.consumer.fetch_buffer import FetchBuffer
from oncelog.clients.consumer.read_ahead import MAX_UNREAD_RESPONSES
from oncelog.clients.consumer.subscription_state import SubscriptionState
from oncelog.clients.offset_and_metadata import OffsetAndMetadata
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_batch import NewRecord, build_batch
from tests.stored_batch import stored
from tests.unit.clients.consumer.fetched import ORDERS, completed

_STEPS = 400
_BATCHES_AT_ONCE = 5


@dataclass(frozen=True)
class _Written:
    """A record of the log: its own number, and that of the record before it."""

    number: int
    epoch: int
    before: int


class _Log:
    """A partition's log and its leader, which changes with every loss of an end."""

    def __init__(self) -> None:
        self.leader = Leader(1, 0)
        self._records: list[_Written] = []
        self._count = 0

    def append(self) -> None:
        before = self._records[-1].number if self._records else 0
        self._count += 1
        self._records.append(_Written(self._count, self.leader.epoch, before))

    def elect(self, end: int) -> None:
        """Go on with a leader whose log ends there."""
        del self._records[end:]
        self.leader = Leader(3 - self.leader.node_id, self.leader.epoch + 1)

    def __len__(self) -> int:
        return len(self._records)

    def end_of(self, epoch: int) -> tuple[int, int]:
        """The last epoch up to this one, and where it ends (KIP-101)."""
        if epoch == self.leader.epoch:
            return epoch, len(self)
        epochs = [record.epoch for record in self._records if record.epoch <= epoch]
        return (epochs[-1], len(epochs)) if epochs else (epoch, 0)

    def fetch(self, offset: int, epoch: int) -> tuple[ErrorCode, bytes]:
        if epoch != self.leader.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH, b""
        if offset > len(self):
            return ErrorCode.OFFSET_OUT_OF_RANGE, b""
        found = enumerate(self._records[offset : offset + _BATCHES_AT_ONCE], offset)
        return ErrorCode.NONE, b"".join(_batch(at, record) for at, record in found)


def _batch(offset: int, record: _Written) -> bytes:
    new = NewRecord(0, str(record.before).encode(), str(record.number).encode())
    return bytes(stored(build_batch([new]), base_offset=offset, partition_leader_epoch=record.epoch))


class _Reader:
    """The parts of a consumer that decide, with every request and response as a step of its own."""

    def __init__(self, log: _Log, policy: ResetPolicy) -> None:
        self.log = log
        self.subscription = SubscriptionState(policy)
        self.subscription.assign([ORDERS])
        self.buffer = FetchBuffer(self.subscription)
        self.seen: dict[int, int] = {}
        """The number of the record that was returned last at each offset."""
        self.returned = 0
        self.noticed = 0
        self.fetched = 0
        self._fetch: CompletedFetch | None = None
        self._end: tuple[FetchPosition, int, int] | None = None
        self.seek(OffsetAndMetadata(0))

    def seek(self, to: OffsetAndMetadata) -> None:
        self.subscription.partitions[ORDERS].seek(FetchPosition(to.offset, to.leader_epoch, self.log.leader))
        self.buffer.drop([ORDERS])

    def seek_back(self, count: int) -> None:
        """Read the last records once more, whatever they are now."""
        offset = max(0, max(self.seen, default=0) - count)
        self.seen = {}
        self.seek(OffsetAndMetadata(offset))

    def forget_from(self, offset: int) -> None:
        """The application has been told that records from there on are not in the log."""
        self.noticed += 1
        self.seen = {at: number for at, number in self.seen.items() if at < offset}

    def hear_of_leader(self) -> None:
        self.subscription.partitions.follow_leaders(lambda _: self.log.leader)

    def send_fetch(self) -> None:
        if self._fetch is not None or not self.subscription.is_fetchable(ORDERS):
            return
        offset = self.buffer.next_offset(ORDERS)
        if offset is None:
            return
        epoch = self.subscription.partitions[ORDERS].position.leader.epoch
        error, records = self.log.fetch(offset, epoch)
        if error is ErrorCode.FENCED_LEADER_EPOCH or not (records or error):
            return
        self._fetch = completed(offset, records, current_leader_epoch=epoch, error=error)

    def take_response(self) -> None:
        fetch, self._fetch = self._fetch, None
        if fetch is not None:
            self.fetched += self.buffer.add(fetch)

    def send_validation(self) -> None:
        partition = self.subscription.partitions[ORDERS]
        if partition.phase is Phase.AWAITING_VALIDATION and partition.position.leader == self.log.leader:
            self._end = (partition.position, *self.log.end_of(partition.position.offset_epoch))

    def take_end_of_epoch(self) -> None:
        if self._end is None:
            return
        requested, epoch, end = self._end
        self._end = None
        try:
            self.subscription.partitions.complete_validation(ORDERS, requested, epoch, end)
        except LogTruncated as truncated:
            self.forget_from(end)
            self.seek(truncated.diverging or OffsetAndMetadata(0))
            return
        if self.subscription.partitions[ORDERS].position != requested:
            self.forget_from(end)

    def poll(self, limit: int) -> None:
        try:
            records = self.buffer.take(limit)
        except OffsetOutOfRange:
            self.forget_from(0)
            self.seek(OffsetAndMetadata(0))
            return
        if self.subscription.partitions[ORDERS].phase is Phase.AWAITING_RESET:
            self.forget_from(0)
            policy = self.subscription.partitions[ORDERS].reset_policy
            self.subscription.partitions.complete_reset(ORDERS, policy, FetchPosition(0, leader=self.log.leader))
        for record in records:
            before = int(record.key or b"")
            assert self.seen.get(record.offset - 1, before) == before, f"records before offset {record.offset} skipped"
            self.seen[record.offset] = int(record.value or b"")
        self.returned += len(records)

    def go_on(self) -> None:
        """Let everything happen once, in the usual order."""
        self.hear_of_leader()
        self.send_validation()
        self.take_end_of_epoch()
        self.send_fetch()
        self.take_response()
        self.poll(3)

    def set_paused(self, paused: bool) -> None:
        self.subscription.partitions[ORDERS].paused = paused
        self.buffer.recount()


@pytest.mark.parametrize("policy", [NO_RESET, RESET_TO_EARLIEST])
def test_records_that_took_the_offsets_of_lost_ones_are_never_skipped(policy: ResetPolicy) -> None:
    noticed = [_play(seed, policy) for seed in range(60)]
    assert sum(map(bool, noticed)) > 20


def _play(seed: int, policy: ResetPolicy) -> int:
    """Return how often the loss of what had been returned was noticed."""
    rng = Random(seed)
    log = _Log()
    reader = _Reader(log, policy)
    steps = [
        (30, log.append),
        (4, lambda: log.elect(rng.randint(max(0, len(log) - 6), len(log)))),
        (12, reader.hear_of_leader),
        (20, reader.send_fetch),
        (20, reader.take_response),
        (12, reader.send_validation),
        (12, reader.take_end_of_epoch),
        (20, lambda: reader.poll(rng.randint(1, 6))),
        (2, lambda: reader.set_paused(True)),
        (6, lambda: reader.set_paused(False)),
        (1, lambda: reader.seek_back(rng.randint(0, 3))),
    ]
    for step in rng.choices([step for _, step in steps], [weight for weight, _ in steps], k=_STEPS):
        step()
    reader.set_paused(False)
    for _ in range(len(log)):
        reader.go_on()
    assert reader.subscription.partitions[ORDERS].position.offset == len(log), f"seed {seed}"
    return reader.noticed


def test_new_leader_with_the_same_log_costs_one_chain_at_most() -> None:
    log = _Log()
    reader = _Reader(log, NO_RESET)
    for _ in range(100):
        log.append()
    changes = 0
    while reader.returned < len(log):
        reader.go_on()
        reader.send_fetch()
        reader.take_response()
        if changes < 7:
            log.elect(len(log))
            changes += 1
    assert reader.seen == {offset: offset + 1 for offset in range(100)}
    assert reader.returned == 100
    assert reader.fetched <= 100 // _BATCHES_AT_ONCE + changes * MAX_UNREAD_RESPONSES

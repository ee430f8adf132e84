"""A partition over a real log on a simulated disk: leadership, acknowledgement, flushing, failure."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from oncelog.broker.process.supervisor import Supervisor
from oncelog.broker.replication.coordinator_log import CoordinatorLog
from oncelog.broker.replication.deletion import Deletion
from oncelog.broker.replication.fetch_session import FetchIsolation
from oncelog.broker.replication.isr_changes import IsrProposal
from oncelog.broker.replication.leading_partition import ACKS_ALL, LeadingPartition
from oncelog.broker.replication.partition import Partition
from oncelog.broker.replication.replica_host import ReplicaHost
from oncelog.broker.replication.replica_progress import ReplicaProgress
from oncelog.broker.replication.topic_traffic import TopicTraffic
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.partition_log import AppendInfo, AppendOrigin, PartitionLog
from oncelog.broker.storage.recovery import NotedLog
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_partition import AlteredPartition
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState
from oncelog.protocol.records.record_batch import iter_batches
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.sim_disk import SimDisk
from tests.unit.broker.batches import batch, marker, with_header
from tests.unit.broker.storage.logs import log_host
from tests.unit.broker.virtual_time import end_of_turn, in_virtual_time

ME, OTHER, THIRD = 1, 2, 3
MY_EPOCH = 60
LAG_MS = 1000
FLUSH_EACH = LogConfig(flush_interval_messages=1)
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


class Fixture:
    """One partition, its log and disk, and what it reported."""

    def __init__(self, config: LogConfig | None = None) -> None:
        self.disk = SimDisk()
        self.disk.make_dirs("/data/t-0")
        self.supervisor = Supervisor()
        self.config = config or LogConfig()
        self.now_ms = 0
        self.are_others_alive = True
        self.proposals: list[IsrProposal] = []
        self.host = ReplicaHost(
            broker_id=ME,
            spawn=self.supervisor.spawn,
            is_alive=lambda broker_id: self.are_others_alive,
            now_ms=lambda: self.now_ms,
            broker_epoch=lambda: MY_EPOCH,
            replica_lag_time_max_ms=LAG_MS,
            propose_isr=self.proposals.append,
        )
        self.partition = Partition(TopicPartition("t", 0), self.host, TopicTraffic())
        self.log = PartitionLog.open(
            log_host(self.disk, lambda: 1_000), "/data/t-0", TopicPartition("t", 0), self.config, NotedLog()
        )
        self.log.on_failure = self._log_failed

    def _log_failed(self, _: object) -> None:
        self.partition.stop(ErrorCode.KAFKA_STORAGE_ERROR)

    def lead(
        self, epoch: int = 0, *, replicas: tuple[int, ...] = (ME,), isr: tuple[int, ...] = (ME,), leader: int = ME
    ) -> bool:
        state = LeaderAndIsrPartitionState(
            leader=leader, leader_epoch=epoch, replicas=list(replicas), isr=list(isr), partition_epoch=epoch
        )
        if leader == ME:
            return self.partition.become_leader(state, self.log)
        return self.partition.become_follower(state, self.log)

    @property
    def leading(self) -> LeadingPartition:
        """The partition, which must be led."""
        assert self.partition.leading is not None
        return self.partition.leading

    @property
    def progress(self) -> ReplicaProgress:
        """What the leader knows of the replicas."""
        return self.leading.progress

    def fetched(self, end: int, replica_id: int = OTHER, *, log_start_offset: int = 0, epoch: int = -1) -> ErrorCode:
        """A follower fetches from its log's end on."""
        return self.leading.follower_fetched(
            replica_id, end=end, log_start_offset=log_start_offset, broker_epoch=epoch, knows_epoch=True
        )

    def proposed(self) -> list[set[int]]:
        return [{broker for broker, _ in proposal.isr} for proposal in self.proposals]

    def decide(
        self,
        *,
        error: ErrorCode = ErrorCode.NONE,
        isr: tuple[int, ...] = (),
        partition_epoch: int = -1,
        leader_epoch: int | None = None,
    ) -> None:
        """Respond to the last proposal."""
        proposal = self.proposals[-1]
        response = AlteredPartition(
            error_code=error,
            isr=list(isr),
            partition_epoch=partition_epoch,
            leader_epoch=proposal.leader_epoch if leader_epoch is None else leader_epoch,
        )
        proposal.on_decided(proposal, response)

    def append_to_log(self) -> None:
        """A record of the epoch before anybody is elected here."""
        view, header = with_header(batch())
        self.log.append_as_leader(view, header, 0, AppendOrigin.CLIENT)

    def append(
        self, data: bytearray | None = None, *, acks: int = 1, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendInfo | ErrorCode:
        view, header = with_header(data or batch())
        leading = self.partition.leading
        if leading is None:
            return self.partition.unavailable_error
        return leading.append(view, header, origin=origin, required_acks=acks)


async def opened(gate: asyncio.Event) -> None:
    await gate.wait()


def noted(calls: list[ErrorCode]) -> Callable[[ErrorCode], None]:
    return calls.append


def test_append_without_a_leader_here_is_refused() -> None:
    fixture = Fixture()
    assert fixture.append() is NOT_LEADER
    fixture.lead(0, leader=OTHER, replicas=(ME, OTHER), isr=(ME, OTHER))
    assert fixture.append() is NOT_LEADER
    assert fixture.log.log_end_offset == 0


def test_sole_replica_acknowledges_in_the_same_call() -> None:
    fixture = Fixture()
    fixture.lead()
    info = fixture.append(batch(b"a", b"b"), acks=ACKS_ALL)
    assert isinstance(info, AppendInfo)
    assert (info.base_offset, info.last_offset) == (0, 1)
    assert fixture.log.high_watermark == 2
    assert fixture.leading.is_acknowledged(2, ACKS_ALL)


def test_leader_epoch_is_stamped_and_remembered() -> None:
    """B53: the new epoch is known before anything is written under it."""
    fixture = Fixture()
    fixture.lead(3)
    assert fixture.log.epochs.latest_epoch == 3
    fixture.append()
    fixture.lead(5)
    fixture.append()
    records = fixture.log.segments.active.file.read_at(1000, 0)
    assert [header.partition_leader_epoch for _, header in iter_batches(records)] == [3, 5]
    assert fixture.log.end_offset_for_epoch(3) == (3, 1)


def test_acks_all_needs_enough_in_sync_replicas_and_others_do_not() -> None:
    fixture = Fixture(LogConfig(min_insync_replicas=2))
    fixture.lead(replicas=(ME, OTHER), isr=(ME,))
    assert fixture.append(acks=ACKS_ALL) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert fixture.log.log_end_offset == 0
    assert isinstance(fixture.append(acks=1), AppendInfo)


def test_high_watermark_waits_below_the_minimum() -> None:
    """B57: while fewer replicas are in sync than `min.insync.replicas`, nothing more becomes visible."""
    fixture = Fixture(LogConfig(min_insync_replicas=2))
    fixture.lead(replicas=(ME, OTHER), isr=(ME,))
    fixture.append(acks=1)
    assert fixture.log.high_watermark == 0


def test_sole_replica_is_never_too_few() -> None:
    fixture = Fixture(LogConfig(min_insync_replicas=2))
    fixture.lead()
    assert isinstance(fixture.append(acks=ACKS_ALL), AppendInfo)


def test_high_watermark_is_what_all_in_sync_replicas_have() -> None:
    """B60, B82: a follower that has not reported holds the high watermark back."""
    fixture, calls = Fixture(), list[ErrorCode]()
    fixture.lead(replicas=(ME, OTHER), isr=(ME, OTHER))
    fixture.append(batch(b"a", b"b"), acks=ACKS_ALL)
    fixture.leading.when_replicated(2, noted(calls))
    assert fixture.log.high_watermark == 0
    fixture.fetched(1)
    assert fixture.log.high_watermark == 1
    assert calls == []
    fixture.fetched(2)
    assert calls == [ErrorCode.NONE]


def test_waiter_is_called_at_once_for_a_replicated_offset_or_a_lost_leadership() -> None:
    fixture, calls = Fixture(), list[ErrorCode]()
    fixture.lead()
    fixture.append()
    leading = fixture.leading
    leading.when_replicated(1, noted(calls))
    fixture.lead(1, leader=OTHER, replicas=(ME, OTHER), isr=(OTHER,))
    leading.when_replicated(1, noted(calls))
    assert calls == [ErrorCode.NONE, NOT_LEADER]


def test_waiters_fail_when_the_leadership_is_lost() -> None:
    fixture, calls = Fixture(), list[ErrorCode]()
    fixture.lead(replicas=(ME, OTHER), isr=(ME, OTHER))
    fixture.append()
    fixture.leading.when_replicated(1, noted(calls))
    assert fixture.lead(1, leader=OTHER, replicas=(ME, OTHER), isr=(OTHER,))
    assert calls == [NOT_LEADER]


def test_waiters_survive_a_new_epoch_of_the_same_leader() -> None:
    fixture, calls = Fixture(), list[ErrorCode]()
    assert fixture.lead(replicas=(ME, OTHER), isr=(ME, OTHER))
    leading = fixture.leading
    fixture.append()
    leading.when_replicated(1, noted(calls))
    assert not fixture.lead(1, replicas=(ME, OTHER), isr=(ME,))
    assert calls == [ErrorCode.NONE]
    assert fixture.leading is leading
    assert CoordinatorLog(leading).append(batch()) == 2


def test_end_is_not_settled_until_the_new_epoch_is_replicated() -> None:
    """B81: a new leader's high watermark may lag behind what consumers saw before."""
    fixture = Fixture()
    fixture.lead(replicas=(ME, OTHER), isr=(ME, OTHER))
    fixture.append()
    fixture.lead(1, replicas=(ME, OTHER), isr=(ME, OTHER))
    assert not fixture.partition.end_is_settled
    fixture.fetched(1)
    assert fixture.partition.end_is_settled


@pytest.mark.parametrize(
    ("believed", "expected"),
    [
        (-1, ErrorCode.NONE),
        (4, ErrorCode.NONE),
        (3, ErrorCode.FENCED_LEADER_EPOCH),
        (5, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_clients_leader_epoch_is_compared(believed: int, expected: ErrorCode) -> None:
    """B51: a client with an older leader epoch is fenced, one with a newer has to wait."""
    fixture = Fixture()
    fixture.lead(4)
    assert fixture.partition.check_leader_epoch(believed) is expected


def test_coordinator_log_of_an_ended_leadership_appends_nothing() -> None:
    fixture, calls = Fixture(), list[ErrorCode]()
    fixture.lead()
    log = CoordinatorLog(fixture.leading)
    assert log.append(batch(b"a", b"b")) == 2
    fixture.lead(1, leader=OTHER, replicas=(ME, OTHER), isr=(OTHER,))
    assert log.append(batch()) is NOT_LEADER
    fixture.lead(2)
    assert log.append(batch()) is NOT_LEADER
    log.when_replicated(1, noted(calls))
    assert calls == [NOT_LEADER]
    assert fixture.log.log_end_offset == 2


def test_coordinator_log_reads_up_to_the_log_end() -> None:
    """B83: a coordinator loads up to the log end, beyond the high watermark."""
    fixture = Fixture()
    fixture.lead(replicas=(ME, OTHER), isr=(ME, OTHER))
    log = CoordinatorLog(fixture.leading)
    assert log.append(batch(b"a")) == 1
    assert log.append(batch(b"b", b"c")) == 3
    assert (log.high_watermark, log.log_end_offset, log.log_start_offset) == (0, 3, 0)
    fixture.disk.cold = lambda: True
    assert [header.base_offset for _, header in iter_batches(log.read(0, 10_000))] == [0, 1]
    assert [header.base_offset for _, header in iter_batches(log.read(2, 1))] == [1]
    assert len(log.read(3, 10_000)) == 0


def test_coordinators_record_that_is_too_large_for_its_topic_is_refused() -> None:
    fixture = Fixture(LogConfig(max_message_bytes=100))
    fixture.lead()
    assert CoordinatorLog(fixture.leading).append(batch(bytes(100))) is ErrorCode.MESSAGE_TOO_LARGE


@in_virtual_time
async def test_records_count_only_after_a_sync_if_each_message_is_flushed() -> None:
    fixture, all_calls, leader_calls = Fixture(FLUSH_EACH), list[ErrorCode](), list[ErrorCode]()
    gate = asyncio.Event()
    fixture.disk.delay = lambda: opened(gate)
    fixture.lead()
    fixture.append()
    fixture.leading.when_acknowledged(1, ACKS_ALL, noted(all_calls))
    fixture.leading.when_acknowledged(1, 1, noted(leader_calls))
    await end_of_turn()
    assert fixture.log.high_watermark == 0
    assert (all_calls, leader_calls) == ([], [])
    gate.set()
    await end_of_turn()
    assert fixture.log.high_watermark == 1
    assert (all_calls, leader_calls) == ([ErrorCode.NONE], [ErrorCode.NONE])


@in_virtual_time
async def test_appends_of_one_turn_share_a_sync() -> None:
    fixture, calls = Fixture(FLUSH_EACH), list[ErrorCode]()
    fixture.lead()
    syncs = fixture.disk.calls.get("sync", 0)
    for end in range(1, 21):
        fixture.append()
        fixture.leading.when_replicated(end, noted(calls))
    await end_of_turn()
    assert calls == [ErrorCode.NONE] * 20
    assert len(fixture.supervisor) == 0
    flushes = fixture.disk.calls["sync"] - syncs
    fixture.append()
    await end_of_turn()
    assert fixture.disk.calls["sync"] - syncs - flushes <= flushes
    assert flushes < 5


@in_virtual_time
async def test_appends_during_a_sync_are_covered_by_the_next() -> None:
    fixture, calls = Fixture(FLUSH_EACH), list[ErrorCode]()
    gate = asyncio.Event()
    fixture.disk.delay = lambda: opened(gate)
    fixture.lead()
    fixture.append()
    await end_of_turn()
    fixture.append()
    fixture.leading.when_replicated(2, noted(calls))
    done = asyncio.Event()
    fixture.leading.when_replicated(2, lambda _: done.set())
    gate.set()
    await done.wait()
    assert calls == [ErrorCode.NONE]


@in_virtual_time
async def test_larger_flush_interval_delays_no_acknowledgement() -> None:
    fixture = Fixture(LogConfig(flush_interval_messages=2))
    fixture.lead()
    fixture.append()
    assert fixture.log.high_watermark == 1
    assert len(fixture.supervisor) == 0
    fixture.append()
    assert fixture.log.high_watermark == 2
    await end_of_turn()
    assert fixture.log.flushed_offset == 2


@in_virtual_time
async def test_failed_sync_fails_the_log_and_its_waiters() -> None:
    """B41: after an I/O error nothing more of that log is acknowledged."""
    fixture, calls = Fixture(FLUSH_EACH), list[ErrorCode]()
    fixture.lead()
    fixture.disk.fail("sync", ".log")
    fixture.append()
    fixture.leading.when_replicated(1, noted(calls))
    await end_of_turn()
    assert calls == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert fixture.append() is ErrorCode.KAFKA_STORAGE_ERROR
    assert fixture.log.high_watermark == 0


def test_failed_write_is_reported_and_not_acknowledged() -> None:
    """B41: the append that met the error is refused, and every later one."""
    fixture = Fixture()
    fixture.lead()
    fixture.append()
    fixture.disk.fail("append", ".log")
    assert fixture.append() is ErrorCode.KAFKA_STORAGE_ERROR
    assert fixture.partition.leading is None
    assert fixture.append() is ErrorCode.KAFKA_STORAGE_ERROR
    assert fixture.log.high_watermark == 1


def test_retried_batch_returns_its_original_offset() -> None:
    """B34: the same batch again is the same response, and nothing is appended."""
    fixture = Fixture()
    fixture.lead()
    first = fixture.append(batch(b"a", b"b", producer_id=7, epoch=0, sequence=0))
    fixture.append(batch(b"c", producer_id=7, epoch=0, sequence=2))
    again = fixture.append(batch(b"a", b"b", producer_id=7, epoch=0, sequence=0))
    assert isinstance(first, AppendInfo)
    assert isinstance(again, AppendInfo)
    assert (again.base_offset, again.last_offset, again.duplicate) == (0, 1, True)
    assert fixture.log.log_end_offset == 3


def test_duplicate_waits_for_the_original_to_be_replicated() -> None:
    fixture = Fixture()
    fixture.lead(replicas=(ME, OTHER), isr=(ME, OTHER))
    for _ in range(2):
        info = fixture.append(batch(producer_id=7, epoch=0, sequence=0), acks=ACKS_ALL)
        assert isinstance(info, AppendInfo)
        assert not fixture.leading.is_acknowledged(info.last_offset + 1, ACKS_ALL)


def test_last_stable_offset_waits_for_the_marker_to_be_replicated() -> None:
    fixture = Fixture()
    fixture.lead(replicas=(ME, OTHER), isr=(ME, OTHER))
    fixture.fetched(0)
    fixture.append(batch(producer_id=7, epoch=0, sequence=0, transactional=True))
    fixture.append(marker(7, commit=True), origin=AppendOrigin.COORDINATOR)
    for follower_end, visible in [(1, 0), (2, 2)]:
        fixture.fetched(follower_end)
        assert fixture.partition.visible_end(FetchIsolation.HIGH_WATERMARK) == follower_end
        assert fixture.partition.visible_end(FetchIsolation.TXN_COMMITTED) == visible


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (2, Deletion(2, 2)),
        (-1, Deletion(3, 3)),
        (4, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-2, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_records_are_deleted_up_to_the_high_watermark(offset: int, expected: Deletion | ErrorCode) -> None:
    fixture = Fixture()
    fixture.lead()
    fixture.append(batch(b"a", b"b", b"c"))
    assert fixture.leading.delete_records(offset) == expected


def test_compacted_topic_refuses_delete_records() -> None:
    fixture = Fixture(replace(LogConfig(), cleanup_policy=frozenset({"compact"})))
    fixture.lead()
    assert fixture.leading.delete_records(0) is ErrorCode.POLICY_VIOLATION


@in_virtual_time
async def test_relaxed_flush_policy_releases_waiters() -> None:
    fixture, calls = Fixture(FLUSH_EACH), list[ErrorCode]()
    gate = asyncio.Event()
    fixture.disk.delay = lambda: opened(gate)
    fixture.lead()
    fixture.append()
    await end_of_turn()
    fixture.append()
    for acks in (1, ACKS_ALL):
        fixture.leading.when_acknowledged(2, acks, noted(calls))
    fixture.log.update_config(LogConfig())
    gate.set()
    await end_of_turn()
    assert calls == [ErrorCode.NONE] * 2


# Followers


def replicated(fixture: Fixture, *, isr: tuple[int, ...] = (ME,), epoch: int = 0) -> None:
    fixture.lead(epoch, replicas=(ME, OTHER, THIRD), isr=isr)


def test_follower_joins_when_it_has_the_epochs_start() -> None:
    """B52: not at the high watermark, which lags behind after an election."""
    fixture = Fixture()
    for _ in range(3):
        fixture.append_to_log()
    replicated(fixture, isr=(ME, THIRD), epoch=1)
    assert (fixture.log.high_watermark, fixture.progress.epoch_start_offset) == (0, 3)
    fixture.fetched(2)
    assert fixture.proposals == []
    fixture.fetched(3)
    assert fixture.proposed() == [{ME, OTHER, THIRD}]


def test_follower_that_is_not_alive_does_not_join() -> None:
    fixture = Fixture()
    replicated(fixture)
    fixture.are_others_alive = False
    fixture.fetched(0)
    assert fixture.proposals == []
    fixture.are_others_alive = True
    fixture.progress.propose_expansion()
    assert fixture.proposed() == [{ME, OTHER}]


def test_proposal_carries_the_broker_epoch_of_each_follower() -> None:
    """B56"""
    fixture = Fixture()
    replicated(fixture)
    fixture.fetched(0, epoch=70)
    (proposal,) = fixture.proposals
    assert proposal.isr == ((ME, MY_EPOCH), (OTHER, 70))
    assert (proposal.leader_epoch, proposal.partition_epoch) == (0, 0)


def test_fetch_of_a_former_incarnation_is_refused_and_changes_nothing() -> None:
    """B56"""
    fixture = Fixture()
    replicated(fixture, isr=(ME, OTHER))
    fixture.append()
    assert fixture.fetched(0, epoch=71) is ErrorCode.NONE
    assert fixture.fetched(1, epoch=70) is NOT_LEADER
    assert fixture.log.high_watermark == 0


@pytest.mark.parametrize(("knows_epoch", "expected"), [(True, ErrorCode.UNKNOWN_LEADER_EPOCH), (False, NOT_LEADER)])
def test_fetch_of_a_broker_without_replica_is_refused_with_retriable_error(
    knows_epoch: bool, expected: ErrorCode
) -> None:
    fixture = Fixture()
    replicated(fixture)
    assert (
        fixture.leading.follower_fetched(9, end=0, log_start_offset=0, broker_epoch=-1, knows_epoch=knows_epoch)
        is expected
    )


def test_high_watermark_waits_for_a_proposed_follower() -> None:
    """B82: the controller may have made it a member already."""
    fixture = Fixture()
    replicated(fixture)
    fixture.fetched(0)
    fixture.now_ms = 10 * LAG_MS
    fixture.append()
    fixture.leading.check_followers()
    assert not fixture.progress.followers[OTHER].is_close
    assert fixture.log.high_watermark == 0
    fixture.decide(isr=(ME, OTHER), partition_epoch=1)
    assert fixture.log.high_watermark == 0
    fixture.fetched(1)
    assert fixture.log.high_watermark == 1


def test_refused_addition_no_longer_holds_the_high_watermark_back() -> None:
    fixture = Fixture()
    replicated(fixture)
    fixture.fetched(0)
    fixture.now_ms = 10 * LAG_MS
    fixture.append()
    fixture.leading.check_followers()
    fixture.decide(error=ErrorCode.INELIGIBLE_REPLICA)
    assert (fixture.log.high_watermark, fixture.progress.in_sync.isr) == (1, {ME})
    fixture.fetched(1)
    assert len(fixture.proposals) == 1
    fixture.append()
    assert fixture.log.high_watermark == 2  # Although it is close behind, and alive.
    fixture.fetched(2)
    fixture.progress.retry_expansion()
    assert len(fixture.proposals) == 2


def test_refused_follower_is_proposed_again_after_another_registration() -> None:
    fixture = Fixture()
    replicated(fixture)
    fixture.fetched(0, epoch=70)
    fixture.decide(error=ErrorCode.INELIGIBLE_REPLICA)
    fixture.fetched(0, epoch=70)
    assert len(fixture.proposals) == 1
    fixture.fetched(0, epoch=71)
    assert len(fixture.proposals) == 2


def test_follower_that_left_the_cluster_does_not_hold_the_high_watermark_back() -> None:
    """A follower close behind holds the high watermark back only while it is a member."""
    fixture = Fixture()
    replicated(fixture, isr=(ME, THIRD))
    fixture.fetched(0)
    fixture.append()
    fixture.fetched(1, THIRD)
    fixture.decide(error=ErrorCode.OPERATION_NOT_ATTEMPTED)
    assert fixture.log.high_watermark == 0
    fixture.are_others_alive = False
    fixture.leading.brokers_left()
    assert fixture.log.high_watermark == 1


def test_removal_does_not_count_before_it_is_decided() -> None:
    """B82"""
    fixture = Fixture()
    replicated(fixture, isr=(ME, OTHER, THIRD))
    fixture.append()
    fixture.fetched(1)
    fixture.now_ms = LAG_MS + 1
    fixture.leading.check_followers()
    assert fixture.proposed() == [{ME, OTHER}]
    assert fixture.log.high_watermark == 0
    fixture.decide(isr=(ME, OTHER), partition_epoch=1)
    assert fixture.log.high_watermark == 1


@pytest.mark.parametrize("error", [ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH])
def test_both_isrs_count_after_other_refusals_until_the_next_leader_and_isr(error: ErrorCode) -> None:
    """B59: the leader does not know what the ISR is now."""
    fixture = Fixture()
    replicated(fixture, isr=(ME, OTHER))
    fixture.append()
    fixture.fetched(1)
    fixture.fetched(1, THIRD)
    assert fixture.proposed() == [{ME, OTHER, THIRD}]
    fixture.decide(error=error)
    assert fixture.progress.in_sync.maximal_isr == {ME, OTHER, THIRD}
    fixture.fetched(1, THIRD)
    assert len(fixture.proposals) == 1
    replicated(fixture, isr=(ME, THIRD), epoch=1)
    assert fixture.progress.in_sync.maximal_isr == {ME, THIRD}


def test_leader_and_isr_that_comes_meanwhile_wins_over_the_decision() -> None:
    """B59: a response of that time was decided before, or is a refusal."""
    fixture = Fixture()
    replicated(fixture)
    fixture.fetched(0)
    (proposal,) = fixture.proposals
    replicated(fixture, epoch=1)
    assert proposal.withdrawn
    assert fixture.progress.in_sync.maximal_isr == {ME}


@pytest.mark.parametrize(("partition_epoch", "leader_epoch"), [(4, 5), (6, 4)])
def test_decision_about_an_older_state_changes_nothing(partition_epoch: int, leader_epoch: int) -> None:
    """B59"""
    fixture = Fixture()
    replicated(fixture, epoch=5)
    fixture.fetched(0)
    fixture.decide(isr=(ME, OTHER), partition_epoch=partition_epoch, leader_epoch=leader_epoch)
    assert (fixture.progress.in_sync.isr, fixture.partition.partition_epoch) == ({ME}, 5)
    assert fixture.progress.in_sync.maximal_isr == {ME, OTHER}


def test_followers_that_are_ready_join_together_and_later_ones_when_that_is_decided() -> None:
    fixture = Fixture()
    replicated(fixture)
    fixture.fetched(0)
    fixture.fetched(0, THIRD)
    assert fixture.proposed() == [{ME, OTHER}]
    fixture.decide(isr=(ME, OTHER), partition_epoch=1)
    assert fixture.proposed() == [{ME, OTHER}, {ME, OTHER, THIRD}]
    assert fixture.proposals[-1].partition_epoch == 1


def test_removed_follower_does_not_join_without_a_fetch() -> None:
    fixture = Fixture()
    replicated(fixture, isr=(ME, OTHER, THIRD))
    fixture.append()
    fixture.fetched(1)
    fixture.now_ms = LAG_MS + 1
    fixture.leading.check_followers()
    fixture.decide(isr=(ME, OTHER), partition_epoch=1)
    fixture.progress.propose_expansion()
    assert fixture.proposed() == [{ME, OTHER}]


def fall_silent(fixture: Fixture, *brokers: int) -> None:
    fixture.host.contacts.silent = frozenset(brokers)
    fixture.leading.check_silence()


def test_silent_follower_leaves_the_isr_and_releases_the_high_watermark() -> None:
    """Although it had everything a moment ago."""
    fixture = Fixture()
    replicated(fixture, isr=(ME, OTHER, THIRD))
    fixture.fetched(0)
    fixture.fetched(0, THIRD)
    fixture.append()
    fixture.fetched(1)
    fall_silent(fixture, THIRD)
    assert fixture.proposed() == [{ME, OTHER}]
    assert fixture.log.high_watermark == 0  # B82
    fixture.decide(isr=(ME, OTHER), partition_epoch=1)
    assert fixture.log.high_watermark == 1
    assert len(fixture.proposals) == 1


def test_follower_that_fetches_again_joins_with_what_it_had() -> None:
    """Its fetch session need not name a partition in which nothing has happened."""
    fixture = Fixture()
    replicated(fixture, isr=(ME, OTHER, THIRD))
    fixture.fetched(0, THIRD)
    fall_silent(fixture, THIRD)
    fixture.decide(isr=(ME, OTHER), partition_epoch=1)
    fixture.progress.retry_expansion()
    assert len(fixture.proposals) == 1
    fall_silent(fixture)
    fixture.progress.retry_expansion()
    assert fixture.proposed()[-1] == {ME, OTHER, THIRD}


def test_silence_leaves_the_minimum_in_sync() -> None:
    """B90"""
    fixture = Fixture(LogConfig(min_insync_replicas=3))
    replicated(fixture, isr=(ME, OTHER, THIRD))
    fall_silent(fixture, THIRD)
    fixture.log.update_config(LogConfig(min_insync_replicas=1))
    fall_silent(fixture, OTHER, THIRD)
    assert not fixture.proposals


def test_followers_are_expected_after_an_election() -> None:
    """B90 does not wait for who never came."""
    fixture = Fixture()
    fixture.host.contacts.limit(2_000, 500)
    fixture.host.contacts.update_silent(0, 500)
    replicated(fixture, isr=(ME, OTHER, THIRD))
    for now_ms in range(500, 2_501, 500):
        fixture.host.contacts.update_silent(now_ms, 500)
    assert fixture.host.contacts.silent == {OTHER, THIRD}


def test_ended_leadership_withdraws_its_proposal() -> None:
    fixture = Fixture()
    replicated(fixture)
    fixture.fetched(0)
    fixture.lead(1, leader=OTHER, replicas=(ME, OTHER), isr=(OTHER,))
    assert fixture.partition.leading is None
    assert [proposal.withdrawn for proposal in fixture.proposals] == [True]


def test_record_on_too_few_replicas_fails_after_the_append() -> None:
    fixture, calls = Fixture(), list[ErrorCode]()
    replicated(fixture, isr=(ME, OTHER))
    fixture.append()
    fixture.fetched(1)
    fixture.log.update_config(LogConfig(min_insync_replicas=3))
    fixture.leading.when_acknowledged(1, ACKS_ALL, noted(calls))
    assert calls == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]


def test_coordinators_record_is_replicated_on_however_few_replicas() -> None:
    """B30: of an append that is in the log it hears NONE or that it leads no more, as ``ReplicatedLog`` promises."""
    fixture, calls = Fixture(), list[ErrorCode]()
    replicated(fixture, isr=(ME, OTHER))
    fixture.append()
    fixture.fetched(1)
    fixture.log.update_config(LogConfig(min_insync_replicas=3))
    CoordinatorLog(fixture.leading).when_replicated(1, noted(calls))
    assert calls == [ErrorCode.NONE]


class TestDesertion:
    """A leader of which no follower has been heard for long may be one no more."""

    def test_leader_alone_in_the_isr_is_not_deserted(self) -> None:
        fixture = Fixture()
        fixture.lead()
        fixture.now_ms = 60_000
        assert not fixture.leading.is_deserted
        fixture.lead(1, replicas=(ME, OTHER, THIRD), isr=(ME,))
        fixture.now_ms = 120_000
        assert not fixture.leading.is_deserted

    def test_leader_with_one_fetching_isr_member_is_not_deserted(self) -> None:
        fixture = Fixture()
        replicated(fixture, isr=(ME, OTHER, THIRD))
        for _ in range(5):
            fixture.now_ms += 1_400
            fixture.fetched(0, THIRD)
            assert not fixture.leading.is_deserted
        fixture.now_ms += 1_500
        assert not fixture.leading.is_deserted
        fixture.now_ms += 1
        assert fixture.leading.is_deserted

    def test_follower_out_of_the_isr_does_not_prevent_desertion(self) -> None:
        """It cannot be elected, so that it fetches says nothing about who leads."""
        fixture = Fixture()
        replicated(fixture, isr=(ME, OTHER))
        fixture.append()
        fixture.now_ms = 2_001
        fixture.fetched(0, THIRD)
        assert fixture.leading.is_deserted

    def test_new_leader_is_not_deserted_at_once(self) -> None:
        fixture = Fixture()
        fixture.now_ms = 60_000
        replicated(fixture, isr=(ME, OTHER))
        assert not fixture.leading.is_deserted


def test_added_replica_is_expected_too() -> None:
    fixture = Fixture()
    fixture.host.contacts.limit(2_000, 500)
    fixture.lead(0, replicas=(ME, OTHER), isr=(ME, OTHER))
    fixture.now_ms = 10_000
    state = LeaderAndIsrPartitionState(
        leader=ME, leader_epoch=0, replicas=[ME, OTHER, THIRD], isr=[ME, OTHER], partition_epoch=1
    )
    fixture.partition.become_leader(state, fixture.log)
    fixture.host.contacts.update_silent(11_000, 500)
    assert fixture.host.contacts.silent == {OTHER}

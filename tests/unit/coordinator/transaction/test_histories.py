"""Random histories: requests, slow replication, refused records, failovers at any point, partitions that come and go.

Whatever happens, what the coordinator believes is what its log durably says; the log keeps to the state machine; every
partition hears the decisions about it, in their order and in no other; no response promises more than what is durable.
And once the faults are over, nothing stays open.

The clients speak both protocols in turn, and the finalised level goes up and down under them.
"""

from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from oncelog.coordinator.transaction.coordinator import EndTxnResult, InitProducerIdResult
from oncelog.coordinator.transaction.listing import TransactionFilter
from oncelog.coordinator.transaction.log_records import build_record_batch
from oncelog.coordinator.transaction.settings import TransactionConfig
from oncelog.coordinator.transaction.state import (
    LAST_LIVE_EPOCH,
    NO_PARTITIONS,
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ProducerIdAndEpoch,
    Transaction,
    TransactionMetadata,
)
from oncelog.coordinator.transaction.transaction_state import PREPARED_STATES, TRANSITIONS, TransactionState
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.coordinator.transaction.world import HERE, Call, World

LAST_EPOCHS = {"nearly exhausted": LAST_LIVE_EPOCH - 2, "exhausted": LAST_LIVE_EPOCH}
IDS = ("new", *LAST_EPOCHS)
TOPICS = ("invoices", "shipments", "returns")
TIMEOUT_MS = 60_000
CONFIG = TransactionConfig(transactional_id_expiration_ms=3_600_000, remove_expired_interval_ms=1_800_000)

transactional_ids = st.sampled_from(IDS)
topics = st.sampled_from(TOPICS)
levels = st.sampled_from([0, 1, 2])
client_versions = st.sampled_from([0, 2])


@dataclass
class OpenCall:
    """A request that was not answered when last looked at."""

    kind: str
    call: Call[Any]
    transactional_id: str
    producer: ProducerIdAndEpoch | None
    argument: Any = None
    client_version: int = 0


class Histories(RuleBasedStateMachine):
    @initialize(replicates_at_once=st.booleans(), level=levels)
    def begin(self, replicates_at_once: bool, level: int) -> None:
        self.world = World(config=CONFIG, block=3, level=level)
        self.world.producer_ids.given = 0
        self.known: dict[str, list[ProducerIdAndEpoch]] = {transactional_id: [] for transactional_id in IDS}
        self.granted: list[tuple[ProducerIdAndEpoch, bool]] = []
        """With whether it was for a new producer: nobody else may ever get that one."""
        self.open_calls: list[OpenCall] = []
        self.ever_deleted: set[TopicPartition] = set()
        for topic in TOPICS:
            self.world.cluster.add_topic(topic)
        self.world.log.elect()
        for producer_id, (transactional_id, epoch) in enumerate(LAST_EPOCHS.items(), 5):
            old = old_transaction(producer_id, epoch)
            assert self.world.log.epoch_log is not None
            self.world.log.epoch_log.append(build_record_batch(transactional_id, old, 1_000_000))
            self.known[transactional_id].append(old.producer)
        self.world.start()
        self.known["new"].append(self.world.producer("new"))
        self.world.log.replicates_at_once = replicates_at_once

    # Requests

    def ask(
        self,
        kind: str,
        transactional_id: str,
        call: Call[Any],
        producer: Any,
        argument: Any = None,
        client_version: int = 0,
    ) -> None:
        self.open_calls.append(OpenCall(kind, call, transactional_id, producer, argument, client_version))

    @rule(transactional_id=transactional_ids, continues=st.booleans(), age=st.integers(0, 2))
    def init(self, transactional_id: str, continues: bool, age: int) -> None:
        expected = self.producer(transactional_id, age) if continues else None
        self.ask("init", transactional_id, self.world.init(transactional_id, expected=expected), expected)

    @rule(
        transactional_id=transactional_ids,
        age=st.sampled_from([0, 0, 0, 1]),
        topic=topics,
        client_version=client_versions,
    )
    def add(self, transactional_id: str, age: int, topic: str, client_version: int) -> None:
        producer, partition = self.producer(transactional_id, age), TopicPartition(topic, 0)
        if producer is not None and self.world.cluster.topic_exists(topic):
            call = self.world.add(producer, partition, transactional_id=transactional_id, client_version=client_version)
            self.ask("add", transactional_id, call, producer, partition)

    @rule(
        transactional_id=transactional_ids,
        age=st.sampled_from([0, 0, 0, 1]),
        commit=st.booleans(),
        client_version=client_versions,
    )
    def end(self, transactional_id: str, age: int, commit: bool, client_version: int) -> None:
        producer = self.producer(transactional_id, age)
        if producer is None:
            return
        end: Any = self.world.end_and_bump if client_version == 2 else self.world.end
        call = end(producer, commit=commit, transactional_id=transactional_id)
        self.ask("end", transactional_id, call, producer, commit, client_version)

    @rule(
        transactional_id=transactional_ids,
        partitions=st.lists(topics, min_size=1, max_size=3, unique=True),
        ends=st.lists(st.tuples(st.booleans(), st.sampled_from([0, 0, 1])), min_size=1, max_size=2),
        pause=st.sampled_from([0, 0, 0.003]),
        client_version=client_versions,
        rounds=st.integers(1, 4),
    )
    def transact(
        self,
        transactional_id: str,
        partitions: list[str],
        ends: list[tuple[bool, int]],
        pause: float,
        client_version: int,
        rounds: int,
    ) -> None:
        """What a producer does all day, and a little more: it may end twice, both ways, and as who it was before."""
        self.prepare_producer(transactional_id)
        for _ in range(rounds):
            for topic in partitions:
                self.add(transactional_id, 0, topic, client_version)
            self.world.sleep(pause)
            for commit, age in ends:
                self.end(transactional_id, age, commit, client_version)
                self.world.turn()
                self.responses_promise_what_is_durable()

    def prepare_producer(self, transactional_id: str) -> None:
        """Get a new epoch if another client has: by hand, so that histories do not end at the first fence."""
        table = self.world.log.table()
        producer = self.producer(transactional_id, 0)
        if transactional_id not in table or table[transactional_id].producer != producer:
            self.init(transactional_id, False, 0)
            self.world.turn()
            self.responses_promise_what_is_durable()

    def producer(self, transactional_id: str, age: int) -> ProducerIdAndEpoch | None:
        known = self.known[transactional_id]
        return known[-1 - age] if age < len(known) else None

    # Time and faults

    @rule(level=levels)
    def finalise(self, level: int) -> None:
        self.world.transaction_version = level

    @rule(seconds=st.sampled_from([0.001, 0.006, 0.1, 2, 12, 80, 1_900]))
    def sleep(self, seconds: float) -> None:
        self.world.sleep(seconds)

    @rule()
    def turn(self) -> None:
        self.world.turn()

    @rule(records=st.integers(1, 3))
    def replicate(self, records: int) -> None:
        log = self.world.log
        self.world.do(lambda: log.replicate(min(log.high_watermark + records, log.log_end_offset)))

    @rule(at_once=st.booleans())
    def change_replication(self, at_once: bool) -> None:
        log = self.world.log
        log.replicates_at_once = at_once
        if at_once:
            self.world.do(log.replicate)

    @rule(error=st.sampled_from([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE]))
    def refuse_an_append(self, error: ErrorCode) -> None:
        self.world.log.refusals.append(error)

    @rule(lost_records=st.integers(0, 3))
    def fail_over(self, lost_records: int) -> None:
        self.world.elect(lost_records=lost_records)

    @rule(topic=topics, leader=st.sampled_from([HERE, 2, 3, None]))
    def move(self, topic: str, leader: int | None) -> None:
        known = self.world.cluster.partitions.get(TopicPartition(topic, 0))
        if known is not None:
            known.leader = leader

    @rule(topic=topics, error=st.sampled_from([ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS]))
    def refuse_a_marker(self, topic: str, error: ErrorCode) -> None:
        known = self.world.cluster.partitions.get(TopicPartition(topic, 0))
        if known is not None:
            known.errors.append(error)

    @rule(topic=topics)
    def delete_or_create(self, topic: str) -> None:
        if self.world.cluster.topic_exists(topic):
            self.world.cluster.delete_topic(topic)
        else:
            self.world.cluster.add_topic(topic)
        self.ever_deleted.add(TopicPartition(topic, 0))

    @precondition(lambda self: self.world.cluster.on_the_way)
    @rule(loses=st.booleans(), count=st.integers(1, 2))
    def settle_requests(self, loses: bool, count: int) -> None:
        cluster = self.world.cluster
        self.world.do(cluster.lose if loses else lambda: cluster.deliver(count))

    # What must hold after every step

    @property
    def is_open(self) -> bool:
        """Whether the partition has been loaded: only then can it be listed."""
        return isinstance(self.listed(), list)

    def listed(self) -> list[Transaction] | ErrorCode:
        return self.world.listed(TransactionFilter())

    @invariant()
    def memory_is_what_the_log_durably_says(self) -> None:
        """B25: for every persisted field, with whatever is in memory only left out."""
        listed = self.listed()
        if isinstance(listed, ErrorCode):
            return
        log = self.world.log
        versions = log.value_versions(below=log.high_watermark)
        found = {txn.transactional_id: persisted(txn.metadata, versions[txn.transactional_id]) for txn in listed}
        assert found == log.table(below=log.high_watermark)

    @invariant()
    def the_log_keeps_to_the_state_machine(self) -> None:
        """B13, B23, B27, B29: each record follows from the one before it."""
        last: dict[str, TransactionMetadata] = {}
        owners: dict[int, str] = {}
        for name, metadata in self.world.log.records():
            before = last.pop(name, None)
            if metadata is None:
                assert before is not None
                assert TransactionState.DEAD in TRANSITIONS[before.state]
                continue
            last[name] = metadata
            if before is not None:
                check_step(before, metadata)
            assert metadata.producer_epoch <= LAST_LIVE_EPOCH or is_fence(metadata)
            assert owners.setdefault(metadata.producer_id, name) == name
            if metadata.next_producer_id != NO_PRODUCER_ID:
                assert metadata.producer_epoch > LAST_LIVE_EPOCH
                assert metadata.next_producer_id not in owners
                assert metadata.state in PREPARED_STATES

    @invariant()
    def responses_promise_what_is_durable(self) -> None:
        log = self.world.log
        durable = list(log.records(below=log.high_watermark))
        for requested in [requested for requested in self.open_calls if requested.call.response is not None]:
            self.open_calls.remove(requested)
            records = [known for name, known in durable if name == requested.transactional_id and known is not None]
            getattr(self, f"check_{requested.kind}")(requested, records)

    def check_init(self, requested: OpenCall, records: list[TransactionMetadata]) -> None:
        result = requested.call.response
        assert isinstance(result, InitProducerIdResult)
        if result.error is not ErrorCode.NONE:
            return
        producer = result.producer
        assert any(r.producer == producer and r.state is TransactionState.EMPTY for r in records)
        is_new = requested.producer is None
        earlier = self.granted if is_new else [granted for granted in self.granted if granted[1]]
        assert producer not in [granted for granted, _ in earlier]
        self.granted.append((producer, is_new))
        if producer not in self.known[requested.transactional_id]:
            self.known[requested.transactional_id].append(producer)

    def check_add(self, requested: OpenCall, records: list[TransactionMetadata]) -> None:
        """B21: the beginning of a transaction is durable before a producer may write to its partition."""
        if requested.call.response is ErrorCode.NONE:
            assert any(
                r.producer == requested.producer
                and r.state is TransactionState.ONGOING
                and requested.argument in r.partitions
                for r in records
            )

    def check_end(self, requested: OpenCall, records: list[TransactionMetadata]) -> None:
        if requested.client_version == 2:
            self.check_end_and_bump(requested, records)
        elif requested.call.response is ErrorCode.NONE and requested.producer not in OLD_PRODUCERS:
            states = {r.state for r in records if r.producer == requested.producer}
            assert not states.isdisjoint(ENDS[requested.argument])

    def check_end_and_bump(self, requested: OpenCall, records: list[TransactionMetadata]) -> None:
        """The decision is durable, and the producer goes on with an epoch that nobody had before it."""
        result, old = requested.call.response, requested.producer
        assert isinstance(result, EndTxnResult)
        assert old is not None
        if result.error is not ErrorCode.NONE:
            assert result.producer == NO_PRODUCER
            return
        prepared, _ = ENDS[requested.argument]
        ends = [r for r in records if r.producer == (old.id, old.epoch + 1) and r.state is prepared]
        if ends or old not in [(id, epoch - 1) for id, epoch in OLD_PRODUCERS]:
            assert ends
        following = result.producer
        assert following in [(old.id, old.epoch + 1), *((end.next_producer_id, 0) for end in ends)]
        assert following.epoch <= LAST_LIVE_EPOCH
        assert following not in [granted for granted, is_new in self.granted if is_new]
        self.granted.append((following, False))
        if following not in self.known[requested.transactional_id]:
            self.known[requested.transactional_id].append(following)

    @invariant()
    def partitions_hear_what_was_decided_in_the_order_of_the_decisions(self) -> None:
        for topic in TOPICS:
            partition = TopicPartition(topic, 0)
            if partition not in self.ever_deleted:
                for decisions, markers in self.heard(partition):
                    follow(decisions, markers)

    def heard(self, partition: TopicPartition) -> list[tuple[list[tuple[int, bool]], list[tuple[int, bool]]]]:
        """By producer id: (epoch, commit) of the decisions about the partition, and of the markers in it."""
        log, known = self.world.log, self.world.cluster.partitions[partition]
        decisions: dict[int, list[tuple[int, bool]]] = {}
        for _, metadata in log.records(below=log.high_watermark):
            if metadata is not None and metadata.state in PREPARED_STATES and partition in metadata.partitions:
                decision = (metadata.producer_epoch, metadata.state is TransactionState.PREPARE_COMMIT)
                decisions.setdefault(metadata.producer_id, []).append(decision)
        markers: dict[int, list[tuple[int, bool]]] = {}
        for marker in known.markers:
            markers.setdefault(marker.producer_id, []).append((marker.producer_epoch, marker.commit))
        assert markers.keys() <= decisions.keys()
        return [(decisions[producer_id], markers.get(producer_id, [])) for producer_id in decisions]

    # What must hold when the faults are over

    def teardown(self) -> None:
        try:
            self.heal()
            self.everything_ends()
            self.a_reload_changes_nothing()
        finally:
            self.world.stop()

    def heal(self) -> None:
        self.world.log.refusals.clear()
        self.world.log.replicates_at_once = True
        self.world.do(self.world.log.replicate)
        for known in self.world.cluster.partitions.values():
            known.leader = HERE
            known.errors.clear()
        for _ in range(3):
            self.world.do(self.world.cluster.deliver)
            self.world.sleep(TIMEOUT_MS / 1000)

    def everything_ends(self) -> None:
        """B12, B14, B30, B33: no request, pending transition or open transaction is left; no marker is missing."""
        self.responses_promise_what_is_durable()
        assert self.open_calls == []
        assert self.is_open
        listed = self.listed()
        assert not isinstance(listed, ErrorCode)
        assert all(txn.pending is None and not txn.waiters for txn in listed)
        assert {txn.metadata.state for txn in listed}.isdisjoint({TransactionState.ONGOING, *PREPARED_STATES})
        for topic in TOPICS:
            partition = TopicPartition(topic, 0)
            if partition not in self.ever_deleted:
                for decisions, markers in self.heard(partition):
                    assert follow(decisions, markers) == len(decisions)

    def a_reload_changes_nothing(self) -> None:
        """B25: what a new coordinator knows equals what the old one knew; what is in memory only is empty."""
        before = self.listed()
        assert not isinstance(before, ErrorCode)
        versions = self.world.log.value_versions()
        expected = {txn.transactional_id: persisted(txn.metadata, versions[txn.transactional_id]) for txn in before}
        self.world.elect()
        self.world.turn(20)
        after = self.listed()
        assert not isinstance(after, ErrorCode)
        assert {txn.transactional_id: txn.metadata for txn in after} == expected
        assert all(txn.pending is None and not txn.waiters for txn in after)
        assert all(txn.unknown_since_ms == NO_TIMESTAMP for txn in after)


OLD_PRODUCERS = [ProducerIdAndEpoch(id, epoch) for id, epoch in enumerate(LAST_EPOCHS.values(), 5)]
ENDS = {
    True: (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT),
    False: (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT),
}


def old_transaction(producer_id: int, epoch: int) -> TransactionMetadata:
    """A transaction that was committed long ago, of whose beginning nothing is known."""
    return TransactionMetadata(
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=TIMEOUT_MS,
        state=TransactionState.COMPLETE_COMMIT,
        partitions=NO_PARTITIONS,
        start_ms=1_000_000,
        last_update_ms=1_000_000,
    )


def persisted(metadata: TransactionMetadata, value_version: int) -> TransactionMetadata:
    """Without what is in memory only, and what version 0 of the log's values does not hold."""
    metadata = metadata._replace(last_producer_epoch=NO_PRODUCER_EPOCH)
    if value_version > 0:
        return metadata
    return metadata._replace(
        previous_producer_id=NO_PRODUCER_ID, next_producer_id=NO_PRODUCER_ID, client_transaction_version=0, cause=None
    )


def is_fence(metadata: TransactionMetadata) -> bool:
    """Whether the record may have the epoch that no producer ever has."""
    return metadata.state in ENDS[False] or metadata.next_producer_id != NO_PRODUCER_ID


def check_step(before: TransactionMetadata, after: TransactionMetadata) -> None:
    assert after.state in TRANSITIONS[before.state]
    bumps = after.producer_epoch - before.producer_epoch
    if after.client_transaction_version == 2 and after.state in PREPARED_STATES:
        assert (after.producer_id, bumps) == (before.producer_id, 1), "the markers of version 2 have the next epoch"
    if after.producer == before.producer:
        return
    if after.producer_id == before.producer_id:
        assert bumps == 1
        assert after.state in (TransactionState.EMPTY, *PREPARED_STATES)
        return
    assert after.producer_epoch == 0
    assert before.producer_epoch >= LAST_LIVE_EPOCH
    assert after.state is TransactionState.EMPTY or before.next_producer_id == after.producer_id


def follow(decisions: list[tuple[int, bool]], markers: list[tuple[int, bool]]) -> int:
    """How many decisions have been heard, if each is heard once or more, in their order."""
    heard = 0
    for marker in markers:
        if heard < len(decisions) and decisions[heard] == marker:
            heard += 1
        else:
            assert heard > 0, f"{marker} before any decision"
            assert decisions[heard - 1] == marker, f"{marker} after {heard} of {decisions}"
    return heard


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=60,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)

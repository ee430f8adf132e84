"""Transactions on several brokers, one at a time, when something befalls one of them: step by step, in virtual time.

(What becomes of many transactions under any sequence of deaths is in ``test_replicated_transactions``.)
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import pytest

from oncelog.broker.storage.partition_log import PartitionLog
from oncelog.coordinator.metadata_store.znodes import PartitionState
from oncelog.coordinator.transaction.state import TransactionMetadata
from oncelog.coordinator.transaction.transaction_state import TransactionState
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.placement import partition_for
from oncelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from oncelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from oncelog.protocol.messages.end_txn import EndTxnResponse
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.protocol.messages.produce import ProduceResponse
from oncelog.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse
from oncelog.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation import requests
from tests.simulation.cluster_stories import create, simulate, state_of
from tests.simulation.patient_client import produce_errors
from tests.simulation.simulated_cluster import SESSION_SECONDS, ClusterBroker, SimulatedCluster
from tests.simulation.wire_client import NoResponse, WireClient

REPLICATED: Final[Mapping[str, str]] = {
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
    "transaction.state.log.num.partitions": "3",
}
LOG: Final = "__transaction_state"
OFFSETS: Final = "__consumer_offsets"
T0: Final = TopicPartition("t", 0)
LOG_0: Final = TopicPartition(LOG, 0)
BACKOFF_SECONDS: Final = 0.02
PATIENCE_SECONDS: Final = 60.0
OFFSET_COMMIT_VERSION: Final = 7


async def until(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> float:
    """Wait in virtual time; how long it took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not condition():
        assert loop.time() - began < seconds, "it does not happen"
        await asyncio.sleep(0.01)
    return loop.time() - began


async def create_log(cluster: SimulatedCluster, *replicas: tuple[int, ...]) -> None:
    """The transaction log with one partition, whose replicas are where a story needs them."""
    await create(cluster, LOG, *replicas)
    await asyncio.sleep(0.3)


def pause(cluster: SimulatedCluster, broker_id: int) -> None:
    process = cluster[broker_id].process
    assert process is not None
    process.pause()


def resume(cluster: SimulatedCluster, broker_id: int) -> None:
    process = cluster[broker_id].process
    assert process is not None
    process.resume()


def replica_log(broker: ClusterBroker, partition: TopicPartition) -> PartitionLog:
    found = broker.running.replica_manager.partition(partition)
    assert found is not None
    assert found.log is not None
    return found.log


def end_of(broker: ClusterBroker, partition: TopicPartition) -> int:
    return replica_log(broker, partition).log_end_offset


def watermark(broker: ClusterBroker, partition: TopicPartition) -> int:
    return replica_log(broker, partition).high_watermark


async def make_log(cluster: SimulatedCluster) -> None:
    """Create the transaction log, by asking for a coordinator as clients do."""
    client = await cluster[1].client()
    ask = requests.find_coordinator("anybody", transactional=True)
    response = await client.call(ask, requests.FIND_COORDINATOR_VERSION)
    assert response.error_code == ErrorCode.NONE
    await asyncio.sleep(0.5)


def partition_of(cluster: SimulatedCluster, topic: str, key: str) -> TopicPartition:
    """Where an internal topic has a transactional id or a group."""
    count = cluster.alive[0].running.metadata.partition_count(topic)
    assert count is not None
    return TopicPartition(topic, partition_for(key, count))


def log_partition(cluster: SimulatedCluster, transactional_id: str) -> TopicPartition:
    return partition_of(cluster, LOG, transactional_id)


def id_led_by(cluster: SimulatedCluster, broker_id: int) -> str:
    """A transactional id whose coordinator is this broker."""
    candidates = (f"id-{number}" for number in range(1_000))
    return next(name for name in candidates if coordinator_of(cluster, name) is cluster[broker_id])


def coordinator_of(cluster: SimulatedCluster, transactional_id: str) -> ClusterBroker:
    return cluster[state_of(cluster, *log_partition(cluster, transactional_id)).leader]


def described(broker: ClusterBroker, transactional_id: str) -> TransactionMetadata | ErrorCode:
    """What the broker's coordinator says of an id."""
    return broker.running.transaction_coordinator.describe(transactional_id)


def state_at(cluster: SimulatedCluster, transactional_id: str) -> TransactionState | ErrorCode:
    """The state of an id at its coordinator of this moment."""
    coordinator = coordinator_of(cluster, transactional_id)
    if coordinator.broker is None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    found = described(coordinator, transactional_id)
    return found if isinstance(found, ErrorCode) else found.state


def is_challenged(response: object) -> bool:
    """Whether a response asks its client for a repetition over the same connection."""
    match response:
        case AddPartitionsToTxnResponse():
            errors = set(requests.added_partitions(response).values())
        case TxnOffsetCommitResponse():
            errors = set(requests.committed_partitions(response).values())
        case EndTxnResponse() | AddOffsetsToTxnResponse():
            errors = {ErrorCode(response.error_code)}
        case ProduceResponse():
            partitions = [each for topic in response.responses for each in topic.partition_responses]
            return {each.error_code for each in partitions} == {ErrorCode.NOT_ENOUGH_REPLICAS}
        case _:
            return False
    return errors == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


class Producer:
    """A producer of the first protocol, that sends what the test says, each request over a connection of its own.

    It retries nothing, except that it repeats a request over the same connection when it is challenged for that.
    """

    def __init__(self, cluster: SimulatedCluster, transactional_id: str) -> None:
        self._cluster = cluster
        self.transactional_id = transactional_id
        self.producer_id = self.epoch = -1
        self._sequences: dict[TopicPartition, int] = {}

    async def ask(self, broker: ClusterBroker, request: Message, version: int) -> Any:
        client = await WireClient.connect(broker.port, response_within=PATIENCE_SECONDS)
        try:
            response = await client.call(request, version)
            if is_challenged(response):
                await asyncio.sleep(BACKOFF_SECONDS)
                return await client.call(request, version)
            return response
        finally:
            client.close()

    async def ask_coordinator(self, request: Message, version: int) -> Any:
        return await self.ask(coordinator_of(self._cluster, self.transactional_id), request, version)

    async def init(self, *, timeout_ms: int = 60_000) -> ErrorCode:
        request = requests.init_producer_id(self.transactional_id, timeout_ms=timeout_ms)
        response = await self.ask_coordinator(request, requests.INIT_PRODUCER_ID_VERSION)
        if response.error_code == ErrorCode.NONE:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        return ErrorCode(response.error_code)

    async def add(self, *partitions: TopicPartition) -> set[ErrorCode]:
        request = requests.add_partitions(self.transactional_id, self.producer_id, self.epoch, partitions)
        response = await self.ask_coordinator(request, requests.ADD_PARTITIONS_VERSION)
        return set(requests.added_partitions(response).values())

    async def produce(self, partition: TopicPartition, value: bytes) -> set[ErrorCode]:
        sequence = self._sequences.get(partition, 0)
        batch = requests.batch(
            [value], producer_id=self.producer_id, epoch=self.epoch, sequence=sequence, transactional=True
        )
        request = requests.produce(partition, batch, transactional_id=self.transactional_id)
        leader = self._cluster[state_of(self._cluster, *partition).leader]
        errors = produce_errors(await self.ask(leader, request, requests.PRODUCE_VERSION))
        self._sequences[partition] = sequence + (errors == {ErrorCode.NONE})
        return errors

    async def write(self, *partitions: TopicPartition) -> None:
        """A record to each of them, in the transaction."""
        assert await self.add(*partitions) == {ErrorCode.NONE}
        for partition in partitions:
            assert await self.produce(partition, b"v") == {ErrorCode.NONE}

    async def end(self, *, commit: bool = True) -> ErrorCode:
        request = requests.end_txn(self.transactional_id, self.producer_id, self.epoch, commit=commit)
        response = await self.ask_coordinator(request, requests.END_TXN_VERSION)
        return ErrorCode(response.error_code)

    async def commit_offset(self, group_coordinator: ClusterBroker, group: str, offset: int) -> ErrorCode:
        """In the transaction."""
        add = requests.add_offsets(self.transactional_id, self.producer_id, self.epoch, group)
        added = await self.ask_coordinator(add, requests.ADD_OFFSETS_VERSION)
        assert added.error_code == ErrorCode.NONE
        commit = requests.txn_offset_commit(self.transactional_id, self.producer_id, self.epoch, group, {T0: offset})
        response = await self.ask(group_coordinator, commit, requests.TXN_OFFSET_COMMIT_VERSION)
        (error,) = requests.committed_partitions(response).values()
        return error


async def producer_at(cluster: SimulatedCluster, broker_id: int, **settings: int) -> Producer:
    """One that is initialised, and whose coordinator is this broker."""
    await make_log(cluster)
    producer = Producer(cluster, id_led_by(cluster, broker_id))
    assert await producer.init(**settings) is ErrorCode.NONE
    return producer


def stable_end(cluster: SimulatedCluster, partition: TopicPartition = T0) -> tuple[int, int]:
    """(last stable offset, high watermark) at the leader."""
    found = cluster[state_of(cluster, *partition).leader].running.replica_manager.led_partition(partition)
    assert not isinstance(found, ErrorCode), found
    assert found.log is not None
    return found.log.last_stable_offset, found.log.high_watermark


def play(story: Callable[[SimulatedCluster], Awaitable[None]], *, brokers: int = 3, **settings: str) -> None:
    factor = {"transaction.state.log.replication.factor": str(brokers)}
    named = {key.replace("_", "."): value for key, value in settings.items()}
    simulate(story, brokers=brokers, settings={**REPLICATED, **factor, **named})


class TestMarkers:
    def test_marker_under_way_to_a_silent_broker_goes_to_the_next_leader(self) -> None:
        """The coordinator does not wait until its request has timed out: the controller sends it the new leader."""

        async def story(cluster: SimulatedCluster) -> None:
            producer = await producer_at(cluster, 2)
            await create(cluster, "t", (3, 1, 2))
            await producer.write(T0)
            assert await producer.end() is ErrorCode.NONE  # Now there is a connection.
            await until(lambda: state_at(cluster, producer.transactional_id) is TransactionState.COMPLETE_COMMIT)
            await producer.write(T0)
            pause(cluster, 3)
            assert await producer.end() is ErrorCode.NONE
            assert state_at(cluster, producer.transactional_id) is TransactionState.PREPARE_COMMIT
            complete = TransactionState.COMPLETE_COMMIT
            assert await until(lambda: state_at(cluster, producer.transactional_id) is complete) < 8.0
            assert state_of(cluster, "t").leader == 1

        play(story)

    def test_leader_responds_to_markers_before_the_coordinator_gives_up(self) -> None:
        """B16: whatever ``request.timeout.ms`` is, REQUEST_TIMED_OUT comes over a connection that lives on."""

        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (2, 3))
            cluster.isolate(2, 3)
            request = WriteTxnMarkersRequest(markers=[requests.marker(1, 0, [T0], commit=False)])
            responses: list[Message | None] = []
            assert cluster[1].process is not None
            channel = cluster[1].running.transaction_coordinator._completion._markers._channel
            cluster[1].process.context.run(channel.send, 2, request, responses.append)
            assert await until(lambda: bool(responses)) < 2.1
            (response,) = responses
            assert isinstance(response, WriteTxnMarkersResponse), response
            assert response.markers[0].topics[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT

        play(story, request_timeout_ms="4000", min_insync_replicas="1")


class TestElections:
    """The coordinator is another one than before."""

    def test_coordinator_is_loading_until_its_log_is_replicated_and_then_completes_prepared_transactions(self) -> None:
        """B83: the decision to commit is in its log, and whether it will stay there is open."""

        async def story(cluster: SimulatedCluster) -> None:
            await create_log(cluster, (2, 1, 3))
            await create(cluster, "t", (1, 3))
            producer = Producer(cluster, "id")
            assert await producer.init() is ErrorCode.NONE
            await producer.write(T0)
            pause(cluster, 3)
            ending = asyncio.ensure_future(producer.end())  # noqa: TID251
            await until(lambda: end_of(cluster[1], LOG_0) == end_of(cluster[2], LOG_0) > watermark(cluster[2], LOG_0))
            cluster[2].kill()
            with pytest.raises(NoResponse):
                await ending
            await until(lambda: state_of(cluster, *LOG_0).leader == 1)
            await asyncio.sleep(0.1)
            assert await producer.init() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert state_at(cluster, "id") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            resume(cluster, 3)
            complete = TransactionState.COMPLETE_COMMIT
            assert await until(lambda: state_at(cluster, "id") is complete) < 1.0
            assert stable_end(cluster) == (2, 2)
            assert await producer.end() is ErrorCode.NONE  # The same response as it would have had.

        play(story)

    def test_zombie_ends_no_transaction_of_its_successor(self) -> None:
        """B16, B31: its marker comes late, into a transaction that the same producer has begun since."""

        async def story(cluster: SimulatedCluster) -> None:
            await create_log(cluster, (2, 1, 4))
            await create(cluster, "t", (3, 1))
            producer = Producer(cluster, "id")
            assert await producer.init() is ErrorCode.NONE
            await producer.write(T0)
            assert await producer.end() is ErrorCode.NONE  # Now there is a connection.
            await until(lambda: state_at(cluster, "id") is TransactionState.COMPLETE_COMMIT)
            await producer.write(T0)
            cluster.loop.network.sever("broker 2", "broker 3")
            assert await producer.end() is ErrorCode.NONE
            assert state_at(cluster, "id") is TransactionState.PREPARE_COMMIT
            await asyncio.sleep(0.1)
            pause(cluster, 2)  # Its marker is on the way.
            await until(lambda: state_at(cluster, "id") is TransactionState.COMPLETE_COMMIT)
            assert (state_of(cluster, *LOG_0).leader, stable_end(cluster)) == (1, (4, 4))
            await producer.write(T0)
            cluster.loop.network.heal()
            resume(cluster, 2)
            await asyncio.sleep(10)
            assert stable_end(cluster) == (4, 5), "the zombie has ended the transaction"
            assert await producer.end(commit=False) is ErrorCode.NONE
            await until(lambda: stable_end(cluster) == (6, 6))
            assert described(cluster[2], "id") is ErrorCode.NOT_COORDINATOR

        play(story, brokers=4)

    @pytest.mark.parametrize("commit", [True, False])
    def test_offsets_in_a_transaction_wait_for_its_end_at_the_next_group_coordinator(self, commit: bool) -> None:
        """B17, B71"""

        async def story(cluster: SimulatedCluster) -> None:
            await create_log(cluster, (2, 1, 3))
            await create(cluster, "t", (1,))
            await create(cluster, OFFSETS, (3, 2, 1))
            await asyncio.sleep(0.3)
            group, producer = "group", Producer(cluster, "id")
            assert await producer.init() is ErrorCode.NONE
            assert await producer.commit_offset(cluster[3], group, 7) is ErrorCode.NONE
            cluster[3].kill()
            await until(lambda: group_partition(cluster, group).leader not in (3, -1))
            client = await cluster[group_partition(cluster, group).leader].client()

            async def fetch() -> ErrorCode:
                error, _ = await fetch_offset(client, group, require_stable=True)
                return error

            assert await until_other(fetch, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) is ErrorCode.UNSTABLE_OFFSET_COMMIT
            assert await fetch_offset(client, group) == (ErrorCode.NONE, -1)
            assert await producer.end(commit=commit) is ErrorCode.NONE
            assert await until_other(fetch, ErrorCode.UNSTABLE_OFFSET_COMMIT) is ErrorCode.NONE
            assert await fetch_offset(client, group) == (ErrorCode.NONE, 7 if commit else -1)

        play(story)

    def test_transaction_that_its_producer_leaves_open_is_aborted_by_the_next_coordinator_at_its_timeout(self) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            await create_log(cluster, (2, 1, 3))
            await create(cluster, "t", (1, 3))
            producer = Producer(cluster, "id")
            assert await producer.init(timeout_ms=5_000) is ErrorCode.NONE
            await producer.write(T0)
            cluster[2].kill()
            await until(lambda: state_at(cluster, "id") is TransactionState.ONGOING)
            assert await until(lambda: state_at(cluster, "id") is TransactionState.COMPLETE_ABORT) < 8.0
            assert stable_end(cluster) == (2, 2)
            fenced = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}
            assert await producer.add(T0) <= fenced

        play(story)


class TestShortages:
    """A coordinator whose followers are away. What is in its log may become durable yet, so nothing is taken back."""

    def test_decision_in_the_log_waits_for_followers_and_is_completed_once_they_are_back(self) -> None:
        """B30"""

        async def story(cluster: SimulatedCluster) -> None:
            producer = await producer_at(cluster, 1)
            await create(cluster, "t", (1,))
            pause(cluster, 2)
            began = cluster.loop.time()
            assert await producer.add(T0) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
            assert cluster.loop.time() - began < 3.1
            responses = set()
            while cluster.loop.time() - began < 3 * SESSION_SECONDS:  # Meanwhile the ISR shrinks below its minimum.
                responses |= await producer.add(T0)
                await asyncio.sleep(0.1)
            assert responses == {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.CONCURRENT_TRANSACTIONS}
            assert len(state_of(cluster, *log_partition(cluster, producer.transactional_id)).isr) == 1
            resume(cluster, 2)
            ongoing = TransactionState.ONGOING
            await until(lambda: state_at(cluster, producer.transactional_id) is ongoing)
            assert await producer.add(T0) == {ErrorCode.NONE}
            assert await producer.produce(T0, b"v") == {ErrorCode.NONE}
            assert await producer.end() is ErrorCode.NONE

        play(story, brokers=2, request_timeout_ms="3000")

    def test_decision_that_the_log_refuses_has_no_effect(self) -> None:
        """B30: too few in-sync replicas, known beforehand. Another attempt finds nothing in its way."""

        async def story(cluster: SimulatedCluster) -> None:
            producer = await producer_at(cluster, 1)
            await create(cluster, "t", (1,))
            cluster[2].kill()
            log = log_partition(cluster, producer.transactional_id)
            await until(lambda: state_of(cluster, *log).isr == (1,))
            for _ in range(3):
                assert await producer.add(T0) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
                assert state_at(cluster, producer.transactional_id) is TransactionState.EMPTY
            newcomer = Producer(cluster, "newcomer")
            assert await newcomer.init() is ErrorCode.COORDINATOR_NOT_AVAILABLE
            await cluster[2].start()
            await until(lambda: len(state_of(cluster, *log).isr) == 2)
            assert await producer.add(T0) == {ErrorCode.NONE}
            assert await producer.produce(T0, b"v") == {ErrorCode.NONE}
            assert await producer.end() is ErrorCode.NONE
            assert await newcomer.init() is ErrorCode.NONE

        play(story, brokers=2)

    def test_coordinator_that_was_paused_responds_from_no_stale_state(self) -> None:
        """Others lead by then, and it learns that from a request behind those of its clients."""

        async def story(cluster: SimulatedCluster) -> None:
            await make_offsets(cluster)
            await create(cluster, "t", (1,))
            group = group_led_by(cluster, 2)
            client, process = await cluster[2].client(), cluster[2].process
            assert process is not None
            assert await commit_offset(client, group, 1) is ErrorCode.NONE
            assert await fetch_offset(client, group) == (ErrorCode.NONE, 1)
            process.pause()
            stale = asyncio.ensure_future(fetch_offset(client, group))  # noqa: TID251
            await until(lambda: group_partition(cluster, group).leader != 2)
            other = await cluster[group_partition(cluster, group).leader].client()
            await until_done(lambda: commit_offset(other, group, 2))
            process.resume()
            error, offset = await stale
            assert error in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR), (error, offset)
            assert await fetch_offset(other, group) == (ErrorCode.NONE, 2)

        play(story, offsets_topic_replication_factor="3")

    def test_offsets_that_are_not_replicated_in_time_are_not_known_to_be_lost(self) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            await make_offsets(cluster)
            await create(cluster, "t", (1,))
            group = group_led_by(cluster, 1)
            client = await cluster[1].client()
            assert await commit_offset(client, group, 1) is ErrorCode.NONE
            pause(cluster, 2)
            assert await commit_offset(client, group, 2) is ErrorCode.COORDINATOR_NOT_AVAILABLE
            error, _ = await fetch_offset(client, group)
            assert error is ErrorCode.NOT_COORDINATOR
            resume(cluster, 2)
            await until(lambda: len(group_partition(cluster, group).isr) == 2)
            await asyncio.sleep(1)
            assert await fetch_offset(client, group) == (ErrorCode.NONE, 2)

        play(story, brokers=2, offsets_topic_replication_factor="2")


async def make_offsets(cluster: SimulatedCluster) -> None:
    client = await cluster[1].client()
    ask = requests.find_coordinator("anybody", transactional=False)
    assert (await client.call(ask, requests.FIND_COORDINATOR_VERSION)).error_code == ErrorCode.NONE
    await asyncio.sleep(0.5)


def group_partition(cluster: SimulatedCluster, group: str) -> PartitionState:
    return state_of(cluster, *partition_of(cluster, OFFSETS, group))


def group_led_by(cluster: SimulatedCluster, broker_id: int) -> str:
    """A group whose coordinator is this broker."""
    candidates = (f"group-{number}" for number in range(1_000))
    return next(name for name in candidates if group_partition(cluster, name).leader == broker_id)


async def commit_offset(client: WireClient, group: str, offset: int) -> ErrorCode:
    requested = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="t", partitions=[requested])
    response = await client.call(OffsetCommitRequest(group_id=group, topics=[topic]), OFFSET_COMMIT_VERSION)
    return ErrorCode(response.topics[0].partitions[0].error_code)


async def fetch_offset(client: WireClient, group: str, *, require_stable: bool = False) -> tuple[ErrorCode, int]:
    request = requests.offset_fetch(group, T0, require_stable=require_stable)
    return requests.fetched_position(await client.call(request, requests.OFFSET_FETCH_VERSION))


async def until_other(attempt: Callable[[], Awaitable[ErrorCode]], passing: ErrorCode) -> ErrorCode:
    """Repeat as long as it ends in the same way."""
    for _ in range(1_000):
        error = await attempt()
        if error is not passing:
            return error
        await asyncio.sleep(0.02)
    raise AssertionError(f"always {passing.name}")


async def until_done(attempt: Callable[[], Awaitable[ErrorCode]]) -> None:
    """Repeat what may not be possible yet."""
    for _ in range(1_000):
        error = await attempt()
        if error is ErrorCode.NONE:
            return
        assert error in requests.RETRIABLE, error
        await asyncio.sleep(0.05)
    raise AssertionError("it is never done")

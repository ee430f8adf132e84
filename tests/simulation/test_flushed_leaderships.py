"""With ``log.flush.interval.messages=1`` only what is flushed counts, and it is flushed under any leader."""

import asyncio
import errno
import random
from typing import Any

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation import requests
from tests.simulation.acknowledged_writer import AcknowledgedWriter
from tests.simulation.cluster_history import log_of
from tests.simulation.cluster_routes import ClusterRoutes
from tests.simulation.cluster_stories import assignments, create, simulate, state_of
from tests.simulation.patient_client import PatientClient, error_of
from tests.simulation.simulated_cluster import SESSION_SECONDS, SimulatedCluster
from tests.simulation.wire_client import NoResponse, WireClient

T0 = TopicPartition("t", 0)
TRANSACTIONS = TopicPartition("__transaction_state", 0)
FLUSHED = {"min.insync.replicas": "2", "log.flush.interval.messages": "1"}
LONG = 3 * SESSION_SECONDS
PRODUCE_VERSION = 9
NEVER_AGAIN = 10**9
"""Calls that fail."""


async def produced(cluster: SimulatedCluster, sequence: int) -> ErrorCode:
    """Send a batch of an idempotent producer to the leader; returns its error."""
    request = requests.produce(T0, requests.batch([b"%d" % sequence], producer_id=77, epoch=0, sequence=sequence))
    response = await response_of_leader(cluster, T0, request, PRODUCE_VERSION)
    if response is None:
        return ErrorCode.NETWORK_EXCEPTION
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


async def begun(cluster: SimulatedCluster, transactional_id: str) -> ErrorCode:
    """Have a coordinator begin with a transactional id; returns its error."""
    request = requests.init_producer_id(transactional_id)
    response = await response_of_leader(cluster, TRANSACTIONS, request, requests.INIT_PRODUCER_ID_VERSION)
    return ErrorCode.NETWORK_EXCEPTION if response is None else ErrorCode(response.error_code)


async def response_of_leader(
    cluster: SimulatedCluster, topic_partition: TopicPartition, request: Message, version: int
) -> Any:
    """Return what the leader responds; None if it does not."""
    client = await WireClient.connect(cluster[state_of(cluster, *topic_partition).leader].port, response_within=31.0)
    try:
        return await client.call(request, version)
    except NoResponse:
        return None
    finally:
        client.close()


async def begin_slow_flush(cluster: SimulatedCluster, leader: int, seconds: float) -> None:
    """Let one flush take long; those that begin later are fast."""

    async def delay() -> None:
        await asyncio.sleep(seconds)

    cluster[leader].disk.delay = delay
    await asyncio.sleep(0.3)
    cluster[leader].disk.delay = None


def test_leadership_flushes_what_a_former_one_has_left() -> None:
    """B125: the producer repeats its batch, which appends nothing, and must not wait for ever."""

    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (2,))
        assert await produced(cluster, 0) is ErrorCode.NONE
        spawn = cluster.loop.create_task
        slow = spawn(begin_slow_flush(cluster, 2, 6.0))
        flights = [spawn(produced(cluster, 1))]
        await slow
        flights.append(spawn(produced(cluster, 2)))
        await asyncio.sleep(1.0)
        cluster.ensemble.expire(cluster[2].store.session.session_id)
        await asyncio.wait(flights, timeout=31)
        await asyncio.sleep(LONG)
        for sequence in (1, 2):
            assert await produced(cluster, sequence) is ErrorCode.NONE
        log = log_of(cluster, 2, T0)
        assert log.flushed_offset == log.high_watermark == log.log_end_offset == 3

    for seed in range(3):
        simulate(story, seed=seed, settings=FLUSHED)


def test_coordinator_loads_although_its_log_had_an_unflushed_end() -> None:
    """B125: a coordinator that loads waits for the high watermark, and appends nothing before."""

    async def story(cluster: SimulatedCluster) -> None:
        rng = random.Random(1)
        patient = PatientClient(ClusterRoutes(cluster, rng), rng)
        find = requests.find_coordinator("a", transactional=True), requests.FIND_COORDINATOR_VERSION
        await patient.succeed(*find, error_of)
        await patient.succeed(requests.init_producer_id("a"), requests.INIT_PRODUCER_ID_VERSION, error_of)
        leader = state_of(cluster, *TRANSACTIONS).leader
        others = [each for each in assignments(cluster)[TRANSACTIONS] if each != leader]
        spawn = cluster.loop.create_task
        slow = spawn(begin_slow_flush(cluster, leader, 20.0))
        flights = [spawn(begun(cluster, "b"))]
        await slow
        for other in others:
            cluster[other].kill()
        flights += [spawn(begun(cluster, each)) for each in ("c", "d")]
        for _ in range(300):
            if len(state_of(cluster, *TRANSACTIONS).isr) > 1:
                await asyncio.sleep(0.05)
        assert state_of(cluster, *TRANSACTIONS).isr == (leader,)
        cluster.ensemble.expire(cluster[leader].store.session.session_id)
        await asyncio.sleep(30)
        for other in others:
            await cluster[other].start()
        await asyncio.sleep(60)
        for flight in flights:
            flight.cancel()
        assert await begun(cluster, "a") is ErrorCode.NONE

    settings = FLUSHED | {
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "transaction.state.log.num.partitions": "1",
    }
    simulate(story, brokers=5, settings=settings)


def test_follower_that_cannot_flush_is_not_counted() -> None:
    """B126: what it has appended and not flushed, it does not report; it goes on when it can open files again."""

    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (2, 1, 3))
        writer = AcknowledgedWriter(cluster, T0)
        await writer.write(5)
        for broker_id in (1, 2, 3):
            log_of(cluster, broker_id, T0).roll()
        for broker_id in (1, 3):
            for operation in ("open", "sync_dir"):
                cluster[broker_id].disk.fail(operation, error=errno.EMFILE, times=NEVER_AGAIN)
        assert await produced(cluster, 0) is not ErrorCode.NONE
        assert {log_of(cluster, broker_id, T0).flushed_offset for broker_id in (1, 3)} == {5}
        for broker_id in (1, 3):
            cluster[broker_id].disk.make_room()
        await asyncio.sleep(LONG)
        assert await produced(cluster, 0) is ErrorCode.NONE
        assert {log_of(cluster, broker_id, T0).flushed_offset for broker_id in (1, 2, 3)} == {6}

    simulate(story, settings=FLUSHED)


def test_leader_that_cannot_flush_for_want_of_descriptors_is_replaced() -> None:
    """B127: its log takes no record that counts, although it appends."""

    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (3, 1, 2))
        for operation in ("open", "sync_dir"):
            cluster[3].disk.fail(operation, error=errno.EMFILE, times=NEVER_AGAIN)
        writer = AcknowledgedWriter(cluster, T0, response_within=31.0)
        async with asyncio.timeout(60):
            await writer.write(3)
        assert state_of(cluster, "t").leader in (1, 2)

    simulate(story, settings=FLUSHED)

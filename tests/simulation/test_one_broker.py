"""One broker under a transactional load, with crashes of both kinds, in virtual time.

Each seed is one history: which clients there are, when the broker dies and how, how the network delays and cuts
segments. At the end everything heals and the record is checked (``workload``). Power is lost only under
``log.flush.interval.messages=1``, where one replica keeps what it acknowledged. A failure names its seed; ``run(seed)``
repeats it exactly.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from oncelog.protocol.internal.topics import INTERNAL_TOPICS
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.aged_producers import age_producers
from tests.simulation.routes import OneBroker
from tests.simulation.simulated_broker import PORT, SimulatedBroker
from tests.simulation.virtual_loop import VirtualLoop
from tests.simulation.workload import Manners, Workload

SEEDS = int(os.environ.get("ONCELOG_SEEDS", "150"))
CHUNKS = 5
RECOVERY_POINTS = "log.flush.offset.checkpoint.interval.ms"
"""Set where they are written so often that a history sees it."""
AT_LEAST = {
    "ended in version 1": 100,
    "ended in version 2": 100,
    "level changed": 10,
    "changed version": 1,
    "new producer id": 2,
    "must abort": 2,
    "EndTxnRequest ": 20,
    "EndTxnRequest PRODUCER_FENCED": 5,
    "ProduceRequest ": 40,
    "ProduceRequest INVALID_PRODUCER_EPOCH": 20,
    "TxnOffsetCommitRequest ": 2,
    "WriteTxnMarkersRequest ": 10,
}
"""How many events that begin so each chunk must have seen, lest the histories become harmless without anybody noticing.

The requests are those of version 2 that came late: more than a thousand of them in all.
"""


def settings(rng: random.Random, *, with_power_loss: bool) -> dict[str, str]:
    chosen = {"log.segment.bytes": str(rng.choice([1024, 4096, 1 << 20])), "log.index.interval.bytes": "256"}
    chosen["add.partitions.to.txn.retry.backoff.max.ms"] = rng.choice(["5", "100"])  # Longest wait for a busy id.
    if with_power_loss:
        chosen["log.flush.interval.messages"] = "1"
    return chosen


def disturb_network(loop: VirtualLoop, rng: random.Random) -> None:
    """Choose how bad the network is."""
    loop.network.delay_seconds = (0.000_05, rng.choice([0.001, 0.001, 0.02]))
    loop.network.segment_bytes = rng.choice([64 * 1024, 64 * 1024, 200])
    loop.network.stall_probability = rng.choice([0.0, 0.0, 0.005, 0.02])


def disturb_disk(broker: SimulatedBroker, rng: random.Random) -> None:
    """Choose how slow the disk is, and how little of it is in the page cache."""

    async def delay() -> None:
        await asyncio.sleep(rng.uniform(0.0, slowest))

    slowest = rng.choice([0.0, 0.002, 0.03])
    if slowest:
        broker.disk.delay = delay
    if rng.random() < 0.3:
        broker.disk.cold = lambda: rng.random() < 0.2


async def bring_down(broker: SimulatedBroker, rng: random.Random, *, with_power_loss: bool) -> None:
    """End the broker: between two steps, in the middle of one, or by a disk that does not take a write."""
    match rng.choice(["now", "within a write", "at a log", "disk error", "short write"]):
        case "within a write":
            broker.disk.stop_after(rng.randint(0, 2000))
        case "at a log":
            log = rng.choice(["__transaction_state-", "__consumer_offsets-", "invoices-", "shipments-", "journal-"])
            broker.disk.stop_before("append", log, skip=rng.randint(0, 3))
        case "disk error":
            broker.disk.fail(rng.choice(["append", "sync"]), rng.choice([".log", "index"]))
        case "short write":
            broker.disk.shorten_append(".log", rng.randint(0, 70))
    for _ in range(rng.randint(0, 50)):
        if broker.is_down:
            break
        await asyncio.sleep(0.005)
    broker.crash("power" if with_power_loss and rng.random() < 0.7 else "process")


async def history(loop: VirtualLoop, rng: random.Random) -> Counter[str]:
    with_power_loss = rng.random() < 0.5
    broker = SimulatedBroker(loop, rng, settings(rng, with_power_loss=with_power_loss))
    await broker.start()
    # With recovery points a start after a crash relies on a snapshot, as one after an orderly stop does.
    forgets = RECOVERY_POINTS in loop.swarm.settings()
    workload = Workload(loop, lambda: OneBroker(PORT), rng, Manners(restarts=forgets))
    await workload.setup()
    if rng.random() < 0.5:
        await age_producers(broker, [session.transactional_id for session in workload.sessions], rng)
    disturb_network(loop, rng)
    disturb_disk(broker, rng)
    workload.start()
    for _ in range(rng.randint(1, 3)):
        await asyncio.sleep(rng.uniform(0.02, 0.5))
        await bring_down(broker, rng, with_power_loss=with_power_loss)
        await asyncio.sleep(rng.uniform(0.0, 0.2))
        await broker.start()
        if rng.random() < 0.3:
            await workload.replace_a_worker()
    await asyncio.sleep(rng.uniform(0.0, 0.4))
    if rng.random() < 0.5:
        workload.kill_some()
    await workload.finish()
    await workload.check()
    if rng.random() < 0.3:
        await rebuild_producer_state(broker)
    await broker.stop()
    return workload.events


async def rebuild_producer_state(broker: SimulatedBroker) -> None:
    """What the logs say of their producers is what the broker had in memory (B37).

    With buggify points it may have been started from a snapshot, which has the last batch of a producer only; and in a
    compacted log only that one is sure to stay.
    """
    before = producer_states(broker)
    await broker.stop()
    for directory in broker.disk.list_dir("/data"):
        path = f"/data/{directory}"
        for name in broker.disk.list_dir(path) if broker.disk.is_dir(path) else ():
            if name.endswith(".snapshot"):
                broker.disk.remove(f"{path}/{name}")
    await broker.start()
    after = producer_states(broker)
    assert after.keys() == before.keys()
    for (partition, producer_id), known in before.items():
        rebuilt = after[partition, producer_id]
        if not broker.disk.swarm.enabled:
            assert rebuilt == known, (partition, producer_id)
        assert rebuilt._replace(batches=()) == known._replace(batches=()), (partition, producer_id)
        sure = known.batches[-1:] if partition.topic in INTERNAL_TOPICS else known.batches
        assert rebuilt.batches[len(rebuilt.batches) - len(sure) :] == sure, (partition, producer_id)


class ProducerView(NamedTuple):
    """What a broker knows of one producer in one partition."""

    epoch: int
    coordinator_epoch: int
    batches: Sequence[Any]
    txn_first_offset: int | None


def producer_states(broker: SimulatedBroker) -> dict[tuple[TopicPartition, int], ProducerView]:
    assert broker.broker is not None
    return {
        (log.topic_partition, entry.producer_id): ProducerView(
            entry.producer_epoch, entry.coordinator_epoch, entry.batches, entry.txn_first_offset
        )
        for log in broker.broker.log_manager
        for entry in log.producer_state.producers.values()
    }


def run(seed: int) -> Counter[str]:
    """Run one history, and return how often what happened."""
    rng = random.Random(seed)
    loop = VirtualLoop(rng)
    try:
        return loop.run_until_complete(history(loop, rng))
    except BaseException as failure:
        failure.add_note(f"seed {seed}")
        raise
    finally:
        loop.close()


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_crashes_lose_duplicate_and_tear_nothing(chunk: int) -> None:
    """B21, B34, B40, B71: and whatever else an invariant's breach would show in what clients see.

    Of version 2: B01, B02, B05, B06, B11, B23, B33.
    """
    events: Counter[str] = Counter()
    for seed in range(chunk, SEEDS, CHUNKS):
        events += run(seed)
    if SEEDS >= 30 * CHUNKS:
        seen = {what: sum(events[event] for event in events if event.startswith(what)) for what in AT_LEAST}
        assert all(seen[what] >= count for what, count in AT_LEAST.items()), f"too little of something: {seen}"

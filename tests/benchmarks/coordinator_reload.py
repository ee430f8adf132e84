"""How long transactions stand still when their coordinator changes: ``python -m tests.benchmarks.coordinator_reload``.

A broker is started in this process, and its transaction log is filled with the records of many transactions: three
each, written by the coordinator's own code to the broker's own partitions, but without clients. Then the coordinator is
elected anew for all of its partitions, as after the death of the broker that led them: first with the whole history
in the log, then with what the log cleaner leaves of it. (A survivor of three would take over half or a third of that.)

The cleaner never touches the active segment, so segments are smaller here than by default
(``transaction.state.log.segment.bytes``).
"""

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

import uvloop

from oncelog.broker.config.sources import load_config
from oncelog.broker.parts import Broker
from oncelog.broker.replication.coordinator_log import CoordinatorLog
from oncelog.broker.start import start_broker
from oncelog.broker.storage.disk import LocalDisk
from oncelog.broker.storage.log_maintenance import LogMaintenance
from oncelog.coordinator.transaction.listing import TransactionFilter
from oncelog.coordinator.transaction.log_records import build_record_batch
from oncelog.coordinator.transaction.state import EPOCH_BUMP_VERSION, NO_PARTITIONS, TransactionMetadata
from oncelog.coordinator.transaction.transaction_state import TransactionState
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.placement import partition_for
from oncelog.protocol.internal.topics import TRANSACTION_STATE_TOPIC_NAME
from oncelog.protocol.topic_partition import TopicPartition

LOG: Final = TRANSACTION_STATE_TOPIC_NAME
PARTITIONS: Final = 50
NOW_MS: Final = 1_750_000_000_000
LAST_EPOCH: Final = 32_766
DATA: Final = frozenset({TopicPartition("orders", 3), TopicPartition("payments", 7)})
STATES: Final = (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
SETTINGS: Final = (
    "listeners=PLAINTEXT://127.0.0.1:0",
    f"transaction.state.log.num.partitions={PARTITIONS}",
    "log.cleaner.enable=false",  # It works when it is told to.
)


class Load(NamedTuple):
    """One election for all partitions."""

    ids: int
    size: int
    seconds: float
    cpu_seconds: float
    """Of this process, which is all that counts where the machine has other work."""
    longest_pause: float
    """Of anything else on the loop."""


def records_of(name: str, producer_id: int, lap: int, now_ms: int) -> Iterator[bytearray]:
    """The batches of one transaction."""
    bumps, epoch = divmod(lap, LAST_EPOCH)
    for state in STATES:
        metadata = TransactionMetadata(
            producer_id=producer_id + bumps,
            producer_epoch=epoch + (state is not TransactionState.ONGOING),
            timeout_ms=60_000,
            state=state,
            partitions=NO_PARTITIONS if state is TransactionState.COMPLETE_COMMIT else DATA,
            start_ms=now_ms,
            last_update_ms=now_ms,
            client_transaction_version=EPOCH_BUMP_VERSION,
        )
        yield build_record_batch(name, metadata, now_ms)


def epoch_log_of(broker: Broker, index: int) -> CoordinatorLog:
    partition = broker.replica_manager.led_partition((LOG, index))
    assert not isinstance(partition, ErrorCode), partition
    return CoordinatorLog(partition)


async def fill(broker: Broker, transactions: int, ids: int) -> None:
    names = [f"transactional-id-{number}" for number in range(ids)]
    terms = [epoch_log_of(broker, partition_for(name, PARTITIONS)) for name in names]
    for number in range(transactions):
        lap, which = divmod(number, ids)
        for batch in records_of(names[which], 1_000 * (which + 1), lap, NOW_MS + number):
            appended = terms[which].append(batch)
            assert not isinstance(appended, ErrorCode), appended
        if which % 256 == 0:
            await asyncio.sleep(0)


async def clean(broker: Broker) -> None:
    """Until there is nothing to do."""
    for index in range(PARTITIONS):
        log = broker.log_manager.get(TopicPartition(LOG, index))
        assert log is not None
        log.roll()
        await log.flush_off_loop()
    size = 0
    while size != (size := log_size(broker)):
        await LogMaintenance(broker.log_manager).clean()


def log_size(broker: Broker) -> int:
    return sum(log.size for log in broker.log_manager if log.topic_partition.topic == LOG)


class PauseMeter:
    """How long other work on the loop has to wait."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._since = time.perf_counter()
        self._handle = asyncio.get_running_loop().call_soon(self._beat)

    def _beat(self) -> None:
        now = time.perf_counter()
        self.longest = max(self.longest, now - self._since)
        self._since = now
        self._handle = asyncio.get_running_loop().call_soon(self._beat)

    def stop(self) -> None:
        self._handle.cancel()


async def reload(broker: Broker) -> Load:
    coordinator = broker.transaction_coordinator
    meter, began, cpu = PauseMeter(), time.perf_counter(), time.process_time()
    for index in range(PARTITIONS):
        coordinator.on_elected(index, epoch_log_of(broker, index))
    while coordinator.is_loading:  # noqa: ASYNC110
        await asyncio.sleep(0)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    meter.stop()
    known = coordinator.list_transactions(TransactionFilter())
    assert not isinstance(known, ErrorCode)
    return Load(len(known), log_size(broker), seconds, cpu_seconds, meter.longest)


def report(name: str, load: Load) -> None:
    print(
        f"{name:<12} {load.size / 1e6:>7.1f} MB, {load.ids:,} ids: loaded in {load.seconds:.2f} s "
        f"({load.cpu_seconds:.2f} s of CPU), longest pause of the loop {load.longest_pause * 1000:.1f} ms",
        flush=True,
    )


async def measure(transactions: int, ids: int, segment_bytes: int, data_dir: str) -> None:
    settings = (*SETTINGS, f"log.dirs={data_dir}", f"transaction.state.log.segment.bytes={segment_bytes}")
    broker = await start_broker(
        load_config(overrides=settings, environment={}).config,
        disk=LocalDisk(),
        wall_clock=lambda: NOW_MS,
        rng=random.Random(1),
    )
    try:
        refusals = await broker.auto_topics.create([LOG])
        assert not refusals, refusals
        began = time.perf_counter()
        await fill(broker, transactions, ids)
        seconds = time.perf_counter() - began
        print(f"{transactions:,} transactions of {ids:,} ids written in {seconds:.0f} s", flush=True)
        report("not cleaned", await reload(broker))
        began = time.perf_counter()
        await clean(broker)
        print(f"cleaned in {time.perf_counter() - began:.0f} s", flush=True)
        for _ in range(3):
            report("cleaned", await reload(broker))
    finally:
        await broker.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--transactions", type=int, default=1_000_000)
    parser.add_argument("--ids", type=int, default=10_000)
    parser.add_argument("--segment-bytes", type=int, default=1 << 20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as data_dir:
        uvloop.run(measure(arguments.transactions, arguments.ids, arguments.segment_bytes, data_dir))


if __name__ == "__main__":
    main()

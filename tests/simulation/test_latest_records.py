"""The last records of keys are the same before and after compaction, so that replicas can be compared by them."""

from oncelog.broker.storage.cleaner import LogCleaner
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.partition_log import AppendOrigin, PartitionLog
from tests.simulation.latest_records import latest_of
from tests.simulation.sim_disk import SimDisk
from tests.unit.broker.batches import batch, marker
from tests.unit.broker.storage.logs import NOW, end_txn, must_append, new_disk, open_log

CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}))


def put(log: PartitionLog, key: bytes, value: bytes, *, producer_id: int) -> None:
    data = batch(value, key=key, producer_id=producer_id, epoch=0, transactional=True)
    must_append(log, data, origin=AppendOrigin.COORDINATOR)


async def clean(log: PartitionLog, disk: SimDisk) -> None:
    log.roll()
    await log.flush_closed_segments_off_loop()
    log.update_high_watermark(log.log_end_offset)
    await LogCleaner(disk, wall_clock=lambda: NOW).clean(log)


async def test_latest_records_of_aborted_transactions_do_not_count() -> None:
    disk = new_disk()
    log = open_log(disk, CONFIG)
    put(log, b"a", b"committed", producer_id=1)
    end_txn(log, marker(1, commit=True))
    put(log, b"a", b"aborted", producer_id=1)
    put(log, b"b", b"of another producer", producer_id=2)
    end_txn(log, marker(1, commit=False))
    end_txn(log, marker(2, commit=True))
    before = latest_of(log)
    assert before == {b"a": (0, b"committed"), b"b": (3, b"of another producer")}
    size = log.size
    await clean(log, disk)
    assert log.size < size
    assert latest_of(log) == before


def test_latest_records_of_a_transaction_that_ends_late_keep_their_place() -> None:
    log = open_log(new_disk(), CONFIG)
    put(log, b"a", b"earlier", producer_id=1)
    must_append(log, batch(b"later", key=b"a"))
    put(log, b"b", b"of an open transaction", producer_id=2)
    end_txn(log, marker(1, commit=True))
    assert latest_of(log) == {b"a": (1, b"later"), b"b": (2, b"of an open transaction")}

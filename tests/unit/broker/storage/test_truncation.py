"""A log that loses its end forgets everything that was said of it."""

import pytest

from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.partition_log import PartitionLog
from tests.unit.broker.batches import batch
from tests.unit.broker.storage.logs import must_append, new_disk, open_log

SMALL = LogConfig(segment_bytes=300, index_interval_bytes=50)


def grown(config: LogConfig) -> PartitionLog:
    """Offsets 0 to 9, two for each leader epoch; a transaction is open from offset 4 on. All of it is replicated."""
    log = open_log(new_disk(), config)
    for offset in range(10):
        must_append(
            log, batch(producer_id=offset // 4, epoch=0, sequence=offset % 4, transactional=offset >= 4), offset // 2
        )
    log.update_high_watermark(10)
    return log


@pytest.mark.parametrize("config", [LogConfig(), SMALL], ids=["one segment", "many"])
@pytest.mark.parametrize("end", range(11))
def test_watermarks_are_never_beyond_the_end(end: int, config: LogConfig) -> None:
    """B55: high watermark ≤ log end; and B37: what the transactions of the lost end held back is free."""
    log = grown(config)
    log.truncate_to(end)
    assert log.log_end_offset == log.high_watermark == end
    assert log.last_stable_offset == min(end, 4)


@pytest.mark.parametrize("config", [LogConfig(), SMALL], ids=["one segment", "many"])
@pytest.mark.parametrize("end", range(11))
def test_epochs_of_the_lost_end_are_forgotten(end: int, config: LogConfig) -> None:
    """B54: in memory and on disk, so that the next leader's epochs fit on."""
    log = grown(config)
    log.truncate_to(end)
    kept = [(epoch, 2 * epoch) for epoch in range((end + 1) // 2)]
    assert log.epochs.entries == kept
    assert log.epochs.latest_epoch == (kept[-1][0] if kept else None)
    must_append(log, batch(), 7)
    assert log.epochs.entries == [*kept, (7, end)]


def test_producer_goes_on_from_what_is_left() -> None:
    """B37, B34: what was cut off is appended again; what was not is recognised."""
    log = grown(SMALL)
    log.truncate_to(2)
    assert must_append(log, batch(producer_id=0, epoch=0, sequence=1), 6).duplicate
    again = must_append(log, batch(producer_id=0, epoch=0, sequence=2), 6)
    assert (again.base_offset, again.duplicate) == (2, False)

"""How ``make faults`` compares replicas: whole batches, up to the high watermark."""

import struct
from pathlib import Path

from tests.faults.replicas import below, difference, log_directories, read_log


def batch(offset: int, content: bytes) -> bytes:
    return struct.pack(">qi", offset, len(content)) + content


LOG = [batch(0, b"first"), batch(2, b"second"), batch(5, b"third")]


def joined(*parts: bytes) -> bytes:
    return b"".join(parts)


def test_log_below_a_high_watermark_ends_before_its_batch() -> None:
    assert below(joined(*LOG), 5) == joined(*LOG[:2])
    assert below(joined(*LOG), 6) == joined(*LOG)
    assert below(joined(*LOG), 0) == b""


def test_batch_that_is_incomplete_does_not_count() -> None:
    assert below(joined(*LOG)[:-1], 6) == joined(*LOG[:2])


def test_replicas_above_the_high_watermark_may_differ() -> None:
    assert difference({1: joined(*LOG), 2: joined(*LOG[:2]), 3: joined(*LOG[:2], batch(5, b"other"))}, 5) is None


def test_batch_with_other_bytes_is_named() -> None:
    found = difference({1: joined(*LOG), 2: joined(*LOG), 3: joined(LOG[0], batch(2, b"SECOND"), LOG[2])}, 6)
    assert found is not None
    assert "offset 2 differs" in found
    assert "broker 3" in found


def test_replica_that_lacks_a_batch_is_named() -> None:
    found = difference({1: joined(*LOG), 2: joined(*LOG[:2]), 3: joined(*LOG)}, 6)
    assert found is not None
    assert "one ends before the other" in found
    assert "broker 2" in found


def test_segments_are_read_in_the_order_of_their_offsets(tmp_path: Path) -> None:
    partition = tmp_path / "topic-0"
    partition.mkdir()
    (partition / "partition.metadata").write_text("version: 0")
    (partition / f"{5:020}.log").write_bytes(LOG[2])
    (partition / f"{0:020}.log").write_bytes(joined(*LOG[:2]))
    (tmp_path / "not-a-partition").mkdir()
    assert log_directories(tmp_path) == {"topic-0": partition}
    assert read_log(partition) == joined(*LOG)

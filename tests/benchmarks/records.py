"""What record batches cost, in microseconds: ``python -m tests.benchmarks.records``.

The rows that matter: read_header (each batch that passes), build_batch of one record (each decision of a coordinator),
and validation by header against the full walk, which decides the default of ``oncelog.validate.records``.
"""

import random
import timeit
from collections.abc import Callable
from typing import Any

from oncelog.protocol.records.compression import Compression
from oncelog.protocol.records.control_records import build_end_txn_marker, parse_end_txn_marker
from oncelog.protocol.records.record_batch import (
    BatchHeader,
    NewRecord,
    build_batch,
    crc_is_valid,
    iter_records,
    patch_offset_and_epoch,
    read_header,
)
from oncelog.protocol.records.record_walk import RecordRules
from oncelog.protocol.records.validation import BatchRules, validate_header
from tests.unit.protocol.records.walks import conform

NOW = 1_700_000_000_000
MEBIBYTE = 2**20
SECONDS_PER_ROUND = 0.1


def microseconds(action: Callable[[], object]) -> float:
    """The best of five rounds."""
    once = timeit.timeit(action, number=1)
    number = max(1, int(SECONDS_PER_ROUND / (once + 1e-9)))
    return min(timeit.repeat(action, number=number, repeat=5)) / number * 1e6


def report(name: str, action: Callable[[], object]) -> None:
    print(f"{name:<58} {microseconds(action):>10.2f} µs")


def records_of(size: int, total: int) -> list[NewRecord]:
    """Values that compress about as well as JSON does: half noise, half the same."""
    noise = random.Random(1)

    def value() -> bytes:
        return b"".join(b"field:%08x,same," % noise.getrandbits(32) for _ in range(size // 20))

    return [NewRecord(NOW + index, b"key-%06d" % index, value()) for index in range(max(1, total // size))]


def validate(batch: memoryview, *, full: bool) -> BatchHeader:
    header = validate_header(batch, max_message_bytes=2 * MEBIBYTE)
    assert isinstance(header, BatchHeader)
    if full:
        rules = BatchRules(RecordRules(), max_message_bytes=2 * MEBIBYTE, max_decompressed_bytes=64 * MEBIBYTE)
        assert isinstance(conform(batch, header, rules), tuple)
    return header


def report_small() -> None:
    one = [NewRecord(NOW, b"a key of 20 bytes...", bytes(100))]
    batch = build_batch(one)
    header = read_header(batch)
    marker_fields: dict[str, Any] = {"producer_id": 4000, "producer_epoch": 2, "coordinator_epoch": 6, "timestamp": NOW}
    marker = build_end_txn_marker(commit=True, **marker_fields)
    marker_header = read_header(marker)
    report("read_header", lambda: read_header(batch))
    report("crc_is_valid, one record of 100 B", lambda: crc_is_valid(batch, 0, header))
    report("patch_offset_and_epoch", lambda: patch_offset_and_epoch(batch, 0, 0, 7))
    report("build_batch, one record of 100 B", lambda: build_batch(one))
    report(
        "iter_records, one record of 100 B", lambda: list(iter_records(batch, 0, header, max_decompressed_bytes=9999))
    )
    report("build_end_txn_marker", lambda: build_end_txn_marker(commit=True, **marker_fields))
    report("parse_end_txn_marker", lambda: parse_end_txn_marker(marker, 0, marker_header))
    report("validate by header, one record of 100 B", lambda: validate(memoryview(batch), full=False))
    report("validate fully, one record of 100 B", lambda: validate(memoryview(batch), full=True))


def report_large(codec: Compression, size: int, total: int) -> None:
    records = records_of(size, total)
    batch = memoryview(build_batch(records, compression=codec))
    name = f"{codec.name.lower()}, {len(records)} records of {size} B, {len(batch)} B"
    report(f"header: {name}", lambda: validate(batch, full=False))
    report(f"full:   {name}", lambda: validate(batch, full=True))
    header = read_header(batch)
    report(f"read:   {name}", lambda: sum(1 for _ in iter_records(batch, 0, header, max_decompressed_bytes=2**30)))


if __name__ == "__main__":
    report_small()
    for codec in (Compression.NONE, Compression.LZ4):
        for size in (100, 1024):
            for total in (16 * 1024, MEBIBYTE):
                report_large(codec, size, total)

"""``make faults`` reads logs by itself: what it must say of good ones (nothing) and of broken ones."""

import struct
from collections.abc import Sequence

import crc32c
import pytest

from tests.faults.log_audit import look_at_log

TRANSACTIONAL, CONTROL = 1 << 4, 1 << 5


def batch(
    offset: int, *, sequence: int = 0, count: int = 2, producer: int = 7, epoch: int = 0, leader: int = 0, bits: int = 0
) -> bytes:
    checked = struct.pack(
        ">hiqqqhii", TRANSACTIONAL | bits, count - 1, 0, 0, producer, epoch, -1 if bits & CONTROL else sequence, count
    )
    rest = struct.pack(">iBI", leader, 2, crc32c.crc32c(checked)) + checked
    return struct.pack(">qi", offset, len(rest)) + rest


def marker(offset: int, *, epoch: int = 0, producer: int = 7, leader: int = 0) -> bytes:
    return batch(offset, count=1, epoch=epoch, producer=producer, leader=leader, bits=CONTROL)


def said(parts: Sequence[bytes]) -> str:
    return "\n".join(look_at_log(b"".join(parts)))


GOOD = [
    [batch(0), batch(2, sequence=2), marker(4), batch(5, sequence=4), marker(7)],
    [batch(0), marker(2, epoch=1), batch(3, epoch=2, leader=1), marker(5, epoch=3, leader=1)],
    [batch(0), batch(2, producer=8), marker(4, producer=8), marker(5), batch(6, producer=-1, sequence=-1)],
    [batch(0, sequence=0, count=1), marker(1), batch(2, sequence=1), marker(4), marker(5, epoch=1)],
]
BROKEN = [
    ([batch(0), marker(3)], "offset 3 comes after 1"),
    ([batch(0), batch(0), marker(2)], "offset 0 comes after 1"),
    ([batch(0, leader=2), marker(2, leader=1)], "leader epoch 1 after 2"),
    ([batch(0)[:-1] + b"x", marker(2)], "checksum"),
    ([batch(0), batch(2), marker(4)], "sequence 0 where 2 follows"),
    ([batch(0), batch(2, sequence=3), marker(4)], "sequence 3 where 2 follows"),
    ([batch(0), marker(2, epoch=1), batch(3, epoch=2, sequence=4), marker(5, epoch=2)], "sequence 4 where 0 follows"),
    ([batch(0, epoch=1), marker(2, epoch=1), batch(3, epoch=0), marker(5, epoch=1)], "epoch 0, after epoch 1"),
    ([batch(0), batch(2, epoch=1), marker(4, epoch=1)], "epoch 0 had a transaction open"),
    ([batch(0), marker(2), batch(3, sequence=2)], "has no marker"),
]


@pytest.mark.parametrize("parts", GOOD)
def test_good_log_has_no_finding(parts: Sequence[bytes]) -> None:
    assert said(parts) == ""


@pytest.mark.parametrize(("parts", "what"), BROKEN)
def test_damage_of_each_kind_is_reported(parts: Sequence[bytes], what: str) -> None:
    assert what in said(parts)

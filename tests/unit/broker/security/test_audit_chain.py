"""An audit log shows what was done to it."""

from random import Random

import pytest

from oncelog.broker.security.audit_chain import EMPTY, AuditChain, Head, parse_line
from oncelog.broker.security.audit_verdict import verify

KEY = b"0123456789abcdef"


def written(count: int, key: bytes | None = KEY) -> tuple[list[bytes], Head]:
    chain = AuditChain(key)
    return [chain.add({"event": "change", "text": f'"seal":"{"0" * 64}"}} {number}\n'}) for number in range(count)], (
        chain.head
    )


@pytest.mark.parametrize("key", [None, KEY])
def test_log_as_it_was_written_has_no_problem(key: bytes | None) -> None:
    lines, head = written(50, key)
    verdict = verify(lines, key, head)
    assert (verdict.problems, verdict.lines, verdict.head) == ([], 50, head)
    assert verify([], key).head == EMPTY


@pytest.mark.parametrize("seed", range(40))
def test_any_change_of_one_line_is_found(seed: int) -> None:
    rng = Random(seed)
    lines, _ = written(20)
    place = rng.randrange(19)
    match seed % 5:
        case 0:
            position = rng.randrange(len(lines[place]) - 1)
            changed = bytearray(lines[place])
            changed[position] ^= 1 << rng.randrange(7)
            lines[place] = bytes(changed)
        case 1:
            del lines[place]
        case 2:
            lines.insert(place, lines[rng.randrange(20)])
        case 3:
            lines[place], lines[place + 1] = lines[place + 1], lines[place]
        case 4:
            forged = AuditChain(None, Head(place, "0" * 64)).add({"event": "forged"})
            lines[place] = forged
    assert verify(lines, KEY).problems


def test_lines_that_are_missing_at_the_end_are_found_by_a_head_that_was_noted() -> None:
    lines, head = written(20)
    assert not verify(lines[:15], KEY).problems
    assert verify(lines[:15], KEY, head).problems == ["the log ends with number 15, and number 20 was written"]


def test_log_that_was_written_anew_is_found_by_a_head_that_was_noted() -> None:
    _, head = written(10, None)
    chain = AuditChain(None)
    forged = [chain.add({"event": "forged"}) for _ in range(12)]
    assert not verify(forged, None).problems
    assert verify(forged, None, head).problems == ["line 10 has another seal than the one that is expected"]


def test_wrong_key_is_found() -> None:
    lines, _ = written(3)
    assert len(verify(lines, b"another key 0000").problems) == 1
    assert verify(lines, None).problems


def test_problems_beyond_a_number_are_counted() -> None:
    verdict = verify([b"no line\n"] * 100, None)
    assert len(verdict.problems) + verdict.unlisted == 100
    assert len(verdict.problems) == 20


def test_head_is_read_from_a_line() -> None:
    lines, head = written(7)
    parsed = parse_line(lines[-1].removesuffix(b"\n"))
    assert parsed is not None
    assert parsed[1] == head
    assert parse_line(b"{}") is None

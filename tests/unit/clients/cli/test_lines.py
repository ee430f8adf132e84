"""Between bytes of standard input and records, and between records and what is printed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.cli.lines import LineFormat, LineSplitter
from clients.cli.record_writers import write_json, write_table_row, write_value
from clients.consumer import ConsumerRecord, TimestampType
from protocol.records.record_batch import NewRecord
from protocol.topic_partition import TopicPartition

NOW = 1_700_000_000_000
ORDERS = TopicPartition("orders", 3)


def record(
    offset: int, timestamp: int, key: bytes | None, value: bytes | None, encoded_headers: bytes = b""
) -> ConsumerRecord:
    return ConsumerRecord(*ORDERS, offset, timestamp, key, value, encoded_headers, TimestampType.CREATE_TIME, 0)


@given(st.lists(st.binary(max_size=5).filter(lambda line: not {10, 13} & set(line))), st.integers(1, 7))
def test_any_segmentation_gives_the_same_lines(lines: list[bytes], size: int) -> None:
    data = b"".join(line + b"\n" for line in lines)
    splitter = LineSplitter()
    found = [line for start in range(0, len(data), size) for line in splitter.feed(data[start : start + size])]
    assert found == lines
    assert list(splitter.finish()) == []


def test_the_last_line_may_lack_its_end_and_lines_may_come_from_windows() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"one\r\ntw") == [b"one"]
    assert splitter.feed(b"o\r") == []
    assert list(splitter.finish()) == [b"two"]


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        (b"k=v", b"k", b"v"),
        (b"k=v=w", b"k", b"v=w"),
        (b"=v", b"", b"v"),
        (b"k=", b"k", None),
        (b"no separator", b"fallback", b"no separator"),
        (b"", b"fallback", None),
    ],
)
def test_how_a_line_becomes_a_record(line: bytes, key: bytes, value: bytes | None) -> None:
    headers = (("trace", b"1"),)
    line_format = LineFormat(key=b"fallback", key_separator=b"=", headers=headers, empty_is_null=True)
    assert line_format.record(line, NOW) == NewRecord(NOW, key, value, headers)


def test_an_empty_value_is_a_value_unless_told_otherwise() -> None:
    line_format = LineFormat(key=None, key_separator=None, headers=(), empty_is_null=False)
    assert line_format.record(b"", NOW) == NewRecord(NOW, None, b"", ())


def test_json_shows_bytes_that_are_no_text_as_base64(capsys: pytest.CaptureFixture[str]) -> None:
    write_json(ORDERS, record(7, NOW, b"\xff\x00", "grün".encode(), b"\x04\x0atrace\x01\x06raw\x02\xfe"))
    assert json.loads(capsys.readouterr().out) == {
        "topic": "orders",
        "partition": 3,
        "offset": 7,
        "timestamp": NOW,
        "key_base64": "/wA=",
        "value": "grün",
        "headers": [{"name": "trace", "value": None}, {"name": "raw", "value_base64": "/g=="}],
    }


def test_values_are_printed_byte_for_byte(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    write_value(ORDERS, record(7, NOW, None, b"\xff\x00"))
    write_value(ORDERS, record(8, NOW, None, None))
    assert capsysbinary.readouterr().out == b"\xff\x00\n\n"


@pytest.mark.parametrize(
    ("timestamp", "shown"), [(NOW, "2023-11-14T22:13:20.000Z"), (-1, "1969-12-31T23:59:59.999Z"), (2**62, str(2**62))]
)
def test_a_table_row(timestamp: int, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_table_row(ORDERS, record(7, timestamp, None, b"\xffv"))
    assert capsys.readouterr().out.split() == ["orders-3", "7", shown, "-", "\\xffv"]

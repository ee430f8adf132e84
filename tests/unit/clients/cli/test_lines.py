"""Between bytes of standard input and records, and between records and what is printed."""

import base64
import json
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.clients.cli.lines import LineFormat, LineSplitter, LineTooLong, SeparatorMissing
from oncelog.clients.cli.record_writers import TABLE_HEAD, choose_writer, json_line, raw_value, table_row
from oncelog.clients.consumer import ConsumerRecord, TimestampType
from oncelog.protocol.printable import one_line, without_controls
from oncelog.protocol.records.record_batch import NewRecord
from oncelog.protocol.topic_partition import TopicPartition

NOW = 1_700_000_000_000
ORDERS = TopicPartition("orders", 3)


def record(
    offset: int, timestamp: int, key: bytes | None, value: bytes | None, encoded_headers: bytes = b""
) -> ConsumerRecord:
    return ConsumerRecord(*ORDERS, offset, timestamp, key, value, encoded_headers, TimestampType.CREATE_TIME, 0)


@given(st.lists(st.binary(max_size=5).filter(lambda line: not {10, 13} & set(line))), st.integers(1, 7))
def test_line_splitter_any_segmentation_returns_the_same_lines(lines: list[bytes], size: int) -> None:
    data = b"".join(line + b"\n" for line in lines)
    splitter = LineSplitter(1000)
    found = [line for start in range(0, len(data), size) for line in splitter.feed(data[start : start + size])]
    assert found == lines
    assert list(splitter.finish()) == []


def test_line_splitter_accepts_missing_line_feed_and_carriage_returns() -> None:
    splitter = LineSplitter(1000)
    assert splitter.feed(b"one\r\ntw") == [b"one"]
    assert splitter.feed(b"o\r") == []
    assert list(splitter.finish()) == [b"two"]


def test_line_splitter_long_line_is_not_copied_with_every_read() -> None:
    """CPU time, so that other processes do not count: 32 MiB of reads take milliseconds, and 100 GB of copies 20 s."""
    splitter = LineSplitter(2**26)
    piece = bytes(4096)
    began = time.thread_time()
    for _ in range(8192):
        assert splitter.feed(piece) == []
    (line,) = splitter.feed(b"\n")
    assert len(line) == 8192 * 4096
    assert time.thread_time() - began < 3.0


def test_line_splitter_endless_line_raises_line_too_long() -> None:
    splitter = LineSplitter(10)
    assert splitter.feed(b"0123456789\n0123456789") == [b"0123456789"]
    with pytest.raises(LineTooLong, match="10 bytes"):
        splitter.feed(b"0")


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
def test_line_format_splits_key_and_value(line: bytes, key: bytes, value: bytes | None) -> None:
    headers = (("trace", b"1"),)
    line_format = LineFormat(key=b"fallback", key_separator=b"=", headers=headers, empty_is_null=True)
    assert line_format.record(line, NOW) == NewRecord(NOW, key, value, headers)


@pytest.mark.parametrize("line", [b"no separator", b""])
def test_line_without_separator_and_without_another_key_raises_separator_missing(line: bytes) -> None:
    line_format = LineFormat(key=None, key_separator=b": ", headers=(), empty_is_null=False)
    with pytest.raises(SeparatorMissing, match="it has no key separator ': '"):
        line_format.record(line, NOW)


def test_line_format_empty_value_is_null_only_if_set() -> None:
    line_format = LineFormat(key=None, key_separator=None, headers=(), empty_is_null=False)
    assert line_format.record(b"", NOW) == NewRecord(NOW, None, b"", ())


def test_json_shows_bytes_that_are_no_text_as_base64() -> None:
    line = json_line(ORDERS, record(7, NOW, b"\xff\x00", "grün".encode(), b"\x04\x0atrace\x01\x06raw\x02\xfe"))
    assert json.loads(line) == {
        "topic": "orders",
        "partition": 3,
        "offset": 7,
        "timestamp": NOW,
        "key_base64": "/wA=",
        "value": "grün",
        "headers": [{"name": "trace", "value": None}, {"name": "raw", "value_base64": "/g=="}],
    }


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        (b"\x7e\x02h\x02x", "index out of range"),
        (b"\x02\x02h\x7ex", "1 headers that end at byte 67 of 5"),
        (b"\x02\x01\x02x", "a header without a name"),
    ],
)
def test_json_shows_headers_that_cannot_be_decoded_as_base64_with_the_reason(encoded: bytes, reason: str) -> None:
    fields = json.loads(json_line(ORDERS, record(7, NOW, b"k", b"v", encoded)))
    assert (fields["key"], fields["value"]) == ("k", "v")
    assert "headers" not in fields
    assert base64.b64decode(fields["headers_base64"]) == encoded
    assert fields["headers_error"] == f"the headers of orders-3 at offset 7: {reason}"


@given(
    st.sampled_from(["table", "json", "value"]),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.none() | st.binary(),
    st.none() | st.binary(),
    st.binary(),
)
def test_record_writers_any_record_is_printed(
    output: str, raw: bool, timestamp: int, key: bytes | None, value: bytes | None, encoded_headers: bytes
) -> None:
    """A record is whatever a producer wrote: the records before it are not to be lost with it."""
    write = choose_writer(output, raw=raw, encoding="utf-8", errors="strict")
    assert write(ORDERS, record(7, timestamp, key, value, encoded_headers)).endswith(b"\n")


def test_raw_values_are_printed_byte_for_byte() -> None:
    assert raw_value(ORDERS, record(7, NOW, None, b"\xff\x00")) == b"\xff\x00\n"
    assert raw_value(ORDERS, record(8, NOW, None, None)) == b"\n"


UNSAFE = ("Cc", "Cf", "Zl", "Zp")


@given(st.text())
def test_printed_text_has_no_control_character_and_is_else_unchanged(text: str) -> None:
    for escaped, kept in ((one_line(text), ""), (without_controls(text), "\n\t")):
        assert not [each for each in escaped if unicodedata.category(each) in UNSAFE and each not in kept]
    harmless = "".join(each for each in text if unicodedata.category(each) not in UNSAFE)
    assert one_line(harmless) == without_controls(harmless) == harmless


@pytest.mark.parametrize(
    ("character", "escape"),
    [
        ("\x1b", "\\x1b"),
        ("\x9b", "\\x9b"),
        ("\xad", "\\xad"),
        ("\u200b", "\\u200b"),
        ("\u2028", "\\u2028"),
        ("\u2029", "\\u2029"),
        ("\u202e", "\\u202e"),
        ("\u2066", "\\u2066"),
        ("\ufeff", "\\ufeff"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_controls_and_formats_are_shown_as_escapes(character: str, escape: str) -> None:
    text = f"grün\t{character}groß"
    assert without_controls(text) == f"grün\t{escape}groß"
    assert one_line(text) == f"grün\\t{escape}groß"


@pytest.mark.parametrize("output", ["table", "json"])
def test_record_printed_as_one_line_cannot_forge_another(output: str) -> None:
    write = choose_writer(output, raw=False, encoding="utf-8", errors="strict")
    printed = write(ORDERS, record(7, NOW, b"k\r", b"v\norders-3 8 forged\x1b[2J\x9b")).decode()
    assert printed.count("\n") == 1
    assert "\x1b" not in printed


def test_table_head_is_above_the_columns_of_a_record_without_a_key() -> None:
    row = table_row(ORDERS, record(7, 1_700_000_000_000, None, b"v"))
    assert row.index("v\n") == TABLE_HEAD.index("VALUE")


@pytest.mark.parametrize(
    ("timestamp", "shown"), [(NOW, "2023-11-14T22:13:20.000Z"), (-1, "1969-12-31T23:59:59.999Z"), (2**62, str(2**62))]
)
def test_table_row_has_partition_offset_time_key_value(timestamp: int, shown: str) -> None:
    assert table_row(ORDERS, record(7, timestamp, None, b"\xffv")).split() == ["orders-3", "7", shown, "-", "\\xffv"]

"""How ``consume`` prints a record: as a row of a table, as a line of JSON, or its bare value. The caller flushes.

Control characters of keys and values are escaped, unless the raw forms are chosen; JSON always escapes them.
"""

import base64
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from clients.cli.output import format_json_line
from clients.cli.printable import one_line, without_controls
from clients.consumer import ConsumerRecord
from protocol.topic_partition import TopicPartition

Writer = Callable[[TopicPartition, ConsumerRecord], None]
TABLE_HEAD: Final = f"{'PARTITION':<16}  {'OFFSET':>10}  {'TIMESTAMP':<24}  KEY  VALUE"


def _text(data: bytes | None) -> str:
    return "-" if data is None else data.decode("utf-8", "backslashreplace")


def write_table_row(topic_partition: TopicPartition, record: ConsumerRecord) -> None:
    _write_row(topic_partition, record, one_line(_text(record.key)), one_line(_text(record.value)))


def write_raw_table_row(topic_partition: TopicPartition, record: ConsumerRecord) -> None:
    _write_row(topic_partition, record, _text(record.key), _text(record.value))


def _write_row(topic_partition: TopicPartition, record: ConsumerRecord, key: str, value: str) -> None:
    try:
        time = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
    except (OverflowError, ValueError):
        time = str(record.timestamp_ms)
    texts = (f"{topic_partition!s:<16}", f"{record.offset:>10}", f"{time:<24}", key, value)
    sys.stdout.write("  ".join(texts) + "\n")


def _json_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    """Text as it is, anything else as base64 under a name that says so."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def write_json(topic_partition: TopicPartition, record: ConsumerRecord) -> None:
    fields: dict[str, Any] = {
        "topic": topic_partition.topic,
        "partition": topic_partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        **_json_bytes("key", record.key),
        **_json_bytes("value", record.value),
        "headers": [{"name": name, **_json_bytes("value", value)} for name, value in record.headers],
    }
    sys.stdout.write(format_json_line(fields) + "\n")


def write_value(topic_partition: TopicPartition, record: ConsumerRecord) -> None:
    sys.stdout.write(without_controls((record.value or b"").decode("utf-8", "backslashreplace")) + "\n")


def write_raw_value(topic_partition: TopicPartition, record: ConsumerRecord) -> None:
    sys.stdout.buffer.write((record.value or b"") + b"\n")


def choose_writer(output: str, *, raw: bool) -> Writer:
    """Return the writer of a ``--format``; ``raw`` leaves control characters and bytes that are no text as they are."""
    if output == "json":
        return write_json
    if output == "table":
        return write_raw_table_row if raw else write_table_row
    return write_raw_value if raw else write_value

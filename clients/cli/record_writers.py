"""How ``consume`` shows a record: as a row of a table, as a line of JSON, or its bare value. Pure.

Control and format characters of keys and values are escaped, unless the raw forms are chosen; JSON always escapes them.
"""

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from oncelog.clients.cli.output import format_json_line
from oncelog.clients.consumer import ConsumerRecord
from oncelog.protocol.printable import one_line, without_controls
from oncelog.protocol.records.record_batch import CorruptRecord
from oncelog.protocol.topic_partition import TopicPartition

Writer = Callable[[TopicPartition, ConsumerRecord], bytes]
_TextWriter = Callable[[TopicPartition, ConsumerRecord], str]
TABLE_HEAD: Final = f"{'PARTITION':<16}  {'OFFSET':>10}  {'TIMESTAMP':<24}  KEY  VALUE"


def _text(data: bytes | None) -> str:
    return "-" if data is None else data.decode("utf-8", "backslashreplace")


def table_row(topic_partition: TopicPartition, record: ConsumerRecord) -> str:
    return _row(topic_partition, record, one_line(_text(record.key)), one_line(_text(record.value)))


def raw_table_row(topic_partition: TopicPartition, record: ConsumerRecord) -> str:
    return _row(topic_partition, record, _text(record.key), _text(record.value))


def _row(topic_partition: TopicPartition, record: ConsumerRecord, key: str, value: str) -> str:
    try:
        time = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
    except (OverflowError, ValueError):
        time = str(record.timestamp_ms)
    texts = (f"{topic_partition!s:<16}", f"{record.offset:>10}", f"{time:<24}", f"{key:<3}", value)
    return "  ".join(texts) + "\n"


def _json_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return text unchanged, other bytes as base64 under a name that says so."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _json_headers(record: ConsumerRecord) -> dict[str, Any]:
    """Return the headers; all of them as base64 if they cannot be decoded: brokers do not look inside records."""
    try:
        return {"headers": [{"name": name, **_json_bytes("value", value)} for name, value in record.headers]}
    except CorruptRecord as error:
        encoded = base64.b64encode(record.encoded_headers).decode()
        return {"headers_base64": encoded, "headers_error": str(error)}


def json_line(topic_partition: TopicPartition, record: ConsumerRecord) -> str:
    fields: dict[str, Any] = {
        "topic": topic_partition.topic,
        "partition": topic_partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        **_json_bytes("key", record.key),
        **_json_bytes("value", record.value),
        **_json_headers(record),
    }
    return format_json_line(fields) + "\n"


def text_value(topic_partition: TopicPartition, record: ConsumerRecord) -> str:
    return without_controls((record.value or b"").decode("utf-8", "backslashreplace")) + "\n"


def raw_value(topic_partition: TopicPartition, record: ConsumerRecord) -> bytes:
    return (record.value or b"") + b"\n"


def choose_writer(output: str, *, raw: bool, encoding: str, errors: str) -> Writer:
    """Return the writer of a ``--format``, for a stream of this encoding.

    ``raw`` leaves control characters, and bytes that are no text, as they are.
    """
    if output == "value" and raw:
        return raw_value
    write = {"json": json_line, "value": text_value, "table": raw_table_row if raw else table_row}[output]
    return _encoded(write, encoding, errors)


def _encoded(write: _TextWriter, encoding: str, errors: str) -> Writer:
    return lambda topic_partition, record: write(topic_partition, record).encode(encoding, errors)

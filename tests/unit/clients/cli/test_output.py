"""Tables and JSON."""

import json
from uuid import UUID

from oncelog.clients.cli.output import format_fields, format_json, format_table

ROWS = [
    {"topic": "orders", "partition": 0, "isr": [1, 2], "lag": None},
    {"topic": "o", "partition": 11, "isr": [], "lag": 7},
]


def test_format_table_aligns_columns_and_numbers() -> None:
    assert format_table(ROWS, ("topic", "partition", "isr", "lag")).split("\n") == [
        "TOPIC   PARTITION  ISR  LAG",
        "orders          0  1,2    -",
        "o              11         7",
    ]


def test_format_table_without_rows_returns_the_head() -> None:
    assert format_table([], ("topic_id", "replicas")) == "TOPIC-ID  REPLICAS"


def test_format_fields_prints_one_field_a_line() -> None:
    assert format_fields({"topic": "orders", "replication_factor": 1, "internal": False}).split("\n") == [
        "TOPIC               orders",
        "REPLICATION-FACTOR  1",
        "INTERNAL            no",
    ]


def test_format_json_keeps_nested_values() -> None:
    value = {"rows": ROWS, "id": UUID(int=1), "partitions": (1, 2)}
    assert json.loads(format_json(value)) == {
        "rows": ROWS,
        "id": "00000000-0000-0000-0000-000000000001",
        "partitions": [1, 2],
    }


def test_format_table_escapes_control_characters() -> None:
    rows = [{"client_id": "\x1b]0;owned\x07", "partitions": ["a\nb"]}]
    for text in (format_table(rows, ("client_id", "partitions")), format_fields(rows[0])):
        assert not set(text) & set("\x1b\x07")
        assert "a\\nb" in text

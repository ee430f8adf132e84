"""Tables and JSON."""

import json
from uuid import UUID

from oncelog.clients.cli.output import format_fields, format_json, format_table

ROWS = [
    {"topic": "orders", "partition": 0, "isr": [1, 2], "lag": None},
    {"topic": "o", "partition": 11, "isr": [], "lag": 7},
]


def test_columns_are_as_wide_as_they_need_to_be_and_numbers_stand_right() -> None:
    assert format_table(ROWS, ("topic", "partition", "isr", "lag")).split("\n") == [
        "TOPIC   PARTITION  ISR  LAG",
        "orders          0  1,2    -",
        "o              11         7",
    ]


def test_a_table_without_rows_is_its_head() -> None:
    assert format_table([], ("topic_id", "replicas")) == "TOPIC-ID  REPLICAS"


def test_fields_stand_under_each_other() -> None:
    assert format_fields({"topic": "orders", "replication_factor": 1, "internal": False}).split("\n") == [
        "TOPIC               orders",
        "REPLICATION-FACTOR  1",
        "INTERNAL            no",
    ]


def test_json_keeps_what_a_table_flattens() -> None:
    value = {"rows": ROWS, "id": UUID(int=1), "partitions": (1, 2)}
    assert json.loads(format_json(value)) == {
        "rows": ROWS,
        "id": "00000000-0000-0000-0000-000000000001",
        "partitions": [1, 2],
    }


def test_names_of_others_bring_no_control_characters_to_the_terminal() -> None:
    rows = [{"client_id": "\x1b]0;owned\x07", "partitions": ["a\nb"]}]
    for text in (format_table(rows, ("client_id", "partitions")), format_fields(rows[0])):
        assert not set(text) & set("\x1b\x07")
        assert "a\\nb" in text

"""Lines into operations and back; and what is said about lines that are none."""

import json
from typing import Any

import pytest

from oncelog.clients.history.file_format import (
    MalformedHistory,
    header_line,
    operation_line,
    read_files,
    read_operations,
)
from oncelog.clients.history.history import History
from oncelog.clients.history.operation import Kind, Operation, Outcome
from oncelog.clients.history.verdict import judge
from tests.unit.clients.history.bad_histories import BAD_HISTORIES
from tests.unit.clients.history.good_histories import good_history
from tests.unit.clients.history.notation import parse

GOOD = {"process": "w", "op": "txn", "outcome": "ok", "start": 0, "end": 1, "sends": [["a", 0, "x"]]}


def read(*lines: str) -> list[Operation]:
    return list(read_operations([header_line(), *lines], "h"))


def malformed(*lines: str) -> MalformedHistory:
    with pytest.raises(MalformedHistory) as caught:
        list(read_operations(lines, "h"))
    assert caught.value.remedy
    return caught.value


def fields(operation: Operation) -> dict[str, Any]:
    names = (name for name in Operation.__slots__ if name not in ("origin", "number"))
    return {name: getattr(operation, name) for name in names}


def test_operation_written_and_read_is_the_same() -> None:
    histories = [*(parse(bad.text) for bad in BAD_HISTORIES), *map(good_history, range(50))]
    for history in histories:
        again = read(*map(operation_line, history.operations))
        assert [fields(each) for each in again] == [fields(each) for each in history.operations]


def test_history_from_a_file_gets_the_same_verdict() -> None:
    for bad in BAD_HISTORIES:
        history = parse(bad.text)
        again = History(read(*map(operation_line, history.operations)))
        assert judge(again).findings.keys() == judge(history).findings.keys()


def test_line_with_an_id_replaces_the_earlier_one_of_its_process() -> None:
    planned = json.dumps({**GOOD, "id": 1, "outcome": "info", "end": None})
    other = json.dumps({**GOOD, "process": "v", "id": 1})
    done = json.dumps({**GOOD, "id": 1, "outcome": "fail"})
    found = {operation.process: operation.outcome for operation in read(planned, other, done)}
    assert found == {"w": Outcome.FAIL, "v": Outcome.OK}


def test_lines_of_one_id_may_be_in_different_files_in_any_order() -> None:
    planned = json.dumps({**GOOD, "id": 1, "outcome": "info", "end": None})
    done = json.dumps({**GOOD, "id": 1, "outcome": "fail"})
    for order in ((planned, done), (done, planned)):
        (operation,) = read_files((f"file {number}", [header_line(), line]) for number, line in enumerate(order))
        assert operation.outcome is Outcome.FAIL


def test_empty_lines_are_left_out_and_processes_may_be_numbers() -> None:
    (operation,) = read("", json.dumps({**GOOD, "process": 3}), "  ")
    assert (operation.process, operation.kind, operation.origin) == ("3", Kind.TXN, "h, line 3")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"process": None}, "process is None"),
        ({"process": True}, "process is True"),
        ({"op": "write"}, "op is 'write'"),
        ({"op": ["txn"]}, r"op is ['txn']"),
        ({"outcome": "okay"}, "outcome is 'okay'"),
        ({"start": None}, "start is None"),
        ({"start": 0.5}, "start is 0.5"),
        ({"end": 1 << 64}, f"end is {1 << 64}"),
        ({"start": 2}, "end is before start"),
        ({"end": None}, "the operation is ok, and has no end"),
        ({"sends": "x"}, "sends is no list"),
        ({"sends": [["a", 0]]}, "sends has ['a', 0]"),
        ({"sends": [["a", -1, "x"]]}, "sends has the offset -1"),
        ({"sends": [["a", 0, 7]]}, "sends has 7"),
        ({"op": "poll"}, "sends in 'poll'"),
        ({"reads": [["a", None, "x"]]}, "reads has the offset None"),
        ({"op": "send", "reads": [["a", 0, "x"]]}, "reads in 'send'"),
        ({"partitions": ["a"]}, "partitions in 'txn'"),
        ({"moved": [1]}, "moved has 1"),
        ({"positions": {"g": 1}}, "positions is malformed"),
        ({"positions": {"g": {"a": "1"}}}, "positions has the offset '1'"),
        ({"op": "send", "positions": {}}, "positions in 'send'"),
        ({"error": 7}, "error has 7"),
        ({"id": [1]}, "id is [1]"),
        ({"writes": []}, "unknown field 'writes'"),
        ({"op": "final", "sends": [], "outcome": "info"}, "a final read is not ok"),
        (
            {"op": "final", "sends": [], "reads": [["a", 0, "x"]]},
            "a final read has records of 'a', which is not among its partitions",
        ),
    ],
)
def test_malformed_operation_is_refused_with_its_line(change: dict[str, Any], problem: str) -> None:
    error = malformed(header_line(), json.dumps(GOOD), json.dumps({**GOOD, **change}))
    assert str(error) == f"h, line 3: {problem}"


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"format": "other"}', "[" * 100_000])
def test_file_without_a_header_is_refused(text: str) -> None:
    assert str(malformed(text)).startswith("h, line 1: ")


def test_empty_file_and_unknown_version_are_refused() -> None:
    assert str(malformed()).startswith("h, line 1: ")
    assert "version 2" in str(malformed('{"format": "oncelog-history", "version": 2}'))


def test_line_that_is_cut_off_is_refused() -> None:
    assert "this is no JSON" in str(malformed(header_line(), json.dumps(GOOD)[:-5]))

"""Histories of one broker that only the separate checker judges, from what the clients saw."""

import json
from pathlib import Path

import pytest

from oncelog.clients.history.file_format import read_operations
from oncelog.clients.history.history import History
from oncelog.clients.history.operation import Kind, Outcome
from oncelog.clients.history.verdict import judge
from tests.simulation.test_one_broker import run
from tests.simulation.workload import Workload

SEEDS = range(8)


def test_recorded_histories_show_no_anomaly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Workload, "check", Workload.check_by_history)
    for seed in SEEDS:
        run(seed)


def test_recorded_history_is_saved_to_the_file_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "history.jsonl"
    monkeypatch.setenv("ONCELOG_HISTORY", str(path))
    run(17)
    with path.open("rb") as lines:
        operations = list(read_operations(lines, "history.jsonl"))
    verdict = judge(History(operations))
    assert verdict.is_good
    assert verdict.has_final_read
    assert {operation.kind for operation in operations} >= {Kind.SEND, Kind.TXN, Kind.FINAL, Kind.SUBSCRIBE}
    assert min(verdict.operations[Outcome.OK], verdict.operations[Outcome.FAIL], verdict.reads) > 0
    assert json.loads(path.read_text().splitlines()[0])["format"] == "oncelog-history"

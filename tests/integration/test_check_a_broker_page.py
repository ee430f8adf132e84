"""The program of ``docs/how-to/check-a-broker.md``, as a reader runs it, and what the checker makes of its history.

``INTEROP_BROKER=kafka`` runs it against Apache Kafka.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import SECONDS, Oncelog
from tests.processes import KafkaProcess, OncelogProcess

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "how-to" / "check-a-broker.md").read_text()
WRITTEN_IN = "localhost:9092"
TRANSACTIONS = 20


def verify(path: Path) -> tuple[int, dict[str, object]]:
    command = [sys.executable, "-m", "oncelog", "verify-history", str(path), "--format", "json"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=SECONDS, check=False)
    return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("history")
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    (create,) = re.findall(r"^oncelog (topic create .*)$", PAGE, re.MULTILINE)
    kind = KafkaProcess if os.environ.get("INTEROP_BROKER") == "kafka" else OncelogProcess
    with kind(tmp_path_factory.mktemp("broker")) as broker:
        Oncelog(broker.address)(create)
        program = program.replace(WRITTEN_IN, broker.address).replace("range(3), 200", f"range(3), {TRANSACTIONS}")
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=directory, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    assert done.returncode == 0, done.stderr
    return directory / "history.jsonl"


def test_history_of_the_program_is_good(history: Path) -> None:
    code, verdict = verify(history)
    assert code == 0, verdict
    assert verdict["operations"] == {"ok": TRANSACTIONS * 9 // 5 + 1, "fail": TRANSACTIONS // 5, "info": 0}
    assert verdict["writes"] == 3 * TRANSACTIONS
    assert verdict["has_final_read"] is True


def test_history_without_an_acknowledged_record_is_bad(history: Path, tmp_path: Path) -> None:
    *lines, last = history.read_text().splitlines()
    final = json.loads(last)
    lost = final["reads"].pop()
    path = tmp_path / "history.jsonl"
    path.write_text("\n".join([*lines, json.dumps(final)]) + "\n")
    code, verdict = verify(path)
    assert code == 1
    assert {"vanished", "torn-txn"} <= {found["anomaly"] for found in verdict["anomalies"]}  # type: ignore[attr-defined]
    assert lost[2] in json.dumps(verdict)

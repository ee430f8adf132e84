"""The programs of ``examples/``, each in a process of its own; ``tests/spark/test_examples.py`` runs the Spark one."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command import Oncelog
from tests.processes import LIMIT_SECONDS, REPOSITORY, BrokerProcess, OncelogProcess

SECONDS = LIMIT_SECONDS


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with OncelogProcess(tmp_path) as process:
        yield process


def run_example(name: str, broker: BrokerProcess) -> list[str]:
    """Run a program against the broker with warnings as errors, and return the lines that it prints."""
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "examples" / name), broker.address],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "error", "PYTHONPATH": str(REPOSITORY)},
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_produce_and_consume_prints_every_record_and_again_only_new_ones(broker: BrokerProcess) -> None:
    for first_offset in (0, 3):
        assert run_example("produce_and_consume.py", broker) == [
            *(f"produced example-orders-0 at offset {first_offset + n}" for n in range(3)),
            "consumed ann: 2 apples",
            "consumed bob: 5 pears",
            "consumed cid: 1 plum",
        ]


def test_exactly_once_run_twice_writes_one_invoice_for_each_order(broker: BrokerProcess) -> None:
    oncelog = Oncelog(broker.address)
    oncelog("produce example-orders", "2 apples\n5 pears\n")
    assert run_example("exactly_once.py", broker) == ["2 orders invoiced"]
    assert run_example("exactly_once.py", broker) == ["0 orders invoiced"]
    invoices = oncelog("consume example-invoices --until-end --format value").splitlines()
    assert sorted(invoices) == ["invoice for 2 apples", "invoice for 5 pears"]


def test_confluent_transactions_reads_the_committed_payment_only(broker: BrokerProcess) -> None:
    for _ in range(2):
        assert run_example("confluent_transactions.py", broker) == ["ann paid 42.00"]

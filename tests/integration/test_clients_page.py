"""The programs of ``docs/tutorials/python-client.md`` and of README, one after the other, as a reader runs them."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command import SECONDS, Oncelog
from tests.processes import BrokerProcess, OncelogProcess

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "tutorials" / "python-client.md").read_text()
_PROGRAM = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
PROGRAMS = _PROGRAM.findall(PAGE)
README_PROGRAMS = [each for each in _PROGRAM.findall((REPOSITORY / "README.md").read_text()) if "from oncelog" in each]
WRITTEN_IN = "localhost:9092"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with OncelogProcess(tmp_path_factory.mktemp("broker")) as process:
        yield process


def run_program(having: str, broker: BrokerProcess) -> str:
    """Run the one program that has a text, and return what it prints."""
    (program,) = (each for each in PROGRAMS if having in each)
    return run(program, broker)


def run(program: str, broker: BrokerProcess) -> str:
    assert WRITTEN_IN in program
    done = subprocess.run(
        [sys.executable, "-c", program.replace(WRITTEN_IN, broker.address)],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONWARNINGS": "error"},
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_programs_of_the_page_do_what_it_says(broker: BrokerProcess) -> None:
    oncelog = Oncelog(broker.address)

    administered = run_program("Admin(", broker)
    assert "Refusal(error=<ErrorCode.INVALID_CONFIG: 40>" in administered

    produced = run_program('transactional_id="fruit-orders-1"', broker)
    assert produced.startswith("RecordMetadata(topic='fruit-orders', partition=")

    consumed = run_program("class CommitFirst", broker)
    assert "b'customer-7' b'42 apples'" in consumed

    assert run_program("send_offsets_to_transaction(offsets", broker) == "1 orders invoiced\n"
    assert run_program("send_offsets_to_transaction(offsets", broker) == ""
    assert oncelog("consume fruit-invoices --until-end --format value") == "invoice for 42 apples\n"


def test_readme_program_prints_the_record_it_wrote_and_the_topics(broker: BrokerProcess) -> None:
    (program,) = README_PROGRAMS
    printed = run(program, broker)
    assert "value=b'42 apples'" in printed
    assert "fruit-orders" in printed.splitlines()[-1]


def test_programs_of_the_page_are_all_run() -> None:
    assert len(PROGRAMS) == 4

"""The commands and the program of ``docs/tutorials/first-broker.md``, one after the other, as a reader runs them."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.command import SECONDS
from tests.processes import REPOSITORY, BrokerProcess, OncelogProcess

PAGE: Final = (REPOSITORY / "docs" / "tutorials" / "first-broker.md").read_text()
BLOCKS: Final = re.findall(r"^```(sh|python)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
WRITTEN_IN: Final = "localhost:9092"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with OncelogProcess(tmp_path_factory.mktemp("broker")) as process:
        yield process


def run(language: str, text: str, broker: BrokerProcess) -> str:
    """Run a block with the broker's address, and return what it prints."""
    command = (
        [sys.executable, "-c", text.replace(WRITTEN_IN, broker.address)]
        if language == "python"
        else ["sh", "-ec", text]
    )
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "PATH": path, "ONCELOG_BOOTSTRAP": broker.address},
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_blocks_of_the_page_print_what_it_says(broker: BrokerProcess) -> None:
    start, path, records, program, transaction = BLOCKS
    assert start == ("sh", "make run\n")
    assert path[1].startswith("export PATH=")
    printed = run(*records, broker)
    assert "apples 3" in printed
    assert "pears 5" in printed
    run(*program, broker)
    printed = run(*transaction, broker)
    assert "42.00" in printed
    assert "CompleteCommit" in printed

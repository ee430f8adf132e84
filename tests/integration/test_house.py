"""What requests cross, measured in a broker that runs."""

import json
import subprocess
import sys
from typing import Final

from tests.house.sources import REPOSITORY

MOST_FILES_OF_PRODUCE: Final = 23
MOST_FILES_OF_END_TXN: Final = 33
"""Raise one only for a step that every such request needs; the commit says which."""


def test_request_path_of_this_tree_returns_files_from_dispatch_to_disk() -> None:
    command = [sys.executable, "-m", "tests.house.request_path"]
    found = json.loads(subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout)
    produce, end = found["Produce, a later one, version 1"], found["EndTxn to Complete, version 1"]
    assert len(produce["files"]) <= MOST_FILES_OF_PRODUCE
    assert len(end["files"]) <= MOST_FILES_OF_END_TXN
    for crossing in (produce, end):
        assert {"broker/storage/disk.py", "broker/network/connection.py"} <= set(crossing["files"])
        assert all((REPOSITORY / file).is_file() for file in crossing["files"])
        assert len(crossing["files"]) <= crossing["moves"]
        assert crossing["depth"] > 1
    assert "coordinator/transaction/state.py" in set(end["files"]) - set(produce["files"])

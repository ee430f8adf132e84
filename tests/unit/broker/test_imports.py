"""What a broker loads: modules that it does not use are memory in each process."""

import subprocess
import sys
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[3]
NOT_NEEDED: Final = frozenset({"argparse", "csv", "email", "importlib.metadata", "kazoo", "zipfile"})
LOADED: Final = "import sys, oncelog.broker.serve; print(*sys.modules)"


def test_broker_loads_no_module_that_it_does_not_use() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert not NOT_NEEDED.intersection(done.stdout.split())

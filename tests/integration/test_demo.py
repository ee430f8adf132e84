"""The demo is run as a user runs it: it judges itself, and its exit code says how."""

import subprocess
import sys
from pathlib import Path

from tests.processes import LIMIT_SECONDS, REPOSITORY


def test_demo_ends_well_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.demo"],
        cwd=REPOSITORY,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "DEMO_SECONDS": str(LIMIT_SECONDS)},
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("kill -9") == 3
    assert "aborted on purpose" in done.stdout
    assert not list(tmp_path.iterdir())

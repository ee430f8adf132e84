"""The command ``oncelog`` as users run it: a process, pointed at a broker."""

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from tests.processes import LIMIT_SECONDS, child_environment

SECONDS = LIMIT_SECONDS


class Oncelog:
    """The command ``oncelog``, pointed at the broker."""

    def __init__(self, address: str) -> None:
        self.environment = {**child_environment(), "ONCELOG_BOOTSTRAP": address}

    def run(self, words: str | Sequence[str], text: str = "") -> "subprocess.CompletedProcess[str]":
        arguments = words.split() if isinstance(words, str) else words
        return subprocess.run(
            [sys.executable, "-m", "oncelog", *arguments],
            input=text,
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=SECONDS,
            check=False,
        )

    def __call__(self, words: str | Sequence[str], text: str = "") -> str:
        """Run it, and have it succeed."""
        done = self.run(words, text)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, words: str) -> Any:
        return json.loads(self(f"{words} --format json"))

    def fails(self, words: str, exit_code: int = 1, text: str = "") -> str:
        done = self.run(words, text)
        assert done.returncode == exit_code, done.stdout + done.stderr
        return done.stderr

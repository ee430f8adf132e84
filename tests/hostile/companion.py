"""``Companion``: a process of ours beside a broker, which takes lines on its standard input."""

import json
import subprocess
import sys
from typing import Any

from tests.processes import REPOSITORY


class Companion:
    """Runs from its making until ``end``."""

    def __init__(self, module: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )

    def ask(self) -> Any:
        """End a measurement, and return it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self, seconds: float) -> str:
        """Close its input; what it says until it ends."""
        try:
            said, _ = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            said, _ = self.process.communicate()
        return said

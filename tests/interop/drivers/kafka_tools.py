"""Apache Kafka's own command-line tools, all run by one JVM: starting one for each costs seconds."""

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.interop.drivers.program import ProgramFailed, compiled, java
from tests.processes import KAFKA_4, LIMIT_SECONDS

_PACKAGE = "org.apache.kafka.tools."


class KafkaTools:
    """A context manager; call it inside. ``errors`` is a file for what the JVM itself has to say."""

    def __init__(self, errors: Path) -> None:
        self._errors = errors

    def __enter__(self) -> Self:
        command = java(compiled("ToolServer", KAFKA_4), "ToolServer")
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(LIMIT_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()

    def __call__(self, address: str, tool: str, *words: str) -> str:
        """What the tool prints. Raises ``ProgramFailed`` with it when the tool does not succeed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = "\t".join([_PACKAGE + tool, "--bootstrap-server", address, *words]) + "\n"
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()
        first = self._process.stdout.readline().split()
        if not first:
            raise ProgramFailed(f"the tools' process ended:\n{self._errors.read_text()[-4000:]}")
        code, printed, complained = map(int, first)
        said = self._process.stdout.read(printed).decode()
        errors = self._process.stdout.read(complained).decode()
        if code != 0:
            raise ProgramFailed(f"{tool} {' '.join(words)} ended with {code}:\n{said[-2000:]}{errors[-4000:]}")
        return said

"""Brokers as real processes, for interop tests and benchmarks: ours, and Apache Kafka from its Maven artifacts.

Each is a context manager that listens on loopback only, is stopped by process id, ends with the process that started
it, and leaves its directory to the caller. Readiness is never a sleep: our broker is ready when its readiness line
arrives, Kafka when its log says so.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from random import Random
from types import TracebackType
from typing import IO, Any, Self

from oncelog.broker.local_cluster.layout import free_ports
from tests.bound_process import start_bound

REPOSITORY = Path(__file__).resolve().parent.parent
PEERS = REPOSITORY / ".peers"
READY_LINE = re.compile(r"\[KafkaServer id=\d+\] started|Kafka Server started")
LIMIT_SECONDS = 300.0
"""How long a test waits for a process that has work to do. It ends a test that hangs, and measures nothing."""
_STOP_SECONDS = 20.0
_NOT_INHERITED = {"PYTHONDONTWRITEBYTECODE", "JDK_JAVA_OPTIONS"}


class BrokerDied(Exception):
    """The process ended or stayed silent before it was ready; the message holds the end of its output."""


def free_port() -> int:
    """Return a port of loopback at which no program listens, from a range of which outgoing connections get none.

    A socket that never listens holds the port until this process ends, so that no other test process is given it before
    its broker listens, or while that broker is down. Servers set SO_REUSEADDR, and may listen beside it.
    """
    for port in free_ports(Random()):
        holder = socket.socket()
        try:
            holder.bind(("127.0.0.1", port))
        except OSError:
            holder.close()
            continue
        # After the exclusive bind: set before it, two holders could have one port.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.detach()
        return port
    raise AssertionError("no port of loopback is free")


def child_environment() -> dict[str, str]:
    """Return our environment without what would harm a process that we start.

    It keeps its compiled modules, since otherwise each start would compile all of them. Options for the JVM of Spark,
    which this process may have started, are not for another JVM.
    """
    return {key: value for key, value in os.environ.items() if key not in _NOT_INHERITED}


class OutputReader:
    """Empties a process's output into a file, as a full pipe would stop the process, and watches for one line."""

    def __init__(self, stream: IO[bytes], log: Path, pattern: re.Pattern[str]) -> None:
        self._stream = stream
        self._log = log
        self._pattern = pattern
        self._decided = threading.Event()
        self.found = False
        self._thread = threading.Thread(target=self._read, name="broker output")
        self._thread.start()

    def _read(self) -> None:
        with self._log.open("ab") as log, self._stream:
            for line in self._stream:
                log.write(line)
                log.flush()
                if not self.found and self._pattern.search(line.decode(errors="replace")):
                    self.found = True
                    self._decided.set()
        self._decided.set()

    def wait(self, seconds: float) -> bool:
        """Whether the line came within ``seconds``, and before the output ended."""
        self._decided.wait(seconds)
        return self.found

    def join(self) -> None:
        self._thread.join(_STOP_SECONDS)


class BrokerProcess:
    """A broker process; ``address`` is ``host:port`` once it runs."""

    name = "broker"
    ready_line = READY_LINE
    stop_seconds = LIMIT_SECONDS

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.address = ""
        self.process: subprocess.Popen[bytes] | None = None
        self._output: OutputReader | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """The variables of the process; see ``child_environment``."""
        return child_environment()

    def start(self, *, seconds: float = LIMIT_SECONDS) -> None:
        """Start the process and return when it is ready."""
        self.launch()
        assert self._output is not None
        if not self._output.wait(seconds):
            self.kill()
            logs = (self.directory / "stdout.log", self.directory / "stderr.log")
            said = [log.read_text(errors="replace")[-4000:] for log in logs]
            raise BrokerDied("not ready:\n" + "\n".join(said))

    def prepare(self) -> None:
        """Do what must be done once before the first start."""
        self.directory.mkdir(parents=True, exist_ok=True)

    def launch(self) -> None:
        """Start the process and return at once."""
        self.prepare()
        with (self.directory / "stderr.log").open("ab") as errors:
            self.process = start_bound(
                self.command(), stdout=subprocess.PIPE, stderr=errors, env=self.environment(), start_new_session=True
            )
        assert self.process.stdout is not None
        self._output = OutputReader(self.process.stdout, self.directory / "stdout.log", self.ready_line)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        """kill -9, and wait until the process is gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, wait for the clean shutdown, and return the exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(number)
        try:
            code = process.wait(self.stop_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait(_STOP_SECONDS)
        if self._output is not None:
            self._output.join()
        return code

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class OncelogProcess(BrokerProcess):
    """``oncelog serve`` on the embedded store. The port stays the same over restarts, so that clients find it again."""

    name = "oncelog"

    def __init__(self, directory: Path, settings: Sequence[str] = (), port: int | None = None) -> None:
        super().__init__(directory)
        self.settings = settings
        self.port = port or free_port()
        self.address = f"127.0.0.1:{self.port}"

    @property
    def data_directory(self) -> Path:
        return self.directory / "data"

    def command(self) -> list[str]:
        overrides = [word for setting in self.settings for word in ("--set", setting)]
        data = str(self.data_directory)
        return [sys.executable, "-m", "oncelog", "serve", "--port", str(self.port), "--data-dir", data, *overrides]


KAFKA_4 = PEERS / "kafka-4" / "lib"
KAFKA_3_9 = PEERS / "kafka-3.9" / "lib"


def class_path(library: Path) -> str:
    if not library.is_dir():
        raise FileNotFoundError(f"{library} is missing: run `make peers`")
    return f"{library}/*"


class ClusterProcess(BrokerProcess):
    """``oncelog cluster``: a ZooKeeper and some brokers, the children of one process, on ports that stay the same.

    ``verb("kill", 2)`` is ``oncelog cluster kill 2``. Its ZooKeeper is started from the jars of the Kafka 3.9 peer,
    unless the environment names others.
    """

    name = "oncelog cluster"
    ready_line = re.compile(r"\[OncelogCluster brokers=\d+\] started at ([^\s]+), after")

    def __init__(
        self, directory: Path, brokers: int = 3, settings: Sequence[str] = (), *, secure: bool = False
    ) -> None:
        """``settings``: ``key=value`` for all brokers, ``ID:key=value`` for one."""
        super().__init__(directory)
        self.secure = secure
        self.brokers = brokers
        self.settings = settings

    @property
    def cluster_directory(self) -> Path:
        return self.directory / "cluster"

    def command(self) -> list[str]:
        overrides = [word for setting in self.settings for word in ("--set", setting)]
        words = ["--brokers", str(self.brokers), "--dir", str(self.cluster_directory), "--port", "0", *overrides]
        words += ["--secure"] if self.secure else []
        return [sys.executable, "-m", "oncelog", "cluster", *words]

    def environment(self) -> dict[str, str]:
        return {"ONCELOG_ZOOKEEPER_JARS": str(KAFKA_3_9), **super().environment()}

    def start(self, *, seconds: float = LIMIT_SECONDS) -> None:
        super().start(seconds=seconds)
        found = self.ready_line.findall((self.directory / "stdout.log").read_text())
        self.address = found[-1]

    def run_verb(self, verb: str, *members: object) -> "subprocess.CompletedProcess[str]":
        """Give the running cluster an order, and return how the command ended."""
        words = [verb, *map(str, members), "--dir", str(self.cluster_directory), "--format", "json"]
        return subprocess.run(
            [sys.executable, "-m", "oncelog", "cluster", *words],
            capture_output=True,
            text=True,
            env=self.environment(),
            timeout=self.stop_seconds,
            check=False,
        )

    def verb(self, verb: str, *members: object) -> "dict[str, dict[str, Any]]":
        """Give an order that succeeds; how its members are afterwards, by name."""
        done = self.run_verb(verb, *members)
        assert done.returncode == 0, done.stderr
        return {member["member"]: member for member in json.loads(done.stdout)}


class KafkaProcess(BrokerProcess):
    """Apache Kafka as one combined KRaft node, started from its Maven artifacts with its own defaults for one node."""

    name = "kafka"

    def __init__(self, directory: Path, settings: Sequence[str] = (), library: Path = KAFKA_4) -> None:
        super().__init__(directory)
        self.settings = settings
        self.library = library
        self.port = free_port()
        self.controller_port = free_port()
        self.address = f"127.0.0.1:{self.port}"

    @property
    def data_directory(self) -> Path:
        return self.directory / "data"

    def java(self, *words: str, heap: str = "-Xmx1G") -> list[str]:
        return ["java", heap, "-Dorg.slf4j.simpleLogger.logFile=System.out", "-cp", class_path(self.library), *words]

    def command(self) -> list[str]:
        # The JVM options of Kafka's own kafka-server-start and kafka-run-class scripts.
        options = ["-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
        options += ["-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"]
        return self.java(*options, "kafka.Kafka", str(self.properties_file))

    @property
    def properties_file(self) -> Path:
        return self.directory / "server.properties"

    def prepare(self) -> None:
        """Write ``server.properties`` and format the storage directory."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if self.properties_file.exists():
            return
        lines = [
            "process.roles=broker,controller",
            "node.id=1",
            f"controller.quorum.voters=1@127.0.0.1:{self.controller_port}",
            f"listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names=CONTROLLER",
            f"log.dirs={self.data_directory}",
            "offsets.topic.replication.factor=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            "share.coordinator.state.topic.replication.factor=1",
            "share.coordinator.state.topic.min.isr=1",
            "group.initial.rebalance.delay.ms=0",
            *self.settings,
        ]
        self.properties_file.write_text("\n".join(lines) + "\n")
        tool = self.java("kafka.tools.StorageTool", "format", "-t", "b25jZWxvZy1iZW5jaG1hcg", "-c")
        subprocess.run([*tool, str(self.properties_file)], check=True, stdout=subprocess.DEVNULL)

"""Clients that live in another process: the Java client, kafkajs and kcat."""

import os
import selectors
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.interop.broker_under_test import REPLICATION_FACTOR
from tests.interop.drivers.deadline import Deadline
from tests.interop.drivers.driver import TIMEOUT_SECONDS, Batch, Consumed
from tests.processes import PEERS, class_path

PROGRAMS = Path(__file__).resolve().parent.parent / "programs"


class ProgramFailed(Exception):
    """The client's process failed; the message is the end of what it said."""


def run(command: Sequence[str], lines: Sequence[str] = (), environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        input="".join(line + "\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS + 15,
        env={**os.environ, **(environment or {})},
    )
    if done.returncode != 0:
        raise ProgramFailed(f"{command[0]} … ended with {done.returncode}:\n{done.stderr[-4000:]}")
    return done.stdout


def parse(line: str) -> Consumed:
    partition, offset, key, value = line.split("\t")
    return Consumed(int(partition), int(offset), None if key == "null" else key, value)


def lacking_peer(peer: str, program: str) -> str | None:
    """What is missing to run a peer of ``.peers``, with the command that installs it."""
    if shutil.which(program) is None:
        return f"{program} is not installed: apt-get install openjdk-17-jdk-headless maven nodejs npm kcat"
    if not (PEERS / peer).is_dir():
        return f"{peer} is not installed: make peers"
    return None


def compiled(program: str, library: Path) -> str:
    """The class path of one of ``programs/*.java``, compiled against a peer's jars if that is still to be done."""
    classes, source = library.parent / "classes", PROGRAMS / f"{program}.java"
    target = classes / f"{program}.class"
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        run(["javac", "-cp", class_path(library), "-d", str(classes), str(source)])
    return f"{classes}:{class_path(library)}"


def java(class_path: str, program: str, *words: object) -> list[str]:
    """A JVM for a short run, or a small one."""
    return ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", class_path, program, *map(str, words)]


class Program:
    """A client program that understands the verbs of ``programs/InteropClient.java``."""

    name: str
    transactional = True
    compressions: Sequence[str]

    def call(self, verb: str, *words: object, lines: Sequence[str] = ()) -> list[str]:
        raise NotImplementedError

    def lacking(self) -> str | None:
        """What is missing on this machine, with the command that installs it."""
        raise NotImplementedError

    def create_topic(self, address: str, topic: str, partitions: int) -> None:
        self.call("create", address, topic, partitions, REPLICATION_FACTOR)

    def produce(self, address: str, topic: str, values: Sequence[str], *, compression: str = "none") -> None:
        self.call("produce", address, topic, compression, lines=values)

    def consume(self, address: str, topic: str, count: int, *, read_committed: bool = False) -> list[Consumed]:
        level = "read_committed" if read_committed else "read_uncommitted"
        return [parse(line) for line in self.call("consume", address, topic, count, level)]

    def consume_with_two_members(self, address: str, topic: str, group: str, count: int) -> list[list[Consumed]]:
        results: list[list[Consumed]] = [[], []]
        for line in self.call("group", address, topic, group, count):
            member, _, rest = line.partition("\t")
            results[int(member)].append(parse(rest))
        return results

    def transact(self, address: str, topic: str, transactional_id: str, batches: Sequence[Batch]) -> None:
        lines = ["\t".join(["commit" if batch.commit else "abort", *batch.values]) for batch in batches]
        self.call("transact", address, topic, transactional_id, lines=lines)

    def consume_transform_produce(
        self, address: str, source: str, target: str, group: str, transactional_id: str, count: int
    ) -> None:
        self.call("transform", address, source, target, group, transactional_id, count)


class JavaClient(Program):
    """``org.apache.kafka:kafka-clients``, from the Maven artifacts under ``.peers``."""

    compressions = ("none", "gzip", "snappy", "lz4", "zstd")

    def __init__(self, peer: str) -> None:
        self.name = peer
        self._home = PEERS / peer

    def lacking(self) -> str | None:
        return lacking_peer(self.name, "java")

    def command(self, program: str, *words: object) -> list[str]:
        """How to run one of ``programs/*.java`` with this client."""
        return java(compiled(program, self._home / "lib"), program, *words)

    def call(self, verb: str, *words: object, lines: Sequence[str] = ()) -> list[str]:
        return run(self.command("InteropClient", verb, *words), lines).splitlines()


class KafkaJs(Program):
    """kafkajs, from the npm package under ``.peers``."""

    name = "kafkajs"
    compressions = ("none", "gzip")

    def lacking(self) -> str | None:
        return lacking_peer(self.name, "node")

    def call(self, verb: str, *words: object, lines: Sequence[str] = ()) -> list[str]:
        return self.run_program("interop_client.js", verb, *words, lines=lines)

    def run_program(self, program: str, *words: object, lines: Sequence[str] = ()) -> list[str]:
        """Run one of ``programs/*.js`` with this client; return the lines that it prints."""
        environment = {"NODE_PATH": str(PEERS / "kafkajs" / "node_modules"), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
        command = ["node", str(PROGRAMS / program), *map(str, words)]
        return run(command, lines, environment).splitlines()


class Kcat:
    """kcat: librdkafka on the command line. It has no transactions; its group mode is ``-G``."""

    name = "kcat"
    transactional = False
    compressions = ("none", "gzip", "snappy", "lz4", "zstd")
    _format = r"%p\t%o\t%k\t%s\n"

    def lacking(self) -> str | None:
        return None if shutil.which("kcat") else "kcat is not installed: apt-get install kcat"

    def create_topic(self, address: str, topic: str, partitions: int) -> None:
        # kcat creates a topic by asking for it; its partition count is the broker's `num.partitions`.
        run(["kcat", "-b", address, "-X", "allow.auto.create.topics=true", "-L", "-t", topic])

    def produce(self, address: str, topic: str, values: Sequence[str], *, compression: str = "none") -> None:
        options = ["-X", "enable.idempotence=true", "-z", compression, "-K", ":"]
        run(["kcat", "-b", address, "-P", "-t", topic, *options], [f"{value}:{value}" for value in values])

    def consume(self, address: str, topic: str, count: int, *, read_committed: bool = False) -> list[Consumed]:
        level = "read_committed" if read_committed else "read_uncommitted"
        options = ["-o", "beginning", "-c", str(count), "-X", f"isolation.level={level}"]
        out = run(["kcat", "-b", address, "-C", "-q", "-t", topic, "-f", self._format, *options])
        return [parse(line) for line in out.splitlines()]

    def consume_with_two_members(self, address: str, topic: str, group: str, count: int) -> list[list[Consumed]]:
        stdbuf = shutil.which("stdbuf") or "stdbuf"
        options = ["-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=10000", "-u", "-f", self._format]
        command = [stdbuf, "-oL", "kcat", "-b", address, *options, "-G", group, topic]
        return follow_two([command, command], count)


def follow_two(commands: Sequence[Sequence[str]], count: int) -> list[list[Consumed]]:
    """Run two members at once and stop them when together they have printed ``count`` distinct records."""
    members = [subprocess.Popen(c, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for c in commands]
    buffers = [b"" for _ in members]
    deadline = Deadline()
    try:
        with selectors.DefaultSelector() as selector:
            for index, member in enumerate(members):
                assert member.stdout is not None
                selector.register(member.stdout, selectors.EVENT_READ, index)
            while sum(buffer.count(b"\n") for buffer in buffers) < count:
                deadline.check(f"{buffers} of {count}")
                for key, _ in selector.select(0.5):
                    buffers[key.data] += os.read(key.fd, 65536)
    finally:
        for member in members:
            member.terminate()
            member.wait(TIMEOUT_SECONDS)
            assert member.stdout is not None
            member.stdout.close()
    return [[parse(line) for line in buffer.decode().splitlines()] for buffer in buffers]

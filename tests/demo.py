"""``make demo``: an online shop through crashes.

A broker starts, 1,000 purchases are written, and an application (``tests.demo_application``, with confluent-kafka)
turns each into an invoice and a shipment, a batch a transaction. On the way one batch is aborted on purpose, the
application is killed with ``kill -9`` inside a transaction, then the broker is, then both at once; each is started
again. In the end everything is read twice, as ``read_committed`` and as ``read_uncommitted``, and counted.

The exit code is 0 only if every purchase has exactly one invoice and one shipment for a reader of committed records,
and that reader sees nothing of the aborted batch. ``DEMO_BROKER=kafka`` runs the same against Apache Kafka.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.bound_process import start_bound
from tests.demo_application import GROUP, INVOICES, PURCHASES, SHIPMENTS
from tests.processes import REPOSITORY, BrokerProcess, KafkaProcess, OncelogProcess

COUNT = 1_000
PARTITIONS = 3
ABORT_BATCH = 5
KILL_APPLICATION_AT = 300
KILL_BROKER_AT = 550
KILL_BOTH_AT = 800
SECONDS = float(os.environ.get("DEMO_SECONDS", "55"))
CALL_SECONDS = 300.0

Line = dict[str, Any]


class DemoFailed(Exception):
    """The demo did not get to its end."""


class Story:
    """Prints what happens, with the time since the start, and knows when the time is up."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def tell(self, text: str) -> None:
        print(f"{self.seconds:6.1f} s  {text}", flush=True)


class ApplicationProcess:
    """The application in a process of its own; ended, by its id, when the demo's time is up."""

    def __init__(self, address: str, run: int, errors: Path) -> None:
        abort = [str(ABORT_BATCH)] if run == 1 else []
        command = [sys.executable, "-m", "tests.demo_application", address, f"run{run}", *abort]
        self._errors = errors.open("ab")
        self.process = start_bound(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=self._errors)

    def lines(self, seconds: float) -> Iterator[Line]:
        """What it says, until it ends or ``seconds`` are over."""
        watchdog = threading.Timer(max(seconds, 0.0), self.kill)
        watchdog.start()
        try:
            assert self.process.stdout is not None
            for line in self.process.stdout:
                yield json.loads(line)
        finally:
            watchdog.cancel()

    def kill(self) -> None:
        self.process.kill()

    def end(self) -> int:
        """Make sure that it is gone; returns its exit code."""
        if self.process.poll() is None:
            self.process.kill()
        code = self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()
        return code


@dataclass(slots=True)
class Progress:
    """What the application has said over all of its runs."""

    committed: int = 0
    runs: int = 0
    aborted_on_purpose: str = ""
    kills: list[str] = field(default_factory=list)


class Demo:
    """The play: a broker, the runs of the application, and the crashes between them."""

    def __init__(self, broker: BrokerProcess, story: Story) -> None:
        self.broker = broker
        self.story = story
        self.progress = Progress()
        self._crashes: list[tuple[int, Callable[[ApplicationProcess], None]]] = [
            (KILL_APPLICATION_AT, self._kill_application),
            (KILL_BROKER_AT, self._kill_broker),
            (KILL_BOTH_AT, self._kill_both),
        ]

    def prepare(self) -> None:
        """Create the topics and write the purchases."""
        admin = AdminClient({"bootstrap.servers": self.broker.address})
        topics = [NewTopic(name, PARTITIONS, 1) for name in (PURCHASES, INVOICES, SHIPMENTS)]
        for created in admin.create_topics(topics).values():
            created.result(CALL_SECONDS)
        producer = Producer({"bootstrap.servers": self.broker.address, "enable.idempotence": True})
        for number in range(COUNT):
            producer.produce(PURCHASES, json.dumps(purchase(number)), key=str(number))
        if producer.flush(CALL_SECONDS):
            raise DemoFailed("the purchases could not be written")
        self.story.tell(f"{COUNT:,} purchases written to {PARTITIONS} partitions")

    def run_application(self) -> None:
        """Run the application until it has finished; a run that ends otherwise is followed by another."""
        finished = False
        while not finished:
            self.progress.runs += 1
            application = ApplicationProcess(
                self.broker.address, self.progress.runs, self.broker.directory / "application.log"
            )
            self.story.tell(f"application started (pid {application.process.pid}, run {self.progress.runs})")
            try:
                for line in application.lines(self._seconds_left):
                    finished |= self._hear(application, line)
            finally:
                code = application.end()
            if not finished:
                if self._seconds_left <= 0:
                    raise DemoFailed(f"no end after {SECONDS:g} s")
                self.story.tell(f"application gone ({'killed' if code == -9 else f'exit code {code}'})")
            if self.broker.process is None:
                self._restart_broker()

    @property
    def _seconds_left(self) -> float:
        return SECONDS - self.story.seconds

    def _hear(self, application: ApplicationProcess, line: Line) -> bool:
        """React to a line of the application; True if it was its last word."""
        match line["step"]:
            case "committed":
                self.progress.committed += line["purchases"]
            case "aborted":
                self.story.tell(f"batch {line['batch']} aborted {line['reason']}")
                if line["reason"] == "on purpose":
                    self.progress.aborted_on_purpose = line["batch"]
            case "written" if self._crashes and self.progress.committed >= self._crashes[0][0]:
                _, crash = self._crashes.pop(0)
                crash(application)
            case "finished":
                self.story.tell(f"application finished: {self.progress.committed:,} purchases seen to be committed")
                return True
        return False

    # Crashes. Each comes when outputs are written and neither they nor the offsets are committed.

    def _kill_application(self, application: ApplicationProcess) -> None:
        self.story.tell(f"kill -9 the application (pid {application.process.pid}) inside a transaction")
        application.kill()

    def _kill_broker(self, application: ApplicationProcess) -> None:
        self.story.tell(f"kill -9 the broker (pid {self.broker.pid}) inside a transaction")
        self.broker.kill()
        self._restart_broker()

    def _kill_both(self, application: ApplicationProcess) -> None:
        self.story.tell(f"kill -9 both (pids {application.process.pid} and {self.broker.pid}) inside a transaction")
        application.kill()
        self.broker.kill()

    def _restart_broker(self) -> None:
        before = self.story.seconds
        self.broker.start(seconds=CALL_SECONDS)
        self.story.tell(f"broker ready again (pid {self.broker.pid}) after {self.story.seconds - before:.2f} s")


def purchase(number: int) -> dict[str, object]:
    return {
        "id": number,
        "user_id": f"u{number % 97}",
        "user_name": f"User {number % 97}",
        "product_id": f"p{number % 31}",
        "quantity": 1 + number % 5,
        "total_price": f"{10 + number % 90}$",
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A topic as one kind of reader sees it."""

    topic: str
    isolation: str
    purchases: Counter[int]
    batches: Counter[str]

    @property
    def is_exactly_once(self) -> bool:
        return self.purchases == Counter(range(COUNT))

    def row(self) -> tuple[str, ...]:
        records = self.purchases.total()
        missing = COUNT - len(self.purchases)
        return (
            self.topic,
            self.isolation,
            f"{records:,}",
            f"{len(self.purchases):,}",
            f"{records - len(self.purchases):,}",
            f"{missing:,}",
        )


def read(address: str, topic: str, isolation: str) -> View:
    """Everything that a reader sees between the beginning of a topic and its end."""
    purchases: Counter[int] = Counter()
    batches: Counter[str] = Counter()
    for message in messages(address, topic, PARTITIONS, isolation):
        purchases[json.loads(message.value() or b"")["id"]] += 1
        batches[batch_of(message)] += 1
    return View(topic=topic, isolation=isolation, purchases=purchases, batches=batches)


def messages(address: str, topic: str, partitions: int, isolation: str) -> Iterator[Message]:
    """What a reader sees of all partitions, from their beginning to their end."""
    settings = {"enable.auto.commit": False, "isolation.level": isolation, "enable.partition.eof": True}
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "audit", "auto.offset.reset": "earliest", **settings}
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        at_end: set[int] = set()
        while len(at_end) < partitions:
            message = consumer.poll(CALL_SECONDS)
            if message is None:
                raise DemoFailed(f"{topic} cannot be read to its end")
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end.add(message.partition() or 0)
            else:
                raise DemoFailed(f"{topic}: {error}")
    finally:
        consumer.close()


def batch_of(message: Message) -> str:
    """The application's name for the batch that a record was written in."""
    value = dict(message.headers() or [])["batch"]
    assert isinstance(value, bytes)
    return value.decode()


def committed_offsets(address: str) -> int:
    """The sum of what the application's group has committed."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": GROUP})
    try:
        partitions = [TopicPartition(PURCHASES, partition) for partition in range(PARTITIONS)]
        return sum(max(0, partition.offset) for partition in consumer.committed(partitions, CALL_SECONDS))
    finally:
        consumer.close()


def judge(address: str, aborted_batch: str) -> bool:
    """Print what readers see, and say whether it is right."""
    views = [
        read(address, topic, isolation)
        for isolation in ("read_committed", "read_uncommitted")
        for topic in (INVOICES, SHIPMENTS)
    ]
    print_table(("TOPIC", "READER", "RECORDS", "PURCHASES", "REPEATED", "MISSING"), [view.row() for view in views])
    committed, uncommitted = views[:2], views[2:]
    visible = sum(view.batches[aborted_batch] for view in committed)
    hidden = sum(view.batches[aborted_batch] for view in uncommitted)
    offsets = committed_offsets(address)
    verdicts = [
        (all(view.is_exactly_once for view in committed), "each purchase has exactly one invoice and one shipment"),
        (bool(aborted_batch) and not visible, f"readers of committed records see nothing of aborted {aborted_batch}"),
        (hidden > 0, f"its {hidden} records are in the log: read_uncommitted sees them"),
        (offsets == COUNT, f"the group has committed {offsets:,} of {COUNT:,} purchases"),
    ]
    print()
    for is_right, sentence in verdicts:
        print(f"  {'yes' if is_right else 'NO '}  {sentence}")
    return all(is_right for is_right, _ in verdicts)


def print_table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    print()
    for row in (head, *rows):
        texts = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
        numbers = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        print("  " + "  ".join([*texts, *numbers]))


def play(directory: Path) -> bool:
    kind = {"oncelog": OncelogProcess, "kafka": KafkaProcess}[os.environ.get("DEMO_BROKER", "oncelog")]
    broker, story = kind(directory), Story()
    try:
        broker.start(seconds=CALL_SECONDS)
        story.tell(f"broker ready at {broker.address} (pid {broker.pid})")
        demo = Demo(broker, story)
        demo.prepare()
        demo.run_application()
        is_right = judge(broker.address, demo.progress.aborted_on_purpose)
        print()
        story.tell("exactly once, through all of it" if is_right else "NOT exactly once")
        return is_right
    finally:
        broker.stop()


def main() -> None:
    try:
        with tempfile.TemporaryDirectory(prefix="oncelog-demo-") as directory:
            is_right = play(Path(directory))
    except DemoFailed as error:
        print(f"The demo failed: {error}", file=sys.stderr)
        is_right = False
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    main()

"""``make demo-spark``: a stream of purchases becomes invoices, exactly once, through crashes.

A broker starts, purchases are written to it all the time, and an application (``tests.spark_demo_application``) reads
them with Spark as a stream, sums them up, joins them with a small table and writes invoices. On the way its driver is
killed with ``kill -9`` three times and the broker once, each time in the middle of a batch, as the broker's list of
transactions shows; whatever has ended is started again. Then Spark computes the same invoices from all purchases at
once, as a batch, and compares.

The exit code is 0 only if a reader of committed records finds exactly the invoices of that batch, each of them once,
and no transaction of the sink is left open.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from oncelog.clients.admin.transactions import ONGOING, list_transactions
from oncelog.clients.errors import ClientError
from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.process_client import ClientSettings, ProcessClient
from oncelog.spark_connector.reading.offset_lookup import latest_offsets
from oncelog.spark_connector.target_topics import STATE_TOPIC
from tests.demo import DemoFailed, Line, Story, messages, print_table
from tests.processes import REPOSITORY, OncelogProcess
from tests.spark.session_processes import by_role, kill, members
from tests.spark_demo_application import CUSTOMERS, INVOICES, PURCHASES, SINK
from tests.spark_session import ENVIRONMENT, QUICK_START

PARTITIONS = 4
PURCHASES_AT_ONCE = 30
PAUSE_SECONDS = 0.05
SECONDS_PER_PURCHASE = 20
"""Of event time."""
FIRST_SECOND = 1_767_225_600
"""2026 in UTC."""
YEAR_SECONDS = 366 * 86_400
LATENESS_SECONDS = 4 * 3600
MOST_AHEAD = 20_000
"""So many purchases are written before they are read; then reading is waited for."""
BATCHES_BETWEEN_CRASHES = 2
SECONDS = float(os.environ.get("DEMO_SECONDS", "600"))
CALL_SECONDS = 60.0
LOOK_SECONDS = 0.005


class PurchaseWriter:
    """Writes purchases all the time, with librdkafka, in a thread; a broker that is away is waited for."""

    def __init__(self, address: str) -> None:
        self.count = 0
        self.read = 0
        # That the broker is away now and then is part of the play: nothing to log.
        settings = {"enable.idempotence": True, "linger.ms": 5, "reconnect.backoff.max.ms": 200, "log_level": 2}
        self._producer = Producer({"bootstrap.servers": address, **settings})
        self._rng = Random(2026)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._write, name="purchases")

    def start(self) -> None:
        self._thread.start()

    def _write(self) -> None:
        while not self._stopped.wait(PAUSE_SECONDS):
            for _ in range(PURCHASES_AT_ONCE if self.count < self.read + MOST_AHEAD else 0):
                self._send(FIRST_SECOND + self.count * SECONDS_PER_PURCHASE)
                self.count += 1
            self._producer.poll(0)

    def _send(self, second: int) -> None:
        purchase = {
            "user_id": self._rng.choice(CUSTOMERS)[0],
            "quantity": self._rng.randint(1, 5),
            "price_cents": self._rng.randint(99, 19_999),
            "at": _text(second),
        }
        self._producer.produce(PURCHASES, json.dumps(purchase), partition=self.count % PARTITIONS)

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def close_the_books(self) -> str:
        """Stop, and write a purchase so late that no other can come; until when there are invoices then."""
        self.stop()
        last = FIRST_SECOND + YEAR_SECONDS
        for _ in range(PARTITIONS):
            self._send(last)
            self.count += 1
        if self._producer.flush(CALL_SECONDS):
            raise DemoFailed("the purchases could not be written")
        return _text(last - LATENESS_SECONDS)


def _text(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class ApplicationProcess:
    """One run of the application: its Python, the JVM that is Spark's driver, and Spark's Python workers."""

    def __init__(self, action: str, address: str, argument: str, errors: Path) -> None:
        command = [sys.executable, "-m", "tests.spark_demo_application", action, address, argument]
        with errors.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **ENVIRONMENT, **QUICK_START},
                start_new_session=True,
            )
        self._lines: queue.Queue[Line | None] = queue.Queue(10_000)
        self._reader = threading.Thread(target=self._read, name="application output")
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                if line.startswith(b"{"):
                    self._lines.put(json.loads(line))
        self._lines.put(None)

    def next_line(self, seconds: float) -> Line | None:
        """What it says next; None when it has ended."""
        try:
            return self._lines.get(timeout=max(seconds, 0.0))
        except queue.Empty:
            raise DemoFailed(f"no end after {SECONDS:g} s") from None

    def kill_driver(self) -> int:
        """kill -9 of the JVM and of the Python that it belongs to; returns the JVM's id."""
        drivers = by_role(self.process.pid).get("driver", [])
        kill(*drivers, self.process.pid)
        self.process.wait()
        return drivers[0] if drivers else self.process.pid

    def finish(self) -> None:
        """Ask it to come to an end."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def end(self) -> None:
        """Make sure that nothing of it is left."""
        self.finish()
        kill(*members(self.process.pid))
        self.process.wait()
        self._reader.join(CALL_SECONDS)


class SinkWatcher:
    """Looks at the sink from the broker's side."""

    def __init__(self, address: str) -> None:
        self._client = ProcessClient(ClientSettings(bootstrap=address, client_id="watcher"), Random(1))
        self._last_decision = 0

    def close(self) -> None:
        self._client.close()

    def open_transactions(self) -> list[str]:
        """Of tasks."""
        listed = self._client.run(list_transactions(self._client.cluster, states=[ONGOING]))
        ids = [each.transactional_id for each in listed]
        return [each for each in ids if each.startswith(f"{SINK}.") and each != f"{SINK}.driver"]

    def tasks_are_at_work(self) -> bool:
        return bool(self.open_transactions())

    def has_decided(self) -> bool:
        """Whether there is a decision that was not there when this was asked last."""
        end = self._client.run(self._end_of_decisions())
        before, self._last_decision = self._last_decision, end
        return 0 < before < end

    async def _end_of_decisions(self) -> int:
        cluster = self._client.cluster
        topic = (await cluster.topics([STATE_TOPIC]))[STATE_TOPIC]
        partitions = [TopicPartition(STATE_TOPIC, each.partition_index) for each in topic.partitions]
        return sum((await latest_offsets(cluster, partitions, read_committed=True)).values())

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> None:
        pause = threading.Event()
        self._last_decision = 0
        for _ in range(int(seconds / LOOK_SECONDS)):
            with contextlib.suppress(ClientError):
                if condition():
                    return
            pause.wait(LOOK_SECONDS)
        raise DemoFailed("no batch was seen at work")


@dataclass(slots=True)
class Demo:
    """The play: a broker, the runs of the application, and the crashes between them."""

    broker: OncelogProcess
    story: Story
    watcher: SinkWatcher
    purchases: PurchaseWriter
    runs: list[ApplicationProcess] = field(default_factory=list)
    _began: float = 0.0

    @property
    def _seconds_left(self) -> float:
        return SECONDS - self.story.seconds

    def start_application(self, action: str = "run", argument: str = "") -> ApplicationProcess:
        directory = self.broker.directory
        application = ApplicationProcess(
            action, self.broker.address, argument or str(directory / "checkpoint"), directory / "application.log"
        )
        self.runs.append(application)
        return application

    def run_batches(self) -> None:
        """Return when the application has done some batches since; start it if it does not run."""
        done = 0
        while done < BATCHES_BETWEEN_CRASHES:
            if not self.runs or self.runs[-1].process.poll() is not None:
                self._began = self.story.seconds
                application = self.start_application()
                self.story.tell(f"application started (pid {application.process.pid}, run {len(self.runs)})")
            line = self.runs[-1].next_line(self._seconds_left)
            match line:
                case None:
                    code = self.runs[-1].process.wait()
                    self.story.tell(f"the application has ended by itself (exit code {code})")
                case {"step": "batch", "batch": batch, "purchases": purchases, "read": read}:
                    done += 1
                    self.purchases.read = read
                    if done == 1:
                        waited = self.story.seconds - self._began
                        self.story.tell(f"batch {batch} is done, {purchases:,} purchases, {waited:.0f} s after")

    def crash_driver(self, when: str, condition: Callable[[], bool]) -> None:
        self.run_batches()
        self.watcher.wait_for(condition, self._seconds_left)
        pid = self.runs[-1].kill_driver()
        self.story.tell(f"kill -9 the driver (pid {pid}), {when}")

    def crash_broker(self) -> None:
        self.run_batches()
        self.watcher.wait_for(self.watcher.tasks_are_at_work, self._seconds_left)
        before, pid = self.story.seconds, self.broker.pid
        self.broker.kill()
        self.story.tell(f"kill -9 the broker (pid {pid}), while transactions of tasks are open")
        self.broker.start(seconds=CALL_SECONDS)
        self.story.tell(f"broker ready again (pid {self.broker.pid}) after {self.story.seconds - before:.2f} s")

    def finish(self) -> None:
        """Let the application write the rest."""
        self.run_batches()
        application = self.runs[-1]
        application.finish()
        while line := application.next_line(self._seconds_left):
            if line["step"] == "finished":
                self.story.tell("application finished: everything there was is processed")
        if application.process.wait() != 0:
            raise DemoFailed("the application has failed at its end")

    def judge(self, until: str) -> Line:
        application = self.start_application("judge", until)
        self.story.tell("the same invoices are computed as a batch, and compared")
        line = application.next_line(self._seconds_left)
        if line is None:
            raise DemoFailed("the comparison has failed")
        return line

    def end(self) -> None:
        for application in self.runs:
            application.end()


def create_topics(address: str) -> None:
    topics = [NewTopic(name, PARTITIONS, 1) for name in (PURCHASES, INVOICES)]
    admin = AdminClient({"bootstrap.servers": address})
    for created in admin.create_topics(topics).values():
        created.result(CALL_SECONDS)


def verdict(address: str, judged: Line, written: int, left_open: list[str]) -> bool:
    """Print what readers see, and say whether it is right."""
    rows = []
    for isolation in ("read_committed", "read_uncommitted"):
        keys = [message.key() for message in messages(address, INVOICES, PARTITIONS, isolation)]
        rows.append((INVOICES, isolation, f"{len(keys):,}", f"{len(set(keys)):,}", f"{len(keys) - len(set(keys)):,}"))
    print_table(("TOPIC", "READER", "RECORDS", "INVOICES", "REPEATED"), rows)
    count = f"{judged['found']:,}"
    verdicts = [
        (judged["purchases"] == written, f"all of {written:,} purchases are read"),
        (judged["found"] == judged["expected"] > 0, f"{count} invoices; the batch makes {judged['expected']:,}"),
        (not judged["missing"], f"{judged['missing']:,} invoices of the batch are missing"),
        (not judged["wrong"], f"{judged['wrong']:,} invoices are others than those of the batch"),
        (not judged["repeated"] and rows[0][2] == rows[0][3] == count, f"{judged['repeated']:,} are there twice"),
        (not left_open, f"{len(left_open)} transactions of the sink are open"),
    ]
    print()
    for is_right, sentence in verdicts:
        print(f"  {'yes' if is_right else 'NO '}  {sentence}")
    return all(is_right for is_right, _ in verdicts)


def play(directory: Path) -> bool:
    story, broker = Story(), OncelogProcess(directory)
    watcher = SinkWatcher(broker.address)
    purchases = PurchaseWriter(broker.address)
    demo = Demo(broker, story, watcher, purchases)
    try:
        broker.start(seconds=CALL_SECONDS)
        story.tell(f"broker ready at {broker.address} (pid {broker.pid})")
        create_topics(broker.address)
        purchases.start()
        demo.crash_driver("while transactions of tasks are open", watcher.tasks_are_at_work)
        demo.crash_driver("when a batch has just been decided", watcher.has_decided)
        demo.crash_broker()
        demo.crash_driver("while transactions of tasks are open", watcher.tasks_are_at_work)
        until = purchases.close_the_books()
        story.tell(f"{purchases.count:,} purchases are written, no more will come")
        demo.finish()
        is_right = verdict(broker.address, demo.judge(until), purchases.count, watcher.open_transactions())
        print()
        story.tell("exactly once, through all of it" if is_right else "NOT exactly once")
        return is_right
    except BaseException:
        log = directory / "application.log"
        if log.exists():
            print(log.read_text(errors="replace")[-6000:], file=sys.stderr)
        raise
    finally:
        purchases.stop()
        demo.end()
        watcher.close()
        broker.stop()


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        with tempfile.TemporaryDirectory(prefix="oncelog-demo-spark-") as directory:
            is_right = play(Path(directory))
    except DemoFailed as error:
        print(f"The demo failed: {error}", file=sys.stderr)
        is_right = False
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    main()

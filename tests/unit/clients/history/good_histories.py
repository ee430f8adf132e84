"""Random histories of a correct log: what clients see of it while responses are lost, members die and groups rebalance.

The log is a few partitions of entries; a transaction's entries become visible, or do not, all at once. A step of a
client takes one unit of time, and clients take their steps in any order, so that operations overlap.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from oncelog.clients.history.history import History
from oncelog.clients.history.operation import Kind, Outcome
from oncelog.clients.history.recorder import RecordedOperation, Recorder

INPUT, OUTPUTS, GROUP = "in", ("a", "b"), "g"


@dataclass(slots=True, eq=False)
class Transaction:
    """``commits``: None while it is open."""

    commits: bool | None = None


@dataclass(slots=True)
class Partition:
    """Entries are (value, transaction); a marker has no value."""

    entries: list[tuple[str | None, Transaction]] = field(default_factory=list)

    def append(self, value: str, transaction: Transaction) -> int:
        self.entries.append((value, transaction))
        return len(self.entries) - 1

    def visible(self, begin: int) -> list[tuple[int, str]]:
        """The committed records below the last stable offset."""
        found = []
        for offset in range(begin, len(self.entries)):
            value, transaction = self.entries[offset]
            if transaction.commits is None:
                break
            if transaction.commits and value is not None:
                found.append((offset, value))
        return found


class Log:
    """The partitions, the group's position, and the clients that use them."""

    def __init__(self, rng: random.Random) -> None:
        self.now = 0
        self.recorder = Recorder(lambda: self.now)
        self.partitions = {name: Partition() for name in (INPUT, *OUTPUTS)}
        self.position = 0
        self._rng = rng
        self._values = 0
        self._owner = ""

    def run(self) -> History:
        rng = self._rng
        clients = [self._sender("p0"), self._poller("c0")]
        clients += [rng.choice([self._sender, self._writer, self._poller])(f"x{n}") for n in range(rng.randint(0, 2))]
        clients += [self._worker(f"w{n}") for n in range(rng.randint(0, 2))]
        while clients:
            self.now += rng.choice((0, 1, 1))
            client = rng.choice(clients)
            if next(client, None) is None:
                clients.remove(client)
        self.now += 1
        for partition in self.partitions.values():  # What died with a transaction open is aborted by its time-out.
            for _, transaction in partition.entries:
                if transaction.commits is None:
                    transaction.commits = False
        if rng.random() < 0.8:
            records = {name: partition.visible(0) for name, partition in self.partitions.items()}
            self.recorder.record_final(records, {GROUP: {INPUT: self.position}})
        return self.recorder.history()

    def _value(self) -> str:
        self._values += 1
        return str(self._values)

    def _sender(self, name: str) -> Iterator[bool]:
        for _ in range(self._rng.randint(1, 4)):
            operation = self.recorder.begin(name, Kind.SEND)
            value = self._value()
            number = operation.send(INPUT, value)
            yield True
            is_refused = self._rng.random() < 0.1
            offset = -1 if is_refused else self.partitions[INPUT].append(value, Transaction(commits=True))
            yield True
            if is_refused:
                operation.end(Outcome.FAIL, "INVALID_REQUIRED_ACKS")
            elif self._rng.random() < 0.2:
                operation.end(Outcome.INFO, "the response is lost")
            else:
                operation.acknowledged(number, offset)
                operation.end(Outcome.OK)

    def _writer(self, name: str) -> Iterator[bool]:
        for _ in range(self._rng.randint(1, 3)):
            operation = self.recorder.begin(name, Kind.TXN)
            values = [(self._rng.choice(OUTPUTS), self._value()) for _ in range(self._rng.randint(1, 3))]
            transaction = Transaction()
            yield from self._write(operation, values, transaction)
            if (yield from self._end(operation, values, transaction, 0)) == "dies":
                return

    def _write(
        self, operation: RecordedOperation, values: list[tuple[str, str]], transaction: Transaction
    ) -> Iterator[bool]:
        for name, value in values:
            number = operation.send(name, value)
            offset = self.partitions[name].append(value, transaction)
            if self._rng.random() < 0.7:
                operation.acknowledged(number, offset)
            yield True

    def _end(
        self, operation: RecordedOperation, values: list[tuple[str, str]], transaction: Transaction, position: int
    ) -> Iterator[bool]:
        """End a transaction, and return what became of it and of its client."""
        commits = transaction.commits is None and self._rng.random() < 0.7
        fate = self._rng.choices(["known", "unknown", "dies"], [6, 2, 1])[0]
        if transaction.commits is None and (fate != "dies" or self._rng.random() < 0.5):
            transaction.commits = commits
            self.position = position if commits and position else self.position
            for name in {name for name, _ in values}:
                self.partitions[name].entries.append((None, transaction))  # The marker.
        yield True
        if fate == "known":
            operation.end(Outcome.OK if commits else Outcome.FAIL)
        elif fate == "unknown":
            operation.end(Outcome.INFO, "REQUEST_TIMED_OUT")
        return fate

    def _poller(self, name: str) -> Iterator[bool]:
        partition = self._rng.choice([INPUT, *OUTPUTS])
        self.recorder.record(name, Kind.ASSIGN, [partition])
        position = 0
        for _ in range(self._rng.randint(1, 4)):
            operation = self.recorder.begin(name, Kind.POLL)
            yield True
            if self._rng.random() < 0.1:
                position = 0
                operation.moved(partition)
            for offset, value in self.partitions[partition].visible(position)[: self._rng.randint(1, 5)]:
                operation.read(partition, offset, value)
                position = offset + 1
            yield True
            operation.end(Outcome.OK)

    def _worker(self, name: str) -> Iterator[bool]:
        """Consume, transform, produce; a second worker takes the input over and fences the first."""
        self.recorder.record(name, Kind.SUBSCRIBE, [INPUT])
        self._owner = name
        for _ in range(self._rng.randint(1, 4)):
            operation = self.recorder.begin(name, Kind.TXN)
            inputs = self.partitions[INPUT].visible(self.position)[: self._rng.randint(1, 3)]
            for offset, value in inputs:
                operation.read(INPUT, offset, value)
            if not inputs:
                operation.end(Outcome.OK)
                yield True
                continue
            position = inputs[-1][0] + 1
            operation.commit_position(GROUP, INPUT, position)
            transaction = Transaction()
            values = [(target, f"f{value}") for _, value in inputs for target in OUTPUTS]
            yield from self._write(operation, values, transaction)
            if self._owner != name:
                transaction.commits = False
            if (yield from self._end(operation, values, transaction, position)) == "dies":
                return


def good_history(seed: int) -> History:
    return Log(random.Random(seed)).run()

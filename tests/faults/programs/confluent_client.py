"""librdkafka for the load: ``python -m tests.faults.programs.confluent_client HOST:PORT,… NAME FIRST FIRST``."""

import queue
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from time import perf_counter
from typing import TypeAlias

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition

from tests.faults import names
from tests.faults.programs.speech import (
    ABORT_EACH,
    BATCH,
    BETWEEN_SECONDS,
    CALL_SECONDS,
    DELIVERY_SECONDS,
    OPEN_SECONDS,
    REQUEST_SECONDS,
    TRANSACTION_TIMEOUT_MS,
    Gate,
    Role,
    inputs,
    output,
    perform,
    say,
    security,
)

_Settings: TypeAlias = dict[str, str | int | float | bool]
_RECONNECT: _Settings = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "socket.timeout.ms": int(REQUEST_SECONDS * 1000),
}


_OFFSETS_SECONDS = 6.0
"""What the commit of offsets may take, whatever time limit librdkafka was given for it."""


class Broken(Exception):
    """This producer cannot go on; a successor has to be made."""


class HangsForever(Exception):
    """A call that will not return."""


def _within(seconds: float, call: Callable[[], object]) -> None:
    """Call, and do not wait for longer. Raises ``HangsForever``; then a thread is lost, and the producer with it.

    librdkafka waits for a group's coordinator that has left the cluster, for ever and whatever its time limit is
    (confluentinc/librdkafka#5511, #5456). An application has to begin anew then, with another producer.
    """
    done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            call()
            done.put(None)
        except BaseException as error:
            done.put(error)

    threading.Thread(target=run, name="offsets", daemon=True).start()
    try:
        error = done.get(timeout=seconds)
    except queue.Empty:
        raise HangsForever from None
    if error is not None:
        raise error


def _insist(role: Role, call: Callable[[], object]) -> None:
    """Call again as long as the client says that it may help."""
    deadline = perf_counter() + 2 * CALL_SECONDS
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable() or perf_counter() > deadline:
                raise
            say(role, "trouble", detail=f"again: {error}")


class Transactions:
    """The transactions of one role, through as many producers as it takes."""

    def __init__(self, role: Role, address: str, transactional_id: str, first: int) -> None:
        """``first`` is the number of the first transaction."""
        self._role: Role = role
        self._settings: _Settings = {
            **security(),
            "bootstrap.servers": address,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "linger.ms": 2,
            **_RECONNECT,
        }
        self._numbers = count(first)
        self._lost: list[Producer] = []
        """Those with a call that hangs: they must not be collected."""
        self.producer = self._new_producer()

    def _new_producer(self) -> Producer:
        while True:
            producer = Producer(self._settings)
            try:
                _insist(self._role, partial(producer.init_transactions, CALL_SECONDS))
                return producer
            except KafkaException as error:
                say(self._role, "trouble", detail=f"init: {error}")

    def renew(self) -> None:
        self.producer = self._new_producer()

    def run(self, records: int, body: Callable[[Producer, int], None], *, commit: bool) -> bool:
        """One transaction; True if it was committed. Raises ``Broken``; then ``renew`` is the thing to do."""
        number = next(self._numbers)
        say(self._role, "begin", number, records)
        try:
            self.producer.begin_transaction()
            body(self.producer, number)
        except KafkaException as error:
            self._abort(number, f"{error}")
            return False
        except HangsForever as error:
            say(self._role, "aborted", number, detail="the commit of its offsets hangs")
            self._lost.append(self.producer)
            raise Broken from error
        if not commit:
            self._abort(number, "on purpose")
            return False
        return self._commit(number)

    def _abort(self, number: int, reason: str) -> None:
        """Its end was never requested, so whatever happens to this producer, it will never be committed."""
        say(self._role, "aborted", number, detail=reason)
        try:
            _insist(self._role, lambda: self.producer.abort_transaction(CALL_SECONDS))
        except KafkaException as error:
            say(self._role, "trouble", number, detail=f"abort: {error}")
            raise Broken from error

    def _commit(self, number: int) -> bool:
        try:
            _insist(self._role, lambda: self.producer.commit_transaction(CALL_SECONDS))
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                self._abort_instead(number, f"{error}")
                return False
            say(self._role, "unknown", number, detail=f"{error}")
            raise Broken from error
        say(self._role, "committed", number)
        return True

    def _abort_instead(self, number: int, reason: str) -> None:
        try:
            _insist(self._role, lambda: self.producer.abort_transaction(CALL_SECONDS))
        except KafkaException as error:
            say(self._role, "unknown", number, detail=f"{reason}, then {error}")
            raise Broken from error
        say(self._role, "aborted", number, detail=reason)


def _send(producer: Producer, topic: str, records: Sequence[tuple[int, str]]) -> None:
    """Produce, and wait until all are acknowledged."""
    errors: list[object] = []
    for partition, value in records:
        producer.produce(
            topic, value, partition=partition % names.PARTITIONS, on_delivery=lambda error, _: errors.append(error)
        )
    producer.flush(DELIVERY_SECONDS)
    failed = next((error for error in errors if error is not None), None)
    if failed is not None:
        raise KafkaException(failed)


def write(address: str, client: str, first: int, gate: Gate) -> None:
    """The writer's thread."""
    transactions = Transactions("writer", address, names.writer_id(client), first)
    hold = threading.Event()

    def body(producer: Producer, number: int) -> None:
        records = list(inputs(client, number))
        half = len(records) // 2
        _send(producer, names.INPUTS, records[:half])
        hold.wait(OPEN_SECONDS)
        _send(producer, names.INPUTS, records[half:])

    for turn in count(1):
        gate.pass_through()
        try:
            transactions.run(len(list(inputs(client, 0))), body, commit=turn % ABORT_EACH != 0)
        except Broken:
            transactions.renew()
        hold.wait(BETWEEN_SECONDS)


class Worker:
    """Consumes, transforms and produces; begins anew with both clients when one of them is in doubt."""

    def __init__(self, address: str, client: str, first: int) -> None:
        self._client = client
        self._was_assigned = False
        self.transactions = Transactions("worker", address, names.worker_id(client), first)
        self._consumer = Consumer(
            {
                **security(),
                "bootstrap.servers": address,
                "group.id": names.group(client),
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                # Not a static member, as the other clients' are: when its session is over, librdkafka sends a heartbeat
                # with the instance's id and no member id, and takes the error, that another has its place, as fatal.
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
                **_RECONNECT,
            }
        )
        self._consumer.subscribe([names.INPUTS], on_assign=self._on_assign)

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._was_assigned = True

    def work(self) -> None:
        """One transaction, if there is something to read."""
        messages = [message for message in self._consumer.consume(BATCH, 0.2) if message.error() is None]
        if self._was_assigned:
            # Some of the messages may have been read before partitions came back, and will be read again.
            self._was_assigned = False
            self._rewind()
        elif messages:
            try:
                done = self.transactions.run(len(messages), lambda p, n: self._transform(p, n, messages), commit=True)
            except Broken:
                self.transactions.renew()
                done = False
            if not done:
                self._rewind()

    def _transform(self, producer: Producer, number: int, messages: Sequence[Message]) -> None:
        records = []
        following: dict[int, int] = {}
        for index, message in enumerate(messages):
            value, partition, offset = message.value() or b"", message.partition() or 0, message.offset() or 0
            records.append(
                (partition, output(self._client, number, index, len(messages), value.decode(), partition, offset))
            )
            following[partition] = offset + 1
        _send(producer, names.outputs(self._client), records)
        offsets = [TopicPartition(names.INPUTS, partition, offset) for partition, offset in following.items()]
        metadata = self._consumer.consumer_group_metadata()
        offer = partial(producer.send_offsets_to_transaction, offsets, metadata, _OFFSETS_SECONDS / 2)
        _insist("worker", lambda: _within(_OFFSETS_SECONDS, offer))

    def _rewind(self) -> None:
        """Go back to what is committed."""
        while True:
            try:
                for partition in self._consumer.committed(self._consumer.assignment(), CALL_SECONDS):
                    offset = partition.offset if partition.offset >= 0 else OFFSET_BEGINNING
                    self._consumer.seek(TopicPartition(names.INPUTS, partition.partition, offset))
                return
            except KafkaException as error:
                say("worker", "trouble", detail=f"rewind: {error}")
                self._consumer.consume(1, 0.2)  # Takes part in a rebalance that is in the way.


def work(address: str, client: str, first: int, gate: Gate) -> None:
    """The worker's thread."""
    worker = Worker(address, client, first)
    while True:
        gate.pass_through()
        worker.work()


def main() -> None:
    address, client, first_of_writer, first_of_worker = sys.argv[1:]
    firsts = int(first_of_writer), int(first_of_worker)
    perform(
        {
            "writer": lambda gate: write(address, client, firsts[0], gate),
            "worker": lambda gate: work(address, client, firsts[1], gate),
        }
    )


if __name__ == "__main__":
    main()

"""Ordinary clients beside an attack, of librdkafka: ``python -m tests.hostile.bystander HOST:PORT``.

An idempotent producer numbers its records, a transactional one copies them, offsets and all, from one topic to the
other, and a ``read_committed`` consumer follows the copies. Standard input says when to stop: at its end the producer
flushes, the copier copies the rest, the consumer reads to the end, and one line of JSON says what was lost, doubled or
out of order, how many transactions were committed, and the longest that a record and a commit took.
"""

import json
import sys
import threading
from time import perf_counter
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

SOURCE: Final = "bystander-source"
COPY: Final = "bystander-copy"
_GROUP: Final = "bystander-copier"
_PACE_SECONDS: Final = 0.01
_CALL_SECONDS: Final = 60.0
_END_SECONDS: Final = 120.0


class Figures:
    """What the three have seen."""

    def __init__(self) -> None:
        self.produced = 0
        self.failed: list[str] = []
        self.commits = 0
        self.aborts = 0
        self.copies: list[int] = []
        self.longest_delivery = 0.0
        self.longest_commit = 0.0


def _produce(address: str, figures: Figures, stop: threading.Event) -> None:
    producer = Producer(
        {"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 0, "message.timeout.ms": 120_000}
    )

    def delivered(began: float) -> object:
        def report(error: object, message: Message) -> None:
            figures.longest_delivery = max(figures.longest_delivery, perf_counter() - began)
            if error is not None:
                figures.failed.append(str(error))

        return report

    while not stop.wait(_PACE_SECONDS):
        producer.produce(SOURCE, str(figures.produced).encode(), on_delivery=delivered(perf_counter()))
        figures.produced += 1
        producer.poll(0)
    if producer.flush(_END_SECONDS):
        figures.failed.append("records without a response at the end")


class Copier:
    """Consume, transform, produce; one transaction for what one call to ``consume`` brings."""

    def __init__(self, address: str, figures: Figures) -> None:
        self._figures = figures
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": _GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._producer = Producer({"bootstrap.servers": address, "transactional.id": "bystander", "linger.ms": 0})
        self._consumer.subscribe([SOURCE])
        self._producer.init_transactions(_CALL_SECONDS)
        self.copied = 0

    def step(self) -> None:
        messages = [message for message in self._consumer.consume(100, 0.2) if message.error() is None]
        if not messages:
            return
        began = perf_counter()
        self._producer.begin_transaction()
        for message in messages:
            self._producer.produce(COPY, message.value())
        try:
            self._end(messages[-1])
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._take_back(messages[0])
            return
        self.copied += len(messages)
        self._figures.commits += 1
        self._figures.longest_commit = max(self._figures.longest_commit, perf_counter() - began)

    def _end(self, last: Message) -> None:
        offset = last.offset()
        assert offset is not None
        next_offset = [TopicPartition(SOURCE, 0, offset + 1)]
        metadata = self._consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction(next_offset, metadata, _CALL_SECONDS)
        self._producer.commit_transaction(_CALL_SECONDS)

    def _take_back(self, first: Message) -> None:
        offset = first.offset()
        assert offset is not None
        self._producer.abort_transaction(_CALL_SECONDS)
        self._figures.aborts += 1
        self._consumer.seek(TopicPartition(SOURCE, 0, offset))

    def close(self) -> None:
        self._consumer.close()


def _copy(address: str, figures: Figures, produced_all: threading.Event) -> None:
    copier = Copier(address, figures)
    deadline: float | None = None
    while not (produced_all.is_set() and copier.copied >= figures.produced):
        copier.step()
        if produced_all.is_set():
            deadline = deadline or perf_counter() + _END_SECONDS
            if perf_counter() > deadline:
                figures.failed.append(f"only {copier.copied} of {figures.produced} records were copied")
                break
    copier.close()


def _follow(address: str, figures: Figures, copied_all: threading.Event) -> None:
    """Read the copies until a second passes without one after the last was written."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "bystander-reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(COPY, 0, 0)])
    while True:
        was_complete = copied_all.is_set()
        messages = consumer.consume(1000, 1.0)
        figures.copies += [int(message.value() or b"-1") for message in messages if message.error() is None]
        if was_complete and (not messages or len(figures.copies) >= figures.produced):
            break
    consumer.close()


def _create_topics(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    created = admin.create_topics([NewTopic(name, 1, 1) for name in (SOURCE, COPY)])
    for future in created.values():
        future.result(_CALL_SECONDS)


def verdict(figures: Figures) -> dict[str, object]:
    """Compare what was produced with what a reader of the copies has seen."""
    expected, seen = set(range(figures.produced)), set(figures.copies)
    return {
        "produced": figures.produced,
        "commits": figures.commits,
        "aborts": figures.aborts,
        "failed": figures.failed,
        "lost": len(expected - seen),
        "doubled": len(figures.copies) - len(seen),
        "reordered": sum(after < before for before, after in zip(figures.copies, figures.copies[1:], strict=False)),
        "longest_delivery_seconds": round(figures.longest_delivery, 3),
        "longest_transaction_seconds": round(figures.longest_commit, 3),
    }


def main(address: str) -> None:
    _create_topics(address)
    figures, stop, produced_all, copied_all = Figures(), threading.Event(), threading.Event(), threading.Event()

    def then(call: object, *arguments: object, done: threading.Event | None = None) -> None:
        try:
            call(*arguments)  # type: ignore[operator]
        except Exception as error:
            figures.failed.append(repr(error))
        finally:
            if done is not None:
                done.set()

    threads = [
        threading.Thread(target=then, args=(_produce, address, figures, stop), kwargs={"done": produced_all}),
        threading.Thread(target=then, args=(_copy, address, figures, produced_all), kwargs={"done": copied_all}),
        threading.Thread(target=then, args=(_follow, address, figures, copied_all)),
    ]
    for thread in threads:
        thread.start()
    print("started", flush=True)
    sys.stdin.read()
    stop.set()
    for thread in threads:
        thread.join()
    print(json.dumps(verdict(figures)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])

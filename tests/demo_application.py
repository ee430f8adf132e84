"""The application of the demo: every purchase becomes one invoice and one shipment, exactly once.

It is what a user would write with confluent-kafka: consume a batch, produce what follows from it, commit both and the
batch's offsets in one transaction. Nothing in it knows of the demo but two things: it says on standard output what it
does, one line a step, and it can be told to abort a certain batch.

It runs in a process of its own, so that it can be killed: ``python -m tests.demo_application HOST:PORT``.
"""

import json
import sys
from collections.abc import Sequence

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition

PURCHASES, INVOICES, SHIPMENTS = "purchases", "invoices", "shipments"
GROUP = "purchases-consumer"
TRANSACTIONAL_ID = "purchases-processor"
BATCH_SIZE = 20
TIMEOUT_SECONDS = 300.0
RECONNECT = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    # To bootstrap anew while the only broker is down makes librdkafka 2.11 and later forget the group's coordinator
    # and wait for it forever (confluentinc/librdkafka#5511).
    "metadata.recovery.strategy": "none",
}


def say(step: str, **details: object) -> None:
    print(json.dumps({"step": step, **details}), flush=True)


def make_consumer(address: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": GROUP,
            "group.instance.id": "processor-1",  # A successor takes this place at once; nobody waits for the dead.
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            **RECONNECT,
        }
    )


def make_producer(address: str) -> Producer:
    settings = {"transactional.id": TRANSACTIONAL_ID, "transaction.timeout.ms": 20_000, "linger.ms": 2}
    return Producer({"bootstrap.servers": address, **settings, **RECONNECT})


def produce_outputs(producer: Producer, batch: Sequence[Message], name: str) -> None:
    headers: dict[str, str | bytes | None] = {"batch": name.encode()}
    for message in batch:
        purchase = json.loads(message.value() or b"")
        invoice = {key: purchase[key] for key in ("id", "user_id", "product_id", "quantity", "total_price")}
        shipment = {key: purchase[key] for key in ("id", "product_id", "quantity", "user_name")}
        shipment["address"] = "SomeStreet 12/18, 00-006 Warsaw"
        producer.produce(INVOICES, json.dumps(invoice), key=message.key(), headers=headers)
        producer.produce(SHIPMENTS, json.dumps(shipment), key=message.key(), headers=headers)


def positions_after(batch: Sequence[Message]) -> list[TopicPartition]:
    following = {message.partition() or 0: (message.offset() or 0) + 1 for message in batch}
    return [TopicPartition(PURCHASES, partition, offset) for partition, offset in following.items()]


class Application:
    """One run, from its start to the end of the purchases, or to its death."""

    def __init__(self, address: str, run: str, abort_batch: int | None) -> None:
        self.run_name = run
        self.abort_batch = abort_batch
        self.consumer = make_consumer(address)
        self.producer = make_producer(address)
        self.batches = 0

    def run(self) -> None:
        self.producer.init_transactions(TIMEOUT_SECONDS)  # Aborts what a predecessor left open, and shuts it out.
        self.consumer.subscribe([PURCHASES])
        say("ready")
        while True:
            messages = [message for message in self.consumer.consume(BATCH_SIZE, 0.2) if message.error() is None]
            if messages:
                self.process(messages)
            elif self.is_finished():
                break
        self.consumer.close()
        say("finished")

    def process(self, batch: Sequence[Message]) -> None:
        self.batches += 1
        name = f"{self.run_name}-{self.batches}"
        try:
            self.producer.begin_transaction()
            produce_outputs(self.producer, batch, name)
            self.producer.flush(TIMEOUT_SECONDS)
            say("written", batch=name, purchases=len(batch))
            if self.batches == self.abort_batch:
                self.abort(name, "on purpose")
                return
            self.producer.send_offsets_to_transaction(
                positions_after(batch), self.consumer.consumer_group_metadata(), TIMEOUT_SECONDS
            )
            self.commit()
            say("committed", batch=name, purchases=len(batch))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self.abort(name, error.args[0].name())

    def commit(self) -> None:
        while True:
            try:
                self.producer.commit_transaction(TIMEOUT_SECONDS)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise

    def abort(self, name: str, reason: str) -> None:
        self.producer.abort_transaction(TIMEOUT_SECONDS)
        say("aborted", batch=name, reason=reason)
        for partition in self.consumer.committed(self.consumer.assignment(), TIMEOUT_SECONDS):
            offset = partition.offset if partition.offset >= 0 else OFFSET_BEGINNING
            self.consumer.seek(TopicPartition(PURCHASES, partition.partition, offset))

    def is_finished(self) -> bool:
        """Whether the group has committed everything there is."""
        assigned = self.consumer.assignment()
        committed = self.consumer.committed(assigned, TIMEOUT_SECONDS) if assigned else []
        ends = [self.consumer.get_watermark_offsets(partition, TIMEOUT_SECONDS)[1] for partition in committed]
        done = [partition.offset for partition in committed]
        return bool(committed) and done == ends


def main() -> None:
    address, run, *abort = sys.argv[1:]
    Application(address, run, int(abort[0]) if abort else None).run()


if __name__ == "__main__":
    main()

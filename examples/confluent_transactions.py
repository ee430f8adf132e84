"""Commit one transaction and abort another with confluent-kafka, and read what was committed.

    pip install confluent-kafka
    python examples/confluent_transactions.py [HOST:PORT]

Nothing in it is specific to Oncelog: a client of Apache Kafka needs only the address.
"""

import sys

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

TOPIC = "example-payments"
SECONDS = 30.0


def write(bootstrap: str) -> None:
    """Write one payment in a transaction that is committed, and one in a transaction that is aborted."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "example-payments-1"})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce(TOPIC, key="ann", value="paid 42.00")
    producer.commit_transaction(SECONDS)
    producer.begin_transaction()
    producer.produce(TOPIC, key="bob", value="paid 17.50")
    producer.flush(SECONDS)
    producer.abort_transaction(SECONDS)


def read(bootstrap: str) -> list[str]:
    """Return the committed payments that the group has not read yet, up to the end of the topic's one partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "example-accounting",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    payments = []
    try:
        consumer.subscribe([TOPIC])
        while (message := consumer.poll(SECONDS)) is not None:
            error = message.error()
            if error is None:
                payments.append(f"{(message.key() or b'').decode()} {(message.value() or b'').decode()}")
            elif error.code() == KafkaError._PARTITION_EOF:
                break
            else:
                raise KafkaException(error)
        if payments:
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return payments


if __name__ == "__main__":
    address = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"
    write(address)
    print("\n".join(read(address)))

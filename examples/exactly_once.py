"""Consume, transform, produce, exactly once: one invoice for every order, with Oncelog's Python client.

    python examples/exactly_once.py [HOST:PORT]

The invoices and the offsets of the orders are one transaction. The program may be killed at any line and started again:
a reader with ``isolation.level=read_committed`` sees one invoice for each order. An error ends the program, too. The
producer then aborts its open transaction, and the next run continues at the last committed offsets.
"""

import asyncio
import sys

from oncelog import Consumer, ConsumerConfig, OffsetAndMetadata, Producer, ProducerConfig

SOURCE, TARGET = "example-orders", "example-invoices"
IDLE_SECONDS = 5.0


async def invoice_orders(bootstrap: str) -> int:
    """Write an invoice for each new order, until none arrives for ``IDLE_SECONDS``; return how many there were."""
    consuming = ConsumerConfig(bootstrap=bootstrap, group_id="example-invoicing", auto_offset_reset="earliest")
    producing = ProducerConfig(bootstrap=bootstrap, transactional_id="example-invoicing-1")
    count = 0
    async with (
        Producer(producing) as producer,
        Consumer(consuming) as consumer,
    ):
        await producer.init_transactions()  # Fences an earlier run of this program and aborts its open transaction.
        consumer.subscribe([SOURCE])
        while records := await consumer.poll(IDLE_SECONDS):
            producer.begin_transaction()
            for record in records:
                await producer.send(TARGET, b"invoice for " + (record.value or b""), key=record.key)
            partitions = {record.topic_partition for record in records}
            offsets = {each: OffsetAndMetadata(await consumer.position(each)) for each in partitions}
            await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            await producer.commit_transaction()
            count += len(records)
    return count


if __name__ == "__main__":
    print(f"{asyncio.run(invoice_orders(sys.argv[1] if len(sys.argv) > 1 else 'localhost:9092'))} orders invoiced")

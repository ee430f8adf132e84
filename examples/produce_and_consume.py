"""Produce three records with Oncelog's Python client, and consume them as a member of a group.

python examples/produce_and_consume.py [HOST:PORT]
"""

import asyncio
import sys

from oncelog import Consumer, ConsumerConfig, Producer

TOPIC = "example-orders"
ORDERS = {b"ann": b"2 apples", b"bob": b"5 pears", b"cid": b"1 plum"}


async def produce(bootstrap: str) -> None:
    """Send every order, and return when the broker has acknowledged all of them."""
    async with Producer(bootstrap) as producer:
        futures = [await producer.send(TOPIC, value, key=key) for key, value in ORDERS.items()]
        for future in futures:
            written = await future
            print(f"produced {written.topic}-{written.partition} at offset {written.offset}")


async def consume(bootstrap: str) -> None:
    """Print as many records as were produced, and commit the group's offsets after them."""
    config = ConsumerConfig(bootstrap=bootstrap, group_id="example-readers", auto_offset_reset="earliest")
    async with Consumer(config) as consumer:
        consumer.subscribe([TOPIC])
        count = 0
        while count < len(ORDERS):
            for record in await consumer.poll(5.0):
                print(f"consumed {(record.key or b'').decode()}: {(record.value or b'').decode()}")
                count += 1
        await consumer.commit()


async def main(bootstrap: str) -> None:
    await produce(bootstrap)
    await consume(bootstrap)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"))

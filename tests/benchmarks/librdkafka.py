"""librdkafka called in batches, so that the client's Python costs nothing per record.

The library is the one inside confluent-kafka's wheel, reached through ctypes. ``rd_kafka_produce_batch`` and
``rd_kafka_consume_batch_queue`` take thousands of records a call; what is measured is librdkafka and the broker.
"""

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka

_PRODUCER, _CONSUMER = 0, 1
_CONF_OK = 0
_PARTITION_UA = -1
_COPY = 0x2
_BLOCK = 0x4
_OFFSET_BEGINNING = -2
_BATCH = 10_000


class _Message(ctypes.Structure):
    _fields_ = (
        ("err", ctypes.c_int),
        ("rkt", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


def _load() -> Any:
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    library = ctypes.CDLL(str(next(folder.glob("librdkafka*.so*"))))
    handle = ctypes.c_void_p
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_topic_new", "rd_kafka_queue_new"):
        getattr(library, name).restype = handle
    library.rd_kafka_consume_batch_queue.restype = ctypes.c_ssize_t
    return library


class LibrdkafkaError(Exception):
    """librdkafka refused a call."""


@contextmanager
def _client(kind: int, settings: dict[str, str]) -> Iterator[tuple[Any, ctypes.c_void_p]]:
    library = _load()
    text = ctypes.create_string_buffer(512)
    configuration = ctypes.c_void_p(library.rd_kafka_conf_new())
    for key, value in settings.items():
        if library.rd_kafka_conf_set(configuration, key.encode(), value.encode(), text, 512) != _CONF_OK:
            raise LibrdkafkaError(text.value.decode())
    pointer = library.rd_kafka_new(kind, configuration, text, 512)
    if not pointer:
        raise LibrdkafkaError(text.value.decode())
    client = ctypes.c_void_p(pointer)
    try:
        yield library, client
    finally:
        if kind == _PRODUCER:  # A consumer would wait for the records that were not given back.
            library.rd_kafka_destroy(client)


def produce(address: str, topic: str, *, size: int, count: int, **settings: str) -> float:
    """Produce ``count`` records of ``size`` bytes and return the seconds until all are acknowledged."""
    defaults = {
        "bootstrap.servers": address,
        "acks": "all",
        "linger.ms": "5",
        "queue.buffering.max.messages": "1000000",
        "queue.buffering.max.kbytes": "1048576",
    }
    with _client(_PRODUCER, {**defaults, **settings}) as (library, client):
        handle = ctypes.c_void_p(library.rd_kafka_topic_new(client, topic.encode(), None))
        payload = ctypes.create_string_buffer((bytes(range(97, 123)) * (size // 26 + 1))[:size], size)
        batch = (_Message * _BATCH)()
        started = time.perf_counter()
        left = count
        while left:
            number = min(left, _BATCH)
            for message in batch:
                message.payload = ctypes.addressof(payload)
                message.len = size
                message.key = None
                message.key_len = 0
            accepted = library.rd_kafka_produce_batch(handle, _PARTITION_UA, _COPY | _BLOCK, batch, number)
            if accepted != number:
                raise LibrdkafkaError(f"{accepted} of {number} records were accepted")
            left -= number
            library.rd_kafka_poll(client, 0)
        if library.rd_kafka_flush(client, 120_000) != 0:
            raise LibrdkafkaError("not everything was delivered in 120 s")
        seconds = time.perf_counter() - started
        library.rd_kafka_topic_destroy(handle)
        return seconds


def consume(address: str, topic: str, *, partitions: int, count: int, **settings: str) -> float:
    """Consume ``count`` records from the beginning and return the seconds that it took.

    Each record is shown to a C function that does nothing with it, and given back to librdkafka.
    """
    defaults = {"bootstrap.servers": address, "queued.min.messages": "1000000", "fetch.wait.max.ms": "100"}
    defaults |= {"group.id": "benchmark", "enable.auto.commit": "false", "check.crcs": "false"}
    with _client(_CONSUMER, {**defaults, **settings}) as (library, client):
        ignore = ctypes.cast(ctypes.CDLL(None).labs, ctypes.c_void_p)
        handle = ctypes.c_void_p(library.rd_kafka_topic_new(client, topic.encode(), None))
        queue = ctypes.c_void_p(library.rd_kafka_queue_new(client))
        started = time.perf_counter()
        for partition in range(partitions):
            library.rd_kafka_consume_start_queue(handle, partition, ctypes.c_int64(_OFFSET_BEGINNING), queue)
        seen = 0
        while seen < count:
            seen += library.rd_kafka_consume_callback_queue(queue, 100, ignore, None)
            if time.perf_counter() - started > 120:
                raise LibrdkafkaError(f"{seen} of {count} records in 120 s")
        seconds = time.perf_counter() - started
        for partition in range(partitions):
            library.rd_kafka_consume_stop(handle, partition)
        library.rd_kafka_queue_destroy(queue)
        library.rd_kafka_topic_destroy(handle)
        return seconds

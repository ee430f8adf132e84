"""Oncelog: a Kafka-compatible broker that keeps exactly-once, its Python client and its PySpark data source.

The names below are those of the client that programs need most::

    from oncelog import Producer

    async with Producer("localhost:9092") as producer:
        print(await (await producer.send("orders", b"42 apples")))

``docs/reference/python-client.md`` describes them. Each is loaded when it is first used: the broker, the command line
and Spark's workers import this package too, and need none.

In the repository the packages ``oncelog.broker``, ``oncelog.clients`` and so on are symbolic links to the folders of
that name beside this one. A wheel has the files themselves.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from oncelog.clients import VERSION as __version__

if TYPE_CHECKING:
    from oncelog.clients.admin.admin import Admin
    from oncelog.clients.admin.topics import NewTopic
    from oncelog.clients.consumer.consumer import Consumer
    from oncelog.clients.consumer.consumer_config import ConsumerConfig
    from oncelog.clients.consumer.consumer_errors import RebalanceInProgress
    from oncelog.clients.consumer.consumer_record import ConsumerRecord, TimestampType
    from oncelog.clients.consumer.rebalance_listener import RebalanceListener
    from oncelog.clients.errors import ClientError, OperationTimedOut
    from oncelog.clients.group_metadata import ConsumerGroupMetadata
    from oncelog.clients.offset_and_metadata import OffsetAndMetadata
    from oncelog.clients.producer.future_record_metadata import FutureRecordMetadata
    from oncelog.clients.producer.producer import Producer
    from oncelog.clients.producer.producer_config import ProducerConfig
    from oncelog.clients.producer.record_metadata import RecordMetadata
    from oncelog.protocol.topic_partition import TopicPartition
else:
    _MODULES = {
        "Admin": "oncelog.clients.admin.admin",
        "ClientError": "oncelog.clients.errors",
        "Consumer": "oncelog.clients.consumer.consumer",
        "ConsumerConfig": "oncelog.clients.consumer.consumer_config",
        "ConsumerGroupMetadata": "oncelog.clients.group_metadata",
        "ConsumerRecord": "oncelog.clients.consumer.consumer_record",
        "FutureRecordMetadata": "oncelog.clients.producer.future_record_metadata",
        "NewTopic": "oncelog.clients.admin.topics",
        "OffsetAndMetadata": "oncelog.clients.offset_and_metadata",
        "OperationTimedOut": "oncelog.clients.errors",
        "Producer": "oncelog.clients.producer.producer",
        "ProducerConfig": "oncelog.clients.producer.producer_config",
        "RebalanceInProgress": "oncelog.clients.consumer.consumer_errors",
        "RebalanceListener": "oncelog.clients.consumer.rebalance_listener",
        "RecordMetadata": "oncelog.clients.producer.record_metadata",
        "TimestampType": "oncelog.clients.consumer.consumer_record",
        "TopicPartition": "oncelog.protocol.topic_partition",
    }

    def __getattr__(name):
        """Load a public name. Type checkers do not see this function: to them an unknown name is an error."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value

    def __dir__():
        return sorted({*globals(), *__all__})


__all__ = [
    "Admin",
    "ClientError",
    "Consumer",
    "ConsumerConfig",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "FutureRecordMetadata",
    "NewTopic",
    "OffsetAndMetadata",
    "OperationTimedOut",
    "Producer",
    "ProducerConfig",
    "RebalanceInProgress",
    "RebalanceListener",
    "RecordMetadata",
    "TimestampType",
    "TopicPartition",
    "__version__",
]

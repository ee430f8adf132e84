"""Consuming: records of partitions in the order of their offsets, shared with a group or not.

What is named here is loaded when it is used: most commands of the command line have no need for a consumer.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oncelog.clients.consumer.consumer import Consumer as Consumer
    from oncelog.clients.consumer.consumer_config import ConsumerConfig as ConsumerConfig
    from oncelog.clients.consumer.consumer_record import ConsumerRecord as ConsumerRecord
    from oncelog.clients.consumer.consumer_record import TimestampType as TimestampType
    from oncelog.clients.consumer.rebalance_listener import RebalanceListener as RebalanceListener
    from oncelog.clients.group_metadata import ConsumerGroupMetadata as ConsumerGroupMetadata
    from oncelog.clients.offset_and_metadata import OffsetAndMetadata as OffsetAndMetadata

_MODULES = {
    "Consumer": "oncelog.clients.consumer.consumer",
    "ConsumerConfig": "oncelog.clients.consumer.consumer_config",
    "ConsumerGroupMetadata": "oncelog.clients.group_metadata",
    "ConsumerRecord": "oncelog.clients.consumer.consumer_record",
    "OffsetAndMetadata": "oncelog.clients.offset_and_metadata",
    "RebalanceListener": "oncelog.clients.consumer.rebalance_listener",
    "TimestampType": "oncelog.clients.consumer.consumer_record",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)

"""ControlledShutdown (API key 7): versions 0-3, flexible from 3.

A broker asks the controller to move its leaderships away before it stops. Gone since Kafka 4.0.

0: its request header has no client id. 2: the broker's epoch.
"""

from oncelog.protocol.schema import Message, array, int16, int32, int64, string


class ControlledShutdownRequest(Message, api_key=7, versions="0-3", flexible="3+"):
    broker_id: int = int32("0+", default=0)
    broker_epoch: int = int64("2+", default=-1)


class RemainingPartition(Message):
    topic_name: str = string("0+", default="")
    partition_index: int = int32("0+", default=0)


class ControlledShutdownResponse(Message, api_key=7, versions="0-3", flexible="3+"):
    error_code: int = int16("0+", default=0)
    remaining_partitions: list[RemainingPartition] = array(RemainingPartition, "0+", default_factory=list)

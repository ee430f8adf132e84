"""Asking a partition's leader where an epoch ends in its log: whether it still has what was read of an earlier leader.

A log that lost its end, by an election that was not clean or a disk that lost writes, goes on with other records at the
same offsets. The leader's answer tells: the epoch of what was read ends before the position there (KIP-320).
"""

from typing import Final

from oncelog.clients.connection import Connection
from oncelog.clients.errors import BrokerRefused, Refusal, Unreachable, VersionNotSupported, error_code
from oncelog.protocol.errors import RETRIABLE, ErrorCode
from oncelog.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from oncelog.protocol.topic_partition import TopicPartition

NO_EPOCH: Final = -1
_NO_OFFSET: Final = -1
_CONSUMER: Final = -1


async def find_epoch_end(
    connection: Connection, topic_partition: TopicPartition, epoch: int, *, leader_epoch: int, seconds: float
) -> EpochEndOffset | None:
    """Return where the epoch, or the last one before it, ends; None if the broker is too old to say.

    Raises ``Unreachable`` for errors that pass, ``BrokerRefused`` for others, and what the connection raises.
    """
    asked = OffsetForLeaderPartition(
        partition=topic_partition.partition, current_leader_epoch=leader_epoch, leader_epoch=epoch
    )
    request = OffsetForLeaderEpochRequest(
        replica_id=_CONSUMER, topics=[OffsetForLeaderTopic(topic=topic_partition.topic, partitions=[asked])]
    )
    try:
        response = await connection.send(request, OffsetForLeaderEpochResponse, timeout=seconds)
    except VersionNotSupported:
        return None
    for topic in response.topics:
        for end in topic.partitions:
            error = error_code(end.error_code)
            if error is ErrorCode.NONE:
                return end
            if error in RETRIABLE or error is ErrorCode.UNKNOWN_SERVER_ERROR:
                raise Unreachable(f"{topic_partition}: the end of epoch {epoch} is not known: {error.name}")
            raise BrokerRefused(str(topic_partition), Refusal(error=error))
    raise Unreachable(f"{topic_partition}: {connection.address} did not say where epoch {epoch} ends")


def is_cut(end: EpochEndOffset, position: int) -> bool:
    """Return whether a log whose epoch ends so has lost records before the position."""
    is_known = end.end_offset != _NO_OFFSET and end.leader_epoch != NO_EPOCH
    return not is_known or end.end_offset < position

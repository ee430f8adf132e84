"""Truncation detection: whether a partition's leader still has the records that were read from an earlier leader.

A log that was truncated, by an unclean election or a disk that lost writes, goes on with other records at the same
offsets. OffsetForLeaderEpoch detects it: the leader epoch of the last record read ends before the position (KIP-320).
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
    """Return where ``epoch``, or the last epoch before it, ends; None if the broker lacks the request's version.

    Raises ``Unreachable`` for retriable errors, ``BrokerRefused`` for others, and the connection's errors.
    """
    partition = OffsetForLeaderPartition(
        partition=topic_partition.partition, current_leader_epoch=leader_epoch, leader_epoch=epoch
    )
    request = OffsetForLeaderEpochRequest(
        replica_id=_CONSUMER, topics=[OffsetForLeaderTopic(topic=topic_partition.topic, partitions=[partition])]
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
    raise Unreachable(f"{topic_partition}: {connection.address} did not return the end of epoch {epoch}")


def is_cut(end: EpochEndOffset, position: int) -> bool:
    """Return whether a log whose epoch ends at ``end`` has lost records before the position."""
    is_known = end.end_offset != _NO_OFFSET and end.leader_epoch != NO_EPOCH
    return not is_known or end.end_offset < position

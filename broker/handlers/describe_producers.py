"""DescribeProducers (API key 61): the producers that a partition remembers, and their open transactions (KIP-664).

This is how an operator finds a transaction that hangs: a producer whose ``current_txn_start_offset`` is not -1 and
whose coordinator does not know of it. Any replica serves it, not only the leader. A partition that is named again is
not described again, and no more than fits into a response (``oncelog.broker.handlers.response_room``).
"""

from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import Steps
from oncelog.broker.handlers.description import Description
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation, ResourceType
from oncelog.broker.storage.partition_log import PartitionLog
from oncelog.broker.storage.producer_state_entry import ProducerStateEntry
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

_NO_OFFSET: Final = -1
_NO_ROOM: Final = "The response has no room for this partition: request it again, with fewer others."
_BYTES_PER_PRODUCER: Final = 39
_PRODUCERS_AT_ONCE: Final = 200
_UNITS_PER_PARTITION: Final = 5
_UNITS_PER_PRODUCER: Final = 2


@handles(ApiKey.DESCRIBE_PRODUCERS, versions="0", in_turn=True)
def handle_describe_producers(broker: Broker, context: RequestContext, request: DescribeProducersRequest) -> Outcome:
    description = _Description(broker, context)
    return description.start(description.of_all(request))


class _Description(Description):
    """The response to one request, while it is made."""

    def of_all(self, request: DescribeProducersRequest) -> Steps[DescribeProducersResponse]:
        indexes: dict[str, dict[int, None]] = {}
        for topic in request.topics:
            indexes.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        response = DescribeProducersResponse()
        for name, partitions in indexes.items():
            described = TopicResponse(name=name)
            response.topics.append(described)
            for index in partitions:
                described.partitions.append((yield from self._of_partition(name, index)))
        return response

    def _of_partition(self, topic: str, index: int) -> Steps[PartitionResponse]:
        self.budget.left -= _UNITS_PER_PARTITION
        if self.budget.left <= 0:
            yield None
        log = self._find_log(topic, index)
        if isinstance(log, ErrorCode):
            return PartitionResponse(partition_index=index, error_code=log)
        if self.room.is_used_up:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # The one error that Java's admin client repeats everywhere.
            return PartitionResponse(partition_index=index, error_code=error, error_message=_NO_ROOM)
        response = PartitionResponse(partition_index=index)
        producers = list(log.producer_state.producers.values())
        for first in range(0, len(producers), _PRODUCERS_AT_ONCE):
            some = producers[first : first + _PRODUCERS_AT_ONCE]
            response.active_producers += map(_state, some)
            self.room.take(_BYTES_PER_PRODUCER * len(some))
            self.budget.left -= _UNITS_PER_PRODUCER * len(some)
            if self.budget.left <= 0:
                yield None
        return response

    def _find_log(self, topic: str, index: int) -> PartitionLog | ErrorCode:
        if not self.authorize(Operation.READ, ResourceType.TOPIC, topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        partition = self.broker.replica_manager.find((topic, index))
        if isinstance(partition, ErrorCode):
            return partition
        return partition.unavailable_error if partition.log is None else partition.log


def _state(entry: ProducerStateEntry) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=_NO_OFFSET if entry.txn_first_offset is None else entry.txn_first_offset,
    )

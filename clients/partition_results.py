"""The results that the leaders of several partitions return for each of them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from oncelog.clients.errors import ClientError, Refusal
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class PartitionResults(Generic[Result]):
    """The results of a request about partitions: every partition of the request is in one of the two mappings."""

    found: dict[TopicPartition, Result]
    failed: dict[TopicPartition, ErrorCode]
    causes: Mapping[TopicPartition, ClientError] = field(default_factory=dict, compare=False)
    """The exceptions of those in ``failed`` for which no response came."""

    @classmethod
    def of(
        cls, found: dict[TopicPartition, Result], refused: Mapping[TopicPartition, Refusal]
    ) -> "PartitionResults[Result]":
        """Return the results that were found, and the errors of all other partitions."""
        failed = {tp: each.error for tp, each in refused.items() if tp not in found}
        causes = {tp: each.cause for tp, each in refused.items() if tp in failed and each.cause is not None}
        return cls(found, failed, causes)

    @property
    def refusals(self) -> dict[TopicPartition, Refusal]:
        """Return the errors, with the exception where no response came."""
        return {tp: self._refusal(tp, error) for tp, error in self.failed.items()}

    def _refusal(self, topic_partition: TopicPartition, error: ErrorCode) -> Refusal:
        cause = self.causes.get(topic_partition)
        return Refusal(error=error) if cause is None else Refusal.without_response(cause)

    def require_all(self) -> dict[TopicPartition, Result]:
        """Return all results. Raises ``BrokerRefused`` for an error, or its cause where no response came."""
        for topic_partition, refused in self.refusals.items():
            raise refused.as_error(str(topic_partition))
        return self.found

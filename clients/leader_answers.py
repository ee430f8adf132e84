"""What the leaders of several partitions answered, put together. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from oncelog.clients.errors import ClientError, Refusal
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class LeaderAnswers(Generic[Answer]):
    """What the leaders of partitions answered: every partition that was asked about is in one of the two."""

    found: dict[TopicPartition, Answer]
    failed: dict[TopicPartition, ErrorCode]
    unanswered: Mapping[TopicPartition, ClientError] = field(default_factory=dict, compare=False)
    """What happened instead, where ``failed`` has an error because no response came."""

    @classmethod
    def of(
        cls, found: dict[TopicPartition, Answer], refused: Mapping[TopicPartition, Refusal]
    ) -> "LeaderAnswers[Answer]":
        """Return the answers of those that were found, and why the others have none."""
        failed = {tp: each.error for tp, each in refused.items() if tp not in found}
        causes = {tp: each.cause for tp, each in refused.items() if tp in failed and each.cause is not None}
        return cls(found, failed, causes)

    @property
    def refusals(self) -> dict[TopicPartition, Refusal]:
        """What failed, with the reason where no response came."""
        return {tp: self._refusal(tp, error) for tp, error in self.failed.items()}

    def _refusal(self, topic_partition: TopicPartition, error: ErrorCode) -> Refusal:
        cause = self.unanswered.get(topic_partition)
        return Refusal(error=error) if cause is None else Refusal.without_response(cause)

    def require_all(self) -> dict[TopicPartition, Answer]:
        """Return what was found. Raises ``BrokerRefused`` for what failed, or why no response came."""
        for topic_partition, refused in self.refusals.items():
            raise refused.as_error(str(topic_partition))
        return self.found

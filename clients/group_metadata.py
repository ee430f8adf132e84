"""Who a consumer is within its group: what a transactional offset commit is checked against (KIP-447)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMetadata:
    """The identity of a member at one generation. A group id alone stands for a consumer outside of any generation."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None

"""The settings of the group coordinator, under the names of Kafka's keys."""

from dataclasses import dataclass

from oncelog.coordinator.group.memory import MemoryLimits
from oncelog.coordinator.group.state import GroupRules
from oncelog.protocol.records.compression import Compression


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Kafka's defaults; ``group_initial_rebalance_delay_ms`` and the codec are the broker's business to lower."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2**31 - 1
    group_initial_rebalance_delay_ms: int = 3_000
    group_new_member_join_timeout_ms: int = 300_000
    """How long the first JoinGroup of a member may be parked: the client may be gone."""
    member_max_bytes: int = MemoryLimits().member
    group_max_bytes: int = MemoryLimits().group
    groups_max_bytes: int = MemoryLimits().all_groups
    group_id_max_length: int = 1_024
    """Characters of the id of a group that does not exist yet."""
    offset_metadata_max_bytes: int = 4_096
    offsets_max_count: int = 1_000_000
    offsets_metadata_max_bytes: int = 128 << 20
    """Of all offsets of this broker."""
    offsets_commit_timeout_ms: int = 5_000
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    offsets_retention_check_interval_ms: int = 600_000
    offsets_topic_compression_codec: Compression = Compression.NONE

    def rules(self) -> GroupRules:
        return GroupRules(
            max_size=self.group_max_size,
            initial_rebalance_delay_ms=self.group_initial_rebalance_delay_ms,
            new_member_join_timeout_ms=self.group_new_member_join_timeout_ms,
        )

    def memory_limits(self) -> MemoryLimits:
        return MemoryLimits(member=self.member_max_bytes, group=self.group_max_bytes, all_groups=self.groups_max_bytes)

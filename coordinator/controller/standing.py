"""``Standing``: the replicas of one partition, as the controller knows them when it decides who leads it. Pure."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from oncelog.coordinator.controller.log_ends import LogEnd

_NONE_KNOWN: Final[Mapping[int, LogEnd]] = MappingProxyType({})


class Standing(NamedTuple):
    """What is known of the replicas."""

    replicas: Sequence[int]
    """As assigned, the preferred leader first."""
    incarnations: Mapping[int, int]
    """By registered broker, its broker epoch."""
    usable: Collection[int]
    """The registered brokers among which the partition may have its leader and its ISR."""
    broken: Collection[int]
    """The registered members of ISR and ELR that may lack acknowledged records."""
    min_isr: int
    """``min.insync.replicas`` of the topic."""
    controller_epoch: int
    written_at: int = 0
    """The store's transaction that wrote the present state of the partition."""
    unreachable: Collection[int] = ()
    """The registered brokers that cannot be reached."""
    log_ends: Mapping[int, LogEnd] = _NONE_KNOWN
    """By broker, the end of its log, as reported at the present leader epoch, which has no leader."""

    @property
    def effective_min_isr(self) -> int:
        """The minimum, but never more than the partition has replicas."""
        return min(self.min_isr, len(self.replicas))

    def in_order(self, members: Sequence[int]) -> list[int]:
        """Return the members in the order of the assignment; those that are not assigned any more come last."""
        return [*(r for r in self.replicas if r in members), *(m for m in members if m not in self.replicas)]

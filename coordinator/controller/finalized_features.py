"""Which feature levels the cluster has finalised, as this broker knows them (KIP-584)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

TRANSACTION_VERSION: Final = "transaction.version"


class FinalizedFeatureCache:
    """The newest levels that were read from ``/feature``."""

    __slots__ = ("epoch", "levels")

    def __init__(self) -> None:
        self.levels: Mapping[str, int] = MappingProxyType({TRANSACTION_VERSION: 2})
        self.epoch = 0

    @property
    def transaction_version(self) -> int:
        """0, 1 or 2; 0 where nothing is finalised."""
        return self.levels.get(TRANSACTION_VERSION, 0)

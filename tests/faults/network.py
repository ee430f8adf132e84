"""What lies between the processes of the cluster: nothing, or proxies that can be cut."""

from collections.abc import Sequence
from typing import Protocol

from oncelog.broker.local_cluster.layout import Layout


class Network(Protocol):
    """Made before the cluster starts, closed after it has stopped."""

    async def open(self, layout: Layout) -> Sequence[str]:
        """Start what lies between; the settings that lead brokers through it, ``key=value`` or ``ID:key=value``."""

    async def heal(self) -> None:
        """Let everything through again."""

    async def close(self) -> None:
        """Stop what was started."""


class DirectNetwork:
    """Nothing lies between."""

    async def open(self, layout: Layout) -> Sequence[str]:
        return ()

    async def heal(self) -> None:
        pass

    async def close(self) -> None:
        pass

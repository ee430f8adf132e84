"""A fault, and the scene that it strikes."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from tests.faults.cluster_under_test import ClusterUnderTest
from tests.faults.network import Network
from tests.faults.roles import Roles
from tests.faults.volumes import Volumes


@dataclass(slots=True, kw_only=True)
class Scene:
    """The cluster as a fault gets at it."""

    cluster: ClusterUnderTest
    roles: Roles
    network: Network
    volumes: Volumes
    """Of the brokers, if the cluster was started with any."""
    rng: Random
    clients: tuple[str, ...]
    """The clients that make the load; ``names.py`` says what is theirs."""
    restart_client: Callable[[str], Awaitable[None]]
    """kill -9 of one of them by its name, and a successor that runs at once."""
    notes: dict[str, str] = field(default_factory=dict)
    """What a fault remembers between its strike and its healing; emptied before each run."""


class Fault(Protocol):
    """Something that happens to a cluster, and how it is undone. Stateless."""

    @property
    def name(self) -> str:
        """How it is requested on the command line, and called in the report."""

    @property
    def hold_seconds(self) -> tuple[float, float]:
        """The shortest and the longest time between strike and healing."""

    async def strike(self, scene: Scene) -> str:
        """Do it; return what was done and to whom, for the log."""

    async def heal(self, scene: Scene) -> None:
        """Undo what is left of it."""

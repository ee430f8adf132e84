"""Where a request has to go: any broker, the controller, one broker, the coordinator of a group or transactional id."""

from dataclasses import dataclass
from typing import Final, TypeAlias

_GROUP: Final = 0
_TRANSACTION: Final = 1


@dataclass(frozen=True, slots=True)
class AnyBroker:
    """The first broker that responds."""


@dataclass(frozen=True, slots=True)
class Node:
    """One broker, by its id."""

    node_id: int


@dataclass(frozen=True, slots=True)
class Controller:
    """The broker that changes topics and configurations."""


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The broker that owns a group or a transactional id."""

    key_type: int
    key: str

    @classmethod
    def of_group(cls, group_id: str) -> "Coordinator":
        """Return the route to the coordinator of a group."""
        return cls(_GROUP, group_id)

    @classmethod
    def of_transactional_id(cls, transactional_id: str) -> "Coordinator":
        """Return the route to the coordinator of a transactional id."""
        return cls(_TRANSACTION, transactional_id)


Route: TypeAlias = AnyBroker | Node | Controller | Coordinator

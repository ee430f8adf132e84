"""Client quotas, as they are on the wire and in the metadata store: Kafka's words and numbers (KIP-546, KIP-612).

A quota is the limits of an entity: of a user, of a client id, of a client id of a user, or of an IP address. Each part
of an entity is a name, or the default: what holds for every name without a quota of its own.
"""

from enum import Enum, IntEnum
from typing import Final, NamedTuple, TypeAlias

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
CLIENT_KEYS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
"""The limits that users and client ids can have."""
IP_KEYS: Final = (CONNECTION_CREATION_RATE,)
"""The limits that IP addresses can have."""


class DefaultName(Enum):
    """The part of an entity that stands for every name without a quota of its own."""

    DEFAULT = "<default>"


DEFAULT: Final = DefaultName.DEFAULT
EntityName: TypeAlias = str | DefaultName


class QuotaEntity(NamedTuple):
    """What a quota is about. A part that is None is not named."""

    user: EntityName | None = None
    client_id: EntityName | None = None
    ip: EntityName | None = None

    @property
    def parts(self) -> dict[str, EntityName]:
        """Return the named parts by their type."""
        return {kind: name for kind, name in zip(ENTITY_TYPES, self, strict=True) if name is not None}

    def __str__(self) -> str:
        return ", ".join(
            f"default {kind}" if isinstance(name, DefaultName) else f"{kind} {name}"
            for kind, name in self.parts.items()
        )


class MatchType(IntEnum):
    """How a filter selects entities by one of their parts."""

    EXACT = 0
    """The part has this name."""
    DEFAULT = 1
    """The part is the default."""
    SPECIFIED = 2
    """The part is named, or is the default."""


class AnyName(Enum):
    """The part of a filter that selects entities with such a part, whatever its name."""

    ANY = "any"


ANY: Final = AnyName.ANY


class QuotaFilter(NamedTuple):
    """Selects entities by their parts: a name, ``DEFAULT``, or ``ANY``. A part that is None selects all."""

    user: EntityName | AnyName | None = None
    client_id: EntityName | AnyName | None = None
    ip: EntityName | AnyName | None = None
    strict: bool = False
    """Whether entities must have no parts but these."""


def entities_of_client(user: str, client_id: str) -> list[QuotaEntity]:
    """Return the entities whose limits can hold for a client, the one that decides first."""
    return [
        QuotaEntity(user, client_id),
        QuotaEntity(user, DEFAULT),
        QuotaEntity(user),
        QuotaEntity(DEFAULT, client_id),
        QuotaEntity(DEFAULT, DEFAULT),
        QuotaEntity(DEFAULT),
        QuotaEntity(client_id=client_id),
        QuotaEntity(client_id=DEFAULT),
    ]

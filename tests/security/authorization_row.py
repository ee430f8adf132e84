"""``Row``: a request, and the rights that it needs in the order in which they are judged."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, TypeAlias

from oncelog.protocol.acl import AclOperation as Op
from oncelog.protocol.acl import AclResourceType as Type
from oncelog.protocol.errors import ErrorCode

TOPIC: Final = "cells-t"
GROUP: Final = "cells-g"
TRANSACTIONAL_ID: Final = "cells-x"
CLUSTER: Final = "kafka-cluster"
BOB: Final = "User:bob"
NAMES: Final = {
    Type.TOPIC: TOPIC,
    Type.GROUP: GROUP,
    Type.CLUSTER: CLUSTER,
    Type.TRANSACTIONAL_ID: TRANSACTIONAL_ID,
    Type.USER: BOB,
}
"""What the needs are about. The id of the token is known when the broker has made it."""
DENIED: Final = {
    Type.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Type.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Type.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    Type.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    Type.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
REFUSALS: Final = frozenset({*DENIED.values(), ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH})


class Effect(Enum):
    """What comes of a right."""

    DECIDES = auto()
    IS_NOT_NEEDED = auto()
    """The request is allowed without it, and though it is denied."""
    IS_NOT_ENOUGH = auto()
    """The request is refused with it, and to super users."""


@dataclass(frozen=True, slots=True)
class Need:
    """A right."""

    type: Type
    operation: Op
    denied: ErrorCode | None = None
    """The error without it, if it is not that of the type."""
    effect: Effect = Effect.DECIDES
    is_left_out: bool = False
    """Whether the response, without it, has no error and leaves out what it would show (``Row.shows``)."""
    needs_describe: bool = False
    """Whether DESCRIBE, which the right implies, must not be denied."""

    @property
    def error(self) -> ErrorCode:
        return self.denied or DENIED[self.type]


class Before(Enum):
    """What must be there when a request is sent."""

    OFFSET = auto()
    """An offset of the topic that the group has committed."""
    TOPIC = auto()
    """The topic, which requests before may have deleted."""
    TRANSACTION = auto()
    """A transaction with the topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What the broker has made for the requests."""

    topic_id: bytes
    token_id: str
    """Of a token of ``BOB``."""
    token_hmac: bytes


Fields: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One request."""

    request: str
    version: int
    fields: Fields | Callable[[Made], Fields]
    needs: tuple[Need, ...]
    title: str = ""
    before: Before | None = None
    shows: Callable[[Any, Made], bool] | None = None
    """Whether a response has what is left out without a right."""

    @property
    def name(self) -> str:
        return f"{self.request} {self.version}{f', {self.title}' if self.title else ''}"

    def fields_for(self, made: Made) -> Mapping[str, Any]:
        return self.fields(made) if callable(self.fields) else self.fields


def t(operation: Op, denied: ErrorCode | None = None, *, needs_describe: bool = False) -> Need:
    return Need(Type.TOPIC, operation, denied, needs_describe=needs_describe)


def g(operation: Op) -> Need:
    return Need(Type.GROUP, operation)


def c(operation: Op, denied: ErrorCode | None = None) -> Need:
    return Need(Type.CLUSTER, operation, denied)


def x(operation: Op) -> Need:
    return Need(Type.TRANSACTIONAL_ID, operation)


def shown(type: Type, operation: Op) -> Need:
    """Return a right without which something is left out."""
    return Need(type, operation, is_left_out=True)

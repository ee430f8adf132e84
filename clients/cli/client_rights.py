"""The rights that a client needs for what it is going to do, and which of them it lacks, for ``oncelog doctor``.

Brokers tell a client what it may do to a topic. For a group and a transactional id they do not, so a request is sent
that needs the right, and that a member or a producer who does not exist cannot get through: it changes nothing.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from oncelog.clients.cli.diagnosis import Finding
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import BrokerRefused, error_code
from oncelog.clients.principal import Principal
from oncelog.clients.routes import AnyBroker, Coordinator
from oncelog.protocol.acl import AclOperation, AclResourceType
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

_NO_MEMBER: Final = "oncelog-doctor"
"""A member id that no coordinator has given."""
_NO_PRODUCER: Final = -1
_LAST_WITHOUT_EPOCH_BUMP: Final = 4
"""Of EndTxn."""
_NOT_SAID: Final = -(2**31)
_AFTER_AUTHORIZATION: Final = frozenset(
    {ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}
    | {ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.INVALID_TXN_STATE}
    | {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.CONCURRENT_TRANSACTIONS}
)
"""Errors that come after the right was found."""
_DENIED: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_MISSING_TOPIC: Final = "topic {} does not exist, so what {} may do with it is not known"
_CREATE: Final = "create it (`oncelog topic create {}`), or see the name"
_ADD: Final = (
    "an administrator adds it with `oncelog acl add {principal} {operation} {resource}`; if a list denies it, "
    "`oncelog acl list {resource}` shows that"
)
_OPTIONS: Final = {
    AclResourceType.TOPIC: "--topic",
    AclResourceType.GROUP: "--group",
    AclResourceType.TRANSACTIONAL_ID: "--transactional-id",
}


class Right(NamedTuple):
    """An operation on one resource."""

    operation: AclOperation
    resource_type: AclResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.operation.name} on {self.resource_type.name} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientUse:
    """What a client is going to do."""

    produce: tuple[str, ...] = ()
    """Topics to write to."""
    consume: tuple[str, ...] = ()
    """Topics to read."""
    groups: tuple[str, ...] = ()
    transactional_ids: tuple[str, ...] = ()

    @property
    def rights(self) -> list[Right]:
        """What it needs."""
        return [
            *(Right(AclOperation.WRITE, AclResourceType.TOPIC, topic) for topic in self.produce),
            *(Right(AclOperation.READ, AclResourceType.TOPIC, topic) for topic in self.consume),
            *(Right(AclOperation.READ, AclResourceType.GROUP, group) for group in self.groups),
            *(Right(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, each) for each in self.transactional_ids),
        ]


class Standing(Enum):
    """Whether the client has a right."""

    GRANTED = "the client has it"
    DENIED = "the client lacks it"
    NO_TOPIC = "there is no such topic"
    NOT_SAID = "brokers before Kafka 2.3 do not say"


async def examine_rights(cluster: Cluster, use: ClientUse) -> dict[Right, Standing | ErrorCode]:
    """Return whether the client has each right; the error that hides that, if one does. Raises ``ClientError``."""
    standings: dict[Right, Standing | ErrorCode] = {}
    topics = [right.name for right in use.rights if right.resource_type is AclResourceType.TOPIC]
    described = await _describe(cluster, topics) if topics else {}
    for right in use.rights:
        if right.resource_type is AclResourceType.TOPIC:
            standings[right] = standing_of_topic(right.operation, described.get(right.name))
        else:
            standings[right] = standing_after(await _probe(cluster, right))
    return standings


def standing_of_topic(operation: AclOperation, topic: MetadataResponseTopic | None) -> Standing | ErrorCode:
    """Return whether the client may do this to a topic, as a broker describes it."""
    if topic is None:
        return Standing.NOT_SAID
    error = error_code(topic.error_code)
    if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return Standing.NO_TOPIC
    if error in _DENIED:
        return Standing.DENIED
    if topic.topic_authorized_operations == _NOT_SAID:
        return Standing.NOT_SAID if error is ErrorCode.NONE else error
    return Standing.GRANTED if topic.topic_authorized_operations >> operation & 1 else Standing.DENIED


def standing_after(error: ErrorCode) -> Standing | ErrorCode:
    """Return whether the client has a right, from the response to a request that needs it."""
    if error in _DENIED:
        return Standing.DENIED
    return Standing.GRANTED if error in _AFTER_AUTHORIZATION else error


def findings(standings: Mapping[Right, Standing | ErrorCode], principal: Principal) -> Iterator[Finding]:
    """Yield what is to be said of rights that the client does not surely have."""
    for right, standing in standings.items():
        match standing:
            case Standing.GRANTED:
                continue
            case Standing.DENIED:
                message = f"missing right: {principal.description} needs {right}"
                yield Finding(broker_id=None, message=message, advice=_advice(right, principal))
            case Standing.NO_TOPIC:
                message = _MISSING_TOPIC.format(right.name, principal.description)
                yield Finding(broker_id=None, message=message, advice=_CREATE.format(right.name))
            case _:
                why = standing.value if isinstance(standing, Standing) else standing.name
                message = f"whether {principal.description} has {right} is not known: {why}"
                yield Finding(broker_id=None, message=message)


def _advice(right: Right, principal: Principal) -> str:
    advice = _ADD.format(
        principal=shlex.quote(principal.name or "PRINCIPAL"),
        operation=right.operation.name.lower(),
        resource=f"{_OPTIONS[right.resource_type]} {shlex.quote(right.name)}",
    )
    return f"{advice}; {principal.caveat}" if principal.caveat else advice


async def _describe(cluster: Cluster, topics: Iterable[str]) -> dict[str | None, MetadataResponseTopic]:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in dict.fromkeys(topics)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    response = await cluster.call(AnyBroker(), request, MetadataResponse)
    return {topic.name: topic for topic in response.topics}


async def _probe(cluster: Cluster, right: Right) -> ErrorCode:
    """Return the error of a request that needs the right, and has no effect."""
    try:
        if right.resource_type is AclResourceType.GROUP:
            beat = await cluster.call(
                Coordinator.of_group(right.name),
                HeartbeatRequest(group_id=right.name, generation_id=0, member_id=_NO_MEMBER),
                HeartbeatResponse,
                errors=lambda response: [response.error_code],
            )
            return error_code(beat.error_code)
        end = await cluster.call(
            Coordinator.of_transactional_id(right.name),
            EndTxnRequest(
                transactional_id=right.name, producer_id=_NO_PRODUCER, producer_epoch=_NO_PRODUCER, committed=False
            ),
            EndTxnResponse,
            errors=lambda response: [response.error_code],
            at_most=_LAST_WITHOUT_EPOCH_BUMP,
        )
        return error_code(end.error_code)
    except BrokerRefused as refused:  # By the lookup of the coordinator.
        return refused.refusal.error

"""Every public method and property of the clients, with arguments that are drawn.

A method that is not in its table fails ``test_calls``: so a new one is called at random, too, from its first day on.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final, TypeAlias
from uuid import UUID

from oncelog.clients.admin.admin import Admin
from oncelog.clients.admin.configs import ConfigChange, Operation, Resource, ResourceType
from oncelog.clients.admin.features import FeatureUpdate
from oncelog.clients.admin.groups import MemberToRemove
from oncelog.clients.admin.offsets import EARLIEST, LATEST
from oncelog.clients.admin.topics import NewTopic
from oncelog.clients.admin.transaction_abort import WhichTransaction
from oncelog.clients.admin.txn_markers import AbortMarker
from oncelog.clients.connection import Address
from oncelog.clients.consumer import Consumer, ConsumerGroupMetadata, OffsetAndMetadata
from oncelog.clients.producer import Producer
from oncelog.protocol.acl import (
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
    ResourcePattern,
)
from oncelog.protocol.client_quotas import AnyName, QuotaEntity, QuotaFilter
from oncelog.protocol.topic_partition import TopicPartition
from tests.chaos.stage import PROXY_PORT, TOPIC

GROUP: Final = "group"
SPARE: Final = ("spare-0", "spare-1")
"""Topics that administrators may change and delete; the first has an open transaction."""
_NOWHERE: Final = "nowhere"
_SPECIAL: Final = frozenset({"__aenter__", "__aexit__", "__aiter__", "__anext__"})

Draw: TypeAlias = Callable[[Any, "World"], Any]
"""Calls a method of a client; returns what it returns, which may have to be awaited."""


class World:
    """What arguments are drawn from."""

    def __init__(self, rng: Random, partitions: int, hanging_producer_id: int) -> None:
        self.rng = rng
        self.partitions = partitions
        self.hanging_producer_id = hanging_producer_id
        self.timeouts: tuple[float, ...] = (0.0, 0.01, 1.0, 5.0)
        self.timeout = 0.0
        """The time-out that was drawn last."""

    def flip(self) -> bool:
        return self.rng.random() < 0.5

    def seconds(self) -> float:
        self.timeout = self.rng.choice(self.timeouts)
        return self.timeout

    def topic(self) -> str:
        return self.rng.choice((TOPIC, TOPIC, *SPARE, _NOWHERE))

    def spares(self) -> list[str]:
        return self.rng.choice(([], [self.rng.choice(SPARE)], list(SPARE), [_NOWHERE]))

    def partition(self) -> TopicPartition:
        return TopicPartition(self.topic(), self.rng.randrange(self.partitions))

    def assigned(self, consumer: Consumer) -> TopicPartition:
        known = sorted(consumer.assignment)
        return self.rng.choice(known) if known and self.rng.random() < 0.8 else self.partition()

    def several(self) -> list[TopicPartition]:
        return [TopicPartition(TOPIC, index) for index in range(self.partitions) if self.flip()]

    def offset(self) -> int:
        return self.rng.randint(0, 20)

    def offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {partition: OffsetAndMetadata(self.offset()) for partition in self.several()}

    def group(self) -> str:
        return self.rng.choice((GROUP, GROUP, "other"))

    def transactional_id(self) -> str:
        return self.rng.choice(("hanging", "other"))

    def address(self) -> Address:
        return Address("127.0.0.1", PROXY_PORT)

    def resource(self) -> Resource:
        topic = Resource(type=ResourceType.TOPIC, name=self.rng.choice(SPARE))
        return self.rng.choice((topic, topic, Resource(type=ResourceType.BROKER, name="1")))

    def spare_topic(self) -> Resource:
        return Resource(type=ResourceType.TOPIC, name=self.rng.choice(SPARE))


def _send(producer: Producer, world: World) -> dict[str, Any]:
    partition = world.rng.choice((None, None, 0, world.partitions - 1))
    return {"key": world.rng.choice((None, b"key")), "partition": partition}


PRODUCER: Final[Mapping[str, Draw]] = {
    "__aenter__": lambda p, w: p.__aenter__(),
    "__aexit__": lambda p, w: p.__aexit__(None, None, None),
    "start": lambda p, w: p.start(),
    "close": lambda p, w: p.close(w.seconds()),
    "send_nowait": lambda p, w: p.send_nowait(w.topic(), b"value", **_send(p, w)),
    "send": lambda p, w: p.send(w.topic(), b"value", **_send(p, w)),
    "obstacles": lambda p, w: p.obstacles(),
    "is_connected": lambda p, w: p.is_connected(w.address()),
    "partitions_for": lambda p, w: p.partitions_for(w.topic()),
    "flush": lambda p, w: p.flush(),
    "init_transactions": lambda p, w: p.init_transactions(),
    "begin_transaction": lambda p, w: p.begin_transaction(),
    "send_offsets_to_transaction": lambda p, w: p.send_offsets_to_transaction(
        w.offsets(), ConsumerGroupMetadata(group_id="producers")
    ),
    "commit_transaction": lambda p, w: p.commit_transaction(),
    "abort_transaction": lambda p, w: p.abort_transaction(),
    "transaction_protocol": lambda p, w: p.transaction_protocol,
}

CONSUMER: Final[Mapping[str, Draw]] = {
    "__aenter__": lambda c, w: c.__aenter__(),
    "__aexit__": lambda c, w: c.__aexit__(None, None, None),
    "start": lambda c, w: c.start(),
    "close": lambda c, w: c.close(w.seconds()),
    "subscribe": lambda c, w: c.subscribe(w.rng.choice(([TOPIC], [TOPIC, w.topic()], re.compile("j.*|spare-.")))),
    "assign": lambda c, w: c.assign(w.several()),
    "unsubscribe": lambda c, w: c.unsubscribe(),
    "assignment": lambda c, w: c.assignment,
    "subscription": lambda c, w: c.subscription,
    "poll": lambda c, w: c.poll(w.seconds(), w.rng.choice((None, 1, 10))),
    "__aiter__": lambda c, w: c.__aiter__(),
    "__anext__": lambda c, w: c.__anext__(),
    "seek": lambda c, w: c.seek(w.assigned(c), w.rng.choice((w.offset(), OffsetAndMetadata(w.offset(), 0)))),
    "seek_to_beginning": lambda c, w: c.seek_to_beginning([w.assigned(c)] if w.flip() else ()),
    "seek_to_end": lambda c, w: c.seek_to_end([w.assigned(c)] if w.flip() else ()),
    "position": lambda c, w: c.position(w.assigned(c), w.seconds()),
    "pause": lambda c, w: c.pause([w.assigned(c)]),
    "resume": lambda c, w: c.resume([w.assigned(c)]),
    "paused": lambda c, w: c.paused,
    "lag": lambda c, w: c.lag(w.assigned(c)),
    "commit": lambda c, w: c.commit(w.offsets() if w.flip() else None, w.seconds()),
    "committed": lambda c, w: c.committed(w.several(), w.seconds()),
    "group_metadata": lambda c, w: c.group_metadata(),
    "offsets_for_times": lambda c, w: c.offsets_for_times({w.partition(): w.offset()}, w.seconds()),
    "beginning_offsets": lambda c, w: c.beginning_offsets([w.partition()], w.seconds()),
    "end_offsets": lambda c, w: c.end_offsets([w.partition()], w.seconds()),
    "obstacles": lambda c, w: c.obstacles(),
    "is_connected": lambda c, w: c.is_connected(w.address()),
}


def _which(world: World) -> WhichTransaction:
    return WhichTransaction(producer_id=world.hanging_producer_id)


async def _carry_out_abort(admin: Admin, world: World) -> Any:
    return await admin.carry_out_abort(await admin.prepare_abort(TopicPartition(SPARE[0], 0), _which(world)))


def _acl(world: World) -> AclBinding:
    pattern = ResourcePattern(AclResourceType.TOPIC, world.topic(), PatternType.LITERAL)
    return AclBinding(pattern, AccessControlEntry("User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW))


ADMIN: Final[Mapping[str, Draw]] = {
    "__aenter__": lambda a, w: a.__aenter__(),
    "__aexit__": lambda a, w: a.__aexit__(None, None, None),
    "close": lambda a, w: a.close(),
    "describe_cluster": lambda a, w: a.describe_cluster(include_fenced_brokers=w.flip()),
    "describe_log_dirs": lambda a, w: a.describe_log_dirs(
        w.rng.choice((None, [1], [7])), w.rng.choice((None, [w.partition()]))
    ),
    "describe_features": lambda a, w: a.describe_features(),
    "describe_acls": lambda a, w: a.describe_acls(AclBindingFilter(resource_type=AclResourceType.TOPIC)),
    "create_acls": lambda a, w: a.create_acls([_acl(w)]),
    "delete_acls": lambda a, w: a.delete_acls([AclBindingFilter(name=w.topic())]),
    "describe_client_quotas": lambda a, w: a.describe_client_quotas(QuotaFilter(user=AnyName.ANY)),
    "alter_client_quotas": lambda a, w: a.alter_client_quotas(
        {QuotaEntity(user="nobody"): {"producer_byte_rate": 1e9 if w.flip() else None}}
    ),
    "create_delegation_token": lambda a, w: a.create_delegation_token(max_lifetime_ms=60_000 if w.flip() else None),
    "renew_delegation_token": lambda a, w: a.renew_delegation_token(b"of no token"),
    "expire_delegation_token": lambda a, w: a.expire_delegation_token(b"of no token"),
    "describe_delegation_tokens": lambda a, w: a.describe_delegation_tokens(None if w.flip() else []),
    "update_features": lambda a, w: a.update_features(
        {"transaction.version": FeatureUpdate(w.rng.randint(0, 2), True)}, validate_only=True
    ),
    "list_topics": lambda a, w: a.list_topics(),
    "describe_topics": lambda a, w: a.describe_topics([w.topic(), w.topic()]),
    "describe_topic_pages": lambda a, w: a.describe_topic_pages(
        [w.topic()] if w.flip() else (), page_size=w.rng.randint(1, 5)
    ),
    "create_topics": lambda a, w: a.create_topics(
        [NewTopic(name=name, partitions=w.partitions, replication_factor=1) for name in w.spares()],
        validate_only=w.flip(),
    ),
    "delete_topics": lambda a, w: a.delete_topics(w.spares()),
    "delete_topics_by_id": lambda a, w: a.delete_topics_by_id([UUID(int=w.rng.getrandbits(64))]),
    "create_partitions": lambda a, w: a.create_partitions(dict.fromkeys(w.spares(), w.rng.randint(1, 6))),
    "delete_records": lambda a, w: a.delete_records(
        {TopicPartition(w.rng.choice(SPARE), 0): w.rng.choice((-1, 0, 99))}
    ),
    "list_offsets": lambda a, w: a.list_offsets(
        {w.partition(): w.rng.choice((EARLIEST, LATEST, 5))}, read_committed=w.flip()
    ),
    "describe_configs": lambda a, w: a.describe_configs({w.resource(): None}, documentation=w.flip()),
    "alter_configs": lambda a, w: a.alter_configs(
        {w.spare_topic(): [ConfigChange(name="retention.ms", operation=Operation.SET, value="86400000")]},
        validate_only=w.flip(),
    ),
    "replace_configs": lambda a, w: a.replace_configs({w.spare_topic(): {"retention.ms": "1"}}, validate_only=w.flip()),
    "list_groups": lambda a, w: a.list_groups(w.rng.choice(((), ["Stable"]))),
    "describe_groups": lambda a, w: a.describe_groups([w.group()]),
    "delete_groups": lambda a, w: a.delete_groups([w.group()]),
    "remove_members": lambda a, w: a.remove_members(
        w.group(), [MemberToRemove(group_instance_id=w.rng.choice((None, "left")), member_id="x")]
    ),
    "remove_all_members": lambda a, w: a.remove_all_members(w.group(), reason="chaos"),
    "committed_offsets": lambda a, w: a.committed_offsets(w.group(), require_stable=w.flip()),
    "committed_offsets_of_groups": lambda a, w: a.committed_offsets_of_groups({w.group(): None, "third": w.several()}),
    "alter_group_offsets": lambda a, w: a.alter_group_offsets(w.group(), dict.fromkeys(w.several(), w.offset())),
    "delete_group_offsets": lambda a, w: a.delete_group_offsets(w.group(), w.several()),
    "describe_producers": lambda a, w: a.describe_producers([w.partition()], broker_id=w.rng.choice((None, 1))),
    "list_transactions": lambda a, w: a.list_transactions(states=w.rng.choice(((), ["Ongoing"]))),
    "describe_transactions": lambda a, w: a.describe_transactions([w.transactional_id()]),
    "fence_producers": lambda a, w: a.fence_producers([w.transactional_id()]),
    "force_terminate_transaction": lambda a, w: a.force_terminate_transaction(w.transactional_id()),
    "find_hanging_transactions": lambda a, w: a.find_hanging_transactions([w.partition()], now_ms=1_750_000_000_000),
    "prepare_abort": lambda a, w: a.prepare_abort(TopicPartition(SPARE[0], 0), _which(w)),
    "carry_out_abort": _carry_out_abort,
    "abort_transaction": lambda a, w: a.abort_transaction(
        AbortMarker(
            topic_partition=TopicPartition(SPARE[0], 0),
            producer_id=w.hanging_producer_id,
            producer_epoch=0,
            coordinator_epoch=None,
        )
    ),
    "transaction_history": lambda a, w: a.transaction_history(w.transactional_id()),
}

TABLES: Final[Mapping[type, Mapping[str, Draw]]] = {Producer: PRODUCER, Consumer: CONSUMER, Admin: ADMIN}


def public_names(cls: type) -> set[str]:
    """The methods and properties that a user may call."""
    names = {name for name, _ in inspect.getmembers(cls) if not name.startswith("_")}
    return names | (_SPECIAL & vars(cls).keys())

"""The broker of ``acl_cells.txt``, in this process: its topics, groups and transactions, and its clients."""

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from oncelog.broker.dispatch.request import ANONYMOUS, Principal, RequestContext
from oncelog.broker.parts import Broker
from oncelog.coordinator.controller.acl_changes import Addition, Change, Removal, why_invalid_binding
from oncelog.protocol.acl import AccessControlEntry, AclBinding, AclBindingFilter, ResourcePattern
from oncelog.protocol.compiler import decode, encode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.schema import ZERO_UUID, Field, Kind, Message
from tests.conformance.acl_requests import COMMITTED, OPEN, REQUESTS, G, T, U
from tests.conformance.acl_table import Cell
from tests.unit.broker.handlers.administration import running_broker
from tests.unit.broker.outcomes import without_shape
from tests.unit.broker.replica_side import new_connection

ALICE: Final = Principal("User", "alice")
SUPER: Final = Principal("User", "super")
_NOT_YET: Final = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR}
)
_ATTEMPTS: Final = 300
_CODES: Final = frozenset({"error_code", "partition_error_code"})


class AclStage:
    """The broker, and ways to reach it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._handlers = {handler.name: handler for handler in broker.handlers}

    def topic_id(self, name: str) -> bytes:
        topic = self._broker.metadata.image.topic(name)
        return ZERO_UUID if topic is None else topic.topic_id

    async def set_up(self, api: str, version: int, **fields: Any) -> Any:
        """Send a request as an administrator, until it succeeds."""
        for _ in range(_ATTEMPTS):
            response = await self.send(api, version, fields, ANONYMOUS)
            if not _NOT_YET.intersection(error_codes(response, version)):
                return response
            await asyncio.sleep(0.002)
        raise AssertionError(f"{api} does not succeed: {response}")

    async def send(self, api: str, version: int, fields: Mapping[str, Any], principal: Principal) -> Any:
        handler = self._handlers[api]
        request = _message(handler.request_type, fields)
        received = decode(handler.request_type, version, bytes(encode(request, version)))
        connection = new_connection()
        connection.principal = principal
        outcome = without_shape(handler(self._broker, RequestContext(version, 1, "client", connection), received))
        response = await outcome if inspect.isawaitable(outcome) else outcome
        return decode(type(response), version, bytes(encode(response, version)))

    async def prepare(self) -> None:
        """Make what the requests are about."""
        for name in (T, U):
            await self.create_topic(name)
        topics = [{"name": name, "partitions": [COMMITTED]} for name in (T, U)]
        for key_type, key in ((0, G), (1, OPEN)):
            await self._find_coordinator(key_type, key)
        await self.set_up("OffsetCommit", 9, group_id=G, generation_id_or_member_epoch=-1, member_id="", topics=topics)
        await self.add_partition(OPEN, await self.producer(OPEN))

    async def _find_coordinator(self, key_type: int, key: str) -> None:
        for _ in range(_ATTEMPTS):
            response = await self.send("FindCoordinator", 3, {"key_type": key_type, "key": key}, ANONYMOUS)
            if response.error_code == ErrorCode.NONE:
                return
            await asyncio.sleep(0.002)
        raise AssertionError("there is no coordinator")

    async def create_topic(self, name: str) -> None:
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
        await self.set_up("CreateTopics", 5, topics=[topic], timeout_ms=5_000)

    async def delete_topic(self, name: str) -> None:
        await self.set_up("DeleteTopics", 5, topic_names=[name], timeout_ms=5_000)

    async def producer(self, transactional_id: str | None) -> tuple[int, int]:
        """A new producer, by its id and epoch."""
        response = await self.set_up(
            "InitProducerId", 4, transactional_id=transactional_id, transaction_timeout_ms=600_000
        )
        return response.producer_id, response.producer_epoch

    async def add_partition(self, transactional_id: str, producer: tuple[int, int]) -> None:
        fields = {
            "v3_and_below_transactional_id": transactional_id,
            "v3_and_below_producer_id": producer[0],
            "v3_and_below_producer_epoch": producer[1],
            "v3_and_below_topics": [{"name": T, "partitions": [0]}],
        }
        await self.set_up("AddPartitionsToTxn", 3, **fields)

    async def set_rules(self, rules: Iterable[AclBinding]) -> None:
        """Have these access control lists and no others."""
        acls = self._broker.acls
        assert acls is not None
        everything: Change = Removal((AclBindingFilter(),))
        changes: dict[ResourcePattern, Change] = dict.fromkeys(acls.acls, everything)
        await acls.change(changes)
        by_pattern: dict[ResourcePattern, set[AccessControlEntry]] = {}
        for rule in rules:
            if why_invalid_binding(rule) is None:  # Kafka refused these, too.
                by_pattern.setdefault(rule.pattern, set()).add(rule.entry)
        await acls.change({pattern: Addition(frozenset(entries)) for pattern, entries in by_pattern.items()})

    async def respond(self, cell: Cell) -> str:
        """What the broker responds to the request of a cell, in the words of the table."""
        await self.set_rules(cell.rules)
        for _ in range(_ATTEMPTS):
            fields = await REQUESTS[cell.request](self)
            response = await self.send(cell.api, cell.version, fields, SUPER if cell.is_super else ALICE)
            if not _NOT_YET.intersection(error_codes(response, cell.version)):
                break
            await asyncio.sleep(0.002)
        return described(cell, response)


@asynccontextmanager
async def acl_stage(*, allows_everyone: bool) -> AsyncIterator[AclStage]:
    settings = {
        "broker_id": "1",
        "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super_users": "User:ANONYMOUS;User:super",
        "allow_everyone_if_no_acl_found": str(allows_everyone).lower(),
        "offsets_topic_num_partitions": "1",
        "transaction_state_log_num_partitions": "1",
    }
    async with running_broker(**settings) as broker:
        stage = AclStage(broker)
        await stage.prepare()
        yield stage


def _message(kind: type[Message], fields: Mapping[str, Any]) -> Message:
    """Make a message of the fields that are given."""
    declared = {field.name: field for field in kind.fields}
    return kind(**{name: _value(declared[name], value) for name, value in fields.items()})


def _value(field: Field, value: Any) -> Any:
    if field.kind is Kind.ARRAY and value is not None:
        assert field.element is not None
        return [_value(field.element, each) for each in value]
    if field.kind is Kind.STRUCT and isinstance(value, Mapping):
        assert field.struct is not None
        return _message(field.struct, value)
    return value


def error_codes(message: Message, version: int, skipped: Sequence[str] = ()) -> list[ErrorCode]:
    """Every error code of a response, in the order of its fields."""
    return list(_error_codes(message, version, skipped))


def _error_codes(message: Message, version: int, skipped: Sequence[str]) -> Iterator[ErrorCode]:
    for field in type(message).fields:
        if version not in field.versions or field.name in skipped:
            continue
        value = getattr(message, field.name)
        if field.name in _CODES:
            yield ErrorCode(value)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Message):
                yield from _error_codes(each, version, skipped)


def described(cell: Cell, response: Any) -> str:
    """A response in the words of the table."""
    skipped = ["topics"] if cell.request.endswith("-all") else []
    codes = error_codes(response, cell.version, skipped)
    looked_at = _LOOKS.get(cell.request, _look_at_nothing)(response)
    parts = [" ".join(code.name for code in codes) or "-"]
    parts += [f"{key}={json.dumps(value, separators=(',', ':'))}" for key, value in looked_at.items()]
    return " ".join(parts)


# What is looked at beside error codes


def _look_at_nothing(response: Any) -> dict[str, Any]:
    return {}


def _look_at_topics(response: Any) -> dict[str, Any]:
    shown = [
        [topic.name, topic.topic_id != ZERO_UUID, topic.topic_authorized_operations]
        for topic in response.topics
        if not (topic.name or "").startswith("__")
    ]
    return {"topics": sorted(shown, key=str)}


def _look_at_topic_names(response: Any) -> dict[str, Any]:
    return {"topics": sorted(topic.name for topic in response.topics if topic.name in (T, U))}


def _look_at_cluster_bits(response: Any) -> dict[str, Any]:
    return {"bits": response.cluster_authorized_operations}


def _look_at_group_bits(response: Any) -> dict[str, Any]:
    return {"bits": response.groups[0].authorized_operations}


def _look_at_offsets(response: Any) -> dict[str, Any]:
    topics = response.groups[0].topics
    return {"offsets": sorted([t.name or "by id", [p.committed_offset for p in t.partitions]] for t in topics)}


def _look_at_created(response: Any) -> dict[str, Any]:
    (topic,) = response.topics
    return {
        "config_error": ErrorCode(topic.topic_config_error_code).name,
        "configs": "some" if topic.configs else "none",
        "partitions": topic.num_partitions,
    }


def _look_at_deleted(response: Any) -> dict[str, Any]:
    (topic,) = response.responses
    return {"name": topic.name, "has_id": topic.topic_id != ZERO_UUID}


_LOOKS: Final = {
    "metadata-name": _look_at_topics,
    "metadata-id": _look_at_topics,
    "metadata-all": _look_at_topics,
    "metadata-unknown-name": _look_at_topics,
    "precedence-describe": _look_at_topics,
    "describe-topic-partitions": _look_at_topics,
    "describe-topic-partitions-all": _look_at_topic_names,
    "metadata-cluster-ops-v10": _look_at_cluster_bits,
    "describe-cluster": _look_at_cluster_bits,
    "describe-groups": _look_at_group_bits,
    "offset-fetch-id": _look_at_offsets,
    "offset-fetch-name": _look_at_offsets,
    "offset-fetch-all": _look_at_offsets,
    "list-groups-by-group": lambda response: {"cells-g_listed": G in {each.group_id for each in response.groups}},
    "list-groups-by-cluster": lambda response: {"cells-g_listed": G in {each.group_id for each in response.groups}},
    "create-topics-by-topic": _look_at_created,
    "create-topics-by-cluster": _look_at_created,
    "delete-topics-name": _look_at_deleted,
    "delete-topics-id": _look_at_deleted,
    "delete-topics-id-describable": _look_at_deleted,
    "delete-topics-by-cluster": _look_at_deleted,
    "delete-topics-unknown": _look_at_deleted,
    "describe-transactions": lambda response: {
        "topics": [each.topic for each in response.transaction_states[0].topics]
    },
    "list-transactions": lambda response: {
        "ids": [each.transactional_id for each in response.transaction_states if each.transactional_id == OPEN]
    },
    "describe-log-dirs": lambda response: {"dirs": len(response.results)},
    "describe-log-dirs-v2": lambda response: {"dirs": len(response.results)},
}

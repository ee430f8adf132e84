"""The stage of ``acl_cells.txt`` in this process."""

import inspect
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from oncelog.broker.dispatch.request import Principal, RequestContext
from oncelog.broker.parts import Broker
from oncelog.coordinator.controller.acl_changes import Addition, Change, Removal
from oncelog.protocol.acl import AccessControlEntry, AclBinding, AclBindingFilter, ResourcePattern
from oncelog.protocol.compiler import decode, encode
from oncelog.protocol.schema import ZERO_UUID
from tests.conformance.acl_stage import AclStage
from tests.unit.broker.handlers.administration import running_broker
from tests.unit.broker.handlers.test_delegation_tokens import WITH_TOKENS
from tests.unit.broker.outcomes import without_shape
from tests.unit.broker.replica_side import new_connection
from tests.unit.protocol.built import built


class BrokerStage(AclStage):
    """A broker in this process, whose handlers are called."""

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self._broker = broker
        self._handlers = {handler.name: handler for handler in broker.handlers}

    async def topic_id(self, name: str) -> bytes:
        topic = self._broker.metadata.image.topic(name)
        return ZERO_UUID if topic is None else topic.topic_id

    async def send(self, api: str, version: int, fields: Mapping[str, Any], principal: Principal) -> Any:
        handler = self._handlers[api]
        request = built(handler.request_type, fields)
        received = decode(handler.request_type, version, bytes(encode(request, version)))
        connection = new_connection()
        connection.principal = principal
        outcome = without_shape(handler(self._broker, RequestContext(version, 1, "client", connection), received))
        response = await outcome if inspect.isawaitable(outcome) else outcome
        return decode(type(response), version, bytes(encode(response, version)))

    async def replace_rules(self, rules: list[AclBinding]) -> None:
        acls = self._broker.acls
        assert acls is not None
        everything: Change = Removal((AclBindingFilter(),))
        changes: dict[ResourcePattern, Change] = dict.fromkeys(acls.acls, everything)
        await acls.change(changes)
        by_pattern: dict[ResourcePattern, set[AccessControlEntry]] = {}
        for rule in rules:
            by_pattern.setdefault(rule.pattern, set()).add(rule.entry)
        await acls.change({pattern: Addition(frozenset(entries)) for pattern, entries in by_pattern.items()})


@asynccontextmanager
async def acl_stage(*, allows_everyone: bool) -> AsyncIterator[BrokerStage]:
    settings = {
        "broker_id": "1",
        "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super_users": "User:ANONYMOUS;User:super",
        "allow_everyone_if_no_acl_found": str(allows_everyone).lower(),
        "offsets_topic_num_partitions": "1",
        "transaction_state_log_num_partitions": "1",
        **WITH_TOKENS,
    }
    async with running_broker(**settings) as broker:
        stage = BrokerStage(broker)
        await stage.prepare()
        yield stage

"""``AclStage``: the broker of ``acl_cells.txt``, its topics, groups, transactions and token, and its clients."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Final

from oncelog.broker.dispatch.request import ANONYMOUS, Principal
from oncelog.coordinator.controller.acl_changes import why_invalid_binding
from oncelog.protocol.acl import AclBinding, AclResourceType
from oncelog.protocol.errors import ErrorCode
from tests.conformance.acl_requests import COMMITTED, OPEN, REQUESTS, G, T, U
from tests.conformance.acl_responses import described, error_codes
from tests.conformance.acl_table import TOKEN, Cell

ALICE: Final = Principal("User", "alice")
BOB: Final = Principal("User", "bob")
SUPER: Final = Principal("User", "super")
_NOT_YET: Final = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR}
)
_ATTEMPTS: Final = 300


class AclStage(ABC):
    """A broker on which the requests of the table are sent. ``ANONYMOUS`` and ``SUPER`` are its super users."""

    def __init__(self) -> None:
        self.token_id = ""
        """A token of ``BOB``."""
        self.token_hmac = b""

    @abstractmethod
    async def topic_id(self, name: str) -> bytes: ...

    @abstractmethod
    async def send(self, api: str, version: int, fields: Mapping[str, Any], principal: Principal) -> Any:
        """Send a request once, and return the response."""

    @abstractmethod
    async def replace_rules(self, rules: list[AclBinding]) -> None:
        """Have these access control lists and no others."""

    async def set_rules(self, rules: Iterable[AclBinding]) -> None:
        """Have these access control lists, but for those that Kafka refused when it was recorded."""
        await self.replace_rules([self._named(rule) for rule in rules if why_invalid_binding(rule) is None])

    def _named(self, rule: AclBinding) -> AclBinding:
        """Return a rule of the table with the id of this broker's token."""
        name = rule.pattern.name
        if rule.pattern.resource_type is not AclResourceType.DELEGATION_TOKEN or not TOKEN.startswith(name):
            return rule
        return rule._replace(pattern=rule.pattern._replace(name=self.token_id[: len(name)]))

    async def set_up(self, api: str, version: int, **fields: Any) -> Any:
        """Send a request as an administrator, until it succeeds."""
        return await self._until_settled(api, version, fields, ANONYMOUS)

    async def _until_settled(self, api: str, version: int, fields: Mapping[str, Any], principal: Principal) -> Any:
        """Send a request, and repeat it as clients do, until its response is final."""
        for _ in range(_ATTEMPTS):
            response = await self.send(api, version, fields, principal)
            if not _NOT_YET.intersection(error_codes(response, version)):
                return response
            await asyncio.sleep(0.002)
        raise AssertionError(f"{api} does not succeed: {response}")

    async def prepare(self) -> None:
        """Make what the requests are about."""
        for name in (T, U):
            await self.create_topic(name)
        for key_type, key in ((0, G), (1, OPEN)):
            await self._find_coordinator(key_type, key)
        await self.commit_offsets()
        await self.add_partition(OPEN, await self.producer(OPEN))
        token = await self.send("CreateDelegationToken", 3, {"max_lifetime_ms": -1}, BOB)
        assert token.error_code == ErrorCode.NONE, token
        self.token_id, self.token_hmac = token.token_id, token.hmac

    async def commit_offsets(self) -> None:
        """Have the group commit an offset of each topic."""
        topics = [{"name": name, "partitions": [COMMITTED]} for name in (T, U)]
        await self.set_up("OffsetCommit", 9, group_id=G, generation_id_or_member_epoch=-1, member_id="", topics=topics)

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

    async def respond(self, cell: Cell) -> str:
        """What the broker responds to the request of a cell, in the words of the table."""
        await self.set_rules(cell.rules)
        fields = await REQUESTS[cell.request](self)
        response = await self._until_settled(cell.api, cell.version, fields, SUPER if cell.is_super else ALICE)
        return described(cell, response, self.token_id)

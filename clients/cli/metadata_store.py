"""Whether a broker reaches the cluster's metadata store (ZooKeeper, or KRaft's controllers), as a client can find out.

There is no request for that. The command has a broker validate a change of none of its settings: for that the broker
must read the store, and nothing is changed.
"""

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

from oncelog.clients.cluster import Cluster
from oncelog.clients.connection import Connection
from oncelog.clients.errors import ClientError, RequestTimedOut
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

T = TypeVar("T")

_BROKER_RESOURCE: Final = 4
_SECONDS: Final = 3.0
_LOOK_SECONDS: Final = 2.0
"""Seconds after which a change that is not done has the store checked, repeatedly."""
_NO_RESPONSE: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER})

WITHOUT_STORE: Final = (
    "its metadata store (ZooKeeper) does not respond: clients go on reading and writing where the leader lives, with "
    "acks=all only while every in-sync replica is alive; no leader can be elected, and no topic, setting or ISR "
    "can change meanwhile"
)
_UNKNOWN: Final = (
    "its metadata store (ZooKeeper) does not respond. The change is not done yet, and may be done as soon as "
    "it responds again: check before you try again"
)
STORE_ADVICE: Final = "see that ZooKeeper runs, and that the broker reaches it (zookeeper.connect)"


async def reaches_store(connection: Connection, broker_id: int) -> bool | None:
    """Return whether the broker on the connection reaches its store; None if it does not say."""
    resource = AlterConfigsResource(resource_type=_BROKER_RESOURCE, resource_name=str(broker_id))
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
    try:
        response = await connection.send(request, IncrementalAlterConfigsResponse, timeout=_SECONDS)
    except RequestTimedOut:
        return False
    except ClientError:
        return None
    codes = {result.error_code for result in response.responses}
    if codes == {ErrorCode.NONE}:
        return True
    return False if codes & _NO_RESPONSE else None


class StoreLost(ClientError):
    """No broker reaches the metadata store, which would have to keep a change. It may be kept later all the same."""


async def unless_store_is_lost(cluster: Cluster, change: Awaitable[T]) -> T:
    """Return the outcome of a change, which is retried while brokers refuse it for now.

    ``StoreLost`` if it is not done after a few seconds, and then every broker that says so is without its store.
    """
    async with asyncio.TaskGroup() as group:
        under_way = group.create_task(_outcome(change))
        look = group.create_task(_until_store_is_lost(cluster))
        await asyncio.wait({under_way, look}, return_when=asyncio.FIRST_COMPLETED)
        under_way.cancel()
        look.cancel()
    if under_way.cancelled():
        raise StoreLost(f"broker {', '.join(map(str, look.result()))}: {_UNKNOWN}")
    outcome = under_way.result()
    if isinstance(outcome, ClientError):
        raise outcome
    return outcome


async def _outcome(change: Awaitable[T]) -> T | ClientError:
    try:
        return await change
    except ClientError as error:
        return error


async def _until_store_is_lost(cluster: Cluster) -> list[int]:
    """Return the brokers that have lost their store, once all brokers that report on it have."""
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        known = sorted(cluster.brokers)
        found = await asyncio.gather(*(_store_of(cluster, broker_id) for broker_id in known))
        if False in found and True not in found:
            return [broker_id for broker_id, has_store in zip(known, found, strict=True) if has_store is False]


async def _store_of(cluster: Cluster, broker_id: int) -> bool | None:
    """Return whether a broker reaches its store; None if it does not say.

    The connection is another one than the change's, as responses come in order.
    """
    address = cluster.brokers.get(broker_id)
    if address is None:
        return None
    try:
        async with asyncio.timeout(_SECONDS):
            connection = await cluster.connect(address)
    except (ClientError, TimeoutError):
        return None
    try:
        return await reaches_store(connection, broker_id)
    finally:
        connection.close()

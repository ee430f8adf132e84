"""A whole broker on a disk in memory, and its administrative APIs called as dispatch calls them."""

import asyncio
import copy
import inspect
import random
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from oncelog.broker.config.sources import load_config
from oncelog.broker.dispatch.api_handler import ApiHandler
from oncelog.broker.dispatch.request import ANONYMOUS, Principal, RequestContext
from oncelog.broker.metadata.store_choice import OpenStore, open_store
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation, ResourceType
from oncelog.broker.start import start_broker
from oncelog.protocol.schema import Message
from tests.simulation.sim_disk import SimDisk
from tests.unit.broker.deciding import Deciding
from tests.unit.broker.outcomes import without_shape
from tests.unit.broker.replica_side import new_connection

R = TypeVar("R", bound=Message)


class Denies(Deciding):
    """An ``Authorizer`` that denies some operations on everything."""

    def __init__(self, operations: Collection[Operation]) -> None:
        self._operations = operations

    def authorize(self, context: RequestContext, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return operation not in self._operations


def new_disk() -> SimDisk:
    disk = SimDisk()
    disk.make_dirs("/data")
    disk.sync_dir("/")
    return disk


def after_power_loss(disk: SimDisk) -> SimDisk:
    """What a machine would find if it lost its power at this moment."""
    survivor = copy.deepcopy(disk)
    survivor.crash("power", random.Random(7))
    return survivor


@asynccontextmanager
async def running_broker(
    disk: SimDisk | None = None,
    wall_clock: Callable[[], int] = lambda: 1_700_000_000_000,
    open_store: OpenStore = open_store,
    **settings: str,
) -> AsyncIterator[Broker]:
    """Settings are Kafka's keys with underscores for dots."""
    given = {key.replace("_", "."): value for key, value in settings.items()}
    overrides = {"listeners": "PLAINTEXT://localhost:0", "log.dirs": "/data", **given}
    config = load_config(overrides=[f"{key}={value}" for key, value in overrides.items()]).config
    broker = await start_broker(
        config, disk=disk or new_disk(), wall_clock=wall_clock, rng=random.Random(1), open_store=open_store
    )
    try:
        yield broker
    finally:
        await broker.stop()


async def ask(
    broker: Broker,
    handler: ApiHandler[Any],
    request: Message,
    response: type[R],
    version: int = -1,
    *,
    principal: Principal = ANONYMOUS,
) -> R:
    """The response to a request; its version is the handler's newest unless said otherwise."""
    chosen = handler.versions.last if version < 0 else version
    connection = new_connection()
    connection.principal = principal
    outcome = without_shape(handler(broker, RequestContext(chosen, 1, "client", connection), request))
    received = await outcome if inspect.isawaitable(outcome) else outcome
    assert isinstance(received, response)
    return received


async def settle() -> None:
    """Let everything happen that happens within 10 ms."""
    await asyncio.sleep(0.01)

"""A client of scripted brokers that know of each other."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random

from oncelog.clients.cluster import Cluster
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.schema import Message
from tests.unit.clients.scripted_broker import ScriptedBroker, ScriptedResponse, metadata, requested_only

OPERATION_SECONDS = 30.0


@asynccontextmanager
async def cluster_of(
    *brokers: ScriptedBroker, leaders: Mapping[str, list[int]] | None = None
) -> AsyncIterator[Cluster]:
    """A client of brokers that all tell of each other; the first is the bootstrap."""
    addresses = {broker.node_id: await broker.start() for broker in brokers}
    reported = requested_only(metadata(addresses, leaders or {}))
    for broker in brokers:
        broker.script.setdefault(MetadataRequest, reported)
    bootstrap = [addresses[brokers[0].node_id]]
    async with Cluster(bootstrap, rng=Random(1), operation_seconds=OPERATION_SECONDS) as cluster:
        yield cluster
    for broker in brokers:
        broker.stop()


def in_turn(*responses: ScriptedResponse) -> "Turns":
    return Turns(responses)


class Turns:
    """Each request gets the next response; the last one stays."""

    def __init__(self, responses: tuple[ScriptedResponse, ...]) -> None:
        self._responses = list(responses)

    def __call__(self, request: Message) -> ScriptedResponse:
        return self._responses.pop(0) if len(self._responses) > 1 else self._responses[0]

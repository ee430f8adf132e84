"""A client of scripted brokers that know of each other."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random

from oncelog.clients.cluster import Cluster
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.schema import Message
from tests.unit.clients.scripted_broker import Answer, ScriptedBroker, metadata, only_asked

OPERATION_SECONDS = 30.0


@asynccontextmanager
async def cluster_of(
    *brokers: ScriptedBroker, leaders: Mapping[str, list[int]] | None = None
) -> AsyncIterator[Cluster]:
    """A client of brokers that all tell of each other; the first is the bootstrap."""
    addresses = {broker.node_id: await broker.start() for broker in brokers}
    told = only_asked(metadata(addresses, leaders or {}))
    for broker in brokers:
        broker.script.setdefault(MetadataRequest, told)
    bootstrap = [addresses[brokers[0].node_id]]
    async with Cluster(bootstrap, rng=Random(1), operation_seconds=OPERATION_SECONDS) as cluster:
        yield cluster
    for broker in brokers:
        broker.stop()


def in_turn(*answers: Answer) -> "Turns":
    return Turns(answers)


class Turns:
    """Each request gets the next answer; the last one stays."""

    def __init__(self, answers: tuple[Answer, ...]) -> None:
        self._answers = list(answers)

    def __call__(self, request: Message) -> Answer:
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

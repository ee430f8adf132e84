"""Malformed frames of every kind against a broker whose settings make the fate of each known."""

import asyncio
from collections.abc import Sequence
from typing import Final

from oncelog.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.hostile.attacks import Tally
from tests.hostile.stage import Stage
from tests.scenarios.bad_batches import MAX_DECOMPRESSED_BYTES, TOPIC_CONFIGS
from tests.scenarios.frame_flood import Flood
from tests.scenarios.malformed_frames import MAX_FRAME_BYTES, SCRATCH, FrameFactory
from tests.simulation import requests
from tests.simulation.wire_client import WireClient

FRAME_SETTINGS: Final = (
    "auto.create.topics.enable=false",
    "group.initial.rebalance.delay.ms=0",
    "offsets.topic.num.partitions=2",
    "transaction.state.log.num.partitions=2",
    f"socket.request.max.bytes={MAX_FRAME_BYTES}",
    f"oncelog.max.decompressed.bytes={MAX_DECOMPRESSED_BYTES}",
)


def prepare_for_frames(port: int) -> list[bytes]:
    """Create the topics that the frames name; the topic id that they may know."""
    return asyncio.run(_prepare(port))


async def _prepare(port: int) -> list[bytes]:
    client = await WireClient.connect(port, response_within=30.0)
    topics = [
        CreatableTopic(
            name=name,
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        for name, configs in {**TOPIC_CONFIGS, SCRATCH: {}}.items()
    ]
    response = await client.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
    ids = {topic.name: topic.topic_id for topic in response.topics}
    for transactional in (True, False):  # Coordinators that are there: what waits for them would only wait.
        find = requests.find_coordinator("fuzz", transactional=transactional)
        while (await client.call(find, 2)).error_code:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    client.close()
    return [ids[SCRATCH]]


async def flood(stage: Stage, seed: int, topic_ids: Sequence[bytes], count: int, tally: Tally) -> None:
    """Send ``count`` frames over eight connections at a time, and hold every frame to its fate."""
    sent = Flood(stage.broker.port)
    await sent.run(FrameFactory(seed, topic_ids).frames(count))
    tally.inputs += sent.sent.total()
    for (_, fate), number in sent.sent.items():
        tally.fates[fate.name.lower()] += number
    tally.harms.update(sent.problems)

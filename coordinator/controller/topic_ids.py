"""``TopicIds``: topics without an id get one. Releases of Kafka before 2.8, and old tools, wrote none.

A new controller writes what is missing before it decides anything. An id that it knows, from its own logs or from the
metadata that it had, is the topic's: an old tool has left it out. A topic gets a new id if it has no partition states
yet, or if the controller's own replica was never given one. Every other topic stays without: the logs of other brokers
may have an id that this controller does not know, and by another id they would be those of a deleted topic. Its leaders
name it by name when they propose a change of the ISR.

The brokers learn the ids with the next LeaderAndIsr, and note them beside their logs.
"""

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from logging import getLogger

from oncelog.coordinator.controller.cluster_state import TopicState
from oncelog.coordinator.controller.controller_context import ControllerContext
from oncelog.coordinator.controller.topic_plan import new_topic_id
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.store import MultiFailed, SetData
from oncelog.protocol.schema import ZERO_UUID

_log = getLogger(__name__)


class TopicIds:
    """Where the ids of topics come from that have none."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.known: Callable[[], Mapping[str, bytes]] = dict
        """By which ids this broker knows topics, without the metadata store."""
        self.without: Callable[[], Collection[str]] = tuple
        """Of which topics it has logs, and none with an id."""

    async def give(self, context: ControllerContext) -> None:
        """Give topics ids, in the metadata store and in the controller's state.

        Raise ``StoreUnavailable`` or ``ControllerMoved``.
        """
        without_id = {
            name: topic
            for name, topic in sorted(context.state.topics.items())
            if topic.assignment.topic_id == ZERO_UUID
        }
        if not without_id:
            return
        without = self.without()
        unnamed = [name for name, topic in without_id.items() if not topic.states or name in without]
        ids = {**{name: new_topic_id(self._rng) for name in unnamed}, **self.known()}
        given = {name: _with_id(topic, ids[name]) for name, topic in without_id.items() if name in ids}
        if len(given) < len(without_id):
            left = sorted(without_id.keys() - given.keys())
            _log.warning(
                "Topics have no id, and this controller does not know whether they had one: %s", ", ".join(left)
            )
        results = await context.commit_many([[_write(name, topic)] for name, topic in given.items()])
        for (name, topic), result in zip(given.items(), results, strict=True):
            if isinstance(result, MultiFailed):
                _log.warning("Topic %s has no id and cannot be given one: %s", name, result.error.value)
                continue
            written = result[0].stat
            assert written is not None, "a set has a stat"
            topic.version = written.version
            context.state.put_topic(name, topic)
            _log.info("Topic %s had no id, and has %s now", name, znodes.encode_uuid(topic.assignment.topic_id))


def _with_id(topic: TopicState, topic_id: bytes) -> TopicState:
    assignment = replace(topic.assignment, topic_id=topic_id)
    return TopicState(assignment=assignment, version=topic.version, states=topic.states)


def _write(name: str, topic: TopicState) -> SetData:
    return SetData(path=paths.topic(name), data=znodes.encode_topic(topic.assignment), version=topic.version)

"""Reading the cluster from the metadata store: what a new controller begins with, and who is alive.

A topic that cannot be read is left alone, loudly: guessing its partitions could delete or move data.
"""

import logging
from collections.abc import Iterable

from coordinator.controller.cluster_state import ClusterState, LiveBroker, TopicState
from coordinator.controller.leadership import versioned_state
from coordinator.metadata_store import paths, znodes
from coordinator.metadata_store.store import Session, Watch

logger = logging.getLogger(__name__)


async def load_cluster(session: Session, state: ClusterState, brokers_changed: Watch) -> None:
    """Fill an empty state. ``brokers_changed`` is called when brokers come or go afterwards."""
    state.brokers = await read_brokers(session, brokers_changed)
    await _load_topics(session, state)
    marked = await session.children(paths.DELETE_TOPICS) or ()
    state.topics_to_delete = dict.fromkeys(name for name in marked if name in state.topics)


async def read_brokers(session: Session, changed: Watch) -> dict[int, LiveBroker]:
    """The brokers that are registered now."""
    names = await session.children(paths.BROKER_IDS, changed) or ()
    broker_ids = sorted(int(name) for name in names)
    found = await session.get_many([paths.broker(broker_id) for broker_id in broker_ids])
    return {
        broker_id: LiveBroker(registration=znodes.decode_broker(broker_id, znode.data), epoch=znode.stat.czxid)
        for broker_id, znode in zip(broker_ids, found, strict=True)
        if znode is not None
    }


async def _load_topics(session: Session, state: ClusterState) -> None:
    names = await session.children(paths.TOPICS) or ()
    found = await session.get_many([paths.topic(name) for name in names])
    for name, znode in zip(names, found, strict=True):
        if znode is None:
            continue
        try:
            assignment = znodes.decode_topic(znode.data)
        except znodes.MalformedZnode as error:
            logger.error("Topic %s is left alone: %s", name, error)
            continue
        state.put_topic(name, TopicState(assignment=assignment, version=znode.stat.version))
    await load_states(session, state, names)


async def load_states(session: Session, state: ClusterState, topics: Iterable[str]) -> None:
    """Read the states of the topics' partitions, as far as they have one."""
    partitions = list(state.partitions(name for name in topics if name in state.topics))
    found = await session.get_many([paths.partition_state(partition) for partition in partitions])
    for partition, znode in zip(partitions, found, strict=True):
        if znode is not None:
            state.put_state(partition, versioned_state(znode))

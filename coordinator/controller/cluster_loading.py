"""Reading the cluster from the metadata store: what a new controller begins with, and the registered brokers.

A znode that cannot be decoded is set aside, with an ERROR that names it: guessing what it says could delete or move
data. A malformed topic is left alone as a whole; a malformed partition state concerns that partition only; a malformed
registration of a broker that was known before counts as it was, and else as absent.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from oncelog.coordinator.controller.cluster_state import ClusterState, LiveBroker, TopicState
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.store import Session, Watch, Znode
from oncelog.coordinator.metadata_store.znodes import MalformedZnode

_BROKER_ID: Final = re.compile("[0-9]{1,9}")


async def load_cluster(session: Session, state: ClusterState, brokers_changed: Watch) -> None:
    """Fill an empty state. ``brokers_changed`` is called when brokers come or go afterwards."""
    state.brokers = await read_brokers(session, state, brokers_changed)
    await _load_topics(session, state)
    marked = await session.children(paths.DELETE_TOPICS) or ()
    state.topics_to_delete = dict.fromkeys(name for name in marked if name in state.topics)


async def read_brokers(session: Session, state: ClusterState, changed: Watch) -> dict[int, LiveBroker]:
    """Read the brokers that are registered now."""
    names = await session.children(paths.BROKER_IDS, changed) or ()
    registrations = f"{paths.BROKER_IDS}/"
    for path in [path for path in state.malformed if path.startswith(registrations)]:
        if path.removeprefix(registrations) not in names:
            del state.malformed[path]
    broker_ids = sorted(int(name) for name in names if _BROKER_ID.fullmatch(name))
    strange = [name for name in names if not _BROKER_ID.fullmatch(name)]
    if strange:
        await _set_strange_aside(session, state, strange)
    found = await session.get_many([paths.broker(broker_id) for broker_id in broker_ids])
    registered = {
        broker_id: _live_broker(state, broker_id, znode)
        for broker_id, znode in zip(broker_ids, found, strict=True)
        if znode is not None
    }
    return {broker_id: broker for broker_id, broker in registered.items() if broker is not None}


async def _set_strange_aside(session: Session, state: ClusterState, names: Sequence[str]) -> None:
    """Set aside what is registered under no broker id."""
    strange = [f"{paths.BROKER_IDS}/{name}" for name in names]
    for path, znode in zip(strange, await session.get_many(strange), strict=True):
        if znode is not None:
            state.set_aside(path, znode, MalformedZnode("not a broker id"))


def _live_broker(state: ClusterState, broker_id: int, znode: Znode) -> LiveBroker | None:
    """Decode a registration; return the earlier one, or None, if it cannot be decoded."""
    try:
        registration = znodes.decode_broker(broker_id, znode.data)
    except MalformedZnode as error:
        state.set_aside(paths.broker(broker_id), znode, error)
        known = state.brokers.get(broker_id)
        return known if known is not None and known.epoch == znode.stat.czxid else None
    state.malformed.pop(paths.broker(broker_id), None)
    return LiveBroker(registration=registration, epoch=znode.stat.czxid)


async def _load_topics(session: Session, state: ClusterState) -> None:
    names = await session.children(paths.TOPICS) or ()
    found = await session.get_many([paths.topic(name) for name in names])
    for name, znode in zip(names, found, strict=True):
        if znode is None:
            continue
        try:
            assignment = znodes.decode_topic(znode.data)
        except MalformedZnode as error:
            state.set_aside(paths.topic(name), znode, error)
            state.unreadable.add(name)
            continue
        state.put_topic(name, TopicState(assignment=assignment, version=znode.stat.version))
    await load_states(session, state, names)


async def load_states(session: Session, state: ClusterState, topics: Iterable[str]) -> None:
    """Read the states of the topics' partitions, as far as they have one."""
    partitions = list(state.partitions(name for name in topics if name in state.topics))
    found = await session.get_many([paths.partition_state(partition) for partition in partitions])
    for partition, znode in zip(partitions, found, strict=True):
        if znode is not None:
            state.take_state(partition, znode)


async def watch_malformed(session: Session, state: ClusterState, mended: Watch) -> bool:
    """Leave a watch at each znode that is set aside. Returns whether one has changed since it was read."""
    changed = False
    for path, mzxid in list(state.malformed.items()):
        znode = await session.get(path, mended)
        changed = changed or znode is None or znode.stat.mzxid != mzxid
    return changed

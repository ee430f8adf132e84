"""A broker's place in the cluster: the cluster's id, and the broker's own ephemeral registration.

The id of the transaction that made the registration is the broker's epoch: control requests meant for an earlier life
of the broker carry an earlier one. A registration that exists already is told apart by the session that owns it: our
own (a create whose answer was lost) is taken for what it is, anybody else's is ``BrokerIdTaken``.
"""

import random

from coordinator.metadata_store import paths, znodes
from coordinator.metadata_store.store import Create, Done, Session, StoreError


class BrokerIdTaken(Exception):
    """Another live session has registered a broker of this id."""


async def prepare(session: Session) -> None:
    """Make sure that the znodes exist that everything else lies below."""
    existing = await session.get_many(paths.PERSISTENT_PATHS)
    missing = [path for path, znode in zip(paths.PERSISTENT_PATHS, existing, strict=True) if znode is None]
    # One batch each: another broker may be doing the same.
    await session.multi_many([[Create(path=path)] for path in missing])


async def cluster_id(session: Session, rng: random.Random) -> str:
    """The cluster's id; the first broker that asks for it gives it one."""
    await prepare(session)
    while True:
        znode = await session.get(paths.CLUSTER_ID)
        if znode is not None:
            return znodes.decode_cluster_id(znode.data)
        await session.create(paths.CLUSTER_ID, znodes.encode_cluster_id(znodes.encode_uuid(rng.randbytes(16))))


async def register(session: Session, registration: znodes.BrokerRegistration, now_ms: int) -> int:
    """Register a broker for as long as the session lasts; returns the broker's epoch."""
    path = paths.broker(registration.broker_id)
    data = znodes.encode_broker(registration, now_ms)
    while True:
        created = await session.create(path, data, ephemeral=True)
        if isinstance(created, Done):
            assert created.stat is not None, "a create has a stat"
            return created.stat.czxid
        assert created is StoreError.NODE_EXISTS, f"{path} cannot be created: {created}"
        existing = await session.get(path)
        if existing is not None and existing.stat.ephemeral_owner == session.session_id:
            return existing.stat.czxid
        if existing is not None:
            raise BrokerIdTaken(
                f"a broker with id {registration.broker_id} is registered by session "
                f"{existing.stat.ephemeral_owner:#x}; this is session {session.session_id:#x}"
            )

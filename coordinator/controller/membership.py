"""A broker's place in the cluster: the cluster's id, and the broker's own ephemeral registration.

The id of the transaction that made the registration is the broker's epoch: control requests to an earlier
incarnation carry an earlier one. A registration that exists already is recognised by the session that owns it: our
own (a create whose response was lost) counts as made, that of another session is ``BrokerIdTaken``. That may be what a
killed broker left behind, until the store gives its session up: ``await_free_id`` waits for that, unless the broker
that it names is alive.

Beside each registration a znode that outlives it says in which session it was made (``paths.last_registration``). It is
written in the same transaction, so that its ``mzxid`` is the broker's epoch, also for a broker that never learned it.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.store import (
    NO_SESSION,
    Create,
    Done,
    MultiFailed,
    Session,
    SetData,
    StoreError,
    StoreUnavailable,
    Znode,
)
from oncelog.coordinator.ports import IntactLogs, LastRegistration

logger = logging.getLogger(__name__)

_REPORT_SECONDS: Final = 2.0
_ATTEMPTS: Final = 10


class BrokerIdTaken(Exception):
    """Another live session has registered a broker of this id."""


class EndpointTaken(Exception):
    """Another live broker has registered an address that this one advertises."""


async def prepare(session: Session) -> None:
    """Make sure that the znodes exist that everything else lies below."""
    existing = await session.get_many(paths.PERSISTENT_PATHS)
    missing = [path for path, znode in zip(paths.PERSISTENT_PATHS, existing, strict=True) if znode is None]
    # One batch each: another broker may be doing the same.
    await session.multi_many([[Create(path=path)] for path in missing])


async def cluster_id(session: Session, rng: random.Random) -> str:
    """Return the cluster's id; the first broker creates it."""
    await prepare(session)
    while True:
        znode = await session.get(paths.CLUSTER_ID)
        if znode is not None:
            return znodes.decode_cluster_id(znode.data)
        await session.create(paths.CLUSTER_ID, znodes.encode_cluster_id(znodes.encode_uuid(rng.randbytes(16))))


async def generated_broker_id(session: Session, reserved_max_id: int) -> int:
    """Return an unused broker id: one more each time, beyond ``reserved_max_id``."""
    done = await session.set(paths.BROKER_SEQUENCE, b"")
    assert isinstance(done, Done), f"{paths.BROKER_SEQUENCE} cannot be written: {done}"
    assert done.stat is not None, "a set has a stat"
    return reserved_max_id + done.stat.version


async def await_free_id(
    session: Session,
    broker_id: int,
    patience_seconds: float,
    is_alive: Callable[[znodes.BrokerRegistration], Awaitable[bool]],
) -> None:
    """Wait until no other session has registered this id.

    Raises ``BrokerIdTaken`` if one still has after ``patience_seconds``, or at once if the broker that registered it is
    alive.
    """
    path, loop, changed = paths.broker(broker_id), asyncio.get_running_loop(), asyncio.Event()
    deadline = loop.time() + patience_seconds
    while True:
        changed.clear()
        existing = await session.get(path, changed.set)
        if existing is None or existing.stat.ephemeral_owner == session.session_id:
            return
        registration = _registration(broker_id, existing)
        if registration is not None and await is_alive(registration):
            raise BrokerIdTaken(
                f"broker.id={broker_id} is taken by a live broker, {_place(registration)}: choose another broker.id"
            )
        seconds_left = deadline - loop.time()
        if seconds_left <= 0:
            raise _taken(broker_id, existing)
        logger.warning(
            "Broker id %d is still registered by session %#x, %s, perhaps of a broker that was killed: waiting until "
            "it expires, at most %.0f s",
            broker_id,
            existing.stat.ephemeral_owner,
            _place(registration),
            seconds_left,
        )
        try:
            async with asyncio.timeout(min(seconds_left, _REPORT_SECONDS)):
                await changed.wait()
        except TimeoutError:
            continue


async def check_endpoints(
    session: Session,
    registration: znodes.BrokerRegistration,
    is_alive: Callable[[znodes.BrokerRegistration], Awaitable[bool]],
) -> None:
    """Raise ``EndpointTaken`` if clients that look for this broker would find another one.

    An address that is registered for a broker that has stopped may be given to the next one.
    """
    advertised = {(each.host, each.port): each for each in registration.endpoints}
    names = [name for name in await session.children(paths.BROKER_IDS) or () if name.isdecimal()]
    others = [int(name) for name in names if int(name) != registration.broker_id]
    for broker_id, znode in zip(others, await session.get_many(list(map(paths.broker, others))), strict=True):
        other = None if znode is None else _registration(broker_id, znode)
        shared = [] if other is None else [each for each in other.endpoints if (each.host, each.port) in advertised]
        if other is not None and shared and await is_alive(other):
            mine = advertised[shared[0].host, shared[0].port]
            raise EndpointTaken(
                f"advertised.listeners has {mine.listener}://{mine.host}:{mine.port}, which is the address of broker "
                f"{broker_id}: clients would take that one for broker {registration.broker_id}. Give each broker an "
                "address of its own in advertised.listeners"
            )


def _registration(broker_id: int, znode: Znode) -> znodes.BrokerRegistration | None:
    try:
        return znodes.decode_broker(broker_id, znode.data)
    except znodes.MalformedZnode:
        return None


def _place(registration: znodes.BrokerRegistration | None) -> str:
    """Return the endpoints of a registration, for a message."""
    if registration is None or not registration.endpoints:
        return "at no known address"
    return "at " + ", ".join(f"{each.listener}://{each.host}:{each.port}" for each in registration.endpoints)


def _taken(broker_id: int, existing: Znode) -> BrokerIdTaken:
    return BrokerIdTaken(
        f"broker.id={broker_id} is registered by session {existing.stat.ephemeral_owner:#x}, "
        f"{_place(_registration(broker_id, existing))}, which has neither responded nor expired"
    )


async def register(session: Session, registration: znodes.BrokerRegistration, now_ms: int, logs: IntactLogs) -> int:
    """Register a broker for as long as the session lasts, with what its logs have kept; returns the broker's epoch.

    Raise ``BrokerIdTaken``, ``StoreUnavailable`` (other processes change the znodes all the time) or ``OSError``.
    """
    for _ in range(_ATTEMPTS):
        await prepare(session)
        last = await session.get(paths.last_registration(registration.broker_id))
        await logs.begin_registration(session.session_id, None if last is None else _last_registration(last))
        complete = replace(
            registration, intact_since=logs.since, intact_until=logs.until, intact_before=tuple(logs.earlier)
        )
        epoch = await _try_to_register(session, complete, now_ms, last)
        if epoch is not None:
            return epoch
    raise StoreUnavailable(f"{paths.last_registration(registration.broker_id)} is changed again and again")


def _last_registration(znode: Znode) -> LastRegistration:
    try:
        session_id = znodes.decode_last_registration(znode.data)
    except znodes.MalformedZnode:
        session_id = NO_SESSION  # Nothing proves that it was this broker's.
    return LastRegistration(session_id, znode.stat.mzxid)


async def _try_to_register(
    session: Session, registration: znodes.BrokerRegistration, now_ms: int, last: Znode | None
) -> int | None:
    """Return the broker's epoch; None if a process has registered this id since ``last`` was read."""
    path, path_of_last = paths.broker(registration.broker_id), paths.last_registration(registration.broker_id)
    owner = znodes.encode_last_registration(session.session_id)
    result = await session.multi(
        [
            Create(path=path, data=znodes.encode_broker(registration, now_ms), ephemeral=True),
            Create(path=path_of_last, data=owner)
            if last is None
            else SetData(path=path_of_last, data=owner, version=last.stat.version),
        ]
    )
    if not isinstance(result, MultiFailed):
        created = result[0].stat
        assert created is not None, "a create has a stat"
        return created.czxid
    if result.index == 0:
        assert result.error is StoreError.NODE_EXISTS, f"{path} cannot be created: {result.error}"
        existing = await session.get(path)
        if existing is not None and existing.stat.ephemeral_owner == session.session_id:
            return existing.stat.czxid
        if existing is not None:
            raise _taken(registration.broker_id, existing)
    return None

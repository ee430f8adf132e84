"""The controller election: the controller is the broker whose session holds the ephemeral ``/controller``.

Winning creates that znode and raises ``/controller_epoch`` in one multi, so that the version of the epoch belongs to
exactly one election. An election whose response was lost does not count as won: the znode, recognised by its session,
is removed and the election is held again, at the price of an epoch.

A controller that cannot be reached is replaced: ``replace_controller`` removes its znode and wins in the same multi,
which fails if another broker has been elected since. Should the controller be well, it has lost its epoch, and changes
nothing.
"""

import logging
from dataclasses import dataclass
from typing import TypeAlias

from oncelog.coordinator.controller.cluster_image import NO_CONTROLLER
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.store import (
    Create,
    Delete,
    MultiFailed,
    Operation,
    Session,
    SetData,
    Watch,
    Znode,
)
from oncelog.coordinator.metadata_store.znodes import MalformedZnode

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Elected:
    """A controller epoch that this broker has won, and its version in the store."""

    epoch: int
    epoch_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherElected:
    """Another broker is the controller."""

    controller_id: int


ElectionResult: TypeAlias = Elected | OtherElected


async def stand_for_election(session: Session, broker_id: int, now_ms: int, changed: Watch) -> ElectionResult:
    """Stand for election until a controller is elected. ``changed`` is called when that may no longer hold."""
    while True:
        controller = await session.get(paths.CONTROLLER, changed)
        if controller is not None and controller.stat.ephemeral_owner != session.session_id:
            return OtherElected(controller_id=_controller_id(controller))
        if controller is not None:
            await session.delete(paths.CONTROLLER, controller.stat.version)
            continue
        elected = await _try_to_win(session, broker_id, now_ms)
        if elected is not None:
            return elected


async def replace_controller(
    session: Session, broker_id: int, unreachable_id: int, now_ms: int, changed: Watch
) -> ElectionResult:
    """Replace a controller that cannot be reached, if it still is the controller."""
    # The epoch is read first: an election between the two reads changes it.
    epoch = await session.get(paths.CONTROLLER_EPOCH)
    controller = await session.get(paths.CONTROLLER, changed)
    if epoch is not None and controller is not None and _controller_id(controller) == unreachable_id:
        removal = Delete(path=paths.CONTROLLER, version=controller.stat.version)
        elected = await _win(session, broker_id, now_ms, epoch, [removal])
        if elected is not None:
            return elected
    return await stand_for_election(session, broker_id, now_ms, changed)


def _controller_id(znode: Znode) -> int:
    """Return the controller's id; ``NO_CONTROLLER`` if it cannot be decoded: its session shows when it is gone."""
    try:
        return znodes.decode_controller(znode.data)
    except MalformedZnode as error:
        logger.error("%s is malformed; the controller is unknown until it is gone: %s", paths.CONTROLLER, error)
        return NO_CONTROLLER


def _epoch(znode: Znode) -> int:
    """Return the epoch of the last controller. Raises MalformedZnode: without it no broker can be elected."""
    try:
        return znodes.decode_controller_epoch(znode.data)
    except MalformedZnode as error:
        raise MalformedZnode(f"{paths.CONTROLLER_EPOCH} is malformed: {error}") from error


async def _try_to_win(session: Session, broker_id: int, now_ms: int) -> Elected | None:
    return await _win(session, broker_id, now_ms, await session.get(paths.CONTROLLER_EPOCH), [])


async def _win(
    session: Session, broker_id: int, now_ms: int, znode: Znode | None, first: list[Operation]
) -> Elected | None:
    epoch = 1 if znode is None else _epoch(znode) + 1
    data = znodes.encode_controller_epoch(epoch)
    raise_epoch: Operation = Create(path=paths.CONTROLLER_EPOCH, data=data)
    if znode is not None:
        raise_epoch = SetData(path=paths.CONTROLLER_EPOCH, data=data, version=znode.stat.version)
    take_office = Create(path=paths.CONTROLLER, data=znodes.encode_controller(broker_id, now_ms), ephemeral=True)
    result = await session.multi([*first, take_office, raise_epoch])
    if isinstance(result, MultiFailed):
        return None
    stat = result[-1].stat
    assert stat is not None, "a create or a set has a stat"
    return Elected(epoch=epoch, epoch_version=stat.version)

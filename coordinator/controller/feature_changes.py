"""Finalising feature levels: what a new cluster begins with, and what UpdateFeatures changes (KIP-584, KIP-778).

The levels are one znode, so an update is one conditional write: of the levels that were read, under the controller's
epoch. The rules are those of Apache Kafka 4.3 (``FeatureControlManager``): a level must be supported by this broker and
by every live one; a lower level needs a downgrade, safe or not, and a higher one an upgrade; the level that is there
already is no error. Level 0 takes a feature out of the znode. No downgrade of ``transaction.version`` loses anything
(every broker reads what any level wrote), so the two kinds of downgrade do the same. Without eligible replicas, a
partition that has or awaits one may be led by another replica: that takes an unsafe downgrade.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from oncelog.coordinator.controller.api_error import NO_ERROR, ApiError
from oncelog.coordinator.controller.controller_context import ControllerContext
from oncelog.coordinator.controller.finalized_features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    NOT_SUPPORTED,
    UNKNOWN_EPOCH,
    FinalizedFeatureCache,
)
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.store import Create, MultiFailed, Operation, SetData, Watch, Znode
from oncelog.coordinator.metadata_store.znodes import BrokerRegistration, FinalizedFeatures
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

Supported: TypeAlias = Mapping[str, tuple[int, int]]
_ATTEMPTS: Final = 10
_SHOWN: Final = 5


class UpgradeType(IntEnum):
    """Which way a level may go, by Kafka's numbers."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A client's request for one feature."""

    feature: str
    level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


async def ensure_features(
    context: ControllerContext, features: FinalizedFeatureCache, wanted: Mapping[str, int], changed: Watch
) -> None:
    """Give a new cluster the wanted levels, as far as all of its brokers support them; and know what is finalised.

    Where an operator has deleted the levels of a cluster, those that this broker knows are written again.
    """
    if await context.session.get(paths.FEATURE) is None:
        levels = dict(features.levels)
        if features.epoch == UNKNOWN_EPOCH:
            levels = initial_levels(wanted, [broker.registration for broker in context.state.brokers.values()])
        await context.commit([_write_of(levels, None)])
    await features.refresh(context.session, changed)
    for name, level in wanted.items():
        finalised = features.levels.get(name, 0)
        if finalised < level:
            logger.info(
                "%s is finalised at level %d; when every broker supports it, `oncelog feature upgrade %s %d` raises it",
                name,
                finalised,
                name,
                level,
            )


def initial_levels(wanted: Mapping[str, int], brokers: Sequence[BrokerRegistration]) -> dict[str, int]:
    """Return the wanted levels, lowered to what every broker supports."""
    return {
        name: min([level, *(broker.features.get(name, NOT_SUPPORTED)[1] for broker in brokers)])
        for name, level in wanted.items()
    }


async def update_features(
    context: ControllerContext,
    features: FinalizedFeatureCache,
    updates: Sequence[FeatureUpdate],
    changed: Watch,
    *,
    validate_only: bool,
) -> list[ApiError]:
    """Change all levels, or none if one is refused; the errors are in the order of the updates.

    What is done is known here on return.
    """
    for _ in range(_ATTEMPTS):
        znode = await context.session.get(paths.FEATURE)
        try:
            before = {} if znode is None else dict(znodes.decode_features(znode.data).levels)
        except znodes.MalformedZnode as error:
            reason = f"The znode {paths.FEATURE} is malformed: {error}"
            return [ApiError(ErrorCode.FEATURE_UPDATE_FAILED, reason) for _ in updates]
        supported = supported_by(context, features)
        needed = context.state.waiting.keys() | set(context.state.partitions_with_eligible())
        errors = [why_refused(update, before, supported, needed) for update in updates]
        after = before | {update.feature: update.level for update in updates}
        after = {name: level for name, level in after.items() if level}
        refused = any(error != NO_ERROR for error in errors)
        if validate_only or refused or after == before:
            return errors
        if not isinstance(await context.commit([_write_of(after, znode)]), MultiFailed):
            logger.info("Finalised features: %s, before: %s", after, before)
            await features.refresh(context.session, changed)
            return errors
    return [ApiError(ErrorCode.FEATURE_UPDATE_FAILED, "Another controller changes the features.") for _ in updates]


def supported_by(context: ControllerContext, features: FinalizedFeatureCache) -> dict[str, Supported]:
    """Return what this controller and each live broker support, by the name that a refusal gives them."""
    brokers = sorted(context.state.brokers.items())
    return {f"Local controller {context.controller_id}": features.supported} | {
        f"Broker {broker_id}": broker.registration.features for broker_id, broker in brokers
    }


def why_refused(
    update: FeatureUpdate,
    levels: Mapping[str, int],
    supported: Mapping[str, Supported],
    need_eligible: Collection[TopicPartition] = (),
) -> ApiError:
    """Return why the level must not be finalised now, or NO_ERROR.

    ``need_eligible``: the partitions that wait for an eligible replica, or will if their in-sync replicas die.
    """
    before, level = levels.get(update.feature, 0), update.level
    upgrade = update.upgrade_type is UpgradeType.UPGRADE
    if update.upgrade_type is UpgradeType.UNKNOWN:
        return _invalid(update, "The controller does not support the given upgrade type.")
    if level < 0:
        return _invalid(update, "A feature version cannot be less than 0.")
    for who, ranges in supported.items():
        lowest, highest = ranges.get(update.feature, NOT_SUPPORTED)
        if not lowest <= level <= highest:
            return _invalid(update, f"{who} {_what_it_supports(lowest, highest)}")
    if level < before and upgrade:
        return _invalid(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        )
    if level > before and not upgrade:
        return _invalid(update, "Can't downgrade to a newer version.")
    if need_eligible and update.upgrade_type is UpgradeType.SAFE_DOWNGRADE and level < before:
        if update.feature == ELIGIBLE_LEADER_REPLICAS_VERSION:
            return _invalid(update, _what_may_be_lost(sorted(need_eligible)))
    return NO_ERROR


def _what_may_be_lost(partitions: Sequence[TopicPartition]) -> str:
    need = "1 partition needs" if len(partitions) == 1 else f"{len(partitions)} partitions need"
    more = f" and {len(partitions) - _SHOWN} more" if len(partitions) > _SHOWN else ""
    return (
        f"{need} what is known of replicas outside of the ISR that have every acknowledged record "
        f"({', '.join(map(str, partitions[:_SHOWN]))}{more}). At this level that is forgotten, and a replica that "
        "lacks some may lead. Start the brokers that are away first, or set the upgrade type to unsafe downgrade."
    )


def _what_it_supports(lowest: int, highest: int) -> str:
    if highest == 0:
        return "does not support this feature."
    return f"only supports versions {lowest}" if lowest == highest else f"only supports versions {lowest}-{highest}"


def _invalid(update: FeatureUpdate, reason: str) -> ApiError:
    message = f"Invalid update version {update.level} for feature {update.feature}. {reason}"
    return ApiError(ErrorCode.INVALID_UPDATE_VERSION, message)


def _write_of(levels: Mapping[str, int], before: Znode | None) -> Operation:
    data = znodes.encode_features(FinalizedFeatures(levels={name: level for name, level in levels.items() if level}))
    if before is None:
        return Create(path=paths.FEATURE, data=data)
    return SetData(path=paths.FEATURE, data=data, version=before.stat.version)

"""Where the replicas of new partitions go.

The goals, as in Apache Kafka (KIP-36): replicas are spread evenly over the brokers; the partitions that one broker
leads have their other replicas spread over the others; if every broker names its rack, the replicas of a partition are
on as many racks as possible.

Leaders go round the list of brokers from a random start; the followers of a partition come after its leader, shifted by
one more place each time the leaders have gone round once. With racks the list alternates between them, and a follower
on a rack that already has a replica is passed over while another rack has none. (An example is in the tests.)

Brokers that do not all name a rack are treated as if none did.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import cycle, zip_longest
from typing import NamedTuple

from oncelog.coordinator.controller.api_error import ApiError
from oncelog.protocol.errors import ErrorCode


class BrokerAndRack(NamedTuple):
    broker_id: int
    rack: str | None = None


class Start(NamedTuple):
    """Where the round of leaders begins, and how far the first followers are shifted."""

    leader_index: int
    shift: int


def random_start(broker_count: int, rng: random.Random) -> Start:
    return Start(rng.randrange(broker_count), rng.randrange(broker_count))


def start_after(brokers: Sequence[BrokerAndRack], leader: int) -> Start:
    """Return where to continue for a topic whose partition 0 has this preferred leader."""
    index = next((i for i, broker in enumerate(brokers) if broker.broker_id >= leader), 0)
    return Start(index, index)


def why_not_placeable(broker_count: int, partition_count: int, replication_factor: int) -> ApiError | None:
    """Return why so many partitions cannot have so many replicas on so many brokers, or None."""
    if partition_count <= 0:
        return ApiError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    if replication_factor <= 0:
        return ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if replication_factor > broker_count:
        return ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {broker_count} broker(s) are registered.",
        )
    return None


def assign_replicas(
    brokers: Sequence[BrokerAndRack],
    partition_count: int,
    replication_factor: int,
    start: Start,
    *,
    first_partition: int = 0,
) -> list[tuple[int, ...]]:
    """Return the replicas of each partition, the preferred leader first.

    ``brokers`` are sorted by id, and at least as many as ``replication_factor``.
    """
    racks = {broker.broker_id: broker.rack for broker in brokers if broker.rack is not None}
    if len(racks) < len(brokers):
        racks = {}
    ring = rack_alternated(racks) if racks else [broker.broker_id for broker in brokers]
    rack_count = len(set(racks.values()))
    shift = start.shift
    assigned = []
    for partition in range(first_partition, first_partition + partition_count):
        if partition > 0 and partition % len(ring) == 0:
            shift += 1
        leader_index = (partition + start.leader_index) % len(ring)
        replicas = [ring[leader_index]]
        candidates = cycle(_followers(ring, leader_index, shift * max(rack_count, 1)))
        while len(replicas) < replication_factor:
            replicas.append(_next_follower(candidates, replicas, racks, rack_count))
        assigned.append(tuple(replicas))
    return assigned


def rack_alternated(racks: dict[int, str]) -> list[int]:
    """Return the brokers, one of each rack in turn."""
    by_rack: dict[str, list[int]] = {}
    for broker_id in sorted(racks):
        by_rack.setdefault(racks[broker_id], []).append(broker_id)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker_id for one_round in rounds for broker_id in one_round if broker_id is not None]


def _followers(ring: Sequence[int], leader_index: int, shift: int) -> list[int]:
    """Return every broker but the leader, in the order in which they become followers."""
    others = len(ring) - 1
    return [ring[(leader_index + 1 + (shift + step) % others) % len(ring)] for step in range(others)]


def _next_follower(candidates: Iterator[int], replicas: Sequence[int], racks: dict[int, str], rack_count: int) -> int:
    used_racks = {racks[broker_id] for broker_id in replicas} if racks else set()
    return next(
        broker_id
        for broker_id in candidates
        if broker_id not in replicas and (len(used_racks) == rack_count or racks[broker_id] not in used_racks)
    )


def why_invalid_assignment(
    replicas: Sequence[int], live_brokers: Sequence[BrokerAndRack], replication_factor: int | None
) -> ApiError | None:
    """Return why a partition must not have the replicas that a client chose for it, or None."""

    def invalid(what: str) -> ApiError:
        return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {what}")

    if not replicas:
        return invalid("an empty replica list.")
    known = {broker.broker_id for broker in live_brokers}
    for index, broker_id in enumerate(replicas):
        if broker_id not in known:
            return invalid(f"broker {broker_id}, but no such broker is registered.")
        if broker_id in replicas[:index]:
            return invalid(f"the broker {broker_id} more than once.")
    if replication_factor is not None and len(replicas) != replication_factor:
        return invalid(
            f"a partition with {len(replicas)} replica(s), but this is not consistent with previous partitions, "
            f"which have {replication_factor} replica(s)."
        )
    return None

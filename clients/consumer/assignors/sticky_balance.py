"""Balance with as few moves as possible: what the two sticky assignors have in common.

Members keep what they own. A partition without an owner goes to the member with least. Then, while a member has at
least two partitions more than another one that could have one of them, one partition moves: straight from one to the
other, or along a chain of members, where each hands on one of a topic that the next subscribes to. Each move makes the
sum of the squares of the shares smaller, so there is an end, and at the end no chain is left: the shares are as even as
the subscriptions allow. Shortest chains come first, and of a topic's partitions the one that was not owned by its
holder moves first, so that little that was owned moves.

Where all members subscribe to the same topics, shares differ by one at most, a member that joins takes just its share
from the others, and one that leaves takes nothing from them.

(Kafka's ``AbstractStickyAssignor`` reaches the same for equal subscriptions. For others it moves partitions by
heuristics; its balance is never better than this one.)
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeAlias

from oncelog.clients.consumer.assignors.assignor import Assignment, MemberSubscription, all_partitions, member_order
from oncelog.protocol.topic_partition import TopicPartition

Owners: TypeAlias = dict[TopicPartition, str]
"""Who owned a partition, where exactly one member has a right to it."""
_Subscribers: TypeAlias = tuple[str, ...]
"""The members that may have a topic's partitions; topics with the same members are treated alike."""
_Step: TypeAlias = tuple[str, _Subscribers, str]
"""From, partitions of which topics, to."""


def assign_sticky(
    partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription], owners: Owners
) -> Assignment:
    """Return the balanced assignment in which the owners keep most."""
    shares = _Shares(partition_counts, members, owners)
    shares.give_out(all_partitions(partition_counts))
    shares.even_out()
    return shares.assignment()


def rightful_owners(claims: Iterable[tuple[str, int, Sequence[TopicPartition]]]) -> Owners:
    """Return the owner of each partition, from (member, generation, partitions that it claims): the latest one.

    A partition that two members claim for the same generation has no owner: one of them missed a rebalance, and it
    is unknown which.
    """
    latest: dict[TopicPartition, tuple[int, str | None]] = {}
    for member_id, generation_id, owned in claims:
        for partition in owned:
            known = latest.get(partition)
            if known is None or generation_id > known[0]:
                latest[partition] = generation_id, member_id
            elif generation_id == known[0] and known[1] != member_id:
                latest[partition] = generation_id, None
    return {partition: owner for partition, (_, owner) in latest.items() if owner is not None}


class _Shares:
    """Who has what, while it is being shared out."""

    def __init__(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription], owners: Owners
    ) -> None:
        self._owners = owners
        self._place = {member_id: place for place, member_id in enumerate(member_order(members))}
        subscribers = {
            topic: tuple(member_id for member_id in self._place if topic in members[member_id].topics)
            for topic in partition_counts
        }
        self._eligible = {topic: able for topic, able in subscribers.items() if able}
        self._held: dict[str, dict[_Subscribers, list[TopicPartition]]] = {member: {} for member in self._place}
        self._sizes = dict.fromkeys(self._place, 0)

    def give_out(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign the owned partitions to their owners, and then the rest."""
        unowned = []
        for partition in partitions:
            able = self._eligible.get(partition.topic)
            if able is None:
                continue
            owner = self._owners.get(partition)
            if owner in able:
                assert owner is not None
                self._add(owner, able, partition)
            else:
                unowned.append((able, partition))
        for able, partition in unowned:
            self._add(min(able, key=self._load), able, partition)

    def even_out(self) -> None:
        """Move one partition at a time from the member with most, until no member can give to one with two less."""
        while steps := next(filter(None, map(self._chain_from, self._most_first())), None):
            self._move_along(steps)

    def _most_first(self) -> Iterator[str]:
        yield max(self._place, key=self._load)
        yield from sorted(self._place, key=self._load, reverse=True)[1:]

    def assignment(self) -> Assignment:
        return {member_id: sorted(chain.from_iterable(held.values())) for member_id, held in self._held.items()}

    def _load(self, member_id: str) -> tuple[int, int]:
        return self._sizes[member_id], self._place[member_id]

    def _add(self, member_id: str, able: _Subscribers, partition: TopicPartition) -> None:
        self._held[member_id].setdefault(able, []).append(partition)
        self._sizes[member_id] += 1

    def _chain_from(self, giver: str) -> list[_Step]:
        """Return the shortest chain of (from, topics, to) to the member with least, if it has at least two less."""
        enough = self._sizes[giver] - 2
        reached: dict[str, tuple[str, _Subscribers] | None] = {giver: None}
        layer = [giver]
        seen: set[_Subscribers] = set()
        while layer:
            following = []
            for member_id in layer:
                for able, held in self._held[member_id].items():
                    if not held or able in seen:
                        continue
                    seen.add(able)
                    for taker in able:
                        if taker not in reached:
                            reached[taker] = member_id, able
                            following.append(taker)
            taker = min(following, key=self._load, default=giver)
            if self._sizes[taker] <= enough:
                return _path(reached, taker)
            layer = following
        return []

    def _move_along(self, steps: Iterable[_Step]) -> None:
        for giver, able, taker in steps:
            held = self._held[giver][able]
            partition = held.pop(
                max(range(len(held)), key=lambda index: self._prefers_to_move(held[index], giver, taker))
            )
            self._sizes[giver] -= 1
            self._add(taker, able, partition)

    def _prefers_to_move(self, partition: TopicPartition, giver: str, taker: str) -> tuple[bool, bool, TopicPartition]:
        owner = self._owners.get(partition)
        return owner == taker, owner != giver, partition


def _path(reached: Mapping[str, tuple[str, _Subscribers] | None], taker: str) -> list[_Step]:
    """Return the steps from the giver to the taker."""
    path: deque[_Step] = deque()
    while (step := reached[taker]) is not None:
        giver, able = step
        path.appendleft((giver, able, taker))
        taker = giver
    return list(path)

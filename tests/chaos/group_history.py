"""What the members of a group did, and whether a group may do that. Pure: times are those of the loop, in seconds.

A *tenure* is the time for which a member has a partition, from ``on_partitions_assigned`` to ``on_partitions_revoked``,
``on_partitions_lost`` or its death. What must hold:

* Each record is returned, and was returned before an offset behind it was committed: nothing is lost.
* A tenure begins at an offset that is committed then, and returns each record after that, once, in their order.
* Committed offsets never go back, but for a request of the owner itself that was held up on its way.
* Tenures of one partition overlap only if the elder's member could not know: it stood still, its application stayed
  away from ``poll``, its connections or its coordinator were broken, or another process took its instance id.
* A member returns nothing of a partition that has a new owner, as soon as it could know that.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from oncelog.protocol.topic_partition import TopicPartition

FOREVER: Final = float("inf")
_TICK: Final = 0.002
"""Commits are dated to the millisecond."""


@dataclass(frozen=True, slots=True)
class Commit:
    """An offset that the log of the group has, and when it was appended."""

    offset: int
    at: float


@dataclass(slots=True, eq=False)
class Tenure:
    """A member's time with a partition, and the offsets that it returned, each with its time."""

    member: "MemberHistory"
    partition: TopicPartition
    began: float
    ended: float = FOREVER
    returned: list[tuple[float, int]] = field(default_factory=list)

    def __str__(self) -> str:
        offsets = [offset for _, offset in self.returned]
        what = f"{offsets[0]} to {offsets[-1]}" if offsets else "nothing"
        return f"{self.member.name} with {self.partition} from {self.began:.3f} to {self.ended:.3f}, returned {what}"


@dataclass(slots=True, eq=False)
class MemberHistory:
    """One member, and the times at which it could not know what became of its group."""

    name: str
    knows_within: float
    """How long it may take to learn from a coordinator that answers that it is a member no more."""
    out_of_touch: list[tuple[float, float]] = field(default_factory=list)
    """It stood still, nobody answered it, or it has a double."""
    away: list[tuple[float, float]] = field(default_factory=list)
    """Its application did not poll: it gives its partitions up without looking, and must return nothing of them."""

    def could_know(self, at: float) -> bool:
        return not any(begin <= at <= end + self.knows_within for begin, end in self.out_of_touch)

    def was_present(self, at: float) -> bool:
        return self.could_know(at) and not any(begin <= at <= end + self.knows_within for begin, end in self.away)


@dataclass(slots=True)
class GroupHistory:
    """All tenures, in the order in which they began."""

    tenures: list[Tenure] = field(default_factory=list)

    def begin(self, member: MemberHistory, partition: TopicPartition, now: float) -> Tenure:
        tenure = Tenure(member, partition, now)
        self.tenures.append(tenure)
        return tenure

    def returned(self) -> dict[TopicPartition, dict[int, float]]:
        """When each record was returned first."""
        first: dict[TopicPartition, dict[int, float]] = defaultdict(dict)
        for tenure in self.tenures:
            for at, offset in tenure.returned:
                known = first[tenure.partition].get(offset, FOREVER)
                first[tenure.partition][offset] = min(at, known)
        return first

    def check(
        self, visible: Mapping[TopicPartition, Sequence[int]], commits: Mapping[TopicPartition, Sequence[Commit]]
    ) -> None:
        """``visible``: the offsets of each partition's records; ``commits``: in the order of the log."""
        first = self.returned()
        for partition, offsets in visible.items():
            lost = [offset for offset in offsets if offset not in first[partition]]
            assert not lost, f"{partition}: lost {lost}"
            tenures = [tenure for tenure in self.tenures if tenure.partition == partition]
            _check_commits(partition, commits.get(partition, ()), offsets, first[partition], tenures)
            for tenure in tenures:
                _check_tenure(tenure, offsets, commits.get(partition, ()))
            for elder, younger in _overlaps(tenures):
                _check_overlap(elder, younger)


def _check_commits(
    partition: TopicPartition,
    commits: Sequence[Commit],
    offsets: Sequence[int],
    first: Mapping[int, float],
    tenures: Sequence[Tenure],
) -> None:
    checked, before = 0, 0
    for commit in commits:
        if commit.offset < before:
            assert _is_late(commit, tenures), f"{partition}: {commit.offset} was committed after {before}"
        before = commit.offset
        end = bisect_left(offsets, commit.offset)
        for offset in offsets[checked:end]:
            assert first[offset] <= commit.at + _TICK, f"{partition}: {commit} though {offset} came later"
        checked = max(checked, end)


def _is_late(commit: Commit, tenures: Sequence[Tenure]) -> bool:
    """Whether it is a request of the present owner that its connection has held up, while others overtook it."""
    owners = [tenure for tenure in tenures if tenure.began <= commit.at]
    return bool(owners) and _has_returned_before(owners[-1], commit) and not owners[-1].member.could_know(commit.at)


def _has_returned_before(tenure: Tenure, commit: Commit) -> bool:
    return bool(tenure.returned) and tenure.returned[0][1] <= commit.offset <= tenure.returned[-1][1] + 1


def _check_tenure(tenure: Tenure, offsets: Sequence[int], commits: Sequence[Commit]) -> None:
    if not tenure.returned:
        return
    returned = [offset for _, offset in tenure.returned]
    begin = bisect_left(offsets, returned[0])
    expected = list(offsets[begin : begin + len(returned)])
    assert returned == expected, f"{tenure}: skipped, doubled or out of order: {returned}"
    first_at = tenure.returned[0][0]
    earlier = [commit.offset for commit in commits if commit.at <= tenure.began + _TICK]
    starts = {0, *earlier} if not earlier else {earlier[-1]}
    starts |= {commit.offset for commit in commits if tenure.began - _TICK <= commit.at <= first_at + _TICK}
    possible = {offsets[at] for start in starts if (at := bisect_left(offsets, start)) < len(offsets)}
    assert returned[0] in possible, f"{tenure}: began with {returned[0]}, not after one of {sorted(starts)}"


def _overlaps(tenures: Sequence[Tenure]) -> Iterator[tuple[Tenure, Tenure]]:
    for index, elder in enumerate(tenures):
        for younger in tenures[index + 1 :]:
            if younger.began < elder.ended and younger.member is not elder.member:
                yield elder, younger


def _check_overlap(elder: Tenure, younger: Tenure) -> None:
    if not younger.member.was_present(younger.began):
        return  # It was given what the group had taken back meanwhile, and learns of it with its next poll.
    assert not elder.member.was_present(younger.began), f"two owners: {elder}; {younger}"
    zombie = [at for at, _ in elder.returned if at > younger.began and elder.member.could_know(at)]
    assert not zombie, f"returned by a zombie at {zombie[0]:.3f}: {elder}; {younger}"


def merged(intervals: Iterable[tuple[float, float]]) -> float:
    """The length of the union of intervals."""
    total, until = 0.0, 0.0
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total

"""What the members of one consumer group were promised: who owns which partition, and which commits were acknowledged.

Each commit is one request that is sent once, with a number of its own as metadata. So the commit that a response or a
record shows is known, and with it its generation and its member. A commit without a response, or with one that does not
say whether it was written, may take effect at any later time of its generation.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from oncelog.protocol.topic_partition import TopicPartition


class CommitOutcome(Enum):
    """What the member knows of its commit."""

    UNKNOWN = "unknown"
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    """By an error that says that nothing was written."""


@dataclass(eq=False)
class Commit:
    """One OffsetCommit of one partition."""

    number: int
    partition: TopicPartition
    generation: int
    member_id: str
    begun: float
    """Virtual seconds."""
    ended: float = math.inf
    """When it was acknowledged; then it has no effect any more."""
    outcome: CommitOutcome = CommitOutcome.UNKNOWN

    @property
    def offset(self) -> int:
        """The offset that it commits: another one for each commit."""
        return self.number


class GroupLedger:
    """Every commit and every assignment of a group, by all that its members saw."""

    def __init__(self, *, may_begin_anew: bool = False) -> None:
        """``may_begin_anew``: brokers soon remove a group without members and offsets; its generations begin anew."""
        self._may_begin_anew = may_begin_anew
        self.commits: list[Commit] = []
        self._owners: dict[tuple[int, TopicPartition], str] = {}
        self._forgettable: set[tuple[int, TopicPartition]] = set()
        """Owners of the time before the group had offsets."""

    def begin(self, partition: TopicPartition, generation: int, member_id: str, now: float) -> Commit:
        """Return the next commit."""
        commit = Commit(len(self.commits), partition, generation, member_id, now)
        self.commits.append(commit)
        return commit

    def take(self, generation: int, partition: TopicPartition, owner: str) -> None:
        """Note an owner: a member id, or a static member, whose incarnations own the same."""
        known = self._owners.setdefault((generation, partition), owner)
        if (generation, partition) in self._forgettable:
            self._owners[generation, partition] = known = owner
        if self._may_begin_anew and not self._has_offsets():
            self._forgettable.add((generation, partition))
        else:
            self._forgettable.discard((generation, partition))
        assert known == owner, f"{known} and {owner} own {partition} in generation {generation}"

    def _has_offsets(self) -> bool:
        return any(commit.outcome is CommitOutcome.ACKNOWLEDGED for commit in self.commits)

    def newest_acknowledged(self, partition: TopicPartition) -> Commit | None:
        """Return the acknowledged commit that was begun last."""
        acknowledged = (
            commit
            for commit in self.commits
            if commit.partition == partition and commit.outcome is CommitOutcome.ACKNOWLEDGED
        )
        return max(acknowledged, key=lambda commit: commit.begun, default=None)

    def assert_is_current(self, partition: TopicPartition, newest: Commit | None, metadata: str, offset: int) -> None:
        """Check what an OffsetFetch shows; ``newest``: what was acknowledged before the request."""
        if offset < 0:
            assert newest is None, f"{newest} is lost"
            return
        shown = self.commits[int(metadata)]
        assert (shown.partition, shown.offset) == (partition, offset), f"{shown} is shown at {offset} of {partition}"
        assert shown.outcome is not CommitOutcome.REFUSED, f"{shown} is there, although it was refused"
        assert newest is None or shown.ended >= newest.begun, f"{newest} is lost: {shown} is there"

    def assert_order(self, partition: TopicPartition, metadata: Iterable[str]) -> None:
        """Check the commits of a partition as they are in the log: generations grow, and no former owner comes back."""
        generation, member_id = -1, ""
        former: set[str] = set()
        for commit in (self.commits[int(number)] for number in metadata):
            assert commit.partition == partition, f"{commit} in {partition}"
            assert commit.outcome is not CommitOutcome.REFUSED, f"{commit} was written, although it was refused"
            assert commit.generation >= generation, f"{commit} follows generation {generation}"
            if commit.generation > generation:
                generation, former = commit.generation, set()
            elif commit.member_id != member_id:
                former.add(member_id)
            member_id = commit.member_id
            assert member_id not in former, f"{commit} is of a member that was replaced"

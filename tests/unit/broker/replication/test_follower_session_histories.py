"""Whatever happens, the leader's session has the partitions that the follower fetches, and no others.

The follower's session against the leader's real one, with up to two requests under way, in any order of events.
"""

from collections import deque
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from oncelog.broker.replication.fetch_session import FetchContext, FetchKind, FetchSessionCache
from oncelog.broker.replication.followed_partition import FollowedPartition
from oncelog.broker.replication.follower_session import FetcherSettings, FollowerSession
from oncelog.broker.replication.partition import Partition
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from tests.unit.broker.replication.test_follower_session import EPOCH, ME, TOPIC_ID, grow, partition

FETCH_VERSION = 17
PARTITIONS = 4
index = st.integers(0, PARTITIONS - 1)


class Leader:
    """The fetch sessions of a leader, that responds when it is said."""

    def __init__(self) -> None:
        self.sessions = FetchSessionCache(slots=1, rng=Random(1))
        self.opened: deque[tuple[FetchContext | ErrorCode, int]] = deque()
        """The requests without a response, and the epoch that each was opened at."""

    def take(self, request: FetchRequest) -> None:
        self.opened.append((self.sessions.open(request, FETCH_VERSION, lambda _: "t", 0), request.session_epoch))

    def respond(self, *, has_room: bool, fails: bool, replies: frozenset[int]) -> FetchResponse:
        """Respond to the oldest request, with those of its session's partitions that are among ``replies``."""
        context, _ = self.opened.popleft()
        if isinstance(context, ErrorCode):
            return FetchResponse(error_code=context)
        if fails:
            return FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        session = context.session
        if context.overtaken:
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.id)
        data = [PartitionData(partition_index=number) for _, number in session.positions if number in replies]
        if context.kind is FetchKind.FULL and has_room:
            self.sessions.keep(session, 0)
        topics = [FetchableTopicResponse(topic_id=TOPIC_ID, partitions=data)] if data else []
        return FetchResponse(session_id=session.id, responses=topics)

    def lose_connection(self) -> None:
        self.opened.clear()

    def restart(self) -> None:
        """Lose all sessions, as by an eviction."""
        self.sessions.close()

    def fetched(self) -> set[int]:
        """Return the partitions of the only session, if there is one."""
        found = set[int]()
        for session in self.sessions._sessions.values():
            found.update(number for _, number in session.positions)
        return found


class Histories(RuleBasedStateMachine):
    """Add, remove, rest and resume partitions while requests are under way, and while sessions end."""

    def __init__(self) -> None:
        super().__init__()
        self.leader = Leader()
        self.session = FollowerSession(FetcherSettings(replica_id=ME))
        self.partitions: list[Partition] = [partition(number) for number in range(PARTITIONS)]

    def followed(self) -> dict[int, FollowedPartition]:
        return {each.partition.topic_partition.partition: each for each in self.session}

    def wanted(self) -> set[int]:
        return {number for number, each in self.followed().items() if not each.resting}

    @rule(number=index)
    def add(self, number: int) -> None:
        self.partitions[number].leader_epoch += 1
        self.session.add(self.partitions[number])

    @rule(number=index)
    def remove(self, number: int) -> None:
        self.session.remove(self.partitions[number].topic_partition)

    @rule(number=index)
    def rest(self, number: int) -> None:
        if followed := self.followed().get(number):
            self.session.rest(followed)

    @rule(number=index)
    def resume(self, number: int) -> None:
        if followed := self.followed().get(number):
            self.session.resume(followed)

    @rule(number=index)
    def append(self, number: int) -> None:
        if followed := self.followed().get(number):
            grow(followed)
            self.session.note(followed)

    @precondition(lambda self: self.session.may_send)
    @rule()
    def send(self) -> None:
        request = self.session.next_request(EPOCH)
        if request is not None:
            self.leader.take(request)

    @precondition(lambda self: self.leader.opened)
    @rule(has_room=st.booleans(), fails=st.sampled_from([False, False, True]), replies=st.frozensets(index))
    def respond(self, has_room: bool, fails: bool, replies: frozenset[int]) -> None:
        response = self.leader.respond(has_room=has_room, fails=fails, replies=replies)
        for followed, _ in self.session.take_response(response):
            assert not followed.resting
            assert self.session.is_followed(followed)

    @rule()
    def lose_connection(self) -> None:
        self.leader.lose_connection()
        self.session.connection_lost()

    @rule()
    def restart_leader(self) -> None:
        self.leader.restart()

    @invariant()
    def at_most_two_requests_are_under_way(self) -> None:
        assert len(self.leader.opened) <= 2

    def teardown(self) -> None:
        """Let it settle with empty responses, so that nothing in them gives away what the leader has too much."""
        for _ in range(8):
            while self.leader.opened:
                self.respond(has_room=True, fails=False, replies=frozenset())
            if self.session.may_send:
                self.send()
        assert len(self.leader.opened) == (1 if self.wanted() else 0)
        if self.wanted():  # Else a session may remain of a connection that was lost, which no request uses.
            assert self.leader.fetched() == self.wanted()
            self.respond(has_room=True, fails=False, replies=frozenset(range(PARTITIONS)))
            self.send()
            assert not self.session.is_in_vain


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)

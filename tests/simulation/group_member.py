"""A member of a consumer group that speaks the classic protocol, and commits offsets of the partitions that it owns.

It does what clients do: it joins, syncs, fetches the committed offset of each partition that it owns, and then sends
heartbeats and commits until the group rebalances. Each commit is sent once, so that one without a response stays
unknown. Now and then it commits once more for a generation that is over, as a client that was paused would; this must
be refused.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.join_group import JoinGroupResponse
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation import group_requests, requests
from tests.simulation.group_ledger import CommitOutcome, GroupLedger
from tests.simulation.journal import current_journal
from tests.simulation.patient_client import PatientClient, error_of
from tests.simulation.routes import Routes
from tests.simulation.wire_client import NoResponse

GROUP: Final = "readers"
SESSION_MS: Final = 3_000
REBALANCE_MS: Final = 3_000
_RESPONSE_SECONDS: Final = 8.0
"""Longer than a JoinGroup waits for the other members."""
_LONGEST_REST: Final = 0.8
_BACKOFF: Final = (0.02, 0.2)
"""Seconds before it joins again: from, to."""
_COMMITS_FOR_THE_PAST: Final = 0.3
_REFUSALS: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
"""Of an OffsetCommit: nothing was written."""


class Rejoin(Exception):
    """The member is not in the present generation."""


class Fenced(Exception):
    """Another process has taken the static member's place."""


class Place(NamedTuple):
    """A member's place in a generation."""

    generation: int
    member_id: str


class GroupMember:
    """``run`` until it leaves, is fenced, or its task is cancelled."""

    def __init__(
        self,
        routes: Routes,
        rng: random.Random,
        ledger: GroupLedger,
        partitions: Sequence[TopicPartition],
        instance_id: str | None = None,
    ) -> None:
        """``instance_id``: of a static member."""
        self.instance_id = instance_id
        self.leaving = False
        self.place: Place | None = None
        """In the generation of which it has an assignment, as far as it knows."""
        self.owned: list[TopicPartition] = []
        self.commits = 0
        """Acknowledged in its present generation."""
        self._rng = rng
        self._ledger = ledger
        self._partitions = partitions
        self._client = PatientClient(routes, rng, response_within=_RESPONSE_SECONDS)
        self._member_id = ""
        self._past: Place | None = None

    async def run(self) -> None:
        find = requests.find_coordinator(GROUP, transactional=False)
        await self._client.succeed(find, requests.FIND_COORDINATOR_VERSION, error_of)
        try:
            while not self.leaving:
                try:
                    await self._take_part()
                except Rejoin:
                    self._past, self.place, self.owned = self.place or self._past, None, []
                    await asyncio.sleep(self._rng.uniform(*_BACKOFF))
        except Fenced:
            self._note("member is fenced")
        else:
            await self._leave()
        self.place, self.owned = None, []

    async def _take_part(self) -> None:
        joined = await self._join()
        await self._sync(joined)
        for partition in self.owned:
            await self._fetch_position(partition)
        await self._commit_for_the_past()
        while not self.leaving:
            await asyncio.sleep(self._rng.uniform(0.05, _LONGEST_REST))
            if self.owned and self._rng.random() < 0.7:
                await self._commit(self._rng.choice(self.owned))
            await self._heartbeat()

    async def _join(self) -> JoinGroupResponse:
        while True:
            response = await self._try_to_join()
            code = ErrorCode(response.error_code)
            if code is ErrorCode.NONE:
                self._member_id = response.member_id
                self._note("member joins group")
                return response
            if code in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.UNKNOWN_MEMBER_ID):
                self._member_id = response.member_id if code is ErrorCode.MEMBER_ID_REQUIRED else ""
                continue
            assert code in requests.RETRIABLE or code in _REFUSALS, code.name
            if code is ErrorCode.FENCED_INSTANCE_ID:
                raise Fenced
            await self._client.pause()

    async def _try_to_join(self) -> JoinGroupResponse:
        request = group_requests.join_group(
            GROUP,
            self._member_id,
            self.instance_id,
            self._partitions[0].topic,
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
        )
        response: JoinGroupResponse = await self._client.call(request, group_requests.JOIN_GROUP_VERSION)
        return response

    async def _sync(self, joined: JoinGroupResponse) -> None:
        assignments = self._assign(joined) if joined.leader == joined.member_id else {}
        place = Place(joined.generation_id, joined.member_id)
        request = group_requests.sync_group(GROUP, *place, self.instance_id, assignments)
        response = await self._try(request, group_requests.SYNC_GROUP_VERSION)
        self._go_on_after(ErrorCode(response.error_code))
        self.place, self.commits = place, 0
        self.owned = group_requests.assigned_partitions(response.assignment)
        for partition in self.owned:
            self._ledger.take(place.generation, partition, self.instance_id or place.member_id)

    def _assign(self, joined: JoinGroupResponse) -> dict[str, list[TopicPartition]]:
        members = sorted(member.member_id for member in joined.members)
        return {
            member_id: [partition for partition in self._partitions if partition.partition % len(members) == number]
            for number, member_id in enumerate(members)
        }

    async def _fetch_position(self, partition: TopicPartition) -> None:
        newest = self._ledger.newest_acknowledged(partition)
        response = await self._client.succeed(
            requests.offset_fetch(GROUP, partition, require_stable=True),
            requests.OFFSET_FETCH_VERSION,
            lambda response: {requests.fetched_position(response).error},
        )
        shown = response.groups[0].topics[0].partitions[0]
        self._ledger.assert_is_current(partition, newest, shown.metadata, shown.committed_offset)
        self._note("position fetched")

    async def _heartbeat(self) -> None:
        assert self.place is not None
        request = group_requests.heartbeat(GROUP, *self.place, self.instance_id)
        response = await self._client.call(request, group_requests.HEARTBEAT_VERSION)
        code = ErrorCode(response.error_code)
        if code is ErrorCode.REBALANCE_IN_PROGRESS and self.owned and self._rng.random() < 0.5:
            await self._commit(self._rng.choice(self.owned))
        if code not in requests.RETRIABLE:
            self._go_on_after(code)

    async def _commit_for_the_past(self) -> None:
        if self._past is None or not self.owned or self._rng.random() >= _COMMITS_FOR_THE_PAST:
            return
        assert self.place is not None
        if self._past != self.place:
            outcome = await self._send_commit(self._rng.choice(self._partitions), self._past)
            assert outcome is not CommitOutcome.ACKNOWLEDGED, f"{self._past} is over, and its commit was taken"
            self._note("offset committed for the past")

    async def _commit(self, partition: TopicPartition) -> None:
        assert self.place is not None
        outcome = await self._send_commit(partition, self.place)
        self.commits += outcome is CommitOutcome.ACKNOWLEDGED
        self._note(f"offset commit {outcome.value}")
        if outcome is CommitOutcome.REFUSED:
            raise Rejoin

    async def _send_commit(self, partition: TopicPartition, place: Place) -> CommitOutcome:
        commit = self._ledger.begin(partition, *place, now=asyncio.get_running_loop().time())
        request = group_requests.offset_commit(
            GROUP, *place, self.instance_id, partition, commit.offset, str(commit.number)
        )
        try:
            response = await self._try(request, group_requests.OFFSET_COMMIT_VERSION)
        except Rejoin:
            return commit.outcome
        (code,) = requests.committed_partitions(response).values()
        if code is ErrorCode.NONE:
            commit.outcome, commit.ended = CommitOutcome.ACKNOWLEDGED, asyncio.get_running_loop().time()
        elif code in _REFUSALS:
            commit.outcome = CommitOutcome.REFUSED
        else:
            assert code in requests.RETRIABLE, code.name
        return commit.outcome

    async def _leave(self) -> None:
        request = group_requests.leave_group(GROUP, self._member_id, self.instance_id)
        await self._client.call(request, group_requests.LEAVE_GROUP_VERSION)
        self._note("member leaves group")

    async def _try(self, request: Message, version: int) -> Any:
        """Return the response to a request that is sent once; raise Rejoin if there is none."""
        try:
            connection = await self._client.connection(request)
            response = await connection.call(request, version)
        except NoResponse as error:
            await self._client.disconnect(request)
            raise Rejoin from error
        self._client.heard(request, response)
        return response

    def _go_on_after(self, code: ErrorCode) -> None:
        if code is ErrorCode.FENCED_INSTANCE_ID:
            raise Fenced
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        if code is not ErrorCode.NONE:
            assert code in requests.RETRIABLE or code in _REFUSALS, code.name
            raise Rejoin

    def _note(self, event: str) -> None:
        current_journal().note(self.instance_id or "member", f"operation: {event}", str(self.place))

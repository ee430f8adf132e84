"""What the leader of a partition knows of its replicas: how far each follower is, and which are in sync.

A leader learns of its followers from their fetches. It proposes changes of the ISR to the controller, one at a time,
and takes over what the controller decides (KIP-497). The object is made when the leadership begins, and goes on with
every new leader epoch of the same leader.

Invariants:
* Only the controller changes the ISR. What a LeaderAndIsr says is newer than the response to any proposal.
* A proposal that is not decided counts for both sides: a follower that may join holds the high watermark back already,
  one that is to leave still does.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from oncelog.broker.replication.fetch_session import FetchPosition
from oncelog.broker.replication.follower_state import NEVER, FollowerState
from oncelog.broker.replication.isr import InSyncReplicas
from oncelog.broker.replication.isr_changes import IsrProposal
from oncelog.broker.replication.replica_host import ReplicaHost
from oncelog.broker.storage.partition_log import PartitionLog
from oncelog.protocol.errors import ErrorCode, error_of
from oncelog.protocol.messages.alter_partition import AlteredPartition
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

_ISR_UNCHANGED: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
"""Results after which the ISR is what this leader knows: the controller has not changed it."""


class ReplicaProgress:
    """The replicas of one partition, as its leader sees them."""

    __slots__ = (
        "_host",
        "_is_present",
        "_log",
        "_on_decided",
        "_proposal",
        "epoch_start_offset",
        "followers",
        "in_sync",
        "is_alone",
        "leader_epoch",
        "partition_epoch",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        host: ReplicaHost,
        log: PartitionLog,
        state: LeaderAndIsrPartitionState,
        on_decided: Callable[[], None],
    ) -> None:
        """Begin with the controller's ``state``.

        ``log`` is the leader's, for reading only. ``on_decided`` is called after each decision of the controller that
        leaves the leadership as it is.
        """
        self.topic_partition = topic_partition
        self._host = host
        self._log = log
        self._is_present = partial(host.is_present, topic_partition)
        self._on_decided = on_decided
        self._proposal: IsrProposal | None = None
        self.followers: dict[int, FollowerState] = {}
        """The other replicas, by broker."""
        self.epoch_start_offset = 0
        """The end of the leader's log when this leader epoch began."""
        self._take(state)

    def begin_epoch(self, state: LeaderAndIsrPartitionState, *, elected: bool) -> None:
        """Take over the controller's state; ``elected``: it begins a new leader epoch, at the end of the log."""
        self.withdraw_proposal()
        self._take(state)
        now_ms, known, leader_end = self._host.now_ms(), self.followers, self._log.log_end_offset
        if elected:
            self.epoch_start_offset = leader_end
        others = [broker for broker in self.in_sync.replicas if broker != self._host.broker_id]
        self.followers = {broker: known.get(broker) or FollowerState() for broker in others}
        for broker, follower in self.followers.items():
            if elected or broker not in known:
                self._host.contacts.expect(broker, now_ms)
            if elected:
                follower.elected(leader_end=leader_end, now_ms=now_ms, in_sync=broker in self.in_sync.isr)

    def _take(self, state: LeaderAndIsrPartitionState) -> None:
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.in_sync = InSyncReplicas(
            replicas=tuple(state.replicas),
            isr=frozenset(state.isr),
            eligible=frozenset(state.eligible_leader_replicas),
        )
        self.is_alone = self.in_sync.replicas == (self._host.broker_id,)

    # Followers

    @property
    def shortage(self) -> ErrorCode:
        """NOT_ENOUGH_REPLICAS_AFTER_APPEND if what is replicated is on too few replicas, as the ISR shrank; or NONE."""
        if self.is_alone:
            return ErrorCode.NONE
        minimum = self.in_sync.effective_min_isr(self._log.config.min_insync_replicas)
        enough = len(self.in_sync.maximal_isr) >= minimum
        return ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def replicated_end(self, leader_end: int) -> int:
        """Return the offset below which all replicas that must have it have the log; the leader: to ``leader_end``."""
        return self.in_sync.replicated_end(self._host.broker_id, leader_end, self.followers, self._is_present)

    def must_begin_anew(self, broker: int, *, log_start_offset: int, broker_epoch: int) -> bool:
        """Return whether a follower without any leader epoch must copy the leader's log from its start.

        Its log is empty, so nothing shows that the records that it had below ``log_start_offset`` are those that the
        leader has there: the leader's log may have begun again. A replica that has everything acknowledged must keep
        its end: it may be elected before it would have reached that end again.
        """
        follower = self.followers.get(broker)
        if follower is None or follower.is_stale(broker_epoch) or log_start_offset <= self._log.log_start_offset:
            return False
        if broker in self.in_sync.complete:
            return False
        follower.begin_anew()
        return True

    @property
    def low_watermark(self) -> int:
        """The lowest start of the logs of all live replicas; -1 while one is not known."""
        starts = (
            follower.log_start_offset for broker, follower in self.followers.items() if self._host.is_alive(broker)
        )
        return min([self._log.log_start_offset, *starts])

    def last_fetches_ms(self, waiting: Iterable[FetchPosition]) -> dict[int, int]:
        """Return when each follower in the ISR last fetched, by the loop's clock; ``waiting``: fetches of followers."""
        fetched = {
            broker: follower.last_fetch_ms for broker, follower in self.followers.items() if broker in self.in_sync.isr
        }
        for position in waiting:
            session = position.session
            if session.replica_id in fetched and session.attended_ms != NEVER:
                fetched[session.replica_id] = session.attended_ms
        return fetched

    def is_deserted(self, waiting: Iterable[FetchPosition]) -> bool:
        """Return whether no in-sync follower has fetched lately. A leader that is alone has none: do not call it."""
        limit_ms = self._host.now_ms() - self._host.desertion_ms
        return max(self.last_fetches_ms(waiting).values(), default=limit_ms) < limit_ms

    # Changes of the ISR

    def remove_lagging(self, waiting: Iterable[FetchPosition]) -> None:
        """Propose an ISR without the followers that have been behind for too long."""
        for position in waiting:
            follower = self.followers.get(position.session.replica_id)
            if follower is not None:
                follower.caught_up_at(position.caught_up_ms)
        now_ms = self._host.now_ms()
        for follower in self.followers.values():
            follower.update_is_close(self._log.log_end_offset, now_ms, self._host.replica_lag_time_max_ms)
        self._remove(self.in_sync.leaving(self._host.broker_id, self.followers), "are behind")

    def remove_silent(self) -> None:
        """Propose an ISR without the followers that are silent, if enough are left."""
        silent, minimum = self._host.contacts.silent, self._log.config.min_insync_replicas
        self._remove(self.in_sync.leaving_silent(silent, minimum), "are silent")

    def _remove(self, leaving: frozenset[int], reason: str) -> None:
        if leaving and self._proposal is None:
            logger.info("%s: brokers %s %s, and leave the ISR", self.topic_partition, sorted(leaving), reason)
            self._propose(self.in_sync.isr - leaving)

    def propose_expansion(self) -> None:
        """Propose an ISR with the followers that have caught up, unless a proposal is under way."""
        if self._proposal is not None or len(self.in_sync.isr) == len(self.in_sync.replicas):
            return
        joining = self.in_sync.joining(
            self.followers,
            high_watermark=self._log.high_watermark,
            epoch_start_offset=self.epoch_start_offset,
            is_alive=self._is_present,
        )
        if joining:
            self._propose(self.in_sync.isr | joining)

    def retry_expansion(self) -> None:
        """Propose again a caught-up follower whose expansion failed: it sends no new fetch that would cause it."""
        for follower in self.followers.values():
            follower.is_refused = False
        self.propose_expansion()

    def _propose(self, isr: frozenset[int]) -> None:
        self.in_sync = self.in_sync.propose(isr)
        self._proposal = IsrProposal(
            self.topic_partition,
            self._log.topic_id or ZERO_UUID,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            isr=[(broker, self._epoch_of(broker)) for broker in self.in_sync.replicas if broker in isr],
            on_decided=self._decided,
        )
        self._host.propose_isr(self._proposal)

    def _epoch_of(self, broker: int) -> int:
        return self._host.broker_epoch() if broker == self._host.broker_id else self.followers[broker].broker_epoch

    def _decided(self, proposal: IsrProposal, decision: AlteredPartition) -> None:
        assert proposal is self._proposal, "a proposal that was withdrawn is not decided"
        error = error_of(decision.error_code)
        if error in _ISR_UNCHANGED:
            self.withdraw_proposal()
            if error is ErrorCode.INELIGIBLE_REPLICA:
                for broker in {broker for broker, _ in proposal.isr} - self.in_sync.isr:
                    self.followers[broker].is_refused = True
        elif error or decision.leader_epoch != self.leader_epoch or decision.partition_epoch < self.partition_epoch:
            # The LeaderAndIsr that is on its way has the new ISR; until then both are counted with.
            if not proposal.awaits_state:
                unlike = "the ISR is not the one known here"
                logger.info("%s: %s: %s; waiting for LeaderAndIsr", self.topic_partition, unlike, error.name)
            proposal.awaits_state = True
            return
        else:
            self._proposal, proposal.awaits_state = None, False
            self.partition_epoch = decision.partition_epoch
            self.in_sync = self.in_sync.commit(set(decision.isr), set(decision.eligible_leader_replicas))
            self.propose_expansion()
        self._on_decided()

    def withdraw_proposal(self) -> None:
        """Forget the proposal that is under way: its decision will not be taken over."""
        if self._proposal is not None:
            self._proposal.withdrawn = True
            self._proposal = None
            self.in_sync = self.in_sync.withdraw()

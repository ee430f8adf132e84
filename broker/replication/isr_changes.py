"""Changes of in-sync replicas on their way to the controller (AlterPartition, KIP-497).

A leader never changes an ISR by itself. It makes an `IsrProposal`, and until the controller decides it, the leader
counts with both the old and the proposed ISR. Proposals of one turn of the loop, and those made while a request is
under way, are sent together, at most ``MOST_PARTITIONS`` in a request, so that the controller never refuses one for its
size. One request is under way at a time.

A request that gets no response, or an error as a whole, is retried until its proposals are withdrawn: with a
growing backoff, but soon after another broker has become the controller. Proposals that fail with a retriable error are
retried in the same way; meanwhile the others are sent. A retry is safe: the controller responds to a change that is
already made as if it made it. A proposal is withdrawn when a LeaderAndIsr carries a newer state; its result is then
ignored (KAFKA-12686).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final, TypeAlias

from oncelog.broker.process.containment import Containment
from oncelog.coordinator.controller.cluster_image import NO_CONTROLLER
from oncelog.coordinator.ports import BrokerChannel
from oncelog.protocol.errors import ErrorCode, error_of
from oncelog.protocol.messages.alter_partition import (
    AlteredPartition,
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    BrokerState,
)
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

MOST_PARTITIONS: Final = 500
"""Maximum number of partitions in one request."""
_RETRY_SECONDS: Final = 0.05
"""Seconds until a retry, or until the next check for another controller."""
_MOST_PAUSES: Final = 20
"""Longest backoff towards a controller that does not decide, in units of ``_RETRY_SECONDS``: 1 s."""
_LOG_SECONDS: Final = 5.0
"""Between two log lines about undecided proposals."""
_DECIDED: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.INELIGIBLE_REPLICA,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""Final results: a retry at once would return the same."""
_STATE_SECONDS: Final = 5.0
"""Far longer than the LeaderAndIsr takes that brings another state."""


class IsrProposal:
    """One change of an ISR that a leader proposes."""

    __slots__ = (
        "awaits_state",
        "isr",
        "leader_epoch",
        "on_decided",
        "partition_epoch",
        "topic_id",
        "topic_partition",
        "withdrawn",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        *,
        leader_epoch: int,
        partition_epoch: int,
        isr: Iterable[tuple[int, int]],
        on_decided: "OnDecided",
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.isr = tuple(isr)
        """(broker id, broker epoch of the incarnation that the leader knows to be in sync); -1 for an unknown epoch."""
        self.on_decided = on_decided
        self.withdrawn = False
        self.awaits_state = False
        """Whether the controller has another state than the leader, which LeaderAndIsr must bring."""


OnDecided: TypeAlias = Callable[[IsrProposal, AlteredPartition], None]


def reject_proposal(proposal: IsrProposal) -> None:
    """Raise ``AssertionError``: the broker of a single-node cluster has no followers, so it proposes nothing."""
    raise AssertionError(f"{proposal.topic_partition} has followers, but this broker has no controller to propose to")


class AlterPartitionSender:
    """Sends the proposals of this broker's partitions."""

    def __init__(
        self,
        channel: BrokerChannel,
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        controller_id: Callable[[], int],
    ) -> None:
        self._channel = channel
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._controller_id = controller_id
        self._waiting: dict[IsrProposal, None] = {}
        self._busy = False
        """Whether a request, or its repetition, or the beginning of one, is under way."""
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self._last_controller = NO_CONTROLLER
        self._pauses = 0
        """Backoff before the next request to the last controller, in retry intervals; 0 if it decided."""
        self._undecided: dict[IsrProposal, None] = {}
        """Proposals that failed with a retriable error, until they are sent again."""
        self._undecided_pauses = 0
        self._undecided_timer: asyncio.TimerHandle | None = None
        self._awaiting: dict[IsrProposal, None] = {}
        """Proposals whose leaders await a newer state; they are sent again if it does not come."""
        self._awaiting_timer: asyncio.TimerHandle | None = None
        self._next_log = 0.0

    def submit(self, proposal: IsrProposal) -> None:
        """Send a proposal to the controller; ``proposal.on_decided`` is called once, unless it is withdrawn before."""
        self._waiting[proposal] = None
        self._begin()

    def _begin(self) -> None:
        if not self._busy and not self._stopped:
            self._busy = True
            asyncio.get_running_loop().call_soon(self._send)

    def stop(self) -> None:
        self._stopped = True
        self._waiting.clear()
        self._undecided.clear()
        self._awaiting.clear()
        for timer in (self._timer, self._undecided_timer, self._awaiting_timer):
            if timer is not None:
                timer.cancel()

    def _send(self) -> None:
        self._busy = False
        self._waiting = {proposal: None for proposal in self._waiting if not proposal.withdrawn}
        if not self._waiting or self._stopped:
            return
        self._busy = True
        controller_id = self._controller_id()
        if controller_id == NO_CONTROLLER:
            self._repeat()
            return
        proposals = list(islice(self._waiting, MOST_PARTITIONS))
        for proposal in proposals:
            del self._waiting[proposal]
        self._last_controller = controller_id
        request = _request(self._broker_id, self._broker_epoch(), proposals)
        self._channel.send(controller_id, request, lambda response: self._take(proposals, response))

    def _take(self, proposals: list[IsrProposal], response: Message | None) -> None:
        if self._stopped:
            return
        error = error_of(response.error_code) if isinstance(response, AlterPartitionResponse) else None
        if not isinstance(response, AlterPartitionResponse) or error:
            self._waiting = dict.fromkeys(proposals) | self._waiting
            self._log(f"{len(self._waiting)} changes of ISRs", error)
            self._pauses = min(max(2 * self._pauses, 1), _MOST_PAUSES)
            self._repeat(self._pauses)
            return
        self._pauses = 0
        decisions = {
            (topic.name_beside_id, topic.topic_id, decision.partition_index): decision
            for topic in response.topics
            for decision in topic.partitions
        }
        undecided: dict[IsrProposal, ErrorCode] = {}
        contained = Containment(_log_failure)
        for proposal in proposals:
            name, index = proposal.topic_partition
            key = proposal.topic_id, index
            decision = decisions.get((name, *key)) or decisions.get(("", *key))  # Other releases leave the name out.
            error = ErrorCode.UNKNOWN_SERVER_ERROR if decision is None else error_of(decision.error_code)
            if decision is None or error not in _DECIDED:
                undecided[proposal] = error
            elif not proposal.withdrawn:
                with contained:  # Else one partition's failure would end the changes of all ISRs of this broker.
                    proposal.on_decided(proposal, decision)
                if proposal.awaits_state and not proposal.withdrawn:
                    self._send_again_without_state(proposal)
        self._put_off(undecided)
        self._send()

    def _send_again_without_state(self, proposal: IsrProposal) -> None:
        """Send a proposal again unless its leader gets the newer state that it awaits.

        There may be none: a controller that has been replaced, or could not read the topic, does not know what it
        returns. Else nothing would change the ISR until the partition's state changes for another reason.
        """
        self._awaiting[proposal] = None
        if self._awaiting_timer is None:
            self._awaiting_timer = asyncio.get_running_loop().call_later(_STATE_SECONDS, self._end_waiting_for_state)

    def _end_waiting_for_state(self) -> None:
        self._awaiting_timer = None
        again = {proposal: None for proposal in self._awaiting if not proposal.withdrawn}
        self._awaiting = {}
        if again:
            self._waiting |= again
            self._begin()

    def _put_off(self, undecided: Mapping[IsrProposal, ErrorCode]) -> None:
        """Send these again after a backoff, which doubles until no proposal is undecided."""
        if undecided:
            first, error = next(iter(undecided.items()))
            self._log(f"{len(undecided)} changes of ISRs, among them {first.topic_partition}", error)
        self._undecided |= dict.fromkeys(undecided)
        if not self._undecided:
            self._undecided_pauses = 0
        elif self._undecided_timer is None:
            self._undecided_pauses = min(max(2 * self._undecided_pauses, 1), _MOST_PAUSES)
            self._pause_undecided(self._undecided_pauses)

    def _pause_undecided(self, pauses: int) -> None:
        loop = asyncio.get_running_loop()
        self._undecided_timer = loop.call_later(_RETRY_SECONDS, self._end_undecided_pause, pauses - 1)

    def _end_undecided_pause(self, pauses: int) -> None:
        if pauses and self._controller_id() == self._last_controller:
            self._pause_undecided(pauses)
            return
        self._undecided_timer = None
        self._waiting |= self._undecided  # Behind the others, which may be decided.
        self._undecided = {}
        self._begin()

    def _repeat(self, pauses: int = 1) -> None:
        """Send after so many pauses, or after one if there is another controller by then."""
        self._timer = asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._end_pause, pauses - 1)

    def _end_pause(self, pauses: int) -> None:
        if pauses and self._controller_id() == self._last_controller:
            self._repeat(pauses)
        else:
            self._send()

    def _log(self, changes: str, error: ErrorCode | None) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._next_log:
            self._next_log = now + _LOG_SECONDS
            reason = "no response" if error is None else error.name
            logger.info("Controller %d did not decide on %s: %s", self._last_controller, changes, reason)


def _log_failure(error: Exception) -> None:
    logger.error("A partition could not act on the controller's decision on its ISR", exc_info=error)


def _request(broker_id: int, broker_epoch: int, proposals: list[IsrProposal]) -> AlterPartitionRequest:
    topics: dict[tuple[str, bytes], AlterPartitionTopic] = {}
    for proposal in proposals:
        name, topic_id = proposal.topic_partition.topic, proposal.topic_id
        topic = topics.setdefault(
            (name, topic_id), AlterPartitionTopic(topic_name=name, topic_id=topic_id, name_beside_id=name)
        )
        topic.partitions.append(
            AlterPartitionData(
                partition_index=proposal.topic_partition.partition,
                leader_epoch=proposal.leader_epoch,
                new_isr=[broker for broker, _ in proposal.isr],
                new_isr_with_epochs=[
                    BrokerState(broker_id=broker, broker_epoch=epoch) for broker, epoch in proposal.isr
                ],
                partition_epoch=proposal.partition_epoch,
            )
        )
    return AlterPartitionRequest(broker_id=broker_id, broker_epoch=broker_epoch, topics=list(topics.values()))

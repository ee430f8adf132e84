"""The exchange of a producer with coordinators: which request is sent next, and what its outcome changes. Pure.

An abort drops requests that belong to its transaction: ``TxnOffsetCommit``, since the abort undoes whatever it did, and
those that were refused each time. A request that adds to the transaction and may have been carried out
(``maybe_applied``) is repeated as long as another attempt may show that. If none does, it is dropped, too, and the
epoch is bumped, which ends whatever it began.
"""

from oncelog.clients.errors import ClientError, Refusal, TransactionAborted
from oncelog.clients.producer.pending_requests import PendingRequest
from oncelog.clients.producer.producer_id_and_epoch import NO_PRODUCER, ProducerIdAndEpoch
from oncelog.clients.producer.producer_state import State
from oncelog.clients.producer.request_effects import Effect, client_error
from oncelog.clients.producer.transaction_manager import TransactionManager
from oncelog.clients.producer.transaction_requests import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    EndTxn,
    InitProducerId,
    TxnOffsetCommit,
)
from oncelog.clients.producer.transactional_result import TransactionalResult
from oncelog.protocol.messages.end_txn import EndTxnResponse
from oncelog.protocol.messages.init_producer_id import InitProducerIdResponse
from oncelog.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse
from oncelog.protocol.schema import Message


class CoordinatorRequests:
    """Chooses the requests of one ``TransactionManager``, and applies their outcomes to it."""

    def __init__(self, manager: TransactionManager) -> None:
        self._manager = manager

    # The next request

    def next_request(self, *, has_incomplete: bool) -> PendingRequest | None:
        """Return the request to send now; None if there is none.

        ``has_incomplete`` is whether some batches are not done yet: a transaction ends after its batches.
        """
        manager = self._manager
        self._request_what_is_due(has_incomplete)
        while (pending := manager.requests.first()) is not None:
            if isinstance(pending.request, EndTxn) and has_incomplete and manager.state.error() is None:
                return None
            manager.requests.remove(pending)
            if self._ends_unsent(pending):
                continue
            pending.attempts += 1
            return pending
        return None

    def _request_what_is_due(self, has_incomplete: bool) -> None:
        manager = self._manager
        if manager.state.current in (State.IN_TRANSACTION, State.COMMITTING_TRANSACTION):
            partitions = manager.transaction.take_new_partitions()
            if partitions:
                add = AddPartitionsToTxn(producer=manager.transactional_producer, partitions=partitions)
                manager.requests.add(PendingRequest(add, TransactionalResult("adding partitions")))
        if manager.is_idempotent and not manager.is_transactional:
            if manager.state.current is State.UNINITIALIZED and has_incomplete:
                manager.state.move(State.INITIALIZING, "the first record")
                manager.request_producer_id(TransactionalResult("getting a producer id"))

    def _ends_unsent(self, pending: PendingRequest) -> bool:
        """Return whether a request is done without being sent: dropped, or the end of a transaction without content."""
        manager = self._manager
        error = manager.state.error()
        if error is not None and (
            manager.state.current is State.FATAL_ERROR
            or not pending.must_be_decided(can_bump_epoch=manager.can_bump_epoch)
        ):
            manager.drop(pending, error)
            return True
        if isinstance(pending.request, EndTxn) and not manager.transaction.is_started:
            manager.ended(NO_PRODUCER, pending.result)
            return True
        return False

    # Outcomes

    def handle_response(self, pending: PendingRequest, response: Message) -> Effect:
        """Apply a response. With ``RETRY`` and ``FIND_COORDINATOR`` the request is pending again."""
        refused = pending.request.error_in(response)
        if isinstance(pending.request, TxnOffsetCommit):
            assert isinstance(response, TxnOffsetCommitResponse)
            pending.request = pending.request.without_committed(response)
        effect = self._apply(pending, pending.request.effect_of(refused.error), refused)
        if effect is Effect.DONE:
            self._carried_out(pending, response)
        return effect

    def handle_lookup_error(self, pending: PendingRequest, refused: Refusal) -> Effect:
        """Apply an error of FindCoordinator, which kept the request from being sent."""
        return self._apply(pending, pending.request.effect_of_lookup(refused.error), refused)

    def handle_loss(self, pending: PendingRequest, *, was_sent: bool) -> None:
        """Repeat a request without a response: if it was sent, it may have been carried out."""
        pending.note_loss(was_sent=was_sent)
        pending.result.response_lost = True
        self._repeat(pending)

    def handle_unsupported_version(self, pending: PendingRequest, error: ClientError) -> None:
        """End the producer: the coordinator supports none of the versions of the request."""
        self._manager.fail_fatally(error)
        pending.result.fail(self._manager.state.error() or error)

    def _apply(self, pending: PendingRequest, effect: Effect, refused: Refusal) -> Effect:
        pending.note_error(refused.error)
        match effect:
            case Effect.DONE:
                pass
            case Effect.RETRY | Effect.FIND_COORDINATOR:
                self._repeat(pending)
            case _:
                explained = self._manager.causes.explain(refused)
                self._fail(pending, effect, client_error(pending.request.kind, explained, effect))
        return effect

    def _fail(self, pending: PendingRequest, effect: Effect, error: ClientError) -> None:
        manager = self._manager
        match effect:
            case Effect.REFUSED:
                manager.refuse(error)
            case Effect.ABORTABLE:
                began = pending.request.begins_transaction and pending.maybe_applied
                manager.fail_transaction(error, needs_epoch_bump=began and manager.can_bump_epoch)
            case Effect.ABORTABLE_BY_BUMP:
                manager.fail_transaction(error, needs_epoch_bump=True)
            case _:
                manager.fail_fatally(error)
        pending.result.fail(error if error.is_abortable else manager.state.error() or error)

    def _repeat(self, pending: PendingRequest) -> None:
        """Make a request pending again that was not carried out, as far as is known; an abort may drop it."""
        manager = self._manager
        aborting = manager.state.current is State.ABORTING_TRANSACTION
        if aborting and pending.may_be_dropped(can_bump_epoch=manager.can_bump_epoch):
            manager.drop(pending, TransactionAborted("the transaction was aborted"))
        else:
            manager.requests.add(pending)

    def _carried_out(self, pending: PendingRequest, response: Message) -> None:
        manager = self._manager
        match pending.request, response:
            case InitProducerId(), InitProducerIdResponse():
                producer = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
                manager.initialized(producer, pending.result)
            case EndTxn(), EndTxnResponse():
                manager.ended(ProducerIdAndEpoch(response.producer_id, response.producer_epoch), pending.result)
            case AddPartitionsToTxn(partitions=partitions), _:
                manager.transaction.add(partitions)
                pending.result.succeed()
            case AddOffsetsToTxn() as added, _:
                manager.transaction.is_started = True
                self._repeat(PendingRequest(added.offset_commit(), pending.result))
            case TxnOffsetCommit(), _:
                pending.result.succeed()

"""Sends requests to coordinators, one at a time: the loop around ``CoordinatorRequests``."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from oncelog.clients.connection import Connection
from oncelog.clients.errors import BrokerRefused, ClientError, VersionNotSupported
from oncelog.clients.producer.coordinator_requests import CoordinatorRequests
from oncelog.clients.producer.pending_requests import PendingRequest
from oncelog.clients.producer.record_accumulator import RecordAccumulator
from oncelog.clients.producer.request_effects import Effect
from oncelog.clients.producer.transaction_manager import TransactionManager
from oncelog.clients.producer.transaction_requests import CoordinatorKey, CoordinatorKind
from oncelog.clients.routes import AnyBroker, Coordinator, Route
from oncelog.clients.runtime import ClientRuntime
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode

_log = logging.getLogger(__name__)

_CONCURRENT_TRANSACTIONS_SECONDS: Final = 0.02
"""Backoff while the former transaction is being completed, which takes milliseconds (KAFKA-5482)."""
_BUMPS_EPOCHS_FROM: Final = 3
"""The version of InitProducerId that bumps a client's epoch (KIP-360)."""


class CoordinatorSender:
    """Sends the requests of one ``TransactionManager``; ``run`` it in a task, and cancel that to end it."""

    def __init__(
        self,
        runtime: ClientRuntime,
        manager: TransactionManager,
        accumulator: RecordAccumulator,
        on_outcome: Callable[[], None],
        *,
        request_seconds: float,
    ) -> None:
        self._cluster = runtime.cluster
        self._backoff = runtime.backoff
        self._manager = manager
        self._accumulator = accumulator
        self._on_outcome = on_outcome
        """Called after each request, before its result is seen by the application."""
        self._request_seconds = request_seconds
        self._requests = CoordinatorRequests(manager)
        self._is_due = asyncio.Event()
        self._sent: PendingRequest | None = None

    def wake(self) -> None:
        """Look whether a request is due."""
        self._is_due.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            self._is_due.clear()
            self._manager.features = self._cluster.features
            pending = self._requests.next_request(has_incomplete=bool(self._accumulator.incomplete))
            if pending is None:
                await self._is_due.wait()
                continue
            self._sent = pending
            effect = await self._send(pending)
            self._sent = None
            self._on_outcome()
            if effect in (Effect.RETRY, Effect.FIND_COORDINATOR):
                await asyncio.sleep(self._backoff_seconds(pending))

    def fail_all(self, error: ClientError) -> None:
        """Fail the results of all requests; none is sent any more."""
        self._manager.fail_requests(error)
        if self._sent is not None:
            self._sent.result.fail(error)

    def _backoff_seconds(self, pending: PendingRequest) -> float:
        if pending.last_error == ErrorCode.CONCURRENT_TRANSACTIONS:
            return _CONCURRENT_TRANSACTIONS_SECONDS
        return self._backoff.pause_seconds(pending.attempts - 1)

    async def _send(self, pending: PendingRequest) -> Effect:
        request, route = pending.request, _route(pending.request.coordinator)
        was_sent = False
        try:
            connection = await self._cluster.resolve(route)
            self._note_versions(request.coordinator, connection)
            future = connection.send(
                request.message(),
                request.response_type,
                at_least=request.versions.first,
                at_most=request.versions.last,
                timeout=self._request_seconds,
            )
            was_sent = True
            response = await future
        except BrokerRefused as error:
            return self._requests.handle_lookup_error(pending, error.refusal)
        except VersionNotSupported as error:
            self._requests.handle_unsupported_version(pending, error)
            return Effect.FATAL
        except (ClientError, MemoryError) as error:
            if isinstance(error, MemoryError):
                _log.exception("%s could not be sent", request.kind.value)
            self._cluster.forget_route(route)
            self._requests.handle_loss(pending, was_sent=was_sent)
            return Effect.RETRY
        self._manager.features = self._cluster.features
        effect = self._requests.handle_response(pending, response)
        if effect is Effect.FIND_COORDINATOR:
            self._cluster.forget_route(route)
        return effect

    def _note_versions(self, coordinator: CoordinatorKey | None, connection: Connection) -> None:
        """Record whether the transaction coordinator can bump epochs, and so which errors can be recovered from."""
        bumps = connection.versions.range_of(ApiKey.INIT_PRODUCER_ID)
        if coordinator is not None and coordinator.kind is CoordinatorKind.TRANSACTION:
            self._manager.can_bump_epoch = bumps is not None and bumps.last >= _BUMPS_EPOCHS_FROM


def _route(coordinator: CoordinatorKey | None) -> Route:
    if coordinator is None:
        return AnyBroker()
    if coordinator.kind is CoordinatorKind.GROUP:
        return Coordinator.of_group(coordinator.key)
    return Coordinator.of_transactional_id(coordinator.key)

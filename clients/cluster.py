"""A cluster as its clients see it: its brokers, leaders and coordinators, and requests to them.

A request has a *route*: any broker, the controller, one broker, the coordinator of a group or a transactional id.
``Cluster.call`` finds the broker, sends the request, and retries elsewhere or later while the response only says that
the broker was the wrong one or not ready. Every other response is returned for the caller to judge.

Metadata and coordinators are caches of responses, replaced by newer ones; an entry that proves wrong is removed and
requested again. An operation that gets no final response within its time returns the last response, or raises the
last exception if there was none.

A broker that does not respond delays only requests that need this broker. One attempt has half of the operation's time
(``attempt_seconds``), and a request that any broker can serve is also sent to a second one after ``LATE_SECONDS``.
"""

import asyncio
import ssl
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from functools import partial
from itertools import repeat
from random import Random
from typing import Final, TypeVar

from oncelog.clients.background_tasks import BackgroundTasks
from oncelog.clients.cluster_metadata import ClusterMetadata
from oncelog.clients.connection import Address, Connection, connect
from oncelog.clients.connection_pool import LATE_SECONDS, ConnectionPool, is_late
from oncelog.clients.durations import positive_seconds
from oncelog.clients.errors import (
    AuthenticationFailed,
    BrokerAbsent,
    BrokerSilent,
    ClientError,
    ConnectionLost,
    NoBrokerReachable,
    Refusal,
    RequestTimedOut,
    TlsFailed,
    Unreachable,
    error_code,
    refusal,
)
from oncelog.clients.lasting_refusal import LastingRefusal
from oncelog.clients.negotiation import NO_FEATURES, newer_features
from oncelog.clients.obstacles import Obstacle, Obstacles, at_broker
from oncelog.clients.required_login import require_no_login
from oncelog.clients.retry import Backoff, Retry
from oncelog.clients.routes import AnyBroker, Controller, Coordinator, Node, Route
from oncelog.clients.sasl import SaslClient
from oncelog.clients.staggered import AllAttemptsFailed, first_success
from oncelog.protocol.errors import RETRIABLE, ErrorCode
from oncelog.protocol.messages.find_coordinator import Coordinator as FoundCoordinator
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from oncelog.protocol.sasl.login import Login
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition

R = TypeVar("R", bound=Message)

_STAGGER_SECONDS: Final = 1.0
"""After which a connection to the next broker is tried, too, while none is open."""
_CREATION_SECONDS: Final = 5.0
"""Seconds that a topic may remain unknown which brokers create when its metadata is requested."""
_NO_RESPONSE: Final = (Unreachable, ConnectionLost, RequestTimedOut)
_REFUSALS: Final = (TlsFailed, AuthenticationFailed)
"""What another address of the cluster would not do better."""
_LEADERLESS: Final = "partitions without a leader"
_LEFT_OUT: Final = Refusal(error=ErrorCode.UNKNOWN_SERVER_ERROR, message="the broker did not say")

NOT_FINAL: Final = RETRIABLE - {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.CORRUPT_MESSAGE,
}
"""Errors that may pass: another broker, or the same one a moment later, may return another result."""
NOT_FINAL_FROM_A_LEADER: Final = NOT_FINAL | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
"""A leader may hear of its new partition after its clients did; metadata decides whether there is such a topic."""


def no_errors(response: Message) -> Iterable[int]:
    """Return no error numbers, for responses whose errors never mean "wrong broker" or "not ready"."""
    return ()


class Cluster:
    """Connections to a cluster's brokers, and what they said about it. Close it, or use it as a context manager."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        *,
        rng: Random,
        client_id: str = "oncelog",
        connect_seconds: float = 10.0,
        operation_seconds: float = 30.0,
        tls: ssl.SSLContext | None = None,
        login: Login | None = None,
    ) -> None:
        self._bootstrap = tuple(bootstrap)
        self.rng = rng
        self._backoff = Backoff(rng=rng)
        self._client_id = client_id
        self._connect_seconds = positive_seconds(connect_seconds, "connect_seconds")
        self.operation_seconds = positive_seconds(operation_seconds, "operation_seconds")
        """The time of one operation, over all of its attempts."""
        self._tls = tls
        self._sasl = None if login is None else SaslClient(login)
        self._tasks = BackgroundTasks(client_id)
        self.pool = ConnectionPool(self.connect, self._tasks)
        self._obstacles = Obstacles()
        self.refusal = LastingRefusal()
        self._turned_away: set[Address] = set()
        """Where the last connection ended at its first request, which may be for want of a login."""
        self._coordinators: dict[Coordinator, int] = {}
        self.unreachable: dict[Address, str] = {}
        """Why an address has no connection: its last attempt failed, or one is under way."""
        self.metadata = ClusterMetadata()
        self.features = NO_FEATURES
        """The finalised features, with the largest epoch that a broker has returned on connecting."""

    @property
    def brokers(self) -> dict[int, Address]:
        """Where each broker listens, by its id."""
        return self.metadata.brokers

    async def __aenter__(self) -> "Cluster":
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection, and wait a moment for what was written to leave. None is opened afterwards."""
        await self.pool.close()

    # Requests

    def attempts(self) -> Retry:
        """Return the attempts of one operation, which begins now."""
        return Retry(self._backoff, self.operation_seconds)

    async def call(
        self,
        route: Route,
        request: Message,
        response_type: type[R],
        *,
        errors: Callable[[R], Iterable[int]] = no_errors,
        at_least: int = 0,
        at_most: int | None = None,
    ) -> R:
        """Return the final response. ``errors`` returns the numbers of its errors that may mean "wrong broker"."""
        retry = self.attempts()
        while True:
            response, failure = None, None
            try:
                response = await self.attempt(route, request, response_type, retry, at_least=at_least, at_most=at_most)
                if not self.is_hindered(request, errors(response)):
                    return response
            except NoBrokerReachable:
                raise
            except _NO_RESPONSE as error:
                failure = error
            self.forget_route(route)
            if not await retry.pause():
                if failure is not None:
                    raise failure
                assert response is not None
                return response

    def is_hindered(self, request: Message, errors: Iterable[int], message: str | None = None) -> bool:
        """Return whether the errors in a response say to retry, and report them as an obstacle then.

        ``message`` is the broker's message about the first of them.
        """
        passing = next((error for error in errors if error in NOT_FINAL), None)
        if passing is None:
            self._obstacles.overcome(type(request))
            return False
        name = type(request).__name__.removesuffix("Request")
        reason = f"{name} returns {error_code(passing).name}" + (f": {message}" if message else "")
        self.note_obstacle(type(request), reason)
        return True

    def note_obstacle(self, subject: Hashable, reason: str, error: ErrorCode | None = None) -> None:
        """Report this as an obstacle until something about the subject succeeds."""
        self._obstacles.fail(subject, reason, self._now(), error)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def attempt(
        self,
        route: Route,
        request: Message,
        response_type: type[R],
        retry: Retry,
        *,
        at_least: int = 0,
        at_most: int | None = None,
    ) -> R:
        """Return the response to one attempt of an operation, whatever it says. Raises ``ClientError``."""
        seconds = retry.attempt_seconds

        def send(connection: Connection) -> "asyncio.Future[R]":
            return connection.send(request, response_type, at_least=at_least, at_most=at_most, timeout=seconds)

        if not isinstance(route, AnyBroker):
            return await send(await self.resolve(route))
        tried: set[Address] = set()

        async def try_next() -> R:
            connection = await self.connection_to_any(besides=tried)
            tried.add(connection.address)
            return await send(connection)

        attempts = repeat(try_next, len(self._bootstrap) + len(self.brokers))
        name = type(request).__name__
        try:
            return await first_success(
                self._tasks, attempts, LATE_SECONDS, name, ends=lambda error: not isinstance(error, _NO_RESPONSE)
            )
        except AllAttemptsFailed as failed:
            raise failed.errors[0] from None

    # What is known

    async def topics(self, names: Collection[str], *, create: bool = False) -> dict[str, MetadataResponseTopic]:
        """Return the metadata of topics, errors included. ``create`` allows brokers to create missing topics."""
        not_final = NOT_FINAL_FROM_A_LEADER if create else NOT_FINAL
        retry = Retry(
            self._backoff, min(_CREATION_SECONDS, self.operation_seconds) if create else self.operation_seconds
        )
        known = self.metadata.topics
        while missing := [name for name in names if name not in known]:
            response = await self.refresh(missing, create=create)
            received = {topic.name: topic for topic in response.topics}
            if any(topic.error_code in not_final for topic in received.values()) and await retry.pause():
                continue
            return {name: known.get(name) or received[name] for name in names}
        return {name: known[name] for name in names}

    async def refresh(self, names: Collection[str] | None, *, create: bool = False) -> MetadataResponse:
        """Request the brokers and the metadata of some topics, or of all if ``names`` is None."""
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in sorted(names)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=create)
        response = await self.call(AnyBroker(), request, MetadataResponse)
        self.metadata.update(response, asyncio.get_running_loop().time())
        return response

    async def coordinator(self, of: Coordinator) -> int:
        """Return the id of the coordinator of a group or a transactional id. Raises ``BrokerRefused``."""
        found = (await self.coordinators([of]))[of]
        if isinstance(found, Refusal):
            raise found.as_error(of.key)
        return found

    async def coordinators(self, of: Collection[Coordinator]) -> dict[Coordinator, int | Refusal]:
        """Return the ids of coordinators, all of groups or all of transactional ids."""
        found: dict[Coordinator, int | Refusal] = {}
        found |= {each: self._coordinators[each] for each in of if each in self._coordinators}
        while missing := [each for each in of if each not in found]:
            keys = [each.key for each in missing]
            request = FindCoordinatorRequest(key=keys[0], key_type=missing[0].key_type, coordinator_keys=keys)
            response = await self.call(AnyBroker(), request, FindCoordinatorResponse, errors=_coordinator_errors)
            if not response.coordinators:  # Before version 4 a response is about the first key.
                found[missing[0]] = self._cache_coordinator(missing[0], response)
                continue
            by_key = {coordinator.key: coordinator for coordinator in response.coordinators}
            for each in missing:
                coordinator = by_key.get(each.key)
                found[each] = self._cache_coordinator(each, coordinator) if coordinator else _LEFT_OUT
        return found

    def _cache_coordinator(
        self, of: Coordinator, coordinator: FindCoordinatorResponse | FoundCoordinator
    ) -> int | Refusal:
        refused = refusal(coordinator.error_code, coordinator.error_message)
        if refused is not None:
            return refused
        self._coordinators[of] = coordinator.node_id
        self.brokers[coordinator.node_id] = Address(coordinator.host, coordinator.port)
        return coordinator.node_id

    def forget_coordinator(self, of: Coordinator) -> None:
        """Look the coordinator up again before the next request to it."""
        self._coordinators.pop(of, None)

    # Connections

    async def resolve(self, route: Route) -> Connection:
        """Return a connection to the broker that is right as far as is known. Raises ``ClientError``."""
        match route:
            case AnyBroker():
                return await self.connection_to_any()
            case Node(node_id):
                return await self.connection_to(node_id)
            case Controller():
                if self.metadata.controller_id is None:
                    await self.refresh(())
                if self.metadata.controller_id is None:
                    return await self.connection_to_any()
                return await self.connection_to(self.metadata.controller_id)
            case Coordinator():
                return await self.connection_to(await self.coordinator(route))

    def forget_route(self, route: Route) -> None:
        """Remove what is known of a route that was wrong, so that the next request looks it up again."""
        match route:
            case Node(node_id):
                self.brokers.pop(node_id, None)
            case Controller():
                self.metadata.controller_id = None
            case Coordinator():
                self.forget_coordinator(route)
            case AnyBroker():
                pass

    async def connection_to(self, node_id: int) -> Connection:
        """Return a connection to one broker. Raises ``BrokerAbsent`` if the cluster has no such broker."""
        if node_id not in self.brokers:
            await self.refresh(())
        address = self.brokers.get(node_id)
        subject = Node(node_id)
        if address is None:
            absent = BrokerAbsent.among(node_id, self.brokers)
            self.note_obstacle(subject, str(absent))
            raise absent
        self._obstacles.overcome(subject)
        return await self.pool.to(address)

    async def connection_to_any(self, besides: Collection[Address] = ()) -> Connection:
        """Return a connection to a broker that responds, to none of ``besides``. Raises ``NoBrokerReachable``.

        An open connection is preferred, the one with the fewest requests in flight. If all of them are late, the
        brokers without a connection are tried, and a late connection is the last resort.
        """
        best = self.pool.least_loaded(besides)
        if best is not None and not is_late(best):
            return best
        known = [address for address in self.brokers.values() if address not in self._bootstrap]
        self.rng.shuffle(known)
        untried = [each for each in (*self._bootstrap, *known) if each not in besides and not self.pool.is_open(each)]
        attempts = (partial(self.pool.to, address) for address in untried)
        try:
            return await first_success(
                self._tasks, attempts, _STAGGER_SECONDS, "any broker", ends=lambda error: isinstance(error, _REFUSALS)
            )
        except AllAttemptsFailed as failed:
            if best is not None and best.is_open:
                return best
            is_silent = any(isinstance(error, BrokerSilent) for error in failed.errors)
            raise NoBrokerReachable(str(failed), is_silent=is_silent) from None

    def obstacles(self) -> list[Obstacle]:
        """Return what keeps this client from going on now, the oldest first."""
        found = [*self._obstacles.current(self._now()), *self.pool.silences()]
        return sorted((at_broker(each, self.brokers) for each in found), key=lambda each: -each.seconds)

    def note_leaderless(self, partitions: Sequence[TopicPartition]) -> None:
        """Report needed partitions without a leader as an obstacle; an empty list ends it."""
        if not partitions:
            self._obstacles.overcome(_LEADERLESS)
            return
        others = f" and {len(partitions) - 1} more" if len(partitions) > 1 else ""
        self.note_obstacle(_LEADERLESS, f"{partitions[0]}{others}: no replica can lead now")

    def is_connected(self, address: Address) -> bool:
        """Return whether a connection to the address is open."""
        return self.pool.is_open(address)

    async def connect(self, address: Address) -> Connection:
        """Open a connection that the caller closes. Raises what ``connection.connect`` raises."""
        if address in self._turned_away:
            self._turned_away.discard(address)
            await require_no_login(address, self._client_id, self._connect_seconds, self._tls)
        self.unreachable.setdefault(address, f"{address}: no response yet")
        begin = partial(self._obstacles.begin, address)
        begin("no response to the attempt to connect", self._now())
        try:
            connection = await connect(
                address,
                client_id=self._client_id,
                connect_seconds=self._connect_seconds,
                request_seconds=self.operation_seconds,
                tls=self._tls,
                sasl=self._sasl,
                on_accepted=lambda: begin("no response to ApiVersions", self._now(), is_connected=True),
            )
        except asyncio.CancelledError:
            self._obstacles.overcome(address)
            raise
        except ClientError as error:
            self.unreachable[address] = str(error)
            self.refusal.note(error, self._now())
            advice = error.advice if isinstance(error, _REFUSALS) else ""
            self._obstacles.fail(address, str(error).removeprefix(f"{address}: "), self._now(), advice=advice)
            raise
        connection.closed.add_done_callback(partial(_note_end, connection, self._turned_away))
        self.unreachable.pop(address, None)
        self.refusal.overcome()
        self._obstacles.overcome(address)
        self.features = newer_features(self.features, connection.versions.features)
        return connection


def _note_end(connection: Connection, turned_away: set[Address], _: object) -> None:
    if connection.was_turned_away:
        turned_away.add(connection.address)


def find_partition(topic: MetadataResponseTopic, index: int) -> MetadataResponsePartition | None:
    """Return the metadata of one partition of a topic; None if it has no such partition."""
    return next((partition for partition in topic.partitions if partition.partition_index == index), None)


def _coordinator_errors(response: FindCoordinatorResponse) -> list[int]:
    return [response.error_code, *(found.error_code for found in response.coordinators)]

"""``ClientQuotas``: the quotas of a broker's clients (KIP-13, 124, 219, 546, 599, 612).

Handlers report what a client has moved and put the milliseconds that they get into ``throttle_time_ms``. The response
leaves at once; then the connection is not read for that time, whether or not its client waits by itself.

* **Bytes**: a produce is counted when its records are appended. A fetch over its limit returns nothing and is not
  counted. Followers are exempt. The delay has no bound.
* **Time of the loop**, as a percentage of it: what a connection's requests take is added up (``LoopMeter``) and counted
  with its next response. Requests between brokers, and those without a response, are exempt. The delay is a window at
  most. It is measured only while there is such a limit.
* **Partitions created and deleted** (``Mutations``): on the controller, and those of topics that a Metadata request
  creates on the broker that received it. A topic that another broker has the controller create is not counted again.
* **Connections** (``ConnectionRates``).

Of several delays the longest counts. While there are no limits, a request costs one look at an attribute.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.settings import INT32_MAX
from oncelog.broker.dispatch.loop_meter import Metered
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.quotas.client_quota import BucketQuota, ClientQuota, Throttles
from oncelog.broker.quotas.connection_rates import ConnectionRates
from oncelog.broker.quotas.mutations import Mutations
from oncelog.broker.quotas.windowed_rate import Windows
from oncelog.coordinator.controller.config_changes import ConfigResource
from oncelog.coordinator.controller.config_repository import Overrides
from oncelog.coordinator.controller.quota_entities import entity_of_resource, quotas_in
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.client_quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    DefaultName,
    EntityName,
)
from oncelog.protocol.schema import Message

logger = logging.getLogger(__name__)

_PERCENT_PER_NANOSECOND: Final = 100 / 1_000_000_000
_BETWEEN_BROKERS: Final = frozenset(
    {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
        ApiKey.WRITE_TXN_MARKERS,
    }
)
"""Requests whose time does not count, unless they are refused: Kafka's."""
_OF_LOGINS: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


class FetchThrottle(NamedTuple):
    """What a fetch returns."""

    milliseconds: int = 0
    gets_records: bool = True
    """Whether it returns the records that it has read; else none, and they are not counted."""


_FETCHES: Final = FetchThrottle()
IsBrokers: TypeAlias = Callable[[RequestContext], bool]


def _is_a_clients(context: RequestContext) -> bool:
    """Take no request for another broker's."""
    return False


def _may_act(context: RequestContext) -> bool:
    """Allow every client what brokers do."""
    return True


class ClientQuotas:
    """Listens to the dynamic configuration, from before it is loaded. Implements ``LoopMeter``."""

    def __init__(
        self, config: BrokerConfig | None = None, *, nanoseconds: Callable[[], int] = time.perf_counter_ns
    ) -> None:
        """Take the windows from the configuration; ``nanoseconds`` is the clock that measures requests."""
        config = config or BrokerConfig()
        windows = Windows(config.quota_window_num, config.quota_window_size_seconds)
        self.produce = ClientQuota(windows)
        self.fetch = ClientQuota(windows)
        self.request = ClientQuota(windows, longest_seconds=windows.seconds)
        self.mutation = BucketQuota(
            Windows(config.controller_quota_window_num, config.controller_quota_window_size_seconds)
        )
        self.connections = ConnectionRates(windows)
        self.nanoseconds = nanoseconds
        self.is_brokers: IsBrokers = _is_a_clients
        """Whether a request comes from another broker, for which there are no limits but those of bytes."""
        self.may_act: IsBrokers = _may_act
        """Whether a client may do what brokers do."""
        self.limits_produce = self.limits_fetch = self.watches_fetches = False
        """Whether there is any limit for it; a fetch is also watched for the time that its client's requests take."""
        self._metered: list[Metered] = []
        self._limits = {
            PRODUCER_BYTE_RATE: self.produce.limits,
            CONSUMER_BYTE_RATE: self.fetch.limits,
            REQUEST_PERCENTAGE: self.request.limits,
            CONTROLLER_MUTATION_RATE: self.mutation.limits,
        }

    @property
    def throttles(self) -> dict[str, Throttles]:
        """How often clients were throttled, by the quota that they were over."""
        return {
            "produce": self.produce.throttles,
            "fetch": self.fetch.throttles,
            "request": self.request.throttles,
            "controller_mutation": self.mutation.throttles,
            "connection": self.connections.throttles,
        }

    # The limits

    def learn(self, resource: ConfigResource, overrides: Overrides) -> None:
        """Take the limits of an entity, if the resource is one."""
        entity = entity_of_resource(resource)
        if entity is None:
            return
        found = quotas_in(entity, overrides)
        if entity.ip is not None:
            self._learn_ip(entity.ip, found.get(CONNECTION_CREATION_RATE))
            return
        for key, limits in self._limits.items():
            limits.set(entity.user, entity.client_id, found.get(key))
        self.limits_produce, self.limits_fetch = bool(self.produce.limits), bool(self.fetch.limits)
        self.watches_fetches = self.limits_fetch or bool(self.request.limits)
        self._meter()

    def _learn_ip(self, ip: EntityName, limit: float | None) -> None:
        address = ip
        if not isinstance(ip, DefaultName):
            from ipaddress import ip_address  # Only such a quota pays for it, not every start.

            try:
                address = ip_address(ip).compressed
            except ValueError:
                logger.error("The quota of IP %s is not used: it is not an address", ip)
                return
        self.connections.set_ip_limit(address, limit)

    def measure(self, *parts: Metered) -> None:
        """Have these parts of the broker measure what requests take, while there is a limit for it."""
        self._metered += parts
        self._meter()

    def _meter(self) -> None:
        for part in self._metered:
            part.meter = self if self.request.limits else None

    # What clients use

    def record_produce(self, context: RequestContext, size: int) -> int:
        """Count bytes that a client has produced, and return the milliseconds that it is throttled for."""
        return self._throttle(context, self.produce.throttles, self._record(self.produce, context, size))

    def most_fetched(self, context: RequestContext) -> int:
        """Return how many bytes a fetch should return at most."""
        most = self.fetch.most_at_once(context.connection.principal.name, context.client_id or "", _now())
        return int(min(most, INT32_MAX))

    def record_fetch(self, context: RequestContext, size: int) -> FetchThrottle:
        """Count bytes that a client is about to fetch, and throttle it if it has used too much."""
        name, client_id, now = context.connection.principal.name, context.client_id or "", _now()
        request_delay = self._settle(context) if self.request.limits else 0.0
        use = self.fetch.use(name, client_id, size, now)
        if use.is_allowed and request_delay:
            self.fetch.record(name, client_id, -size, now)
        delay = max(use.delay, request_delay)
        if not delay:
            return _FETCHES
        throttles = self.fetch.throttles if use.delay > request_delay else self.request.throttles
        milliseconds = self._throttle(context, throttles, delay)
        return FetchThrottle(milliseconds, gets_records=use.is_allowed and not request_delay)

    def mutations(self, context: RequestContext, *, is_strict: bool) -> Mutations:
        """Return what a request may create and delete; ``is_strict``: its client understands a refusal."""
        limits, limit = self.mutation.limits, None
        if limits and not self.is_brokers(context):
            limit = limits.find(context.connection.principal.name, context.client_id or "")
        return Mutations(self.mutation, limit, _now, is_strict=is_strict)

    def settle_mutations(self, context: RequestContext, mutations: Mutations) -> int:
        """Return the milliseconds that a client is throttled for what a request has created and deleted."""
        return self._throttle(context, self.mutation.throttles, mutations.delay())

    def settle(self, api_key: ApiKey, context: RequestContext, response: Message | None) -> None:
        """Count what the requests of a connection took, and throttle its client in its response."""
        connection = context.connection
        if api_key is ApiKey.API_VERSIONS and connection.carries_heartbeats:
            return  # A broker whose heartbeats wait counts as dead. Their time counts with another response, if any.
        if response is None or self._is_exempt(api_key, context):
            connection.loop_nanoseconds = 0
            return
        delay = self._settle(context)
        if delay and delay * 1000 > getattr(response, "throttle_time_ms", 0):
            milliseconds = self._throttle(context, self.request.throttles, delay)
            if hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = milliseconds

    def _is_exempt(self, api_key: ApiKey, context: RequestContext) -> bool:
        if api_key in _OF_LOGINS or context.connection.is_replica_fetcher or self.is_brokers(context):
            return True
        return api_key in _BETWEEN_BROKERS and self.may_act(context)

    def _settle(self, context: RequestContext) -> float:
        connection = context.connection
        used, connection.loop_nanoseconds = connection.loop_nanoseconds, 0
        return self._record(self.request, context, used * _PERCENT_PER_NANOSECOND)

    def _record(self, quota: ClientQuota, context: RequestContext, used: float) -> float:
        return quota.record(context.connection.principal.name, context.client_id or "", used, _now())

    def _throttle(self, context: RequestContext, throttles: Throttles, delay: float) -> int:
        milliseconds = min(round(delay * 1000), INT32_MAX)
        if milliseconds > 0:
            throttles.note(milliseconds / 1000)
            context.connection.throttle(milliseconds / 1000)
        return milliseconds


def _now() -> float:
    return asyncio.get_running_loop().time()

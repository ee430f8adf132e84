"""What a broker learns of quotas, and when it measures requests."""

import logging

import pytest

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.dispatch.loop_meter import LoopMeter
from oncelog.broker.dispatch.request import ConnectionInfo, RequestContext
from oncelog.broker.quotas.client_quotas import ClientQuotas
from oncelog.coordinator.controller.config_changes import ConfigResource, ResourceType
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.messages.heartbeat import HeartbeatResponse
from oncelog.protocol.messages.write_txn_markers import WriteTxnMarkersResponse
from tests.unit.broker.virtual_time import in_virtual_time


class Part:
    """A part of the broker that spends time on requests."""

    def __init__(self) -> None:
        self.meter: LoopMeter | None = None


def quota(path: str) -> ConfigResource:
    return ConfigResource(ResourceType.QUOTA, path)


def context_of(client_id: str | None = "c", *, throttled: list[float] | None = None) -> RequestContext:
    connection = ConnectionInfo(client_host="h", listener_name="PLAINTEXT")
    if throttled is not None:
        connection.on_throttle = throttled.append
    return RequestContext(4, 1, client_id, connection)


def test_requests_are_measured_only_while_there_is_a_limit_for_it() -> None:
    quotas, part = ClientQuotas(), Part()
    quotas.measure(part)
    assert part.meter is None
    quotas.learn(quota("clients/c"), {"request_percentage": "5.0", "producer_byte_rate": "7"})
    assert part.meter is quotas
    assert (quotas.limits_produce, quotas.limits_fetch, quotas.watches_fetches) == (True, False, True)
    quotas.learn(quota("clients/c"), {"producer_byte_rate": "7"})
    assert part.meter is None
    quotas.learn(quota("clients/c"), {})
    assert (quotas.limits_produce, quotas.limits_fetch, quotas.watches_fetches) == (False, False, False)


def test_limits_that_another_tool_has_written_wrongly_are_not_used(caplog: pytest.LogCaptureFixture) -> None:
    quotas = ClientQuotas()
    quotas.learn(quota("users/al%20ice/clients/%2F"), {"producer_byte_rate": "many", "consumer_byte_rate": "-1"})
    quotas.learn(quota("ips/no.address"), {"connection_creation_rate": "1"})
    quotas.learn(ConfigResource(ResourceType.TOPIC, "t"), {"producer_byte_rate": "1"})
    assert not quotas.limits_produce
    assert not quotas.limits_fetch
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == [
        "The quota of IP no.address is not used: it is not an address"
    ]
    quotas.learn(quota("users/al%20ice/clients/%2F"), {"producer_byte_rate": "8"})
    assert quotas.produce.limits.find("al ice", "/") == (("al ice", "/"), 8)


def test_address_counts_in_every_spelling() -> None:
    quotas = ClientQuotas()
    quotas.learn(quota("ips/0%3A0%3A0%3A0%3A0%3A0%3A0%3A1"), {"connection_creation_rate": "1"})
    admitted = [quotas.connections.admit("::1", "A", 0.0, is_between_brokers=False).is_closed for _ in range(11)]
    assert admitted == [False] * 10 + [True]


@in_virtual_time
async def test_windows_are_those_of_the_settings() -> None:
    quotas = ClientQuotas(BrokerConfig(quota_window_num=3, quota_window_size_seconds=2))
    quotas.learn(quota("clients/<default>"), {"producer_byte_rate": "10"})
    throttled: list[float] = []
    assert quotas.record_produce(context_of(throttled=throttled), 40) == 0
    assert quotas.record_produce(context_of(throttled=throttled), 10) == 1_000
    assert throttled == [1.0]
    assert (quotas.throttles["produce"].count, quotas.throttles["produce"].seconds) == (1, 1.0)


@in_virtual_time
async def test_client_without_an_id_has_the_limit_of_the_default() -> None:
    quotas = ClientQuotas()
    quotas.learn(quota("clients/<default>"), {"producer_byte_rate": "10"})
    assert quotas.record_produce(context_of(None), 200) == 10_000


@in_virtual_time
async def test_time_of_the_loop_is_counted_with_the_next_response_and_throttles_by_a_window_at_most() -> None:
    quotas = ClientQuotas()
    quotas.learn(quota("clients/<default>"), {"request_percentage": "1"})
    throttled: list[float] = []
    context = context_of(throttled=throttled)
    context.connection.loop_nanoseconds = 50_000_000
    response = HeartbeatResponse()
    quotas.settle(ApiKey.HEARTBEAT, context, response)
    assert (response.throttle_time_ms, context.connection.loop_nanoseconds) == (0, 0)
    context.connection.loop_nanoseconds = 900_000_000
    quotas.settle(ApiKey.HEARTBEAT, context, response)
    assert response.throttle_time_ms == 1_000
    assert throttled == [1.0]


@in_virtual_time
async def test_time_of_requests_between_brokers_and_without_response_does_not_count() -> None:
    quotas = ClientQuotas()
    quotas.learn(quota("clients/<default>"), {"request_percentage": "1"})
    throttled: list[float] = []
    context = context_of(throttled=throttled)
    for api_key, response in (
        (ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersResponse()),
        (ApiKey.PRODUCE, None),
    ):
        context.connection.loop_nanoseconds = 10**12
        quotas.settle(api_key, context, response)
    context.connection.is_replica_fetcher = True
    context.connection.loop_nanoseconds = 10**12
    quotas.settle(ApiKey.FETCH, context, HeartbeatResponse())
    context.connection.is_replica_fetcher = False
    quotas.settle(ApiKey.HEARTBEAT, context, HeartbeatResponse())
    assert throttled == []


@in_virtual_time
async def test_time_of_requests_that_only_brokers_may_send_counts_for_a_client_that_may_not() -> None:
    quotas = ClientQuotas()
    quotas.learn(quota("clients/<default>"), {"request_percentage": "1"})
    quotas.may_act = lambda context: context.client_id == "broker"
    throttled: list[float] = []
    for client_id in ("broker", "c"):
        context = context_of(client_id, throttled=throttled)
        context.connection.loop_nanoseconds = 10**12
        quotas.settle(ApiKey.WRITE_TXN_MARKERS, context, WriteTxnMarkersResponse())
    assert throttled == [1.0]


@in_virtual_time
async def test_requests_of_another_broker_are_neither_throttled_nor_refused() -> None:
    quotas = ClientQuotas()
    quotas.learn(quota("clients/<default>"), {"request_percentage": "1", "controller_mutation_rate": "1"})
    quotas.is_brokers = lambda context: context.client_id == "broker-2"
    throttled: list[float] = []
    for client_id in ("broker-2", "c"):
        context = context_of(client_id, throttled=throttled)
        context.connection.loop_nanoseconds = 10**12
        quotas.settle(ApiKey.CREATE_TOPICS, context, HeartbeatResponse())
        mutations = quotas.mutations(context, is_strict=True)
        assert (mutations.admit(50), mutations.admit(50) is None) == (None, client_id == "broker-2")
    assert throttled == [1.0]


@in_virtual_time
async def test_heartbeats_of_a_broker_are_not_throttled_and_their_time_is_not_lost() -> None:
    quotas = ClientQuotas()
    quotas.learn(quota("clients/<default>"), {"request_percentage": "1"})
    throttled: list[float] = []
    context = context_of("oncelog-heartbeat-2", throttled=throttled)
    context.connection.carries_heartbeats = True
    context.connection.loop_nanoseconds = 10**12
    quotas.settle(ApiKey.API_VERSIONS, context, HeartbeatResponse())
    assert throttled == []
    quotas.settle(ApiKey.HEARTBEAT, context, HeartbeatResponse())
    assert throttled == [1.0]


@in_virtual_time
async def test_fetch_of_a_client_over_its_share_of_the_loop_gets_nothing_and_is_not_counted() -> None:
    quotas = ClientQuotas()
    quotas.learn(quota("clients/<default>"), {"request_percentage": "1", "consumer_byte_rate": "100"})
    context = context_of()
    context.connection.loop_nanoseconds = 10**12
    assert quotas.record_fetch(context, 900) == (1_000, False)
    assert quotas.fetch.record("ANONYMOUS", "c", 1_000, 1.0) == 0.0

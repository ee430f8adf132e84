"""Our client's connection on listeners with and without SASL, in virtual time."""

import asyncio
from random import Random
from typing import Any, Final

import pytest

from oncelog.clients.cluster import Cluster
from oncelog.clients.connection import Address, Connection, connect
from oncelog.clients.consumer.consumer import Consumer
from oncelog.clients.errors import AuthenticationFailed, ConnectionLost
from oncelog.clients.producer.producer import Producer
from oncelog.clients.sasl import SaslClient
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from oncelog.protocol.sasl.login import SaslLogin
from oncelog.protocol.topic_partition import TopicPartition
from tests.scenarios.sasl_states import PLAINTEXT_PORT, SASL_PORT, SETTINGS
from tests.scenarios.stage import Stage, scenario

SASL: Final = Address("127.0.0.1", SASL_PORT)
PLAINTEXT: Final = Address("127.0.0.1", PLAINTEXT_PORT)
PASSWORDS: Final = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
EXPIRING: Final = {**SETTINGS, "connections.max.reauth.ms": "10000"}


def client(password: str = "wonderland", mechanism: str = "PLAIN") -> SaslClient:
    return SaslClient(SaslLogin(mechanism=mechanism, username="alice", password=password))


def ask(connection: Connection) -> "asyncio.Future[MetadataResponse]":
    return connection.send(MetadataRequest(topics=[]), MetadataResponse)


@scenario(settings={**SETTINGS, "connections.max.reauth.ms": "1500"})
async def test_connection_outlives_many_sessions_without_losing_a_request(stage: Stage) -> None:
    connection = await connect(SASL, sasl=client())
    futures = []
    end = stage.loop.time() + 4
    while stage.loop.time() < end:  # Also while it authenticates again, which takes some round trips.
        futures.append(ask(connection))
        await asyncio.sleep(0.0005)
    responses = await asyncio.gather(*futures)
    assert all(response.brokers for response in responses)
    assert connection.is_open
    connection.close()


@scenario(settings=EXPIRING)
async def test_idle_connection_stays_authenticated(stage: Stage) -> None:
    connection = await connect(SASL, sasl=client())
    await asyncio.sleep(65)
    assert (await ask(connection)).brokers
    connection.close()


@scenario(settings=EXPIRING)
async def test_connection_whose_login_is_refused_later_is_lost_with_its_requests(stage: Stage) -> None:
    sasl = client()
    connection = await connect(SASL, sasl=sasl)
    sasl.login = client("wrong").login
    futures = []
    while connection.is_open:
        futures.append(ask(connection))
        await asyncio.sleep(0.01)
    assert isinstance(connection.end, ConnectionLost)
    assert "could not authenticate again" in str(connection.end)
    outcomes = await asyncio.gather(*futures, return_exceptions=True)
    assert isinstance(outcomes[-1], ConnectionLost)
    with pytest.raises(AuthenticationFailed):
        await connect(SASL, sasl=sasl)


@scenario(settings=EXPIRING)
async def test_connection_that_is_closed_leaves_no_timer_of_its_session(stage: Stage) -> None:
    before = stage.loop.pending_timers()
    connections = [await connect(SASL, sasl=client()) for _ in range(50)]
    for connection in connections:
        connection.close()
        await connection.closed
    await asyncio.sleep(1)
    assert stage.loop.pending_timers() < before + len(connections) / 2


@scenario(settings=SETTINGS)
async def test_refused_login_raises_what_the_broker_says(stage: Stage) -> None:
    with pytest.raises(AuthenticationFailed, match=r"127\.0\.0\.1:9093: .*Invalid username or password"):
        await connect(SASL, sasl=client("wrong"))
    with pytest.raises(AuthenticationFailed, match="this listener has no SASL"):
        await connect(PLAINTEXT, sasl=client())


@scenario(settings={**SETTINGS, "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "SCRAM-SHA-512"})
async def test_mechanism_that_is_not_enabled_raises_those_that_are(stage: Stage) -> None:
    with pytest.raises(AuthenticationFailed, match="PLAIN is not enabled; enabled: SCRAM-SHA-512"):
        await connect(SASL, sasl=client())


@scenario(settings=SETTINGS)
async def test_client_without_login_is_pointed_to_the_setting(stage: Stage) -> None:
    connection = await connect(SASL)
    with pytest.raises(ConnectionLost, match=r"does its listener need authentication \(security\.protocol="):
        await ask(connection)


@scenario(settings=SETTINGS)
async def test_cluster_without_login_fails_within_seconds_and_names_the_setting(stage: Stage) -> None:
    began = stage.loop.time()
    async with Cluster([SASL], rng=Random(1)) as cluster:
        with pytest.raises(AuthenticationFailed, match=r"requires authentication \(PLAIN") as failed:
            await cluster.refresh(())
    assert "security.protocol=SASL_PLAINTEXT" in failed.value.advice
    assert stage.loop.time() - began < 3


async def send_for_ever(producer: Producer) -> None:
    for number in range(300):
        await producer.send("orders", str(number).encode())
        await asyncio.sleep(1)


@scenario(settings=SETTINGS)
async def test_running_producer_and_consumer_raise_when_their_login_stays_refused(stage: Stage) -> None:
    login: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    login |= {"sasl_username": "alice", "sasl_password": "wonderland"}
    producer = Producer(str(SASL), wall_clock=stage.broker.wall_clock, **login)
    async with producer, Consumer(str(SASL), **login) as consumer:
        await (await producer.send("orders", b"1", partition=0))
        consumer.assign([TopicPartition("orders", 0)])
        consumer.seek_to_beginning()
        assert await consumer.poll(5.0)
        before = stage.broker.settings
        stage.broker.settings = {**before, PASSWORDS: before[PASSWORDS].replace("wonderland", "changed")}
        await stage.restart()
        began = stage.loop.time()
        with pytest.raises(AuthenticationFailed, match="Invalid username or password"):
            await consumer.poll(120.0)
        with pytest.raises(AuthenticationFailed, match="Invalid username or password"):
            await send_for_ever(producer)
        assert stage.loop.time() - began < 30
        stage.broker.settings = before
        await stage.restart()
        await stage.until(lambda: consumer.is_connected(SASL))

"""No broker at an address: what is logged while a call tries, and when it gives up. In virtual time."""

import asyncio
import logging
import pickle
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from oncelog.clients.cluster import Cluster
from oncelog.clients.connection import Address
from oncelog.clients.errors import NoBrokerReachable
from oncelog.spark_connector.reachability import ReachabilityWatch, reach
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.spark_connector.scripted_partition import ScriptedPartition

UNREACHABLE = Address("127.0.0.1", 1)
_WARNING_SECONDS = 5.0


@asynccontextmanager
async def watched(cluster: Cluster) -> AsyncIterator[None]:
    watch = ReachabilityWatch(cluster)
    watch.start(asyncio.get_running_loop())
    try:
        yield
    finally:
        watch.stop()


@in_virtual_time
async def test_reach_of_a_closed_port_gives_up_and_says_where_and_why() -> None:
    loop = asyncio.get_running_loop()
    async with Cluster([UNREACHABLE], rng=Random(1)) as cluster:
        began = loop.time()
        with pytest.raises(NoBrokerReachable) as raised:
            await reach(cluster, 60.0)
        assert 58 <= loop.time() - began <= 60
    message = str(raised.value)
    assert "no broker was reached within 60 s: 127.0.0.1:1: " in message
    assert "`oncelog doctor --bootstrap 127.0.0.1:1`" in message
    assert str(pickle.loads(pickle.dumps(raised.value))) == message


@in_virtual_time
async def test_reach_of_an_address_without_a_response_takes_no_longer_than_allowed() -> None:
    loop = asyncio.get_running_loop()
    async with silent_address() as address, Cluster([address], rng=Random(1)) as cluster:
        began = loop.time()
        with pytest.raises(NoBrokerReachable, match=f"{address}: accepts connections, but does not respond"):
            await reach(cluster, 25.0)
        assert loop.time() - began <= 25.5


@asynccontextmanager
async def silent_address() -> AsyncIterator[Address]:
    """A server that takes connections and says nothing."""
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 4711)
    try:
        yield Address("127.0.0.1", 4711)
    finally:
        server.close()


@pytest.mark.parametrize("is_silent", [False, True])
def test_warning_within_5_s_names_address_reason_and_doctor(is_silent: bool, caplog: pytest.LogCaptureFixture) -> None:
    @in_virtual_time
    async def play() -> None:
        async with silent_address() as silent:
            address = silent if is_silent else UNREACHABLE
            async with Cluster([address], rng=Random(1)) as cluster, watched(cluster):
                reaching = asyncio.get_running_loop().create_task(reach(cluster, 60.0))
                await asyncio.sleep(_WARNING_SECONDS)
                (record,) = caplog.records
                assert f"still trying: {address}: " in record.getMessage()
                assert f"oncelog doctor --bootstrap {address}" in record.getMessage()
                with pytest.raises(NoBrokerReachable):
                    await reaching
        assert 2 <= len(caplog.records) <= 3, "repeated, but not at each attempt"

    with caplog.at_level(logging.WARNING):
        play()


def test_unreachable_advertised_address_is_named(caplog: pytest.LogCaptureFixture) -> None:
    @in_virtual_time
    async def play() -> None:
        partition = ScriptedPartition(end=2)
        served = await partition.start()
        partition.address = UNREACHABLE  # What metadata says from now on.
        async with Cluster([served], rng=Random(1), operation_seconds=10) as cluster, watched(cluster):
            await reach(cluster, 60.0)
            await cluster.topics(["orders"])
            for _ in range(10):
                with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
                    await cluster.connection_to(1)
                await asyncio.sleep(0.5)
        partition.stop()
        assert "still trying: 127.0.0.1:1: " in caplog.text

    with caplog.at_level(logging.WARNING):
        play()


def test_address_that_is_reached_in_time_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    @in_virtual_time
    async def play() -> None:
        partition = ScriptedPartition(end=2)
        served = await partition.start()
        async with Cluster([UNREACHABLE, served], rng=Random(1)) as cluster, watched(cluster):
            await reach(cluster, 60.0)
            assert await cluster.connection_to_any()
        partition.stop()

    with caplog.at_level(logging.WARNING):
        play()
    assert not caplog.records


def test_warning_is_shown_on_standard_error_of_a_process_that_configures_no_logging() -> None:
    """So it is in Spark's Python processes, whose standard error is the driver's or the executor's."""
    code = (
        "from random import Random\n"
        "from oncelog.spark_connector.process_client import ClientSettings, ProcessClient\n"
        "ProcessClient(ClientSettings(bootstrap='127.0.0.1:1', reach_seconds=30.0), Random()).reach()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            said = process.stderr.readline()
        finally:
            process.kill()
    assert "still trying: 127.0.0.1:1: Connection refused" in said
    assert "oncelog doctor --bootstrap 127.0.0.1:1" in said

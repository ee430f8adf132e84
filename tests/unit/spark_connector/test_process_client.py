"""One client for each process: caching, forks, interruptions, and connections that broke between runs."""

import asyncio
import os
import pickle
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncelog.clients.connection import Address
from oncelog.clients.tls import TlsSettings, load_key_material
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.tls.stores import read_key_store
from oncelog.spark_connector.plain_errors import UserError
from oncelog.spark_connector.process_client import (
    ClientSettings,
    ProcessClient,
    close_process_clients,
    process_client,
)
from tests.certificates import make_authority
from tests.processes import REPOSITORY
from tests.unit.clients.scripted_broker import ScriptedBroker, metadata, requested_only


@contextmanager
def broker_elsewhere(context: ssl.SSLContext | None = None) -> Iterator[Address]:
    """A broker in a thread of its own: the loop of the client stands still most of the time."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    broker = ScriptedBroker({})
    address = asyncio.run_coroutine_threadsafe(broker.start(context), loop).result(30)
    broker.script[MetadataRequest] = requested_only(metadata({1: address}, {"orders": [1]}))

    def end() -> None:
        broker.stop()
        loop.call_soon(loop.stop)

    try:
        yield address
    finally:
        loop.call_soon_threadsafe(end)
        thread.join(30)
        loop.close()


@pytest.fixture
def settings() -> Iterator[ClientSettings]:
    with broker_elsewhere() as address:
        yield ClientSettings(bootstrap=str(address))
        close_process_clients()


def test_client_of_equal_settings_is_made_once_and_keeps_its_connections(settings: ClientSettings) -> None:
    client = process_client(settings)
    assert client.run(client.cluster.topics(["orders"])).keys() == {"orders"}
    assert process_client(pickle.loads(pickle.dumps(settings))) is client
    connection = client.run(client.cluster.connection_to_any())
    assert client.run(client.cluster.connection_to_any()) is connection
    assert process_client(ClientSettings(bootstrap=settings.bootstrap, client_id="other")) is not client


def test_connection_that_broke_between_runs_is_not_written_to(settings: ClientSettings) -> None:
    client = process_client(settings)
    connection = client.run(client.cluster.connection_to_any())
    connection._transport.get_extra_info("socket").shutdown(2)  # The loop has not read the end yet.

    async def is_open() -> bool:
        return connection.is_open

    assert connection.is_open
    assert not client.run(is_open()), "the loop looks at its sockets before the first step"
    assert client.run(client.cluster.topics(["orders"])).keys() == {"orders"}


def test_pickling_a_client_raises_type_error(settings: ClientSettings) -> None:
    with pytest.raises(TypeError, match="stays in its process"):
        pickle.dumps(process_client(settings))


def test_interruption_of_run_cancels_the_coroutine(settings: ClientSettings) -> None:
    client = process_client(settings)
    ended = []

    async def work() -> None:
        asyncio.get_running_loop().call_soon(interrupt)
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(True)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client.run(work())
    assert ended == [True]
    assert client.run(client.cluster.topics(["orders"])).keys() == {"orders"}


def test_companion_is_made_once_for_each_client(settings: ClientSettings) -> None:
    client = process_client(settings)
    made = client.companion(_Companion)
    assert client.companion(_Companion) is made
    assert process_client(ClientSettings(bootstrap="other:1")).companion(_Companion) is not made


def test_resources_of_a_closed_client_are_released(settings: ClientSettings) -> None:
    released: list[str] = []
    process_client(settings).resources.callback(released.append, "a file")
    close_process_clients()
    assert released == ["a file"]


class _Companion:
    def __init__(self, client: ProcessClient) -> None:
        self.client = client


def test_error_of_a_coroutine_is_raised_by_run(settings: ClientSettings) -> None:
    async def fail() -> None:
        raise ValueError("reason")

    with pytest.raises(ValueError, match="reason"):
        process_client(settings).run(fail())


def test_forked_process_makes_its_own_client(settings: ClientSettings) -> None:
    """The parent's connections go on, whatever the child does with its own."""
    client = process_client(settings)
    connection = client.run(client.cluster.connection_to_any())
    child = os.fork()
    if child == 0:
        try:
            own = process_client(settings)
            known = own.run(own.cluster.topics(["orders"]))
            os._exit(0 if own is not client and known.keys() == {"orders"} else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    client.cluster.metadata.forget("orders")
    assert client.run(client.cluster.topics(["orders"])).keys() == {"orders"}
    assert client.run(client.cluster.connection_to_any()) is connection


def test_reading_modules_import_nothing_heavy() -> None:
    """Every worker of Spark pays for it."""
    program = (
        "import sys\n"
        "from oncelog.spark_connector.reading import partition_fetcher, range_reader, stream_planner\n"
        "heavy = {'click', 'oncelog.broker', 'oncelog.coordinator', 'construct', 'kazoo', 'uvloop', 'aiofiles',"
        " 'prometheus_client', 'pandas', 'pyarrow', 'oncelog.clients.admin.admin', 'oncelog.clients.producer',"
        " 'oncelog.clients.consumer.consumer'}\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    said = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_client_reads_the_files_of_tls_where_it_is_made(tmp_path: Path) -> None:
    """Not where the settings are: an executor may lack the file that the driver has."""
    root, file = make_authority("root"), tmp_path / "ca.pem"
    tls = pickle.loads(pickle.dumps(TlsSettings(trusted_file=str(file))))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_key_material(context, read_key_store(root.issue("broker").pem()))
    with broker_elsewhere(context) as address:
        settings = ClientSettings(bootstrap=str(address), tls=tls)
        with pytest.raises(
            UserError, match=rf"^kafka\.ssl\.truststore\.location: '{file}' cannot be read: No such file"
        ):
            process_client(settings)
        file.write_bytes(root.certificate_pem)
        client = process_client(settings)
        assert client.run(client.cluster.topics(["orders"])).keys() == {"orders"}
        close_process_clients()

"""Clients of every age on one broker at the same time, each speaking the version of transactions that it knows.

What a client speaks is what the proxy in front of it counted, not what the client says.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from oncelog.protocol.api_keys import ApiKey
from tests.frame_proxy.proxy_thread import ProxyThread
from tests.frame_proxy.wire_record import WireRecord
from tests.interop.broker_under_test import TRANSACTION_VERSION
from tests.interop.drivers.aiokafka_client import AioKafka
from tests.interop.drivers.confluent import ConfluentKafka
from tests.interop.drivers.driver import TIMEOUT_SECONDS, Batch, TransactionalDriver
from tests.interop.drivers.kafka_python import KafkaPython
from tests.interop.drivers.oncelog_client import OncelogClient
from tests.interop.drivers.program import JavaClient
from tests.processes import BrokerProcess

Name = Callable[[str], str]
VERSION_2: list[TransactionalDriver] = [JavaClient("java-client-4"), OncelogClient("auto")]
VERSION_1: list[TransactionalDriver] = [
    JavaClient("java-client-3"),
    ConfluentKafka(),
    AioKafka(),
    KafkaPython(),
    OncelogClient("1"),
]
ROUNDS = 10
_NEWEST_OF_VERSION_1 = {ApiKey.PRODUCE: 11, ApiKey.END_TXN: 4, ApiKey.TXN_OFFSET_COMMIT: 4}


def batches(client: TransactionalDriver) -> list[Batch]:
    rounds = range(ROUNDS)
    return [Batch([f"{client.name} {number} {n}" for n in range(3)], commit=number % 3 != 2) for number in rounds]


@pytest.fixture(scope="module")
def records(broker: BrokerProcess) -> dict[str, WireRecord]:
    """What each client sent, all of them running transactions on one topic at once."""
    topic, clients = "transaction-versions", [*VERSION_2, *VERSION_1]
    ConfluentKafka().create_topic(broker.address, topic, 2)
    together = threading.Barrier(len(clients))

    def transact(client: TransactionalDriver, address: str) -> None:
        together.wait(TIMEOUT_SECONDS)
        client.transact(address, topic, f"versions-{client.name}", batches(client))

    with ExitStack() as stack:
        proxies = {client.name: stack.enter_context(ProxyThread(broker.address)) for client in clients}
        with ThreadPoolExecutor(len(clients)) as threads:
            running = [threads.submit(transact, client, proxies[client.name].address) for client in clients]
            for client in running:
                client.result(2 * TIMEOUT_SECONDS)
    expected = sorted(v for client in clients for batch in batches(client) if batch.commit for v in batch.values)
    seen = ConfluentKafka().consume(broker.address, topic, len(expected), read_committed=True)
    assert sorted(record.value for record in seen) == expected
    return {name: proxy.record for name, proxy in proxies.items()}


@pytest.mark.parametrize("client", VERSION_2, ids=lambda client: client.name)
def test_clients_that_know_version_2_use_it(client: TransactionalDriver, records: dict[str, WireRecord]) -> None:
    record = records[client.name]
    if TRANSACTION_VERSION < 2:
        assert_version_1(record)
        return
    assert record.versions(ApiKey.END_TXN) == {5}
    assert record.versions(ApiKey.PRODUCE) <= {12, 13}
    assert record.versions(ApiKey.PRODUCE)
    assert not record.versions(ApiKey.ADD_PARTITIONS_TO_TXN), "partitions are added by writing to them"


@pytest.mark.parametrize("client", VERSION_1, ids=lambda client: client.name)
def test_clients_that_do_not_know_version_2_use_version_1(
    client: TransactionalDriver, records: dict[str, WireRecord]
) -> None:
    assert_version_1(records[client.name])


def assert_version_1(record: WireRecord) -> None:
    for api, newest in _NEWEST_OF_VERSION_1.items():
        assert all(version <= newest for version in record.versions(api)), api
    assert record.versions(ApiKey.END_TXN)
    assert record.versions(ApiKey.ADD_PARTITIONS_TO_TXN)

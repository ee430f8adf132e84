"""Real clients on a listener with TLS and SASL, with the rights that they need and no other.

The broker is ours, whatever the other scenarios run on.
"""

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.helpers import create_ssl_context

from oncelog import Consumer, Producer
from tests.interop.drivers.driver import Batch
from tests.interop.drivers.program import JavaClient, KafkaJs, Program, run
from tests.secured_process import MECHANISM, PASSWORD, SecuredProcess

VALUES: Final = [str(number) for number in range(20)]
SECONDS: Final = 30


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredProcess]:
    with SecuredProcess(tmp_path_factory.mktemp("secured")) as process:
        yield process


def committed(process: SecuredProcess, topic: str, count: int) -> list[str]:
    """Return what a reader of committed records finds, by an administrator."""
    command = f"consume {topic} -n {count} --format value --isolation read_committed"
    return sorted(process.admin(command).split())


@pytest.mark.smoke
def test_librdkafka_transacts_and_consumes_with_its_rights(process: SecuredProcess) -> None:
    process.prepare_user("librdkafka")
    settings = process.librdkafka("librdkafka")
    producer = confluent_kafka.Producer({**settings, "transactional.id": "librdkafka"})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    for value in VALUES:
        producer.produce("librdkafka", value)
    producer.commit_transaction(SECONDS)
    consumer = confluent_kafka.Consumer({**settings, "group.id": "librdkafka", "auto.offset.reset": "earliest"})
    consumer.subscribe(["librdkafka"])
    found = []
    while len(found) < len(VALUES):
        record = consumer.poll(SECONDS)
        assert record is not None
        assert record.error() is None
        found.append(str(record.value(), "ascii"))
    consumer.close()
    assert sorted(found) == sorted(VALUES)


async def test_aiokafka_transacts_and_consumes_with_its_rights(process: SecuredProcess) -> None:
    process.prepare_user("aiokafka")
    settings = {
        "bootstrap_servers": process.address,
        "security_protocol": "SASL_SSL",
        "ssl_context": create_ssl_context(cafile=process.authority),
        "sasl_mechanism": MECHANISM,
        "sasl_plain_username": "aiokafka",
        "sasl_plain_password": PASSWORD,
    }
    async with AIOKafkaProducer(**settings, transactional_id="aiokafka") as producer, producer.transaction():
        for value in VALUES:
            await producer.send_and_wait("aiokafka", value.encode())
    async with AIOKafkaConsumer(
        "aiokafka", **settings, group_id="aiokafka", auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        found = [(await consumer.getone()).value.decode() for _ in VALUES]
    assert sorted(found) == sorted(VALUES)


def test_kafka_python_produces_and_consumes_with_its_rights(process: SecuredProcess) -> None:
    process.prepare_user("kafka-python")
    settings = {
        "bootstrap_servers": process.address,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": process.authority,
        "sasl_mechanism": MECHANISM,
        "sasl_plain_username": "kafka-python",
        "sasl_plain_password": PASSWORD,
    }
    producer = kafka.KafkaProducer(**settings)
    for value in VALUES:
        producer.send("kafka-python", value.encode()).get(SECONDS)
    producer.close()
    consumer = kafka.KafkaConsumer(
        "kafka-python", **settings, group_id="kafka-python", auto_offset_reset="earliest",
        consumer_timeout_ms=SECONDS * 1000,
    )  # fmt: skip
    found = [next(consumer).value.decode() for _ in VALUES]
    consumer.close()
    assert sorted(found) == sorted(VALUES)


async def test_own_clients_transact_and_consume_with_their_rights(process: SecuredProcess) -> None:
    process.prepare_user("own")
    settings: dict[str, Any] = {
        "bootstrap": process.address,
        "security_protocol": "SASL_SSL",
        "ssl_truststore_location": process.authority,
        "sasl_mechanism": MECHANISM,
        "sasl_username": "own",
        "sasl_password": PASSWORD,
    }
    async with Producer(transactional_id="own", **settings) as producer:
        await producer.init_transactions()
        producer.begin_transaction()
        for value in VALUES:
            await producer.send("own", value.encode())
        await producer.commit_transaction()
    async with Consumer(group_id="own", auto_offset_reset="earliest", **settings) as consumer:
        consumer.subscribe(["own"])
        found: list[str] = []
        async with asyncio.timeout(SECONDS):
            while len(found) < len(VALUES):
                found += [(record.value or b"").decode() for record in await consumer.poll()]
    assert sorted(found) == sorted(VALUES)


@pytest.mark.smoke
@pytest.mark.parametrize("peer", ["java-client-4", "java-client-2", "kafkajs"])
def test_other_clients_transact_and_consume_with_their_rights(
    process: SecuredProcess, peer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program: Program = KafkaJs() if peer == "kafkajs" else JavaClient(peer)
    if lacking := program.lacking():
        pytest.fail(lacking)
    process.prepare_user(peer)
    if peer == "kafkajs":  # It reads in a group only, and the program makes up the group's name.
        process.admin(f"acl add User:{peer} read --group interop- --prefixed")
    authority = Path(process.authority).read_text()
    sasl = {"mechanism": MECHANISM.lower(), "username": peer, "password": PASSWORD}
    monkeypatch.setenv("INTEROP_PROPERTIES", str(process.java(peer)))
    monkeypatch.setenv("INTEROP_SECURITY", json.dumps({"ssl": {"ca": [authority]}, "sasl": sasl}))
    batches = [Batch(VALUES, commit=True), Batch(["aborted"], commit=False)]
    program.transact(process.address, peer, peer, batches)
    assert committed(process, peer, len(VALUES)) == sorted(VALUES)
    found = [record.value for record in program.consume(process.address, peer, len(VALUES), read_committed=True)]
    assert sorted(found) == sorted(VALUES)


@pytest.mark.smoke
def test_kcat_produces_and_consumes_with_its_rights(process: SecuredProcess) -> None:
    process.prepare_user("kcat")
    settings = process.librdkafka("kcat")
    options: Sequence[str] = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]
    run(["kcat", "-P", "-t", "kcat", *options], VALUES)
    found = run(["kcat", "-C", "-q", "-t", "kcat", "-o", "beginning", "-c", str(len(VALUES)), *options]).split()
    assert sorted(found) == sorted(VALUES)


def test_client_without_a_right_has_the_error_of_kafka(process: SecuredProcess) -> None:
    process.prepare_user("denied")
    producer = confluent_kafka.Producer(process.librdkafka("denied"))
    errors: list[Any] = []
    producer.produce("kcat", b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(SECONDS) == 0
    assert errors[0].code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED

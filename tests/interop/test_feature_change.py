"""``transaction.version`` goes down and up again under live producers of every kind: nothing is lost or doubled.

Each producer is stopped in the middle of a transaction while the level changes. It ends that transaction with the
version that it began with, and moves with the next one.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from tests.command import Oncelog
from tests.frame_proxy.proxy_thread import ProxyThread
from tests.interop.broker_under_test import BROKER, TRANSACTION_VERSION
from tests.interop.drivers.confluent import ConfluentKafka
from tests.interop.drivers.driver import TIMEOUT_SECONDS
from tests.interop.drivers.kafka_tools import KafkaTools
from tests.interop.drivers.oncelog_client import OncelogClient
from tests.interop.feature_gates import CUT_AT_END, CUT_AT_PRODUCE, PRODUCERS, FeatureGates
from tests.interop.late_frames.client import PhasedClient
from tests.interop.late_frames.confluent_client import PhasedConfluent
from tests.interop.late_frames.observation import observe
from tests.interop.late_frames.program_clients import PhasedJavaClient
from tests.interop.late_frames.verdict import judge
from tests.interop.late_frames.workload import PARTITIONS, Outcome, Transaction, transactions, with_outcomes
from tests.processes import BrokerProcess

DOWN, UP, EACH = 10, 20, 30
LOWEST = 1 if BROKER == "kafka" else 0
"""Not 0 on Apache Kafka 4.3.1: there it leaves live transactions of version 2 stuck ("Attempted to write a non-default
clientTransactionVersion at version 0"), and with them whatever the broker asks for in the same request."""
MOVING: tuple[PhasedClient, ...] = (PhasedJavaClient("java-client-4"), OncelogClient("auto"))
STAYING: tuple[PhasedClient, ...] = (PhasedConfluent(), PhasedJavaClient("java-client-3"))


class Live(NamedTuple):
    """A client at work, through a proxy of its own, on a topic of its own."""

    client: PhasedClient
    topic: str
    script: FeatureGates
    ended: list[tuple[Transaction, Outcome]]


def run_while_features_change(broker: BrokerProcess, changes: list[Callable[[], object]]) -> list[Live]:
    """Run all clients at once; each change happens while every producer has a transaction open."""
    work = transactions(1, PRODUCERS, EACH)
    lives = [Live(c, f"features-{c.name}", FeatureGates([DOWN, UP]), []) for c in (*MOVING, *STAYING)]
    for live in lives:
        ConfluentKafka().create_topic(broker.address, live.topic, PARTITIONS)
    with ExitStack() as stack, ThreadPoolExecutor(len(lives)) as threads:
        proxies = [stack.enter_context(ProxyThread(broker.address, live.script)) for live in lives]
        running = [
            threads.submit(live.client.run_phases, proxy.address, live.topic, live.topic, work)
            for live, proxy in zip(lives, proxies, strict=True)
        ]
        try:
            for change in changes:
                change_at_gates(lives, change)
        finally:
            for live in lives:
                live.script.give_up()
        for live, client in zip(lives, running, strict=True):
            live.ended.extend(with_outcomes(work, client.result(2 * TIMEOUT_SECONDS)))
        for proxy in proxies:
            proxy.deliver_remaining()
    return lives


def change_at_gates(lives: list[Live], change: Callable[[], object]) -> None:
    """Wait until every producer of every client is stopped; change; let them go on."""
    stopped = []
    for live in lives:
        for _ in range(PRODUCERS):
            request, gate = live.script.stopped.get(timeout=TIMEOUT_SECONDS)
            stopped.append((live.script, request, gate))
    change()
    for script, request, gate in stopped:
        script.open(request, gate)


@pytest.fixture
def lives(own_broker: BrokerProcess, kafka_tools: KafkaTools) -> list[Live]:
    def level() -> int:
        features = {row["feature"]: row["finalized"] for row in Oncelog(own_broker.address).json("feature describe")}
        return int(features["transaction.version"])

    def down() -> None:
        Oncelog(own_broker.address)(f"feature downgrade transaction.version {LOWEST}")
        assert level() == LOWEST

    def up() -> None:
        kafka_tools(own_broker.address, "FeatureCommand", "upgrade", "--feature", "transaction.version=2")
        assert level() == 2

    assert level() == 2
    return run_while_features_change(own_broker, [down, up])


@pytest.mark.skipif(TRANSACTION_VERSION < 2, reason="this broker does not have the feature")
def test_live_producers_survive_a_downgrade_and_an_upgrade(lives: list[Live], own_broker: BrokerProcess) -> None:
    for live in lives:
        observed = asyncio.run(observe(own_broker.address, live.topic, PARTITIONS, PRODUCERS))
        assert judge(live.ended, observed).is_clean, (live.client.name, judge(live.ended, observed))
        surprises = [
            (transaction.producer, transaction.number, outcome.value)
            for transaction, outcome in live.ended
            if outcome is not (Outcome.COMMITTED if transaction.commit else Outcome.ABORTED)
        ]
        assert surprises == [], live.client.name
        for producer in range(PRODUCERS):
            protocols = [live.script.protocols[producer][number] for number in range(EACH)]
            assert all(len(protocol) == 1 for protocol in protocols), (live.client.name, producer, protocols)
            assert [min(protocol) for protocol in protocols] in expected(live.client, producer), live.client.name


def expected(client: PhasedClient, producer: int) -> list[list[int]]:
    """The versions of a producer's transactions, one after the other."""
    if client in STAYING:
        return [[1] * EACH]
    if producer == CUT_AT_PRODUCE:
        return [moving(DOWN + 1, UP + 1)]
    if producer == CUT_AT_END:  # It may have decided about the next transaction already.
        return [moving(down, up) for down in (DOWN + 1, DOWN + 2) for up in (UP + 1, UP + 2)]
    return [[2] * EACH]


def moving(first_of_1: int, first_of_2: int) -> list[int]:
    return [1 if first_of_1 <= number < first_of_2 else 2 for number in range(EACH)]

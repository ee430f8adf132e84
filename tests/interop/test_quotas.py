"""Kafka's own tool sets, shows and removes client quotas of our broker, and a Java producer has its rate."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command import Oncelog
from tests.interop.drivers.program import java
from tests.processes import KAFKA_3_9, KAFKA_4, LIMIT_SECONDS, OncelogProcess, class_path


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OncelogProcess]:
    with OncelogProcess(tmp_path_factory.mktemp("broker")) as process:
        yield process


@pytest.mark.parametrize("library", [KAFKA_4, KAFKA_3_9], ids=["4", "3.9"])
def test_kafkas_tool_sets_shows_and_removes_quotas(process: OncelogProcess, library: Path) -> None:
    def configs(*words: str) -> str:
        command = java(class_path(library), "kafka.admin.ConfigCommand", "--bootstrap-server", process.address, *words)
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    oncelog = Oncelog(process.address)
    alice = ("--entity-type", "users", "--entity-name", "alice")
    everyone = ("--entity-type", "users", "--entity-default", "--entity-type", "clients", "--entity-name", "c/1")
    configs("--alter", *alice, "--add-config", "producer_byte_rate=1024,request_percentage=25.5")
    configs("--alter", *everyone, "--add-config", "consumer_byte_rate=2048")
    configs("--alter", "--entity-type", "ips", "--entity-default", "--add-config", "connection_creation_rate=70")
    listed = [
        (each["user"], each["client"], each["ip"], each["limit"], each["value"]) for each in oncelog.json("quota list")
    ]
    assert listed == [
        (None, None, "(default)", "connection_creation_rate", 70),
        ("(default)", "c/1", None, "consumer_byte_rate", 2048),
        ("alice", None, None, "producer_byte_rate", 1024),
        ("alice", None, None, "request_percentage", 25.5),
    ]
    described = configs("--describe", *alice)
    assert "producer_byte_rate=1024.0" in described
    assert "request_percentage=25.5" in described
    assert "consumer_byte_rate=2048.0" in configs("--describe", *everyone)
    configs("--alter", *alice, "--delete-config", "producer_byte_rate,request_percentage")
    configs("--alter", *everyone, "--delete-config", "consumer_byte_rate")
    configs("--alter", "--entity-type", "ips", "--entity-default", "--delete-config", "connection_creation_rate")
    assert oncelog.json("quota list") == []


def test_java_producer_that_is_throttled_gets_its_rate(process: OncelogProcess) -> None:
    Oncelog(process.address)("topic create throttled")
    Oncelog(process.address)("quota set --client slow --producer-byte-rate 200kB")
    words = ["--topic", "throttled", "--num-records", "3000", "--record-size", "1000", "--throughput", "-1"]
    settings = [f"bootstrap.servers={process.address}", "client.id=slow", "linger.ms=0"]
    program = "org.apache.kafka.tools.ProducerPerformance"
    command = java(class_path(KAFKA_4), program, *words, "--producer-props", *settings)
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert "3000 records sent" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
    per_second = float(done.stdout.splitlines()[-1].split("records sent, ")[1].split(" ")[0])
    assert 100 < per_second < 400, "of which the windows allow ten seconds at once"
    Oncelog(process.address)("quota remove --client slow")

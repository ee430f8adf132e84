"""``make compose-test``: the image, ``docker-compose.yml`` and ``docker-compose.secure.yml`` on a real Docker engine.

Builds the image, starts ZooKeeper and the brokers, and does what a user would: looks at their health, writes and reads
from the host and from inside, kills a broker and goes on, stops everything and finds the data again. With the secured
file it then lets a user in, who transacts from the host, and sees strangers refused. Whatever was started is removed,
volumes included. Where there is no engine it says what is missing, and fails.

The images that the files name are pulled unless they are there; ``COMPOSE_TEST_BUILD_ARGS`` is passed to the build.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.command import Oncelog
from tests.processes import REPOSITORY

ADDRESSES = ("localhost:19092", "localhost:29092", "localhost:39092")
BROKERS = ("broker1", "broker2", "broker3")
SECONDS = 180.0


class Missing(Exception):
    """What has to be installed or started first."""


def find_compose() -> list[str]:
    """The command of Docker Compose, on an engine that responds."""
    if shutil.which("docker") is None:
        raise Missing("docker is missing: https://docs.docker.com/engine/install/ or apt-get install docker.io")
    engine = subprocess.run(["docker", "info", "--format", "{{.ServerVersion}}"], capture_output=True, text=True)
    if engine.returncode:
        raise Missing(f"no Docker engine answers: {engine.stderr.strip() or engine.stdout.strip()}")
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) and not subprocess.run([*command, "version"], capture_output=True).returncode:
            return command
    raise Missing("Docker Compose is missing: apt-get install docker-compose, or docker-compose-v2")


class Compose:
    """One project of ours, beside whatever else runs on the engine."""

    def __init__(self, command: Sequence[str], file: str) -> None:
        self._command = [*command, "-f", file, "-p", f"oncelog-test-{os.getpid()}"]

    def __call__(self, *words: str, text: str = "") -> str:
        print("$ compose", shlex.join(words), flush=True)
        return self._output(*words, text=text)

    def _output(self, *words: str, text: str = "") -> str:
        done = subprocess.run(
            [*self._command, *words], cwd=REPOSITORY, input=text, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def state(self, service: str) -> Any:
        """What the engine says of a service's container."""
        (container,) = self._output("ps", "-a", "-q", service).split()
        return json.loads(subprocess.check_output(["docker", "inspect", container]))[0]["State"]

    def inside(self, service: str, command: str, text: str = "") -> str:
        return self("exec", "-T", service, *shlex.split(command), text=text)


def until_healthy(compose: Compose, services: Sequence[str]) -> None:
    deadline = time.perf_counter() + SECONDS
    while True:
        found = {service: compose.state(service)["Health"]["Status"] for service in services}
        if set(found.values()) == {"healthy"}:
            return
        assert time.perf_counter() < deadline, found


def check(compose: Compose) -> None:
    compose("build", *shlex.split(os.environ.get("COMPOSE_TEST_BUILD_ARGS", "")))
    compose("up", "-d")
    until_healthy(compose, ("zookeeper", *BROKERS))
    oncelog = Oncelog(ADDRESSES[0])
    oncelog("wait --brokers 3")
    print(oncelog("doctor"))
    for address in ADDRESSES:
        assert [each["address"] for each in Oncelog(address).json("health")["brokers"]] == list(ADDRESSES)
    assert compose.inside("broker1", "id -u").strip() == "1000"

    written = [f"record {number}" for number in range(100)]
    oncelog("topic create orders --partitions 6")
    oncelog("produce orders", "\n".join(written))
    assert sorted(Oncelog(ADDRESSES[2])("consume orders -e --format value").splitlines()) == sorted(written)
    inside = compose.inside("broker2", "oncelog consume orders -e --format value --bootstrap broker3:9092")
    assert sorted(inside.splitlines()) == sorted(written)

    compose("kill", "broker2")
    oncelog("produce orders", "while one was dead\n")
    compose("start", "broker2")
    until_healthy(compose, BROKERS)
    until_whole(oncelog)

    compose("stop")
    assert {service: compose.state(service)["ExitCode"] for service in BROKERS} == dict.fromkeys(BROKERS, 0)
    compose("up", "-d")
    until_healthy(compose, BROKERS)
    oncelog("wait --brokers 3")
    found = sorted(oncelog("consume orders -e --format value").splitlines())
    assert found == sorted([*written, "while one was dead"])


def check_secured(compose: Compose) -> None:
    """Let a user in, who transacts from the host with its rights and no others; then restart everything."""
    compose("build", *shlex.split(os.environ.get("COMPOSE_TEST_BUILD_ARGS", "")))
    compose("up", "-d")
    until_healthy(compose, ("zookeeper", *BROKERS))
    compose.inside("broker1", "oncelog wait --brokers 3")
    print(compose.inside("broker1", "oncelog doctor"))
    compose.inside("broker1", "oncelog topic create orders --partitions 6")
    compose.inside("broker1", "oncelog user add alice", text="wonderland\n")
    for right in ("read write --topic orders", "read --group alice --prefixed", "write --transactional-id alice"):
        compose.inside("broker2", f"oncelog acl add User:alice {right}")
    with tempfile.TemporaryDirectory(prefix="oncelog-compose-") as name:
        authority = Path(name, "ca.pem")
        authority.write_text(compose.inside("broker1", "cat /etc/oncelog/ca.pem"))
        client: dict[str, Any] = {
            "bootstrap.servers": ",".join(ADDRESSES),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority),
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": "wonderland",
        }
        written = [f"record {number}" for number in range(100)]
        transact(client, written)
        compose("kill", "broker2")
        transact(client, ["while one was dead"])
        compose("start", "broker2")
        until_healthy(compose, BROKERS)
        compose("stop")
        compose("up", "-d")
        until_healthy(compose, ("zookeeper", *BROKERS))
        compose.inside("broker1", "oncelog wait --brokers 3")
        assert sorted(consumed(client, len(written) + 1)) == sorted([*written, "while one was dead"])
        refused = Oncelog(ADDRESSES[0]).run("topic list --timeout 5")
        assert refused.returncode != 0, refused.stdout
        wrong = Path(name, "wrong.properties")
        wrong.write_text("".join(f"{key}={value}\n" for key, value in {**client, "sasl.password": "another"}.items()))
        said = Oncelog(ADDRESSES[0]).fails(f"topic list --timeout 5 --command-config {wrong}")
        assert "invalid credentials" in said, said
        (created,) = AdminClient(client).create_topics([NewTopic("others", 1, 3)]).values()
        assert isinstance(created.exception(SECONDS), KafkaException)
    processes = compose.inside("broker3", "cat /proc/1/environ") + compose("ps")
    assert "jaas" not in processes.lower()


def transact(client: Mapping[str, Any], values: Sequence[str]) -> None:
    producer = Producer({**client, "transactional.id": "alice"})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    for value in values:
        producer.produce("orders", value)
    producer.commit_transaction(SECONDS)


def consumed(client: Mapping[str, Any], count: int) -> list[str]:
    """The first committed records, and what comes within a second behind them."""
    consumer = Consumer({**client, "group.id": "alice-1", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    found: list[str] = []
    try:
        while (message := consumer.poll(SECONDS if len(found) < count else 1)) is not None:
            if message.error() is None:
                found.append((message.value() or b"").decode())
    finally:
        consumer.close()
    return found


def until_whole(oncelog: Oncelog) -> None:
    """Until all replicas are in sync."""
    deadline = time.perf_counter() + SECONDS
    while oncelog.run("health").returncode:
        assert time.perf_counter() < deadline, oncelog.run("health").stdout


CHECKS: Final = {"docker-compose.yml": check, "docker-compose.secure.yml": check_secured}


def main() -> None:
    try:
        command = find_compose()
    except Missing as missing:
        sys.exit(f"compose-test was not run: {missing}")
    for file, look in CHECKS.items():
        compose = Compose(command, file)
        try:
            look(compose)
        except BaseException:
            print(compose("logs", "--tail", "40"), file=sys.stderr)
            raise
        finally:
            compose("down", "-v", "--remove-orphans")
        print(f"compose-test: everything was seen of {file}")


if __name__ == "__main__":
    main()

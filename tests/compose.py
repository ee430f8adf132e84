"""``make compose-test``: the image and ``docker-compose.yml`` on a real Docker engine.

Builds the image, starts ZooKeeper and the brokers, and does what a user would: looks at their health, writes and reads
from the host and from inside, kills a broker and goes on, stops everything and finds the data again. Whatever was
started is removed, volumes included. Where there is no engine it says what is missing, and fails.

The images that the files name are pulled unless they are there; ``COMPOSE_TEST_BUILD_ARGS`` is passed to the build.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

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

    def __init__(self, command: Sequence[str]) -> None:
        self._command = [*command, "-p", f"oncelog-test-{os.getpid()}"]

    def __call__(self, *words: str) -> str:
        print("$ compose", shlex.join(words), flush=True)
        return self._output(*words)

    def _output(self, *words: str) -> str:
        done = subprocess.run([*self._command, *words], cwd=REPOSITORY, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def state(self, service: str) -> Any:
        """What the engine says of a service's container."""
        (container,) = self._output("ps", "-a", "-q", service).split()
        return json.loads(subprocess.check_output(["docker", "inspect", container]))[0]["State"]

    def inside(self, service: str, command: str) -> str:
        return self("exec", "-T", service, *shlex.split(command))


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


def until_whole(oncelog: Oncelog) -> None:
    """Until all replicas are in sync."""
    deadline = time.perf_counter() + SECONDS
    while oncelog.run("health").returncode:
        assert time.perf_counter() < deadline, oncelog.run("health").stdout


def main() -> None:
    try:
        compose = Compose(find_compose())
    except Missing as missing:
        sys.exit(f"compose-test was not run: {missing}")
    try:
        check(compose)
    except BaseException:
        print(compose("logs", "--tail", "40"), file=sys.stderr)
        raise
    finally:
        compose("down", "-v", "--remove-orphans")
    print("compose-test: everything was seen")


if __name__ == "__main__":
    main()

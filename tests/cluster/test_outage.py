"""What people are told while ZooKeeper is down: by the commands, by the page for load balancers, and in the log."""

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.broker.local_cluster.zookeeper_server import ZooKeeperServer
from tests.cluster.test_brokers import Members, log_of
from tests.command import Oncelog
from tests.processes import LIMIT_SECONDS, OncelogProcess, free_port

HTTP_PORT = "oncelog.http.listener"
MEANWHILE = "acks=all only while every in-sync replica is alive; no leader can be elected"
LATER = "is not done yet, and may be done as soon as it responds again"

ALONE = ("offsets.topic.replication.factor=1", "transaction.state.log.replication.factor=1")
"""Settings of a cluster of one broker, which is healthy only if it can create the internal topics."""


@pytest.fixture
def members(tmp_path: Path, zookeeper_jars: None) -> Iterator[Members]:
    server = ZooKeeperServer(tmp_path / "zookeeper", free_port(), tick_ms=200)
    server.start()
    yield Members(tmp_path, server)
    server.stop()


def ready_page(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=LIMIT_SECONDS) as response:
        return str(response.read().decode())


def wait_for(broker: OncelogProcess, oncelog: Oncelog, *, healthy: bool) -> None:
    """Ask until the broker has noticed; the commands are slow enough."""
    for _ in range(30):
        if (oncelog.run("health").returncode == 0) == healthy:
            return
    raise AssertionError(log_of(broker))


def test_outage_of_zookeeper_is_reported_by_health_doctor_ready_and_the_log(members: Members) -> None:
    http_port = free_port()
    with members.broker(1, *ALONE, f"{HTTP_PORT}=127.0.0.1:{http_port}") as broker:
        oncelog = Oncelog(broker.address)
        assert oncelog.json("health")["brokers"][0]["store"] is True
        oncelog("topic create t --partitions 1")
        assert ready_page(http_port) == "ready\n"

        members.server.stop()
        wait_for(broker, oncelog, healthy=False)
        health = oncelog.run("health")
        assert (health.returncode, "HEALTHY           no" in health.stdout) == (1, True)
        assert MEANWHILE in health.stdout
        doctor = oncelog.run("doctor")
        assert (doctor.returncode, "1 problem" in doctor.stdout, MEANWHILE in doctor.stdout) == (1, True, True)
        first, second = ready_page(http_port).splitlines()
        assert first == "ready"
        assert MEANWHILE in second
        assert "REQUEST_TIMED_OUT" in oncelog.fails(
            "config alter topic t --set retention.ms=1 --timeout 2", exit_code=3
        )
        for command in ("topic create u", "topic delete t", "config alter topic t --set retention.ms=1"):
            assert LATER in oncelog.fails(command, exit_code=3)
        oncelog("produce t", "a line\n")
        assert oncelog("consume t -e --format value") == "a line\n"

        members.server.start()
        wait_for(broker, oncelog, healthy=True)
        assert oncelog.run("doctor").returncode == 0
        assert ready_page(http_port) == "ready\n"
    lost = [line for line in log_of(broker).splitlines() if "The connection to ZooKeeper" in line]
    assert len(lost) == 1
    assert "with acks=all only while every in-sync replica is alive" in lost[0]
    assert "ZooKeeper responds again, after" in log_of(broker)
    assert "kazoo" not in log_of(broker)

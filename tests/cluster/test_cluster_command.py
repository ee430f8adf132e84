"""``oncelog cluster``: real processes, and what experiments do to them."""

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.command import Oncelog
from tests.processes import KAFKA_3_9, LIMIT_SECONDS, ClusterProcess, free_port

SECONDS = LIMIT_SECONDS
MOST_LOOKS = 300


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    with ClusterProcess(
        tmp_path_factory.mktemp("cluster"), settings=["num.partitions=4", "2:broker.rack=b"]
    ) as running:
        yield running


@pytest.fixture
def oncelog(cluster: ClusterProcess) -> Oncelog:
    return Oncelog(cluster.address)


def processes_of(directory: Path) -> list[int]:
    """The processes whose command line names the directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(directory).encode() in command:
                found.append(int(entry.name))
    return found


def until_gone(pid: int) -> None:
    """Wait until a process, not necessarily a child, has been collected by its parent."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], SECONDS)[0], f"{pid} still runs"
    finally:
        os.close(descriptor)


def until(condition: Callable[[], bool]) -> None:
    """Look until a condition holds, which runs a command each time."""
    assert any(condition() for _ in range(MOST_LOOKS)), f"not so after {MOST_LOOKS} commands"


def states(cluster: ClusterProcess) -> dict[str, str]:
    return {name: member["state"] for name, member in cluster.verb("status").items()}


def test_cluster_start_prints_addresses_of_brokers_that_know_each_other(
    cluster: ClusterProcess, oncelog: Oncelog
) -> None:
    said = (cluster.directory / "stdout.log").read_text()
    for broker_id, address in enumerate(cluster.address.split(","), start=1):
        assert re.search(
            rf"^broker {broker_id} +{address} +pid \d+, log \S+broker-{broker_id}.log$", said, re.MULTILINE
        )
        found = json.loads(Oncelog(address)("health --format json"))
        assert found["healthy"]
        assert [broker["broker"] for broker in found["brokers"]] == [1, 2, 3]
    assert [broker["rack"] for broker in oncelog.json("health")["brokers"]] == [None, "b", None]
    assert "set, as there are 3: default.replication.factor=3, min.insync.replicas=2" in said


def test_topics_have_replicas_on_all_brokers_and_the_given_settings(oncelog: Oncelog) -> None:
    oncelog("topic create replicated")
    described = oncelog.json("topic describe replicated")
    assert [sorted(partition["replicas"]) for partition in described["partitions"]] == [[1, 2, 3]] * 4


def test_processes_can_be_killed_paused_and_started_again(cluster: ClusterProcess) -> None:
    before = cluster.verb("status")
    assert list(before) == ["zookeeper", "1", "2", "3"]
    assert set(states(cluster).values()) == {"running"}

    killed = cluster.verb("kill", 2)["2"]
    assert (killed["state"], killed["pid"], killed["exit_code"]) == ("killed", None, -signal.SIGKILL)
    assert not Path(f"/proc/{before['2']['pid']}").exists()
    assert cluster.verb("pause", "zookeeper", 3)["3"]["state"] == "paused"
    assert states(cluster) == {"zookeeper": "paused", "1": "running", "2": "killed", "3": "paused"}
    assert cluster.verb("resume", 3, "zookeeper")["3"]["state"] == "running"

    started = cluster.verb("start", 2)["2"]
    assert started["state"] == "running"
    assert started["pid"] != before["2"]["pid"]
    assert started["address"] == before["2"]["address"]
    assert Oncelog(started["address"])("health --ready") == "ready\n"

    stopped = cluster.verb("stop", 3)["3"]
    assert (stopped["state"], stopped["exit_code"]) == ("stopped", 0)
    restarted = cluster.verb("restart", 3, "zookeeper")
    assert {member["state"] for member in restarted.values()} == {"running"}
    Oncelog(cluster.address)("wait --brokers 3")


def test_command_that_cannot_be_done_prints_the_reason_and_fails(cluster: ClusterProcess) -> None:
    cluster.verb("pause", 2)
    for words, complaint in (
        (("start", 1), "broker 1 is running already"),
        (("start", 2), "broker 2 is paused: `oncelog cluster resume 2` lets it go on"),
        (("kill", 7), "there is no member 7: there are zookeeper, 1, 2, 3"),
    ):
        done = cluster.run_verb(*words)
        assert (done.returncode, complaint in done.stderr) == (1, True), done.stderr
    cluster.verb("resume", 2)
    assert cluster.run_verb("kill").returncode == 2
    assert states(cluster)["1"] == "running"


def test_start_without_zookeeper_fails_at_once_and_stops_nothing(cluster: ClusterProcess) -> None:
    cluster.verb("pause", "zookeeper")
    done = cluster.run_verb("restart", 3)
    assert done.returncode == 1
    assert "ZooKeeper is paused, and brokers need it to start: `oncelog cluster resume zookeeper`" in done.stderr
    assert states(cluster)["3"] == "running"
    cluster.verb("resume", "zookeeper")


def test_process_that_ends_by_itself_is_reported_and_stays_ended(cluster: ClusterProcess) -> None:
    pid = cluster.verb("status")["1"]["pid"]
    os.kill(pid, signal.SIGKILL)
    until_gone(pid)
    assert states(cluster)["1"] == "dead"
    assert "broker 1 ended unexpectedly: killed by SIGKILL" in (cluster.directory / "stdout.log").read_text()
    cluster.verb("start", 1)
    Oncelog(cluster.address)("wait --brokers 3")


def test_topic_describe_names_the_brokers_that_a_partition_waits_for(cluster: ClusterProcess) -> None:
    """With two replicas on three brokers, one partition has none of them on broker 1."""
    alive = Oncelog(cluster.verb("status")["1"]["address"])
    alive("topic create waiting -r 2 -p 3")
    described = alive.json("topic describe waiting")["partitions"]
    (index,) = (each["partition"] for each in described if 1 not in each["replicas"])

    def waiting_for() -> dict[int, list[int]]:
        rows = alive.json("topic describe waiting")["partitions"]
        assert all({*row["isr"], *row["elr"]} == set(row["replicas"]) for row in rows)
        return {row["partition"]: row["waiting_for"] for row in rows if row["waiting_for"]}

    cluster.verb("kill", 2, 3)
    until(lambda: waiting_for() == {index: [2, 3]})
    said = f"1 partition waits for broker 2 or 3, which may alone have all acknowledged records (waiting-{index})\n"
    assert said in alive("topic describe waiting")
    cluster.verb("start", 2, 3)
    until(lambda: not waiting_for())
    alive("wait --brokers 3")


def test_directory_of_a_running_cluster_starts_no_second_one(cluster: ClusterProcess) -> None:
    done = subprocess.run(cluster.command(), capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 1
    assert "a cluster is running in" in done.stderr


def test_cluster_stops_as_a_whole_and_starts_again_where_it_was(tmp_path: Path) -> None:
    cluster = ClusterProcess(tmp_path, brokers=2)
    with cluster:
        address = cluster.address
        oncelog = Oncelog(address)
        oncelog("topic create kept --partitions 2")
        oncelog("produce kept", "a record\n")
        cluster.verb("pause", 2)
        assert cluster.stop() == 0
    assert not processes_of(tmp_path)
    assert "did not stop" not in (tmp_path / "stdout.log").read_text()
    for broker_id in (1, 2):
        place = cluster.cluster_directory / f"broker-{broker_id}"
        assert "shut down completed" in place.with_suffix(".log").read_text()
        assert (place / ".kafka_cleanshutdown").exists()
    assert cluster.run_verb("status").returncode == 3
    with cluster:
        assert cluster.address == address
        assert Oncelog(address)("consume kept -n 1 --format value") == "a record\n"
    assert not processes_of(tmp_path)


def test_cluster_that_stops_waits_for_no_broker_that_it_has_stopped(tmp_path: Path) -> None:
    """With two replicas on three brokers, the second one leads partitions whose other replica has left."""
    with ClusterProcess(tmp_path) as cluster:
        Oncelog(cluster.address)("topic create pairs -r 2 -p 6")
        assert cluster.stop() == 0
    logs = [(cluster.cluster_directory / f"broker-{each}.log").read_text() for each in (1, 2, 3)]
    assert all("shut down completed" in log for log in logs)
    assert not any("stops while it still leads partitions" in log for log in logs)


def test_killed_cluster_command_leaves_no_process(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path, brokers=1) as cluster:
        pids = [member["pid"] for member in cluster.verb("status").values()]
        cluster.kill()
        for pid in pids:
            until_gone(pid)
    assert not processes_of(tmp_path)


def refused(directory: Path, *words: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "oncelog", "cluster", "--dir", str(directory), "--port", "0", *words],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "ONCELOG_ZOOKEEPER_JARS": str(KAFKA_3_9), **environment},
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert not processes_of(directory)
    return done.stderr


def test_start_without_zookeepers_jars_or_java_names_what_is_missing(tmp_path: Path) -> None:
    assert "pip install 'pyspark>=4.2,<5'" in refused(tmp_path, ONCELOG_ZOOKEEPER_JARS=str(tmp_path))
    assert "Java is missing: apt-get install" in refused(tmp_path, PATH=str(tmp_path))


def test_broker_that_refuses_its_settings_ends_the_start(tmp_path: Path) -> None:
    said = refused(tmp_path, "--brokers", "2", "--set", "2:num.partitions=none")
    assert "broker 2 did not start: exit code 2" in said
    assert "num.partitions='none' is not valid" in said
    assert "broker 1" not in said


def test_ports_of_a_failed_start_are_not_kept(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    wrong = ("--port", str(free_port()), "--set", "num.partitions=none")
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = ("--port", str(other.getsockname()[1]))
        assert "nothing was started" in refused(directory, "--brokers", "1", *taken)
        assert "broker 1 did not start" in refused(directory, "--brokers", "1", *wrong)
        with ClusterProcess(tmp_path, brokers=1) as cluster:
            address = cluster.address
        kept = (directory / "cluster.json").read_bytes()
        assert "nothing was started" in refused(directory, *taken)
        assert "broker 1 did not start" in refused(directory, *wrong)
        assert (directory / "cluster.json").read_bytes() == kept
        with ClusterProcess(tmp_path, brokers=1) as cluster:
            assert cluster.address == address


def test_signal_during_the_start_undoes_it(tmp_path: Path) -> None:
    cluster = ClusterProcess(tmp_path, brokers=1)
    cluster.launch()
    log = tmp_path / "cluster" / "zookeeper" / "zookeeper.log"
    assert cluster.process is not None
    while not log.exists():
        with pytest.raises(subprocess.TimeoutExpired):
            cluster.process.wait(0.02)
    assert cluster.stop() == 0
    assert "started at" not in (tmp_path / "stdout.log").read_text()
    assert not processes_of(tmp_path)

"""``oncelog doctor`` against broker processes that advertise what this machine cannot use."""

import json
import socket
from pathlib import Path

from tests.command import Oncelog
from tests.processes import OncelogProcess, free_port


def test_doctor_of_a_healthy_broker_finds_nothing(tmp_path: Path) -> None:
    with OncelogProcess(tmp_path) as broker:
        oncelog = Oncelog(broker.address)
        said = oncelog("doctor")
        assert "0 problems" in said
        found = oncelog.json("doctor")
        (row,) = found["brokers"]
        assert (row["broker"], row["reached"], row["controller"]) == (1, True, True)
        assert row["resolves_to"]
        assert int(row["produce"].split("-")[1]) >= 12
        assert found["findings"] == []


def test_unknown_advertised_name_is_named_with_the_setting_that_helps(tmp_path: Path) -> None:
    port = free_port()
    listeners = f"INTERNAL://127.0.0.1:{free_port()},PLAINTEXT://127.0.0.1:{port}"
    settings = [
        f"listeners={listeners}",
        "listener.security.protocol.map=INTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "inter.broker.listener.name=INTERNAL",
    ]
    advertised = f"INTERNAL://broker1.invalid:9092,PLAINTEXT://kafka.invalid:{port}"
    with OncelogProcess(tmp_path, [*settings, f"advertised.listeners={advertised}"], port):
        oncelog = Oncelog(f"127.0.0.1:{port}")
        assert oncelog.run("doctor").returncode == 1
        assert f"    advertised.listeners=INTERNAL://broker1.invalid:9092,PLAINTEXT://127.0.0.1:{port}\n" in (
            oncelog.run("doctor").stdout
        )
        found = json.loads(oncelog.run("doctor --format json").stdout)
        (finding,) = found["findings"]
        assert finding["broker_id"] == 1
        assert f"kafka.invalid:{port}, a name that this machine cannot resolve" in finding["message"]
        change = [f"{key}={value}" for key, value in finding["change"].items()]
    with OncelogProcess(tmp_path, [*settings, *change], port):
        assert "0 problems" in oncelog("doctor")


def test_advertised_port_without_listener_is_named(tmp_path: Path) -> None:
    port, other = free_port(), free_port()
    settings = [f"advertised.listeners=PLAINTEXT://127.0.0.1:{other}"]
    with OncelogProcess(tmp_path, settings, port):
        said = Oncelog(f"127.0.0.1:{port}").run("doctor")
        assert said.returncode == 1
        assert (
            f"it advertises 127.0.0.1:{other}, where this machine does not reach it (Connection refused)" in said.stdout
        )
        assert f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n" in said.stdout


def test_address_of_a_broker_of_another_cluster_is_named(tmp_path: Path) -> None:
    with OncelogProcess(tmp_path / "other") as other:
        port = free_port()
        settings = [f"advertised.listeners=PLAINTEXT://127.0.0.1:{other.port}"]
        with OncelogProcess(tmp_path / "this", settings, port):
            said = Oncelog(f"127.0.0.1:{port}").run("doctor")
            assert said.returncode == 1
            assert "a broker of another cluster responds" in said.stdout


def test_doctor_without_broker_fails_and_names_the_address() -> None:
    port = free_port()
    said = Oncelog(f"127.0.0.1:{port},unknown.invalid:9092").fails("doctor", exit_code=3)
    assert f"127.0.0.1:{port}: Connection refused" in said
    assert "the name unknown.invalid cannot be resolved by this machine" in said


def test_doctor_at_a_silent_address_says_that_it_waits_and_the_cause_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        said = Oncelog(f"127.0.0.1:{silent.getsockname()[1]}").fails("doctor", exit_code=3)
    assert said.count("still waiting for responses") == 1
    assert "accepts connections, but does not respond within 5 s\n" in said
    assert said.count("stopped") == 1

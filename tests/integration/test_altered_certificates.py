"""The stores of a listener, altered while its broker runs, as an administrator does it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command import Oncelog
from tests.integration.test_cli_tls import make_certificates, serial_number
from tests.processes import BrokerDied, OncelogProcess, free_port

KEY = "listener.name.secured.ssl.keystore.location"
_LOOKS = 1_000


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    make_certificates(tmp_path / "first")
    return tmp_path / "first" / "ca.pem"


def broker(directory: Path, port: int) -> OncelogProcess:
    process = OncelogProcess(directory / "data")
    process.settings = [
        f"listeners=PLAINTEXT://127.0.0.1:{process.port},SECURED://localhost:{port}",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECURED:SSL",
        f"ssl.keystore.location={directory / 'first' / 'broker-localhost.pem'}",
        "oncelog.ssl.reload.interval.ms=0",
    ]
    return process


def await_serial(port: int, authority: Path, is_right: Callable[[object], bool]) -> None:
    for _ in range(_LOOKS):
        if is_right(serial_number(port, authority)):
            return
    raise AssertionError("the listener has not the certificate that was set")


def test_listener_has_the_certificate_that_was_set_last(tmp_path: Path, port: int, authority: Path) -> None:
    """Also after a restart, and after it was taken back."""
    with broker(tmp_path, port) as process:
        oncelog = Oncelog(process.address)
        first = serial_number(port, authority)
        own = tmp_path / "first" / "broker-localhost.pem"
        second = tmp_path / "second.pem"
        kept = own.read_bytes()
        make_certificates(tmp_path / "first", "--renew")
        second.write_bytes(own.read_bytes())
        own.write_bytes(kept)
        oncelog(f"config alter broker 1 --set {KEY}={second}")
        await_serial(port, authority, lambda serial: serial != first)
        (described,) = [row for row in oncelog.json("config describe broker 1") if row["name"] == KEY]
        assert (described["value"], described["source"]) == (str(second), "DYNAMIC_BROKER_CONFIG")
        process.stop()
        process.start()
        await_serial(port, authority, lambda serial: serial != first)
        oncelog(f"config alter broker 1 --delete {KEY}")
        await_serial(port, authority, lambda serial: serial == first)


def test_broker_whose_altered_stores_are_gone_does_not_start(tmp_path: Path, port: int, authority: Path) -> None:
    """It does not go back to those of its file."""
    make_certificates(tmp_path / "other")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(authority.read_bytes())
    with broker(tmp_path, port) as process:
        oncelog = Oncelog(process.address)
        oncelog(f"config alter broker 1 --set listener.name.secured.ssl.truststore.location={trusted}")
        process.stop()
        trusted.unlink()
        with pytest.raises(
            BrokerDied, match=r"listener\.name\.secured\.ssl\.truststore\.location=.* cannot be read: .*put a store"
        ):
            process.start()
        trusted.write_bytes(authority.read_bytes())
        process.start()


def test_files_that_clients_write_into_are_no_stores(tmp_path: Path, port: int, authority: Path) -> None:
    """Who may alter a broker's configuration would otherwise be trusted by what it has sent as a client id."""
    trust = "listener.name.secured.ssl.truststore.location"
    logs = tmp_path / "logs"
    logs.mkdir()
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(authority.read_bytes())
    log = tmp_path / "broker.log"
    log.write_bytes(b"2026-11-29 INFO a request of client x\n" + authority.read_bytes())
    (logs / "old.jsonl").write_bytes(authority.read_bytes())
    with broker(tmp_path, port) as process:
        process.stop()
        process.settings.append(f"oncelog.audit.file={logs / 'audit.jsonl'}")
        process.start()
        oncelog = Oncelog(process.address)
        for place, reason in (
            (logs / "audit.jsonl", "in the directory of the audit log (oncelog.audit.file), whose files clients write"),
            (logs / "old.jsonl", "in the directory of the audit log"),
            (process.data_directory / "meta.properties", "in the data directory, whose files clients write"),
            (log, "has more than a store in line 1"),
        ):
            assert reason in oncelog.fails(f"config alter broker 1 --set {trust}={place}")
        oncelog(f"config alter broker 1 --set {trust}={trusted}")
        process.stop()
        trusted.write_bytes(log.read_bytes())
        with pytest.raises(BrokerDied, match=r"trusted\.pem has more than a store in line 1.*put a store"):
            process.start()
        trusted.write_bytes(authority.read_bytes())
        process.start()


def test_stores_that_cannot_be_used_are_refused_and_change_nothing(tmp_path: Path, port: int, authority: Path) -> None:
    make_certificates(tmp_path / "other", "--host elsewhere")
    with broker(tmp_path, port) as process:
        oncelog = Oncelog(process.address)
        first = serial_number(port, authority)
        other = tmp_path / "other" / "broker-elsewhere.pem"
        for place, reason in (
            (tmp_path / "nothing.pem", "cannot be read"),
            (tmp_path / "other" / "ca.pem", "private key"),
            (other, "ssl.allow.dn.changes=true"),
            (Path("/dev/ptmx"), "no regular file"),
            (process.data_directory / "meta.properties", "in the data directory"),
        ):
            assert reason in oncelog.fails(f"config alter broker 1 --set {KEY}={place}")
        for setting, reason in (
            (f"{KEY}={other} --default", "broker id must be specified"),
            (f"ssl.keystore.location={other}", "listener.name.NAME.ssl.keystore.location"),
            ("listener.name.secured.ssl.keystore.password=secret", "the broker reads it again by itself"),
            ("listener.name.secured.ssl.client.auth=required", "restart that broker"),
            (f"listener.name.none.ssl.keystore.location={other}", "none of listeners"),
        ):
            words = setting.split()
            resource = "broker" if "--default" in words else "broker 1"
            refusal = oncelog.fails(f"config alter {resource} --set {setting}")
            assert reason in refusal
            assert "secret" not in refusal
        assert serial_number(port, authority) == first

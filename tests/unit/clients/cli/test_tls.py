"""``oncelog tls init``: files that brokers and clients can use, and nothing overwritten that one may need."""

import stat
from pathlib import Path

from click.testing import CliRunner, Result

from oncelog.clients.cli.tls import tls
from oncelog.protocol.tls.stores import read_key_store, read_trust_store


def run(directory: Path, *words: str) -> Result:
    return CliRunner().invoke(tls, ["init", str(directory), *words])


def test_init_makes_stores_whose_keys_only_the_owner_can_read(tmp_path: Path) -> None:
    made = run(tmp_path / "c", "--host", "broker-1", "--host", "::1", "--client", "alice")
    assert made.exit_code == 0, made.output
    names = {"ca.pem", "ca.key", "broker-broker-1.pem", "broker-__1.pem", "client-alice.pem"}
    assert {each.name for each in (tmp_path / "c").iterdir()} == names
    for name in names - {"ca.pem"}:
        assert stat.S_IMODE((tmp_path / "c" / name).stat().st_mode) == 0o600
    assert len(read_key_store((tmp_path / "c" / "broker-broker-1.pem").read_bytes()).certificates) == 2
    assert len(read_trust_store((tmp_path / "c" / "ca.pem").read_bytes())) == 1
    assert "ssl.client.auth=required" in made.output


def test_init_adds_to_an_authority_that_is_there(tmp_path: Path) -> None:
    run(tmp_path)
    authority = (tmp_path / "ca.pem").read_bytes()
    assert run(tmp_path, "--host", "other").exit_code == 0
    assert (tmp_path / "ca.pem").read_bytes() == authority


def test_init_replaces_nothing_without_renew(tmp_path: Path) -> None:
    run(tmp_path)
    before = (tmp_path / "broker-localhost.pem").read_bytes()
    refused = run(tmp_path, "--client", "alice")
    assert refused.exit_code == 1
    assert "--renew" in refused.output
    assert (tmp_path / "broker-localhost.pem").read_bytes() == before
    assert not (tmp_path / "client-alice.pem").exists()
    assert run(tmp_path, "--renew").exit_code == 0
    assert (tmp_path / "broker-localhost.pem").read_bytes() != before


def test_init_refuses_what_cannot_work(tmp_path: Path) -> None:
    assert "not the name of a host" in run(tmp_path, "--host", "../x").output
    assert "not the name of a host" in run(tmp_path, "--client", "a b").output
    (tmp_path / "ca.pem").write_text("")
    assert "not both" in run(tmp_path).output
    (tmp_path / "file").write_text("")
    assert "file" in run(tmp_path / "file").output

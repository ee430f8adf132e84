"""The certificates of a listener: who clients are, and how certificates are replaced while it serves."""

import logging
from pathlib import Path
from typing import Any

import pytest

from oncelog.broker.config.listeners import checked_listeners, tls_listeners
from oncelog.broker.config.settings import ConfigError
from oncelog.broker.config.sources import load_config
from oncelog.broker.network.listener_tls import ListenerTls
from oncelog.broker.tls.tls_transport import TlsShared
from tests.certificates import Certificate, make_certificate

pytestmark = pytest.mark.real_loop


def listener(*settings: str) -> ListenerTls:
    (own,) = (setting.partition("=")[2] for setting in settings if setting.startswith("ssl.keystore.location="))
    trusting = f"ssl.truststore.location={own}"
    config = load_config(overrides=["listeners=SSL://localhost:1", trusting, *settings]).config
    (parsed,) = tls_listeners(config, checked_listeners(config)).values()
    shared = TlsShared(handshake_seconds=1, failure_delay_seconds=0)
    return ListenerTls(parsed, shared, has_sasl=False, is_inter_broker=True)


def store_of(directory: Path, certificate: Certificate) -> str:
    """Put a certificate where the listener has its own, and what it trusts."""
    (directory / "own.pem").write_bytes(certificate.both.read_bytes())
    return f"ssl.keystore.location={directory / 'own.pem'}"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "own.pem cannot be read: No such file"),
        (b"", "is empty"),
        (b"\xfe\xed\xfe\xed\x00\x00", "keytool -importkeystore"),
        (b"no store at all", "is no PEM and no PKCS#12"),
    ],
)
async def test_store_that_cannot_be_used_is_refused_at_the_start(
    tmp_path: Path, content: bytes | None, sentence: str
) -> None:
    if content is not None:
        (tmp_path / "own.pem").write_bytes(content)
    with pytest.raises(ConfigError, match=sentence):
        listener(f"ssl.keystore.location={tmp_path / 'own.pem'}")


async def test_certificate_that_was_renewed_is_taken(tmp_path: Path) -> None:
    served = listener(store_of(tmp_path, make_certificate(tmp_path, "broker")))
    replaced: list[Any] = []
    served.on_reloaded = replaced.append
    await served.reload()
    assert not replaced
    store_of(tmp_path, make_certificate(tmp_path, "broker"))
    await served.reload()
    assert replaced == [served.peer_context]
    await served.reload()
    assert len(replaced) == 1


@pytest.mark.parametrize(
    ("name", "alternative", "sentence"),
    [
        ("other", "IP:127.0.0.1,DNS:broker", "ssl.allow.dn.changes=true"),
        ("broker", "IP:127.0.0.1", "lacks alternative names of the former, .*broker"),
    ],
)
async def test_certificate_of_another_name_is_refused_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, alternative: str, sentence: str
) -> None:
    former = make_certificate(tmp_path, "broker", "IP:127.0.0.1,DNS:broker")
    (tmp_path / "new").mkdir()
    new = make_certificate(tmp_path / "new", name, alternative)
    served = listener(store_of(tmp_path, former))
    replaced: list[Any] = []
    served.on_reloaded = replaced.append
    store_of(tmp_path, new)
    with caplog.at_level(logging.WARNING):
        await served.reload()
        await served.reload()
    assert not replaced
    (line,) = caplog.messages
    assert "stay as they are" in line
    caplog.clear()
    allowed = listener(store_of(tmp_path, former), "ssl.allow.dn.changes=true", "ssl.allow.san.changes=true")
    allowed.on_reloaded = replaced.append
    store_of(tmp_path, new)
    await allowed.reload()
    assert len(replaced) == 1


async def test_file_that_is_gone_or_torn_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    certificate = make_certificate(tmp_path, "broker")
    served = listener(store_of(tmp_path, certificate))
    replaced: list[Any] = []
    served.on_reloaded = replaced.append
    own = tmp_path / "own.pem"
    own.write_bytes(certificate.both.read_bytes()[:-200])
    await served.reload()
    own.unlink()
    await served.reload()
    assert len([line for line in caplog.messages if "stay as they are" in line]) == 2
    assert not replaced


async def test_certificate_that_ends_soon_has_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    served = listener(store_of(tmp_path, make_certificate(tmp_path, "broker")))
    served.warn(0)
    assert not caplog.messages
    now_ms = int(make_certificate(tmp_path, "now").certificate.stat().st_mtime * 1000)
    served.warn(now_ms)
    assert "expires on" in caplog.messages[-1]
    served.warn(now_ms + 3 * 86_400_000)
    assert "has expired on" in caplog.messages[-1]


async def test_certificate_that_brokers_would_not_accept_from_each_other_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = make_certificate(tmp_path / "other", "broker")
    own = store_of(tmp_path, make_certificate(tmp_path, "broker"))
    with pytest.raises(ConfigError, match=r"from one another: .*certificate.*ssl\.truststore\.location must trust"):
        listener(own, f"ssl.truststore.location={other.certificate}")
    served = listener(own)
    store_of(tmp_path, other)
    config = load_config(
        overrides=["listeners=SSL://localhost:1", own, f"ssl.truststore.location={tmp_path / 'broker.crt'}"]
    ).config
    (altered,) = tls_listeners(config, checked_listeners(config)).values()
    assert "from one another" in (served.why_not(altered) or "")

"""Certificates for a try-out are accepted by OpenSSL, and only for what they are."""

import datetime
import ssl
from pathlib import Path

import pytest

from oncelog.clients.trial_certificates import SignedKey, make_authority, sign_broker, sign_client

NOW = datetime.datetime.now(datetime.UTC)  # noqa: TID251


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> ssl.SSLObject:
    """Return the server's end after a whole handshake."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname=host),
    ]
    for _ in range(6):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ends[0]


def contexts(directory: Path, authority: SignedKey, broker: SignedKey, own: SignedKey) -> list[ssl.SSLContext]:
    found = []
    for signed, protocol in ((broker, ssl.PROTOCOL_TLS_SERVER), (own, ssl.PROTOCOL_TLS_CLIENT)):
        context = ssl.SSLContext(protocol)
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.load_verify_locations(cadata=authority.certificate.decode())
        path = directory / "store.pem"
        path.write_bytes(signed.key + signed.certificate)
        context.load_cert_chain(path)
        found.append(context)
    return found


@pytest.mark.parametrize("host", ["localhost", "broker-1.example.org", "127.0.0.1"])
def test_broker_and_client_accept_each_other(tmp_path: Path, host: str) -> None:
    authority = make_authority(NOW, 1)
    hosts = ["localhost", "broker-1.example.org"]
    server, client = contexts(
        tmp_path, authority, sign_broker(authority, hosts, NOW, 1), sign_client(authority, "alice", NOW, 1)
    )
    subject = shake_hands(server, client, host).getpeercert()
    assert subject is not None
    assert subject["subject"] == ((("commonName", "alice"),),)


def test_certificate_of_another_host_is_not_accepted(tmp_path: Path) -> None:
    authority = make_authority(NOW, 1)
    server, client = contexts(
        tmp_path, authority, sign_broker(authority, ["broker-1"], NOW, 1), sign_client(authority, "alice", NOW, 1)
    )
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(server, client, "broker-2")


def test_client_cannot_pretend_to_be_a_broker(tmp_path: Path) -> None:
    authority = make_authority(NOW, 1)
    own = sign_client(authority, "localhost", NOW, 1)
    server, client = contexts(tmp_path, authority, own, own)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"unsuitable certificate purpose|unsupported"):
        shake_hands(server, client, "localhost")


def test_certificate_of_another_authority_is_not_accepted(tmp_path: Path) -> None:
    authority, other = make_authority(NOW, 1), make_authority(NOW, 1)
    own = sign_client(authority, "alice", NOW, 1)
    server, client = contexts(tmp_path, authority, sign_broker(other, ["localhost"], NOW, 1), own)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, client, "localhost")


def test_name_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 64 characters"):
        sign_client(make_authority(NOW, 1), "x" * 65, NOW, 1)


def test_key_is_not_in_the_representation() -> None:
    assert "PRIVATE" not in repr(make_authority(NOW, 1))

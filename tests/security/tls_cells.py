"""Handshakes that must succeed, and those that must not: what a client says, and whether it is served then.

Each cell ends with a request for the versions of the broker, so *served* is more than a handshake: with TLS 1.3 a
client learns only then whether its certificate is accepted.
"""

import contextlib
import datetime
import ipaddress
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from oncelog.protocol.framing import encode_request
from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from tests.processes import OncelogProcess, free_port
from tests.security.cell import Cell

SERVED: Final = "served"
REFUSED: Final = "refused"
HOST: Final = "localhost"
SECONDS: Final = 10.0
TIMEOUT_MS: Final = 1_500
"""``oncelog.authentication.timeout.ms``."""
_GREETING: Final = b"".join(
    encode_request(1, "tester", ApiVersionsRequest(client_software_name="c", client_software_version="1"), 3)
)
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True, slots=True)
class Signed:
    """A key and a certificate, as an attacker may have made them."""

    key: Key
    certificate: x509.Certificate

    def pem(self, *above: "Signed") -> bytes:
        key = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return key + b"".join(each.certificate.public_bytes(Encoding.PEM) for each in (self, *above))

    def trusted(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)


def signed(
    name: str,
    issuer: Signed | None = None,
    *,
    days: tuple[int, int] = (-1, 30),
    usage: x509.ObjectIdentifier | None = ExtendedKeyUsageOID.CLIENT_AUTH,
    key: Key | None = None,
    is_authority: bool = False,
) -> Signed:
    key = key or ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)  # noqa: TID251
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days=days[0]))
        .not_valid_after(now + datetime.timedelta(days=days[1]))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if not is_authority and usage is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    if usage is ExtendedKeyUsageOID.SERVER_AUTH:
        hosts = [x509.DNSName(HOST), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    return Signed(key, builder.sign(key if issuer is None else issuer.key, hashes.SHA256()))


@dataclass(slots=True)
class Scene:
    """The broker's listeners by name, and what the cells need."""

    ports: dict[str, int]
    authority: Signed
    directory: Path

    def context(
        self,
        own: bytes | None = None,
        *,
        versions: tuple[ssl.TLSVersion, ssl.TLSVersion] = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3),
        ciphers: str = "DEFAULT@SECLEVEL=0",
        trusts: bytes | None = None,
    ) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.set_ciphers(ciphers)
        context.minimum_version, context.maximum_version = versions
        context.load_verify_locations(cadata=(trusts or self.authority.trusted()).decode())
        if own is not None:
            path = self.directory / "own.pem"
            path.write_bytes(own)
            context.load_cert_chain(path)
        return context

    def tried(self, listener: str, context: ssl.SSLContext, host: str = HOST) -> str:
        """Do a handshake, send a request, and say whether it has a response."""
        try:
            with self.connected(listener) as plain, context.wrap_socket(plain, server_hostname=host) as secured:
                return _served(secured)
        except (ssl.SSLError, ConnectionError, TimeoutError):
            return REFUSED

    @contextlib.contextmanager
    def connected(self, listener: str) -> Iterator[socket.socket]:
        with socket.create_connection((HOST, self.ports[listener]), SECONDS) as plain:
            yield plain

    def said(self, listener: str, data: bytes, *, more: bool = False) -> str:
        """Send bytes that are no good handshake; returns whether the connection is ended, and within the time."""
        with self.connected(listener) as plain:
            try:
                plain.sendall(data)
                if not more:
                    plain.shutdown(socket.SHUT_WR)
                while plain.recv(65_536):
                    pass
            except ConnectionError:
                return REFUSED
            except TimeoutError:
                return "open for ever"
        return REFUSED


def _served(secured: ssl.SSLSocket) -> str:
    secured.sendall(_GREETING)
    received = b""
    while len(received) < 8:
        data = secured.recv(65_536)
        if not data:
            return REFUSED
        received += data
    return SERVED


Trial = Callable[[Scene], str]
_V12, _V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


def _with_versions(listener: str, low: ssl.TLSVersion, high: ssl.TLSVersion) -> Trial:
    return lambda scene: scene.tried(listener, scene.context(versions=(low, high)))


def _with_cipher(listener: str, cipher: str) -> Trial:
    return lambda scene: scene.tried(listener, scene.context(ciphers=f"{cipher}@SECLEVEL=0", versions=(_V12, _V12)))


def _with_own(listener: str, make: Callable[[Signed], bytes], version: ssl.TLSVersion = _V13) -> Trial:
    return lambda scene: scene.tried(listener, scene.context(make(scene.authority), versions=(version, version)))


def _saying(listener: str, data: bytes, *, more: bool = False) -> Trial:
    return lambda scene: scene.said(listener, data, more=more)


def _hello(scene: Scene) -> bytes:
    outgoing = ssl.MemoryBIO()
    client = scene.context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=HOST)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def _resumed(scene: Scene) -> str:
    context = scene.context(versions=(_V12, _V12))
    session = None
    for _ in range(2):
        with scene.connected("OPEN") as plain:
            secured = context.wrap_socket(plain, server_hostname=HOST, session=session)
            outcome = _served(secured)
            session = secured.session
            secured.close()
    return outcome


def _renegotiated(scene: Scene) -> str:
    words = ["openssl", "s_client", "-connect", f"{HOST}:{scene.ports['OPEN']}", "-tls1_2", "-quiet", "-no_ign_eof"]
    done = subprocess.run(words, input="R\n", capture_output=True, text=True, timeout=30, check=False)
    return REFUSED if "no renegotiation" in done.stderr.lower() or done.returncode else SERVED


def _changed_record(scene: Scene) -> str:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = scene.context().wrap_bio(incoming, outgoing, server_hostname=HOST)
    with scene.connected("OPEN") as plain:
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                plain.sendall(outgoing.read())
                incoming.write(plain.recv(65_536))
        client.write(_GREETING)
        data = bytearray(outgoing.read())
        data[-1] ^= 1
        plain.sendall(data)
        with contextlib.suppress(ConnectionError):
            while plain.recv(65_536):
                pass
    return REFUSED


def _many_at_once(scene: Scene) -> str:
    context = scene.context()
    with ThreadPoolExecutor(50) as pool:
        found = set(pool.map(lambda _: scene.tried("OPEN", context), range(200)))
    return "+".join(sorted(found))


def _cut_mid_request(scene: Scene) -> str:
    with scene.connected("OPEN") as plain:
        secured = scene.context().wrap_socket(plain, server_hostname=HOST)
        secured.sendall(_GREETING[:9])
    return scene.tried("OPEN", scene.context())


def _weak_key(authority: Signed) -> bytes:
    return signed("alice", authority, key=rsa.generate_private_key(65537, 1024)).pem()


def _intermediate(authority: Signed, *, whole: bool) -> bytes:
    middle = signed("middle", authority, is_authority=True)
    own = signed("alice", middle)
    return own.pem(middle) if whole else own.pem()


def _by_a_client(authority: Signed) -> bytes:
    middle = signed("no authority", authority)
    return signed("alice", middle).pem(middle)


TRIALS: Final[dict[str, tuple[str, Trial]]] = {
    "TLS 1.3": (SERVED, _with_versions("OPEN", _V13, _V13)),
    "TLS 1.2": (SERVED, _with_versions("OPEN", _V12, _V12)),
    "TLS 1.1": (REFUSED, _with_versions("OPEN", ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_1)),
    "TLS 1.0": (REFUSED, _with_versions("OPEN", ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1)),
    "TLS 1.2 where only 1.3 is enabled": (REFUSED, _with_versions("ONLY13", _V12, _V12)),
    "TLS 1.3 where only 1.3 is enabled": (SERVED, _with_versions("ONLY13", _V12, _V13)),
    "TLS 1.3 where only 1.2 is enabled": (REFUSED, _with_versions("ONLY12", _V13, _V13)),
    "either version where only 1.2 is enabled": (SERVED, _with_versions("ONLY12", _V12, _V13)),
    "a cipher suite without forward secrecy": (REFUSED, _with_cipher("OPEN", "AES128-GCM-SHA256")),
    "a cipher suite with SHA-1": (REFUSED, _with_cipher("OPEN", "ECDHE-ECDSA-AES128-SHA")),
    "a cipher suite without authentication": (REFUSED, _with_cipher("OPEN", "aNULL")),
    "a cipher suite without encryption": (REFUSED, _with_cipher("OPEN", "eNULL")),
    "a strong cipher suite": (SERVED, _with_cipher("OPEN", "ECDHE-ECDSA-AES256-GCM-SHA384")),
    "the cipher suite that is configured": (SERVED, _with_cipher("ONLY12", "ECDHE-ECDSA-AES256-GCM-SHA384")),
    "a cipher suite that is not configured": (REFUSED, _with_cipher("ONLY12", "ECDHE-ECDSA-AES128-GCM-SHA256")),
    "a broker of an unknown authority": (
        REFUSED,
        lambda scene: scene.tried("OPEN", scene.context(trusts=signed("other", is_authority=True).trusted())),
    ),
    "a broker of another name": (REFUSED, lambda scene: scene.tried("OPEN", scene.context(), "broker.example.org")),
    "a broker by its address": (SERVED, lambda scene: scene.tried("OPEN", scene.context(), "127.0.0.1")),
    "no certificate where one is required, TLS 1.3": (REFUSED, _with_versions("MUTUAL", _V13, _V13)),
    "no certificate where one is required, TLS 1.2": (REFUSED, _with_versions("MUTUAL", _V12, _V12)),
    "no certificate where one is requested": (SERVED, _with_versions("REQUESTED", _V12, _V13)),
    "a good certificate, TLS 1.3": (SERVED, _with_own("MUTUAL", lambda authority: signed("alice", authority).pem())),
    "a good certificate, TLS 1.2": (
        SERVED,
        _with_own("MUTUAL", lambda authority: signed("alice", authority).pem(), _V12),
    ),
    "a certificate that has expired": (
        REFUSED,
        _with_own("MUTUAL", lambda authority: signed("alice", authority, days=(-9, -1)).pem()),
    ),
    "a certificate that has expired, where one is requested": (
        REFUSED,
        _with_own("REQUESTED", lambda authority: signed("alice", authority, days=(-9, -1)).pem()),
    ),
    "a certificate that is not valid yet": (
        REFUSED,
        _with_own("MUTUAL", lambda authority: signed("alice", authority, days=(1, 9)).pem()),
    ),
    "a certificate that stands for itself": (REFUSED, _with_own("MUTUAL", lambda _: signed("alice").pem())),
    "a certificate of another authority of the same name": (
        REFUSED,
        _with_own("MUTUAL", lambda _: signed("alice", signed("authority", is_authority=True)).pem()),
    ),
    "a certificate for servers only": (
        REFUSED,
        _with_own("MUTUAL", lambda authority: signed("alice", authority, usage=ExtendedKeyUsageOID.SERVER_AUTH).pem()),
    ),
    "a certificate without a purpose": (
        SERVED,
        _with_own("MUTUAL", lambda authority: signed("alice", authority, usage=None).pem()),
    ),
    "a certificate with a weak key": (REFUSED, _with_own("MUTUAL", _weak_key)),
    "a certificate of an intermediate authority with it": (
        SERVED,
        _with_own("MUTUAL", lambda authority: _intermediate(authority, whole=True)),
    ),
    "a certificate of an intermediate authority without it": (
        REFUSED,
        _with_own("MUTUAL", lambda authority: _intermediate(authority, whole=False)),
    ),
    "a certificate that a client has signed": (REFUSED, _with_own("MUTUAL", _by_a_client)),
    "a subject that no rule matches": (
        REFUSED,
        _with_own("MUTUAL", lambda authority: signed("ROBOT 7", authority).pem()),
    ),
    "a request without TLS": (REFUSED, _saying("OPEN", _GREETING, more=True)),
    "HTTP": (REFUSED, _saying("OPEN", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", more=True)),
    "garbage": (REFUSED, _saying("OPEN", bytes(range(255, 0, -1)), more=True)),
    "nothing, and the end": (REFUSED, _saying("OPEN", b"")),
    "nothing, for ever": (REFUSED, _saying("OPEN", b"", more=True)),
    "one byte, for ever": (REFUSED, _saying("OPEN", b"\x16", more=True)),
    "half a greeting, for ever": (REFUSED, lambda scene: scene.said("OPEN", _hello(scene)[:100], more=True)),
    "half a greeting, and the end": (REFUSED, lambda scene: scene.said("OPEN", _hello(scene)[:100])),
    "a greeting, for ever": (REFUSED, lambda scene: scene.said("OPEN", _hello(scene), more=True)),
    "a record that is too long": (REFUSED, _saying("OPEN", b"\x16\x03\x01\xff\xff" + bytes(70_000), more=True)),
    "empty records without end": (REFUSED, _saying("OPEN", b"\x16\x03\x01\x00\x00" * 10_000, more=True)),
    "a greeting in pieces of one byte": (REFUSED, lambda scene: scene.said("OPEN", _in_pieces(_hello(scene)))),
    "an alert as the first word": (REFUSED, _saying("OPEN", b"\x15\x03\x03\x00\x02\x02\x28", more=True)),
    "TLS on a listener without it": (REFUSED, lambda scene: scene.tried("PLAIN", scene.context())),
    "TLS on a listener with SASL and without TLS": (REFUSED, lambda scene: scene.tried("LOGIN", scene.context())),
    "the end in the middle of a request": (SERVED, _cut_mid_request),
    "a record that was changed on its way": (REFUSED, _changed_record),
    "a session that is taken up again": (SERVED, _resumed),
    "a renegotiation": (REFUSED, _renegotiated),
    "two hundred handshakes at once": (SERVED, _many_at_once),
}


def _in_pieces(hello: bytes) -> bytes:
    """Return the same handshake message in a record for each byte of its beginning: its end never comes."""
    return b"".join(b"\x16\x03\x01\x00\x01" + hello[5 + place : 6 + place] for place in range(50))


def tls_cells(directory: Path) -> list[Cell]:
    """Try all of them on one broker, which serves as before at the end."""
    authority = signed("authority", is_authority=True)
    names = ("PLAIN", "LOGIN", "OPEN", "ONLY12", "ONLY13", "MUTUAL", "REQUESTED")
    scene = Scene({name: free_port() for name in names}, authority, Path(tempfile.mkdtemp(dir=directory)))
    own = signed(HOST, authority, usage=ExtendedKeyUsageOID.SERVER_AUTH)
    (directory / "broker.pem").write_bytes(own.pem())
    (directory / "ca.pem").write_bytes(authority.trusted())
    with OncelogProcess(directory, _settings(scene, directory), scene.ports["PLAIN"]):
        cells = [Cell(name, expected, _outcome(trial, scene)) for name, (expected, trial) in TRIALS.items()]
        cells.append(Cell("and then a good client", SERVED, _outcome(TRIALS["TLS 1.3"][1], scene)))
    return cells


def _outcome(trial: Trial, scene: Scene) -> str:
    try:
        return trial(scene)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _settings(scene: Scene, directory: Path) -> list[str]:
    protocols: dict[str, Any] = dict.fromkeys(scene.ports, "SSL")
    protocols |= {"PLAIN": "PLAINTEXT", "LOGIN": "SASL_PLAINTEXT"}
    return [
        "listeners=" + ",".join(f"{name}://{HOST}:{port}" for name, port in scene.ports.items()),
        "listener.security.protocol.map=" + ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        f"ssl.keystore.location={directory / 'broker.pem'}",
        f"ssl.truststore.location={directory / 'ca.pem'}",
        "listener.name.only12.ssl.enabled.protocols=TLSv1.2",
        "listener.name.only12.ssl.cipher.suites=TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "listener.name.only13.ssl.enabled.protocols=TLSv1.3",
        "listener.name.mutual.ssl.client.auth=required",
        r"listener.name.mutual.ssl.principal.mapping.rules=RULE:^CN=([a-z]+)$/$1/",
        "listener.name.requested.ssl.client.auth=requested",
        "sasl.enabled.mechanisms=PLAIN",
        'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_a="b";',
        f"oncelog.authentication.timeout.ms={TIMEOUT_MS}",
    ]

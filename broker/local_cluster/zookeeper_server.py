"""A real ZooKeeper server of our own, from jars that are on the machine anyway.

PySpark's wheel carries ZooKeeper and all that it needs, so with Java present nothing has to be installed; any other
directory with those jars does as well (``ONCELOG_ZOOKEEPER_JARS``, or that of a checkout, which `make cluster` fills).
The server listens on loopback only, keeps its data in a directory of the caller's, and is stopped by process id. It is
ready when it responds to ``srvr``, with which it is polled while the process runs. A secured one has a port with TLS
only, and users.
"""

import os
import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

import oncelog

JARS_VARIABLE: Final = "ONCELOG_ZOOKEEPER_JARS"
_NEEDED: Final = (
    "zookeeper",
    "netty",
    "metrics-core",
    "snappy",
    "slf4j",
    "log4j",
    "reload4j",
    "commons-io",
    "commons-cli",
    "jackson",
)
_CHECKOUT: Final = Path(oncelog.__file__).parents[1]
_FETCHED: Final = ".peers/kafka-3.9/lib"
"""Where `make cluster` puts the jars."""
_MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_STOP_SECONDS: Final = 20.0
_RESPONSE_SECONDS: Final = 1.0
DEFAULT_TICK_MS: Final = 500
LOG_NAME: Final = "zookeeper.log"
_LOOPBACK: Final = "127.0.0.1"
_HEAP: Final = "-Xmx256m"
_PAUSE_SECONDS: Final = 0.05


_SASL_PROVIDER: Final = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
_NETTY: Final = "org.apache.zookeeper.server.NettyServerCnxnFactory"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSecurity:
    """The files of a secured server, and whether clients need to be known."""

    key_store: Path
    """PEM: the private key of the server and its certificates."""
    trust_store: Path
    """PEM: the authorities of clients with certificates."""
    jaas: Path
    """With a section ``Server``, which has the users."""
    requires_login: bool = True
    """Whether only users get a session."""
    client_auth: str = "none"
    """``none``, ``want`` or ``need``: whether clients have certificates."""


class CannotStart(Exception):
    """What is missing, and what helps."""


def find_jars() -> list[Path]:
    """Return the jars to start a server from. Raises ``CannotStart``, which says where they could come from."""
    directory = _jar_directory()
    found = sorted(jar for jar in directory.glob("*.jar") if jar.name.startswith(_NEEDED)) if directory else []
    if not any(jar.name.startswith("zookeeper-") for jar in found):
        raise CannotStart(
            "no ZooKeeper jars: install them with `pip install 'pyspark>=4.2,<5'`, "
            f"or name a directory that has them in {JARS_VARIABLE}; in a checkout, `make cluster` fetches them"
        )
    return found


def _jar_directory() -> Path | None:
    named = os.environ.get(JARS_VARIABLE)
    if named:
        return Path(named)
    spec = find_spec("pyspark")
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent / "jars"
    return next(iter(_CHECKOUT.glob(_FETCHED)), None)


def prepare_server(
    directory: Path,
    port: int,
    *,
    tick_ms: int = DEFAULT_TICK_MS,
    longest_session_ms: int | None = None,
    security: ServerSecurity | None = None,
) -> list[str]:
    """Write what a server on ``port`` of loopback needs into ``directory``; return the command that starts it.

    Sessions last two to twenty ticks, or up to ``longest_session_ms``. ``CannotStart`` says what is missing.
    """
    java = shutil.which("java")
    if java is None:
        raise CannotStart("Java is missing: apt-get install openjdk-17-jre-headless")
    jars = os.pathsep.join(map(str, find_jars()))
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "zoo.cfg"
    settings: dict[str, object] = {
        "tickTime": tick_ms,
        "dataDir": directory / "data",
        "admin.enableServer": "false",
        "maxClientCnxns": 0,
        "autopurge.purgeInterval": 24,
    }
    if longest_session_ms is not None:
        settings["maxSessionTimeout"] = longest_session_ms
    settings |= _plain_port(port) if security is None else _secure_port(port, security)
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    options = [_HEAP, "-Dzookeeper.4lw.commands.whitelist=ruok,srvr,mntr"]
    if security is not None:
        options.append(f"-Djava.security.auth.login.config={security.jaas}")
    return [java, *options, "-cp", jars, _MAIN, str(config)]


def _plain_port(port: int) -> Mapping[str, object]:
    return {"clientPort": port, "clientPortAddress": _LOOPBACK}


def _secure_port(port: int, security: ServerSecurity) -> Mapping[str, object]:
    return {
        "secureClientPort": port,
        "secureClientPortAddress": _LOOPBACK,
        "serverCnxnFactory": _NETTY,
        "authProvider.1": _SASL_PROVIDER,
        "sessionRequireClientSASLAuth": str(security.requires_login).lower(),
        "ssl.keyStore.location": security.key_store,
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": security.trust_store,
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": security.client_auth,
    }


class ZooKeeperServer:
    """A server process; ``address`` is its connect string. It can be stopped and started again on the same data."""

    def __init__(
        self, directory: Path, port: int, *, tick_ms: int = DEFAULT_TICK_MS, security: ServerSecurity | None = None
    ) -> None:
        self._directory = directory
        self._port = port
        self._tick_ms = tick_ms
        self._security = security
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{_LOOPBACK}:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def start(self, *, seconds: float = 30.0) -> None:
        """Start the process and return when it responds to ``srvr``."""
        command = prepare_server(self._directory, self._port, tick_ms=self._tick_ms, security=self._security)
        with (self._directory / LOG_NAME).open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True
            )
        self._await_response(seconds)

    def _await_response(self, seconds: float) -> None:
        process = self._process
        assert process is not None
        for _ in range(int(seconds / _PAUSE_SECONDS)):
            if is_serving(self._port, by_tls=self._security is not None):
                return
            try:
                process.wait(_PAUSE_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            break
        self.kill()
        said = (self._directory / LOG_NAME).read_text(errors="replace")[-2000:]
        raise CannotStart(f"ZooKeeper does not respond on port {self._port}; its log ends with:\n{said}")

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process is gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Send SIGTERM, and wait until the process is gone."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def is_serving(port: int, *, by_tls: bool = False) -> bool:
    """Return whether a server responds, and serves; whose server it is does not matter."""
    try:
        with _connect(port, by_tls=by_tls) as connection:
            connection.sendall(b"srvr")
            return b"Mode:" in _everything(connection.makefile("rb"))
    except OSError:
        return False


def _connect(port: int, *, by_tls: bool) -> socket.socket:
    connection = socket.create_connection((_LOOPBACK, port), timeout=_RESPONSE_SECONDS)
    return _unverified(connection) if by_tls else connection


def _unverified(connection: socket.socket) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(connection)


def _everything(stream: IO[bytes]) -> bytes:
    with stream:
        return stream.read()

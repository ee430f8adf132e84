"""A real ZooKeeper with TLS and users, the files that it and its clients need, and a look at its znodes from outside.

Clients that do not log in are let in, to see what they can do.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from kazoo.client import KazooClient

from oncelog.broker.config.sources import load_config
from oncelog.broker.local_cluster.zookeeper_server import ServerSecurity, ZooKeeperServer
from oncelog.broker.metadata.store_choice import zookeeper_security
from oncelog.coordinator.metadata_store.zookeeper_security import ZooKeeperSecurity
from oncelog.protocol.sasl.digest_login import DIGEST_MODULE
from tests.certificates import make_authority
from tests.processes import LIMIT_SECONDS, free_port

USER: Final = "kafka"
PASSWORD: Final = "sesame,\\\\open"
"""As it stands in a JAAS file: one backslash, and a comma."""
OTHER_USER: Final = "other"
SECONDS: Final = LIMIT_SECONDS


class SecuredZooKeeper:
    """The files, and the server that runs by them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        authority = make_authority("authority")
        self.authority = self._write("ca.pem", authority.certificate_pem)
        self.broker_certificate = self._write("broker.pem", authority.issue("broker").pem())
        self.other_certificate = self._write("other.pem", authority.issue("another broker").pem())
        self._write("server.pem", authority.issue("zookeeper").pem())
        users = f'user_{USER}="{PASSWORD}" user_{OTHER_USER}="other"'
        self._write("server.jaas", f"Server {{ {DIGEST_MODULE} required {users}; }};\n".encode())
        self.client_jaas = self._write("client.jaas", f"Client {{ {self.module(USER)} }};\n".encode())
        security = ServerSecurity(
            key_store=directory / "server.pem",
            trust_store=directory / "ca.pem",
            jaas=directory / "server.jaas",
            requires_login=False,
            client_auth="want",
        )
        self.server = ZooKeeperServer(directory / "zookeeper", free_port(), security=security)

    def _write(self, name: str, content: bytes) -> str:
        path = self.directory / name
        path.write_bytes(content)
        return str(path)

    @staticmethod
    def module(user: str, password: str | None = None) -> str:
        known = PASSWORD if user == USER else user
        return f'{DIGEST_MODULE} required username="{user}" password="{password or known}";'

    @property
    def address(self) -> str:
        return self.server.address

    def tls(self, certificate: str | None = None) -> list[str]:
        """The settings of TLS, those of Kafka."""
        own = ["zookeeper.ssl.keystore.type=PEM", f"zookeeper.ssl.keystore.location={certificate}"]
        return [
            "zookeeper.ssl.client.enable=true",
            "zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.truststore.type=PEM",
            f"zookeeper.ssl.truststore.location={self.authority}",
            *(own if certificate is not None else []),
        ]

    def login(self, user: str = USER, password: str | None = None) -> str:
        return f"oncelog.zookeeper.sasl.jaas.config={self.module(user, password)}"

    def settings(self, chroot: str) -> list[str]:
        """What a broker needs whose znodes are its own."""
        return [f"zookeeper.connect={self.address}{chroot}", *self.tls(), self.login(), "zookeeper.set.acl=true"]

    def security(self, *settings: str) -> ZooKeeperSecurity:
        return zookeeper_security(load_config(overrides=[f"zookeeper.connect={self.address}", *settings]).config)

    @contextmanager
    def observer(self, *, as_user: bool) -> Iterator[Any]:
        """A client of kazoo's own making, with TLS."""
        login = {"mechanism": "DIGEST-MD5", "username": USER, "password": PASSWORD.replace("\\\\", "\\")}
        client = KazooClient(
            hosts=self.address,
            use_ssl=True,
            ca=self.authority,
            check_hostname=True,
            sasl_options=login if as_user else None,
        )
        client.start(SECONDS)
        try:
            yield client
        finally:
            client.stop()
            client.close()


def access_lists(client: Any, root: str) -> Mapping[str, frozenset[tuple[int, str, str]]]:
    """The access control list of each znode below a root, by its path below that."""
    found = {}
    waiting = [root]
    while waiting:
        path = waiting.pop()
        acls, _ = client.get_acls(path)
        found[path.removeprefix(root) or "/"] = frozenset((each.perms, each.id.scheme, each.id.id) for each in acls)
        waiting += [f"{path}/{name}" for name in client.get_children(path)]
    return found

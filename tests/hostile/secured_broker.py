"""``SecuredBroker``: a broker with SASL_SSL and ten thousand access control lists, and what its users send first."""

import ssl
from pathlib import Path
from typing import Final, NamedTuple

from oncelog.protocol.acl import AclOperation, AclPermissionType, AclResourceType, PatternType
from oncelog.protocol.framing import encode_request
from oncelog.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.command import Oncelog
from tests.processes import OncelogProcess, free_port
from tests.simulation.wire_client import WireClient

ORDINARY: Final = "ordinary"
"""The user beside whom the broker is abused, and the topic that it may write."""
ABUSER: Final = "abuser"
"""May read ``LARGE``, and describe topics with the prefix ``UNKNOWN``, of which there is none."""
LARGE: Final = "large"
UNKNOWN: Final = "unknown-"
_LISTS_AT_ONCE: Final = 500
_HANDSHAKE_VERSION: Final = 1
_AUTHENTICATE_VERSION: Final = 2


class Place(NamedTuple):
    """Where a client finds the broker."""

    port: int
    """Of the listener with SASL_SSL."""
    plain_port: int
    authority: Path
    """The certificate to trust."""


class SecuredBroker:
    """Listens without authentication, too: there everybody is a super user."""

    def __init__(self, directory: Path) -> None:
        certificates = directory / "certificates"
        Oncelog("")(f"tls init {certificates}")
        self.process = OncelogProcess(directory / "broker")
        self.place = Place(free_port(), self.process.port, certificates / "ca.pem")
        users = " ".join(f'user_{name}="{name}"' for name in (ORDINARY, ABUSER))
        self.process.settings = [
            f"listeners=PLAINTEXT://127.0.0.1:{self.place.plain_port},SASL_SSL://localhost:{self.place.port}",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL",
            f"ssl.keystore.location={certificates / 'broker-localhost.pem'}",
            "ssl.keystore.type=PEM",
            "sasl.enabled.mechanisms=PLAIN",
            f"sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required {users};",
            "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
            "super.users=User:ANONYMOUS",
        ]

    async def prepare(self, lists: int) -> None:
        """Make the topics and the lists, most of which are for other users and names."""
        client = await WireClient.connect(self.place.plain_port, response_within=60.0)
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in (ORDINARY, LARGE)]
        await client.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 5)
        creations = [
            _list(ORDINARY, AclOperation.WRITE, ORDINARY),
            _list(ABUSER, AclOperation.READ, LARGE),
            _list(ABUSER, AclOperation.DESCRIBE, UNKNOWN, PatternType.PREFIXED),
        ]
        creations += [
            _list(f"user-{n % 100}" if n % 2 else ABUSER, AclOperation.READ, f"topic-{n}", PatternType(3 + n % 4 // 2))
            for n in range(lists - len(creations))
        ]
        for first in range(0, len(creations), _LISTS_AT_ONCE):
            response = await client.call(CreateAclsRequest(creations=creations[first : first + _LISTS_AT_ONCE]), 2)
            assert not any(result.error_code for result in response.results), response
        client.close()


def _list(user: str, operation: AclOperation, topic: str, pattern: PatternType = PatternType.LITERAL) -> AclCreation:
    return AclCreation(
        resource_type=AclResourceType.TOPIC,
        resource_name=topic,
        resource_pattern_type=pattern,
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission_type=AclPermissionType.ALLOW,
    )


def trusting(authority: Path) -> ssl.SSLContext:
    """The context of a client that trusts the broker's certificate."""
    return ssl.create_default_context(cafile=str(authority))


def login(user: str, password: str) -> tuple[bytes, bytes]:
    """The two requests by which a user authenticates; each has a response."""
    token = f"\0{user}\0{password}".encode()
    return (
        b"".join(encode_request(1, user, SaslHandshakeRequest(mechanism="PLAIN"), _HANDSHAKE_VERSION)),
        b"".join(encode_request(2, user, SaslAuthenticateRequest(auth_bytes=token), _AUTHENTICATE_VERSION)),
    )

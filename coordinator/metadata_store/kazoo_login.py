"""``log_in``: a login to a server of ZooKeeper by SASL with DIGEST-MD5 (RFC 2831), which pure-sasl computes.

The server proves in its last message that it knows the password, too. kazoo's own login sends empty messages to a
server without SASL, as fast as it responds, until the session expires; this one knows how many messages there can be.
"""

from typing import Any, Final

from kazoo.exceptions import EXCEPTIONS, AuthFailedError, SessionClosedRequireSaslError
from kazoo.protocol.serialization import SASL
from puresasl import SASLError, SASLProtocolException
from puresasl.client import SASLClient

from oncelog.coordinator.metadata_store.zookeeper_security import ServerRefused
from oncelog.protocol.sasl.digest_login import DigestLogin

_MECHANISM: Final = "DIGEST-MD5"
_SERVICE: Final = "zookeeper"
_SERVER: Final = "zk-sasl-md5"
"""What every server of ZooKeeper calls itself in this mechanism."""
_JAAS: Final = "oncelog.zookeeper.sasl.jaas.config"
_NO_SASL: Final = (
    f"does not take the login of {_JAAS}: has it authProvider.1 with SASLAuthenticationProvider, and a JAAS file with "
    "a section Server?"
)
_NOT_PROVED: Final = (
    f"has not proved that it knows the password of {_JAAS}: see its JAAS file, and that this is the right server"
)
_MALFORMED: Final = (SASLError, SASLProtocolException, ValueError, TypeError, LookupError, AttributeError)
"""What pure-sasl raises for messages of a server that are not what it expects."""


def log_in(connection: Any, login: DigestLogin, seconds: float) -> None:
    """Authenticate both sides on a connection of kazoo's; each response may take so many seconds.

    Raises ``ServerRefused``, or what kazoo raises if the connection is lost or a response does not come.
    """
    client = SASLClient(
        _SERVER, service=_SERVICE, mechanism=_MECHANISM, username=login.username, password=login.password
    )
    greeting = _exchange(connection, 1, b"", login, seconds)
    if not greeting:
        raise ServerRefused(_NO_SASL)
    proof = _exchange(connection, 2, _respond(client, greeting), login, seconds)
    if not proof:
        raise ServerRefused(_wrong_password(login))
    _respond(client, proof)
    if not client.complete:
        raise ServerRefused(_NOT_PROVED)


def _respond(client: SASLClient, challenge: bytes) -> bytes:
    try:
        return client.process(challenge) or b""
    except _MALFORMED as error:
        raise ServerRefused(f"{_NOT_PROVED} ({type(error).__name__}: {error})") from None


def _exchange(connection: Any, xid: int, message: bytes, login: DigestLogin, seconds: float) -> bytes | None:
    """Send a message; return the server's."""
    connection._submit(SASL(message), seconds, xid)
    header, response, offset = connection._read_header(seconds)
    if header.err == AuthFailedError.code or (header.err == SessionClosedRequireSaslError.code and xid > 1):
        raise ServerRefused(_wrong_password(login))  # The second is the error of a server that requires a login.
    if header.err:
        name = EXCEPTIONS[header.err].__name__ if header.err in EXCEPTIONS else f"error {header.err}"
        raise ServerRefused(f"{_NO_SASL} ({name})")
    challenge: bytes | None = SASL.deserialize(response, offset)[0]
    return challenge


def _wrong_password(login: DigestLogin) -> str:
    return (
        f"does not accept user {login.username} with the password of {_JAAS}: see the section Server of its JAAS file"
    )

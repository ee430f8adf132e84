"""Whether a listener requires a login, by trial.

A broker closes the connection of a client without one, and says nothing, as it does when it stops. But a listener with
SASL responds to a SaslHandshake with its mechanisms, and no other one does.
"""

import ssl
from collections.abc import Sequence
from typing import Final

from oncelog.clients.connection import Address, connect
from oncelog.clients.errors import AuthenticationFailed, ClientError
from oncelog.clients.mechanism_names import shown_mechanisms
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

_NO_MECHANISM: Final = "oncelog-trial"
"""A listener with SASL refuses it, and lists the mechanisms that it has."""


async def required_mechanisms(
    address: Address, client_id: str, seconds: float, tls: ssl.SSLContext | None
) -> Sequence[str]:
    """Return the mechanisms of SASL that a listener has; none if it requires no login, or does not say."""
    try:
        connection = await connect(
            address, client_id=client_id, connect_seconds=seconds, request_seconds=seconds, tls=tls
        )
    except ClientError:
        return ()
    try:
        response = await connection.send(
            SaslHandshakeRequest(mechanism=_NO_MECHANISM), SaslHandshakeResponse, at_least=1
        )
    except ClientError:
        return ()
    finally:
        connection.close()
    return shown_mechanisms(response.mechanisms) if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM else ()


async def require_no_login(address: Address, client_id: str, seconds: float, tls: ssl.SSLContext | None) -> None:
    """Raise ``AuthenticationFailed`` if a listener requires a login."""
    mechanisms = await required_mechanisms(address, client_id, seconds, tls)
    if mechanisms:
        protocol = "SASL_PLAINTEXT" if tls is None else "SASL_SSL"
        raise AuthenticationFailed(
            f"{address}: its listener requires authentication ({' or '.join(mechanisms)})",
            advice=f"set security.protocol={protocol}, and how to authenticate",
        )

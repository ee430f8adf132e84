"""What a listener speaks that a client did not reach: with or without TLS, with or without a login.

A broker closes a connection of the wrong kind without a word, as it does with others, so that a client can only guess.
``oncelog doctor`` tries the other kinds.
"""

import asyncio
import ssl
from typing import Final

from oncelog.clients.connection import Address, connect
from oncelog.clients.errors import ClientError
from oncelog.clients.required_login import required_mechanisms
from oncelog.clients.security_config import SecurityConfig, uses_sasl
from oncelog.clients.tls import trusting_context
from oncelog.clients.tls_failures import NO_TLS_ADVICE, TLS_ADVICE, Failure, speaks_tls

_PLAIN: Final = "its listener speaks no TLS, and security.protocol is {}"
_SECURED: Final = "its listener speaks TLS, and security.protocol is {}"
_WITH_LOGIN: Final = "its listener wants a login ({}), and security.protocol is {}"
_LOGIN_ADVICE: Final = "set security.protocol={}, and sasl.mechanism, sasl.username and sasl.password of a user"


async def other_protocol(address: Address, security: SecurityConfig, seconds: float) -> Failure | None:
    """Return that a listener speaks TLS and the client does not, or the reverse; None if neither is so."""
    used = security.security_protocol
    if security.tls is None:
        return Failure(_SECURED.format(used), TLS_ADVICE) if await _responds_in_tls(address, seconds) else None
    return Failure(_PLAIN.format(used), NO_TLS_ADVICE) if await _responds_in_plain(address, seconds) else None


async def wanted_login(
    address: Address, security: SecurityConfig, tls: ssl.SSLContext | None, seconds: float
) -> Failure | None:
    """Return that a listener wants a login, and the client has none; None if that is not so."""
    if uses_sasl(security):
        return None
    mechanisms = await required_mechanisms(address, "oncelog-cli", seconds, tls)
    if not mechanisms:
        return None
    protocol = "SASL_PLAINTEXT" if tls is None else "SASL_SSL"
    reason = _WITH_LOGIN.format(" or ".join(mechanisms), security.security_protocol)
    return Failure(reason, _LOGIN_ADVICE.format(protocol))


async def _responds_in_tls(address: Address, seconds: float) -> bool:
    """Return whether a handshake succeeds, or is refused in TLS. It trusts every certificate, and sends nothing."""
    try:
        async with asyncio.timeout(seconds):
            transport, _ = await asyncio.get_running_loop().create_connection(
                asyncio.Protocol, address.host, address.port, ssl=trusting_context()
            )
    except ssl.SSLError as error:
        return speaks_tls(error)
    except (OSError, ValueError):
        return False
    transport.abort()
    return True


async def _responds_in_plain(address: Address, seconds: float) -> bool:
    try:
        connection = await connect(address, client_id="oncelog-cli", connect_seconds=seconds)
    except ClientError:
        return False
    connection.close()
    return True

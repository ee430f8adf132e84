"""What a listener speaks that a client did not reach: TLS, or Kafka's protocol without it.

A broker closes a connection of the wrong kind without a word, as it does with others, so that a client can only guess.
``oncelog doctor`` tries the other kind.
"""

import asyncio
import ssl
from typing import Final

from oncelog.clients.connection import Address, connect
from oncelog.clients.errors import ClientError
from oncelog.clients.security_config import SecurityConfig
from oncelog.clients.tls_failures import NO_TLS_ADVICE, TLS_ADVICE, Failure, speaks_tls

_PLAIN: Final = "its listener speaks no TLS, and security.protocol is {}"
_SECURED: Final = "its listener speaks TLS, and security.protocol is {}"


async def other_protocol(address: Address, security: SecurityConfig, seconds: float) -> Failure | None:
    """Return that a listener speaks TLS and the client does not, or the reverse; None if neither is so."""
    used = security.security_protocol
    if security.tls is None:
        return Failure(_SECURED.format(used), TLS_ADVICE) if await _responds_in_tls(address, seconds) else None
    return Failure(_PLAIN.format(used), NO_TLS_ADVICE) if await _responds_in_plain(address, seconds) else None


async def _responds_in_tls(address: Address, seconds: float) -> bool:
    """Return whether a handshake succeeds, or is refused in TLS. It trusts every certificate, and sends nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(seconds):
            transport, _ = await asyncio.get_running_loop().create_connection(
                asyncio.Protocol, address.host, address.port, ssl=context
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

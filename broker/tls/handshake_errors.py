"""Why a handshake has failed, in words that name the setting to change, the client's or the broker's."""

import ssl
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_HANDSHAKE: Final = 22
"""The first byte of a client that speaks TLS (RFC 8446, 5.1)."""
_NO_TLS: Final = "it does not speak TLS: the client's security.protocol must be SSL or SASL_SSL, as this listener's is"
_CAUSES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "UNSUPPORTED_PROTOCOL": "no version of TLS that it has is enabled here (ssl.enabled.protocols)",
        "NO_PROTOCOLS_AVAILABLE": "no version of TLS that it has is enabled here (ssl.enabled.protocols)",
        "VERSION_TOO_LOW": "no version of TLS that it has is enabled here (ssl.enabled.protocols)",
        "NO_SHARED_CIPHER": "it has no cipher suite that is enabled here (ssl.cipher.suites)",
        "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it has no certificate, and this listener requires one (ssl.client.auth)",
        "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the certificate of this broker (the client's ssl.truststore)",
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept the certificate of this broker (the client's "
        "ssl.truststore, or ssl.endpoint.identification.algorithm for another host name)",
        "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept the certificate of this broker (the client's "
        "ssl.truststore, or ssl.endpoint.identification.algorithm for another host name)",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the certificate of this broker has expired, says the client",
    }
)


def describe_failure(error: ssl.SSLError, first_byte: int) -> str:
    """Return why a client could not do the handshake, of which ``first_byte`` came first."""
    if first_byte != _HANDSHAKE:
        return _NO_TLS
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message} (this broker's ssl.truststore)"
    reason = error.reason or str(error)
    return f"TLS handshake failed: {_CAUSES.get(reason, reason)}"

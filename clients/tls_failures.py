"""What a failed TLS connection means, and what its user can set instead. Pure.

OpenSSL reports what this side found wrong with the broker's certificate, or the alert that the broker sent. The names
of settings are Kafka's.
"""

import ssl
from enum import Enum
from typing import Final, NamedTuple

_HOST_MISMATCH: Final = frozenset({62, 64})
"""OpenSSL's codes of a name and of an IP address that the certificate does not have."""
_OUT_OF_TIME: Final = frozenset({9, 10, 13, 14})
"""Not yet valid, expired, and dates that cannot be read."""

NO_TLS_ADVICE: Final = (
    "connect to the port of a listener with TLS, or set security.protocol to PLAINTEXT or SASL_PLAINTEXT"
)
TLS_ADVICE: Final = "set security.protocol=SSL or SASL_SSL"


class Advice(NamedTuple):
    """What the user can do about each failure, where the other side is ``peer``."""

    peer: str
    untrusted: str
    out_of_time: str
    other_host: str
    own_certificate: str
    version: str
    cipher: str
    no_tls: str


OF_BROKERS: Final = Advice(
    peer="the broker",
    untrusted="set ssl.truststore.location (or ssl.ca.location) to the certificate of the authority that signed it",
    out_of_time="renew the certificate at the broker, or set the clock of this machine",
    other_host=(
        "connect to a name that the certificate has, or advertise one, or issue a certificate for this name; an empty "
        "ssl.endpoint.identification.algorithm gives up this check"
    ),
    own_certificate=(
        "set ssl.keystore.location to a private key and a certificate that the broker's trust store accepts"
    ),
    version="see ssl.enabled.protocols, here and at the broker",
    cipher="see ssl.cipher.suites, here and at the broker; or the broker requires a client certificate",
    no_tls=NO_TLS_ADVICE,
)
HANDSHAKE_CAUSES: Final = (
    "is this a listener with TLS (security.protocol), does it require a client certificate (ssl.keystore.location), "
    "and is there a version of TLS that both sides speak (ssl.enabled.protocols)?"
)
"""Some brokers, ours among them, end a handshake that fails without saying why."""
CLIENT_CERTIFICATE_HINT: Final = (
    "does it require a client certificate (ssl.keystore.location), or authentication (security.protocol=SASL_SSL)?"
)

_ABOUT_CLIENT: Final = (
    "CERTIFICATE_REQUIRED",
    "BAD_CERTIFICATE",
    "UNSUPPORTED_CERTIFICATE",
    "CERTIFICATE_UNKNOWN",
    "CERTIFICATE_REVOKED",
    "CERTIFICATE_EXPIRED",
    "UNKNOWN_CA",
    "ACCESS_DENIED",
)
"""Ends of the alerts with which a broker refuses this client's certificate, or that there is none."""
_VERSIONS_DIFFER: Final = ("PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE")
_CIPHERS_DIFFER: Final = ("HANDSHAKE_FAILURE", "NO_CIPHERS_AVAILABLE", "INSUFFICIENT_SECURITY")
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")


class Complaint(Enum):
    """What is wrong with a certificate."""

    NAME = "it is for another name"
    TIME = "it is not valid now"
    AUTHORITY = "who issued it is not trusted"


class Failure(NamedTuple):
    """Why a connection could not be secured, and what to do about it."""

    reason: str
    advice: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.advice}" if self.advice else self.reason


def explain(error: ssl.SSLError, advice: Advice = OF_BROKERS) -> Failure:
    """Return what an error of OpenSSL means."""
    if isinstance(error, ssl.SSLCertVerificationError):
        said = error.verify_message.rstrip(".")
        return Failure(f"its certificate is not accepted: {said}", _on_certificate(complaint_of(error), advice))
    name = error.reason or ""
    words = name.replace("_", " ").lower() or str(error)
    if name.endswith(_ABOUT_CLIENT):
        reason = f"{advice.peer} got no certificate of this client that it accepts ({words})"
        return Failure(reason, advice.own_certificate)
    if name.endswith(_VERSIONS_DIFFER):
        return Failure(f"there is no version of TLS that both sides speak ({words})", advice.version)
    if name.endswith(_CIPHERS_DIFFER):
        return Failure(f"the TLS handshake failed ({words})", advice.cipher)
    if name.endswith(_NO_TLS):
        return Failure(f"it does not speak TLS ({words})", advice.no_tls)
    return Failure(f"the TLS handshake failed ({words})", "")


def speaks_tls(error: ssl.SSLError) -> bool:
    """Return whether the other side of a failed handshake has responded in TLS."""
    return isinstance(error, ssl.SSLCertVerificationError) or "ALERT" in (error.reason or "")


def complaint_of(error: ssl.SSLCertVerificationError) -> Complaint:
    """Return what OpenSSL does not accept about a certificate."""
    if error.verify_code in _HOST_MISMATCH:
        return Complaint.NAME
    return Complaint.TIME if error.verify_code in _OUT_OF_TIME else Complaint.AUTHORITY


def _on_certificate(complaint: Complaint, advice: Advice) -> str:
    if complaint is Complaint.NAME:
        return advice.other_host
    return advice.out_of_time if complaint is Complaint.TIME else advice.untrusted

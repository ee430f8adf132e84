"""The principal that a client's settings make it, in the words of the brokers' access control lists."""

import ssl
from typing import Final, NamedTuple

from oncelog.clients.security_config import SecurityConfig, uses_sasl
from oncelog.protocol.sasl.login import SaslLogin
from oncelog.protocol.tls.distinguished_name import subject_of

_USER: Final = "User:"
_MAPPED: Final = (
    "the name is the certificate's subject, of which ssl.principal.mapping.rules of the broker may make another"
)


class Principal(NamedTuple):
    """Who a client is to brokers."""

    name: str | None
    """``User:NAME``; None if this side does not know it."""
    description: str
    """For people, also of what is not known."""
    caveat: str = ""
    """Why the broker may have another name for the client."""


def principal_of(security: SecurityConfig) -> Principal:
    """Return who a client with these settings is. Raises ``ValueError`` for settings that cannot work."""
    if uses_sasl(security):
        login = security.login
        if not isinstance(login, SaslLogin):
            return Principal(None, "the user of the token")
        if login.is_token:
            return Principal(None, f"the owner of the delegation token {login.username}")
        return _user(login.username)
    certificate = None if security.tls is None else security.tls.own_certificate()
    if certificate is None:
        return _user("ANONYMOUS")
    return _user(subject_of(ssl.PEM_cert_to_DER_cert(certificate.decode())), _MAPPED)


def _user(name: str, caveat: str = "") -> Principal:
    return Principal(f"{_USER}{name}", f"{_USER}{name}", caveat)

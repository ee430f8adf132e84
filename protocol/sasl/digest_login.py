"""``DigestLogin``: who a broker is to ZooKeeper, in Java's syntax, as the section ``Client`` of a JAAS file has it.

::

    org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="pw";

ZooKeeper's SASL mechanism for users with passwords is DIGEST-MD5 (RFC 2831). Both sides would have to agree on the
encoding of other characters than those of ASCII, which they do not, so these are refused.
"""

from dataclasses import dataclass, field
from typing import Final

from oncelog.protocol.sasl.jaas import JaasError, parse_jaas

DIGEST_MODULE: Final = "org.apache.zookeeper.server.auth.DigestLoginModule"


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestLogin:
    """A user of ZooKeeper and its password, which the text of this does not contain."""

    username: str
    password: str = field(repr=False)


def parse_digest_login(text: str) -> DigestLogin:
    """Return the login that a text holds. Raises ``JaasError``, whose message contains no value."""
    options = parse_jaas(text, (DIGEST_MODULE,)).options
    for name in ("username", "password"):
        value = options.get(name)
        if not value:
            raise JaasError(f"lacks the option {name}")
        if not (value.isascii() and value.isprintable()):
            raise JaasError(f"has a {name} with other characters than printable ones of ASCII")
    return DigestLogin(username=options["username"], password=options["password"])

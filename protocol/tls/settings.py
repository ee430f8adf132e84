"""Kafka's ``ssl.enabled.protocols`` and ``ssl.cipher.suites``, in the words of OpenSSL. Pure.

Java's names of cipher suites are those of the standards (``TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256``), OpenSSL has its
own (``ECDHE-RSA-AES128-GCM-SHA256``). Both are accepted. Only suites of TLS 1.2 can be chosen: those of TLS 1.3 are all
strong, and Python cannot choose among them.
"""

from collections.abc import Iterable
from typing import Final

VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
"""The versions of TLS that are served, the oldest first."""

_STANDARD_NAMES: Final = {
    f"TLS_{exchange.replace('-', '_')}_WITH_{cipher}": f"{exchange}-{name}"
    for exchange in ("ECDHE-ECDSA", "ECDHE-RSA", "DHE-RSA")
    for cipher, name in (
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
    )
}
"""OpenSSL's names of the suites of TLS 1.2 with forward secrecy and authenticated encryption."""
_OF_TLS_1_3: Final = ("TLS_AES_", "TLS_CHACHA20_")


def parse_versions(names: Iterable[str]) -> tuple[str, ...]:
    """Return versions of TLS, the oldest first. Raises ``ValueError`` for others, and for none."""
    given = [name.strip() for name in names if name.strip()]
    unknown = [name for name in given if name not in VERSIONS]
    if unknown or not given:
        raise ValueError(f"has {', '.join(unknown) or 'no version'}: expected {' or '.join(VERSIONS)}, or both")
    return tuple(version for version in VERSIONS if version in given)


def parse_cipher_suites(names: Iterable[str]) -> tuple[str, ...]:
    """Return OpenSSL's names of cipher suites of TLS 1.2. Raises ``ValueError`` for those of TLS 1.3, and for none.

    A name that is in no table is returned as it is: OpenSSL may know it.
    """
    given = [name.strip() for name in names if name.strip()]
    if not given:
        raise ValueError(f"has no cipher suite: expected such as {next(iter(_STANDARD_NAMES))}")
    for name in given:
        if name.startswith(_OF_TLS_1_3):
            raise ValueError(f"has {name} of TLS 1.3, whose suites are all in use: name suites of TLS 1.2 only")
        if not name.replace("-", "").replace("_", "").isalnum():
            raise ValueError(f"has {name!r}, which is not the name of one cipher suite")
    return tuple(_STANDARD_NAMES.get(name, name) for name in given)

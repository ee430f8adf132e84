"""``OwnCertificate``: for whom a broker's own certificate is, and until when."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from oncelog.broker.config.settings import ConfigError
from oncelog.broker.config.tls_config import TlsListener

_SOON_MS: Final = 14 * 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCertificate:
    """What is compared when a certificate is replaced. Times are milliseconds since 1970."""

    subject: str
    alternatives: frozenset[str]
    not_after_ms: int
    not_after_text: str

    @classmethod
    def parse(cls, pem: bytes) -> "OwnCertificate":
        """Read a certificate in PEM."""
        from cryptography import x509  # Only a broker with TLS pays for it.

        certificate = x509.load_pem_x509_certificate(pem)
        try:
            extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
            names: Iterable[x509.GeneralName] = extension.value
        except x509.ExtensionNotFound:
            names = ()
        end = certificate.not_valid_after_utc
        return cls(
            subject=certificate.subject.rfc4514_string(),
            alternatives=frozenset(str(name) for name in names),
            not_after_ms=int(end.timestamp() * 1000),
            not_after_text=f"{end:%Y-%m-%d %H:%M} UTC",
        )

    def why_renew(self, now_ms: int) -> str:
        """Return why the certificate must be renewed; nothing while it need not."""
        if self.not_after_ms < now_ms:
            return f"the certificate has expired on {self.not_after_text}: clients do not accept it, renew it"
        if self.not_after_ms < now_ms + _SOON_MS:
            return f"the certificate expires on {self.not_after_text}: renew it before, no restart is needed"
        return ""


def why_not_replace(listener: TlsListener, former: OwnCertificate, new: OwnCertificate) -> None:
    """Raise ``ConfigError`` if a certificate may not take the place of the former one."""
    if new.subject != former.subject and not listener.may_change_name:
        raise ConfigError(
            f"the new certificate is for {new.subject}, the former for {former.subject}: set ssl.allow.dn.changes=true "
            "if that is meant"
        )
    missing = former.alternatives - new.alternatives
    if missing and not listener.may_lose_alternatives:
        raise ConfigError(
            f"the new certificate lacks alternative names of the former, {', '.join(sorted(missing))}: set "
            "ssl.allow.san.changes=true if that is meant"
        )

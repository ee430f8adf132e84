"""What a client needs to know for TLS, as values: whom it trusts, and who it is. Everything is PEM."""

import ssl
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """Hashable and picklable; ``make_context`` reads the files."""

    trusted_file: str | None = None
    """Certificates of authorities; without these two those that the system trusts."""
    trusted_text: str | None = None
    own_file: str | None = None
    """A private key and its certificates, for brokers that authenticate clients."""
    own_password: str | None = field(default=None, repr=False)
    checks_host: bool = True
    """Whether a broker's certificate has to be for the name by which it was called."""

    def make_context(self) -> ssl.SSLContext:
        """Load the files. Raises ``OSError`` (``ssl.SSLError`` among them) for files that are missing or not PEM."""
        context = ssl.create_default_context(cafile=self.trusted_file, cadata=self.trusted_text)
        context.check_hostname = self.checks_host
        if self.own_file is not None:
            context.load_cert_chain(self.own_file, password=self.own_password)
        return context

"""The settings of TLS and authentication, which all clients have: Kafka's, and librdkafka's names for some of them.

``security_problems`` says what is wrong with them before anything is read or connected. A setting that would have no
effect is a problem too: its author expects a protection that is not there.
"""

import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal
from urllib.parse import urlsplit

from oncelog.clients.setting_error import SettingError
from oncelog.clients.tls import TlsSettings
from oncelog.protocol.sasl.login import Login, OauthLogin, SaslLogin, parse_login, parse_oauth_login
from oncelog.protocol.sasl.mechanisms import SCRAM_MECHANISMS, SERVED
from oncelog.protocol.sasl.oauthbearer import OAUTHBEARER, why_no_extension
from oncelog.protocol.tls.settings import VERSIONS, parse_cipher_suites, parse_versions

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_TLS_PROTOCOLS: Final = ("SSL", "SASL_SSL")
_SASL_PROTOCOLS: Final = ("SASL_PLAINTEXT", "SASL_SSL")
_HOST_CHECK: Final = "ssl_endpoint_identification_algorithm"
_HOST_CHECKS: Final = ("https", "none", "")
_STORE_TYPES: Final = ("PEM", "PKCS12", "JKS")
_OAUTH: Final = "sasl_oauthbearer_"
_ENDPOINT: Final = "sasl_oauthbearer_token_endpoint_url"
_CLIENT_ID: Final = "sasl_oauthbearer_client_credentials_client_id"
_CLIENT_SECRET: Final = "sasl_oauthbearer_client_credentials_client_secret"
_OF_ENDPOINT: Final = (_ENDPOINT, _CLIENT_ID, _CLIENT_SECRET, "sasl_oauthbearer_scope")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig:
    """How a client connects to brokers and authenticates. Neither its text nor its errors contain a password."""

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """Protocol of the brokers' listener: the two with ``SSL`` encrypt by TLS, the two with ``SASL`` authenticate by a
    user and a password."""
    ssl_truststore_location: str | None = None
    """File with the certificates of the authorities that sign the brokers' certificates, PEM or PKCS#12. Without it,
    those that the system trusts."""
    ssl_truststore_password: str | None = field(default=None, repr=False)
    """The password of ``ssl_truststore_location``, if that is PKCS#12."""
    ssl_truststore_certificates: str | None = None
    """The same certificates as text in PEM, in place of a file."""
    ssl_truststore_type: str | None = None
    """``PEM`` or ``PKCS12``. It need not be set: the content of the file says it. ``JKS`` is not read."""
    ssl_keystore_location: str | None = None
    """File with the private key of this client and its certificates, PEM or PKCS#12, for brokers that authenticate
    clients by TLS."""
    ssl_keystore_password: str | None = field(default=None, repr=False)
    """The password of ``ssl_keystore_location``, if that is PKCS#12."""
    ssl_keystore_key: str | None = field(default=None, repr=False)
    """The private key as text in PEM, in place of a file."""
    ssl_keystore_certificate_chain: str | None = None
    """The certificates of ``ssl_keystore_key`` as text in PEM, its own first."""
    ssl_keystore_type: str | None = None
    """``PEM`` or ``PKCS12``, as for the trust store."""
    ssl_key_password: str | None = field(default=None, repr=False)
    """The password of the private key, if that is encrypted."""
    ssl_endpoint_identification_algorithm: Literal["https", "none", ""] = "https"
    """``https``: a broker's certificate has to be for the name by which it was called. ``none``, or an empty text:
    that is not compared, and every owner of a certificate of a trusted authority can pass for a broker."""
    ssl_enabled_protocols: tuple[str, ...] | None = None
    """Versions of TLS: ``TLSv1.2``, ``TLSv1.3``. By default both."""
    ssl_cipher_suites: tuple[str, ...] | None = None
    """Cipher suites of TLS 1.2, by their standard names or those of OpenSSL. Those of TLS 1.3 are always in use."""
    sasl_mechanism: str | None = None
    """``SCRAM-SHA-512``, ``SCRAM-SHA-256``, ``PLAIN``, which sends the password itself, or ``OAUTHBEARER``."""
    sasl_jaas_config: str | None = field(default=None, repr=False)
    """User and password in Java's form: the mechanism's login module with the options username and password, and
    ``tokenauth="true"`` if these are a delegation token's id and hmac; for ``OAUTHBEARER`` clientId, clientSecret and
    scope."""
    sasl_username: str | None = None
    """The user, in place of ``sasl_jaas_config``."""
    sasl_password: str | None = field(default=None, repr=False)
    """The user's password, in place of ``sasl_jaas_config``."""
    sasl_oauthbearer_token_endpoint_url: str | None = None
    """For ``OAUTHBEARER``: address of the issuer's token endpoint, ``https:`` or ``http:``, or of a file with a token,
    ``file:``, which is read for each authentication."""
    sasl_oauthbearer_client_credentials_client_id: str | None = None
    """The client id at the token endpoint."""
    sasl_oauthbearer_client_credentials_client_secret: str | None = field(default=None, repr=False)
    """The client secret at the token endpoint."""
    sasl_oauthbearer_scope: str | None = None
    """The scope to request from the token endpoint."""
    sasl_oauthbearer_extensions: str | None = None
    """What the client sends with its token, if the broker requires it: ``name=value,name=value``."""
    sasl_oauthbearer_token_provider: Callable[[], str | Awaitable[str]] | None = field(default=None, repr=False)
    """A function that returns a valid token, in place of a token endpoint. It is called for each authentication: in a
    thread, or in the event loop if it is a coroutine function."""
    sasl_tokenauth: bool = False
    """Whether ``sasl_username`` is the id of a delegation token, and ``sasl_password`` its hmac in base64."""

    @property
    def login(self) -> Login | None:
        """With what to authenticate; None if the client does not. Raises ``ValueError`` that names the setting."""
        require_security(self)
        return any_login(self) if uses_sasl(self) else None

    @property
    def tls(self) -> TlsSettings | None:
        """How to speak TLS; None if the client does not. Raises ``ValueError`` that names the setting."""
        require_security(self)
        if not uses_tls(self):
            return None
        return TlsSettings(
            trusted_file=self.ssl_truststore_location,
            trusted_text=self.ssl_truststore_certificates,
            trusted_password=self.ssl_truststore_password,
            trusted_type=self.ssl_truststore_type,
            own_file=self.ssl_keystore_location,
            own_key=self.ssl_keystore_key,
            own_certificates=self.ssl_keystore_certificate_chain,
            own_store_password=self.ssl_keystore_password,
            own_password=self.ssl_key_password,
            own_type=self.ssl_keystore_type,
            checks_host=self.ssl_endpoint_identification_algorithm == "https",
            versions=VERSIONS if self.ssl_enabled_protocols is None else parse_versions(self.ssl_enabled_protocols),
            cipher_suites=() if self.ssl_cipher_suites is None else parse_cipher_suites(self.ssl_cipher_suites),
        )

    def make_tls_context(self) -> ssl.SSLContext | None:
        """Read the files of TLS; None if the client does not speak it. Raises ``ValueError`` that names the setting."""
        tls = self.tls
        return None if tls is None else tls.make_context()


OF_PROGRAMS: Final = frozenset({"sasl_oauthbearer_token_provider"})
"""Settings that only a program can give."""
SECURITY_PROPERTIES: Final[Mapping[str, str]] = {
    **{name.replace("_", "."): name for name in SecurityConfig.__dataclass_fields__ if name not in OF_PROGRAMS},
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.oauthbearer.client.id": "sasl_oauthbearer_client_credentials_client_id",
    "sasl.oauthbearer.client.secret": "sasl_oauthbearer_client_credentials_client_secret",
    "ssl.ca.location": "ssl_truststore_location",
    "ssl.ca.pem": "ssl_truststore_certificates",
    "ssl.key.pem": "ssl_keystore_key",
    "ssl.certificate.pem": "ssl_keystore_certificate_chain",
}
"""Names of the settings in a file of properties: Kafka's, and librdkafka's."""
INLINE_FILES: Final[Mapping[str, str]] = {
    "ssl.key.location": "ssl_keystore_key",
    "ssl.certificate.location": "ssl_keystore_certificate_chain",
}
"""librdkafka's names of files whose content is the value of a setting."""
SEVERAL: Final = frozenset({"ssl_enabled_protocols", "ssl_cipher_suites"})
"""Settings whose values in a file of properties are separated by commas."""
SWITCHES: Final = frozenset({"sasl_tokenauth"})
"""Settings that are true or false."""
MAY_BE_EMPTY: Final = frozenset({"ssl_endpoint_identification_algorithm"})
"""Settings for which an empty value in a file of properties means something."""


def uses_tls(config: SecurityConfig) -> bool:
    """Return whether connections are encrypted."""
    return config.security_protocol in _TLS_PROTOCOLS


def uses_sasl(config: SecurityConfig) -> bool:
    """Return whether the client authenticates by SASL."""
    return config.security_protocol in _SASL_PROTOCOLS


def require_security(config: SecurityConfig) -> None:
    """Raise ``SettingError`` for the first problem, if there is one."""
    for problem in security_problems(config):
        raise problem


def security_problems(config: SecurityConfig) -> Iterator[SettingError]:
    """Yield all problems. None of them contains a password."""
    if config.security_protocol not in PROTOCOLS:
        expected = f"must be one of {', '.join(PROTOCOLS)}, not {config.security_protocol}"
        yield SettingError("security_protocol", expected)
        return
    yield from _tls_problems(config) if uses_tls(config) else _useless(config, "ssl_", _TLS_PROTOCOLS)
    yield from _sasl_problems(config) if uses_sasl(config) else _useless(config, "sasl_", _SASL_PROTOCOLS)


def _useless(config: SecurityConfig, prefix: str, protocols: tuple[str, str]) -> Iterator[SettingError]:
    """Yield the settings that are not at their defaults, though the protocol does not use them."""
    for name, known in config.__dataclass_fields__.items():
        if name.startswith(prefix) and getattr(config, name) != known.default:
            yield SettingError(name, "has no effect without security_protocol={!r} or {!r}".format(*protocols))


def _given(config: SecurityConfig, *names: str) -> list[str]:
    return [name for name in names if getattr(config, name) is not None]


# TLS


def _tls_problems(config: SecurityConfig) -> Iterator[SettingError]:
    yield from _store_problems(config, "ssl_truststore", ("ssl_truststore_certificates",))
    yield from _store_problems(config, "ssl_keystore", ("ssl_keystore_key", "ssl_keystore_certificate_chain"))
    if config.ssl_key_password is not None and not _given(config, "ssl_keystore_location", "ssl_keystore_key"):
        yield SettingError("ssl_key_password", "has no effect without ssl_keystore_location or ssl_keystore_key")
    if config.ssl_endpoint_identification_algorithm not in _HOST_CHECKS:
        yield SettingError(_HOST_CHECK, f"must be https or none, not {config.ssl_endpoint_identification_algorithm}")
    for name, parse in (("ssl_enabled_protocols", parse_versions), ("ssl_cipher_suites", parse_cipher_suites)):
        try:
            _ = parse(getattr(config, name) or ()) if _given(config, name) else None
        except ValueError as error:
            yield SettingError(name, str(error))


def _store_problems(config: SecurityConfig, store: str, in_text: tuple[str, ...]) -> Iterator[SettingError]:
    """Yield the problems of a store that is a file, or PEM in the settings ``in_text``, all of them or none."""
    location, password, kind = f"{store}_location", f"{store}_password", f"{store}_type"
    texts = _given(config, *in_text)
    if texts and _given(config, location):
        yield SettingError(location, f"is given, and {texts[0]} too: leave one out")
    for name in in_text:
        if texts and name not in texts:
            yield SettingError(name, f"is missing: {texts[0]} is given")
    if _given(config, password) and not _given(config, location):
        yield SettingError(password, f"has no effect without {location}")
    value = getattr(config, kind)
    if value is None:
        return
    if value.upper() not in _STORE_TYPES:
        yield SettingError(kind, f"must be PEM or PKCS12, not {value}")
    elif texts and value.upper() != "PEM":
        yield SettingError(kind, f"must be PEM for {texts[0]}, not {value}")
    elif not texts and not _given(config, location):
        yield SettingError(kind, f"has no effect without {location}")


# SASL


def _sasl_problems(config: SecurityConfig) -> Iterator[SettingError]:
    try:
        any_login(config)
    except SettingError as problem:
        yield problem


def any_login(config: SecurityConfig) -> Login:
    """Return with what to authenticate. Raises ``SettingError``."""
    mechanism = config.sasl_mechanism
    if mechanism not in SERVED:
        raise SettingError("sasl_mechanism", f"must be one of {', '.join(SERVED)}, not {mechanism}")
    if mechanism == OAUTHBEARER:
        return oauth_login(config)
    for name in config.__dataclass_fields__:
        if name.startswith(_OAUTH) and _given(config, name):
            raise SettingError(name, f"has no effect without sasl_mechanism={OAUTHBEARER!r}")
    return _password_login(config, mechanism)


def _password_login(config: SecurityConfig, mechanism: str) -> SaslLogin:
    username, password = config.sasl_username, config.sasl_password
    if config.sasl_jaas_config is not None:
        if _given(config, "sasl_username", "sasl_password") or config.sasl_tokenauth:
            others = "sasl_username, sasl_password or sasl_tokenauth"
            raise SettingError("sasl_jaas_config", f"is given, and {others} too: leave one out")
        try:
            return parse_login(mechanism, config.sasl_jaas_config)
        except ValueError as error:  # The text has no value of the setting.
            raise SettingError("sasl_jaas_config", str(error)) from None
    for name, value in (("sasl_username", username), ("sasl_password", password)):
        if not value:
            needed = f"is missing for security_protocol={config.security_protocol!r}: it, or sasl_jaas_config"
            raise SettingError(name, needed)
        if "\0" in value:
            raise SettingError(name, "contains NUL")
    assert username is not None
    assert password is not None
    if config.sasl_tokenauth and mechanism not in SCRAM_MECHANISMS:
        raise SettingError("sasl_tokenauth", f"needs sasl_mechanism to be one of {', '.join(SCRAM_MECHANISMS)}")
    return SaslLogin(mechanism=mechanism, username=username, password=password, is_token=config.sasl_tokenauth)


# OAUTHBEARER


def oauth_login(config: SecurityConfig) -> OauthLogin:
    """Return where the tokens come from. Raises ``SettingError``."""
    for name in ("sasl_username", "sasl_password"):
        if _given(config, name):
            raise SettingError(name, f"has no effect with sasl_mechanism={OAUTHBEARER!r}")
    provider, url = config.sasl_oauthbearer_token_provider, config.sasl_oauthbearer_token_endpoint_url
    extensions = tuple(_extensions(config.sasl_oauthbearer_extensions or ""))
    if provider is not None:
        for name in (*_OF_ENDPOINT, "sasl_jaas_config"):
            if _given(config, name):
                raise SettingError(name, "is given, and sasl_oauthbearer_token_provider too: leave one out")
        return OauthLogin(token_provider=provider, extensions=extensions)
    if not url:
        raise SettingError(_ENDPOINT, f"is missing for sasl_mechanism={OAUTHBEARER!r}")
    is_file = _names_file(url)
    try:
        login = parse_oauth_login(
            config.sasl_jaas_config or "",
            token_endpoint_url=url,
            client_id=config.sasl_oauthbearer_client_credentials_client_id,
            client_secret=config.sasl_oauthbearer_client_credentials_client_secret,
            scope=config.sasl_oauthbearer_scope,
        )
    except ValueError as error:  # The text has no value of the setting.
        raise SettingError("sasl_jaas_config", str(error)) from None
    for name, value in ((_CLIENT_ID, login.client_id), (_CLIENT_SECRET, login.client_secret)):
        if not value and not is_file:
            raise SettingError(name, f"is missing for {_ENDPOINT}")
    return replace(login, extensions=(*login.extensions, *extensions))


def _names_file(url: str) -> bool:
    """Return whether an address is that of a file. Raises ``SettingError`` for one that is neither file nor HTTP."""
    try:
        parts = urlsplit(url)
        is_http = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise SettingError(_ENDPOINT, "is no address: expected https://, http:// or file:///") from None
    if parts.username or parts.password:
        raise SettingError(_ENDPOINT, f"has a user or a password: set {_CLIENT_ID} and {_CLIENT_SECRET}")
    if is_http:
        return False
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise SettingError(_ENDPOINT, f"must be an address with https://, http:// or file:///, not {url}")
    return True


def _extensions(text: str) -> Iterator[tuple[str, str]]:
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = entry.partition("=")
        why = why_no_extension(name, value) if equals else "an entry is without ="
        if why:
            raise SettingError("sasl_oauthbearer_extensions", f"is not valid: {why}")
        yield name, value

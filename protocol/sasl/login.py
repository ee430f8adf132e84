"""``Login``: who a client is, as ``sasl.mechanism`` and ``sasl.jaas.config`` say it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from oncelog.protocol.sasl.jaas import JaasError, LoginModule, parse_jaas
from oncelog.protocol.sasl.mechanisms import LOGIN_MODULES, SCRAM_MECHANISMS, WITH_PASSWORD
from oncelog.protocol.sasl.oauthbearer import OAUTHBEARER, why_no_extension

TokenProvider: TypeAlias = Callable[[], str | Awaitable[str]]
"""Returns a token of a program, which is valid now."""
_EXTENSION: Final = "extension_"
TOKEN_OPTION: Final = "tokenauth"
"""The option of SCRAM's login module that makes username and password those of a delegation token."""
_TRUTHS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslLogin:
    """The mechanism, name and password with which a client authenticates. Its text does not contain the password.

    With a delegation token the name is the token's id, and the password its hmac in base64.
    """

    mechanism: str
    username: str
    password: str = field(repr=False)
    is_token: bool = False

    def __post_init__(self) -> None:
        if self.mechanism not in WITH_PASSWORD:
            raise ValueError(f"SASL mechanism {self.mechanism} is not supported: expected {', '.join(WITH_PASSWORD)}")
        for name in ("username", "password"):
            value = getattr(self, name)
            if not value or "\0" in value:
                raise ValueError(f"the {name} of a SASL login is empty or contains NUL")
        if self.is_token and self.mechanism not in SCRAM_MECHANISMS:
            raise ValueError(f"a delegation token needs one of {', '.join(SCRAM_MECHANISMS)}, not {self.mechanism}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OauthLogin:
    """Where a client gets its token of OAUTHBEARER from. Its text contains neither a secret nor a token."""

    token_endpoint_url: str = ""
    """Of the issuer, or of a file with a token."""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    extensions: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Names and values that the client sends with each token."""
    token_provider: TokenProvider | None = None
    """Returns the token, in place of an endpoint."""

    @property
    def mechanism(self) -> str:
        return OAUTHBEARER


Login: TypeAlias = SaslLogin | OauthLogin


def module_for(mechanism: str, text: str) -> LoginModule:
    """Return the login module of a mechanism from its text. Raises ``JaasError``, also for another's module."""
    module = parse_jaas(text)
    if module.name != LOGIN_MODULES[mechanism]:
        raise JaasError(f"names another login module than that of {mechanism}: expected {LOGIN_MODULES[mechanism]}")
    return module


def parse_login(mechanism: str, text: str) -> SaslLogin:
    """Return the login that a ``sasl.jaas.config`` holds. Raises ``ValueError`` with the sentence for the operator."""
    if mechanism not in WITH_PASSWORD:
        raise JaasError(
            f"is for SASL mechanism {mechanism}, which is not supported: expected {', '.join(WITH_PASSWORD)}"
        )
    options = module_for(mechanism, text).options
    for name in ("username", "password"):
        if not options.get(name):
            raise JaasError(f"lacks the option {name}")
    is_token = _TRUTHS.get(options.get(TOKEN_OPTION, "false").lower())
    if is_token is None:
        raise JaasError(f"has an option {TOKEN_OPTION} that is neither true nor false")
    if is_token and mechanism not in SCRAM_MECHANISMS:
        raise JaasError(f"has the option {TOKEN_OPTION}, for which one of {', '.join(SCRAM_MECHANISMS)} is needed")
    return SaslLogin(mechanism=mechanism, username=options["username"], password=options["password"], is_token=is_token)


def parse_oauth_login(
    jaas: str,
    *,
    token_endpoint_url: str,
    client_id: str | None = None,
    client_secret: str | None = None,
    scope: str | None = None,
) -> OauthLogin:
    """Return the login of OAUTHBEARER; its settings win over the options ``clientId``, ``clientSecret`` and ``scope``.

    ``jaas`` is the text of ``sasl.jaas.config``, empty without one. Raises ``JaasError``.
    """
    options = module_for(OAUTHBEARER, jaas).options if jaas else {}
    extensions = []
    for name, value in options.items():
        if name.startswith(_EXTENSION):
            why = why_no_extension(name.removeprefix(_EXTENSION), value)
            if why:
                raise JaasError(f"has an extension_ that cannot be sent: {why}")
            extensions.append((name.removeprefix(_EXTENSION), value))
    return OauthLogin(
        token_endpoint_url=token_endpoint_url,
        client_id=client_id or options.get("clientId", ""),
        client_secret=client_secret or options.get("clientSecret", ""),
        scope=scope or options.get("scope", ""),
        extensions=tuple(extensions),
    )

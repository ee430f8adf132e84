"""``SaslLogin``: who a client is, as ``sasl.mechanism`` and ``sasl.jaas.config`` say it."""

from dataclasses import dataclass, field
from typing import Final

from oncelog.protocol.sasl.jaas import JaasError, LoginModule, parse_jaas
from oncelog.protocol.sasl.mechanisms import LOGIN_MODULES, SCRAM_MECHANISMS, SERVED

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
        if self.mechanism not in SERVED:
            raise ValueError(f"SASL mechanism {self.mechanism} is not supported: expected {', '.join(SERVED)}")
        for name in ("username", "password"):
            value = getattr(self, name)
            if not value or "\0" in value:
                raise ValueError(f"the {name} of a SASL login is empty or contains NUL")
        if self.is_token and self.mechanism not in SCRAM_MECHANISMS:
            raise ValueError(f"a delegation token needs one of {', '.join(SCRAM_MECHANISMS)}, not {self.mechanism}")


def module_for(mechanism: str, text: str) -> LoginModule:
    """Return the login module of a mechanism from its text. Raises ``JaasError``, also for another's module."""
    module = parse_jaas(text)
    if module.name != LOGIN_MODULES[mechanism]:
        raise JaasError(f"names another login module than that of {mechanism}: expected {LOGIN_MODULES[mechanism]}")
    return module


def parse_login(mechanism: str, text: str) -> SaslLogin:
    """Return the login that a ``sasl.jaas.config`` holds. Raises ``ValueError`` with the sentence for the operator."""
    if mechanism not in SERVED:
        raise JaasError(f"is for SASL mechanism {mechanism}, which is not supported: expected {', '.join(SERVED)}")
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

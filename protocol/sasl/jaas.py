"""The login of a SASL client or server in Java's syntax, as ``sasl.jaas.config`` has it.

::

    org.apache.kafka.common.security.plain.PlainLoginModule required username="b" password="pw" user_alice="pw";

A value is one entry: the class of a login module, a control flag, options, and a semicolon. Java loads whatever class
is named, and modules of others than Kafka have fetched code from the network (CVE-2023-25194). Here a module is only a
name: those that the caller expects are known, everything else is refused. Error messages never contain a value.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

_SECURITY: Final = "org.apache.kafka.common.security"
PLAIN_MODULE: Final = f"{_SECURITY}.plain.PlainLoginModule"
SCRAM_MODULE: Final = f"{_SECURITY}.scram.ScramLoginModule"
OAUTHBEARER_MODULE: Final = f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule"
KERBEROS_MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
KAFKAS_MODULES: Final = (PLAIN_MODULE, SCRAM_MODULE, OAUTHBEARER_MODULE, KERBEROS_MODULE)
_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_LONGEST: Final = 1 << 20
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<quoted>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')|(?P<word>[^\s=;\"']+)|(?P<sign>[=;]))", re.DOTALL
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


class JaasError(ValueError):
    """A text that is no login of a module that is known. The message is for the operator, and contains no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginModule:
    """One login module with its options."""

    name: str
    """Of the class."""
    options: Mapping[str, str] = field(repr=False)


class _Token(NamedTuple):
    text: str
    is_sign: bool = False


def parse_jaas(text: str, modules: Sequence[str] = KAFKAS_MODULES) -> LoginModule:
    """Return the one login module that a text names, which is one of ``modules``. Raises ``JaasError``."""
    if len(text) > _LONGEST:
        raise JaasError(f"is longer than {_LONGEST} characters")
    tokens = _tokens(text)
    name = _word(tokens, "the class of a login module")
    if name not in modules:
        expected = ("one of " if len(modules) > 1 else "") + ", ".join(modules)
        raise JaasError(f"names a login module that is not known: expected {expected}")
    if _word(tokens, "a control flag").lower() not in _FLAGS:
        raise JaasError("has no control flag behind the login module: expected required")
    options = dict(_options(tokens))
    if next(tokens, None) is not None:
        raise JaasError("has more than one login module: expected one entry that ends in a semicolon")
    return LoginModule(name=name, options=options)


def _options(tokens: Iterator[_Token]) -> Iterator[tuple[str, str]]:
    for token in tokens:
        if token == _Token(";", is_sign=True):
            return
        if token.is_sign:
            raise JaasError("has a = without the name of an option before it")
        if next(tokens, None) != _Token("=", is_sign=True):
            raise JaasError('has an option without a value: expected name="value", and a semicolon at the end')
        yield token.text, _word(tokens, "the value of an option")
    raise JaasError("does not end in a semicolon")


def _word(tokens: Iterator[_Token], what: str) -> str:
    token = next(tokens, None)
    if token is None or token.is_sign:
        raise JaasError(f'lacks {what}: expected MODULE required name="value" …;')
    return token.text


def _tokens(text: str) -> Iterator[_Token]:
    text = text.strip()
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise JaasError("has a quotation mark without its partner")
        position = match.end()
        if match["quoted"] is not None:
            yield _Token(_ESCAPE.sub(r"\1", match["quoted"][1:-1]))
        elif match["word"] is not None:
            yield _Token(match["word"])
        else:
            yield _Token(match["sign"], is_sign=True)

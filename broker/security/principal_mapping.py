"""``PrincipalMapping``: which user the subject of a certificate is (``ssl.principal.mapping.rules``).

The rules have Kafka's form: ``RULE:pattern/replacement/[LU]`` and ``DEFAULT``, with commas between them. The first
whose pattern matches the whole subject counts. ``$1`` in a replacement is what the first group matched, ``L`` and ``U``
make lower or upper case of the result, ``/`` in either part is written ``\\/``. A subject that no rule matches has no
user, and its connection is refused. Patterns are RE2's: in them no subject takes long.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from oncelog.broker.config.settings import ConfigError

_DEFAULT: Final = "DEFAULT"
_RULE: Final = re.compile(r"RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?)")
_BETWEEN: Final = re.compile(r"\s*(?:[,\n]\s*|$)")
_REFERENCE: Final = re.compile(r"\\(?P<literal>.)|\$(?P<group>\d+)", re.DOTALL)
_KEY: Final = "ssl.principal.mapping.rules"


class PrincipalMapping:
    """The rules of one listener."""

    def __init__(self, text: str) -> None:
        """Parse the rules. Raises ``ConfigError``."""
        self._rules = [_parse_rule(rule) for rule in _split(text.strip() or _DEFAULT)]

    def user_of(self, subject: str) -> str | None:
        """Return the user, without its type; None if no rule matches."""
        return next((user for rule in self._rules if (user := rule(subject)) is not None), None)


def _split(text: str) -> list[re.Match[str] | None]:
    """Return the rules; None is the default one."""
    found: list[re.Match[str] | None] = []
    position = 0
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None and not text.startswith(_DEFAULT, position):
            raise ConfigError(
                f"{_KEY} is not valid at {text[position:]!r}: expected RULE:pattern/replacement/, with L or U behind "
                f"it, or {_DEFAULT}"
            )
        found.append(match)
        end = position + len(_DEFAULT) if match is None else match.end()
        between = _BETWEEN.match(text, end)
        if between is None:
            raise ConfigError(f"{_KEY} is not valid at {text[end:]!r}: expected a comma between rules")
        position = between.end()
    return found


def _parse_rule(match: re.Match[str] | None) -> Callable[[str], str | None]:
    if match is None:
        return str
    import re2  # Only rules pay for it.

    text = match["pattern"].replace("\\/", "/")
    options = re2.Options()
    options.log_errors = False
    try:
        pattern = re2.compile(text, options)
    except re2.error as error:
        raise ConfigError(f"{_KEY} has a pattern that RE2 does not read, {text!r}: {error}") from None
    replacement = match["replacement"]
    groups = [int(each["group"]) for each in _REFERENCE.finditer(replacement) if each["group"]]
    if any(group > pattern.groups for group in groups):
        raise ConfigError(f"{_KEY} refers to a group that {text!r} does not have: {replacement!r}")
    change: Callable[[str], str] = {"L": str.lower, "U": str.upper}.get(match["case"], str)

    def user_of(subject: str) -> str | None:
        found: Any = pattern.fullmatch(subject)
        if found is None:
            return None

        def expand(reference: re.Match[str]) -> str:
            return reference["literal"] or found[int(reference["group"])] or ""

        return change(_REFERENCE.sub(expand, replacement))

    return user_of

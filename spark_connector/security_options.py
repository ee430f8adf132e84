"""``kafka.security.protocol``, ``kafka.ssl.*`` and ``kafka.sasl.*``: the options of TLS and authentication. Pure.

They are the settings of Kafka's clients, and what is wrong with them is said in the names of the options. No text
contains a value that may be a secret.
"""

from collections.abc import Callable
from typing import Any, Final

from oncelog.clients.security_config import MAY_BE_EMPTY, OF_PROGRAMS, SEVERAL, SecurityConfig, security_problems
from oncelog.clients.setting_error import SettingError

_KAFKA: Final = "kafka."
_FIELDS: Final = {
    f"{_KAFKA}{name.replace('_', '.')}": name
    for name in SecurityConfig.__dataclass_fields__
    if name not in ("sasl_username", "sasl_password", "sasl_tokenauth", "sasl_oauthbearer_extensions")  # Not of Kafka.
    and name not in OF_PROGRAMS
}
SECURITY_OPTIONS: Final = tuple(_FIELDS)
SECRET_OPTIONS: Final = frozenset(
    name.lower() for name, field in _FIELDS.items() if not SecurityConfig.__dataclass_fields__[field].repr
)
"""Options whose values are shown nowhere, in lower case."""


def read_security(value_of: Callable[[str], str | None]) -> tuple[SecurityConfig, list[str]]:
    """Return the settings and what is wrong with them. ``value_of`` returns an option's value, None without one."""
    fields: dict[str, Any] = {}
    for option, name in _FIELDS.items():
        value = value_of(option)
        if value or (value is not None and name in MAY_BE_EMPTY):
            fields[name] = tuple(each.strip() for each in value.split(",")) if name in SEVERAL else value
    if "security_protocol" in fields:
        fields["security_protocol"] = fields["security_protocol"].upper()
    config = SecurityConfig(**fields)
    return config, [in_words_of_spark(problem) for problem in security_problems(config)]


def in_words_of_spark(problem: SettingError) -> str:
    """Return the text of a problem with the names of the options."""
    text = problem.spelt(lambda name: f"{_KAFKA}{name.replace('_', '.')}")
    option, _, rest = text.partition(" ")
    return f"{option}: {rest}"

"""Reading options: each with its type and bounds, and every complaint collected before the first is raised. Pure.

Spark passes the options of ``.option(…)`` as text, with names in lower case. Each method of ``OptionReader`` returns
one option's value; if it is not valid, the method notes the problem and returns the default, so that reading goes on.
``finish`` then raises ``OptionsInvalid`` with all problems, one line each, with the name as documented and the values
that it may have. An option that was not read by then is a problem too: a misspelt option that is silently ignored loses
data.

Options that begin with ``kafka.`` are settings of the client, by Kafka's names. ``client_settings`` reads those that
reading and writing share; a setting that this client does not support is refused by name rather than ignored.
"""

from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Final, TypeVar

from oncelog.clients.bootstrap import parse_bootstrap
from oncelog.spark_connector.plain_errors import UserError
from oncelog.spark_connector.process_client import DEFAULT_REACH_SECONDS, ClientSettings
from oncelog.spark_connector.security_options import SECURITY_OPTIONS, read_security

T = TypeVar("T")

MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1
_KAFKA: Final = "kafka."
_BOOTSTRAP: Final = "kafka.bootstrap.servers"

SPARKS_OWN: Final = frozenset(
    {"checkpointlocation", "queryname", "path", "outputmode", "serialization.format", "provider", "owner"}
)
"""Options that Spark itself, or its catalog, adds."""
SECOND_COPY: Final = "option."
"""The prefix of the second copies of options that the catalog lists twice."""

WITHOUT_EFFECT: Final = frozenset(
    {
        "kafka.connections.max.idle.ms",
        "kafka.receive.buffer.bytes",
        "kafka.reconnect.backoff.max.ms",
        "kafka.reconnect.backoff.ms",
        "kafka.retry.backoff.max.ms",
        "kafka.retry.backoff.ms",
        "kafka.send.buffer.bytes",
        "kafka.client.dns.lookup",
        "kafka.enable.metrics.push",
        "kafka.metric.reporters",
        "kafka.metrics.num.samples",
        "kafka.metrics.recording.level",
        "kafka.metrics.sample.window.ms",
    }
)
"""Settings of Kafka's clients that are accepted without effect: none of them changes what is read or written."""


class OptionsInvalid(UserError):
    """Options are not valid: ``problems`` has a line for each."""

    def __init__(self, problems: Collection[str]) -> None:
        self.problems = tuple(problems)
        count = "1 option is" if len(self.problems) == 1 else f"{len(self.problems)} options are"
        super().__init__(
            f"{count} not valid for format oncelog:\n" + "\n".join(f"  - {each}" for each in self.problems)
        )

    def __reduce__(self) -> tuple[type["OptionsInvalid"], tuple[tuple[str, ...]]]:
        return OptionsInvalid, (self.problems,)


class OptionReader:
    """Reads the options of one reader or writer, and collects their problems."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): v for name, v in options.items() if not name.lower().startswith(SECOND_COPY)}
        self._known: dict[str, str] = {}
        self._ignored: set[str] = set()
        self.problems: list[str] = []

    def has(self, name: str) -> bool:
        self._known[name.lower()] = name
        return name.lower() in self._options

    def given(self, names: Collection[str]) -> list[str]:
        """Return those of some options that are given."""
        return [name for name in names if self.has(name)]

    def parsed(self, name: str, parse: Callable[[str], T], valid: str, default: T) -> T:
        """Return the option as ``parse`` converts it (``ValueError``: a problem); ``valid`` describes valid values."""
        if not self.has(name):
            return default
        text = self._options[name.lower()]
        try:
            return parse(text)
        except ValueError as error:
            reason = f" ({error})" if str(error) else ""
            self.problems.append(f"{name}: {_shortened(text)!r} is not valid{reason}; it may be {valid}")
            return default

    def text(self, name: str, default: T) -> str | T:
        return self._options[name.lower()] if self.has(name) else default

    def integer(self, name: str, default: T, *, minimum: int, maximum: int = MAX_INT64) -> int | T:
        def parse(text: str) -> int | T:
            number = int(text)
            if not minimum <= number <= maximum:
                raise ValueError
            return number

        bound = f"from {minimum} to {maximum}" if maximum < MAX_INT64 else f"of {minimum} or more"
        absent: int | T = default
        return self.parsed(name, parse, f"a whole number {bound}", absent)

    def boolean(self, name: str, default: bool) -> bool:
        return self.choice(name, {"true": True, "false": False}, default)

    def choice(self, name: str, choices: Mapping[str, T], default: T) -> T:
        def parse(text: str) -> T:
            if text.strip().lower() not in choices:
                raise ValueError
            return choices[text.strip().lower()]

        return self.parsed(name, parse, " or ".join(each or "nothing" for each in choices), default)

    def milliseconds(self, name: str, default_seconds: float, *, minimum: int = 1) -> float:
        """Return an option in milliseconds as seconds."""
        milliseconds = self.integer(name, None, minimum=minimum, maximum=MAX_INT32)
        return default_seconds if milliseconds is None else milliseconds / 1000

    def refuse(self, name: str, reason: str) -> None:
        """Note a problem if the option is given."""
        if self.has(name):
            self.problems.append(f"{name}: {reason}")

    def ignore(self, names: Collection[str]) -> None:
        """Accept options without effect."""
        self._ignored.update(name.lower() for name in names)

    def complain(self, problem: str) -> None:
        self.problems.append(problem)

    def client_settings(self, client_id: str, *, patience: str, hint: str = "") -> ClientSettings:
        """Return the client's settings from the ``kafka.*`` options that reading and writing share.

        ``patience`` names the option for the time to reach a first broker (ms): Kafka's consumers and producers have
        different names for it. ``hint`` is added to the message if ``kafka.bootstrap.servers`` is missing.
        """
        if not self.has(_BOOTSTRAP):
            self.complain(f"{_BOOTSTRAP}: is required; it may be host:port,host:port of some of the brokers{hint}")
        bootstrap = self.parsed(_BOOTSTRAP, _bootstrap, "host:port,host:port", "")
        self.given(WITHOUT_EFFECT)
        self.given(SECURITY_OPTIONS)
        security, problems = read_security(lambda name: self._options.get(name.lower()))
        self.problems += problems
        return ClientSettings(
            bootstrap=bootstrap,
            client_id=self.text("kafka.client.id", client_id),
            connect_seconds=self.milliseconds("kafka.socket.connection.setup.timeout.ms", 10.0),
            request_seconds=self.milliseconds("kafka.request.timeout.ms", 30.0),
            reach_seconds=self.milliseconds(patience, DEFAULT_REACH_SECONDS),
            tls=None if problems else security.tls,
            login=None if problems else security.login,
        )

    def finish(self) -> None:
        """Raise ``OptionsInvalid`` if there is a problem, or an option that was not read."""
        for name in sorted(self._options.keys() - self._known.keys() - self._ignored - SPARKS_OWN):
            self.problems.append(self._unknown(name))
        if self.problems:
            raise OptionsInvalid(self.problems)

    def _unknown(self, name: str) -> str:
        if name.startswith(("kafka.ssl.", "kafka.sasl.")):
            return f"{name}: is not supported; there are {', '.join(SECURITY_OPTIONS)}"
        similar = get_close_matches(name, self._known, n=1)
        if similar:
            return f"{name}: there is no such option; did you mean {self._known[similar[0]]}?"
        known = sorted(each for each in self._known.values() if each.startswith(_KAFKA) == name.startswith(_KAFKA))
        return f"{name}: there is no such option; there are {', '.join(known)}"


def _bootstrap(text: str) -> str:
    parse_bootstrap(text)
    return text


def _shortened(text: str) -> str:
    return text if len(text) <= 200 else text[:200] + "…"

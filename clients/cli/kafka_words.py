"""What a command line means that is written in the words of Kafka's tools, or nearly in ours. Pure.

``kafka-topics.sh --create --topic orders`` and ``oncelog topics create orders`` are both ``oncelog topic create
orders``. A command line that is refused is translated by the tables below; the caller shows the translation if it is
one that can be run.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

_COMMANDS: Final = {
    "topics": "topic",
    "groups": "group",
    "consumer-group": "group",
    "consumer-groups": "group",
    "configs": "config",
    "transaction": "txn",
    "transactions": "txn",
    "txns": "txn",
    "features": "feature",
    "consumer": "consume",
    "console-consumer": "consume",
    "producer": "produce",
    "console-producer": "produce",
    "log-dir": "log-dirs",
    "logdirs": "log-dirs",
    "dump-logs": "dump-log",
    "broker": "serve",
    "server": "serve",
    "server-start": "serve",
    "start": "serve",
    "brokers": "health",
    "status": "health",
}
_VERBS: Final = {
    "ls": "list",
    "rm": "delete",
    "remove": "delete",
    "add": "create",
    "new": "create",
    "show": "describe",
    "get": "describe",
    "set": "alter",
    "update": "alter",
    "reset": "seek",
    "reset-offsets": "seek",
    "delete-offsets": "offset-delete",
    "delete-offset": "offset-delete",
    "delete-records": "trim-prefix",
    "describe-producers": "producers",
    "abort-transaction": "abort",
    "terminate": "force-terminate",
}
_ALONE: Final[dict[str, tuple[str, ...]]] = {
    "reset-offsets": ("group", "seek"),
    "delete-offsets": ("group", "offset-delete"),
    "delete-records": ("topic", "trim-prefix"),
    "get-offsets": ("topic", "describe", "--offsets"),
    "abort-transaction": ("txn", "abort"),
    "describe-producers": ("txn", "producers"),
    "find-hanging": ("txn", "find-hanging"),
}
"""Words that are a whole command in Kafka's tools, or are typed like one, and what stands for them."""
_KAFKAS_OWN: Final = {
    "reassign-partitions": "kafka-reassign-partitions.sh",
    "leader-election": "kafka-leader-election.sh",
    "elect-leaders": "kafka-leader-election.sh",
}
"""Kafka's tools for which there is no command of ours, and which work with our brokers."""
_OURS: Final = frozenset({"list", "create", "delete", "describe", "alter", "seek"})
_GROUPS: Final = frozenset({"topic", "group", "config", "txn", "feature"})
_LISTABLE: Final = frozenset({"topic", "group", "txn", "config"})

_RENAMED: Final = {
    "--bootstrap-server": "--bootstrap",
    "--bootstrap-servers": "--bootstrap",
    "--broker-list": "--bootstrap",
    "--brokers": "--bootstrap",
    "--max-messages": "--number",
    "--isolation-level": "--isolation",
    "--offset": "--from",
    "--replicas": "--replication-factor",
    "--add-config": "--set",
    "--delete-config": "--delete",
    "--to-offset": "--to",
    "--to-datetime": "--to",
    "--compression-codec": "--compression",
    "--topic-list": "--topic",
}
_REPLACED: Final[dict[str, tuple[str, ...]]] = {
    "--from-beginning": ("--from", "beginning"),
    "--to-earliest": ("--to", "beginning"),
    "--to-latest": ("--to", "end"),
    "--execute": (),
    "--verbose": (),
    "--all-topics": (),
    "--deep-iteration": (),
}
"""Options without a value, and what stands for them."""
_IMPLIED: Final[dict[str, frozenset[str]]] = {
    "log-dirs": frozenset({"--describe"}),
    "group": frozenset({"--members", "--offsets"}),
}
"""Options without a value that our command does not need."""
_POSITIONS: Final = {"earliest": "beginning", "latest": "end"}
_KINDS: Final = {"topics": "topic", "brokers": "broker"}
_NAMING: Final = {
    "topic": {"--topic", "--name", "-t"},
    "consume": {"--topic", "-t"},
    "produce": {"--topic", "-t"},
    "group": {"--group", "-g"},
    "config": {"--entity-type", "--entity-name"},
    "dump-log": {"--files"},
}
"""Options whose value our commands take without an option."""

Verbs = Callable[[str], Collection[str]]
"""The verbs of a command of ours; none for one without."""
TakesValue = Callable[[str, str | None, str], bool]
"""Whether (command, verb, option) is an option of ours with a value; unknown ones are taken for such."""


@dataclass(slots=True, kw_only=True)
class _Line:
    """A command line, taken apart."""

    command: str
    verb: str | None = None
    arguments: list[str] = field(default_factory=list)
    options: list[tuple[str, ...]] = field(default_factory=list)

    def words(self) -> list[str]:
        verb = [] if self.verb is None else [self.verb]
        return [self.command, *verb, *self.arguments, *(word for option in self.options for word in option)]


def kafkas_own_tool(words: Sequence[str]) -> str | None:
    """Return the name of Kafka's tool for what was typed, if ours has no command for it."""
    return next((tool for word in words if (tool := _KAFKAS_OWN.get(_tool(word))) is not None), None)


def translate(words: Sequence[str], commands: Iterable[str], verbs: Verbs, takes_value: TakesValue) -> list[str] | None:
    """Return the words of our command line for what was typed; None if no command of ours is recognised."""
    typed = [part for word in words for part in _split(word)]
    known = frozenset(commands)
    if typed and (ours := _ALONE.get(_tool(typed[0]))) is not None:
        typed = [*ours, *typed[1:]]
    names = [_command(word, known) for word in typed]
    at = next((index for index, name in enumerate(names) if name is not None), None)
    if at is None:
        return None
    line = _Line(command=names[at] or "")
    rest = typed[:at] + typed[at + 1 :]
    if line.command in _GROUPS:
        line.verb, rest = _take_verb(rest, _OURS.union(verbs(line.command)))
        if line.verb is None and not rest and line.command in _LISTABLE and typed[at] != line.command:
            line.verb = "list"
    _take_rest(line, rest, takes_value)
    if line.command == "config" and line.verb in ("describe", "alter"):
        _name_resource(line)
    if line.command == "topic" and line.verb == "alter":
        line.verb = "alter-config"
    if line.verb in ("alter", "alter-config"):
        _set_assignments(line)
    return line.words()


def _split(word: str) -> list[str]:
    """Return ``--option=value`` as two words."""
    option, equals, value = word.partition("=")
    return [option, value] if equals and option.startswith("--") else [word]


def _tool(word: str) -> str:
    """Return the name of a tool of Kafka's without what all their names have."""
    return word.removeprefix("kafka-").removesuffix(".sh")


def _command(word: str, known: frozenset[str]) -> str | None:
    name = _tool(word)
    return name if name in known else _COMMANDS.get(name)


def _take_verb(words: list[str], known: frozenset[str]) -> tuple[str | None, list[str]]:
    """Return the verb, also one that is written as an option, and the other words.

    A first word without hyphens is the verb: the words behind it are names. An option of ours may be called like a
    verb (``--delete NAME``): a word without hyphens goes before it. A word behind an option may be that option's value
    (``--group list``): it comes last.
    """
    if words and not words[0].startswith("-"):
        return _VERBS.get(words[0], words[0]), words[1:]
    found: list[tuple[int, int, str]] = []
    for index, word in enumerate(words):
        name = word.removeprefix("--")
        verb = _VERBS.get(name, name)
        if verb in known:
            doubt = 1 if name != word else 2 * (index > 0 and _may_take_value(words[index - 1], known))
            found.append((doubt, index, verb))
    if not found:
        return None, words
    _, index, verb = min(found)
    return verb, words[:index] + words[index + 1 :]


def _may_take_value(word: str, verbs: frozenset[str]) -> bool:
    name = word.removeprefix("--")
    return word.startswith("-") and word not in _REPLACED and _VERBS.get(name, name) not in verbs


def _take_rest(line: _Line, words: Sequence[str], takes_value: TakesValue) -> None:
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("-") or word == "-":
            line.arguments.append(word)
        elif word in _REPLACED:
            line.options += [_REPLACED[word]]
        elif word in _IMPLIED.get(line.command, ()):
            continue
        elif word in _NAMING.get(line.command, ()) and left:
            named = left.pop(0)
            line.arguments += named.split(",") if word == "--files" else [named]
        else:
            is_number_of_brokers = word == "--brokers" and bool(left) and left[0].lstrip("-").isdecimal()
            option = word if is_number_of_brokers else _RENAMED.get(word, word)
            has_value = bool(left) and not left[0].startswith("--") and takes_value(line.command, line.verb, option)
            line.options.append((option, _value(option, left.pop(0))) if has_value else (option,))


def _value(option: str, value: str) -> str:
    return _POSITIONS.get(value, value) if option in ("--from", "--to") else value


def _name_resource(line: _Line) -> None:
    """Put ``topic`` or ``broker`` before its name."""
    arguments = [_KINDS.get(argument, argument) for argument in line.arguments]
    kind = next((argument for argument in arguments if argument in _KINDS.values()), None)
    if kind is not None:
        arguments.remove(kind)
    elif arguments:
        kind = "broker" if arguments[0].isdecimal() else "topic"
    line.arguments = arguments if kind is None else [kind, *arguments]


def _set_assignments(line: _Line) -> None:
    """Give each ``name=value`` a ``--set``: without an option, and of ``--set name=value,name=value``."""
    line.options += [("--set", argument) for argument in line.arguments if "=" in argument]
    line.arguments = [argument for argument in line.arguments if "=" not in argument]
    line.options = [each for option in line.options for each in _settings(option)]


def _settings(option: tuple[str, ...]) -> list[tuple[str, ...]]:
    name, *values = option
    several = values[0].split(",") if name == "--set" and values else []
    return [(name, each) for each in several] if all("=" in each for each in several) and several else [option]

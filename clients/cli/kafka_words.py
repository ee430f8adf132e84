"""What a command line means that is written in the words of Kafka's tools, or nearly in ours. Pure.

``kafka-topics.sh --create --topic orders`` and ``oncelog topics create orders`` are both ``oncelog topic create
orders``. A command line that is refused is translated by the tables below; the caller shows the translation if it is
one that can be run.
"""

from collections.abc import Callable, Iterable, Sequence
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
}
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
}
_REPLACED: Final[dict[str, tuple[str, ...]]] = {
    "--from-beginning": ("--from", "beginning"),
    "--to-earliest": ("--to", "beginning"),
    "--to-latest": ("--to", "end"),
    "--execute": (),
    "--verbose": (),
}
"""Options without a value, and what stands for them."""
_POSITIONS: Final = {"earliest": "beginning", "latest": "end"}
_KINDS: Final = {"topics": "topic", "brokers": "broker"}
_NAMING: Final = {
    "topic": {"--topic", "--name"},
    "consume": {"--topic"},
    "produce": {"--topic"},
    "group": {"--group"},
    "config": {"--entity-type", "--entity-name"},
}
"""Options whose value our commands take without an option."""

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


def translate(words: Sequence[str], commands: Iterable[str], takes_value: TakesValue) -> list[str] | None:
    """Return the words of our command line for what was typed; None if no command of ours is recognised."""
    typed = [part for word in words for part in _split(word)]
    known = frozenset(commands)
    names = [_command(word, known) for word in typed]
    at = next((index for index, name in enumerate(names) if name is not None), None)
    if at is None:
        return None
    line = _Line(command=names[at] or "")
    rest = typed[:at] + typed[at + 1 :]
    if line.command in _GROUPS:
        line.verb, rest = _take_verb(rest)
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
    """``--option=value`` as two words."""
    option, equals, value = word.partition("=")
    return [option, value] if equals and option.startswith("--") else [word]


def _command(word: str, known: frozenset[str]) -> str | None:
    name = word.removeprefix("kafka-").removesuffix(".sh")
    return name if name in known else _COMMANDS.get(name)


def _take_verb(words: list[str]) -> tuple[str | None, list[str]]:
    """The first verb, also one that is written as an option, and the other words."""
    for index, word in enumerate(words):
        name = word.removeprefix("--")
        verb = _VERBS.get(name, name)
        if verb in _OURS:
            return verb, words[:index] + words[index + 1 :]
        if not word.startswith("-"):
            break
    for index, word in enumerate(words):  # Options with values stand before it.
        if _VERBS.get(word, word) in _OURS:
            return _VERBS.get(word, word), words[:index] + words[index + 1 :]
    if words and not words[0].startswith("-"):
        return words[0], words[1:]
    return None, words


def _take_rest(line: _Line, words: Sequence[str], takes_value: TakesValue) -> None:
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("-") or word == "-":
            line.arguments.append(word)
        elif word in _REPLACED:
            line.options += [_REPLACED[word]]
        elif word in _NAMING.get(line.command, ()) and left:
            line.arguments.append(left.pop(0))
        else:
            option = _RENAMED.get(word, word)
            has_value = bool(left) and not left[0].startswith("--") and takes_value(line.command, line.verb, option)
            line.options.append((option, _value(option, left.pop(0))) if has_value else (option,))


def _value(option: str, value: str) -> str:
    return _POSITIONS.get(value, value) if option in ("--from", "--to") else value


def _name_resource(line: _Line) -> None:
    """``topic`` or ``broker`` stands before its name."""
    arguments = [_KINDS.get(argument, argument) for argument in line.arguments]
    if arguments and arguments[0] not in _KINDS.values():
        arguments.insert(0, "broker" if arguments[0].isdecimal() else "topic")
    line.arguments = arguments


def _set_assignments(line: _Line) -> None:
    """``name=value`` without an option is a setting, and so is each of ``--set name=value,name=value``."""
    line.options += [("--set", argument) for argument in line.arguments if "=" in argument]
    line.arguments = [argument for argument in line.arguments if "=" not in argument]
    line.options = [each for option in line.options for each in _settings(option)]


def _settings(option: tuple[str, ...]) -> list[tuple[str, ...]]:
    name, *values = option
    several = values[0].split(",") if name == "--set" and values else []
    return [(name, each) for each in several] if all("=" in each for each in several) and several else [option]

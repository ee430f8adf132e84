"""The command line that was probably meant, below the error of one that is refused."""

import shlex
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Final

import click

from oncelog.clients.cli.kafka_words import kafkas_own_tool, translate
from oncelog.clients.cli.lazy_group import NO_LIMIT, UnknownCommand

_CHANGING: Final = frozenset({"alter", "alter-config", "add-partitions"})
_MORE_PARTITIONS: Final = (
    "Partitions can only be added: `oncelog topic add-partitions TOPIC --num N` adds N to those that there are."
)


@contextmanager
def suggesting(root: click.Group, typed: Sequence[str]) -> Iterator[None]:
    """Add to a usage error that is raised inside what can be typed instead, where that is known."""
    try:
        yield
    except click.UsageError as error:
        hint = suggest(root, typed)
        if hint is None and isinstance(error, UnknownCommand):
            hint = _similar(error)
        if hint is None:
            raise
        message = error.message if isinstance(error, click.NoSuchOption) else error.format_message()
        raise click.UsageError(f"{message}\n\n{hint}", ctx=error.ctx) from None


def suggest(root: click.Group, typed: Sequence[str]) -> str | None:
    """Return a sentence with the command line that was probably meant; None if there is none that could be run."""

    def verbs(command: str) -> Collection[str]:
        found = _leaf(root, [command])
        return found.list_commands(click.Context(found)) if isinstance(found, click.Group) else ()

    def takes_value(command: str, verb: str | None, option: str) -> bool:
        found = _leaf(root, [command] if verb is None else [command, verb])
        options = [] if found is None else [each for each in found.params if option in each.opts]
        return not any(isinstance(each, click.Option) and each.is_flag for each in options)

    tool = kafkas_own_tool(typed)
    if tool is not None:
        return f"Oncelog has no command for this: Kafka's own {tool} does that with Oncelog's brokers."
    words = translate(typed, root.list_commands(click.Context(root)), verbs, takes_value)
    if words is None:
        return None
    if words[0] == "topic" and "--partitions" in words and not _CHANGING.isdisjoint(words[1:2]):
        return _MORE_PARTITIONS
    if words == list(typed):
        return None
    if _can_be_run(root, words):
        return f"Oncelog's command for this is:\n  oncelog {shlex.join(words)}"
    path = words[:2] if _leaf(root, words[:2]) is not None else words[:1]
    found = _leaf(root, path)
    if path == list(typed[: len(path)]) or found is None:
        return None
    return f"See: oncelog {' '.join(path)} --help\n  {found.get_short_help_str(NO_LIMIT)}"


def _similar(error: UnknownCommand) -> str | None:
    """Return the commands whose names are like what was typed, each with what it does: one of them may delete."""
    group = error.group
    context = click.Context(group)
    names = get_close_matches(error.name, group.list_commands(context))
    commands = [(name, command) for name in names if (command := group.get_command(context, name)) is not None]
    if not commands:
        return None
    width = max(len(name) for name, _ in commands)
    lines = [f"  {name:{width}}  {command.get_short_help_str(NO_LIMIT)}".rstrip() for name, command in commands]
    return "\n".join(["Commands of similar names:", *lines])


def _leaf(root: click.Group, path: Sequence[str]) -> click.Command | None:
    """Return the command of that name; None if there is none."""
    found: click.Command | None = root
    for name in path:
        if not isinstance(found, click.Group):
            return found
        found = found.get_command(click.Context(found), name)
    return found


def _can_be_run(root: click.Group, words: Sequence[str]) -> bool:
    """Return whether a command accepts these words. It is parsed, not run."""
    command: click.Command | None = root
    left = list(words)
    while isinstance(command, click.Group) and left:
        command = command.get_command(click.Context(command), left.pop(0))
    if command is None or isinstance(command, click.Group):
        return False
    try:
        with command.make_context("oncelog", left):
            return True
    except click.BadParameter as error:
        return error.param is not None and isinstance(
            error.param.type, click.Path
        )  # The words fit; the file is absent.
    except click.UsageError:
        return False

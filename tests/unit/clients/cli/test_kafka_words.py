"""Command lines in the words of Kafka's tools, and what ``oncelog`` suggests instead: always something that runs."""

import shlex

import click
import pytest
from click.testing import CliRunner

from broker.__main__ import cli
from clients.cli.suggestions import suggest

COMMAND = "Oncelog's command for this is:\n  oncelog "


@pytest.mark.parametrize(
    ("typed", "suggested"),
    [
        ("topics list", "topic list"),
        ("topics", "topic list"),
        ("topic ls", "topic list"),
        ("groups", "group list"),
        ("consumer-groups", "group list"),
        ("consumer-groups --describe --group billing", "group describe billing"),
        ("configs describe topic orders", "config describe topic orders"),
        ("topic list --bootstrap-server here:9092", "topic list --bootstrap here:9092"),
        ("topic list --bootstrap-server=here:9092", "topic list --bootstrap here:9092"),
        ("consume orders --from-beginning", "consume orders --from beginning"),
        ("consume --topic orders --from-beginning --max-messages 5", "consume orders --from beginning --number 5"),
        ("consume orders --offset latest -e", "consume orders --from end -e"),
        ("--partitions 3 topic create orders", "topic create orders --partitions 3"),
        ("topic --partitions 3 create orders", "topic create orders --partitions 3"),
        ("topic create --topic orders --partitions 3", "topic create orders --partitions 3"),
        ("kafka-topics.sh --create --topic orders --bootstrap-server here:1", "topic create orders --bootstrap here:1"),
        ("config alter topic orders retention.ms=5000", "config alter topic orders --set retention.ms=5000"),
        ("config alter orders retention.ms=5", "config alter topic orders --set retention.ms=5"),
        ("config describe orders", "config describe topic orders"),
        ("config describe 1", "config describe broker 1"),
        ("config describe topics orders", "config describe topic orders"),
        (
            "configs --alter --entity-type topics --entity-name orders --add-config a=1,b=2",
            "config alter topic orders --set a=1 --set b=2",
        ),
        ("topic alter orders retention.ms=5", "topic alter-config orders --set retention.ms=5"),
        ("group reset billing --to-earliest", "group seek billing --to beginning"),
        ("console-producer --topic orders", "produce orders"),
        ("transactions list", "txn list"),
        ("brokers", "health"),
        ("topics create 'two words'", "topic create 'two words'"),
    ],
)
def test_line_in_kafkas_words_is_answered_with_ours(typed: str, suggested: str) -> None:
    assert suggest(cli, shlex.split(typed)) == COMMAND + suggested


@pytest.mark.parametrize("typed", ["frobnicate", "topic frob", "topic list extra", "consume", "topic create"])
def test_line_that_means_nothing_known_is_answered_with_the_error_alone(typed: str) -> None:
    assert suggest(cli, typed.split()) is None


def test_partitions_of_a_topic_that_exists_are_added() -> None:
    hint = suggest(cli, ["topic", "alter", "orders", "--partitions", "6"])
    assert hint is not None
    assert "oncelog topic add-partitions TOPIC --num N" in hint


def test_suggestion_stands_below_the_error_and_the_exit_code_is_that_of_wrong_usage() -> None:
    result = CliRunner().invoke(cli, ["topic", "list", "--bootstrap-server", "here:9092"])
    assert result.exit_code == 2
    assert "Error: No such option '--bootstrap-server'." in result.output.replace(": --boot", " '--boot")
    assert result.output.endswith(f"{COMMAND}topic list --bootstrap here:9092\n")


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_version_is_printed(option: str) -> None:
    result = CliRunner().invoke(cli, [option])
    assert (result.exit_code, result.output) == (0, CliRunner().invoke(cli, ["version"]).output)


def groups(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    context = click.Context(group)
    commands = [(name, group.get_command(context, name)) for name in group.list_commands(context)]
    return [path] + [
        each
        for name, command in commands
        if isinstance(command, click.Group)
        for each in groups(command, (*path, name))
    ]


@pytest.mark.parametrize("path", groups(cli), ids=" ".join)
def test_help_of_a_group_shows_whole_sentences(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cli, [*path, "--help"])
    assert result.exit_code == 0
    assert "..." not in result.output.replace("[ARGS]...", "")

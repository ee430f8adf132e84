"""Command lines in the words of Kafka's tools, and what ``oncelog`` suggests instead: always something that runs."""

import shlex
from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from oncelog.broker.__main__ import cli
from oncelog.clients.cli.suggestions import suggest

COMMAND = "Oncelog's command for this is:\n  oncelog "


LINES = [
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
    ("consume -t orders", "consume orders"),
    ("produce -t orders --acks 1", "produce orders --acks 1"),
    ("dump-log --files a.log,b.log", "dump-log a.log b.log"),
    (
        "topic alter-config orders --delete retention.ms --bootstrap-server here:1",
        "topic alter-config orders --delete retention.ms --bootstrap here:1",
    ),
    ("group describe -g billing", "group describe billing"),
    ("consumer-groups --group list --describe", "group describe list"),
    ("reset-offsets --group billing --to-latest", "group seek billing --to end"),
    ("group reset-offsets billing --to end", "group seek billing --to end"),
    ("kafka-get-offsets.sh --topic orders", "topic describe orders --offsets"),
    ("topic delete-records orders --before 5", "topic trim-prefix orders --before 5"),
    ("txn abort-transaction -t orders -p 0 --start-offset 4", "txn abort -t orders -p 0 --start-offset 4"),
    ("group delete-offset billing -t orders", "group offset-delete billing -t orders"),
    ("txn terminate billing-1", "txn force-terminate billing-1"),
]
KAFKAS_LINES = [
    (
        "kafka-topics.sh --create --topic foo --partitions 3 --replication-factor 1",
        "topic create foo --partitions 3 --replication-factor 1",
    ),
    (
        "kafka-topics.sh --create --topic foo --config retention.ms=5 --if-not-exists",
        "topic create foo --config retention.ms=5 --if-not-exists",
    ),
    ("kafka-topics.sh --list", "topic list"),
    ("kafka-topics.sh --describe --topic orders", "topic describe orders"),
    ("kafka-topics.sh --delete --topic orders", "topic delete orders"),
    ("kafka-consumer-groups.sh --list", "group list"),
    ("kafka-consumer-groups.sh --describe --group g --members --verbose", "group describe g"),
    ("kafka-consumer-groups.sh --delete --group g", "group delete g"),
    ("kafka-consumer-groups.sh --delete-offsets --group g --topic orders", "group offset-delete g --topic orders"),
    (
        "kafka-consumer-groups.sh --reset-offsets --group g --topic orders --to-latest --execute",
        "group seek g --topic orders --to end",
    ),
    (
        "kafka-consumer-groups.sh --reset-offsets --group g --to-offset 5 --all-topics --dry-run",
        "group seek g --to 5 --dry-run",
    ),
    ("kafka-configs.sh --entity-type topics --entity-name orders --describe", "config describe topic orders"),
    ("kafka-configs.sh --entity-type brokers --entity-name 1 --describe", "config describe broker 1"),
    (
        "kafka-configs.sh --entity-type topics --entity-name orders --alter --add-config a=1",
        "config alter topic orders --set a=1",
    ),
    (
        "kafka-configs.sh --entity-type topics --entity-name orders --alter --delete-config a",
        "config alter topic orders --delete a",
    ),
    (
        "kafka-console-consumer.sh --topic orders --from-beginning --max-messages 5 --group g",
        "consume orders --from beginning --number 5 --group g",
    ),
    (
        "kafka-console-consumer.sh --topic orders --partition 0 --offset latest --isolation-level read_committed",
        "consume orders --partition 0 --from end --isolation read_committed",
    ),
    ("kafka-console-producer.sh --topic orders --compression-codec zstd", "produce orders --compression zstd"),
    ("kafka-transactions.sh list", "txn list"),
    ("kafka-transactions.sh describe --transactional-id t", "txn describe --transactional-id t"),
    (
        "kafka-transactions.sh describe-producers --topic orders --partition 0",
        "txn producers --topic orders --partition 0",
    ),
    ("kafka-transactions.sh find-hanging --broker-id 1", "txn find-hanging --broker-id 1"),
    (
        "kafka-transactions.sh abort --topic orders --partition 0 --start-offset 4",
        "txn abort --topic orders --partition 0 --start-offset 4",
    ),
    ("kafka-log-dirs.sh --describe --topic-list orders", "log-dirs --topic orders"),
]
"""Each as Kafka's documentation has it, but for ``--bootstrap-server here:1``."""


@pytest.mark.parametrize(("typed", "suggested"), LINES)
def test_command_line_of_kafkas_tools_returns_ours(typed: str, suggested: str) -> None:
    assert suggest(cli, shlex.split(typed)) == COMMAND + suggested


def in_all_orders(typed: str) -> Iterator[list[str]]:
    """The words of a line with its options, each with its value, at every place; other words keep their order."""
    first, *words = shlex.split(typed)
    units: list[tuple[str, ...]] = []
    for word in words:
        before = units[-1] if units else ("",)
        is_flag = before[0] in FLAGS or (before[0] == "--delete" and first.startswith("kafka"))
        if before[0].startswith("-") and len(before) == 1 and not is_flag and not word.startswith("-"):
            units[-1] = (before[0], word)
        else:
            units.append((word,))
    bare = [unit for unit in units if not unit[0].startswith("-")]
    for order in permutations(units):
        if [unit for unit in order if not unit[0].startswith("-")] == bare:
            yield [first, *(word for unit in order for word in unit)]


FLAGS = {
    *("--create", "--list", "--describe", "--alter", "--delete-offsets", "--reset-offsets"),
    *("--from-beginning", "--if-not-exists", "--to-latest", "--to-earliest", "--execute", "--all-topics", "--dry-run"),
    *("--members", "--verbose", "-e"),
}


def same_command(suggestion: str | None, expected: Sequence[str]) -> bool:
    """Whether a suggestion is the expected line but for the order of its options."""
    if suggestion is None or not suggestion.startswith(COMMAND):
        return False
    words = shlex.split(suggestion.removeprefix(COMMAND))
    return words[0] == expected[0] and sorted(words) == sorted(expected)


@pytest.mark.parametrize(
    ("typed", "suggested"),
    [*LINES, *((f"{typed} --bootstrap-server here:1", f"{ours} --bootstrap here:1") for typed, ours in KAFKAS_LINES)],
)
def test_command_line_with_options_in_any_order_is_recognised(typed: str, suggested: str) -> None:
    expected = shlex.split(suggested)
    orders = [words for words in in_all_orders(typed) if words != expected]
    wrong = [words for words in orders if not same_command(suggest(cli, words), expected)]
    assert orders
    assert wrong == []


def test_files_of_kafkas_dump_tool_are_arguments_whether_they_exist_or_not(tmp_path: Path) -> None:
    segment = tmp_path / "00000000000000000000.log"
    for _ in range(2):
        line = f"kafka-dump-log.sh --deep-iteration --files {segment} --print-data-log"
        assert suggest(cli, line.split()) == f"{COMMAND}dump-log {segment} --print-data-log"
        segment.touch()


@pytest.mark.parametrize(
    ("typed", "command", "what_it_does"),
    [
        ("topic delete-records orders", "topic trim-prefix", "Delete the records before an offset."),
        (
            "kafka-delete-records.sh --offset-json-file f",
            "topic trim-prefix",
            "Delete the records before an offset.",
        ),
        ("txn abort-transaction t", "txn abort", "Abort a transaction:"),
        ("reset-offsets", "group seek", "Move the committed offsets of a group that has no members."),
    ],
)
def test_kafka_words_without_our_arguments_lead_to_the_help_of_our_command(
    typed: str, command: str, what_it_does: str
) -> None:
    assert (suggest(cli, typed.split()) or "").startswith(f"See: oncelog {command} --help\n  {what_it_does}")


@pytest.mark.parametrize("number", ["0", "-1"])
def test_number_of_brokers_that_is_out_of_range_is_not_taken_for_an_address(number: str) -> None:
    assert suggest(cli, ["wait", "--brokers", number]) is None
    assert "--bootstrap" in (suggest(cli, ["wait", "--brokers", "broker1:9092"]) or "")


@pytest.mark.parametrize(
    ("typed", "tool"),
    [
        ("reassign-partitions --execute", "kafka-reassign-partitions.sh"),
        ("topic reassign-partitions orders", "kafka-reassign-partitions.sh"),
        ("kafka-reassign-partitions.sh --list", "kafka-reassign-partitions.sh"),
        ("leader-election --election-type preferred", "kafka-leader-election.sh"),
    ],
)
def test_work_that_only_kafkas_tool_does_is_left_to_that_tool(typed: str, tool: str) -> None:
    assert f"{tool} does that with Oncelog's brokers" in (suggest(cli, typed.split()) or "")


@pytest.mark.parametrize(
    ("typed", "near", "what_it_does"),
    [
        ("topic deletee orders", "delete", "Delete topics with all their records."),
        ("topic describe-offsets orders", "describe", "Show "),
        ("txn force-terminat billing-1", "force-terminate", "Fence the producer"),
        ("prodoce orders", "produce", "Write each line of standard input as a record."),
    ],
)
def test_mistyped_command_names_the_near_ones_and_says_what_they_do(typed: str, near: str, what_it_does: str) -> None:
    result = CliRunner().invoke(cli, typed.split())
    assert result.exit_code == 2
    assert "Did you mean" not in result.output
    _, _, listed = result.output.partition("Commands of similar names:\n")
    assert [line for line in listed.splitlines() if line.split()[0] == near and what_it_does in line]


def test_command_that_kafka_calls_otherwise_does_not_name_another_of_similar_name() -> None:
    result = CliRunner().invoke(cli, ["topic", "delete-records", "orders"])
    assert "topic trim-prefix" in result.output
    assert "'delete'" not in result.output


def test_name_that_is_a_verb_is_not_taken_for_the_command() -> None:
    assert "delete" not in (suggest(cli, ["group", "describ", "delete"]) or "")


@pytest.mark.parametrize("typed", ["frobnicate", "topic frob", "topic list extra", "consume", "topic create"])
def test_unknown_command_line_prints_the_error_alone(typed: str) -> None:
    assert suggest(cli, typed.split()) is None


@pytest.mark.parametrize(
    "typed",
    [
        "topic alter orders --partitions 6",
        "topic add-partitions orders --partitions 3",
        "kafka-topics.sh --bootstrap-server here:1 --alter --topic orders --partitions 6",
    ],
)
def test_partitions_of_a_topic_that_exists_are_added(typed: str) -> None:
    hint = suggest(cli, typed.split())
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

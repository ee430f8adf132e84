"""What every command has, and what starting one loads."""

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from oncelog.clients.cli.commands import commands
from oncelog.clients.cli.remedies import remedy
from oncelog.clients.cli.topic import unless_it_exists
from oncelog.clients.errors import Refusal
from oncelog.protocol.errors import RETRIABLE, ErrorCode


def verbs(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from verbs(command, (*path, name))
        else:
            yield (*path, name), command


VERBS = dict(verbs(commands))
LOCAL = (("version",), ("verify-history",), ("tls", "init"), ("audit", "verify"))
"""They talk to no cluster."""


@pytest.mark.parametrize("path", VERBS, ids=" ".join)
def test_help_of_every_command_has_an_example(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(commands, [*path, "--help"])
    assert result.exit_code == 0
    examples = [line.strip() for line in result.output.partition("Example:")[2].splitlines()]
    assert any(f"oncelog {' '.join(path)}" in line for line in examples)


@pytest.mark.parametrize("path", [path for path in VERBS if path not in LOCAL], ids=" ".join)
def test_commands_all_take_the_common_options(path: tuple[str, ...]) -> None:
    options = {option for parameter in VERBS[path].params for option in parameter.opts}
    assert {"--bootstrap", "--timeout", "--format"} <= options


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "list", "--bootstrap", "here:x"],
        ["topic", "create"],
        ["topic", "create", "orders", "--config", "retention.ms"],
        ["topic", "create", "orders", "--partitions", "0"],
        ["topic", "alter-config", "orders"],
        ["topic", "trim-prefix", "orders", "--before", "tomorrow"],
        ["group", "seek", "billing", "--to", "somewhere"],
        ["group", "seek", "billing", "--to", "end", "--topic", "orders:x"],
        ["group", "offset-delete", "billing"],
        ["group", "remove-members", "billing"],
        ["group", "remove-members", "billing", "--all", "--member-id", "m-1"],
        ["config", "describe", "broker", "orders"],
        ["consume", "orders", "--from", "middle"],
        ["consume", "orders", "--group", "billing", "--partition", "0"],
        ["produce", "orders", "--header", "novalue"],
        ["health", "--timeout", "0"],
        ["topic", "list", "--timeout", "inf"],
        ["topic", "list", "--timeout", "nan"],
        ["topic", "list", "--timeout", "1e300"],
        ["topic", "list", "--bootstrap", "a..b:9092"],
        ["txn", "list", "--state", "Prepared"],
        ["txn", "describe"],
        ["txn", "describe", "billing", "--transactional-id", "billing"],
        ["txn", "producers"],
        ["txn", "find-hanging"],
        ["txn", "find-hanging", "--broker-id", "1", "--partition", "0"],
        ["txn", "abort", "--topic", "orders", "--partition", "0"],
        ["txn", "abort", "--topic", "orders", "--start-offset", "0"],
        ["txn", "force-terminate"],
        ["txn", "log"],
    ],
    ids=" ".join,
)
def test_command_with_wrong_usage_sends_no_request(arguments: list[str]) -> None:
    result = CliRunner().invoke(commands, arguments)
    assert result.exit_code == 2, result.exception
    assert "Error: " in result.output


@pytest.mark.parametrize("variable", ["ONCELOG_BOOTSTRAP", "KAFKA_BOOTSTRAP_SERVERS"])
def test_bootstrap_is_taken_from_the_environment(variable: str) -> None:
    result = CliRunner().invoke(commands, ["topic", "list"], env={"ONCELOG_BOOTSTRAP": None, variable: "127.0.0.1:1"})
    assert result.exit_code == 3
    assert "127.0.0.1:1: Connection refused" in result.output
    assert "oncelog serve" in result.output


@pytest.mark.parametrize("error", sorted(RETRIABLE))
def test_transient_error_is_printed_with_a_remedy(error: ErrorCode) -> None:
    assert remedy(Refusal(error=error))


def test_upgrade_of_a_feature_to_0_names_the_downgrade() -> None:
    result = CliRunner().invoke(commands, ["feature", "upgrade", "transaction.version", "0"])
    assert result.exit_code == 2
    assert "`oncelog feature downgrade transaction.version 0` turns the feature off" in result.output


def test_deletion_that_waits_is_printed_with_what_it_waits_for() -> None:
    waits = "The topic will be deleted when all of its replicas are reachable (on broker 3)."
    taken = Refusal(
        error=ErrorCode.TOPIC_ALREADY_EXISTS, message="Topic 'a' is marked for deletion, which waits for broker 3."
    )
    for refused in (Refusal(error=ErrorCode.REQUEST_TIMED_OUT, message=waits), taken):
        assert (remedy(refused) or "").startswith("the deletion is accepted and goes on by itself")
        assert "health" not in (remedy(refused) or "")
    assert "--if-not-exists" in (remedy(Refusal(error=ErrorCode.TOPIC_ALREADY_EXISTS, message="exists")) or "")
    assert unless_it_exists(taken) == taken


def test_refused_safe_downgrade_is_printed_with_the_option_for_an_unsafe_one() -> None:
    message = "1 partition waits (t-0). Start the brokers, or set the upgrade type to unsafe downgrade."
    assert "--unsafe" in (remedy(Refusal(error=ErrorCode.INVALID_UPDATE_VERSION, message=message)) or "")
    assert "--unsafe" not in (remedy(Refusal(error=ErrorCode.INVALID_UPDATE_VERSION, message="too high")) or "")


@pytest.mark.parametrize("arguments", ["topic list", "txn list", "group list"])
def test_client_command_loads_neither_broker_nor_records(arguments: str) -> None:
    script = (
        "import sys\n"
        "from oncelog.broker.__main__ import main\n"
        "try:\n"
        f"    main({[*arguments.split(), '--bootstrap', '127.0.0.1:1']!r})\n"
        "except SystemExit as exit:\n"
        "    assert exit.code == 3, exit.code\n"
        "ours = ('oncelog.broker.', 'oncelog.coordinator')\n"
        "heavy = (*ours, 'uvloop', 'aiofiles', 'construct', 'cramjam', 'kazoo', 'crc32c')\n"
        "loaded = [name for name in sys.modules if name.startswith(heavy) and name != 'oncelog.broker.__main__']\n"
        "assert not loaded, loaded\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr

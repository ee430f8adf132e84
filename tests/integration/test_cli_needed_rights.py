"""A command that is denied names the right that it needs, and with that right alone it is not denied."""

from collections.abc import Callable, Iterator
from typing import Final

import pytest

from oncelog.clients.cli.needed_rights import NEEDED
from tests.command import Oncelog
from tests.processes import OncelogProcess, free_port

PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
DENIED: Final = "CLUSTER_AUTHORIZATION_FAILED"
COMMANDS: Final = {
    "acl add": "acl add User:bob read --topic orders",
    "acl list": "acl list",
    "acl remove": "acl remove User:bob read --topic orders",
    "config alter": "config alter broker --default --set num.io.threads=8",
    "config describe": "config describe broker 1",
    "config list": "config list",
    "feature downgrade": "feature downgrade transaction.version 1 --dry-run",
    "feature upgrade": "feature upgrade transaction.version 2 --dry-run",
    "log-dirs": "log-dirs",
    "quota describe": "quota describe --user bob",
    "quota list": "quota list",
    "quota remove": "quota remove --user bob",
    "quota set": "quota set --user bob --consumer-byte-rate 1MB",
    "user add": "user add bob",
    "user list": "user list",
    "user remove": "user remove bob",
}


def option_of(name: str) -> str:
    """Return the operation of a command as the command line spells it."""
    return NEEDED[name].name.lower().replace("_", "-")


@pytest.fixture(scope="module")
def command_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Oncelog]]:
    """The command of a user whose password is its name, by the name."""
    directory = tmp_path_factory.mktemp("broker")
    users = {"admin", "mallory", *map(option_of, NEEDED)}
    passwords = " ".join(f'user_{user}="{user}"' for user in users)
    port = free_port()
    listener = f"SASL_PLAINTEXT://localhost:{port}"
    settings = [
        f"listeners={listener}",
        "inter.broker.listener.name=SASL_PLAINTEXT",
        "sasl.enabled.mechanisms=PLAIN",
        f"sasl.jaas.config={PLAIN} {passwords};",
        "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
        "super.users=User:admin",
    ]

    def command(user: str) -> Oncelog:
        path = directory / f"{user}.properties"
        path.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username={user}\nsasl.password={user}\n"
        )
        oncelog = Oncelog(f"localhost:{port}")
        oncelog.environment["ONCELOG_COMMAND_CONFIG"] = str(path)
        return oncelog

    with OncelogProcess(directory, settings, port):
        admin = command("admin")
        admin("topic create orders")
        admin("acl add User:* describe read --topic orders")
        for operation in set(map(option_of, NEEDED)):
            admin(f"acl add User:{operation} {operation} --cluster")
        yield command


@pytest.mark.parametrize("name", sorted(NEEDED))
def test_denied_command_names_the_right_with_which_it_is_allowed(
    command_of: Callable[[str], Oncelog], name: str
) -> None:
    said = command_of("mallory").run(COMMANDS[name], text="secret\n").stderr
    assert DENIED in said
    assert f"`oncelog acl add PRINCIPAL {option_of(name)} --cluster`" in said
    assert DENIED not in command_of(option_of(name)).run(COMMANDS[name], text="secret\n").stderr

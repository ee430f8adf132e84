"""``oncelog user``: the users of SCRAM and their passwords.

A password is never an argument, because every process of the machine can read those: it is typed, or comes by standard
input or from a file.
"""

import sys
from typing import TextIO

import click

from oncelog.clients.admin.users import ScramUser, delete_passwords, list_users, set_password
from oncelog.clients.cli.lazy_group import LazyGroup
from oncelog.clients.cli.session import Session, example, with_session
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import Refusal
from oncelog.protocol.sasl.mechanisms import SCRAM_MECHANISMS
from oncelog.protocol.sasl.scram import MAX_ITERATIONS, MIN_ITERATIONS, SCRAM_SHA_512

_COLUMNS = ("user", "mechanism", "iterations")
_MECHANISM = click.Choice(list(SCRAM_MECHANISMS))


@click.group(cls=LazyGroup)
def user() -> None:
    """List, add and remove users that authenticate by SCRAM."""


@user.command("list", epilog=example("oncelog user list", "oncelog user list alice bob"))
@click.argument("names", nargs=-1, metavar="[NAME]…")
@with_session()
def list_command(session: Session, names: tuple[str, ...]) -> None:
    """Show which users have a password, for which mechanisms. Passwords are not kept, and cannot be shown."""
    found = session.run(lambda cluster: list_users(cluster, dict.fromkeys(names)))
    rows = [
        {"user": each.name, "mechanism": mechanism, "iterations": iterations}
        for each in sorted((each for each in found.values() if isinstance(each, ScramUser)), key=lambda each: each.name)
        for mechanism, iterations in each.iterations.items()
    ]
    session.show_rows(rows, _COLUMNS, none="No users: add one with `oncelog user add NAME`.")
    session.fail_if_any({f"user {name}": each for name, each in found.items() if isinstance(each, Refusal)})


@user.command(
    epilog=example("oncelog user add alice", "oncelog user add alice --password-file secret.txt --iterations 8192")
)
@click.argument("name", metavar="NAME")
@click.option(
    "--mechanism",
    type=_MECHANISM,
    default=SCRAM_SHA_512.name,
    show_default=True,
    help="Mechanism that the password is for.",
)
@click.option(
    "--iterations",
    type=click.IntRange(MIN_ITERATIONS, MAX_ITERATIONS),
    default=MIN_ITERATIONS,
    show_default=True,
    help="Work of a client, and of an attacker who has read the store, for each password.",
)
@click.option(
    "--password-file",
    type=click.File(encoding="utf-8"),
    metavar="FILE",
    help="File whose first line is the password. Default: a prompt, or the first line of standard input.",
)
@with_session()
def add(session: Session, name: str, mechanism: str, iterations: int, password_file: TextIO | None) -> None:
    """Set the password of a user, who need not exist."""
    password = _read_password(password_file)

    async def set_it(cluster: Cluster) -> Refusal | None:
        return await set_password(cluster, name, password, mechanism=mechanism, iterations=iterations)

    session.show_outcomes("user", "ok", {name: session.change(set_it)})


@user.command(epilog=example("oncelog user remove alice", "oncelog user remove alice --mechanism SCRAM-SHA-256"))
@click.argument("name", metavar="NAME")
@click.option("--mechanism", type=_MECHANISM, help="Delete the password for this mechanism only.")
@with_session()
def remove(session: Session, name: str, mechanism: str | None) -> None:
    """Delete the passwords of a user. Connections that are authenticated stay."""

    async def delete(cluster: Cluster) -> Refusal | None:
        if mechanism is not None:
            return await delete_passwords(cluster, name, [mechanism])
        found = (await list_users(cluster, [name]))[name]
        return found if isinstance(found, Refusal) else await delete_passwords(cluster, name, found.iterations)

    session.show_outcomes("user", "removed", {name: session.change(delete)})


def _read_password(file: TextIO | None) -> str:
    if file is not None:
        password = file.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise click.UsageError("the password is empty")
    return password

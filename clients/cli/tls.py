"""``oncelog tls``: certificates for a try-out of TLS."""

import datetime
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from oncelog.clients.cli.lazy_group import LazyGroup
from oncelog.clients.cli.session import example, wall_clock
from oncelog.clients.cli.whole_file import SECRET, write_whole

if TYPE_CHECKING:
    from oncelog.clients.trial_certificates import SignedKey

_NAME: Final = re.compile(r"[A-Za-z0-9:._*-]{1,64}")
_DAYS: Final = 365
_PUBLIC: Final = 0o644


@click.group(cls=LazyGroup)
def tls() -> None:
    """Make certificates for a try-out of TLS."""


@tls.command(
    "init",
    epilog=example(
        "oncelog tls init certificates",
        "oncelog tls init certificates --host broker-1 --host broker-2 --client alice",
    ),
)
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path), metavar="DIRECTORY")
@click.option(
    "--host", "hosts", multiple=True, help="Name or address by which clients reach a broker; repeatable. [localhost]"
)
@click.option("--client", "clients", multiple=True, help="Name of a client that needs a certificate; repeatable.")
@click.option(
    "--days", type=click.IntRange(1, 3650), default=_DAYS, show_default=True, help="Days of a certificate's validity."
)
@click.option("--renew", is_flag=True, help="Replace certificates that are there already.")
def init_command(directory: Path, hosts: tuple[str, ...], clients: tuple[str, ...], days: int, renew: bool) -> None:
    """Make an authority, and certificates that it signs, in DIRECTORY.

    A holder of ca.key can pretend to be any broker: for production, have an authority of your own sign certificates. An
    authority that is in DIRECTORY already is used again.
    """
    from oncelog.clients.trial_certificates import sign_broker, sign_client  # The library takes a while to load.

    hosts = hosts or ("localhost",)
    _check_names((*hosts, *clients))
    wanted = {f"broker-{_file_name(host)}.pem": host for host in hosts}
    wanted |= {f"client-{_file_name(name)}.pem": name for name in clients}
    there = [name for name in wanted if (directory / name).exists()]
    if there and not renew:
        raise click.ClickException(f"{directory} has {', '.join(there)} already: replace them with --renew")
    now = datetime.datetime.fromtimestamp(wall_clock() / 1000, datetime.UTC)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        authority = _authority(directory, now, days)
        for file, name in wanted.items():
            is_broker = file.startswith("broker-")
            signed = sign_broker(authority, [name], now, days) if is_broker else sign_client(authority, name, now, days)
            write_whole(directory / file, signed.key + signed.certificate + authority.certificate, SECRET)
            click.echo(f"{directory / file}: key and certificate of {'broker' if is_broker else 'client'} {name}")
    except OSError as error:
        raise click.ClickException(f"{error.filename or directory}: {error.strerror or error}") from None
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    _explain(directory, next(iter(wanted)), next((file for file in wanted if file.startswith("client-")), None))


def _check_names(names: tuple[str, ...]) -> None:
    for name in names:
        if _NAME.fullmatch(name.strip("[]")) is None or name.startswith((".", "-")):
            raise click.BadParameter(f"{name!r} is not the name of a host or client")


def _file_name(name: str) -> str:
    return name.strip("[]").replace(":", "_").replace("*", "any")


def _authority(directory: Path, now: datetime.datetime, days: int) -> "SignedKey":
    """Return the authority of a directory, which is made if it is not there."""
    from oncelog.clients.trial_certificates import SignedKey, make_authority

    certificate, key = directory / "ca.pem", directory / "ca.key"
    if certificate.exists() and key.exists():
        return SignedKey(key=key.read_bytes(), certificate=certificate.read_bytes())
    if certificate.exists() or key.exists():
        raise click.ClickException(f"{directory} has ca.pem or ca.key, and not both: name another directory")
    authority = make_authority(now, days)
    write_whole(key, authority.key, SECRET)
    write_whole(certificate, authority.certificate, _PUBLIC)
    click.echo(f"{certificate}: the authority, which brokers and clients trust; its key is {key}")
    return authority


def _explain(directory: Path, broker: str, client: str | None) -> None:
    place = directory.resolve()
    click.echo("\nSettings of a broker:\n")
    click.echo("  listeners=SSL://localhost:9093")
    click.echo(f"  ssl.keystore.location={place / broker}")
    click.echo(f"  ssl.truststore.location={place / 'ca.pem'}")
    if client is not None:
        click.echo("  ssl.client.auth=required")
    click.echo("\nSettings of a client:\n")
    click.echo("  security.protocol=SSL")
    click.echo(f"  ssl.truststore.location={place / 'ca.pem'}")
    click.echo("  ssl.truststore.type=PEM")
    if client is not None:
        click.echo(f"  ssl.keystore.location={place / client}")
        click.echo("  ssl.keystore.type=PEM")

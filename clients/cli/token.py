"""``oncelog token``: delegation tokens, with which clients authenticate by SCRAM without a user's password.

The secret of a token, its hmac, is shown once: by the command that creates it, or in the file that this writes. The
others name a token by its id, and ask a broker for the rest.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from oncelog.clients.admin.tokens import DelegationToken, create_token, describe_tokens, expire_token, renew_token
from oncelog.clients.cli.lazy_group import LazyGroup
from oncelog.clients.cli.output import Row
from oncelog.clients.cli.session import Session, example, with_session
from oncelog.clients.cli.whole_file import SECRET, write_whole
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import BrokerRefused, Refusal
from oncelog.clients.security_config import SecurityConfig
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.principal import Principal, parse_principal
from oncelog.protocol.sasl.jaas import SCRAM_MODULE
from oncelog.protocol.sasl.login import TOKEN_OPTION
from oncelog.protocol.sasl.mechanisms import SCRAM_MECHANISMS
from oncelog.protocol.sasl.scram import SCRAM_SHA_512

_TRUST: Final = (
    "ssl_truststore_location",
    "ssl_truststore_certificates",
    "ssl_truststore_password",
    "ssl_truststore_type",
    "ssl_endpoint_identification_algorithm",
)
_COLUMNS: Final = ("token", "owner", "requester", "renewers", "issued", "expires", "renewable_until")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PERIOD: Final = re.compile(rf"(\d{{1,12}})\s*({'|'.join(_UNITS_MS)})")
_MECHANISM: Final = click.Choice(list(SCRAM_MECHANISMS))
_NONE: Final = "There are no delegation tokens that this client may see."


def _principal(context: click.Context, parameter: click.Parameter, value: str | None) -> Principal | None:
    try:
        return None if value is None else parse_principal(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _principals(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> list[Principal]:
    return [each for each in (_principal(context, parameter, value) for value in values) if each is not None]


def _period(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """Return the milliseconds of a number with its unit."""
    if value is None:
        return None
    match = _PERIOD.fullmatch(value)
    if match is None:
        raise click.BadParameter(f"{value!r} is no number with one of the units {', '.join(_UNITS_MS)}: 12h")
    return int(match[1]) * _UNITS_MS[match[2]]


@click.group(cls=LazyGroup)
def token() -> None:
    """Create, list, renew and expire delegation tokens.

    A client with a token authenticates by SCRAM as the token's owner. Brokers have tokens if
    delegation.token.secret.key is set.
    """


@token.command(
    epilog=example(
        "oncelog token create --file job.properties",
        "oncelog token create --owner User:alice --renewer User:scheduler --max-lifetime 12h",
    )
)
@click.option("--owner", callback=_principal, metavar="TYPE:NAME", help="The owner, if it is another than this client.")
@click.option(
    "--renewer",
    "renewers",
    callback=_principals,
    multiple=True,
    metavar="TYPE:NAME",
    help="May renew and expire it, too.",
)
@click.option(
    "--max-lifetime",
    callback=_period,
    metavar="PERIOD",
    help="Until when it can be renewed, such as 12h or 7d, from now.",
)
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="New file for a client's properties, which only its owner can read. Default: print the secret.",
)
@click.option("--mechanism", type=_MECHANISM, default=SCRAM_SHA_512.name, show_default=True, help="For the file.")
@with_session()
def create(
    session: Session,
    owner: Principal | None,
    renewers: Sequence[Principal],
    max_lifetime: int | None,
    file: Path | None,
    mechanism: str,
) -> None:
    """Create a token, and print its secret or write it into a file.

    The secret is not shown again. With the id as user, the secret as password and tokenauth a client authenticates.
    """

    async def work(cluster: Cluster) -> DelegationToken:
        return await create_token(cluster, owner=owner, renewers=renewers, max_lifetime_ms=max_lifetime)

    if file is None:
        created = session.change(work)
        session.show_fields({**_row(created), "hmac": created.password})
        return
    with _reserved(file):
        created = session.change(work)
        write_whole(file, _properties(session, created, mechanism), SECRET)
    session.show_fields({**_row(created), "file": str(file)})


@token.command("list", epilog=example("oncelog token list", "oncelog token list --owner User:alice"))
@click.option(
    "--owner",
    "owners",
    callback=_principals,
    multiple=True,
    metavar="TYPE:NAME",
    help="Only tokens that concern these.",
)
@with_session()
def list_command(session: Session, owners: Sequence[Principal]) -> None:
    """List the tokens that this client may see, without their secrets."""
    found = session.run(lambda cluster: describe_tokens(cluster, owners or None))
    session.show_rows(map(_row, found), _COLUMNS, none=_NONE)


@token.command(epilog=example("oncelog token renew QY0h6sxzTmCl9Dz3x8pGZg", "oncelog token renew ID --for 12h"))
@click.argument("token_id", metavar="ID")
@click.option(
    "--for", "period", callback=_period, metavar="PERIOD", help="From now. Default: as long as brokers allow."
)
@with_session()
def renew(session: Session, token_id: str, period: int | None) -> None:
    """Have a token expire later.

    A client that uses it goes on when it authenticates again, as clients do shortly before their session ends.
    """

    async def work(cluster: Cluster) -> int:
        return await renew_token(cluster, (await _find(cluster, token_id)).hmac, period_ms=period)

    expires = session.change(work)
    session.show_rows([{"token": token_id, "expires": _time(expires)}], ("token", "expires"))


@token.command(epilog=example("oncelog token expire QY0h6sxzTmCl9Dz3x8pGZg", "oncelog token expire ID --in 10m"))
@click.argument("token_id", metavar="ID")
@click.option("--in", "period", callback=_period, metavar="PERIOD", help="From now. Default: remove the token at once.")
@with_session()
def expire(session: Session, token_id: str, period: int | None) -> None:
    """Remove a token, or have it expire soon.

    Connections that were authenticated by it stay until the end of their session.
    """

    async def work(cluster: Cluster) -> int:
        return await expire_token(cluster, (await _find(cluster, token_id)).hmac, period_ms=period)

    expires = session.change(work)
    result = "removed" if period is None else _time(expires)
    session.show_rows([{"token": token_id, "expires": result}], ("token", "expires"))


async def _find(cluster: Cluster, token_id: str) -> DelegationToken:
    for each in await describe_tokens(cluster):
        if each.token_id == token_id:
            return each
    refusal = Refusal(error=ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    raise BrokerRefused(f"delegation token {token_id}", refusal)


@contextmanager
def _reserved(file: Path) -> Iterator[None]:
    """Create the file before the token is, so that it can be; remove it if nothing is written to it."""
    try:
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, SECRET))
    except OSError as error:
        raise click.BadParameter(f"{str(file)!r} cannot be created: {error.strerror}") from None
    try:
        yield
    finally:
        if not file.stat().st_size:
            file.unlink()


def _properties(session: Session, created: DelegationToken, mechanism: str) -> bytes:
    login = (
        f'{SCRAM_MODULE} required username="{created.token_id}" password="{created.password}" {TOKEN_OPTION}="true";'
    )
    return (
        f"# A delegation token that expires at {_time(created.information.expiry_timestamp_ms)}\n"
        f"security.protocol={session.security.security_protocol}\n"
        f"sasl.mechanism={mechanism}\nsasl.jaas.config={login}\n{_trust(session.security)}"
    ).encode()


def _trust(security: SecurityConfig) -> str:
    """Return the properties by which the client that creates the token trusts its brokers."""
    values = {name: getattr(security, name) for name in _TRUST}
    if security.ssl_truststore_location is not None:
        values["ssl_truststore_location"] = str(Path(security.ssl_truststore_location).resolve())
    return "".join(
        f"{name.replace('_', '.')}={str(value).replace(chr(10), chr(92) + 'n')}\n"
        for name, value in values.items()
        if value is not None
    )


def _row(token: DelegationToken) -> Row:
    known = token.information
    return {
        "token": known.token_id,
        "owner": str(known.owner),
        "requester": str(known.requester),
        "renewers": tuple(map(str, known.renewers)),
        "issued": _time(known.issue_timestamp_ms),
        "expires": _time(known.expiry_timestamp_ms),
        "renewable_until": _time(known.max_timestamp_ms),
    }


def _time(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="seconds")[:-6] + "Z"
    except (OverflowError, ValueError):  # A broker whose tokens never expire.
        return "never"

"""What every command that talks to a cluster shares: where it is, how to print, and how to end.

Exit codes: 0 done, 1 refused by a broker, 2 wrong usage (click's own), 3 no response in time.
"""

import asyncio
import errno
import functools
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from random import Random
from typing import Any, Concatenate, Final, NoReturn, ParamSpec, TypeVar

import click

from oncelog.clients.bootstrap import parse_bootstrap
from oncelog.clients.cli.command_config import read_command_config
from oncelog.clients.cli.needed_rights import right_on_cluster
from oncelog.clients.cli.output import Row, format_fields, format_json, format_table
from oncelog.clients.cli.remedies import NO_RESPONSE, remedy
from oncelog.clients.cli.standard_streams import abandon_output
from oncelog.clients.cli.waiting import (
    BROKERS_ADVICE,
    DOCTOR_ADVICE,
    STUCK_ADVICE,
    StillWaiting,
    Watch,
    advice_without_broker,
    watching,
)
from oncelog.clients.cluster import Cluster
from oncelog.clients.connection import Address
from oncelog.clients.errors import (
    AuthenticationFailed,
    BadResponse,
    BrokerAbsent,
    BrokerRefused,
    BrokerSilent,
    ClientError,
    ConnectionLost,
    NoBrokerReachable,
    Refusal,
    RequestTimedOut,
    Unreachable,
)
from oncelog.clients.retry import attempt_seconds
from oncelog.clients.security_config import SecurityConfig
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.printable import without_controls

T = TypeVar("T")
P = ParamSpec("P")

_LONGEST_SECONDS: Final = 2_000_000
REFUSED: Final = 1
NO_BROKER: Final = 3

_NO_SECURITY: Final = SecurityConfig()
_LOGIN_ADVICE: Final = "--command-config FILE names the protocol, the mechanism, the user and the password"
_ENVIRONMENT: Final = ["ONCELOG_BOOTSTRAP", "KAFKA_BOOTSTRAP_SERVERS"]


def wall_clock() -> int:
    """Return milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One run of a command."""

    bootstrap: list[Address]
    timeout_seconds: float
    output: str
    security: SecurityConfig = _NO_SECURITY

    def run(self, work: Callable[[Cluster], Awaitable[T]]) -> T:
        """Do the command's work; a failure is explained on standard error and ends the command with its code."""
        return self._run(self._watched(work))

    def run_watched(self, work: Callable[[Cluster, Watch], Awaitable[T]]) -> T:
        """Do what ``run`` does for a command with clients of its own, which reports obstacles in every format."""
        return self._run(self._with_watch(work))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run(work)
        except BrokerRefused as error:
            self.fail({error.subject: error.refusal})
        except NoBrokerReachable as error:
            message = str(error).replace(BrokerSilent.CAUSES, "") if error.is_silent else str(error)
            _end(NO_BROKER, message, advice_without_broker(self.bootstrap, is_silent=error.is_silent, reasons=message))
        except BadResponse as error:
            _end(NO_BROKER, str(error), advice_without_broker(self.bootstrap, reasons=str(error)))
        except StillWaiting as error:
            _end(NO_BROKER, str(error), error.advice)
        except BrokerSilent as error:
            _end(NO_BROKER, str(error).removesuffix(BrokerSilent.CAUSES), STUCK_ADVICE)
        except BrokerAbsent as error:
            _end(NO_BROKER, str(error), BROKERS_ADVICE)
        except Unreachable as error:  # A broker that others tell of.
            _end(NO_BROKER, str(error), DOCTOR_ADVICE)
        except (ConnectionLost, RequestTimedOut) as error:
            _end(NO_BROKER, str(error), "whether it was done is unknown: check before you try again")
        except AuthenticationFailed as error:
            parts = [error.advice, _LOGIN_ADVICE if self.security == _NO_SECURITY else ""]
            _end(REFUSED, str(error), ": ".join(filter(None, parts)))
        except ClientError as error:
            _end(REFUSED, str(error), None)

    def change(self, work: Callable[[Cluster], Awaitable[T]]) -> T:
        """Do what ``run`` does for a change of metadata, which ends within seconds while no store is reached."""
        from oncelog.clients.cli.metadata_store import STORE_ADVICE, StoreLost, unless_store_is_lost

        async def watched(cluster: Cluster) -> T:
            try:
                return await unless_store_is_lost(cluster, work(cluster))
            except StoreLost as error:
                _end(NO_BROKER, str(error), STORE_ADVICE)

        return self.run(watched)

    async def _watched(self, work: Callable[[Cluster], Awaitable[T]]) -> T:
        async with self.cluster() as cluster, self.watching(cluster):
            return await work(cluster)

    async def _with_watch(self, work: Callable[[Cluster, Watch], Awaitable[T]]) -> T:
        async with self.cluster() as cluster, watching(self.bootstrap, complain, cluster) as watch:
            return await work(cluster, watch)

    def watching(self, cluster: Cluster) -> AbstractAsyncContextManager[Watch | None]:
        """Report obstacles on standard error, unless the output is JSON."""
        return nullcontext() if self.output == "json" else watching(self.bootstrap, complain, cluster)

    def cluster(self) -> Cluster:
        return Cluster(
            self.bootstrap,
            rng=Random(),
            client_id="oncelog-cli",
            connect_seconds=attempt_seconds(self.timeout_seconds),
            operation_seconds=self.timeout_seconds,
            tls=self.security.make_tls_context(),
            login=self.security.login,
        )

    def show_rows(self, rows: Iterable[Row], columns: Sequence[str], *, none: str = "Nothing.") -> None:
        """Print a table, or a JSON list of all that is in the rows. Instead of an empty table ``none`` is said."""
        rows = list(rows)
        if self.output == "json":
            click.echo(format_json(rows))
        elif rows:
            click.echo(format_table(rows, columns))
        else:
            click.echo(without_controls(none), err=True)

    def show_fields(self, fields: Row) -> None:
        """Print a few values, one a line, or one JSON object."""
        click.echo(format_json(fields) if self.output == "json" else format_fields(fields))

    def show_record(self, fields: Row, rows_name: str, rows: Iterable[Row], columns: Sequence[str]) -> None:
        """Print a few values and a table, or one JSON object that has the rows under ``rows_name``."""
        rows = list(rows)
        if self.output == "json":
            click.echo(format_json({**fields, rows_name: rows}))
            return
        click.echo(format_fields(fields))
        if rows:
            click.echo("\n" + format_table(rows, columns))

    def show_outcomes(
        self, kind: str, done: str, outcomes: Mapping[Any, Refusal | None], *, none: str = "Nothing to do."
    ) -> None:
        """Print what became of each, or ``none``; refusals also go to standard error, and end the command."""
        rows = [
            {kind: str(name), "result": done if refused is None else refused.error.name}
            for name, refused in outcomes.items()
        ]
        self.show_rows(rows, (kind, "result"), none=none)
        refusals = {f"{kind} {name}": refused for name, refused in outcomes.items() if refused is not None}
        self.fail_if_any(refusals)

    def fail_if_any(self, refusals: Mapping[str, Refusal]) -> None:
        """End the command with ``fail`` if something was refused."""
        if refusals:
            self.fail(refusals)

    def fail(self, refusals: Mapping[str, Refusal]) -> NoReturn:
        """Explain what a broker refused, and end the command."""
        for subject, refused in refusals.items():
            is_of_cluster = refused.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            complain(f"Error: {subject}: {refused}", right_on_cluster() if is_of_cluster else remedy(refused))
        had_no_response = all(refused.error in NO_RESPONSE for refused in refusals.values())
        raise click.exceptions.Exit(NO_BROKER if had_no_response else REFUSED)


def _end(code: int, message: str, advice: str | None) -> NoReturn:
    complain(f"Error: {message}", advice)
    raise click.exceptions.Exit(code)


def complain(message: str, advice: str | None = None) -> None:
    """Print a message on standard error, with what can be done about it on the next line."""
    click.echo(without_controls(message), err=True)
    if advice:
        click.echo(f"  {advice}", err=True)


def _bootstrap(context: click.Context, parameter: click.Parameter, value: str) -> list[Address]:
    try:
        return parse_bootstrap(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _security(context: click.Context, parameter: click.Parameter, value: str | None) -> SecurityConfig:
    return _NO_SECURITY if value is None else read_command_config(value, complain)


class _Seconds(click.FloatRange):
    """A time-out: above 0 and, since requests carry it in milliseconds of 32 bits, at most 24 days."""

    name = "seconds"

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True, max=_LONGEST_SECONDS)

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        seconds = super().convert(value, parameter, context)
        if math.isnan(seconds):
            self.fail(f"{value!r} is not a number of seconds", parameter, context)
        return seconds


def with_session(
    formats: Sequence[str] = ("table", "json"),
    default: str = "table",
    timeout_help: str = "Time for the whole command, in seconds.",
) -> Callable[[Callable[Concatenate[Session, P], None]], Callable[..., None]]:
    """Give a command the options of a ``Session``, and its function the session."""

    def decorate(function: Callable[Concatenate[Session, P], None]) -> Callable[..., None]:
        @click.option(
            "--bootstrap",
            "-b",
            envvar=_ENVIRONMENT,
            default="localhost:9092",
            show_default=True,
            show_envvar=True,
            callback=_bootstrap,
            metavar="HOST:PORT,…",
            help="Addresses of one or more brokers of the cluster.",
        )
        @click.option(
            "--timeout",
            type=_Seconds(),
            default=30.0,
            show_default=True,
            metavar="SECONDS",
            help=timeout_help,
        )
        @click.option(
            "--command-config",
            "security",
            envvar="ONCELOG_COMMAND_CONFIG",
            show_envvar=True,
            callback=_security,
            metavar="FILE",
            help="Properties with security.protocol, and those of ssl and sasl for it.",
        )
        @click.option(
            "--format", "output", type=click.Choice(formats), default=default, show_default=True, help="Output format."
        )
        @functools.wraps(function)
        def command(*args: P.args, **kwargs: P.kwargs) -> None:
            session = Session(
                bootstrap=kwargs.pop("bootstrap"),  # type: ignore[arg-type]
                timeout_seconds=kwargs.pop("timeout"),  # type: ignore[arg-type]
                output=kwargs.pop("output"),  # type: ignore[arg-type]
                security=kwargs.pop("security"),  # type: ignore[arg-type]
            )
            try:
                function(session, *args, **kwargs)
            except OSError as error:
                if error.errno == errno.EPIPE:
                    raise  # As with ``| head``: click ends the command without a word.
                abandon_output()
                _end(REFUSED, f"standard input or output: {error.strerror or error}", None)

        return command

    return decorate


def example(*lines: str) -> str:
    """Return the examples at the end of a command's help."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)

"""Arguments of ``oncelog txn`` that may also be given by the options of Kafka's own tool."""

import functools
from collections.abc import Callable
from typing import ParamSpec

import click

P = ParamSpec("P")


def argument_or_option(
    parameter: str, metavar: str, *options: str
) -> Callable[[Callable[P, None]], Callable[..., None]]:
    """Return a decorator for a required argument that may also be given by one of ``options``."""
    by_option = f"{parameter}_option"

    def decorate(function: Callable[P, None]) -> Callable[..., None]:
        @click.argument(parameter, required=False, metavar=metavar)
        @click.option(*options, by_option, metavar=metavar, help=f"The same as {metavar}, as in Kafka's tool.")
        @functools.wraps(function)
        def command(*args: P.args, **kwargs: P.kwargs) -> None:
            given = [value for value in (kwargs[parameter], kwargs.pop(by_option)) if value is not None]
            if len(given) != 1:
                raise click.UsageError(f"name {metavar} once")
            kwargs[parameter] = given[0]
            function(*args, **kwargs)

        return command

    return decorate


transactional_id_argument = argument_or_option(
    "transactional_id", "TRANSACTIONAL-ID", "--transactional-id", "--transactionalId"
)
topic_argument = argument_or_option("topic", "TOPIC", "--topic", "-t")

"""Standard input and output as a command finds them: of another alphabet, closed, or on a device that is full."""

import io
import os
import sys
from collections.abc import Sequence

import click


def accept_any_text() -> None:
    """Have characters that the terminal's encoding lacks printed as escapes, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def decode_arguments(arguments: Sequence[str]) -> list[str]:
    """Return arguments as UTF-8 where the locale could not decode them. Raises ``click.UsageError`` for other bytes."""
    decoded = []
    for argument in arguments:
        try:
            decoded.append(os.fsencode(argument).decode() if _has_surrogates(argument) else argument)
        except UnicodeError:
            raise click.UsageError(f"the argument {argument!a} is not UTF-8") from None
    return decoded


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def abandon_output() -> None:
    """Send the rest of standard output nowhere: what is buffered would fail again when the process ends."""
    if sys.stdout is None:
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    finally:
        os.close(nowhere)

"""``oncelog audit verify FILE``: whether an audit log is as its broker has written it.

Exit code 1 says that it is not: a line was changed, removed or put in. What was removed from the end shows only against
a line that is known to have been written: brokers note the last one in their own log.
"""

import re
from pathlib import Path
from typing import Final

import click

from oncelog.broker.security.audit_chain import MIN_KEY_BYTES, Head, verify

_NOT_AS_WRITTEN: Final = 1
_HEAD: Final = re.compile(r"(\d+):([0-9a-f]{64})")


@click.group()
def command() -> None:
    """Verify the audit log of a broker."""


@command.command("verify")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE")
@click.option(
    "--key-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the key (oncelog.audit.key.file).",
)
@click.option("--expect", metavar="LINE:SEAL", help="A line that was written, from the broker's own log.")
def verify_command(file: Path, key_file: Path | None, expect: str | None) -> None:
    """Find lines that were changed, removed or put in."""
    expected = None
    if expect is not None:
        match = _HEAD.fullmatch(expect)
        if match is None:
            raise click.BadParameter(f"--expect {expect}: expected LINE:SEAL, a number and 64 hexadecimal digits")
        expected = Head(int(match[1]), match[2])
    key = None if key_file is None else key_file.read_bytes().strip()
    if key is not None and len(key) < MIN_KEY_BYTES:
        raise click.BadParameter(f"{key_file} has {len(key)} bytes: a key has {MIN_KEY_BYTES} at least")
    with file.open("rb") as lines:
        verdict = verify(lines, key, expected)
    for problem in verdict.problems:
        click.echo(problem)
    if verdict.unlisted:
        click.echo(f"{verdict.unlisted} more")
    click.echo(f"{verdict.lines} lines, the last is {verdict.head.line}:{verdict.head.seal}")
    if verdict.problems:
        raise SystemExit(_NOT_AS_WRITTEN)

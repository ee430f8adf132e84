"""Files that commands write: put into their place whole, and not readable by others if they have a secret."""

import os
from pathlib import Path
from typing import Final

SECRET: Final = 0o600
"""The mode of a file that only its owner can read."""


def write_whole(path: Path, content: bytes, mode: int) -> None:
    """Put a file into its place whole, never readable by others if ``mode`` says so."""
    draft = path.with_name(f".{path.name}.draft")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(content)
    os.replace(draft, path)

"""A package that a command needs and this Python does not have: the error names the remedy, without a traceback."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_EXIT_CODE: Final = 1


@contextmanager
def missing_package_explained() -> Iterator[None]:
    """End the process with one line if a package of others cannot be imported; one of ours is a defect."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if not name or name == "oncelog":
            raise
        print(
            f"Error: the package {name} is missing in {sys.executable}: in a checkout, run `make .venv/.runtime` and "
            "then .venv/bin/oncelog; elsewhere, install Oncelog again with pip",
            file=sys.stderr,
        )
        sys.exit(_EXIT_CODE)

"""Errors that a user has to act on, without the stack of the process in which they were noticed.

Spark shows the traceback of its Python process with every error, some forty lines above the message. For what is wrong
with options or addresses no line of it helps. Spark leaves it out where ``SPARK_HIDE_TRACEBACK`` is set in the
environment of that process (from 4.1 on), which ends after the error: so the variable is set for one error.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from oncelog.clients.errors import NoBrokerReachable, TlsFailed


class UserError(ValueError):
    """What a user has to change before the query can run: options, a schema, a version."""


_PLAIN: Final = (UserError, NoBrokerReachable, TlsFailed)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Have Spark show errors of options and addresses by their message alone."""
    try:
        yield
    except _PLAIN:
        if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":  # A process that Spark started for this.
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise

"""Errors that a user can mend, shown without a traceback.

Spark shows the traceback of its Python process with every error, some forty lines above the message. It does not help
with wrong options or addresses. Spark (from 4.1 on) leaves it out if ``SPARK_HIDE_TRACEBACK`` is set in the environment
of that process. The process ends after the error, so the variable is set for one error only.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from oncelog.clients.errors import AuthenticationFailed, NoBrokerReachable, TlsFailed


class UserError(ValueError):
    """The user must change options, a schema or a version before the query can run."""


_PLAIN: Final = (UserError, NoBrokerReachable, TlsFailed, AuthenticationFailed)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Have Spark show errors of options and addresses by their message alone."""
    try:
        yield
    except _PLAIN:
        if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":  # A process that Spark started for this.
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise

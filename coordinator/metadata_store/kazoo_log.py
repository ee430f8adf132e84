"""What kazoo logs, one level lower, and its last warning.

kazoo writes a warning or two for every attempt to connect, several a second while no server responds. The store and the
broker say what an outage means, once; kazoo's own lines are for debugging. Its last warning says why no server can be
reached, which it reports in no other way.

What kazoo itself writes for debugging is dropped: whole requests and responses, with the password of the session, the
login, and what znodes hold.
"""

import logging
from collections.abc import Mapping
from typing import Any

_LOWERED = {logging.WARNING: logging.DEBUG, logging.INFO: logging.DEBUG}


class KazooLog(logging.LoggerAdapter[logging.Logger]):
    """The logger that a kazoo client is given."""

    def __init__(self) -> None:
        super().__init__(logging.getLogger("kazoo.client"), {})
        self.last_warning = ""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if level <= logging.DEBUG:
            return
        if level == logging.WARNING:
            named: tuple[object, ...] | Mapping[str, object] = args
            try:
                self.last_warning = str(msg) % named
            except (TypeError, ValueError):
                self.last_warning = str(msg)
        super().log(_LOWERED.get(level, level), msg, *args, **kwargs)

    @property
    def reason(self) -> str:
        """The last warning in parentheses, to follow a sentence; empty if there was none."""
        return f" ({self.last_warning})" if self.last_warning else ""
